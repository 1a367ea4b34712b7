import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { callTool, getText, query, get, runPath } from "../../lib/api.ts";
import { blame, type Change } from "../../lib/blame.ts";
import { parseDiff } from "../../lib/diff.ts";
import { linesOf, readPage } from "../../lib/files.ts";
import { bytes, count, visible, visiblePath } from "../../lib/format.ts";
import { languageOf, tokens } from "../../lib/highlight.ts";
import { useLoad } from "../../lib/hooks.ts";
import { callHref, setParams, useRoute } from "../../lib/route.ts";
import { type AuditRecord, type ChangeList, changesOf, type Run, type RunChange, type TreeEntry } from "../../lib/types.ts";
import { Boundary } from "../../ui/boundary.tsx";
import { wrapped } from "../../lib/wrap.ts";
import { LINE_HEIGHT } from "../../ui/diff_view.tsx";
import { kindInWords } from "../../lib/words.ts";
import { Choice, Empty, Failed, Field, Foreign, Loading, Path, Time } from "../../ui/parts.tsx";
import { ROW_HEIGHT, Windowed } from "../../ui/window.tsx";

/** Every change of a run, in order. */
async function readChanges(run: string, signal: AbortSignal): Promise<RunChange[]> {
  const items: RunChange[] = [];
  let since = 0;
  for (;;) {
    const page = await get<ChangeList>(`${runPath(run)}/changes${query({ since, limit: 1000 })}`, signal);
    items.push(...page.items);
    if (!page.more) return items;
    since = page.nextSince;
  }
}

type Search = "names" | "content";
const SEARCHES: [string, string][] = [["names", "in names"], ["content", "in content"]];
const MOST_FOUND = 1000;

/** The tree as it is, or as it was after a record. */
export function Files({ run }: { run: Run }) {
  const { params } = useRoute();
  const wanted = Number(params.get("at") ?? "");
  const seq = Number.isInteger(wanted) && wanted > 0 && wanted <= run.headSeq ? wanted : undefined;
  const path = params.get("path") ?? "";
  const search = params.get("q") ?? "";
  const kind: Search = params.get("in") === "content" ? "content" : "names";
  const [shownSeq, setShownSeq] = useState<number>();
  const changes = useLoad(`changes ${run.runId}`, (signal) => readChanges(run.runId, signal), 0, changesOf(run));
  const at = shownSeq ?? seq ?? run.headSeq;
  return (
    <>
      <div class="toolbar filters">
        <Field label="Search" search value={search} placeholder={kind === "names" ? "part of a path, or a glob" : "text in files"} onChange={(q) => setParams({ q })} />
        <Choice label="Where" value={kind} options={SEARCHES} onChange={(value) => setParams({ in: value === "names" ? "" : value })} />
        <label class="field grow"><span>After record {count(at)}{seq ? "" : " (now)"}</span>
          <input type="range" min={1} max={run.headSeq} value={at} onInput={(event) => setShownSeq(event.currentTarget.valueAsNumber)}
            onChange={(event) => { setShownSeq(undefined); setParams({ at: event.currentTarget.valueAsNumber >= run.headSeq ? "" : event.currentTarget.value }); }} />
        </label>
        <span class="quiet">Viewing files is recorded in the audit.</span>
      </div>
      {changes.error && <Failed error={changes.error} what="Reading the changes" retry={changes.reload} />}
      <div class="files">
        <div class="tree">
          <Boundary what="the tree">{search ? <Found key={`${kind} ${search} ${seq ?? ""}`} run={run} text={search} kind={kind} seq={seq} path={path} /> : <Tree key={`${run.runId} ${seq ?? ""}`} run={run} seq={seq} path={path} />}</Boundary>
        </div>
        <div class="file">{path ? <File key={`${path} ${seq ?? ""}`} run={run} path={path} seq={seq} changes={changes.data ?? []} /> : <Empty><p>Choose a file to see its content, its history, and which call wrote each line.</p></Empty>}</div>
      </div>
    </>
  );
}

interface Listing { entries: TreeEntry[]; truncated: boolean }
interface Folder { version: number; entries?: TreeEntry[]; isCut?: boolean; error?: Error }

const SMALL_TREE = 300;

