//! The event that a caller names as the evidence of a mutation.

use model::{EventKind, Evidence, EvidenceFact, Outcome, Permission, Record, Refusal, RunId, ToolCallId};
use serde_json::{Map, Value};

use crate::CallError;
use crate::call::Call;
use crate::call_error::refusals::forbidden;
use crate::engine::Engine;
use crate::tools::apply_changeset::APPLY_CHANGESET;

/// What follows the ID of a call, or of a change set, in that of the event of its command.
pub(crate) const EVENT_SUFFIX: &str = ".command";
/// What follows the ID of a call in that of the change set of its command.
pub(crate) const SET_SUFFIX: &str = ".changes";
/// The member of a command's record with the paths in its sandbox that differ from the run.
pub(crate) const DIFFERS: &str = "differs";
/// The member with their number.
pub(crate) const DIFFERS_COUNT: &str = "differsCount";
/// What to send.
const HINT: &str = "Give the `eventId` of an event of the run, and nothing else.";

impl Call {
    /// Takes the member `evidence` of a mutation's input.
    ///
    /// # Errors
    ///
    /// `FORBIDDEN` without the permission `evidence:attest`; `INVALID_REQUEST`.
    pub(super) fn take_evidence(&mut self, members: &mut Map<String, Value>) -> Result<(), Refusal> {
        let Some(value) = members.remove("evidence") else { return Ok(()) };
        if !self.caller.permissions.contains(&Permission::EvidenceAttest) {
            return Err(forbidden(&[Permission::EvidenceAttest]));
        }
        let evidence: Evidence =
            serde_json::from_value(value).map_err(|_| Refusal::invalid("`evidence` does not fit the call", HINT))?;
        if model::credential_in(evidence.event_id.as_str().as_bytes()).is_some() {
            return Err(Refusal::invalid("`evidence.eventId` is not the ID of an event", HINT));
        }
        self.evidence = Some(evidence);
        Ok(())
    }

    /// Sets the evidence of a call that does not have it in its input, also for when it is executed later.
    pub(crate) fn set_evidence(&mut self, event_id: ToolCallId) {
        let evidence = Evidence { event_id };
        let value = serde_json::to_value(&evidence).unwrap_or_default();
        self.replace_input("evidence", value);
        self.evidence = Some(evidence);
    }

    /// Returns the evidence of a stored input.
    pub(crate) fn stored_evidence(input: &str) -> Option<Evidence> {
        let members: Map<String, Value> = serde_json::from_str(input).ok()?;
        serde_json::from_value(members.get("evidence")?.clone()).ok()
    }
}

impl Engine {
    /// Returns what the evidence of a call says. An event that it names counts if a caller that may attest has appended it, after the
    /// run's last change, what its command changed itself is in the run, and it found no other files than those of the run.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` if the run has no such event of a check; the errors of the ledger.
    pub(crate) async fn evidence_fact(&self, call: &Call) -> Result<EvidenceFact, CallError> {
        let Some(evidence) = &call.evidence else { return Ok(EvidenceFact::Missing) };
        // Boxed, so that the future of any other call is smaller.
        Box::pin(self.fact_of_event(&call.run_id, &evidence.event_id)).await
    }

    async fn fact_of_event(&self, run: &RunId, id: &ToolCallId) -> Result<EvidenceFact, CallError> {
        let event = self.event_of_check(run, id).await?;
        let data = event.input.as_ref().and_then(|input| input.get("data"));
        Ok(if !event.reasons.iter().any(|reason| reason == ATTESTED) {
            EvidenceFact::Unattested
        } else if data.is_some_and(|data| data.get("notApplied").is_some())
            || found_other_files(data)
            || !self.ledger.changes(run, event.seq, 1.into()).await?.is_empty()
            || self.saw_other_files(run, id).await?
        {
            EvidenceFact::Stale
        } else {
            fact_of(data.and_then(|data| data.get("exitCode")).and_then(Value::as_i64))
        })
    }

    /// Whether something that the command of an event changed itself is not in the run: it waits for a person, or was refused.
    async fn saw_other_files(&self, run: &RunId, event: &ToolCallId) -> Result<bool, CallError> {
        let Some(id) = event.as_str().strip_suffix(EVENT_SUFFIX) else { return Ok(false) };
        for id in [id.to_owned(), format!("{id}{SET_SUFFIX}")] {
            let Ok(id) = ToolCallId::parse(&id) else { continue };
            let set = self.ledger.call(run, &id).await?.filter(|call| call.tool == APPLY_CHANGESET.name);
            let Some(set) = set else { continue };
            let body = set.reply.and_then(|reply| serde_json::from_str::<Value>(&reply.body).ok());
            let has_left = body.is_some_and(|body| body["left"].as_array().is_some_and(|left| !left.is_empty()));
            let record: Record =
                serde_json::from_str(&set.record).map_err(|error| CallError::Internal(Box::new(error)))?;
            if has_left || record.outcome != Outcome::Ok {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the record of an event that can be evidence.
    async fn event_of_check(&self, run: &RunId, id: &ToolCallId) -> Result<Record, CallError> {
        let event = self.ledger.call(run, id).await?.filter(|event| is_check(&event.tool));
        let record = match event {
            Some(event) => self.ledger.record(run, event.seq).await?,
            None => None,
        };
        let Some(record) = record else {
            let message = format!("the run has no event `{id}` of kind command, test or evidence");
            return Err(Refusal::invalid(message, "Append the event first.").into());
        };
        serde_json::from_str(&record.text).map_err(|error| CallError::Internal(Box::new(error)))
    }
}

/// The reason in the record of an event that can be evidence, if its caller may attest.
pub(crate) const ATTESTED: &str = "evidence:attest";

/// Whether the command of an event found other files than those of the run, by the event's data.
pub(crate) fn found_other_files(data: Option<&Value>) -> bool {
    data.is_some_and(|data| data.get(DIFFERS).is_some())
}

/// Whether events of this tool can be evidence.
pub(crate) fn is_check(tool: &str) -> bool {
    [EventKind::Command, EventKind::Test, EventKind::Evidence].map(EventKind::tool).contains(&tool)
}

/// What a command with this exit code says as evidence.
pub(crate) fn fact_of(exit_code: Option<i64>) -> EvidenceFact {
    if exit_code == Some(0) { EvidenceFact::Successful } else { EvidenceFact::NotSuccessful }
}
