// One run: its tools, its files, its events and its records.
import { Checkout, judged } from "./checkout.js";
import { crypto } from "./crypto.js";
import { ApprovalRequired, WorkspacedError } from "./errors.js";
import { sha256 } from "./shim.js";
import { follow } from "./streams.js";
import { pages } from "./transport.js";
const MAX_WAIT_SECONDS = 60;
const MAX_ARTIFACT_BYTES = 16 * 1024 * 1024;
/** The tools that have a runner run a command, by our name and by those in the forms that models know. */
const COMMANDS = new Set(["run_command", "bash", "exec_command", "run_shell_command", "write_stdin"]);
const BYTES = { "Content-Type": "application/octet-stream" };
/** The requests of one run, made with the token of an operator or of an agent. */
export class Run {
    transport;
    id;
    path;
    constructor(transport, id) {
        this.transport = transport;
        this.id = id;
        this.path = `/v1/runs/${encodeURIComponent(id)}`;
    }
    // The run
    /** Returns the run; with a token of the run, what its agent may know. */
    info() {
        return this.transport.json("GET", this.path);
    }
    /** Ends the changes. Reads go on. */
    close() {
        return this.transport.json("POST", `${this.path}/close`);
    }
    /** Deletes the run's files. Its records stay. */
    delete() {
        return this.transport.json("DELETE", this.path);
    }
    /** Sends the tar or tar.gz that the run is made from, if its source is `archive`. */
    uploadArchive(content) {
        const headers = { "Content-Type": "application/x-tar" };
        return this.transport.json("PUT", `${this.path}/archive`, { content, headers, repeatable: false });
    }
    /** Issues a further token, for example with `event:append` for a runner. */
    issueToken(json = {}) {
        const headers = { "Idempotency-Key": `token-${crypto.randomUUID()}` };
        return this.transport.json("POST", `${this.path}/tokens`, { json, headers });
    }
    /** Revokes a token of the run. */
    async revokeToken(tokenId) {
        await this.transport.send("DELETE", `${this.path}/tokens/${encodeURIComponent(tokenId)}`);
    }
    // Forks
    /** Applies what a fork of the run has changed since it was made or merged last, as one set. */
    merge(fork, reason, options = {}) {
        const json = { ...judged(options), from: idOf(fork), reason, dryRun: options.dryRun ?? false };
        // A repetition would also bring what the fork has changed in between.
        return this.transport.json("POST", `${this.path}/merge`, { json, repeatable: false });
    }
    /** Compares the newest files, the counts and the tests of two runs. `nextAfter` of a part is `after` of the next one. */
    compare(other, part = {}) {
        return this.transport.json("GET", `${this.path}/compare/${encodeURIComponent(idOf(other))}`, { query: part });
    }
    // Tools
    /** Calls a tool: `(await run.call("read_file", { path: "a.ts" })).content`. Throws refusals. */
    call(tool, input) {
        return this.transport.json("POST", this.toolPath(tool), { json: withCallId(input), isCommand: COMMANDS.has(tool) });
    }
    /** Calls a tool by its method: `(await run.tool.read_file({ path: "a.ts" })).content`. Throws refusals. */
    get tool() {
        const of = (_, name) => 
        // A promise would be taken for one by `await`.
        typeof name === "symbol" || name === "then" ? undefined : (input) => this.call(name, input);
        return new Proxy({}, { get: of });
    }
    /**
     * Calls a tool and returns the text for a model, also of a refusal.
     *
     * Throws only refusals that a model can do nothing about: an invalid token, overload, an error of the service.
     */
    async text(tool, input = {}) {
        return this.textOf(this.toolPath(tool), withCallId(input), { Accept: "text/plain" }, COMMANDS.has(tool));
    }
    /**
     * Calls a tool in a form that models were trained on, such as `anthropic-editor`, and returns what goes back to the model.
     *
     * `input` is what the provider's API gives. Throws what `text` throws.
     */
    textInFormat(format, tool, input, options = {}) {
        const { reason } = options;
        const headers = reason === undefined ? { "X-Tool-Call-Id": `tc_${crypto.randomUUID()}` } : callHeaders(reason);
        return this.textOf(`${this.path}/formats/${encodeURIComponent(format)}/${encodeURIComponent(tool)}`, input, headers, COMMANDS.has(tool));
    }
    async textOf(path, json, sent, isCommand) {
        const options = { json, headers: sent, acceptRefusal: true, isCommand, whole: true };
        const response = await this.transport.send("POST", path, options);
        const { headers, status } = response;
        const seq = headers.get("workspaced-seq");
        return {
            text: await response.text(),
            ok: status === 200,
            status,
            callId: headers.get("workspaced-call"),
            seq: seq === null ? null : Number(seq),
            sha256: headers.get("workspaced-sha256"),
        };
    }
    toolPath(name) {
        return `${this.path}/tools/${encodeURIComponent(name)}`;
    }
    /** Calls several tools in order; with `atomic`, all take effect or none. */
    batch(request) {
        const calls = request.calls.map((call) => ({ ...call, input: withCallId(call.input ?? {}) }));
        return this.transport.json("POST", `${this.path}/batch`, { json: { ...request, calls } });
    }
    /** Returns the tools that the token may call, as function-calling interfaces take them. */
    async tools(format = "workspaced", audience = "program") {
        const query = { format, audience };
        return (await this.transport.json("GET", "/v1/tools", { query })).items;
    }
    /** Returns the record of a call. Waits up to `waitSeconds` for the decision of its approval. */
    toolCall(callId, waitSeconds = 0) {
        const path = `${this.path}/tool-calls/${encodeURIComponent(callId)}`;
        return this.transport.json("GET", path, { query: { waitSeconds }, extraMillis: waitSeconds * 1000 });
    }
    /**
     * Waits until the call of this ID or error is decided, and returns its record: with `ok`, it was approved and executed.
     *
     * Throws `ApprovalRequired` again if it still waits after `timeoutSeconds`.
     */
    async waitForApproval(waiting, timeoutSeconds = Infinity) {
        const callId = typeof waiting === "string" ? waiting : waiting.callId;
        if (callId === undefined)
            throw new TypeError("the call of a dry run does not wait");
        const end = Date.now() + timeoutSeconds * 1000;
        for (;;) {
            const left = Math.max(0, Math.min(MAX_WAIT_SECONDS, Math.round((end - Date.now()) / 1000)));
            const call = await this.toolCall(callId, left);
            if (call.approval?.state !== "pending")
                return call;
            if (Date.now() < end)
                continue;
            const detail = `\`${callId}\` still waits for its approval`;
            const { approvalId } = call.approval;
            throw new ApprovalRequired(202, { code: "APPROVAL_REQUIRED", detail, approvalId, toolCallId: callId }, null);
        }
    }
    /** Returns what policy would decide about a path or a patch. */
    explainPolicy(json) {
        return this.transport.json("POST", `${this.path}/policy/explain`, { json });
    }
    // Whole files, as bytes
    /** Returns a whole file. */
    async readBytes(path) {
        return new Uint8Array(await (await this.transport.send("GET", this.file(path))).arrayBuffer());
    }
    /** Returns a file as a stream, from the byte `start`. */
    async download(path, start = 0) {
        return this.stream(this.file(path), {}, start > 0 ? { Range: `bytes=${start}-` } : {});
    }
    /** Stores a new file. A stream is sent once; bytes and blobs can be sent again. */
    createFile(path, content, reason) {
        return this.put(path, content, reason, { "If-None-Match": "*" });
    }
    /** Replaces the version of a file that has this hash. */
    replaceFile(path, content, reason, expectedSha256) {
        return this.put(path, content, reason, { "If-Match": `"${expectedSha256}"` });
    }
    /** Deletes the version of a file that has this hash. */
    async deleteFile(path, reason, expectedSha256) {
        const headers = { ...callHeaders(reason), "If-Match": `"${expectedSha256}"` };
        await this.transport.send("DELETE", this.file(path), { headers });
    }
    put(path, content, reason, condition) {
        const headers = { ...callHeaders(reason), ...condition, ...BYTES };
        return this.transport.json("PUT", this.file(path), { content, headers });
    }
    file(path) {
        return `${this.path}/files/${inUrl(path)}`;
    }
    async stream(path, query = {}, headers = {}) {
        return (await this.transport.send("GET", path, { query, headers })).body;
    }
    // The result
    /** Returns the changes since the base commit as a diff. */
    async patch() {
        return (await this.transport.send("GET", `${this.path}/patch`)).text();
    }
    /** Returns the tree as a tar.gz, as a stream. */
    archive() {
        return this.stream(`${this.path}/archive`);
    }
    /** Returns the changes as a git bundle, as a stream; the options are the parameters of the route. */
    bundle(options = {}) {
        return this.stream(`${this.path}/bundle`, options);
    }
    /** Returns the account of the run. */
    report() {
        return this.transport.json("GET", `${this.path}/report`, { query: { format: "json" } });
    }
    /** Returns the account of the run as Markdown, for the body of a pull request. */
    async reportMarkdown() {
        return (await this.transport.send("GET", `${this.path}/report`, { query: { format: "markdown" } })).text();
    }
    // Folders and commands, in Node.js
    /**
     * Opens the run's files in a folder, of this machine or of a sandbox such as `docker:web`, until `close`.
     *
     * Needs the program `workspaced-shim`: `shim`, WORKSPACED_SHIM, or the one on the PATH.
     */
    async checkout(place) {
        return Checkout.open(this, this.transport, place);
    }
    /** Brings a folder to the newest state of the run. Overwrites nothing that was changed there. */
    async pull(dir, place = {}) {
        const { theirs, ...other } = place;
        return this.within({ ...other, dir }, (checkout) => checkout.pull(theirs));
    }
    /** Sends what changed in a folder as one set, as `Checkout.push`. Null if there is nothing to send. */
    async push(dir, options) {
        return this.within({ ...options, dir }, (checkout) => checkout.push(options));
    }
    /** Runs a command in the run's files and records it, as `Checkout.exec`. */
    async exec(command, options) {
        return this.within(options, (checkout) => checkout.exec(command, options));
    }
    async within(place, work) {
        const checkout = await this.checkout(place);
        try {
            return await work(checkout);
        }
        finally {
            await checkout.close();
        }
    }
    // Events
    /** Records what happened outside of the tools. Needs the permission `event:append`. */
    recordEvent(kind, summary, more = {}) {
        const json = { eventId: `ev_${crypto.randomUUID()}`, ...more, kind, summary: [...summary].slice(0, 500).join("") };
        return this.transport.json("POST", `${this.path}/events`, { json });
    }
    /**
     * Records a command and its outcome. The end of the output is uploaded and named by its digest.
     *
     * An output with a credential is refused by the service. Then only its digest and length are recorded.
     */
    async recordCommand(command, exitCode, more = {}) {
        const { output = new Uint8Array(), kind = "command", ...rest } = more;
        const data = { command, exitCode };
        if (output.length > 0) {
            const kept = output.slice(-MAX_ARTIFACT_BYTES);
            Object.assign(data, { outputSha256: await sha256(kept), outputBytes: output.length });
            try {
                data["output"] = (await this.uploadArtifact(kept)).uri;
            }
            catch (refusal) {
                if (!(refusal instanceof WorkspacedError) || refusal.code !== "POLICY_DENIED_SECRET")
                    throw refusal;
                data["outputRefused"] = refusal.code;
            }
        }
        return this.recordEvent(kind, `\`${command.join(" ")}\` ended with ${exitCode}`, { ...rest, data });
    }
    /** Stores what is too large for an event, such as a log, under its digest: at most 16 MiB. */
    async uploadArtifact(content) {
        const path = `${this.path}/artifacts/sha256/${await sha256(content)}`;
        return this.transport.json("PUT", path, { content, headers: BYTES });
    }
    /** Returns the diff of a mutation (`art_...`), or an uploaded artifact by its digest. */
    async artifact(artifactId) {
        const middle = artifactId.startsWith("art_") ? "" : "sha256/";
        const path = `${this.path}/artifacts/${middle}${encodeURIComponent(artifactId)}`;
        return new Uint8Array(await (await this.transport.send("GET", path)).arrayBuffer());
    }
    // Records
    /** Yields the records of the run in order, page by page. */
    audit(filters = {}) {
        return pages(this.transport, `${this.path}/audit`, filters);
    }
    /** Checks the chain of the run's records. */
    verify() {
        return this.transport.json("GET", `${this.path}/audit/verify`);
    }
    /** Yields the changes of the run's files as they are made, without a gap, from those after the record `since`. */
    follow(since = 0, options = {}) {
        return follow(this.transport, `${this.path}/changes`, { since }, options);
    }
}
/** The ID of a run. */
export function idOf(run) {
    return typeof run === "string" ? run : run.id;
}
/** An input with the ID that makes each repetition of the request the same call. */
function withCallId(input) {
    return { toolCallId: `tc_${crypto.randomUUID()}`, ...input };
}
function callHeaders(reason) {
    return { "X-Reason": `utf-8''${encodeURIComponent(reason)}`, "X-Tool-Call-Id": `tc_${crypto.randomUUID()}` };
}
/** The path as a part of a URL. One with `..` is one segment of it: the service resolves it or refuses it, and no library does. */
function inUrl(path) {
    const names = path.split("/");
    if (names.includes("..") || names.includes("."))
        return encodeURIComponent(`./${path}`);
    return names.map(encodeURIComponent).join("/");
}
