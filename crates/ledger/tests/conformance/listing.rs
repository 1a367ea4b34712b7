//! Listing records: filters, cursors, the change feed.

use std::sync::Arc;
use std::time::Duration;

use ledger::{PageSize, RecordFilter, StoredRecord};
use model::{By, Code, Outcome, Record, Verdict};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use rstest::rstest;

use crate::harness::{Backend, TestDatabase, new_run, new_token, path, read, run_id, write};
use crate::journal::mutation;

/// Paths of the records: files in nested folders, and names that sort before and after a `/`.
const FILES: [&str; 6] = ["src/a", "src/deep/b", "src-gen/c", "src", "src0", "README"];

/// Returns two runs with 60 records of every kind in total.
async fn records_of_every_kind(backend: Backend) -> (TestDatabase, Vec<Record>) {
    let db = backend.open().await;
    db.run("r1").await;
    let mut labelled = new_run("r2");
    labelled.run.labels = [("ticket".to_owned(), "2".to_owned()), ("team".to_owned(), "a".to_owned())].into();
    db.ledger.create_run(&labelled, &new_token("r2", "tok-r2"), vec![]).await.unwrap();
    let mut records = Vec::new();
    for index in 0..60 {
        let run = if index % 3 == 0 { "r2" } else { "r1" };
        let file = FILES[index % FILES.len()];
        let mut entry = if index % 4 == 0 { write(run, &format!("w{index}"), file) } else { read(run, file) };
        if index % 5 == 0 {
            entry.draft.decision = Verdict::Deny;
            entry.draft.outcome = Outcome::Refused;
            entry.draft.code = Some(Code::PolicyDenied);
        }
        if index % 4 == 1 {
            entry.draft.actor = "operator:ada".into();
        }
        if index % 7 == 0 {
            entry.draft.outcome = Outcome::Failed;
            entry.draft.code = Some(Code::WriteConflict);
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
    let starts = |prefix: &String| {
        record.paths_read.iter().chain(&record.paths_written).any(|path| path.as_str().starts_with(prefix.as_str()))
    };
    // The path itself, or the end of one: `/a` is a file of that name, `a` also the end of a name.
    let ends = |suffix: &String| {
        let mut paths = record.paths_read.iter().chain(&record.paths_written);
        paths.any(|path| format!("/{}", path.as_str()).ends_with(suffix.as_str()))
    };
    let has_label = |label: &String| record.run_id == run_id("r2") && ["ticket:2", "team:a"].contains(&label.as_str());
    filter.run.as_ref().is_none_or(|run| *run == record.run_id)
        && filter.path_prefix.as_ref().is_none_or(starts)
        && filter.path_suffix.as_ref().is_none_or(ends)
        && is(&filter.actor, &record.actor)
        && filter.by.is_none_or(|by| record.by == Some(by))
        && filter.code.as_ref().is_none_or(|code| record.code.is_some_and(|found| found.as_str() == code))
        && filter.labels.iter().all(has_label)
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
        let order = |position: i64| if filter.newest_first { -position } else { position };
        let positions: Vec<_> = page.iter().map(|record| order(record.position)).collect();
        assert!(positions.is_sorted() && positions.first().is_none_or(|first| after.map(order) < Some(*first)));
        found.extend(parse(&page));
        if !page.more {
            return found;
        }
        let next = page.resume.or(page.last().map(|record| record.position)).unwrap();
        assert!(after.map(order) < Some(order(next)) && positions.last().is_none_or(|last| *last <= order(next)));
        after = Some(next);
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
        (
            (
                one_of(&["src", "src/", "s", "README", "x", "src/\0"]),
                one_of(&["a", "/a", "deep/a", "ADME", "/README", "%", "x"]),
            ),
            one_of(&["operator:ada", "run-token:tok_1", "service"]),
            one_of(&["POLICY_DENIED", "WRITE_CONFLICT", "NOT_FOUND"]),
            proptest::sample::subsequence(vec!["ticket:2", "team:a", "team:b"], 0..2),
            proptest::bool::ANY,
            proptest::bool::ANY,
            proptest::option::of(proptest::sample::select(&By::ALL[..])),
        ),
    )
        .prop_map(|(run, tool, decision, outcome, path, (since, until), more)| RecordFilter {
            run: run.map(run_id),
            tool,
            decision,
            outcome,
            path,
            since,
            until,
            path_prefix: more.0.0,
            path_suffix: more.0.1,
            // Half of the filters have conditions with an index only.
            actor: more.1.filter(|_| more.4),
            by: more.6.filter(|_| more.4),
            code: more.2.filter(|_| more.4),
            labels: more.3.into_iter().filter(|_| more.4).map(str::to_owned).collect(),
            newest_first: more.5,
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
    for _ in 0..400 {
        let filter = filters().new_tree(&mut runner).unwrap().current();
        let limit = (1..20u32).new_tree(&mut runner).unwrap().current();
        let mut expected: Vec<_> = records.iter().filter(|record| matches(&filter, record)).cloned().collect();
        if filter.newest_first {
            expected.reverse();
        }
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
#[tokio::test]
async fn new_records_are_on_no_further_page_of_the_newest(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
    #[values(None, Some("r1"))] run: Option<&str>,
) {
    let db = backend.open().await;
    db.run("r1").await;
    for _ in 0..7 {
        db.append(read("r1", "a")).await;
    }
    let filter = RecordFilter { run: run.map(run_id), newest_first: true, ..RecordFilter::default() };
    let (mut seqs, mut after) = (Vec::new(), None);
    loop {
        let page = db.ledger.records(&filter, after, 2.into()).await.unwrap();
        seqs.extend(parse(&page).iter().map(|record| record.seq));
        let Some(last) = page.last().filter(|_| page.more) else { break };
        after = Some(last.position);
        db.append(read("r1", "a")).await;
    }
    assert_eq!(seqs, [7, 6, 5, 4, 3, 2, 1]);
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_search_without_an_index_reads_a_bounded_number_of_records(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    db.run("r1").await;
    let mut rare = read("r1", "a");
    rare.draft.actor = "operator:ada".into();
    db.append(rare.clone()).await;
    for _ in 0..16 {
        db.ledger.append((0..500).map(|_| read("r1", "a")).collect()).await.unwrap();
    }
    rare.draft.tool_call_id = crate::harness::call_id("last");
    db.append(rare).await;
    let filter = RecordFilter { actor: Some("operator:ada".into()), ..RecordFilter::default() };
    let first = db.ledger.records(&filter, None, 10.into()).await.unwrap();
    assert_eq!((parse(&first)[0].seq, first.len(), first.more), (1, 1, true));
    let second = db.ledger.records(&filter, first.resume, 10.into()).await.unwrap();
    assert_eq!((second.len(), second.more), (0, true), "a page without a match has a position to continue from");
    let third = db.ledger.records(&filter, second.resume, 10.into()).await.unwrap();
    assert_eq!((parse(&third)[0].seq, third.more), (8002, false));
    for newest_first in [false, true] {
        let found = pages(&db, &RecordFilter { newest_first, ..filter.clone() }, 10).await;
        let seqs: Vec<_> = found.iter().map(|record| record.seq).collect();
        assert_eq!(seqs, if newest_first { [8002, 1] } else { [1, 8002] });
    }
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_search_for_two_frequent_paths_reads_a_bounded_number_of_records(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    db.run("r1").await;
    for _ in 0..11 {
        let entries = (0..1000).map(|index| read("r1", if index % 2 == 0 { "src/a" } else { "lib/b" })).collect();
        db.ledger.append(entries).await.unwrap();
    }
    let mut both = read("r1", "src/a");
    both.draft.paths_read.push(path("lib/b"));
    db.append(both).await;
    for run in [None, Some(run_id("r1"))] {
        let filter = |path: &str, prefix: &str| RecordFilter {
            run: run.clone(),
            path: Some(path.into()),
            path_prefix: Some(prefix.into()),
            ..RecordFilter::default()
        };
        let apart = filter("src/a", "lib/");
        let first = db.ledger.records(&apart, None, 10.into()).await.unwrap();
        assert_eq!((first.len(), first.more), (0, true), "a page without a match has a position to continue from");
        let second = db.ledger.records(&apart, first.resume, 10.into()).await.unwrap();
        assert_eq!((parse(&second)[0].seq, second.len(), second.more), (11_001, 1, false));
        assert_eq!(pages(&db, &filter("src/a", "none/"), 10).await, []);
        // Of the two conditions, one implies the other.
        for (path, prefix) in [("src/a", "src"), ("src/", "src/a"), ("src/a", "src/a"), ("src/", "src/")] {
            let page = db.ledger.records(&filter(path, prefix), None, 10.into()).await.unwrap();
            assert_eq!((page.len(), page.more, page.resume), (10, true, None), "{path} {prefix}");
        }
    }
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

/// After five executions of a statement on a connection, PostgreSQL may choose one plan for every value.
#[tokio::test]
async fn a_page_of_an_unused_tool_does_not_read_the_whole_audit() {
    const RECORDS: i64 = 20_000;
    let mut db = Backend::Postgres.open().await;
    db.run("r1").await;
    let page = async |db: &TestDatabase, tool: &str| {
        let filter = RecordFilter { tool: Some(tool.into()), ..RecordFilter::default() };
        db.ledger.records(&filter, None, 100.into()).await.unwrap().len()
    };
    for _ in 0..RECORDS / 1000 {
        let entries = (0..1000).map(|index| {
            let mut entry = read("r1", "a");
            entry.draft.tool = if index % 5 == 0 { "rarer" } else { "common" }.into();
            entry
        });
        db.ledger.append(entries.collect()).await.unwrap();
    }
    db.execute("VACUUM ANALYZE audit_record").await.unwrap();
    // The server counts what a connection has read when the connection ends.
    db.reopen().await;
    let entries_read = "SELECT idx_tup_read FROM pg_stat_user_indexes WHERE indexrelname = 'audit_record_pkey'";
    let before = db.count(entries_read).await;
    for _ in 0..12 {
        assert_eq!(page(&db, "rarer").await, 100);
    }
    for _ in 0..4 {
        assert_eq!(page(&db, "unused").await, 0);
    }
    db.ledger.close().await;
    let entries_read = db.count(entries_read).await - before;
    assert!(entries_read < RECORDS, "{entries_read} entries of the index by position were read");
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
        let published = tokio::time::timeout(Duration::from_secs(30), newest.changed()).await;
        published.unwrap_or_else(|_| panic!("no record after {seen} of 200")).unwrap();
        let published = *newest.borrow_and_update();
        for stored in db.ledger.records(&RecordFilter::default(), after, 1000.into()).await.unwrap() {
            after = Some(stored.position);
            seen += 1;
        }
        assert!(after >= Some(published), "{published} was published, but the last record is {after:?} of {seen}");
    }
    assert_eq!(seen, writers.join_all().await.len());
}

/// Returns a path of `bytes` bytes that does not compress well.
fn long_path(first: &str, bytes: usize) -> String {
    let mut path = first.to_owned();
    while path.len() < bytes {
        path.push('/');
        for number in 0..3 {
            path.push_str(&model::Sha256::of(format!("{number} {}", path.len()).as_bytes()).to_string());
        }
    }
    path.truncate(bytes);
    path
}

#[rstest]
#[tokio::test]
async fn records_of_paths_of_every_length_are_stored_and_found(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    db.run("r").await;
    let mut paths: Vec<_> = [10, 511, 512, 513, 2600, 2800, 4095, 4096].map(|bytes| long_path("a", bytes)).to_vec();
    // Two that differ in their last byte only, and one of characters of four bytes.
    paths.push(format!("{}z", &paths[7][..4095]));
    paths.push(format!("{}{}", "\u{1f600}".repeat(60), format!("/{}", "\u{1f600}".repeat(60)).repeat(15)));
    for (index, file) in paths.iter().enumerate() {
        db.append(write("r", &format!("w{index}"), file)).await;
    }
    let size = PageSize { rows: 100, bytes: u64::MAX };
    let find = async |filter: RecordFilter| {
        let found = db.ledger.records(&filter, None, size).await.unwrap();
        let written = |record: &StoredRecord| {
            let record: Record = serde_json::from_str(&record.text).unwrap();
            record.paths_written.first().map(ToString::to_string)
        };
        found.iter().filter_map(written).collect::<Vec<_>>()
    };
    for file in &paths {
        let filter = RecordFilter { path: Some(file.clone()), ..RecordFilter::default() };
        assert_eq!(find(filter).await, std::slice::from_ref(file), "{} bytes", file.len());
        let last = db.ledger.last_change(&run_id("r"), &path(file), 1000).await.unwrap();
        assert!(last.is_some(), "{} bytes", file.len());
    }
    for bytes in [2, 500, 511, 512, 513, 600, 4000, 4095] {
        let prefix = &paths[7][..bytes];
        let want: Vec<_> = paths.iter().filter(|path| path.starts_with(prefix)).cloned().collect();
        let filter = RecordFilter { path_prefix: Some(prefix.to_owned()), ..RecordFilter::default() };
        assert_eq!(find(filter).await, want, "a prefix of {bytes} bytes");
    }
    let folder = format!("{}/", paths[7].rsplit_once('/').unwrap().0);
    let want: Vec<_> = paths.iter().filter(|path| path.starts_with(&folder)).cloned().collect();
    let filter = RecordFilter { path: Some(folder), ..RecordFilter::default() };
    assert_eq!(find(filter).await, want);
    assert!(db.ledger.verify(&run_id("r")).await.unwrap().intact);
}
