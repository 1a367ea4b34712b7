//! Pools of permits or bytes that callers share.
//!
//! One party gets at most a quarter of an idle pool, and less the fuller the pool is: after its share, three times as much must
//! stay free. So even four greedy parties leave a part for a fifth. A party that holds nothing may always take one item, however
//! large, if it fits. Those that wait are served by turns: who holds least comes first, then who was served longest ago. A caller
//! therefore never waits behind the queue of another one.

mod party;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;

pub use crate::party::{Parties, Party};

/// One party gets one part in this number.
const PARTS: u64 = 4;

/// A pool of which no party gets more than a quarter. Cheap to clone.
#[derive(Clone)]
pub struct SharedPool(Arc<Inner>);

struct Inner {
    name: &'static str,
    total: u64,
    state: Mutex<PoolState>,
}

struct PoolState {
    free: u64,
    /// The parties that hold something or wait.
    usage: HashMap<Party, PartyUsage>,
    /// A queue for each combination of parties that waits.
    queues: Vec<PoolQueue>,
    /// Number of the newest grant or waiter.
    last: u64,
}

/// What a party holds.
#[derive(Default)]
struct PartyUsage {
    held: u64,
    waiting: usize,
    /// Number of its newest grant. Forgotten when the party is idle.
    served: u64,
}

struct PoolQueue {
    parties: Parties,
    /// By number, so that the first has waited longest.
    waiters: BTreeMap<u64, Waiter>,
}

struct Waiter {
    amount: u64,
    grant: oneshot::Sender<Permit>,
}

/// A part of a pool, released on drop.
#[must_use]
pub struct Permit {
    pool: Arc<Inner>,
    parties: Parties,
    amount: u64,
}

/// Why a pool gives nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// A party has its share.
    OwnShare,
    /// Others use the pool.
    Exhausted,
}

/// Whether a party may take an amount.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fit {
    Fits,
    OverShare,
    NoRoom,
}

/// Removes a waiter that stops waiting.
struct WaitGuard<'p> {
    pool: &'p Arc<Inner>,
    parties: Parties,
    number: u64,
}

impl SharedPool {
    /// Creates a pool of `total` permits or bytes, at least one.
    pub fn new(name: &'static str, total: u64) -> Self {
        let total = total.max(1);
        let state = PoolState { free: total, usage: HashMap::new(), queues: Vec::new(), last: 0 };
        Self(Arc::new(Inner { name, total, state: Mutex::new(state) }))
    }

    /// Returns the name of the pool in the metrics.
    pub fn name(&self) -> &'static str {
        self.0.name
    }

    /// Returns the size of the pool.
    pub fn total(&self) -> u64 {
        self.0.total
    }

    /// Returns how much is free.
    pub fn free(&self) -> u64 {
        self.0.state.lock().free
    }

    /// Returns the largest share of a party: a quarter, at least one.
    pub fn share(&self) -> u64 {
        (self.0.total / PARTS).max(1)
    }

    /// Takes `amount`, or all of the pool if that is less.
    ///
    /// # Errors
    ///
    /// If that is not possible at once.
    pub fn try_acquire(&self, parties: Parties, amount: u64) -> Result<Permit, Denied> {
        let amount = amount.min(self.0.total);
        let mut state = self.0.state.lock();
        match state.fit(parties, amount) {
            Fit::Fits if !state.is_awaited() => {
                state.take(parties, amount);
                Ok(self.permit(parties, amount))
            }
            Fit::Fits | Fit::NoRoom => Err(Denied::Exhausted),
            Fit::OverShare => Err(Denied::OwnShare),
        }
    }

    /// Takes `amount`, or all of the pool if that is less. Waits for it as long as it takes.
    pub async fn acquire(&self, parties: Parties, amount: u64) -> Permit {
        let amount = amount.min(self.0.total);
        loop {
            let (number, granted) = {
                let mut state = self.0.state.lock();
                if state.fit(parties, amount) == Fit::Fits && !state.is_awaited() {
                    state.take(parties, amount);
                    return self.permit(parties, amount);
                }
                state.wait(parties, amount)
            };
            let _waiting = WaitGuard { pool: &self.0, parties, number };
            // It may be its turn before those that wait for room.
            self.0.serve();
            // The sender is only dropped with its permit.
            if let Ok(permit) = granted.await {
                return permit;
            }
        }
    }

    /// As [`acquire`](Self::acquire), and waits at most for `timeout`.
    ///
    /// # Errors
    ///
    /// If nothing was released in time.
    pub async fn acquire_within(&self, parties: Parties, amount: u64, timeout: Duration) -> Result<Permit, Denied> {
        if let Ok(permit) = self.try_acquire(parties, amount) {
            return Ok(permit);
        }
        let acquired = tokio::time::timeout(timeout, self.acquire(parties, amount)).await;
        acquired.map_err(|_| {
            let fit = self.0.state.lock().fit(parties, amount.min(self.0.total));
            if fit == Fit::OverShare { Denied::OwnShare } else { Denied::Exhausted }
        })
    }

    fn permit(&self, parties: Parties, amount: u64) -> Permit {
        Permit { pool: Arc::clone(&self.0), parties, amount }
    }
}

impl Inner {
    /// Gives what is free to those whose turn it is.
    fn serve(self: &Arc<Self>) {
        let mut granted = Vec::new();
        {
            let mut state = self.state.lock();
            while let Some((parties, waiter)) = state.next() {
                let permit = Permit { pool: Arc::clone(self), parties, amount: waiter.amount };
                granted.push((waiter.grant, permit));
            }
        }
        for (grant, permit) in granted {
            // The permit of a waiter that has left is dropped here, without the lock.
            drop(grant.send(permit));
        }
    }
}

