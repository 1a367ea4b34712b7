/** The diff viewer: unified or side by side, coloured, folded, and rendered only where it can be seen. */

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { count, exactTime, visible } from "../lib/format.ts";
import { buildRows, type Comment, type FileDiff, inReadingOrder, isMachineMade, type Line, parseDiff, type Row, wordMarks } from "../lib/diff.ts";
import { languageOf, mark, tokens } from "../lib/highlight.ts";
import type { LineReader } from "../lib/files.ts";
import { useKeys } from "../lib/hooks.ts";
import { setParams, useRoute } from "../lib/route.ts";
import type { Viewed } from "../lib/viewed.ts";
import { Boundary } from "./boundary.tsx";
import { Counts, Failed, Path } from "./parts.tsx";
import { wrapped } from "../lib/wrap.ts";
import { scrollerOf, Windowed } from "./window.tsx";

/** The height of the lines of a diff or a file, as `--line-height` in the style sheet. */
export const LINE_HEIGHT = 22;
/** Files with more lines are folded at first. */
const LARGE = 5000;
/** Lines of a longer block are not compared with each other. */
const MAX_BLOCK = 200;
const isLarge = (file: FileDiff): boolean => file.insertions + file.deletions > LARGE;

interface Shown {
  /** Reads lines around the changes, for folds. Missing where the caller may not read files. */
  readLines?: LineReader;
  /** Unfolds large and machine-made files too: a person decides by them. */
  isWhole?: boolean;
  /** Leaves out what is said and chosen above a diff: it is one of several on its page. */
  isBare?: boolean;
  /** It is of one file that its page names above it: its row and the choice of the layout are left out. */
  isOne?: boolean;
  /** Called with the number of changed lines below what is seen. Less is shown around the changes then, where that is needed to see more of them. */
  seen?: (below: number) => void;
  /** How many unchanged lines around the changes are shown, where that is fewer than the diff has. */
  context?: number;
  /** What the reviewer has viewed, and a tree of the files beside the diff. */
  viewed?: Viewed;
  tree?: (tree: TreeProps) => ComponentChildren;
  comments?: Comment[];
  /** Says something about a file, or a line of its new version. */
  comment?: (path: string, line?: number) => void;
  /** Reads the diff of a file that is not read yet. */
  readFile?: (path: string) => void;
  /** What the diff is of, where a page has several: each is a landmark with a name of its own. */
  label?: string;
  /** The line of a new version that is to be seen. */
  cited?: { path: string; line: number };
  /** Shows a binary file. */
  show?: (file: FileDiff) => void;
}
interface Props extends Shown { text: string }

/** What a tree beside the diff needs to know of it. */
export interface TreeProps { files: FileDiff[]; hidden: Set<number>; current: number; jump: (file: number) => void; filter: string; setFilter: (filter: string) => void }

/** Characters of a diff that are shown where it cannot be shown by files. */
const MAX_PLAIN = 200_000;

/** A diff by files and lines; if that fails its text, because a person decides by it. */
export function DiffView({ text, ...shown }: Props) {
  const fallback = (error: Error) => <PlainDiff text={text} error={error} />;
  return <Boundary what="the diff" instead={fallback}><ParsedDiff text={text} {...shown} /></Boundary>;
}

function ParsedDiff({ text, ...shown }: Props) {
  const files = useMemo(() => inReadingOrder(parseDiff(text)), [text]);
  return <FilesDiff files={files} {...shown} />;
}

function PlainDiff({ text, error }: { text: string; error: Error }) {
  return (
    <section class="diff" aria-label="Diff">
      <Failed error={error} what="Showing the diff by files" />
      {text.length > MAX_PLAIN && <p class="tone-wait">The text is cut after {MAX_PLAIN} of {text.length} characters.</p>}
      <pre class="json" tabIndex={0} role="region" aria-label="Text of the diff">{visible(text.slice(0, MAX_PLAIN))}</pre>
    </section>
  );
}

