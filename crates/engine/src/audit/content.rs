//! Content of files in records: the data of events and commands, which is shown only to callers with `file:read`.

use serde_json::{Map, Value};

use crate::CallError;
use crate::tools::run_command::RUN_COMMAND;

/// What replaces the data of an event.
const WITHHELD: &str = "[withheld: requires file:read]";

/// Whether records of this tool are events, or commands, whose text may have the content of a file.
pub(super) fn is_event(tool: &str) -> bool {
    tool.starts_with("event.") || tool == RUN_COMMAND
}

/// Replaces the data in the input of an event. Returns whether it has any.
pub(super) fn withhold_data(input: &mut Map<String, Value>) -> bool {
    let Some(data) = input.get_mut("data") else { return false };
    *data = Value::from(WITHHELD);
    true
}

/// Whether a record is that of an event with data.
pub fn has_event_data(record: &Value) -> bool {
    let is_event = record.get("tool").and_then(Value::as_str).is_some_and(is_event);
    is_event && record.get("input").is_some_and(|input| input.get("data").is_some())
}

/// Returns the JSON text of a record without the data of an event.
///
/// # Errors
///
/// If it is not the text of a record.
pub fn without_event_data(text: String) -> Result<String, CallError> {
    // Quotes in strings are escaped, so that most records need not be parsed.
    if !text.contains(r#""tool":"event."#) && !text.contains(r#""tool":"run_command""#) {
        return Ok(text);
    }
    let mut record: Value = serde_json::from_str(&text).map_err(|error| CallError::Internal(Box::new(error)))?;
    if has_event_data(&record)
        && let Some(input) = record.get_mut("input").and_then(Value::as_object_mut)
    {
        withhold_data(input);
        return Ok(record.to_string());
    }
    Ok(text)
}
