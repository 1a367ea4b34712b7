//! The stores of archives.

#![expect(clippy::disallowed_types, reason = "archives are outside of the data folder")]

use async_recursion::async_recursion as boxed;
use std::fs::File;
use std::sync::Arc;

use archive::{ArchiveName, FinishedArchive};
use futures_util::StreamExt as _;

use cluster::objects::{ByteStore, StoreError, open_store};
use config::StoreTarget;

/// A store of archives.
#[derive(Clone, Debug)]
pub struct ArchiveStore(Arc<dyn ByteStore>);

impl ArchiveStore {
    /// Opens the store.
    ///
    /// # Errors
    ///
    /// As for [`open_store`].
    pub fn open(target: &StoreTarget) -> Result<Self, StoreError> {
        open_store(target).map(Self)
    }

    /// Returns the address of an archive: in a folder, its name alone.
    pub fn uri(&self, name: &ArchiveName) -> String {
        self.0.uri(&name.to_string())
    }

    /// Writes an archive durably, all or nothing. One that exists is written again: the name has its hash.
    ///
    /// # Errors
    ///
    /// If the store or the temporary file fails.
    #[boxed]
    pub async fn put(&self, name: &ArchiveName, archive: FinishedArchive) -> Result<(), StoreError> {
        let FinishedArchive { file, bytes, .. } = archive;
        self.0.put(&name.to_string(), bytes, Box::new(file), Some(name.sha256)).await.map(drop)
    }

    /// Reads an archive of `bytes` bytes and compares it with the hash in its name.
    ///
    /// # Errors
    ///
    /// `Differs`; if the store fails.
    #[boxed]
    pub async fn read_back(&self, name: &ArchiveName, bytes: u64) -> Result<(), StoreError> {
        let found = self.0.hash(&name.to_string()).await?;
        if found == (name.sha256, bytes) { Ok(()) } else { Err(StoreError::Differs(name.to_string())) }
    }

    /// Deletes an archive that no run refers to.
    ///
    /// # Errors
    ///
    /// If the store fails.
    #[boxed]
    pub async fn delete(&self, name: &ArchiveName) -> Result<(), StoreError> {
        self.0.delete(&name.to_string()).await
    }

    /// Lists the archives with their sizes, by name.
    ///
    /// # Errors
    ///
    /// If the store fails.
    #[boxed]
    pub async fn list(&self) -> Result<Vec<(ArchiveName, u64)>, StoreError> {
        let mut objects = self.0.list("", None);
        let mut archives = Vec::new();
        while let Some((name, stat)) = objects.next().await.transpose()? {
            // Not those of another store whose prefix begins with this one.
            let name = Some(name.as_str()).filter(|name| !name.contains('/')).and_then(ArchiveName::parse);
            archives.extend(name.map(|name| (name, stat.size_bytes)));
        }
        archives.sort_unstable_by(|(one, _), (other, _)| one.run_id.as_str().cmp(other.run_id.as_str()));
        Ok(archives)
    }

    /// Copies an archive into an unnamed temporary file.
    ///
    /// # Errors
    ///
    /// If the store or the temporary file fails.
    #[boxed]
    pub async fn fetch(&self, name: &ArchiveName) -> Result<File, StoreError> {
        self.0.copy_to(&name.to_string(), u64::MAX, tempfile::tempfile()?).await.map(|(file, _)| file)
    }
}
