//! File transfers: whole files as bytes, for programs. They are judged and recorded like tool calls.

use async_recursion::async_recursion as boxed;
use std::io::{self, Read};
use std::sync::Arc;

use bytes::Bytes;
use model::{EvidenceFact, LogicalPath, Refusal, RunId, Sha256, ToolCallId};
use serde::Serialize;
use serde_json::{Map, Value};
use sha2::Digest as _;
use tokio::sync::mpsc;
use tracing::Instrument as _;
use workspace::Transfer;

use crate::CallError;
use crate::admission::pools::permit_within;
use crate::call::answer::disclosed;
use crate::call::record::{Failure, RecordedError};
use crate::call::{Answer, Call, Failed};
use crate::caller::Caller;
use crate::calls::Calls;
use crate::run::fsync_worker::abort_on_failed_fsync;
use crate::run::open_run::OpenRun;
use crate::run::quota::Reservation;
use crate::tool::StagedContent;
use crate::tool::change_plan::INLINE_BYTES;
use crate::tool::layer::{Layer, max_sent_bytes};
use crate::tool::scanned_reader::ScannedReader;
use crate::tools::files::{self, NewContent, PutFile};
use crate::transaction::Operation;

/// How many bytes of a layer that is not kept are hashed at a time.
const HASHED_BYTES: usize = 64 * 1024;

/// The members of a file transfer besides path, version and content.
#[derive(Clone, Debug, Default)]
pub struct FileCallOptions {
    /// The ID of the call, if the client chose one.
    pub tool_call_id: Option<String>,
    /// The reason.
    pub reason: Option<String>,
    /// The mount to read.
    pub mount: Option<String>,
    /// The record at which a file is read.
    pub at_seq: Option<u64>,
    /// The range of bytes of a download, for its record.
    pub range: Option<String>,
    /// The refusal of invalid options. The call is refused with it, and recorded.
    pub refusal: Option<Refusal>,
}

impl FileCallOptions {
    /// Returns the input of a call, if the options are valid.
    fn check(&self, members: Result<Map<String, Value>, Refusal>) -> Result<Map<String, Value>, Refusal> {
        match (members, self.refusal.clone()) {
            (members, None) => members,
            (Ok(_), Some(refusal)) => Err(refusal),
            (Err(other), Some(refusal)) => Err(refusal.first(other)),
        }
    }

    fn members(&self, input: &impl Serialize) -> Map<String, Value> {
        let mut members = match serde_json::to_value(input) {
            Ok(Value::Object(members)) => members,
            // Every input is a struct, which serialises to an object.
            Ok(_) | Err(_) => Map::new(),
        };
        let options = [("toolCallId", &self.tool_call_id), ("reason", &self.reason), ("mount", &self.mount)];
        for (name, value) in options {
            if let Some(value) = value {
                members.insert(name.to_owned(), Value::from(value.as_str()));
            }
        }
        members
    }
}

/// The chunks of an upload. An error ends it.
pub type Chunks = mpsc::Receiver<io::Result<Bytes>>;

/// An upload.
pub struct FileUpload<F> {
    /// The version that it replaces; `None` if no file may exist.
    pub expected: Option<Sha256>,
    /// The size that the client declares, in bytes.
    pub announced: Option<u64>,
    /// Starts to receive the bytes. Called once the upload is accepted: the client may wait for that.
    pub receive: F,
}

/// A file to download.
pub struct FileDownload {
    /// The open file.
    pub transfer: Transfer,
    /// Whether it was changed by something else than a call of the run.
    pub is_outside: bool,
}

