//! The engine over a SQLite ledger, with one run.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use engine::operators::{ConfiguredTokens, OperatorIdentity, TokenSettings, Tokens};
use engine::runs::{CreationAnswer, ExportFormat};
use engine::{CallError, Caller, Limits, Resources, Services, calls, tools};
use ledger::Ledger;
use model::{ApprovalId, OperatorName, Profiles, RunId, Scope, Sha256};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use workspace::Workspaces;

pub(super) struct Service {
    data: PathBuf,
    roots: Vec<PathBuf>,
    ledger: Arc<dyn Ledger>,
    services: Services,
    run: RunId,
}

impl Service {
    /// Starts it in a new folder and creates a run.
    pub(super) async fn start(data: PathBuf, roots: Vec<PathBuf>, source: &Value, policy: &Value) -> Self {
        std::fs::create_dir(&data).unwrap();
        let url = format!("sqlite://{}", data.join("workspaced.db").display());
        let ledger: Arc<dyn Ledger> = ledger::open(&url).await.unwrap();
        let services = services(&data, &roots, &ledger).await;
        let request = serde_json::from_value(json!({"source": source, "policy": policy})).unwrap();
        let (by, caller, answer) = (operator(), caller(), CreationAnswer::AfterImport);
        let created = services.runs.create_run(request, by, &caller, None, answer).await.unwrap();
        Self { data, roots, ledger, services, run: created.run.run_id }
    }

    /// Replaces the engine by a new one over the same ledger and folder.
    pub(super) async fn restart(&mut self) {
        self.services = services(&self.data, &self.roots, &self.ledger).await;
    }

    /// Returns the number of the run's newest record.
    pub(super) async fn head(&self) -> u64 {
        self.ledger.run(&self.run).await.unwrap().unwrap().run.head_seq
    }

    pub(super) async fn call(&self, tool: &str, input: Value) -> Result<Value, CallError> {
        let body = Bytes::from(with_reason(tool, input).to_string());
        body_of(self.services.calls.call_tool(&self.run, caller(), tools::find(tool).unwrap(), body).await)
    }

    /// Makes calls of which all are applied or none.
    pub(super) async fn batch(&self, inputs: &[(&'static str, Value)]) -> Result<(), CallError> {
        let calls = inputs.iter().map(|(tool, input)| {
            let members = with_reason(tool, input.clone()).as_object().unwrap().clone();
            calls::Call::of(&self.run, caller(), tools::find(tool).unwrap(), members)
        });
        let outcomes = self.services.calls.call_batch(calls.collect()).await?;
        outcomes.answers.into_iter().try_for_each(|answer| Ok(answer.map(drop)?))
    }

    pub(super) async fn apply_changeset(&self, mut set: Value, layer: &[u8]) -> Result<Value, CallError> {
        set["changesetId"] = set.as_object_mut().unwrap().remove("toolCallId").unwrap();
        set["reason"] = json!("a test");
        let layer = Ok(calls::Layer::from(Bytes::copy_from_slice(layer)));
        body_of(self.services.calls.apply_changeset(&self.run, caller(), set.to_string().as_bytes(), layer).await)
    }

    /// Approves a waiting call, perhaps with edits, or denies it. Returns the state of the approval.
    pub(super) async fn decide(&self, approval: &ApprovalId, is_approved: bool, edits: Value) -> String {
        let decision = json!({"onBehalfOf": "ada", "edits": edits});
        let decision: calls::ApprovalDecision = serde_json::from_value(decision).unwrap();
        let (decider, calls) = (decision.check(operator()).unwrap(), &self.services.calls);
        let decided =
            if is_approved { calls.approve(approval, decider).await } else { calls.deny(approval, decider).await };
        serde_json::to_value(decided.unwrap()).unwrap()["state"].as_str().unwrap().to_owned()
    }

    pub(super) async fn export(&self, format: ExportFormat) -> Vec<u8> {
        let out = SharedBuffer::default();
        let export = self.services.runs.begin_export(&self.run, caller(), format).await.unwrap();
        export.write(out.clone(), Arc::new(AtomicBool::new(false))).await.unwrap();
        std::mem::take(&mut out.0.lock().unwrap())
    }
}

#[derive(Clone, Default)]
struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

impl Write for SharedBuffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

async fn services(data: &Path, roots: &[PathBuf], ledger: &Arc<dyn Ledger>) -> Services {
    let settings = TokenSettings {
        configured: ConfiguredTokens { operator: Some(operator().secret_sha256), ..ConfiguredTokens::default() },
        failures_per_minute: 0,
    };
    Services::start(Resources {
        limits: limits(),
        profiles: Profiles::built_in(),
        ledger: Arc::clone(ledger),
        workspaces: Arc::new(Workspaces::open(data, roots).unwrap()),
        objects: None,
        tokens: Tokens::load(settings, ledger.as_ref()).await.unwrap().0,
        held: ledger.storage_totals().await.unwrap(),
        tasks: TaskTracker::new(),
        shutdown: CancellationToken::new(),
    })
}

fn limits() -> Limits {
    Limits {
        request_timeout: Duration::from_mins(1),
        max_body_memory_bytes: 64 << 20,
        rate: None,
        read_concurrency: 8,
        search_concurrency: 8,
        export_concurrency: 8,
        write_concurrency: 8,
        import_concurrency: 8,
        max_requests: 64,
        max_streams: 8,
        max_live_runs: 8,
        max_runs: None,
        max_disk_bytes: None,
    }
}

fn operator() -> Arc<OperatorIdentity> {
    let name = OperatorName::parse("operator").unwrap();
    Arc::new(OperatorIdentity::configured(name, [Scope::Orchestrate], Sha256::of(b"operator")))
}

fn caller() -> Caller {
    Caller::of_operator(&operator())
}

fn with_reason(tool: &str, mut input: Value) -> Value {
    if tools::find(tool).unwrap().mutates() {
        input["reason"] = json!("a test");
    }
    input.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    input
}

fn body_of(answer: Result<calls::Answer, calls::Failed>) -> Result<Value, CallError> {
    answer.map(|answer| serde_json::from_str(&answer.to_json()).unwrap()).map_err(|failed| failed.error.into())
}
