/** Hooks that pages share: loading, repeated loading, the time, and keys. */

import { useCallback, useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";

/** `isSettled`: a load of the present key has ended, with data or an error, and what is shown is no guess. */
export interface Loaded<T> { data?: T; error?: Error; isLoading: boolean; isSettled: boolean; reload: () => void }

/**
 * Loads data whenever `key` changes; the data of the same key stays while it is loaded again: `everyMillis` after a load has
 * ended, when `version` changes, and on `reload`. Only another key ends a load that is in progress. What was asked for
 * meanwhile follows it, so that a load that takes longer than the interval still arrives.
 */
export function useLoad<T>(key: string, load: (signal: AbortSignal) => Promise<T>, everyMillis = 0, version: string | number = ""): Loaded<T> {
  const [state, setState] = useState<{ key: string; data?: T; error?: Error; isLoading: boolean; isSettled: boolean }>({ key, isLoading: true, isSettled: false });
  const start = useRef(() => {});
  const reload = useCallback(() => start.current(), []);
  const loader = useRef(load);
  loader.current = load;
  const loadedVersion = useRef(version);
  useEffect(() => {
    if (!key) return;
    const controller = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let [isBusy, isWantedAgain] = [false, false];
    const wait = () => {
      if (everyMillis) timer = setTimeout(() => (document.hidden ? wait() : start.current()), everyMillis);
    };
    const end = (result: { data: T } | { error: Error }) => {
      if (controller.signal.aborted) return;
      isBusy = false;
      setState((before) => ({ data: before.key === key ? before.data : undefined, ...result, key, isLoading: false, isSettled: true }));
      if (isWantedAgain) start.current();
      else wait();
    };
    start.current = () => {
      if (isBusy) return void (isWantedAgain = true);
      clearTimeout(timer);
      [isBusy, isWantedAgain] = [true, false];
      setState((before) => (before.key === key ? { ...before, isLoading: true } : { key, isLoading: true, isSettled: false }));
      loader.current(controller.signal).then((data) => end({ data }), (error: Error) => end({ error }));
    };
    loadedVersion.current = version;
    start.current();
    return () => {
      controller.abort();
      clearTimeout(timer);
      start.current = () => {};
    };
  }, [key, everyMillis]);
  useEffect(() => {
    if (loadedVersion.current === version) return;
    loadedVersion.current = version;
    start.current();
  }, [version]);
  return { ...(state.key === key ? state : { isLoading: true, isSettled: false }), reload };
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
/** Keys that move, which may be held. A key that decides counts once for each press. */
const HELD = new Set(["j", "k", "n", "p"]);

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
      if (!Object.hasOwn(handlers.current, event.key)) return;
      event.preventDefault();
      // After a step, Enter opens the row that was reached, not the link that was clicked before.
      if (HELD.has(event.key) && target.closest("a")) target.blur();
      if (!event.repeat || HELD.has(event.key)) handlers.current[event.key](event);
    };
    addEventListener("keydown", listener);
    return () => removeEventListener("keydown", listener);
  }, []);
}

const pressed = new Set<string>();
/** Where the pointer was last. */
const pointer = { x: -1, y: -1 };
const inputs = new Set<() => void>();
const press = (change: () => void) => {
  change();
  for (const input of inputs) input();
};
const at = ({ clientX, clientY }: PointerEvent) => Object.assign(pointer, { x: clientX, y: clientY });
// A lock such as CapsLock is no key that is held: some systems tell its release when it is switched off.
addEventListener("keydown", ({ code }) => press(() => code.endsWith("Lock") || pressed.add(code)), true);
// The release of other keys is not told while Meta is pressed, nor to a window without the focus.
addEventListener("keyup", ({ code, key }) => press(() => (key === "Meta" ? pressed.clear() : pressed.delete(code))), true);
addEventListener("blur", () => press(() => pressed.clear()));
// A key whose release was lost must not block the buttons; one that is held tells so again at once.
addEventListener("pointerdown", (event) => press(() => (pressed.clear(), at(event))), true);
addEventListener("pointermove", at, { capture: true, passive: true });

/** How long something must be displayed, without a key or a click, before it can be decided. */
const ARM_MILLIS = 500;

/** Whether what is displayed may be decided: all keys are up, and nothing was pressed for a while since `key` was displayed. It then stays so. */
export function useArmed(key: string, isShown: boolean): boolean {
  const [armed, setArmed] = useState<string>();
  useEffect(() => {
    if (!isShown) return;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const wait = () => {
      clearTimeout(timer);
      if (!pressed.size) timer = setTimeout(() => (inputs.delete(wait), setArmed(key)), ARM_MILLIS);
    };
    inputs.add(wait);
    wait();
    return () => {
      clearTimeout(timer);
      inputs.delete(wait);
    };
  }, [key, isShown]);
  return isShown && armed === key;
}

/** Whether the pointer is over an element. */
export function isPointedAt(element: Element): boolean {
  const { left, right, top, bottom } = element.getBoundingClientRect();
  return pointer.x >= left && pointer.x <= right && pointer.y >= top && pointer.y <= bottom;
}
