"""A client of workspaced, which gives each coding-agent run its own guarded, audited file tree behind an HTTP API."""

from .checkout import Checkout
from .client import Client
from .errors import ApprovalRequired, FolderError, NoAnswer, WorkspacedError
from .run import Run
from .values import Event, Executed, FolderChanges, Pulled, Pushed, ResumePoint, TextAnswer

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