impl PoolState {
    fn fit(&self, parties: Parties, amount: u64) -> Fit {
        let held = self.held(parties).0;
        if held == 0 {
            return if amount <= self.free { Fit::Fits } else { Fit::NoRoom };
        }
        let after = held.saturating_add(amount);
        let fits = amount <= self.free && after.saturating_mul(PARTS - 1) <= self.free - amount;
        if fits { Fit::Fits } else { Fit::OverShare }
    }

    /// Returns the largest amount that one of the parties holds, and the sum.
    fn held(&self, parties: Parties) -> (u64, u64) {
        let held = |party: Party| self.usage.get(&party).map_or(0, |usage| usage.held);
        parties.iter().map(held).fold((0, 0), |(most, sum), held| (most.max(held), sum.saturating_add(held)))
    }

    /// Returns the newest grant to one of the parties, and the sum.
    fn served(&self, parties: Parties) -> (u64, u64) {
        let served = |party: Party| self.usage.get(&party).map_or(0, |usage| usage.served);
        parties.iter().map(served).fold((0, 0), |(newest, sum), served| (newest.max(served), sum + served))
    }

    /// Whether somebody waits for room, whom nobody may overtake.
    fn is_awaited(&self) -> bool {
        let waits = |queue: &PoolQueue| {
            let first = queue.waiters.values().next();
            first.is_some_and(|first| self.fit(queue.parties, first.amount) != Fit::OverShare)
        };
        self.queues.iter().any(waits)
    }

    fn take(&mut self, parties: Parties, amount: u64) {
        self.last += 1;
        self.free -= amount;
        for party in parties.iter() {
            let usage = self.usage.entry(party).or_default();
            usage.held += amount;
            usage.served = self.last;
        }
    }

    fn wait(&mut self, parties: Parties, amount: u64) -> (u64, oneshot::Receiver<Permit>) {
        self.last += 1;
        let (grant, granted) = oneshot::channel();
        let waiter = Waiter { amount, grant };
        for party in parties.iter() {
            self.usage.entry(party).or_default().waiting += 1;
        }
        match self.queues.iter_mut().find(|queue| queue.parties == parties) {
            Some(queue) => drop(queue.waiters.insert(self.last, waiter)),
            None => self.queues.push(PoolQueue { parties, waiters: BTreeMap::from([(self.last, waiter)]) }),
        }
        (self.last, granted)
    }

    /// Takes for the waiter whose turn it is; `None` if nothing fits.
    fn next(&mut self) -> Option<(Parties, Waiter)> {
        let turn = |queue: &PoolQueue| {
            let (number, first) = queue.waiters.first_key_value()?;
            let fit = self.fit(queue.parties, first.amount);
            let turn = (self.held(queue.parties), self.served(queue.parties), *number);
            (fit != Fit::OverShare).then_some((turn, fit, queue.parties))
        };
        let (turn, fit, parties) = self.queues.iter().filter_map(turn).min_by_key(|(turn, ..)| *turn)?;
        if fit == Fit::NoRoom {
            return None;
        }
        let waiter = self.leave(parties, turn.2)?;
        self.take(parties, waiter.amount);
        Some((parties, waiter))
    }

    /// Removes a waiter, if it still waits.
    fn leave(&mut self, parties: Parties, number: u64) -> Option<Waiter> {
        let at = self.queues.iter().position(|queue| queue.parties == parties)?;
        let waiter = self.queues[at].waiters.remove(&number)?;
        if self.queues[at].waiters.is_empty() {
            self.queues.swap_remove(at);
        }
        self.update(parties, |usage| usage.waiting -= 1);
        Some(waiter)
    }

    fn update(&mut self, parties: Parties, change: impl Fn(&mut PartyUsage)) {
        for party in parties.iter() {
            let Some(usage) = self.usage.get_mut(&party) else { continue };
            change(usage);
            if usage.held == 0 && usage.waiting == 0 {
                self.usage.remove(&party);
            }
        }
    }
}

impl Permit {
    /// Returns how much of the pool this is.
    pub fn amount(&self) -> u64 {
        self.amount
    }

    /// Makes this as large as `amount`, or as all of the pool if that is less. It stays one item, which may be larger than a share
    /// if its parties hold nothing else.
    ///
    /// # Errors
    ///
    /// If that is not possible at once. It keeps its size then.
    pub fn try_grow(&mut self, amount: u64) -> Result<(), Denied> {
        let more = amount.min(self.pool.total).saturating_sub(self.amount);
        let mut state = self.pool.state.lock();
        let is_alone = state.held(self.parties).0 <= self.amount;
        let fit = if is_alone && more <= state.free { Fit::Fits } else { state.fit(self.parties, more) };
        match fit {
            Fit::Fits if !state.is_awaited() => {
                state.take(self.parties, more);
                self.amount += more;
                Ok(())
            }
            _ if is_alone => Err(Denied::Exhausted),
            Fit::Fits | Fit::NoRoom => Err(Denied::Exhausted),
            Fit::OverShare => Err(Denied::OwnShare),
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let amount = self.amount;
        let has_waiters = {
            let mut state = self.pool.state.lock();
            state.free += amount;
            state.update(self.parties, |usage| usage.held -= amount);
            !state.queues.is_empty()
        };
        if has_waiters {
            self.pool.serve();
        }
    }
}

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        let left = {
            let mut state = self.pool.state.lock();
            state.leave(self.parties, self.number).is_some() && !state.queues.is_empty()
        };
        if left {
            // Others may have waited for this one to get its room.
            self.pool.serve();
        }
    }
}

impl fmt::Debug for SharedPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedPool").field("name", &self.0.name).field("free", &self.free()).finish_non_exhaustive()
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("pool", &self.pool.name).field("amount", &self.amount).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
