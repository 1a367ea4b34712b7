//! What there is once for a key at a time: a lock, or a value as long as its guard.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::OwnedMutexGuard;

/// Locks by key, such as the IDs of calls in progress. Each key has its own, so that who ends wakes only the next one.
#[derive(Debug)]
pub struct KeyedLocks<K: Eq + Hash> {
    locks: Mutex<HashMap<K, Arc<tokio::sync::Mutex<()>>>>,
}

/// The lock of a key, released on drop.
#[derive(Debug)]
pub struct KeyedLockGuard<'a, K: Eq + Hash> {
    locks: &'a KeyedLocks<K>,
    key: K,
    lock: Arc<tokio::sync::Mutex<()>>,
    /// `None` while waiting.
    guard: Option<OwnedMutexGuard<()>>,
}

impl<K: Eq + Hash> Default for KeyedLocks<K> {
    fn default() -> Self {
        Self { locks: Mutex::default() }
    }
}

impl<K: Clone + Eq + Hash> KeyedLocks<K> {
    /// Waits until nobody else holds the lock of `key`.
    pub async fn lock(&self, key: &K) -> KeyedLockGuard<'_, K> {
        let lock = Arc::clone(self.locks.lock().entry(key.clone()).or_default());
        // Created before the wait, so that a cancelled wait also removes its entry.
        let mut guard = KeyedLockGuard { locks: self, key: key.clone(), lock, guard: None };
        guard.guard = Some(Arc::clone(&guard.lock).lock_owned().await);
        guard
    }
}

impl<K: Eq + Hash> Drop for KeyedLockGuard<'_, K> {
    fn drop(&mut self) {
        drop(self.guard.take());
        let mut locks = self.locks.locks.lock();
        // Clones are made under the table's lock. If only the table and this guard have one, nobody else waits.
        if Arc::strong_count(&self.lock) <= 2 {
            locks.remove(&self.key);
        }
    }
}

/// Values by key, each of them there as long as its guard.
#[derive(Debug)]
pub(crate) struct Keyed<K: Eq + Hash, V>(Arc<Mutex<HashMap<K, V>>>);

/// The only value of its key, which is removed on drop.
pub(crate) struct KeyedGuard<K: Eq + Hash, V> {
    all: Keyed<K, V>,
    key: K,
}

impl<K: Eq + Hash, V> Default for Keyed<K, V> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Clone + Eq + Hash, V: Clone> Keyed<K, V> {
    /// Adds the value of `key`, until the guard is dropped.
    ///
    /// # Errors
    ///
    /// The value that is there.
    pub(crate) fn add(&self, key: K, value: V) -> Result<KeyedGuard<K, V>, V> {
        let mut all = self.0.lock();
        if let Some(present) = all.get(&key) {
            return Err(present.clone());
        }
        all.insert(key.clone(), value);
        Ok(KeyedGuard { all: Self(Arc::clone(&self.0)), key })
    }

    /// Returns the value of `key`, if there is one.
    pub(crate) fn get(&self, key: &K) -> Option<V> {
        self.0.lock().get(key).cloned()
    }

    /// Returns all values.
    pub(crate) fn values(&self) -> Vec<V> {
        self.0.lock().values().cloned().collect()
    }

    /// Returns the number of values.
    pub(crate) fn len(&self) -> usize {
        self.0.lock().len()
    }
}

impl<K: Eq + Hash, V> Drop for KeyedGuard<K, V> {
    fn drop(&mut self) {
        self.all.0.lock().remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use model::ToolCallId;

    use super::*;

    fn id(raw: &str) -> ToolCallId {
        ToolCallId::parse(raw).unwrap()
    }

    #[tokio::test]
    async fn a_call_that_ends_wakes_only_the_next_and_the_table_is_emptied() {
        let calls = Arc::new(KeyedLocks::default());
        let first = calls.lock(&id("a")).await;
        let (polls, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let mut tasks = Vec::new();
        for number in 0..300 {
            let (calls, polls, done) = (Arc::clone(&calls), Arc::clone(&polls), Arc::clone(&done));
            tasks.push(tokio::spawn(async move {
                let id = id("a");
                let mut locking = std::pin::pin!(calls.lock(&id));
                let guard = std::future::poll_fn(|context| {
                    polls.fetch_add(1, Ordering::Relaxed);
                    locking.as_mut().poll(context)
                });
                let _guard = guard.await;
                done.lock().push(number);
            }));
            tokio::task::yield_now().await;
        }
        drop(calls.lock(&id("b")).await);
        drop(first);
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*done.lock(), (0..300).collect::<Vec<_>>(), "in order of arrival");
        assert!(polls.load(Ordering::Relaxed) <= 2 * 300, "{polls:?} polls");
        assert!(calls.locks.lock().is_empty());
    }

    #[tokio::test]
    async fn a_cancelled_wait_leaves_the_queue() {
        let calls = KeyedLocks::default();
        let first = calls.lock(&id("a")).await;
        let soon = std::time::Duration::from_millis(10);
        assert!(tokio::time::timeout(soon, calls.lock(&id("a"))).await.is_err());
        drop(first);
        assert!(calls.locks.lock().is_empty());
        drop(calls.lock(&id("a")).await);
        assert!(calls.locks.lock().is_empty());
    }

    #[test]
    fn a_value_is_there_as_long_as_its_guard() {
        let all = Keyed::default();
        let guard = all.add("a", 1).ok().unwrap();
        assert_eq!(all.add("a", 2).err(), Some(1));
        let other = all.add("b", 2).ok().unwrap();
        drop(guard);
        assert_eq!((all.get(&"a"), all.get(&"b"), all.len()), (None, Some(2), 1));
        assert!(all.add("a", 3).is_ok(), "it can be there again");
        drop(other);
        assert!(all.values().is_empty());
    }
}
