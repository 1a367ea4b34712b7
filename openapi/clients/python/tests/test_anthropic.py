"""The SDK's own tool runner does a whole task in a run, and keeps a memory in one."""

from __future__ import annotations

import unittest
from typing import Any

from anthropic import Anthropic, AsyncAnthropic
from anthropic.lib.tools import BetaAbstractMemoryTool
from anthropic.types import MessageParam, ToolUseBlock

import workspaced.aio
import workspaced.aio.anthropic
from scripted import FILES, REFUSED, TASK, Model, task
from server import URL, agent, operator
from workspaced import Run
from workspaced.anthropic import MemoryTool, answer, message_tools, tools_for

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


class Memory(unittest.TestCase):
    def test_the_runner_keeps_a_memory_in_the_run(self) -> None:
        run, client = agent()
        calls: list[tuple[dict[str, Any], str]] = [
            ({"command": "view", "path": "/memories"}, "Here're the files and directories up to 2 levels deep in /memories, excluding hidden items:\n0B\t/memories"),
            ({"command": "create", "path": "/memories/likes.md", "file_text": "tea\nmilk\n"}, "File created successfully at: /memories/likes.md"),
            ({"command": "view", "path": "/memories/likes.md"}, "Here's the content of /memories/likes.md with line numbers:\n     1\ttea\n     2\tmilk\n     3\t"),
            ({"command": "view", "path": "/memories/likes.md", "view_range": [2, -1]}, "Here's the content of /memories/likes.md with line numbers:\n     2\tmilk\n     3\t"),
            ({"command": "str_replace", "path": "/memories/likes.md", "old_str": "tea", "new_str": "coffee"}, "The memory file has been edited. Here is the snippet showing the change (with line numbers):\n     1\tcoffee\n     2\tmilk\n     3\t"),
            ({"command": "insert", "path": "/memories/likes.md", "insert_line": 1, "insert_text": "black\n"}, "The file /memories/likes.md has been edited."),
            ({"command": "rename", "old_path": "/memories/likes.md", "new_path": "/memories/ada/drinks.md"}, "Successfully renamed /memories/likes.md to /memories/ada/drinks.md"),
            ({"command": "view", "path": "/memories"}, "Here're the files and directories up to 2 levels deep in /memories, excluding hidden items:\n18B\t/memories\n18B\t/memories/ada/\n18B\t/memories/ada/drinks.md"),
            ({"command": "delete", "path": "/memories/ada"}, "Successfully deleted /memories/ada"),
        ]  # fmt: skip
        script = [turn(number, "memory", arguments) for number, (arguments, _) in enumerate(calls)]
        with Model([*script, END]) as model:
            Anthropic(base_url=model.url, api_key="none").beta.messages.tool_runner(
                model="scripted", max_tokens=100, tools=[MemoryTool(client)], messages=[{"role": "user", "content": "Remember."}]
            ).until_done()
        self.assertEqual(model.asked[0]["tools"], [{"type": "memory_20250818", "name": "memory"}])
        for result, (arguments, expected) in zip(Runner().read_by_model(model), calls, strict=True):
            self.assertEqual((result["content"], result.get("is_error", False)), (expected, False), arguments)
        changes = [record["tool"] for record in run.audit() if record["mutates"]]
        self.assertEqual(changes, ["write_file", "edit_file", "replace_range", "move_file", "delete_file"])

    def test_a_memory_refuses_in_the_words_of_the_form(self) -> None:
        run, client = agent({"notes/a.md": "one\none\n", "notes/b/c.md": "c", "calc.py": "x\n"})
        memory: BetaAbstractMemoryTool = MemoryTool(client, "notes")
        refused: list[tuple[dict[str, Any], str]] = [
            ({"command": "view", "path": "/etc/passwd"}, "Path must start with /memories, got: /etc/passwd"),
            ({"command": "view", "path": "/memoriesx"}, "Path must start with /memories, got: /memoriesx"),
            ({"command": "view", "path": "/memories/../calc.py"}, "Path /memories/../calc.py would escape /memories directory"),
            ({"command": "view", "path": "/memories/none"}, "The path /memories/none does not exist. Please provide a valid path."),
            ({"command": "create", "path": "/memories/a.md", "file_text": "two\n"}, "File /memories/a.md already exists"),
            ({"command": "str_replace", "path": "/memories/a.md", "old_str": "two", "new_str": "2"}, "No replacement was performed, old_str `two` did not appear verbatim in /memories/a.md."),
            ({"command": "str_replace", "path": "/memories/a.md", "old_str": "one", "new_str": "1"}, "No replacement was performed. Multiple occurrences of old_str `one` in lines: 1, 2. Please ensure it is unique"),
            ({"command": "str_replace", "path": "/memories/b", "old_str": "one", "new_str": "1"}, "The path /memories/b is not a file."),
            ({"command": "insert", "path": "/memories/a.md", "insert_line": 3, "insert_text": "x"}, "Invalid `insert_line` parameter: 3. It should be within the range [0, 2]."),
            ({"command": "delete", "path": "/memories"}, "Cannot delete the /memories directory itself"),
            ({"command": "delete", "path": "/memories/none"}, "The path /memories/none does not exist"),
            ({"command": "rename", "old_path": "/memories/none", "new_path": "/memories/x"}, "The path /memories/none does not exist"),
            ({"command": "rename", "old_path": "/memories/b", "new_path": "/memories/a.md"}, "The destination /memories/a.md already exists"),
            ({"command": "create", "path": "/memories/.env", "file_text": "A=1\n"}, "POLICY_DENIED_SECRET: `notes/.env` is a secret file, which no tool can read or change"),
        ]  # fmt: skip
        for arguments, expected in refused:
            with self.assertRaises(Exception) as raised:
                memory.call(arguments)
            # What helps with the refusal follows.
            first = str(raised.exception).partition("\n")[0]
            self.assertEqual((type(raised.exception).__name__, first), ("ToolError", expected), arguments)
        self.assertEqual([record for record in run.audit() if record["mutates"] and record["outcome"] == "ok" and record["by"] == "agent"], [])
        memory.call({"command": "rename", "old_path": "/memories/b", "new_path": "/memories/d"})
        memory.call({"command": "insert", "path": "/memories/d/c.md", "insert_line": 1, "insert_text": "d"})
        self.assertEqual(run.read_bytes("notes/d/c.md"), b"c\nd\n")
        self.assertEqual(memory.clear_all_memory(), "All memory cleared")
        self.assertFalse(run.tool.stat_path(path="notes")["exists"])

    def test_a_memory_tells_of_decisions(self) -> None:
        run, client = agent()
        memory = MemoryTool(client, ".")
        with self.assertRaises(Exception) as raised:
            memory.call({"command": "create", "path": "/memories/Cargo.lock", "file_text": "x\n"})
        self.assertTrue(str(raised.exception).startswith("APPROVAL_REQUIRED: "), raised.exception)
        [waiting] = operator().approvals(run=run.id)
        operator().approve(waiting["approvalId"], on_behalf_of="ada")
        shown = str(memory.call({"command": "view", "path": "/memories/Cargo.lock"}))
        self.assertTrue(shown.startswith("approved: Cargo.lock (create), applied\nHere's the content"), shown)


if __name__ == "__main__":
    unittest.main()
