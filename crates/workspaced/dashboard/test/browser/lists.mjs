// Lists of runs and records: newest first, filtered by the service, in pages, live without moving what is read.

import assert from "node:assert/strict";
import { startRun, work } from "./agent.mjs";

export async function runs_are_newest_first_and_filtered_by_the_service({ base, operator, open }) {
  const rows = (page) => page.locator("a.run-row .strong").allTextContents();
  for (const name of ["list-1", "list-2"]) await startRun(operator, name, { labels: { team: "list" } });
  const { page, close } = await open("operator");
  await page.goto(`${base}/runs`);
  await page.getByLabel("Label").fill("team:list");
  await page.waitForURL(/label=team%3Alist/);
  await page.locator("h1", { hasText: /Runs 2$/ }).waitFor();
  assert.deepEqual(await rows(page), ["list-2", "list-1"]);
  // A newer run comes first; while a row is chosen it waits.
  await startRun(operator, "list-3", { labels: { team: "list" } });
  await page.locator("h1", { hasText: /Runs 3$/ }).waitFor();
  assert.deepEqual(await rows(page), ["list-3", "list-2", "list-1"]);
  await page.locator("h1").click();
  await page.keyboard.press("j");
  await startRun(operator, "list-4", { labels: { team: "list" } });
  await page.getByRole("button", { name: "1 new" }).waitFor();
  assert.deepEqual(await rows(page), ["list-3", "list-2", "list-1"]);
  await page.getByRole("button", { name: "1 new" }).click();
  await page.getByRole("button", { name: "1 new" }).waitFor({ state: "detached" });
  assert.deepEqual(await rows(page), ["list-4", "list-3", "list-2", "list-1"]);
  await page.getByLabel("State").selectOption("closed");
  await page.getByText("No run matches.").waitFor();
  await page.goto(`${base}/runs?label=team:list&by=nobody`);
  await page.getByText("No run matches.").waitFor();
  await page.goto(`${base}/runs?label=team`);
  await page.getByText("expected `name:value`").waitFor();
  await page.getByLabel("Open a run").fill("list-1");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "list-1" }).waitFor();
  await close();
}

export async function records_are_newest_first_in_pages_and_live({ base, operator, open }) {
  const first = (page) => page.locator("a.audit-row").first().textContent();
  const call = await startRun(operator, "paged", { labels: { team: "paged" } });
  await work(call);
  for (let number = 0; number < 20; number += 1) await Promise.all(Array.from({ length: 11 }, () => call("list_dir", {})));
  const { page, close } = await open("audit");
  await page.goto(`${base}/audit?label=team:paged`);
  await page.locator("h1", { hasText: /Audit 200\+$/ }).waitFor();
  assert.match(await first(page), /#229/);
  await page.getByRole("button", { name: "Older records" }).click();
  await page.locator("h1", { hasText: /Audit 228$/ }).waitFor();
  assert.equal(await page.getByRole("button", { name: "Older records" }).count(), 0);
  await page.getByText("● live").waitFor();
  await call("write_file", { path: "late.txt", content: "x\n", reason: "late" });
  await page.locator("a.audit-row", { hasText: "late.txt" }).waitFor();
  assert.match(await first(page), /#230/);
  // Who reads further down is not moved by what arrives.
  const list = page.locator(".page-window");
  await list.evaluate((element) => (element.scrollTop = 2000));
  await page.locator("a.audit-row", { hasText: "late.txt" }).waitFor({ state: "detached" });
  const before = await first(page);
  await call("write_file", { path: "later.txt", content: "x\n", reason: "later" });
  await page.getByRole("button", { name: "1 new" }).waitFor();
  assert.equal(await first(page), before);
  await page.getByRole("button", { name: "1 new" }).click();
  await page.locator("a.audit-row", { hasText: "later.txt" }).waitFor();
  await page.getByLabel("Code").fill("POLICY_DENIED_SECRET");
  await page.locator("h1", { hasText: /Audit 1$/ }).waitFor();
  assert.match(await first(page), /read_file.*\.env/);
  await page.goto(`${base}/audit?run=paged&pathPrefix=src/&decision=ALLOW`);
  await page.locator("h1", { hasText: /Audit [2-9]$/ }).waitFor();
  await close();
}

export async function matches_are_searched_from_the_newest_records_on({ base, operator, open }) {
  const call = await startRun(operator, "old");
  await work(call);
  for (let number = 0; number < 5; number += 1) await call("list_dir", {});
  const { page, close } = await open("audit");
  // As if a page of the list had one record: a search ends after ten of them.
  await page.route("**/v1/runs/old/audit?**", (route) => route.continue({ url: route.request().url().replace("limit=1000", "limit=1") }));
  const numbers = () => page.locator(".call-row > .number:first-child").allTextContents();
  await page.goto(`${base}/runs/old?kind=changes`);
  await page.getByText("Records 1 to 4 are not searched yet").waitFor();
  assert.deepEqual(await numbers(), ["5", "6", "9"]);
  await page.getByText("● live").waitFor();
  await call("write_file", { path: "new.txt", content: "x\n", reason: "new" });
  await page.locator(".call-row", { hasText: "new.txt" }).waitFor();
  await page.keyboard.press("Home");
  await page.getByRole("button", { name: "Search older records" }).click();
  await page.getByText("not searched yet").waitFor({ state: "detached" });
  assert.deepEqual(await numbers(), ["3", "5", "6", "9", "15"]);
  assert.match(await page.locator(".call-row.focused").textContent(), /^5/);
  await page.goto(`${base}/runs/old/calls/3?kind=changes`);
  await page.getByRole("heading", { name: "write_file #3" }).waitFor();
  await page.keyboard.press("Escape");
  await page.waitForURL(/\/runs\/old\?kind=changes$/);
  await close();
}
