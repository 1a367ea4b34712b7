//! Commands as a tool: the service runs none. It judges what is asked, hands it to a runner, and records and applies what comes back.
//!
//! The records of one command follow each other: the command itself (`event.command`) and what it changed (`apply_changeset`), in one
//! commit, and then the call (`run_command`), whose answer names both.

mod approved;
pub(crate) mod queue;
pub(crate) mod result;

use async_recursion::async_recursion as boxed;
use std::sync::Arc;
use std::time::Duration;

use ledger::{RecordFilter, RecordReader, Reply};
use model::{Code, EvidenceFact, Outcome, Permission, Refusal, RunId, Sha256, ToolCallId, Verdict, judge_command};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::CallError;
use crate::call::answer::{DONE, StoredAnswer};
use crate::call::evidence::{EVENT_SUFFIX, SET_SUFFIX, is_check};
use crate::call::record::{Failure, RecordedError};
use crate::call::{Answer, Call, Failed, OpenedCall};
use crate::call_error::refusals::{forbidden, run_not_open, shutting_down};
use crate::caller::Caller;
use crate::calls::Calls;
use crate::calls::changesets::{ApplyChangesetRequest, ParsedChangeset, request_of};
use crate::calls::commands::approved::approved_call;
use crate::calls::commands::queue::{CommandCount, Instruction, QueuedCommand, ResultClaim, RunnerKey};
use crate::calls::commands::result::{CommandResultRequest, EndedCommand, MAX_LINES, asked_members, summarised};
use crate::calls::dispatch::tell;
use crate::calls::events::entry_of_members;
use crate::run::open_run::OpenRun;
use crate::tool::input::parse;
use crate::tool::layer::Layer;
use crate::tools::run_command::{
    CommandChanges, CommandInput, CommandShell, OutputStart, RanCommand, RunCommandInput, as_shown,
};
use crate::transaction::ask::{AskedCommand, ask_for_command};

/// The longest ID of a call of `run_command`.
const MAX_ID: usize = 118;
/// The longest time that a request of a runner waits, during which a runner that was stopped is not noticed.
const MAX_POLL: Duration = Duration::from_secs(5);
// A runner that is stopped just after it has asked is noticed within 20 seconds.
const _: () = assert!(queue::LEASE.as_secs() + MAX_POLL.as_secs() < 20);
/// The longest warning of a runner about the files that a command has seen, in characters.
const MAX_WARNING: usize = 1000;
/// The longest name that a runner gives itself, in characters.
const MAX_NAME: usize = 128;
/// What a runner asks for.
#[derive(Clone, Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"runner": "web-1", "waitSeconds": 25}))]
pub struct NextCommandRequest {
    /// The name that the runner gives itself, 1 to 128 characters, the same in all its requests.
    #[schema(min_length = 1, max_length = 128)]
    runner: String,
    /// The command that it runs now: the answer then only says whether to end it.
    #[serde(default)]
    running: Option<String>,
    /// How long to wait if there is nothing to do, in seconds; more than 5 is taken as 5.
    #[serde(default)]
    #[schema(maximum = 30, default = 5)]
    wait_seconds: Option<u64>,
}

/// What a runner has to do next: one of the two, or nothing.
#[derive(Clone, Debug, Default, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct NextCommand {
    /// The command to run. It is given to the runner again until its result is reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<CommandOrder>,
    /// The command to end: its result is reported all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    cancel: Option<ToolCallId>,
}

/// A command for a runner.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommandOrder {
    /// Its ID.
    #[schema(value_type = String, example = "tc_0190f4b8")]
    command_id: ToolCallId,
    /// The line, as a POSIX shell takes it.
    #[schema(example = "cargo test --workspace")]
    command: String,
    /// The folder in which it runs, relative to the tree's root.
    #[schema(example = ".")]
    cwd: String,
    /// The seconds after which the runner ends it.
    timeout_seconds: u64,
    /// The shell that its caller wants, if it is another one than `sh`. Where the sandbox does not have it, `sh` runs the line, and the result's
    /// `environment` says so in `shell`.
    #[serde(skip_serializing_if = "CommandShell::is_default")]
    #[schema(required = false)]
    shell: CommandShell,
    /// Why it is wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// What became of a result.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CommandResultAnswer {
    /// Always true.
    #[schema(example = true)]
    ok: bool,
    /// The number of the command's record.
    #[serde(skip_serializing_if = "Option::is_none")]
    event_seq: Option<u64>,
    /// What became of the changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    changes: Option<CommandChanges>,
    /// The paths of a change set that was refused or waits, without those that a run never takes: before the next command, the sandbox gets the
    /// run's version of them. Omitted if there are more than 10,000.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    rejected: Vec<String>,
}

