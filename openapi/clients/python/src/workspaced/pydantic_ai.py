# Written by `generate_types.py` from the file of the same name in `aio`: do not edit.
"""Tools for the package `pydantic-ai`: `pip install "workspaced-client[pydantic-ai]"`."""

from __future__ import annotations

from typing import Any

from .extras import needs
from .run import Run
from .tools import dispatch

with needs("pydantic-ai"):
    from pydantic_ai import Tool

__all__ = ["tools_for"]


def tools_for(run: Run) -> list[Tool[Any]]:
    """Returns the tools of the run for an `Agent`.

    A refusal is an answer like any other. `ModelRetry` would end the agent's run after a few of them, and `ToolFailed` shows the model
    JSON in the place of the text.
    """
    return [
        _tool(run, tool["name"], tool["description"], tool["inputSchema"]) for tool in run.tools("workspaced", "model")
    ]


def _tool(run: Run, name: str, description: str, schema: dict[str, Any]) -> Tool[Any]:
    def call(**arguments: Any) -> str:
        return (dispatch(run, name, arguments)).text

    return Tool.from_schema(call, name, description, schema)
