"""A scripted model fixes a failing test by function calling. Its runner runs the tests and records what they print."""

import io, json, os, subprocess, sys, tarfile, tempfile

from workspaced import Client
from workspaced.tools import answer_openai, openai_tools

operator = Client(os.environ["WORKSPACED_URL"], os.environ["OPERATOR"])
run, token = operator.create_run({"type": "git", "url": os.environ["REPO"]})
agent = operator.agent(run.id, token["token"])

def run_tests():
    with tempfile.TemporaryDirectory() as folder, run.archive() as chunks:
        tarfile.open(fileobj=io.BytesIO(b"".join(chunks))).extractall(folder, filter="data")
        done = subprocess.run([sys.executable, "-B", "-m", "unittest"], cwd=folder, capture_output=True)
    run.record_command(["python", "-m", "unittest"], done.returncode, output=done.stderr, kind="test")
    return "passed" if done.returncode == 0 else done.stderr.decode()

def edit(old, new):
    return "edit_file", {"path": "calc.py", "oldString": old, "newString": new, "reason": "add, as the test expects"}

script = [("search_text", {"query": "def add"}), ("read_file", {"path": "calc.py"}),
          edit("    return a -b\n", "    return a + b\n"), edit("    return a - b\n", "    return a + b\n")]

def model(messages, tools):
    return [{"id": str(number), "function": {"name": name, "arguments": json.dumps(arguments)}}
            for number, (name, arguments) in enumerate(script) if number == (len(messages) - 1) // 2]

messages = [{"role": "user", "content": "Make this test pass:\n" + run_tests()}]
while calls := model(messages, openai_tools(agent)):
    messages.append({"role": "assistant", "tool_calls": calls})
    messages += [answer_openai(agent, call) for call in calls]
    print(calls[0]["function"]["name"], "->", messages[-1]["content"].splitlines()[0])
print("tests:", run_tests())
print(run.report_markdown())
