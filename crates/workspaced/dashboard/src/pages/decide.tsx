import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Rights } from "../app.tsx";
import { post, RequestError } from "../lib/api.ts";
import type { Edit } from "../lib/edits.ts";
import { count, visible, visiblePath } from "../lib/format.ts";
import { useKeys } from "../lib/hooks.ts";
import { knownPerson, needsPerson, rememberPerson } from "../lib/person.ts";
import { hostsInWords, isOnlyReady, type NewHost, type NewSecret, type ReadyReason, secretsInWords, toggleReason } from "../lib/reasons.ts";
import { type Doubt, doubtInWords } from "../lib/span_hint.ts";
import type { Approval } from "../lib/types.ts";
import { LINE_HEIGHT } from "../ui/diff_view.tsx";
import { Dialog, Failed } from "../ui/parts.tsx";

type Verb = "approve" | "deny";
interface Body { note?: string; onBehalfOf?: string; edits?: Edit[] }

function decide(id: string, verb: Verb, { note, onBehalfOf, edits }: Body): Promise<Approval> {
  return post<Approval>(`/v1/approvals/${encodeURIComponent(id)}/${verb}`, { ...(note ? { note } : {}), ...(onBehalfOf ? { onBehalfOf } : {}), ...(edits?.length ? { edits } : {}) });
}

const DECIDED = "workspaced:decided";
/** Tells the rest of the page that fewer approvals wait. */
export const announceDecision = (): boolean => dispatchEvent(new Event(DECIDED));
/** Calls `handler` after each decision in this tab, until the returned function is called. */
export function whenDecided(handler: () => void): () => void {
  addEventListener(DECIDED, handler);
  return () => removeEventListener(DECIDED, handler);
}

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
  /** Which files have changed since, if any have. */
  drifted?: ComponentChildren;
  /** What the command that made the change says against it. */
  failed?: string;
  /** Whether what speaks for and against the change has been read, or could not be. */
  isKnown: boolean; isUnread: boolean;
  /** Hosts that only its added lines name, what looks like a secret there, and what they compute otherwise than they should. */
  hosts: NewHost[]; secrets: NewSecret[]; doubts: Doubt[];
  /** How many other files the run has changed, which a denial leaves, if that is known. */
  stays?: number;
  /** How many changed lines are below what is seen. */
  below?: Below;
  /** Reasons to deny it, which are given with one key. */
  reasons: ReadyReason[];
  /** The changes of the reviewer, while they edit. */
  edits?: Edit[];
  edit?: () => void; discard: () => void;
  /** Called with the line of the diff that a reason to deny is about, once the reason is offered. */
  cite: (at: ReadyReason["at"]) => void;
  decided: (result: Approval) => void; changed: () => void;
}

