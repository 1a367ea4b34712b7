// Signing in at the issuer: a real provider of OpenID Connect, on loopback.

import assert from "node:assert/strict";

/** The provider's pages name fonts of another host, which are not fetched. */
const FONTS = "https://fonts.googleapis.com";

async function openAt(open, base) {
  const { issuer } = await (await fetch(`${base}/sign-in/issuer`)).json();
  const opened = await open(undefined, {}, base, [issuer, FONTS]);
  await opened.page.route(`${FONTS}/**`, (route) => route.abort());
  return { ...opened, issuer };
}

/** Fills in the pages of the provider, as a person does. */
async function signInAt(page, login) {
  await page.locator("input[name=login]").fill(login);
  await page.locator("input[name=password]").fill("any");
  await page.locator("button[type=submit]").click();
  // The provider asks whether the service may know who signs in.
  await page.getByRole("button", { name: "Continue" }).click();
}

export async function people_sign_in_at_the_issuer_and_return_to_the_page({ base, open }) {
  const { page, close, issuer } = await openAt(open, base);
  await page.goto(`${base}/runs?state=open`);
  const link = page.getByRole("link", { name: `Sign in at ${new URL(issuer).host}` });
  await link.click();
  await signInAt(page, "ada");
  await page.waitForURL(`${base}/runs?state=open`);
  await page.getByRole("heading", { name: "Runs" }).waitFor();
  await page.getByRole("banner").getByText("ada@example.org").waitFor();
  // No script reads the session.
  assert.deepEqual(await page.evaluate(() => [document.cookie, sessionStorage.length]), ["", 0]);
  await page.reload();
  await page.getByRole("heading", { name: "Runs" }).waitFor();
  await page.getByRole("button", { name: "Sign out" }).click();
  await link.waitFor();
  await page.reload();
  await link.waitFor();
  await close();
}

export async function who_has_no_scope_is_told_so({ base, open }) {
  const { page, close } = await openAt(open, base);
  await page.goto(base);
  await page.getByRole("link", { name: /^Sign in at/ }).click();
  await signInAt(page, "eve");
  await page.waitForURL(/\/sign-in\/callback/);
  await page.getByText("None of your groups may use this service.").waitFor();
  assert.equal((await page.context().cookies()).some(({ name }) => name.includes("session") && name.startsWith("__Host-workspaced")), false);
  await close();
}
