//! Approvals of calls.

use async_recursion::async_recursion as boxed;
use futures_util::Stream;
use model::{Approval, ApprovalId, ApprovalState, RunId, Sha256};
use reqwest::Method;
use serde::{Deserialize, Serialize};

use crate::problem::Error;
use crate::request::Repeat;
use crate::transport::Client;

/// Which approvals to return. The default returns all.
#[derive(Clone, Debug, Default)]
pub struct ApprovalFilter {
    /// Only approvals in this state.
    pub state: Option<ApprovalState>,
    /// Only approvals of this run.
    pub run: Option<RunId>,
    /// The newest approval first.
    pub newest_first: bool,
}

/// What is recorded of a decision.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalDecision {
    /// The person for whom the operator decides. Required from the operator `operator`, whose token names nobody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_behalf_of: Option<String>,
    /// A note.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What the operator changes in the result of an approved call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub edits: Vec<ApprovalEdit>,
}

/// A change to the result of an approved call.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ApprovalEdit {
    /// One of the files that the call changes.
    pub path: String,
    /// Text to replace, as the call leaves it. It must occur exactly once.
    pub old_string: String,
    /// The new text.
    pub new_string: String,
}

/// A decided approval, and the record of the decision.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DecisionResult {
    /// The approval. It is `failed` if the approved call could not be executed.
    #[serde(flatten)]
    pub approval: Approval,
    /// The number of the decision's record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// The hash of that record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_hash: Option<Sha256>,
}

impl Client {
    /// Lists approvals in the order in which they were requested, or the newest first.
    pub fn approvals(&self, filter: &ApprovalFilter) -> impl Stream<Item = Result<Approval, Error>> + use<> {
        let state = filter.state.map(|state| state.as_str().to_owned());
        let order = filter.newest_first.then(|| "desc".to_owned());
        let query = vec![("state", state), ("run", filter.run.as_ref().map(ToString::to_string)), ("order", order)];
        self.pages(vec!["v1".to_owned(), "approvals".to_owned()], query)
    }

    /// Returns an approval, with the diff of its call.
    ///
    /// # Errors
    ///
    /// Those of every request; see [`Error`].
    #[boxed]
    pub async fn approval(&self, approval: &ApprovalId) -> Result<Approval, Error> {
        self.request(Method::GET, ["v1", "approvals", approval.as_str()])?.answer(self).await
    }

    /// Approves a call, which is then executed.
    ///
    /// # Errors
    ///
    /// Those of every request; see [`Error`].
    #[boxed]
    pub async fn approve(&self, approval: &ApprovalId, decision: &ApprovalDecision) -> Result<DecisionResult, Error> {
        self.decide(approval, "approve", decision).await
    }

    /// Denies a call.
    ///
    /// # Errors
    ///
    /// Those of every request; see [`Error`].
    #[boxed]
    pub async fn deny(&self, approval: &ApprovalId, decision: &ApprovalDecision) -> Result<DecisionResult, Error> {
        self.decide(approval, "deny", decision).await
    }

    async fn decide(
        &self,
        approval: &ApprovalId,
        verb: &str,
        decision: &ApprovalDecision,
    ) -> Result<DecisionResult, Error> {
        let request = self.request(Method::POST, ["v1", "approvals", approval.as_str(), verb])?;
        request.json(decision).repeat(Repeat::IfNotExecuted).answer(self).await
    }
}
