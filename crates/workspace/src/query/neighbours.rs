//! Names that a caller may have meant: the same name in another Unicode form, in other letter case, or in another folder.

use std::collections::BTreeSet;

use model::{Access, LogicalPath, PathFacts, Refusal, Rules, composed};
use rustix::fs::FileType;

use crate::guard::{Blocking, GuardError};
use crate::ignored::{MAX_SIMILAR, SimilarPaths, is_machine_made, is_same_name};
use crate::{Tree, WorkspaceError};

/// The path in the tree that is canonically equal to one that a caller has named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FollowedPath {
    /// The path. Names after the last one that exists are as the caller wrote them.
    pub path: LogicalPath,
    /// Whether it exists as a whole.
    pub exists: bool,
}

impl Tree {
    /// Returns the path whose names are canonically equal to those of `path` (Unicode normal forms) and exist, where `path`
    /// itself does not exist. `None` if there is none, or several, or policy hides it.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn follow_path(&self, rules: &Rules, path: &LogicalPath) -> Result<Option<FollowedPath>, WorkspaceError> {
        // What is canonically equal to ASCII is ASCII, but for four characters that no keyboard has.
        if path.as_str().is_ascii() || self.exists(rules, path)? {
            return Ok(None);
        }
        self.resolve_names(rules, path, |name, other| composed(name) == composed(other))
    }

    /// Returns the only path that a caller may have meant by `path`, which does not exist, if policy lets them read it: the same
    /// names in another form or letter case, or a file of the same name elsewhere in the tree. Of a mount, whose names are not in
    /// memory, only the former.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub fn find_meant(&self, rules: &Rules, path: &LogicalPath) -> Result<Option<LogicalPath>, WorkspaceError> {
        let Some(ignored) = &self.ignored else {
            let near = self.resolve_names(rules, path, is_same_name)?;
            let near = near.filter(|near| near.exists).map(|near| near.path);
            return Ok(match near {
                Some(near) if self.is_path_shown(rules, &near)? => Some(near),
                Some(_) | None => None,
            });
        };
        let SimilarPaths { same_path, same_name, .. } = ignored.similar_paths(path)?;
        match self.only_shown(rules, path, same_path)? {
            Some(meant) => Ok(Some(meant)),
            None => self.only_shown(rules, path, same_name),
        }
    }

    /// Returns the only one of `candidates` that exists, is not `path`, and that policy lets a caller read.
    fn only_shown(
        &self,
        rules: &Rules,
        path: &LogicalPath,
        candidates: BTreeSet<LogicalPath>,
    ) -> Result<Option<LogicalPath>, WorkspaceError> {
        if candidates.len() > MAX_SIMILAR {
            return Ok(None);
        }
        let mut shown = None;
        // At an earlier record the path itself may be missing.
        for candidate in candidates.into_iter().filter(|candidate| candidate != path) {
            if self.is_path_shown(rules, &candidate)? && shown.replace(candidate).is_some() {
                return Ok(None);
            }
        }
        Ok(shown)
    }

    /// Whether something exists at `path` that no tool has generated and that policy lets a caller read, also where a link leads.
    fn is_path_shown(&self, rules: &Rules, path: &LogicalPath) -> Result<bool, WorkspaceError> {
        let opened = match self.root.open(path, Blocking::Allowed) {
            Ok(opened) => opened,
            Err(error) => return error.unless_disk().map(|()| false).map_err(Into::into),
        };
        let real = opened.real.as_ref().unwrap_or(path);
        let is_folder = opened.file_type() == FileType::Directory;
        let kind = if is_folder { rules.kind_of_dir(real) } else { rules.kind_of_path(real) };
        if is_machine_made(kind) {
            return Ok(false);
        }
        match self.judge(rules, Access::Read, path, Some(&opened), kind, Blocking::Allowed) {
            Ok(()) => Ok(true),
            Err(WorkspaceError::Refused(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn exists(&self, rules: &Rules, path: &LogicalPath) -> Result<bool, WorkspaceError> {
        match self.entry_at(rules, path) {
            Ok(found) => Ok(found.is_some()),
            // Whoever opens it gets the refusal.
            Err(WorkspaceError::Refused(_)) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Replaces each name of `path` that does not exist by the only one in its folder that `is_same`. `None` if none was replaced.
    fn resolve_names(
        &self,
        rules: &Rules,
        path: &LogicalPath,
        is_same: impl Fn(&str, &str) -> bool,
    ) -> Result<Option<FollowedPath>, WorkspaceError> {
        let rejected = |rule| Refusal::path(path.as_str(), rule);
        let (mut at, mut exists, mut is_other) = (LogicalPath::root(), true, false);
        for name in path.components() {
            let named = at.child(name).map_err(rejected)?;
            if exists && !self.exists(rules, &named)? {
                match self.only_entry(rules, &at, |other| is_same(name, other))? {
                    Some(found) => {
                        (at, is_other) = (found, true);
                        continue;
                    }
                    None => exists = false,
                }
            }
            at = named;
        }
        Ok(is_other.then_some(FollowedPath { path: at, exists }))
    }

    /// Returns the only readable entry of `folder` whose name `is_wanted`.
    fn only_entry(
        &self,
        rules: &Rules,
        folder: &LogicalPath,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<Option<LogicalPath>, WorkspaceError> {
        let opened = match self.root.open(folder, Blocking::Allowed) {
            Ok(opened) if opened.file_type() == FileType::Directory => opened,
            Err(GuardError::Io(error)) => return Err(error.into()),
            Ok(_) | Err(_) => return Ok(None),
        };
        let mut found = Vec::new();
        let real = opened.real.clone().unwrap_or_else(|| folder.clone());
        let opened = opened.into_folder(&real);
        self.root.each_entry(&opened, &mut Vec::new(), |name, file_type| {
            if let Some(path) =
                name.to_str().ok().filter(|name| is_wanted(name)).and_then(|name| folder.child(name).ok())
            {
                found.push((path, file_type));
            }
            Ok::<(), rustix::io::Errno>(())
        })?;
        let mut shown = None;
        for (path, file_type) in found {
            if self.is_shown(rules, &path, file_type)? && shown.replace(path).is_some() {
                return Ok(None);
            }
        }
        Ok(shown)
    }

    /// Whether policy lets a caller know the name.
    fn is_shown(&self, rules: &Rules, path: &LogicalPath, file_type: FileType) -> Result<bool, WorkspaceError> {
        let is_folder = file_type == FileType::Directory;
        let kind = if is_folder { rules.kind_of_dir(path) } else { rules.kind_of_path(path) };
        let ignored = !is_folder && self.is_ignored(path, None, Blocking::Allowed)?;
        let facts = PathFacts { path, real_path: None, kind, ignored, hard_linked: false };
        Ok(model::judge_path(rules, Access::Read, &facts).is_ok())
    }
}
