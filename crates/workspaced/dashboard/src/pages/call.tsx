import { useState } from "preact/hooks";
import type { Rights } from "../app.tsx";
import { endOf, isDeniedByPerson, subject, verdictInWords, whoOf } from "../lib/acts.ts";
import { callTool, get, getText, runPath } from "../lib/api.ts";
import { duration, exactTime, visible } from "../lib/format.ts";
import { type Loaded, useLoad } from "../lib/hooks.ts";
import { approvalReader, lineReader } from "../lib/files.ts";
import { callHref } from "../lib/route.ts";
import { commandOf, isFailed, outputOf, typed } from "../lib/command.ts";
import type { Approval, AuditRecord } from "../lib/types.ts";
import { kindInWords, resolutionOf } from "../lib/words.ts";
import { DiffView } from "../ui/diff_view.tsx";
import { Badge, Dialog, Exit, Failed, Foreign, Hash, Loading, Rules, Time } from "../ui/parts.tsx";

interface Props { record: AuditRecord; rights: Rights; close: () => void; last: number }

/** One call: what was asked, what was decided and by which rules, and what changed. */
export function Call({ record, rights, close, last }: Props) {
  const approval = useApprovalOf(record);
  // The summary of a command is the command once more.
  const command = commandOf(record);
  const mayRevert = rights.orchestrate && record.mutates && record.outcome === "ok" && record.files.length > 0;
  return (
    <section class="call" aria-label={`Call ${record.seq}`}>
      <header>
        <h2><code>{record.tool}</code> <span class="quiet">#{record.seq}</span> {!command && !record.input?.summary && <Foreign class="call-subject" text={subject(record)} />}</h2> {record.outcome === "pending" && approval.data ? <Badge state={approval.data.state} text={approval.data.state === "pending" ? undefined : resolutionOf(approval.data)} /> : <Badge {...endOf(record)} />} <Exit record={record} />
        <span class="inline end">
          {record.seq > 1 && <a href={callHref(record.runId, record.seq - 1) + location.search} aria-label="Previous record">↑</a>}
          {record.seq < last && <a href={callHref(record.runId, record.seq + 1) + location.search} aria-label="Next record">↓</a>}
          <button type="button" class="plain" onClick={close} aria-label="Close the call">✕</button>
        </span>
      </header>
      <Decided record={record} approval={approval.data} />
      {record.reason && <blockquote><Foreign text={record.reason} /></blockquote>}
      {record.input?.summary && !(command && typed(command)) && <blockquote><Foreign text={record.input.summary} /></blockquote>}
      <Decision record={record} />
      {record.outcome === "pending" && <PendingApproval load={approval} />}
      <Command record={record} />
      {record.artifactUris.map((uri) => (isUpload(uri) ? <Output key={uri} uri={uri} run={record.runId} /> : <Artifact key={uri} uri={uri} record={record} mayRead={rights.audit} />))}
      {mayRevert && <Revert record={record} />}
      <Files record={record} />
      {record.input && <details class="fold" open={record.tool.includes(".") && (!record.input.summary || record.input.data !== undefined)}><summary>Input</summary><pre class="json" tabIndex={0} role="region" aria-label="Input">{visible(JSON.stringify(record.input.data ?? record.input, null, 2))}</pre></details>}
      <Facts record={record} />
    </section>
  );
}

/** Who decided, where a person did. */
function Decided({ record, approval }: { record: AuditRecord; approval?: Approval }) {
  const isApproved = approval?.state === "approved" && approval.decidedSeq === record.seq;
  if (!isApproved && !isDeniedByPerson(record)) return null;
  const note = approval?.decidedSeq === record.seq ? approval.note : undefined;
  return <p><strong>{isApproved ? "Approved" : "Denied"} by <Foreign text={whoOf(record)} /></strong>, <Time at={record.timestamp} />{note && <>: <Foreign text={note} /></>}</p>;
}

function Decision({ record }: { record: AuditRecord }) {
  // What policy allows and is not done has failed: the record says why, and names no rule.
  const hasFailed = record.decision === "ALLOW" && record.outcome !== "ok";
  return (
    <dl>
      <dt>Decision</dt><dd><span title={record.decision}>{verdictInWords(record)}</span>{record.code && <> · <a href={`/problems/${record.code}`} data-outside><code>{record.code}</code></a></>}</dd>
      {hasFailed ? record.reasons.length > 0 && <><dt>Error</dt><dd class="wrap">{record.reasons.map((reason) => <div key={reason} class="tone-bad"><Foreign text={reason} /></div>)}</dd></>
        : <><dt>Rules</dt><dd class="wrap inline">{record.reasons.length ? (record.outcome === "pending" ? <Rules rules={record.reasons} /> : record.reasons.map((reason) => <code key={reason}>{visible(reason)} </code>)) : "none"}</dd></>}
      {record.evidence && <><dt>Evidence</dt><dd><EvidenceEvent run={record.runId} id={record.evidence.eventId} /></dd></>}
    </dl>
  );
}

