/** The diff viewer: unified or side by side, coloured, folded, and rendered only where it can be seen. */

import { useMemo, useState } from "preact/hooks";
import { visible } from "../lib/format.ts";
import { buildRows, type FileDiff, type Line, parseDiff, type Row, wordMarks } from "../lib/diff.ts";
import { languageOf, mark, tokens } from "../lib/highlight.ts";
import { useKeys } from "../lib/hooks.ts";
import { setParams, useRoute } from "../lib/route.ts";
import { Boundary } from "./boundary.tsx";
import { Counts, Failed } from "./parts.tsx";
import { Windowed } from "./window.tsx";

const ROW_HEIGHT = 22;
/** Files with more lines are folded at first. */
const LARGE = 5000;
/** Lines of a longer block are not compared with each other. */
const MAX_BLOCK = 200;
const QUIET = /(^|\/)(package-lock\.json|[^/]*\.lock|pnpm-lock\.yaml|go\.sum|dist\/.*|[^/]*\.min\.\w+)$/;

const viewed = {
  key: (scope: string, file: FileDiff) => `workspaced.viewed:${scope}:${file.path}`,
  has: (scope: string, file: FileDiff) => sessionStorage.getItem(viewed.key(scope, file)) === "1",
  set: (scope: string, file: FileDiff, value: boolean) => value ? sessionStorage.setItem(viewed.key(scope, file), "1") : sessionStorage.removeItem(viewed.key(scope, file)),
};

const isLarge = (file: FileDiff): boolean => file.insertions + file.deletions > LARGE;

interface Props {
  text: string;
  /** What the marks "viewed" belong to: the hash of the diff. */
  scope: string;
  /** Reads lines of the new version of a file, for folds. Missing where the caller may not read files. */
  readLines?: (path: string, from: number, to: number) => Promise<string[]>;
  /** Unfolds large files too: a person decides by them. */
  isWhole?: boolean;
}

/** Characters of a diff that are shown where it cannot be shown by files. */
const MAX_PLAIN = 200_000;

