// How quickly a person decides: one scroll, ready reasons, what else a run changed, what the queue says of a change, their own edit.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { armed, becomes, startRun } from "./agent.mjs";
import { tar } from "./seed.mjs";

const SOURCE = { policy: { kinds: { TEXT_SOURCE: "REQUIRE_APPROVAL" } } };
const FAILED = `F\n${"=".repeat(70)}\nFAIL: test_half_a_cent (tests.test_total.Totals.test_half_a_cent)\n${"-".repeat(70)}\nTraceback (most recent call last):\n  File "/sandbox/tests/test_total.py", line 19, in test_half_a_cent\n    self.assertEqual(total(), 1)\nAssertionError: 1 != 1.01\n\nFAILED (failures=1)\n`;

/** Sends what a failed command has changed. Returns the approval that it waits for. */
async function failedChange({ base, token, request }, run, path) {
  const digest = createHash("sha256").update(FAILED).digest("hex");
  const headers = { authorization: `Bearer ${token}` };
  const stored = await fetch(`${base}/v1/runs/${run}/artifacts/sha256/${digest}`, { method: "PUT", headers: { ...headers, "content-type": "text/plain" }, body: FAILED });
  assert.ok(stored.ok, await stored.text());
  const { headSeq } = await (await fetch(`${base}/v1/runs/${run}`, { headers })).json();
  const form = new FormData();
  form.append("changeset", JSON.stringify({ basedOnSeq: headSeq, reason: "sum whole cents", command: { argv: ["sh", "-c", "python3 -m unittest"], cwd: ".", exitCode: 1, durationMicros: 412_345, outputSha256: digest } }));
  form.append("layer", new Blob([tar({ [path]: "cents = 0\n" })]));
  return (await (await fetch(`${base}/v1/runs/${run}/changesets`, { method: "POST", headers, body: form })).json()).approvalId;
}

export async function a_change_has_one_scroll_and_its_decision_stays_in_view({ base, operator, open }) {
  const call = await startRun(operator, "one-scroll", SOURCE);
  const { approvalId } = await call("write_file", { path: "long.py", content: Array.from({ length: 900 }, (_, line) => `line_${line} = ${line}`).join("\n"), reason: "900 lines" });
  for (const viewport of [{ width: 1440, height: 900 }, { width: 390, height: 844 }]) {
    const { page, close } = await open("approver", { viewport });
    await page.goto(`${base}/approvals?id=${approvalId}`);
    const region = page.getByRole("region", { name: "Approval" });
    await region.locator(".diff-line", { hasText: "line_0 = 0" }).waitFor();
    const scrolling = () => page.evaluate(() => [...document.querySelectorAll("main, main *")].filter((part) => part.scrollHeight > part.clientHeight + 1 && /auto|scroll/.test(getComputedStyle(part).overflowY)).map((part) => part.className));
    assert.deepEqual((await scrolling()).filter((name) => name !== "queue"), ["call approval"], `${viewport.width}`);
    // Far lines are rendered when they come into view, and the bar is there all the time.
    for (const [share, text] of [[0.5, /line_4\d\d/], [1, "line_899 = 899"], [0, "line_0 = 0"]]) {
      await region.evaluate((part, at) => part.scrollTo(0, part.scrollHeight * at), share);
      await region.locator(".diff-line", { hasText: text }).first().waitFor();
      const bar = await region.locator(".bar").boundingBox();
      assert.ok(Math.abs(bar.y + bar.height - viewport.height) <= 20, `${viewport.width} ${JSON.stringify(bar)}`);
    }
    // The name of the file stays above its lines.
    await region.evaluate((part) => part.scrollTo(0, part.scrollHeight / 2));
    await region.locator(".diff-head", { hasText: "long.py" }).waitFor();
    await close();
  }
  await operator.create(`/v1/approvals/${approvalId}/deny`, { note: "done", onBehalfOf: "Ada" });
}

/** The warnings of an approval, as the service gives them. */
const warningsOf = async (operator, id) => (await operator.request("GET", `/v1/approvals/${id}`)).body.warnings;

