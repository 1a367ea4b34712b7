"""The server under test: the one of WORKSPACED_URL with its OPERATOR, or one that is started from the program WORKSPACED_BIN."""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import subprocess
import tempfile
from pathlib import Path

import httpx

from workspaced import Client, Run
from workspaced.types import PolicyOverrides


def start() -> tuple[str, str]:
    if "WORKSPACED_URL" in os.environ:
        return os.environ["WORKSPACED_URL"], os.environ["OPERATOR"]
    token = secrets.token_hex(32)
    folder = tempfile.mkdtemp(prefix="workspaced-client-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    environment = {**os.environ, "WORKSPACED_OPERATOR_TOKEN": token}
    command = [os.environ["WORKSPACED_BIN"], "serve", "--listen", "127.0.0.1:0", "--data-dir", f"{folder}/data"]
    with open(f"{folder}/log", "wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
    atexit.register(process.wait)
    atexit.register(process.terminate)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("listening on "), Path(folder, "log").read_text()
    return line.removeprefix("listening on ").strip(), token


URL, OPERATOR = start()


class Unreliable(httpx.BaseTransport):
    """Executes requests, but loses the answers of some, or answers some with a status of its own."""

    def __init__(self, failures: list[int | None]) -> None:
        # For each request in turn: None loses the answer, 200 returns it, another status replaces it.
        self.failures, self.requests = failures, list[httpx.Request]()
        self.real = httpx.HTTPTransport(verify=False)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        failure = self.failures.pop(0) if self.failures else 200
        if failure in (200, None):
            response = self.real.handle_request(request)
            if failure == 200:
                return response
            response.close()
            raise httpx.ReadError("the answer was lost", request=request)
        return httpx.Response(failure or 500, headers={"Retry-After": "0"}, json={"code": "UNAVAILABLE"}, request=request)


def operator(failures: list[int | None] | None = None) -> Client:
    http = httpx.Client(transport=Unreliable(failures or []), timeout=60.0)
    return Client(URL, OPERATOR, http=http)


def requests(client: Client) -> list[httpx.Request]:
    transport = client.transport.http._transport
    assert isinstance(transport, Unreliable)
    return transport.requests


def agent(files: dict[str, str] | None = None, policy: PolicyOverrides | None = None) -> tuple[Run, Run]:
    """Returns a new run with these files, as its operator and as its agent."""
    client = operator()
    run, token = client.create_run(policy=policy)
    for path, content in (files or {}).items():
        run.create_file(path, content.encode(), "the files that the test begins with")
    return run, client.agent(run.id, token["token"])
