// The first page: what needs a person, what runs, and what has happened.

import assert from "node:assert/strict";
import { startRun, work } from "./agent.mjs";

const json = (body) => ({ status: 200, contentType: "application/json", body: JSON.stringify(body) });

export async function the_overview_says_first_what_needs_a_person({ base, operator, open }) {
  const call = await startRun(operator, "overview-1", { labels: { repository: "acme/shop", ticket: "SHOP-1" } });
  await work(call);
  const { page, close } = await open("operator");
  await page.goto(base);
  const waiting = page.getByRole("list", { name: "Approvals" });
  await waiting.waitFor();
  await page.getByText("Calls by the hour").waitFor();
  // What waits, what runs, what happened: in this order, also for who hears the page.
  const titles = await page.locator("main h2").allTextContents();
  assert.deepEqual(titles.map((title) => title.replace(/ \d*\+?$/, "")), ["Waiting for you", "In progress", "Last 24 hours"]);
  assert.ok((await page.getByRole("list", { name: "Runs in progress" }).getByText("overview-1").count()) > 0);
  // The charts have axes with units, and their numbers as text.
  const axis = page.locator(".y-axis");
  assert.match(await axis.nth(0).innerText(), /^\d+\n[\d.,]+\n0$/);
  await page.getByRole("img", { name: /Calls by the hour: .*\d\d:00 \d+/ }).waitFor();
  const review = page.getByRole("link", { name: "Review", exact: true });
  // It names its key.
  assert.equal(await review.textContent(), "Review3");
  await page.keyboard.press(await review.getAttribute("aria-keyshortcuts"));
  await page.getByRole("region", { name: "Approval" }).waitFor();
  await close();
}

export async function the_overview_says_what_is_wrong_and_what_is_empty({ base, open }) {
  const { page, close } = await open("operator");
  await page.route(/\/readyz/, (route) => route.fulfill(json({ ok: true, degraded: [{ what: "signing", detail: "no more checkpoints are signed", hint: "Run `workspaced verify`." }] })));
  await page.route(/\/v1\/(approvals|runs)\?/, (route) => route.fulfill(json({ items: [] })));
  const total = Object.fromEntries(["records", "reads", "changes", "commands", "other", "refused", "pending", "failed", "denied", "deniedByPerson"].map((name) => [name, 0]));
  await page.route(/\/v1\/stats\?/, (route) => route.fulfill(json({ total, hours: [], reasons: [] })));
  await page.goto(base);
  await page.getByRole("alert").getByText("no more checkpoints are signed").waitFor();
  await page.getByText("Nothing is waiting.").waitFor();
  await page.getByText("No run yet.").waitFor();
  await page.getByText("No agent activity in the last 24 hours.").waitFor();
  // A part that fails leaves the others.
  await page.unrouteAll();
  await page.route(/\/v1\/runs\?/, (route) => route.fulfill({ status: 503, contentType: "application/problem+json", body: JSON.stringify({ code: "UNAVAILABLE", detail: "the database does not answer" }) }));
  await page.goto(base);
  await page.getByText("Reading the runs failed.").waitFor();
  await page.getByRole("list", { name: "Approvals" }).waitFor();
  await page.unrouteAll();
  await page.getByRole("button", { name: "Retry" }).click();
  await page.getByRole("list", { name: "Runs in progress" }).waitFor();
  await close();
}

export async function the_overview_offers_who_only_watches_no_decision({ base, open }) {
  const { page, close } = await open("audit");
  await page.goto(base);
  await page.getByRole("heading", { name: /^Waiting for a reviewer/ }).waitFor();
  await page.getByRole("link", { name: "Look at them" }).waitFor();
  await close();
}

export async function the_overview_says_when_something_was_decided({ base, operator, open }) {
  const call = await startRun(operator, "overview-decided");
  const { approvalId } = await call("write_file", { path: "Cargo.lock", content: "x\n", reason: "lock it" });
  const { createdAt } = (await operator.request("GET", `/v1/approvals/${approvalId}`)).body;
  const { decidedSeq } = await operator.create(`/v1/approvals/${approvalId}/deny`, { note: "done", onBehalfOf: "Ada" });
  const { timestamp } = (await operator.request("GET", `/v1/runs/overview-decided/audit?fromSeq=${decidedSeq}&limit=1`)).body.items[0];
  const { page, close } = await open("approver");
  await page.goto(base);
  const row = page.getByRole("list", { name: "Decided approvals" }).getByRole("listitem").filter({ hasText: "overview-decided" });
  await row.waitFor();
  assert.notEqual(timestamp, createdAt);
  assert.equal(await row.locator("time").getAttribute("datetime"), timestamp);
  assert.equal(await row.getByText("requested").count(), 0);
  // Without the record of the decision, the time is said to be that of the request.
  await page.route(/\/v1\/runs\/[^/]+\/audit/, (route) => route.fulfill({ status: 404, contentType: "application/problem+json", body: JSON.stringify({ code: "RUN_NOT_FOUND", detail: "gone" }) }));
  await page.reload();
  await row.getByText(/^requested \d+ \w+ ago$/).waitFor();
  assert.equal(await row.locator("time").getAttribute("datetime"), createdAt);
  await page.unrouteAll({ behavior: "ignoreErrors" });
  await close();
}
