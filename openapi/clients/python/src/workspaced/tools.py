# Written by `generate_types.py` from the file of the same name in `aio`: do not edit.
"""The catalogue as tools of agent frameworks, and what executes the calls that a model asks for."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from inspect import Parameter, Signature
from typing import Any

from .values import TextAnswer
from .run import Run


def dispatch(run: Run, name: str, arguments: object) -> TextAnswer:
    """Executes a model's call and returns the text that the model reads.

    The ID of the call is new each time: the IDs that models invent may repeat.
    """
    try:
        parsed = json.loads(arguments or "{}") if isinstance(arguments, str) else arguments
        if not isinstance(parsed, Mapping):
            raise ValueError("they are not an object")
    except ValueError as error:
        text = f"INVALID_REQUEST: the arguments of `{name}` are not a JSON object: {error}\nSend one JSON object.\n"
        return TextAnswer(text, ok=False, status=400, call_id=None, seq=None, sha256=None)
    return run.text(name, **{key: value for key, value in parsed.items() if key != "toolCallId"})


def member(value: Any, name: str) -> Any:
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
