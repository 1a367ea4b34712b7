"""Drives a run with the official Python client over the bridge. Arguments: the program, the service's URL, the run's token."""

import asyncio
import sys

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client


async def main(program: str, url: str, token: str) -> None:
    server = StdioServerParameters(command=program, args=["mcp", "--url", url], env={"WORKSPACED_TOKEN": token})
    async with Client(stdio_client(server)) as client:
        assert client.server_info.name == "workspaced", client.server_info
        assert "read_file" in {tool.name for tool in (await client.list_tools()).tools}
        calls = [client.call_tool("read_file", {"path": "src/a.py"}) for _ in range(10)]
        for read in await asyncio.gather(*calls):
            assert read.content[0].text == "1  def add(a, b):\n2  \treturn a - b\n", read
        change = {"path": "src/a.py", "oldString": "\treturn a - b", "newString": "\treturn a + b", "reason": "adds"}
        edit = await client.call_tool("edit_file", change)
        assert not edit.is_error and "src/a.py" in edit.content[0].text, edit
        secret = await client.call_tool("read_file", {"path": ".env"})
        assert secret.is_error and secret.content[0].text.startswith("POLICY_DENIED_SECRET: "), secret
        resource = await client.read_resource("workspace:///src/a.py")
        assert resource.contents[0].text == "def add(a, b):\n\treturn a + b\n", resource

        # A call that the client gives up does not disturb the next one.
        slow = asyncio.create_task(client.call_tool("search_text", {"query": "(a|b)+c", "mode": "regex"}))
        await asyncio.sleep(0)
        slow.cancel()
        again = await client.call_tool("list_dir", {})
        assert "src/" in again.content[0].text, again
    print("done")


asyncio.run(main(*sys.argv[1:]))
