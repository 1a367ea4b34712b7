"""Runs a coding agent against a run of the service with a scripted model, and compares what the model receives with the answers of
the service. Prints a line of JSON with the bytes of each step, and writes their sums into deploy/mcp.md if WORKSPACED_TEST_WRITE is set.

    python agents.py AGENT NODE_MODULES URL OPERATOR_TOKEN [FORMAT]

Each agent is set up as `deploy/agents.md` says. With a form that the agent's models know, the tools are those of the form; for one whose
files are read by commands, WORKSPACED_BIN runs them.
"""

import atexit
import fcntl
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import urllib.request

from model_server import Model, texts

LONG = "".join(f"line {number}\n" for number in range(1, 501))
FILES = {
    "src/calc.py": "def add(a, b):\n    return a - b\n\n\ndef twice(a):\n    return 2 * a\n",
    "long.txt": LONG,
    ".env": "KEY=value\n",
}
# The tool, its arguments, and a part of what the model has to receive.
SCRIPT = [
    ("list_dir", {}, "calc.py"),
    ("read_file", {"path": "src/calc.py"}, "2      return a - b"),
    ("read_file", {"path": ".env"}, "POLICY_DENIED_SECRET: "),
    ("edit_file", {"path": "src/calc.py", "oldString": "return a * b", "newString": "return a + b", "reason": "add"}, "EDIT_NOT_FOUND: "),
    ("edit_file", {"path": "src/calc.py", "oldString": "return a - b", "newString": "return a + b", "reason": "add"}, "src/calc.py"),
    ("read_file", {"path": "long.txt"}, "startLine=201"),
    ("write_file", {"path": "src/calc.py", "content": "pass\n", "reason": "shorter"}, "WRITE_CONFLICT: "),
    ("search_text", {"query": "twice"}, "5: def twice(a):"),
    ("write_file", {"path": ".github/workflows/ci.yml", "content": "on: push\n", "reason": "begin"}, "APPROVAL_REQUIRED: "),
    ("diff_workspace", {}, "+    return a + b"),
    ("read_file", {"path": "long.txt", "startLine": 400}, None),
]
REFUSED = {2, 3, 6, 8}
PAGE, SENTENCE = pathlib.Path(__file__).parents[4] / "deploy/mcp.md", "beside the {} bytes of the service"
ROOT = "/workspace"
CALC, LONG_FILE, SECRET, WORKFLOW = (f"{ROOT}/{name}" for name in ("src/calc.py", "long.txt", ".env", ".github/workflows/ci.yml"))


def of_gemini(edit, folder, start, note):
    """The same calls in the form of Gemini CLI, or of Qwen Code. `start` is how a line is named from which a file is read."""
    wrong, right = ({"file_path": CALC, "old_string": f"return a {sign} b", "new_string": "return a + b", **note} for sign in "*-")
    return [
        ("list_directory", {folder: f"{ROOT}/src"}, "calc.py"),
        ("read_file", {"file_path": CALC}, "    return a - b"),
        ("read_file", {"file_path": SECRET}, "POLICY_DENIED_SECRET: "),
        (edit, wrong, "Failed to edit, 0 occurrences found"),
        (edit, right, "Successfully modified file"),
        ("read_file", {"file_path": LONG_FILE, **start(1, 200)}, "line 200\n"),
        ("write_file", {"file_path": CALC, "content": "pass\n"}, "File has been modified since it was read"),
        ("grep_search", {"pattern": "twice"}, "L5: def twice(a):"),
        ("write_file", {"file_path": WORKFLOW, "content": "on: push\n"}, "APPROVAL_REQUIRED: "),
        ("read_file", {"file_path": CALC}, "    return a + b"),
        ("read_file", {"file_path": LONG_FILE, **start(400, 500)}, None),
    ]


def patch(*lines):
    return {"input": "\n".join(["*** Begin Patch", *lines, "*** End Patch"])}