/** Reads the record of a call by its ID. */
export const readCall = (run: string, id: string, signal: AbortSignal): Promise<AuditRecord> => get<AuditRecord>(`${runPath(run)}/tool-calls/${encodeURIComponent(id)}`, signal);

/** The command that a call names as its evidence, and how it ended. */
function EvidenceEvent({ run, id }: { run: string; id: string }) {
  const load = useLoad(`event ${id}`, (signal) => readCall(run, id, signal));
  if (load.error) return <span class="tone-bad">✕ {visible(load.error.message)}</span>;
  const command = load.data && commandOf(load.data);
  return load.data ? <span class="inline"><Exit record={load.data} /> <a class="cut" href={callHref(run, load.data.seq)}>#{load.data.seq} <code>{visible(((command && typed(command)) ?? id).split("\n")[0])}</code></a></span> : <>…</>;
}

/** Reads the approval that a call waits or waited for, or that a person decided by it. */
function useApprovalOf({ runId, toolCallId, outcome, mutates, by }: AuditRecord): Loaded<Approval | undefined> {
  return useLoad(outcome === "pending" || (mutates && by === "operator") ? `approval of ${toolCallId}` : "", async (signal) => (await get<{ approval?: Approval }>(`${runPath(runId)}/tool-calls/${encodeURIComponent(toolCallId)}`, signal)).approval, outcome === "pending" ? 5000 : 0);
}

/** The link to the approval that the call waits for. */
function PendingApproval({ load: { data: approval, error, reload } }: { load: Loaded<Approval | undefined> }) {
  if (error) return <Failed error={error} what="Reading the approval" retry={reload} />;
  if (!approval) return <Loading what="the approval" />;
  return (
    <>
      <p class="inline"><a class={`button ${approval.state === "pending" ? "primary" : ""}`} href={`/approvals?id=${approval.approvalId}&state=${approval.state}`}>{approval.state === "pending" ? "Decide" : "Approval"}</a> {approval.state !== "pending" && <Badge state={approval.state} text={resolutionOf(approval)} />} {approval.decidedBy && <>by {visible(approval.decidedBy)}{approval.onBehalfOf && <> for {visible(approval.onBehalfOf)}</>}</>}</p>
      {/* Once it is approved, the change has a record of its own. */}
      {approval.diff && approval.state !== "approved" && approval.tool !== "run_command" && <DiffView text={approval.diff} isWhole readLines={approvalReader(approval.approvalId)} />}
    </>
  );
}

export function Artifact({ uri, record, mayRead, isBare, label }: { uri: string; record: AuditRecord; mayRead: boolean; isBare?: boolean; label?: string }) {
  const id = uri.slice(uri.lastIndexOf("/") + 1);
  const load = useLoad(uri, (signal) => getText(`${runPath(record.runId)}/artifacts/${encodeURIComponent(id)}`, signal));
  if (load.error) return <Failed error={load.error} what="Reading the diff" retry={load.reload} />;
  if (load.data === undefined) return <Loading what="the diff" />;
  return <DiffView text={load.data} isBare={isBare} label={label} readLines={mayRead ? lineReader(record.runId, record.seq) : undefined} />;
}

/** The lines of an output that are shown first: the end says how it ended. */
const SHOWN_LINES = 200;

/** Whether an artifact was uploaded, such as the output of a command. */
export const isUpload = (uri: string): boolean => uri.includes("/sha256/");

