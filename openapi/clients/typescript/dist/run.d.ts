import { Checkout, type ExecOptions, type Executed, type Pulled, type Pushed, type PushOptions } from "./checkout.js";
import { ApprovalRequired } from "./errors.js";
import { type FolderPlace } from "./shim.js";
import { type FollowOptions, type StreamEvent } from "./streams.js";
import { type Body, type Query, type Transport } from "./transport.js";
import type * as types from "./types.js";
/** What a model reads. `ok` is false for a refusal, whose text says what to do next. */
export interface TextAnswer {
    text: string;
    ok: boolean;
    status: number;
    callId: string | null;
    seq: number | null;
    sha256: string | null;
}
/** How a merge is judged: as what a command has changed. */
export type MergeOptions = Pick<PushOptions, "merge" | "leaveDenied" | "dryRun">;
export type EventRecord = Omit<types.AppendEventRequest, "kind" | "summary">;
export type CommandRecord = Omit<EventRecord, "data"> & {
    output?: Uint8Array;
    kind?: "command" | "test";
};
/** A method for each tool. */
export type ToolMethods = {
    readonly [Tool in keyof types.Tools]: (input: types.Tools[Tool]["input"]) => Promise<types.Tools[Tool]["output"]>;
};
/** The requests of one run, made with the token of an operator or of an agent. */
export declare class Run {
    private readonly transport;
    readonly id: string;
    private readonly path;
    constructor(transport: Transport, id: string);
    /** Returns the run; with a token of the run, what its agent may know. */
    info(): Promise<types.RunView>;
    /** Ends the changes. Reads go on. */
    close(): Promise<types.Run>;
    /** Deletes the run's files. Its records stay. */
    delete(): Promise<types.Run>;
    /** Sends the tar or tar.gz that the run is made from, if its source is `archive`. */
    uploadArchive(content: Body): Promise<types.Run>;
    /** Issues a further token, for example with `event:append` for a runner. */
    issueToken(json?: types.IssueTokenRequest): Promise<types.IssuedToken>;
    /** Revokes a token of the run. */
    revokeToken(tokenId: string): Promise<void>;
    /** Applies what a fork of the run has changed since it was made or merged last, as one set. */
    merge(fork: Run | string, reason: string, options?: MergeOptions): Promise<types.ChangesetAnswer>;
    /** Compares the newest files, the counts and the tests of two runs. `nextAfter` of a part is `after` of the next one. */
    compare(other: Run | string, part?: {
        after?: string;
        limit?: number;
    }): Promise<types.RunComparison>;
    /** Calls a tool: `(await run.call("read_file", { path: "a.ts" })).content`. Throws refusals. */
    call<Tool extends keyof types.Tools>(tool: Tool, input: types.Tools[Tool]["input"]): Promise<types.Tools[Tool]["output"]>;
    /** Calls a tool by its method: `(await run.tool.read_file({ path: "a.ts" })).content`. Throws refusals. */
    get tool(): ToolMethods;
    /**
     * Calls a tool and returns the text for a model, also of a refusal.
     *
     * Throws only refusals that a model can do nothing about: an invalid token, overload, an error of the service.
     */
    text(tool: string, input?: object): Promise<TextAnswer>;
    /**
     * Calls a tool in a form that models were trained on, such as `anthropic-editor`, and returns what goes back to the model.
     *
     * `input` is what the provider's API gives. Throws what `text` throws.
     */
    textInFormat(format: string, tool: string, input: unknown, options?: {
        reason?: string;
    }): Promise<TextAnswer>;
    private textOf;
    private toolPath;
    /** Calls several tools in order; with `atomic`, all take effect or none. */
    batch(request: types.BatchRequest): Promise<types.BatchResponse>;
    /** Returns the tools that the token may call, as function-calling interfaces take them. */
    tools(format?: "workspaced" | "openai" | "anthropic" | "mcp", audience?: "program" | "model"): Promise<Array<{
        [member: string]: unknown;
    }>>;
    /** Returns the record of a call. Waits up to `waitSeconds` for the decision of its approval. */
    toolCall(callId: string, waitSeconds?: number): Promise<types.ToolCall>;
    /**
     * Waits until the call of this ID or error is decided, and returns its record: with `ok`, it was approved and executed.
     *
     * Throws `ApprovalRequired` again if it still waits after `timeoutSeconds`.
     */
    waitForApproval(waiting: ApprovalRequired | string, timeoutSeconds?: number): Promise<types.ToolCall>;
    /** Returns what policy would decide about a path or a patch. */
    explainPolicy(json: types.PolicyQuery): Promise<types.PolicyExplanation>;
    /** Returns a whole file. */
    readBytes(path: string): Promise<Uint8Array>;
    /** Returns a file as a stream, from the byte `start`. */
    download(path: string, start?: number): Promise<ReadableStream<Uint8Array>>;
    /** Stores a new file. A stream is sent once; bytes and blobs can be sent again. */
    createFile(path: string, content: Body, reason: string): Promise<types.StoredFile>;
    /** Replaces the version of a file that has this hash. */
    replaceFile(path: string, content: Body, reason: string, expectedSha256: string): Promise<types.StoredFile>;
    /** Deletes the version of a file that has this hash. */
    deleteFile(path: string, reason: string, expectedSha256: string): Promise<void>;
    private put;
    private file;
    private stream;
    /** Returns the changes since the base commit as a diff. */
    patch(): Promise<string>;
    /** Returns the tree as a tar.gz, as a stream. */
    archive(): Promise<ReadableStream<Uint8Array>>;
    /** Returns the changes as a git bundle, as a stream; the options are the parameters of the route. */
    bundle(options?: Query): Promise<ReadableStream<Uint8Array>>;
    /** Returns the account of the run. */
    report(): Promise<types.RunReport>;
    /** Returns the account of the run as Markdown, for the body of a pull request. */
    reportMarkdown(): Promise<string>;
    /**
     * Opens the run's files in a folder, of this machine or of a sandbox such as `docker:web`, until `close`.
     *
     * Needs the program `workspaced-shim`: `shim`, WORKSPACED_SHIM, or the one on the PATH.
     */
    checkout(place: FolderPlace): Promise<Checkout>;
    /** Brings a folder to the newest state of the run. Overwrites nothing that was changed there. */
    pull(dir: string, place?: Omit<FolderPlace, "dir" | "fresh"> & {
        theirs?: string[];
    }): Promise<Pulled>;
    /** Sends what changed in a folder as one set, as `Checkout.push`. Null if there is nothing to send. */
    push(dir: string, options: PushOptions & Omit<FolderPlace, "dir" | "fresh">): Promise<Pushed | null>;
    /** Runs a command in the run's files and records it, as `Checkout.exec`. */
    exec(command: string[] | string, options: ExecOptions & FolderPlace): Promise<Executed>;
    private within;
    /** Records what happened outside of the tools. Needs the permission `event:append`. */
    recordEvent(kind: types.EventKind, summary: string, more?: EventRecord): Promise<types.AppendedEvent>;
    /**
     * Records a command and its outcome. The end of the output is uploaded and named by its digest.
     *
     * An output with a credential is refused by the service. Then only its digest and length are recorded.
     */
    recordCommand(command: string[], exitCode: number, more?: CommandRecord): Promise<types.AppendedEvent>;
    /** Stores what is too large for an event, such as a log, under its digest: at most 16 MiB. */
    uploadArtifact(content: Uint8Array): Promise<types.UploadedArtifact>;
    /** Returns the diff of a mutation (`art_...`), or an uploaded artifact by its digest. */
    artifact(artifactId: string): Promise<Uint8Array>;
    /** Yields the records of the run in order, page by page. */
    audit(filters?: Query): AsyncGenerator<types.AuditRecord>;
    /** Checks the chain of the run's records. */
    verify(): Promise<types.AuditVerification>;
    /** Yields the changes of the run's files as they are made, without a gap, from those after the record `since`. */
    follow(since?: number, options?: FollowOptions): AsyncGenerator<StreamEvent<types.RunChange>>;
}
/** The ID of a run. */
export declare function idOf(run: Run | string): string;
