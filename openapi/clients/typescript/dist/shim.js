// The folder of a checkout, by the frames of `workspaced-shim`: here, or in a sandbox behind a pipe.
//
// The sandbox is hostile: what it sends is bounded and checked, and is no more than a proposal, which the service judges.
import { crypto } from "./crypto.js";
import { FolderError } from "./errors.js";
import { node } from "./node.js";
const PROTOCOL = 5;
const SHIM_NAME = "workspaced-shim";
const [HELLO, REQUEST, DATA, END, ITEM, DONE, FAULT, STDOUT, STDERR, SIGNAL] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
const MAX_FRAME_BYTES = 1 << 20;
const DATA_BYTES = 128 << 10;
const MAX_LIST_BYTES = 64 << 20;
const MAX_CHANGES = 1_000_000;
const MAX_PATH_BYTES = 4096;
// What is in memory until it is sent; a service takes more in one set.
const MAX_FILE_BYTES = 256 << 20;
const MAX_TOTAL_BYTES = 256 << 20;
// How often files that change while they are read are read again.
const MAX_READS = 3;
// How many of the entries that no set takes a scan names, and the most characters of their paths.
const MAX_LEFT = 100;
const MAX_SHOWN_CHARS = 300;
const MAX_SHIM_BYTES = 64 << 20;
const MAX_ERROR_BYTES = 4096;
// How a sandbox says that it does not have the shim yet.
const MISSING = 77;
// Milliseconds that a program has to end.
const GRACE = 5000;
// Milliseconds that a sandbox has until the shim answers, or is copied.
const START_LIMIT = 60_000;
const [SIGTERM, SIGKILL] = [15, 9];
/** Folders that builds and installations fill: they are not looked into where the run has nothing in them. */
export const BUILD_OUTPUT = (".angular .build .cache .dart_tool .docusaurus .eggs .gradle .mypy_cache .next .nox .nuxt .nyc_output .output " +
    ".parcel-cache .pytest_cache .ruff_cache .svelte-kit .tox .turbo __pycache__ _build bazel-bin bazel-out " +
    "bazel-testlogs build deriveddata dist target .bundle .pnpm-store .terraform .venv .yarn 3rdparty bower_components " +
    "carthage jspm_packages node_modules site-packages third-party third_party thirdparty vendor vendored venv").split(" ");
