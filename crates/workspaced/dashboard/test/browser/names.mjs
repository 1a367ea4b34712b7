// Names that are also members of every object of JavaScript, and parts of a page that cannot be shown.

import assert from "node:assert/strict";
import { startRun } from "./agent.mjs";

const NAMES = ["constructor", "__proto__", "toString", "hasOwnProperty", "valueOf"];

/** A run whose files, folders, labels, steps and calls have such names, with a call that waits. */
async function namedRun(operator, run) {
  const labels = JSON.parse(`{${NAMES.map((name) => `"${name}":"${name}"`).join()}}`);
  const call = await startRun(operator, run, { labels, policy: { kinds: { TEXT_DOC: "REQUIRE_APPROVAL" } } });
  for (const name of NAMES) {
    for (const path of [`src/x.${name}`, `${name}/${name}`]) {
      const written = await call("write_file", { path, content: `let a = "${name}"; // ${name}\n`, reason: name, stepId: name, toolCallId: `${name} ${path}` });
      assert.equal(written.ok, true, JSON.stringify(written));
    }
    const read = await call("read_file", { path: `src/x.${name}` });
    assert.equal(read.ok, true, JSON.stringify(read));
  }
  await operator.create(`/v1/runs/${run}/events`, { kind: "message", summary: "names", data: JSON.parse(`{${NAMES.map((name) => `"${name}":{"${name}":1}`).join()}}`) });
  const patch = NAMES.map((name) => `--- a/src/x.${name}\n+++ b/src/x.${name}\n@@ -1 +1 @@\n-let a = "${name}"; // ${name}\n+let b = "${name}"; // ${name}\n`).join("");
  const waiting = await call("apply_patch", { patch: `${patch}--- /dev/null\n+++ b/notes.md\n@@ -0,0 +1 @@\n+x\n`, reason: "rename", toolCallId: "__proto__" });
  assert.ok(waiting.approvalId, JSON.stringify(waiting));
  return waiting.approvalId;
}

export async function names_of_an_objects_own_members_are_names_as_any_others({ base, operator, open }) {
  const { page, close } = await open("operator");
  const main = page.locator("main");
  for (const run of ["constructor", "toString"]) {
    const id = await namedRun(operator, run);
    await page.goto(`${base}/approvals?id=${id}`);
    const approval = page.getByRole("region", { name: "Approval" });
    await approval.getByRole("button", { name: "Approve", exact: true }).waitFor();
    for (const name of NAMES) await approval.locator(".diff-line.add", { hasText: `let b = "${name}"` }).waitFor();
    await page.goto(`${base}/runs/${run}?tab=changes`);
    for (const name of NAMES) await page.locator(".diff-file", { hasText: `src/x.${name}` }).waitFor();
    assert.equal(await page.locator(".diff-line.add").count(), 2 * NAMES.length);
    for (const name of NAMES) {
      await page.goto(`${base}/runs/${run}?tab=files&path=${encodeURIComponent(`src/x.${name}`)}`);
      await page.locator(".file .diff-line", { hasText: `let a = "${name}"` }).waitFor();
      await page.getByLabel("which call wrote each line").check();
      await page.locator(".file .owner", { hasText: /^#\d+$/ }).waitFor();
    }
    await page.goto(`${base}/runs/${run}?tab=report`);
    await main.getByRole("row", { name: /src\/x\.constructor/ }).waitFor();
    await page.goto(`${base}/runs/${run}`);
    await main.locator(".call-row", { hasText: "src/x.__proto__" }).first().waitFor();
    await main.locator("aside dt", { hasText: "__proto__" }).waitFor();
    // The pages of one run are enough.
    if (run !== "constructor") continue;
    for (let seq = 1; seq <= 3 * NAMES.length + 3; seq += 1) {
      await page.goto(`${base}/runs/${run}/calls/${seq}`);
      await main.getByRole("heading", { name: `#${seq}` }).waitFor();
    }
    for (const name of NAMES) {
      for (const address of [`/runs?label=${name}:${name}`, `/audit?tool=${name}`, `/audit?label=${name}:${name}`, `/runs/${run}?q=${name}`, `/runs/${run}?tab=${name}`, `/runs/${name}`, `/approvals?state=${name}`]) {
        await page.goto(base + address);
        await main.locator(":scope > *").first().waitFor();
        await page.getByRole("navigation", { name: "Pages" }).waitFor();
      }
    }
    assert.equal(await page.getByText("Showing").count(), 0);
  }
  await close();
}

export async function what_cannot_be_shown_says_so_and_the_rest_stays({ base, operator, open }) {
  const call = await startRun(operator, "damaged", { policy: { kinds: { TEXT_DOC: "REQUIRE_APPROVAL" } } });
  for (const name of ["a", "b"]) await call("write_file", { path: `${name}.txt.rs`, content: "x\n", reason: `write ${name}` });
  const { approvalId } = await call("write_file", { path: "notes.md", content: "whole text\n", reason: "note" });
  const { page, close } = await open("operator");
  /** Changes what the service answers to a request. */
  const changed = async (pattern, change, look) => {
    await page.route(pattern, async (route) => {
      const response = await route.fetch();
      await route.fulfill({ response, json: change(await response.json()) }).catch(() => undefined);
    });
    await look();
    await page.unroute(pattern);
  };
  // One record of the list is damaged: its row says so, and the others are there.
  await changed("**/v1/runs/damaged/audit?**", (list) => ({ ...list, items: list.items.map((record) => (record.seq === 2 ? { ...record, pathsWritten: null, files: null } : record)) }), async () => {
    await page.goto(`${base}/runs/damaged`);
    await page.getByText("This row cannot be shown").waitFor();
    await page.locator(".call-row", { hasText: "b.txt.rs" }).waitFor();
    await page.getByRole("heading", { name: "Policy" }).waitFor();
    await page.goto(`${base}/runs/damaged/calls/2`);
    await page.getByText("Showing record 2 failed.").waitFor();
    await page.locator(".call-row", { hasText: "b.txt.rs" }).waitFor();
  });
  // The versions of an approval cannot be shown; the diff and the buttons are.
  await changed(`**/v1/approvals/${approvalId}`, (approval) => ({ ...approval, files: [...approval.files, null] }), async () => {
    await page.goto(`${base}/approvals?id=${approvalId}`);
    await page.getByText("Showing the versions of the files failed.").waitFor();
    await page.locator(".diff-line.add", { hasText: "whole text" }).waitFor();
    await page.getByRole("button", { name: "Approve" }).waitFor();
  });
  await changed("**/v1/runs/damaged", (run) => ({ ...run, policy: { ...run.policy, write: null } }), async () => {
    await page.goto(`${base}/runs/damaged`);
    await page.getByText("Showing the policy and the budgets failed.").waitFor();
    await page.locator(".call-row", { hasText: "b.txt.rs" }).waitFor();
  });
  // A page that fails does not take the navigation with it.
  await changed("**/v1/approvals?**", (list) => ({ ...list, items: [{ approvalId: "apr_x" }] }), async () => {
    await page.goto(`${base}/approvals`);
    await page.getByText(/Showing the approval apr_x failed\./).waitFor();
    await page.getByRole("link", { name: "Runs" }).click();
  });
  await page.locator(".run-row", { hasText: "damaged" }).waitFor();
  await close();
}
