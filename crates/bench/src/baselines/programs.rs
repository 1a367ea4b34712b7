//! Programs that do the same work. Each call is a process, from its start to its end.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::baselines::{Call, ThreadLoop};
use crate::compare::Subject;
use crate::process::{count_lines, cpu_time_of_children, run_checked};
use crate::sample::Sample;

/// A baseline that runs a program. Its processor time is that of the processes.
pub(crate) struct ProgramLoop<'a>(ThreadLoop<'a>);

impl Subject for ProgramLoop<'_> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn round(&mut self, concurrency: usize, time: Duration) -> anyhow::Result<Sample> {
        let before = cpu_time_of_children();
        let sample = self.0.round(concurrency, time)?;
        let cpu_time = before.zip(cpu_time_of_children()).map(|(before, after)| after.saturating_sub(before));
        Ok(Sample { cpu_time, ..sample })
    }
}

/// Returns a baseline that runs `program` with `args` in `folder`. `accepted` has the exit codes that are no errors.
pub(crate) fn program<'a>(
    name: impl Into<String>,
    program: &'a Path,
    args: Vec<String>,
    folder: &'a Path,
    accepted: &'static [i32],
) -> ProgramLoop<'a> {
    let mut baseline = ThreadLoop::new(name, move |_| {
        let (program, args, folder) = (program.to_owned(), args.clone(), folder.to_owned());
        Ok(Box::new(move || {
            count_lines(isolated(&program).args(&args).current_dir(&folder), accepted)?;
            Ok(())
        }) as Call)
    });
    // The same number of callers, so that the loads are equal.
    baseline.max_threads = usize::MAX;
    ProgramLoop(baseline)
}

/// Returns a baseline that applies a patch and its reverse with `git apply`, each thread in its own repository in `folder`.
pub(crate) fn git_apply<'a>(
    folder: &'a Path,
    files: &'a [(String, String)],
    forward: &'a str,
    reverse: &'a str,
) -> ProgramLoop<'a> {
    ProgramLoop(ThreadLoop::new("`git apply`, up to 16 at a time", move |worker| {
        let repository = folder.join(format!("apply-{worker}"));
        if !repository.exists() {
            create_repository(&repository, files)?;
        }
        for (name, content) in files {
            std::fs::write(repository.join(name), content)?;
        }
        std::fs::write(repository.join("forward.patch"), forward)?;
        std::fs::write(repository.join("reverse.patch"), reverse)?;
        let mut forward = false;
        Ok(Box::new(move || {
            forward = !forward;
            let patch = if forward { "forward.patch" } else { "reverse.patch" };
            count_lines(isolated(Path::new("git")).args(["apply", patch]).current_dir(&repository), &[0])?;
            Ok(())
        }))
    }))
}

/// Creates a repository in `folder` with one commit of `files`.
///
/// # Errors
///
/// When git fails.
pub(crate) fn create_repository(folder: &Path, files: &[(String, String)]) -> anyhow::Result<()> {
    for (name, content) in files {
        let file: PathBuf = folder.join(name);
        std::fs::create_dir_all(file.parent().unwrap_or(folder))?;
        std::fs::write(file, content)?;
    }
    commit_all(folder)
}

/// Creates a repository in `folder` with one commit of its files.
pub(crate) fn commit_all(folder: &Path) -> anyhow::Result<()> {
    run_checked("git", ["init", "-q", "-b", "main"], folder)?;
    run_checked("git", ["add", "-A", "-f", "."], folder)?;
    let identity = ["-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "gc.auto=0"];
    run_checked("git", identity.into_iter().chain(["commit", "-q", "-m", "base"]), folder)
}

/// Returns whether `program` can be started.
pub(crate) fn is_installed(program: &Path) -> bool {
    count_lines(isolated(program).arg("--version"), &[0]).is_ok()
}

/// Returns a command that ignores the user's configuration.
fn isolated(program: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_OPTIONAL_LOCKS", "0")
        .env_remove("RIPGREP_CONFIG_PATH");
    command
}
