"""Values that the client for threads and the one for asyncio share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


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
