/** Which files a reviewer has viewed, by run, until a file's diff becomes another. This browser keeps the marks. */

import { useState } from "preact/hooks";
import type { Rights } from "../app.tsx";
import { digest, type FileDiff } from "./diff.ts";

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

export interface Viewed { has: (file: FileDiff) => boolean; set: (file: FileDiff, isViewed: boolean) => void }

/** The marks of a reviewer on the files of a run. */
export function useViewed(rights: Rights, run: string): Viewed {
  const scope = JSON.stringify([rights.operator, run]);
  const [marks, setMarks] = useState(() => new Map<string, string>(readAll().find(([name]) => name === scope)?.[1]));
  return {
    has: (file) => marks.get(file.path) === digest(file),
    set: (file, isViewed) => {
      const next = new Map(marks);
      next.delete(file.path);
      if (isViewed) next.set(file.path, digest(file));
      setMarks(next);
      const all = [[scope, [...next].slice(-MOST_FILES)], ...readAll().filter(([name]) => name !== scope)].slice(0, MOST_RUNS);
      try {
        localStorage.setItem(KEY, JSON.stringify(all));
      } catch {
        // A full storage costs the marks of the next visit, not those of this one.
      }
    },
  };
}
