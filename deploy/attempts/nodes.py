"""The set-up of deploy/nodes/compose.yml as processes: what it says about its nodes is read from it."""
import contextlib
import http.client
import json
import os
import pathlib
import re
import signal
import subprocess
import time

from attempts.machine import PROGRAM, ROOT, TOKEN, Caddy, ComposeDatabase, Server, free_port, until
from attempts.programs import need, need_module, run

COMPOSE = ROOT / "deploy/nodes/compose.yml"
RUN = {"runId": "r", "source": {"type": "empty"}}


def read_yaml(path):
    """Parses a YAML file."""
    return need_module("yaml", pip="PyYAML==6.0.3").safe_load(path.read_text())


def variables_of(file):
    return dict(line.split("=", 1) for line in file.read_text().splitlines() if line)


def variables_of_image():
    """The environment that the image has."""
    block = re.search(r"^ENV ((?:.*\\\n)*.*)", (ROOT / "deploy/Dockerfile").read_text(), re.M)[1]
    return dict(word.split("=", 1) for word in block.replace("\\\n", " ").split())


class Traffic:
    """Calls of one client through the proxy; `call` sends a request."""

    def ok(self, method, path, body=None):
        status, text = self.call(method, path, body)
        if status not in (200, 201):
            raise AssertionError(f"{method} {path}: {status} {text[:300]}")
        return json.loads(text)

    def write(self, number):
        """Writes a file as a client does, which repeats what was refused. Returns how long that took, in seconds."""
        started = time.monotonic()
        body = {"path": f"{number}.txt", "content": f"{number}\n", "reason": "a trial", "toolCallId": f"write-{number}"}
        while True:
            status, text = self.call("POST", "/v1/runs/r/tools/write_file", body)
            if status == 200:
                return time.monotonic() - started
            if status not in (502, 503) or time.monotonic() > started + 30:
                raise AssertionError(f"write {number}: {status} {text[:300]}")
            time.sleep(0.2)

    def owner_url(self):
        """The address of the node that owns the run."""
        nodes = self.ok("GET", "/v1/nodes")["items"]
        urls = [node["url"] for node in nodes if node["isAlive"] and node["ownedRuns"]]
        if len(urls) != 1:
            raise AssertionError(f"the run has the owners {urls}")
        return urls[0]

    def check(self, count):
        """Compares the files with what was written, and verifies the chain."""
        for number in range(count):
            read = self.ok("POST", "/v1/runs/r/tools/read_file", {"path": f"{number}.txt"})
            if f"{number}" not in json.dumps(read):
                raise AssertionError(f"the file {number}.txt is not as it was written: {read}")
        report = self.ok("GET", "/v1/runs/r/audit/verify")
        if not report["intact"]:
            raise AssertionError(f"the chain is broken: {report}")


