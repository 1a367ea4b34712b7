"""A sandbox for agents of the package `openai-agents`: `pip install "workspaced-client[openai-agents]"`.

For asyncio alone, as the SDK's own sandboxes are.
"""

from __future__ import annotations

import hashlib
import io
import re
import shlex
import tarfile
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from ..errors import NoAnswer, WorkspacedError
from ..extras import needs
from .run import Run

with needs("openai-agents"):
    from agents.sandbox.errors import (
        ExecTimeoutError,
        ExecTransportError,
        WorkspaceArchiveReadError,
        WorkspaceArchiveWriteError,
        WorkspaceReadNotFoundError,
    )
    from agents.sandbox.files import EntryKind, FileEntry
    from agents.sandbox.manifest import Manifest
    from agents.sandbox.session import BaseSandboxSession, SandboxSessionState
    from agents.sandbox.snapshot import NoopSnapshot
    from agents.sandbox.types import ExecResult, Permissions, User

__all__ = ["SandboxSession", "SandboxState"]

# The folder in which a runner has the run's files, unless it was started with another.
ROOT = "/workspace"
# How the SDK's tool for commands names the folder of one.
FOLDER = re.compile(r"cd ((?:'[^']*'|\"'\"|[^\s'\"])+) \|\| exit\n")
# The exit code of a shell for a command that it may not run.
NOT_RUN = 126


class SandboxState(SandboxSessionState):
    """What is kept of a session: the ID of the run, and no token."""

    type: Literal["workspaced"] = "workspaced"
    run_id: str


