//! A call: caller, tool and common input; and its answer.

pub(crate) mod answer;
pub(crate) mod evidence;
pub(crate) mod history_quota;
pub(crate) mod record;

pub use answer::{Answer, TextAnswer};

use std::borrow::{Borrow, Cow};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use ledger::{Entry, Epoch, Preconditions, Reply};
use model::{
    By, Draft, Evidence, EvidenceFact, Outcome, Refusal, RunId, Sha256, ToolCallId, Verdict, canonical_json,
    recorded_input,
};
use serde_json::{Map, Value};
use tracing::Span;
use tracing::field::Empty;

use crate::call::record::RecordedError;
use crate::caller::{Caller, RequestIds};
use crate::clock::{new_tool_call_id, now};
use crate::metrics::SPANS;
use crate::tool::input::{MAX_REASON, MAX_STEP_ID};
use crate::tool::{Parse, ReadTool, Tool};
use crate::tools::argument_forms;

use crate::run::open_run::OpenRun;

/// The member of the stored input of a change that names the format of the call. No tool that changes files takes such a member.
const FORMAT: &str = "format";

/// A call that failed or waits for approval.
#[derive(Debug)]
pub struct Failed {
    /// The ID of the call.
    pub tool_call_id: ToolCallId,
    /// The error.
    pub error: RecordedError,
}

/// How a caller reads the answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    /// As JSON.
    #[default]
    Json,
    /// As text. Lists that are cut then have the number of all their entries, which takes longer.
    Text,
}

/// What is known of a call before its run is opened.
#[derive(Clone)]
pub struct Call {
    /// The run.
    pub run_id: RunId,
    /// The ownership epoch of the opened run: what the call finds there is true only under that one. `None` before opening, and on a
    /// single node.
    pub epoch: Option<Epoch>,
    /// The tool.
    pub tool: &'static Tool,
    /// The ID of the call.
    pub tool_call_id: ToolCallId,
    /// Whether the caller chose the ID.
    pub client_supplied_id: bool,
    /// The caller's ID of its step.
    pub step_id: Option<String>,
    /// The whole input except the ID, as canonical JSON. Empty for a read without an ID.
    pub input: String,
    /// Hash of the whole input except the ID. Zero for a read without an ID.
    pub input_sha256: Sha256,
    /// The input of a read as its record has it: without `toolCallId` and `stepId`, redacted and bounded.
    pub recorded_input: Option<Map<String, Value>>,
    /// The caller.
    pub caller: Caller,
    /// The reason; only mutations have one.
    pub reason: Option<String>,
    /// Whether the call only shows what it would change.
    pub dry_run: bool,
    /// The check that the caller attests; only mutations have one.
    pub evidence: Option<Evidence>,
    /// The actor whose call it is, if that is not the caller: a call that a person has approved is that of whoever made it, and what a
    /// command has changed is the change of the call that had it run, whichever runner brings it.
    pub on_behalf_of: Option<String>,
    /// The mount to read; only reads have one.
    pub mount: Option<String>,
    /// The event that is recorded before the call, if that takes effect: the command that a change set comes from.
    pub event: Option<Arc<Entry>>,
    /// How the caller reads the answer.
    pub view: View,
    /// The format in which a model made the call, if not in that of the catalogue.
    pub format: Option<String>,
    /// When the call came in, RFC 3339 UTC with microseconds.
    pub timestamp: String,
    /// When the call came in, for its duration.
    pub started: Instant,
}

impl Call {
    /// Splits an input into the common members, which become the call, and the tool's own members.
    pub fn of(
        run: &RunId,
        caller: Caller,
        tool: &'static Tool,
        members: Map<String, Value>,
    ) -> (Self, Result<Map<String, Value>, Refusal>) {
        let mut call = Self::new(run, caller, tool);
        let members = call.take_members(members);
        (call, members)
    }

    /// Creates a call without the common members of its input.
    pub fn new(run: &RunId, caller: Caller, tool: &'static Tool) -> Self {
        Self {
            run_id: run.clone(),
            epoch: None,
            tool,
            tool_call_id: new_tool_call_id(),
            client_supplied_id: false,
            step_id: None,
            input: String::new(),
            input_sha256: Sha256::ZERO,
            recorded_input: None,
            caller,
            reason: None,
            dry_run: false,
            evidence: None,
            on_behalf_of: None,
            mount: None,
            event: None,
            view: View::Json,
            format: None,
            timestamp: now(),
            started: Instant::now(),
        }
    }

    /// Makes the call's span of a trace. It is disabled unless spans are exported; the append of its record
    /// adds what was recorded.
    pub fn span(&self) -> Span {
        tracing::trace_span!(
            target: SPANS,
            "tool_call",
            tool.name = self.tool.name,
            run.id = self.run_id.as_str(),
            seq = Empty,
            decision = Empty,
            outcome = Empty,
        )
    }

