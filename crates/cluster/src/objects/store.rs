//! What a store of objects does.

#![expect(clippy::disallowed_types, reason = "stores are outside of the data folder; temporary files have no names")]

use std::error::Error;
use std::fmt::Debug;
use std::fs::File;
use std::io::{self, Read};

use async_trait::async_trait;
use content::ObjectStat;
use futures_util::stream::BoxStream;
use model::Sha256;

/// A folder or a bucket, accessed in chunks.
#[async_trait]
pub trait ByteStore: Debug + Send + Sync {
    /// Returns the address of an object: in a folder, its name alone.
    fn uri(&self, name: &str) -> String;

    /// Whether objects are listed by name.
    fn is_sorted(&self) -> bool;

    /// Writes an object of `bytes` bytes durably, all or nothing, and returns the hash of its bytes.
    ///
    /// # Errors
    ///
    /// `Differs`, and nothing is written, if `content` has another size or not the hash `expected`; if the store or `content` fails.
    async fn put(
        &self,
        name: &str,
        bytes: u64,
        content: Box<dyn Read + Send>,
        expected: Option<Sha256>,
    ) -> Result<Sha256, StoreError>;

    /// Returns the hash and the size of an object.
    ///
    /// # Errors
    ///
    /// If the store fails.
    async fn hash(&self, name: &str) -> Result<(Sha256, u64), StoreError>;

    /// Copies an object of at most `max_bytes` bytes to `file`, and returns the file, at its start, and its hash.
    ///
    /// # Errors
    ///
    /// `TooLarge`; if the store or the file fails.
    async fn copy_to(&self, name: &str, max_bytes: u64, file: File) -> Result<(File, Sha256), StoreError>;

    /// Describes an object; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// If the store fails.
    async fn stat(&self, name: &str) -> Result<Option<ObjectStat>, StoreError>;

    /// Deletes an object.
    ///
    /// # Errors
    ///
    /// If the store fails, or it does not exist.
    async fn delete(&self, name: &str) -> Result<(), StoreError>;

    /// Lists the objects whose names begin with the folder `prefix` and are after `after`.
    fn list(&self, prefix: &str, after: Option<&str>) -> BoxStream<'static, Result<(String, ObjectStat), StoreError>>;
}

/// What went wrong with a store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The store refused, or cannot be reached.
    #[error(transparent)]
    Store(Box<dyn Error + Send + Sync>),
    /// The object does not exist.
    #[error("the store has no object at {0}")]
    Missing(String),
    /// A local file failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The folder is not there.
    #[error("the folder of the store is not there, or is another one than at the start: is its disk mounted?")]
    Away,
    /// What was read is not what was written.
    #[error("the stored {0} has other bytes than were written")]
    Differs(String),
    /// The object has more bytes than it may have.
    #[error("the stored {0} is larger than it may be")]
    TooLarge(String),
}
