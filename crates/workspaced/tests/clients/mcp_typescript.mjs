// Drives a run through MCP with the official TypeScript client. Arguments: the service's URL, the run's token.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import path from "node:path";

const [url, token, modules] = process.argv.slice(2);
const require = createRequire(pathToFileURL(path.join(modules, "package.json")));
const load = async (name) => import(pathToFileURL(require.resolve(name)));
const { Client } = await load("@modelcontextprotocol/sdk/client/index.js");
const { StreamableHTTPClientTransport } = await load("@modelcontextprotocol/sdk/client/streamableHttp.js");

const connect = async () => {
  const client = new Client({ name: "test", version: "1.0.0" });
  const requestInit = { headers: { Authorization: `Bearer ${token}` } };
  await client.connect(new StreamableHTTPClientTransport(new URL("/mcp", url), { requestInit }));
  return client;
};
const [first, second] = [await connect(), await connect()];

const { tools } = await first.listTools();
assert(tools.some((tool) => tool.name === "write_file" && tool.annotations.readOnlyHint === false));
const write = { path: "made.txt", content: "one\n", reason: "to try it" };
assert(!(await first.callTool({ name: "write_file", arguments: write })).isError);
// Two clients on one run: the second has not seen what the first wrote.
const stale = { path: "made.txt", content: "two\n", mode: "CREATE_NEW", reason: "to try it" };
const refused = await second.callTool({ name: "write_file", arguments: stale });
assert(refused.isError);
assert.match(refused.content[0].text, /^ALREADY_EXISTS: /);
const read = await second.callTool({ name: "read_file", arguments: { path: "made.txt" } });
assert.equal(read.content[0].text, "1  one\n");
assert.equal(read.structuredContent, undefined);

const { resources } = await first.listResources();
assert(resources.some((resource) => resource.uri === "workspace:///made.txt"));
const { contents } = await first.readResource({ uri: "workspace:///made.txt" });
assert.equal(contents[0].text, "one\n");
await assert.rejects(first.callTool({ name: "no_such_tool", arguments: {} }));

const controller = new AbortController();
const cancelled = first.callTool({ name: "search_text", arguments: { query: "x" } }, undefined, { signal: controller.signal });
controller.abort();
await assert.rejects(cancelled);
assert((await first.callTool({ name: "list_dir", arguments: {} })).content[0].text.includes("made.txt"));
await Promise.all([first.close(), second.close()]);
console.log("done");
