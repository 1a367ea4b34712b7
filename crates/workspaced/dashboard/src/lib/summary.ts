/** Sums of records over time, for the charts. */

import type { AuditRecord } from "./types.ts";

export interface Summary {
  labels: string[]; reads: number[]; changes: number[]; refused: number[]; waiting: number[];
  /** Durations in microseconds, sorted, by hour. */
  durations: number[][];
  /** Refusals by the first rule or the code, most frequent first. */
  rules: [rule: string, count: number][];
}

/** Sums the records of the last `hours` hours before `now`. */
export function summarise(records: AuditRecord[], now: number, hours: number): Summary {
  const zeros = () => new Array<number>(hours).fill(0);
  const first = Math.floor(now / 3600_000) - hours + 1;
  const summary: Summary = {
    labels: zeros().map((_, hour) => `${String(new Date((first + hour) * 3600_000).getHours()).padStart(2, "0")}:00`),
    reads: zeros(), changes: zeros(), refused: zeros(), waiting: zeros(), durations: zeros().map(() => []), rules: [],
  };
  const rules = new Map<string, number>();
  for (const record of records) {
    const hour = Math.floor(Date.parse(record.timestamp) / 3600_000) - first;
    if (hour < 0 || hour >= hours || record.tool.includes(".")) continue;
    if (record.outcome === "refused" || record.outcome === "failed") {
      summary.refused[hour] += 1;
      // Denied approvals are one rule, regardless of their IDs.
      const rule = ((record.decision === "DENY" && record.reasons[0]) || record.code || "unknown").replace(/^approval:[^:]+:/, "approval:");
      rules.set(rule, (rules.get(rule) ?? 0) + 1);
    } else if (record.outcome === "pending") summary.waiting[hour] += 1;
    else if (record.mutates) summary.changes[hour] += 1;
    else summary.reads[hour] += 1;
    summary.durations[hour].push(record.durationMicros);
  }
  for (const durations of summary.durations) durations.sort((a, b) => a - b);
  summary.rules = [...rules].sort((a, b) => b[1] - a[1]);
  return summary;
}
