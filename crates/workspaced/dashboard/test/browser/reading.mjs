// What a person reads: the timeline, a call, proofs, files, hostile names, large diffs.

import assert from "node:assert/strict";
import { startRun, work } from "./agent.mjs";

const row = (page, text) => page.locator(".call-row", { hasText: text });

export async function a_timeline_is_live_filtered_and_read_by_keys({ base, operator, open }) {
  const call = await startRun(operator, "watched");
  const { page, close } = await open("audit");
  await page.goto(`${base}/runs/watched`);
  await row(page, "run.create").waitFor();
  await page.getByText("● live").waitFor();
  await work(call);
  await row(page, "Cargo.lock").waitFor();
  assert.equal(await page.locator(".call-row").count(), 9);
  await page.getByLabel("Outcome").selectOption("refused");
  await row(page, "POLICY_DENIED_SECRET").waitFor();
  assert.equal(await page.locator(".call-row").count(), 1);
  assert.match(page.url(), /outcome=refused/);
  await page.goto(`${base}/runs/watched?q=trim`);
  await row(page, "trim the name").waitFor();
  await page.getByText("● live").waitFor();
  assert.equal(await page.locator(".call-row").count(), 1);
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "edit_file #5" }).waitFor();
  await page.locator(".diff-line.add", { hasText: "let name = name.trim();" }).waitFor();
  await page.goBack();
  assert.match(page.url(), /\/runs\/watched\?q=trim$/);
  await row(page, "trim the name").waitFor();
  await page.keyboard.press("/");
  assert.equal(await page.evaluate(() => document.activeElement.type), "search");
  await page.keyboard.press("Tab");
  await page.locator("h1").click();
  await page.keyboard.press("?");
  await page.getByRole("dialog", { name: "Keyboard" }).waitFor();
  await close();
}

export async function a_stream_that_is_cut_is_resumed_without_a_gap({ base, operator, open }) {
  const call = await startRun(operator, "cut");
  const { page, close } = await open("audit");
  // Every answer of the stream ends after the events that it has so far.
  await page.route("**/v1/audit/stream**", async (route) => {
    const controller = new AbortController();
    setTimeout(() => controller.abort(), 700);
    const headers = { ...route.request().headers(), accept: "text/event-stream" };
    let body = "";
    try {
      const response = await fetch(route.request().url(), { headers, signal: controller.signal });
      for await (const chunk of response.body) body += Buffer.from(chunk).toString();
    } catch {
      // The cut.
    }
    await route.fulfill({ status: 200, contentType: "text/event-stream", body }).catch(() => undefined);
  });
  await page.goto(`${base}/runs/cut`);
  await row(page, "run.create").waitFor();
  for (let number = 0; number < 12; number += 1) {
    await call("write_file", { path: `f${number}.txt`, content: "x\n", reason: `file ${number}` });
    await new Promise((done) => setTimeout(done, 250));
  }
  await row(page, "f11.txt").waitFor();
  const numbers = await page.locator(".call-row > .number:first-child").allTextContents();
  assert.deepEqual(numbers, Array.from({ length: 13 }, (_, index) => String(index + 1)));
  await close();
}

export async function a_run_is_verified_and_a_changed_record_is_named({ base, operator, open }) {
  const call = await startRun(operator, "proven");
  await work(call);
  const { page, close } = await open("audit");
  await page.goto(`${base}/runs/proven`);
  await page.getByText(/records checked/).waitFor();
  // A checkpoint is signed every few seconds.
  for (let attempt = 0; attempt < 20 && !(await page.getByText("9 records checked, 9 signed").count()); attempt += 1) {
    await page.getByRole("button", { name: "Verify again" }).click();
    await page.waitForTimeout(1000);
  }
  await page.getByText("9 records checked, 9 signed").waitFor();
  await page.getByText("Ed25519 signature are valid").waitFor();
  // What the service says is changed on its way: a reason, then the signed checkpoint.
  await page.route("**/v1/runs/proven/audit?**", async (route) => {
    const text = await (await route.fetch()).text();
    await route.fulfill({ contentType: "application/json", body: text.replace("trim the name", "tidy the name") }).catch(() => undefined);
  });
  await page.reload();
  await page.getByText("chain broken at record 5").waitFor();
  await page.locator(".run-page.broken").waitFor();
  await page.unroute("**/v1/runs/proven/audit?**");
  await page.route("**/audit/inclusion?**", async (route) => {
    const proof = await (await route.fetch()).json();
    const signature = proof.checkpoint.trimEnd();
    await route.fulfill({ json: { ...proof, checkpoint: `${signature.slice(0, -6)}AAAA${signature.slice(-2)}\n` } }).catch(() => undefined);
  });
  await page.reload();
  await page.getByText(/signature is not valid/).waitFor();
  await page.getByText("chain broken").waitFor();
  await close();
}

