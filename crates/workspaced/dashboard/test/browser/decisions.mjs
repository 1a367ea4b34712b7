// What a person decides: approving, denying, conflicts, several at once, reverting; and what scopes permit.

import assert from "node:assert/strict";
import { armed, becomes, Client, startRun, work } from "./agent.mjs";

const state = async (operator, id) => (await operator.request("GET", `/v1/approvals/${id}`)).body;

export async function an_approval_is_given_with_a_note({ base, operator, open }) {
  const id = await work(await startRun(operator, "approve"));
  const { page, close } = await open("approver");
  await page.goto(`${base}/approvals`);
  await page.locator(".queue li", { hasText: "approve" }).getByRole("link").click();
  await page.getByText("version = 4").waitFor();
  // The rule in words; its name is in the title, and in the part that is folded.
  const region = page.getByRole("region", { name: "Approval" });
  assert.match(await region.locator(".rule", { hasText: "changes a lock file" }).getAttribute("title"), /requireApprovalIf:touchesLockfile/);
  await region.getByText("Details").click();
  await region.getByText("requireApprovalIf:touchesLockfile", { exact: true }).waitFor();
  await page.getByLabel("Note (optional)").fill("checked the versions");
  await page.getByRole("button", { name: "Approve", exact: true }).click();
  await becomes(page, "Cargo.lock", /✓ approved \(record \d+\)/);
  const auditor = await open("audit");
  await auditor.page.goto(`${base}/runs/approve`);
  await auditor.page.locator(".call-row", { hasText: /approved \(record 10\)/ }).waitFor();
  await auditor.close();
  const { state: now, note, decidedBy } = await state(operator, id);
  assert.deepEqual([now, note, decidedBy], ["approved", "checked the versions", "ada"]);
  await close();
}

export async function a_denial_changes_nothing({ base, operator, open }) {
  const id = await work(await startRun(operator, "deny"));
  const { page, close } = await open("approver");
  await page.goto(`${base}/approvals?id=${id}`);
  await page.getByRole("button", { name: "Deny…" }).click();
  // The agent reads why: without that nothing is denied.
  const deny = page.getByRole("button", { name: "Deny", exact: true });
  assert.equal(await deny.isDisabled(), true);
  await page.getByLabel(/^Reason \(sent to the agent\)/).fill("not in this change");
  await deny.click();
  await becomes(page, "Cargo.lock", "✕ denied");
  const { state: now, note } = await state(operator, id);
  assert.deepEqual([now, note], ["denied", "not in this change"]);
  await close();
}

export async function several_are_decided_only_after_each_was_opened({ base, operator, open }) {
  const call = await startRun(operator, "several");
  const ids = [];
  for (const name of ["a", "b"]) ids.push((await call("write_file", { path: `${name}/Cargo.lock`, content: "x\n", reason: `lock ${name}` })).approvalId);
  const { page, close } = await open("approver");
  await page.goto(`${base}/approvals`);
  const rows = page.locator(".queue li", { hasText: "several" });
  for (const index of [0, 1]) await rows.nth(index).getByRole("checkbox").check();
  const approve = page.getByRole("button", { name: "Approve 2" });
  assert.equal(await approve.isDisabled(), true);
  for (const index of [0, 1]) {
    await rows.nth(index).getByRole("link").click();
    await page.getByText(`lock ${"ab"[index]}`).first().waitFor();
  }
  await approve.click();
  await rows.first().waitFor({ state: "detached" });
  await page.locator(".last-decision.sent").waitFor();
  for (const id of ids) assert.equal((await state(operator, id)).state, "approved");
  await close();
}