    /// Returns the call under a new ID, so that the client's ID remains unused.
    #[must_use]
    pub fn under_new_id(self) -> Self {
        Self { tool_call_id: new_tool_call_id(), client_supplied_id: false, ..self }
    }

    /// Returns the call as one that a model made in `format`. The stored input has the format too, so that the record of an approved call
    /// names it; the input's hash does not depend on it.
    #[must_use]
    pub fn in_format(mut self, format: &str) -> Self {
        self.replace_input(FORMAT, Value::from(format));
        self.format = Some(format.to_owned());
        self
    }

    /// Adds what a read asks for outside of its input to what its record says of it.
    pub(crate) fn add_recorded_input(&mut self, name: &str, value: &str) {
        let mut input = self.recorded_input.take().unwrap_or_default();
        input.insert(name.to_owned(), Value::from(value));
        self.recorded_input = recorded_input(input);
    }

    /// Returns the format in a stored input.
    pub(crate) fn stored_format(input: &str) -> Option<String> {
        let Ok(Value::Object(mut members)) = serde_json::from_str(input) else { return None };
        match members.remove(FORMAT) {
            Some(Value::String(format)) => Some(format),
            Some(_) | None => None,
        }
    }

    /// Whether the caller has one of the tool's permissions.
    pub fn is_permitted(&self) -> bool {
        self.tool.is_permitted(&self.caller.permissions)
    }

    /// Parses the input of a reading tool, restricted to what the caller may be shown.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`, the refusals of the tool, and `FORBIDDEN` if every output would show content.
    pub fn parse_read(
        &self,
        parse: Parse<dyn ReadTool>,
        members: Map<String, Value>,
    ) -> Result<Box<dyn ReadTool>, Refusal> {
        let mut tool = parse(members)?;
        if !self.caller.may_read() {
            tool.restrict_to_metadata()?;
        }
        Ok(tool)
    }

    fn take_members(&mut self, mut members: Map<String, Value>) -> Result<Map<String, Value>, Refusal> {
        argument_forms::normalize(self.tool.name, &mut members);
        let id = text_member(&mut members, "toolCallId")?;
        if !self.tool.only_reads() || id.is_some() {
            self.input = canonical_json(&members);
            self.input_sha256 = Sha256::of(self.input.as_bytes());
        }
        if let Some(raw) = id {
            self.tool_call_id = check_id(&raw)?;
            self.client_supplied_id = true;
        }
        if self.tool.mutates() {
            self.take_evidence(&mut members)?;
        }
        let step_id = text_member(&mut members, "stepId")?;
        if self.tool.only_reads() {
            // Before a member is refused: the record of a refused read says what it asked for.
            self.recorded_input = recorded_input(members.clone());
        }
        if step_id.as_ref().is_some_and(|step| step.is_empty() || step.chars().count() > MAX_STEP_ID) {
            return Err(Refusal::invalid(
                format!("`stepId` is empty or longer than {MAX_STEP_ID} characters"),
                "Give a shorter stepId, or omit it.",
            ));
        }
        if step_id.as_ref().is_some_and(|step| step.contains('\0')) {
            return Err(Refusal::invalid("`stepId` contains a NUL character", "Remove the NUL character."));
        }
        self.step_id = step_id.map(|step_id| self.redact_input("stepId", step_id));
        if self.tool.mutates() {
            let reason = take_reason(&mut members)?;
            self.reason = Some(self.redact_input("reason", reason));
            self.dry_run = match members.remove("dryRun") {
                None => false,
                Some(Value::Bool(dry_run)) => dry_run,
                Some(_) => {
                    return Err(Refusal::invalid("`dryRun` is not a boolean", "Give true or false, or omit it."));
                }
            };
        } else if self.tool.only_reads() {
            self.mount = text_member(&mut members, "mount")?;
        } else if members.contains_key("reason") {
            let reason = take_reason(&mut members)?;
            self.reason = Some(self.redact_input("reason", reason));
        }
        Ok(members)
    }

    /// Returns `text`, the member `name`, without credentials, and removes them from the stored input too. The input's hash
    /// stays that of the request, so that a repetition is the same call.
    fn redact_input(&mut self, name: &str, text: String) -> String {
        let Cow::Owned(redacted) = model::redact(&text) else { return text };
        self.replace_input(name, Value::from(redacted.as_str()));
        redacted
    }

    /// Replaces a member of the stored input.
    fn replace_input(&mut self, name: &str, value: Value) {
        if let Ok(Value::Object(mut input)) = serde_json::from_str(&self.input) {
            input.insert(name.to_owned(), value);
            self.input = canonical_json(&input);
        }
    }

    /// Returns the tool's own members of a stored input.
    pub fn without_common(mut members: Map<String, Value>) -> Map<String, Value> {
        for name in ["stepId", "reason", "dryRun", "evidence", FORMAT] {
            members.remove(name);
        }
        members
    }

