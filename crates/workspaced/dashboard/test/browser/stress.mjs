// What wears a page out: long runs, streams that are cut, hostile texts, tokens that end.

import assert from "node:assert/strict";
import net from "node:net";
import { startRun, work } from "./agent.mjs";
import { longestTask } from "./reading.mjs";

const LONG = 5000;
const BATCH = 100;
const PROXY_MILLIS = 1000;

const row = (page, text) => page.locator(".call-row", { hasText: text });

/** Records events until the run has `total` records. */
async function fill(operator, run, total) {
  for (let first = 2; first <= total; first += BATCH) {
    const events = Array.from({ length: Math.min(BATCH, total - first + 1) }, (_, index) => ({ kind: (first + index) % 1000 ? "message" : "test", summary: `event ${first + index}` }));
    await operator.create(`/v1/runs/${run}/events/batch`, { events });
  }
}

export async function a_long_run_is_read_by_the_part_that_is_shown({ base, operator, open }) {
  const call = await startRun(operator, "long");
  await fill(operator, "long", LONG);
  const { page, close } = await open("audit");
  let records = 0;
  page.on("response", async (response) => {
    if (/\/runs\/long\/audit\?/.test(response.url())) records += (await response.json().catch(() => ({ items: [] }))).items.length;
  });
  // The chain has one record more than are verified at once.
  await call("list_dir", {});
  await page.context().browser().startTracing(page, { categories: ["toplevel", "devtools.timeline"] });
  await page.goto(`${base}/runs/long`);
  await row(page, `event ${LONG}`).waitFor();
  await page.getByText("● live").waitFor();
  const nodes = () => page.evaluate(() => document.querySelectorAll("*").length);
  const list = page.locator(".window");
  for (const part of [0.75, 0.5, 0.25]) {
    await list.evaluate((element, to) => (element.scrollTop = element.scrollHeight * to), part);
    await row(page, `event ${Math.round(LONG * part) + 5}`).waitFor();
    assert.ok(await nodes() < 1500, `${await nodes()} nodes`);
  }
  await page.getByRole("button", { name: "Oldest" }).click();
  await row(page, "run.create").waitFor();
  await page.locator("h1").click();
  await page.keyboard.press("j");
  assert.match(await page.locator(".call-row.focused").textContent(), /^2.*event 2/);
  await page.keyboard.press("End");
  await page.locator(".call-row.focused", { hasText: "list_dir" }).waitFor();
  await page.keyboard.press("k");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: `event.message #${LONG}` }).or(page.getByRole("heading", { name: `event.test #${LONG}` })).waitFor();
  // Each page of the list has 200 records, and each part that was shown needs one or two.
  assert.ok(records <= 3000, `${records} records were read`);
  const { traceEvents } = JSON.parse((await page.context().browser().stopTracing()).toString());
  const longest = longestTask(traceEvents);
  console.log(`   longest task ${Math.round(longest)} ms`);
  assert.ok(longest < 200, `a task took ${longest} ms`);
  await page.goto(`${base}/runs/long/calls/1234`);
  await page.getByRole("heading", { name: "event.message #1234" }).waitFor();
  await row(page, "event 1234").waitFor();
  await page.goto(`${base}/runs/long?kind=events&q=event.test`);
  await row(page, "event 5000").waitFor();
  assert.deepEqual(await page.locator(".call-row > .number:first-child").allTextContents(), ["1000", "2000", "3000", "4000", "5000"]);
  await operator.create("/v1/runs/long/events", { kind: "test", summary: "one more" });
  await row(page, "one more").waitFor();
  await close();
}

export async function what_nobody_asked_for_is_not_read({ base, open }) {
  // The report and the proof of a long run read every record.
  const { page, close } = await open("audit");
  const asked = [];
  page.on("request", (request) => /\/report|\/verify/.test(request.url()) && asked.push(request.url()));
  await page.goto(`${base}/runs/long`);
  await page.getByRole("button", { name: /^Verify .* records here$/ }).waitFor();
  await page.getByRole("button", { name: "Read the budgets" }).waitFor();
  assert.deepEqual(asked, []);
  await page.getByRole("button", { name: "Read the budgets" }).click();
  await page.getByRole("row", { name: /files touched/ }).waitFor();
  await close();
}

