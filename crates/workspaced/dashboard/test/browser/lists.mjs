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

export async function a_list_is_where_it_was_on_the_way_back({ base, operator, open }) {
  const call = await startRun(operator, "way-back", { labels: { team: "way-back" } });
  for (let number = 0; number < 20; number += 1) await Promise.all(Array.from({ length: 12 }, () => call("list_dir", {})));
  const { page, close } = await open("audit");
  await page.goto(`${base}/audit?label=team:way-back`);
  await page.locator("h1", { hasText: /Audit 200\+$/ }).waitFor();
  await page.getByRole("button", { name: "Older records" }).click();
  await page.locator("h1", { hasText: /Audit 240$/ }).waitFor();
  await page.locator(".page-window").evaluate((element) => (element.scrollTop = element.scrollHeight));
  const row = (seq) => page.locator("a.audit-row", { hasText: new RegExp(`#${seq}(?!\\d)`) });
  await row(20).click();
  await page.waitForURL(/\/runs\/way-back\/calls\/20/);
  await page.goBack();
  await row(20).and(page.locator(".focused")).waitFor();
  // The keys go on from there.
  await page.locator("h1").click();
  await page.keyboard.press("j");
  await row(19).and(page.locator(".focused")).waitFor();
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/calls\/19/);
  await page.goBack();
  await row(19).and(page.locator(".focused")).waitFor();
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

export async function runs_are_ordered_by_their_columns_and_found_by_their_prompt({ base, operator, open }) {
  const more = { "order-1": { repository: "acme/b", model: "zeta" }, "order-2": { repository: "acme/a", agent: "alpha" }, "order-3": { repository: "acme/c" } };
  for (const [run, labels] of Object.entries(more)) {
    const call = await startRun(operator, run, { labels: { team: "order", ...labels } });
    const lines = { "order-1": 2, "order-2": 9, "order-3": 1 }[run];
    await call("write_file", { path: "a.txt", content: "x\n".repeat(lines), reason: "start" });
  }
  await operator.create("/v1/runs/order-1/events", { kind: "prompt", summary: "Mend the lighthouse <b>now</b>" });
  const { page, close } = await open("operator");
  await page.goto(`${base}/runs?label=team:order`);
  const rows = page.locator("a.run-row .strong");
  const shown = async (...expected) => {
    await page.waitForFunction((names) => JSON.stringify([...document.querySelectorAll("a.run-row .strong")].map(({ textContent }) => textContent)) === JSON.stringify(names), expected);
  };
  await shown("order-3", "order-2", "order-1");
  const column = (name) => page.getByRole("group", { name: "Order of the runs" }).getByRole("button", { name });
  await column("Repository").click();
  await shown("order-2", "order-1", "order-3");
  assert.match(page.url(), /sort=repository/);
  await column("Repository").click();
  await shown("order-3", "order-1", "order-2");
  await column("Agent").click();
  await shown("order-3", "order-2", "order-1");
  await column("Lines").click();
  await shown("order-2", "order-1", "order-3");
  await page.locator("a.run-row", { hasText: "order-2" }).getByText("+9").waitFor();
  await column("Last activity").click();
  await shown("order-1", "order-3", "order-2");
  assert.equal(await column("Last activity").getAttribute("aria-pressed"), "true");
  await page.getByLabel("Search").fill("LIGHTHOUSE");
  await shown("order-1");
  await page.locator("a.run-row", { hasText: "Mend the lighthouse <b>now</b>" }).waitFor();
  assert.equal(await rows.count(), 1);
  await close();
}

export async function the_audit_suggests_what_there_is_and_exports_all_that_matches({ base, operator, open }) {
  const call = await startRun(operator, "suggested", { labels: { team: "suggestions" } });
  for (let number = 0; number < 30; number += 1) await call("write_file", { path: `deep/folder/${number}.txt`, content: "x\n", reason: `write ${number}` });
  await call("read_file", { path: ".env" });
  const { page, close } = await open("audit", { acceptDownloads: true });
  await page.goto(`${base}/audit`);
  const offered = async (label) => {
    const id = await page.getByLabel(label, { exact: true }).getAttribute("list");
    return page.locator(`datalist[id="${id}"] option`).evaluateAll((all) => all.map(({ value }) => value));
  };
  await page.getByLabel("Tool", { exact: true }).focus();
  await page.waitForFunction(() => document.querySelectorAll("datalist option").length > 0);
  assert.ok((await offered("Tool")).includes("write_file"));
  assert.ok((await offered("Code")).includes("POLICY_DENIED_SECRET"));
  assert.ok((await offered("Run")).includes("suggested"));
  assert.ok((await offered("Who")).some((actor) => actor.startsWith("run-token:")));
  assert.ok((await offered("File")).includes("deep/folder/"));
  assert.ok((await offered("Label")).includes("team:suggestions"));

  await page.getByLabel("Run", { exact: true }).fill("suggested");
  await page.getByLabel("Tool", { exact: true }).fill("write_file");
  await page.locator("h1", { hasText: /Audit 30$/ }).waitFor();
  const exported = async (format) => {
    await page.getByLabel("Export all that match").selectOption(format);
    const download = page.waitForEvent("download");
    await page.getByRole("button", { name: "Export", exact: true }).click();
    const parts = [];
    for await (const part of await (await download).createReadStream()) parts.push(part);
    return Buffer.concat(parts).toString().trimEnd().split("\n");
  };
  const records = (await exported("ndjson")).map((line) => JSON.parse(line));
  assert.equal(records.length, 30);
  assert.deepEqual([...new Set(records.map(({ runId, tool }) => `${runId} ${tool}`))], ["suggested write_file"]);
  assert.equal((await exported("csv")).length, 31);
  assert.equal((await exported("ocsf")).length, 30);
  // Days are those of the reader.
  const today = new Date();
  const day = (offset) => new Date(today.getFullYear(), today.getMonth(), today.getDate() + offset, 12).toISOString().slice(0, 10);
  await page.getByLabel("From", { exact: true }).fill(day(-1));
  await page.getByLabel("To", { exact: true }).fill(day(0));
  await page.locator("h1", { hasText: /Audit 30$/ }).waitFor();
  await page.getByLabel("To", { exact: true }).fill(day(-1));
  await page.getByText("No record matches.").waitFor();
  assert.equal((await exported("ndjson")).join(""), "");
  await close();
}

export async function a_narrow_screen_has_few_filters_until_more_are_asked_for({ base, open }) {
  const { page, close } = await open("audit", { viewport: { width: 390, height: 844 } });
  const field = (label) => page.locator(".filters .field", { hasText: new RegExp(`^${label}`) }).first();
  for (const [address, first, rest] of [["/runs", "Search", "State"], ["/audit", "File", "Decision"]]) {
    await page.goto(base + address);
    await field(first).waitFor();
    await field(rest).waitFor({ state: "hidden" });
    await page.getByRole("button", { name: "More filters" }).click();
    await field(rest).waitFor();
    await page.getByRole("button", { name: "Fewer filters" }).click();
    await field(rest).waitFor({ state: "hidden" });
  }
  // What the address has set is seen.
  await page.goto(`${base}/audit?decision=DENY`);
  await field("Decision").waitFor();
  await close();
}
