//! Mixed traffic for a long time: memory, handles and threads stay flat, every chain is intact at the end.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use hyper::Method;
use serde_json::{Value, json};

use crate::api::RunHandle;
use crate::compare::Subject as _;
use crate::load::Script;
use crate::process::{handles_of, status_of};
use crate::report::{Report, Row};
use crate::sample::{Sample, Spread};
use crate::stage::Stage;
use crate::text::{lines_of, sha256};

const CLIENTS: usize = 64;
const RUNS: usize = 16;

/// What the process held at a time.
#[derive(Clone, Copy, Debug)]
struct Held {
    resident: u64,
    handles: usize,
    threads: u64,
}

/// Makes mixed calls for `minutes`, and looks at the process after each twentieth of the time.
pub(super) fn measure(stage: &Stage, minutes: u64, report: &mut Report) -> anyhow::Result<()> {
    let runs =
        (0..RUNS).map(|run| stage.run_of(&format!("soak-{run}"), &files())).collect::<anyhow::Result<Vec<_>>>()?;
    let scripts = (0..CLIENTS).map(|client| script(&runs[client % RUNS], client)).collect::<anyhow::Result<_>>()?;
    let mut traffic = stage.service("soak", scripts);
    let (since, time) = (Instant::now(), Duration::from_mins(minutes));
    let (mut samples, mut held) = (Vec::new(), Vec::new());
    while since.elapsed() < time {
        let sample = traffic.round(CLIENTS, (time / 20).max(Duration::from_secs(1)))?;
        held.extend(look(stage));
        eprintln!("{:>5} s: {:>6.0} calls/s, {:?}", since.elapsed().as_secs(), sample.rate(), held.last());
        samples.push(sample);
    }
    let records = runs.iter().map(|run| verified(stage, run)).sum::<anyhow::Result<u64>>()?;
    report.notes.push(format!("Every chain was intact after the soak: {records} records in {RUNS} runs."));
    rows(minutes, &samples, &held, report)
}

fn rows(minutes: u64, samples: &[Sample], held: &[Held], report: &mut Report) -> anyhow::Result<()> {
    let of = |figure: fn(&Sample) -> f64| Spread::of(samples.iter().map(figure));
    let mut row = Row::plain(format!("mixed traffic for {minutes} min"), "/s", of(Sample::rate).context("no round")?);
    row.concurrency = Some(CLIENTS);
    row.p50_ms = of(|sample| sample.percentile(0.5));
    row.p99_ms = of(|sample| sample.percentile(0.99));
    report.rows.push(row);
    let (Some(last), early) = (held.last(), held.get(held.len() / 10)) else { return Ok(()) };
    let early = early.unwrap_or(last);
    #[expect(clippy::cast_precision_loss, reason = "memory and counts are far below 2^52")]
    let figures = [
        ("memory (RSS)", " MB", early.resident as f64 / 1e6, last.resident as f64 / 1e6),
        ("handles", "", early.handles as f64, last.handles as f64),
        ("threads", "", early.threads as f64, last.threads as f64),
    ];
    for (name, unit, early, last) in figures {
        for (when, value) in [("after a tenth of the soak", early), ("at its end", last)] {
            let steady = Spread { median: value, min: value, max: value };
            report.rows.push(Row::plain(format!("{name} {when}"), unit, steady));
        }
    }
    Ok(())
}

fn look(stage: &Stage) -> Option<Held> {
    let id = stage.server_id()?;
    Some(Held { resident: status_of(id, "VmRSS")?, handles: handles_of(id)?, threads: status_of(id, "Threads")? })
}

/// How many records the run's chain has; an error where it is broken.
fn verified(stage: &Stage, run: &RunHandle) -> anyhow::Result<u64> {
    let path = format!("/v1/runs/{}/audit/verify", run.id);
    let answer = stage.runtime.block_on(stage.api.call(Method::GET, &path, &Value::Null))?;
    anyhow::ensure!(answer["intact"] == true, "the chain of {} is broken: {answer}", run.id);
    let facts = stage.runtime.block_on(stage.api.run(run))?;
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

/// What a client does in turn: mostly looking, now and then changing its own file and changing it back.
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