/// The records of a command that has ended.
#[derive(Default)]
struct RecordedEnd {
    event_seq: Option<u64>,
    changes: Option<CommandChanges>,
    rejected: Vec<String>,
    /// The data of the event.
    data: Value,
}

/// A call that has been judged.
struct AllowedCommand {
    command: String,
    cwd: String,
    timeout_seconds: u64,
    shell: CommandShell,
    max_chars: usize,
    reasons: Vec<String>,
}

impl Calls {
    /// Whether a runner is attached to the run, so that its callers are offered `run_command`.
    pub fn has_runner(&self, run: &RunId) -> bool {
        self.queue.has_runner(run)
    }

    /// Executes and records a call of `run_command`. If the caller goes away, the command is ended.
    pub(crate) async fn call_command(
        &self,
        call: Call,
        members: Result<Map<String, Value>, Refusal>,
    ) -> Result<Answer, RecordedError> {
        let (run, members) = self.admit(&call, members).await?;
        let listener = run.decisions.listener(&call.caller.actor);
        let call = call.opened(&run, EvidenceFact::Missing);
        let (calls, open_run) = (self.clone(), Arc::clone(&run));
        let abandoned = CancellationToken::new();
        let _ends_with_its_caller = abandoned.clone().drop_guard();
        let work = async move { Ok(calls.answer_command(call, &open_run, members, &abandoned).await) };
        let mut answer = self.engine.detached(work).await.unwrap_or_else(|error| Err(RecordedError::left_out(error)));
        tell(&run, listener.as_deref(), &mut answer);
        answer
    }

