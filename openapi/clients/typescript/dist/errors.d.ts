import type { Problem } from "./types.js";
/**
 * A refusal. `NoAnswer` is the one of a request that received no answer: every failure of a request has this type.
 *
 * `code` is stable, `message` says what is wrong, `hint` what to do next. `problem` has all members of the refusal.
 */
export declare class WorkspacedError extends Error {
    readonly status: number;
    readonly problem: Partial<Problem>;
    readonly requestId: string | null;
    readonly code: string;
    readonly detail: string;
    readonly hint: string;
    constructor(status: number, problem: Partial<Problem>, requestId: string | null, code?: string);
    /** Whether the call has reached its run, which has the refusal in its record. */
    get isRecorded(): boolean;
}
/** The request received no answer, or none of this service. Its status is 0; `cause` is the error of the connection. */
export declare class NoAnswer extends WorkspacedError {
    readonly cause: unknown;
    constructor(cause: unknown, url: string);
}
/**
 * A folder of a run, or the sandbox that has it, failed. Its status is 0; the run is as it was.
 *
 * Codes: `CONFLICT` (files changed there and in the run), `NO_CHECKOUT`, `OTHER_RUN`, `MOVED`, `UNSTEADY`, `FOLDER`, `NO_SHIM`,
 * `NOT_STARTED`, `LOST`, `ADDRESS`.
 */
export declare class FolderError extends WorkspacedError {
    /** The files of a `CONFLICT`. */
    readonly conflicts: Array<{
        path: string;
        why: string;
    }>;
    constructor(code: string, detail: string, hint?: string, 
    /** The files of a `CONFLICT`. */
    conflicts?: Array<{
        path: string;
        why: string;
    }>);
}
/** The call waits for a person's decision. Nothing has changed yet; `Run.waitForApproval` returns its outcome. */
export declare class ApprovalRequired extends WorkspacedError {
    /** The ID of the approval. A dry run has none. */
    get approvalId(): string | undefined;
    /** The ID of the call, for `Run.toolCall`. */
    get callId(): string | undefined;
}
/** Reads the refusal in an answer, as JSON or as the text for models. */
export declare function errorOf(response: Response): Promise<WorkspacedError>;
