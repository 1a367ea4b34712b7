// The client against the real server at WORKSPACED_URL, with the token OPERATOR.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { test } from "node:test";

const { ApprovalRequired, Client, dispatch, functions, NoAnswer, WorkspacedError } = await import(process.env.WORKSPACED_CLIENT ?? "workspaced-client");

const { WORKSPACED_URL: url, OPERATOR: token } = process.env;
const operator = new Client(url, token);
const sha256 = (bytes) => createHash("sha256").update(bytes).digest("hex");
const take = async (events, count) => {
  const taken = [];
  for await (const event of events) if (taken.push(event) === count) break;
  return taken;
};
const all = async (items) => {
  const found = [];
  for await (const item of items) found.push(item);
  return found;
};

/** A client that loses answers (null), or gets others (a status), for each request in turn. */
function unreliable(failures) {
  const requests = [];
  const send = async (address, init) => {
    requests.push(init);
    const failure = failures.length > 0 ? failures.shift() : 200;
    if (failure === 200) return fetch(address, init);
    if (failure === null) {
      void (await fetch(address, init)).body?.cancel();
      throw new TypeError("the answer was lost");
    }
    return Response.json({ code: "UNAVAILABLE" }, { status: failure, headers: { "Retry-After": "0" } });
  };
  return { client: new Client(url, token, { fetch: send, retries: 2 }), requests };
}

async function newRun(files = {}) {
  const { run, token } = await operator.createRun();
  for (const [path, content] of Object.entries(files)) await run.createFile(path, Buffer.from(content), "the test's files");
  return { run, agent: operator.agent(run.id, token.token) };
}

test("tools answer objects and texts", async () => {
  const { run, agent } = await newRun({ "src/a.py": "def add(a, b):\n\treturn a - b\n" });
  const read = await agent.call("read_file", { path: "src/a.py" });
  assert.equal(read.totalLines, 2);
  const text = await agent.text("read_file", { path: "src/a.py" });
  assert.deepEqual([text.text, text.ok, text.sha256], ["1  def add(a, b):\n2  \treturn a - b\n", true, read.sha256]);
  const input = { path: "src/a.py", oldString: "a - b", newString: "a + b", reason: "adds", expectedSha256: "seen" };
  assert.equal((await agent.call("edit_file", input)).replacements, 1);
  const batch = await agent.batch({ calls: [{ tool: "list_dir" }, { tool: "read_file", input: { path: "src/a.py" } }] });
  assert.deepEqual(batch.results.map((one) => one.status), [200, 200]);
  assert.match(await run.patch(), /\+\treturn a \+ b/);
  assert.equal((await run.explainPolicy({ path: "a.txt" })).paths[0].read.decision, "ALLOW");
});

test("every tool has a method", async () => {
  const { agent } = await newRun({ "a.txt": "one\n" });
  for (const tool of await agent.tools()) assert.equal(typeof agent.tool[tool.name], "function");
  assert.equal((await agent.tool.read_file({ path: "a.txt", format: "raw" })).content, "one\n");
  await assert.rejects(agent.tool.read_file({ path: "none.txt" }), { code: "NOT_FOUND" });
  assert.equal(await (await agent.tool).then, undefined);
});

test("a failure of the connection is an error of the package", async () => {
  const absent = new Client("http://127.0.0.1:1", "token", { retries: 0 });
  await assert.rejects(absent.limits(), (error) => {
    assert.ok(error instanceof WorkspacedError && error instanceof NoAnswer && error.cause instanceof Error);
    assert.deepEqual([error.code, error.status], ["NO_ANSWER", 0]);
    assert.match(error.message, /is "http:\/\/127.0.0.1:1" its address\? The examples take it from WORKSPACED_URL/);
    return error.detail !== "";
  });
  await assert.rejects(new Client("", "token", { retries: 0 }).limits(), /NO_ANSWER.* is "" its address\? .* WORKSPACED_URL/);
  await assert.rejects(all(absent.follow()), NoAnswer);
  const page = new Client("http://127.0.0.1:1", "token", { fetch: async () => new Response("<html>") });
  await assert.rejects(page.limits(), NoAnswer);
});