    async fn answer_command(
        &self,
        call: OpenedCall,
        run: &Arc<OpenRun>,
        members: Map<String, Value>,
        abandoned: &CancellationToken,
    ) -> Result<Answer, RecordedError> {
        // Two calls under one ID must not both find that it is new.
        let _id = if call.client_supplied_id {
            tokio::select! {
                id = run.in_flight.lock(&call.tool_call_id) => Some(id),
                // Nobody waits for this one: the first goes on.
                () = abandoned.cancelled() => return Err(RecordedError::left_out(given_up())),
                () = self.engine.shutdown.cancelled() => return Err(RecordedError::left_out(shutting_down())),
            }
        } else {
            None
        };
        match self.engine.stored_answer(&call).await.map_err(RecordedError::left_out)? {
            StoredAnswer::None => {}
            StoredAnswer::OtherCall => return Err(self.engine.record_reused_id(&call).await),
            StoredAnswer::Found(Ok(answer)) => return Ok(answer),
            StoredAnswer::Found(Err(refusal)) => return self.once_approved(&call, refusal).await,
        }
        match self.try_command(&call, run, members, abandoned).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(recorded)) => Err(recorded),
            Err(error) => Err(self.engine.record_error(&call, &[], error).await),
        }
    }

    /// As [`answer_command`](Self::answer_command), for a call that is new. The outer error is not recorded yet.
    async fn try_command(
        &self,
        call: &OpenedCall,
        run: &Arc<OpenRun>,
        members: Map<String, Value>,
        abandoned: &CancellationToken,
    ) -> Result<Result<Answer, RecordedError>, CallError> {
        let input = CommandInput::try_from(parse::<RunCommandInput>(members)?)?;
        self.engine.check_history(run, std::slice::from_ref(call), 0).await?;
        let (command, cwd, timeout_seconds, shell, max_chars) = match input {
            CommandInput::Output { of, start, max_chars } => {
                let (ran, record) = self.output_of(&call.run_id, &of, start, max_chars).await?;
                return self.record_command_call(call, ran, record, Vec::new()).await;
            }
            CommandInput::Run { command, cwd, timeout_seconds, shell, max_chars } => {
                (command, cwd, timeout_seconds, shell, max_chars)
            }
        };
        if call.tool_call_id.as_str().len() > MAX_ID {
            let message = format!("`toolCallId` is longer than {MAX_ID} characters");
            return Err(Refusal::invalid(message, "Give a shorter one, or omit it.").into());
        }
        if let Some(answer) = self.ran_before(call, max_chars).await? {
            return Ok(answer);
        }
        check_open(run)?;
        let policy = &run.rules.policy().commands;
        let decision = judge_command(policy, &command);
        if let Some(refusal) = decision.refusal {
            return Err(refusal.into());
        }
        let most = policy.timeout_seconds;
        let allowed = AllowedCommand {
            cwd,
            timeout_seconds: timeout_seconds.unwrap_or(most).min(most),
            shell,
            max_chars,
            reasons: decision.reasons,
            command,
        };
        if decision.verdict == Verdict::RequireApproval {
            let record = summarised(&allowed.command, "", asked_members(&allowed.command, &allowed.cwd, None));
            let asked =
                AskedCommand { command: &allowed.command, cwd: &allowed.cwd, reasons: &allowed.reasons, record };
            return Ok(Err(ask_for_command(&self.engine, run, call, asked).await?));
        }
        self.run_command(call, run, allowed, abandoned).await
    }

    /// Has a command run, and records the call.
    async fn run_command(
        &self,
        call: &OpenedCall,
        run: &OpenRun,
        allowed: AllowedCommand,
        abandoned: &CancellationToken,
    ) -> Result<Result<Answer, RecordedError>, CallError> {
        let AllowedCommand { command, cwd, timeout_seconds, shell, max_chars, reasons } = allowed;
        let mut order = QueuedCommand::new(call.tool_call_id.clone(), command, cwd, timeout_seconds);
        order.shell = shell;
        call.asked_by().clone_into(&mut order.actor);
        order.step_id.clone_from(&call.step_id);
        order.reason.clone_from(&call.reason);
        order.call_sha256 = call.input_sha256;
        let (line, cwd_of_call) = (order.command.clone(), order.cwd.clone());
        let mut data = asked_members(&line, &order.cwd, Some(timeout_seconds));
        let max_calls = run.rules.policy().commands.max_calls;
        let count = CommandCount { max: max_calls, recorded: self.recorded_commands(&run.run_id, max_calls).await? };
        let ended = self.queue.run(&run.run_id, order, count, abandoned, &self.engine.shutdown).await?;
        if let Some(error) = &ended.result.error {
            if ended.result.no_folder {
                return Err(no_folder(&cwd_of_call).into());
            }
            let message = format!("the runner could not run the command: {}", model::excerpt(error, 500));
            return Err(Refusal::new(Code::Unavailable, message, "Correct what it says, or try again later.").into());
        }
        let result = &ended.result;
        let mut ran = RanCommand {
            exit_code: result.exit_code,
            signal: result.signal,
            timed_out: result.timed_out,
            duration_micros: result.duration_micros,
            output_of: result.output_sha256.map(|_| call.tool_call_id.to_string()),
            output_sha256: result.output_sha256,
            event_seq: ended.event_seq,
            changes: ended.changes.clone(),
            warning: result.warning.as_deref().map(|warning| model::excerpt(warning, MAX_WARNING)),
            shell: ran_by(shell, result),
            ..RanCommand::default()
        };
        ran.add_tree(&ended.data);
        let shown = as_shown(&result.output);
        let (output, lines) = (model::redact(&shown), result.output_lines.min(MAX_LINES));
        ran.set_end(&output, lines, result.output_start_cut, max_chars);
        data.extend(outcome_members(&ran));
        let record = summarised(&line, &result.ended(), data);
        self.record_command_call(call, ran, record, reasons).await
    }

    /// Records a call that has succeeded, with `record` as what its record says, and returns its answer.
    async fn record_command_call(
        &self,
        call: &OpenedCall,
        ran: RanCommand,
        record: Map<String, Value>,
        reasons: Vec<String>,
    ) -> Result<Result<Answer, RecordedError>, CallError> {
        let body = serde_json::to_string(&ran).map_err(|error| CallError::Internal(Box::new(error)))?;
        let mut draft = call.draft(Verdict::Allow, Outcome::Ok);
        draft.input = Some(record);
        draft.reasons = reasons;
        draft
            .artifact_uris
            .extend(ran.output_sha256.map(|sha256| format!("artifact://{}/sha256/{sha256}", call.run_id)));
        let entry = call.entry(draft, Some(Reply { status: DONE, body }));
        match self.engine.record_calls(std::slice::from_ref(call), vec![entry]).await {
            Ok(records) => match records.first() {
                Some(record) => {
                    let answer = Answer::new(call.tool_call_id.clone(), Box::new(ran));
                    Ok(Ok(answer.recorded(record.seq, record.hash)))
                }
                None => Err(CallError::Internal("a call has no record".into())),
            },
            Err(Failure::Call(_, error) | Failure::All(error)) => Err(error),
            Err(Failure::Recorded(error)) => Ok(Err(error)),
        }
    }

    /// Returns the answer to a call whose command was run before the service could record the call.
    async fn ran_before(
        &self,
        call: &OpenedCall,
        max_chars: usize,
    ) -> Result<Option<Result<Answer, RecordedError>>, CallError> {
        if !call.client_supplied_id {
            return Ok(None);
        }
        let event = with_suffix(&call.tool_call_id, EVENT_SUFFIX)?;
        let Some(event) = self.engine.ledger.call(&call.run_id, &event).await? else { return Ok(None) };
        let record: Value =
            serde_json::from_str(&event.record).map_err(|error| CallError::Internal(Box::new(error)))?;
        if record["input"]["data"]["callSha256"] != json!(call.input_sha256) {
            return Ok(Some(Err(self.engine.record_reused_id(call).await)));
        }
        let (mut ran, record) = self.output_of(&call.run_id, &call.tool_call_id, OutputStart::FIRST, max_chars).await?;
        let set = with_suffix(&call.tool_call_id, SET_SUFFIX)?;
        if let Some(stored) = self.engine.ledger.call(&call.run_id, &set).await?
            && let Some(reply) = stored.reply
        {
            let mut changes: CommandChanges = serde_json::from_str(&reply.body).unwrap_or_default();
            (changes.seq, changes.tool_call_id) = (Some(stored.seq), Some(set.to_string()));
            ran.changes = Some(changes);
        }
        self.record_command_call(call, ran, record, Vec::new()).await.map(Some)
    }

    /// Returns the output of an earlier command, and what the record of its reading says.
    async fn output_of(
        &self,
        run: &RunId,
        id: &ToolCallId,
        start: OutputStart,
        max_chars: usize,
    ) -> Result<(RanCommand, Map<String, Value>), CallError> {
        let mut event = self.engine.ledger.call(run, &with_suffix(id, EVENT_SUFFIX)?).await?;
        if event.is_none() {
            event = self.engine.ledger.call(run, id).await?;
            if let Some(approved) = event.as_ref().and_then(approved_call) {
                event = self.engine.ledger.call(run, &with_suffix(&approved?, EVENT_SUFFIX)?).await?;
            }
        }
        let event = event.filter(|event| is_check(&event.tool)).ok_or_else(|| no_such_command(id))?;
        let record: Value =
            serde_json::from_str(&event.record).map_err(|error| CallError::Internal(Box::new(error)))?;
        let data = &record["input"]["data"];
        let sha256 = serde_json::from_value::<Sha256>(data["outputSha256"].clone()).ok();
        let text = match &sha256 {
            Some(sha256) => {
                let bytes = self.uploaded_artifact(run, sha256).await?;
                let shown = move || Ok(model::redact(&as_shown(&String::from_utf8_lossy(&bytes))).into_owned());
                self.engine.blocking(shown).await?
            }
            None => String::new(),
        };
        let mut ran = RanCommand {
            exit_code: data["exitCode"].as_i64(),
            signal: data["signal"].as_i64(),
            timed_out: data["timedOut"].as_bool().unwrap_or(false),
            duration_micros: record["durationMicros"].as_u64().unwrap_or(0),
            output_of: Some(id.to_string()),
            output_sha256: sha256,
            event_seq: Some(event.seq),
            ..RanCommand::default()
        };
        ran.add_tree(data);
        ran.set_lines(&text, start, max_chars);
        let data = json!({ "outputOf": id, "startLine": start.line });
        let data = data.as_object().cloned().unwrap_or_default();
        Ok((ran, summarised(&format!("output of {id}"), "", data)))
    }

    /// Returns how many commands the run has had run, for the queue, if that does not know it yet.
    async fn recorded_commands(&self, run: &RunId, max_calls: u64) -> Result<u64, CallError> {
        if let Some(count) = self.queue.count(run) {
            return Ok(count);
        }
        let filter =
            RecordFilter { run: Some(run.clone()), tool: Some("event.command".to_owned()), ..RecordFilter::default() };
        let (mut count, mut records) = (0, RecordReader::new(self.engine.ledger.as_ref(), filter));
        while count < max_calls
            && let Some(stored) = records.next().await?
        {
            count += u64::from(is_of_call(&stored.text));
        }
        Ok(count)
    }
}

