# Written by `generate_types.py` from the file of the same name in `aio`: do not edit.
"""One run: its tools, its files, its events and its records."""

from __future__ import annotations

import hashlib
import os
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias, cast
from urllib.parse import quote

from . import types
from .errors import ApprovalRequired, WorkspacedError
from .methods import ToolMethods
from .values import Event, Executed, Pulled, Pushed, ResumePoint, TextAnswer
from .checkout import Checkout, OutputSink
from .streams import follow
from .transport import CHUNK_BYTES, Body, Transport, pages, segment

Catalogue: TypeAlias = Literal["workspaced", "openai", "anthropic", "mcp"]

MAX_WAIT_SECONDS = 60
# The tools that have a runner run a command, by our name and by those in the forms that models know.
COMMANDS = frozenset({"run_command", "bash", "exec_command", "run_shell_command", "write_stdin"})
MAX_ARTIFACT_BYTES = 16 * 1024 * 1024


class Run:
    """The requests of one run, made with the token of an operator or of an agent."""

    def __init__(self, transport: Transport, run_id: str) -> None:
        self.transport, self.id = transport, run_id
        self._path = f"/v1/runs/{segment(run_id)}"

    # The run

    def info(self) -> types.RunView:
        """Returns the run; with a token of the run, what its agent may know."""
        return cast(types.RunView, self.transport.json("GET", self._path))

    def close(self) -> types.Run:
        """Ends the changes. Reads go on."""
        return cast(types.Run, self.transport.json("POST", f"{self._path}/close"))

    def delete(self) -> types.Run:
        """Deletes the run's files. Its records stay."""
        return cast(types.Run, self.transport.json("DELETE", self._path))

    def upload_archive(self, archive: Body) -> types.Run:
        """Sends the tar or tar.gz that the run is made from, if its source is `archive`."""
        headers = {"Content-Type": "application/x-tar"}
        sent = self.transport.json("PUT", f"{self._path}/archive", content=archive, headers=headers, repeatable=False)
        return cast(types.Run, sent)

    def issue_token(
        self, permissions: Sequence[types.Permission] | None = None, expires_at: str | None = None
    ) -> types.IssuedToken:
        """Issues a further token, for example with `event:append` for a runner."""
        body: dict[str, Any] = {} if permissions is None else {"permissions": list(permissions)}
        body |= {"expiresAt": expires_at} if expires_at else {}
        key = {"Idempotency-Key": f"token-{uuid.uuid4()}"}
        return cast(types.IssuedToken, self.transport.json("POST", f"{self._path}/tokens", body, headers=key))

    def revoke_token(self, token_id: str) -> None:
        """Revokes a token of the run."""
        self.transport.json("DELETE", f"{self._path}/tokens/{segment(token_id)}")

    # Forks

    def merge(
        self, fork: Run | str, reason: str, *, merge: bool = False, leave_denied: bool = False, dry_run: bool = False
    ) -> types.ChangesetAnswer:
        """Applies what a fork of the run has changed since it was made or merged last, as one set.

        With `merge`, what both runs have changed is merged where it is apart; with `leave_denied`, what policy denies is left out.
        """
        body = {"from": id_of(fork), "reason": reason, "onConflict": "merge" if merge else "refuse",
                "onDenied": "leave" if leave_denied else "refuse", "dryRun": dry_run}  # fmt: skip
        # A repetition would also bring what the fork has changed in between.
        answer = self.transport.json("POST", f"{self._path}/merge", body, repeatable=False)
        return cast(types.ChangesetAnswer, answer)

    def compare(self, other: Run | str, *, after: str | None = None, limit: int | None = None) -> types.RunComparison:
        """Compares the newest files, the counts and the tests of two runs. `nextAfter` of a part is `after` of the next one."""
        params = {name: value for name, value in (("after", after), ("limit", limit)) if value is not None}
        path = f"{self._path}/compare/{segment(id_of(other))}"
        return cast(types.RunComparison, self.transport.json("GET", path, params=params))

    # Tools

    @property
    def call(self) -> types.CallTool:
        """Calls a tool: `run.call("read_file", path="a.py")["content"]`. Raises refusals."""
        return self._call

    def _call(self, tool: str, /, **input: Any) -> Any:
        return self.call_tool(tool, input)

    @property
    def tool(self) -> ToolMethods:
        """Calls a tool by its method: `run.tool.read_file(path="a.py")["content"]`. Raises refusals."""
        return ToolMethods(self.call_tool)

    def call_tool(self, tool: str, input: Mapping[str, Any]) -> dict[str, Any]:
        """Calls a tool whose name or input is only known at run time."""
        path = f"{self._path}/tools/{segment(tool)}"
        return cast(dict[str, Any], self.transport.json("POST", path, with_call_id(input), is_command=tool in COMMANDS))

    def text(self, tool: str, /, **input: Any) -> TextAnswer:
        """Calls a tool and returns the text for a model, also of a refusal.

        Raises only refusals that a model can do nothing about: an invalid token, overload, an error of the service.
        """
        headers = {"Accept": "text/plain"}
        return self._text(f"{self._path}/tools/{segment(tool)}", with_call_id(input), headers, tool in COMMANDS)

    def text_in_format(self, format: str, tool: str, input: object, *, reason: str | None = None) -> TextAnswer:
        """Calls a tool in a form that models were trained on, such as `anthropic-editor`, and returns what goes back to the model.

        `input` is what the provider's API gives. Raises what `text` raises.
        """
        headers = {"X-Tool-Call-Id": f"tc_{uuid.uuid4()}"} if reason is None else _call_headers(reason)
        return self._text(f"{self._path}/formats/{segment(format)}/{segment(tool)}", input, headers, tool in COMMANDS)

    def _text(self, path: str, json: object, headers: Mapping[str, str], is_command: bool) -> TextAnswer:
        response = self.transport.send("POST", path, json=json, headers=headers, accept_refusal=True, is_command=is_command)
        seq = response.headers.get("workspaced-seq")
        return TextAnswer(
            text=response.text,
            ok=response.status_code == 200,
            status=response.status_code,
            call_id=response.headers.get("workspaced-call"),
            seq=int(seq) if seq else None,
            sha256=response.headers.get("workspaced-sha256"),
        )

    def batch(self, calls: Sequence[types.BatchCall], *, atomic: bool = False, stop_on_error: bool = False) -> types.BatchResponse:
        """Calls several tools in order; with `atomic`, all take effect or none."""
        calls = [{"tool": call["tool"], "input": with_call_id(call.get("input", {}))} for call in calls]
        body = {"calls": calls, "atomic": atomic, "stopOnError": stop_on_error}
        return cast(types.BatchResponse, self.transport.json("POST", f"{self._path}/batch", body))

    def tools(self, format: Catalogue = "workspaced", audience: Literal["program", "model"] = "program") -> list[dict[str, Any]]:
        """Returns the tools that the token may call, as function-calling interfaces take them."""
        params = {"format": format, "audience": audience}
        return cast(list[dict[str, Any]], (self.transport.json("GET", "/v1/tools", params=params))["items"])

    def tool_call(self, call_id: str, wait_seconds: int = 0) -> types.ToolCall:
        """Returns the record of a call. Waits up to `wait_seconds` for the decision of its approval."""
        params = {"waitSeconds": wait_seconds} if wait_seconds else {}
        path = f"{self._path}/tool-calls/{segment(call_id)}"
        timeout = (self.transport.http.timeout.read or 0.0) + wait_seconds
        return cast(types.ToolCall, self.transport.json("GET", path, params=params, timeout=timeout or None))

    def wait_for_approval(self, waiting: ApprovalRequired | str, timeout: float | None = None) -> types.ToolCall:
        """Waits until the call of this ID or error is decided, and returns its record: with `ok`, it was approved and executed.

        Raises `ApprovalRequired` again if it still waits after `timeout` seconds.
        """
        call_id = waiting.call_id if isinstance(waiting, ApprovalRequired) else waiting
        if call_id is None:
            raise ValueError("the call of a dry run does not wait")
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = MAX_WAIT_SECONDS if end is None else max(0, min(MAX_WAIT_SECONDS, round(end - time.monotonic())))
            call = self.tool_call(call_id, left)
            approval = call.get("approval")
            if approval is None or approval["state"] != "pending":
                return call
            if end is not None and time.monotonic() >= end:
                problem = {"code": "APPROVAL_REQUIRED", "detail": f"`{call_id}` still waits for its approval",
                           "approvalId": approval["approvalId"], "toolCallId": call_id}  # fmt: skip
                raise ApprovalRequired(202, problem, None)

    def explain_policy(self, query: types.PolicyQuery) -> types.PolicyExplanation:
        """Returns what policy would decide about a path or a patch."""
        return cast(types.PolicyExplanation, self.transport.json("POST", f"{self._path}/policy/explain", query))

    # Whole files, as bytes

    def read_bytes(self, path: str) -> bytes:
        """Returns a whole file."""
        return (self.transport.send("GET", self._file(path))).content

    @contextmanager
    def download(self, path: str, start: int = 0) -> Iterator[Iterator[bytes]]:
        """Gives a file in chunks, from the byte `start`: `with run.download("a.bin") as chunks: ...`."""
        with self._download(self._file(path), {"Range": f"bytes={start}-"} if start else {}) as chunks:
            yield chunks

    def create_file(self, path: str, content: Body, reason: str) -> types.StoredFile:
        """Stores a new file, from bytes, an open binary file or chunks."""
        return self._put(path, content, reason, {"If-None-Match": "*"})

    def replace_file(self, path: str, content: Body, reason: str, expected_sha256: str) -> types.StoredFile:
        """Replaces the version of a file that has this hash."""
        return self._put(path, content, reason, {"If-Match": f'"{expected_sha256}"'})

    def delete_file(self, path: str, reason: str, expected_sha256: str) -> None:
        """Deletes the version of a file that has this hash."""
        headers = {**_call_headers(reason), "If-Match": f'"{expected_sha256}"'}
        self.transport.json("DELETE", self._file(path), headers=headers)

    def _put(self, path: str, content: Body, reason: str, condition: Mapping[str, str]) -> types.StoredFile:
        headers = {**_call_headers(reason), **condition, "Content-Type": "application/octet-stream"}
        return cast(types.StoredFile, self.transport.json("PUT", self._file(path), content=content, headers=headers))

    def _file(self, path: str) -> str:
        return f"{self._path}/files/{_in_url(path)}"

    @contextmanager
    def _download(self, path: str, headers: Mapping[str, str]) -> Iterator[Iterator[bytes]]:
        with self.transport.stream("GET", path, headers=headers) as response:
            yield response.iter_bytes(CHUNK_BYTES)

    # The result

    def patch(self) -> str:
        """Returns the changes since the base commit as a diff."""
        return (self.transport.send("GET", f"{self._path}/patch")).text

    @contextmanager
    def archive(self) -> Iterator[Iterator[bytes]]:
        """Gives the tree as a tar.gz, in chunks."""
        with self._download(f"{self._path}/archive", {}) as chunks:
            yield chunks

    @contextmanager
    def bundle(self, **options: str) -> Iterator[Iterator[bytes]]:
        """Gives the changes as a git bundle, in chunks; the options are the parameters of the route."""
        with self.transport.stream("GET", f"{self._path}/bundle", params=options) as response:
            yield response.iter_bytes(CHUNK_BYTES)

    def report(self) -> types.RunReport:
        """Returns the account of the run."""
        return cast(types.RunReport, self.transport.json("GET", f"{self._path}/report", params={"format": "json"}))

    def report_markdown(self) -> str:
        """Returns the account of the run as Markdown, for the body of a pull request."""
        return (self.transport.send("GET", f"{self._path}/report", params={"format": "markdown"})).text

    # Folders and commands

    def checkout(
        self,
        dir: str | os.PathLike[str] | None = None,
        *,
        sandbox: str | None = None,
        fresh: bool = False,
        shim: str | os.PathLike[str] | None = None,
    ) -> Checkout:
        """Returns the run's files in a folder, to be opened by `with`: `dir` of this machine, or of a sandbox such as `docker:web`.

        `fresh` makes a new folder and removes it afterwards. Needs the program `workspaced-shim`: `shim`, WORKSPACED_SHIM, or on the PATH.
        """
        return Checkout(self, dir, sandbox=sandbox, fresh=fresh, shim=shim)

    def pull(
        self,
        dir: str | os.PathLike[str] | None = None,
        *,
        sandbox: str | None = None,
        shim: str | os.PathLike[str] | None = None,
        theirs: Sequence[str] = (),
    ) -> Pulled:
        """Brings a folder to the newest state of the run, as `Checkout.pull`. Overwrites nothing that was changed there, but for `theirs`."""
        with self.checkout(dir, sandbox=sandbox, shim=shim) as checkout:
            return checkout.pull(theirs=theirs)

    def push(
        self,
        dir: str | os.PathLike[str] | None = None,
        *,
        reason: str,
        sandbox: str | None = None,
        shim: str | os.PathLike[str] | None = None,
        merge: bool = False,
        leave_denied: bool = False,
        all: bool = False,
    ) -> Pushed | None:
        """Sends what changed in a folder as one set, as `Checkout.push`."""
        with self.checkout(dir, sandbox=sandbox, shim=shim) as checkout:
            return checkout.push(reason=reason, merge=merge, leave_denied=leave_denied, all=all)

    def exec(
        self,
        command: Sequence[str] | str,
        *,
        dir: str | os.PathLike[str] | None = None,
        sandbox: str | None = None,
        fresh: bool = False,
        shim: str | os.PathLike[str] | None = None,
        push: bool = False,
        test: bool = False,
        reason: str | None = None,
        merge: bool = False,
        leave_denied: bool = False,
        all: bool = False,
        cwd: str = ".",
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        on_output: OutputSink | None = None,
    ) -> Executed:
        """Runs a command in the run's files and records it, as `Checkout.exec`."""
        with self.checkout(dir, sandbox=sandbox, fresh=fresh, shim=shim) as checkout:
            return checkout.exec(
                command, push=push, test=test, reason=reason, merge=merge, leave_denied=leave_denied, all=all, cwd=cwd, env=env,
                timeout=timeout, on_output=on_output,
            )  # fmt: skip

    # Events

    def record_event(
        self,
        kind: types.EventKind,
        summary: str,
        *,
        data: Mapping[str, Any] | None = None,
        started_at: str | None = None,
        duration_micros: int | None = None,
        step_id: str | None = None,
        event_id: str | None = None,
    ) -> types.AppendedEvent:
        """Records what happened outside of the tools. Needs the permission `event:append`."""
        event = {"eventId": event_id or f"ev_{uuid.uuid4()}", "kind": kind, "summary": summary[:500], "data": data,
                 "startedAt": started_at, "durationMicros": duration_micros, "stepId": step_id}  # fmt: skip
        body = {name: value for name, value in event.items() if value is not None}
        return cast(types.AppendedEvent, self.transport.json("POST", f"{self._path}/events", body))

    def record_command(
        self,
        command: Sequence[str],
        exit_code: int,
        *,
        output: bytes = b"",
        kind: Literal["command", "test"] = "command",
        started_at: str | None = None,
        duration_micros: int | None = None,
        step_id: str | None = None,
    ) -> types.AppendedEvent:
        """Records a command and its outcome. The end of the output is uploaded and named by its digest.

        An output with a credential is refused by the service. Then only its digest and length are recorded.
        """
        data: dict[str, Any] = {"command": list(command), "exitCode": exit_code}
        if kept := output[-MAX_ARTIFACT_BYTES:]:
            data |= {"outputSha256": hashlib.sha256(kept).hexdigest(), "outputBytes": len(output)}
            try:
                data["output"] = (self.upload_artifact(kept))["uri"]
            except WorkspacedError as refusal:
                if refusal.code != "POLICY_DENIED_SECRET":
                    raise
                data["outputRefused"] = refusal.code
        summary = f"`{' '.join(command)}` ended with {exit_code}"
        return self.record_event(
            kind, summary, data=data, started_at=started_at, duration_micros=duration_micros, step_id=step_id
        )

    def upload_artifact(self, content: bytes) -> types.UploadedArtifact:
        """Stores what is too large for an event, such as a log, under its digest: at most 16 MiB."""
        path = f"{self._path}/artifacts/sha256/{hashlib.sha256(content).hexdigest()}"
        headers = {"Content-Type": "application/octet-stream"}
        return cast(types.UploadedArtifact, self.transport.json("PUT", path, content=content, headers=headers))

    def artifact(self, artifact_id: str) -> bytes:
        """Returns the diff of a mutation (`art_...`), or an uploaded artifact by its digest."""
        middle = "" if artifact_id.startswith("art_") else "sha256/"
        return (self.transport.send("GET", f"{self._path}/artifacts/{middle}{segment(artifact_id)}")).content

    # Records

    def audit(self, **filters: Any) -> Iterator[types.AuditRecord]:
        """Yields the records of the run in order, page by page."""
        return cast(Iterator[types.AuditRecord], pages(self.transport, f"{self._path}/audit", filters))

    def verify(self) -> types.AuditVerification:
        """Checks the chain of the run's records."""
        return cast(types.AuditVerification, self.transport.json("GET", f"{self._path}/audit/verify"))

    def follow(self, *, resume: ResumePoint | None = None, timeout: float | None = None, since: int = 0) -> Iterator[Event]:
        """Yields the changes of the run's files as they are made, without a gap, from those after the record `since`."""
        return follow(self.transport, f"{self._path}/changes", {"since": str(since)}, resume or ResumePoint(), timeout)


def id_of(run: Run | str) -> str:
    """Returns the ID of a run."""
    return run.id if isinstance(run, Run) else run


def with_call_id(input: Mapping[str, Any]) -> dict[str, Any]:
    """Returns an input with the ID that makes each repetition of the request the same call."""
    return {"toolCallId": f"tc_{uuid.uuid4()}", **input}


def _call_headers(reason: str) -> dict[str, str]:
    return {"X-Reason": f"utf-8''{quote(reason, safe='')}", "X-Tool-Call-Id": f"tc_{uuid.uuid4()}"}


def _in_url(path: str) -> str:
    """The path as a part of a URL. One with `..` is one segment of it: the service resolves it or refuses it, and no library does."""
    if {".", ".."} & set(path.split("/")):
        return quote(f"./{path}", safe="")
    return quote(path, safe="/")
