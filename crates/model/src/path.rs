//! Logical paths, by which callers name files.

pub(crate) mod confusables;
mod link;

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use unicode_normalization::UnicodeNormalization as _;

use crate::id::validated_string;
use crate::path::confusables::with_folded;

pub use link::link_stays_inside;

/// The maximum length of a path, in bytes.
pub const MAX_PATH_BYTES: usize = 4096;
/// The maximum length of the name of a new file or folder, in bytes.
const MAX_NAME_BYTES: usize = 255;
/// What the name of a deleted file begins with in a layer, as in those of OCI images.
pub const WHITEOUT: &str = ".wh.";
/// The maximum depth of a new file, in names.
const MAX_NAMES: usize = 64;

/// A path in a run's tree or in a mount: relative, `/`-separated, without `..` and never in `.git`.
///
/// `.` is the root. The path need not exist. Only the `workspace` crate opens files by it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, example = "src/main.rs")]
pub struct LogicalPath(String);

/// The rule that a path breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages describe them")]
pub enum PathRejected {
    #[error("the path is empty")]
    Empty,
    #[error("the path is longer than {MAX_PATH_BYTES} bytes")]
    TooLong,
    #[error("the path contains a NUL byte")]
    Nul,
    #[error("the path is absolute")]
    Absolute,
    #[error("the path leaves the workspace by `..`")]
    ParentDir,
    #[error("the path is in `.git`, which no tool can access")]
    GitInternal,
    #[error("the path is in a submodule: another repository, whose files this run does not have")]
    Submodule,
    #[error("a submodule is in the folder at this path")]
    AboveSubmodule,
    #[error("a file's path may not end in `/`")]
    TrailingSlash,
    #[error("a new name may not contain control or bidirectional characters")]
    ControlCharacter,
    #[error("the path is written as a home folder, URL, drive or variable, which is not resolved")]
    Foreign,
    #[error("an existing name differs from it only in its Unicode form, so that the two could not be told apart")]
    CanonicallyEqual,
    #[error("a new name may not contain a backslash")]
    Backslash,
    #[error("a new name may not end in a dot or a space")]
    TrailingDotOrSpace,
    #[error("a new name may not begin with `.wh.`, which in a layer names a deleted file")]
    Whiteout,
    #[error("a new name may not be longer than {MAX_NAME_BYTES} bytes")]
    NameTooLong,
    #[error("a new path may not have more than {MAX_NAMES} names")]
    TooDeep,
    #[error("the path leaves the workspace by a symbolic link")]
    LinkOut,
    #[error("the path contains a symbolic link, which mutations do not follow")]
    LinkInMutation,
    #[error("a symbolic link of the path points to a name that is not UTF-8")]
    LinkToUnnameable,
}

impl PathRejected {
    /// What a caller can do instead.
    pub fn hint(self) -> &'static str {
        match self {
            Self::GitInternal => {
                "Continue without it. diff_workspace shows what the run has changed; a reviewer makes the commits."
            }
            Self::Submodule | Self::AboveSubmodule => {
                "Continue without it. `.gitmodules` names the submodule's repository: its files can be read and changed in a run \
                 of that repository."
            }
            Self::TrailingSlash => "Leave out the `/` at the end. Folders exist as soon as they have a file.",
            Self::TooLong | Self::NameTooLong | Self::TooDeep => "Choose a shorter path.",
            Self::Nul | Self::ControlCharacter | Self::Backslash | Self::TrailingDotOrSpace | Self::Whiteout => {
                "Choose a name without it, and separate names by `/`."
            }
            Self::Foreign => "Name a path relative to the workspace's root, such as `src/main.rs`.",
            Self::CanonicallyEqual => "Use the existing name, or choose one that differs in its letters.",
            Self::LinkInMutation => "Change the file that the link points to, under that file's own path.",
            Self::Empty => "Name a path relative to the workspace's root, which is `.`.",
            Self::Absolute | Self::ParentDir | Self::LinkOut | Self::LinkToUnnameable => {
                "Name a path inside the workspace, relative to its root and separated by `/`."
            }
        }
    }
}

