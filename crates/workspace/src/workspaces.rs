//! The folders of all runs: made by an import or from what the ledger knows, all at once or not at all; opened, and removed.

mod base_parts;
mod node_folder;
mod restore;
mod run_base;
mod run_copy;
mod run_folders;
mod staging;
mod tree_note;

use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::{Code, Refusal, Rules, RunId, Sha256, SkippedEntry};
use rustix::fs::{Mode, RenameFlags};
use rustix::io::Errno;

use crate::WorkspaceError;
use crate::base::DiffCache;
use crate::bases::{BaseInfo, BaseStore, CommitBase};
use crate::dir::{fresh_name, open_dir};
use crate::fsync_tree;
use crate::git::{ConfineGit, GitHome, make_home};
use crate::guard;
use crate::import::{GitCredential, ImportLimits, ImportObserver, ImportSource, Importer, OwnFolders};
use crate::remove::remove_tree;
use crate::tree::Workspace;

pub use base_parts::BasePart;
pub use node_folder::FolderState;
pub use restore::{BaseMaker, MadeRun, RestoredRun, RunRestorer};
pub(crate) use run_copy::visit;
pub use run_copy::{RunEntry, RunEntryKind, RunPart};
pub use run_folders::RunFolder;
use staging::Staging;
use tree_note::OpenNotes;
pub use tree_note::{ChainPoint, TreeNote, TreeNoteFile, sync_notes};

/// The prefix of a folder's name while it is imported. No run has such a name.
const STAGING: &str = ".import-";
/// The prefix of a folder's name while it is removed.
const TRASH: &str = ".trash-";
/// The folder that serves as git's home.
const GIT_HOME: &str = ".git-home";

/// The folders of a run.
const FOLDERS: [&str; 4] = ["repo", "tmp", "artifacts", "tool-cache"];

/// The folder of all runs' workspaces.
pub struct Workspaces {
    dir: OwnedFd,
    path: PathBuf,
    data_dir: PathBuf,
    home: Arc<GitHome>,
    /// Part of the names of this process's temporary folders, which its own sweeps leave alone.
    tag: String,
    importer: Importer,
    bases: BaseStore,
    diffs: Arc<DiffCache>,
    /// The name of this node, if several share the ledger.
    owner: Option<String>,
    notes: OpenNotes,
}

/// An imported run.
#[derive(Debug)]
pub struct ImportedRun {
    /// The workspace.
    pub workspace: Arc<Workspace>,
    /// The base commit.
    pub base_commit: String,
    /// Hash of the base's files: SHA-256 over the line `path\0mode\0sha256\n` of each file and link, sorted by the bytes of the
    /// path; the mode as git writes it, the hash in lower-case hexadecimal, of a link that of its target.
    pub manifest_sha256: Sha256,
    /// The number of files.
    pub files: u64,
    /// Their size in bytes.
    pub bytes: u64,
    /// Entries that were skipped: at most 1,000, with at most 64 KiB of paths and reasons.
    pub left_out: Vec<SkippedEntry>,
    /// How many more were skipped.
    pub left_out_more: u64,
    /// The hash of the files that git ignores, in the same form; `None` if there are none.
    pub untracked_sha256: Option<Sha256>,
}

impl fmt::Debug for Workspaces {
    // Without the physical path, which must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workspaces").field("limits", &self.importer.limits).finish_non_exhaustive()
    }
}

