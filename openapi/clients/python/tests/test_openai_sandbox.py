"""An agent of the Agents SDK has a run as its sandbox: files in the run, commands by its runner."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tempfile
import time
import unittest
from pathlib import Path
from typing import Any

from agents import OpenAIResponsesModel, RunConfig, Runner
from agents.run_config import SandboxRunConfig
from agents.sandbox import SandboxAgent
from agents.sandbox.errors import WorkspaceArchiveWriteError
from openai import AsyncOpenAI

import workspaced.aio
from scripted import FILES, Model
from server import URL, agent
from test_openai_agents import END, response
from workspaced.aio.openai_sandbox import SandboxSession

UPDATE = "*** Begin Patch\n*** Update File: calc.py\n@@\n{}\n+    return a + b\n*** End Patch\n"
ADD = "*** Begin Patch\n*** Add File: {}\n+{}\n*** End Patch\n"
MOVE = "*** Begin Patch\n*** Update File: notes.md\n*** Move to: docs/notes.md\n@@\n-# Notes\n+# More\n*** End Patch\n"
# Calls, and what the model reads of each.
TASK: list[tuple[str, Any, str]] = [
    ("exec_command", {"cmd": "cat calc.py; pwd >&2", "workdir": "/workspace"}, "    return a - b\n"),
    ("apply_patch", UPDATE.format("-    return a * b"), "Invalid Context"),
    ("apply_patch", UPDATE.format("-    return a - b"), "Updated calc.py"),
    ("apply_patch", ADD.format(".env", "A=1"), "POLICY_DENIED_SECRET"),
    ("apply_patch", ADD.format("calc.py", "x"), "already exists"),
    ("apply_patch", ADD.format("notes.md", "# Notes"), "Created notes.md"),
    ("apply_patch", MOVE, "Moved notes.md to docs/notes.md"),
    ("exec_command", {"cmd": "cat notes.md; echo by-a-command >made.txt", "workdir": "docs"}, "# More"),
    ("exec_command", {"cmd": "echo K=1 >.env"}, "[denied, and not changed in the run: .env (kind:SECRET_LIKE)]"),
    ("exec_command", {"cmd": "python3 -c 'import calc; assert calc.add(2, 3) == 5'; exit 7"}, "Process exited with code 7"),
    ("exec_command", {"cmd": "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo line $i; done"}, "line 1\nline 2\n"),
    ("exec_command", {"cmd": "sleep 30", "yield_time_ms": 1000}, "timed out"),
    ("exec_command", {"cmd": "curl -H 'Authorization: Bearer abcdefghijklmnopqrstuvwxyz0123456789' localhost"}, "POLICY_DENIED_SECRET"),
    ("exec_command", {"cmd": "ls", "workdir": "../etc"}, "Invalid workdir"),
]  # fmt: skip


def turn(number: int, name: str, asked: Any) -> dict[str, Any]:
    if name == "apply_patch":
        return response({"type": "custom_tool_call", "id": f"ct_{number}", "call_id": f"call_{number}", "name": name, "input": asked})
    return response({"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "status": "completed", "name": name,
                     "arguments": json.dumps(asked)})  # fmt: skip


class Sandboxes(unittest.IsolatedAsyncioTestCase):
    async def test_an_agent_works_in_a_run_as_its_sandbox(self) -> None:
        run, client = agent(FILES)
        folder = self.enterContext(tempfile.TemporaryDirectory())
        token = run.issue_token(["file:list", "file:read", "event:append", "changeset:apply", "command:serve"])["token"]
        environment = {**os.environ, "WORKSPACED_URL": URL, "WORKSPACED_TOKEN": token, "XDG_STATE_HOME": f"{folder}/state"}
        runner = subprocess.Popen([os.environ["WORKSPACED_BIN"], "runner", run.id, "--dir", f"{folder}/files"], env=environment)
        self.addCleanup(runner.wait)
        self.addCleanup(runner.terminate)
        async with workspaced.aio.Client(URL, client.transport.token) as connection:
            session = SandboxSession(connection.run(run.id), reason="the task asks for it")
            with Model([*(turn(number, name, asked) for number, (name, asked, _) in enumerate(TASK)), END]) as model:
                sdk = AsyncOpenAI(base_url=model.url, api_key="none")
                worker = SandboxAgent(name="worker", model=OpenAIResponsesModel("scripted", sdk))
                config = RunConfig(tracing_disabled=True, sandbox=SandboxRunConfig(session=session))
                done = await Runner.run(worker, "Correct add.", max_turns=30, run_config=config)
            self.assertEqual(done.final_output, "done")
            self.assertEqual([entry.path for entry in await session.ls("docs")], ["/workspace/docs/made.txt", "/workspace/docs/notes.md"])
        results = [one["output"] for one in model.asked[-1]["input"] if str(one.get("type")).endswith("_call_output")]
        for (name, asked, expected), text in zip(TASK, results, strict=True):
            self.assertIn(expected, text, f"{name} {asked}")
        self.assertEqual(run.read_bytes("calc.py"), b"def add(a, b):\n    return a + b\n")
        self.assertEqual(run.read_bytes("docs/notes.md"), b"# More")
        self.assertEqual(run.read_bytes("docs/made.txt"), b"by-a-command\n")
        self.assertFalse(run.tool.stat_path(path="notes.md")["exists"])
        changes = [record for record in run.audit() if record["mutates"] and record["tool"] in ("upload_file", "delete_file")]
        self.assertEqual({record["reason"] for record in changes}, {"the task asks for it"})

    async def test_without_a_runner_the_model_is_told_at_once_and_goes_on(self) -> None:
        run, client = agent(FILES)
        calls = [("exec_command", {"cmd": "make test"}), ("apply_patch", UPDATE.format("-    return a - b"))]
        async with workspaced.aio.Client(URL, client.transport.token) as connection:
            session = SandboxSession(connection.run(run.id))
            began = time.monotonic()
            with Model([*(turn(number, name, asked) for number, (name, asked) in enumerate(calls)), END]) as model:
                sdk = AsyncOpenAI(base_url=model.url, api_key="none")
                worker = SandboxAgent(name="worker", model=OpenAIResponsesModel("scripted", sdk))
                config = RunConfig(tracing_disabled=True, sandbox=SandboxRunConfig(session=session))
                done = await Runner.run(worker, "Correct add.", max_turns=5, run_config=config)
            took = time.monotonic() - began
        self.assertEqual(done.final_output, "done")
        [refused, edited] = [one["output"] for one in model.asked[-1]["input"] if str(one.get("type")).endswith("_call_output")]
        self.assertIn("Process exited with code 126", refused)
        self.assertIn("UNAVAILABLE: no runner is attached to the run", refused)
        self.assertIn("Continue with the other tools. An operator attaches one with `workspaced runner`.", refused)
        self.assertIn("Updated calc.py", edited)
        self.assertEqual([record["tool"] for record in run.audit() if record["tool"] == "run_command"], ["run_command"])
        self.assertLess(took, 5)

    async def test_a_file_that_somebody_else_has_changed_is_not_replaced(self) -> None:
        run, client = agent(FILES)
        async with workspaced.aio.Client(URL, client.transport.token) as connection:
            session = SandboxSession(connection.run(run.id))
            (await session.read(Path("calc.py"))).close()
            run.tool.edit_file(path="calc.py", oldString="a - b", newString="a * b", reason="by somebody else")
            with self.assertRaisesRegex(WorkspaceArchiveWriteError, "WRITE_CONFLICT"):
                await session.write(Path("calc.py"), io.BytesIO(b"x"))
            session = SandboxSession(connection.run(run.id))
            archive = await session.persist_workspace()
            await session.rm("calc.py")
            await session.hydrate_workspace(archive)
        self.assertEqual(run.read_bytes("calc.py"), b"def add(a, b):\n    return a * b\n")


if __name__ == "__main__":
    unittest.main()