/// Whether an event is that of a call of `run_command`, and not one that a runner has recorded by itself.
fn is_of_call(record: &str) -> bool {
    let record: Value = serde_json::from_str(record).unwrap_or_default();
    record["input"]["data"]["toolCallId"].is_string()
        && record["toolCallId"].as_str().is_some_and(|id| id.ends_with(EVENT_SUFFIX))
}

/// What the record of a call says of the command's end.
fn outcome_members(ran: &RanCommand) -> Map<String, Value> {
    let mut members = Map::new();
    members.extend(ran.exit_code.map(|code| ("exitCode".to_owned(), json!(code))));
    members.extend(ran.signal.map(|signal| ("signal".to_owned(), json!(signal))));
    if ran.timed_out {
        members.insert("timedOut".to_owned(), Value::Bool(true));
    }
    members.extend(ran.event_seq.map(|seq| ("eventSeq".to_owned(), json!(seq))));
    members.extend(ran.output_sha256.map(|sha256| ("outputSha256".to_owned(), json!(sha256))));
    let changes = ran.changes.as_ref();
    members.extend(changes.and_then(|changes| changes.seq).map(|seq| ("changeSeq".to_owned(), json!(seq))));
    members.extend(changes.and_then(|changes| changes.code).map(|code| ("changeCode".to_owned(), json!(code))));
    members
}

