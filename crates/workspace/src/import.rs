//! Making the base of a new run from a source.

mod archive;
mod directory;
mod fill;
mod git;
mod hard_links;
mod layer;
mod quota;
#[cfg(test)]
mod tests;
mod tracked;
mod writer;

use std::io::{self, Read};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};

use model::Refusal;

pub(crate) use fill::describe;
pub use git::{GitCredential, GitToken};
pub use layer::{LayerBase, LayerChange, LayerEntry, LayerLimits, LayerReader, measure_layer};

use hard_links::FileId;

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

/// Imports from the sources that the operator permits.
pub(crate) struct Importer {
    /// Folders of this machine that may be imported, with everything in them.
    pub(crate) roots: Vec<PathBuf>,
    pub(crate) limits: ImportLimits,
    pub(crate) credentials: Vec<GitCredential>,
    own: OwnFolders,
}

/// The service's own folders, which are never imported: they contain the database and the key.
pub(crate) struct OwnFolders {
    paths: [PathBuf; 2],
    /// Their identities, which do not depend on the path or mount that leads to them.
    ids: [FileId; 2],
}

impl OwnFolders {
    /// Takes the data folder and that of all runs, each with its handle.
    pub(crate) fn new([(data, data_dir), (runs, runs_dir)]: [(PathBuf, BorrowedFd<'_>); 2]) -> io::Result<Self> {
        Ok(Self { paths: [data, runs], ids: [directory::identity(data_dir)?, directory::identity(runs_dir)?] })
    }

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

/// The source of a run's tree. Paths were checked against the import roots by [`Workspaces::allow`](crate::Workspaces::allow).
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
    /// A tar, tar.gz or tar.zst archive.
    Archive(&'a mut dyn Read),
}

/// Observes an import, and can stop it.
pub trait ImportObserver: Sync {
    /// Called with the number of files and bytes so far. `stage` is `fetching`, `writing`, `committing` or `done`.
    fn progress(&self, stage: &'static str, files: u64, bytes: u64);

    /// Whether to stop.
    fn cancelled(&self) -> bool;

    /// Called before the tree grows to this many files and bytes. A link counts as a file, a folder does not; each takes
    /// 4 KiB.
    ///
    /// # Errors
    ///
    /// The refusal of the import, if that is beyond a quota.
    fn check_quota(&self, _files: u64, _bytes: u64) -> Result<(), Refusal> {
        Ok(())
    }
}

impl Importer {
    pub(crate) fn new(own: OwnFolders) -> Self {
        let (roots, credentials) = (Vec::new(), Vec::new());
        Self { roots, limits: ImportLimits::default(), credentials, own }
    }

    /// Returns the credential `name`, if it is for `url`.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`, the same whether it does not exist or is for other repositories.
    pub(crate) fn credential(&self, name: &str, url: &str) -> Result<&GitCredential, Refusal> {
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
    pub(crate) fn allow(&self, raw: &str) -> Result<PathBuf, Refusal> {
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
        let roots = self.roots.iter().filter_map(|root| root.canonicalize().ok());
        roots.into_iter().any(|root| real.starts_with(root))
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
