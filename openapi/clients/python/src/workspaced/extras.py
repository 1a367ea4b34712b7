"""What the adapters need beside the package itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needs(extra: str) -> Iterator[None]:
    """Names the extra to install if an import of a framework fails: it is missing, or another version."""
    try:
        yield
    except ImportError as missing:
        message = f'{missing}. This adapter needs its extra: pip install "workspaced-client[{extra}]"'
        raise ImportError(message, name=missing.name, path=missing.path) from missing
