//! Folders of runs: imported from a source all at once or not at all, opened, and removed.

mod archive;
mod bare;
mod base_parts;
mod directory;
mod existing_base;
mod fill;
mod fsync_tree;
mod git;
mod hard_links;
mod node_folder;
mod quota;
mod remove;
mod restore;
mod reuse;
mod run_copy;
mod run_folders;
mod staging;
#[cfg(test)]
mod tests;
mod tracked;
mod tree_note;
mod writer;

use std::fmt;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::{Code, Refusal, Rules, RunId, Sha256, SkippedEntry};
use rustix::fs::{Mode, RenameFlags};
use rustix::io::Errno;

use crate::base::{self, Base, BaseLru};
use crate::dir::{fresh_name, open_dir};
use crate::git::{ConfineGit, GitError, GitHome, make_home};
use crate::{Workspace, guard};

pub(crate) use bare::{make as make_bare, write_quoted};
pub use base_parts::{BasePart, Untracked};
pub(crate) use git::FETCHED;
pub use git::{GitCredential, GitToken};
pub use node_folder::FolderState;
pub(crate) use remove::{all_in as remove_all_in, tree as remove_tree};
pub use restore::{MadeRun, RecordedBase, RunRestorer};
pub use run_copy::{RunEntry, RunEntryKind, RunPart};
pub use run_folders::RunFolder;
pub(crate) use tracked::{folder_rules, is_folder_ignored};
pub use tree_note::{ChainPoint, TreeNote, TreeNoteFile, sync_notes};
pub(crate) use writer::stays_inside;

use directory::FolderId;
use quota::SkippedReport;
use reuse::BaseIndex;
use staging::{Done, Staging};
use tree_note::OpenNotes;

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
    home: Arc<GitHome>,
    /// Part of the names of this process's temporary folders, which its own sweeps leave alone.
    tag: String,
    import_roots: Vec<PathBuf>,
    /// The service's own folders, which are never imported: they contain the database and the key.
    own: OwnFolders,
    limits: ImportLimits,
    credentials: Vec<GitCredential>,
    base_index: BaseIndex,
    base_lru: Arc<BaseLru>,
    /// The name of this node, if several share the ledger.
    owner: Option<String>,
    notes: OpenNotes,
}

/// The limits of an import.
#[derive(Clone, Copy, Debug)]
pub struct ImportLimits {
    /// Files, folders and links, including those that are skipped.
    pub max_entries: u64,
    /// Bytes of their paths, which are held in memory during the import.
    pub max_name_bytes: u64,
    /// Bytes of all files, and bytes that a git source sends.
    pub max_bytes: u64,
    /// The number of names in a path.
    pub max_depth: usize,
    /// The compression ratio of an archive, beyond its first 64 MiB.
    pub max_ratio: u64,
}

/// The service's own folders: the data folder and `workspaces/`.
struct OwnFolders {
    paths: [PathBuf; 2],
    /// Their identities, which do not depend on the path or mount that leads to them.
    ids: [FolderId; 2],
}

impl OwnFolders {
    /// Whether `real` is inside one of them, or contains one.
    fn overlaps(&self, real: &Path) -> bool {
        self.paths.iter().any(|own| own.starts_with(real) || real.starts_with(own))
    }
}

impl Default for ImportLimits {
    fn default() -> Self {
        Self { max_entries: 1_000_000, max_name_bytes: 64 << 20, max_bytes: 16 << 30, max_depth: 128, max_ratio: 200 }
    }
}

