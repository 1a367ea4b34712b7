//! Dispatches calls: admission, then a read or a transaction.

pub(crate) mod file_transfers;
pub(crate) mod policy_query;

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use model::{Code, Refusal, RunId};
use serde_json::{Map, Value};
use tracing::Instrument as _;

use crate::approvals::waiting_calls::BATCH;
use crate::call::disclosure::Disclosure;
use crate::call::record::{Failure, RecordedFailure};
use crate::call::{Answer, CallContext, Failed, View, splice};
use crate::call_error::refusals::forbidden;
use crate::caller::Caller;
use crate::calls::Calls;
use crate::metrics::SPANS;
use crate::run::open_run::OpenRun;
use crate::tool::Tool;
use crate::tool::expected_version::SEEN;
use crate::tool::text::TextAnswer;
use crate::tools::TOOLS;
use crate::transaction::{Operation, Outcomes, Parsed};
use crate::{CallError, json};

/// A call with the tool's own members of its input, or the refusal of the input.
pub type CallWithInput = (CallContext, Result<Map<String, Value>, Refusal>);

impl Calls {
    /// Executes and records one call of `tool` on `run`. The body is dropped as soon as it is parsed.
    ///
    /// # Errors
    ///
    /// The refusal, recorded.
    pub async fn call_tool(
        &self,
        run: &RunId,
        caller: Caller,
        tool: &'static Tool,
        body: Bytes,
    ) -> Result<Answer, Failed> {
        failpoint::hit("call.handler");
        self.call_in_view(View::Json, parse_call(run, caller, tool, body, View::Json)).await
    }

    /// Executes and records one call of `tool` on `run`, and renders its answer for a model.
    ///
    /// # Errors
    ///
    /// The refusal, recorded; [`refusal_text`](crate::tool::text::refusal_text) renders it.
    pub async fn call_tool_as_text(
        &self,
        run: &RunId,
        caller: Caller,
        tool: &'static Tool,
        body: Bytes,
    ) -> Result<TextAnswer, Failed> {
        let (call, members) = parse_call(run, caller, tool, body, View::Text);
        let tool_call_id = call.tool_call_id.clone();
        let answer = self.call_in_view(View::Text, (call, members)).await?;
        let seq = answer.head.map(|head| head.seq);
        TextAnswer::of(tool.text, answer.body, seq)
            .map_err(|error| Failed { tool_call_id, error: CallError::Internal(Box::new(error)) })
    }

    /// Checks that a caller may use `tool`, before the input of the call is received. The ID of a refused call is generated,
    /// because that of the caller is in the input.
    ///
    /// # Errors
    ///
    /// `FORBIDDEN`, recorded.
    pub async fn check_permitted(&self, run: &RunId, caller: &Caller, tool: &'static Tool) -> Result<(), Failed> {
        if tool.is_permitted(&caller.permissions) {
            return Ok(());
        }
        let call = CallContext::new(run, caller.clone(), tool);
        let refused = self.engine.record_error(&call, &[], forbidden(tool.permissions).into());
        let error = refused.instrument(call.span()).await;
        Err(Failed { tool_call_id: call.tool_call_id, error })
    }

    /// Checks that a caller may use any tool, before the calls of a batch are received.
    ///
    /// # Errors
    ///
    /// `FORBIDDEN`, recorded as a call of `batch`.
    pub async fn check_permitted_batch(&self, run: &RunId, caller: &Caller) -> Result<(), CallError> {
        if TOOLS.iter().any(|tool| tool.is_permitted(&caller.permissions)) {
            return Ok(());
        }
        let needed: BTreeSet<_> = TOOLS.iter().flat_map(|tool| tool.permissions).copied().collect();
        let refusal = forbidden(&needed.into_iter().collect::<Vec<_>>());
        Err(self.record_refusal(run, caller, BATCH, refusal).await)
    }

    async fn call_in_view(&self, view: View, (call, members): CallWithInput) -> Result<Answer, Failed> {
        let tool_call_id = call.tool_call_id.clone();
        self.call(CallContext { view, ..call }, members).await.map_err(|error| Failed { tool_call_id, error })
    }

