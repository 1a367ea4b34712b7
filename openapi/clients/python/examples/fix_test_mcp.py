"""A scripted model fixes a failing test through MCP. Its runner runs the tests and records what they print."""

import asyncio, io, os, subprocess, sys, tarfile, tempfile
from collections.abc import Iterator
import httpx2
from mcp import Client as McpClient
from mcp.client.streamable_http import streamable_http_client
from mcp.types import ListToolsResult, TextContent
from workspaced import Client

url = os.environ["WORKSPACED_URL"]
run, token = Client(url, os.environ["OPERATOR"]).create_run({"type": "git", "url": os.environ["REPO"]})

def run_tests() -> str:
    with tempfile.TemporaryDirectory() as folder, run.archive() as chunks:
        tarfile.open(fileobj=io.BytesIO(b"".join(chunks))).extractall(folder, filter="data")
        done = subprocess.run([sys.executable, "-B", "-m", "unittest"], cwd=folder, capture_output=True)
    run.record_command(["python", "-m", "unittest"], done.returncode, output=done.stderr, kind="test")
    return "passed" if done.returncode == 0 else done.stderr.decode()

def edit(old: str, new: str) -> tuple[str, dict[str, str]]:
    return "edit_file", {"path": "calc.py", "oldString": old, "newString": new, "reason": "add, as the test expects"}

def model(task: str, tools: ListToolsResult) -> Iterator[tuple[str, dict[str, str]]]:
    yield "search_text", {"query": "def add"}
    yield "read_file", {"path": "calc.py"}
    yield edit("    return a -b\n", "    return a + b\n")
    yield edit("    return a - b\n", "    return a + b\n")

async def main() -> None:
    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token['token']}"})
    async with McpClient(streamable_http_client(f"{url}/mcp", http_client=http)) as client:
        for name, arguments in model("Make this test pass:\n" + run_tests(), await client.list_tools()):
            answer = await client.call_tool(name, arguments)
            print(name, "->", next(part.text for part in answer.content if isinstance(part, TextContent)).splitlines()[0])

asyncio.run(main())
print("tests:", run_tests())
print(run.report_markdown())
