//! A runner: it runs the commands that callers of `run_command` want, one after the other, in one checkout.

use async_recursion::async_recursion as boxed;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::time::Duration;

use model::{RunId, ToolCallId};
use serde_json::json;
use shim::{CheckedOut, CommandSpec, LayerConflict, LeftEntry, OutputStream, PathChange, ScanReport, ShimError};

use crate::changesets::{ChangesetConflict, ChangesetDenied};
use crate::commands::{CommandOrder, CommandResult, LeftOutPath, ReportedCommand};
use crate::events::{CommandEvent, NewEvent};
use crate::folders::checkout::{Checkout, MAX_SHOWN_CHARS, ScanScope, UNSTEADY, committed};
use crate::folders::command::{CommandSignals, Execution};
use crate::folders::differing::{Differing, is_empty_folder};
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
    after: Option<ScanReport>,
    /// Whether the sandbox had a checkout of the run: without one now, a command has removed its index.
    has_checkout: bool,
    /// Whether there is a `bash`, if that is known.
    has_bash: Option<bool>,
}

/// A sandbox before a command.
struct PreparedCommand {
    /// What differs from the run.
    before: Result<ScanReport, FolderError>,
    put_aside: Vec<String>,
    /// What was written after the last command had ended, such as by a process that it has left running.
    late: BTreeSet<String>,
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
        let PreparedCommand { before, put_aside, late, warnings } = prepared;
        let mut result = self.result(&execution, &warnings).await;
        if order.shell.is_some() {
            result.environment.insert("shell".to_owned(), json!(shell));
        }
        let differing = before.as_ref().map_or_else(|_| Differing::unknown(), |before| Differing::of(&[before]));
        (result.differs, result.differs_count) = (differing.paths, Some(differing.count).filter(|count| *count > 0));
        result.put_aside_count = Some(put_aside.len() as u64).filter(|count| *count > 0);
        result.put_aside = put_aside.into_iter().take(MAX_PUT_ASIDE).collect();
        match self.changes(&execution, before, &late, &mut result).await {
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
        let (mut aside, mut warnings, mut late) = (BTreeSet::new(), Vec::new(), BTreeSet::new());
        // A folder that never was one has files of somebody else.
        let is_lost = self.checkout.seq().is_none() && self.state.has_checkout;
        if is_lost && !conflicts.is_empty() {
            if let Some(why) = unless_lost(self.checkout.check_out_anew().await)? {
                warnings.push(format!("{NO_INDEX}, and the run could not be checked out anew: {why}"));
            } else {
                warnings.push(format!("{NO_INDEX}, so that the run was checked out anew; {ASIDE}"));
                aside.extend(std::mem::take(&mut conflicts).into_iter().map(|conflict| conflict.path));
                self.state.has_aside = true;
            }
        }
        let mut before = self.look().await?;
        if let (Ok(report), true) = (&before, aside.is_empty()) {
            late = self.state.after.as_ref().map(|after| written_late(after, report)).unwrap_or_default();
            warnings.extend(said_late(&late));
            let chosen = self.to_put_aside(report, &conflicts).await?;
            if chosen.is_empty() {
                // Such as what was approved since.
                self.state.rejected.clear();
            }
            if !chosen.is_empty() || self.state.has_aside {
                if let Some(why) = unless_lost(self.checkout.restore(&chosen, self.scope).await)? {
                    warnings.push(format!("the run's version could not be written back: {why}"));
                }
                self.state.has_aside = !chosen.is_empty();
                if self.state.has_aside {
                    conflicts = self.pull().await?;
                    before = self.look().await?;
                    aside = chosen;
                    self.state.rejected.retain(|path| aside.contains(path));
                }
            }
        }
        match &before {
            // What is still there was not put aside, and is the next time.
            Ok(report) => {
                let is_there: BTreeSet<&str> = paths_of(report).collect();
                aside.retain(|path| !is_there.contains(path.as_str()));
                self.state.rejected.retain(|path| !aside.contains(path));
            }
            Err(error) => {
                aside.clear();
                warnings.push(format!("what differs from the run is not known: {}", said(error)));
            }
        }
        self.state.has_checkout |= self.checkout.seq().is_some();
        warnings.extend(behind(&conflicts));
        Ok(PreparedCommand { before, put_aside: aside.into_iter().collect(), late, warnings })
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

    /// Whether a person may work in the folder too: it is one of this machine.
    fn is_persons(&self) -> bool {
        self.checkout.folder().environment().get("kind") == Some(&json!("local"))
    }

    /// Returns the paths of what gives way to the run's version.
    async fn to_put_aside(
        &self,
        report: &ScanReport,
        conflicts: &[LayerConflict],
    ) -> Result<BTreeSet<String>, FolderError> {
        let rejected = &self.state.rejected;
        let changes = report.changes.iter().map(|change| &change.path).filter(|path| rejected.contains(*path));
        let conflicts = conflicts.iter().filter(|_| !self.is_persons()).map(|conflict| &conflict.path);
        let mut chosen: BTreeSet<String> = changes.chain(conflicts).cloned().collect();
        let left: BTreeSet<String> = left_paths(&report.left).collect();
        let is_in_the_way = |path: &String| chosen.iter().any(|chosen| is_above(path, chosen));
        let (blocking, others): (BTreeSet<_>, BTreeSet<_>) = left.into_iter().partition(is_in_the_way);
        chosen.extend(blocking);
        let others = others.into_iter().filter(|path| rejected.contains(path)).collect();
        let kept = self.checkout.never_taken(&others, report).await?;
        chosen.extend(others.into_iter().filter(|path| !kept.contains(path)));
        Ok(chosen)
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
        late: &BTreeSet<String>,
        result: &mut CommandResult,
    ) -> Result<Option<SentLayer>, FolderError> {
        let mut report = self.checkout.scan(self.scope).await?;
        self.state.after = Some(report.clone());
        let before = before?;
        report.leave_out(&before);
        if let Some(committed) = committed(&before, &report) {
            result.leave_out(1, left_out(vec![committed]));
        }
        if execution.is_complete() {
            self.state.rejected.extend(left_paths(&report.left));
        }
        result.leave_out(report.left_count + report.not_walked.len() as u64, left_out(report.left));
        result.left_out.extend(report.not_walked.into_iter().map(not_walked));
        if !execution.is_complete() {
            result.not_sent = interrupted(&report.changes);
            return Ok(None);
        }
        // Nobody knows which of the two has written it.
        let (shared, own): (Vec<_>, Vec<_>) =
            report.changes.into_iter().partition(|change| late.contains(&change.path));
        let shared = shared.into_iter().map(|PathChange { path, .. }| LeftEntry { path, why: SHARED.to_owned() });
        let shared: Vec<_> = shared.collect();
        result.leave_out(shared.len() as u64, left_out(shared));
        result.left_out.truncate(MAX_LEFT_OUT);
        if own.is_empty() {
            return Ok(None);
        }
        let layer = self.checkout.layer_of(&own).await?;
        let unsent = layer.left.iter().filter(|entry| entry.why != UNSTEADY);
        self.state.rejected.extend(left_paths(unsent));
        result.leave_out(layer.left.len() as u64, left_out(layer.left));
        result.left_out.truncate(MAX_LEFT_OUT);
        let paths = own.into_iter().map(|change| change.path).collect();
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
            // Its next command says so, and makes a lost checkout anew.
            Ok(()) | Err(FolderError::Folder(ShimError::Conflicts(_)) | FolderError::NoCheckout { .. }) => Ok(()),
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

/// What is said of a folder without an index.
const NO_INDEX: &str = "`.workspaced` was removed in the sandbox";
/// Where its files are that were not those of the run.
const ASIDE: &str = "what was in its way is in .workspaced/aside until the next command";

/// Why a file is not in the set of a command that has changed it.
const SHARED: &str =
    "also written by a process left running: once nothing else writes it, let a command write it again";

/// Returns why something failed, unless the sandbox is lost.
fn unless_lost(done: Result<(), FolderError>) -> Result<Option<String>, FolderError> {
    match done {
        Ok(()) => Ok(None),
        Err(error @ FolderError::Folder(ShimError::Lost(_))) => Err(error),
        Err(error) => Ok(Some(said(&error))),
    }
}

/// Whether `path` is that of a folder above `other`.
fn is_above(path: &str, other: &str) -> bool {
    other.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'))
}

/// Returns the paths of what no run can have, as far as they are whole, without empty folders.
fn left_paths<'a>(left: impl IntoIterator<Item = &'a LeftEntry>) -> impl Iterator<Item = String> {
    let is_whole = |entry: &&LeftEntry| !is_empty_folder(entry) && entry.path.chars().count() < MAX_SHOWN_CHARS;
    left.into_iter().filter(is_whole).map(|entry| entry.path.clone())
}

/// Returns the paths at which a folder is not as the run.
fn paths_of(report: &ScanReport) -> impl Iterator<Item = &str> {
    report.changes.iter().map(|change| &*change.path).chain(report.left.iter().map(|entry| &*entry.path))
}

/// Returns what was written after the last command had ended.
fn written_late(after: &ScanReport, now: &ScanReport) -> BTreeSet<String> {
    let mut now = now.clone();
    now.leave_out(after);
    let changes = now.changes.into_iter().map(|change| change.path);
    changes.chain(left_paths(&now.left)).collect()
}

/// Says what was written after the last command had ended.
fn said_late(late: &BTreeSet<String>) -> Option<String> {
    let why = "written after the command before this one had ended, such as by a process that it left running, and in no change set";
    (!late.is_empty()).then(|| format!("{why}: {}", named(late.iter())))
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

fn named<'a>(paths: impl ExactSizeIterator<Item = &'a String>) -> String {
    let count = paths.len();
    let named: Vec<_> = paths.take(MAX_INTERRUPTED).map(String::as_str).collect();
    format!("{}{}", named.join(", "), more_than(named.len(), count))
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
    let why = "the command did not end by itself, so that what it left stays in the sandbox and out of the run";
    (!changes.is_empty()).then(|| format!("{why}: {}", named(changes.iter().map(|change| &change.path))))
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
