/** How many lines a text takes where it is wrapped: the lists of lines know their height before they are rendered. */

import { visible } from "./format.ts";

const TAB = 4;
/** The most columns that a character takes, as its code. */
const MOST = 10;
const PLAIN = /^[ -~]*$/;
const WIDE = /[\u1100-\u115f\u2e80-\ua4cf\uac00-\ud7a3\uf900-\ufaff\ufe30-\ufe6f\uff00-\uff60\uffe0-\uffe6]|\p{Extended_Pictographic}/u;

/** Returns the lines of a text in a column of so many characters of one width, broken anywhere. */
export function wrapped(text: string, columns: number): number {
  if (text.length * MOST <= columns) return 1;
  if (PLAIN.test(text)) return Math.max(1, Math.ceil(text.length / columns));
  let [lines, at] = [1, 0];
  for (const character of visible(text)) {
    const width = character === "\t" ? TAB - (at % TAB) : WIDE.test(character) ? 2 : 1;
    if (at + width > columns) [lines, at] = [lines + 1, 0];
    at += width;
  }
  return lines;
}

/** Returns for each row, and for the end, how many lines are above it. */
export function startsOf(count: number, linesOf: (row: number) => number): Uint32Array {
  const starts = new Uint32Array(count + 1);
  for (let row = 0; row < count; row += 1) starts[row + 1] = starts[row] + linesOf(row);
  return starts;
}

/** Returns the row that a line is part of. */
export function rowAt(starts: Uint32Array, line: number): number {
  let [low, high] = [0, starts.length - 1];
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (starts[middle] <= line) low = middle;
    else high = middle - 1;
  }
  return low;
}
