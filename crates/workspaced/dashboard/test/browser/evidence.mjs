// What a reviewer is told of the tests: which command made the change, what ran before it, and how it ended.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { Client, startRun } from "./agent.mjs";
import { tar } from "./seed.mjs";

const COMMAND = "git apply - <<'EOF' && python3 -m unittest discover -s tests\n--- a/a.py\n+++ b/a.py\nEOF";
const OUTPUT = `${Array.from({ length: 30 }, (_, line) => `line ${line + 1}`).join("\n")}\nFAILED (failures=1)\n`;

/** Sends what a command has changed, with its exit code and its output. Returns the approval that it waits for. */
async function changeset({ base, token }, run, files, output = OUTPUT, exitCode = 1) {
  const digest = createHash("sha256").update(output).digest("hex");
  const headers = { authorization: `Bearer ${token}` };
  const stored = await fetch(`${base}/v1/runs/${run}/artifacts/sha256/${digest}`, { method: "PUT", headers: { ...headers, "content-type": "text/plain" }, body: output });
  assert.ok(stored.ok, await stored.text());
  const { headSeq } = await (await fetch(`${base}/v1/runs/${run}`, { headers })).json();
  const form = new FormData();
  form.append("changeset", JSON.stringify({ basedOnSeq: headSeq, reason: "round by cents", stepId: "change", command: { argv: ["sh", "-c", COMMAND], cwd: ".", exitCode, durationMicros: 412_345, outputSha256: digest } }));
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
  const passing = await changeset(operator, run, { "c.py": "c = 1\n" }, ".....\n-----\nRan 5 tests in 0.002s\n\nOK\n", 0);
  await operator.create(`/v1/runs/${run}/events`, { kind: "command", summary: "npm run build: exit 0", data: { command: "npm run build", exitCode: 0 } });
  const { page, close } = await open("approver");
  const region = page.getByRole("region", { name: "Approval" });
  // What a command changed: it ran with the change, as it was typed, and its end is shown.
  await page.goto(`${base}/approvals?id=${made}`);
  // What was tested, and how it ended; the patch is in the record.
  await region.locator(".tested", { hasText: "unittest" }).waitFor();
  assert.match((await region.locator(".tested").innerText()).replace(/\s+/g, " "), /^✕ exit 1 with this change python3 -m unittest \S/);
  const output = await region.getByRole("region", { name: "Output" }).innerText();
  assert.ok(output.endsWith("FAILED (failures=1)") && output.split("\n").length === 10, output);
  await region.getByRole("button", { name: /^Show all/ }).click();
  await region.getByText("line 1\n", { exact: false }).first().waitFor();
  await page.goto(`${base}/approvals?id=${passing}`);
  await region.locator(".tested .tone-good", { hasText: "✓ exit 0" }).waitFor();
  // A command is not called a test, and ran without what waits.
  await page.goto(`${base}/approvals?id=${edited.approvalId}`);
  // The command is told in a few words, and when it ran once somebody asks.
  await region.getByText("No test run includes this change.", { exact: true }).waitFor();
  assert.equal(await region.getByText("npm run build").count(), 0);
  assert.equal(await region.getByText("exit 0").count(), 0);
  assert.equal(await region.getByText("without this change").count(), 0);
  const height = await region.locator(".tested").evaluate((row) => row.offsetHeight);
  assert.ok(height < 30, `${height}`);
  await page.locator("h1").click();
  await page.keyboard.press("o");
  await region.getByRole("link", { name: "npm run build" }).waitFor();
  await region.getByText("exit 0, ").waitFor();
  await region.getByText("without this change").waitFor();
  await region.getByText("No test run includes this change.", { exact: true }).waitFor();
  assert.equal(await region.locator(".request .badge.tone-good").count(), 0);
  assert.equal(await region.getByText("Checks", { exact: true }).count(), 1);
  await page.keyboard.press("o");
  await region.getByText("exit 0, ").waitFor({ state: "detached" });
  await close();
}

