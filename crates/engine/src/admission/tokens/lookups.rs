//! Tokens that are not cached are looked up together, in one query after the other.
//!
//! The first request of a valid token must be answered, however many invalid tokens arrive meanwhile, and from whatever address: a
//! load balancer has one for all callers.

use std::mem;
use std::sync::Arc;

use model::{Sha256, Token};
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Tokens of one query.
const MAX_TOKENS: usize = 512;

/// What is looked up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LookupKind {
    /// Tokens of runs, by their hashes.
    Runs,
    /// Tokens of operators, of which all are read.
    Operators,
}

/// The tokens of one kind that wait to be looked up.
#[derive(Default)]
pub(crate) struct Lookups(Mutex<WaitingLookups>);

/// A hash, and what its request waits for: the token, if it is valid and that of a run. It is dropped if the query fails.
type Lookup = (Sha256, oneshot::Sender<Option<Arc<Token>>>);

#[derive(Default)]
struct WaitingLookups {
    tokens: Vec<Lookup>,
    is_running: bool,
}

impl Lookups {
    /// Adds a token. Returns what its request waits for, and whether the caller has to start the queries.
    pub(crate) fn add(&self, hash: Sha256) -> (oneshot::Receiver<Option<Arc<Token>>>, bool) {
        let (done, is_done) = oneshot::channel();
        let mut waiting = self.0.lock();
        waiting.tokens.push((hash, done));
        (is_done, !mem::replace(&mut waiting.is_running, true))
    }

    /// Takes the tokens of the next query, those that have waited longest; `None` if none waits any more.
    pub(crate) fn next(&self) -> Option<Vec<Lookup>> {
        let mut waiting = self.0.lock();
        waiting.tokens.retain(|(_, done)| !done.is_closed());
        if waiting.tokens.is_empty() {
            waiting.is_running = false;
            return None;
        }
        let count = waiting.tokens.len().min(MAX_TOKENS);
        Some(waiting.tokens.drain(..count).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_that_arrive_during_a_query_are_looked_up_together() {
        let lookups = Lookups::default();
        let hash = |number: usize| Sha256::of(&number.to_be_bytes());
        let (_first, is_first) = lookups.add(hash(0));
        assert!(is_first);
        assert_eq!(lookups.next().unwrap().len(), 1);
        let waiting: Vec<_> = (1..=MAX_TOKENS + 2).map(|number| lookups.add(hash(number))).collect();
        assert!(waiting.iter().all(|(_, is_first)| !is_first), "the query is running");
        let next = lookups.next().unwrap();
        assert_eq!((next.len(), next[0].0), (MAX_TOKENS, hash(1)), "who has waited longest comes first");
        drop(waiting);
        assert!(lookups.next().is_none(), "nobody waits any more");
        assert!(lookups.add(hash(0)).1, "the next one starts again");
    }
}
