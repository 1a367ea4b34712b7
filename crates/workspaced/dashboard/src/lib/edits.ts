/** What a reviewer changes of a proposed text: only what the diff shows can be edited. */

import { type FileDiff, type Hunk, type Line, wordMarks } from "./diff.ts";

/** A piece of a file as the proposal leaves it, and as it was before. `caret`: where the change of its first added line begins and ends. `added`: which of its lines, counted from 0, were added. */
export interface EditableHunk { key: string; path: string; text: string; from: number; to: number; before: string[]; beforeFrom: number; caret?: [start: number, end: number]; added: Set<number> }
/** A replacement in a file as the proposal leaves it. */
export interface Edit { path: string; oldString: string; newString: string }

/** More lines are not offered for editing: who changes so much should ask the agent to. */
const MOST_LINES = 2000;

/** Returns the new side of each hunk, or nothing if that is more than a person edits. */
export function hunksOf(files: FileDiff[]): EditableHunk[] {
  const hunks = files.flatMap((file, index) => file.status === "deleted" || file.binary ? [] : file.hunks.flatMap((hunk) => {
    const side = (other: Line["type"]) => hunk.lines.filter(({ type }) => type !== other).map(({ text }) => text);
    const lines = side("delete");
    return lines.length ? [{ key: `${index}:${hunk.newStart}`, path: file.path, text: lines.join("\n"), from: hunk.newStart, to: hunk.newStart + hunk.newLines - 1, before: side("add"), beforeFrom: hunk.oldStart + (hunk.oldLines ? 0 : 1), caret: caretOf(hunk), added: new Set(hunk.lines.filter(({ type }) => type !== "delete").flatMap(({ type }, at) => (type === "add" ? [at] : []))) }] : [];
  }));
  return hunks.reduce((sum, { from, to }) => sum + to - from + 1, 0) > MOST_LINES ? [] : hunks;
}

