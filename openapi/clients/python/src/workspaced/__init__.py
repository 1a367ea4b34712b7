"""A client of workspaced, which gives each coding-agent run its own guarded, audited file tree behind an HTTP API."""

from .client import Client
from .errors import ApprovalRequired, WorkspacedError
from .run import Run, TextAnswer
from .streams import Event, ResumePoint

__all__ = ["ApprovalRequired", "Client", "Event", "ResumePoint", "Run", "TextAnswer", "WorkspacedError"]
