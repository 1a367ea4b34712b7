//! Bringing the tree up to what was answered before it.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use model::LogicalPath;
use workspace::ApplyFault;

use super::recover::{OpenJournal, mark_for_repair};
use crate::CallError;
use crate::behind::CatchUp;
use crate::service::{LiveRun, Service};

/// Brings the tree up to all that was answered by now. The caller holds nothing in the lane.
///
/// # Errors
///
/// Where the disk fails; the run is unsettled then.
pub(super) async fn catch_up(service: &Service, live: &Arc<LiveRun>) -> Result<(), CallError> {
    catch_up_with(service, live, live.behind.paths()).await
}

async fn catch_up_with(service: &Service, live: &Arc<LiveRun>, paths: Vec<LogicalPath>) -> Result<(), CallError> {
    // At once, since each waits for whoever changes its file now.
    let each = paths.into_iter().map(|path| async move {
        let _pass = live.lane.enter(vec![path.clone()]).await;
        if live.lane.is_unsettled() { Ok(()) } else { bring_up(service, live, &path).await }
    });
    join_all(each).await.into_iter().collect()
}

/// As [`catch_up`], for `paths`, where nobody waits for it: the next call that looks into the tree, or the next round of the
/// upkeep, settles what is left.
pub(super) async fn catch_up_unasked(service: &Service, live: &Arc<LiveRun>, paths: Vec<LogicalPath>) {
    if let Err(error) = catch_up_with(service, live, paths).await {
        tracing::warn!(run.id = %live.run_id, error = &error as &dyn std::error::Error, "the tree is behind the answers");
    }
}

/// Brings the tree up to what was answered at, above or beneath `held`, which the caller holds in the lane.
pub(super) async fn catch_up_at(service: &Service, live: &Arc<LiveRun>, held: &[LogicalPath]) -> Result<(), CallError> {
    for path in live.behind.at(held) {
        bring_up(service, live, &path).await?;
    }
    Ok(())
}

/// Brings one file up to its newest version. The caller holds it in the lane.
async fn bring_up(service: &Service, live: &Arc<LiveRun>, path: &LogicalPath) -> Result<(), CallError> {
    let Some(CatchUp { step, seen, seqs }) = live.behind.catch_up(path) else { return Ok(()) };
    let seen = seen.map(|seen| (path.clone(), seen)).into_iter().collect();
    // What fails or panics is done again from the journal.
    let open = OpenJournal::new(&live.lane);
    failpoint::hit("behind.late");
    let place = service.write_place().await?;
    let work = || {
        let staged = live.workspace.stage(&[step], &seen)?;
        match staged.changed_outside() {
            [] => live.workspace.apply(staged),
            changed => Err(ApplyFault::ChangedOutside(changed.to_vec())),
        }
    };
    let applied = service.in_place(work).await?;
    drop(place);
    failpoint::hit("behind.applied");
    match applied {
        Ok(applied) => {
            live.behind.remove(path);
            service.0.syncer.push(live, seqs, applied).await;
        }
        Err(ApplyFault::ChangedOutside(changed)) => {
            live.behind.remove(path);
            mark_for_repair(service, live, &changed).await?;
        }
        Err(ApplyFault::Io(error)) => {
            tracing::warn!(run.id = %live.run_id, ?seqs, %error, "a change that was answered is not in the tree yet");
            return Err(error.into());
        }
    }
    open.close();
    Ok(())
}

/// Sees to it that no file of the run stays behind for longer than it may, until none is.
pub(super) fn watch(service: &Service, live: &Arc<LiveRun>) {
    let (service, live) = (service.clone(), Arc::clone(live));
    tokio::spawn(async move {
        let watching = AssertUnwindSafe(async {
            loop {
                tokio::time::sleep(live.behind.tick()).await;
                let Some(late) = live.behind.late() else { return };
                catch_up_unasked(&service, &live, late).await;
            }
        });
        if watching.catch_unwind().await.is_err() {
            tracing::error!(run.id = %live.run_id, "bringing the tree up to the answers panicked");
            live.behind.stop_watching();
        }
    });
}