    /// Executes and records one call.
    ///
    /// # Errors
    ///
    /// The refusal, recorded.
    pub async fn call(
        &self,
        call: CallContext,
        members: Result<Map<String, Value>, Refusal>,
    ) -> Result<Answer, CallError> {
        let (disclosure, span) = (Disclosure::of(&call), call.span());
        let answer = async {
            if call.tool.mutates() {
                self.call_mutation(call, members).await
            } else {
                self.call_read(call, members).await
            }
        };
        disclosure.apply(answer.instrument(span).await)
    }

    async fn call_read(
        &self,
        call: CallContext,
        members: Result<Map<String, Value>, Refusal>,
    ) -> Result<Answer, CallError> {
        let (run, members) = self.admit(&call, members).await?;
        let listener = run.decisions.listener(&call.caller.actor);
        let read = self.engine.read_call(call, &run, members).await;
        let mut answer = read.map(|(output, id)| Answer { body: splice(&id, &output.output), head: output.head });
        run.decisions.tell(listener.as_deref(), answer.as_mut().map(|answer| &mut answer.body));
        answer
    }

    async fn call_mutation(
        &self,
        call: CallContext,
        members: Result<Map<String, Value>, Refusal>,
    ) -> Result<Answer, CallError> {
        let (run, members) = self.admit(&call, members).await?;
        let mut call = call;
        if let Err(error) = self.engine.load_evidence(&mut call).await {
            return Err(self.engine.record_error(&call, &[], error).await);
        }
        let operation = match self.engine.follow_names(&call, &run, members).await {
            Ok(members) => Operation::parse(&call, members),
            Err(CallError::Refused(refusal)) => Err(refusal),
            Err(error) => return Err(self.engine.record_error(&call, &[], error).await),
        };
        let listener = run.decisions.listener(&call.caller.actor);
        let mut answer = self.execute_one(call, Arc::clone(&run), operation).await;
        run.decisions.tell(listener.as_deref(), answer.as_mut().map(|answer| &mut answer.body));
        answer
    }

    /// Executes one mutation as a transaction, which is completed even if the client disconnects.
    ///
    /// # Errors
    ///
    /// The refusal, recorded.
    pub(crate) async fn execute_one(
        &self,
        call: CallContext,
        run: Arc<OpenRun>,
        operation: Result<Operation, Refusal>,
    ) -> Result<Answer, CallError> {
        let engine = Arc::clone(&self.engine);
        let transaction = Parsed::new(&run, vec![(call, operation)]);
        let mut outcomes = self.engine.detached(async move { engine.execute(&run, transaction).await }).await?;
        outcomes.answers.pop().unwrap_or_else(|| Err(CallError::Internal("a call has no answer".into())))
    }

    /// Executes `calls` of one run as an atomic batch: all of them, or none. Each has its record.
    ///
    /// # Errors
    ///
    /// If nothing could be recorded.
    pub async fn call_batch(&self, calls: Vec<CallWithInput>) -> Result<Outcomes, CallError> {
        let disclosures: Vec<_> = calls.iter().map(|(call, _)| Disclosure::of(call)).collect();
        let span = tracing::trace_span!(target: SPANS, "batch", calls = calls.len());
        let Outcomes { answers, failed } = self.execute_batch(calls).instrument(span).await?;
        let answers = disclosures.iter().zip(answers).map(|(disclosure, answer)| disclosure.apply(answer));
        Ok(Outcomes { answers: answers.collect(), failed })
    }

