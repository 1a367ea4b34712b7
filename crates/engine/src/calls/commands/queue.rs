//! The queue between callers of `run_command` and runners: in memory, on the node that owns the run.

use std::collections::{HashMap, VecDeque};
use std::ops::Deref;
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::{Code, Refusal, RunId, Sha256, ToolCallId};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::result::EndedCommand;
use crate::call_error::refusals::shutting_down;
use crate::tools::run_command::CommandShell;

/// How long a runner stays attached without a request. With the longest wait of a request, a runner that is silent is noticed within 20
/// seconds.
pub(super) const LEASE: Duration = Duration::from_secs(14);
/// How long a command waits until a runner is free.
const MAX_WAIT: Duration = Duration::from_mins(5);
/// How long a runner has after a command's time is over, to end it and to report.
const GRACE: Duration = Duration::from_mins(5);
/// How long a caller who has gone away waits for the end of what it has cancelled.
const CANCEL_GRACE: Duration = Duration::from_secs(15);
/// The most commands of a run that wait at a time.
const MAX_WAITING: usize = 64;
/// The most runners of a run.
const MAX_RUNNERS: usize = 256;

/// How many commands a run may have run.
#[derive(Clone, Copy)]
pub(crate) struct CommandCount {
    /// The policy's limit.
    pub(crate) max: u64,
    /// How many the records have, for a queue that does not know it yet.
    pub(crate) recorded: u64,
}

/// A runner: the token that it has, and the name that it gives itself.
pub(crate) type RunnerKey = (String, String);

/// A command in the queue, or with its runner.
pub(crate) struct QueuedCommand {
    /// The ID of the call.
    pub(crate) id: ToolCallId,
    /// The line, as a shell takes it.
    pub(crate) command: String,
    /// The folder in which it runs, relative to the tree's root.
    pub(crate) cwd: String,
    /// How long it may run.
    pub(crate) timeout_seconds: u64,
    /// The shell that its caller wants.
    pub(crate) shell: CommandShell,
    /// Who made the call.
    pub(crate) actor: String,
    /// The caller's step.
    pub(crate) step_id: Option<String>,
    /// Why the caller wants it.
    pub(crate) reason: Option<String>,
    /// The hash of the call's input, by which a repetition is known.
    pub(crate) call_sha256: Sha256,
    state: Mutex<QueuedState>,
}

struct QueuedState {
    /// Takes the result to the caller; taken when the caller has it, or waits no more.
    ended: Option<oneshot::Sender<EndedCommand>>,
    is_cancelled: bool,
    /// Whether an operator has stopped the agent of the run.
    is_stopped: bool,
    /// When a runner has taken it.
    given: Option<Instant>,
    /// Whether its result is being recorded.
    is_ending: bool,
}

impl QueuedState {
    fn has_no_waiter(&self) -> bool {
        self.ended.as_ref().is_none_or(oneshot::Sender::is_closed)
    }
}

impl QueuedCommand {
    /// The reason of what the command changes: that of the call, or the command itself.
    pub(crate) fn reason_of_changes(&self) -> String {
        self.reason.clone().unwrap_or_else(|| format!("run_command: {}", model::excerpt(&self.command, 200)))
    }

    /// Creates an order that nobody waits for yet.
    pub(crate) fn new(id: ToolCallId, command: String, cwd: String, timeout_seconds: u64) -> Self {
        let state = QueuedState { ended: None, is_cancelled: false, is_stopped: false, given: None, is_ending: false };
        Self {
            id,
            command,
            cwd,
            timeout_seconds,
            shell: CommandShell::Sh,
            actor: String::new(),
            step_id: None,
            reason: None,
            call_sha256: Sha256::ZERO,
            state: Mutex::new(state),
        }
    }

    /// Whether its runner should end it, and nothing of it is applied. Once its result is claimed, only a cancellation changes that.
    pub(crate) fn is_cancelled(&self) -> bool {
        let state = self.state.lock();
        state.is_cancelled || state.is_stopped || state.has_no_waiter()
    }
}

/// What a runner is told.
pub(crate) enum Instruction {
    /// Run a command.
    Run(Arc<QueuedCommand>),
    /// End the one that it runs.
    Cancel(ToolCallId),
    /// Nothing: ask again.
    Nothing,
}

/// What is known of a result that a runner reports.
pub(crate) enum ResultClaim {
    /// It is of this command, which the runner has.
    Of(ClaimedCommand),
    /// It was reported before, and answered so.
    Answered(Value),
    /// The runner does not have such a command.
    Unknown,
}

