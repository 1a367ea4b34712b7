//! Records and the chain that they form.

use std::collections::BTreeSet;
use std::sync::Arc;

use ledger::{Appended, ApprovalDecision, Entry, LedgerError, RecordFilter, Reply};
use model::{ApprovalId, ApprovalState, Outcome, Record, Sha256};
use rstest::rstest;

use crate::harness::{Backend, call_id, only_record, read, run_id, write};
use crate::steps::change;

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_appends_leave_no_gap(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let world = backend.open().await;
    for run in ["r1", "r2"] {
        world.run(run).await;
    }
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..100 {
        let ledger = Arc::clone(&world.ledger);
        let run = if index % 3 == 0 { "r2" } else { "r1" };
        tasks.spawn(async move { ledger.append(vec![read(run, &format!("f{index}"))]).await.unwrap() });
    }
    let mut seqs = BTreeSet::new();
    while let Some(appended) = tasks.join_next().await {
        let record = only_record(appended.unwrap());
        assert!(seqs.insert((record.run_id, record.seq)));
    }
    let expected = (1..=66).map(|seq| (run_id("r1"), seq)).chain((1..=34).map(|seq| (run_id("r2"), seq)));
    assert_eq!(seqs, expected.collect());
    for (run, length) in [("r1", 66), ("r2", 34)] {
        let report = world.ledger.verify(&run_id(run)).await.unwrap();
        assert!(report.intact, "{report:?}");
        assert_eq!(report.records, length);
    }
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn looks_and_changes_that_come_together_are_all_kept(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let mut world = backend.open().await;
    let run = world.run("r1").await;
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..200 {
        let ledger = Arc::clone(&world.ledger);
        let name = format!("f{index}");
        let entry = if index % 4 == 0 { read("r1", &name) } else { crate::steps::change("r1", &name, &name) };
        tasks.spawn(async move { ledger.append(vec![entry]).await.unwrap() });
    }
    let mut changes = Vec::new();
    while let Some(appended) = tasks.join_next().await {
        let record = only_record(appended.unwrap());
        if record.mutates {
            changes.push((record.run_id, record.seq));
        }
    }
    assert_eq!(changes.len(), 150);
    // What was answered is there for the next process too.
    world.reopen().await;
    let report = world.ledger.verify(&run).await.unwrap();
    assert!(report.intact, "{report:?}");
    assert_eq!(report.records, 200);
    assert_eq!(world.ledger.pending_journal(None).await.unwrap().len(), 150);
    let kept = changes.split_off(100);
    world.ledger.prune(&changes).await.unwrap();
    let left: BTreeSet<_> =
        world.ledger.pending_journal(None).await.unwrap().into_iter().map(|open| (open.run_id, open.seq)).collect();
    assert_eq!(left, kept.into_iter().collect());
}

#[rstest]
#[tokio::test]
async fn a_record_is_chained_and_kept_word_for_word(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut world = backend.open().await;
    let run = world.run("r1").await;
    let first = world.append(read("r1", "a")).await;
    let second = world.append(write("r1", "mine", "src/b")).await;
    assert_eq!((first.seq, first.prev_hash), (1, Sha256::ZERO));
    assert_eq!((second.seq, second.prev_hash), (2, first.hash.unwrap()));
    assert_eq!(second.hash.unwrap(), Sha256::of(second.to_canonical().as_bytes()));
    world.reopen().await;
    let filter = RecordFilter { run: Some(run.clone()), ..RecordFilter::default() };
    let stored = world.ledger.records(&filter, None, 10.into()).await.unwrap();
    let records: Vec<Record> = stored.iter().map(|one| serde_json::from_str(&one.text).unwrap()).collect();
    assert_eq!(records, [first, second.clone()]);
    assert_eq!(*world.ledger.newest_position().borrow(), stored[1].position);
    let third = world.append(read("r1", "c")).await;
    assert_eq!((third.seq, third.prev_hash), (3, second.hash.unwrap()));
    assert_eq!(*world.ledger.newest_position().borrow(), stored[1].position + 1);
}

#[rstest]
#[tokio::test]
async fn a_claimed_id_belongs_to_its_first_call(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let world = backend.open().await;
    let (run, _) = (world.run("r1").await, world.run("r2").await);
    world.append(write("r1", "mine", "a")).await;
    let other_input = world.try_append(write("r1", "mine", "b")).await.unwrap();
    assert!(matches!(other_input, Appended::Reused(_)));
    let mut other_tool = write("r1", "mine", "a");
    other_tool.draft.tool = "delete_file".into();
    assert!(matches!(world.try_append(other_tool.clone()).await.unwrap(), Appended::Reused(_)));
    // Another run's IDs are its own; who does not claim the ID is not asked.
    assert_eq!(world.append(write("r2", "mine", "b")).await.seq, 1);
    other_tool.client_supplied_id = false;
    assert_eq!(world.append(other_tool).await.seq, 2);
    assert_eq!(world.ledger.run(&run).await.unwrap().unwrap().run.counts.calls, 2);
}

#[rstest]
#[tokio::test]
async fn a_call_that_has_a_reply_is_not_appended_again(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let world = backend.open().await;
    let run = world.run("r1").await;
    // A call that left no reply may come again, and so may a read.
    let unanswered = Entry { reply: None, ..write("r1", "mine", "a") };
    assert_eq!(world.append(unanswered.clone()).await.seq, 1);
    assert_eq!(world.append(change("r1", "mine", "a")).await.seq, 2);
    let again = world.try_append(change("r1", "mine", "a")).await.unwrap();
    assert!(matches!(again, Appended::Repeated(_)), "{again:?}");
    assert_eq!(world.append(unanswered).await.seq, 3);
    let both = vec![write("r1", "other", "a"), write("r1", "mine", "a")];
    let again = world.ledger.append(both).await.unwrap();
    assert!(matches!(again, Appended::Repeated(1)), "{again:?}");
    let stored = world.ledger.run(&run).await.unwrap().unwrap();
    assert_eq!((stored.run.counts.calls, stored.run.counts.mutations), (3, 1));
    assert_eq!(world.ledger.pending_journal(Some(&run)).await.unwrap().len(), 1);
    assert!(world.ledger.verify(&run).await.unwrap().intact);
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn entries_that_belong_together_are_all_appended_or_none(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let world = backend.open().await;
    let run = world.run("r1").await;
    world.append(write("r1", "taken", "a")).await;
    let three = vec![write("r1", "one", "a"), read("r1", "b"), write("r1", "two", "a")];
    // Others that are written in the same commit come before or behind, never in between.
    let other = tokio::spawn({
        let ledger = Arc::clone(&world.ledger);
        async move { ledger.append(vec![read("r1", "elsewhere")]).await.unwrap() }
    });
    let Appended::Recorded(records) = world.ledger.append(three).await.unwrap() else { panic!("not recorded") };
    assert!(matches!(other.await.unwrap(), Appended::Recorded(_)));
    assert_eq!(
        records.iter().map(|record| record.tool.as_str()).collect::<Vec<_>>(),
        ["write_file", "read_file", "write_file"]
    );
    assert!(records.windows(2).all(|two| two[1].seq == two[0].seq + 1 && Some(two[1].prev_hash) == two[0].hash));
    for (entries, place) in [
        (vec![write("r1", "new", "a"), write("r1", "taken", "other"), write("r1", "newer", "a")], 1),
        (vec![write("r1", "new", "a"), read("r1", "a"), write("r1", "two", "b")], 2),
    ] {
        let appended = world.ledger.append(entries).await.unwrap();
        assert!(matches!(appended, Appended::Reused(reused) if reused == place), "{appended:?}");
    }
    assert!(world.ledger.call(&run, &call_id("new")).await.unwrap().is_none());
    let mut undecided = write("r1", "new", "a");
    undecided.approval_decision = Some(ApprovalDecision {
        approval_id: ApprovalId::parse("none").unwrap(),
        state: ApprovalState::Denied,
        decided_by: Some("ada".into()),
        note: None,
    });
    let appended = world.ledger.append(vec![write("r1", "newer", "a"), undecided]).await.unwrap();
    assert!(matches!(appended, Appended::NotPending), "{appended:?}");
    let unknown = world.ledger.append(vec![read("none", "a"), read("none", "b")]).await;
    assert!(matches!(unknown, Err(LedgerError::NoSuchRun)));
    let report = world.ledger.verify(&run).await.unwrap();
    assert!(report.intact, "{report:?}");
    assert_eq!(report.head_seq, 5);
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn of_two_calls_that_claim_one_id_at_once_one_is_refused(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let world = backend.open().await;
    world.run("r1").await;
    for round in 0..20 {
        let id = format!("call-{round}");
        let one = world.try_append(write("r1", &id, "a"));
        let other = world.try_append(write("r1", &id, "b"));
        let (one, other) = tokio::join!(one, other);
        let recorded = [one.unwrap(), other.unwrap()].iter().filter(|a| matches!(a, Appended::Recorded(_))).count();
        assert_eq!(recorded, 1);
    }
}

#[rstest]
#[tokio::test]
async fn a_call_is_told_with_its_newest_record_and_its_first_reply(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let world = backend.open().await;
    let run = world.run("r1").await;
    assert!(world.ledger.call(&run, &call_id("mine")).await.unwrap().is_none());
    let mut failed = write("r1", "mine", "a");
    failed.draft.outcome = Outcome::Failed;
    failed.reply = None;
    failed.client_supplied_id = false;
    world.append(failed).await;
    let call = world.ledger.call(&run, &call_id("mine")).await.unwrap().unwrap();
    assert_eq!((call.seq, call.reply, call.tool.as_str()), (1, None, "write_file"));

    world.append(write("r1", "mine", "a")).await;
    // As an approval's decision is recorded.
    let mut decided = Entry { client_supplied_id: false, ..write("r1", "mine", "a") };
    decided.reply = Some(Reply { status: 409, body: "{}".into() });
    let decided = world.append(decided).await;
    let mut refused = read("r1", "a");
    refused.draft.tool_call_id = call_id("mine");
    world.append(refused).await;
    let call = world.ledger.call(&run, &call_id("mine")).await.unwrap().unwrap();
    assert_eq!(call.seq, 2);
    assert_eq!(call.input_sha256, Sha256::of(b"a"));
    assert_eq!(call.reply, Some(Reply { status: 200, body: "{\"path\":\"a\"}".into() }));
    assert_eq!(serde_json::from_str::<Record>(&call.record).unwrap(), decided);
    assert!(world.ledger.call(&run_id("r2"), &call_id("mine")).await.unwrap().is_none());
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_bad_entry_does_not_fail_its_group(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let world = backend.open().await;
    let run = world.run("r1").await;
    world.append(crate::steps::change("r1", "taken", "a")).await;
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..30 {
        let ledger = Arc::clone(&world.ledger);
        tasks.spawn(async move {
            let entry = match index % 3 {
                0 => read("r1", "a"),
                1 => read("nobody", "a"),
                // An artifact's ID that is there already.
                _ => Entry { client_supplied_id: false, ..change("r1", "taken", "a") },
            };
            (index % 3, ledger.append(vec![entry]).await)
        });
    }
    while let Some(appended) = tasks.join_next().await {
        match appended.unwrap() {
            (0, appended) => assert!(matches!(appended, Ok(Appended::Recorded(_))), "{appended:?}"),
            (1, appended) => assert!(matches!(appended, Err(LedgerError::NoSuchRun)), "{appended:?}"),
            (_, appended) => assert!(matches!(appended, Err(LedgerError::AlreadyExists)), "{appended:?}"),
        }
    }
    let report = world.ledger.verify(&run).await.unwrap();
    assert!(report.intact, "{report:?}");
    assert_eq!(report.records, 11);
    assert_eq!(world.ledger.pending_journal(None).await.unwrap().len(), 1);
}
