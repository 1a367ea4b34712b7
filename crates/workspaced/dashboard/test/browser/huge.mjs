// A run of 100,000 calls, which the server has from the start.

import assert from "node:assert/strict";
import { longestTask } from "./reading.mjs";

const CALLS = 100_000;

const rowOf = (page, seq) => page.locator(".call-row", { has: page.locator(".number:first-child", { hasText: new RegExp(`^${seq}$`) }) });

export async function a_run_of_100000_calls_is_shown_at_once_and_scrolls({ base, open, screenshots }) {
  const { page, close } = await open("audit");
  await page.context().browser().startTracing(page, { categories: ["toplevel", "devtools.timeline"] });
  const paints = [];
  for (let attempt = 0; attempt < 3; attempt += 1) {
    await page.goto(`${base}/runs/huge`);
    await rowOf(page, CALLS).waitFor();
    paints.push(await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime));
  }
  const list = page.locator(".window");
  for (const part of [0.9, 0.5, 0.1]) {
    await list.evaluate((element, to) => (element.scrollTop = element.scrollHeight * to), part);
    await rowOf(page, Math.round(CALLS * part) + 5).waitFor();
    assert.ok(await page.evaluate(() => document.querySelectorAll("*").length) < 1500);
  }
  await page.getByRole("button", { name: "Oldest" }).click();
  await page.locator(".call-row", { hasText: "run.create" }).waitFor();
  await page.locator("h1").click();
  await page.keyboard.press("End");
  await page.locator(".call-row.focused", { hasText: "read_file" }).waitFor();
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: `read_file #${CALLS}` }).waitFor();
  await page.screenshot({ path: `${screenshots}/huge.png` });
  const { traceEvents } = JSON.parse((await page.context().browser().stopTracing()).toString());
  const longest = longestTask(traceEvents);
  console.log(`   longest task ${Math.round(longest)} ms, first content after ${paints.map(Math.round).join(", ")} ms`);
  assert.ok(longest < 200, `a task took ${longest} ms`);
  // Another process may delay one of them.
  assert.ok(Math.min(...paints) < 1000, `first content after ${paints} ms`);
  await close();
}

const nodes = (page) => page.evaluate(() => document.querySelectorAll("*").length);

export async function the_audit_of_100000_calls_is_read_page_by_page({ base, open }) {
  const { page, close } = await open("audit");
  await page.context().browser().startTracing(page, { categories: ["toplevel", "devtools.timeline"] });
  await page.goto(`${base}/audit?by=all&run=huge`);
  await page.locator(".audit-row", { hasText: `#${CALLS}` }).waitFor();
  const list = page.locator(".window");
  for (let pages = 2; pages <= 12; pages += 1) {
    await list.evaluate((element) => (element.scrollTop = element.scrollHeight));
    await page.getByRole("button", { name: "Older records" }).click();
    await page.locator("h1", { hasText: String(pages * 200).replace(/(?=...$)/, pages * 200 > 999 ? "," : "") }).waitFor();
    assert.ok((await nodes(page)) < 1500, `${await nodes(page)} nodes after ${pages} pages`);
  }
  await list.evaluate((element) => (element.scrollTop = element.scrollHeight));
  await page.locator(".audit-row", { hasText: `#${CALLS - 2399}` }).waitFor();
  // What is searched for is found by the service, or in the part that was read.
  await page.goto(`${base}/runs/huge?q=file_77.rs`);
  await page.locator(".call-row", { hasText: "src/file_77.rs" }).first().waitFor();
  assert.ok((await nodes(page)) < 1500);
  const { traceEvents } = JSON.parse((await page.context().browser().stopTracing()).toString());
  console.log(`   longest task ${Math.round(longestTask(traceEvents))} ms`);
  await close();
}
