"""Checkouts and commands against a real server: in a folder here, and behind a pipe."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import io
import json
import os
import signal
import subprocess
import tarfile
import tempfile
import threading
import time
import unittest
import unittest.mock
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from server import OPERATOR, URL, agent, operator
from workspaced import ApprovalRequired, FolderError, Run, WorkspacedError
from workspaced.aio import Client as AsyncClient
from workspaced.checkout import _Unpacker
from workspaced.values import Executed
from workspaced.shim import LayerCheck, SandboxAddress, ShimFolder

# A program that runs a command with nothing of this program's environment.
PIPE = "pipe:env -i PATH=/usr/bin:/bin"


def runner(files: dict[str, str]) -> tuple[Run, Run]:
    """Returns a run with these files, as its operator and with the token of a runner."""
    run, _ = agent(files)
    token = run.issue_token(["file:read", "event:append", "changeset:apply"])
    return run, operator().agent(run.id, token["token"])


def records(run: Run, tool: str) -> list[Any]:
    return [record for record in run.audit() if record["tool"] == tool]


def replace(run: Run, path: str, content: bytes) -> None:
    """Another's change."""
    run.replace_file(path, content, "changes", hashlib.sha256(run.read_bytes(path)).hexdigest())


def eventually(is_true: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < end, "it did not become true"
        time.sleep(0.02)


def is_alive(pid: str) -> bool:
    try:
        # A zombie has ended, whoever its parent is.
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        # The second is what a process that ends between the opening and the reading of its file gives.
        return False


class Folders(unittest.TestCase):
    def setUp(self) -> None:
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.dir = Path(temporary.name, "work")

    def read(self, path: str) -> str:
        return (self.dir / path).read_text()

    def pid(self) -> str:
        eventually(lambda: (self.dir / "pid").exists() and self.read("pid").endswith("\n"))
        return self.read("pid").strip()

    def begun(self, run: Callable[[float], Executed], file: Path, content: str) -> Executed:
        """A command that reaches its limit after it has written this: a busy machine may need longer to start it."""
        for limit in (0.5, 4, 32):
            done = run(limit)
            if file.exists() and file.read_text() == content:
                return done
        raise AssertionError("the command did not begin")

    def places(self) -> list[dict[str, Any]]:
        return [{"dir": self.dir}, {"dir": self.dir, "sandbox": PIPE}]

    def test_a_pull_brings_the_runs_files_and_a_push_what_changed(self) -> None:
        run, used = runner({"a.txt": "one\n", "d/b.txt": "b\n", "gone.txt": "x\n"})
        pulled = used.pull(self.dir)
        self.assertEqual((pulled.from_seq, pulled.written, self.read("d/b.txt")), (None, 3, "b\n"))
        self.assertEqual(used.pull(self.dir).written, 0)
        self.assertIsNone(used.push(self.dir, reason="nothing"))
        (self.dir / "a.txt").write_text("two\n")
        (self.dir / "gone.txt").unlink()
        (self.dir / "target").mkdir()
        (self.dir / "target/o").write_text("o\n")
        pushed = used.push(self.dir, reason="by hand", sandbox=PIPE)
        assert pushed is not None
        self.assertEqual((sorted(pushed.answer["applied"]), pushed.left, pushed.stale), (["a.txt", "gone.txt"], [], None))
        self.assertEqual(run.read_bytes("a.txt"), b"two\n")
        [record] = records(run, "apply_changeset")
        self.assertEqual((record["seq"], record["reason"]), (pushed.answer["seq"], "by hand"))

        # Nothing that was changed here is overwritten, and both changes are merged where they are apart.
        replace(run, "a.txt", b"others\n")
        (self.dir / "a.txt").write_text("mine\n")
        with self.assertRaises(FolderError) as raised:
            used.pull(self.dir)
        self.assertEqual((raised.exception.code, raised.exception.status), ("CONFLICT", 0))
        self.assertEqual([one["path"] for one in raised.exception.problem["conflicts"]], ["a.txt"])
        with self.assertRaises(WorkspacedError) as refused:
            used.push(self.dir, reason="by hand")
        self.assertEqual((refused.exception.code, self.read("a.txt")), ("WRITE_CONFLICT", "mine\n"))
        # A command runs all the same, and the version of the run can be taken.
        done = used.exec("cat a.txt; echo n > n.txt", dir=self.dir, push=True)
        assert done.pushed is not None
        self.assertEqual((done.output, [one["path"] for one in done.pulled.conflicts]), (b"mine\n", ["a.txt"]))
        self.assertEqual((done.pushed.answer["applied"], done.pushed.stale), (["n.txt"], None))
        with self.assertRaises(FolderError):
            used.pull(self.dir, theirs=["n.txt"])
        pulled = used.pull(self.dir, theirs=["a.txt"])
        self.assertEqual((pulled.conflicts, pulled.written, self.read("a.txt")), ([], 1, "others\n"))

    def test_several_commands_run_in_one_open_checkout(self) -> None:
        for place in self.places():
            run, used = runner({"a.txt": "one\n", "d/b.txt": "b\n"})
            got: dict[str, bytes] = {"stdout": b"", "stderr": b""}

            def take(stream: str, chunk: bytes) -> None:
                got[stream] += chunk

            with used.checkout(**place | {"dir": self.dir / run.id}) as checkout:
                script = "cat b.txt; echo $WORD >&2; echo two > ../a.txt; echo $PPID > ../pid; exit 3"
                done = checkout.exec(script, push=True, cwd="d", env={"WORD": "hello"}, on_output=take)
                self.assertEqual((got["stdout"], got["stderr"], done.exit_code), (b"b\n", b"hello\n", 3))
                self.assertEqual((done.pulled.written, done.refusal, done.ok), (2, None, False))
                assert done.pushed is not None
                self.assertEqual((run.read_bytes("a.txt"), done.pushed.answer.get("eventSeq")), (b"two\n", done.event_seq))
                self.assertEqual(run.artifact(done.output_sha256 or ""), done.output)
                # The next one sees what others have changed meanwhile, in the same shim.
                replace(run, "d/b.txt", b"changed\n")
                done = checkout.exec(["sh", "-c", "cat a.txt d/b.txt; test $(cat pid) = $PPID"], test=True)
                self.assertEqual((done.output, done.ok, done.pulled.written), (b"two\nchanged\n", True, 1))
            [event] = records(run, "event.test")
            self.assertEqual(event["seq"], done.event_seq)
            self.assertEqual(event["input"]["data"]["environment"]["kind"], "pipe" if "sandbox" in place else "local")

    def test_a_refused_set_is_part_of_what_came_of_the_command(self) -> None:
        run, used = runner({"a.txt": "one\n"})
        done = used.exec("echo A=1 > .env; echo two > a.txt", dir=self.dir, push=True)
        assert done.refusal is not None
        self.assertEqual((done.exit_code, done.refusal.code, done.ok), (0, "POLICY_DENIED_SECRET", False))
        self.assertEqual(run.read_bytes("a.txt"), b"one\n")
        done = used.exec("touch .env a.txt", dir=self.dir, push=True, leave_denied=True)
        assert done.pushed is not None
        self.assertEqual(([one["path"] for one in done.pushed.answer["left"]], run.read_bytes("a.txt")), ([".env"], b"two\n"))
        waits = used.exec("echo x > package-lock.json", dir=self.dir, push=True, leave_denied=True)
        self.assertIsInstance(waits.refusal, ApprovalRequired)

    def test_a_set_has_only_what_its_own_command_changed(self) -> None:
        for place in self.places():
            run, used = runner({"a.txt": "one\n"})
            with used.checkout(**place | {"dir": self.dir / run.id}) as checkout:
                checkout.exec("echo t > tested.txt; mkfifo pipe", test=True)
                checkout.exec("echo k > killed.txt; kill -9 $$", push=True)
                done = checkout.exec("echo two > a.txt", push=True)
                assert done.pushed is not None
                self.assertEqual((done.pushed.answer["applied"], done.changed.left), (["a.txt"], []))
                self.assertEqual([change["path"] for change in done.earlier], ["killed.txt", "tested.txt"])
                done = checkout.exec("echo more >> killed.txt", push=True)
                self.assertEqual((run.read_bytes("killed.txt"), done.earlier[0]["path"]), (b"k\nmore\n", "tested.txt"))
                pushed = checkout.push(reason="the rest")
                assert pushed is not None
                self.assertEqual(pushed.answer["applied"], ["tested.txt"])

    def test_a_file_that_no_set_takes_is_named(self) -> None:
        _, used = runner({"a.txt": "one\n"})
        done = used.exec("truncate -s 300M big.bin", dir=self.dir, push=True)
        self.assertEqual((done.pushed, done.changed.changes, done.changed.left_count), (None, [], 1))
        self.assertEqual(done.changed.left, [{"path": "big.bin", "why": "it has more than 268435456 bytes"}])

    def test_a_large_file_is_applied(self) -> None:
        run, used = runner({"a.txt": "one\n"})
        done = used.exec("head -c 20M /dev/urandom > big.bin; echo two > a.txt", dir=self.dir, push=True)
        assert done.pushed is not None
        self.assertEqual(done.pushed.answer["applied"], ["a.txt", "big.bin"])
        self.assertEqual(run.read_bytes("big.bin"), (Path(self.dir) / "big.bin").read_bytes())

    def test_an_output_with_a_credential_is_not_kept(self) -> None:
        run, used = runner({"a.txt": "one\n"})
        done = used.exec("echo token: ghp_abcdefghijklmnopqrstuvwxyz0123456789", dir=self.dir)
        [event] = records(run, "event.command")
        self.assertEqual((event["input"]["data"]["outputRefused"], done.refusal), ("POLICY_DENIED_SECRET", None))
        self.assertNotIn("output", event["input"]["data"])

    def test_a_fresh_folder_has_the_hash_of_its_tree_in_the_record_and_is_removed(self) -> None:
        run, used = runner({"a.txt": "one\n"})
        self.dir.mkdir()
        for sandbox in (None, PIPE):
            done = used.exec("pwd; ls", dir=self.dir, sandbox=sandbox, fresh=True, test=True)
            folder, *names = done.output.decode().split()
            self.assertEqual((names, Path(folder).exists()), (["a.txt"], False))
        events = [record["input"]["data"]["environment"] for record in records(run, "event.test")]
        self.assertEqual(len({event["treeSha256"] for event in events}), 1)
        self.assertEqual(len(events[0]["treeSha256"]), 64)

    def test_only_a_command_that_ran_on_the_tree_as_pulled_claims_its_hash(self) -> None:
        self.dir.mkdir()
        for sandbox in (None, PIPE):
            run, used = runner({"a.txt": "one\n"})
            with used.checkout(self.dir, sandbox=sandbox, fresh=True) as checkout:
                checkout.exec("echo changed > a.txt", test=True)
                # It runs on what the first one has left, and a pull does not change that.
                checkout.exec("cat a.txt", test=True)
                checkout.exec("true", push=True)
            events = records(run, "event.test") + records(run, "event.command")
            claims = ["treeSha256" in event["input"]["data"]["environment"] for event in sorted(events, key=lambda event: event["seq"])]
            self.assertEqual(claims, [True, False, False])

    def test_an_output_that_is_refused_keeps_nothing_else_out_of_the_record(self) -> None:
        run, used = runner({"a.txt": "one\n"})
        refusal = WorkspacedError(507, {"code": "QUOTA_EXCEEDED", "detail": "full"}, None)
        with unittest.mock.patch.object(Run, "upload_artifact", side_effect=refusal):
            pushed = used.exec("echo out; echo two > a.txt", dir=self.dir, push=True)
            done = used.exec("echo out", dir=self.dir)
        self.assertEqual((pushed.refusal, done.refusal, run.read_bytes("a.txt")), (None, None, b"two\n"))
        events = [record["input"]["data"] for record in records(run, "event.command")]
        self.assertEqual([(event["outputRefused"], "output" in event) for event in events], [("QUOTA_EXCEEDED", False)] * 2)

    def test_an_archive_that_is_damaged_changes_nothing(self) -> None:
        run, used = runner({"a.txt": "one\n"})
        for damaged in (b"garbage", gzip.compress(bytes(512))[:-9]):

            def unpack(self: _Unpacker, chunk: bytes, damaged: bytes = damaged) -> Iterator[bytes]:
                self._inflater = zlib.decompressobj(wbits=31)
                with unittest.mock.patch.object(_Unpacker, "unpack", real):
                    yield from self.unpack(damaged)

            real = _Unpacker.unpack
            with used.checkout(self.dir / damaged.hex()[:8], sandbox=PIPE) as checkout:
                with unittest.mock.patch.object(_Unpacker, "unpack", unpack), self.assertRaises(FolderError) as raised:
                    checkout.pull()
                self.assertEqual((raised.exception.code, raised.exception.detail[:15]), ("FOLDER", "the archive is "))
                self.assertEqual([name for name in os.listdir(checkout.folder) if name != ".workspaced"], [])
                # The checkout is of use, and at the record where it was.
                self.assertEqual((checkout.pull().from_seq, checkout.exec("cat a.txt").output), (None, b"one\n"))

    def test_a_sandbox_that_hangs_is_cut_off_and_its_command_recorded(self) -> None:
        # In a session of its own, the shim does not end with the program that holds the pipe.
        for sandbox in (PIPE, "pipe:setsid -w"):
            run, used = runner({"a.txt": "one\n"})
            # Nothing in a paused container reacts.
            hangs = "echo $PPID > pid; echo $$ > own; kill -STOP $PPID; exec sleep 60"
            with self.assertRaises(FolderError) as raised:
                used.exec(hangs, dir=self.dir / run.id, sandbox=sandbox, push=True, timeout=2)
            self.assertEqual(raised.exception.code, "LOST")
            [event] = records(run, "event.command")
            self.assertEqual((event["input"]["data"]["timedOut"], event["input"]["data"]["failure"]), (True, raised.exception.detail))
            self.assertGreater(event["durationMicros"], 10_000_000)
            for name in ("pid", "own"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int((self.dir / run.id / name).read_text()), signal.SIGKILL)

    def test_a_sandbox_that_does_not_answer_is_given_up(self) -> None:
        _, used = runner({"a.txt": "one\n"})
        self.dir.mkdir()
        program = self.dir / "silent"
        for script in ("exec sleep 60", "setsid sleep 60; exit"):
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)
            with unittest.mock.patch("workspaced.shim.START_LIMIT", 1.5), self.assertRaises(FolderError) as raised:
                used.exec(["true"], dir=self.dir, sandbox=f"pipe:{program}")
            self.assertEqual(raised.exception.code, "NOT_STARTED")
            self.assertIn("it did not answer within 1.5 s", raised.exception.detail)

    def test_a_time_limit_ends_a_command_and_nothing_of_it_is_applied(self) -> None:
        for place in self.places():
            run, used = runner({"a.txt": "one\n"})
            folder = self.dir / run.id
            with used.checkout(**place | {"dir": folder}) as checkout:
                # It ends well when it is asked to, which is no success.
                asked = "trap 'exit 0' TERM; echo two > a.txt; while :; do sleep 0.1; done"
                done = self.begun(lambda limit: checkout.exec(asked, push=True, timeout=limit), folder / "a.txt", "two\n")
                self.assertEqual((done.timed_out, done.ok, done.pushed, run.read_bytes("a.txt")), (True, False, None, b"one\n"))
                event = records(run, "event.command")[-1]
                self.assertTrue(event["input"]["data"]["timedOut"])
                # One that does not heed it is killed.
                deaf = "trap '' TERM; echo > deaf; sleep 600"
                done = self.begun(lambda limit: checkout.exec(deaf, timeout=limit), folder / "deaf", "\n")
                self.assertEqual((done.signal, done.timed_out), (signal.SIGKILL, True))
                self.assertEqual(checkout.exec("cat a.txt").output, b"two\n")

    def test_a_signal_reaches_the_command_and_an_exception_ends_it(self) -> None:
        for place in self.places():
            _, used = runner({"a.txt": "one\n"})
            (self.dir / "pid").unlink(missing_ok=True)
            with used.checkout(**place) as checkout:
                script = "trap 'exit 9' INT; echo $$ > pid; while :; do sleep 0.1; done"

                def interrupt() -> None:
                    self.pid()
                    checkout.signal(signal.SIGINT)

                sender = threading.Thread(target=interrupt)
                sender.start()
                self.assertEqual(checkout.exec(script).exit_code, 9)
                sender.join()

                def fail(stream: str, chunk: bytes) -> None:
                    raise KeyboardInterrupt

                with self.assertRaises(KeyboardInterrupt):
                    checkout.exec("trap '' INT TERM; echo $$ > pid; echo x; sleep 600", on_output=fail)
                eventually(lambda: not is_alive(self.pid()))
                with self.assertRaises(FolderError):
                    checkout.pull()
            subprocess.run(["rm", "-rf", self.dir], check=True)

    def test_a_changed_index_leads_nowhere_else(self) -> None:
        run, used = runner({"a.txt": "one\n"})
        other, _ = agent({"private.txt": "p\n"})
        change = f"sed -i s/{run.id}/{other.id}/ .workspaced/state; echo e > evil.txt"
        with used.checkout(self.dir, sandbox=PIPE) as checkout:
            # While it is open, what the command writes there is not read.
            done = checkout.exec(change, push=True)
            self.assertEqual((done.refusal, run.read_bytes("evil.txt")), (None, b"e\n"))
        subprocess.run(change, shell=True, cwd=self.dir, check=True)
        everywhere = operator().run(run.id)
        for call in (lambda: everywhere.pull(self.dir), lambda: everywhere.push(self.dir, reason="r")):
            with self.assertRaises(FolderError) as raised:
                call()
            self.assertEqual(raised.exception.code, "OTHER_RUN")
        self.assertFalse((self.dir / "private.txt").exists())

    def test_what_cannot_be_opened_says_so(self) -> None:
        _, used = runner({"a.txt": "one\n"})
        for options, code in (
            ({"dir": self.dir, "sandbox": "pipe:false"}, "NOT_STARTED"),
            ({"dir": self.dir, "sandbox": "pipe:/nowhere/program"}, "NOT_STARTED"),
            ({"dir": self.dir, "sandbox": "lxc:web"}, "ADDRESS"),
            ({"dir": self.dir, "shim": "/nowhere/shim"}, "NO_SHIM"),
            ({}, "ADDRESS"),
        ):
            with self.assertRaises(FolderError) as raised:
                used.exec(["true"], **options)  # type: ignore[arg-type]
            self.assertEqual(raised.exception.code, code, options)
        with self.assertRaises(FolderError) as raised:
            used.exec(["/nowhere/program"], dir=self.dir)
        self.assertEqual(raised.exception.code, "FOLDER")
        with self.assertRaises(FolderError) as raised:
            used.push(self.dir / "none", reason="r")
        self.assertEqual(raised.exception.code, "NO_CHECKOUT")

    def test_a_shell_on_the_other_side_of_ssh_reads_what_is_meant(self) -> None:
        _, used = runner({"a.txt": "one\n"})
        programs = self.dir / "bin"
        programs.mkdir(parents=True)
        # As sshd does: the words after the host are one text for a shell.
        (programs / "ssh").write_text('#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; exec sh -c "$*"\n')
        (programs / "ssh").chmod(0o755)
        with unittest.mock.patch.dict(os.environ, {"PATH": f"{programs}:{os.environ['PATH']}"}):
            done = used.exec("cat a.txt; pwd", sandbox=f"ssh:me@host:{self.dir}/it's here")
        self.assertEqual(done.output.decode(), f"one\n{self.dir}/it's here\n")

    def test_each_command_is_in_the_record_whatever_became_of_its_sandbox(self) -> None:
        for script, code in (
            ("echo two > a.txt; kill -9 $PPID; sleep 0.2", "LOST"),
            ("echo two > a.txt; rm -rf .workspaced", "FOLDER"),
            ("for n in $(seq 40); do truncate -s 8M zeros$n; done", "FOLDER"),
        ):
            run, used = runner({"a.txt": "one\n"})
            try:
                refusal = used.exec(script, dir=self.dir / run.id, sandbox=PIPE, push=True).refusal
            except FolderError as failure:
                refusal = failure
            [event] = records(run, "event.command")
            data = event["input"]["data"]
            self.assertEqual((refusal and refusal.code, data["failure"]), (code, refusal and refusal.detail), script)
            self.assertEqual((data.get("exitCode"), run.read_bytes("a.txt")), (None if code == "LOST" else 0, b"one\n"))

    def test_of_thousands_of_arguments_a_record_has_as_many_as_it_has_room_for(self) -> None:
        run, used = runner({"a.txt": "one\n"})
        names = [f"src/components/file-{number}.ts" for number in range(5000)]
        done = used.exec(["sh", "-c", "echo two > a.txt; echo $#", "sh", *names], dir=self.dir, push=True)
        self.assertEqual((done.output, done.refusal, run.read_bytes("a.txt")), (b"5000\n", None, b"two\n"))
        [event] = records(run, "event.command")
        self.assertIn("of 5004 arguments]", event["input"]["data"]["argv"][-1])


