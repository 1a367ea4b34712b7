"""Programs of this machine, started on loopback for a moment, in temporary folders."""
import contextlib
import ctypes
import hashlib
import http.client
import json
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import sys
import time

from attempts.programs import need, run

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TOKEN = "5c1e8d0b7f" * 6


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def until(is_done, what, seconds=30):
    deadline = time.monotonic() + seconds
    while not is_done():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {seconds} s")
        time.sleep(0.1)


def child_of(process):
    """Returns the process ID of the only child of a process, or None."""
    children = pathlib.Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return int(children[0]) if children else None


@contextlib.contextmanager
def network_of(process):
    """Opens the connections of this thread in the network of another process."""
    libc = ctypes.CDLL(None, use_errno=True)

    def enter(namespace):
        if libc.setns(namespace.fileno(), 0x40000000) != 0:  # CLONE_NEWNET
            raise OSError(ctypes.get_errno(), "setns")

    with open("/proc/thread-self/ns/net") as own, open(f"/proc/{process}/ns/net") as other:
        enter(other)
        try:
            yield
        finally:
            enter(own)


class Caller:
    """An operator of a service that somebody else starts."""

    def __init__(self, port, token):
        self.port, self.token = port, token

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def request(self, method, path, body=None, connection=None):
        connection = connection or self.connect()
        headers = {"Authorization": "Bearer " + self.token, "Content-Type": "application/json"}
        connection.request(method, path, json.dumps(body) if body is not None else None, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()

    def ok(self, method, path, body=None, connection=None):
        status, text = self.request(method, path, body, connection)
        if status not in (200, 201):
            raise AssertionError(f"{method} {path}: {status} {text[:300]}")
        return text

    def work(self):
        """A run, a write, a read, a search, an export."""
        self.ok("POST", "/v1/runs", {"runId": "r", "source": {"type": "empty"}})
        write = {"path": "a.txt", "content": "a\n", "reason": "a trial", "mode": "CREATE_NEW"}
        self.ok("POST", "/v1/runs/r/tools/write_file", write)
        self.ok("POST", "/v1/runs/r/tools/read_file", {"path": "a.txt"})
        self.ok("POST", "/v1/runs/r/tools/search_text", {"query": "a"})
        self.ok("GET", "/v1/runs/r/archive")

    def has_worked(self):
        """Checks what `work` has left."""
        if b"intact" not in self.ok("GET", "/v1/runs/r/audit/verify"):
            raise AssertionError("the chain does not verify")
        if hashlib.sha256(b"a\n").hexdigest().encode() not in self.ok("POST", "/v1/runs/r/tools/read_file", {"path": "a.txt"}):
            raise AssertionError("the file is not as it was written")


class Server(Caller):
    """The service in a folder, with its key and its checkpoint log in folders of their own, as in the image."""

    def __init__(self, folder, environment, wrapper=()):
        super().__init__(free_port(), TOKEN)
        self.folder = pathlib.Path(folder)
        for name in ("data", "key", "log"):
            (self.folder / name).mkdir(exist_ok=True)
        token = self.folder / "operator-token"
        token.write_text(TOKEN + "\n")
        inherited = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
        self.environment = {
            **inherited, "WORKSPACED_DATA_DIR": str(self.folder / "data"),
            "WORKSPACED_CHECKPOINT_KEY_FILE": str(self.folder / "key/checkpoint.key"),
            "WORKSPACED_CHECKPOINT_FILE": str(self.folder / "log/checkpoints.log"),
            "WORKSPACED_LISTEN": f"127.0.0.1:{self.port}", "WORKSPACED_OPERATOR_TOKEN_FILE": str(token), **environment,
        }
        self.wrapper = list(wrapper)

    def __enter__(self):
        with open(self.folder / "service.log", "a") as log:
            self.process = subprocess.Popen([*self.wrapper, PROGRAM, "serve"], env=self.environment, stdout=log, stderr=log)
        until(self.is_ready, f"the service is not ready: {(self.folder / 'service.log').read_text()[-500:]}", 60)
        return self

    def __exit__(self, *_):
        if self.wrapper:
            os.kill(child_of(self.process.pid), 15)
        else:
            self.process.terminate()
        if self.process.wait(60) != 0:
            raise AssertionError("the service did not end with 0")

    def is_ready(self):
        if self.process.poll() is not None:
            raise AssertionError(f"the service ended: {(self.folder / 'service.log').read_text()[-500:]}")
        try:
            return self.request("GET", "/readyz")[0] == 200
        except OSError:
            return False


def program():
    named = [word for word in sys.argv[1:] if not word.startswith("--")]
    if named:
        return pathlib.Path(named[0]).resolve()
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    built = list(target.glob("*/workspaced"))
    if not built:
        sys.exit("no workspaced in target: build it with `cargo build --profile dist --locked -p workspaced --features otlp,object-store`, or name a program")
    return max(built, key=lambda path: path.stat().st_mtime)


PROGRAM = program()


class Cluster:
    """A PostgreSQL cluster with passwords, on loopback."""

    def __init__(self, folder, password_file):
        self.bin = pathlib.Path(need("initdb", apt="postgresql")).parent
        self.data, self.port = pathlib.Path(folder) / "cluster", free_port()
        # initdb refuses to run as root.
        self.user = {"user": "nobody", "cwd": "/"} if os.getuid() == 0 else {}
        if self.user:
            os.chmod(folder, 0o755)
            self.data.mkdir()
            shutil.chown(self.data, "nobody")
        self.run("initdb", "-D", self.data, "-U", "postgres", "-A", "scram-sha-256", "--pwfile", password_file, "--no-sync")

    def run(self, name, *arguments):
        done = subprocess.run([self.bin / name, *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                              timeout=120, **self.user)
        if done.returncode != 0:
            raise AssertionError(f"{name}: {done.stderr.decode()[-500:]}")

    def __enter__(self):
        options = f"-c listen_addresses=127.0.0.1 -c port={self.port} -c unix_socket_directories='' -c fsync=off"
        self.run("pg_ctl", "-D", self.data, "-w", "-l", self.data / "log", "-o", options, "start")
        return self

    def __exit__(self, *_):
        self.run("pg_ctl", "-D", self.data, "-w", "-m", "immediate", "stop")


class ComposeDatabase:
    """PostgreSQL as the compose files set it up, with their secrets."""

    def __init__(self, folder):
        self.secrets = pathlib.Path(folder) / "secrets"
        run(ROOT / "deploy/secrets", self.secrets)
        # The user of the cluster reads the password's file, as the container does.
        os.chmod(self.secrets, 0o755)
        self.cluster = Cluster(folder, self.secrets / "superuser-password")
        self.superuser = {**os.environ, "PGHOST": "127.0.0.1", "PGPORT": str(self.cluster.port),
                          "PGPASSWORD": self.secret("superuser-password")}

    def __enter__(self):
        for name in ("owner-url", "service-url"):
            url = self.secret(name).replace("@postgres:5432", f"@127.0.0.1:{self.cluster.port}")
            (self.secrets / name).write_text(url + "\n")
        self.cluster.__enter__()
        run(ROOT / "deploy/postgres/owner.sh", env={**self.superuser, "OWNER_PASSWORD_FILE": str(self.secrets / "owner-password")})
        return self

    def __exit__(self, *_):
        self.cluster.__exit__()

    def secret(self, name):
        return (self.secrets / name).read_text().strip()

    def create_role(self):
        """Creates the role of the service, after the tables."""
        run(ROOT / "deploy/postgres/service.sh", ROOT / "deploy/roles.sql", env={
            **os.environ, "OWNER_URL_FILE": str(self.secrets / "owner-url"),
            "SERVICE_PASSWORD_FILE": str(self.secrets / "service-password")})


class Caddy:
    """Caddy on loopback, with a Caddyfile of this folder and a certificate of its own."""

    def __init__(self, folder, file, **variables):
        self.caddy, self.folder, self.https_port = need("caddy", apt="caddy"), str(folder), free_port()
        self.command = ["--adapter", "caddyfile", "--config", str(file)]
        self.environment = {
            "PATH": os.environ["PATH"], "HOME": self.folder, "XDG_DATA_HOME": self.folder + "/caddy",
            "XDG_CONFIG_HOME": self.folder + "/caddy", "WORKSPACED_HTTP_PORT": str(free_port()),
            "WORKSPACED_HTTPS_PORT": str(self.https_port), **variables,
        }

    def __enter__(self):
        run(self.caddy, "validate", *self.command, env=self.environment)
        with open(self.folder + "/caddy.log", "w") as log:
            self.process = subprocess.Popen([self.caddy, "run", *self.command], env=self.environment, stdout=log, stderr=log)
        authority = pathlib.Path(self.folder) / "caddy/caddy/pki/authorities/local/root.crt"
        try:
            until(authority.exists, "Caddy's certificate")
            self.context = ssl.create_default_context(cafile=str(authority))
            until(self.answers, "Caddy does not answer")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def tls(self):
        return http.client.HTTPSConnection("localhost", self.https_port, timeout=30, context=self.context)

    def answers(self):
        try:
            connection = self.tls()
            connection.request("GET", "/healthz")
            return connection.getresponse().status == 200
        except OSError:
            return False


class Nginx:
    """nginx on loopback, with the configuration of this folder and a certificate of its own."""

    def __init__(self, folder, upstream_port):
        self.nginx, self.folder, self.https_port = need("nginx", apt="nginx"), pathlib.Path(folder), free_port()
        key, certificate = self.folder / "nginx.key", self.folder / "nginx.crt"
        run(need("openssl", apt="openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
            "-addext", "subjectAltName=DNS:localhost", "-keyout", key, "-out", certificate)
        text = (ROOT / "deploy/nginx.conf").read_text()
        for old, new in {
            "listen 443 ": f"listen 127.0.0.1:{self.https_port} ", "server 127.0.0.1:8080": f"server 127.0.0.1:{upstream_port}",
            "workspaced.example.org": "localhost", "/etc/ssl/workspaced.crt": str(certificate), "/etc/ssl/workspaced.key": str(key),
        }.items():
            if old not in text:
                raise AssertionError(f"deploy/nginx.conf has no `{old}`")
            text = text.replace(old, new)
        (self.folder / "site.conf").write_text(text)
        temporary = "".join(f"{kind}_temp_path {self.folder}/{kind};\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        self.file = self.folder / "nginx.conf"
        self.file.write_text(f"daemon off; pid {self.folder}/nginx.pid; error_log {self.folder}/nginx.log; events {{}}\n"
                             + ("user root;\n" if os.getuid() == 0 else "")
                             + f"http {{ access_log off;\n{temporary}include {self.folder}/site.conf; }}\n")
        self.context = ssl.create_default_context(cafile=str(certificate))
        self.certificate = certificate

    def __enter__(self):
        run(self.nginx, "-t", "-q", "-p", self.folder, "-e", self.folder / "nginx.log", "-c", self.file)
        self.process = subprocess.Popen([self.nginx, "-p", self.folder, "-e", self.folder / "nginx.log", "-c", self.file])
        try:
            until(self.answers, "nginx does not answer")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def tls(self):
        return http.client.HTTPSConnection("localhost", self.https_port, timeout=30, context=self.context)

    def answers(self):
        try:
            connection = self.tls()
            connection.request("GET", "/healthz")
            return connection.getresponse().status == 200
        except OSError:
            return False
