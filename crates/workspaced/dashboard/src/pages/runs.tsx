import { useMemo } from "preact/hooks";
import { count, exactTime, hoursAgo, visible } from "../lib/format.ts";
import { useNewest } from "../lib/newest.ts";
import { navigate, runHref, setParams, useRoute } from "../lib/route.ts";
import type { Run } from "../lib/types.ts";
import { agentOf } from "../lib/words.ts";
import { NewestCount, NewestList, SPANS } from "../ui/newest_list.tsx";
import { Badge, Choice, Counts, Field, Filters, Time } from "../ui/parts.tsx";

export const FIRST_RUN = `curl -H "Authorization: Bearer $OPERATOR" -H 'Content-Type: application/json' \\
  ${location.origin}/v1/runs -d '{"source":{"type":"empty"}}'`;

const REFRESH_MILLIS = 5000;
const STATES: [string, string][] = [["", "all but deleted"], ["any", "every state"], ["preparing", "preparing"], ["open", "open"], ["awaiting_approval", "waiting"], ["closed", "closed"], ["deleted", "deleted"]];

/** What the runs may be ordered by, and whether the last or the most comes first unless the reader asks otherwise. */
const SORTS = new Map([["created", true], ["activity", true], ["changes", true], ["waiting", true], ["repository", false], ["agent", false]]);
const ORDERS: [string, string][] = [["", "newest"], ["activity", "last activity"], ["changes", "most lines changed"], ["waiting", "most waiting"], ["repository", "repository"], ["agent", "agent"]];

function refresh(changed: () => void, signal: AbortSignal): void {
  const timer = setInterval(() => document.hidden || changed(), REFRESH_MILLIS);
  signal.addEventListener("abort", () => clearInterval(timer));
}

/** The runs under the filters of the address, in the order of the address. */
export function Runs() {
  const { params } = useRoute();
  const [q, state, label, by, span, sort] = ["q", "state", "label", "by", "span", "sort"].map((name) => params.get(name) ?? "");
  const createdAfter = useMemo(() => hoursAgo(span), [span]);
  const order = params.get("order") || ((SORTS.get(sort) ?? true) ? "desc" : "asc");
  const list = useNewest<Run>("/v1/runs", { q, state: state === "any" ? "" : state, deleted: state ? "" : "false", label, actor: by && `operator:${by}`, createdAfter, sort, order }, ({ runId }) => runId, refresh);
  const open = (event: SubmitEvent) => {
    event.preventDefault();
    const run = String(new FormData(event.currentTarget as HTMLFormElement).get("run")).trim();
    if (run) navigate(runHref(run));
  };
  return (
    <>
      <h1>Runs <NewestCount list={list} /></h1>
      <Filters isSet={[by, state, span, sort].some(Boolean)}>
        <Field label="Search" search value={q} placeholder="ID, label, repository, prompt" onChange={(text) => setParams({ q: text })} />
        <Field label="Label" value={label} placeholder="name:value" onChange={(text) => setParams({ label: text })} />
        <Field label="Created by" value={by} placeholder="operator" onChange={(text) => setParams({ by: text })} />
        <Choice label="State" value={state} options={STATES} onChange={(value) => setParams({ state: value })} />
        <Choice label="Created" value={span} options={SPANS} onChange={(value) => setParams({ span: value })} />
        <Choice label="Order" value={sort} options={ORDERS} onChange={(value) => setParams({ sort: value, order: "" })} />
        <form onSubmit={open}><label class="field"><span>Open a run</span><input name="run" type="search" placeholder="run ID, then Enter" /></label></form>
      </Filters>
      <NewestList list={list} what="runs" idOf={({ runId }) => runId} hrefOf={({ runId }) => runHref(runId)} row={(run, isFocused) => <RunRow run={run} isFocused={isFocused} />}
        head={<Head sort={sort || "created"} order={order} />}
        empty={q || state || label || by || span ? <p>No run matches. <a href="/runs">Show every run</a></p> : <><p>No run yet. Create one, then give its token to an agent:</p><pre>{FIRST_RUN}</pre></>} />
    </>
  );
}

/** The columns, by most of which the list can be ordered: again for the other direction. */
function Head({ sort, order }: { sort: string; order: string }) {
  const column = (name: string, text: string, isNumber = false) => {
    const isSorted = name === sort;
    const usual = SORTS.get(name) ? "desc" : "asc";
    const next = isSorted && order === usual ? (usual === "desc" ? "asc" : "desc") : usual;
    return (
      <button type="button" class={`plain sort ${isNumber ? "number" : ""}`} aria-pressed={isSorted} title={`Order by ${text.toLowerCase()}`} onClick={() => setParams({ sort: name === "created" ? "" : name, order: next === usual ? "" : next })}>
        {text}{isSorted && <span aria-hidden="true"> {order === "desc" ? "↓" : "↑"}</span>}{isSorted && <span class="sr-only">, {order === "desc" ? "descending" : "ascending"}</span>}
      </button>
    );
  };
  return (
    <div class="row run-row table-head" role="group" aria-label="Order of the runs">
      {column("created", "Run")}<span>State</span>{column("repository", "Repository")}{column("agent", "Agent")}<span>Prompt and labels</span><span class="number">Calls</span>
      {column("changes", "Lines", true)}<span class="number">Blocked</span>{column("waiting", "Waiting", true)}{column("activity", "Last activity")}
    </div>
  );
}

function RunRow({ run, isFocused }: { run: Run; isFocused: boolean }) {
  const { counts } = run;
  const labels = Object.entries(run.labels).filter(([name, value]) => value !== run.repository && name !== "agent" && name !== "model").map(([name, value]) => `${visible(name)}:${visible(value)}`).join("  ");
  return (
    <a class={`row run-row ${isFocused ? "focused" : ""}`} href={runHref(run.runId)} title={`Created ${exactTime(run.createdAt)}`}>
      <span class="cut strong">{run.runId}</span>
      <span><Badge state={run.state} /></span>
      <span class="cut"><bdi>{visible(shortRepository(run.repository))}</bdi></span>
      <span class="cut"><bdi>{visible(agentOf(run.labels) ?? "")}</bdi></span>
      <span class="cut quiet" title={visible(run.prompt ?? "")}><bdi>{visible(run.prompt ?? "")}</bdi> <bdi>{labels}</bdi></span>
      <span class="number" title="calls">{count(counts.calls)}</span>
      <span class="number">{counts.insertions + counts.deletions > 0 && <Counts plus={counts.insertions} minus={counts.deletions} />}</span>
      <span class={`number ${counts.denied ? "tone-bad" : "quiet"}`} title="blocked or denied">{count(counts.denied)}</span>
      <span class={`number ${counts.pendingApprovals ? "tone-wait" : "quiet"}`} title="waiting">{count(counts.pendingApprovals)}</span>
      <span class="quiet"><Time at={run.lastActivityAt ?? run.archivedAt ?? run.createdAt} /></span>
    </a>
  );
}

/** A repository without what all of them have in common. */
const shortRepository = (repository = ""): string => repository.replace(/^https:\/\//, "").replace(/\.git$/, "");
