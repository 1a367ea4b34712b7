//! Large contents of calls that wait for approval. Each is a file in the run's `waiting/`, and an object where there is a store, before the
//! ledger has the approval that needs it. It is removed once the approval is decided.

use std::io::{Read, Seek as _, SeekFrom};
use std::sync::Arc;

use ledger::{EntryObject, ObjectHolder};
use model::{Approval, ApprovalId, Code, Disk, RunId, Sha256};

use crate::CallError;
use crate::admission::pools::permit;
use crate::call::OpenedCall;
use crate::engine::Engine;
use crate::run::fsync_worker::abort_on_failed_fsync;
use crate::run::open_run::OpenRun;
use crate::run::quota::Reservation;
use crate::tool::scanned_reader::ScannedReader;
use crate::tool::{Mutation, Need, Obtained, StagedContent};
use crate::transaction::large_contents::{self, WaitingContent};

/// A content that is kept for an approval that the ledger does not have yet.
pub(crate) struct NewWaiting {
    pub(crate) approval: ApprovalId,
    pub(crate) space: Reservation,
}

impl NewWaiting {
    /// Removes the content if its approval was not recorded because of `error`.
    pub(crate) async fn end(self, engine: &Engine, run: &OpenRun, error: Option<&CallError>) {
        let is_unrecorded = match error {
            None | Some(CallError::Internal(_)) => false,
            // The outcome of the commit may be uncertain.
            Some(CallError::Refused(refusal)) => refusal.code != Code::Unavailable,
            Some(CallError::Moved(_)) => true,
        };
        if is_unrecorded {
            engine.remove_waiting(&run.run_id, &self.approval).await;
        } else {
            run.waiting.hold(self.approval, self.space);
        }
    }
}

impl Engine {
    /// Keeps the staged `content` of the `calls` that are about to wait for `approval`, and returns the object that their entry refers to,
    /// if there is a store.
    ///
    /// # Errors
    ///
    /// `QUOTA_EXCEEDED`; `UNAVAILABLE` if the store or the disk is. The file is then in `tmp/`, or removed.
    pub(crate) async fn keep_waiting(
        &self,
        run: &Arc<OpenRun>,
        calls: &[OpenedCall],
        approval: &ApprovalId,
        content: &WaitingContent,
    ) -> Result<Option<EntryObject>, CallError> {
        let staged = content.name.clone();
        let object = match &self.objects {
            Some(objects) => {
                self.check_history(run, calls, content.size_bytes).await?;
                let holder = ObjectHolder::Approval(approval.clone());
                Some(large_contents::put(self, objects, run, content, holder).await?)
            }
            None => None,
        };
        let (workspaces, id, kept_for) = (Arc::clone(&self.workspaces), run.run_id.clone(), approval.clone());
        let keep = move || {
            let kept = workspaces.keep_waiting(&id, &staged, &kept_for).inspect_err(abort_on_failed_fsync);
            Ok(kept.inspect_err(|_| drop(workspaces.remove_waiting(&id, &kept_for)))?)
        };
        self.blocking(keep).await?;
        failpoint::hit("approval.kept");
        Ok(object)
    }

    /// Copies the content that the approved call of `tool` waits with to the run's `tmp/`, and gives it to the tool, if it needs one. The
    /// plan is refused where it is stored nowhere.
    ///
    /// # Errors
    ///
    /// `QUOTA_EXCEEDED`; the errors of the disk and of the store.
    pub(crate) async fn stage_waiting(
        &self,
        run: &Arc<OpenRun>,
        approval: &Approval,
        tool: &mut dyn Mutation,
    ) -> Result<(), CallError> {
        let Some(Need::Waiting(sha256)) = tool.need() else { return Ok(()) };
        let Some((size_bytes, mut content)) = self.open_waiting(&run.run_id, &approval.approval_id, sha256).await?
        else {
            tracing::error!(run.id = %run.run_id, approval.id = %approval.approval_id, %sha256, "the content of an approval is missing");
            return Ok(());
        };
        let mut reservation = match run.waiting.take(&approval.approval_id) {
            Some(held) => held,
            None => run.disk.reservation(),
        };
        reservation.resize(Disk { bytes: size_bytes, files: 0 })?;
        let permit = permit(&self.pools.receive).await;
        let open_run = Arc::clone(run);
        let stage = move || {
            let _permit = permit;
            let mut reader = ScannedReader::new(&mut content);
            let mut contents = open_run.workspace.staged_contents();
            let file = contents.stage(&mut reader, size_bytes).inspect_err(abort_on_failed_fsync)?;
            Ok(StagedContent { file, scanned: reader.scan.finish(), owner: Some((contents, reservation)) })
        };
        let staged = self.blocking(stage).await?;
        if staged.file.sha256 != sha256 {
            return Err(CallError::Internal("a content that waits for approval does not have its hash".into()));
        }
        Ok(tool.prepare(Obtained::Waiting(Box::new(staged)))?)
    }

    /// Counts the content of an approval, which is still pending, again.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub(crate) async fn count_waiting(&self, run: &OpenRun, approval: &ApprovalId) -> Result<(), CallError> {
        let (workspaces, id, waits) = (Arc::clone(&self.workspaces), run.run_id.clone(), approval.clone());
        let size = self.blocking(move || {
            let file = workspaces.open_waiting(&id, &waits)?;
            Ok(file.map(|file| file.metadata()).transpose()?.map(|metadata| metadata.len()))
        });
        if let Some(bytes) = size.await? {
            run.waiting.hold(approval.clone(), run.disk.reservation_of(Disk { bytes, files: 0 }));
        }
        Ok(())
    }

    async fn open_waiting(
        &self,
        run: &RunId,
        approval: &ApprovalId,
        sha256: Sha256,
    ) -> Result<Option<(u64, Box<dyn Read + Send>)>, CallError> {
        let (workspaces, id, waits) = (Arc::clone(&self.workspaces), run.clone(), approval.clone());
        let opened = self.blocking(move || {
            let Some(file) = workspaces.open_waiting(&id, &waits)? else { return Ok(None) };
            let size_bytes = file.metadata()?.len();
            Ok(Some((size_bytes, Box::new(file) as Box<dyn Read + Send>)))
        });
        if let Some(file) = opened.await? {
            return Ok(Some(file));
        }
        // Another node has asked.
        let Some(objects) = &self.objects else { return Ok(None) };
        let Some(mut object) = objects.content(sha256, u64::MAX).await? else { return Ok(None) };
        let size_bytes = object.seek(SeekFrom::End(0))?;
        object.rewind()?;
        Ok(Some((size_bytes, object)))
    }
}
