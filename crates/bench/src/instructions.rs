//! Instructions per call, counted under valgrind: a figure that the load of the machine does not change.
//!
//! One server receives all calls, each kind over one connection. After a warm-up, the counts are set to zero and read after
//! [`CALLS`] calls: they have what the whole process did for them, with their records and what follows their answers. The call that
//! opens a run is the first one after a restart.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use hyper::Method;
use serde_json::{Value, json};

use crate::api::RunHandle;
use crate::args::Options;
use crate::client::{Connection, Prepared, prepare};
use crate::measures::{patch, writes};
use crate::testbed::Testbed;
use crate::text::{lines_of, sha256};

/// Calls of each kind before those that are counted, so that caches are filled.
const WARM_UP: usize = 20;
/// How often calls of each kind are counted. The least count is taken: in the others, the server may have done work of its own, such as
/// signing a checkpoint.
const BATCHES: usize = 5;
/// Calls that are counted together.
const CALLS: usize = 40;
/// How often the larger run is opened. The least count is taken.
const RESTARTS: usize = 3;
/// How long the server may still work for calls that are answered.
const SETTLE_TIME: Duration = Duration::from_millis(300);
/// By how much a count may grow, in percent.
const MAX_GROWTH: f64 = 2.0;

/// What to do about a count that has grown.
const GROWN: &str = "a call takes over 2 % more instructions than the table says, or is not in it. Look for the reason: \
    `valgrind --tool=callgrind` and `callgrind_annotate --inclusive=yes` show where they go. If the change is worth them, run \
    `.ci/instructions --write`, commit the table with the change, and say in the commit why";

