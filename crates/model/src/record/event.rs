//! Events: what happens in a run outside of its tools, such as prompts, commands, tests and hand-overs.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{canonical_json, excerpt, redact};

/// The most events and uploaded artifacts of a run, together.
pub const MAX_RUN_EVENTS: u64 = 10_000;
/// The most bytes of a run's events and uploaded artifacts, together.
pub const MAX_RUN_EVENT_BYTES: u64 = 64 << 20;
/// The largest uploaded artifact, in bytes.
pub const MAX_UPLOAD_BYTES: u64 = 16 << 20;
/// The longest summary of an event, in characters.
pub const MAX_SUMMARY_CHARS: usize = 500;
/// The largest `data` of an event, in bytes of canonical JSON.
pub const MAX_EVENT_DATA_BYTES: usize = 64 * 1024;

/// The kind of an event. The record's `tool` is `event.` and this word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// What a model was asked.
    Prompt,
    /// What a model answered, or which model was used.
    Model,
    /// A command that was run.
    Command,
    /// A test that was run.
    Test,
    /// A message of a person or a program.
    Message,
    /// Work that was handed to another agent or a person.
    Handoff,
    /// A proof, such as a report of a check.
    Evidence,
    /// A reference to something elsewhere, such as a ticket.
    Link,
}

impl EventKind {
    /// Every kind.
    pub const ALL: [Self; 8] = [
        Self::Prompt,
        Self::Model,
        Self::Command,
        Self::Test,
        Self::Message,
        Self::Handoff,
        Self::Evidence,
        Self::Link,
    ];

    /// The `tool` of the event's record.
    pub fn tool(self) -> &'static str {
        match self {
            Self::Prompt => "event.prompt",
            Self::Model => "event.model",
            Self::Command => "event.command",
            Self::Test => "event.test",
            Self::Message => "event.message",
            Self::Handoff => "event.handoff",
            Self::Evidence => "event.evidence",
            Self::Link => "event.link",
        }
    }
}

/// Returns `members` with the credentials in every text redacted, at any depth, names of members included.
///
/// A member whose redacted name is that of another member gets a number, so that neither is lost.
#[must_use]
pub fn redact_members(members: Map<String, Value>) -> Map<String, Value> {
    let mut redacted = Map::new();
    for (name, value) in members {
        let plain = redact(&name).into_owned();
        let mut unique = plain.clone();
        let mut number = 2;
        while redacted.contains_key(&unique) {
            unique = format!("{plain} {number}");
            number += 1;
        }
        let value = match value {
            Value::String(text) if is_header(&name) => Value::String(redact_header(&text)),
            value => redact_value(value),
        };
        redacted.insert(unique, value);
    }
    redacted
}

/// The largest input of a read in its record, in bytes of canonical JSON.
pub const MAX_READ_INPUT_BYTES: usize = 2 * 1024;
/// The member that says that others were cut to fit.
const CUT: &str = "truncated";
/// The shortest text that is cut further rather than left out, in characters.
const MIN_CUT_CHARS: usize = 16;

/// Returns the input of a read for its record: `None` if it has no member. Credentials in it are redacted, and its largest members are
/// cut until it has at most [`MAX_READ_INPUT_BYTES`]; it then has `truncated: true`.
#[must_use]
pub fn recorded_input(members: Map<String, Value>) -> Option<Map<String, Value>> {
    // Redacted first: half a credential would not be recognized.
    let mut input = redact_members(members);
    while canonical_json(&input).len() > MAX_READ_INPUT_BYTES {
        input.insert(CUT.to_owned(), Value::Bool(true));
        let size = |(name, value): &(&String, &Value)| name.len() + value.to_string().len();
        let largest = input.iter().filter(|(name, _)| *name != CUT).max_by_key(size).map(|(name, _)| name.clone());
        let Some(name) = largest else { break };
        let cut = input.remove(&name).and_then(|value| halve(value).filter(|_| name.len() <= MAX_READ_INPUT_BYTES / 2));
        input.extend(cut.map(|value| (name, value)));
    }
    (!input.is_empty()).then_some(input)
}

