//! Listing records: filters, cursors, the change feed.

use std::sync::Arc;
use std::time::Duration;

use ledger::{PageSize, RecordFilter, StoredRecord};
use model::{Outcome, Record, Verdict};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use rstest::rstest;

use crate::harness::{Backend, TestDatabase, path, read, run_id, write};
use crate::journal::mutation;

/// Paths of the records: files in nested folders, and names that sort before and after a `/`.
const FILES: [&str; 6] = ["src/a", "src/deep/b", "src-gen/c", "src", "src0", "README"];

/// Returns two runs with 60 records of every kind in total.
async fn records_of_every_kind(backend: Backend) -> (TestDatabase, Vec<Record>) {
    let db = backend.open().await;
    db.run("r1").await;
    db.run("r2").await;
    let mut records = Vec::new();
    for index in 0..60 {
        let run = if index % 3 == 0 { "r2" } else { "r1" };
        let file = FILES[index % FILES.len()];
        let mut entry = if index % 4 == 0 { write(run, &format!("w{index}"), file) } else { read(run, file) };
        if index % 5 == 0 {
            entry.draft.decision = Verdict::Deny;
            entry.draft.outcome = Outcome::Refused;
        }
        if index % 7 == 0 {
            entry.draft.outcome = Outcome::Failed;
            entry.draft.paths_read = vec![path("src/a"), path("src/z"), path("src/a")];
        }
        // The clock is set back once.
        let second = if index == 30 { 0 } else { index };
        entry.draft.timestamp = format!("2026-01-01T00:00:{second:02}.000000Z");
        records.push(db.append(entry).await);
    }
    (db, records)
}

fn text(value: impl serde::Serialize) -> String {
    serde_json::to_value(value).unwrap().as_str().unwrap().to_owned()
}

/// Returns whether the record matches the filter.
fn matches(filter: &RecordFilter, record: &Record) -> bool {
    let is = |expected: &Option<String>, found: &str| expected.as_ref().is_none_or(|expected| expected == found);
    let is_on_path = |expected: &String| {
        record.paths_read.iter().chain(&record.paths_written).any(|path| {
            let path = path.as_str();
            if expected.ends_with('/') { path.starts_with(expected.as_str()) } else { path == expected }
        })
    };
    filter.run.as_ref().is_none_or(|run| *run == record.run_id)
        && is(&filter.tool, &record.tool)
        && is(&filter.decision, &text(record.decision))
        && is(&filter.outcome, &text(record.outcome))
        && filter.path.as_ref().is_none_or(is_on_path)
        && filter.since.as_ref().is_none_or(|since| *since <= record.timestamp)
        && filter.until.as_ref().is_none_or(|until| *until > record.timestamp)
}

fn parse(stored: &[StoredRecord]) -> Vec<Record> {
    stored.iter().map(|record| serde_json::from_str(&record.text).unwrap()).collect()
}

/// Returns the records of all pages.
async fn pages(db: &TestDatabase, filter: &RecordFilter, limit: u32) -> Vec<Record> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = db.ledger.records(filter, after, limit.into()).await.unwrap();
        assert!(page.len() <= limit as usize);
        let Some(last) = page.last() else { return found };
        assert!(after < Some(page[0].position) && page.is_sorted_by_key(|record| record.position));
        after = Some(last.position);
        found.extend(parse(&page));
    }
}

fn filters() -> impl Strategy<Value = RecordFilter> {
    let one_of = |texts: &'static [&'static str]| {
        proptest::option::of(proptest::sample::select(texts)).prop_map(|text| text.map(str::to_owned))
    };
    let time = || {
        proptest::option::of(0..70u32).prop_map(|second| {
            second.map(|second| format!("2026-01-01T00:{:02}:{:02}.000000Z", second / 60, second % 60))
        })
    };
    (
        proptest::option::of(proptest::sample::select(&["r1", "r2", "r3"][..])),
        one_of(&["read_file", "write_file", "delete_file", "nul \0"]),
        one_of(&["ALLOW", "DENY", "REQUIRE_APPROVAL"]),
        one_of(&["ok", "refused", "failed", "pending"]),
        one_of(&["src/a", "src/", "src", "src/deep/", "README", "none/", "src/z"]),
        (time(), time()),
    )
        .prop_map(|(run, tool, decision, outcome, path, (since, until))| RecordFilter {
            run: run.map(run_id),
            tool,
            decision,
            outcome,
            path,
            since,
            until,
        })
}

