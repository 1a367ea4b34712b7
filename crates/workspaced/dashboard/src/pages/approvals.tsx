import { useEffect, useRef, useState } from "preact/hooks";
import type { Rights } from "../app.tsx";
import { get, getAll, query, runPath } from "../lib/api.ts";
import { count } from "../lib/format.ts";
import { knownPerson, needsPerson } from "../lib/person.ts";
import { useKeys, useLoad } from "../lib/hooks.ts";
import { isDecided, useDecisions } from "../lib/outbox.ts";
import { setParams, useRoute } from "../lib/route.ts";
import { useStops, withStop } from "../lib/stops.ts";
import type { Approval, AuditRecord, Page, Run } from "../lib/types.ts";
import { repositoryOf, resolutionOf } from "../lib/words.ts";
import { Boundary } from "../ui/boundary.tsx";
import { Badge, Choice, Empty, Failed, Foreign, Loading } from "../ui/parts.tsx";
import { ApprovalView } from "./approval.tsx";
import { ApprovalRow, Files } from "./approval_row.tsx";
import { useDecisionTimes } from "./decision.tsx";
import { DecideMany, LastDecision } from "./decide.tsx";

/** What is shown: the approvals of a state, as the API names it, or all of them. */
const VIEWS: [string, string][] = [["pending", "waiting"], ["approved", "approved"], ["denied", "denied"], ["expired", "expired"], ["failed", "failed"], ["all", "every state"]];
const viewOf = (params: URLSearchParams): string => (params.has("view") || !VIEWS.some(([name]) => name === (params.get("state") ?? "pending")) ? "all" : (params.get("state") ?? "pending"));
/** From this width on the queue is beside the open approval. */
const WIDE = "(min-width: 800px)";

