//! Content of files in records: the data of events and commands, and the hashes of outputs, which are shown only to callers with `file:read`.

use model::Record;
use serde_json::{Map, Value};

use super::report::RunReport;
use crate::CallError;
use crate::call::record::UPLOAD;
use crate::tools::run_command::RUN_COMMAND;

/// What replaces the data of an event.
const WITHHELD: &str = "[withheld: requires file:read]";

/// Whether records of this tool are events, or commands, whose text may have the content of a file.
pub(super) fn is_event(tool: &str) -> bool {
    tool.starts_with("event.") || tool == RUN_COMMAND
}

/// Whether records of this tool name an output by its hash, which would confirm a guess of it.
fn names_output(tool: &str) -> bool {
    is_event(tool) || tool == UPLOAD
}

/// Replaces the data in the input of an event, and the hash in that of an upload. Returns whether it has any.
fn withhold_input(input: &mut Map<String, Value>) -> bool {
    let mut is_withheld = false;
    for name in ["data", "sha256", "sizeBytes"] {
        if let Some(member) = input.get_mut(name) {
            *member = Value::from(WITHHELD);
            is_withheld = true;
        }
    }
    is_withheld
}

/// Takes what a record says of an output out of it. Returns whether there was something.
pub(super) fn withhold(record: &mut Record) -> bool {
    if !names_output(&record.tool) {
        return false;
    }
    let has_uris = !std::mem::take(&mut record.artifact_uris).is_empty();
    record.input.as_mut().is_some_and(withhold_input) | has_uris
}

impl RunReport {
    /// Takes out what tells of the outputs of commands: their hashes, which would confirm a guess.
    pub fn withhold_outputs(&mut self) {
        self.commands.iter_mut().for_each(|command| command.output_sha256 = None);
    }
}

/// Whether a record is that of an event with data.
pub fn has_event_data(record: &Value) -> bool {
    let is_event = record.get("tool").and_then(Value::as_str).is_some_and(is_event);
    is_event && record.get("input").is_some_and(|input| input.get("data").is_some())
}

/// Returns the JSON text of a record without the data of an event and the hash of an output.
///
/// # Errors
///
/// If it is not the text of a record.
pub fn without_event_data(text: String) -> Result<String, CallError> {
    // Quotes in strings are escaped, so that most records need not be parsed.
    let tools = [r#""tool":"event."#, r#""tool":"run_command""#, r#""tool":"artifact.upload""#];
    if !tools.iter().any(|tool| text.contains(tool)) {
        return Ok(text);
    }
    let mut record: Value = serde_json::from_str(&text).map_err(|error| CallError::Internal(Box::new(error)))?;
    let Some(members) = record.as_object_mut() else { return Ok(text) };
    if !members.get("tool").and_then(Value::as_str).is_some_and(names_output) {
        return Ok(text);
    }
    let uris = members.get_mut("artifactUris").and_then(Value::as_array_mut).map(std::mem::take);
    let input = members.get_mut("input").and_then(Value::as_object_mut);
    if input.is_some_and(withhold_input) | uris.is_some_and(|uris| !uris.is_empty()) {
        return Ok(record.to_string());
    }
    Ok(text)
}
