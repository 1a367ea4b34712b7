//! The git program: run on the service's own git folders, with nothing of the outside in its surroundings.
//!
//! Never with a work tree, never inside `repo/`. The environment is built from nothing; every switch by which a
//! repository could name a program to run is off; a call that takes too long or makes too much is killed with all that
//! it started.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

/// What every call gets, so that no configuration and no repository decides otherwise.
const SWITCHES: [&str; 17] = [
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.autocrlf=false",
    "core.symlinks=true",
    "core.compression=1",
    // The caller syncs the whole import at once.
    "core.fsync=none",
    "gc.auto=0",
    "maintenance.auto=false",
    "credential.helper=",
    "protocol.ext.allow=never",
    "transfer.bundleURI=false",
    "fetch.fsckObjects=false",
    "fetch.recurseSubmodules=false",
    // Both lead to hosts that were not judged.
    "http.followRedirects=false",
    "http.proxy=",
    "http.lowSpeedLimit=1000",
    "http.lowSpeedTime=30",
];

/// What of the operator's own environment reaches git: where programs are, and whom to trust.
const PASSED_ON: [&str; 4] = ["PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO"];

/// How much of git's complaints is kept.
const MAX_STDERR_BYTES: usize = 8 * 1024;
/// How often a call is looked after.
const TICK: Duration = Duration::from_millis(50);

/// How a call of git fails.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GitError {
    /// It could not be started, or talking to it failed.
    #[error("git could not be run")]
    Io(#[from] io::Error),
    /// It ended with an error. Its text is for the log alone: it may hold physical paths.
    #[error("git failed: {0}")]
    Failed(String),
    /// It took longer than it may.
    #[error("git took too long")]
    TooLong,
    /// It made more bytes than it may.
    #[error("git made too much")]
    TooMuch,
    /// The caller went away.
    #[error("the call was cancelled")]
    Cancelled,
}

/// What a call may take.
pub(crate) struct Bounds<'a> {
    /// How long.
    pub(crate) time: Duration,
    /// Asked now and then: whether to stop.
    pub(crate) stop: &'a (dyn Fn() -> bool + Sync),
    /// Asked now and then: whether it has made too much.
    pub(crate) too_much: &'a (dyn Fn() -> bool + Sync),
}

impl Bounds<'_> {
    /// Bounds in time alone.
    pub(crate) fn seconds(seconds: u64) -> Self {
        Self { time: Duration::from_secs(seconds), stop: &|| false, too_much: &|| false }
    }
}

/// What one call of git needs of the machine, besides programs, libraries and certificates.
#[derive(Clone, Debug, Default)]
pub struct GitAccess {
    /// The git folder that it writes.
    pub write: PathBuf,
    /// Folders that it reads.
    pub read: Vec<PathBuf>,
    /// The TCP port that it connects to; `None` where it needs no network.
    pub port: Option<u16>,
}

/// Bounds what a call of git may reach.
pub trait ConfineGit: fmt::Debug + Send + Sync {
    /// Bounds the calling thread, and what it starts, to `reach`. The thread ends after it has started git.
    ///
    /// # Errors
    ///
    /// Where the kernel refuses.
    fn confine(&self, reach: &GitAccess) -> io::Result<()>;
}

/// What all calls of git have in common.
#[derive(Debug, Default)]
pub(crate) struct GitHome {
    /// A folder with nothing in it but the configuration that stands for the user's.
    pub(crate) path: PathBuf,
    /// Hosts that a source may name although their addresses are not public.
    pub(crate) allowed_hosts: Vec<String>,
    pub(crate) confine: Option<Arc<dyn ConfineGit>>,
}

/// One git folder of the service, and how to run git on it.
#[derive(Clone, Debug)]
pub(crate) struct Git {
    home: Arc<GitHome>,
    reach: GitAccess,
    extra: Vec<(String, OsString)>,
}

impl Git {
    /// Git on the git folder `dir`, with `home` in place of the user's home (see [`make_home`]).
    pub(crate) fn new(dir: PathBuf, home: &Arc<GitHome>) -> Self {
        let reach = GitAccess { read: vec![home.path.clone()], write: dir, port: None };
        Self { home: Arc::clone(home), reach, extra: Vec::new() }
    }

