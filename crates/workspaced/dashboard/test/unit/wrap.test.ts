import { expect, it } from "vitest";
import { rowAt, startsOf, wrapped } from "../../src/lib/wrap.ts";

it("a text takes as many lines as its characters fill", () => {
  expect(["", "a", "a".repeat(10), "a".repeat(11), "a b ".repeat(5)].map((text) => wrapped(text, 10))).toEqual([1, 1, 1, 2, 2]);
  // Wide characters take two columns, a tab the rest of four, and what would hide itself its code.
  expect(["漢".repeat(5), "漢".repeat(6), `a${"漢".repeat(5)}`, "\t\t\t", "\u202e".repeat(2)].map((text) => wrapped(text, 10))).toEqual([1, 2, 2, 2, 2]);
});

it("a line leads to its row", () => {
  const starts = startsOf(4, (row) => [1, 3, 1, 2][row]);
  expect([...starts]).toEqual([0, 1, 4, 5, 7]);
  expect([0, 1, 2, 3, 4, 5, 6, 7, 99].map((line) => rowAt(starts, line))).toEqual([0, 1, 1, 1, 2, 3, 3, 4, 4]);
  expect(rowAt(startsOf(0, () => 1), 5)).toBe(0);
});
