//! File transfers: whole files as bytes, for programs. They are judged and recorded like tool calls.

use std::io::{self, Read};
use std::sync::Arc;

use bytes::Bytes;
use model::{ContentScan, EvidenceFact, LogicalPath, Refusal, RunId, Sha256, ToolCallId};
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tracing::Instrument as _;
use workspace::{StagedFile, Transfer};

use crate::CallError;
use crate::admission::pools::permit_within;
use crate::call::answer::Disclosure;
use crate::call::record::{Failure, RecordedError};
use crate::call::{Answer, Call, Failed};
use crate::caller::Caller;
use crate::calls::Calls;
use crate::run::fsync_worker::abort_on_failed_fsync;
use crate::run::open_run::OpenRun;
use crate::run::quota::Reservation;
use crate::run::staged_files::may_be_journalled;
use crate::tool::change_plan::INLINE_BYTES;
use crate::tools::files::{self, NewContent, PutFile};
use crate::transaction::Operation;

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
        let (call, members) = Call::of(run, caller, &files::GET, members);
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
        let (put, received) = match self.receive_upload(&call, path, upload).await {
            Ok(received) => received,
            Err(Failure::Recorded(error)) => {
                let answer = Disclosure::of(&call).apply(Err(error));
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
                let work = async move {
                    let staged = received.map(ReceivedFile::into_name);
                    Ok(calls.store(call, put, staged).await)
                };
                self.engine.detached(work).await.unwrap_or_else(|error| Err(RecordedError::left_out(error)))
            }
            Err(refusal) => return self.finish(call, Err(refusal)).await,
        };
        answer.map_err(|error| Failed { tool_call_id, error })
    }

    /// Stores a received upload. Must run as a task of its own, so that the staged file is removed if it is not used.
    async fn store(&self, call: Call, put: PutFile, staged: Option<String>) -> Result<Answer, RecordedError> {
        let (disclosure, span) = (Disclosure::of(&call), call.span());
        // The run was open when the upload was checked.
        let open_run = self.engine.open(&call.run_id).await.map_err(RecordedError::left_out)?;
        let call = call.opened(&open_run, EvidenceFact::Missing);
        let operation = Operation::Mutation(Box::new(put));
        let stored = self.execute_one(call, Arc::clone(&open_run), Ok(operation)).instrument(span);
        let answer = disclosure.apply(stored.await);
        // If it succeeded, the file was moved into the tree, or the call was a repetition that did not use it.
        let may_be_journalled =
            answer.as_ref().err().is_some_and(|error| may_be_journalled(error.as_error(), &open_run));
        if let Some(name) = staged.filter(|_| !may_be_journalled) {
            let discarded = self.engine.blocking(move || Ok(open_run.workspace.discard(&name)?)).await;
            discarded.map_err(RecordedError::left_out)?;
        }
        answer
    }

    /// Receives an upload: small ones into memory, others into the run's `tmp/`. Larger ones are judged before that by path and
    /// declared size.
    async fn receive_upload(
        &self,
        call: &Call,
        path: LogicalPath,
        upload: FileUpload<impl FnOnce() -> Chunks>,
    ) -> Result<(PutFile, Option<ReceivedFile>), Failure> {
        if !call.is_permitted() {
            // The call itself is refused and recorded. The bytes are not read.
            let content = NewContent::Inline(Vec::new());
            return Ok((PutFile::new(path, upload.expected, content, None), None));
        }
        let open_run = self.engine.open(&call.run_id).await?;
        let FileUpload { expected, announced, receive } = upload;
        let is_large = |bytes: u64| bytes > INLINE_BYTES as u64;
        let announce = async |size: Option<u64>| {
            let content = NewContent::Announced(size);
            let put = PutFile::new(path.clone(), expected, content, None);
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
                let mut reader = UploadReader::new(first, chunks, open_run.disk.reservation());
                let work = move || {
                    let _permit = permit;
                    let staged = stage(&open_run, &mut reader, limit)?;
                    let received = ReceivedFile { run: open_run, name: staged.name.clone() };
                    Ok((NewContent::Staged(staged, reader.scan.finish()), reader.reservation, received))
                };
                let (content, reservation, received) = self.engine.blocking(work).await?;
                return Ok((PutFile::new(path, expected, content, Some(reservation)), Some(received)));
            }
        }
        Ok((PutFile::new(path, expected, NewContent::Inline(first), None), None))
    }

    async fn finish(&self, call: Call, members: Result<Map<String, Value>, Refusal>) -> Result<Answer, Failed> {
        let tool_call_id: ToolCallId = call.tool_call_id.clone();
        self.call(call, members).await.map_err(|error| Failed { tool_call_id, error })
    }
}

/// A received file in the run's `tmp/`, removed on drop: the client may disconnect before its call has begun.
struct ReceivedFile {
    run: Arc<OpenRun>,
    /// Empty once a call has the file.
    name: String,
}

impl ReceivedFile {
    /// Returns the name of the file, which a call now has.
    fn into_name(mut self) -> String {
        std::mem::take(&mut self.name)
    }
}

impl Drop for ReceivedFile {
    fn drop(&mut self) {
        if !self.name.is_empty()
            && let Err(error) = self.run.workspace.discard(&self.name)
        {
            // Nothing depends on it, and the folder is emptied when the run is opened again.
            tracing::warn!(run.id = %self.run.run_id, %error, "an unused upload could not be removed");
        }
    }
}

fn stage(open_run: &OpenRun, reader: &mut UploadReader, limit: u64) -> Result<StagedFile, CallError> {
    let staged = open_run.workspace.stage_file(reader, limit);
    if let Some(refusal) = reader.over_quota.take() {
        return Err(refusal.into());
    }
    staged.inspect_err(abort_on_failed_fsync).map_err(|error| match error.kind() {
        io::ErrorKind::FileTooLarge => Refusal::new(
            model::Code::FileTooLarge,
            format!("the file has more than {limit} bytes"),
            "Send a smaller file.",
        )
        .with_details(|details| details.limit = Some(limit))
        .into(),
        io::ErrorKind::UnexpectedEof => ended_early().into(),
        _ => error.into(),
    })
}

fn ended_early() -> Refusal {
    Refusal::invalid("the upload ended early; nothing was changed", "Send the whole file again.")
}

/// Reads an upload on a thread that may block, scans it for credentials and reserves its disk space.
struct UploadReader {
    first: io::Cursor<Vec<u8>>,
    rest: Chunks,
    chunk: Bytes,
    scan: ContentScan,
    /// Grows with the file in the run's `tmp/`.
    reservation: Reservation,
    /// The refusal of a reservation, which ends the upload.
    over_quota: Option<Refusal>,
}

impl UploadReader {
    fn new(first: Vec<u8>, rest: Chunks, reservation: Reservation) -> Self {
        let (first, chunk, scan) = (io::Cursor::new(first), Bytes::new(), ContentScan::default());
        Self { first, rest, chunk, scan, reservation, over_quota: None }
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
        self.scan.feed(&buffer[..count]);
        Ok(count)
    }
}
