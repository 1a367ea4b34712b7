/** The reasons that a reviewer may give to deny a change with one key. */

import type { Approval, Warning } from "./types.ts";
import { pathsOf, ruleInWords } from "./words.ts";

/** A reason in the words that the agent reads, and in two words for the reviewer. `isStrong`: it is given unless the reviewer gives another. `at`: the line of the diff that it is about. */
export interface ReadyReason { text: string; label: string; isStrong: boolean; at?: { path: string; line: number } }

const MOST_REASONS = 6;
/** A longer note is about more than a file. */
const MOST_NOTE = 500;
/** Characters of an earlier note that a button has. */
const MOST_LABEL = 40;

const LABELS = new Map([
  ["WEAKENS_TEST", "weakens a test"], ["DELETES_TEST", "deletes a test"], ["CREDENTIAL_LIKE", "looks like a credential"], ["NEW_HOST", "new host"],
  ["DENIED_BEFORE", "denied before"], ["OUTSIDE_WRITE", "outside of the policy's paths"], ["STALE", "file changed since"], ["TESTS_FAILED", "tests fail"], ["AGENT_STOPPED", "agent stopped"],
]);
/** A warning in two or three words. */
export const labelOf = ({ code }: Warning): string => LABELS.get(code) ?? code.toLowerCase().replaceAll("_", " ");

const sentence = (text: string): string => (/[.!?…”]$/.test(text) ? text : `${text}.`);
const capital = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);
const placeOf = ({ path, line, text }: Warning): string => (path === undefined || (text.includes(path) && line === undefined) ? "" : ` (${path}${line === undefined ? "" : `, line ${line}`})`);

/** Returns the reasons to deny a change that its page shows, the strongest first. `earlier`: what was decided about the same files. */
export function readyReasons(approval: Approval, earlier: Approval[]): ReadyReason[] {
  const reasons: ReadyReason[] = [];
  const say = (label: string, text: string, more: Partial<ReadyReason> = {}) => reasons.some((known) => known.text === text) || reasons.push({ label, text, isStrong: false, ...more });
  const again = (note: string, isStrong: boolean) => note.length <= MOST_NOTE && say(`As before: ${note.length > MOST_LABEL ? `${note.slice(0, MOST_LABEL)}…` : note}`, note, { isStrong });
  for (const warning of approval.warnings) {
    const { severity, path, line, text, note } = warning;
    const isStrong = severity === "danger";
    if (note) again(note, isStrong);
    else if (severity !== "info") say(capital(labelOf(warning)), sentence(`${text.replace(/\.$/, "")}${placeOf(warning)}`), { isStrong, ...(path !== undefined && line !== undefined ? { at: { path, line } } : {}) });
  }
  for (const { state, note } of earlier) if (state === "denied" && note) again(note, false);
  const paths = pathsOf(approval);
  const changed = paths.length > 1 ? `${paths[0]} and ${paths.length - 1} more` : (paths[0] ?? approval.tool);
  if (!approval.reason) for (const rule of approval.reasons) if (!rule.startsWith("kind:")) say("No reason given", `It ${ruleInWords(rule)} (${changed}), and the reason for that is missing.`);
  return reasons.slice(0, MOST_REASONS);
}

/** Returns the reason with which the agent is asked to make a change again that the present files do not take. */
export function redoReason({ warnings }: Approval): string {
  const stale = warnings.flatMap(({ code, path }) => (code === "STALE" && path !== undefined ? [path] : []));
  return `${stale.length ? stale.join(", ") : "The files"} changed after this request. Re-read ${stale.length === 1 ? "it" : "them"} and try again.`;
}

/** Returns a note with a reason: instead of other ready ones, or after what was written by hand; or without it if the note has it. */
export function toggleReason(note: string, text: string, reasons: ReadyReason[]): string {
  if (!note.includes(text) && isOnlyReady(note, reasons)) return text;
  const lines = note.includes(text) ? note.replace(text, "").split("\n").filter((line) => line.trim()) : [...note.trimEnd().split("\n").filter((line) => line.trim()), text];
  return lines.join("\n");
}

/** Whether a note has nothing but ready reasons. */
export const isOnlyReady = (note: string, reasons: ReadyReason[]): boolean => reasons.reduce((rest, { text }) => rest.replace(text, ""), note).trim() === "";

/** What keeps a change from being approved together with others, in a few words. */
export function guardOf({ warnings }: Approval): string | undefined {
  const found = warnings.find(({ severity }) => severity !== "info");
  return found && labelOf(found);
}
