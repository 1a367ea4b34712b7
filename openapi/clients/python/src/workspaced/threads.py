"""What may block, for the client for threads: it runs where it is called. `workspaced.aio.threads` is for asyncio."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Worker:
    """Runs what may block."""

    def run(self, function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Returns what the function returns."""
        return function(*args, **options)

    def close(self) -> None:
        """Lets the thread end."""
