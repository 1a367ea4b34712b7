//! Running the git program on the service's own git folders, isolated from the environment.
//!
//! Git never has a work tree and never runs inside `repo/`. Its environment is built from nothing; every setting by which a
//! repository could name a program to run is off; a call that takes too long or writes too much is killed with all its
//! child processes.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal, kill_process_group, pidfd_open, prlimit};

/// The settings of every call, which override any configuration and repository.
const SWITCHES: [&str; 19] = [
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.autocrlf=false",
    "core.symlinks=true",
    "core.compression=1",
    // The whole import is synced at once.
    "core.fsync=none",
    "gc.auto=0",
    "maintenance.auto=false",
    "credential.helper=",
    "protocol.ext.allow=never",
    "transfer.bundleURI=false",
    "fetch.fsckObjects=false",
    "fetch.recurseSubmodules=false",
    // What is fetched or imported stays a pack, however small, which is a part of its base.
    "fetch.unpackLimit=1",
    "fastimport.unpackLimit=1",
    // Both lead to hosts that were not checked.
    "http.followRedirects=false",
    "http.proxy=",
    "http.lowSpeedLimit=1000",
    "http.lowSpeedTime=30",
];

/// The variables that git inherits: where programs are, and which certificates to trust.
const PASSED_ON: [&str; 4] = ["PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "GIT_SSL_CAINFO"];

/// How much of git's error output is kept.
const MAX_STDERR_BYTES: usize = 8 * 1024;
/// How often the bounds of a call are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);
/// The same, for a wait.
const MAX_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// The maximum memory of each process of git: a remote repository can answer with more than that.
const MAX_MEMORY_BYTES: u64 = 2 << 30;

/// Why a call of git failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GitError {
    /// Git could not be started, or its input or output failed.
    #[error("git could not be run")]
    Io(#[from] io::Error),
    /// Git exited with an error. The text is for the log only: it may contain physical paths.
    #[error("git failed: {0}")]
    Failed(String),
    /// It ran longer than its time limit.
    #[error("git took too long")]
    TooLong,
    /// It wrote more than its limit.
    #[error("git wrote too much")]
    TooMuch,
    /// The caller disconnected.
    #[error("the call was cancelled")]
    Cancelled,
}

/// The bounds of a call.
pub(crate) struct Bounds<'a> {
    /// The time limit.
    pub(crate) time: Duration,
    /// Checked at intervals: whether the call was cancelled.
    pub(crate) stop: &'a (dyn Fn() -> bool + Sync),
    /// Checked at intervals: whether git has written too much.
    pub(crate) too_much: &'a (dyn Fn() -> bool + Sync),
}

impl Bounds<'_> {
    /// Returns bounds with a time limit only.
    pub(crate) fn seconds(seconds: u64) -> Self {
        Self { time: Duration::from_secs(seconds), stop: &|| false, too_much: &|| false }
    }

    /// Returns the bound that a call exceeds which began at `start`.
    fn exceeded(&self, start: Instant) -> Option<GitError> {
        if (self.stop)() {
            Some(GitError::Cancelled)
        } else if (self.too_much)() {
            Some(GitError::TooMuch)
        } else {
            (start.elapsed() > self.time).then_some(GitError::TooLong)
        }
    }
}

/// What one call of git may access, besides programs, libraries and certificates.
#[derive(Clone, Debug, Default)]
pub struct GitAccess {
    /// The git folder that it writes.
    pub write: PathBuf,
    /// Folders that it reads.
    pub read: Vec<PathBuf>,
    /// The TCP port that it connects to; `None` if it needs no network.
    pub port: Option<u16>,
}

/// Restricts what a call of git may access.
pub trait ConfineGit: fmt::Debug + Send + Sync {
    /// Restricts the calling thread, and the processes that it starts, to `access`. The thread ends after it has started
    /// git.
    ///
    /// # Errors
    ///
    /// If the kernel refuses.
    fn confine(&self, access: &GitAccess) -> io::Result<()>;
}

