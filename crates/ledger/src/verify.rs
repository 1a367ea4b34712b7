//! Checks of a run's chain, page by page.

use std::collections::HashMap;

use model::{ChainCheck, ChainReport, Record, RunId};

use crate::backend::{Arg, Backend, Columns, to_count, to_int};
use crate::group::{decision_word, outcome_word, paths_of};
use crate::{LedgerError, Result, rows};

/// Records looked at in one go.
const PAGE: i64 = 500;

const HEAD: &str = "SELECT run.run_no, head_seq, head_hash FROM run JOIN run_head ON run_head.run_no = run.run_no \
    WHERE run_id = $1";
const RECORDS: &str = "SELECT seq, tool_call_id, tool, timestamp, decision, outcome, mutates, body FROM audit_record \
    WHERE run_no = $1 AND seq > $2 AND seq <= $3 ORDER BY seq LIMIT $4";
const PATHS: &str = "SELECT r.seq, p.path FROM audit_record r JOIN record_path p ON p.position = r.position \
    WHERE r.run_no = $1 AND r.seq > $2 AND r.seq <= $3 ORDER BY r.seq";
/// In one statement, since the chain may grow meanwhile.
const END: &str = "SELECT head_seq, coalesce((SELECT seq FROM audit_record WHERE run_no = $1 ORDER BY seq DESC LIMIT 1), 0) \
    FROM run_head WHERE run_no = $1";

/// A record as it stands in its columns.
struct Row {
    seq: u64,
    tool_call_id: String,
    tool: String,
    timestamp: String,
    decision: String,
    outcome: String,
    mutates: bool,
    body: String,
}

/// Checks the chain of `run` up to the head that it has now.
pub(crate) async fn chain(backend: &impl Backend, run: &RunId) -> Result<ChainReport> {
    let head = backend
        .fetch(HEAD, vec![run.as_str().into()], |row| {
            Ok((row.int(0)?, to_count(row.int(1)?), rows::sha256(&row.bytes(2)?)?))
        })
        .await?;
    let (run_no, head_seq, head_hash) = head.into_iter().next().ok_or(LedgerError::NoSuchRun)?;
    let mut check = ChainCheck::new(run);
    while check.next_seq() <= head_seq {
        if !page(backend, run_no, head_seq, &mut check).await? {
            return Ok(check.finish((head_seq, head_hash)));
        }
    }
    let ends =
        backend.fetch(END, vec![run_no.into()], |row| Ok((to_count(row.int(0)?), to_count(row.int(1)?)))).await?;
    if ends.into_iter().next().is_none_or(|(known, last)| known != last) {
        check.fail("there are records behind the head that the run knows");
    }
    Ok(check.finish((head_seq, head_hash)))
}

/// Checks the next records; false where there are none or one is bad.
async fn page(backend: &impl Backend, run_no: i64, head_seq: u64, check: &mut ChainCheck) -> Result<bool> {
    let after = to_int(check.next_seq()) - 1;
    let args = vec![Arg::Int(run_no), Arg::Int(after), head_seq.into(), Arg::Int(PAGE)];
    let found = backend.fetch(RECORDS, args, read_row).await?;
    let Some(last) = found.last() else { return Ok(false) };
    let args = vec![Arg::Int(run_no), Arg::Int(after), last.seq.into()];
    let mut paths: HashMap<u64, Vec<String>> = HashMap::new();
    for (seq, path) in backend.fetch(PATHS, args, |row| Ok((to_count(row.int(0)?), row.text(1)?))).await? {
        paths.entry(seq).or_default().push(path);
    }
    // Hashing a page takes a while; others want this thread too.
    tokio::task::yield_now().await;
    for row in found {
        let indexed = paths.remove(&row.seq).unwrap_or_default();
        if let Err(problem) = compare(&row, indexed, check.next_seq()) {
            // A record that does not even have its hash is told as that.
            let still = check.clone().push(&row.body);
            if still {
                check.fail(problem);
            } else {
                check.push(&row.body);
            }
            return Ok(false);
        }
        if !check.push(&row.body) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn read_row(row: &dyn Columns) -> Result<Row> {
    Ok(Row {
        seq: to_count(row.int(0)?),
        tool_call_id: row.text(1)?,
        tool: row.text(2)?,
        timestamp: row.text(3)?,
        decision: row.text(4)?,
        outcome: row.text(5)?,
        mutates: row.flag(6)?,
        body: row.text(7)?,
    })
}

/// Compares what is searched for with what is hashed.
fn compare(row: &Row, mut indexed: Vec<String>, expected_seq: u64) -> Result<(), String> {
    if row.seq != expected_seq {
        return Err(format!("expected seq {expected_seq}: a record is missing, doubled or out of order"));
    }
    let record: Record = serde_json::from_str(&row.body).map_err(|_| "the record cannot be read".to_owned())?;
    indexed.sort_unstable();
    let columns = [
        ("toolCallId", row.tool_call_id == record.tool_call_id.as_str()),
        ("tool", row.tool == record.tool),
        ("timestamp", row.timestamp == record.timestamp),
        ("decision", row.decision == decision_word(record.decision)),
        ("outcome", row.outcome == outcome_word(record.outcome)),
        ("mutates", row.mutates == record.mutates),
        ("paths", indexed == paths_of(&record.paths_read, &record.paths_written)),
    ];
    match columns.into_iter().find(|(_, same)| !same) {
        Some((column, _)) => Err(format!("{column} is indexed as something else than what is hashed")),
        None => Ok(()),
    }
}
