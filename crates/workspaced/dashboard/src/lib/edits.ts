/** What a reviewer changes of a proposed text: only what the diff shows can be edited. */

import type { FileDiff } from "./diff.ts";

/** A piece of a file as the proposal leaves it. */
export interface EditableHunk { key: string; path: string; text: string; from: number; to: number }
/** A replacement in a file as the proposal leaves it. */
export interface Edit { path: string; oldString: string; newString: string }

/** More lines are not offered for editing: who changes so much should ask the agent to. */
const MOST_LINES = 2000;

/** Returns the new side of each hunk, or nothing if that is more than a person edits. */
export function hunksOf(files: FileDiff[]): EditableHunk[] {
  const hunks = files.flatMap((file, index) => file.status === "deleted" || file.binary ? [] : file.hunks.flatMap((hunk) => {
    const lines = hunk.lines.filter(({ type }) => type !== "delete");
    return lines.length ? [{ key: `${index}:${hunk.newStart}`, path: file.path, text: lines.map(({ text }) => text).join("\n"), from: hunk.newStart, to: hunk.newStart + hunk.newLines - 1 }] : [];
  }));
  return hunks.reduce((sum, { from, to }) => sum + to - from + 1, 0) > MOST_LINES ? [] : hunks;
}

/** Returns the replacements that lead from the proposed text to the drafts. */
export function editedHunks(hunks: EditableHunk[], drafts: Map<string, string>): Edit[] {
  return hunks.flatMap(({ key, path, text }) => {
    const draft = drafts.get(key);
    return draft === undefined || draft === text ? [] : [{ path, oldString: text, newString: draft }];
  });
}

/** The unchanged lines around a change that are shown. */
const CONTEXT = 3;

/** Returns the replacements as a diff, from the proposed text to that of the reviewer. */
export function diffOfEdits(edits: Edit[]): string {
  return edits.map(({ path, oldString, newString }) => {
    const [before, after] = [oldString.split("\n"), newString.split("\n")];
    const shared = Math.min(before.length, after.length);
    let start = 0;
    while (start < shared && before[start] === after[start]) start += 1;
    let end = 0;
    while (end < shared - start && before[before.length - 1 - end] === after[after.length - 1 - end]) end += 1;
    const from = Math.max(0, start - CONTEXT);
    const lead = before.slice(from, start).map((line) => ` ${line}`);
    const tail = before.slice(before.length - end, before.length - end + CONTEXT).map((line) => ` ${line}`);
    const removed = before.slice(start, before.length - end).map((line) => `-${line}`);
    const added = after.slice(start, after.length - end).map((line) => `+${line}`);
    const name = JSON.stringify(path).slice(1, -1);
    const [a, b] = name === path ? [`a/${path}`, `b/${path}`] : [`"a/${name}"`, `"b/${name}"`];
    const count = (lines: string[][]) => lines.reduce((sum, { length }) => sum + length, 0);
    return [`diff --git ${a} ${b}`, `--- ${a}`, `+++ ${b}`, `@@ -${from + 1},${count([lead, removed, tail])} +${from + 1},${count([lead, added, tail])} @@`, ...lead, ...removed, ...added, ...tail].join("\n") + "\n";
  }).join("");
}
