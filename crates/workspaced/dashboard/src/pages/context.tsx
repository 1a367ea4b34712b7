import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { get, getAll, query, runPath } from "../lib/api.ts";
import { commandOf, ended, isFailed, outputOf, shortened, typed } from "../lib/command.ts";
import { visible } from "../lib/format.ts";
import { type Loaded, useKeys, useLoad } from "../lib/hooks.ts";
import { callHref, runHref } from "../lib/route.ts";
import type { Approval, AuditRecord, Page, Run } from "../lib/types.ts";
import { agentOf, pathsOf, taskOf } from "../lib/words.ts";
import { Badge, Foreign, Time } from "../ui/parts.tsx";
import { Output, readCall } from "./call.tsx";

interface Props {
  approval: Approval; run?: Run; evidence: Loaded<Evidence>;
  /** What was decided, or waits, about the same files. */
  related: Approval[];
  /** What else the run changed, in a few words, and how to get there. */
  besides: ComponentChildren;
}

/** Who asked for what, which command made the change or what the tests said last, and what was decided about the same files. */
export function Context({ approval, run, evidence, related, besides }: Props) {
  const { runId } = approval;
  const agent = run && agentOf(run.labels);
  return (
    <dl class="request">
      <dt>Task</dt><dd>{run?.prompt && <div class="task"><Foreign text={run.prompt} /></div>}
        <span class="inline"><a href={runHref(runId)}><bdi>{runId}</bdi></a>{run && taskOf(run.labels) && <Foreign text={taskOf(run.labels)!} />}<span class="quiet" title={visible(approval.actor)}>by <Foreign text={approval.actor.startsWith("run-token:") ? (agent ?? "an agent") : approval.actor} /></span>
          {besides}{approval.decidedSeq && <a href={callHref(runId, approval.decidedSeq)}>record of the {approval.decidedBy ? "decision" : "end"}</a>}</span></dd>
      <Tested approval={approval} evidence={evidence} />
      {(approval.approvers > 1 || approval.notCreator) && <><dt>Needs</dt><dd>{approval.approvers} {approval.approvers === 1 ? "approval" : "approvals"}{approval.approvers > 1 && " of different persons"}{approval.notCreator && ", not by the run's creator or the caller"}{approval.votes.length > 0 && `; approved by ${approval.votes.map(({ operator, onBehalfOf }) => (onBehalfOf ? `${operator} for ${visible(onBehalfOf)}` : operator)).join(", ")}`}</dd></>}
      {related.length > 0 && <><dt>Same {approval.files.length > 1 ? "files" : "file"}</dt><dd><ul class="rows">{related.slice(-5).reverse().map((other) => (
        <li key={other.approvalId}>{other.runId !== runId && <bdi>{other.runId}</bdi>} <a href={`/approvals?id=${other.approvalId}&view=all`}><Badge state={other.state} text={other.note && (other.state === "denied" || other.state === "approved") ? `${other.state}: ${other.note}` : undefined} /></a>{other.decidedBy && <span class="quiet"> by <Foreign text={other.onBehalfOf ?? other.decidedBy} /></span>} <Foreign class="cut quiet" text={other.reason} /> <Time at={other.createdAt} /></li>
      ))}</ul></dd></>}
    </dl>
  );
}

/** Reads the other approvals of a run about the same files. */
export function useRelated(approval: Approval): { items: Approval[]; isSettled: boolean } {
  const { approvalId, runId } = approval;
  const others = useLoad(`others ${approvalId}`, (signal) => getAll<Approval>("/v1/approvals", { run: runId }, 500, signal), 15000);
  const paths = new Set(pathsOf(approval));
  return { items: (others.data?.items ?? []).filter((other) => other.approvalId !== approvalId && pathsOf(other).some((path) => paths.has(path))), isSettled: others.isSettled };
}

/** Reads the last record of a tool. */
const readLast = (runId: string, tool: string, signal: AbortSignal) =>
  get<Page<AuditRecord>>(`${runPath(runId)}/audit${query({ tool, order: "desc", limit: 1 })}`, signal).then(({ items }) => items[0] as AuditRecord | undefined);

/** What was run for a change: the command that made it, which ran with it, or else the last test of its run, or else its last command. */
export interface Evidence {
  record?: AuditRecord;
  /** Whether it ran with the change. */
  isWith: boolean;
}

/** Reads the command that made a set of changes: it ran with them, and what it tested afterwards was the change. */
async function readOwnCommand({ runId, toolCallId }: Approval, signal: AbortSignal): Promise<AuditRecord | undefined> {
  const { evidence } = await readCall(runId, toolCallId, signal);
  return evidence && await readCall(runId, evidence.eventId, signal);
}

