//! Idle memory: after the start, and after 1,000 runs that were created and closed.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::json;

use crate::args::Options;
use crate::process::{Server, status_of};
use crate::report::{Report, Row, Target};
use crate::sample::Spread;
use crate::stage::{Place, client_runtime};

const RUNS: usize = 1_000;
/// How long the server may rest before its memory is read.
const REST: Duration = Duration::from_secs(2);

/// Measures idle memory.
pub(super) fn measure(place: &Place, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    eprintln!("measuring: Memory");
    let server = place.start(options, &place.data())?;
    let (api, runtime) = (place.api(&server), client_runtime()?);
    let after_start = resident(&server)?;
    let mut after = Vec::new();
    let started = Instant::now();
    for _ in 0..2 {
        runtime.block_on(async {
            for _ in 0..RUNS / 2 {
                let run = api.make_run(&json!({ "type": "empty" })).await?;
                api.close_run(&run).await?;
            }
            anyhow::Ok(())
        })?;
        after.push(resident(&server)?);
    }
    let each = started.elapsed().saturating_sub(REST * 2).as_secs_f64() * 1e3 / f64::from(u32::try_from(RUNS)?);
    let steady = |value: f64| Spread { median: value, min: value, max: value };
    let megabytes = |bytes: f64| steady(bytes / 1e6);
    let goal = Target::Megabytes(20.0);
    report.rows.push(Row::plain("idle memory (RSS) after the start", " MB", megabytes(after_start)).aimed(goal));
    let name = format!("idle memory (RSS) after {RUNS} closed runs");
    report.rows.push(Row::plain(name, " MB", megabytes(after[1])).aimed(goal));
    // The second half alone: the first one also pays for what every process needs once.
    let growth = (after[1] - after[0]) / 1e3 / f64::from(u32::try_from(RUNS / 2)?);
    report
        .rows
        .push(Row::plain("memory for each further closed run", " kB", steady(growth)).aimed(Target::Kilobytes(1.0)));
    report.rows.push(Row::plain("an empty run, created and closed", " ms", steady(each)));
    Ok(())
}

/// Resident bytes after a rest.
fn resident(server: &Server) -> anyhow::Result<f64> {
    std::thread::sleep(REST);
    #[expect(clippy::cast_precision_loss, reason = "memory is far below 2^52 bytes")]
    Ok(status_of(server.id(), "VmRSS").context("the server's memory cannot be read")? as f64)
}
