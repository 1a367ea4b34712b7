//! The stores of archives: a folder, or a bucket of S3.

#![expect(clippy::disallowed_types, reason = "archives are outside of the data folder")]

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Duration;

use archive::{ArchiveName, FinishedArchive};
use bytes::Bytes;
use futures_util::StreamExt as _;
use model::Sha256;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt as _, RetryConfig, WriteMultipart};
use sha2::Digest as _;

use crate::config::ArchiveTarget;
use crate::http_client;

/// What is read from a file and sent at a time. Smaller archives are sent at once.
const CHUNK_BYTES: usize = 8 << 20;
/// Chunks that are sent at the same time.
const CONCURRENT_CHUNKS: usize = 2;
/// How often, and for how long, a request is repeated before the attempt to archive a run has failed.
const RETRIES: (usize, Duration) = (3, Duration::from_secs(30));

/// A store of archives.
#[derive(Clone, Debug)]
pub(crate) struct ArchiveStore {
    store: Arc<dyn ObjectStore>,
    /// What the names of the objects begin with.
    prefix: ObjectPath,
    /// What the addresses of the archives begin with.
    base_uri: String,
}

/// What went wrong with a store.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// The store refused, or cannot be reached.
    #[error(transparent)]
    Store(#[from] object_store::Error),
    /// A local file failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// What was read is not what was written.
    #[error("the stored archive {0} has other bytes than were written")]
    Differs(String),
}

impl ArchiveStore {
    /// Opens the store. For a bucket the environment variables of AWS have the keys, the region and the endpoint, which may be
    /// `http` only on this machine.
    ///
    /// # Errors
    ///
    /// If the folder cannot be used, or a variable is missing or invalid.
    pub(crate) fn open(target: &ArchiveTarget) -> Result<Self, StoreError> {
        match target {
            // Callers see the address, and no path of this machine.
            ArchiveTarget::Folder(folder) => Ok(Self {
                store: Arc::new(LocalFileSystem::new_with_prefix(folder)?.with_fsync(true)),
                prefix: ObjectPath::default(),
                base_uri: "file:".to_owned(),
            }),
            ArchiveTarget::Bucket { bucket, prefix } => {
                http_client::install_tls();
                let builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
                let endpoints = [AmazonS3ConfigKey::Endpoint, AmazonS3ConfigKey::S3Endpoint];
                let is_local =
                    endpoints.iter().filter_map(|key| builder.get_config_value(key)).any(|url| is_loopback(&url));
                let retry = RetryConfig { max_retries: RETRIES.0, retry_timeout: RETRIES.1, ..RetryConfig::default() };
                let store = builder.with_allow_http(is_local).with_retry(retry).build()?;
                let slash = if prefix.is_empty() { "" } else { "/" };
                Ok(Self {
                    store: Arc::new(store),
                    prefix: ObjectPath::from(prefix.as_str()),
                    base_uri: format!("s3://{bucket}/{prefix}{slash}"),
                })
            }
        }
    }

    /// Returns the address of an archive: in a folder, its name alone.
    pub(crate) fn uri(&self, name: &ArchiveName) -> String {
        format!("{}{name}", self.base_uri)
    }

    fn path(&self, name: &ArchiveName) -> ObjectPath {
        self.prefix.clone().join(name.to_string())
    }

