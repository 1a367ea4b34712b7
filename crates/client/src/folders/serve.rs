//! A runner: it runs the commands that callers of `run_command` want, one after the other, in one checkout.

use async_recursion::async_recursion as boxed;
use std::collections::{BTreeSet, HashMap};
use std::convert::Infallible;
use std::time::Duration;

use model::{RunId, ToolCallId};
use serde_json::json;
use shim::{CheckedOut, CommandSpec, LayerConflict, LeftEntry, OutputStream, PathChange, ScanReport, ShimError};

use crate::changesets::{ChangesetConflict, ChangesetDenied};
use crate::commands::{CommandOrder, CommandResult, LeftOutPath, ReportedCommand};
use crate::events::{CommandEvent, NewEvent};
use crate::folders::checkout::{Checkout, ScanScope};
use crate::folders::command::{CommandSignals, Execution};
use crate::folders::differing::Differing;
use crate::folders::error::FolderError;
use crate::packed_layer::PackedLayer;
use crate::problem::Error;
use crate::request::new_id;
use crate::transport::Client;

/// How long a request for the next command waits.
const WAIT: Duration = Duration::from_secs(5);
/// How long it is until a request is made again that has failed.
const PAUSE: Duration = Duration::from_secs(2);
/// How often a result is reported that the service cannot take now.
const MAX_REPORTS: u32 = 30;
/// The largest end of an output in a result, in bytes.
const MAX_OUTPUT_BYTES: usize = 64 * 1024;
/// How many of the paths that cannot be sent a result names.
const MAX_LEFT_OUT: usize = 50;
/// How many of the files that an interrupted command has left a result names.
const MAX_INTERRUPTED: usize = 5;
/// How many of the paths that were put aside a result names.
const MAX_PUT_ASIDE: usize = 100;
/// How long it may take to look for a shell.
const SHELL_LIMIT: Duration = Duration::from_secs(10);

/// Runs the commands of one run in one checkout. Its caller needs the permissions `command:serve`, `changeset:apply`, `event:append` and
/// `file:read`.
#[derive(Debug)]
pub struct Runner {
    checkout: Checkout,
    name: String,
    scope: ScanScope,
    /// The last command, which is never run twice.
    last: Option<ToolCallId>,
    /// What the sandbox has otherwise than the run.
    state: RunnerState,
}

/// What a runner knows of its sandbox.
#[derive(Clone, Debug, Default)]
struct RunnerState {
    /// What the run did not take of what a command changed: it gives way to the run's version before the next one.
    rejected: BTreeSet<String>,
    /// Whether something was put aside for the last command.
    has_aside: bool,
    /// What differed from the run when the last command had ended.
    after: Option<Vec<PathChange>>,
    /// Whether there is a `bash`, if that is known.
    has_bash: Option<bool>,
}

/// A sandbox before a command.
struct PreparedCommand {
    /// What differs from the run.
    before: Result<ScanReport, FolderError>,
    put_aside: Vec<String>,
    /// What its caller has to know.
    warnings: Vec<String>,
}

/// A runner whose checkout is closed. It continues where it was with one that is opened again.
#[derive(Debug)]
pub struct PausedRunner {
    name: String,
    scope: ScanScope,
    last: Option<ToolCallId>,
    state: RunnerState,
    /// The states that the folder can have: what a command has written there leads nobody elsewhere.
    known: Vec<Option<CheckedOut>>,
}

/// A command that was run.
#[derive(Clone, Debug)]
pub struct ServedCommand {
    /// The command.
    pub order: CommandOrder,
    /// How it ended.
    pub result: CommandResult,
    /// What became of it in the run.
    pub reported: ReportedCommand,
}

impl Runner {
    /// A runner with a name of its own.
    pub fn new(checkout: Checkout, scope: ScanScope) -> Self {
        Self { checkout, name: new_id("runner_"), scope, last: None, state: RunnerState::default() }
    }