/** The entries of a whole tree, by their folders. */
function byFolder(entries: TreeEntry[], version: number): Map<string, Folder> {
  const folders = new Map<string, Folder>([["", { version, entries: [] }]]);
  for (const { path, type } of entries) if (type === "directory") folders.set(path, { version, entries: [] });
  for (const entry of entries) folders.get(entry.path.slice(0, Math.max(0, entry.path.lastIndexOf("/"))))?.entries!.push(entry);
  return folders;
}

/** The folders above a path, the root first. */
const above = (path: string): string[] => ["", ...path.split("/").slice(0, -1).map((_, index, names) => names.slice(0, index + 1).join("/"))];

/** The tree, whose folders are read when they are opened. */
function Tree({ run, seq, path }: { run: Run; seq?: number; path: string }) {
  const [open, setOpen] = useState(() => new Set(above(path)));
  const [folders, setFolders] = useState<ReadonlyMap<string, Folder>>(new Map());
  const version = seq ? 0 : changesOf(run);
  const known = useRef(folders);
  known.current = folders;
  useEffect(() => {
    const controller = new AbortController();
    const read = async (folder: string) => {
      let found: Folder;
      const list = (maxDepth: number, maxEntries: number) => callTool<Listing>(run.runId, "list_dir", { path: folder || ".", maxDepth, maxEntries, includeHidden: true, ...(seq ? { atSeq: seq } : {}) }, controller.signal);
      try {
        // A small tree is read at once, and shown whole.
        const all = folder === "" && !known.current.has("") ? await list(20, SMALL_TREE) : undefined;
        if (all && !all.truncated) {
          const whole = byFolder(all.entries, version);
          if (controller.signal.aborted) return;
          setFolders(whole);
          setOpen(new Set(whole.keys()));
          return;
        }
        const one = await list(1, 10000);
        found = { version, entries: one.entries, isCut: one.truncated };
      } catch (error) {
        found = { version, error: error as Error };
      }
      if (!controller.signal.aborted) setFolders((before) => new Map(before).set(folder, found));
    };
    // Each look-up is recorded: what is known is not read again.
    for (const folder of open) {
      const before = known.current.get(folder);
      if (!before || before.error || before.version !== version) void read(folder);
    }
    return () => controller.abort();
  }, [open, version]);
  const toggle = (folder: string) => setOpen((before) => {
    const after = new Set(before);
    if (!after.delete(folder)) after.add(folder);
    return after;
  });
  const rows: { entry: TreeEntry; depth: number }[] = [];
  const add = (folder: string, depth: number) => {
    for (const entry of folders.get(folder)?.entries ?? []) {
      rows.push({ entry, depth });
      if (entry.type === "directory" && open.has(entry.path)) add(entry.path, depth + 1);
    }
  };
  add("", 0);
  const failed = [...folders].find(([folder, { error }]) => error && open.has(folder));
  const cut = [...folders].filter(([folder, { isCut }]) => isCut && open.has(folder)).map(([folder]) => folder || "the root");
  return (
    <>
      {failed && <Failed error={failed[1].error!} what={`Reading ${failed[0] ? visible(failed[0]) : "the tree"}`} retry={() => setOpen(new Set(open))} />}
      {!folders.has("") && <Loading what="the tree" />}
      {folders.get("")?.entries?.length === 0 && <Empty><p>The tree is empty.</p></Empty>}
      {cut.length > 0 && <p class="tone-wait">{cut.map(visible).join(", ")}: more than 10,000 entries. The others are found by a search.</p>}
      {rows.length > 0 && <Windowed count={rows.length} rowHeight={ROW_HEIGHT} label="Files" render={(index) => <TreeRow key={rows[index].entry.path} {...rows[index]} isShown={rows[index].entry.path === path} isOpen={open.has(rows[index].entry.path)} toggle={toggle} />} />}
    </>
  );
}

interface TreeRowProps { entry: TreeEntry; depth: number; isShown: boolean; isOpen: boolean; toggle: (folder: string) => void }