/// Returns the shell that has run a line, if it is not the one that was wanted.
fn ran_by(wanted: CommandShell, result: &CommandResultRequest) -> Option<String> {
    let shell = result.environment.as_ref()?.get("shell")?.as_str()?;
    (wanted == CommandShell::Bash && shell != "bash").then(|| model::excerpt(shell, MAX_NAME))
}

fn no_folder(cwd: &str) -> Refusal {
    let message = format!("`cwd` is `{cwd}`, which is no folder in the sandbox; the command was not run");
    Refusal::new(
        Code::NotFound,
        message,
        "Give a folder that is there, or omit cwd; an empty folder of the run is not.",
    )
}

/// The refusal of a repetition whose caller has gone away while the first call is under way.
fn given_up() -> Refusal {
    Refusal::new(Code::Unavailable, "the call was given up while the first one under its ID is under way", "Repeat it.")
}

fn check_open(run: &OpenRun) -> Result<(), Refusal> {
    match run.state() {
        model::RunState::Open | model::RunState::AwaitingApproval => Ok(()),
        state => Err(run_not_open(state)),
    }
}

/// Returns the ID of the change set of a command.
pub fn command_set_id(command: &ToolCallId) -> Option<ToolCallId> {
    with_suffix(command, SET_SUFFIX).ok()
}

fn with_suffix(id: &ToolCallId, suffix: &str) -> Result<ToolCallId, CallError> {
    ToolCallId::parse(&format!("{id}{suffix}")).map_err(|error| no_such_command_for(error.to_string()).into())
}

fn no_such_command(id: &ToolCallId) -> Refusal {
    no_such_command_for(format!("the run has no command `{id}`"))
}

fn no_such_command_for(message: String) -> Refusal {
    Refusal::new(Code::NotFound, message, "Give the outputOf that the answer to the command has.")
}

