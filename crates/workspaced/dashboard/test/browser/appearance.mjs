// What is wrong with the look of a page: serious findings of axe, sideways scrolling, tables that are cut.

import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";

const axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

async function findings(page) {
  const result = await page.evaluate(`${axe}; axe.run(document, { resultTypes: ["violations"] })`);
  return result.violations.filter(({ impact }) => impact === "serious" || impact === "critical")
    .map(({ id, nodes }) => `${id}: ${nodes.slice(0, 3).map(({ target, failureSummary }) => `${target} ${failureSummary}`).join(" | ")}`);
}

/** Two sizes, each light and dark. */
export const LOOKS = [[1440, 900], [390, 844]].flatMap(([width, height]) => ["light", "dark"].map((colorScheme) => ({
  options: { viewport: { width, height }, colorScheme }, label: `${width}-${colorScheme}`,
})));

/** Each size and each theme once. */
export const DIAGONAL = [LOOKS[0], LOOKS[3]];

/** Takes a picture of a page, and returns what is wrong with it. */
export async function look(page, name, label, screenshots) {
  await page.screenshot({ path: `${screenshots}/${name}-${label}.png` });
  const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  const problems = (await findings(page)).map((finding) => `${name} ${label}: ${finding}`);
  const tables = await page.evaluate(() => [...document.querySelectorAll("main .scroll")].filter((part) => part.scrollWidth > part.clientWidth).map((part) => part.ariaLabel));
  for (const table of tables) problems.push(`${name} ${label}: the table "${table}" is cut`);
  return overflow > 0 ? [...problems, `${name} ${label}: scrolls sideways by ${overflow} pixels`] : problems;
}
