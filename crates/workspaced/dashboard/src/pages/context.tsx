import type { ComponentChildren } from "preact";
import { get, getAll, query, runPath } from "../lib/api.ts";
import { commandOf, ended, isFailed, outputOf, shortened, typed } from "../lib/command.ts";
import { type Failure, failuresOf, passedOf } from "../lib/failures.ts";
import { visible } from "../lib/format.ts";
import { type Loaded, useLoad } from "../lib/hooks.ts";
import { callHref, runHref } from "../lib/route.ts";
import type { Approval, AuditRecord, Page, Run } from "../lib/types.ts";
import { agentOf, pathsOf, taskOf } from "../lib/words.ts";
import { Badge, Foreign, Time } from "../ui/parts.tsx";
import { Output, readCall, readOutput } from "./call.tsx";

interface Props {
  approval: Approval; run?: Run; command: Loaded<AuditRecord | undefined>; failures: Failure[];
  prompt: Loaded<AuditRecord | undefined>;
  /** What was decided, or waits, about the same files. */
  related: Approval[];
  /** What else the run changed, in a few words, and how to get there. */
  besides: ComponentChildren;
}

/** Who asked for what, which command made the change or what the tests said last, and what was decided about the same files. */
export function Context({ approval, run, command, failures, prompt, related, besides }: Props) {
  const { runId } = approval;
  const agent = run && agentOf(run.labels);
  return (
    <dl class="request">
      <dt>Task</dt><dd>{prompt.data?.input?.summary && <div class="task"><Foreign text={prompt.data.input.summary} /></div>}{prompt.error && <span class="tone-bad">✕ {visible(prompt.error.message)}</span>}
        <span class="inline"><a href={runHref(runId)}><bdi>{runId}</bdi></a>{run && taskOf(run.labels) && <Foreign text={taskOf(run.labels)!} />}<span class="quiet" title={visible(approval.actor)}>by <Foreign text={approval.actor.startsWith("run-token:") ? (agent ?? "an agent") : approval.actor} /></span>
          {besides}{approval.decidedSeq && <a href={callHref(runId, approval.decidedSeq)}>record of the decision</a>}</span></dd>
      {approval.tool === "apply_changeset" ? <OwnCommand load={command} failures={failures} /> : <LastTest approval={approval} />}
      {(approval.approvers > 1 || approval.notCreator) && <><dt>Needs</dt><dd>{approval.approvers} {approval.approvers === 1 ? "approval" : "approvals"}{approval.approvers > 1 && " of different persons"}{approval.notCreator && ", not by the run's creator or the caller"}{approval.votes.length > 0 && `; approved by ${approval.votes.map(({ operator, onBehalfOf }) => (onBehalfOf ? `${operator} for ${visible(onBehalfOf)}` : operator)).join(", ")}`}</dd></>}
      {related.length > 0 && <><dt>Same {approval.files.length > 1 ? "files" : "file"}</dt><dd><ul class="rows">{related.slice(-5).reverse().map((other) => (
        <li key={other.approvalId}>{other.runId !== runId && <bdi>{other.runId}</bdi>} <a href={`/approvals?id=${other.approvalId}&view=all`}><Badge state={other.state} text={other.note && (other.state === "denied" || other.state === "approved") ? `${other.state}: ${other.note}` : undefined} /></a>{other.decidedBy && <span class="quiet"> by <Foreign text={other.onBehalfOf ?? other.decidedBy} /></span>} <Foreign class="cut quiet" text={other.reason} /> <Time at={other.createdAt} /></li>
      ))}</ul></dd></>}
    </dl>
  );
}

/** Reads what a run was asked to do. */
export const usePrompt = (runId: string): Loaded<AuditRecord | undefined> => useLoad(`prompt ${runId}`, readOne(runId, "event.prompt", "asc"));

/** Reads the other approvals of a run about the same files. */
export function useRelated(approval: Approval): Approval[] {
  const { approvalId, runId } = approval;
  const others = useLoad(`others ${approvalId}`, (signal) => getAll<Approval>("/v1/approvals", { run: runId }, 500, signal), 15000);
  const paths = new Set(pathsOf(approval));
  return (others.data?.items ?? []).filter((other) => other.approvalId !== approvalId && pathsOf(other).some((path) => paths.has(path)));
}

/** Reads the first or the last record of a tool. */
const readOne = (runId: string, tool: string, order: "asc" | "desc") => (signal: AbortSignal) =>
  get<Page<AuditRecord>>(`${runPath(runId)}/audit${query({ tool, order, limit: 1 })}`, signal).then(({ items }) => items[0] as AuditRecord | undefined);