impl Workspaces {
    /// Opens `data_dir/workspaces`, creates it if it is missing, and checks that the kernel and the file system support the
    /// guard.
    ///
    /// # Errors
    ///
    /// If the folder cannot be used or a check fails.
    pub fn open(data_dir: &Path, import_roots: &[PathBuf]) -> io::Result<Self> {
        std::fs::create_dir_all(data_dir)?;
        match rustix::fs::mkdir(data_dir.join("workspaces"), Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        BaseStore::create(data_dir)?;
        let mut opened = Self::open_to_read(data_dir)?;
        opened.importer.roots = import_roots.to_vec();
        guard::self_test(opened.dir.as_fd())?;
        make_home(&opened.home.path)?;
        Ok(opened)
    }

    /// Opens the folder as it is, without writing to it: a service may use it, and the disk may permit no writes.
    ///
    /// # Errors
    ///
    /// If it does not exist or cannot be opened.
    #[expect(clippy::disallowed_methods, reason = "the service's own folder, which nobody else may write to")]
    pub fn open_to_read(data_dir: &Path) -> io::Result<Self> {
        // Git runs in another folder, where a relative path would not work.
        let path = data_dir.join("workspaces").canonicalize()?;
        let dir = guard::open_ambient_folder(&path)?;
        let data_dir = data_dir.canonicalize()?;
        let own = OwnFolders::new([
            (data_dir.clone(), guard::open_ambient_folder(&data_dir)?.as_fd()),
            (path.clone(), dir.as_fd()),
        ])?;
        let home = Arc::new(GitHome { path: path.join(GIT_HOME), ..GitHome::default() });
        let bases = BaseStore::open_to_read(&data_dir, &home)?;
        Ok(Self {
            dir,
            home,
            tag: fresh_name(""),
            data_dir,
            path,
            importer: Importer::new(own),
            bases,
            diffs: Arc::default(),
            owner: None,
            notes: OpenNotes::default(),
        })
    }

    /// Sets other limits for imports.
    #[must_use]
    pub fn with_limits(mut self, limits: ImportLimits) -> Self {
        self.importer.limits = limits;
        self
    }

    /// Sets the hosts that git sources may name although their addresses are not public, and what restricts each call of git.
    #[must_use]
    pub fn with_git(mut self, allowed_hosts: Vec<String>, confine: Option<Arc<dyn ConfineGit>>) -> Self {
        self.home = Arc::new(GitHome { path: self.home.path.clone(), allowed_hosts, confine });
        self.bases.set_home(Arc::clone(&self.home));
        self
    }

    /// Sets the credentials that git sources may name.
    #[must_use]
    pub fn with_credentials(mut self, credentials: Vec<GitCredential>) -> Self {
        self.importer.credentials = credentials;
        self
    }

    /// Checks that there is a credential `name` for `url`.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`, the same whether it does not exist or is for other repositories.
    pub fn check_credential(&self, name: &str, url: &str) -> Result<(), Refusal> {
        self.importer.credential(name, url).map(drop)
    }

    /// Returns the real path of `raw`, if it is under an import root and apart from the service's own folders.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`, the same whether the path does not exist or is not allowed.
    pub fn allow(&self, raw: &str) -> Result<PathBuf, Refusal> {
        self.importer.allow(raw)
    }

    /// Makes the base of `source`, unless it was imported before, and then the workspace of `run`, which refers to it: each in a staging
    /// folder that is renamed into place at the end. `rules` are the run's policy: a hard link must not reveal what another name of
    /// the same file hides. The run counts as unfinished until it is [confirmed](Self::confirm).
    ///
    /// # Errors
    ///
    /// The refusal of the source; if the disk or git fails; `Cancelled`. Nothing remains then.
    pub fn import(
        &self,
        run: &RunId,
        source: ImportSource<'_>,
        rules: &Rules,
        watch: &dyn ImportObserver,
    ) -> Result<ImportedRun, WorkspaceError> {
        if rustix::fs::statat(&self.dir, run.as_str(), rustix::fs::AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Err(exists(run).into());
        }
        let (CommitBase { base: id, mut skipped }, uncommitted) =
            self.importer.make_base(&self.bases, source, rules, watch)?;
        for path in uncommitted {
            skipped.add(&path, "an uncommitted change of the source");
        }
        if watch.cancelled() {
            return Err(WorkspaceError::Cancelled);
        }
        let _kept = self.bases.keep();
        self.bases.touch(&id)?;
        let info = self.bases.info(&id)?;
        let mut staging = Staging::new(self)?;
        run_base::write(&staging.dir, &id)?;
        run_folders::mark_unfinished(&staging.dir)?;
        tree_note::create(&staging.dir, ChainPoint::START)?;
        fsync_tree::sync(&staging.dir, 0)?;
        match rustix::fs::renameat_with(&self.dir, &*staging.name, &self.dir, run.as_str(), RenameFlags::NOREPLACE) {
            Ok(()) => staging.is_finished = true,
            Err(Errno::EXIST | Errno::NOTEMPTY) => return Err(exists(run).into()),
            Err(errno) => return Err(errno.into()),
        }
        rustix::fs::fsync(&self.dir)?;
        watch.progress("done", info.files, info.bytes);
        let BaseInfo { commit, manifest_sha256, untracked_sha256, files, bytes, .. } = info;
        Ok(ImportedRun {
            workspace: self.get(run)?,
            base_commit: commit,
            manifest_sha256,
            untracked_sha256,
            files,
            bytes,
            left_out: skipped.entries,
            left_out_more: skipped.more,
        })
    }

    /// Opens `run`'s workspace.
    ///
    /// # Errors
    ///
    /// If it does not exist or cannot be used.
    pub fn get(&self, run: &RunId) -> io::Result<Arc<Workspace>> {
        let dir = open_dir(&self.dir, run.as_str())?;
        let base = self.bases.get(&run_base::read(&dir)?)?;
        Ok(Arc::new(Workspace::open(&dir, &self.path.join(run.as_str()), base, Arc::clone(&self.diffs))?))
    }

    /// Removes `run`'s workspace. A missing one is no error.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn remove(&self, run: &RunId) -> io::Result<()> {
        let trash = self.own_name(TRASH);
        match rustix::fs::renameat(&self.dir, run.as_str(), &self.dir, &*trash) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
        self.notes.remove(run);
        // From here on the run is removed. If its files cannot be removed now, a sweep does it.
        rustix::fs::fsync(&self.dir)?;
        remove_tree(self.dir.as_fd(), trash.as_bytes())
    }

    fn own_name(&self, prefix: &str) -> String {
        fresh_name(&format!("{prefix}{}-", self.tag))
    }
}

fn exists(run: &RunId) -> Refusal {
    Refusal::new(Code::AlreadyExists, format!("run `{run}` already exists"), "Choose another runId, or omit it.")
}
