import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Rights } from "../../app.tsx";
import { clockTime, count, duration, exactTime, visible } from "../../lib/format.ts";
import { getAll } from "../../lib/api.ts";
import { useKeys, useLoad } from "../../lib/hooks.ts";
import { madeBy, type RecordFilter, type Records, useMatches, useRecords } from "../../lib/records.ts";
import { callHref, navigate, runHref, setParams, useRoute } from "../../lib/route.ts";
import type { Approval, AuditRecord } from "../../lib/types.ts";
import { Boundary } from "../../ui/boundary.tsx";
import { Badge, Choice, Empty, Exit, Failed, Field, Loading } from "../../ui/parts.tsx";
import { Windowed } from "../../ui/window.tsx";
import { Call } from "../call.tsx";

export const OUTCOMES: [string, string][] = [["", "every outcome"], ["ok", "ok"], ["refused", "refused"], ["pending", "waiting"], ["failed", "failed"]];
const BY: [string, string][] = [["", "everyone"], ["agent", "the agent"], ["operator", "people"], ["service", "the service"]];
const KINDS: [string, string][] = [["", "everything"], ["changes", "changes"], ["reads", "reads"], ["events", "events"]];

/** The filters of the address. The service searches by outcome and for events; words and kinds of calls are compared here. */
function filterOf(search: string, outcome: string, kind: string, by: string): RecordFilter | undefined {
  if (!search && !outcome && !kind && !by) return undefined;
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  return {
    key: JSON.stringify([search, outcome, kind, by]),
    server: { outcome, by, tool: kind === "events" ? "event.*" : undefined },
    isMatch: (record) => (!outcome || record.outcome === outcome) && (!by || madeBy(record) === by) && isOfKind(record, kind) && hasWords(record, words),
  };
}

function isOfKind(record: AuditRecord, kind: string): boolean {
  const isEvent = record.tool.startsWith("event.");
  if (kind === "changes") return record.mutates;
  if (kind === "reads") return !record.mutates && !record.tool.includes(".");
  return kind !== "events" || isEvent;
}

function hasWords(record: AuditRecord, words: string[]): boolean {
  if (!words.length) return true;
  const text = `${record.tool} ${record.reason ?? ""} ${record.input?.summary ?? ""} ${record.code ?? ""} ${record.stepId ?? ""} ${record.pathsRead.join(" ")} ${record.pathsWritten.join(" ")}`.toLowerCase();
  return words.every((word) => text.includes(word));
}

/** The rows of the timeline: every record by its number, or the matches of a filter. */
interface Rows { count: number; seqAt: (index: number) => number | undefined; indexOf: (seq: number) => number; at: (index: number) => AuditRecord | undefined; newerThan: (seq: number) => number }

function rowsOf({ cache }: Records, matches: AuditRecord[] | undefined): Rows {
  if (!matches) return { count: cache.head, seqAt: (index) => (index >= 0 && index < cache.head ? index + 1 : undefined), indexOf: (seq) => Math.min(seq, cache.head) - 1, at: (index) => cache.get(index + 1), newerThan: (seq) => cache.head - seq };
  return {
    count: matches.length, seqAt: (index) => matches[index]?.seq, indexOf: (seq) => matches.findIndex((record) => record.seq === seq), at: (index) => matches[index],
    newerThan: (seq) => matches.length - 1 - matches.findLastIndex((record) => record.seq <= seq),
  };
}

interface Props { run: string; seq?: number; rights: Rights; brokenSeq?: number }

