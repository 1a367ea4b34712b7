//! Who uses a pool.

use std::cell::Cell;
use std::hash::{BuildHasher as _, Hash, RandomState};
use std::sync::LazyLock;

/// One of those between whom a pool is shared: a token, a run, a peer address or a class of work.
///
/// Stored as a keyed hash. Two parties with the same hash would share one share, which harms nobody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Party(u64);

/// The parties that one piece of work counts for, each with its own share. Without any, work has no cap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Parties([Option<Party>; 2]);

tokio::task_local! {
    /// The parties of the request that the task serves.
    static CURRENT: Cell<Parties>;
}

impl Party {
    /// Returns the party of a kind with a name.
    pub fn of(kind: &'static str, name: impl Hash) -> Self {
        static KEY: LazyLock<RandomState> = LazyLock::new(RandomState::new);
        Self(KEY.hash_one((kind, name)))
    }

    /// Returns the hash that stands for the party in this process.
    pub fn id(self) -> u64 {
        self.0
    }
}

impl Parties {
    /// One party.
    pub fn one(party: Party) -> Self {
        Self([Some(party), None])
    }

    /// Two parties, such as a token and its run.
    pub fn two(one: Party, other: Party) -> Self {
        Self([Some(one), Some(other)])
    }

    /// Returns the first of these parties together with `party`.
    #[must_use]
    pub fn and(self, party: Party) -> Self {
        Self([self.0[0], Some(party).filter(|party| self.0[0] != Some(*party))])
    }

    /// Returns the first of these parties.
    pub fn first(self) -> Option<Party> {
        self.0[0]
    }

    /// Returns the parties of the current request; none outside a request.
    pub fn current() -> Self {
        CURRENT.try_with(Cell::get).unwrap_or_default()
    }

    /// Runs `work`, whose parties these are until [`identify`](Self::identify) is called in it.
    pub fn scope<T>(self, work: impl Future<Output = T>) -> impl Future<Output = T> {
        // Not an `async fn`, which would be twice as large as `work`.
        CURRENT.scope(Cell::new(self), work)
    }

    /// Calls `work`, whose parties these are.
    pub fn enter<T>(self, work: impl FnOnce() -> T) -> T {
        CURRENT.sync_scope(Cell::new(self), work)
    }

    /// Sets the parties of the current request. Does nothing outside a request.
    pub fn identify(self) {
        // Only tests of single extractors run outside a request.
        let _ = CURRENT.try_with(|current| current.set(self));
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Party> {
        self.0.into_iter().flatten()
    }
}
