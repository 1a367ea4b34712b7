//! One call: who calls what with which input, and the answer.

pub mod disclosure;
pub mod record;

use std::borrow::Cow;
use std::time::Instant;

use ledger::{Entry, Preconditions, Reply};
use model::{DiskChange, Draft, Outcome, Refusal, RunId, Sha256, ToolCallId, Usage, Verdict, canonical_json};
use serde_json::{Map, Value};

use crate::CallError;
use crate::clock::{new_tool_call_id, now};
use crate::engine::Caller;
use crate::tool::{Parse, ReadTool, Tool};

/// The longest reason of a mutation, in characters.
pub const MAX_REASON: usize = 2000;
/// The longest step that a caller names, in characters.
pub const MAX_STEP_ID: usize = 128;

/// The answer to a successful call.
#[derive(Debug)]
pub struct Answer {
    /// JSON text of the whole body.
    pub body: String,
    /// The record of the call, which the answers of mutations name.
    pub head: Option<ChainHead>,
}

/// A record and its hash: the head of its run's chain when it was written. A caller that keeps it is a witness of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainHead {
    /// The record's number.
    pub seq: u64,
    /// Its hash.
    pub hash: Option<Sha256>,
}

/// A call that failed or waits for approval.
#[derive(Debug)]
pub struct Failed {
    /// The ID of the call.
    pub tool_call_id: ToolCallId,
    /// Why.
    pub error: CallError,
}

/// What is known of a call before its tool parses the input.
#[derive(Clone)]
pub struct CallContext {
    /// The run.
    pub run_id: RunId,
    /// The tool.
    pub tool: &'static Tool,
    /// The ID of the call.
    pub tool_call_id: ToolCallId,
    /// Whether the caller chose the ID.
    pub client_supplied_id: bool,
    /// The caller's step.
    pub step_id: Option<String>,
    /// The whole input but for the ID, as canonical JSON; only mutations keep it.
    pub input: String,
    /// Hash of the whole input but for the ID.
    pub input_sha256: Sha256,
    /// Who calls.
    pub caller: Caller,
    /// Why; only mutations have one.
    pub reason: Option<String>,
    /// Whether the call only shows what it would change.
    pub dry_run: bool,
    /// The mount to read; only reads have one.
    pub mount: Option<String>,
    /// When the call came in, RFC 3339 UTC with microseconds.
    pub timestamp: String,
    /// When the call came in, for its duration.
    pub started: Instant,
}

impl CallContext {
    /// Splits an input into the members that every tool has and the tool's own members.
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

    /// The context of a call whose input could not be parsed.
    pub fn new(run: &RunId, caller: Caller, tool: &'static Tool) -> Self {
        Self {
            run_id: run.clone(),
            tool,
            tool_call_id: new_tool_call_id(),
            client_supplied_id: false,
            step_id: None,
            input: String::new(),
            input_sha256: Sha256::ZERO,
            caller,
            reason: None,
            dry_run: false,
            mount: None,
            timestamp: now(),
            started: Instant::now(),
        }
    }

    /// The same call with a new ID, so that the caller's own stays free.
    #[must_use]
    pub fn under_new_id(self) -> Self {
        Self { tool_call_id: new_tool_call_id(), client_supplied_id: false, ..self }
    }

    /// Whether the caller has one of the tool's permissions.
    pub fn is_permitted(&self) -> bool {
        self.tool.permissions.iter().any(|permission| self.caller.permissions.contains(permission))
    }

