//! Runs' folders: made from a source all at once or not at all, opened, removed.

mod archive;
mod bare;
mod directory;
mod git;
mod leftover;
mod linked;
mod remove;
mod settle;
mod sink;
#[cfg(test)]
mod tests;
mod tracked;

use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use model::{Code, Refusal, Rules, RunId, SkippedEntry};
use rustix::fs::{Mode, OFlags, RenameFlags};
use rustix::io::Errno;

use crate::base::manifest::{self, Head};
use crate::base::{self, Base, GIT_NAME, MANIFEST_NAME, Shelf};
use crate::git::{ConfineGit, Git, GitHome, make_home};
use crate::{Workspace, guard};

pub(crate) use bare::{make as make_bare, write_quoted};
pub(crate) use git::FETCHED;
pub use leftover::RunFolder;
pub(crate) use remove::{all_in as remove_all_in, tree as remove_tree};
pub(crate) use sink::stays_inside;
pub(crate) use tracked::{folder_rules, is_folder_ignored};

use directory::FolderId;
use sink::{ImportWriter, LeftOutReport};

/// How the name of a folder in the making begins; no run has such a name.
const STAGING: &str = ".import-";
/// How the name of a folder that is going begins.
const TRASH: &str = ".trash-";
/// The folder that stands for git's home.
const GIT_HOME: &str = ".git-home";
/// The folders of a run.
const FOLDERS: [&str; 4] = ["repo", "tmp", "artifacts", "tool-cache"];

/// The folder that holds every run's workspace.
pub struct Workspaces {
    dir: OwnedFd,
    path: PathBuf,
    home: Arc<GitHome>,
    /// In the names of this process's own folders, which no sweep of its own takes.
    tag: String,
    import_roots: Vec<PathBuf>,
    /// The service's own folders, of which nothing comes into a run: the database and the key lie in them.
    own: Own,
    limits: ImportLimits,
    shelf: Arc<Shelf>,
}

/// What an import may hold.
#[derive(Clone, Copy, Debug)]
pub struct ImportLimits {
    /// Files, folders and links, those that are left out too.
    pub max_entries: u64,
    /// Bytes of their paths, which are held in memory while they come in.
    pub max_name_bytes: u64,
    /// Bytes of all files; also of what a git source sends.
    pub max_bytes: u64,
    /// Names in a path.
    pub max_depth: usize,
    /// How many times its own size an archive may become, beyond its first 64 MiB.
    pub max_ratio: u64,
}

/// Folders by their place, and by which they are whatever place they are reached by.
struct Own {
    places: [PathBuf; 2],
    folders: [FolderId; 2],
}

impl Own {
    /// Whether `real` lies in one of them, or one of them in it.
    fn meets(&self, real: &Path) -> bool {
        self.places.iter().any(|own| own.starts_with(real) || real.starts_with(own))
    }
}

impl Default for ImportLimits {
    fn default() -> Self {
        Self { max_entries: 1_000_000, max_name_bytes: 64 << 20, max_bytes: 16 << 30, max_depth: 128, max_ratio: 200 }
    }
}

