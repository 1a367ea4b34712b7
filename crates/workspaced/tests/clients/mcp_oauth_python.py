"""Connects to MCP with the official Python client, which finds the issuer and gets a token by itself. Argument: the service's URL."""

import asyncio
import sys
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.oauth2 import AuthorizationCodeResult
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import OAuthClientMetadata


class Storage:
    tokens = None
    client = None

    async def get_tokens(self):
        return self.tokens

    async def set_tokens(self, tokens):
        self.tokens = tokens

    async def get_client_info(self):
        return self.client

    async def set_client_info(self, client):
        self.client = client


async def main(url: str) -> None:
    answers = []

    async def redirect(address: str) -> None:
        """The person's browser, which the issuer sends back at once."""
        async with httpx2.AsyncClient() as browser:
            answer = await browser.get(address, follow_redirects=False)
        assert answer.status_code == 302, answer
        answers.append(parse_qs(urlsplit(answer.headers["location"]).query))

    async def callback() -> AuthorizationCodeResult:
        answer = answers.pop()
        return AuthorizationCodeResult(code=answer["code"][0], state=answer["state"][0])

    metadata = OAuthClientMetadata(
        client_name="tests", redirect_uris=["http://127.0.0.1:9/back"], token_endpoint_auth_method="none"
    )
    storage = Storage()
    auth = OAuthClientProvider(f"{url}/mcp", metadata, storage, redirect, callback)
    http = httpx2.AsyncClient(auth=auth)
    async with Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client:
        read = await client.call_tool("read_file", {"path": "src/a.py"})
        assert read.content[0].text == "1  a = 1\n", read
    assert storage.tokens.access_token.count(".") == 2
    print("done")


asyncio.run(main(sys.argv[1]))
