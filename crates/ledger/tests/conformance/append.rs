//! Appending entries: the hash chain, client-supplied IDs and groups.

use std::collections::BTreeSet;
use std::sync::Arc;

use ledger::{Appended, DecidedApproval, Entry, LedgerError, RecordFilter, Reply};
use model::{ApprovalId, ApprovalState, Outcome, Record, Sha256};
use rstest::rstest;

use crate::harness::{Backend, call_id, only_record, read, run_id, write};
use crate::journal::mutation;

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_appends_get_consecutive_seqs(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let db = backend.open().await;
    for run in ["r1", "r2"] {
        db.run(run).await;
    }
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..100 {
        let ledger = Arc::clone(&db.ledger);
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
        let report = db.ledger.verify(&run_id(run)).await.unwrap();
        assert!(report.intact, "{report:?}");
        assert_eq!(report.records, length);
    }
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_reads_and_mutations_are_all_stored(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut db = backend.open().await;
    let run = db.run("r1").await;
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..200 {
        let ledger = Arc::clone(&db.ledger);
        let name = format!("f{index}");
        let entry = if index % 4 == 0 { read("r1", &name) } else { mutation("r1", &name, &name) };
        tasks.spawn(async move { ledger.append(vec![entry]).await.unwrap() });
    }
    let mut mutations = Vec::new();
    while let Some(appended) = tasks.join_next().await {
        let record = only_record(appended.unwrap());
        if record.mutates {
            mutations.push((record.run_id, record.seq));
        }
    }
    assert_eq!(mutations.len(), 150);
    // Acknowledged records survive a restart.
    db.reopen().await;
    let report = db.ledger.verify(&run).await.unwrap();
    assert!(report.intact, "{report:?}");
    assert_eq!(report.records, 200);
    assert_eq!(db.ledger.pending_journal(None).await.unwrap().len(), 150);
    let not_pruned = mutations.split_off(100);
    db.ledger.prune(&mutations).await.unwrap();
    let pending = db.ledger.pending_journal(None).await.unwrap();
    let pending: BTreeSet<_> = pending.into_iter().map(|entry| (entry.run_id, entry.seq)).collect();
    assert_eq!(pending, not_pruned.into_iter().collect());
}

#[rstest]
#[tokio::test]
async fn records_are_chained_and_stored_verbatim(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut db = backend.open().await;
    let run = db.run("r1").await;
    let first = db.append(read("r1", "a")).await;
    let second = db.append(write("r1", "mine", "src/b")).await;
    assert_eq!((first.seq, first.prev_hash), (1, Sha256::ZERO));
    assert_eq!((second.seq, second.prev_hash), (2, first.hash.unwrap()));
    assert_eq!(second.hash.unwrap(), Sha256::of(second.to_canonical().as_bytes()));
    db.reopen().await;
    let filter = RecordFilter { run: Some(run.clone()), ..RecordFilter::default() };
    let stored = db.ledger.records(&filter, None, 10.into()).await.unwrap();
    let records: Vec<Record> = stored.iter().map(|record| serde_json::from_str(&record.text).unwrap()).collect();
    assert_eq!(records, [first, second.clone()]);
    assert_eq!(*db.ledger.newest_position().borrow(), stored[1].position);
    let third = db.append(read("r1", "c")).await;
    assert_eq!((third.seq, third.prev_hash), (3, second.hash.unwrap()));
    assert_eq!(*db.ledger.newest_position().borrow(), stored[1].position + 1);
}

#[rstest]
#[tokio::test]
async fn a_client_supplied_id_cannot_be_reused_for_another_call(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    let (run, _) = (db.run("r1").await, db.run("r2").await);
    db.append(write("r1", "mine", "a")).await;
    let other_input = db.try_append(write("r1", "mine", "b")).await.unwrap();
    assert!(matches!(other_input, Appended::Reused(_)));
    let mut other_tool = write("r1", "mine", "a");
    other_tool.draft.tool = "delete_file".into();
    assert!(matches!(db.try_append(other_tool.clone()).await.unwrap(), Appended::Reused(_)));
    // Another run may use the same ID. IDs that the client did not supply are not checked.
    assert_eq!(db.append(write("r2", "mine", "b")).await.seq, 1);
    other_tool.client_supplied_id = false;
    assert_eq!(db.append(other_tool).await.seq, 2);
    assert_eq!(db.ledger.run(&run).await.unwrap().unwrap().run.counts.calls, 2);
}

#[rstest]
#[tokio::test]
async fn a_call_with_a_stored_reply_is_not_appended_again(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    let run = db.run("r1").await;
    // A call without a stored reply may be repeated, and so may a read.
    let without_reply = Entry { reply: None, ..write("r1", "mine", "a") };
    assert_eq!(db.append(without_reply.clone()).await.seq, 1);
    assert_eq!(db.append(mutation("r1", "mine", "a")).await.seq, 2);
    let again = db.try_append(mutation("r1", "mine", "a")).await.unwrap();
    assert!(matches!(again, Appended::Repeated(_)), "{again:?}");
    assert_eq!(db.append(without_reply).await.seq, 3);
    let both = vec![write("r1", "other", "a"), write("r1", "mine", "a")];
    let again = db.ledger.append(both).await.unwrap();
    assert!(matches!(again, Appended::Repeated(1)), "{again:?}");
    let stored = db.ledger.run(&run).await.unwrap().unwrap();
    assert_eq!((stored.run.counts.calls, stored.run.counts.mutations), (3, 1));
    assert_eq!(db.ledger.pending_journal(Some(&run)).await.unwrap().len(), 1);
    assert!(db.ledger.verify(&run).await.unwrap().intact);
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn entries_of_one_append_are_recorded_all_or_none(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    let run = db.run("r1").await;
    db.append(write("r1", "taken", "a")).await;
    let three = vec![write("r1", "one", "a"), read("r1", "b"), write("r1", "two", "a")];
    // Entries of other appends in the same commit get a seq before or after these, never in between.
    let other = tokio::spawn({
        let ledger = Arc::clone(&db.ledger);
        async move { ledger.append(vec![read("r1", "elsewhere")]).await.unwrap() }
    });
    let Appended::Recorded(records) = db.ledger.append(three).await.unwrap() else { panic!("not recorded") };
    assert!(matches!(other.await.unwrap(), Appended::Recorded(_)));
    assert_eq!(
        records.iter().map(|record| record.tool.as_str()).collect::<Vec<_>>(),
        ["write_file", "read_file", "write_file"]
    );
    assert!(records.windows(2).all(|two| two[1].seq == two[0].seq + 1 && Some(two[1].prev_hash) == two[0].hash));
    for (entries, index) in [
        (vec![write("r1", "new", "a"), write("r1", "taken", "other"), write("r1", "newer", "a")], 1),
        (vec![write("r1", "new", "a"), read("r1", "a"), write("r1", "two", "b")], 2),
    ] {
        let appended = db.ledger.append(entries).await.unwrap();
        assert!(matches!(appended, Appended::Reused(reused) if reused == index), "{appended:?}");
    }
    assert!(db.ledger.call(&run, &call_id("new")).await.unwrap().is_none());
    let mut undecided = write("r1", "new", "a");
    undecided.approval_decision = Some(DecidedApproval {
        approval_id: ApprovalId::parse("none").unwrap(),
        state: ApprovalState::Denied,
        voter: None,
        decided_by: Some("ada".into()),
        on_behalf_of: None,
        note: None,
        votes: None,
        edits_after: None,
    });
    let appended = db.ledger.append(vec![write("r1", "newer", "a"), undecided]).await.unwrap();
    assert!(matches!(appended, Appended::NotPending), "{appended:?}");
    let unknown = db.ledger.append(vec![read("none", "a"), read("none", "b")]).await;
    assert!(matches!(unknown, Err(LedgerError::NoSuchRun)));
    let report = db.ledger.verify(&run).await.unwrap();
    assert!(report.intact, "{report:?}");
    assert_eq!(report.head_seq, 5);
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_concurrent_calls_with_the_same_id_is_rejected(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    db.run("r1").await;
    for round in 0..20 {
        let id = format!("call-{round}");
        let one = db.try_append(write("r1", &id, "a"));
        let other = db.try_append(write("r1", &id, "b"));
        let (one, other) = tokio::join!(one, other);
        let recorded = [one.unwrap(), other.unwrap()].iter().filter(|a| matches!(a, Appended::Recorded(_))).count();
        assert_eq!(recorded, 1);
    }
}

#[rstest]
#[tokio::test]
async fn a_call_is_returned_with_its_newest_record_and_its_first_reply(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    let run = db.run("r1").await;
    assert!(db.ledger.call(&run, &call_id("mine")).await.unwrap().is_none());
    let mut failed = write("r1", "mine", "a");
    failed.draft.outcome = Outcome::Failed;
    failed.reply = None;
    failed.client_supplied_id = false;
    db.append(failed).await;
    let call = db.ledger.call(&run, &call_id("mine")).await.unwrap().unwrap();
    assert_eq!((call.seq, call.reply, call.tool.as_str()), (1, None, "write_file"));

    db.append(write("r1", "mine", "a")).await;
    // The decision on an approval is recorded like this.
    let mut decided = Entry { client_supplied_id: false, ..write("r1", "mine", "a") };
    decided.reply = Some(Reply { status: 409, body: "{}".into() });
    let decided = db.append(decided).await;
    let mut refused = read("r1", "a");
    refused.draft.tool_call_id = call_id("mine");
    db.append(refused).await;
    let call = db.ledger.call(&run, &call_id("mine")).await.unwrap().unwrap();
    assert_eq!(call.seq, 2);
    assert_eq!(call.input_sha256, Sha256::of(b"a"));
    assert_eq!(call.reply, Some(Reply { status: 200, body: "{\"path\":\"a\"}".into() }));
    assert_eq!(serde_json::from_str::<Record>(&call.record).unwrap(), decided);
    assert!(db.ledger.call(&run_id("r2"), &call_id("mine")).await.unwrap().is_none());
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_failed_append_does_not_affect_others_in_its_group(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    let run = db.run("r1").await;
    db.append(mutation("r1", "taken", "a")).await;
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..30 {
        let ledger = Arc::clone(&db.ledger);
        tasks.spawn(async move {
            let entry = match index % 3 {
                0 => read("r1", "a"),
                1 => read("unknown", "a"),
                // The ID of an existing artifact.
                _ => Entry { client_supplied_id: false, ..mutation("r1", "taken", "a") },
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
    let report = db.ledger.verify(&run).await.unwrap();
    assert!(report.intact, "{report:?}");
    assert_eq!(report.records, 11);
    assert_eq!(db.ledger.pending_journal(None).await.unwrap().len(), 1);
}