export async function hostile_names_are_shown_as_text({ base, operator, open }) {
  const markup = "<img src=x onerror=alert(1)>";
  const call = await startRun(operator, "hostile", { labels: { team: "<script>alert(2)</script>" } });
  await call("write_file", { path: `src/${markup}.js`, content: 'const a = "</script><script>alert(3)</script>";\n', reason: `<b onmouseover=alert(4)>\u202egnp.exe` });
  const { page, close } = await open("audit");
  await page.goto(`${base}/runs`);
  await page.getByText("team:<script>alert(2)</script>").waitFor();
  await page.goto(`${base}/runs/hostile/calls/2`);
  await page.locator(".diff-file", { hasText: markup }).waitFor();
  await page.locator("blockquote", { hasText: "<b onmouseover=alert(4)>\\u{202e}gnp.exe" }).waitFor();
  for (const tab of ["changes", "report", "files"]) {
    await page.goto(`${base}/runs/hostile?tab=${tab}`);
    await page.locator(".run-main").getByText(markup).first().waitFor();
  }
  assert.equal(await page.locator("main img, main script, main b").count(), 0);
  await close();
}

export async function files_are_shown_as_they_were_with_their_history({ base, operator, open }) {
  const call = await startRun(operator, "past");
  await work(call);
  const { page, close } = await open("audit");
  await page.goto(`${base}/runs/past?tab=files&path=src/main.rs`);
  await page.locator(".diff-line", { hasText: "good day" }).waitFor();
  await page.getByLabel("which call wrote each line").check();
  await page.locator(".diff-line", { hasText: "good day" }).locator(".owner", { hasText: "#5" }).waitFor();
  await page.locator(".diff-line", { hasText: "fn greet" }).locator(".owner", { hasText: "#3" }).waitFor();
  await page.goto(`${base}/runs/past?tab=files&path=src/main.rs&at=3`);
  await page.locator(".diff-line", { hasText: "hello {name}" }).waitFor();
  await page.goto(`${base}/runs/past?tab=files&at=2`);
  await page.getByText("The tree is empty.").waitFor();
  await page.goto(`${base}/runs/past/calls/6`);
  await page.getByRole("button", { name: /unchanged lines/ }).click();
  // They appear above the change, which stays in view.
  await page.locator(".diff-line.add", { hasText: "thirty-nine" }).waitFor();
  await page.locator(".diff-line.context", { hasText: "greet(\"34\")" }).waitFor();
  await page.getByRole("region", { name: "Call 6" }).evaluate((part) => part.scrollTo(0, 0));
  await page.locator(".diff-line.context", { hasText: "fn greet" }).waitFor();
  await close();
}

/** The longest task of a page's main thread, in milliseconds of its own processor time: other processes do not lengthen it. */
export function longestTask(events) {
  const threads = new Set(events.filter(({ name, args }) => name === "thread_name" && args.name === "CrRendererMain").map(({ pid, tid }) => `${pid} ${tid}`));
  const tasks = events.filter(({ name, pid, tid, tdur }) => name.endsWith("RunTask") && tdur > 0 && threads.has(`${pid} ${tid}`));
  assert.ok(tasks.length > 100, `${tasks.length} tasks were traced`);
  return tasks.reduce((longest, { tdur }) => Math.max(longest, tdur), 0) / 1000;
}

