/** Verifies a run: reads every record and the newest signed checkpoint, and says exactly what was checked. */

import { get, getText, query, RequestError, runPath } from "./api.ts";
import { type Exact, parseExact } from "./canonical.ts";
import { isSameKey, KeyHistory, KeyHistoryError, splitStatements } from "./key_history.ts";
import { checkInclusion, checkRecord, GENESIS, type Link, parseKey } from "./proof.ts";
import { isReadOfPerson } from "./steps.ts";
import { Story } from "./story.ts";
import type { AuditRecord } from "./types.ts";

export interface Verdict {
  state: "checking" | "intact" | "broken" | "incomplete";
  /** Records whose hash and order are checked. */
  checked: number;
  /** The last record that the signed checkpoint covers. */
  signed: number;
  /** Which of the checked records are reads of people: looking at a run makes them. */
  reads?: number[];
  /** Leaves of the checkpoint. */
  treeSize?: number;
  /** The name of the key. */
  key?: string;
  /** The first bad record. */
  brokenSeq?: number;
  /** What is wrong, or what could not be checked. */
  problem?: string;
  /** Number of verified changes of the key. */
  changes?: number;
  /** Whether no statement leads from the key that this browser trusts to the present one. */
  isKeyNew?: boolean;
  /** Whether statements lead from the key that this browser trusted to the present one. */
  isKeyReplaced?: boolean;
  /** Whether the statements about changes of the key are not acceptable, so that no signature was checked. */
  isHistoryBroken?: boolean;
}

/** Chains of more records are verified, and reported on, on request only. */
export const VERIFY_AT_ONCE = 5000;

const KNOWN_KEY = "workspaced.checkpointKey";

/** Forgets the trusted key, so that the present one is trusted after the next verification. */
export const trustPresentKey = (): void => localStorage.removeItem(KNOWN_KEY);

/** How the key that this browser trusts is related to the keys of a log: the one that it saw first, or the newest to which statements led from that. */
async function compareWithTrusted(history: KeyHistory): Promise<Pick<Verdict, "isKeyNew" | "isKeyReplaced">> {
  const known = localStorage.getItem(KNOWN_KEY);
  if (!known) return {};
  const trusted = await parseKey(known).catch(() => undefined);
  if (!trusted || !history.names(trusted)) return { isKeyNew: true };
  return { isKeyReplaced: !isSameKey(trusted, history.newest) };
}

/** Reads the present key of the service, and the statements that lead to it. */
async function readHistory(signal: AbortSignal): Promise<KeyHistory> {
  const key = await parseKey(await getText("/v1/checkpoint/key", signal));
  const history = await KeyHistory.follow(key, splitStatements(await getText("/v1/checkpoint/key/changes", signal)));
  if (!isSameKey(history.newest, key)) throw new KeyHistoryError("the statements about changes of the key lead to another key than the one that the service names");
  return history;
}

async function checkChain(run: string, signal: AbortSignal, onProgress: (checked: number) => void, hashes: Map<number, string>): Promise<Verdict> {
  let last: Link = GENESIS;
  let cursor: string | undefined;
  const story = new Story();
  const reads: number[] = [];
  let gap: Pick<Verdict, "brokenSeq" | "problem"> | undefined;
  do {
    const text = await getText(`${runPath(run)}/audit${query({ limit: 500, cursor })}`, signal);
    const page = parseExact(text) as Map<string, Exact>;
    for (const record of page.get("items") as Exact[]) {
      const link = await checkRecord(record, run, last);
      if (typeof link === "string")
        return { state: "broken", checked: last.seq, signed: 0, brokenSeq: last.seq + 1, problem: `Record ${last.seq + 1} ${link}.` };
      last = link;
      const problem = story.add(record);
      if (problem) gap ??= { brokenSeq: link.seq, problem: `Record ${link.seq} ${problem}.` };
      hashes.set(link.seq, link.hash);
      if (record instanceof Map && isReadOfPerson({ by: record.get("by"), actor: String(record.get("actor")), tool: String(record.get("tool")), outcome: record.get("outcome"), mutates: record.get("mutates") } as AuditRecord)) reads.push(link.seq);
    }
    cursor = page.get("nextCursor") as string | undefined;
    onProgress(last.seq);
  } while (cursor);
  return { state: gap ? "broken" : "intact", checked: last.seq, signed: 0, reads, ...gap };
}

async function checkSignature(run: string, signal: AbortSignal, chain: Verdict, hashes: Map<number, string>): Promise<Verdict> {
  const history = await readHistory(signal);
  const key = history.newest;
  const { checkpointedSeq, discontinuity } = await get<{ checkpointedSeq: number; discontinuity?: { seq: number; problem: string } }>(`${runPath(run)}/audit/verify`, signal);
  // The browser does not have the files that the run started with, so the first version of each is the service's to compare.
  if (discontinuity) return { ...chain, state: "broken", brokenSeq: discontinuity.seq, problem: `Record ${discontinuity.seq}: ${discontinuity.problem}.` };
  if (!checkpointedSeq) return { ...chain, state: "incomplete", key: key.name, problem: "No checkpoint covers this run yet. One is signed every few seconds." };
  const proof = parseExact(await getText(`${runPath(run)}/audit/inclusion${query({ seq: checkpointedSeq })}`, signal));
  const { head, checkpoint } = await checkInclusion(proof, run, (note) => history.open(note));
  if (checkpoint.size < history.changedAt) throw new Error(`the checkpoint over ${checkpoint.size} leaves is older than the last change of the key, after ${history.changedAt}`);
  const relation = await compareWithTrusted(history);
  // Only forwards: a key is trusted because the one before it has named it.
  if (!relation.isKeyNew) localStorage.setItem(KNOWN_KEY, key.text);
  const covered = { ...chain, ...relation, key: key.name, treeSize: checkpoint.size, changes: history.changes.length };
  const ours = hashes.get(head.seq);
  if (ours === undefined) return { ...covered, state: "broken", brokenSeq: chain.checked + 1, problem: `The checkpoint signs record ${head.seq}, but the chain ends at ${chain.checked}.` };
  if (ours !== head.hash) return { ...covered, state: "broken", brokenSeq: head.seq, problem: `Record ${head.seq} is not the one that the checkpoint signs.` };
  if (relation.isKeyNew) return { ...covered, state: "incomplete", signed: head.seq, problem: "The service signs with another key than the one that this browser trusts, and no statement leads from that one to it." };
  return { ...covered, signed: head.seq };
}

/** Verifies the chain of a run and its signature. `onProgress` receives the number of records checked. */
export async function verifyRun(run: string, signal: AbortSignal, onProgress: (checked: number) => void): Promise<Verdict> {
  if (!globalThis.crypto?.subtle)
    return { state: "incomplete", checked: 0, signed: 0, problem: "This browser offers WebCrypto only over HTTPS or on localhost, so nothing was checked." };
  const hashes = new Map<number, string>();
  const chain = await checkChain(run, signal, onProgress, hashes);
  if (chain.state === "broken") return chain;
  try {
    return await checkSignature(run, signal, chain, hashes);
  } catch (error) {
    if (signal.aborted) throw error;
    const isOurs = error instanceof RequestError || (error as Error).name === "NotSupportedError";
    if (error instanceof KeyHistoryError) return { ...chain, state: "broken", isHistoryBroken: true, problem: `The history of the signing key is refused: ${error.message}. No signature was checked.` };
    return { ...chain, state: isOurs ? "incomplete" : "broken", problem: `The signature could not be confirmed: ${(error as Error).message}.` };
  }
}
