# Written by `generate_types.py` from the file of the same name in `aio`: do not edit.
"""Server-Sent Events, followed across lost connections."""

from __future__ import annotations

import time
import json
from collections.abc import Iterator, Mapping

import httpx

from .errors import NoAnswer, WorkspacedError
from .values import Event, ResumePoint
from .transport import Transport

MAX_EVENT_BYTES = 16 * 1024 * 1024


def follow(
    transport: Transport, path: str, params: Mapping[str, str], resume: ResumePoint, timeout: float | None
) -> Iterator[Event]:
    """Yields events without end. A lost connection is opened again from the last event, without a gap.

    Ends with an exception: a refusal, or `NoAnswer` after as many failures in a row as the transport retries.
    """
    failures = 0
    while True:
        headers = {"Accept": "text/event-stream"}
        if resume.last_event_id is not None:
            headers["Last-Event-ID"] = resume.last_event_id
        waits = httpx.Timeout(transport.http.timeout.connect, read=timeout)
        try:
            with transport.stream("GET", path, params=dict(params), headers=headers, timeout=waits) as response:
                for event in parse(response):
                    failures, resume.last_event_id = 0, event.id or resume.last_event_id
                    yield event
        except NoAnswer as failure:
            failures += 1
            # With a time limit for silence, the caller wants to know.
            if failures > transport.retries or isinstance(failure.__cause__, httpx.ReadTimeout):
                raise
        time.sleep(min(5.0, 0.1 * 2.0**failures))


def parse(response: httpx.Response) -> Iterator[Event]:
    """Yields the events of an answer. Comments are left out."""
    identity, kind, size = "", "message", 0
    data: list[str] = []
    for line in response.iter_lines():
        size += len(line)
        if size > MAX_EVENT_BYTES:
            raise WorkspacedError(200, {"code": "EVENT_TOO_LARGE", "detail": f"an event has over {MAX_EVENT_BYTES} bytes"}, None)
        if not line:
            if data:
                yield Event(identity, kind, json.loads("\n".join(data)))
            kind, data, size = "message", [], 0
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            data.append(value)
        elif name == "event":
            kind = value
        elif name == "id":
            identity = value
