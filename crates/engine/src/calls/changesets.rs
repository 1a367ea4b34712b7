//! Change sets: what a command has changed outside of the service. A set is one call, and the command the event before it, in one
//! commit.

mod merge;

use async_recursion::async_recursion as boxed;
use std::sync::Arc;

use ledger::{Appended, Entry};
use model::{Code, EvidenceFact, LogicalPath, Permission, Refusal, RunId, Sha256, ToolCallId, json};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tracing::Instrument as _;
use workspace::{LayerReader, measure_layer};

use crate::CallError;
use crate::call::answer::disclosed;
use crate::call::evidence::{EVENT_SUFFIX, fact_of};
use crate::call::record::RecordedError;
use crate::call::{Answer, Call, Failed};
use crate::caller::Caller;
use crate::calls::Calls;
use crate::calls::dispatch::tell;
use crate::calls::events::entry_of_members;
use crate::engine::NotRecorded;
use crate::tool::input::parse;
use crate::tool::layer::{Layer, MAX_HELD_BYTES, layer_limits};
use crate::tools::apply_changeset::{APPLY_CHANGESET, ApplyChangeset, OnDenied, is_taken};
use crate::tools::write_file::merge::OnConflict;
use crate::transaction::Operation;

pub use merge::MergeRequest;

/// The longest ID of a change set.
const MAX_ID: usize = 120;
/// The most paths of a rejected change set that its runner is told.
const MAX_REJECTED: usize = 10_000;
/// The maximum length of the summary of a command, in characters.
const MAX_SUMMARY: usize = 500;

/// A change set, without its layer.
#[derive(Clone, Debug, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({
    "basedOnSeq": 41, "reason": "cargo fmt",
    "command": {"argv": ["cargo", "fmt"], "cwd": ".", "exitCode": 0, "durationMicros": 412_345}
}))]
pub struct ApplyChangesetRequest {
    /// The ID of the change set, 1 to 120 characters, shared with the `toolCallId`s of the run. The same set under the same ID is
    /// applied once. Default: made by the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 120, example = "cs_fmt-1")]
    pub(super) changeset_id: Option<String>,
    /// The record at whose state the command found the tree: the `Workspaced-Seq` of the archive or layer that it had.
    pub(super) based_on_seq: u64,
    /// Why the change is made.
    #[schema(min_length = 1, max_length = 2000)]
    pub(super) reason: String,
    /// The step of the agent's plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(min_length = 1, max_length = 128)]
    pub(super) step_id: Option<String>,
    /// The command that has made the change. It is recorded as an event of kind `command` before the change set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) command: Option<CommandReport>,
    /// What happens to a file that has changed in the run since `basedOnSeq`: the set is refused, or the change is merged.
    #[serde(default)]
    pub(super) on_conflict: OnConflict,
    /// What happens if a file of the set is denied: the set is refused, or the file is left as it is and listed in the answer.
    #[serde(default)]
    pub(super) on_denied: OnDenied,
    /// Whether the answer only says what would change.
    #[serde(default)]
    pub(super) dry_run: bool,
}

/// A command that was run outside of the service.
#[derive(Clone, Debug, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct CommandReport {
    /// The program and its arguments.
    argv: Vec<String>,
    /// The folder in which it ran, relative to the tree's root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cwd: Option<String>,
    /// Its exit code; omitted if it had none, because a signal or a time limit ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exit_code: Option<i64>,
    /// When it began, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    started_at: Option<String>,
    /// How long it took, in microseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    duration_micros: Option<u64>,
    /// SHA-256 of its output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    output_sha256: Option<Sha256>,
    /// Why its output is not kept, such as the code of the refusal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    output_refused: Option<String>,
    /// What it ran in, such as `{"kind": "docker", "image": "sha256:…"}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Object)]
    environment: Option<Map<String, Value>>,
    /// The paths whose content was not that of the run when it began, without which it is no evidence: at most 24 KiB of them. A folder, with a
    /// slash at its end, stands for new files in it. What a run never takes, such as build output, is left out of the record.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    differs: Vec<String>,
    /// How many there are, if not all are named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    differs_count: Option<u64>,
}

impl CommandReport {
    /// Returns the entry of the event that records the command of the change set that `call` applies.
    fn entry(&self, call: &Call) -> Result<Entry, Refusal> {
        let id = ToolCallId::parse(&format!("{}{EVENT_SUFFIX}", call.tool_call_id))
            .map_err(|error| Refusal::invalid(error.to_string(), "Give a shorter ID, or omit it."))?;
        entry_of_members(&call.run_id, &call.caller, id, self.event()?)
    }

