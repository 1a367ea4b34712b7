import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { Rights } from "../app.tsx";
import { get, getText, query, runPath } from "../lib/api.ts";
import { type FileDiff, parseDiff } from "../lib/diff.ts";
import { applied, diffOfDrafts, diffOfTexts, type EditableHunk, editedHunks, hunksOf } from "../lib/edits.ts";
import { approvalReader } from "../lib/files.ts";
import { exactTime, visible } from "../lib/format.ts";
import { useLoad } from "../lib/hooks.ts";
import { isDecided, lastOf } from "../lib/outbox.ts";
import { type ReadyReason, readyReasons } from "../lib/reasons.ts";
import { callHref } from "../lib/route.ts";
import { useStops, withStop } from "../lib/stops.ts";
import type { Approval, AuditRecord, Page, Run } from "../lib/types.ts";
import { endInWords, hasEndedUndecided, resolutionOf, verbOf } from "../lib/words.ts";
import { Boundary } from "../ui/boundary.tsx";
import { DiffView, FilesDiff, LayoutOfDiff } from "../ui/diff_view.tsx";
import { Badge, Counts, Failed, Foreign, Hash, Loading, Path, Rules, Time } from "../ui/parts.tsx";
import { showAtTop } from "../ui/window.tsx";
import { Besides, BesidesLink, useBesides } from "./besides.tsx";
import { Artifact, isUpload } from "./call.tsx";
import { Context, useEvidence, useRelated } from "./context.tsx";
import { readDecisionTime } from "./decision.tsx";
import { type Below, Decide } from "./decide.tsx";
import { Warnings } from "./warnings.tsx";

interface Props { approval: Approval; run?: Run; elsewhere: Approval[]; rights: Rights; error?: Error; close: () => void; decided: () => void }

/** What each file is now, where that is not what the change was made for. Nothing where that cannot be told. */
type Drift = Map<string, string | undefined>;
const driftOf = ({ present }: Approval): Drift | undefined =>
  present && new Map(present.filter(({ isExpected }) => isExpected === false).map(({ path, sha256 }) => [path, sha256]));