    async fn execute_batch(&self, calls: Vec<CallWithInput>) -> Result<Outcomes, CallError> {
        let (mut calls, inputs): (Vec<_>, Vec<_>) = calls.into_iter().unzip();
        let Some(first) = calls.first() else { return Ok(Outcomes { answers: Vec::new(), failed: None }) };
        if let Some(index) = calls.iter().position(|call| !call.is_permitted()) {
            let error = forbidden(calls[index].tool.permissions).into();
            return self.fail(&calls, Failure::Call(index, error)).await;
        }
        let run = match self.engine.open(&first.run_id).await {
            Ok(run) => run,
            Err(error) if is_recorded_when_opening(&error) => return self.fail(&calls, Failure::All(error)).await,
            Err(error) => return Err(error),
        };
        if let Some(index) = inputs.iter().position(Result::is_err) {
            let refusal = inputs.into_iter().nth(index).and_then(Result::err);
            let error = refusal.map_or_else(|| CallError::Internal("an input is missing".into()), CallError::from);
            return self.fail(&calls, Failure::Call(index, error)).await;
        }
        let mut inputs = inputs;
        for index in 0..calls.len() {
            if let Some(Ok(members)) = inputs.get_mut(index) {
                match self.engine.follow_names(&calls[index], &run, std::mem::take(members)).await {
                    Ok(followed) => *members = followed,
                    Err(error) => return self.fail(&calls, Failure::Call(index, error)).await,
                }
            }
            if let Err(error) = self.engine.load_evidence(&mut calls[index]).await {
                return self.fail(&calls, Failure::Call(index, error)).await;
            }
        }
        let parse = |(call, members): (CallContext, Result<Map<String, Value>, Refusal>)| {
            let operation = members.and_then(|members| Operation::parse(&call, members));
            (call, operation)
        };
        let listener = calls.first().and_then(|call| run.decisions.listener(&call.caller.actor));
        let transaction = Parsed::new(&run, calls.into_iter().zip(inputs).map(parse).collect());
        let (engine, executed) = (Arc::clone(&self.engine), Arc::clone(&run));
        let mut outcomes = self.engine.detached(async move { engine.execute(&executed, transaction).await }).await?;
        if let Some(first) = outcomes.answers.first_mut() {
            run.decisions.tell(listener.as_deref(), first.as_mut().map(|answer| &mut answer.body));
        }
        Ok(outcomes)
    }

    async fn fail(&self, calls: &[CallContext], failure: Failure) -> Result<Outcomes, CallError> {
        Ok(self.engine.record_failure(calls, &[], failure).await?.into())
    }

    /// Checks what every call needs: a permission, a run with files, a valid input.
    ///
    /// # Errors
    ///
    /// The refusal, recorded if the run exists.
    pub async fn admit(
        &self,
        call: &CallContext,
        members: Result<Map<String, Value>, Refusal>,
    ) -> Result<(Arc<OpenRun>, Map<String, Value>), CallError> {
        if !call.is_permitted() {
            let refusal = forbidden(call.tool.permissions);
            return Err(self.engine.record_error(call, &[], refusal.into()).await);
        }
        let run = match self.engine.open(&call.run_id).await {
            Ok(run) => run,
            Err(error) if is_recorded_when_opening(&error) => {
                return Err(self.engine.record_error(call, &[], error).await);
            }
            Err(error) => return Err(error),
        };
        match members {
            Ok(members) => Ok((run, members)),
            Err(refusal) => {
                let mut error = self.engine.record_error(call, &[], refusal.into()).await;
                run.decisions.tell_refused(run.decisions.listener(&call.caller.actor).as_deref(), &mut error);
                Err(error)
            }
        }
    }
}

/// Parses the input of a call. The body is dropped as soon as it is parsed. In the model's view, a change expects the version
/// that the caller has seen, unless the input names another one.
fn parse_call(run: &RunId, caller: Caller, tool: &'static Tool, body: Bytes, view: View) -> CallWithInput {
    let parsed = json::parse_object(&body);
    drop(body);
    let (call, mut members) = match parsed {
        Ok(members) => CallContext::of(run, caller, tool, members),
        Err(refusal) => (CallContext::new(run, caller, tool), Err(refusal)),
    };
    // Not before the input is hashed: the same input is the same call in each view.
    if let (View::Text, true, Ok(members)) = (view, tool.expects_version(), &mut members) {
        let version = members.entry("expectedSha256").or_insert(Value::Null);
        if version.is_null() {
            *version = SEEN.into();
        }
    }
    (call, members)
}

/// Whether the refusal of a run that could not be opened is recorded: the run exists and has an audit.
fn is_recorded_when_opening(error: &CallError) -> bool {
    error.is(Code::RunClosed) || error.is(Code::RunNeedsRepair)
}

impl From<RecordedFailure> for Outcomes {
    fn from(recorded: RecordedFailure) -> Self {
        Self { answers: recorded.errors.into_iter().map(Err).collect(), failed: recorded.failed }
    }
}
