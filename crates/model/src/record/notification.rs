//! Messages to webhooks: what they are about, their content, and their delivery.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::named_enum::named_enum;
use crate::{Approval, ApprovalId, ApprovalState, Code, Record, RunId, Sha256, Verdict, redact};

/// The most bytes of a text in a message.
const MAX_TEXT_BYTES: usize = 200;
/// The most warnings in a message: the most severe ones.
const MAX_WARNINGS: usize = 6;
/// The most rules that a message names.
const MAX_REASONS: usize = 16;

named_enum! {
    /// What a message to a webhook is about.
    pub enum WebhookEvent {
        /// A call waits for an approval.
        ApprovalRequested = "approval.requested",
        /// An approval was decided.
        ApprovalDecided = "approval.decided",
        /// An approval expired without a decision.
        ApprovalExpired = "approval.expired",
        /// A run was closed, or deleted before it was closed.
        RunClosed = "run.closed",
        /// A call was refused by the policy or a budget of its run.
        CallRefused = "call.refused",
        /// A run has used 80 % of a member of its `runBudget`.
        BudgetReached = "budget.reached",
        /// Files of a run were changed from outside, so that the run refuses calls until it is repaired.
        RunNeedsRepair = "run.needs_repair",
        /// No more checkpoints are signed.
        SigningStopped = "signing.stopped",
    }
}

named_enum! {
    /// The state of a delivery.
    pub enum DeliveryState {
        /// The message was not accepted yet.
        Pending = "pending",
        /// The receiver has accepted the message.
        Delivered = "delivered",
        /// The receiver has not accepted the message within about 24 hours, or too many messages waited for it.
        Failed = "failed",
    }
}

/// A message for every webhook that is subscribed to its event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookMessage {
    /// The ID, which is the same for every webhook and every attempt.
    pub id: String,
    /// What it is about.
    pub event: WebhookEvent,
    /// The run that it is about.
    pub run_id: Option<RunId>,
    /// When that happened, RFC 3339 UTC with microseconds.
    pub created_at: String,
    /// The JSON that is sent: at most 32 KiB.
    pub body: String,
}

/// The delivery of a message to a webhook.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebhookDelivery {
    /// The ID of the message, which is sent as `webhook-id`.
    #[schema(example = "msg_3f9a0c7e1d4826bf05a9c83d71e64f5b")]
    pub id: String,
    /// What the message is about.
    #[serde(rename = "type")]
    pub event: WebhookEvent,
    /// The run that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The state.
    pub state: DeliveryState,
    /// The attempts since the message was created, or since it was last redelivered.
    pub attempts: u64,
    /// The status of the last answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_status: Option<u16>,
    /// Why the last attempt failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// When a pending message is sent next, RFC 3339 UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_attempt_at: Option<String>,
    /// When the message was created, RFC 3339 UTC.
    pub created_at: String,
}

impl WebhookMessage {
    /// The message of `record`, by which a call requests `approval`.
    pub fn approval_requested(record: &Record, approval: &Approval) -> Self {
        let warnings = approval.warnings.iter().take(MAX_WARNINGS).map(|warning| {
            let mut short = json!({
                "code": warning.code,
                "severity": warning.severity,
                "text": bounded(&warning.text),
            });
            if let Some(path) = &warning.path {
                short["path"] = Value::from(bounded(path.as_str()));
            }
            if let Some(line) = warning.line {
                short["line"] = Value::from(line);
            }
            short
        });
        let data = json!({
            "approvalId": approval.approval_id,
            "toolCallId": record.tool_call_id,
            "tool": approval.tool,
            "actor": bounded(&record.actor),
            "reason": bounded(&redact(&approval.reason)),
            "reasons": bounded_list(&approval.reasons),
            "warnings": warnings.collect::<Vec<_>>(),
            "files": approval.files.len(),
            "approvers": approval.approvers,
            "expiresAt": approval.expires_at,
        });
        Self::of_record(WebhookEvent::ApprovalRequested, record, data)
    }

    /// The message of `record`, by which an approval reaches the final `state`. `decided_by` is the operator who decided.
    pub fn approval_ended(record: &Record, id: &ApprovalId, state: ApprovalState, decided_by: Option<&str>) -> Self {
        let mut data = json!({
            "approvalId": id,
            "toolCallId": record.tool_call_id,
            "tool": record.tool,
            "state": state,
        });
        if let Some(decided_by) = decided_by {
            data["decidedBy"] = Value::from(bounded(decided_by));
        }
        let event = match state {
            ApprovalState::Expired => WebhookEvent::ApprovalExpired,
            ApprovalState::Pending | ApprovalState::Approved | ApprovalState::Denied | ApprovalState::Failed => {
                WebhookEvent::ApprovalDecided
            }
        };
        Self::of_record(event, record, data)
    }

    /// The message of `record`, by which a run is closed.
    pub fn run_closed(record: &Record) -> Self {
        let cause = record.input.as_ref().and_then(|input| input.get("cause")).and_then(Value::as_str);
        let data = json!({ "cause": bounded(cause.unwrap_or("request")), "actor": bounded(&record.actor) });
        Self::of_record(WebhookEvent::RunClosed, record, data)
    }

