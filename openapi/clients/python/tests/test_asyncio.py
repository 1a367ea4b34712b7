"""The client for asyncio against a real server, and both packages of models with their real objects."""

from __future__ import annotations

import io
import unittest
from contextlib import aclosing

import anthropic.types
from openai.types.chat import ChatCompletionMessage
from openai.types.responses import ResponseFunctionToolCall

from server import OPERATOR, URL, agent
from workspaced import tools
from workspaced.aio import ApprovalRequired, Client, NoAnswer, WorkspacedError
from workspaced.aio import tools as aio_tools


def message(arguments: str) -> ChatCompletionMessage:
    call = {"id": "call_1", "type": "function", "function": {"name": "read_file", "arguments": arguments}}
    return ChatCompletionMessage.model_validate({"role": "assistant", "content": None, "tool_calls": [call]})


class Models(unittest.TestCase):
    def test_the_objects_of_the_sdks_are_answered(self) -> None:
        _, run = agent({"a.txt": "one\n"})
        arguments = '{"path": "a.txt"}'
        [call] = message(arguments).tool_calls or []
        answer = tools.answer_openai(run, call)
        self.assertEqual(answer, {"role": "tool", "tool_call_id": "call_1", "content": "1  one\n"})
        self.assertEqual(tools.answer_openai(run, call.model_dump()), answer)
        item = ResponseFunctionToolCall(type="function_call", call_id="call_2", name="read_file", arguments=arguments)
        self.assertEqual(
            tools.answer_openai_response(run, item),
            {"type": "function_call_output", "call_id": "call_2", "output": "1  one\n"},
        )
        block = anthropic.types.ToolUseBlock.model_validate(
            {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {"path": "a.txt"}}
        )
        result = tools.answer_anthropic(run, block)
        self.assertEqual((result["tool_use_id"], result.get("content"), result.get("is_error")), ("toolu_1", "1  one\n", False))
        self.assertEqual(tools.answer_anthropic(run, block.model_dump()), result)
        [broken] = message("{").tool_calls or []
        self.assertIn("INVALID_REQUEST", str(tools.answer_openai(run, broken)["content"]))
        names = [tool["function"]["name"] for tool in tools.openai_tools(run)]
        self.assertEqual(names, [tool["name"] for tool in tools.anthropic_tools(run)])
        self.assertEqual(names, [tool["name"] for tool in tools.openai_response_tools(run)])


class Asyncio(unittest.IsolatedAsyncioTestCase):
    async def test_the_client_for_asyncio_works_alike(self) -> None:
        async with Client(URL, OPERATOR) as operator:
            run, token = await operator.create_run()
            agent = operator.agent(run.id, token["token"])
            await run.create_file("a.bin", io.BytesIO(bytes(100_000)), "stores")
            async with agent.download("a.bin") as chunks:
                self.assertEqual(len(b"".join([chunk async for chunk in chunks])), 100_000)
            await agent.tool.write_file(path="a.txt", content="one\n", reason="creates")
            self.assertEqual((await agent.call("read_file", path="a.txt", format="raw"))["content"], "one\n")
            with self.assertRaises(WorkspacedError) as raised:
                await agent.tool.read_file(path="none.txt")
            self.assertEqual((raised.exception.code, raised.exception.status), ("NOT_FOUND", 404))
            with self.assertRaises(ApprovalRequired) as waiting:
                await agent.tool.write_file(path="Cargo.lock", content="x\n", reason="locks")
            await operator.deny(waiting.exception.approval_id or "", on_behalf_of="ada")
            decided = await agent.wait_for_approval(waiting.exception, timeout=5)
            self.assertEqual(decided["approval"]["state"], "denied")  # type: ignore[index]
            [call] = message('{"path": "a.txt"}').tool_calls or []
            # The first answer to a model after a decision begins with it, once.
            answer = (await aio_tools.answer_openai(agent, call))["content"]
            self.assertEqual(answer, "denied: Cargo.lock (write_file)\n1  one\n")
            [read, *_] = [one for one in await aio_tools.functions(agent) if one.__name__ == "read_file"]
            self.assertEqual(await read(path="a.txt"), "1  one\n")
            records = [record["tool"] async for record in run.audit(limit=2)]
            self.assertIn("files_put", records)
            async with aclosing(run.follow()) as changes:  # type: ignore[type-var]
                self.assertEqual((await anext(changes)).data["files"][0]["path"], "a.bin")

    async def test_a_failure_of_the_connection_is_an_error_of_the_package(self) -> None:
        async with Client("http://127.0.0.1:1", "t", retries=1) as client:
            with self.assertRaises(NoAnswer) as raised:
                await client.limits()
        self.assertEqual((raised.exception.code, raised.exception.status), ("NO_ANSWER", 0))


if __name__ == "__main__":
    unittest.main()
