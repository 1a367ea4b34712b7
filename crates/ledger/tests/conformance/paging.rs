//! Pages that are limited by bytes.

use std::future::Future;

use ledger::{LedgerPage, PageSize, RecordFilter, StoredRecord};
use model::Record;
use rstest::rstest;

use crate::approvals::approval_request;
use crate::harness::{Backend, TestDatabase, new_run, new_token, run_id};
use crate::journal::mutation;

/// Length of the text that makes a row large.
const LONG: usize = 10_000;
/// Three rows, each larger than [`LONG`], exceed this size.
const SIZE: PageSize = PageSize { rows: 100, bytes: 25_000 };

/// Returns the lengths of all pages, and their items.
async fn read_pages<T, F: Future<Output = LedgerPage<T>>>(
    page: impl Fn(Option<i64>) -> F,
    at: fn(&T) -> i64,
) -> (Vec<usize>, Vec<T>) {
    let (mut lengths, mut all, mut after) = (Vec::new(), Vec::new(), None);
    loop {
        let found = page(after).await;
        after = found.last().map(at).or(after);
        lengths.push(found.len());
        let more = found.more;
        all.extend(found);
        if !more {
            return (lengths, all);
        }
    }
}

fn seq(stored: &StoredRecord) -> i64 {
    let record: Record = serde_json::from_str(&stored.text).unwrap();
    i64::try_from(record.seq).unwrap()
}

/// Returns a run with seven records, each with a reason of [`LONG`] characters.
async fn long_records(backend: Backend) -> TestDatabase {
    let db = backend.open().await;
    db.run("r1").await;
    for index in 0..7 {
        let mut entry = mutation("r1", &format!("call-{index}"), "src/a");
        entry.draft.reason = Some("x".repeat(LONG));
        db.append(entry).await;
    }
    db
}

#[rstest]
#[tokio::test]
async fn a_page_of_records_ends_with_the_row_that_fills_its_bytes(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
    #[values(
        RecordFilter::default(),
        RecordFilter { run: Some(run_id("r1")), ..RecordFilter::default() },
        RecordFilter { path: Some("src/".to_owned()), ..RecordFilter::default() },
        RecordFilter { since: Some("2026-01-01T00:00:00.000000Z".to_owned()), ..RecordFilter::default() },
    )]
    filter: RecordFilter,
) {
    let db = long_records(backend).await;
    let page = async |after| db.ledger.records(&filter, after, SIZE).await.unwrap();
    let (lengths, all) = read_pages(page, |stored| stored.position).await;
    assert_eq!(lengths, [3, 3, 1]);
    assert_eq!(all.iter().map(seq).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7]);
}

#[rstest]
#[tokio::test]
async fn pages_of_changes_and_of_record_ranges_end_with_the_row_that_fills_their_bytes(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (db, run) = (long_records(backend).await, run_id("r1"));
    let since = |after: Option<i64>| after.unwrap_or(0).unsigned_abs();
    let (lengths, all) =
        read_pages(async |after| db.ledger.changes(&run, since(after), SIZE).await.unwrap(), seq).await;
    assert_eq!((lengths, all.len()), (vec![3, 3, 1], 7));
    let range = async |after| db.ledger.record_range(&run, since(after) + 1, 6, SIZE).await.unwrap();
    let (lengths, all) = read_pages(range, seq).await;
    assert_eq!((lengths, all.len()), (vec![3, 3], 6));
}

#[rstest]
#[tokio::test]
async fn pages_of_runs_and_of_approvals_end_with_the_row_that_fills_their_bytes(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    for index in 0..4 {
        let mut stored = new_run(&format!("r{index}"));
        stored.run.labels.insert("long".to_owned(), "x".repeat(LONG));
        let token = new_token(&format!("r{index}"), &format!("tok-{index}"));
        db.ledger.create_run(&stored, &token, vec![]).await.unwrap();
        let mut entry = approval_request("r0", &format!("a{index}"));
        if let Some((approval, _)) = &mut entry.approval {
            approval.diff = Some("x".repeat(LONG));
        }
        db.append(entry).await;
    }
    let (lengths, all) = read_pages(
        async |after| db.ledger.runs(&ledger::RunFilter::default(), after, SIZE).await.unwrap(),
        |row| row.0,
    )
    .await;
    assert_eq!((lengths, all.len()), (vec![3, 1], 4));
    let page = async |after| db.ledger.approvals(&ledger::ApprovalFilter::default(), after, SIZE).await.unwrap();
    let (lengths, all) = read_pages(page, |row| row.0).await;
    assert_eq!((lengths, all.len()), (vec![3, 1], 4));
    let expired = db.ledger.expired_approvals("2027-01-01T00:00:00.000000Z", SIZE).await.unwrap();
    assert_eq!((expired.len(), expired.more), (3, true));
}

#[rstest]
#[tokio::test]
async fn a_row_larger_than_the_page_size_is_a_page(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let db = long_records(backend).await;
    let filter = RecordFilter::default();
    let page = async |after| db.ledger.records(&filter, after, PageSize { rows: 100, bytes: 1 }).await.unwrap();
    assert_eq!(read_pages(page, |stored| stored.position).await.0, [1; 7]);
    let exact = db.ledger.records(&filter, None, PageSize::rows(7)).await.unwrap();
    assert_eq!((exact.len(), exact.more), (7, false));
    let filter = RecordFilter { tool: Some("read_file".to_owned()), ..filter };
    let none = db.ledger.records(&filter, None, PageSize::rows(7)).await.unwrap();
    assert_eq!((none.len(), none.more), (0, false));
}