    /// The message of `record` if the policy refused the call. A denial by a person is an [`approval_ended`](Self::approval_ended).
    pub fn call_refused(record: &Record) -> Option<Self> {
        let code = record
            .code
            .filter(|code| matches!(code, Code::PolicyDenied | Code::PolicyDeniedSecret | Code::PatchBudgetExceeded))?;
        let is_by_person =
            record.reasons.first().is_some_and(|first| first.starts_with("approval:") && first.ends_with(":denied"));
        if record.decision != Verdict::Deny || is_by_person {
            return None;
        }
        let data = json!({
            "toolCallId": record.tool_call_id,
            "tool": record.tool,
            "actor": bounded(&record.actor),
            "code": code,
            "reasons": bounded_list(&record.reasons),
        });
        Some(Self::of_record(WebhookEvent::CallRefused, record, data))
    }

    /// The message of `record`, by which a run's use of the `member` of its `runBudget` reaches 80 % of `limit`.
    pub fn budget_reached(record: &Record, member: &str, limit: u64, used: u64) -> Self {
        let data = json!({ "member": member, "limit": limit, "used": used });
        Self::of_record(WebhookEvent::BudgetReached, record, data)
    }

    /// The message that a run was marked for repair at `now`.
    pub fn run_needs_repair(run: &RunId, now: &str) -> Self {
        let data = Map::from_iter([("runId".to_owned(), json!(run))]);
        Self::new(WebhookEvent::RunNeedsRepair, Some(run), now, &data, "")
    }

    /// The message that no more checkpoints are signed since `now`.
    pub fn signing_stopped(now: &str) -> Self {
        Self::new(WebhookEvent::SigningStopped, None, now, &Map::new(), "")
    }

    fn of_record(event: WebhookEvent, record: &Record, data: Value) -> Self {
        let mut members = Map::new();
        members.insert("runId".to_owned(), json!(record.run_id));
        members.insert("seq".to_owned(), json!(record.seq));
        if let Value::Object(more) = data {
            members.extend(more);
        }
        // The hash distinguishes records of the same number in different databases.
        let hash = record.hash.map(|hash| hash.to_string()).unwrap_or_default();
        Self::new(event, Some(&record.run_id), &record.timestamp, &members, &hash)
    }

    fn new(event: WebhookEvent, run: Option<&RunId>, at: &str, data: &Map<String, Value>, hash: &str) -> Self {
        let body = json!({ "type": event, "timestamp": at, "data": data }).to_string();
        let digest = Sha256::of(format!("{hash}{body}").as_bytes()).to_string();
        Self { id: format!("msg_{}", &digest[..32]), event, run_id: run.cloned(), created_at: at.to_owned(), body }
    }
}

/// Returns the first bytes of a text.
fn bounded(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT_BYTES)]
}

fn bounded_list(texts: &[String]) -> Vec<&str> {
    texts.iter().take(MAX_REASONS).map(|text| bounded(text)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Draft, ToolCallId};

    fn refused(code: Code, reasons: Vec<String>) -> Record {
        let run = RunId::parse("r1").unwrap();
        let id = ToolCallId::parse("call-1").unwrap();
        let mut draft = Draft::new(run, "run-token:t1".into(), "write_file", id, "2026-01-02T03:04:05.000006Z".into());
        (draft.code, draft.decision, draft.reasons) = (Some(code), Verdict::Deny, reasons);
        draft.link(6, Sha256::ZERO).0
    }

    #[test]
    fn a_message_says_what_was_refused_and_is_the_same_each_time() {
        let record = refused(Code::PolicyDenied, vec!["no-migrations".to_owned()]);
        let message = WebhookMessage::call_refused(&record).unwrap();
        let body: Value = serde_json::from_str(&message.body).unwrap();
        let data = json!({"runId": "r1", "seq": 7, "toolCallId": "call-1", "tool": "write_file",
            "actor": "run-token:t1", "code": "POLICY_DENIED", "reasons": ["no-migrations"]});
        let whole = json!({"type": "call.refused", "timestamp": "2026-01-02T03:04:05.000006Z", "data": data});
        assert_eq!(body, whole);
        assert_eq!(WebhookMessage::call_refused(&record).unwrap(), message);
        let other = WebhookMessage::call_refused(&refused(Code::PolicyDenied, vec!["other".to_owned()])).unwrap();
        assert_ne!(other.id, message.id);
        assert_eq!(message.id.len(), "msg_".len() + 32);
    }

    #[test]
    fn only_refusals_of_the_policy_are_messages() {
        for code in Code::ALL {
            let is_message = WebhookMessage::call_refused(&refused(code, vec!["rule".to_owned()])).is_some();
            let of_policy = ["POLICY_DENIED", "POLICY_DENIED_SECRET", "PATCH_BUDGET_EXCEEDED"].contains(&code.as_str());
            assert_eq!(is_message, of_policy, "{code}");
        }
        let by_person = refused(Code::PolicyDenied, vec!["approval:apr_1:denied".to_owned()]);
        assert_eq!(WebhookMessage::call_refused(&by_person), None);
    }

    #[test]
    fn a_message_is_small_for_any_record() {
        let reasons = vec!["\u{1}ä".repeat(1000); 100];
        let message = WebhookMessage::call_refused(&refused(Code::PolicyDenied, reasons)).unwrap();
        assert!(message.body.len() < 32 * 1024, "{}", message.body.len());
        serde_json::from_str::<Value>(&message.body).unwrap();
    }
}
