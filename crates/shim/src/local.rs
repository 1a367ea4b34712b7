//! A folder of this machine.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, Signal};

use crate::apply::Application;
use crate::aside::put_aside;
use crate::command::{CommandControl, CommandOutcome, CommandSpec, OutputStream};
use crate::entry::OWN_FOLDER;
use crate::error::ShimError;
use crate::folder::{AppliedLayer, CheckedOut, CommandFolder, ReadLimits, ReadReport, ScanReport};
use crate::handles::{FolderCursor, open_root, unlink};
use crate::index::{CheckoutIndex, IndexChanges, IndexFolder};
use crate::layer::LayerWriter;
use crate::scan::FolderScan;

const LOCK_NAME: &str = "lock";
/// How often a lock that another program holds is tried.
const LOCK_POLL: Duration = Duration::from_millis(50);
/// The name of the shim's process, as the system cuts it.
const SHIM_PROCESS: &str = "workspaced-shim";
/// How many names are tried for a new folder.
const MAX_NAMES_TRIED: u32 = 1000;

/// A folder of this machine. Only one program at a time works with a checkout; others wait for it.
#[derive(Debug)]
pub struct LocalFolder {
    path: PathBuf,
    root: OwnedFd,
    /// Nothing in a folder that was never a checkout.
    own: Option<IndexFolder>,
    /// Held as long as the folder is.
    lock: Option<OwnedFd>,
    index: Option<CheckoutIndex>,
    read: IndexChanges,
    /// What the next layer may overwrite.
    theirs: BTreeSet<String>,
    /// What was put aside and is not written again yet.
    restored: BTreeSet<String>,
    /// Whether the first layer puts aside what is in its way.
    gives_way: bool,
}

impl LocalFolder {
    /// Opens a folder that exists.
    ///
    /// # Errors
    ///
    /// If it is no folder, or its index cannot be read.
    pub fn open(path: &Path) -> Result<Self, ShimError> {
        let shown = path.display().to_string();
        let path = std::fs::canonicalize(path).map_err(|error| ShimError::io(&shown, error))?;
        let root = open_root(&path).map_err(ShimError::of(&shown))?;
        let (own, read) = (IndexFolder::open(&root)?, IndexChanges::new());
        let (theirs, restored) = (BTreeSet::new(), BTreeSet::new());
        let (lock, index, gives_way) = (None, None, false);
        let mut folder = Self { path, root, own, lock, index, read, theirs, restored, gives_way };
        if folder.own.is_some() {
            folder.lock()?;
            folder.load()?;
        }
        Ok(folder)
    }

    /// Opens a folder, and creates it first if it is missing.
    ///
    /// # Errors
    ///
    /// As [`LocalFolder::open`].
    pub fn create(path: &Path) -> Result<Self, ShimError> {
        std::fs::create_dir_all(path).map_err(|error| ShimError::io(path.display().to_string(), error))?;
        Self::open(path)
    }

    /// Its path, without symbolic links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn lock(&mut self) -> Result<(), ShimError> {
        let (Some(own), None) = (&self.own, &self.lock) else { return Ok(()) };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let failed = ShimError::of("the lock of the folder");
        let lock = rustix::fs::openat(&own.dir, LOCK_NAME, flags, Mode::RUSR | Mode::WUSR).map_err(&failed)?;
        while let Err(errno) = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            if !matches!(errno, Errno::WOULDBLOCK | Errno::INTR) {
                return Err(failed(errno));
            }
            end_stopped_holder(&lock)?;
            std::thread::sleep(LOCK_POLL);
        }
        self.lock = Some(lock);
        Ok(())
    }

    fn load(&mut self) -> Result<(), ShimError> {
        self.index = self.own.as_ref().map(IndexFolder::load).transpose()?.flatten();
        Ok(())
    }

    /// Forgets the index if its folder was removed or replaced, which only a command does: what it says is not noted anywhere any more.
    fn forget_lost(&mut self) -> Result<(), ShimError> {
        let Some(own) = &self.own else { return Ok(()) };
        if own.is_in(&self.root)? {
            return Ok(());
        }
        (self.own, self.lock, self.index) = (None, None, None);
        let failed = ShimError::of(OWN_FOLDER);
        match IndexFolder::open(&self.root) {
            Ok(own) => self.own = own,
            // Something else has its name.
            Err(_) => unlink(&self.root, OWN_FOLDER).map_err(failed)?,
        }
        self.lock()?;
        // An index that cannot be read is none.
        let _ = self.load();
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn index(&mut self) -> &mut CheckoutIndex {
        self.index.as_mut().unwrap()
    }

    fn checkout(&mut self) -> Result<(&OwnedFd, &IndexFolder, &mut CheckoutIndex), ShimError> {
        match (&self.own, &mut self.index) {
            (Some(own), Some(index)) => Ok((&self.root, own, index)),
            _ => Err(ShimError::Refused("the folder is no checkout of a run".to_owned())),
        }
    }
}

impl CommandFolder for LocalFolder {
    fn have(&mut self) -> Result<Option<CheckedOut>, ShimError> {
        self.forget_lost()?;
        Ok(self.index.as_ref().map(|index| index.of.clone()))
    }