function TreeRow({ entry, depth, isShown, isOpen, toggle }: TreeRowProps) {
  const name = visiblePath(entry.path.slice(entry.path.lastIndexOf("/") + 1));
  const style = { paddingLeft: `${8 + depth * 16}px` };
  if (entry.type === "directory") {
    return (
      <button type="button" class="tree-row" style={style} aria-expanded={isOpen} onClick={() => toggle(entry.path)}>
        <span aria-hidden="true">{isOpen ? "▾" : "▸"}</span> <bdi class="cut" title={visible(entry.path)}>{name}/</bdi> {entry.kind && !["DIRECTORY", "UNKNOWN"].includes(entry.kind) && <span class="quiet">{entry.kind.toLowerCase().replace("_", " ")}</span>}
      </button>
    );
  }
  return (
    <a class={`tree-row ${isShown ? "focused" : ""}`} style={style} href={hrefOf(entry.path)}>
      <bdi class="cut" title={visible(entry.path)}>{name}</bdi> {!entry.readable && <span class="tone-bad" title={entry.kind}>{entry.kind ? kindInWords(entry.kind) : (entry.reason ?? "not readable")}</span>}
      <span class="number quiet">{entry.sizeBytes === undefined ? "" : bytes(entry.sizeBytes)}</span>
    </a>
  );
}

/** The address of a file on this page. */
function hrefOf(path: string): string {
  const params = new URLSearchParams(location.search);
  params.set("path", path);
  return `${location.pathname}?${params.toString()}`;
}

interface FoundFile { path: string; line?: number; snippet?: string }

/** What a search finds: files by their names, or lines by their text. */
function Found({ run, text, kind, seq, path }: { run: Run; text: string; kind: Search; seq?: number; path: string }) {
  const load = useLoad(`search ${kind} ${run.runId} ${seq ?? "now"} ${text}`, async (signal): Promise<{ found: FoundFile[]; isCut: boolean }> => {
    const at = seq ? { atSeq: seq } : {};
    if (kind === "content") {
      const answer = await callTool<{ matches: FoundFile[]; truncated: boolean }>(run.runId, "search_text", { query: text, caseSensitive: false, maxMatches: MOST_FOUND, ...at }, signal);
      return { found: answer.matches, isCut: answer.truncated };
    }
    // Without a wildcard, a part of a path. Characters of a glob that are meant as themselves are escaped.
    const glob = /[*?]/.test(text) ? [text] : [`**/*${literal(text)}*`, `**/*${literal(text)}*/**`];
    const answer = await callTool<{ entries: TreeEntry[]; truncated: boolean }>(run.runId, "find_files", { glob, maxResults: MOST_FOUND, ...at }, signal);
    return { found: answer.entries, isCut: answer.truncated };
  });
  if (load.error) return <Failed error={load.error} what="Searching" retry={load.reload} />;
  if (!load.data) return <Loading what="what matches" />;
  const { found, isCut } = load.data;
  if (!found.length) return <Empty><p>{kind === "names" ? "No file matches." : "No file contains this text."}</p></Empty>;
  return (
    <>
      {isCut && <p class="tone-wait">More than {count(MOST_FOUND)} match; the first are shown.</p>}
      <Windowed count={found.length} rowHeight={ROW_HEIGHT} label="Files" render={(index) => {
        const { path: name, line, snippet } = found[index];
        return <a class={`tree-row ${name === path ? "focused" : ""}`} href={hrefOf(name)}><span class="cut"><Path path={name} />{line !== undefined && <span class="quiet">:{line}</span>} {snippet !== undefined && <Foreign text={snippet.trim()} class="quiet" />}</span></a>;
      }} />
    </>
  );
}

const literal = (text: string): string => text.replace(/[[\]{}!\\]/g, (character) => `\\${character}`);

interface FileProps { run: Run; path: string; seq?: number; changes: RunChange[] }

