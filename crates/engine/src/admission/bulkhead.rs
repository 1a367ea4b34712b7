//! RunBulkhead of which one run may take some, and never all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use model::{Code, Refusal, RunId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::metrics;

/// One run gets at most this part of the places: whoever holds them for long keeps the other runs from little.
const PART_OF_A_RUN: usize = 4;

/// RunBulkhead for work that takes as long as its caller likes.
pub struct RunBulkhead {
    /// What they are for, as callers call it.
    what: &'static str,
    all: Arc<Semaphore>,
    of_a_run: usize,
    runs: Runs,
}

/// The runs that hold places or wait for them.
type Runs = Arc<Mutex<HashMap<RunId, OfRun>>>;

struct OfRun {
    places: Arc<Semaphore>,
    /// Who holds one of them or waits for it.
    users: usize,
}

/// A place; it is free again when this is dropped.
#[derive(Debug)]
pub struct Place {
    _any: OwnedSemaphorePermit,
    _own: OwnedSemaphorePermit,
    _user: User,
}

/// Somebody who holds or waits: keeps the run known.
struct User {
    run: RunId,
    runs: Runs,
}

impl RunBulkhead {
    /// `count` places for `what`.
    pub fn new(what: &'static str, count: usize) -> Self {
        let of_a_run = (count / PART_OF_A_RUN).max(1);
        Self { what, all: Arc::new(Semaphore::new(count)), of_a_run, runs: Arc::default() }
    }

    /// Takes a place for `run`; waits for one no longer than `patience`.
    ///
    /// # Errors
    ///
    /// `RATE_LIMITED` where the run has as many as it may; `UNAVAILABLE` where nobody has left one.
    pub async fn enter(&self, run: &RunId, patience: Duration) -> Result<Place, Refusal> {
        let until = Instant::now() + patience;
        let (own, user) = self.user(run);
        let own = tokio::time::timeout_at(until, own.acquire_owned()).await;
        let Ok(Ok(own)) = own else { return Err(self.too_many()) };
        let any = tokio::time::timeout_at(until, Arc::clone(&self.all).acquire_owned()).await;
        // None of them is ever closed.
        let Ok(Ok(any)) = any else { return Err(no_permit(self.what, patience)) };
        Ok(Place { _any: any, _own: own, _user: user })
    }

    fn user(&self, run: &RunId) -> (Arc<Semaphore>, User) {
        let mut runs = lock(&self.runs);
        let new = || OfRun { places: Arc::new(Semaphore::new(self.of_a_run)), users: 0 };
        let of_run = runs.entry(run.clone()).or_insert_with(new);
        of_run.users += 1;
        (Arc::clone(&of_run.places), User { run: run.clone(), runs: Arc::clone(&self.runs) })
    }

    fn too_many(&self) -> Refusal {
        metrics::rate_limited();
        Refusal::new(
            Code::RateLimited,
            format!("the run has as many {} under way as it may have at a time: {}", self.what, self.of_a_run),
            "Finish those that are under way, or wait for the seconds that Retry-After says.",
        )
        .with_details(|details| details.limit = Some(self.of_a_run as u64))
    }
}

/// No place for `what` became free within `patience`.
pub fn no_permit(what: &str, patience: Duration) -> Refusal {
    Refusal::new(
        Code::Unavailable,
        format!("no place for {what} became free within {} seconds; nothing was changed", patience.as_secs()),
        "Try again after the seconds that Retry-After says.",
    )
}

fn lock(runs: &Runs) -> MutexGuard<'_, HashMap<RunId, OfRun>> {
    // Nothing panics while it holds the lock.
    runs.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("User").field(&self.run).finish()
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let mut runs = lock(&self.runs);
        if let Some(of_run) = runs.get_mut(&self.run) {
            of_run.users -= 1;
            if of_run.users == 0 {
                runs.remove(&self.run);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(20);

    fn run(name: &str) -> RunId {
        RunId::parse(name).unwrap()
    }

    #[tokio::test]
    async fn one_run_gets_a_quarter_and_the_others_the_rest() {
        let places = RunBulkhead::new("exports", 8);
        let mut held = vec![places.enter(&run("a"), SOON).await.unwrap(), places.enter(&run("a"), SOON).await.unwrap()];
        let refused = places.enter(&run("a"), SOON).await.unwrap_err();
        assert_eq!((refused.code, refused.details.limit), (Code::RateLimited, Some(2)));
        for other in ["b", "b", "c", "c", "d", "d"] {
            held.push(places.enter(&run(other), SOON).await.unwrap());
        }
        assert_eq!(places.enter(&run("e"), SOON).await.unwrap_err().code, Code::Unavailable);
        held.remove(0);
        held.push(places.enter(&run("e"), SOON).await.unwrap());
        drop(held);
        assert!(lock(&places.runs).is_empty(), "nothing is kept of runs that are quiet");
    }

    #[tokio::test]
    async fn who_waits_gets_the_place_that_is_left() {
        let places = Arc::new(RunBulkhead::new("exports", 1));
        let first = places.enter(&run("a"), SOON).await.unwrap();
        let waiting = tokio::spawn({
            let places = Arc::clone(&places);
            async move { places.enter(&run("a"), Duration::from_mins(1)).await }
        });
        tokio::time::sleep(SOON).await;
        drop(first);
        assert!(waiting.await.unwrap().is_ok());
        assert!(lock(&places.runs).is_empty());
    }
}
