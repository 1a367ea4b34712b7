//! Fencing: a database that another instance has taken over, or that has lost acknowledged commits; commits in doubt.

use std::sync::Arc;
use std::time::Duration;

use ledger::{Fence, LedgerError, NewCheckpoint, StoredCheckpoint};
use model::{Disk, RunState, TokenId};
use rstest::rstest;
use sqlx::{Connection as _, Executor as _, PgConnection};

use crate::harness::{Backend, RunChanges as _, TestDatabase, new_run, new_token, read, run_id};
use crate::journal::mutation;

fn assert_fenced<T: std::fmt::Debug>(result: &Result<T, LedgerError>, expected: Fence) {
    assert!(matches!(result, Err(LedgerError::Fenced(fence)) if *fence == expected), "{result:?}");
}

#[rstest]
#[tokio::test]
async fn an_instance_takes_over_only_from_the_current_one(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    assert!(db.ledger.take_over(None, "one").await.unwrap());
    assert_eq!(db.ledger.setting(ledger::INSTANCE).await.unwrap().as_deref(), Some("one"));
    for known in [None, Some("other")] {
        assert!(!db.ledger.take_over(known, "two").await.unwrap(), "{known:?}");
    }
    assert_eq!(db.ledger.setting(ledger::INSTANCE).await.unwrap().as_deref(), Some("one"));
    assert!(db.ledger.take_over(Some("one"), "two").await.unwrap());
    db.run("r1").await;
    db.append(mutation("r1", "c", "a")).await;
}

#[tokio::test]
async fn an_instance_cannot_commit_after_another_has_taken_over() {
    let db = Backend::Postgres.open().await;
    let run = db.run("r1").await;
    assert!(db.ledger.take_over(None, "one").await.unwrap());
    db.append(mutation("r1", "mine", "a")).await;
    db.ledger.ping().await.unwrap();
    let other = ledger::open(db.url()).await.unwrap();
    assert!(other.take_over(Some("one"), "two").await.unwrap());

    let old = Arc::clone(&db.ledger);
    assert_fenced(&old.append(vec![read("r1", "a")]).await, Fence::TakenOver);
    assert_fenced(&old.set_needs_repair(&run, true, "2026-01-01T00:00:00.000000Z").await, Fence::TakenOver);
    assert_fenced(&old.prune(&[(run.clone(), 1)]).await, Fence::TakenOver);
    assert_fenced(&old.ping().await, Fence::TakenOver);
    let stored = other.settled_run(&run).await.unwrap().unwrap();
    assert_eq!((stored.stored.run.head_seq, stored.stored.needs_repair, stored.journal.len()), (1, false, 1));
    other.append(vec![read("r1", "a")]).await.unwrap();
    other.prune(&[(run.clone(), 1)]).await.unwrap();
    other.ping().await.unwrap();
    assert_eq!(other.pending_journal(None).await.unwrap().len(), 0);
    other.close().await;
}

impl TestDatabase {
    /// Removes committed records by `sql`, as a restored backup would.
    async fn roll_back(&self, sql: &str) {
        self.drop_triggers("audit_record").await;
        self.execute(sql).await.unwrap();
    }
}

#[rstest]
#[case::the_whole_database("DELETE FROM audit_record WHERE position > 2; UPDATE run_head SET head_seq = 2")]
#[case::one_run("DELETE FROM audit_record WHERE position = 3; UPDATE run_head SET head_seq = 2")]
#[case::another_history("UPDATE run_head SET head_hash = sha256('other')")]
#[tokio::test]
async fn appends_to_a_database_that_lost_acknowledged_commits_are_rejected(#[case] sql: &str) {
    let mut db = Backend::Postgres.open().await;
    db.run("r1").await;
    db.run("r2").await;
    for _ in 0..3 {
        db.append(read("r1", "a")).await;
    }
    db.append(read("r2", "a")).await;
    let sql = format!("{sql} WHERE run_no = (SELECT run_no FROM run WHERE run_id = 'r1')");
    db.roll_back(&sql).await;
    for _ in 0..2 {
        assert_fenced(&db.try_append(mutation("r1", "c", "a")).await, Fence::LostCommits);
    }
    assert!(db.ledger.pending_journal(None).await.unwrap().is_empty());
    // A new process has not acknowledged any commits.
    db.reopen().await;
    db.append(read("r2", "a")).await;
}

