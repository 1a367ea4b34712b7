//! A command in a checkout: its output as it comes, signals to it, and its time limit.

use async_recursion::async_recursion as boxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use model::Sha256;
use shim::{CommandControl, CommandOutcome, CommandSpec, OutputStream, ShimError};
use tokio::sync::{Notify, mpsc};
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
pub struct CommandSignals(Arc<SharedSignals>);

#[derive(Debug, Default)]
struct SharedSignals {
    state: Mutex<SignalState>,
    /// The command is to end.
    end: Notify,
}

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
    /// Whether it was asked to end, by its time limit or by [`CommandSignals::end`].
    pub is_ended: bool,
    /// When it was started, RFC 3339.
    pub started_at: String,
    /// Its output, both streams as they came, without credentials: up to 16 MiB, the beginning and the end.
    pub output: String,
    /// The hash of `output`; nothing for an empty one.
    pub output_sha256: Option<Sha256>,
}

/// A command of which it is not known how it ended.
pub(crate) struct Unfinished {
    pub(crate) error: FolderError,
    /// When it was started, RFC 3339.
    pub(crate) started_at: String,
    pub(crate) took: Duration,
    /// Whether it had reached its time limit.
    pub(crate) is_timed_out: bool,
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

    /// Ends the command as its time limit does: it is asked to end, is killed 5 seconds later, and 5 seconds after that the pipe to the
    /// sandbox is cut.
    pub fn end(&self) {
        self.0.end.notify_one();
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
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
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
        self.outcome.signal.is_none() && !self.is_ended
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
    #[boxed]
    pub async fn run_command(
        &mut self,
        command: &CommandSpec,
        time_limit: Option<Duration>,
        signals: &CommandSignals,
        sink: &mut (dyn FnMut(OutputStream, &[u8]) + Send),
    ) -> Result<Execution, FolderError> {
        self.run_to_end(command, time_limit, signals, sink).await.map_err(|unfinished| unfinished.error)
    }

    /// As [`Checkout::run_command`]. Of a command that has no end, it says what is known.
    pub(crate) async fn run_to_end(
        &mut self,
        command: &CommandSpec,
        time_limit: Option<Duration>,
        signals: &CommandSignals,
        sink: &mut (dyn FnMut(OutputStream, &[u8]) + Send),
    ) -> Result<Execution, Box<Unfinished>> {
        let (sender, mut chunks) = mpsc::channel::<(OutputStream, Vec<u8>)>(MAX_WAITING);
        let (spec, of_command) = (command.clone(), signals.clone());
        let mut on_drop = KillOnDrop(Some(signals.clone()));
        let (started_at, began) = (now(), Instant::now());
        let mut limit = TimeLimit::after(time_limit);
        self.folder().touch();
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
                () = signals.0.end.notified() => limit.end_now(),
                () = tokio::time::sleep_until(limit.at), if limit.is_set => match limit.next() {
                    LimitStep::Terminate => signals.signal(TERMINATE),
                    LimitStep::Kill => signals.kill(),
                    LimitStep::Cut => self.folder().cut(),
                    // Something else holds the pipe open.
                    LimitStep::GiveUp => {
                        chunks.close();
                        break Err(ShimError::Lost("it did not end the command".to_owned()).into());
                    }
                },
            }
        };
        on_drop.0 = None;
        while let Some(chunk) = chunks.recv().await {
            take(chunk);
        }
        let is_timed_out = limit.is_timed_out;
        let outcome = done.map_err(|error| {
            Box::new(Unfinished { error, started_at: started_at.clone(), took: began.elapsed(), is_timed_out })
        })?;
        let output = kept.into_redacted();
        let output_sha256 = (!output.is_empty()).then(|| Sha256::of(output.as_bytes()));
        Ok(Execution { outcome, is_timed_out, is_ended: limit.is_ending, started_at, output, output_sha256 })
    }
}

/// The end of a command, at its time limit or when it is asked for.
struct TimeLimit {
    /// When the next step is due.
    at: Instant,
    is_set: bool,
    is_ending: bool,
    is_timed_out: bool,
    step: LimitStep,
}

#[derive(Clone, Copy)]
enum LimitStep {
    Terminate,
    Kill,
    Cut,
    GiveUp,
}

impl TimeLimit {
    fn after(limit: Option<Duration>) -> Self {
        let now = Instant::now();
        let at = limit.and_then(|limit| now.checked_add(limit));
        let (is_set, at) = (at.is_some(), at.unwrap_or(now));
        Self { at, is_set, is_ending: false, is_timed_out: false, step: LimitStep::Terminate }
    }

    /// Makes the first step due, if it was not before.
    fn end_now(&mut self) {
        if !self.is_ending {
            (self.is_ending, self.is_set, self.at) = (true, true, Instant::now());
        }
    }

    /// Returns the step that is due.
    fn next(&mut self) -> LimitStep {
        let due = self.step;
        self.at += GRACE;
        self.step = match due {
            LimitStep::Terminate => {
                // If it was not asked for, it is the limit's.
                self.is_timed_out = !self.is_ending;
                self.is_ending = true;
                LimitStep::Kill
            }
            LimitStep::Kill => LimitStep::Cut,
            LimitStep::Cut | LimitStep::GiveUp => LimitStep::GiveUp,
        };
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