/** Every call and event of a run, live, with the selected call beside it. */
export function Timeline({ run, seq, rights, brokenSeq }: Props) {
  const records = useRecords(run);
  const { cache } = records;
  const { params } = useRoute();
  const [search, outcome, kind, by] = [params.get("q") ?? "", params.get("outcome") ?? "", params.get("kind") ?? "", params.get("by") ?? ""];
  const filter = useMemo(() => filterOf(search, outcome, kind, by), [search, outcome, kind, by]);
  const matches = useMatches(run, records, filter);
  const rows = rowsOf(records, filter && matches.items);
  // What became of the calls that waited.
  const approvals = useLoad(cache.hasWaited ? `approvals ${run}` : "", (signal) => getAll<Approval>("/v1/approvals", { run }, 2000, signal), 5000);
  const decided = useMemo(() => new Map(approvals.data?.items.map((approval) => [approval.toolCallId, approval])), [approvals.data]);
  const isLoading = (records.isLoading && !records.error) || (filter !== undefined && matches.isLoading);
  const [focusSeq, setFocusSeq] = useState<number>();
  const focus = focusSeq === undefined ? -1 : rows.indexOf(focusSeq);
  // Older matches are put before the first one that was shown.
  const origin = useRef<{ key?: string; seq: number }>({ seq: 0 });
  if (filter && matches.items.length && origin.current.key !== filter.key) origin.current = { key: filter.key, seq: matches.items[0].seq };
  const above = filter ? Math.max(0, matches.items.findIndex((record) => record.seq >= origin.current.seq)) : 0;
  const [isAtEnd, setAtEnd] = useState(true);
  const [seen, setSeen] = useState(0);
  const last = rows.seqAt(rows.count - 1) ?? 0;
  useEffect(() => {
    if (isAtEnd) setSeen(last);
  }, [isAtEnd, last]);
  const opened = useRef<AuditRecord | undefined>(undefined);
  if (seq !== undefined) opened.current = cache.get(seq) ?? (opened.current?.seq === seq ? opened.current : undefined);
  const selected = seq === undefined ? undefined : opened.current;
  useEffect(() => {
    if (seq !== undefined && !selected) records.want("call", seq, seq);
  }, [seq, cache.head, selected]);
  const located = useRef<number | undefined>(undefined);
  useEffect(() => {
    if (seq === undefined || located.current === seq || rows.indexOf(seq) < 0 || seq > cache.head) return;
    located.current = seq;
    setFocusSeq(seq);
  }, [seq, rows.count]);
  const open = (target: number | undefined) => {
    if (target === undefined) return;
    located.current = target;
    navigate(callHref(run, target) + location.search, seq !== undefined);
  };
  const focusOn = (index: number) => {
    const target = rows.seqAt(Math.max(0, Math.min(index, rows.count - 1)));
    setFocusSeq(target);
    if (seq !== undefined) open(target);
  };
  const close = () => navigate(runHref(run) + location.search);
  useKeys({ j: () => focusOn(focus + 1), k: () => focusOn(focus < 0 ? rows.count - 1 : focus - 1), Home: () => focusOn(0), End: () => focusOn(rows.count - 1), Enter: () => open(rows.seqAt(focus)), Escape: close });
  const fresh = isAtEnd ? 0 : rows.newerThan(seen);
  const error = records.error ?? matches.error;
  return (
    <div class={`timeline ${seq === undefined ? "" : "with-call"}`}>
      <div class="timeline-list">
        <div class="toolbar filters">
          <Field label="Search" search value={search} placeholder="tool, path, reason" onChange={(q) => setParams({ q })} />
          <Choice label="Outcome" value={outcome} options={OUTCOMES} onChange={(value) => setParams({ outcome: value })} />
          <Choice label="Show" value={kind} options={KINDS} onChange={(value) => setParams({ kind: value })} />
          <Choice label="By" value={by} options={BY} onChange={(value) => setParams({ by: value })} />
          <span class="inline"><button type="button" disabled={!rows.count} onClick={() => focusOn(0)}>Oldest</button> <button type="button" disabled={!rows.count} onClick={() => focusOn(rows.count - 1)}>Newest</button></span>
          <span class="live" role="status">{records.state === "live" ? (isLoading ? "reading…" : "● live") : records.state === "refused" ? "not live" : `◌ ${records.state}`}</span>
        </div>
        {error && <Failed error={error} what="Reading the records" retry={records.error ? records.retry : matches.retry} />}
        {isLoading && !rows.count && !error && <Loading what="the records" />}
        {!isLoading && !rows.count && !error && <Empty><p>{filter ? "No record matches the filters." : "No call yet. New calls appear here."}</p></Empty>}
        {filter && matches.older && <p class="quiet"><button type="button" disabled={matches.isLoading} onClick={matches.older}>{matches.isLoading ? "Searching…" : "Search older records"}</button> {matches.from > 2 ? `Records 1 to ${count(matches.from - 1)} are` : "Record 1 is"} not searched yet.</p>}
        <Windowed key={filter ? "matches" : "records"} count={rows.count} rowHeight={44} label="Timeline" focus={focus} above={above} follow={seq === undefined && located.current === undefined} onEnd={setAtEnd}
          onRange={(first, end) => filter || records.want("view", first + 1, end + 1)}
          render={(index) => <TimelineRow record={rows.at(index)} approval={decided.get(rows.at(index)?.toolCallId ?? "")} seq={rows.seqAt(index)!} before={rows.at(index - 1)} run={run} isFocused={index === focus || rows.seqAt(index) === seq} isBroken={rows.seqAt(index) === brokenSeq} />} />
        {fresh > 0 && <button type="button" class="fresh" onClick={() => setFocusSeq(rows.seqAt(rows.count - 1))}>{count(fresh)} new</button>}
      </div>
      {seq !== undefined && (selected ? <Boundary key={selected.seq} what={`record ${selected.seq}`}><Call record={selected} rights={rights} close={close} last={cache.head} /></Boundary> : <section class="call" aria-label="Call">{records.error ? <Failed error={records.error} what={`Reading record ${seq}`} retry={records.retry} /> : records.isLoading || seq <= cache.head ? <Loading what={`record ${seq}`} /> : <Empty><p>The run has no record {seq}.</p></Empty>}</section>)}
    </div>
  );
}

