//! Commands for which a person was asked: what the person decides, and what becomes of the call that has asked.
//!
//! That call keeps its ID, and its record that it waits. The command is run for a further call, whose ID is made of that of the approval, so that
//! the first one leads to its result.

use std::sync::Arc;

use ledger::StoredCall;
use model::{
    Approval, ApprovalId, ApprovalState, Code, EvidenceFact, Outcome, Refusal, ToolCallId, Verdict, judge_command,
};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::{AllowedCommand, check_open};
use crate::CallError;
use crate::approvals::decide::{DecidingPerson, decision_of};
use crate::call::answer::DONE;
use crate::call::record::{Failure, RecordedError};
use crate::call::{Answer, Call, OpenedCall};
use crate::caller::Caller;
use crate::calls::Calls;
use crate::calls::commands::result::{asked_members, summarised};
use crate::clock::now;
use crate::run::chain_head::ChainHead;
use crate::run::open_run::OpenRun;
use crate::tool::input::parse;
use crate::tools::run_command::{CommandInput, RUN_COMMAND, RanCommand, RunCommandInput};

/// What follows the ID of an approval in that of the call whose command it allows.
const APPROVED_SUFFIX: &str = ".approved";

/// What people decide about commands.
impl Calls {
    /// Returns the answer to a call that was refused before with `refusal`: if a person was asked and has approved its command since, that
    /// of the command.
    pub(super) async fn once_approved(&self, call: &OpenedCall, refusal: Refusal) -> Result<Answer, RecordedError> {
        match self.approved_answer(call, &refusal).await {
            Ok(Some(answer)) => answer.map_err(RecordedError::left_out),
            Ok(None) => Err(RecordedError::left_out(refusal)),
            Err(error) => Err(RecordedError::left_out(error)),
        }
    }

    async fn approved_answer(
        &self,
        call: &OpenedCall,
        refusal: &Refusal,
    ) -> Result<Option<Result<Answer, Refusal>>, CallError> {
        let Some(approval) = &refusal.details.approval_id else { return Ok(None) };
        let ran = self.engine.ledger.call(&call.run_id, &with_suffix_of(approval)?).await?;
        if let Some((ran, reply)) = ran.and_then(|mut ran| ran.reply.take().map(|reply| (ran, reply))) {
            let internal = |error: serde_json::Error| CallError::Internal(Box::new(error));
            if reply.status == DONE {
                let output: RanCommand = serde_json::from_str(&reply.body).map_err(internal)?;
                let answer = Answer::new(call.tool_call_id.clone(), Box::new(output));
                return Ok(Some(Ok(answer.recorded(ran.seq, Some(ran.hash)))));
            }
            let refusal: Refusal = serde_json::from_str(&reply.body).map_err(internal)?;
            return Ok(Some(Err(refusal.recorded(ran.seq, Some(ran.hash)))));
        }
        let is_approved = self.engine.approval(approval).await?.state == ApprovalState::Approved;
        Ok(is_approved.then(|| Err(without_result())))
    }