/** The bar that decides about one call. */
export function Decide({ approval, rights, drifted, failed, isKnown, isUnread, hosts, secrets, doubts, stays = 0, below, reasons, edits, edit, discard, cite, decided, changed }: Props) {
  const [note, setNote] = useState("");
  const [person, setPerson] = useState(knownPerson);
  const [isDenying, setDenying] = useState(false);
  const [isHinted, setHinted] = useState(false);
  // Whether the reviewer has touched the note: until then the strongest reason stands in it.
  const isTouched = useRef(false);
  const [busy, setBusy] = useState<Verb>();
  const [error, setError] = useState<Error>();
  const reason = useRef<HTMLTextAreaElement>(null);
  const name = useRef<HTMLInputElement>(null);
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
  const submit = async (verb: Verb) => {
    if (asksPerson && !person.trim()) return name.current?.focus();
    setBusy(verb);
    setError(undefined);
    try {
      decided(await decide(approval.approvalId, verb, { note: note.trim(), onBehalfOf: rememberPerson(person), edits: verb === "approve" ? edits : undefined }));
    } catch (failure) {
      setError(failure as Error);
      changed();
    }
    setBusy(undefined);
  };
  const deny = () => {
    isTouched.current = note.trim() !== "";
    setDenying(true);
  };
  const isReady = isOnlyReady(note, reasons);
  const stop = () => {
    setDenying(false);
    // A reason to deny is no note on an approval.
    if (isReady) setNote("");
    discard();
  };
  const isDoubtful = drifted !== undefined || failed !== undefined || isUnread || hosts.length > 0 || secrets.length > 0 || doubts.length > 0;
  const mayApprove = busy === undefined && isKnown && (!edits || edits.length > 0);
  useKeys({
    // What speaks against a change is not overlooked in the rhythm of the keys.
    a: () => !edits && !isDenying && busy === undefined && (isDoubtful || !isKnown ? setHinted(true) : void submit("approve")),
    A: ({ shiftKey }) => shiftKey && mayApprove && !edits && !isDenying && isDoubtful && void submit("approve"),
    d: deny,
    ...(edit ? { e: edit } : {}),
  });
  const approveKey = edits ? "Control+Enter" : isDoubtful ? "Shift+A" : "a";
  const give = ({ text, at }: ReadyReason) => {
    isTouched.current = true;
    setNote(toggleReason(note, text, reasons));
    if (!note.includes(text)) cite(at);
    reason.current?.focus();
  };
  const keys = (event: KeyboardEvent) => {
    const ready = event.ctrlKey || event.metaKey || event.altKey ? undefined : reasons[Number(event.key) - 1];
    if (event.key === "Escape") stop();
    // A digit gives a reason as long as nothing is typed.
    else if (ready && isReady) give(ready);
    // Enter alone and with Ctrl sends it; a line begins with Shift.
    else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      if (note.trim() && busy === undefined) void submit("deny");
    } else return;
    event.preventDefault();
  };
  // From the editor too, which is not part of this bar.
  const send = useRef(() => {});
  send.current = () => void (edits && mayApprove && !isDenying && submit("approve"));
  useLayoutEffect(() => {
    const listener = (event: KeyboardEvent) => event.key === "Enter" && (event.ctrlKey || event.metaKey) && send.current();
    addEventListener("keydown", listener);
    return () => removeEventListener("keydown", listener);
  }, []);
  return (
    <form class="bar decide" onSubmit={(event) => event.preventDefault()}>
      {below && <More below={below} />}
      {/* Who denies reads the same in the reasons. */}
      {!isDenying && <>
        {drifted && <div role="alert">{drifted}</div>}
        {failed && <p class="tone-bad">✕ {visible(failed)}</p>}
        {hosts.length > 0 && <p class="tone-bad">! <bdi>{visible(hostsInWords(hosts))}</bdi></p>}
        {secrets.length > 0 && <p class="tone-bad">! <bdi>{visible(secretsInWords(secrets))}</bdi></p>}
        {doubts.length > 0 && <p class="tone-bad">! <bdi>{visible(doubtInWords(doubts[0]))}</bdi></p>}
      </>}
      {isUnread && <p class="tone-bad">✕ The evidence could not be read.</p>}
      {error && <Failed error={error} what="Deciding" />}
      {isDenying && <fieldset class="ready"><legend class="sr-only">Ready reasons</legend>{reasons.map((ready, index) => (
        <button key={ready.text} type="button" title={visible(ready.text)} aria-pressed={note.includes(ready.text)} aria-keyshortcuts={`${index + 1}`} onClick={() => give(ready)}><Key name={`${index + 1}`} /><bdi>{visible(ready.label)}</bdi></button>
      ))}</fieldset>}
      {isDenying ? <label key="why" class="field grow why"><span>Why not? The agent reads this.{stays > 0 && ` ${count(stays)} other changed ${stays === 1 ? "file stays as it is" : "files stay as they are"}.`}</span><textarea ref={reason} rows={2} required maxLength={2000} value={note} aria-keyshortcuts="Enter" onKeyDown={keys} onFocus={(event) => isReady && event.currentTarget.setSelectionRange(0, note.length)} onInput={(event) => { isTouched.current = true; setNote(event.currentTarget.value); }} /></label>
        : <label key="note" class="field grow"><span class="sr-only">Note (optional)</span><textarea rows={1} value={note} placeholder="Note (optional)" maxLength={2000} onInput={(event) => setNote(event.currentTarget.value)} /></label>}
      {asksPerson && <label class="field"><span>Your name</span><input ref={name} required value={person} placeholder="Your name" maxLength={128} onInput={(event) => setPerson(event.currentTarget.value)} /></label>}
      {!isDenying && isHinted && (!isKnown ? <p role="status" class="tone-wait">Not yet: what speaks for and against it is loading.</p> : isDoubtful && <p role="status" class="tone-wait">Press Shift+A to approve it anyway.</p>)}
      {!isDenying && <button type="button" class={isDoubtful && !edits ? "" : "primary"} aria-keyshortcuts={approveKey} disabled={!mayApprove} onClick={() => void submit("approve")}>{busy === "approve" ? "Approving…" : edits ? "Approve with my changes" : isDoubtful ? "Approve anyway" : "Approve"}<Key name={edits ? "Ctrl+Enter" : isDoubtful ? "Shift+A" : "a"} /></button>}
      {!isDenying && edit && <button type="button" aria-keyshortcuts="e" onClick={edit}>Edit first…<Key name="e" /></button>}
      {!isDenying && !edits && <button type="button" class={`danger ${isDoubtful ? "primary" : ""}`} aria-keyshortcuts="d" disabled={busy !== undefined} onClick={deny}>Deny…<Key name="d" /></button>}
      {isDenying && <button type="button" class="danger primary" disabled={busy !== undefined || !note.trim()} onClick={() => void submit("deny")}>{busy === "deny" ? "Denying…" : "Deny"}<Key name="↵" /></button>}
      {(isDenying || edits) && <button type="button" onClick={stop}>Back</button>}
    </form>
  );
}

