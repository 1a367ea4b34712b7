/** The order, the tree, the marks and the comments of changed files, and what a reviewer edits of a proposal. */

import { describe, expect, it } from "vitest";
import { buildRows, type Comment, digest, inReadingOrder, parseDiff } from "../../src/lib/diff.ts";
import { diffOfDrafts, editedHunks, hunksOf } from "../../src/lib/edits.ts";
import { visiblePath } from "../../src/lib/format.ts";
import { treeRows } from "../../src/lib/tree.ts";

const of = (path: string, body = "@@ -1,2 +1,3 @@\n one\n-two\n+2\n+3\n") => `diff --git a/${path} b/${path}\n--- a/${path}\n+++ b/${path}\n${body}`;
const files = (...paths: string[]) => parseDiff(paths.map((path) => of(path)).join(""));

describe("the files of a diff", () => {
  it("are read as a tree lists them, source first and binary files last", () => {
    const binary = "diff --git a/a.png b/a.png\nBinary files a/a.png and b/a.png differ\n";
    const all = parseDiff(binary + ["Cargo.lock", "b.rs", "a/z.rs", "a/b/c.rs"].map((path) => of(path)).join(""));
    expect(inReadingOrder(all).map(({ path }) => path)).toEqual(["a/b/c.rs", "a/z.rs", "b.rs", "Cargo.lock", "a.png"]);
  });
  it("have another digest when their changes are others, and the same at another place", () => {
    const [one, moved, other] = [of("a"), of("a", "@@ -7,2 +8,3 @@\n one\n-two\n+2\n+3\n"), of("a", "@@ -1,2 +1,3 @@\n one\n-two\n+2\n+4\n")].map((text) => digest(parseDiff(text)[0]));
    expect([moved === one, other === one]).toEqual([true, false]);
  });
});

describe("a tree of paths", () => {
  const paths: [string, number][] = [["services/api/src/a.rs", 0], ["services/api/src/b.rs", 1], ["README.md", 2], ["__proto__/constructor", 3]];
  it("joins folders that hold one folder alone", () => {
    expect(treeRows(paths, new Set()).map(({ depth, name, file }) => [depth, name, file])).toEqual([
      [0, "services/api/src/", undefined], [1, "a.rs", 0], [1, "b.rs", 1], [0, "__proto__/", undefined], [1, "constructor", 3], [0, "README.md", 2],
    ]);
  });
  it("leaves out what is in a closed folder", () => {
    expect(treeRows(paths, new Set(["services/api/src/"])).map(({ path }) => path)).toEqual(["services/api/src/", "__proto__/", "__proto__/constructor", "README.md"]);
  });
});

describe("comments", () => {
  const comment = (text: string, line?: number): Comment => ({ seq: 1, author: "ada", timestamp: "", path: "a", line, text });
  const shown = (comments: Comment[]) => buildRows(files("a"), { split: false, folded: new Set(), expanded: new Map(), comments }).map((row) => (row.type === "comment" ? row.text : row.type === "line" ? (row.right?.new ?? "-") : row.type));
  it("stand under their line, and above the lines if that is not shown", () => {
    expect(shown([comment("about three", 3), comment("about the file"), comment("far away", 90)])).toEqual(["file", "about the file", "far away", 1, "-", 2, 3, "about three"]);
  });
  it("are broken into rows and lose nothing", () => {
    const text = `${"word ".repeat(60)}\n${"x".repeat(300)}`;
    const rows = shown([comment(text, 1)]).filter((row): row is string => typeof row === "string" && /word|x/.test(row));
    expect(rows.length).toBeGreaterThan(4);
    expect(rows.join("")).toBe(text.replace("\n", ""));
  });
});

describe("what a diff leaves out", () => {
  const rows = (body: string, options: { hasRest?: boolean; expanded?: Map<string, string[]> } = {}) =>
    buildRows(parseDiff(of("a", body)), { split: false, folded: new Set(), expanded: new Map(), ...options });
  const after = (text: string) => rows(text, { hasRest: true }).filter((row) => row.type === "gap" && row.isRest);
  it("is what follows the last change too, where the reader may read it", () => {
    const body = "@@ -3,2 +3,3 @@\n one\n-two\n+2\n+3\n";
    expect(rows(body).map((row) => row.type)).toEqual(["file", "gap", "line", "line", "line", "line"]);
    const [rest] = after(body);
    expect(rest).toMatchObject({ from: 6, to: 1005, shift: -1 });
    const read = rows(body, { hasRest: true, expanded: new Map([[(rest as { key: string }).key, ["four", "five"]]]) });
    expect(read.slice(-2)).toMatchObject([{ left: { text: "four", old: 5, new: 6 } }, { right: { text: "five", old: 6, new: 7 } }]);
    // With less below the last change than a diff has, the file ends.
    const last = (below: string) => after(`@@ -3,${4 + below.length / 4} +3,${4 + below.length / 4} @@\n a1\n a2\n a3\n-two\n+2\n${below}`);
    expect([last(" b1\n b2\n"), last("")]).toEqual([[], []]);
    expect(last(" b1\n b2\n b3\n")).toHaveLength(1);
    expect(last(" b1\n b2\n b3\n\\ No newline at end of file\n")).toEqual([]);
    // A new or deleted file is all there.
    expect(after("@@ -0,0 +1,2 @@\n+one\n+two\n")).toEqual([]);
    expect(after("@@ -1,2 +0,0 @@\n-one\n-two\n")).toEqual([]);
  });
});

