"""The SDK's own tool runner does a whole task in a run."""

from __future__ import annotations

import unittest
from typing import Any

from anthropic import Anthropic, AsyncAnthropic
from anthropic.types import MessageParam, ToolUseBlock

import workspaced.aio
import workspaced.aio.anthropic
from scripted import FILES, REFUSED, TASK, Model, task
from server import URL, agent, operator
from workspaced import Run
from workspaced.anthropic import answer, message_tools, tools_for

USAGE = {"input_tokens": 1, "output_tokens": 1}


def message(content: list[dict[str, Any]], stop_reason: str) -> dict[str, Any]:
    return {"id": "msg_1", "type": "message", "role": "assistant", "model": "scripted", "content": content,
            "stop_reason": stop_reason, "stop_sequence": None, "usage": USAGE}  # fmt: skip


def turn(number: int, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return message([{"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": arguments}], "tool_use")


END = message([{"type": "text", "text": "done"}], "end_turn")


class Runner(unittest.TestCase):
    def read_by_model(self, model: Model) -> list[dict[str, Any]]:
        """The results in the order of the calls: each request ends with those of the turn before it."""
        results = [part for asked in model.asked[1:] for part in asked["messages"][-1]["content"]]
        return [{**one, "content": one["content"] if isinstance(one["content"], str) else one["content"][0]["text"]} for one in results]

    def check(self, model: Model, run: Run) -> None:
        results = self.read_by_model(model)
        self.assertEqual(len(results), len(TASK))
        for number, (result, (name, _, expected)) in enumerate(zip(results, TASK)):
            self.assertTrue(result["content"].startswith(expected), f"{number} {name}: {result}")
            self.assertEqual((result["tool_use_id"], result.get("is_error", False)), (f"toolu_{number}", number in REFUSED), name)
        self.assertEqual(run.read_bytes("calc.py"), b"def add(a, b):\n    return a + b\n")
        self.assertFalse(run.tool.stat_path(path="notes.md")["exists"])

    def test_the_sdks_runner_does_a_whole_task(self) -> None:
        run, client = agent(FILES)
        with Model(task(operator(), run.id, turn, END)) as model:
            sdk = Anthropic(base_url=model.url, api_key="none")
            runner = sdk.beta.messages.tool_runner(
                model="scripted", max_tokens=100, tools=tools_for(client), messages=[{"role": "user", "content": "Correct add."}]
            )
            self.assertEqual(runner.until_done().stop_reason, "end_turn")
        self.check(model, run)
        self.assertEqual(model.asked[0]["tools"], client.tools("anthropic", "model"))

    def test_a_loop_of_ones_own_does_a_whole_task(self) -> None:
        run, client = agent(FILES)
        messages: list[MessageParam] = [{"role": "user", "content": "Correct add."}]
        with Model(task(operator(), run.id, turn, END)) as model:
            sdk, tools = Anthropic(base_url=model.url, api_key="none"), message_tools(client)
            while (reply := sdk.messages.create(model="scripted", max_tokens=100, tools=tools, messages=messages)).stop_reason == "tool_use":
                messages.append({"role": "assistant", "content": reply.content})
                results = [answer(client, block) for block in reply.content if block.type == "tool_use"]
                messages.append({"role": "user", "content": results})
        self.check(model, run)

    def test_what_is_no_call_of_a_tool_is_answered(self) -> None:
        _, client = agent({"a.txt": "one\n"})
        block = ToolUseBlock.model_validate({"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {"path": "a.txt"}})
        result = answer(client, block)
        self.assertEqual(result, {"type": "tool_result", "tool_use_id": "toolu_1", "content": "1  one\n", "is_error": False})
        self.assertEqual(answer(client, block.model_dump()), result)
        broken = answer(client, block.model_copy(update={"input": ["a.txt"]}))
        self.assertTrue(str(broken.get("content")).startswith("INVALID_REQUEST: the arguments of `read_file` are not"), broken)


class RunnerOfAsyncio(unittest.IsolatedAsyncioTestCase):
    async def test_the_sdks_async_runner_does_a_whole_task(self) -> None:
        run, client = agent(FILES)
        async with workspaced.aio.Client(URL, client.transport.token) as connection:
            with Model(task(operator(), run.id, turn, END)) as model:
                sdk = AsyncAnthropic(base_url=model.url, api_key="none")
                tools = await workspaced.aio.anthropic.tools_for(connection.run(run.id))
                runner = sdk.beta.messages.tool_runner(
                    model="scripted", max_tokens=100, tools=tools, messages=[{"role": "user", "content": "Correct add."}]
                )
                self.assertEqual((await runner.until_done()).stop_reason, "end_turn")
        Runner().check(model, run)


if __name__ == "__main__":
    unittest.main()