impl fmt::Debug for Workspaces {
    // Not where it is: no physical path in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workspaces").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// Where a run's tree comes from. Paths were checked against the import roots by [`Workspaces::allow`].
pub enum ImportSource<'a> {
    /// Nothing.
    Empty,
    /// A repository by `https`.
    GitRemote {
        /// The address.
        url: String,
        /// Branch, tag or commit; HEAD where missing.
        reference: Option<String>,
    },
    /// A repository on this machine.
    GitLocal {
        /// Its folder.
        path: PathBuf,
        /// Branch, tag or commit; HEAD where missing.
        reference: Option<String>,
    },
    /// A folder on this machine.
    Directory(PathBuf),
    /// A tar or tar.gz.
    Archive(&'a mut dyn Read),
}

/// Told of an import's progress, and asked whether to go on.
pub trait ImportObserver: Sync {
    /// So many files and bytes are in; `stage` is `fetching`, `writing` or `committing`.
    fn progress(&self, stage: &'static str, files: u64, bytes: u64);

    /// Whether to stop.
    fn cancelled(&self) -> bool;

    /// Asked before the tree holds so many files and bytes; folders and links are among the files, with 4 KiB each.
    ///
    /// # Errors
    ///
    /// The refusal of the whole import, where that is more than it may.
    fn check_quota(&self, _files: u64, _bytes: u64) -> Result<(), Refusal> {
        Ok(())
    }
}

/// What came in.
#[derive(Debug)]
pub struct ImportedRun {
    /// The workspace, ready.
    pub workspace: Arc<Workspace>,
    /// The base commit.
    pub base_commit: String,
    /// Files.
    pub files: u64,
    /// Bytes.
    pub bytes: u64,
    /// What was left out: at most 1,000 entries, and 64 KiB of their paths and reasons.
    pub left_out: Vec<SkippedEntry>,
    /// How many more were left out.
    pub left_out_more: u64,
}

/// Why an import failed; nothing of it is left.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The source is bad: the orchestrator can act on it.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The disk failed.
    #[error("the file system failed")]
    Io(#[from] io::Error),
    /// The orchestrator went away.
    #[error("the import was cancelled")]
    Cancelled,
}

impl Workspaces {
    /// Opens `data_dir/workspaces`, makes it where it is missing, and checks that the guard holds on this kernel and
    /// file system: an escape is refused, a link is refused, no-replace works.
    ///
    /// # Errors
    ///
    /// Where the folder cannot be used or a check fails.
    #[expect(clippy::disallowed_methods, reason = "the service's own folder, which nobody else may write to")]
    pub fn open(data_dir: &Path, import_roots: &[PathBuf]) -> io::Result<Self> {
        let path = data_dir.join("workspaces");
        std::fs::create_dir_all(data_dir)?;
        match rustix::fs::mkdir(&path, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
        // Git runs elsewhere, so that a relative path would not lead here.
        let path = path.canonicalize()?;
        let dir = guard::open_ambient_folder(&path)?;
        let data_dir = data_dir.canonicalize()?;
        let folders = [directory::identity(&guard::open_ambient_folder(&data_dir)?)?, directory::identity(&dir)?];
        guard::self_test(dir.as_fd())?;
        let home = path.join(GIT_HOME);
        make_home(&home)?;
        Ok(Self {
            dir,
            home: Arc::new(GitHome { path: home, ..GitHome::default() }),
            tag: fresh_name(""),
            import_roots: import_roots.to_vec(),
            own: Own { places: [data_dir, path.clone()], folders },
            path,
            limits: ImportLimits::default(),
            shelf: Arc::default(),
        })
    }

    /// The same, with other limits of imports.
    #[must_use]
    pub fn with_limits(self, limits: ImportLimits) -> Self {
        Self { limits, ..self }
    }

    /// The same, with hosts that git sources may name although their addresses are not public, and with `confine` to
    /// bound what each call of git may reach.
    #[must_use]
    pub fn with_git(self, allowed_hosts: Vec<String>, confine: Option<Arc<dyn ConfineGit>>) -> Self {
        let home = GitHome { path: self.home.path.clone(), allowed_hosts, confine };
        Self { home: Arc::new(home), ..self }
    }

    /// The real place of `raw` if it lies under an import root and apart from the service's own folder.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`, the same whether the place does not exist or is not allowed.
    #[expect(clippy::disallowed_methods, reason = "import roots are the operator's; runs cannot write there")]
    pub fn allow(&self, raw: &str) -> Result<PathBuf, Refusal> {
        let path = Path::new(raw);
        let real = path.is_absolute().then(|| path.canonicalize().ok()).flatten();
        let real = real.filter(|real| self.is_under_root(real)).ok_or_else(|| {
            Refusal::invalid(
                "the path is no folder under an import root",
                "Name an absolute path under a folder that the service was started with as --import-root.",
            )
        })?;
        if self.own.meets(&real) { Err(own_folder()) } else { Ok(real) }
    }

    fn is_allowed(&self, real: &Path) -> bool {
        self.is_under_root(real) && !self.own.meets(real)
    }

    #[expect(clippy::disallowed_methods, reason = "import roots are the operator's; runs cannot write there")]
    fn is_under_root(&self, real: &Path) -> bool {
        let roots = self.import_roots.iter().filter_map(|root| root.canonicalize().ok());
        roots.into_iter().any(|root| real.starts_with(root))
    }

    /// Makes `run`'s workspace from `source` in a staging folder and renames it into place at the end. `rules` are the
    /// run's: they say what a name hides, which no other name of the same file may show. The folder counts as
    /// unfinished until it is [confirmed](Self::confirm).
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
        settle::sync(&staging.dir, done.entries)?;
        match rustix::fs::renameat_with(&self.dir, &*staging.name, &self.dir, run.as_str(), RenameFlags::NOREPLACE) {
            Ok(()) => staging.kept = true,
            Err(Errno::EXIST | Errno::NOTEMPTY) => return Err(exists(run).into()),
            Err(errno) => return Err(ImportError::Io(errno.into())),
        }
        rustix::fs::fsync(&self.dir).map_err(io::Error::from)?;
        watch.progress("done", done.files, done.bytes);
        let Done { base_commit, files, bytes, left_out: LeftOutReport { entries: left_out, more, .. }, .. } = done;
        Ok(ImportedRun { workspace: self.get(run)?, base_commit, files, bytes, left_out, left_out_more: more })
    }

