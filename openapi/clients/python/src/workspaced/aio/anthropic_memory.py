"""A memory for the package `anthropic` that is kept in the files of a run."""

from __future__ import annotations

import hashlib
from typing import Any

from anthropic.lib.tools import BetaAsyncAbstractMemoryTool, ToolError
from anthropic.types import beta

from ..errors import WorkspacedError
from .run import Run

ROOT = "/memories"
NUMBER_WIDTH = 6
CONTEXT_LINES = 2
# Listings are measured as deep as this, and shown two levels deep, as the tool promises the model.
MAX_DEPTH = 50


class MemoryTool(BetaAsyncAbstractMemoryTool):
    """The memory tool of the SDK, whose `/memories` is the folder `folder` of a run.

    Answers in the words of the SDK's own memory of files. Policy, budgets and the record are those of the run. Every change has the
    version that it was made from as its condition: a change made meanwhile by another is not overwritten.
    """

    def __init__(self, run: Run, folder: str = "memories", *, cache_control: beta.BetaCacheControlEphemeralParam | None = None) -> None:
        super().__init__(cache_control=cache_control)
        self._run, self._folder = run, folder.strip("/")
        self._notices = list[str]()

    async def execute(self, command: beta.BetaMemoryTool20250818Command) -> str:
        """Executes a command of the model. Decisions of approvals since the last answer come first in the text."""
        try:
            return self._with_notices(str(await super().execute(command)))
        except ToolError as error:
            raise ToolError(self._with_notices(str(error))) from error
        except WorkspacedError as refusal:
            if refusal.status in (0, 401, 429) or refusal.status >= 500:
                raise
            self._notices += refusal.problem.get("notices", [])
            # Without the hint, which names tools that a model with a memory alone does not have.
            raise ToolError(self._with_notices(f"{refusal.code}: {refusal.detail}")) from refusal

    async def view(self, command: beta.BetaMemoryTool20250818ViewCommand) -> str:
        """Shows a file with line numbers, or a folder two levels deep."""
        path = self._inside(command.path)
        found = await self._call("stat_path", path=path)
        if not found["exists"] and path == self._folder:
            return _listing(command.path, [(0, "")])
        if not found["exists"]:
            raise ToolError(f"The path {command.path} does not exist. Please provide a valid path.")
        if found["type"] == "directory":
            return _listing(command.path, await self._entries(path))
        lines = (await self._read(command.path, path))[0].split("\n")
        first, last = 1, len(lines)
        if command.view_range and len(command.view_range) == 2:
            first = max(1, command.view_range[0])
            last = len(lines) if command.view_range[1] == -1 else command.view_range[1]
        return f"Here's the content of {command.path} with line numbers:\n" + _numbered(lines, first, last)

    async def create(self, command: beta.BetaMemoryTool20250818CreateCommand) -> str:
        """Creates a file. An existing one is not replaced."""
        path = self._inside(command.path)
        try:
            await self._call("write_file", path=path, content=command.file_text, mode="CREATE_NEW", reason=_reason("create"))
        except WorkspacedError as refusal:
            if refusal.code != "ALREADY_EXISTS":
                raise
            self._notices += refusal.problem.get("notices", [])
            raise ToolError(f"File {command.path} already exists") from refusal
        return f"File created successfully at: {command.path}"

    async def str_replace(self, command: beta.BetaMemoryTool20250818StrReplaceCommand) -> str:
        """Replaces the only occurrence of a text in a file."""
        path = await self._existing_file(command.path)
        content, sha256 = await self._read(command.path, path)
        count = content.count(command.old_str)
        if count == 0:
            raise ToolError(
                f"No replacement was performed, old_str `{command.old_str}` did not appear verbatim in {command.path}."
            )
        before = content.partition(command.old_str)[0]
        if count > 1:
            parts = content.split(command.old_str) if command.old_str else []
            numbers = [1 + command.old_str.join(parts[:end]).count("\n") for end in range(1, len(parts))]
            raise ToolError(
                f"No replacement was performed. Multiple occurrences of old_str `{command.old_str}` in lines: "
                f"{', '.join(map(str, numbers))}. Please ensure it is unique"
            )
        await self._call(
            "edit_file",
            path=path,
            oldString=command.old_str,
            newString=command.new_str,
            expectedSha256=sha256,
            reason=_reason("str_replace"),
        )
        lines, changed = content.replace(command.old_str, command.new_str).split("\n"), 1 + before.count("\n")
        return (
            "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n"
            + _numbered(lines, max(1, changed - CONTEXT_LINES), changed + CONTEXT_LINES)
        )

    async def insert(self, command: beta.BetaMemoryTool20250818InsertCommand) -> str:
        """Inserts text after a line of a file; 0 is its beginning."""
        path = await self._existing_file(command.path)
        content, sha256 = await self._read(command.path, path)
        count = content.count("\n") + (not content.endswith("\n") and content != "")
        if not 0 <= command.insert_line <= count:
            raise ToolError(
                f"Invalid `insert_line` parameter: {command.insert_line}. It should be within the range [0, {count}]."
            )
        await self._call(
            "replace_range",
            path=path,
            startLine=command.insert_line + 1,
            endLine=command.insert_line,
            content=command.insert_text.rstrip("\n") + "\n",
            expectedSha256=sha256,
            reason=_reason("insert"),
        )
        return f"The file {command.path} has been edited."

    async def delete(self, command: beta.BetaMemoryTool20250818DeleteCommand) -> str:
        """Deletes a file, or a folder with what is in it."""
        path = self._inside(command.path)
        if path == self._folder:
            raise ToolError(f"Cannot delete the {ROOT} directory itself")
        found = await self._call("stat_path", path=path)
        if not found["exists"]:
            raise ToolError(f"The path {command.path} does not exist")
        await self._call("delete_file", path=path, **_version(found), reason=_reason("delete"))
        return f"Successfully deleted {command.path}"

    async def rename(self, command: beta.BetaMemoryTool20250818RenameCommand) -> str:
        """Moves a file or a folder. An existing one is not replaced."""
        path, to = self._inside(command.old_path), self._inside(command.new_path)
        if path == self._folder:
            raise ToolError(f"Cannot rename the {ROOT} directory itself")
        if (await self._call("stat_path", path=to))["exists"]:
            raise ToolError(f"The destination {command.new_path} already exists")
        found = await self._call("stat_path", path=path)
        if not found["exists"]:
            raise ToolError(f"The path {command.old_path} does not exist")
        await self._call("move_file", **{"from": path}, to=to, **_version(found), reason=_reason("rename"))
        return f"Successfully renamed {command.old_path} to {command.new_path}"

    async def clear_all_memory(self) -> str:
        """Deletes the whole memory. The run's history still has it."""
        found = await self._call("stat_path", path=self._folder)
        if found["exists"]:
            await self._call("delete_file", path=self._folder, **_version(found), reason=_reason("clear"))
        return "All memory cleared"

    def _inside(self, path: str) -> str:
        """Returns the path in the run."""
        if path != ROOT and not path.startswith(f"{ROOT}/"):
            raise ToolError(f"Path must start with {ROOT}, got: {path}")
        names = [name for name in path[len(ROOT) :].split("/") if name not in ("", ".")]
        if ".." in names:
            raise ToolError(f"Path {path} would escape {ROOT} directory")
        return "/".join([self._folder, *names])

    async def _existing_file(self, shown: str) -> str:
        path = self._inside(shown)
        found = await self._call("stat_path", path=path)
        if not found["exists"]:
            raise ToolError(f"The path {shown} does not exist. Please provide a valid path.")
        if found["type"] != "file":
            raise ToolError(f"The path {shown} is not a file.")
        return path

    async def _read(self, shown: str, path: str) -> tuple[str, str]:
        """Returns the content of a file and its hash."""
        content = await self._run.read_bytes(path)
        try:
            return content.decode(), hashlib.sha256(content).hexdigest()
        except UnicodeDecodeError as error:
            raise ToolError(f"The file {shown} is not text in UTF-8.") from error

    async def _entries(self, folder: str) -> list[tuple[int, str]]:
        """Returns the folder itself and what is in it, two levels deep, as sizes and names below the folder."""
        sizes, cursor = {"": 0}, dict[str, str]()
        while True:
            page = await self._call("list_dir", path=folder, maxDepth=MAX_DEPTH, includeIgnored=True, **cursor)
            for entry in page["entries"]:
                name = entry["path"][len(folder) + 1 :]
                sizes[name + ("/" if entry["type"] == "directory" else "")] = entry.get("sizeBytes") or 0
            if not page.get("nextCursor"):
                break
            cursor = {"cursor": page["nextCursor"]}
        # A folder, whose name is empty or ends in a slash, is as large as the files in it.
        for folder_name in [name for name in sizes if name.endswith("/") or not name]:
            sizes[folder_name] = sum(size for name, size in sizes.items() if name.startswith(folder_name) and not name.endswith("/") and name)
        return [(sizes[name], name) for name in sorted(sizes) if name.rstrip("/").count("/") < 2]

    async def _call(self, tool: str, /, **input: Any) -> dict[str, Any]:
        answer = await self._run.call_tool(tool, input)
        self._notices += answer.get("notices", [])
        return answer

    def _with_notices(self, text: str) -> str:
        lines, self._notices = [*self._notices, text], []
        return "\n".join(lines)


def _reason(command: str) -> str:
    return f"the memory tool's {command}"


def _version(found: dict[str, Any]) -> dict[str, Any]:
    """Returns the condition of a change: the version of a file, or that a folder is meant."""
    return {"recursive": True} if found["type"] == "directory" else {"expectedSha256": found["sha256"]}


def _numbered(lines: list[str], first: int, last: int) -> str:
    return "\n".join(f"{number:{NUMBER_WIDTH}}\t{line}" for number, line in enumerate(lines[first - 1 : last], first))


def _listing(path: str, entries: list[tuple[int, str]]) -> str:
    rows = [f"{_size(size)}\t{path.rstrip('/')}" + (f"/{name}" if name else "") for size, name in entries]
    return f"Here're the files and directories up to 2 levels deep in {path}, excluding hidden items:\n" + "\n".join(rows)


def _size(size: float) -> str:
    for unit in "BKM":
        if size < 1024:
            return f"{size:.1f}".removesuffix(".0") + unit
        size /= 1024
    return f"{size:.1f}".removesuffix(".0") + "G"
