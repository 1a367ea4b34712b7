//! A policy with compiled globs.

use std::fmt;
use std::sync::Arc;

use super::budget::Budget;
use super::definition::Policy;
use super::globs::{Globs, Purpose};
use super::kind_decision::KindDecision;
use crate::credential::is_key_file;
use crate::kind::KindOverrides;
use crate::{FileKind, LogicalPath, Refusal, Result, Verdict};

/// How much more memory a change set may take than a call.
const COMMAND_BYTES_FACTOR: u64 = 4;

/// Facts about the folders of the commit that a run started from.
pub trait BaseFolders: fmt::Debug + Send + Sync {
    /// Whether Git tracks files in the folder at `path`, and ignores neither it nor a folder above it.
    fn is_source(&self, path: &str) -> bool;

    /// Whether `path` is a submodule or under one.
    fn is_in_submodule(&self, path: &str) -> bool;

    /// Whether a submodule is under `path`.
    fn has_submodule_under(&self, path: &str) -> bool;
}

/// A policy with compiled globs. Shared in an `Arc`.
#[derive(Debug)]
pub struct Rules {
    policy: Policy,
    /// Shared by all rules with the same globs, because some take megabytes.
    globs: Arc<AllGlobs>,
    base_folders: Option<Arc<dyn BaseFolders>>,
    /// Whether they judge a change set, which has limits of its own.
    is_of_command: bool,
}

#[derive(Debug)]
struct AllGlobs {
    read: Globs,
    write: Globs,
    deny: Globs,
    ask: Globs,
    not_secret: Globs,
    /// The folders above the paths that `notSecret` matches.
    not_secret_folders: Globs,
}

impl Rules {
    /// Compiles the globs of `policy`.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` with the first invalid glob.
    pub fn compile(policy: Policy) -> Result<Self> {
        let globs = |purpose, globs: &[String]| Globs::compile(purpose, globs).map_err(Refusal::from);
        let globs = AllGlobs {
            read: globs(Purpose::Allow, &policy.read)?,
            write: globs(Purpose::Allow, &policy.write)?,
            deny: globs(Purpose::Deny, &policy.deny)?,
            ask: globs(Purpose::Deny, &policy.ask)?,
            not_secret: globs(Purpose::Allow, &policy.not_secret)?,
            not_secret_folders: globs(Purpose::Allow, &folders_of(&policy.not_secret))?,
        };
        Ok(Self { policy, globs: Arc::new(globs), base_folders: None, is_of_command: false })
    }

    /// Like [`compile`](Self::compile), but shares the compiled globs with one of `others` that has the same globs.
    ///
    /// # Errors
    ///
    /// As [`compile`](Self::compile).
    pub fn compile_among(policy: Policy, others: &[Arc<Self>]) -> Result<Self> {
        match others.iter().find(|other| globs_of(&other.policy) == globs_of(&policy)) {
            Some(other) => {
                let globs = Arc::clone(&other.globs);
                Ok(Self { policy, globs, base_folders: None, is_of_command: false })
            }
            None => Self::compile(policy),
        }
    }

