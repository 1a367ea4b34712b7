/** The records of a run, live: those near what is shown, by number, and those that match filters. The rest stays with the service. */

import { useEffect, useRef, useState } from "preact/hooks";
import { get, query, runPath } from "./api.ts";
import { follow, type StreamState } from "./sse.ts";
import type { AuditRecord, Page } from "./types.ts";

/** Records per request by number. */
const CHUNK = 200;
/** So many records are kept, those nearest to what is shown. */
const MOST_KEPT = 4000;
/** Renders at most this often while records arrive. */
const RENDER_MILLIS = 100;

/** Some records of a run, by number. */
export class RecordCache {
  /** The number of the newest record. */
  head = 0;
  /** Whether a record that was read is of a call that waited for a decision. */
  hasWaited = false;
  private readonly records = new Map<number, AuditRecord>();

  get size(): number {
    return this.records.size;
  }
  get(seq: number): AuditRecord | undefined {
    return this.records.get(seq);
  }
  add(added: AuditRecord[]): void {
    for (const record of added) {
      this.records.set(record.seq, record);
      this.head = Math.max(this.head, record.seq);
      this.hasWaited ||= record.outcome === "pending";
    }
  }
  /** Returns the first record from `first` to `last` that exists and is not known. */
  firstMissing(first: number, last: number): number | undefined {
    for (let seq = Math.max(1, first); seq <= Math.min(last, this.head); seq += 1) if (!this.records.has(seq)) return seq;
    return undefined;
  }
  /** Forgets the records that are farthest from `center`, if there are many. */
  trim(center: number): void {
    if (this.records.size <= 2 * MOST_KEPT) return;
    const byDistance = [...this.records.keys()].sort((one, other) => Math.abs(one - center) - Math.abs(other - center));
    for (const seq of byDistance.slice(MOST_KEPT)) this.records.delete(seq);
  }
}

export interface Records {
  cache: RecordCache;
  state: StreamState;
  error?: Error;
  isLoading: boolean;
  retry: () => void;
  /** Reads the records of a range for `reader`, whose earlier range is no longer read. */
  want: (reader: string, first: number, last: number) => void;
}

const readRecords = (run: string, parameters: Record<string, string | number | undefined>, signal: AbortSignal) =>
  get<Page<AuditRecord>>(`${runPath(run)}/audit${query(parameters)}`, signal);

export function useRecords(run: string): Records {
  const cache = useRef(new RecordCache());
  const want = useRef<Records["want"]>(() => {});
  const [, render] = useState(0);
  const [state, setState] = useState<StreamState>("connecting");
  const [error, setError] = useState<Error>();
  const [isLoading, setLoading] = useState(true);
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const { signal, abort } = ((controller) => ({ signal: controller.signal, abort: () => controller.abort() }))(new AbortController());
    const known = (cache.current = new RecordCache());
    const ranges = new Map<string, [first: number, last: number]>();
    setLoading(true);
    setError(undefined);
    let timer: ReturnType<typeof setTimeout> | undefined;
    const changed = () => (timer ??= setTimeout(() => ((timer = undefined), render((count) => count + 1)), RENDER_MILLIS));
    let isBusy = false;
    let isHeadOld = true;
    let hasFailed = false;
    /** Reads the newest records if they may be unknown, else what the newest ranges lack, one request at a time. */
    const pump = async (): Promise<void> => {
      if (isBusy || signal.aborted) return;
      const isNewest = isHeadOld;
      const missing = [...ranges.values()].map(([first, last]) => known.firstMissing(first, last)).find((seq) => seq !== undefined);
      if (!isNewest && missing === undefined) return;
      isBusy = true;
      isHeadOld = false;
      try {
        const { items } = await readRecords(run, isNewest ? { order: "desc", limit: CHUNK } : { fromSeq: missing, limit: CHUNK }, signal);
        known.add(items);
        known.trim(ranges.get("view")?.[0] ?? known.head);
        if (isNewest) setLoading(false);
        isBusy = false;
        changed();
        // A range that the service does not have is not asked for again and again.
        if (items.length || isNewest) void pump();
      } catch (failure) {
        isBusy = false;
        isHeadOld ||= isNewest;
        hasFailed = true;
        if (!signal.aborted) setError(failure as Error);
      }
    };
    want.current = (reader, first, last) => {
      ranges.set(reader, [first, last]);
      void pump();
    };
    const readNewest = () => {
      isHeadOld = true;
      void pump();
    };
    // Now, and once more when the stream is open: nothing between the two is missed.
    readNewest();
    void follow(`/v1/audit/stream${query({ run })}`, signal, {
      onState: (now) => {
        setState(now);
        if (now !== "live" || !hasFailed) return;
        // The service answers again.
        hasFailed = false;
        setError(undefined);
        void pump();
      },
      onFresh: readNewest,
      onEvent: (event) => {
        known.add([JSON.parse(event.data) as AuditRecord]);
        known.trim(ranges.get("view")?.[0] ?? known.head);
        changed();
      },
    });
    return () => {
      abort();
      clearTimeout(timer);
    };
  }, [run, turn]);
  return { cache: cache.current, state, error, isLoading, retry: () => setTurn((count) => count + 1), want: (...range) => want.current(...range) };
}