    /// Records that a person has approved a command, and has it run. Its caller is told when it has ended.
    ///
    /// # Errors
    ///
    /// `POLICY_DENIED` and `RUN_CLOSED`; `UNAVAILABLE` and `RATE_LIMITED`, which leave it pending.
    pub(crate) async fn approve_command(
        &self,
        run: &Arc<OpenRun>,
        approval: &Approval,
        calls: &[OpenedCall],
        decider: &DecidingPerson,
    ) -> Result<Option<ChainHead>, CallError> {
        let [call] = calls else { return Err(CallError::Internal("an approved command is not one call".into())) };
        let Ok(Value::Object(members)) = serde_json::from_str(&call.input) else {
            return Err(CallError::Internal("a stored input is not an object".into()));
        };
        let input = CommandInput::try_from(parse::<RunCommandInput>(Call::without_common(members))?)?;
        let CommandInput::Run { command, cwd, timeout_seconds, shell, max_chars } = input else {
            return Err(CallError::Internal("an approved call is no command".into()));
        };
        check_open(run)?;
        if let Some(refusal) = judge_command(&run.rules.policy().commands, &command).refusal {
            return Err(refusal.into());
        }
        // Otherwise the approval would be used up without a run.
        self.queue.check_room(&run.run_id)?;
        let most = run.rules.policy().commands.timeout_seconds;
        let reasons = vec![format!("approval:{}:approved", approval.approval_id)];
        let mut draft = call.draft(Verdict::Allow, Outcome::Ok);
        draft.reasons.clone_from(&reasons);
        draft.reasons.extend(decider.reason());
        draft.input = Some(summarised(&command, "", asked_members(&command, &cwd, None)));
        let mut entry = call.entry(draft, None);
        entry.approval_decision = Some(decision_of(approval, Some(decider), ApprovalState::Approved));
        let records = self.engine.record_calls(calls, vec![entry]).await.map_err(Failure::into_error)?;
        let head = records.last().map(|record| ChainHead { seq: record.seq, hash: record.hash });
        let allowed = AllowedCommand {
            cwd,
            timeout_seconds: timeout_seconds.unwrap_or(most).min(most),
            shell,
            max_chars,
            reasons,
            command,
        };
        let call = of_first_caller(call.call.clone(), approval)?.opened(run, EvidenceFact::Missing);
        let (calls, open_run, first) = (self.clone(), Arc::clone(run), approval.tool_call_id.clone());
        self.engine.tasks.spawn(async move { calls.run_approved(call, &first, &open_run, allowed).await });
        Ok(head)
    }

    /// `first` is the ID of the call that has asked.
    async fn run_approved(&self, call: OpenedCall, first: &ToolCallId, run: &Arc<OpenRun>, allowed: AllowedCommand) {
        let command = quoted_excerpt(&allowed.command);
        let ran = self.run_command(&call, run, allowed, &CancellationToken::new()).await;
        let ran = match ran {
            Ok(ran) => ran,
            Err(error) => Err(self.engine.record_error(&call, &[], error).await),
        };
        let outcome = match &ran {
            Ok(answer) => {
                let ran: Value = serde_json::from_str(&answer.to_json()).unwrap_or_default();
                let exit = ran["exitCode"]
                    .as_i64()
                    .map_or_else(|| "ended without an exit code".to_owned(), |code| format!("exit {code}"));
                let output =
                    ran["outputOf"].as_str().map(|_| format!("; run_command with outputOf={first} shows its output"));
                format!("{exit}{}", output.unwrap_or_default())
            }
            Err(error) => match error.as_error() {
                CallError::Refused(refusal) => format!("not run: {}", refusal.message),
                _ => "not run: an internal error".to_owned(),
            },
        };
        run.decisions.tell_later(&call.caller.actor, format!("approved: {command} (run_command): {outcome}"));
    }
}

/// Returns the call of a command as its caller made it, under an ID of its own: the first one is that of the request for approval.
fn of_first_caller(call: Call, approval: &Approval) -> Result<Call, CallError> {
    let caller = Caller { actor: approval.actor.clone(), token: None, ..call.caller };
    Ok(Call {
        tool_call_id: with_suffix_of(&approval.approval_id)?,
        client_supplied_id: false,
        on_behalf_of: None,
        caller,
        reason: None,
        timestamp: now(),
        ..call
    })
}

/// Returns the ID of the call of the command that an approval allows.
fn with_suffix_of(approval: &ApprovalId) -> Result<ToolCallId, CallError> {
    let id = ToolCallId::parse(&format!("{approval}{APPROVED_SUFFIX}"));
    id.map_err(|error| CallError::Internal(Box::new(error)))
}

/// Returns the ID of the call of the command for which a stored call has asked a person, if it has.
pub(super) fn approved_call(asked: &StoredCall) -> Option<Result<ToolCallId, CallError>> {
    let reply = asked.reply.as_ref().filter(|reply| asked.tool == RUN_COMMAND && reply.status != DONE)?;
    let refusal: Refusal = serde_json::from_str(&reply.body).ok()?;
    refusal.details.approval_id.as_ref().map(with_suffix_of)
}

fn without_result() -> Refusal {
    let message = "a person has approved the command, and it has no result: it runs, or its runner was lost";
    Refusal::new(Code::Unavailable, message, "Repeat the call; if that does not help, make it under another ID.")
}

fn quoted_excerpt(command: &str) -> String {
    let line: String = model::excerpt(command, 100).chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("`{line}`")
}