/** The key of a button, for those who see it; others are told by the button itself. */
const Key = ({ name }: { name: string }) => <kbd aria-hidden="true">{name}</kbd>;

interface ManyProps {
  approvals: Approval[]; unopened: number;
  /** What speaks against a change, if anything does. */
  guardOf: (approval: Approval) => string | undefined;
  /** Called with those that were decided. */
  done: (decided: Approval[]) => void;
}

/** Those that are named when they are left out. */
const MOST_GUARDED = 3;

/** Decides about several calls, each of which was opened. What something speaks against is approved by itself. */
export function DecideMany({ approvals, unopened, guardOf, done }: ManyProps) {
  const [progress, setProgress] = useState("");
  const [error, setError] = useState<Error>();
  const [isDenying, setDenying] = useState(false);
  const [note, setNote] = useState("");
  const guarded = approvals.filter((approval) => guardOf(approval) !== undefined);
  const plain = approvals.filter((approval) => guardOf(approval) === undefined);
  const submit = async (verb: Verb) => {
    setError(undefined);
    const chosen = verb === "approve" ? plain : approvals;
    try {
      for (const [index, approval] of chosen.entries()) {
        setProgress(`${index + 1} of ${chosen.length}`);
        await decide(approval.approvalId, verb, { note: note.trim(), onBehalfOf: knownPerson() });
      }
      done(chosen);
    } catch (failure) {
      setError(failure as Error);
    }
    setProgress("");
  };
  const isBlocked = unopened > 0 || progress !== "";
  return (
    <span class="inline">
      <button type="button" class="primary" disabled={isBlocked || !plain.length} onClick={() => void submit("approve")}>Approve {plain.length}</button>
      <button type="button" class="danger" disabled={isBlocked} onClick={() => setDenying(true)}>Deny {approvals.length}…</button>
      {unopened > 0 && <span class="quiet">Open {unopened === approvals.length ? "each" : `the other ${unopened}`} first.</span>} {progress}
      {guarded.length > 0 && <span class="tone-bad">Approve by {guarded.length === 1 ? "itself" : "themselves"}: {guarded.slice(0, MOST_GUARDED).map((approval) => `${visiblePath(approval.files[0]?.path ?? approval.tool)} (${visible(guardOf(approval)!)})`).join(", ")}{guarded.length > MOST_GUARDED && `, and ${guarded.length - MOST_GUARDED} more`}.</span>}
      {error && <Failed error={error} what="Deciding" />}
      {isDenying && (
        <Dialog title={`Deny ${approvals.length} changes`} onClose={() => setDenying(false)}>
          <label class="field"><span>Why not? Each agent reads this.</span><textarea rows={3} required maxLength={2000} value={note} onInput={(event) => setNote(event.currentTarget.value)} /></label>
          <p><button type="button" class="danger primary" disabled={!note.trim() || progress !== ""} onClick={() => { setDenying(false); void submit("deny"); }}>Deny {approvals.length}</button></p>
        </Dialog>
      )}
    </span>
  );
}
