//! Names of objects.

use std::fmt;

use model::Sha256;

/// What the names of contents begin with.
const CONTENTS: &str = "cas/";
/// What the names of the indexes of bases begin with.
const BASES: &str = "bases/";
/// What the name of an index ends with.
const INDEX: &str = "/index";
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
    /// What names the parts of a base, which are contents: `bases/{base}/index`.
    BaseIndex(BaseId),
}

impl BaseId {
    /// Returns the ID of the base of `commit`. `manifest_sha256` is the hash of its tracked files, `untracked_sha256` that of the
    /// files which git ignores, if there are any. `None` if the commit is not a hexadecimal hash.
    pub fn new(commit: &str, manifest_sha256: Sha256, untracked_sha256: Option<Sha256>) -> Option<Self> {
        let files = match untracked_sha256 {
            None => manifest_sha256,
            Some(untracked) => Sha256::of(format!("{manifest_sha256}\n{untracked}\n").as_bytes()),
        };
        is_commit(commit).then(|| Self { commit: commit.to_owned(), files })
    }

    /// Returns the name of its index.
    pub fn index(&self) -> ObjectName {
        ObjectName::BaseIndex(self.clone())
    }

    /// Returns what the ledger names the base by.
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
    /// What the names of the indexes of all bases begin with.
    pub const BASES: &str = BASES;

    /// Parses the name of an object in a store; `None` if it is another one.
    pub fn parse(raw: &str) -> Option<Self> {
        if let Some(hash) = raw.strip_prefix(CONTENTS) {
            return Sha256::parse(hash).ok().map(Self::Content);
        }
        let base = raw.strip_prefix(BASES)?.strip_suffix(INDEX)?;
        BaseId::parse(base).map(Self::BaseIndex)
    }

    /// Returns the object that the ledger names `reference`; `None` if there is no such name.
    pub fn of_reference(reference: &str) -> Option<Self> {
        Self::parse(reference).or_else(|| Self::parse(&format!("{reference}{INDEX}")))
    }

    /// Returns the name by which the ledger refers to the object.
    pub fn reference(&self) -> String {
        match self {
            Self::Content(_) => self.to_string(),
            Self::BaseIndex(base) => base.prefix(),
        }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Content(sha256) => write!(f, "{CONTENTS}{sha256}"),
            Self::BaseIndex(base) => write!(f, "{BASES}{base}{INDEX}"),
        }
    }
}

fn is_commit(raw: &str) -> bool {
    matches!(raw.len(), 40 | 64) && raw.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_parsed_as_they_are_written() {
        let hash = Sha256::of(b"a");
        let commit = "0123456789abcdef0123456789abcdef01234567";
        let base = BaseId::new(commit, hash, None).unwrap();
        for name in [ObjectName::Content(hash), base.index()] {
            assert_eq!(ObjectName::parse(&name.to_string()), Some(name.clone()));
            assert_eq!(ObjectName::of_reference(&name.reference()), Some(name));
        }
        assert_eq!(base.index().reference(), format!("bases/{commit}-{hash}"));
        let other = BaseId::new(commit, hash, Some(hash)).unwrap();
        assert_ne!(base.prefix(), other.prefix());
    }

    #[test]
    fn other_names_are_not_objects() {
        let hash = Sha256::of(b"a");
        let part = format!("bases/{}-{hash}/manifest", "a".repeat(40));
        for other in ["cas/", "cas/1f", "bases/x/index", "run.zip", "", &format!("cas/{hash}/x"), &part] {
            assert_eq!(ObjectName::parse(other), None, "{other}");
        }
        assert!(BaseId::new("HEAD", hash, None).is_none());
    }
}
