/** A list that renders only the rows that can be seen. */

import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { visible } from "../lib/format.ts";
import { rowAt, startsOf } from "../lib/wrap.ts";
import { Boundary } from "./boundary.tsx";

interface Props {
  count: number;
  rowHeight: number;
  label: string;
  render: (index: number) => ComponentChildren;
  /** The row to scroll into view when it changes. */
  focus?: number;
  /** Shows the focused row near the top, where what follows it is to be read. */
  focusAtTop?: boolean;
  /** Leaves the focused row where it is if it is seen at all, above the bar at the lower edge of what scrolls, and else moves it no further than that. */
  focusSeen?: boolean;
  /** Keeps the end in view while rows are added, if it is in view. */
  follow?: boolean;
  onEnd?: (isAtEnd: boolean) => void;
  onStart?: (isAtStart: boolean) => void;
  /** Called with the first and the last row that are rendered, when they change. */
  onRange?: (first: number, last: number) => void;
  /** Called with the number of rows down to the bar at the lower edge of what scrolls, when that may have changed. Only with `isInline`. */
  onSeen?: (rows: number) => void;
  /** How many rows were put before the first ones: the rows in view do not move. */
  above?: number;
  /** How many lines of `rowHeight` a row takes, in a list of so many characters of one width. One without it. */
  linesOf?: (row: number, columns: number) => number;
  /** The width of the content, if it is wider than the list. */
  minWidth?: string;
  /** Makes the list as high as its rows, up to the limit of the style sheet. */
  fit?: boolean;
  /** Scrolls with what the list is part of, so that there is one scroll. Only with `fit`. */
  isInline?: boolean;
  class?: string;
  /** What stays at the top while the row with the given index is the first in view. */
  head?: (top: number) => ComponentChildren;
}

/** The height of the rows of every list, as `--row` in the style sheet. */
export const ROW_HEIGHT = 36;
const OVERSCAN = 12;
/** The width of a character is that of these, by their number. */
const RULER = "0".repeat(100);

/** Returns the element whose scrolling moves this one: the nearest that scrolls upwards and downwards. */
export function scrollerOf(element: HTMLElement): HTMLElement {
  for (let parent = element.parentElement; parent; parent = parent.parentElement) if (/auto|scroll/.test(getComputedStyle(parent).overflowY)) return parent;
  return document.documentElement;
}

/** What is left above an element that is brought to the top, in pixels. */
const MARGIN = 8;

/** Brings an element to the top of what scrolls it. What that is part of stays where it is, unlike with `scrollIntoView`. */
export function showAtTop(element: HTMLElement): void {
  const scroller = scrollerOf(element);
  scroller.scrollTop += element.getBoundingClientRect().top - scroller.getBoundingClientRect().top - MARGIN;
}

/** Renders a row within its boundary, so that one that cannot be shown does not take the others with it. */
const Row = ({ index, render }: { index: number; render: Props["render"] }) => <>{render(index)}</>;
const brokenRow = (error: Error) => <span class="tone-bad" role="alert">✕ This row cannot be shown: {visible(error.message)}</span>;

