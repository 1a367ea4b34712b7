//! Commands that callers of `run_command` want run: what a runner asks for and reports. With the feature `folders`, a
//! [`Runner`](crate::Runner) does it all.

use async_recursion::async_recursion as boxed;
use std::time::Duration;

use model::{RunId, Sha256, ToolCallId};
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::changesets::{ChangesetConflict, ChangesetDenied, ChangesetPath, LayerForm};
use crate::packed_layer::PackedLayer;
use crate::problem::Error;
use crate::transport::Client;

/// What a runner has to do next: one of the two, or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NextCommand {
    /// The command to run. It is given again until its result is reported.
    pub command: Option<CommandOrder>,
    /// The command to end: its result is reported all the same.
    pub cancel: Option<ToolCallId>,
}

/// A command for a runner.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommandOrder {
    /// Its ID.
    pub command_id: ToolCallId,
    /// The line, as a POSIX shell takes it.
    pub command: String,
    /// The folder in which it runs, relative to the tree's root.
    pub cwd: String,
    /// The seconds after which the runner ends it.
    pub timeout_seconds: u64,
    /// Why it is wanted.
    pub reason: Option<String>,
    /// The shell that is wanted, if it is another one than `sh`.
    #[serde(default)]
    pub shell: Option<String>,
}

/// How a command ended.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CommandResult {
    /// The exit code; none if a signal has ended the command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// The signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Whether its time was over.
    pub timed_out: bool,
    /// When it began, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<String>,
    /// How long it took, in microseconds.
    pub duration_micros: u64,
    /// The end of its output, at most 64 KiB.
    pub output: String,
    /// Whether `output` begins within a line.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub output_start_cut: bool,
    /// How many lines the whole output has.
    pub output_lines: u64,
    /// SHA-256 of the whole output, if it was uploaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_sha256: Option<Sha256>,
    /// What it ran in.
    pub environment: Map<String, Value>,
    /// The record at whose state the command found the tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub based_on_seq: Option<u64>,
    /// What happens to files that others have changed.
    pub on_conflict: ChangesetConflict,
    /// What happens if a file is denied.
    pub on_denied: ChangesetDenied,
    /// What it left that cannot be sent: the first of them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<LeftOutPath>,
    /// How many there are of those, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_out_count: Option<u64>,
    /// What was not the run's when it began: the first paths. A folder, with a slash at its end, stands for new files in it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub differs: Vec<String>,
    /// How many there are of those, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub differs_count: Option<u64>,
    /// Versions that the run did not take, and which gave way to the run's before it began: the first paths.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub put_aside: Vec<String>,
    /// How many there are of those, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub put_aside_count: Option<u64>,
    /// Why the files that it has seen are not those of the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub warning: Option<String>,
    /// Why the changes are not sent, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_sent: Option<String>,
    /// Why the command could not be started. Nothing else counts then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Whether it could not be started because its folder is missing.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_folder: bool,
}

impl CommandResult {
    /// Notes `count` paths that cannot be sent, of which some are named.
    #[cfg(feature = "folders")]
    pub(crate) fn leave_out(&mut self, count: u64, named: Vec<LeftOutPath>) {
        self.left_out.extend(named);
        self.left_out_count = Some(self.left_out_count.unwrap_or(0) + count).filter(|count| *count > 0);
    }
}

/// What a command left that cannot be part of a run, such as a FIFO, a file that is too large, or a folder of build output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOutPath {
    /// The path. That of a folder ends with a slash.
    pub path: String,
    /// Why it cannot be sent.
    pub why: String,
}

/// What became of a result.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportedCommand {
    /// The number of the command's record.
    pub event_seq: Option<u64>,
    /// What became of the changes.
    pub changes: Option<ReportedChanges>,
    /// The paths of a refused or waiting set, without those that a run never takes. Empty if there are too many: all of them then.
    #[serde(default)]
    pub rejected: Vec<String>,
}

/// What became of the changes of a command.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ReportedChanges {
    /// The number of the change set's record.
    pub seq: Option<u64>,
    /// The paths that are as the command left them.
    pub applied: Vec<ChangesetPath>,
    /// The paths into which its changes were merged.
    pub merged: Vec<ChangesetPath>,
    /// What was denied.
    pub left: Vec<ChangesetPath>,
    /// The code with which the set was refused or waits.
    pub code: Option<String>,
    /// Why nothing of it is in the run.
    pub message: Option<String>,
}

impl Client {
    /// Asks what a runner has to do next, and waits for that up to `wait`, at most 30 seconds. `name` is the runner's own, the same in all
    /// its requests; `running` the command that it runs.
    ///
    /// # Errors
    ///
    /// Those of every request; see [`Error`].
    #[boxed]
    pub async fn next_command(
        &self,
        run: &RunId,
        name: &str,
        running: Option<&ToolCallId>,
        wait: Duration,
    ) -> Result<NextCommand, Error> {
        let body = json!({ "runner": name, "running": running, "waitSeconds": wait.as_secs() });
        let request = self.request(Method::POST, ["v1", "runs", run.as_str(), "commands", "next"])?;
        request.json(&body).answer(self).await
    }

    /// Reports how a command ended, with what it changed as a layer. May be sent again.
    ///
    /// # Errors
    ///
    /// Those of every request; see [`Error`].
    #[boxed]
    pub async fn report_command(
        &self,
        run: &RunId,
        name: &str,
        command: &ToolCallId,
        result: &CommandResult,
        layer: Option<&PackedLayer>,
    ) -> Result<ReportedCommand, Error> {
        let mut document = serde_json::to_value(result).map_err(|error| Error::Invalid(error.to_string()))?;
        document["runner"] = json!(name);
        let form = LayerForm::new("result", &document, layer);
        let path = ["v1", "runs", run.as_str(), "commands", command.as_str(), "result"];
        form.body_of(self.request(Method::POST, path)?)?.answer(self).await
    }
}
