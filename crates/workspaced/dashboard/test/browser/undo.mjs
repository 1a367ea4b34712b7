// One press decides one change, which can be undone for a while.

import assert from "node:assert/strict";
import { armed, startRun } from "./agent.mjs";

const SOURCE = { policy: { kinds: { TEXT_SOURCE: "REQUIRE_APPROVAL" } } };

/** Starts a run that asks for as many changes. Returns their approvals, and what their states are. */
async function asked(operator, run, number) {
  const call = await startRun(operator, run, SOURCE);
  const ids = [];
  for (let index = 0; index < number; index += 1) ids.push((await call("write_file", { path: `${run}-${index}.py`, content: `a = ${index}\n`, reason: `number ${index}` })).approvalId);
  const states = () => Promise.all(ids.map(async (id) => (await operator.request("GET", `/v1/approvals/${id}`)).body.state));
  const done = async () => {
    for (const [index, state] of (await states()).entries()) if (state === "pending") await operator.create(`/v1/approvals/${ids[index]}/deny`, { note: "done", onBehalfOf: "Ada" });
  };
  return { ids, states, done };
}

/** Waits until the states are these. */
async function become(states, wanted) {
  for (let attempt = 0; attempt < 100 && `${await states()}` !== `${wanted}`; attempt += 1) await new Promise((done) => setTimeout(done, 100));
  assert.deepEqual(await states(), wanted);
}

export async function a_held_key_decides_one_change({ base, operator, open }) {
  const { ids, states, done } = await asked(operator, "held", 4);
  const { page, close } = await open("approver");
  for (const [key, becomes] of [["a", ["approved", "pending", "pending", "pending"]], ["Enter", ["approved", "denied", "pending", "pending"]]]) {
    const index = becomes.indexOf("pending") - 1;
    await page.goto(`${base}/approvals?id=${ids[index]}`);
    await armed(page);
    if (key === "Enter") {
      await page.keyboard.press("d");
      await page.getByLabel(/^Reason/).fill("not this one");
    }
    for (let pressed = 0; pressed < 40; pressed += 1) {
      await page.keyboard.down(key);
      await page.waitForTimeout(33);
    }
    // The next change is displayed, and is not decided as long as the key is down.
    await page.getByRole("region", { name: "Approval" }).getByText(`number ${index + 1}`).first().waitFor();
    assert.equal(await page.locator(".decide.armed").count(), 0);
    await page.keyboard.up(key);
    await armed(page);
    await become(states, becomes);
  }
  await done();
  await close();
}

export async function clicks_at_one_place_decide_one_change({ base, operator, open }) {
  for (const [width, height] of [[1440, 900], [390, 844]]) {
    const { ids, states, done } = await asked(operator, `clicked-${width}`, 3);
    const { page, close } = await open("approver", { viewport: { width, height } });
    await page.goto(`${base}/approvals?id=${ids[0]}`);
    await armed(page);
    const { x, y, width: wide, height: high } = await page.getByRole("button", { name: "Approve", exact: true }).boundingBox();
    const [left, top] = [x + wide / 2, y + high / 2];
    await page.mouse.click(left, top);
    await page.waitForTimeout(250);
    await page.mouse.click(left, top);
    await armed(page);
    // Not even once the buttons work: none of them is where the last one was.
    await page.mouse.click(left, top);
    assert.equal(await page.evaluate(([atX, atY]) => document.elementFromPoint(atX, atY).closest("button") === null, [left, top]), true);
    await become(states, ["approved", "pending", "pending"]);
    await done();
    await close();
  }
}

