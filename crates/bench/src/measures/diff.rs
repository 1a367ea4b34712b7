//! `diff_workspace` with 20 changed files in the tree, beside `git diff` of the same changes in a repository of it.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::api::RunHandle;
use crate::compare::compare;
use crate::limits::programs::{commit_all, program};
use crate::load::Script;
use crate::measures::{import, plan, plan_within};
use crate::process::must;
use crate::report::{Report, Target};
use crate::stage::Stage;
use crate::text::sha256;

const CHANGED: usize = 20;

/// Measures diffs.
pub(super) fn measure(stage: &Stage, report: &mut Report) -> anyhow::Result<()> {
    let run = import::tree_run(stage, report)?;
    let repository = repository(stage)?;
    let changed = change(stage, run, &repository)?;
    let answer = stage.tool(run, "diff_workspace", &json!({}))?;
    anyhow::ensure!(answer["filesChanged"] == changed, "{} files changed: {}", changed, answer["stat"]);
    // Git notes once that the files are as the index says, as it would in daily use.
    must("git", ["update-index", "-q", "--refresh"], &repository).or_else(|_| must("git", ["status"], &repository))?;
    for &connections in &stage.options.connections {
        let script = |_| Ok(Script::new(vec![run.prepare("diff_workspace", &json!({}))?]));
        let scripts = (0..connections).map(script).collect::<anyhow::Result<_>>()?;
        let mut diffs = stage.service("diff of 20 changed files in the tree", scripts);
        let mut git = program("`git diff` of the same", Path::new("git"), diff_arguments(), &repository, &[0]);
        let how = plan(&stage.options, connections);
        report.rows.push(compare(how, &mut diffs, &mut [(&mut git as _, Some(Target::TimesTheTime(1.0)))])?);

        let script = |_| Ok(Script::new(vec![run.prepare("diff_workspace", &json!({ "checkTree": false }))?]));
        let scripts = (0..connections).map(script).collect::<anyhow::Result<_>>()?;
        let mut known = stage.service("diff of them from what is known to differ", scripts);
        report.rows.push(compare(plan_within(&stage.options, connections, 6.0), &mut known, &mut [])?);
    }
    Ok(())
}

fn diff_arguments() -> Vec<String> {
    ["diff", "--no-ext-diff", "--no-textconv", "--no-color"].map(str::to_owned).into()
}

/// A repository of the tree: a copy of it, committed where it was none.
fn repository(stage: &Stage) -> anyhow::Result<PathBuf> {
    let folder = stage.place().limit("repository")?;
    let repository = folder.join("tree");
    if !repository.exists() {
        must("cp", ["-a".as_ref(), stage.tree()?.as_os_str(), repository.as_os_str()], &folder)?;
        if !repository.join(".git").exists() {
            commit_all(&repository)?;
        }
    }
    Ok(repository)
}

/// Adds a line to files all over the tree, in the run and in the repository; what the policy protects is passed over.
fn change(stage: &Stage, run: &RunHandle, repository: &Path) -> anyhow::Result<usize> {
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
        let answer = stage.tool(run, "write_file", &input);
        if answer.is_ok_and(|answer| answer["ok"] == true) {
            std::fs::write(file, after)?;
            changed += 1;
        }
    }
    anyhow::ensure!(changed > 0, "no file of the tree could be changed");
    Ok(changed)
}

/// Source files of ordinary size.
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
