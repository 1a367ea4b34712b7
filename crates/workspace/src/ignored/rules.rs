//! One `.gitignore` file, read and compiled.

use std::ffi::OsStr;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use model::Sha256;

use super::Level;

/// Larger rule files are not compiled: a hostile file must not cost memory and time.
const MAX_BYTES: usize = 256 * 1024;

/// A file with rules. It is compiled on first use.
pub(crate) struct RuleFile {
    sha256: Sha256,
    text: Vec<u8>,
    compiled: OnceLock<Option<Gitignore>>,
}

/// Reads a rule file, up to the size at which it counts as too large.
pub(crate) fn read(file: OwnedFd) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    std::fs::File::from(file).take(MAX_BYTES as u64 + 1).read_to_end(&mut text)?;
    Ok(text)
}

impl RuleFile {
    pub(crate) fn new(text: Vec<u8>) -> Self {
        Self { sha256: Sha256::of(&text), text, compiled: OnceLock::new() }
    }

    pub(super) fn is_same_text(&self, other: &Self) -> bool {
        self.sha256 == other.sha256
    }

    /// Matches `path`, relative to the rules' folder: excluded, re-included, or `None` if no rule matches.
    pub(crate) fn matches(&self, path: &[u8], is_folder: bool) -> Option<bool> {
        let compiled = self.compiled.get_or_init(|| compile(&self.text));
        // Rules that cannot be compiled might have excluded anything.
        let Some(compiled) = compiled else { return Some(true) };
        match compiled.matched(Path::new(OsStr::from_bytes(path)), is_folder) {
            Match::Ignore(_) => Some(true),
            Match::Whitelist(_) => Some(false),
            Match::None => None,
        }
    }
}

impl std::fmt::Debug for RuleFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RuleFile({} bytes)", self.text.len())
    }
}

/// Whether the rules that `pick` selects exclude `path`. They are asked from the folder `level` upwards; the first match
/// decides.
pub(super) fn is_excluded(
    level: &Arc<Level>,
    path: &[u8],
    is_folder: bool,
    pick: impl Fn(&Level) -> Option<&RuleFile>,
) -> bool {
    let mut next = Some(level);
    while let Some(level) = next {
        let matched = pick(level).and_then(|rules| rules.matches(path.get(level.prefix..)?, is_folder));
        if let Some(excluded) = matched {
            return excluded;
        }
        next = level.above.as_ref();
    }
    false
}

fn compile(text: &[u8]) -> Option<Gitignore> {
    if text.len() > MAX_BYTES {
        return None;
    }
    let mut builder = GitignoreBuilder::new(".");
    builder.allow_unclosed_class(false);
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    for line in text.split(|byte| *byte == b'\n') {
        // As in git, a line that is not a valid glob or not text matches nothing.
        if let Ok(line) = std::str::from_utf8(line) {
            let _bad_glob = builder.add_line(None, line.strip_suffix('\r').unwrap_or(line));
        }
    }
    builder.build().ok()
}