#[rstest]
#[tokio::test]
async fn every_filter_lists_the_matching_records(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
    // Distance between positions: parts of the indexes have thousands of positions.
    #[values(1, 7001)] distance: u32,
) {
    let (db, records) = records_of_every_kind(backend).await;
    for table in ["audit_record", "record_path", "call_reply"] {
        db.drop_triggers(table).await;
        db.execute(&format!("UPDATE {table} SET position = position * {distance}")).await.unwrap();
    }
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..250 {
        let filter = filters().new_tree(&mut runner).unwrap().current();
        let limit = (1..20u32).new_tree(&mut runner).unwrap().current();
        let expected: Vec<_> = records.iter().filter(|record| matches(&filter, record)).cloned().collect();
        assert_eq!(pages(&db, &filter, limit).await, expected, "{filter:?}");
    }
}

#[rstest]
#[tokio::test]
async fn a_cursor_of_another_filter_is_a_valid_position(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (db, records) = records_of_every_kind(backend).await;
    let all = db.ledger.records(&RecordFilter::default(), None, 1000.into()).await.unwrap();
    assert_eq!(parse(&all), records);
    let filter = RecordFilter { run: Some(run_id("r2")), ..RecordFilter::default() };
    for (index, stored) in all.iter().enumerate() {
        let found = parse(&db.ledger.records(&filter, Some(stored.position), 1000.into()).await.unwrap());
        let expected: Vec<_> = records[index + 1..].iter().filter(|record| record.run_id == run_id("r2")).collect();
        assert_eq!(found.iter().collect::<Vec<_>>(), expected);
    }
    let after_the_last = db.ledger.records(&RecordFilter::default(), Some(i64::MAX), 10.into()).await.unwrap();
    assert!(after_the_last.is_empty());
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn times_are_found_among_thousands_of_records(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let db = backend.open().await;
    db.run("r1").await;
    let mut tasks = tokio::task::JoinSet::new();
    for block in 0..16 {
        let ledger = Arc::clone(&db.ledger);
        tasks.spawn(async move {
            for index in 0..600 {
                let mut entry = read("r1", "a");
                entry.draft.timestamp = format!("2026-01-01T{block:02}:{:02}:{:02}.000000Z", index / 60, index % 60);
                ledger.append(vec![entry]).await.unwrap();
            }
        });
    }
    tasks.join_all().await;
    // The blocks were appended concurrently; these are appended in order.
    for block in 16..20 {
        let mut entry = read("r1", "a");
        entry.draft.timestamp = format!("2026-01-01T{block:02}:00:00.000000Z");
        db.append(entry).await;
    }
    let count = async |since: Option<&str>, until: Option<&str>| {
        let filter = RecordFilter {
            since: since.map(str::to_owned),
            until: until.map(str::to_owned),
            ..RecordFilter::default()
        };
        pages(&db, &filter, 1000).await.len()
    };
    assert_eq!(count(None, None).await, 9604);
    assert_eq!(count(Some("2026-01-01T16"), None).await, 4);
    assert_eq!(count(Some("2026-01-01T15"), Some("2026-01-01T18")).await, 602);
    assert_eq!(count(None, Some("2026-01-01T00:05")).await, 300);
    assert_eq!(count(Some("2026-01-01T03"), Some("2026-01-01T04")).await, 600);
    assert_eq!(count(Some("2027"), None).await, 0);
    assert_eq!(count(None, Some("2025")).await, 0);
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_rare_tool_is_found_among_thousands_of_records(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    db.run("r1").await;
    db.run("r2").await;
    let of = |run: &str, tool: &str| {
        let mut entry = read(run, "a");
        entry.draft.tool = tool.into();
        entry
    };
    // The run is longer than those that are always scanned.
    db.append(of("r1", "rare")).await;
    db.append(of("r2", "rare")).await;
    db.append(of("r2", "elsewhere")).await;
    for _ in 0..5 {
        db.ledger.append((0..500).map(|_| of("r1", "common")).collect()).await.unwrap();
    }
    db.append(of("r1", "rare")).await;
    for (run, tool, expected) in
        [("r1", "rare", 2), ("r2", "rare", 1), ("r1", "elsewhere", 0), ("r1", "common", 2500), ("r1", "unknown", 0)]
    {
        let filter = RecordFilter { run: Some(run_id(run)), tool: Some(tool.to_owned()), ..RecordFilter::default() };
        let found = pages(&db, &filter, 1000).await;
        assert_eq!(found.len(), expected, "{run} {tool}");
        assert!(found.iter().all(|record| record.run_id == run_id(run) && record.tool == tool));
        let denied = RecordFilter { decision: Some("DENY".into()), ..filter };
        assert_eq!(pages(&db, &denied, 1000).await, []);
    }
}

/// More records than are collected and sorted, in two ranges far apart.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn records_of_a_path_with_thousands_of_records_are_found(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    db.run("r1").await;
    db.append(read("r1", "src/b")).await;
    for block in 0..42 {
        let file = |index| if index % 100 == 50 { "src/b" } else { "src/a" };
        db.ledger.append((0..500).map(|index| read("r1", file(index))).collect()).await.unwrap();
        if block == 0 {
            db.append(read("r1", "other")).await;
        }
    }
    for table in ["audit_record", "record_path"] {
        db.drop_triggers(table).await;
        db.execute(&format!("UPDATE {table} SET position = position + 400000 WHERE position > 300")).await.unwrap();
    }
    for (searched, expected) in [("src/a", 20_790), ("src/", 21_001), ("src/b", 211), ("other", 1), ("nothing", 0)] {
        for (run, decision) in [(None, None), (Some("r1"), None), (None, Some("DENY"))] {
            let filter = RecordFilter {
                run: run.map(run_id),
                decision: decision.map(str::to_owned),
                path: Some(searched.to_owned()),
                ..RecordFilter::default()
            };
            let found = pages(&db, &filter, 1000).await;
            assert_eq!(found.len(), if decision.is_some() { 0 } else { expected }, "{searched} {run:?} {decision:?}");
            assert!(found.iter().all(|record| matches(&filter, record)));
        }
    }
}

#[rstest]
#[tokio::test]
async fn changes_after_a_seq_are_listed(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let db = backend.open().await;
    let run = db.run("r1").await;
    db.append(mutation("r1", "one", "src/a")).await;
    db.append(read("r1", "src/a")).await;
    let mut refused = write("r1", "two", "src/b");
    refused.draft.outcome = Outcome::Refused;
    db.append(refused).await;
    db.append(mutation("r1", "three", "src/c")).await;
    db.append(mutation("r1", "four", "src/d")).await;
    let seqs = async |since, limit| {
        let found = db.ledger.changes(&run, since, PageSize::rows(limit)).await.unwrap();
        parse(&found).iter().map(|record| record.seq).collect::<Vec<_>>()
    };
    assert_eq!(seqs(0, 10).await, [1, 4, 5]);
    assert_eq!(seqs(1, 1).await, [4]);
    assert_eq!(seqs(5, 10).await, Vec::<u64>::new());
    let second = db.ledger.record(&run, 2).await.unwrap().unwrap();
    assert_eq!(parse(&[second])[0].seq, 2);
    assert!(db.ledger.record(&run, 6).await.unwrap().is_none());
    assert!(db.ledger.record(&run_id("r2"), 1).await.unwrap().is_none());
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn every_record_is_visible_when_its_position_is_published(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    for run in ["r1", "r2"] {
        db.run(run).await;
    }
    let mut newest = db.ledger.newest_position();
    let mut writers = tokio::task::JoinSet::new();
    for index in 0..200 {
        let ledger = Arc::clone(&db.ledger);
        writers.spawn(async move { ledger.append(vec![read(["r1", "r2"][index % 2], "a")]).await.unwrap() });
    }
    let (mut after, mut seen) = (None, 0);
    while seen < 200 {
        tokio::time::timeout(Duration::from_secs(20), newest.changed()).await.unwrap().unwrap();
        let published = *newest.borrow_and_update();
        for stored in db.ledger.records(&RecordFilter::default(), after, 1000.into()).await.unwrap() {
            after = Some(stored.position);
            seen += 1;
        }
        assert!(after >= Some(published), "{published} was published, but the last record is {after:?} of {seen}");
    }
    assert_eq!(seen, writers.join_all().await.len());
}
