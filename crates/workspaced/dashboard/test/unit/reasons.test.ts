/** What the service says against a change, as reasons to deny it. */

import { describe, expect, it } from "vitest";
import { guardOf, readyReasons, redoReason, toggleReason } from "../../src/lib/reasons.ts";
import type { Approval, Warning } from "../../src/lib/types.ts";

const approval = { tool: "edit_file", reason: "why", reasons: ["kind:TEXT_SOURCE", "requireApprovalIf:deletesTest"], files: [{ path: "a.py" }], warnings: [] as Warning[] } as unknown as Approval;
const weakened: Warning = { code: "WEAKENS_TEST", severity: "danger", path: "a.py", line: 4, text: "The change removes an assertion." };
const host: Warning = { code: "NEW_HOST", severity: "doubt", path: "a.py", line: 7, text: "An added line names the host x.dev." };
const untested: Warning = { code: "TESTS_NOT_ON_THIS_TREE", severity: "info", text: "No test has run with this change." };
const of = (warnings: Warning[], earlier: Approval[] = [], more: Partial<Approval> = {}) => readyReasons({ ...approval, warnings, ...more }, earlier);

describe("the ready reasons", () => {
  it("are the warnings of the service, with their lines; a danger is given at once", () => {
    expect(of([weakened, host, untested])).toEqual([
      { label: "Weakens a test", text: "The change removes an assertion (a.py, line 4).", isStrong: true, at: { path: "a.py", line: 4 } },
      { label: "New host", text: "An added line names the host x.dev (a.py, line 7).", isStrong: false, at: { path: "a.py", line: 7 } },
    ]);
    expect(of([{ code: "NEW_CODE", severity: "doubt", path: "a.py", text: "Something about a.py" }])[0]).toMatchObject({ label: "New code", text: "Something about a.py." });
  });
  it("repeat the note of an earlier denial once, and no other decision", () => {
    const before: Warning = { code: "DENIED_BEFORE", severity: "danger", approvalId: "apr_1", note: "Lock only http.", text: "Ada denied the same change." };
    const earlier = [{ state: "denied", note: "Lock only http." }, { state: "denied", note: "Too large." }, { state: "approved", note: "fine", decidedSeq: 36 }] as Approval[];
    expect(of([before], earlier).map(({ text, isStrong }) => [text, isStrong])).toEqual([["Lock only http.", true], ["Too large.", false]]);
  });
  it("say that the agent has given none, and are few", () => {
    expect(of([], [], { reason: "" }).map(({ text }) => text)).toEqual(["It deletes a test (a.py), and the reason for that is missing."]);
    expect(of(Array.from({ length: 9 }, (_, line) => ({ ...host, line })))).toHaveLength(6);
  });
  it("take the place of each other, and follow what was written by hand", () => {
    const reasons = of([weakened, host]);
    const [one, two] = reasons.map(({ text }) => text);
    expect(toggleReason("", one, reasons)).toBe(one);
    expect(toggleReason(one, two, reasons)).toBe(two);
    expect(toggleReason(two, two, reasons)).toBe("");
    expect(toggleReason(`${one} See line 3.`, two, reasons)).toBe(`${one} See line 3.\n${two}`);
    expect(toggleReason(`${one} See line 3.\n${two}`, two, reasons)).toBe(`${one} See line 3.`);
  });
  it("of a change that no longer applies ask the agent to redo it", () => {
    const stale: Warning = { code: "STALE", severity: "doubt", path: "a.py", text: "The file has changed since the request." };
    expect(redoReason({ ...approval, warnings: [stale] })).toBe("a.py changed after this request. Re-read it and try again.");
    expect(redoReason({ ...approval, warnings: [stale, { ...stale, path: "b.py" }] })).toBe("a.py, b.py changed after this request. Re-read them and try again.");
    expect(redoReason(approval)).toBe("The files changed after this request. Re-read them and try again.");
  });
});

it("a danger or a doubt keeps a change out of a bulk approval", () => {
  expect([[], [untested], [host], [weakened, host]].map((warnings) => guardOf({ ...approval, warnings }))).toEqual([undefined, undefined, "new host", "weakens a test"]);
});
