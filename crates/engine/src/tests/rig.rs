//! An engine over a ledger that can fail, and what tests do with it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::Engine;
use crate::operators::{ConfiguredTokens, OperatorIdentity, TokenSettings, Tokens};
use crate::runs::{CreateRunRequest, CreationAnswer};
use crate::{CallError, Caller, Limits, Services, tools};
use ::ledger::{Ledger, NodeIdentity, NodeLog as _};
use bytes::Bytes;
use model::{OperatorName, Profiles, RecordFile, RunId, Scope};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use workspace::Workspaces;

use crate::tests::ledger::FailingLedger;

/// An engine over a ledger that can fail.
pub(crate) struct Rig {
    pub(crate) folder: TempDir,
    pub(crate) ledger: Arc<FailingLedger>,
    pub(crate) services: Services,
    /// What the services share.
    pub(crate) engine: Arc<Engine>,
    runs: u32,
}

/// How the engine shares its database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    /// It is the only one.
    Alone,
    /// It is one of several nodes.
    Node,
}

/// What a test does while the ledger fails.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    Write,
    Batch,
    DryRun,
    Denied,
    Ask,
    Approve,
    Revert,
}

pub(crate) fn operator() -> Arc<OperatorIdentity> {
    let name = OperatorName::parse("operator").unwrap();
    Arc::new(OperatorIdentity::configured(name, [Scope::Orchestrate], model::Sha256::of(b"operator")))
}

impl Rig {
    /// Starts it on a new SQLite database.
    pub(crate) async fn start(service: Service) -> Self {
        let folder = TempDir::new().unwrap();
        let url = format!("sqlite://{}", folder.path().join("workspaced.db").display());
        let ledger = Arc::new(FailingLedger::new(::ledger::open(&url).await.unwrap()));
        if service == Service::Node {
            let identity = NodeIdentity { node_id: "a".to_owned(), url: "http://a:1".to_owned() };
            ledger.join(&identity, None, "1 cluster", Duration::from_mins(10)).await.unwrap().unwrap();
        }
        let settings = TokenSettings {
            configured: ConfiguredTokens { operator: Some(operator().secret_sha256), ..ConfiguredTokens::default() },
            failures_per_minute: 0,
        };
        let (tokens, _) = Tokens::load(settings, ledger.as_ref()).await.unwrap();
        let workspaces = Arc::new(Workspaces::open(folder.path(), &[]).unwrap());
        let totals = ledger.storage_totals().await.unwrap();
        let dynamic: Arc<dyn Ledger> = Arc::clone(&ledger) as Arc<dyn Ledger>;
        let process = (TaskTracker::new(), CancellationToken::new());
        let engine = Arc::new(Engine::new(limits(), dynamic, workspaces, None, tokens, totals, process));
        let services = Services::of(&engine, Profiles::built_in());
        Self { folder, ledger, services, engine, runs: 0 }
    }

    /// A new run with `kept.txt` in two versions, and `deleted.txt`.
    pub(crate) async fn run(&mut self) -> RunId {
        self.runs += 1;
        let id = format!("run-{}", self.runs);
        let policy = json!({"profile": "SUPERVISED_PR", "requireApprovalIf": ["deletesFile"]});
        let request = json!({"runId": id, "source": {"type": "empty"}, "policy": policy});
        let request: CreateRunRequest = serde_json::from_value(request).unwrap();
        self.services
            .runs
            .create_run(request, operator(), &Caller::of_operator(&operator()), None, CreationAnswer::AfterImport)
            .await
            .unwrap();
        let run = RunId::parse(&id).unwrap();
        self.write(&run, "kept.txt", "one\n", None).await.unwrap();
        let expected = model::Sha256::of(b"one\n").to_string();
        let second =
            json!({"path": "kept.txt", "content": "two\n", "expectedSha256": expected, "toolCallId": "second"});
        self.call(&run, "write_file", second).await.unwrap();
        self.write(&run, "deleted.txt", "gone\n", None).await.unwrap();
        run
    }

    pub(crate) async fn write(
        &self,
        run: &RunId,
        path: &str,
        content: &str,
        old: Option<&str>,
    ) -> Result<Value, CallError> {
        let expected = old.map(|old| model::Sha256::of(old.as_bytes()).to_string());
        self.call(run, "write_file", json!({"path": path, "content": content, "expectedSha256": expected})).await
    }

    pub(crate) async fn call(&self, run: &RunId, tool: &str, mut input: Value) -> Result<Value, CallError> {
        let tool = tools::find(tool).unwrap();
        if tool.mutates() {
            input["reason"] = json!("a test");
        }
        input.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        let body = Bytes::from(input.to_string());
        let answer = self.services.calls.call_tool(run, Caller::of_operator(&operator()), tool, body).await;
        answer.map(|answer| serde_json::from_str(&answer.to_json()).unwrap()).map_err(|failed| failed.error.into())
    }

