// Forks: where a run comes from, what was made from it, and where their files differ.

import assert from "node:assert/strict";
import { startRun } from "./agent.mjs";

export async function a_run_shows_its_forks_and_where_they_differ({ base, operator, open }) {
  const call = await startRun(operator, "forked");
  await call("write_file", { path: "a.txt", content: "one\n", reason: "begin" });
  const fork = async (runId) => startRun(operator, runId, { source: { type: "run", runId: "forked" } });
  const [first, second] = [await fork("forked-1"), await fork("forked-2")];
  await first("read_file", { path: "a.txt" });
  await first("edit_file", { path: "a.txt", oldString: "one", newString: "1", expectedSha256: "seen", reason: "r" });
  await second("write_file", { path: "b.txt", content: "two\n", reason: "r" });
  await operator.create("/v1/runs/forked/merge", { from: "forked-2", reason: "it works" });
  await operator.create("/v1/runs/forked-2/close", {});
  const { page, close } = await open("audit");
  await page.goto(`${base}/runs/forked`);
  await page.getByRole("link", { name: "Forks" }).click();
  const forks = page.getByRole("table", { name: "Forks" });
  await forks.getByRole("row", { name: /forked-2 .*closed 3 up to its record 2/ }).waitFor();
  await forks.getByRole("row", { name: /forked-1 .*open 2 not yet/ }).waitFor();
  await page.getByRole("heading", { name: "2 files differ" }).waitFor();
  const cells = async (path) => page.getByRole("region", { name: "Differences" }).getByRole("row", { name: path }).getByRole("cell").allTextContents();
  const [here, ofSecond, ofFirst] = await cells("a.txt");
  assert.equal(ofSecond, "same");
  assert.notEqual(ofFirst, here);
  assert.deepEqual((await cells("b.txt")).slice(1), ["same", "none"]);
  // The fork says where it comes from.
  await forks.getByRole("link", { name: "forked-1" }).click();
  await page.getByRole("heading", { name: "forked-1" }).waitFor();
  await page.locator(".run-facts", { hasText: "fork of forked at record 2" }).waitFor();
  await page.getByRole("link", { name: "Forks" }).click();
  await page.getByText("nothing of it is merged there yet").waitFor();
  // A run without forks has no such page.
  await startRun(operator, "alone");
  await page.goto(`${base}/runs/alone`);
  await page.getByRole("link", { name: "Changes" }).waitFor();
  assert.equal(await page.getByRole("link", { name: "Forks" }).count(), 0);
  await close();
}

export async function a_fork_is_merged_after_its_changes_were_shown({ base, operator, open }) {
  const call = await startRun(operator, "merged-into", { policy: { ask: ["asked.txt"] } });
  await call("write_file", { path: "a.txt", content: "one\ntwo\nthree\nfour\nfive\n", reason: "begin" });
  const forked = await startRun(operator, "merged-from", { source: { type: "run", runId: "merged-into" }, policy: {} });
  const edit = async (agent, oldString, newString) => {
    await agent("read_file", { path: "a.txt" });
    return agent("edit_file", { path: "a.txt", oldString, newString, expectedSha256: "seen", reason: "r" });
  };
  await edit(forked, "one", "1");
  await forked("write_file", { path: "b.txt", content: "two\n", reason: "r" });
  await edit(call, "five", "5");
  // Whoever may not merge sees no button.
  const auditor = await open("audit");
  await auditor.page.goto(`${base}/runs/merged-into?tab=forks`);
  await auditor.page.getByRole("table", { name: "Forks" }).waitFor();
  assert.equal(await auditor.page.getByRole("button", { name: /Merge/ }).count(), 0);
  await auditor.close();
  const { page, close } = await open("operator");
  await page.goto(`${base}/runs/merged-into?tab=forks`);
  await page.getByRole("button", { name: "Merge merged-from" }).click();
  const dialog = page.getByRole("dialog");
  const merge = dialog.getByRole("button", { name: "Merge", exact: true });
  await dialog.getByRole("alert").getByText("a.txt").waitFor();
  await dialog.getByLabel("Reason (recorded)").fill("its tests pass");
  assert.equal(await merge.isDisabled(), true);
  await dialog.getByLabel(/Merge changes of different lines/).check();
  const change = dialog.getByRole("region", { name: "What would change" });
  await change.getByText("2 files").waitFor();
  await change.getByText("merged line by line").waitFor();
  assert.equal((await call("read_file", { path: "b.txt" })).code, "NOT_FOUND");
  await merge.click();
  await dialog.getByText("Merged 2 files.").waitFor();
  assert.match((await call("read_file", { path: "a.txt" })).content, /1 \| 1\n[^]*5 \| 5\n/);
  await dialog.getByRole("button", { name: "Close" }).click();
  await page.getByRole("row", { name: /merged-from .*up to its record/ }).waitFor();
  // If a person must approve it, the page says so before, and leads to the approval.
  await forked("write_file", { path: "asked.txt", content: "c\n", reason: "r" });
  await page.getByRole("button", { name: "Merge merged-from" }).click();
  await dialog.getByText("Needs approval:").waitFor();
  await dialog.getByLabel("Reason (recorded)").fill("more");
  await merge.click();
  await dialog.getByRole("link", { name: "waits for approval" }).click();
  await page.getByRole("region", { name: "Approval" }).getByText("asked.txt").first().waitFor();
  await close();
}
