import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Rights } from "../app.tsx";
import { RequestError } from "../lib/api.ts";
import type { Edit } from "../lib/edits.ts";
import { count, visible, visiblePath } from "../lib/format.ts";
import { isPointedAt, useArmed, useKeys } from "../lib/hooks.ts";
import { decide, failureOf, lastOf, useDecisions, undo, type Verb } from "../lib/outbox.ts";
import { knownPerson, needsPerson, rememberPerson } from "../lib/person.ts";
import { guardOf, isOnlyReady, type ReadyReason, redoReason, toggleReason } from "../lib/reasons.ts";
import { callHref, navigate } from "../lib/route.ts";
import type { Approval } from "../lib/types.ts";
import { hasEndedUndecided, resolutionOf } from "../lib/words.ts";
import { LINE_HEIGHT } from "../ui/diff_view.tsx";
import { Badge, Dialog, Failed } from "../ui/parts.tsx";
import { Files } from "./approval_row.tsx";

/** How many changed lines are below what is seen: the diff tells it while the reader scrolls, and nothing else is rendered for that. */
export interface Below { count: number; tell: (count: number) => void }

/** Says how many changed lines are below the bar, and shows the next of them. */
function More({ below }: { below: Below }) {
  const [lines, setLines] = useState(below.count);
  const element = useRef<HTMLButtonElement>(null);
  useLayoutEffect(() => {
    below.tell = setLines;
    setLines(below.count);
    return () => void (below.tell = () => {});
  }, [below]);
  const show = () => {
    const scroller = element.current!.closest(".call")!;
    scroller.scrollBy({ top: element.current!.getBoundingClientRect().top - scroller.getBoundingClientRect().top - 2 * LINE_HEIGHT });
  };
  return lines > 0 ? <button ref={element} type="button" class="below" onClick={show}>↓ {count(lines)} more changed {lines === 1 ? "line" : "lines"}</button> : null;
}

interface Props {
  approval: Approval; rights: Rights;
  /** Whether the change is displayed. */
  isShown: boolean;
  /** How many other files the run has changed, which a denial leaves, if that is known. */
  stays?: number;
  /** How many changed lines are below what is seen. */
  below?: Below;
  /** Reasons to deny it, which are given with one key. */
  reasons: ReadyReason[];
  /** The changes of the reviewer, while they edit, and the texts that they come from. */
  edits?: Edit[]; drafts?: Map<string, string>;
  edit?: () => void; discard: () => void;
  /** Called with the line of the diff that a reason to deny is about, once the reason is offered. */
  cite: (at: ReadyReason["at"]) => void;
  /** Called once it is decided; the decision can still be undone. */
  decided: () => void;
}

