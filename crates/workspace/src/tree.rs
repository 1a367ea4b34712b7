//! The trees that tools see: a run's own, and its read-only mounts.

#[cfg(test)]
mod races;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use model::{Access, Code, FileState, LogicalPath, Refusal, Rules, ScannedContent, Sha256, Verdict, judge_call_bytes};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};

use crate::base::manifest::Stamp;
use crate::base::{Base, gone};
use crate::error::{file_too_large, not_a_directory, not_a_file, unsupported_binary};
use crate::guard::{self, Blocking, Goes, GuardError, Opened, Root};
use crate::ignored::{Baseline, Ignored};
use crate::{WorkspaceError, read};

/// A tree that can be read: `repo/` of a run, or a mount.
#[derive(Debug)]
pub struct Tree {
    pub(crate) root: Arc<Root>,
    /// `None` for a mount, in which nothing is ignored.
    pub(crate) ignored: Option<Ignored>,
}

/// A run's own tree, with its base and its place for temporary files.
#[derive(Debug)]
pub struct Workspace {
    /// `workspaces/{run}/tmp`, on the same file system as the tree.
    tmp: Arc<OwnedFd>,
    tree: Tree,
    base: Arc<Base>,
}

/// What a mutation finds at a path, after the guard and the path's judgement.
#[derive(Debug)]
pub struct Target {
    /// The path.
    pub path: LogicalPath,
    /// The file that is there; `None` where nothing is.
    pub before: Option<(FileState, Vec<u8>)>,
    /// What was learned of a text that is too large to be held, for which one NUL stands in `before`.
    pub scanned: Option<ScannedContent>,
    /// The version under which the file was read; `None` where nothing is, or where that is not known.
    pub stamp: Option<FileStamp>,
    /// Whether git ignores it and does not track it; only looked at where policy then asks for a person.
    pub ignored: bool,
    /// What a call is told that needs a file here, where something makes room for one, such as a folder with nothing in it.
    pub not_a_file: Option<Refusal>,
}

/// A version of a file that was read: as long as it stands, the bytes are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp(pub(crate) Stamp);

/// A file that a mutation finds: its state, its bytes, the version that they were read from, and what was learned of them
/// where they are a text that is too large to be held.
type FoundFile = (FileState, Vec<u8>, Option<FileStamp>, Option<ScannedContent>);

/// What stands at a path.
pub(crate) enum Existing<F> {
    File(F),
    Nothing,
    /// No file, and what is there makes room for one; the refusal is of calls that need one.
    EmptyDir(Refusal),
}

type Look<'a> = &'a dyn Fn(&LogicalPath) -> Result<Existing<FoundFile>, WorkspaceError>;

impl Tree {
    /// Opens `path` as a mount: everything in it counts as tracked, nothing as ignored.
    ///
    /// # Errors
    ///
    /// Where it is no folder or cannot be opened.
    pub fn open_mount(path: &Path) -> io::Result<Self> {
        Ok(Self { root: Arc::new(Root::of_mount(guard::open_ambient_folder(path)?)), ignored: None })
    }

    /// The tree of a run, whose root `dir` is.
    pub(crate) fn of_run(dir: OwnedFd, baseline: Arc<dyn Baseline>) -> Self {
        Self { root: Arc::new(Root::of_run(dir)), ignored: Some(Ignored::new(baseline)) }
    }

    /// Whether the run has written the file at `path`.
    pub(crate) fn has_written(&self, path: &[u8]) -> bool {
        let path = std::str::from_utf8(path).ok().and_then(|path| LogicalPath::parse(path).ok());
        path.zip(self.ignored.as_ref()).is_some_and(|(path, ignored)| ignored.has_written(&path))
    }

