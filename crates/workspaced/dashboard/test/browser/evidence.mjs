// What a reviewer is told of the tests: which command made the change, what ran before it, and how it ended.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { startRun } from "./agent.mjs";
import { tar } from "./seed.mjs";

const COMMAND = "git apply fix.patch &&\npython3 -m unittest";
const OUTPUT = `${Array.from({ length: 30 }, (_, line) => `line ${line + 1}`).join("\n")}\nFAILED (failures=1)\n`;

/** Sends what a command has changed, with its exit code and its output. Returns the approval that it waits for. */
async function changeset({ base, token }, run, files) {
  const digest = createHash("sha256").update(OUTPUT).digest("hex");
  const headers = { authorization: `Bearer ${token}` };
  const stored = await fetch(`${base}/v1/runs/${run}/artifacts/sha256/${digest}`, { method: "PUT", headers: { ...headers, "content-type": "text/plain" }, body: OUTPUT });
  assert.ok(stored.ok, await stored.text());
  const { headSeq } = await (await fetch(`${base}/v1/runs/${run}`, { headers })).json();
  const form = new FormData();
  form.append("changeset", JSON.stringify({ basedOnSeq: headSeq, reason: "round by cents", stepId: "change", command: { argv: ["sh", "-c", COMMAND], cwd: ".", exitCode: 1, durationMicros: 412_345, outputSha256: digest } }));
  form.append("layer", new Blob([tar(files)]));
  const response = await fetch(`${base}/v1/runs/${run}/changesets`, { method: "POST", headers, body: form });
  const answer = await response.json();
  assert.ok(answer.approvalId, JSON.stringify(answer));
  return answer.approvalId;
}

export async function a_reviewer_is_told_which_tests_ran_with_a_change({ base, operator, open }) {
  const run = "evidence-1";
  const call = await startRun(operator, run, { policy: { kinds: { TEXT_SOURCE: "REQUIRE_APPROVAL" } } });
  await call("write_file", { path: "notes.md", content: "x\n", reason: "notes" });
  const edited = await call("write_file", { path: "b.py", content: "b = 1\n", reason: "by hand" });
  const made = await changeset(operator, run, { "a.py": "a = 1\n" });
  await operator.create(`/v1/runs/${run}/events`, { kind: "command", summary: "npm run build: exit 0", data: { command: "npm run build", exitCode: 0 } });
  const { page, close } = await open("approver");
  const region = page.getByRole("region", { name: "Approval" });
  // What a command changed: it ran with the change, as it was typed, and its end is shown.
  await page.goto(`${base}/approvals?id=${made}`);
  await region.getByText("it made this change, and ran with it").waitFor();
  assert.equal(await region.getByText("Its command", { exact: true }).count(), 1);
  await region.getByText("✕ exit 1").waitFor();
  assert.match(await region.getByRole("region", { name: "Command" }).innerText(), /git apply fix\.patch &&\npython3 -m unittest/);
  const output = await region.getByRole("region", { name: "Output" }).innerText();
  assert.ok(output.endsWith("FAILED (failures=1)") && output.split("\n").length === 10, output);
  await region.getByRole("button", { name: "Show all" }).click();
  await region.getByText("line 1\n", { exact: false }).first().waitFor();
  // A command is not called a test, and ran without what waits.
  await page.goto(`${base}/approvals?id=${edited.approvalId}`);
  await region.getByText("npm run build").waitFor();
  await region.getByText("the run's files do not have it yet").waitFor();
  assert.equal(await region.getByText("Last command", { exact: true }).count(), 1);
  assert.equal(await region.getByText("Last test", { exact: true }).count(), 0);
  await close();
}

export async function who_changed_the_file_meanwhile_is_named({ base, operator, open }) {
  const call = await startRun(operator, "evidence-2", { policy: { kinds: { TEXT_SOURCE: "REQUIRE_APPROVAL" } } });
  const [mine, other] = [await call("write_file", { path: "a.py", content: "a = 1\n", reason: "one" }), await call("write_file", { path: "a.py", content: "a = 2\n", reason: "two" })];
  await operator.create(`/v1/approvals/${other.approvalId}/approve`, { note: "as agreed", onBehalfOf: "Bob" });
  const { page, close } = await open("approver");
  await page.goto(`${base}/approvals?id=${mine.approvalId}`);
  const region = page.getByRole("region", { name: "Approval" });
  await region.getByRole("alert").getByText(/#\d+ write_file/).waitFor();
  await region.getByText("approved by Bob: as agreed").first().waitFor();
  // What cannot be applied cannot be edited either.
  assert.equal(await region.getByRole("button", { name: "Edit first…" }).count(), 0);
  assert.equal(await region.getByRole("button", { name: "Approve anyway" }).count(), 1);
  await close();
}

export async function a_step_says_what_still_waits({ base, operator, open }) {
  const call = await startRun(operator, "evidence-3", { policy: { kinds: { TEXT_SOURCE: "REQUIRE_APPROVAL" } } });
  const { approvalId } = await call("write_file", { path: "a.py", content: "a = 1\n", reason: "one", stepId: "change" });
  await call("read_file", { path: "a.py", stepId: "look" });
  const { page, close } = await open("operator");
  await page.goto(`${base}/runs/evidence-3`);
  const head = page.locator(".step-row", { hasText: "change" });
  await head.getByText("1 asked").waitFor();
  await operator.create(`/v1/approvals/${approvalId}/approve`, { onBehalfOf: "Bob" });
  await head.getByText("1 changed").waitFor();
  assert.equal(await head.getByText("asked").count(), 0);
  await close();
}
