//! What a call needs is checked in the transaction that records it.

use ledger::{Appended, Entry, FailedPrecondition, Preconditions, RequiredToken};
use model::{RunState, TokenId};
use rstest::rstest;

use crate::approvals::asking;
use crate::harness::{Backend, World, new_token, read, run_id, write};

/// `entry` as a call that needs an open run.
fn needing_open(entry: Entry) -> Entry {
    Entry { preconditions: Preconditions { open_run: true, token: None }, ..entry }
}

/// `entry` as a call by the token `id`, which ends in 2030, in 2026.
fn by(id: &str, entry: Entry) -> Entry {
    let token = RequiredToken {
        token_id: TokenId::parse(id).unwrap(),
        expires_at: Some("2030-01-01T00:00:00.000000Z".to_owned()),
        now: || "2026-01-01T00:00:00.000000Z".to_owned(),
    };
    Entry { preconditions: Preconditions { open_run: false, token: Some(token) }, ..entry }
}

async fn unmet(world: &World, entry: Entry) -> Option<FailedPrecondition> {
    match world.try_append(entry).await.unwrap() {
        Appended::Recorded(_) => None,
        Appended::PreconditionFailed(unmet) => Some(unmet),
        other => panic!("{other:?}"),
    }
}

#[rstest]
#[tokio::test]
async fn a_run_that_takes_no_mutations_records_none(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
    #[values(RunState::Closed, RunState::Deleted)] state: RunState,
) {
    let world = backend.open().await;
    let run = world.run("r1").await;
    assert_eq!(unmet(&world, needing_open(write("r1", "one", "a"))).await, None);
    assert_eq!(unmet(&world, needing_open(asking("r1", "two"))).await, None);
    assert_eq!(
        unmet(&world, needing_open(write("r1", "three", "a"))).await,
        None,
        "it waits for a person, and is open"
    );
    world.ledger.set_run_state(&run, state, Some("2026-01-02T00:00:00Z")).await.unwrap();
    assert_eq!(unmet(&world, needing_open(write("r1", "four", "a"))).await, Some(FailedPrecondition::Run(state)));
    assert_eq!(unmet(&world, needing_open(asking("r1", "five"))).await, Some(FailedPrecondition::Run(state)));
    // All or none; what needs nothing is recorded still.
    let entries = vec![read("r1", "a"), needing_open(write("r1", "six", "a"))];
    let all = world.ledger.append(entries).await.unwrap();
    assert!(matches!(all, Appended::PreconditionFailed(FailedPrecondition::Run(found)) if found == state), "{all:?}");
    assert_eq!(world.append(read("r1", "a")).await.seq, 4);
    let stored = world.ledger.run(&run_id("r1")).await.unwrap().unwrap().run;
    assert_eq!((stored.state, stored.counts.pending_approvals), (state, 1));
}

#[rstest]
#[tokio::test]
async fn a_token_that_was_revoked_or_has_expired_records_nothing(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let mut world = backend.open().await;
    let run = world.run("r1").await;
    world.run("r2").await;
    for id in ["first", "second"] {
        world.ledger.create_token(&new_token("r1", id)).await.unwrap();
        assert_eq!(unmet(&world, by(id, read("r1", "a"))).await, None);
    }
    world.ledger.revoke_token(&run, &TokenId::parse("first").unwrap()).await.unwrap();
    let again = |id: &'static str| by(id, read("r1", "a"));
    assert_eq!(unmet(&world, again("first")).await, Some(FailedPrecondition::Token));
    assert_eq!(unmet(&world, again("second")).await, None);
    assert_eq!(unmet(&world, by("first", read("r2", "a"))).await, None, "another run's token");
    world.reopen().await;
    assert_eq!(unmet(&world, again("first")).await, Some(FailedPrecondition::Token));
    let mut late = again("second");
    late.preconditions.token.as_mut().unwrap().now = || "2030-01-01T00:00:00.000000Z".to_owned();
    assert_eq!(unmet(&world, late).await, Some(FailedPrecondition::Token));
    let mut both = again("first");
    both.preconditions.open_run = true;
    world.ledger.set_run_state(&run, RunState::Closed, None).await.unwrap();
    assert_eq!(
        unmet(&world, both).await,
        Some(FailedPrecondition::Token),
        "who may not call learns nothing of the run"
    );
}
