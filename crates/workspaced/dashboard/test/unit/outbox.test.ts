/** What becomes of decisions whose answers are lost or come too late, and how approvals end. */

import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Approval, AuditRecord } from "../../src/lib/types.ts";
import { endInWords, hasEndedUndecided, ownPaths, resolutionOf } from "../../src/lib/words.ts";

vi.stubGlobal("sessionStorage", { getItem: () => null, setItem: () => undefined, removeItem: () => undefined });
vi.stubGlobal("addEventListener", () => undefined);
const { decide, failureOf, lastOf, sendAll } = await import("../../src/lib/outbox.ts");
const { withStop } = await import("../../src/lib/stops.ts");

const approvalOf = (more: Partial<Approval> = {}) => ({ approvalId: `apr_${Math.random()}`, runId: "r", actor: "run-token:t", state: "pending", files: [], votes: [], approvedBy: [], approvers: 1, warnings: [], createdAt: "2026-01-01T00:00:01.000000Z", ...more }) as unknown as Approval;
const closed = { state: "failed", resolution: "failed: RUN_CLOSED" } as const;

type Answer = { status?: number; body?: object } | "lost";
/** Decides, with these answers to the decision and to what is asked afterwards. Returns what became of it. */
async function decided(verb: "approve" | "deny", approvals: Approval[], ofDecision: (id: string) => Answer, ofRead: (id: string) => Answer = () => "lost") {
  vi.stubGlobal("fetch", async (path: string, { method }: { method: string }) => {
    const id = path.split("/")[3];
    const answer = method === "POST" ? ofDecision(id) : ofRead(id);
    if (answer === "lost") throw new TypeError("Failed to fetch");
    return new Response(JSON.stringify(answer.body ?? {}), { status: answer.status ?? 200 });
  });
  decide(verb, approvals, {});
  const sent = sendAll();
  await vi.runAllTimersAsync();
  await sent;
  const decision = lastOf(approvals[0].approvalId)!;
  return { state: decision.state, results: decision.results, said: decision.state === "failed" ? failureOf(decision) : undefined };
}

describe("a decision whose answer is lost", () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());
  const approval = approvalOf();
  const lost = () => "lost" as const;
  it("is what the approval says afterwards", async () => {
    const approved = { ...approval, state: "approved" as const, decidedBy: "rita" };
    expect(await decided("approve", [approval], lost, () => ({ body: approved }))).toEqual({ state: "sent", results: [approved], said: undefined });
    // A gateway that gives up is no answer of the service.
    expect((await decided("approve", [approval], () => ({ status: 504 }), () => ({ body: approved }))).state).toBe("sent");
  });
  it("was not made if the approval still waits", async () => {
    expect(await decided("deny", [approval], lost, () => ({ body: approval }))).toMatchObject({ state: "failed", said: "Not denied: The service did not answer." });
  });
  it("may have been made if nothing can be read, or if somebody has voted", async () => {
    expect((await decided("approve", [approval], lost)).said).toBe("No answer: it may have been approved.");
    expect((await decided("deny", [approval], lost)).said).toBe("No answer: it may have been denied.");
    expect((await decided("approve", [approval], lost, () => ({ body: { ...approval, votes: [{ operator: "rita" }] } }))).said).toBe("No answer: it may have been approved.");
  });
  it("does not hide those that were made with it", async () => {
    const other = approvalOf();
    const { said } = await decided("approve", [approval, other], (id) => (id === other.approvalId ? "lost" : { body: { ...approval, state: "approved" } }));
    expect(said).toBe("1 of 2 approved. No answer: it may have been approved.");
  });
});

describe("a decision that comes too late", () => {
  const late = (now: Partial<Approval>) => {
    const approval = approvalOf();
    return decided("approve", [approval], () => ({ status: 409, body: { code: "ALREADY_EXISTS", detail: "the approval is already decided" } }), () => ({ body: { ...approval, ...now } }));
  };
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());
  it("names who has decided, if anybody has", async () => {
    expect((await late(closed)).said).toBe("Not approved: The run ended before anybody decided.");
    expect((await late({ state: "expired" })).said).toBe("Not approved: Nobody decided in time.");
    expect((await late({ state: "denied", decidedBy: "rita", onBehalfOf: "Ada" })).said).toBe("Not approved: Ada has already denied it.");
  });
  it("is refused in the words of the service otherwise", async () => {
    expect((await decided("approve", [approvalOf()], () => ({ status: 403, body: { code: "FORBIDDEN", detail: "another person must approve" } }))).said).toBe("Not approved: another person must approve");
  });
});

it("an approval that nobody decided was not approved", () => {
  const ended = approvalOf(closed);
  expect([hasEndedUndecided(ended), resolutionOf(ended), endInWords(ended)]).toEqual([true, "not decided: the run ended", "The run ended before anybody decided."]);
  expect(endInWords(approvalOf({ ...closed, approvedBy: ["rita"] }))).toBe("The run ended before enough persons had approved.");
  const approved = approvalOf({ ...closed, decidedBy: "rita", approvedBy: ["rita"] });
  expect([hasEndedUndecided(approved), resolutionOf(approved), endInWords(approved)]).toEqual([false, "not applied: the run ended", "rita has already approved it."]);
});

it("a file that has changed since is not left out of what else the run changed", () => {
  const of = (...isExpected: (boolean | undefined)[]) => ownPaths(approvalOf({ files: [{ path: "a.py" }, { path: "b.py" }] as Approval["files"], present: isExpected.map((is, index) => ({ path: ["a.py", "b.py"][index], exists: true, isExpected: is })) }));
  expect([of(true, true), of(false, true), of(undefined, false), of()]).toEqual([["a.py", "b.py"], ["b.py"], ["a.py"], ["a.py", "b.py"]]);
  expect(ownPaths(approvalOf({ state: "approved", files: [{ path: "a.py" }] as Approval["files"] }))).toEqual([]);
});

it("what a stopped agent had asked for is dangerous to approve", () => {
  const stops = new Map([["r", { runId: "r", actor: "operator:rita", by: "operator", reason: "it deletes tests", reasons: [], timestamp: "2026-01-01T00:00:02.000000Z" } as unknown as AuditRecord]]);
  const warned = (more: Partial<Approval>) => withStop(approvalOf(more), stops).warnings.map(({ severity, text }) => `${severity}: ${text}`);
  expect(warned({})).toEqual(["danger: Agent stopped by rita: it deletes tests"]);
  // What was asked afterwards is that of another agent, and a person is none.
  expect([warned({ createdAt: "2026-01-01T00:00:03.000000Z" }), warned({ runId: "other" }), warned({ state: "denied" }), warned({ actor: "operator:rita" })]).toEqual([[], [], [], []]);
});
