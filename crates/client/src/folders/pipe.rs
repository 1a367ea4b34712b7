//! The pipe to a sandbox: a program that runs a command there, such as `docker exec -i`, starts the shim.

#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "the client starts its user's programs")]

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use model::Sha256;
use rustix::process::{Pid, Signal, kill_process_group};
use shim::{RemoteFolder, ShimError};

use crate::folders::address::SandboxAddress;
use crate::folders::error::FolderError;

/// The name of the program that is copied into sandboxes.
const SHIM_NAME: &str = "workspaced-shim";
/// The most bytes of it.
const MAX_SHIM_BYTES: u64 = 64 << 20;
/// How a sandbox says that it does not have the shim yet.
const MISSING: i32 = 77;
/// How long the program that holds the pipe may take to end.
const END: Duration = Duration::from_secs(5);

/// The most bytes of a program's complaint that are kept.
const MAX_ERROR_BYTES: usize = 4096;
/// How long the end of a complaint is waited for.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Starts the shim, if the sandbox has it: `FOLDER NAME MODE`. A file of another user is not started.
const START: &str = include_str!("start.sh");

/// Writes the shim to the first place from which it can be started: `FOLDER NAME`.
const INSTALL: &str = include_str!("install.sh");

/// A folder behind a pipe.
pub(crate) type PipeFolder = RemoteFolder<BufReader<PipeEnd<ChildStdout>>, BufWriter<PipeEnd<ChildStdin>>>;

/// An end of the pipe, which notes since when it has been waited for.
pub(crate) struct PipeEnd<T> {
    end: T,
    waiting: Waiting,
}

/// Since when an end of a pipe has been waited for, if it is.
#[derive(Clone, Default)]
struct Waiting(Arc<Mutex<Option<Instant>>>);

impl Waiting {
    fn set(&self, since: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = since;
    }

    fn lasts(&self) -> Duration {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).map_or(Duration::ZERO, |since| since.elapsed())
    }
}

impl<T> PipeEnd<T> {
    fn wait<R>(&mut self, work: impl FnOnce(&mut T) -> R) -> R {
        self.waiting.set(Some(Instant::now()));
        let done = work(&mut self.end);
        self.waiting.set(None);
        done
    }
}

impl<T: Read> Read for PipeEnd<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.wait(|end| end.read(buffer))
    }
}

impl<T: Write> Write for PipeEnd<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wait(|end| end.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.wait(Write::flush)
    }
}

/// The program that holds the pipe. Its end is waited for when this is dropped.
pub(crate) struct PipeProcess(PipeHandle);

/// Ends the program that holds the pipe, and knows what it says.
#[derive(Clone)]
pub(crate) struct PipeHandle {
    child: Arc<Mutex<Child>>,
    errors: KeptErrors,
    /// Of its ends: reading and writing.
    waiting: [Waiting; 2],
    is_cut_silent: Arc<AtomicBool>,
}

/// The end of what a program writes on standard error.
#[derive(Clone, Default)]
struct KeptErrors(Arc<Mutex<KeptText>>);

#[derive(Default)]
struct KeptText {
    end: Vec<u8>,
    is_whole: bool,
}

/// Starts the shim in a sandbox, and copies it there before if it is not there.
pub(crate) fn connect(
    address: &SandboxAddress,
    folder: &str,
    mode: &str,
    shim: Option<&Path>,
    limit: Duration,
) -> Result<(PipeFolder, PipeProcess), FolderError> {
    let program = read_shim(shim)?;
    let name = format!("{SHIM_NAME}-{}", &Sha256::of(&program).to_string()[..16]);
    if let Some(started) = start(address, folder, &name, mode, limit)? {
        return Ok(started);
    }
    install(address, folder, &name, program, limit)?;
    start(address, folder, &name, mode, limit)?.ok_or_else(|| FolderError::NotCopied {
        sandbox: address.to_string(),
        why: "it was copied and is not there".to_owned(),
    })
}

/// Starts the shim. `None` if the sandbox does not have it.
fn start(
    address: &SandboxAddress,
    folder: &str,
    name: &str,
    mode: &str,
    limit: Duration,
) -> Result<Option<(PipeFolder, PipeProcess)>, FolderError> {
    let (mut child, errors) = spawn(address, START, &[folder, name, mode], Stdio::piped())?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let process = PipeProcess(PipeHandle::new(child, errors));
    let (Some(stdin), Some(stdout)) = (stdin, stdout) else {
        return Err(FolderError::Address(format!("{address} has no pipe")));
    };
    let not_started = |why: String| FolderError::NotStarted {
        sandbox: address.to_string(),
        check: format!("{} true", address.program.join(" ")),
        why,
    };
    let [reading, writing] = process.0.waiting.clone();
    let (stdout, stdin) = (PipeEnd { end: stdout, waiting: reading }, PipeEnd { end: stdin, waiting: writing });
    let connected = process.0.within(limit, move || {
        RemoteFolder::connect(BufReader::with_capacity(256 << 10, stdout), BufWriter::new(stdin))
    });
    match connected {
        Some(Ok(remote)) => Ok(Some((remote, process))),
        Some(Err(error @ ShimError::Lost(_))) => match process.0.wait(END).and_then(|status| status.code()) {
            Some(MISSING) => Ok(None),
            _ => Err(not_started(process.0.said().unwrap_or_else(|| error.to_string()))),
        },
        Some(Err(error)) => Err(error.into()),
        None => Err(not_started(no_answer(limit))),
    }
}

