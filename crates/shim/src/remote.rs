//! A folder in a sandbox, by the frames of the shim there.

use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::command::{CommandControl, CommandOutcome, CommandSpec, OutputStream};
use crate::entry::{MAX_LAYER_ENTRIES, check_path};
use crate::error::ShimError;
use crate::folder::{AppliedLayer, CheckedOut, CommandFolder, PathChange, ReadLimits, ReadReport, ScanReport};
use crate::frame::{DATA_BYTES, Frame, FrameKind, read_frame, write_frame, write_items, write_json};
use crate::message::{PROTOCOL, ShimFault, ShimHello, ShimRequest};

/// The most bytes of a list that a sandbox sends.
const MAX_LIST_BYTES: usize = 64 << 20;

/// A folder in a sandbox.
///
/// The sandbox is hostile: what it sends is bounded, and nothing of it is more than a proposal.
pub struct RemoteFolder<R, W> {
    from: R,
    to: Arc<Mutex<W>>,
    folder: String,
    /// What the next layer may overwrite.
    theirs: Vec<String>,
}

impl<R: Read + Send, W: Write + Send + 'static> RemoteFolder<R, W> {
    /// Waits for the first frame of the shim.
    ///
    /// # Errors
    ///
    /// If something else than a shim of this version answers.
    pub fn connect(mut from: R, to: W) -> Result<Self, ShimError> {
        let frame = read_frame(&mut from)?.ok_or_else(|| ShimError::lost("the shim did not start"))?;
        if frame.kind == FrameKind::Fault {
            return Err(frame.parse::<ShimFault>()?.into());
        }
        let hello: ShimHello = frame.parse()?;
        if frame.kind != FrameKind::Hello || hello.protocol != PROTOCOL {
            let (ours, theirs) = (PROTOCOL, hello.protocol);
            return Err(ShimError::Refused(format!(
                "the shim speaks version {theirs}, not {ours}: use the one of this release"
            )));
        }
        let remote = Self { from, to: Arc::new(Mutex::new(to)), folder: hello.folder, theirs: Vec::new() };
        remote.request(&ShimRequest::Beats)?;
        Ok(remote)
    }

    /// The path of the folder in the sandbox.
    pub fn path(&self) -> &str {
        &self.folder
    }

    fn send(&self, write: impl FnOnce(&mut W) -> io::Result<()>) -> Result<(), ShimError> {
        let mut to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
        write(&mut to)?;
        Ok(to.flush()?)
    }

    fn request(&self, request: &impl Serialize) -> Result<(), ShimError> {
        self.send(|to| write_json(to, FrameKind::Request, request))
    }

    fn next(&mut self) -> Result<Frame, ShimError> {
        loop {
            let frame = read_frame(&mut self.from)?.ok_or_else(|| ShimError::lost("it ended"))?;
            match frame.kind {
                FrameKind::Beat => {}
                FrameKind::Fault => return Err(frame.parse::<ShimFault>()?.into()),
                _ => return Ok(frame),
            }
        }
    }

    fn done<T: DeserializeOwned>(&mut self) -> Result<T, ShimError> {
        let frame = self.next()?;
        if frame.kind == FrameKind::Done { Ok(frame.parse()?) } else { Err(unexpected()) }
    }

    fn send_paths(&self, paths: &[String]) -> Result<(), ShimError> {
        self.send(|to| {
            write_items(to, paths)?;
            write_frame(to, FrameKind::End, &[])
        })
    }
}

