//! What has to be done now and then, whatever is called: what has expired is closed, what a failing disk has left is
//! finished, counters are tidied.

use std::time::Duration;

use crate::service::{Service, latest};
use crate::{CallError, pipeline, telemetry};

/// How often numbers are folded up.
const TICK: Duration = Duration::from_secs(5);
/// Every so many ticks the ledger is asked for what has expired.
const TICKS_A_SWEEP: u32 = 3;
/// Approvals that are asked for at a time.
const PAGE: u32 = 500;

/// Goes round until the service ends.
pub(crate) async fn run(service: Service) {
    let mut ticks = 0u32;
    let mut clock = tokio::time::interval(TICK);
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            _ = clock.tick() => {}
            () = service.0.shutdown.cancelled() => return,
        }
        telemetry::tidy_numbers();
        service.0.throttle.tidy();
        pipeline::settle_left(&service).await;
        if ticks.is_multiple_of(TICKS_A_SWEEP)
            && let Err(error) = sweep(&service).await
        {
            tracing::warn!(error = &error as &dyn std::error::Error, "what has expired was not swept");
        }
        ticks = ticks.wrapping_add(1);
    }
}

/// Closes runs and approvals whose time is over. Callers see them so already; this tells the ledger.
async fn sweep(service: &Service) -> Result<(), CallError> {
    for run in service.0.ledger.expired_runs(&latest()).await? {
        // Whoever looks at it closes it.
        service.run(&run).await?;
    }
    for approval in service.0.ledger.lapsed_approvals(&latest(), PAGE).await? {
        service.expire(&approval).await?;
    }
    Ok(())
}