test("a command without a runner is refused at once", async () => {
  const { run, agent } = await newRun();
  const began = Date.now();
  await assert.rejects(agent.tool.run_command({ command: "make" }), { code: "UNAVAILABLE", isRecorded: true });
  for (const answer of [
    await agent.text("run_command", { command: "make" }),
    await agent.textInFormat("anthropic-toolset", "bash", { command: "make" }),
    await agent.textInFormat("codex", "exec_command", { cmd: "make" }),
    await agent.textInFormat("gemini", "run_shell_command", { command: "make" }),
  ]) {
    assert.deepEqual([answer.ok, answer.status], [false, 503]);
    assert.match(answer.text, /^UNAVAILABLE: no runner is attached to the run/);
  }
  // A failure of the service itself is asked for again, and no answer for a model.
  const busy = unreliable([503, 503, 503]);
  await assert.rejects(busy.client.run(run.id).text("run_command", { command: "make" }), { code: "UNAVAILABLE" });
  assert.equal(busy.requests.length, 3);
  assert.equal((await all(run.audit())).filter((record) => record.tool === "run_command").length, 5);
  assert.ok(Date.now() - began < 4000);
});

test("a caller waits for the decision", async () => {
  const { agent } = await newRun();
  const waiting = await agent.tool.write_file({ path: "Cargo.lock", content: "x\n", reason: "locks" }).catch((error) => error);
  assert.ok(waiting instanceof ApprovalRequired);
  await assert.rejects(agent.waitForApproval(waiting, 0), { approvalId: waiting.approvalId });
  await operator.approve(waiting.approvalId, { onBehalfOf: "ada" });
  assert.equal((await agent.waitForApproval(waiting.callId, 30)).approval.state, "approved");
});

test("a refusal has code, detail, hint and request ID", async () => {
  const { agent } = await newRun();
  await assert.rejects(agent.call("read_file", { path: "none.txt" }), (error) => {
    assert.ok(error instanceof WorkspacedError && error.detail && error.hint && error.requestId);
    assert.deepEqual([error.code, error.status, error.problem.path], ["NOT_FOUND", 404, "none.txt"]);
    return true;
  });
  const text = await agent.text("read_file", { path: "none.txt" });
  assert.ok(!text.ok && text.text.startsWith("NOT_FOUND: `none.txt` does not exist\n"), text.text);
  const stranger = new Client(url, "none").run(agent.id);
  await assert.rejects(stranger.text("list_dir"), { code: "UNAUTHENTICATED" });
});

test("approvals are asked for and decided", async () => {
  const { run, agent } = await newRun();
  for (const [verb, state] of [["approve", "approved"], ["deny", "denied"]]) {
    const path = `${state}/Cargo.lock`;
    const waiting = await agent.call("write_file", { path, content: "x\n", reason: "locks" }).catch((error) => error);
    assert.ok(waiting instanceof ApprovalRequired);
    const pending = await all(operator.approvals({ run: run.id, state: "pending" }));
    assert.deepEqual(pending.map((one) => one.approvalId), [waiting.approvalId]);
    assert.match((await operator.approval(waiting.approvalId)).diff, /\+x/);
    assert.equal((await operator[verb](waiting.approvalId, { note: "looked at", onBehalfOf: "a person" })).state, state);
    assert.equal((await agent.toolCall(waiting.callId, 1)).approval.state, state);
    assert.equal((await agent.call("stat_path", { path })).exists, state === "approved");
  }
});

test("runs, tokens and operators", async () => {
  const { run, token } = await operator.createRun({ policy: { profile: "READ_ONLY" }, permissions: ["file:list"] });
  const reader = operator.agent(run.id, token.token);
  assert.equal((await reader.tools())[0].name, "list_dir");
  await assert.rejects(reader.call("read_file", { path: "a" }), { code: "FORBIDDEN" });
  await run.revokeToken(token.tokenId);
  await assert.rejects(reader.info(), { code: "UNAUTHENTICATED" });
  assert.ok((await all(operator.runs({ limit: 100 }))).some((one) => one.runId === run.id));
  assert.deepEqual([(await run.close()).state, (await run.delete()).state], ["closed", "deleted"]);
  const { name, token: first } = await operator.createOperator({ name: `name-${process.pid}-ts-${run.id.slice(-6)}`, scopes: ["audit"] });
  assert.ok((await all(operator.operators())).some((one) => one.name === name));
  const rotated = await operator.rotateOperatorToken(name, { overlapSeconds: 0 });
  await assert.rejects(all(new Client(url, first).audit({ tool: "none" })), { code: "UNAUTHENTICATED" });
  assert.deepEqual(await all(new Client(url, rotated.token).audit({ tool: "none" })), []);
  await operator.revokeOperator(name);
  assert.ok((await operator.limits()).requests.pageMax > 0);
});

