//! Many open runs on one node: memory for each, and the start with them.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::json;
use tokio::task::JoinSet;

use crate::api::Api;
use crate::args::Options;
use crate::process::{Server, status_of};
use crate::report::{Report, Row, Target};
use crate::sample::Spread;
use crate::stage::{Place, client_runtime};

const AT_A_TIME: usize = 8;
/// How long the server may rest before its memory is read.
const REST: Duration = Duration::from_secs(2);

/// Makes `runs` runs, each with one file written, and starts the server again.
pub(super) fn measure(place: &Place, options: &Options, runs: usize, report: &mut Report) -> anyhow::Result<()> {
    let mut server = place.start(options, &place.data())?;
    let half = runs.div_ceil(2);
    let started = Instant::now();
    make(&place.api(&server), half)?;
    let first = resident(&server)?;
    make(&place.api(&server), half)?;
    let each = started.elapsed().saturating_sub(REST).as_secs_f64() * 1e3 / f64::from(u32::try_from(half * 2)?);
    let second = resident(&server)?;
    server.stop()?;
    let starting = Instant::now();
    let again = place.start(options, &place.data())?;
    let start = starting.elapsed().as_secs_f64() * 1e3;
    let steady = |value: f64| Spread { median: value, min: value, max: value };
    // The second half alone: the first one also pays for what every process needs once.
    let growth = (second - first) / 1e3 / f64::from(u32::try_from(half)?);
    let rows = [
        Row::plain("memory for each further open run", " kB", steady(growth)).aimed(Target::Kilobytes(20.0)),
        Row::plain(format!("memory (RSS) with {runs} open runs"), " MB", steady(second / 1e6)),
        Row::plain(format!("start with {runs} open runs"), " ms", steady(start)).aimed(Target::Millis(2_000.0)),
        Row::plain(format!("memory (RSS) after a start with {runs} open runs"), " MB", steady(resident(&again)? / 1e6)),
        Row::plain("an empty run, created and written to", " ms", steady(each)),
    ];
    report.rows.extend(rows);
    Ok(())
}

fn make(api: &Api, runs: usize) -> anyhow::Result<()> {
    client_runtime()?.block_on(async {
        let mut tasks = JoinSet::new();
        for worker in 0..AT_A_TIME {
            let (api, share) = (api.clone(), (runs + worker) / AT_A_TIME);
            tasks.spawn(async move {
                for _ in 0..share {
                    let run = api.make_run(&json!({ "type": "empty" })).await?;
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

/// Resident bytes after a rest.
fn resident(server: &Server) -> anyhow::Result<f64> {
    std::thread::sleep(REST);
    #[expect(clippy::cast_precision_loss, reason = "memory is far below 2^52 bytes")]
    Ok(status_of(server.id(), "VmRSS").context("the server's memory cannot be read")? as f64)
}
