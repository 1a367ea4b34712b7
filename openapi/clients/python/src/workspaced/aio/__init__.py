"""The client for asyncio. `workspaced` itself has the one for threads, which is written from this one."""

from ..errors import ApprovalRequired, FolderError, NoAnswer, WorkspacedError
from ..values import Event, Executed, FolderChanges, Pulled, Pushed, ResumePoint, TextAnswer
from .checkout import Checkout
from .client import Client
from .run import Run

__all__ = [
    "ApprovalRequired",
    "Checkout",
    "Client",
    "Event",
    "Executed",
    "FolderChanges",
    "FolderError",
    "NoAnswer",
    "Pulled",
    "Pushed",
    "ResumePoint",
    "Run",
    "TextAnswer",
    "WorkspacedError",
]
