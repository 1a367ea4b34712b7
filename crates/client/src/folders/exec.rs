//! A command in a run's files: pulled before, recorded after, with what it changed as one judged set of changes.

use std::time::Duration;

use model::EventKind;
use serde_json::{Map, Value, json};
use shim::{ChangeKind, CommandSpec, OutputStream, PathChange, ScanReport};

use crate::changesets::ChangesetCommand;
use crate::events::{AppendedEvent, CommandEvent, NewEvent, UploadedArtifact};
use crate::folders::address::quoted;
use crate::folders::checkout::{Checkout, Pulled, PushOptions, Pushed, ScanScope};
use crate::folders::command::{CommandSignals, Execution};
use crate::folders::error::FolderError;

/// How many changes an event names.
const MAX_RECORDED: usize = 200;
/// How many characters of a path an event has.
const MAX_RECORDED_CHARS: usize = 200;

/// A command to run in a run's files.
#[derive(Clone, Debug, Default)]
pub struct ExecOptions {
    /// The command, the folder inside the checkout in which it runs, and variables that are added to its environment.
    pub command: CommandSpec,
    /// What becomes of what it changes.
    pub mode: ExecMode,
    /// Which folders are looked into for changes.
    pub scope: ScanScope,
    /// When it is ended, if it has not ended before. What it has changed is not applied then.
    pub time_limit: Option<Duration>,
    /// Sends it signals.
    pub signals: CommandSignals,
}

/// What becomes of what a command changes.
#[derive(Clone, Debug, Default)]
pub enum ExecMode {
    /// It is named in the record.
    #[default]
    Record,
    /// It is named in the record, which is that of a test.
    Test,
    /// It is applied, all of it or nothing. What a command left that a signal or its time limit ended is not.
    Push(PushOptions),
}

/// What came of a command.
#[derive(Debug)]
pub struct Executed {
    /// How the folder was brought to the newest state of the run.
    pub pulled: Pulled,
    /// How the command ended, and its output.
    pub execution: Execution,
    /// What it changed.
    pub report: ScanReport,
    /// What was recorded, or why it was not, such as the refusal of the set. The run is unchanged then.
    pub recorded: Result<RecordedCommand, FolderError>,
}

/// The record of a command.
#[derive(Debug)]
pub enum RecordedCommand {
    /// With what it changed.
    Applied(Pushed),
    /// Alone.
    Event {
        /// The record.
        event: AppendedEvent,
        /// Its output.
        output: Option<UploadedArtifact>,
    },
}

impl ExecOptions {
    /// A program and its arguments.
    pub fn argv<T: Into<String>>(argv: impl IntoIterator<Item = T>) -> Self {
        let argv = argv.into_iter().map(Into::into).collect();
        Self { command: CommandSpec { argv, ..CommandSpec::default() }, ..Self::default() }
    }

    /// A text for the shell of the sandbox.
    pub fn shell(text: &str) -> Self {
        Self::argv(["sh", "-c", text])
    }
}

impl Checkout {
    /// Pulls, runs a command, finds what it changed, and records it. `sink` gets its output as it comes.
    ///
    /// # Errors
    ///
    /// If the pull fails, or the command cannot be run or looked after. What fails afterwards is in [`Executed::recorded`].
    pub async fn exec(
        &mut self,
        options: &ExecOptions,
        sink: &mut (dyn FnMut(OutputStream, &[u8]) + Send),
    ) -> Result<Executed, FolderError> {
        let pulled = self.pull().await?;
        self.exec_in(pulled, options, sink).await
    }

    /// As [`Checkout::exec`], in the state of a pull before.
    ///
    /// # Errors
    ///
    /// As [`Checkout::exec`].
    pub async fn exec_in(
        &mut self,
        pulled: Pulled,
        options: &ExecOptions,
        sink: &mut (dyn FnMut(OutputStream, &[u8]) + Send),
    ) -> Result<Executed, FolderError> {
        let ExecOptions { command, time_limit, signals, .. } = options;
        let execution = self.run_command(command, *time_limit, signals, sink).await?;
        let report = self.scan(options.scope).await?;
        let recorded = self.record(options, &pulled, &execution, &report).await;
        Ok(Executed { pulled, execution, report, recorded })
    }

