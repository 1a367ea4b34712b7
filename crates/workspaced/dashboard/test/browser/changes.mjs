// What a run has changed: the tree of files, marks of the reviewer, images, what waits, and text that is read later.

import assert from "node:assert/strict";
import { startRun } from "./agent.mjs";
import { seedRefactor } from "./seed.mjs";

const files = (page) => page.locator(".diff-file .path").allTextContents();

export async function changed_files_are_a_tree_that_is_filtered_and_marked({ base, operator, open, tokens }) {
  const call = await startRun(operator, "marked", { policy: { kinds: { TEXT_DOC: "REQUIRE_APPROVAL" } } });
  for (const path of ["src/b.rs", "src/deep/only/a.rs", "top.rs"]) await call("write_file", { path, content: "x\n", reason: `write ${path}` });
  await call("write_file", { path: "notes.md", content: "x\n", reason: "a note" });
  const { page, close } = await open("audit");
  await page.goto(`${base}/runs/marked?tab=changes`);
  await page.locator(".diff-file", { hasText: "top.rs" }).waitFor();
  assert.deepEqual(await files(page), ["src/deep/only/a.rs", "src/b.rs", "top.rs"]);
  const tree = page.getByRole("list", { name: "Changed files" });
  assert.deepEqual((await tree.getByRole("button").allTextContents()).map((text) => text.replace(/[^a-z./]/g, "")), ["src/", "deep/only/", "a.rs", "b.rs", "top.rs"]);
  await page.getByRole("region", { name: "Waiting for approval" }).getByRole("link", { name: "notes.md" }).waitFor();
  await page.getByText("0 of 3 viewed").waitFor();
  await page.locator(".diff-file", { hasText: "top.rs" }).getByLabel("viewed").check();
  await page.getByText("1 of 3 viewed").waitFor();
  assert.equal(await page.locator(".diff-file", { hasText: "top.rs" }).getByText("folded").count(), 1);
  // The mark is that of this reviewer, and ends when the file is another.
  await page.reload();
  await page.getByText("1 of 3 viewed").waitFor();
  await page.evaluate((token) => sessionStorage.setItem("workspaced.token", token), tokens.operator);
  await page.reload();
  await page.getByText("0 of 3 viewed").waitFor();
  await page.evaluate((token) => sessionStorage.setItem("workspaced.token", token), tokens.audit);
  await call("write_file", { path: "top.rs", content: "y\n", mode: "REPLACE_EXISTING", expectedSha256: "seen", reason: "another" });
  await page.reload();
  await page.getByText("0 of 3 viewed").waitFor();
  await page.getByRole("button", { name: "Collapse all" }).click();
  assert.equal(await page.locator(".diff-line").count(), 0);
  await page.getByRole("button", { name: "Expand all" }).click();
  await page.locator(".diff-line").first().waitFor();
  await page.getByLabel("Filter 3 files").fill("deep");
  await page.locator(".diff-file", { hasText: "top.rs" }).waitFor({ state: "detached" });
  assert.deepEqual(await files(page), ["src/deep/only/a.rs"]);
  await page.getByLabel("Filter 3 files").fill("");
  await tree.getByRole("button", { name: /top\.rs/ }).click();
  await page.locator(".diff-file.focused", { hasText: "top.rs" }).waitFor();
  await page.keyboard.press("v");
  await page.getByText("1 of 3 viewed").waitFor();
  await close();
}

export async function a_comment_on_a_line_reaches_the_agent({ base, operator, open }) {
  const call = await startRun(operator, "commented");
  await call("write_file", { path: "src/a.rs", content: "let a = 1;\nlet b = 2;\n", reason: "start" });
  const { page, close } = await open("approver");
  await page.goto(`${base}/runs/commented?tab=changes`);
  await page.getByRole("button", { name: "Comment on line 2" }).click();
  const dialog = page.getByRole("dialog", { name: "Comment" });
  await dialog.getByLabel("Comment").fill("Why is b here?\nNothing reads it.");
  await dialog.getByRole("button", { name: "Comment", exact: true }).click();
  await page.locator(".diff-comment", { hasText: "ada on line 2: Why is b here?" }).waitFor();
  await page.locator(".diff-comment", { hasText: "Nothing reads it." }).waitFor();
  await page.locator(".diff-file", { hasText: "1 comment" }).waitFor();
  const { notices } = await call("list_dir", {});
  assert.match(notices.join(), /Why is b here\?/);
  await page.locator(".diff-file").getByRole("button", { name: "Comment…" }).click();
  await dialog.getByLabel("Comment").fill("And a name for this file?");
  await dialog.getByRole("button", { name: "Comment", exact: true }).click();
  await page.locator(".diff-comment", { hasText: "ada: And a name for this file?" }).waitFor();
  await close();
}

