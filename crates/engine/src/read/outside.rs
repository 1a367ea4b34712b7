//! Reads of files that were changed from outside are answered with a warning, and their records say so.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use model::{LogicalPath, RecordFile, Sha256};

use crate::engine::Engine;
use crate::run::open_run::OpenRun;
use crate::tool::output::ReadOutput;
use crate::{CallError, reconcile};

/// How the reason in a record begins that names a file which was changed from outside.
const REASON: &str = "outside:";

impl Engine {
    /// Adds a warning to the output of a read of the run's present files for each file that was changed from outside.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub(crate) async fn warn_of_outside(
        self: &Arc<Self>,
        run: &Arc<OpenRun>,
        output: &mut ReadOutput,
    ) -> Result<(), CallError> {
        if output.files.iter().all(|file| is_known_at_once(run, file)) {
            return Ok(());
        }
        let read = versions(&output.files);
        let open_run = Arc::clone(run);
        let differing = self.blocking(move || unknown_versions(&open_run, read)).await?;
        if differing.is_empty() {
            return Ok(());
        }
        // A change that is in progress is recorded before it is in the tree. With the paths locked, both are compared again.
        let paths: Vec<_> = differing.iter().map(|(path, _)| path.clone()).collect();
        let guard = match reconcile::lock(self, run, paths).await {
            Ok(guard) => guard,
            Err(error @ CallError::Moved(_)) => return Err(error),
            // The disk does not take recorded changes now: the files are as they were before them, which the read has shown.
            Err(_) if run.accounting.is_dirty() => return Ok(()),
            Err(error) => return Err(error),
        };
        let open_run = Arc::clone(run);
        let outside = self.blocking(move || still_outside(&open_run, differing)).await?;
        drop(guard);
        output.warn_of_outside(&outside);
        Ok(())
    }
}

impl ReadOutput {
    /// As [`Engine::warn_of_outside`], on a thread that may block, with the whole run locked.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub(crate) fn warn_in_locked(&mut self, run: &OpenRun) -> Result<(), CallError> {
        let outside: Vec<_> = unknown_versions(run, versions(&self.files))?.into_iter().map(|(path, _)| path).collect();
        self.warn_of_outside(&outside);
        Ok(())
    }

    fn warn_of_outside(&mut self, paths: &[LogicalPath]) {
        self.is_outside |= !paths.is_empty();
        let warning = |path| format!("`{path}` was changed by something else than a call of this run");
        self.add_warnings(&paths.iter().map(warning).collect::<Vec<_>>());
        self.reasons.extend(paths.iter().map(|path| format!("{REASON}{path}")));
    }
}

/// The versions that were read.
fn versions(files: &[RecordFile]) -> Vec<(LogicalPath, Sha256)> {
    files.iter().filter_map(|file| Some((file.path.clone(), file.new_sha256?))).collect()
}

/// Whether the version that was read is that of the run's story, as far as memory tells.
fn is_known_at_once(run: &OpenRun, file: &RecordFile) -> bool {
    let Some(version) = file.new_sha256 else { return true };
    match run.known.written_sha256(&file.path) {
        Some(left) => left == Some(version),
        None => run.workspace.base().is_in_memory() && is_known(run, &file.path, version).unwrap_or(false),
    }
}

/// Whether the run's story has this version of `path`.
fn is_known(run: &OpenRun, path: &LogicalPath, version: Sha256) -> Result<bool, CallError> {
    let known = run.known.file(run.workspace.base(), path)?;
    Ok(known.is_some_and(|known| !known.is_link && known.sha256 == version))
}

fn unknown_versions(run: &OpenRun, read: Vec<(LogicalPath, Sha256)>) -> Result<Vec<(LogicalPath, Sha256)>, CallError> {
    let mut unknown = Vec::new();
    for (path, version) in read {
        // What is read through a link is the file that it leads to.
        let real = run.workspace.tree().real_path(&path);
        let at = real.as_ref().unwrap_or(&path);
        if is_known(run, at, version)? {
            continue;
        }
        // The base does not have the files that git ignored at the import.
        if !run.known.has_written(at)
            && run.known.file(run.workspace.base(), at)?.is_none()
            && run.workspace.is_ignored(at)?
        {
            continue;
        }
        unknown.push((path, version));
    }
    Ok(unknown)
}

/// Returns those paths that still have another version than the run's story.
fn still_outside(run: &OpenRun, read: Vec<(LogicalPath, Sha256)>) -> Result<Vec<LogicalPath>, CallError> {
    let mut outside = Vec::new();
    for (path, version) in read {
        let stat = match run.workspace.tree().stat(&run.rules, &path, &AtomicBool::new(false)) {
            Ok(stat) => stat,
            // It cannot be read any more.
            Err(workspace::WorkspaceError::Refused(_)) => continue,
            Err(fault) => return Err(fault.into()),
        };
        let present = stat.found.and_then(|found| found.sha256).unwrap_or(version);
        outside.extend(unknown_versions(run, vec![(path, present)])?.into_iter().map(|(path, _)| path));
    }
    Ok(outside)
}
