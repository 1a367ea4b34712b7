//! Which objects may be deleted, and by whom.

use std::time::Duration;

use ledger::{Entry, EntryObject, LedgerError, ObjectHolder};
use model::{LogicalPath, RunState};
use rstest::rstest;

use crate::harness::{Backend, RunChanges as _, TestDatabase, run_id, write};

const NOW: Duration = Duration::ZERO;
const DAY: Duration = Duration::from_hours(24);

/// An entry that refers to `object` as long as `path` has it.
async fn put_at(db: &TestDatabase, id: &str, path: &str, object: &str) -> Entry {
    let path = LogicalPath::parse(path).unwrap();
    let object = EntryObject { holder: ObjectHolder::Path(path.clone()), ..db.reserved(object, 50_000).await };
    Entry { objects: vec![object], ..write("r1", id, path.as_str()) }
}

#[rstest]
#[tokio::test]
async fn a_claim_excludes_reservations_and_a_reservation_excludes_claims(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    let ledger = &db.ledger;
    // An unknown object counts as used now.
    assert!(!ledger.claim_object("cas/a", "one", NOW).await.unwrap());
    assert!(!ledger.claim_object("cas/a", "one", DAY).await.unwrap());
    let first = ledger.reserve_object("cas/a").await.unwrap().unwrap();
    assert!(!ledger.claim_object("cas/a", "one", DAY).await.unwrap());
    assert_eq!(ledger.reserve_object("cas/a").await.unwrap(), Some(first));
    assert!(ledger.claim_object("cas/a", "one", NOW).await.unwrap());
    assert!(!ledger.claim_object("cas/a", "two", NOW).await.unwrap());
    assert_eq!(ledger.reserve_object("cas/a").await.unwrap(), None);
    assert!(ledger.renew_claim("cas/a", "one").await.unwrap() && !ledger.renew_claim("cas/a", "two").await.unwrap());
    ledger.end_claim("cas/a", "two").await.unwrap();
    assert_eq!(ledger.reserve_object("cas/a").await.unwrap(), None);
    ledger.end_claim("cas/a", "one").await.unwrap();
    assert!(!ledger.renew_claim("cas/a", "one").await.unwrap());
    tokio::time::sleep(Duration::from_millis(5)).await;
    // The object was deleted, so that a commit under the first reservation would refer to nothing.
    assert_ne!(ledger.reserve_object("cas/a").await.unwrap().unwrap(), first);
}

#[rstest]
#[tokio::test]
async fn no_commit_refers_to_an_object_that_was_deleted(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    let r1 = db.run("r1").await;
    let mut entry = write("r1", "tc_1", "a");
    entry.objects = vec![db.reserved("cas/a", 5).await];
    assert!(db.ledger.claim_object("cas/a", "one", NOW).await.unwrap());
    let refused = |appended: Result<_, LedgerError>| match appended {
        Err(LedgerError::ObjectNotReserved(object)) => assert_eq!(object, "cas/a"),
        other => panic!("{other:?}"),
    };
    // Others of the same group are committed.
    let (claimed, other) = tokio::join!(db.try_append(entry.clone()), db.try_append(write("r1", "tc_2", "b")));
    refused(claimed);
    other.unwrap();
    db.ledger.end_claim("cas/a", "one").await.unwrap();
    refused(db.try_append(entry.clone()).await);
    // A reservation of somebody else does not help: the object may not be there yet.
    tokio::time::sleep(Duration::from_millis(5)).await;
    let reserved = db.reserved("cas/a", 5).await;
    refused(db.try_append(entry.clone()).await);
    assert!(!db.ledger.is_object_referenced("cas/a").await.unwrap());
    entry.objects = vec![reserved];
    db.append(entry).await;
    assert!(db.ledger.is_object_referenced("cas/a").await.unwrap());
    assert!(!db.ledger.claim_object("cas/a", "two", NOW).await.unwrap());
    db.ledger.set_run_state(&r1, RunState::Deleted, None).await.unwrap();
    assert!(db.ledger.claim_object("cas/a", "two", NOW).await.unwrap());
}

/// Commits that refer to an object, and claims of it, at the same time: the object is referred to, or deleted, never both.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_reference_and_a_claim_never_both_succeed(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let db = backend.open().await;
    db.run("r1").await;
    for round in 0..40 {
        let object = format!("cas/{round}");
        let mut entry = write("r1", &format!("tc_{round}"), "a");
        entry.objects = vec![db.reserved(&object, 5).await];
        let claims = async {
            for _ in 0..3 {
                if db.ledger.claim_object(&object, "one", NOW).await.unwrap() {
                    return true;
                }
            }
            false
        };
        let (appended, is_claimed) = tokio::join!(db.try_append(entry), claims);
        let is_referenced = db.ledger.is_object_referenced(&object).await.unwrap();
        assert_eq!(appended.is_ok(), is_referenced);
        assert!(!(is_referenced && is_claimed), "round {round}: {appended:?}");
    }
}

#[rstest]
#[tokio::test]
async fn a_reference_ends_with_the_last_path_that_has_the_object(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    db.run("r1").await;
    let history = async || db.ledger.run(&run_id("r1")).await.unwrap().unwrap().run.disk.history_bytes;
    db.append(put_at(&db, "tc_1", "a.bin", "cas/x").await).await;
    db.append(put_at(&db, "tc_2", "b.bin", "cas/x").await).await;
    let mut kept = write("r1", "tc_3", "c.bin");
    kept.objects = vec![db.reserved("cas/kept", 7).await];
    db.append(kept).await;
    let with_both = history().await;
    assert!((50_000..60_000).contains(&with_both), "{with_both}");
    assert_eq!(db.ledger.end_references().await.unwrap(), 0);
    // One path gets another object, the other one is removed.
    let left = |entry: Entry, path: &str| Entry { left_paths: vec![LogicalPath::parse(path).unwrap()], ..entry };
    db.append(left(put_at(&db, "tc_4", "a.bin", "cas/y").await, "a.bin")).await;
    assert_eq!(db.ledger.end_references().await.unwrap(), 0);
    db.append(left(write("r1", "tc_5", "b.bin"), "b.bin")).await;
    let before = history().await;
    assert!(before > 100_000, "{before}");
    assert_eq!(db.ledger.end_references().await.unwrap(), 1);
    assert_eq!(history().await, before - 50_000);
    let is_referenced = async |object: &str| db.ledger.is_object_referenced(object).await.unwrap();
    assert!(!is_referenced("cas/x").await && is_referenced("cas/y").await && is_referenced("cas/kept").await);
    assert_eq!(db.ledger.end_references().await.unwrap(), 0);
    // The grace period begins when the reference ends.
    assert!(!db.ledger.claim_object("cas/x", "one", DAY).await.unwrap());
    assert!(db.ledger.claim_object("cas/x", "one", NOW).await.unwrap());
}