/// What runners do.
impl Calls {
    /// Returns what a runner has to do next, and waits for it.
    ///
    /// # Errors
    ///
    /// `FORBIDDEN`, recorded; `INVALID_REQUEST`, `RUN_NOT_FOUND`, `RUN_CLOSED`, `RATE_LIMITED`.
    #[boxed]
    pub async fn next_command(&self, run: &RunId, caller: &Caller, body: &[u8]) -> Result<NextCommand, RecordedError> {
        self.check_serves(run, caller).await?;
        let next = async {
            let request: NextCommandRequest = request_of(body, "request")?;
            // The run is not kept open while the runner waits.
            check_open(&*self.engine.open(run).await?)?;
            let key = runner_key(caller, &request.runner)?;
            let running = request.running.as_deref().map(ToolCallId::parse).transpose();
            let running =
                running.map_err(|error| Refusal::invalid(error.to_string(), "Give the commandId as it was given."))?;
            let wait = request.wait_seconds.map_or(MAX_POLL, Duration::from_secs).min(MAX_POLL);
            let next = self.queue.next(run, &key, running.as_ref(), wait);
            let instruction = tokio::select! {
                next = next => next?,
                () = self.engine.shutdown.cancelled() => Instruction::Nothing,
            };
            Ok::<_, CallError>(instruction)
        };
        Ok(match next.await.map_err(RecordedError::left_out)? {
            Instruction::Run(order) => NextCommand { command: Some(CommandOrder::of(&order)), cancel: None },
            Instruction::Cancel(id) => NextCommand { command: None, cancel: Some(id) },
            Instruction::Nothing => NextCommand::default(),
        })
    }

    /// Checks that the caller may serve commands, before the body of its request is received.
    ///
    /// # Errors
    ///
    /// `FORBIDDEN`, recorded.
    #[boxed]
    pub async fn check_serves(&self, run: &RunId, caller: &Caller) -> Result<(), RecordedError> {
        if caller.permissions.contains(&Permission::CommandServe) {
            return Ok(());
        }
        Err(self.record_refusal(run, caller, SERVE, forbidden(&[Permission::CommandServe])).await)
    }

    /// Records that a result was refused whose request cannot be read.
    #[boxed]
    pub async fn refuse_command_result(&self, run: &RunId, caller: &Caller, refusal: Refusal) -> RecordedError {
        self.record_refusal(run, caller, SERVE, refusal).await
    }

    /// Takes the result of a command from its runner: records the command, applies its changes, and answers the call. A runner that is
    /// not answered reports the same again.
    ///
    /// # Errors
    ///
    /// `NOT_FOUND` if the runner does not have the command; `UNAVAILABLE` and `RATE_LIMITED`, after which it reports the result again.
    #[boxed]
    pub async fn end_command(
        &self,
        run: &RunId,
        caller: Caller,
        id: &ToolCallId,
        result: &[u8],
        layer: Option<Result<Layer, Refusal>>,
    ) -> Result<Value, RecordedError> {
        self.check_serves(run, &caller).await?;
        let checked = request_of::<CommandResultRequest>(result, "request").and_then(|result| {
            result.check(layer.is_some())?;
            Ok((runner_key(&caller, &result.runner)?, result))
        });
        let (key, result) = match checked {
            Ok(checked) => checked,
            Err(refusal) => return Err(self.record_refusal(run, &caller, SERVE, refusal).await),
        };
        let order = match self.queue.claim(run, &key, id) {
            ResultClaim::Of(order) => order,
            ResultClaim::Answered(answer) => return Ok(answer),
            ResultClaim::Unknown => {
                let message = format!("the runner does not have the command `{id}`");
                let refusal =
                    Refusal::new(Code::NotFound, message, "Ask for the next command; record this one as an event.");
                return Err(self.record_refusal(run, &caller, SERVE, refusal).await);
            }
        };
        // Boxed, since they have the whole transaction.
        let recorded = Box::pin(self.record_end(run, &caller, &order, &result, layer)).await?;
        let RecordedEnd { event_seq, changes, rejected, data } = recorded;
        let answer = CommandResultAnswer { ok: true, event_seq, changes: changes.clone(), rejected };
        let answer = serde_json::to_value(&answer).unwrap_or_default();
        self.queue.end(run, &key, &order, EndedCommand { result, event_seq, changes, data }, answer.clone());
        Ok(answer)
    }

