/** What the diff and the records say against a change, and the reasons that a reviewer may give with one key. */

import type { FileDiff } from "./diff.ts";
import type { Failure } from "./failures.ts";
import type { Approval, AuditRecord } from "./types.ts";
import { pathsOf, ruleInWords } from "./words.ts";

/** A host that only added lines name, and a secret that the same lines use. */
export interface NewHost { host: string; path: string; line: number; secret?: string }

const HOST = /\b(?:https?|wss?|ftp|ssh|git):\/\/(?:[^\s/@"'<>]{0,200}@)?((?:[a-z0-9-]{1,63}\.)+[a-z]{2,24}|\d{1,3}(?:\.\d{1,3}){3})/gi;
const SECRET = /\bsecrets\.([A-Za-z_]\w{0,99})|\$\{?([A-Z0-9_]{0,60}(?:TOKEN|SECRET|PASSWORD|API_KEY|CREDENTIAL)[A-Z0-9_]{0,40})\b/;
const MOST_HOSTS = 20;

/** Returns the hosts that added lines name and no other line of the diff does. */
export function newHosts(files: FileDiff[]): NewHost[] {
  const known = new Set<string>();
  const added = new Map<string, NewHost>();
  for (const { path, hunks } of files) for (const { lines } of hunks) {
    const secret = lines.filter(({ type }) => type === "add").map(({ text }) => SECRET.exec(text.slice(0, 2000))).find(Boolean);
    for (const { type, text, new: line } of lines) for (const [, name] of text.slice(0, 2000).matchAll(HOST)) {
      const host = name.toLowerCase();
      if (type !== "add") known.add(host);
      else if (!added.has(host) && added.size < MOST_HOSTS) added.set(host, { host, path, line: line ?? 0, ...(secret ? { secret: secret[1] ?? secret[2] } : {}) });
    }
  }
  return [...added.values()].filter(({ host }) => !known.has(host));
}

/** What the reviewer's page knows of a change. */
export interface Facts {
  approval: Approval;
  prompt?: string;
  /** The first file that is no longer what the change was made for, and the record that has changed it. */
  stale?: string; superseding?: AuditRecord;
  /** How the command that made the change ended, if it failed, and which tests it names. */
  failed?: string; failures: Failure[];
  hosts: NewHost[];
  /** Earlier approvals about the same files. */
  earlier: Approval[];
}

/** A reason in the words that the agent reads. `isFact`: nothing but the records is needed to say it. */
export interface ReadyReason { text: string; isFact: boolean }

const MOST_REASONS = 6;
const MOST_PROMPT = 140;
const MOST_NAMED = 3;
/** A longer note is about more than a file. */
const MOST_NOTE = 500;

/** Names tests that fail, the first with its place and its message. */
export function failuresInWords(failures: Failure[]): string {
  return failures.slice(0, MOST_NAMED).map(({ name, file, line, message }) => `${name}${file ? ` (${file}${line ? `, line ${line}` : ""})` : ""}${message ? `: ${message}` : ""}`).join("; ") + (failures.length > MOST_NAMED ? `; and ${failures.length - MOST_NAMED} more` : "");
}

const sentence = (text: string): string => (/[.!?…”]$/.test(text) ? text : `${text}.`);

/** Returns the reasons to deny a change that its page shows, the surest first. */
export function readyReasons({ approval, prompt, stale, superseding, failed, failures, hosts, earlier }: Facts): ReadyReason[] {
  const reasons: ReadyReason[] = [];
  const say = (text: string, isFact = false) => reasons.some((known) => known.text === text) || reasons.push({ text, isFact });
  const paths = pathsOf(approval);
  const named = paths.length > 1 ? `${paths[0]} and ${paths.length - 1} more` : (paths[0] ?? approval.tool);
  if (stale) say(`Superseded: ${stale} has changed since this was asked${superseding ? ` (record ${superseding.seq}, ${superseding.tool})` : ""}. Read it again before you ask anew.`, true);
  if (failures.length) say(sentence(`${failures.length === 1 ? "A test fails" : `${failures.length} tests fail`} with this change: ${failuresInWords(failures)}`), true);
  else if (failed) say(`The command fails with this change: ${failed}.`, true);
  for (const { host, path, line, secret } of hosts.slice(0, 2))
    say(secret ? `Added lines use ${secret} and a new host, ${host} (${path}, line ${line}): a secret must not be sent there.` : `Added lines name a new host, ${host} (${path}, line ${line}), which the task does not ask for.`);
  for (const { state, note } of earlier) if (state === "denied" && note && note.length <= MOST_NOTE) say(note);
  const task = prompt?.trim().split(/\n/)[0] ?? "";
  say(`Outside of the task: ${named}.${task ? ` The task is: ${sentence(task.length > MOST_PROMPT ? `${task.slice(0, MOST_PROMPT)}…` : task)}` : ""}`);
  for (const rule of approval.reasons) if (!rule.startsWith("kind:")) say(`It ${ruleInWords(rule)} (${named}), and the reason for that is missing.`);
  return reasons.slice(0, MOST_REASONS);
}

/** Returns a note with a reason added, or without it if it has it. */
export function toggleReason(note: string, text: string): string {
  const lines = note.includes(text) ? note.replace(text, "").split("\n").filter((line) => line.trim()) : [...note.trimEnd().split("\n").filter((line) => line.trim()), text];
  return lines.join("\n");
}

/** Whether a note has nothing but ready reasons. */
export const isOnlyReady = (note: string, reasons: ReadyReason[]): boolean => reasons.reduce((rest, { text }) => rest.replace(text, ""), note).trim() === "";
