import type { ComponentChildren } from "preact";
import { get, getAll, query, runPath } from "../lib/api.ts";
import { commandOf, ended, isFailed, outputOf, typed } from "../lib/command.ts";
import { visible } from "../lib/format.ts";
import { type Loaded, useLoad } from "../lib/hooks.ts";
import { callHref, runHref } from "../lib/route.ts";
import type { Approval, AuditRecord, Page, Run } from "../lib/types.ts";
import { agentOf, taskOf } from "../lib/words.ts";
import { Badge, Foreign, Time } from "../ui/parts.tsx";
import { Output, readCall } from "./call.tsx";

/** Who asked for what, which command made the change or what the tests said last, and what was decided about the same files. */
export function Context({ approval, run, elsewhere, command }: { approval: Approval; run?: Run; elsewhere: Approval[]; command: Loaded<AuditRecord | undefined> }) {
  const { runId } = approval;
  const prompt = useLoad(`prompt ${runId}`, readOne(runId, "event.prompt", "asc"));
  const others = useLoad(`others ${approval.approvalId}`, (signal) => getAll<Approval>("/v1/approvals", { run: runId }, 500, signal), 15000);
  const paths = new Set(approval.files.map(({ path }) => path));
  const related = [...(others.data?.items ?? []).filter((other) => other.approvalId !== approval.approvalId && other.files.some(({ path }) => paths.has(path))), ...elsewhere];
  const agent = run && agentOf(run.labels);
  return (
    <dl class="request">
      <dt>Task</dt><dd>{prompt.data?.input?.summary && <div class="task"><Foreign text={prompt.data.input.summary} /></div>}{prompt.error && <span class="tone-bad">✕ {visible(prompt.error.message)}</span>}
        <span class="inline"><a href={runHref(runId)}><bdi>{runId}</bdi></a>{run && taskOf(run.labels) && <Foreign text={taskOf(run.labels)!} />}<span class="quiet" title={visible(approval.actor)}>by <Foreign text={approval.actor.startsWith("run-token:") ? (agent ?? "an agent") : approval.actor} /></span>
          <a href={`${runHref(runId)}?tab=changes`}>what else it changed</a>{approval.decidedSeq && <a href={callHref(runId, approval.decidedSeq)}>record of the decision</a>}</span></dd>
      {approval.tool === "apply_changeset" ? <OwnCommand load={command} /> : <LastTest approval={approval} />}
      {(approval.approvers > 1 || approval.notCreator) && <><dt>Needs</dt><dd>{approval.approvers} {approval.approvers === 1 ? "approval" : "approvals"}{approval.approvers > 1 && " of different persons"}{approval.notCreator && ", not by the run's creator or the caller"}{approval.votes.length > 0 && `; approved by ${approval.votes.map(({ operator, onBehalfOf }) => (onBehalfOf ? `${operator} for ${visible(onBehalfOf)}` : operator)).join(", ")}`}</dd></>}
      {related.length > 0 && <><dt>Same {paths.size > 1 ? "files" : "file"}</dt><dd><ul class="rows">{related.slice(-5).reverse().map((other) => (
        <li key={other.approvalId}>{other.runId !== runId && <bdi>{other.runId}</bdi>} <a href={`/approvals?id=${other.approvalId}&state=all`}><Badge state={other.state} text={other.note && (other.state === "denied" || other.state === "approved") ? `${other.state}: ${other.note}` : undefined} /></a>{other.decidedBy && <span class="quiet"> by <Foreign text={other.onBehalfOf ?? other.decidedBy} /></span>} <Foreign class="cut quiet" text={other.reason} /> <Time at={other.createdAt} /></li>
      ))}</ul></dd></>}
    </dl>
  );
}

/** Reads the first or the last record of a tool. */
const readOne = (runId: string, tool: string, order: "asc" | "desc") => (signal: AbortSignal) =>
  get<Page<AuditRecord>>(`${runPath(runId)}/audit${query({ tool, order, limit: 1 })}`, signal).then(({ items }) => items[0] as AuditRecord | undefined);

/** Reads the command that made a set of changes: it ran with them, and what it tested afterwards was the change. */
export function useOwnCommand({ runId, tool, toolCallId }: Approval): Loaded<AuditRecord | undefined> {
  return useLoad(tool === "apply_changeset" ? `command of ${toolCallId}` : "", async (signal) => {
    const { evidence } = await readCall(runId, toolCallId, signal);
    return evidence?.eventId === undefined ? undefined : await readCall(runId, evidence.eventId, signal);
  });
}

function OwnCommand({ load }: { load: Loaded<AuditRecord | undefined> }) {
  return (
    <Shown term="Its command" error={load.error} isLoading={load.isLoading}>
      {load.data ? <Ran record={load.data}><b>with this change</b>, which it made</Ran> : <span class="quiet">No command is recorded for these changes.</span>}
    </Shown>
  );
}

/** When a command ran, as seen from a change: before it was applied, the run's files did not have it. */
function whenOf(record: AuditRecord, { createdAt, state, decidedSeq }: Approval): string {
  if (Date.parse(record.timestamp) < Date.parse(createdAt)) return "before this was asked";
  if (state === "pending") return "after this was asked; the run's files do not have it yet";
  if (state !== "approved") return "after this was asked; the run's files do not have it";
  return record.seq < (decidedSeq ?? 0) ? "before this was approved, without it" : "after this was approved";
}

/** The last test of the run, or else its last command. */
function LastTest({ approval }: { approval: Approval }) {
  const { runId } = approval;
  const load = useLoad(`test ${runId}`, async (signal) => (await readOne(runId, "event.test", "desc")(signal)) ?? (await readOne(runId, "event.command", "desc")(signal)), 15000);
  const record = load.data;
  return (
    <Shown term={record?.tool === "event.command" ? "Last command" : "Last test"} error={load.error} isLoading={load.isLoading}>
      {record ? <Ran record={record}>{whenOf(record, approval)}</Ran> : <span class="quiet">The run has recorded no test and no command.</span>}
    </Shown>
  );
}

function Shown({ term, error, isLoading, children }: { term: string; error?: Error; isLoading: boolean; children: ComponentChildren }) {
  return <><dt>{term}</dt><dd>{error ? <span class="tone-bad">✕ {visible(error.message)}</span> : isLoading && !children ? "…" : children}</dd></>;
}

/** The last lines of an output that are shown first. */
const LINES = 10;

/** The first line of a command as it was typed, how it ended, when, and the end of its output: at once if it has failed. */
function Ran({ record, children }: { record: AuditRecord; children: ComponentChildren }) {
  const command = commandOf(record);
  const hasFailed = command !== undefined && isFailed(command);
  const text = ((command && typed(command)) ?? record.input?.summary ?? record.tool).trim();
  const [first, ...rest] = text.split("\n");
  const more = rest.length;
  const output = outputOf(record);
  return (
    <>
      <span class="inline">
        <Badge state={hasFailed ? "exit failed" : "exit"} text={(command && ended(command)) ?? "recorded"} />
        <a class="cut" href={callHref(record.runId, record.seq)} title={visible(text)}><code>{visible(first)}</code></a>{more > 0 && <span class="quiet">and {more} more {more === 1 ? "line" : "lines"}</span>}
        <span class="quiet"><Time at={record.timestamp} />, {children}</span>
      </span>
      {output && <Output uri={output} run={record.runId} most={LINES} isFolded={!hasFailed} />}
    </>
  );
}
