//! A policy, ready to be asked.

use super::Policy;
use super::globs::{Globs, Purpose};
use crate::{FileKind, LogicalPath, Refusal, Result, Verdict};

/// A policy with its globs compiled. Cheap to share behind an `Arc`.
#[derive(Debug)]
pub struct Rules {
    policy: Policy,
    read: Globs,
    write: Globs,
    deny: Globs,
}

impl Rules {
    /// Compiles the globs of `policy`.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` with the glob that is bad.
    pub fn compile(policy: Policy) -> Result<Self> {
        let globs = |purpose, globs: &[String]| Globs::compile(purpose, globs).map_err(Refusal::from);
        Ok(Self {
            read: globs(Purpose::Allow, &policy.read)?,
            write: globs(Purpose::Allow, &policy.write)?,
            deny: globs(Purpose::Deny, &policy.deny)?,
            policy,
        })
    }

    /// The policy as callers see it.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The kind of the file at `path`, as far as its name tells; see [`FileKind::of_path`].
    pub fn kind_of_path(&self, path: &LogicalPath) -> FileKind {
        FileKind::of_path(path)
    }

    /// What a mutation of a file of `kind` meets. Secrets and git's own are denied whatever the policy says.
    pub fn verdict_of(&self, kind: FileKind) -> Verdict {
        match kind {
            FileKind::SecretLike | FileKind::GitInternal | FileKind::Directory => Verdict::Deny,
            FileKind::TextSource
            | FileKind::TextConfig
            | FileKind::TextDoc
            | FileKind::Lockfile
            | FileKind::Generated
            | FileKind::Vendored
            | FileKind::Binary
            | FileKind::Unknown => self.policy.kinds.get(&kind).copied().unwrap_or(Verdict::Deny),
        }
    }

    /// Whether a read glob matches.
    pub(crate) fn may_read(&self, path: &LogicalPath) -> bool {
        self.read.matches(path)
    }

    /// Whether a write glob matches.
    pub(crate) fn may_write(&self, path: &LogicalPath) -> bool {
        self.write.matches(path)
    }

    /// The first read glob that matches, as the policy writes it.
    pub(crate) fn letting_read(&self, path: &LogicalPath) -> Option<&str> {
        self.read.matching(path).into_iter().next()
    }

    /// The first write glob that matches, as the policy writes it.
    pub(crate) fn allowing(&self, path: &LogicalPath) -> Option<&str> {
        self.write.matching(path).into_iter().next()
    }

    /// The deny globs that match, as the policy writes them.
    pub(crate) fn denying(&self, path: &LogicalPath) -> impl Iterator<Item = &str> {
        self.deny.matching(path).into_iter()
    }
}