/** Files of a diff, in the given order. */
export function FilesDiff({ files, readLines, isWhole, isBare, viewed, tree, comments, comment, readFile, cited, show, label, isOne, seen, context: shownContext }: Shown & { files: FileDiff[] }) {
  const { params } = useRoute();
  const split = params.get("diff") === "split";
  const [folded, setFolded] = useState(() => new Set(files.filter((file) => viewed?.has(file) || (!isWhole && (isLarge(file) || (files.length > 1 && isMachineMade(file))))).map(({ path }) => path)));
  const [expanded, setExpanded] = useState(() => new Map<string, string[]>());
  const [problem, setProblem] = useState("");
  const [focus, setFocus] = useState(-1);
  const [filter, setFilter] = useState("");
  const hidden = useMemo(() => new Set(files.flatMap(({ path }, index) => (path.toLowerCase().includes(filter.toLowerCase()) ? [] : [index]))), [files, filter]);
  const foldedIndexes = useMemo(() => new Set(files.flatMap(({ path }, index) => (folded.has(path) ? [index] : []))), [files, folded]);
  const hasRest = readLines !== undefined;
  const context = shownContext ?? (seen && isLong(files) ? 1 : undefined);
  const rows = useMemo(() => {
    const all = buildRows(files, { split, folded: foldedIndexes, expanded, hidden, comments, hasRest, context });
    return isOne ? all.filter(({ type }) => type !== "file") : all;
  }, [files, split, foldedIndexes, expanded, hidden, comments, hasRest, context, isOne]);
  const changedFrom = useRef<Uint32Array>(new Uint32Array(1));
  changedFrom.current = useMemo(() => (seen ? changedFromEach(rows) : new Uint32Array(1)), [rows, !seen]);
  const rowOf = (line: { path: string; line: number }) => rows.findIndex((row) => row.type === "line" && files[row.file].path === line.path && row.right?.new === line.line);
  const isCited = cited !== undefined && focus >= 0 && rowOf(cited) === focus;
  const isWrapped = params.get("wrap") !== "off";
  const width = useMemo(() => (isWrapped ? 0 : longestLine(rows)), [rows, isWrapped]);
  const linesOf = useMemo(() => (isWrapped ? (index: number, columns: number) => linesOfRow(rows[index], split ? Math.floor(columns / 2) - HALF : columns - GUTTER) : undefined), [rows, split, isWrapped]);
  const step = (direction: 1 | -1) => {
    for (let index = focus + direction; index >= 0 && index < rows.length; index += direction)
      if (rows[index].type === "file" || isChangeStart(rows, index)) return setFocus(index);
  };
  useEffect(() => {
    if (cited) setFocus(rowOf(cited));
  }, [cited?.path, cited?.line]);
  const jump = (file: number) => setFocus(rows.findIndex((row) => row.type === "file" && row.file === file));
  const toggle = ({ path }: FileDiff, isFolded = !folded.has(path)) => setFolded((before) => {
    const next = new Set(before);
    if (isFolded) next.add(path);
    else next.delete(path);
    return next;
  });
  const setViewed = (file: FileDiff, isViewed: boolean) => {
    viewed?.set(file, isViewed);
    toggle(file, isViewed);
  };
  const current = rows[focus]?.file ?? -1;
  useKeys({ n: () => step(1), p: () => step(-1), ...(viewed ? { v: () => current >= 0 && setViewed(files[current], !viewed.has(files[current])) } : {}) });
  const element = useRef<HTMLElement>(null);
  const added = useRef(0);
  useLayoutEffect(() => {
    // What was hidden above a change appears above it: the change stays where it is seen.
    const content = element.current?.querySelector<HTMLElement>(".window-content");
    if (added.current && content) scrollerOf(content).scrollTop += content.offsetHeight - added.current;
    added.current = 0;
  }, [expanded]);
  const expand = async (row: Row & { type: "gap" }) => {
    try {
      const lines = await readLines!(files[row.file].path, row.from, row.to, row.shift);
      added.current = row.isRest || isLastOf(rows, row) ? 0 : element.current!.querySelector<HTMLElement>(".window-content")!.offsetHeight;
      setExpanded((before) => new Map(before).set(row.key, lines));
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  useKeys(readLines ? { h: () => {
    const hidden = rows.find((row) => row.type === "gap" && row.to >= row.from);
    if (hidden?.type === "gap" && element.current?.checkVisibility()) void expand(hidden);
  } } : {});
  if (!files.length) return <p class="state">The diff is empty.</p>;
  const total = files.reduce((sum, file) => ({ plus: sum.plus + file.insertions, minus: sum.minus + file.deletions }), { plus: 0, minus: 0 });
  const fileRow = (file: FileDiff, name: string) => <FileRow file={file} class={name} isOpen={!folded.has(file.path)} toggle={() => toggle(file)} isViewed={viewed?.has(file)} setViewed={(value) => setViewed(file, value)}
    comments={comments?.filter(({ path }) => path === file.path).length ?? 0} comment={comment && (() => comment(file.path))} />;
  const render = (index: number) => {
    const row = rows[index];
    const file = files[row.file];
    const name = index === focus ? "focused" : "";
    if (row.type === "file") return fileRow(file, name);
    if (row.type === "comment") return <CommentRow row={row} />;
    if (row.type === "note") return <div class="diff-note">{row.text} {row.isUnread && readFile && <button type="button" class="plain" onClick={() => readFile(file.path)}>Read it</button>}{file.binary && show && isImage(file.path) && <button type="button" class="plain" onClick={() => show(file)}>Show the image</button>}</div>;
    if (row.type === "gap") return <GapRow row={row} expand={readLines && row.to >= row.from ? () => void expand(row) : undefined} />;
    return <LineRow row={row} rows={rows} index={index} split={split} path={file.path} class={name} comment={comment && ((line) => comment(file.path, line))} />;
  };
  const viewedCount = viewed ? files.filter((file) => viewed.has(file)).length : 0;
  const isFolded = files.every(({ path }) => folded.has(path));
  /** The file whose lines are at the top, once its own row is above. */
  const head = (top: number) => rows[top] && (isOne ? top > 0 : rows[top].type !== "file") && rows.length > 40 ? <div class="diff-head"><Path path={files[rows[top].file].path} /> <Counts plus={files[rows[top].file].insertions} minus={files[rows[top].file].deletions} /></div> : null;
  return (
    <div class={tree ? "diff-columns" : "diff-alone"}>
      {tree?.({ files, hidden, current, jump, filter, setFilter })}
      <section ref={element} class="diff" aria-label={label ? `Diff: ${label}` : "Diff"}>
        {!isBare && <div class="toolbar">
          <span>{count(files.length)} {files.length === 1 ? "file" : "files"} <Counts plus={total.plus} minus={total.minus} /></span>
          {viewed && <span class="quiet">{count(viewedCount)} of {count(files.length)} viewed</span>}
          {files.length > 1 && <button type="button" onClick={() => setFolded(isFolded ? new Set() : new Set(files.map(({ path }) => path)))}>{isFolded ? "Expand all" : "Collapse all"}</button>}
          <LayoutOfDiff />
        </div>}
        {problem && <p role="alert" class="tone-bad">{problem}</p>}
        <Windowed class={`diff-window ${split ? "split" : ""} ${isWrapped ? "wraps" : ""}`} linesOf={linesOf} count={rows.length} rowHeight={LINE_HEIGHT} fit isInline={!tree} label={label ? `Lines of the diff: ${label}` : "Lines of the diff"} render={render} onSeen={seen && ((shown) => seen(changedFrom.current[Math.max(0, Math.min(shown, changedFrom.current.length - 1))]))} focus={focus} focusAtTop focusSeen={isCited} head={head} minWidth={isWrapped ? undefined : `${split ? width * 2 + 16 : width + 16}ch`} />
      </section>
    </div>
  );
}

/** Wraps the long lines of diffs and files, or cuts them: the address says so. */
export const toggleWrap = (): void => setParams({ wrap: new URLSearchParams(location.search).get("wrap") === "off" ? "" : "off" });

/** The choice between the layouts of every diff. */
export function LayoutOfDiff() {
  const { params } = useRoute();
  const [split, isWrapped] = [params.get("diff") === "split", params.get("wrap") !== "off"];
  return (
    <span class="segments" role="group" aria-label="Layout of the diff">
      <button type="button" aria-pressed={!split} onClick={() => setParams({ diff: "" })}>Unified</button>
      <button type="button" aria-pressed={split} onClick={() => setParams({ diff: "split" })}>Side by side</button>
      <button type="button" aria-pressed={isWrapped} aria-keyshortcuts="w" onClick={toggleWrap}>Wrap</button>
    </span>
  );
}

/** Lines of a diff that are seen at once on most screens. */
const AT_ONCE = 18;
const isLong = (files: FileDiff[]): boolean => files.reduce((sum, { hunks }) => sum + hunks.reduce((all, { lines }) => all + lines.length + 1, 1), 0) > AT_ONCE;

/** Returns for each row, and for the end, how many rows from there on have changes. */
function changedFromEach(rows: Row[]): Uint32Array {
  const counts = new Uint32Array(rows.length + 1);
  for (let index = rows.length - 1; index >= 0; index -= 1) counts[index] = counts[index + 1] + (isChanged(rows[index]) ? 1 : 0);
  return counts;
}

/** Images that a browser shows without running anything of them. */
export const isImage = (path: string): boolean => /\.(png|jpe?g|gif|webp|avif|bmp|ico)$/i.test(path);

/** Characters that the numbers and the sign of a line take, whole and in a half; one is left over. */
const [GUTTER, HALF] = [15, 9];

/** The lines that a row takes where long lines are wrapped. */
function linesOfRow(row: Row, columns: number): number {
  if (row.type !== "line") return 1;
  return [row.left, row.right].reduce((most, line) => (line ? Math.max(most, wrapped(line.noNewline ? `${line.text}   ` : line.text, Math.max(10, columns))) : most), 1);
}

function longestLine(rows: Row[]): number {
  let longest = 40;
  for (const row of rows) if (row.type === "line") longest = Math.max(longest, row.left?.text.length ?? 0, row.right?.text.length ?? 0);
  return Math.min(longest, 2000);
}

/** Whether nothing of its file follows a row. */
const isLastOf = (rows: Row[], row: Row): boolean => rows[rows.indexOf(row) + 1]?.file !== row.file;

const isChanged = (row: Row | undefined): boolean => row?.type === "line" && row.left !== row.right;
const isChangeStart = (rows: Row[], index: number): boolean => isChanged(rows[index]) && !isChanged(rows[index - 1]);

interface FileRowProps { file: FileDiff; isOpen: boolean; toggle: () => void; class: string; isViewed?: boolean; setViewed: (isViewed: boolean) => void; comments: number; comment?: () => void }

function FileRow({ file, isOpen, toggle, class: name, isViewed, setViewed, comments, comment }: FileRowProps) {
  return (
    <div class={`diff-file ${name}`}>
      <button type="button" class="plain" aria-expanded={isOpen} onClick={toggle}>
        <span aria-hidden="true">{isOpen ? "▾" : "▸"}</span> <Path path={file.path} from={file.oldPath} />
      </button>
      <span class="quiet">{file.status === "modified" ? "" : file.status}</span>
      <Counts plus={file.insertions} minus={file.deletions} />
      {!isOpen && <span class="quiet">{isLarge(file) ? "large, folded" : "folded"}</span>}
      {comments > 0 && <span class="tone-wait">{comments} {comments === 1 ? "comment" : "comments"}</span>}
      {comment && <button type="button" class="plain comment" onClick={comment}>Comment…</button>}
      {isViewed !== undefined && <label class="viewed"><input type="checkbox" checked={isViewed} onChange={(event) => setViewed(event.currentTarget.checked)} /> viewed</label>}
    </div>
  );
}

function CommentRow({ row: { comment, text, isFirst } }: { row: Row & { type: "comment" } }) {
  return <div class="diff-comment" title={exactTime(comment.timestamp)}>{isFirst && <b><bdi>{visible(comment.author)}</bdi>{comment.line ? ` on line ${comment.line}` : ""}: </b>}<bdi>{visible(text)}</bdi></div>;
}

function GapRow({ row, expand }: { row: Row & { type: "gap" }; expand?: () => void }) {
  const lines = row.to - row.from + 1;
  // The look of the row says the rest to those who see it.
  const text = row.isRest ? "the rest of the file" : lines > 0 ? <>{count(lines)} <span class="sr-only">unchanged </span>{lines === 1 ? "line" : "lines"}</> : "";
  return (
    <div class={`diff-gap ${expand ? "" : "quiet"}`}>
      {expand ? <button type="button" class="plain" title="Reads the file. The service records the read." onClick={expand}>⋯ <span class="sr-only">show </span>{text}</button> : <span>⋯ {text}</span>}
      <span class="quiet">{visible(row.heading)}</span>
    </div>
  );
}

interface LineRowProps { row: Row & { type: "line" }; rows: Row[]; index: number; split: boolean; path: string; class: string; comment?: (line: number) => void }

/** Returns the other version of a line: the deletion of an insertion, or the reverse. */
function counterpart({ row, rows, index, split }: LineRowProps): Line | undefined {
  if (split) return row.left && row.right ? (row.left.type === "delete" ? row.right : row.left) : undefined;
  // Blocks of equal length pair line by line.
  let [start, end] = [index, index];
  while (isChanged(rows[start - 1]) && index - start <= MAX_BLOCK) start -= 1;
  while (isChanged(rows[end + 1]) && end - index <= MAX_BLOCK) end += 1;
  const length = end - start + 1;
  if (length % 2 || length > MAX_BLOCK) return undefined;
  const other = rows[index < start + length / 2 ? index + length / 2 : index - length / 2] as Row & { type: "line" };
  const [mine, theirs] = [row.left ?? row.right, other.left ?? other.right];
  return mine?.type !== theirs?.type ? theirs : undefined;
}

function LineRow(props: LineRowProps) {
  const { row, split, path, class: name, comment } = props;
  const line = (row.left ?? row.right)!;
  if (!split) return (
    <div class={`diff-line ${line.type} ${name}`}>
      <span class="number">{line.old}</span><LineNumber number={line.new} comment={comment} />
      <Code line={line} path={path} other={line.type === "context" ? undefined : counterpart(props)} />
    </div>
  );
  const isContext = row.left === row.right;
  return (
    <div class={`diff-pair ${name}`}>
      <Half line={row.left} number={<span class="number">{row.left?.old}</span>} path={path} other={isContext ? undefined : row.right} />
      <Half line={row.right} number={<LineNumber number={row.right?.new} comment={comment} />} path={path} other={isContext ? undefined : row.left} />
    </div>
  );
}

/** The number of a line of the new version, where something can be said about it. */
function LineNumber({ number, comment }: { number?: number; comment?: (line: number) => void }) {
  if (!comment || number === undefined) return <span class="number">{number}</span>;
  return <button type="button" class="number" title={`Comment on line ${number}`} aria-label={`Comment on line ${number}`} tabIndex={-1} onClick={() => comment(number)}>{number}</button>;
}

function Half({ line, number, path, other }: { line?: Line; number: ComponentChildren; path: string; other?: Line }) {
  return (
    <div class={`diff-half ${line?.type ?? "missing"}`}>
      {number}{line && <Code line={line} path={path} other={other} />}
    </div>
  );
}

const SIGNS = { add: "+", delete: "−", context: " " };

interface CodeProps { line: Line; path: string; other?: Line }

/** A line in colours, or without them: it is shown in any case. */
function Code(props: CodeProps) {
  const { type, text } = props.line;
  return <Boundary what="the line" instead={() => <code><span class="sign">{SIGNS[type]}</span>{visible(text)}</code>}><ColouredCode {...props} /></Boundary>;
}

function ColouredCode({ line, path, other }: CodeProps) {
  const marks = other ? (line.type === "delete" ? wordMarks(line.text, other.text).left : wordMarks(other.text, line.text).right) : [];
  return (
    <code>
      <span class="sign">{SIGNS[line.type]}</span>
      {mark(tokens(line.text, languageOf(path)), marks).map((part, index) => (
        <span key={index} class={`${part.kind ? `syntax-${part.kind}` : ""} ${part.marked ? "marked" : ""}`}>{visible(part.text)}</span>
      ))}
      {line.noNewline && <span class="quiet" title="No newline at the end of the file"> ⏎̸</span>}
    </code>
  );
}