impl Calls {
    /// Opens a file for a download, and records the read.
    ///
    /// # Errors
    ///
    /// The refusal, recorded.
    #[boxed]
    pub async fn get_file(
        &self,
        run: &RunId,
        caller: Caller,
        path: &str,
        options: &FileCallOptions,
    ) -> Result<FileDownload, Failed> {
        let mut input = serde_json::json!({"path": path});
        if let Some(seq) = options.at_seq {
            input["atSeq"] = Value::from(seq);
        }
        let members = options.members(&input);
        let (mut call, members) = Call::of(run, caller, &files::GET, members);
        if let Some(range) = &options.range {
            call.add_recorded_input("range", range);
        }
        let (tool_call_id, span) = (call.tool_call_id.clone(), call.span());
        let read = async {
            let (open_run, members) = self.admit(&call, options.check(members)).await?;
            let call = call.opened(&open_run, EvidenceFact::Missing);
            let (output, _) = self.engine.read_call(call, &open_run, members).await?;
            let is_outside = output.is_outside;
            let missing = || RecordedError::left_out(CallError::Internal("a download has no transfer".into()));
            let transfer = output.transfer.ok_or_else(missing)?;
            Ok(FileDownload { transfer, is_outside })
        };
        read.instrument(span).await.map_err(|error| Failed { tool_call_id, error })
    }

    /// Deletes a file, if it is the version `expected`.
    ///
    /// # Errors
    ///
    /// The refusal, recorded.
    #[boxed]
    pub async fn delete_file(
        &self,
        run: &RunId,
        caller: Caller,
        path: &str,
        expected: Option<Sha256>,
        options: &FileCallOptions,
    ) -> Result<Answer, Failed> {
        let members = options.members(&serde_json::json!({"path": path, "expectedSha256": expected}));
        let (call, members) = Call::of(run, caller, &files::DELETE, members);
        self.finish(call, options.check(members)).await
    }

    /// Stores a file. It must not exist, or must have the version that the caller expects.
    ///
    /// # Errors
    ///
    /// The refusal, recorded.
    pub async fn put_file(
        self: &Arc<Self>,
        run: &RunId,
        caller: Caller,
        path: &str,
        options: &FileCallOptions,
        upload: FileUpload<impl FnOnce() -> Chunks>,
    ) -> Result<Answer, Failed> {
        let expected = upload.expected;
        // Before the bytes arrive, the declared size is what distinguishes two uploads.
        let early = serde_json::json!({"path": path, "expectedSha256": expected, "sizeBytes": upload.announced});
        let members = options.members(&early);
        let (call, early) = Call::of(run, caller.clone(), &files::PUT, members);
        let path = match options.check(early).and_then(|_| files::put_path(path, expected)) {
            Ok(path) => path,
            Err(refusal) => return self.finish(call, Err(refusal)).await,
        };
        let put = match self.receive_upload(&call, path, upload).await {
            Ok(put) => put,
            Err(Failure::Recorded(error)) => {
                let answer = disclosed(call.caller.may_read(), Err(error));
                return answer.map_err(|error| Failed { tool_call_id: call.tool_call_id, error });
            }
            Err(Failure::Call(_, CallError::Refused(refusal)) | Failure::All(CallError::Refused(refusal))) => {
                use model::Code::{InvalidRequest, RateLimited, Unavailable};
                let is_received = !matches!(refusal.code, Unavailable | InvalidRequest | RateLimited);
                // Without the whole content the call is unknown, so its ID remains unused for a retry.
                return self.finish(if is_received { call } else { call.under_new_id() }, Err(refusal)).await;
            }
            Err(failure) => {
                // The call is unknown.
                let error = RecordedError::left_out(failure.into_error());
                return Err(Failed { tool_call_id: call.tool_call_id, error });
            }
        };
        let (call, members) = Call::of(run, caller, &files::PUT, options.members(&put.to_input()));
        let tool_call_id = call.tool_call_id.clone();
        let answer = match members {
            Ok(_) => {
                let calls = Arc::clone(self);
                let work = async move { Ok(calls.store(call, put).await) };
                self.engine.detached(work).await.unwrap_or_else(|error| Err(RecordedError::left_out(error)))
            }
            Err(refusal) => return self.finish(call, Err(refusal)).await,
        };
        answer.map_err(|error| Failed { tool_call_id, error })
    }

    /// Stores a received upload.
    async fn store(&self, call: Call, put: PutFile) -> Result<Answer, RecordedError> {
        let (may_read, span) = (call.caller.may_read(), call.span());
        // The run was open when the upload was checked.
        let open_run = self.engine.open(&call.run_id).await.map_err(RecordedError::left_out)?;
        let call = call.opened(&open_run, EvidenceFact::Missing);
        let operation = Operation::Mutation(Box::new(put));
        disclosed(may_read, self.execute_one(call, open_run, Ok(operation)).instrument(span).await)
    }