/// What is sent in turn, by name.
type Calls = Vec<(&'static str, Vec<Prepared>)>;

/// The kinds of calls. `late-patch` patches as `patch` does, in a run that has changed [`CHANGED_FILES`] files; `open` opens that run.
const NAMES: [&str; 8] = ["read", "list", "search", "write", "edit", "patch", "late-patch", "mcp-read"];
const OPEN: &str = "open";
/// The files that the larger run has changed before.
const CHANGED_FILES: usize = 2000;
/// The files of one call: the default budget.
const FILES_OF_CALL: usize = 20;

/// Counts the instructions of each kind of call, and prints them beside those of `table`: a line for each kind, with its name and thousands
/// of instructions. With `write`, replaces the table.
///
/// The table begins with the versions of the compiler and of valgrind. Counts that were taken with others are printed, and not judged.
///
/// # Errors
///
/// When a count has grown and is not to be written; when valgrind cannot run the server, or a call fails.
pub(crate) fn compare(options: &Options, table: &Path, write: bool) -> anyhow::Result<()> {
    let before = std::fs::read_to_string(table).with_context(|| format!("cannot read {}", table.display()))?;
    let tools = format!("# {}, {}", version("rustc")?, version("valgrind")?);
    let is_comparable = before.lines().next() == Some(&tools);
    pin_to_one_core()?;
    let (mut after, mut has_grown) = (format!("{tools}\n"), false);
    println!("thousands of instructions per call: the table's, and now");
    for (name, now) in count(options)? {
        writeln!(after, "{name} {now:.1}")?;
        let known = counted(&before, name);
        let growth = known.map(|known| (now / known - 1.0) * 100.0);
        let is_grown = growth.is_none_or(|growth| growth > MAX_GROWTH);
        has_grown |= is_grown;
        let known = known.map_or_else(String::new, |known| format!("{known:.1}"));
        let growth = growth.map_or_else(|| "not in the table".to_owned(), |growth| format!("{growth:+.1} %"));
        let mark = if is_grown && is_comparable { "   TOO MUCH" } else { "" };
        println!("{name:8} {known:>9} {now:>9.1}   {growth}{mark}");
    }
    if write {
        std::fs::write(table, after)?;
    } else if is_comparable {
        anyhow::ensure!(!has_grown, GROWN);
    } else {
        println!(
            "not judged: these were counted with {tools}, those of the table with others. `.ci/instructions --write` replaces them"
        );
    }
    Ok(())
}

/// Returns the first line that a program prints about its version.
fn version(program: &str) -> anyhow::Result<String> {
    let output = Command::new(program).arg("--version").output();
    let output = output.with_context(|| format!("{program} cannot be run: install it"))?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

/// Returns the count of a kind of call in a table.
fn counted(table: &str, name: &str) -> Option<f64> {
    table.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok())
}

/// Lets this process, and those that it starts, use one core: valgrind runs one thread at a time anyway, and threads that take turns on
/// several cores wait for each other by turns that differ between runs.
fn pin_to_one_core() -> anyhow::Result<()> {
    let all = rustix::thread::sched_getaffinity(None)?;
    let mut one = rustix::thread::CpuSet::new();
    let first = (0..rustix::thread::CpuSet::MAX_CPU).find(|core| all.is_set(*core)).context("no core")?;
    one.set(first);
    Ok(rustix::thread::sched_setaffinity(None, &one)?)
}

/// Returns how many thousands of instructions a server executes for a call of each kind.
fn count(options: &Options) -> anyhow::Result<Vec<(&'static str, f64)>> {
    let folder = tempfile::tempdir()?;
    let (script, counts) = (folder.path().join("workspaced"), folder.path().join("counts"));
    let server =
        options.server.clone().map_or_else(|| Ok(std::env::current_exe()?.with_file_name("workspaced")), anyhow::Ok)?;
    anyhow::ensure!(server.exists(), "{} does not exist: build it first, or name one with --server", server.display());
    let started = format!(
        "#!/bin/sh\nexec valgrind -q --tool=callgrind --callgrind-out-file='{}' '{}' \"$@\"\n",
        counts.display(),
        std::path::absolute(server)?.display()
    );
    std::fs::write(&script, started)?;
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o700))?;
    let mut options = options.clone();
    (options.server, options.backend) = (Some(script), "sqlite".to_owned());
    let mut testbed = Testbed::start(&options)?;
    let many = run_with_changes(&testbed)?;
    let calls = calls(&testbed, &many)?;
    let (mut counted, mut dumps) = (Vec::new(), 0);
    let mut process = testbed.server_id().context("the server is not started here")?;
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    let thousands = |instructions: u64, calls: usize| instructions as f64 / calls as f64 / 1000.0;
    for (name, requests) in calls {
        let mut connection = testbed.runtime.block_on(Connection::open(testbed.api.address))?;
        let mut requests = requests.iter().cycle();
        let mut send = |count: usize| {
            testbed.runtime.block_on(async {
                for request in requests.by_ref().take(count) {
                    connection.send_and_discard(request).await?;
                }
                tokio::time::sleep(SETTLE_TIME).await;
                anyhow::Ok(())
            })
        };
        send(WARM_UP)?;
        let mut least = u64::MAX;
        for _ in 0..BATCHES {
            control("--zero", process)?;
            send(CALLS)?;
            control("--dump", process)?;
            dumps += 1;
            least = least.min(total(&counts.with_extension(dumps.to_string()))?);
        }
        counted.push((name, thousands(least, CALLS)));
    }
    let mut least = u64::MAX;
    for _ in 0..RESTARTS {
        testbed.restart()?;
        process = testbed.server_id().context("the server is not started here")?;
        // Another run's call fills what all runs share.
        let other = testbed.create_run("other", &[("a.rs".to_owned(), String::new())])?;
        testbed.tool(&other, "read_file", &json!({ "path": "a.rs" }))?;
        std::thread::sleep(SETTLE_TIME);
        control("--zero", process)?;
        testbed.tool(&many, "read_file", &json!({ "path": changed_file(0) }))?;
        std::thread::sleep(SETTLE_TIME);
        control("--dump", process)?;
        // A process numbers its files from 1.
        least = least.min(total(&counts.with_extension("1"))?);
    }
    counted.push((OPEN, thousands(least, 1)));
    testbed.stop()?;
    Ok(counted)
}

