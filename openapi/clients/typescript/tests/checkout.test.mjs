// Checkouts and commands against the real server at WORKSPACED_URL, with the token OPERATOR: in a folder here, and behind a pipe.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { gzipSync } from "node:zlib";

const location = process.env.WORKSPACED_CLIENT ?? "workspaced-client";
const { ApprovalRequired, Client, FolderError, WorkspacedError } = await import(location);
const { LayerCheck, SandboxAddress, ShimFolder } = await import(process.env.WORKSPACED_CLIENT.replace("index.js", "shim.js"));

const { WORKSPACED_URL: url, OPERATOR: token } = process.env;
const operator = new Client(url, token);
// A program that runs a command with nothing of this program's environment.
const PIPE = "pipe:env -i PATH=/usr/bin:/bin";
const text = (bytes) => Buffer.from(bytes).toString();
const all = async (items) => {
  const found = [];
  for await (const item of items) found.push(item);
  return found;
};

/** A run with these files, as its operator and with the token of a runner, and a folder for its checkout. */
async function runner(t, files) {
  const { run } = await operator.createRun();
  for (const [path, content] of Object.entries(files)) await run.createFile(path, Buffer.from(content), "the test's files");
  const { token } = await run.issueToken({ permissions: ["file:read", "event:append", "changeset:apply"] });
  const folder = mkdtempSync(join(tmpdir(), "workspaced-client-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const dir = join(folder, "work");
  const records = async (tool) => (await all(run.audit())).filter((record) => record.tool === tool);
  const change = async (path, content) => {
    const { sha256 } = await run.call("read_file", { path });
    await run.replaceFile(path, Buffer.from(content), "another's change", sha256);
  };
  const read = async (path) => text(await run.readBytes(path));
  return { run, used: operator.agent(run.id, token), dir, records, change, read };
}

async function eventually(isTrue) {
  const end = Date.now() + 60_000;
  while (!isTrue()) {
    assert.ok(Date.now() < end, "it did not become true");
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

const written = (file) => eventually(() => existsSync(file) && readFileSync(file, "utf8").endsWith("\n"));
/** Whether a process is there. A zombie has ended, whoever its parent is. */
const isAlive = (pid) => {
  try {
    return !readFileSync(`/proc/${pid.trim()}/stat`, "utf8").split(") ").at(-1).startsWith("Z");
  } catch (error) {
    // The second is what a process that ends between the opening and the reading of its file gives.
    if (["ENOENT", "ESRCH"].includes(error.code)) return false;
    throw error;
  }
};

/** A command with a time limit that it reaches after it has written this: a busy machine may need longer to start it. */
async function begun(checkout, script, options, file, content) {
  for (const timeoutMillis of [500, 4_000, 32_000]) {
    const done = await checkout.exec(script, { ...options, timeoutMillis });
    if (existsSync(file) && readFileSync(file, "utf8") === content) return done;
  }
  assert.fail("the command did not begin");
}

test("a pull brings the run's files and a push what changed", async (t) => {
  const { used, dir, records, change, read } = await runner(t, { "a.txt": "one\n", "d/b.txt": "b\n", "gone.txt": "x\n" });
  const pulled = await used.pull(dir);
  assert.deepEqual([pulled.fromSeq, pulled.written, readFileSync(join(dir, "d/b.txt"), "utf8")], [null, 3, "b\n"]);
  assert.equal((await used.pull(dir)).written, 0);
  assert.equal(await used.push(dir, { reason: "nothing" }), null);
  writeFileSync(join(dir, "a.txt"), "two\n");
  rmSync(join(dir, "gone.txt"));
  mkdirSync(join(dir, "target"));
  writeFileSync(join(dir, "target/o"), "o\n");
  const pushed = await used.push(dir, { reason: "by hand", sandbox: PIPE });
  assert.deepEqual([pushed.answer.applied.sort(), pushed.left, pushed.stale], [["a.txt", "gone.txt"], [], null]);
  assert.equal(await read("a.txt"), "two\n");
  assert.deepEqual((await records("apply_changeset")).map((record) => record.reason), ["by hand"]);

  await change("a.txt", "others\n");
  writeFileSync(join(dir, "a.txt"), "mine\n");
  await assert.rejects(used.pull(dir), (error) => {
    assert.ok(error instanceof FolderError && error.hint !== "");
    assert.deepEqual([error.code, error.status, error.conflicts.map((one) => one.path)], ["CONFLICT", 0, ["a.txt"]]);
    return true;
  });
  await assert.rejects(used.push(dir, { reason: "by hand" }), { code: "WRITE_CONFLICT" });
  assert.equal(readFileSync(join(dir, "a.txt"), "utf8"), "mine\n");
  // A command runs all the same, and the version of the run can be taken.
  const done = await used.exec("cat a.txt; echo n > n.txt", { dir, push: true });
  assert.deepEqual([done.pulled.conflicts.map((one) => one.path), done.pushed.answer.applied, done.pushed.stale], [["a.txt"], ["n.txt"], null]);
  await assert.rejects(used.pull(dir, { theirs: ["n.txt"] }), FolderError);
  const taken = await used.pull(dir, { theirs: ["a.txt"] });
  assert.deepEqual([taken.conflicts, taken.written, readFileSync(join(dir, "a.txt"), "utf8")], [[], 1, "others\n"]);
});

for (const sandbox of [undefined, PIPE]) {
  const where = sandbox === undefined ? "here" : "behind a pipe";
  const place = sandbox === undefined ? {} : { sandbox };

  test(`several commands run in one open checkout, ${where}`, async (t) => {
    const { run, used, dir, records, change, read } = await runner(t, { "a.txt": "one\n", "d/b.txt": "b\n" });
    const checkout = await used.checkout({ dir, ...place });
    const got = { stdout: "", stderr: "" };
    const onOutput = (stream, chunk) => (got[stream] += text(chunk));
    const script = "cat b.txt; echo $WORD >&2; echo two > ../a.txt; echo $PPID > ../pid; exit 3";
    const first = await checkout.exec(script, { push: true, cwd: "d", env: { WORD: "hello" }, onOutput });
    assert.deepEqual([got, first.exitCode, first.pulled.written, first.refusal], [{ stdout: "b\n", stderr: "hello\n" }, 3, 2, null]);
    assert.deepEqual([await read("a.txt"), first.pushed.answer.eventSeq], ["two\n", first.eventSeq]);
    assert.deepEqual(await run.artifact(first.outputSha256), first.output);
    // The next one sees what others have changed meanwhile, in the same shim.
    await change("d/b.txt", "changed\n");
    const next = await checkout.exec(["sh", "-c", "cat a.txt d/b.txt; test $(cat pid) = $PPID"], { test: true });
    assert.deepEqual([text(next.output), next.exitCode, next.pulled.written], ["two\nchanged\n", 0, 1]);
    const [event] = await records("event.test");
    assert.deepEqual([event.seq, event.input.data.environment.kind], [next.eventSeq, sandbox === undefined ? "local" : "pipe"]);
    await checkout.close();
  });

  test(`a time limit, a signal and an abort end a command, ${where}`, async (t) => {
    const { used, dir, records, read } = await runner(t, { "a.txt": "one\n" });
    const checkout = await used.checkout({ dir, ...place });
    // It ends well when it is asked to, which is no success.
    const asked = "trap 'exit 0' TERM; echo two > a.txt; while :; do sleep 0.1; done";
    const limited = await begun(checkout, asked, { push: true }, join(dir, "a.txt"), "two\n");
    assert.deepEqual([limited.timedOut, limited.pushed, await read("a.txt")], [true, null, "one\n"]);
    assert.equal((await records("event.command"))[0].input.data.timedOut, true);
    const killed = await begun(checkout, "trap '' TERM; echo > deaf; sleep 600", {}, join(dir, "deaf"), "\n");
    assert.deepEqual([killed.signal, killed.timedOut], [9, true]);

    const pid = join(dir, "pid");
    const interrupted = checkout.exec("trap 'exit 9' INT; echo $$ > pid; while :; do sleep 0.1; done");
    await written(pid);
    checkout.signal(2);
    assert.equal((await interrupted).exitCode, 9);
    rmSync(pid);

    const controller = new AbortController();
    const silent = checkout.exec("trap '' INT TERM; echo $$ > pid; sleep 600", { signal: controller.signal });
    await written(pid);
    controller.abort(new Error("enough"));
    await assert.rejects(silent, { message: "enough" });
    await eventually(() => !isAlive(readFileSync(pid, "utf8")));
    await assert.rejects(checkout.pull(), { code: "LOST" });
    await checkout.close();

    const fails = () => {
      throw new TypeError("no sink");
    };
    await assert.rejects(used.exec("echo $$ > pid; echo x; sleep 600", { dir, ...place, onOutput: fails }), { message: "no sink" });
    await eventually(() => !isAlive(readFileSync(pid, "utf8")));
  });
}

for (const place of [{}, { sandbox: PIPE }]) {
  test(`a set has only what its own command changed, ${place.sandbox ?? "here"}`, async (t) => {
    const { used, dir, read } = await runner(t, { "a.txt": "one\n" });
    const checkout = await used.checkout({ dir, ...place });
    await checkout.exec("echo t > tested.txt; mkfifo pipe; truncate -s 300M big.bin", { test: true });
    await checkout.exec("echo k > killed.txt; kill -9 $$", { push: true });
    const own = await checkout.exec("echo two > a.txt", { push: true });
    assert.deepEqual([own.pushed.answer.applied, own.changed.left], [["a.txt"], []]);
    assert.deepEqual(own.earlier.map((change) => change.path), ["killed.txt", "tested.txt"]);
    const more = await checkout.exec("echo more >> killed.txt", { push: true });
    assert.deepEqual([await read("killed.txt"), more.earlier.map((change) => change.path)], ["k\nmore\n", ["tested.txt"]]);
    assert.deepEqual((await checkout.push({ reason: "the rest" })).answer.applied, ["tested.txt"]);
    const big = await checkout.exec("head -c 20M /dev/urandom > large.bin", { push: true });
    assert.deepEqual([big.pushed.answer.applied, (await used.readBytes("large.bin")).length], [["large.bin"], 20 << 20]);
    const large = await checkout.exec("truncate -s 300M other.bin", { push: true });
    assert.deepEqual([large.pushed, large.changed.left], [null, [{ path: "other.bin", why: "it has more than 268435456 bytes" }]]);
    await checkout.close();
  });
}

test("a refused set is part of what came of the command", async (t) => {
  const { used, dir, records, read } = await runner(t, { "a.txt": "one\n" });
  const refused = await used.exec("echo A=1 > .env; echo two > a.txt", { dir, push: true });
  assert.deepEqual([refused.exitCode, refused.refusal.code, await read("a.txt")], [0, "POLICY_DENIED_SECRET", "one\n"]);
  const left = await used.exec("touch .env a.txt", { dir, push: true, leaveDenied: true });
  assert.deepEqual([left.pushed.answer.left.map((one) => one.path), await read("a.txt")], [[".env"], "two\n"]);
  const waits = await used.exec("echo x > package-lock.json", { dir, push: true, leaveDenied: true });
  assert.ok(waits.refusal instanceof ApprovalRequired);
  const secret = await used.exec("echo token: ghp_abcdefghijklmnopqrstuvwxyz0123456789", { dir });
  const { data } = (await records("event.command")).at(-1).input;
  assert.deepEqual([data.outputRefused, "output" in data, secret.refusal], ["POLICY_DENIED_SECRET", false, null]);
});

test("a fresh folder has the hash of its tree in the record and is removed", async (t) => {
  const { used, dir, records } = await runner(t, { "a.txt": "one\n" });
  mkdirSync(dir);
  for (const place of [{}, { sandbox: PIPE }]) {
    const done = await used.exec("pwd; ls", { dir, fresh: true, test: true, ...place });
    const [folder, ...names] = text(done.output).trim().split("\n");
    assert.deepEqual([names, existsSync(folder)], [["a.txt"], false]);
  }
  const trees = (await records("event.test")).map((record) => record.input.data.environment.treeSha256);
  assert.ok(trees.length === 2 && trees[0].length === 64 && trees[0] === trees[1]);
});

test("only a command that ran on the tree as pulled claims its hash", async (t) => {
  for (const place of [{}, { sandbox: PIPE }]) {
    const { used, dir, records } = await runner(t, { "a.txt": "one\n" });
    mkdirSync(dir);
    const checkout = await used.checkout({ dir, fresh: true, ...place });
    await checkout.exec("echo changed > a.txt", { test: true });
    // It runs on what the first one has left, and a pull does not change that.
    await checkout.exec("cat a.txt", { test: true });
    await checkout.exec("true", { push: true });
    await checkout.close();
    const events = [...(await records("event.test")), ...(await records("event.command"))].sort((one, other) => one.seq - other.seq);
    assert.deepEqual(events.map((event) => "treeSha256" in event.input.data.environment), [true, false, false]);
  }
});

test("an output that is refused keeps nothing else out of the record", async (t) => {
  const { used, dir, records, read } = await runner(t, { "a.txt": "one\n" });
  used.uploadArtifact = () => Promise.reject(new WorkspacedError(507, { code: "QUOTA_EXCEEDED", detail: "full" }, null));
  const pushed = await used.exec("echo out; echo two > a.txt", { dir, push: true });
  const done = await used.exec("echo out", { dir });
  assert.deepEqual([pushed.refusal, done.refusal, await read("a.txt")], [null, null, "two\n"]);
  const events = (await records("event.command")).map(({ input }) => [input.data.outputRefused, "output" in input.data]);
  assert.deepEqual(events, [["QUOTA_EXCEEDED", false], ["QUOTA_EXCEEDED", false]]);
});

test("an archive that is damaged or cut off by the connection changes nothing", async (t) => {
  const { used, dir } = await runner(t, { "a.txt": "one\n" });
  const { fetch } = globalThis;
  t.after(() => (globalThis.fetch = fetch));
  const lost = new ReadableStream({ pull: (controller) => controller.error(new TypeError("terminated")) });
  for (const [body, code] of [["garbage", "FOLDER"], [gzipSync(Buffer.alloc(512)).subarray(0, -9), "FOLDER"], [lost, "NO_ANSWER"]]) {
    const checkout = await used.checkout({ dir: join(dir, `${code}-${body.length}`), sandbox: PIPE });
    globalThis.fetch = async (...args) => {
      const response = await fetch(...args);
      return String(args[0]).includes("/archive") ? new Response(body, { headers: response.headers }) : response;
    };
    await assert.rejects(checkout.pull(), { code });
    assert.deepEqual(readdirSync(checkout.folder).filter((name) => name !== ".workspaced"), []);
    globalThis.fetch = fetch;
    // The checkout is of use, and at the record where it was.
    assert.equal((await checkout.pull()).fromSeq, null);
    assert.equal(text((await checkout.exec("cat a.txt")).output), "one\n");
    await checkout.close();
  }
});

test("a sandbox that hangs is cut off, and its command is recorded", async (t) => {
  // In a session of its own, the shim does not end with the program that holds the pipe.
  for (const sandbox of [PIPE, "pipe:setsid -w"]) {
    const { used, dir, records } = await runner(t, { "a.txt": "one\n" });
    // Nothing in a paused container reacts.
    const hangs = "echo $PPID > pid; echo $$ > own; kill -STOP $PPID; exec sleep 60";
    const failure = await used.exec(hangs, { dir, sandbox, push: true, timeoutMillis: 2000 }).catch((failure) => failure);
    assert.equal(failure.code, "LOST");
    const [{ input, durationMicros }] = await records("event.command");
    assert.deepEqual([input.data.timedOut, input.data.failure], [true, failure.detail]);
    assert.ok(durationMicros > 10_000_000);
    for (const name of ["pid", "own"]) {
      const pid = readFileSync(join(dir, name), "utf8").trim();
      if (isAlive(pid)) process.kill(Number(pid), "SIGKILL");
    }
  }
});

test("a sandbox that does not answer is given up", async (t) => {
  const { used, dir } = await runner(t, { "a.txt": "one\n" });
  mkdirSync(dir);
  const program = join(dir, "silent");
  for (const script of ["exec sleep 60", "setsid sleep 60; exit"]) {
    writeFileSync(program, `#!/bin/sh\n${script}\n`, { mode: 0o755 });
    await assert.rejects(used.exec(["true"], { dir, sandbox: `pipe:${program}`, startLimitMillis: 1500 }), (failure) => {
      assert.deepEqual([failure.code, /it did not answer within 1.5 s$/.test(failure.detail)], ["NOT_STARTED", true], failure.detail);
      return true;
    });
  }
});

test("a changed index leads nowhere else", async (t) => {
  const { run, used, dir, read } = await runner(t, { "a.txt": "one\n" });
  const other = await runner(t, { "private.txt": "p\n" });
  const change = `sed -i s/${run.id}/${other.run.id}/ .workspaced/state; echo e > evil.txt`;
  // While it is open, what the command writes there is not read.
  const done = await used.exec(change, { dir, sandbox: PIPE, push: true });
  assert.deepEqual([done.refusal, await read("evil.txt")], [null, "e\n"]);
  execFileSync("sh", ["-c", change], { cwd: dir });
  await assert.rejects(run.pull(dir), { code: "OTHER_RUN" });
  await assert.rejects(run.push(dir, { reason: "r" }), { code: "OTHER_RUN" });
  assert.ok(!existsSync(join(dir, "private.txt")));
});

test("a shell on the other side of ssh reads what is meant", async (t) => {
  const { used, dir } = await runner(t, { "a.txt": "one\n" });
  mkdirSync(join(dir, "bin"), { recursive: true });
  // As sshd does: the words after the host are one text for a shell.
  const program = '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; exec sh -c "$*"\n';
  writeFileSync(join(dir, "bin/ssh"), program, { mode: 0o755 });
  const { PATH } = process.env;
  t.after(() => (process.env.PATH = PATH));
  process.env.PATH = `${dir}/bin:${PATH}`;
  const done = await used.exec("cat a.txt; pwd", { sandbox: `ssh:me@host:${dir}/it's here` });
  assert.equal(text(done.output), `one\n${dir}/it's here\n`);
});

test("each command is in the record, whatever became of its sandbox", async (t) => {
  for (const [script, code] of [
    ["echo two > a.txt; kill -9 $PPID; sleep 0.2", "LOST"],
    ["echo two > a.txt; rm -rf .workspaced", "FOLDER"],
    ["for n in $(seq 40); do truncate -s 8M zeros$n; done", "FOLDER"],
  ]) {
    const { used, dir, records, read } = await runner(t, { "a.txt": "one\n" });
    const done = used.exec(script, { dir, sandbox: PIPE, push: true });
    const refusal = await done.then((done) => done.refusal, (failure) => failure);
    const [{ input }] = await records("event.command");
    assert.deepEqual([refusal.code, input.data.failure, input.data.exitCode], [code, refusal.detail, code === "LOST" ? undefined : 0]);
    assert.equal(await read("a.txt"), "one\n");
  }
  const { used, dir, records, read } = await runner(t, { "a.txt": "one\n" });
  const names = Array.from({ length: 5000 }, (_, number) => `src/components/file-${number}.ts`);
  const done = await used.exec(["sh", "-c", "echo two > a.txt; echo $#", "sh", ...names], { dir, push: true });
  assert.deepEqual([text(done.output), done.refusal, await read("a.txt")], ["5000\n", null, "two\n"]);
  assert.match((await records("event.command"))[0].input.data.argv.at(-1), /of 5004 arguments\]$/);
});

test("what cannot be opened says so", async (t) => {
  const { used, dir } = await runner(t, { "a.txt": "one\n" });
  for (const [options, code] of [
    [{ dir, sandbox: "pipe:false" }, "NOT_STARTED"],
    [{ dir, sandbox: "pipe:/nowhere/program" }, "NOT_STARTED"],
    [{ dir, sandbox: "lxc:web" }, "ADDRESS"],
    [{ dir, shim: "/nowhere/shim" }, "NO_SHIM"],
    [{}, "ADDRESS"],
  ]) {
    await assert.rejects(used.exec(["true"], options), { code }, code);
  }
  await assert.rejects(used.exec(["/nowhere/program"], { dir }), { code: "FOLDER" });
  await assert.rejects(used.push(join(dir, "none"), { reason: "r" }), { code: "NO_CHECKOUT" });
});

test("what a sandbox sends is bounded and only a proposal", async (t) => {
  const frame = (kind, payload) => {
    const head = Buffer.alloc(5);
    head[0] = kind;
    head.writeUInt32LE(payload.length, 1);
    return Buffer.concat([head, Buffer.from(payload)]);
  };
  /** Opens a folder whose shim sends this, whatever it is asked. */
  const sandbox = async (...frames) => {
    const dir = mkdtempSync(join(tmpdir(), "workspaced-client-"));
    const hello = frame(0, JSON.stringify({ protocol: 5, folder: "/w" }));
    writeFileSync(join(dir, "sent"), Buffer.concat([hello, ...frames]));
    writeFileSync(join(dir, "shim"), `#!/bin/sh\ncat ${dir}/sent; cat >/dev/null\n`, { mode: 0o755 });
    const folder = await ShimFolder.open({ dir, shim: join(dir, "shim") });
    t.after(() => folder.close().then(() => rmSync(dir, { recursive: true })));
    return folder;
  };
  const change = (path) => frame(4, JSON.stringify([{ path, change: "added", size: 1 }]));
  const report = frame(5, JSON.stringify({ changes: [], left: [], leftCount: 0, notWalked: [] }));
  assert.deepEqual((await (await sandbox(change("a/b"), report)).scan(false)).changes.map((one) => one.path), ["a/b"]);
  const paths = ["/etc/passwd", "../a", "", "a/.git/x", ".GIT/x", ".WORKSPACED/index", "a/.wh.b", "n/".repeat(3000) + "n"];
  for (const frames of [
    ...paths.map((path) => [change(path)]),
    Array(200).fill(frame(4, `[${" ".repeat(1 << 19)}]`)),
    [frame(4, "[".repeat(500_000))], [frame(4, "{}")], [frame(2, "x")], [frame(5, "[]")], [frame(11, "")],
  ]) {
    await assert.rejects((await sandbox(...frames, report)).scan(false), { code: "LOST" }, String(frames[0]).slice(0, 100));
  }
  const done = frame(5, JSON.stringify({ entries: 1, left: [], torn: [] }));
  for (const data of [[frame(2, Buffer.alloc(512).fill("evil", 0, 4))], Array(260).fill(frame(2, Buffer.alloc(1 << 20)))]) {
    await assert.rejects((await sandbox(...data, frame(3, ""), done)).read(["a"]), { code: "LOST" });
  }
});

test("an address is a program that runs a command", () => {
  for (const [raw, program] of [
    ["docker:web", "docker exec -i web"],
    ["podman:web", "podman exec -i web"],
    ["kubectl:ns/pod", "kubectl exec -i -n ns pod --"],
    ["kubectl:ns/pod/c", "kubectl exec -i -n ns pod -c c --"],
    ["ssh:me@host:/srv/w", "ssh -T -o BatchMode=yes -a -x -o ClearAllForwardings=yes me@host --"],
    ["pipe:nsenter -t 1  -m", "nsenter -t 1 -m"],
  ]) {
    assert.deepEqual(new SandboxAddress(raw).program, program.split(" "));
  }
  assert.equal(new SandboxAddress("ssh:me@host:/srv/w").folder, "/srv/w");
  for (const [folder, expected] of [["a b", "a b"], ["~/w", "w"], ["~", "."], ["~a/w", "~a/w"]]) {
    assert.equal(new SandboxAddress(`ssh:h:${folder}`).folder, expected);
  }
  assert.equal(new SandboxAddress("ssh:h:").shell("x", "it's").at(-1), "'it'\\''s'");
  for (const raw of ["web", "docker:", "docker:-v", "kubectl:pod", "kubectl:a/-b", "kubectl:a/b/c/d", "ssh:host", "lxc:a", "pipe: "]) {
    assert.throws(() => new SandboxAddress(raw), FolderError, raw);
  }
});

test("a layer has only what was asked for", () => {
  const header = (name, { size = 0, type = "0", magic = "ustar  \0" } = {}) => {
    const head = Buffer.alloc(512);
    head.write(name);
    head.write(`${size.toString(8).padStart(11, "0")}\0`, 124);
    head.write(type, 156);
    head.write(magic, 257, "latin1");
    return Buffer.concat([head, Buffer.alloc(Math.ceil(size / 512) * 512)]);
  };
  const long = (name, type = "L") => Buffer.concat([header("././@LongLink", { size: name.length + 1, type }).fill(name, 512, 512 + name.length)]);
  const end = Buffer.alloc(1024);
  const wrong = (parts, step = 100) => {
    const [data, check] = [Buffer.concat(parts), new LayerCheck(["a", "d/b", "x".repeat(200)])];
    for (let at = 0; at < data.length; at += step) {
      const why = check.feed(data.subarray(at, at + step));
      if (why !== "") return why;
    }
    return check.end();
  };
  const good = [header("a", { size: 1000 }), header("d/.wh.b"), long("x".repeat(200)), header("x", { size: 513 }), header("a", { type: "2" }), end];
  for (const step of [1, 511, 512, 100_000]) assert.equal(wrong(good, step), "");
  assert.equal(wrong([end]), "");
  const records = [`84 WORKSPACED.base=${"0a".repeat(32)}\n`, "24 WORKSPACED.base=none\n"];
  for (const record of [...records, "24 path=d/a/longer/name\n", `${records[1]}10 path=b\n`]) {
    const pax = header("pax", { size: record.length, type: "x" });
    pax.write(record, 512);
    assert.equal(wrong([pax, header("a", { size: 1000 }), end]) === "", records.includes(record), record);
  }
  for (const bad of [
    [header("b"), end], [header(".wh.d"), end], [long("y".repeat(200)), header("a"), end], [header("a", { size: 300 << 20 }), end],
    [header("d/.wh.b", { type: "2" }), end], [header(".wh..wh..opq"), end], [header("./a"), end], [header("a", { type: "5" }), end], [header("a", { type: "1" }), end], [header("a", { type: "x" }), end],
    [header("a", { magic: "ustar\x0000" }), end], [header("a", { size: 1000 })], [header("a"), end, header("a"), end],
  ]) {
    assert.notEqual(wrong(bad, 4096), "");
  }
});