/** A diff by files and lines; if that fails its text, because a person decides by it. */
export function DiffView(props: Props) {
  return <Boundary what="the diff" instead={(error) => <PlainDiff text={props.text} error={error} />}><Files {...props} /></Boundary>;
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

function Files({ text, scope, readLines, isWhole }: Props) {
  const { params } = useRoute();
  const split = params.get("diff") === "split";
  const files = useMemo(() => parseDiff(text), [text]);
  const [folded, setFolded] = useState(() => new Set(files.flatMap((file, index) => ((isLarge(file) && !isWhole) || (files.length > 1 && !isWhole && QUIET.test(file.path)) || viewed.has(scope, file) ? [index] : []))));
  const [expanded, setExpanded] = useState(() => new Map<string, string[]>());
  const [problem, setProblem] = useState("");
  const [focus, setFocus] = useState(-1);
  const rows = useMemo(() => buildRows(files, { split, folded, expanded }), [files, split, folded, expanded]);
  const width = useMemo(() => longestLine(rows), [rows]);
  const step = (direction: 1 | -1) => {
    for (let index = focus + direction; index >= 0 && index < rows.length; index += direction)
      if (rows[index].type === "file" || isChangeStart(rows, index)) return setFocus(index);
  };
  useKeys({ n: () => step(1), p: () => step(-1) });
  const toggle = (index: number) => setFolded((before) => {
    const next = new Set(before);
    if (!next.delete(index)) next.add(index);
    return next;
  });
  const expand = async (row: Row & { type: "gap" }) => {
    try {
      const lines = await readLines!(files[row.file].path, row.from, row.to);
      setExpanded((before) => new Map(before).set(row.key, lines));
    } catch (error) {
      setProblem((error as Error).message);
    }
  };
  if (!files.length) return <p class="state">The diff is empty.</p>;
  const total = files.reduce((sum, file) => ({ plus: sum.plus + file.insertions, minus: sum.minus + file.deletions }), { plus: 0, minus: 0 });
  const render = (index: number) => {
    const row = rows[index];
    const file = files[row.file];
    const name = index === focus ? "focused" : "";
    if (row.type === "file") return <FileRow file={file} scope={scope} class={name} isOpen={!folded.has(row.file)} toggle={() => toggle(row.file)} />;
    if (row.type === "note") return <div class="diff-note">{row.text}</div>;
    if (row.type === "gap") return <GapRow row={row} expand={readLines && row.to >= row.from ? () => void expand(row) : undefined} />;
    return <LineRow row={row} rows={rows} index={index} split={split} path={file.path} class={name} />;
  };
  return (
    <section class="diff" aria-label="Diff">
      <div class="toolbar">
        <span>{files.length} {files.length === 1 ? "file" : "files"} <Counts plus={total.plus} minus={total.minus} /></span>
        <span class="segments" role="group" aria-label="Layout of the diff">
          <button type="button" aria-pressed={!split} onClick={() => setParams({ diff: "" })}>Unified</button>
          <button type="button" aria-pressed={split} onClick={() => setParams({ diff: "split" })}>Side by side</button>
        </span>
      </div>
      {problem && <p role="alert" class="tone-bad">{problem}</p>}
      <Windowed class={`diff-window ${split ? "split" : ""}`} count={rows.length} rowHeight={ROW_HEIGHT} fit label="Lines of the diff" render={render} focus={focus} minWidth={`${split ? width * 2 + 16 : width + 16}ch`} />
    </section>
  );
}

function longestLine(rows: Row[]): number {
  let longest = 40;
  for (const row of rows) if (row.type === "line") longest = Math.max(longest, row.left?.text.length ?? 0, row.right?.text.length ?? 0);
  return Math.min(longest, 2000);
}

const isChanged = (row: Row | undefined): boolean => row?.type === "line" && row.left !== row.right;
const isChangeStart = (rows: Row[], index: number): boolean => isChanged(rows[index]) && !isChanged(rows[index - 1]);

interface FileRowProps { file: FileDiff; scope: string; isOpen: boolean; toggle: () => void; class: string }

function FileRow({ file, scope, isOpen, toggle, class: name }: FileRowProps) {
  const [isViewed, setViewed] = useState(viewed.has(scope, file));
  const change = (value: boolean) => {
    viewed.set(scope, file, value);
    setViewed(value);
    if (value === isOpen) toggle();
  };
  return (
    <div class={`diff-file ${name}`}>
      <button type="button" class="plain" aria-expanded={isOpen} onClick={toggle}>
        <span aria-hidden="true">{isOpen ? "▾" : "▸"}</span> <bdi>{file.oldPath ? `${visible(file.oldPath)} → ` : ""}{visible(file.path)}</bdi>
      </button>
      <span class="quiet">{file.status === "modified" ? "" : file.status}</span>
      <Counts plus={file.insertions} minus={file.deletions} />
      {!isOpen && <span class="quiet">{isLarge(file) ? "large, folded" : "folded"}</span>}
      <label class="viewed"><input type="checkbox" checked={isViewed} onChange={(event) => change(event.currentTarget.checked)} /> viewed</label>
    </div>
  );
}

function GapRow({ row, expand }: { row: Row & { type: "gap" }; expand?: () => void }) {
  const lines = row.to - row.from + 1;
  const text = lines > 0 ? `${lines} unchanged ${lines === 1 ? "line" : "lines"}` : "";
  return (
    <div class="diff-gap">
      {expand ? <button type="button" class="plain" title="Reads the file. The service records the read." onClick={expand}>⋯ show {text}</button> : <span>⋯ {text}</span>}
      <span class="quiet">{visible(row.heading)}</span>
    </div>
  );
}

interface LineRowProps { row: Row & { type: "line" }; rows: Row[]; index: number; split: boolean; path: string; class: string }

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
  const { row, split, path, class: name } = props;
  const line = (row.left ?? row.right)!;
  if (!split) return (
    <div class={`diff-line ${line.type} ${name}`}>
      <span class="number">{line.old}</span><span class="number">{line.new}</span>
      <Code line={line} path={path} other={line.type === "context" ? undefined : counterpart(props)} />
    </div>
  );
  const isContext = row.left === row.right;
  return (
    <div class={`diff-pair ${name}`}>
      <Half line={row.left} number={row.left?.old} path={path} other={isContext ? undefined : row.right} />
      <Half line={row.right} number={row.right?.new} path={path} other={isContext ? undefined : row.left} />
    </div>
  );
}

function Half({ line, number, path, other }: { line?: Line; number?: number; path: string; other?: Line }) {
  return (
    <div class={`diff-half ${line?.type ?? "missing"}`}>
      <span class="number">{number}</span>{line && <Code line={line} path={path} other={other} />}
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
