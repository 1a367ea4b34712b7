# Written by `generate_types.py` from the file of the same name in `aio`: do not edit.
"""Requests with retries. A repeated request has the same IDs, so that it is the same call."""

from __future__ import annotations

import time
import random
from collections.abc import Iterator, Iterable, Mapping
from contextlib import contextmanager
from io import BufferedIOBase, RawIOBase
from typing import Any, TypeAlias
from urllib.parse import quote

import httpx

from .errors import NoAnswer, WorkspacedError, error_of, no_answer

Body: TypeAlias = bytes | BufferedIOBase | RawIOBase | Iterable[bytes]

MAX_WAIT_SECONDS = 30.0
CHUNK_BYTES = 64 * 1024


class Transport:
    """Sends requests with a token. Safe for use by several threads."""

    def __init__(self, url: str, token: str, *, timeout: float, retries: int, http: httpx.Client | None) -> None:
        self.url, self.token, self.retries = url.rstrip("/"), token, retries
        self.http = http or httpx.Client(timeout=timeout)

    def with_token(self, token: str) -> Transport:
        """Returns a transport with another token and the same connections."""
        timeout = self.http.timeout.read or 0.0
        return Transport(self.url, token, timeout=timeout, retries=self.retries, http=self.http)

    def json(self, method: str, path: str, body: object = None, **options: Any) -> Any:
        """Sends a request and returns the JSON of the answer, or None for an empty one."""
        if body is not None:
            options["json"] = body
        response = self.send(method, path, **options)
        try:
            return response.json() if response.content else None
        except ValueError as failure:
            raise NoAnswer("INVALID_ANSWER", f"the answer is not JSON: {failure}", self.url) from failure

    def send(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Sends a request and reads the answer. Raises refusals."""
        with self.stream(method, path, read=True, **options) as response:
            return response

    @contextmanager
    def stream(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: Body | None = None,
        repeatable: bool = True,
        accept_refusal: bool = False,
        is_command: bool = False,
        read: bool = False,
        **options: Any,
    ) -> Iterator[httpx.Response]:
        """Sends a request and gives the answer. Its body is read only with `read`, and then again if the connection is lost.

        `repeatable` says whether a request that may have been executed can be sent again. Refusals are raised unless
        `accept_refusal` is set; then only those are that no model can do anything about. Where no runner runs it, the answer to a
        command (`is_command`) is a refusal with 503 in the run's record: to ask again would not help, and a model can go on without.
        """
        for attempt in range(self.retries + 1):
            last = attempt == self.retries or not _can_send_again(content)
            try:
                # Redirects are not followed: the service sends none, and the token is for this service alone.
                request = self.http.build_request(
                    method, self.url + path, headers=self._headers(headers), content=_chunks(content), **options
                )
                response = self.http.send(request, stream=not read, follow_redirects=False)
            except (httpx.RequestError, httpx.InvalidURL) as failure:
                is_lost = isinstance(failure, httpx.TransportError) and (repeatable or isinstance(failure, httpx.ConnectError))
                if last or not is_lost:
                    raise no_answer(failure, self.url) from failure
                time.sleep(_wait(attempt, None))
                continue
            try:
                if response.status_code in (429, 503):
                    response.read()
                    error = error_of(response)
                    is_answer = is_command and response.status_code == 503 and error.is_recorded
                    if not last and not is_answer and error.code != "RUN_NEEDS_REPAIR":
                        time.sleep(_wait(attempt, response.headers.get("retry-after")))
                        continue
                    if not is_answer or not accept_refusal:
                        raise error
                else:
                    _raise_refusal(response, accept_refusal)
                yield response
                return
            except (httpx.RequestError, httpx.StreamError) as failure:
                # While the body is read, here or by the caller.
                raise no_answer(failure, self.url) from failure
            finally:
                response.close()

    def _headers(self, headers: Mapping[str, str] | None) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}", **(headers or {})}


def _raise_refusal(response: httpx.Response, accept_refusal: bool) -> None:
    status = response.status_code
    if status < 400 and status != 202:
        return
    response.read()
    if not accept_refusal or status == 401 or status >= 500:
        error: WorkspacedError = error_of(response)
        # Other answers with this status are no refusals.
        if status != 202 or error.code == "APPROVAL_REQUIRED":
            raise error


def _wait(attempt: int, retry_after: str | None) -> float:
    """Returns how long to wait: as long as the service asks for, or twice as long as before, with jitter."""
    asked = float(retry_after) if retry_after and retry_after.isdigit() else 0.0
    return min(MAX_WAIT_SECONDS, max(asked, 0.1 * 2.0**attempt)) * random.uniform(1.0, 1.25)


def _can_send_again(content: Body | None) -> bool:
    if content is None or isinstance(content, bytes):
        return True
    return isinstance(content, BufferedIOBase | RawIOBase) and content.seekable()


def _chunks(content: Body | None) -> bytes | Iterator[bytes] | None:
    return content if content is None or isinstance(content, bytes) else _parts(content)


def _parts(content: Body) -> Iterator[bytes]:
    """Yields what to send. A file is sent from its start in each attempt."""
    if isinstance(content, bytes):
        content = [content]
    elif isinstance(content, BufferedIOBase | RawIOBase):
        file = content
        if file.seekable():
            file.seek(0)
        content = iter(lambda: file.read(CHUNK_BYTES) or b"", b"")
    for chunk in content:
        yield chunk


def segment(text: str) -> str:
    """Returns text as one segment of a path."""
    return quote(text, safe="")


def pages(transport: Transport, path: str, filters: Mapping[str, Any]) -> Iterator[Any]:
    """Yields the items of a list, page by page."""
    cursor: dict[str, str] = {}
    while True:
        page = transport.json("GET", path, params={**filters, **cursor})
        for item in page["items"]:
            yield item
        if not page.get("nextCursor"):
            return
        cursor = {"cursor": page["nextCursor"]}
