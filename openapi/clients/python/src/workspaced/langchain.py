# Written by `generate_types.py` from the file of the same name in `aio`: do not edit.
"""Tools for the package `langchain`: `pip install "workspaced-client[langchain]"`."""

from __future__ import annotations

from typing import Any

from .extras import needs
from .run import Run
from .tools import dispatch

with needs("langchain"):
    from langchain_core.tools import BaseTool, StructuredTool, ToolException

__all__ = ["tools_for"]


def tools_for(run: Run) -> list[BaseTool]:
    """Returns the tools of the run for an agent of LangChain or LangGraph.

    A refusal is a message of the tool with the status `error`, in the service's words.
    """
    return [
        _tool(run, tool["name"], tool["description"], tool["inputSchema"]) for tool in run.tools("workspaced", "model")
    ]


def _tool(run: Run, name: str, description: str, schema: dict[str, Any]) -> BaseTool:
    def call(**arguments: Any) -> str:
        answer = dispatch(run, name, arguments)
        if not answer.ok:
            raise ToolException(answer.text)
        return answer.text

    return StructuredTool(name=name, description=description, args_schema=schema, func=call, handle_tool_error=True)
