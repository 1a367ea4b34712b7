/**
 * Decisions on their way to the service. Each can be undone for a few seconds before it is sent. Another page of the dashboard does
 * not end that; closing the tab or signing out sends at once, because the page has already called the change approved or denied.
 */

import { useEffect, useState } from "preact/hooks";
import { get, RequestError, send } from "./api.ts";
import type { Edit } from "./edits.ts";
import type { Approval } from "./types.ts";
import { endInWords } from "./words.ts";

export type Verb = "approve" | "deny";
export interface Body { note?: string; onBehalfOf?: string; edits?: Edit[] }
export interface Decision {
  verb: Verb;
  /** One, or several that were selected. */
  approvals: Approval[];
  body: Body;
  /** What the reviewer has written over the proposal, to begin again with after an undo. */
  drafts?: Map<string, string>;
  state: "waiting" | "sending" | "sent" | "failed" | "undone";
  /** What became of them, once they are sent. */
  results: Approval[];
  error?: Error;
}

/** How long a decision can be undone. */
export const UNDO_MILLIS = 5000;
/** Decisions that are remembered: those before are with the service. */
const MOST_KEPT = 50;

let decisions: readonly Decision[] = [];
const listeners = new Set<() => void>();

function change(decision: Decision, to: Partial<Decision>): void {
  Object.assign(decision, to);
  decisions = [...decisions];
  for (const listener of listeners) listener();
}

/** Takes a decision, and sends it once it can no longer be undone. */
export function decide(verb: Verb, approvals: Approval[], body: Body, drafts?: Map<string, string>): void {
  const decision: Decision = { verb, approvals, body, drafts, state: "waiting", results: [] };
  decisions = [...decisions.slice(-MOST_KEPT), decision];
  setTimeout(() => void sendNow(decision), UNDO_MILLIS);
  change(decision, {});
}

/** Whether a decision counts is not known: its answer was lost, and the service does not say what became of it. */
class NoAnswer extends Error {}

/** How long the service has to complete a decision whose answer was lost. */
const LOST_MILLIS = 1000;

/** Sends a decision about one approval. If its answer is lost, the approval says what became of it. */
async function sendOne(verb: Verb, approval: Approval, body: Body): Promise<Approval> {
  const path = `/v1/approvals/${encodeURIComponent(approval.approvalId)}`;
  const read = () => get<Approval>(path).catch(() => undefined);
  try {
    return (await (await send(`${path}/${verb}`, { method: "POST", body, keepalive: true })).json()) as Approval;
  } catch (error) {
    if (error instanceof RequestError && error.code === "ALREADY_EXISTS") {
      const ended = await read();
      throw ended && ended.state !== "pending" ? new Error(endInWords(ended)) : error;
    }
    if (error instanceof RequestError && error.status >= 400 && error.status < 500) throw error;
    await new Promise((done) => setTimeout(done, LOST_MILLIS));
    const now = await read();
    if (now && now.state !== "pending") return now;
    // A vote that was added may be that of another person.
    if (!now || now.votes.length > approval.votes.length) throw new NoAnswer(`No answer: it may have been ${verb === "approve" ? "approved" : "denied"}.`);
    throw error;
  }
}

/** What is said of a decision that failed. */
export function failureOf({ verb, approvals, results, error }: Decision): string {
  const done = verb === "approve" ? "approved" : "denied";
  const failure = error instanceof NoAnswer ? error.message : `Not ${done}: ${error?.message}`;
  return results.length ? `${results.length} of ${approvals.length} ${done}. ${failure}` : failure;
}

async function sendNow(decision: Decision): Promise<void> {
  if (decision.state !== "waiting") return;
  change(decision, { state: "sending" });
  const { verb, approvals, body: { note, onBehalfOf, edits } } = decision;
  const body = { ...(note ? { note } : {}), ...(onBehalfOf ? { onBehalfOf } : {}), ...(edits?.length ? { edits } : {}) };
  const answers = await Promise.allSettled(approvals.map((approval) => sendOne(verb, approval, body)));
  const results = answers.flatMap((answer) => (answer.status === "fulfilled" ? [answer.value] : []));
  const error = answers.find((answer) => answer.status === "rejected")?.reason as Error | undefined;
  change(decision, { state: error ? "failed" : "sent", results, error });
}

/** Sends what can still be undone. Returns once the service has answered. */
export const sendAll = async (): Promise<void> => void (await Promise.all(decisions.map(sendNow)));
addEventListener("pagehide", () => void sendAll());

/** Takes back the newest decision that was not sent, and returns it. */
export function undo(): Decision | undefined {
  const last = decisions.findLast(({ state }) => state === "waiting");
  if (last) change(last, { state: "undone" });
  return last;
}

/** Whether an approval is decided here: it waits no longer, whatever an older list says. */
export const isDecided = (approvalId: string): boolean => {
  const last = lastOf(approvalId);
  return last !== undefined && last.state !== "undone" && (last.state !== "failed" || last.results.some((result) => result.approvalId === approvalId));
};
/** The last decision about an approval in this tab. */
export const lastOf = (approvalId: string): Decision | undefined => decisions.findLast(({ approvals }) => approvals.some((approval) => approval.approvalId === approvalId));

/** The decisions of this tab, and a new rendering with each change of them. */
export function useDecisions(): readonly Decision[] {
  const [now, setNow] = useState(decisions);
  useEffect(() => {
    const listener = () => setNow(decisions);
    listener();
    listeners.add(listener);
    return () => void listeners.delete(listener);
  }, []);
  return now;
}
