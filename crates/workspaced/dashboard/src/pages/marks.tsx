/** What is to be noticed of a change before it is opened. */

import { useEffect, useRef, useState } from "preact/hooks";
import { get } from "../lib/api.ts";
import { commandOf, isFailed } from "../lib/command.ts";
import { type FileDiff, parseDiff } from "../lib/diff.ts";
import { count, visible } from "../lib/format.ts";
import { useLoad } from "../lib/hooks.ts";
import { elsewhereInWords, type MarksOf, newHosts, newSecrets, type RanWith } from "../lib/reasons.ts";
import { computedIn, type Doubt, doubtInWords, doubtsOf } from "../lib/span_hint.ts";
import type { Approval } from "../lib/types.ts";
import { readEvidence, readPrompt } from "./context.tsx";

/** The marks of a change: a file has changed since, tests fail or pass with it, added lines name a new host, and, if that is wanted, which others the file names, have what looks like a secret, or compute another time or size than the task says. */
export function Marks({ stale, failed, failures, passed, isUntested, hosts, secrets, doubts, hasElsewhere }: MarksOf & { hasElsewhere?: boolean }) {
  return (
    <>
      {stale && <span class="tag mark">✕ file changed since</span>}
      {failed && <span class="tag mark">✕ {failures ? `${count(failures)} ${failures === 1 ? "test fails" : "tests fail"}` : "its command failed"}</span>}
      {hosts.slice(0, 3).map(({ host, path, line, secret }) => <span key={host} class="tag mark" title={visible(`${path}, line ${line}${secret ? `, beside ${secret}` : ""}`)}>! new host <bdi>{visible(host)}</bdi>{secret && " and a secret"}</span>)}
      {secrets.length > 0 && <span class="tag mark" title={visible(`${secrets[0].path}, line ${secrets[0].line}`)}>! looks like a secret</span>}
      {doubts.length > 0 && <span class="tag mark" title={visible(`${doubts[0].path}, line ${doubts[0].line}`)}>! <bdi>{visible(doubtInWords(doubts[0]))}</bdi></span>}
      {passed !== undefined && <span class="tag tone-good">✓ {count(passed)} {passed === 1 ? "test" : "tests"}</span>}
      {isUntested && <span class="tag">not tested</span>}
      {hasElsewhere && hosts.slice(0, 1).map((found) => found.elsewhere.length > 0 && <span class="quiet small"><bdi>{visible(elsewhereInWords(found).slice(2))}</bdi></span>)}
    </>
  );
}

/** The rows whose marks are read. */
const MOST_ROWS = 30;
/** Larger changes are looked at once they are opened. */
const MOST_LINES = 5000;
const AGAIN_MILLIS = 30000;

/** Marks that were read on any page: a list that is opened again has them with its first paint. */
const known = new Map<string, MarksOf>();
const MOST_KNOWN = 1000;
/** A list waits for its marks, so that no row moves; not for longer than this. */
const WAIT_MILLIS = 1500;

/** Reads the marks of the first approvals that wait; nothing for a moment until they are there for the first time. */
export function useMarks(approvals: Approval[]): Map<string, MarksOf> | undefined {
  const waiting = approvals.filter(({ state, files }) => state === "pending" && files.reduce((sum, { insertions, deletions }) => sum + insertions + deletions, 0) <= MOST_LINES).slice(0, MOST_ROWS);
  // What a command did stays as it is; whether a file has changed does not.
  const commands = useRef(new Map<string, RanWith>());
  const ids = waiting.map(({ approvalId }) => approvalId);
  const load = useLoad(ids.length ? `marks ${ids.join(" ")}` : "", async (signal) => {
    const found = new Map<string, MarksOf>();
    await Promise.all(waiting.map(async ({ approvalId }) => {
      try {
        const approval = await get<Approval>(`/v1/approvals/${encodeURIComponent(approvalId)}`, signal);
        const files = parseDiff(approval.diff ?? "");
        const ran = commands.current.get(approvalId) ?? (await readRan(approval, signal));
        commands.current.set(approvalId, ran);
        found.set(approvalId, { ...ran, stale: approval.present?.some(({ isExpected }) => isExpected === false) ?? false, hosts: newHosts(files), secrets: newSecrets(files), doubts: await readDoubts(approval, files, signal) });
      } catch (error) {
        if (signal.aborted) throw error;
        // The row stands without marks: the page of the approval says what cannot be read.
      }
    }));
    if (known.size + found.size > MOST_KNOWN) known.clear();
    for (const [id, marks] of found) known.set(id, marks);
    return found;
  }, AGAIN_MILLIS);
  const [isLate, setLate] = useState(false);
  const isReady = useRef(false);
  isReady.current ||= isLate || load.data !== undefined || (ids.length > 0 && ids.every((id) => known.has(id)));
  useEffect(() => {
    if (!ids.length || isReady.current) return;
    const timer = setTimeout(() => setLate(true), WAIT_MILLIS);
    return () => clearTimeout(timer);
  }, [ids.length > 0]);
  return isReady.current || !ids.length ? known : undefined;
}

/** Reads the task of a change that computes something, to compare both. */
async function readDoubts(approval: Approval, files: FileDiff[], signal: AbortSignal): Promise<Doubt[]> {
  const computed = computedIn(files);
  return computed.length ? doubtsOf(computed, (await readPrompt(approval.runId, signal))?.input?.summary, approval.reason) : [];
}

async function readRan(approval: Approval, signal: AbortSignal): Promise<RanWith> {
  // What a run has tested before a change that was made by hand says nothing of it.
  if (approval.tool !== "apply_changeset") return { failed: false, failures: 0, isUntested: true };
  const { record, failures, passed } = await readEvidence(approval, signal);
  const command = record && commandOf(record);
  return { failed: command !== undefined && isFailed(command), failures: failures.length, passed, isUntested: record === undefined };
}
