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
    """A file of a folder that differs from the run."""

    path: str
    change: Literal["added", "modified", "deleted"]
    size: int


class LeftEntry(TypedDict):
    """Something in a folder that is not sent, and why."""

    path: str
    why: str


@dataclass
class Pulled:
    """What a pull has done. `from_seq` is None for a first checkout."""

    from_seq: int | None
    seq: int
    head_hash: str
    written: int
    deleted: int
    left_out: int


@dataclass
class FolderChanges:
    """What differs from the run. `not_walked` are folders of builds and installations of which the run has nothing."""

    changes: list[PathChange]
    left: list[LeftEntry]
    left_count: int
    not_walked: list[str]


@dataclass
class Pushed:
    """A set of changes that was applied. `stale` says why the folder does not have the state of the run that the set made."""

    answer: types.ChangesetAnswer
    left: list[LeftEntry]
    stale: WorkspacedError | None


@dataclass
class Executed:
    """What came of a command.

    `output` has both streams as they came, up to 16 MiB: the beginning and the end. `refusal` says why the command was not recorded
    or its changes not applied; the run has none of them then.
    """

    exit_code: int | None
    signal: int | None
    timed_out: bool
    duration_micros: int
    output: bytes
    output_sha256: str | None
    pulled: Pulled
    changed: FolderChanges
    event_seq: int | None
    pushed: Pushed | None
    refusal: WorkspacedError | None

    @property
    def ok(self) -> bool:
        """Whether the command succeeded, and what came of it is recorded."""
        return self.exit_code == 0 and not self.timed_out and self.refusal is None
