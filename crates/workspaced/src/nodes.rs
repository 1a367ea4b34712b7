//! This process as one of several nodes that share a database.

pub(crate) mod membership;
pub(crate) mod peers;
pub(crate) mod proofs;
pub(crate) mod proven_connection;

use std::error::Error;
use std::time::Duration;

use ledger::Role;
use model::RunId;
use tokio::time::MissedTickBehavior;

use crate::service::Service;

/// How often operators and tokens are read again. One that was revoked on another node may be used here for as long, to read what is
/// not recorded; the commit of a record checks it.
const TOKEN_REFRESH: Duration = Duration::from_millis(500);

impl Service {
    /// Whether this process does the work of a role that concerns no single run. A service that is the only one has every role.
    pub(crate) fn holds(&self, role: Role) -> bool {
        self.state.node.as_ref().is_none_or(|membership| membership.holds(role))
    }

    /// Whether this process does the work of a role for a run: the owner of the run does it, and for runs without a live owner the
    /// node that has the role.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    pub(crate) async fn maintains(&self, role: Role, run: &RunId) -> ledger::Result<bool> {
        let Some(membership) = &self.state.node else { return Ok(true) };
        Ok(match self.ledger.owner(run).await? {
            Some(owner) if owner.node == membership.node => true,
            Some(owner) if owner.is_alive() => false,
            _ => membership.holds(role),
        })
    }

    /// Forgets, until the service shuts down, tokens and operators that were read a moment ago, so that one that was revoked on
    /// another node is refused here too. Ends at once in a service that is the only one.
    pub(crate) async fn keep_tokens_current(self) {
        if self.state.node.is_none() {
            return;
        }
        let mut interval = tokio::time::interval(TOKEN_REFRESH);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = interval.tick() => {}
                () = self.shutdown.cancelled() => return,
            }
            if let Err(error) = self.refresh_tokens().await {
                tracing::debug!(error = &error as &dyn Error, "the operators could not be read again");
            }
        }
    }
}
