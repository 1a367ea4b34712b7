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
    pub fn of_path(path: &LogicalPath) -> Self {
        if path.is_root() {
            return Self::Directory;
        }
        let text = path.as_str();
        let (folders, file) = text.rsplit_once('/').unwrap_or(("", text));
        if is_plain(text) {
            return with_folded(file, names::file_kind);
        }
        Self::of_names(folders, file)
    }

    /// The kind of `file` in `folders`, by every rule.
    fn of_names(folders: &str, file: &str) -> Self {
        let mut above = Above::default();
        above.walk(folders);
        above.kind_with(file, names::file_kind)
    }

    /// The kind of the folder at `path`: `SecretLike`, `GitInternal`, `Generated` or `Vendored` where everything beneath
    /// it is that, and `Directory` otherwise. A walk need not enter a folder that is not a `Directory` unless it was
    /// asked to.
    pub fn of_dir(path: &LogicalPath) -> Self {
        let mut above = Above::default();
        if !path.is_root() {
            above.walk(path.as_str());
        }
        above.kind.unwrap_or(Self::Directory)
    }

    /// The kind of the file at `path` with `head` as its first bytes (8 KiB are enough).
    ///
    /// A name that tells a secret, git's own, something generated, vendored or a lockfile stands whatever the bytes are;
    /// so ask [`is_binary`] besides where it matters whether such a file is text.
    pub fn of_file(path: &LogicalPath, head: &[u8]) -> Self {
        match Self::of_path(path) {
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

/// What the names on the way to a file make of it.
#[derive(Default)]
struct Above {
    kind: Option<FileKind>,
    parent: Parent,
}

impl Above {
    /// Goes through `folders`, from the top.
    fn walk(&mut self, folders: &str) {
        // A backslash separates names on other systems, and in archives that were made there.
        for name in folders.split(['/', '\\']).filter(|name| !name.is_empty()) {
            self.enter(name);
        }
    }

    fn enter(&mut self, name: &str) {
        let kind = with_folded(name, |folded| {
            let kind = self.secret_or_git(name, folded).or_else(|| names::folder_kind(folded));
            self.parent = Parent::of(folded);
            kind
        });
        self.kind = match (self.kind, kind) {
            (Some(above), Some(kind)) => Some(above.stricter(kind)),
            (above, kind) => above.or(kind),
        };
    }

    fn secret_or_git(&self, name: &str, folded: &str) -> Option<FileKind> {
        if secret::is_secret(folded, self.parent) {
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
