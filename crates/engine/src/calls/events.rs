//! Events of a run: prompts, commands, tests, hand-overs and the like, recorded in the chain of its tool calls.

mod input;
pub(crate) mod uploads;

use async_recursion::async_recursion as boxed;
use std::collections::HashSet;

use ledger::{Appended, Entry, FailedPrecondition, StoredCall};
use model::{Code, Draft, Outcome, Permission, Record, Refusal, RunId, Sha256, ToolCallId, canonical_json};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::CallError;
use crate::call::evidence::{ATTESTED, is_check};
use crate::call::record::{RecordedError, reasons_of, verdict_of};
use crate::call_error::refusals::forbidden;
use crate::caller::{Caller, RequestIds};
use crate::calls::Calls;
use crate::clock::{new_tool_call_id, now};
use crate::engine::NotRecorded;

pub use input::AppendEventRequest;
use input::Event;

/// The most events of one request.
pub(crate) const MAX_BATCH: usize = 100;
/// The tool in the record of a refused event whose kind is unknown.
const UNKNOWN_KIND: &str = "event";

/// A recorded event.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppendedEvent {
    /// Always true.
    #[schema(example = true)]
    pub ok: bool,
    /// The ID of the event, which is the `toolCallId` of its record.
    pub event_id: ToolCallId,
    /// The number of its record.
    pub seq: u64,
    /// The hash of its record: the head of the run's chain when it was written.
    pub head_hash: Sha256,
}

impl AppendedEvent {
    /// Returns the event that `record` has.
    pub(super) fn of(record: Record) -> Self {
        Self {
            ok: true,
            event_id: record.tool_call_id,
            seq: record.seq,
            head_hash: record.hash.unwrap_or(Sha256::ZERO),
        }
    }
}

impl Calls {
    /// Records `events`, all or none, and returns them in order. An event that is recorded already is returned as it was.
    ///
    /// # Errors
    ///
    /// `FORBIDDEN`, `INVALID_REQUEST`, `RUN_NOT_FOUND`, `RUN_CLOSED`, `TOOL_CALL_ID_REUSED`, `QUOTA_EXCEEDED`. Refused events
    /// are recorded too.
    #[boxed]
    pub async fn append_events(
        &self,
        run: &RunId,
        caller: &Caller,
        events: Vec<Map<String, Value>>,
    ) -> Result<Vec<AppendedEvent>, RecordedError> {
        let tool = match &events[..] {
            [only] => input::tool_of(only).unwrap_or(UNKNOWN_KIND),
            _ => UNKNOWN_KIND,
        };
        let appended = self.try_append(run, caller, events).await;
        self.or_record_refusal(run, caller, tool, appended).await
    }

    /// Records the refusal of what is no call of a tool, such as an event.
    pub(super) async fn or_record_refusal<T>(
        &self,
        run: &RunId,
        caller: &Caller,
        tool: &str,
        done: Result<T, CallError>,
    ) -> Result<T, RecordedError> {
        match done {
            Ok(done) => Ok(done),
            Err(CallError::Refused(refusal)) => Err(self.record_refusal(run, caller, tool, refusal).await),
            Err(error) => Err(RecordedError::left_out(error)),
        }
    }

    /// Records that an event whose body cannot be parsed was refused.
    #[boxed]
    pub async fn refuse_event(&self, run: &RunId, caller: &Caller, refusal: Refusal) -> RecordedError {
        self.record_refusal(run, caller, UNKNOWN_KIND, refusal).await
    }

    /// Checks that the caller may append events, before their body is received.
    ///
    /// # Errors
    ///
    /// `FORBIDDEN`, recorded.
    #[boxed]
    pub async fn admit_event(&self, run: &RunId, caller: &Caller) -> Result<(), RecordedError> {
        if caller.permissions.contains(&Permission::EventAppend) {
            return Ok(());
        }
        Err(self.record_refusal(run, caller, UNKNOWN_KIND, lacks_permission()).await)
    }

    async fn try_append(
        &self,
        run: &RunId,
        caller: &Caller,
        events: Vec<Map<String, Value>>,
    ) -> Result<Vec<AppendedEvent>, CallError> {
        if !caller.permissions.contains(&Permission::EventAppend) {
            return Err(lacks_permission().into());
        }
        if events.is_empty() || events.len() > MAX_BATCH {
            return Err(wrong_count(events.len()).into());
        }
        let events = events.into_iter().map(Event::parse).collect::<Result<Vec<_>, _>>()?;
        let mut ids = HashSet::new();
        if let Some(twice) = events.iter().find(|event| event.id.as_ref().is_some_and(|id| !ids.insert(id))) {
            let id = twice.id.as_ref().map(ToString::to_string).unwrap_or_default();
            let message = format!("the eventId `{id}` occurs twice in one request");
            return Err(Refusal::invalid(message, "Give every event an ID of its own, or omit it.").into());
        }
        // Also closes a run whose time is over.
        self.engine.run(run).await?;
        let mut entries: Vec<_> = events.into_iter().map(|event| entry_of(run, caller, event)).collect();
        for entry in &mut entries {
            self.settle_differing(entry).await?;
        }
        // An event that is recorded already leaves the list, and the others are tried again.
        let mut done: Vec<Option<AppendedEvent>> = vec![None; entries.len()];
        loop {
            let open: Vec<_> =
                entries.iter().zip(&done).filter(|(_, done)| done.is_none()).map(|(entry, _)| entry.clone()).collect();
            if open.is_empty() {
                return Ok(done.into_iter().flatten().collect());
            }
            let rejected = match self.engine.record(open).await {
                Ok(records) => {
                    let open = done.iter_mut().filter(|done| done.is_none());
                    open.zip(records).for_each(|(done, record)| *done = Some(AppendedEvent::of(record)));
                    continue;
                }
                Err(NotRecorded::Rejected(rejected)) => rejected,
                Err(failed) => return Err(failed.into()),
            };
            let found = self.find_recorded(run, &entries, &mut done).await?;
            match rejected {
                // A repetition is answered in every state of the run.
                Appended::Repeated(_)
                | Appended::PreconditionFailed(FailedPrecondition::Run(_))
                | Appended::EventQuotaExceeded(_)
                | Appended::HistoryQuotaExceeded(_)
                    if found => {}
                Appended::Reused(_) => return Err(id_reused().into()),
                rejected => return Err(NotRecorded::Rejected(rejected).into()),
            }
        }
    }

