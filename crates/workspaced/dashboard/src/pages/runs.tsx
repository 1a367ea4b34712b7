import { useMemo } from "preact/hooks";
import { bytes, count, hoursAgo, visible } from "../lib/format.ts";
import { useNewest } from "../lib/newest.ts";
import { navigate, runHref, setParams, useRoute } from "../lib/route.ts";
import type { Run } from "../lib/types.ts";
import { NewestCount, NewestList, SPANS } from "../ui/newest_list.tsx";
import { Badge, Choice, Field, Time } from "../ui/parts.tsx";

export const FIRST_RUN = `curl -H "Authorization: Bearer $OPERATOR" -H 'Content-Type: application/json' \\
  ${location.origin}/v1/runs -d '{"source":{"type":"empty"}}'`;

const REFRESH_MILLIS = 5000;
const STATES: [string, string][] = [["", "all but deleted"], ["any", "every state"], ["preparing", "preparing"], ["open", "open"], ["awaiting_approval", "waiting for approval"], ["closed", "closed"], ["deleted", "deleted"]];

const SORTS: [string, string][] = [["", "newest"], ["activity", "last activity"], ["changes", "most lines changed"], ["waiting", "most waiting"]];

function refresh(changed: () => void, signal: AbortSignal): void {
  const timer = setInterval(() => document.hidden || changed(), REFRESH_MILLIS);
  signal.addEventListener("abort", () => clearInterval(timer));
}

/** The runs under the filters of the address, in the order of the address. */
export function Runs() {
  const { params } = useRoute();
  const [q, state, label, by, span, sort] = ["q", "state", "label", "by", "span", "sort"].map((name) => params.get(name) ?? "");
  const createdAfter = useMemo(() => hoursAgo(span), [span]);
  const list = useNewest<Run>("/v1/runs", { q, state: state === "any" ? "" : state, deleted: state ? "" : "false", label, actor: by && `operator:${by}`, createdAfter, sort }, ({ runId }) => runId, refresh);
  const open = (event: SubmitEvent) => {
    event.preventDefault();
    const run = String(new FormData(event.currentTarget as HTMLFormElement).get("run")).trim();
    if (run) navigate(runHref(run));
  };
  return (
    <>
      <h1>Runs <NewestCount list={list} /></h1>
      <div class="toolbar filters">
        <Field label="Search" search value={q} placeholder="ID, label, repository, creator" onChange={(text) => setParams({ q: text })} />
        <Field label="Label" value={label} placeholder="name:value" onChange={(text) => setParams({ label: text })} />
        <Field label="Created by" value={by} placeholder="operator" onChange={(text) => setParams({ by: text })} />
        <Choice label="State" value={state} options={STATES} onChange={(value) => setParams({ state: value })} />
        <Choice label="Created" value={span} options={SPANS} onChange={(value) => setParams({ span: value })} />
        <Choice label="Order" value={sort} options={SORTS} onChange={(value) => setParams({ sort: value })} />
        <form onSubmit={open}><label class="field"><span>Open a run</span><input name="run" type="search" placeholder="run ID, then Enter" /></label></form>
      </div>
      <NewestList list={list} what="runs" idOf={({ runId }) => runId} hrefOf={({ runId }) => runHref(runId)} row={(run, isFocused) => <RunRow run={run} isFocused={isFocused} />}
        head={<div class="row run-row table-head" aria-hidden="true"><span>Run</span><span>State</span><span>Repository and labels</span><span class="number">Calls</span><span class="number">Changes</span><span class="number">Denied</span><span class="number">Waiting</span><span class="number">Disk</span><span>Created</span></div>}
        empty={q || state || label || by || span ? <p>No run matches. <a href="/runs">Show every run</a></p> : <><p>No run yet. Create one, then give its token to an agent:</p><pre>{FIRST_RUN}</pre></>} />
    </>
  );
}

function RunRow({ run, isFocused }: { run: Run; isFocused: boolean }) {
  const { counts } = run;
  return (
    <a class={`row run-row ${isFocused ? "focused" : ""}`} href={runHref(run.runId)}>
      <span class="cut strong">{run.runId}</span>
      <span><Badge state={run.state} /></span>
      <span class="cut quiet"><bdi>{visible(repositoryOf(run))}</bdi> {Object.entries(run.labels).map(([name, value]) => `${visible(name)}:${visible(value)}`).join("  ")}</span>
      <span class="number" title="calls">{count(counts.calls)}</span>
      <span class="number" title="changes">{count(counts.mutations)}</span>
      <span class={`number ${counts.denied ? "tone-bad" : "quiet"}`} title="denied">{count(counts.denied)}</span>
      <span class={`number ${counts.pendingApprovals ? "tone-wait" : "quiet"}`} title="waiting">{count(counts.pendingApprovals)}</span>
      <span class="number quiet" title="disk">{bytes(run.disk.bytes)}</span>
      <span class="quiet"><Time at={run.createdAt} /></span>
    </a>
  );
}

/** Where a run's files come from, without what all repositories have in common. */
function repositoryOf({ source }: Run): string {
  return (source.url ?? source.path ?? "").replace(/^https:\/\//, "").replace(/\.git$/, "");
}
