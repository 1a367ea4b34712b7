//! The files plane: whole files as bytes, for programs. The same calls as any tool, with other transport.

use std::io::{self, Read};
use std::sync::Arc;

use bytes::Bytes;
use model::{ContentScan, LogicalPath, Refusal, RunId, Sha256, ToolCallId};
use serde::Serialize;
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use workspace::{StagedFile, Transfer};

use crate::CallError;
use crate::call::disclosure::Disclosure;
use crate::call::{Answer, CallContext, Failed};
use crate::engine::{Caller, Engine};
use crate::runs::open_run::OpenRun;
use crate::runs::quota::Reservation;
use crate::tools::files::INLINE_BYTES;
use crate::tools::files::{self, NewContent, PutFile};
use crate::transaction::Operation;
use crate::transaction::fsync_worker::abort_on_failed_fsync;

/// What a call of the files plane says beside the file.
#[derive(Clone, Debug, Default)]
pub struct FileCallOptions {
    /// The call, where the caller names it.
    pub tool_call_id: Option<String>,
    /// Why.
    pub reason: Option<String>,
    /// The mount to read.
    pub mount: Option<String>,
    /// What is wrong with all that: the call is refused for it, and recorded as any other.
    pub refusal: Option<Refusal>,
}

impl FileCallOptions {
    /// The input of a call, if what was said with it can be used.
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
            // An input is a struct, which always is an object.
            Ok(_) | Err(_) => Map::new(),
        };
        let said = [("toolCallId", &self.tool_call_id), ("reason", &self.reason), ("mount", &self.mount)];
        for (name, value) in said {
            if let Some(value) = value {
                members.insert(name.to_owned(), Value::from(value.as_str()));
            }
        }
        members
    }
}

/// The bytes of an upload as they come in; an error ends them.
pub type Pieces = mpsc::Receiver<io::Result<Bytes>>;

/// A file that is sent.
pub struct Upload<F> {
    /// The version that it replaces; `None` where nothing may be there.
    pub expected: Option<Sha256>,
    /// How many bytes its sender announces.
    pub announced: Option<u64>,
    /// Begins to take the bytes in. Not before it is known that they are wanted: a sender may wait for that.
    pub begin: F,
}