    /// Receives an upload: small ones into memory, others into the run's `tmp/`. Larger ones are judged before that by path and
    /// declared size.
    async fn receive_upload(
        &self,
        call: &Call,
        path: LogicalPath,
        upload: FileUpload<impl FnOnce() -> Chunks>,
    ) -> Result<PutFile, Failure> {
        if !call.is_permitted() {
            // The call itself is refused and recorded. The bytes are not read.
            let content = NewContent::Inline(Vec::new());
            return Ok(PutFile::new(path, upload.expected, content));
        }
        let open_run = self.engine.open(&call.run_id).await?;
        let FileUpload { expected, announced, receive } = upload;
        let is_large = |bytes: u64| bytes > INLINE_BYTES as u64;
        let announce = async |size: Option<u64>| {
            let content = NewContent::Announced(size);
            let put = PutFile::new(path.clone(), expected, content);
            let checked = self.engine.check_upload(call, &open_run, Operation::Mutation(Box::new(put))).await;
            checked.map_err(Failure::Recorded)
        };
        if announced.is_some_and(is_large) {
            announce(announced).await?;
        }
        let mut chunks = receive();
        let mut first = Vec::new();
        while let Some(chunk) = chunks.recv().await {
            first.extend_from_slice(&chunk.map_err(|_| ended_early())?);
            if is_large(first.len() as u64) {
                if announced.is_none() {
                    announce(None).await?;
                }
                let limit = open_run.rules.policy().max_transfer_bytes;
                // The rest is received on a blocking thread. The permits limit the number of these threads.
                let permit =
                    permit_within(&self.engine.pools.receive, "large uploads", self.engine.limits.request_timeout)
                        .await?;
                let reader = UploadReader::new(first, chunks, open_run.disk.reservation());
                let work = move || {
                    let _permit = permit;
                    stage(&open_run, reader, limit)
                };
                let staged = self.engine.blocking(work).await?;
                return Ok(PutFile::new(path, expected, NewContent::Staged(Box::new(staged))));
            }
        }
        Ok(PutFile::new(path, expected, NewContent::Inline(first)))
    }

    /// Returns the largest layer of a change set of the run as it is sent, in bytes.
    ///
    /// # Errors
    ///
    /// As for opening the run.
    #[boxed]
    pub async fn max_layer_bytes(&self, run: &RunId) -> Result<u64, CallError> {
        Ok(max_sent_bytes(self.engine.open(run).await?.rules.policy()))
    }

    /// Receives a layer that is too large to be in memory, of which `first` has arrived, into a file of its run. If its `set` is recorded
    /// already, it is only hashed, so that the answer to a repetition depends on no quota.
    ///
    /// # Errors
    ///
    /// `BODY_TOO_LARGE`; `QUOTA_EXCEEDED`; `INVALID_REQUEST` if it ends early; `RATE_LIMITED` and `UNAVAILABLE` if there are too many uploads.
    #[boxed]
    pub async fn receive_layer(
        &self,
        run: &RunId,
        set: Option<&ToolCallId>,
        first: Vec<u8>,
        chunks: Chunks,
    ) -> Result<Layer, CallError> {
        let recorded = match set {
            Some(set) => self.engine.ledger.call(run, set).await?.filter(|call| call.reply.is_some()),
            None => None,
        };
        let open_run = self.engine.open(run).await?;
        let limit = max_sent_bytes(open_run.rules.policy());
        let timeout = self.engine.limits.request_timeout;
        let permit = permit_within(&self.engine.pools.receive, "large uploads", timeout).await?;
        let mut reader = UploadReader::new(first, chunks, open_run.disk.reservation());
        let spool = move || {
            let _permit = permit;
            if recorded.is_some() {
                let hashed = reader.hash(limit);
                return Ok(Layer::recorded(
                    hashed.map_err(|error| reader.refusal_of(error, || layer_too_large(limit)))?,
                ));
            }
            let spooled = open_run.workspace.spool(&mut reader, limit);
            let spooled = spooled.map_err(|error| reader.refusal_of(error, || layer_too_large(limit)))?;
            Ok(Layer::spooled(spooled, reader.reservation))
        };
        self.engine.blocking(spool).await
    }