/** A proxy that closes every connection each second, and refuses new ones while it is down. */
async function cuttingProxy(base) {
  const { hostname, port } = new URL(base);
  const open = new Set();
  const proxy = { cuts: 0, isDown: false, refused: 0 };
  const server = net.createServer((inside) => {
    if (proxy.isDown) {
      proxy.refused += 1;
      return inside.destroy();
    }
    const outside = net.connect(Number(port), hostname);
    for (const [one, other] of [[inside, outside], [outside, inside]]) {
      open.add(one);
      one.on("error", () => other.destroy()).on("close", () => (open.delete(one), other.destroy()));
      one.pipe(other);
    }
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const cut = () => {
    proxy.cuts += open.size;
    for (const socket of open) socket.destroy();
  };
  const timer = setInterval(cut, PROXY_MILLIS);
  proxy.address = `http://127.0.0.1:${server.address().port}`;
  proxy.goDown = (isDown) => ((proxy.isDown = isDown), cut());
  proxy.end = () => (clearInterval(timer), cut(), server.close());
  return proxy;
}

export async function a_stream_that_is_cut_every_second_has_no_gap_and_no_double({ base, operator, open }) {
  const call = await startRun(operator, "severed");
  const proxy = await cuttingProxy(base);
  const { page, close } = await open(undefined, { viewport: { width: 1440, height: 2000 } }, proxy.address);
  // Signing in and the first requests may be cut too: they are repeated until they pass.
  await page.goto(`${proxy.address}/runs/severed`);
  await signIn(page, operator.token);
  await row(page, "run.create").waitFor();
  for (let number = 0; number < 30; number += 1) {
    await call("write_file", { path: `f${number}.txt`, content: "x\n", reason: `file ${number}` });
    await page.waitForTimeout(200);
  }
  await row(page, "f29.txt").waitFor();
  const numbers = await page.locator(".call-row > .number:first-child").allTextContents();
  assert.deepEqual(numbers, Array.from({ length: 31 }, (_, index) => String(index + 1)));
  assert.ok(proxy.cuts > 4, `${proxy.cuts} cuts`);
  // While the service cannot be reached the page says so, and does not ask again and again.
  proxy.goDown(true);
  await page.getByText("◌ reconnecting").waitFor();
  await call("write_file", { path: "missed.txt", content: "x\n", reason: "while it was away" });
  await page.waitForTimeout(3000);
  await page.getByText("◌ reconnecting").waitFor();
  assert.ok(proxy.refused < 30, `${proxy.refused} attempts`);
  proxy.goDown(false);
  await row(page, "missed.txt").waitFor({ timeout: 30000 });
  await page.getByText("● live").waitFor();
  proxy.end();
  await close();
}

async function signIn(page, token) {
  const field = page.getByLabel("Operator token");
  const inside = page.getByRole("button", { name: "Sign out" });
  for (let attempt = 0; attempt < 10; attempt += 1) {
    await field.or(inside).or(page.getByRole("button", { name: "Retry" })).first().waitFor();
    if (await inside.count()) return;
    if (await field.count()) {
      await field.fill(token);
      await page.getByRole("button", { name: "Sign in" }).click({ timeout: 2000 }).catch(() => undefined);
    } else await page.getByRole("button", { name: "Retry" }).click({ timeout: 2000 }).catch(() => undefined);
    await inside.waitFor({ timeout: 1500 }).catch(() => undefined);
  }
}

/** Waits until nothing on the page is being read for the first time. */
const settled = (page) => page.waitForFunction(() => document.querySelector("main *") && !/^(Loading|reading)/m.test(document.querySelector("main").innerText), undefined, { timeout: 5000 }).catch(() => undefined);

const MARKUP = "<img src=x onerror=alert(1)><script>alert(2)</script>";
const WORD = "W".repeat(180);

/** A run whose every text is markup, bidirectional marks and words without a space. Returns approvals, pending and denied. */
async function hostileRun(operator, run) {
  const call = await startRun(operator, run, { labels: { team: `${MARKUP}${WORD}`.slice(0, 200) } });
  const path = `src/${MARKUP.replaceAll("/", "")}${WORD.slice(0, 150)}/${WORD}/${WORD}.js`;
  const reason = `${MARKUP}\u202e${"R".repeat(1900)}`;
  const written = await call("write_file", { path, content: `// ${"C".repeat(10_000)}${MARKUP}\n`, reason, stepId: "S".repeat(128) });
  assert.equal(written.ok, true, JSON.stringify(written));
  await call("read_file", { path: `${MARKUP.replaceAll("/", "")}\u202e/.env`, stepId: `${MARKUP.slice(0, 100)}` });
  await operator.create(`/v1/runs/${run}/events`, { kind: "message", summary: `${MARKUP}${"E".repeat(440)}`, data: { [WORD]: "D".repeat(10_000), markup: MARKUP } });
  const ids = [];
  for (const name of ["a", "b"]) ids.push((await call("write_file", { path: `${WORD}/${name}/Cargo.lock`, content: `${"L".repeat(10_000)}\n`, reason })).approvalId);
  await operator.create(`/v1/approvals/${ids[1]}/deny`, { note: reason.slice(0, 1900), onBehalfOf: `${MARKUP}${WORD}`.slice(0, 128) });
  return { path, ids };
}

export async function hostile_texts_break_no_page({ base, operator, open, screenshots }) {
  const { path, ids } = await hostileRun(operator, "h".repeat(60));
  const run = `/runs/${"h".repeat(60)}`;
  const pages = {
    overview: "/", runs: "/runs", run, event: `${run}/calls/4`, call: `${run}/calls/2`, split: `${run}/calls/2?diff=split`, refused: `${run}/calls/3`, changes: `${run}?tab=changes`,
    files: `${run}?tab=files&path=${encodeURIComponent(path)}`, report: `${run}?tab=report`, approval: `/approvals?id=${ids[0]}`, denied: `/approvals?state=denied&id=${ids[1]}`, queue: "/approvals",
    audit: `/audit?run=${"h".repeat(60)}`, about: "/about", none: `/runs/${"n".repeat(64)}`, search: `${run}?q=${encodeURIComponent(MARKUP + WORD)}`,
  };
  const problems = [];
  for (const [width, height, colorScheme] of [[1440, 900, "light"], [390, 844, "dark"]]) {
    const { page, close } = await open("operator", { viewport: { width, height }, colorScheme });
    await page.addInitScript(() => addEventListener("securitypolicyviolation", (event) => console.error(`violation of ${event.violatedDirective}`)));
    for (const [name, address] of Object.entries(pages)) {
      await page.goto(base + address);
      await settled(page);
      await page.screenshot({ path: `${screenshots}/hostile-${name}-${width}-${colorScheme}.png` });
      const found = await page.evaluate(() => {
        // What is cut or scrolled by an element of its own is within the page.
        const isClipped = (element) => element && (getComputedStyle(element).overflowX !== "visible" || isClipped(element.parentElement));
        const wide = [...document.querySelectorAll("main *")].filter((element) => element.getBoundingClientRect().right > innerWidth + 1 && !isClipped(element.parentElement));
        return { overflow: document.documentElement.scrollWidth - innerWidth, inner: document.querySelector("main").scrollWidth - document.querySelector("main").clientWidth, wide: wide.length, foreign: document.querySelectorAll("main img, main script, main b").length };
      });
      for (const [what, number] of Object.entries(found)) if (number > 0) problems.push(`${name} ${width}: ${what} ${number}`);
    }
    await close();
  }
  assert.equal(problems.join("\n"), "");
}

export async function every_scope_is_offered_what_it_may_do({ base, operator, open }) {
  const call = await startRun(operator, "offered");
  const id = await work(call);
  const links = { approve: ["Overview", "Runs", "Approvals", "About"], audit: ["Overview", "Runs", "Approvals", "Audit", "About"], orchestrate: ["Overview", "Runs", "Approvals", "Audit", "Operators", "About"], metrics: [] };
  for (const [scope, expected] of Object.entries(links)) {
    const { token } = await operator.create("/v1/operators", { name: `offered-${scope}`, scopes: [scope] });
    const { page, close } = await open(undefined);
    const refused = [];
    page.on("response", (response) => [401, 403].includes(response.status()) && refused.push(response.url()));
    await page.goto(`${base}/approvals?id=${id}`);
    await signIn(page, token);
    const shown = await page.getByRole("navigation", { name: "Pages" }).getByRole("link").allTextContents();
    assert.deepEqual(shown.map((text) => text.replace(/ \d+\+?$/, "")), expected, scope);
    if (scope === "metrics") await page.getByText("Your token has the scopes metrics.").waitFor();
    else {
      await page.getByRole("region", { name: "Approval" }).getByText("version = 4").waitFor();
      assert.equal(await page.getByRole("button", { name: "Approve", exact: true }).count(), scope === "audit" ? 0 : 1, scope);
      for (const address of ["/", "/runs", "/runs/offered", "/runs/offered/calls/5", "/runs/offered?tab=files", "/runs/offered?tab=report", "/audit", "/about"]) {
        await page.goto(base + address);
        await settled(page);
      }
    }
    // Nothing was asked for that the scope does not include.
    assert.deepEqual(refused, [], scope);
    await close();
  }
}

export async function a_token_that_ends_leads_back_after_signing_in({ base, operator, open, tokens }) {
  const call = await startRun(operator, "ending");
  await work(call);
  const name = "leaving";
  const { token } = await operator.create("/v1/operators", { name, scopes: ["audit"] });
  const { page, close } = await open(undefined);
  const address = `${base}/runs/ending/calls/5?outcome=ok`;
  await page.goto(address);
  await signIn(page, token);
  await page.getByRole("heading", { name: "edit_file #5" }).waitFor();
  assert.equal((await operator.request("DELETE", `/v1/operators/${name}`)).status < 300, true);
  await page.getByText("your token was revoked, or your session has ended").waitFor({ timeout: 20000 });
  assert.equal(page.url(), address);
  assert.equal(await page.evaluate(() => sessionStorage.getItem("workspaced.token")), null);
  await signIn(page, tokens.audit);
  await page.getByRole("heading", { name: "edit_file #5" }).waitFor();
  assert.equal(page.url(), address);
  await close();
}
