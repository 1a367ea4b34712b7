"""The client for asyncio against a real server."""

from __future__ import annotations

import io
import unittest
from contextlib import aclosing

from server import OPERATOR, URL, agent
from workspaced.aio import ApprovalRequired, Client, NoAnswer, WorkspacedError
from workspaced.aio import tools


class Asyncio(unittest.IsolatedAsyncioTestCase):
    async def test_the_client_for_asyncio_works_alike(self) -> None:
        async with Client(URL, OPERATOR) as operator:
            run, token = await operator.create_run()
            agent = operator.agent(run.id, token["token"])
            await run.create_file("a.bin", io.BytesIO(bytes(100_000)), "stores")
            async with agent.download("a.bin") as chunks:
                self.assertEqual(len(b"".join([chunk async for chunk in chunks])), 100_000)
            await agent.tool.write_file(path="a.txt", content="one\n", reason="creates")
            self.assertEqual((await agent.call("read_file", path="a.txt", format="raw"))["content"], "one\n")
            with self.assertRaises(WorkspacedError) as raised:
                await agent.tool.read_file(path="none.txt")
            self.assertEqual((raised.exception.code, raised.exception.status), ("NOT_FOUND", 404))
            with self.assertRaises(ApprovalRequired) as waiting:
                await agent.tool.write_file(path="Cargo.lock", content="x\n", reason="locks")
            await operator.deny(waiting.exception.approval_id or "", on_behalf_of="ada")
            decided = await agent.wait_for_approval(waiting.exception, timeout=5)
            self.assertEqual(decided["approval"]["state"], "denied")  # type: ignore[index]
            # The first answer to a model after a decision begins with it, once.
            answer = (await tools.dispatch(agent, "read_file", '{"path": "a.txt"}')).text
            self.assertEqual(answer, "denied: Cargo.lock (write_file)\n1  one\n")
            [read, *_] = [one for one in await tools.functions(agent) if one.__name__ == "read_file"]
            self.assertEqual(await read(path="a.txt"), "1  one\n")
            records = [record["tool"] async for record in run.audit(limit=2)]
            self.assertIn("files_put", records)
            async with aclosing(run.follow()) as changes:  # type: ignore[type-var]
                self.assertEqual((await anext(changes)).data["files"][0]["path"], "a.bin")

    async def test_a_failure_of_the_connection_is_an_error_of_the_package(self) -> None:
        async with Client("http://127.0.0.1:1", "t", retries=1) as client:
            with self.assertRaises(NoAnswer) as raised:
                await client.limits()
        self.assertEqual((raised.exception.code, raised.exception.status), ("NO_ANSWER", 0))


if __name__ == "__main__":
    unittest.main()
