//! The import of the source tree into the run that searches and diffs share. Baseline: `cp -r`.

use std::time::Instant;

use anyhow::Context as _;
use serde_json::json;

use crate::api::RunHandle;
use crate::process::run_checked;
use crate::report::{BaselineFigure, Report, Row};
use crate::sample::Spread;
use crate::testbed::Testbed;

/// The most imports: each takes seconds.
const MAX_ROUNDS: usize = 3;

/// Returns the run of the tree. The first call imports it and measures the import.
pub(super) fn tree_run<'a>(testbed: &'a Testbed, report: &mut Report) -> anyhow::Result<&'a RunHandle> {
    if let Some(run) = testbed.tree_run.get() {
        return Ok(run);
    }
    let tree = testbed.tree()?;
    let source = json!({ "type": "directory", "path": tree });
    let copies = testbed.scratch().baseline_folder("copies")?;
    let (mut imports, mut cp_times, mut last) = (Vec::new(), Vec::new(), None);
    for _ in 0..testbed.options.rounds.clamp(1, MAX_ROUNDS) {
        if let Some(run) = last.take() {
            testbed.runtime.block_on(testbed.api.delete_run(&run))?;
        }
        let started = Instant::now();
        last = Some(testbed.runtime.block_on(testbed.api.create_run(&source))?);
        imports.push(started.elapsed().as_secs_f64());
        let started = Instant::now();
        run_checked("cp", ["-r".as_ref(), tree.as_os_str(), "copy".as_ref()], &copies)?;
        cp_times.push(started.elapsed().as_secs_f64());
        std::fs::remove_dir_all(copies.join("copy"))?;
    }
    let run = last.context("no import")?;
    report.rows.push(row(&imports, &cp_times).context("no import")?);
    let facts = testbed.runtime.block_on(testbed.api.run(&run))?;
    report.notes.push(format!("The tree: {} files, {} bytes.", facts["import"]["files"], facts["import"]["bytes"]));
    Ok(testbed.tree_run.get_or_init(|| run))
}

fn row(imports: &[f64], copied: &[f64]) -> Option<Row> {
    let mut row = Row::value("import of the tree", " s", Spread::of(imports.iter().copied())?);
    let value = Spread::of(copied.iter().copied())?;
    row.baselines.push(BaselineFigure {
        name: "`cp -r`".to_owned(),
        value,
        p50_ms: value.median * 1e3,
        cpu_micros: None,
        ratio: Spread::of(imports.iter().zip(copied).map(|(import, copy)| import / copy))?,
        target: None,
    });
    Some(row)
}
