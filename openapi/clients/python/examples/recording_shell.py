#!/usr/bin/env python3
"""A shell that records each command and its outcome as an event of a run.

Give it to an agent's runner in place of its shell: `recording_shell.py -c "pytest -q"`. It needs WORKSPACED_URL, RUN and
TOKEN, a token of the run with the permission `event:append`, which the command does not get to see. `--test` before `-c`
records a test. Exits as the command does; a record that fails is reported on standard error.
"""

import os
import subprocess
import sys
import time
from datetime import UTC, datetime

from workspaced import Client, WorkspacedError
from workspaced.run import MAX_ARTIFACT_BYTES


def execute(command: str, environment: dict[str, str]) -> tuple[int, bytes]:
    """Executes a command and passes its output on. Returns its exit code and the end of the output."""
    process = subprocess.Popen(
        ["/bin/sh", "-c", command], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, bufsize=0
    )
    assert process.stdout is not None
    output = bytearray()
    while chunk := process.stdout.read(64 * 1024):
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()
        output += chunk
        del output[:-MAX_ARTIFACT_BYTES]
    code = process.wait()
    return (128 - code if code < 0 else code), bytes(output)


def main() -> int:
    arguments = sys.argv[1:]
    is_test = arguments[:1] == ["--test"]
    if len(arguments) != 2 + is_test or arguments[-2] != "-c":
        print("usage: recording_shell.py [--test] -c COMMAND", file=sys.stderr)
        return 2
    environment = dict(os.environ)
    url, run, token = (environment.pop(name) for name in ("WORKSPACED_URL", "RUN", "TOKEN"))
    started, clock = datetime.now(UTC), time.monotonic()
    code, output = execute(arguments[-1], environment)
    try:
        Client(url, token).run(run).record_command(
            ["sh", "-c", arguments[-1]],
            code,
            output=output,
            kind="test" if is_test else "command",
            started_at=started.isoformat().replace("+00:00", "Z"),
            duration_micros=int((time.monotonic() - clock) * 1_000_000),
        )
    except WorkspacedError as error:
        print(f"recording_shell.py: the command was not recorded: {error}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
