//! `apply_patch` of three files, alternating with its reverse. Baseline: `git apply`.

use serde_json::json;

use crate::api::RunHandle;
use crate::baselines::programs::git_apply;
use crate::compare::compare;
use crate::load::Script;
use crate::measures::plan;
use crate::report::{Report, Target};
use crate::testbed::Testbed;
use crate::text::lines_of;

const FILES: usize = 3;
const LINES: usize = 120;
/// The changed line, counted from 0.
const CHANGED_LINE: usize = 60;

/// Measures patches with one run per connection, as agents work, and with one run for all.
pub(super) fn measure(testbed: &Testbed, report: &mut Report) -> anyhow::Result<()> {
    let most = testbed.max_connections();
    let each = (0..most).map(|worker| testbed.create_run(&format!("patches-{worker}"), &files_of(worker)));
    let each = each.collect::<anyhow::Result<Vec<_>>>()?;
    let all: Vec<_> = (0..most).flat_map(files_of).collect();
    let one = vec![testbed.create_run("patches", &all)?; most];
    let mut in_each = testbed.service("patch of three files: one run per connection", scripts(&each)?);
    let mut in_one = testbed.service("patch of three files: one run", scripts(&one)?);
    let folder = testbed.scratch().baseline_folder("patches")?;
    let (files, forward, reverse) = (files_of(0), patch(0, true), patch(0, false));
    for &connections in &testbed.options.connections {
        for patches in [&mut in_each, &mut in_one].into_iter().take(connections) {
            let mut git = git_apply(&folder, &files, &forward, &reverse);
            let mut baselines = [(&mut git as _, Some(Target::TimesTheTime(1.0)))];
            report.rows.push(compare(plan(&testbed.options, connections), patches, &mut baselines)?);
        }
    }
    Ok(())
}

fn scripts(runs: &[RunHandle]) -> anyhow::Result<Vec<Script>> {
    runs.iter().enumerate().map(|(worker, run)| script(worker, run)).collect()
}

/// Returns the calls that apply a patch and its reverse.
pub(crate) fn script(worker: usize, run: &RunHandle) -> anyhow::Result<Script> {
    let request = |forward| run.prepare("apply_patch", &json!({ "patch": patch(worker, forward), "reason": "bench" }));
    Ok(Script::new(vec![request(true)?, request(false)?]))
}

fn name(worker: usize, file: usize) -> String {
    format!("src/part_{worker:02}_{file}.rs")
}

/// Returns the files that the patch of a connection changes.
pub(crate) fn files_of(worker: usize) -> Vec<(String, String)> {
    (0..FILES).map(|file| (name(worker, file), lines(worker, file).concat())).collect()
}

fn lines(worker: usize, file: usize) -> Vec<String> {
    lines_of((worker * FILES + file) as u64, LINES, 48)
}

/// Returns a patch with one hunk per file that replaces a line by three others, or its reverse.
fn patch(worker: usize, forward: bool) -> String {
    (0..FILES).map(|file| section(worker, file, forward)).collect()
}

fn section(worker: usize, file: usize, forward: bool) -> String {
    let (name, lines) = (name(worker, file), lines(worker, file));
    let new = lines_of(5_000 + file as u64, 3, 48);
    let (from, to) = (CHANGED_LINE - 3, CHANGED_LINE + 4);
    let marked = |mark: char, lines: &[String]| {
        lines.iter().flat_map(|line| [mark.to_string(), line.clone()]).collect::<String>()
    };
    let (old_mark, new_mark) = if forward { ('-', '+') } else { ('+', '-') };
    let (old, new) = (marked(old_mark, &lines[CHANGED_LINE..=CHANGED_LINE]), marked(new_mark, &new));
    // Removed lines come first in a hunk.
    let body = if forward { old + &new } else { new + &old };
    let (before, after) = if forward { (7, 9) } else { (9, 7) };
    format!(
        "diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n@@ -{start},{before} +{start},{after} @@\n{above}{body}{below}",
        start = from + 1,
        above = marked(' ', &lines[from..CHANGED_LINE]),
        below = marked(' ', &lines[CHANGED_LINE + 1..to]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Subject as _;
    use std::time::Duration;

    #[test]
    fn git_applies_the_patch_and_its_reverse() {
        let folder = tempfile::tempdir().unwrap();
        let (files, forward, reverse) = (files_of(0), patch(0, true), patch(0, false));
        let mut git = git_apply(folder.path(), &files, &forward, &reverse);
        // A patch that does not apply is an error of the round. A slow machine needs a longer one for both.
        let mut rounds = (0..10).map(|doubled| git.round(1, Duration::from_millis(100 << doubled)).unwrap());
        assert!(rounds.any(|sample| sample.latencies.len() > 1));
    }
}