export async function many_files_and_images_are_reviewed({ base, operator, open }) {
  await seedRefactor(operator, "reviewed");
  const { page, close } = await open("audit");
  await page.goto(`${base}/runs/reviewed?tab=changes`);
  await page.getByText("0 of 133 viewed").waitFor();
  await page.getByLabel("Filter 133 files").fill("docs/");
  await page.locator(".diff-file", { hasText: "logo.png" }).waitFor();
  await page.locator(".window-row", { hasText: "Binary file" }).nth(1).getByRole("button", { name: "Show the image" }).click();
  const images = page.getByRole("dialog").locator("figure");
  await images.nth(1).getByText("160 × 80").waitFor();
  const sizes = () => images.locator("img").evaluateAll((all) => all.map((one) => [one.alt, one.naturalWidth, one.naturalHeight]));
  assert.deepEqual(await sizes(), [["docs/logo.png, at the start of the run", 120, 60], ["docs/logo.png, as it is now", 160, 80]]);
  await page.getByRole("dialog").getByRole("button", { name: "Close" }).click();
  // A new one has no other beside it.
  await page.locator(".window-row", { hasText: "Binary file" }).first().getByRole("button", { name: "Show the image" }).click();
  await images.getByText("90 × 90").waitFor();
  assert.deepEqual(await sizes(), [["docs/flow.png, as it is now", 90, 90]]);
  await close();
}

export async function a_diff_that_is_cut_names_every_file_and_reads_the_rest_on_request({ base, operator, open }) {
  const call = await startRun(operator, "cut-diff", { policy: { budget: { maxInsertions: 100000, maxBytes: 10_000_000 }, maxFileBytes: 10_000_000 } });
  for (const name of ["a", "b", "c"]) await call("write_file", { path: `${name}.rs`, content: `// ${name} ${"x".repeat(80)}\n`.repeat(6000), reason: name });
  const { page, close } = await open("audit");
  await page.goto(`${base}/runs/cut-diff?tab=changes`);
  await page.getByText("0 of 3 viewed").waitFor();
  assert.deepEqual(await files(page), ["a.rs", "b.rs", "c.rs"]);
  await page.locator(".diff-file", { hasText: "c.rs" }).getByRole("button").first().click();
  await page.getByRole("button", { name: "Read it" }).click();
  await page.locator(".diff-line.add", { hasText: "// c xxx" }).first().waitFor();
  // A diff that is longer than what the service returns at once says so, and counts all of it.
  const long = await startRun(operator, "cut-file", { policy: { budget: { maxInsertions: 100000, maxBytes: 10_000_000 }, maxFileBytes: 10_000_000 } });
  await long("write_file", { path: "long.rs", content: `// ${"y".repeat(80)}\n`.repeat(20_000), reason: "long" });
  await page.goto(`${base}/runs/cut-file?tab=changes`);
  await page.locator(".diff-file", { hasText: "+20,000" }).getByRole("button").first().click();
  await page.getByText("The diff is too long to be shown whole").waitFor();
  await close();
}

/** Long lines are wrapped, each as high as its text, and `w` cuts them instead. */
export async function long_lines_are_wrapped_until_w_is_pressed({ base, operator, open }) {
  const call = await startRun(operator, "wrapped", { policy: { kinds: { TEXT_SOURCE: "REQUIRE_APPROVAL" } } });
  const long = (text) => `${text.repeat(40)}END\n`;
  const content = ["short = 1\n", long("word another_word "), long("漢字かな "), long("\t\tx"), long("\u202ex"), long("é😀"), "last = 1\n"].join("");
  const { approvalId } = await call("write_file", { path: "long.py", content, reason: "long lines" });
  await call("write_file", { path: "long.md", content, reason: "long lines" });
  for (const [width, height] of [[1440, 900], [390, 844]]) for (const address of [`/approvals?id=${approvalId}`, `/approvals?id=${approvalId}&diff=split`, "/runs/wrapped?tab=files&path=long.md"]) {
    const { page, close } = await open("operator", { viewport: { width, height } });
    await page.goto(base + address);
    await page.locator("code", { hasText: "last = 1" }).last().waitFor();
    const rows = () => page.locator(".wraps .diff-line, .wraps .diff-half").evaluateAll((all) => all.map((row) => {
      const code = row.querySelector("code");
      return code ? [row.parentElement.offsetHeight, code.scrollHeight, code.scrollWidth - code.clientWidth] : [0, 0, 0];
    }));
    const problems = (await rows()).filter(([row, code, beyond]) => code > row + 1 || beyond > 1 || (row > code + 45 && !address.includes("split")));
    assert.deepEqual(problems, [], `${width} ${address}`);
    assert.ok(Math.max(...(await rows()).map(([row]) => row)) > 44);
    await page.keyboard.press("w");
    await page.locator(".diff-window:not(.wraps)").waitFor();
    assert.ok(page.url().includes("wrap=off"));
    assert.ok(await page.locator(".diff-window").evaluate((list) => list.scrollWidth > list.clientWidth));
    await page.keyboard.press("w");
    await page.locator(".diff-window.wraps").waitFor();
    await close();
  }
  await operator.create(`/v1/approvals/${approvalId}/deny`, { note: "done", onBehalfOf: "Ada" });
}