    /// Waits for a command, at most 5 seconds, runs it and reports its result. `sink` gets its output as it comes.
    ///
    /// # Errors
    ///
    /// The service refuses the runner, or the sandbox is lost, after which the checkout has to be opened again. In both cases a command
    /// that was taken is reported as not run.
    #[boxed]
    pub async fn serve_next(
        &mut self,
        sink: &mut (dyn FnMut(OutputStream, &[u8]) + Send),
    ) -> Result<Option<ServedCommand>, FolderError> {
        let (client, run) = (self.checkout.client().clone(), self.checkout.run().clone());
        let next = client.next_command(&run, &self.name, None, WAIT).await?;
        let Some(order) = next.command else { return Ok(None) };
        if self.last.as_ref() == Some(&order.command_id) {
            // Its result could not be reported. It may have had effects, so that it is not run again.
            let result = CommandResult {
                error: Some("it was run, and its result could not be reported; it is not run again".to_owned()),
                ..CommandResult::default()
            };
            self.report(&order, &result, None).await?;
            return Ok(None);
        }
        self.last = Some(order.command_id.clone());
        // Until its result is reported, so that the service knows that it is looked after.
        let signals = CommandSignals::new();
        let watch = watch(client, run, self.name.clone(), order.command_id.clone(), signals.clone());
        tokio::select! {
            served = self.serve(order, &signals, sink) => served,
            never = watch => match never {},
        }
    }

    async fn serve(
        &mut self,
        order: CommandOrder,
        signals: &CommandSignals,
        sink: &mut (dyn FnMut(OutputStream, &[u8]) + Send),
    ) -> Result<Option<ServedCommand>, FolderError> {
        match self.run(&order, signals, sink).await {
            Ok(RanOrder { result, layer, lost }) => {
                let layer = layer.as_ref();
                let (reported, is_layer_taken) = self.report(&order, &result, layer.map(|layer| &layer.packed)).await?;
                if let Some(layer) = layer {
                    self.state.rejected.extend(rejected(&reported, is_layer_taken, &layer.paths));
                }
                if let Some(lost) = lost {
                    return Err(lost);
                }
                self.take_back(&reported).await?;
                Ok(Some(ServedCommand { order, result, reported }))
            }
            // It was not begun.
            Err(error) => {
                let result = CommandResult { error: Some(said(&error)), ..CommandResult::default() };
                self.report(&order, &result, None).await?;
                Err(error)
            }
        }
    }

    /// Closes the checkout, which has to be opened again.
    ///
    /// # Errors
    ///
    /// Those of [`Checkout::close`].
    #[boxed]
    pub async fn pause(self) -> Result<PausedRunner, FolderError> {
        let Self { checkout, name, scope, last, state } = self;
        let known = checkout.known().to_vec();
        checkout.close().await?;
        Ok(PausedRunner { name, scope, last, state, known })
    }

    /// Closes the checkout.
    ///
    /// # Errors
    ///
    /// Those of [`Checkout::close`].
    #[boxed]
    pub async fn close(self) -> Result<(), FolderError> {
        self.checkout.close().await
    }

