//! `diff_workspace` of 20 changed files in the tree. Baseline: `git diff` of the same changes.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::api::RunHandle;
use crate::baselines::programs::{commit_all, program};
use crate::compare::compare;
use crate::load::Script;
use crate::measures::{import, plan, plan_with_target};
use crate::process::run_checked;
use crate::report::{Report, Target};
use crate::testbed::Testbed;
use crate::text::sha256;

const CHANGED: usize = 20;

/// Measures diffs.
pub(super) fn measure(testbed: &Testbed, report: &mut Report) -> anyhow::Result<()> {
    let run = import::tree_run(testbed, report)?;
    let repository = repository(testbed)?;
    let changed = change(testbed, run, &repository)?;
    let answer = testbed.tool(run, "diff_workspace", &json!({}))?;
    anyhow::ensure!(answer["filesChanged"] == changed, "{} files changed: {}", changed, answer["stat"]);
    // Git refreshes its index once, as in daily use.
    run_checked("git", ["update-index", "-q", "--refresh"], &repository)
        .or_else(|_| run_checked("git", ["status"], &repository))?;
    for &connections in &testbed.options.connections {
        let script = |_| Ok(Script::new(vec![run.prepare("diff_workspace", &json!({}))?]));
        let scripts = (0..connections).map(script).collect::<anyhow::Result<_>>()?;
        let mut diffs = testbed.service("diff of 20 changed files in the tree", scripts);
        let mut git = program("`git diff`", Path::new("git"), diff_arguments(), &repository, &[0]);
        let how = plan(&testbed.options, connections);
        report.rows.push(compare(how, &mut diffs, &mut [(&mut git as _, Some(Target::TimesTheTime(1.0)))])?);

        let script = |_| Ok(Script::new(vec![run.prepare("diff_workspace", &json!({ "checkTree": false }))?]));
        let scripts = (0..connections).map(script).collect::<anyhow::Result<_>>()?;
        let mut known = testbed.service("the same with `checkTree: false`", scripts);
        report.rows.push(compare(plan_with_target(&testbed.options, connections, 6.0), &mut known, &mut [])?);
    }
    Ok(())
}

fn diff_arguments() -> Vec<String> {
    ["diff", "--no-ext-diff", "--no-textconv", "--no-color"].map(str::to_owned).into()
}

/// Creates a repository with a copy of the tree.
fn repository(testbed: &Testbed) -> anyhow::Result<PathBuf> {
    let folder = testbed.scratch().baseline_folder("repository")?;
    let repository = folder.join("tree");
    if !repository.exists() {
        run_checked("cp", ["-a".as_ref(), testbed.tree()?.as_os_str(), repository.as_os_str()], &folder)?;
        if !repository.join(".git").exists() {
            commit_all(&repository)?;
        }
    }
    Ok(repository)
}

/// Adds a line to files across the tree, in the run and in the repository. Files that the policy protects are skipped.
fn change(testbed: &Testbed, run: &RunHandle, repository: &Path) -> anyhow::Result<usize> {
    let mut files = Vec::new();
    collect(repository, &mut files)?;
    files.sort_unstable();
    let step = (files.len() / (CHANGED * 2)).max(1);
    let mut changed = 0;
    for file in files.iter().step_by(step) {
        if changed == CHANGED {
            break;
        }
        let Ok(path) = file.strip_prefix(repository) else { continue };
        let Ok(before) = std::fs::read_to_string(file) else { continue };
        let after = format!("{before}// one more line\n");
        let expected = sha256(before.as_bytes());
        let input = json!({ "path": path, "content": after, "expectedSha256": expected, "reason": "bench" });
        let answer = testbed.tool(run, "write_file", &input);
        if answer.is_ok_and(|answer| answer["ok"] == true) {
            std::fs::write(file, after)?;
            changed += 1;
        }
    }
    anyhow::ensure!(changed > 0, "no file of the tree could be changed");
    Ok(changed)
}

/// Collects source files of ordinary size.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        if kind.is_dir() && entry.file_name() != ".git" {
            collect(&path, files)?;
        } else if kind.is_file()
            && path.extension().is_some_and(|ending| ending == "rs")
            && (2_000..60_000).contains(&entry.metadata()?.len())
        {
            files.push(path);
        }
    }
    Ok(())
}
