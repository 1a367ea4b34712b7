//! A command in a folder: its output as it comes, signals to it, and how it ended.

use std::io::{self, Read};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use serde::{Deserialize, Serialize};

use crate::entry::check_path;
use crate::error::ShimError;

const CHUNK_BYTES: usize = 32 << 10;
/// Chunks of output that may wait to be taken.
const MAX_WAITING: usize = 16;
/// How long the output of a command that has ended is still read, if a process that left its group keeps it open.
const DRAIN: Duration = Duration::from_secs(1);

/// A command to run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommandSpec {
    /// The program and its arguments.
    pub argv: Vec<String>,
    /// The folder in which it runs, inside the checkout; empty for its root.
    pub cwd: String,
    /// Variables that are added to the environment.
    pub env: Vec<(String, String)>,
}

/// Where output came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputStream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CommandOutcome {
    /// Its exit code, if it ended by itself.
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// How long it took.
    pub duration_micros: u64,
}

impl CommandOutcome {
    /// Returns the exit code that a shell would give it.
    pub fn shell_code(&self) -> i32 {
        self.exit_code.unwrap_or_else(|| 128 + self.signal.unwrap_or(0))
    }
}

/// Sends signals to a running command.
#[derive(Clone)]
pub struct CommandControl(Arc<dyn Fn(i32) + Send + Sync>);

impl CommandControl {
    pub(crate) fn new(send: impl Fn(i32) + Send + Sync + 'static) -> Self {
        Self(Arc::new(send))
    }

    /// Sends a signal, such as 2 for an interrupt, to all processes of the command's group. A command that has ended gets none.
    pub fn signal(&self, signal: i32) {
        (self.0)(signal);
    }

    /// Ends the command.
    pub fn kill(&self) {
        self.signal(Signal::KILL.as_raw());
    }
}

impl std::fmt::Debug for CommandControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("CommandControl").finish()
    }
}

enum ProcessEvent {
    Output(OutputStream, Vec<u8>),
    /// A stream of output ended.
    End,
    Exited,
}

/// Runs a command in `root`.
pub(crate) fn run(
    root: &Path,
    spec: &CommandSpec,
    started: &mut dyn FnMut(CommandControl),
    output: &mut dyn FnMut(OutputStream, &[u8]) -> io::Result<()>,
) -> Result<CommandOutcome, ShimError> {
    let began = Instant::now();
    let mut child = spawn(root, spec)?;
    let group = Pid::from_child(&child);
    // The group's number is another's once its leader was waited for: nothing is sent then.
    let alive = Arc::new(Mutex::new(true));
    let of_control = Arc::clone(&alive);
    started(CommandControl::new(move |signal| {
        let alive = of_control.lock().unwrap_or_else(PoisonError::into_inner);
        if let (true, Some(signal)) = (*alive, Signal::from_named_raw(signal)) {
            // It may have ended just now.
            let _ = rustix::process::kill_process_group(group, signal);
        }
    }));
    let taken = take_output(&mut child, group, output);
    let mut is_alive = alive.lock().unwrap_or_else(PoisonError::into_inner);
    // What it left behind would change the folder while that is looked at.
    let _ = rustix::process::kill_process_group(group, Signal::KILL);
    let status = child.wait().map_err(|error| ShimError::io("the command", error));
    *is_alive = false;
    drop(is_alive);
    taken.map_err(ShimError::lost)?;
    Ok(outcome(status?, began.elapsed()))
}

fn outcome(status: ExitStatus, took: Duration) -> CommandOutcome {
    CommandOutcome {
        exit_code: status.code(),
        signal: status.signal(),
        duration_micros: u64::try_from(took.as_micros()).unwrap_or(u64::MAX),
    }
}

