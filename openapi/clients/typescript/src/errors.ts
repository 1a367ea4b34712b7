// Refusals as exceptions.

import type { Problem } from "./types.js";

/**
 * A refusal. `NoAnswer` is the one of a request that received no answer: every failure of a request has this type.
 *
 * `code` is stable, `message` says what is wrong, `hint` what to do next. `problem` has all members of the refusal.
 */
export class WorkspacedError extends Error {
  readonly code: string;
  readonly detail: string;
  readonly hint: string;

  constructor(
    readonly status: number,
    readonly problem: Partial<Problem>,
    readonly requestId: string | null,
    code: string = problem.code ?? `HTTP_${status}`,
  ) {
    const detail = problem.detail ?? "the answer is not one of workspaced";
    super(`${code}: ${detail}${problem.hint ? ` (${problem.hint})` : ""}`);
    this.name = new.target.name;
    this.code = code;
    this.detail = detail;
    this.hint = problem.hint ?? "";
  }

  /** Whether the call has reached its run, which has the refusal in its record. */
  get isRecorded(): boolean {
    return typeof this.problem.seq === "number";
  }
}

/** The request received no answer, or none of this service. Its status is 0; `cause` is the error of the connection. */
export class NoAnswer extends WorkspacedError {
  constructor(override readonly cause: unknown, url: string) {
    const parts = cause instanceof Error ? [cause.message, cause.cause instanceof Error ? cause.cause.message : ""] : [String(cause)];
    const hint = `Does the service run, and is ${JSON.stringify(url)} its address? The examples take it from WORKSPACED_URL, such as http://127.0.0.1:8080. What was asked for may have happened.`;
    super(0, { detail: parts.filter((part) => part !== "").join(": "), hint }, null, "NO_ANSWER");
  }
}

/**
 * A folder of a run, or the sandbox that has it, failed. Its status is 0; the run is as it was.
 *
 * Codes: `CONFLICT` (files changed there and in the run), `NO_CHECKOUT`, `OTHER_RUN`, `MOVED`, `UNSTEADY`, `FOLDER`, `NO_SHIM`,
 * `NOT_STARTED`, `LOST`, `ADDRESS`.
 */
export class FolderError extends WorkspacedError {
  constructor(
    code: string,
    detail: string,
    hint = "",
    /** The files of a `CONFLICT`. */
    readonly conflicts: Array<{ path: string; why: string }> = [],
  ) {
    super(0, { detail, hint }, null, code);
  }
}

/** The call waits for a person's decision. Nothing has changed yet; `Run.waitForApproval` returns its outcome. */
export class ApprovalRequired extends WorkspacedError {
  /** The ID of the approval. A dry run has none. */
  get approvalId(): string | undefined {
    return this.problem.approvalId ?? undefined;
  }

  /** The ID of the call, for `Run.toolCall`. */
  get callId(): string | undefined {
    return this.problem.toolCallId ?? undefined;
  }
}

/** Reads the refusal in an answer, as JSON or as the text for models. */
export async function errorOf(response: Response): Promise<WorkspacedError> {
  const text = await response.text();
  const problem = (response.headers.get("content-type") ?? "").startsWith("text/plain") ? ofText(text, response.headers.get("workspaced-seq")) : ofJson(text);
  const kind = problem.code === "APPROVAL_REQUIRED" ? ApprovalRequired : WorkspacedError;
  return new kind(response.status, problem, response.headers.get("x-request-id"));
}

function ofText(text: string, seq: string | null): Partial<Problem> {
  const parts = /^([A-Z_]+): ([^\n]*)\n?([^]*)$/.exec(text);
  if (parts === null) return {};
  return { code: parts[1] as Problem["code"], detail: parts[2]!, hint: parts[3]!.trim(), ...(seq === null ? {} : { seq: Number(seq) }) };
}

function ofJson(text: string): Partial<Problem> {
  try {
    const parsed: unknown = JSON.parse(text);
    return typeof parsed === "object" && parsed !== null ? parsed : {};
  } catch {
    // Not of the service: of a proxy, for example. The status says what is known.
    return {};
  }
}
