import { useEffect, useState } from "preact/hooks";
import type { Rights } from "../app.tsx";
import { get, getAll } from "../lib/api.ts";
import { count, visible } from "../lib/format.ts";
import { useKeys, useLoad } from "../lib/hooks.ts";
import { setParams, useRoute } from "../lib/route.ts";
import type { Approval } from "../lib/types.ts";
import { Boundary } from "../ui/boundary.tsx";
import { Badge, Choice, Empty, Failed, Foreign, Loading, Time } from "../ui/parts.tsx";
import { ApprovalView } from "./approval.tsx";
import { DecideMany } from "./decide.tsx";

const STATES: [string, string][] = [["pending", "waiting"], ["approved", "approved"], ["denied", "denied"], ["expired", "expired"], ["failed", "failed"], ["all", "every state"]];

/** The queue of calls that wait for a person, and the change that each would make. */
export function Approvals({ rights }: { rights: Rights }) {
  const { params } = useRoute();
  const [state, id] = [params.get("state") ?? "pending", params.get("id") ?? ""];
  const load = useLoad(`approvals ${state}`, (signal) => getAll<Approval>("/v1/approvals", { state: state === "all" ? "" : state, order: state === "pending" ? "asc" : "desc" }, 2000, signal), 5000);
  const [opened, setOpened] = useState(() => new Set<string>());
  const [selected, setSelected] = useState(() => new Set<string>());
  const items = load.data?.items ?? [];
  const position = items.findIndex((approval) => approval.approvalId === id);
  useEffect(() => {
    if (id) setOpened((before) => new Set(before).add(id));
  }, [id]);
  const move = (by: number) => {
    const next = items[Math.max(0, Math.min(position + by, items.length - 1))];
    if (next) setParams({ id: next.approvalId });
  };
  useKeys({ j: () => move(1), k: () => move(-1), Escape: () => setParams({ id: "" }) });
  const toggle = (approval: string) => setSelected((before) => {
    const next = new Set(before);
    if (!next.delete(approval)) next.add(approval);
    return next;
  });
  const several = items.filter((approval) => approval.state === "pending" && selected.has(approval.approvalId));
  const done = () => {
    setSelected(new Set());
    load.reload();
  };
  return (
    <>
      <h1>Approvals</h1>
      <div class="toolbar filters">
        <Choice label="State" value={state} options={STATES} onChange={(value) => setParams({ state: value === "pending" ? "" : value, id: "" })} />
        {rights.decide && several.length > 0 && <DecideMany approvals={several} unopened={several.filter(({ approvalId }) => !opened.has(approvalId)).length} done={done} />}
      </div>
      {load.error && <Failed error={load.error} what="Reading the approvals" retry={load.reload} />}
      {!load.data && !load.error && <Loading what="approvals" />}
      {load.data && !items.length && !id && <Empty><p>{state === "pending" ? "Nothing waits for a person." : "No approval has this state."}</p></Empty>}
      <div class={`approvals ${id ? "with-call" : ""}`}>
        {items.length > 0 && <ul class="queue" aria-label="Queue">{items.slice(0, 500).map((approval) => (
          <Boundary key={approval.approvalId} what={`the approval ${approval.approvalId}`}><QueueRow approval={approval} isOpen={approval.approvalId === id} isSelected={selected.has(approval.approvalId)} wasOpened={opened.has(approval.approvalId)} toggle={rights.decide ? () => toggle(approval.approvalId) : undefined} /></Boundary>
        ))}</ul>}
        {items.length > 500 && <p class="quiet">{state === "pending" ? `${count(items.length - 500)} more wait; decide these first.` : `${count(items.length - 500)} older are not shown.`}</p>}
        {id && <Selected id={id} rights={rights} changed={load.reload} />}
      </div>
    </>
  );
}

interface QueueProps { approval: Approval; isOpen: boolean; isSelected: boolean; wasOpened: boolean; toggle?: () => void }

function QueueRow({ approval, isOpen, isSelected, wasOpened, toggle }: QueueProps) {
  const params = new URLSearchParams(location.search);
  params.set("id", approval.approvalId);
  return (
    <li class={isOpen ? "focused" : ""}>
      {toggle && approval.state === "pending" && <input type="checkbox" checked={isSelected} onChange={toggle} aria-label={`Select ${approval.tool} of ${approval.runId}`} />}
      <a href={`/approvals?${params.toString()}`} aria-current={isOpen ? "true" : undefined}>
        <span><Badge state={approval.state} short={approval.state === "pending"} text={approval.resolution} /> <code class="tool">{approval.tool}</code> <span class="quiet">{approval.runId}</span> {wasOpened && <span class="quiet">opened</span>}</span>
        <span class="cut"><bdi>{approval.files.map(({ path }) => visible(path)).join(", ")}</bdi></span>
        <Foreign class="cut quiet" text={approval.reason} />
        <span class="quiet"><Time at={approval.createdAt} />{approval.state === "pending" && <>, expires <Time at={approval.expiresAt} /></>}</span>
      </a>
    </li>
  );
}

function Selected({ id, rights, changed }: { id: string; rights: Rights; changed: () => void }) {
  const load = useLoad(`approval ${id}`, (signal) => get<Approval>(`/v1/approvals/${encodeURIComponent(id)}`, signal), 5000);
  if (!load.data) return <section class="call" aria-label="Approval">{load.error ? <Failed error={load.error} what="Reading the approval" retry={load.reload} /> : <Loading what="the approval" />}</section>;
  return <Boundary key={id} what="the approval"><ApprovalView approval={load.data} rights={rights} error={load.error} changed={() => { load.reload(); changed(); }} /></Boundary>;
}
