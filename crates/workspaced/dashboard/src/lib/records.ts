/** The records of a run, in order and live: the list up to now, then the stream. */

import { useEffect, useRef, useState } from "preact/hooks";
import { get, query, runPath } from "./api.ts";
import { follow, type StreamState } from "./sse.ts";
import type { AuditRecord, Page } from "./types.ts";

export interface Records { items: AuditRecord[]; state: StreamState; error?: Error; isLoading: boolean; retry: () => void }

/** Puts records with consecutive numbers at their positions. Returns whether a gap precedes one of them. */
export function merge(items: AuditRecord[], added: AuditRecord[]): boolean {
  let hasGap = false;
  for (const record of added) {
    if (record.seq <= items.length) continue;
    if (record.seq === items.length + 1) items.push(record);
    else hasGap = true;
  }
  return hasGap;
}

/** Renders at most this often while records arrive. */
const RENDER_MILLIS = 100;

export function useRecords(run: string): Records {
  const items = useRef<AuditRecord[]>([]);
  const [, render] = useState(0);
  const [state, setState] = useState<StreamState>("connecting");
  const [error, setError] = useState<Error>();
  const [isLoading, setLoading] = useState(true);
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const controller = new AbortController();
    items.current = [];
    setLoading(true);
    setError(undefined);
    let timer: ReturnType<typeof setTimeout> | undefined;
    const changed = () => (timer ??= setTimeout(() => ((timer = undefined), render((count) => count + 1)), RENDER_MILLIS));
    let cursor: string | undefined;
    let reading: Promise<void> | undefined;
    const readList = async () => {
      for (;;) {
        const page = await get<Page<AuditRecord>>(`${runPath(run)}/audit${query({ limit: 1000, cursor })}`, controller.signal);
        merge(items.current, page.items);
        changed();
        // The cursor of the last page stays: a later read begins there.
        if (!page.nextCursor) return;
        cursor = page.nextCursor;
      }
    };
    const catchUp = () => (reading ??= readList().then(
      () => setLoading(false),
      (failure: Error) => void (controller.signal.aborted || setError(failure)),
    ).finally(() => ((reading = undefined), changed())));
    // Now, and once more when the stream is open: nothing between the two is missed.
    void catchUp();
    void follow(`/v1/audit/stream${query({ run })}`, controller.signal, {
      onState: setState,
      onFresh: () => void (reading ?? Promise.resolve()).then(catchUp),
      onEvent: (event) => {
        if (merge(items.current, [JSON.parse(event.data) as AuditRecord])) void (reading ?? Promise.resolve()).then(catchUp);
        changed();
      },
    });
    return () => {
      controller.abort();
      clearTimeout(timer);
    };
  }, [run, turn]);
  return { items: items.current, state, error, isLoading, retry: () => setTurn((count) => count + 1) };
}
