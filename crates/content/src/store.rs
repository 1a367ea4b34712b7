//! The trait of a store.

use std::io::{self, Read, Seek};

use async_trait::async_trait;
use model::Sha256;

use crate::ObjectName;

/// A copy of an object, whose bytes were verified.
pub trait StoredObject: Read + Seek + Send {}

impl<T: Read + Seek + Send> StoredObject for T {}

/// What a store knows of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectStat {
    /// Its size in bytes.
    pub size_bytes: u64,
}

/// Why a store did not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    /// The store refused, or cannot be reached.
    #[error("the object store failed")]
    Store(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The local file or the content that was to be put failed.
    #[error("file system error")]
    Io(#[from] io::Error),
    /// The object has other bytes than its name or the index says, or the content to be put has.
    #[error("{0} has other bytes than it must have")]
    Differs(String),
    /// The object is missing.
    #[error("{0} is missing from the object store")]
    Missing(String),
    /// The object is being deleted, or another process has taken over its deletion.
    #[error("{0} is being deleted")]
    BeingDeleted(String),
    /// The reservations and claims cannot be read or written.
    #[error("the claims of objects failed")]
    Claims(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The object is larger than it may be.
    #[error("{0} is larger than it may be")]
    TooLarge(String),
}

/// A store of objects: a folder, or a bucket.
#[async_trait]
pub trait ContentStore: Send + Sync {
    /// Writes an object of `size_bytes` bytes durably, all or nothing, in place of one of that name. Returns the hash of its bytes.
    ///
    /// # Errors
    ///
    /// `Differs`, and nothing is written, if `content` has another size, or not the hash `expected`; if the store or `content`
    /// fails.
    async fn put(
        &self,
        name: &ObjectName,
        size_bytes: u64,
        content: Box<dyn Read + Send>,
        expected: Option<Sha256>,
    ) -> Result<Sha256, ObjectError>;

    /// Copies an object of at most `max_bytes` bytes to this machine. A name that is a hash is verified. If `expected` is given, so
    /// is that hash.
    ///
    /// # Errors
    ///
    /// `Missing`; `TooLarge`; `Differs`; if the store or the local disk fails.
    async fn get(
        &self,
        name: &ObjectName,
        max_bytes: u64,
        expected: Option<Sha256>,
    ) -> Result<Box<dyn StoredObject>, ObjectError>;

    /// Describes an object; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// If the store fails.
    async fn stat(&self, name: &ObjectName) -> Result<Option<ObjectStat>, ObjectError>;

    /// Lists at most `limit` objects whose names begin with `prefix` and are after `after`, by name.
    ///
    /// # Errors
    ///
    /// If the store fails.
    async fn list(
        &self,
        prefix: &'static str,
        after: Option<&ObjectName>,
        limit: usize,
    ) -> Result<Vec<(ObjectName, ObjectStat)>, ObjectError>;

    /// Deletes an object. A missing one is no error.
    ///
    /// # Errors
    ///
    /// If the store fails.
    async fn delete(&self, name: &ObjectName) -> Result<(), ObjectError>;
}