function File({ run, path, seq, changes }: FileProps) {
  const history = changes.filter((change) => change.seq <= (seq ?? Infinity) && change.files.some((file) => file.path === path));
  const [pages, setPages] = useState(1);
  const text = useLoad(`file ${path} ${seq ?? "now"}`, async (signal) => {
    const lines: string[] = [];
    let page = await readPage(run.runId, path, seq, 1, 1000, signal);
    lines.push(...linesOf(page.content));
    for (let number = 1; number < pages && page.nextStartLine; number += 1) {
      page = await readPage(run.runId, path, seq, page.nextStartLine, 1000, signal);
      lines.push(...linesOf(page.content));
    }
    return { lines, total: page.totalLines, hasMore: page.nextStartLine !== undefined && page.nextStartLine !== null };
  }, 0, `${seq ? "" : history.length} ${pages}`);
  const [isBlameOn, setBlame] = useState(false);
  return (
    <section aria-label={path}>
      <h2 class="wrap" title={visible(path)}><bdi>{visible(path)}</bdi></h2>
      <History run={run.runId} changes={history} path={path} />
      {text.error && <Failed error={text.error} what="Reading the file" retry={text.reload} />}
      {!text.data && !text.error && <Loading what="the file" />}
      {text.data && (
        <>
          <p class="inline"><span class="quiet">{count(text.data.total)} lines</span>
            <label><input type="checkbox" checked={isBlameOn} onChange={(event) => setBlame(event.currentTarget.checked)} /> which call wrote each line</label>
            {text.data.hasMore && <button type="button" onClick={() => setPages(pages + 5)}>Show more than {count(text.data.lines.length)} lines</button>}
          </p>
          <Lines run={run.runId} path={path} lines={text.data.lines} total={text.data.total} history={isBlameOn ? history : undefined} />
        </>
      )}
    </section>
  );
}

function History({ run, changes, path }: { run: string; changes: RunChange[]; path: string }) {
  if (!changes.length) return <p class="quiet">No call has changed this file.</p>;
  return (
    <details><summary>History: {changes.length} {changes.length === 1 ? "change" : "changes"}</summary>
      <ul class="rows">{[...changes].reverse().slice(0, 200).map((change) => (
        <li key={change.seq}><a href={callHref(run, change.seq)}>#{change.seq} <code>{change.tool}</code></a> {change.files.find((file) => file.path === path)?.change} <Time at={change.timestamp} /></li>
      ))}</ul>
    </details>
  );
}

/** Reads the diffs of the changes of a file. */
async function readDiffs(run: string, path: string, history: RunChange[], signal: AbortSignal): Promise<Change[]> {
  const found: Change[] = [];
  for (const change of history) {
    const record = await get<AuditRecord>(`${runPath(run)}/tool-calls/${encodeURIComponent(change.toolCallId)}`, signal);
    for (const uri of record.artifactUris) {
      const diff = parseDiff(await getText(`${runPath(run)}/artifacts/${uri.slice(uri.lastIndexOf("/") + 1)}`, signal)).find((file) => file.path === path);
      if (diff) found.push({ seq: change.seq, diff });
    }
  }
  return found;
}

interface LinesProps { run: string; path: string; lines: string[]; total: number; history?: RunChange[] }

function Lines({ run, path, lines, total, history }: LinesProps) {
  const diffs = useLoad(history ? `blame ${path} ${history.length}` : "", (signal) => readDiffs(run, path, history ?? [], signal));
  const owners = history && diffs.data ? blame(total, diffs.data) : undefined;
  const language = languageOf(path);
  const isWrapped = useRoute().params.get("wrap") !== "off";
  // The numbers of the lines, and of the records if they are shown.
  const gutter = owners ? 13 : 7;
  const linesOf = useMemo(() => (isWrapped ? (index: number, columns: number) => wrapped(lines[index], Math.max(10, columns - gutter)) : undefined), [lines, isWrapped, gutter]);
  const width = Math.min(2000, lines.reduce((longest, line) => Math.max(longest, line.length), 40));
  return (
    <>
      {history && diffs.error && <Failed error={diffs.error} what="Reading the history" retry={diffs.reload} />}
      <Windowed class={`diff-window ${isWrapped ? "wraps" : ""}`} linesOf={linesOf} count={lines.length} rowHeight={LINE_HEIGHT} label={`Content of ${path}`} minWidth={isWrapped ? undefined : `${width + 14}ch`} render={(index) => (
        <div class="diff-line context">
          {owners && <span class="owner">{owners[index] ? <a href={callHref(run, owners[index])}>#{owners[index]}</a> : <span class="quiet">base</span>}</span>}
          <span class="number">{index + 1}</span>
          <code>{tokens(lines[index], language).map((part, position) => <span key={position} class={part.kind && `syntax-${part.kind}`}>{visible(part.text)}</span>)}</code>
        </div>
      )} />
    </>
  );
}

