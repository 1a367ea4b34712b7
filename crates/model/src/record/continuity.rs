//! Continuity: each record begins with the version of a file that the record before it has left.

use std::collections::BTreeMap;

use super::{Outcome, Record};
use crate::{LogicalPath, RecordFile, Sha256};

/// The newest version of every path that a run's records have written. `None` for a path without a file.
#[derive(Clone, Debug, Default)]
pub struct Versions(BTreeMap<LogicalPath, Option<Sha256>>);

/// The version of every path before the first record that wrote it, with the number of that record: what the base must have.
#[derive(Clone, Debug, Default)]
pub struct FirstVersions(BTreeMap<LogicalPath, (u64, Option<Sha256>)>);

/// Returns the files that a record has written; none if it changed nothing.
fn written(record: &Record) -> &[RecordFile] {
    let is_change = record.mutates && record.outcome == Outcome::Ok && !record.paths_written.is_empty();
    if is_change { &record.files } else { &[] }
}

impl Versions {
    /// Adds the next record.
    ///
    /// # Errors
    ///
    /// What is wrong, if a file of it begins with another version than the record before has left.
    pub fn push(&mut self, record: &Record) -> Result<(), String> {
        let mut broken = Ok(());
        for file in written(record) {
            let before = self.0.insert(file.path.clone(), file.new_sha256);
            if let Some(left) = before.filter(|left| *left != file.old_sha256)
                && broken.is_ok()
            {
                broken = Err(problem(&file.path, left, file.old_sha256, "the record before it left"));
            }
        }
        broken
    }
}

impl FirstVersions {
    /// Adds the next record.
    pub fn push(&mut self, record: &Record) {
        for file in written(record) {
            self.0.entry(file.path.clone()).or_insert((record.seq, file.old_sha256));
        }
    }

    /// Whether no record has written a file.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the first record that begins with another version of a file than `base` has, and what is wrong. `base` returns
    /// `None` where it cannot say.
    ///
    /// # Errors
    ///
    /// The error of `base`.
    pub fn find_break<E>(
        &self,
        mut base: impl FnMut(&LogicalPath) -> Result<Option<Option<Sha256>>, E>,
    ) -> Result<Option<(u64, String)>, E> {
        let mut first: Option<(u64, String)> = None;
        for (path, (seq, old)) in &self.0 {
            if first.as_ref().is_some_and(|(known, _)| known <= seq) {
                continue;
            }
            if let Some(started) = base(path)?.filter(|started| started != old) {
                first = Some((*seq, problem(path, started, *old, "the run started with")));
            }
        }
        Ok(first)
    }
}

fn problem(path: &LogicalPath, left: Option<Sha256>, found: Option<Sha256>, who: &str) -> String {
    let version = |version: Option<Sha256>| version.map_or_else(|| "no file".to_owned(), |sha256| sha256.to_string());
    format!(
        "a change from outside is not recorded: `{path}` was {} before it, but {who} {}",
        version(found),
        version(left)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Draft, FileKind, RunId, ToolCallId};

    fn record(seq: u64, path: &str, old: Option<&str>, new: Option<&str>) -> Record {
        let hash = |text: Option<&str>| text.map(|text| Sha256::of(text.as_bytes()));
        let path = LogicalPath::parse(path).unwrap();
        let (run, id) = (RunId::parse("r").unwrap(), ToolCallId::parse("t").unwrap());
        let mut draft = Draft::new(run, "a".to_owned(), "write_file", id, String::new());
        draft.mutates = true;
        draft.paths_written = vec![path.clone()];
        let kind = FileKind::Unknown;
        let file = RecordFile::unwritten(path, kind);
        draft.files = vec![RecordFile { new_sha256: hash(new), old_sha256: hash(old), ..file }];
        draft.link(seq - 1, Sha256::ZERO).0
    }

    #[test]
    fn the_first_record_that_does_not_begin_where_the_one_before_ended_is_named() {
        let mut versions = Versions::default();
        assert_eq!(versions.push(&record(1, "a", Some("base"), Some("1"))), Ok(()));
        assert_eq!(versions.push(&record(2, "b", None, Some("1"))), Ok(()));
        assert_eq!(versions.push(&record(3, "a", Some("1"), None)), Ok(()));
        assert_eq!(versions.push(&record(4, "a", None, Some("2"))), Ok(()));
        let problem = versions.push(&record(5, "a", Some("3"), Some("4"))).unwrap_err();
        assert!(problem.contains("`a`") && problem.contains(&Sha256::of(b"2").to_string()), "{problem}");
        assert_eq!(versions.push(&record(6, "a", Some("4"), Some("5"))), Ok(()), "a break is reported once");
    }

    #[test]
    fn what_changed_nothing_has_no_version() {
        let mut versions = Versions::default();
        versions.push(&record(1, "a", None, Some("1"))).unwrap();
        let refused = Record { outcome: Outcome::Refused, ..record(2, "a", Some("x"), Some("y")) };
        let read = Record { mutates: false, ..record(3, "a", Some("x"), Some("x")) };
        let dry = Record { paths_written: Vec::new(), ..record(4, "a", Some("x"), Some("y")) };
        for other in [refused, read, dry] {
            assert_eq!(versions.push(&other), Ok(()));
        }
        assert_eq!(versions.push(&record(5, "a", Some("1"), Some("2"))), Ok(()));
    }

    #[test]
    fn the_first_versions_are_those_of_the_base() {
        let mut first = FirstVersions::default();
        for record in [record(2, "b", None, Some("1")), record(3, "a", Some("base"), Some("1"))] {
            first.push(&record);
        }
        first.push(&record(4, "a", Some("1"), Some("2")));
        let base = |has_b: bool| {
            move |path: &LogicalPath| match path.as_str() {
                "a" => Ok::<_, ()>(Some(Some(Sha256::of(b"base")))),
                _ => Ok(Some(has_b.then(|| Sha256::of(b"b")))),
            }
        };
        assert_eq!(first.find_break(base(false)), Ok(None));
        let (seq, problem) = first.find_break(base(true)).unwrap().unwrap();
        assert!(seq == 2 && problem.contains("`b`"), "{seq} {problem}");
        assert_eq!(first.find_break(|_| Ok::<_, ()>(None)), Ok(None));
    }
}
