/** Which call wrote each line of a file, from the diffs of the calls that changed it. */

import type { FileDiff } from "./diff.ts";

export interface Change { seq: number; diff: FileDiff }

/**
 * Returns for each of `lines` lines the `seq` of the call that wrote it, or 0 for lines of the base. `changes` are those of
 * the file up to the version shown, oldest first. They are followed backwards, so that the base itself is not needed.
 */
export function blame(lines: number, changes: Change[]): number[] {
  const owner = new Array<number>(lines).fill(0);
  // The line number that each line still unexplained has in the version under inspection.
  let open: [line: number, index: number][] = owner.map((_, index) => [index + 1, index]);
  for (const { seq, diff } of [...changes].reverse()) {
    const older = new Map<number, number>();
    const added = new Set<number>();
    for (const hunk of diff.hunks)
      for (const line of hunk.lines) {
        if (line.type === "add") added.add(line.new!);
        else if (line.type === "context") older.set(line.new!, line.old!);
      }
    const rest: [number, number][] = [];
    for (const [line, index] of open) {
      if (added.has(line)) owner[index] = seq;
      else rest.push([older.get(line) ?? line - shiftBefore(diff, line), index]);
    }
    open = diff.status === "added" ? [] : rest;
  }
  return owner;
}

/** How many lines the hunks before a line of the new version have added. */
function shiftBefore(diff: FileDiff, line: number): number {
  let shift = 0;
  for (const hunk of diff.hunks) if (hunk.newStart + Math.max(hunk.newLines, 1) <= line) shift += hunk.newLines - hunk.oldLines;
  return shift;
}
