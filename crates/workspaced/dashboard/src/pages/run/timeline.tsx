import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Rights } from "../../app.tsx";
import { endOf, lookedFor, subject, whoOf } from "../../lib/acts.ts";
import { commandOf, ended } from "../../lib/command.ts";
import { clockTime, count, duration, exactTime, span, visible } from "../../lib/format.ts";
import { getAll } from "../../lib/api.ts";
import { useKeys, useLoad } from "../../lib/hooks.ts";
import { type RecordCache, type RecordFilter, type Records, useMatches, useRecords } from "../../lib/records.ts";
import { callHref, navigate, runHref, setParams, useRoute } from "../../lib/route.ts";
import { isAside, isEditOfPerson, isReadOfPerson, type Item, itemsOf, type Step } from "../../lib/steps.ts";
import { type Approval, type AuditRecord, madeBy } from "../../lib/types.ts";
import { resolutionOf } from "../../lib/words.ts";
import { Boundary } from "../../ui/boundary.tsx";
import { Badge, Choice, Empty, Exit, Failed, Field, Loading } from "../../ui/parts.tsx";
import { ROW_HEIGHT, Windowed } from "../../ui/window.tsx";
import { Call } from "../call.tsx";

export const OUTCOMES: [string, string][] = [["", "every outcome"], ["ok", "ok"], ["refused", "not done"], ["pending", "asked a person"], ["failed", "service error"]];
const BY: [string, string][] = [["", "Agent activity"], ["all", "All"], ["agent", "the agent alone"], ["operator", "people"], ["service", "the service"]];
const KINDS: [string, string][] = [["", "everything"], ["changes", "changes"], ["reads", "reads"], ["events", "events"]];

/** So many records are read whole, to be grouped by steps. */
const MOST_GROUPED = 2000;

/** The filters of the address. The service searches by outcome and for events; words and kinds of calls are compared here. */
function filterOf(search: string, outcome: string, kind: string, chosen: string): RecordFilter | undefined {
  const by = chosen === "all" ? "" : chosen;
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
  const text = `${record.tool} ${record.reason ?? ""} ${record.input?.summary ?? ""} ${record.code ?? ""} ${lookedFor(record) ?? ""} ${record.stepId ?? ""} ${record.pathsRead.join(" ")} ${record.pathsWritten.join(" ")}`.toLowerCase();
  return words.every((word) => text.includes(word));
}

/** The rows of the timeline: records and the heads of steps. */
interface Rows { count: number; seqAt: (index: number) => number | undefined; stepAt?: (index: number) => Step | undefined; indexOf: (seq: number) => number; at: (index: number) => AuditRecord | undefined; newerThan: (seq: number) => number }

/** Every record by its number. */
const rowsByNumber = ({ cache }: Records): Rows => ({ count: cache.head, seqAt: (index) => (index >= 0 && index < cache.head ? index + 1 : undefined), indexOf: (seq) => Math.min(seq, cache.head) - 1, at: (index) => cache.get(index + 1), newerThan: (seq) => cache.head - seq });

/** The matches of a filter. */
const rowsOfMatches = (matches: AuditRecord[]): Rows => ({
  count: matches.length, seqAt: (index) => matches[index]?.seq, indexOf: (seq) => matches.findIndex((record) => record.seq === seq), at: (index) => matches[index],
  newerThan: (seq) => matches.length - 1 - matches.findLastIndex((record) => record.seq <= seq),
});