/** The bar that decides about one call. Nothing is decided by a key that is held, nor before the change was displayed for a moment. */
export function Decide({ approval, rights, isShown, stays = 0, below, reasons, edits, drafts, edit, discard, cite, decided }: Props) {
  // A decision that was undone, or not accepted, is begun again where it was left.
  const [before] = useState(() => lastOf(approval.approvalId));
  const error = before?.state === "failed" ? before.error : undefined;
  const [note, setNote] = useState(before?.body.note ?? "");
  const [person, setPerson] = useState(knownPerson);
  const [isDenying, setDenying] = useState(before?.verb === "deny");
  const [isHinted, setHinted] = useState(false);
  // Whether the reviewer has touched the note: until then the strongest reason stands in it.
  const isTouched = useRef(note !== "");
  // The note on an approval, while a denial is written.
  const noteBefore = useRef("");
  const reason = useRef<HTMLTextAreaElement>(null);
  const name = useRef<HTMLInputElement>(null);
  const bar = useRef<HTMLFormElement>(null);
  const [lift, setLift] = useState(0);
  const isArmed = useArmed(`${approval.approvalId} ${approval.canApply} ${approval.warnings.map(({ code, text }) => code + text).join()}`, isShown);
  const isPanelArmed = useArmed(`${isDenying}`, isShown);
  // No button appears under the pointer, which may just have decided the change before.
  useLayoutEffect(() => {
    const buttons = [...bar.current!.querySelectorAll("button")];
    if (buttons.some(isPointedAt)) setLift(bar.current!.getBoundingClientRect().bottom - Math.min(...buttons.map((button) => button.getBoundingClientRect().top)) + 8);
  }, []);
  // Another service may ask for the name too.
  const asksPerson = needsPerson(rights) || person !== "" || (error instanceof RequestError && /decidedBy|onBehalfOf/.test(error.message + error.hint));
  useLayoutEffect(() => {
    if (isDenying) reason.current?.focus({ preventScroll: true });
  }, [isDenying]);
  const strongest = reasons.find(({ isStrong }) => isStrong);
  useLayoutEffect(() => {
    // What speaks most against a change is its reason, unless another is given. It may be read only after the key was pressed.
    if (isDenying && !isTouched.current && strongest) setNote(strongest.text);
  }, [isDenying, strongest?.text]);
  // It is replaced by typing.
  useLayoutEffect(() => {
    if (isDenying && !isTouched.current) reason.current?.setSelectionRange(0, note.length);
  }, [isDenying, note]);
  // Once the panel has its height: it must not cover what it is about.
  useLayoutEffect(() => cite(isDenying ? (reasons.find(({ text }) => note.includes(text)) ?? reasons[0])?.at : undefined), [isDenying, strongest?.text]);
  const submit = (verb: Verb, text = note.trim()) => {
    if (asksPerson && !person.trim()) return name.current?.focus();
    decide(verb, [approval], { note: text, onBehalfOf: rememberPerson(person), edits: verb === "approve" ? edits : undefined }, drafts);
    decided();
  };
  const redo = () => submit("deny", redoReason(approval));
  const deny = () => {
    if (!isDenying) noteBefore.current = note;
    isTouched.current = note.trim() !== "";
    setDenying(true);
  };
  const isReady = isOnlyReady(note, reasons);
  const stop = () => {
    setDenying(false);
    // A reason to deny is no note on an approval.
    if (isDenying) setNote(noteBefore.current);
    discard();
  };
  const isDangerous = approval.warnings.some(({ severity }) => severity === "danger");
  const canApply = approval.canApply !== false;
  const mayApprove = isArmed && canApply && (!edits || edits.length > 0);
  const isChoosing = !edits && !isDenying;
  useKeys({
    // What speaks against a change is not overlooked in the rhythm of the keys.
    a: () => isChoosing && isArmed && (isDangerous || !canApply ? setHinted(true) : submit("approve")),
    A: ({ shiftKey }) => shiftKey && isChoosing && mayApprove && isDangerous && submit("approve"),
    ...(canApply ? {} : { r: () => isChoosing && isArmed && redo() }),
    d: deny,
    ...(edit ? { e: edit } : {}),
  });
  const approveKey = edits ? "Control+Enter" : isDangerous ? "Shift+A" : "a";
  const give = ({ text, at }: ReadyReason) => {
    isTouched.current = true;
    setNote(toggleReason(note, text, reasons));
    if (!note.includes(text)) cite(at);
    reason.current?.focus();
  };
  const keys = (event: KeyboardEvent) => {
    const ready = event.ctrlKey || event.metaKey || event.altKey ? undefined : reasons[Number(event.key) - 1];
    // The key that has opened the note is still held.
    if (event.repeat && (!isTouched.current || event.key === "Enter")) return event.preventDefault();
    if (event.key === "Escape") stop();
    // A digit gives a reason as long as nothing is typed.
    else if (ready && isReady) give(ready);
    // Enter alone and with Ctrl sends it; a line begins with Shift.
    else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      if (note.trim() && (isArmed || isTouched.current)) submit("deny");
    } else return;
    event.preventDefault();
  };
  // From the editor too, which is not part of this bar.
  const send = useRef(() => {});
  send.current = () => void (edits && mayApprove && !isDenying && submit("approve"));
  useLayoutEffect(() => {
    const listener = (event: KeyboardEvent) => event.key === "Enter" && !event.repeat && (event.ctrlKey || event.metaKey) && send.current();
    addEventListener("keydown", listener);
    return () => removeEventListener("keydown", listener);
  }, []);
  return (
    <form ref={bar} class={`bar decide ${isArmed ? "armed" : ""}`} style={lift ? { paddingBottom: `${lift}px` } : undefined} onSubmit={(event) => event.preventDefault()}>
      {below && <More below={below} />}
      {error && <Failed error={error} what="Deciding" />}
      {isDenying && <fieldset class="ready"><legend class="sr-only">Ready reasons</legend>{reasons.map((ready, index) => (
        <button key={ready.text} type="button" title={visible(ready.text)} aria-pressed={note.includes(ready.text)} aria-keyshortcuts={`${index + 1}`} onClick={() => give(ready)}><Key name={`${index + 1}`} /><bdi>{visible(ready.label)}</bdi></button>
      ))}</fieldset>}
      {isDenying ? <label key="why" class="field grow why"><span>Reason (sent to the agent).{stays > 0 && ` The run's ${stays === 1 ? "other changed file is" : `${count(stays)} other changed files are`} kept.`}</span><textarea ref={reason} rows={2} required maxLength={2000} value={note} aria-keyshortcuts="Enter" onKeyDown={keys} onFocus={(event) => isReady && event.currentTarget.setSelectionRange(0, note.length)} onInput={(event) => { isTouched.current = true; setNote(event.currentTarget.value); }} /></label>
        : <label key="note" class="field grow"><span class="sr-only">Note (optional)</span><textarea rows={1} value={note} placeholder="Note (optional)" maxLength={2000} onInput={(event) => setNote(event.currentTarget.value)} /></label>}
      {asksPerson && <label class="field"><span>Your name</span><input ref={name} required value={person} placeholder="Your name" maxLength={128} onInput={(event) => setPerson(event.currentTarget.value)} /></label>}
      {isChoosing && isHinted && <p role="status" class="tone-wait">{canApply ? "Press Shift+A to approve it anyway." : "The present files do not take this change. Press r to ask the agent to redo it."}</p>}
      {!isDenying && canApply && <button type="button" class={isDangerous && !edits ? "" : "primary"} aria-keyshortcuts={approveKey} disabled={!mayApprove} onClick={() => submit("approve")}>{edits ? "Approve with my changes" : isDangerous ? "Approve anyway" : "Approve"}<Key name={edits ? "Ctrl+Enter" : approveKey} /></button>}
      {!isDenying && !canApply && <button type="button" class="primary" aria-keyshortcuts="r" title={visible(redoReason(approval))} disabled={!isArmed} onClick={redo}>Ask the agent to redo it<Key name="r" /></button>}
      {!isDenying && edit && <button type="button" aria-keyshortcuts="e" onClick={edit}>Edit first…<Key name="e" /></button>}
      {isChoosing && <button type="button" class={`danger ${isDangerous ? "primary" : ""}`} aria-keyshortcuts="d" disabled={!isArmed} onClick={deny}>Deny…<Key name="d" /></button>}
      {isDenying && <button type="button" class="danger primary" disabled={!isArmed || !isPanelArmed || !note.trim()} onClick={() => submit("deny")}>Deny<Key name="↵" /></button>}
      {(isDenying || edits) && <button type="button" onClick={stop}>Back</button>}
    </form>
  );
}

