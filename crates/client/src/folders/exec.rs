//! A command in a run's files: pulled before, recorded after, with what it changed as one judged set of changes.

use async_recursion::async_recursion as boxed;
use std::time::Duration;

use model::{EventKind, shown_command};
use serde_json::{Map, Value, json};
use shim::{ChangeKind, CommandOutcome, CommandSpec, OutputStream, PathChange, ScanReport, ShimError};

use crate::changesets::ChangesetCommand;
use crate::events::{AppendedEvent, CommandEvent, NewEvent, UploadedArtifact, command_summary};
use crate::folders::checkout::{Checkout, Pulled, PushOptions, Pushed, ScanScope, committed};
use crate::folders::command::{CommandSignals, Execution, Unfinished};
use crate::folders::differing::Differing;
use crate::folders::error::FolderError;

/// How many changes an event names.
const MAX_RECORDED: usize = 200;
/// How many characters of a path an event has.
const MAX_RECORDED_CHARS: usize = 200;
/// The most characters of a command in the reason for what it has changed.
const MAX_REASON_CHARS: usize = 500;
/// The most bytes of a command's arguments in a record, which are twice as long in JSON at worst.
const MAX_RECORDED_ARGV: usize = 16 << 10;

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
    /// Whether only what a command with exit code 0 changed is applied.
    pub requires_success: bool,
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
    /// What differed from the run before it and does so still: by hand, or left by a command before. It is no part of what this one
    /// changed; [`Checkout::push`] sends it.
    pub earlier: Vec<PathChange>,
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
    /// Pulls, runs a command, finds what it changed, and records it. `sink` gets its output as it comes. What differed from the run before
    /// is no part of that, unless the command has changed it again.
    ///
    /// # Errors
    ///
    /// If the pull fails, or the command cannot be run or looked after. What fails afterwards is in [`Executed::recorded`].
    #[boxed]
    pub async fn exec(
        &mut self,
        options: &ExecOptions,
        sink: &mut (dyn FnMut(OutputStream, &[u8]) + Send),
    ) -> Result<Executed, FolderError> {
        let pulled = self.pull_rest(Vec::new()).await?;
        self.exec_in(pulled, options, sink).await
    }

    /// As [`Checkout::exec`], in the state of a pull before.
    ///
    /// # Errors
    ///
    /// As [`Checkout::exec`].
    #[boxed]
    pub async fn exec_in(
        &mut self,
        pulled: Pulled,
        options: &ExecOptions,
        sink: &mut (dyn FnMut(OutputStream, &[u8]) + Send),
    ) -> Result<Executed, FolderError> {
        let ExecOptions { command, time_limit, signals, .. } = options;
        let environment = self.environment().await?;
        // A folder that cannot be looked at may be one that the command is to put in order.
        let before =
            if self.folder().is_untouched() { Ok(ScanReport::default()) } else { self.scan(options.scope).await };
        let mut begun = BegunCommand {
            options,
            based_on_seq: pulled.now.seq,
            environment,
            differing: Differing::default(),
            execution: None,
            lost: None,
        };
        begun.differing = before.as_ref().map_or_else(|_| Differing::unknown(), |before| Differing::of(&[before]));
        let execution = match self.run_to_end(command, *time_limit, signals, sink).await {
            Ok(execution) => execution,
            Err(unfinished) => {
                // A command that ends the connection is in the record like any other.
                if matches!(unfinished.error, FolderError::Folder(ShimError::Lost(_))) {
                    begun.lost = Some(&unfinished);
                    self.record_failed(&begun, &unfinished.error).await?;
                }
                return Err(unfinished.error);
            }
        };
        begun.execution = Some(&execution);
        let scanned = match (before, self.scan(options.scope).await) {
            (Ok(before), Ok(report)) => Ok((before, report)),
            (Err(error), _) | (Ok(_), Err(error)) => Err(error),
        };
        let (before, mut report) = match scanned {
            Ok(scanned) => scanned,
            Err(error) => {
                self.record_failed(&begun, &error).await?;
                return Err(error);
            }
        };
        let earlier = report.leave_out(&before);
        if let Some(committed) = committed(&before, &report) {
            report.left.insert(0, committed);
            report.left_count += 1;
        }
        let recorded = self.record(&mut begun, &execution, &report, &before).await;
        Ok(Executed { pulled, execution, report, earlier, recorded })
    }

    /// Records the command, and applies what it changed if that is wanted.
    async fn record(
        &mut self,
        begun: &mut BegunCommand<'_>,
        execution: &Execution,
        report: &ScanReport,
        before: &ScanReport,
    ) -> Result<RecordedCommand, FolderError> {
        let output = self.keep_output(execution).await;
        let is_wanted = !begun.options.requires_success || execution.outcome.exit_code == Some(0);
        // What an interrupted command left is half of something.
        if let (ExecMode::Push(push), true) = (&begun.options.mode, execution.is_complete() && is_wanted) {
            let mut push = push.clone();
            if push.reason.is_empty() {
                push.reason = reason_of(&begun.options.command.argv);
            }
            let command = changeset_command(begun, execution, &output);
            match self.push_changes(&report.changes, &push, Some(command)).await {
                Ok(Some(pushed)) => return Ok(RecordedCommand::Applied(pushed)),
                Ok(None) => {}
                Err(error) => {
                    if is_unknown_to_service(&error) {
                        self.append(&begun.failed(&output, &error)).await?;
                    }
                    return Err(error);
                }
            }
        }
        // What it changed itself is not the run's either.
        begun.differing = Differing::of(&[before, report]);
        let mut event = begun.event(&output);
        if !report.changes.is_empty() {
            let named: Vec<_> = report.changes.iter().take(MAX_RECORDED).map(recorded_change).collect();
            event.data.insert("changed".to_owned(), json!(named));
            event.data.insert("changedCount".to_owned(), json!(report.changes.len()));
        }
        Ok(RecordedCommand::Event { event: self.append(&event).await?, output: output.uploaded })
    }

    /// Records a command of which it is not known what it changed, or not even how it ended.
    async fn record_failed(&self, begun: &BegunCommand<'_>, failure: &FolderError) -> Result<(), FolderError> {
        let output = match begun.execution {
            Some(execution) => self.keep_output(execution).await,
            None => OutputRecord::default(),
        };
        self.append(&begun.failed(&output, failure)).await.map(drop)
    }

    async fn append(&self, event: &NewEvent) -> Result<AppendedEvent, FolderError> {
        Ok(self.client().append_event(self.run(), event).await?)
    }

    /// Uploads the output. The record of a command whose output is refused says so: what the command did is known without it.
    async fn keep_output(&self, execution: &Execution) -> OutputRecord {
        if execution.output.is_empty() {
            return OutputRecord::default();
        }
        let content = execution.output.clone().into_bytes();
        match self.client().upload_artifact(self.run(), content).await {
            Ok(uploaded) => OutputRecord { uploaded: Some(uploaded), refused: None },
            Err(error) => {
                let code = error.problem().map_or_else(|| "NO_ANSWER".to_owned(), |problem| problem.code.clone());
                OutputRecord { uploaded: None, refused: Some(code) }
            }
        }
    }

    /// Returns what the record of the next command says of where it runs: of a tree as it was pulled, also its hash.
    async fn environment(&self) -> Result<Map<String, Value>, FolderError> {
        let mut environment = self.folder().environment().clone();
        if self.folder().is_untouched() {
            environment.insert("treeSha256".to_owned(), json!(self.tree_sha256().await?));
        }
        Ok(environment)
    }
}

