// Every page with what a team of agents leaves behind, at four sizes, dark or light: the pictures are to be looked at. That the
// colours of both themes can be read is tested by itself.

import assert from "node:assert/strict";
import { look } from "./appearance.mjs";
import { seed } from "./seed.mjs";

const LOOKS = [[390, 844, "dark"], [768, 1024, "light"], [1440, 900, "dark"], [1920, 1080, "light"]];

export async function realistic_runs_are_shown_at_every_size({ base, operator, open, screenshots }) {
  const first = await seed(operator);
  const pages = {
    overview: "/", runs: "/runs", queue: "/approvals", approval: `/approvals?id=${first}`, failed: "/approvals?state=failed", denied: "/approvals?state=denied", expired: "/approvals?state=expired", states: "/approvals?view=all", run: "/runs/fix-login-redirect",
    steps: "/runs/fix-typos", call: "/runs/fix-login-redirect/calls/20", changes: "/runs/replace-http-client?tab=changes", split: "/runs/replace-http-client?tab=changes&diff=split",
    large: "/runs/generate-fixtures?tab=changes", hostile: "/runs/hostile-names", "hostile-changes": "/runs/hostile-names?tab=changes", files: "/runs/fix-login-redirect?tab=files&path=src/auth/session.rs",
    report: "/runs/fix-login-redirect?tab=report", audit: "/audit",
  };
  const problems = [];
  for (const [width, height, colorScheme] of LOOKS) {
    const { page, close } = await open("operator", { viewport: { width, height }, colorScheme });
    for (const [name, address] of Object.entries(pages)) {
      await page.goto(base + address);
      await page.waitForLoadState("networkidle", { timeout: 1500 }).catch(() => undefined);
      problems.push(...(await look(page, `realistic-${name}`, `${width}-${colorScheme}`, screenshots)));
    }
    await close();
  }
  assert.equal(problems.join("\n"), "");
}
