"""The client for asyncio. `workspaced` itself has the one for threads, which is written from this one."""

from ..errors import ApprovalRequired, NoAnswer, WorkspacedError
from ..values import Event, ResumePoint, TextAnswer
from .client import Client
from .run import Run

__all__ = ["ApprovalRequired", "Client", "Event", "NoAnswer", "ResumePoint", "Run", "TextAnswer", "WorkspacedError"]
