//! A folder or a bucket, by the crate `object_store`.

#![expect(clippy::disallowed_types, reason = "stores are outside of the data folder; temporary files have no names")]

mod folder_identity;

use std::fs::File;
use std::future::ready;
use std::io::{self, Read, Seek as _, Write as _};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use content::ObjectStat;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use model::Sha256;
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use object_store::{ClientConfigKey, ObjectMeta, ObjectStore, ObjectStoreExt as _, RetryConfig, WriteMultipart};
use sha2::Digest as _;

use self::folder_identity::FolderIdentity;
use super::store::{ByteStore, StoreError};
use config::StoreTarget;
use config::http_client;

/// What is sent at a time. Smaller objects are sent at once.
const CHUNK_BYTES: usize = 8 << 20;
/// Chunks that are sent at the same time.
const CONCURRENT_CHUNKS: usize = 2;
/// What is written to a file at a time.
const WRITE_BYTES: usize = 1 << 20;
/// How often, and for how long, a request is repeated before it has failed.
const RETRIES: (usize, Duration) = (3, Duration::from_secs(30));

/// A folder or a bucket.
#[derive(Debug)]
struct Bucket {
    store: Arc<dyn ObjectStore>,
    /// What the names of the objects begin with.
    prefix: ObjectPath,
    /// What the addresses of the objects begin with.
    base_uri: String,
    /// Whether objects are listed by name.
    is_sorted: bool,
    /// The folder, if it is one.
    folder: Option<FolderIdentity>,
}

/// The content of an object while it is sent.
struct SentContent {
    content: Box<dyn Read + Send>,
    digest: sha2::Sha256,
    /// The bytes that remain to be read.
    rest: u64,
}

/// Opens the store. For a bucket the environment variables of AWS have the keys, the region and the endpoint.
///
/// # Errors
///
/// If the folder cannot be used, or a variable is missing or invalid.
pub fn open_store(target: &StoreTarget) -> Result<Arc<dyn ByteStore>, StoreError> {
    Ok(Arc::new(Bucket::open(target)?))
}

impl Bucket {
    fn open(target: &StoreTarget) -> Result<Self, StoreError> {
        match target {
            // Callers see the address, and no path of this machine.
            StoreTarget::Folder(folder) => Ok(Self {
                store: Arc::new(LocalFileSystem::new_with_prefix(folder)?.with_fsync(true)),
                prefix: ObjectPath::default(),
                base_uri: "file:".to_owned(),
                is_sorted: false,
                folder: Some(FolderIdentity::of(folder)?),
            }),
            StoreTarget::Bucket { bucket, prefix } => {
                http_client::install_tls();
                let builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
                let allows_http = allows_http(&builder);
                let retry = RetryConfig { max_retries: RETRIES.0, retry_timeout: RETRIES.1, ..RetryConfig::default() };
                let store = builder.with_allow_http(allows_http).with_retry(retry).build()?;
                let slash = if prefix.is_empty() { "" } else { "/" };
                Ok(Self {
                    store: Arc::new(store),
                    prefix: ObjectPath::from(prefix.as_str()),
                    base_uri: format!("s3://{bucket}/{prefix}{slash}"),
                    is_sorted: true,
                    folder: None,
                })
            }
        }
    }

    /// Checks that a folder is still the same one.
    async fn check(&self) -> Result<(), StoreError> {
        match &self.folder {
            Some(folder) => folder.check().await,
            None => Ok(()),
        }
    }

    fn path(&self, name: &str) -> ObjectPath {
        name.split('/').filter(|part| !part.is_empty()).fold(self.prefix.clone(), ObjectPath::join)
    }

