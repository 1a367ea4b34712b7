"""Does with the two packages what their README says: builds them, and for each example installs what its command names into an empty
folder and runs it as it stands.

    python try_packages.py [--offline NODE_MODULES] [python | typescript]

`WORKSPACED_URL` and `OPERATOR` name a service that runs, such as one that `deploy/quickstart` has started, and the program `workspaced` is
on the PATH. A scripted model on loopback is in the place of the providers. Without registries (`--offline`), the packages that a command names beside ours are those of this
interpreter's environment and of NODE_MODULES: of Python, an example finds those alone that the command would install.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

CLIENTS = Path(__file__).resolve().parent
sys.path.insert(0, str(CLIENTS.parent.parent / "crates/workspaced/tests/clients"))

from model_server import Model  # noqa: E402

# What the model of each example writes, and how the patch that the example prints has it.
WRITES = {"python": ("primes.py", "print(2, 3, 5)\n"), "typescript": ("primes.js", "console.log(2, 3, 5);\n")}
FENCE = {"python": "python", "typescript": "ts"}
# How README packs the package of TypeScript, and names the file: npm would link a folder, sooner or later.
PACK, PACKED = "npm pack ./openapi/clients/typescript", "./workspaced-client-*.tgz"


def run(command: list[str], folder: Path, **environment: str) -> str:
    """Runs a command that must succeed, and returns what it prints."""
    done = subprocess.run(command, cwd=folder, env={**os.environ, **environment}, text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def examples(language: str) -> list[tuple[str, str, str | None]]:
    """The examples of README: the command that installs what each needs, the example, and what it says that it prints."""
    readme = (CLIENTS / language / "README.md").read_text()
    # A block of text that follows an example at once is what it prints.
    blocks = re.findall(r"^```(\w+)\n(.*?)^```\n(?:\n```text\n((?!pip |npm ).*?)^```\n)?", readme, re.M | re.S)
    found, install = list[tuple[str, str, str | None]](), ""
    for fence, text, printed in blocks:
        if fence == "text" and (command := re.match(rf"(?:{re.escape(PACK)}\n)?((?:pip|npm) install .*\n)", text)):
            install = command[1]
        if fence == FENCE[language]:
            found.append((install, text, printed or None))
    return found


def build(language: str, folder: Path, modules: Path | None) -> Path:
    """Builds a package as a release does, and returns its file."""
    if language == "python":
        pip = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps", *(["--no-build-isolation"] if modules else [])]
        run([*pip, "-w", str(folder), str(CLIENTS / language)], folder)
    else:
        assert f"\n{PACK}\n" in (CLIENTS / language / "README.md").read_text()
        run([*shlex.split(PACK), "--silent", "--pack-destination", str(folder)], CLIENTS.parent.parent)
    [built] = folder.glob("*.whl" if language == "python" else PACKED.removeprefix("./"))
    return built


def arguments(command: str, language: str, built: Path) -> list[str]:
    """The arguments of a command of README that installs, of the built package instead of what it is called in a clone."""
    ours = PACKED if language == "typescript" else f"./openapi/clients/{language}"
    words = shlex.split(command)
    assert any(word.startswith(ours) for word in words), command
    return [str(built) + word.removeprefix(ours) if word.startswith(ours) else word for word in words]


def install(language: str, command: list[str], folder: Path, modules: Path | None) -> list[str]:
    """Installs what a command names into `folder`, and returns the command that runs an example there."""
    if language == "typescript":
        (folder / "package.json").write_text('{"private":true}')
        beside = [word for word in command[2:] if not word.startswith(("/", "-"))] if modules else []
        npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", *(["--offline"] if modules else [])]
        run([*npm, *(word for word in command[2:] if word not in beside)], folder)
        # Another package later leaves ours as it is.
        (folder / "later").mkdir()
        (folder / "later/package.json").write_text('{"name":"later","version":"1.0.0"}')
        run([*npm, "./later"], folder)
        package = folder / "node_modules/workspaced-client"
        if package.is_symlink() or not (package / "dist/index.js").is_file():
            sys.exit(f"{shlex.join(command)}: {package} is no folder of its own")
        for name in beside:
            link = folder / "node_modules" / name
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(Path(modules or "") / name)
        return ["node", "example.mjs"]
    if modules is None:
        run([sys.executable, "-m", "venv", "venv"], folder)
        run(["venv/bin/pip", *command[1:], "-q", "--disable-pip-version-check"], folder)
        return ["venv/bin/python", "example.py"]
    [wheel] = [word for word in command[2:] if word.startswith("/")]
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-index", "--no-deps"]
    run([*pip, "--target", "site", wheel.partition("[")[0]], folder)
    # Of the environment, no more than the command installs.
    [ours] = importlib.metadata.distributions(path=[str(folder / "site")])
    wanted = [f"{ours.metadata['Name']}[{wheel.partition('[')[2].removesuffix(']')}]", *(word for word in command[2:] if word != wheel)]
    # Several distributions may share a folder.
    files = {distribution.locate_file(file.parts[0]) for distribution in closure(wanted, ours) for file in distribution.files or []}
    for file in {Path(str(file)) for file in files if ".." not in str(file)}:
        (folder / "site" / file.name).symlink_to(file)
    return [sys.executable, "-S", "example.py"]


def closure(wanted: list[str], ours: importlib.metadata.Distribution) -> list[importlib.metadata.Distribution]:
    """The installed distributions that these requirements lead to, without our own."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    own = canonicalize_name(ours.metadata["Name"])
    found, seen = dict[str, importlib.metadata.Distribution](), set[tuple[str, str]]()
    left = [Requirement(one) for one in wanted]
    while left:
        requirement = left.pop()
        name = canonicalize_name(requirement.name)
        distribution = ours if name == own else importlib.metadata.distribution(name)
        found[name] = distribution
        for extra in {"", *requirement.extras} - {extra for known, extra in seen if known == name}:
            seen.add((name, extra))
            needs = [Requirement(one) for one in distribution.requires or []]
            left += [one for one in needs if one.marker is None or one.marker.evaluate({"extra": extra})]
    return [distribution for name, distribution in found.items() if name != own]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--offline", type=Path, metavar="NODE_MODULES")
    parser.add_argument("language", nargs="?", choices=list(FENCE))
    options = parser.parse_args()
    for language in [options.language] if options.language else list(FENCE):
        with tempfile.TemporaryDirectory() as folder:
            built = build(language, Path(folder), options.offline)
            for command, example, printed in examples(language):
                try_example(language, arguments(command, language, built), example, printed, options.offline)
                print(f"{command.strip()}: done", flush=True)


