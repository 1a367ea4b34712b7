//! Reads: resolve, judge, read, record.

pub(crate) mod names;
mod outside;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use model::{RunState, ToolCallId};
use serde_json::{Map, Value};
use workspace::{Tree, WorkspaceError};

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