test("webhooks and their deliveries", { skip: process.env.WEBHOOK === undefined }, async () => {
  const webhook = process.env.WEBHOOK;
  assert.deepEqual((await all(operator.webhooks())).map(({ name, state }) => [name, state]), [[webhook, "active"]]);
  const { run } = await newRun();
  await run.close();
  const [closed] = (await all(operator.deliveries(webhook, { order: "desc" }))).filter((one) => one.runId === run.id);
  assert.equal(closed.type, "run.closed");
  const again = await operator.redeliver(webhook, closed.id);
  assert.deepEqual([again.id, again.state, again.attempts], [closed.id, "pending", 0]);
  await assert.rejects(operator.redeliver(webhook, "msg_none"), { code: "NOT_FOUND" });
});

test("a fork is compared and merged", async () => {
  const { run } = await newRun({ "a.txt": "one\n" });
  const { run: fork, token } = await operator.fork(run, { labels: { attempt: "a" } });
  assert.equal(Buffer.from(await fork.readBytes("a.txt")).toString(), "one\n");
  const atBase = await operator.fork(run.id, { atSeq: 0 });
  await assert.rejects(atBase.run.readBytes("a.txt"), { code: "NOT_FOUND" });
  const edit = { path: "a.txt", oldString: "one", newString: "two", reason: "counts" };
  await operator.agent(fork.id, token.token).call("edit_file", edit);
  const compared = await run.compare(fork);
  assert.deepEqual(compared.files.map((file) => [file.path, file.status]), [["a.txt", "different"]]);
  assert.deepEqual((await run.merge(fork, "looks", { dryRun: true })).applied, ["a.txt"]);
  assert.equal(Buffer.from(await run.readBytes("a.txt")).toString(), "one\n");
  assert.deepEqual((await run.merge(fork.id, "its tests pass")).applied, ["a.txt"]);
  assert.equal(Buffer.from(await run.readBytes("a.txt")).toString(), "two\n");
  assert.equal((await run.compare(fork.id, { limit: 1 })).files[0].status, "same");
  await fork.createFile("b.txt", Buffer.from("fork\n"), "of the fork");
  await run.createFile("b.txt", Buffer.from("run\n"), "of the run");
  await assert.rejects(run.merge(fork, "conflicts"), { code: "WRITE_CONFLICT" });
});

test("files and archives are streams", async () => {
  const { run, agent } = await newRun();
  const content = Buffer.alloc(1 << 20, "\0abcXdef");
  const path = "a folder/a#file?.bin";
  assert.equal((await agent.createFile(path, new Blob([content]).stream(), "stores – bytes")).sizeBytes, content.length);
  const rest = new Response(await agent.download(path, content.length - 3));
  assert.equal(await rest.text(), "def");
  await assert.rejects(agent.createFile(path, Buffer.from("x"), "exists"), { code: "ALREADY_EXISTS", status: 412 });
  await agent.replaceFile(path, Buffer.from("one"), "replaces", sha256(content));
  assert.equal(Buffer.from(await agent.readBytes(path)).toString(), "one");
  for (const up of ["a folder/../../b.txt", "..", "../b.txt", "../tools"]) {
    await assert.rejects(agent.readBytes(up), { code: "PATH_REJECTED" });
    await assert.rejects(agent.createFile(up, Buffer.from("x"), "goes up"), { code: "PATH_REJECTED" });
  }
  const archive = await new Response(await run.archive()).arrayBuffer();
  const copy = await operator.createRun({ source: { type: "archive" } });
  await copy.run.uploadArchive(new Uint8Array(archive));
  assert.equal(Buffer.from(await copy.run.readBytes(path)).toString(), "one");
  await assert.rejects(run.bundle({ message: "a change" }), { code: "INVALID_REQUEST" });
  await agent.deleteFile(path, "done with it", sha256("one"));
  const reasons = (await all(run.audit())).filter((one) => one.mutates && one.outcome === "ok").map((one) => one.reason);
  assert.deepEqual(reasons, ["stores – bytes", "replaces", "done with it"]);
});