impl fmt::Debug for Workspaces {
    // Without the physical path, which must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workspaces").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// The source of a run's tree. Paths were checked against the import roots by [`Workspaces::allow`].
pub enum ImportSource<'a> {
    /// No files.
    Empty,
    /// A git repository by `https`.
    GitRemote {
        /// The address.
        url: String,
        /// A branch, tag or commit; `None` for HEAD.
        reference: Option<String>,
        /// The name of the credential to send.
        credential: Option<String>,
    },
    /// A git repository on this machine.
    GitLocal {
        /// Its folder.
        path: PathBuf,
        /// A branch, tag or commit; `None` for HEAD.
        reference: Option<String>,
    },
    /// A folder on this machine.
    Directory(PathBuf),
    /// A tar or tar.gz archive.
    Archive(&'a mut dyn Read),
}

/// Observes an import, and can stop it.
pub trait ImportObserver: Sync {
    /// Called with the number of files and bytes so far. `stage` is `fetching`, `writing`, `committing` or `done`.
    fn progress(&self, stage: &'static str, files: u64, bytes: u64);

    /// Whether to stop.
    fn cancelled(&self) -> bool;

    /// Called before the tree grows to this many files and bytes. Folders and links count as files of 4 KiB.
    ///
    /// # Errors
    ///
    /// The refusal of the import, if that is beyond a quota.
    fn check_quota(&self, _files: u64, _bytes: u64) -> Result<(), Refusal> {
        Ok(())
    }
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
    /// The files that git ignores.
    pub untracked: Untracked,
}

/// A run whose folder was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestoredRun {
    /// The number of files and links.
    pub files: u64,
    /// The size of the files in bytes.
    pub bytes: u64,
}

/// Why an import failed. Nothing of it remains.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The source was refused, for a reason that the caller can act on.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The disk failed.
    #[error("file system error")]
    Io(#[from] io::Error),
    /// The caller disconnected.
    #[error("the import was cancelled")]
    Cancelled,
}

impl From<Errno> for ImportError {
    fn from(errno: Errno) -> Self {
        Self::Io(errno.into())
    }
}

impl From<GitError> for ImportError {
    fn from(error: GitError) -> Self {
        match error {
            GitError::Cancelled => Self::Cancelled,
            GitError::Io(error) => Self::Io(error),
            error => Self::Io(io::Error::other(error)),
        }
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
        let opened = Self { import_roots: import_roots.to_vec(), ..Self::open_to_read(data_dir)? };
        guard::self_test(opened.dir.as_fd())?;
        make_home(&opened.home.path)?;
        Ok(opened)
    }

    /// Opens the folder as it is, also on a disk that permits no writes.
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
        let ids = [directory::identity(&guard::open_ambient_folder(&data_dir)?)?, directory::identity(&dir)?];
        Ok(Self {
            dir,
            home: Arc::new(GitHome { path: path.join(GIT_HOME), ..GitHome::default() }),
            tag: fresh_name(""),
            import_roots: Vec::new(),
            own: OwnFolders { paths: [data_dir, path.clone()], ids },
            path,
            limits: ImportLimits::default(),
            credentials: Vec::new(),
            base_index: BaseIndex::default(),
            base_lru: Arc::default(),
            owner: None,
            notes: OpenNotes::default(),
        })
    }

    /// Sets other limits for imports.
    #[must_use]
    pub fn with_limits(self, limits: ImportLimits) -> Self {
        Self { limits, ..self }
    }

    /// Sets the hosts that git sources may name although their addresses are not public, and what restricts each call of git.
    #[must_use]
    pub fn with_git(self, allowed_hosts: Vec<String>, confine: Option<Arc<dyn ConfineGit>>) -> Self {
        let home = GitHome { path: self.home.path.clone(), allowed_hosts, confine };
        Self { home: Arc::new(home), ..self }
    }

    /// Sets the credentials that git sources may name.
    #[must_use]
    pub fn with_credentials(self, credentials: Vec<GitCredential>) -> Self {
        Self { credentials, ..self }
    }

    /// Checks that there is a credential `name` for `url`.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`, the same whether it does not exist or is for other repositories.
    pub fn check_credential(&self, name: &str, url: &str) -> Result<(), Refusal> {
        self.credential(name, url).map(drop)
    }

    fn credential(&self, name: &str, url: &str) -> Result<&GitCredential, Refusal> {
        let found = self.credentials.iter().find(|credential| credential.name() == name && credential.covers(url));
        found.ok_or_else(|| {
            Refusal::invalid(
                "the service has no such credential for the URL of the git source",
                "Name a credential that the operator of the service has configured for this URL, or omit it.",
            )
        })
    }

    /// Returns the real path of `raw`, if it is under an import root and apart from the service's own folders.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`, the same whether the path does not exist or is not allowed.
    #[expect(clippy::disallowed_methods, reason = "import roots are the operator's; runs cannot write there")]
    pub fn allow(&self, raw: &str) -> Result<PathBuf, Refusal> {
        let path = Path::new(raw);
        let real = path.is_absolute().then(|| path.canonicalize().ok()).flatten();
        let real = real.filter(|real| self.is_under_root(real)).ok_or_else(|| {
            Refusal::invalid(
                "the path is not a folder under an import root",
                "Use an absolute path under a folder that the service was started with as --import-root.",
            )
        })?;
        if self.own.overlaps(&real) { Err(own_folder()) } else { Ok(real) }
    }

    fn is_allowed(&self, real: &Path) -> bool {
        self.is_under_root(real) && !self.own.overlaps(real)
    }

