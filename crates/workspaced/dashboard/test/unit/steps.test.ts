/** The story of a run by steps, and rules in words. */

import { describe, expect, it } from "vitest";
import { outputOf, shortened, typed } from "../../src/lib/command.ts";
import { isAside, isEditOfPerson, isReadOfPerson, itemsOf } from "../../src/lib/steps.ts";
import type { AuditRecord } from "../../src/lib/types.ts";
import { countInWords, decisionInWords, kindInWords, kindsInWords, nameInWords, ruleInWords, rulesInWords } from "../../src/lib/words.ts";

const record = (seq: number, more: Partial<AuditRecord> = {}): AuditRecord => ({
  runId: "r", seq, toolCallId: `c${seq}`, tool: "read_file", timestamp: `2026-01-01T00:00:0${seq}Z`, actor: "run-token:t", by: "agent", mutates: false, reasons: [], pathsRead: [], pathsWritten: [],
  files: [], decision: "ALLOW", outcome: "ok", durationMicros: 1, artifactUris: [], prevHash: "", hash: "", ...more,
});

describe("the steps of a run", () => {
  const records = [
    record(1, { tool: "run.create", by: "operator" }),
    record(2, { stepId: "look" }),
    record(3, { tool: "event.message", by: "operator" }),
    record(4, { stepId: "look", outcome: "refused" }),
    record(5, { stepId: "change", mutates: true }),
    record(6, { stepId: "change", tool: "event.test", by: "operator", input: { data: { exitCode: 1 } } }),
    record(7, { stepId: "look", outcome: "pending", mutates: true }),
  ];
  it("begin where the name changes, and a record without a step ends none", () => {
    const items = itemsOf(records, new Set());
    expect(items.map((item) => ("seq" in item ? item.seq : item.step.name))).toEqual([1, "look", 2, 3, 4, "change", 5, 6, "look", 7]);
  });
  it("count what they did, and say how the last command ended", () => {
    const [look, change, again] = itemsOf(records, new Set()).flatMap((item) => ("step" in item ? [item.step] : []));
    expect([look.reads, look.refused, look.isFailed]).toEqual([1, 1, undefined]);
    expect([change.changes, change.commands, change.isFailed]).toEqual([1, 1, true]);
    expect([again.waiting, again.startedAt]).toEqual([1, records[6].timestamp]);
  });
  it("tell what waits from what was decided", () => {
    const states = new Map([["c7", "approved" as const], ["c8", "denied" as const]]);
    const asked = [record(7, { stepId: "x", outcome: "pending", mutates: true }), record(8, { stepId: "x", outcome: "pending", mutates: true }), record(9, { stepId: "x", outcome: "pending", mutates: true })];
    const [step] = itemsOf(asked, new Set(), ({ toolCallId }) => states.get(toolCallId)).flatMap((item) => ("step" in item ? [item.step] : []));
    expect([step.waiting, step.changes, step.refused]).toEqual([1, 1, 1]);
  });
  it("count no call as blocked that waited until the run ended", () => {
    const ended = record(8, { stepId: "x", by: "service", outcome: "refused", decision: "DENY", code: "RUN_CLOSED", reasons: ["approval:apr_1:failed"] });
    const [step] = itemsOf([ended, record(9, { stepId: "x", outcome: "refused", decision: "DENY" })], new Set()).flatMap((item) => ("step" in item ? [item.step] : []));
    expect([step.refused, step.blocked, step.denied]).toEqual([2, 1, 0]);
  });
  it("say how much has changed since their last command", () => {
    const ran = (seq: number) => record(seq, { stepId: "x", tool: "event.test", by: "operator", input: { data: { exitCode: 0 } } });
    const change = (seq: number, stepId?: string) => record(seq, { stepId, mutates: true });
    const steps = (records: AuditRecord[]) => itemsOf(records, new Set()).flatMap((item) => ("step" in item ? [item.step.changedSince] : []));
    expect(steps([change(1, "x"), ran(2), change(3, "x"), change(4)])).toEqual([2]);
    expect(steps([ran(1), change(2, "x"), ran(3)])).toEqual([0]);
  });
  it("count a command that a runner ran once", () => {
    const data = { command: "make", exitCode: 0 };
    const ran = [record(1, { tool: "archive", pathsRead: ["."] }), record(2, { tool: "event.command", input: { data: { ...data, toolCallId: "c3" } } }), record(3, { tool: "run_command", input: { data } })];
    expect(ran.map(isAside)).toEqual([true, true, false]);
  });
  it("hide their own records when they are folded", () => {
    const items = itemsOf(records, new Set([2]));
    expect(items.map((item) => ("seq" in item ? item.seq : item.step.name))).toEqual([1, "look", 3, "change", 5, 6, "look", 7]);
  });
  it("have no edit of a person, whatever step it names", () => {
    const edit = record(3, { stepId: "x", by: "operator", actor: "operator:alice", tool: "edit_file", mutates: true });
    const records = [record(1, { stepId: "x", mutates: true }), record(2, { stepId: "x" }), edit, record(4, { stepId: "x" })];
    const items = itemsOf(records, new Set([1]));
    expect(items.map((item) => ("seq" in item ? item.seq : item.step.name))).toEqual(["x", 3]);
    expect(items.flatMap((item) => ("step" in item ? [[item.step.changes, item.step.records]] : []))).toEqual([[1, 3]]);
    expect(records.filter(isEditOfPerson)).toEqual([edit]);
    expect([record(1, { by: "operator" }), edit, record(2), record(5, { by: "operator", tool: "event.message" })].map(isReadOfPerson)).toEqual([true, false, false, false]);
  });
  it("leave out what people looked at and uploads, and nothing else", () => {
    const asides = [record(1, { by: "operator" }), record(2, { tool: "artifact.upload", by: "operator" })];
    expect(asides.map(isAside)).toEqual([true, true]);
    expect([...records, record(8, { by: "operator", mutates: true }), record(9, { by: "operator", outcome: "refused" })].map(isAside)).not.toContain(true);
  });
});

