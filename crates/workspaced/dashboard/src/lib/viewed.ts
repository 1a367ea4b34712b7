/**
 * Which files a reviewer has viewed, by run, until a file's diff becomes another. The service keeps the marks of an operator that may
 * decide; the browser those of others, and of the first token, which names nobody.
 */

import { useState } from "preact/hooks";
import type { Rights } from "../app.tsx";
import { get, runPath, send } from "./api.ts";
import { digest, type FileDiff } from "./diff.ts";
import { useLoad } from "./hooks.ts";
import { needsPerson } from "./person.ts";

const KEY = "workspaced.viewed";
/** Marks of so many runs are kept, those that were used last. */
const MOST_RUNS = 30;
/** And so many files of each. */
const MOST_FILES = 3000;
type Marks = [path: string, digest: string][];

function readAll(): [scope: string, marks: Marks][] {
  try {
    const all = JSON.parse(localStorage.getItem(KEY) ?? "[]") as unknown;
    return Array.isArray(all) ? (all as [string, Marks][]) : [];
  } catch {
    // What is no list of marks is none.
    return [];
  }
}

export interface Viewed { has: (file: FileDiff) => boolean; set: (file: FileDiff, isViewed: boolean) => void; isLoading: boolean; error?: Error }

/** The marks of a reviewer on the files of a run. */
export function useViewed(rights: Rights, run: string): Viewed {
  const isKept = rights.decide && !needsPerson(rights);
  const address = `${runPath(run)}/viewed`;
  const scope = JSON.stringify([rights.operator, run]);
  const [own, setOwn] = useState(() => new Map(isKept ? [] : (readAll().find(([name]) => name === scope)?.[1] ?? [])));
  const [error, setError] = useState<Error>();
  const load = useLoad(isKept ? `viewed ${run}` : "", async (signal) => new Map((await get<{ items: { path: string; version: string }[] }>(address, signal)).items.map(({ path, version }) => [path, version])));
  // What was set here since the marks were read counts before them; an empty version is no mark.
  const versionOf = (path: string) => own.get(path) ?? load.data?.get(path);
  return {
    isLoading: isKept && !load.data && !load.error,
    error: error ?? load.error,
    has: (file) => versionOf(file.path) === digest(file),
    set: (file, isViewed) => {
      const next = new Map(own);
      next.delete(file.path);
      if (isViewed || isKept) next.set(file.path, isViewed ? digest(file) : "");
      setOwn(next);
      if (isKept) return void send(address, { method: "PUT", body: { path: file.path, ...(isViewed ? { version: digest(file) } : {}) } }).then(() => setError(undefined), setError);
      const all = [[scope, [...next].slice(-MOST_FILES)], ...readAll().filter(([name]) => name !== scope)].slice(0, MOST_RUNS);
      try {
        localStorage.setItem(KEY, JSON.stringify(all));
      } catch {
        // A full storage costs the marks of the next visit, not those of this one.
      }
    },
  };
}