    /// Hosts that a source may name although their addresses are not public.
    pub(crate) fn allowed_hosts(&self) -> &[String] {
        &self.home.allowed_hosts
    }

    /// The same, which also reads these folders.
    pub(crate) fn reading(mut self, folders: &[PathBuf]) -> Self {
        self.reach.read.extend_from_slice(folders);
        self
    }

    /// The same, which connects to this port.
    pub(crate) fn connecting(mut self, port: u16) -> Self {
        self.reach.port = Some(port);
        self
    }

    /// The same with these settings of git. By the environment: what a program was started with is for everybody to see.
    pub(crate) fn with_settings(mut self, settings: &[(&str, &str)]) -> Self {
        self.extra.push(("GIT_CONFIG_COUNT".to_owned(), settings.len().to_string().into()));
        for (n, (key, value)) in settings.iter().enumerate() {
            self.extra.push((format!("GIT_CONFIG_KEY_{n}"), key.into()));
            self.extra.push((format!("GIT_CONFIG_VALUE_{n}"), value.into()));
        }
        self
    }

    /// The same, with `name` in the environment.
    pub(crate) fn with_env(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.extra.push((name.to_owned(), value.into()));
        self
    }

    /// The same, on another git folder.
    pub(crate) fn at(&self, dir: PathBuf) -> Self {
        let mut other = self.clone();
        // What the other one borrows from this one.
        other.reach.read.push(std::mem::replace(&mut other.reach.write, dir));
        other
    }

    /// The git folder.
    pub(crate) fn dir(&self) -> &Path {
        &self.reach.write
    }

    /// Runs git to its end and returns what it wrote, at most `max_bytes` of it.
    pub(crate) fn output(&self, args: &[&str], max_bytes: usize, bounds: &Bounds<'_>) -> Result<Vec<u8>, GitError> {
        self.talk(args, bounds, |stdin, stdout| {
            drop(stdin);
            let mut out = Vec::new();
            stdout.take(max_bytes as u64 + 1).read_to_end(&mut out)?;
            Ok(out)
        })
        .and_then(|out| if out.len() > max_bytes { Err(GitError::TooMuch) } else { Ok(out) })
    }

    /// Runs git while `talk` writes to it and reads from it. What `talk` says counts, unless git was stopped or failed.
    pub(crate) fn talk<T>(
        &self,
        args: &[&str],
        bounds: &Bounds<'_>,
        talk: impl FnOnce(ChildStdin, ChildStdout) -> io::Result<T>,
    ) -> Result<T, GitError> {
        let mut child = self.spawn(args)?;
        let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(GitError::Io(io::ErrorKind::BrokenPipe.into()));
        };
        let done = Done::default();
        let pid = Pid::from_child(&child);
        thread::scope(|scope| {
            let watch = scope.spawn(|| done.watch(pid, bounds));
            let complaints = scope.spawn(move || last_bytes(stderr));
            let said = talk(stdin, stdout);
            // A talk that broke off would leave git waiting for ever.
            if said.is_err() {
                kill_group(pid);
            }
            let status = wait(&mut child, pid, &done);
            let stopped = watch.join().unwrap_or(None);
            let complaints = complaints.join().unwrap_or_default();
            match (stopped, said, status?) {
                (Some(error), _, _) => Err(error),
                (None, Ok(said), status) if status.success() => Ok(said),
                (None, Err(error), _) if error.kind() != io::ErrorKind::BrokenPipe && complaints.is_empty() => {
                    Err(error.into())
                }
                (None, _, _) => Err(GitError::Failed(complaints)),
            }
        })
    }

    fn spawn(&self, args: &[&str]) -> io::Result<Child> {
        let mut command = self.command(args);
        let Some(confine) = &self.home.confine else { return command.spawn() };
        // The kernel binds the thread that asks for it and what that starts, so that it is one for this alone.
        let start = || confine.confine(&self.reach).and_then(|()| command.spawn());
        let started = thread::scope(|scope| {
            thread::Builder::new()
                .spawn_scoped(scope, start)?
                .join()
                .map_err(|_| io::Error::other("the thread that starts git ended"))
        });
        started?
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("git");
        command.env_clear();
        for name in PASSED_ON {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command
            .env("HOME", &self.home.path)
            .env("XDG_CONFIG_HOME", &self.home.path)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", self.home.path.join(CONFIG_NAME))
            .env("GIT_ATTR_NOSYSTEM", "1")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_OPTIONAL_LOCKS", "0")
            .env("GIT_NO_LAZY_FETCH", "1")
            .env("GIT_NO_REPLACE_OBJECTS", "1")
            .env("GIT_LITERAL_PATHSPECS", "1")
            .env("GIT_ALLOW_PROTOCOL", "https:file")
            .env("LC_ALL", "C")
            .envs(self.extra.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.home.path)
            .arg("--git-dir")
            .arg(&self.reach.write)
            .args(SWITCHES.iter().flat_map(|switch| ["-c", switch]))
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        command
    }
}

