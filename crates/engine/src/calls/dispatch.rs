//! Dispatches calls: admission, then a read or a transaction.

pub(crate) mod file_transfers;
pub(crate) mod formatted;
pub(crate) mod policy_query;

use async_recursion::async_recursion as boxed;
use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use model::{Code, EvidenceFact, Refusal, RunId};
use serde_json::{Map, Value};
use tracing::Instrument as _;

use crate::approvals::waiting_calls::BATCH;
use crate::call::Outcomes;
use crate::call::TextAnswer;
use crate::call::answer::disclosed;
use crate::call::record::{Failure, RecordedError};
use crate::call::{Answer, Call, Failed, OpenedCall, View};
use crate::call_error::refusals::forbidden;
use crate::caller::Caller;
use crate::calls::Calls;
use crate::metrics::SPANS;
use crate::run::open_run::OpenRun;
use crate::tool::expected_version::SEEN;
use crate::tool::{Tool, ToolRun};
use crate::tools::TOOLS;
use crate::transaction::{Operation, Parsed};
use crate::{CallError, json};

/// A call with the tool's own members of its input, or the refusal of the input.
pub type CallWithInput = (Call, Result<Map<String, Value>, Refusal>);

impl Calls {
    /// Executes and records one call of `tool` on `run`. The body is dropped as soon as it is parsed.
    ///
    /// # Errors
    ///
    /// The refusal, recorded.
    #[boxed]
    pub async fn call_tool(
        &self,
        run: &RunId,
        caller: Caller,
        tool: &'static Tool,
        body: Bytes,
    ) -> Result<Answer, Failed> {
        failpoint::hit("call.handler");
        let members = json::parse_object(&body);
        drop(body);
        self.call_in_view(View::Json, call_of(run, caller, tool, members, View::Json)).await
    }

    /// Executes and records one call of `tool` on `run` with the `members` of its input, and renders its answer for a model.
    ///
    /// # Errors
    ///
    /// The refusal, recorded; [`refusal_text`](crate::tool::text::refusal_text) renders it.
    #[boxed]
    pub async fn call_members_as_text(
        &self,
        run: &RunId,
        caller: Caller,
        tool: &'static Tool,
        members: Result<Map<String, Value>, Refusal>,
    ) -> Result<TextAnswer, Failed> {
        let call = call_of(run, caller, tool, members, View::Text);
        Ok(self.call_in_view(View::Text, call).await?.into_text())
    }

    /// Checks that a caller may use `tool`, before the input of the call is received. The ID of a refused call is generated,
    /// because that of the caller is in the input. The record has the `format` in which the
    /// call was made, if that is not the catalogue's.
    ///
    /// # Errors
    ///
    /// `FORBIDDEN`, recorded.
    #[boxed]
    pub async fn check_permitted(
        &self,
        run: &RunId,
        caller: &Caller,
        tool: &'static Tool,
        format: Option<&str>,
    ) -> Result<(), Failed> {
        if tool.is_permitted(&caller.permissions) {
            return Ok(());
        }
        let call = Call::new(run, caller.clone(), tool);
        let call = format.into_iter().fold(call, Call::in_format);
        let refused = self.engine.record_error(&call, &[], forbidden(tool.permissions).into());
        let error = refused.instrument(call.span()).await;
        Err(Failed { tool_call_id: call.tool_call_id, error })
    }

    /// Checks that a caller may use any tool, before the calls of a batch are received.
    ///
    /// # Errors
    ///
    /// `FORBIDDEN`, recorded as a call of `batch`.
    #[boxed]
    pub async fn check_permitted_batch(&self, run: &RunId, caller: &Caller) -> Result<(), RecordedError> {
        if TOOLS.iter().any(|tool| tool.is_permitted(&caller.permissions)) {
            return Ok(());
        }
        let needed: BTreeSet<_> = TOOLS.iter().flat_map(|tool| tool.permissions).copied().collect();
        let refusal = forbidden(&needed.into_iter().collect::<Vec<_>>());
        Err(self.record_refusal(run, caller, BATCH, refusal).await)
    }

    async fn call_in_view(&self, view: View, (call, members): CallWithInput) -> Result<Answer, Failed> {
        let tool_call_id = call.tool_call_id.clone();
        self.call(Call { view, ..call }, members).await.map_err(|error| Failed { tool_call_id, error })
    }

    /// Executes and records one call.
    ///
    /// # Errors
    ///
    /// The refusal, recorded.
    #[boxed]
    pub async fn call(
        &self,
        call: Call,
        members: Result<Map<String, Value>, Refusal>,
    ) -> Result<Answer, RecordedError> {
        let (may_read, span) = (call.caller.may_read(), call.span());
        let answer = async {
            match call.tool.run {
                ToolRun::Read(_) => self.call_read(call, members).await,
                ToolRun::Mutation(_) => self.call_mutation(call, members).await,
                // Boxed, so that the future of any other call is smaller.
                ToolRun::Command => Box::pin(self.call_command(call, members)).await,
            }
        };
        disclosed(may_read, answer.instrument(span).await)
    }

