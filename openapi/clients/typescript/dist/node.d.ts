export interface ByteStream extends AsyncIterable<Uint8Array> {
    on(event: "error", listener: (error: Error) => void): unknown;
    destroy(): void;
}
export interface ByteSink {
    write(bytes: Uint8Array, done: (error?: Error | null) => void): boolean;
    on(event: "error", listener: (error: Error) => void): unknown;
    end(): void;
}
export interface Child {
    readonly pid?: number | undefined;
    readonly stdin: ByteSink;
    readonly stdout: ByteStream;
    readonly stderr: ByteStream;
    on(event: "error", listener: (error: Error) => void): unknown;
    on(event: "close", listener: (code: number | null) => void): unknown;
}
type Environment = {
    [name: string]: string | undefined;
};
export interface Node {
    spawn(program: string, args: string[], options: {
        env: Environment;
        detached: boolean;
        stdio: "pipe";
    }): Child;
    readFile(path: string): Promise<Uint8Array>;
    isFile(path: string): Promise<boolean>;
    tmpdir(): string;
    /** The file `name` beside this package. */
    beside(name: string): string;
    env: Environment;
    kill(pid: number, signal: string): void;
}
export declare function node(): Promise<Node>;
export {};