/** Records by steps. A record that is folded is found at the head of its step. */
function rowsBySteps(cache: RecordCache, items: Item[]): Rows {
  const seqOf = (item: Item | undefined) => (item && "seq" in item ? item.seq : undefined);
  return {
    count: items.length, seqAt: (index) => seqOf(items[index]), at: (index) => cache.get(seqOf(items[index]) ?? 0),
    stepAt: (index) => (items[index] && "step" in items[index] ? items[index].step : undefined),
    indexOf: (seq) => items.findLastIndex((item) => ("seq" in item ? item.seq : item.step.first) <= seq),
    newerThan: (seq) => items.filter((item) => "seq" in item && item.seq > seq).length,
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
  const [folded, setFolded] = useState(() => new Set<number>());
  // What became of the calls that waited.
  const approvals = useLoad(cache.hasWaited ? `approvals ${run}` : "", (signal) => getAll<Approval>("/v1/approvals", { run }, 2000, signal), 5000);
  const decided = useMemo(() => new Map(approvals.data?.items.map((approval) => [approval.toolCallId, approval])), [approvals.data]);
  // The changes of a reviewer are calls of their own, in the request of the decision.
  const edited = useMemo(() => new Map(approvals.data?.items.flatMap((approval) => (approval.editedSeq ? [[approval.editedSeq, approval] as const] : []))), [approvals.data]);
  const isWhole = !filter && cache.head <= MOST_GROUPED && cache.size >= cache.head;
  const items = useMemo(() => {
    if (!isWhole) return undefined;
    const all = Array.from({ length: cache.head }, (_, index) => cache.get(index + 1)!);
    return itemsOf(by === "all" ? all : all.filter((record) => record.seq === seq || !isAside(record)), folded, (record) => decided.get(record.toolCallId)?.state);
  }, [isWhole, cache, cache.head, by, folded, seq, decided]);
  const rows = filter ? rowsOfMatches(matches.items) : items ? rowsBySteps(cache, items) : rowsByNumber(records);
  useEffect(() => {
    if (!filter && cache.head > 0 && cache.head <= MOST_GROUPED) records.want("story", 1, cache.head);
  }, [filter === undefined, cache.head]);
  const isLoading = (records.isLoading && !records.error) || (filter !== undefined && matches.isLoading);
  const [focusSeq, setFocusSeq] = useState<number>();
  const focus = focusSeq === undefined ? -1 : rows.indexOf(focusSeq);
  // Older matches are put before the first one that was shown.
  const origin = useRef<{ key?: string; seq: number }>({ seq: 0 });
  if (filter && matches.items.length && origin.current.key !== filter.key) origin.current = { key: filter.key, seq: matches.items[0].seq };
  const above = filter ? Math.max(0, matches.items.findIndex((record) => record.seq >= origin.current.seq)) : 0;
  const [isAtEnd, setAtEnd] = useState(true);
  const [seen, setSeen] = useState(0);
  const last = filter ? (rows.seqAt(rows.count - 1) ?? 0) : cache.head;
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
  // Before the call is painted: the next key goes on from it.
  useLayoutEffect(() => {
    if (seq === undefined || located.current === seq || rows.indexOf(seq) < 0 || seq > cache.head) return;
    located.current = seq;
    setFocusSeq(seq);
  }, [seq, rows.count]);
  const open = (target: number | undefined) => {
    if (target === undefined) return;
    located.current = target;
    navigate(callHref(run, target) + location.search, seq !== undefined);
  };
  /** Focuses a record; the heads of steps are passed in the given direction. */
  const focusOn = (index: number, direction: 1 | -1 = -1) => {
    let at = Math.max(0, Math.min(index, rows.count - 1));
    while (rows.seqAt(at) === undefined && at + direction >= 0 && at + direction < rows.count) at += direction;
    const target = rows.seqAt(at);
    if (target === undefined) return;
    setFocusSeq(target);
    if (seq !== undefined) open(target);
  };
  const close = () => navigate(runHref(run) + location.search);
  const fold = (step: Step) => setFolded((before) => {
    const next = new Set(before);
    if (!next.delete(step.first)) next.add(step.first);
    return next;
  });
  const steps = items?.flatMap((item) => ("step" in item ? [item.step.first] : [])) ?? [];
  const isFolded = steps.length > 0 && folded.size >= steps.length;
  useKeys({ j: () => focusOn(focus + 1, 1), k: () => focusOn(focus < 0 ? rows.count - 1 : focus - 1), Home: () => focusOn(0, 1), End: () => focusOn(rows.count - 1), Enter: () => open(rows.seqAt(focus)), Escape: close });
  // Records that are no part of the story: what people looked at, and what runners and uploads did.
  const aside = items && by !== "all" ? cache.head - items.reduce((sum, item) => sum + ("seq" in item ? 1 : 0), 0) - foldedRecords(items, folded) : 0;
  const peopleReads = useMemo(() => (items && by !== "all" ? Array.from({ length: cache.head }, (_, index) => cache.get(index + 1)).filter((record) => record && record.seq !== seq && isReadOfPerson(record)).length : 0), [items, by, cache.head, seq]);
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
          <span class="inline"><button type="button" disabled={!rows.count} onClick={() => focusOn(0, 1)}>Oldest</button> <button type="button" disabled={!rows.count} onClick={() => focusOn(rows.count - 1)}>Newest</button>{steps.length > 1 && <> <button type="button" aria-pressed={isFolded} onClick={() => setFolded(isFolded ? new Set() : new Set(steps))}>Steps only</button></>}</span>
          <span class="live" role="status">{records.state === "live" ? (isLoading ? "reading…" : "● live") : records.state === "refused" ? "not live" : `◌ ${records.state}`}</span>
        </div>
        {error && <Failed error={error} what="Reading the records" retry={records.error ? records.retry : matches.retry} />}
        {!isLoading && !rows.count && !error && <Empty><p>{filter ? "No record matches the filters." : "No call yet. New calls appear here."}</p></Empty>}
        {filter && matches.older && <p class="quiet"><button type="button" disabled={matches.isLoading} onClick={matches.older}>{matches.isLoading ? "Searching…" : "Search older records"}</button> {matches.from > 2 ? `Records 1 to ${count(matches.from - 1)} are` : "Record 1 is"} not searched yet.</p>}
        <Windowed key={filter ? "matches" : "records"} count={rows.count} rowHeight={ROW_HEIGHT} label="Timeline" focus={focus} above={above} follow={seq === undefined && located.current === undefined} onEnd={setAtEnd}
          onRange={(first, end) => filter || items || records.want("view", first + 1, end + 1)}
          render={(index) => rows.stepAt?.(index) ? <StepRow step={rows.stepAt(index)!} isOpen={!folded.has(rows.stepAt(index)!.first)} toggle={() => fold(rows.stepAt!(index)!)} /> : <TimelineRow record={rows.at(index)} approval={decided.get(rows.at(index)?.toolCallId ?? "") ?? edited.get(rows.seqAt(index) ?? 0)} seq={rows.seqAt(index)!} before={items ? undefined : rows.at(index - 1)} hasSteps={items !== undefined} run={run} isFocused={index === focus || rows.seqAt(index) === seq} isBroken={rows.seqAt(index) === brokenSeq} />} />
        {isLoading && !rows.count && !error && <Loading what="the records" />}
        {aside > 0 && <p class="small quiet aside" title="Uploads, and what runners did, stand with the records that name them">{[peopleReads > 0 && `${count(peopleReads)} ${peopleReads === 1 ? "view" : "views"} by people`, aside > peopleReads && `${count(aside - peopleReads)} internal ${aside - peopleReads === 1 ? "record" : "records"}`].filter(Boolean).join(" and ")} hidden. <a href={`${runHref(run)}?by=all`}>Show all {count(cache.head)}</a></p>}
        {fresh > 0 && <button type="button" class="fresh" onClick={() => setFocusSeq(rows.seqAt(rows.count - 1))}>{count(fresh)} new</button>}
      </div>
      {seq !== undefined && (selected ? <Boundary key={selected.seq} what={`record ${selected.seq}`}><Call record={selected} rights={rights} close={close} last={cache.head} /></Boundary> : <section class="call" aria-label="Call">{records.error ? <Failed error={records.error} what={`Reading record ${seq}`} retry={records.retry} /> : records.isLoading || seq <= cache.head ? <Loading what={`record ${seq}`} /> : <Empty><p>The run has no record {seq}.</p></Empty>}</section>)}
    </div>
  );
}