    /// Creates the record of the call, without its files and reasons.
    pub fn draft(&self, decision: Verdict, outcome: Outcome) -> Draft {
        let mut draft = Draft::new(
            self.run_id.clone(),
            self.caller.actor.clone(),
            self.tool.name,
            self.tool_call_id.clone(),
            self.timestamp.clone(),
        );
        draft.decision = decision;
        draft.duration_micros = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        draft.mutates = self.tool.mutates();
        draft.outcome = outcome;
        draft.evidence.clone_from(&self.evidence);
        draft.format.clone_from(&self.format);
        draft.input.clone_from(&self.recorded_input);
        draft.reason.clone_from(&self.reason);
        draft.step_id.clone_from(&self.step_id);
        RequestIds::write(self.caller.request.as_deref(), &mut draft);
        draft
    }

    /// Returns what must hold when the call is recorded. A refused call is always recorded.
    pub fn preconditions(&self, draft: &Draft) -> Preconditions {
        match draft.outcome {
            Outcome::Ok | Outcome::Pending => {
                Preconditions { open_run: draft.mutates, token: self.caller.token.clone() }
            }
            Outcome::Refused | Outcome::Failed => Preconditions::default(),
        }
    }

    /// Returns the actor whose call it is.
    pub fn asked_by(&self) -> &str {
        self.on_behalf_of.as_deref().unwrap_or(&self.caller.actor)
    }

    /// Returns whose call counts.
    pub fn made_by(&self) -> By {
        By::of_actor(self.asked_by())
    }

    /// Creates the ledger entry of a call that changes nothing.
    pub fn entry(&self, draft: Draft, reply: Option<Reply>) -> Entry {
        let mut entry = Entry::new(draft, self.input_sha256);
        entry.epoch = self.epoch;
        entry.by = self.made_by();
        entry.preconditions = self.preconditions(&entry.draft);
        entry.client_supplied_id = self.client_supplied_id;
        entry.only_reads = self.tool.only_reads();
        entry.reply = reply;
        entry
    }
}

/// The outcomes of a transaction's calls.
#[derive(Debug)]
pub struct Outcomes {
    /// The answer of each call, in order.
    pub answers: Vec<Result<Answer, RecordedError>>,
    /// The index of the call that failed, if it was a single one.
    pub failed: Option<usize>,
}

/// A call whose run is open.
#[derive(Clone)]
pub(crate) struct OpenedCall {
    /// The call.
    pub(crate) call: Call,
    /// What the evidence of the call says.
    pub(crate) evidence_fact: EvidenceFact,
}

impl Call {
    /// Returns the call, which has opened `run`. `evidence_fact` is what its evidence says.
    pub(crate) fn opened(self, run: &OpenRun, evidence_fact: EvidenceFact) -> OpenedCall {
        OpenedCall { call: Self { epoch: run.epoch, ..self }, evidence_fact }
    }
}

impl OpenedCall {
    /// As [`Call::under_new_id`].
    #[must_use]
    pub(crate) fn under_new_id(self) -> Self {
        Self { call: self.call.under_new_id(), ..self }
    }
}

impl Deref for OpenedCall {
    type Target = Call;

    fn deref(&self) -> &Call {
        &self.call
    }
}

impl Borrow<Call> for OpenedCall {
    fn borrow(&self) -> &Call {
        &self.call
    }
}

fn check_id(raw: &str) -> Result<ToolCallId, Refusal> {
    if let Some(what) = model::credential_in(raw.as_bytes()) {
        // The ID identifies the call in records and URLs, so it cannot be redacted.
        let message = format!("`toolCallId` contains a credential: {what}");
        return Err(Refusal::invalid(message, "Give an ID without credentials, or omit it."));
    }
    if model::is_reserved_id(raw) {
        let message =
            format!("`toolCallId` ends with one of {}, which the service gives", model::RESERVED_SUFFIXES.join(", "));
        return Err(Refusal::invalid(message, "Give another ID, or omit it."));
    }
    ToolCallId::parse_new(raw)
        .map_err(|error| Refusal::invalid(error.to_string(), "Give a valid toolCallId, or omit it."))
}

fn text_member(members: &mut Map<String, Value>, name: &str) -> Result<Option<String>, Refusal> {
    match members.remove(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(Refusal::invalid(format!("`{name}` is not a string"), "Give a string, or omit it.")),
    }
}

fn take_reason(members: &mut Map<String, Value>) -> Result<String, Refusal> {
    let hint = "Describe in `reason`, in 1 to 2,000 characters, why you make this change.";
    match text_member(members, "reason")? {
        None => Err(Refusal::invalid("`reason` is missing", hint)),
        Some(reason) if reason.trim().is_empty() || reason.chars().count() > MAX_REASON => {
            Err(Refusal::invalid("`reason` is empty or longer than 2,000 characters", hint))
        }
        Some(reason) if reason.contains('\0') => {
            Err(Refusal::invalid("`reason` contains a NUL character", "Remove the NUL character."))
        }
        Some(reason) => Ok(reason),
    }
}
