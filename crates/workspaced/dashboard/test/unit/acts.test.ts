/** Who did what, in the words of the audit. */

import { describe, expect, it } from "vitest";
import { endOf, lookedFor, subject, whoOf } from "../../src/lib/acts.ts";
import type { AuditRecord } from "../../src/lib/types.ts";

const record = (more: Partial<AuditRecord>) => ({ tool: "read_file", actor: "run-token:t", by: "agent", mutates: false, outcome: "ok", decision: "ALLOW", reasons: [], pathsRead: [], pathsWritten: [], files: [], ...more }) as unknown as AuditRecord;

describe("what a read looked for", () => {
  it.each([
    ["search_text", { query: "refund" }, "\"refund\""],
    ["search_text", { query: "a|b", mode: "regex", path: "src", includeGlob: ["*.py"], excludeGlob: ["test/**"] }, "/a|b/ in src (*.py, not test/**)"],
    ["read_file", { path: "refunds.py", startLine: 1, maxLines: 40 }, "refunds.py:1–40"],
    ["read_file", { path: "refunds.py", startLine: 30, atSeq: 7 }, "refunds.py:30– at record 7"],
    ["read_file", { path: "refunds.py", maxLines: 40 }, "refunds.py:1–40"],
    ["read_file", { path: "refunds.py" }, "refunds.py"],
    ["read_files", { paths: ["a", "b", "c", "d"] }, "a, b, c and 1 more"],
    ["find_files", { glob: ["**/*.rs"], path: "crates" }, "**/*.rs in crates"],
    ["list_dir", { maxDepth: 3 }, ". depth 3"],
  ])("is a sentence after %s", (tool, input, sentence) => {
    expect(subject(record({ tool, input, pathsRead: ["other"] }))).toBe(sentence);
  });
  it("is not known of a record without input, and of no other record", () => {
    expect(subject(record({ pathsRead: ["a.py"] }))).toBe("a.py");
    expect(lookedFor(record({ tool: "run.create", input: { path: "x" } }))).toBeUndefined();
    expect(lookedFor(record({ tool: "write_file", mutates: true, input: { path: "x" } }))).toBeUndefined();
  });
});

it("a call is by a person, an operator, an agent or the service", () => {
  expect([{}, { actor: "operator:alice" }, { actor: "operator:orchestrate" }, { actor: "operator:alice", reasons: ["onBehalfOf:Ada"] }, { actor: "service", by: "service" as const }].map((more) => whoOf(record(more)))).toEqual(["agent", "alice", "operator", "Ada", "service"]);
});

it("a policy blocks, a person denies, and other calls fail", () => {
  const refused = { outcome: "refused" as const, code: "POLICY_DENIED" };
  expect(endOf(record({ ...refused, decision: "DENY", reasons: ["kind:SECRET_LIKE"] }))).toEqual({ state: "blocked" });
  expect(endOf(record({ ...refused, decision: "DENY", actor: "operator:bob", reasons: ["approval:apr_1:denied", "onBehalfOf:Ada"] }))).toEqual({ state: "denied", text: "denied by Ada" });
  expect(endOf(record({ ...refused, code: "NOT_FOUND" }))).toEqual({ state: "failed" });
  expect([endOf(record({})), endOf(record({ outcome: "pending" }))]).toEqual([{ state: "ok" }, { state: "pending" }]);
});
