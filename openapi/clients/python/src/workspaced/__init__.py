"""A client of workspaced, which gives each coding-agent run its own guarded, audited file tree behind an HTTP API."""

from .client import Client
from .errors import ApprovalRequired, NoAnswer, WorkspacedError
from .run import Run
from .values import Event, ResumePoint, TextAnswer

__all__ = ["ApprovalRequired", "Client", "Event", "NoAnswer", "ResumePoint", "Run", "TextAnswer", "WorkspacedError"]
