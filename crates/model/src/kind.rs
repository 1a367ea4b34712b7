//! Determines the kind of a file from its path and its first bytes.

mod binary;
mod file_kind;
mod names;
mod secret;

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind};

use crate::LogicalPath;
use crate::path::confusables::with_folded;
use crate::path::is_git_internal;
pub use binary::is_binary;
pub use file_kind::FileKind;
use secret::Parent;

impl FileKind {
    /// Returns the kind of the file at `path` by its name and the folders above it; `Unknown` if only the bytes decide.
    ///
    /// The strictest kind applies: secret, Git-internal, generated or vendored, lockfile, then the others. Letter case and
    /// look-alike characters are ignored. Takes less than a microsecond and does not allocate for most names.
    ///
    /// The [`Rules`](crate::Rules) of a run also apply the run's overrides.
    pub fn of_path(path: &LogicalPath) -> Self {
        Self::of_path_with(path, &NoOverrides)
    }

    /// Like [`of_path`](Self::of_path), with overrides.
    pub(crate) fn of_path_with(path: &LogicalPath, overrides: &dyn KindOverrides) -> Self {
        if path.is_root() {
            return Self::Directory;
        }
        let text = path.as_str();
        let (folders, file) = text.rsplit_once('/').unwrap_or(("", text));
        if is_plain(text) {
            return with_folded(file, names::file_kind);
        }
        match Self::of_names(folders, file, overrides, true) {
            Self::SecretLike if overrides.is_not_secret(path, false) => Self::of_names(folders, file, overrides, false),
            kind => kind,
        }
    }

    /// Returns the kind of `file` in `folders` by the rules for every name of the path.
    fn of_names(folders: &str, file: &str, overrides: &dyn KindOverrides, has_secrets: bool) -> Self {
        let mut above = PathClassifier::new(overrides, has_secrets);
        above.walk(folders);
        above.kind_with(file, names::file_kind)
    }

    /// Returns the kind of the folder at `path`: `SecretLike`, `GitInternal`, `Generated` or `Vendored` if everything under it
    /// has this kind, otherwise `Directory`. By default, walks enter only a `Directory`.
    pub fn of_dir(path: &LogicalPath) -> Self {
        Self::of_dir_with(path, &NoOverrides)
    }

    /// Like [`of_dir`](Self::of_dir), with overrides.
    pub(crate) fn of_dir_with(path: &LogicalPath, overrides: &dyn KindOverrides) -> Self {
        let of_folders = |has_secrets| {
            let mut above = PathClassifier::new(overrides, has_secrets);
            if !path.is_root() {
                above.walk(path.as_str());
            }
            above.kind.unwrap_or(Self::Directory)
        };
        match of_folders(true) {
            Self::SecretLike if overrides.is_not_secret(path, true) => of_folders(false),
            kind => kind,
        }
    }

    /// Whether a folder called `name` is build output, unless Git tracks it.
    pub fn is_build_output(name: &str) -> bool {
        with_folded(name, names::is_build_output)
    }

    /// Returns the names, in lower case, of folders that a build, a test or an installation of dependencies fills. What such a folder has
    /// is not taken from a command, unless the run has something in it already.
    pub fn filled_folders() -> impl Iterator<Item = &'static str> {
        names::filled_folders()
    }

    /// Returns the kind of the file at `path` whose first bytes are `head` (8 KiB are enough).
    ///
    /// A private key is a secret under any name. For other secrets, Git-internal files, generated and vendored files and
    /// lockfiles, the name alone decides. Use [`is_binary`] to find out whether such a file is text.
    pub fn of_file(path: &LogicalPath, head: &[u8]) -> Self {
        Self::of_path(path).with_head(head)
    }
}

/// Substrings of which a path contains at least one if a folder affects its kind, or if its last name may be secret.
static MARKS: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    let folders = names::classified_folders().map(|name| format!("{name}/"));
    let fixed = [".git", "git~1", "\\"].map(str::to_owned);
    AhoCorasick::builder()
        .ascii_case_insensitive(true)
        .kind(Some(AhoCorasickKind::DFA))
        .build(folders.chain(secret::marks()).chain(fixed))
        .ok()
});

/// Whether only the last name of a path decides its kind, as for most paths. Takes one pass over the path.
fn is_plain(path: &str) -> bool {
    let is_printable = path.bytes().fold(true, |all, byte| all & matches!(byte, b' '..=b'~'));
    is_printable && MARKS.as_ref().is_some_and(|marks| !marks.is_match(path))
}

/// Facts about a run's paths that override the kinds by name.
pub(crate) trait KindOverrides {
    /// Whether the operator states that `path` is not secret.
    fn is_not_secret(&self, path: &LogicalPath, is_folder: bool) -> bool;

    /// Whether the folder at `path`, which has a name of build output, is source.
    fn is_source_folder(&self, path: &str) -> bool;
}

/// No overrides: the kinds follow from the names.
struct NoOverrides;

impl KindOverrides for NoOverrides {
    fn is_not_secret(&self, _: &LogicalPath, _: bool) -> bool {
        false
    }

    fn is_source_folder(&self, _: &str) -> bool {
        false
    }
}

/// Determines the kind of a path name by name, from the root down.
struct PathClassifier<'a> {
    overrides: &'a dyn KindOverrides,
    /// Whether the rules for names of secrets apply.
    has_secrets: bool,
    kind: Option<FileKind>,
    parent: Parent,
}

impl<'a> PathClassifier<'a> {
    fn new(overrides: &'a dyn KindOverrides, has_secrets: bool) -> Self {
        Self { overrides, has_secrets, kind: None, parent: Parent::default() }
    }

    /// Processes the names of `folders`, from the root down.
    fn walk(&mut self, folders: &str) {
        // A backslash separates names on other systems and in archives from them.
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
                let is_source = names::is_build_output(folded) && self.overrides.is_source_folder(path);
                names::folder_kind(folded).filter(|_| !is_source)
            };
            let kind = self.secret_or_git(name, folded).or_else(of_folder);
            self.parent = Parent::of(folded, self.parent);
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

    /// Returns the kind of the file `name` in the current folder.
    fn kind_with(mut self, name: &str, by_name: impl FnOnce(&str) -> FileKind) -> FileKind {
        let name = match name.trim_end_matches('\\').rsplit_once('\\') {
            Some((folders, file)) => {
                // On this system these are not folders, so Git cannot track them.
                self.overrides = &NoOverrides;
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
