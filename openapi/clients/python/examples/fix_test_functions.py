"""A scripted model fixes a failing test by function calling. Its runner runs the tests and records what they print."""

import io, json, os, subprocess, sys, tarfile, tempfile
from typing import cast

from openai.types.chat import ChatCompletionMessage, ChatCompletionMessageParam, ChatCompletionToolParam
from workspaced import Client
from workspaced.openai import answer_chat, chat_tools

operator = Client(os.environ["WORKSPACED_URL"], os.environ["OPERATOR"])
run, token = operator.create_run({"type": "git", "url": os.environ["REPO"]})
agent = operator.agent(run.id, token["token"])

def run_tests() -> str:
    with tempfile.TemporaryDirectory() as folder, run.archive() as chunks:
        tarfile.open(fileobj=io.BytesIO(b"".join(chunks))).extractall(folder, filter="data")
        done = subprocess.run([sys.executable, "-B", "-m", "unittest"], cwd=folder, capture_output=True)
    run.record_command(["python", "-m", "unittest"], done.returncode, output=done.stderr, kind="test")
    return "passed" if done.returncode == 0 else done.stderr.decode()

def edit(old: str, new: str) -> tuple[str, dict[str, str]]:
    return "edit_file", {"path": "calc.py", "oldString": old, "newString": new, "reason": "add, as the test expects"}

script = [("search_text", {"query": "def add"}), ("read_file", {"path": "calc.py"}),
          edit("    return a -b\n", "    return a + b\n"), edit("    return a - b\n", "    return a + b\n")]

def model(messages: list[ChatCompletionMessageParam], tools: list[ChatCompletionToolParam]) -> ChatCompletionMessage:
    calls = [{"id": str(number), "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
             for number, (name, arguments) in enumerate(script) if number == (len(messages) - 1) // 2]
    return ChatCompletionMessage.model_validate({"role": "assistant", "tool_calls": calls})

messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Make this test pass:\n" + run_tests()}]
while (message := model(messages, chat_tools(agent))).tool_calls:
    messages.append(cast(ChatCompletionMessageParam, message.to_dict()))
    for call in message.tool_calls:
        messages.append(answer := answer_chat(agent, call))
        print(call.function.name if call.type == "function" else call.type, "->", str(answer["content"]).splitlines()[0])
print("tests:", run_tests())
print(run.report_markdown())