    fn target(&self, rules: &Rules, path: &LogicalPath, goes: Goes<'_>) -> Result<Existing<FoundFile>, WorkspaceError> {
        let found = match self.root.open_unlinked(path) {
            Err(error @ (GuardError::Rejected(_) | GuardError::Io(_))) => return Err(error.at(path)),
            found => found,
        };
        let by_name = rules.kind_of_path(path);
        self.judge(rules, Access::Mutate, path, found.as_ref().ok(), by_name, Blocking::Allowed)?;
        if let Some(refusal) = self.room(path, &found, goes)? {
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
        Ok(Existing::File((
            FileState { sha256: Sha256::of(&bytes), size_bytes, mode, kind },
            bytes,
            stamp.map(|stamp| FileStamp(stamp.in_tree())),
            None,
        )))
    }

    /// Whether what was `found` makes room for a file at `path` once those have gone that go: then what a call is told that
    /// needs a file there.
    pub(crate) fn room(
        &self,
        path: &LogicalPath,
        found: &Result<Opened, GuardError>,
        goes: Goes<'_>,
    ) -> io::Result<Option<Refusal>> {
        let refusal: fn(&LogicalPath) -> Refusal = match found {
            Ok(opened) if opened.file_type() == FileType::Directory => not_a_file,
            Err(GuardError::NotADirectory) => not_a_directory,
            Ok(_) | Err(_) => return Ok(None),
        };
        Ok(self.root.is_vacant(path, goes)?.then(|| refusal(path)))
    }
}

impl Workspace {
    /// Takes a run's folder, which holds `repo/` and `tmp/`.
    pub(crate) fn open(dir: &OwnedFd, base: Arc<Base>) -> io::Result<Self> {
        let folder = |name: &str| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
            rustix::fs::openat2(dir, name, flags, Mode::empty(), resolve).map_err(|errno| gone(errno, name))
        };
        let (repo, tmp) = (folder("repo")?, folder("tmp")?);
        Ok(Self { tmp: Arc::new(tmp), tree: Tree::of_run(repo, base.clone()), base })
    }

    /// The place for temporary files.
    pub(crate) fn tmp(&self) -> &Arc<OwnedFd> {
        &self.tmp
    }

    /// Notes paths that a mutation of the run has written: these are shown and can be read, whatever ignore rules say.
    pub fn add_written(&self, paths: &[LogicalPath]) {
        if let Some(ignored) = &self.tree.ignored {
            ignored.add_written(paths);
        }
    }

    /// What the run started from.
    pub fn base(&self) -> &Arc<Base> {
        &self.base
    }

    /// The tree that tools read.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The commit that the run started from.
    pub fn base_commit(&self) -> &str {
        self.base.commit()
    }

    /// Looks at every path that a mutation wants to change: guard (no symbolic link on the way), judgement, existence,
    /// type, then the bytes. The answers stand in the order of `paths`. Files that `go` in the same change are in no other
    /// file's way, nor are folders with nothing else in them; the caller sees to it that they do go.
    ///
    /// # Errors
    ///
    /// The refusal that comes first in the order of refusal, over all paths: `PATH_REJECTED`, `POLICY_DENIED_SECRET`,
    /// `POLICY_DENIED`, `NOT_A_FILE`, `FILE_TOO_LARGE`, `UNSUPPORTED_BINARY`, and `PATCH_BUDGET_EXCEEDED` where the files
    /// have more bytes than a call may have in memory. A missing file is an answer, not an error.
    pub fn targets(
        &self,
        rules: &Rules,
        paths: &[LogicalPath],
        go: &BTreeSet<LogicalPath>,
    ) -> Result<Vec<Target>, WorkspaceError> {
        self.look_at(rules, paths, &|path| self.tree.target(rules, path, &|path| go.contains(path)))
    }

    /// As [`targets`](Self::targets), where the tree does not hold all that was answered yet: a file that `over` tells is taken
    /// as it tells it, and not looked at on the disk.
    ///
    /// # Errors
    ///
    /// As for [`targets`](Self::targets).
    pub fn targets_over(
        &self,
        rules: &Rules,
        paths: &[LogicalPath],
        over: impl Fn(&LogicalPath) -> Option<(FileState, Vec<u8>)>,
    ) -> Result<Vec<Target>, WorkspaceError> {
        self.look_at(rules, paths, &|path| {
            let Some((state, bytes)) = over(path) else { return self.tree.target(rules, path, &|_| false) };
            let by_name = rules.kind_of_path(path);
            self.tree.judge(rules, Access::Mutate, path, None, by_name, Blocking::Allowed)?;
            if state.kind != by_name {
                self.tree.judge(rules, Access::Mutate, path, None, state.kind, Blocking::Allowed)?;
            }
            Ok(Existing::File((state, bytes, None, None)))
        })
    }