describe("the edits of a reviewer", () => {
  it("replace the proposed side of a hunk, and only what was changed", () => {
    const hunks = hunksOf(files("a", "b"));
    expect(hunks.map(({ path, text, from, to }) => [path, text, from, to])).toEqual([["a", "one\n2\n3", 1, 3], ["b", "one\n2\n3", 1, 3]]);
    expect(editedHunks(hunks, new Map([[hunks[0].key, "one\n2\n4"], [hunks[1].key, "one\n2\n3"]]))).toEqual([{ path: "a", oldString: "one\n2\n3", newString: "one\n2\n4" }]);
  });
  it("are not offered for deleted files and for more than a person edits", () => {
    const deleted = "diff --git a/a b/a\ndeleted file mode 100644\n--- a/a\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n";
    const large = of("b", `@@ -0,0 +1,3000 @@\n${"+x\n".repeat(3000)}`);
    expect([hunksOf(parseDiff(deleted)), hunksOf(parseDiff(large))]).toEqual([[], []]);
  });
});

it("shows line breaks, tabs and blanks at the ends of names", () => {
  expect(visiblePath("a\nb/\tc/ d .rs/e ")).toBe("a\\nb/\\tc/\\u{20}d .rs/e\\u{20}");
});

describe("the changes of a reviewer", () => {
  const old = ["a", "b", "c", "d", "limit = 8 * 60 * 60", "e"];
  const proposed = old.with(4, "limit = 30 * 60 * 60");
  const name = "src/é \"x\".py";
  const hunks = hunksOf(parseDiff(`diff --git "a/${JSON.stringify(name).slice(1, -1)}" "b/${JSON.stringify(name).slice(1, -1)}"\n--- "a/${JSON.stringify(name).slice(1, -1)}"\n+++ "b/${JSON.stringify(name).slice(1, -1)}"\n@@ -41,6 +41,6 @@\n${old.slice(0, 4).map((line) => ` ${line}`).join("\n")}\n-${old[4]}\n+${proposed[4]}\n e\n`));
  const mine = new Map([[hunks[0].key, proposed.with(4, "limit = 30 * 60").join("\n")]]);
  const shown = (from: "proposal" | "present", drafts = mine) => diffOfDrafts(hunks, drafts, from);
  it("are a diff that shows what they replace", () => {
    const [file] = shown("proposal");
    expect([file.path, file.insertions, file.deletions]).toEqual(["src/é \"x\".py", 1, 1]);
    expect(file.hunks[0].lines.map(({ type, text }) => `${type[0]} ${text}`)).toEqual(["c b", "c c", "c d", "d limit = 30 * 60 * 60", "a limit = 30 * 60", "c e"]);
    expect(file.hunks[0].lines.at(-1)).toMatchObject({ old: 46, new: 46 });
  });
  it("are shown from the file as it is too, with what the proposal leaves", () => {
    const lines = (drafts: typeof mine) => shown("present", drafts)[0].hunks[0].lines.filter(({ type }) => type !== "context").map(({ type, text }) => `${type[0]} ${text}`);
    expect(lines(mine)).toEqual(["d limit = 8 * 60 * 60", "a limit = 30 * 60"]);
    expect(lines(new Map())).toEqual(["d limit = 8 * 60 * 60", "a limit = 30 * 60 * 60"]);
    expect([shown("proposal", new Map()), shown("present", new Map([[hunks[0].key, old.join("\n")]]))]).toEqual([[], []]);
  });
  it("number the lines after one that grows", () => {
    const two = hunksOf(parseDiff("diff --git a/a b/a\n--- a/a\n+++ b/a\n@@ -1 +1 @@\n-1\n+one\n@@ -11 +11 @@\n-11\n+eleven\n"));
    const [file] = diffOfDrafts(two, new Map([[two[0].key, "one\nmore"], [two[1].key, "eleven!"]]), "proposal");
    expect(file.hunks.map(({ oldStart, newStart }) => [oldStart, newStart])).toEqual([[1, 1], [11, 12]]);
    expect(file.hunks[0].lines.map(({ type, text }) => `${type[0]} ${text}`)).toEqual(["c one", "a more"]);
  });
});
