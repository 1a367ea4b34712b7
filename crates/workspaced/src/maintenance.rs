//! Periodic work: closes what has expired, retries reconciliation after disk errors, updates gauges, and trims metrics and
//! rate limits.

pub(crate) mod collect;
mod gauges;

use std::error::Error;
use std::time::Duration;

use engine::runs::Keep;
use engine::{CallError, clock};
use ledger::Role;
use tokio::time::MissedTickBehavior;

use self::gauges::CheckpointLag;
use crate::service::Service;
use crate::telemetry;

/// Interval of the loop.
const TICK: Duration = Duration::from_secs(1);
/// Ticks between two trims of metrics and rate limits.
const TRIM_TICKS: u32 = 5;
/// Ticks between two queries for what has expired.
const EXPIRY_TICKS: u32 = 15;
/// Ticks between two updates of the gauges that need the database.
const GAUGE_TICKS: u32 = 15;
/// Ticks between two deletions of expired answers under idempotency keys, and of old deliveries of webhooks.
const ANSWER_TICKS: u32 = 3600;
/// The tick of the first such deletion: not at the start, when runs are opened and callers wait.
const FIRST_ANSWER_TICK: u32 = 60;
/// The tick of the first removal of folders whose runs other nodes own or have deleted; the next ones are [`ANSWER_TICKS`] apart.
const FIRST_FOLDER_TICK: u32 = 20;
/// How often operators and tokens are read again. One that was revoked on another node may be used here for as long, to read what is
/// not recorded; the commit of a record checks it.
const TOKEN_REFRESH: Duration = Duration::from_millis(500);
/// How long a base is kept after the last run that started from it: the next run may start from the same commit.
const UNUSED_BASES: Duration = Duration::from_hours(24);
/// How long deliveries that have ended are kept, in seconds.
const KEPT_SECONDS: i64 = 7 * 24 * 3600;
/// Expired approvals per query.
const PAGE: u32 = 500;

/// Runs until the service shuts down.
pub(crate) async fn run(service: Service) {
    let mut ticks = 0u32;
    let mut checkpoint_lag = CheckpointLag::default();
    let mut interval = tokio::time::interval(TICK);
    interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            _ = interval.tick() => {}
            () = service.state.shutdown.cancelled() => return,
        }
        checkpoint_lag.record(&service);
        if ticks.is_multiple_of(GAUGE_TICKS)
            && let Err(error) = gauges::record(&service).await
        {
            tracing::warn!(error = &error as &dyn Error, "failed to measure the disk, runs and approvals");
        }
        if ticks.is_multiple_of(TRIM_TICKS) {
            telemetry::trim_metrics();
            service.operators.tidy();
            service.runs.reconcile_dirty().await;
        }
        if ticks.is_multiple_of(EXPIRY_TICKS)
            && service.holds(Role::Webhooks)
            && let Err(error) = service.state.webhooks.enforce_bounds().await
        {
            tracing::warn!(error = &error as &dyn Error, "failed to bound the messages that wait for webhooks");
        }
        if ticks.is_multiple_of(EXPIRY_TICKS)
            && let Err(error) = close_expired(&service).await
        {
            tracing::warn!(error = &error as &dyn Error, "failed to query expired runs and approvals");
        }
        if service.state.node.is_some() {
            of_node(&service, ticks).await;
        }
        if ticks % ANSWER_TICKS == FIRST_FOLDER_TICK
            && let Err(error) = service.runs.remove_unused_bases(UNUSED_BASES).await
        {
            tracing::warn!(error = &error as &dyn Error, "failed to remove bases that no run starts from");
        }
        if ticks % ANSWER_TICKS == FIRST_ANSWER_TICK
            && service.holds(Role::Retention)
            && let Err(error) = service.state.ledger.delete_expired_answers(&clock::now()).await
        {
            tracing::warn!(error = &error as &dyn Error, "failed to delete expired answers under idempotency keys");
        }
        if ticks % ANSWER_TICKS == FIRST_ANSWER_TICK
            && service.holds(Role::Retention)
            && let Err(error) = service.state.ledger.prune_deliveries(&clock::now_plus(-KEPT_SECONDS)).await
        {
            tracing::warn!(error = &error as &dyn Error, "failed to delete old deliveries of webhooks");
        }
        ticks = ticks.wrapping_add(1);
    }
}

/// Forgets, until the service shuts down, tokens and operators that were read a moment ago, so that one that was revoked on
/// another node is refused here too. Ends at once in a service that is the only one.
pub(crate) async fn keep_tokens_current(service: Service) {
    if service.state.node.is_none() {
        return;
    }
    let mut interval = tokio::time::interval(TOKEN_REFRESH);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = interval.tick() => {}
            () = service.state.shutdown.cancelled() => return,
        }
        if let Err(error) = service.operators.refresh_tokens().await {
            tracing::debug!(error = &error as &dyn Error, "the operators could not be read again");
        }
    }
}

/// Does what only nodes have to do.
async fn of_node(service: &Service, ticks: u32) {
    if ticks.is_multiple_of(EXPIRY_TICKS)
        && let Err(error) = service.runs.resume_interrupted_imports().await
    {
        tracing::warn!(error = &error as &dyn Error, "failed to resume imports that have ended with their node");
    }
    if ticks.is_multiple_of(EXPIRY_TICKS)
        && let Err(error) = service.runs.keep_artifacts(Keep::Unchanging).await
    {
        tracing::warn!(error = &error as &dyn Error, "failed to keep the artifacts of runs");
    }
    if ticks % ANSWER_TICKS == FIRST_FOLDER_TICK
        && let Err(error) = service.runs.remove_unneeded_folders().await
    {
        tracing::warn!(error = &error as &dyn Error, "failed to remove folders of runs that are not on this node");
    }
}

/// Records the expiry of runs and approvals. Callers see them as expired already.
async fn close_expired(service: &Service) -> Result<(), CallError> {
    for run in service.state.ledger.expired_runs(&clock::now()).await? {
        if !service.maintains(Role::Expiry, &run).await? {
            continue;
        }
        // Reading an expired run closes it. An error concerns this run only.
        match service.runs.run(&run).await {
            Ok(_) | Err(CallError::Moved(_)) => {}
            Err(error) => tracing::warn!(run.id = %run, error = &error as &dyn Error, "failed to close an expired run"),
        }
    }
    for approval in service.state.ledger.expired_approvals(&clock::now(), PAGE.into()).await? {
        if !service.maintains(Role::Expiry, &approval.run_id).await? {
            continue;
        }
        match service.calls.expire(&approval).await {
            Ok(()) | Err(CallError::Moved(_)) => {}
            Err(error) => {
                let error = &error as &dyn Error;
                tracing::warn!(approval.id = %approval.approval_id, error, "failed to end an expired approval");
            }
        }
    }
    Ok(())
}
