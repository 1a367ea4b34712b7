import { expect, test, vi } from "vitest";
import type { AuditRecord } from "../../src/lib/types.ts";

vi.stubGlobal("sessionStorage", { getItem: () => null, setItem: () => undefined, removeItem: () => undefined });
const { EventParser } = await import("../../src/lib/sse.ts");
const { RecordCache } = await import("../../src/lib/records.ts");

test("events are the same however the stream is cut", () => {
  const text = ": hello\n\nevent: audit\nid: 7\ndata: {\"a\":1}\n\ndata: one\r\ndata: two\r\n\r\nid: only\n\n";
  const whole = new EventParser().push(text);
  expect(whole).toEqual([{ event: "audit", id: "7", data: '{"a":1}' }, { event: "message", id: "", data: "one\ntwo" }]);
  const parser = new EventParser();
  expect([...text].flatMap((character) => parser.push(character))).toEqual(whole);
});

const record = (seq: number) => ({ seq }) as AuditRecord;

test("records are kept once, and a gap is known", () => {
  const cache = new RecordCache();
  expect(cache.firstMissing(1, 9)).toBeUndefined();
  cache.add([record(1), record(2), record(2), record(5)]);
  expect([cache.head, cache.size, cache.firstMissing(1, 9), cache.firstMissing(5, 9)]).toEqual([5, 3, 3, undefined]);
  cache.add([record(3), record(4)]);
  expect(cache.firstMissing(-3, 9)).toBeUndefined();
});

test("records far from what is shown are forgotten", () => {
  const cache = new RecordCache();
  for (let seq = 1; seq <= 100_000; seq += 1) {
    cache.add([record(seq)]);
    cache.trim(seq < 50_000 ? seq : 50_000);
  }
  expect(cache.size).toBeLessThanOrEqual(8000);
  expect([cache.head, cache.get(1), cache.get(50_000)?.seq, cache.firstMissing(49_000, 51_000)]).toEqual([100_000, undefined, 50_000, undefined]);
});
