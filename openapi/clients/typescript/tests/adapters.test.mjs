// The providers' own packages do a whole task in a run, with a scripted model on loopback in the place of the provider.

import assert from "node:assert/strict";
import { cpSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";

// `MODULES` has the folders of the providers' packages, as a PATH: the first that has one gives it.
const { WORKSPACED_URL: url, OPERATOR: token, MODULES: modules } = process.env;
const source = fileURLToPath(new URL("..", import.meta.url));

// The package as npm installs it, beside the providers' packages.
const folder = mkdtempSync(join(tmpdir(), "workspaced-adapters-"));
after(() => rmSync(folder, { recursive: true }));
mkdirSync(join(folder, "node_modules"));
const installed = modules.split(":").reverse().flatMap((from) => readdirSync(from).map((name) => [name, join(from, name)]));
for (const [name, from] of new Map(installed)) symlinkSync(from, join(folder, "node_modules", name));
for (const part of ["package.json", "dist"]) cpSync(join(source, part), join(folder, "node_modules/workspaced-client", part), { recursive: true });

// Packages are resolved from the folder of the module that imports them.
writeFileSync(
  join(folder, "packages.mjs"),
  `export { default as Anthropic } from "@anthropic-ai/sdk";
  export { default as OpenAI } from "openai";
  export { createOpenAI } from "@ai-sdk/openai";
  export { generateText, stepCountIs } from "ai";
  export { Client } from "workspaced-client";
  export * as ai from "workspaced-client/ai";
  export * as anthropic from "workspaced-client/anthropic";
  export * as openai from "workspaced-client/openai";`,
);
const { Anthropic, OpenAI, Client, ai, anthropic, createOpenAI, generateText, openai, stepCountIs } = await import(join(folder, "packages.mjs"));
const operator = new Client(url, token);

const FILES = { "calc.py": "def add(a, b):\n    return a - b\n" };
const WHY = { reason: "the task asks for it" };
const edit = (oldString) => ({ path: "calc.py", oldString, newString: "    return a + b\n", reason: "add, as the test expects" });
// A whole task: each call, and how the text that the model reads after it begins.
const TASK = [
  ["read_file", { path: "calc.py" }, "1  def add(a, b):\n2      return a - b\n"],
  ["edit_file", edit("    return a -b\n"), "EDIT_NOT_FOUND: "],
  ["edit_file", edit("    return a - b\n"), "edited calc.py"],
  ["write_file", { path: ".env", content: "A=1\n", ...WHY }, "POLICY_DENIED_SECRET: `.env` is a secret file"],
  ["write_file", { path: "Cargo.lock", content: "version = 4\n", ...WHY }, "APPROVAL_REQUIRED: "],
  ["read_file", { path: "Cargo.lock" }, "approved: Cargo.lock (write_file), applied\n1  version = 4\n"],
  ["write_file", { path: "notes.md", content: "# Notes\n", ...WHY }, "created notes.md"],
  ["revert_calls", { last: 1, ...WHY }, "undid 1 call"],
];
const REFUSED = [1, 3, 4];
/** Before the model asks for this call, a person has approved the one before it. */
const APPROVED = 5;

/** What each API answers: a call of a tool, and the end. */
const usage = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 };
const chat = (message, finish_reason) => ({
  id: "chatcmpl_1", object: "chat.completion", created: 0, model: "scripted", usage,
  choices: [{ index: 0, finish_reason, message: { role: "assistant", content: null, ...message } }],
});
const response = (output) => ({
  id: "resp_1", object: "response", created_at: 0, model: "scripted", status: "completed", output, parallel_tool_calls: true,
  tool_choice: "auto", tools: [], usage: { input_tokens: 1, output_tokens: 1, total_tokens: 2 },
});
const message = (content, stop_reason) => ({
  id: "msg_1", type: "message", role: "assistant", model: "scripted", content, stop_reason, stop_sequence: null,
  usage: { input_tokens: 1, output_tokens: 1 },
});
const APIS = {
  chat: {
    turn: (number, name, input) =>
      chat({ tool_calls: [{ id: `call_${number}`, type: "function", function: { name, arguments: JSON.stringify(input) } }] }, "tool_calls"),
    end: chat({ content: "done" }, "stop"),
  },
  responses: {
    turn: (number, name, input) =>
      response([{ type: "function_call", id: `fc_${number}`, call_id: `call_${number}`, status: "completed", name, arguments: JSON.stringify(input) }]),
    end: response([
      { type: "message", id: "msg_1", role: "assistant", status: "completed", content: [{ type: "output_text", text: "done", annotations: [] }] },
    ]),
  },
  messages: {
    turn: (number, name, input) => message([{ type: "tool_use", id: `call_${number}`, name, input }], "tool_use"),
    end: message([{ type: "text", text: "done" }], "end_turn"),
  },
};

