"""A method for each tool. Written by `generate_types.py` from the API document: do not edit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, cast

from .types import ApplyPatchInputEvidence, ApplyPatchOutput, DeleteFileInputEvidence, DeleteFileOutput, DiffWorkspaceOutput, EditFileInputEvidence, ExpectedVersion, FindFilesOutput, ListDirOutput, MoveFileInputEvidence, MoveFileOutput, RanCommand, ReadFileOutput, ReadFilesOutput, ReplaceRangeInputEvidence, RevertCallsInputEvidence, RevertCallsOutput, SearchTextOutput, StatPathOutput, TextEditOutput, TreeStatsOutput, WriteFileInputEvidence


class ToolMethods:
    """The tools of a run. A member that is None is left out."""

    def __init__(self, call: Callable[[str, Mapping[str, Any]], dict[str, Any]]) -> None:
        self._call = call

    def apply_patch(
        self,
        *,
        patch: str,
        reason: str,
        dryRun: bool | None = None,
        encoding: str | None = None,
        evidence: ApplyPatchInputEvidence | None = None,
        expectedBaseCommit: str | None = None,
        expectedSha256: dict[str, ExpectedVersion] | None = None,
        stepId: str | None = None,
        toolCallId: str | None = None,
    ) -> ApplyPatchOutput:
        """Applies a unified diff or a `*** Begin Patch` to one or more files, atomically. Hunks must match the present content, at their lines or at exactly one other place."""
        input = {"patch": patch, "reason": reason, "dryRun": dryRun, "encoding": encoding, "evidence": evidence, "expectedBaseCommit": expectedBaseCommit, "expectedSha256": expectedSha256, "stepId": stepId, "toolCallId": toolCallId}
        answer = self._call("apply_patch", {key: value for key, value in input.items() if value is not None})
        return cast(ApplyPatchOutput, answer)

    def delete_file(
        self,
        *,
        path: str,
        reason: str,
        dryRun: bool | None = None,
        evidence: DeleteFileInputEvidence | None = None,
        expectedSha256: ExpectedVersion | None = None,
        recursive: bool | None = None,
        stepId: str | None = None,
        toolCallId: str | None = None,
    ) -> DeleteFileOutput:
        """Deletes one file, if it is as you last read it, or with recursive a folder."""
        input = {"path": path, "reason": reason, "dryRun": dryRun, "evidence": evidence, "expectedSha256": expectedSha256, "recursive": recursive, "stepId": stepId, "toolCallId": toolCallId}
        answer = self._call("delete_file", {key: value for key, value in input.items() if value is not None})
        return cast(DeleteFileOutput, answer)

    def diff_workspace(
        self,
        *,
        atSeq: int | None = None,
        checkTree: bool | None = None,
        maxBytes: int | None = None,
        maxChars: int | None = None,
        mount: str | None = None,
        path: str | None = None,
        statOnly: bool | None = None,
        stepId: str | None = None,
        toolCallId: str | None = None,
    ) -> DiffWorkspaceOutput:
        """Returns every difference from the run's start, as one unified diff with counts. Use statOnly first if much has changed."""
        input = {"atSeq": atSeq, "checkTree": checkTree, "maxBytes": maxBytes, "maxChars": maxChars, "mount": mount, "path": path, "statOnly": statOnly, "stepId": stepId, "toolCallId": toolCallId}
        answer = self._call("diff_workspace", {key: value for key, value in input.items() if value is not None})
        return cast(DiffWorkspaceOutput, answer)

    def edit_file(
        self,
        *,
        newString: str,
        oldString: str,
        path: str,
        reason: str,
        dryRun: bool | None = None,
        encoding: str | None = None,
        evidence: EditFileInputEvidence | None = None,
        expectedReplacements: int | None = None,
        expectedSha256: ExpectedVersion | None = None,
        replaceAll: bool | None = None,
        stepId: str | None = None,
        toolCallId: str | None = None,
    ) -> TextEditOutput:
        """Replaces oldString with newString in one text file, as you last read it. oldString must occur exactly once, unless replaceAll is set; include enough surrounding lines."""
        input = {"newString": newString, "oldString": oldString, "path": path, "reason": reason, "dryRun": dryRun, "encoding": encoding, "evidence": evidence, "expectedReplacements": expectedReplacements, "expectedSha256": expectedSha256, "replaceAll": replaceAll, "stepId": stepId, "toolCallId": toolCallId}
        answer = self._call("edit_file", {key: value for key, value in input.items() if value is not None})
        return cast(TextEditOutput, answer)

    def find_files(
        self,
        *,
        glob: list[str],
        cursor: str | None = None,
        maxChars: int | None = None,
        maxResults: int | None = None,
        mount: str | None = None,
        path: str | None = None,
        sort: Literal['path', 'modified', 'size'] | None = None,
        stepId: str | None = None,
        toolCallId: str | None = None,
    ) -> FindFilesOutput:
        """Finds files whose path matches one of the globs. Git-ignored, generated and vendored files are omitted unless path or a glob names their folder."""
        input = {"glob": glob, "cursor": cursor, "maxChars": maxChars, "maxResults": maxResults, "mount": mount, "path": path, "sort": sort, "stepId": stepId, "toolCallId": toolCallId}
        answer = self._call("find_files", {key: value for key, value in input.items() if value is not None})
        return cast(FindFilesOutput, answer)

    def list_dir(
        self,
        *,
        atSeq: int | None = None,
        cursor: str | None = None,
        includeHidden: bool | None = None,
        includeIgnored: bool | None = None,
        maxChars: int | None = None,
        maxDepth: int | None = None,
        maxEntries: int | None = None,
        mount: str | None = None,
        path: str | None = None,
        stepId: str | None = None,
        toolCallId: str | None = None,
    ) -> ListDirOutput:
        """Lists a folder, sorted by path. Hidden, git-ignored, generated and vendored entries are omitted by default."""
        input = {"atSeq": atSeq, "cursor": cursor, "includeHidden": includeHidden, "includeIgnored": includeIgnored, "maxChars": maxChars, "maxDepth": maxDepth, "maxEntries": maxEntries, "mount": mount, "path": path, "stepId": stepId, "toolCallId": toolCallId}
        answer = self._call("list_dir", {key: value for key, value in input.items() if value is not None})
        return cast(ListDirOutput, answer)

    def move_file(
        self,
        *,
        from_: str,
        reason: str,
        to: str,
        dryRun: bool | None = None,
        evidence: MoveFileInputEvidence | None = None,
        expectedSha256: ExpectedVersion | None = None,
        recursive: bool | None = None,
        stepId: str | None = None,
        toolCallId: str | None = None,
    ) -> MoveFileOutput:
        """Moves or renames one file, if it is as you last read it, or with recursive a folder; the new path must not exist."""
        input = {"from": from_, "reason": reason, "to": to, "dryRun": dryRun, "evidence": evidence, "expectedSha256": expectedSha256, "recursive": recursive, "stepId": stepId, "toolCallId": toolCallId}
        answer = self._call("move_file", {key: value for key, value in input.items() if value is not None})
        return cast(MoveFileOutput, answer)

    def read_file(
        self,
        *,
        path: str,
        atSeq: int | None = None,
        column: int | None = None,
        encoding: str | None = None,
        format: Literal['numbered', 'raw'] | None = None,
        maxChars: int | None = None,
        maxLines: int | None = None,
        mount: str | None = None,
        startLine: int | None = None,
        stepId: str | None = None,
        toolCallId: str | None = None,
    ) -> ReadFileOutput:
        """Returns lines of a text file, 200 by default. If more follow, the answer says which startLine continues. Read a file before you change it."""
        input = {"path": path, "atSeq": atSeq, "column": column, "encoding": encoding, "format": format, "maxChars": maxChars, "maxLines": maxLines, "mount": mount, "startLine": startLine, "stepId": stepId, "toolCallId": toolCallId}
        answer = self._call("read_file", {key: value for key, value in input.items() if value is not None})
        return cast(ReadFileOutput, answer)

    def read_files(
        self,
        *,
        paths: list[str],
        maxChars: int | None = None,
        mount: str | None = None,
        stepId: str | None = None,
        toolCallId: str | None = None,
    ) -> ReadFilesOutput:
        """Returns up to 50 text files, up to 64 KiB together. A file that cannot be read does not fail the others."""
        input = {"paths": paths, "maxChars": maxChars, "mount": mount, "stepId": stepId, "toolCallId": toolCallId}
        answer = self._call("read_files", {key: value for key, value in input.items() if value is not None})
        return cast(ReadFilesOutput, answer)

    def replace_range(
        self,
        *,
        content: str,
        endLine: int,
        expectedSha256: ExpectedVersion,
        path: str,
        reason: str,
        startLine: int,
        dryRun: bool | None = None,
        encoding: str | None = None,
        evidence: ReplaceRangeInputEvidence | None = None,
        stepId: str | None = None,
        toolCallId: str | None = None,
    ) -> TextEditOutput:
        """Replaces lines startLine to endLine of one text file, as read_file numbers them. Read it again after each change, which moves the numbers. Prefer edit_file for small changes of unique text."""
        input = {"content": content, "endLine": endLine, "expectedSha256": expectedSha256, "path": path, "reason": reason, "startLine": startLine, "dryRun": dryRun, "encoding": encoding, "evidence": evidence, "stepId": stepId, "toolCallId": toolCallId}
        answer = self._call("replace_range", {key: value for key, value in input.items() if value is not None})
        return cast(TextEditOutput, answer)

    def revert_calls(
        self,
        *,
        reason: str,
        dryRun: bool | None = None,
        evidence: RevertCallsInputEvidence | None = None,
        last: int | None = None,
        ofPath: str | None = None,
        stepId: str | None = None,
        toSeq: int | None = None,
        toolCallId: str | None = None,
        toolCallIds: list[str] | None = None,
    ) -> RevertCallsOutput:
        """Undoes your last changes atomically, newest first. Refused if a file has changed since, or its earlier content was too large to be stored."""
        input = {"reason": reason, "dryRun": dryRun, "evidence": evidence, "last": last, "ofPath": ofPath, "stepId": stepId, "toSeq": toSeq, "toolCallId": toolCallId, "toolCallIds": toolCallIds}
        answer = self._call("revert_calls", {key: value for key, value in input.items() if value is not None})
        return cast(RevertCallsOutput, answer)

    def run_command(
        self,
        *,
        column: int | None = None,
        command: str | None = None,
        cwd: str | None = None,
        maxChars: int | None = None,
        outputOf: str | None = None,
        reason: str | None = None,
        shell: Literal['sh', 'bash'] | None = None,
        startLine: int | None = None,
        stepId: str | None = None,
        timeoutSeconds: int | None = None,
        toolCallId: str | None = None,
    ) -> RanCommand:
        """Runs a shell command in a sandbox that has the run's files: builds, tests, formatters. Returns exit code, the end of the output and what changed; changes are judged as those of any tool. With outputOf, reads more of an earlier output."""
        input = {"column": column, "command": command, "cwd": cwd, "maxChars": maxChars, "outputOf": outputOf, "reason": reason, "shell": shell, "startLine": startLine, "stepId": stepId, "timeoutSeconds": timeoutSeconds, "toolCallId": toolCallId}
        answer = self._call("run_command", {key: value for key, value in input.items() if value is not None})
        return cast(RanCommand, answer)

    def search_text(
        self,
        *,
        query: str,
        caseSensitive: bool | None = None,
        contextLines: int | None = None,
        cursor: str | None = None,
        excludeGlob: list[str] | None = None,
        fileType: str | None = None,
        includeGlob: list[str] | None = None,
        maxChars: int | None = None,
        maxMatches: int | None = None,
        mode: Literal['literal', 'regex'] | None = None,
        mount: str | None = None,
        multiline: bool | None = None,
        onePerFile: bool | None = None,
        path: str | None = None,
        skip: int | None = None,
        stepId: str | None = None,
        toolCallId: str | None = None,
        wholeWord: bool | None = None,
    ) -> SearchTextOutput:
        """Searches text files line by line for a literal text or, with mode `regex`, a regular expression. Returns the first matches in path order."""
        input = {"query": query, "caseSensitive": caseSensitive, "contextLines": contextLines, "cursor": cursor, "excludeGlob": excludeGlob, "fileType": fileType, "includeGlob": includeGlob, "maxChars": maxChars, "maxMatches": maxMatches, "mode": mode, "mount": mount, "multiline": multiline, "onePerFile": onePerFile, "path": path, "skip": skip, "stepId": stepId, "toolCallId": toolCallId, "wholeWord": wholeWord}
        answer = self._call("search_text", {key: value for key, value in input.items() if value is not None})
        return cast(SearchTextOutput, answer)

    def stat_path(
        self,
        *,
        path: str,
        maxChars: int | None = None,
        mount: str | None = None,
        stepId: str | None = None,
        toolCallId: str | None = None,
    ) -> StatPathOutput:
        """Returns whether a path exists, its type, kind, size, modification time, permission bits and sha256, and whether it may be read and written."""
        input = {"path": path, "maxChars": maxChars, "mount": mount, "stepId": stepId, "toolCallId": toolCallId}
        answer = self._call("stat_path", {key: value for key, value in input.items() if value is not None})
        return cast(StatPathOutput, answer)

    def tree_stats(
        self,
        *,
        maxChars: int | None = None,
        mount: str | None = None,
        path: str | None = None,
        stepId: str | None = None,
        toolCallId: str | None = None,
    ) -> TreeStatsOutput:
        """Counts files, folders, bytes and lines under a folder, by kind and by extension. Use it first in an unknown tree. Files that git ignores are omitted."""
        input = {"maxChars": maxChars, "mount": mount, "path": path, "stepId": stepId, "toolCallId": toolCallId}
        answer = self._call("tree_stats", {key: value for key, value in input.items() if value is not None})
        return cast(TreeStatsOutput, answer)

    def write_file(
        self,
        *,
        content: str,
        path: str,
        reason: str,
        dryRun: bool | None = None,
        encoding: str | None = None,
        evidence: WriteFileInputEvidence | None = None,
        expectedSha256: ExpectedVersion | None = None,
        lineEnding: Literal['lf', 'crlf'] | None = None,
        mode: Literal['CREATE_NEW', 'REPLACE_EXISTING', 'CREATE_OR_REPLACE'] | None = None,
        onConflict: Literal['refuse', 'merge'] | None = None,
        stepId: str | None = None,
        toolCallId: str | None = None,
    ) -> TextEditOutput:
        """Writes the whole content of one text file. An existing file is replaced only if it is as you last read it, unless onConflict is `merge` and the changes are of other lines. Prefer edit_file for small changes."""
        input = {"content": content, "path": path, "reason": reason, "dryRun": dryRun, "encoding": encoding, "evidence": evidence, "expectedSha256": expectedSha256, "lineEnding": lineEnding, "mode": mode, "onConflict": onConflict, "stepId": stepId, "toolCallId": toolCallId}
        answer = self._call("write_file", {key: value for key, value in input.items() if value is not None})
        return cast(TextEditOutput, answer)


