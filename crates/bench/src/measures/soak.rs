//! Mixed traffic for a long time: memory, open files and threads, and a check of every chain at the end.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use hyper::Method;
use serde_json::{Value, json};

use crate::api::RunHandle;
use crate::compare::Subject as _;
use crate::load::Script;
use crate::process::{open_files_of, status_of};
use crate::report::{Report, Row};
use crate::sample::{Sample, Spread};
use crate::testbed::Testbed;
use crate::text::{lines_of, sha256};

const CLIENTS: usize = 64;
const RUNS: usize = 16;

/// The resources of the server process.
#[derive(Clone, Copy, Debug)]
struct ProcessStats {
    resident: u64,
    open_files: usize,
    threads: u64,
}

/// Makes mixed calls for `minutes` and reads the resources of the process after each twentieth of the time.
pub(super) fn measure(testbed: &Testbed, minutes: u64, report: &mut Report) -> anyhow::Result<()> {
    let runs = (0..RUNS)
        .map(|run| testbed.create_run(&format!("soak-{run}"), &files()))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let scripts = (0..CLIENTS).map(|client| script(&runs[client % RUNS], client)).collect::<anyhow::Result<_>>()?;
    let mut traffic = testbed.service("soak", scripts);
    let (since, time) = (Instant::now(), Duration::from_mins(minutes));
    let (mut samples, mut stats) = (Vec::new(), Vec::new());
    while since.elapsed() < time {
        let sample = traffic.round(CLIENTS, (time / 20).max(Duration::from_secs(1)))?;
        stats.extend(process_stats(testbed));
        eprintln!("{:>5} s: {:>6.0} calls/s, {:?}", since.elapsed().as_secs(), sample.rate(), stats.last());
        samples.push(sample);
    }
    let records = runs.iter().map(|run| verify_chain(testbed, run)).sum::<anyhow::Result<u64>>()?;
    report.notes.push(format!("Every chain is intact after the soak: {records} records in {RUNS} runs."));
    rows(minutes, &samples, &stats, report)
}

fn rows(minutes: u64, samples: &[Sample], stats: &[ProcessStats], report: &mut Report) -> anyhow::Result<()> {
    let of = |figure: fn(&Sample) -> f64| Spread::of(samples.iter().map(figure));
    let mut row = Row::value(format!("mixed traffic for {minutes} min"), "/s", of(Sample::rate).context("no round")?);
    row.concurrency = Some(CLIENTS);
    row.p50_ms = of(|sample| sample.percentile(0.5));
    row.p99_ms = of(|sample| sample.percentile(0.99));
    report.rows.push(row);
    let (Some(last), early) = (stats.last(), stats.get(stats.len() / 10)) else { return Ok(()) };
    let early = early.unwrap_or(last);
    #[expect(clippy::cast_precision_loss, reason = "memory and counts are far below 2^52")]
    let figures = [
        ("memory (RSS)", " MB", early.resident as f64 / 1e6, last.resident as f64 / 1e6),
        ("open files", "", early.open_files as f64, last.open_files as f64),
        ("threads", "", early.threads as f64, last.threads as f64),
    ];
    for (name, unit, early, last) in figures {
        for (when, value) in [("after a tenth of the soak", early), ("at its end", last)] {
            report.rows.push(Row::value(format!("{name} {when}"), unit, Spread::single(value)));
        }
    }
    Ok(())
}

fn process_stats(testbed: &Testbed) -> Option<ProcessStats> {
    let id = testbed.server_id()?;
    Some(ProcessStats {
        resident: status_of(id, "VmRSS")?,
        open_files: open_files_of(id)?,
        threads: status_of(id, "Threads")?,
    })
}

/// Verifies the run's chain and returns its number of records.
fn verify_chain(testbed: &Testbed, run: &RunHandle) -> anyhow::Result<u64> {
    let path = format!("/v1/runs/{}/audit/verify", run.id);
    let answer = testbed.runtime.block_on(testbed.api.call(Method::GET, &path, &Value::Null))?;
    anyhow::ensure!(answer["intact"] == true, "the chain of {} is broken: {answer}", run.id);
    let facts = testbed.runtime.block_on(testbed.api.run(run))?;
    facts["headSeq"].as_u64().context("no `headSeq`")
}

fn path(client: usize) -> String {
    format!("src/harbor_{client:02}.rs")
}

fn content(client: usize) -> Vec<String> {
    lines_of(client as u64, 200, 64)
}

fn files() -> Vec<(String, String)> {
    (0..CLIENTS).map(|client| (path(client), content(client).concat())).collect()
}

/// Returns the calls of a client: mostly reads, and changes of its own file that are reverted later.
fn script(run: &RunHandle, client: usize) -> anyhow::Result<Script> {
    let (path, first) = (path(client), content(client));
    let mut second = first.clone();
    second[100] = lines_of(9_000 + client as u64, 1, 64).concat();
    let write = |from: &[String], to: &[String]| {
        let expected = sha256(from.concat().as_bytes());
        let input = json!({ "path": path, "content": to.concat(), "expectedSha256": expected, "reason": "soak" });
        run.prepare("write_file", &input)
    };
    let edit = |from: &str, to: &str| {
        let (above, below) = (&first[99], &first[101]);
        let text = format!("--- a/{path}\n+++ b/{path}\n@@ -100,3 +100,3 @@\n {above}-{from}+{to} {below}");
        run.prepare("apply_patch", &json!({ "patch": text, "reason": "soak" }))
    };
    let read = || run.prepare("read_file", &json!({ "path": path }));
    let list = || run.prepare("list_dir", &json!({ "path": "src" }));
    Ok(Script::new(vec![
        list()?,
        read()?,
        read()?,
        run.prepare("search_text", &json!({ "query": "granite", "maxMatches": 20 }))?,
        read()?,
        write(&first, &second)?,
        read()?,
        run.prepare("diff_workspace", &json!({}))?,
        write(&second, &first)?,
        read()?,
        list()?,
        read()?,
        edit(&first[100], &second[100])?,
        read()?,
        run.prepare("diff_workspace", &json!({ "statOnly": true }))?,
        edit(&second[100], &first[100])?,
    ]))
}
