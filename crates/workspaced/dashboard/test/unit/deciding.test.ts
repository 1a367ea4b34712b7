/** What a reviewer sees first of a change: how long a time is that it computes, where it differs, and what stops several at once. */

import { describe, expect, it } from "vitest";
import { buildRows, parseDiff } from "../../src/lib/diff.ts";
import { hunksOf } from "../../src/lib/edits.ts";
import { guardOf } from "../../src/lib/reasons.ts";
import { computedIn, doubtInWords, doubtsOf, spanOf } from "../../src/lib/span_hint.ts";

describe("the time that a line computes", () => {
  it.each([
    ["export const IDLE_LIMIT_SECONDS = 30 * 60 * 60;", "30 h"], ["export const IDLE_LIMIT_SECONDS = 8 * 60 * 60;", "8 h"], ["const ABSOLUTE_LIMIT_SECONDS = 7 * 24 * 60 * 60;", "7 d"],
    ["IDLE_SECONDS = 30 * 60", "30 min"], ["    timeout_secs: 90 * 60,", "90 min"], ["pub const LEASE_MILLIS: u64 = 5 * 60 * 1_000; // a lease", "5 min"], ["DAY_MINUTES = 24 * 60", "24 h"], ["retryMs = 2 * 1500", "3 s"],
    ["MAX_BYTES = 10 * 1024 * 1024", "10 MiB"], ["maxBytes: 64 * 1_000_000,", "64 MB"], ["const LIMIT_BYTES = 2 * 1024 * 1024 * 1024;", "2 GiB"],
  ])("is said in the largest unit that is exact: %s", (line, text) => expect(spanOf(line)).toBe(text));
  it.each([
    "LIMIT = 30 * 60", "IDLE_SECONDS = 1800", "IDLE_SECONDS = n * 30 * 60", "IDLE_SECONDS = 30 * 60 + 5", "IDLE_SECONDS = (30 * 60) / 2", "IDLE_SECONDS = 0.5 * 60", "IDLE_SECONDS = 0 * 60", "SHORT_MILLIS = 3 * 5", "seconds + 30 * 60", `X_SECONDS = ${"9 * ".repeat(100)}9`,
  ])("is not said where it is not known, or nothing is computed: %s", (line) => expect(spanOf(line)).toBeUndefined());
});

describe("a time or a size", () => {
  const doubts = (line: string, task?: string, reason?: string) => doubtsOf(computedIn(parseDiff(`diff --git a/a.ts b/a.ts\n--- a/a.ts\n+++ b/a.ts\n@@ -1,1 +1,2 @@\n-X_SECONDS = 30 * 60 * 60\n+${line}\n+Y = 1\n`)), task, reason).map(doubtInWords);
  it.each([
    ["IDLE_SECONDS = 30 * 60 * 60", "Sessions end after 30 minutes.", undefined, "30 h, not 30 minutes as the task says"],
    ["IDLE_SECONDS = 30 * 60 * 60", undefined, "a 30-minute limit", "30 h, not 30-minute as the agent says"],
    ["IDLE_SECONDS = 30 * 60 * 60", "It ends after 30 min.", "after 30 minutes", "30 h, not 30 min as the task says"],
    ["MAX_BYTES = 10 * 1024 * 1024 * 1024", "Take up to 10 MB.", undefined, "10 GiB, not 10 MB as the task says"],
  ])("contradicts what says the same number of another unit: %s", (line, task, reason, text) => expect(doubts(line, task, reason)).toEqual([text]));
  it.each([
    ["IDLE_SECONDS = 30 * 60", "Sessions end after 30 minutes.", "30 days of records stay"],
    ["IDLE_SECONDS = 30 * 60 * 60", "30 hours, and 30 minutes of grace", undefined],
    ["IDLE_SECONDS = 30 * 60 * 60", "after 5 minutes, in version 1.30 minutes, of 30 files", undefined],
    ["MAX_BYTES = 10 * 1024 * 1024", "Take up to 10 MB, for 10 minutes.", undefined],
    ["IDLE = 30 * 60 * 60", "Sessions end after 30 minutes.", undefined],
  ])("is not doubted otherwise: %s %s", (line, task, reason) => expect(doubts(line, task, reason)).toEqual([]));
});

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
    const gaps = (hasRest: boolean, length?: number) => buildRows(long, { split: false, folded: new Set(), expanded: new Map(), context: 1, hasRest, lengths: length === undefined ? undefined : new Map([["a.ts", length]]) }).filter((row) => row.type === "gap").map(({ from, to, isRest }) => [from, to, isRest]);
    // More may follow than the diff has: it is read together with what was left out.
    expect(gaps(true)).toEqual([[3, 1002, true]]);
    expect(gaps(false)).toEqual([[3, 4, undefined]]);
    expect(gaps(true, 3)).toEqual([[3, 4, undefined]]);
    expect(gaps(true, 20)).toEqual([[3, 21, undefined]]);
    expect(gaps(true, 5000)).toEqual([[3, 1002, true]]);
  });
});

describe("what stops a change from being approved with others", () => {
  const marks = { stale: false, failed: false, failures: 0, hosts: [], secrets: [], doubts: [] };
  it("is what its row is marked with, or that it was not read", () => {
    expect(guardOf(marks)).toBeUndefined();
    expect(guardOf(undefined)).toBe("not read yet");
    expect(guardOf({ ...marks, stale: true })).toBe("file changed since");
    expect(guardOf({ ...marks, failed: true, failures: 2 })).toBe("2 tests fail");
    expect(guardOf({ ...marks, failed: true })).toBe("its command failed");
    expect(guardOf({ ...marks, hosts: [{ host: "x.dev", path: "a", line: 1, elsewhere: [] }] })).toBe("new host x.dev");
    expect(guardOf({ ...marks, secrets: [{ path: "a", line: 1, name: "KEY" }] })).toBe("looks like a secret");
    expect(guardOf({ ...marks, doubts: [{ path: "a", line: 1, text: "", hint: "30 h", said: "30 minutes", by: "task" }] })).toBe("30 h, not 30 minutes as the task says");
  });
});
