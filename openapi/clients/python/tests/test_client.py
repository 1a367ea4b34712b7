"""The client against a real server."""

from __future__ import annotations

import hashlib
import inspect
import io
import os
import subprocess
import sys
import threading
import time
import unittest
from itertools import islice
from pathlib import Path
from typing import Any

import httpx

from server import OPERATOR, URL, agent, operator, requests
from workspaced import ApprovalRequired, Client, NoAnswer, ResumePoint, WorkspacedError
from workspaced.run import Run

PACKAGE = Path(__file__).resolve().parent.parent


class Calls(unittest.TestCase):
    def test_tools_answer_objects_and_texts(self) -> None:
        run, client = agent({"src/a.py": "def add(a, b):\n\treturn a - b\n"})
        read = client.call("read_file", path="src/a.py")
        self.assertEqual((read["totalLines"], read["lineEnding"]), (2, "lf"))
        text = client.text("read_file", path="src/a.py")
        self.assertEqual((text.text, text.ok), ("1  def add(a, b):\n2  \treturn a - b\n", True))
        self.assertEqual(text.sha256, read["sha256"])
        edited = client.call(
            "edit_file", path="src/a.py", oldString="a - b", newString="a + b", reason="adds", expectedSha256=read["sha256"]
        )
        self.assertEqual((edited["replacements"], edited["ok"]), (1, True))
        moved = client.call_tool("move_file", {"from": "src/a.py", "to": "b.py", "reason": "moves", "expectedSha256": "seen"})
        self.assertEqual(moved["to"], "b.py")
        batch = client.batch([{"tool": "read_file", "input": {"path": "b.py"}}, {"tool": "list_dir"}])
        self.assertEqual([one["status"] for one in batch["results"]], [200, 200])
        self.assertIn("+\treturn a + b", run.patch())
        self.assertEqual(client.tool_call(moved["toolCallId"])["outcome"], "ok")

    def test_a_refusal_has_code_detail_hint_and_request_id(self) -> None:
        _, client = agent()
        with self.assertRaises(WorkspacedError) as raised:
            client.call("read_file", path="none.txt")
        error = raised.exception
        self.assertEqual((error.code, error.status, error.problem["path"]), ("NOT_FOUND", 404, "none.txt"))
        self.assertTrue(error.detail and error.hint and error.request_id)
        text = client.text("read_file", path="none.txt")
        self.assertFalse(text.ok)
        self.assertTrue(text.text.startswith("NOT_FOUND: `none.txt` does not exist\n"), text)
        stranger = Client(URL, "none").run(client.id)
        for call in (lambda: stranger.text("list_dir"), stranger.info):
            with self.assertRaises(WorkspacedError) as raised:
                call()
            self.assertEqual(raised.exception.code, "UNAUTHENTICATED")

    def test_every_tool_has_a_method(self) -> None:
        _, client = agent({"a.txt": "one\n"})
        for tool in client.tools():
            method = getattr(client.tool, tool["name"])
            members = {parameter.removesuffix("_") for parameter in inspect.signature(method).parameters}
            self.assertEqual(members, set(tool["inputSchema"]["properties"]), tool["name"])
        self.assertEqual(client.tool.read_file(path="a.txt", format="raw")["content"], "one\n")
        moved = client.tool.move_file(from_="a.txt", to="b.txt", reason="moves", expectedSha256="seen")
        self.assertEqual(moved["to"], "b.txt")

    def test_a_failure_of_the_connection_is_an_error_of_the_package(self) -> None:
        for url, code in (("http://127.0.0.1:1", "NO_ANSWER"), ("http://[bad", "NO_ANSWER"), ("ftp://x", "NO_ANSWER"), ("", "NO_ANSWER")):
            with self.assertRaises(WorkspacedError) as raised:
                Client(url, "t", retries=0).limits()
            error = raised.exception
            self.assertEqual((error.code, error.status), (code, 0), url)
            self.assertTrue(error.detail and error.__cause__, url)
            self.assertIn(f"is '{url}' its address? The examples take it from WORKSPACED_URL", str(error))
        run, client = agent({"a.txt": "one\n"})
        with self.assertRaises(NoAnswer):
            with client.download("a.txt") as chunks:
                raise httpx.ReadError("the connection is lost while the body is read")

    def test_an_adapter_without_its_framework_names_the_extra(self) -> None:
        adapters = [("anthropic", "anthropic", "anthropic"), ("openai", "openai", "openai"),
                    ("langchain", "langchain_core", "langchain"), ("pydantic_ai", "pydantic_ai", "pydantic-ai"),
                    ("openai_agents", "agents", "openai-agents")]  # fmt: skip
        names = [(f"workspaced.{package}{adapter}", framework, extra) for adapter, framework, extra in adapters for package in ("", "aio.")]
        names.append(("workspaced.aio.openai_sandbox", "agents", "openai-agents"))
        program = f"""
import importlib, sys
for adapter, framework, extra in {names}:
    sys.modules[framework] = None
    try:
        importlib.import_module(adapter)
    except ImportError as missing:
        assert missing.name.split(".")[0] == framework, (adapter, missing.name)
        assert f'pip install "workspaced-client[{{extra}}]"' in str(missing), (adapter, missing)
    else:
        sys.exit(f"{{adapter}} was imported")
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_a_command_without_a_runner_is_refused_at_once(self) -> None:
        run, client = agent()
        began = time.monotonic()
        with self.assertRaises(WorkspacedError) as raised:
            client.tool.run_command(command="make")
        self.assertEqual((raised.exception.code, raised.exception.is_recorded), ("UNAVAILABLE", True))
        answers = [
            client.text("run_command", command="make"),
            client.text_in_format("anthropic-toolset", "bash", {"command": "make"}),
            client.text_in_format("codex", "exec_command", {"cmd": "make"}),
            client.text_in_format("gemini", "run_shell_command", {"command": "make"}),
        ]
        for answer in answers:
            self.assertEqual((answer.ok, answer.status), (False, 503))
            self.assertTrue(answer.text.startswith("UNAVAILABLE: no runner is attached to the run"), answer)
        # A failure of the service itself is asked for again, and no answer for a model.
        busy = operator([503] * 3)
        busy.transport.retries = 2
        with self.assertRaises(WorkspacedError):
            busy.run(run.id).text("run_command", command="make")
        self.assertEqual(len(requests(busy)), 3)
        self.assertEqual(sum(record["tool"] == "run_command" for record in run.audit()), 5)
        self.assertLess(time.monotonic() - began, 4)

    def test_a_caller_waits_for_the_decision(self) -> None:
        run, client = agent()
        with self.assertRaises(ApprovalRequired) as raised:
            client.tool.write_file(path="Cargo.lock", content="x\n", reason="locks")
        waiting = raised.exception
        with self.assertRaises(ApprovalRequired) as again:
            client.wait_for_approval(waiting, timeout=0)
        self.assertEqual(again.exception.approval_id, waiting.approval_id)
        later = threading.Timer(0.2, lambda: operator().approve(waiting.approval_id or "", on_behalf_of="ada"))
        later.start()
        decided = client.wait_for_approval(waiting, timeout=60)
        self.assertEqual(decided["approval"]["state"], "approved")  # type: ignore[index]
        self.assertEqual(client.tool.stat_path(path="Cargo.lock")["exists"], True)

    def test_approvals(self) -> None:
        run, client = agent()
        operators = operator()
        for decide, state in ((operators.approve, "approved"), (operators.deny, "denied")):
            path = f"{state}/Cargo.lock"
            with self.assertRaises(ApprovalRequired) as raised:
                client.call("write_file", path=path, content="x\n", reason="locks")
            approval = raised.exception.approval_id
            assert approval is not None and raised.exception.call_id is not None
            pending = list(operators.approvals(run=run.id, state="pending"))
            self.assertEqual([one["approvalId"] for one in pending], [approval])
            self.assertIn("+x", operators.approval(approval).get("diff") or "")
            self.assertEqual(decide(approval, "looked at", "a person")["state"], state)
            self.assertEqual(client.tool_call(raised.exception.call_id, 1)["approval"]["state"], state)  # type: ignore[index]
            self.assertEqual(client.call("stat_path", path=path)["exists"], state == "approved")
        answer = client.text("write_file", path="Cargo.lock", content="x\n", reason="locks")
        self.assertEqual((answer.ok, answer.status), (False, 202))

    def test_runs_and_tokens(self) -> None:
        client = operator()
        run, token = client.create_run(labels={"test": "packages"}, policy={"profile": "READ_ONLY"}, permissions=["file:list"])
        self.assertEqual(token["permissions"], ["file:list"])
        reader = client.agent(run.id, token["token"])
        self.assertEqual([tool["name"] for tool in reader.tools()][:1], ["list_dir"])
        with self.assertRaises(WorkspacedError) as raised:
            reader.call("read_file", path="a")
        self.assertEqual(raised.exception.code, "FORBIDDEN")
        run.revoke_token(token["tokenId"])
        with self.assertRaises(WorkspacedError) as raised:
            reader.info()
        self.assertEqual(raised.exception.code, "UNAUTHENTICATED")
        self.assertIn(run.id, [one["runId"] for one in client.runs(limit=1)])
        self.assertEqual(run.info()["policy"]["profile"], "READ_ONLY")
        self.assertEqual(run.explain_policy({"path": "a.txt"})["paths"][0]["read"]["decision"], "ALLOW")
        self.assertEqual((run.close()["state"], run.delete()["state"]), ("closed", "deleted"))
        created = client.create_operator(f"name-{os.getpid()}-{run.id[-6:]}", ["audit"])
        self.assertIn(created["name"], [one["name"] for one in client.operators()])
        rotated = client.rotate_operator_token(created["name"], overlap_seconds=0)
        with self.assertRaises(WorkspacedError) as raised:
            list(Client(URL, created["token"]).audit(limit=1, tool="none"))
        self.assertEqual(raised.exception.code, "UNAUTHENTICATED")
        self.assertEqual(list(Client(URL, rotated["token"]).audit(limit=1, tool="none")), [])
        client.revoke_operator(created["name"])
        self.assertGreater(client.limits()["requests"]["pageMax"], 0)

    @unittest.skipUnless("WEBHOOK" in os.environ, "the server has no webhook that the tests know")
    def test_webhooks_and_their_deliveries(self) -> None:
        client, name = operator(), os.environ["WEBHOOK"]
        self.assertEqual([(one["name"], one["state"]) for one in client.webhooks()], [(name, "active")])
        run, _ = agent()
        run.close()
        [closed] = [one for one in client.deliveries(name, order="desc") if one.get("runId") == run.id]
        self.assertEqual(closed["type"], "run.closed")
        again = client.redeliver(name, closed["id"])
        self.assertEqual((again["id"], again["state"], again["attempts"]), (closed["id"], "pending", 0))
        with self.assertRaises(WorkspacedError) as raised:
            client.redeliver(name, "msg_none")
        self.assertEqual(raised.exception.code, "NOT_FOUND")

    def test_a_fork_is_compared_and_merged(self) -> None:
        run, _ = agent({"a.txt": "one\n"})
        client = operator()
        fork, token = client.fork(run, labels={"attempt": "a"})
        self.assertEqual((fork.read_bytes("a.txt"), fork.info().get("labels")), (b"one\n", {"attempt": "a"}))
        at_base, _ = client.fork(run.id, 0)
        with self.assertRaises(WorkspacedError) as raised:
            at_base.read_bytes("a.txt")
        self.assertEqual(raised.exception.code, "NOT_FOUND")
        client.agent(fork.id, token["token"]).call("edit_file", path="a.txt", oldString="one", newString="two", reason="counts")
        compared = run.compare(fork)
        self.assertEqual([(file["path"], file["status"]) for file in compared["files"]], [("a.txt", "different")])
        self.assertEqual(run.merge(fork, "looks", dry_run=True)["applied"], ["a.txt"])
        self.assertEqual(run.read_bytes("a.txt"), b"one\n")
        self.assertEqual(run.merge(fork.id, "its tests pass")["applied"], ["a.txt"])
        self.assertEqual(run.read_bytes("a.txt"), b"two\n")
        self.assertEqual(run.compare(fork.id, limit=1)["files"][0]["status"], "same")
        fork.create_file("b.txt", b"fork\n", "of the fork")
        run.create_file("b.txt", b"run\n", "of the run")
        with self.assertRaises(WorkspacedError) as raised:
            run.merge(fork, "conflicts")
        self.assertEqual(raised.exception.code, "WRITE_CONFLICT")

    def test_an_archive_is_a_source_and_a_result(self) -> None:
        run, _ = agent({"a.txt": "content\n"})
        with run.archive() as chunks:
            archive = b"".join(chunks)
        copy, token = operator().create_run({"type": "archive"})
        copy.upload_archive(io.BytesIO(archive))
        self.assertEqual(operator().agent(copy.id, token["token"]).read_bytes("a.txt"), b"content\n")
        with self.assertRaises(WorkspacedError) as raised, run.bundle(message="a change"):
            pass
        self.assertIn("does not come from", str(raised.exception))
        if "REPO" in os.environ:
            of_git, _ = operator().create_run({"type": "git", "url": os.environ["REPO"]})
            with of_git.bundle(message="a change") as chunks:
                self.assertTrue(next(chunks).startswith(b"# v"))


class Files(unittest.TestCase):
    def test_files_are_streams(self) -> None:
        run, client = agent()
        content = bytes(range(256)) * 4096
        path = "a folder/a#file?.bin"
        stored = client.create_file(path, io.BytesIO(content), "stores – bytes")
        self.assertEqual((stored["created"], stored["sizeBytes"]), (True, len(content)))
        with client.download(path, start=len(content) - 3) as chunks:
            self.assertEqual(b"".join(chunks), content[-3:])
        digest = hashlib.sha256(content).hexdigest()
        with self.assertRaises(WorkspacedError) as raised:
            client.create_file(path, b"again", "exists")
        self.assertEqual((raised.exception.code, raised.exception.status), ("ALREADY_EXISTS", 412))
        client.replace_file(path, iter([b"one", b"two"]), "replaces", digest)
        self.assertEqual(client.read_bytes(path), b"onetwo")
        client.delete_file(path, "done with it", hashlib.sha256(b"onetwo").hexdigest())
        reasons = [record.get("reason") for record in run.audit() if record["outcome"] == "ok" and record["mutates"]]
        self.assertEqual(reasons, ["stores – bytes", "replaces", "done with it"])

    def test_a_path_that_goes_up_is_refused_by_the_service(self) -> None:
        _, client = agent({"x.txt": "x\n"})
        for path in ("a/../../x.txt", "..", "../x.txt", "../tools"):
            with self.assertRaises(WorkspacedError) as raised:
                client.read_bytes(path)
            self.assertEqual(raised.exception.code, "PATH_REJECTED", path)
            with self.assertRaises(WorkspacedError) as raised:
                client.create_file(path, b"y", "goes up")
            self.assertEqual(raised.exception.code, "PATH_REJECTED", path)
        for path in ("./x.txt", "a/../x.txt"):
            self.assertEqual(client.read_bytes(path), b"x\n")


class Retries(unittest.TestCase):
    def test_a_lost_answer_is_asked_for_again_under_the_same_ids(self) -> None:
        client = operator([None, 503])
        run, token = client.create_run()
        keys = {request.headers["idempotency-key"] for request in requests(client)}
        self.assertEqual((len(requests(client)), len(keys)), (3, 1))

        client = operator([None, 429, None])
        agent = client.agent(run.id, token["token"])
        self.assertTrue(agent.call("write_file", path="a.txt", content="a\n", reason="creates")["created"])
        client = operator([None, 200, None, 200])
        agent = client.agent(run.id, token["token"])
        self.assertTrue(agent.create_file("b.bin", io.BytesIO(b"b" * 100_000), "stores")["created"])
        agent.replace_file("b.bin", b"c", "replaces", hashlib.sha256(b"b" * 100_000).hexdigest())
        client = operator([None])
        client.run(run.id).record_event("message", "sent once")
        records = [record["tool"] for record in run.audit() if record["mutates"] or record["tool"].startswith("event.")]
        self.assertEqual(len(records), 4, records)

    def test_what_cannot_be_repeated_is_not(self) -> None:
        run, _ = agent()
        client = operator([None])
        with self.assertRaises(NoAnswer):
            client.run(run.id).create_file("a.bin", iter([b"a"]), "chunks are gone once they are sent")
        self.assertEqual(len(requests(client)), 1)
        client = operator([503] * 9)
        client.transport.retries = 2
        with self.assertRaises(WorkspacedError) as raised:
            client.run(run.id).info()
        self.assertEqual((raised.exception.code, len(requests(client))), ("UNAVAILABLE", 3))
        client = operator()
        with self.assertRaises(WorkspacedError):
            client.run("none").info()
        self.assertEqual(len(requests(client)), 1, "a refusal is not asked for again")


class Records(unittest.TestCase):
    def test_pages_events_report_and_verification(self) -> None:
        run, client = agent({"a.txt": "a\n"})
        for number in range(5):
            client.call("read_file", path="a.txt", stepId=f"step-{number}")
        records = list(run.audit(limit=2))
        self.assertEqual([record["seq"] for record in records], list(range(1, len(records) + 1)))
        runner = operator().agent(run.id, run.issue_token(["event:append"])["token"])
        runner.record_event("prompt", "asks for a change", data={"model": "scripted"})
        runner.record_command(["make", "test"], 2, output=b"1 of 12 failed\n", kind="test", duration_micros=5)
        key = b"-----BEGIN " + b"RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\n-----END " + b"RSA PRIVATE KEY-----\n"
        runner.record_command(["cat", "key"], 0, output=key)
        events = [record for record in run.audit() if record["tool"].startswith("event.")]
        self.assertEqual([event["tool"] for event in events], ["event.prompt", "event.test", "event.command"])
        data: Any = [event["input"]["data"] for event in events if event.get("input")]  # type: ignore[index]
        self.assertEqual((data[1]["exitCode"], data[1]["command"]), (2, ["make", "test"]))
        self.assertEqual(run.artifact(data[1]["outputSha256"]), b"1 of 12 failed\n")
        self.assertEqual(data[2]["outputRefused"], "POLICY_DENIED_SECRET")
        self.assertEqual(run.report()["counts"]["events"], len(events) + 1)
        self.assertIn("ended with 2", run.report_markdown())
        self.assertTrue(run.verify()["intact"])

    def test_a_stream_is_followed_across_lost_connections(self) -> None:
        run, client = agent()
        resume = ResumePoint()
        for number in range(3):
            client.call("write_file", path=f"{number}.txt", content="x\n", reason="creates")
        follower = operator().follow(run=run.id, since="2020-01-01T00:00:00Z", resume=resume)
        first = [event.data["seq"] for event in islice(follower, 2)]
        follower.close()  # type: ignore[attr-defined]
        again = operator([None, 503]).follow(run=run.id, resume=resume)
        rest = [event.data["seq"] for event in islice(again, 2)]
        self.assertEqual(first + rest, [1, 2, 3, 4])
        late = threading.Timer(0.2, lambda: client.call("list_dir"))
        late.start()
        self.assertEqual(next(again).data["tool"], "list_dir")
        changes = [event.data["files"][0]["path"] for event in islice(client.follow(), 3)]
        self.assertEqual(changes, ["0.txt", "1.txt", "2.txt"])
        with self.assertRaises(NoAnswer) as raised:
            list(client.follow(timeout=0.2))
        self.assertEqual(raised.exception.code, "TIMEOUT")


class Examples(unittest.TestCase):
    def test_a_shell_records_its_commands(self) -> None:
        run, _ = agent()
        token = run.issue_token(["event:append"])["token"]
        environment = {**os.environ, "PYTHONPATH": str(PACKAGE / "src"), "WORKSPACED_URL": URL, "RUN": run.id, "TOKEN": token}
        for flags, code in (([], 0), (["--test"], 3)):
            program = [sys.executable, "-B", str(PACKAGE / "examples/recording_shell.py"), *flags]
            done = subprocess.run([*program, "-c", f"echo $RUN-; exit {code}"], env=environment, capture_output=True)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (code, b"-\n", b""))
        events = [record for record in run.audit() if record["tool"].startswith("event.")]
        self.assertEqual([event["tool"] for event in events], ["event.command", "event.test"])

    def test_a_model_fixes_a_failing_test(self) -> None:
        if "REPO" not in os.environ:
            self.skipTest("REPO names no repository under an import root of the server")
        environment = {**os.environ, "PYTHONPATH": str(PACKAGE / "src"), "WORKSPACED_URL": URL, "OPERATOR": OPERATOR}
        for name in ("fix_test_functions.py", "fix_test_mcp.py"):
            program = PACKAGE / "examples" / name
            self.assertLess(len(program.read_text().splitlines()), 40)
            done = subprocess.run([sys.executable, "-B", program], env=environment, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
            self.assertIn("edit_file -> EDIT_NOT_FOUND: ", done.stdout)
            self.assertIn("edit_file -> edited calc.py, 1 × (+1 -1)\ntests: passed\n# Run ", done.stdout)
            run = Run(operator().transport, done.stdout.split("# Run `")[1].split("`")[0])
            events = [record["input"] for record in run.audit() if record["tool"] == "event.test"]
            codes = [event["data"]["exitCode"] for event in events if event]
            self.assertEqual(codes, [1, 0], "the tests failed, then passed")


if __name__ == "__main__":
    unittest.main()
