//! The first call of a run whose files are in an object store only.

use std::time::Instant;

use serde_json::json;

use crate::args::Options;
use crate::report::{Report, Row, Target};
use crate::sample::Spread;
use crate::testbed::{Scratch, client_runtime};
use crate::tree;

/// The numbers of files, each with the size of all files in million bytes, and the time that opening the run may take in
/// milliseconds.
const SIZES: [(usize, u64, f64); 2] = [(1_000, 10, 500.0), (25_000, 250, 3_000.0)];
/// The most rounds: each starts the server.
const MAX_ROUNDS: usize = 3;

/// Loses the files of a run with some changes, and measures its next call.
pub(super) fn measure(scratch: &Scratch, options: &Options, report: &mut Report) -> anyhow::Result<()> {
    let store = scratch.baseline_folder("objects")?;
    let mut options = options.clone();
    options.server_arg.push(format!("--object-store-url=file://{}", store.display()));
    for (files, megabytes, target) in SIZES {
        let folder = scratch.sources().join(format!("files-{files}"));
        tree::generate(&folder, files, megabytes * 1_000_000)?;
        let runtime = client_runtime()?;
        let mut server = scratch.start(&options, &scratch.data())?;
        let api = scratch.api(&server);
        let run = runtime.block_on(async {
            let run = api.create_run(&json!({ "type": "directory", "path": folder })).await?;
            for number in 0..20 {
                let input = json!({ "path": format!("new/{number}.txt"), "content": "a note\n", "reason": "bench" });
                api.tool(&run, "write_file", &input).await?;
            }
            anyhow::Ok(run)
        })?;
        let mut times = Vec::new();
        for round in 0..options.rounds.clamp(1, MAX_ROUNDS) {
            server.stop()?;
            // Moved and not removed: an ext4 without a journal is slow to make files where others were just deleted.
            let lost = scratch.baseline_folder("lost")?.join(format!("{files}-{round}"));
            std::fs::rename(scratch.data().join("workspaces").join(&run.id), lost)?;
            server = scratch.start(&options, &scratch.data())?;
            let (api, started) = (scratch.api(&server), Instant::now());
            runtime.block_on(api.tool(&run, "read_file", &json!({ "path": "new/0.txt" })))?;
            times.push(started.elapsed().as_secs_f64() * 1e3);
        }
        if let Some(spread) = Spread::of(times) {
            let name = format!("first call of a run of {files} files that are elsewhere");
            report.rows.push(Row::value(name, " ms", spread).with_target(Target::Millis(target)));
        }
    }
    Ok(())
}
