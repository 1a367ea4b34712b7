# Written by `generate_types.py` from the file of the same name in `aio`: do not edit.
"""The catalogue as tools of agent frameworks, and what executes the calls that a model asks for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any, cast

from .values import TextAnswer
from .run import Run

if TYPE_CHECKING:
    # Types for programs that have these packages. This one does not need them.
    from anthropic.types import ToolParam, ToolResultBlockParam, ToolUseBlock
    from openai.types.chat import ChatCompletionFunctionToolParam, ChatCompletionToolMessageParam
    from openai.types.chat.chat_completion_message_tool_call import ChatCompletionMessageToolCallUnion
    from openai.types.responses import FunctionToolParam, ResponseFunctionToolCall
    from openai.types.responses.response_input_param import FunctionCallOutput


def openai_tools(run: Run) -> list[ChatCompletionFunctionToolParam]:
    """Returns the tools for OpenAI's function calling in chat completions."""
    return cast("list[ChatCompletionFunctionToolParam]", run.tools("openai", "model"))


def openai_response_tools(run: Run) -> list[FunctionToolParam]:
    """Returns the tools for OpenAI's responses."""
    functions = [tool["function"] for tool in run.tools("openai", "model")]
    return [cast("FunctionToolParam", {"type": "function", "strict": False, **function}) for function in functions]


def anthropic_tools(run: Run) -> list[ToolParam]:
    """Returns the tools for Anthropic's messages."""
    return cast("list[ToolParam]", run.tools("anthropic", "model"))


def dispatch(run: Run, name: str, arguments: str | Mapping[str, Any]) -> TextAnswer:
    """Executes a model's call and returns the text that the model reads.

    The ID of the call is new each time: the IDs that models invent may repeat.
    """
    try:
        parsed = json.loads(arguments or "{}") if isinstance(arguments, str) else dict(arguments)
        if not isinstance(parsed, dict):
            raise ValueError("they are not an object")
    except ValueError as error:
        text = f"INVALID_REQUEST: the arguments of `{name}` are not a JSON object: {error}\nSend one JSON object.\n"
        return TextAnswer(text, ok=False, status=400, call_id=None, seq=None, sha256=None)
    parsed.pop("toolCallId", None)
    return run.text(name, **parsed)


def answer_openai(
    run: Run, tool_call: ChatCompletionMessageToolCallUnion | Mapping[str, Any]
) -> ChatCompletionToolMessageParam:
    """Executes one of the `tool_calls` of a message, as the SDK's object or as its JSON, and returns the message that answers it."""
    function = _member(tool_call, "function") or _member(tool_call, "custom")
    arguments = _member(function, "arguments") or _member(function, "input") or ""
    answer = dispatch(run, _member(function, "name"), arguments)
    return {"role": "tool", "tool_call_id": _member(tool_call, "id"), "content": answer.text}


def answer_openai_response(run: Run, item: ResponseFunctionToolCall | Mapping[str, Any]) -> FunctionCallOutput:
    """Executes a `function_call` of a response's output, as the SDK's object or as its JSON, and returns the input that answers it."""
    answer = dispatch(run, _member(item, "name"), _member(item, "arguments"))
    return {"type": "function_call_output", "call_id": _member(item, "call_id"), "output": answer.text}


def answer_anthropic(run: Run, block: ToolUseBlock | Mapping[str, Any]) -> ToolResultBlockParam:
    """Executes a block of type `tool_use`, as the SDK's object or as its JSON, and returns the block that answers it."""
    answer = dispatch(run, _member(block, "name"), _member(block, "input"))
    return {"type": "tool_result", "tool_use_id": _member(block, "id"), "content": answer.text, "is_error": not answer.ok}


def _member(value: Any, name: str) -> Any:
    """Returns a member of an SDK's object or of its JSON, or None."""
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def functions(run: Run) -> list[Callable[..., str]]:
    """Returns each tool as a function with name, documentation, signature and JSON Schema (`schema`).

    They take keyword arguments and return the text for the model, also of refusals.
    """
    return [_function(run, tool) for tool in run.tools("workspaced", "model")]


def _function(run: Run, tool: Mapping[str, Any]) -> Callable[..., str]:
    name, schema = tool["name"], tool["inputSchema"]

    def call(**arguments: Any) -> str:
        return (dispatch(run, name, arguments)).text

    required = schema.get("required", [])
    # Keywords of Python, such as `from`, cannot be parameters: they are part of the schema alone.
    members = [member for member in schema["properties"] if member.isidentifier() and member != "from"]
    ordered = sorted(members, key=lambda member: member not in required)
    parameters = [
        Parameter(
            member,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if member in required else schema["properties"][member].get("default"),
            annotation=_annotation(schema["properties"][member]),
        )
        for member in ordered
    ]
    rest = [] if len(members) == len(schema["properties"]) else [Parameter("arguments", Parameter.VAR_KEYWORD)]
    call.__name__ = call.__qualname__ = name
    call.__doc__ = tool["description"]
    call.__annotations__ = {**{one.name: one.annotation for one in parameters}, "return": str}
    call.__dict__.update(schema=schema, __signature__=Signature([*parameters, *rest], return_annotation=str))
    return call


def _annotation(schema: Mapping[str, Any]) -> Any:
    kinds = {"string": str, "integer": int, "boolean": bool, "object": dict[str, Any], "array": list[str]}
    return kinds.get(schema.get("type", ""), Any)
