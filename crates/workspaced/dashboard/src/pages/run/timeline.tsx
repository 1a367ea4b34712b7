import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Rights } from "../../app.tsx";
import { clockTime, count, duration, exactTime, visible } from "../../lib/format.ts";
import { useKeys } from "../../lib/hooks.ts";
import { useRecords } from "../../lib/records.ts";
import { callHref, navigate, runHref, setParams, useRoute } from "../../lib/route.ts";
import type { AuditRecord } from "../../lib/types.ts";
import { Badge, Choice, Empty, Failed, Field, Loading } from "../../ui/parts.tsx";
import { Windowed } from "../../ui/window.tsx";
import { Call } from "../call.tsx";

export const OUTCOMES: [string, string][] = [["", "every outcome"], ["ok", "ok"], ["refused", "refused"], ["pending", "waiting"], ["failed", "failed"]];
const KINDS: [string, string][] = [["", "everything"], ["changes", "changes"], ["reads", "reads"], ["events", "events"]];

/** Whether a record matches the words of a search and the filters. */
function isShown(record: AuditRecord, search: string, outcome: string, kind: string): boolean {
  if (outcome && record.outcome !== outcome) return false;
  const isEvent = record.tool.includes(".");
  if (kind === "changes" && !record.mutates) return false;
  if (kind === "reads" && (record.mutates || isEvent)) return false;
  if (kind === "events" && !isEvent) return false;
  if (!search) return true;
  const text = `${record.tool} ${record.reason ?? ""} ${record.input?.summary ?? ""} ${record.code ?? ""} ${record.stepId ?? ""} ${record.pathsRead.join(" ")} ${record.pathsWritten.join(" ")}`.toLowerCase();
  return search.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

interface Props { run: string; seq?: number; rights: Rights; brokenSeq?: number }

/** Every call and event of a run, live, with the selected call beside it. */
export function Timeline({ run, seq, rights, brokenSeq }: Props) {
  const records = useRecords(run);
  const { params } = useRoute();
  const [search, outcome, kind] = [params.get("q") ?? "", params.get("outcome") ?? "", params.get("kind") ?? ""];
  const total = records.items.length;
  const first = records.items[0]?.seq ?? 1;
  const shown = useMemo(() => records.items.filter((record) => isShown(record, search, outcome, kind)), [total, first, records.isLoading, search, outcome, kind]);
  const origin = useRef(Infinity);
  if (total && origin.current === Infinity) origin.current = first;
  const [focusSeq, setFocusSeq] = useState<number>();
  const focus = focusSeq === undefined ? -1 : shown.findIndex((record) => record.seq === focusSeq);
  const [isAtEnd, setAtEnd] = useState(true);
  const [seen, setSeen] = useState(0);
  useEffect(() => {
    if (isAtEnd) setSeen(shown.at(-1)?.seq ?? 0);
  }, [isAtEnd, shown]);
  const selected = seq === undefined ? undefined : records.items[seq - first];
  // An older call that is opened by its address is read down to.
  useEffect(() => {
    if (seq !== undefined && seq < first) records.older?.();
  }, [seq, first]);
  const located = useRef<number | undefined>(undefined);
  useEffect(() => {
    if (seq === undefined || located.current === seq || !selected) return;
    located.current = seq;
    setFocusSeq(seq);
  }, [seq, selected, shown]);
  const open = (record: AuditRecord | undefined) => {
    if (!record) return;
    located.current = record.seq;
    navigate(callHref(run, record.seq) + location.search, seq !== undefined);
  };
  const move = (by: number) => {
    const next = Math.max(0, Math.min(focus + by, shown.length - 1));
    setFocusSeq(shown[next]?.seq);
    if (seq !== undefined) open(shown[next]);
  };
  const close = () => navigate(runHref(run) + location.search);
  useKeys({ j: () => move(1), k: () => move(-1), Enter: () => open(shown[focus]), Escape: close });
  const fresh = isAtEnd ? 0 : shown.length - 1 - shown.findLastIndex((record) => record.seq <= seen);
  return (
    <div class={`timeline ${seq === undefined ? "" : "with-call"}`}>
      <div class="timeline-list">
        <div class="toolbar filters">
          <Field label="Search" search value={search} placeholder="tool, path, reason" onChange={(q) => setParams({ q })} />
          <Choice label="Outcome" value={outcome} options={OUTCOMES} onChange={(value) => setParams({ outcome: value })} />
          <Choice label="Show" value={kind} options={KINDS} onChange={(value) => setParams({ kind: value })} />
          <span class="live" role="status">{records.state === "live" ? (records.isLoading ? `reading ${count(total)}` : "● live") : records.state === "refused" ? "not live" : `◌ ${records.state}`}</span>
        </div>
        {records.error && <Failed error={records.error} what="Reading the records" retry={records.retry} />}
        {records.isLoading && !total && !records.error && <Loading what="the records" />}
        {!records.isLoading && !shown.length && <Empty><p>{total ? "No record matches the filters." : "No call yet. New calls appear here."}</p></Empty>}
        {records.older && <p class="quiet"><button type="button" onClick={records.older}>Older records</button> {first > 2 ? `Records 1 to ${count(first - 1)} are` : "Record 1 is"} not read yet; search and filters apply to those that are.</p>}
        <Windowed count={shown.length} rowHeight={44} label="Timeline" focus={focus} above={shown.findIndex((record) => record.seq >= origin.current)} follow={seq === undefined && located.current === undefined} onEnd={setAtEnd}
          render={(index) => <TimelineRow record={shown[index]} before={shown[index - 1]} run={run} isFocused={index === focus || shown[index].seq === seq} isBroken={shown[index].seq === brokenSeq} />} />
        {fresh > 0 && <button type="button" class="fresh" onClick={() => setFocusSeq(shown.at(-1)?.seq)}>{count(fresh)} new</button>}
      </div>
      {seq !== undefined && (selected ? <Call key={selected.seq} record={selected} rights={rights} close={close} last={first + total - 1} /> : <section class="call" aria-label="Call">{records.isLoading || seq < first ? <Loading what={`record ${seq}`} /> : <Empty><p>The run has no record {seq}.</p></Empty>}</section>)}
    </div>
  );
}

/** What a record is about, in a few words. */
export function subject(record: AuditRecord): string {
  const paths = record.pathsWritten.length ? record.pathsWritten : record.pathsRead.length ? record.pathsRead : record.files.map(({ path }) => path);
  if (record.input?.summary) return record.input.summary;
  return paths.length > 3 ? `${paths.slice(0, 3).join(", ")} and ${paths.length - 3} more` : paths.join(", ");
}

interface RowProps { record: AuditRecord; before?: AuditRecord; run: string; isFocused: boolean; isBroken: boolean }

function TimelineRow({ record, before, run, isFocused, isBroken }: RowProps) {
  const weight = record.outcome !== "ok" ? "loud" : record.mutates ? "strong" : record.tool.includes(".") ? "" : "soft";
  const startsStep = record.stepId && record.stepId !== before?.stepId;
  return (
    <a class={`call-row ${weight} ${isFocused ? "focused" : ""} ${isBroken ? "is-broken" : ""}`} href={callHref(run, record.seq) + location.search} aria-current={isFocused ? "true" : undefined}>
      <span class="number quiet">{record.seq}</span>
      <time class="quiet" dateTime={record.timestamp} title={exactTime(record.timestamp)}>{clockTime(record.timestamp)}</time>
      <span class="cut"><code class="tool">{record.tool}</code> <bdi>{visible(subject(record))}</bdi></span>
      <span class="row-state"><Badge state={record.outcome} short={record.outcome === "ok"} /></span>
      <span class="cut quiet row-detail">{startsStep && <span class="step">{visible(record.stepId!)}</span>} {record.code && <code>{record.code}</code>} <bdi>{visible(record.reason ?? "")}</bdi></span>
      <span class="number quiet row-duration">{record.durationMicros ? duration(record.durationMicros) : ""}</span>
    </a>
  );
}
