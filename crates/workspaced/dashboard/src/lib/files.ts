/** Files of a run at a record. The service records each read. */

import { callTool } from "./api.ts";
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
export function lineReader(run: string, seq: number | undefined): (path: string, from: number, to: number) => Promise<string[]> {
  return async (path, from, to) => {
    const lines: string[] = [];
    while (from + lines.length <= to) {
      const page = linesOf((await readPage(run, path, seq, from + lines.length, to - from - lines.length + 1)).content);
      if (!page.length) break;
      lines.push(...page);
    }
    return lines;
  };
}
