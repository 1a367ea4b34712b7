//! Making the folder of a run that is not on this machine: from the parts of its base, and the newest version of each file that the
//! ledger names. It is made in a staging folder and renamed into place at the end, as an import is.

mod tree;

use std::collections::BTreeSet;
use std::io::{self, BufReader, Read};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;

use model::{LogicalPath, RunId, Sha256};
use rustix::fs::{Mode, RenameFlags};
use rustix::io::Errno;

use super::base_parts::{
    FETCHED_PART, MANIFEST_PART, PACK, SHALLOW_PART, UNTRACKED_PART, damaged, rows_of, set_base_commit,
};
use super::{ChainPoint, FOLDERS, STAGING, Workspaces, fsync_tree, run_copy, run_folders, tree_note};
use crate::base::manifest::{self, BaseManifest, Head};
use crate::base::{Base, GIT_NAME, MANIFEST_NAME, MAX_MANIFEST_BYTES};
use crate::byte_path::is_plain;
use crate::dir::{create_file, open_dir, open_file, remove_file};
use crate::error::WorkspaceError;
use crate::import::make_bare;
use crate::remove::remove_tree;
use crate::snapshot::{Snapshot, StoredContents};

pub(crate) use tree::TreeWriter;

/// What a run started from, as the ledger has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedBase {
    /// The base commit.
    pub commit: String,
    /// The hash of its files: [`ImportedRun::manifest_sha256`](super::ImportedRun::manifest_sha256).
    pub manifest_sha256: Sha256,
    /// The hash of the files that git ignores, if there were any: [`Untracked::sha256`](crate::Untracked::sha256).
    pub untracked_sha256: Option<Sha256>,
}

/// A run whose folder was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoredRun {
    /// The number of files and links.
    pub files: u64,
    /// The size of the files in bytes.
    pub bytes: u64,
}

/// The folder of a run that is made, and not in its place yet. Dropping it removes it, unless it was [placed](Self::place).
pub struct MadeRun {
    folder: RunRestorer,
    restored: RestoredRun,
}

/// The folder of a run while it is made. Dropping it removes it, unless it was finished.
pub struct RunRestorer {
    workspaces: Arc<Workspaces>,
    name: String,
    dir: OwnedFd,
    tree: TreeWriter,
    is_fetched: bool,
    /// The epoch under which this node owns the run, if several nodes share the ledger.
    epoch: Option<u64>,
    is_finished: bool,
}

impl Workspaces {
    /// Whether the folder of `run` is on this machine.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn has_folder(&self, run: &RunId) -> io::Result<bool> {
        match open_dir(&self.dir, run.as_str()) {
            Ok(_) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Begins to make the folder of a run, which replaces an outdated one. If several nodes share the ledger, `epoch` is that under which
    /// this node owns the run.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn restorer(self: &Arc<Self>, epoch: Option<u64>) -> io::Result<RunRestorer> {
        let name = self.own_name(STAGING);
        rustix::fs::mkdirat(&self.dir, &*name, Mode::RWXU)?;
        let dir = open_dir(&self.dir, &*name)?;
        for folder in FOLDERS {
            rustix::fs::mkdirat(&dir, folder, Mode::RWXU)?;
        }
        let git_dir = self.path.join(&name).join(GIT_NAME);
        make_bare(&git_dir)?;
        std::fs::create_dir(git_dir.join("objects/pack"))?;
        let tree = TreeWriter::new(open_dir(&dir, "repo")?);
        Ok(RunRestorer { workspaces: Arc::clone(self), name, dir, tree, is_fetched: false, epoch, is_finished: false })
    }
}

impl RunRestorer {
    /// The part of a base with the files that git ignores, which [`add_untracked`](Self::add_untracked) takes.
    pub const UNTRACKED_PART: &str = UNTRACKED_PART;

