/** Agents that were stopped: what they had asked for still waits, and is not approved by habit. */

import { whoOf } from "./acts.ts";
import { get, query, runPath } from "./api.ts";
import { useLoad, type Loaded } from "./hooks.ts";
import type { Approval, AuditRecord, Page } from "./types.ts";

/** The newest stop of each run, by its ID. */
export type Stops = Map<string, AuditRecord>;
const REFRESH_MILLIS = 5000;

/** Reads the newest stop of a run, or of those since a time. */
export const readStop = async (run: string, signal: AbortSignal, since?: string): Promise<AuditRecord | undefined> =>
  (await get<Page<AuditRecord>>(`${runPath(run)}/audit${query({ tool: "run.stop", since, order: "desc", limit: 1 })}`, signal)).items[0];

/** Reads whether the agents of approvals were stopped since they asked, and goes on to do so. Of those that wait alone. */
export function useStops(approvals: Approval[]): Loaded<Stops> {
  // Only records since then are searched.
  const since = new Map<string, string>();
  for (const { runId, state, createdAt } of approvals) if (state === "pending" && createdAt < (since.get(runId) ?? "~")) since.set(runId, createdAt);
  const load = useLoad(since.size ? `stops ${JSON.stringify([...since].sort())}` : "", async (signal) => {
    const stops = await Promise.all([...since].map(([run, at]) => readStop(run, signal, at)));
    return new Map(stops.flatMap((stop) => (stop ? [[stop.runId, stop] as const] : [])));
  }, REFRESH_MILLIS);
  return since.size ? load : { ...load, isSettled: true };
}

export const stopInWords = (stop: AuditRecord): string => `Agent stopped by ${whoOf(stop)}${stop.reason ? `: ${stop.reason}` : ""}`;

/** Returns an approval with the danger that its agent was stopped since it asked. */
export function withStop(approval: Approval, stops: Stops | undefined): Approval {
  const stop = stops?.get(approval.runId);
  if (!stop || approval.state !== "pending" || stop.timestamp < approval.createdAt || approval.actor.startsWith("operator:")) return approval;
  return { ...approval, warnings: [{ code: "AGENT_STOPPED", severity: "danger", text: stopInWords(stop) }, ...approval.warnings] };
}
