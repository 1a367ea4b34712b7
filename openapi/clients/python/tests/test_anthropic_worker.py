"""The SDK's environment worker serves a session of managed agents by a run."""

from __future__ import annotations

import json
import threading
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from anthropic import AsyncAnthropic
from anthropic.lib.environments import EnvironmentWorker

import workspaced.aio
from scripted import FILES
from server import URL, agent
from workspaced.aio.anthropic import toolset_for

EDIT = {"file_path": "/workspace/calc.py", "old_string": "a - b", "new_string": "a + b"}
# The calls of the session, and what it is answered.
TASK: list[tuple[str, dict[str, Any], str, bool]] = [
    ("glob", {"pattern": "*.py"}, "calc.py", False),
    ("write", {"file_path": "/workspace/calc.py", "content": "x"}, "File has not been read yet", True),
    ("read", {"file_path": "/workspace/calc.py"}, "    return a - b\n", False),
    ("edit", {**EDIT, "old_string": "a -b"}, "edit: old_string not found in /workspace/calc.py", True),
    ("edit", EDIT, "edited /workspace/calc.py (1 replacement(s))", False),
    ("write", {"file_path": "/workspace/.env", "content": "A=1\n"}, "POLICY_DENIED_SECRET", True),
    ("write", {"file_path": "/workspace/notes.md", "content": "# Notes\n"}, "wrote /workspace/notes.md", False),
    ("grep", {"pattern": "a \\+ b"}, "calc.py:2:    return a + b", False),
    ("read", {"file_path": "/etc/passwd"}, "Path must start with /workspace", True),
]
NOW = "2026-01-01T00:00:00Z"


class Session:
    """The part of the provider's API that the worker calls: one session, whose agent makes one call after the other."""

    def __init__(self) -> None:
        self.results, self.stopped, self.left = list[dict[str, Any]](), threading.Event(), threading.Semaphore(0)
        session = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.split("?")[0].endswith("/events/stream"):
                    self.send_response(200)
                    self.send_header("Content-Type", "text/event-stream")
                    self.end_headers()
                    for number, (name, asked, _, _) in enumerate(TASK):
                        self.event({"type": "agent.tool_use", "id": f"tu_{number}", "name": name, "input": asked, "processed_at": NOW})
                        session.left.acquire(timeout=30)
                    self.event({"type": "session.status_terminated", "id": "end", "processed_at": NOW})
                elif self.path.split("?")[0].endswith("/events"):
                    self.answer({"data": [], "next_page": None})
                else:
                    self.answer({"id": "sesn_1", "type": "session", "status": "running", "resources": [], "agent": {"skills": []}})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or b"{}")
                if self.path.split("?")[0].endswith("/events"):
                    session.results += body["events"]
                    session.left.release()
                    self.answer({"data": []})
                elif "/heartbeat" in self.path:
                    self.answer({"last_heartbeat": NOW, "lease_extended": True, "state": "active", "ttl_seconds": 60, "type": "work_heartbeat"})
                else:
                    session.stopped.set()
                    self.answer({"id": "work_1", "type": "work", "state": "stopped"})

            def event(self, event: dict[str, Any]) -> None:
                self.wfile.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
                self.wfile.flush()

            def answer(self, body: dict[str, Any]) -> None:
                content = json.dumps(body).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                """Prints nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"


class Workers(unittest.IsolatedAsyncioTestCase):
    async def test_an_environment_worker_serves_a_session_by_a_run(self) -> None:
        run, client = agent(FILES)
        session = Session()
        self.addCleanup(session.server.server_close)
        self.addCleanup(session.server.shutdown)
        async with workspaced.aio.Client(URL, client.transport.token) as connection:
            tools = await toolset_for(connection.run(run.id))
            # Without a runner there is no shell.
            self.assertEqual([tool.name for tool in tools], ["read", "write", "edit", "glob", "grep"])
            async with AsyncAnthropic(api_key="none", base_url=session.url) as sdk:
                worker = EnvironmentWorker(sdk, environment_key="none", tools=tools)
                await worker.handle_item(work_id="work_1", environment_id="env_1", session_id="sesn_1")
        self.assertTrue(session.stopped.is_set())
        for number, ((name, asked, expected, is_error), result) in enumerate(zip(TASK, session.results, strict=True)):
            self.assertEqual((result["type"], result["tool_use_id"]), ("user.tool_result", f"tu_{number}"))
            self.assertEqual(bool(result.get("is_error")), is_error, f"{name} {asked} {result}")
            self.assertIn(expected, result["content"][0]["text"], f"{name} {asked}")
        self.assertEqual(run.read_bytes("calc.py"), b"def add(a, b):\n    return a + b\n")
        made = [(record["tool"], record.get("format")) for record in run.audit() if record["mutates"] and record["by"] == "agent"]
        self.assertIn(("edit_file", "anthropic-toolset"), made)


if __name__ == "__main__":
    unittest.main()