    /// Returns the members of the event that records the command.
    fn event(&self) -> Result<Map<String, Value>, Refusal> {
        if self.argv.is_empty() {
            let hint = "Give the program and its arguments in `command.argv`.";
            return Err(Refusal::invalid("`command.argv` is empty", hint));
        }
        let line = model::redact(&model::shown_command(&self.argv)).replace(['\n', '\0'], " ");
        let ended = match self.exit_code {
            Some(code) => format!(": exit {code}"),
            None => ": no exit code".to_owned(),
        };
        // One for the mark of what is left out.
        let most = MAX_SUMMARY.saturating_sub(ended.len() + 1);
        let mut data = match serde_json::to_value(self) {
            Ok(Value::Object(data)) => data,
            // A struct serialises to an object.
            Ok(_) | Err(_) => Map::new(),
        };
        let mut event = Map::new();
        for name in ["startedAt", "durationMicros"] {
            event.extend(data.remove(name).map(|value| (name.to_owned(), value)));
        }
        event.insert("kind".to_owned(), Value::from("command"));
        event.insert("summary".to_owned(), Value::from(format!("{}{ended}", model::excerpt(&line, most))));
        event.insert("data".to_owned(), Value::Object(data));
        Ok(event)
    }
}

/// Returns the ID of a change set that names one, of the JSON that describes it.
pub fn changeset_id(changeset: &[u8]) -> Option<ToolCallId> {
    let members = json::parse_object(changeset).ok()?;
    ToolCallId::parse(members.get("changesetId")?.as_str()?).ok()
}

/// A change set and the call that applies it, before its layer is read.
pub(super) struct ParsedChangeset {
    pub(super) call: Call,
    members: Result<Map<String, Value>, Refusal>,
    /// Whether `members` is a refusal of the layer.
    is_layer_refused: bool,
    /// The event of the command that has made the change.
    event: Option<Entry>,
    evidence_fact: EvidenceFact,
}

/// A layer that is received and may be unpacked.
type ReceivedLayer = Result<Layer, Refusal>;

impl ParsedChangeset {
    fn new(call: Call, members: Result<Map<String, Value>, Refusal>) -> Self {
        Self { call, members, is_layer_refused: false, event: None, evidence_fact: EvidenceFact::Missing }
    }

    /// Returns the change set of a request, without the event of its command.
    pub(super) fn of(run: &RunId, caller: Caller, request: &ApplyChangesetRequest, layer: &ReceivedLayer) -> Self {
        let mut members = Map::new();
        let optional = [("toolCallId", &request.changeset_id), ("stepId", &request.step_id)];
        members.extend(
            optional.into_iter().filter_map(|(name, text)| Some((name.to_owned(), Value::from(text.clone()?)))),
        );
        members.insert("reason".to_owned(), Value::from(request.reason.as_str()));
        members.insert("dryRun".to_owned(), Value::from(request.dry_run));
        members.insert("basedOnSeq".to_owned(), Value::from(request.based_on_seq));
        members.insert("onConflict".to_owned(), json!(request.on_conflict));
        members.insert("onDenied".to_owned(), json!(request.on_denied));
        members.extend(layer.iter().map(|layer| ("layerSha256".to_owned(), json!(layer.sha256()))));
        if let Some(command) = &request.command {
            // By its hash, which makes the same request the same call: the input is stored if the set waits, and a command may have a
            // credential among its arguments.
            let text = json!(command).to_string();
            members.insert("commandSha256".to_owned(), Value::from(Sha256::of(text.as_bytes()).to_string()));
        }
        let (mut call, members) = Call::of(run, caller, &APPLY_CHANGESET, members);
        if !call.client_supplied_id {
            let id = call.tool_call_id.as_str();
            if let Ok(id) = ToolCallId::parse(&format!("cs_{}", id.strip_prefix("tc_").unwrap_or(id))) {
                call.tool_call_id = id;
            }
        }
        Self::new(call, members)
    }

    /// Sets the command that has made the change: `event` is recorded with it, and is its evidence. `is_other` is whether the command found
    /// other files than those of the run.
    pub(super) fn set_command(&mut self, event: Entry, exit_code: Option<i64>, is_other: bool) {
        self.evidence_fact = match fact_of(exit_code) {
            _ if !self.call.caller.permissions.contains(&Permission::EvidenceAttest) => EvidenceFact::Unattested,
            EvidenceFact::Successful if is_other => EvidenceFact::Stale,
            fact => fact,
        };
        self.call.set_evidence(event.draft.tool_call_id.clone());
        self.event = Some(event);
    }
}