# The same calls in the forms that have them. None has a tool that shows all changes: the file is read again.
SCRIPTS = {
    None: SCRIPT,
    "claude-code": [
        ("Glob", {"pattern": "src/*"}, "calc.py"),
        ("Read", {"file_path": CALC}, "    return a - b"),
        ("Read", {"file_path": SECRET}, "POLICY_DENIED_SECRET: "),
        ("Edit", {"file_path": CALC, "old_string": "return a * b", "new_string": "return a + b"}, "String to replace not found in file"),
        ("Edit", {"file_path": CALC, "old_string": "return a - b", "new_string": "return a + b"}, "has been updated successfully"),
        ("Read", {"file_path": LONG_FILE, "limit": 200}, "offset=201"),
        ("Write", {"file_path": CALC, "content": "pass\n"}, "File has been modified since it was read"),
        ("Grep", {"pattern": "twice", "output_mode": "content"}, "5:def twice(a):"),
        ("Write", {"file_path": WORKFLOW, "content": "on: push\n"}, "APPROVAL_REQUIRED: "),
        ("Read", {"file_path": CALC}, "    return a + b"),
        ("Read", {"file_path": LONG_FILE, "offset": 400}, None),
    ],
    "codex": [
        ("exec_command", {"cmd": "ls src"}, "calc.py"),
        ("exec_command", {"cmd": "cat -n src/calc.py"}, "    return a - b"),
        # The file is not in the folder in which commands run.
        ("exec_command", {"cmd": "cat .env"}, "Process exited with code 1"),
        ("apply_patch", patch("*** Update File: src/calc.py", "@@", "-    return a * b", "+    return a + b"), "apply_patch verification failed: "),
        ("apply_patch", patch("*** Update File: src/calc.py", "@@", "-    return a - b", "+    return a + b"), "Success. Updated the following files"),
        ("exec_command", {"cmd": "sed -n 1,200p long.txt"}, "line 200\n"),
        ("apply_patch", patch("*** Update File: src/calc.py", "@@", "-    return 2 * a", "+    return a * 2"), "apply_patch verification failed: "),
        ("exec_command", {"cmd": "grep -n twice src/calc.py"}, "5:def twice(a):"),
        ("apply_patch", patch("*** Add File: .github/workflows/ci.yml", "+on: push"), "APPROVAL_REQUIRED: "),
        ("exec_command", {"cmd": "cat src/calc.py"}, "    return a + b"),
        ("exec_command", {"cmd": "tail -n 101 long.txt"}, None),
    ],
    "gemini": of_gemini("replace", "dir_path", lambda first, last: {"start_line": first, "end_line": last}, {"instruction": "add"}),
    "qwen": of_gemini("edit", "path", lambda first, last: {"offset": first - 1, "limit": last - first + 1}, {}),
}
# Names of the agents' own tools for files and programs.
OWN_TOOLS = {
    "apply_patch", "bash", "edit", "exec_command", "fetch", "glob", "grep", "grep_search", "list", "list_directory", "multiedit", "patch", "read",
    "replace", "run_shell_command", "search", "search_file_content", "shell", "unified_exec", "write", "write_stdin",
}
# Agents without a setting that switches their own tools off.
WITHOUT_SETTING = {"cline", "continue", "openhands"}
# What agents want beside the arguments of a tool.
BESIDE = {"openhands": {"security_risk": "LOW"}}
STALE, REVOKED = 6, len(SCRIPT) - 1


class Service:
    def __init__(self, url, operator):
        self.url, self.operator = url, operator

    def send(self, method, path, body=None, token=None, kind="application/json", headers=()):
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        headers = {"authorization": f"Bearer {token or self.operator}", "content-type": kind, **dict(headers)}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.loads(response.read() or b"{}")


