import { expect, test, vi } from "vitest";
import type { AuditRecord } from "../../src/lib/types.ts";

vi.stubGlobal("sessionStorage", { getItem: () => null, setItem: () => undefined, removeItem: () => undefined });
const { EventParser } = await import("../../src/lib/sse.ts");
const { merge } = await import("../../src/lib/records.ts");

test("events are the same however the stream is cut", () => {
  const text = ": hello\n\nevent: audit\nid: 7\ndata: {\"a\":1}\n\ndata: one\r\ndata: two\r\n\r\nid: only\n\n";
  const whole = new EventParser().push(text);
  expect(whole).toEqual([{ event: "audit", id: "7", data: '{"a":1}' }, { event: "message", id: "", data: "one\ntwo" }]);
  const parser = new EventParser();
  expect([...text].flatMap((character) => parser.push(character))).toEqual(whole);
});

test("records are kept in order, once, and a gap is reported", () => {
  const record = (seq: number) => ({ seq }) as AuditRecord;
  const items: AuditRecord[] = [];
  expect(merge(items, [record(1), record(2), record(2), record(1)])).toBe(false);
  expect(merge(items, [record(4)])).toBe(true);
  expect(merge(items, [record(3), record(4)])).toBe(false);
  expect(items.map(({ seq }) => seq)).toEqual([1, 2, 3, 4]);
});
