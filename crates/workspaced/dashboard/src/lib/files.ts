/** Files of a run at a record. The service records each read. */

import { callTool, get, query } from "./api.ts";
import type { FileText } from "./types.ts";

/** `read_file` returns at most this many lines at a time. */
const PAGE_LINES = 1000;

/** Reads a page of a file's lines. Without `seq` the file is read as it is now. */
export function readPage(run: string, path: string, seq: number | undefined, startLine: number, maxLines: number, signal?: AbortSignal): Promise<FileText> {
  return callTool<FileText>(run, "read_file", { path, startLine, maxLines: Math.min(maxLines, PAGE_LINES), format: "raw", ...(seq === undefined ? {} : { atSeq: seq }) }, signal);
}

/** Splits the content of a page into its lines. */
export function linesOf(content: string): string[] {
  const lines = content.split(/\r?\n/);
  if (lines[lines.length - 1] === "") lines.pop();
  return lines;
}

/** Returns a function that reads lines of a file as it was at a record. */
export const lineReader = (run: string, seq: number | undefined): LineReader =>
  reading((path, from, count) => readPage(run, path, seq, from, count), 0);

/** As `lineReader`, of a file that an approval is about, for who may read no other. The service has its version before the change. */
export const approvalReader = (approval: string): LineReader =>
  reading((path, startLine, maxLines) => get<FileText>(`/v1/approvals/${encodeURIComponent(approval)}/file${query({ path, startLine, maxLines: Math.min(maxLines, PAGE_LINES) })}`), 1);

/** Reads lines that a change leaves as they are, by their numbers after it; `shift` is added for those before it. */
export type LineReader = (path: string, from: number, to: number, shift: number) => Promise<string[]>;

function reading(read: (path: string, from: number, count: number) => Promise<FileText>, side: 0 | 1): LineReader {
  return async (path, from, to, shift) => {
    const lines: string[] = [];
    while (from + lines.length <= to) {
      const page = await read(path, from + side * shift + lines.length, to - from - lines.length + 1);
      lines.push(...linesOf(page.content));
      if (!page.content || !page.truncated) break;
    }
    return lines.slice(0, to - from + 1);
  };
}
