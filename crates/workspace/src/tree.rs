//! The trees that tools access: a run's own tree, and its read-only mounts.

mod folder;
#[cfg(test)]
mod races;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use model::{Access, FileState, LogicalPath, PathRejected, Refusal, Rules, ScannedContent, Verdict, judge_call_bytes};
use rustix::fs::{FileType, OFlags};

use crate::apply::KeptFiles;
use crate::base::{Base, missing_part};
use crate::dir;
use crate::error::{file_too_large, not_a_directory, not_a_file, unsupported_binary};
use crate::guard::{self, Blocking, GuardError, IsRemoved, Opened, Root};
use crate::ignored::{Baseline, Ignored, Scope};
use crate::read::hash_cache;
use crate::stamp::FileStamp;
use crate::{WorkspaceError, read};

/// A tree that can be read: a run's `repo/`, or a mount.
#[derive(Debug)]
pub struct Tree {
    pub(crate) root: Arc<Root>,
    /// `None` for a mount, where nothing is ignored.
    pub(crate) ignored: Option<Ignored>,
}

/// A run's own tree, with its base and its folder for temporary files.
#[derive(Debug)]
pub struct Workspace {
    /// `workspaces/{run}/tmp`, on the same file system as the tree.
    tmp: Arc<OwnedFd>,
    /// The files in `tmp` that exports need.
    kept: Arc<KeptFiles>,
    tree: Tree,
    base: Arc<Base>,
}

/// What a mutation finds at a path that the guard and the policy admitted.
#[derive(Debug)]
pub struct Target {
    /// The path.
    pub path: LogicalPath,
    /// The existing file with its bytes; `None` if there is none.
    pub before: Option<(FileState, Vec<u8>)>,
    /// What policy needs to know about a text that is too large to hold in memory. `before` then has one NUL byte instead of
    /// its bytes.
    pub scanned: Option<ScannedContent>,
    /// The version of the file that was read; `None` if there is no file, or its version is not known.
    pub stamp: Option<FileStamp>,
    /// Whether git ignores the file and does not track it. Only determined if policy requires approval for such files.
    pub ignored: bool,
    /// The refusal for a call that needs an existing file here. Set if something is at the path that a file may replace,
    /// such as an empty folder.
    pub not_a_file: Option<Refusal>,
}

/// A file that a mutation finds: its state, its bytes, its version, and the scan of a text that is too large to hold.
type FoundFile = (FileState, Vec<u8>, Option<FileStamp>, Option<ScannedContent>);

/// What exists at a path.
pub(crate) enum Existing<F> {
    File(F),
    Nothing,
    /// Not a file, but something that a file may replace. The refusal is for calls that need a file.
    EmptyDir(Refusal),
}

type Find<'a> = &'a dyn Fn(&LogicalPath) -> Result<Existing<FoundFile>, WorkspaceError>;

impl Tree {
    /// Opens the folder at the physical `path` as a mount. Everything in it counts as tracked, nothing as ignored.
    ///
    /// # Errors
    ///
    /// If it is not a folder or cannot be opened.
    pub fn open_mount(path: &Path) -> io::Result<Self> {
        Ok(Self { root: Arc::new(Root::of_mount(guard::open_ambient_folder(path)?)), ignored: None })
    }

    /// Returns the tree of a run with the root `dir`.
    pub(crate) fn of_run(dir: OwnedFd, baseline: Arc<dyn Baseline>) -> Self {
        Self { root: Arc::new(Root::of_run(dir)), ignored: Some(Ignored::new(baseline)) }
    }

    /// Whether the run has written the file at `path`.
    pub(crate) fn has_written(&self, path: &[u8]) -> bool {
        let path = std::str::from_utf8(path).ok().and_then(|path| LogicalPath::parse(path).ok());
        path.zip(self.ignored.as_ref()).is_some_and(|(path, ignored)| ignored.has_written(&path))
    }

    /// Returns the ignore rules in force in `folder`.
    pub(crate) fn scope_of(&self, folder: &LogicalPath) -> io::Result<Scope> {
        match &self.ignored {
            Some(ignored) => ignored.scope_of(&self.root, folder, Blocking::Allowed),
            None => Ok(Scope::default()),
        }
    }

    /// Whether git ignores the entry at `path`, in a folder with the rules `scope`, and does not track it.
    pub(crate) fn hides(&self, scope: &Scope, path: &[u8], is_folder: bool) -> io::Result<bool> {
        self.ignored.as_ref().map_or(Ok(false), |ignored| ignored.hides(scope, path, is_folder))
    }

