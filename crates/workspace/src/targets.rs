//! What a mutation finds at the paths that it wants to change.

mod folder;
#[cfg(test)]
mod races;

use std::collections::BTreeSet;
use std::io;

use model::{
    Access, FileState, LINK_MODE, LogicalPath, PathRejected, Refusal, Rules, ScannedContent, Sha256, Verdict,
    judge_call_bytes, link_stays_inside,
};
use rustix::fs::FileType;

use crate::error::{WorkspaceError, file_too_large, not_a_directory, not_a_file, unsupported_binary};
use crate::guard::{Blocking, GuardError, Opened, OpenedLink, RemovedPaths};
use crate::opened_file;
use crate::read::hash_cache;
use crate::stamp::FileStamp;
use crate::transfer::{Transfer, transfer};
use crate::tree::{Tree, Workspace};

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
type ExistingFile = (FileState, Vec<u8>, Option<FileStamp>, Option<ScannedContent>);

/// What exists at a path.
pub(crate) enum Existing<F> {
    File(F),
    Nothing,
    /// Not a file, but something that a file may replace. The refusal is for calls that need a file.
    EmptyDir(Refusal),
}

type FoundTarget = Existing<ExistingFile>;
type Find<'a> = &'a dyn Fn(&LogicalPath) -> Result<FoundTarget, WorkspaceError>;

impl Tree {
    fn target(
        &self,
        rules: &Rules,
        path: &LogicalPath,
        removed: &RemovedPaths<'_>,
    ) -> Result<FoundTarget, WorkspaceError> {
        let found = match self.root.open_unlinked(path) {
            Err(error @ (GuardError::Rejected(_) | GuardError::Io(_))) => {
                return Err(self.with_target(rules, path, error));
            }
            found => found,
        };
        let by_name = rules.kind_of_path(path);
        self.judge(rules, Access::Mutate, path, found.as_ref().ok(), by_name, Blocking::Allowed)?;
        if let Some(refusal) = self.replaceable(path, &found, removed)? {
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
        let (bytes, stamp) = opened_file::read_whole(&opened, max_bytes, Blocking::Allowed)?;
        if bytes.len() as u64 > max_bytes {
            return Err(file_too_large(path, max_bytes, bytes.len() as u64).into());
        }
        let kind = opened_file::kind_of(rules, path, &bytes);
        if kind != by_name {
            self.judge(rules, Access::Mutate, path, Some(&opened), kind, Blocking::Allowed)?;
        }
        if opened_file::is_binary(kind, &bytes) {
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
        removed: &RemovedPaths<'_>,
    ) -> io::Result<Option<Refusal>> {
        let refusal: fn(&LogicalPath) -> Refusal = match found {
            Ok(opened) if opened.file_type() == FileType::Directory => not_a_file,
            Err(error) if error.is_no_folder() => not_a_directory,
            Ok(_) | Err(_) => return Ok(None),
        };
        Ok(self.root.is_free(path, removed)?.then(|| refusal(path)))
    }
}

impl Workspace {
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
        let removed = removed.iter().collect();
        self.find_targets(rules, paths, &|path| self.tree().target(rules, path, &removed))
    }

    /// As [`targets`](Self::targets), for files of any kind and size, and for symbolic links that stay in the tree where `may_be_link`: the
    /// bytes of a link are its target. If a file is larger than `max_bytes`, [`Target::before`]
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
        may_be_link: impl Fn(&LogicalPath) -> bool,
    ) -> Result<Vec<Target>, WorkspaceError> {
        let removed = removed.iter().collect();
        self.find_targets(rules, paths, &|path| {
            let link = if may_be_link(path) { self.link_at(rules, path)? } else { None };
            match link {
                Some(link) => Ok(Existing::File(link)),
                None => self.file_of_any_kind(rules, path, &removed, u64::MAX, max_bytes),
            }
        })
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
        let (removed, policy) = (removed.iter().collect(), rules.policy());
        self.find_targets(rules, paths, &|path| {
            self.file_of_any_kind(rules, path, &removed, policy.max_transfer_bytes, policy.max_file_bytes)
        })
    }