class Run:
    def __init__(self, service, form):
        self.service, self.script = service, SCRIPTS[form]
        self.mcp = "/mcp" if form is None else f"/mcp?format={form}"
        created = service.send("POST", "/v1/runs", {"source": {"type": "archive"}})
        self.id, self.token = created["run"]["runId"], created["token"]["token"]
        self.token_id = created["token"]["tokenId"]
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for path, text in FILES.items():
                entry = tarfile.TarInfo(path)
                entry.size = len(text)
                tar.addfile(entry, io.BytesIO(text.encode()))
        service.send("PUT", f"/v1/runs/{self.id}/archive", archive.getvalue(), kind="application/x-tar")

    def before(self, step):
        """What happens to the run while the agent works."""
        if step == STALE:
            path = f"/v1/runs/{self.id}/tools/edit_file"
            edit = {"path": "src/calc.py", "oldString": "2 * a", "newString": "a + a", "reason": "somebody else"}
            self.service.send("POST", path, edit)
        if step == REVOKED:
            self.service.send("DELETE", f"/v1/runs/{self.id}/tokens/{self.token_id}")

    def runner(self, folder):
        """Runs commands in a folder of this machine, until the process ends."""
        permissions = ["file:list", "file:read", "event:append", "changeset:apply", "command:serve"]
        token = self.service.send("POST", f"/v1/runs/{self.id}/tokens", {"permissions": permissions})["token"]
        env = {"PATH": os.environ["PATH"], "HOME": folder, "WORKSPACED_URL": self.service.url, "WORKSPACED_TOKEN": token}
        command = [os.environ["WORKSPACED_BIN"], "runner", self.id, "--dir", f"{folder}/{self.id}"]
        runner = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        runner.stdout.readline()
        atexit.register(runner.wait)
        atexit.register(runner.terminate)

    def call(self, step):
        """The text that MCP answers to a step, without an agent."""
        tool, arguments, _ = self.script[step]
        params = {"name": tool, "arguments": arguments}
        message = {"jsonrpc": "2.0", "id": step, "method": "tools/call", "params": params}
        accept = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-06-18"}
        return texts(self.service.send("POST", self.mcp, message, self.token, headers=accept)["result"]["content"])


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=2))


def claude(home, model, mcp, token):
    write(home / "mcp.json", {"mcpServers": {"workspaced": {"type": "http", "url": mcp, "headers": {"Authorization": f"Bearer {token}"}}}})
    command = ["claude", "-p", "Do it.", "--mcp-config", str(home / "mcp.json"), "--strict-mcp-config", "--tools", "",
               "--allowedTools", "mcp__workspaced", "--model", "claude-sonnet-4-5"]
    return command, {"ANTHROPIC_BASE_URL": model, "ANTHROPIC_API_KEY": "sk-ant-scripted", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1"}


def cline(home, model, mcp, token):
    server = {"type": "streamableHttp", "url": mcp, "headers": {"Authorization": f"Bearer {token}"}, "disabled": False}
    write(home / ".cline/data/settings/cline_mcp_settings.json", {"mcpServers": {"workspaced": server}})
    setup = ["cline", "auth", "openai-compatible", "-k", "scripted", "-m", "scripted", "-b", f"{model}/v1"]
    return ["cline", "--auto-approve", "true", "Do it."], {"CLINE_TELEMETRY_DISABLED": "1"}, setup


def codex(home, model, mcp, token):
    write(home / ".codex/config.toml", f'''model = "scripted"
model_provider = "scripted"
approval_policy = "never"
check_for_update_on_startup = false
web_search = "disabled"

[model_providers.scripted]
name = "scripted"
base_url = "{model}/v1"
wire_api = "responses"
env_key = "MODEL_KEY"

[features]
shell_tool = false
unified_exec = false

[mcp_servers.workspaced]
url = "{mcp}"
bearer_token_env_var = "WORKSPACED_TOKEN"
default_tools_approval_mode = "approve"
''')
    return ["codex", "exec", "--skip-git-repo-check", "Do it."], {"MODEL_KEY": "scripted", "WORKSPACED_TOKEN": token}


def gemini(home, model, mcp, token):
    write(home / ".gemini/settings.json", {
        "mcpServers": {"workspaced": {"httpUrl": mcp, "headers": {"Authorization": f"Bearer {token}"}, "trust": True}},
        "tools": {"core": ["mcp_workspaced_*"]},
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"disableAutoUpdate": True, "disableUpdateNag": True},
    })
    command = ["gemini", "-p", "Do it.", "--approval-mode", "yolo", "--skip-trust", "-m", "gemini-2.5-flash"]
    return command, {"GEMINI_API_KEY": "scripted", "GOOGLE_GEMINI_BASE_URL": model}