export async function what_something_speaks_against_is_not_approved_with_others({ base, operator, open }) {
  const call = await startRun(operator, "several-guarded", { policy: { kinds: { TEXT_SOURCE: "REQUIRE_APPROVAL" } } });
  const ask = async (path, content) => (await call("write_file", { path, content, reason: `write ${path}` })).approvalId;
  const [plain, host, secret] = [await ask("plain.py", "a = 1\n"), await ask("host.py", "url = \"https://deploy-status.dev/hook\"\n"), await ask("secret.py", "SMTP_PASSWORD = \"vT9q-8sKd2LmXw4z\"\n")];
  const { page, close } = await open("approver");
  await page.goto(`${base}/approvals`);
  const row = (path) => page.locator(".queue li", { hasText: "several-guarded" }).filter({ hasText: path });
  for (const path of ["plain.py", "host.py", "secret.py"]) {
    await row(path).getByRole("checkbox").check();
    await row(path).getByRole("link").click();
    await page.getByRole("region", { name: "Approval" }).getByText(`write ${path}`).waitFor();
  }
  await page.getByText("Not in the bulk approval: host.py (new host), secret.py (looks like a credential)").waitFor();
  await page.getByRole("button", { name: "Approve 1", exact: true }).click();
  await row("plain.py").waitFor({ state: "detached" });
  const sent = (verb) => page.waitForResponse((response) => response.url().endsWith(`/${verb}`));
  await sent("approve");
  const states = async () => Promise.all([plain, host, secret].map(async (id) => (await state(operator, id)).state));
  assert.deepEqual(await states(), ["approved", "pending", "pending"]);
  // They stay chosen: nothing of them can be approved together, and all of them can be denied.
  assert.equal(await page.getByRole("button", { name: "Approve 0", exact: true }).isDisabled(), true);
  await page.getByRole("button", { name: "Deny 2…" }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByLabel(/^Reason/).fill("neither");
  await dialog.getByRole("button", { name: "Deny 2" }).click();
  await page.locator(".last-decision.sent", { hasText: "2 changes" }).waitFor();
  assert.deepEqual(await states(), ["approved", "denied", "denied"]);
  await close();
}

export async function the_first_that_waits_is_open_and_the_next_opens_after_a_decision({ base, operator, open }) {
  const call = await startRun(operator, "in-turn");
  const ids = [];
  for (const name of ["a", "b", "c"]) ids.push((await call("write_file", { path: `${name}/Cargo.lock`, content: `${name}\n`, reason: `lock ${name} in turn` })).approvalId);
  const { page, close } = await open("approver");
  const region = page.getByRole("region", { name: "Approval" });
  await page.goto(`${base}/approvals`);
  // Other tests may have left older ones.
  await region.getByRole("button", { name: "Approve", exact: true }).waitFor();
  assert.equal(new URL(page.url()).searchParams.get("id"), (await operator.request("GET", "/v1/approvals?state=pending&order=asc&limit=1")).body.items[0].approvalId);
  await page.goto(`${base}/approvals?id=${ids[0]}`);
  await region.getByText("lock a in turn").first().waitFor();
  await page.locator("h1").click();
  await armed(page);
  await page.keyboard.press("a");
  await region.getByText("lock b in turn").first().waitFor();
  // In one line above the change, which keeps its height.
  const status = page.locator(".last-decision");
  await status.getByRole("button", { name: "Undo (z)" }).waitFor();
  assert.ok((await status.boundingBox()).height <= 24);
  assert.ok((await region.locator(".approval-head").boundingBox()).y - (await region.boundingBox()).y <= 1);
  await armed(page);
  await page.keyboard.press("d");
  await page.keyboard.type("b is not needed");
  await page.keyboard.press("Control+Enter");
  await region.getByText("lock c in turn").first().waitFor();
  await becomes(page, "b/Cargo.lock", "✕ denied");
  // What was decided about the same run is not repeated, and what was decided has left the queue.
  assert.equal(await page.locator(".queue li", { hasText: "in-turn" }).count(), 1);
  const states = await Promise.all(ids.map(async (id) => (await state(operator, id)).state));
  assert.deepEqual(states, ["approved", "denied", "pending"]);
  await operator.create(`/v1/approvals/${ids[2]}/deny`, { note: "done", onBehalfOf: "Ada" });
  await close();
}

export async function a_reviewer_who_only_decides_sees_task_and_tests(test) {
  const { base, operator, open } = test;
  const call = await startRun(operator, "informed");
  await operator.create("/v1/runs/informed/events", { kind: "prompt", summary: "Lock the dependencies of the shop." });
  await operator.create("/v1/runs/informed/events", { kind: "test", summary: "cargo test: exit 101", data: { command: "cargo test", exitCode: 101 } });
  const { approvalId } = await call("write_file", { path: "Cargo.lock", content: "x\n", reason: "lock" });
  const { page, close } = await open("approver");
  await page.goto(`${base}/approvals?id=${approvalId}`);
  const region = page.getByRole("region", { name: "Approval" });
  await region.getByText("Lock the dependencies of the shop.").waitFor();
  await region.getByText("No test run includes this change.").waitFor();
  await region.getByText("The last run before it failed (exit 101).").waitFor();
  assert.equal(await region.locator("summary", { hasText: "Details" }).locator(":not(.sr-only)").innerText(), "✓ File unchanged since the request");
  await operator.create(`/v1/approvals/${approvalId}/deny`, { note: "done", onBehalfOf: "Ada" });
  await close();
}

export async function a_reviewer_changes_the_proposed_text({ base, operator, open }) {
  const call = await startRun(operator, "edited", { policy: { kinds: { TEXT_DOC: "REQUIRE_APPROVAL" } } });
  const { approvalId } = await call("write_file", { path: "notes.md", content: "one\ntwo\n", reason: "notes" });
  const { page, close } = await open("approver");
  await page.goto(`${base}/approvals?id=${approvalId}`);
  const region = page.getByRole("region", { name: "Approval" });
  await region.getByRole("button", { name: "Edit first…" }).click();
  const approve = region.getByRole("button", { name: "Approve with my changes" });
  assert.equal(await approve.isDisabled(), true);
  await region.getByLabel(/notes\.md, lines 1 to 2/).fill("one\nthree");
  await approve.click();
  await becomes(page, "notes.md", /✓ approved \(record \d+\), with changes \(record \d+\)/);
  assert.equal((await call("read_file", { path: "notes.md", format: "raw" })).content, "one\nthree\n");
  await close();
}

export async function earlier_decisions_about_the_same_file_are_shown({ base, operator, open, tokens }) {
  const call = await startRun(operator, "again");
  const approver = new Client(base, tokens.approver);
  const first = await call("write_file", { path: "Cargo.lock", content: "one\n", reason: "lock one" });
  await approver.create(`/v1/approvals/${first.approvalId}/deny`, { note: "one is not enough" });
  const second = await call("write_file", { path: "Cargo.lock", content: "two\n", reason: "lock two" });
  const { page, close } = await open("approver");
  await page.goto(`${base}/approvals?id=${second.approvalId}`);
  await page.getByRole("region", { name: "Approval" }).getByText("denied: one is not enough").waitFor();
  await approver.create(`/v1/approvals/${second.approvalId}/deny`, { note: "done" });
  await close();
}

export async function a_decision_that_somebody_else_made_is_shown({ base, operator, open, tokens }) {
  const id = await work(await startRun(operator, "raced"));
  const { page, close } = await open("approver");
  await page.goto(`${base}/approvals?id=${id}`);
  const button = page.getByRole("button", { name: "Approve", exact: true });
  await button.waitFor();
  await new Client(base, tokens.approver).create(`/v1/approvals/${id}/deny`, { note: "no" });
  await button.click({ timeout: 2000 }).catch(() => undefined);
  await page.getByText("✕ denied").or(page.getByText("✕ Not approved")).first().waitFor();
  await close();
}

export async function a_change_is_reverted({ base, operator, open }) {
  const call = await startRun(operator, "revert");
  await work(call);
  const { page, close } = await open("operator");
  await page.goto(`${base}/runs/revert/calls/6`);
  await page.getByRole("button", { name: "Revert this change…" }).click();
  await page.getByRole("button", { name: "Revert", exact: true }).click();
  await page.locator(".call-row", { hasText: "revert_calls" }).waitFor();
  const file = await call("read_file", { path: "src/main.rs" });
  assert.ok(!file.content.includes("thirty-nine"));
  await close();
}

export async function what_is_offered_follows_the_scopes({ base, operator, open }) {
  const id = await work(await startRun(operator, "scopes"));
  const auditor = await open("audit");
  await auditor.page.goto(`${base}/approvals?id=${id}`);
  await auditor.page.getByText("version = 4").waitFor();
  assert.equal(await auditor.page.getByRole("button", { name: "Approve" }).count(), 0);
  await auditor.page.goto(`${base}/runs/scopes/calls/5`);
  await auditor.page.locator(".diff-file").waitFor();
  assert.equal(await auditor.page.getByRole("button", { name: "Revert this change…" }).count(), 0);
  await auditor.close();
  const approver = await open("approver");
  assert.equal(await approver.page.getByRole("link", { name: "Audit" }).count(), 0);
  // Who decides sees what the run did, and no files but what the diffs show.
  await approver.page.goto(`${base}/runs/scopes`);
  await approver.page.locator(".call-row", { hasText: "trim the name" }).waitFor();
  assert.deepEqual(await approver.page.getByRole("navigation", { name: "Views of the run" }).getByRole("link").allTextContents(), ["Timeline", "Changes", "Report"]);
  await approver.page.goto(`${base}/runs/scopes?tab=changes`);
  await approver.page.locator(".diff-file", { hasText: "src/main.rs" }).waitFor();
  await approver.close();
}

export async function a_bad_token_and_a_failed_request_are_explained({ base, open }) {
  const { page, close } = await open();
  await page.goto(`${base}/runs`);
  await page.getByLabel("Operator token").fill("wso_none");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("UNAUTHENTICATED").waitFor();
  await page.getByText(/request [0-9a-f-]{36}/).waitFor();
  await close();
  const second = await open("audit");
  await second.page.goto(`${base}/runs/no-such-run`);
  await second.page.getByText("RUN_NOT_FOUND").waitFor();
  await second.page.getByRole("button", { name: "Retry" }).waitFor();
  assert.equal(await second.page.evaluate(() => document.cookie + Object.keys(localStorage).filter((key) => /token/i.test(key)).join()), "");
  await second.page.getByRole("button", { name: "Sign out" }).click();
  await second.page.getByLabel("Operator token").waitFor();
  assert.equal(await second.page.evaluate(() => sessionStorage.getItem("workspaced.token")), null);
  await second.close();
}