    /// Whether both share the same compiled globs.
    pub fn shares_globs_with(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.globs, &other.globs)
    }

    /// Sets the base's folders. Without them, every folder with a name of build output is build output, and there are no
    /// submodules.
    #[must_use]
    pub fn with_base_folders(mut self, base_folders: Arc<dyn BaseFolders>) -> Self {
        self.base_folders = Some(base_folders);
        self
    }

    /// Returns the same rules for what a command has changed: with the limits of a change set in place of those of a call.
    #[must_use]
    pub fn of_command(&self) -> Self {
        Self {
            policy: self.policy.clone(),
            globs: Arc::clone(&self.globs),
            base_folders: self.base_folders.clone(),
            is_of_command: true,
        }
    }

    /// The limits of one change, and the member of the policy that has them.
    pub(crate) fn budget(&self) -> (&'static str, &Budget) {
        if self.is_of_command {
            ("commandBudget", &self.policy.command_budget)
        } else {
            ("budget", &self.policy.budget)
        }
    }

    /// The maximum bytes of file contents that one change may have in memory: contents before and after it together.
    pub(crate) fn max_call_bytes(&self) -> u64 {
        let of_call = self.policy.max_call_bytes();
        if self.is_of_command { of_call * COMMAND_BYTES_FACTOR } else { of_call }
    }

    /// The policy that these rules apply.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The kind of the file at `path`, based on its name; see [`FileKind::of_path`].
    pub fn kind_of_path(&self, path: &LogicalPath) -> FileKind {
        if self.is_in_submodule(path) {
            return FileKind::Submodule;
        }
        FileKind::of_path_with(path, self)
    }

    /// The kind of the folder at `path`; see [`FileKind::of_dir`].
    pub fn kind_of_dir(&self, path: &LogicalPath) -> FileKind {
        if self.is_in_submodule(path) {
            return FileKind::Submodule;
        }
        FileKind::of_dir_with(path, self)
    }

    /// The kind of the file at `path` that begins with `head`; see [`FileKind::of_file`].
    pub fn kind_of_file(&self, path: &LogicalPath, head: &[u8]) -> FileKind {
        let by_name = self.kind_of_path(path);
        if !matches!(by_name, FileKind::GitInternal | FileKind::Submodule) && self.is_secret_content(path, head) {
            return FileKind::SecretLike;
        }
        by_name.with_text_head(head)
    }

    /// Whether the file at `path` that begins with `head` is a secret by its content: a private key.
    pub fn is_secret_content(&self, path: &LogicalPath, head: &[u8]) -> bool {
        is_key_file(head) && !self.is_not_secret(path, false)
    }

    /// Returns the verdict on a mutation of a file of `kind`. Secrets, Git's own files and folders are always denied.
    pub fn verdict_of(&self, kind: FileKind) -> Verdict {
        match kind {
            FileKind::SecretLike | FileKind::GitInternal | FileKind::Submodule | FileKind::Directory => Verdict::Deny,
            FileKind::TextSource
            | FileKind::TextConfig
            | FileKind::TextDoc
            | FileKind::Lockfile
            | FileKind::Generated
            | FileKind::Vendored
            | FileKind::Binary
            | FileKind::Unknown => self.decision_on(kind).verdict(),
        }
    }

    /// Whether the path is a submodule or under one.
    pub fn is_in_submodule(&self, path: &LogicalPath) -> bool {
        self.base_folders.as_ref().is_some_and(|folders| folders.is_in_submodule(path.as_str()))
    }

    /// Whether a submodule is under the path.
    pub fn has_submodule_under(&self, path: &LogicalPath) -> bool {
        self.base_folders.as_ref().is_some_and(|folders| folders.has_submodule_under(path.as_str()))
    }

    /// Whether a mutation of a file of `kind` is allowed with evidence.
    pub fn accepts_evidence(&self, kind: FileKind) -> bool {
        self.decision_on(kind) == KindDecision::RequireEvidence
    }

    /// Whether a read of a secret file of settings shows its keys.
    pub fn redacts_secrets(&self) -> bool {
        self.decision_on(FileKind::SecretLike) == KindDecision::Redact
    }

    fn decision_on(&self, kind: FileKind) -> KindDecision {
        self.policy.kinds.get(&kind).copied().unwrap_or(KindDecision::Deny)
    }

    /// Whether a read glob matches.
    pub(crate) fn may_read(&self, path: &LogicalPath) -> bool {
        self.globs.read.matches(path)
    }

    /// Whether a write glob matches.
    pub(crate) fn may_write(&self, path: &LogicalPath) -> bool {
        self.globs.write.matches(path)
    }

    /// Whether an ask glob matches, so that a person may approve a change outside of the write globs.
    pub(crate) fn asks(&self, path: &LogicalPath) -> bool {
        self.globs.ask.matches(path)
    }

    /// The first read glob that matches, as the policy states it.
    pub(crate) fn matching_read_glob(&self, path: &LogicalPath) -> Option<&str> {
        self.globs.read.matching(path).into_iter().next()
    }

    /// The first write glob that matches, as the policy states it.
    pub(crate) fn matching_write_glob(&self, path: &LogicalPath) -> Option<&str> {
        self.globs.write.matching(path).into_iter().next()
    }

    /// The deny globs that match, as the policy states them.
    pub(crate) fn matching_deny_globs(&self, path: &LogicalPath) -> impl Iterator<Item = &str> {
        self.globs.deny.matching(path).into_iter()
    }

    /// The ask globs that match, as the policy states them.
    pub(crate) fn matching_ask_globs(&self, path: &LogicalPath) -> impl Iterator<Item = &str> {
        self.globs.ask.matching(path).into_iter()
    }
}

impl KindOverrides for Rules {
    fn is_not_secret(&self, path: &LogicalPath, is_folder: bool) -> bool {
        self.globs.not_secret.matches(path) || (is_folder && self.globs.not_secret_folders.matches(path))
    }

    fn is_source_folder(&self, path: &str) -> bool {
        self.base_folders.as_ref().is_some_and(|folders| folders.is_source(path))
    }
}

/// The lists of globs that are compiled.
fn globs_of(policy: &Policy) -> [&[String]; 5] {
    [&policy.read, &policy.write, &policy.deny, &policy.ask, &policy.not_secret]
}

/// Returns the folders above the paths that `globs` match, up to the first `**`, so that a walk enters them.
fn folders_of(globs: &[String]) -> Vec<String> {
    let mut folders = Vec::new();
    for glob in globs {
        let glob = glob.trim_start_matches("./").trim_start_matches('/');
        let ends = glob.match_indices('/').map(|(at, _)| &glob[..at]);
        folders.extend(ends.filter(|folder| !folder.is_empty() && !folder.ends_with("**")).map(str::to_owned));
    }
    folders.sort_unstable();
    folders.dedup();
    folders.truncate(super::globs::MAX_GLOBS);
    folders
}