impl LogicalPath {
    /// The root of the tree.
    pub fn root() -> Self {
        Self(".".to_owned())
    }

    /// Parses `raw`: removes `.`, repeated slashes and a trailing `/`, and resolves `..`. `.` alone is the root.
    ///
    /// # Errors
    ///
    /// Returns the first rule broken.
    pub fn parse(raw: &str) -> Result<Self, PathRejected> {
        match raw {
            "" => return Err(PathRejected::Empty),
            _ if raw.len() > MAX_PATH_BYTES => return Err(PathRejected::TooLong),
            _ if raw.contains('\0') => return Err(PathRejected::Nul),
            _ if raw.starts_with('/') => return Err(PathRejected::Absolute),
            _ => {}
        }
        let is_clean = raw.split('/').all(|name| !matches!(name, "" | "." | ".."));
        let path = if is_clean { raw.to_owned() } else { clean(raw)? };
        if may_be_git_internal(&path) && path.split('/').any(is_git_internal) {
            return Err(PathRejected::GitInternal);
        }
        Ok(Self(path))
    }

    /// Parses the path of a file: like [`parse`](Self::parse), but refuses a trailing `/`.
    ///
    /// # Errors
    ///
    /// Returns the first rule broken.
    pub fn parse_file(raw: &str) -> Result<Self, PathRejected> {
        let path = Self::parse(raw)?;
        if raw.ends_with('/') { Err(PathRejected::TrailingSlash) } else { Ok(path) }
    }

    /// Checks the rules for names that do not exist yet.
    ///
    /// # Errors
    ///
    /// Returns the first rule broken.
    pub fn check_new(&self) -> Result<(), PathRejected> {
        if is_foreign(&self.0) {
            return Err(PathRejected::Foreign);
        }
        if self.components().count() > MAX_NAMES {
            return Err(PathRejected::TooDeep);
        }
        self.components().try_for_each(check_new_name)
    }

    /// Whether this is the root of the tree.
    pub fn is_root(&self) -> bool {
        self.0 == "."
    }

    /// The names from the root down; empty for the root itself.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.0.split('/').filter(|name| *name != ".")
    }

    /// The last name; `.` for the root.
    pub fn file_name(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(".")
    }

    /// The folder that contains it; `None` for the root.
    pub fn parent(&self) -> Option<Self> {
        match self.0.rsplit_once('/') {
            _ if self.is_root() => None,
            Some((parent, _)) => Some(Self(parent.to_owned())),
            None => Some(Self::root()),
        }
    }

    /// Whether this path is under the folder `above`, at any depth. Compares names only and does not access the file system.
    pub fn is_under(&self, above: &Self) -> bool {
        if above.is_root() {
            return !self.is_root();
        }
        self.0.strip_prefix(above.as_str()).is_some_and(|rest| rest.starts_with('/'))
    }

    /// Two of `paths` of which the second is under the first, so that both cannot be files; `None` if no such pair exists.
    pub fn find_nested<'a>(paths: impl IntoIterator<Item = &'a Self>) -> Option<(&'a Self, &'a Self)> {
        let mut paths: Vec<_> = paths.into_iter().collect();
        // Compares name by name, not byte by byte: every path under another one then follows it directly.
        paths.sort_unstable_by(|a, b| a.components().cmp(b.components()));
        paths.windows(2).find(|pair| pair[1].is_under(pair[0])).map(|pair| (pair[0], pair[1]))
    }

    /// Returns the path `name` in this folder. `name` may have several parts.
    ///
    /// # Errors
    ///
    /// Returns the first rule broken, as [`parse`](Self::parse) does, and `ParentDir` if the result would be outside this folder.
    pub fn child(&self, name: &str) -> Result<Self, PathRejected> {
        let below = Self::parse(name)?;
        if below.is_root() {
            return Err(PathRejected::ParentDir);
        }
        match self.0.len() + 1 + below.0.len() {
            _ if self.is_root() => Ok(below),
            length if length > MAX_PATH_BYTES => Err(PathRejected::TooLong),
            _ => Ok(Self([self.0.as_str(), "/", below.0.as_str()].concat())),
        }
    }
}

