"""The loops of the SDK, over chat completions and over responses, do a whole task in a run."""

from __future__ import annotations

import json
import unittest
from typing import Any, cast

from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import ResponseFunctionToolCall, ResponseInputItemParam

import workspaced.aio
from scripted import FILES, TASK, Model, task
from server import URL, agent, operator
from workspaced import Run
from workspaced.aio import openai as aio_openai
from workspaced.openai import answer_chat, answer_response, chat_tools, response_tools


def completion(message: dict[str, Any], finish_reason: str) -> dict[str, Any]:
    choice = {"index": 0, "finish_reason": finish_reason, "message": {"role": "assistant", "content": None, **message}}
    return {"id": "chatcmpl_1", "object": "chat.completion", "created": 0, "model": "scripted", "choices": [choice]}


def chat_turn(number: int, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return completion({"tool_calls": [{"id": f"call_{number}", "type": "function", "function": function}]}, "tool_calls")


def response(output: list[dict[str, Any]]) -> dict[str, Any]:
    return {"id": "resp_1", "object": "response", "created_at": 0, "model": "scripted", "status": "completed", "output": output,
            "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}  # fmt: skip


def response_turn(number: int, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return response([{"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "status": "completed", "name": name,
                      "arguments": json.dumps(arguments)}])  # fmt: skip


END_OF_CHAT = completion({"content": "done"}, "stop")
SAID = {"type": "output_text", "text": "done", "annotations": []}
END_OF_RESPONSES = response([{"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [SAID]}])


class Loops(unittest.TestCase):
    def check(self, read: list[tuple[str, str]], run: Run) -> None:
        self.assertEqual(len(read), len(TASK))
        for number, ((call_id, text), (name, _, expected)) in enumerate(zip(read, TASK)):
            self.assertTrue(text.startswith(expected), f"{number} {name}: {text}")
            self.assertEqual(call_id, f"call_{number}")
        self.assertEqual(run.read_bytes("calc.py"), b"def add(a, b):\n    return a + b\n")
        self.assertFalse(run.tool.stat_path(path="notes.md")["exists"])

    def test_a_loop_over_chat_completions_does_a_whole_task(self) -> None:
        run, client = agent(FILES)
        messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Correct add."}]
        with Model(task(operator(), run.id, chat_turn, END_OF_CHAT)) as model:
            sdk, tools = OpenAI(base_url=model.url, api_key="none"), chat_tools(client)
            while calls := (reply := sdk.chat.completions.create(model="scripted", messages=messages, tools=tools).choices[0].message).tool_calls:
                messages.append(cast(ChatCompletionMessageParam, reply.to_dict()))
                messages += [answer_chat(client, call) for call in calls]
        self.assertEqual(reply.content, "done")
        self.check([(one["tool_call_id"], one["content"]) for one in model.asked[-1]["messages"] if one["role"] == "tool"], run)
        self.assertEqual(model.asked[0]["tools"], client.tools("openai", "model"))

    def test_a_loop_over_responses_does_a_whole_task(self) -> None:
        run, client = agent(FILES)
        items: list[ResponseInputItemParam] = [{"role": "user", "content": "Correct add."}]
        with Model(task(operator(), run.id, response_turn, END_OF_RESPONSES)) as model:
            sdk, tools = OpenAI(base_url=model.url, api_key="none"), response_tools(client)
            while not (reply := sdk.responses.create(model="scripted", input=items, tools=tools)).output_text:
                for item in reply.output:
                    items.append(cast(ResponseInputItemParam, item.to_dict()))
                    if item.type == "function_call":
                        items.append(answer_response(client, item))
        self.assertEqual(reply.output_text, "done")
        outputs = [one for one in model.asked[-1]["input"] if one.get("type") == "function_call_output"]
        self.check([(one["call_id"], one["output"]) for one in outputs], run)
        names = [tool["name"] for tool in model.asked[0]["tools"]]
        self.assertEqual(names, [tool["function"]["name"] for tool in chat_tools(client)])

    def test_calls_are_taken_as_objects_and_as_json(self) -> None:
        _, client = agent({"a.txt": "one\n"})
        item = ResponseFunctionToolCall(type="function_call", call_id="call_2", name="read_file", arguments='{"path": "a.txt"}')
        expected = {"type": "function_call_output", "call_id": "call_2", "output": "1  one\n"}
        self.assertEqual([answer_response(client, item), answer_response(client, item.model_dump())], [expected, expected])
        broken = answer_response(client, item.model_copy(update={"arguments": "{"}))
        self.assertTrue(str(broken["output"]).startswith("INVALID_REQUEST: the arguments of `read_file` are not"), broken)


class LoopsOfAsyncio(unittest.IsolatedAsyncioTestCase):
    async def test_an_async_loop_does_a_whole_task(self) -> None:
        run, client = agent(FILES)
        items: list[ResponseInputItemParam] = [{"role": "user", "content": "Correct add."}]
        async with workspaced.aio.Client(URL, client.transport.token) as connection:
            agent_run = connection.run(run.id)
            with Model(task(operator(), run.id, response_turn, END_OF_RESPONSES)) as model:
                sdk, tools = AsyncOpenAI(base_url=model.url, api_key="none"), await aio_openai.response_tools(agent_run)
                while not (reply := await sdk.responses.create(model="scripted", input=items, tools=tools)).output_text:
                    for item in reply.output:
                        items.append(cast(ResponseInputItemParam, item.to_dict()))
                        if item.type == "function_call":
                            items.append(await aio_openai.answer_response(agent_run, item))
                await sdk.close()
        outputs = [one for one in model.asked[-1]["input"] if one.get("type") == "function_call_output"]
        Loops().check([(one["call_id"], one["output"]) for one in outputs], run)


if __name__ == "__main__":
    unittest.main()