/** The key of a button, for those who see it; others are told by the button itself. */
const Key = ({ name }: { name: string }) => <kbd aria-hidden="true">{name}</kbd>;

interface ManyProps {
  approvals: Approval[];
  /** Whether everything that speaks against them is known. */
  isKnown: boolean;
  unopened: number; decided: (these: Approval[]) => void;
}

/** Those that are named when they are left out. */
const MOST_GUARDED = 3;

/** Decides about several calls, each of which was opened. What something speaks against is approved by itself. */
export function DecideMany({ approvals, isKnown, unopened, decided }: ManyProps) {
  const [isDenying, setDenying] = useState(false);
  const [note, setNote] = useState("");
  const isArmed = useArmed(approvals.map(({ approvalId }) => approvalId).join(), true);
  const guarded = approvals.filter((approval) => guardOf(approval) !== undefined);
  const plain = approvals.filter((approval) => guardOf(approval) === undefined);
  const submit = (verb: Verb, these: Approval[]) => {
    decide(verb, these, { note: note.trim(), onBehalfOf: knownPerson() });
    decided(these);
  };
  const isBlocked = unopened > 0 || !isArmed || !isKnown;
  return (
    <span class="inline">
      <button type="button" class="primary" disabled={isBlocked || !plain.length} onClick={() => submit("approve", plain)}>Approve {plain.length}</button>
      <button type="button" class="danger" disabled={isBlocked} onClick={() => setDenying(true)}>Deny {approvals.length}…</button>
      {unopened > 0 && <span class="quiet">Open {unopened === approvals.length ? "each" : `the other ${unopened}`} first.</span>}
      {guarded.length > 0 && <span class="tone-bad">Not in the bulk approval: {guarded.slice(0, MOST_GUARDED).map((approval) => `${visiblePath(approval.files[0]?.path ?? approval.tool)}${approval.files.length > 1 ? ` and ${approval.files.length - 1} more` : ""} (${visible(guardOf(approval)!)})`).join(", ")}{guarded.length > MOST_GUARDED && `, and ${guarded.length - MOST_GUARDED} more`}</span>}
      {isDenying && (
        <Dialog title={`Deny ${approvals.length} changes`} onClose={() => setDenying(false)}>
          <label class="field"><span>Reason (sent to each agent)</span><textarea rows={3} required maxLength={2000} value={note} onInput={(event) => setNote(event.currentTarget.value)} /></label>
          <p><button type="button" class="danger primary" disabled={!note.trim()} onClick={() => { setDenying(false); submit("deny", approvals); }}>Deny {approvals.length}</button></p>
        </Dialog>
      )}
    </span>
  );
}