    fn fill(
        &self,
        staging: &Staging<'_>,
        source: ImportSource<'_>,
        rules: &Rules,
        watch: &dyn ImportObserver,
    ) -> Result<Done, ImportError> {
        for folder in FOLDERS {
            rustix::fs::mkdirat(&staging.dir, folder, Mode::RWXU).map_err(io::Error::from)?;
        }
        leftover::mark(&staging.dir)?;
        let git_dir = self.path.join(&staging.name).join(GIT_NAME);
        bare::make(&git_dir)?;
        let git = Git::new(git_dir, &self.home);
        let repo = open_folder(&staging.dir, "repo")?;
        let mut sink = ImportWriter::new(repo.try_clone()?, self.limits, watch);
        let commit = self.copy(&git, source, watch, &mut sink)?;
        linked::leave_out(&mut sink, repo.as_fd(), rules)?;
        let folders = sink.folders()?;
        let (mut rows, left_out) = sink.into_rows();
        let entries = rows.len() + folders.len();
        // The sink counts what it has written, against its bounds; told is what there is.
        let files = rows.len() as u64;
        let bytes = rows.iter().filter(|row| row.mode != manifest::MODE_LINK).map(|row| row.stamp.size).sum();
        let ignores = tracked::ignore_files(repo.as_fd(), &rows)?;
        let base_commit = if let Some(commit) = commit {
            commit
        } else {
            watch.progress("committing", files, bytes);
            tracked::retain_tracked(&mut rows, &ignores);
            bare::commit(&git, repo.as_fd(), &rows, watch)?
        };
        let head = Head { commit: base_commit.clone(), ignores };
        write_manifest(&staging.dir, &manifest::write(&head, rows, folders))?;
        Ok(Done { base_commit, files, bytes, left_out, entries })
    }

    /// Copies the source's tree, and says which commit it is where the source knows.
    fn copy(
        &self,
        git: &Git,
        source: ImportSource<'_>,
        watch: &dyn ImportObserver,
        sink: &mut ImportWriter<'_>,
    ) -> Result<Option<String>, ImportError> {
        let (origin, reference) = match source {
            ImportSource::Empty => return Ok(None),
            ImportSource::Directory(path) => {
                return directory::copy(&path, &self.own.folders, self.limits, sink).map(|()| None);
            }
            ImportSource::Archive(archive) => return archive::copy(archive, self.limits, sink).map(|()| None),
            ImportSource::GitRemote { url, reference } => (git::Origin::Remote(url), reference),
            ImportSource::GitLocal { path, reference } => {
                let git_dir = git::find(&path, &|real| self.is_allowed(real))?;
                (git::Origin::Local { path: git_dir, reads: self.import_roots.clone() }, reference)
            }
        };
        git::copy(git, &origin, reference.as_deref(), self.limits, watch, sink).map(Some)
    }

    /// Opens `run`'s workspace.
    ///
    /// # Errors
    ///
    /// Where it is not there or cannot be used.
    pub fn get(&self, run: &RunId) -> io::Result<Arc<Workspace>> {
        let dir = open_folder(&self.dir, run.as_str())?;
        let base = self.base_in(dir.as_fd(), run)?;
        Ok(Arc::new(Workspace::open(&dir, Arc::new(base))?))
    }