fn install(
    address: &SandboxAddress,
    folder: &str,
    name: &str,
    program: Vec<u8>,
    limit: Duration,
) -> Result<(), FolderError> {
    let (mut child, errors) = spawn(address, INSTALL, &[folder, name], Stdio::null())?;
    let stdin = child.stdin.take();
    let process = PipeProcess(PipeHandle::new(child, errors));
    let handle = process.handle();
    let copied = process.0.within(limit, move || {
        // A sandbox that does not read it says why when it ends.
        let written = stdin.map(|mut stdin| stdin.write_all(&program));
        (written, handle.wait(limit))
    });
    match copied {
        Some((Some(Ok(())), Some(status))) if status.success() => Ok(()),
        _ => Err(FolderError::NotCopied {
            sandbox: address.to_string(),
            why: process.0.said().unwrap_or_else(|| match copied {
                Some((_, Some(status))) => status.to_string(),
                _ => no_answer(limit),
            }),
        }),
    }
}

fn no_answer(limit: Duration) -> String {
    format!("it did not answer within {} s", limit.as_secs_f64().ceil())
}

/// Starts a script in a sandbox. What the program on the way writes on standard error is kept for messages.
fn spawn(
    address: &SandboxAddress,
    script: &str,
    arguments: &[&str],
    stdout: Stdio,
) -> Result<(Child, KeptErrors), FolderError> {
    let mut command = address.shell(script, arguments);
    command.stdin(Stdio::piped()).stdout(stdout).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| FolderError::io(&address.program[0], error))?;
    let errors = KeptErrors::default();
    if let Some(from) = child.stderr.take() {
        errors.clone().keep(from);
    }
    Ok((child, errors))
}

fn read_shim(given: Option<&Path>) -> Result<Vec<u8>, FolderError> {
    let path = match given {
        Some(path) => path.to_owned(),
        None => beside_this_program(),
    };
    let mut program = Vec::new();
    let read = File::open(&path).and_then(|file| file.take(MAX_SHIM_BYTES).read_to_end(&mut program));
    match read {
        Ok(_) => Ok(program),
        Err(cause) => Err(FolderError::NoShim { file: path.display().to_string(), cause }),
    }
}

/// A program without a path finds the shim in the folder where it runs, or says that it is not there.
fn beside_this_program() -> PathBuf {
    std::env::current_exe().unwrap_or_default().with_file_name(SHIM_NAME)
}

impl PipeProcess {
    pub(crate) fn handle(&self) -> PipeHandle {
        self.0.clone()
    }
}

impl KeptErrors {
    /// Reads it to its end.
    fn keep(self, mut from: impl Read + Send + 'static) {
        std::thread::spawn(move || {
            let mut chunk = [0; MAX_ERROR_BYTES];
            // What cannot be read is not told.
            while let Ok(count @ 1..) = from.read(&mut chunk) {
                let mut kept = self.lock();
                kept.end.extend_from_slice(&chunk[..count]);
                let excess = kept.end.len().saturating_sub(MAX_ERROR_BYTES);
                kept.end.drain(..excess);
            }
            self.lock().is_whole = true;
        });
    }

    /// Returns it once the program has ended, if there is any.
    fn said(&self) -> Option<String> {
        let began = Instant::now();
        while !self.lock().is_whole && began.elapsed() < LAST_WORDS {
            std::thread::sleep(Duration::from_millis(2));
        }
        let text = String::from_utf8_lossy(&self.lock().end).trim().to_owned();
        Some(text).filter(|text| !text.is_empty())
    }

    fn lock(&self) -> MutexGuard<'_, KeptText> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PipeHandle {
    fn new(child: Child, errors: KeptErrors) -> Self {
        Self { child: Arc::new(Mutex::new(child)), errors, waiting: Default::default(), is_cut_silent: Arc::default() }
    }

    /// How long the sandbox has been waited for.
    pub(crate) fn silence(&self) -> Duration {
        let [reading, writing] = &self.waiting;
        reading.lasts().max(writing.lasts())
    }

    /// Cuts the pipe, because the sandbox is silent.
    pub(crate) fn cut_silent(&self) {
        self.is_cut_silent.store(true, Ordering::Relaxed);
        self.kill();
    }

    /// Whether the pipe was cut because the sandbox was silent.
    pub(crate) fn is_cut_silent(&self) -> bool {
        self.is_cut_silent.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns what the program that held the pipe has said, if it has. Waits a little for its last words.
    pub(crate) fn said(&self) -> Option<String> {
        self.errors.said()
    }

    /// Does what waits for the sandbox, on a thread. `None` if that takes longer than `limit`: the pipe is cut then, and if it is held by
    /// a process that does not end with it, the thread waits on.
    fn within<T: Send + 'static>(&self, limit: Duration, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (sender, done) = sync_channel(1);
        std::thread::spawn(move || sender.send(work()));
        let done = done.recv_timeout(limit);
        if done.is_err() {
            self.kill();
        }
        done.ok()
    }

    /// Waits for the end of the program that holds the pipe. After `limit` it is ended.
    fn wait(&self, limit: Duration) -> Option<ExitStatus> {
        let began = Instant::now();
        loop {
            if let Ok(Some(status)) = self.lock().try_wait() {
                return Some(status);
            }
            if began.elapsed() > limit {
                self.kill();
                return self.lock().wait().ok();
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Cuts the pipe.
    pub(crate) fn kill(&self) {
        let mut child = self.lock();
        // Not waited for yet, so that the number is still its group's.
        if matches!(child.try_wait(), Ok(None)) {
            // It may have ended just now.
            let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
        }
    }
}

impl Drop for PipeProcess {
    fn drop(&mut self) {
        // It holds nothing any more after that time; the shim in the sandbox has ended with its pipe.
        self.0.wait(END);
    }
}
