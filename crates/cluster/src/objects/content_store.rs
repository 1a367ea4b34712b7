//! The store of large contents and bases.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use content::{ContentStore, ObjectClaims, ObjectError, ObjectName, ObjectStat, Objects, StoredObject};
use futures_util::StreamExt as _;
use model::Sha256;

use super::bucket::open_store;
use super::store::{ByteStore, StoreError};
use config::ObjectStoreConfig;

/// Opens the object store of `config`. Copies of objects are temporary files without names in `data_dir`. `claims` has
/// the reservations of objects.
///
/// # Errors
///
/// If the store or the folder cannot be used.
pub fn open_objects(
    config: &ObjectStoreConfig,
    data_dir: &Path,
    claims: Arc<dyn ObjectClaims>,
) -> Result<Objects, StoreError> {
    let store = BucketStore { bucket: open_store(&config.to)?, temp_dir: data_dir.into() };
    Ok(Objects::new(Arc::new(store), claims, config.grace))
}

struct BucketStore {
    bucket: Arc<dyn ByteStore>,
    temp_dir: Box<Path>,
}

impl BucketStore {
    /// Copies an object to this machine, and verifies it.
    async fn fetch(
        &self,
        name: &ObjectName,
        max_bytes: u64,
        expected: Option<Sha256>,
    ) -> Result<Box<dyn StoredObject>, ObjectError> {
        let (text, dir) = (name.to_string(), self.temp_dir.clone());
        let created = tokio::task::spawn_blocking(move || tempfile::tempfile_in(dir)).await;
        let file = created.map_err(io::Error::other)??;
        let (file, sha256) = self.bucket.copy_to(&text, max_bytes, file).await.map_err(error_of)?;
        if expected.is_some_and(|expected| expected != sha256) {
            return Err(ObjectError::Differs(text));
        }
        Ok(Box::new(file))
    }
}

#[async_trait]
impl ContentStore for BucketStore {
    async fn put(
        &self,
        name: &ObjectName,
        size_bytes: u64,
        content: Box<dyn Read + Send>,
        expected: Option<Sha256>,
    ) -> Result<Sha256, ObjectError> {
        self.bucket.put(&name.to_string(), size_bytes, content, expected).await.map_err(error_of)
    }

    async fn get(
        &self,
        name: &ObjectName,
        max_bytes: u64,
        expected: Option<Sha256>,
    ) -> Result<Box<dyn StoredObject>, ObjectError> {
        let expected = match name {
            ObjectName::Content(sha256) => Some(*sha256),
            ObjectName::BaseIndex(_) => expected,
        };
        self.fetch(name, max_bytes, expected).await
    }

    async fn stat(&self, name: &ObjectName) -> Result<Option<ObjectStat>, ObjectError> {
        self.bucket.stat(&name.to_string()).await.map_err(error_of)
    }

    async fn list(
        &self,
        prefix: &'static str,
        after: Option<&ObjectName>,
        limit: usize,
    ) -> Result<Vec<(ObjectName, ObjectStat)>, ObjectError> {
        let after = after.map(ToString::to_string);
        let mut found = self.bucket.list(prefix, after.as_deref());
        let mut first = BTreeMap::new();
        while let Some((name, stat)) = found.next().await.transpose().map_err(error_of)? {
            if after.as_ref().is_some_and(|after| name <= *after) {
                continue;
            }
            // Other files in a folder are not objects.
            let Some(parsed) = ObjectName::parse(&name) else { continue };
            first.insert(name, (parsed, stat));
            if first.len() > limit {
                first.pop_last();
                if self.bucket.is_sorted() {
                    break;
                }
            }
        }
        Ok(first.into_values().collect())
    }

    async fn delete(&self, name: &ObjectName) -> Result<(), ObjectError> {
        match self.bucket.delete(&name.to_string()).await.map_err(error_of) {
            Err(ObjectError::Missing(_)) => Ok(()),
            done => done,
        }
    }
}

fn error_of(error: StoreError) -> ObjectError {
    match error {
        StoreError::Missing(path) => ObjectError::Missing(path),
        StoreError::Store(error) => ObjectError::Store(error),
        StoreError::Away => ObjectError::Store(Box::new(StoreError::Away)),
        StoreError::Io(error) => ObjectError::Io(error),
        StoreError::Differs(name) => ObjectError::Differs(name),
        StoreError::TooLarge(name) => ObjectError::TooLarge(name),
    }
}
