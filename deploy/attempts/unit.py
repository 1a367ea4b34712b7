"""The systemd unit, installed as its first lines say and started by a systemd that has booted in a container."""
import os
import pathlib
import shutil
import subprocess
import time

from attempts.machine import PROGRAM, ROOT, Caller, child_of, network_of, until
from attempts.programs import create_root, need, own_suite, run

UNIT = "deploy/workspaced.service"
# systemd-nspawn's own filter lacks them.
ALLOWED = "landlock_create_ruleset landlock_add_rule landlock_restrict_self openat2 renameat2"
RUN_FROM_GIT = {"runId": "g", "source": {"type": "git", "url": "/srv/import/repository"}}


class Machine:
    """A booted system in a folder, with a network of its own."""

    def __init__(self, folder):
        self.nspawn = need("systemd-nspawn", apt="systemd-container")
        self.root = pathlib.Path(folder) / "root"
        create_root(self.root, own_suite(), "--include=systemd,systemd-sysv,dbus,git,openssl")
        self.name = f"workspaced-try-{os.getpid()}"

    def __enter__(self):
        command = [self.nspawn, "--boot", "--quiet", "--directory", self.root, "--machine", self.name, "--register=no", "--keep-unit",
                   "--private-network", "--link-journal=no", "--console=pipe", "--system-call-filter=" + ALLOWED]
        self.log = open(self.root.parent / "console", "wb")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, start_new_session=True)
        try:
            until(self.is_running, "systemd does not boot", 120)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()

    def is_running(self):
        if self.process.poll() is not None:
            raise AssertionError("systemd-nspawn ended: " + (self.root.parent / "console").read_text()[-500:])
        self.init = child_of(self.process.pid)
        if not self.init:
            return False
        state = subprocess.run([*self.enter(), "systemctl", "is-system-running"], capture_output=True, text=True).stdout.strip()
        return state in ("running", "degraded")

    def enter(self):
        return ["nsenter", "--all", "--target", str(self.init)]

    def run(self, command):
        return run(*self.enter(), "/bin/sh", "-c", command)

    def property(self, name):
        return self.run(f"systemctl show --property {name} --value workspaced").strip()


def installation():
    """Returns the commands of the unit's first lines."""
    lines = (ROOT / UNIT).read_text().splitlines()
    return [line.removeprefix("#   ") for line in lines if line.startswith("#   ")]


def try_unit(folder):
    """Installs, starts, uses, reloads, kills, restarts and stops the service. Returns what was seen."""
    with Machine(folder) as machine:
        sources = machine.root / "source"
        (sources / "target/release").mkdir(parents=True)
        (sources / "deploy").mkdir()
        shutil.copy(PROGRAM, sources / "target/release/workspaced")
        shutil.copy(ROOT / UNIT, sources / UNIT)
        prepare_import(machine)
        for command in installation():
            machine.run("cd /source && " + command)
        service = Caller(8080, (machine.root / "etc/workspaced/operator-token").read_text().strip())
        with network_of(machine.init):
            await_ready(machine, service)
            service.work()
            service.ok("POST", "/v1/runs", RUN_FROM_GIT)
            machine.run("systemctl reload workspaced")
            until(lambda: "were read again" in machine.run("journalctl -u workspaced"), "a reload does nothing")
            before = machine.property("MainPID")
            machine.run("systemctl kill --signal KILL workspaced")
            until(lambda: machine.property("MainPID") not in ("0", before), "the service is not started again")
            await_ready(machine, service)
            service.has_worked()
            started = time.monotonic()
            machine.run("systemctl stop workspaced")
            stopped = time.monotonic() - started
        if machine.property("Result") != "success":
            raise AssertionError("the service did not stop cleanly: " + machine.property("Result"))
        version = machine.run("systemctl --version").splitlines()[0]
    return f"{version}: installed, started, used, reloaded, killed, restarted; stopped in {stopped:.1f} s"


def prepare_import(machine):
    """A git repository that the service may import, by a drop-in as the unit describes it."""
    drop_in = machine.root / "etc/systemd/system/workspaced.service.d"
    drop_in.mkdir(parents=True)
    lines = ["[Service]", "Environment=WORKSPACED_IMPORT_ROOTS=/srv/import", "ReadOnlyPaths=/srv/import"]
    (drop_in / "override.conf").write_text("\n".join(lines) + "\n")
    git = "git -C /srv/import/repository -c user.name=t -c user.email=t@example.org"
    machine.run(f"mkdir -p /srv/import && git init -q /srv/import/repository && {git} commit -q --allow-empty -m first")


def await_ready(machine, service):
    def is_ready():
        if machine.property("ActiveState") == "failed":
            raise AssertionError("the unit failed: " + machine.run("journalctl --no-pager -o cat -n 8 -u workspaced"))
        try:
            return service.request("GET", "/readyz")[0] == 200
        except OSError:
            return False

    until(is_ready, "the service is not ready", 60)