#[tokio::test]
async fn every_write_to_a_database_that_lost_acknowledged_commits_is_rejected() {
    let db = Backend::Postgres.open().await;
    let run = db.run("r1").await;
    db.append(mutation("r1", "one", "a")).await;
    db.append(read("r1", "a")).await;
    let rejected = db.try_append(read("unknown", "a")).await;
    assert!(matches!(rejected, Err(LedgerError::NoSuchRun)), "{rejected:?}");
    db.roll_back("DELETE FROM audit_record WHERE position > 1; UPDATE run_head SET head_seq = 1").await;
    let ledger = &db.ledger;
    let token = TokenId::parse("tok-r1").unwrap();
    let assert_lost = |result: Result<(), LedgerError>| assert_fenced(&result, Fence::LostCommits);
    assert_lost(ledger.create_run(&new_run("r2"), &new_token("r2", "tok-r2"), vec![]).await.map(drop));
    assert_lost(ledger.create_token(&new_token("r1", "tok-2")).await);
    assert_lost(ledger.revoke_token(&run, &token).await.map(drop));
    assert_lost(ledger.set_run_state(&run, RunState::Closed, None).await.map(drop));
    assert_lost(ledger.set_run_state(&run, RunState::Deleted, None).await.map(drop));
    assert_lost(ledger.set_needs_repair(&run, true, "2026-01-01T00:00:00.000000Z").await);
    assert_lost(ledger.set_disk_usage(&run, Disk::default()).await);
    assert_lost(ledger.prune(&[(run.clone(), 1)]).await);
    assert_lost(ledger.set_setting_once("name", "value").await.map(drop));
    let checkpoint = StoredCheckpoint { size: 0, position: 2, note: "note".into() };
    let new = NewCheckpoint { leaves: Vec::new(), nodes: Vec::new(), checkpoint };
    assert_lost(ledger.append_checkpoint(new).await);
    assert_lost(ledger.ping().await);
    let settled = ledger.settled_run(&run).await.unwrap().unwrap();
    assert_eq!((settled.stored.run.state, settled.journal.len()), (RunState::Open, 1));
    assert!(ledger.run(&run_id("r2")).await.unwrap().is_none() && ledger.latest_checkpoint().await.unwrap().is_none());
}

#[tokio::test]
async fn a_settled_read_waits_for_a_commit_in_doubt() {
    let db = Backend::Postgres.open().await;
    let run = db.run("r1").await;
    db.append(mutation("r1", "c", "a")).await;
    let mut in_doubt = PgConnection::connect(db.url()).await.unwrap();
    for sql in ["BEGIN", "UPDATE run_head SET files_touched = 77", "DELETE FROM step"] {
        in_doubt.execute(sql).await.unwrap();
    }
    // It fails while the outcome is unknown.
    let result = db.ledger.settled_run(&run).await;
    assert!(matches!(result, Err(LedgerError::Unavailable(_))), "{result:?}");
    let ledger = Arc::clone(&db.ledger);
    let waiting = tokio::spawn(async move { ledger.settled_run(&run_id("r1")).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished());
    in_doubt.execute("COMMIT").await.unwrap();
    let settled = waiting.await.unwrap().unwrap().unwrap();
    assert_eq!((settled.stored.usage.files_touched, settled.journal.len()), (77, 0));
    assert!(db.ledger.settled_run(&run_id("none")).await.unwrap().is_none());
}

/// A database that speaks PostgreSQL's protocol, and has a `pg_locks` without rows.
#[tokio::test]
async fn a_database_that_does_not_show_advisory_locks_is_refused() {
    let mut db = Backend::Postgres.open().await;
    db.run("r1").await;
    db.execute("CREATE VIEW pg_locks AS SELECT * FROM pg_catalog.pg_locks WHERE false").await.unwrap();
    db.ledger.close().await;
    let hidden = format!("{}&options=-c%20search_path%3Dpublic%2Cpg_catalog", db.url());
    let Err(refused) = ledger::open(&hidden).await.map(drop) else { panic!("it was opened") };
    let text = format!("{refused:?}");
    assert!(text.contains("does not show advisory locks in pg_locks"), "{text}");
    db.reopen().await;
    assert!(db.ledger.verify(&run_id("r1")).await.unwrap().intact);
}