/// Returns the first half of a text or a list; `None` if that is too short to say anything.
fn halve(value: Value) -> Option<Value> {
    match value {
        Value::String(text) => {
            let kept = text.chars().count() / 2;
            (kept >= MIN_CUT_CHARS).then(|| Value::from(excerpt(&text, kept)))
        }
        Value::Array(mut items) => {
            items.truncate(items.len() / 2);
            (!items.is_empty()).then_some(Value::Array(items))
        }
        Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) => None,
    }
}

/// Whether a member is named as the header of a request whose value is a credential.
fn is_header(name: &str) -> bool {
    ["authorization", "proxy-authorization"].iter().any(|header| name.eq_ignore_ascii_case(header))
}

/// Redacts the value of an `Authorization` header, which is recognized by the name in front of it.
fn redact_header(value: &str) -> String {
    const NAME: &str = "Authorization: ";
    let line = [NAME, value].concat();
    let redacted = redact(&line);
    redacted.strip_prefix(NAME).unwrap_or(&redacted).to_owned()
}

fn redact_value(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(redact(&text).into_owned()),
        Value::Array(items) => Value::Array(items.into_iter().map(redact_value).collect()),
        Value::Object(members) => Value::Object(redact_members(members)),
        scalar @ (Value::Null | Value::Bool(_) | Value::Number(_)) => scalar,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_the_last_word_of_its_tool() {
        for kind in EventKind::ALL {
            let word = serde_json::to_value(kind).unwrap();
            assert_eq!(kind.tool(), format!("event.{}", word.as_str().unwrap()));
        }
    }

    #[test]
    fn the_input_of_a_read_is_redacted_and_bounded() {
        let of = |value: Value| recorded_input(value.as_object().unwrap().clone());
        assert_eq!(of(serde_json::json!({})), None);
        let small = serde_json::json!({"query": "refund", "includeGlob": ["*.py"], "contextLines": 2});
        assert_eq!(of(small.clone()).map(Value::Object), Some(small));
        let secret = format!("ghp_{}", "a1".repeat(18));
        let input = of(serde_json::json!({"query": format!("{}{secret}", "x ".repeat(400)), "path": "src"})).unwrap();
        assert!(!input["query"].as_str().unwrap().contains("ghp_") && !input.contains_key("truncated"), "{input:?}");
        let nested = (0..100).fold(Value::Null, |inner, _| serde_json::json!({"deeper": [inner, "y".repeat(40)]}));
        let (long, paths) = ("é\u{0}\"".repeat(5000), vec!["src/long/name.rs"; 500]);
        for large in [
            serde_json::json!({"query": long, "path": "src"}),
            serde_json::json!({"paths": paths, "path": "src", "maxChars": 7}),
            serde_json::json!({"surprise": nested, "path": "src"}),
            serde_json::json!({long.clone(): 1, "path": "src"}),
            serde_json::json!({"paths": [long], "path": "src", "query": long}),
        ] {
            let cut = of(large).unwrap();
            assert!(canonical_json(&cut).len() <= MAX_READ_INPUT_BYTES, "{cut:?}");
            assert_eq!((&cut["truncated"], &cut["path"]), (&Value::Bool(true), &Value::from("src")), "{cut:?}");
        }
        let many = (0..2000).map(|number| (format!("m{number}"), Value::from(number))).collect();
        assert!(canonical_json(&recorded_input(many).unwrap()).len() <= MAX_READ_INPUT_BYTES);
    }

    #[test]
    fn credentials_are_redacted_at_every_depth_and_in_names() {
        let secret = |last: char| format!("ghp_{}{last}", "a1".repeat(17) + "b");
        let (one, two) = (secret('1'), secret('2'));
        let input = serde_json::json!({
            "log": [{"line": format!("export T={one}"), "exit": 1}, "plain"], one.clone(): 1, two.clone(): {"x": two},
            "headers": {"Authorization": "Basic dXNlcjpwYXNzd29yZA==", "accept": "*/*"},
        });
        let redacted = redact_members(input.as_object().unwrap().clone());
        let text = serde_json::to_string(&redacted).unwrap();
        assert!(!text.contains("ghp_") && text.contains("plain") && text.contains("\"exit\":1"), "{text}");
        assert!(!text.contains("dXNlcjpw") && text.contains("Basic [redacted: authorization]"), "{text}");
        assert_eq!(redacted.len(), 4, "{text}");
    }
}
