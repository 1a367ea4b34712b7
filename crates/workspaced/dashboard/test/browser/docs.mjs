// The pages of the API, which need no token.

import assert from "node:assert/strict";
import { DIAGONAL, look } from "./appearance.mjs";

export async function the_api_is_found_by_search_link_and_key({ base, open }) {
  const { page, close } = await open(undefined);
  await page.goto(`${base}/docs`);
  await page.getByRole("heading", { name: "The API of workspaced" }).waitFor();
  const operations = Object.values(await (await fetch(`${base}/openapi.json`)).json().then(({ paths }) => paths)).flatMap((item) => Object.keys(item)).length;
  const links = page.getByRole("navigation", { name: "Routes" }).getByRole("listitem");
  await links.first().waitFor();
  assert.equal(await links.count(), operations);
  // A field that only the body has.
  await page.keyboard.press("/");
  await page.keyboard.type("ttlSeconds");
  await page.getByRole("status").getByText(/^\d+ of \d+ routes$/).waitFor();
  assert.ok((await links.count()) < 10);
  await page.getByRole("searchbox").fill("POST /v1/runs");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Create a run", level: 1 }).waitFor();
  assert.equal(new URL(page.url()).hash, "#createRun");
  assert.match(await page.getByRole("region", { name: "Request" }).textContent(), /"source": \{\s*"type": "empty"/);
  // What a field holds is folded, and named by the form that it has.
  await page.getByText("4 forms of source").click();
  await page.getByText("GitSource").waitFor();
  await page.getByText("A branch, a tag or a commit.").waitFor();
  const refusals = page.getByRole("row", { name: /409/ });
  assert.equal(await refusals.getByRole("link", { name: "ALREADY_EXISTS" }).first().getAttribute("href"), "/problems/ALREADY_EXISTS");
  // Links lead from a route to the one that its text names, and back.
  await page.getByRole("main").getByRole("link", { name: "GET /v1/runs/{run}" }).first().click();
  await page.getByRole("heading", { name: "Get a run", level: 1 }).waitFor();
  await page.goBack();
  await page.getByRole("heading", { name: "Create a run", level: 1 }).waitFor();
  await page.getByRole("searchbox").fill("");
  await page.locator("h1").click();
  await page.keyboard.press("k");
  await page.getByRole("heading", { name: "List runs", level: 1 }).waitFor();
  await page.goto(`${base}/docs/#tools/callEditFile`);
  await page.getByRole("heading", { name: "Call edit_file", level: 1 }).waitFor();
  await page.goto(`${base}/docs/#none`);
  await page.getByText("There is no route of the name none").waitFor();
  await close();
}

export async function the_pages_of_the_api_are_accessible({ base, open, screenshots }) {
  const problems = [];
  for (const { options, label } of DIAGONAL) {
    const { page, close } = await open(undefined, options);
    for (const [name, hash] of [["start", ""], ["route", "#createRun"], ["tool", "#callEditFile"], ["form", "#applyChangeset"]]) {
      await page.goto(`${base}/docs/${hash}`);
      await page.locator("h1").waitFor();
      await page.locator("main > article").waitFor();
      for (const part of await page.locator("main details > summary").all()) await part.click();
      problems.push(...(await look(page, `docs-${name}`, label, screenshots)));
    }
    await close();
  }
  assert.equal(problems.join("\n"), "");
}

export async function the_pages_of_the_api_say_that_the_document_is_missing({ base, open }) {
  const { page, close } = await open(undefined);
  await page.route(/openapi\.json/, (route) => route.fulfill({ status: 503, body: "" }));
  await page.goto(`${base}/docs/`);
  await page.getByText("Reading the document failed.").waitFor();
  await page.getByText("workspaced operator add").waitFor();
  await page.unrouteAll();
  await page.getByRole("button", { name: "Retry" }).click();
  await page.getByRole("navigation", { name: "Routes" }).getByText("Create a run").waitFor();
  await close();
}