class HostileSandboxes(unittest.TestCase):
    def sandbox(self, *frames: tuple[int, bytes]) -> ShimFolder:
        """Opens a folder whose shim sends this, whatever it is asked."""
        sent = b"".join(bytes([kind]) + len(payload).to_bytes(4, "little") + payload for kind, payload in frames)
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        program = Path(temporary.name, "shim")
        Path(temporary.name, "sent").write_bytes(sent)
        program.write_text(f"#!/bin/sh\ncat {temporary.name}/sent; cat >/dev/null\n")
        program.chmod(0o755)
        folder = ShimFolder.open(temporary.name, None, False, program)
        self.addCleanup(folder.close)
        return folder

    def test_what_a_sandbox_sends_is_bounded_and_only_a_proposal(self) -> None:
        hello = (0, b'{"protocol":5,"folder":"/w"}')
        report = (5, b'{"changes":[],"left":[],"leftCount":0,"notWalked":[]}')

        def change(path: str) -> bytes:
            return json.dumps([{"path": path, "change": "added", "size": 1}]).encode()

        self.assertEqual([one["path"] for one in self.sandbox(hello, (4, change("a/b")), report).scan(False).changes], ["a/b"])
        deep = b"[" * 500_000
        for frames in (
            *([(4, change(path))] for path in ("/etc/passwd", "../a", "", "a/.git/x", ".GIT/x", ".WORKSPACED/index", "a/.wh.b", "n/" * 3000 + "n")),
            [(4, b"[" + b" " * (1 << 19) + b"]")] * 200,
            [(4, deep)], [(4, b"{}")], [(2, b"x")], [(5, b"[]")], [(11, b"")], [(4, b"\xff")],
        ):  # fmt: skip
            with self.assertRaises(FolderError) as raised:
                self.sandbox(hello, *frames).scan(False)
            self.assertEqual(raised.exception.code, "LOST", frames[:1])
        done = (5, b'{"entries":1,"left":[],"torn":[]}')
        unasked = io.BytesIO()
        with tarfile.open(fileobj=unasked, mode="w", format=tarfile.GNU_FORMAT) as tar:
            tar.addfile(tarfile.TarInfo("evil"))
        for data in ([(2, unasked.getvalue())], [(2, bytes(512)), (2, b"x" * 512)], [(2, bytes(1 << 20))] * 260):
            with self.assertRaises(FolderError) as raised:
                self.sandbox(hello, *data, (3, b""), done).read(["a"])
            self.assertEqual(raised.exception.code, "LOST")