/// A command whose result is being recorded, during which it does not time out. Dropped without [`CommandQueue::end`], it stays with its
/// runner, which reports it again.
pub(crate) struct ClaimedCommand(Arc<QueuedCommand>);

impl Deref for ClaimedCommand {
    type Target = QueuedCommand;

    fn deref(&self) -> &QueuedCommand {
        &self.0
    }
}

impl Drop for ClaimedCommand {
    fn drop(&mut self) {
        self.0.state.lock().is_ending = false;
    }
}

/// The commands of every run of this node.
#[derive(Default)]
pub(crate) struct CommandQueue {
    runs: Mutex<HashMap<RunId, Arc<RunQueue>>>,
}

#[derive(Default)]
struct RunQueue {
    state: Mutex<QueueState>,
    /// Wakes the runners that wait.
    changed: watch::Sender<()>,
}

#[derive(Default)]
struct QueueState {
    runners: HashMap<RunnerKey, AttachedRunner>,
    waiting: VecDeque<Arc<QueuedCommand>>,
    /// How many commands the run has had run, those under way included.
    count: Option<u64>,
}

struct AttachedRunner {
    seen: Instant,
    /// Requests that wait now.
    requests: usize,
    order: Option<Arc<QueuedCommand>>,
    last: Option<(ToolCallId, Value)>,
}

impl AttachedRunner {
    fn is_attached(&self) -> bool {
        self.requests > 0 || self.seen.elapsed() < LEASE
    }
}

impl QueueState {
    fn has_runner(&self) -> bool {
        self.runners.values().any(AttachedRunner::is_attached)
    }

    fn check_room(&self) -> Result<(), Refusal> {
        if !self.has_runner() {
            return Err(no_runner());
        }
        if self.waiting.len() >= MAX_WAITING { Err(too_many_commands()) } else { Ok(()) }
    }

    fn forget_lost_runners(&mut self) {
        self.runners.retain(|_, runner| runner.is_attached());
    }

    /// Returns the runner that has the order.
    fn holder(&self, order: &Arc<QueuedCommand>) -> Option<&AttachedRunner> {
        self.runners.values().find(|runner| runner.order.as_ref().is_some_and(|held| Arc::ptr_eq(held, order)))
    }
}

/// A request of a runner that waits: the runner is attached as long as it does.
struct WaitingRequest<'a> {
    queue: &'a RunQueue,
    key: &'a RunnerKey,
}

impl Drop for WaitingRequest<'_> {
    fn drop(&mut self) {
        if let Some(runner) = self.queue.state.lock().runners.get_mut(self.key) {
            runner.requests = runner.requests.saturating_sub(1);
            runner.seen = Instant::now();
        }
    }
}

impl CommandQueue {
    /// Whether a runner is attached to the run.
    pub(crate) fn has_runner(&self, run: &RunId) -> bool {
        self.runs.lock().get(run).is_some_and(|queue| queue.state.lock().has_runner())
    }

    /// How many commands the run has had run, if that is known here.
    pub(crate) fn count(&self, run: &RunId) -> Option<u64> {
        self.runs.lock().get(run).and_then(|queue| queue.state.lock().count)
    }

    /// Checks that a command could be taken now.
    ///
    /// # Errors
    ///
    /// `UNAVAILABLE` without a runner; `RATE_LIMITED` if too many commands wait.
    pub(crate) fn check_room(&self, run: &RunId) -> Result<(), Refusal> {
        self.of(run).state.lock().check_room()
    }

    fn of(&self, run: &RunId) -> Arc<RunQueue> {
        let mut runs = self.runs.lock();
        // Runs that nobody serves or asks any more.
        runs.retain(|other, queue| {
            other == run || Arc::strong_count(queue) > 1 || {
                let mut state = queue.state.lock();
                state.forget_lost_runners();
                !(state.runners.is_empty() && state.waiting.is_empty())
            }
        });
        Arc::clone(runs.entry(run.clone()).or_default())
    }

    /// Returns what a runner has to do next, and waits for that at most `wait`. `running` is the command that it runs.
    ///
    /// # Errors
    ///
    /// `RATE_LIMITED` if the run has too many runners.
    pub(crate) async fn next(
        &self,
        run: &RunId,
        key: &RunnerKey,
        running: Option<&ToolCallId>,
        wait: Duration,
    ) -> Result<Instruction, Refusal> {
        let queue = self.of(run);
        let mut changed = queue.changed.subscribe();
        {
            let mut state = queue.state.lock();
            state.forget_lost_runners();
            if !state.runners.contains_key(key) && state.runners.len() >= MAX_RUNNERS {
                return Err(too_many_runners());
            }
            let now = Instant::now();
            let new = || AttachedRunner { seen: now, requests: 0, order: None, last: None };
            state.runners.entry(key.clone()).or_insert_with(new).requests += 1;
        }
        let _waiting = WaitingRequest { queue: &queue, key };
        let deadline = tokio::time::Instant::now() + wait;
        loop {
            changed.mark_unchanged();
            if let Some(instruction) = queue.instruction(key, running) {
                return Ok(instruction);
            }
            if tokio::time::timeout_at(deadline, changed.changed()).await.is_err() {
                return Ok(Instruction::Nothing);
            }
        }
    }

