//! Gauges that are updated periodically, because they need the database or the passing of time.

use std::time::Instant;

use engine::CallError;

use crate::service::Service;
use crate::telemetry;

/// Updates the gauges of the disk, of runs, of approvals and of webhooks, and on a node the totals that other nodes change too.
///
/// # Errors
///
/// If the disk or the ledger fails.
pub(crate) async fn record(service: &Service) -> Result<(), CallError> {
    let space = service.on_disk(|disk| disk.measure().map_err(|error| CallError::Internal(error.into()))).await?;
    telemetry::set_disk(space.total, space.free, space.reserve());
    if service.state.node.is_some() {
        service.runs.refresh_totals().await?;
    } else {
        service.runs.refresh_history().await?;
    }
    let pending = service.state.webhooks.pending().await?;
    telemetry::set_webhook_pending(pending.iter().map(|(_, count)| count).sum());
    service.runs.record_ledger_gauges().await
}

/// Measures for how long records have waited for a checkpoint.
#[derive(Debug, Default)]
pub(crate) struct CheckpointLag {
    /// A position that was not covered, and when that was noticed.
    uncovered: Option<(i64, Instant)>,
}

impl CheckpointLag {
    /// Updates the gauges of checkpoints. After signing has stopped, they keep their values.
    pub(crate) fn record(&mut self, service: &Service) {
        let Some(covered) = service.checkpoints().covered_position() else { return };
        let newest = service.audit.newest_position();
        if self.uncovered.is_none_or(|(position, _)| covered >= position) {
            self.uncovered = (newest > covered).then(|| (newest, Instant::now()));
        }
        let seconds = self.uncovered.map_or(0.0, |(_, since)| since.elapsed().as_secs_f64());
        telemetry::set_checkpoint_lag(newest.saturating_sub(covered), seconds);
    }
}
