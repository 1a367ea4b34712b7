// How every page looks: at two sizes, dark and light, without a serious finding of axe, and without sideways scrolling.

import assert from "node:assert/strict";
import { startRun, work } from "./agent.mjs";
import { DIAGONAL, look, LOOKS } from "./appearance.mjs";

export async function every_page_is_accessible_at_every_size({ base, operator, open, screenshots }) {
  const call = await startRun(operator, "fix-login-42");
  const id = await work(call);
  const pages = {
    overview: "/", runs: "/runs", run: "/runs/fix-login-42", call: "/runs/fix-login-42/calls/5", split: "/runs/fix-login-42/calls/5?diff=split",
    changes: "/runs/fix-login-42?tab=changes", files: "/runs/fix-login-42?tab=files&path=src/main.rs", report: "/runs/fix-login-42?tab=report",
    approvals: "/approvals?view=all", approval: `/approvals?id=${id}`, audit: "/audit", operators: "/operators?run=fix-login-42", nodes: "/nodes", about: "/about", none: "/runs/none", empty: "/runs?label=nothing:like-this", quiet: "/audit?tool=nothing",
  };
  const problems = [];
  for (const { options, label } of LOOKS) {
    const { page, close } = await open("operator", options);
    for (const [name, address] of Object.entries(pages)) {
      await page.goto(base + address);
      await page.waitForLoadState("networkidle", { timeout: 1500 }).catch(() => undefined);
      problems.push(...(await look(page, name, label, screenshots)));
    }
    await page.goto(base);
    await page.getByRole("navigation", { name: "Pages" }).waitFor();
    await page.keyboard.press("?");
    await page.getByRole("dialog", { name: "Keyboard" }).waitFor();
    problems.push(...(await look(page, "keys", label, screenshots)));
    await close();
  }
  assert.equal(problems.join("\n"), "");
}

export async function signing_in_loading_and_failing_are_accessible_at_every_size({ base, operator, open, screenshots }) {
  const call = await startRun(operator, "slow-42");
  const id = await work(call);
  const pages = { overview: "/", runs: "/runs", run: "/runs/slow-42", call: "/runs/slow-42/calls/5", changes: "/runs/slow-42?tab=changes", files: "/runs/slow-42?tab=files", report: "/runs/slow-42?tab=report", approval: `/approvals?id=${id}`, audit: "/audit", about: "/about" };
  const problems = [];
  // The theme is that of the pages above, and so is the layout: each size and each theme once.
  for (const { options, label } of DIAGONAL) {
    const stranger = await open(undefined, options);
    await stranger.page.goto(base);
    await stranger.page.getByLabel("Operator token").waitFor();
    problems.push(...(await look(stranger.page, "sign-in", label, screenshots)));
    await stranger.page.getByLabel("Operator token").fill("wso_none");
    await stranger.page.getByRole("button", { name: "Sign in" }).click();
    await stranger.page.getByText("UNAUTHENTICATED").waitFor();
    problems.push(...(await look(stranger.page, "sign-in-refused", label, screenshots)));
    await stranger.close();
    const { page, close } = await open("operator", options);
    const states = {
      // The run itself is read, so that the parts of its page are seen waiting and failing.
      loading: () => undefined,
      failing: (route) => route.fulfill({ status: 503, contentType: "application/problem+json", headers: { "x-request-id": "01a20b9c-8124-727a-858f-e63e6800cb90" }, body: JSON.stringify({ ok: false, code: "UNAVAILABLE", status: 503, message: "the database does not answer", detail: "the database does not answer", hint: "Try again later." }) }),
    };
    for (const [state, answer] of Object.entries(states)) {
      for (const [name, address] of Object.entries(pages)) {
        await page.route(/\/v1\/(?!operators\/self|runs\/slow-42$)|\/readyz|\/openapi.json/, answer);
        await page.goto(base + address);
        await page.locator("main *").locator("visible=true").first().waitFor();
        if (state === "failing") await page.getByText("the database does not answer").locator("visible=true").first().waitFor().catch(() => problems.push(`${name} ${label} shows no failure`));
        else await page.waitForTimeout(150);
        problems.push(...(await look(page, `${name}-${state}`, label, screenshots)));
        const text = await page.locator("main").innerText();
        // A failure is not told as an empty list, nor as something that still comes.
        if (state === "failing" && /No \w+ yet|Loading|…$/m.test(text)) problems.push(`${name} ${label}: ${text}`);
        await page.unrouteAll({ behavior: "ignoreErrors" });
      }
    }
    await close();
  }
  assert.equal(problems.join("\n"), "");
}

export async function nothing_moves_while_a_page_is_read({ base, operator, open }) {
  const call = await startRun(operator, "still-42");
  const id = await work(call);
  for (const { options, label } of DIAGONAL) {
    const { page, close } = await open("operator", options);
    await page.addInitScript(() => {
      window.moved = [0];
      new PerformanceObserver((list) => list.getEntries().forEach((entry) => entry.hadRecentInput || (window.moved[0] += entry.value))).observe({ type: "layout-shift", buffered: true });
    });
    for (const address of ["/", `/approvals?id=${id}`, "/runs/still-42", "/runs/still-42/calls/5", "/audit", "/runs"]) {
      await page.goto(base + address);
      await page.waitForLoadState("networkidle", { timeout: 1500 }).catch(() => undefined);
      const [moved] = await page.evaluate(() => window.moved);
      assert.ok(moved < 0.1, `${label} ${address}: ${moved}`);
    }
    await close();
  }
}
