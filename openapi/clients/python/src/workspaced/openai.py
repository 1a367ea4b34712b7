# Written by `generate_types.py` from the file of the same name in `aio`: do not edit.
"""Tools for the package `openai`: `pip install "workspaced-client[openai]"`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from .extras import needs
from .run import Run
from .tools import dispatch, member

with needs("openai"):
    from openai.types.chat import (
        ChatCompletionFunctionToolParam,
        ChatCompletionMessageToolCallUnion,
        ChatCompletionToolMessageParam,
    )
    from openai.types.responses import FunctionToolParam, ResponseFunctionToolCall
    from openai.types.responses.response_input_param import FunctionCallOutput

__all__ = ["answer_chat", "answer_response", "chat_tools", "response_tools"]


def chat_tools(run: Run) -> list[ChatCompletionFunctionToolParam]:
    """Returns the tools of the run for `client.chat.completions.create(tools=...)`."""
    return cast(list[ChatCompletionFunctionToolParam], run.tools("openai", "model"))


def answer_chat(
    run: Run, tool_call: ChatCompletionMessageToolCallUnion | Mapping[str, Any]
) -> ChatCompletionToolMessageParam:
    """Executes one of the `tool_calls` of a message, as the SDK's object or as its JSON, and returns the message that answers it."""
    function = member(tool_call, "function") or member(tool_call, "custom")
    arguments = member(function, "arguments") or member(function, "input") or ""
    result = dispatch(run, member(function, "name"), arguments)
    return {"role": "tool", "tool_call_id": member(tool_call, "id"), "content": result.text}


def response_tools(run: Run) -> list[FunctionToolParam]:
    """Returns the tools of the run for `client.responses.create(tools=...)`."""
    functions = [tool["function"] for tool in run.tools("openai", "model")]
    return [cast(FunctionToolParam, {"type": "function", "strict": False, **function}) for function in functions]


def answer_response(run: Run, item: ResponseFunctionToolCall | Mapping[str, Any]) -> FunctionCallOutput:
    """Executes a `function_call` of a response's output, as the SDK's object or as its JSON, and returns the input that answers it."""
    result = dispatch(run, member(item, "name"), member(item, "arguments"))
    return {"type": "function_call_output", "call_id": member(item, "call_id"), "output": result.text}