    fn target(
        &self,
        rules: &Rules,
        path: &LogicalPath,
        is_removed: IsRemoved<'_>,
    ) -> Result<Existing<FoundFile>, WorkspaceError> {
        let found = match self.root.open_unlinked(path) {
            Err(error @ (GuardError::Rejected(_) | GuardError::Io(_))) => {
                return Err(self.with_target(rules, path, error));
            }
            found => found,
        };
        let by_name = rules.kind_of_path(path);
        self.judge(rules, Access::Mutate, path, found.as_ref().ok(), by_name, Blocking::Allowed)?;
        if let Some(refusal) = self.replaceable(path, &found, is_removed)? {
            return Ok(Existing::EmptyDir(refusal));
        }
        let opened = match found {
            Ok(opened) => opened,
            Err(GuardError::Missing) => return Ok(Existing::Nothing),
            Err(error) => return Err(error.at(path)),
        };
        if opened.file_type() != FileType::RegularFile {
            return Err(not_a_file(path).into());
        }
        let max_bytes = rules.policy().max_file_bytes;
        if opened.size() > max_bytes {
            return Err(file_too_large(path, max_bytes, opened.size()).into());
        }
        let (bytes, stamp) = read::read_whole(&opened, max_bytes, Blocking::Allowed)?;
        if bytes.len() as u64 > max_bytes {
            return Err(file_too_large(path, max_bytes, bytes.len() as u64).into());
        }
        let kind = read::kind_of(rules, path, &bytes);
        if kind != by_name {
            self.judge(rules, Access::Mutate, path, Some(&opened), kind, Blocking::Allowed)?;
        }
        if read::is_binary(kind, &bytes) {
            return Err(unsupported_binary(path).into());
        }
        let (size_bytes, mode) = (bytes.len() as u64, opened.stat.st_mode & 0o7777);
        // An agent reads a file before it changes it.
        let sha256 = hash_cache::hash(&bytes, stamp);
        Ok(Existing::File((FileState { sha256, size_bytes, mode, kind }, bytes, stamp.map(|stamp| stamp.stamp), None)))
    }

    /// Converts the error for a caller that named `path`. If mutations do not follow a symbolic link, it names the target.
    pub(crate) fn with_target(&self, rules: &Rules, path: &LogicalPath, error: GuardError) -> WorkspaceError {
        let is_link = matches!(error, GuardError::Rejected(PathRejected::LinkInMutation));
        let target = if is_link { self.link_target(rules, path) } else { Ok(None) };
        match (error.at(path), target) {
            (WorkspaceError::Refused(refusal), Ok(Some(target))) => {
                Refusal { hint: format!("It leads to `{target}`: change that path."), ..refusal }.into()
            }
            (error, Ok(_)) => error,
            (_, Err(failed)) => failed,
        }
    }

    /// Whether a file may replace what was `found` at `path`, once the removed files are gone. If so, returns the refusal for
    /// calls that need an existing file.
    pub(crate) fn replaceable(
        &self,
        path: &LogicalPath,
        found: &Result<Opened, GuardError>,
        is_removed: IsRemoved<'_>,
    ) -> io::Result<Option<Refusal>> {
        let refusal: fn(&LogicalPath) -> Refusal = match found {
            Ok(opened) if opened.file_type() == FileType::Directory => not_a_file,
            Err(GuardError::NotADirectory) => not_a_directory,
            Ok(_) | Err(_) => return Ok(None),
        };
        Ok(self.root.is_free(path, is_removed)?.then(|| refusal(path)))
    }
}

impl Workspace {
    /// Opens a run's folder, which contains `repo/` and `tmp/`.
    pub(crate) fn open(dir: &OwnedFd, base: Arc<Base>) -> io::Result<Self> {
        let folder = |name: &str| {
            let opened = dir::open_under(dir, name, OFlags::DIRECTORY);
            opened.map_err(|errno| missing_part(errno, name))
        };
        let (repo, tmp) = (folder("repo")?, folder("tmp")?);
        Ok(Self { tmp: Arc::new(tmp), kept: Arc::default(), tree: Tree::of_run(repo, base.clone()), base })
    }

    /// Returns the folder for temporary files.
    pub(crate) fn tmp(&self) -> &Arc<OwnedFd> {
        &self.tmp
    }

    /// Returns the files in `tmp/` that exports need.
    pub(crate) fn kept(&self) -> &Arc<KeptFiles> {
        &self.kept
    }

    /// Adds paths that the run has written. They are visible and readable even if the ignore rules exclude them.
    pub fn add_written(&self, paths: &[LogicalPath]) {
        if let Some(ignored) = &self.tree.ignored {
            ignored.add_written(paths);
        }
    }

