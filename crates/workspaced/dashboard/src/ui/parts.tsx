/** Small components that every page uses. */

import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";
import { RequestError } from "../lib/api.ts";
import { commandOf, ended, isFailed } from "../lib/command.ts";
import { ago, count, exactTime, short, visible, visiblePath } from "../lib/format.ts";
import { useNow } from "../lib/hooks.ts";
import type { AuditRecord } from "../lib/types.ts";
import { rulesInWords } from "../lib/words.ts";

const SYMBOLS = new Map<string, [symbol: string, tone: string, text: string]>([
  ["ok", ["✓", "good", "ok"]],
  ["blocked", ["⊘", "bad", "blocked"]],
  ["failed", ["✕", "bad", "failed"]],
  ["pending", ["◐", "wait", "waiting"]],
  ["approved", ["✓", "good", "approved"]],
  ["denied", ["✕", "bad", "denied"]],
  ["expired", ["○", "quiet", "expired"]],
  ["open", ["●", "good", "open"]],
  ["awaiting_approval", ["◐", "wait", "waiting"]],
  ["preparing", ["◌", "quiet", "preparing"]],
  ["closed", ["■", "quiet", "closed"]],
  ["deleted", ["✕", "quiet", "deleted"]],
  ["alive", ["●", "good", "alive"]],
  ["ended", ["■", "quiet", "ended"]],
  ["exit", ["✓", "good", "exit 0"]],
  ["exit failed", ["✕", "bad", "failed"]],
]);

interface BadgeProps {
  state: string;
  short?: boolean;
  text?: string;
  /** Stands out, where the state is the first thing to see. */
  pill?: boolean;
}

/** A state with its own shape as well as its own colour. */
export function Badge({ state, short: isShort, text: given, pill }: BadgeProps) {
  const [symbol, tone, name] = SYMBOLS.get(state) ?? ["·", "quiet", state];
  const text = given === undefined ? name : visible(given);
  return (
    <span class={`badge tone-${tone} ${pill ? "pill" : ""}`} title={text}>
      <span aria-hidden="true">{symbol}</span> <span class={isShort ? "sr-only" : ""}>{text}</span>
    </span>
  );
}

/** How the command of a record has ended: red if it has failed. */
export function Exit({ record }: { record: AuditRecord }) {
  const command = commandOf(record);
  const text = command && ended(command);
  return text ? <Badge state={isFailed(command) ? "exit failed" : "exit"} text={text} /> : null;
}

/** Text of an agent: shown as text, with characters that would hide something made visible. */
export function Foreign({ text, class: name }: { text: string; class?: string }) {
  return <bdi class={name}>{visible(text)}</bdi>;
}

/** A path: its folder is quiet, its name is not. Each part has a direction of its own. With `fit` the folder is cut before the name is. */
export function Path({ path, from, fit }: { path: string; from?: string; fit?: boolean }) {
  const cut = path.lastIndexOf("/", path.length - 2) + 1;
  return (
    <span class={fit ? "path fit" : "path"} title={visiblePath(path)}>
      {from !== undefined && <><bdi class="folder">{visiblePath(from)}</bdi> → </>}
      {cut > 0 && <bdi class="folder">{visiblePath(path.slice(0, cut))}</bdi>}<bdi>{visiblePath(path.slice(cut))}</bdi>
    </span>
  );
}

/** The rules that stopped a call, in words; their names are in the title. */
export function Rules({ rules }: { rules: string[] }) {
  return <>{rulesInWords(rules).map(([words, names]) => <span key={names} class="tag rule" title={visible(names)}><bdi>{visible(words)}</bdi></span>)}</>;
}

export function Time({ at }: { at: string }) {
  const now = useNow();
  return <time dateTime={at} title={exactTime(at)}>{ago(at, now)}</time>;
}

export function Hash({ value }: { value?: string }) {
  return value ? <code class="hash" title={value}>{short(value)}</code> : <span class="quiet">none</span>;
}

export function Counts({ plus, minus }: { plus: number; minus: number }) {
  return <span class="counts"><span class="tone-good">+{count(plus)}</span> <span class="tone-bad">−{count(minus)}</span></span>;
}

export function Loading({ what, text = `Loading ${what}…` }: { what?: string; text?: string }) {
  return <p class="state" role="status">{text}</p>;
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <div class="state">{children}</div>;
}

/** A failed request: what failed, its request ID, and a retry. */
export function Failed({ error, what, retry }: { error: Error; what: string; retry?: () => void }) {
  const problem = error instanceof RequestError ? error : undefined;
  return (
    <div class="state failed" role="alert">
      <p><strong>{what} failed.</strong> {visible(error.message)}</p>
      {problem?.hint && <p>{visible(problem.hint)}</p>}
      <p class="quiet">
        {problem && <code>{problem.code}</code>} {problem?.requestId && <>request <code>{visible(problem.requestId)}</code></>}
      </p>
      {retry && <button type="button" onClick={retry}>Retry</button>}
    </div>
  );
}

interface DialogProps { title: string; onClose: () => void; children: ComponentChildren }

export function Dialog({ title, onClose, children }: DialogProps) {
  const element = useRef<HTMLDialogElement>(null);
  useEffect(() => element.current?.showModal(), []);
  return (
    <dialog ref={element} aria-label={title} onClose={onClose} onClick={(event) => event.target === element.current && onClose()}>
      <header><h2>{title}</h2><button type="button" class="plain" onClick={onClose} aria-label="Close">✕</button></header>
      {children}
    </dialog>
  );
}

interface FieldProps { label: string; value: string; onChange: (value: string) => void; search?: boolean; placeholder?: string; suggestions?: string[] }

/** A text field that reports its value when the reader pauses. */
export function Field({ label, value, onChange, search, placeholder, suggestions }: FieldProps) {
  const id = useId();
  const [text, setText] = useState(value);
  const timer = useRef<ReturnType<typeof setTimeout> | undefined>(undefined);
  useEffect(() => setText(value), [value]);
  const input = (next: string) => {
    setText(next);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => onChange(next.trim()), 250);
  };
  return (
    <label class="field">
      <span>{label}</span>
      <input type="search" value={text} placeholder={placeholder} list={suggestions && id} data-search={search || undefined} onInput={(event) => input(event.currentTarget.value)} />
      {suggestions && <datalist id={id}>{suggestions.map((suggestion) => <option key={suggestion} value={suggestion} />)}</datalist>}
    </label>
  );
}

interface ChoiceProps { label: string; value: string; options: [value: string, text: string][]; onChange: (value: string) => void }

export function Choice({ label, value, options, onChange }: ChoiceProps) {
  return (
    <label class="field">
      <span>{label}</span>
      <select value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {options.map(([option, text]) => <option key={option} value={option}>{text}</option>)}
      </select>
    </label>
  );
}

interface FiltersProps { isSet: boolean; onFocusIn?: () => void; children: ComponentChildren }

/** The fields above a list. A narrow screen has the first two of them, and the others once they are asked for, or set by the address. */
export function Filters({ isSet, onFocusIn, children }: FiltersProps) {
  const [isOpen, setOpen] = useState(isSet);
  return (
    <div class={`toolbar filters foldable ${isOpen ? "open" : ""}`} onFocusIn={onFocusIn}>
      {children}
      <button type="button" class="more-filters" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>{isOpen ? "Fewer filters" : "More filters"}</button>
    </div>
  );
}
