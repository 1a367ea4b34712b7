//! Forks: stored with a record in the chain of the run that they are made from, and marked as merged with a change of it.

use ledger::{Appended, Entry, Epoch, LedgerError, RunTransition};
use model::{Fork, ForkedFrom, RunState, Sha256, Source};
use rstest::rstest;

use crate::harness::{Backend, RunChanges as _, TestDatabase, change_of, new_run, new_token, read, run_id, write};

/// A record in the chain of a run of something that was done elsewhere.
fn note(run: &str, tool: &str) -> Entry {
    let mut entry = read(run, "a");
    entry.draft.tool = tool.into();
    entry.draft.paths_read = vec![];
    entry.is_of_any_owner = true;
    entry.run_change = (tool == "run.fork").then_some(RunTransition::Fork);
    entry
}

async fn create_fork(db: &TestDatabase, id: &str, of: &str, seq: u64) -> Result<(), LedgerError> {
    let mut stored = new_run(id);
    let source = Source::Run { run_id: run_id(of), at_seq: Some(seq) };
    let origin = std::mem::replace(&mut stored.run.source, source);
    let parent = ForkedFrom { run_id: run_id(of), seq, hash: Sha256::of(b"head"), source: origin, merged_seq: None };
    stored.run.parent = Some(parent);
    let entries = vec![write(id, "taken over", "a"), note(of, "run.fork")];
    db.ledger.create_run(&stored, &new_token(id, "tok_1"), entries).await.map(drop)
}

#[rstest]
#[tokio::test]
async fn a_fork_and_its_merges_are_in_both_chains(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let db = backend.open().await;
    let parent = db.run("parent").await;
    db.append(write("parent", "1", "a")).await;
    for id in ["one", "two"] {
        create_fork(&db, id, "parent", 1).await.unwrap();
    }
    // Not of a run that is deleted.
    db.run("gone").await;
    db.ledger.set_run_state(&run_id("gone"), RunState::Deleted, None).await.unwrap();
    assert!(matches!(create_fork(&db, "three", "gone", 0).await, Err(LedgerError::CreationRejected(_))));
    assert!(db.ledger.run(&run_id("three")).await.unwrap().is_none());
    // Not a second time, and without a record in the other chain.
    assert!(matches!(create_fork(&db, "one", "parent", 1).await, Err(LedgerError::AlreadyExists)));
    let forked = |id: &str, merged_seq, state| Fork { run_id: run_id(id), at_seq: 1, state, merged_seq };
    let forks = db.ledger.forks(&parent, 10).await.unwrap();
    assert_eq!(forks, [forked("two", None, RunState::Open), forked("one", None, RunState::Open)]);
    assert_eq!(db.ledger.forks(&parent, 1).await.unwrap().len(), 1);
    assert_eq!(db.ledger.forks(&run_id("one"), 10).await.unwrap(), []);
    let stored = db.ledger.run(&run_id("one")).await.unwrap().unwrap().run;
    let parent_of = stored.parent.unwrap();
    assert_eq!((&parent_of.run_id, parent_of.seq, parent_of.merged_seq), (&parent, 1, None));
    // By the source of the first run of the line.
    assert_eq!(stored.repository.as_deref(), Some("https://example.org/ü.git"));

    // A merge changes one run and is noted in the other, in one commit. An earlier one may be applied later.
    for (call, seq) in [("2", 7), ("3", 5)] {
        let mut merged = note("one", "run.merge");
        merged.run_change = Some(RunTransition::Merge { seq });
        let appended = db.ledger.append(vec![merged, write("parent", call, "a")]).await.unwrap();
        let Appended::Recorded(records) = appended else { panic!("{appended:?}") };
        let runs: Vec<_> = records.iter().map(|record| record.run_id.as_str()).collect();
        assert_eq!(runs, ["one", "parent"]);
    }
    db.ledger.set_run_state(&run_id("one"), RunState::Closed, None).await.unwrap();
    let forks = db.ledger.forks(&parent, 10).await.unwrap();
    assert_eq!(forks, [forked("two", None, RunState::Open), forked("one", Some(7), RunState::Closed)]);
    let stored = db.ledger.run(&run_id("one")).await.unwrap().unwrap().run;
    assert_eq!(stored.parent.and_then(|parent| parent.merged_seq), Some(7));
    // Neither is recorded if one of them cannot be.
    db.ledger.set_run_state(&parent, RunState::Closed, None).await.unwrap();
    let mut change = write("parent", "4", "a");
    change.preconditions.open_run = true;
    let refused = db.ledger.append(vec![note("one", "run.merge"), change]).await.unwrap();
    assert!(matches!(refused, Appended::PreconditionFailed(_)), "{refused:?}");
    for (run, seq) in [("parent", 6), ("one", 4), ("two", 1)] {
        let head = db.ledger.run(&run_id(run)).await.unwrap().unwrap().run.head_seq;
        assert_eq!(head, seq, "{run}");
        assert!(db.ledger.verify(&run_id(run)).await.unwrap().intact, "{run}");
    }
    // A run that is no fork is not merged.
    db.append(change_of("two", "run.merge", RunTransition::Merge { seq: 9 })).await;
    assert_eq!(db.ledger.forks(&parent, 1).await.unwrap()[0].merged_seq, Some(9));
}

#[rstest]
#[tokio::test]
async fn a_note_is_of_any_node_and_a_change_is_not(#[values(Backend::Postgres)] backend: Backend) {
    let mut db = backend.open().await;
    let other = db.run("other").await;
    db.start_node("a").await;
    let own = db.run("own").await;
    let change = |run: &str, id: &str| Entry { epoch: Some(Epoch::FIRST), ..write(run, id, "a") };
    let appended = db.ledger.append(vec![note("other", "run.merge"), change("own", "1")]).await.unwrap();
    assert!(matches!(appended, Appended::Recorded(_)), "{appended:?}");
    let refused = db.ledger.append(vec![note("own", "run.merge"), change("other", "1")]).await;
    assert!(matches!(refused, Err(LedgerError::RunMoved(run)) if run == other));
    let head = db.ledger.run(&own).await.unwrap().unwrap().run.head_seq;
    assert_eq!(head, 1);
}
