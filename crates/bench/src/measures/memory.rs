//! Idle memory after the start, and after 1,000 runs were created and closed.

use std::time::Instant;

use serde_json::json;

use crate::args::Options;
use crate::process::SETTLE_TIME;
use crate::report::{Report, Row, Target};
use crate::sample::Spread;
use crate::testbed::{Scratch, client_runtime};

const RUNS: usize = 1_000;

/// Measures idle memory.
pub(super) fn measure(scratch: &Scratch, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let server = scratch.start(options, &scratch.data())?;
    let (api, runtime) = (scratch.api(&server), client_runtime()?);
    let after_start = server.resident_bytes()?;
    let mut after = Vec::new();
    let started = Instant::now();
    for _ in 0..2 {
        runtime.block_on(async {
            for _ in 0..RUNS / 2 {
                let run = api.create_run(&json!({ "type": "empty" })).await?;
                api.close_run(&run).await?;
            }
            anyhow::Ok(())
        })?;
        after.push(server.resident_bytes()?);
    }
    let each = started.elapsed().saturating_sub(SETTLE_TIME * 2).as_secs_f64() * 1e3 / f64::from(u32::try_from(RUNS)?);
    let megabytes = |bytes: f64| Spread::single(bytes / 1e6);
    let target = Target::Megabytes(20.0);
    report
        .rows
        .push(Row::value("idle memory (RSS) after the start", " MB", megabytes(after_start)).with_target(target));
    let name = format!("idle memory (RSS) after {RUNS} closed runs");
    report.rows.push(Row::value(name, " MB", megabytes(after[1])).with_target(target));
    // Only the second half: the first one includes what every process allocates once.
    let growth = (after[1] - after[0]) / 1e3 / f64::from(u32::try_from(RUNS / 2)?);
    report
        .rows
        .push(Row::value("memory per closed run", " kB", Spread::single(growth)).with_target(Target::Kilobytes(1.0)));
    report.rows.push(Row::value("creating and closing an empty run", " ms", Spread::single(each)));
    Ok(())
}
