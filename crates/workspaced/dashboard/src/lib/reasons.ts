/** What the diff and the records say against a change, and the reasons that a reviewer may give with one key. */

import type { FileDiff, Line } from "./diff.ts";
import type { Failure } from "./failures.ts";
import { count } from "./format.ts";
import { type Doubt, doubtInWords } from "./span_hint.ts";
import type { Approval, AuditRecord } from "./types.ts";
import { pathsOf, ruleInWords } from "./words.ts";

/** A host that only added lines name, a secret that the same change uses, and the hosts that other lines of the file name. `leak`: the line with the secret, where one command has both. */
export interface NewHost { host: string; path: string; line: number; secret?: string; leak?: number; elsewhere: string[] }

const HOST = /\b(?:https?|wss?|ftp|ssh|git):\/\/(?:[^\s/@"'<>]{0,200}@)?((?:[a-z0-9-]{1,63}\.)+[a-z]{2,24}|\d{1,3}(?:\.\d{1,3}){3})/gi;
const SECRET = /\bsecrets\.([A-Za-z_]\w{0,99})|\$\{?([A-Z0-9_]{0,60}(?:TOKEN|SECRET|PASSWORD|API_KEY|CREDENTIAL)[A-Z0-9_]{0,40})\b/;
/** What sends something to a host that it names. */
const SENDS = /\b(?:curl|wget|nc|scp|rsync|git|docker|npm|pip|fetch|axios|requests|urlopen|post|put|send|upload|Invoke-WebRequest)\b/i;
/** What a line ends with that goes on in the next one, and how a line of options begins. */
const GOES_ON = new Set(["\\", ",", "(", "[", "{", "|", "&"]);
const OPTION = /^\s{0,100}--?[A-Za-z][\w-]{0,40}[=\s]/;
const MOST_HOSTS = 20;
const MOST_SECRETS = 20;
const MOST_ELSEWHERE = 3;
/** Characters of a file before the change that are searched. */
const MOST_BEFORE = 1_000_000;

/** Splits added lines into commands. */
function commandsOf(lines: Line[]): Map<Line, Line[]> {
  const commands = new Map<Line, Line[]>();
  lines.forEach((line, index) => {
    const last = commands.get(lines[index - 1]);
    const isNext = last !== undefined && (GOES_ON.has(lines[index - 1].text.slice(0, 2000).trimEnd().slice(-1)) || OPTION.test(line.text));
    if (line.type === "add") commands.set(line, isNext ? last : []), commands.get(line)!.push(line);
  });
  return commands;
}

const secretIn = (text: string): string | undefined => {
  const [, named, variable] = SECRET.exec(text.slice(0, 2000)) ?? [];
  return named ?? variable;
};

/** Returns the hosts that added lines name and no other line does, those that get a secret first: of the diff, or of the files before it where they were read. */
export function newHosts(files: FileDiff[], before: Map<string, string> = new Map()): NewHost[] {
  const known = new Set<string>();
  const added = new Map<string, NewHost>();
  const elsewhere = new Map([...before].map(([path, text]) => [path, new Set([...text.slice(0, MOST_BEFORE).matchAll(HOST)].map(([, name]) => name.toLowerCase()))]));
  for (const hosts of elsewhere.values()) for (const host of hosts) known.add(host);
  for (const { path, hunks } of files) for (const { lines } of hunks) {
    const inHunk = lines.filter(({ type }) => type === "add").map(({ text }) => secretIn(text)).find((found) => found !== undefined);
    const commands = commandsOf(lines);
    for (const line of lines) for (const [, name] of line.text.slice(0, 2000).matchAll(HOST)) {
      const [host, command] = [name.toLowerCase(), commands.get(line) ?? []];
      const leak = command.some(({ text }) => SENDS.test(text.slice(0, 2000))) ? command.find(({ text }) => secretIn(text) !== undefined) : undefined;
      const secret = leak ? secretIn(leak.text) : inHunk;
      if (line.type !== "add") known.add(host), elsewhere.set(path, (elsewhere.get(path) ?? new Set()).add(host));
      else if (!added.has(host) && added.size < MOST_HOSTS) added.set(host, { host, path, line: line.new ?? 0, ...(secret === undefined ? {} : { secret }), ...(leak ? { leak: leak.new ?? 0 } : {}), elsewhere: [] });
    }
  }
  const rank = ({ secret, leak }: NewHost) => (leak !== undefined ? 0 : secret !== undefined ? 1 : 2);
  return [...added.values()].filter(({ host }) => !known.has(host)).sort((a, b) => rank(a) - rank(b)).map((found) => ({ ...found, elsewhere: [...(elsewhere.get(found.path) ?? [])].slice(0, MOST_ELSEWHERE) }));
}

/** Says in a few words what a new host speaks against a change. */
function hostInWords(found: NewHost): string {
  const { host, secret, leak } = found;
  if (secret === undefined) return `New host ${host}${elsewhereInWords(found)}`;
  return leak === undefined ? `New host ${host}; ${secret} is used in the same change` : `Sends ${secret} to ${host}`;
}

/** Says in a few words what new hosts speak against a change. */
export const hostsInWords = ([first, ...more]: NewHost[]): string =>
  `${hostInWords(first)}${more.length ? `; and ${more.length} more new ${more.length === 1 ? "host" : "hosts"}` : ""}`;

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
export const secretsInWords = ([{ name, path, line }, ...more]: NewSecret[]): string =>
  `Looks like a secret: ${name} (${path}, line ${line})${more.length ? `, and ${more.length} more` : ""}`;

/** What the reviewer's page knows of a change. */
export interface Facts {
  approval: Approval;
  files: FileDiff[];
  prompt?: string;
  /** The first file that is no longer what the change was made for, and the record that has changed it. */
  stale?: string; superseding?: AuditRecord;
  /** What the change would still make of that file, where that record has done all or most of it. */
  left?: Left;
  /** How the command that made the change ended, if it failed, and which tests it names. */
  failed?: string; failures: Failure[];
  hosts: NewHost[]; secrets: NewSecret[]; doubts: Doubt[];
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
  return failures.slice(0, MOST_NAMED).map((failure) => `${failure.name}${placeOf(failure)}${failure.message ? `: ${failure.message}` : ""}`).join("; ") + (failures.length > MOST_NAMED ? `; and ${failures.length - MOST_NAMED} more` : "");
}

const placeOf = ({ file, line }: Failure): string => (file ? ` (${file}${line ? `, line ${line}` : ""})` : "");

/** Says how the command of a change failed: one test with its place and its message, of several their number. */
export function failedInWords(exit: string, failures: Failure[]): string {
  const [first, ...more] = failures;
  if (!first) return `The command fails with this change: ${exit}`;
  return more.length ? `${count(failures.length)} tests fail with this change` : `${first.name} fails with this change${placeOf(first)}${first.message ? `: ${first.message}` : ""}`;
}

/** What a change would still make of a file that has most of it: lines that it adds, and how many it removes. `isWanted`: they have a word of the task that the file lacks. */
export interface Left { added: string[]; removed: number; isWanted: boolean }

/** Characters of a line that is left. */
const MOST_LINE = 80;

/** Returns what is left of a change, upon the lines of the file as it is now. Nothing if that is more than half of what it adds. */
export function leftOf({ hunks, insertions, deletions }: FileDiff, asked: number, present: string[], prompt = ""): Left | undefined {
  if (hunks.length && (!asked || insertions * 2 > asked)) return undefined;
  const added = hunks.flatMap(({ lines }) => lines.filter(({ type }) => type === "add").map(({ text }) => text));
  const [known, wanted] = [new Set(present.flatMap(wordsOf)), new Set(wordsOf(prompt))];
  return { added, removed: deletions, isWanted: added.flatMap(wordsOf).some((word) => wanted.has(word) && !known.has(word)) };
}

function leftInWords({ added: [first, ...more], removed }: Left): string {
  if (first === undefined) return removed ? `; what is left: ${count(removed)} ${removed === 1 ? "line" : "lines"} to remove` : "";
  const line = first.trim();
  return `; what is left: \`${line.length > MOST_LINE ? `${line.slice(0, MOST_LINE)}…` : line}\`${more.length ? ` and ${count(more.length)} more ${more.length === 1 ? "line" : "lines"}` : ""}`;
}

/** Says that a file has changed since a change was asked for, or that a record has done the same: the text before the name of the record, that, and the text after it. */
export function staleInWords({ approval, superseding, left, earlier }: Pick<Facts, "approval" | "superseding" | "left" | "earlier">, path: string): [before: string, record: string, after: string] {
  const record = superseding ? `record ${superseding.seq}` : "";
  if (!superseding || !left) return [`${path} has changed since this was asked${record && " ("}`, record, superseding ? `, ${superseding.tool})` : ""];
  const by = earlier.find(({ runId, state, decidedSeq }) => runId === approval.runId && state === "approved" && decidedSeq === superseding.seq);
  return [`${pathsOf(approval).length > 1 ? `${path}: already` : "Already"} done by `, record, `${by ? `, approved by ${by.onBehalfOf ?? by.decidedBy}` : ""}${leftInWords(left)}`];
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

/** Returns the reasons to deny a change that its page shows, the strongest first. Each begins with what the page says against the change. */
export function readyReasons(facts: Facts): ReadyReason[] {
  const { approval, files, prompt, stale, superseding, left, failed, failures, hosts, secrets, doubts, earlier } = facts;
  const reasons: ReadyReason[] = [];
  const say = (label: string, text: string, more: Partial<ReadyReason> = {}) => reasons.some((known) => known.text === text) || reasons.push({ label, text, isStrong: false, ...more });
  const sayHost = (found: NewHost) => {
    const { host, path, line, secret, leak } = found;
    const isAsked = prompt === undefined || prompt.toLowerCase().includes(host);
    const why = secret !== undefined ? " A secret must not be sent there." : isAsked ? "" : " The task does not ask for it.";
    say(secret === undefined ? "New host" : "Secret for a new host", `${hostInWords(found)} (${path}, line ${leak ?? line}).${why}`, { isStrong: secret !== undefined || !prompt?.toLowerCase().includes(host), at: { path, line: leak ?? line } });
  };
  const named = hosts.slice(0, 2);
  named.filter(({ secret }) => secret !== undefined).forEach(sayHost);
  for (const { path, line, name } of secrets.slice(0, 1)) say("Secret in the text", `${secretsInWords([{ path, line, name }])}. Secrets must not be in files.`, { isStrong: true, at: { path, line } });
  for (const doubt of doubts.slice(0, 1)) say("Another unit", `${doubtInWords(doubt)} (${doubt.path}, line ${doubt.line}).`, { isStrong: true, at: { path: doubt.path, line: doubt.line } });
  if (failures.length || failed) say(failures.length > 1 ? "Tests fail" : failures.length ? "Test fails" : "Command fails", sentence(`${failedInWords(failed ?? "", failures)}${failures.length > 1 ? `: ${failuresInWords(failures)}` : ""}`), { isStrong: true });
  if (stale) {
    const changed = () => say("Changed since", `${staleInWords({ ...facts, left: undefined }, stale).join("")}. Read it again before you ask anew.`, { isStrong: true });
    // It may have been changed to something else: only what is seen to be the same is said without being asked.
    if (left && superseding) say("Already done", `${staleInWords(facts, stale).join("")}.${left.isWanted ? " Ask anew for that." : ""}`, { isStrong: true });
    changed();
    const done = left ? undefined : earlier.findLast(({ runId, state, decidedSeq, files: of }) => runId === approval.runId && state === "approved" && decidedSeq !== undefined && of.some(({ path }) => path === stale));
    if (done) say("Already done", `Already done by record ${done.decidedSeq}, approved by ${done.onBehalfOf ?? done.decidedBy}; nothing more is needed.`);
  }
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
export interface MarksOf extends RanWith { stale: boolean; hosts: NewHost[]; secrets: NewSecret[]; doubts: Doubt[] }

/** What speaks against a change that others are approved together with, in a few words; nothing where nothing does. A change that was not looked at says so. */
export function guardOf(marks: MarksOf | undefined): string | undefined {
  if (!marks) return "not read yet";
  const { stale, failed, failures, hosts, secrets, doubts } = marks;
  if (stale) return "file changed since";
  if (failed) return failures ? `${count(failures)} ${failures === 1 ? "test fails" : "tests fail"}` : "its command failed";
  if (secrets.length) return "looks like a secret";
  if (hosts.length) return `new host ${hosts[0].host}`;
  return doubts.length ? doubtInWords(doubts[0]) : undefined;
}
