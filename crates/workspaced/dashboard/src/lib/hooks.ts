/** Hooks that pages share: loading, repeated loading, the time, and keys. */

import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

export interface Loaded<T> { data?: T; error?: Error; isLoading: boolean; reload: () => void }

/** Loads data whenever `key` changes; the data of the same key stays while it is loaded again. */
export function useLoad<T>(key: string, load: (signal: AbortSignal) => Promise<T>, everyMillis = 0): Loaded<T> {
  const [state, setState] = useState<{ key: string; data?: T; error?: Error; isLoading: boolean }>({ key, isLoading: true });
  const [turn, setTurn] = useState(0);
  const reload = useCallback(() => setTurn((count) => count + 1), []);
  const loader = useRef(load);
  loader.current = load;
  useEffect(() => {
    if (!key) return;
    const controller = new AbortController();
    setState((before) => (before.key === key ? { ...before, isLoading: true } : { key, isLoading: true }));
    loader.current(controller.signal).then(
      (data) => controller.signal.aborted || setState({ key, data, isLoading: false }),
      (error: Error) => controller.signal.aborted || setState((before) => ({ key, data: before.key === key ? before.data : undefined, error, isLoading: false })),
    );
    return () => controller.abort();
  }, [key, turn]);
  useEffect(() => {
    if (!everyMillis) return;
    const timer = setInterval(() => document.hidden || reload(), everyMillis);
    return () => clearInterval(timer);
  }, [everyMillis, reload]);
  return { ...(state.key === key ? state : { isLoading: true }), reload };
}

/** Returns the time, and renders again every `everyMillis`. */
export function useNow(everyMillis = 10000): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), everyMillis);
    return () => clearInterval(timer);
  }, [everyMillis]);
  return now;
}

type Keys = Record<string, (event: KeyboardEvent) => void>;

/** Handles keys that are pressed outside of fields. */
export function useKeys(keys: Keys): void {
  const handlers = useRef(keys);
  handlers.current = keys;
  // Before the page is painted: a person may press a key as soon as it is seen.
  useLayoutEffect(() => {
    const listener = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const target = event.target as HTMLElement;
      if (target.closest("input, textarea, select, dialog")) return;
      if (event.key === "Enter" && target.closest("a, button")) return;
      const handler = handlers.current[event.key];
      if (!handler) return;
      event.preventDefault();
      handler(event);
    };
    addEventListener("keydown", listener);
    return () => removeEventListener("keydown", listener);
  }, []);
}