    /// Adds a command, waits for its end, and returns it. If `abandoned` is cancelled, so is the command; at a `shutdown` it is not waited
    /// for.
    ///
    /// # Errors
    ///
    /// `UNAVAILABLE` if no runner is attached, takes it or reports in time; `RATE_LIMITED` if too many wait.
    pub(crate) async fn run(
        &self,
        run: &RunId,
        mut order: QueuedCommand,
        count: CommandCount,
        abandoned: &CancellationToken,
        shutdown: &CancellationToken,
    ) -> Result<EndedCommand, Refusal> {
        let queue = self.of(run);
        let (sender, mut ended) = oneshot::channel();
        order.state.get_mut().ended = Some(sender);
        let order = Arc::new(order);
        {
            let mut state = queue.state.lock();
            state.check_room()?;
            let used = *state.count.get_or_insert(count.recorded);
            if used >= count.max {
                return Err(too_many_calls(used, count.max));
            }
            state.count = Some(used + 1);
            state.waiting.push_back(Arc::clone(&order));
        }
        queue.changed.send_replace(());
        let began = Instant::now();
        let mut cancelled: Option<Instant> = None;
        let mut stopped = queue.changed.subscribe();
        let mut ticks = tokio::time::interval(Duration::from_millis(500));
        let failed = loop {
            tokio::select! {
                done = &mut ended => return done.map_err(|_| lost()),
                () = shutdown.cancelled() => break shutting_down(),
                _ = stopped.changed() => {}
                () = abandoned.cancelled(), if cancelled.is_none() => {
                    cancelled = Some(Instant::now());
                    order.state.lock().is_cancelled = true;
                    queue.changed.send_replace(());
                }
                _ = ticks.tick() => {}
            }
            if let Some(refusal) = queue.expiry_reason(&order, began, cancelled) {
                break refusal;
            }
        };
        {
            let mut state = queue.state.lock();
            let waited = state.waiting.len();
            state.waiting.retain(|other| !Arc::ptr_eq(other, &order));
            if state.waiting.len() < waited {
                // No runner has had it.
                state.count = state.count.map(|count| count.saturating_sub(1));
            }
        }
        // Its result may have come just now.
        ended.close();
        if let Ok(done) = ended.try_recv() {
            return Ok(done);
        }
        // Its runner is told to end it.
        queue.changed.send_replace(());
        Err(failed)
    }

    /// Ends the commands of the run: those that wait are not run, and runners are told to end the others. One whose result is being
    /// recorded is completed.
    pub(crate) fn stop(&self, run: &RunId) {
        let Some(queue) = self.runs.lock().get(run).cloned() else { return };
        let state = queue.state.lock();
        let held = state.runners.values().filter_map(|runner| runner.order.as_ref());
        for order in state.waiting.iter().chain(held) {
            order.state.lock().is_stopped = true;
        }
        drop(state);
        queue.changed.send_replace(());
    }

    /// Returns the command whose result a runner reports.
    pub(crate) fn claim(&self, run: &RunId, key: &RunnerKey, id: &ToolCallId) -> ResultClaim {
        let queue = self.of(run);
        let mut state = queue.state.lock();
        let Some(runner) = state.runners.get_mut(key) else { return ResultClaim::Unknown };
        runner.seen = Instant::now();
        if let Some((last, answer)) = &runner.last
            && last == id
        {
            return ResultClaim::Answered(answer.clone());
        }
        match runner.order.as_ref().filter(|order| order.id == *id) {
            Some(order) if !std::mem::replace(&mut order.state.lock().is_ending, true) => {
                ResultClaim::Of(ClaimedCommand(Arc::clone(order)))
            }
            Some(_) | None => ResultClaim::Unknown,
        }
    }

