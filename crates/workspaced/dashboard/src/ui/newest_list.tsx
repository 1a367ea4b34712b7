/** A list that is shown newest first, with keys, without jumping while it is read. */

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { count } from "../lib/format.ts";
import { useKeys } from "../lib/hooks.ts";
import type { Newest } from "../lib/newest.ts";
import { navigate } from "../lib/route.ts";
import { Empty, Failed, Loading } from "./parts.tsx";
import { ROW_HEIGHT, Windowed } from "./window.tsx";

/** Spans of time, in hours. */
export const SPANS: [string, string][] = [["", "any time"], ["1", "last hour"], ["24", "last 24 hours"], ["168", "last 7 days"]];

/** The number of items that are shown, once it is known. */
export function NewestCount<T>({ list: { items, older, isLoading, error } }: { list: Newest<T> }) {
  return !items.length && (isLoading || error) ? null : <span class="quiet figure">{count(items.length)}{older ? "+" : ""}</span>;
}

interface Props<T> {
  list: Newest<T>;
  what: string;
  idOf: (item: T) => string;
  hrefOf: (item: T) => string;
  row: (item: T, isFocused: boolean) => ComponentChildren;
  head?: ComponentChildren;
  /** What is shown if the list is complete and has no item. */
  empty: ComponentChildren;
}

export function NewestList<T>(props: Props<T>) {
  const { list, what, empty } = props;
  return (
    <>
      {list.error && <Failed error={list.error} what={`Reading the ${what}`} retry={list.retry} />}
      {list.isLoading && !list.items.length && <Loading what={what} />}
      {!list.isLoading && !list.error && !list.items.length && <Empty>{list.older ? <p>None of the newest {what} matches.</p> : empty}</Empty>}
      {list.items.length > 0 && <Rows key={list.key} {...props} />}
      {list.older && <p><button type="button" disabled={list.isLoading} onClick={list.older}>{list.isLoading ? "Reading…" : `Older ${what}`}</button></p>}
    </>
  );
}

/** Where a reader was in a list, kept with its entry in the history: the row, and how many were shown. */
interface Place { row: string; length: number }
const placeOf = (): Place | undefined => (history.state as { place?: Place } | null)?.place;

function Rows<T>({ list, what, idOf, hrefOf, row, head }: Props<T>) {
  const [focus, setFocus] = useState(-1);
  // Where the reader comes back to, until that row is found or another is chosen.
  const back = useRef(placeOf());
  const [isAtStart, setAtStart] = useState(true);
  const [first, setFirst] = useState<string>();
  const [turn, setTurn] = useState(0);
  // Who reads further down, or has chosen a row, is not moved: newer rows wait.
  const isHeld = !isAtStart || focus >= 0;
  useEffect(() => setFirst(isHeld ? idOf(list.items[0]) : undefined), [isHeld]);
  const fresh = first === undefined ? 0 : Math.max(0, list.items.findIndex((item) => idOf(item) === first));
  const items = fresh ? list.items.slice(fresh) : list.items;
  /** Keeps a row with the entry of the history, before another page is opened. */
  const keep = (index: number) => {
    back.current = undefined;
    history.replaceState(index < 0 ? null : { place: { row: idOf(items[index]), length: list.items.length } satisfies Place }, "");
  };
  const focusOn = (index: number) => {
    keep(index);
    setFocus(index);
  };
  useLayoutEffect(() => {
    if (!back.current) return;
    const index = items.findIndex((item) => idOf(item) === back.current!.row);
    if (index >= 0) focusOn(index);
    // It was in an older page.
    else if (list.older && !list.error && list.items.length <= back.current.length) list.isLoading || list.older();
    else if (!list.isLoading) back.current = undefined;
  });
  const release = () => {
    focusOn(-1);
    setAtStart(true);
    setTurn(turn + 1);
  };
  useKeys({
    j: () => focusOn(Math.min(focus + 1, items.length - 1)),
    k: () => focusOn(Math.max(focus - 1, 0)),
    Enter: () => items[focus] && navigate(hrefOf(items[focus])),
    Escape: release,
  });
  return (
    <>
      {head}
      {fresh > 0 && <button type="button" class="newer" onClick={release}>{count(fresh)} new</button>}
      <Windowed key={turn} class="page-window" count={items.length} rowHeight={ROW_HEIGHT} label={what} focus={focus} onStart={setAtStart} render={(index) => <span class="row-of" onClickCapture={() => keep(index)}>{row(items[index], index === focus)}</span>} />
    </>
  );
}
