//! Measures a ledger: `commits URL [SECONDS [RUNS [RECORDS [FIRST]]]]`.
//!
//! Appends reads and writes for SECONDS each, from 1 and from 64 concurrent callers, and prints throughput and latency. If RECORDS
//! is given, fills the ledger to that many records and appends again. Finally lists records by typical filters and prints the
//! duration. If SECONDS is 0, only lists. FIRST is the number of the first run, so that several processes can use runs of their
//! own in one database of PostgreSQL.
//!
//! Creates the database if it does not exist. Use a database that may be deleted.

use std::error::Error;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ledger::{Appended, Artifact, Entry, Ledger, LedgerError, RecordFilter, Reply, StoredRun};
use model::{
    ArtifactId, Budget, Code, Draft, FileKind, ImportReport, LogicalPath, Outcome, PeopleCounts, Policy, RecordFile,
    Run, RunCounts, RunId, RunState, Sha256, Source, Step, StepBytes, StepContent, Token, TokenId, ToolCallId, Usage,
    Verdict,
};

type Fallible<T> = Result<T, Box<dyn Error + Send + Sync>>;

const CALLERS: [u64; 2] = [1, 64];
/// Records per transaction when filling the ledger.
const FILL_BATCH: i64 = 1000;
/// The number of the first run.
static FIRST_RUN: AtomicU64 = AtomicU64::new(0);
const FILE: &str = "fn main() {\n    println!(\"a line of a file of some length\");\n}\n";
const DIFF: &str =
    "--- a/src/main.rs\n+++ b/src/main.rs\n@@ -1,3 +1,3 @@\n fn main() {\n-    old();\n+    new();\n }\n";

#[tokio::main]
async fn main() -> Fallible<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let url = args.first().ok_or("usage: commits URL [SECONDS [RUNS [RECORDS [FIRST]]]]")?;
    let number = |index: usize, default: u64| args.get(index).map_or(Ok(default), |text| text.parse());
    let (seconds, runs, records) = (number(1, 5)?, number(2, 64)?.max(1), number(3, 0)?);
    FIRST_RUN.store(number(4, 0)?, Ordering::Relaxed);
    let ledger = ledger::open(url).await?;
    for number in 0..runs {
        create_run(ledger.as_ref(), number).await?;
    }
    measure_appends(&ledger, seconds, runs).await?;
    if records > 0 {
        fill(ledger.as_ref(), i64::try_from(records)?, runs).await?;
        measure_appends(&ledger, seconds, runs).await?;
    }
    for (name, filter) in filters()? {
        measure_listing(ledger.as_ref(), name, &filter).await?;
    }
    ledger.close().await;
    Ok(())
}

/// Measures reads and writes at each number of callers.
async fn measure_appends(ledger: &Arc<dyn Ledger>, seconds: u64, runs: u64) -> Fallible<()> {
    for callers in CALLERS.into_iter().filter(|_| seconds > 0) {
        for mutate in [false, true] {
            measure(ledger, callers, mutate, Duration::from_secs(seconds), runs).await?;
        }
    }
    Ok(())
}

/// Appends reads and writes until the ledger has `records` records, and prints the duration.
async fn fill(ledger: &dyn Ledger, records: i64, runs: u64) -> Fallible<()> {
    let (started, first) = (Instant::now(), *ledger.newest_position().borrow());
    let mut newest = first;
    while newest < records {
        let numbers = newest + 1..=(newest + FILL_BATCH).min(records);
        // Every tenth call is a write, a typical ratio for agents.
        let entry = |number: u64| if number.is_multiple_of(10) { write(number, runs) } else { read(number, runs) };
        let entries: Vec<_> = numbers.clone().map(|number| entry(number.unsigned_abs())).collect::<Fallible<_>>()?;
        let Appended::Recorded(appended) = ledger.append(entries).await? else {
            return Err("calls were not recorded".into());
        };
        let written = appended.into_iter().filter(|record| record.mutates);
        ledger.prune(&written.map(|record| (record.run_id, record.seq)).collect::<Vec<_>>()).await?;
        newest = *numbers.end();
    }
    print(&format!("filled from {first} to {newest} records in {:?}", started.elapsed()))
}