export async function decisions_of_people_are_told_from_calls_of_the_agent({ base, operator, open }) {
  const run = "evidence-4";
  const call = await startRun(operator, run, { labels: { agent: "coder-9" }, policy: { kinds: { TEXT_SOURCE: "REQUIRE_APPROVAL" } } });
  const ask = (path) => call("write_file", { path, content: "limit = 30 * 60 * 60\n", reason: `limit of ${path}`, stepId: "change" });
  const [denied, edited] = [await ask("a.py"), await ask("b.py")];
  const note = `this is wrong, ${"and the note is long ".repeat(20)}`.trim();
  await operator.create(`/v1/approvals/${denied.approvalId}/deny`, { note, onBehalfOf: "Bob" });
  const result = await operator.create(`/v1/approvals/${edited.approvalId}/approve`, { onBehalfOf: "Ada", note: "seconds", edits: [{ path: "b.py", oldString: "30 * 60 * 60", newString: "30 * 60" }] });
  const { page, close } = await open("operator");
  await page.goto(`${base}/runs/${run}`);
  // The agent's row keeps what it says, and has who decided; the person's row is of its own kind.
  const asked = page.locator(".call-row", { hasText: "limit of a.py" }).first();
  await asked.getByText("denied by Bob", { exact: true }).waitFor();
  await asked.getByText("write_file").waitFor();
  assert.equal(await asked.getByText("and the note is long").count(), 0);
  assert.match(await page.locator(".call-row.decision").nth(0).innerText(), /Bob denied a\.py/);
  assert.match(await page.locator(".call-row.decision").nth(1).innerText(), /Ada approved b\.py/);
  assert.match(await page.locator(".call-row.decision").nth(2).innerText(), /Ada edited b\.py/);
  // The approval shows who decided and when, what the agent asked for, what the person changed of it, and what came of both, in this order.
  await page.goto(`${base}/approvals?id=${edited.approvalId}&state=approved`);
  const applied = page.getByRole("region", { name: "What was applied" });
  await applied.locator(".diff-line.add", { hasText: /limit = 30 \* 60$/ }).waitFor();
  assert.equal(await applied.locator(".diff-line").count(), 1);
  await page.locator("p", { hasText: "Approved with changes by Ada" }).locator("time").waitFor();
  await page.getByText("by coder-9").waitFor();
  const changes = page.getByRole("region", { name: "Changes of the reviewer" });
  await changes.locator(".diff-line.add", { hasText: /limit = 30 \* 60$/ }).waitFor();
  assert.equal(await changes.getByRole("link", { name: `record #${result.editedSeq}` }).count(), 1);
  const headings = await page.getByRole("region", { name: "Approval" }).locator("h3").allTextContents();
  assert.deepEqual(headings, ["Original request", "What Ada changed", "What was applied"]);
  await close();
}

export async function the_end_of_the_queue_says_what_was_decided({ base, operator, open, tokens }) {
  const call = await startRun(operator, "evidence-5", { policy: { kinds: { TEXT_SOURCE: "REQUIRE_APPROVAL" } } });
  const { approvalId } = await call("write_file", { path: "a.py", content: "a = 1\n", reason: "one" });
  // What the reviewer has decided before this page was opened counts too; what others have does not.
  const [before, others] = [await call("write_file", { path: "b.py", content: "b = 1\n", reason: "two" }), await call("write_file", { path: "c.py", content: "c = 1\n", reason: "three" })];
  await new Client(base, tokens.approver).create(`/v1/approvals/${before.approvalId}/deny`, { note: "decided before" });
  await operator.create(`/v1/approvals/${others.approvalId}/deny`, { note: "decided by another", onBehalfOf: "Bob" });
  const { page, close } = await open("approver");
  const only = (items) => ({ status: 200, contentType: "application/json", body: JSON.stringify({ items }) });
  // Nothing else waits, whatever other tests have left.
  await page.route(/\/v1\/approvals\?state=pending&order=asc/, async (route) => {
    const { items } = await (await route.fetch()).json();
    await route.fulfill(only(items.filter((item) => item.approvalId === approvalId)));
  });
  await page.goto(`${base}/approvals`);
  await page.getByRole("button", { name: "Approve", exact: true }).click();
  await page.getByText(/^Nothing is waiting\. You decided ([2-9]|\d\d+) today:/).waitFor();
  const mine = page.getByRole("list", { name: "Your decisions" });
  await mine.getByText("a.py").first().waitFor();
  await mine.getByText("decided before").waitFor();
  assert.equal(await mine.getByText("decided by another").count(), 0);
  // The same when the page is opened anew.
  await page.goto(`${base}/approvals`);
  await mine.getByText("decided before").waitFor();
  await page.getByRole("heading", { name: "Approvals" }).waitFor();
  await close();
}