    /// Records a command, and applies what it changed.
    async fn record_end(
        &self,
        run: &RunId,
        caller: &Caller,
        order: &QueuedCommand,
        result: &CommandResultRequest,
        layer: Option<Result<Layer, Refusal>>,
    ) -> Result<RecordedEnd, RecordedError> {
        if result.error.is_some() {
            return Ok(RecordedEnd::default());
        }
        let event_id = with_suffix(&order.id, EVENT_SUFFIX).map_err(RecordedError::left_out)?;
        // What an interrupted command left is half of something.
        let is_whole = result.signal.is_none() && !result.timed_out && !order.is_cancelled();
        let not_applied = result.not_applied(layer.is_some() && !is_whole);
        let event = result.event(order, run, not_applied.as_deref());
        let mut event = entry_of_members(run, caller, event_id.clone(), event).map_err(RecordedError::left_out)?;
        let is_other = self.settle_differing(&mut event).await.map_err(RecordedError::left_out)?;
        let data = event.draft.input.as_ref().and_then(|input| input.get("data")).cloned().unwrap_or_default();
        let (left_out, left_out_count) = result.left_out();
        let Some(layer) = layer.filter(|_| is_whole) else {
            let seq = self.record_command(event).await.map_err(RecordedError::left_out)?;
            let is_told = not_applied.is_some() || left_out_count > 0;
            let changes =
                CommandChanges { message: not_applied, left_out, left_out_count, ..CommandChanges::default() };
            return Ok(RecordedEnd {
                event_seq: seq,
                changes: is_told.then_some(changes),
                data,
                ..RecordedEnd::default()
            });
        };
        // The runner reports what the caller of a change set would send.
        let request = ApplyChangesetRequest {
            changeset_id: None,
            based_on_seq: result.based_on_seq.unwrap_or(0),
            reason: order.reason_of_changes(),
            step_id: order.step_id.clone(),
            command: None,
            on_conflict: result.on_conflict,
            on_denied: result.on_denied,
            dry_run: false,
        };
        let mut set = ParsedChangeset::of(run, caller.clone(), &request, &layer);
        let set_id = with_suffix(&order.id, SET_SUFFIX).map_err(RecordedError::left_out)?;
        (set.call.tool_call_id, set.call.client_supplied_id) = (set_id.clone(), true);
        set.call.on_behalf_of = Some(order.actor.clone());
        set.set_command(event, result.exit_code, is_other);
        let (sent, mut rejected) = (layer.as_ref().ok().cloned(), Vec::new());
        let mut changes = match Box::pin(self.apply_set(set, layer)).await {
            Ok(answer) => {
                let changes: Result<CommandChanges, _> = serde_json::from_str(&answer.to_json());
                changes.map_err(|error| RecordedError::left_out(CallError::Internal(Box::new(error))))?
            }
            Err(Failed { error, .. }) => match error.as_error() {
                CallError::Refused(refusal) if !refusal.code.is_retryable() => {
                    if let Some(sent) = sent {
                        // A layer that cannot be read is rejected as a whole.
                        rejected = self.takeable_paths(run, sent).await.unwrap_or_default();
                    }
                    CommandChanges::refused(&set_id, refusal)
                }
                _ => return Err(error),
            },
        };
        (changes.left_out, changes.left_out_count) = (left_out, left_out_count);
        let recorded = self.engine.ledger.call(run, &event_id).await;
        let seq = recorded.map_err(RecordedError::left_out)?.map(|event| event.seq);
        Ok(RecordedEnd { event_seq: seq, changes: Some(changes), rejected, data })
    }
}

/// The tool in the record of a refused request of a runner.
const SERVE: &str = "command.serve";

impl CommandOrder {
    fn of(order: &QueuedCommand) -> Self {
        Self {
            command_id: order.id.clone(),
            command: order.command.clone(),
            cwd: order.cwd.clone(),
            timeout_seconds: order.timeout_seconds,
            shell: order.shell,
            reason: order.reason.clone(),
        }
    }
}

fn runner_key(caller: &Caller, name: &str) -> Result<RunnerKey, Refusal> {
    if name.is_empty() || name.chars().count() > MAX_NAME || name.chars().any(char::is_control) {
        let message = format!("`runner` is empty, longer than {MAX_NAME} characters or has control characters");
        return Err(Refusal::invalid(message, "Give the runner a name of its own, the same in all its requests."));
    }
    Ok((caller.actor.clone(), name.to_owned()))
}
