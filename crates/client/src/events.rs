//! Events: what an agent does outside of the service's tools.

use async_recursion::async_recursion as boxed;
use std::time::Duration;

use model::{EventKind, RunId, Sha256, ToolCallId};
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::problem::Error;
use crate::request::{new_id, with_id};
use crate::transport::Client;

/// The longest summary in characters that [`Client::record_command`] makes.
const MAX_SUMMARY: usize = model::MAX_SUMMARY_CHARS;

/// An event to record.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NewEvent {
    /// The ID of the event. Made by the client if missing, so that a repetition is the same event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_id: Option<String>,
    /// The kind.
    pub kind: EventKind,
    /// What happened, in one sentence of 1 to 500 characters.
    pub summary: String,
    /// The step of the agent's plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step_id: Option<String>,
    /// Details, at most 64 KiB of JSON.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub data: Map<String, Value>,
    /// When it started, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// How long it took, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_micros: Option<u64>,
}

/// A recorded event.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AppendedEvent {
    /// The ID of the event.
    pub event_id: ToolCallId,
    /// The number of its record.
    pub seq: u64,
    /// The hash of its record.
    pub head_hash: Sha256,
}

/// An uploaded artifact.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UploadedArtifact {
    /// How events name it.
    pub uri: String,
    /// Its SHA-256.
    pub sha256: Sha256,
    /// Its size in bytes.
    pub size_bytes: u64,
}

/// A command that was run.
#[derive(Clone, Debug, Default)]
pub struct CommandEvent<'a> {
    /// The command, as it was given to the shell.
    pub command: &'a str,
    /// Its exit code; missing if it was ended by a signal.
    pub exit_code: Option<i32>,
    /// How long it took.
    pub duration: Option<Duration>,
    /// Where its output is, such as the `uri` of an [`UploadedArtifact`].
    pub output: Option<&'a str>,
}

impl NewEvent {
    /// An event without details.
    pub fn new(kind: EventKind, summary: impl Into<String>) -> Self {
        let (summary, data) = (summary.into(), Map::new());
        Self { event_id: None, kind, summary, step_id: None, data, started_at: None, duration_micros: None }
    }
}

impl From<&CommandEvent<'_>> for NewEvent {
    fn from(command: &CommandEvent<'_>) -> Self {
        let outcome = command.exit_code.map_or("ended by a signal".to_owned(), |code| format!("exit code {code}"));
        let mut event = Self::new(EventKind::Command, command_summary(command.command, &outcome));
        event.data.insert("command".to_owned(), json!(command.command));
        event.data.extend(command.exit_code.map(|code| ("exitCode".to_owned(), json!(code))));
        event.data.extend(command.output.map(|output| ("output".to_owned(), json!(output))));
        event.duration_micros = command.duration.and_then(|duration| u64::try_from(duration.as_micros()).ok());
        event
    }
}

/// Returns the summary of a command, as far as there is room for it.
pub(crate) fn command_summary(command: &str, outcome: &str) -> String {
    let max_chars = MAX_SUMMARY - outcome.chars().count() - 2;
    let mut shown: String = command.chars().take(max_chars).collect();
    if shown.len() < command.len() {
        shown.pop();
        shown.push('…');
    }
    format!("{shown}: {outcome}")
}

impl Client {
    /// Records an event in the run's chain.
    ///
    /// # Errors
    ///
    /// Those of every request; see [`Error`].
    #[boxed]
    pub async fn append_event(&self, run: &RunId, event: &NewEvent) -> Result<AppendedEvent, Error> {
        let event = with_id(event, "eventId", new_id("ev_"))?;
        let request = self.request(Method::POST, ["v1", "runs", run.as_str(), "events"])?;
        request.json(&event).answer(self).await
    }

    /// Records a command and its outcome.
    ///
    /// ```no_run
    /// # async fn example(client: workspaced_client::Client, run: workspaced_client::RunId) -> Result<(), workspaced_client::Error> {
    /// use workspaced_client::CommandEvent;
    ///
    /// let tests = CommandEvent { command: "cargo test", exit_code: Some(101), ..CommandEvent::default() };
    /// println!("record {}", client.record_command(&run, &tests).await?.seq);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of every request; see [`Error`].
    #[boxed]
    pub async fn record_command(&self, run: &RunId, command: &CommandEvent<'_>) -> Result<AppendedEvent, Error> {
        self.append_event(run, &NewEvent::from(command)).await
    }

    /// Uploads what is too large for an event, at most 16 MiB.
    ///
    /// # Errors
    ///
    /// Those of every request; see [`Error`].
    #[boxed]
    pub async fn upload_artifact(&self, run: &RunId, content: Vec<u8>) -> Result<UploadedArtifact, Error> {
        let digest = Sha256::of(&content).to_string();
        let request = self.request(Method::PUT, ["v1", "runs", run.as_str(), "artifacts", "sha256", &digest])?;
        request.body(content).answer(self).await
    }
}