/** A command: what was run, how it ended, and the records beside this one. */
function Command({ record }: { record: AuditRecord }) {
  const command = commandOf(record);
  if (!command) return null;
  const beside: [string, number | undefined][] = [["its record", command.eventSeq], ["what it changed", command.changeSeq]];
  return (
    <>
      {typed(command) && <pre class="command" aria-label="Command"><Foreign text={typed(command)!} /></pre>}
      <p class="inline">
        {isFailed(command) && command.timedOut && <span class="tone-bad">its time was over</span>}
        {beside.map(([name, seq]) => seq !== undefined && <a key={name} href={callHref(record.runId, seq) + location.search}>{name} #{seq}</a>)}
        {command.changeCode && <span class="tone-bad">not applied: <code>{visible(command.changeCode)}</code></span>}
      </p>
      {!record.artifactUris.length && outputOf(record) && <Output uri={outputOf(record)!} run={record.runId} />}
    </>
  );
}

/** Reads what a command has printed. */
const readOutput = (run: string, uri: string, signal: AbortSignal): Promise<string> => getText(`${runPath(run)}/artifacts/sha256/${encodeURIComponent(uri.slice(uri.lastIndexOf("/") + 1))}`, signal);

/** The output of a command: its last lines, and all of it when that is wanted. */
export function Output({ uri, run, most = SHOWN_LINES, isFolded }: { uri: string; run: string; most?: number; isFolded?: boolean }) {
  const [isWhole, setWhole] = useState(false);
  const load = useLoad(uri, (signal) => readOutput(run, uri, signal));
  const whole = load.data;
  if (load.error) return <Failed error={load.error} what="Reading the output" retry={load.reload} />;
  if (whole === undefined) return <Loading what="the output" />;
  const lines = whole.replace(/\n$/, "").split("\n");
  const more = isWhole ? 0 : lines.length - most;
  return (
    <details open={!isFolded}><summary>Output{more > 0 && !isFolded && `, its last ${most} lines of ${lines.length}`}</summary>
      <pre class="json" tabIndex={0} role="region" aria-label="Output">{visible((more > 0 ? lines.slice(more) : lines).join("\n"))}</pre>
      {more > 0 && <button type="button" onClick={() => setWhole(true)}>Show all {lines.length} lines</button>}
    </details>
  );
}

function Files({ record }: { record: AuditRecord }) {
  if (!record.files.length) return null;
  return (
    <details class="fold"><summary>Files and hashes ({record.files.length})</summary>
      <div class="scroll" role="region" aria-label="Files and hashes" tabIndex={0}><table class="versions">
        <thead><tr><th scope="col">Path</th><th scope="col">Kind</th><th scope="col">Before</th><th scope="col">After</th></tr></thead>
        <tbody>{record.files.slice(0, 500).map((file) => <tr key={file.path}><td class="wrap"><Foreign text={file.path} /></td><td class="quiet" title={file.kind}>{kindInWords(file.kind)}</td><td data-label="Before"><Hash value={file.oldSha256} /></td><td data-label="After"><Hash value={file.newSha256} /></td></tr>)}</tbody>
      </table></div>
    </details>
  );
}

function Facts({ record }: { record: AuditRecord }) {
  const facts: [string, string | undefined][] = [
    ["Time", exactTime(record.timestamp)], ["Duration", duration(record.durationMicros)], ["Caller", record.actor], ["By", record.by], ["Call", record.toolCallId], ["Format", record.format],
    ["Step", record.stepId], ["Request", record.requestId], ["Trace", record.traceId], ["Read", record.pathsRead.join(", ")], ["Hash", record.hash], ["Before", record.prevHash],
  ];
  return <details class="fold"><summary>Record, caller and hashes</summary><dl class="facts">{facts.filter(([, value]) => value).map(([name, value]) => <><dt key={name}>{name}</dt><dd class="wrap"><Foreign text={value!} /></dd></>)}</dl></details>;
}

/** Undoing a change: a new call that is judged and recorded like any other. */
function Revert({ record }: { record: AuditRecord }) {
  const [isOpen, setOpen] = useState(false);
  const [reason, setReason] = useState(`Revert record ${record.seq}`);
  const [result, setResult] = useState<string | Error>();
  const [isBusy, setBusy] = useState(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    try {
      const answer = await callTool<{ summary?: string; detail?: string }>(record.runId, "revert_calls", { toolCallIds: [record.toolCallId], reason });
      setResult(answer.summary ?? answer.detail ?? "Reverted.");
      setOpen(false);
    } catch (error) {
      setResult(error as Error);
    }
    setBusy(false);
  };
  return (
    <div>
      <button type="button" onClick={() => setOpen(true)}>Revert this change…</button> {typeof result === "string" && <span role="status">{visible(result)}</span>}
      {isOpen && (
        <Dialog title="Revert this change" onClose={() => setOpen(false)}>
          <p>A new change restores the files of record {record.seq} as they were before it. It is refused if later calls changed them.</p>
          <form onSubmit={(event) => void submit(event)}>
            <label class="field"><span>Reason, for the audit</span><input required maxLength={2000} value={reason} onInput={(event) => setReason(event.currentTarget.value)} /></label>
            <button type="submit" class="primary" disabled={isBusy}>Revert</button>
          </form>
          {result instanceof Error && <Failed error={result} what="Reverting" />}
        </Dialog>
      )}
    </div>
  );
}
