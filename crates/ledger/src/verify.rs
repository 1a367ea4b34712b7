//! Verification of a run's hash chain, page by page.

use std::collections::HashMap;

use model::{ChainCheck, ChainReport, Record, RunId, Sha256};

use crate::backend::Backend;
use crate::entry_rows::{decision_text, indexed_paths, indexed_reason, outcome_text};
use crate::newest_versions::RecordedVersions;
use crate::packed::{self, UNREADABLE_RECORD, record_columns};
use crate::statement::{PageColumns, Param, RowReader, Select, to_count, to_int};
use crate::{EachRecord, LedgerError, PageSize, Result, rows};

/// Records per query.
const RECORDS_PER_PAGE: u32 = 500;
/// Diffs per query.
const DIFFS_PER_QUERY: usize = 32;

/// The run's number, its head, which may have been removed, its first `seq`, and that of its last archived record.
const HEAD: Select<VerifiedHead> = Select {
    sql: "SELECT run.run_no, head_seq, head_hash, \
    coalesce((SELECT seq FROM audit_record a WHERE a.run_no = run.run_no ORDER BY seq LIMIT 1), 1), archived_seq \
    FROM run LEFT JOIN run_head ON run_head.run_no = run.run_no WHERE run_id = $1",
    read: read_head,
};
const RECORDS: Select<RecordRow> = Select {
    sql: concat!(
        "SELECT seq, tool_call_id, tool, timestamp, decision, outcome, mutates, made_by, denied, reason, ",
        record_columns!(""),
        " FROM audit_record WHERE run_no = $1 AND seq > $2 AND seq <= $3 ORDER BY seq LIMIT $4"
    ),
    read: read_row,
};
const PATHS: Select<(u64, String)> = Select {
    sql: "SELECT r.seq, p.path FROM audit_record r JOIN record_path p ON p.position = r.position \
    WHERE r.run_no = $1 AND r.seq > $2 AND r.seq <= $3 ORDER BY r.seq",
    read: |row| Ok((to_count(row.int(0)?), row.text(1)?)),
};
/// Not a join, for which the planner might scan all diffs.
const ARTIFACTS: Select<(u64, Option<StoredDiff>)> = Select {
    sql: "SELECT seq, \
    (SELECT artifact_id FROM artifact a WHERE a.position = r.position AND a.run_no = r.run_no), \
    (SELECT diff FROM artifact a WHERE a.position = r.position AND a.run_no = r.run_no), \
    (SELECT diff_bytes FROM artifact a WHERE a.position = r.position AND a.run_no = r.run_no) \
    FROM audit_record r WHERE run_no = $1 AND seq >= $2 AND seq <= $3",
    read: read_diff,
};
/// The record after the archived ones.
const AFTER_ARCHIVE: Select<String> = Select {
    sql: concat!("SELECT ", record_columns!(""), " FROM audit_record WHERE run_no = $1 AND seq = $2"),
    read: |row| packed::record(row, 0),
};
const IS_LEAF: Select<i64> = Select {
    sql: "SELECT count(*) FROM checkpoint_leaf WHERE run_no = $1 AND head_seq = $2 AND head_hash = $3",
    read: |row| row.int(0),
};
/// One statement, because records may be appended concurrently.
const END: Select<(u64, u64)> = Select {
    sql: "SELECT head_seq, coalesce((SELECT seq FROM audit_record WHERE run_no = $1 ORDER BY seq DESC LIMIT 1), 0) \
    FROM run_head WHERE run_no = $1",
    read: |row| Ok((to_count(row.int(0)?), to_count(row.int(1)?))),
};

/// The columns of a record.
struct RecordRow {
    seq: u64,
    tool_call_id: String,
    tool: String,
    timestamp: String,
    decision: String,
    outcome: String,
    mutates: bool,
    made_by: String,
    denied: bool,
    reason: Option<String>,
    body: String,
}

/// A readable record and its stored diff.
struct ReadableRecord {
    record: Record,
    artifact: Option<StoredDiff>,
}

/// The ID and hash of a stored diff.
struct StoredDiff {
    id: String,
    sha256: Sha256,
}

async fn fetch<T: Send + 'static>(
    backend: &impl Backend,
    select: Select<T>,
    params: Vec<Param<'static>>,
) -> Result<Vec<T>> {
    backend.fetch(select.sql, params, select.read).await
}

