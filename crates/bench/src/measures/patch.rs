//! `apply_patch`: one patch of three files, forth and back, beside `git apply` of the same.

use serde_json::json;

use crate::api::RunHandle;
use crate::compare::compare;
use crate::limits::programs::git_apply;
use crate::load::Script;
use crate::measures::plan;
use crate::report::{Report, Target};
use crate::stage::Stage;
use crate::text::lines_of;

const FILES: usize = 3;
const LINES: usize = 120;
/// Where the changed line is, counted from 0.
const AT: usize = 60;

/// Measures patches: in a run for each connection, as agents work, and all in one run.
pub(super) fn measure(stage: &Stage, report: &mut Report) -> anyhow::Result<()> {
    let most = stage.most_connections();
    let each = (0..most).map(|worker| stage.run_of(&format!("patches-{worker}"), &files_of(worker)));
    let each = each.collect::<anyhow::Result<Vec<_>>>()?;
    let all: Vec<_> = (0..most).flat_map(files_of).collect();
    let one = vec![stage.run_of("patches", &all)?; most];
    let mut in_each = stage.service("patch of three files: a run for each connection", scripts(&each)?);
    let mut in_one = stage.service("patch of three files: one run", scripts(&one)?);
    let folder = stage.place().limit("patches")?;
    let (limit_files, forth, back) = (files_of(0), patch(0, true), patch(0, false));
    for &connections in &stage.options.connections {
        for patches in [&mut in_each, &mut in_one].into_iter().take(connections) {
            let mut git = git_apply(&folder, &limit_files, &forth, &back);
            let mut limits = [(&mut git as _, Some(Target::TimesTheTime(1.0)))];
            report.rows.push(compare(plan(&stage.options, connections), patches, &mut limits)?);
        }
    }
    Ok(())
}

fn scripts(runs: &[RunHandle]) -> anyhow::Result<Vec<Script>> {
    let script = |(worker, run): (usize, &RunHandle)| {
        let request =
            |forward| run.prepare("apply_patch", &json!({ "patch": patch(worker, forward), "reason": "bench" }));
        Ok(Script::new(vec![request(true)?, request(false)?]))
    };
    runs.iter().enumerate().map(script).collect()
}

fn name(worker: usize, file: usize) -> String {
    format!("src/part_{worker:02}_{file}.rs")
}

fn files_of(worker: usize) -> Vec<(String, String)> {
    (0..FILES).map(|file| (name(worker, file), lines(worker, file).concat())).collect()
}

fn lines(worker: usize, file: usize) -> Vec<String> {
    lines_of((worker * FILES + file) as u64, LINES, 48)
}

/// One hunk in each file: a line becomes three others, or the other way.
fn patch(worker: usize, forward: bool) -> String {
    (0..FILES).map(|file| section(worker, file, forward)).collect()
}

fn section(worker: usize, file: usize, forward: bool) -> String {
    let (name, lines) = (name(worker, file), lines(worker, file));
    let new = lines_of(5_000 + file as u64, 3, 48);
    let (from, to) = (AT - 3, AT + 4);
    let marked = |mark: char, lines: &[String]| {
        lines.iter().flat_map(|line| [mark.to_string(), line.clone()]).collect::<String>()
    };
    let (old_mark, new_mark) = if forward { ('-', '+') } else { ('+', '-') };
    let (old, new) = (marked(old_mark, &lines[AT..=AT]), marked(new_mark, &new));
    // A hunk names what it removes first.
    let body = if forward { old + &new } else { new + &old };
    let (before, after) = if forward { (7, 9) } else { (9, 7) };
    format!(
        "diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n@@ -{start},{before} +{start},{after} @@\n{above}{body}{below}",
        start = from + 1,
        above = marked(' ', &lines[from..AT]),
        below = marked(' ', &lines[AT + 1..to]),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::Subject as _;
    use std::time::Duration;

    #[test]
    fn git_applies_the_patches_forth_and_back() {
        let folder = tempfile::tempdir().unwrap();
        let (files, forth, back) = (files_of(0), patch(0, true), patch(0, false));
        let mut git = git_apply(folder.path(), &files, &forth, &back);
        // A patch that does not apply ends the round with an error.
        let sample = git.round(1, Duration::from_millis(100)).unwrap();
        assert!(sample.latencies.len() > 1);
    }
}
