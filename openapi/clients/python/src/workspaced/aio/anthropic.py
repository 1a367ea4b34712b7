"""Tools for the package `anthropic`: `pip install "workspaced-client[anthropic]"`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from ..extras import needs
from .run import Run
from .tools import dispatch, member

with needs("anthropic"):
    from anthropic.lib.tools import BetaAsyncBuiltinFunctionTool, ToolError
    from anthropic.types import ToolParam, ToolResultBlockParam, ToolUseBlock
    from anthropic.types.beta import BetaToolParam, BetaToolUseBlock

__all__ = ["RunTool", "ToolsetTool", "answer", "message_tools", "tools_for", "toolset_for"]


class RunTool(BetaAsyncBuiltinFunctionTool):
    """A tool of the run for the SDK's tool runner. A refusal is a result with `is_error`, in the service's words."""

    def __init__(self, run: Run, definition: BetaToolParam) -> None:
        super().__init__()
        self._run, self._definition = run, definition

    def to_dict(self) -> BetaToolParam:
        """Returns the declaration that the model sees: the one of the catalogue."""
        return self._definition

    async def call(self, input: object) -> str:
        """Executes a call of the model."""
        result = await dispatch(self._run, self.name, input)
        if not result.ok:
            raise ToolError(result.text)
        return result.text


async def tools_for(run: Run) -> list[RunTool]:
    """Returns the tools of the run for the SDK's tool runner, `client.beta.messages.tool_runner(tools=...)`.

    The runner shows every exception to the model, also an invalid token or a lost connection: bound the loop by `max_iterations`.
    """
    return [RunTool(run, cast(BetaToolParam, tool)) for tool in await run.tools("anthropic", "model")]


class ToolsetTool(BetaAsyncBuiltinFunctionTool):
    """A tool of `agent_toolset_20260401`, of which the provider has the declaration, by the run."""

    def __init__(self, run: Run, name: str) -> None:
        super().__init__()
        self._run, self._definition = run, BetaToolParam(name=name, input_schema={"type": "object"})

    def to_dict(self) -> BetaToolParam:
        """Returns its name. The model has been told the rest."""
        return self._definition

    async def call(self, input: object) -> str:
        """Executes a call of the model."""
        result = await self._run.text_in_format("anthropic-toolset", self.name, input)
        if not result.ok:
            raise ToolError(result.text)
        return result.text


async def toolset_for(run: Run) -> list[ToolsetTool]:
    """Returns `bash`, `read`, `write`, `edit`, `glob` and `grep` for the SDK's environment worker, as far as the token may call them.

    `client.beta.environments.work.worker(tools=...)` and `client.beta.sessions.events.tool_runner(tools=...)` take them.
    """
    listed = await run.transport.json("GET", "/v1/tools", params={"format": "anthropic-toolset"})
    configs = [config for toolset in listed["items"] for config in toolset["configs"]]
    return [ToolsetTool(run, config["name"]) for config in configs if config["enabled"]]


async def message_tools(run: Run) -> list[ToolParam]:
    """Returns the tools of the run for a loop of your own, `client.messages.create(tools=...)`."""
    return cast(list[ToolParam], await run.tools("anthropic", "model"))


async def answer(run: Run, block: ToolUseBlock | BetaToolUseBlock | Mapping[str, Any]) -> ToolResultBlockParam:
    """Executes a block of type `tool_use`, as the SDK's object or as its JSON, and returns the block that answers it."""
    result = await dispatch(run, member(block, "name"), member(block, "input"))
    return {"type": "tool_result", "tool_use_id": member(block, "id"), "content": result.text, "is_error": not result.ok}