/** What records must match: `server` is searched by the service, `isMatch` here. */
export interface RecordFilter { key: string; server: Record<string, string | undefined>; isMatch: (record: AuditRecord) => boolean }

export interface Matches {
  items: AuditRecord[];
  /** The oldest record that was searched. */
  from: number;
  error?: Error;
  isLoading: boolean;
  retry: () => void;
  /** Searches older records, if there are any. */
  older?: () => void;
}

const MATCH_PAGE = 1000;
/** A search ends after so many matches or requests, until the reader asks for more. */
const MATCHES = 200;
const MOST_REQUESTS = 10;
/** While new records arrive, older matches are forgotten beyond this number. */
const MOST_MATCHES = 5000;

/** Reads the matches of a range of numbers, in one direction. */
class Search {
  items: AuditRecord[] = [];
  /** The records that were searched: `from` to `to`. */
  from: number;
  to: number;
  private cursor: string | undefined;

  constructor(private readonly run: string, private readonly filter: RecordFilter, head: number, private readonly signal: AbortSignal) {
    this.from = head + 1;
    this.to = head;
  }
  async older(): Promise<void> {
    const found: AuditRecord[] = [];
    for (let request = 0; request < MOST_REQUESTS && this.from > 1 && found.length < MATCHES; request += 1) {
      const page = await readRecords(this.run, { ...this.filter.server, order: "desc", limit: MATCH_PAGE, fromSeq: this.from - 1, cursor: this.cursor }, this.signal);
      found.push(...page.items.filter(this.filter.isMatch));
      this.cursor = page.nextCursor;
      this.from = page.nextCursor ? (page.items.at(-1)?.seq ?? this.from) : 1;
    }
    this.items = [...found.reverse(), ...this.items];
  }
  async newer(cache: RecordCache): Promise<void> {
    const added: AuditRecord[] = [];
    const known = () => {
      for (let record = cache.get(this.to + 1); record; record = cache.get(this.to + 1)) {
        this.to += 1;
        if (this.filter.isMatch(record)) added.push(record);
      }
    };
    known();
    while (this.to < cache.head) {
      const { head } = cache;
      let cursor: string | undefined;
      do {
        const page = await readRecords(this.run, { ...this.filter.server, limit: MATCH_PAGE, fromSeq: this.to + 1, cursor }, this.signal);
        for (const record of page.items) if (record.seq <= head && this.filter.isMatch(record)) added.push(record);
        cursor = (page.items.at(-1)?.seq ?? 0) < head ? page.nextCursor : undefined;
      } while (cursor);
      this.to = head;
      known();
    }
    if (!added.length) return;
    const all = [...this.items, ...added];
    this.items = all.slice(-MOST_MATCHES);
    if (this.items.length < all.length) [this.from, this.cursor] = [this.items[0].seq, undefined];
  }
}

/** The records that match a filter: the newest of them, new ones as they come, older ones on request. */
export function useMatches(run: string, records: Records, filter: RecordFilter | undefined): Matches {
  const key = filter?.key ?? "";
  const head = filter ? records.cache.head : 0;
  const [state, setState] = useState<{ key: string; items: AuditRecord[]; from: number; error?: Error; isLoading: boolean }>({ key, items: [], from: 0, isLoading: true });
  const next = useRef<(step: (search: Search) => Promise<void>) => void>(() => {});
  const [turn, setTurn] = useState(0);
  const isReady = head > 0;
  useEffect(() => {
    if (!filter || !isReady) return;
    const controller = new AbortController();
    const search = new Search(run, filter, head, controller.signal);
    let queue = Promise.resolve();
    const shown = (isLoading: boolean, error?: Error) => controller.signal.aborted || setState({ key, items: search.items, from: search.from, isLoading, error });
    next.current = (step) => {
      queue = queue.then(() => step(search)).then(() => void shown(false), (failure: Error) => void shown(false, failure));
    };
    setState({ key, items: [], from: search.from, isLoading: true });
    next.current((own) => own.older());
    return () => {
      controller.abort();
      next.current = () => {};
    };
  }, [run, key, turn, isReady]);
  useEffect(() => {
    if (filter && isReady) next.current((search) => (search.to < records.cache.head ? search.newer(records.cache) : Promise.resolve()));
  }, [head, key, isReady]);
  const { items, from, error, isLoading } = state.key === key ? state : { items: [], from: 0, error: undefined, isLoading: true };
  const older = () => {
    setState((before) => ({ ...before, isLoading: true }));
    next.current((search) => search.older());
  };
  return { items, from, error, isLoading, retry: () => setTurn((count) => count + 1), older: from > 1 ? older : undefined };
}