    async fn run(
        &mut self,
        order: &CommandOrder,
        signals: &CommandSignals,
        sink: &mut (dyn FnMut(OutputStream, &[u8]) + Send),
    ) -> Result<RanOrder, FolderError> {
        let prepared = self.prepare().await?;
        let wants_bash = order.shell.as_deref() == Some("bash");
        let shell = if wants_bash && self.has_bash().await? { "bash" } else { "sh" };
        let argv = [shell, "-c", &order.command].map(str::to_owned).to_vec();
        let spec = CommandSpec { argv, cwd: order.cwd.clone(), env: Vec::new() };
        let limit = Some(Duration::from_secs(order.timeout_seconds));
        let execution = match self.checkout.run_to_end(&spec, limit, signals, sink).await {
            Ok(execution) => execution,
            // It was not started, such as in a folder that is missing. The sandbox is as it was.
            Err(unfinished) if !matches!(unfinished.error, FolderError::Folder(ShimError::Lost(_))) => {
                let no_folder = matches!(unfinished.error, FolderError::Folder(ShimError::NoFolder(_)));
                let error = Some(said(&unfinished.error));
                let result = CommandResult { error, no_folder, ..CommandResult::default() };
                return Ok(RanOrder { result, layer: None, lost: None });
            }
            // It may have had effects: it is recorded, without an end.
            Err(unfinished) => {
                let result = CommandResult {
                    timed_out: unfinished.is_timed_out,
                    started_at: Some(unfinished.started_at),
                    duration_micros: u64::try_from(unfinished.took.as_micros()).unwrap_or(u64::MAX),
                    environment: self.checkout.folder().environment().clone(),
                    based_on_seq: self.checkout.seq(),
                    not_sent: Some(said(&unfinished.error)),
                    ..CommandResult::default()
                };
                self.state.after = None;
                return Ok(RanOrder { result, layer: None, lost: Some(unfinished.error) });
            }
        };
        let PreparedCommand { before, put_aside, warnings } = prepared;
        let mut result = self.result(&execution, &warnings).await;
        if order.shell.is_some() {
            result.environment.insert("shell".to_owned(), json!(shell));
        }
        if let Ok(before) = &before {
            let differing = Differing::of(&before.changes);
            (result.differs, result.differs_count) =
                (differing.paths, Some(differing.count).filter(|count| *count > 0));
        }
        result.put_aside_count = Some(put_aside.len() as u64).filter(|count| *count > 0);
        result.put_aside = put_aside.into_iter().take(MAX_PUT_ASIDE).collect();
        match self.changes(&execution, before, &mut result).await {
            Ok(layer) => Ok(RanOrder { result, layer, lost: None }),
            // What it printed is told, and why nothing of it is in the run.
            Err(error) => {
                result.not_sent = Some(said(&error));
                let is_lost = matches!(error, FolderError::Folder(ShimError::Lost(_)));
                Ok(RanOrder { result, layer: None, lost: is_lost.then_some(error) })
            }
        }
    }

    /// Brings the sandbox to the state of the run. What the run did not take of an earlier command, and what stands in the way of a change
    /// of the run, is put aside.
    async fn prepare(&mut self) -> Result<PreparedCommand, FolderError> {
        let mut conflicts = self.pull().await?;
        let mut before = self.look().await?;
        let (mut put_aside, mut warnings) = (Vec::new(), Vec::new());
        if let Ok(report) = &before {
            warnings.extend(self.state.after.as_ref().and_then(|after| written_late(after, &report.changes)));
            let chosen = self.to_put_aside(report, &conflicts);
            if chosen.is_empty() {
                // Such as what was approved since.
                self.state.rejected.clear();
            }
            if !chosen.is_empty() || self.state.has_aside {
                match self.checkout.restore(&chosen).await {
                    Ok(()) => {
                        self.state.rejected.clear();
                        put_aside.extend(chosen.into_iter().map(|change| change.path));
                    }
                    Err(error @ FolderError::Folder(ShimError::Lost(_))) => return Err(error),
                    Err(error) => {
                        warnings.push(format!("the run's version could not be written back: {}", said(&error)));
                    }
                }
                self.state.has_aside = !put_aside.is_empty();
                if self.state.has_aside {
                    conflicts = self.pull().await?;
                    before = self.look().await?;
                }
            }
        }
        warnings.extend(behind(&conflicts));
        Ok(PreparedCommand { before, put_aside, warnings })
    }

    /// Pulls, and returns what was left because it was changed here too.
    async fn pull(&mut self) -> Result<Vec<LayerConflict>, FolderError> {
        match self.checkout.pull_rest(Vec::new()).await {
            Ok(pulled) => Ok(pulled.conflicts),
            Err(FolderError::Folder(ShimError::Conflicts(conflicts))) => Ok(conflicts),
            Err(error) => Err(error),
        }
    }

