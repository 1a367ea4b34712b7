//! Stored answers, which repetitions of calls under the caller's own ID get, and the content that callers without `file:read` do not see.
//!
//! Answers are stored and repeated whole. [`Tool::content`] and [`model::ProblemDetails`] declare which members are content. These are
//! removed by the permissions of the present caller.

use model::{Permission, Refusal, Sha256};
use serde_json::{Map, Value};

use crate::CallError;
use crate::call::record::RecordedError;
use crate::call::{Answer, Call, Recordable, splice};
use crate::call_error::refusals::forbidden;
use crate::caller::Caller;
use crate::engine::Engine;
use crate::run::chain_head::ChainHead;
use crate::tool::Tool;

/// The `status` of a stored reply that holds the members of an answer. Any other holds a refusal.
pub(crate) const DONE: u16 = 200;

/// The result of a lookup of a call's ID.
pub(crate) enum StoredAnswer {
    /// No answer: the call is new.
    None,
    /// Another call.
    OtherCall,
    /// The answer to the same call. A refusal without `seq` is that of the present caller, and is not recorded.
    Found(Result<Answer, Refusal>),
}

impl Engine {
    /// Looks up the answer to an earlier call under the same ID.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    pub(crate) async fn stored_answer(&self, call: &Call) -> Result<StoredAnswer, CallError> {
        if !call.client_supplied_id {
            return Ok(StoredAnswer::None);
        }
        let Some(stored) = self.ledger.call(&call.run_id, &call.tool_call_id).await? else {
            return Ok(StoredAnswer::None);
        };
        if stored.tool != call.tool.name || stored.input_sha256 != call.input_sha256 {
            return Ok(StoredAnswer::OtherCall);
        }
        // A call that failed with an internal error has no reply and is executed again.
        let Some(reply) = stored.reply else { return Ok(StoredAnswer::None) };
        let internal = |error: serde_json::Error| CallError::Internal(Box::new(error));
        if reply.status == DONE {
            let members: Map<String, Value> = serde_json::from_str(&reply.body).map_err(internal)?;
            if let Some(needed) = missing_permission(call, &members) {
                return Ok(StoredAnswer::Found(Err(forbidden(&[needed]))));
            }
            let answer = mutation_answer(call, &reply.body, stored.seq, Some(stored.hash));
            return Ok(StoredAnswer::Found(Ok(answer)));
        }
        let mut refusal: Refusal = serde_json::from_str(&reply.body).map_err(internal)?;
        if let Some(id) = &refusal.details.approval_id {
            let approval = self.ledger.approval(id).await?;
            refusal.details.resolution = approval.and_then(|approval| approval.resolution);
        }
        if let Some(resolution) = &refusal.details.resolution {
            refusal.hint = format!("The approval is decided: {resolution}.");
        }
        Ok(StoredAnswer::Found(Err(refusal.recorded(stored.seq, Some(stored.hash)))))
    }

    /// Returns the stored refusals of `calls`, which are repetitions that were refused before the stored answers were looked up; `None`
    /// if a call has no stored refusal.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    pub(crate) async fn stored_refusals<C: Recordable>(&self, calls: &[C]) -> Result<Option<Vec<Refusal>>, CallError> {
        let mut refusals = Vec::with_capacity(calls.len());
        for call in calls {
            match self.stored_answer(call.call()).await? {
                StoredAnswer::Found(Err(refusal)) if refusal.details.seq.is_some() => refusals.push(refusal),
                StoredAnswer::None | StoredAnswer::OtherCall | StoredAnswer::Found(_) => return Ok(None),
            }
        }
        Ok(Some(refusals))
    }
}

/// Returns the permission that the effect of the first call required, if the present caller lacks it.
fn missing_permission(call: &Call, members: &Map<String, Value>) -> Option<Permission> {
    let created = members.get("created").and_then(Value::as_bool)?;
    let needed = if created { Permission::FileWriteCreate } else { Permission::FileWriteReplace };
    (call.tool.permissions.contains(&needed) && !call.caller.permissions.contains(&needed)).then_some(needed)
}

/// Returns the answer with the given `members` as JSON text, and the call's record.
pub(crate) fn mutation_answer(call: &Call, members: &str, seq: u64, hash: Option<Sha256>) -> Answer {
    let mut output = format!("{{\"seq\":{seq}");
    if let Some(hash) = hash {
        output.extend([",\"headHash\":\"", &hash.to_string(), "\""]);
    }
    let rest = members.strip_prefix('{').unwrap_or("}");
    output.extend([if rest.starts_with('}') { "" } else { "," }, rest]);
    Answer { body: splice(&call.tool_call_id, &output), head: Some(ChainHead { seq, hash }) }
}

impl Caller {
    /// Whether the caller may see file content.
    pub fn may_read(&self) -> bool {
        self.permissions.contains(&Permission::FileRead)
    }
}

/// What the caller of a tool may see of its answer.
#[derive(Clone, Copy)]
pub(crate) struct Disclosure {
    tool: &'static Tool,
    may_read: bool,
}

impl Disclosure {
    /// Returns the disclosure for the caller of `call`.
    pub(crate) fn of(call: &Call) -> Self {
        Self { tool: call.tool, may_read: call.caller.may_read() }
    }

    /// Returns the answer without content that its caller may not see.
    ///
    /// # Errors
    ///
    /// The error of the answer, also without such content.
    pub(crate) fn apply(self, answer: Result<Answer, RecordedError>) -> Result<Answer, RecordedError> {
        if self.may_read {
            return answer;
        }
        match answer {
            Ok(answer) if self.tool.content.is_empty() => Ok(answer),
            Ok(Answer { body, head }) => {
                let body = serde_json::from_str(&body).map_err(|error| CallError::Internal(Box::new(error)));
                // The call is recorded as answered.
                let mut body: Value = body.map_err(RecordedError::left_out)?;
                let is_emptied = empty(&mut body, self.tool.content);
                if is_emptied | remove_derived(&mut body) {
                    body["contentWithheld"] = Value::Bool(true);
                }
                Ok(Answer { body: body.to_string(), head })
            }
            Err(error) => Err(error.without_content()),
        }
    }
}

/// Empties every member with one of these names, at any depth. Returns whether one was not empty.
fn empty(value: &mut Value, names: &[&str]) -> bool {
    let mut emptied = false;
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                emptied |= if names.contains(&name.as_str()) { clear(member) } else { empty(member, names) };
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| emptied |= empty(item, names)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    emptied
}

/// What is computed of the output of a command, and would confirm a guess of it.
const DERIVED: [&str; 6] =
    ["outputSha256", "outputLines", "outputStartLine", "outputStartCut", "cutLine", "nextColumn"];

/// Removes what is computed of content that is withheld. Returns whether there was any.
fn remove_derived(body: &mut Value) -> bool {
    let Value::Object(members) = body else { return false };
    DERIVED.iter().filter(|name| members.remove(**name).is_some()).count() > 0
}

/// Replaces the value by an empty one of its type. Returns whether it was not empty.
fn clear(value: &mut Value) -> bool {
    match value {
        Value::String(text) => !std::mem::take(text).is_empty(),
        Value::Array(items) => !std::mem::take(items).is_empty(),
        Value::Object(members) => !std::mem::take(members).is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) => !std::mem::take(value).is_null(),
    }
}
