//! Calls outside of the measurement: creating, closing and deleting runs, and single tool calls.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use hyper::Method;
use serde_json::{Value, json};

use crate::client::{Connection, Prepared, prepare};

/// The API of a server with the operator's token.
#[derive(Clone)]
pub(crate) struct Api {
    /// The server's address.
    pub(crate) address: SocketAddr,
    token: String,
}

/// A run and its token.
#[derive(Clone)]
pub(crate) struct RunHandle {
    /// The run ID.
    pub(crate) id: String,
    token: String,
}

/// The longest time that an import may take.
const IMPORT_TIMEOUT: Duration = Duration::from_mins(10);

impl Api {
    /// Creates the API of the server at `address`, with the operator's token.
    pub(crate) fn new(address: SocketAddr, token: String) -> Self {
        Self { address, token }
    }

    /// Calls the server as the operator.
    ///
    /// # Errors
    ///
    /// When the status is not a success.
    pub(crate) async fn call(&self, method: Method, path: &str, body: &Value) -> anyhow::Result<Value> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.send(&prepare(method, path, &self.token, body)?).await
    }

    /// Creates a run from `source` and waits until it is open.
    pub(crate) async fn create_run(&self, source: &Value) -> anyhow::Result<RunHandle> {
        let created = self.call(Method::POST, "/v1/runs", &json!({ "source": source })).await?;
        let text = |at: &str| created.pointer(at).and_then(Value::as_str).map(str::to_owned).context(at.to_owned());
        let run = RunHandle { id: text("/run/runId")?, token: text("/token/token")? };
        let (since, mut state) = (Instant::now(), text("/run/state")?);
        while state == "preparing" {
            anyhow::ensure!(since.elapsed() < IMPORT_TIMEOUT, "run {} is not open yet", run.id);
            tokio::time::sleep(Duration::from_millis(5)).await;
            let now = self.run(&run).await?;
            now["state"].as_str().unwrap_or_default().clone_into(&mut state);
        }
        anyhow::ensure!(state == "open", "run {} is {state}", run.id);
        Ok(run)
    }

    /// Returns a run as the operator sees it.
    pub(crate) async fn run(&self, run: &RunHandle) -> anyhow::Result<Value> {
        self.call(Method::GET, &format!("/v1/runs/{}", run.id), &Value::Null).await
    }

    /// Closes a run.
    pub(crate) async fn close_run(&self, run: &RunHandle) -> anyhow::Result<()> {
        self.call(Method::POST, &format!("/v1/runs/{}/close", run.id), &Value::Null).await.map(drop)
    }

    /// Deletes a run's files.
    pub(crate) async fn delete_run(&self, run: &RunHandle) -> anyhow::Result<()> {
        self.call(Method::DELETE, &format!("/v1/runs/{}", run.id), &Value::Null).await.map(drop)
    }

    /// Calls a tool.
    pub(crate) async fn tool(&self, run: &RunHandle, tool: &str, input: &Value) -> anyhow::Result<Value> {
        self.send(&run.prepare(tool, input)?).await
    }

    async fn send(&self, request: &Prepared) -> anyhow::Result<Value> {
        let (status, body) = Connection::open(self.address).await?.send(request).await?;
        let context = || format!("{} answered {status}: {}", request.uri(), String::from_utf8_lossy(&body));
        anyhow::ensure!(status.is_success(), context());
        if body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&body).with_context(context)
    }
}

impl RunHandle {
    /// Returns the run's token.
    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// Builds a tool call that can be sent repeatedly.
    pub(crate) fn prepare(&self, tool: &str, input: &Value) -> anyhow::Result<Prepared> {
        prepare(Method::POST, &format!("/v1/runs/{}/tools/{tool}", self.id), &self.token, input.to_string())
    }
}