    /// Finds what differs from the run. A folder that cannot be looked at may be one that the command is to put in order.
    async fn look(&mut self) -> Result<Result<ScanReport, FolderError>, FolderError> {
        match self.checkout.scan(self.scope).await {
            Err(error @ FolderError::Folder(ShimError::Lost(_))) => Err(error),
            report => Ok(report),
        }
    }

    /// Returns the changes that give way to the run's version.
    fn to_put_aside(&self, report: &ScanReport, conflicts: &[LayerConflict]) -> Vec<PathChange> {
        // A folder of this machine may be one in which a person works too.
        let is_persons = self.checkout.folder().environment().get("kind") == Some(&json!("local"));
        let conflicts: BTreeSet<&str> =
            conflicts.iter().filter(|_| !is_persons).map(|conflict| conflict.path.as_str()).collect();
        let is_chosen = |change: &&PathChange| {
            self.state.rejected.contains(&change.path) || conflicts.contains(change.path.as_str())
        };
        report.changes.iter().filter(is_chosen).cloned().collect()
    }

    /// Whether the sandbox has a `bash`.
    async fn has_bash(&mut self) -> Result<bool, FolderError> {
        if let Some(has_bash) = self.state.has_bash {
            return Ok(has_bash);
        }
        let argv = ["sh", "-c", "command -v bash"].map(str::to_owned).to_vec();
        let spec = CommandSpec { argv, ..CommandSpec::default() };
        let found = self.checkout.run_command(&spec, Some(SHELL_LIMIT), &CommandSignals::new(), &mut |_, _| {}).await?;
        Ok(*self.state.has_bash.insert(found.outcome.exit_code == Some(0)))
    }

    /// Returns what a command has changed, as a layer; nothing of one that did not end by itself. What cannot be sent is named in `result`.
    async fn changes(
        &mut self,
        execution: &Execution,
        before: Result<ScanReport, FolderError>,
        result: &mut CommandResult,
    ) -> Result<Option<SentLayer>, FolderError> {
        let mut report = self.checkout.scan(self.scope).await?;
        self.state.after = Some(report.changes.clone());
        let before = before?;
        report.leave_out(&before);
        if report.git_ns > before.git_ns {
            result.leave_out(1, vec![LeftOutPath { path: ".git/".to_owned(), why: COMMITTED.to_owned() }]);
        }
        result.leave_out(report.left_count + report.not_walked.len() as u64, left_out(report.left));
        result.left_out.extend(report.not_walked.into_iter().map(not_walked));
        if !execution.is_complete() {
            result.not_sent = interrupted(&report.changes);
            return Ok(None);
        }
        if report.changes.is_empty() {
            return Ok(None);
        }
        let layer = self.checkout.layer_of(&report.changes).await?;
        result.leave_out(layer.left.len() as u64, left_out(layer.left));
        result.left_out.truncate(MAX_LEFT_OUT);
        let paths = report.changes.into_iter().map(|change| change.path).collect();
        Ok((layer.entries > 0).then_some(SentLayer { packed: layer.packed, paths }))
    }

    async fn result(&self, execution: &Execution, warnings: &[String]) -> CommandResult {
        let (client, run) = (self.checkout.client(), self.checkout.run());
        let output = execution.output_end(MAX_OUTPUT_BYTES / 2);
        let before = &execution.output[..execution.output.len() - output.len()];
        // Without it, the end of the output is all that is kept.
        let output_sha256 = match execution.output_sha256 {
            Some(sha256) => {
                let uploaded = client.upload_artifact(run, execution.output.clone().into_bytes()).await;
                uploaded.ok().map(|_| sha256)
            }
            None => None,
        };
        CommandResult {
            exit_code: execution.outcome.exit_code,
            signal: execution.outcome.signal,
            timed_out: execution.is_timed_out,
            started_at: Some(execution.started_at.clone()),
            duration_micros: execution.outcome.duration_micros,
            output: output.to_owned(),
            output_start_cut: !before.is_empty() && !before.ends_with('\n'),
            output_lines: execution.output.lines().count() as u64,
            output_sha256,
            environment: self.checkout.folder().environment().clone(),
            based_on_seq: self.checkout.seq(),
            on_conflict: ChangesetConflict::Merge,
            on_denied: ChangesetDenied::Leave,
            warning: (!warnings.is_empty()).then(|| warnings.join(". ")),
            ..CommandResult::default()
        }
    }

