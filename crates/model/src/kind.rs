//! What kind of file a path names, from its name and its first bytes.

mod fold;
mod names;
mod secret;

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use serde::{Deserialize, Serialize};

pub use self::fold::fold_name;
pub(crate) use self::fold::with_folded;
use self::secret::Parent;
use crate::LogicalPath;
use crate::path::is_git_internal;

/// What a file is to policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[expect(missing_docs, reason = "the contract's table of kinds says what each means")]
pub enum FileKind {
    TextSource,
    TextConfig,
    TextDoc,
    Lockfile,
    Generated,
    Vendored,
    SecretLike,
    Binary,
    Directory,
    GitInternal,
    Unknown,
}

impl FileKind {
    /// Every kind.
    pub const ALL: [Self; 11] = [
        Self::TextSource,
        Self::TextConfig,
        Self::TextDoc,
        Self::Lockfile,
        Self::Generated,
        Self::Vendored,
        Self::SecretLike,
        Self::Binary,
        Self::Directory,
        Self::GitInternal,
        Self::Unknown,
    ];

    /// The kind as callers see it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::TextSource => "TEXT_SOURCE",
            Self::TextConfig => "TEXT_CONFIG",
            Self::TextDoc => "TEXT_DOC",
            Self::Lockfile => "LOCKFILE",
            Self::Generated => "GENERATED",
            Self::Vendored => "VENDORED",
            Self::SecretLike => "SECRET_LIKE",
            Self::Binary => "BINARY",
            Self::Directory => "DIRECTORY",
            Self::GitInternal => "GIT_INTERNAL",
            Self::Unknown => "UNKNOWN",
        }
    }

    /// The kind of the file at `path`, as far as its name and the folders above it tell; `Unknown` where only the bytes
    /// can tell.
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
        let mut above = Above::new(exceptions, has_secrets);
        above.walk(folders);
        above.kind_with(file, names::file_kind)
    }

    /// The kind of the folder at `path`: `SecretLike`, `GitInternal`, `Generated` or `Vendored` where everything beneath
    /// it is that, and `Directory` otherwise. A walk need not enter a folder that is not a `Directory` unless it was
    /// asked to.
    pub fn of_dir(path: &LogicalPath) -> Self {
        Self::of_dir_except(path, &NoExceptions)
    }

    /// As [`of_dir`](Self::of_dir), with exceptions.
    pub(crate) fn of_dir_except(path: &LogicalPath, exceptions: &dyn Exceptions) -> Self {
        let of_folders = |has_secrets| {
            let mut above = Above::new(exceptions, has_secrets);
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
    /// A name that tells a secret, git's own, something generated, vendored or a lockfile stands whatever the bytes are;
    /// so ask [`is_binary`] besides where it matters whether such a file is text.
    pub fn of_file(path: &LogicalPath, head: &[u8]) -> Self {
        Self::of_path(path).with_head(head)
    }

    /// The kind of a file whose name tells this kind and whose first bytes are `head`.
    pub(crate) fn with_head(self, head: &[u8]) -> Self {
        match self {
            strict @ (Self::SecretLike | Self::GitInternal | Self::Generated | Self::Vendored | Self::Lockfile) => {
                strict
            }
            _ if is_binary(head) => Self::Binary,
            // The name says binary and the bytes do not: an empty file, a pointer to a large one.
            Self::Binary | Self::Directory | Self::Unknown => Self::Unknown,
            text @ (Self::TextSource | Self::TextConfig | Self::TextDoc) => text,
        }
    }

    /// How strict policy is with the kind, for comparing two kinds of one file.
    fn strictness(self) -> u8 {
        match self {
            Self::SecretLike => 9,
            Self::GitInternal => 8,
            Self::Generated | Self::Vendored => 7,
            Self::Lockfile => 6,
            Self::Binary => 5,
            Self::Directory => 4,
            Self::Unknown => 3,
            Self::TextConfig => 2,
            Self::TextSource => 1,
            Self::TextDoc => 0,
        }
    }

    /// The kind that policy is stricter with; of equals the first.
    #[must_use]
    pub fn stricter(self, other: Self) -> Self {
        if other.strictness() > self.strictness() { other } else { self }
    }
}

/// What a path has in it if any name but its last can matter, or if its last is that of a secret.
static MARKS: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    let folders = names::telling_folders().map(|name| format!("{name}/"));
    let fixed = secret::MARKS.iter().copied().chain([".git", "git~1", "\\"]);
    AhoCorasick::builder()
        .ascii_case_insensitive(true)
        .kind(Some(AhoCorasickKind::DFA))
        .build(folders.chain(fixed.map(str::to_owned)))
        .ok()
});

/// Whether only the last name of a path tells its kind: by far the most paths, and one pass over them.
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
struct Above<'a> {
    exceptions: &'a dyn Exceptions,
    /// Whether names of secrets count.
    has_secrets: bool,
    kind: Option<FileKind>,
    parent: Parent,
}

impl<'a> Above<'a> {
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

/// Whether a file that begins with `head` is no text: it holds a NUL, more control characters than a text would, or the
/// mark of a well-known format. UTF-16 with a byte order mark is text.
pub fn is_binary(head: &[u8]) -> bool {
    const MARKS: [&[u8]; 8] =
        [b"%PDF-", b"PK\x03\x04", b"\x1f\x8b", b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"\x7fELF", b"7z\xbc\xaf"];
    match head {
        [0xff, 0xfe, rest @ ..] => is_binary_utf16(rest, u16::from_le_bytes),
        [0xfe, 0xff, rest @ ..] => is_binary_utf16(rest, u16::from_be_bytes),
        _ if MARKS.iter().any(|mark| head.starts_with(mark)) => true,
        _ if memchr::memchr(0, head).is_some() => true,
        _ => {
            let controls = odd_controls(head);
            // Bytes that are no UTF-8 may be text of an older encoding; with controls among them, they are not.
            let tolerated = if is_utf8_head(head) { 3 } else { 20 };
            controls * tolerated > head.len()
        }
    }
}

/// A control character that texts do not hold; tabs, line and page breaks, backspaces and escapes are in some.
fn is_odd_control(unit: u16) -> bool {
    matches!(unit, 0..=7 | 0x0b | 0x0e..=0x1a | 0x1c..=0x1f | 0x7f)
}

/// How many bytes of `head` are such characters. Every file that is read comes by here, so it is written for the
/// compiler to take many bytes at a time: sums that fit a byte, of whole vectors, and comparisons that need no branch.
fn odd_controls(head: &[u8]) -> usize {
    const SUMMED: usize = u8::MAX as usize & !31;
    let is_odd = |byte: u8| {
        byte <= 7
            || byte == 0x0b
            || byte.wrapping_sub(0x0e) <= 0x1a - 0x0e
            || byte.wrapping_sub(0x1c) <= 0x1f - 0x1c
            || byte == 0x7f
    };
    head.chunks(SUMMED).map(|chunk| usize::from(chunk.iter().map(|byte| u8::from(is_odd(*byte))).sum::<u8>())).sum()
}

fn is_binary_utf16(units: &[u8], to_unit: fn([u8; 2]) -> u16) -> bool {
    let units = || units.chunks_exact(2).map(|pair| to_unit([pair[0], pair[1]]));
    let controls = units().filter(|unit| is_odd_control(*unit)).count();
    units().any(|unit| unit == 0) || controls * 3 > units().count()
}

/// Whether `head` is UTF-8, but for a character that its end cuts.
fn is_utf8_head(head: &[u8]) -> bool {
    match std::str::from_utf8(head) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none(),
    }
}

#[cfg(test)]
mod tests;
