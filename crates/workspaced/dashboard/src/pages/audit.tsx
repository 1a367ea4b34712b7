import { useMemo, useState } from "preact/hooks";
import { download, get, query } from "../lib/api.ts";
import { dayTime, exactTime, hoursAgo, visible } from "../lib/format.ts";
import { useLoad } from "../lib/hooks.ts";
import { useNewest } from "../lib/newest.ts";
import { callHref, setParams, useRoute } from "../lib/route.ts";
import { follow, type StreamState } from "../lib/sse.ts";
import { MOST, type Suggested, suggestionsOf } from "../lib/suggestions.ts";
import type { AuditRecord, Page, Run } from "../lib/types.ts";
import { NewestCount, NewestList, SPANS } from "../ui/newest_list.tsx";
import { Badge, Choice, Failed, Field, Filters } from "../ui/parts.tsx";
import { endOf, subject, verdictOf, whoOf } from "../lib/acts.ts";
import { OUTCOMES } from "./run/timeline.tsx";

const BY: [string, string][] = [["agent", "agents"], ["operator", "people"], ["service", "the service"], ["all", "All"]];
const DECISIONS: [string, string][] = [["", "every decision"], ["ALLOW", "allowed"], ["REQUIRE_APPROVAL", "needs approval"], ["DENY", "blocked or denied"]];
const NAMES = ["run", "tool", "pathPrefix", "pathSuffix", "decision", "outcome", "code", "actor", "label"] as const;

const idOf = (record: AuditRecord): string => `${record.runId} ${record.seq}`;

const FORMATS: [string, string][] = [["ndjson", "as NDJSON"], ["csv", "as CSV"], ["ocsf", "as OCSF"]];

/** Every record that matches, which the service sends as one file. */
function Export({ filters }: { filters: Record<string, string | undefined> }) {
  const [format, setFormat] = useState("ndjson");
  const [isBusy, setBusy] = useState(false);
  const [error, setError] = useState<Error>();
  const save = async () => {
    setBusy(true);
    setError(undefined);
    try {
      await download(`/v1/audit/export${query({ ...filters, format })}`, format === "csv" ? "audit.csv" : "audit.ndjson");
    } catch (failure) {
      setError(failure as Error);
    }
    setBusy(false);
  };
  return (
    <>
      <Choice label="Export all that match" value={format} options={FORMATS} onChange={setFormat} />
      <button type="button" disabled={isBusy} onClick={() => void save()}>{isBusy ? "Exporting…" : "Export"}</button>
      {error && <Failed error={error} what="Exporting" retry={() => void save()} />}
    </>
  );
}

/** The records that are looked at, the newest of all and the newest refused ones: each has its own values. */
const RECORDS = 500;

async function readSuggestions(signal: AbortSignal): Promise<Suggested> {
  const newest = (outcome?: string) => get<Page<AuditRecord>>(`/v1/audit${query({ order: "desc", limit: RECORDS, outcome })}`, signal);
  const [all, refused, runs] = await Promise.all([newest(), newest("refused"), get<Page<Run>>(`/v1/runs${query({ order: "desc", limit: MOST })}`, signal)]);
  return suggestionsOf([...all.items, ...refused.items], runs.items);
}

/** The time at which a day begins here, `days` later. */
function dayOf(text: string, days: number): string {
  const [year, month, day] = text.split("-").map(Number);
  const time = new Date(year, month - 1, day + days);
  return text && !Number.isNaN(time.getTime()) ? time.toISOString() : "";
}

