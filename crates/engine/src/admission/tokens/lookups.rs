//! Tokens that are not cached are looked up together, in one query after the other.
//!
//! The first request of a valid token must be answered, however many invalid tokens arrive meanwhile, and from whatever address: a
//! load balancer has one for all callers.

use std::sync::Arc;
use std::time::Duration;

use ledger::LedgerError;
use model::{Sha256, Token};
use tokio::sync::{mpsc, oneshot};

/// Tokens of one query, and tokens in the queue of the next ones.
const MAX_TOKENS: usize = 512;

/// The hash of a token, and where its request waits for the token, if that is valid and one of a run. Dropped if the query fails.
type Lookup = (Sha256, oneshot::Sender<Option<Arc<Token>>>);

/// The queue of the tokens of one kind.
pub(crate) struct Lookups(mpsc::Sender<Lookup>);

impl Lookups {
    /// Starts the task that looks up the tokens by `query`, those that have waited longest first, with a pause after each query.
    pub(crate) fn start<Q: Future<Output = ledger::Result<Vec<Arc<Token>>>> + Send>(
        pause: Duration,
        query: impl Fn(Vec<Sha256>) -> Q + Send + 'static,
    ) -> Self {
        let (queue, mut waiting) = mpsc::channel::<Lookup>(MAX_TOKENS);
        tokio::spawn(async move {
            let mut lookups = Vec::new();
            while waiting.recv_many(&mut lookups, MAX_TOKENS).await > 0 {
                lookups.retain(|(_, done)| !done.is_closed());
                if lookups.is_empty() {
                    continue;
                }
                match query(lookups.iter().map(|(hash, _)| *hash).collect()).await {
                    Ok(found) => {
                        for (hash, done) in lookups.drain(..) {
                            // A request that has left waits for nothing.
                            let _ = done.send(found.iter().find(|token| token.secret_sha256 == hash).cloned());
                        }
                    }
                    Err(error) => {
                        tracing::warn!(error = &error as &dyn std::error::Error, "failed to look up tokens");
                        lookups.clear();
                    }
                }
                if !pause.is_zero() {
                    tokio::time::sleep(pause).await;
                }
            }
        });
        Self(queue)
    }

    /// Looks up the token with this hash, in one query with the others that wait.
    pub(crate) async fn look_up(&self, hash: Sha256) -> ledger::Result<Option<Arc<Token>>> {
        let failed = || LedgerError::Unavailable("tokens cannot be looked up".into());
        let (done, found) = oneshot::channel();
        self.0.send((hash, done)).await.map_err(|_| failed())?;
        found.await.map_err(|_| failed())
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;

    #[tokio::test]
    async fn tokens_that_arrive_during_a_query_are_looked_up_together() {
        let (queries, mut queried) = mpsc::unbounded_channel();
        let may_end = Arc::new(Semaphore::new(0));
        let ending = Arc::clone(&may_end);
        let lookups = Arc::new(Lookups::start(Duration::ZERO, move |hashes: Vec<Sha256>| {
            queries.send(hashes).unwrap();
            let ending = Arc::clone(&ending);
            async move {
                ending.acquire().await.unwrap().forget();
                Ok(Vec::new())
            }
        }));
        let hash = |number: usize| Sha256::of(&number.to_be_bytes());
        let look_up = |number: usize| {
            let (lookups, hash) = (Arc::clone(&lookups), hash(number));
            tokio::spawn(async move { lookups.look_up(hash).await })
        };
        let first = look_up(0);
        assert_eq!(queried.recv().await.unwrap(), [hash(0)]);
        let waiting: Vec<_> = (1..=MAX_TOKENS + 2).map(look_up).collect();
        tokio::task::yield_now().await;
        waiting[0].abort();
        tokio::task::yield_now().await;
        may_end.add_permits(3);
        let hashes = |numbers: std::ops::RangeInclusive<usize>| numbers.map(hash).collect::<Vec<_>>();
        let next = queried.recv().await.unwrap();
        assert_eq!(
            next,
            hashes(2..=MAX_TOKENS),
            "who has waited longest comes first, and who has left is not looked up"
        );
        assert_eq!(queried.recv().await.unwrap(), hashes(MAX_TOKENS + 1..=MAX_TOKENS + 2));
        assert!(first.await.unwrap().unwrap().is_none());
        for (number, waiting) in (1..).zip(waiting) {
            assert_eq!(waiting.await.is_err(), number == 1);
        }
    }

    #[tokio::test]
    async fn a_failed_query_fails_the_requests_that_wait_for_it() {
        let lookups = Lookups::start(Duration::ZERO, |_| async { Err(LedgerError::Unavailable("down".into())) });
        for _ in 0..2 {
            assert!(matches!(lookups.look_up(Sha256::of(b"x")).await, Err(LedgerError::Unavailable(_))));
        }
    }
}
