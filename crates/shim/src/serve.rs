//! The shim: operations come in as frames, and results go out.

use std::io::{self, BufReader, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use crate::command::{CommandControl, CommandSpec, OutputStream};
use crate::entry::MAX_LAYER_ENTRIES;
use crate::error::ShimError;
use crate::folder::CommandFolder;
use crate::frame::{DataWriter, Frame, FrameKind, read_frame, write_frame, write_items, write_json};
use crate::local::{FreshFolder, LocalFolder};
use crate::message::{PROTOCOL, ShimFault, ShimHello, ShimRequest};

/// The most conflicts that are told.
const MAX_SENT_CONFLICTS: usize = 64;
/// Frames that may wait for the operation before them.
const MAX_WAITING: usize = 4;
/// How often the driver hears of an operation that sends nothing.
const BEAT: Duration = Duration::from_secs(3);

/// Does what is asked on `input` in the folder at `path`, or in a new one inside it, until `input` ends. A command that runs then
/// is killed.
///
/// # Errors
///
/// If the folder cannot be opened, or the pipe fails.
pub fn serve(
    path: &Path,
    is_fresh: bool,
    input: impl Read + Send + 'static,
    output: impl Write + Send + 'static,
) -> Result<(), ShimError> {
    let mut output = SharedOutput(Arc::new(Mutex::new(Box::new(output))));
    // Declared before the folder, which is closed before its files are removed.
    let fresh = if is_fresh { Some(FreshFolder::create(path)?) } else { None };
    let opened = LocalFolder::create(fresh.as_ref().map_or(path, FreshFolder::path));
    let folder = match opened {
        Ok(folder) => folder,
        Err(error) => {
            write_json(&mut output, FrameKind::Fault, &ShimFault::from(&error))?;
            output.flush()?;
            return Err(error);
        }
    };
    let hello = ShimHello { protocol: PROTOCOL, folder: folder.path().display().to_string() };
    write_json(&mut output, FrameKind::Hello, &hello)?;
    output.flush()?;
    let running = Running::default();
    let frames = listen(input, running.clone());
    let is_busy = Arc::new(AtomicBool::new(false));
    Shim { folder, output, frames, running, is_busy }.run()
}

/// The pipe to the driver. Each frame is written at once, by whichever thread has one.
#[derive(Clone)]
struct SharedOutput(Arc<Mutex<Box<dyn Write + Send>>>);

impl Write for SharedOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write_all(bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).flush()
    }
}

/// Sends a frame at intervals while an operation is under way, so that the driver knows a shim that was stopped from one that works.
fn beat(mut output: SharedOutput, is_busy: Weak<AtomicBool>) {
    thread::spawn(move || {
        while let Some(is_busy) = is_busy.upgrade() {
            let sent = if is_busy.load(Ordering::Relaxed) {
                write_frame(&mut output, FrameKind::Beat, &[]).and_then(|()| output.flush())
            } else {
                Ok(())
            };
            drop(is_busy);
            if sent.is_err() {
                break;
            }
            thread::sleep(BEAT);
        }
    });
}

/// The command that runs now.
#[derive(Clone, Default)]
struct Running(Arc<Mutex<RunningState>>);

#[derive(Default)]
struct RunningState {
    control: Option<CommandControl>,
    /// A signal that came before the command has started.
    pending: Option<i32>,
    is_lost: bool,
}

impl Running {
    fn set(&self, control: Option<CommandControl>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let (true, Some(control)) = (state.is_lost, &control) {
            control.kill();
        }
        if let (Some(control), Some(signal)) = (&control, state.pending.take()) {
            control.signal(signal);
        }
        state.control = control;
    }

    fn signal(&self, signal: i32) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &state.control {
            Some(control) => control.signal(signal),
            None => state.pending = Some(signal),
        }
    }

    /// A signal that came before this operation was for a command that had ended by then.
    fn begin(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pending = None;
    }

    /// Nobody is there any more.
    fn lose(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_lost = true;
        if let Some(control) = &state.control {
            control.kill();
        }
    }
}

/// Reads frames. Signals reach the command at once.
fn listen(input: impl Read + Send + 'static, running: Running) -> Receiver<Frame> {
    let (sender, frames): (SyncSender<Frame>, _) = sync_channel(MAX_WAITING);
    thread::spawn(move || {
        let mut input = BufReader::new(input);
        // A broken frame ends the connection as its end does.
        while let Ok(Some(frame)) = read_frame(&mut input) {
            if frame.kind == FrameKind::Request {
                running.begin();
            }
            match (frame.kind, frame.payload.first().copied()) {
                (FrameKind::Signal, Some(signal)) => running.signal(i32::from(signal)),
                _ if sender.send(frame).is_err() => break,
                _ => {}
            }
        }
        running.lose();
    });
    frames
}

struct Shim {
    folder: LocalFolder,
    output: SharedOutput,
    frames: Receiver<Frame>,
    running: Running,
    /// Whether an operation is under way.
    is_busy: Arc<AtomicBool>,
}

