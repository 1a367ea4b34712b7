import { Run } from "./run.js";
import { type FollowOptions, type StreamEvent } from "./streams.js";
import { type Options, type Query } from "./transport.js";
import type * as types from "./types.js";
export type CreateRunOptions = Omit<types.CreateRunRequest, "source"> & {
    source?: types.Source;
    /** With these, the first token is revoked, and one with these permissions is returned. */
    permissions?: types.Permission[];
};
export type ForkOptions = Omit<CreateRunOptions, "source"> & {
    /** The record of the other run; 0 is its base. */
    atSeq?: number;
};
/**
 * Creates and finds runs, decides approvals, and reads the audit of all runs.
 *
 * Requests that fail in transport or are answered with 429 or 503 are sent again, with the same IDs.
 */
export declare class Client {
    private readonly transport;
    constructor(url: string, token: string, options?: Options);
    /**
     * Creates a run, empty by default. Returns it with its first token.
     *
     * Calls of the returned run are made by the operator: `agent` makes those of the token.
     */
    createRun(options?: CreateRunOptions): Promise<{
        run: Run;
        token: types.IssuedToken;
    }>;
    /**
     * Creates a run with the files of another one at the record `atSeq`, by default the newest. Returns what `createRun` returns.
     *
     * Without a policy and mounts, it has those of the other run. `Run.merge` brings its changes back.
     */
    fork(run: Run | string, options?: ForkOptions): Promise<{
        run: Run;
        token: types.IssuedToken;
    }>;
    /** Returns a run, without a request. */
    run(runId: string): Run;
    /** Returns a run whose calls are made with this token. */
    agent(runId: string, token: string): Run;
    /** Yields the runs, page by page. The filters are the parameters of `GET /v1/runs`. */
    runs(filters?: Query): AsyncGenerator<types.Run>;
    /** Yields the approvals, page by page: for example `{ state: "pending" }`. */
    approvals(filters?: Query): AsyncGenerator<types.Approval>;
    /** Returns an approval with its diff. */
    approval(approvalId: string): Promise<types.Approval>;
    /** Approves a call, which is then judged again and executed. */
    approve(approvalId: string, decision?: types.ApprovalDecision): Promise<types.ApprovalResult>;
    /** Denies a call. */
    deny(approvalId: string, decision?: types.ApprovalDecision): Promise<types.ApprovalResult>;
    private decide;
    /** Yields the records of all runs, page by page: for example `{ run, tool, outcome: "refused" }`. */
    audit(filters?: Query): AsyncGenerator<types.AuditRecord>;
    /** Yields records as they are made, without a gap; the filter `since` begins with earlier ones. */
    follow(filters?: Query, options?: FollowOptions): AsyncGenerator<StreamEvent<types.AuditRecord>>;
    /** Yields the operators, page by page. */
    operators(filters?: Query): AsyncGenerator<types.Operator>;
    /** Creates an operator. The answer has the token, which is shown only once. */
    createOperator(json: types.CreateOperatorRequest): Promise<types.CreatedOperator>;
    /** Gives an operator another token, which is shown only once. The present one stays valid for `overlapSeconds`. */
    rotateOperatorToken(name: string, json?: types.RotateTokenRequest): Promise<types.CreatedOperator>;
    /** Revokes an operator's token. */
    revokeOperator(name: string): Promise<void>;
    /** Yields the webhooks of the service's configuration. */
    webhooks(): AsyncGenerator<types.WebhookView>;
    /** Yields the messages to a webhook, page by page; the newest first with `{ order: "desc" }`. */
    deliveries(webhook: string, filters?: Query): AsyncGenerator<types.WebhookDelivery>;
    /** Sends a message again, with the same ID. Returns the delivery, which is pending. */
    redeliver(webhook: string, message: string): Promise<types.WebhookDelivery>;
    /** Returns the limits of the service. */
    limits(): Promise<types.Limits>;
}