    fn apply(&mut self, after: &CheckedOut, layer: &mut dyn Read) -> Result<AppliedLayer, ShimError> {
        if self.own.is_none() {
            self.own = Some(IndexFolder::create(&self.root)?);
            self.lock()?;
            // Another program may have made a checkout of it meanwhile.
            self.load()?;
        }
        let Some(own) = &self.own else { return Err(ShimError::Refused("the folder has no index".to_owned())) };
        let is_first = self.index.is_none();
        let empty = CheckoutIndex::new(after.clone());
        let index = self.index.as_ref().unwrap_or(&empty);
        if index.of.run != after.run {
            return Err(ShimError::Refused(format!("the folder is a checkout of the run {}", index.of.run)));
        }
        let (theirs, restored) = (std::mem::take(&mut self.theirs), std::mem::take(&mut self.restored));
        let mut application = Application::new(&self.root, own, index, is_first, theirs, restored)?;
        if std::mem::take(&mut self.gives_way) && is_first {
            application = application.giving_way();
        }
        let (changes, applied) = application.run(layer)?;
        let index = self.index.get_or_insert(empty);
        index.change(changes);
        let before = index.of.clone();
        if applied.conflicts.is_empty() {
            index.of = after.clone();
        }
        if let Err(error) = own.save(index) {
            // The folder is at the record before, with some files that are newer already.
            index.of = before;
            self.index.take_if(|_| is_first);
            return Err(error);
        }
        Ok(applied)
    }

    fn take_theirs(&mut self, theirs: &[String]) -> Result<(), ShimError> {
        self.theirs = theirs.iter().cloned().collect();
        Ok(())
    }

    fn put_aside(&mut self, paths: &[String]) -> Result<(), ShimError> {
        if self.index.is_none() {
            self.gives_way = true;
            return Ok(());
        }
        let (root, own, index) = self.checkout()?;
        self.restored = put_aside(root, own, index, paths)?;
        Ok(())
    }

    fn tree_sha256(&mut self) -> Result<String, ShimError> {
        let (.., index) = self.checkout()?;
        Ok(index.tree_sha256())
    }

    fn scan(&mut self, build_output: &[String]) -> Result<ScanReport, ShimError> {
        let (root, own, index) = self.checkout()?;
        let began = own.now_ns()?;
        let (report, has_learned) = FolderScan::new(index, build_output, began).run(root)?;
        if has_learned {
            index.is_unsaved = true;
            own.save(index)?;
        }
        Ok(report)
    }

    fn read(&mut self, paths: &[String], limits: ReadLimits, out: &mut dyn Write) -> Result<ReadReport, ShimError> {
        let (root, own, index) = self.checkout()?;
        let began = own.now_ns()?;
        let root = root.try_clone().map_err(|error| ShimError::io("the folder", error))?;
        let (report, versions) =
            LayerWriter::new(index, limits, began, out).run(&mut FolderCursor::new(root), paths)?;
        self.read = versions;
        Ok(report)
    }

    fn confirm(&mut self, paths: &[String]) -> Result<(), ShimError> {
        let mut read = std::mem::take(&mut self.read);
        let (.., index) = self.checkout()?;
        index.change(paths.iter().filter_map(|path| read.remove_entry(path)).collect());
        Ok(())
    }

    fn exec(
        &mut self,
        command: &CommandSpec,
        started: &mut dyn FnMut(CommandControl),
        output: &mut dyn FnMut(OutputStream, &[u8]) -> std::io::Result<()>,
    ) -> Result<CommandOutcome, ShimError> {
        crate::command::run(&self.path, command, started, output)
    }
}

/// Kills a shim that holds the lock and is stopped, which it would hold forever: a command can stop the shim that has started it. Which
/// process holds the lock is the system's word, not that of a file which a command can write.
fn end_stopped_holder(lock: &OwnedFd) -> Result<(), ShimError> {
    match stopped_holder(lock) {
        None => Ok(()),
        Some((holder, name)) if name == SHIM_PROCESS => {
            // It may have ended just now.
            let _ = rustix::process::kill_process(holder, Signal::KILL);
            Ok(())
        }
        Some((holder, name)) => Err(ShimError::Refused(format!(
            "the folder is in use by {name} (process {}), which is stopped: continue it or end it",
            holder.as_raw_nonzero()
        ))),
    }
}

/// Returns the process that holds the lock, with its name, if it is stopped.
fn stopped_holder(lock: &OwnedFd) -> Option<(Pid, String)> {
    let inode = rustix::fs::fstat(lock).ok()?.st_ino.to_string();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    locks.lines().find_map(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, holder, file, ..] = fields[..] else { return None };
        if file.rsplit(':').next() != Some(&inode) {
            return None;
        }
        let stat = std::fs::read_to_string(format!("/proc/{holder}/stat")).ok()?;
        let (process, state) = stat.rsplit_once(") ")?;
        let name = process.split_once('(')?.1.to_owned();
        let holder = Pid::from_raw(holder.parse().ok()?)?;
        state.starts_with('T').then_some((holder, name))
    })
}

impl Drop for LocalFolder {
    fn drop(&mut self) {
        if let (Some(own), Some(index)) = (&self.own, self.index.as_mut().filter(|index| index.is_unsaved)) {
            // What cannot be noted is found to be the run's already by the next pull.
            let _ = own.save(index);
        }
    }
}

/// A new folder, which is removed with all that is in it when this is dropped.
#[derive(Debug)]
pub struct FreshFolder(PathBuf);

impl FreshFolder {
    /// Creates one in `parent`.
    ///
    /// # Errors
    ///
    /// If `parent` cannot be written.
    pub fn create(parent: &Path) -> Result<Self, ShimError> {
        let shown = parent.display().to_string();
        for number in 0..MAX_NAMES_TRIED {
            let path = parent.join(format!("workspaced-{}-{number}", std::process::id()));
            match std::fs::create_dir(&path) {
                Ok(()) => return Ok(Self(path)),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(ShimError::io(shown, error)),
            }
        }
        Err(ShimError::Refused(format!("{shown}: no name for a new folder is free")))
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for FreshFolder {
    fn drop(&mut self) {
        // It is of no use any more; what cannot be removed, such as another user's file, stays.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