/** How many records are hidden in folded steps. */
const foldedRecords = (items: Item[], folded: Set<number>): number => items.reduce((sum, item) => sum + ("step" in item && folded.has(item.step.first) ? item.step.records : 0), 0);

function StepRow({ step, isOpen, toggle }: { step: Step; isOpen: boolean; toggle: () => void }) {
  const notDone: [number, string][] = [[step.blocked, "blocked"], [step.denied, "denied"], [step.refused - step.blocked - step.denied, "failed"]];
  const parts: [number, string][] = [[step.reads, "read"], [step.changes, "changed"], [step.commands, "run"]];
  return (
    <button type="button" class="row step-row" aria-expanded={isOpen} onClick={toggle}>
      <span class="cut"><span aria-hidden="true">{isOpen ? "▾" : "▸"}</span> <bdi class="strong">{visible(step.name)}</bdi></span>
      <span class="inline">{step.waiting > 0 && <span class="tone-wait">◐ {step.waiting} waiting</span>} {notDone.map(([number, word]) => number > 0 && <span key={word} class="tone-bad">✕ {number} {word}</span>)} {step.isFailed !== undefined && <Badge state={step.isFailed ? "exit failed" : "exit"} text={`${step.isFailed ? "last command failed" : "commands passed"}${step.changedSince ? `; ${count(step.changedSince)} ${step.changedSince === 1 ? "change" : "changes"} since` : ""}`} />}</span>
      <span class="quiet small">{parts.filter(([number]) => number).map(([number, word]) => `${count(number)} ${word}`).join(" · ")}</span>
      <span class="number quiet small">{span((Date.parse(step.endedAt) - Date.parse(step.startedAt)) / 1000)}</span>
    </button>
  );
}

/** How a call has ended; of a command that is its exit code. */
const OutcomeOf = ({ record }: { record: AuditRecord }) => {
  const command = commandOf(record);
  return record.outcome === "ok" && command && ended(command) ? <Exit record={record} /> : <Badge {...endOf(record)} short={record.outcome === "ok"} />;
};

interface RowProps { record?: AuditRecord; approval?: Approval; seq: number; before?: AuditRecord; hasSteps: boolean; run: string; isFocused: boolean; isBroken: boolean }