/** One approval: what speaks against it, the task, the change, and what it would be applied to; the decision sticks to the lower edge. */
export function ApprovalView({ approval: asked, run, elsewhere, rights, error, close, decided }: Props) {
  const stops = useStops([asked]);
  const approval = withStop(asked, stops.data);
  const isPending = approval.state === "pending";
  const drift = driftOf(approval);
  const unknown = approval.present?.filter(({ isExpected }) => isExpected === undefined || isExpected === null).length ?? 0;
  const isOutgoing = isPending && isDecided(approval.approvalId);
  const mayDecide = rights.decide && isPending && !isOutgoing;
  const files = useMemo(() => parseDiff(approval.diff ?? ""), [approval.diff]);
  const [drafts, setDrafts] = useState(() => (isOutgoing ? undefined : lastOf(approval.approvalId)?.drafts));
  const hunks = useMemo(() => hunksOf(files), [files]);
  // An edit is applied upon the agent's change, which cannot be applied to other files.
  const mayEdit = mayDecide && approval.canApply !== false && !drift?.size && approval.approvers === 1 && !approval.notCreator && approval.tool !== "run_command" && hunks.length > 0;
  const edits = drafts && editedHunks(hunks, drafts);
  const evidence = useEvidence(approval);
  const others = useRelated(approval);
  const related = [...others.items, ...elsewhere];
  const besides = useBesides(approval, run);
  const isPainted = usePainted(evidence.isSettled && others.isSettled && stops.isSettled && run !== undefined);
  const below = useRef<Below>({ count: 0, tell: () => {} });
  const seen = (count: number) => below.current.tell((below.current.count = count));
  const [cited, setCited] = useState<ReadyReason["at"]>();
  const reasons = readyReasons(approval, related);
  // The title names the file of a change of one: it begins with its first line.
  const isOne = files.length === 1 && files[0].oldPath === undefined && approval.files.length === 1;
  const request = <DiffView text={approval.diff ?? ""} isWhole isBare={isOne} isOne={isOne} cited={cited} seen={mayDecide ? seen : undefined} readLines={approvalReader(approval.approvalId)} />;
  const counts = files.reduce((sum, file) => ({ plus: sum.plus + file.insertions, minus: sum.minus + file.deletions }), { plus: 0, minus: 0 });
  return (
    <>
      <header class={isPainted ? "approval-head" : "approval-head unpainted"}>
        <Boundary what="the title" instead={() => <h2><code>{approval.tool}</code></h2>}><Title approval={approval} /></Boundary> <Counts plus={counts.plus} minus={counts.minus} /> {!mayDecide && !isOutgoing && <Badge state={approval.state} text={isPending ? undefined : resolutionOf(approval)} pill />}
        <Rules rules={approval.reasons} />
        <span class={mayDecide ? "quiet small asked" : "quiet small"} title={isPending ? `expires ${exactTime(approval.expiresAt)}` : undefined}>requested <Time at={approval.createdAt} />{isPending && Date.parse(approval.expiresAt) - Date.now() < SOON_MILLIS && <>, expires <Time at={approval.expiresAt} /></>}</span>
        {isOne && approval.tool !== "run_command" && !drafts && <LayoutOfDiff />}
        <button type="button" class="plain end" aria-label="Close the approval" onClick={close}>✕</button>
      </header>
      {error && <Failed error={error} what="Refreshing the approval" />}
      {stops.error && <Failed error={stops.error} what="Asking whether the agent was stopped" retry={stops.reload} />}
      <blockquote><Foreign text={approval.reason} /></blockquote>
      {isPending && <Boundary what="the warnings"><Warnings warnings={approval.warnings} cite={setCited} /></Boundary>}
      <Boundary what="the task"><Context approval={approval} run={run} evidence={evidence} related={related} besides={<BesidesLink state={besides} />} /></Boundary>
      <Outcome approval={approval} />
      {isPending && (!drift || unknown > 0) && <p class="note wait">Current versions{drift && ` of ${unknown} files`} unavailable; they are compared when you approve.</p>}
      {approval.tool === "run_command" ? <pre class="command" aria-label="Command" tabIndex={0} role="region"><Foreign text={approval.diff ?? ""} /></pre>
        : drafts ? <Editor hunks={hunks} drafts={drafts} change={setDrafts} />
        : approval.editedSeq ? <section aria-label="Original request"><h3>Original request</h3>{request}</section> : request}
      {approval.editedSeq && <Boundary what="the reviewer's changes"><Edited approval={approval} files={files} mayRead={rights.audit} /></Boundary>}
      {drafts && edits && edits.length > 0 && <NetDiff hunks={hunks} drafts={drafts} />}
      <Boundary what="what else the run changed"><Besides runId={approval.runId} state={besides} /></Boundary>
      <Boundary what="the versions of the files"><Versions approval={approval} drift={drift} /></Boundary>
      {mayDecide && <Decide approval={approval} rights={rights} isShown={isPainted} reasons={reasons} edits={edits} drafts={drafts} cite={setCited} decided={decided}
        stays={besides.load.data?.filesChanged} below={drafts ? undefined : below.current}
        edit={mayEdit && !drafts ? () => setDrafts(new Map()) : undefined} discard={() => setDrafts(undefined)} />}
    </>
  );
}

/** An approval that expires within this time says so. */
const SOON_MILLIS = 3600_000;

/** A page waits for what it is about, so that nothing on it moves; not for longer than this. */
const PAINT_MILLIS = 500;

/** Whether a page is to be seen: once it is complete, or has waited for long enough. */
function usePainted(isComplete: boolean): boolean {
  const [isPainted, setPainted] = useState(false);
  useEffect(() => {
    if (isPainted) return;
    const timer = setTimeout(() => setPainted(true), isComplete ? 0 : PAINT_MILLIS);
    return () => clearTimeout(timer);
  }, [isComplete, isPainted]);
  return isPainted || isComplete;
}

/** Lines of a file before the change that are read. */
const MOST_BEFORE = 5000;

/** The text of a file before the change, by lines. */
const readBefore = ({ approvalId, files }: Approval, path: string): Promise<string[]> =>
  files.some((file) => file.path === path && file.oldSha256) ? approvalReader(approvalId)(path, 1, MOST_BEFORE, 0) : Promise.resolve([]);

const readDiff = (record: AuditRecord, signal: AbortSignal): Promise<string[]> =>
  Promise.all(record.artifactUris.filter((uri) => !isUpload(uri)).map((uri) => getText(`${runPath(record.runId)}/artifacts/${encodeURIComponent(uri.slice(uri.lastIndexOf("/") + 1))}`, signal)));

