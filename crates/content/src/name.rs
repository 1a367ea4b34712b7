//! Names of objects.

use std::fmt;

use model::Sha256;

/// What the names of contents begin with.
const CONTENTS: &str = "cas/";
/// What the names of the parts of bases begin with.
const BASES: &str = "bases/";
/// The longest name of a part of a base, in bytes.
const MAX_PART_BYTES: usize = 128;

/// The identity of a base: its commit, and the hash of its files. Two repositories can have one commit, but no two bases have one
/// ID and other files.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct BaseId {
    commit: String,
    files: Sha256,
}

/// The name of an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ObjectName {
    /// A content, named by its hash: `cas/{sha256}`.
    Content(Sha256),
    /// A part of a base: `bases/{base}/{part}`.
    BasePart(BaseId, String),
}

/// The name of a part of a base has other characters than lower-case letters, digits, `.` and `-`, or is too long.
#[derive(Debug, thiserror::Error)]
#[error("the name of a part of a base is not valid")]
pub struct InvalidPart;

impl BaseId {
    /// The part with the hashes of the others.
    pub const INDEX: &str = "index";

    /// Returns the ID of the base of `commit`. `manifest_sha256` is the hash of its tracked files, `untracked_sha256` that of the
    /// files which git ignores, if there are any. `None` if the commit is not a hexadecimal hash.
    pub fn new(commit: &str, manifest_sha256: Sha256, untracked_sha256: Option<Sha256>) -> Option<Self> {
        let files = match untracked_sha256 {
            None => manifest_sha256,
            Some(untracked) => Sha256::of(format!("{manifest_sha256}\n{untracked}\n").as_bytes()),
        };
        is_commit(commit).then(|| Self { commit: commit.to_owned(), files })
    }

    /// Returns the name of the part `part`.
    ///
    /// # Errors
    ///
    /// [`InvalidPart`].
    pub fn part(&self, part: &str) -> Result<ObjectName, InvalidPart> {
        if is_part(part) { Ok(ObjectName::BasePart(self.clone(), part.to_owned())) } else { Err(InvalidPart) }
    }

    /// Returns what the names of all parts begin with, and what the ledger names the base by.
    pub fn prefix(&self) -> String {
        format!("{BASES}{self}")
    }

    fn parse(raw: &str) -> Option<Self> {
        let (commit, files) = raw.split_once('-')?;
        let files = Sha256::parse(files).ok()?;
        is_commit(commit).then(|| Self { commit: commit.to_owned(), files })
    }
}

impl fmt::Display for BaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.commit, self.files)
    }
}

impl ObjectName {
    /// What the names of all contents begin with.
    pub const CONTENTS: &str = CONTENTS;
    /// What the names of the parts of all bases begin with.
    pub const BASES: &str = BASES;

    /// Parses the name of an object in a store; `None` if it is another one.
    pub fn parse(raw: &str) -> Option<Self> {
        if let Some(hash) = raw.strip_prefix(CONTENTS) {
            return Sha256::parse(hash).ok().map(Self::Content);
        }
        let (base, part) = raw.strip_prefix(BASES)?.split_once('/')?;
        BaseId::parse(base)?.part(part).ok()
    }

    /// Whether it is the index of a base, without which the base does not exist.
    pub fn is_index(&self) -> bool {
        matches!(self, Self::BasePart(_, part) if part == BaseId::INDEX)
    }

    /// Returns the name by which the ledger refers to the object: the parts of a base have one together.
    pub fn reference(&self) -> String {
        match self {
            Self::Content(_) => self.to_string(),
            Self::BasePart(base, _) => base.prefix(),
        }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Content(sha256) => write!(f, "{CONTENTS}{sha256}"),
            Self::BasePart(base, part) => write!(f, "{BASES}{base}/{part}"),
        }
    }
}

fn is_commit(raw: &str) -> bool {
    matches!(raw.len(), 40 | 64) && raw.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

fn is_part(raw: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'.' || byte == b'-';
    !raw.is_empty() && raw.len() <= MAX_PART_BYTES && raw.bytes().all(is_plain) && !raw.starts_with('.')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_as_they_are_written() {
        let hash = Sha256::of(b"a");
        let commit = "0123456789abcdef0123456789abcdef01234567";
        let base = BaseId::new(commit, hash, None).unwrap();
        let names = [ObjectName::Content(hash), base.part("pack-1f.pack").unwrap(), base.part("index").unwrap()];
        for name in names {
            assert_eq!(ObjectName::parse(&name.to_string()), Some(name));
        }
        assert_eq!(base.part("index").unwrap().reference(), format!("bases/{commit}-{hash}"));
        let other = BaseId::new(commit, hash, Some(hash)).unwrap();
        assert_ne!(base.prefix(), other.prefix());
    }

    #[test]
    fn other_names_are_not_objects() {
        let hash = Sha256::of(b"a");
        let long = format!("bases/{}-{hash}/{}", "a".repeat(40), "p".repeat(129));
        for other in ["cas/", "cas/1f", "bases/x/index", "run.zip", "", &format!("cas/{hash}/x"), &long] {
            assert_eq!(ObjectName::parse(other), None, "{other}");
        }
        assert!(BaseId::new("HEAD", hash, None).is_none());
        let base = BaseId::new(&"a".repeat(40), hash, None).unwrap();
        for part in ["", "..", "a/b", "A", ".git"] {
            assert!(base.part(part).is_err(), "{part}");
        }
    }
}
