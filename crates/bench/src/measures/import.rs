//! The import of the tree, beside `cp -r` of it; and the run that searches and diffs share.

use std::time::Instant;

use anyhow::Context as _;
use serde_json::json;

use crate::api::RunHandle;
use crate::process::must;
use crate::report::{Beside, Report, Row};
use crate::sample::Spread;
use crate::stage::Stage;

/// How often the tree is imported at most: each takes seconds.
const MOST_ROUNDS: usize = 3;

/// The run of the tree; imported and measured the first time.
pub(super) fn tree_run<'a>(stage: &'a Stage, report: &mut Report) -> anyhow::Result<&'a RunHandle> {
    if let Some(run) = stage.tree_run.get() {
        return Ok(run);
    }
    let tree = stage.tree()?;
    let source = json!({ "type": "directory", "path": tree });
    let copies = stage.place().limit("copies")?;
    let (mut imports, mut cp_times, mut last) = (Vec::new(), Vec::new(), None);
    for _ in 0..stage.options.rounds.clamp(1, MOST_ROUNDS) {
        if let Some(run) = last.take() {
            stage.runtime.block_on(stage.api.delete_run(&run))?;
        }
        let started = Instant::now();
        last = Some(stage.runtime.block_on(stage.api.make_run(&source))?);
        imports.push(started.elapsed().as_secs_f64());
        let started = Instant::now();
        must("cp", ["-r".as_ref(), tree.as_os_str(), "copy".as_ref()], &copies)?;
        cp_times.push(started.elapsed().as_secs_f64());
        std::fs::remove_dir_all(copies.join("copy"))?;
    }
    let run = last.context("no import")?;
    report.rows.push(row(&imports, &cp_times).context("no import")?);
    let facts = stage.runtime.block_on(stage.api.run(&run))?;
    report.notes.push(format!("The tree: {} files, {} bytes.", facts["import"]["files"], facts["import"]["bytes"]));
    Ok(stage.tree_run.get_or_init(|| run))
}

fn row(imports: &[f64], copied: &[f64]) -> Option<Row> {
    let mut row = Row::plain("import of the tree", " s", Spread::of(imports.iter().copied())?);
    let value = Spread::of(copied.iter().copied())?;
    row.beside.push(Beside {
        name: "`cp -r` of the same".to_owned(),
        value,
        p50_ms: value.median * 1e3,
        processor_micros: None,
        ratio: Spread::of(imports.iter().zip(copied).map(|(import, copy)| import / copy))?,
        target: None,
    });
    Some(row)
}
