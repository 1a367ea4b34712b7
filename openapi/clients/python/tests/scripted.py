"""A scripted model on loopback: an HTTP server that answers as a provider's API would, and keeps what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

from workspaced import Client

FILES = {"calc.py": "def add(a, b):\n    return a - b\n"}
WRONG = {"path": "calc.py", "oldString": "    return a -b\n", "newString": "    return a + b\n", "reason": "add, as the test expects"}
RIGHT = {**WRONG, "oldString": "    return a - b\n"}
WHY = {"reason": "the task asks for it"}

# A whole task, and how the text that the model reads after each call begins.
TASK: list[tuple[str, dict[str, Any], str]] = [
    ("read_file", {"path": "calc.py"}, "1  def add(a, b):\n2      return a - b\n"),
    ("edit_file", WRONG, "EDIT_NOT_FOUND: "),
    ("edit_file", RIGHT, "edited calc.py"),
    ("write_file", {"path": ".env", "content": "A=1\n", **WHY}, "POLICY_DENIED_SECRET: `.env` is a secret file"),
    ("write_file", {"path": "Cargo.lock", "content": "version = 4\n", **WHY}, "APPROVAL_REQUIRED: "),
    ("read_file", {"path": "Cargo.lock"}, "approved: Cargo.lock (write_file), applied\n1  version = 4\n"),
    ("write_file", {"path": "notes.md", "content": "# Notes\n", **WHY}, "created notes.md"),
    ("revert_calls", {"last": 1, **WHY}, "undid 1 call"),
]
# Of these calls the answer is a refusal.
REFUSED = [1, 3, 4]
# Before the model asks for this call, a person has approved the one before it.
APPROVED = 5

Reply = Mapping[str, Any] | Callable[[], Mapping[str, Any]]


class Model:
    """A server that gives one reply after the other. `asked` has the bodies of the requests, `paths` their paths."""

    def __init__(self, replies: Sequence[Reply]) -> None:
        self.asked, self.paths = list[dict[str, Any]](), list[str]()
        rest = iter(replies)

        class Handler(BaseHTTPRequestHandler):
            model = self

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self.model.asked.append(json.loads(body))
                self.model.paths.append(self.path)
                reply = next(rest)
                answer = json.dumps(reply() if callable(reply) else reply).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: Any) -> None:
                """Prints nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> Model:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.server.shutdown()
        self.server.server_close()


def task(operator: Client, run_id: str, turn: Callable[[int, str, dict[str, Any]], Mapping[str, Any]], end: Mapping[str, Any]) -> list[Reply]:
    """The replies of a model that does the task: `turn` makes the reply that asks for a call."""

    def approved(reply: Mapping[str, Any]) -> Reply:
        def approve() -> Mapping[str, Any]:
            [waiting] = operator.approvals(run=run_id)
            operator.approve(waiting["approvalId"], on_behalf_of="ada")
            return reply

        return approve

    turns = [turn(number, name, arguments) for number, (name, arguments, _) in enumerate(TASK)]
    return [*turns[:APPROVED], approved(turns[APPROVED]), *turns[APPROVED + 1 :], end]
