//! What the calls of a run add to the database and to the object store.

use ledger::{Appended, Entry, HistoryExcess, HistoryQuota, RunTransition};
use model::{ApprovalState, Outcome, RunState, Sha256, Verdict};
use rstest::rstest;

use crate::approvals::{approval_decision, approval_request};
use crate::harness::{Backend, RunChanges as _, TestDatabase, new_run, new_token, read, run_id, write};
use crate::journal::mutation;

fn refused(mut entry: Entry) -> Entry {
    (entry.draft.outcome, entry.draft.decision) = (Outcome::Refused, Verdict::Deny);
    entry
}

async fn run_with(db: &TestDatabase, max_bytes: u64, max_records: u64) {
    let mut run = new_run("r1");
    (run.run.policy.quota.max_history_bytes, run.run.policy.quota.max_records) = (max_bytes, max_records);
    db.ledger.create_run(&run, &new_token("r1", "tok-1"), vec![]).await.unwrap();
}

async fn history(db: &TestDatabase, run: &str) -> u64 {
    db.ledger.run(&run_id(run)).await.unwrap().unwrap().run.disk.history_bytes
}

#[rstest]
#[tokio::test]
async fn every_row_counts_in_the_history_of_its_run(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let db = backend.open().await;
    db.run("r1").await;
    db.run("r2").await;
    assert_eq!(history(&db, "r1").await, 0);
    let Appended::Recorded(records) = db.try_append(read("r1", "a")).await.unwrap() else { panic!("not recorded") };
    let of_read = history(&db, "r1").await;
    assert!((200..2000).contains(&of_read), "{of_read}");
    assert_eq!((records.history.added_bytes, records.history.bytes), (of_read, of_read));
    // A diff and a reply that compression leaves large.
    let noise: Vec<u8> = (0..3000_u32).flat_map(|n| *Sha256::of(&n.to_be_bytes()).as_bytes()).collect();
    let mut large = mutation("r1", "tc_1", "b");
    large.artifact = Some(ledger::Artifact { artifact_id: model::ArtifactId::parse("art-1").unwrap(), diff: noise });
    db.append(large).await;
    let of_write = history(&db, "r1").await - of_read;
    assert!(of_write > 50_000, "{of_write}");
    assert_eq!(history(&db, "r2").await, 0);
    assert_eq!(db.ledger.storage_totals().await.unwrap().history_bytes, of_read + of_write);
}

#[rstest]
#[tokio::test]
async fn a_full_history_takes_refusals_up_to_a_reserve_and_what_ends_the_run(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    run_with(&db, 1 << 30, 3).await;
    for number in 0..3 {
        db.append(read("r1", &format!("f{number}"))).await;
    }
    let exceeded = |appended: Appended| match appended {
        Appended::HistoryQuotaExceeded(excess) => excess,
        other => panic!("{other:?}"),
    };
    let full = exceeded(db.try_append(read("r1", "more")).await.unwrap());
    assert_eq!(full, HistoryExcess { is_bytes: false, limit: 3, actual: 4 });
    exceeded(db.try_append(write("r1", "tc_1", "more")).await.unwrap());
    let before = history(&db, "r1").await;
    for _ in 0..HistoryQuota::RESERVE_RECORDS {
        db.append(refused(read("r1", "more"))).await;
    }
    let reserve_used = exceeded(db.try_append(refused(read("r1", "more"))).await.unwrap());
    assert_eq!((reserve_used.limit, reserve_used.actual), (3, 4 + HistoryQuota::RESERVE_RECORDS));
    assert!(history(&db, "r1").await > before);
    // People and the service are not bounded.
    let mut by_operator = read("r1", "a");
    by_operator.draft.actor = "operator:ada".to_owned();
    db.append(by_operator).await;
    let mut close = read("r1", "x");
    close.run_change = Some(RunTransition::Close { at: "2026-01-02T00:00:00Z".to_owned() });
    db.append(close).await;
    assert_eq!(db.ledger.run(&run_id("r1")).await.unwrap().unwrap().run.state, RunState::Closed);
}

#[rstest]
#[tokio::test]
async fn the_bytes_of_a_history_are_bounded_and_an_approval_can_be_denied(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    run_with(&db, 6000, 1000).await;
    db.append(approval_request("r1", "apr-1")).await;
    let full = loop {
        match db.try_append(read("r1", "a")).await.unwrap() {
            Appended::Recorded(_) => {}
            Appended::HistoryQuotaExceeded(excess) => break excess,
            other => panic!("{other:?}"),
        }
    };
    assert!(full.is_bytes && full.limit == 6000 && full.actual > 6000, "{full:?}");
    assert!(history(&db, "r1").await <= 7000);
    db.append(approval_decision("r1", "apr-1", ApprovalState::Denied)).await;
}

#[rstest]
#[tokio::test]
async fn a_deletion_gives_the_contents_and_objects_of_a_run_back(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    let r1 = db.run("r1").await;
    let mut entry = mutation("r1", "tc_1", "a");
    entry.objects = vec![db.reserved("cas/a", 1_000_000).await];
    db.append(entry.clone()).await;
    let with_object = history(&db, "r1").await;
    assert!(with_object > 1_000_000);
    // An object counts once.
    let mut again = mutation("r1", "tc_2", "b");
    again.objects = vec![db.reserved("cas/a", 1_000_000).await];
    db.append(again).await;
    assert!(history(&db, "r1").await < 1_010_000);
    db.ledger.set_run_state(&r1, RunState::Deleted, None).await.unwrap();
    db.ledger.purge_content(&r1).await.unwrap();
    let left = history(&db, "r1").await;
    assert!(left > 0 && left < with_object - 1_000_000 + 2000, "{left}");
}
