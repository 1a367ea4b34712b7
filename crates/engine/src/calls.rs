//! Calls: of the tools, of files as whole, of change sets, of people who approve or deny; events and uploads; the feed of changes.

pub(crate) mod change_feed;
pub(crate) mod changesets;
pub(crate) mod commands;
pub(crate) mod comments;
pub(crate) mod deciding;
pub(crate) mod differing;
pub(crate) mod dispatch;
pub(crate) mod events;
mod stop;

use async_recursion::async_recursion as boxed;
use std::sync::Arc;
use std::time::Duration;

use ledger::ApprovalFilter;
use model::{Approval, ApprovalId, Refusal, RunId};

use crate::CallError;
use crate::calls::commands::queue::CommandQueue;
use crate::engine::Engine;
use crate::page::{Cursor, Page};
use crate::run::keyed::KeyedLocks;

pub use crate::admission::body_memory::RequestMemory;
pub use crate::approvals::decide::{ApprovalEdit, DecidingPerson};
pub use crate::approvals::present::CurrentApproval;
pub use crate::approvals::{ApprovalDecision, ApprovalQuery};

pub use crate::call::record::RecordedError;
pub use crate::call::{Answer, Call, Failed, Outcomes, TextAnswer};
pub use crate::tool::layer::{Layer, MAX_LAYER_IN_MEMORY};
pub use change_feed::{ChangeList, ChangesQuery};
pub use changesets::{ApplyChangesetRequest, MergeRequest, changeset_id};
pub use commands::result::CommandResultRequest;
pub use commands::{CommandOrder, CommandResultAnswer, NextCommand, NextCommandRequest, command_set_id};
pub use comments::CommentRequest;
pub use deciding::ApprovalResult;
pub use deciding::files::ApprovalFileQuery;
pub use dispatch::CallWithInput;
pub use dispatch::file_transfers::{Chunks, FileCallOptions, FileDownload, FileUpload};
pub use dispatch::policy_query::{PolicyExplanation, PolicyQuery};
pub use events::uploads::{UploadedArtifact, too_large};
pub use events::{AppendEventRequest, AppendedEvent};
pub use stop::StopRunRequest;

/// Everything that is done in a run and recorded.
#[derive(Clone)]
pub struct Calls {
    engine: Arc<Engine>,
    /// Locks of approvals that are being given.
    votes: Arc<KeyedLocks<ApprovalId>>,
    /// The commands that callers want run.
    queue: Arc<CommandQueue>,
}

impl Calls {
    pub(crate) fn new(engine: Arc<Engine>) -> Self {
        Self { engine, votes: Arc::default(), queue: Arc::default() }
    }

    /// Acquires memory for a body of up to `bytes` of the current request, and waits for it at most `timeout`.
    ///
    /// # Errors
    ///
    /// `RATE_LIMITED` if the token or its run has its share; `UNAVAILABLE` if others use the budget.
    #[boxed]
    pub async fn acquire_body(&self, bytes: u64, timeout: Duration) -> Result<(), Refusal> {
        self.engine.pools.acquire_body(bytes, timeout).await
    }

    /// Returns a page of the approvals that match `filter`, in order of creation, without their diffs.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    #[boxed]
    pub async fn approvals(
        &self,
        filter: &ApprovalFilter,
        after: Option<Cursor>,
        limit: u32,
    ) -> Result<Page<Approval>, CallError> {
        self.engine.approvals(filter, after, limit).await
    }

    /// Returns an approval. While it is pending, it has the present versions of its files and says whether it can still be applied. It is
    /// expired if its time has passed.
    ///
    /// # Errors
    ///
    /// `NOT_FOUND`.
    #[boxed]
    pub async fn approval(&self, id: &ApprovalId) -> Result<CurrentApproval, CallError> {
        self.with_applicability(self.engine.approval_with_files(id).await?).await
    }

    /// Returns the run of an approval; `None` if there is no such approval.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    #[boxed]
    pub async fn run_of_approval(&self, id: &ApprovalId) -> Result<Option<RunId>, CallError> {
        Ok(self.engine.ledger.approval(id).await?.map(|approval| approval.run_id))
    }

    /// Records that an approval has expired.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    #[boxed]
    pub async fn expire(&self, approval: &Approval) -> Result<(), CallError> {
        self.engine.expire(approval).await
    }
}
