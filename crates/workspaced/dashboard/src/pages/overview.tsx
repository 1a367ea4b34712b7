import type { Rights } from "../app.tsx";
import { get, getAll } from "../lib/api.ts";
import { bytes, count, duration, percentile, span, visible } from "../lib/format.ts";
import { useLoad, useNow } from "../lib/hooks.ts";
import { runHref } from "../lib/route.ts";
import { summarise } from "../lib/summary.ts";
import type { Approval, AuditRecord, Page, Run } from "../lib/types.ts";
import { Chart } from "../ui/chart.tsx";
import { Badge, Empty, Failed, Foreign, Loading, Time } from "../ui/parts.tsx";
import { FIRST_RUN } from "./runs.tsx";

const HOURS = 24;
const MOST_RECORDS = 5000;

/** What needs a person, and what goes on. */
export function Overview({ rights }: { rights: Rights }) {
  const runs = useLoad("runs", (signal) => get<Page<Run>>("/v1/runs?order=desc&limit=1000", signal), 15000);
  const approvals = useLoad("approvals", (signal) => get<Page<Approval>>("/v1/approvals?state=pending&limit=100", signal), 15000);
  return (
    <>
      <h1>Overview</h1>
      <div class="columns">
        <section aria-labelledby="needs"><h2 id="needs">Needs a decision</h2><Waiting load={approvals} /></section>
        <section aria-labelledby="states"><h2 id="states">Runs</h2>
          {runs.error ? <Failed error={runs.error} what="Reading the runs" retry={runs.reload} /> : runs.data ? <RunStates runs={runs.data.items} isComplete={!runs.data.nextCursor} /> : <Loading what="runs" />}
        </section>
      </div>
      {rights.audit && <Activity />}
    </>
  );
}

function Waiting({ load }: { load: ReturnType<typeof useLoad<Page<Approval>>> }) {
  const now = useNow();
  if (load.error) return <Failed error={load.error} what="Reading the approvals" retry={load.reload} />;
  if (!load.data) return <Loading what="approvals" />;
  const { items, nextCursor } = load.data;
  if (!items.length) return <Empty><p>Nothing waits for a person.</p></Empty>;
  return (
    <>
      <p><strong class="figure">{items.length}{nextCursor ? "+" : ""}</strong> waiting, the oldest for {span((now - Date.parse(items[0].createdAt)) / 1000)}</p>
      <ul class="rows">{items.slice(0, 6).map((approval) => (
        <li key={approval.approvalId}><a href={`/approvals?id=${approval.approvalId}`}><Badge state="pending" short /> <code>{approval.tool}</code> {approval.files.map(({ path }) => visible(path)).slice(0, 2).join(", ")}</a> <span class="quiet cut">{approval.runId}</span> <Foreign text={approval.reason} class="quiet cut" /> <Time at={approval.createdAt} /></li>
      ))}</ul>
    </>
  );
}

function RunStates({ runs, isComplete }: { runs: Run[]; isComplete: boolean }) {
  if (!runs.length) return <Empty><p>No run yet. Create one:</p><pre>{FIRST_RUN}</pre></Empty>;
  const states = new Map<string, number>();
  for (const { state } of runs) states.set(state, (states.get(state) ?? 0) + 1);
  const disk = runs.reduce((sum, run) => sum + run.disk.bytes, 0);
  return (
    <>
      <p class="inline">{[...states].map(([state, number]) => <a key={state} href={`/runs?state=${state}`}><strong class="figure">{count(number)}</strong> <Badge state={state} /></a>)} <span><strong class="figure">{bytes(disk)}</strong> on disk</span></p>
      {!isComplete && <p class="quiet">Of the newest {count(runs.length)} runs.</p>}
      <ul class="rows">{runs.slice(0, 5).map((run) => <li key={run.runId}><a href={runHref(run.runId)}>{run.runId}</a> <Badge state={run.state} short /> <span class="quiet">{count(run.counts.calls)} calls</span> <Time at={run.createdAt} /></li>)}</ul>
    </>
  );
}

function Activity() {
  const load = useLoad("activity", (signal) =>
    getAll<AuditRecord>("/v1/audit", { order: "desc", since: new Date(Date.now() - HOURS * 3600_000).toISOString() }, MOST_RECORDS, signal), 60000);
  if (load.error) return <Failed error={load.error} what="Reading the audit" retry={load.reload} />;
  if (!load.data) return <Loading what="the last 24 hours" />;
  const { items, isComplete } = load.data;
  const summary = summarise(items, Date.now(), HOURS);
  return (
    <section aria-labelledby="activity">
      <h2 id="activity">Last 24 hours</h2>
      {!isComplete && <p class="quiet">Of the newest {count(items.length)} records of this time.</p>}
      <div class="columns">
        <Chart title="Calls an hour" labels={summary.labels} series={[{ name: "reads", tone: "quiet", values: summary.reads }, { name: "changes", tone: "good", values: summary.changes }, { name: "refused", tone: "bad", values: summary.refused }, { name: "waiting", tone: "wait", values: summary.waiting }]} />
        <Chart title="Duration, 95 of 100 calls are faster" labels={summary.labels} series={[{ name: "", tone: "accent", values: summary.durations.map((values) => percentile(values, 0.95)) }]} format={duration} />
        <section aria-label="Refusals by rule"><h3>Refusals by rule</h3>
          {summary.rules.length ? <table><tbody>{summary.rules.slice(0, 8).map(([rule, number]) => <tr key={rule}><th scope="row" class="wrap"><a href={`/audit?${/^[A-Z_]+$/.test(rule) ? `code=${rule}` : "outcome=refused"}`}><code>{visible(rule)}</code></a></th><td class="number">{count(number)}</td></tr>)}</tbody></table> : <p class="quiet">None.</p>}
        </section>
      </div>
    </section>
  );
}