    async fn call_read(
        &self,
        call: Call,
        members: Result<Map<String, Value>, Refusal>,
    ) -> Result<Answer, RecordedError> {
        let (run, members) = self.admit(&call, members).await?;
        let listener = run.decisions.listener(&call.caller.actor);
        let call = call.opened(&run, EvidenceFact::Missing);
        let read = self.engine.read_call(call, &run, members).await;
        let mut answer = read.map(|(output, id)| Answer { head: output.head, ..Answer::of_read(id, output) });
        tell(&run, listener.as_deref(), &mut answer);
        answer
    }

    async fn call_mutation(
        &self,
        call: Call,
        members: Result<Map<String, Value>, Refusal>,
    ) -> Result<Answer, RecordedError> {
        let (run, members) = self.admit(&call, members).await?;
        let (call, operation) = match self.opened(&call, &run, members).await {
            Ok((fact, operation)) => (call.opened(&run, fact), operation),
            Err(error) => return Err(self.engine.record_error(&call, &[], error).await),
        };
        let listener = run.decisions.listener(&call.caller.actor);
        let mut answer = self.execute_one(call, Arc::clone(&run), operation).await;
        tell(&run, listener.as_deref(), &mut answer);
        answer
    }

    /// Returns what the evidence of a mutation says, and its operation, or the refusal of its input.
    async fn opened(
        &self,
        call: &Call,
        run: &Arc<OpenRun>,
        members: Map<String, Value>,
    ) -> Result<(EvidenceFact, Result<Operation, Refusal>), CallError> {
        let fact = self.engine.evidence_fact(call).await?;
        match self.engine.follow_names(call, run, members).await {
            Ok(members) => Ok((fact, Operation::parse(call, members))),
            Err(CallError::Refused(refusal)) => Ok((fact, Err(refusal))),
            Err(error) => Err(error),
        }
    }

    /// Executes one mutation as a transaction, which is completed even if the client disconnects.
    ///
    /// # Errors
    ///
    /// The refusal, recorded.
    pub(crate) async fn execute_one(
        &self,
        call: OpenedCall,
        run: Arc<OpenRun>,
        operation: Result<Operation, Refusal>,
    ) -> Result<Answer, RecordedError> {
        let mut outcomes = self.execute_all(run, Parsed::new(vec![(call, operation)])).await?;
        let none = || Err(RecordedError::left_out(CallError::Internal("a call has no answer".into())));
        outcomes.answers.pop().unwrap_or_else(none)
    }

    /// Executes a transaction, which is completed even if the client disconnects.
    async fn execute_all(&self, run: Arc<OpenRun>, transaction: Parsed) -> Result<Outcomes, RecordedError> {
        let engine = Arc::clone(&self.engine);
        let work = async move { Ok(engine.execute(&run, transaction).await) };
        // Nothing is known of a transaction that panics.
        self.engine.detached(work).await.unwrap_or_else(|error| Err(RecordedError::left_out(error)))
    }

    /// Executes `calls` of one run as an atomic batch: all of them, or none. Each has its record.
    ///
    /// # Errors
    ///
    /// If nothing could be recorded.
    #[boxed]
    pub async fn call_batch(&self, calls: Vec<CallWithInput>) -> Result<Outcomes, RecordedError> {
        let readers: Vec<_> = calls.iter().map(|(call, _)| call.caller.may_read()).collect();
        let span = tracing::trace_span!(target: SPANS, "batch", calls = calls.len());
        let Outcomes { answers, failed } = self.execute_batch(calls).instrument(span).await?;
        let answers = readers.into_iter().zip(answers).map(|(may_read, answer)| disclosed(may_read, answer));
        Ok(Outcomes { answers: answers.collect(), failed })
    }

