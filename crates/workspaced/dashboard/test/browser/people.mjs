// Who may use the service: signing in with a token, operators with their tokens, and the tokens of a run.

import assert from "node:assert/strict";
import { Client, startRun } from "./agent.mjs";

export async function a_wrong_token_is_refused_and_the_right_one_returns_to_the_page({ base, operator, open, tokens }) {
  await startRun(operator, "returned-to");
  const { page, close } = await open();
  await page.goto(`${base}/runs/returned-to?tab=report`);
  await page.getByText("a record of what each of them reads and changes").waitFor();
  await page.getByLabel("Operator token").fill("no-such-token");
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("alert").filter({ hasText: "Signing in failed." }).waitFor();
  await page.getByText("UNAUTHENTICATED").waitFor();
  assert.equal(await page.getByRole("navigation", { name: "Pages" }).count(), 0);
  // Blanks around a token that was copied do not matter.
  await page.getByLabel("Operator token").fill(` ${tokens.audit} `);
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "returned-to" }).waitFor();
  await page.getByRole("article", { name: "Report" }).waitFor();
  // The report was verified with the key of the log, which the browser keeps.
  const shared = await page.evaluate(() => [Object.keys(localStorage).filter((key) => key !== "workspaced.checkpointKey"), document.cookie]);
  assert.deepEqual(shared, [[], ""], "the token is in the tab alone");
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Operator token").waitFor();
  assert.equal(await page.evaluate(() => sessionStorage.getItem("workspaced.token")), null);
  await close();
}

export async function a_token_that_is_revoked_signs_its_page_out({ base, operator, open }) {
  const { token } = await operator.create("/v1/operators", { name: "leaving", scopes: ["approve"] });
  const { page, close } = await open();
  await page.goto(`${base}/approvals`);
  await page.getByLabel("Operator token").fill(token);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByRole("heading", { name: "Approvals" }).waitFor();
  await operator.request("DELETE", "/v1/operators/leaving");
  await page.goto(`${base}/runs`);
  await page.getByRole("alert").filter({ hasText: "You are signed out" }).waitFor();
  await close();
}

export async function operators_are_made_rotated_and_revoked_and_a_token_is_shown_once({ base, open }) {
  const { page, close } = await open("operator", { permissions: ["clipboard-read", "clipboard-write"] });
  await page.getByRole("link", { name: "Operators" }).click();
  const form = page.getByRole("region", { name: "Add a person or service" });
  await form.getByLabel("Name").fill("Grace");
  await form.getByRole("button", { name: "Create" }).click();
  // A role must be chosen.
  assert.equal(await form.locator("input:invalid").count() > 0, true);
  await form.getByLabel(/Reviewer Decides/).check();
  await form.getByLabel("Expires").fill("2099-01-01");
  await form.getByRole("button", { name: "Create" }).click();
  const dialog = page.getByRole("dialog", { name: "Token of Grace" });
  await dialog.getByText("it won't be shown again").waitFor();
  const first = await dialog.locator("pre").textContent();
  await dialog.getByRole("button", { name: "Copy" }).click();
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), first);
  await dialog.getByRole("button", { name: "Close" }).click();
  assert.equal((await page.content()).includes(first), false);
  assert.equal(await form.getByRole("alert").count(), 0);
  const row = page.getByRole("row", { name: /^Grace/ });
  await row.getByText("Reviewer").waitFor();
  await row.getByText("never", { exact: true }).waitFor();
  const status = async (token) => (await new Client(base, token).request("GET", "/v1/operators/self")).status;
  assert.equal(await status(first), 200);

  // A change asks first, and can be left.
  await row.getByRole("button", { name: "Rotate the token of Grace" }).click();
  await row.getByText("The current token works for one more hour.").waitFor();
  await row.getByRole("button", { name: "Cancel" }).click();
  await row.getByRole("button", { name: "Rotate the token of Grace" }).click();
  await row.getByRole("button", { name: "Rotate", exact: true }).click();
  const second = await dialog.locator("pre").textContent();
  assert.notEqual(second, first);
  assert.deepEqual([await status(first), await status(second)], [200, 200]);
  await dialog.getByRole("button", { name: "Close" }).click();
  const present = page.getByRole("row", { name: /^Grace/ }).first();
  await present.getByRole("button", { name: "Revoke Grace" }).click();
  await present.getByText("Takes effect immediately.").waitFor();
  await present.getByRole("button", { name: "Revoke", exact: true }).click();
  await page.getByRole("row", { name: /^Grace/ }).first().waitFor({ state: "detached" });
  assert.deepEqual([await status(first), await status(second)], [401, 401]);
  await page.getByRole("button", { name: /that are revoked or expired/ }).click();
  await page.getByRole("row", { name: /^Grace/ }).first().getByText("ended").waitFor();
  await close();
}

export async function tokens_of_a_run_are_issued_and_revoked({ base, operator, open }) {
  const call = await startRun(operator, "with-tokens");
  await call("list_dir", {});
  const { page, close } = await open("operator");
  await page.goto(`${base}/operators?run=with-tokens`);
  const tokens = page.getByRole("region", { name: "List of tokens" });
  const rows = tokens.locator("tbody tr");
  await rows.first().waitFor();
  assert.equal(await rows.count(), 1);
  await page.getByRole("button", { name: "Issue a token" }).click();
  const dialog = page.getByRole("dialog", { name: "Token of with-tokens" });
  const agent = new Client(base, await dialog.locator("pre").textContent());
  await dialog.getByRole("button", { name: "Close" }).click();
  await rows.nth(1).waitFor();
  assert.equal((await agent.request("GET", "/v1/runs/with-tokens")).status, 200);
  await rows.nth(1).getByRole("button", { name: /^Revoke/ }).click();
  await rows.nth(1).getByText("revoked").waitFor();
  assert.equal((await agent.request("GET", "/v1/runs/with-tokens")).status, 401);
  await page.getByLabel("Run", { exact: true }).fill("no-such-run");
  await page.getByRole("alert").filter({ hasText: "Reading the tokens failed." }).waitFor();
  await close();
  // Who may not change operators is not led here.
  const auditor = await open("audit");
  assert.equal(await auditor.page.getByRole("link", { name: "Operators" }).count(), 0);
  await auditor.page.goto(`${base}/operators`);
  await auditor.page.getByText("No such page, or your scopes do not include it.").waitFor();
  await auditor.close();
}
