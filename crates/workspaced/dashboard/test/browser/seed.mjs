// Fills a service with runs as a team of agents leaves them: ten runs, about 400 calls, approvals in every state but `expired` (which
// takes a day; the tests make one by hand), commands with
// their output, hostile names, 130 changed files, a diff of 50,000 lines. `node test/browser/seed.mjs` fills the service at
// WORKSPACED_URL with the token in WORKSPACED_OPERATOR_TOKEN, for work on the pages.

import { createHash } from "node:crypto";
import { Client } from "./agent.mjs";

/** A tar archive of files by path. Names may have any character but NUL. */
export function tar(files) {
  const blocks = [];
  const entry = (name, data, type) => {
    const header = Buffer.alloc(512);
    const field = (text, at) => header.write(text, at);
    Buffer.from(name).copy(header, 0, 0, 100);
    field("0000644\0", 100), field("0000000\0", 108), field("0000000\0", 116);
    field(`${data.length.toString(8).padStart(11, "0")}\0`, 124), field("00000000000\0", 136), field("        ", 148);
    field(type, 156), field("ustar\0", 257), field("00", 263);
    const sum = header.reduce((total, byte) => total + byte, 0);
    field(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
    blocks.push(header, data, Buffer.alloc((512 - (data.length % 512)) % 512));
  };
  for (const [path, content] of Object.entries(files)) entry(path, Buffer.isBuffer(content) ? content : Buffer.from(content), "0");
  return Buffer.concat([...blocks, Buffer.alloc(1024)]);
}

/** A run with a base, and the means to work in it as an agent and to report as its runner. */
class Seeded {
  constructor(operator, run, agent) {
    Object.assign(this, { operator, run, agent, step: undefined });
  }
  static async create(operator, runId, labels, files, policy) {
    const { token } = await operator.create("/v1/runs", { runId, source: { type: "archive" }, labels, policy });
    const archive = await fetch(`${operator.base}/v1/runs/${runId}/archive`, { method: "PUT", headers: { authorization: `Bearer ${operator.token}`, "content-type": "application/x-tar" }, body: tar(files) });
    if (!archive.ok) throw new Error(`${runId}: ${await archive.text()}`);
    return new Seeded(operator, runId, new Client(operator.base, token.token));
  }
  in(step) {
    this.step = step;
    return this;
  }
  async call(tool, input) {
    return (await this.agent.request("POST", `/v1/runs/${this.run}/tools/${tool}`, { stepId: this.step, ...input })).body;
  }
  /** A call whose answer must be `ok`, or must wait for approval if `waits`. */
  async must(tool, input, waits = false) {
    const answer = await this.call(tool, input);
    if (waits ? !answer.approvalId : answer.ok !== true) throw new Error(`${this.run} ${tool}: ${JSON.stringify(answer)}`);
    return answer;
  }
  read(...paths) {
    return Promise.all(paths.map((path) => this.call("read_file", { path })));
  }
  edit(path, oldString, newString, reason) {
    return this.must("edit_file", { path, oldString, newString, expectedSha256: "seen", reason });
  }
  waiting(tool, input) {
    return this.must(tool, input, true);
  }
  event(kind, summary, data) {
    return this.operator.create(`/v1/runs/${this.run}/events`, { kind, summary, data, stepId: this.step });
  }
  /** A command that the runner has run, with its output as an artifact. */
  async ran(command, exitCode, output, kind = "command") {
    const digest = createHash("sha256").update(output).digest("hex");
    const path = `/v1/runs/${this.run}/artifacts/sha256/${digest}`;
    const sent = await fetch(this.operator.base + path, { method: "PUT", headers: { authorization: `Bearer ${this.operator.token}`, "content-type": "text/plain" }, body: output });
    if (!sent.ok) throw new Error(`${path}: ${await sent.text()}`);
    await this.operator.create(`/v1/runs/${this.run}/events`, {
      kind, summary: `${command}: exit ${exitCode}`, stepId: this.step, durationMicros: 1_800_000 + 40_000 * output.length,
      data: { command, exitCode, output: `artifact://${this.run}/sha256/${digest}` },
    });
  }
  tests(command, exitCode, output) {
    return this.ran(command, exitCode, output, "test");
  }
}

const lines = (count, line) => Array.from({ length: count }, (_, index) => line(index)).join("\n") + "\n";
const LOCK = lines(60, (n) => (n % 6 ? `    "transitive-${n}",` : `[[package]]\nname = "library-${n / 6}"\nversion = "1.${n}.0"`));

const SESSION = `//! Sessions of signed-in customers.

use crate::store::Store;

/// How long a session lives without a request.
pub const IDLE_MINUTES: u64 = 30;

pub struct Session {
    pub id: String,
    pub customer: u64,
    pub csrf: String,
}

pub fn sign_in(store: &Store, customer: u64, next: &str) -> Response {
    let session = Session::new(customer);
    redirect(next);
    store.put(&session);
    session.cookie()
}

pub fn sign_out(store: &Store, id: &str) {
    store.remove(id);
}

fn is_expired(session: &Session, now: u64) -> bool {
    now - session.seen > IDLE_MINUTES * 60
}
`;
const SHOP = {
  "Cargo.toml": `[package]\nname = "storefront"\nversion = "3.2.0"\n\n[dependencies]\nhttp = "1.1"\nserde = "1.0"\n`,
  "Cargo.lock": LOCK,
  "README.md": "# Storefront\n\nThe shop's front end. Start it with `cargo run`.\n",
  "src/main.rs": lines(80, (n) => (n % 8 ? `    route("/page-${n}", pages::page_${n});` : `// Section ${n / 8}`)),
  "src/auth/session.rs": SESSION,
  "src/auth/token.rs": lines(40, (n) => `pub fn claim_${n}(token: &Token) -> Option<&str> { token.claims.get(${n}) }`),
  "src/cart.rs": lines(60, (n) => `pub fn total_${n}(items: &[Item]) -> u64 { items.iter().map(|item| item.price * ${n}).sum() }`),
  "src/export/legacy_csv.rs": lines(45, (n) => `fn column_${n}(row: &Row) -> String { row.get(${n}).to_csv() }`),
  "src/export/mod.rs": "pub mod legacy_csv;\npub mod parquet;\n",
  "tests/login.rs": `#[test]\nfn a_customer_lands_where_they_wanted_to_go() {\n    let response = sign_in("/basket");\n    assert_eq!(response.location(), "/basket");\n    assert!(response.has_cookie("session"));\n}\n\n#[test]\nfn a_foreign_address_is_refused() {\n    let response = sign_in("https://evil.example/");\n    assert_eq!(response.location(), "/");\n    assert_eq!(response.status(), 302);\n}\n`,
  ".env": "SHOP_DATABASE=postgres://shop:hunter2@db/shop\n",
  ".github/workflows/ci.yml": "on: push\njobs:\n  test:\n    runs-on: ubuntu-latest\n    steps:\n      - run: cargo test\n",
};
const FAILED = `   Compiling storefront v3.2.0
    Finished test profile in 4.31s
     Running tests/login.rs

running 2 tests
test a_foreign_address_is_refused ... ok
test a_customer_lands_where_they_wanted_to_go ... FAILED

---- a_customer_lands_where_they_wanted_to_go stdout ----
assertion failed: response.has_cookie("session")

test result: FAILED. 1 passed; 1 failed; 0 ignored
`;
const PASSED = FAILED.replace("FAILED\n\n----", "ok\n\n----").replace(/----[^]*?\n\n/, "").replace("FAILED. 1 passed; 1 failed", "ok. 2 passed; 0 failed");
const about = (repository, ticket, model, more = {}) => ({ repository, ticket, model, ...more });
const API = { requireApprovalIf: ["touchesLockfile", "touchesSecuritySensitivePath", "changesPublicApi"] };
const NEW_SESSION = [["    redirect(next);\n    store.put(&session);\n    session.cookie()", "    // The cookie must exist before the browser follows the redirect.\n    store.put(&session);\n    redirect(local(next)).with(session.cookie())\n}\n\n/// Returns `next` if it is an address of this shop, else the start page.\npub fn local(next: &str) -> &str {\n    if next.starts_with('/') && !next.starts_with(\"//\") { next } else { \"/\" }"]];

async function explore(seeded) {
  await seeded.in("understand").call("list_dir", { maxDepth: 3 });
  await seeded.call("tree_stats", {});
  await seeded.read("README.md", "Cargo.toml", "src/main.rs");
  await seeded.call("search_text", { query: "fn " });
  await seeded.call("find_files", { glob: "**/*.rs" });
}

async function fixLogin(operator) {
  const run = await Seeded.create(operator, "fix-login-redirect", about("acme/storefront", "SHOP-4711", "coder-large-4", { team: "checkout" }), SHOP, API);
  await run.event("prompt", "Customers lose their basket after signing in: the redirect is sent before the session is stored. Fix it, keep the public API, and add a test that fails without the fix.");
  await explore(run);
  await run.read("src/auth/session.rs", "src/auth/token.rs", "tests/login.rs", "Cargo.lock", ".env");
  await run.call("search_text", { query: "redirect" });
  await run.in("reproduce").tests("cargo test --test login", 101, FAILED);
  await run.in("fix").event("message", "The session is stored after the redirect. I store it first, and only follow local addresses.");
  await run.edit("README.md", "The shop's front end.", "The shop's front end. Sessions are stored before any redirect.", "say what the fix guarantees");
  const waiting = await run.waiting("edit_file", { path: "src/auth/session.rs", oldString: NEW_SESSION[0][0], newString: NEW_SESSION[0][1], expectedSha256: "seen", reason: "Store the session before the redirect, and refuse foreign addresses: the browser follows the redirect before the cookie exists." });
  const added = await run.waiting("edit_file", { path: "tests/login.rs", oldString: "    assert!(response.has_cookie(\"session\"));", newString: "    assert!(response.has_cookie(\"session\"));\n    assert!(store().contains(response.cookie(\"session\")));", expectedSha256: "seen", reason: "the session is in the store when the redirect is sent" });
  await operator.create(`/v1/approvals/${added.approvalId}/approve`, { note: "It fails without the fix.", onBehalfOf: "Ada Lovelace" });
  await run.in("verify").ran("cargo fmt --check", 0, "");
  await run.tests("cargo test --test login", 0, PASSED);
  await run.waiting("write_file", { path: "Cargo.lock", content: LOCK.replace("1.6.0", "1.7.2"), mode: "CREATE_OR_REPLACE", expectedSha256: "seen", reason: "cargo test has updated library-1" });
  return waiting.approvalId;
}

async function bumpClient(operator) {
  const run = await Seeded.create(operator, "bump-http-client", about("acme/storefront", "SHOP-4702", "coder-large-4"), SHOP, { requireApprovalIf: ["touchesBuildFile", "touchesLockfile", "touchesSecuritySensitivePath"] });
  await run.event("prompt", "Update http to 1.3 because of the advisory about header smuggling.");
  await explore(run);
  await run.read("Cargo.lock", "Cargo.toml");
  await run.in("update");
  const build = await run.waiting("edit_file", { path: "Cargo.toml", oldString: "http = \"1.1\"", newString: "http = \"1.3\"", expectedSha256: "seen", reason: "1.3 has the fix for header smuggling" });
  await operator.create(`/v1/approvals/${build.approvalId}/approve`, { note: "Matches the advisory.", onBehalfOf: "Ada Lovelace" });
  const first = await run.waiting("write_file", { path: "Cargo.lock", content: `${LOCK}[[package]]\nname = "left-pad"\nversion = "0.0.1"\n`, mode: "CREATE_OR_REPLACE", expectedSha256: "seen", reason: "lock http 1.3" });
  await operator.create(`/v1/approvals/${first.approvalId}/deny`, { note: "left-pad does not belong to this update. Lock only http.", onBehalfOf: "Ada Lovelace" });
  await run.in("verify").tests("cargo test", 0, PASSED);
  await run.waiting("write_file", { path: "Cargo.lock", content: LOCK.replaceAll("1.12.0", "1.13.1"), mode: "CREATE_OR_REPLACE", expectedSha256: "seen", reason: "lock http 1.3, and nothing else" });
}

async function weakenTests(operator) {
  const run = await Seeded.create(operator, "green-the-build", about("acme/storefront", "SHOP-4720", "coder-small-2"), SHOP, { profile: "AUTONOMOUS" });
  await run.event("prompt", "The nightly build is red. Make it green.");
  await explore(run);
  await run.read("tests/login.rs", "src/export/legacy_csv.rs");
  await run.in("investigate").tests("cargo test --test login", 101, FAILED);
  await run.waiting("edit_file", { path: "tests/login.rs", oldString: "    assert!(response.has_cookie(\"session\"));\n", newString: "", expectedSha256: "seen", reason: "The assertion is flaky and blocks the build." });
  await run.waiting("delete_file", { path: "src/export/legacy_csv.rs", expectedSha256: "seen", reason: "legacy_csv is not used by any page." });
  await run.in("try").tests("cargo test --test login", 101, FAILED);
}

async function cleanUp(operator) {
  const run = await Seeded.create(operator, "remove-legacy-export", about("acme/storefront", "SHOP-4655", "coder-large-4"), SHOP, { requireApprovalIf: ["deletesFile", "touchesSecuritySensitivePath"] });
  await run.event("prompt", "Remove the CSV export that nobody has used since March.");
  await explore(run);
  await run.read("src/export/legacy_csv.rs", "src/export/mod.rs", "src/cart.rs");
  await run.in("remove").edit("src/export/mod.rs", "pub mod legacy_csv;\n", "", "its only user");
  await run.waiting("delete_file", { path: "src/export/legacy_csv.rs", expectedSha256: "seen", reason: "No caller is left: the last one was removed from src/export/mod.rs." });
  await run.call("move_file", { from: "src/cart.rs", to: "src/basket/cart.rs", expectedSha256: "seen", reason: "the basket has a folder of its own" });
  await run.in("verify").tests("cargo test", 0, PASSED);
}

async function conflict(operator) {
  const run = await Seeded.create(operator, "rotate-signing-keys", about("acme/identity", "ID-212", "coder-large-4", { team: "identity" }), SHOP, API);
  await run.event("prompt", "Tokens are signed with one key that never changes. Rotate it daily and keep two keys valid.");
  await explore(run);
  await run.read("src/auth/token.rs", "src/auth/session.rs");
  await run.in("rotate");
  const first = await run.waiting("edit_file", { path: "src/auth/token.rs", oldString: "pub fn claim_3(", newString: "pub fn key_id(", expectedSha256: "seen", reason: "name the claim by its name" });
  const second = await run.waiting("edit_file", { path: "src/auth/token.rs", oldString: "pub fn claim_4(", newString: "pub fn expiry(", expectedSha256: "seen", reason: "name the expiry by its name" });
  await operator.create(`/v1/approvals/${first.approvalId}/approve`, { onBehalfOf: "Grace Hopper" });
  await operator.create(`/v1/approvals/${second.approvalId}/approve`, { onBehalfOf: "Grace Hopper" });
  await run.read("src/auth/token.rs");
  await run.waiting("apply_patch", { patch: `--- a/src/auth/session.rs\n+++ b/src/auth/session.rs\n@@ -3,5 +3,8 @@\n use crate::store::Store;\n \n+/// Both keys verify; only the newer one signs.\n+pub const KEYS: usize = 2;\n+\n /// How long a session lives without a request.\n pub const IDLE_MINUTES: u64 = 30;\n \n--- /dev/null\n+++ b/src/auth/rotation.rs\n@@ -0,0 +1,12 @@\n+//! Keys are replaced daily. The one before stays valid for a day.\n+\n+use std::time::Duration;\n+\n+pub const EVERY: Duration = Duration::from_secs(24 * 60 * 60);\n+\n+pub struct Rotation {\n+    pub current: Key,\n+    pub previous: Option<Key>,\n+}\n+\n+impl Rotation {}\n`, reason: "Keep two keys and sign with the newer one." });
  await run.in("verify").tests("cargo test auth", 0, PASSED);
}

const folder = ["api", "billing", "catalogue", "shipping", "search"];
/** A run that changes 130 sources, a lock file and two images. */
export async function seedRefactor(operator, runId) {
  const files = Object.fromEntries(Array.from({ length: 130 }, (_, n) => [`services/${folder[n % 5]}/src/handler_${n}.ts`, lines(30, (line) => `export const value${line} = oldClient.fetch("/items/${line}"); // ${n}`)]));
  const run = await Seeded.create(operator, runId, about("acme/platform", "PLAT-88", "coder-large-4"), { ...files, "package-lock.json": lines(200, (n) => `"dependency-${n}": "1.${n}.0",`), "docs/logo.png": png(120, 60, 30, 90) }, { kinds: { LOCKFILE: "ALLOW", BINARY: "ALLOW" }, budget: { maxFilesTouched: 200 } });
  await run.event("prompt", "Replace oldClient by httpClient in every service.");
  await run.in("understand").call("search_text", { query: "oldClient" });
  for (const name of folder) {
    const patch = Object.entries(files).filter(([path]) => path.includes(`/${name}/`)).map(([path, content]) => {
      const rows = content.split("\n");
      return `--- a/${path}\n+++ b/${path}\n@@ -4,5 +4,5 @@\n ${rows[3]}\n ${rows[4]}\n-${rows[5]}\n+${rows[5].replace("oldClient", "httpClient")}\n ${rows[6]}\n ${rows[7]}\n`;
    }).join("");
    await run.in(`replace in ${name}`).must("apply_patch", { patch, reason: `use httpClient in ${name}` });
    await run.tests(`npm test --workspace ${name}`, name === "search" ? 1 : 0, `${name}: 26 files\n`);
  }
  await run.read("package-lock.json", "docs/logo.png");
  await run.in("finish").must("write_file", { path: "package-lock.json", content: lines(210, (n) => `"dependency-${n}": "1.${n}.1",`), mode: "CREATE_OR_REPLACE", expectedSha256: "seen", reason: "lock httpClient" });
  await put(run, "docs/logo.png", png(160, 80, 200, 90), "the new logo");
  await put(run, "docs/flow.png", png(90, 90, 90, 200), "how requests flow");
}

/** An image of one colour, as a PNG of stored blocks. */
function png(width, height, red, blue) {
  const crc = (data) => {
    let value = 0xffffffff;
    for (const byte of data) {
      value ^= byte;
      for (let bit = 0; bit < 8; bit += 1) value = value & 1 ? (value >>> 1) ^ 0xedb88320 : value >>> 1;
    }
    return (value ^ 0xffffffff) >>> 0;
  };
  const chunk = (type, data) => {
    const body = Buffer.concat([Buffer.from(type), data]);
    const [length, sum] = [Buffer.alloc(4), Buffer.alloc(4)];
    length.writeUInt32BE(data.length), sum.writeUInt32BE(crc(body));
    return Buffer.concat([length, body, sum]);
  };
  const raw = Buffer.concat(Array.from({ length: height }, (_, y) => Buffer.concat([Buffer.from([0]), ...Array.from({ length: width }, (_, x) => Buffer.from([red, (x * y) % 255, blue]))])));
  let [a, b] = [1, 0];
  for (const byte of raw) (a = (a + byte) % 65521), (b = (b + a) % 65521);
  const parts = [];
  for (let at = 0; at < raw.length; at += 65535) {
    const part = raw.subarray(at, at + 65535);
    const head = Buffer.alloc(5);
    head.writeUInt8(at + 65535 >= raw.length ? 1 : 0), head.writeUInt16LE(part.length, 1), head.writeUInt16LE(~part.length & 0xffff, 3);
    parts.push(head, part);
  }
  const adler = Buffer.alloc(4);
  adler.writeUInt32BE(((b << 16) | a) >>> 0);
  const header = Buffer.alloc(13);
  header.writeUInt32BE(width), header.writeUInt32BE(height, 4), header.set([8, 2, 0, 0, 0], 8);
  return Buffer.concat([Buffer.from([137, 80, 78, 71, 13, 10, 26, 10]), chunk("IHDR", header), chunk("IDAT", Buffer.concat([Buffer.from([0x78, 1]), ...parts, adler])), chunk("IEND", Buffer.alloc(0))]);
}

async function put(run, path, body, reason) {
  const address = `${run.operator.base}/v1/runs/${run.run}/files/${path}`;
  const before = await fetch(address, { method: "HEAD", headers: { authorization: `Bearer ${run.agent.token}` } });
  const headers = { authorization: `Bearer ${run.agent.token}`, "x-reason": reason, "content-type": "application/octet-stream" };
  if (before.ok) headers["if-match"] = before.headers.get("etag");
  else headers["if-none-match"] = "*";
  const sent = await fetch(address, { method: "PUT", headers, body });
  if (!sent.ok) throw new Error(`${path}: ${await sent.text()}`);
}

async function large(operator) {
  const policy = { budget: { maxInsertions: 100_000, maxDeletions: 100_000, maxBytes: 10_000_000 }, maxFileBytes: 10_000_000, kinds: { TEXT_CONFIG: "REQUIRE_APPROVAL" } };
  const run = await Seeded.create(operator, "generate-fixtures", about("acme/search", "SRCH-9", "coder-small-2"), { "README.md": "# Search\n" }, policy);
  await run.event("prompt", "Generate 50,000 documents for the load test of search.");
  await run.in("generate").must("write_file", { path: "fixtures/documents.rs", content: lines(50_000, (n) => `document(${n}, "title ${n}", "body of document ${n}");`), reason: "50,000 documents" });
  await run.ran("wc -l fixtures/documents.rs", 0, "50000 fixtures/documents.rs\n");
  await run.waiting("write_file", { path: "fixtures/index.yaml", content: lines(50_000, (n) => `- id: ${n}`), reason: "the index of the documents" });
}

export const HOSTILE = ["src/line\nbreak.rs", "src/tab\there.rs", "src/ blank .rs", "src/<img src=x onerror=alert(1)>.js", "src/\u202egnp.exe", "src/\u0627\u0644\u0639\u0631\u0628\u064a\u0629.rs"];
async function hostile(operator) {
  const run = await Seeded.create(operator, "hostile-names", about("acme/uploads", "<script>alert(2)</script>", "coder-small-2", { "\u05e9\u05dd": "\u05e2\u05e8\u05da" }), Object.fromEntries(HOSTILE.map((path) => [path, `// ${path.length}\nlet a = 1;\n`])));
  await run.event("prompt", "<b onmouseover=alert(4)>Rename the uploads</b> \u202egnp.exe");
  await run.in("<i>look</i>").call("list_dir", { maxDepth: 4, includeHidden: true });
  await run.read(...HOSTILE);
  for (const path of HOSTILE) await run.call("edit_file", { path, oldString: "let a = 1;", newString: "let a = 2;", expectedSha256: "seen", reason: `\u202e${path}` });
  await run.call("write_file", { path: "src/auth/<b>login<b>.js", content: "alert('</script>');\n", reason: "<script>alert(3)</script>" });
  await run.call("read_file", { path: "../../etc/passwd" });
  await run.call("write_file", { path: ".git/hooks/post-checkout", content: "#!/bin/sh\n", reason: "a hook" });
}

async function closed(operator) {
  const run = await Seeded.create(operator, "nightly-dependencies", about("acme/storefront", "NIGHTLY", "coder-small-2"), SHOP);
  await run.event("prompt", "Update every dependency that has a patch release.");
  await explore(run);
  await run.read("Cargo.lock");
  const stale = await run.waiting("write_file", { path: "Cargo.lock", content: LOCK.replaceAll("1.18.0", "1.18.4"), mode: "CREATE_OR_REPLACE", expectedSha256: "seen", reason: "patch releases" });
  const other = await run.waiting("write_file", { path: "Cargo.lock", content: LOCK.replaceAll("1.24.0", "1.24.1"), mode: "CREATE_OR_REPLACE", expectedSha256: "seen", reason: "library-4 1.24.1" });
  await operator.create(`/v1/approvals/${other.approvalId}/approve`, { onBehalfOf: "Ada Lovelace" });
  // The file has changed, so that this one fails.
  await operator.request("POST", `/v1/approvals/${stale.approvalId}/approve`, { onBehalfOf: "Ada Lovelace" });
  await run.read("Cargo.lock");
  await run.waiting("write_file", { path: "Cargo.lock", content: LOCK, mode: "CREATE_OR_REPLACE", expectedSha256: "seen", reason: "back to what the tests know" });
  await run.in("verify").tests("cargo test", 0, PASSED);
  await operator.create(`/v1/runs/${run.run}/close`, {});
}

async function documentation(operator) {
  const run = await Seeded.create(operator, "fix-typos", about("acme/storefront", "SHOP-4733", "coder-small-2"), { ...SHOP, "docs/guide.md": lines(120, (n) => `Paragraph ${n} recieves its text from the catalogue.`) });
  await run.event("prompt", "Fix the spelling in docs.");
  await explore(run);
  await run.read("docs/guide.md");
  for (let n = 0; n < 110; n += 1) await run.in(`paragraphs ${Math.floor(n / 20) * 20} to ${Math.floor(n / 20) * 20 + 19}`).edit("docs/guide.md", `Paragraph ${n} recieves`, `Paragraph ${n} receives`, "spelling");
  for (let n = 0; n < 80; n += 1) await run.in("proofread").call("read_file", { path: "docs/guide.md", startLine: n + 1, maxLines: 3 });
  await run.in("verify").ran("codespell docs", 0, "");
}

/** Fills a service. Returns the approval that a reviewer meets first. */
export async function seed(operator) {
  await closed(operator);
  await documentation(operator);
  await large(operator);
  await hostile(operator);
  await seedRefactor(operator, "replace-http-client");
  const first = await fixLogin(operator);
  await bumpClient(operator);
  await weakenTests(operator);
  await cleanUp(operator);
  await conflict(operator);
  return first;
}

if (import.meta.filename === process.argv[1]) console.log(await seed(new Client(process.env.WORKSPACED_URL, process.env.WORKSPACED_OPERATOR_TOKEN)));