class SandboxSession(BaseSandboxSession):
    """A run as the sandbox of an agent: `RunConfig(sandbox=SandboxRunConfig(session=SandboxSession(run)))`.

    Files are read and changed in the run, one judged call a change; commands are run by the runner that is attached to it. What is refused
    is an error of the file, or a command that ends with 126, with the service's words. A file is replaced only if it is as this session has
    last seen it. A run keeps its own history: there are no snapshots, users, mounts or ports.
    """

    def __init__(self, run: Run, *, reason: str | None = None) -> None:
        snapshot = NoopSnapshot(id="none")
        self.state = SandboxState(run_id=run.id, snapshot=snapshot, manifest=Manifest(root=ROOT), workspace_root_ready=True)
        self._run, self._reason = run, reason or "a call of the sandbox, which has no reason"
        self._seen = dict[str, str]()

    async def running(self) -> bool:
        """A run needs no start."""
        return True

    async def _exec_internal(self, *command: str | Path, timeout: float | None = None) -> ExecResult:
        words = [str(word) for word in command]
        # A runner has a shell of its own.
        line = words[2] if words[0] == "sh" and words[1:2] in (["-c"], ["-lc"]) and len(words) == 3 else shlex.join(words)
        asked: dict[str, Any] = {"reason": self._reason}
        if folder := FOLDER.match(line):
            line = line[folder.end() :]
            asked["cwd"] = self._relative(shlex.split(folder[1])[0])
        if timeout is not None:
            asked["timeoutSeconds"] = max(1, round(timeout))
        try:
            ran = await self._run.call_tool("run_command", {"command": line, **asked})
            output = str(ran["output"]).encode()
            is_part = ran.get("outputStartLine", 1) > 1 or ran.get("outputStartCut", False)
            if is_part and (sha256 := ran.get("outputSha256")):
                output = await self._run.artifact(sha256)
        except WorkspacedError as refusal:
            if _is_fault(refusal):
                raise ExecTransportError(command=command, message=str(refusal), cause=refusal) from refusal
            return ExecResult(stdout=b"", stderr=f"{refusal}\n".encode(), exit_code=NOT_RUN)
        changes = ran.get("changes") or {}
        for changed in [*changes.get("applied", []), *changes.get("merged", [])]:
            self._forget(changed)
        if ran["timedOut"]:
            raise ExecTimeoutError(command=command, timeout_s=timeout)
        said = "".join(f"[{ran[name]}]\n" for name in ("warning",) if ran.get(name))
        if message := changes.get("message"):
            said += f"[changes not applied: {message}]\n"
        for left in changes.get("left") or []:
            said += f"[denied, and not changed in the run: {left['path']} ({left['rule']})]\n"
        code = ran["exitCode"] if ran.get("exitCode") is not None else 128 + int(ran.get("signal") or 0)
        return ExecResult(stdout=output, stderr=said.encode(), exit_code=code)

    async def read(self, path: Path, *, user: str | User | None = None) -> io.IOBase:
        """Returns a whole file."""
        name = self._relative(path)
        try:
            content = await self._run.read_bytes(name)
            self._seen[name] = hashlib.sha256(content).hexdigest()
        except WorkspacedError as refusal:
            if refusal.code == "NOT_FOUND":
                raise WorkspaceReadNotFoundError(path=Path(path), cause=refusal) from refusal
            context = {"reason": str(refusal)}
            raise WorkspaceArchiveReadError(path=Path(path), context=context, cause=refusal) from refusal
        return io.BytesIO(content)

    async def write(self, path: Path, data: io.IOBase, *, user: str | User | None = None) -> None:
        """Stores a whole file."""
        name, content = self._relative(path), _bytes(data)
        try:
            if sha256 := await self._version(name):
                await self._run.replace_file(name, content, self._reason, sha256)
            else:
                await self._run.create_file(name, content, self._reason)
        except WorkspacedError as refusal:
            raise _unwritten(path, refusal) from refusal
        self._seen[name] = hashlib.sha256(content).hexdigest()

    async def _write_new_file(self, path: Path, data: io.IOBase, *, user: str | User | None = None) -> None:
        name, content = self._relative(path), _bytes(data)
        try:
            await self._run.create_file(name, content, self._reason)
        except WorkspacedError as refusal:
            if refusal.code == "ALREADY_EXISTS":
                raise FileExistsError(str(refusal)) from refusal
            raise _unwritten(path, refusal) from refusal
        self._seen[name] = hashlib.sha256(content).hexdigest()

    async def ls(self, path: Path | str, *, user: str | User | None = None) -> list[FileEntry]:
        """Lists a folder."""
        found, cursor = list[FileEntry](), None
        while True:
            page = await self._run.tool.list_dir(path=self._relative(path), maxDepth=1, includeHidden=True, cursor=cursor)
            for entry in page["entries"]:
                is_folder = entry["type"] == "directory"
                kind = EntryKind.DIRECTORY if is_folder else EntryKind.FILE if entry["type"] == "file" else EntryKind.SYMLINK
                found.append(
                    FileEntry(
                        path=f"{ROOT}/{entry['path']}",
                        permissions=Permissions(directory=is_folder),
                        owner="",
                        group="",
                        size=entry.get("sizeBytes") or 0,
                        kind=kind,
                    )
                )
            cursor = page.get("nextCursor")
            if not cursor:
                return found

    async def rm(self, path: Path | str, *, recursive: bool = False, user: str | User | None = None) -> None:
        """Deletes a file, or with `recursive` a folder."""
        name = self._relative(path)
        try:
            sha256 = await self._version(name)
            await self._run.tool.delete_file(path=name, reason=self._reason, recursive=recursive or None, expectedSha256=sha256)
        except WorkspacedError as refusal:
            raise _unwritten(path, refusal) from refusal
        self._forget(name)

    async def mv(self, source: Path | str, destination: Path | str, *, user: str | User | None = None) -> None:
        """Renames a file."""
        name, target = self._relative(source), self._relative(destination)
        try:
            asked = {"from": name, "to": target, "reason": self._reason, "expectedSha256": await self._version(name)}
            await self._run.call_tool("move_file", asked)
        except WorkspacedError as refusal:
            raise _unwritten(source, refusal) from refusal
        self._forget(name)
        self._forget(target)

    async def same_file(
        self,
        left: Path | str,
        right: Path | str,
        *,
        follow_symlinks: bool = True,
        user: str | User | None = None,
    ) -> bool:
        """A run's paths differ if they are written differently."""
        return self._relative(left) == self._relative(right)

    async def mkdir(self, path: Path | str, *, parents: bool = False, user: str | User | None = None) -> None:
        """Checks the path alone: a folder is there with its first file."""
        self._relative(path)

    async def persist_workspace(self) -> io.IOBase:
        """Returns the files of the run as a tar."""
        archive = io.BytesIO()
        async with self._run.archive() as chunks:
            async for chunk in chunks:
                archive.write(chunk)
        archive.seek(0)
        return archive

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        """Writes the files of a tar into the run."""
        with tarfile.open(fileobj=io.BytesIO(_bytes(data))) as archive:
            for member in archive:
                if (content := archive.extractfile(member)) is not None:
                    await self.write(Path(member.name), io.BytesIO(content.read()))

    def _forget(self, name: str) -> None:
        """Forgets a file, or the files of a folder."""
        self._seen = {seen: sha256 for seen, sha256 in self._seen.items() if seen != name and not seen.startswith(f"{name}/")}

    async def _version(self, name: str) -> str | None:
        """The hash of a file as this session has last seen it, or as it is."""
        return self._seen.get(name) or (await self._run.tool.stat_path(path=name)).get("sha256")

    def _relative(self, path: Path | str) -> str:
        """The path as the run has it, or an error of the SDK if it is not in the workspace."""
        return PurePosixPath(self._workspace_path_policy().relative_path(path)).as_posix()


def _bytes(data: io.IOBase) -> bytes:
    content = data.read()
    return content.encode() if isinstance(content, str) else bytes(content)


def _is_fault(refusal: WorkspacedError) -> bool:
    """Whether a model can do nothing about it."""
    return isinstance(refusal, NoAnswer) or refusal.status in (401, 429) or (refusal.status >= 500 and not refusal.is_recorded)


def _unwritten(path: Path | str, refusal: WorkspacedError) -> WorkspaceArchiveWriteError:
    context: dict[str, object] = {"code": refusal.code}
    return WorkspaceArchiveWriteError(path=Path(path), context=context, cause=refusal, message=str(refusal))