    #[expect(clippy::disallowed_methods, reason = "import roots are the operator's; runs cannot write there")]
    fn is_under_root(&self, real: &Path) -> bool {
        let roots = self.import_roots.iter().filter_map(|root| root.canonicalize().ok());
        roots.into_iter().any(|root| real.starts_with(root))
    }

    /// Creates `run`'s workspace from `source` in a staging folder, and renames it into place at the end. `rules` are the run's
    /// policy: a hard link must not reveal what another name of the same file hides. The run counts as unfinished until it is
    /// [confirmed](Self::confirm).
    ///
    /// # Errors
    ///
    /// See [`ImportError`].
    pub fn import(
        &self,
        run: &RunId,
        source: ImportSource<'_>,
        rules: &Rules,
        watch: &dyn ImportObserver,
    ) -> Result<ImportedRun, ImportError> {
        if rustix::fs::statat(&self.dir, run.as_str(), rustix::fs::AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Err(exists(run).into());
        }
        let mut staging = Staging::new(self)?;
        let done = self.fill(&staging, source, rules, watch)?;
        if watch.cancelled() {
            return Err(ImportError::Cancelled);
        }
        fsync_tree::sync(&staging.dir, done.entries)?;
        match rustix::fs::renameat_with(&self.dir, &*staging.name, &self.dir, run.as_str(), RenameFlags::NOREPLACE) {
            Ok(()) => staging.kept = true,
            Err(Errno::EXIST | Errno::NOTEMPTY) => return Err(exists(run).into()),
            Err(errno) => return Err(errno.into()),
        }
        rustix::fs::fsync(&self.dir)?;
        if let Some((origin, commit)) = &done.reusable {
            self.base_index.add(*origin, commit, run);
        }
        watch.progress("done", done.files, done.bytes);
        let Done {
            base_commit,
            manifest_sha256,
            files,
            bytes,
            skipped: SkippedReport { entries: left_out, more, .. },
            untracked,
            ..
        } = done;
        let workspace = self.get(run)?;
        let left_out_more = more;
        Ok(ImportedRun { workspace, base_commit, manifest_sha256, files, bytes, left_out, left_out_more, untracked })
    }

    /// Opens `run`'s workspace.
    ///
    /// # Errors
    ///
    /// If it does not exist or cannot be used.
    pub fn get(&self, run: &RunId) -> io::Result<Arc<Workspace>> {
        let dir = open_dir(&self.dir, run.as_str())?;
        let base = self.base_in(dir.as_fd(), run)?;
        Ok(Arc::new(Workspace::open(&dir, Arc::new(base))?))
    }

    /// Opens the base of `run`, whether or not its tree still exists.
    ///
    /// # Errors
    ///
    /// If it does not exist ([`io::ErrorKind::NotFound`], with the missing part) or cannot be used.
    pub fn base(&self, run: &RunId) -> io::Result<Arc<Base>> {
        let dir = open_dir(&self.dir, run.as_str()).map_err(|errno| match errno {
            Errno::NOENT => io::Error::new(io::ErrorKind::NotFound, "the run's folder is missing"),
            errno => errno.into(),
        })?;
        let base = self.base_in(dir.as_fd(), run)?;
        base::has_blobs(dir.as_fd())?;
        Ok(Arc::new(base))
    }

    fn base_in(&self, dir: BorrowedFd<'_>, run: &RunId) -> io::Result<Base> {
        Base::open(dir, &self.path.join(run.as_str()), &self.home, self.base_lru.clone())
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
        self.base_index.remove(run);
        self.notes.remove(run);
        // From here on the run is removed. If its files cannot be removed now, a sweep does it.
        rustix::fs::fsync(&self.dir)?;
        remove::tree(self.dir.as_fd(), trash.as_bytes())
    }
}

impl Workspaces {
    fn data_dir(&self) -> &Path {
        &self.own.paths[0]
    }

    fn own_name(&self, prefix: &str) -> String {
        fresh_name(&format!("{prefix}{}-", self.tag))
    }
}

/// The source overlaps one of the service's own folders.
fn own_folder() -> Refusal {
    Refusal::invalid(
        "the path is inside the service's own data folder, or contains it",
        "Use another folder, or start the service with a `--data-dir` outside of this one: a run must not see the database, \
         the keys or the files of other runs.",
    )
}

fn exists(run: &RunId) -> Refusal {
    Refusal::new(Code::AlreadyExists, format!("run `{run}` already exists"), "Choose another runId, or omit it.")
}
