//! The stored contents of written files, and the last change of a path.

use ledger::{Entry, LedgerError, StoredRecord};
use model::{Outcome, Record, RunState, Sha256, Step, StepBytes, StepContent};
use rstest::rstest;

use crate::harness::{Backend, RunChanges as _, TestDatabase, path, read, run_id, write};
use crate::journal::mutation;

/// Returns a step that creates `file` with the content `bytes`.
fn create(file: &str, bytes: &[u8]) -> Step {
    let bytes = bytes.to_vec();
    let after = StepContent { sha256: Sha256::of(&bytes), mode: 0o644, bytes: StepBytes::Inline(bytes) };
    Step { path: path(file), before: None, after: Some(after) }
}

async fn content(db: &TestDatabase, run: &str, seq: u64, bytes: &[u8]) -> Option<Vec<u8>> {
    db.ledger.content(&run_id(run), seq, &Sha256::of(bytes)).await.unwrap()
}

#[rstest]
#[tokio::test]
async fn contents_remain_after_the_journal_is_pruned(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut db = backend.open().await;
    let (r1, _) = (db.run("r1").await, db.run("r2").await);
    let mut one = mutation("r1", "one", "src/a");
    one.steps.extend([create("b", b"same"), create("c", b"same"), create("d", b"")]);
    let steps = one.steps.clone();
    db.append(one).await;
    db.append(mutation("r2", "two", "src/a")).await;
    db.reopen().await;
    assert_eq!(db.ledger.pending_journal(Some(&r1)).await.unwrap()[0].steps, steps);
    db.ledger.prune(&[(r1, 1), (run_id("r2"), 1)]).await.unwrap();
    assert!(db.ledger.pending_journal(None).await.unwrap().is_empty());
    for (bytes, stored) in [(&b"new\0"[..], true), (b"same", true), (b"", true), (b"large", false), (b"old", false)] {
        assert_eq!(content(&db, "r1", 1, bytes).await, stored.then(|| bytes.to_vec()), "{bytes:?}");
    }
    assert_eq!(content(&db, "r2", 1, b"new\0").await.as_deref(), Some(&b"new\0"[..]));
    assert_eq!(content(&db, "r2", 1, b"same").await, None);
    assert_eq!(content(&db, "r1", 2, b"same").await, None);
    assert_eq!(content(&db, "r3", 1, b"same").await, None);
}

#[rstest]
#[tokio::test]
async fn the_contents_of_a_run_are_listed_with_their_records(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    let (r1, r2) = (db.run("r1").await, db.run("r2").await);
    let mut one = mutation("r1", "one", "src/a");
    one.steps.extend([create("b", b"same"), create("c", b"same"), create("d", b"")]);
    db.append(one).await;
    db.append(mutation("r2", "two", "src/a")).await;
    db.append(read("r1", "a")).await;
    db.append(mutation("r1", "three", "src/a")).await;
    let mut listed = db.ledger.stored_contents(&r1).await.unwrap();
    listed.sort_unstable();
    let mut expected =
        [(1, &b"new\0"[..]), (1, b"same"), (1, b""), (3, b"new\0")].map(|(seq, bytes)| (seq, Sha256::of(bytes)));
    expected.sort_unstable();
    assert_eq!(listed, expected);
    assert_eq!(db.ledger.stored_contents(&r2).await.unwrap(), [(1, Sha256::of(b"new\0"))]);
    assert_eq!(db.ledger.stored_contents(&run_id("r3")).await.unwrap(), []);
}

fn seq(found: Option<StoredRecord>) -> Option<u64> {
    found.map(|stored| serde_json::from_str::<Record>(&stored.text).unwrap().seq)
}

#[rstest]
#[tokio::test]
async fn the_last_change_of_a_path_is_the_newest_record_that_wrote_it(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    let (r1, r2) = (db.run("r1").await, db.run("r2").await);
    db.append(mutation("r1", "one", "src/a")).await;
    db.append(mutation("r2", "one", "src/a")).await;
    db.append(mutation("r1", "two", "src/a")).await;
    for number in 0..20 {
        let mut dry = write("r1", &format!("dry-{number}"), "src/a");
        dry.draft.paths_read = std::mem::take(&mut dry.draft.paths_written);
        db.append(dry).await;
    }
    let mut refused = write("r1", "refused", "src/a");
    refused.draft.outcome = Outcome::Refused;
    db.append(refused).await;
    db.append(read("r1", "src/a")).await;
    db.append(mutation("r1", "three", "src/a/b")).await;
    let last = async |run, file, at_seq| seq(db.ledger.last_change(run, &path(file), at_seq).await.unwrap());
    assert_eq!(last(&r1, "src/a", u64::MAX).await, Some(2));
    assert_eq!(last(&r1, "src/a", 25).await, Some(2));
    assert_eq!(last(&r1, "src/a", 2).await, Some(2));
    assert_eq!(last(&r1, "src/a", 1).await, Some(1));
    assert_eq!(last(&r1, "src/a", 0).await, None);
    assert_eq!(last(&r2, "src/a", 9).await, Some(1));
    assert_eq!(last(&r1, "src/a/b", 99).await, Some(25));
    assert_eq!(last(&r1, "src", 99).await, None);
    assert_eq!(last(&run_id("unknown"), "src/a", 99).await, None);
}