/** What every run did, newest first, under the filters of the address. The stream says when there is more. */
export function Audit() {
  const { params } = useRoute();
  const [stream, setStream] = useState<StreamState>("connecting");
  const filters = Object.fromEntries(NAMES.map((name) => [name, params.get(name) ?? ""]));
  const span = params.get("span") ?? "";
  // The story is that of the agents: what people look at is shown on request.
  const by = params.get("by") || "agent";
  const byFilter = by === "all" ? "" : by;
  const [from, to] = [params.get("from") ?? "", params.get("to") ?? ""];
  const since = useMemo(() => dayOf(from, 0) || hoursAgo(span), [from, span]);
  const wanted = { ...filters, by: byFilter, since, until: dayOf(to, 1) };
  const list = useNewest<AuditRecord>("/v1/audit", wanted, idOf, (changed, signal) =>
    void follow(`/v1/audit/stream${query({ ...filters, by: byFilter })}`, signal, { onState: setStream, onFresh: changed, onEvent: changed }));
  // Read once somebody begins to filter.
  const [isFiltering, setFiltering] = useState(false);
  const suggested = useLoad(isFiltering ? "suggestions" : "", readSuggestions);
  // Words are completed to what the service takes.
  const field = (name: keyof Suggested, label: string, placeholder = "", complete = (text: string) => text) =>
    <Field label={label} suggestions={suggested.data?.[name] ?? []} value={filters[name]} placeholder={placeholder} onChange={(text) => setParams({ [name]: text && complete(text) })} />;
  return (
    <>
      <h1>Audit <NewestCount list={list} /></h1>
      <Filters isSet={Object.entries(filters).some(([name, value]) => value !== "" && !name.startsWith("path") && name !== "run") || [span, from, to, params.get("by")].some(Boolean)} onFocusIn={() => setFiltering(true)}>
        <Field label="File" suggestions={suggested.data?.pathPrefix ?? []} search value={filters.pathPrefix || filters.pathSuffix} placeholder="name, path, or folder/" onChange={(text) => setParams(text.endsWith("/") ? { pathPrefix: text, pathSuffix: "" } : { pathPrefix: "", pathSuffix: text })} />{field("run", "Run")}{field("tool", "Tool")}{field("label", "Label", "agent", (text) => (text.includes(":") ? text : `agent:${text}`))}{field("actor", "Who", "name", (text) => (text.includes(":") ? text : `operator:${text}`))}{field("code", "Code", "POLICY_DENIED", (text) => text.toUpperCase())}
        <Choice label="Decision" value={filters.decision} options={DECISIONS} onChange={(decision) => setParams({ decision })} />
        <Choice label="Outcome" value={filters.outcome} options={OUTCOMES} onChange={(outcome) => setParams({ outcome })} />
        <Choice label="By" value={by} options={BY} onChange={(value) => setParams({ by: value === "agent" ? "" : value })} />
        <Choice label="Time" value={span} options={SPANS} onChange={(value) => setParams({ span: value })} />
        <Day label="From" value={from} onChange={(value) => setParams({ from: value })} />
        <Day label="To" value={to} onChange={(value) => setParams({ to: value })} />
        <Export filters={wanted} />
        <span class="live" role="status">{stream === "live" ? "● live" : stream === "refused" ? "not live" : `◌ ${stream}`}</span>
      </Filters>
      {suggested.error && <Failed error={suggested.error} what="Loading suggestions" retry={suggested.reload} />}
      <NewestList list={list} what="records" idOf={idOf} hrefOf={({ runId, seq }) => callHref(runId, seq)} row={(record, isFocused) => <AuditRow record={record} isFocused={isFocused} />}
        head={<div class="row audit-row table-head" aria-hidden="true"><span>When</span><span>Who</span><span>Run</span><span>Did</span><span>Outcome</span><span>Why</span></div>}
        empty={query({ ...filters, span, from, to, by: byFilter === "agent" ? "" : by }) ? <p>No record matches. <a href="/audit">Show every record</a></p> : <p>No record yet. New records appear here.</p>} />
    </>
  );
}

function AuditRow({ record, isFocused }: { record: AuditRecord; isFocused: boolean }) {
  const verdict = verdictOf(record);
  return (
    <a class={`row audit-row ${isFocused ? "focused" : ""}`} href={callHref(record.runId, record.seq)}>
      <time class="quiet" dateTime={record.timestamp} title={exactTime(record.timestamp)}>{dayTime(record.timestamp)}</time>
      <span class="cut"><bdi>{visible(whoOf(record))}</bdi></span>
      <span class="cut">{record.runId} <span class="quiet">#{record.seq}</span></span>
      <span class="cut">{verdict ? <>{verdict} <bdi>{visible(subject(record))}</bdi> <code class="quiet">{record.tool}</code></> : <><code class="tool">{record.tool}</code> <bdi>{visible(subject(record))}</bdi></>}</span>
      <Badge {...endOf(record)} short={record.outcome === "ok"} />
      <span class="cut quiet">{record.code && <code>{record.code}</code>} <bdi>{visible(record.reason ?? "")}</bdi></span>
    </a>
  );
}

function Day({ label, value, onChange }: { label: string; value: string; onChange: (value: string) => void }) {
  return <label class="field"><span>{label}</span><input type="date" value={value} onChange={(event) => onChange(event.currentTarget.value)} /></label>;
}