/// What all calls of git share.
#[derive(Debug, Default)]
pub(crate) struct GitHome {
    /// A folder with the configuration that replaces the user's, and nothing else.
    pub(crate) path: PathBuf,
    /// Hosts that a source may name although their addresses are not public.
    pub(crate) allowed_hosts: Vec<String>,
    pub(crate) confine: Option<Arc<dyn ConfineGit>>,
}

/// One git folder of the service, with the settings for running git on it.
#[derive(Clone)]
pub(crate) struct Git {
    home: Arc<GitHome>,
    access: GitAccess,
    extra: Vec<(String, OsString)>,
}

impl fmt::Debug for Git {
    // Without the settings, which may contain a credential.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Git").field("access", &self.access).finish_non_exhaustive()
    }
}

impl Git {
    /// Returns git on the git folder `dir`, with `home` as the user's home (see [`make_home`]).
    pub(crate) fn new(dir: PathBuf, home: &Arc<GitHome>) -> Self {
        let access = GitAccess { read: vec![home.path.clone()], write: dir, port: None };
        Self { home: Arc::clone(home), access, extra: Vec::new() }
    }

    /// Returns the hosts that a source may name although their addresses are not public.
    pub(crate) fn allowed_hosts(&self) -> &[String] {
        &self.home.allowed_hosts
    }

    /// Also lets git read these folders.
    pub(crate) fn reading(mut self, folders: &[PathBuf]) -> Self {
        self.access.read.extend_from_slice(folders);
        self
    }

    /// Also lets git connect to this port.
    pub(crate) fn connecting(mut self, port: u16) -> Self {
        self.access.port = Some(port);
        self
    }

    /// Adds git settings. They are passed in the environment, since every user can see the arguments of a process.
    pub(crate) fn with_settings(mut self, settings: &[(&str, &str)]) -> Self {
        self.extra.push(("GIT_CONFIG_COUNT".to_owned(), settings.len().to_string().into()));
        for (n, (key, value)) in settings.iter().enumerate() {
            self.extra.push((format!("GIT_CONFIG_KEY_{n}"), key.into()));
            self.extra.push((format!("GIT_CONFIG_VALUE_{n}"), value.into()));
        }
        self
    }

    /// Adds a variable to the environment.
    pub(crate) fn with_env(mut self, name: &'static str, value: impl Into<OsString>) -> Self {
        self.extra.push((name.to_owned(), value.into()));
        self
    }

    /// Returns git on another git folder, which may borrow objects from this one.
    pub(crate) fn at(&self, dir: PathBuf) -> Self {
        let mut other = self.clone();
        other.access.read.push(std::mem::replace(&mut other.access.write, dir));
        other
    }

    /// Returns the git folder.
    pub(crate) fn dir(&self) -> &Path {
        &self.access.write
    }

    /// Runs git and returns its output, at most `max_bytes` of it.
    pub(crate) fn output(&self, args: &[&str], max_bytes: usize, bounds: &Bounds<'_>) -> Result<Vec<u8>, GitError> {
        // Once the output is no longer read, git fails in its turn.
        let mut is_too_much = false;
        let out = self.run(args, bounds, |stdin, stdout| {
            drop(stdin);
            let mut out = Vec::new();
            stdout.take(max_bytes as u64 + 1).read_to_end(&mut out)?;
            is_too_much = out.len() > max_bytes;
            Ok(out)
        });
        if is_too_much { Err(GitError::TooMuch) } else { out }
    }

