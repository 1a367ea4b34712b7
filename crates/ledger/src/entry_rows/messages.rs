//! The messages to webhooks that entries cause, stored in the transaction of their records. Refused calls have none here: their
//! deliveries are made from the audit, so that they cost the call nothing.

use model::{ApprovalState, Record, RunState, Usage, WebhookMessage};

use crate::Entry;
use crate::statement::{Param, Statement};

/// Stores a pending delivery for each webhook that is subscribed to the event of a message.
macro_rules! fan_out {
    ($condition:literal) => {
        concat!(
            "INSERT INTO webhook_delivery (webhook, message_id, event_type, run_id, body, state, attempts, next_attempt_at, ",
            "created_at) SELECT webhook, $2, $1, $3, $4, 'pending', 0, $5, $5 FROM webhook_subscription ",
            "WHERE event_type = $1",
            $condition,
            " ORDER BY webhook ON CONFLICT (webhook, message_id) DO NOTHING"
        )
    };
}
const FAN_OUT: &str = fan_out!("");
/// Only if the run is not marked for repair.
const FAN_OUT_IF_UNMARKED: &str = fan_out!(" AND EXISTS (SELECT 1 FROM run WHERE run_id = $3 AND NOT needs_repair)");

/// The state of a run's head before and after an entry.
pub(crate) struct HeadChange<'a> {
    pub(crate) before: (RunState, Usage),
    pub(crate) after: (RunState, &'a Usage),
}

/// Returns the statement that stores the deliveries of a message.
pub(crate) fn fan_out(message: &WebhookMessage) -> Statement {
    fan_out_by(FAN_OUT, message)
}

/// Returns the statement that stores the deliveries of a message, unless its run is marked for repair already.
pub(crate) fn fan_out_if_unmarked(message: &WebhookMessage) -> Statement {
    fan_out_by(FAN_OUT_IF_UNMARKED, message)
}

fn fan_out_by(sql: &'static str, message: &WebhookMessage) -> Statement {
    let run = message.run_id.as_ref().map_or(Param::Null, |run| run.as_str().into());
    Statement::new(
        sql,
        [
            message.event.as_str().into(),
            message.id.as_str().into(),
            run,
            message.body.as_str().into(),
            message.created_at.as_str().into(),
        ],
    )
}

/// Returns the messages of `entry`, whose record is `record`.
pub(crate) fn messages(entry: &Entry, record: &Record, change: &HeadChange<'_>) -> Vec<WebhookMessage> {
    let mut messages = Vec::new();
    if let Some((approval, _)) = &entry.approval {
        messages.push(WebhookMessage::approval_requested(record, approval));
    }
    if let Some(decision) = entry.approval_decision.as_ref().filter(|decision| decision.state != ApprovalState::Pending)
    {
        let decided_by = decision.decided_by.as_deref();
        messages.push(WebhookMessage::approval_ended(record, &decision.approval_id, decision.state, decided_by));
    }
    let is_closed = |state: RunState| matches!(state, RunState::Closed | RunState::Deleted);
    if is_closed(change.after.0) && !is_closed(change.before.0) {
        messages.push(WebhookMessage::run_closed(record));
    }
    let reached = entry.run_budget.as_ref().map(|budget| budget.reached(&change.before.1, change.after.1));
    for (member, limit, used) in reached.into_iter().flatten() {
        messages.push(WebhookMessage::budget_reached(record, member, limit, used));
    }
    messages
}
