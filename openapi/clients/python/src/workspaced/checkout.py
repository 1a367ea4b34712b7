# Written by `generate_types.py` from the file of the same name in `aio`: do not edit.
"""A run's files in a folder, here or in a sandbox: what changed comes in, what a command changes goes back as one judged set."""

from __future__ import annotations

import hashlib
import json
import os
import time
import uuid
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from . import types
from .errors import FolderError, WorkspacedError
from .shim import DATA_BYTES, KeptOutput, ShimFolder, TimeLimit, conflict, shown_command
from .values import Executed, FolderChanges, PathChange, Pulled, Pushed
from .threads import Worker
from .transport import CHUNK_BYTES, segment

if TYPE_CHECKING:
    from .run import Run

OutputSink: TypeAlias = Callable[[Literal["stdout", "stderr"], bytes], object]

# How many changes an event names, and how many characters of a path it has.
MAX_RECORDED, MAX_RECORDED_CHARS = 200, 200
# The most characters of a command in the reason for what it has changed.
MAX_REASON_CHARS = 500
# The most bytes of a command's arguments in a record, which are twice as long in JSON at worst.
MAX_RECORDED_ARGV = 16 << 10
MAX_DIFFERS_BYTES = 24 << 10


class Checkout:
    """A run's files in a folder, which stays open: several commands run in it, one after the other. `Run.checkout` makes it.

    The run is that of the caller, and from the first pull on the record is the one that was pulled: a command that changes the folder's
    index leads nothing to another run.
    """

    def __init__(
        self,
        run: Run,
        dir: str | os.PathLike[str] | None = None,
        *,
        sandbox: str | None = None,
        fresh: bool = False,
        shim: str | os.PathLike[str] | None = None,
    ) -> None:
        self.run = run
        self._path = f"/v1/runs/{segment(run.id)}"
        self._place = (dir, sandbox, fresh, shim)
        self._worker = Worker()
        self._folder: ShimFolder | None = None
        # The states that the folder can have: one, or two if an operation did not tell how it ended. Empty before its own word was taken.
        self._known: list[dict[str, Any] | None] = []
        # What the last pull has left, because it was changed there too.
        self._left = set[str]()
        # Whether it was made anew and no command has run in it, so that it has nothing but what was pulled.
        self._is_untouched = False

    def __enter__(self) -> Checkout:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> None:
        """Opens the folder. In a sandbox, the shim is started, and copied before if it is not there."""
        if self._folder is None:
            self._worker, self._known, self._is_untouched = Worker(), [], self._place[2]
            self._folder = self._worker.run(ShimFolder.open, *self._place)

    def close(self) -> None:
        """Closes the folder. What runs there is ended, and a fresh folder is removed."""
        folder, self._folder = self._folder, None
        if folder is not None:
            self._worker.run(folder.close)
        self._worker.close()

    @property
    def folder(self) -> str:
        """The path of the folder, here or in the sandbox."""
        return self._open.path

    @property
    def _open(self) -> ShimFolder:
        if self._folder is None:
            raise FolderError("FOLDER", "the checkout is not open", "Use it in `with`, or call `open` first.")
        return self._folder

    def signal(self, number: int) -> None:
        """Sends a signal, such as `signal.SIGINT`, to the command that runs, with all processes of its group. From any thread."""
        self._open.signal(number)

    def pull(self, *, theirs: Sequence[str] = ()) -> Pulled:
        """Brings the folder to the newest state of the run. Overwrites nothing that was changed there: it raises `CONFLICT` then, and the rest
        is pulled. At the paths `theirs`, which were changed there too, the version of the run is taken.
        """
        pulled = self._pull_rest(theirs)
        if pulled.conflicts:
            raise conflict(pulled.conflicts)
        return pulled

    def _pull_rest(self, theirs: Sequence[str] = ()) -> Pulled:
        have = self._base()
        return self._apply(None if have is None else int(have["seq"]), theirs)

    def tree_sha256(self) -> str:
        """Returns the hash of what the folder has of the run: of the lines `KIND SHA256 PATH`, each ended by a NUL byte, in order of paths."""
        return self._worker.run(self._open.tree_sha256)

    def scan(self, *, all: bool = False) -> FolderChanges:
        """Finds what differs from the run. With `all`, also in folders of builds of which the run has nothing."""
        return self._worker.run(self._open.scan, all)

    def push(
        self,
        *,
        reason: str,
        merge: bool = False,
        leave_denied: bool = False,
        all: bool = False,
        dry_run: bool = False,
        changeset_id: str | None = None,
    ) -> Pushed | None:
        """Sends what changed in the folder as one set: all of it is applied, or a refusal is raised. None if there is nothing to send.

        With `merge`, what others have changed is merged where it is apart; with `leave_denied`, what policy denies is left out.
        """
        changeset = {"reason": reason, "dryRun": dry_run, "onConflict": "merge" if merge else "refuse",
                     "onDenied": "leave" if leave_denied else "refuse", "changesetId": changeset_id or f"cs_{uuid.uuid4()}"}  # fmt: skip
        self._checked_out()
        return self._push(self.scan(all=all), changeset)

    def exec(
        self,
        command: Sequence[str] | str,
        *,
        push: bool = False,
        test: bool = False,
        reason: str | None = None,
        merge: bool = False,
        leave_denied: bool = False,
        all: bool = False,
        cwd: str = ".",
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        on_output: OutputSink | None = None,
    ) -> Executed:
        """Pulls, runs a command, finds what it changed, and records it. A text is for the shell.

        What differed from the run before is no part of what the command changed, unless it has changed it again: `push` sends that.
        With `push`, what it changed is applied as one set, if it ended by itself; with `test`, the record is that of a test. `timeout` ends
        it after that many seconds. `on_output` gets its output as it comes. If the call is cancelled or `on_output` raises, the command is
        killed and the checkout closed. A refusal of what comes after the command is in the result.
        """
        if push and test:
            raise ValueError("what a test changes is not applied: give `push` or `test`")
        argv = ["sh", "-c", command] if isinstance(command, str) else list(command)
        pulled = self._pull_rest()
        environment = self._environment()
        before = self._scan_before(all)
        began = time.monotonic()
        started = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        kept, limit = KeptOutput(), TimeLimit(self._open, timeout)
        kind: Literal["command", "test"] = "test" if test else "command"
        about: dict[str, Any] = {"argv": _recorded_argv(argv), "cwd": cwd or ".", "startedAt": started, "environment": environment}
        if not isinstance(before, FolderError):
            about.update(_differing(before.changes))
        try:
            outcome = self._execute(argv, cwd, env or {}, kept, on_output)
        except FolderError as failure:
            # A command that ends the connection is in the record like any other.
            if failure.code == "LOST":
                about["durationMicros"] = int((time.monotonic() - began) * 1_000_000)
                self._record_event(kind, about, pulled, {}, failure=failure, timed_out=limit.is_reached)
            raise
        finally:
            limit.cancel()
        output = kept.bytes()
        done = Executed(
            exit_code=outcome.get("exitCode"), signal=outcome.get("signal"), timed_out=limit.is_reached,
            duration_micros=int(outcome.get("durationMicros") or 0), output=output,
            output_sha256=hashlib.sha256(output).hexdigest() if output else None,
            pulled=pulled, changed=FolderChanges([], [], 0, []), earlier=[], event_seq=None, pushed=None, refusal=None,
        )  # fmt: skip
        about["durationMicros"] = done.duration_micros
        try:
            done.changed = self.scan(all=all)
            if isinstance(before, FolderError):
                raise before
            done.earlier = done.changed.leave_out(before)
        except FolderError as failure:
            self._record_event(kind, about, pulled, self._keep(done), done=done, failure=failure)
            raise
        changeset = None
        if push and done.signal is None and not done.timed_out:
            # What an interrupted command left is half of something.
            changeset = {"reason": reason or shown_command(argv)[:MAX_REASON_CHARS], "dryRun": False, "onConflict": "merge" if merge else "refuse",
                         "onDenied": "leave" if leave_denied else "refuse", "changesetId": f"cs_{uuid.uuid4()}"}  # fmt: skip
        try:
            self._record(done, about, kind, changeset)
        except WorkspacedError as refusal:
            done.refusal = refusal
        return done

    def _scan_before(self, all: bool) -> FolderChanges | FolderError:
        """Finds what differs from the run before a command. A folder that cannot be looked at may be one that it is to put in order."""
        if self._is_untouched:
            return FolderChanges([], [], 0, [])
        try:
            return self.scan(all=all)
        except FolderError as failure:
            if failure.code == "LOST":
                raise
            return failure

    def _execute(
        self, argv: Sequence[str], cwd: str, env: Mapping[str, str], kept: KeptOutput, on_output: OutputSink | None
    ) -> dict[str, Any]:
        folder, self._is_untouched = self._open, False
        try:
            self._worker.run(folder.begin_exec, argv, cwd, env)
            while True:
                event = self._worker.run(folder.next_output)
                if isinstance(event, dict):
                    return event
                kept.add(event[1])
                if on_output is not None:
                    on_output(*event)
        except FolderError:
            raise
        except BaseException:
            folder.abandon()
            self._folder = None
            self._worker.close()
            raise

    def _record(
        self, done: Executed, about: Mapping[str, Any], kind: Literal["command", "test"], changeset: dict[str, Any] | None
    ) -> None:
        kept = self._keep(done)
        if changeset is not None:
            # It names an artifact that the run has, or says why there is none.
            digest = {name: kept[name] for name in (["outputSha256"] if "output" in kept else ["outputRefused"]) if name in kept}
            exit_code = {} if done.exit_code is None else {"exitCode": done.exit_code}
            changeset["command"] = {**about, **exit_code, **digest}
            try:
                done.pushed = self._push(done.changed, changeset)
            except WorkspacedError as failure:
                # The service records the command of a set that it refuses.
                if isinstance(failure, FolderError) or failure.code == "BODY_TOO_LARGE":
                    done.event_seq = self._record_event(kind, about, done.pulled, kept, done=done, failure=failure)
                raise
            if done.pushed is not None:
                done.event_seq = done.pushed.answer.get("eventSeq")
                return
        done.event_seq = self._record_event(kind, about, done.pulled, kept, done=done)

    def _record_event(
        self,
        kind: Literal["command", "test"],
        about: Mapping[str, Any],
        pulled: Pulled,
        kept: Mapping[str, Any],
        *,
        done: Executed | None = None,
        failure: WorkspacedError | None = None,
        timed_out: bool = False,
    ) -> int:
        """Records a command alone. Without `done`, it is not known how it ended."""
        command = shown_command(about["argv"])
        data = {"command": command, "cwd": about["cwd"], "basedOnSeq": pulled.seq, "environment": about["environment"], **kept}
        # What the command changed itself is not the run's either.
        differing = about if done is None else _differing([*done.earlier, *done.changed.changes])
        data.update({name: differing[name] for name in ("differs", "differsCount") if name in differing})
        ended = "it is not known how it ended"
        if done is not None:
            data["exitCode"] = done.exit_code if done.exit_code is not None else 128 + (done.signal or 0)
            ended = f"exit code {data['exitCode']}"
            timed_out = done.timed_out
        if timed_out:
            data["timedOut"] = True
        if failure is not None:
            data["failure"] = data["notApplied"] = failure.detail
        elif done is not None and done.changed.changes:
            named = done.changed.changes[:MAX_RECORDED]
            data["changed"] = [f"{change['change'][0].upper()} {change['path'][:MAX_RECORDED_CHARS]}" for change in named]
            data["changedCount"] = len(done.changed.changes)
        event = self.run.record_event(
            kind, f"{command[:450]}: {ended}", data=data, started_at=about["startedAt"], duration_micros=about.get("durationMicros")
        )
        return event["seq"]

    def _keep(self, done: Executed) -> dict[str, Any]:
        """Uploads the output, and returns what an event says of it."""
        if not done.output:
            return {}
        kept = {"outputSha256": done.output_sha256}
        try:
            return {**kept, "output": (self.run.upload_artifact(done.output))["uri"]}
        except WorkspacedError as refusal:
            # What the command did is known without it.
            return {**kept, "outputRefused": refusal.code}

    def _environment(self) -> dict[str, Any]:
        """Returns what the record of the next command says of where it runs: of a tree as it was pulled, also its hash."""
        return {**self._open.environment, **({"treeSha256": self.tree_sha256()} if self._is_untouched else {})}

    def _push(self, changed: FolderChanges, changeset: dict[str, Any]) -> Pushed | None:
        base = self._checked_out()
        paths = [change["path"] for change in changed.changes]
        if not paths:
            return None
        layer, entries, left = self._worker.run(self._open.read, paths)
        if entries == 0:
            return None
        content, media_type = _form({**changeset, "basedOnSeq": base["seq"]}, layer)
        path = f"{self._path}/changesets"
        sent = self.run.transport.json("POST", path, content=content, headers={"Content-Type": media_type})
        answer = cast(types.ChangesetAnswer, sent)
        taken = [*answer["applied"], *answer["merged"]]
        stale: WorkspacedError | None = None
        if taken and not changeset["dryRun"]:
            try:
                # What was merged comes back, and what others have changed meanwhile.
                self._worker.run(self._open.confirm, taken)
                known = self._left
                again = self._apply(base["seq"])
                if fresh := [one for one in again.conflicts if one["path"] not in known]:
                    stale = conflict(fresh)
            except WorkspacedError as failure:
                # It undoes nothing in the run.
                stale = failure
        return Pushed(answer=answer, left=left, stale=stale)

    def _checked_out(self) -> dict[str, Any]:
        base = self._base()
        if base is None:
            raise FolderError("NO_CHECKOUT", f"{self.folder} is no checkout of a run", "Pull into it first.")
        return base

    def _base(self) -> dict[str, Any] | None:
        """Returns what the folder has of the run."""
        have = self._worker.run(self._open.have)
        if have is not None and have["run"] != self.run.id:
            hint = "Use another folder, or the run of this one."
            raise FolderError("OTHER_RUN", f"{self.folder} is a checkout of the run {have['run']}", hint)
        if self._known and have not in self._known:
            hint = "A command or another program has changed its index: check the run out into a new folder."
            raise FolderError("MOVED", f"{self.folder} is at another record than the one of its last pull", hint)
        # Its first word is taken, and from then on it can say nothing else.
        self._known = [have]
        return have

    def _apply(self, since: int | None, theirs: Sequence[str] = ()) -> Pulled:
        folder, path = self._open, f"{self._path}/archive"
        params = {} if since is None else {"since": str(since)}
        with self.run.transport.stream("GET", path, params=params) as response:
            headers = response.headers
            if not headers.get("workspaced-seq", "").isdigit():
                raise FolderError("FOLDER", "the archive does not say which record it is of", "Is the service as new as this package?")
            now = {"run": self.run.id, "seq": int(headers["workspaced-seq"]), "headHash": headers.get("workspaced-head-hash", "")}
            # If the call is cancelled or the sandbox is lost on the way, it has one or the other.
            self._known.append(now)
            unpacker = _Unpacker("gzip" in headers.get("content-type", ""))
            self._worker.run(folder.begin_apply, now, theirs)
            try:
                for chunk in response.iter_bytes(CHUNK_BYTES):
                    for part in unpacker.unpack(chunk):
                        self._worker.run(folder.send_layer, part)
                unpacker.end()
            except FolderError as failure:
                if failure.code != "LOST":
                    self._give_up(folder, failure.detail)
                raise
            except Exception as failure:
                self._give_up(folder, str(failure) or type(failure).__name__)
                raise
            except BaseException:
                folder.abandon()
                raise
            try:
                applied = self._worker.run(folder.end_apply)
            except FolderError as failure:
                if failure.code != "LOST":
                    self._known.pop()
                raise
        conflicts = folder.conflicts(applied)
        if conflicts:
            # The folder stays where it was, so that what was left comes again.
            self._known.pop()
            self._left = {one["path"] for one in conflicts}
            before = self._known[0]
            if before is None:
                raise conflict(conflicts)
            now = before
        else:
            self._known, self._left = [now], set()
        return Pulled(
            from_seq=since, seq=now["seq"], head_hash=now["headHash"], written=int(applied.get("written", 0)),
            deleted=int(applied.get("deleted", 0)), left_out=int(headers.get("workspaced-left-out", 0)), conflicts=conflicts,
        )  # fmt: skip

    def _give_up(self, folder: ShimFolder, why: str) -> None:
        """Tells the shim that the layer is not complete. It answers that it has written nothing."""
        try:
            self._worker.run(folder.end_apply, why)
        except FolderError as failure:
            if failure.code != "LOST":
                self._known.pop()
            return
        folder.abandon()