/// Appends for `duration` from `callers` tasks, and prints throughput and latency.
async fn measure(ledger: &Arc<dyn Ledger>, callers: u64, mutate: bool, duration: Duration, runs: u64) -> Fallible<()> {
    // One counter for the process, because IDs increase with time.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let first = u64::try_from(*ledger.newest_position().borrow())? + 1;
    NEXT.fetch_max(first, Ordering::Relaxed);
    let stop = Arc::new(AtomicBool::new(false));
    let started = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..callers {
        let (ledger, stop) = (Arc::clone(ledger), Arc::clone(&stop));
        tasks.spawn(async move {
            let mut latencies = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let started = Instant::now();
                append(ledger.as_ref(), NEXT.fetch_add(1, Ordering::Relaxed), mutate, runs).await?;
                latencies.push(started.elapsed());
            }
            Fallible::Ok(latencies)
        });
    }
    tokio::time::sleep(duration).await;
    stop.store(true, Ordering::Relaxed);
    let mut latencies = Vec::new();
    while let Some(done) = tasks.join_next().await {
        latencies.extend(done??);
    }
    let elapsed = started.elapsed();
    latencies.sort_unstable();
    let permille = |share: usize| latencies.get(latencies.len() * share / 1000).copied().unwrap_or_default();
    let rate = u128::try_from(latencies.len())? * 1000 / elapsed.as_millis().max(1);
    let (what, max) = (if mutate { "writes" } else { "reads" }, latencies.last().copied().unwrap_or_default());
    print(&format!(
        "{what}, {callers:2} callers: {rate:6} per second; latency p50 {:?}, p99 {:?}, p99.9 {:?}, max {max:?}",
        permille(500),
        permille(990),
        permille(999),
    ))
}

async fn append(ledger: &dyn Ledger, number: u64, mutate: bool, runs: u64) -> Fallible<()> {
    let entry = if mutate { write(number, runs)? } else { read(number, runs)? };
    let records = match ledger.append(vec![entry]).await? {
        Appended::Recorded(records) => records,
        other => return Err(format!("a call was not recorded: {other:?}").into()),
    };
    if mutate {
        // The service prunes many records at a time.
        ledger.prune(&records.into_iter().map(|record| (record.run_id, record.seq)).collect::<Vec<_>>()).await?;
    }
    Ok(())
}

fn run_id(number: u64) -> Fallible<RunId> {
    Ok(RunId::parse(&format!("commits-{}", FIRST_RUN.load(Ordering::Relaxed) + number))?)
}

fn read(number: u64, runs: u64) -> Fallible<Entry> {
    let path = LogicalPath::parse(&format!("crates/part-{}/src/file-{}.rs", number % 40, number % 1009))?;
    let tool = match number {
        // A rarely used tool.
        _ if number % 20_000 == 7 => "tree_stats",
        _ if number.is_multiple_of(5) => "search_text",
        _ => "read_file",
    };
    let refused = number % 500 == 3;
    let call = ToolCallId::parse(&format!("tc_{number:032x}"))?;
    let actor = "run-token:tok_0192f0c1d2e3".into();
    let mut draft = Draft::new(run_id(number % runs)?, actor, tool, call, timestamp(number));
    if refused {
        (draft.code, draft.decision, draft.outcome) = (Some(Code::PolicyDenied), Verdict::Deny, Outcome::Refused);
    }
    draft.duration_micros = 312;
    draft.paths_read = vec![path];
    draft.reasons = vec!["profile:SUPERVISED_PR".into()];
    Ok(Entry::new(draft, Sha256::ZERO))
}

fn write(number: u64, runs: u64) -> Fallible<Entry> {
    let mut entry = read(number, runs)?;
    let path = entry.draft.paths_read.remove(0);
    let bytes = format!("// {number}\n{}", FILE.repeat(20)).into_bytes();
    let sha256 = Sha256::of(&bytes);
    let artifact_id = ArtifactId::parse(&format!("art_{number:032x}"))?;
    entry.draft.tool = "write_file".into();
    entry.draft.mutates = true;
    entry.draft.reason = Some("a reason of typical length, with the purpose of the change and its ticket".into());
    entry.draft.artifact_uris = vec![format!("artifact://{}/{artifact_id}", entry.draft.run_id)];
    let (before, after) = (Some((Sha256::ZERO, 0o644)), Some((sha256, 0o644)));
    entry.draft.files = vec![RecordFile::written(path.clone(), FileKind::TextSource, before, after)];
    entry.input_sha256 = sha256;
    entry.reply = Some(Reply { status: 200, body: format!("{{\"path\":\"{path}\",\"newSha256\":\"{sha256}\"}}") });
    let after = StepContent { sha256, mode: 0o644, bytes: StepBytes::Inline(bytes) };
    entry.steps = vec![Step { path: path.clone(), before: Some(Sha256::ZERO), after: Some(after) }];
    entry.draft.paths_written = vec![path];
    entry.draft.diff_sha256 = Some(Sha256::of(DIFF.as_bytes()));
    entry.artifact = Some(Artifact { artifact_id, diff: DIFF.as_bytes().to_vec() });
    entry.usage = Usage { files_touched: 1, insertions: 1, deletions: 1, files_deleted: 0, bytes: 64 };
    Ok(entry)
}

