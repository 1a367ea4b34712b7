// A run's files in a folder, here or in a sandbox: what changed comes in, what a command changes goes back as one judged set.
import { crypto } from "./crypto.js";
import { FolderError, NoAnswer, WorkspacedError } from "./errors.js";
import { conflict, bytes, joined, KeptOutput, sha256, ShimFolder, shownCommand, TimeLimit, } from "./shim.js";
// How many changes an event names, and how many characters of a path it has.
const MAX_RECORDED = 200;
// The most characters of a command in the reason for what it has changed.
const MAX_REASON_CHARS = 500;
// The most bytes of a command's arguments in a record, which are twice as long in JSON at worst.
const MAX_RECORDED_ARGV = 16 << 10;
const MAX_DIFFERS = 24 << 10;
/**
 * A run's files in a folder, which stays open: several commands run in it, one after the other. `Run.checkout` opens it.
 *
 * The run is that of the caller, and from the first pull on the record is the one that was pulled: a command that changes the folder's
 * index leads nothing to another run.
 */
export class Checkout {
    run;
    transport;
    open;
    isUntouched;
    /** The states that the folder can have: one, or two if an operation did not tell how it ended. Empty before its own word was taken. */
    known = [];
    /** What the last pull has left, because it was changed here too. */
    left = new Set();
    path;
    constructor(run, transport, open, 
    /** Whether it was made anew and no command has run in it, so that it has nothing but what was pulled. */
    isUntouched) {
        this.run = run;
        this.transport = transport;
        this.open = open;
        this.isUntouched = isUntouched;
        this.path = `/v1/runs/${encodeURIComponent(run.id)}`;
    }
    /** Opens the folder. In a sandbox, the shim is started, and copied before if it is not there. */
    static async open(run, transport, place) {
        return new Checkout(run, transport, await ShimFolder.open(place), place.fresh ?? false);
    }
    /** Closes the folder. What runs there is ended, and a fresh folder is removed. */
    async close() {
        await this.open.close();
    }
    /** The path of the folder, here or in the sandbox. */
    get folder() {
        return this.open.path;
    }
    /** Sends a signal, such as 2 for an interrupt, to the command that runs, with all processes of its group. */
    signal(number) {
        this.open.signal(number);
    }
    /**
     * Brings the folder to the newest state of the run. Overwrites nothing that was changed there: it throws `CONFLICT` then, and the rest
     * is pulled. At the paths `theirs`, which were changed there too, the version of the run is taken.
     */
    async pull(theirs = []) {
        const pulled = await this.pullRest(theirs);
        if (pulled.conflicts.length > 0)
            throw conflict(pulled.conflicts);
        return pulled;
    }
    async pullRest(theirs = []) {
        return this.apply((await this.base())?.seq ?? null, theirs);
    }
    /** Returns the hash of what the folder has of the run: of the lines `KIND SHA256 PATH`, each ended by a NUL byte, in order of paths. */
    treeSha256() {
        return this.open.treeSha256();
    }
    /** Finds what differs from the run. With `all`, also in folders of builds of which the run has nothing. */
    scan(all = false) {
        return this.open.scan(all);
    }
    /** Sends what changed in the folder as one set: all of it is applied, or the refusal is thrown. Null if there is nothing to send. */
    async push(options) {
        await this.checkedOut();
        const { reason, dryRun = false, changesetId } = options;
        const changeset = { ...judged(options), reason, dryRun, ...(changesetId === undefined ? {} : { changesetId }) };
        return this.send(await this.scan(options.all), changeset);
    }
    /**
     * Pulls, runs a command, finds what it changed, and records it. A text is for the shell.
     *
     * What differed from the run before is no part of what the command changed, unless it has changed it again: `push` sends that.
     * A refusal of what comes after the command is in the result.
     */
    async exec(command, options = {}) {
        if (options.push && options.test)
            throw new TypeError("what a test changes is not applied: give `push` or `test`");
        options.signal?.throwIfAborted();
        const argv = typeof command === "string" ? ["sh", "-c", command] : command;
        const pulled = await this.pullRest();
        const environment = await this.environment();
        const before = await this.scanBefore(options.all);
        const began = new Date();
        const kept = new KeptOutput();
        const about = { argv: recordedArgv(argv), cwd: options.cwd || ".", startedAt: began.toISOString(), environment };
        if (!(before instanceof FolderError))
            Object.assign(about, differing(before.changes));
        const kind = options.test ? "test" : "command";
        const limit = new TimeLimit(this.open, options.timeoutMillis);
        const outcome = await this.execute(argv, options, kept, limit).catch(async (failure) => {
            // A command that ends the connection is in the record like any other.
            if (failure instanceof FolderError && failure.code === "LOST") {
                about.durationMicros = (Date.now() - began.getTime()) * 1000;
                await this.recordEvent(kind, about, pulled, {}, null, failure, limit.isReached);
            }
            throw failure;
        });
        const timedOut = limit.isReached;
        const output = kept.bytes();
        const number = (value) => (typeof value === "number" ? value : null);
        const done = {
            exitCode: number(outcome["exitCode"]),
            signal: number(outcome["signal"]),
            timedOut,
            durationMicros: number(outcome["durationMicros"]) ?? 0,
            output,
            outputSha256: output.length > 0 ? await sha256(output) : null,
            pulled,
            changed: none(),
            earlier: [],
            eventSeq: null,
            pushed: null,
            refusal: null,
        };
        about.durationMicros = done.durationMicros;
        try {
            done.changed = await this.scan(options.all);
            if (before instanceof FolderError)
                throw before;
            done.earlier = leaveOut(done.changed, before);
        }
        catch (failure) {
            if (failure instanceof FolderError)
                await this.recordEvent(kind, about, pulled, await this.keep(done), done, failure);
            throw failure;
        }
        try {
            await this.record(done, about, kind, options);
        }
        catch (failure) {
            if (!(failure instanceof WorkspacedError))
                throw failure;
            done.refusal = failure;
        }
        return done;
    }
    /** Finds what differs from the run before a command. A folder that cannot be looked at may be one that it is to put in order. */
    async scanBefore(all = false) {
        if (this.isUntouched)
            return none();
        try {
            return await this.scan(all);
        }
        catch (failure) {
            if (failure instanceof FolderError && failure.code !== "LOST")
                return failure;
            throw failure;
        }
    }
    async execute(argv, options, kept, limit) {
        const { signal, onOutput } = options;
        this.isUntouched = false;
        const abort = () => this.open.abandon();
        signal?.addEventListener("abort", abort);
        try {
            const command = { argv, cwd: options.cwd ?? ".", env: Object.entries(options.env ?? {}) };
            return await this.open.exec(command, (stream, chunk) => {
                kept.add(chunk);
                onOutput?.(stream, chunk);
            });
        }
        catch (failure) {
            signal?.throwIfAborted();
            if (!(failure instanceof FolderError))
                this.open.abandon();
            throw failure;
        }
        finally {
            limit.cancel();
            signal?.removeEventListener("abort", abort);
        }
    }
    async record(done, about, kind, options) {
        const kept = await this.keep(done);
        // What an interrupted command left is half of something.
        if (options.push && done.signal === null && !done.timedOut) {
            // It names an artifact that the run has, or says why there is none.
            const { output, ...digest } = kept;
            if (output === undefined)
                delete digest["outputSha256"];
            const exitCode = done.exitCode === null ? {} : { exitCode: done.exitCode };
            const command = { ...about, ...exitCode, ...digest };
            const reason = options.reason || cut(shownCommand(about.argv), MAX_REASON_CHARS);
            try {
                done.pushed = await this.send(done.changed, { ...judged(options), reason, dryRun: false, command });
            }
            catch (failure) {
                // The service records the command of a set that it refuses.
                const isUnknown = failure instanceof FolderError || (failure instanceof WorkspacedError && failure.code === "BODY_TOO_LARGE");
                if (isUnknown)
                    done.eventSeq = await this.recordEvent(kind, about, done.pulled, kept, done, failure);
                throw failure;
            }
            if (done.pushed !== null) {
                done.eventSeq = done.pushed.answer.eventSeq ?? null;
                return;
            }
        }
        done.eventSeq = await this.recordEvent(kind, about, done.pulled, kept, done, null);
    }
    /** Records a command alone. Without `done`, it is not known how it ended. */
    async recordEvent(kind, about, pulled, kept, done, failure, timedOut = done?.timedOut ?? false) {
        const command = shownCommand(about.argv);
        const data = { command, cwd: about.cwd, basedOnSeq: pulled.seq, environment: about.environment, ...kept };
        // What the command changed itself is not the run's either.
        Object.assign(data, done === null ? pickDiffering(about) : differing([...done.earlier, ...done.changed.changes]));
        let ended = "it is not known how it ended";
        if (done !== null) {
            const code = done.exitCode ?? 128 + (done.signal ?? 0);
            [data["exitCode"], ended] = [code, `exit code ${code}`];
        }
        if (timedOut)
            data["timedOut"] = true;
        const changes = done?.changed.changes ?? [];
        if (failure !== null) {
            data["failure"] = data["notApplied"] = failure.detail;
        }
        else if (changes.length > 0) {
            const named = changes.slice(0, MAX_RECORDED);
            data["changed"] = named.map(({ change, path }) => `${change[0].toUpperCase()} ${cut(path, MAX_RECORDED)}`);
            data["changedCount"] = changes.length;
        }
        const { startedAt, durationMicros } = about;
        const more = { data, startedAt, ...(durationMicros === undefined ? {} : { durationMicros }) };
        return (await this.run.recordEvent(kind, `${cut(command, 450)}: ${ended}`, more)).seq;
    }
    /** Uploads the output, and returns what an event says of it. */
    async keep(done) {
        if (done.outputSha256 === null)
            return {};
        const kept = { outputSha256: done.outputSha256 };
        try {
            return { ...kept, output: (await this.run.uploadArtifact(done.output)).uri };
        }
        catch (refusal) {
            if (!(refusal instanceof WorkspacedError))
                throw refusal;
            // What the command did is known without it.
            return { ...kept, outputRefused: refusal.code };
        }
    }
    /** Returns what the record of the next command says of where it runs: of a tree as it was pulled, also its hash. */
    async environment() {
        return { ...this.open.environment, ...(this.isUntouched ? { treeSha256: await this.treeSha256() } : {}) };
    }
    async send(changed, changeset) {
        const base = await this.checkedOut();
        const paths = changed.changes.map((change) => change.path);
        if (paths.length === 0)
            return null;
        const { layer, entries, left } = await this.open.read(paths);
        if (entries === 0)
            return null;
        const known = this.left;
        const document = { changesetId: `cs_${crypto.randomUUID()}`, ...changeset, basedOnSeq: base.seq };
        const { content, type } = form(document, layer);
        const headers = { "Content-Type": type };
        // The limit of time is that of an answer; a body may be as slow as 64 bytes a millisecond.
        const options = { content, headers, extraMillis: content.length / 64 };
        const answer = await this.transport.json("POST", `${this.path}/changesets`, options);
        const taken = [...answer.applied, ...answer.merged];
        let stale = null;
        if (taken.length > 0 && !changeset.dryRun) {
            try {
                // What was merged comes back, and what others have changed meanwhile.
                await this.open.confirm(taken);
                const again = await this.apply(base.seq);
                const fresh = again.conflicts.filter(({ path }) => !known.has(path));
                if (fresh.length > 0)
                    stale = conflict(fresh);
            }
            catch (failure) {
                if (!(failure instanceof WorkspacedError))
                    throw failure;
                // It undoes nothing in the run.
                stale = failure;
            }
        }
        return { answer, left, stale };
    }
    async checkedOut() {
        const base = await this.base();
        if (base === null)
            throw new FolderError("NO_CHECKOUT", `${this.folder} is no checkout of a run`, "Pull into it first.");
        return base;
    }
    /** Returns what the folder has of the run. */
    async base() {
        const have = await this.open.have();
        if (have !== null && have.run !== this.run.id) {
            const hint = "Use another folder, or the run of this one.";
            throw new FolderError("OTHER_RUN", `${this.folder} is a checkout of the run ${have.run}`, hint);
        }
        const isKnown = this.known.some((known) => known?.seq === have?.seq && known?.headHash === have?.headHash);
        if (this.known.length > 0 && !isKnown) {
            const hint = "A command or another program has changed its index: check the run out into a new folder.";
            throw new FolderError("MOVED", `${this.folder} is at another record than the one of its last pull`, hint);
        }
        // Its first word is taken, and from then on it can say nothing else.
        this.known = [have];
        return have;
    }
    async apply(since, theirs = []) {
        const query = since === null ? {} : { since };
        const response = await this.transport.send("GET", `${this.path}/archive`, { query });
        const header = (name) => response.headers.get(`workspaced-${name}`) ?? "";
        if (!/^\d+$/.test(header("seq"))) {
            await response.body?.cancel();
            const hint = "Is the service as new as this package?";
            throw new FolderError("FOLDER", "the archive does not say which record it is of", hint);
        }
        const now = { run: this.run.id, seq: Number(header("seq")), headHash: header("head-hash") };
        let applied;
        // If the sandbox is lost on the way, it has one or the other.
        this.known.push(now);
        try {
            applied = await this.open.apply(now, unpacked(response, this.transport.url), theirs);
        }
        catch (failure) {
            if (!(failure instanceof FolderError) || failure.code !== "LOST")
                this.known.pop();
            throw failure;
        }
        const conflicts = this.open.conflicts(applied);
        let at = now;
        if (conflicts.length > 0) {
            // The folder stays where it was, so that what was left comes again.
            this.known.pop();
            this.left = new Set(conflicts.map(({ path }) => path));
            if (!this.known[0])
                throw conflict(conflicts);
            at = this.known[0];
        }
        else {
            [this.known, this.left] = [[now], new Set()];
        }
        const number = (value) => (typeof value === "number" ? value : 0);
        const leftOut = Number(header("left-out") || 0);
        const counts = { written: number(applied["written"]), deleted: number(applied["deleted"]), leftOut };
        return { fromSeq: since, seq: at.seq, headHash: at.headHash, ...counts, conflicts };
    }
}
export function judged(options) {
    return { onConflict: options.merge ? "merge" : "refuse", onDenied: options.leaveDenied ? "leave" : "refuse" };
}
function none() {
    return { changes: [], left: [], leftCount: 0, notWalked: [] };
}
/** Takes out what was found as it is now before: what is left came after it. Returns the changes that were taken out. */
function leaveOut(found, earlier) {
    const known = new Map(earlier.changes.map((change) => [change.path, change]));
    const isKnown = (one) => {
        const other = known.get(one.path);
        return other?.change === one.change && other.size === one.size && other.changedNs === one.changedNs;
    };
    const before = found.changes.filter(isKnown);
    found.changes = found.changes.filter((change) => !isKnown(change));
    found.left = found.left.filter((one) => !earlier.left.some((other) => other.path === one.path && other.why === one.why));
    found.leftCount = Math.max(found.leftCount - earlier.leftCount, found.left.length);
    found.notWalked = found.notWalked.filter((folder) => !earlier.notWalked.includes(folder));
    return before;
}
/** Returns the arguments that a record has: the first ones, if all would be too large for it. */
function recordedArgv(argv) {
    let size = 0;
    const end = argv.findIndex((argument) => (size += bytes(argument).length) > MAX_RECORDED_ARGV);
    if (end < 0)
        return argv;
    // One argument alone may be larger, such as a script.
    const last = `${cut(argv[end], MAX_RECORDED)}… [cut here, with ${argv.length - end} of ${argv.length} arguments]`;
    return [...argv.slice(0, end), last];
}
function cut(text, maxCharacters) {
    return [...text].slice(0, maxCharacters).join("");
}
/** Gives the tar of an archive. */
async function* unpacked(response, url) {
    if (response.body === null)
        return;
    const body = response.body.getReader();
    let lost;
    // So that a lost connection is told from an archive that cannot be unpacked.
    const source = new ReadableStream({
        async pull(controller) {
            const read = await body.read().catch((failure) => Promise.reject((lost = new NoAnswer(failure, url))));
            if (read.done)
                controller.close();
            else
                controller.enqueue(read.value);
        },
        cancel: (reason) => body.cancel(reason),
    });
    const isPacked = (response.headers.get("content-type") ?? "").includes("gzip");
    const inflate = new DecompressionStream("gzip");
    const reader = (isPacked ? source.pipeThrough(inflate) : source).getReader();
    try {
        for (;;) {
            const read = await reader.read().catch((failure) => {
                const why = failure instanceof Error ? failure.message : String(failure);
                throw lost ?? new FolderError("FOLDER", `the archive is damaged: ${why}`, "Try again.");
            });
            if (read.done)
                return;
            yield read.value;
        }
    }
    finally {
        await reader.cancel().catch(() => undefined);
    }
}
/** The form of a set of changes, and its media type. */
function form(changeset, layer) {
    const boundary = `workspaced-${crypto.randomUUID()}`;
    const head = `--${boundary}\r\nContent-Disposition: form-data; name="changeset"\r\nContent-Type: application/json\r\n\r\n` +
        `${JSON.stringify(changeset)}\r\n` +
        `--${boundary}\r\nContent-Disposition: form-data; name="layer"\r\nContent-Type: application/x-tar\r\n\r\n`;
    return { content: joined([bytes(head), layer, bytes(`\r\n--${boundary}--\r\n`)]), type: `multipart/form-data; boundary=${boundary}` };
}
/** Returns what a record says of files that are not those of the run: the first paths, those that the run has before others. */
function differing(changes) {
    const paths = [...changes.filter(({ change }) => change !== "added"), ...changes.filter(({ change }) => change === "added")];
    const named = [];
    let size = 0;
    for (const { path } of paths) {
        size += path.length;
        if (size > MAX_DIFFERS)
            break;
        named.push(path);
    }
    return paths.length > 0 ? { differs: named, differsCount: paths.length } : {};
}
function pickDiffering({ differs, differsCount }) {
    return differs === undefined ? {} : { differs, differsCount };
}
