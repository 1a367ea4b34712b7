"""Agents of LangChain and Pydantic AI do a whole task in a run."""

from __future__ import annotations

import unittest
from typing import Any

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI
from pydantic import SecretStr
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import test_openai
import workspaced.aio
import workspaced.aio.langchain
import workspaced.aio.pydantic_ai
import workspaced.langchain
import workspaced.pydantic_ai
from scripted import FILES, REFUSED, Model, task
from server import URL, agent, operator
from workspaced import Run

ASKED = "Correct add."


def langchain_model(url: str) -> ChatOpenAI:
    return ChatOpenAI(model="scripted", base_url=url, api_key=SecretStr("none"))


def pydantic_model(url: str) -> OpenAIChatModel:
    return OpenAIChatModel("scripted", provider=OpenAIProvider(base_url=url, api_key="none"))


def check(model: Model, run: Run, client: Run) -> None:
    answers = [one for one in model.asked[-1]["messages"] if one["role"] == "tool"]
    test_openai.Loops().check([(one["tool_call_id"], one["content"]) for one in answers], run)
    catalogue = {tool["function"]["name"]: tool["function"] for tool in client.tools("openai", "model")}
    declared = {tool["function"]["name"]: tool["function"] for tool in model.asked[0]["tools"]}
    test_openai.Loops().assertEqual(list(declared), list(catalogue))
    for name, function in declared.items():
        test_openai.Loops().assertEqual(function["description"], catalogue[name]["description"])
        test_openai.Loops().assertEqual(set(function["parameters"]["properties"]), set(catalogue[name]["parameters"]["properties"]))


def failed(messages: list[Any]) -> list[bool]:
    return [message.status == "error" for message in messages if message.type == "tool"]


class Agents(unittest.TestCase):
    def test_an_agent_of_langchain_does_a_whole_task(self) -> None:
        run, client = agent(FILES)
        with Model(task(operator(), run.id, test_openai.chat_turn, test_openai.END_OF_CHAT)) as model:
            tools = workspaced.langchain.tools_for(client)
            done = create_agent(langchain_model(model.url), tools).invoke({"messages": [{"role": "user", "content": ASKED}]}, {"recursion_limit": 50})
        self.assertEqual(done["messages"][-1].content, "done")
        self.assertEqual([number for number, error in enumerate(failed(done["messages"])) if error], REFUSED)
        check(model, run, client)

    def test_an_agent_of_pydantic_ai_does_a_whole_task(self) -> None:
        run, client = agent(FILES)
        with Model(task(operator(), run.id, test_openai.chat_turn, test_openai.END_OF_CHAT)) as model:
            done = Agent(pydantic_model(model.url), tools=workspaced.pydantic_ai.tools_for(client)).run_sync(ASKED)
        self.assertEqual(done.output, "done")
        check(model, run, client)


class AgentsOfAsyncio(unittest.IsolatedAsyncioTestCase):
    async def test_async_agents_do_a_whole_task(self) -> None:
        run, client = agent(FILES)
        async with workspaced.aio.Client(URL, client.transport.token) as connection:
            with Model(task(operator(), run.id, test_openai.chat_turn, test_openai.END_OF_CHAT)) as model:
                tools = await workspaced.aio.langchain.tools_for(connection.run(run.id))
                await create_agent(langchain_model(model.url), tools).ainvoke({"messages": [{"role": "user", "content": ASKED}]}, {"recursion_limit": 50})
            check(model, run, client)
        run, client = agent(FILES)
        async with workspaced.aio.Client(URL, client.transport.token) as connection:
            with Model(task(operator(), run.id, test_openai.chat_turn, test_openai.END_OF_CHAT)) as model:
                tools_of_run = await workspaced.aio.pydantic_ai.tools_for(connection.run(run.id))
                await Agent(pydantic_model(model.url), tools=tools_of_run).run(ASKED)
            check(model, run, client)


if __name__ == "__main__":
    unittest.main()
