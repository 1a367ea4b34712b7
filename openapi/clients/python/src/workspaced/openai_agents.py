# Written by `generate_types.py` from the file of the same name in `aio`: do not edit.
"""An editor for the package `openai-agents`: `pip install "workspaced-client[openai-agents]"`."""

from __future__ import annotations

import json
from typing import Any

from .extras import needs
from .run import Run

with needs("openai-agents"):
    from agents.editor import ApplyPatchOperation, ApplyPatchResult

__all__ = ["Editor"]


class Editor:
    """The files of a run for the SDK's `ApplyPatchTool`. A refusal is a failed result, in the service's words."""

    def __init__(self, run: Run, *, reason: str | None = None) -> None:
        self._run, self._reason = run, reason

    def create_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        """Creates a file."""
        return self._apply(operation)

    def update_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        """Changes a file, and moves it if the operation says so."""
        return self._apply(operation)

    def delete_file(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        """Deletes a file."""
        return self._apply(operation)

    def _apply(self, operation: ApplyPatchOperation) -> ApplyPatchResult:
        members = {"type": operation.type, "path": operation.path, "diff": operation.diff, "move_to": operation.move_to}
        asked = {"operation": {name: value for name, value in members.items() if value is not None}}
        answer = self._run.text_in_format("openai-apply-patch", "apply_patch", asked, reason=self._reason)
        if not answer.text.startswith("{"):
            return ApplyPatchResult(status="failed", output=answer.text)
        item: dict[str, Any] = json.loads(answer.text)
        return ApplyPatchResult(status=item["status"], output=item["output"])
