/** A list of the service, newest first: its newest page, read again when something changes, and older pages on request. */

import { useEffect, useRef, useState } from "preact/hooks";
import { get, query } from "./api.ts";
import type { Page } from "./types.ts";

type Filters = Record<string, string | undefined>;
/** The newest items, and where the older ones begin if there are any. */
export interface Part<T> { items: T[]; cursor?: string }
export interface Newest<T> { key: string; items: T[]; error?: Error; isLoading: boolean; older?: () => void; retry: () => void }

const PAGE = 200;
/** A page of the service may be empty although more items match: the reader is asked after so many requests. */
const MOST_REQUESTS = 10;
const RENEW_MILLIS = 500;
/** A list that is longer when something new arrives begins again with its newest page, so that a page that stays open for days does not grow. */
const MOST_KEPT = 20_000;

async function readPart<T>(path: string, filters: Filters, signal: AbortSignal, from?: string): Promise<Part<T>> {
  const part: Part<T> = { items: [], cursor: from };
  for (let request = 0; request < MOST_REQUESTS; request += 1) {
    const page = await get<Page<T>>(path + query({ ...filters, order: filters.order || "desc", limit: PAGE, cursor: part.cursor }), signal);
    part.items.push(...page.items);
    part.cursor = page.nextCursor;
    if (!part.cursor || part.items.length >= PAGE) break;
  }
  return part;
}

/** Replaces the newest items of a list. Older ones stay, unless items between the two may be missing. */
export function renew<T>(known: Part<T>, newest: Part<T>, idOf: (item: T) => string): Part<T> {
  const ids = new Set(newest.items.map(idOf));
  const last = known.items.findLastIndex((item) => ids.has(idOf(item)));
  const hasGap = last < 0 && newest.items.length >= PAGE;
  if (!newest.cursor || hasGap || newest.items.length + known.items.length > MOST_KEPT) return newest;
  return { items: [...newest.items, ...known.items.slice(last + 1)], cursor: known.cursor };
}

/** Reads a list under filters. `watch` calls `changed` when the newest items may differ, until the signal ends it. */
export function useNewest<T>(path: string, filters: Filters, idOf: (item: T) => string, watch: (changed: () => void, signal: AbortSignal) => void): Newest<T> {
  const key = path + query(filters);
  const [state, setState] = useState<{ key: string; part?: Part<T>; error?: Error; isLoading: boolean }>({ key, isLoading: true });
  const [turn, setTurn] = useState(0);
  const older = useRef(() => {});
  useEffect(() => {
    const controller = new AbortController();
    const { signal } = controller;
    let part: Part<T> | undefined;
    let queue = Promise.resolve();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const next = (read: () => Promise<Part<T>>) => (queue = queue.then(read).then(
      (found) => signal.aborted || setState({ key, part: (part = found), isLoading: false }),
      (error: Error) => signal.aborted || setState({ key, part, error, isLoading: false }),
    ).then(() => undefined));
    const readNewest = () => next(async () => {
      const newest = await readPart<T>(path, filters, signal);
      return part ? renew(part, newest, idOf) : newest;
    });
    older.current = () => {
      setState({ key, part, isLoading: true });
      void next(async () => {
        const found = await readPart<T>(path, filters, signal, part?.cursor);
        return { items: [...(part?.items ?? []), ...found.items], cursor: found.cursor };
      });
    };
    setState({ key, isLoading: true });
    void readNewest();
    // A change during a read is read a while after it has ended.
    let isRenewing = false;
    const renewal = () => {
      isRenewing = false;
      void readNewest();
    };
    watch(() => {
      if (isRenewing) return;
      isRenewing = true;
      void queue.then(() => signal.aborted || (timer = setTimeout(renewal, RENEW_MILLIS)));
    }, signal);
    return () => {
      controller.abort();
      clearTimeout(timer);
    };
  }, [key, turn]);
  const { part, error, isLoading } = state.key === key ? state : { part: undefined, error: undefined, isLoading: true };
  return { key, items: part?.items ?? [], error, isLoading, older: part?.cursor ? older.current : undefined, retry: () => setTurn((count) => count + 1) };
}
