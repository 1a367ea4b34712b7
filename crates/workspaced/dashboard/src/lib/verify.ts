/** Verifies a run: reads every record and the newest signed checkpoint, and says exactly what was checked. */

import { get, getText, query, RequestError, runPath } from "./api.ts";
import { type Exact, parseExact } from "./canonical.ts";
import { checkInclusion, checkRecord, GENESIS, type Link, parseKey } from "./proof.ts";

export interface Verdict {
  state: "checking" | "intact" | "broken" | "incomplete";
  /** Records whose hash and order are checked. */
  checked: number;
  /** The last record that the signed checkpoint covers. */
  signed: number;
  /** Leaves of the checkpoint. */
  treeSize?: number;
  /** The name of the key. */
  key?: string;
  /** The first bad record. */
  brokenSeq?: number;
  /** What is wrong, or what could not be checked. */
  problem?: string;
  /** Whether the key differs from the one that this browser knew. */
  isKeyNew?: boolean;
}

/** Chains of more records are verified, and reported on, on request only. */
export const VERIFY_AT_ONCE = 5000;

const KNOWN_KEY = "workspaced.checkpointKey";

/** Compares the key with the one that this browser has seen first. */
function isKnownKey(key: string): boolean {
  const known = localStorage.getItem(KNOWN_KEY);
  if (!known) localStorage.setItem(KNOWN_KEY, key);
  return !known || known === key;
}

/** Forgets the known key, so that the present one is taken as known. */
export const trustPresentKey = (): void => localStorage.removeItem(KNOWN_KEY);

async function checkChain(run: string, signal: AbortSignal, onProgress: (checked: number) => void, hashes: Map<number, string>): Promise<Verdict> {
  let last: Link = GENESIS;
  let cursor: string | undefined;
  do {
    const text = await getText(`${runPath(run)}/audit${query({ limit: 500, cursor })}`, signal);
    const page = parseExact(text) as Map<string, Exact>;
    for (const record of page.get("items") as Exact[]) {
      const link = await checkRecord(record, run, last);
      if (typeof link === "string")
        return { state: "broken", checked: last.seq, signed: 0, brokenSeq: last.seq + 1, problem: `Record ${last.seq + 1} ${link}.` };
      last = link;
      hashes.set(link.seq, link.hash);
    }
    cursor = page.get("nextCursor") as string | undefined;
    onProgress(last.seq);
  } while (cursor);
  return { state: "intact", checked: last.seq, signed: 0 };
}

async function checkSignature(run: string, signal: AbortSignal, chain: Verdict, hashes: Map<number, string>): Promise<Verdict> {
  const keyText = (await getText("/v1/checkpoint/key", signal)).trim();
  const key = await parseKey(keyText);
  const { checkpointedSeq } = await get<{ checkpointedSeq: number }>(`${runPath(run)}/audit/verify`, signal);
  if (!checkpointedSeq) return { ...chain, state: "incomplete", key: key.name, problem: "No checkpoint covers this run yet. One is signed every few seconds." };
  const proof = parseExact(await getText(`${runPath(run)}/audit/inclusion${query({ seq: checkpointedSeq })}`, signal));
  const { head, checkpoint } = await checkInclusion(proof, run, key);
  const covered = { ...chain, key: key.name, treeSize: checkpoint.size, isKeyNew: !isKnownKey(keyText) };
  const ours = hashes.get(head.seq);
  if (ours === undefined) return { ...covered, state: "broken", brokenSeq: chain.checked + 1, problem: `The checkpoint signs record ${head.seq}, but the chain ends at ${chain.checked}.` };
  if (ours !== head.hash) return { ...covered, state: "broken", brokenSeq: head.seq, problem: `Record ${head.seq} is not the one that the checkpoint signs.` };
  if (covered.isKeyNew) return { ...covered, state: "incomplete", signed: head.seq, problem: "The service signs with another key than the one this browser saw first." };
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
    return { ...chain, state: isOurs ? "incomplete" : "broken", problem: `The signature could not be confirmed: ${(error as Error).message}.` };
  }
}
