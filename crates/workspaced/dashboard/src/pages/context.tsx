import type { ComponentChildren } from "preact";
import { get, getAll, query, runPath } from "../lib/api.ts";
import { commandOf, ended, isFailed, outputOf, typed } from "../lib/command.ts";
import { visible } from "../lib/format.ts";
import { useLoad } from "../lib/hooks.ts";
import { callHref, runHref } from "../lib/route.ts";
import type { Approval, AuditRecord, Page, Run } from "../lib/types.ts";
import { agentOf, taskOf } from "../lib/words.ts";
import { Badge, Foreign, Time } from "../ui/parts.tsx";
import { Output } from "./call.tsx";

/** Who asked for what, which command made the change or what the tests said last, and what was decided about the same files. */
export function Context({ approval, run, elsewhere }: { approval: Approval; run?: Run; elsewhere: Approval[] }) {
  const { runId } = approval;
  const prompt = useLoad(`prompt ${runId}`, first(runId, "event.prompt", "asc"));
  const others = useLoad(`others ${approval.approvalId}`, (signal) => getAll<Approval>("/v1/approvals", { run: runId }, 500, signal), 15000);
  const paths = new Set(approval.files.map(({ path }) => path));
  const related = [...(others.data?.items ?? []).filter((other) => other.approvalId !== approval.approvalId && other.files.some(({ path }) => paths.has(path))), ...elsewhere];
  const agent = run && agentOf(run.labels);
  return (
    <dl class="request">
      <dt>Task</dt><dd>{prompt.data?.input?.summary && <div class="task"><Foreign text={prompt.data.input.summary} /></div>}{prompt.error && <span class="tone-bad">✕ {visible(prompt.error.message)}</span>}
        <span class="inline"><a href={runHref(runId)}><bdi>{runId}</bdi></a>{run && taskOf(run.labels) && <Foreign text={taskOf(run.labels)!} />}<span class="quiet" title={visible(approval.actor)}>by <Foreign text={approval.actor.startsWith("run-token:") ? (agent ?? "an agent") : approval.actor} /></span>
          <a href={`${runHref(runId)}?kind=changes`}>what else it changed</a>{approval.decidedSeq && <a href={callHref(runId, approval.decidedSeq)}>record of the decision</a>}</span></dd>
      {approval.tool === "apply_changeset" ? <OwnCommand approval={approval} /> : <LastTest approval={approval} />}
      {(approval.approvers > 1 || approval.notCreator) && <><dt>Needs</dt><dd>{approval.approvers} {approval.approvers === 1 ? "approval" : "approvals"}{approval.approvers > 1 && " of different persons"}{approval.notCreator && ", not by the run's creator or the caller"}{approval.votes.length > 0 && `; approved by ${approval.votes.map(({ operator, onBehalfOf }) => (onBehalfOf ? `${operator} for ${visible(onBehalfOf)}` : operator)).join(", ")}`}</dd></>}
      {related.length > 0 && <><dt>Same {paths.size > 1 ? "files" : "file"}</dt><dd><ul class="rows">{related.slice(-5).reverse().map((other) => (
        <li key={other.approvalId}>{other.runId !== runId && <bdi>{other.runId}</bdi>} <a href={`/approvals?id=${other.approvalId}&state=all`}><Badge state={other.state} text={decisionOf(other)} /></a> <Foreign class="cut quiet" text={other.reason} /> <Time at={other.createdAt} /></li>
      ))}</ul></dd></>}
    </dl>
  );
}

/** How another approval ended, by whom, and why. */
function decisionOf({ state, decidedBy, onBehalfOf, note }: Approval): string | undefined {
  if (!decidedBy) return undefined;
  return `${state} by ${onBehalfOf ?? decidedBy}${note ? `: ${note}` : ""}`;
}

/** Reads the first or the last record of a tool. */
const first = (runId: string, tool: string, order: "asc" | "desc") => (signal: AbortSignal) =>
  get<Page<AuditRecord>>(`${runPath(runId)}/audit${query({ tool, order, limit: 1 })}`, signal).then(({ items }) => items[0] as AuditRecord | undefined);

/** The command that made a set of changes: it ran with them, and what it tested afterwards was the change. */
function OwnCommand({ approval: { runId, toolCallId } }: { approval: Approval }) {
  const load = useLoad(`command of ${toolCallId}`, async (signal) => {
    const call = (id: string) => get<AuditRecord>(`${runPath(runId)}/tool-calls/${encodeURIComponent(id)}`, signal);
    const { evidence } = await call(toolCallId);
    return evidence?.eventId === undefined ? undefined : await call(evidence.eventId);
  });
  return (
    <Shown term="Its command" error={load.error} isLoading={load.isLoading}>
      {load.data ? <Ran record={load.data}>it made this change, and ran with it</Ran> : <span class="quiet">No command is recorded for these changes.</span>}
    </Shown>
  );
}

/** The last test of the run, or else its last command. */
function LastTest({ approval: { runId, createdAt, state } }: { approval: Approval }) {
  const load = useLoad(`test ${runId}`, async (signal) => (await first(runId, "event.test", "desc")(signal)) ?? (await first(runId, "event.command", "desc")(signal)), 15000);
  const record = load.data;
  return (
    <Shown term={record?.tool === "event.command" ? "Last command" : "Last test"} error={load.error} isLoading={load.isLoading}>
      {record ? <Ran record={record}>{Date.parse(record.timestamp) < Date.parse(createdAt) ? "before this was asked" : state === "pending" ? "after this was asked; the run's files do not have it yet" : "after this was asked"}</Ran> : <span class="quiet">The run has recorded no test and no command.</span>}
    </Shown>
  );
}

function Shown({ term, error, isLoading, children }: { term: string; error?: Error; isLoading: boolean; children: ComponentChildren }) {
  return <><dt>{term}</dt><dd>{error ? <span class="tone-bad">✕ {visible(error.message)}</span> : isLoading && !children ? "…" : children}</dd></>;
}

/** The last lines of an output: more of one that tells of a failure. */
const [LINES_FAILED, LINES_PASSED] = [10, 3];

/** A command as it was typed, how it ended, when, and the end of its output. */
function Ran({ record, children }: { record: AuditRecord; children: ComponentChildren }) {
  const command = commandOf(record);
  const hasFailed = command !== undefined && isFailed(command);
  const text = ((command && typed(command)) ?? record.input?.summary ?? record.tool).trim();
  const output = outputOf(record);
  return (
    <>
      <span class="inline">
        <Badge state={hasFailed ? "exit failed" : "exit"} text={(command && ended(command)) ?? "recorded"} />
        {text.includes("\n") ? <a href={callHref(record.runId, record.seq)}>record #{record.seq}</a> : <a href={callHref(record.runId, record.seq)}><code>{visible(text)}</code></a>}
        <span class="quiet"><Time at={record.timestamp} />, {children}</span>
      </span>
      {text.includes("\n") && <pre class="command short" aria-label="Command" tabIndex={0} role="region">{visible(text)}</pre>}
      {output && <Output uri={output} run={record.runId} most={hasFailed ? LINES_FAILED : LINES_PASSED} />}
    </>
  );
}
