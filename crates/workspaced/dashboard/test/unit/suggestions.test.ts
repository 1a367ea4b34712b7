import { expect, test } from "vitest";
import { suggestionsOf } from "../../src/lib/suggestions.ts";
import type { AuditRecord, Run } from "../../src/lib/types.ts";

const record = (more: Partial<AuditRecord>) => ({ runId: "r", tool: "read_file", actor: "run-token:1", pathsRead: [], pathsWritten: [], files: [], reasons: [], ...more }) as unknown as AuditRecord;

test("the values of the records are offered, the most frequent first", () => {
  const records = [record({ code: "NOT_FOUND" }), record({ tool: "write_file", pathsWritten: ["src/a/b.rs"], files: [{ path: "src/a/b.rs", kind: "TEXT_SOURCE" }] }), record({ runId: "s", pathsRead: ["src/c.rs"] })];
  const runs = [{ runId: "new", labels: { team: "a", ticket: "1" } }, { runId: "s", labels: { team: "a" } }] as unknown as Run[];
  const found = suggestionsOf(records, runs);
  expect(found.tool).toEqual(["read_file", "write_file"]);
  expect(found.code).toEqual(["NOT_FOUND"]);
  expect(found.actor).toEqual(["run-token:1"]);
  expect(found.run).toEqual(["new", "s", "r"]);
  expect(found.label).toEqual(["team:a", "ticket:1"]);
  expect(found.pathPrefix).toEqual(["src/", "src/a/", "src/a/b.rs", "src/c.rs"]);
});

test("at most 200 values are offered", () => {
  const records = Array.from({ length: 300 }, (_, number) => record({ runId: `r${number}`, pathsRead: [`${number}.txt`] }));
  const found = suggestionsOf(records, []);
  expect([found.run.length, found.pathPrefix.length]).toEqual([200, 200]);
});