impl Calls {
    /// Applies a change set: `changeset` is JSON, an [`ApplyChangesetRequest`], `layer` a tar in the form of a layer of an OCI image, or why
    /// it could not be received. Runs to completion even if the client disconnects.
    ///
    /// # Errors
    ///
    /// The refusal, recorded. Nothing has changed then, and the command is recorded by itself.
    #[boxed]
    pub async fn apply_changeset(
        &self,
        run: &RunId,
        caller: Caller,
        changeset: &[u8],
        layer: Result<Layer, Refusal>,
    ) -> Result<Answer, Failed> {
        let request: ApplyChangesetRequest = match request_of(changeset, "change set").and_then(checked_id) {
            Ok(request) => request,
            Err(refusal) => {
                let call = Call::new(run, caller, &APPLY_CHANGESET);
                return self.apply_set(ParsedChangeset::new(call, Err(refusal)), layer).await;
            }
        };
        let mut set = ParsedChangeset::of(run, caller, &request, &layer);
        if let Some(command) = &request.command {
            match command.entry(&set.call) {
                Ok(mut event) => match self.settle_differing(&mut event).await {
                    Ok(is_other) => set.set_command(event, command.exit_code, is_other),
                    Err(error) => {
                        let error = RecordedError::left_out(error);
                        return Err(Failed { tool_call_id: set.call.tool_call_id, error });
                    }
                },
                Err(refusal) => set.members = set.members.and(Err(refusal)),
            }
        }
        self.apply_set(set, layer).await
    }

    /// Returns the paths of a layer that a run can take; none if there are too many to name.
    pub(super) async fn takeable_paths(&self, run: &RunId, layer: Layer) -> Result<Vec<String>, CallError> {
        let open = self.engine.open(run).await?;
        let list = move || {
            let mut paths = Vec::new();
            let mut from = layer.reader();
            let mut entries = LayerReader::new(&mut from, layer_limits(open.rules.policy()))?;
            while let Some(entry) = entries.next_entry()? {
                let path = LogicalPath::parse(&entry.path);
                if paths.len() <= MAX_REJECTED
                    && path.map_or(Ok(true), |path| is_taken(&open.rules, &open.workspace, &path))?
                {
                    paths.push(entry.path);
                }
            }
            Ok(if paths.len() > MAX_REJECTED { Vec::new() } else { paths })
        };
        self.engine.blocking(list).await
    }

    /// Reserves the memory of the layer, applies the change set, and records both it and its command. A refusal of the layer becomes that of
    /// the call.
    pub(super) async fn apply_set(&self, mut set: ParsedChangeset, layer: ReceivedLayer) -> Result<Answer, Failed> {
        let tool_call_id = set.call.tool_call_id.clone();
        let reserved = match layer {
            _ if set.members.is_err() => Ok(None),
            Ok(layer) => self.reserve_layer(&set.call.run_id, &layer).await.map(|()| Some(layer)),
            Err(refusal) => Err(refusal.into()),
        };
        let layer = match reserved {
            Ok(layer) => layer,
            Err(CallError::Refused(refusal)) => {
                (set.members, set.is_layer_refused) = (Err(refusal), true);
                None
            }
            Err(error) => return Err(Failed { tool_call_id, error: RecordedError::left_out(error) }),
        };
        let (may_read, span) = (set.call.caller.may_read(), set.call.span());
        let calls = self.clone();
        let work = async move { Ok(calls.apply_and_record(set, layer).instrument(span).await) };
        let applied = self.engine.detached(work).await;
        let applied = applied.unwrap_or_else(|error| Err(RecordedError::left_out(error)));
        disclosed(may_read, applied).map_err(|error| Failed { tool_call_id, error })
    }

    /// Records that a change set was refused whose request cannot be read.
    #[boxed]
    pub async fn refuse_changeset(&self, run: &RunId, caller: Caller, refusal: Refusal) -> Failed {
        let call = Call::new(run, caller, &APPLY_CHANGESET);
        let error = self.engine.record_error(&call, &[], refusal.into()).await;
        Failed { tool_call_id: call.tool_call_id, error }
    }

    async fn apply_and_record(&self, parsed: ParsedChangeset, layer: Option<Layer>) -> Result<Answer, RecordedError> {
        let ParsedChangeset { mut call, members, is_layer_refused, event, evidence_fact } = parsed;
        let event = event.filter(|_| !call.dry_run);
        let run_id = call.run_id.clone();
        call.event = event.clone().map(Arc::new);
        let applied = self.apply(call, members, evidence_fact, layer).await;
        let Some(event) = event else { return applied };
        match applied {
            Ok(answer) => {
                self.with_event(&run_id, answer, &event.draft.tool_call_id).await.map_err(RecordedError::left_out)
            }
            Err(error) => {
                if is_about_change(error.as_error(), is_layer_refused) {
                    match self.record_command(event).await {
                        Ok(_) => {}
                        // The refusal of the change set is what the caller has to know.
                        Err(CallError::Refused(refusal)) if !refusal.code.is_retryable() => {}
                        Err(error) => return Err(RecordedError::left_out(error)),
                    }
                }
                Err(error)
            }
        }
    }