validated_string!(LogicalPath, PathRejected);

/// Returns the name in the composed form of Unicode (NFC), which canonically equal names share.
pub fn composed(name: &str) -> Cow<'_, str> {
    if name.is_ascii() { Cow::Borrowed(name) } else { Cow::Owned(name.nfc().collect()) }
}

/// Whether a path is written as shells, programs and other systems write places outside of the workspace: `~/a`, `file:a`, `C:/a`,
/// `$HOME/a`.
pub(crate) fn is_foreign(path: &str) -> bool {
    let first = path.split(['/', '\\']).next().unwrap_or(path);
    let is_drive = |name: &str| matches!(name.as_bytes(), [letter, b':'] if letter.is_ascii_alphabetic());
    let is_variable = |name: &str| {
        let name = name.strip_prefix('$').map(|name| name.trim_start_matches('{').trim_end_matches('}'));
        name.is_some_and(|name| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_'))
    };
    let is_percent = |name: &str| name.len() > 2 && name.starts_with('%') && name.ends_with('%');
    let has_rest = first.len() < path.len();
    path.get(..5).is_some_and(|start| start.eq_ignore_ascii_case("file:"))
        || (has_rest && (first == "~" || is_drive(first) || is_variable(first) || is_percent(first)))
}

/// Removes `.` and repeated slashes and resolves `..` by name. The kernel never receives `..`, so it cannot resolve it
/// differently through a symbolic link.
fn clean(raw: &str) -> Result<String, PathRejected> {
    let mut names = Vec::new();
    for name in raw.split('/') {
        match name {
            "" | "." => {}
            ".." => drop(names.pop().ok_or(PathRejected::ParentDir)?),
            name => names.push(name),
        }
    }
    Ok(if names.is_empty() { ".".to_owned() } else { names.join("/") })
}

/// Whether a name in `path` may be `.git`: a quick check of its bytes that rules out almost every path.
fn may_be_git_internal(path: &str) -> bool {
    let bytes = path.as_bytes();
    let is_git = |at: usize| bytes.get(at..at + 3).is_some_and(|name| name.eq_ignore_ascii_case(b"git"));
    let is_plain = bytes.iter().fold(true, |all, byte| all & matches!(byte, b' '..=b'~'));
    !is_plain
        || memchr::memchr2_iter(b'.', b'~', bytes)
            .any(|at| if bytes[at] == b'.' { is_git(at + 1) } else { at >= 3 && is_git(at - 3) })
}

/// Whether some file system treats `name` as `.git`: letter case, compatibility forms, invisible characters, the short
/// name, the separator of other systems, and trailing dots, blanks or streams.
pub(crate) fn is_git_internal(name: &str) -> bool {
    let is_git = |part: &str| {
        let file = part.split(':').next().unwrap_or(part);
        matches!(file.trim_end_matches(['.', ' ']), ".git" | "git~1")
    };
    with_folded(name, |folded| folded.split('\\').any(is_git))
}

/// Whether `c` is a control character, ends a line, or changes the direction of the text around it. A name that contains one
/// is displayed as another name.
pub fn is_unprintable(c: char) -> bool {
    if c.is_ascii() {
        return c.is_ascii_control();
    }
    let bidirectional =
        matches!(c, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    c.is_control() || bidirectional || matches!(c, '\u{2028}' | '\u{2029}')
}

fn check_new_name(name: &str) -> Result<(), PathRejected> {
    if name.len() > MAX_NAME_BYTES {
        Err(PathRejected::NameTooLong)
    } else if name.chars().any(is_unprintable) {
        Err(PathRejected::ControlCharacter)
    } else if name.contains('\\') {
        Err(PathRejected::Backslash)
    } else if name.ends_with(['.', ' ']) {
        Err(PathRejected::TrailingDotOrSpace)
    } else if name.starts_with(WHITEOUT) {
        Err(PathRejected::Whiteout)
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
