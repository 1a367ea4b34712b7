"""Drives a run through MCP with the official Python client. Arguments: the service's URL, the run's token."""

import asyncio
import sys

import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client


async def main(url: str, token: str) -> None:
    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"})
    async with Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client:
        assert client.server_info.name == "workspaced", client.server_info
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"read_file", "edit_file", "search_text"} <= set(tools), tools
        assert tools["read_file"].annotations.read_only_hint is True
        assert tools["edit_file"].annotations.destructive_hint is True

        read = await client.call_tool("read_file", {"path": "src/a.py"})
        assert read.content[0].text == "1  def add(a, b):\n2  \treturn a - b\n", read
        assert read.structured_content is None, read
        asked = await client.call_tool("read_file", {"path": "src/a.py"}, meta={"workspaced/json": True})
        assert asked.structured_content["totalLines"] == 2, asked
        change = {"path": "src/a.py", "oldString": "\treturn a - b", "newString": "\treturn a + b", "reason": "adds"}
        edit = await client.call_tool("edit_file", change)
        assert not edit.is_error and "src/a.py" in edit.content[0].text, edit
        refused = await client.call_tool("edit_file", change)
        assert refused.is_error and refused.content[0].text.startswith("EDIT_NOT_FOUND: "), refused
        secret = await client.call_tool("read_file", {"path": ".env"})
        assert secret.is_error and secret.content[0].text.startswith("POLICY_DENIED_SECRET: "), secret

        uris = [str(resource.uri) for resource in (await client.list_resources()).resources]
        assert "workspace:///src/a.py" in uris, uris
        resource = await client.read_resource("workspace:///src/a.py")
        assert resource.contents[0].text == "def add(a, b):\n\treturn a + b\n", resource
        templates = (await client.list_resource_templates()).resource_templates
        assert templates[0].uri_template == "workspace:///{+path}", templates
        try:
            await client.read_resource("workspace:///.env")
            raise AssertionError("a secret was read")
        except MCPError:
            pass

        # Two calls at once, one of which the client gives up.
        slow = asyncio.create_task(client.call_tool("search_text", {"query": "(a|b)+c", "mode": "regex"}))
        await asyncio.sleep(0)
        slow.cancel()
        again = await client.call_tool("list_dir", {})
        assert "src/" in again.content[0].text, again

    # The tools of a format, under their names.
    http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}", "X-Reason": "to try"})
    async with Client(streamable_http_client(f"{url}/mcp?format=claude-code", http_client=http)) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {"Read", "Edit", "Write", "Glob", "Grep"} == set(tools), tools
        assert tools["Read"].annotations.read_only_hint is True
        read = await client.call_tool("Read", {"file_path": "/workspace/src/a.py"})
        assert read.content[0].text == "     1\tdef add(a, b):\n     2\t\treturn a + b\n", read
        change = {"file_path": "/workspace/src/a.py", "old_string": "a + b", "new_string": "b + a"}
        edit = await client.call_tool("Edit", change)
        assert not edit.is_error and "has been updated" in edit.content[0].text, edit
        refused = await client.call_tool("Edit", {**change, "old_string": "a * b"})
        assert refused.is_error and refused.content[0].text.startswith("String to replace not found in file."), refused
    print("done")


asyncio.run(main(*sys.argv[1:]))
