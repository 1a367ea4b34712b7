// How every page looks: at two sizes, dark and light, without a serious finding of axe, and without sideways scrolling.

import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { startRun, work } from "./agent.mjs";

const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

async function findings(page) {
  const result = await page.evaluate(`${axe}; axe.run(document, { resultTypes: ["violations"] })`);
  return result.violations.filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map(({ target, failureSummary }) => `${target} ${failureSummary}`).join(" | ")}`);
}

export async function every_page_is_accessible_at_every_size({ base, operator, open, screenshots }) {
  const call = await startRun(operator, "fix-login-42");
  const id = await work(call);
  const pages = {
    overview: "/", runs: "/runs", run: "/runs/fix-login-42", call: "/runs/fix-login-42/calls/5", split: "/runs/fix-login-42/calls/5?diff=split",
    changes: "/runs/fix-login-42?tab=changes", files: "/runs/fix-login-42?tab=files&path=src/main.rs", report: "/runs/fix-login-42?tab=report",
    approvals: "/approvals?state=all", approval: `/approvals?id=${id}`, audit: "/audit", about: "/about", none: "/runs/none", empty: "/runs?label=nothing:like-this", quiet: "/audit?tool=nothing",
  };
  const problems = [];
  for (const [width, height, colorScheme] of [[1440, 900, "light"], [1440, 900, "dark"], [390, 844, "light"], [390, 844, "dark"]]) {
    const { page, close } = await open("operator", { viewport: { width, height }, colorScheme });
    for (const [name, address] of Object.entries(pages)) {
      await page.goto(base + address);
      await page.waitForLoadState("networkidle", { timeout: 1500 }).catch(() => undefined);
      await page.screenshot({ path: `${screenshots}/${name}-${width}-${colorScheme}.png` });
      for (const finding of await findings(page)) problems.push(`${name} ${width} ${colorScheme}: ${finding}`);
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      if (overflow > 0) problems.push(`${name} ${width}: scrolls sideways by ${overflow} pixels`);
    }
    await close();
  }
  assert.equal(problems.join("\n"), "");
}