/** The queue of calls that wait for a person, and the change that each would make. */
export function Approvals({ rights }: { rights: Rights }) {
  const { params } = useRoute();
  const [state, id] = [viewOf(params), params.get("id") ?? ""];
  const load = useLoad(`approvals ${state}`, (signal) => getAll<Approval>("/v1/approvals", { state: state === "all" ? "" : state, order: state === "pending" ? "asc" : "desc" }, 2000, signal), 5000);
  const runs = useRuns(load.data?.items ?? []);
  const decisions = useDecisionTimes(state === "pending" ? [] : (load.data?.items ?? []));
  const [opened, setOpened] = useState(() => new Set<string>());
  const [selected, setSelected] = useState(() => new Set<string>());
  const outbox = useDecisions();
  const answered = outbox.filter(({ state: now }) => now === "sent" || now === "failed").length;
  useEffect(() => void (answered && load.reload()), [answered]);
  // What was decided here has left the queue, whatever the list says that was read before.
  const items = (load.data?.items ?? []).filter(({ approvalId, state: now }) => now !== "pending" || !isDecided(approvalId));
  const position = items.findIndex((approval) => approval.approvalId === id);
  const open = (approvalId: string, replace = true) => setParams({ id: approvalId }, replace);
  const isClosed = useRef(false);
  useEffect(() => {
    if (id) setOpened((before) => new Set(before).add(id));
  }, [id]);
  useEffect(() => {
    // The first one is open, unless the reader has closed it.
    if (!id && !isClosed.current && items.length && matchMedia(WIDE).matches) open(items[0].approvalId);
  }, [id, items.length]);
  useEffect(() => void (isClosed.current = false), [state]);
  const move = (by: number) => {
    const next = items[Math.max(0, Math.min(position + by, items.length - 1))];
    if (next) open(next.approvalId);
  };
  const close = () => {
    isClosed.current = true;
    open("");
  };
  const toggle = (approval: string) => setSelected((before) => {
    const next = new Set(before);
    if (!next.delete(approval)) next.add(approval);
    return next;
  });
  useKeys({ j: () => move(1), k: () => move(-1), x: () => rights.decide && id && toggle(id), Escape: close });
  const chosen = items.filter((approval) => approval.state === "pending" && selected.has(approval.approvalId));
  const stops = useStops(chosen);
  const several = chosen.map((approval) => withStop(approval, stops.data));
  /** Opens what waits next after a decision. */
  const afterDecision = (these: Approval[]) => {
    const waits = (approval: Approval) => approval.state === "pending" && !these.some(({ approvalId }) => approvalId === approval.approvalId);
    const next = items.slice(position + 1).find(waits) ?? items.find(waits);
    setSelected((before) => new Set([...before].filter((approvalId) => !these.some((approval) => approval.approvalId === approvalId))));
    if (next) open(next.approvalId);
    else if (these.length > 1) open("");
  };
  const isDone = state === "pending" && load.data !== undefined && !items.length;
  const decided = outbox.filter(({ state: now }) => now !== "undone" && now !== "failed").flatMap(({ state: now, verb, approvals, results, body }) => (now === "sent" ? results : approvals.map((approval) => ({ ...approval, state: verb === "approve" ? "approved" as const : "denied" as const, note: body.note }))));
  const today = useDecidedToday(isDone ? rights : undefined, decided);
  const waiting = items.filter((approval) => approval.state === "pending").length;
  const repositoryOfRun = (runId: string) => repositoryOf(runs.get(runId)?.labels ?? {});
  /** What other runs of the same repository ask for the same files. */
  const elsewhere = items.filter(({ runId, state: now, files }) => {
    const shown = items[position];
    return shown && now === "pending" && runId !== shown.runId && repositoryOfRun(runId) !== undefined && repositoryOfRun(runId) === repositoryOfRun(shown.runId) && files.some(({ path }) => shown.files.some((file) => file.path === path));
  });
  return (
    <>
      <div class="toolbar approvals-head">
        <h1>Approvals {load.data && state === "pending" && <span class="quiet figure">{count(waiting)}</span>}</h1>
        <Choice label="State" value={state} options={VIEWS} onChange={(value) => setParams({ state: value === "pending" || value === "all" ? "" : value, view: value === "all" ? "all" : "", id: "" })} />
        {rights.decide && several.length > 0 && <DecideMany approvals={several} isKnown={stops.isSettled} unopened={several.filter(({ approvalId }) => !opened.has(approvalId)).length} decided={afterDecision} />}
        <LastDecision rights={rights} />
      </div>
      {load.error && <Failed error={load.error} what="Reading the approvals" retry={load.reload} />}
      {!load.data && !load.error && !id && <Loading what="approvals" />}
      {load.data && !items.length && !id && !today.length && <Empty><p>{state === "pending" ? "Nothing is waiting." : "No approval has this state."}</p></Empty>}
      <div class={`approvals ${id ? "with-call" : ""} ${items.length || today.length || !load.data ? "" : "alone"}`}>
        {today.length > 0 && <Ending decided={today} open={id} />}
        {(items.length > 0 || (id && !load.data)) && <ul class="queue" aria-label="Queue" aria-busy={!load.data}>{items.slice(0, 500).map((approval) => (
          <Boundary key={approval.approvalId} what={`the approval ${approval.approvalId}`}><QueueRow approval={approval} run={runs.get(approval.runId)} isOpen={approval.approvalId === id} isSelected={selected.has(approval.approvalId)} wasOpened={opened.has(approval.approvalId)} decidedAt={decisions?.get(approval.approvalId)} toggle={rights.decide ? () => toggle(approval.approvalId) : undefined} /></Boundary>
        ))}
          {items.length > 500 && <li class="quiet">{state === "pending" ? `${count(items.length - 500)} more wait; decide these first.` : `${count(items.length - 500)} older are not shown.`}</li>}
        </ul>}
        {id && <Selected id={id} rights={rights} run={runs.get(items[position]?.runId ?? "")} elsewhere={elsewhere} close={close} answered={answered} afterDecision={afterDecision} />}
      </div>
    </>
  );
}

/** The runs of the approvals that are shown: their labels say what they are for. */
function useRuns(approvals: Approval[]): Map<string, Run> {
  const names = [...new Set(approvals.slice(0, 500).map(({ runId }) => runId))].filter(Boolean).slice(0, 50).sort();
  const known = useRef(new Map<string, Run>());
  const load = useLoad(names.length ? `runs of approvals ${names.join(" ")}` : "", async (signal) => {
    const missing = names.filter((name) => !known.current.has(name));
    // A run that cannot be read is shown by its ID alone.
    const found = await Promise.allSettled(missing.map((name) => get<Run>(runPath(name), signal)));
    for (const result of found) if (result.status === "fulfilled") known.current.set(result.value.runId, result.value);
    return new Map(known.current);
  });
  return load.data ?? known.current;
}

interface QueueProps { approval: Approval; run?: Run; isOpen: boolean; isSelected: boolean; wasOpened: boolean; decidedAt?: string; toggle?: () => void }

