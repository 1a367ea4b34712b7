/** Unified diffs: parsed into files, shown as flat lists of rows of one height. */

export interface Line { type: "context" | "add" | "delete"; text: string; old?: number; new?: number; noNewline?: boolean }
export interface Hunk { heading: string; oldStart: number; newStart: number; oldLines: number; newLines: number; lines: Line[] }
export interface FileDiff {
  path: string; oldPath?: string; status: "added" | "deleted" | "renamed" | "modified"; binary: boolean;
  insertions: number; deletions: number; hunks: Hunk[]; notes: string[];
  /** Its text is not read yet. */
  isUnread?: boolean;
}

const HUNK = /^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@ ?(.*)$/;
const ESCAPES = new Map([["n", 10], ["t", 9], ["r", 13], ['"', 34], ["\\", 92], ["a", 7], ["b", 8], ["f", 12], ["v", 11]]);

/** Returns the name in a header, which git quotes if it has unusual characters. */
export function unquote(name: string): string {
  if (!name.startsWith('"')) return name.replace(/\t.*$/, "");
  const data: number[] = [];
  const inner = name.slice(1, name.lastIndexOf('"'));
  for (const part of inner.match(/\\[0-7]{3}|\\.|[^\\]+/gs) ?? []) {
    if (!part.startsWith("\\")) data.push(...new TextEncoder().encode(part));
    else data.push(part.length === 4 ? parseInt(part.slice(1), 8) : (ESCAPES.get(part[1]) ?? part.charCodeAt(1)));
  }
  return new TextDecoder().decode(Uint8Array.from(data));
}