    /// Runs git while `io` writes to it and reads from it. Returns the result of `io`, unless git was stopped or failed.
    pub(crate) fn run<T>(
        &self,
        args: &[&str],
        bounds: &Bounds<'_>,
        io: impl FnOnce(ChildStdin, ChildStdout) -> io::Result<T>,
    ) -> Result<T, GitError> {
        let mut child = self.spawn(args)?;
        let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(GitError::Io(io::ErrorKind::BrokenPipe.into()));
        };
        let pid = Pid::from_child(&child);
        limit_memory(pid);
        let (result, watched) = thread::scope(|scope| {
            let watch = scope.spawn(|| watch(pid, stderr, bounds).inspect_err(|_| kill_group(pid)));
            let result = io(stdin, stdout);
            // After a broken exchange git would wait for input forever.
            if result.is_err() {
                kill_group(pid);
            }
            (result, watch.join().unwrap_or_else(|_| Err(io::Error::other("the thread that watches git panicked"))))
        });
        // It is reaped last, so that its process id cannot belong to another process before.
        let status = child.wait()?;
        match (watched?, result) {
            ((Some(error), _), _) => Err(error),
            (_, Ok(value)) if status.success() => Ok(value),
            ((None, errors), Err(error)) if error.kind() != io::ErrorKind::BrokenPipe && errors.is_empty() => {
                Err(error.into())
            }
            ((None, errors), _) => Err(GitError::Failed(String::from_utf8_lossy(&errors).trim().to_owned())),
        }
    }

    fn spawn(&self, args: &[&str]) -> io::Result<Child> {
        let mut command = self.command(args);
        let Some(confine) = &self.home.confine else { return command.spawn() };
        // The kernel restricts the calling thread and the processes that it starts, so a thread of its own starts git.
        let start = || confine.confine(&self.access).and_then(|()| command.spawn());
        let started = thread::scope(|scope| Ok(thread::Builder::new().spawn_scoped(scope, start)?.join()));
        started
            .unwrap_or_else(|error: io::Error| Ok(Err(error)))
            .unwrap_or_else(|_| Err(io::Error::other("the thread that starts git panicked")))
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
            .arg(&self.access.write)
            .args(SWITCHES.iter().flat_map(|switch| ["-c", switch]))
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        command
    }
}

/// The name of the configuration that replaces the user's.
const CONFIG_NAME: &str = "config";

/// Creates the folder that serves as the user's home. Sources may belong to any user, and git refuses those of others unless
/// this configuration allows it; no other setting reaches `upload-pack`.
pub(crate) fn make_home(home: &Path) -> io::Result<()> {
    match std::fs::create_dir(home) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    std::fs::write(home.join(CONFIG_NAME), "[safe]\n\tdirectory = *\n")
}

