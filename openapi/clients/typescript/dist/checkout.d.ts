import { WorkspacedError } from "./errors.js";
import type { Run } from "./run.js";
import { type FolderChanges, type FolderPlace, type LeftEntry, type PathChange } from "./shim.js";
import type { Transport } from "./transport.js";
import type * as types from "./types.js";
/**
 * What a pull has done. `fromSeq` is null for a first checkout. `conflicts` were changed both here and in the run and are as they were:
 * `seq` is that of the folder before then.
 */
export interface Pulled {
    fromSeq: number | null;
    seq: number;
    headHash: string;
    written: number;
    deleted: number;
    leftOut: number;
    conflicts: LeftEntry[];
}
/** A set of changes that was applied. `stale` says why the folder does not have the state of the run that the set made. */
export interface Pushed {
    answer: types.ChangesetAnswer;
    left: LeftEntry[];
    stale: WorkspacedError | null;
}
/** How a set of changes is judged. */
interface SetOptions {
    /** If others have changed the same files, merge what is apart. Otherwise nothing is applied. */
    merge?: boolean;
    /** Leave out what policy denies. Otherwise nothing is applied then. */
    leaveDenied?: boolean;
    /** Also look into folders such as `target` and `node_modules` of which the run has nothing. */
    all?: boolean;
}
export interface PushOptions extends SetOptions {
    /** The reason for the audit. */
    reason: string;
    /** Only ask what would happen. */
    dryRun?: boolean;
    /** The ID of the set; a repetition under the same one is the same set. */
    changesetId?: string;
}
/** Takes the output of a command as it comes. If it throws, the command is killed and the checkout closed. */
export type OutputSink = (stream: "stdout" | "stderr", chunk: Uint8Array) => void;
export interface ExecOptions extends SetOptions {
    /** Apply what the command changed as one set, if it ended by itself. */
    push?: boolean;
    /** Record it as a test: what it changed is named in the record and not applied. */
    test?: boolean;
    /** The reason for the audit. Default: the command. */
    reason?: string;
    /** The folder in the checkout in which it runs. */
    cwd?: string;
    /** Variables that are added to its environment. */
    env?: {
        [name: string]: string;
    };
    /** Milliseconds after which it is ended. */
    timeoutMillis?: number;
    onOutput?: OutputSink;
    /** Kills the command, closes the checkout, and rejects with its reason. */
    signal?: AbortSignal;
}
/** What came of a command. */
export interface Executed {
    /** Null if a signal ended it. */
    exitCode: number | null;
    signal: number | null;
    timedOut: boolean;
    durationMicros: number;
    /** Both streams as they came, up to 16 MiB: the beginning and the end. */
    output: Uint8Array;
    outputSha256: string | null;
    pulled: Pulled;
    /** What the command changed. */
    changed: FolderChanges;
    /** What differed from the run before it and does so still: `push` sends it. */
    earlier: PathChange[];
    eventSeq: number | null;
    pushed: Pushed | null;
    /** Why the command was not recorded or its changes not applied; the run has none of them then. */
    refusal: WorkspacedError | null;
}
type Members = {
    [name: string]: unknown;
};
/**
 * A run's files in a folder, which stays open: several commands run in it, one after the other. `Run.checkout` opens it.
 *
 * The run is that of the caller, and from the first pull on the record is the one that was pulled: a command that changes the folder's
 * index leads nothing to another run.
 */
export declare class Checkout {
    readonly run: Run;
    private readonly transport;
    private readonly open;
    /** Whether it was made anew and no command has run in it, so that it has nothing but what was pulled. */
    private isUntouched;
    /** The states that the folder can have: one, or two if an operation did not tell how it ended. Empty before its own word was taken. */
    private known;
    /** What the last pull has left, because it was changed here too. */
    private left;
    private readonly path;
    private constructor();
    /** Opens the folder. In a sandbox, the shim is started, and copied before if it is not there. */
    static open(run: Run, transport: Transport, place: FolderPlace): Promise<Checkout>;
    /** Closes the folder. What runs there is ended, and a fresh folder is removed. */
    close(): Promise<void>;
    /** The path of the folder, here or in the sandbox. */
    get folder(): string;
    /** Sends a signal, such as 2 for an interrupt, to the command that runs, with all processes of its group. */
    signal(number: number): void;
    /**
     * Brings the folder to the newest state of the run. Overwrites nothing that was changed there: it throws `CONFLICT` then, and the rest
     * is pulled. At the paths `theirs`, which were changed there too, the version of the run is taken.
     */
    pull(theirs?: string[]): Promise<Pulled>;
    private pullRest;
    /** Returns the hash of what the folder has of the run: of the lines `KIND SHA256 PATH`, each ended by a NUL byte, in order of paths. */
    treeSha256(): Promise<string>;
    /** Finds what differs from the run. With `all`, also in folders of builds of which the run has nothing. */
    scan(all?: boolean): Promise<FolderChanges>;
    /** Sends what changed in the folder as one set: all of it is applied, or the refusal is thrown. Null if there is nothing to send. */
    push(options: PushOptions): Promise<Pushed | null>;
    /**
     * Pulls, runs a command, finds what it changed, and records it. A text is for the shell.
     *
     * What differed from the run before is no part of what the command changed, unless it has changed it again: `push` sends that.
     * A refusal of what comes after the command is in the result.
     */
    exec(command: string[] | string, options?: ExecOptions): Promise<Executed>;
    /** Finds what differs from the run before a command. A folder that cannot be looked at may be one that it is to put in order. */
    private scanBefore;
    private execute;
    private record;
    /** Records a command alone. Without `done`, it is not known how it ended. */
    private recordEvent;
    /** Uploads the output, and returns what an event says of it. */
    private keep;
    /** Returns what the record of the next command says of where it runs: of a tree as it was pulled, also its hash. */
    private environment;
    private send;
    private checkedOut;
    /** Returns what the folder has of the run. */
    private base;
    private apply;
}
export declare function judged(options: SetOptions): Members;
export {};
