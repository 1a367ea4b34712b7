//! The preconditions of entries, which are checked in the transaction that records them.

use ledger::{Appended, Entry, FailedPrecondition, Preconditions, RequiredToken, TokenHolder};
use model::{RunState, TokenId};
use rstest::rstest;

use crate::approvals::approval_request;
use crate::harness::{Backend, RunChanges as _, TestDatabase, new_token, read, run_id, write};

/// Returns `entry` with the precondition that the run is open.
fn requiring_open_run(entry: Entry) -> Entry {
    Entry { preconditions: Preconditions { open_run: true, token: None }, ..entry }
}

/// Returns `entry` with the precondition that the token `id` is valid. It expires in 2030; the current time is in 2026.
fn requiring_token(id: &str, entry: Entry) -> Entry {
    let token = RequiredToken {
        holder: TokenHolder::Run(TokenId::parse(id).unwrap()),
        expires_at: Some("2030-01-01T00:00:00.000000Z".to_owned()),
        now: || "2026-01-01T00:00:00.000000Z".to_owned(),
    };
    Entry { preconditions: Preconditions { open_run: false, token: Some(token) }, ..entry }
}

/// Appends an entry. Returns the precondition that does not hold.
async fn append(db: &TestDatabase, entry: Entry) -> Option<FailedPrecondition> {
    match db.try_append(entry).await.unwrap() {
        Appended::Recorded(_) => None,
        Appended::PreconditionFailed(failed) => Some(failed),
        other => panic!("{other:?}"),
    }
}

#[rstest]
#[tokio::test]
async fn mutations_of_a_run_that_is_not_open_are_not_recorded(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
    #[values(RunState::Closed, RunState::Deleted)] state: RunState,
) {
    let db = backend.open().await;
    let run = db.run("r1").await;
    assert_eq!(append(&db, requiring_open_run(write("r1", "one", "a"))).await, None);
    assert_eq!(append(&db, requiring_open_run(approval_request("r1", "two"))).await, None);
    assert_eq!(
        append(&db, requiring_open_run(write("r1", "three", "a"))).await,
        None,
        "a run that awaits approval accepts mutations"
    );
    db.ledger.set_run_state(&run, state, Some("2026-01-02T00:00:00Z")).await.unwrap();
    assert_eq!(append(&db, requiring_open_run(write("r1", "four", "a"))).await, Some(FailedPrecondition::Run(state)));
    assert_eq!(
        append(&db, requiring_open_run(approval_request("r1", "five"))).await,
        Some(FailedPrecondition::Run(state))
    );
    // All entries or none. Entries without preconditions are still recorded.
    let entries = vec![read("r1", "a"), requiring_open_run(write("r1", "six", "a"))];
    let all = db.ledger.append(entries).await.unwrap();
    assert!(matches!(all, Appended::PreconditionFailed(FailedPrecondition::Run(found)) if found == state), "{all:?}");
    // After the record of the change of state.
    assert_eq!(db.append(read("r1", "a")).await.seq, 5);
    let stored = db.ledger.run(&run_id("r1")).await.unwrap().unwrap().run;
    assert_eq!((stored.state, stored.counts.pending_approvals), (state, 1));
}

#[rstest]
#[tokio::test]
async fn calls_of_a_revoked_or_expired_token_are_not_recorded(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let mut db = backend.open().await;
    let run = db.run("r1").await;
    db.run("r2").await;
    for id in ["first", "second"] {
        db.ledger.create_token(&new_token("r1", id)).await.unwrap();
        assert_eq!(append(&db, requiring_token(id, read("r1", "a"))).await, None);
    }
    db.ledger.revoke_token(&run, &TokenId::parse("first").unwrap()).await.unwrap();
    let read_by = |id: &'static str| requiring_token(id, read("r1", "a"));
    assert_eq!(append(&db, read_by("first")).await, Some(FailedPrecondition::Token));
    assert_eq!(append(&db, read_by("second")).await, None);
    assert_eq!(
        append(&db, requiring_token("first", read("r2", "a"))).await,
        None,
        "a token of another run with the same ID"
    );
    db.reopen().await;
    assert_eq!(append(&db, read_by("first")).await, Some(FailedPrecondition::Token));
    let mut late = read_by("second");
    late.preconditions.token.as_mut().unwrap().now = || "2030-01-01T00:00:00.000000Z".to_owned();
    assert_eq!(append(&db, late).await, Some(FailedPrecondition::Token));
    let mut both = read_by("first");
    both.preconditions.open_run = true;
    db.ledger.set_run_state(&run, RunState::Closed, None).await.unwrap();
    assert_eq!(
        append(&db, both).await,
        Some(FailedPrecondition::Token),
        "a caller without a valid token must not learn the state of the run"
    );
}
