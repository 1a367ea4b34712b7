//! The versions of files that each caller of a run was last given.

use lru::LruCache;
use model::{LogicalPath, Outcome, Record, Sha256};
use parking_lot::Mutex;

/// The most versions of one run that are kept in memory; about 256 KiB. The others are found in the ledger.
const MAX_ENTRIES: usize = 2048;
/// The reading tools that give a caller the content of files.
const READS: [&str; 3] = ["read_file", "read_files", "files_get"];
/// How a reason begins with which a record says that other files than the run's present ones were read.
const OTHER_FILES: [&str; 2] = ["atSeq:", "mount:"];

/// What a caller was last given of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SeenVersion {
    /// Nothing.
    #[default]
    Never,
    /// The file is gone: the caller has deleted or moved it.
    Absent,
    /// This version.
    Version(Sha256),
}

/// What callers have seen, most recently used first: a cache of what the ledger has.
pub struct SeenVersions(Mutex<LruCache<Sha256, Given>>);

/// What a caller was last given of a file.
#[derive(Clone, Copy)]
pub struct Given {
    /// The record of the call that gave it; 0 where there is none.
    pub seq: u64,
    /// What it gave.
    pub version: SeenVersion,
}

impl Default for SeenVersions {
    fn default() -> Self {
        Self(Mutex::new(LruCache::unbounded()))
    }
}

impl SeenVersions {
    /// What `actor` was last given of `path`, if it is known here.
    pub fn get(&self, actor: &str, path: &LogicalPath) -> Option<SeenVersion> {
        self.0.lock().get(&key(actor, path)).map(|given| given.version)
    }

    /// Stores what the ledger says, unless something newer is known.
    pub fn put(&self, actor: &str, path: &LogicalPath, given: Given) {
        let (key, mut entries) = (key(actor, path), self.0.lock());
        if entries.get(&key).is_none_or(|known| known.seq <= given.seq) {
            entries.put(key, given);
        }
        if entries.len() > MAX_ENTRIES {
            entries.pop_lru();
        }
    }

    /// Stores what the call of `record` gave its caller.
    pub fn add(&self, record: &Record) {
        for (path, version) in given_by(record) {
            self.put(&record.actor, path, Given { seq: record.seq, version });
        }
    }

    /// Forgets everything: the ledger may have records that were not added.
    pub fn clear(&self) {
        self.0.lock().clear();
    }
}

/// A key of fixed size for names of any length.
fn key(actor: &str, path: &LogicalPath) -> Sha256 {
    Sha256::of([actor.as_bytes(), b"\0", path.as_str().as_bytes()].concat().as_slice())
}

/// Whether a read by `tool` gives the caller the content of the files that it names.
pub(crate) fn gives_content(tool: &str) -> bool {
    READS.contains(&tool)
}

/// The versions that the call of `record` gave its caller: of files that it read or wrote.
pub(crate) fn given_by(record: &Record) -> impl Iterator<Item = (&LogicalPath, SeenVersion)> {
    let reads_other = record.reasons.iter().any(|reason| OTHER_FILES.iter().any(|start| reason.starts_with(start)));
    let is_ok = record.outcome == Outcome::Ok;
    let is_read = is_ok && !record.mutates && gives_content(&record.tool) && !reads_other;
    let is_change = is_ok && record.mutates && !record.paths_written.is_empty();
    record.files.iter().filter_map(move |file| match file.new_sha256 {
        Some(version) if is_read || is_change => Some((&file.path, SeenVersion::Version(version))),
        None if is_change => Some((&file.path, SeenVersion::Absent)),
        Some(_) | None => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_version_is_kept_and_old_entries_go() {
        let seen = SeenVersions::default();
        let path = LogicalPath::parse("a").unwrap();
        let version = |text: &str| SeenVersion::Version(Sha256::of(text.as_bytes()));
        assert_eq!(seen.get("x", &path), None);
        seen.put("x", &path, Given { seq: 0, version: SeenVersion::Never });
        seen.put("x", &path, Given { seq: 5, version: version("new") });
        seen.put("x", &path, Given { seq: 3, version: version("old") });
        assert_eq!((seen.get("x", &path), seen.get("y", &path)), (Some(version("new")), None));
        for number in 0..MAX_ENTRIES {
            seen.put(&number.to_string(), &path, Given { seq: 9, version: SeenVersion::Absent });
        }
        assert_eq!((seen.get("x", &path), seen.0.lock().len()), (None, MAX_ENTRIES));
    }
}