/// Waits until git exits, and kills it once it exceeds its bounds. Returns the one that it exceeded, and the last bytes of its
/// complaints.
fn watch(pid: Pid, stderr: ChildStderr, bounds: &Bounds<'_>) -> io::Result<(Option<GitError>, Vec<u8>)> {
    let git = pidfd_open(pid, PidfdFlags::empty())?;
    let start = Instant::now();
    let (mut next_check, mut stopped) = (start, None);
    let (mut stderr, mut errors, mut buffer) = (Some(stderr), Vec::new(), [0; 4096]);
    loop {
        if stopped.is_none() && Instant::now() >= next_check {
            next_check = Instant::now() + CHECK_INTERVAL;
            stopped = bounds.exceeded(start);
            if stopped.is_some() {
                kill_group(pid);
            }
        }
        let pipe = stderr.as_ref().map_or(git.as_fd(), AsFd::as_fd);
        let mut ready = [git.as_fd(), pipe].map(|handle| PollFd::from_borrowed_fd(handle, PollFlags::IN));
        match poll(&mut ready, Some(&MAX_WAIT)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let [has_exited, complains] = ready.map(|handle| !handle.revents().is_empty());
        match &mut stderr {
            Some(pipe) if complains => match pipe.read(&mut buffer)? {
                0 => stderr = None,
                count => keep_last(&mut errors, &buffer[..count]),
            },
            _ if has_exited => {
                // Its child processes may still run, and keep its output open.
                kill_group(pid);
                return Ok((stopped, errors));
            }
            _ => {}
        }
    }
}

/// Adds `bytes` to the complaints of git, of which the last ones are kept.
fn keep_last(errors: &mut Vec<u8>, bytes: &[u8]) {
    errors.extend_from_slice(bytes);
    if errors.len() > 2 * MAX_STDERR_BYTES {
        errors.drain(..errors.len() - MAX_STDERR_BYTES);
    }
}

/// Limits the memory of a process, and of those that it starts.
fn limit_memory(pid: Pid) {
    let limit = Rlimit { current: Some(MAX_MEMORY_BYTES), maximum: Some(MAX_MEMORY_BYTES) };
    match prlimit(Some(pid), Resource::Data, limit) {
        // `SRCH`: it has ended.
        Ok(_) | Err(Errno::SRCH) => {}
        Err(error) => tracing::warn!(%error, "the memory of git is not limited"),
    }
}

fn kill_group(pid: Pid) {
    // A group that has ended already is no error.
    let _ = kill_process_group(pid, Signal::KILL);
}

/// Parses an object id of 40 hexadecimal digits.
pub(crate) fn parse_oid(hex: &str) -> Option<[u8; 20]> {
    let mut oid = [0; 20];
    (base16ct::mixed::decode(hex, &mut oid).ok()?.len() == oid.len()).then_some(oid)
}

/// Returns bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    base16ct::lower::encode_string(bytes)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn git(folder: &Path) -> Git {
        make_home(folder).unwrap();
        let home = GitHome { path: folder.to_owned(), ..GitHome::default() };
        Git::new(folder.join("git"), &Arc::new(home))
    }

    fn script(text: &str) -> [&str; 3] {
        ["-c", text, "x"]
    }

    #[test]
    fn a_call_ends_at_each_of_its_bounds_whatever_it_waits_for() {
        let folder = tempfile::tempdir().unwrap();
        let git = git(folder.path());
        let (yes, no) = (|| true, || false);
        let bounds = |time, stop, too_much| Bounds { time: Duration::from_millis(time), stop, too_much };
        for sleeps in ["alias.x=!sleep 100", "alias.x=!exec >&- 2>&- <&-; sleep 100"] {
            for (bounds, error) in [
                (bounds(50, &no, &no), "git took too long"),
                (bounds(90_000, &yes, &no), "the call was cancelled"),
                (bounds(90_000, &no, &yes), "git wrote too much"),
            ] {
                let start = Instant::now();
                assert_eq!(git.output(&script(sleeps), 10, &bounds).unwrap_err().to_string(), error);
                let full =
                    git.run(&script(sleeps), &bounds, |mut input, _output| input.write_all(&vec![b'x'; 1 << 20]));
                // An input that nobody takes may also break.
                assert!(
                    matches!(full.unwrap_err().to_string().as_str(), found if found == error || sleeps.contains('&'))
                );
                assert!(start.elapsed() < Duration::from_mins(1));
            }
        }
    }

    #[test]
    fn input_output_and_complaints_fill_no_pipe() {
        let folder = tempfile::tempdir().unwrap();
        let git = git(folder.path());
        let copies = "alias.x=!yes complaint | head -c 300000 >&2; cat";
        let sent: Vec<u8> = (0..=u8::MAX).cycle().take(1_000_000).collect();
        let received = git.run(&script(copies), &Bounds::seconds(60), |input, mut output| {
            let (mut input, sent) = (input, sent.clone());
            let sender = thread::spawn(move || input.write_all(&sent));
            let mut received = Vec::new();
            output.read_to_end(&mut received)?;
            sender.join().unwrap().map(|()| received)
        });
        assert!(received.unwrap() == sent);
        let fails =
            git.output(&script("alias.x=!yes complaint | head -c 300000 >&2; exit 3"), 10, &Bounds::seconds(60));
        match fails {
            Err(GitError::Failed(text)) => assert!(text.ends_with("complaint") && text.len() < 2 * MAX_STDERR_BYTES),
            other => panic!("{other:?}"),
        }
        let leaves = git.output(&script("alias.x=!sleep 100 & echo done"), 10, &Bounds::seconds(60));
        assert_eq!(leaves.unwrap(), b"done\n", "a child process that is left behind is killed");
        let too_much = git.output(&script("alias.x=!yes"), 1000, &Bounds::seconds(60));
        assert!(matches!(too_much, Err(GitError::TooMuch)));
    }
}
