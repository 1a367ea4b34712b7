//! Programs that do the same work from the command line, each call a process from its start to its end.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::compare::Subject;
use crate::limits::{Call, OnThreads};
use crate::process::{count_lines, must, processor_of_children};
use crate::sample::Sample;

/// A limit that is a program; its processor time is that of the processes.
pub(crate) struct Programs<'a>(OnThreads<'a>);

impl Subject for Programs<'_> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn round(&mut self, concurrency: usize, time: Duration) -> anyhow::Result<Sample> {
        let before = processor_of_children();
        let sample = self.0.round(concurrency, time)?;
        let processor = before.zip(processor_of_children()).map(|(before, after)| after.saturating_sub(before));
        Ok(Sample { processor, ..sample })
    }
}

/// Runs `command` with `args` in `folder` again and again.
pub(crate) fn program<'a>(
    name: impl Into<String>,
    program: &'a Path,
    args: Vec<String>,
    folder: &'a Path,
    fine: &'static [i32],
) -> Programs<'a> {
    let mut limit = OnThreads::new(name, move |_| {
        let (program, args, folder) = (program.to_owned(), args.clone(), folder.to_owned());
        Ok(Box::new(move || {
            count_lines(quiet(&program).args(&args).current_dir(&folder), fine)?;
            Ok(())
        }) as Call)
    });
    // As many as the callers: the ratio is of equal loads.
    limit.most = usize::MAX;
    Programs(limit)
}

/// Applies a patch of three files with `git apply`, then its reverse, each thread in a repository of its own in `folder`.
pub(crate) fn git_apply<'a>(
    folder: &'a Path,
    files: &'a [(String, String)],
    forth: &'a str,
    back: &'a str,
) -> Programs<'a> {
    Programs(OnThreads::new("`git apply` of the same, up to 16 at a time", move |worker| {
        let repository = folder.join(format!("apply-{worker}"));
        if !repository.exists() {
            make_repository(&repository, files)?;
        }
        for (name, content) in files {
            std::fs::write(repository.join(name), content)?;
        }
        std::fs::write(repository.join("forth.patch"), forth)?;
        std::fs::write(repository.join("back.patch"), back)?;
        let mut forward = false;
        Ok(Box::new(move || {
            forward = !forward;
            let patch = if forward { "forth.patch" } else { "back.patch" };
            count_lines(quiet(Path::new("git")).args(["apply", patch]).current_dir(&repository), &[0])?;
            Ok(())
        }))
    }))
}

/// Makes `folder` a repository with one commit of `files`.
///
/// # Errors
///
/// When git fails.
pub(crate) fn make_repository(folder: &Path, files: &[(String, String)]) -> anyhow::Result<()> {
    for (name, content) in files {
        let file: PathBuf = folder.join(name);
        std::fs::create_dir_all(file.parent().unwrap_or(folder))?;
        std::fs::write(file, content)?;
    }
    commit_all(folder)
}

/// Makes `folder` a repository with one commit of everything in it.
pub(crate) fn commit_all(folder: &Path) -> anyhow::Result<()> {
    must("git", ["init", "-q", "-b", "main"], folder)?;
    must("git", ["add", "-A", "-f", "."], folder)?;
    let who = ["-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "gc.auto=0"];
    must("git", who.into_iter().chain(["commit", "-q", "-m", "base"]), folder)
}

/// Whether `program` can be started.
pub(crate) fn is_installed(program: &Path) -> bool {
    count_lines(quiet(program).arg("--version"), &[0]).is_ok()
}

/// A command that no setting of the user's changes.
fn quiet(program: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_OPTIONAL_LOCKS", "0")
        .env_remove("RIPGREP_CONFIG_PATH");
    command
}