/// Verifies the chain of `run` up to its current head. `each` receives the valid records, in order.
pub(crate) async fn chain(backend: &impl Backend, run: &RunId, each: &mut EachRecord<'_>) -> Result<ChainReport> {
    let head = fetch(backend, HEAD, vec![run.as_str().into()]).await?;
    let (run_no, head, first, archived_seq) = head.into_iter().next().ok_or(LedgerError::NoSuchRun)?;
    let mut check = match archived_seq {
        None => ChainCheck::new(run),
        Some(seq) => after_archive(backend, run, run_no, seq).await?,
    };
    if first < 1 {
        check.fail("there are records before seq 1");
    }
    let last = head.map_or(i64::MAX as u64, |(seq, _)| seq);
    let mut newest = RecordedVersions::default();
    while check.next_seq() <= last {
        let mut both = |record: &Record| {
            newest.add(record);
            each(record);
        };
        if !page(backend, run_no, last, &mut check, &mut both).await? {
            break;
        }
    }
    let Some(head) = head else {
        check.fail("the run's head is missing");
        return Ok(check.end());
    };
    if check.next_seq() <= last {
        return Ok(check.finish(head));
    }
    let ends = fetch(backend, END, vec![run_no.into()]).await?;
    if ends.into_iter().next().is_none_or(|(head, last)| head != last) {
        check.fail("there are records after the run's head");
    }
    let mut report = check.finish(head);
    if let Some(found) = newest.compare(backend, run_no, last).await? {
        report.add_discontinuity(found);
    }
    Ok(report)
}

/// Starts after the archived records of a run. The record of the archive has to be the next one, and a checkpoint has to cover the
/// last archived one, so that a changed database cannot declare records to be archived.
async fn after_archive(backend: &impl Backend, run: &RunId, run_no: i64, seq: u64) -> Result<ChainCheck> {
    let next = fetch(backend, AFTER_ARCHIVE, vec![run_no.into(), (seq + 1).into()]).await?;
    let archive = next.first().and_then(|text| archived_head(text)).filter(|(head_seq, _)| *head_seq == seq);
    let Some((_, head_hash)) = archive else {
        let mut check = ChainCheck::after_archive(run, seq, Sha256::ZERO);
        check.fail("the record after the archived ones is not that of the archive");
        return Ok(check);
    };
    let mut check = ChainCheck::after_archive(run, seq, head_hash);
    let params = vec![run_no.into(), seq.into(), (&head_hash).into()];
    if fetch(backend, IS_LEAF, params).await?.first() == Some(&0) {
        check.fail("no checkpoint covers the archived records");
    }
    Ok(check)
}

/// Returns the `seq` and the hash of the last archived record, if `text` is the record of an archive.
fn archived_head(text: &str) -> Option<(u64, Sha256)> {
    let record: Record =
        serde_json::from_str(text).ok().filter(|record: &Record| record.tool == model::ARCHIVE_TOOL)?;
    let member = |name: &str| record.input.as_ref().and_then(|input| input.get(name));
    let head_hash = Sha256::parse(member("headHash")?.as_str()?).ok()?;
    Some((member("headSeq")?.as_u64()?, head_hash))
}

type VerifiedHead = (i64, Option<(u64, Sha256)>, i64, Option<u64>);

fn read_head(row: &dyn RowReader) -> Result<VerifiedHead> {
    let head = row.maybe_int(1)?.zip(row.maybe_bytes(2)?);
    let head = head.map(|(seq, hash)| Ok::<_, LedgerError>((to_count(seq), rows::sha256(&hash)?))).transpose()?;
    Ok((row.int(0)?, head, row.int(3)?, row.maybe_int(4)?.map(to_count)))
}

/// Verifies the next page of records. Returns false if there are no more records or one is invalid.
async fn page(
    backend: &impl Backend,
    run_no: i64,
    head_seq: u64,
    check: &mut ChainCheck,
    each: &mut EachRecord<'_>,
) -> Result<bool> {
    let after = to_int(check.next_seq()) - 1;
    let size = PageSize::rows(RECORDS_PER_PAGE);
    let params = vec![Param::Int(run_no), Param::Int(after), head_seq.into(), Param::Int(size.query_limit())];
    let columns = PageColumns { order: "seq", ..PageColumns::RECORDS };
    let found = backend.fetch_page(RECORDS.sql, params, RECORDS.read, size, columns).await?;
    let Some(last) = found.last() else { return Ok(false) };
    let params = vec![Param::Int(run_no), Param::Int(after), last.seq.into()];
    let mut paths: HashMap<u64, Vec<String>> = HashMap::new();
    for (seq, path) in fetch(backend, PATHS, params).await? {
        paths.entry(seq).or_default().push(path);
    }
    let records: Vec<Option<Record>> = found.iter().map(|row| serde_json::from_str(&row.body).ok()).collect();
    let mut diffs = stored_diffs(backend, run_no, &records).await?;
    // Hashing a page takes long, and other tasks run on this thread too.
    tokio::task::yield_now().await;
    for (row, record) in found.into_iter().zip(records) {
        let indexed = paths.remove(&row.seq).unwrap_or_default();
        let found = record.map(|record| ReadableRecord { record, artifact: diffs.remove(&row.seq) });
        if row.body == UNREADABLE_RECORD {
            check.fail("the stored record cannot be decompressed");
            return Ok(false);
        }
        if let Err(problem) = compare(&row, found.as_ref(), indexed, check.next_seq()) {
            // A wrong hash is reported instead, because it is the more basic problem.
            if check.clone().push(&row.body) {
                check.fail(problem);
            } else {
                check.push(&row.body);
            }
            return Ok(false);
        }
        let Some(ReadableRecord { record, artifact }) = found else { return Ok(false) };
        if !check.push_parsed(&row.body, &record) {
            return Ok(false);
        }
        if record.diff_sha256.is_some() && artifact.is_none() {
            check.add_missing_diff();
        }
        each(&record);
    }
    Ok(true)
}

