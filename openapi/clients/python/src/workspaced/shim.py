"""The folder of a checkout, by the frames of `workspaced-shim`: here, or in a sandbox behind a pipe. What is here blocks.

The sandbox is hostile: what it sends is bounded and checked, and is no more than a proposal, which the service judges.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
import zlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Literal, NoReturn, cast

from .errors import FolderError
from .values import FolderChanges, LeftEntry, PathChange

PROTOCOL = 5
SHIM_NAME = "workspaced-shim"
HELLO, REQUEST, DATA, END, ITEM, DONE, FAULT, STDOUT, STDERR, SIGNAL = range(10)
MAX_FRAME_BYTES = 1 << 20
DATA_BYTES = 128 << 10
MAX_LIST_BYTES = 64 << 20
MAX_CHANGES = 1_000_000
MAX_PATH_BYTES = 4096
# What is in memory until it is sent; a service takes more in one set.
MAX_FILE_BYTES, MAX_TOTAL_BYTES = 256 << 20, 256 << 20
# How many of the entries that no set takes a scan names, and the most characters of their paths.
MAX_LEFT, MAX_SHOWN_CHARS = 100, 300
# How often files that change while they are read are read again.
MAX_READS = 3
MAX_SHIM_BYTES = 64 << 20
MAX_ERROR_BYTES = 4096
CONFLICT_HINT = "Push the changes first (with merge=True, if both changed a file), or take the version of the run with `theirs`."
# How a sandbox says that it does not have the shim yet.
MISSING = 77
# Seconds that a program has to end.
GRACE = 5.0
# Seconds that a sandbox has until the shim answers, or is copied.
START_LIMIT = 60.0
# Folders that builds and installations fill: they are not looked into where the run has nothing in them.
BUILD_OUTPUT = (
    ".angular .build .cache .dart_tool .docusaurus .eggs .gradle .mypy_cache .next .nox .nuxt .nyc_output .output "
    ".parcel-cache .pytest_cache .ruff_cache .svelte-kit .tox .turbo __pycache__ _build bazel-bin bazel-out "
    "bazel-testlogs build deriveddata dist target .bundle .pnpm-store .terraform .venv .yarn 3rdparty bower_components "
    "carthage jspm_packages node_modules site-packages third-party third_party thirdparty vendor vendored venv"
).split()

START = r"""for f in "$0/.workspaced/$1" "/tmp/$1" "/dev/shm/$1"; do
if [ -f "$f" ] && [ ! -L "$f" ] && [ -O "$f" ] && [ -x "$f" ]; then exec "$f" "$2" "$0"; fi
done
exit 77"""
INSTALL = r"""t="$1.$$"; from=
for d in "$0/.workspaced" /tmp /dev/shm; do
mkdir -p "$d" 2>/dev/null; (: > "$d/$t") 2>/dev/null || continue
cat ${from:+"$from"} > "$d/$t" && chmod 700 "$d/$t" || exit 1
if [ -x "$d/$t" ]; then mv -f "$d/$t" "$d/$1" && rm -f ${from:+"$from"}; exit; fi
from="$d/$t"
done
echo "no folder here can be written and has programs: tried $0, /tmp and /dev/shm" >&2
exit 1"""


class SandboxAddress:
    """`docker:NAME`, `podman:NAME`, `kubectl:NAMESPACE/POD[/CONTAINER]`, `ssh:HOST:FOLDER` or `pipe:PROGRAM ARGUMENTS`."""

    def __init__(self, raw: str) -> None:
        self.kind, _, self.name = raw.partition(":")
        self.folder: str | None = None
        if not self.name or self.name.startswith("-"):
            raise FolderError("ADDRESS", f"{raw!r} is no address of a sandbox: expected docker:, podman:, kubectl:, ssh: or pipe:")
        self.program = self._program()

    def _program(self) -> list[str]:
        if self.kind in ("docker", "podman"):
            return [self.kind, "exec", "-i", self.name]
        if self.kind == "kubectl":
            parts = self.name.split("/")
            if len(parts) not in (2, 3) or parts[1].startswith("-"):
                raise FolderError("ADDRESS", "expected kubectl:NAMESPACE/POD or kubectl:NAMESPACE/POD/CONTAINER")
            container = ["-c", parts[2]] if len(parts) == 3 else []
            return [self.kind, "exec", "-i", "-n", *parts[:2], *container, "--"]
        if self.kind == "ssh":
            host, colon, folder = self.name.rpartition(":")
            if not colon:
                raise FolderError("ADDRESS", "expected ssh:HOST:FOLDER")
            # A command begins in the user's folder, whose short name no shell replaces in quotes.
            self.folder = ("." if folder == "~" else folder.removeprefix("~/")) or None
            # A password cannot be asked for: the program has no terminal. What the user's configuration forwards, such as keys, is not
            # for the commands of a sandbox.
            alone = ["-a", "-x", "-o", "ClearAllForwardings=yes"]
            return [self.kind, "-T", "-o", "BatchMode=yes", *alone, host, "--"]
        if self.kind == "pipe" and self.name.split():
            return self.name.split()
        raise FolderError("ADDRESS", f"`{self.kind}` is none of docker, podman, kubectl, ssh and pipe")

    def shell(self, script: str, *arguments: str) -> list[str]:
        """Returns the program that runs a script of the shell in the sandbox."""
        words = ["sh", "-c", script, *arguments]
        # A shell on the other side reads what ssh sends; the others pass arguments as they are.
        return self.program + ([shlex.quote(word) for word in words] if self.kind == "ssh" else words)

    def environment(self) -> dict[str, str]:
        """Returns what the record of a command says of where it ran."""
        environment = {"kind": self.kind, "name": self.name}
        if self.kind in ("docker", "podman"):
            inspect = [self.kind, "inspect", "--type", "container", "--format", "{{.Image}}", self.name]
            # Without an answer, the record does not say which image it was.
            with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                code, output, _ = _run(inspect, b"", GRACE)
                if code == 0:
                    environment["image"] = output.decode(errors="replace").strip()
        return environment


def find_shim(given: str | os.PathLike[str] | None) -> str:
    """Returns the program `workspaced-shim`: the given one, that of WORKSPACED_SHIM, the one beside this package, or that of PATH."""
    beside = Path(__file__).with_name(SHIM_NAME)
    found = given or os.environ.get("WORKSPACED_SHIM") or (beside if beside.is_file() else shutil.which(SHIM_NAME))
    if found is None or not Path(found).is_file():
        hint = "Install it on the PATH, or name its file with WORKSPACED_SHIM or `shim`."
        raise FolderError("NO_SHIM", f"the program {found or SHIM_NAME} is missing", hint)
    return os.fspath(found)


def _without_token() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in ("WORKSPACED_TOKEN", "WORKSPACED_TOKEN_FILE")}


def _run(command: Sequence[str], content: bytes, limit: float) -> tuple[int, bytes, bytes]:
    """Runs a program to its end. After `limit` seconds, it is ended with all processes of its group."""
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=_without_token(), process_group=0) as process:
        try:
            output, errors = process.communicate(content, limit)
        except subprocess.TimeoutExpired:
            _end_group(process)
            raise
        return process.returncode, output, errors


def _end_group(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class ShimFolder:
    """A folder that is open. Only one program at a time works with a checkout; others wait for it."""

    def __init__(self, process: subprocess.Popen[bytes], where: str) -> None:
        self._process, self._where = process, where
        self._writing = threading.Lock()
        self._errors: deque[int] = deque(maxlen=MAX_ERROR_BYTES)
        self._unread = bytearray()
        # Wakes who reads from a pipe that was cut: another process may hold its other end.
        self._is_cut, self._cut = os.pipe()
        self._reader = threading.Thread(target=self._keep_errors, daemon=True)
        self._reader.start()
        self.environment: dict[str, str] = {"kind": "local"}
        self.path = ""

    @classmethod
    def open(
        cls,
        folder: str | os.PathLike[str] | None,
        sandbox: str | None,
        fresh: bool,
        shim: str | os.PathLike[str] | None,
    ) -> ShimFolder:
        """Starts the shim, in a sandbox after it was copied there if it is missing."""
        mode, program = "fresh" if fresh else "folder", find_shim(shim)
        if sandbox is None:
            if folder is None and not fresh:
                raise FolderError("ADDRESS", "no folder is given", "Give `dir`, or `sandbox`, or `fresh=True`.")
            where = os.fspath(folder) if folder is not None else tempfile.gettempdir()
            return cls._start([program, mode, where], where) or _not_started(where, "it is missing")
        address = SandboxAddress(sandbox)
        where = os.fspath(folder) if folder is not None else address.folder or ("/tmp" if fresh else "/workspace")
        content = Path(program).read_bytes()[:MAX_SHIM_BYTES]
        name = f"{SHIM_NAME}-{hashlib.sha256(content).hexdigest()[:16]}"
        start = address.shell(START, where, name, mode)
        opened = cls._start(start, sandbox)
        if opened is None:
            try:
                code, _, errors = _run(address.shell(INSTALL, where, name), content, START_LIMIT)
            except subprocess.TimeoutExpired:
                code, errors = 1, _no_answer().encode()
            if code != 0:
                _not_started(sandbox, "the shim could not be copied: " + errors.decode(errors="replace")[-MAX_ERROR_BYTES:].strip())
            opened = cls._start(start, sandbox) or _not_started(sandbox, "the shim was copied and is not there")
        opened.environment = address.environment()
        return opened

    @classmethod
    def _start(cls, command: list[str], where: str) -> ShimFolder | None:
        """Starts the shim. None if the sandbox does not have it."""
        pipe = subprocess.PIPE
        try:
            # An interrupt of the terminal is for the command, which gets it by the pipe.
            process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=_without_token(), process_group=0)
        except OSError as failure:
            raise FolderError("NOT_STARTED", f"{command[0]}: {failure.strerror or failure}") from failure
        folder = cls(process, where)
        is_late = threading.Event()

        def give_up() -> None:
            is_late.set()
            folder.cut()

        limit = threading.Timer(START_LIMIT, give_up)
        limit.daemon = True
        limit.start()
        try:
            kind, payload = folder._next()
        except FolderError as lost:
            code = folder.close()
            if lost.code == "LOST" and code == MISSING:
                return None
            if lost.code == "LOST":
                _not_started(where, folder._said() or (_no_answer() if is_late.is_set() else f"it ended with {code}"))
            raise
        except BaseException:
            folder.abandon()
            raise
        finally:
            limit.cancel()
        hello = folder._parse(payload)
        if kind != HELLO or not isinstance(hello, dict) or hello.get("protocol") != PROTOCOL:
            folder.abandon()
            _not_started(where, "the shim is of another version: use the one of this release")
        folder.path = str(hello.get("folder", ""))
        return folder

    def close(self) -> int | None:
        """Ends the shim, and a command that runs. Returns the exit code of the program that held the pipe."""
        code = self._end()
        self._stdout.close()
        self._reader.join(GRACE)
        return code

    def abandon(self) -> None:
        """Ends the shim, and a command that runs, without waiting for it."""
        threading.Thread(target=self._end).start()

    def cut(self) -> None:
        """Ends the program that holds the pipe, although the shim may not have ended its command."""
        os.write(self._cut, b"x")
        _end_group(self._process)

    def __del__(self) -> None:
        for end in (self._is_cut, self._cut):
            with contextlib.suppress(OSError):
                os.close(end)
        self._stdout.close()

    def _end(self) -> int | None:
        with contextlib.suppress(OSError, ValueError), self._writing:
            self._stdin.close()
        try:
            return self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            self.cut()
            return None

    # Operations

    def have(self) -> dict[str, Any] | None:
        """Returns what the folder says that it has of a run."""
        self._request({"op": "have"})
        have = self._done()
        if have is not None and not (isinstance(have, dict) and isinstance(have.get("run"), str) and isinstance(have.get("seq"), int)):
            raise self._unexpected()
        return cast("dict[str, Any] | None", have)

    def tree_sha256(self) -> str:
        """Returns the hash of what the folder has of the run."""
        self._request({"op": "tree"})
        tree = self._done()
        if not isinstance(tree, str) or len(tree) != 64 or not all(digit in "0123456789abcdef" for digit in tree):
            raise self._unexpected()
        return tree

    def scan(self, all: bool) -> FolderChanges:
        """Finds what differs from the run."""
        self._request({"op": "scan", "buildOutput": [] if all else BUILD_OUTPUT})
        changes: list[PathChange] = []
        size = 0
        while True:
            kind, payload = self._next()
            if kind == DONE:
                break
            size += len(payload)
            if kind != ITEM or size > MAX_LIST_BYTES or len(changes) > MAX_CHANGES:
                raise self._unexpected()
            changes += self._changes(payload)
        report = self._object(payload)
        left, count, folders = self._left(report), report.get("leftCount"), report.get("notWalked")
        if not isinstance(count, int) or not isinstance(folders, list):
            raise self._unexpected()
        # No set takes them, however they are read.
        large = [change for change in changes if change["size"] > MAX_FILE_BYTES]
        why = f"it has more than {MAX_FILE_BYTES} bytes"
        left += [{"path": change["path"][:MAX_SHOWN_CHARS], "why": why} for change in large[: max(MAX_LEFT - len(left), 0)]]
        return FolderChanges(
            changes=[change for change in changes if change["size"] <= MAX_FILE_BYTES], left=left, left_count=count + len(large),
            not_walked=[str(name) for name in folders],
        )  # fmt: skip

    def read(self, paths: Sequence[str]) -> tuple[bytes, int, list[LeftEntry]]:
        """Returns a layer of these paths (a tar.gz), how many entries it has, and what is not in it."""
        wanted, changing = list(paths), list[LeftEntry]()
        for attempt in range(1, MAX_READS * 10 + 1):
            packed, report = self._read_once(wanted)
            torn = report.get("torn")
            if not isinstance(torn, list) or not isinstance(entries := report.get("entries"), int):
                raise self._unexpected()
            if not torn:
                return packed, entries, self._left(report) + changing
            if attempt >= MAX_READS:
                wanted = [path for path in wanted if path not in torn]
                changing += [{"path": str(path), "why": "it changes while it is read"} for path in torn]
        raise FolderError("UNSTEADY", "too many files change while they are read", "Try again when nothing writes there.")

    def _read_once(self, paths: list[str]) -> tuple[bytes, dict[str, Any]]:
        limits = {"maxFileBytes": MAX_FILE_BYTES, "maxTotalBytes": MAX_TOTAL_BYTES}
        self._request({"op": "read", "limits": limits})
        self._send_paths(paths)
        check, packer, packed = LayerCheck(paths), zlib.compressobj(3, wbits=31), bytearray()
        # Headers and padding are bounded by the number of paths.
        left = MAX_TOTAL_BYTES + (len(paths) + 1) * (16 << 10)
        while True:
            kind, payload = self._next()
            if kind == END:
                break
            left -= len(payload)
            if kind != DATA or left < 0 or len(packed) > MAX_TOTAL_BYTES:
                raise self._unexpected()
            if why := check.feed(payload):
                raise self._unexpected(why)
            packed += packer.compress(payload)
        report = self._object(self._done_payload())
        if not report.get("torn") and (why := check.end()):
            raise self._unexpected(why)
        return bytes(packed + packer.flush()), report

    def confirm(self, paths: Sequence[str]) -> None:
        """Notes that the run has the versions of these paths that were read last."""
        self._request({"op": "confirm"})
        self._send_paths(paths)
        self._done()

    def begin_apply(self, after: Mapping[str, Any], theirs: Sequence[str] = ()) -> None:
        """Begins to write a layer, whose bytes follow by `send_layer` and end by `end_apply`. It overwrites what was changed at `theirs`."""
        self._request({"op": "apply", "after": dict(after), "theirs": list(theirs)})

    def conflicts(self, applied: Mapping[str, Any]) -> list[LeftEntry]:
        """Returns what a layer has left as it was."""
        return self._left({"left": applied.get("conflicts", [])})

    def send_layer(self, chunk: bytes) -> None:
        """Sends a part of a layer."""
        for start in range(0, len(chunk), DATA_BYTES):
            self._send(DATA, chunk[start : start + DATA_BYTES])

    def end_apply(self, why: str = "") -> dict[str, Any]:
        """Ends a layer. With `why` it is not complete, and nothing is written."""
        self._send(END, why.encode()[:MAX_ERROR_BYTES])
        return self._object(self._done_payload())

    def begin_exec(self, argv: Sequence[str], cwd: str, env: Mapping[str, str]) -> None:
        """Begins a command. `next_output` returns its output and its end."""
        self._request({"op": "exec", "command": {"argv": list(argv), "cwd": cwd, "env": list(env.items())}})

    def next_output(self) -> tuple[Literal["stdout", "stderr"], bytes] | dict[str, Any]:
        """Returns what the command has written, or how it ended."""
        kind, payload = self._next()
        if kind in (STDOUT, STDERR):
            return "stdout" if kind == STDOUT else "stderr", payload
        if kind != DONE:
            raise self._unexpected()
        return self._object(payload)

    def signal(self, number: int) -> None:
        """Sends a signal to all processes of the command's group. From any thread."""
        # If the pipe is lost, the command ends with it.
        with contextlib.suppress(FolderError):
            self._send(SIGNAL, bytes([number]))

    # Frames

    @property
    def _stdin(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    @property
    def _stdout(self) -> IO[bytes]:
        assert self._process.stdout is not None
        return self._process.stdout

    def _request(self, request: Mapping[str, Any]) -> None:
        self._send(REQUEST, json.dumps(request).encode())

    def _send_paths(self, paths: Sequence[str]) -> None:
        for start in range(0, len(paths), 32):
            self._send(ITEM, json.dumps(paths[start : start + 32]).encode())
        self._send(END, b"")

    def _send(self, kind: int, payload: bytes) -> None:
        if len(payload) > MAX_FRAME_BYTES:
            raise FolderError("FOLDER", "the command or its environment is too long")
        try:
            with self._writing:
                self._stdin.write(bytes([kind]) + len(payload).to_bytes(4, "little") + payload)
                self._stdin.flush()
        except (OSError, ValueError) as failure:
            raise self._lost(str(failure)) from failure

    def _next(self) -> tuple[int, bytes]:
        head = self._exactly(5)
        kind, length = head[0], int.from_bytes(head[1:], "little")
        if kind > SIGNAL or length > MAX_FRAME_BYTES:
            raise self._unexpected()
        payload = self._exactly(length)
        if kind == FAULT:
            raise self._fault(self._object(payload))
        return kind, payload

    def _exactly(self, count: int) -> bytes:
        while len(self._unread) < count:
            try:
                waiting = select.poll()
                waiting.register(self._stdout, select.POLLIN)
                waiting.register(self._is_cut, select.POLLIN)
                is_cut = any(file == self._is_cut for file, _ in waiting.poll())
                data = b"" if is_cut else os.read(self._stdout.fileno(), 2 * DATA_BYTES)
            except (OSError, ValueError) as failure:
                raise self._lost(str(failure)) from failure
            if not data:
                raise self._lost("it was cut off" if is_cut else "it ended")
            self._unread += data
        data = bytes(self._unread[:count])
        del self._unread[:count]
        return data

    def _done_payload(self) -> bytes:
        kind, payload = self._next()
        if kind != DONE:
            raise self._unexpected()
        return payload

    def _done(self) -> Any:
        return self._parse(self._done_payload())

    def _parse(self, payload: bytes) -> Any:
        try:
            return json.loads(payload)
        except (ValueError, RecursionError) as failure:
            raise self._unexpected() from failure

    def _object(self, payload: bytes) -> dict[str, Any]:
        parsed = self._parse(payload)
        if not isinstance(parsed, dict):
            raise self._unexpected()
        return parsed

    def _changes(self, payload: bytes) -> Iterator[PathChange]:
        changes = self._parse(payload)
        for change in changes if isinstance(changes, list) else [None]:
            match change:
                case {"path": str(path), "change": "added" | "modified" | "deleted" as how, "size": int(size), **more}:
                    changed_ns = more.get("changedNs", 0)
                    # As the shim's own scan gives them.
                    if not _is_path(path) or not isinstance(changed_ns, int):
                        raise self._unexpected()
                    yield {"path": path, "change": how, "size": size, "changedNs": changed_ns}
                case _:
                    raise self._unexpected()

    def _left(self, report: Mapping[str, Any]) -> list[LeftEntry]:
        left = report.get("left")
        if not isinstance(left, list) or not all(isinstance(entry, dict) for entry in left):
            raise self._unexpected()
        return [{"path": str(entry.get("path")), "why": str(entry.get("why"))} for entry in left]

    @staticmethod
    def _fault(fault: Mapping[str, Any]) -> FolderError:
        conflicts = fault.get("conflicts")
        if conflicts:
            return FolderError("CONFLICT", str(fault.get("text")), CONFLICT_HINT, conflicts=conflicts)
        return FolderError("FOLDER", str(fault.get("text")))

    def _unexpected(self, why: str = "the shim sent something unexpected") -> FolderError:
        # What follows cannot be told from what was asked for.
        self.abandon()
        return FolderError("LOST", f"the connection to {self._where} was ended: {why}")

    def _lost(self, why: str) -> FolderError:
        hint = "Check that it runs and has free disk and memory, and open the checkout again: the run is as it was."
        return FolderError("LOST", f"the connection to {self._where} was lost: {self._said() or why}", hint)

    def _said(self) -> str:
        if self._process.poll() is not None:
            self._reader.join(GRACE)
        return bytes(self._errors).decode(errors="replace").strip()

    def _keep_errors(self) -> None:
        errors = self._process.stderr
        assert errors is not None
        # `read1` returns what is there.
        while chunk := cast(Any, errors).read1(MAX_ERROR_BYTES):
            self._errors.extend(chunk)
        errors.close()


def _no_answer() -> str:
    return f"it did not answer within {START_LIMIT:g} s"


def _not_started(where: str, why: str) -> NoReturn:
    hint = "Check that a command runs there, that its folder can be written, and that its processor is the one of this machine."
    raise FolderError("NOT_STARTED", f"no shell and no shim started in {where}: {why}", hint)


# The version of the run that an entry replaces.
BASE = re.compile(rb"84 WORKSPACED\.base=[0-9a-f]{64}\n|24 WORKSPACED\.base=none\n")


class LayerCheck:
    """Checks a tar as it passes: it has nothing but the paths that were asked for, each as a file, a link or a deletion.

    It takes what the shim writes and nothing else, so that no reader can take it for something else.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._asked = frozenset(paths)
        self._rest = bytearray()
        self._skip = 0
        self._kind, self._text = b"", bytearray()
        self._long: bytes | None = None
        self._is_ended = False

    def feed(self, chunk: bytes) -> str:
        """Returns what is wrong."""
        self._rest += chunk
        at = 0
        while True:
            if self._skip:
                count = min(self._skip, len(self._rest) - at)
                if self._kind in (b"L", b"x"):
                    self._text += self._rest[at : at + count]
                at, self._skip = at + count, self._skip - count
                if self._skip:
                    break
                if self._kind == b"L":
                    self._long = bytes(self._text).split(b"\0")[0]
                if self._kind == b"x" and not BASE.fullmatch(self._text.rstrip(b"\0")):
                    return "the layer has an entry of another form"
            if len(self._rest) - at < 512:
                break
            if why := self._header(bytes(self._rest[at : at + 512])):
                return why
            at += 512
        del self._rest[:at]
        return ""

    def end(self) -> str:
        """Returns what is wrong at the end."""
        return "" if self._is_ended and not self._rest and not self._skip else "the layer is cut off"

    def _header(self, head: bytes) -> str:
        if not any(head):
            self._is_ended = True
            return ""
        self._kind, digits = head[156:157], head[124:136].rstrip(b"\0 ")
        if self._is_ended or head[257:265] != b"ustar  \0" or self._kind not in (b"0", b"2", b"L", b"K", b"x") or not _is_octal(digits):
            return "the layer has an entry of another form"
        size = int(digits, 8)
        if size > (2 * MAX_PATH_BYTES if self._kind in b"LKx" else MAX_FILE_BYTES if self._kind == b"0" else 0):
            return "the layer has an entry that is too large"
        if self._kind == b"x" and size not in (24, 84):
            return "the layer has an entry of another form"
        self._skip, self._text = -(-size // 512) * 512, bytearray()
        if self._kind in b"LKx":
            return ""
        name = head[:100].split(b"\0")[0] if self._long is None else self._long
        self._long = None
        try:
            folder, slash, last = name.decode().rpartition("/")
        except UnicodeDecodeError:
            return "the layer has a name that is not UTF-8"
        path = folder + slash + last.removeprefix(".wh.")
        if last.startswith(".wh.") and self._kind != b"0":
            return "the layer has an entry of another form"
        return "" if path in self._asked else f"the layer has {path!r}, which was not asked for"


def _is_path(path: str) -> bool:
    """Whether a run can have this path."""
    names = path.split("/")
    is_bad = any(name in ("", ".", "..") or name.lower() == ".git" or name.startswith(".wh.") for name in names)
    is_own = names[0].lower() == ".workspaced"
    return not is_bad and not is_own and "\0" not in path and len(path.encode(errors="replace")) <= MAX_PATH_BYTES


def _is_octal(digits: bytes) -> bool:
    return 0 < len(digits) <= 11 and all(digit in b"01234567" for digit in digits)


class KeptOutput:
    """The beginning and the end of a command's output, as much as an artifact may have."""

    HALF = 8 * 1024 * 1024 - 64

    def __init__(self) -> None:
        self._head, self._tail, self._dropped = bytearray(), bytearray(), 0

    def add(self, chunk: bytes) -> None:
        """Adds what the command has written."""
        room = self.HALF - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        # Cut in large steps: each moves the rest.
        if len(self._tail) > 2 * self.HALF:
            self._cut()

    def _cut(self) -> None:
        excess = max(0, len(self._tail) - self.HALF)
        self._dropped += excess
        del self._tail[:excess]

    def bytes(self) -> bytes:
        """Returns what is kept."""
        self._cut()
        gap = f"\n[{self._dropped} bytes are not kept]\n".encode() if self._dropped else b""
        return bytes(self._head) + gap + bytes(self._tail)


class TimeLimit:
    """Ends a command after some seconds: asks it to end, kills it 5 seconds later, and then cuts the pipe."""

    def __init__(self, folder: ShimFolder, seconds: float | None) -> None:
        self.is_reached = self._is_over = False
        self._steps = iter([lambda: folder.signal(signal.SIGTERM), lambda: folder.signal(signal.SIGKILL), folder.cut])
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        if seconds is not None:
            self._wait(seconds)

    def _wait(self, seconds: float) -> None:
        self._timer = threading.Timer(seconds, self._step)
        self._timer.daemon = True
        self._timer.start()

    def _step(self) -> None:
        with self._lock:
            step = next(self._steps, None)
            if self._is_over or step is None:
                return
            self.is_reached = True
            # Before the step, which may wait for a sandbox that reads nothing.
            self._wait(GRACE)
        step()

    def cancel(self) -> None:
        """The command has ended."""
        with self._lock:
            self._is_over = True
            if self._timer is not None:
                self._timer.cancel()


def conflict(conflicts: list[LeftEntry]) -> FolderError:
    """What was changed both here and in the run."""
    named = ", ".join(f"{one['path']} ({one['why']})" for one in conflicts[:20])
    files = "1 file" if len(conflicts) == 1 else f"{len(conflicts)} files"
    return FolderError("CONFLICT", f"{files} changed here and in the run; nothing was overwritten: {named}", CONFLICT_HINT, conflicts=conflicts)


def shown_command(argv: Sequence[str]) -> str:
    """Returns a command as it is typed."""
    return " ".join(shlex.quote(word) for word in argv)
