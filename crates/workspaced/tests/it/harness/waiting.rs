//! Waiting for a condition, with a deadline of many times what it takes on a quiet machine.

use std::fmt::Display;
use std::panic::Location;
use std::path::Path;
use std::time::{Duration, Instant};

use super::Server;

pub(super) const PATIENCE: Duration = Duration::from_mins(2);
/// Between two looks at a condition: the first pause and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));

/// What a condition says: whether it holds, what it has found, or why it does not hold yet.
pub(crate) trait Condition {
    type Found;
    fn found(self) -> Result<Self::Found, String>;
}

impl Condition for bool {
    type Found = ();
    fn found(self) -> Result<(), String> {
        self.then_some(()).ok_or_else(String::new)
    }
}

impl<T> Condition for Option<T> {
    type Found = T;
    fn found(self) -> Result<T, String> {
        self.ok_or_else(String::new)
    }
}

impl<T, E: Display> Condition for Result<T, E> {
    type Found = T;
    fn found(self) -> Result<T, String> {
        self.map_err(|why| why.to_string())
    }
}

/// Waits until `condition` holds, and returns what it has found. Panics with `what` it has waited for.
#[track_caller]
pub(crate) fn until<C: Condition, F: Future<Output = C>>(
    what: &str,
    condition: impl FnMut() -> F,
) -> impl Future<Output = C::Found> {
    poll(Location::caller(), what, String::new, condition)
}

/// As [`until`], without a runtime.
#[track_caller]
pub(crate) fn until_blocking<C: Condition>(what: &str, mut condition: impl FnMut() -> C) -> C::Found {
    let (started, mut pause) = (Instant::now(), PAUSES.0);
    loop {
        match condition().found() {
            Ok(found) => return found,
            Err(why) => assert!(started.elapsed() < PATIENCE, "waited for {PATIENCE:?}: {what}: {why}"),
        }
        std::thread::sleep(pause);
        pause = PAUSES.1.min(pause * 2);
    }
}

async fn poll<C: Condition, F: Future<Output = C>>(
    caller: &Location<'_>,
    what: &str,
    more: impl Fn() -> String,
    mut condition: impl FnMut() -> F,
) -> C::Found {
    let (started, mut pause) = (Instant::now(), PAUSES.0);
    loop {
        match condition().await.found() {
            Ok(found) => return found,
            Err(why) => {
                assert!(started.elapsed() < PATIENCE, "{caller}: waited for {PATIENCE:?}: {what}: {why}\n{}", more());
            }
        }
        tokio::time::sleep(pause).await;
        pause = PAUSES.1.min(pause * 2);
    }
}

/// Awaits `future`. Panics with `what` it has waited for.
#[track_caller]
pub(crate) fn in_time<T>(what: &str, future: impl Future<Output = T>) -> impl Future<Output = T> {
    let caller = Location::caller();
    async move {
        let ended = tokio::time::timeout(PATIENCE, future).await;
        ended.unwrap_or_else(|_| panic!("{caller}: waited for {PATIENCE:?}: {what}"))
    }
}

impl Server {
    /// As [`until`], and shows the log when it gives up.
    #[track_caller]
    pub(crate) fn until<C: Condition, F: Future<Output = C>>(
        &self,
        what: &str,
        condition: impl FnMut() -> F,
    ) -> impl Future<Output = C::Found> {
        poll(Location::caller(), what, || self.log(), condition)
    }

    /// Waits until the process pauses at the failpoint of the file `armed`.
    #[track_caller]
    pub(crate) fn until_paused(&self, armed: &Path) -> impl Future<Output = ()> {
        let caller = Location::caller();
        async move {
            // Without the file, the next pause is seen.
            let paused = armed.with_extension("paused");
            let what = "the process pauses at the failpoint";
            poll(caller, what, || self.log(), async || std::fs::remove_file(&paused)).await;
        }
    }

    /// Waits until the log has a text.
    #[track_caller]
    pub(crate) fn until_logged(&self, text: &str) -> impl Future<Output = ()> {
        self.until_logged_times(text, 1)
    }

    /// Waits until the log has a text so many times.
    #[track_caller]
    pub(crate) fn until_logged_times(&self, text: &str, count: usize) -> impl Future<Output = ()> {
        let caller = Location::caller();
        async move {
            let what = format!("the log has `{text}` {count} times");
            poll(caller, &what, || self.log(), async || self.log().matches(text).count() >= count).await;
        }
    }
}
