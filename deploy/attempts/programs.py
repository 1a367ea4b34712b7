"""Programs that the attempts need, and file systems of Debian.

What the machine lacks is unpacked from packages of Debian or PyPI into a temporary folder. No package is installed, so that no
service starts and the machine stays as it is.
"""
import atexit
import functools
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


class NotPossible(Exception):
    """The machine lacks what the attempt needs."""


def run(*command, timeout=600, **options):
    """Runs a command and returns its output; fails with the output if the command fails."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=timeout, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command[0]}: exit code {done.returncode}: {(done.stderr or done.stdout).strip()[-2000:]}")
    return done.stdout


def need(program, *, apt=None, pip=None):
    """Returns the path of a program. If the machine lacks it, the package `apt` of Debian or `pip` of PyPI provides it."""
    return find(program, shutil.which, apt or pip, unpack if apt else unpack_python)


def need_module(name, *, pip):
    """Returns a module of Python. If the machine lacks it, the package `pip` of PyPI provides it."""
    find(name, importlib.util.find_spec, pip, unpack_python)
    return importlib.import_module(name)


def find(name, search, package, unpack_package):
    """Returns what a search finds, the second time after the package is unpacked."""
    if not search(name) and package:
        print(f"== {name} is missing: unpacking {package} into a temporary folder", flush=True)
        try:
            unpack_package(package)
        except (AssertionError, OSError) as error:
            raise NotPossible(f"{name} is not installed, and {package} cannot be unpacked: {error}") from error
    found = search(name)
    if not found:
        raise NotPossible(f"{name} is not installed")
    return found


def append(variable, folders):
    """Appends folders to a variable such as PATH."""
    present = os.environ[variable].split(":") if variable in os.environ else []
    added = [str(folder) for folder in folders if str(folder) not in present]
    if added:
        os.environ[variable] = ":".join(present + added)


def append_programs(root):
    """Appends the folders of a root's programs to PATH. Debian keeps those of PostgreSQL in a folder of their own."""
    append("PATH", sorted(root.glob("usr/lib/postgresql/*/bin"), reverse=True))
    append("PATH", [root / name for name in ("usr/sbin", "usr/bin", "sbin", "bin")])


append_programs(pathlib.Path("/"))
# Docker's client finds its plugins here, without PATH.
PLUGINS = ["/usr/local/lib/docker/cli-plugins", "/usr/libexec/docker/cli-plugins", "/usr/lib/docker/cli-plugins"]
# The docker-compose of Debian 12 is another program.
SUITE_OF_COMPOSE = "trixie"
TEMPORARY = []


def need_compose():
    """Returns the path of Docker Compose, a plugin that runs alone, too."""
    def unpack_compose(package):
        PLUGINS.append(str(unpack_alone(package, SUITE_OF_COMPOSE) / "usr/libexec/docker/cli-plugins"))

    return find("docker-compose", lambda name: shutil.which(name, path=":".join(PLUGINS)), "docker-compose", unpack_compose)


def folder_of(package):
    """Returns a folder for a package below one that is removed at the end. PostgreSQL runs from it as another user."""
    if not TEMPORARY:
        TEMPORARY.append(pathlib.Path(tempfile.mkdtemp(prefix="workspaced-programs-")))
        TEMPORARY[0].chmod(0o755)
        atexit.register(shutil.rmtree, TEMPORARY[0], ignore_errors=True)
    return TEMPORARY[0] / package


@functools.cache
def unpack(package):
    """Unpacks a package of this machine's Debian, with the dependencies that the machine lacks. PATH gets its programs."""
    root = unpack_archives(package, [], "install", "--download-only", "--yes", "--no-install-recommends")
    append_programs(root)
    libraries = [*root.glob("usr/lib/*-linux-*"), *root.glob("lib/*-linux-*")]
    append("LD_LIBRARY_PATH", [*libraries, *(folder / "systemd" for folder in libraries)])
    append("XTABLES_LIBDIR", root.glob("usr/lib/*/xtables"))
    # An installation of iptables makes these links.
    for program in root.glob("usr/sbin/*tables-nft*"):
        program.with_name(program.name.replace("-nft", "")).symlink_to(program.name)
    return root


def unpack_alone(package, suite):
    """Unpacks a package of another Debian, without its dependencies. Returns the root."""
    sources = folder_of(package) / "sources.list"
    sources.parent.mkdir()
    sources.write_text(source(suite) + "\n")
    return unpack_archives(package, [f"Dir::Etc::SourceList={sources}", "Dir::Etc::SourceParts=/dev/null"], "download")


def unpack_archives(package, settings, *command):
    """Downloads packages by a command of apt-get, which keeps its state in a folder of its own, and unpacks them."""
    need("apt-get")
    folder = folder_of(package)
    archives = folder / "cache/archives"
    for path in (folder / "lists/partial", archives / "partial"):
        path.mkdir(parents=True)
    settings += [f"Dir::State::Lists={folder}/lists", f"Dir::Cache={folder}/cache", "Debug::NoLocking=1", "APT::Sandbox::User=root"]
    options = [word for setting in settings for word in ("-o", setting)]
    run("apt-get", *options, "update")
    run("apt-get", *options, *command, package, cwd=archives)
    for archive in archives.glob("*.deb"):
        run("dpkg", "-x", archive, folder / "root")
    return folder / "root"


def unpack_python(packages):
    """Installs packages of PyPI into an environment of their own. PATH gets their programs, this Python their modules."""
    environment = folder_of(packages.split()[0])
    run(sys.executable, "-m", "venv", "--without-pip", environment)
    modules = {}
    if subprocess.run([sys.executable, "-m", "pip", "--version"], capture_output=True).returncode != 0:
        modules = {"PYTHONPATH": str(unpack("python3-pip") / "usr/lib/python3/dist-packages")}
    run(sys.executable, "-m", "pip", "--python", environment / "bin/python", "install", "--quiet", *packages.split(),
        env={**os.environ, **modules})
    append("PATH", [environment / "bin"])
    sys.path.extend(map(str, environment.glob("lib/python*/site-packages")))
    importlib.invalidate_caches()


def source(suite):
    """Returns the line of a source of packages, from the mirror that this machine uses."""
    files = [pathlib.Path("/etc/apt/sources.list"), *sorted(pathlib.Path("/etc/apt/sources.list.d").glob("*.*"))]
    found = (re.search(r"https?://\S+/debian/?(?=\s)", file.read_text()) for file in files if file.exists())
    mirror = next((match[0] for match in found if match), None)
    if not mirror or not pathlib.Path(KEYRING).exists():
        raise NotPossible("this machine has no source of Debian packages")
    return f"deb [signed-by={KEYRING}] {mirror} {suite} main"


def own_suite():
    return re.search(r"^VERSION_CODENAME=(\w+)", pathlib.Path("/etc/os-release").read_text(), re.M)[1]


def need_root():
    if os.getuid() != 0:
        raise NotPossible("it needs root")


def create_root(target, suite, *options):
    """Creates a minimal file system in a folder or a tar file."""
    need_root()
    run(need("mmdebstrap", apt="mmdebstrap"), "--quiet", "--variant=minbase", "--mode=root", *options, suite, target, source(suite))
