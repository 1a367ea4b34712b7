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

/// Returns SQL that creates a database with the first version of the schema, three runs and pending steps.
fn first_version(backend: Backend) -> String {
    let (migration, hash, flag, yes) = match backend {
        Backend::Sqlite => (include_str!("../../../../migrations/sqlite/0001_ledger.sql"), "x'", "0", "1"),
        Backend::Postgres => (include_str!("../../../../migrations/postgres/0001_ledger.sql"), "'\\x", "false", "true"),
    };
    let bytes = |hex: &str| format!("{hash}{hex}'");
    let of = |content: &[u8]| bytes(&Sha256::of(content).to_string());
    let zero = bytes(&Sha256::ZERO.to_string());
    let checksum = Sha256::of(migration.as_bytes());
    format!(
        "CREATE TABLE schema_migration (version BIGINT PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL, \
           applied_at TEXT NOT NULL);\n{migration}\n\
         INSERT INTO schema_migration VALUES (1, '0001_ledger', '{checksum}', 'then');\n\
         INSERT INTO run (run_no, run_id, state, created_at, needs_repair, body, import_report, mount_paths) \
           VALUES (7, 'r1', 'open', 'then', {flag}, '{{}}', '{{}}', '[]'), \
           (8, 'r2', 'deleted', 'then', {flag}, '{{}}', '{{}}', '[]'), \
           (9, 'r3', 'deleted', 'then', {flag}, '{{}}', '{{}}', '[]');\n\
         INSERT INTO run_head VALUES (7, 3, {zero}, 0, 0, 0, 0, 0, 0, 0, 0), \
           (8, 1, {zero}, 0, 0, 0, 0, 0, 0, 0, 0), (9, 1, {zero}, 0, 0, 0, 0, 0, 0, 0, 0);\n\
         INSERT INTO audit_record VALUES {records};\n\
         INSERT INTO artifact (artifact_id, run_no, seq, diff) VALUES ('art-3', 7, 3, {text}), ('art-2', 7, 2, {large});\n\
         INSERT INTO step (run_no, seq, path, before_sha256, after_sha256, mode, staged, content) VALUES \
           (7, 2, 'z', {zero}, NULL, NULL, NULL, NULL), \
           (7, 2, 'b', NULL, {text}, 420, NULL, {inline}), \
           (7, 2, 'a', NULL, {text}, 493, NULL, {inline}), \
           (7, 2, 'large', NULL, {large}, 420, 'staged-1', NULL), \
           (7, 3, 'empty', {zero}, {empty}, 420, NULL, {nothing}), \
           (9, 1, 'gone', {zero}, NULL, NULL, NULL, NULL);",
        records = [(40, 7, 1), (41, 7, 2), (50, 7, 3), (51, 8, 1), (52, 9, 1)]
            .map(|(position, run, seq)| {
                format!("({position}, {run}, {seq}, 'c{seq}', 'patch', 'then', 'ALLOW', 'ok', {yes}, {zero}, '{{}}')")
            })
            .join(", "),
        text = of(b"text"),
        inline = bytes("74657874"),
        large = of(b"large"),
        empty = of(b""),
        nothing = bytes(""),
    )
}

#[rstest]
#[tokio::test]
async fn the_journal_of_the_first_schema_version_is_migrated(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open_after(&first_version(backend)).await;
    assert_eq!(unpurged(&db).await, ["r3"], "the other deleted run has no contents or steps");
    let pending = db.ledger.pending_journal(Some(&run_id("r1"))).await.unwrap();
    assert_eq!(pending.iter().map(|entry| entry.seq).collect::<Vec<_>>(), [2, 3]);
    let paths: Vec<_> = pending[0].steps.iter().map(|step| step.path.as_str()).collect();
    assert_eq!(paths, ["z", "b", "a", "large"]);
    assert_eq!(pending[0].steps[0].after, None);
    assert_eq!(pending[0].steps[1], create("b", b"text"));
    let (inline, staged) = (pending[0].steps[2].after.clone().unwrap(), pending[0].steps[3].after.clone().unwrap());
    assert!(inline.mode == 0o755 && inline.bytes == StepBytes::Inline(b"text".to_vec()));
    assert!(staged.bytes == StepBytes::Staged("staged-1".into()));
    assert_eq!(pending[1].steps, [Step { before: Some(Sha256::ZERO), ..create("empty", b"") }]);
    assert_eq!(content(&db, "r1", 2, b"text").await.as_deref(), Some(&b"text"[..]));
    assert_eq!(content(&db, "r1", 3, b"").await.as_deref(), Some(&b""[..]));
    for (id, diff) in [("art-2", &b"large"[..]), ("art-3", b"text")] {
        let found = db.ledger.artifact(&run_id("r1"), &model::ArtifactId::parse(id).unwrap()).await.unwrap();
        assert_eq!(found.as_deref(), Some(Sha256::of(diff).as_bytes().as_slice()), "{id}");
    }
    db.ledger.prune(&[(run_id("r1"), 2), (run_id("r1"), 3), (run_id("r3"), 1)]).await.unwrap();
    assert!(db.ledger.pending_journal(None).await.unwrap().is_empty());
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
