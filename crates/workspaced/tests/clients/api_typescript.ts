// Drives the service with the client that openapi-fetch makes of the types of openapi-typescript. Arguments: the service's
// URL, an operator's token.
import assert from "node:assert/strict";
import createClient from "openapi-fetch";
import type { components, paths } from "./api.js";

type AuditRecord = components["schemas"]["AuditRecord"];

const [baseUrl, operatorToken] = process.argv.slice(2);
assert(baseUrl !== undefined && operatorToken !== undefined);
/** A tool answers JSON unless text is asked for; a call that waits for an approval is answered with a `code`. */
const json = <T extends { ok: boolean }>(answer: T | string | undefined): Exclude<T, { code: string }> => {
  assert(typeof answer === "object" && answer.ok, JSON.stringify(answer));
  return answer as Exclude<T, { code: string }>;
};
const connect = (token: string) => createClient<paths>({ baseUrl, headers: { Authorization: `Bearer ${token}` } });
const operator = connect(operatorToken);

const follow = await operator.GET("/v1/audit/stream", { parseAs: "stream" });
assert(follow.data !== undefined && follow.data !== null);

const created = await operator.POST("/v1/runs", {
  body: { source: { type: "empty" }, policy: { profile: "AUTONOMOUS" }, labels: { ticket: "4711" } },
});
assert(created.data !== undefined, JSON.stringify(created.error));
const run = created.data.run.runId;
assert.equal(created.response.headers.get("Location"), `/v1/runs/${run}`);
const agent = connect(created.data.token.token);

const path = { run };
const written = await agent.POST("/v1/runs/{run}/tools/write_file", {
  params: { path },
  body: { path: "src/a.txt", content: "one\ntwo\n", mode: "CREATE_NEW", reason: "to edit it" },
});
assert.equal(json(written.data).created, true);
const edited = await agent.POST("/v1/runs/{run}/tools/edit_file", {
  params: { path },
  body: { path: "src/a.txt", oldString: "two", newString: "three", reason: "to count", expectedSha256: "seen" },
});
assert.equal(json(edited.data).replacements, 1);
const read = await agent.POST("/v1/runs/{run}/tools/read_file", {
  params: { path },
  body: { path: "src/a.txt", format: "raw" },
});
assert.equal(json(read.data).content, "one\nthree\n");
const text = await agent.POST("/v1/runs/{run}/tools/read_file", {
  params: { path },
  body: { path: "src/a.txt" },
  headers: { Accept: "text/plain" },
  parseAs: "text",
});
assert.equal(String(text.data), "1  one\n2  three\n");
const refused = await agent.POST("/v1/runs/{run}/tools/read_file", { params: { path }, body: { path: ".env" } });
assert(refused.response.status === 403 && typeof refused.error === "object");
assert.equal(refused.error.code, "POLICY_DENIED_SECRET");

const bytes = new Uint8Array([0, 255, 10, 13, 128]);
const file = { run, path: "data/b.bin" };
const stored = await agent.PUT("/v1/runs/{run}/files/{path}", {
  params: { path: file, header: { "X-Reason": "to keep it", "If-None-Match": "*" } },
  body: "",
  bodySerializer: () => bytes,
  headers: { "Content-Type": "application/octet-stream" },
});
assert.equal(stored.response.status, 201, JSON.stringify(stored.error));
const loaded = await agent.GET("/v1/runs/{run}/files/{path}", { params: { path: file }, parseAs: "arrayBuffer" });
assert(loaded.data !== undefined);
assert.deepEqual(new Uint8Array(loaded.data), bytes);
assert.equal(loaded.response.headers.get("ETag"), stored.response.headers.get("ETag"));

// Every record, in pages of two.
const records: AuditRecord[] = [];
let cursor: string | undefined;
do {
  const query = cursor === undefined ? { limit: 2 } : { limit: 2, cursor };
  const page = await operator.GET("/v1/runs/{run}/audit", { params: { path, query } });
  assert(page.data !== undefined && page.data.items.length <= 2, JSON.stringify(page.error));
  records.push(...page.data.items);
  cursor = page.data.nextCursor ?? undefined;
} while (cursor !== undefined);
assert.deepEqual(records.map((record) => record.seq), records.map((_, index) => index + 1));
assert(records.some((record) => record.tool === "edit_file" && record.outcome === "ok"));

// The same records, as they were written.
const streamed: AuditRecord[] = [];
const decoder = new TextDecoder();
let received = "";
for await (const chunk of follow.data as unknown as AsyncIterable<Uint8Array>) {
  received += decoder.decode(chunk, { stream: true });
  const events = received.split("\n\n");
  received = events.pop() ?? "";
  for (const event of events) {
    const data = event.split("\n").find((line) => line.startsWith("data: "));
    if (data !== undefined) streamed.push(JSON.parse(data.slice(6)) as AuditRecord);
  }
  if (streamed.filter((record) => record.runId === run).length === records.length) break;
}
const own = streamed.filter((record) => record.runId === run);
assert.deepEqual(own.map((record) => record.hash), records.map((record) => record.hash));
console.log("done");