class _Unpacker:
    """A tar, or a tar.gz that is unpacked in parts of a bounded size."""

    def __init__(self, is_packed: bool) -> None:
        self._inflater = zlib.decompressobj(wbits=31) if is_packed else None

    def unpack(self, chunk: bytes) -> Iterator[bytes]:
        if self._inflater is None:
            yield chunk
            return
        while chunk and not self._inflater.eof:
            try:
                yield self._inflater.decompress(chunk, DATA_BYTES)
            except zlib.error as failure:
                raise FolderError("FOLDER", f"the archive is damaged: {failure}", "Try again.") from failure
            chunk = self._inflater.unconsumed_tail

    def end(self) -> None:
        if self._inflater is not None and not self._inflater.eof:
            raise FolderError("FOLDER", "the archive is cut off", "Try again.")


def _recorded_argv(argv: Sequence[str]) -> list[str]:
    """Returns the arguments that a record has: the first ones, if all would be too large for it."""
    recorded, size = list[str](), 0
    for argument in argv:
        size += len(argument.encode(errors="replace"))
        if size > MAX_RECORDED_ARGV:
            left_out = len(argv) - len(recorded)
            # One argument alone may be larger, such as a script.
            return [*recorded, f"{argument[:MAX_RECORDED_CHARS]}… [cut here, with {left_out} of {len(argv)} arguments]"]
        recorded.append(argument)
    return recorded


def _differing(changes: Sequence[PathChange]) -> dict[str, Any]:
    """Returns what a record says of files that are not those of the run: the first paths, those that the run has before others."""
    paths = [change["path"] for change in sorted(changes, key=lambda change: change["change"] == "added")]
    named, size = list[str](), 0
    for path in paths:
        size += len(path.encode(errors="replace"))
        if size > MAX_DIFFERS_BYTES:
            break
        named.append(path)
    return {"differs": named, "differsCount": len(paths)} if paths else {}


def _form(changeset: Mapping[str, Any], layer: bytes) -> tuple[bytes, str]:
    """Returns the form of a set of changes, and its media type."""
    boundary = f"workspaced-{uuid.uuid4()}"
    head = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="changeset"\r\nContent-Type: application/json\r\n\r\n'
        f"{json.dumps(changeset)}\r\n"
        f'--{boundary}\r\nContent-Disposition: form-data; name="layer"\r\nContent-Type: application/x-tar\r\n\r\n'
    )
    return head.encode() + layer + f"\r\n--{boundary}--\r\n".encode(), f"multipart/form-data; boundary={boundary}"