function QueueRow({ approval, run, isOpen, isSelected, wasOpened, decidedAt, toggle }: QueueProps) {
  const params = new URLSearchParams(location.search);
  params.set("id", approval.approvalId);
  const element = useRef<HTMLLIElement>(null);
  useEffect(() => {
    if (isOpen) element.current?.scrollIntoView({ block: "nearest" });
  }, [isOpen]);
  return (
    <li ref={element} class={isOpen ? "focused" : ""}>
      {toggle && approval.state === "pending" && <input type="checkbox" checked={isSelected} onChange={toggle} aria-label={`Select ${approval.tool} of ${approval.runId}`} />}
      <ApprovalRow approval={approval} run={run} href={`/approvals?${params.toString()}`} isOpen={isOpen} decidedAt={decidedAt} note={wasOpened && !isOpen && <> · opened</>} />
    </li>
  );
}

/** The longest that an approval waits. */
const APPROVAL_MILLIS = 24 * 3600_000;
/** Decisions about what was asked before today, of which the record is asked when they were made. */
const MOST_OLDER = 50;

/** What an operator has decided today, what was asked last first, and in this tab. Nothing without `rights`. */
function useDecidedToday(rights: Rights | undefined, here: Approval[]): Approval[] {
  const load = useLoad(rights ? `decided today ${here.length}` : "", async (signal) => {
    const midnight = new Date().setHours(0, 0, 0, 0);
    const createdAfter = new Date(midnight - APPROVAL_MILLIS).toISOString();
    const lists = await Promise.all(["approved", "denied", "failed"].map((state) => getAll<Approval>("/v1/approvals", { state, createdAfter, order: "desc" }, 1000, signal)));
    // Several persons may share the first token: what each of them decided is told by the name that they gave.
    const mine = lists.flatMap(({ items }) => items).filter(({ decidedBy, onBehalfOf }) => decidedBy === rights!.operator && (!needsPerson(rights!) || onBehalfOf === knownPerson()));
    const isOfToday = ({ createdAt }: Approval) => Date.parse(createdAt) >= midnight;
    const older = mine.filter((approval) => !isOfToday(approval) && approval.decidedSeq).slice(0, MOST_OLDER);
    const records = await Promise.all(older.map(async ({ runId, decidedSeq }) => (await get<Page<AuditRecord>>(`${runPath(runId)}/audit${query({ fromSeq: decidedSeq!, limit: 1 })}`, signal)).items[0] as AuditRecord | undefined));
    return [...mine.filter(isOfToday), ...older.filter((_, index) => Date.parse(records[index]?.timestamp ?? "") >= midnight)];
  });
  if (!rights) return [];
  const known = load.data ?? [];
  return [...here.filter(({ approvalId }) => !known.some((approval) => approval.approvalId === approvalId)), ...known].sort((a, b) => (a.createdAt < b.createdAt ? 1 : -1));
}

/** The end of the queue: what was decided today. */
function Ending({ decided, open }: { decided: Approval[]; open: string }) {
  return (
    <div class="queue ending">
      <p role="status"><strong>Nothing is waiting.</strong> You decided {count(decided.length)} today:</p>
      <ul class="queue" aria-label="Your decisions">{decided.slice(0, 100).map((approval) => (
        <li key={approval.approvalId} class={approval.approvalId === open ? "focused" : ""}><a href={`/approvals?id=${approval.approvalId}`}>
          <span class="first"><span class="cut strong"><Files approval={approval} /></span> <Badge state={approval.state === "pending" ? "approved" : approval.state} text={approval.state === "pending" ? "your vote" : approval.state} /></span>
          <span class="cut small"><Foreign text={approval.note ?? resolutionOf(approval)} /></span>
          <span class="cut quiet small"><bdi>{approval.runId}</bdi></span>
        </a></li>
      ))}</ul>
    </div>
  );
}

interface SelectedProps { id: string; rights: Rights; run?: Run; elsewhere: Approval[]; close: () => void; answered: number; afterDecision: (these: Approval[]) => void }

function Selected({ id, rights, run, elsewhere, close, answered, afterDecision }: SelectedProps) {
  const load = useLoad(`approval ${id}`, (signal) => get<Approval>(`/v1/approvals/${encodeURIComponent(id)}`, signal), 5000);
  useEffect(() => void (answered && load.reload()), [answered]);
  // What was decided has left the list, and keeps its run.
  const own = useRuns(run || !load.data ? [] : [load.data]);
  return (
    <section class="call approval" aria-label="Approval">
      {!load.data ? (load.error ? <Failed error={load.error} what="Reading the approval" retry={load.reload} /> : <Loading what="the approval" />)
        : <Boundary key={`${id} ${isDecided(id)}`} what="the approval"><ApprovalView approval={load.data} run={run ?? own.get(load.data.runId)} elsewhere={elsewhere} rights={rights} error={load.error} close={close} decided={() => afterDecision([load.data!])} /></Boundary>}
    </section>
  );
}
