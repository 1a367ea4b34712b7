//! What has to be done now and then, whatever is called: what has expired is closed, what a failing disk has left is
//! finished, counters are tidied.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::service::{Service, latest};
use crate::{CallError, memory, pipeline, telemetry};

/// How often it is looked whether there is something to do.
const TICK: Duration = Duration::from_secs(1);
/// Every so many ticks numbers are folded up.
const TICKS_A_FOLD: u32 = 5;
/// Every so many ticks the ledger is asked for what has expired.
const TICKS_A_SWEEP: u32 = 15;
/// A tick with fewer requests is a quiet one.
const QUIET: u64 = 8;
/// Memory is given back after so many requests, and after fewer once so many ticks have passed.
const BUSY: u64 = 64;
const TICKS_A_REST: u32 = 30;
/// Approvals that are asked for at a time.
const PAGE: u32 = 500;

/// Goes round until the service ends.
pub(crate) async fn run(service: Service) {
    let mut ticks = 0u32;
    let mut quiet = Quiet::default();
    let mut clock = tokio::time::interval(TICK);
    clock.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            _ = clock.tick() => {}
            () = service.0.shutdown.cancelled() => return,
        }
        if ticks.is_multiple_of(TICKS_A_FOLD) {
            telemetry::tidy_numbers();
            service.0.throttle.tidy();
            service.0.tokens.tidy();
            pipeline::settle_left(&service).await;
        }
        if quiet.is_time_to_rest(service.0.answered.load(Ordering::Relaxed))
            && let Err(error) = rest(&service).await
        {
            tracing::warn!(error = &error as &dyn std::error::Error, "memory was not given back");
        }
        if ticks.is_multiple_of(TICKS_A_SWEEP)
            && let Err(error) = sweep(&service).await
        {
            tracing::warn!(error = &error as &dyn std::error::Error, "what has expired was not swept");
        }
        ticks = ticks.wrapping_add(1);
    }
}

/// Gives back the memory that a busy time has left behind.
async fn rest(service: &Service) -> Result<(), CallError> {
    service.0.ledger.rest().await?;
    let let_go = || {
        memory::let_go_of_program();
        Ok(())
    };
    service.blocking(let_go).await
}

/// When to rest: in a quiet tick, once, after something was done.
#[derive(Debug, Default)]
struct Quiet {
    seen: u64,
    /// `None` until the first rest, since the start itself leaves something behind.
    rested_at: Option<u64>,
    /// Since then.
    ticks: u32,
}

impl Quiet {
    /// Told at every tick how many requests were `answered` until now.
    fn is_time_to_rest(&mut self, answered: u64) -> bool {
        let quiet = answered - self.seen < QUIET;
        self.seen = answered;
        self.ticks = self.ticks.saturating_add(1);
        let due = self.rested_at.is_none_or(|at| {
            let since = answered - at;
            since >= BUSY || (since > 0 && self.ticks >= TICKS_A_REST)
        });
        if quiet && due {
            (self.rested_at, self.ticks) = (Some(answered), 0);
        }
        quiet && due
    }
}

/// Closes runs and approvals whose time is over. Callers see them so already; this tells the ledger.
async fn sweep(service: &Service) -> Result<(), CallError> {
    for run in service.0.ledger.expired_runs(&latest()).await? {
        // Whoever looks at it closes it. One that cannot be closed keeps no other open.
        if let Err(error) = service.run(&run).await {
            tracing::warn!(run.id = %run, error = &error as &dyn std::error::Error, "an expired run was not closed");
        }
    }
    for approval in service.0.ledger.lapsed_approvals(&latest(), PAGE.into()).await? {
        if let Err(error) = service.expire(&approval).await {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(approval.id = %approval.approval_id, error, "an approval whose time is over was not ended");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rest_comes_once_after_a_busy_time_and_seldom_in_an_idle_one() {
        let mut quiet = Quiet::default();
        assert!(quiet.is_time_to_rest(0), "what the start has left");
        assert!(!quiet.is_time_to_rest(1));
        for answered in [101, 201, 301] {
            assert!(!quiet.is_time_to_rest(answered), "busy");
        }
        assert!(quiet.is_time_to_rest(302));
        for _ in 0..100 {
            assert!(!quiet.is_time_to_rest(302), "nothing was done since");
        }
        let rests = (303..363).filter(|answered| quiet.is_time_to_rest(*answered)).count();
        assert!((1..=2).contains(&rests), "a request now and then: {rests}");
    }
}