/// Returns the stored diffs of those `records` that contain the hash of a diff, by `seq`.
async fn stored_diffs(
    backend: &impl Backend,
    run_no: i64,
    records: &[Option<Record>],
) -> Result<HashMap<u64, StoredDiff>> {
    let with_diff: Vec<u64> =
        records.iter().flatten().filter(|record| record.diff_sha256.is_some()).map(|record| record.seq).collect();
    let mut diffs = HashMap::new();
    for chunk in with_diff.chunks(DIFFS_PER_QUERY) {
        let ([first, ..], [.., last]) = (chunk, chunk) else { break };
        let params = vec![Param::Int(run_no), (*first).into(), (*last).into()];
        let found = fetch(backend, ARTIFACTS, params).await?;
        diffs.extend(found.into_iter().filter_map(|(seq, artifact)| Some((seq, artifact?))));
    }
    Ok(diffs)
}

fn read_diff(row: &dyn RowReader) -> Result<(u64, Option<StoredDiff>)> {
    let seq = to_count(row.int(0)?);
    let Some(id) = row.maybe_text(1)? else { return Ok((seq, None)) };
    // An unreadable diff is not the one of the record.
    let sha256 = packed::bytes(row, [2, 3])?.map_or(Sha256::ZERO, |diff| Sha256::of(&diff));
    Ok((seq, Some(StoredDiff { id, sha256 })))
}

fn read_row(row: &dyn RowReader) -> Result<RecordRow> {
    Ok(RecordRow {
        seq: to_count(row.int(0)?),
        tool_call_id: row.text(1)?,
        tool: row.text(2)?,
        timestamp: row.text(3)?,
        decision: row.text(4)?,
        outcome: row.text(5)?,
        mutates: row.bool(6)?,
        made_by: row.text(7)?,
        denied: row.bool(8)?,
        reason: row.maybe_text(9)?,
        body: packed::record(row, 10)?,
    })
}

/// Compares the indexed columns and the stored diff with the hashed record.
fn compare(
    row: &RecordRow,
    found: Option<&ReadableRecord>,
    mut indexed: Vec<String>,
    expected_seq: u64,
) -> Result<(), String> {
    if row.seq != expected_seq {
        return Err(format!("expected seq {expected_seq}: a record is missing, duplicated or out of order"));
    }
    let ReadableRecord { record, artifact } = found.ok_or("the record cannot be read")?;
    indexed.sort_unstable();
    let columns = [
        ("toolCallId", row.tool_call_id == record.tool_call_id.as_str()),
        ("tool", row.tool == record.tool),
        ("timestamp", row.timestamp == record.timestamp),
        ("decision", row.decision == decision_text(record.decision)),
        ("outcome", row.outcome == outcome_text(record.outcome)),
        ("mutates", row.mutates == record.mutates),
        ("by", row.made_by == record.made_by().as_str()),
        ("denied", row.denied == record.is_denied()),
        ("reason", row.reason == indexed_reason(record)),
        ("paths", indexed == indexed_paths(&record.paths_read, &record.paths_written, &record.files, &record.left)),
    ];
    if let Some((column, _)) = columns.into_iter().find(|(_, same)| !same) {
        return Err(format!("the indexed {column} differs from the hashed record"));
    }
    let Some(artifact) = artifact else { return Ok(()) };
    let uri = format!("artifact://{}/{}", record.run_id, artifact.id);
    if record.diff_sha256 != Some(artifact.sha256) || !record.artifact_uris.contains(&uri) {
        return Err("the stored diff is not the one that the record refers to".to_owned());
    }
    Ok(())
}