    async fn put_unchecked(
        &self,
        name: &str,
        bytes: u64,
        content: Box<dyn Read + Send>,
        expected: Option<Sha256>,
    ) -> Result<Sha256, StoreError> {
        let mut source = SentContent { content, digest: sha2::Sha256::new(), rest: bytes };
        let path = self.path(name);
        if bytes <= CHUNK_BYTES as u64 {
            let whole = source.next(name).await?;
            let sha256 = source.finish(name, expected).await?;
            self.store.put(&path, whole.into()).await?;
            return Ok(sha256);
        }
        let mut upload = WriteMultipart::new_with_chunk_size(self.store.put_multipart(&path).await?, CHUNK_BYTES);
        let sent = async {
            while source.rest > 0 {
                upload.wait_for_capacity(CONCURRENT_CHUNKS).await?;
                upload.put(source.next(name).await?);
            }
            source.finish(name, expected).await
        };
        match sent.await {
            Ok(sha256) => upload.finish().await.map(|_| sha256).map_err(StoreError::from),
            Err(error) => {
                if let Err(abort) = upload.abort().await {
                    // The bucket's rules for incomplete uploads remove it.
                    tracing::warn!(error = &abort as &dyn std::error::Error, "an upload could not be aborted");
                }
                Err(error)
            }
        }
    }

    async fn chunks(&self, name: &str) -> Result<BoxStream<'static, object_store::Result<Bytes>>, StoreError> {
        self.check().await?;
        Ok(self.store.get(&self.path(name)).await?.into_stream())
    }
}

#[async_trait]
impl ByteStore for Bucket {
    fn uri(&self, name: &str) -> String {
        format!("{}{name}", self.base_uri)
    }

    fn is_sorted(&self) -> bool {
        self.is_sorted
    }

    async fn put(
        &self,
        name: &str,
        bytes: u64,
        content: Box<dyn Read + Send>,
        expected: Option<Sha256>,
    ) -> Result<Sha256, StoreError> {
        // Writing makes the folders that are missing.
        self.check().await?;
        let sha256 = self.put_unchecked(name, bytes, content, expected).await?;
        self.check().await?;
        Ok(sha256)
    }

    async fn hash(&self, name: &str) -> Result<(Sha256, u64), StoreError> {
        let mut chunks = self.chunks(name).await?;
        let (mut digest, mut read) = (sha2::Sha256::new(), 0);
        while let Some(chunk) = chunks.next().await.transpose()? {
            read += chunk.len() as u64;
            digest.update(&chunk);
        }
        Ok((Sha256::from_bytes(digest.finalize().into()), read))
    }

    async fn copy_to(&self, name: &str, max_bytes: u64, file: File) -> Result<(File, Sha256), StoreError> {
        let mut chunks = self.chunks(name).await?;
        let (mut file, mut digest) = (file, sha2::Sha256::new());
        let (mut pending, mut read) = (BytesMut::new(), 0);
        loop {
            let chunk = chunks.next().await.transpose()?;
            let is_last = chunk.is_none();
            let chunk = chunk.unwrap_or_default();
            read += chunk.len() as u64;
            if read > max_bytes {
                return Err(StoreError::TooLarge(name.to_owned()));
            }
            pending.extend_from_slice(&chunk);
            if pending.len() >= WRITE_BYTES || is_last {
                let bytes = pending.split().freeze();
                let write = move || {
                    file.write_all(&bytes)?;
                    digest.update(&bytes);
                    if is_last {
                        file.rewind()?;
                    }
                    Ok::<_, io::Error>((file, digest))
                };
                (file, digest) = tokio::task::spawn_blocking(write).await.map_err(io::Error::other)??;
            }
            if is_last {
                return Ok((file, Sha256::from_bytes(digest.finalize().into())));
            }
        }
    }

    async fn stat(&self, name: &str) -> Result<Option<ObjectStat>, StoreError> {
        self.check().await?;
        match self.store.head(&self.path(name)).await {
            Ok(meta) => Ok(Some(stat_of(&meta))),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn delete(&self, name: &str) -> Result<(), StoreError> {
        self.check().await?;
        Ok(self.store.delete(&self.path(name)).await?)
    }

    fn list(&self, prefix: &str, after: Option<&str>) -> BoxStream<'static, Result<(String, ObjectStat), StoreError>> {
        let folder = Some(self.path(prefix)).filter(|prefix| !prefix.as_ref().is_empty());
        let listed = match after {
            None => self.store.list(folder.as_ref()),
            Some(after) => self.store.list_with_offset(folder.as_ref(), &self.path(after)),
        };
        let prefix = self.prefix.clone();
        let named = move |object: object_store::Result<ObjectMeta>| match object {
            Ok(meta) => name_of(&prefix, &meta.location).map(|name| Ok((name.to_owned(), stat_of(&meta)))),
            Err(error) => Some(Err(error.into())),
        };
        listed.filter_map(move |object| ready(named(object))).boxed()
    }
}

impl From<object_store::Error> for StoreError {
    fn from(error: object_store::Error) -> Self {
        match error {
            object_store::Error::NotFound { path, .. } => Self::Missing(path),
            error => Self::Store(Box::new(error)),
        }
    }
}

/// Returns the name of the object at `path`, if it is in the store whose names begin with `prefix`.
fn name_of<'p>(prefix: &ObjectPath, path: &'p ObjectPath) -> Option<&'p str> {
    let prefix = prefix.as_ref();
    if prefix.is_empty() {
        return Some(path.as_ref());
    }
    path.as_ref().strip_prefix(prefix)?.strip_prefix('/')
}

