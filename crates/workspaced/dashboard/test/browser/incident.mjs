// After an incident: who did what, which files were touched, and how to stop it.

import assert from "node:assert/strict";
import { armed, startRun, work } from "./agent.mjs";

export async function an_agent_is_stopped_and_its_run_closed_and_exported({ base, operator, open }) {
  const call = await startRun(operator, "incident");
  const waiting = await work(call);
  const { page, close } = await open("operator", { acceptDownloads: true });
  await page.goto(`${base}/runs/incident`);
  const menu = page.getByLabel("Actions of the run");
  const act = async (name) => {
    await menu.click();
    await page.getByRole("button", { name }).click();
  };
  await act("Stop agent…");
  const dialog = page.getByRole("dialog");
  const stop = dialog.getByRole("button", { name: "Stop agent" });
  assert.equal(await stop.isDisabled(), true);
  await dialog.getByLabel("Reason (recorded)").fill("it deletes tests");
  await stop.click();
  await page.getByText("Agent stopped.").waitFor();
  assert.equal((await call("list_dir", {})).code, "UNAUTHENTICATED");
  await page.locator(".call-row", { hasText: "run.stop" }).waitFor();
  await page.locator(".run-header").getByText("Agent stopped by operator: it deletes tests").waitFor();
  // What it had asked for is not approved by habit, alone or among others.
  const reviewer = await open("approver");
  const region = reviewer.page.getByRole("region", { name: "Approval" });
  await reviewer.page.goto(`${base}/approvals?id=${waiting}`);
  await region.getByRole("alert").getByText("Agent stopped by operator: it deletes tests").waitFor();
  await armed(reviewer.page);
  await reviewer.page.keyboard.press("a");
  await region.getByText("Press Shift+A to approve it anyway.").waitFor();
  await reviewer.page.keyboard.press("x");
  await reviewer.page.getByText("Not in the bulk approval: Cargo.lock (agent stopped)").waitFor();
  assert.equal(await reviewer.page.getByRole("button", { name: "Approve 0" }).isDisabled(), true);
  await reviewer.close();
  assert.equal((await operator.request("GET", "/v1/runs/incident")).body.state, "awaiting_approval");
  const download = page.waitForEvent("download");
  await act("Export evidence");
  const parts = [];
  for await (const part of await (await download).createReadStream()) parts.push(part);
  const records = Buffer.concat(parts).toString().trimEnd().split("\n").map((line) => JSON.parse(line));
  assert.deepEqual(records.map(({ seq }) => seq).sort((one, other) => one - other), records.map((_, index) => index + 1));
  await act("Close run…");
  await dialog.getByText("The change that waits fails: nobody can approve it afterwards.").waitFor();
  await dialog.getByRole("button", { name: "Close run" }).click();
  await page.locator(".run-title").getByText("closed", { exact: true }).waitFor();
  // Nobody has blocked what had waited.
  await page.goto(`${base}/audit?run=incident&by=service`);
  await page.locator("a.audit-row", { hasText: "Cargo.lock" }).getByText("the run ended").waitFor();
  await page.goto(`${base}/runs/incident?tab=report`);
  const report = page.getByRole("article", { name: "Report" });
  await report.getByText(/^\d+ blocked or denied$/).waitFor();
  await report.getByText(/^\d+ not done$/).waitFor();
  await report.locator("ol > li", { hasText: "RUN_CLOSED" }).getByText("not decided: the run ended").waitFor();
  await report.getByRole("list", { name: "Approvals" }).getByText("not decided: the run ended").waitFor();
  await close();
  // Who only reads takes the records along, and nothing else.
  const auditor = await open("audit");
  await auditor.page.goto(`${base}/runs/incident`);
  await auditor.page.getByLabel("Actions of the run").click();
  assert.deepEqual(await auditor.page.locator(".menu button").allInnerTexts(), ["Export evidence"]);
  await auditor.close();
}