def qwen(home, model, mcp, token):
    write(home / ".qwen/settings.json", {
        "mcpServers": {"workspaced": {"httpUrl": mcp, "headers": {"Authorization": f"Bearer {token}"}, "trust": True,
                                      "alwaysLoadTools": True}},
        "tools": {"disabled": ["edit", "glob", "grep_search", "list_directory", "notebook_edit", "read_file", "run_shell_command",
                               "web_fetch", "write_file"]},
        "security": {"auth": {"selectedType": "openai"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"disableAutoUpdate": True, "enableAutoUpdate": False},
    })
    command = ["qwen", "-p", "Do it.", "--approval-mode", "yolo", "--auth-type", "openai"]
    return command, {"OPENAI_API_KEY": "scripted", "OPENAI_BASE_URL": f"{model}/v1", "OPENAI_MODEL": "scripted"}


def opencode(home, model, mcp, token):
    write(home / "work/opencode.json", {
        "provider": {"scripted": {"npm": "@ai-sdk/openai-compatible", "name": "scripted",
                                  "options": {"baseURL": f"{model}/v1", "apiKey": "scripted"},
                                  "models": {"scripted": {"name": "scripted", "tool_call": True}}}},
        "model": "scripted/scripted", "small_model": "scripted/scripted", "autoupdate": False, "share": "disabled",
        "mcp": {"workspaced": {"type": "remote", "url": mcp, "oauth": False, "enabled": True,
                               "headers": {"Authorization": f"Bearer {token}"}}},
        "tools": {"*": False, "workspaced_*": True},
    })
    return ["opencode", "run", "Do it."], {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}


def continue_(home, model, mcp, token):
    write(home / "config.yaml", f'''name: scripted
version: 0.0.1
schema: v1
models:
  - name: scripted
    provider: openai
    model: gpt-4o
    apiBase: {model}/v1
    apiKey: scripted
    roles: [chat]
mcpServers:
  - name: workspaced
    type: streamable-http
    url: {mcp}
    requestOptions:
      headers:
        Authorization: Bearer {token}
''')
    command = ["cn", "-p", "Do it.", "--config", str(home / "config.yaml"), "--auto"]
    return command, {"CONTINUE_TELEMETRY_ENABLED": "0", "CONTINUE_CLI_DISABLE_COMMIT_SIGNATURE": "1"}


def copilot(home, model, mcp, token):
    server = {"type": "http", "url": mcp, "headers": {"Authorization": f"Bearer {token}"}, "tools": ["*"]}
    write(home / ".copilot/mcp-config.json", {"mcpServers": {"workspaced": server}})
    command = ["copilot", "-p", "Do it.", "--available-tools=workspaced", "--allow-all-tools", "--disable-builtin-mcps"]
    return command, {"COPILOT_OFFLINE": "true", "COPILOT_PROVIDER_BASE_URL": f"{model}/v1", "COPILOT_PROVIDER_API_KEY": "scripted",
                     "COPILOT_MODEL": "gpt-4.1"}


def openhands(home, model, mcp, token):
    server = {"transport": "http", "url": mcp, "headers": {"Authorization": f"Bearer {token}"}, "enabled": True}
    write(home / ".openhands/mcp.json", {"mcpServers": {"workspaced": server}})
    command = ["openhands", "--headless", "--override-with-envs", "-t", "Do it."]
    return command, {"LLM_API_KEY": "scripted", "LLM_MODEL": "openai/scripted", "LLM_BASE_URL": f"{model}/v1",
                     "LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENHANDS_SUPPRESS_BANNER": "1"}


AGENTS = {
    "claude": claude, "cline": cline, "codex": codex, "continue": continue_, "copilot": copilot, "gemini": gemini,
    "opencode": opencode, "openhands": openhands, "qwen": qwen,
}


def main(agent, modules, url, operator, form=None):
    service, script = Service(url, operator), SCRIPTS[form]
    twin, run = Run(service, form), Run(service, form)
    if form == "codex":
        folder = tempfile.TemporaryDirectory()
        atexit.register(folder.cleanup)
        twin.runner(folder.name)
        run.runner(folder.name)
    wanted = []
    for step in range(REVOKED):
        twin.before(step)
        wanted.append(twin.call(step))
    model = Model([(tool, {**arguments, **BESIDE.get(agent, {})}) for tool, arguments, _ in script], run.before)
    with tempfile.TemporaryDirectory() as folder:
        home = pathlib.Path(folder)
        (home / "work").mkdir()
        command, env, *setup = AGENTS[agent](home, model.url, url + run.mcp, run.token)
        # Nothing but loopback is reached.
        quiet = {"HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1,localhost", "NO_COLOR": "1", "CI": "1"}
        env = {"HOME": folder, "PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TZ": "UTC", "TERM": "dumb", **quiet, **env}
        for arguments in [*setup, command]:
            arguments[0] = os.path.join(modules, ".bin", arguments[0])
            output = subprocess.run(arguments, cwd=home / "work", env=env, stdin=subprocess.DEVNULL, text=True, timeout=150,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout
    received = model.results
    try:
        check(agent, form, model, received, wanted)
    except AssertionError:
        print(output[-6000:], *model.problems, model.others, json.dumps(received, indent=1), sep="\n", file=sys.stderr)
        raise
    print(json.dumps({"agent": agent, "tools": model.offered_bytes, "answered": [len(text.encode()) for text in wanted],
                      "received": [len(text.encode()) for text in received]}))
    print("done")


def check(agent, form, model, received, wanted):
    script = SCRIPTS[form]
    assert not model.problems, model.problems
    assert len(received) == len(script), f"{len(received)} results of {len(script)}"
    # The agent's own tools for files and programs are off, where it has a setting for that.
    ours = {tool for name in model.offered for tool in [name.rsplit("workspaced", 1)[-1].lstrip("_")] if "workspaced" in name}
    own = {name.lower() for name in model.offered if "workspaced" not in name} - ours
    assert agent in WITHOUT_SETTING or not own & OWN_TOOLS, own
    for step, ((tool, _, part), text, answer) in enumerate(zip(script, received, wanted)):
        assert part in answer, (tool, part, answer)
        # The model reads the text of the service, and no JSON beside it. Agents put the text of a refusal into JSON of theirs.
        assert plain(answer) in plain(text), (tool, text, answer)
        assert step in REFUSED or len(text) <= len(answer) * 1.15 + 150, (tool, text, answer)
    assert "line 400" not in received[REVOKED], received[REVOKED]
    answered = sum(len(text.encode()) for text in wanted)
    if os.environ.get("WORKSPACED_TEST_WRITE"):
        write_row(agent, form, model.offered_bytes, sum(len(text.encode()) for text in received[:REVOKED]), answered)


def write_row(agent, form, tools, received, answered):
    """Writes what a model pays into the documentation. Most of it is the agent's, and differs with its version and what it finds."""
    name = f"| `{agent}` |" if form is None else f"| `{agent}` with `{form}` |"
    with PAGE.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        # Some forms have the names of agents, in the table before.
        before, title, tables = file.read().partition("| agent | tools, bytes |")
        row = f"{name} {tools:,} | {received:,} | {received / answered:.2f} |"
        tables, count = re.subn(rf"^{re.escape(name)}.*$", row, tables, flags=re.M)
        assert count == 1, f"{count} rows of deploy/mcp.md begin with {name}"
        if form is None:
            before = re.sub(SENTENCE.format("[0-9,]+"), SENTENCE.format(f"{answered:,}"), before)
        file.seek(0)
        file.truncate()
        file.write(before + title + tables)


def plain(text):
    """The text without the escapes of JSON, and without the time that a command took."""
    text = re.sub(r"Wall time: [0-9.]+ seconds", "", text)
    return "".join(text.replace("\\n", "").replace("\\", "").split())


if __name__ == "__main__":
    main(*sys.argv[1:])