    /// Fills in the events among `entries` that are recorded already. Returns whether there are any.
    async fn find_recorded(
        &self,
        run: &RunId,
        entries: &[Entry],
        done: &mut [Option<AppendedEvent>],
    ) -> Result<bool, CallError> {
        let mut found = false;
        for (entry, done) in entries.iter().zip(done).filter(|(entry, done)| done.is_none() && entry.client_supplied_id)
        {
            let id = &entry.draft.tool_call_id;
            let Some(StoredCall { seq, hash, tool, input_sha256, .. }) = self.engine.ledger.call(run, id).await? else {
                continue;
            };
            if (&tool, input_sha256) == (&entry.draft.tool, entry.input_sha256) {
                *done = Some(AppendedEvent { ok: true, event_id: id.clone(), seq, head_hash: hash });
                found = true;
            }
        }
        Ok(found)
    }

    /// Records a refusal of what is no call of a tool, such as an event, and returns it with the number of its record.
    pub(crate) async fn record_refusal(
        &self,
        run: &RunId,
        caller: &Caller,
        tool: &str,
        refusal: Refusal,
    ) -> RecordedError {
        if matches!(refusal.code, Code::RunNotFound | Code::Unavailable) {
            return RecordedError::left_out(refusal);
        }
        let refusal = refusal.redacted();
        let mut draft = Draft::new(run.clone(), caller.actor.clone(), tool, new_tool_call_id(), now());
        draft.code = Some(refusal.code);
        draft.decision = verdict_of(refusal.code);
        draft.outcome = Outcome::Refused;
        draft.reasons = reasons_of(&refusal);
        RequestIds::write(caller.request.as_deref(), &mut draft);
        self.engine.append_refusal(Entry::new(draft, Sha256::ZERO), refusal).await
    }
}

/// Returns the entry of the event with these members under the service's own ID: the command that a change set comes from.
///
/// # Errors
///
/// `INVALID_REQUEST`.
pub(super) fn entry_of_members(
    run: &RunId,
    caller: &Caller,
    id: ToolCallId,
    members: Map<String, Value>,
) -> Result<Entry, Refusal> {
    Ok(entry_of(run, caller, Event { id: Some(id), ..Event::parse(members)? }))
}

fn entry_of(run: &RunId, caller: &Caller, event: Event) -> Entry {
    let client_supplied_id = event.id.is_some();
    let id = event.id.unwrap_or_else(new_tool_call_id);
    let mut draft = Draft::new(run.clone(), caller.actor.clone(), event.kind.tool(), id, now());
    let bytes = canonical_json(&event.input).len() as u64;
    draft.duration_micros = event.duration_micros;
    draft.step_id = event.step_id;
    draft.input = Some(event.input);
    // The record says whether the event may be evidence, because the token may be gone by then.
    let is_attested = is_check(&draft.tool) && caller.permissions.contains(&Permission::EvidenceAttest);
    draft.reasons.extend(is_attested.then(|| ATTESTED.to_owned()));
    Entry { client_supplied_id, ..new_entry(caller, draft, event.input_sha256, bytes) }
}

/// Returns the entry of an event, an upload or a comment with `bytes` of content. The run must be open.
pub(super) fn new_entry(caller: &Caller, mut draft: Draft, input_sha256: Sha256, bytes: u64) -> Entry {
    RequestIds::write(caller.request.as_deref(), &mut draft);
    let mut entry = Entry::new(draft, input_sha256);
    entry.event_bytes = Some(bytes);
    entry.preconditions.open_run = true;
    entry.preconditions.token.clone_from(&caller.token);
    entry
}

fn lacks_permission() -> Refusal {
    forbidden(&[Permission::EventAppend])
}

fn wrong_count(actual: usize) -> Refusal {
    let message = format!("a request takes 1 to {MAX_BATCH} events; this one has {actual}");
    Refusal::invalid(message, "Send the events in several requests.")
        .with_details(|details| (details.limit, details.actual) = (Some(MAX_BATCH as u64), Some(actual as u64)))
}

fn id_reused() -> Refusal {
    Refusal::new(
        Code::ToolCallIdReused,
        "an eventId of the request belongs to another event or tool call of this run; nothing was recorded",
        "Give every new event an ID of its own, or omit eventId.",
    )
}
