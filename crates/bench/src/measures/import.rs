//! The import of the source tree into the run that searches and diffs share. Baselines: `cp -r`; for the second run from a
//! commit of it also `git clone --local`.

use std::time::Instant;

use anyhow::Context as _;
use serde_json::json;

use crate::api::RunHandle;
use crate::process::run_checked;
use crate::report::{BaselineFigure, Report, Row, Target};
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
    report.rows.push(row("import of the tree", &imports, &[("`cp -r`", &cp_times, None)]).context("no import")?);
    if tree.join(".git").exists() {
        second_runs(testbed, report)?;
    }
    let facts = testbed.runtime.block_on(testbed.api.run(&run))?;
    report.notes.push(format!("The tree: {} files, {} bytes.", facts["import"]["files"], facts["import"]["bytes"]));
    Ok(testbed.tree_run.get_or_init(|| run))
}

/// Measures runs from a commit that another run has started from.
fn second_runs(testbed: &Testbed, report: &mut Report) -> anyhow::Result<()> {
    let tree = testbed.tree()?;
    let source = json!({ "type": "git", "url": tree });
    let copies = testbed.scratch().baseline_folder("copies")?;
    let first = testbed.runtime.block_on(testbed.api.create_run(&source))?;
    // The same files as the copy of the run: without the repository.
    run_checked(
        "git",
        ["clone".as_ref(), "-q".as_ref(), "--local".as_ref(), tree.as_os_str(), "plain".as_ref()],
        &copies,
    )?;
    std::fs::remove_dir_all(copies.join("plain/.git"))?;
    let (mut runs, mut cp_times, mut clone_times) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..testbed.options.rounds.clamp(1, MAX_ROUNDS) {
        let started = Instant::now();
        let run = testbed.runtime.block_on(testbed.api.create_run(&source))?;
        runs.push(started.elapsed().as_secs_f64());
        testbed.runtime.block_on(testbed.api.delete_run(&run))?;
        let started = Instant::now();
        run_checked("cp", ["-r", "plain", "copy"], &copies)?;
        cp_times.push(started.elapsed().as_secs_f64());
        let started = Instant::now();
        run_checked(
            "git",
            ["clone".as_ref(), "-q".as_ref(), "--local".as_ref(), tree.as_os_str(), "clone".as_ref()],
            &copies,
        )?;
        clone_times.push(started.elapsed().as_secs_f64());
        std::fs::remove_dir_all(copies.join("copy"))?;
        std::fs::remove_dir_all(copies.join("clone"))?;
    }
    std::fs::remove_dir_all(copies.join("plain"))?;
    testbed.runtime.block_on(testbed.api.delete_run(&first))?;
    let baselines = [("`cp -r`", &cp_times[..], Some(1.0)), ("`git clone --local`", &clone_times[..], None)];
    report.rows.push(row("second run from a commit of the tree", &runs, &baselines).context("no run")?);
    Ok(())
}

/// A baseline: its name, its times, and the target for the ratio.
pub(super) type Baseline<'a> = (&'a str, &'a [f64], Option<f64>);

/// Returns a figure of seconds beside baselines.
pub(super) fn row(name: &str, imports: &[f64], baselines: &[Baseline<'_>]) -> Option<Row> {
    let mut row = Row::value(name, " s", Spread::of(imports.iter().copied())?);
    for (name, times, target) in baselines {
        let value = Spread::of(times.iter().copied())?;
        row.baselines.push(BaselineFigure {
            name: (*name).to_owned(),
            value,
            p50_ms: value.median * 1e3,
            cpu_micros: None,
            ratio: Spread::of(imports.iter().zip(*times).map(|(import, time)| import / time))?,
            target: target.map(Target::TimesTheTime),
        });
    }
    Some(row)
}
