"""Values that the client for threads and the one for asyncio share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from . import types
from .errors import WorkspacedError


@dataclass
class TextAnswer:
    """What a model reads. `ok` is false for a refusal, whose text says what to do next."""

    text: str
    ok: bool
    status: int
    call_id: str | None
    seq: int | None
    sha256: str | None


@dataclass
class Event:
    """One event of a stream. `data` is a record or a change."""

    id: str
    kind: str
    data: Any


@dataclass
class ResumePoint:
    """Where to continue a stream: updated with each event, so that it can be kept and given again."""

    last_event_id: str | None = None


class PathChange(TypedDict):
    """A file of a folder that differs from the run. `changedNs` is when it was changed last, in nanoseconds since 1970; 0 if it is gone."""

    path: str
    change: Literal["added", "modified", "deleted"]
    size: int
    changedNs: int


class LeftEntry(TypedDict):
    """Something in a folder that is not sent, and why."""

    path: str
    why: str


@dataclass
class Pulled:
    """What a pull has done. `from_seq` is None for a first checkout. `conflicts` were changed both here and in the run and are as they were:
    `seq` is that of the folder before then.
    """

    from_seq: int | None
    seq: int
    head_hash: str
    written: int
    deleted: int
    left_out: int
    conflicts: list[LeftEntry]


@dataclass
class FolderChanges:
    """What differs from the run. `left` are the first of the entries that no set takes, such as FIFOs and files that are too large, and
    `not_walked` folders of builds and installations of which the run has nothing.
    """

    changes: list[PathChange]
    left: list[LeftEntry]
    left_count: int
    not_walked: list[str]

    def leave_out(self, earlier: FolderChanges) -> list[PathChange]:
        """Takes out what was found as it is now before: what is left came after it. Returns the changes that were taken out."""
        known = {change["path"]: change for change in earlier.changes}
        before = [change for change in self.changes if known.get(change["path"]) == change]
        self.changes = [change for change in self.changes if known.get(change["path"]) != change]
        self.left = [entry for entry in self.left if entry not in earlier.left]
        self.left_count = max(self.left_count - earlier.left_count, len(self.left))
        self.not_walked = [folder for folder in self.not_walked if folder not in earlier.not_walked]
        return before


@dataclass
class Pushed:
    """A set of changes that was applied. `stale` says why the folder does not have the state of the run that the set made."""

    answer: types.ChangesetAnswer
    left: list[LeftEntry]
    stale: WorkspacedError | None


@dataclass
class Executed:
    """What came of a command.

    `output` has both streams as they came, up to 16 MiB: the beginning and the end. `changed` is what the command changed, and `earlier`
    what differed from the run before it and does so still, which `push` sends. `refusal` says why the command was not recorded or its
    changes not applied; the run has none of them then.
    """

    exit_code: int | None
    signal: int | None
    timed_out: bool
    duration_micros: int
    output: bytes
    output_sha256: str | None
    pulled: Pulled
    changed: FolderChanges
    earlier: list[PathChange]
    event_seq: int | None
    pushed: Pushed | None
    refusal: WorkspacedError | None

    @property
    def ok(self) -> bool:
        """Whether the command succeeded, and what came of it is recorded."""
        return self.exit_code == 0 and not self.timed_out and self.refusal is None
