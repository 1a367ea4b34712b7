// Answers that take longer than the interval at which a page reads again.

import assert from "node:assert/strict";
import { startRun } from "./agent.mjs";

/** Delays every answer to a pattern, and counts requests. */
async function delayed(page, pattern, millis) {
  const seen = { started: 0, ended: 0 };
  await page.route(pattern, async (route) => {
    seen.started += 1;
    const response = await route.fetch();
    await new Promise((done) => setTimeout(done, millis));
    await route.fulfill({ response }).then(() => (seen.ended += 1), () => undefined);
  });
  return seen;
}

export async function a_queue_that_takes_longer_than_its_interval_appears({ base, operator, open }) {
  const call = await startRun(operator, "slow", { policy: { budget: { maxInsertions: 100000, maxBytes: 10_000_000 }, maxFileBytes: 10_000_000, kinds: { TEXT_DOC: "REQUIRE_APPROVAL" } } });
  const { page, close } = await open("approver");
  const waiting = await call("write_file", { path: "a.md", content: `${"x".repeat(60)}\n`.repeat(10_000), reason: "large" });
  assert.ok(waiting.approvalId, JSON.stringify(waiting));
  // A list has no diffs; the approval has.
  const list = (await operator.request("GET", "/v1/approvals?run=slow")).body;
  assert.equal(list.items.length, 1);
  assert.equal("diff" in list.items[0], false);
  assert.ok(JSON.stringify(list).length < 5000);
  assert.ok((await operator.request("GET", `/v1/approvals/${waiting.approvalId}`)).body.diff.length > 500_000);
  const seen = await delayed(page, "**/v1/approvals?state=pending&order**", 6000);
  await page.goto(`${base}/approvals`);
  await page.locator(".queue li", { hasText: /a\.md[^]*slow/ }).waitFor();
  const { started } = seen;
  // The next load begins an interval after the end of the one before.
  await page.waitForTimeout(3000);
  assert.equal(seen.started, started);
  await page.waitForTimeout(10_000);
  assert.equal(seen.started - seen.ended <= 1 && seen.ended >= 2, true, JSON.stringify(seen));
  await close();
}

export async function the_diff_of_a_run_at_work_appears({ base, operator, open }) {
  const call = await startRun(operator, "busy");
  const { page, close } = await open("audit");
  // The run changes more often than its diff can be read.
  const seen = await delayed(page, "**/v1/runs/busy/tools/diff_workspace", 4000);
  let isAtWork = true;
  const work = (async () => {
    for (let number = 0; isAtWork; number += 1) {
      await call("write_file", { path: `f${number}.txt`, content: "x\n", reason: `file ${number}` });
      await new Promise((done) => setTimeout(done, 500));
    }
  })();
  await delayed(page, /\/v1\/runs\/busy$/, 0);
  await page.goto(`${base}/runs/busy?tab=changes`);
  await page.locator(".diff-file", { hasText: "f0.txt" }).waitFor();
  // It is read again, and stays while that takes place.
  while (seen.ended < 2) {
    assert.ok(await page.locator(".diff-file").count() > 0);
    await page.waitForTimeout(200);
  }
  isAtWork = false;
  await work;
  await close();
}