/// Returns a time that increases with `number`, by a second per thousand.
fn timestamp(number: u64) -> String {
    let (second, micros) = (number / 1000, number % 1000 * 1000);
    let (day, hour, minute) = (second / 86_400 + 1, second / 3600 % 24, second / 60 % 60);
    format!("2026-01-{day:02}T{hour:02}:{minute:02}:{:02}.{micros:06}Z", second % 60)
}

fn filters() -> Fallible<Vec<(&'static str, RecordFilter)>> {
    let all = RecordFilter::default;
    let text = |text: &str| Some(text.to_owned());
    Ok(vec![
        ("the first page", all()),
        ("a run", RecordFilter { run: Some(run_id(1)?), ..all() }),
        ("a common tool", RecordFilter { tool: text("write_file"), ..all() }),
        ("a rare tool", RecordFilter { tool: text("tree_stats"), ..all() }),
        ("an unused tool", RecordFilter { tool: text("move_file"), ..all() }),
        ("denied calls", RecordFilter { decision: text("DENY"), ..all() }),
        ("refused calls", RecordFilter { outcome: text("refused"), ..all() }),
        ("a path", RecordFilter { path: text("crates/part-7/src/file-7.rs"), ..all() }),
        ("a folder", RecordFilter { path: text("crates/part-7/"), ..all() }),
        ("a minute", RecordFilter { since: Some(timestamp(120_000)), until: Some(timestamp(180_000)), ..all() }),
        ("a rare tool in a run", RecordFilter { tool: text("tree_stats"), run: Some(run_id(1)?), ..all() }),
    ])
}

/// Lists the first page and one from the middle, and prints the durations.
async fn measure_listing(ledger: &dyn Ledger, name: &str, filter: &RecordFilter) -> Fallible<()> {
    let middle = *ledger.newest_position().borrow() / 2;
    for (page, after) in [("first", None), ("middle", Some(middle))] {
        let started = Instant::now();
        let found = ledger.records(filter, after, 100.into()).await?.len();
        print(&format!("{name}, {page} page: {found} records in {:?}", started.elapsed()))?;
    }
    Ok(())
}

fn print(line: &str) -> Fallible<()> {
    writeln!(std::io::stdout().lock(), "{line}")?;
    Ok(())
}

#[expect(clippy::too_many_lines, reason = "literals with every member")]
async fn create_run(ledger: &dyn Ledger, number: u64) -> Fallible<()> {
    let run_id = run_id(number)?;
    let policy = Policy {
        profile: "SUPERVISED_PR".into(),
        read: vec!["**".into()],
        write: vec!["**".into()],
        deny: vec![],
        ask: vec![],
        not_secret: Vec::new(),
        kinds: std::collections::BTreeMap::new(),
        budget: Budget::default(),
        command_budget: model::Budget::of_command(),
        run_budget: None,
        quota: model::Quota::default(),
        max_file_bytes: 1 << 20,
        max_transfer_bytes: 1 << 30,
        require_approval_if: std::collections::BTreeSet::new(),
        approval: model::ApprovalRule::default(),
        allow_mode_change: false,
        ignored_files: Verdict::Deny,
        symbolic_links: Verdict::Deny,
        outside_changes: model::OutsideChanges::Refuse,
        commands: model::CommandPolicy::default(),
        file_budget: Verdict::RequireApproval,
    };
    let run = Run {
        run_id: run_id.clone(),
        state: RunState::Open,
        created_at: timestamp(0),
        created_by: None,
        closed_at: None,
        expires_at: None,
        parent: None,
        forks: None,
        more_forks: false,
        archived_at: None,
        archive_uri: None,
        base_commit: None,
        source: Source::Empty {},
        policy,
        mounts: vec![],
        labels: std::collections::BTreeMap::new(),
        import: ImportReport::default(),
        counts: RunCounts::default(),
        people: PeopleCounts::default(),
        disk: model::DiskUse::default(),
        head_seq: 0,
        head_hash: Sha256::ZERO,
        last_activity_at: None,
        repository: None,
        agent: None,
        prompt: None,
    };
    let token = Token {
        token_id: TokenId::parse("tok_1")?,
        secret_sha256: Sha256::of(run_id.as_str().as_bytes()),
        run_id,
        permissions: vec![],
        expires_at: None,
        revoked: false,
    };
    let stored = StoredRun { run, usage: Usage::default(), mount_paths: vec![], needs_repair: false };
    match ledger.create_run(&stored, &token, Vec::new()).await {
        // Created by an earlier execution.
        Ok(_) | Err(LedgerError::AlreadyExists) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