    /// Gives the result to the caller, and frees the runner. `answer` is what the runner is told, now and if it reports again.
    pub(crate) fn end(&self, run: &RunId, key: &RunnerKey, order: &ClaimedCommand, ended: EndedCommand, answer: Value) {
        let queue = self.of(run);
        if let Some(runner) = queue.state.lock().runners.get_mut(key) {
            runner.seen = Instant::now();
            runner.order = None;
            runner.last = Some((order.id.clone(), answer));
        }
        if let Some(caller) = order.state.lock().ended.take() {
            // A caller that waits no more does not learn it; the record of the command says it.
            let _ = caller.send(ended);
        }
        queue.changed.send_replace(());
    }
}

impl RunQueue {
    /// Returns what a runner has to do, if there is something.
    fn instruction(&self, key: &RunnerKey, running: Option<&ToolCallId>) -> Option<Instruction> {
        let mut state = self.state.lock();
        let state = &mut *state;
        let runner = state.runners.get_mut(key)?;
        match (&runner.order, running) {
            (Some(order), Some(id)) if order.id == *id => {
                return order.is_cancelled().then(|| Instruction::Cancel(id.clone()));
            }
            // It does not run what it says: the service was started again, or has given the command up.
            (_, Some(id)) => return Some(Instruction::Cancel(id.clone())),
            // The answer that gave it the command was lost.
            (Some(order), None) if !order.is_cancelled() => return Some(Instruction::Run(Arc::clone(order))),
            (Some(_) | None, None) => runner.order = None,
        }
        while let Some(order) = state.waiting.pop_front() {
            if order.is_cancelled() {
                continue;
            }
            order.state.lock().given = Some(Instant::now());
            runner.order = Some(Arc::clone(&order));
            return Some(Instruction::Run(order));
        }
        None
    }

    /// Returns the refusal of a command that has expired; `None` while its caller waits.
    fn expiry_reason(&self, order: &Arc<QueuedCommand>, began: Instant, cancelled: Option<Instant>) -> Option<Refusal> {
        let state = self.state.lock();
        let (given, is_ending, is_stopped) = {
            let order = order.state.lock();
            (order.given, order.is_ending, order.is_stopped)
        };
        if is_stopped && !is_ending {
            return Some(stopped());
        }
        let Some(given) = given else {
            return if cancelled.is_some() {
                Some(cancelled_before())
            } else if !state.has_runner() {
                Some(no_runner())
            } else {
                (began.elapsed() > MAX_WAIT).then(busy)
            };
        };
        if is_ending {
            return None;
        }
        if cancelled.is_some_and(|since| since.elapsed() > CANCEL_GRACE)
            || !state.holder(order).is_some_and(AttachedRunner::is_attached)
        {
            return Some(lost());
        }
        let most = Duration::from_secs(order.timeout_seconds) + GRACE;
        (given.elapsed() > most).then(lost)
    }
}

fn no_runner() -> Refusal {
    let message = "no runner is attached to the run, so that no command can be run";
    Refusal::new(
        Code::Unavailable,
        message,
        "Continue with the other tools. An operator attaches one with `workspaced runner`.",
    )
}

fn busy() -> Refusal {
    let message = "no runner was free to run the command; it was not run";
    Refusal::new(Code::Unavailable, message, "Try again when the commands before it have ended.")
}

fn cancelled_before() -> Refusal {
    Refusal::new(
        Code::Unavailable,
        "the call was cancelled before its command was run",
        "Make the call again if you need it.",
    )
}

fn stopped() -> Refusal {
    let message = "an operator has stopped the agent of the run; what the command changed is not in the run";
    Refusal::new(Code::Unavailable, message, "End your work: the tokens of the run are revoked.")
}

fn lost() -> Refusal {
    let message = "the runner has not reported the end of the command; what it changed is not in the run";
    Refusal::new(Code::Unavailable, message, "Look at the files, and run the command again.")
}

fn too_many_commands() -> Refusal {
    let message = format!("{MAX_WAITING} commands of the run wait already");
    Refusal::new(Code::RateLimited, message, "Wait until they have ended.")
        .with_details(|details| details.limit = Some(MAX_WAITING as u64))
}

fn too_many_calls(actual: u64, limit: u64) -> Refusal {
    let message = format!("the run has had {actual} commands run; the policy allows {limit}");
    Refusal::new(Code::PolicyDenied, message, "Continue without commands.").with_details(|details| {
        details.reasons = vec!["commands:maxCalls".to_owned()];
        (details.limit, details.actual) = (Some(limit), Some(actual));
    })
}

fn too_many_runners() -> Refusal {
    let message = format!("{MAX_RUNNERS} runners are attached to the run already");
    Refusal::new(Code::RateLimited, message, "End one of them first.")
        .with_details(|details| details.limit = Some(MAX_RUNNERS as u64))
}