    /// Adds a part of the base.
    ///
    /// # Errors
    ///
    /// If the disk or `content` fails, or a base has no such part.
    pub fn add_part(&mut self, name: &str, content: &mut dyn Read) -> io::Result<()> {
        let mut file = match name {
            MANIFEST_PART => create_file(&self.dir, MANIFEST_NAME)?,
            SHALLOW_PART => create_file(open_dir(&self.dir, GIT_NAME)?, SHALLOW_PART)?,
            FETCHED_PART => {
                self.is_fetched = true;
                return Ok(());
            }
            pack if pack.starts_with(PACK) && is_plain(pack.as_bytes()) && !pack.contains('/') => {
                let objects = open_dir(open_dir(&self.dir, GIT_NAME)?, "objects")?;
                create_file(open_dir(objects, "pack")?, pack)?
            }
            _ => return Err(damaged("the base has an unknown part")),
        };
        io::copy(&mut BufReader::with_capacity(1 << 20, content), &mut file).map(drop)
    }

    /// Sets the base commit once all parts of the base are added.
    ///
    /// # Errors
    ///
    /// If the disk fails, or the base is not `recorded` ([`io::ErrorKind::InvalidData`]).
    pub fn set_base(&self, recorded: &RecordedBase) -> io::Result<()> {
        let (head, manifest) = self.manifest()?;
        let (rows, _) = rows_of(&manifest);
        let is_recorded = head.commit == recorded.commit && manifest::digest(&rows) == recorded.manifest_sha256;
        if !is_recorded || !rows.iter().all(|row| is_plain(&row.path)) {
            return Err(damaged("the base is not the one that the run started from"));
        }
        set_base_commit(&self.path().join(GIT_NAME), &head.commit, self.is_fetched)
    }

    /// Adds the files that git ignores and the run has not written, and adds those that it has written to the base, as the first
    /// change of each did.
    ///
    /// # Errors
    ///
    /// If the disk or `content` fails, or the files are not those with the hash `recorded` ([`io::ErrorKind::InvalidData`]).
    pub fn add_untracked(
        &mut self,
        content: &mut dyn Read,
        recorded: Sha256,
        written: &BTreeSet<LogicalPath>,
    ) -> io::Result<()> {
        let base = self.base()?;
        self.tree.add_untracked(content, recorded, written, &base)
    }

    /// Marks the folder as one of a run that the ledger does not have yet, as that of an import, until the run is
    /// [confirmed](Workspaces::confirm).
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn mark_unfinished(&self) -> io::Result<()> {
        run_folders::mark_unfinished(&self.dir)
    }

    /// Adds the artifacts that [`bundle_artifacts`](Workspaces::bundle_artifacts) has archived.
    ///
    /// # Errors
    ///
    /// If the disk or `content` fails, or an entry is none of artifacts ([`io::ErrorKind::InvalidData`]).
    pub fn add_artifacts(&mut self, content: &mut dyn Read) -> io::Result<()> {
        run_copy::unpack_artifacts(&self.dir, content)
    }

    /// Writes the files of `snapshot`, which is that of `newest`, the newest record of the run, or unknown for a run that the ledger
    /// does not have yet. Artifacts that were not added, and contents of calls that wait for approval, are copied from the folder that this one replaces, if there is one.
    ///
    /// # Errors
    ///
    /// If the disk or the ledger fails, a file has another hash than recorded ([`io::ErrorKind::InvalidData`]), or the bytes of one
    /// are missing ([`io::ErrorKind::NotFound`]).
    pub fn make(
        mut self,
        run: &RunId,
        snapshot: &Snapshot,
        contents: &dyn StoredContents,
        newest: ChainPoint,
    ) -> Result<MadeRun, WorkspaceError> {
        let base = self.base()?;
        let (head, manifest) = self.manifest()?;
        let (rows, folders) = rows_of(&manifest);
        self.tree.write_base(&base, &rows, snapshot)?;
        self.tree.write_changed(snapshot, contents)?;
        self.tree.make_empty_folders(&rows, &folders, snapshot)?;
        let restored = RestoredRun { files: self.tree.files(), bytes: self.tree.bytes() };
        let entries = rows.len() + folders.len();
        let (rows, folders) = self.tree.stamps(rows, folders, snapshot)?;
        remove_file(&self.dir, MANIFEST_NAME).map_err(io::Error::from)?;
        let mut file = create_file(&self.dir, MANIFEST_NAME).map_err(io::Error::from)?;
        io::Write::write_all(&mut file, &manifest::write(&head, rows, folders))?;
        if let Some(epoch) = self.epoch {
            self.workspaces.note_owner(&self.dir, epoch)?;
        }
        tree_note::create(&self.dir, newest)?;
        let kept = self.workspaces.copy_kept(run, &self.dir)?;
        fsync_tree::sync(&self.dir, entries + kept)?;
        failpoint::hit("restore.made");
        Ok(MadeRun { folder: self, restored })
    }

