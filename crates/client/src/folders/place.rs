//! Folders of checkouts, opened.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the client works in its user's folders, and waits on threads of its own"
)]

use async_recursion::async_recursion as boxed;
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::Duration;

use serde_json::{Map, Value, json};
use shim::{CheckedOut, CommandFolder, FreshFolder, LocalFolder, ShimError};
use tokio::sync::oneshot;

use crate::folders::address::SandboxAddress;
use crate::folders::error::FolderError;
use crate::folders::pipe::{PipeHandle, PipeProcess, connect};

/// The folder in a sandbox, unless another one is given.
const DEFAULT_FOLDER: &str = "/workspace";
/// Where a new folder is made, unless a folder is given.
const FRESH_PARENT: &str = "/tmp";

/// How long a sandbox may take to end what nobody waits for any more.
const GRACE: Duration = Duration::from_secs(5);

/// Where the folder of a checkout is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FolderPlace {
    /// A folder of this machine, which is created if it is missing.
    Here(PathBuf),
    /// A folder of this machine that must exist.
    Existing(PathBuf),
    /// A new folder, in this one or in that for temporary files. It is removed afterwards.
    Fresh(Option<PathBuf>),
    /// A folder in a sandbox.
    Sandbox(SandboxPlace),
}

/// A folder in a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxPlace {
    /// The sandbox.
    pub address: SandboxAddress,
    /// The folder; by default that of the address, or `/workspace`.
    pub folder: Option<String>,
    /// Whether a new folder is made in it (by default in `/tmp`), and removed afterwards.
    pub is_fresh: bool,
    /// The file of the program `workspaced-shim`; by default the one beside this program.
    pub shim: Option<PathBuf>,
    /// How long the sandbox may take until the shim answers.
    pub start_limit: Duration,
    /// How long the shim may be silent while it works. A shim that works is heard every few seconds; one that a command has stopped is not.
    pub silence_limit: Duration,
}

/// A folder that is open. Only one program at a time works with a checkout; others wait for it.
pub struct OpenFolder {
    state: Arc<Mutex<OpenState>>,
    /// With how long the shim may be silent.
    pipe: Option<(PipeHandle, Duration)>,
    shown: String,
    environment: Map<String, Value>,
    /// Whether it is new and no command has run in it.
    is_untouched: AtomicBool,
}

/// In the order in which it ends: the pipe is closed before its program is waited for, and the lock is given back before the folder is
/// removed.
struct OpenState {
    folder: Box<dyn CommandFolder>,
    _process: Option<PipeProcess>,
    _fresh: Option<FreshFolder>,
}

impl SandboxPlace {
    /// How long a sandbox may take until the shim answers, unless another time is given.
    pub const START_LIMIT: Duration = Duration::from_mins(1);

    /// How long the shim may be silent, unless another time is given.
    pub const SILENCE_LIMIT: Duration = Duration::from_secs(15);

    /// The usual folder in a sandbox.
    pub fn new(address: SandboxAddress) -> Self {
        let (start_limit, silence_limit) = (Self::START_LIMIT, Self::SILENCE_LIMIT);
        Self { address, folder: None, is_fresh: false, shim: None, start_limit, silence_limit }
    }
}

impl OpenFolder {
    /// Opens a folder. In a sandbox, the shim is started, and copied before if it is not there.
    ///
    /// # Errors
    ///
    /// If the folder cannot be opened or the shim does not start.
    #[boxed]
    pub async fn open(place: &FolderPlace) -> Result<Self, FolderError> {
        let place = place.clone();
        blocking(move || match &place {
            FolderPlace::Here(path) => Ok(Self::local(LocalFolder::create(path)?, None)),
            FolderPlace::Existing(path) => Ok(Self::local(LocalFolder::open(path)?, None)),
            FolderPlace::Fresh(parent) => {
                let fresh = FreshFolder::create(&parent.clone().unwrap_or_else(std::env::temp_dir))?;
                Ok(Self::local(LocalFolder::open(fresh.path())?, Some(fresh)))
            }
            FolderPlace::Sandbox(place) => Self::inside(place),
        })
        .await
    }

    fn local(folder: LocalFolder, fresh: Option<FreshFolder>) -> Self {
        let shown = folder.path().display().to_string();
        let environment = Map::from_iter([("kind".to_owned(), json!("local"))]);
        let is_untouched = AtomicBool::new(fresh.is_some());
        let state = OpenState { folder: Box::new(folder), _process: None, _fresh: fresh };
        Self { state: Arc::new(Mutex::new(state)), pipe: None, shown, environment, is_untouched }
    }