    /// As [`targets`](Self::targets), for a mutation that neither tells nor makes contents: a text may have as many bytes as
    /// a transfer. Of one with more than `maxFileBytes` the bytes stay on the disk: one NUL stands for them, which makes any
    /// diff a binary one, and [`Target::scanned`] has what is to be judged of them.
    ///
    /// # Errors
    ///
    /// As for [`targets`](Self::targets).
    pub fn targets_of_any_size(
        &self,
        rules: &Rules,
        paths: &[LogicalPath],
        go: &BTreeSet<LogicalPath>,
    ) -> Result<Vec<Target>, WorkspaceError> {
        let goes: Goes<'_> = &|path| go.contains(path);
        self.look_at(rules, paths, &|path| match self.tree.target(rules, path, goes) {
            Err(WorkspaceError::Refused(refusal)) if refusal.code == Code::FileTooLarge => {
                self.large_text(rules, path, goes)
            }
            found => found,
        })
    }

    /// A text that is too large to be looked at as a whole.
    fn large_text(
        &self,
        rules: &Rules,
        path: &LogicalPath,
        goes: Goes<'_>,
    ) -> Result<Existing<FoundFile>, WorkspaceError> {
        let transfer = match self.transfer_target(rules, path, goes, rules.policy().max_transfer_bytes)? {
            Existing::Nothing => return Ok(Existing::Nothing),
            Existing::EmptyDir(refusal) => return Ok(Existing::EmptyDir(refusal)),
            Existing::File(transfer) => transfer,
        };
        let kind = transfer.state.kind;
        self.tree.judge(rules, Access::Mutate, path, None, kind, Blocking::Allowed)?;
        if read::is_binary(kind, &transfer.piece(0, read::HEAD_BYTES as u64)?) {
            return Err(unsupported_binary(path).into());
        }
        let (seen, scanned) = (transfer.seen(), transfer.scan()?);
        Ok(Existing::File((transfer.state, vec![0], Some(seen), Some(scanned))))
    }

    /// As [`targets`](Self::targets), for files of any kind and size. Of one with more than `max_bytes` the bytes stay on
    /// the disk: one NUL stands for them, which makes any diff a binary one, and [`Target::scanned`] has what is to be judged
    /// of a text.
    ///
    /// # Errors
    ///
    /// As for [`targets`](Self::targets), but for `FILE_TOO_LARGE` and `UNSUPPORTED_BINARY`.
    pub fn targets_of_any_kind(
        &self,
        rules: &Rules,
        paths: &[LogicalPath],
        go: &BTreeSet<LogicalPath>,
        max_bytes: u64,
    ) -> Result<Vec<Target>, WorkspaceError> {
        self.look_at(rules, paths, &|path| {
            Ok(match self.transfer_target(rules, path, &|path| go.contains(path), u64::MAX)? {
                Existing::Nothing => Existing::Nothing,
                Existing::EmptyDir(refusal) => Existing::EmptyDir(refusal),
                Existing::File(transfer) => {
                    let seen = transfer.seen();
                    let (bytes, scanned) = match transfer.whole(max_bytes)? {
                        Some(bytes) => (bytes, None),
                        None => (vec![0], transfer.scan_text()?),
                    };
                    Existing::File((transfer.state, bytes, Some(seen), scanned))
                }
            })
        })
    }

    fn look_at(&self, rules: &Rules, paths: &[LogicalPath], look: Look<'_>) -> Result<Vec<Target>, WorkspaceError> {
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
            match look(path) {
                Ok(found) => {
                    let ignored = asks_for_ignored && self.tree.is_ignored(path, None, Blocking::Allowed)?;
                    let path = path.clone();
                    let mut target =
                        Target { path, before: None, scanned: None, stamp: None, ignored, not_a_file: None };
                    match found {
                        Existing::File((state, bytes, seen, scanned)) => {
                            held_bytes += bytes.len() as u64;
                            // The others are still looked at, for a refusal that comes before this one; none is kept.
                            match judge_call_bytes(rules, held_bytes) {
                                Some(too_many) => first(too_many),
                                None => {
                                    (target.before, target.stamp, target.scanned) =
                                        (Some((state, bytes)), seen, scanned);
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