export function Windowed({ count, rowHeight, label, render, focus, focusAtTop, focusSeen, follow, onEnd, onStart, onRange, onSeen, above = 0, linesOf, minWidth, fit, isInline, class: name, head }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const scroller = useRef<HTMLElement | null>(null);
  const [view, setView] = useState({ top: 0, height: 800 });
  const wasAtEnd = useRef(true);
  const [columns, setColumns] = useState(0);
  const ruler = useRef<HTMLSpanElement>(null);
  const starts = useMemo(() => (linesOf && columns ? startsOf(count, (row) => linesOf(row, columns)) : undefined), [count, linesOf, columns]);
  const topOf = (row: number) => (starts ? starts[Math.min(row, count)] : row) * rowHeight;
  const rowOf = (top: number) => (starts ? rowAt(starts, Math.floor(top / rowHeight)) : Math.floor(top / rowHeight));
  const update = () => {
    const element = box.current;
    if (!element) return;
    if (ruler.current) setColumns(Math.floor(element.clientWidth / (ruler.current.getBoundingClientRect().width / RULER.length)));
    if (scroller.current) {
      // What lies above the list may be any height: only what is scrolled past is left out.
      const top = Math.max(0, scroller.current.getBoundingClientRect().top - element.getBoundingClientRect().top);
      const height = scroller.current.clientHeight;
      if (onSeen) {
        const bar = scroller.current.querySelector(":scope > .bar");
        onSeen(rowOf((bar?.getBoundingClientRect().top ?? scroller.current.getBoundingClientRect().bottom) - element.getBoundingClientRect().top));
      }
      return setView((before) => (before.top === top && before.height === height ? before : { top, height }));
    }
    wasAtEnd.current = element.scrollTop + element.clientHeight >= element.scrollHeight - rowHeight;
    onEnd?.(wasAtEnd.current);
    onStart?.(element.scrollTop < rowHeight);
    setView((before) => (before.top === element.scrollTop && before.height === element.clientHeight ? before : { top: element.scrollTop, height: element.clientHeight }));
  };
  useLayoutEffect(() => {
    scroller.current = isInline ? scrollerOf(box.current!) : null;
    const observer = new ResizeObserver(update);
    // What stands above and below it moves what is seen of it.
    for (const element of [box.current!, scroller.current, ...(onSeen ? scroller.current?.children ?? [] : [])]) if (element) observer.observe(element);
    scroller.current?.addEventListener("scroll", update, { passive: true });
    return () => {
      observer.disconnect();
      scroller.current?.removeEventListener("scroll", update);
    };
  }, [isInline]);
  const wasAbove = useRef(above);
  useLayoutEffect(() => {
    box.current!.scrollTop += (above - wasAbove.current) * rowHeight;
    wasAbove.current = above;
    update();
  }, [above]);
  useLayoutEffect(() => {
    const element = box.current!;
    if (follow && wasAtEnd.current) element.scrollTop = element.scrollHeight;
    update();
  }, [count, follow, starts, linesOf === undefined]);
  useLayoutEffect(() => {
    if (focus === undefined || focus < 0) return;
    const element = box.current!;
    const top = topOf(focus);
    if (scroller.current) {
      // A row in the upper half stays where it is.
      const box = scroller.current.getBoundingClientRect();
      const at = element.getBoundingClientRect().top + top - box.top;
      const bar = scroller.current.querySelector(":scope > .bar");
      const lowest = focusSeen ? (bar ? bar.getBoundingClientRect().top - box.top : scroller.current.clientHeight) - rowHeight : scroller.current.clientHeight / 2;
      if (focusSeen && at > lowest) scroller.current.scrollTop += at - lowest + rowHeight;
      else if (at < rowHeight || at > lowest) scroller.current.scrollTop += at - 2 * rowHeight;
    } else if (focusAtTop) {
      // A row in the upper half stays where it is.
      if (top < element.scrollTop + rowHeight || top > element.scrollTop + element.clientHeight / 2) element.scrollTop = top - 2 * rowHeight;
    } else if (top < element.scrollTop) element.scrollTop = top;
    else if (top + rowHeight > element.scrollTop + element.clientHeight) element.scrollTop = top + rowHeight - element.clientHeight;
    update();
  }, [focus === undefined || focus < 0 ? undefined : focus - above]);
  const first = Math.max(0, rowOf(view.top) - OVERSCAN);
  const last = Math.min(count, rowOf(view.top + view.height) + 1 + OVERSCAN);
  useEffect(() => onRange?.(first, last - 1), [first, last]);
  const rows = [];
  for (let index = first; index < last; index += 1)
    rows.push(<div key={index} class="window-row" role="listitem" aria-setsize={count} aria-posinset={index + 1} style={{ transform: `translateY(${topOf(index)}px)`, height: `${topOf(index + 1) - topOf(index)}px` }}><Boundary what="a row" instead={brokenRow}><Row index={index} render={render} /></Boundary></div>);
  const top = head && <div class="window-head" aria-hidden="true">{head(rowOf(view.top))}</div>;
  const list = (
    <div ref={box} class={`window ${fit ? "fit" : ""} ${isInline ? "inline-window" : ""} ${name ?? ""}`} style={fit && !isInline ? { height: `${topOf(count) + 18}px` } : undefined} onScroll={update} tabIndex={0} role="region" aria-label={label}>
      {!isInline && top}
      {linesOf && <span ref={ruler} class="ruler" aria-hidden="true">{RULER}</span>}
      <div role="list" class="window-content" aria-label={label} style={{ height: `${topOf(count)}px`, minWidth }}>{rows}</div>
    </div>
  );
  // The head stays at the top of what scrolls, which is not this list.
  return isInline ? <>{top}{list}</> : list;
}
