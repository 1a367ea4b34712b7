//! What the newest record that wrote a path has left there, one row for each run and path.

use std::collections::HashMap;

use model::{ChainBreak, FileKind, GitMode, LogicalPath, Outcome, Record, Sha256};

use crate::backend::Backend;
use crate::statement::{Param, RowReader, Select, damaged, to_count};
use crate::{Result, rows};

/// What the newest record that wrote a path has left there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewestVersion {
    /// The path.
    pub path: LogicalPath,
    /// The number of the record.
    pub seq: u64,
    /// The kind of the file.
    pub kind: FileKind,
    /// The hash of its bytes, or of a link's target, and its mode; `None` if nothing is left.
    pub file: Option<(Sha256, GitMode)>,
}

pub(crate) const NEWEST_VERSIONS: Select<NewestVersion> = Select {
    sql: "SELECT path, seq, kind, sha256, mode FROM newest_version WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1)",
    read,
};
/// The same by the run's number, unless its rows are purged.
const OF_RUN: Select<NewestVersion> = Select {
    sql: "SELECT path, seq, kind, sha256, mode FROM newest_version v WHERE run_no = $1 \
    AND EXISTS (SELECT 1 FROM run WHERE run.run_no = v.run_no AND state <> 'deleted')",
    read,
};
const IS_DELETED: Select<i64> =
    Select { sql: "SELECT count(*) FROM run WHERE run_no = $1 AND state = 'deleted'", read: |row| row.int(0) };
pub(crate) const DELETE_OF_RUN: &str = "DELETE FROM newest_version \
    WHERE run_no = (SELECT run_no FROM run WHERE run_id = $1)";

/// Whether the files of `record` are written ones.
pub(crate) fn has_written(record: &Record) -> bool {
    record.mutates && record.outcome == Outcome::Ok && !record.paths_written.is_empty()
}

fn read(row: &dyn RowReader) -> Result<NewestVersion> {
    let (path, kind) = (row.text(0)?, row.text(2)?);
    let sha256 = row.maybe_bytes(3)?.map(|bytes| rows::sha256(&bytes)).transpose()?;
    let mode = row.maybe_int(4)?.and_then(|mode| u32::try_from(mode).ok()).map(GitMode::of);
    Ok(NewestVersion {
        path: LogicalPath::parse(&path).map_err(|_| damaged("path"))?,
        seq: to_count(row.int(1)?),
        kind: FileKind::ALL.into_iter().find(|one| one.as_str() == kind).ok_or_else(|| damaged("kind"))?,
        file: sha256.zip(mode),
    })
}

/// The newest versions that the verified records of a run say.
#[derive(Default)]
pub(crate) struct RecordedVersions(HashMap<LogicalPath, NewestVersion>);

impl RecordedVersions {
    pub(crate) fn add(&mut self, record: &Record) {
        if has_written(record) {
            let newest = record.files.iter().map(|file| NewestVersion::of(file, record.seq));
            self.0.extend(newest.map(|newest| (newest.path.clone(), newest)));
        }
    }

    /// Returns where the stored rows of the run `run_no` say something else. Records after `last` may be there already.
    pub(crate) async fn compare(
        mut self,
        backend: &impl Backend,
        run_no: i64,
        last: u64,
    ) -> Result<Option<ChainBreak>> {
        let stored = backend.fetch(OF_RUN.sql, vec![Param::Int(run_no)], OF_RUN.read).await?;
        let mut first: Option<ChainBreak> = None;
        let mut note = |seq, problem| {
            if first.as_ref().is_none_or(|first| seq < first.seq) {
                first = Some(ChainBreak { seq, problem });
            }
        };
        for newest in stored {
            let recorded = self.0.remove(&newest.path);
            if newest.seq <= last && recorded.as_ref() != Some(&newest) {
                let seq = recorded.map_or(newest.seq, |recorded| recorded.seq);
                note(seq, format!("the newest version of `{}` differs from the hashed records", newest.path));
            }
        }
        let is_deleted = backend.fetch(IS_DELETED.sql, vec![Param::Int(run_no)], IS_DELETED.read).await?;
        if is_deleted.first() == Some(&0) {
            for (path, recorded) in self.0 {
                note(recorded.seq, format!("the newest version of `{path}` is missing"));
            }
        }
        Ok(first)
    }
}

impl NewestVersion {
    fn of(file: &model::RecordFile, seq: u64) -> Self {
        let version = file.new_sha256.map(|sha256| (sha256, file.mode_after()));
        Self { path: file.path.clone(), seq, kind: file.kind, file: version }
    }
}
