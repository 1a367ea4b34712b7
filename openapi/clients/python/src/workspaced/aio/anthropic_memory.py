"""A memory for the package `anthropic` that is kept in the files of a run: `pip install "workspaced-client[anthropic]"`."""

from __future__ import annotations

import re
from typing import Any

from ..extras import needs
from ..values import TextAnswer
from .run import Run

with needs("anthropic"):
    from anthropic.lib.tools import BetaAsyncAbstractMemoryTool, ToolError
    from anthropic.types import beta

ROOT = "/memories"
# Lines of files have a number, or are indented.
OF_FILE = re.compile(r" *\d+\t|  ")


class MemoryTool(BetaAsyncAbstractMemoryTool):
    """The memory tool of the SDK, whose `/memories` is the folder `folder` of a run.

    The service answers in the words of the SDK's own memory of files, and adds what helps with a refusal. Policy, budgets and the
    record are those of the run. A change made meanwhile by another is not overwritten.
    """

    def __init__(self, run: Run, folder: str = "memories", *, cache_control: beta.BetaCacheControlEphemeralParam | None = None) -> None:
        super().__init__(cache_control=cache_control)
        folder = folder.strip("/")
        self._run, self._folder = run, ROOT if folder in ("", ".") else f"{ROOT}/{folder}"

    async def execute(self, command: beta.BetaMemoryTool20250818Command) -> str:
        """Executes a command of the model. Decisions of approvals since the last answer come first in the text."""
        asked = command.to_dict()
        given = {name: self._inside(asked, name) if name.endswith("path") else value for name, value in asked.items()}
        answer = await self._send(given)
        if answer.status == 409 and "this token has not seen" in answer.text:
            # The SDK's own memory changes what the model has not viewed. The service is shown which version is meant.
            await self._send({"command": "view", "path": given.get("path", given.get("old_path"))})
            answer = await self._send(given)
        text = self._shown(answer.text)
        if answer.status == 404 and asked.get("command") == "view" and given.get("path") == self._folder:
            notices, _, _ = text.partition(f"The path {asked['path']} does not exist")
            return f"{notices}Here're the files and directories up to 2 levels deep in {asked['path']}, excluding hidden items:\n0B\t{ROOT}"
        if not answer.ok:
            raise ToolError(text.removeprefix("INVALID_REQUEST: "))
        return text

    async def view(self, command: beta.BetaMemoryTool20250818ViewCommand) -> str:
        """Shows a file with line numbers, or a folder two levels deep."""
        return await self.execute(command)

    async def create(self, command: beta.BetaMemoryTool20250818CreateCommand) -> str:
        """Creates a file. An existing one is not replaced."""
        return await self.execute(command)

    async def str_replace(self, command: beta.BetaMemoryTool20250818StrReplaceCommand) -> str:
        """Replaces the only occurrence of a text in a file."""
        return await self.execute(command)

    async def insert(self, command: beta.BetaMemoryTool20250818InsertCommand) -> str:
        """Inserts text after a line of a file; 0 is its beginning."""
        return await self.execute(command)

    async def delete(self, command: beta.BetaMemoryTool20250818DeleteCommand) -> str:
        """Deletes a file, or a folder with what is in it."""
        return await self.execute(command)

    async def rename(self, command: beta.BetaMemoryTool20250818RenameCommand) -> str:
        """Moves a file or a folder. An existing one is not replaced."""
        return await self.execute(command)

    async def clear_all_memory(self) -> str:
        """Deletes the whole memory. The run's history still has it."""
        answer = await self._send({"command": "delete", "path": self._folder})
        if not answer.ok and answer.status != 404:
            raise ToolError(self._shown(answer.text).removeprefix("INVALID_REQUEST: "))
        return "All memory cleared"

    async def _send(self, command: dict[str, Any]) -> TextAnswer:
        return await self._run.text_in_format("anthropic-memory", "memory", command, reason=f"the memory tool's {command.get('command')}")

    def _inside(self, command: dict[str, Any], name: str) -> Any:
        """Returns a path of a command as that of a file in the folder. The folder itself is neither deleted nor renamed."""
        path = command[name]
        if not isinstance(path, str):
            return path
        if path != ROOT and not path.startswith(f"{ROOT}/"):
            raise ToolError(f"Path must start with {ROOT}, got: {path}")
        names = [name for name in path[len(ROOT) :].split("/") if name not in ("", ".")]
        if ".." in names:
            raise ToolError(f"Path {path} would escape {ROOT} directory")
        if not names and command.get("command") != "view":
            return ROOT
        return "/".join([self._folder, *names])

    def _shown(self, text: str) -> str:
        """Returns a text with the paths that the model knows."""
        lines = text.removesuffix("\n").split("\n")
        return "\n".join(line if OF_FILE.match(line) else line.replace(self._folder, ROOT) for line in lines)
