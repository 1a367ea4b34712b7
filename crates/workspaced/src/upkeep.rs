//! What has to be done now and then, whatever is called: what has expired is closed, what a failing disk has left is
//! finished, counters are tidied.

use std::time::Duration;

use crate::service::{Service, latest};
use crate::{CallError, pipeline, telemetry};

/// How often it is looked whether there is something to do.
const TICK: Duration = Duration::from_secs(1);
/// Every so many ticks numbers are folded up.
const TICKS_A_FOLD: u32 = 5;
/// Every so many ticks the ledger is asked for what has expired.
const TICKS_A_SWEEP: u32 = 15;
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
            () = service.shutdown.cancelled() => return,
        }
        if ticks.is_multiple_of(TICKS_A_FOLD) {
            telemetry::tidy_numbers();
            service.throttle.tidy();
            service.tokens.tidy();
            pipeline::settle_left(&service).await;
        }
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
    for run in service.ledger.expired_runs(&latest()).await? {
        // Whoever looks at it closes it. One that cannot be closed keeps no other open.
        if let Err(error) = service.run(&run).await {
            tracing::warn!(run.id = %run, error = &error as &dyn std::error::Error, "an expired run was not closed");
        }
    }
    for approval in service.ledger.expired_approvals(&latest(), PAGE.into()).await? {
        if let Err(error) = service.expire(&approval).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(approval.id = %approval.approval_id, error, "an approval whose time is over was not ended");
        }
    }
    Ok(())
}
