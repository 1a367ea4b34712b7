"""Images and containers, by a Docker daemon of their own: its data, its network and its processes end with it.

Images of others are not downloaded. Debian's packages, with this machine's Rust, stand in for them under their names.
"""
import contextlib
import json
import os
import pathlib
import re
import shutil
import ssl
import subprocess
import time
import http.client

from attempts.machine import PROGRAM, ROOT, Caller, child_of, network_of, until
from attempts.nodes import Traffic
from attempts.programs import NotPossible, create_root, need, need_compose, need_root, run

IMAGES = pathlib.Path(__file__).parent / "images"
DOCKERFILE = ROOT / "deploy/Dockerfile"
COMPILE_SECONDS = 3 * 3600
# As the slim images are set up: without documentation and translations, and apt keeps nothing after an installation.
APT_KEEPS_NOTHING = 'APT::Keep-Downloaded-Packages "false"; Dir::Cache { pkgcache ""; srcpkgcache ""; };'
SLIM = ["--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-include=/usr/share/doc/*/copyright",
        "--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
        f"--customize-hook=rm $1/var/cache/apt/*.bin && echo '{APT_KEEPS_NOTHING}' >$1/etc/apt/apt.conf.d/slim"]


class Daemon:
    """A Docker daemon whose files are in a folder.

    In its first phase, it builds in the network of the machine and changes nothing of it. In its second, it has a network of its
    own, in which containers reach each other and publish their ports.
    """

    def __init__(self, folder):
        need_root()
        need("ip", apt="iproute2")
        self.dockerd = need("dockerd", apt="docker.io")
        need("iptables", apt="iptables")
        # Part of docker.io until Debian 12.
        self.docker = need("docker", apt="docker-cli")
        self.folder = pathlib.Path(folder)
        self.group = f"workspaced-try-{os.getpid()}"
        self.socket = self.folder / "docker.sock"
        (self.folder / "config/cli-plugins").mkdir(parents=True)
        (self.folder / "config/config.json").write_text("{}")
        self.environment = {**os.environ, "DOCKER_HOST": f"unix://{self.socket}", "DOCKER_CONFIG": str(self.folder / "config"),
                            "DOCKER_BUILDKIT": "0"}
        self.process = None
        (self.folder / "config/cli-plugins/docker-compose").symlink_to(need_compose())

    def start(self, *, isolated):
        """Starts the daemon in a process namespace: containers cannot outlive it."""
        network = ["--net"] if isolated else []
        options = [] if isolated else ["--bridge=none", "--iptables=false", "--ip-forward=false", "--ip-masq=false"]
        command = ["unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--propagation=private", *network,
                   "/bin/sh", "-c", 'ip link set lo up; exec "$0" "$@"',
                   self.dockerd, "--exec-opt=native.cgroupdriver=cgroupfs", f"--cgroup-parent=/{self.group}",
                   f"--data-root={self.folder}/data", f"--exec-root={self.folder}/exec", f"--pidfile={self.folder}/pid",
                   f"--host=unix://{self.socket}", *options]
        self.log = open(self.folder / "log", "ab")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, start_new_session=True)
        until(self.answers, "the Docker daemon does not start", 60)
        self.init = child_of(self.process.pid)

    def answers(self):
        if self.process.poll() is not None:
            raise NotPossible("no Docker daemon runs here: " + (self.folder / "log").read_text().strip().splitlines()[-1][-300:])
        return subprocess.run([self.docker, "version"], env=self.environment, capture_output=True).returncode == 0

    def stop(self):
        if not self.process:
            return
        with contextlib.suppress(OSError, TypeError):
            os.kill(child_of(self.process.pid), 15)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        self.process = None

    def remove(self):
        """Removes what the daemon has outside of its folder: the groups of its processes."""
        for group in pathlib.Path("/sys/fs/cgroup").glob(f"**/{self.group}"):
            for below, _, _ in os.walk(group, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(below)

    def run(self, *arguments, **options):
        return run(self.docker, *arguments, env=self.environment, **options)

    def build(self, name, context, *arguments, **options):
        return self.run("build", "--quiet", "--network=host", f"--tag={name}", *arguments, context, **options)


def image_of(file, pattern):
    """Returns the name of an image in a file of the deployment."""
    return re.search(rf"(?:FROM|image:) ({pattern}\S*)", (ROOT / file).read_text())[1]


class Images:
    """The image of the service, and stand-ins for those that it and the compose files name."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.base = image_of("deploy/Dockerfile", "debian:")
        self.rust = image_of("deploy/Dockerfile", "rust:")

    def build_base(self):
        archive = self.daemon.folder / "base.tar"
        create_root(archive, re.search(r"debian:(\w+)", self.base)[1], "--include=ca-certificates", *SLIM)
        self.daemon.run("import", archive, self.base)
        archive.unlink()

    def build_stand_in(self, kind, name):
        self.daemon.build(name, IMAGES, f"--file={IMAGES}/{kind}.Dockerfile", f"--build-arg=BASE={self.base}")

    def build_rust(self):
        context = self.daemon.folder / "rust"
        toolchain = pathlib.Path(run(need("rustc"), "--print", "sysroot").strip())
        for part in ("bin", "lib", "libexec"):
            if (toolchain / part).exists():
                shutil.copytree(toolchain / part, context / "toolchain" / part, symlinks=True)
        (context / "registry").mkdir()
        registry = pathlib.Path(os.environ.get("CARGO_HOME", pathlib.Path.home() / ".cargo")) / "registry"
        for part in ("cache", "index"):
            if (registry / part).exists():
                shutil.copytree(registry / part, context / "registry" / part)
        self.daemon.build(self.rust, context, f"--file={IMAGES}/rust.Dockerfile", f"--build-arg=BASE={self.base}")
        shutil.rmtree(context)

    def build_service(self, *, given_program):
        """Builds the image of the service. A given program replaces the one that the first stage compiles."""
        if not given_program:
            self.build_rust()
            started = time.monotonic()
            self.daemon.build("workspaced", ROOT, f"--file={DOCKERFILE}", timeout=COMPILE_SECONDS)
            how = f"compiled in {(time.monotonic() - started) / 60:.0f} min"
        else:
            shim = PROGRAM.with_name("workspaced-shim")
            if not shim.exists():
                raise AssertionError(f"{shim.name} is not beside {PROGRAM.name}: build it with `cargo build -p shim` and the same profile")
            context = self.daemon.folder / "given"
            built = context / "src/target/dist"
            built.mkdir(parents=True)
            shutil.copy(PROGRAM, built / "workspaced")
            shutil.copy(shim, built)
            last_stage = DOCKERFILE.read_text().split(f"FROM {self.base}\n")[1]
            (context / "Dockerfile").write_text(f"FROM {self.base} AS build\nCOPY src /src\nFROM {self.base}\n" + last_stage)
            self.daemon.build("workspaced", context)
            shutil.rmtree(context)
            how = "with the given program"
        size = int(self.daemon.run("image", "inspect", "-f", "{{.Size}}", "workspaced"))
        return f"{how}, {size / 1e6:.0f} MB"


class Composition:
    """A compose file in a copy of what it names, with secrets of its own."""

    def __init__(self, daemon, file):
        self.daemon, self.copy = daemon, daemon.folder / "copy"
        if not self.copy.exists():
            shutil.copytree(ROOT / "deploy", self.copy / "deploy", ignore=shutil.ignore_patterns("__pycache__"))
            shutil.copy(ROOT / "docker-compose.yml", self.copy)
            run(self.copy / "deploy/secrets")
        self.file = self.copy / file

    def __enter__(self):
        self.run("config", "--quiet")
        try:
            self.run("up", "--wait", "--no-build")
        except BaseException as error:
            self.__exit__(type(error), error)
            raise
        return self

    def __exit__(self, _, error, *rest):
        try:
            if isinstance(error, AssertionError):
                error.args = (f"{error}\n{self.run('logs', '--no-color', '--tail=5')[-4000:]}",)
        finally:
            self.run("down", "--volumes", "--timeout=20")

    def run(self, *arguments):
        return self.daemon.run("compose", f"--file={self.file}", *arguments)

    def secret(self, name):
        return (self.copy / "secrets" / name).read_text().strip()


def try_single(daemon):
    """Starts the compose file, uses the service, upgrades it and makes a backup. Returns what was seen."""
    with Composition(daemon, "docker-compose.yml") as composition, network_of(daemon.init):
        service = Caller(8080, composition.secret("operator-token"))
        service.work()
        service.ok("POST", "/v1/runs", {"runId": "h", "source": {"type": "empty"}})
        composition.run("up", "--wait", "--no-build", "--force-recreate", "workspaced", "migrate", "roles")
        service.has_worked()
        user = composition.run("exec", "-T", "workspaced", "id", "-u").strip()
        if user != "10001":
            raise AssertionError(f"the service runs as {user}")
        # Nothing listens there: git has loaded what it needs for HTTPS.
        fetched = composition.run("exec", "-T", "workspaced", "sh", "-c", "git ls-remote https://127.0.0.1:1 2>&1 || true")
        if "to connect to 127.0.0.1" not in fetched:
            raise AssertionError(f"git cannot fetch over HTTPS: {fetched}")
        backups = daemon.folder / "backups"
        backups.mkdir()
        os.chown(backups, 10001, 10001)
        composition.run("run", "--rm", "-v", f"{backups}:/backups", "migrate", "backup", "/backups", "--include-key")
        if not any(backups.iterdir()):
            raise AssertionError("the backup is empty")
    return "up --wait, calls, an upgrade in place and a backup"


class ComposedTraffic(Traffic):
    """Calls through the proxy of the compose file of several nodes."""

    def __init__(self, composition, authority):
        self.service = Caller(8080, composition.secret("operator-token"))
        self.context = ssl.create_default_context(cafile=authority)

    def call(self, method, path, body=None):
        connection = http.client.HTTPSConnection("localhost", 443, timeout=60, context=self.context)
        return self.service.request(method, path, body, connection)


def try_nodes(daemon):
    """Starts the compose file of several nodes and replaces one after the other under calls. Returns what was seen."""
    authority = daemon.folder / "authority.crt"
    with Composition(daemon, "deploy/nodes/compose.yml") as composition, network_of(daemon.init):
        source = "proxy:/data/caddy/pki/authorities/local/root.crt"
        until(lambda: composition_copies(composition, source, authority), "the proxy has no certificate")
        traffic = ComposedTraffic(composition, authority)
        services = json.loads(composition.run("config", "--format", "json"))["services"]
        nodes = sorted(name for name in services if name.startswith("node-"))
        traffic.ok("POST", "/v1/runs", {"runId": "r", "source": {"type": "empty"}})
        waits = [traffic.write(number) for number in range(10)]
        before, number, owners = max(waits), 10, []
        for name in nodes:
            command = [daemon.docker, "compose", f"--file={composition.file}", "up", "--wait", "--no-build", "--no-deps",
                       "--force-recreate", name]
            replacing = subprocess.Popen(command, env=daemon.environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            done = number + 10
            while replacing.poll() is None or number < done:
                waits.append(traffic.write(number))
                number += 1
                time.sleep(0.05)
            if replacing.returncode != 0:
                raise AssertionError(f"{name} is not replaced: {replacing.stderr.read().decode()[-1000:]}")
            # The proxy asks every second whether a node is ready.
            time.sleep(3)
            owners.append(traffic.owner_url())
        traffic.check(number)
    return (f"{len(nodes)} nodes replaced one after the other under {number} writes: at most {before:.1f} s before, "
            f"{max(waits):.1f} s meanwhile; owners of the run {', '.join(owners)}; the chain verifies")


def composition_copies(composition, source, target):
    with contextlib.suppress(AssertionError):
        composition.run("cp", source, target)
    return target.exists()
