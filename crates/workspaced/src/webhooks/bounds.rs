//! Bounds the messages that wait for a receiver, so that one that fails for ever does not fill the database.

use engine::clock;
use ledger::GivenUp;

use super::Webhooks;
use crate::telemetry;

/// The age at which a message that was attempted is given up, in seconds: three days, where its attempts take about one if
/// the receiver answers.
const MAX_AGE_SECONDS: i64 = 3 * 24 * 3600;

impl Webhooks {
    /// Gives up the messages of each webhook that are too old, or too many.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    pub(crate) async fn enforce_bounds(&self) -> ledger::Result<()> {
        for webhook in self.iter() {
            let name = webhook.config().name.as_str();
            let GivenUp { too_old, too_many } =
                self.ledger.give_up_deliveries(name, &clock::now_plus(-MAX_AGE_SECONDS)).await?;
            for (reason, count) in [("too_old", too_old), ("too_many", too_many)] {
                if count > 0 {
                    telemetry::webhook_dropped(reason, count);
                    tracing::warn!(
                        webhook.name = name,
                        messages = count,
                        reason,
                        "messages to a webhook were given up"
                    );
                }
            }
            if too_many > 0 {
                // Others may follow at the same rate, and those that have ended are kept only up to a number.
                self.ledger.prune_deliveries("").await?;
            }
        }
        Ok(())
    }
}
