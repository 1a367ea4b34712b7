//! What kind of file a path names, from its name and its first bytes.

mod binary;
mod file_kind;
mod names;
mod secret;

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind};

use crate::LogicalPath;
use crate::confusables::with_folded;
use crate::path::is_git_internal;
pub use binary::is_binary;
pub use file_kind::FileKind;
use secret::Parent;

impl FileKind {
    /// The kind of the file at `path`, based on its name and the folders above it; `Unknown` if only the bytes
    /// decide.
    ///
    /// The strictest wins: a secret over git's own over generated and vendored over lockfiles over the rest. Names count
    /// in any letter case and with look-alikes. Costs less than a microsecond and, for plain names, no allocation.
    ///
    /// A run's [`Rules`](crate::Rules) know more: which names are excepted, and which folders are source.
    pub fn of_path(path: &LogicalPath) -> Self {
        Self::of_path_except(path, &NoExceptions)
    }

    /// As [`of_path`](Self::of_path), with exceptions.
    pub(crate) fn of_path_except(path: &LogicalPath, exceptions: &dyn Exceptions) -> Self {
        if path.is_root() {
            return Self::Directory;
        }
        let text = path.as_str();
        let (folders, file) = text.rsplit_once('/').unwrap_or(("", text));
        if is_plain(text) {
            return with_folded(file, names::file_kind);
        }
        match Self::of_names(folders, file, exceptions, true) {
            Self::SecretLike if exceptions.is_not_secret(path, false) => {
                Self::of_names(folders, file, exceptions, false)
            }
            kind => kind,
        }
    }

    /// The kind of `file` in `folders`, by every rule.
    fn of_names(folders: &str, file: &str, exceptions: &dyn Exceptions, has_secrets: bool) -> Self {
        let mut above = PathClassifier::new(exceptions, has_secrets);
        above.walk(folders);
        above.kind_with(file, names::file_kind)
    }

    /// The kind of the folder at `path`: `SecretLike`, `GitInternal`, `Generated` or `Vendored` where everything under
    /// it is that, and `Directory` otherwise. A walk need not enter a folder that is not a `Directory` unless it was
    /// asked to.
    pub fn of_dir(path: &LogicalPath) -> Self {
        Self::of_dir_except(path, &NoExceptions)
    }

    /// As [`of_dir`](Self::of_dir), with exceptions.
    pub(crate) fn of_dir_except(path: &LogicalPath, exceptions: &dyn Exceptions) -> Self {
        let of_folders = |has_secrets| {
            let mut above = PathClassifier::new(exceptions, has_secrets);
            if !path.is_root() {
                above.walk(path.as_str());
            }
            above.kind.unwrap_or(Self::Directory)
        };
        match of_folders(true) {
            Self::SecretLike if exceptions.is_not_secret(path, true) => of_folders(false),
            kind => kind,
        }
    }

    /// Whether a folder called `name` holds what a build makes, unless git tracks it.
    pub fn is_build_output(name: &str) -> bool {
        with_folded(name, names::is_build_output)
    }

    /// The kind of the file at `path` with `head` as its first bytes (8 KiB are enough).
    ///
    /// The name alone decides for secrets, git's own files, generated and vendored files and lockfiles. Use [`is_binary`] if it matters whether such a file is text.
    pub fn of_file(path: &LogicalPath, head: &[u8]) -> Self {
        Self::of_path(path).with_head(head)
    }
}

/// What a path has in it if any name but its last can matter, or if its last is that of a secret.
static MARKS: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    let folders = names::classified_folders().map(|name| format!("{name}/"));
    let fixed = secret::MARKS.iter().copied().chain([".git", "git~1", "\\"]);
    AhoCorasick::builder()
        .ascii_case_insensitive(true)
        .kind(Some(AhoCorasickKind::DFA))
        .build(folders.chain(fixed.map(str::to_owned)))
        .ok()
});

/// Whether only the last name of a path decides its kind: by far the most paths, and one pass over them.
fn is_plain(path: &str) -> bool {
    let is_printable = path.bytes().fold(true, |all, byte| all & matches!(byte, b' '..=b'~'));
    is_printable && MARKS.as_ref().is_some_and(|marks| !marks.is_match(path))
}

/// What a run knows of its names, besides what they say.
pub(crate) trait Exceptions {
    /// Whether an operator excepts `path` from the names of secrets.
    fn is_not_secret(&self, path: &LogicalPath, is_folder: bool) -> bool;

    /// Whether the folder at `path`, whose name is that of build output, is source.
    fn is_source_folder(&self, path: &str) -> bool;
}

/// Nothing but names.
struct NoExceptions;

impl Exceptions for NoExceptions {
    fn is_not_secret(&self, _: &LogicalPath, _: bool) -> bool {
        false
    }

    fn is_source_folder(&self, _: &str) -> bool {
        false
    }
}

/// What the names on the way to a file make of it.
struct PathClassifier<'a> {
    exceptions: &'a dyn Exceptions,
    /// Whether names of secrets count.
    has_secrets: bool,
    kind: Option<FileKind>,
    parent: Parent,
}

impl<'a> PathClassifier<'a> {
    fn new(exceptions: &'a dyn Exceptions, has_secrets: bool) -> Self {
        Self { exceptions, has_secrets, kind: None, parent: Parent::default() }
    }

    /// Goes through `folders`, from the top.
    fn walk(&mut self, folders: &str) {
        // A backslash separates names on other systems, and in archives that were made there.
        let mut end = 0;
        for name in folders.split(['/', '\\']) {
            end += name.len();
            if !name.is_empty() {
                self.enter(name, &folders[..end]);
            }
            end += 1;
        }
    }

    fn enter(&mut self, name: &str, path: &str) {
        let kind = with_folded(name, |folded| {
            let of_folder = || {
                let is_source = names::is_build_output(folded) && self.exceptions.is_source_folder(path);
                names::folder_kind(folded).filter(|_| !is_source)
            };
            let kind = self.secret_or_git(name, folded).or_else(of_folder);
            self.parent = Parent::of(folded);
            kind
        });
        self.kind = match (self.kind, kind) {
            (Some(above), Some(kind)) => Some(above.stricter(kind)),
            (above, kind) => above.or(kind),
        };
    }

    fn secret_or_git(&self, name: &str, folded: &str) -> Option<FileKind> {
        if self.has_secrets && secret::is_secret(folded, self.parent) {
            Some(FileKind::SecretLike)
        } else if is_git_internal(name) {
            Some(FileKind::GitInternal)
        } else {
            None
        }
    }

    /// The kind of the file `name` in the folder that was walked to.
    fn kind_with(mut self, name: &str, by_name: impl FnOnce(&str) -> FileKind) -> FileKind {
        let name = match name.trim_end_matches('\\').rsplit_once('\\') {
            Some((folders, file)) => {
                // No folder of this system, so that none of these is one that git tracks.
                self.exceptions = &NoExceptions;
                self.walk(folders);
                file
            }
            None => name,
        };
        with_folded(name, |folded| {
            let kind = self.secret_or_git(name, folded).unwrap_or_else(|| by_name(folded));
            self.kind.map_or(kind, |above| above.stricter(kind))
        })
    }
}

#[cfg(test)]
mod tests;
