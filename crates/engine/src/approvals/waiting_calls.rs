//! The calls that wait for an approval, as they are stored with it.

use std::time::Instant;

use model::{Approval, Permission, Sha256, ToolCallId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::approvals::decide::DecidingPerson;
use crate::call::{Call, View};
use crate::caller::Caller;
use crate::clock::now;
use crate::engine::Engine;
use crate::{CallError, tools};

/// The tool in the approval of a batch, and in the record of one that is refused before its calls are known.
pub(crate) const BATCH: &str = "batch";

/// The stored input of a batch that waits for approval: its changes, in order.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WaitingBatch {
    /// The calls.
    pub calls: Vec<WaitingCall>,
}

/// A stored call of a batch.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WaitingCall {
    /// The tool.
    pub tool: String,
    /// The ID of the call.
    pub tool_call_id: ToolCallId,
    /// Why the change is made.
    pub reason: String,
    /// The input, without credentials.
    pub input: String,
}

impl Engine {
    /// Loads the calls that wait for the approval, with the operator who decides as their actor.
    pub(crate) async fn stored_calls(
        &self,
        approval: &Approval,
        decider: Option<&DecidingPerson>,
    ) -> Result<Vec<Call>, CallError> {
        let input = self.ledger.approval_input(&approval.approval_id).await?.unwrap_or_default();
        let stored = if approval.tool == BATCH {
            let batch: WaitingBatch =
                serde_json::from_str(&input).map_err(|error| CallError::Internal(Box::new(error)))?;
            batch.calls
        } else {
            let (tool, tool_call_id) = (approval.tool.clone(), approval.tool_call_id.clone());
            vec![WaitingCall { tool, tool_call_id, reason: approval.reason.clone(), input }]
        };
        let mut calls = Vec::with_capacity(stored.len());
        for call in stored {
            // Credentials were removed from the stored input, so the hash of the whole input is taken from the record.
            let first = self.ledger.call(&approval.run_id, &call.tool_call_id).await?;
            let input_sha256 = first.map_or_else(|| Sha256::of(call.input.as_bytes()), |first| first.input_sha256);
            calls.push(context_of(approval, call, input_sha256, decider)?);
        }
        Ok(calls)
    }
}

fn context_of(
    approval: &Approval,
    call: WaitingCall,
    input_sha256: Sha256,
    decider: Option<&DecidingPerson>,
) -> Result<Call, CallError> {
    let tool =
        tools::find_recorded(&call.tool).ok_or_else(|| CallError::Internal("a stored call has no tool".into()))?;
    Ok(Call {
        run_id: approval.run_id.clone(),
        epoch: None,
        tool,
        tool_call_id: call.tool_call_id,
        // The record of the call itself has this ID.
        client_supplied_id: false,
        step_id: None,
        input_sha256,
        recorded_input: None,
        evidence: Call::stored_evidence(&call.input),
        format: Call::stored_format(&call.input),
        on_behalf_of: Some(approval.actor.clone()),
        input: call.input,
        caller: Caller {
            actor: decider.map_or_else(|| "service".to_owned(), |decider| decider.operator.actor()),
            permissions: Permission::ALL.into_iter().collect(),
            token: decider.and_then(|decider| decider.operator.required_token()),
            request: decider.and_then(|decider| decider.request.clone()),
        },
        reason: Some(call.reason),
        dry_run: false,
        mount: None,
        event: None,
        view: View::Json,
        timestamp: now(),
        started: Instant::now(),
    })
}

/// Returns the members of a call's stored input that are the tool's own.
pub(crate) fn stored_members(call: &Call) -> Result<Map<String, Value>, CallError> {
    match serde_json::from_str(&call.input) {
        Ok(Value::Object(members)) => Ok(Call::without_common(members)),
        Ok(_) | Err(_) => Err(CallError::Internal("a stored input is not an object".into())),
    }
}