test("a lost answer is asked for again under the same IDs", async () => {
  const { client, requests } = unreliable([null, 503, 200, null, 429, 200, null]);
  const { run } = await client.createRun();
  assert.equal(requests.length, 3);
  assert.equal(new Set(requests.map((one) => one.headers["Idempotency-Key"])).size, 1);
  assert.equal((await run.call("write_file", { path: "a.txt", content: "a\n", reason: "creates" })).created, true);
  assert.equal((await run.createFile("b.bin", Buffer.from("b"), "stores")).created, true);
  await unreliable([null]).client.run(run.id).recordEvent("message", "sent once");
  const records = (await all(run.audit())).filter((one) => one.mutates || one.tool.startsWith("event."));
  assert.equal(records.length, 3);
  const stream = unreliable([null]);
  await assert.rejects(stream.client.run(run.id).createFile("c.bin", new Blob(["c"]).stream(), "once"), NoAnswer);
  assert.equal(stream.requests.length, 1);
  const busy = unreliable([503, 503, 503]);
  await assert.rejects(busy.client.run(run.id).info(), { code: "UNAVAILABLE" });
  assert.equal(busy.requests.length, 3);
});

test("pages, events, report and verification", async () => {
  const { run, agent } = await newRun({ "a.txt": "a\n" });
  for (let step = 0; step < 4; step++) await agent.call("read_file", { path: "a.txt", stepId: `step-${step}` });
  const records = await all(run.audit({ limit: 2 }));
  assert.deepEqual(records.map((record) => record.seq), records.map((_, index) => index + 1));
  const { token } = await run.issueToken({ permissions: ["event:append"] });
  const runner = operator.agent(run.id, token);
  await runner.recordEvent("prompt", "asks for a change", { data: { model: "scripted" } });
  await runner.recordCommand(["make", "test"], 2, { output: Buffer.from("1 of 12 failed\n"), kind: "test" });
  const key = `-----BEGIN ${"RSA"} PRIVATE KEY-----\nMIIEowIBAAKCAQEA\n-----END ${"RSA"} PRIVATE KEY-----\n`;
  await runner.recordCommand(["cat", "key"], 0, { output: Buffer.from(key) });
  const events = (await all(run.audit())).filter((record) => record.tool.startsWith("event."));
  assert.deepEqual(events.map((event) => event.tool), ["event.prompt", "event.test", "event.command"]);
  const output = await run.artifact(events[1].input.data.outputSha256);
  assert.equal(Buffer.from(output).toString(), "1 of 12 failed\n");
  assert.equal(events[2].input.data.outputRefused, "POLICY_DENIED_SECRET");
  assert.equal((await run.report()).counts.events > 3, true);
  assert.match(await run.reportMarkdown(), /ended with 2/);
  assert.equal((await run.verify()).intact, true);
});

test("a stream is followed across lost connections", async () => {
  const { run, agent } = await newRun();
  for (let file = 0; file < 3; file++) await agent.call("write_file", { path: `${file}.txt`, content: "x\n", reason: "creates" });
  const resume = {};
  const filters = { run: run.id, since: "2020-01-01T00:00:00Z" };
  const first = await take(operator.follow(filters, { resume }), 2);
  const rest = await take(unreliable([null, 503]).client.follow({ run: run.id }, { resume }), 2);
  assert.deepEqual([...first, ...rest].map((event) => event.data.seq), [1, 2, 3, 4]);
  const changes = await take(agent.follow(), 3);
  assert.deepEqual(changes.map((event) => event.data.files[0].path), ["0.txt", "1.txt", "2.txt"]);
  const controller = new AbortController();
  setTimeout(() => controller.abort(new Error("enough")), 100);
  await assert.rejects(all(agent.follow(0, { signal: controller.signal })), { message: "enough" });
});

test("a model calls tools", async () => {
  const { agent } = await newRun({ "a.txt": "a\n" });
  assert.equal((await dispatch(agent, "read_file", '{"path":"a.txt"}')).text, "1  a\n");
  assert.match((await dispatch(agent, "read_file", '{"path":')).text, /^INVALID_REQUEST: the arguments of `read_file`/);
  const unknown = await dispatch(agent, "execute", {});
  assert.ok(!unknown.ok && unknown.text.startsWith("TOOL_NOT_FOUND: "));
  // The same ID twice is two calls: the model invents them.
  for (const path of ["b.txt", "c.txt"]) {
    assert.equal((await dispatch(agent, "write_file", { path, content: "x\n", reason: "creates", toolCallId: "tc_1" })).ok, true);
  }
  const read = (await functions(agent)).find((tool) => tool.name === "read_file");
  assert.deepEqual([await read.call({ path: "a.txt" }), read.schema.required], ["1  a\n", ["path"]]);
});
