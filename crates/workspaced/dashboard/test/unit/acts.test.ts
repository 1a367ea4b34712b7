/** Who did what, in the words of the audit. */

import { describe, expect, it } from "vitest";
import { endOf, lookedFor, subject, verdictInWords, verdictOf, whoOf } from "../../src/lib/acts.ts";
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
  expect([endOf(record({})), endOf(record({ outcome: "pending" }))]).toEqual([{ state: "ok" }, { state: "pending", text: "asked a person" }]);
});

describe("a call that waited until its run ended, or for too long", () => {
  const ended = (result: string, more: Partial<AuditRecord> = {}) => record({ actor: "service", by: "service", mutates: true, outcome: "refused", decision: "DENY", code: "RUN_CLOSED", reasons: [`approval:apr_1:${result}`], ...more });
  const late = ended("expired", { decision: "REQUIRE_APPROVAL", code: "APPROVAL_REQUIRED" });
  it("was blocked by nobody", () => {
    expect(endOf(ended("failed"))).toEqual({ state: "failed", text: "the run ended" });
    expect(endOf(late)).toEqual({ state: "expired" });
    expect([ended("failed"), late].map(verdictInWords)).toEqual(["not decided: the run ended", "not decided: nobody decided in time"]);
  });
});

it("a request that is invalid was not decided", () => {
  expect(verdictInWords(record({ outcome: "refused", code: "INVALID_REQUEST", reasons: ["`reason` is missing"] }))).toBe("not decided: the request was invalid");
  expect(verdictInWords(record({ outcome: "refused", code: "NOT_FOUND" }))).toBe("allowed by policy");
  expect(verdictInWords(record({ outcome: "refused", decision: "DENY", code: "POLICY_DENIED" }))).toBe("blocked by policy");
});

it("a record says whether a person approved a call, or made it", () => {
  const made = (more: Partial<AuditRecord>) => verdictOf(record({ actor: "operator:rita", by: "operator", tool: "write_file", mutates: true, ...more }));
  expect(made({ reasons: ["kind:LOCKFILE", "onBehalfOf:Ada"] })).toBe("approved");
  expect(made({ reasons: ["write:**", "onBehalfOf:Ada"] })).toBeUndefined();
  expect(made({ reasons: ["kind:LOCKFILE"], reason: "changed by the person who approved" })).toBeUndefined();
  expect(made({ reasons: ["kind:LOCKFILE"], by: "agent" })).toBeUndefined();
  expect(made({ outcome: "refused", decision: "DENY", reasons: ["approval:apr_1:denied"] })).toBe("denied");
  const vote = { outcome: "pending" as const, decision: "REQUIRE_APPROVAL" as const, by: "operator" as const, reasons: ["approval:apr_1:approved:1of2", "note:ok"] };
  expect([made(vote), endOf(record(vote))]).toEqual(["approved", { state: "pending", text: "approved, 1 of 2" }]);
});