    /// Whether git ignores the file at `path`, and neither the base nor the run has it.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn is_ignored(&self, path: &LogicalPath) -> io::Result<bool> {
        self.tree.is_ignored(path, None, Blocking::Allowed)
    }

    /// Returns what the run started from.
    pub fn base(&self) -> &Arc<Base> {
        &self.base
    }

    /// Returns the run's tree.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// Returns the commit that the run started from.
    pub fn base_commit(&self) -> &str {
        self.base.commit()
    }

    /// Reads every path that a mutation wants to change, in the order of `paths`: guard (symbolic links are refused), policy,
    /// existence, type, then the bytes. Files in `removed` are removed by the same change: they block no other file, nor do
    /// folders that contain nothing else. The caller makes sure that they are removed.
    ///
    /// # Errors
    ///
    /// The first refusal in the order of precedence, over all paths: `PATH_REJECTED`, `POLICY_DENIED_SECRET`, `POLICY_DENIED`,
    /// `NOT_A_FILE`, `FILE_TOO_LARGE`, `UNSUPPORTED_BINARY`, and `PATCH_BUDGET_EXCEEDED` if the files together are larger than
    /// a call may hold in memory. A missing file is no error.
    pub fn targets(
        &self,
        rules: &Rules,
        paths: &[LogicalPath],
        removed: &BTreeSet<LogicalPath>,
    ) -> Result<Vec<Target>, WorkspaceError> {
        self.find_targets(rules, paths, &|path| self.tree.target(rules, path, &|path| removed.contains(path)))
    }

    /// As [`targets`](Self::targets), for files of any kind and size. If a file is larger than `max_bytes`, [`Target::before`]
    /// has one NUL byte instead of its bytes, which makes any diff a binary one, and [`Target::scanned`] has what policy needs
    /// to know of a text.
    ///
    /// # Errors
    ///
    /// As for [`targets`](Self::targets), except `FILE_TOO_LARGE` and `UNSUPPORTED_BINARY`.
    pub fn targets_of_any_kind(
        &self,
        rules: &Rules,
        paths: &[LogicalPath],
        removed: &BTreeSet<LogicalPath>,
        max_bytes: u64,
    ) -> Result<Vec<Target>, WorkspaceError> {
        self.find_any_kind(rules, paths, removed, u64::MAX, max_bytes)
    }

    /// As [`targets_of_any_kind`](Self::targets_of_any_kind), for a mutation that neither shows nor changes content. Texts and
    /// binary files may be as large as a transfer; those of more than `maxFileBytes` are not read.
    ///
    /// # Errors
    ///
    /// As for [`targets`](Self::targets), except `UNSUPPORTED_BINARY`.
    pub fn movable_targets(
        &self,
        rules: &Rules,
        paths: &[LogicalPath],
        removed: &BTreeSet<LogicalPath>,
    ) -> Result<Vec<Target>, WorkspaceError> {
        let policy = rules.policy();
        self.find_any_kind(rules, paths, removed, policy.max_transfer_bytes, policy.max_file_bytes)
    }

    fn find_any_kind(
        &self,
        rules: &Rules,
        paths: &[LogicalPath],
        removed: &BTreeSet<LogicalPath>,
        max_transfer_bytes: u64,
        max_bytes: u64,
    ) -> Result<Vec<Target>, WorkspaceError> {
        self.find_targets(rules, paths, &|path| {
            Ok(match self.transfer_target(rules, path, &|path| removed.contains(path), max_transfer_bytes)? {
                Existing::Nothing => Existing::Nothing,
                Existing::EmptyDir(refusal) => Existing::EmptyDir(refusal),
                Existing::File(transfer) => {
                    let stamp = transfer.stamp();
                    let (bytes, scanned) = match transfer.read_all(max_bytes)? {
                        Some(bytes) => (bytes, None),
                        None => (vec![0], transfer.scan_text()?),
                    };
                    Existing::File((transfer.state, bytes, Some(stamp), scanned))
                }
            })
        })
    }

    fn find_targets(
        &self,
        rules: &Rules,
        paths: &[LogicalPath],
        find: Find<'_>,
    ) -> Result<Vec<Target>, WorkspaceError> {
        let asks_for_ignored = rules.policy().ignored_files == Verdict::RequireApproval;
        let mut targets = Vec::with_capacity(paths.len());
        let mut refusal: Option<Refusal> = None;
        let mut held_bytes = 0_u64;
        let mut first = |next: Refusal| {
            refusal = Some(match refusal.take() {
                None => next,
                Some(refusal) => refusal.first(next),
            });
        };
        for path in paths {
            match find(path) {
                Ok(found) => {
                    let ignored = asks_for_ignored && self.tree.is_ignored(path, None, Blocking::Allowed)?;
                    let path = path.clone();
                    let mut target =
                        Target { path, before: None, scanned: None, stamp: None, ignored, not_a_file: None };
                    match found {
                        Existing::File((state, bytes, stamp, scanned)) => {
                            held_bytes += bytes.len() as u64;
                            // The other paths are still judged, since their refusal may take precedence, but no bytes are kept.
                            match judge_call_bytes(rules, held_bytes) {
                                Some(too_many) => first(too_many),
                                None => {
                                    (target.before, target.stamp, target.scanned) =
                                        (Some((state, bytes)), stamp, scanned);
                                }
                            }
                        }
                        Existing::Nothing => {}
                        Existing::EmptyDir(refusal) => target.not_a_file = Some(refusal),
                    }
                    targets.push(target);
                }
                Err(WorkspaceError::Refused(next)) => first(next),
                Err(error @ (WorkspaceError::Io(_) | WorkspaceError::Cancelled)) => return Err(error),
            }
        }
        refusal.map_or(Ok(targets), |refusal| Err(refusal.into()))
    }
}
