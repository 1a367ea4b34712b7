/** What the diff and the records say against a change, and the reasons that a reviewer may give with one key. */

import type { FileDiff } from "./diff.ts";
import type { Failure } from "./failures.ts";
import { count } from "./format.ts";
import type { Approval, AuditRecord } from "./types.ts";
import { pathsOf, ruleInWords } from "./words.ts";

/** A host that only added lines name, a secret that the same lines use, and the hosts that other lines of the file name. */
export interface NewHost { host: string; path: string; line: number; secret?: string; elsewhere: string[] }

const HOST = /\b(?:https?|wss?|ftp|ssh|git):\/\/(?:[^\s/@"'<>]{0,200}@)?((?:[a-z0-9-]{1,63}\.)+[a-z]{2,24}|\d{1,3}(?:\.\d{1,3}){3})/gi;
const SECRET = /\bsecrets\.([A-Za-z_]\w{0,99})|\$\{?([A-Z0-9_]{0,60}(?:TOKEN|SECRET|PASSWORD|API_KEY|CREDENTIAL)[A-Z0-9_]{0,40})\b/;
const MOST_HOSTS = 20;
const MOST_SECRETS = 20;
const MOST_ELSEWHERE = 3;
/** Characters of a file before the change that are searched. */
const MOST_BEFORE = 1_000_000;

/** Returns the hosts that added lines name and no other line does: of the diff, or of the files before it where they were read. */
export function newHosts(files: FileDiff[], before: Map<string, string> = new Map()): NewHost[] {
  const known = new Set<string>();
  const added = new Map<string, NewHost>();
  const elsewhere = new Map([...before].map(([path, text]) => [path, new Set([...text.slice(0, MOST_BEFORE).matchAll(HOST)].map(([, name]) => name.toLowerCase()))]));
  for (const hosts of elsewhere.values()) for (const host of hosts) known.add(host);
  for (const { path, hunks } of files) for (const { lines } of hunks) {
    const secret = lines.filter(({ type }) => type === "add").map(({ text }) => SECRET.exec(text.slice(0, 2000))).find(Boolean);
    for (const { type, text, new: line } of lines) for (const [, name] of text.slice(0, 2000).matchAll(HOST)) {
      const host = name.toLowerCase();
      if (type !== "add") known.add(host), elsewhere.set(path, (elsewhere.get(path) ?? new Set()).add(host));
      else if (!added.has(host) && added.size < MOST_HOSTS) added.set(host, { host, path, line: line ?? 0, ...(secret ? { secret: secret[1] ?? secret[2] } : {}), elsewhere: [] });
    }
  }
  return [...added.values()].filter(({ host }) => !known.has(host)).map((found) => ({ ...found, elsewhere: [...(elsewhere.get(found.path) ?? [])].slice(0, MOST_ELSEWHERE) }));
}

/** Says in a few words what new hosts speak against a change. */
export function hostsInWords([first, ...more]: NewHost[]): string {
  const { host, secret } = first;
  return `New host${secret === undefined ? "" : ` beside ${secret}`}: ${host}${more.length ? `, and ${more.length} more` : elsewhereInWords(first)}`;
}

/** Says which hosts other lines of the file name. Of what a lock file lists each host is the source of a package. */
export function elsewhereInWords({ path, elsewhere }: NewHost): string {
  return elsewhere.length ? `; the other ${LOCK_FILE.test(path) ? "packages come from" : "lines name"} ${elsewhere.join(", ")}` : "";
}

/** A line that was added with what looks like a secret, and the name that it has there. The value itself is repeated nowhere. */
export interface NewSecret { path: string; line: number; name: string }

/** The forms of keys that services give out, and of private keys. */
const KEY = /\b(?:AKIA[0-9A-Z]{16}|gh[pousr]_\w{30,255}|github_pat_\w{30,255}|glpat-[\w-]{20,64}|xox[abprs]-[\w-]{10,100}|sk[-_](?:live_|ant-|proj-)?[\w-]{20,200}|AIza[\w-]{35}|npm_\w{36})\b|-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----/;
/** A text that is given to a name that says what it is. */
const ASSIGNED = /\b([\w.-]{0,60}(?:password|passwd|secret|token|api[_-]?key|private[_-]?key|credential)s?)["']?\s{0,4}(?:[:=]|=>|:=)\s{0,4}(["'])([^"'\s]{12,500})\2/i;
/** Values that stand for a secret and are none. */
const NO_SECRET = /[<>{}$]|\*{3}|\.{3}|example|placeholder|change.?me|your[_-]|dummy|redacted|xxxx/i;

/** Returns the added lines that have what looks like a secret, where no other line of the diff has it. */
export function newSecrets(files: FileDiff[]): NewSecret[] {
  const found: (NewSecret & { value: string })[] = [];
  const known: string[] = [];
  for (const { path, hunks } of files) for (const { lines } of hunks) for (const { type, text, new: line } of lines) {
    const part = text.slice(0, 2000);
    if (type !== "add") known.push(part);
    if (type !== "add" || found.length >= MOST_SECRETS) continue;
    const assigned = ASSIGNED.exec(part);
    const key = KEY.exec(part)?.[0];
    // A text of letters alone is a word: a secret has digits too.
    const value = key ?? (assigned && /\d/.test(assigned[3]) && !NO_SECRET.test(assigned[3]) ? assigned[3] : undefined);
    if (value !== undefined) found.push({ path, line: line ?? 0, name: assigned?.[1] ?? "a key", value });
  }
  return found.filter(({ value }) => !known.some((text) => text.includes(value))).map(({ path, line, name }) => ({ path, line, name }));
}

/** Says in a few words which added lines have what looks like a secret. */
export function secretsInWords([{ name, path, line }, ...more]: NewSecret[]): string {
  return `Looks like a secret: ${name} (${path}, line ${line})${more.length ? `, and ${more.length} more` : ""}`;
}

/** What the reviewer's page knows of a change. */
export interface Facts {
  approval: Approval;
  files: FileDiff[];
  prompt?: string;
  /** The first file that is no longer what the change was made for, and the record that has changed it. */
  stale?: string; superseding?: AuditRecord;
  /** Whether that file is already as the change would make it: all of it, or most of the lines that it would add. */
  isDone?: boolean; isMostlyDone?: boolean;
  /** How the command that made the change ended, if it failed, and which tests it names. */
  failed?: string; failures: Failure[];
  hosts: NewHost[]; secrets: NewSecret[];
  /** Earlier approvals about the same files. */
  earlier: Approval[];
}

/** A reason in the words that the agent reads, and in two words for the reviewer. `isStrong`: it is given unless the reviewer gives another. `at`: the line of the diff that it is about. */
export interface ReadyReason { text: string; label: string; isStrong: boolean; at?: { path: string; line: number } }

const MOST_REASONS = 6;
const MOST_PROMPT = 140;
const MOST_NAMED = 3;
/** A longer note is about more than a file. */
const MOST_NOTE = 500;
/** Characters of an earlier note that a button has. */
const MOST_LABEL = 40;

/** Names tests that fail, the first with its place and its message. */
export function failuresInWords(failures: Failure[]): string {
  return failures.slice(0, MOST_NAMED).map(({ name, file, line, message }) => `${name}${file ? ` (${file}${line ? `, line ${line}` : ""})` : ""}${message ? `: ${message}` : ""}`).join("; ") + (failures.length > MOST_NAMED ? `; and ${failures.length - MOST_NAMED} more` : "");
}

const sentence = (text: string): string => (/[.!?…”]$/.test(text) ? text : `${text}.`);

/** A file that a task names. A number such as `1.82` is none, and neither is a host. */
const NAMED_FILE = /(?:^|[\s("'`])(?:[\w.@-]+\/)*[\w.-]*[a-z_][\w-]*\.(?!(?:com|org|net|io|dev|app|de|eu)\b)[a-z]\w{0,9}\b/i;
const LOCK_FILE = /(?:^|\/)(?:[\w.-]*[.-]lock(?:\.\w+)?|package-lock\.json|npm-shrinkwrap\.json|go\.sum)$/i;
/** Characters of a task and of a diff in which names are looked for. */
const MOST_TEXT = 20_000;
const wordsOf = (text: string): string[] => text.toLowerCase().slice(0, MOST_TEXT).match(/[a-z\d]{2,}/g) ?? [];

/**
 * Returns the first file of a change that its task gives no reason for. Only a task that names other files tells that: one that says
 * what is to be done may need any file. A word of the path, or of the dependencies of a lock file, is a reason.
 */
export function outsideOf(prompt: string | undefined, files: FileDiff[], paths: string[]): string | undefined {
  if (!prompt || !NAMED_FILE.test(prompt.slice(0, MOST_TEXT))) return undefined;
  const task = new Set(wordsOf(prompt).map((word) => word.replace(/s$/, "")));
  return paths.find((path) => {
    const stem = path.replace(/\.\w+$/, "");
    const changed = LOCK_FILE.test(path) ? files.filter((file) => file.path === path).flatMap(({ hunks }) => hunks.flatMap(({ lines }) => lines.filter(({ type }) => type !== "context").map(({ text }) => text))).join("\n") : "";
    return ![...wordsOf(stem), ...wordsOf(changed)].some((word) => task.has(word.replace(/s$/, "")));
  });
}

/** Returns the reasons to deny a change that its page shows, the strongest first. */
export function readyReasons({ approval, files, prompt, stale, superseding, isDone, isMostlyDone, failed, failures, hosts, secrets, earlier }: Facts): ReadyReason[] {
  const reasons: ReadyReason[] = [];
  const say = (label: string, text: string, more: Partial<ReadyReason> = {}) => reasons.some((known) => known.text === text) || reasons.push({ label, text, isStrong: false, ...more });
  const sayHost = (found: NewHost) => {
    const { host, path, line, secret } = found;
    const isAsked = prompt?.toLowerCase().includes(host) ?? false;
    const at = { path, line };
    if (secret) say("Secret for a new host", `Added lines use ${secret} and a new host, ${host} (${path}, line ${line}): a secret must not be sent there.`, { isStrong: true, at });
    else say("New host", `New host: ${host} (${path}, line ${line})${prompt === undefined || isAsked ? "" : ", which the task does not ask for"}${elsewhereInWords(found)}.`, { isStrong: !isAsked, at });
  };
  const named = hosts.slice(0, 2);
  named.filter(({ secret }) => secret !== undefined).forEach(sayHost);
  for (const { path, line, name } of secrets.slice(0, 1)) say("Secret in the text", `An added line has what looks like a secret: ${name} (${path}, line ${line}). Secrets must not be in files.`, { isStrong: true, at: { path, line } });
  if (failures.length) say(failures.length === 1 ? "Test fails" : "Tests fail", sentence(`${failures.length === 1 ? "A test fails" : `${failures.length} tests fail`} with this change: ${failuresInWords(failures)}`), { isStrong: true });
  else if (failed) say("Command fails", `The command fails with this change: ${failed}.`, { isStrong: true });
  const done = stale === undefined ? undefined : earlier.findLast(({ runId, state, decidedSeq, files: changed }) => runId === approval.runId && state === "approved" && decidedSeq !== undefined && changed.some(({ path }) => path === stale));
  // It may have been changed to something else: only what is seen to be the same is said without being asked.
  const isRepeat = isDone === true || isMostlyDone === true;
  const sayDone = () => done && say("Already done", `Already done by record ${done.decidedSeq}, approved by ${done.onBehalfOf ?? done.decidedBy}; ${isDone !== true && isMostlyDone ? "ask anew for what is missing" : "nothing more is needed"}.`, { isStrong: isRepeat });
  if (isRepeat) sayDone();
  if (stale) say("Changed since", `Superseded: ${stale} has changed since this was asked${superseding ? ` (record ${superseding.seq}, ${superseding.tool})` : ""}. Read it again before you ask anew.`, { isStrong: true });
  if (!isRepeat) sayDone();
  named.filter(({ secret }) => secret === undefined).forEach(sayHost);
  for (const { state, note } of earlier) if (state === "denied" && note && note.length <= MOST_NOTE) say(`As before: ${note.length > MOST_LABEL ? `${note.slice(0, MOST_LABEL)}…` : note}`, note);
  const paths = pathsOf(approval);
  const task = prompt?.trim().split(/\n/)[0] ?? "";
  const outside = outsideOf(prompt, files, paths);
  if (outside) say("Outside of the task", `Outside of the task: ${outside}. The task is: ${sentence(task.length > MOST_PROMPT ? `${task.slice(0, MOST_PROMPT)}…` : task)}`);
  const changed = paths.length > 1 ? `${paths[0]} and ${paths.length - 1} more` : (paths[0] ?? approval.tool);
  if (!approval.reason) for (const rule of approval.reasons) if (!rule.startsWith("kind:")) say("No reason given", `It ${ruleInWords(rule)} (${changed}), and the reason for that is missing.`);
  return reasons.slice(0, MOST_REASONS);
}

/** Returns a note with a reason: instead of other ready ones, or after what was written by hand; or without it if the note has it. */
export function toggleReason(note: string, text: string, reasons: ReadyReason[]): string {
  if (!note.includes(text) && isOnlyReady(note, reasons)) return text;
  const lines = note.includes(text) ? note.replace(text, "").split("\n").filter((line) => line.trim()) : [...note.trimEnd().split("\n").filter((line) => line.trim()), text];
  return lines.join("\n");
}

/** Whether a note has nothing but ready reasons. */
export const isOnlyReady = (note: string, reasons: ReadyReason[]): boolean => reasons.reduce((rest, { text }) => rest.replace(text, ""), note).trim() === "";

/** How the command of a change ended that ran with it, if there is one. */
export interface RanWith { failed: boolean; failures: number; passed?: number; isUntested?: boolean }
/** What is to be noticed of a change before it is opened. */
export interface MarksOf extends RanWith { stale: boolean; hosts: NewHost[]; secrets: NewSecret[] }

/** What speaks against a change that others are approved together with, in a few words; nothing where nothing does. A change that was not looked at says so. */
export function guardOf(marks: MarksOf | undefined): string | undefined {
  if (!marks) return "not read yet";
  const { stale, failed, failures, hosts, secrets } = marks;
  if (stale) return "file changed since";
  if (failed) return failures ? `${count(failures)} ${failures === 1 ? "test fails" : "tests fail"}` : "its command failed";
  if (secrets.length) return "looks like a secret";
  return hosts.length ? `new host ${hosts[0].host}` : undefined;
}
