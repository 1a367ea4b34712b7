// What a checkout needs of Node.js, loaded when the first one is opened: a browser has none of it.

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

type Environment = { [name: string]: string | undefined };

export interface Node {
  spawn(program: string, args: string[], options: { env: Environment; detached: boolean; stdio: "pipe" }): Child;
  readFile(path: string): Promise<Uint8Array>;
  isFile(path: string): Promise<boolean>;
  tmpdir(): string;
  /** The file `name` beside this package. */
  beside(name: string): string;
  env: Environment;
  kill(pid: number, signal: string): void;
}

let loaded: Promise<Node> | undefined;

export function node(): Promise<Node> {
  return (loaded ??= load());
}

async function load(): Promise<Node> {
  // By a variable, so that a bundler for browsers does not look for them.
  const module = (name: string) => import(`node:${name}`);
  const [processes, files, os, url, process] = await Promise.all(["child_process", "fs/promises", "os", "url", "process"].map(module));
  return {
    spawn: processes.spawn,
    readFile: files.readFile,
    isFile: (path) => files.stat(path).then((found: { isFile(): boolean }) => found.isFile(), () => false),
    tmpdir: os.tmpdir,
    beside: (name) => url.fileURLToPath(new URL(name, import.meta.url)),
    env: process.env,
    kill: process.kill,
  };
}
