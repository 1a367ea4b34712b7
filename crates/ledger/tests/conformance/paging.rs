//! Pages that end at a number of bytes.

use std::future::Future;

use ledger::{Page, PageSize, RecordFilter, StoredRecord};
use model::Record;
use rstest::rstest;

use crate::approvals::asking;
use crate::harness::{Backend, World, new_run, new_token, read, run_id};
use crate::steps::change;

/// As long as each text that makes a row large.
const LONG: usize = 10_000;
/// Three of the rows, of which each is larger than [`LONG`], go beyond it.
const SIZE: PageSize = PageSize { rows: 100, bytes: 25_000 };

/// The lengths of all pages, and what is on them.
async fn walk<T, F: Future<Output = Page<T>>>(
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

/// A run with seven records, of which each has a reason of [`LONG`] characters.
async fn world(backend: Backend) -> World {
    let world = backend.open().await;
    world.run("r1").await;
    for index in 0..7 {
        let mut entry = change("r1", &format!("call-{index}"), "src/a");
        entry.draft.reason = Some("x".repeat(LONG));
        world.append(entry).await;
    }
    world
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
    let world = world(backend).await;
    let page = async |after| world.ledger.records(&filter, after, SIZE).await.unwrap();
    let (lengths, all) = walk(page, |stored| stored.position).await;
    assert_eq!(lengths, [3, 3, 1]);
    assert_eq!(all.iter().map(seq).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7]);
}

#[rstest]
#[tokio::test]
async fn changes_and_stretches_end_with_the_row_that_fills_their_bytes(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (world, run) = (world(backend).await, run_id("r1"));
    let since = |after: Option<i64>| after.unwrap_or(0).unsigned_abs();
    let (lengths, all) = walk(async |after| world.ledger.changes(&run, since(after), SIZE).await.unwrap(), seq).await;
    assert_eq!((lengths, all.len()), (vec![3, 3, 1], 7));
    let stretch = async |after| world.ledger.record_range(&run, since(after) + 1, 6, SIZE).await.unwrap();
    let (lengths, all) = walk(stretch, seq).await;
    assert_eq!((lengths, all.len()), (vec![3, 3], 6));
}

#[rstest]
#[tokio::test]
async fn runs_and_approvals_end_with_the_row_that_fills_their_bytes(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let world = backend.open().await;
    for index in 0..4 {
        let mut stored = new_run(&format!("r{index}"));
        stored.run.labels.insert("long".to_owned(), "x".repeat(LONG));
        let token = new_token(&format!("r{index}"), &format!("tok-{index}"));
        world.ledger.create_run(&stored, &token).await.unwrap();
        let mut entry = asking("r0", &format!("a{index}"));
        if let Some((approval, _)) = &mut entry.approval {
            approval.diff = "x".repeat(LONG);
        }
        world.append(entry).await;
    }
    let (lengths, all) = walk(async |after| world.ledger.runs(None, after, SIZE).await.unwrap(), |row| row.0).await;
    assert_eq!((lengths, all.len()), (vec![3, 1], 4));
    let page = async |after| world.ledger.approvals(None, None, after, SIZE).await.unwrap();
    let (lengths, all) = walk(page, |row| row.0).await;
    assert_eq!((lengths, all.len()), (vec![3, 1], 4));
    let lapsed = world.ledger.expired_approvals("2027-01-01T00:00:00.000000Z", SIZE).await.unwrap();
    assert_eq!((lapsed.len(), lapsed.more), (3, true));
}

#[rstest]
#[tokio::test]
async fn a_row_that_is_larger_than_a_page_is_one(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let world = world(backend).await;
    let filter = RecordFilter::default();
    let page = async |after| world.ledger.records(&filter, after, PageSize { rows: 100, bytes: 1 }).await.unwrap();
    assert_eq!(walk(page, |stored| stored.position).await.0, [1; 7]);
    let exact = world.ledger.records(&filter, None, PageSize::rows(7)).await.unwrap();
    assert_eq!((exact.len(), exact.more), (7, false));
    let none = world.ledger.records(&read_filter(), None, PageSize::rows(7)).await.unwrap();
    assert_eq!((none.len(), none.more), (0, false));
}

/// Records of a tool that nobody has called.
fn read_filter() -> RecordFilter {
    RecordFilter { tool: Some(read("r1", "a").draft.tool), ..RecordFilter::default() }
}
