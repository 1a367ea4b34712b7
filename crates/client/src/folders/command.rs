//! A command in a checkout: its output as it comes, signals to it, and its time limit.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use model::Sha256;
use shim::{CommandControl, CommandOutcome, CommandSpec, OutputStream};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::folders::checkout::Checkout;
use crate::folders::error::FolderError;
use crate::folders::kept_output::KeptOutput;

/// Chunks of output that may wait to be taken.
const MAX_WAITING: usize = 16;
/// How long a command has after each step of its end: asked, killed, cut off.
const GRACE: Duration = Duration::from_secs(5);
const TERMINATE: i32 = 15;

/// Sends signals to a command, also before it has started. Each command has its own.
#[derive(Clone, Debug, Default)]
pub struct CommandSignals(Arc<Mutex<SignalState>>);

#[derive(Debug, Default)]
struct SignalState {
    control: Option<CommandControl>,
    /// Sent before the command has started.
    pending: Option<i32>,
}

/// A command that has ended.
#[derive(Clone, Debug)]
pub struct Execution {
    /// How it ended and how long it took.
    pub outcome: CommandOutcome,
    /// Whether its time limit ended it.
    pub is_timed_out: bool,
    /// When it was started, RFC 3339.
    pub started_at: String,
    /// Its output, both streams as they came, without credentials: up to 16 MiB, the beginning and the end.
    pub output: String,
    /// The hash of `output`; nothing for an empty one.
    pub output_sha256: Option<Sha256>,
}

/// Ends the command whose caller does not wait for it any more.
struct KillOnDrop(Option<CommandSignals>);

impl CommandSignals {
    /// Signals for one command.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sends a signal, such as 2 for an interrupt, to all processes of the command's group. One that has ended gets none.
    pub fn signal(&self, signal: i32) {
        let mut state = self.lock();
        match &state.control {
            Some(control) => control.signal(signal),
            None => state.pending = Some(signal),
        }
    }

    /// Ends the command with all processes of its group.
    pub fn kill(&self) {
        // As a raw number, for which every system has the same.
        self.signal(9);
    }

    fn attach(&self, control: CommandControl) {
        let mut state = self.lock();
        if let Some(signal) = state.pending.take() {
            control.signal(signal);
        }
        state.control = Some(control);
    }

    /// Lets the pipe go, which the control holds.
    fn detach(&self) {
        self.lock().control = None;
    }

    fn lock(&self) -> MutexGuard<'_, SignalState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Execution {
    /// Returns the end of the output, at most `max_bytes`.
    pub fn output_end(&self, max_bytes: usize) -> &str {
        let from = self.output.ceil_char_boundary(self.output.len().saturating_sub(max_bytes));
        &self.output[from..]
    }

    /// Whether the command ended by itself.
    pub fn is_complete(&self) -> bool {
        self.outcome.signal.is_none() && !self.is_timed_out
    }
}

impl Checkout {
    /// Runs a command in the folder as it is, and records nothing. `sink` gets the output as it comes.
    ///
    /// At its time limit the command is asked to end, is killed 5 seconds later, and 5 seconds after that the pipe to the sandbox is
    /// cut. If the caller does not wait for the end, the command is killed.
    ///
    /// # Errors
    ///
    /// If the command cannot be started, or the connection to the sandbox is lost.
    pub async fn run_command(
        &mut self,
        command: &CommandSpec,
        time_limit: Option<Duration>,
        signals: &CommandSignals,
        sink: &mut (dyn FnMut(OutputStream, &[u8]) + Send),
    ) -> Result<Execution, FolderError> {
        let (sender, mut chunks) = mpsc::channel::<(OutputStream, Vec<u8>)>(MAX_WAITING);
        let (spec, of_command) = (command.clone(), signals.clone());
        let mut on_drop = KillOnDrop(Some(signals.clone()));
        let started_at = now();
        let mut limit = TimeLimit::after(time_limit);
        let mut running = std::pin::pin!(self.folder().with(move |folder| {
            let done = folder.exec(&spec, &mut |control| of_command.attach(control), &mut |stream, chunk| {
                sender.blocking_send((stream, chunk.to_vec())).map_err(std::io::Error::other)
            });
            of_command.detach();
            Ok(done?)
        }));
        let mut kept = KeptOutput::default();
        let mut take = |(stream, chunk): (OutputStream, Vec<u8>)| {
            kept.add(&chunk);
            sink(stream, &chunk);
        };
        let done = loop {
            tokio::select! {
                Some(chunk) = chunks.recv() => take(chunk),
                done = &mut running => break done,
                () = tokio::time::sleep_until(limit.at), if limit.is_set => match limit.next() {
                    LimitStep::Terminate => signals.signal(TERMINATE),
                    LimitStep::Kill => signals.kill(),
                    LimitStep::Cut => self.folder().cut(),
                },
            }
        };
        on_drop.0 = None;
        while let Some(chunk) = chunks.recv().await {
            take(chunk);
        }
        let output = kept.into_redacted();
        let output_sha256 = (!output.is_empty()).then(|| Sha256::of(output.as_bytes()));
        Ok(Execution { outcome: done?, is_timed_out: limit.is_reached, started_at, output, output_sha256 })
    }
}

/// The end of a command at its time limit.
struct TimeLimit {
    /// When the next step is due.
    at: Instant,
    is_set: bool,
    is_reached: bool,
    step: LimitStep,
}

#[derive(Clone, Copy)]
enum LimitStep {
    Terminate,
    Kill,
    Cut,
}

impl TimeLimit {
    fn after(limit: Option<Duration>) -> Self {
        let now = Instant::now();
        let at = limit.and_then(|limit| now.checked_add(limit));
        Self { at: at.unwrap_or(now), is_set: at.is_some(), is_reached: false, step: LimitStep::Terminate }
    }

    /// Returns the step that is due.
    fn next(&mut self) -> LimitStep {
        let due = self.step;
        self.is_reached = true;
        self.at += GRACE;
        match due {
            LimitStep::Terminate => self.step = LimitStep::Kill,
            LimitStep::Kill => self.step = LimitStep::Cut,
            LimitStep::Cut => self.is_set = false,
        }
        due
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if let Some(signals) = &self.0 {
            signals.kill();
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the record of a command says when it ran")]
fn now() -> String {
    Timestamp::now().to_string()
}