export async function a_step_says_what_still_waits({ base, operator, open }) {
  const call = await startRun(operator, "evidence-3", { policy: { kinds: { TEXT_SOURCE: "REQUIRE_APPROVAL" } } });
  const { approvalId } = await call("write_file", { path: "a.py", content: "a = 1\n", reason: "one", stepId: "change" });
  await call("read_file", { path: "a.py", stepId: "look" });
  const { page, close } = await open("operator");
  await page.goto(`${base}/runs/evidence-3`);
  const head = page.locator(".step-row", { hasText: "change" });
  await head.getByText("1 waiting").waitFor();
  await operator.create(`/v1/approvals/${approvalId}/approve`, { onBehalfOf: "Bob" });
  await head.getByText("1 changed").waitFor();
  assert.equal(await head.getByText("waiting").count(), 0);
  await close();
}

export async function what_people_read_is_told_apart_and_what_they_change_is_theirs({ base, operator, open }) {
  const run = "evidence-6";
  const call = await startRun(operator, run);
  await call("write_file", { path: "a.md", content: "one\n", reason: "start", stepId: "write" });
  await operator.create(`/v1/runs/${run}/tools/read_file`, { path: "a.md" });
  await operator.create(`/v1/runs/${run}/tools/edit_file`, { path: "a.md", oldString: "one", newString: "two", expectedSha256: "seen", reason: "by hand" });
  await operator.create(`/v1/runs/${run}/tools/list_dir`, {});
  await call("read_file", { path: "a.md", stepId: "write" });
  const { headSeq } = (await operator.request("GET", `/v1/runs/${run}`)).body;
  const { page, close } = await open("approver");
  await page.goto(`${base}/runs/${run}`);
  // Looking at the run adds reads: the numbers of what happened stay.
  const proof = page.locator(".proof", { hasText: `${headSeq - 2} records checked` });
  await proof.getByText("2 views by people hidden").waitFor({ timeout: 30000 });
  await page.locator(".aside").getByText("2 views by people hidden.").waitFor();
  const row = page.locator(".call-row.decision", { hasText: "edited" });
  assert.match(await row.innerText(), /(operator|orchestrate) edited a\.md edit_file by hand/);
  const head = page.locator(".step-row", { hasText: "write" });
  await head.getByText("1 read · 1 changed").waitFor();
  await head.click();
  await row.waitFor();
  await close();
}

export async function the_report_names_who_approved_with_changes({ base, operator, open }) {
  const call = await startRun(operator, "evidence-7", { policy: { kinds: { TEXT_SOURCE: "REQUIRE_APPROVAL" } } });
  const { approvalId } = await call("write_file", { path: "a.py", content: "limit = 30 * 60 * 60\n", reason: "the limit" });
  const { editedSeq } = await operator.create(`/v1/approvals/${approvalId}/approve`, { onBehalfOf: "Ada", note: "seconds", edits: [{ path: "a.py", oldString: "30 * 60 * 60", newString: "30 * 60" }] });
  const { page, close } = await open("approver");
  await page.goto(`${base}/runs/evidence-7?tab=report`);
  const line = page.getByRole("list", { name: "Approvals" }).getByRole("listitem").first();
  await line.getByText("approved with changes by Ada").waitFor();
  assert.match(await line.innerText(), new RegExp(`\\(record ${editedSeq}\\): seconds$`));
  await page.getByRole("button", { name: "Preview" }).click();
  const body = page.getByRole("region", { name: "Body of a pull request" });
  await body.getByText(/approved with changes.*Ada/s).waitFor();
  await close();
}
