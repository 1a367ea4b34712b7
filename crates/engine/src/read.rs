//! Reads: resolve, judge, read, record. Those of files that were changed from outside are answered with a warning, and their records say
//! so.

pub(crate) mod names;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use model::{LogicalPath, RecordFile, RunState, Sha256, ToolCallId};
use serde_json::{Map, Value};
use workspace::{CancelOnDrop, Tree, WorkspaceError};

use crate::call::record::RecordedError;
use crate::call::{Call, OpenedCall, View};
use crate::call_error::refusals::{run_not_open, timed_out};
use crate::engine::Engine;
use crate::run::open_run::OpenRun;
use crate::tool::output::ReadOutput;
use crate::tool::{ReadContext, ReadTool, ToolRun};
use crate::{CallError, metrics, reconcile};

impl Engine {
    /// Executes and records a call of a reading tool.
    ///
    /// # Errors
    ///
    /// The refusal, recorded.
    pub(crate) async fn read_call(
        self: &Arc<Self>,
        call: OpenedCall,
        run: &Arc<OpenRun>,
        members: Map<String, Value>,
    ) -> Result<(ReadOutput, ToolCallId), RecordedError> {
        match self.parse_read(&call, run, members).await {
            Ok(tool) => self.read(call, run, tool).await,
            Err(error) => Err(self.record_error(&call, &[], error).await),
        }
    }

    /// Parses a read of a tree that is made consistent.
    async fn parse_read(
        self: &Arc<Self>,
        call: &OpenedCall,
        run: &Arc<OpenRun>,
        members: Map<String, Value>,
    ) -> Result<Box<dyn ReadTool>, CallError> {
        let ToolRun::Read(parse) = call.tool.run else {
            return Err(CallError::Internal("a mutation is not a read".into()));
        };
        reconcile::ensure_consistent(self, run).await?;
        let members = self.follow_names(call, run, members).await?;
        Ok(call.parse_read(parse, members)?)
    }

    /// Executes and records a parsed read. The tree is consistent.
    ///
    /// # Errors
    ///
    /// The refusal, recorded.
    pub(crate) async fn read(
        self: &Arc<Self>,
        call: OpenedCall,
        run: &Arc<OpenRun>,
        tool: Box<dyn ReadTool>,
    ) -> Result<(ReadOutput, ToolCallId), RecordedError> {
        let paths = tool.paths();
        let outcome = self.try_read(&call, run, tool).await;
        let output = self.record_read(&call, run, &paths, outcome).await?;
        Ok((output, call.call.tool_call_id))
    }

    async fn try_read(
        self: &Arc<Self>,
        call: &OpenedCall,
        run: &Arc<OpenRun>,
        tool: Box<dyn ReadTool>,
    ) -> Result<ReadOutput, CallError> {
        self.check_history(run, std::slice::from_ref(call), 0).await?;
        let limit = self.limits.request_timeout;
        let at_seq = tool.at_record().map(|at| at.seq);
        let reads_present = call.mount.is_none() && at_seq.is_none();
        let read = async {
            let mut output = self.execute_read(call, run, tool).await?;
            if reads_present {
                self.warn_of_outside(run, &mut output).await?;
            }
            Ok(output)
        };
        match tokio::time::timeout(limit, read).await {
            Ok(Ok(mut output)) => {
                output.reasons.extend(at_seq.map(|seq| format!("atSeq:{seq}")));
                Ok(output)
            }
            Ok(Err(CallError::Refused(refusal))) => Err(self.name_meant(call, run, refusal).await?.into()),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(timed_out(limit).into()),
        }
    }

    async fn execute_read(
        self: &Arc<Self>,
        call: &Call,
        run: &Arc<OpenRun>,
        tool: Box<dyn ReadTool>,
    ) -> Result<ReadOutput, CallError> {
        if matches!(run.state(), RunState::Preparing | RunState::Deleted) {
            return Err(run_not_open(run.state()).into());
        }
        let at_record = tool.at_record();
        let mount = match &call.mount {
            None => None,
            Some(name) => Some(run.mount(name)?),
        };
        failpoint::hit("call.try");
        if at_record.is_none()
            && let Some(output) = tool.read_inline(&context(run, mount.as_deref(), &AtomicBool::new(false)))
        {
            return output.map_err(CallError::from);
        }
        let (_permit, snapshot) = match at_record {
            None => (self.read_permit(call.tool.is_expensive).await, None),
            Some(at) => {
                let (permit, snapshot) = self.snapshot_at(call, run, at).await?;
                (permit, Some(snapshot))
            }
        };
        let needs_one_state = snapshot.is_none() && mount.is_none() && tool.needs_one_state();
        let (open_run, tool_name, counts_all) = (Arc::clone(run), call.tool.name, call.view == View::Text);
        // Dropped with this future when the client disconnects. The thread sees the flag and stops.
        let cancel_on_drop = CancelOnDrop::default();
        let cancel = cancel_on_drop.flag();
        let read = move || {
            failpoint::hit("call.read");
            let context = context(&open_run, mount.as_deref(), &cancel);
            let context = ReadContext { snapshot: snapshot.as_ref(), counts_all, ..context };
            let output = tool.read(&context);
            if matches!(output, Err(WorkspaceError::Cancelled)) {
                tracing::debug!("a read was cancelled: the client disconnected or the time limit was exceeded");
                metrics::read_cancelled(tool_name);
            }
            output.map_err(CallError::from)
        };
        // Boxed, so that the future of a read of one file is smaller.
        if needs_one_state { Box::pin(self.read_one_state(run, read)).await } else { self.blocking(read).await }
    }
}

/// Returns what a read of the present files reads from: `mount`, or else the run's own tree.
fn context<'a>(run: &'a OpenRun, mount: Option<&'a Tree>, cancel: &'a AtomicBool) -> ReadContext<'a> {
    ReadContext {
        rules: &run.rules,
        tree: mount.unwrap_or_else(|| run.workspace.tree()),
        workspace: mount.is_none().then_some(&*run.workspace),
        known: Some(&run.known),
        snapshot: None,
        counts_all: false,
        cancel,
    }
}

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
        self.warnings.extend(paths.iter().map(warning));
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
    Ok(known.is_some_and(|known| !known.mode.is_link() && known.sha256 == version))
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