class Addresses(unittest.TestCase):
    def test_an_address_is_a_program_that_runs_a_command(self) -> None:
        for raw, program in (
            ("docker:web", "docker exec -i web"),
            ("podman:web", "podman exec -i web"),
            ("kubectl:ns/pod", "kubectl exec -i -n ns pod --"),
            ("kubectl:ns/pod/c", "kubectl exec -i -n ns pod -c c --"),
            ("ssh:me@host:/srv/w", "ssh -T -o BatchMode=yes -a -x -o ClearAllForwardings=yes me@host --"),
            ("pipe:nsenter -t 1  -m", "nsenter -t 1 -m"),
        ):
            self.assertEqual(SandboxAddress(raw).program, program.split())
        self.assertEqual(SandboxAddress("ssh:me@host:/srv/w").folder, "/srv/w")
        for folder, expected in (("a b", "a b"), ("~/w", "w"), ("~", "."), ("~a/w", "~a/w")):
            self.assertEqual(SandboxAddress(f"ssh:h:{folder}").folder, expected)
        self.assertIn("'it'\"'\"'s'", SandboxAddress("ssh:h:").shell("x", "it's"))
        for raw in ("web", "docker:", "docker:-v", "kubectl:pod", "kubectl:a/-b", "kubectl:a/b/c/d", "ssh:host", "lxc:a", "pipe: "):
            with self.assertRaises(FolderError):
                SandboxAddress(raw)