export async function the_audit_says_who_did_what_and_finds_files_by_name({ base, operator, open }) {
  const call = await startRun(operator, "who-did", { labels: { agent: "refund-bot" }, policy: { kinds: { TEXT_SOURCE: "REQUIRE_APPROVAL" } } });
  await call("write_file", { path: "parcelhub/refunds.md", content: "refund\n".repeat(50), reason: "notes" });
  await call("search_text", { query: "refund", includeGlob: ["*.md"] });
  await call("read_file", { path: "parcelhub/refunds.md", startLine: 1, maxLines: 40 });
  await call("read_file", { path: ".env" });
  const { approvalId } = await call("write_file", { path: "login.py", content: "x = 1\n", reason: "sign in" });
  await operator.create(`/v1/approvals/${approvalId}/deny`, { note: "do not touch it", onBehalfOf: "Ada" });
  const approved = await call("write_file", { path: "limits.py", content: "x = 1\n", reason: "limits" });
  await operator.create(`/v1/approvals/${approved.approvalId}/approve`, { onBehalfOf: "Rita" });
  await call("write_file", { path: "invalid.py" });
  const { page, close } = await open("audit");
  await page.goto(`${base}/audit?run=who-did&by=all`);
  const row = (text) => page.locator("a.audit-row", { hasText: text });
  await row("login.py").first().waitFor();
  const cells = async (text, index = 0) => (await row(text).nth(index).locator("> *").allInnerTexts()).map((cell) => cell.trim());
  const denial = await cells("login.py");
  assert.deepEqual([denial[1], denial[3], denial[4]], ["Ada", "denied login.py write_file", "✕ denied by Ada"]);
  assert.deepEqual((await cells("login.py", 1)).slice(1, 5).filter((_, index) => index !== 1), ["agent", "write_file login.py", "◐ asked a person"]);
  const approval = await cells("limits.py");
  assert.deepEqual([approval[1], approval[3]], ["Rita", "approved limits.py write_file"]);
  assert.equal((await cells(".env"))[4], "⊘ blocked");
  // What reads looked for is their sentence.
  await row("search_text \"refund\" (*.md)").waitFor();
  await row("read_file parcelhub/refunds.md:1–40").click();
  const panel = page.getByRole("region", { name: "Call 4" });
  await panel.getByRole("heading", { name: "parcelhub/refunds.md:1–40" }).waitFor();
  await page.locator(".call-row", { hasText: "search_text \"refund\" (*.md)" }).waitFor();
  // The denial says first who decided.
  await page.goto(`${base}/runs/who-did/calls/7`);
  await page.getByRole("region", { name: "Call 7" }).getByText("Denied by Ada", { exact: true }).waitFor();
  await page.getByRole("region", { name: "Call 7" }).getByText("do not touch it").waitFor();
  // What is invalid was not judged.
  await page.goto(`${base}/runs/who-did/calls/10`);
  const invalid = page.getByRole("region", { name: "Call 10" });
  await invalid.getByText("not decided: the request was invalid").waitFor();
  assert.deepEqual(await invalid.locator("dt", { hasText: /^(Error|Rules)$/ }).allInnerTexts(), ["Error"]);
  // A file is found by its name, and an agent or a person without a prefix.
  await page.goto(`${base}/audit?run=who-did`);
  await page.getByLabel("File").fill("refunds.md");
  await page.locator("h1", { hasText: /Audit 2$/ }).or(page.locator("h1", { hasText: /Audit 3$/ })).waitFor();
  assert.match(page.url(), /pathSuffix=refunds\.md/);
  await page.getByLabel("File").fill("parcelhub/");
  await page.waitForURL(/pathPrefix=parcelhub/);
  await page.goto(`${base}/audit`);
  await page.getByLabel("Label").fill("refund-bot");
  await page.waitForURL(/label=agent%3Arefund-bot/);
  await row("read_file parcelhub/refunds.md:1–40").waitFor();
  await close();
}

export async function the_overview_counts_every_record({ base, operator, open }) {
  // A noisy run does not hide what was blocked in another one.
  const call = await startRun(operator, "quiet-one");
  await call("read_file", { path: ".env" });
  await startRun(operator, "noisy");
  for (let batch = 0; batch < 60; batch += 1) await operator.create("/v1/runs/noisy/events/batch", { events: Array.from({ length: 100 }, (_, index) => ({ kind: "message", summary: `event ${index}` })) });
  const { total } = (await operator.request("GET", `/v1/stats?by=agent&since=${new Date(Date.now() - 24 * 3600_000).toISOString()}`)).body;
  const blocked = total.denied - total.deniedByPerson;
  assert.ok(blocked > 0);
  const { page, close } = await open("audit");
  const lists = [];
  page.on("request", (request) => /\/v1\/audit/.test(request.url()) && lists.push(request.url()));
  await page.goto(base);
  await page.getByRole("link", { name: `${new Intl.NumberFormat("en-GB").format(blocked)} blocked by policy` }).waitFor();
  assert.deepEqual(lists, []);
  await close();
}
