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

use crate::error::{WorkspaceError, not_a_directory, not_a_file};
use crate::guard::{Blocking, GuardError, Opened, OpenedLink, RemovedPaths};
use crate::stamp::FileStamp;
use crate::transfer::transfer;
use crate::tree::{Admitted, Tree, Workspace};

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

/// Which files a mutation may change, and how much of them it reads.
pub(crate) struct TargetSpec<'a> {
    /// Whether they must be text.
    pub(crate) is_text: bool,
    pub(crate) max_bytes: u64,
    /// A larger file is not held in memory.
    pub(crate) max_held_bytes: u64,
    /// Whether a symbolic link may be changed, and not only a file.
    pub(crate) may_be_link: &'a dyn Fn(&LogicalPath) -> bool,
}

impl Tree {
    /// Returns what a mutation finds at `path`. A missing file is no error.
    pub(crate) fn target(
        &self,
        rules: &Rules,
        path: &LogicalPath,
        removed: &RemovedPaths<'_>,
        spec: &TargetSpec<'_>,
    ) -> Result<Target, WorkspaceError> {
        let mut target =
            Target { path: path.clone(), before: None, scanned: None, stamp: None, ignored: false, not_a_file: None };
        if (spec.may_be_link)(path)
            && let Some(OpenedLink { target: to, stat }) = self.root.find_link(path)?
            && link_stays_inside(path.as_str().as_bytes(), &to)
        {
            let kind = rules.kind_of_path(path);
            self.judge(rules, Access::Mutate, path, None, kind, Blocking::Allowed)?;
            let (sha256, size_bytes) = (Sha256::of(&to), to.len() as u64);
            target.before = Some((FileState { sha256, size_bytes, mode: LINK_MODE, kind }, to));
            target.stamp = Some(FileStamp::of(&stat));
            return Ok(target);
        }
        let found = match self.root.open_unlinked(path) {
            // A link above the path may be removed by the same change.
            Err(error) if error.is_no_folder() && self.root.is_free(path, removed)? => Err(error),
            Err(error @ (GuardError::Rejected(_) | GuardError::Io(_))) => {
                return Err(self.with_target(rules, path, error));
            }
            found => found,
        };
        let kind = rules.kind_of_path(path);
        self.judge(rules, Access::Mutate, path, found.as_ref().ok(), kind, Blocking::Allowed)?;
        target.not_a_file = self.replaceable(path, &found, removed)?;
        let opened = match found {
            _ if target.not_a_file.is_some() => return Ok(target),
            Err(GuardError::Missing) => return Ok(target),
            found => found.map_err(|error| error.at(path))?,
        };
        if spec.is_text {
            if opened.file_type() != FileType::RegularFile {
                return Err(not_a_file(path).into());
            }
            let file = Admitted { opened, kind };
            let read = self.read_admitted(rules, Access::Mutate, path, file, spec.max_bytes, Blocking::Allowed)?;
            let (content, stamp) = read;
            target.before = Some((content.state(), content.bytes));
            target.stamp = stamp.map(|stamp| stamp.stamp);
            return Ok(target);
        }
        self.judge_content(rules, Access::Mutate, path, &opened)?;
        let transfer = transfer(rules, opened, path, spec.max_bytes, spec.max_held_bytes)?;
        target.stamp = transfer.stamp();
        target.scanned = transfer.scan_text()?;
        let (state, bytes) = transfer.into_parts();
        target.before = Some((state, bytes.unwrap_or_else(|| vec![0])));
        Ok(target)
    }

    /// Converts the error for a caller that named `path`. If mutations do not follow a symbolic link, it names the target.
    fn with_target(&self, rules: &Rules, path: &LogicalPath, error: GuardError) -> WorkspaceError {
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
    fn replaceable(
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
        let max_bytes = rules.policy().max_file_bytes;
        let spec = TargetSpec { is_text: true, max_bytes, max_held_bytes: max_bytes, may_be_link: &|_| false };
        self.find_targets(rules, paths, removed, &spec)
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
        let may_be_link = &may_be_link;
        let spec = TargetSpec { is_text: false, max_bytes: u64::MAX, max_held_bytes: max_bytes, may_be_link };
        self.find_targets(rules, paths, removed, &spec)
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
        let (max_bytes, max_held_bytes) = (rules.policy().max_transfer_bytes, rules.policy().max_file_bytes);
        let spec = TargetSpec { is_text: false, max_bytes, max_held_bytes, may_be_link: &|_| false };
        self.find_targets(rules, paths, removed, &spec)
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
        removed: &BTreeSet<LogicalPath>,
        spec: &TargetSpec<'_>,
    ) -> Result<Vec<Target>, WorkspaceError> {
        let asks_for_ignored = rules.policy().ignored_files == Verdict::RequireApproval;
        let removed = removed.iter().collect();
        let mut targets = Vec::with_capacity(paths.len());
        let mut refusal: Option<Refusal> = None;
        let mut held_bytes = 0_u64;
        for path in paths {
            let refused = match self.tree().target(rules, path, &removed, spec) {
                Ok(mut target) => {
                    target.ignored = asks_for_ignored && self.tree().is_ignored(path, None, Blocking::Allowed)?;
                    held_bytes += target.before.as_ref().map_or(0, |(_, bytes)| bytes.len() as u64);
                    // The other paths are still judged, since their refusal may take precedence, but no bytes are kept.
                    let too_many = judge_call_bytes(rules, held_bytes);
                    if too_many.is_none() {
                        targets.push(target);
                    }
                    too_many
                }
                Err(WorkspaceError::Refused(refused)) => Some(refused),
                Err(error @ (WorkspaceError::Io(_) | WorkspaceError::Cancelled)) => return Err(error),
            };
            refusal = match (refusal, refused) {
                (Some(first), Some(next)) => Some(first.first(next)),
                (first, next) => first.or(next),
            };
        }
        refusal.map_or(Ok(targets), |refusal| Err(refusal.into()))
    }
}