    async fn apply(
        &self,
        call: Call,
        members: Result<Map<String, Value>, Refusal>,
        evidence_fact: EvidenceFact,
        layer: Option<Layer>,
    ) -> Result<Answer, RecordedError> {
        let (run, members) = self.admit(&call, members).await?;
        let missing = || Refusal::invalid("the layer is missing", "Send the change set with its layer.");
        let tool = match parse(members).and_then(|input| Ok(ApplyChangeset::new(input, layer.ok_or_else(missing)?))) {
            Ok(tool) => tool,
            Err(refusal) => return Err(self.engine.record_error(&call, &[], refusal.into()).await),
        };
        let listener = run.decisions.listener(&call.caller.actor);
        let (call, operation) = (call.opened(&run, evidence_fact), Operation::Mutation(Box::new(tool)));
        let mut answer = self.execute_one(call, Arc::clone(&run), Ok(operation)).await;
        tell(&run, listener.as_deref(), &mut answer);
        answer
    }

    /// Reserves the memory that a layer takes with what is in it. To be called in the request itself, which holds the memory until the
    /// call has ended: a task of its own has none to hold it by.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` and `PATH_REJECTED` for the layer; `RATE_LIMITED` and `UNAVAILABLE` if there is no memory.
    async fn reserve_layer(&self, run: &RunId, layer: &Layer) -> Result<(), CallError> {
        if layer.is_recorded() {
            return Ok(());
        }
        let (measured, limits) = (layer.clone(), layer_limits(self.engine.open(run).await?.rules.policy()));
        let permit = self.engine.write_permit().await;
        let measure = move || Ok(measure_layer(&mut measured.reader(), limits, MAX_HELD_BYTES)?);
        let bytes = self.engine.blocking(measure).await?.saturating_add(layer.held_bytes());
        // What has memory needs a permit to end: who waits for memory must not hold one.
        drop(permit);
        Ok(self.engine.pools.acquire_body(bytes, self.engine.limits.request_timeout).await?)
    }

    /// Adds the number of the command's record to the answer.
    async fn with_event(&self, run: &RunId, answer: Answer, id: &ToolCallId) -> Result<Answer, CallError> {
        let event = self.engine.ledger.call(run, id).await?;
        Ok(Answer { event_seq: event.map(|event| event.seq), ..answer })
    }

    /// Records a command by itself. Returns the number of its record; `None` if there is no room for it.
    pub(super) async fn record_command(&self, event: Entry) -> Result<Option<u64>, CallError> {
        let (run, id) = (event.draft.run_id.clone(), event.draft.tool_call_id.clone());
        match self.engine.record(vec![event]).await {
            Ok(records) => Ok(records.first().map(|record| record.seq)),
            Err(NotRecorded::Rejected(Appended::Repeated(_))) => {
                Ok(self.engine.ledger.call(&run, &id).await?.map(|event| event.seq))
            }
            Err(error @ (NotRecorded::Rejected(Appended::PreconditionFailed(_)) | NotRecorded::Failed(_))) => {
                Err(error.into())
            }
            Err(other) => {
                tracing::info!(outcome = ?other, "a command was not recorded");
                Ok(None)
            }
        }
    }
}

/// Whether a change set was refused for what it changes, or for its layer: the command was run all the same.
fn is_about_change(error: &CallError, is_layer_refused: bool) -> bool {
    let CallError::Refused(refusal) = error else { return false };
    refusal.details.seq.is_some()
        && !refusal.code.is_retryable()
        && !matches!(refusal.code, Code::Forbidden | Code::ToolCallIdReused | Code::RunClosed | Code::Unauthenticated)
        && (is_layer_refused || refusal.code != Code::InvalidRequest)
}

/// Parses the JSON of a request; `what` names it in the refusal.
pub(super) fn request_of<T: serde::de::DeserializeOwned>(body: &[u8], what: &str) -> Result<T, Refusal> {
    json::parse_object(body).and_then(|members| {
        json::members_into(members).map_err(|error| {
            let message = format!("the {what} does not fit the call: {error}");
            Refusal::invalid(message, "Compare it with the call in /openapi.json.")
        })
    })
}

fn checked_id(request: ApplyChangesetRequest) -> Result<ApplyChangesetRequest, Refusal> {
    if request.changeset_id.as_ref().is_some_and(|id| id.len() > MAX_ID) {
        let message = format!("`changesetId` is longer than {MAX_ID} characters");
        return Err(Refusal::invalid(message, "Give a shorter changesetId, or omit it."));
    }
    Ok(request)
}