/** What a record is about, in a few words. */
export function subject(record: AuditRecord): string {
  const paths = record.pathsWritten.length ? record.pathsWritten : record.pathsRead.length ? record.pathsRead : record.files.map(({ path }) => path);
  if (record.input?.summary) return record.input.summary;
  if (record.runId === "_service" && typeof record.input?.name === "string") return record.input.name;
  return paths.length > 3 ? `${paths.slice(0, 3).join(", ")} and ${paths.length - 3} more` : paths.join(", ");
}

interface RowProps { record?: AuditRecord; approval?: Approval; seq: number; before?: AuditRecord; run: string; isFocused: boolean; isBroken: boolean }

function TimelineRow({ record, approval, seq, before, run, isFocused, isBroken }: RowProps) {
  if (!record) return <a class={`call-row soft ${isFocused ? "focused" : ""}`} href={callHref(run, seq) + location.search}><span class="number quiet">{seq}</span><span class="quiet">…</span></a>;
  // What a person looked at is not part of the agent's story.
  const isLooking = madeBy(record) === "operator" && !record.mutates && record.outcome === "ok";
  const weight = isLooking ? "soft" : record.outcome !== "ok" ? "loud" : record.mutates ? "strong" : record.tool.includes(".") ? "" : "soft";
  const startsStep = record.stepId && record.stepId !== before?.stepId;
  return (
    <a class={`call-row ${weight} ${isFocused ? "focused" : ""} ${isBroken ? "is-broken" : ""}`} href={callHref(run, record.seq) + location.search} aria-current={isFocused ? "true" : undefined}>
      <span class="number quiet">{record.seq}</span>
      <time class="quiet" dateTime={record.timestamp} title={exactTime(record.timestamp)}>{clockTime(record.timestamp)}</time>
      <span class="cut"><code class="tool">{record.tool}</code>{record.format && <span class="quiet"> {record.format}</span>} <bdi>{visible(subject(record))}</bdi></span>
      <span class="row-state">{record.outcome === "pending" && approval ? <Badge state={approval.state} text={approval.resolution} /> : <Badge state={record.outcome} short={record.outcome === "ok"} />} <Exit record={record} /></span>
      <span class="cut quiet row-detail">{startsStep && <span class="step">{visible(record.stepId!)}</span>} {record.code && <code>{record.code}</code>} <bdi>{visible(record.reason ?? "")}</bdi></span>
      <span class="number quiet row-duration">{record.durationMicros ? duration(record.durationMicros) : ""}</span>
    </a>
  );
}
