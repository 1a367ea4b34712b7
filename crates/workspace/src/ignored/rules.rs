//! One `.gitignore` file, read and compiled.

use std::collections::HashMap;
use std::io::{self, Read as _};
use std::sync::OnceLock;

use model::Sha256;

use super::pattern::{IgnorePattern, Rule, Steps};

/// Larger rule files are not compiled: a hostile file must not cost memory and time.
pub(crate) const MAX_BYTES: usize = 256 * 1024;

/// A file with rules. It is compiled on first use.
pub(crate) struct RuleFile {
    /// The hash of the text.
    pub(super) sha256: Sha256,
    text: Vec<u8>,
    compiled: OnceLock<Option<FileRules>>,
}

/// Reads a rule file, up to the size at which it counts as too large.
pub(crate) fn read(file: impl io::Read) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    file.take(MAX_BYTES as u64 + 1).read_to_end(&mut text)?;
    Ok(text)
}

impl RuleFile {
    pub(crate) fn new(text: Vec<u8>) -> Self {
        Self { sha256: Sha256::of(&text), text, compiled: OnceLock::new() }
    }

    /// Matches `path`, relative to the rules' folder: excluded, re-included, or `None` if no rule matches. Rules that are made to be
    /// slow exclude it: hiding a file discloses nothing.
    pub(crate) fn matches(&self, path: &[u8], is_folder: bool) -> Option<bool> {
        let compiled = self.compiled.get_or_init(|| compile(&self.text));
        // Rules that are not compiled might have excluded anything.
        let Some(compiled) = compiled else { return Some(true) };
        compiled.excludes(path, is_folder)
    }
}

impl std::fmt::Debug for RuleFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RuleFile({} bytes)", self.text.len())
    }
}

/// The rules of a file, of which the last that matches decides.
struct FileRules {
    all: Vec<Rule>,
    /// Those whose pattern is the whole name of a file, by that name: a file may have many.
    by_name: HashMap<Vec<u8>, Vec<usize>>,
    /// The others.
    others: Vec<usize>,
}

impl FileRules {
    fn excludes(&self, path: &[u8], is_folder: bool) -> Option<bool> {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        // One bound for all rules of the file, of which there may be many.
        let mut steps = Steps::default();
        let mut matches = |at: usize| self.all[at].matches(path, name, is_folder, &mut steps);
        let mut named = self.by_name.get(name).into_iter().flatten().rev().copied();
        let named = named.find(|at| matches(*at) == Some(true));
        for at in self.others.iter().rev().copied().take_while(|at| named.is_none_or(|named| *at > named)) {
            match matches(at) {
                Some(false) => {}
                Some(true) => return Some(!self.all[at].is_negated),
                None => return Some(true),
            }
        }
        named.map(|at| !self.all[at].is_negated)
    }
}

fn compile(text: &[u8]) -> Option<FileRules> {
    if text.len() > MAX_BYTES {
        return None;
    }
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let lines = text.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let all: Vec<_> = lines.filter_map(Rule::parse).collect();
    let (mut by_name, mut others) = (HashMap::<_, Vec<_>>::new(), Vec::new());
    for (at, rule) in all.iter().enumerate() {
        match &rule.pattern {
            IgnorePattern::Literal(name) if !rule.has_folder => by_name.entry(name.clone()).or_default().push(at),
            IgnorePattern::Literal(_) | IgnorePattern::Suffix(_) | IgnorePattern::Glob(_) => others.push(at),
        }
    }
    Some(FileRules { all, by_name, others })
}
