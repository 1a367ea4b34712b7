//! Deletes objects of the object store that no run refers to.
//!
//! A run refers to its base and to its large contents from the commit that names them until it is deleted. To a content that is too
//! large to be restored, it refers only while one of its files has it. A content that the index of a base names stays as long as the
//! index. What is about to be committed is reserved in the ledger.

use std::error::Error;
use std::time::Duration;

use content::{ObjectError, ObjectName, Objects};
use engine::CallError;
use engine::clock::new_claim;
use engine::runs::contents_of_bases;
use ledger::Role;

use crate::service::Service;

/// Objects that are listed at a time.
const PAGE: usize = 1000;
/// The shortest and the longest time between two passes.
const PASS_INTERVAL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_hours(1));

/// Runs until the service shuts down. Returns at once if there is no object store.
pub(crate) async fn run(service: Service) {
    let Some(objects) = service.state.objects.clone() else { return };
    let shutdown = service.state.shutdown.clone();
    let interval = (objects.grace() / 4).clamp(PASS_INTERVAL.0, PASS_INTERVAL.1);
    loop {
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            () = shutdown.cancelled() => return,
        }
        if !service.holds(Role::Retention) {
            continue;
        }
        tokio::select! {
            passed = pass(&service, &objects) => match passed {
                Ok(0) => {}
                Ok(deleted) => tracing::info!(deleted, "deleted objects that no run refers to"),
                Err(error) => {
                    // The next pass tries again.
                    tracing::warn!(error = &error as &dyn Error, "objects that no run refers to could not be deleted");
                }
            },
            () = shutdown.cancelled() => return,
        }
    }
}

/// Deletes every object that has been unused for the grace period and that no run refers to. Returns how many.
async fn pass(service: &Service, objects: &Objects) -> Result<usize, CallError> {
    while service.state.ledger.end_references().await? > 0 {}
    let mut deleted = collect_all(objects, ObjectName::BASES, |_| true).await?;
    // After the indexes, so that what only deleted ones have named goes in the same pass.
    let named = contents_of_bases(objects).await?;
    let is_unnamed = |name: &ObjectName| !matches!(name, ObjectName::Content(sha256) if named.contains(sha256));
    deleted += collect_all(objects, ObjectName::CONTENTS, is_unnamed).await?;
    Ok(deleted)
}

/// Deletes those objects with names that begin with `prefix` that may be deleted.
async fn collect_all(
    objects: &Objects,
    prefix: &'static str,
    may_be_deleted: impl Fn(&ObjectName) -> bool,
) -> Result<usize, CallError> {
    let (mut deleted, mut after) = (0, None);
    loop {
        let page = list(objects, prefix, after.as_ref()).await?;
        let Some(last) = page.last() else { return Ok(deleted) };
        after = Some(last.clone());
        for name in page.into_iter().filter(&may_be_deleted) {
            deleted += collect(objects, &name).await?;
        }
    }
}

async fn list(
    objects: &Objects,
    prefix: &'static str,
    after: Option<&ObjectName>,
) -> Result<Vec<ObjectName>, ObjectError> {
    let page = objects.store().list(prefix, after, PAGE).await?;
    Ok(page.into_iter().map(|(name, _)| name).collect())
}

/// Deletes an object, if it has been unused for the grace period and no run refers to it.
async fn collect(objects: &Objects, name: &ObjectName) -> Result<usize, CallError> {
    let (reference, claim) = (name.reference(), new_claim());
    let Some(claimed) = objects.claim(&reference, &claim).await? else { return Ok(0) };
    failpoint::hit("objects.unreferenced");
    Ok(claimed.delete(std::slice::from_ref(name)).await?)
}