    /// Reports a result, again while the service cannot take it. Returns also whether the layer was taken for judgement.
    async fn report(
        &self,
        order: &CommandOrder,
        result: &CommandResult,
        layer: Option<&PackedLayer>,
    ) -> Result<(ReportedCommand, bool), FolderError> {
        let (client, run) = (self.checkout.client(), self.checkout.run());
        let mut layer = layer;
        let mut result = result.clone();
        let mut attempts = 0;
        loop {
            attempts += 1;
            match client.report_command(run, &self.name, &order.command_id, &result, layer).await {
                Ok(reported) => return Ok((reported, layer.is_some())),
                Err(error) if error.is_temporary() && attempts < MAX_REPORTS => tokio::time::sleep(PAUSE).await,
                // The service has given it up, or was started again: nobody waits for it. That it was run is recorded all the same.
                Err(Error::Problem(problem)) if problem.status == 404 && result.error.is_none() => {
                    let event = event_of(order, &result);
                    let recorded = client.append_event(run, &event).await?;
                    let reported = ReportedCommand { event_seq: Some(recorded.seq), ..ReportedCommand::default() };
                    return Ok((reported, layer.is_some()));
                }
                // The changes cannot be taken: what the command did is told without them.
                Err(error) if layer.is_some() && !error.is_temporary() => {
                    layer = None;
                    result.not_sent = Some(error.to_string());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Brings the folder to the state after its changes were applied.
    async fn take_back(&mut self, reported: &ReportedCommand) -> Result<(), FolderError> {
        let Some(changes) = &reported.changes else { return Ok(()) };
        let taken: Vec<_> =
            changes.applied.iter().chain(&changes.merged).map(|taken| taken.path().to_owned()).collect();
        if taken.is_empty() {
            return Ok(());
        }
        match self.checkout.take_back(taken).await {
            // Its next command says so.
            Ok(()) | Err(FolderError::Folder(ShimError::Conflicts(_))) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

impl PausedRunner {
    /// Goes on in a checkout of the same folder, or of one that was made anew in its place.
    pub fn resume(self, mut checkout: Checkout) -> Runner {
        let Self { name, scope, last, state, known } = self;
        checkout.expect(known);
        Runner { checkout, name, scope, last, state }
    }
}

/// A command that was begun.
struct RanOrder {
    result: CommandResult,
    /// What it changed.
    layer: Option<SentLayer>,
    /// Why the checkout has to be opened again.
    lost: Option<FolderError>,
}

/// What a command changed, as it is sent.
struct SentLayer {
    packed: PackedLayer,
    /// The changed paths.
    paths: Vec<String>,
}

/// What is said of commits in the sandbox.
const COMMITTED: &str = "the run takes the files of the sandbox and none of its commits";

/// Returns the paths of a set that are not in the run as the sandbox has them, because they were denied, refused, or wait.
fn rejected(reported: &ReportedCommand, is_layer_taken: bool, sent: &[String]) -> Vec<String> {
    let ReportedCommand { changes, rejected, .. } = reported;
    match changes {
        Some(changes) if is_layer_taken && changes.code.is_none() => {
            changes.left.iter().map(|left| left.path().to_owned()).collect()
        }
        Some(_) if rejected.is_empty() => sent.to_vec(),
        Some(_) => rejected.clone(),
        // Nobody waits for it any more.
        None => Vec::new(),
    }
}

/// Says what was written after the last command had ended.
fn written_late(after: &[PathChange], now: &[PathChange]) -> Option<String> {
    let after: HashMap<&str, &PathChange> = after.iter().map(|change| (change.path.as_str(), change)).collect();
    let late: Vec<_> = now.iter().filter(|change| after.get(change.path.as_str()) != Some(change)).collect();
    let why = "written after the command before this one had ended, such as by a process that it left running, and in no change set";
    (!late.is_empty()).then(|| format!("{why}: {}", named(&late)))
}

/// Says what keeps the sandbox from the state of the run, and what its caller can do.
fn behind(conflicts: &[LayerConflict]) -> Option<String> {
    let named: Vec<_> =
        conflicts.iter().take(MAX_INTERRUPTED).map(|LayerConflict { path, why }| format!("{path} ({why})")).collect();
    let more = more_than(named.len(), conflicts.len());
    let way = "To take the run's version, read the file with a tool and let a command write the same; to keep this one, let a command \
               change it again";
    (!named.is_empty()).then(|| {
        format!("changed in the sandbox and in the run, and not up to date: {}{more}. {way}", named.join(", "))
    })
}

fn named(changes: &[&PathChange]) -> String {
    let named: Vec<_> = changes.iter().take(MAX_INTERRUPTED).map(|change| change.path.as_str()).collect();
    format!("{}{}", named.join(", "), more_than(named.len(), changes.len()))
}

fn more_than(named: usize, all: usize) -> String {
    if all > named { format!(" and {} more", all - named) } else { String::new() }
}

/// What is wrong, and what to do next, for whoever wants the command: where its folder is, is not theirs to know.
fn said(error: &FolderError) -> String {
    let text = match error {
        FolderError::NoCheckout { folder } | FolderError::OtherRun { folder, .. } | FolderError::Moved { folder } => {
            error.to_string().replacen(folder.as_str(), "the folder of the runner", 1)
        }
        _ => error.to_string(),
    };
    match error.next_step() {
        step if step.is_empty() => text,
        step => format!("{text}. {step}"),
    }
}

fn left_out(left: Vec<LeftEntry>) -> Vec<LeftOutPath> {
    left.into_iter().take(MAX_LEFT_OUT).map(|LeftEntry { path, why }| LeftOutPath { path, why }).collect()
}

fn not_walked(path: String) -> LeftOutPath {
    LeftOutPath { path, why: "a folder of build output, which is not looked into".to_owned() }
}

/// Says what an interrupted command has left, if it has changed something.
fn interrupted(changes: &[PathChange]) -> Option<String> {
    let changes: Vec<_> = changes.iter().collect();
    let why = "the command did not end by itself, so that what it left stays in the sandbox and out of the run";
    (!changes.is_empty()).then(|| format!("{why}: {}", named(&changes)))
}

/// The event of a command whose result nobody takes.
fn event_of(order: &CommandOrder, result: &CommandResult) -> NewEvent {
    let mut event = NewEvent::from(&CommandEvent {
        command: &order.command,
        exit_code: result.exit_code,
        duration: Some(Duration::from_micros(result.duration_micros)),
        output: None,
    });
    event.data.insert("commandId".to_owned(), json!(order.command_id));
    event.data.extend(result.output_sha256.map(|sha256| ("outputSha256".to_owned(), json!(sha256))));
    event
}

/// Keeps the runner attached while it has a command, and ends the command if nobody wants it any more: its caller has gone away, the run is
/// closed, or the runner may not serve it.
async fn watch(client: Client, run: RunId, name: String, id: ToolCallId, signals: CommandSignals) -> Infallible {
    loop {
        let is_over = match client.next_command(&run, &name, Some(&id), WAIT).await {
            Ok(next) => next.cancel.as_ref() == Some(&id),
            Err(error) if error.is_temporary() => {
                tokio::time::sleep(PAUSE).await;
                false
            }
            Err(_) => true,
        };
        if is_over {
            signals.end();
            std::future::pending::<()>().await;
        }
    }
}
