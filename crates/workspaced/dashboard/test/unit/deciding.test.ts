/** What a reviewer sees first of a change, and where an edit of it begins. */

import { describe, expect, it } from "vitest";
import { buildRows, parseDiff } from "../../src/lib/diff.ts";
import { hunksOf } from "../../src/lib/edits.ts";

const file = (hunk: string) => parseDiff(`diff --git a/a.ts b/a.ts\n--- a/a.ts\n+++ b/a.ts\n${hunk}`);

describe("the field of an edit", () => {
  const selected = (hunk: string) => hunksOf(file(hunk)).map(({ text, caret: [from, to] = [0, 0] }) => [text.slice(0, from), text.slice(from, to)])[0];
  it("has what differs in the first changed line selected, to the end of what the line says", () => {
    expect(selected("@@ -1,2 +1,2 @@\n one\n-LIMIT = 8 * 60 * 60;\n+LIMIT = 30 * 60 * 60;\n")).toEqual(["one\nLIMIT = ", "30 * 60 * 60"]);
  });
  it("has the caret at the end of a line that is new, or that only ends otherwise", () => {
    expect(selected("@@ -1,1 +1,2 @@\n one\n+two;\n")).toEqual(["one\ntwo;", ""]);
    expect(selected("@@ -1,1 +1,2 @@\n-\"a\": 1\n+\"a\": 1,\n+\"b\": 2\n")).toEqual(["\"a\": 1,", ""]);
  });
  it("marks the lines that were added", () => {
    expect([...hunksOf(file("@@ -1,2 +1,3 @@\n one\n-two\n+2\n+3\n"))[0].added]).toEqual([1, 2]);
  });
});

describe("a change that does not fit a screen", () => {
  const files = file(`@@ -5,7 +5,8 @@ f\n a\n b\n c\n+X\n d\n e\n f\n g\n@@ -20,6 +21,6 @@\n x\n y\n h\n-i\n+I\n j\n k\n`);
  const shown = (context?: number, hasRest = false) => buildRows(files, { split: false, folded: new Set(), expanded: new Map(), context, hasRest }).slice(1).map((row) => (row.type === "gap" ? `${row.from}-${row.isRest ? "" : row.to}` : row.type === "line" ? (row.left ?? row.right)!.text : row.type));
  it("has one line around what changes, and the others in the gaps", () => {
    expect(shown()).toEqual(["1-4", "a", "b", "c", "X", "d", "e", "f", "g", "13-20", "x", "y", "h", "i", "I", "j", "k"]);
    expect(shown(1)).toEqual(["1-6", "c", "X", "d", "10-22", "h", "i", "I", "j", "k"]);
  });
  it("keeps what follows the last change within reach", () => {
    expect(shown(1, true)).toEqual(["1-6", "c", "X", "d", "10-22", "h", "i", "I", "j", "k"]);
    const long = file("@@ -1,3 +1,4 @@\n+X\n a\n b\n c\n");
    const gaps = (hasRest: boolean) => buildRows(long, { split: false, folded: new Set(), expanded: new Map(), context: 1, hasRest }).filter((row) => row.type === "gap").map(({ from, to, isRest }) => [from, to, isRest]);
    // More may follow than the diff has: it is read together with what was left out.
    expect(gaps(true)).toEqual([[3, 1002, true]]);
    expect(gaps(false)).toEqual([[3, 4, undefined]]);
  });
});