describe("a command", () => {
  it("is shortened to what it does", () => {
    expect(shortened("git apply - <<'EOF' && python3 -m unittest discover -s tests -t .\n--- a/a.py\n+++ b/a.py\n+x && y\nEOF")).toBe("python3 -m unittest");
    expect(shortened("cd web && npm ci\nnpm test")).toBe("npm ci && npm test");
    expect(shortened("git apply fix.patch")).toBe("git apply fix.patch");
    expect(shortened("cat <<EOF\nwithout an end")).toBe("cat <<EOF && without an end");
  });
  it("is shown as it was typed", () => {
    expect(typed({ command: "make" })).toBe("make");
    expect(typed({ argv: ["sh", "-c", "a &&\nb"] })).toBe("a &&\nb");
    expect(typed({ argv: ["cargo", "fmt", "--check"] })).toBe("cargo fmt --check");
  });
  it("has an output where one was kept", () => {
    const ran = (data: object, artifactUris: string[] = []) => outputOf(record(1, { tool: "event.command", input: { data }, artifactUris }));
    expect(ran({ outputSha256: "ab" })).toBe("artifact://r/sha256/ab");
    expect(ran({ outputSha256: "ab", outputRefused: "POLICY_DENIED" })).toBeUndefined();
    expect(ran({}, ["artifact://r/sha256/cd"])).toBe("artifact://r/sha256/cd");
  });
});

describe("rules in words", () => {
  it("say each thing once and keep every name", () => {
    expect(rulesInWords(["kind:LOCKFILE", "requireApprovalIf:touchesLockfile", "requireApprovalIf:deletesFile"])).toEqual([
      ["changes a lock file", "kind:LOCKFILE, requireApprovalIf:touchesLockfile"], ["deletes a file", "requireApprovalIf:deletesFile"],
    ]);
  });
  it("name kinds, budgets and decisions", () => {
    expect(["TEXT_SOURCE", "LOCKFILE", "SECRET_LIKE", "DIRECTORY", "SUBMODULE", "OTHER"].map(kindInWords)).toEqual(["source", "lock file", "may hold secrets", "folder", "submodule", "OTHER"]);
    expect(kindsInWords({ SUBMODULE: "DENY", LOCKFILE: "REQUIRE_EVIDENCE", SECRET_LIKE: "REDACT", TEXT_DOC: "ALLOW" })).toEqual(["submodules: blocked", "lock files: evidence of a check", "may hold secrets: hidden"]);
    expect(ruleInWords("kind:SUBMODULE")).toBe("changes a submodule");
    expect([countInWords("denied", 1), countInWords("refused", 6), countInWords("failed", 1), countInWords("reads", 2)]).toEqual(["blocked or denied", "not done", "service error", "reads"]);
    expect(["maxFilesTouched", "approvalsRequested", "reads"].map(nameInWords)).toEqual(["files touched", "approvals requested", "reads"]);
    expect(["ALLOW", "DENY", "OTHER"].map(decisionInWords)).toEqual(["allowed by policy", "blocked by policy", "OTHER"]);
  });
  it("leave a rule without words as it is", () => {
    for (const rule of ["deny:src/**", "requireApprovalIf:constructor", "toString", "commands:ask:cargo publish"]) expect(ruleInWords(rule)).toBe(rule.startsWith("commands") ? "runs `cargo publish`" : rule);
  });
});