    fn inside(place: &SandboxPlace) -> Result<Self, FolderError> {
        let SandboxPlace { address, folder, is_fresh, shim, start_limit, silence_limit } = place;
        let (default, mode) = if *is_fresh { (FRESH_PARENT, "fresh") } else { (DEFAULT_FOLDER, "folder") };
        let folder = folder.as_deref().or(address.folder.as_deref()).unwrap_or(default);
        // Asked for while the shim starts, which takes as long.
        let (sender, answer) = sync_channel(1);
        std::thread::spawn({
            let address = address.clone();
            // Nobody waits for it any more if the shim did not start.
            move || sender.send(address.environment())
        });
        let (remote, process) = connect(address, folder, mode, shim.as_deref().map(Path::new), *start_limit)?;
        let shown = format!("{address} {}", remote.path());
        let environment = answer.recv_timeout(GRACE).unwrap_or_else(|_| address.name_alone());
        let pipe = Some((process.handle(), *silence_limit));
        let state = OpenState { folder: Box::new(remote), _process: Some(process), _fresh: None };
        let is_untouched = AtomicBool::new(*is_fresh);
        Ok(Self { state: Arc::new(Mutex::new(state)), pipe, shown, environment, is_untouched })
    }

    /// Its path for people, after the sandbox.
    pub fn shown(&self) -> &str {
        &self.shown
    }

    /// What the record of a command says of where it ran.
    pub fn environment(&self) -> &Map<String, Value> {
        &self.environment
    }

    /// Whether it was made anew and no command has run in it, so that it has nothing but what was pulled.
    pub fn is_untouched(&self) -> bool {
        self.is_untouched.load(Ordering::Relaxed)
    }

    /// Notes that a command runs in it.
    pub(crate) fn touch(&self) {
        self.is_untouched.store(false, Ordering::Relaxed);
    }

    /// Returns what the folder says that it has of a run. A command may have changed it: do not take the run from it.
    ///
    /// # Errors
    ///
    /// If the connection to the sandbox is lost.
    #[boxed]
    pub async fn have(&self) -> Result<Option<CheckedOut>, FolderError> {
        self.with(|folder| Ok(folder.have()?)).await
    }

    /// Closes the folder, and waits until the program that holds the pipe has ended and a new folder is removed. Dropping it does the
    /// same, on the thread that drops it.
    ///
    /// # Errors
    ///
    /// If no thread can be started.
    #[boxed]
    pub async fn close(self) -> Result<(), FolderError> {
        blocking(move || {
            drop(self);
            Ok(())
        })
        .await
    }

    /// Works with the folder, on a thread that may block. If the caller does not wait for the end, the work is done nevertheless, and the
    /// next one waits for it.
    pub(crate) async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut dyn CommandFolder) -> Result<T, FolderError> + Send + 'static,
    ) -> Result<T, FolderError> {
        let (state, pipe) = (Arc::clone(&self.state), self.pipe.clone());
        let watched = pipe.clone();
        let done = blocking(move || {
            let done = work(&mut *state.lock().unwrap_or_else(PoisonError::into_inner).folder);
            done.map_err(|error| match (error, pipe) {
                (FolderError::Folder(ShimError::Lost(why)), Some((pipe, silence_limit))) => {
                    let silent = || format!("the shim was silent for {} s", silence_limit.as_secs());
                    let why = if pipe.is_cut_silent() { silent() } else { pipe.said().unwrap_or(why) };
                    ShimError::Lost(why).into()
                }
                (error, _) => error,
            })
        });
        match watched {
            None => done.await,
            Some((pipe, limit)) => {
                tokio::select! {
                    done = done => done,
                    never = cut_silent(&pipe, limit) => match never {},
                }
            }
        }
    }

    /// Cuts the pipe to a sandbox that does not react.
    pub(crate) fn cut(&self) {
        if let Some((pipe, _)) = &self.pipe {
            pipe.kill();
        }
    }
}

impl Drop for OpenFolder {
    fn drop(&mut self) {
        let Some((pipe, _)) = self.pipe.take() else { return };
        if matches!(self.state.try_lock(), Err(TryLockError::WouldBlock)) {
            // Nobody waits for what still runs there. The shim ends its command, if the sandbox reacts.
            let state = Arc::downgrade(&self.state);
            std::thread::spawn(move || {
                std::thread::sleep(GRACE);
                if state.strong_count() > 0 {
                    pipe.kill();
                }
            });
        }
    }
}

impl std::fmt::Debug for OpenFolder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenFolder").field("shown", &self.shown).finish_non_exhaustive()
    }
}

/// Cuts a pipe that has been silent for longer than `limit` while it was waited for.
async fn cut_silent(pipe: &PipeHandle, limit: Duration) -> Infallible {
    let mut ticks = tokio::time::interval(limit / 8);
    loop {
        ticks.tick().await;
        if pipe.silence() > limit {
            pipe.cut_silent();
            std::future::pending::<()>().await;
        }
    }
}

/// Runs what may block, and returns its result. On a thread of its own: a runtime waits at its end for those that it has, and what reads
/// from a sandbox that hangs may never end.
pub(crate) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FolderError> + Send + 'static,
) -> Result<T, FolderError> {
    let (sender, done) = oneshot::channel();
    // If nobody waits for it, it is done nevertheless.
    let run = move || drop(sender.send(catch_unwind(AssertUnwindSafe(work))));
    std::thread::Builder::new().spawn(run).map_err(|error| FolderError::io("a thread", error))?;
    match done.await {
        Ok(Ok(done)) => done,
        Ok(Err(panic)) => resume_unwind(panic),
        Err(lost) => Err(FolderError::io("a thread", std::io::Error::other(lost))),
    }
}
