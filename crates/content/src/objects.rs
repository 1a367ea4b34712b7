//! A store with its reservations and claims, by which several processes put and delete objects without a race.

use std::io::Read;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use model::Sha256;

use crate::{ContentStore, ObjectError, ObjectName, StoredObject};

/// How long an upload waits for the deletion of its object.
const DELETION_PATIENCE: Duration = Duration::from_secs(10);
/// The time between two looks at an object that is being deleted.
const DELETION_POLL: Duration = Duration::from_millis(50);
/// How long a claim is used before it is renewed: far shorter than it is valid, so that a request of a process that was paused
/// is not sent under a claim that somebody else has.
const CLAIM_USE: Duration = Duration::from_secs(10);
/// Timeout of the deletion of one object.
const DELETE_TIMEOUT: Duration = Duration::from_secs(15);

/// Who may put and delete objects: kept where every process that uses the store sees it. An object is named by its
/// [reference](ObjectName::reference).
#[async_trait]
pub trait ObjectClaims: Send + Sync {
    /// Reserves an object for a commit that names it. Returns the number of the reservation; `None` while the object is being deleted.
    ///
    /// # Errors
    ///
    /// `Claims`.
    async fn reserve(&self, reference: &str) -> Result<Option<i64>, ObjectError>;
    /// Claims an object for its deletion, if nobody has reserved it for `unused_for` and nothing refers to it.
    ///
    /// # Errors
    ///
    /// `Claims`.
    async fn claim(&self, reference: &str, claim: &str, unused_for: Duration) -> Result<bool, ObjectError>;
    /// Prolongs a claim; false if somebody else may have the object by now.
    ///
    /// # Errors
    ///
    /// `Claims`.
    async fn renew(&self, reference: &str, claim: &str) -> Result<bool, ObjectError>;
    /// Ends a claim: the object is deleted.
    ///
    /// # Errors
    ///
    /// `Claims`.
    async fn end(&self, reference: &str, claim: &str) -> Result<(), ObjectError>;
}

/// The claims of a store from which nothing is deleted while it is used: that of a command without a service.
#[derive(Clone, Copy, Debug)]
pub struct NoClaims;

#[async_trait]
impl ObjectClaims for NoClaims {
    async fn reserve(&self, _reference: &str) -> Result<Option<i64>, ObjectError> {
        Ok(Some(0))
    }

    async fn claim(&self, _reference: &str, _claim: &str, _unused_for: Duration) -> Result<bool, ObjectError> {
        Ok(false)
    }

    async fn renew(&self, _reference: &str, _claim: &str) -> Result<bool, ObjectError> {
        Ok(false)
    }

    async fn end(&self, _reference: &str, _claim: &str) -> Result<(), ObjectError> {
        Ok(())
    }
}

/// The objects of the service. Cheap to clone.
#[derive(Clone)]
pub struct Objects {
    store: Arc<dyn ContentStore>,
    claims: Arc<dyn ObjectClaims>,
    grace: Duration,
}

/// An object that is reserved for a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReservedObject {
    /// By what the commit refers to it.
    pub reference: String,
    /// The number of the reservation, which the commit checks.
    pub reservation: i64,
}

/// An object that this process is deleting.
#[derive(Debug)]
pub struct ClaimedObject<'a> {
    objects: &'a Objects,
    reference: &'a str,
    claim: &'a str,
    /// When the claim was made or renewed, at the latest.
    since: Instant,
}

impl std::fmt::Debug for Objects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Objects").field("grace", &self.grace).finish_non_exhaustive()
    }
}

impl Objects {
    /// Wraps `store`. Objects that nothing refers to are deleted once they have been unused for `grace`.
    pub fn new(store: Arc<dyn ContentStore>, claims: Arc<dyn ObjectClaims>, grace: Duration) -> Self {
        Self { store, claims, grace }
    }

    /// Returns the store.
    pub fn store(&self) -> &dyn ContentStore {
        &*self.store
    }

    /// Reserves an object, which nobody deletes for the grace period. Waits while it is being deleted.
    ///
    /// # Errors
    ///
    /// `BeingDeleted`, `Claims`.
    pub async fn reserve(&self, reference: &str) -> Result<ReservedObject, ObjectError> {
        let started = Instant::now();
        loop {
            if let Some(reservation) = self.claims.reserve(reference).await? {
                return Ok(ReservedObject { reference: reference.to_owned(), reservation });
            }
            if started.elapsed() > DELETION_PATIENCE {
                return Err(ObjectError::BeingDeleted(reference.to_owned()));
            }
            tokio::time::sleep(DELETION_POLL).await;
        }
    }

    /// Reserves a content, and puts it unless the store has it.
    ///
    /// # Errors
    ///
    /// As for [`reserve`](Self::reserve) and [`ContentStore::put`].
    pub async fn put_content(
        &self,
        sha256: Sha256,
        size_bytes: u64,
        content: Box<dyn Read + Send>,
    ) -> Result<ReservedObject, ObjectError> {
        let name = ObjectName::Content(sha256);
        let reserved = self.reserve(&name.reference()).await?;
        if self.store.stat(&name).await?.is_none_or(|stat| stat.size_bytes != size_bytes) {
            self.store.put(&name, size_bytes, content, Some(sha256)).await?;
        }
        Ok(reserved)
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

    /// Returns how long an object must have been unused before it is deleted.
    pub fn grace(&self) -> Duration {
        self.grace
    }

    /// Claims an object under the unique name `claim` to delete it; `None` if it is in use.
    ///
    /// # Errors
    ///
    /// `Claims`.
    pub async fn claim<'a>(
        &'a self,
        reference: &'a str,
        claim: &'a str,
    ) -> Result<Option<ClaimedObject<'a>>, ObjectError> {
        let since = Instant::now();
        let is_claimed = self.claims.claim(reference, claim, self.grace).await?;
        Ok(is_claimed.then_some(ClaimedObject { objects: self, reference, claim, since }))
    }
}

impl ClaimedObject<'_> {
    /// Deletes the objects of the reference in the order of `names`. If that fails, the claim remains until it is no longer valid: a
    /// request may still reach the store. Returns how many were deleted.
    ///
    /// # Errors
    ///
    /// If the store fails; `BeingDeleted` if the claim was lost.
    pub async fn delete(mut self, names: &[ObjectName]) -> Result<usize, ObjectError> {
        let Objects { store, claims, .. } = self.objects;
        for name in names {
            if self.since.elapsed() > CLAIM_USE {
                let since = Instant::now();
                if !claims.renew(self.reference, self.claim).await? {
                    return Err(ObjectError::BeingDeleted(self.reference.to_owned()));
                }
                self.since = since;
            }
            let deleted = tokio::time::timeout(DELETE_TIMEOUT, store.delete(name)).await;
            deleted.unwrap_or_else(|elapsed| Err(ObjectError::Store(Box::new(elapsed))))?;
        }
        claims.end(self.reference, self.claim).await?;
        Ok(names.len())
    }
}
