"""What may block, for asyncio: it runs on a thread of its own. `workspaced.threads` is for threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Worker:
    """Runs what may block, one after the other. Each checkout has its own: the threads of the loop are few, and a command may be long."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, "workspaced-checkout")

    async def run(self, function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Returns what the function returns."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, partial(function, *args, **options))

    def close(self) -> None:
        """Lets the thread end."""
        self._executor.shutdown(wait=False)
