import { useEffect, useRef, useState } from "preact/hooks";
import { get, query } from "../lib/api.ts";
import { clockTime, count, duration, exactTime, visible } from "../lib/format.ts";
import { useKeys } from "../lib/hooks.ts";
import { callHref, navigate, setParams, useRoute } from "../lib/route.ts";
import { follow, type StreamState } from "../lib/sse.ts";
import type { AuditRecord, Page } from "../lib/types.ts";
import { Badge, Choice, Empty, Failed, Field, Loading } from "../ui/parts.tsx";
import { Windowed } from "../ui/window.tsx";
import { OUTCOMES, subject } from "./run/timeline.tsx";

const SPANS: [string, string][] = [["", "last hour"], ["24", "last 24 hours"], ["168", "last 7 days"], ["all", "from the beginning"]];
const DECISIONS: [string, string][] = [["", "every decision"], ["ALLOW", "ALLOW"], ["REQUIRE_APPROVAL", "REQUIRE_APPROVAL"], ["DENY", "DENY"]];
const NAMES = ["run", "tool", "path", "decision", "outcome"] as const;
/** More records are read on request. */
const FIRST_RECORDS = 5000;

const idOf = (record: AuditRecord): string => `${record.runId} ${record.seq}`;

/** The records of all runs under the filters of the address: the list, then the stream. */
function useAudit(filters: Record<string, string>, span: string) {
  const items = useRef<AuditRecord[]>([]);
  const [, render] = useState(0);
  const [state, setState] = useState<StreamState>("connecting");
  const [error, setError] = useState<Error>();
  const [isLoading, setLoading] = useState(true);
  const [turn, setTurn] = useState(0);
  const more = useRef<(() => Promise<void>) | undefined>(undefined);
  const key = JSON.stringify([filters, span]);
  useEffect(() => {
    const controller = new AbortController();
    const known = new Set<string>();
    items.current = [];
    setLoading(true);
    setError(undefined);
    const since = span === "all" ? undefined : new Date(Date.now() - Number(span || 1) * 3600_000).toISOString();
    const add = (records: AuditRecord[]) => {
      for (const record of records) {
        if (known.has(idOf(record))) continue;
        known.add(idOf(record));
        items.current.push(record);
      }
      render((count) => count + 1);
    };
    let cursor: string | undefined;
    const read = async (most: number) => {
      const end = items.current.length + most;
      do {
        const page = await get<Page<AuditRecord>>(`/v1/audit${query({ ...filters, since, limit: 1000, cursor })}`, controller.signal);
        add(page.items);
        cursor = page.nextCursor;
      } while (cursor && items.current.length < end);
      more.current = cursor ? () => read(FIRST_RECORDS) : undefined;
    };
    let reading: Promise<void> = Promise.resolve();
    // Now, and once more when the stream is open: nothing between the two is missed.
    const begin = () => (reading = reading.then(() => read(FIRST_RECORDS)).then(() => setLoading(false), (failure: Error) => void (controller.signal.aborted || setError(failure))));
    void begin();
    void follow(`/v1/audit/stream${query(filters)}`, controller.signal, {
      onState: setState,
      onEvent: (event) => add([JSON.parse(event.data) as AuditRecord]),
      onFresh: () => void begin(),
    });
    return () => controller.abort();
  }, [key, turn]);
  return { items: items.current, state, error, isLoading, retry: () => setTurn((count) => count + 1), more: more.current && (() => void more.current?.().catch(setError)) };
}

function download(records: AuditRecord[]): void {
  const url = URL.createObjectURL(new Blob([records.map((record) => JSON.stringify(record)).join("\n") + "\n"], { type: "application/x-ndjson" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = "audit.ndjson";
  link.click();
  URL.revokeObjectURL(url);
}

/** What every run did. */
export function Audit() {
  const { params } = useRoute();
  const filters = Object.fromEntries(NAMES.map((name) => [name, params.get(name) ?? ""]));
  const audit = useAudit(filters, params.get("span") ?? "");
  const [focus, setFocus] = useState(-1);
  const { items } = audit;
  useKeys({
    j: () => setFocus(Math.min(focus + 1, items.length - 1)),
    k: () => setFocus(Math.max(focus - 1, 0)),
    Enter: () => items[focus] && navigate(callHref(items[focus].runId, items[focus].seq)),
  });
  return (
    <>
      <h1>Audit <span class="quiet figure">{count(items.length)}{audit.more ? "+" : ""}</span></h1>
      <div class="toolbar filters">
        <Field label="Path" search value={filters.path} onChange={(path) => setParams({ path })} />
        <Field label="Run" value={filters.run} onChange={(run) => setParams({ run })} />
        <Field label="Tool" value={filters.tool} onChange={(tool) => setParams({ tool })} />
        <Choice label="Decision" value={filters.decision} options={DECISIONS} onChange={(decision) => setParams({ decision })} />
        <Choice label="Outcome" value={filters.outcome} options={OUTCOMES} onChange={(outcome) => setParams({ outcome })} />
        <Choice label="Time" value={params.get("span") ?? ""} options={SPANS} onChange={(span) => setParams({ span })} />
        <span class="live" role="status">{audit.state === "live" ? "● live" : audit.state === "refused" ? "not live" : `◌ ${audit.state}`}</span>
        <button type="button" disabled={!items.length} onClick={() => download(items)}>Export {count(items.length)}</button>
        {audit.more && <button type="button" onClick={audit.more}>Read more</button>}
      </div>
      {audit.error && <Failed error={audit.error} what="Reading the audit" retry={audit.retry} />}
      {audit.isLoading && !items.length && !audit.error && <Loading what="the audit" />}
      {!audit.isLoading && !items.length && <Empty><p>No record matches. New records appear here.</p></Empty>}
      <Windowed class="page-window" count={items.length} rowHeight={36} label="Records" focus={focus} follow={focus < 0} render={(index) => <AuditRow record={items[index]} isFocused={index === focus} />} />
    </>
  );
}

function AuditRow({ record, isFocused }: { record: AuditRecord; isFocused: boolean }) {
  return (
    <a class={`audit-row ${isFocused ? "focused" : ""}`} href={callHref(record.runId, record.seq)}>
      <time class="quiet" dateTime={record.timestamp} title={exactTime(record.timestamp)}>{clockTime(record.timestamp)}</time>
      <span class="cut">{record.runId} <span class="quiet">#{record.seq}</span></span>
      <span class="cut"><code class="tool">{record.tool}</code> <bdi>{visible(subject(record))}</bdi></span>
      <Badge state={record.outcome} short={record.outcome === "ok"} />
      <span class="cut quiet">{record.code && <code>{record.code}</code>} <bdi>{visible(record.reason ?? "")}</bdi></span>
      <span class="number quiet">{record.durationMicros ? duration(record.durationMicros) : ""}</span>
    </a>
  );
}