    /// Opens what `run` started from, whether or not its tree is still there.
    ///
    /// # Errors
    ///
    /// Where it is not there ([`io::ErrorKind::NotFound`], which says what is gone) or cannot be used.
    pub fn base(&self, run: &RunId) -> io::Result<Arc<Base>> {
        let dir = open_folder(&self.dir, run.as_str()).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => io::Error::new(error.kind(), "the run's folder is gone"),
            _ => error,
        })?;
        let base = self.base_in(dir.as_fd(), run)?;
        base::has_blobs(dir.as_fd())?;
        Ok(Arc::new(base))
    }

    fn base_in(&self, dir: BorrowedFd<'_>, run: &RunId) -> io::Result<Base> {
        Base::open(dir, &self.path.join(run.as_str()), &self.home, self.shelf.clone())
    }

    /// Removes `run`'s workspace; one that is not there is no error.
    ///
    /// # Errors
    ///
    /// Where the disk fails.
    pub fn remove(&self, run: &RunId) -> io::Result<()> {
        let trash = self.own_name(TRASH);
        match rustix::fs::renameat(&self.dir, run.as_str(), &self.dir, &*trash) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(errno.into()),
        }
        // From here on the run is gone, whatever becomes of its files: a sweep finds what is left of them.
        rustix::fs::fsync(&self.dir)?;
        remove::tree(self.dir.as_fd(), trash.as_bytes())
    }
}

impl Workspaces {
    fn data_dir(&self) -> &Path {
        &self.own.places[0]
    }

    fn own_name(&self, prefix: &str) -> String {
        fresh_name(&format!("{prefix}{}-", self.tag))
    }
}

/// The source is the service's own folder, or has to do with it.
fn own_folder() -> Refusal {
    Refusal::invalid(
        "the path lies in the folder that the service keeps its own data in, or holds that folder",
        "Name a folder beside it: no run may see the database, the keys or the files of other runs.",
    )
}

/// What an import came to.
struct Done {
    base_commit: String,
    files: u64,
    bytes: u64,
    left_out: LeftOutReport,
    /// Files and folders.
    entries: usize,
}

/// A folder in the making. What is dropped before it is kept is removed.
struct Staging<'a> {
    workspaces: &'a Workspaces,
    name: String,
    dir: OwnedFd,
    kept: bool,
}

impl<'a> Staging<'a> {
    fn new(workspaces: &'a Workspaces) -> io::Result<Self> {
        let name = workspaces.own_name(STAGING);
        rustix::fs::mkdirat(&workspaces.dir, &*name, Mode::RWXU)?;
        let dir = open_folder(&workspaces.dir, &name)?;
        Ok(Self { workspaces, name, dir, kept: false })
    }
}

impl Drop for Staging<'_> {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        if let Err(error) = remove::tree(self.workspaces.dir.as_fd(), self.name.as_bytes()) {
            // The next start sweeps it.
            tracing::warn!(%error, "what a failed import left could not be removed");
        }
    }
}

fn write_manifest(dir: &OwnedFd, bytes: &[u8]) -> io::Result<()> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let fd = rustix::fs::openat(dir, MANIFEST_NAME, flags, Mode::RUSR | Mode::WUSR)?;
    std::fs::File::from(fd).write_all(bytes)
}

/// Opens the folder `name` of `dir`, which is one of the service's own.
pub(crate) fn open_folder(dir: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(dir, name, flags, Mode::empty())?)
}

/// A name that nobody else has.
pub(crate) fn fresh_name(prefix: &str) -> String {
    use std::hash::{BuildHasher as _, RandomState};
    use std::sync::atomic::{AtomicU64, Ordering};

    static COUNT: AtomicU64 = AtomicU64::new(0);
    // Random keys of the process's own hash maps; names need to differ, not to be secret.
    let random = RandomState::new().hash_one(COUNT.fetch_add(1, Ordering::Relaxed));
    format!("{prefix}{random:016x}")
}

fn exists(run: &RunId) -> Refusal {
    Refusal::new(Code::AlreadyExists, format!("run `{run}` exists already"), "Choose another runId, or none.")
}
