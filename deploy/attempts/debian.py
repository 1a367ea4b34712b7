"""Debian from its package archive: file systems by mmdebstrap, and single packages."""
import os
import pathlib
import re

from attempts.machine import NotPossible, need, run

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


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


def create_root(target, suite, *packages):
    """Creates a minimal file system in a folder or a tar file."""
    need_root()
    include = ["--include=" + ",".join(packages)] if packages else []
    run(need("mmdebstrap"), "--quiet", "--variant=minbase", "--mode=root", *include, suite, target, source(suite))


def unpack_package(folder, suite, name):
    """Downloads a package and unpacks it into a folder, without installing it."""
    folder = pathlib.Path(folder)
    for part in ("lists/partial", "cache/archives/partial"):
        (folder / part).mkdir(parents=True)
    (folder / "sources.list").write_text(source(suite) + "\n")
    options = ["-o", f"Dir::Etc::SourceList={folder}/sources.list", "-o", "Dir::Etc::SourceParts=/dev/null",
               "-o", f"Dir::State::Lists={folder}/lists", "-o", f"Dir::Cache={folder}/cache", "-o", "APT::Sandbox::User=root"]
    run(need("apt-get"), *options, "update", cwd=folder)
    run("apt-get", *options, "download", name, cwd=folder)
    run("dpkg", "-x", next(folder.glob("*.deb")), folder / "root")
    return folder / "root"