fn spawn(root: &Path, spec: &CommandSpec) -> Result<Child, ShimError> {
    let Some((program, arguments)) = spec.argv.split_first() else {
        return Err(ShimError::Refused("no command is given".to_owned()));
    };
    let cwd = if matches!(spec.cwd.as_str(), "" | ".") { root.to_owned() } else { root.join(inside(&spec.cwd)?) };
    let mut command = Command::new(program);
    command.args(arguments).current_dir(&cwd).envs(spec.env.iter().map(|(name, value)| (name, value)));
    // What starts the command knows the service; the command does not.
    command.env_remove("WORKSPACED_TOKEN").env_remove("WORKSPACED_TOKEN_FILE");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    heed_signals(&mut command);
    command.spawn().map_err(|error| {
        // The system does not say which of the two it has not found.
        if cwd.is_dir() {
            ShimError::io(program, error)
        } else {
            ShimError::NoFolder(format!("the command's folder {:?} is no folder of the checkout", spec.cwd))
        }
    })
}

/// Gives the command the default reaction to signals. What starts this program in the background may have it ignore interrupts, which
/// every program below inherits, and a shell cannot trap what it ignores from its start.
#[expect(
    unsafe_code,
    reason = "only a system call in the new process changes what it inherits; `signal` is safe to call there"
)]
fn heed_signals(command: &mut Command) {
    let reset = || {
        for signal in [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP] {
            // SAFETY: the default is no function of this program, and `signal` is async-signal-safe.
            if unsafe { libc::signal(signal, libc::SIG_DFL) } == libc::SIG_ERR {
                return Err(io::Error::last_os_error());
            }
        }
        // If what started it is killed, nobody ends it at its time.
        #[cfg(target_os = "linux")]
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        Ok(())
    };
    // SAFETY: between fork and exec only `signal` and `prctl` are called, and nothing is allocated.
    unsafe {
        command.pre_exec(reset);
    }
}

fn inside(cwd: &str) -> Result<&str, ShimError> {
    let cwd = cwd.trim_start_matches("./").trim_end_matches('/');
    check_path(cwd).map_err(|why| ShimError::Refused(format!("the command's folder {cwd:?}: {why}")))?;
    Ok(cwd)
}

/// Passes the output on until the command has ended and its output too.
fn take_output(
    child: &mut Child,
    group: Pid,
    output: &mut dyn FnMut(OutputStream, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let (sender, events) = sync_channel(MAX_WAITING);
    let mut open = 0;
    if let Some(stdout) = child.stdout.take() {
        forward(stdout, OutputStream::Stdout, sender.clone());
        open += 1;
    }
    if let Some(stderr) = child.stderr.take() {
        forward(stderr, OutputStream::Stderr, sender.clone());
        open += 1;
    }
    thread::spawn(move || {
        // Not waited for here: until then, no other process gets its number.
        let _ = rustix::process::waitid(WaitId::Pid(group), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        let _ = sender.send(ProcessEvent::Exited);
    });
    let mut ended: Option<Instant> = None;
    while open > 0 || ended.is_none() {
        let event = match ended {
            None => events.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(ended) => events.recv_timeout(DRAIN.saturating_sub(ended.elapsed())),
        };
        match event {
            Ok(ProcessEvent::Output(stream, chunk)) => output(stream, &chunk)?,
            Ok(ProcessEvent::End) => open -= 1,
            Ok(ProcessEvent::Exited) => {
                ended = Some(Instant::now());
                // Its leader is not waited for yet, so that the number is still the group's.
                let _ = rustix::process::kill_process_group(group, Signal::KILL);
            }
            Err(_) => break,
        }
    }
    Ok(())
}

fn forward(mut from: impl Read + Send + 'static, stream: OutputStream, to: SyncSender<ProcessEvent>) {
    thread::spawn(move || {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            match from.read(&mut chunk) {
                Ok(count) if count > 0 => {
                    // Nobody takes it any more: the rest is dropped with the pipe.
                    if to.send(ProcessEvent::Output(stream, chunk[..count].to_vec())).is_err() {
                        return;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => break,
            }
        }
        let _ = to.send(ProcessEvent::End);
    });
}
