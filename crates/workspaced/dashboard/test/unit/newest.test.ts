import { expect, test, vi } from "vitest";

vi.stubGlobal("sessionStorage", { getItem: () => null });
const { renew } = await import("../../src/lib/newest.ts");

const from = (first: number, length: number): string[] => Array.from({ length }, (_, index) => String(first - index));
const idOf = (item: string) => item;

test("new items come first, older ones stay, and what no longer matches goes", () => {
  const known = { items: from(400, 400), cursor: "older" };
  const newest = { items: ["402", "401", ...from(399, 198)], cursor: "c" };
  expect(renew(known, newest, idOf)).toEqual({ items: ["402", "401", ...from(399, 399)], cursor: "older" });
});

test("a list that is complete replaces what is known", () => {
  expect(renew({ items: ["3", "2"], cursor: "older" }, { items: ["4"] }, idOf)).toEqual({ items: ["4"] });
});

test("older items go if items between them and the newest may be missing", () => {
  const newest = { items: from(900, 200), cursor: "c" };
  expect(renew({ items: from(400, 400), cursor: "older" }, newest, idOf)).toEqual(newest);
});

test("rare items that were found further back stay", () => {
  const known = { items: ["7"], cursor: "older" };
  expect(renew(known, { items: [], cursor: "c" }, idOf)).toEqual(known);
  expect(renew(known, { items: ["90"], cursor: "c" }, idOf)).toEqual({ items: ["90", "7"], cursor: "older" });
});

test("a list that has grown long begins again with its newest page", () => {
  const newest = { items: from(30_001, 200), cursor: "c" };
  expect(renew({ items: from(30_000, 19_900), cursor: "older" }, newest, idOf)).toEqual(newest);
  expect(renew({ items: from(30_000, 10_000), cursor: "older" }, newest, idOf).items.length).toBe(10_001);
});
