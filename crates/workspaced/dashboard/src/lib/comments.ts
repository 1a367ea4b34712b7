/** What reviewers said about a run's files: records of its chain, which its agent is told. */

import { get, post, query, runPath } from "./api.ts";
import type { Comment } from "./diff.ts";
import type { AuditRecord, Page } from "./types.ts";

/** Comments beyond this number are in the timeline alone. */
const MOST = 1000;

/** Reads the comments of a run, oldest first. */
export async function readComments(run: string, signal: AbortSignal): Promise<Comment[]> {
  const found: Comment[] = [];
  let cursor: string | undefined;
  do {
    const page = await get<Page<AuditRecord>>(`${runPath(run)}/audit${query({ tool: "event.comment", limit: 1000, cursor })}`, signal);
    for (const { seq, timestamp, actor, input } of page.items) {
      if (typeof input?.path !== "string") continue;
      const author = typeof input.onBehalfOf === "string" ? input.onBehalfOf : actor.replace(/^operator:/, "");
      found.push({ seq, timestamp, author, path: input.path, line: typeof input.line === "number" ? input.line : undefined, text: input.summary ?? "" });
    }
    cursor = page.nextCursor;
  } while (cursor && found.length < MOST);
  return found;
}

/** Says something about a file, or about a line of it. */
export async function sendComment(run: string, comment: { text: string; path: string; line?: number; onBehalfOf?: string }): Promise<void> {
  await post(`${runPath(run)}/comments`, comment);
}