/** Reads the command that made a set of changes: it ran with them, and what it tested afterwards was the change. */
export function useOwnCommand(approval: Approval): Loaded<AuditRecord | undefined> {
  return useLoad(approval.tool === "apply_changeset" ? `command of ${approval.toolCallId}` : "", (signal) => readOwnCommand(approval, signal));
}

/** As `useOwnCommand`, once. */
export async function readOwnCommand({ runId, tool, toolCallId }: Approval, signal: AbortSignal): Promise<AuditRecord | undefined> {
  if (tool !== "apply_changeset") return undefined;
  const { evidence } = await readCall(runId, toolCallId, signal);
  return evidence?.eventId === undefined ? undefined : await readCall(runId, evidence.eventId, signal);
}

/** Reads which tests the output of a command names as failed, if it has failed. */
export function useFailures(record: AuditRecord | undefined): Failure[] {
  const command = record && commandOf(record);
  const output = command && isFailed(command) ? outputOf(record) : undefined;
  const load = useLoad(output === undefined ? "" : `failures ${output}`, async (signal) => failuresOf(await readOutput(record!.runId, output!, signal)));
  return load.data ?? [];
}

/** Reads how many tests the output of a command says have passed, if it has not failed. */
function usePassed(record: AuditRecord | undefined): number | undefined {
  const command = record && commandOf(record);
  const output = command && !isFailed(command) ? outputOf(record) : undefined;
  return useLoad(output === undefined ? "" : `passed ${output}`, async (signal) => passedOf(await readOutput(record!.runId, output!, signal))).data;
}

function OwnCommand({ load, failures }: { load: Loaded<AuditRecord | undefined>; failures: Failure[] }) {
  return (
    <Shown term="Its command" error={load.error} isLoading={load.isLoading}>
      {load.data ? <Ran record={load.data} failures={failures} isWith /> : <span class="quiet">No command is recorded for these changes.</span>}
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
      {record ? <Ran record={record} isWith={approval.state === "approved" && record.seq > (approval.decidedSeq ?? Infinity)}>, {whenOf(record, approval)}</Ran> : <span class="quiet">The run has recorded no test and no command.</span>}
    </Shown>
  );
}

function Shown({ term, error, isLoading, children }: { term: string; error?: Error; isLoading: boolean; children: ComponentChildren }) {
  return <><dt>{term}</dt><dd>{error ? <span class="tone-bad">✕ {visible(error.message)}</span> : isLoading && !children ? "…" : children}</dd></>;
}

/** The failed tests that are named. */
const SHOWN_FAILURES = 5;

/** The last lines of an output that are shown first. */
const LINES = 10;

interface RanProps { record: AuditRecord; failures?: Failure[]; isWith: boolean; children?: ComponentChildren }

/** How a command ended with a change, or that it ran without it; what it was, when, and the end of its output: at once if it has failed. */
function Ran({ record, failures = [], isWith, children }: RanProps) {
  const command = commandOf(record);
  const hasFailed = command !== undefined && isFailed(command);
  const text = ((command && typed(command)) ?? record.input?.summary ?? record.tool).trim();
  const output = outputOf(record);
  const passed = usePassed(isWith ? record : undefined);
  const exit = (command && ended(command)) ?? "recorded";
  const result = failures.length > 0 ? (failures.length === 1 ? `${failures[0].name} fails` : `${failures.length} tests fail`) : passed !== undefined ? `${passed} ${passed === 1 ? "test" : "tests"} OK` : exit;
  return (
    <>
      <span class="inline">
        {isWith ? <span><Badge state={hasFailed ? "exit failed" : "exit"} text={result} /><span class={hasFailed ? "tone-bad" : "tone-good"}>, with this change</span></span>
          : <><span class="quiet">– not tested with this change</span>{hasFailed && <Badge state="exit failed" text={exit} />}</>}
        <a class="cut" href={callHref(record.runId, record.seq)} title={visible(text)}><code>{visible(shortened(text))}</code></a>
        <span class="quiet">{!isWith && !hasFailed && `${exit}, `}<Time at={record.timestamp} />{children}</span>
      </span>
      {failures.length > 0 && <ul class="failures" aria-label="Failed tests">{failures.slice(0, SHOWN_FAILURES).map(({ name, file, line, message }) => (
        <li key={name}><span class="tone-bad">✕ <Foreign class="strong" text={name} /></span>{file && <span class="quiet"> <Foreign text={file} />{line !== undefined && `:${line}`}</span>}{message && <> <code><Foreign text={message} /></code></>}</li>
      ))}{failures.length > SHOWN_FAILURES && <li class="quiet">and {failures.length - SHOWN_FAILURES} more</li>}</ul>}
      {output && <Output uri={output} run={record.runId} most={LINES} isFolded={!hasFailed || failures.length > 0} />}
    </>
  );
}