    async fn execute_batch(&self, calls: Vec<CallWithInput>) -> Result<Outcomes, RecordedError> {
        let (calls, inputs): (Vec<_>, Vec<_>) = calls.into_iter().unzip();
        let Some(first) = calls.first() else { return Ok(Outcomes { answers: Vec::new(), failed: None }) };
        if let Some(index) = calls.iter().position(|call| !call.is_permitted()) {
            let error = forbidden(calls[index].tool.permissions).into();
            return self.fail(&calls, Failure::Call(index, error)).await;
        }
        let run = match self.engine.open(&first.run_id).await {
            Ok(run) => run,
            Err(error) if is_recorded_when_opening(&error) => return self.fail(&calls, Failure::All(error)).await,
            Err(error) => return Err(RecordedError::left_out(error)),
        };
        if let Some(index) = inputs.iter().position(Result::is_err) {
            let refusal = inputs.into_iter().nth(index).and_then(Result::err);
            let error = refusal.map_or_else(|| CallError::Internal("an input is missing".into()), CallError::from);
            return self.fail(&calls, Failure::Call(index, error)).await;
        }
        let mut opened = Vec::with_capacity(calls.len());
        for (index, members) in inputs.into_iter().flatten().enumerate() {
            match self.opened_in_batch(&calls[index], &run, members).await {
                Ok(call) => opened.push(call),
                Err(error) => return self.fail(&calls, Failure::Call(index, error)).await,
            }
        }
        let listener = run.decisions.listener(&first.caller.actor);
        let opened = calls.into_iter().zip(opened);
        let calls = opened.map(|(call, (fact, operation))| (call.opened(&run, fact), operation)).collect();
        let mut outcomes = self.execute_all(Arc::clone(&run), Parsed::new(calls)).await?;
        if let Some(first) = outcomes.answers.first_mut() {
            tell(&run, listener.as_deref(), first);
        }
        Ok(outcomes)
    }

    /// As [`opened`](Self::opened). A name that cannot be followed is refused before the batch begins.
    async fn opened_in_batch(
        &self,
        call: &Call,
        run: &Arc<OpenRun>,
        members: Map<String, Value>,
    ) -> Result<(EvidenceFact, Result<Operation, Refusal>), CallError> {
        let members = self.engine.follow_names(call, run, members).await?;
        Ok((self.engine.evidence_fact(call).await?, Operation::parse(call, members)))
    }

    async fn fail(&self, calls: &[Call], failure: Failure) -> Result<Outcomes, RecordedError> {
        self.engine.record_failure(calls, &[], failure).await
    }

    /// Checks what every call needs: a permission, a run with files, a valid input.
    ///
    /// # Errors
    ///
    /// The refusal, recorded if the run exists.
    pub(crate) async fn admit(
        &self,
        call: &Call,
        members: Result<Map<String, Value>, Refusal>,
    ) -> Result<(Arc<OpenRun>, Map<String, Value>), RecordedError> {
        if !call.is_permitted() {
            let refusal = forbidden(call.tool.permissions);
            return Err(self.engine.record_error(call, &[], refusal.into()).await);
        }
        let run = match self.engine.open(&call.run_id).await {
            Ok(run) => run,
            Err(error) if is_recorded_when_opening(&error) => {
                return Err(self.engine.record_error(call, &[], error).await);
            }
            Err(error) => return Err(RecordedError::left_out(error)),
        };
        match members {
            Ok(members) => Ok((run, members)),
            Err(refusal) => {
                let mut error = self.engine.record_error(call, &[], refusal.into()).await;
                let listener = run.decisions.listener(&call.caller.actor);
                run.decisions.tell_refused(listener.as_deref(), error.as_error_mut());
                Err(error)
            }
        }
    }
}

/// Adds the decisions that `listener` was not told yet to the answer to it.
pub(crate) fn tell(run: &OpenRun, listener: Option<&str>, answer: &mut Result<Answer, RecordedError>) {
    let answer = answer.as_mut().map(|answer| &mut answer.notices).map_err(RecordedError::as_error_mut);
    run.decisions.tell(listener, answer);
}

/// Makes a call of its input. In the model's view, a change expects the version that the caller has seen, unless the input names another
/// one.
fn call_of(
    run: &RunId,
    caller: Caller,
    tool: &'static Tool,
    members: Result<Map<String, Value>, Refusal>,
    view: View,
) -> CallWithInput {
    let (call, mut members) = match members {
        Ok(members) => Call::of(run, caller, tool, members),
        Err(refusal) => (Call::new(run, caller, tool), Err(refusal)),
    };
    if view == View::Text {
        // Not before the input is hashed: the same input is the same call in each view.
        expect_seen(&call, &mut members);
    }
    (call, members)
}

/// Makes a change expect the version that the caller has seen, unless its input names another one.
fn expect_seen(call: &Call, members: &mut Result<Map<String, Value>, Refusal>) {
    if let (true, Ok(members)) = (call.tool.expects_version(), members) {
        let version = members.entry("expectedSha256").or_insert(Value::Null);
        if version.is_null() {
            *version = SEEN.into();
        }
    }
}

/// Whether the refusal of a run that could not be opened is recorded: the run exists and has an audit.
fn is_recorded_when_opening(error: &CallError) -> bool {
    error.is(Code::RunClosed) || error.is(Code::RunNeedsRepair)
}
