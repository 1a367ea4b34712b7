/** What the filters of the audit may be set to: the values that the newest records have. */

import type { AuditRecord, Run } from "./types.ts";

export type Suggested = Record<"run" | "tool" | "code" | "actor" | "label" | "pathPrefix", string[]>;

/** The values that a field offers. */
export const MOST = 200;

/** Returns the folders of a path, each ending in `/`, then the path. */
function prefixesOf(path: string): string[] {
  const parts = path.split("/");
  return parts.map((_, index) => parts.slice(0, index + 1).join("/") + (index + 1 < parts.length ? "/" : ""));
}

/** Returns the values by how often they occur, the most frequent first. */
function ranked(values: (string | undefined)[]): string[] {
  const counts = new Map<string, number>();
  for (const value of values) if (value) counts.set(value, (counts.get(value) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0])).slice(0, MOST).map(([value]) => value);
}

export function suggestionsOf(records: AuditRecord[], runs: Run[]): Suggested {
  return {
    run: [...new Set([...runs.map(({ runId }) => runId), ...records.map(({ runId }) => runId)])].slice(0, MOST),
    tool: ranked(records.map(({ tool }) => tool)),
    code: ranked(records.map(({ code }) => code)),
    actor: ranked(records.map(({ actor }) => actor)),
    label: ranked(runs.flatMap(({ labels }) => Object.entries(labels).map(([name, value]) => `${name}:${value}`))),
    pathPrefix: ranked(records.flatMap(({ pathsRead, pathsWritten, files }) => [...new Set([...pathsRead, ...pathsWritten, ...files.map(({ path }) => path)])].slice(0, 20).flatMap(prefixesOf))),
  };
}