    async fn finish(&self, call: Call, members: Result<Map<String, Value>, Refusal>) -> Result<Answer, Failed> {
        let tool_call_id: ToolCallId = call.tool_call_id.clone();
        self.call(call, members).await.map_err(|error| Failed { tool_call_id, error })
    }
}

fn stage(open_run: &OpenRun, mut reader: UploadReader, limit: u64) -> Result<StagedContent, CallError> {
    let too_large = || {
        let message = format!("the file has more than {limit} bytes");
        Refusal::new(model::Code::FileTooLarge, message, "Send a smaller file.")
            .with_details(|details| details.limit = Some(limit))
    };
    let mut contents = open_run.workspace.staged_contents();
    let mut scanned = ScannedReader::new(&mut reader);
    let staged = contents.stage(&mut scanned, limit).inspect_err(abort_on_failed_fsync);
    let scan = scanned.scan;
    let file = staged.map_err(|error| reader.refusal_of(error, too_large))?;
    Ok(StagedContent { file, scanned: scan.finish(), owner: Some((contents, reader.reservation)) })
}

/// Returns the refusal of a layer with more than `limit` bytes as it is sent.
fn layer_too_large(limit: u64) -> Refusal {
    let message = format!("the layer has more than {limit} bytes as it is sent");
    let hint = "Leave out build output and data, send the change in several sets, or ask the operator for a larger maxTransferBytes.";
    Refusal::new(model::Code::BodyTooLarge, message, hint).with_details(|details| details.limit = Some(limit))
}

fn ended_early() -> Refusal {
    Refusal::invalid("the upload ended early; nothing was changed", "Send the whole file again.")
}

/// Reads an upload on a thread that may block, and reserves its disk space.
struct UploadReader {
    first: io::Cursor<Vec<u8>>,
    rest: Chunks,
    chunk: Bytes,
    /// Grows with the file in the run's `tmp/`.
    reservation: Reservation,
    /// The refusal of a reservation, which ends the upload.
    over_quota: Option<Refusal>,
}

impl UploadReader {
    fn new(first: Vec<u8>, rest: Chunks, reservation: Reservation) -> Self {
        Self { first: io::Cursor::new(first), rest, chunk: Bytes::new(), reservation, over_quota: None }
    }

    /// Returns the hash of the bytes, of which nothing is kept.
    fn hash(&mut self, max_bytes: u64) -> io::Result<Sha256> {
        let (mut hasher, mut buffer, mut bytes) = (sha2::Sha256::new(), vec![0; HASHED_BYTES], 0_u64);
        loop {
            let count = self.next(&mut buffer)?;
            if count == 0 {
                return Ok(Sha256::from_bytes(hasher.finalize().into()));
            }
            bytes += count as u64;
            if bytes > max_bytes {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            hasher.update(&buffer[..count]);
        }
    }

    /// Returns what `error`, with which the upload ended, means to the caller.
    fn refusal_of(&mut self, error: io::Error, too_large: impl FnOnce() -> Refusal) -> CallError {
        if let Some(refusal) = self.over_quota.take() {
            return refusal.into();
        }
        match error.kind() {
            io::ErrorKind::FileTooLarge => too_large().into(),
            io::ErrorKind::UnexpectedEof => ended_early().into(),
            _ => error.into(),
        }
    }

    fn next(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.first.read(buffer)?;
        if count > 0 {
            return Ok(count);
        }
        while self.chunk.is_empty() {
            match self.rest.blocking_recv() {
                Some(Ok(chunk)) => self.chunk = chunk,
                Some(Err(error)) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, error)),
                None => return Ok(0),
            }
        }
        let count = buffer.len().min(self.chunk.len());
        buffer[..count].copy_from_slice(&self.chunk.split_to(count));
        Ok(count)
    }
}

impl Read for UploadReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.next(buffer)?;
        if let Err(refusal) = self.reservation.grow(count as u64) {
            self.over_quota = Some(refusal);
            return Err(io::ErrorKind::QuotaExceeded.into());
        }
        Ok(count)
    }
}