export async function a_danger_is_told_above_the_diff_and_takes_another_key({ base, operator, open }) {
  const run = "dangers";
  const call = await startRun(operator, run, SOURCE);
  const plain = (await call("write_file", { path: "plain.py", content: "a = 1\n", reason: "plain" })).approvalId;
  const secret = (await call("write_file", { path: "client.py", content: "import os\nSMTP_PASSWORD = \"vT9q-8sKd2LmXw4z\"\n", reason: "the client" })).approvalId;
  const failing = await failedChange(operator, run, "total.py");
  const { page, close } = await open("approver");
  const region = page.getByRole("region", { name: "Approval" });
  const keys = () => region.locator(".bar button[aria-keyshortcuts]").evaluateAll((buttons) => buttons.map((button) => `${button.firstChild.data} ${button.getAttribute("aria-keyshortcuts")}`));
  await page.goto(`${base}/approvals?id=${plain}`);
  await armed(page);
  assert.deepEqual(await keys(), ["Approve a", "Edit first… e", "Deny… d"]);
  for (const [id, path, code, label] of [[secret, "client.py", "CREDENTIAL_LIKE", "looks like a credential"], [failing, "total.py", "TESTS_FAILED", "tests fail"]]) {
    const warning = (await warningsOf(operator, id)).find((found) => found.code === code);
    assert.equal(warning?.severity, "danger", code);
    await page.locator(".queue li", { hasText: path }).locator(".mark", { hasText: label }).waitFor();
    await page.goto(`${base}/approvals?id=${id}`);
    const red = region.getByRole("alert");
    await red.getByText(warning.text).waitFor();
    assert.ok((await red.boundingBox()).y < (await region.locator(".diff").boundingBox()).y);
    if (warning.line) {
      await red.getByRole("button", { name: `${path}:${warning.line}` }).click();
      await region.locator(".diff-line.focused", { hasText: "SMTP_PASSWORD" }).waitFor();
    }
    await armed(page);
    assert.deepEqual(await keys(), ["Approve anyway Shift+A", "Edit first… e", "Deny… d"]);
    await page.locator("h1").click();
    await page.keyboard.press("a");
    await region.getByText("Press Shift+A to approve it anyway.").waitFor();
    await page.keyboard.press("Escape");
    await page.goto(`${base}/approvals?id=${id}`);
  }
  await armed(page);
  await page.keyboard.press("Shift+A");
  await becomes(page, "total.py", /✓ approved \(record \d+\)/);
  assert.deepEqual(await Promise.all([plain, secret, failing].map(async (id) => (await operator.request("GET", `/v1/approvals/${id}`)).body.state)), ["pending", "pending", "approved"]);
  for (const id of [plain, secret]) await operator.create(`/v1/approvals/${id}/deny`, { note: "done", onBehalfOf: "Ada" });
  await close();
}