def try_example(language: str, command: list[str], example: str, printed: str | None, modules: Path | None) -> None:
    path, content = WRITES[language]
    steps: list[tuple[str, dict[str, str]]] = [("list_dir", {}), ("write_file", {"path": path, "content": content, "reason": "the task"})]
    if "ApplyPatchTool" in example:
        steps[1] = ("apply_patch", {"type": "create_file", "path": path, "diff": f"+{content}"})
    if "SandboxSession" in example:
        steps = [("exec_command", {"cmd": "ls"}), ("exec_command", {"cmd": f"echo {shlex.quote(content.strip())} >{path}"})]
    model = Model(steps)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = install(language, command, folder, modules)
        (folder / program[-1]).write_text(example)
        environment = {"ANTHROPIC_API_KEY": "none", "ANTHROPIC_BASE_URL": model.url, "OPENAI_API_KEY": "none", "OPENAI_BASE_URL": model.url,
                       "OPENAI_AGENTS_DISABLE_TRACING": "1"}
        shown = run(program, folder, **environment, PYTHONPATH=str(folder / "site"))
    is_right = shown == printed if printed else f"+{content}" in shown and len(model.results) == len(steps)
    if not is_right or model.problems:
        sys.exit(f"{example}\nprinted\n{shown}\n{model.results}\n{model.problems}")


if __name__ == "__main__":
    main()