    /// Writes an archive durably, all or nothing. One that exists is written again: the name has its hash.
    ///
    /// # Errors
    ///
    /// If the store or the temporary file fails.
    pub(crate) async fn put(&self, name: &ArchiveName, archive: FinishedArchive) -> Result<(), StoreError> {
        let (path, file, size) = (self.path(name), Arc::new(archive.file), archive.bytes);
        if size <= CHUNK_BYTES as u64 {
            let bytes = read_chunk(file, 0, size).await?;
            self.store.put(&path, bytes.into()).await?;
            return Ok(());
        }
        let mut upload = WriteMultipart::new_with_chunk_size(self.store.put_multipart(&path).await?, CHUNK_BYTES);
        let sent = async {
            let mut offset = 0;
            while offset < size {
                upload.wait_for_capacity(CONCURRENT_CHUNKS).await?;
                let chunk = read_chunk(Arc::clone(&file), offset, size).await?;
                offset += chunk.len() as u64;
                upload.put(chunk);
            }
            Ok::<_, StoreError>(())
        };
        match sent.await {
            Ok(()) => Ok(upload.finish().await.map(drop)?),
            Err(error) => {
                if let Err(abort) = upload.abort().await {
                    // The bucket's rules for incomplete uploads remove it.
                    tracing::warn!(error = &abort as &dyn std::error::Error, "an upload could not be aborted");
                }
                Err(error)
            }
        }
    }

    /// Reads an archive of `bytes` bytes and compares it with the hash in its name.
    ///
    /// # Errors
    ///
    /// `Differs`; if the store fails.
    pub(crate) async fn read_back(&self, name: &ArchiveName, bytes: u64) -> Result<(), StoreError> {
        let mut chunks = self.store.get(&self.path(name)).await?.into_stream();
        let (mut digest, mut read) = (sha2::Sha256::new(), 0);
        while let Some(chunk) = chunks.next().await.transpose()? {
            read += chunk.len() as u64;
            digest.update(&chunk);
        }
        let is_same = read == bytes && Sha256::from_bytes(digest.finalize().into()) == name.sha256;
        if is_same { Ok(()) } else { Err(StoreError::Differs(name.to_string())) }
    }

    /// Deletes an archive that no run refers to.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub(crate) async fn delete(&self, name: &ArchiveName) -> Result<(), StoreError> {
        Ok(self.store.delete(&self.path(name)).await?)
    }

    /// Lists the archives with their sizes, by name.
    ///
    /// # Errors
    ///
    /// If the store fails.
    pub(crate) async fn list(&self) -> Result<Vec<(ArchiveName, u64)>, StoreError> {
        let prefix = Some(&self.prefix).filter(|prefix| !prefix.as_ref().is_empty());
        let mut objects = self.store.list(prefix);
        let mut archives = Vec::new();
        while let Some(object) = objects.next().await.transpose()? {
            let name = object.location.filename().and_then(ArchiveName::parse);
            // Not those of another store whose prefix begins with this one.
            archives.extend(name.filter(|name| self.path(name) == object.location).map(|name| (name, object.size)));
        }
        archives.sort_unstable_by(|(one, _), (other, _)| one.run_id.as_str().cmp(other.run_id.as_str()));
        Ok(archives)
    }

    /// Copies an archive into an unnamed temporary file.
    ///
    /// # Errors
    ///
    /// If the store or the temporary file fails.
    pub(crate) async fn fetch(&self, name: &ArchiveName) -> Result<File, StoreError> {
        let mut chunks = self.store.get(&self.path(name)).await?.into_stream();
        let mut file = tempfile::tempfile()?;
        while let Some(chunk) = chunks.next().await.transpose()? {
            file.write_all(&chunk)?;
        }
        Ok(file)
    }
}

/// Reads at most a chunk from `offset` on of a file of `size` bytes.
async fn read_chunk(file: Arc<File>, offset: u64, size: u64) -> Result<Bytes, StoreError> {
    let length = usize::try_from(size - offset).unwrap_or(usize::MAX).min(CHUNK_BYTES);
    let read = move || {
        let mut chunk = vec![0; length];
        file.read_exact_at(&mut chunk, offset).map(|()| Bytes::from(chunk))
    };
    Ok(tokio::task::spawn_blocking(read).await.map_err(io::Error::other)??)
}

/// Whether a URL is one of HTTP on this machine.
fn is_loopback(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("http://") else { return false };
    let host = rest.split(['/', '?']).next().unwrap_or_default();
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
    matches!(host, "localhost" | "127.0.0.1" | "[::1]")
}