export async function a_denial_takes_a_ready_reason_and_two_keys({ base, operator, open }) {
  const run = "ready-reasons";
  const call = await startRun(operator, run, SOURCE);
  const hook = (await call("write_file", { path: "deploy.py", content: "SMTP_PASSWORD = \"vT9q-8sKd2LmXw4z\"\nurl = \"https://deploy-status.dev/hook\"\n", reason: "report the state" })).approvalId;
  const warnings = await warningsOf(operator, hook);
  assert.deepEqual(warnings.map(({ code, severity }) => `${code} ${severity}`), ["CREDENTIAL_LIKE danger", "NEW_HOST doubt"]);
  const [secret, host] = warnings.map(({ text, line }) => `${text.replace(/\.$/, "")} (deploy.py, line ${line}).`);
  const { page, close } = await open("approver");
  const region = page.getByRole("region", { name: "Approval" });
  const text = region.getByLabel(/^Reason/);
  await page.goto(`${base}/approvals?id=${hook}`);
  await armed(page);
  // What speaks most against it is there already, and is replaced by typing.
  await page.keyboard.press("d");
  assert.equal(await text.inputValue(), secret);
  const [line, panel] = [await region.locator(".diff-line", { hasText: "SMTP_PASSWORD" }).boundingBox(), await region.locator(".bar").boundingBox()];
  assert.ok(line.y > 0 && line.y + line.height <= panel.y, JSON.stringify([line, panel]));
  await page.keyboard.type("no");
  assert.equal(await text.inputValue(), "no");
  // Nor is one that was written by hand a note on an approval; a note that was there before stays.
  await page.keyboard.press("Escape");
  assert.equal(await page.getByLabel("Note (optional)").inputValue(), "");
  await page.getByLabel("Note (optional)").fill("fine");
  await page.locator("h1").click();
  await page.keyboard.press("d");
  await page.keyboard.type(", but not this");
  await page.keyboard.press("Escape");
  assert.equal(await page.getByLabel("Note (optional)").inputValue(), "fine");
  await page.getByLabel("Note (optional)").fill("");
  await page.locator("h1").click();
  await page.keyboard.press("d");
  // A second reason replaces the first.
  await page.keyboard.press("2");
  assert.equal(await text.inputValue(), host);
  await page.keyboard.press("1");
  assert.equal(await text.inputValue(), secret);
  // A reason that was not given is no note on an approval.
  await page.keyboard.press("Escape");
  assert.equal(await page.getByLabel("Note (optional)").inputValue(), "");
  await page.locator("h1").click();
  await page.keyboard.press("d");
  await page.keyboard.press("End");
  await page.keyboard.type(" Remove it.");
  // What was written by hand stays.
  await region.getByRole("button", { name: "New host" }).click();
  await page.keyboard.press("Enter");
  await becomes(page, "deploy.py", "✕ denied");
  assert.equal((await operator.request("GET", `/v1/approvals/${hook}`)).body.note, `${secret} Remove it.\n${host}`);
  // Asked again, it is red before anything else, with the whole note.
  const again = (await call("write_file", { path: "deploy.py", content: "SMTP_PASSWORD = \"vT9q-8sKd2LmXw4z\"\nurl = \"https://deploy-status.dev/hook\"\nmore = 1\n", reason: "report the state" })).approvalId;
  if (again && (await warningsOf(operator, again)).some(({ code }) => code === "DENIED_BEFORE")) {
    await page.goto(`${base}/approvals?id=${again}`);
    await region.getByRole("alert").getByText("Remove it.").first().waitFor();
    await page.locator(".queue li", { hasText: "deploy.py" }).locator(".mark", { hasText: "denied before" }).waitFor();
  }
  if (again) await operator.create(`/v1/approvals/${again}/deny`, { note: "done", onBehalfOf: "Ada" });
  await close();
}

export async function a_change_that_no_longer_applies_is_sent_back({ base, operator, open }) {
  const call = await startRun(operator, "redo", SOURCE);
  const ask = (content, reason) => call("write_file", { path: "a.py", content, reason });
  const [mine, other] = [await ask("a = 1\n", "one"), await ask("a = 2\n", "two")];
  await operator.create(`/v1/approvals/${other.approvalId}/approve`, { onBehalfOf: "Bob" });
  const { page, close } = await open("approver");
  await page.goto(`${base}/approvals?id=${mine.approvalId}`);
  const region = page.getByRole("region", { name: "Approval" });
  const redo = region.getByRole("button", { name: "Ask the agent to redo it" });
  await redo.waitFor();
  await armed(page);
  // It cannot be approved, nor edited, and nothing says that it is done already.
  assert.equal(await region.getByRole("button", { name: /^(Approve|Edit)/ }).count(), 0);
  assert.equal(await page.getByText(/Already done/i).count(), 0);
  for (const key of ["a", "Shift+A"]) await page.keyboard.press(key);
  await region.getByText("Press r to ask the agent to redo it.").waitFor();
  await page.keyboard.press("r");
  await becomes(page, "a.py", "✕ denied");
  const { state, note } = (await operator.request("GET", `/v1/approvals/${mine.approvalId}`)).body;
  assert.equal(state, "denied");
  assert.match(note, /^a\.py changed after this request\. Re-read it and try again\.$/);
  await close();
}

