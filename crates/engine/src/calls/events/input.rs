//! The input of an event: parsed, checked and redacted.

use model::{
    EventKind, MAX_EVENT_DATA_BYTES, MAX_SUMMARY_CHARS, Refusal, Sha256, ToolCallId, canonical_json, json,
    redact_members,
};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::clock::parse_time;
use crate::tool::input::MAX_STEP_ID;

/// The longest duration of an event in microseconds: ten years.
const MAX_DURATION_MICROS: u64 = 315_360_000_000_000;

/// An event to record.
#[derive(Clone, Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({
    "eventId": "tests-1", "kind": "test", "summary": "cargo test: 1 of 12 failed",
    "data": {"exitCode": 101, "failed": ["parses_empty_input"]}, "durationMicros": 5_300_000
}))]
pub struct AppendEventRequest {
    /// The ID of the event, 1 to 128 characters, shared with the `toolCallId`s of the run. The same event under the same ID is
    /// recorded once. Default: made by the service.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 128)]
    event_id: Option<String>,
    /// The kind.
    kind: EventKind,
    /// What happened, in one sentence of 1 to 500 characters.
    #[schema(min_length = 1, max_length = 500)]
    summary: String,
    /// The step of the agent's plan, 1 to 128 characters.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 128)]
    step_id: Option<String>,
    /// Details, at most 64 KiB of JSON. It may name artifacts that were uploaded before, as
    /// `artifact://{run}/sha256/{digest}`.
    #[serde(default)]
    data: Option<Value>,
    /// When it started, RFC 3339.
    #[serde(default)]
    #[schema(example = "2026-01-01T00:00:00Z")]
    started_at: Option<String>,
    /// How long it took, in microseconds.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 315_360_000_000_000_i64)]
    duration_micros: Option<u64>,
}

/// A checked event, without credentials.
pub(super) struct Event {
    /// The caller's ID.
    pub(super) id: Option<ToolCallId>,
    pub(super) kind: EventKind,
    pub(super) step_id: Option<String>,
    pub(super) duration_micros: u64,
    /// `summary`, `data` and `startedAt`, as the record has them.
    pub(super) input: Map<String, Value>,
    /// Hash of the whole request but for the ID, as it was sent.
    pub(super) input_sha256: Sha256,
}

/// Returns the tool in the record of an event, if its kind is known.
pub(super) fn tool_of(members: &Map<String, Value>) -> Option<&'static str> {
    let kind = members.get("kind")?;
    serde_json::from_value::<EventKind>(kind.clone()).ok().map(EventKind::tool)
}

impl Event {
    /// Parses and checks an event.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`.
    pub(super) fn parse(mut members: Map<String, Value>) -> Result<Self, Refusal> {
        let request: AppendEventRequest = json::members_into(members.clone()).map_err(|error| {
            let message = format!("the event does not fit the call: {error}");
            Refusal::invalid(message, "Compare it with the call in /openapi.json.")
        })?;
        members.remove("eventId");
        let input_sha256 = Sha256::of(canonical_json(&members).as_bytes());
        let id = request.event_id.as_deref().map(check_id).transpose()?;
        let mut input = Map::new();
        input.insert("summary".to_owned(), Value::from(check_summary(&request.summary)?));
        if let Some(data) = request.data {
            check_data(&data)?;
            input.insert("data".to_owned(), data);
        }
        if let Some(started_at) = &request.started_at {
            let hint = "Give a time such as `2026-01-01T00:00:00Z`, or omit it.";
            let parsed = parse_time(started_at);
            let time = parsed.map_err(|_| Refusal::invalid("`startedAt` is not an RFC 3339 time", hint))?;
            input.insert("startedAt".to_owned(), Value::from(time));
        }
        let duration_micros = request.duration_micros.unwrap_or(0);
        if duration_micros > MAX_DURATION_MICROS {
            let message = format!("`durationMicros` is {duration_micros}; the limit is {MAX_DURATION_MICROS}");
            return Err(Refusal::invalid(message, "Give the duration in microseconds, or omit it."));
        }
        Ok(Self {
            id,
            kind: request.kind,
            step_id: request.step_id.as_deref().map(check_step).transpose()?,
            duration_micros,
            input: redact_members(input),
            input_sha256,
        })
    }
}

fn check_id(raw: &str) -> Result<ToolCallId, Refusal> {
    if model::is_reserved_id(raw) {
        let message =
            format!("`eventId` ends with one of {}, which the service gives", model::RESERVED_SUFFIXES.join(", "));
        return Err(Refusal::invalid(message, "Give another ID, or omit it."));
    }
    if let Some(what) = model::credential_in(raw.as_bytes()) {
        // It names the event in records and URLs, so that it cannot be redacted.
        let message = format!("`eventId` contains a credential: {what}");
        return Err(Refusal::invalid(message, "Give an ID that is no secret, or omit it."));
    }
    ToolCallId::parse_new(raw).map_err(|_| {
        let message = "`eventId` takes 1 to 128 characters, none of them a control character, and not `.` or `..`";
        Refusal::invalid(message, "Give another eventId, or omit it.")
    })
}

fn check_summary(summary: &str) -> Result<&str, Refusal> {
    let count = summary.chars().count();
    if summary.trim().is_empty() || count > MAX_SUMMARY_CHARS || summary.contains('\0') {
        let message = format!("`summary` takes 1 to {MAX_SUMMARY_CHARS} characters without NUL; this one has {count}");
        return Err(Refusal::invalid(message, "Say in one sentence what happened, and put details into `data`.")
            .with_details(|details| {
                (details.limit, details.actual) = (Some(MAX_SUMMARY_CHARS as u64), Some(count as u64));
            }));
    }
    Ok(summary)
}

fn check_step(step: &str) -> Result<String, Refusal> {
    let count = step.chars().count();
    if step.is_empty() || count > MAX_STEP_ID || step.contains('\0') {
        let message = format!("`stepId` takes 1 to {MAX_STEP_ID} characters without NUL; this one has {count}");
        return Err(Refusal::invalid(message, "Give a shorter stepId, or omit it."));
    }
    Ok(model::redact(step).into_owned())
}

fn check_data(data: &Value) -> Result<(), Refusal> {
    let bytes = data.to_string().len();
    if bytes > MAX_EVENT_DATA_BYTES {
        let message = format!("`data` has {bytes} bytes of JSON; the limit is {MAX_EVENT_DATA_BYTES}");
        let hint = "Upload the payload with PUT /v1/runs/{run}/artifacts/sha256/{digest}, and name it in `data`.";
        return Err(Refusal::invalid(message, hint).with_details(|details| {
            (details.limit, details.actual) = (Some(MAX_EVENT_DATA_BYTES as u64), Some(bytes as u64));
        }));
    }
    Ok(())
}