/** Reads what was run for a change. */
async function readEvidence(approval: Approval, signal: AbortSignal): Promise<Evidence> {
  const { runId, tool, state, decidedSeq } = approval;
  const isOwn = tool === "apply_changeset";
  const record = isOwn ? await readOwnCommand(approval, signal) : ((await readLast(runId, "event.test", signal)) ?? (await readLast(runId, "event.command", signal)));
  return { record, isWith: record !== undefined && (isOwn || (state === "approved" && record.seq > (decidedSeq ?? Infinity))) };
}

/** As `readEvidence`, for a page; what others run meanwhile is read again. */
export const useEvidence = (approval: Approval): Loaded<Evidence> =>
  useLoad(`evidence ${approval.approvalId} ${approval.state}`, (signal) => readEvidence(approval, signal), approval.tool === "apply_changeset" ? 0 : 15000);

/** When a command ran, as seen from a change: before it was applied, the run's files did not have it. */
function whenOf(record: AuditRecord, { createdAt, state, decidedSeq }: Approval): string {
  if (Date.parse(record.timestamp) < Date.parse(createdAt)) return "before this request";
  if (state === "pending") return "after this request, without this change";
  if (state !== "approved") return "after this request, without this change";
  return record.seq < (decidedSeq ?? 0) ? "before the approval, without this change" : "after the approval";
}

/** The row of the tests. Nothing is said of them before they are read; the row has its height from the start. */
function Tested({ approval, evidence: { data, error, isSettled } }: { approval: Approval; evidence: Loaded<Evidence> }) {
  const isOwn = approval.tool === "apply_changeset";
  const record = data?.record;
  const row = useRef<HTMLElement>(null);
  useKeys({ o: () => {
    const fold = row.current?.querySelector("details");
    if (fold) fold.open = !fold.open;
  } });
  return (
    <>
      <dt>Checks</dt>
      <dd ref={row} class={isOwn ? "tested own" : "tested"}>
        {!isSettled ? <span class="quiet" role="status">Loading …</span>
          : !data ? <span class="tone-bad">✕ The evidence could not be read: {visible(error?.message ?? "")}</span>
          : !record ? <span class="quiet">{isOwn ? "No command is recorded for these changes." : "The run has recorded no test and no command."}</span>
          : data.isWith ? <Ran record={record}>{!isOwn && <span class="quiet"><Time at={record.timestamp} />, {whenOf(record, approval)}</span>}</Ran>
          : <Untested record={record} when={whenOf(record, approval)} />}
      </dd>
    </>
  );
}

/** A command in one line, which leads to its record. */
function CommandLink({ record }: { record: AuditRecord }) {
  const text = textOf(record);
  return <a class="cut" href={callHref(record.runId, record.seq)} title={visible(text)}><code>{visible(shortened(text))}</code></a>;
}

function textOf(record: AuditRecord): string {
  const command = commandOf(record);
  return ((command && typed(command)) ?? record.input?.summary ?? record.tool).trim();
}

/** That no test has run with a change; what ran without it is told when somebody asks, and at once that it has failed. */
function Untested({ record, when }: { record: AuditRecord; when: string }) {
  const [isOpen, setOpen] = useState(false);
  const command = commandOf(record);
  const output = outputOf(record);
  const exit = command && ended(command);
  return (
    <details class="untested" open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary><span>No test run includes this change.</span>{exit && isFailed(command) && <span class="tone-bad"> The last run before it failed ({exit}).</span>}</summary>
      {isOpen && <>
        <span class="inline"><CommandLink record={record} /><span class="quiet">{exit && <>{exit}, </>}<Time at={record.timestamp} />, {when}</span></span>
        {output && <Output uri={output} run={record.runId} most={LINES} />}
      </>}
    </details>
  );
}

/** The last lines of an output that are shown first. */
const LINES = 10;

/** How a command ended with a change: what it was, when, and the end of its output, at once if it has failed. */
function Ran({ record, children }: { record: AuditRecord; children?: ComponentChildren }) {
  const command = commandOf(record);
  const hasFailed = command !== undefined && isFailed(command);
  const output = outputOf(record);
  return (
    <>
      <span class="inline">
        <span><Badge state={hasFailed ? "exit failed" : "exit"} text={(command && ended(command)) ?? "recorded"} /><span class={hasFailed ? "tone-bad" : "tone-good"}> with this change</span></span>
        <CommandLink record={record} />
        {children}
      </span>
      {output && <Output uri={output} run={record.runId} most={LINES} isFolded={!hasFailed} />}
    </>
  );
}