impl Shim {
    fn run(&mut self) -> Result<(), ShimError> {
        while let Ok(frame) = self.frames.recv() {
            let done = match frame.kind {
                FrameKind::Request => {
                    self.is_busy.store(true, Ordering::Relaxed);
                    let done = self.operation(&frame);
                    self.is_busy.store(false, Ordering::Relaxed);
                    done
                }
                // What remains of an operation that failed.
                FrameKind::Data | FrameKind::Item | FrameKind::End => continue,
                _ => return Err(ShimError::lost("an unexpected frame")),
            };
            match done {
                Ok(()) => {}
                Err(error @ ShimError::Lost(_)) => return Err(error),
                Err(error) => write_json(&mut self.output, FrameKind::Fault, &ShimFault::from(&error))?,
            }
            self.output.flush()?;
        }
        Ok(())
    }

    fn operation(&mut self, frame: &Frame) -> Result<(), ShimError> {
        let output = &mut self.output;
        match frame.parse()? {
            ShimRequest::Beats => beat(output.clone(), Arc::downgrade(&self.is_busy)),
            ShimRequest::Have => {
                let have = self.folder.have()?;
                write_json(output, FrameKind::Done, &have)?;
            }
            ShimRequest::Tree => {
                let tree = self.folder.tree_sha256()?;
                write_json(output, FrameKind::Done, &tree)?;
            }
            ShimRequest::Apply { after, theirs } => {
                let mut layer = DataReader::new(&self.frames);
                let taken = self.folder.take_theirs(&theirs);
                let applied = taken.and_then(|()| self.folder.apply(&after, &mut layer));
                // What the operation did not read is not the next request.
                layer.drain()?;
                let mut applied = applied?;
                // All of them in one frame, however long the paths are.
                applied.conflicts.truncate(MAX_SENT_CONFLICTS);
                write_json(output, FrameKind::Done, &applied)?;
            }
            ShimRequest::Scan { build_output } => {
                let mut report = self.folder.scan(&build_output)?;
                write_items(output, &std::mem::take(&mut report.changes))?;
                // Paths of 4 KiB, 100 at most: a frame has room for them.
                write_json(output, FrameKind::Done, &report)?;
            }
            ShimRequest::Read { limits } => {
                let paths = paths(&self.frames)?;
                let mut data = DataWriter::new(output);
                let report = self.folder.read(&paths, limits, &mut data);
                data.flush()?;
                let mut report = report?;
                write_frame(output, FrameKind::End, &[])?;
                // So that the report has room in a frame.
                report.left.truncate(100);
                report.torn.truncate(16);
                write_json(output, FrameKind::Done, &report)?;
            }
            ShimRequest::Confirm => {
                let paths = paths(&self.frames)?;
                self.folder.confirm(&paths)?;
                write_json(output, FrameKind::Done, &())?;
            }
            ShimRequest::PutAside => {
                let paths = paths(&self.frames)?;
                self.folder.put_aside(&paths)?;
                write_json(output, FrameKind::Done, &())?;
            }
            ShimRequest::Exec { command } => self.exec(&command)?,
        }
        Ok(())
    }

    fn exec(&mut self, command: &CommandSpec) -> Result<(), ShimError> {
        let (output, running) = (&mut self.output, &self.running);
        let done = self.folder.exec(command, &mut |control| running.set(Some(control)), &mut |stream, chunk| {
            let kind = if stream == OutputStream::Stdout { FrameKind::Stdout } else { FrameKind::Stderr };
            write_frame(output, kind, chunk)?;
            output.flush()
        });
        running.set(None);
        write_json(&mut self.output, FrameKind::Done, &done?)?;
        Ok(())
    }
}

/// Reads a list of paths.
fn paths(frames: &Receiver<Frame>) -> Result<Vec<String>, ShimError> {
    let mut paths: Vec<String> = Vec::new();
    loop {
        let frame = frames.recv().map_err(ShimError::lost)?;
        match frame.kind {
            FrameKind::Item => paths.extend(frame.parse::<Vec<String>>()?),
            FrameKind::End => return Ok(paths),
            _ => return Err(ShimError::lost("an unexpected frame")),
        }
        if paths.len() > MAX_LAYER_ENTRIES {
            return Err(ShimError::lost("too many paths"));
        }
    }
}

/// A stream that comes in as frames of data.
struct DataReader<'a> {
    frames: &'a Receiver<Frame>,
    chunk: io::Cursor<Vec<u8>>,
    is_ended: bool,
}

impl<'a> DataReader<'a> {
    fn new(frames: &'a Receiver<Frame>) -> Self {
        Self { frames, chunk: io::Cursor::default(), is_ended: false }
    }

    fn drain(mut self) -> Result<(), ShimError> {
        while !self.is_ended {
            let frame = self.frames.recv().map_err(ShimError::lost)?;
            self.is_ended = frame.kind == FrameKind::End;
        }
        Ok(())
    }
}

impl Read for DataReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let count = self.chunk.read(buffer)?;
            if count > 0 || self.is_ended || buffer.is_empty() {
                return Ok(count);
            }
            let frame = self.frames.recv().map_err(io::Error::other)?;
            match frame.kind {
                FrameKind::Data => self.chunk = io::Cursor::new(frame.payload),
                FrameKind::End => {
                    self.is_ended = true;
                    if !frame.payload.is_empty() {
                        return Err(io::Error::other(String::from_utf8_lossy(&frame.payload).into_owned()));
                    }
                }
                _ => return Err(io::Error::other("an unexpected frame")),
            }
        }
    }
}
