//! A database that is another instance's, that has lost what was acknowledged, or that does not say whether it has committed.

use std::sync::Arc;
use std::time::Duration;

use ledger::{Fence, LedgerError, NewCheckpoint, StoredCheckpoint};
use model::{RunState, TokenId};
use rstest::rstest;
use sqlx::{Connection as _, Executor as _, PgConnection};

use crate::harness::{Backend, World, new_run, new_token, read, run_id};
use crate::steps::change;

fn is_fenced<T: std::fmt::Debug>(done: &Result<T, LedgerError>, why: Fence) {
    assert!(matches!(done, Err(LedgerError::Fenced(fence)) if *fence == why), "{done:?}");
}

#[rstest]
#[tokio::test]
async fn an_instance_takes_over_from_the_one_that_it_knows(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let world = backend.open().await;
    assert!(world.ledger.take_over(None, "one").await.unwrap());
    assert_eq!(world.ledger.setting(ledger::INSTANCE).await.unwrap().as_deref(), Some("one"));
    for known in [None, Some("other")] {
        assert!(!world.ledger.take_over(known, "two").await.unwrap(), "{known:?}");
    }
    assert_eq!(world.ledger.setting(ledger::INSTANCE).await.unwrap().as_deref(), Some("one"));
    assert!(world.ledger.take_over(Some("one"), "two").await.unwrap());
    world.run("r1").await;
    world.append(change("r1", "c", "a")).await;
}

#[tokio::test]
async fn nothing_is_committed_to_a_database_that_another_instance_has_taken_over() {
    let world = Backend::Postgres.open().await;
    let run = world.run("r1").await;
    assert!(world.ledger.take_over(None, "one").await.unwrap());
    world.append(change("r1", "mine", "a")).await;
    world.ledger.ping().await.unwrap();
    let other = ledger::open(world.url()).await.unwrap();
    assert!(other.take_over(Some("one"), "two").await.unwrap());

    let old = Arc::clone(&world.ledger);
    is_fenced(&old.append(vec![read("r1", "a")]).await, Fence::TakenOver);
    is_fenced(&old.set_needs_repair(&run, true).await, Fence::TakenOver);
    is_fenced(&old.prune(&[(run.clone(), 1)]).await, Fence::TakenOver);
    is_fenced(&old.ping().await, Fence::TakenOver);
    let stored = other.settled_run(&run).await.unwrap().unwrap();
    assert_eq!((stored.stored.run.head_seq, stored.stored.needs_repair, stored.journal.len()), (1, false, 1));
    other.append(vec![read("r1", "a")]).await.unwrap();
    other.prune(&[(run.clone(), 1)]).await.unwrap();
    other.ping().await.unwrap();
    assert_eq!(other.pending_journal(None).await.unwrap().len(), 0);
    other.close().await;
}

impl World {
    async fn set_back(&self, sql: &str) {
        self.unguard("audit_record").await;
        self.raw(sql).await.unwrap();
    }
}

#[rstest]
#[case::the_whole_database("DELETE FROM audit_record WHERE position > 2; UPDATE run_head SET head_seq = 2")]
#[case::one_run("DELETE FROM audit_record WHERE position = 3; UPDATE run_head SET head_seq = 2")]
#[case::another_history("UPDATE run_head SET head_hash = sha256('other')")]
#[tokio::test]
async fn nothing_is_committed_to_a_database_that_has_lost_what_was_acknowledged(#[case] back: &str) {
    let mut world = Backend::Postgres.open().await;
    world.run("r1").await;
    world.run("r2").await;
    for _ in 0..3 {
        world.append(read("r1", "a")).await;
    }
    world.append(read("r2", "a")).await;
    let back = format!("{back} WHERE run_no = (SELECT run_no FROM run WHERE run_id = 'r1')");
    world.set_back(&back).await;
    for _ in 0..2 {
        is_fenced(&world.try_append(change("r1", "c", "a")).await, Fence::WentBackwards);
    }
    assert!(world.ledger.pending_journal(None).await.unwrap().is_empty());
    // Whoever opens it next has acknowledged nothing.
    world.reopen().await;
    world.append(read("r2", "a")).await;
}

#[tokio::test]
async fn whatever_writes_is_refused_where_the_database_has_lost_what_was_acknowledged() {
    let world = Backend::Postgres.open().await;
    let run = world.run("r1").await;
    world.append(change("r1", "one", "a")).await;
    world.append(read("r1", "a")).await;
    world.set_back("DELETE FROM audit_record WHERE position > 1; UPDATE run_head SET head_seq = 1").await;
    let ledger = &world.ledger;
    let token = TokenId::parse("tok-r1").unwrap();
    let went_backwards = |done: Result<(), LedgerError>| is_fenced(&done, Fence::WentBackwards);
    went_backwards(ledger.create_run(&new_run("r2"), &new_token("r2", "tok-r2")).await);
    went_backwards(ledger.create_token(&new_token("r1", "tok-2")).await);
    went_backwards(ledger.revoke_token(&run, &token).await.map(drop));
    went_backwards(ledger.set_run_state(&run, RunState::Closed, None).await);
    went_backwards(ledger.set_run_state(&run, RunState::Deleted, None).await);
    went_backwards(ledger.set_needs_repair(&run, true).await);
    went_backwards(ledger.set_disk_usage(&run, None).await);
    went_backwards(ledger.prune(&[(run.clone(), 1)]).await);
    went_backwards(ledger.set_setting_once("name", "value").await.map(drop));
    let checkpoint = StoredCheckpoint { size: 0, position: 2, note: "note".into() };
    let round = NewCheckpoint { leaves: Vec::new(), nodes: Vec::new(), checkpoint };
    went_backwards(ledger.append_checkpoint(round).await);
    went_backwards(ledger.ping().await);
    let settled = ledger.settled_run(&run).await.unwrap().unwrap();
    assert_eq!((settled.stored.run.state, settled.journal.len()), (RunState::Open, 1));
    assert!(ledger.run(&run_id("r2")).await.unwrap().is_none() && ledger.latest_checkpoint().await.unwrap().is_none());
}

#[tokio::test]
async fn a_read_that_settles_waits_for_the_commit_that_is_in_doubt() {
    let world = Backend::Postgres.open().await;
    let run = world.run("r1").await;
    world.append(change("r1", "c", "a")).await;
    let mut doubtful = PgConnection::connect(world.url()).await.unwrap();
    for sql in ["BEGIN", "UPDATE run_head SET files_touched = 77", "DELETE FROM step"] {
        doubtful.execute(sql).await.unwrap();
    }
    // As long as the outcome is open, nothing is told.
    let told = world.ledger.settled_run(&run).await;
    assert!(matches!(told, Err(LedgerError::Unavailable(_))), "{told:?}");
    let ledger = Arc::clone(&world.ledger);
    let waiting = tokio::spawn(async move { ledger.settled_run(&run_id("r1")).await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished());
    doubtful.execute("COMMIT").await.unwrap();
    let settled = waiting.await.unwrap().unwrap().unwrap();
    assert_eq!((settled.stored.usage.files_touched, settled.journal.len()), (77, 0));
    assert!(world.ledger.settled_run(&run_id("none")).await.unwrap().is_none());
}