/// Tells valgrind in `process` to set its counts to zero, or to write them to its next file.
fn control(what: &str, process: u32) -> anyhow::Result<()> {
    let output = Command::new("callgrind_control").arg(what).arg(process.to_string()).output();
    let output = output.context("callgrind_control cannot be run: it is a part of valgrind")?;
    let (text, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    anyhow::ensure!(output.status.success() && text.contains("OK"), "callgrind_control {what}: {text}{error}");
    Ok(())
}

/// Returns the instructions in a file of counts.
fn total(file: &Path) -> anyhow::Result<u64> {
    let text = std::fs::read_to_string(file).with_context(|| format!("valgrind has written no {}", file.display()))?;
    let total = text.lines().find_map(|line| line.strip_prefix("totals: ")?.trim().parse().ok());
    total.with_context(|| format!("{} has no total", file.display()))
}

/// Creates a run that has changed [`CHANGED_FILES`] files, besides those that `late-patch` changes.
fn run_with_changes(testbed: &Testbed) -> anyhow::Result<RunHandle> {
    let run = testbed.create_run("changed", &patch::files_of(0))?;
    for first in (0..CHANGED_FILES).step_by(FILES_OF_CALL) {
        let mut patch = String::new();
        for file in first..first + FILES_OF_CALL {
            write!(patch, "--- /dev/null\n+++ b/{}\n@@ -0,0 +1 @@\n+one\n", changed_file(file))?;
        }
        testbed.tool(&run, "apply_patch", &json!({ "patch": patch, "reason": "bench" }))?;
    }
    Ok(run)
}

fn changed_file(number: usize) -> String {
    format!("changed/part_{:02}/file_{number:04}.rs", number % 50)
}

/// Creates a run, and returns what is sent to it and to `many`. Changes come in pairs of which the second undoes the first.
fn calls(testbed: &Testbed, many: &RunHandle) -> anyhow::Result<Calls> {
    let read = ("src/read.rs".to_owned(), lines_of(1, 200, 100).concat());
    let listed = (0..60).map(|file| (format!("list/part_{}/file_{file:02}.rs", file % 3), "fn main() {}\n".to_owned()));
    let edited = lines_of(2, 64, 64);
    let mut files: Vec<_> = listed.collect();
    files.extend([read, ("src/edit.rs".to_owned(), edited.concat())]);
    files.extend(patch::files_of(0));
    files.push((writes::path(0), writes::version(0, None)));
    let run = testbed.create_run("instructions", &files)?;
    let page = json!({ "path": "src/read.rs" });
    let edit = |from: &str, to: &str, before: &str| {
        let expected = sha256(before.as_bytes());
        run.prepare("edit_file", &json!({ "path": "src/edit.rs", "oldString": from, "newString": to, "expectedSha256": expected, "reason": "bench" }))
    };
    let (line, other) = (edited[31].trim(), "let harbor = lantern();");
    let (first, second) = (edited.concat(), edited.concat().replacen(line, other, 1));
    let calls = [
        vec![run.prepare("read_file", &page)?],
        vec![run.prepare("list_dir", &json!({ "path": "list", "maxDepth": 2 }))?],
        vec![run.prepare("search_text", &json!({ "query": "velvet", "path": "src/read.rs" }))?],
        writes::script(&run, 0, 8)?.into_requests(),
        vec![edit(line, other, &first)?, edit(other, line, &second)?],
        patch::script(0, &run)?.into_requests(),
        patch::script(0, many)?.into_requests(),
        vec![mcp_call(&run, "read_file", &page)?],
    ];
    Ok(NAMES.into_iter().zip(calls).collect())
}

/// Returns a call of a tool by the Model Context Protocol.
fn mcp_call(run: &RunHandle, tool: &str, arguments: &Value) -> anyhow::Result<Prepared> {
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": tool, "arguments": arguments } });
    let mut request = prepare(Method::POST, "/mcp", run.token(), message.to_string())?;
    let headers = request.headers_mut();
    headers.insert("accept", "application/json, text/event-stream".parse()?);
    headers.insert("mcp-protocol-version", "2025-06-18".parse()?);
    Ok(request)
}
