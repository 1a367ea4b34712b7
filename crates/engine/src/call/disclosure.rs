//! Withholds file content from callers without `file:read`, in answers, refusals and their repetitions.
//!
//! Answers are stored and repeated whole. [`Tool::content`] and [`model::ProblemDetails`] declare which members are content.
//! These are removed here, by the permissions of the present caller.

use model::Permission;
use serde_json::Value;

use crate::CallError;
use crate::call::record::RecordedError;
use crate::call::{Answer, Call};
use crate::caller::Caller;
use crate::tool::Tool;

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
                if empty(&mut body, self.tool.content) {
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

/// Replaces the value by an empty one of its type. Returns whether it was not empty.
fn clear(value: &mut Value) -> bool {
    match value {
        Value::String(text) => !std::mem::take(text).is_empty(),
        Value::Array(items) => !std::mem::take(items).is_empty(),
        Value::Object(members) => !std::mem::take(members).is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) => !std::mem::take(value).is_null(),
    }
}
