"""The Agents SDK's own runner changes the files of a run by its `apply_patch`."""

from __future__ import annotations

import unittest
from typing import Any

from agents import Agent, ApplyPatchTool, OpenAIResponsesModel, RunConfig, Runner
from openai import AsyncOpenAI

import workspaced.aio
import workspaced.aio.openai_agents
import workspaced.openai_agents
from scripted import FILES, Model
from server import URL, agent

UPDATE = {"type": "update_file", "path": "calc.py"}
# Operations, and how the result that the model reads begins.
TASK: list[tuple[dict[str, Any], str, str]] = [
    ({**UPDATE, "diff": "@@\n-    return a * b\n+    return a + b\n"}, "failed", "apply_patch verification failed: Failed to find"),
    ({**UPDATE, "diff": "@@\n-    return a - b\n+    return a + b\n"}, "completed", "Success. Updated the following files:\nM calc.py\n"),
    ({"type": "create_file", "path": ".env", "diff": "+A=1\n"}, "failed", "POLICY_DENIED_SECRET: "),
    ({"type": "create_file", "path": "notes.md", "diff": "+# Notes\n"}, "completed", "Success. Updated the following files:\nA notes.md\n"),
    ({"type": "delete_file", "path": "notes.md"}, "completed", "Success. Updated the following files:\nD notes.md\n"),
]


def response(output: dict[str, Any]) -> dict[str, Any]:
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2, "input_tokens_details": {"cached_tokens": 0},
             "output_tokens_details": {"reasoning_tokens": 0}}  # fmt: skip
    return {"id": "resp_1", "object": "response", "created_at": 0, "model": "scripted", "status": "completed", "output": [output],
            "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "usage": usage}  # fmt: skip


def turn(number: int, operation: dict[str, Any]) -> dict[str, Any]:
    return response({"type": "apply_patch_call", "id": f"apc_{number}", "call_id": f"call_{number}", "status": "completed", "operation": operation})


END = response({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
                "content": [{"type": "output_text", "text": "done", "annotations": []}]})  # fmt: skip


class Editors(unittest.IsolatedAsyncioTestCase):
    async def drive(self, editor: Any) -> list[dict[str, Any]]:
        with Model([*(turn(number, operation) for number, (operation, _, _) in enumerate(TASK)), END]) as model:
            sdk = AsyncOpenAI(base_url=model.url, api_key="none")
            worker = Agent(name="worker", model=OpenAIResponsesModel("scripted", sdk), tools=[ApplyPatchTool(editor=editor)])
            done = await Runner.run(worker, "Correct add.", max_turns=20, run_config=RunConfig(tracing_disabled=True))
            self.assertEqual(done.final_output, "done")
        self.assertEqual(model.asked[0]["tools"], [{"type": "apply_patch"}])
        return [item for item in model.asked[-1]["input"] if item.get("type") == "apply_patch_call_output"]

    async def test_the_sdks_runner_edits_a_run(self) -> None:
        for is_async in (True, False):
            run, client = agent(FILES)
            async with workspaced.aio.Client(URL, client.transport.token) as connection:
                editor: Any = workspaced.openai_agents.Editor(client, reason="the task asks for it")
                if is_async:
                    editor = workspaced.aio.openai_agents.Editor(connection.run(run.id), reason="the task asks for it")
                results = await self.drive(editor)
            for (operation, status, expected), result in zip(TASK, results, strict=True):
                self.assertEqual(result["status"], status, operation)
                self.assertTrue(result["output"].startswith(expected), result)
            self.assertEqual(run.read_bytes("calc.py"), b"def add(a, b):\n    return a + b\n")
            changes = [record for record in run.audit() if record["mutates"] and record["by"] == "agent"]
            self.assertEqual({record["reason"] for record in changes}, {"the task asks for it"})


if __name__ == "__main__":
    unittest.main()
