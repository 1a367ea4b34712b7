import { useState } from "preact/hooks";
import { callTool, getText, query, get, runPath } from "../../lib/api.ts";
import { blame, type Change } from "../../lib/blame.ts";
import { parseDiff } from "../../lib/diff.ts";
import { linesOf, readPage } from "../../lib/files.ts";
import { bytes, count, visible } from "../../lib/format.ts";
import { languageOf, tokens } from "../../lib/highlight.ts";
import { useLoad } from "../../lib/hooks.ts";
import { callHref, setParams, useRoute } from "../../lib/route.ts";
import { type AuditRecord, type ChangeList, changesOf, type Run, type RunChange, type TreeEntry } from "../../lib/types.ts";
import { Empty, Failed, Field, Loading, Time } from "../../ui/parts.tsx";
import { LINE_HEIGHT } from "../../ui/diff_view.tsx";
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

/** The tree as it is, or as it was after a record. */
export function Files({ run }: { run: Run }) {
  const { params } = useRoute();
  const wanted = Number(params.get("at") ?? "");
  const seq = Number.isInteger(wanted) && wanted > 0 && wanted <= run.headSeq ? wanted : undefined;
  const path = params.get("path") ?? "";
  const search = params.get("q") ?? "";
  const [shownSeq, setShownSeq] = useState<number>();
  const changes = useLoad(`changes ${run.runId}`, (signal) => readChanges(run.runId, signal), 0, changesOf(run));
  const tree = useLoad(`tree ${run.runId} ${seq ?? "now"}`, (signal) =>
    callTool<{ entries: TreeEntry[]; truncated: boolean }>(run.runId, "list_dir", { maxDepth: 20, maxEntries: 10000, includeHidden: true, ...(seq ? { atSeq: seq } : {}) }, signal), 0, seq ? "" : changesOf(run));
  const entries = (tree.data?.entries ?? []).filter((entry) => entry.type !== "directory" && entry.path.toLowerCase().includes(search.toLowerCase()));
  const at = shownSeq ?? seq ?? run.headSeq;
  return (
    <>
      <div class="toolbar filters">
        <Field label="Search" search value={search} placeholder="path" onChange={(q) => setParams({ q })} />
        <label class="field grow"><span>After record {count(at)}{seq ? "" : " (now)"}</span>
          <input type="range" min={1} max={run.headSeq} value={at} onInput={(event) => setShownSeq(event.currentTarget.valueAsNumber)}
            onChange={(event) => { setShownSeq(undefined); setParams({ at: event.currentTarget.valueAsNumber >= run.headSeq ? "" : event.currentTarget.value }); }} />
        </label>
        <span class="quiet">The service records each look-up of the tree and of a file.</span>
      </div>
      {tree.error && <Failed error={tree.error} what="Reading the tree" retry={tree.reload} />}
      {changes.error && <Failed error={changes.error} what="Reading the changes" retry={changes.reload} />}
      <div class="files">
        <div class="tree">
          {!tree.data && !tree.error && <Loading what="the tree" />}
          {tree.data && !entries.length && <Empty><p>{search ? "No file matches." : "The tree is empty."}</p></Empty>}
          {tree.data?.truncated && <p class="tone-wait">The tree has more than 10,000 entries; the rest is not listed.</p>}
          {entries.length > 0 && <Windowed count={entries.length} rowHeight={ROW_HEIGHT} label="Files" render={(index) => <TreeRow entry={entries[index]} isOpen={entries[index].path === path} />} />}
        </div>
        <div class="file">{path ? <File key={`${path} ${seq ?? ""}`} run={run} path={path} seq={seq} changes={changes.data ?? []} /> : <Empty><p>Choose a file to see its content, its history, and which call wrote each line.</p></Empty>}</div>
      </div>
    </>
  );
}

function TreeRow({ entry, isOpen }: { entry: TreeEntry; isOpen: boolean }) {
  const params = new URLSearchParams(location.search);
  params.set("path", entry.path);
  return (
    <a class={`tree-row ${isOpen ? "focused" : ""}`} href={`${location.pathname}?${params.toString()}`}>
      <bdi class="cut">{visible(entry.path)}</bdi> {!entry.readable && <span class="tone-bad">{entry.kind ?? entry.reason ?? "not readable"}</span>}
      <span class="number quiet">{entry.sizeBytes === undefined ? "" : bytes(entry.sizeBytes)}</span>
    </a>
  );
}

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
  const width = Math.min(2000, lines.reduce((longest, line) => Math.max(longest, line.length), 40));
  return (
    <>
      {history && diffs.error && <Failed error={diffs.error} what="Reading the history" retry={diffs.reload} />}
      <Windowed class="diff-window" count={lines.length} rowHeight={LINE_HEIGHT} label={`Content of ${path}`} minWidth={`${width + 14}ch`} render={(index) => (
        <div class="diff-line context">
          {owners && <span class="owner">{owners[index] ? <a href={callHref(run, owners[index])}>#{owners[index]}</a> : <span class="quiet">base</span>}</span>}
          <span class="number">{index + 1}</span>
          <code>{tokens(lines[index], language).map((part, position) => <span key={position} class={part.kind && `syntax-${part.kind}`}>{visible(part.text)}</span>)}</code>
        </div>
      )} />
    </>
  );
}

