import type { ComponentChildren } from "preact";
import type { Rights } from "../app.tsx";
import { get, query } from "../lib/api.ts";
import { count, span, visible } from "../lib/format.ts";
import { type Loaded, useLoad, useNow } from "../lib/hooks.ts";
import { runHref } from "../lib/route.ts";
import type { Approval, Page, Run, Stats } from "../lib/types.ts";
import { repositoryOf, ruleInWords, taskOf } from "../lib/words.ts";
import { Chart } from "../ui/chart.tsx";
import { isDecided, useDecisions } from "../lib/outbox.ts";
import { Badge, Empty, Failed, Foreign, Loading } from "../ui/parts.tsx";
import { ApprovalRow } from "./approval_row.tsx";
import { readDecisionTimes } from "./decision.tsx";
import { FIRST_RUN } from "./runs.tsx";

const HOURS = 24;
const ROWS = 8;
/** The decisions that are listed. */
const DECISIONS = 6;
const REASONS = 5;
const REFRESH_MILLIS = 15000;

interface Readiness { degraded?: { what: string; detail: string; hint: string }[] }

/** What needs a person, what runs, and what has happened. */
export function Overview({ rights }: { rights: Rights }) {
  const ready = useLoad("ready", (signal) => get<Readiness>("/readyz", signal), REFRESH_MILLIS);
  const approvals = useLoad("approvals", (signal) => get<Page<Approval>>("/v1/approvals?state=pending&limit=100", signal), REFRESH_MILLIS);
  const runs = useLoad("active runs", (signal) => get<Page<Run>>("/v1/runs?deleted=false&sort=activity&order=desc&limit=100", signal), REFRESH_MILLIS);
  return (
    <>
      <h1>Overview</h1>
      {ready.error && <Failed error={ready.error} what="Asking whether the service is ready" retry={ready.reload} />}
      {ready.data?.degraded?.map(({ what, detail, hint }) => <p key={what} class="note bad" role="alert"><strong>{what}:</strong> {detail}. {hint}</p>)}
      <div class="overview-now">
        <Waiting load={approvals} runs={runs.data?.items ?? []} mayDecide={rights.decide} />
        {approvals.isSettled && <InProgress load={runs} />}
        {!rights.audit && approvals.isSettled && <Decided runs={runs.data?.items ?? []} />}
      </div>
      {/* What is below is shown once what is above has its height. */}
      {rights.audit && approvals.isSettled && runs.isSettled && <Activity />}
    </>
  );
}

interface PartProps { id: string; title: string; number?: string; action?: ComponentChildren; children: ComponentChildren }

/** A part of the page: its title, how many there are, and where all of them are. */
function Part({ id, title, number, action, children }: PartProps) {
  return (
    <section aria-labelledby={id}>
      <div class="part-head"><h2 id={id}>{title} {number && <span class="quiet figure">{number}</span>}</h2>{action}</div>
      {children}
    </section>
  );
}

function Waiting({ load, runs, mayDecide }: { load: Loaded<Page<Approval>>; runs: Run[]; mayDecide: boolean }) {
  const now = useNow();
  const { items: all = [], nextCursor } = load.data ?? {};
  useDecisions();
  const items = all.filter(({ approvalId }) => !isDecided(approvalId));
  const known = new Map(runs.map((run) => [run.runId, run]));
  return (
    <Part id="needs" title={mayDecide ? "Waiting for you" : "Waiting for a reviewer"} number={load.data && `${items.length}${nextCursor ? "+" : ""}`}
      action={items.length > 0 && <><span class="quiet oldest">oldest: {span((now - Date.parse(items[0].createdAt)) / 1000)}</span><a class={`button ${mayDecide ? "primary" : ""}`} href="/approvals" aria-keyshortcuts="3">{mayDecide ? "Review" : "Look at them"}<kbd aria-hidden="true">3</kbd></a></>}>
      {load.error ? <Failed error={load.error} what="Reading the approvals" retry={load.reload} />
        : !load.data ? <Loading what="approvals" />
        : !items.length ? <Empty><p><span class="tone-good">✓</span> Nothing is waiting.</p></Empty>
        : <ul class="queue" aria-label="Approvals">{items.slice(0, ROWS).map((approval) => <li key={approval.approvalId}><ApprovalRow approval={approval} run={known.get(approval.runId)} href={`/approvals?id=${approval.approvalId}`} /></li>)}
          {items.length > ROWS && <li><a class="more" href="/approvals">and {items.length - ROWS}{nextCursor ? "+" : ""} more</a></li>}</ul>}
    </Part>
  );
}

function InProgress({ load }: { load: Loaded<Page<Run>> }) {
  const { items = [], nextCursor } = load.data ?? {};
  const active = items.filter(({ state }) => state !== "closed");
  return (
    <Part id="runs" title="In progress" number={load.data && `${count(active.length)}${nextCursor ? "+" : ""}`} action={<a href="/runs">All runs</a>}>
      {load.error ? <Failed error={load.error} what="Reading the runs" retry={load.reload} />
        : !load.data ? <Loading what="runs" />
        : !items.length ? <Empty><p>No run yet. Create one, then give its token to an agent:</p><pre>{FIRST_RUN}</pre></Empty>
        : !active.length ? <Empty><p>No run is open. The newest, <a href={runHref(items[0].runId)}>{items[0].runId}</a>, is closed.</p></Empty>
        : <ul class="queue" aria-label="Runs in progress">{active.slice(0, ROWS).map((run) => (
          <li key={run.runId}><a href={runHref(run.runId)}>
            <span class="first"><span class="cut strong">{run.runId}</span> <Badge state={run.state} /></span>
            <span class="first"><span class="cut quiet"><Foreign text={[repositoryOf(run.labels), taskOf(run.labels)].filter(Boolean).join(" · ") || run.source.type} /></span><span class="quiet small">{count(run.counts.calls)} calls, {count(run.counts.mutations)} changed</span></span>
          </a></li>
        ))}
          {active.length > ROWS && <li><a class="more" href="/runs">and {active.length - ROWS}{nextCursor ? "+" : ""} more</a></li>}</ul>}
    </Part>
  );
}