export async function a_diff_of_50000_lines_does_not_freeze_the_page({ base, operator, open }) {
  const call = await startRun(operator, "large", { policy: { budget: { maxInsertions: 100000, maxDeletions: 100000, maxBytes: 10_000_000 }, maxFileBytes: 10_000_000 } });
  const content = Array.from({ length: 50000 }, (_, line) => `let value_${line} = compute("${line}", ${line}); // ${line}\n`).join("");
  const written = await call("write_file", { path: "src/large.rs", content, reason: "generate" });
  assert.equal(written.ok, true, JSON.stringify(written));
  const { page, close } = await open("audit");
  await page.context().browser().startTracing(page, { categories: ["toplevel", "devtools.timeline"] });
  await page.goto(`${base}/runs/large/calls/2`);
  await page.locator(".diff-file button").click();
  await page.locator(".diff-line", { hasText: "value_0 " }).waitFor();
  // The diff is part of the call, which is what scrolls.
  const list = page.getByRole("region", { name: "Call 2" });
  for (const part of [0.1, 0.5, 0.9, 1]) {
    await list.evaluate((element, to) => (element.scrollTop = element.scrollHeight * to), part);
    await page.waitForTimeout(100);
  }
  await page.locator(".diff-line", { hasText: "value_49999 " }).waitFor();
  await page.getByRole("button", { name: "Side by side" }).click();
  await page.locator(".diff-pair").first().waitFor();
  assert.ok(await page.locator(".diff-window .window-row").count() < 120);
  const { traceEvents } = JSON.parse((await page.context().browser().stopTracing()).toString());
  const longest = longestTask(traceEvents);
  console.log(`   longest task ${Math.round(longest)} ms`);
  assert.ok(longest < 200, `a task took ${longest} ms`);
  await close();
}

export async function a_report_is_copied_as_the_body_of_a_pull_request({ base, operator, open }) {
  const call = await startRun(operator, "reported");
  await call("write_file", { path: "src/a.rs", content: "1\n2\n", reason: "start" });
  await operator.create("/v1/runs/reported/events", { kind: "test", summary: "cargo test: 12 passed", data: { exitCode: 0 } });
  const { page, close } = await open("approver", { permissions: ["clipboard-read", "clipboard-write"] });
  await page.goto(`${base}/runs/reported?tab=report`);
  const changes = page.getByRole("article", { name: "Report" }).locator("li", { hasText: "src/a.rs" }).first();
  await changes.getByText("+2").waitFor();
  await page.getByRole("button", { name: "Copy for a pull request" }).click();
  await page.getByRole("button", { name: "✓ Copied" }).waitFor();
  const text = await page.evaluate(() => navigator.clipboard.readText());
  assert.match(text, /^# Run `reported`/);
  assert.match(text, /  - `src\/a.rs`: \+2 −0, created/);
  assert.match(text, /cargo test: 12 passed/);
  assert.ok(text.endsWith(`[The run, with each change and its proof](${base}/runs/reported)\n`), text);
  assert.equal(await page.getByRole("region", { name: "Body of a pull request" }).textContent(), text);
  await page.getByRole("button", { name: "Hide the preview" }).click();
  await page.getByRole("region", { name: "Body of a pull request" }).waitFor({ state: "detached" });
  await close();
}

/** Going from call to call keeps the page: its stream, its proof, what was read, and where the reader was. */
export async function stepping_between_calls_reads_nothing_again({ base, operator, open }) {
  await work(await startRun(operator, "stepped"));
  const { page, close } = await open("audit");
  await page.goto(`${base}/runs/stepped`);
  await page.getByText(/9 records checked/).waitFor();
  await row(page, "trim the name").waitFor();
  const asked = [];
  page.on("request", (request) => /\/(audit|report|checkpoint|stream)/.test(request.url()) && asked.push(request.url()));
  await row(page, "trim the name").click();
  await page.getByRole("region", { name: "Call 5" }).waitFor();
  await page.keyboard.press("j");
  await page.getByRole("region", { name: "Call 6" }).waitFor();
  await page.keyboard.press("k");
  await page.getByRole("region", { name: "Call 5" }).waitFor();
  await page.keyboard.press("Escape");
  await page.getByText(/9 records checked/).waitFor();
  // Where the reader was, the next one follows.
  await page.keyboard.press("j");
  await page.keyboard.press("Enter");
  await page.getByRole("region", { name: "Call 6" }).waitFor();
  assert.deepEqual(asked, []);
  await close();
}