const withoutPrefix = (name: string): string => unquote(name).replace(/^[ab]\//, "");

/** Returns the path of a `diff --git` line whose two names are equal. */
function pathOfHeader(line: string): string {
  const names = line.slice("diff --git ".length);
  if (names.startsWith('"')) return withoutPrefix(names.slice(0, names.indexOf('" ') + 1));
  return withoutPrefix(names.slice(0, (names.length - 1) / 2));
}

function readHeader(file: FileDiff, line: string): void {
  if (line.startsWith("new file")) file.status = "added";
  else if (line.startsWith("deleted file")) file.status = "deleted";
  else if (line.startsWith("rename from ")) [file.status, file.oldPath] = ["renamed", unquote(line.slice(12))];
  else if (line.startsWith("rename to ")) file.path = unquote(line.slice(10));
  else if (line.startsWith("Binary files ") || line.startsWith("GIT binary patch")) file.binary = true;
  else if (line.startsWith("old mode ") || line.startsWith("new mode ")) file.notes.push(line);
  else if (line.startsWith("+++ ") && line !== "+++ /dev/null") file.path = withoutPrefix(line.slice(4));
  else if (line.startsWith("--- ") && line !== "--- /dev/null" && !file.path) file.path = withoutPrefix(line.slice(4));
}

/** Parses the diffs that the service writes. Text that is no diff is left out. */
export function parseDiff(text: string): FileDiff[] {
  const files: FileDiff[] = [];
  let file: FileDiff | undefined;
  let hunk: Hunk | undefined;
  let [oldLine, newLine, oldRest, newRest] = [0, 0, 0, 0];
  const begin = (path: string): FileDiff => ({ path, status: "modified", binary: false, insertions: 0, deletions: 0, hunks: [], notes: [] });
  for (const line of text.split("\n")) {
    if (hunk && file && (oldRest > 0 || newRest > 0)) {
      const kind = line[0];
      const content = line.slice(1);
      if (kind === "+") hunk.lines.push({ type: "add", text: content, new: newLine++ }), (newRest -= 1), (file.insertions += 1);
      else if (kind === "-") hunk.lines.push({ type: "delete", text: content, old: oldLine++ }), (oldRest -= 1), (file.deletions += 1);
      else if (kind !== "\\") hunk.lines.push({ type: "context", text: content, old: oldLine++, new: newLine++ }), (oldRest -= 1), (newRest -= 1);
      else hunk.lines[hunk.lines.length - 1].noNewline = true;
    } else if (line.startsWith("diff --git ")) {
      files.push((file = begin(pathOfHeader(line))));
      hunk = undefined;
    } else if (line.startsWith("\\") && hunk?.lines.length) {
      hunk.lines[hunk.lines.length - 1].noNewline = true;
    } else if (line.startsWith("@@ ") && file) {
      const parts = HUNK.exec(line);
      if (!parts) continue;
      [oldLine, oldRest, newLine, newRest] = [+parts[1], parts[2] === undefined ? 1 : +parts[2], +parts[3], parts[4] === undefined ? 1 : +parts[4]];
      file.hunks.push((hunk = { heading: parts[5], oldStart: oldLine, newStart: newLine, oldLines: oldRest, newLines: newRest, lines: [] }));
    } else if (file) {
      readHeader(file, line);
    }
  }
  return files;
}

export type Row =
  | { type: "file"; file: number }
  | { type: "note"; file: number; text: string; isUnread?: boolean }
  | { type: "comment"; file: number; comment: Comment; text: string; isFirst: boolean }
  | { type: "gap"; file: number; key: string; from: number; to: number; shift: number; heading: string; isRest?: boolean }
  | { type: "line"; file: number; left?: Line; right?: Line };

/** What a reviewer said about a file, or about a line of its new version. */
export interface Comment { seq: number; author: string; timestamp: string; path: string; line?: number; text: string }

export interface RowOptions {
  /** Files that are left out. */
  hidden?: Set<number>;
  comments?: Comment[];
  split: boolean;
  /** Files whose content is not shown. */
  folded: Set<number>;
  /** Lines that were read for gaps, by the gap's key. */
  expanded: Map<string, string[]>;
  /** How many unchanged lines around the changes are shown at first, of those that the diff has: all without it. */
  context?: number;
  /** Whether a row stands for what follows the last change, of which a diff does not say how much it is. */
  hasRest?: boolean;
}

/** Pairs the deletions of a hunk with the insertions after them. */
export function pairs(lines: Line[]): { left?: Line; right?: Line }[] {
  const rows: { left?: Line; right?: Line }[] = [];
  for (let index = 0; index < lines.length; ) {
    if (lines[index].type === "context") {
      rows.push({ left: lines[index], right: lines[index] });
      index += 1;
      continue;
    }
    const deletions: Line[] = [];
    const insertions: Line[] = [];
    while (lines[index]?.type === "delete") deletions.push(lines[index++]);
    while (lines[index]?.type === "add") insertions.push(lines[index++]);
    for (let row = 0; row < Math.max(deletions.length, insertions.length); row += 1) rows.push({ left: deletions[row], right: insertions[row] });
  }
  return rows;
}

/** Lines after the last change that are read at once. */
const MAX_REST = 1000;
/** Characters of a comment in a row. */
const COMMENT_WIDTH = 110;

function commentRows(file: number, comment: Comment): Row[] {
  const parts = comment.text.split("\n").flatMap((line) => line.match(new RegExp(`.{1,${COMMENT_WIDTH}}(?:\\s|$)|.{1,${COMMENT_WIDTH}}`, "gu")) ?? [""]);
  return parts.map((text, index) => ({ type: "comment", file, comment, text, isFirst: index === 0 }));
}

function contentRows(file: FileDiff, index: number, options: RowOptions, rows: Row[]): void {
  const said = (options.comments ?? []).filter(({ path }) => path === file.path);
  const shown = new Set<Comment>();
  /** Adds a row, and what was said about its line. */
  const push = (row: Row & { type: "line" }) => {
    rows.push(row);
    if (!said.length || row.right?.new === undefined) return;
    for (const comment of said) if (comment.line === row.right.new) shown.add(comment), rows.push(...commentRows(index, comment));
  };
  const first = rows.length;
  if (file.isUnread) rows.push({ type: "note", file: index, text: "The diff of this file is not read yet.", isUnread: true });
  for (const text of file.notes) rows.push({ type: "note", file: index, text });
  if (file.binary) rows.push({ type: "note", file: index, text: "Binary file: its content is not shown." });
  let [next, shift] = [1, 0];
  const pushRead = (gap: Row & { type: "gap" }) => options.expanded.get(gap.key)?.forEach((text, offset) => {
    const line: Line = { type: "context", text, new: gap.from + offset, old: gap.from + offset + gap.shift };
    push({ type: "line", file: index, left: line, right: line });
  });
  let tail = 0;
  for (const hunk of file.hunks) {
    // A side without lines names the line before it.
    const [oldStart, newStart] = [hunk.oldStart + (hunk.oldLines ? 0 : 1), hunk.newStart + (hunk.newLines ? 0 : 1)];
    const [lead, end] = cuts(hunk.lines, options.context);
    const lines = hunk.lines.slice(lead, hunk.lines.length - end);
    const gap = gapRow(index, next, newStart + lead - 1, oldStart - newStart, hunk.heading);
    if (!options.expanded.has(gap.key) && (gap.to >= gap.from || gap.heading)) rows.push(gap);
    pushRead(gap);
    if (options.split) for (const pair of pairs(lines)) push({ type: "line", file: index, ...pair });
    else for (const line of lines) push(line.type === "add" ? { type: "line", file: index, right: line } : { type: "line", file: index, left: line, ...(line.type === "context" ? { right: line } : {}) });
    tail = end;
    next = newStart + hunk.newLines - tail;
    shift = oldStart + hunk.oldLines - tail - next;
  }
  const hasRest = options.hasRest === true && file.hunks.length > 0 && !isEnd(file.hunks) && file.hunks.every(({ oldLines, newLines }) => oldLines && newLines);
  if (hasRest || tail > 0) {
    const rest = { ...gapRow(index, next, next + (hasRest ? MAX_REST : tail) - 1, shift, ""), ...(hasRest ? { isRest: true } : {}) };
    if (!options.expanded.has(rest.key) && rest.to >= rest.from) rows.push(rest);
    pushRead(rest);
  }
  // What is about the file, or about a line that is not shown, stands above its lines.
  const rest = said.filter((comment) => !shown.has(comment));
  if (rest.length) rows.splice(first, 0, ...rest.flatMap((comment) => commentRows(index, comment)));
}

/** How many unchanged lines at the start and at the end of a hunk are left out at first. */
function cuts(lines: Line[], context = Infinity): [start: number, end: number] {
  const first = lines.findIndex(({ type }) => type !== "context");
  if (first < 0) return [0, 0];
  const last = lines.findLastIndex(({ type }) => type !== "context");
  // A row that stands for one line says less than the line.
  const cut = (length: number) => (length - context > 1 ? length - context : 0);
  return [cut(first), cut(lines.length - 1 - last)];
}

/** Lines around a change that a diff has, where the file has them. */
const CONTEXT = 3;
/** Whether a file is seen to end with the last of its changes: less is below it than a diff shows, whose other changes have what it shows. */
function isEnd(hunks: Hunk[]): boolean {
  const isContext = (lines: Line[]) => lines.length === CONTEXT && lines.every(({ type }) => type === "context");
  const last = hunks[hunks.length - 1].lines;
  return hunks.every(({ oldStart, lines }) => oldStart === 1 || isContext(lines.slice(0, CONTEXT))) && (!isContext(last.slice(-CONTEXT)) || last.some(({ noNewline }) => noNewline === true));
}

const gapRow = (file: number, from: number, to: number, shift: number, heading: string): Row & { type: "gap" } =>
  ({ type: "gap", file, key: `${file}:${from}-${to}`, from, to, shift, heading });

/** Returns the rows to show. */
export function buildRows(files: FileDiff[], options: RowOptions): Row[] {
  const rows: Row[] = [];
  files.forEach((file, index) => {
    if (options.hidden?.has(index)) return;
    rows.push({ type: "file", file: index });
    if (!options.folded.has(index)) contentRows(file, index, options, rows);
  });
  return rows;
}

const QUIET = /(^|\/)(package-lock\.json|[^/]*\.lock|pnpm-lock\.yaml|go\.sum|dist\/.*|[^/]*\.min\.\w+|[^/]*\.generated\.\w+)$/;
/** Whether a file is made by a program: it is folded at first, and comes after what people read. */
export const isMachineMade = ({ path }: FileDiff): boolean => QUIET.test(path);
const rank = (file: FileDiff): number => (file.binary ? 2 : isMachineMade(file) ? 1 : 0);
/** Compares paths as a tree lists them: folders before files, each by name. */
function compareInTree(one: string, other: string): number {
  const [a, b] = [one.split("/"), other.split("/")];
  for (let depth = 0; ; depth += 1) {
    const [isFile, isOtherFile] = [depth === a.length - 1, depth === b.length - 1];
    if (isFile !== isOtherFile) return isFile ? 1 : -1;
    if (a[depth] !== b[depth]) return a[depth] < b[depth] ? -1 : 1;
    if (isFile) return 0;
  }
}
/** Puts source before what is machine-made and binary files last, each in the order of a tree. */
export const inReadingOrder = (files: FileDiff[]): FileDiff[] => [...files].sort((a, b) => rank(a) - rank(b) || compareInTree(a.path, b.path));

/** A short digest of what a file's diff shows, to notice that it is another. */
export function digest(file: FileDiff): string {
  let value = 0x811c9dc5;
  const add = (text: string) => {
    for (let index = 0; index < text.length; index += 1) value = Math.imul(value ^ text.charCodeAt(index), 0x01000193);
  };
  for (const hunk of file.hunks) for (const line of hunk.lines) if (line.type !== "context") add(`${line.type}${line.text}`);
  return `${file.status}${file.insertions}-${file.deletions}-${(value >>> 0).toString(36)}`;
}

const WORDS = /[\p{L}\p{N}_]+|\s+|./gu;
/** Longer lines are not compared by words. */
const MAX_WORDS = 300;

/** Returns the ranges of characters that differ between two versions of a line, by words. */
export function wordMarks(left: string, right: string): { left: [number, number][]; right: [number, number][] } {
  const [a, b] = [left.match(WORDS) ?? [], right.match(WORDS) ?? []];
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start += 1;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end += 1;
  const [middleA, middleB] = [a.slice(start, a.length - end), b.slice(start, b.length - end)];
  const offset = a.slice(0, start).join("").length;
  if (middleA.length > MAX_WORDS || middleB.length > MAX_WORDS)
    return { left: [[offset, offset + middleA.join("").length]], right: [[offset, offset + middleB.join("").length]] };
  const [keepA, keepB] = commonWords(middleA, middleB);
  // Lines with little in common are marked by their colour alone.
  const common = middleA.filter((word, index) => keepA[index] && word.trim()).length + start + end;
  if (common * 4 < Math.max(a.length, b.length)) return { left: [], right: [] };
  return { left: ranges(middleA, keepA, offset), right: ranges(middleB, keepB, offset) };
}

function commonWords(a: string[], b: string[]): [boolean[], boolean[]] {
  const width = b.length + 1;
  const lengths = new Uint16Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1)
    for (let j = b.length - 1; j >= 0; j -= 1)
      lengths[i * width + j] = a[i] === b[j] ? lengths[(i + 1) * width + j + 1] + 1 : Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
  const [keepA, keepB] = [a.map(() => false), b.map(() => false)];
  for (let i = 0, j = 0; i < a.length && j < b.length; ) {
    if (a[i] === b[j]) keepA[i++] = keepB[j++] = true;
    else if (lengths[(i + 1) * width + j] >= lengths[i * width + j + 1]) i += 1;
    else j += 1;
  }
  return [keepA, keepB];
}

function ranges(words: string[], keep: boolean[], offset: number): [number, number][] {
  const found: [number, number][] = [];
  words.forEach((word, index) => {
    const last = found[found.length - 1];
    if (!keep[index] && last?.[1] === offset) last[1] += word.length;
    else if (!keep[index]) found.push([offset, offset + word.length]);
    offset += word.length;
  });
  return found;
}
