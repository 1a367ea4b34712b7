"""Refusals as exceptions."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import httpx


class WorkspacedError(Exception):
    """A refusal. `NoAnswer` is the one of a request that received no answer: every failure has this type.

    `code` is stable, `detail` says what is wrong, `hint` what to do next. `problem` has all members of the refusal, such as
    `currentSha256`, `conflicts` or `nearest`.
    """

    def __init__(self, status: int, problem: Mapping[str, Any], request_id: str | None) -> None:
        self.status = status
        self.code = str(problem.get("code", f"HTTP_{status}"))
        self.detail = str(problem.get("detail", "the answer is not one of workspaced"))
        self.hint = str(problem.get("hint", ""))
        self.request_id = request_id
        self.problem = problem
        super().__init__(f"{self.code}: {self.detail}" + (f" ({self.hint})" if self.hint else ""))

    @property
    def is_recorded(self) -> bool:
        """Whether the call has reached its run, which has the refusal in its record."""
        return self.problem.get("seq") is not None


class NoAnswer(WorkspacedError):
    """The request received no answer, or none of this service. Its status is 0; `__cause__` is the error of the connection."""

    def __init__(self, code: str, detail: str, url: str) -> None:
        hint = (
            f"Does the service run, and is {url!r} its address? The examples take it from WORKSPACED_URL, such as "
            "http://127.0.0.1:8080. What was asked for may have happened."
        )
        super().__init__(0, {"code": code, "detail": detail, "hint": hint}, None)


class FolderError(WorkspacedError):
    """A folder of a run, or the sandbox that has it, failed. Its status is 0; the run is as it was.

    Codes: `CONFLICT` (files changed there and in the run; `problem["conflicts"]`), `NO_CHECKOUT`, `OTHER_RUN`, `MOVED`, `UNSTEADY`,
    `FOLDER`, `NO_SHIM`, `NOT_STARTED`, `LOST`, `ADDRESS`.
    """

    def __init__(self, code: str, detail: str, hint: str = "", **members: Any) -> None:
        super().__init__(0, {"code": code, "detail": detail, "hint": hint, **members}, None)


def no_answer(failure: Exception, url: str) -> NoAnswer:
    """Returns the error for a failure of the connection to the service at `url`."""
    code = "TIMEOUT" if isinstance(failure, httpx.TimeoutException) else "NO_ANSWER"
    return NoAnswer(code, str(failure) or type(failure).__name__, url)


class ApprovalRequired(WorkspacedError):
    """The call waits for a person's decision. Nothing has changed yet; `Run.wait_for_approval` returns its outcome."""

    @property
    def approval_id(self) -> str | None:
        """The ID of the approval. A dry run has none."""
        return self.problem.get("approvalId")

    @property
    def call_id(self) -> str | None:
        """The ID of the call, for `Run.tool_call`."""
        return self.problem.get("toolCallId")


def error_of(response: httpx.Response) -> WorkspacedError:
    """Returns the refusal in an answer whose body is read, as JSON or as the text for models."""
    problem = _problem(response)
    error = ApprovalRequired if problem.get("code") == "APPROVAL_REQUIRED" else WorkspacedError
    return error(response.status_code, problem, response.headers.get("x-request-id"))


def _problem(response: httpx.Response) -> Mapping[str, Any]:
    if response.headers.get("content-type", "").startswith("text/plain"):
        code, _, rest = response.text.partition(": ")
        detail, _, hint = rest.partition("\n")
        seq = response.headers.get("workspaced-seq")
        return {"code": code, "detail": detail, "hint": hint.strip(), **({"seq": int(seq)} if seq else {})} if code.isupper() else {}
    try:
        problem = json.loads(response.content)
    except ValueError:
        return {}
    return problem if isinstance(problem, dict) else {}