/// What became of the output of a command; nothing of an empty one.
#[derive(Default)]
struct OutputRecord {
    uploaded: Option<UploadedArtifact>,
    /// The code with which it was refused.
    refused: Option<String>,
}

/// A command that was begun.
struct BegunCommand<'a> {
    options: &'a ExecOptions,
    based_on_seq: u64,
    environment: Map<String, Value>,
    /// What was not the run's when it began.
    differing: Differing,
    /// How it ended, if that is known.
    execution: Option<&'a Execution>,
    /// What is known of it otherwise.
    lost: Option<&'a Unfinished>,
}

/// Whether a set did not reach the service, which would have recorded its command.
fn is_unknown_to_service(error: &FolderError) -> bool {
    match error {
        FolderError::Service(error) => error.problem().is_some_and(|problem| problem.code == "BODY_TOO_LARGE"),
        _ => true,
    }
}

fn changeset_command(begun: &BegunCommand<'_>, execution: &Execution, output: &OutputRecord) -> ChangesetCommand {
    let command = &begun.options.command;
    ChangesetCommand {
        argv: recorded_argv(&command.argv),
        cwd: cwd(command).to_owned(),
        exit_code: execution.outcome.exit_code,
        started_at: execution.started_at.clone(),
        duration_micros: execution.outcome.duration_micros,
        output_sha256: output.uploaded.as_ref().map(|uploaded| uploaded.sha256),
        output_refused: output.refused.clone(),
        environment: begun.environment.clone(),
        differs: begun.differing.paths.clone(),
        differs_count: Some(begun.differing.count).filter(|count| *count > 0),
    }
}

