//! What the records of an archive name, to compare its data with.

use std::collections::{HashMap, HashSet};

use model::{Outcome, Record, Sha256};

use crate::error::{ArchiveError, invalid};
use crate::manifest::{DATA, RECORDS};

/// The most contents, diffs and uploads that the records of an archive may name, which are held in memory.
const MAX_NAMED: usize = 8_000_000;

/// The contents, diffs and uploads that records name, less those that were found.
#[derive(Default)]
pub(crate) struct Named {
    /// The hash of each diff, by the ID of its artifact.
    diffs: HashMap<String, Sha256>,
    /// The number of the record that wrote a content, and its hash.
    contents: HashSet<(u64, Sha256)>,
    uploads: HashSet<Sha256>,
    /// The number of the record whose reply was found last. Replies are in order.
    last_reply: u64,
}

impl Named {
    /// Adds what a record names.
    pub(crate) fn add(&mut self, record: &Record) -> Result<(), ArchiveError> {
        let ids = || record.artifact_uris.iter().filter_map(|uri| uri.rsplit_once('/'));
        if let Some(sha256) = record.diff_sha256 {
            self.diffs.extend(ids().map(|(_, id)| (id.to_owned(), sha256)));
        }
        let uploads = ids().filter(|(of, _)| of.ends_with("/sha256"));
        self.uploads.extend(uploads.filter_map(|(_, hash)| Sha256::parse(hash).ok()));
        if record.outcome == Outcome::Ok && !record.paths_written.is_empty() {
            self.contents.extend(record.files.iter().filter_map(|file| Some((record.seq, file.new_sha256?))));
        }
        if self.diffs.len() + self.contents.len() + self.uploads.len() > MAX_NAMED {
            return Err(invalid(RECORDS, &format!("they name more than {MAX_NAMED} contents, diffs and uploads")));
        }
        Ok(())
    }

    /// Returns the hash that the file at `path` of the data must have; `None` for a reply, whose hash no record has.
    pub(crate) fn take(&mut self, path: &str, head_seq: u64) -> Result<Option<Sha256>, ArchiveError> {
        let (folder, name) = path.split_once('/').unwrap_or_default();
        let expected = match folder {
            "diffs" => self.diffs.remove(name),
            "contents" => name
                .split_once('/')
                .and_then(|(seq, hash)| Some((seq.parse().ok()?, Sha256::parse(hash).ok()?)))
                .filter(|named| self.contents.remove(named))
                .map(|(_, hash)| hash),
            "uploads" => Sha256::parse(name).ok().filter(|hash| self.uploads.remove(hash)),
            "replies" => {
                let seq = name.strip_suffix(".json").and_then(|seq| seq.parse().ok());
                let seq = seq.filter(|seq| (self.last_reply + 1..=head_seq).contains(seq));
                self.last_reply = seq.ok_or_else(|| not_named(path))?;
                return Ok(None);
            }
            _ => None,
        };
        expected.map(Some).ok_or_else(|| not_named(path))
    }

    /// Returns the hashes of the contents that were not found.
    pub(crate) fn missing_contents(&self) -> HashSet<Sha256> {
        self.contents.iter().map(|(_, hash)| *hash).collect()
    }

    /// Removes the contents with these hashes, which are files of the tree: the ledger has no copy of a large content that went
    /// from a file into the tree. Returns their number.
    pub(crate) fn take_contents(&mut self, hashes: &HashSet<Sha256>) -> u64 {
        let before = self.contents.len();
        self.contents.retain(|(_, hash)| !hashes.contains(hash));
        (before - self.contents.len()) as u64
    }

    /// Checks that all diffs were found. Returns the paths that the contents and uploads that were not would have in the data, in
    /// order.
    pub(crate) fn absent(&self) -> Result<Vec<String>, ArchiveError> {
        if let Some(id) = self.diffs.keys().min() {
            return Err(invalid(DATA, &format!("`diffs/{}` is missing", id.escape_debug())));
        }
        let (mut contents, mut uploads): (Vec<_>, Vec<_>) =
            (self.contents.iter().collect(), self.uploads.iter().collect());
        contents.sort_unstable_by_key(|(seq, hash)| (*seq, hash.to_string()));
        uploads.sort_unstable_by_key(ToString::to_string);
        let contents = contents.into_iter().map(|(seq, hash)| format!("contents/{seq}/{hash}"));
        Ok(contents.chain(uploads.into_iter().map(|hash| format!("uploads/{hash}"))).collect())
    }
}

fn not_named(path: &str) -> ArchiveError {
    invalid(DATA, &format!("no record names `{}`, or it occurs twice", path.escape_debug()))
}
