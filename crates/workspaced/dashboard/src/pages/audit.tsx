import { useMemo, useState } from "preact/hooks";
import { query } from "../lib/api.ts";
import { count, dayTime, duration, exactTime, hoursAgo, visible } from "../lib/format.ts";
import { useNewest } from "../lib/newest.ts";
import { callHref, setParams, useRoute } from "../lib/route.ts";
import { follow, type StreamState } from "../lib/sse.ts";
import type { AuditRecord } from "../lib/types.ts";
import { NewestCount, NewestList, SPANS } from "../ui/newest_list.tsx";
import { Badge, Choice, Field } from "../ui/parts.tsx";
import { OUTCOMES, subject } from "./run/timeline.tsx";

const BY: [string, string][] = [["agent", "agents"], ["operator", "people"], ["service", "the service"], ["all", "everyone"]];
const DECISIONS: [string, string][] = [["", "every decision"], ["ALLOW", "ALLOW"], ["REQUIRE_APPROVAL", "REQUIRE_APPROVAL"], ["DENY", "DENY"]];
const NAMES = ["run", "tool", "pathPrefix", "decision", "outcome", "code", "actor", "label"] as const;

const idOf = (record: AuditRecord): string => `${record.runId} ${record.seq}`;

function download(records: AuditRecord[]): void {
  const url = URL.createObjectURL(new Blob([records.map((record) => JSON.stringify(record)).join("\n") + "\n"], { type: "application/x-ndjson" }));
  const link = document.createElement("a");
  link.href = url;
  link.download = "audit.ndjson";
  link.click();
  URL.revokeObjectURL(url);
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
  const since = useMemo(() => hoursAgo(span), [span]);
  const list = useNewest<AuditRecord>("/v1/audit", { ...filters, by: byFilter, since }, idOf, (changed, signal) =>
    void follow(`/v1/audit/stream${query({ ...filters, by: byFilter })}`, signal, { onState: setStream, onFresh: changed, onEvent: changed }));
  const field = (name: (typeof NAMES)[number], label: string, placeholder = "") =>
    <Field label={label} search={name === "pathPrefix"} value={filters[name]} placeholder={placeholder} onChange={(text) => setParams({ [name]: text })} />;
  return (
    <>
      <h1>Audit <NewestCount list={list} /></h1>
      <div class="toolbar filters">
        {field("pathPrefix", "Path", "src/")}{field("run", "Run")}{field("tool", "Tool")}{field("label", "Label", "name:value")}{field("actor", "Caller", "operator:name")}{field("code", "Code", "POLICY_DENIED")}
        <Choice label="Decision" value={filters.decision} options={DECISIONS} onChange={(decision) => setParams({ decision })} />
        <Choice label="Outcome" value={filters.outcome} options={OUTCOMES} onChange={(outcome) => setParams({ outcome })} />
        <Choice label="By" value={by} options={BY} onChange={(value) => setParams({ by: value === "agent" ? "" : value })} />
        <Choice label="Time" value={span} options={SPANS} onChange={(value) => setParams({ span: value })} />
        <span class="live" role="status">{stream === "live" ? "● live" : stream === "refused" ? "not live" : `◌ ${stream}`}</span>
        <button type="button" disabled={!list.items.length} onClick={() => download(list.items)}>Export {count(list.items.length)}</button>
      </div>
      <NewestList list={list} what="records" idOf={idOf} hrefOf={({ runId, seq }) => callHref(runId, seq)} row={(record, isFocused) => <AuditRow record={record} isFocused={isFocused} />}
        empty={query({ ...filters, span, by: byFilter === "agent" ? "" : by }) ? <p>No record matches. <a href="/audit">Show every record</a></p> : <p>No record yet. New records appear here.</p>} />
    </>
  );
}

function AuditRow({ record, isFocused }: { record: AuditRecord; isFocused: boolean }) {
  return (
    <a class={`row audit-row ${isFocused ? "focused" : ""}`} href={callHref(record.runId, record.seq)}>
      <time class="quiet" dateTime={record.timestamp} title={exactTime(record.timestamp)}>{dayTime(record.timestamp)}</time>
      <span class="cut">{record.runId} <span class="quiet">#{record.seq}</span></span>
      <span class="cut"><code class="tool">{record.tool}</code> <bdi>{visible(subject(record))}</bdi></span>
      <Badge state={record.outcome} short={record.outcome === "ok"} />
      <span class="cut quiet">{record.code && <code>{record.code}</code>} <bdi>{visible(record.reason ?? "")}</bdi></span>
      <span class="number quiet">{record.durationMicros ? duration(record.durationMicros) : ""}</span>
    </a>
  );
}