/** What the person who approved has changed of it: the records that were made with the decision. */
function Edited({ approval, files, mayRead }: { approval: Approval; files: FileDiff[]; mayRead: boolean }) {
  const { approvalId, runId, editedSeq, decidedSeq, onBehalfOf, decidedBy } = approval;
  const load = useLoad(`edits ${runId} ${editedSeq}`, async (signal) => {
    const { items } = await get<Page<AuditRecord>>(`${runPath(runId)}/audit${query({ fromSeq: editedSeq, limit: 20 })}`, signal);
    return items.filter(({ requestId, seq }) => requestId === items[0].requestId && seq !== decidedSeq);
  });
  const final = useLoad(load.data ? `final ${approvalId}` : "", async (signal) => {
    const edits = (await Promise.all(load.data!.map((record) => readDiff(record, signal)))).map((texts) => texts.flatMap(parseDiff));
    return Promise.all(files.map(async (file) => {
      const before = await readBefore(approval, file.path);
      const steps = [[file], ...edits].map((step) => step.find(({ path }) => path === file.path));
      const after = steps.reduce<string[] | undefined>((lines, step) => (lines && step ? applied(lines, step) : lines), before);
      return after && diffOfTexts(file.path, before, after);
    }));
  });
  const whole = final.data?.every((file) => file !== undefined) ? final.data as FileDiff[] : undefined;
  return (
    <>
    <section aria-label="Changes of the reviewer">
      <h3>What <Foreign text={onBehalfOf ?? decidedBy ?? "the reviewer"} /> changed</h3>
      {load.error ? <Failed error={load.error} what="Reading the reviewer's changes" retry={load.reload} /> : !load.data ? <Loading what="the reviewer's changes" />
        : load.data.map((record) => <div key={record.seq}><p><a href={callHref(runId, record.seq)}>record #{record.seq}</a></p>{record.artifactUris.filter((uri) => !isUpload(uri)).map((uri) => <Artifact key={uri} uri={uri} record={record} mayRead={mayRead} isBare label={`record ${record.seq}`} />)}</div>)}
    </section>
    {whole && <section aria-label="What was applied"><h3>What was applied</h3><FilesDiff files={whole} isWhole isBare isOne={whole.length === 1} label="what was applied" /></section>}
    </>
  );
}

const Title = ({ approval }: { approval: Approval }) => <h2>{verbOf(approval)}{approval.files.length === 1 && <> <Path path={approval.files[0].path} /></>}</h2>;

function Outcome({ approval }: { approval: Approval }) {
  const { approvalId, state, decidedBy, onBehalfOf, note, editedSeq } = approval;
  const time = useLoad(decidedBy ? `decision of ${approvalId}` : "", (signal) => readDecisionTime(approval, signal)).data;
  return (
    <>
      {decidedBy && <p><strong>{state === "denied" ? "Denied" : editedSeq ? "Approved with changes" : "Approved"} by <Foreign text={onBehalfOf ?? decidedBy} /></strong>{onBehalfOf && <span class="quiet"> with the token of <Foreign text={decidedBy} /></span>}{time && <span class="quiet">, <Time at={time} /></span>}{note && <>: <Foreign text={note} /></>}</p>}
      {hasEndedUndecided(approval) ? <p class="note">{endInWords(approval)} Nothing was changed.</p> : state === "failed" && <p class="note bad">It was approved, but could not be applied: the files had changed since, or the run had ended. Nothing was changed.</p>}
      {state === "expired" && <p class="note">Nobody decided in time. Nothing was changed; the agent can ask again.</p>}
    </>
  );
}

interface EditorProps { hunks: EditableHunk[]; drafts: Map<string, string>; change: (drafts: Map<string, string>) => void }

/** The proposed text with the numbers of its lines, to be changed before it is approved. */
function Editor({ hunks, drafts, change }: EditorProps) {
  const first = Math.max(0, hunks.findIndex(({ caret }) => caret !== undefined));
  const field = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => {
    const { caret: [from, to] = [0, 0], text = "" } = hunks[first] ?? {};
    field.current?.setSelectionRange(from, to);
    field.current?.focus({ preventScroll: true });
    // What the edit comes to is shown below: there is room for both.
    const label = field.current?.closest<HTMLElement>(".field");
    if (label) showAtTop(label);
    if (field.current) showLine(field.current, text.slice(0, from).split("\n").length);
  }, []);
  return (
    <section class="editor" aria-label="Proposed text">
      <p class="quiet">Your edit is applied together with the agent's.</p>
      {hunks.map(({ key, path, text, from, to, added }, index) => {
        const draft = drafts.get(key) ?? text;
        return (
          <label key={key} class="field"><span><Path path={path} />, lines {from} to {to}{draft !== text && <b class="tone-wait"> changed</b>}</span>
            <span class="numbered"><span class="numbers" aria-hidden="true">{draft.split("\n").map((_, at) => <span key={at} class={draft === text && added.has(at) ? "added" : ""}>{from + at}{"\n"}</span>)}</span>
              <textarea ref={index === first ? field : undefined} spellcheck={false} wrap="off" rows={draft.split("\n").length} value={draft} onInput={(event) => change(new Map(drafts).set(key, event.currentTarget.value))} /></span></label>
        );
      })}
    </section>
  );
}

/** The lines that are seen below the one that is edited first. */
const LINES_BELOW = 8;

/** Scrolls to a line of a field, counted from 1, where it is below the bar that decides. */
function showLine(field: HTMLElement, line: number): void {
  const scroller = field.closest(".call");
  const bar = scroller?.querySelector(":scope > .bar");
  const height = parseFloat(getComputedStyle(field).lineHeight);
  const hidden = bar ? field.getBoundingClientRect().top + (line + LINES_BELOW) * height - bar.getBoundingClientRect().top : 0;
  if (scroller && hidden > 0 && line > LINES_BELOW) scroller.scrollTop += hidden;
}

/** Scrolls an element above the bar that decides, as far as the field with the focus stays in view. */
function showWhole(element: HTMLElement): void {
  const scroller = element.closest(".call");
  const bar = scroller?.querySelector(":scope > .bar");
  const field = document.activeElement?.closest(".numbered");
  if (!scroller || !bar || !field) return;
  const hidden = element.getBoundingClientRect().bottom - bar.getBoundingClientRect().top;
  scroller.scrollTop += Math.max(0, Math.min(hidden, field.getBoundingClientRect().top - scroller.getBoundingClientRect().top));
}

/** What the reviewer's edit comes to, before it is approved: against the agent's text, or against the files as they are. */
function NetDiff({ hunks, drafts }: { hunks: EditableHunk[]; drafts: Map<string, string> }) {
  const [from, setFrom] = useState<"proposal" | "present">("proposal");
  const files = useMemo(() => diffOfDrafts(hunks, drafts, from), [hunks, drafts, from]);
  const element = useRef<HTMLElement>(null);
  const lines = files.reduce((sum, file) => sum + file.hunks.reduce((all, hunk) => all + hunk.lines.length, 0), 0);
  useLayoutEffect(() => showWhole(element.current!), [lines]);
  // The lines around them are in the field above.
  return (
    <section ref={element} class="net" aria-label="Your changes">
      <div class="toolbar"><h3>Your changes</h3>
        <span class="segments" role="group" aria-label="Compared with">
          <button type="button" aria-pressed={from === "proposal"} onClick={() => setFrom("proposal")}>the agent's → mine</button>
          <button type="button" aria-pressed={from === "present"} onClick={() => setFrom("present")}>the file now → mine</button>
        </span></div>
      {files.length ? <FilesDiff key={from} files={files} isWhole isBare isOne={files.length === 1} context={0} /> : <p class="state">Nothing changes: the files stay as they are.</p>}
    </section>
  );
}

function Versions({ approval, drift }: { approval: Approval; drift?: Drift }) {
  const rows = approval.files.map(({ path, operation, oldSha256, newSha256 }) => (
    <tr key={path}><td class="wrap"><Path path={path} /></td><td>{operation}</td><td data-label="Applies to"><Hash value={oldSha256} /></td><td data-label="Result"><Hash value={newSha256} /></td>
      <td data-label="Now">{drift?.has(path) ? <span class="tone-bad">✕ another: <Hash value={drift.get(path)} /></span> : approval.present?.some((file) => file.path === path && file.isExpected) ? <span class="tone-good">✓ same</span> : <span class="quiet">–</span>}</td></tr>
  ));
  if (!rows.length) return null;
  return (
    <details class="fold"><summary>Details<span class="sr-only">: hashes, and rules by name</span>{approval.present?.every(({ isExpected }) => isExpected) && <> <span class="tone-good">✓ {rows.length === 1 ? "File" : "Files"} unchanged since the request</span></>}</summary>
      <p class="inline">{approval.reasons.map((reason) => <code key={reason}>{visible(reason)}</code>)} <code>{visible(approval.actor)}</code> <code>{visible(approval.toolCallId)}</code></p>
      <div class="scroll" role="region" aria-label="Versions of the files" tabIndex={0}><table class="versions">
        <thead><tr><th scope="col">Path</th><th scope="col">Operation</th><th scope="col">Applies to</th><th scope="col">Result</th><th scope="col">Now</th></tr></thead>
        <tbody>{rows}</tbody>
      </table></div>
    </details>
  );
}
