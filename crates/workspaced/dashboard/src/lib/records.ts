/** The records of a run, in order and live: the newest, then the stream; older ones on request. */

import { useEffect, useRef, useState } from "preact/hooks";
import { get, query, runPath } from "./api.ts";
import { follow, type StreamState } from "./sse.ts";
import type { AuditRecord, Page } from "./types.ts";

export interface Records { items: AuditRecord[]; state: StreamState; error?: Error; isLoading: boolean; retry: () => void; older?: () => void }

/** Puts records with consecutive numbers after the known ones. Returns whether a gap precedes one of them. */
export function merge(items: AuditRecord[], added: AuditRecord[]): boolean {
  let hasGap = false;
  for (const record of added) {
    const next = (items.at(-1)?.seq ?? 0) + 1;
    if (record.seq < next) continue;
    if (record.seq === next) items.push(record);
    else hasGap = true;
  }
  return hasGap;
}

const PAGE = 1000;
/** Renders at most this often while records arrive. */
const RENDER_MILLIS = 100;

export function useRecords(run: string): Records {
  const items = useRef<AuditRecord[]>([]);
  const older = useRef(() => {});
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
    // Where the records before the first one begin.
    let cursor: string | undefined;
    const read = async (from?: string) => {
      const page = await get<Page<AuditRecord>>(`${runPath(run)}/audit${query({ order: "desc", limit: PAGE, cursor: from })}`, controller.signal);
      return { records: page.items.reverse(), before: page.nextCursor };
    };
    const readNewest = async () => {
      isQueued = false;
      const { records, before } = await read();
      if (items.current.length && !merge(items.current, records)) return;
      items.current = records;
      cursor = before;
    };
    const readOlder = async () => {
      if (!cursor) return;
      const { records, before } = await read(cursor);
      items.current = [...records, ...items.current];
      cursor = before;
    };
    let queue = Promise.resolve();
    let isQueued = false;
    const next = (reading: () => Promise<void>) => {
      queue = queue.then(reading).then(() => setLoading(false), (failure: Error) => void (controller.signal.aborted || setError(failure))).then(() => void changed());
    };
    const catchUp = () => {
      if (!isQueued) next(readNewest);
      isQueued = true;
    };
    older.current = () => next(readOlder);
    // Now, and once more when the stream is open: nothing between the two is missed.
    catchUp();
    void follow(`/v1/audit/stream${query({ run })}`, controller.signal, {
      onState: setState,
      onFresh: catchUp,
      onEvent: (event) => {
        if (merge(items.current, [JSON.parse(event.data) as AuditRecord])) catchUp();
        changed();
      },
    });
    return () => {
      controller.abort();
      clearTimeout(timer);
    };
  }, [run, turn]);
  return { items: items.current, state, error, isLoading, retry: () => setTurn((count) => count + 1), older: (items.current[0]?.seq ?? 1) > 1 ? older.current : undefined };
}