/** Returns the part of the new side of a hunk that is new in its first added line: from where it differs from the line that it replaces, to the end of what it says. */
function caretOf({ lines }: Hunk): [start: number, end: number] | undefined {
  const first = lines.findIndex(({ type }) => type === "add");
  if (first < 0) return undefined;
  const start = lines.slice(0, first).reduce((sum, { type, text }) => (type === "delete" ? sum : sum + text.length + 1), 0);
  let deleted = first;
  while (deleted > 0 && lines[deleted - 1].type === "delete") deleted -= 1;
  const { text } = lines[first];
  const from = deleted < first ? wordMarks(lines[deleted].text, text).right[0]?.[0] : undefined;
  if (from === undefined) return [start + text.length, start + text.length];
  const end = text.trimEnd().replace(/[;,]+$/, "").length;
  return end > from ? [start + from, start + end] : [start + text.length, start + text.length];
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
/** Longer texts are not compared line by line: what lies between their common ends counts as replaced. */
const MOST_CELLS = 4_000_000;

/** Returns what leads from one text to another, line by line; what is common is context. */
function compare(before: string[], after: string[]): { type: Line["type"]; text: string }[] {
  const shared = Math.min(before.length, after.length);
  let start = 0;
  while (start < shared && before[start] === after[start]) start += 1;
  let end = 0;
  while (end < shared - start && before[before.length - 1 - end] === after[after.length - 1 - end]) end += 1;
  const [old, now] = [before.slice(start, before.length - end), after.slice(start, after.length - end)];
  const context = (texts: string[]) => texts.map((text) => ({ type: "context" as const, text }));
  return [...context(before.slice(0, start)), ...middle(old, now), ...context(before.slice(before.length - end))];
}

function middle(old: string[], now: string[]): { type: Line["type"]; text: string }[] {
  const width = now.length + 1;
  const lines: { type: Line["type"]; text: string }[] = [];
  let [i, j] = [0, 0];
  if (old.length * now.length <= MOST_CELLS) {
    const lengths = new Uint16Array((old.length + 1) * width);
    for (let a = old.length - 1; a >= 0; a -= 1) for (let b = now.length - 1; b >= 0; b -= 1)
      lengths[a * width + b] = old[a] === now[b] ? lengths[(a + 1) * width + b + 1] + 1 : Math.max(lengths[(a + 1) * width + b], lengths[a * width + b + 1]);
    while (i < old.length && j < now.length) {
      if (old[i] === now[j]) lines.push({ type: "context", text: old[i++] }), (j += 1);
      else if (lengths[(i + 1) * width + j] >= lengths[i * width + j + 1]) lines.push({ type: "delete", text: old[i++] });
      else lines.push({ type: "add", text: now[j++] });
    }
  }
  return [...lines, ...old.slice(i).map((text) => ({ type: "delete" as const, text })), ...now.slice(j).map((text) => ({ type: "add" as const, text }))];
}

/** Cuts compared lines, which begin at the given numbers, into hunks. */
function cut(lines: { type: Line["type"]; text: string }[], oldStart: number, newStart: number): Hunk[] {
  const hunks: Hunk[] = [];
  let [before, after] = [oldStart, newStart];
  const changed = lines.flatMap(({ type }, index) => (type === "context" ? [] : [index]));
  let [next, shown] = [0, -1];
  lines.forEach(({ type, text }, index) => {
    while (next < changed.length - 1 && changed[next] < index) next += 1;
    const isNear = changed.length > 0 && (Math.abs(changed[next] - index) <= CONTEXT || (next > 0 && index - changed[next - 1] <= CONTEXT));
    if (isNear) {
      if (shown !== index - 1 || !hunks.length) hunks.push({ heading: "", oldStart: before, newStart: after, oldLines: 0, newLines: 0, lines: [] });
      shown = index;
      const hunk = hunks[hunks.length - 1];
      hunk.lines.push({ type, text, ...(type === "add" ? {} : { old: before }), ...(type === "delete" ? {} : { new: after }) });
      if (type !== "add") hunk.oldLines += 1;
      if (type !== "delete") hunk.newLines += 1;
    }
    if (type !== "add") before += 1;
    if (type !== "delete") after += 1;
  });
  return hunks;
}

/** Returns a file after a change, by lines; nothing where its lines are not those that the change is for. */
export function applied(base: string[], { hunks }: FileDiff): string[] | undefined {
  const result: string[] = [];
  let read = 0;
  for (const hunk of hunks) {
    const start = hunk.oldStart - (hunk.oldLines ? 1 : 0);
    if (start < read || start > base.length) return undefined;
    result.push(...base.slice(read, start));
    read = start;
    for (const { type, text } of hunk.lines) {
      if (type !== "add" && base[read++] !== text) return undefined;
      if (type !== "delete") result.push(text);
    }
  }
  return [...result, ...base.slice(read)];
}

/** Returns what leads from one text of a file to another. */
export function diffOfTexts(path: string, before: string[], after: string[]): FileDiff {
  const lines = compare(before, after);
  const counted = (wanted: Line["type"]) => lines.filter(({ type }) => type === wanted).length;
  return { path, status: "modified", binary: false, insertions: counted("add"), deletions: counted("delete"), hunks: cut(lines, 1, 1), notes: [] };
}

/** Returns what the drafts come to: from the proposed text to the reviewer's, or from the files as they are to the reviewer's. */
export function diffOfDrafts(hunks: EditableHunk[], drafts: Map<string, string>, from: "proposal" | "present"): FileDiff[] {
  const files = new Map<string, { file: FileDiff; shift: number }>();
  for (const { key, path, text, from: start, before, beforeFrom } of hunks) {
    const known = files.get(path) ?? { file: { path, status: "modified", binary: false, insertions: 0, deletions: 0, hunks: [], notes: [] }, shift: 0 };
    files.set(path, known);
    const [old, mine] = [from === "proposal" ? text.split("\n") : before, (drafts.get(key) ?? text).split("\n")];
    const lines = compare(old, mine);
    known.file.hunks.push(...cut(lines, from === "proposal" ? start : beforeFrom, start + known.shift));
    known.file.insertions += lines.filter(({ type }) => type === "add").length;
    known.file.deletions += lines.filter(({ type }) => type === "delete").length;
    known.shift += mine.length - text.split("\n").length;
  }
  return [...files.values()].map(({ file }) => file).filter(({ hunks: found }) => found.length > 0);
}
