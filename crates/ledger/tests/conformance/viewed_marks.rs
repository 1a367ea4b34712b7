//! What reviewers have viewed.

use futures_util::{StreamExt as _, stream};
use ledger::{LedgerError, MAX_VIEWED_MARKS};
use model::{RunState, ViewedMark};
use rstest::rstest;

use crate::harness::{Backend, RunChanges as _, TestDatabase, path, run_id};

fn mark(at: &str, version: &str) -> ViewedMark {
    ViewedMark { path: path(at), version: version.to_owned(), viewed_at: "2026-01-01T00:00:00.000000Z".to_owned() }
}

async fn viewed(db: &TestDatabase, operator: &str, run: &str) -> Vec<ViewedMark> {
    db.ledger.viewed_marks(operator, &run_id(run)).await.unwrap()
}

#[rstest]
#[tokio::test]
async fn marks_are_of_an_operator_a_run_and_a_path(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut db = backend.open().await;
    for run in ["r1", "r2"] {
        db.run(run).await;
    }
    // Longer than an index of PostgreSQL holds.
    let long = "d/".repeat(2000);
    for (operator, run, at, version) in [
        ("ada", "r1", "a", "1"),
        ("ada", "r1", &long[..long.len() - 1], "1"),
        ("bob", "r1", "a", "1"),
        ("ada", "r2", "a", "3"),
    ] {
        db.ledger.set_viewed_mark(operator, &run_id(run), &mark(at, version)).await.unwrap();
    }
    db.ledger.set_viewed_mark("ada", &run_id("r1"), &mark("a", "2")).await.unwrap();
    db.reopen().await;
    assert_eq!(viewed(&db, "ada", "r1").await, [mark(&long[..long.len() - 1], "1"), mark("a", "2")]);
    assert_eq!(viewed(&db, "ada", "r2").await, [mark("a", "3")]);
    db.ledger.remove_viewed_mark("ada", &run_id("r1"), &path("a")).await.unwrap();
    db.ledger.remove_viewed_mark("ada", &run_id("r1"), &path("none")).await.unwrap();
    assert_eq!(viewed(&db, "ada", "r1").await, [mark(&long[..long.len() - 1], "1")]);
    assert_eq!(viewed(&db, "bob", "r1").await, [mark("a", "1")]);
    assert!(viewed(&db, "cleo", "r1").await.is_empty());

    // They go with the run.
    db.ledger.set_run_state(&run_id("r1"), RunState::Deleted, None).await.unwrap();
    db.ledger.purge_content(&run_id("r1")).await.unwrap();
    assert!(viewed(&db, "ada", "r1").await.is_empty());
    for run in ["r1", "none"] {
        let refused = db.ledger.set_viewed_mark("ada", &run_id(run), &mark("a", "1")).await;
        assert!(matches!(refused, Err(LedgerError::NoSuchRun)), "{refused:?}");
    }
}

#[rstest]
#[tokio::test]
async fn an_operator_has_its_newest_marks(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let db = backend.open().await;
    db.run("r1").await;
    db.run("r2").await;
    let (more, first) = (3, run_id("r1"));
    db.ledger.set_viewed_mark("bob", &first, &mark("0", "1")).await.unwrap();
    let set = |number: u32| {
        let run = if number < 5 { run_id("r1") } else { run_id("r2") };
        let db = &db;
        async move { db.ledger.set_viewed_mark("ada", &run, &mark(&number.to_string(), "1")).await.unwrap() }
    };
    for number in 0..5 {
        set(number).await;
    }
    stream::iter(5..MAX_VIEWED_MARKS + more).for_each_concurrent(8, set).await;
    // Marks that were set at the same time did not count each other.
    set(MAX_VIEWED_MARKS + more - 1).await;
    let kept = viewed(&db, "ada", "r1").await;
    assert_eq!(kept.iter().map(|mark| mark.path.as_str()).collect::<Vec<_>>(), ["4", "3"]);
    assert_eq!(viewed(&db, "ada", "r2").await.len(), 3000);
    assert_eq!(viewed(&db, "bob", "r1").await.len(), 1);
}