export async function a_decision_is_undone_before_it_is_sent({ base, operator, open }) {
  const { ids, states, done } = await asked(operator, "undone", 3);
  const { page, close } = await open("approver");
  const sent = [];
  page.on("request", (request) => /\/(approve|deny)$/.test(request.url()) && sent.push(request.url()));
  const region = page.getByRole("region", { name: "Approval" });
  const told = page.locator(".last-decision");
  await page.goto(`${base}/approvals?id=${ids[0]}`);
  await armed(page);
  await page.keyboard.press("a");
  await told.getByText("Approved").waitFor();
  await told.getByRole("button", { name: "Undo (z)" }).waitFor();
  await region.getByText("number 1").first().waitFor();
  assert.equal(await page.locator(".queue li", { hasText: "undone-0.py" }).count(), 0);
  await page.keyboard.press("z");
  await region.getByText("number 0").first().waitFor();
  await page.locator(".queue li", { hasText: "undone-0.py" }).waitFor();
  // A denial too, with its note, and from another page.
  await armed(page);
  await page.keyboard.press("d");
  await page.getByLabel(/^Reason/).fill("think again");
  await page.keyboard.press("Enter");
  await told.getByText("Denied").waitFor();
  await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Runs" }).click();
  await page.locator(".toast").getByRole("button", { name: "Undo (z)" }).click();
  assert.equal(await page.getByLabel(/^Reason/).inputValue(), "think again");
  await page.waitForTimeout(5500);
  assert.deepEqual([sent, await states()], [[], ["pending", "pending", "pending"]]);
  // Whoever closes the page has decided: it is sent at once.
  await page.getByRole("button", { name: "Back" }).click();
  await armed(page);
  await page.keyboard.press("a");
  await told.getByText("Approved").waitFor();
  await page.goto(`${base}/docs/`);
  await become(states, ["approved", "pending", "pending"]);
  await done();
  await close();
}

/** Decides about a change with one key, of which the answer is lost. */
export async function a_lost_answer_is_looked_up({ base, operator, open }) {
  const call = await startRun(operator, "lost", SOURCE);
  const patch = ["one", "two", "three"].map((name) => `--- /dev/null\n+++ b/${name}.py\n@@ -0,0 +1 @@\n+a = 1\n`).join("");
  const several = (await call("apply_patch", { patch, reason: "three of them" })).approvalId;
  const last = (await call("write_file", { path: "last.py", content: "a = 1\n", reason: "the last" })).approvalId;
  const stateOf = async (id) => (await operator.request("GET", `/v1/approvals/${id}`)).body.state;
  const { page, close } = await open("approver");
  const told = page.locator(".last-decision");
  await page.route("**/approve", async (route) => {
    await route.fetch();
    await route.abort();
  });
  await page.goto(`${base}/approvals?id=${several}`);
  await armed(page);
  await page.keyboard.press("a");
  // A change of several files says how many they are.
  await told.getByText("and 2 more").waitFor();
  await page.locator(".last-decision.sent", { hasText: /✓ approved \(record \d+\).*one\.py.*and 2 more/ }).waitFor();
  assert.equal(await stateOf(several), "approved");
  // Nothing is claimed where nothing can be read.
  await page.goto(`${base}/approvals?id=${last}`);
  await armed(page);
  await page.keyboard.press("a");
  await told.getByText("Approved").waitFor();
  await page.route(`**/v1/approvals/${last}`, (route) => route.abort());
  await told.getByText("✕ No answer: it may have been approved.").waitFor();
  assert.equal(await stateOf(last), "approved");
  await close();
}

export async function a_decision_after_the_run_has_ended_says_so({ base, operator, open }) {
  const { ids } = await asked(operator, "too-late", 1);
  const { page, close } = await open("approver");
  const region = page.getByRole("region", { name: "Approval" });
  await page.goto(`${base}/approvals?id=${ids[0]}`);
  await armed(page);
  await page.keyboard.press("a");
  await operator.create("/v1/runs/too-late/close");
  await page.locator(".last-decision").getByText("✕ Not approved: The run ended before anybody decided.").waitFor();
  await page.goto(`${base}/approvals?id=${ids[0]}&view=all`);
  await region.getByText("The run ended before anybody decided. Nothing was changed.").waitFor();
  await region.locator(".approval-head").getByText("not decided: the run ended").waitFor();
  assert.equal(await region.getByText("It was approved").count(), 0);
  await close();
}
