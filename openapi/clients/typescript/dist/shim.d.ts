import { FolderError } from "./errors.js";
import { type Node } from "./node.js";
/** Folders that builds and installations fill: they are not looked into where the run has nothing in them. */
export declare const BUILD_OUTPUT: string[];
export declare const START = "for f in \"$0/.workspaced/$1\" \"/tmp/$1\" \"/dev/shm/$1\"; do\nif [ -f \"$f\" ] && [ ! -L \"$f\" ] && [ -O \"$f\" ] && [ -x \"$f\" ]; then exec \"$f\" \"$2\" \"$0\"; fi\ndone\nexit 77";
export declare const INSTALL = "t=\"$1.$$\"; from=\nfor d in \"$0/.workspaced\" /tmp /dev/shm; do\nmkdir -p \"$d\" 2>/dev/null; (: > \"$d/$t\") 2>/dev/null || continue\ncat ${from:+\"$from\"} > \"$d/$t\" && chmod 700 \"$d/$t\" || exit 1\nif [ -x \"$d/$t\" ]; then mv -f \"$d/$t\" \"$d/$1\" && rm -f ${from:+\"$from\"}; exit; fi\nfrom=\"$d/$t\"\ndone\necho \"no folder here can be written and has programs: tried $0, /tmp and /dev/shm\" >&2\nexit 1";
/** A file of a folder that differs from the run. */
export interface PathChange {
    path: string;
    change: "added" | "modified" | "deleted";
    size: number;
    /** When it was changed last, in nanoseconds since 1970 as far as a number has them; 0 if it is gone. */
    changedNs: number;
}
/** Something in a folder that is not sent, and why. */
export interface LeftEntry {
    path: string;
    why: string;
}
/**
 * What differs from the run. `left` are the first of the entries that no set takes, such as FIFOs and files that are too large, and
 * `notWalked` folders of builds and installations of which the run has nothing.
 */
export interface FolderChanges {
    changes: PathChange[];
    left: LeftEntry[];
    leftCount: number;
    notWalked: string[];
}
export interface CheckedOut {
    run: string;
    seq: number;
    headHash: string;
}
/** Where the folder of a checkout is. */
export interface FolderPlace {
    /** The folder, here or in the sandbox; there `/workspace` by default. It is created if it is missing. */
    dir?: string;
    /** `docker:NAME`, `podman:NAME`, `kubectl:NAMESPACE/POD[/CONTAINER]`, `ssh:HOST:FOLDER` or `pipe:PROGRAM ARGUMENTS`. */
    sandbox?: string;
    /** Make a new folder in it, and remove it afterwards. */
    fresh?: boolean;
    /** The program `workspaced-shim`. Default: that of WORKSPACED_SHIM, or the one on the PATH. */
    shim?: string;
    /** Milliseconds that a sandbox may take until it answers. Default: a minute. */
    startLimitMillis?: number;
}
type Members = {
    [name: string]: unknown;
};
/** The address of a sandbox: the program that runs a command there. */
export declare class SandboxAddress {
    readonly kind: string;
    readonly name: string;
    readonly program: string[];
    readonly folder: string | undefined;
    constructor(raw: string);
    private parse;
    /** Returns the program that runs a script of the shell in the sandbox. */
    shell(script: string, ...args: string[]): string[];
    /** Returns what the record of a command says of where it ran. */
    environment(system: Node): Promise<Members>;
}
/** A folder that is open. Only one program at a time works with a checkout; others wait for it. */
export declare class ShimFolder {
    private readonly system;
    private readonly child;
    private readonly where;
    environment: Members;
    path: string;
    private readonly chunks;
    private readonly closed;
    private rest;
    private isClosed;
    private errors;
    private constructor();
    /** Starts the shim, in a sandbox after it was copied there if it is missing. */
    static open(place: FolderPlace): Promise<ShimFolder>;
    /** Starts the shim. Null if the sandbox does not have it. */
    private static start;
    /** Ends the shim, and a command that runs. Returns the exit code of the program that held the pipe. */
    close(): Promise<number | null>;
    /** Ends the shim, and a command that runs, without waiting for it. */
    abandon(): void;
    /** Ends the program that holds the pipe, although the shim may not have ended its command. */
    cut(): void;
    /** Returns what the folder says that it has of a run. */
    have(): Promise<CheckedOut | null>;
    /** Returns the hash of what the folder has of the run. */
    treeSha256(): Promise<string>;
    /** Finds what differs from the run. */
    scan(all: boolean): Promise<FolderChanges>;
    /** Returns a layer of these paths (a tar.gz), how many entries it has, and what is not in it. */
    read(paths: string[]): Promise<{
        layer: Uint8Array;
        entries: number;
        left: LeftEntry[];
    }>;
    private readOnce;
    /** Notes that the run has the versions of these paths that were read last. */
    confirm(paths: string[]): Promise<void>;
    /** Returns what a layer has left as it was. */
    conflicts(applied: Members): LeftEntry[];
    /** Writes a layer into the folder, but for what was changed there too and is not in `theirs`. Without such, it is at `after` then. */
    apply(after: CheckedOut, layer: AsyncIterable<Uint8Array>, theirs?: string[]): Promise<Members>;
    /** Runs a command. Returns how it ended. */
    exec(command: {
        argv: string[];
        cwd: string;
        env: Array<[string, string]>;
    }, output: (stream: "stdout" | "stderr", chunk: Uint8Array) => void): Promise<Members>;
    /** Sends a signal to all processes of the command's group. */
    signal(number: number): void;
    private request;
    private sendPaths;
    private send;
    private next;
    private exactly;
    private done;
    private parse;
    private object;
    private members;
    private list;
    private change;
    private left;
    private unexpected;
    private lost;
    private keepErrors;
}
/** Checks a tar as it passes: it has nothing but the paths that were asked for, each as a file, a link or a deletion.
 *
 * It takes what the shim writes and nothing else, so that no reader can take it for something else.
 */
export declare class LayerCheck {
    private readonly asked;
    private rest;
    private skip;
    private kind;
    private text;
    private long;
    private isEnded;
    constructor(paths: string[]);
    /** Returns what is wrong. */
    feed(chunk: Uint8Array): string;
    /** Returns what is wrong at the end. */
    end(): string;
    private header;
}
/** The beginning and the end of a command's output, as much as an artifact may have. */
export declare class KeptOutput {
    private static readonly HALF;
    private readonly head;
    private headSize;
    private tail;
    private tailSize;
    private dropped;
    add(chunk: Uint8Array): void;
    bytes(): Uint8Array;
    private cut;
}
/** Ends a command after a time: asks it to end, kills it 5 seconds later, and then cuts the pipe. */
export declare class TimeLimit {
    isReached: boolean;
    private timer;
    constructor(folder: ShimFolder, millis: number | undefined);
    cancel(): void;
}
/** What was changed both here and in the run. */
export declare function conflict(conflicts: LeftEntry[]): FolderError;
/** Returns a command as it is typed. */
export declare function shownCommand(argv: string[]): string;
export declare function bytes(text: string): Uint8Array;
export declare function joined(parts: Uint8Array[]): Uint8Array<ArrayBuffer>;
export declare function sha256(content: Uint8Array): Promise<string>;
export {};
