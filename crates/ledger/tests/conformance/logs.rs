//! A SQLite database that was not closed: its log holds what it was told last.

use std::error::Error as _;
use std::path::PathBuf;

use rusqlite::Connection;

use crate::harness::{Backend, World, read, run_id};

/// More than one generation of the log, the first of which has been copied into the file.
const WORK: &str = "CREATE TABLE filler (a BLOB); \
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200) \
      INSERT INTO filler SELECT randomblob(3000) FROM n; \
    PRAGMA wal_checkpoint(TRUNCATE); \
    INSERT INTO filler SELECT randomblob(3000) FROM filler; UPDATE run SET needs_repair = true";

/// A closed ledger with a run, the place of its file and of its log, and the file before and after more work together with
/// the log of that.
async fn worked() -> (World, [PathBuf; 2], [Vec<u8>; 3]) {
    let world = Backend::Sqlite.open().await;
    world.run("r1").await;
    world.append(read("r1", "a")).await;
    world.ledger.close().await;
    let file = PathBuf::from(world.url().strip_prefix("sqlite://").unwrap());
    let log = PathBuf::from(format!("{}-wal", file.display()));
    assert!(!log.exists());
    let old = std::fs::read(&file).unwrap();
    let raw = Connection::open(&file).unwrap();
    raw.execute_batch(WORK).unwrap();
    let (new, newest) = (std::fs::read(&file).unwrap(), std::fs::read(&log).unwrap());
    drop(raw);
    (world, [file, log], [old, new, newest])
}

#[tokio::test]
async fn an_older_file_beside_a_newer_log_is_refused_and_left_as_it_is() {
    let (mut world, [file, log], [old, new, newest]) = worked().await;
    std::fs::write(&file, &old).unwrap();
    std::fs::write(&log, &newest).unwrap();
    for _ in 0..2 {
        let Err(error) = ledger::open(world.url()).await else { panic!("it was opened") };
        let told = error.source().unwrap().to_string();
        assert!(told.contains("workspaced.db-wal"), "{told}");
        assert!(
            std::fs::read(&file).unwrap() == old && std::fs::read(&log).unwrap() == newest,
            "something was written"
        );
    }
    // Its own file, or no log, makes it good.
    std::fs::write(&file, &new).unwrap();
    world.reopen().await;
    world.append(read("r1", "a")).await;
    world.ledger.close().await;
    std::fs::write(&file, &old).unwrap();
    world.reopen().await;
    world.append(read("r1", "a")).await;
}

#[tokio::test]
async fn a_file_with_its_own_log_has_what_the_log_says() {
    let (mut world, [file, log], [_, new, newest]) = worked().await;
    std::fs::write(&file, &new).unwrap();
    std::fs::write(&log, &newest).unwrap();
    world.reopen().await;
    assert!(world.ledger.run(&run_id("r1")).await.unwrap().unwrap().needs_repair);
    world.append(read("r1", "a")).await;
}