/// The name of the configuration that stands for the user's.
const CONFIG_NAME: &str = "config";

/// Makes the folder that stands for the user's home. Sources belong to whoever made them, and git refuses such unless
/// this configuration, and no other place that reaches `upload-pack`, allows it.
pub(crate) fn make_home(home: &Path) -> io::Result<()> {
    match std::fs::create_dir(home) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    std::fs::write(home.join(CONFIG_NAME), "[safe]\n\tdirectory = *\n")
}

/// Tells the watch of a call that the call is over.
#[derive(Default)]
struct Done(Mutex<bool>, Condvar);

impl Done {
    fn set(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.1.notify_all();
    }

    /// Kills the call when it passes its bounds, and says which.
    fn watch(&self, pid: Pid, bounds: &Bounds<'_>) -> Option<GitError> {
        let start = Instant::now();
        let mut done = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while !*done {
            let error = if (bounds.stop)() {
                Some(GitError::Cancelled)
            } else if (bounds.too_much)() {
                Some(GitError::TooMuch)
            } else if start.elapsed() > bounds.time {
                Some(GitError::TooLong)
            } else {
                None
            };
            if error.is_some() {
                kill_group(pid);
                return error;
            }
            done = self.1.wait_timeout(done, TICK).unwrap_or_else(PoisonError::into_inner).0;
        }
        None
    }
}

/// Waits for git's end. What it started may still run, which nobody waits for: it is killed. Git is buried last, so that
/// its number cannot belong to somebody else while it is used.
fn wait(child: &mut Child, pid: Pid, done: &Done) -> io::Result<std::process::ExitStatus> {
    let ended = retry(|| waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT));
    kill_group(pid);
    done.set();
    ended?;
    child.wait()
}

/// Calls again what a signal broke off.
fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other.map_err(io::Error::from),
        }
    }
}

fn kill_group(pid: Pid) {
    // A group that is gone already is what is wanted.
    let _ = kill_process_group(pid, Signal::KILL);
}

/// The last of what `from` says, as text.
fn last_bytes(mut from: impl Read) -> String {
    let mut kept = Vec::new();
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        kept.extend_from_slice(&buffer[..count]);
        if kept.len() > 2 * MAX_STDERR_BYTES {
            kept.drain(..kept.len() - MAX_STDERR_BYTES);
        }
    }
    String::from_utf8_lossy(&kept).trim().to_owned()
}

/// 40 hexadecimal digits as bytes.
pub(crate) fn parse_oid(hex: &str) -> Option<[u8; 20]> {
    let mut oid = [0; 20];
    if hex.len() != 40 {
        return None;
    }
    for (byte, digits) in oid.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    }
    Some(oid)
}

/// Bytes as hexadecimal digits.
pub(crate) fn hex(oid: &[u8]) -> String {
    oid.iter().fold(String::with_capacity(oid.len() * 2), |mut text, byte| {
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
        }
        text
    })
}