    fn file_of_any_kind(
        &self,
        rules: &Rules,
        path: &LogicalPath,
        removed: &RemovedPaths<'_>,
        max_transfer_bytes: u64,
        max_bytes: u64,
    ) -> Result<FoundTarget, WorkspaceError> {
        Ok(match self.transfer_target(rules, path, removed, max_transfer_bytes)? {
            Existing::Nothing => Existing::Nothing,
            Existing::EmptyDir(refusal) => Existing::EmptyDir(refusal),
            Existing::File(transfer) => {
                let stamp = transfer.stamp();
                let (bytes, scanned) = match transfer.read_all(max_bytes)? {
                    Some(bytes) => (bytes, None),
                    None => (vec![0], transfer.scan_text()?),
                };
                Existing::File((transfer.state, bytes, stamp, scanned))
            }
        })
    }

    /// Returns the symbolic link at `path`; `None` for anything else, and for a link that leads out of the tree.
    fn link_at(&self, rules: &Rules, path: &LogicalPath) -> Result<Option<ExistingFile>, WorkspaceError> {
        let Some(OpenedLink { target, stat }) = self.tree().root.find_link(path)? else { return Ok(None) };
        if !link_stays_inside(path.as_str().as_bytes(), &target) {
            return Ok(None);
        }
        let kind = rules.kind_of_path(path);
        self.tree().judge(rules, Access::Mutate, path, None, kind, Blocking::Allowed)?;
        let (sha256, size_bytes) = (Sha256::of(&target), target.len() as u64);
        let state = FileState { sha256, size_bytes, mode: LINK_MODE, kind };
        Ok(Some((state, target, Some(FileStamp::of(&stat)), None)))
    }

    /// Whether there is a symbolic link at `path`.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn is_link(&self, path: &LogicalPath) -> io::Result<bool> {
        Ok(self.tree().root.find_link(path)?.is_some())
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
                    let ignored = asks_for_ignored && self.tree().is_ignored(path, None, Blocking::Allowed)?;
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

    /// Returns what a mutation by the files endpoints finds at `path`: a file of any kind with at most `max_bytes`, or nothing
    /// that prevents one.
    ///
    /// # Errors
    ///
    /// `PATH_REJECTED`, `POLICY_DENIED_SECRET`, `POLICY_DENIED`, `NOT_A_FILE`, `FILE_TOO_LARGE`.
    pub(crate) fn transfer_target(
        &self,
        rules: &Rules,
        path: &LogicalPath,
        removed: &RemovedPaths<'_>,
        max_bytes: u64,
    ) -> Result<Existing<Transfer>, WorkspaceError> {
        let tree = self.tree();
        let found = match tree.root.open_unlinked(path) {
            // A link above the path may be removed by the same change.
            Err(error) if error.is_no_folder() && tree.root.is_free(path, removed)? => Err(error),
            Err(error @ (GuardError::Rejected(_) | GuardError::Io(_))) => {
                return Err(tree.with_target(rules, path, error));
            }
            found => found,
        };
        let kind = rules.kind_of_path(path);
        tree.judge(rules, Access::Mutate, path, found.as_ref().ok(), kind, Blocking::Allowed)?;
        if let Some(refusal) = tree.replaceable(path, &found, removed)? {
            return Ok(Existing::EmptyDir(refusal));
        }
        match found {
            Ok(opened) => {
                tree.judge_content(rules, Access::Mutate, path, &opened)?;
                transfer(rules, opened, path, max_bytes).map(Existing::File)
            }
            Err(GuardError::Missing) => Ok(Existing::Nothing),
            Err(error) => Err(error.at(path)),
        }
    }
}