/** Takes back the newest decision that was not sent, and shows what it was about. */
export function undoLast(): void {
  const undone = undo();
  if (undone) navigate(`/approvals?id=${undone.approvals[0].approvalId}`);
}

/** The newest decision: it can be undone for a while, and then says what became of it. Elsewhere than beside the queue it leaves once it is sent. */
export function LastDecision({ rights, isToast }: { rights: Rights; isToast?: boolean }) {
  const decisions = useDecisions();
  const last = decisions.findLast(({ state }) => state !== "undone");
  if (!last || (isToast && last.state === "sent")) return null;
  const { verb, approvals, state, results } = last;
  const [first] = state === "sent" && approvals.length === 1 ? results : approvals;
  const others = decisions.filter((decision) => decision !== last && decision.state === "waiting").length;
  const sentState = first.state === "pending" ? "approved" : first.state;
  const what = approvals.length > 1 ? <span>{approvals.length} changes</span> : <a class="cut" href={`/approvals?id=${first.approvalId}&view=all`}><Files approval={first} /></a>;
  return (
    <p class={`last-decision ${state} ${isToast ? "toast" : ""}`} role="status">
      {state === "failed" ? <span class="tone-bad">✕ {visible(failureOf(last))}</span>
        : state === "sent" && approvals.length === 1 ? <Badge state={sentState} text={first.state === "pending" ? "your approval counts; another is needed" : first.state === "failed" && !hasEndedUndecided(first) ? "could not be applied" : resolutionOf(first)} />
        : <Badge state={verb === "approve" ? "approved" : "denied"} text={verb === "approve" ? "Approved" : "Denied"} />} {what}
      {state === "waiting" && <>{others > 0 && <span class="quiet">and {others} more</span>} <button type="button" class="link" aria-keyshortcuts="z" title="It is sent in 5 seconds, and at once if you leave" onClick={undoLast}>Undo (z)</button></>}
      {state === "sent" && first.state === "approved" && rights.orchestrate && first.decidedSeq && <a href={callHref(first.runId, first.decidedSeq)}>its record</a>}
    </p>
  );
}
