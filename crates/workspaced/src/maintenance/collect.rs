//! Deletes objects of the object store that no run refers to.
//!
//! A run refers to its base and to its large contents from the commit that names them until it is deleted. To a content that is too
//! large to be restored, it refers only while one of its files has it. What is about to be committed is reserved in the ledger.

use std::error::Error;
use std::time::Duration;

use content::{ObjectError, ObjectName, Objects};
use engine::CallError;
use engine::clock::new_claim;
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
    let mut deleted = 0;
    for prefix in [ObjectName::CONTENTS, ObjectName::BASES] {
        let mut after = None;
        // The parts of a base are next to each other, and may be on two pages.
        let mut base: Vec<ObjectName> = Vec::new();
        loop {
            let page = list(objects, prefix, after.as_ref()).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.clone());
            for name in page {
                if base.first().is_some_and(|first| first.reference() != name.reference()) {
                    deleted += collect(objects, std::mem::take(&mut base)).await?;
                }
                base.push(name);
            }
        }
        deleted += collect(objects, base).await?;
    }
    Ok(deleted)
}

async fn list(
    objects: &Objects,
    prefix: &'static str,
    after: Option<&ObjectName>,
) -> Result<Vec<ObjectName>, ObjectError> {
    let page = objects.store().list(prefix, after, PAGE).await?;
    Ok(page.into_iter().map(|(name, _)| name).collect())
}

/// Deletes objects with one reference, if they have been unused for the grace period and no run has the reference.
async fn collect(objects: &Objects, mut names: Vec<ObjectName>) -> Result<usize, CallError> {
    let Some(reference) = names.first().map(ObjectName::reference) else { return Ok(0) };
    // Without its index a base does not exist, so that goes first.
    names.sort_by_key(|name| !name.is_index());
    let claim = new_claim();
    let Some(claimed) = objects.claim(&reference, &claim).await? else { return Ok(0) };
    failpoint::hit("objects.unreferenced");
    Ok(claimed.delete(&names).await?)
}
