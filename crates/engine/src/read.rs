//! Reads: resolve, judge, read, record.

pub(crate) mod names;
mod outside;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use model::{RunState, ToolCallId};
use serde_json::{Map, Value};
use workspace::{Tree, WorkspaceError};

use crate::call::record::{Failure, read_entry};
use crate::call::{CallContext, View};
use crate::call_error::refusals::{run_not_open, timed_out};
use crate::engine::Engine;
use crate::run::chain_head::ChainHead;
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
        call: CallContext,
        run: &Arc<OpenRun>,
        members: Map<String, Value>,
    ) -> Result<(ReadOutput, ToolCallId), CallError> {
        let call = CallContext { epoch: run.epoch, ..call };
        let ToolRun::Read(parse) = call.tool.run else {
            return Err(CallError::Internal("a mutation is not a read".into()));
        };
        if let Err(error) = reconcile::ensure_consistent(self, run).await {
            return Err(self.record_error(&call, &[], error).await);
        }
        let members = match self.follow_names(&call, run, members).await {
            Ok(members) => members,
            Err(error) => return Err(self.record_error(&call, &[], error).await),
        };
        match call.parse_read(parse, members) {
            Ok(tool) => self.read(call, run, tool).await,
            Err(refusal) => Err(self.record_error(&call, &[], refusal.into()).await),
        }
    }

    /// Executes and records a parsed read. The tree is consistent.
    ///
    /// # Errors
    ///
    /// The refusal, recorded.
    pub(crate) async fn read(
        self: &Arc<Self>,
        call: CallContext,
        run: &Arc<OpenRun>,
        tool: Box<dyn ReadTool>,
    ) -> Result<(ReadOutput, ToolCallId), CallError> {
        let call = CallContext { epoch: run.epoch, ..call };
        let (paths, at_record) = (tool.paths(), tool.at_record());
        if let Err(error) = self.check_history(run, std::slice::from_ref(&call), 0).await {
            return Err(self.record_error(&call, &paths, error).await);
        }
        let limit = self.limits.request_timeout;
        let reads_present = call.mount.is_none() && at_record.is_none();
        let read = async {
            let mut output = self.execute_read(&call, run, tool).await?;
            if reads_present {
                self.warn_of_outside(run, &mut output).await?;
            }
            Ok(output)
        };
        let output = tokio::time::timeout(limit, read).await;
        let mut output = match output.unwrap_or_else(|_| Err(timed_out(limit).into())) {
            Ok(output) => output,
            Err(CallError::Refused(refusal)) => {
                let error = self.name_meant(&call, run, refusal).await.map_or_else(|error| error, CallError::from);
                return Err(self.record_error(&call, &paths, error).await);
            }
            Err(error) => return Err(self.record_error(&call, &paths, error).await),
        };
        let mut entry = read_entry(&call, &mut output);
        entry.draft.reasons.extend(at_record.map(|at| format!("atSeq:{}", at.seq)));
        match self.append_for(std::slice::from_ref(&call), vec![entry]).await.map_err(Failure::of_recording) {
            Ok(records) => {
                for record in &records {
                    run.seen_versions.add(record);
                }
                output.head = records.first().map(|record| ChainHead { seq: record.seq, hash: record.hash });
                Ok((output, call.tool_call_id))
            }
            // The token was revoked during the call.
            Err(Failure::All(error)) => Err(self.record_error(&call, &paths, error).await),
            Err(failure) => Err(failure.into_error()),
        }
    }

    async fn execute_read(
        self: &Arc<Self>,
        call: &CallContext,
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
        let cancel = Arc::new(AtomicBool::new(false));
        // Dropped with this future when the client disconnects. The thread sees the flag and stops.
        let _cancel = SetOnDrop(Arc::clone(&cancel));
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
        changed: Some(&run.changed),
        snapshot: None,
        counts_all: false,
        cancel,
    }
}

struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
