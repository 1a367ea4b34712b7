/** The story of a run: each record begins with the version of a file that the record before it has left. */

import type { Exact } from "./canonical.ts";

type Version = string | undefined;
const text = (version: Version): string => version ?? "no file";

export class Story {
  private readonly left = new Map<string, Version>();

  /** Adds the next record. Returns what is wrong, if a file of it begins with another version than the record before has left. */
  add(record: Exact): string | undefined {
    if (!(record instanceof Map) || record.get("mutates") !== true || record.get("outcome") !== "ok") return undefined;
    const [written, files] = [record.get("pathsWritten"), record.get("files")];
    if (!Array.isArray(written) || written.length === 0 || !Array.isArray(files)) return undefined;
    let gap: string | undefined;
    for (const file of files) {
      if (!(file instanceof Map)) continue;
      const path = String(file.get("path"));
      const [before, after] = [file.get("oldSha256") as Version, file.get("newSha256") as Version];
      if (this.left.has(path) && this.left.get(path) !== before)
        gap ??= `builds on a change from outside that is not recorded: ${path} was ${text(before)} before it, but the record before it left ${text(this.left.get(path))}`;
      this.left.set(path, after);
    }
    return gap;
  }
}