class AsyncToolMethods:
    """The tools of a run. A member that is None is left out."""

    def __init__(self, call: Callable[[str, Mapping[str, Any]], Awaitable[dict[str, Any]]]) -> None:
        self._call = call

    async def apply_patch(
        self,
        *,
        patch: str,
        reason: str,
        dryRun: bool | None = None,
        encoding: str | None = None,
        evidence: ApplyPatchInputEvidence | None = None,
        expectedBaseCommit: str | None = None,
        expectedSha256: dict[str, ExpectedVersion] | None = None,
        stepId: str | None = None,
        toolCallId: str | None = None,
    ) -> ApplyPatchOutput:
        """Applies a unified diff or a `*** Begin Patch` to one or more files, atomically. Hunks must match the present content, at their lines or at exactly one other place."""
        input = {"patch": patch, "reason": reason, "dryRun": dryRun, "encoding": encoding, "evidence": evidence, "expectedBaseCommit": expectedBaseCommit, "expectedSha256": expectedSha256, "stepId": stepId, "toolCallId": toolCallId}
        answer = await self._call("apply_patch", {key: value for key, value in input.items() if value is not None})
        return cast(ApplyPatchOutput, answer)

    async def delete_file(
        self,
        *,
        path: str,
        reason: str,
        dryRun: bool | None = None,
        evidence: DeleteFileInputEvidence | None = None,
        expectedSha256: ExpectedVersion | None = None,
        recursive: bool | None = None,
        stepId: str | None = None,
        toolCallId: str | None = None,
    ) -> DeleteFileOutput:
        """Deletes one file, if it is as you last read it, or with recursive a folder."""
        input = {"path": path, "reason": reason, "dryRun": dryRun, "evidence": evidence, "expectedSha256": expectedSha256, "recursive": recursive, "stepId": stepId, "toolCallId": toolCallId}
        answer = await self._call("delete_file", {key: value for key, value in input.items() if value is not None})
        return cast(DeleteFileOutput, answer)

    async def diff_workspace(
        self,
        *,
        atSeq: int | None = None,
        checkTree: bool | None = None,
        maxBytes: int | None = None,
        maxChars: int | None = None,
        mount: str | None = None,
        path: str | None = None,
        statOnly: bool | None = None,
        stepId: str | None = None,
        toolCallId: str | None = None,
    ) -> DiffWorkspaceOutput:
        """Returns every difference from the run's start, as one unified diff with counts. Use statOnly first if much has changed."""
        input = {"atSeq": atSeq, "checkTree": checkTree, "maxBytes": maxBytes, "maxChars": maxChars, "mount": mount, "path": path, "statOnly": statOnly, "stepId": stepId, "toolCallId": toolCallId}
        answer = await self._call("diff_workspace", {key: value for key, value in input.items() if value is not None})
        return cast(DiffWorkspaceOutput, answer)

    async def edit_file(
        self,
        *,
        newString: str,
        oldString: str,
        path: str,
        reason: str,
        dryRun: bool | None = None,
        encoding: str | None = None,
        evidence: EditFileInputEvidence | None = None,
        expectedReplacements: int | None = None,
        expectedSha256: ExpectedVersion | None = None,
        replaceAll: bool | None = None,
        stepId: str | None = None,
        toolCallId: str | None = None,
    ) -> TextEditOutput:
        """Replaces oldString with newString in one text file, as you last read it. oldString must occur exactly once, unless replaceAll is set; include enough surrounding lines."""
        input = {"newString": newString, "oldString": oldString, "path": path, "reason": reason, "dryRun": dryRun, "encoding": encoding, "evidence": evidence, "expectedReplacements": expectedReplacements, "expectedSha256": expectedSha256, "replaceAll": replaceAll, "stepId": stepId, "toolCallId": toolCallId}
        answer = await self._call("edit_file", {key: value for key, value in input.items() if value is not None})
        return cast(TextEditOutput, answer)

    async def find_files(
        self,
        *,
        glob: list[str],
        cursor: str | None = None,
        maxChars: int | None = None,
        maxResults: int | None = None,
        mount: str | None = None,
        path: str | None = None,
        sort: Literal['path', 'modified', 'size'] | None = None,
        stepId: str | None = None,
        toolCallId: str | None = None,
    ) -> FindFilesOutput:
        """Finds files whose path matches one of the globs. Git-ignored, generated and vendored files are omitted unless path or a glob names their folder."""
        input = {"glob": glob, "cursor": cursor, "maxChars": maxChars, "maxResults": maxResults, "mount": mount, "path": path, "sort": sort, "stepId": stepId, "toolCallId": toolCallId}
        answer = await self._call("find_files", {key: value for key, value in input.items() if value is not None})
        return cast(FindFilesOutput, answer)

    async def list_dir(
        self,
        *,
        atSeq: int | None = None,
        cursor: str | None = None,
        includeHidden: bool | None = None,
        includeIgnored: bool | None = None,
        maxChars: int | None = None,
        maxDepth: int | None = None,
        maxEntries: int | None = None,
        mount: str | None = None,
        path: str | None = None,
        stepId: str | None = None,
        toolCallId: str | None = None,
    ) -> ListDirOutput:
        """Lists a folder, sorted by path. Hidden, git-ignored, generated and vendored entries are omitted by default."""
        input = {"atSeq": atSeq, "cursor": cursor, "includeHidden": includeHidden, "includeIgnored": includeIgnored, "maxChars": maxChars, "maxDepth": maxDepth, "maxEntries": maxEntries, "mount": mount, "path": path, "stepId": stepId, "toolCallId": toolCallId}
        answer = await self._call("list_dir", {key: value for key, value in input.items() if value is not None})
        return cast(ListDirOutput, answer)

    async def move_file(
        self,
        *,
        from_: str,
        reason: str,
        to: str,
        dryRun: bool | None = None,
        evidence: MoveFileInputEvidence | None = None,
        expectedSha256: ExpectedVersion | None = None,
        recursive: bool | None = None,
        stepId: str | None = None,
        toolCallId: str | None = None,
    ) -> MoveFileOutput:
        """Moves or renames one file, if it is as you last read it, or with recursive a folder; the new path must not exist."""
        input = {"from": from_, "reason": reason, "to": to, "dryRun": dryRun, "evidence": evidence, "expectedSha256": expectedSha256, "recursive": recursive, "stepId": stepId, "toolCallId": toolCallId}
        answer = await self._call("move_file", {key: value for key, value in input.items() if value is not None})
        return cast(MoveFileOutput, answer)

    async def read_file(
        self,
        *,
        path: str,
        atSeq: int | None = None,
        column: int | None = None,
        encoding: str | None = None,
        format: Literal['numbered', 'raw'] | None = None,
        maxChars: int | None = None,
        maxLines: int | None = None,
        mount: str | None = None,
        startLine: int | None = None,
        stepId: str | None = None,
        toolCallId: str | None = None,
    ) -> ReadFileOutput:
        """Returns lines of a text file, 200 by default. If more follow, the answer says which startLine continues. Read a file before you change it."""
        input = {"path": path, "atSeq": atSeq, "column": column, "encoding": encoding, "format": format, "maxChars": maxChars, "maxLines": maxLines, "mount": mount, "startLine": startLine, "stepId": stepId, "toolCallId": toolCallId}
        answer = await self._call("read_file", {key: value for key, value in input.items() if value is not None})
        return cast(ReadFileOutput, answer)

    async def read_files(
        self,
        *,
        paths: list[str],
        maxChars: int | None = None,
        mount: str | None = None,
        stepId: str | None = None,
        toolCallId: str | None = None,
    ) -> ReadFilesOutput:
        """Returns up to 50 text files, up to 64 KiB together. A file that cannot be read does not fail the others."""
        input = {"paths": paths, "maxChars": maxChars, "mount": mount, "stepId": stepId, "toolCallId": toolCallId}
        answer = await self._call("read_files", {key: value for key, value in input.items() if value is not None})
        return cast(ReadFilesOutput, answer)

    async def replace_range(
        self,
        *,
        content: str,
        endLine: int,
        expectedSha256: ExpectedVersion,
        path: str,
        reason: str,
        startLine: int,
        dryRun: bool | None = None,
        encoding: str | None = None,
        evidence: ReplaceRangeInputEvidence | None = None,
        stepId: str | None = None,
        toolCallId: str | None = None,
    ) -> TextEditOutput:
        """Replaces lines startLine to endLine of one text file, as read_file numbers them. Read it again after each change, which moves the numbers. Prefer edit_file for small changes of unique text."""
        input = {"content": content, "endLine": endLine, "expectedSha256": expectedSha256, "path": path, "reason": reason, "startLine": startLine, "dryRun": dryRun, "encoding": encoding, "evidence": evidence, "stepId": stepId, "toolCallId": toolCallId}
        answer = await self._call("replace_range", {key: value for key, value in input.items() if value is not None})
        return cast(TextEditOutput, answer)

    async def revert_calls(
        self,
        *,
        reason: str,
        dryRun: bool | None = None,
        evidence: RevertCallsInputEvidence | None = None,
        last: int | None = None,
        ofPath: str | None = None,
        stepId: str | None = None,
        toSeq: int | None = None,
        toolCallId: str | None = None,
        toolCallIds: list[str] | None = None,
    ) -> RevertCallsOutput:
        """Undoes your last changes atomically, newest first. Refused if a file has changed since, or its earlier content was too large to be stored."""
        input = {"reason": reason, "dryRun": dryRun, "evidence": evidence, "last": last, "ofPath": ofPath, "stepId": stepId, "toSeq": toSeq, "toolCallId": toolCallId, "toolCallIds": toolCallIds}
        answer = await self._call("revert_calls", {key: value for key, value in input.items() if value is not None})
        return cast(RevertCallsOutput, answer)

    async def run_command(
        self,
        *,
        column: int | None = None,
        command: str | None = None,
        cwd: str | None = None,
        maxChars: int | None = None,
        outputOf: str | None = None,
        reason: str | None = None,
        shell: Literal['sh', 'bash'] | None = None,
        startLine: int | None = None,
        stepId: str | None = None,
        timeoutSeconds: int | None = None,
        toolCallId: str | None = None,
    ) -> RanCommand:
        """Runs a shell command in a sandbox that has the run's files: builds, tests, formatters. Returns exit code, the end of the output and what changed; changes are judged as those of any tool. With outputOf, reads more of an earlier output."""
        input = {"column": column, "command": command, "cwd": cwd, "maxChars": maxChars, "outputOf": outputOf, "reason": reason, "shell": shell, "startLine": startLine, "stepId": stepId, "timeoutSeconds": timeoutSeconds, "toolCallId": toolCallId}
        answer = await self._call("run_command", {key: value for key, value in input.items() if value is not None})
        return cast(RanCommand, answer)

    async def search_text(
        self,
        *,
        query: str,
        caseSensitive: bool | None = None,
        contextLines: int | None = None,
        cursor: str | None = None,
        excludeGlob: list[str] | None = None,
        fileType: str | None = None,
        includeGlob: list[str] | None = None,
        maxChars: int | None = None,
        maxMatches: int | None = None,
        mode: Literal['literal', 'regex'] | None = None,
        mount: str | None = None,
        multiline: bool | None = None,
        onePerFile: bool | None = None,
        path: str | None = None,
        skip: int | None = None,
        stepId: str | None = None,
        toolCallId: str | None = None,
        wholeWord: bool | None = None,
    ) -> SearchTextOutput:
        """Searches text files line by line for a literal text or, with mode `regex`, a regular expression. Returns the first matches in path order."""
        input = {"query": query, "caseSensitive": caseSensitive, "contextLines": contextLines, "cursor": cursor, "excludeGlob": excludeGlob, "fileType": fileType, "includeGlob": includeGlob, "maxChars": maxChars, "maxMatches": maxMatches, "mode": mode, "mount": mount, "multiline": multiline, "onePerFile": onePerFile, "path": path, "skip": skip, "stepId": stepId, "toolCallId": toolCallId, "wholeWord": wholeWord}
        answer = await self._call("search_text", {key: value for key, value in input.items() if value is not None})
        return cast(SearchTextOutput, answer)

    async def stat_path(
        self,
        *,
        path: str,
        maxChars: int | None = None,
        mount: str | None = None,
        stepId: str | None = None,
        toolCallId: str | None = None,
    ) -> StatPathOutput:
        """Returns whether a path exists, its type, kind, size, modification time, permission bits and sha256, and whether it may be read and written."""
        input = {"path": path, "maxChars": maxChars, "mount": mount, "stepId": stepId, "toolCallId": toolCallId}
        answer = await self._call("stat_path", {key: value for key, value in input.items() if value is not None})
        return cast(StatPathOutput, answer)

    async def tree_stats(
        self,
        *,
        maxChars: int | None = None,
        mount: str | None = None,
        path: str | None = None,
        stepId: str | None = None,
        toolCallId: str | None = None,
    ) -> TreeStatsOutput:
        """Counts files, folders, bytes and lines under a folder, by kind and by extension. Use it first in an unknown tree. Files that git ignores are omitted."""
        input = {"maxChars": maxChars, "mount": mount, "path": path, "stepId": stepId, "toolCallId": toolCallId}
        answer = await self._call("tree_stats", {key: value for key, value in input.items() if value is not None})
        return cast(TreeStatsOutput, answer)

    async def write_file(
        self,
        *,
        content: str,
        path: str,
        reason: str,
        dryRun: bool | None = None,
        encoding: str | None = None,
        evidence: WriteFileInputEvidence | None = None,
        expectedSha256: ExpectedVersion | None = None,
        lineEnding: Literal['lf', 'crlf'] | None = None,
        mode: Literal['CREATE_NEW', 'REPLACE_EXISTING', 'CREATE_OR_REPLACE'] | None = None,
        onConflict: Literal['refuse', 'merge'] | None = None,
        stepId: str | None = None,
        toolCallId: str | None = None,
    ) -> TextEditOutput:
        """Writes the whole content of one text file. An existing file is replaced only if it is as you last read it, unless onConflict is `merge` and the changes are of other lines. Prefer edit_file for small changes."""
        input = {"content": content, "path": path, "reason": reason, "dryRun": dryRun, "encoding": encoding, "evidence": evidence, "expectedSha256": expectedSha256, "lineEnding": lineEnding, "mode": mode, "onConflict": onConflict, "stepId": stepId, "toolCallId": toolCallId}
        answer = await self._call("write_file", {key: value for key, value in input.items() if value is not None})
        return cast(TextEditOutput, answer)
