//! The task of a webhook: makes deliveries of refused calls, and sends what is due.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::clock;
use ledger::{DeliveryAttempt, DueDelivery, Ledger, Role};
use model::DeliveryState;
use tokio_util::sync::CancellationToken;

use super::WebhookSender;
use super::attempt::{AttemptOutcome, send};
use super::retry::delay_seconds;
use crate::telemetry;
use cluster::nodes::holds;

/// Deliveries that are read at a time. They are sent one after the other, before a more urgent one is noticed.
const DUE_PER_ROUND: u32 = 4;
/// The time between two queries for due deliveries.
const IDLE: Duration = Duration::from_secs(1);
/// The time after which a failing ledger is tried again.
const LEDGER_RETRY: Duration = Duration::from_secs(5);

/// The result of an attempt, which is to be stored.
struct Unrecorded {
    due: DueDelivery,
    attempt: DeliveryAttempt,
}

impl WebhookSender {
    /// Sends messages until the service shuts down. A request that is then in progress is repeated after the next start.
    pub(crate) async fn run(self: Arc<Self>, shutdown: CancellationToken) {
        let mut unrecorded = None;
        loop {
            let pause = tokio::select! {
                round = self.round(&mut unrecorded) => match round {
                    Ok(true) => Duration::ZERO,
                    Ok(false) => IDLE,
                    Err(error) => {
                        let error = &error as &dyn Error;
                        tracing::warn!(webhook.name = self.config.name, error, "failed to read or store deliveries");
                        LEDGER_RETRY
                    }
                },
                () = shutdown.cancelled() => return,
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.wake.notified() => {}
                () = shutdown.cancelled() => return,
            }
        }
    }

    /// Sends some of what is due. Returns whether there may be more. A result in `unrecorded` is stored before anything is sent:
    /// its message would be sent again.
    async fn round(&self, unrecorded: &mut Option<Unrecorded>) -> ledger::Result<bool> {
        let ledger = self.ledger.as_ref();
        record(ledger, unrecorded).await?;
        if self.is_gone() || !holds(self.node.as_deref(), Role::Webhooks) {
            return Ok(false);
        }
        // What is due is sent also if no more deliveries can be made.
        let has_more = ledger.enqueue_refused_calls(&self.config.name).await.unwrap_or_else(|error| {
            let error = &error as &dyn Error;
            tracing::warn!(webhook.name = self.config.name, error, "failed to make deliveries of refused calls");
            false
        });
        let due = ledger.due_deliveries(&self.config.name, &clock::now(), DUE_PER_ROUND).await?;
        let is_idle = due.is_empty() && !has_more;
        for due in due {
            let attempt = self.attempt(&due).await;
            *unrecorded = Some(Unrecorded { due, attempt });
            record(ledger, unrecorded).await?;
            if self.is_gone() {
                return Ok(false);
            }
        }
        Ok(!is_idle)
    }

    /// Sends a message once. Returns what it resulted in.
    async fn attempt(&self, due: &DueDelivery) -> DeliveryAttempt {
        let DueDelivery { message_id, body, attempts, .. } = due;
        let attempts = attempts + 1;
        let outcome = send(&self.http, &self.config, message_id, clock::now_seconds(), body).await;
        let name = self.config.name.as_str();
        let (state, status, error, counted) = match outcome {
            AttemptOutcome::Delivered(status) => (DeliveryState::Delivered, Some(status), None, "delivered"),
            AttemptOutcome::Gone => {
                self.is_gone.store(true, Ordering::Release);
                tracing::warn!(
                    webhook.name = name,
                    "the receiver answered 410: nothing is sent until the next start or redelivery"
                );
                (DeliveryState::Pending, Some(410), Some("the receiver answered 410".to_owned()), "gone")
            }
            AttemptOutcome::Failed { status, error } if delay_seconds(message_id, attempts).is_some() => {
                tracing::info!(
                    webhook.name = name,
                    message.id = message_id,
                    attempts,
                    error,
                    "a message is sent again"
                );
                (DeliveryState::Pending, status, Some(error), "retried")
            }
            AttemptOutcome::Failed { status, error } => {
                tracing::warn!(webhook.name = name, message.id = message_id, attempts, error, "a message was given up");
                (DeliveryState::Failed, status, Some(error), "failed")
            }
        };
        telemetry::webhook_attempted(counted);
        let delay = delay_seconds(message_id, attempts).unwrap_or(0);
        let next_attempt_at = clock::now_plus(i64::try_from(delay).unwrap_or(i64::MAX));
        DeliveryAttempt { state, attempts, status, error, next_attempt_at }
    }
}

/// Stores the result that is not stored yet, if there is one.
async fn record(ledger: &dyn Ledger, unrecorded: &mut Option<Unrecorded>) -> ledger::Result<()> {
    if let Some(Unrecorded { due, attempt }) = &*unrecorded {
        ledger.record_attempt(due, attempt.clone()).await?;
        *unrecorded = None;
    }
    Ok(())
}
