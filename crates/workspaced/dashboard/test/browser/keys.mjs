// What a person reads of a log whose key was replaced twice, in the run `rotated`.

import assert from "node:assert/strict";

const KNOWN = "workspaced.checkpointKey";
const known = (page) => page.evaluate((name) => localStorage.getItem(name), KNOWN);
const trust = (page, key) => page.evaluate(([name, value]) => localStorage.setItem(name, value), [KNOWN, key]);
const signed = (page) => page.getByText(/✓ \d+ records checked, [1-9]\d* signed/);

export async function statements_lead_from_each_key_to_the_newest({ base, open, keys, screenshots }) {
  const newest = keys[keys.length - 1];
  for (const key of keys.slice(0, -1)) {
    const { page, close } = await open("audit");
    await trust(page, key);
    await page.goto(`${base}/runs/rotated`);
    await signed(page).waitFor();
    await page.getByText("to which signed statements lead from the one that this browser trusted").waitFor();
    await page.getByText("The key was replaced 2 times").waitFor();
    await page.screenshot({ path: `${screenshots}/rotated.png` });
    assert.equal(await known(page), newest);
    await page.getByRole("button", { name: "Verify again" }).click();
    await page.getByText("the one that this browser trusts.").waitFor();
    await page.goto(`${base}/about`);
    await page.getByText("2, with a signed statement about each").waitFor();
    await close();
  }
}

export async function a_browser_that_knows_no_key_trusts_the_present_one({ base, open, keys }) {
  const { page, close } = await open("audit");
  await page.goto(`${base}/runs/rotated`);
  await signed(page).waitFor();
  assert.equal(await known(page), keys[keys.length - 1]);
  await close();
}

/** Returns what the page says when the service answers a path with another text, to a browser that trusts the first key. */
async function altered({ base, open, keys, screenshots }, path, change, name) {
  const { page, close } = await open("audit");
  await trust(page, keys[0]);
  await page.route(`**${path}`, async (route) => {
    const text = await (await route.fetch()).text();
    const body = change(text);
    assert.notEqual(body, text);
    await route.fulfill({ contentType: "text/plain", body }).catch(() => undefined);
  });
  await page.goto(`${base}/runs/rotated`);
  await page.locator(".proof.tone-bad, .proof.tone-wait").waitFor();
  await page.screenshot({ path: `${screenshots}/rotated-${name}.png` });
  const said = { header: await page.locator(".proof").textContent(), side: await page.getByRole("complementary").textContent() };
  // Nothing else is trusted than before.
  assert.equal(await known(page), keys[0], name);
  assert.equal(await signed(page).count(), 0, name);
  await close();
  return said;
}

const CHANGES = "/v1/checkpoint/key/changes";
const notes = (text) => text.split(/(?<=^\u2014 .*\n)\n/m);
/** A key of this log whose ID is not that of its bytes. */
const malformedKey = (key) => `${key.split("+")[0]}+00000000+${"A".repeat(44)}`;

export async function a_history_that_is_forged_or_has_a_gap_is_refused(test) {
  const { keys } = test;
  const cases = [
    ["without-the-last", CHANGES, (text) => `${notes(text)[0]}\n`, "one is missing"],
    ["in-another-order", CHANGES, (text) => notes(text).reverse().filter(Boolean).map((note) => `${note}\n`).join(""), "names a key that was replaced before"],
    ["another-new-key", CHANGES, (text) => text.replace(keys[1], keys[2]), "it is forged"],
    ["another-size", CHANGES, (text) => text.replace("\n2\n", "\n1\n"), "it is forged"],
    ["a-malformed-key", CHANGES, (text) => text.replace(keys[1], malformedKey(keys[1])), "a key that cannot be used"],
    ["cut", CHANGES, (text) => text.slice(0, -40), "malformed"],
    ["an-old-key", "/v1/checkpoint/key", (text) => text.replace(keys[2], keys[0]), "lead to another key than the one that the service names"],
  ];
  for (const [name, path, change, says] of cases) {
    const { header, side } = await altered(test, path, change, name);
    assert.match(header, /✕ key history refused/, name);
    assert.ok(side.includes(says), `${name}: ${side}`);
    assert.ok(!side.includes("Trust the new key"), name);
  }
}

export async function a_key_to_which_no_statement_leads_is_reported(test) {
  const cases = [
    ["without-the-first", (text) => `${notes(text)[1]}\n`],
    ["without-statements", () => ""],
  ];
  for (const [name, change] of cases) {
    const { header, side } = await altered(test, CHANGES, change, name);
    // Without any statement, a checkpoint that an earlier key has signed is not one of the present key.
    assert.match(header, /◐ \d+ records checked, not signed|✕/, name);
    assert.match(side, /no statement leads from that one to it|not signed by the known key/, name);
  }
}
