import { get, query, runPath } from "../lib/api.ts";
import { useLoad } from "../lib/hooks.ts";
import type { Approval, AuditRecord, Page } from "../lib/types.ts";

const known = new Map<string, string>();
const MOST_KNOWN = 1000;
/** The rows of a list whose decisions are read. */
const MOST_ROWS = 30;

/** Returns when an approval was decided; nothing if no record says so. */
export async function readDecisionTime({ approvalId, runId, decidedSeq }: Approval, signal: AbortSignal): Promise<string | undefined> {
  if (decidedSeq === undefined) return undefined;
  const found = known.get(approvalId) ?? (await get<Page<AuditRecord>>(`${runPath(runId)}/audit${query({ fromSeq: decidedSeq, limit: 1 })}`, signal)).items[0]?.timestamp;
  if (known.size >= MOST_KNOWN) known.clear();
  if (found) known.set(approvalId, found);
  return found;
}

/** Reads when approvals were decided, by their IDs. A time that cannot be read is left out. */
export async function readDecisionTimes(approvals: Approval[], signal: AbortSignal): Promise<Map<string, string>> {
  const times = await Promise.allSettled(approvals.map((approval) => readDecisionTime(approval, signal)));
  return new Map(approvals.flatMap(({ approvalId }, index) => {
    const time = times[index];
    return time.status === "fulfilled" && time.value ? [[approvalId, time.value] as const] : [];
  }));
}

/** As `readDecisionTimes`, of the first approvals of a list. */
export function useDecisionTimes(approvals: Approval[]): Map<string, string> | undefined {
  const decided = approvals.filter(({ decidedSeq }) => decidedSeq !== undefined).slice(0, MOST_ROWS);
  const load = useLoad(decided.length ? `decisions ${decided.map(({ approvalId }) => approvalId).join(" ")}` : "", (signal) => readDecisionTimes(decided, signal));
  return load.data;
}