/** What was decided last, by anybody: for who does not see the records of all runs. */
function Decided({ runs }: { runs: Run[] }) {
  const load = useLoad("decided", async (signal) => {
    const lists = await Promise.all(["approved", "denied"].map((state) => get<Page<Approval>>(`/v1/approvals?state=${state}&order=desc&limit=${DECISIONS}`, signal)));
    const items = lists.flatMap(({ items: some }) => some);
    const times = await readDecisionTimes(items, signal);
    const timeOf = ({ approvalId, createdAt }: Approval) => times.get(approvalId) ?? createdAt;
    return items.sort((a, b) => (timeOf(a) < timeOf(b) ? 1 : -1)).slice(0, DECISIONS).map((approval) => ({ approval, decidedAt: times.get(approval.approvalId) }));
  }, REFRESH_MILLIS);
  const known = new Map(runs.map((run) => [run.runId, run]));
  return (
    <Part id="decided" title="Decided" action={<a href="/approvals?view=all">All approvals</a>}>
      {load.error ? <Failed error={load.error} what="Reading what was decided" retry={load.reload} />
        : !load.data ? <Loading what="what was decided" />
        : !load.data.length ? <Empty><p>Nothing was decided so far.</p></Empty>
        : <ul class="queue" aria-label="Decided approvals">{load.data.map(({ approval, decidedAt }) => <li key={approval.approvalId}><ApprovalRow approval={approval} run={known.get(approval.runId)} href={`/approvals?id=${approval.approvalId}&state=${approval.state}`} decidedAt={decidedAt} /></li>)}</ul>}
    </Part>
  );
}

function Activity() {
  const load = useLoad("activity", (signal) => get<Stats>(`/v1/stats${query({ by: "agent", since: new Date(Date.now() - HOURS * 3600_000).toISOString() })}`, signal), 60000);
  return (
    <Part id="activity" title="Last 24 hours" action={<a href="/audit?span=24">All records</a>}>
      {load.error ? <Failed error={load.error} what="Reading the counts" retry={load.reload} />
        : !load.data ? <Loading what="the last 24 hours" />
        : <Figures stats={load.data} />}
    </Part>
  );
}

/** A number that leads to its records. */
const Figure = ({ number, href, tone = "", children }: { number: number; href: string; tone?: string; children: ComponentChildren }) => <a href={href}><strong class={`figure ${number ? tone : ""}`}>{count(number)}</strong> {children}</a>;

function Figures({ stats: { total, hours, reasons } }: { stats: Stats }) {
  const calls = total.records - total.other;
  if (!calls) return <Empty><p>No agent activity in the last 24 hours.</p></Empty>;
  const first = Math.floor(Date.now() / 3600_000) - HOURS + 1;
  const all = Array.from({ length: HOURS }, (_, index) => hours.find(({ hour }) => Math.floor(Date.parse(hour) / 3600_000) === first + index));
  const labels = all.map((_, index) => `${String(new Date((first + index) * 3600_000).getHours()).padStart(2, "0")}:00`);
  const series = (name: string, tone: string, of: (counts: Stats["total"]) => number) => ({ name, tone, values: all.map((counts) => (counts ? of(counts) : 0)) });
  const address = (filters: string) => `/audit?span=24&${filters}`;
  return (
    <>
      <p class="inline figures">
        <Figure number={calls} href={address("")}>calls</Figure>
        <Figure number={total.changes} href={address("outcome=ok")}>changes</Figure>
        <Figure number={total.denied - total.deniedByPerson} href={address("decision=DENY")} tone="tone-bad">blocked by policy</Figure>
        <Figure number={total.deniedByPerson} href={address("decision=DENY&by=all")} tone="tone-bad">denied by people</Figure>
        <Figure number={total.pending} href={address("outcome=pending")}>sent for approval</Figure>
      </p>
      <div class="columns">
        <Chart title="Calls by the hour" labels={labels} series={[series("reads", "quiet", ({ reads, commands }) => reads + commands), series("changes", "good", ({ changes }) => changes), series("not done", "bad", ({ refused, failed }) => refused + failed), series("waiting", "wait", ({ pending }) => pending)]} />
        <section aria-labelledby="refusals"><h3 id="refusals">Not done because</h3>
          {reasons.length ? <table class="dense"><tbody>{reasons.filter(({ outcome }) => outcome !== "pending").slice(0, REASONS).map(({ outcome, reason, records }) => <tr key={`${outcome} ${reason}`}><th scope="row" class="wrap"><Refusal rule={reason} /></th><td class="number">{count(records)}</td></tr>)}</tbody></table> : <p class="quiet">Every call was done.</p>}
        </section>
      </div>
    </>
  );
}

/** Why calls were not done, with the records of it: by the code, or else all that were blocked or denied. */
function Refusal({ rule }: { rule: string }) {
  const isCode = /^[A-Z_]+$/.test(rule);
  return <a href={`/audit?span=24&${isCode ? `code=${rule}` : "decision=DENY"}`} title={visible(rule)}>{isCode ? <code>{rule}</code> : visible(ruleInWords(rule).replace(/^changes (?=a file)/, ""))}</a>;
}
