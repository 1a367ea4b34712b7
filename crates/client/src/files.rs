//! Whole files as bytes, in both directions as streams.

use async_recursion::async_recursion as boxed;
use std::ops::RangeInclusive;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, TryStreamExt as _};
use model::{LogicalPath, RunId, Sha256};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::header::{self, HeaderName};
use reqwest::{Body, Method, Response};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio_util::io::ReaderStream;

use crate::problem::Error;
use crate::request::{Request, new_id, sha256_header};
use crate::transport::Client;

static REASON: HeaderName = HeaderName::from_static("x-reason");
static TOOL_CALL_ID: HeaderName = HeaderName::from_static("x-tool-call-id");

/// What must be true of a file before it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// The file does not exist.
    Absent,
    /// The file has this version.
    Version(Sha256),
}

/// A part of a file, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ByteRange {
    /// These bytes, from 0, the last one included.
    Bytes(RangeInclusive<u64>),
    /// All bytes from this one on.
    From(u64),
    /// The last bytes, this many.
    Last(u64),
}

/// A file after it was stored, or before it was deleted.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredFile {
    /// The path.
    pub path: LogicalPath,
    /// Whether the call created the file.
    pub created: bool,
    /// Version before the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old_sha256: Option<Sha256>,
    /// Version after the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new_sha256: Option<Sha256>,
    /// Size in bytes.
    pub size_bytes: u64,
    /// The number of the call's record.
    pub seq: u64,
    /// The hash of that record, by which the caller can verify the run's audit later.
    pub head_hash: Sha256,
    /// URIs of the call's diffs.
    pub artifact_uris: Vec<String>,
    /// One line that describes the change.
    pub summary: String,
    /// What the caller should know about the change.
    pub warnings: Vec<String>,
}

/// A body that arrives.
#[derive(Debug)]
pub struct Download {
    response: Response,
}

impl Download {
    pub(crate) fn new(response: Response) -> Self {
        Self { response }
    }

    /// Returns the number of bytes, if the service has announced it.
    pub fn len(&self) -> Option<u64> {
        self.response.content_length()
    }

    /// Whether the service has announced an empty body.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }

    /// Returns the version of the whole file, for a file.
    pub fn sha256(&self) -> Option<Sha256> {
        sha256_header(&self.response, "etag")
    }

    /// Returns the bytes as they arrive. A body that is cut off ends with an error.
    pub fn into_stream(self) -> impl Stream<Item = Result<Bytes, Error>> {
        self.response.bytes_stream().map_err(Error::Transport)
    }

    /// Writes all bytes to `writer` and returns their number.
    ///
    /// # Errors
    ///
    /// [`Error::Transport`] if the body is cut off, [`Error::Io`] if the writer fails.
    pub async fn copy_to(self, writer: &mut (impl AsyncWrite + Unpin)) -> Result<u64, Error> {
        let mut chunks = std::pin::pin!(self.into_stream());
        let mut bytes = 0;
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk?;
            writer.write_all(&chunk).await?;
            bytes += chunk.len() as u64;
        }
        writer.flush().await?;
        Ok(bytes)
    }
}

/// Makes the body of an upload from a reader. Such an upload is sent once, since a reader cannot be read again.
pub fn body_of(reader: impl AsyncRead + Send + 'static) -> Body {
    Body::wrap_stream(ReaderStream::new(reader))
}

impl Client {
    /// Downloads a file, or a part of it.
    ///
    /// ```no_run
    /// # async fn example(client: workspaced_client::Client, run: workspaced_client::RunId) -> Result<(), workspaced_client::Error> {
    /// use workspaced_client::ByteRange;
    ///
    /// let download = client.download(&run, "data/log.bin", Some(ByteRange::From(4096))).await?;
    /// let mut rest = Vec::new();
    /// download.copy_to(&mut rest).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Those of every request; see [`Error`].
    #[boxed]
    pub async fn download(&self, run: &RunId, path: &str, range: Option<ByteRange>) -> Result<Download, Error> {
        let mut request = self.file(Method::GET, run, path)?;
        if let Some(range) = range {
            let range = match range {
                ByteRange::Bytes(bytes) => format!("bytes={}-{}", bytes.start(), bytes.end()),
                ByteRange::From(first) => format!("bytes={first}-"),
                ByteRange::Last(count) => format!("bytes=-{count}"),
            };
            request = request.header(header::RANGE, &range)?;
        }
        request.send(self).await.map(Download::new)
    }

    /// Stores a file. A body of bytes may be sent again, one of [`body_of`] is not.
    ///
    /// # Errors
    ///
    /// Those of every request; see [`Error`]. `WRITE_CONFLICT` and `ALREADY_EXISTS` if the precondition fails.
    pub async fn upload(
        &self,
        run: &RunId,
        path: &str,
        precondition: Precondition,
        reason: &str,
        body: impl Into<Body>,
    ) -> Result<StoredFile, Error> {
        let request = self.file_change(Method::PUT, run, path, reason)?;
        let request = match precondition {
            Precondition::Absent => request.header(header::IF_NONE_MATCH, "*")?,
            Precondition::Version(sha256) => request.header(header::IF_MATCH, &format!("\"{sha256}\""))?,
        };
        request.body(body).answer(self).await
    }

    /// Deletes the version `sha256` of a file.
    ///
    /// # Errors
    ///
    /// Those of every request; see [`Error`].
    #[boxed]
    pub async fn delete_file(
        &self,
        run: &RunId,
        path: &str,
        sha256: &Sha256,
        reason: &str,
    ) -> Result<StoredFile, Error> {
        let request = self.file_change(Method::DELETE, run, path, reason)?;
        request.header(header::IF_MATCH, &format!("\"{sha256}\""))?.answer(self).await
    }

    fn file(&self, method: Method, run: &RunId, path: &str) -> Result<Request, Error> {
        let path =
            LogicalPath::parse_file(path).map_err(|rule| Error::Invalid(format!("invalid path {path:?}: {rule}")))?;
        let request =
            self.request(method, ["v1", "runs", run.as_str(), "files"].into_iter().chain(path.components()))?;
        request.header(TOOL_CALL_ID.clone(), &new_id("tc_"))
    }

    fn file_change(&self, method: Method, run: &RunId, path: &str, reason: &str) -> Result<Request, Error> {
        let reason = format!("utf-8''{}", utf8_percent_encode(reason, NON_ALPHANUMERIC));
        self.file(method, run, path)?.header(REASON.clone(), &reason)
    }
}
