//! A SQLite database that was not closed cleanly: its last commits are only in the write-ahead log.

use std::error::Error as _;
use std::path::PathBuf;

use rusqlite::Connection;

use crate::harness::{Backend, TestDatabase, read, run_id};

/// Writes a log, checkpoints and truncates it, and writes a second one.
const WRITE_TWO_LOGS: &str = "CREATE TABLE filler (a BLOB); \
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200) \
      INSERT INTO filler SELECT randomblob(3000) FROM n; \
    PRAGMA wal_checkpoint(TRUNCATE); \
    INSERT INTO filler SELECT randomblob(3000) FROM filler; UPDATE run SET needs_repair = true";

/// Returns a closed ledger with a run, the paths of its database file and log, and three contents: the file before and after
/// [`WRITE_TWO_LOGS`], and the second log.
async fn database_and_logs() -> (TestDatabase, [PathBuf; 2], [Vec<u8>; 3]) {
    let db = Backend::Sqlite.open().await;
    db.run("r1").await;
    db.append(read("r1", "a")).await;
    db.ledger.close().await;
    let file = PathBuf::from(db.url().strip_prefix("sqlite://").unwrap());
    let log = PathBuf::from(format!("{}-wal", file.display()));
    assert!(!log.exists());
    let old = std::fs::read(&file).unwrap();
    let raw = Connection::open(&file).unwrap();
    raw.execute_batch(WRITE_TWO_LOGS).unwrap();
    let (new, newest) = (std::fs::read(&file).unwrap(), std::fs::read(&log).unwrap());
    drop(raw);
    (db, [file, log], [old, new, newest])
}

#[tokio::test]
async fn a_database_file_older_than_its_log_is_rejected_and_unchanged() {
    let (mut db, [file, log], [old, new, newest]) = database_and_logs().await;
    std::fs::write(&file, &old).unwrap();
    std::fs::write(&log, &newest).unwrap();
    for _ in 0..2 {
        let error = ledger::open(db.url()).await.err().unwrap();
        let message = error.source().unwrap().to_string();
        assert!(message.contains("workspaced.db-wal"), "{message}");
        assert!(std::fs::read(&file).unwrap() == old && std::fs::read(&log).unwrap() == newest, "a file was changed");
    }
    // The file that the log belongs to can be opened, and so can the older file without a log.
    std::fs::write(&file, &new).unwrap();
    db.reopen().await;
    db.append(read("r1", "a")).await;
    db.ledger.close().await;
    std::fs::write(&file, &old).unwrap();
    db.reopen().await;
    db.append(read("r1", "a")).await;
}

#[tokio::test]
async fn the_commits_in_the_log_are_recovered() {
    let (mut db, [file, log], [_, new, newest]) = database_and_logs().await;
    std::fs::write(&file, &new).unwrap();
    std::fs::write(&log, &newest).unwrap();
    db.reopen().await;
    assert!(db.ledger.run(&run_id("r1")).await.unwrap().unwrap().needs_repair);
    db.append(read("r1", "a")).await;
}
