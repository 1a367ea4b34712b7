//! What has to be done now and then, whatever is called: runs whose time is over are closed, counters are tidied.

use std::time::Duration;

use model::{ApprovalState, RunState};

use crate::live::has_expired;
use crate::service::{Service, now};
use crate::{CallError, telemetry};

/// How often numbers are folded up.
const TICK: Duration = Duration::from_secs(5);
/// Every so many ticks the ledger is asked for what has expired.
const TICKS_A_SWEEP: u32 = 6;
/// Entries that are asked for at a time.
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
        ticks = ticks.wrapping_add(1);
        if ticks % TICKS_A_SWEEP == 1
            && let Err(error) = sweep(&service).await
        {
            tracing::warn!(error = &error as &dyn std::error::Error, "what has expired was not swept");
        }
    }
}

/// Closes runs and approvals whose time is over. Calls see them so already; this tells the ledger.
async fn sweep(service: &Service) -> Result<(), CallError> {
    for state in [RunState::Preparing, RunState::Open, RunState::AwaitingApproval] {
        let mut after = None;
        loop {
            let page = service.0.ledger.runs(Some(state), after, PAGE).await?;
            after = page.last().map(|(position, _)| *position);
            let length = page.len();
            for (_, run) in page {
                if has_expired(run.state, run.expires_at.as_deref()) {
                    service.run(&run.run_id).await?;
                }
            }
            if length < PAGE as usize {
                break;
            }
        }
    }
    let pending = service.0.ledger.approvals(Some(ApprovalState::Pending), None, None, PAGE).await?;
    for (_, approval) in pending {
        if approval.expires_at <= now() {
            service.0.ledger.decide_approval(&approval.approval_id, ApprovalState::Expired, None, None).await?;
        }
    }
    Ok(())
}