    /// Records the command, and applies what it changed if that is wanted.
    async fn record(
        &mut self,
        options: &ExecOptions,
        pulled: &Pulled,
        execution: &Execution,
        report: &ScanReport,
    ) -> Result<RecordedCommand, FolderError> {
        let output = if execution.output.is_empty() {
            None
        } else {
            let content = execution.output.clone().into_bytes();
            Some(self.client().upload_artifact(self.run(), content).await?)
        };
        let mut environment = self.folder().environment().clone();
        if self.folder().is_fresh() {
            environment.insert("treeSha256".to_owned(), json!(pulled.applied.tree_sha256));
        }
        // What an interrupted command left is half of something.
        if let (ExecMode::Push(push), true) = (&options.mode, execution.is_complete()) {
            let mut push = push.clone();
            if push.reason.is_empty() {
                push.reason = shown_command(&options.command.argv);
            }
            let command = changeset_command(&options.command, execution, environment.clone());
            if let Some(pushed) = self.push_changes(&report.changes, &push, Some(command)).await? {
                return Ok(RecordedCommand::Applied(pushed));
            }
        }
        let event = event(options, execution, output.as_ref(), &environment, pulled, report);
        Ok(RecordedCommand::Event { event: self.client().append_event(self.run(), &event).await?, output })
    }
}

fn changeset_command(
    command: &CommandSpec,
    execution: &Execution,
    environment: Map<String, Value>,
) -> ChangesetCommand {
    ChangesetCommand {
        argv: command.argv.clone(),
        cwd: cwd(command).to_owned(),
        exit_code: execution.outcome.exit_code,
        started_at: execution.started_at.clone(),
        duration_micros: execution.outcome.duration_micros,
        output_sha256: execution.output_sha256,
        environment,
    }
}

fn event(
    options: &ExecOptions,
    execution: &Execution,
    output: Option<&UploadedArtifact>,
    environment: &Map<String, Value>,
    pulled: &Pulled,
    report: &ScanReport,
) -> NewEvent {
    let outcome = &execution.outcome;
    let command = shown_command(&options.command.argv);
    let mut event = NewEvent::from(&CommandEvent {
        command: &command,
        exit_code: Some(outcome.shell_code()),
        duration: Some(Duration::from_micros(outcome.duration_micros)),
        output: output.map(|uploaded| uploaded.uri.as_str()),
    });
    if matches!(options.mode, ExecMode::Test) {
        event.kind = EventKind::Test;
    }
    event.started_at = Some(execution.started_at.clone());
    let mut add = |name: &str, value: Value| drop(event.data.insert(name.to_owned(), value));
    add("cwd", json!(cwd(&options.command)));
    add("basedOnSeq", json!(pulled.now.seq));
    add("environment", json!(environment));
    if let Some(output) = output {
        add("outputSha256", json!(output.sha256));
    }
    if execution.is_timed_out {
        add("timedOut", json!(true));
    }
    if !report.changes.is_empty() {
        let named: Vec<_> = report.changes.iter().take(MAX_RECORDED).map(recorded_change).collect();
        add("changed", json!(named));
        add("changedCount", json!(report.changes.len()));
    }
    event
}

fn cwd(command: &CommandSpec) -> &str {
    if command.cwd.is_empty() { "." } else { &command.cwd }
}

fn recorded_change(change: &PathChange) -> String {
    let letter = match change.change {
        ChangeKind::Added => 'A',
        ChangeKind::Modified => 'M',
        ChangeKind::Deleted => 'D',
    };
    let path: String = change.path.chars().take(MAX_RECORDED_CHARS).collect();
    format!("{letter} {path}")
}

/// Returns a command as it is typed. A word that a shell would read otherwise is quoted.
pub fn shown_command(argv: &[String]) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%".contains(c);
    let word = |word: &String| {
        if !word.is_empty() && word.chars().all(is_plain) { word.clone() } else { quoted(word) }
    };
    argv.iter().map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_shown_as_it_is_typed() {
        let argv = ["sh", "-c", "it's $X", ""].map(str::to_owned);
        assert_eq!(shown_command(&argv), r"sh -c 'it'\''s $X' ''");
    }
}