impl Engine {
    /// Opens a file to be sent, and records that it was.
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
    ) -> Result<Transfer, Failed> {
        let members = options.members(&serde_json::json!({"path": path}));
        let (call, members) = CallContext::of(run, caller, &files::GET, members);
        let tool_call_id = call.tool_call_id.clone();
        let read = async {
            let (open_run, members) = self.admit(&call, options.check(members)).await?;
            let (output, _) = self.read_call(call, &open_run, members).await?;
            output.transfer.ok_or_else(|| CallError::Internal("a file that was read has no transfer".into()))
        };
        read.await.map_err(|error| Failed { tool_call_id, error })
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
        let (call, members) = CallContext::of(run, caller, &files::DELETE, members);
        self.finish(call, options.check(members)).await
    }

    /// Stores a file: where nothing is, or where the version that the caller expects is.
    ///
    /// # Errors
    ///
    /// The refusal, recorded.
    pub async fn put_file(
        &self,
        run: &RunId,
        caller: Caller,
        path: &str,
        options: &FileCallOptions,
        upload: Upload<impl FnOnce() -> Pieces>,
    ) -> Result<Answer, Failed> {
        let expected = upload.expected;
        let members = options.members(&serde_json::json!({"path": path, "expectedSha256": expected}));
        let (call, early) = CallContext::of(run, caller.clone(), &files::PUT, members);
        let path = match (options.check(early), LogicalPath::parse_file(path)) {
            (Ok(_), Ok(path)) => path,
            (Err(refusal), _) => return self.finish(call, Err(refusal)).await,
            (Ok(_), Err(rule)) => return self.finish(call, Err(Refusal::path(path, rule))).await,
        };
        let put = match self.take_in(&call, path, upload).await {
            Ok(put) => put,
            // It is recorded.
            Err(CallError::Refused(refusal)) if refusal.details.seq.is_some() => {
                let told = Disclosure::of(&call).apply(Err(refusal.into()));
                return told.map_err(|error| Failed { tool_call_id: call.tool_call_id, error });
            }
            Err(CallError::Refused(refusal)) => {
                use model::Code::{InvalidRequest, RateLimited, Unavailable};
                let came_in = !matches!(refusal.code, Unavailable | InvalidRequest | RateLimited);
                // What the call would have been is not known: its ID stays free for another try.
                return self.finish(if came_in { call } else { call.under_new_id() }, Err(refusal)).await;
            }
            Err(error) => return Err(Failed { tool_call_id: call.tool_call_id, error }),
        };
        let staged = match &put.content {
            NewContent::Inline(_) | NewContent::Announced(_) => None,
            NewContent::Staged(file, _) => Some(file.name.clone()),
        };
        let (call, members) = CallContext::of(run, caller, &files::PUT, options.members(&put.to_input()));
        let tool_call_id = call.tool_call_id.clone();
        let done = match members {
            Ok(_) => self.store(call, put, staged).await,
            Err(refusal) => return self.finish(call, Err(refusal)).await,
        };
        done.map_err(|error| Failed { tool_call_id, error })
    }

    async fn store(&self, call: CallContext, put: PutFile, staged: Option<String>) -> Result<Answer, CallError> {
        let disclosure = Disclosure::of(&call);
        let open_run = self.open(&call.run_id).await?;
        let operation = Operation::Mutation(Box::new(put));
        let done = disclosure.apply(self.execute_one(call, Arc::clone(&open_run), Ok(operation)).await);
        let journalled = match &done {
            // It is in the tree; or the call was a repetition, and nobody knows the file.
            Ok(_) => false,
            // The journal may name the file: it goes when the steps are settled, or with the next start.
            Err(CallError::Internal(_)) => true,
            Err(CallError::Refused(refusal)) => match refusal.code {
                model::Code::RunNeedsRepair => true,
                // A disk that is full is not to be kept so; what was settled meanwhile has moved the file away.
                model::Code::Unavailable => open_run.accounting.is_dirty(),
                _ => false,
            },
        };
        if let Some(name) = staged.filter(|_| !journalled) {
            self.blocking(move || Ok(open_run.workspace.discard(&name)?)).await?;
        }
        done
    }

    /// Takes an upload in: small ones into memory, others into the run's `tmp/`, once they are judged by what is known of
    /// them before.
    async fn take_in(
        &self,
        call: &CallContext,
        path: LogicalPath,
        upload: Upload<impl FnOnce() -> Pieces>,
    ) -> Result<PutFile, CallError> {
        if !call.is_permitted() {
            // Refused by the call itself, which records it; the bytes are not looked at.
            let content = NewContent::Inline(Vec::new());
            return Ok(PutFile { path, expected: upload.expected, content, reservation: None });
        }
        let open_run = self.open(&call.run_id).await?;
        let Upload { expected, announced, begin } = upload;
        let is_large = |bytes: u64| bytes > INLINE_BYTES as u64;
        let announce = async |size: Option<u64>| {
            let content = NewContent::Announced(size);
            let put = PutFile { path: path.clone(), expected, content, reservation: None };
            self.check_upload(call, &open_run, Operation::Mutation(Box::new(put))).await
        };
        if announced.is_some_and(is_large) {
            announce(announced).await?;
        }
        let mut pieces = begin();
        let mut first = Vec::new();
        while let Some(piece) = pieces.recv().await {
            first.extend_from_slice(&piece.map_err(|_| broken_off())?);
            if is_large(first.len() as u64) {
                if announced.is_none() {
                    announce(None).await?;
                }
                let limit = open_run.rules.policy().max_transfer_bytes;
                // A thread waits for every piece of it, and of them there are so many.
                let permit = self.permits.receive.acquire(&call.run_id, self.limits.request_timeout).await?;
                let mut rest = Incoming::new(first, pieces, open_run.disk.reservation());
                let work = move || {
                    let _permit = permit;
                    let staged = stage(&open_run, &mut rest, limit)?;
                    Ok((NewContent::Staged(staged, rest.scan.finish()), rest.reservation))
                };
                let (content, reservation) = self.blocking(work).await?;
                return Ok(PutFile { path, expected, content, reservation: Some(reservation) });
            }
        }
        Ok(PutFile { path, expected, content: NewContent::Inline(first), reservation: None })
    }

    async fn finish(&self, call: CallContext, members: Result<Map<String, Value>, Refusal>) -> Result<Answer, Failed> {
        let tool_call_id: ToolCallId = call.tool_call_id.clone();
        self.call(call, members).await.map_err(|error| Failed { tool_call_id, error })
    }
}

fn stage(open_run: &OpenRun, from: &mut Incoming, limit: u64) -> Result<StagedFile, CallError> {
    let staged = open_run.workspace.stage_file(from, limit);
    if let Some(refusal) = from.over_quota.take() {
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
        io::ErrorKind::UnexpectedEof => broken_off().into(),
        _ => error.into(),
    })
}

fn broken_off() -> Refusal {
    Refusal::invalid("the upload ended early; nothing was changed", "Send the whole file again.")
}

/// An upload as a reader, for a thread that may block. What goes by is looked at.
struct Incoming {
    first: io::Cursor<Vec<u8>>,
    rest: Pieces,
    piece: Bytes,
    scan: ContentScan,
    /// What lies in the run's `tmp/` counts as it grows.
    reservation: Reservation,
    /// Why it grows no more.
    over_quota: Option<Refusal>,
}

impl Incoming {
    fn new(first: Vec<u8>, rest: Pieces, reservation: Reservation) -> Self {
        let (first, piece, scan) = (io::Cursor::new(first), Bytes::new(), ContentScan::default());
        Self { first, rest, piece, scan, reservation, over_quota: None }
    }

    fn next(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.first.read(buffer)?;
        if count > 0 {
            return Ok(count);
        }
        while self.piece.is_empty() {
            match self.rest.blocking_recv() {
                Some(Ok(piece)) => self.piece = piece,
                Some(Err(error)) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, error)),
                None => return Ok(0),
            }
        }
        let count = buffer.len().min(self.piece.len());
        buffer[..count].copy_from_slice(&self.piece.split_to(count));
        Ok(count)
    }
}

impl Read for Incoming {
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