/** Serves a model that asks for these calls one after the other, and keeps what it is sent. */
async function serve({ turn, end }, calls, before = async () => {}) {
  const asked = [];
  const server = createServer(async (request, answer) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    const number = asked.push(JSON.parse(body)) - 1;
    await before(number);
    answer.setHeader("Content-Type", "application/json");
    answer.end(JSON.stringify(number < calls.length ? turn(number, ...calls[number]) : end));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { asked, url: `http://127.0.0.1:${server.address().port}`, close: () => server.close() };
}

/** Has `drive(agent, url, asked)` do the task, which returns what the model has read: the IDs of the calls and the texts. */
async function doTask(api, drive) {
  const { run, token } = await operator.createRun();
  for (const [path, content] of Object.entries(FILES)) await run.createFile(path, Buffer.from(content), "the test's files");
  const approve = async (number) => {
    if (number !== APPROVED) return;
    for await (const waiting of operator.approvals({ run: run.id })) await operator.approve(waiting.approvalId, { onBehalfOf: "ada" });
  };
  const model = await serve(api, TASK, approve);
  try {
    const read = await drive(operator.agent(run.id, token.token), model.url, model.asked);
    assert.equal(read.length, TASK.length);
    for (const [number, [, , expected]] of TASK.entries()) {
      const { id, text, failed } = read[number];
      assert.ok(text.startsWith(expected), `${number}: ${text}`);
      assert.equal(id, `call_${number}`);
      if (failed !== undefined) assert.equal(failed, REFUSED.includes(number), text);
    }
    assert.equal(Buffer.from(await run.readBytes("calc.py")).toString(), "def add(a, b):\n    return a + b\n");
    assert.equal((await run.tool.stat_path({ path: "notes.md" })).exists, false);
  } finally {
    model.close();
  }
}

const ASKED = [{ role: "user", content: "Correct add." }];
const ofMessages = (asked) =>
  asked.slice(1).flatMap((one) => one.messages.at(-1).content.map((part) => ({ id: part.tool_use_id, text: part.content, failed: part.is_error ?? false })));
/** The text of a refusal that `@ai-sdk/openai` 4 has put into JSON. */
const unwrapped = (text) => (text.startsWith('{"error":"Error: ') ? JSON.parse(text).error.replace("Error: ", "") : text);
const ofChat = (asked) =>
  asked.at(-1).messages.filter((one) => one.role === "tool").map((one) => ({ id: one.tool_call_id, text: one.content }));

test("the runner of @anthropic-ai/sdk does a whole task", () =>
  doTask(APIS.messages, async (agent, baseURL, asked) => {
    const sdk = new Anthropic({ baseURL, apiKey: "none" });
    const tools = await anthropic.toolsFor(agent);
    const last = await sdk.beta.messages.toolRunner({ model: "scripted", max_tokens: 100, tools, messages: ASKED });
    assert.equal(last.stop_reason, "end_turn");
    assert.deepEqual(asked[0].tools, await agent.tools("anthropic", "model"));
    return ofMessages(asked);
  }));

test("a loop with @anthropic-ai/sdk does a whole task", () =>
  doTask(APIS.messages, async (agent, baseURL, asked) => {
    const sdk = new Anthropic({ baseURL, apiKey: "none" });
    const [tools, messages] = [await anthropic.messageTools(agent), [...ASKED]];
    for (;;) {
      const reply = await sdk.messages.create({ model: "scripted", max_tokens: 100, tools, messages });
      if (reply.stop_reason !== "tool_use") return ofMessages(asked);
      messages.push({ role: "assistant", content: reply.content });
      messages.push({ role: "user", content: await Promise.all(reply.content.map((block) => anthropic.answer(agent, block))) });
    }
  }));

test("the runner of openai does a whole task", () =>
  doTask(APIS.chat, async (agent, baseURL, asked) => {
    const sdk = new OpenAI({ baseURL, apiKey: "none" });
    const tools = await openai.toolsFor(agent);
    const runner = sdk.chat.completions.runTools({ model: "scripted", tools, messages: ASKED }, { maxChatCompletions: 20 });
    assert.equal(await runner.finalContent(), "done");
    return ofChat(asked);
  }));

test("loops with openai do a whole task", async () => {
  await doTask(APIS.chat, async (agent, baseURL, asked) => {
    const sdk = new OpenAI({ baseURL, apiKey: "none" });
    const [tools, messages] = [await openai.chatTools(agent), [...ASKED]];
    for (;;) {
      const { message } = (await sdk.chat.completions.create({ model: "scripted", tools, messages })).choices[0];
      if (!message.tool_calls) break;
      messages.push(message);
      for (const call of message.tool_calls) messages.push(await openai.answerChat(agent, call));
    }
    assert.deepEqual(asked[0].tools, await agent.tools("openai", "model"));
    return ofChat(asked);
  });
  await doTask(APIS.responses, async (agent, baseURL, asked) => {
    const sdk = new OpenAI({ baseURL, apiKey: "none" });
    const [tools, input] = [await openai.responseTools(agent), [...ASKED]];
    for (;;) {
      const reply = await sdk.responses.create({ model: "scripted", tools, input });
      if (reply.output_text) break;
      for (const item of reply.output) input.push(item, await openai.answerResponse(agent, item));
    }
    const outputs = asked.at(-1).input.filter((one) => one.type === "function_call_output");
    return outputs.map((one) => ({ id: one.call_id, text: one.output }));
  });
});

test("the loop of ai does a whole task", () =>
  doTask(APIS.chat, async (agent, baseURL, asked) => {
    const model = createOpenAI({ baseURL, apiKey: "none" }).chat("scripted");
    const done = await generateText({ model, tools: await ai.toolsFor(agent), stopWhen: stepCountIs(20), messages: ASKED });
    assert.equal(done.text, "done");
    const failed = done.steps.flatMap((step) => step.content).filter((part) => part.type === "tool-error");
    assert.deepEqual(failed.map((part) => part.toolCallId), REFUSED.map((number) => `call_${number}`));
    const declared = asked[0].tools.map((tool) => tool.function);
    assert.deepEqual(declared, (await agent.tools("openai", "model")).map((tool) => tool.function));
    return ofChat(asked).map(({ id, text }) => ({ id, text: unwrapped(text) }));
  }));
