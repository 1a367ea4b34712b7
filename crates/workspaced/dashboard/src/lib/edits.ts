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