    pub(crate) async fn batch(&self, run: &RunId, inputs: [(&str, Value); 2]) -> Result<Value, CallError> {
        let calls = inputs.into_iter().map(|(tool, mut input)| {
            input["reason"] = json!("a test");
            let members = input.as_object().unwrap().clone();
            crate::calls::Call::of(run, Caller::of_operator(&operator()), tools::find(tool).unwrap(), members)
        });
        let outcomes = self.services.calls.call_batch(calls.collect()).await?;
        let mut last = json!(null);
        for answer in outcomes.answers {
            last = serde_json::from_str(&answer?.to_json()).unwrap();
        }
        Ok(last)
    }

    /// Writes the file `after.txt`. A run that has moved is asked for again, as its owner would be.
    pub(crate) async fn write_after(&self, run: &RunId) -> Result<Value, CallError> {
        match self.write(run, "after.txt", "after\n", None).await {
            Err(CallError::Moved(_)) => self.write(run, "after.txt", "after\n", None).await,
            done => done,
        }
    }

    /// Does `action`, which has the same IDs each time that it is repeated.
    pub(crate) async fn act(&self, run: &RunId, action: Action, approval: Option<&str>) -> Result<Value, CallError> {
        let kept = model::Sha256::of(b"two\n").to_string();
        let write = json!({"path": "new.txt", "content": "new\n", "toolCallId": "write"});
        match action {
            Action::Write => self.call(run, "write_file", write).await,
            Action::Batch => {
                let edit = json!({
                    "path": "kept.txt", "oldString": "two", "newString": "three", "expectedSha256": kept,
                    "toolCallId": "edit",
                });
                self.batch(run, [("write_file", write), ("edit_file", edit)]).await
            }
            Action::DryRun => {
                let input = json!({"path": "new.txt", "content": "new\n", "toolCallId": "dry", "dryRun": true});
                self.call(run, "write_file", input).await
            }
            Action::Denied => {
                self.call(run, "write_file", json!({"path": ".env", "content": "A=1\n", "toolCallId": "no"})).await
            }
            Action::Ask => {
                let expected = model::Sha256::of(b"gone\n").to_string();
                let input = json!({"path": "deleted.txt", "expectedSha256": expected, "toolCallId": "delete"});
                self.call(run, "delete_file", input).await
            }
            Action::Approve => {
                let decision = serde_json::from_value::<crate::calls::ApprovalDecision>(json!({"decidedBy": "alice"}));
                let decider = decision.unwrap().check(operator()).unwrap();
                let id = model::ApprovalId::parse(approval.unwrap()).unwrap();
                let result = self.services.calls.approve(&id, decider).await?;
                Ok(serde_json::to_value(result).unwrap())
            }
            Action::Revert => {
                self.call(run, "revert_calls", json!({"toolCallIds": ["second"], "toolCallId": "revert"})).await
            }
        }
    }

    /// The versions of all files, as the records of successful mutations say.
    pub(crate) async fn recorded(&self, run: &RunId) -> BTreeMap<String, String> {
        let mut files = BTreeMap::new();
        let page = self.ledger.changes(run, 0, 1000.into()).await.unwrap();
        for stored in page.iter() {
            let record: model::Record = serde_json::from_str(&stored.text).unwrap();
            for RecordFile { path, new_sha256, .. } in record.files {
                match new_sha256 {
                    _ if !record.paths_written.contains(&path) => None,
                    Some(hash) => files.insert(path.to_string(), hash.to_string()),
                    None => files.remove(path.as_str()),
                };
            }
        }
        files
    }

    /// The versions of all files on the disk.
    pub(crate) fn on_disk(&self, run: &RunId) -> BTreeMap<String, String> {
        let tree: PathBuf = self.folder.path().join("workspaces").join(run.as_str()).join("repo");
        let entries = std::fs::read_dir(tree).unwrap().map(Result::unwrap);
        let files = entries.filter(|entry| entry.path().is_file()).map(|entry| {
            let hash = model::Sha256::of(&std::fs::read(entry.path()).unwrap());
            (entry.file_name().into_string().unwrap(), hash.to_string())
        });
        files.collect()
    }
}

pub(crate) fn limits() -> Limits {
    Limits {
        request_timeout: Duration::from_secs(10),
        max_body_memory_bytes: 64 << 20,
        rate: None,
        read_concurrency: 64,
        search_concurrency: 64,
        export_concurrency: 64,
        write_concurrency: 64,
        import_concurrency: 64,
        max_requests: 1024,
        max_streams: 64,
        max_live_runs: 64,
        max_runs: None,
        max_disk_bytes: None,
    }
}