export async function a_row_of_the_queue_says_why_and_what_to_notice({ base, operator, open }) {
  const run = "queue-rows";
  const call = await startRun(operator, run, SOURCE);
  const path = "services/authentication/internal/session_policy_of_the_administrators_console.py";
  const ids = [
    (await call("write_file", { path, content: "limit = 30\n", reason: "End sessions after 30 minutes." })).approvalId,
    (await call("write_file", { path: "fetch.py", content: "url = \"https://registry.example-cdn.org/a\"\n", reason: "use the mirror" })).approvalId,
    (await call("apply_patch", { patch: "--- /dev/null\n+++ b/one.py\n@@ -0,0 +1 @@\n+x = 1\n--- /dev/null\n+++ b/two.py\n@@ -0,0 +1 @@\n+y = 1\n", reason: "two of them" })).approvalId,
  ];
  for (const [width, height] of [[1440, 900], [390, 844]]) {
    const { page, close } = await open("approver", { viewport: { width, height } });
    const asked = [];
    page.on("request", (request) => /\/v1\/approvals\/|\/tool-calls\/|\/artifacts\//.test(request.url()) && asked.push(request.url()));
    await page.goto(`${base}/approvals?state=pending&id=none`);
    const row = (text) => page.locator(".queue li", { hasText: run }).filter({ hasText: text });
    if (width > 800) await row("End sessions after 30 minutes.").waitFor();
    // The list has the warnings: nothing more is read for a row.
    assert.deepEqual(asked.filter((url) => !url.endsWith("/none")), []);
    await page.goto(`${base}/approvals`);
    await row("End sessions after 30 minutes.").waitFor();
    // The folder is cut, and the name as little as can be.
    const cut = await row("End sessions").locator(".path > bdi").evaluateAll((parts) => parts.map((part) => part.scrollWidth - part.clientWidth));
    assert.ok(cut[0] > cut[1], `${width}: ${cut}`);
    await row("use the mirror").locator(".tag", { hasText: "new host" }).waitFor();
    await row("two of them").getByText("2 files: one.py, two.py").waitFor();
    assert.equal(await row("End sessions").locator(".mark").count(), 0);
    await close();
  }
  for (const id of ids) await operator.create(`/v1/approvals/${id}/deny`, { note: "done", onBehalfOf: "Ada" });
}

/** Where a line that a reason to deny is about is seen already, nothing moves when the reason is offered. */
export async function a_denial_does_not_scroll_to_a_line_that_is_seen({ base, operator, open }) {
  const call = await startRun(operator, "no-scroll", SOURCE);
  const { approvalId } = await call("write_file", { path: "deploy.py", content: `${"a = 1\n".repeat(12)}url = "https://deploy-status.dev/hook"\n${"b = 1\n".repeat(20)}`, reason: "report the state" });
  const next = await call("write_file", { path: "next.py", content: "a = 1\n", reason: "next" });
  const { page, close } = await open("approver");
  const region = page.getByRole("region", { name: "Approval" });
  await page.goto(`${base}/approvals?id=${approvalId}`);
  await armed(page);
  const line = region.locator(".diff-line.add", { hasText: "deploy-status.dev" });
  const [before, colour] = [await line.boundingBox(), await line.evaluate((row) => getComputedStyle(row).backgroundColor)];
  assert.ok(before.y > 450, "in the lower half");
  await page.keyboard.press("d");
  await line.and(page.locator(".focused")).waitFor();
  assert.deepEqual(await line.boundingBox(), before);
  assert.equal(await line.evaluate((row) => getComputedStyle(row).backgroundColor), colour);
  // A denial that was made is told in a few words of which none is cut.
  await page.keyboard.press("1");
  await page.keyboard.press("Enter");
  const told = page.locator(".last-decision.sent");
  await told.getByText("denied").waitFor();
  assert.match(await told.innerText(), /^✕ denied\s+deploy\.py$/);
  assert.deepEqual(await told.locator("*").evaluateAll((parts) => parts.filter((part) => part.scrollWidth > part.clientWidth + 1 && getComputedStyle(part).display !== "inline").map((part) => part.textContent)), []);
  // It is red as in the list of what was denied.
  const said = await told.locator(".badge").evaluate((badge) => getComputedStyle(badge).color);
  await page.goto(`${base}/approvals?state=denied`);
  const listed = page.locator(".queue li", { hasText: "no-scroll" }).locator(".badge").first();
  assert.equal(said, await listed.evaluate((badge) => getComputedStyle(badge).color));
  await operator.create(`/v1/approvals/${next.approvalId}/deny`, { note: "done", onBehalfOf: "Ada" });
  await close();
}

export async function what_else_a_run_changed_is_told_in_place({ base, operator, open }) {
  const run = "besides";
  const call = await startRun(operator, run, SOURCE);
  const alone = await call("write_file", { path: "a.py", content: "a = 1\n", reason: "alone" });
  const { page, close } = await open("approver");
  const region = page.getByRole("region", { name: "Approval" });
  await page.goto(`${base}/approvals?id=${alone.approvalId}`);
  await region.getByText("no other files changed in this run").waitFor();
  await call("write_file", { path: "notes.md", content: "one\ntwo\n", reason: "notes" });
  await page.reload();
  await region.getByRole("button", { name: "Other changes in this run (1) +2 −0" }).waitFor();
  await call("write_file", { path: "docs/guide.md", content: "guide\n", reason: "guide" });
  const { headSeq } = (await operator.request("GET", `/v1/runs/${run}`)).body;
  await page.reload();
  // What is listed when somebody asks is not told twice before.
  assert.equal(await region.locator("summary", { hasText: "Other changes in this run" }).count(), 0);
  await region.getByRole("button", { name: "Other changes in this run (2) +3 −0" }).click();
  const list = region.getByRole("list", { name: "Changed files" });
  await list.getByRole("button", { name: /docs\/guide\.md.*\+1/ }).waitFor();
  // Counting leaves no record; a diff that is opened is a read.
  assert.equal((await operator.request("GET", `/v1/runs/${run}`)).body.headSeq, headSeq);
  await list.getByRole("button", { name: /notes\.md/ }).click();
  await list.locator(".diff-line.add", { hasText: "two" }).waitFor();
  assert.equal(new URL(page.url()).pathname, "/approvals");
  // Who denies is told that these stay.
  await page.locator("h1").click();
  await page.keyboard.press("d");
  await region.getByText("Reason (sent to the agent). The run's 2 other changed files are kept.", { exact: true }).waitFor();
  await operator.create(`/v1/approvals/${alone.approvalId}/deny`, { note: "done", onBehalfOf: "Ada" });
  // Its own file is no other one, unless it has changed since.
  const [stale, newer] = [await call("write_file", { path: "b.py", content: "b = 1\n", reason: "stale" }), await call("write_file", { path: "b.py", content: "b = 2\nb = 3\n", reason: "newer" })];
  await operator.create(`/v1/approvals/${newer.approvalId}/approve`, { onBehalfOf: "Bob" });
  await page.goto(`${base}/approvals?id=${stale.approvalId}`);
  await region.getByRole("button", { name: "Other changes in this run (3) +5 −0" }).click();
  await list.getByRole("button", { name: /b\.py.*\+2/ }).waitFor();
  await operator.create(`/v1/approvals/${stale.approvalId}/deny`, { note: "done", onBehalfOf: "Ada" });
  await close();
}

export async function an_edit_is_shown_against_both_versions_before_it_is_approved({ base, operator, open }) {
  const call = await startRun(operator, "net-edit", { policy: { kinds: { TEXT_DOC: "REQUIRE_APPROVAL" } } });
  const first = await call("write_file", { path: "notes.md", content: Array.from({ length: 40 }, (_, line) => `line ${line + 1}`).join("\n") + "\n", reason: "notes" });
  await operator.create(`/v1/approvals/${first.approvalId}/approve`, { onBehalfOf: "Ada" });
  await call("read_file", { path: "notes.md" });
  const { approvalId } = await call("edit_file", { path: "notes.md", oldString: "line 20\n", newString: "line 20, which is 30 * 60 * 60\n", expectedSha256: "seen", reason: "the limit" });
  const { page, close } = await open("approver");
  await page.goto(`${base}/approvals?id=${approvalId}`);
  const region = page.getByRole("region", { name: "Approval" });
  await region.getByText("line 20, which is").waitFor();
  await armed(page);
  await page.keyboard.press("e");
  const field = region.getByLabel(/notes\.md, lines 17 to 23/);
  await region.getByText("Your edit is applied together with the agent's.").waitFor();
  // One can type at once, in the first added line, and sees which lines are the agent's.
  assert.equal(await field.evaluate((area) => document.activeElement === area && area.value.slice(0, area.selectionStart)), "line 17\nline 18\nline 19\nline 20, which is 30 * 60 * 60");
  assert.equal(await region.locator(".numbers > .added").innerText(), "20\n");
  assert.equal(await region.getByRole("button", { name: "Approve with my changes" }).innerText(), "Approve with my changesCtrl+Enter");
  await field.fill((await field.inputValue()).replace("30 * 60 * 60", "30 * 60\nand more"));
  assert.equal((await region.locator(".numbers").innerText()).trim(), "17\n18\n19\n20\n21\n22\n23\n24");
  const mine = region.getByRole("region", { name: "Your changes" });
  const changed = () => mine.locator(".diff-line:not(.context)").evaluateAll((rows) => rows.map((row) => row.innerText.replace(/\s+/g, " ").trim()));
  await mine.locator(".diff-line.delete", { hasText: "30 * 60 * 60" }).waitFor();
  // What the field above has is not repeated.
  assert.equal(await mine.locator(".diff-line.context").count(), 0);
  assert.deepEqual(await changed(), ["20 −line 20, which is 30 * 60 * 60", "20 +line 20, which is 30 * 60", "21 +and more"]);
  await mine.getByRole("button", { name: "the file now → mine" }).click();
  await mine.locator(".diff-line.delete", { hasText: /line 20$/ }).waitFor();
  assert.deepEqual(await changed(), ["20 −line 20", "20 +line 20, which is 30 * 60", "21 +and more"]);
  // All of it is above the bar.
  const [shown, bar] = [await mine.boundingBox(), await region.locator(".bar").boundingBox()];
  assert.ok(shown.y + shown.height <= bar.y + 1, JSON.stringify([shown, bar]));
  await field.focus();
  await page.keyboard.press("Control+Enter");
  await becomes(page, "notes.md", /with changes \(record \d+\)/);
  await close();
}

/** What is brought into view moves within the approval: the page around it stays. */
export async function an_edit_on_a_narrow_screen_leaves_the_page_where_it_is({ base, operator, open }) {
  const call = await startRun(operator, "narrow-edit", SOURCE);
  await call("write_file", { path: "notes.md", content: "one\n", reason: "notes" });
  const { approvalId } = await call("write_file", { path: "a.py", content: "a = 1\n".repeat(60), reason: "sixty" });
  const { page, close } = await open("approver", { viewport: { width: 390, height: 844 } });
  await page.goto(`${base}/approvals?id=${approvalId}`);
  const region = page.getByRole("region", { name: "Approval" });
  const brand = async () => (await page.locator(".brand").boundingBox()).y;
  const top = await brand();
  await region.getByRole("button", { name: /^Other changes in this run/ }).click();
  await region.getByRole("list", { name: "Changed files" }).waitFor();
  await page.waitForTimeout(200);
  assert.equal(await brand(), top);
  await region.getByRole("button", { name: "Edit first…" }).click();
  const field = region.getByLabel(/a\.py, lines 1 to 60/);
  await field.pressSequentially(" # x");
  await region.getByRole("region", { name: "Your changes" }).waitFor();
  assert.equal(await brand(), top);
  await operator.create(`/v1/approvals/${approvalId}/deny`, { note: "done", onBehalfOf: "Ada" });
  await close();
}

/** Only the approval scrolls: nothing within it, open or folded, makes the document or the page around it higher than the screen. */
export async function a_decision_is_never_higher_than_the_screen({ base, operator, open }) {
  const call = await startRun(operator, "high", SOURCE);
  for (const name of ["notes", "guide"]) await call("write_file", { path: `${name}.md`, content: "one\n".repeat(40), reason: "notes" });
  const ask = async (path) => (await call("write_file", { path, content: "a = 1\n".repeat(60), reason: "sixty" })).approvalId;
  const [waiting, decided] = [await ask("a.py"), await ask("b.py")];
  await operator.create(`/v1/approvals/${decided}/approve`, { onBehalfOf: "Ada" });
  for (const [width, height] of [[390, 844], [768, 1024], [1440, 900], [1920, 1080]]) {
    const { page, close } = await open("approver", { viewport: { width, height } });
    const region = page.getByRole("region", { name: "Approval" });
    const beyond = () => page.evaluate(() => [document.scrollingElement, document.querySelector("main")].map((part) => part.scrollHeight - part.clientHeight));
    for (const id of [waiting, decided]) {
      await page.goto(`${base}/approvals?id=${id}&view=all`);
      await region.getByRole("button", { name: /^(Other c|C)hanges in this run/ }).click();
      await region.getByRole("list", { name: "Changed files" }).getByRole("button", { name: /guide\.md/ }).click();
      await region.locator(".besides .diff-line.add", { hasText: "one" }).first().waitFor();
      await region.locator("summary", { hasText: "Details" }).click();
      await region.getByRole("region", { name: "Versions of the files" }).waitFor();
      assert.deepEqual(await beyond(), [0, 0], `${width} ${id === waiting ? "waiting" : "decided"}`);
    }
    await close();
  }
  await operator.create(`/v1/approvals/${waiting}/deny`, { note: "done", onBehalfOf: "Ada" });
}

export async function the_address_names_a_state_as_the_api_does({ base, operator, open }) {
  const call = await startRun(operator, "views", SOURCE);
  const { approvalId } = await call("write_file", { path: "a.py", content: "a = 1\n", reason: "of every state" });
  await operator.create(`/v1/approvals/${approvalId}/deny`, { note: "denied here", onBehalfOf: "Ada" });
  const { page, close } = await open("approver");
  await page.goto(`${base}/approvals`);
  const asked = [];
  page.on("request", (request) => request.url().includes("/v1/approvals?") && asked.push(new URL(request.url()).searchParams.get("state")));
  for (const [label, search, state] of [["denied", "?state=denied", "denied"], ["every state", "?view=all", null]]) {
    asked.length = 0;
    await page.getByLabel("State").selectOption({ label });
    await page.locator(".queue li", { hasText: "of every state" }).getByText("denied here").first().waitFor();
    assert.equal(new URL(page.url()).search.replace(/&?id=[^&]+&?/, ""), search);
    assert.ok(asked.includes(state), `${asked}`);
  }
  // An address that names no state of the API shows all.
  await page.goto(`${base}/approvals?state=all`);
  await page.locator(".queue li", { hasText: "of every state" }).waitFor();
  await close();
}

export async function a_long_change_says_how_much_of_it_is_below({ base, operator, open }) {
  const call = await startRun(operator, "below", SOURCE);
  const text = (lines, from = 1) => Array.from({ length: lines }, (_, line) => `line_${line + from} = ${line + from}\n`).join("");
  const first = await call("write_file", { path: "long.py", content: text(30), reason: "start" });
  await operator.create(`/v1/approvals/${first.approvalId}/approve`, { onBehalfOf: "Ada" });
  await call("read_file", { path: "long.py" });
  const { approvalId } = await call("write_file", { path: "long.py", content: text(20) + text(60, 100) + text(10, 21), mode: "CREATE_OR_REPLACE", expectedSha256: "seen", reason: "sixty lines" });
  const { page, close } = await open("approver");
  const region = page.getByRole("region", { name: "Approval" });
  await page.goto(`${base}/approvals?id=${approvalId}`);
  const more = region.getByRole("button", { name: /^↓ \d+ more changed lines$/ });
  await region.locator(".approval-head:not(.unpainted)").waitFor();
  await more.waitFor();
  // The diff begins with one line before the change, and what is counted is what is not seen.
  const lines = await region.locator(".diff-line").evaluateAll((rows) => rows.slice(0, 2).map((row) => row.innerText.replace(/\s+/g, " ").trim()));
  assert.deepEqual(lines, ["20 20 line_20 = 20", "21 +line_100 = 100"]);
  const shown = await region.locator(".diff-line.add").evaluateAll((rows) => {
    const bar = rows[0].closest(".call").querySelector(":scope > .bar").getBoundingClientRect().top;
    return rows.filter((row) => row.getBoundingClientRect().bottom <= bar + 1).length;
  });
  assert.equal(await more.innerText(), `↓ ${60 - shown} more changed lines`);
  // It leads to the next of them, and leaves at the end.
  await more.click();
  await region.locator(".diff-line.add", { hasText: `line_${100 + shown} ` }).waitFor();
  await region.evaluate((part) => part.scrollTo(0, part.scrollHeight));
  await more.waitFor({ state: "detached" });
  // What was left out around the change is read when somebody asks.
  await region.evaluate((part) => part.scrollTo(0, 0));
  await region.getByRole("button", { name: "⋯ show 19 unchanged lines" }).click();
  await region.locator(".diff-line.context", { hasText: "line_1 = 1" }).first().waitFor();
  await operator.create(`/v1/approvals/${approvalId}/deny`, { note: "done", onBehalfOf: "Ada" });
  await close();
}

/** Hidden lines appear above a change, which stays where it is seen; lines after it appear below. */
export async function lines_that_are_shown_leave_the_change_in_view({ base, operator, open }) {
  const call = await startRun(operator, "hidden-lines", SOURCE);
  const text = (from, to) => Array.from({ length: to - from + 1 }, (_, line) => `line_${line + from} = ${line + from}\n`).join("");
  const first = await call("write_file", { path: "long.py", content: text(1, 200), reason: "start" });
  await operator.create(`/v1/approvals/${first.approvalId}/approve`, { onBehalfOf: "Ada" });
  await call("read_file", { path: "long.py" });
  const { approvalId } = await call("edit_file", { path: "long.py", oldString: "line_100 = 100\n", newString: "changed = 1\n" + "more = 1\n".repeat(25), expectedSha256: "seen", reason: "some lines" });
  for (const diff of ["", "&diff=split"]) for (const key of [false, true]) {
    const { page, close } = await open("approver");
    await page.goto(`${base}/approvals?id=${approvalId}${diff}`);
    const region = page.getByRole("region", { name: "Approval" });
    const changed = region.getByText("changed = 1");
    await region.locator(".approval-head:not(.unpainted)").waitFor();
    await changed.waitFor();
    const before = (await changed.boundingBox()).y;
    if (key) await page.keyboard.press("h");
    else await region.getByRole("button", { name: "⋯ show 98 unchanged lines" }).click();
    await region.getByText("line_98 = 98").first().waitFor();
    await page.waitForTimeout(100);
    assert.equal((await changed.boundingBox()).y, before);
    // What follows the change appears below it.
    await page.keyboard.press("h");
    await region.getByText("line_102 = 102").first().waitFor();
    await page.waitForTimeout(100);
    assert.equal((await changed.boundingBox()).y, before);
    await close();
  }
  await operator.create(`/v1/approvals/${approvalId}/deny`, { note: "done", onBehalfOf: "Ada" });
}

export async function the_record_of_a_command_has_its_text_once({ base, operator, open }) {
  const run = "command-once";
  await startRun(operator, run);
  const command = "git apply - <<'EOF' && make\n--- a/a.py\n+++ b/a.py\n+a_line_of_the_patch\nEOF";
  const { seq } = await operator.create(`/v1/runs/${run}/events`, { kind: "command", summary: `${command}: exit 0`, data: { command, exitCode: 0 } });
  const { page, close } = await open("approver");
  await page.goto(`${base}/runs/${run}/calls/${seq}`);
  const panel = page.getByRole("region", { name: `Call ${seq}` });
  await panel.locator("pre.command", { hasText: "a_line_of_the_patch" }).waitFor();
  assert.equal(await panel.locator("blockquote", { hasText: "a_line_of_the_patch" }).count(), 0);
  await close();
}

export async function the_heading_of_a_call_says_what_became_of_it({ base, operator, open }) {
  const call = await startRun(operator, "heading", SOURCE);
  const { approvalId } = await call("write_file", { path: "a.py", content: "a = 1\n", reason: "one" });
  const { page, close } = await open("approver");
  const { items } = (await operator.request("GET", "/v1/runs/heading/audit?outcome=pending")).body;
  await page.goto(`${base}/runs/heading/calls/${items[0].seq}`);
  const panel = page.getByRole("region", { name: `Call ${items[0].seq}` });
  const heading = panel.locator("header");
  await heading.getByText("waiting").waitFor();
  // What waits is shown here too, until it has a record of its own.
  await panel.locator(".diff-line.add", { hasText: "a = 1" }).waitFor();
  await operator.create(`/v1/approvals/${approvalId}/approve`, { onBehalfOf: "Ada" });
  await heading.getByText(/approved \(record \d+\)/).waitFor();
  assert.equal(await heading.getByText("waiting").count(), 0);
  assert.equal(await panel.locator(".diff-line").count(), 0);
  await close();
}