    /// Parses the input of a reading tool, restricted to what the caller may be shown.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`, the refusals of the tool, and `FORBIDDEN` where every output would show content.
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
        let id = text_member(&mut members, "toolCallId")?;
        if self.tool.mutates() || id.is_some() {
            self.input = canonical_json(&members);
            self.input_sha256 = Sha256::of(self.input.as_bytes());
        }
        if let Some(raw) = id {
            self.tool_call_id = check_id(&raw)?;
            self.client_supplied_id = true;
        }
        let step_id = text_member(&mut members, "stepId")?;
        if step_id.as_ref().is_some_and(|step| step.is_empty() || step.chars().count() > MAX_STEP_ID) {
            return Err(Refusal::invalid(
                format!("`stepId` takes 1 to {MAX_STEP_ID} characters"),
                "Give a shorter stepId, or leave it out.",
            ));
        }
        if step_id.as_ref().is_some_and(|step| step.contains('\0')) {
            return Err(Refusal::invalid("`stepId` holds a NUL", "Leave the NUL out."));
        }
        self.step_id = step_id.map(|step_id| self.redact_input("stepId", step_id));
        if self.tool.mutates() {
            let reason = take_reason(&mut members)?;
            self.reason = Some(self.redact_input("reason", reason));
            self.dry_run = match members.remove("dryRun") {
                None => false,
                Some(Value::Bool(dry_run)) => dry_run,
                Some(_) => {
                    return Err(Refusal::invalid("`dryRun` is true or false", "Give a boolean, or leave it out."));
                }
            };
        } else {
            self.mount = text_member(&mut members, "mount")?;
        }
        Ok(members)
    }

    /// Returns `text`, the member `name`, without credentials, and removes them from the stored input too. The input's hash
    /// stays that of the request, so that a repetition is the same call.
    fn redact_input(&mut self, name: &str, text: String) -> String {
        let Cow::Owned(redacted) = model::redact(&text) else { return text };
        if let Ok(Value::Object(mut input)) = serde_json::from_str(&self.input) {
            input.insert(name.to_owned(), Value::from(redacted.as_str()));
            self.input = canonical_json(&input);
        }
        redacted
    }

    /// The tool's own members of a stored input.
    pub fn without_common(mut members: Map<String, Value>) -> Map<String, Value> {
        for name in ["stepId", "reason", "dryRun"] {
            members.remove(name);
        }
        members
    }

    /// The record of the call, as far as it is known.
    pub fn draft(&self, decision: Verdict, outcome: Outcome) -> Draft {
        Draft {
            actor: self.caller.actor.clone(),
            artifact_uris: Vec::new(),
            code: None,
            decision,
            diff_sha256: None,
            duration_micros: u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX),
            files: Vec::new(),
            mutates: self.tool.mutates(),
            outcome,
            paths_read: Vec::new(),
            paths_written: Vec::new(),
            reason: self.reason.clone(),
            reasons: Vec::new(),
            run_id: self.run_id.clone(),
            step_id: self.step_id.clone(),
            timestamp: self.timestamp.clone(),
            tool: self.tool.name.to_owned(),
            tool_call_id: self.tool_call_id.clone(),
        }
    }

    /// What must hold when the call is recorded. A refused call is recorded in any case.
    pub fn preconditions(&self, draft: &Draft) -> Preconditions {
        match draft.outcome {
            Outcome::Ok | Outcome::Pending => {
                Preconditions { open_run: draft.mutates, token: self.caller.token.clone() }
            }
            Outcome::Refused | Outcome::Failed => Preconditions::default(),
        }
    }

    /// The ledger's entry of a call that changes nothing.
    pub fn entry(&self, draft: Draft, reply: Option<Reply>) -> Entry {
        Entry {
            preconditions: self.preconditions(&draft),
            draft,
            input_sha256: self.input_sha256,
            client_supplied_id: self.client_supplied_id,
            reply,
            steps: Vec::new(),
            artifact: None,
            approval: None,
            approval_decision: None,
            usage: Usage::default(),
            disk: DiskChange::default(),
        }
    }
}

fn check_id(raw: &str) -> Result<ToolCallId, Refusal> {
    if let Some(what) = model::credential_in(raw.as_bytes()) {
        // It names the call in records and URLs, so that it cannot be redacted.
        let message = format!("`toolCallId` holds a credential: {what}");
        return Err(Refusal::invalid(message, "Give an ID that is no secret, or leave it out."));
    }
    ToolCallId::parse(raw)
        .map_err(|error| Refusal::invalid(error.to_string(), "Give a shorter toolCallId, or leave it out."))
}

fn text_member(members: &mut Map<String, Value>, name: &str) -> Result<Option<String>, Refusal> {
    match members.remove(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(Refusal::invalid(format!("`{name}` is a string"), "Give a string, or leave it out.")),
    }
}

fn take_reason(members: &mut Map<String, Value>) -> Result<String, Refusal> {
    let hint = "Say in `reason`, in 1 to 2,000 characters, why you make this change.";
    match text_member(members, "reason")? {
        None => Err(Refusal::invalid("`reason` is missing", hint)),
        Some(reason) if reason.trim().is_empty() || reason.chars().count() > MAX_REASON => {
            Err(Refusal::invalid("`reason` takes 1 to 2,000 characters", hint))
        }
        Some(reason) if reason.contains('\0') => Err(Refusal::invalid("`reason` holds a NUL", "Leave the NUL out.")),
        Some(reason) => Ok(reason),
    }
}

/// Puts the members of every answer in front of the tool's own.
pub fn splice(tool_call_id: &ToolCallId, output: &str) -> String {
    let id = Value::from(tool_call_id.as_str());
    let rest = output.strip_prefix('{').unwrap_or("}");
    let comma = if rest.starts_with('}') { "" } else { "," };
    ["{\"ok\":true,\"toolCallId\":", &id.to_string(), comma, rest].concat()
}
