//! Which files of a tree guard and policy admit.

use std::io;

use model::{Access, FileKind, LogicalPath, PathFacts, Refusal, Rules};
use rustix::fs::FileType;

use super::Tree;
use crate::error::{WorkspaceError, not_a_file};
use crate::guard::{Blocking, GuardError, Opened};
use crate::opened_file::is_secret;

/// A regular file that guard and policy have admitted.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) opened: Opened,
    /// Its kind, detected from its name.
    pub(crate) kind: FileKind,
}

impl Tree {
    /// Opens the regular file at `path`. Policy is checked before existence.
    pub(crate) fn admit(
        &self,
        rules: &Rules,
        access: Access,
        path: &LogicalPath,
        blocking: Blocking,
    ) -> Result<Admitted, WorkspaceError> {
        let found = match self.root.open(path, blocking) {
            Err(error @ (GuardError::Rejected(_) | GuardError::Io(_))) => return Err(error.at(path)),
            found => found,
        };
        let opened = found.as_ref().ok();
        let kind = rules.kind_of_path(opened.and_then(|opened| opened.real.as_ref()).unwrap_or(path));
        self.judge(rules, access, path, opened, kind, blocking)?;
        let opened = found.map_err(|error| match error {
            GuardError::NotADirectory => Refusal::not_found(path).into(),
            error => error.at(path),
        })?;
        match opened.file_type() {
            FileType::RegularFile => Ok(Admitted { opened, kind }),
            _ => Err(not_a_file(path).into()),
        }
    }

    /// Checks the policy for `path`, and for its real path.
    pub(crate) fn judge(
        &self,
        rules: &Rules,
        access: Access,
        path: &LogicalPath,
        opened: Option<&Opened>,
        kind: FileKind,
        blocking: Blocking,
    ) -> Result<(), WorkspaceError> {
        Ok(model::judge_path(rules, access, &self.facts(path, opened, kind, blocking)?)?)
    }

    /// Returns what policy judges `path` by.
    pub(crate) fn facts<'a>(
        &self,
        path: &'a LogicalPath,
        opened: Option<&'a Opened>,
        kind: FileKind,
        blocking: Blocking,
    ) -> io::Result<PathFacts<'a>> {
        let real_path = opened.and_then(|opened| opened.real.as_ref());
        let ignored = self.is_ignored(path, real_path, blocking)?;
        Ok(PathFacts { path, real_path, kind, ignored, hard_linked: opened.is_some_and(Opened::is_hard_linked) })
    }

    /// Checks the policy for the content of a regular file: a private key is a secret under any name.
    pub(crate) fn judge_content(
        &self,
        rules: &Rules,
        access: Access,
        path: &LogicalPath,
        opened: &Opened,
    ) -> Result<(), WorkspaceError> {
        if is_secret(rules, opened.real.as_ref().unwrap_or(path), opened)? {
            self.judge(rules, access, path, Some(opened), FileKind::SecretLike, Blocking::Allowed)?;
        }
        Ok(())
    }

    /// Whether git ignores the file at `path` and does not track it.
    pub(crate) fn is_ignored(
        &self,
        path: &LogicalPath,
        real_path: Option<&LogicalPath>,
        blocking: Blocking,
    ) -> io::Result<bool> {
        let Some(ignored) = &self.ignored else { return Ok(false) };
        let Some(real_path) = real_path else { return ignored.is_file_ignored(&self.root, path, blocking) };
        // A link, or a file that is reached through one, is hidden by its own name unless the link itself is tracked.
        let by_own_name =
            ignored.is_file_ignored(&self.root, path, blocking)? && !ignored.tracks_above(path, blocking)?;
        Ok(by_own_name || ignored.is_file_ignored(&self.root, real_path, blocking)?)
    }
}