impl<R: Read + Send, W: Write + Send + 'static> CommandFolder for RemoteFolder<R, W> {
    fn have(&mut self) -> Result<Option<CheckedOut>, ShimError> {
        self.request(&ShimRequest::Have)?;
        self.done()
    }

    fn apply(&mut self, after: &CheckedOut, layer: &mut dyn Read) -> Result<AppliedLayer, ShimError> {
        let theirs = std::mem::take(&mut self.theirs);
        self.request(&ShimRequest::Apply { after: after.clone(), theirs })?;
        let mut chunk = vec![0; DATA_BYTES];
        loop {
            match layer.read(&mut chunk) {
                Ok(0) => break self.send(|to| write_frame(to, FrameKind::End, &[]))?,
                Ok(count) => self.send(|to| write_frame(to, FrameKind::Data, &chunk[..count]))?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // The shim answers that it has not applied it.
                    let why = error.to_string();
                    break self.send(|to| write_frame(to, FrameKind::End, why.as_bytes()))?;
                }
            }
        }
        self.done()
    }

    fn take_theirs(&mut self, theirs: &[String]) -> Result<(), ShimError> {
        self.theirs = theirs.to_vec();
        Ok(())
    }

    fn tree_sha256(&mut self) -> Result<String, ShimError> {
        self.request(&ShimRequest::Tree)?;
        let tree: String = self.done()?;
        if is_hash(&tree) { Ok(tree) } else { Err(unexpected()) }
    }

    fn scan(&mut self, build_output: &[String]) -> Result<ScanReport, ShimError> {
        self.request(&ShimRequest::Scan { build_output: build_output.to_vec() })?;
        let (mut changes, mut bytes): (Vec<PathChange>, usize) = (Vec::new(), 0);
        loop {
            let frame = self.next()?;
            match frame.kind {
                FrameKind::Item if changes.len() < MAX_LAYER_ENTRIES && bytes < MAX_LIST_BYTES => {
                    bytes += frame.payload.len();
                    let more: Vec<PathChange> = frame.parse()?;
                    // As the shim's own scan gives them.
                    if more.iter().any(|change| check_path(&change.path).is_err()) {
                        return Err(unexpected());
                    }
                    changes.extend(more);
                }
                FrameKind::Done => return Ok(ScanReport { changes, ..frame.parse()? }),
                _ => return Err(unexpected()),
            }
        }
    }

    fn read(&mut self, paths: &[String], limits: ReadLimits, out: &mut dyn Write) -> Result<ReadReport, ShimError> {
        self.request(&ShimRequest::Read { limits })?;
        self.send_paths(paths)?;
        // Headers and padding are bounded by the number of paths.
        let overhead = (paths.len() as u64 + 1).saturating_mul(16 << 10);
        let mut left = limits.max_total_bytes.saturating_add(overhead);
        loop {
            let frame = self.next()?;
            match frame.kind {
                FrameKind::Data => {
                    left = left.checked_sub(frame.payload.len() as u64).ok_or_else(unexpected)?;
                    out.write_all(&frame.payload).map_err(|error| ShimError::io("the layer", error))?;
                }
                FrameKind::End => return self.done(),
                _ => return Err(unexpected()),
            }
        }
    }

    fn confirm(&mut self, paths: &[String]) -> Result<(), ShimError> {
        self.request(&ShimRequest::Confirm)?;
        self.send_paths(paths)?;
        self.done()
    }

    fn put_aside(&mut self, paths: &[String]) -> Result<(), ShimError> {
        self.request(&ShimRequest::PutAside)?;
        self.send_paths(paths)?;
        self.done()
    }

    fn exec(
        &mut self,
        command: &CommandSpec,
        started: &mut dyn FnMut(CommandControl),
        output: &mut dyn FnMut(OutputStream, &[u8]) -> io::Result<()>,
    ) -> Result<CommandOutcome, ShimError> {
        self.request(&ShimRequest::Exec { command: command.clone() })?;
        let to = Arc::clone(&self.to);
        started(CommandControl::new(move |signal| {
            let mut to = to.lock().unwrap_or_else(PoisonError::into_inner);
            let signal = u8::try_from(signal).unwrap_or(0);
            // If the pipe is lost, the command ends with it.
            let _ = write_frame(&mut *to, FrameKind::Signal, &[signal]).and_then(|()| to.flush());
        }));
        loop {
            let frame = self.next()?;
            match frame.kind {
                FrameKind::Stdout => output(OutputStream::Stdout, &frame.payload)?,
                FrameKind::Stderr => output(OutputStream::Stderr, &frame.payload)?,
                FrameKind::Done => return Ok(frame.parse()?),
                _ => return Err(unexpected()),
            }
        }
    }
}

impl<R, W> std::fmt::Debug for RemoteFolder<R, W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteFolder").field("folder", &self.folder).finish_non_exhaustive()
    }
}

fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn unexpected() -> ShimError {
    ShimError::lost("the shim sent something unexpected")
}
