//! A database that is unavailable for a while.

use std::time::Duration;

use ledger::{Appended, LedgerError};
use model::Record;
use rstest::rstest;

use crate::harness::{Backend, TestDatabase, only_record, read, run_id};
use crate::journal::mutation;

/// Terminates every connection except the one that executes this.
const TERMINATE: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
    WHERE datname = current_database() AND pid <> pg_backend_pid()";

/// Retries an append until the database is available again. Returns the record.
async fn append_with_retries(db: &TestDatabase) -> Record {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    let mut attempt = 0;
    loop {
        attempt += 1;
        match db.try_append(mutation("r1", &format!("retry-{attempt}"), "src/a")).await {
            Ok(appended @ Appended::Recorded(_)) => return only_record(appended),
            Err(LedgerError::Unavailable(_)) if tokio::time::Instant::now() < deadline => {}
            other => panic!("{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Asserts that the run's chain is intact and has `records` records.
async fn assert_intact(db: &TestDatabase, records: u64) {
    let report = db.ledger.verify(&run_id("r1")).await.unwrap();
    assert!(report.intact, "{report:?}");
    assert_eq!(report.records, records);
}

#[tokio::test]
async fn a_lost_connection_is_replaced() {
    let db = Backend::Postgres.open().await;
    db.run("r1").await;
    db.append(mutation("r1", "one", "src/a")).await;
    db.execute(TERMINATE).await.unwrap();
    // The connection was idle: an append that fails had not sent its commit, so a retry cannot record it twice.
    let record = append_with_retries(&db).await;
    assert_eq!(record.seq, 2);
    assert_intact(&db, 2).await;
    assert_eq!(db.ledger.pending_journal(None).await.unwrap().len(), 2);
}

#[tokio::test]
async fn requests_fail_while_the_database_is_unavailable_and_succeed_afterwards() {
    let db = Backend::Postgres.open().await;
    db.run("r1").await;
    db.append(mutation("r1", "one", "src/a")).await;
    let name = db.name();
    db.execute_as_admin(&format!("ALTER DATABASE {name} ALLOW_CONNECTIONS false")).await;
    let terminate = TERMINATE.replace("current_database()", &format!("'{name}'"));
    db.execute_as_admin(&terminate).await;
    for id in ["two", "three", "four"] {
        let failed = db.try_append(mutation("r1", id, "src/a")).await;
        assert!(matches!(failed, Err(LedgerError::Unavailable(_))), "{failed:?}");
    }
    let failed = db.ledger.run(&run_id("r1")).await.map(drop);
    assert!(matches!(failed, Err(LedgerError::Unavailable(_))), "{failed:?}");
    let failed = db.ledger.ping().await;
    assert!(matches!(failed, Err(LedgerError::Unavailable(_))), "{failed:?}");

    db.execute_as_admin(&format!("ALTER DATABASE {name} ALLOW_CONNECTIONS true")).await;
    let record = append_with_retries(&db).await;
    assert_eq!(record.seq, 2);
    assert_intact(&db, 2).await;
}

#[rstest]
#[tokio::test]
async fn a_failed_append_is_rolled_back(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let db = backend.open().await;
    let run = db.run("r1").await;
    db.append(mutation("r1", "one", "src/a")).await;
    db.execute("ALTER TABLE record_path RENAME TO renamed").await.unwrap();
    let failed = db.try_append(mutation("r1", "two", "src/a")).await;
    assert!(matches!(failed, Err(LedgerError::Internal(_))), "{failed:?}");
    db.execute("ALTER TABLE renamed RENAME TO record_path").await.unwrap();
    assert_intact(&db, 1).await;
    assert_eq!(db.ledger.pending_journal(None).await.unwrap().len(), 1);
    assert_eq!(db.ledger.run(&run).await.unwrap().unwrap().run.counts.mutations, 1);
    assert_eq!(db.append(read("r1", "a")).await.seq, 2);
    assert_intact(&db, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_write_ahead_log_is_checkpointed_under_load() {
    let db = Backend::Sqlite.open().await;
    db.run("r1").await;
    let mut written = 0;
    for round in 0..50 {
        let mut entry = mutation("r1", &format!("id-{round}"), "src/a");
        let diff = vec![round; 4 << 20];
        written += diff.len();
        entry.draft.diff_sha256 = Some(model::Sha256::of(&diff));
        entry.artifact.as_mut().unwrap().diff = diff;
        db.append(entry).await;
    }
    let path = db.url().strip_prefix("sqlite://").unwrap();
    let log = usize::try_from(std::fs::metadata(format!("{path}-wal")).unwrap().len()).unwrap();
    assert!(log < written / 4 * 3, "the log has {log} bytes after writing {written}");
    assert_intact(&db, 50).await;
}

/// The next user of the connection would be in the transaction, and lose what it writes.
#[tokio::test]
async fn a_caller_that_stops_waiting_leaves_no_transaction_open() {
    const OPEN: &str = "SELECT count(*) FROM pg_stat_activity \
        WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
    let db = Backend::Postgres.open().await;
    db.run("r1").await;
    let run = run_id("r1");
    for tens_of_micros in 0..150 {
        // `settled_run` begins a transaction, and takes about a millisecond.
        let limit = Duration::from_micros(tens_of_micros * 10);
        drop(tokio::time::timeout(limit, db.ledger.settled_run(&run)).await);
        // What the pool does with the connection has no end that can be waited for.
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!(db.count(OPEN).await, 0, "after {limit:?}");
    }
}