#[rstest]
#[tokio::test]
async fn purging_a_deleted_run_removes_its_contents_and_keeps_its_records(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let mut db = backend.open().await;
    let (r1, _) = (db.run("r1").await, db.run("r2").await);
    for number in 0..150 {
        let mut entry = mutation("r1", &format!("id-{number}"), "src/a");
        entry.steps.push(create("b", number.to_string().as_bytes()));
        db.append(entry).await;
    }
    db.append(mutation("r2", "one", "src/a")).await;

    let not_deleted = db.ledger.purge_content(&r1).await;
    assert!(matches!(not_deleted, Err(LedgerError::Internal(_))), "{not_deleted:?}");
    let unknown = db.ledger.purge_content(&run_id("unknown")).await;
    assert!(matches!(unknown, Err(LedgerError::NoSuchRun)), "{unknown:?}");
    assert_eq!(content(&db, "r1", 8, b"7").await.as_deref(), Some(&b"7"[..]));
    assert_eq!(unpurged(&db).await, Vec::<String>::new());

    db.ledger.set_run_state(&r1, RunState::Deleted, None).await.unwrap();
    db.reopen().await;
    assert_eq!(unpurged(&db).await, ["r1"]);
    db.ledger.purge_content(&r1).await.unwrap();
    db.ledger.purge_content(&r1).await.unwrap();
    assert_eq!(unpurged(&db).await, Vec::<String>::new());
    // A mutation that was in flight when the run was deleted.
    db.append(mutation("r1", "late", "src/a")).await;
    assert_eq!(unpurged(&db).await, ["r1"]);
    db.ledger.purge_content(&r1).await.unwrap();
    assert_eq!(unpurged(&db).await, Vec::<String>::new());
    assert_eq!(content(&db, "r1", 151, b"new\0").await, None);
    assert_eq!(content(&db, "r1", 1, b"0").await, None);
    assert_eq!(content(&db, "r1", 150, b"149").await, None);
    assert_eq!(content(&db, "r2", 1, b"new\0").await.as_deref(), Some(&b"new\0"[..]));
    let pending = db.ledger.pending_journal(None).await.unwrap();
    assert_eq!(pending.iter().map(|entry| entry.run_id.as_str()).collect::<Vec<_>>(), ["r2"]);
    assert!(db.ledger.verify(&r1).await.unwrap().intact);
}

async fn unpurged(db: &TestDatabase) -> Vec<String> {
    db.ledger.unpurged_runs().await.unwrap().into_iter().map(String::from).collect()
}

#[rstest]
#[tokio::test]
async fn the_database_rejects_deleting_contents_of_runs_that_are_not_deleted(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    let (r1, _) = (db.run("r1").await, db.run("r2").await);
    db.append(mutation("r1", "one", "src/a")).await;
    db.append(mutation("r2", "one", "src/a")).await;
    db.ledger.set_run_state(&r1, RunState::Deleted, None).await.unwrap();
    let error = db.execute("DELETE FROM content").await.unwrap_err();
    assert!(error.contains("only grows until its run is deleted"), "{error}");
    assert_eq!(content(&db, "r1", 1, b"new\0").await.as_deref(), Some(&b"new\0"[..]));
    db.ledger.purge_content(&r1).await.unwrap();
    assert_eq!(content(&db, "r1", 1, b"new\0").await, None);
}

#[rstest]
#[tokio::test]
async fn objects_are_referenced_until_their_runs_are_deleted(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    let (r1, r2) = (db.run("r1").await, db.run("r2").await);
    let mut one = mutation("r1", "one", "src/a");
    one.objects = vec![db.reserved("cas/a", 5).await, db.reserved("bases/b", 0).await];
    let mut two = mutation("r2", "two", "src/a");
    two.objects = vec![db.reserved("cas/a", 5).await];
    let again = mutation("r1", "again", "src/b");
    db.append(one.clone()).await;
    db.append(two).await;
    // A run may name an object more than once.
    db.append(Entry { objects: one.objects, ..again }).await;
    let is_referenced = async |object: &str| db.ledger.is_object_referenced(object).await.unwrap();
    assert!(is_referenced("cas/a").await && is_referenced("bases/b").await);
    assert!(!is_referenced("cas/").await && !is_referenced("cas/b").await);
    db.ledger.set_run_state(&r1, RunState::Deleted, None).await.unwrap();
    assert!(is_referenced("cas/a").await && !is_referenced("bases/b").await);
    db.ledger.purge_content(&r1).await.unwrap();
    assert!(is_referenced("cas/a").await && !is_referenced("bases/b").await);
    db.ledger.set_run_state(&r2, RunState::Deleted, None).await.unwrap();
    assert!(!is_referenced("cas/a").await);
}
