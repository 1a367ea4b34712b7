//! The audit: records by page, single calls, verification, artifacts.

use async_recursion::async_recursion as boxed;
use futures_util::Stream;
use model::{ArtifactId, ChainReport, Code, Outcome, Record, RunId, ToolCallId, Verdict};
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::problem::Error;
use crate::request::Page;
use crate::transport::Client;

/// Which records to return. The default returns all.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// Only calls of this tool.
    pub tool: Option<String>,
    /// Only calls with this decision of the policy.
    pub decision: Option<Verdict>,
    /// Only calls with this outcome.
    pub outcome: Option<Outcome>,
    /// Only calls that were refused with this code.
    pub code: Option<Code>,
    /// Only calls that read or wrote this path, or requested it and were refused.
    pub path: Option<String>,
    /// Only calls about paths that end with this text; `/NAME` is a whole name.
    pub path_suffix: Option<String>,
    /// Only calls at or after this time, RFC 3339.
    pub since: Option<String>,
    /// Only calls before this time, RFC 3339.
    pub until: Option<String>,
    /// Only calls of this caller, such as `operator:ada` or `run-token:tok_…`.
    pub actor: Option<String>,
    /// The newest record first. Does not apply to streams.
    pub newest_first: bool,
}

/// The result of verifying a run's chain.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Verification {
    /// Whether the chain is intact, and where it is broken.
    #[serde(flatten)]
    pub report: ChainReport,
    /// The last record that a signed checkpoint covers, or 0.
    pub checkpointed_seq: u64,
}

impl AuditFilter {
    pub(crate) fn query(&self) -> Result<Vec<(&'static str, Option<String>)>, Error> {
        Ok(vec![
            ("tool", self.tool.clone()),
            ("decision", name_of(self.decision)?),
            ("outcome", name_of(self.outcome)?),
            ("code", name_of(self.code)?),
            ("path", self.path.clone()),
            ("pathSuffix", self.path_suffix.clone()),
            ("since", self.since.clone()),
            ("until", self.until.clone()),
            ("actor", self.actor.clone()),
        ])
    }
}

impl AuditFilter {
    fn list_query(&self) -> Result<Vec<(&'static str, Option<String>)>, Error> {
        let mut query = self.query()?;
        query.push(("order", self.newest_first.then(|| "desc".to_owned())));
        Ok(query)
    }
}

/// Returns the name of a value in JSON.
fn name_of(value: Option<impl Serialize>) -> Result<Option<String>, Error> {
    match serde_json::to_value(value) {
        Ok(Value::String(name)) => Ok(Some(name)),
        Ok(Value::Null) => Ok(None),
        _ => Err(Error::Invalid("a filter that is not a name".to_owned())),
    }
}

impl Client {
    /// Returns the first `count` records of all runs, at most 1,000.
    ///
    /// # Errors
    ///
    /// Those of every request; see [`Error`].
    #[boxed]
    pub async fn audit_page(&self, filter: &AuditFilter, count: u32) -> Result<Vec<Record>, Error> {
        let mut query = filter.list_query()?;
        query.push(("limit", Some(count.to_string())));
        let page: Page<Record> = self.request(Method::GET, ["v1", "audit"])?.query(&query).answer(self).await?;
        Ok(page.items)
    }

    /// Returns the records of all runs, in the order in which they were written, or the newest first.
    pub fn audit(&self, filter: &AuditFilter) -> impl Stream<Item = Result<Record, Error>> + use<> {
        self.records(vec!["v1".to_owned(), "audit".to_owned()], filter)
    }

    /// Returns the records of a run in their order.
    pub fn run_audit(&self, run: &RunId, filter: &AuditFilter) -> impl Stream<Item = Result<Record, Error>> + use<> {
        let path = ["v1", "runs", run.as_str(), "audit"].map(str::to_owned);
        self.records(path.to_vec(), filter)
    }

    fn records(&self, path: Vec<String>, filter: &AuditFilter) -> impl Stream<Item = Result<Record, Error>> + use<> {
        // Every value of the enums has a name.
        self.pages(path, filter.list_query().unwrap_or_default())
    }

    /// Verifies a run's chain.
    ///
    /// # Errors
    ///
    /// Those of every request; see [`Error`].
    #[boxed]
    pub async fn verify(&self, run: &RunId) -> Result<Verification, Error> {
        self.request(Method::GET, ["v1", "runs", run.as_str(), "audit", "verify"])?.answer(self).await
    }

    /// Returns a tool call: its record, and its approval if it needed one, as `ToolCall` in the API document. Waits up to
    /// `wait_seconds`, at most 60, for the decision of a call that waits for its approval.
    ///
    /// # Errors
    ///
    /// Those of every request; see [`Error`].
    #[boxed]
    pub async fn tool_call(&self, run: &RunId, call: &ToolCallId, wait_seconds: u64) -> Result<Value, Error> {
        let request = self.request(Method::GET, ["v1", "runs", run.as_str(), "tool-calls", call.as_str()])?;
        request.query(&[("waitSeconds", Some(wait_seconds.to_string()))]).answer(self).await
    }

    /// Returns the newest signed checkpoint, as a signed note.
    ///
    /// # Errors
    ///
    /// Those of every request; see [`Error`].
    #[boxed]
    pub async fn checkpoint(&self) -> Result<String, Error> {
        self.request(Method::GET, ["v1", "checkpoint"])?.text(self).await
    }

    /// Returns the public key of the checkpoints, as a verifier key.
    ///
    /// # Errors
    ///
    /// Those of every request; see [`Error`].
    #[boxed]
    pub async fn checkpoint_key(&self) -> Result<String, Error> {
        self.request(Method::GET, ["v1", "checkpoint", "key"])?.text(self).await
    }

    /// Returns the statements about changes of that key in their order: signed notes, each followed by an empty line.
    ///
    /// # Errors
    ///
    /// Those of every request; see [`Error`].
    #[boxed]
    pub async fn checkpoint_key_changes(&self) -> Result<String, Error> {
        self.request(Method::GET, ["v1", "checkpoint", "key", "changes"])?.text(self).await
    }

    /// Returns the diff of a mutation.
    ///
    /// # Errors
    ///
    /// Those of every request; see [`Error`].
    #[boxed]
    pub async fn artifact(&self, run: &RunId, artifact: &ArtifactId) -> Result<String, Error> {
        self.request(Method::GET, ["v1", "runs", run.as_str(), "artifacts", artifact.as_str()])?.text(self).await
    }
}