export const START = `for f in "$0/.workspaced/$1" "/tmp/$1" "/dev/shm/$1"; do
if [ -f "$f" ] && [ ! -L "$f" ] && [ -O "$f" ] && [ -x "$f" ]; then exec "$f" "$2" "$0"; fi
done
exit 77`;
export const INSTALL = `t="$1.$$"; from=
for d in "$0/.workspaced" /tmp /dev/shm; do
mkdir -p "$d" 2>/dev/null; (: > "$d/$t") 2>/dev/null || continue
cat \${from:+"$from"} > "$d/$t" && chmod 700 "$d/$t" || exit 1
if [ -x "$d/$t" ]; then mv -f "$d/$t" "$d/$1" && rm -f \${from:+"$from"}; exit; fi
from="$d/$t"
done
echo "no folder here can be written and has programs: tried $0, /tmp and /dev/shm" >&2
exit 1`;
/** The address of a sandbox: the program that runs a command there. */
export class SandboxAddress {
    kind;
    name;
    program;
    folder;
    constructor(raw) {
        const colon = raw.indexOf(":");
        [this.kind, this.name] = [raw.slice(0, Math.max(colon, 0)), raw.slice(colon + 1)];
        if (colon < 0 || this.name === "" || this.name.startsWith("-")) {
            throw new FolderError("ADDRESS", `"${raw}" is no address of a sandbox: expected docker:, podman:, kubectl:, ssh: or pipe:`);
        }
        [this.program, this.folder] = this.parse();
    }
    parse() {
        const { kind, name } = this;
        if (kind === "docker" || kind === "podman")
            return [[kind, "exec", "-i", name], undefined];
        if (kind === "kubectl") {
            const [space = "", pod = "", container, more] = name.split("/");
            if (pod === "" || pod.startsWith("-") || more !== undefined) {
                throw new FolderError("ADDRESS", "expected kubectl:NAMESPACE/POD or kubectl:NAMESPACE/POD/CONTAINER");
            }
            return [[kind, "exec", "-i", "-n", space, pod, ...(container === undefined ? [] : ["-c", container]), "--"], undefined];
        }
        if (kind === "ssh") {
            const colon = name.lastIndexOf(":");
            if (colon < 0)
                throw new FolderError("ADDRESS", "expected ssh:HOST:FOLDER");
            // A command begins in the user's folder, whose short name no shell replaces in quotes.
            const folder = name.slice(colon + 1).replace(/^~\//, "").replace(/^~$/, ".");
            // A password cannot be asked for: the program has no terminal. What the user's configuration forwards, such as keys, is not for the
            // commands of a sandbox.
            const alone = ["-a", "-x", "-o", "ClearAllForwardings=yes"];
            return [[kind, "-T", "-o", "BatchMode=yes", ...alone, name.slice(0, colon), "--"], folder || undefined];
        }
        const words = name.split(/\s+/).filter((word) => word !== "");
        if (kind === "pipe" && words.length > 0)
            return [words, undefined];
        throw new FolderError("ADDRESS", `\`${kind}\` is none of docker, podman, kubectl, ssh and pipe`);
    }
    /** Returns the program that runs a script of the shell in the sandbox. */
    shell(script, ...args) {
        const words = ["sh", "-c", script, ...args];
        // A shell on the other side reads what ssh sends; the others pass arguments as they are.
        return [...this.program, ...(this.kind === "ssh" ? words.map(quoted) : words)];
    }
    /** Returns what the record of a command says of where it ran. */
    async environment(system) {
        const environment = { kind: this.kind, name: this.name };
        if (this.kind === "docker" || this.kind === "podman") {
            const inspect = [this.kind, "inspect", "--type", "container", "--format", "{{.Image}}", this.name];
            // Without an answer, the record does not say which image it was.
            const done = await run(system, inspect, new Uint8Array(), GRACE).catch(() => null);
            if (done?.code === 0)
                environment["image"] = done.stdout.trim();
        }
        return environment;
    }
}
/** A folder that is open. Only one program at a time works with a checkout; others wait for it. */
export class ShimFolder {
    system;
    child;
    where;
    environment = { kind: "local" };
    path = "";
    chunks;
    closed;
    rest = new Uint8Array();
    isClosed = false;
    errors = "";
    constructor(system, child, where) {
        this.system = system;
        this.child = child;
        this.where = where;
        this.chunks = child.stdout[Symbol.asyncIterator]();
        this.closed = new Promise((resolve) => {
            child.on("close", (code) => {
                this.isClosed = true;
                resolve(code);
            });
            child.on("error", (error) => {
                this.errors += error.message;
                this.isClosed = true;
                resolve(null);
            });
        });
        // A failed write says so to its caller.
        child.stdin.on("error", () => undefined);
        void this.keepErrors();
    }
    /** Starts the shim, in a sandbox after it was copied there if it is missing. */
    static async open(place) {
        const system = await node();
        const { dir, sandbox, fresh = false, startLimitMillis: limit = START_LIMIT } = place;
        const mode = fresh ? "fresh" : "folder";
        const program = await findShim(system, place.shim);
        if (sandbox === undefined) {
            if (dir === undefined && !fresh)
                throw new FolderError("ADDRESS", "no folder is given", "Give `dir`, `sandbox` or `fresh`.");
            const where = dir ?? system.tmpdir();
            return (await ShimFolder.start(system, [program, mode, where], where, limit)) ?? notStarted(where, "it is missing");
        }
        const address = new SandboxAddress(sandbox);
        const where = dir ?? address.folder ?? (fresh ? "/tmp" : "/workspace");
        const content = (await system.readFile(program)).subarray(0, MAX_SHIM_BYTES);
        const name = `${SHIM_NAME}-${(await sha256(content)).slice(0, 16)}`;
        const start = address.shell(START, where, name, mode);
        let opened = await ShimFolder.start(system, start, sandbox, limit);
        if (opened === null) {
            const done = await run(system, address.shell(INSTALL, where, name), content, limit);
            const why = done.isLate ? noAnswer(limit) : done.stderr.trim();
            if (done.code !== 0)
                notStarted(sandbox, `the shim could not be copied: ${why}`);
            opened = (await ShimFolder.start(system, start, sandbox, limit)) ?? notStarted(sandbox, "the shim was copied and is not there");
        }
        opened.environment = await address.environment(system);
        return opened;
    }
    /** Starts the shim. Null if the sandbox does not have it. */
    static async start(system, command, where, limit) {
        const folder = new ShimFolder(system, spawn(system, command), where);
        let first;
        let isLate = false;
        const timer = setTimeout(() => {
            isLate = true;
            folder.cut();
        }, limit);
        try {
            first = await folder.next();
        }
        catch (failure) {
            const code = await folder.close();
            if (!(failure instanceof FolderError) || failure.code !== "LOST")
                throw failure;
            if (code === MISSING)
                return null;
            return notStarted(where, folder.errors.trim() || (isLate ? noAnswer(limit) : `it ended with ${code}`));
        }
        finally {
            clearTimeout(timer);
        }
        const hello = folder.object(first[1]);
        if (first[0] !== HELLO || hello["protocol"] !== PROTOCOL) {
            folder.abandon();
            notStarted(where, "the shim is of another version: use the one of this release");
        }
        folder.path = String(hello["folder"]);
        return folder;
    }
    /** Ends the shim, and a command that runs. Returns the exit code of the program that held the pipe. */
    async close() {
        this.child.stdin.end();
        const timer = setTimeout(() => this.cut(), GRACE);
        // What nobody reads keeps the pipe open.
        this.child.stdout.destroy();
        const code = await this.closed;
        clearTimeout(timer);
        return code;
    }
    /** Ends the shim, and a command that runs, without waiting for it. */
    abandon() {
        void this.close();
    }
    /** Ends the program that holds the pipe, although the shim may not have ended its command. */
    cut() {
        if (!this.isClosed)
            endGroup(this.system, this.child);
    }
    // Operations
    /** Returns what the folder says that it has of a run. */
    async have() {
        await this.request({ op: "have" });
        const have = this.parse(await this.done());
        if (have === null)
            return null;
        const { run, seq, headHash } = this.members(have);
        if (typeof run !== "string" || typeof seq !== "number" || typeof headHash !== "string")
            throw this.unexpected();
        return { run, seq, headHash };
    }
    /** Returns the hash of what the folder has of the run. */
    async treeSha256() {
        await this.request({ op: "tree" });
        const tree = this.parse(await this.done());
        if (typeof tree !== "string" || !/^[0-9a-f]{64}$/.test(tree))
            throw this.unexpected();
        return tree;
    }
    /** Finds what differs from the run. */
    async scan(all) {
        await this.request({ op: "scan", buildOutput: all ? [] : BUILD_OUTPUT });
        const changes = [];
        for (let size = 0;;) {
            const [kind, payload] = await this.next();
            if (kind === DONE) {
                const report = this.object(payload);
                const { leftCount, notWalked } = report;
                if (typeof leftCount !== "number" || !Array.isArray(notWalked))
                    throw this.unexpected();
                const [left, large] = [this.left(report), changes.filter((change) => change.size > MAX_FILE_BYTES)];
                // No set takes them, however they are read.
                const why = `it has more than ${MAX_FILE_BYTES} bytes`;
                const named = large.slice(0, Math.max(MAX_LEFT - left.length, 0));
                left.push(...named.map((change) => ({ path: change.path.slice(0, MAX_SHOWN_CHARS), why })));
                return {
                    changes: changes.filter((change) => change.size <= MAX_FILE_BYTES),
                    left,
                    leftCount: leftCount + large.length,
                    notWalked: notWalked.map(String),
                };
            }
            size += payload.length;
            if (kind !== ITEM || size > MAX_LIST_BYTES || changes.length > MAX_CHANGES)
                throw this.unexpected();
            for (const change of this.list(this.parse(payload)))
                changes.push(this.change(change));
        }
    }
    /** Returns a layer of these paths (a tar.gz), how many entries it has, and what is not in it. */
    async read(paths) {
        let wanted = paths;
        const changing = [];
        for (let attempt = 1; attempt <= MAX_READS * 10; attempt++) {
            const { layer, report } = await this.readOnce(wanted);
            const { entries } = report;
            const torn = this.list(report["torn"]).map(String);
            if (typeof entries !== "number")
                throw this.unexpected();
            if (torn.length === 0)
                return { layer, entries, left: [...this.left(report), ...changing] };
            if (attempt >= MAX_READS) {
                wanted = wanted.filter((path) => !torn.includes(path));
                changing.push(...torn.map((path) => ({ path, why: "it changes while it is read" })));
            }
        }
        throw new FolderError("UNSTEADY", "too many files change while they are read", "Try again when nothing writes there.");
    }
    async readOnce(paths) {
        await this.request({ op: "read", limits: { maxFileBytes: MAX_FILE_BYTES, maxTotalBytes: MAX_TOTAL_BYTES } });
        await this.sendPaths(paths);
        const check = new LayerCheck(paths);
        const packer = new Packer();
        // Headers and padding are bounded by the number of paths.
        let left = MAX_TOTAL_BYTES + (paths.length + 1) * (16 << 10);
        for (;;) {
            const [kind, payload] = await this.next();
            if (kind === END)
                break;
            left -= payload.length;
            if (kind !== DATA || left < 0 || packer.size > MAX_TOTAL_BYTES)
                throw this.unexpected();
            const why = check.feed(payload);
            if (why !== "")
                throw this.unexpected(why);
            await packer.add(payload);
        }
        const report = this.object(await this.done());
        const why = this.list(report["torn"]).length === 0 ? check.end() : "";
        if (why !== "")
            throw this.unexpected(why);
        return { layer: await packer.end(), report };
    }
    /** Notes that the run has the versions of these paths that were read last. */
    async confirm(paths) {
        await this.request({ op: "confirm" });
        await this.sendPaths(paths);
        await this.done();
    }
    /** Returns what a layer has left as it was. */
    conflicts(applied) {
        return this.left({ left: applied["conflicts"] ?? [] });
    }
    /** Writes a layer into the folder, but for what was changed there too and is not in `theirs`. Without such, it is at `after` then. */
    async apply(after, layer, theirs = []) {
        await this.request({ op: "apply", after, theirs });
        try {
            for await (const chunk of layer) {
                for (let start = 0; start < chunk.length; start += DATA_BYTES)
                    await this.send(DATA, chunk.subarray(start, start + DATA_BYTES));
            }
        }
        catch (failure) {
            if (failure instanceof FolderError && failure.code === "LOST")
                throw failure;
            // The shim answers that it has written nothing.
            await this.send(END, bytes(String(failure)).subarray(0, MAX_ERROR_BYTES));
            await this.done().then(() => this.abandon(), () => undefined);
            throw failure;
        }
        await this.send(END, new Uint8Array());
        return this.object(await this.done());
    }
    /** Runs a command. Returns how it ended. */
    async exec(command, output) {
        await this.request({ op: "exec", command });
        for (;;) {
            const [kind, payload] = await this.next();
            if (kind === STDOUT)
                output("stdout", payload);
            else if (kind === STDERR)
                output("stderr", payload);
            else if (kind === DONE)
                return this.object(payload);
            else
                throw this.unexpected();
        }
    }
    /** Sends a signal to all processes of the command's group. */
    signal(number) {
        // If the pipe is lost, the command ends with it.
        this.send(SIGNAL, Uint8Array.of(number)).catch(() => undefined);
    }
    // Frames
    request(request) {
        return this.send(REQUEST, bytes(JSON.stringify(request)));
    }
    async sendPaths(paths) {
        for (let start = 0; start < paths.length; start += 32)
            await this.send(ITEM, bytes(JSON.stringify(paths.slice(start, start + 32))));
        await this.send(END, new Uint8Array());
    }
    send(kind, payload) {
        if (payload.length > MAX_FRAME_BYTES)
            throw new FolderError("FOLDER", "the command or its environment is too long");
        const frame = new Uint8Array(5 + payload.length);
        frame[0] = kind;
        new DataView(frame.buffer).setUint32(1, payload.length, true);
        frame.set(payload, 5);
        return new Promise((resolve, reject) => {
            this.child.stdin.write(frame, (error) => (error ? reject(this.lost(error.message)) : resolve()));
        });
    }
    async next() {
        const head = await this.exactly(5);
        const [kind, length] = [head[0], new DataView(head.buffer, head.byteOffset).getUint32(1, true)];
        if (kind > SIGNAL || length > MAX_FRAME_BYTES)
            throw this.unexpected();
        const payload = await this.exactly(length);
        if (kind === FAULT)
            throw fault(this.object(payload));
        return [kind, payload];
    }
    async exactly(count) {
        if (this.rest.length < count) {
            const parts = [this.rest];
            for (let size = this.rest.length; size < count;) {
                const read = await this.chunks.next().catch((error) => Promise.reject(this.lost(error.message)));
                if (read.done)
                    throw this.lost(this.errors.trim() || "it ended");
                parts.push(read.value);
                size += read.value.length;
            }
            this.rest = joined(parts);
        }
        const taken = this.rest.subarray(0, count);
        this.rest = this.rest.subarray(count);
        return taken;
    }
    async done() {
        const [kind, payload] = await this.next();
        if (kind !== DONE)
            throw this.unexpected();
        return payload;
    }
    parse(payload) {
        try {
            return JSON.parse(new TextDecoder().decode(payload));
        }
        catch {
            throw this.unexpected();
        }
    }
    object(payload) {
        return this.members(this.parse(payload));
    }
    members(value) {
        if (typeof value !== "object" || value === null || Array.isArray(value))
            throw this.unexpected();
        return value;
    }
    list(value) {
        if (!Array.isArray(value))
            throw this.unexpected();
        return value;
    }
    change(value) {
        const { path, change, size, changedNs = 0 } = this.members(value);
        const isKnown = change === "added" || change === "modified" || change === "deleted";
        // As the shim's own scan gives them.
        if (typeof path !== "string" || !isPath(path) || !isKnown || typeof size !== "number")
            throw this.unexpected();
        return { path, change, size, changedNs: Number(changedNs) };
    }
    left(report) {
        return this.list(report["left"]).map((entry) => {
            const { path, why } = this.members(entry);
            return { path: String(path), why: String(why) };
        });
    }
    unexpected(why = "the shim sent something unexpected") {
        // What follows cannot be told from what was asked for.
        this.abandon();
        return new FolderError("LOST", `the connection to ${this.where} was ended: ${why}`);
    }
    lost(why) {
        return new FolderError("LOST", `the connection to ${this.where} was lost: ${why}`, "Check that it runs and has free disk and memory, and open the checkout again: the run is as it was.");
    }
    async keepErrors() {
        const decoder = new TextDecoder();
        try {
            for await (const chunk of this.child.stderr)
                this.errors = (this.errors + decoder.decode(chunk)).slice(-MAX_ERROR_BYTES);
        }
        catch {
            // It was destroyed with the process.
        }
    }
}
// The version of the run that an entry replaces, up to the end of the block.
const BASE = /^(84 WORKSPACED\.base=[0-9a-f]{64}|24 WORKSPACED\.base=none)\n\0*$/;
/** Checks a tar as it passes: it has nothing but the paths that were asked for, each as a file, a link or a deletion.
 *
 * It takes what the shim writes and nothing else, so that no reader can take it for something else.
 */
export class LayerCheck {
    asked;
    rest = new Uint8Array();
    skip = 0;
    kind = "";
    text = [];
    long = null;
    isEnded = false;
    constructor(paths) {
        this.asked = new Set(paths);
    }
    /** Returns what is wrong. */
    feed(chunk) {
        const data = this.rest.length === 0 ? chunk : joined([this.rest, chunk]);
        let at = 0;
        for (;;) {
            if (this.skip > 0) {
                const taken = data.subarray(at, at + this.skip);
                if (this.kind === "L" || this.kind === "x")
                    this.text.push(taken.slice());
                at += taken.length;
                this.skip -= taken.length;
                if (this.skip > 0)
                    break;
                if (this.kind === "L")
                    this.long = untilNul(joined(this.text));
                if (this.kind === "x" && !BASE.test(String.fromCharCode(...joined(this.text))))
                    return "the layer has an entry of another form";
            }
            if (data.length - at < 512)
                break;
            const why = this.header(data.subarray(at, at + 512));
            if (why !== "")
                return why;
            at += 512;
        }
        this.rest = data.slice(at);
        return "";
    }
    /** Returns what is wrong at the end. */
    end() {
        return this.isEnded && this.rest.length === 0 && this.skip === 0 ? "" : "the layer is cut off";
    }
    header(head) {
        if (head.every((byte) => byte === 0)) {
            this.isEnded = true;
            return "";
        }
        const text = (start, end) => String.fromCharCode(...head.subarray(start, end));
        const digits = text(124, 136).replace(/[\0 ]+$/, "");
        this.kind = text(156, 157);
        if (this.isEnded || text(257, 265) !== "ustar  \0" || !"02LKx".includes(this.kind) || !/^[0-7]{1,11}$/.test(digits)) {
            return "the layer has an entry of another form";
        }
        const isHeader = "LKx".includes(this.kind);
        const size = parseInt(digits, 8);
        if (size > (isHeader ? 2 * MAX_PATH_BYTES : this.kind === "0" ? MAX_FILE_BYTES : 0))
            return "the layer has an entry that is too large";
        [this.skip, this.text] = [Math.ceil(size / 512) * 512, []];
        if (this.kind === "x" && size !== 24 && size !== 84)
            return "the layer has an entry of another form";
        if (isHeader)
            return "";
        let name;
        try {
            name = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(this.long ?? untilNul(head.subarray(0, 100)));
        }
        catch {
            return "the layer has a name that is not UTF-8";
        }
        this.long = null;
        const last = name.lastIndexOf("/") + 1;
        const path = name.slice(0, last) + name.slice(last).replace(/^\.wh\./, "");
        if (name.startsWith(".wh.", last) && this.kind !== "0")
            return "the layer has an entry of another form";
        return this.asked.has(path) ? "" : `the layer has "${path}", which was not asked for`;
    }
}
/** The beginning and the end of a command's output, as much as an artifact may have. */
export class KeptOutput {
    static HALF = 8 * 1024 * 1024 - 64;
    head = [];
    headSize = 0;
    tail = [];
    tailSize = 0;
    dropped = 0;
    add(chunk) {
        const room = KeptOutput.HALF - this.headSize;
        const [first, rest] = [chunk.slice(0, room), chunk.slice(room)];
        if (first.length > 0)
            this.head.push(first);
        this.headSize += first.length;
        if (rest.length > 0)
            this.tail.push(rest);
        this.tailSize += rest.length;
        // In large steps: each joins the rest.
        if (this.tailSize > 2 * KeptOutput.HALF)
            this.cut();
    }
    bytes() {
        this.cut();
        const gap = this.dropped > 0 ? bytes(`\n[${this.dropped} bytes are not kept]\n`) : new Uint8Array();
        return joined([...this.head, gap, ...this.tail]);
    }
    cut() {
        const excess = Math.max(0, this.tailSize - KeptOutput.HALF);
        const tail = joined(this.tail).slice(excess);
        [this.tail, this.tailSize] = [[tail], tail.length];
        this.dropped += excess;
    }
}
/** Ends a command after a time: asks it to end, kills it 5 seconds later, and then cuts the pipe. */
export class TimeLimit {
    isReached = false;
    timer;
    constructor(folder, millis) {
        const steps = [() => folder.signal(SIGTERM), () => folder.signal(SIGKILL), () => folder.cut()];
        const step = () => {
            this.isReached = true;
            steps.shift()?.();
            if (steps.length > 0)
                this.timer = setTimeout(step, GRACE);
        };
        if (millis !== undefined)
            this.timer = setTimeout(step, millis);
    }
    cancel() {
        clearTimeout(this.timer);
    }
}
/** What is packed by gzip. */
class Packer {
    size = 0;
    parts = [];
    writer;
    read;
    constructor() {
        const { readable, writable } = new CompressionStream("gzip");
        this.writer = writable.getWriter();
        this.read = this.collect(readable.getReader());
    }
    add(chunk) {
        return this.writer.write(chunk);
    }
    async end() {
        await this.writer.close();
        await this.read;
        return joined(this.parts);
    }
    async collect(reader) {
        for (let read = await reader.read(); !read.done; read = await reader.read()) {
            this.parts.push(read.value);
            this.size += read.value.length;
        }
    }
}
async function findShim(system, given) {
    const named = given ?? system.env["WORKSPACED_SHIM"];
    const folders = (system.env["PATH"] ?? "").split(":").filter((folder) => folder !== "");
    const places = named ? [named] : [system.beside(SHIM_NAME), ...folders.map((folder) => `${folder}/${SHIM_NAME}`)];
    for (const place of places)
        if (await system.isFile(place))
            return place;
    const hint = "Install it on the PATH, or name its file with WORKSPACED_SHIM or `shim`.";
    throw new FolderError("NO_SHIM", `the program ${named ?? SHIM_NAME} is missing`, hint);
}
function spawn(system, command) {
    const env = { ...system.env };
    // The token stays with this program.
    delete env["WORKSPACED_TOKEN"];
    delete env["WORKSPACED_TOKEN_FILE"];
    // An interrupt of the terminal is for the command, which gets it by the pipe.
    return system.spawn(command[0], command.slice(1), { env, detached: true, stdio: "pipe" });
}
/** Ends a program with all processes of its group. Another process may hold the other ends of its pipes, which are closed here. */
function endGroup(system, child) {
    try {
        if (child.pid !== undefined)
            system.kill(-child.pid, "SIGKILL");
    }
    catch {
        // It has ended just now.
    }
    child.stdout.destroy();
    child.stderr.destroy();
}
async function run(system, command, input, limit) {
    const child = spawn(system, command);
    let isLate = false;
    const timer = setTimeout(() => {
        isLate = true;
        endGroup(system, child);
    }, limit);
    const collect = async (stream) => {
        let text = "";
        try {
            for await (const chunk of stream)
                text = (text + new TextDecoder().decode(chunk)).slice(-MAX_ERROR_BYTES);
        }
        catch (failure) {
            if (!isLate)
                throw failure;
        }
        return text;
    };
    const code = new Promise((resolve, reject) => {
        child.on("close", resolve);
        child.on("error", reject);
    });
    // A sandbox that does not read it says why when it ends.
    child.stdin.on("error", () => undefined);
    child.stdin.write(input, () => child.stdin.end());
    try {
        const [stdout, stderr] = await Promise.all([collect(child.stdout), collect(child.stderr)]);
        return { code: await code, stdout, stderr, isLate };
    }
    finally {
        clearTimeout(timer);
    }
}
function noAnswer(limit) {
    return `it did not answer within ${limit / 1000} s`;
}
function notStarted(where, why) {
    const hint = "Check that a command runs there, that its folder can be written, and that its processor is the one of this machine.";
    throw new FolderError("NOT_STARTED", `no shell and no shim started in ${where}: ${why}`, hint);
}
function fault(fault) {
    const conflicts = Array.isArray(fault["conflicts"]) ? fault["conflicts"] : [];
    if (conflicts.length === 0)
        return new FolderError("FOLDER", String(fault["text"]));
    return new FolderError("CONFLICT", String(fault["text"]), CONFLICT_HINT, conflicts);
}
const CONFLICT_HINT = "Push the changes first (with `merge`, if both changed a file), or take the version of the run with `theirs`.";
/** What was changed both here and in the run. */
export function conflict(conflicts) {
    const named = conflicts.slice(0, 20).map(({ path, why }) => `${path} (${why})`);
    const files = conflicts.length === 1 ? "1 file" : `${conflicts.length} files`;
    const text = `${files} changed here and in the run; nothing was overwritten: ${named.join(", ")}`;
    return new FolderError("CONFLICT", text, CONFLICT_HINT, conflicts);
}
/** Returns a command as it is typed. */
export function shownCommand(argv) {
    return argv.map((word) => (/^[\w\-./=:,+@%]+$/.test(word) ? word : quoted(word))).join(" ");
}
function quoted(word) {
    return `'${word.replaceAll("'", `'\\''`)}'`;
}
export function bytes(text) {
    return new TextEncoder().encode(text);
}
export function joined(parts) {
    const whole = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
    let at = 0;
    for (const part of parts) {
        whole.set(part, at);
        at += part.length;
    }
    return whole;
}
/** Whether a run can have this path. */
function isPath(path) {
    const names = path.split("/");
    const isBad = (name) => ["", ".", "..", ".git"].includes(name.toLowerCase()) || name.startsWith(".wh.");
    const isOwn = names[0].toLowerCase() === ".workspaced";
    return !names.some(isBad) && !isOwn && !path.includes("\0") && bytes(path).length <= MAX_PATH_BYTES;
}
function untilNul(name) {
    const end = name.indexOf(0);
    return end < 0 ? name : name.subarray(0, end);
}
export async function sha256(content) {
    const hash = await crypto.subtle.digest("SHA-256", content);
    return [...new Uint8Array(hash)].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
