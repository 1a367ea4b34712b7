//! A store together with what this process is about to name in a commit.

use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use model::Sha256;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{ContentStore, ObjectError, ObjectName, ObjectStat, StoredObject};

/// The objects of the service. Cheap to clone.
#[derive(Clone)]
pub struct Objects {
    store: Arc<dyn ContentStore>,
    uses: Arc<Uses>,
    /// How old an object must be before it is deleted, in seconds.
    grace_seconds: i64,
    /// Returns the time in seconds since the Unix epoch.
    now: fn() -> i64,
}

/// What this process does with objects, by their references.
#[derive(Default)]
struct Uses {
    by_reference: Mutex<HashMap<String, Use>>,
    released: Notify,
}

enum Use {
    /// So many callers are about to commit a reference.
    Held(usize),
    Deleting,
}

/// A reference that is about to be committed: this process does not delete its objects.
pub struct Held {
    uses: Arc<Uses>,
    reference: String,
}

impl std::fmt::Debug for Objects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Objects").field("grace_seconds", &self.grace_seconds).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Held({})", self.reference)
    }
}

impl Objects {
    /// Wraps `store`. Objects that nothing refers to are deleted once they are `grace_seconds` old.
    pub fn new(store: Arc<dyn ContentStore>, grace_seconds: i64, now: fn() -> i64) -> Self {
        Self { store, uses: Arc::default(), grace_seconds, now }
    }

    /// Returns the store.
    pub fn store(&self) -> &dyn ContentStore {
        &*self.store
    }

    /// Holds the objects of `reference` until the returned value is dropped, which must be after the commit that names them. Waits
    /// while they are being deleted.
    pub async fn hold(&self, reference: &str) -> Held {
        loop {
            let released = self.uses.released.notified();
            {
                let mut uses = self.uses.by_reference.lock();
                match uses.entry(reference.to_owned()).or_insert(Use::Held(0)) {
                    Use::Held(count) => {
                        *count += 1;
                        return Held { uses: Arc::clone(&self.uses), reference: reference.to_owned() };
                    }
                    Use::Deleting => {}
                }
            }
            released.await;
        }
    }

    /// Whether an object exists and is young enough to be named by a commit that follows. An older one has to be put again, which
    /// makes it young.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn is_fresh(&self, name: &ObjectName) -> Result<bool, ObjectError> {
        let stat = self.store.stat(name).await?;
        Ok(stat.is_some_and(|stat| self.age_seconds(&stat) < self.grace_seconds / 2))
    }

    /// Puts a content, unless the store has it. A caller that names it in a commit holds it meanwhile.
    ///
    /// # Errors
    ///
    /// As for [`ContentStore::put`].
    pub async fn put_content(
        &self,
        sha256: Sha256,
        size_bytes: u64,
        content: Box<dyn Read + Send>,
    ) -> Result<(), ObjectError> {
        let name = ObjectName::Content(sha256);
        if !self.is_fresh(&name).await? {
            self.store.put(&name, size_bytes, content, Some(sha256)).await?;
        }
        Ok(())
    }

    /// Returns the content with the hash `sha256`; `None` if the store does not have it.
    ///
    /// # Errors
    ///
    /// As for [`ContentStore::get`], except `Missing`.
    pub async fn content(&self, sha256: Sha256, max_bytes: u64) -> Result<Option<Box<dyn StoredObject>>, ObjectError> {
        match self.store.get(&ObjectName::Content(sha256), max_bytes, Some(sha256)).await {
            Err(ObjectError::Missing(_)) => Ok(None),
            found => found.map(Some),
        }
    }

    /// Returns how old an object must be before it is deleted.
    pub fn grace(&self) -> Duration {
        Duration::from_secs(u64::try_from(self.grace_seconds).unwrap_or(0))
    }

    /// Whether an object exists and is old enough to be deleted, if nothing refers to it.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn is_collectable(&self, name: &ObjectName) -> Result<bool, ObjectError> {
        Ok(self.store.stat(name).await?.is_some_and(|stat| self.is_past_grace(&stat)))
    }

    fn is_past_grace(&self, stat: &ObjectStat) -> bool {
        self.age_seconds(stat) >= self.grace_seconds
    }

    /// Deletes the objects of `reference`, to which no commit refers, in the order of `names`. Stops at one that is too young: it was
    /// put again. Returns how many were deleted; none if this process is about to refer to them.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub async fn delete_unused(&self, reference: &str, names: &[ObjectName]) -> Result<usize, ObjectError> {
        {
            let mut uses = self.uses.by_reference.lock();
            if uses.contains_key(reference) {
                return Ok(0);
            }
            uses.insert(reference.to_owned(), Use::Deleting);
        }
        let _deleting = Held { uses: Arc::clone(&self.uses), reference: reference.to_owned() };
        let mut deleted = 0;
        for name in names {
            match self.store.stat(name).await? {
                None => {}
                Some(stat) if self.is_past_grace(&stat) => {
                    self.store.delete(name).await?;
                    deleted += 1;
                }
                Some(_) => break,
            }
        }
        Ok(deleted)
    }

    fn age_seconds(&self, stat: &ObjectStat) -> i64 {
        (self.now)().saturating_sub(stat.modified_seconds)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut uses = self.uses.by_reference.lock();
        match uses.get_mut(&self.reference) {
            Some(Use::Held(count)) if *count > 1 => *count -= 1,
            Some(_) | None => drop(uses.remove(&self.reference)),
        }
        drop(uses);
        self.uses.released.notify_waiters();
    }
}