class Layers(unittest.TestCase):
    def test_a_layer_has_only_what_was_asked_for(self) -> None:
        def layer(*members: tarfile.TarInfo, format: int = tarfile.GNU_FORMAT) -> bytes:
            out = io.BytesIO()
            with tarfile.open(fileobj=out, mode="w", format=format) as tar:
                for member in members:
                    tar.addfile(member, io.BytesIO(bytes(member.size)))
            return out.getvalue()

        def member(name: str, size: int = 0, type: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
            made = tarfile.TarInfo(name)
            made.size, made.type = size, type
            return made

        def wrong(data: bytes, step: int = 100) -> str:
            check = LayerCheck(["a", "d/b", "x" * 200])
            parts = (check.feed(data[at : at + step]) for at in range(0, len(data), step))
            return next((why for why in parts if why), "") or check.end()

        good = layer(member("a", 1000), member("d/.wh.b"), member("x" * 200, 513), member("a", type=tarfile.SYMTYPE))
        for step in (1, 511, 512, 100_000):
            self.assertEqual(wrong(good, step), "")
        self.assertEqual(wrong(layer()), "")
        records = (b"84 WORKSPACED.base=" + b"0a" * 32 + b"\n", b"24 WORKSPACED.base=none\n")
        for record in (*records, b"24 path=d/a/longer/name\n", records[1] + b"10 path=b\n"):
            based = layer(member("pax", len(record), b"x"))[:512] + record.ljust(512, b"\0") + layer(member("a", 1000))
            self.assertEqual(wrong(based) == "", record in records)
        for bad in (
            layer(member("b")), layer(member(".wh.d")), layer(member("y" * 200)), layer(member("a", 300 << 20))[:512],
            layer(member("a", type=tarfile.DIRTYPE)), layer(member("a", type=tarfile.LNKTYPE)), layer(member("a", type=tarfile.FIFOTYPE)),
            layer(member("d/.wh.b", type=tarfile.SYMTYPE)), layer(member(".wh..wh..opq")), layer(member("./a")),
            layer(member("a"), format=tarfile.USTAR_FORMAT), layer(member("x" * 200), format=tarfile.PAX_FORMAT),
            layer(member("a", 1000))[:700], layer(member("a")) + layer(member("a")),
        ):  # fmt: skip
            self.assertTrue(wrong(bad, 4096))


class Asyncio(unittest.IsolatedAsyncioTestCase):
    async def test_commands_run_at_the_same_time_and_a_cancelled_one_ends(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            async with AsyncClient(URL, OPERATOR) as client:
                run, _ = await client.create_run()
                await run.create_file("a.txt", b"one\n", "stores")
                # Each waits for the other.
                meet = f"echo > {folder}/$ME; while [ ! -e {folder}/$OTHER ]; do sleep 0.05; done; cat a.txt"
                both = [
                    run.exec(meet, dir=f"{folder}/{me}-work", env={"ME": me, "OTHER": other}, timeout=60)
                    for me, other in (("x", "y"), ("y", "x"))
                ]
                self.assertEqual([done.output for done in await asyncio.gather(*both)], [b"one\n"] * 2)
                pulled = await run.pull(f"{folder}/x-work")
                self.assertEqual(pulled.written, 0)
                Path(folder, "x-work/a.txt").write_text("two\n")
                pushed = await run.push(f"{folder}/x-work", reason="by hand")
                self.assertEqual((pushed.answer["applied"] if pushed else [], await run.read_bytes("a.txt")), (["a.txt"], b"two\n"))

                pid = Path(folder, "y-work/pid")
                silent = asyncio.create_task(run.exec("trap '' INT TERM; echo $$ > pid; sleep 600", dir=f"{folder}/y-work"))
                while not (pid.exists() and pid.read_text().endswith("\n")):
                    await asyncio.sleep(0.02)
                silent.cancel()
                with self.assertRaises(asyncio.CancelledError):
                    await silent
                await asyncio.to_thread(eventually, lambda: not is_alive(pid.read_text().strip()))


if __name__ == "__main__":
    unittest.main()
