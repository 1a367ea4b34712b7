import { expect, test } from "vitest";
import { blame } from "../../src/lib/blame.ts";
import { buildRows, pairs, parseDiff, unquote, wordMarks } from "../../src/lib/diff.ts";
import { bytes, duration, span, visible } from "../../src/lib/format.ts";
import { languageOf, mark, tokens } from "../../src/lib/highlight.ts";
import { parse } from "../../src/lib/route.ts";
import { roundUp } from "../../src/ui/chart.tsx";

const DIFF = `diff --git a/src/a.rs b/src/a.rs
--- a/src/a.rs
+++ b/src/a.rs
@@ -1,3 +1,4 @@ fn a
 one
-two
+2
+-- 2
 three
@@ -10 +11 @@
-ten
\\ No newline at end of file
+TEN
diff --git a/old.txt b/new.txt
rename from old.txt
rename to new.txt
diff --git "a/\\303\\274 b\\t.txt" "b/\\303\\274 b\\t.txt"
new file mode 100644
--- /dev/null
+++ "b/\\303\\274 b\\t.txt"
@@ -0,0 +1 @@
+x
diff --git a/gone b/gone
deleted file mode 100644
Binary files a/gone and /dev/null differ
`;

test("a diff is parsed into files, hunks and numbered lines", () => {
  const files = parseDiff(DIFF);
  expect(files.map(({ path, status, insertions, deletions, binary }) => [path, status, insertions, deletions, binary])).toEqual([
    ["src/a.rs", "modified", 3, 2, false], ["new.txt", "renamed", 0, 0, false], ["ü b\t.txt", "added", 1, 0, false], ["gone", "deleted", 0, 0, true],
  ]);
  expect(files[0].hunks[0].lines[3]).toEqual({ type: "add", text: "-- 2", new: 3 });
  expect(files[0].hunks[1].lines[0].noNewline).toBe(true);
  expect(files[1].oldPath).toBe("old.txt");
});

test("text that looks like a header inside a hunk is content", () => {
  const [file, ...others] = parseDiff("diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n--- a/y\n+++ b/y\n diff --git a/z b/z\n");
  expect(others).toEqual([]);
  expect(file.hunks[0].lines.map(({ text }) => text)).toEqual(["-- a/y", "++ b/y", "diff --git a/z b/z"]);
});

test("rows fold files, name gaps, and take lines that were read for them", () => {
  const files = parseDiff(DIFF);
  const options = { split: false, folded: new Set([2, 3]), expanded: new Map<string, string[]>() };
  const rows = buildRows(files, options);
  expect(rows.filter(({ type }) => type === "file")).toHaveLength(4);
  const gaps = rows.filter((row) => row.type === "gap");
  expect(gaps.map(({ from, to }) => [from, to])).toEqual([[1, 0], [5, 10]]);
  options.expanded.set(gaps[1].key, ["a", "b"]);
  const line = buildRows(files, options).find((row) => row.type === "line" && row.left?.text === "a");
  expect(line).toMatchObject({ left: { new: 5, old: 4 } });
  expect(pairs(files[0].hunks[0].lines)).toHaveLength(4);
});

test("words that differ are marked, and lines with little in common are not", () => {
  expect(wordMarks("let name = x;", "let user = x;")).toEqual({ left: [[4, 8]], right: [[4, 8]] });
  expect(wordMarks("alpha beta gamma delta", "1 + 2 + 3 + 4 + 5 + 6")).toEqual({ left: [], right: [] });
  const long = Array.from({ length: 2000 }, (_, word) => `w${word}`).join(" ");
  expect(wordMarks(`a ${long}`, `b ${long.toUpperCase()}`).left).toHaveLength(1);
});

test("coloured and marked parts together are the line", () => {
  for (const [path, line] of [["a.rs", `let a: &'static str = "x // y"; // z`], ["b.py", "def f(x): # y"], ["c.none", "a b"], ["d.ts", "const a = `x"]]) {
    const parts = mark(tokens(line, languageOf(path)), [[2, 7], [9, 10]]);
    expect(parts.map(({ text }) => text).join("")).toBe(line);
  }
  expect(tokens('let a = "// no";', languageOf("a.rs")).map(({ kind }) => kind)).toEqual(["keyword", "", "string", ""]);
});

test("names of an object's own members are no languages and no escapes", () => {
  for (const name of ["constructor", "__proto__", "toString", "hasOwnProperty", "valueOf"])
    for (const path of [`src/x.${name}`, name, `${name}/${name}`]) {
      expect(languageOf(path)).toBeUndefined();
      expect(tokens("let a = 1;", languageOf(path))).toEqual([{ kind: "", text: "let a = 1;" }]);
      expect(parseDiff(`diff --git a/${path} b/${path}\n--- a/${path}\n+++ b/${path}\n@@ -1 +1 @@\n-a\n+b\n`)[0].path).toBe(path);
    }
});

test("blame follows lines back through the changes", () => {
  const change = (seq: number, text: string) => ({ seq, diff: parseDiff(`diff --git a/f b/f\n${text}`)[0] });
  const first = change(1, "new file mode 100644\n@@ -0,0 +1,3 @@\n+a\n+b\n+c\n");
  const second = change(2, "@@ -1,0 +2,2 @@\n+x\n+y\n");
  const third = change(3, "@@ -4 +4 @@\n-b\n+B\n");
  expect(blame(5, [first, second, third])).toEqual([1, 2, 2, 3, 1]);
  expect(blame(1, [first, change(4, "@@ -1,2 +0,0 @@\n-a\n-b\n")])).toEqual([1]);
  expect(blame(2, [change(4, "@@ -2,2 +1,0 @@\n-a\n-b\n"), change(5, "@@ -3 +2 @@\n-x\n+y\n")])).toEqual([0, 5]);
  expect(blame(5, [second, third])).toEqual([0, 2, 2, 3, 0]);
});

test("characters that change how text looks are made visible", () => {
  expect(visible("a\u202eb\u0007\u200b\nc")).toBe("a\\u{202e}b\\u{7}\\u{200b}\nc");
  expect(visible("a\u3164b\u2028\u{e0061}")).toBe("a\\u{3164}b\\u{2028}\\u{e0061}");
  expect(unquote('"a\\"b\\\\"')).toBe('a"b\\');
});

test("amounts have units", () => {
  expect([bytes(999), bytes(1500), bytes(4294967296)]).toEqual(["999 B", "1.5 kB", "4.3 GB"]);
  expect([duration(800), duration(2500), duration(4_200_000)]).toEqual(["800 µs", "2.5 ms", "4.2 s"]);
  expect([span(59), span(3700), span(90000)]).toEqual(["59 s", "1 h 1 min", "1 d 1 h"]);
});

test("an address is parsed, also one that is malformed", () => {
  expect(parse("/runs/a%2Fb/calls/3", "?q=x").path).toEqual(["runs", "a/b", "calls", "3"]);
  expect(parse("/runs/%E0%A4%A", "").path).toEqual(["runs", "%E0%A4%A"]);
});

test("the axis of a chart ends at a number that is read at a glance", () => {
  expect([0, 1, 3, 7, 11, 314, 22_600].map(roundUp)).toEqual([1, 1, 5, 10, 20, 500, 50_000]);
});
