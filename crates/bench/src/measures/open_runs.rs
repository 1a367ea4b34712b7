//! Memory per open run, and the start with many of them.

use std::time::Instant;

use serde_json::json;
use tokio::task::JoinSet;

use crate::api::Api;
use crate::args::Options;
use crate::process::SETTLE_TIME;
use crate::report::{Report, Row, Target};
use crate::sample::Spread;
use crate::testbed::{Scratch, client_runtime};

/// Connections that create runs.
const CONNECTIONS: usize = 8;

/// Creates `runs` runs with one file each, then restarts the server.
pub(super) fn measure(scratch: &Scratch, options: &Options, runs: usize, report: &mut Report) -> anyhow::Result<()> {
    let mut server = scratch.start(options, &scratch.data())?;
    let half = runs.div_ceil(2);
    let started = Instant::now();
    create_runs(&scratch.api(&server), half)?;
    let first = server.resident_bytes()?;
    create_runs(&scratch.api(&server), half)?;
    let each = started.elapsed().saturating_sub(SETTLE_TIME).as_secs_f64() * 1e3 / f64::from(u32::try_from(half * 2)?);
    let second = server.resident_bytes()?;
    server.stop()?;
    let starting = Instant::now();
    let again = scratch.start(options, &scratch.data())?;
    let start = starting.elapsed().as_secs_f64() * 1e3;
    // Only the second half: the first one includes what every process allocates once.
    let growth = (second - first) / 1e3 / f64::from(u32::try_from(half)?);
    let rows = [
        Row::value("memory per open run", " kB", Spread::single(growth)).with_target(Target::Kilobytes(20.0)),
        Row::value(format!("memory (RSS) with {runs} open runs"), " MB", Spread::single(second / 1e6)),
        Row::value(format!("start with {runs} open runs"), " ms", Spread::single(start))
            .with_target(Target::Millis(2_000.0)),
        Row::value(
            format!("memory (RSS) after a start with {runs} open runs"),
            " MB",
            Spread::single(again.resident_bytes()? / 1e6),
        ),
        Row::value("creating a run and writing a file", " ms", Spread::single(each)),
    ];
    report.rows.extend(rows);
    Ok(())
}

fn create_runs(api: &Api, runs: usize) -> anyhow::Result<()> {
    client_runtime()?.block_on(async {
        let mut tasks = JoinSet::new();
        for worker in 0..CONNECTIONS {
            let (api, share) = (api.clone(), (runs + worker) / CONNECTIONS);
            tasks.spawn(async move {
                for _ in 0..share {
                    let run = api.create_run(&json!({ "type": "empty" })).await?;
                    let input = json!({ "path": "note.md", "content": "a note\n", "reason": "bench" });
                    api.tool(&run, "write_file", &input).await?;
                }
                anyhow::Ok(())
            });
        }
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        Ok(())
    })
}