function TimelineRow({ record, approval, seq, before, hasSteps, run, isFocused, isBroken }: RowProps) {
  if (!record) return <a class={`row call-row soft ${isFocused ? "focused" : ""}`} href={callHref(run, seq) + location.search}><span class="number quiet">{seq}</span><span class="quiet">…</span></a>;
  const weight = isAside(record) ? "soft" : record.outcome !== "ok" ? `loud ${record.outcome}` : record.mutates ? "change" : record.tool.includes(".") ? "" : "soft";
  const startsStep = !hasSteps && record.stepId && record.stepId !== before?.stepId;
  const decision = (approval && decisionOf(record, approval)) ?? editOf(record);
  if (decision) return <DecisionRow record={record} decision={decision} run={run} isFocused={isFocused} isBroken={isBroken} />;
  return (
    <a class={`row call-row ${hasSteps && record.stepId ? "of-step" : ""} ${weight} ${isFocused ? "focused" : ""} ${isBroken ? "is-broken" : ""}`} href={callHref(run, record.seq) + location.search} aria-current={isFocused ? "true" : undefined} title={visible(record.reason ?? "") || undefined}>
      <span class="number quiet">{record.seq}</span>
      <span class="cut">{startsStep && <span class="tag">{visible(record.stepId!)}</span>} <code class="tool">{record.tool}</code>{record.format && <span class="quiet"> {record.format}</span>} <bdi class="subject">{visible(subject(record))}</bdi> {record.code && record.outcome !== "pending" && <code class="tone-bad">{record.code}</code>} <bdi class="quiet">{visible(record.reason ?? "")}</bdi></span>
      <span class="row-state">{record.outcome === "pending" && approval ? <Badge state={approval.state} text={stateInWords(approval)} /> : <OutcomeOf record={record} />}</span>
      <span class="number quiet row-duration">{record.durationMicros ? duration(record.durationMicros) : ""}</span>
      <time class="quiet number" dateTime={record.timestamp} title={exactTime(record.timestamp)}>{clockTime(record.timestamp)}</time>
    </a>
  );
}

/** What became of a call that waited, and who decided; the note is in the approval. */
function stateInWords(approval: Approval): string | undefined {
  const { state, onBehalfOf, decidedBy } = approval;
  return state === "approved" || state === "denied" ? `${resolutionOf(approval)} by ${onBehalfOf ?? decidedBy}` : state === "failed" ? resolutionOf(approval) : undefined;
}

interface PersonsDecision { verb: "approved" | "denied" | "edited" | "reverted"; person: string; tool?: string; note?: string }

/** What a record says of a person's decision, if it is that of one: the approval, the denial, or their changes upon it. */
function decisionOf(record: AuditRecord, { state, decidedSeq, editedSeq, decidedBy, onBehalfOf, note }: Approval): PersonsDecision | undefined {
  const person = onBehalfOf ?? decidedBy;
  if (person === undefined || record.outcome === "pending" || (state !== "approved" && state !== "denied")) return undefined;
  if (record.seq === decidedSeq) return { verb: state, person, note };
  return editedSeq !== undefined && record.seq >= editedSeq ? { verb: "edited", person, note } : undefined;
}

/** A change that a person has made by a call of their own. */
const editOf = (record: AuditRecord): PersonsDecision | undefined => (isEditOfPerson(record) ? { verb: record.tool === "revert_calls" ? "reverted" : "edited", person: whoOf(record), tool: record.tool, note: record.reason } : undefined);

/** A row of a person, which is told from those of the agent. */
function DecisionRow({ record, decision: { verb, person, tool, note }, run, isFocused, isBroken }: { record: AuditRecord; decision: PersonsDecision; run: string; isFocused: boolean; isBroken: boolean }) {
  return (
    <a class={`row call-row decision ${isFocused ? "focused" : ""} ${isBroken ? "is-broken" : ""}`} href={callHref(run, record.seq) + location.search} aria-current={isFocused ? "true" : undefined} title={visible(note ?? "") || undefined}>
      <span class="number quiet">{record.seq}</span>
      <span class="cut"><bdi class="strong">{visible(person)}</bdi> {verb} <bdi class="subject">{visible(subject(record))}</bdi>{tool && <code class="quiet"> {tool}</code>}{note && <bdi class="quiet"> {visible(note)}</bdi>}</span>
      <span class="row-state"><Badge state={verb === "denied" ? verb : "approved"} text={verb} short /></span>
      <span class="number quiet row-duration">{record.durationMicros ? duration(record.durationMicros) : ""}</span>
      <time class="quiet number" dateTime={record.timestamp} title={exactTime(record.timestamp)}>{clockTime(record.timestamp)}</time>
    </a>
  );
}