class NodeSetup(Traffic):
    """PostgreSQL, an object store, the nodes and the proxy."""

    def __init__(self, folder):
        self.folder, self.compose = pathlib.Path(folder), read_yaml(COMPOSE)
        services = self.compose["services"]
        names = [name for name in services if name.startswith("node-")]
        self.store_port = free_port()
        secrets = self.folder / "secrets"
        secrets.mkdir(mode=0o700)
        (secrets / "operator-token").write_text(TOKEN + "\n")
        self.database = ComposeDatabase(folder)
        self.nodes = {}
        for name in names:
            home = self.folder / name
            home.mkdir()
            self.nodes[name] = Server(home, {})
        for name, server in self.nodes.items():
            server.environment = {"PATH": os.environ["PATH"], **self.environment(services[name], server.port)}
        listed = re.search(r"WORKSPACED_UPSTREAMS:([^}]*)}", (COMPOSE.parent / "Caddyfile").read_text())[1].split()
        if listed != [f"{name}:8080" for name in names]:
            raise AssertionError(f"the proxy's nodes are {listed}")
        self.stack = contextlib.ExitStack()

    def environment(self, service, port=0):
        """What the compose file and the image give to a service, with the addresses and the paths of this machine."""
        variables = {**variables_of_image(), **service["environment"]}
        if "env_file" in service:
            variables |= variables_of(self.database.secrets / pathlib.Path(service["env_file"]).name)
        addresses = {f"http://{name}:8080": f"http://127.0.0.1:{node.port}" for name, node in self.nodes.items()}
        addresses |= {"http://objects:3900": f"http://127.0.0.1:{self.store_port}", "0.0.0.0:8080": f"127.0.0.1:{port}"}
        volumes = dict(reversed(volume.split(":")[:2]) for volume in service["volumes"])
        paths = {"/run/secrets": self.database.secrets}
        for path, name in volumes.items():
            paths[path] = self.folder / "volumes" / name
            paths[path].mkdir(parents=True, exist_ok=True)

        def here(value):
            value = re.sub(r"\$\{\w+:-(\w+)\}", r"\1", value)
            value = addresses.get(value, value)
            longest = max((path for path in paths if value == path or value.startswith(path + "/")), key=len, default=None)
            return str(paths[longest]) + value[len(longest):] if longest else value

        return {name: here(value) for name, value in variables.items()}

    def __enter__(self):
        with self.stack as stack:
            stack.enter_context(self.database)
            self.start_store(stack)
            self.migrate()
            self.database.create_role()
            for server in self.nodes.values():
                stack.callback(self.kill, server)
                server.__enter__()
            upstreams = " ".join(f"127.0.0.1:{server.port}" for server in self.nodes.values())
            self.caddy = stack.enter_context(Caddy(self.folder, COMPOSE.parent / "Caddyfile", WORKSPACED_UPSTREAMS=upstreams))
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *_):
        self.stack.close()

    @staticmethod
    def kill(server):
        if hasattr(server, "process"):
            server.process.kill()
            server.process.wait()

    def start_store(self, stack):
        """Starts moto's server in place of the store, with the bucket that the store creates."""
        command = [need("moto_server", pip="moto[server]==5.2.5"), "-H", "127.0.0.1", "-p", str(self.store_port)]
        store = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        stack.callback(store.wait)
        stack.callback(store.kill)
        bucket = self.compose["services"]["objects"]["environment"]["GARAGE_DEFAULT_BUCKET"]

        def create():
            connection = http.client.HTTPConnection("127.0.0.1", self.store_port, timeout=10)
            try:
                connection.request("PUT", f"/{bucket}")
                return connection.getresponse().status == 200
            except OSError:
                return False

        until(create, "the object store does not start", 60)

    def migrate(self):
        """Runs the service `migrate`."""
        migrate = read_yaml(ROOT / "docker-compose.yml")["services"]["migrate"]
        return run(PROGRAM, *migrate["command"], env={**self.environment(migrate), "PATH": os.environ["PATH"]})

    def call(self, method, path, body=None):
        """Sends a request to the proxy."""
        server = next(iter(self.nodes.values()))
        return server.request(method, path, body, self.caddy.tls())

    def owner(self):
        """The node that owns the run."""
        url = self.owner_url()
        return next(server for server in self.nodes.values() if server.environment["WORKSPACED_NODE_URL"] == url)

    def try_failures(self):
        """A run whose owner is killed, and whose next owner is drained, while a client goes on. Returns what was seen."""
        self.ok("POST", "/v1/runs", RUN)
        before = max(self.write(number) for number in range(10))
        killed = self.owner()
        self.kill(killed)
        after_kill = max(self.write(number) for number in range(10, 30))
        if self.owner() is killed:
            raise AssertionError("the killed node owns the run")
        killed.__enter__()
        # The proxy asks every second whether a node is ready.
        time.sleep(3)
        drained = self.owner()
        drained.process.send_signal(signal.SIGTERM)
        in_drain = max(self.write(number) for number in range(30, 60))
        if drained.process.wait(60) != 0:
            raise AssertionError("the drained node did not end with 0")
        if self.owner() is drained:
            raise AssertionError("the drained node owns the run")
        drained.__enter__()
        self.check(60)
        verified = self.migrate()
        if "r: intact" not in verified:
            raise AssertionError(f"offline: {verified}")
        return (f"120 calls, at most {before:.1f} s before, {after_kill:.1f} s over a kill and {in_drain:.1f} s over a drain; "
                "the chain verifies")
