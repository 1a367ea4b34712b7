import { useState } from "preact/hooks";
import { getAll } from "../lib/api.ts";
import { bytes, count, visible } from "../lib/format.ts";
import { useKeys, useLoad } from "../lib/hooks.ts";
import { navigate, runHref, setParams, useRoute } from "../lib/route.ts";
import type { Run } from "../lib/types.ts";
import { Badge, Choice, Empty, Failed, Field, Loading, Time } from "../ui/parts.tsx";
import { Windowed } from "../ui/window.tsx";

export const FIRST_RUN = `curl -H "Authorization: Bearer $OPERATOR" -H 'Content-Type: application/json' \\
  ${location.origin}/v1/runs -d '{"source":{"type":"empty"}}'`;

const MOST_RUNS = 20000;
const STATES: [string, string][] = [["", "every state"], ["preparing", "preparing"], ["open", "open"], ["awaiting_approval", "waiting for approval"], ["closed", "closed"], ["deleted", "deleted"]];

function matches(run: Run, search: string): boolean {
  const text = `${run.runId} ${run.createdBy ?? ""} ${Object.entries(run.labels).map(([name, value]) => `${name}:${value}`).join(" ")} ${run.source.url ?? ""}`.toLowerCase();
  return search.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

/** Every run, newest first. */
export function Runs() {
  const { params } = useRoute();
  const [state, search] = [params.get("state") ?? "", params.get("q") ?? ""];
  const load = useLoad(`runs ${state}`, (signal) => getAll<Run>("/v1/runs", { state }, MOST_RUNS, signal), 5000);
  const [focus, setFocus] = useState(-1);
  const runs = (load.data?.items ?? []).filter((run) => matches(run, search)).sort((a, b) => b.createdAt.localeCompare(a.createdAt));
  useKeys({
    j: () => setFocus(Math.min(focus + 1, runs.length - 1)),
    k: () => setFocus(Math.max(focus - 1, 0)),
    Enter: () => runs[focus] && navigate(runHref(runs[focus].runId)),
  });
  return (
    <>
      <h1>Runs {load.data && <span class="quiet figure">{count(runs.length)}{load.data.isComplete ? "" : "+"}</span>}</h1>
      <div class="toolbar filters">
        <Field label="Search" search value={search} placeholder="run, label:value, creator" onChange={(q) => setParams({ q })} />
        <Choice label="State" value={state} options={STATES} onChange={(value) => setParams({ state: value })} />
      </div>
      {load.error && <Failed error={load.error} what="Reading the runs" retry={load.reload} />}
      {!load.data && !load.error && <Loading what="runs" />}
      {load.data && !runs.length && (search || state ? <Empty><p>No run matches. <a href="/runs">Show every run</a></p></Empty> : <Empty><p>No run yet. Create one, then give its token to an agent:</p><pre>{FIRST_RUN}</pre></Empty>)}
      {runs.length > 0 && (
        <>
          <div class="run-row table-head" aria-hidden="true"><span>Run</span><span>State</span><span>Labels</span><span class="number">Calls</span><span class="number">Changes</span><span class="number">Denied</span><span class="number">Waiting</span><span class="number">Disk</span><span>Created</span></div>
          <Windowed class="page-window" count={runs.length} rowHeight={36} label="Runs" focus={focus} render={(index) => <RunRow run={runs[index]} isFocused={index === focus} />} />
        </>
      )}
    </>
  );
}

function RunRow({ run, isFocused }: { run: Run; isFocused: boolean }) {
  const { counts } = run;
  return (
    <a class={`run-row ${isFocused ? "focused" : ""}`} href={runHref(run.runId)}>
      <span class="cut strong">{run.runId}</span>
      <span><Badge state={run.state} /></span>
      <span class="cut quiet">{Object.entries(run.labels).map(([name, value]) => `${visible(name)}:${visible(value)}`).join("  ")}</span>
      <span class="number" title="calls">{count(counts.calls)}</span>
      <span class="number" title="changes">{count(counts.mutations)}</span>
      <span class={`number ${counts.denied ? "tone-bad" : "quiet"}`} title="denied">{count(counts.denied)}</span>
      <span class={`number ${counts.pendingApprovals ? "tone-wait" : "quiet"}`} title="waiting">{count(counts.pendingApprovals)}</span>
      <span class="number quiet" title="disk">{bytes(run.disk.bytes)}</span>
      <span class="quiet"><Time at={run.createdAt} /></span>
    </a>
  );
}