fn stat_of(meta: &ObjectMeta) -> ObjectStat {
    ObjectStat { size_bytes: meta.size }
}

impl SentContent {
    /// Reads the next chunk.
    async fn next(&mut self, name: &str) -> Result<Bytes, StoreError> {
        let length = usize::try_from(self.rest).unwrap_or(usize::MAX).min(CHUNK_BYTES);
        let chunk = self.read(length).await?;
        if chunk.len() < length {
            return Err(StoreError::Differs(name.to_owned()));
        }
        self.rest -= chunk.len() as u64;
        Ok(chunk)
    }

    /// Checks that nothing follows, and returns the hash.
    async fn finish(&mut self, name: &str, expected: Option<Sha256>) -> Result<Sha256, StoreError> {
        let is_at_end = self.read(1).await?.is_empty();
        let sha256 = Sha256::from_bytes(self.digest.clone().finalize().into());
        if is_at_end && expected.is_none_or(|expected| expected == sha256) {
            Ok(sha256)
        } else {
            Err(StoreError::Differs(name.to_owned()))
        }
    }

    /// Reads and hashes `length` bytes, or fewer at the end, on a thread that may block.
    async fn read(&mut self, length: usize) -> Result<Bytes, StoreError> {
        let content = std::mem::replace(&mut self.content, Box::new(io::empty()));
        let mut digest = self.digest.clone();
        let read = move || {
            let (mut content, mut chunk) = (content, Vec::with_capacity(length));
            content.by_ref().take(length as u64).read_to_end(&mut chunk)?;
            digest.update(&chunk);
            Ok::<_, io::Error>((content, digest, Bytes::from(chunk)))
        };
        let (content, digest, chunk) = tokio::task::spawn_blocking(read).await.map_err(io::Error::other)??;
        (self.content, self.digest) = (content, digest);
        Ok(chunk)
    }
}

/// Whether the endpoint may be one without TLS: on this machine, and elsewhere if `AWS_ALLOW_HTTP` says so.
fn allows_http(builder: &AmazonS3Builder) -> bool {
    let value = |key| builder.get_config_value(&key);
    let is_local = |key| value(key).is_some_and(|url| is_loopback(&url));
    is_local(AmazonS3ConfigKey::Endpoint)
        || is_local(AmazonS3ConfigKey::S3Endpoint)
        || value(AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp)).is_some_and(|value| value == "true")
}

/// Whether a URL is one of HTTP on this machine.
fn is_loopback(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("http://") else { return false };
    let host = rest.split(['/', '?']).next().unwrap_or_default();
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
    matches!(host, "localhost" | "127.0.0.1" | "[::1]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_without_tls_is_on_this_machine_unless_that_is_allowed_explicitly() {
        let at = |url: &str| AmazonS3Builder::new().with_endpoint(url);
        assert!(allows_http(&at("http://127.0.0.1:9000")));
        assert!(!allows_http(&at("http://objects:3900")));
        assert!(!allows_http(&at("http://127.0.0.1.example.org")));
        let key = AmazonS3ConfigKey::Client(ClientConfigKey::AllowHttp);
        let allowing = |value: &str| at("http://objects:3900").with_config(key, value);
        assert!(allows_http(&allowing("true")));
        assert!(!allows_http(&allowing("false")));
    }
}
