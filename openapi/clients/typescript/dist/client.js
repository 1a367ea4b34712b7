// The client of an operator.
import { crypto } from "./crypto.js";
import { idOf, Run } from "./run.js";
import { follow } from "./streams.js";
import { pages, Transport } from "./transport.js";
/**
 * Creates and finds runs, decides approvals, and reads the audit of all runs.
 *
 * Requests that fail in transport or are answered with 429 or 503 are sent again, with the same IDs.
 */
export class Client {
    transport;
    constructor(url, token, options = {}) {
        this.transport = new Transport(url, token, options);
    }
    /**
     * Creates a run, empty by default. Returns it with its first token.
     *
     * Calls of the returned run are made by the operator: `agent` makes those of the token.
     */
    async createRun(options = {}) {
        const { permissions, ...wanted } = options;
        const json = { source: { type: "empty" }, ...wanted };
        const headers = { "Idempotency-Key": `create-${crypto.randomUUID()}` };
        const created = await this.transport.json("POST", "/v1/runs", { json, headers });
        const run = this.run(created.run.runId);
        if (permissions === undefined)
            return { run, token: created.token };
        const token = await run.issueToken({ permissions });
        await run.revokeToken(created.token.tokenId);
        return { run, token };
    }
    /**
     * Creates a run with the files of another one at the record `atSeq`, by default the newest. Returns what `createRun` returns.
     *
     * Without a policy and mounts, it has those of the other run. `Run.merge` brings its changes back.
     */
    fork(run, options = {}) {
        const { atSeq, ...wanted } = options;
        return this.createRun({ ...wanted, source: { type: "run", runId: idOf(run), ...(atSeq === undefined ? {} : { atSeq }) } });
    }
    /** Returns a run, without a request. */
    run(runId) {
        return new Run(this.transport, runId);
    }
    /** Returns a run whose calls are made with this token. */
    agent(runId, token) {
        return new Run(this.transport.withToken(token), runId);
    }
    /** Yields the runs, page by page. The filters are the parameters of `GET /v1/runs`. */
    runs(filters = {}) {
        return pages(this.transport, "/v1/runs", filters);
    }
    /** Yields the approvals, page by page: for example `{ state: "pending" }`. */
    approvals(filters = {}) {
        return pages(this.transport, "/v1/approvals", filters);
    }
    /** Returns an approval with its diff. */
    approval(approvalId) {
        return this.transport.json("GET", `/v1/approvals/${encodeURIComponent(approvalId)}`);
    }
    /** Approves a call, which is then judged again and executed. */
    approve(approvalId, decision = {}) {
        return this.decide(approvalId, "approve", decision);
    }
    /** Denies a call. */
    deny(approvalId, decision = {}) {
        return this.decide(approvalId, "deny", decision);
    }
    decide(approvalId, verb, json) {
        // The first of two decisions counts: after a lost answer, `approval` says what was decided.
        const path = `/v1/approvals/${encodeURIComponent(approvalId)}/${verb}`;
        return this.transport.json("POST", path, { json, repeatable: false });
    }
    /** Yields the records of all runs, page by page: for example `{ run, tool, outcome: "refused" }`. */
    audit(filters = {}) {
        return pages(this.transport, "/v1/audit", filters);
    }
    /** Yields records as they are made, without a gap; the filter `since` begins with earlier ones. */
    follow(filters = {}, options = {}) {
        return follow(this.transport, "/v1/audit/stream", filters, options);
    }
    /** Yields the operators, page by page. */
    operators(filters = {}) {
        return pages(this.transport, "/v1/operators", filters);
    }
    /** Creates an operator. The answer has the token, which is shown only once. */
    createOperator(json) {
        return this.transport.json("POST", "/v1/operators", { json, repeatable: false });
    }
    /** Gives an operator another token, which is shown only once. The present one stays valid for `overlapSeconds`. */
    rotateOperatorToken(name, json = {}) {
        const headers = { "Idempotency-Key": `rotate-${crypto.randomUUID()}` };
        return this.transport.json("POST", `/v1/operators/${encodeURIComponent(name)}/tokens`, { json, headers });
    }
    /** Revokes an operator's token. */
    async revokeOperator(name) {
        await this.transport.send("DELETE", `/v1/operators/${encodeURIComponent(name)}`);
    }
    /** Yields the webhooks of the service's configuration. */
    webhooks() {
        return pages(this.transport, "/v1/webhooks", {});
    }
    /** Yields the messages to a webhook, page by page; the newest first with `{ order: "desc" }`. */
    deliveries(webhook, filters = {}) {
        return pages(this.transport, `/v1/webhooks/${encodeURIComponent(webhook)}/deliveries`, filters);
    }
    /** Sends a message again, with the same ID. Returns the delivery, which is pending. */
    redeliver(webhook, message) {
        const path = `/v1/webhooks/${encodeURIComponent(webhook)}/deliveries/${encodeURIComponent(message)}/redeliver`;
        return this.transport.json("POST", path);
    }
    /** Returns the limits of the service. */
    limits() {
        return this.transport.json("GET", "/v1/limits");
    }
}