impl BegunCommand<'_> {
    /// Returns the event of the command.
    fn event(&self, output: &OutputRecord) -> NewEvent {
        let outcome = self.execution.map(|execution| &execution.outcome);
        let command = shown_command(&recorded_argv(&self.options.command.argv));
        let mut event = NewEvent::from(&CommandEvent {
            command: &command,
            exit_code: outcome.map(CommandOutcome::shell_code),
            duration: outcome.map(|outcome| Duration::from_micros(outcome.duration_micros)),
            output: output.uploaded.as_ref().map(|uploaded| uploaded.uri.as_str()),
        });
        if matches!(self.options.mode, ExecMode::Test) {
            event.kind = EventKind::Test;
        }
        let mut add = |name: &str, value: Value| drop(event.data.insert(name.to_owned(), value));
        add("cwd", json!(cwd(&self.options.command)));
        add("basedOnSeq", json!(self.based_on_seq));
        add("environment", json!(self.environment));
        if self.differing.count > 0 {
            add("differs", json!(self.differing.paths));
            add("differsCount", json!(self.differing.count));
        }
        if let Some(sha256) = self.execution.and_then(|execution| execution.output_sha256) {
            add("outputSha256", json!(sha256));
        }
        if let Some(code) = &output.refused {
            add("outputRefused", json!(code));
        }
        let is_timed_out = self.execution.map(|execution| execution.is_timed_out);
        if is_timed_out.or(self.lost.map(|lost| lost.is_timed_out)) == Some(true) {
            add("timedOut", json!(true));
        }
        event.started_at = self.execution.map(|execution| execution.started_at.clone());
        if let Some(lost) = self.lost {
            event.summary = command_summary(&command, "it is not known how it ended");
            event.started_at = Some(lost.started_at.clone());
            event.duration_micros = u64::try_from(lost.took.as_micros()).ok();
        }
        event
    }

    /// Returns the event of a command whose changes are not known or not applied.
    fn failed(&self, output: &OutputRecord, failure: &FolderError) -> NewEvent {
        let mut event = self.event(output);
        event.data.insert("failure".to_owned(), json!(failure.to_string()));
        // Of what the command changed, nothing is in the run, or it is not known what it was.
        event.data.insert("notApplied".to_owned(), json!(failure.to_string()));
        event
    }
}

/// Returns the arguments that a record has: the first ones, if all would be too large for it. A formatter may be given thousands of
/// files.
fn recorded_argv(argv: &[String]) -> Vec<String> {
    let mut bytes = 0;
    let fits = |argument: &&String| {
        bytes += argument.len();
        bytes <= MAX_RECORDED_ARGV
    };
    let mut recorded: Vec<String> = argv.iter().take_while(fits).cloned().collect();
    let left_out = argv.len() - recorded.len();
    if let Some(cut) = argv.get(recorded.len()) {
        // One argument alone may be larger, such as a script.
        let shown: String = cut.chars().take(MAX_RECORDED_CHARS).collect();
        recorded.push(format!("{shown}… [cut here, with {left_out} of {} arguments]", argv.len()));
    }
    recorded
}

/// Returns the reason for what a command has changed: the command, as far as a reason has room for it.
fn reason_of(argv: &[String]) -> String {
    let command = shown_command(argv);
    match command.char_indices().nth(MAX_REASON_CHARS) {
        Some((end, _)) => format!("{}…", &command[..end]),
        None => command,
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_as_many_arguments_as_it_has_room_for() {
        let short = ["prettier", "--write", "a b"].map(str::to_owned).to_vec();
        assert_eq!(recorded_argv(&short), short);
        let long: Vec<String> = (0..5000).map(|number| format!("src/components/file-{number}.ts")).collect();
        let recorded = recorded_argv(&long);
        assert!(recorded.len() > 300 && recorded.concat().len() < MAX_RECORDED_ARGV + 1000);
        let left_out = long.len() - (recorded.len() - 1);
        assert!(recorded.last().unwrap().ends_with(&format!("[cut here, with {left_out} of 5000 arguments]")));
        let script = ["sh".to_owned(), "-c".to_owned(), "x".repeat(1_000_000)];
        assert!(recorded_argv(&script)[2].starts_with("xxx") && recorded_argv(&script)[2].len() < 1000);
    }
}