    fn move_into_place(&mut self, run: &RunId) -> io::Result<()> {
        let all = &self.workspaces.dir;
        match rustix::fs::renameat_with(all, &*self.name, all, run.as_str(), RenameFlags::NOREPLACE) {
            Ok(()) => self.is_finished = true,
            // The drop removes the outdated folder, which has the name of this one then.
            Err(Errno::EXIST) => {
                rustix::fs::renameat_with(all, &*self.name, all, run.as_str(), RenameFlags::EXCHANGE)?;
                self.workspaces.importer.forget_base(run);
                self.workspaces.notes.remove(run);
            }
            Err(errno) => return Err(errno.into()),
        }
        Ok(rustix::fs::fsync(all)?)
    }

    fn manifest(&self) -> io::Result<(Head, BaseManifest)> {
        let mut bytes = Vec::new();
        open_file(&self.dir, MANIFEST_NAME)?.take(MAX_MANIFEST_BYTES).read_to_end(&mut bytes)?;
        manifest::read(&bytes, 0)
    }

    /// Opens the base. Nothing may use it after the folder is moved into place.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn base(&self) -> io::Result<Arc<Base>> {
        let base = Base::open(self.dir.as_fd(), &self.path(), &self.workspaces.home, Arc::default())?;
        Ok(Arc::new(base))
    }

    fn path(&self) -> PathBuf {
        self.workspaces.path.join(&self.name)
    }
}

impl MadeRun {
    /// Moves the folder of `run` into its place. The outdated one that it replaces is removed.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn place(mut self, run: &RunId) -> io::Result<RestoredRun> {
        self.folder.move_into_place(run)?;
        failpoint::hit("restore.placed");
        Ok(self.restored)
    }

    /// As [`place`](Self::place), and moves the folder that it replaces to `lost+found/`. Returns its name there. Both are exchanged at
    /// once: a process that is killed before leaves the new one there.
    ///
    /// # Errors
    ///
    /// If the disk fails, or `lost+found/` is on another file system.
    pub fn place_and_set_aside(mut self, run: &RunId) -> io::Result<(RestoredRun, String)> {
        let workspaces = Arc::clone(&self.folder.workspaces);
        let (lost, name) = workspaces.move_to_lost(&self.folder.name, run)?;
        // In `lost+found/`, nothing removes it.
        self.folder.is_finished = true;
        if let Err(errno) =
            rustix::fs::renameat_with(&lost, &*name, &workspaces.dir, run.as_str(), RenameFlags::EXCHANGE)
        {
            remove_tree(lost.as_fd(), name.as_bytes())?;
            return Err(errno.into());
        }
        workspaces.importer.forget_base(run);
        workspaces.notes.remove(run);
        for dir in [&lost, &workspaces.dir] {
            rustix::fs::fsync(dir)?;
        }
        failpoint::hit("restore.placed");
        Ok((self.restored, name))
    }
}

impl Drop for RunRestorer {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        if let Err(error) = remove_tree(self.workspaces.dir.as_fd(), self.name.as_bytes()) {
            // The next start removes it.
            tracing::warn!(%error, "the files of a run that could not be opened could not be removed");
        }
    }
}
