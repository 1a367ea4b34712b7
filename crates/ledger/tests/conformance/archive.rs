//! Archived runs: their records are deleted, and what stays proves what the archive contains.

use ledger::{Appended, Entry, RecordData, Reply, RunTransition};
use model::{ARCHIVE_TOOL, Record, RunState, Sha256};
use rstest::rstest;
use serde_json::json;

use crate::approvals::approval_request;
use crate::harness::{Backend, RunChanges as _, TestDatabase, change_of, read, run_id};
use crate::journal::mutation;
use crate::service_role::open_as_service;

/// Returns the entry of an archive of `r1` that ends at `head`.
pub(crate) fn archive_after(head: &Record) -> Entry {
    let (head_seq, head_hash) = (head.seq, head.hash.unwrap());
    let (at, uri) = ("2026-02-01T00:00:00Z".to_owned(), "file:r1.tar".to_owned());
    let mut entry = change_of("r1", ARCHIVE_TOOL, RunTransition::Archive { at, uri, head_seq, head_hash });
    entry.draft.input = json!({ "headSeq": head_seq, "headHash": head_hash }).as_object().cloned();
    entry
}

/// Closes `r1` and returns its last record, which a checkpoint covers.
pub(crate) async fn close(db: &TestDatabase, size: &mut u64) -> Record {
    db.ledger.set_run_state(&run_id("r1"), RunState::Closed, None).await.unwrap();
    let last = db.append(read("r1", "last")).await;
    db.checkpoint(size, 0).await;
    last
}

async fn unpurged(db: &TestDatabase) -> usize {
    db.ledger.unpurged_runs().await.unwrap().len()
}

#[rstest]
#[tokio::test]
async fn an_archived_run_keeps_its_row_and_its_proofs_and_nothing_else(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let mut db = backend.open().await;
    let (r1, r2, mut size) = (db.run("r1").await, db.run("r2").await, 0);
    for number in 0..100 {
        db.append(mutation("r1", &format!("id-{number}"), "src/a")).await;
        db.append(read("r2", "a")).await;
    }
    db.append(approval_request("r1", "ap-1")).await;
    db.checkpoint(&mut size, 0).await;
    let last = close(&db, &mut size).await;
    let data = db.ledger.record_data(&r1, 1).await.unwrap();
    let (content, reply) = (Sha256::of(b"new\0"), "{\"path\":\"src/a\"}".to_owned());
    assert!(data.contains(&RecordData::Content { sha256: content, bytes: b"new\0".to_vec() }), "{data:?}");
    assert!(data.contains(&RecordData::Reply(Reply { status: 200, body: reply })), "{data:?}");

    db.append(archive_after(&last)).await;
    assert_eq!(unpurged(&db).await, 1);
    // Before and after the deletion of the records.
    for _ in 0..2 {
        let run = db.ledger.run(&r1).await.unwrap().unwrap().run;
        assert_eq!((run.state, run.head_seq), (RunState::Deleted, last.seq + 1));
        assert_eq!(run.archived_at.as_deref(), Some("2026-02-01T00:00:00Z"));
        assert_eq!(run.archive_uri.as_deref(), Some("file:r1.tar"));
        let report = db.ledger.verify(&r1).await.unwrap();
        assert!(report.intact, "{report:?}");
        assert_eq!((report.records, report.archived_records, report.head_seq), (1, last.seq, last.seq + 1));
        let leaves = db.ledger.leaves(Some(&r1), 0, 100).await.unwrap();
        assert_eq!(leaves.len(), 2);
        assert!(leaves.iter().all(|leaf| leaf.recorded == Some(leaf.head_hash)), "{leaves:?}");
        db.ledger.purge_content(&r1).await.unwrap();
        assert_eq!(unpurged(&db).await, 0);
        db.reopen().await;
    }
    assert!(db.ledger.record(&r1, 1).await.unwrap().is_none());
    assert!(db.ledger.record(&r1, last.seq).await.unwrap().is_none());
    assert_eq!(db.ledger.record_data(&r1, 1).await.unwrap(), []);
    assert_eq!(db.ledger.approval(&model::ApprovalId::parse("ap-1").unwrap()).await.unwrap(), None);
    // Both chains continue, and are signed again.
    db.append(read("r1", "refused")).await;
    db.append(read("r2", "b")).await;
    assert!(db.ledger.verify(&r1).await.unwrap().intact && db.ledger.verify(&r2).await.unwrap().intact);
    let (leaves, _) = db.checkpoint(&mut size, 0).await;
    assert_eq!(leaves.len(), 2);
    assert_eq!(db.ledger.orphaned_runs().await.unwrap(), 0);
}

#[rstest]
#[tokio::test]
async fn only_a_closed_run_whose_head_is_archived_becomes_archived(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    let (r1, mut size) = (db.run("r1").await, 0);
    let open = db.append(read("r1", "a")).await;
    assert!(matches!(db.try_append(archive_after(&open)).await, Ok(Appended::Unchanged)), "open");
    let last = close(&db, &mut size).await;
    let closed = async |until| {
        let closed = db.ledger.closed_runs(until, None, 9).await.unwrap();
        closed.into_iter().map(|closed| (closed.closed_at, closed.run_id)).collect::<Vec<_>>()
    };
    assert_eq!(closed("2026-01-09T00:00:00Z").await, [("2026-01-09T00:00:00Z".to_owned(), r1.clone())]);
    assert_eq!(closed("2026-01-08T00:00:00Z").await, []);
    let later = db.append(read("r1", "later")).await;
    assert!(matches!(db.try_append(archive_after(&last)).await, Ok(Appended::Unchanged)), "another head");
    assert_eq!(db.ledger.run(&r1).await.unwrap().unwrap().run.state, RunState::Closed);
    db.append(archive_after(&later)).await;
    assert!(matches!(db.try_append(archive_after(&later)).await, Ok(Appended::Unchanged)), "archived");
    assert_eq!(closed("2026-01-09T00:00:00Z").await, []);
}

/// Runs that expire at one time are closed at one time.
#[rstest]
#[tokio::test]
async fn closed_runs_are_listed_page_by_page_without_a_gap(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    for number in 1..=5 {
        let name = format!("r{number}");
        db.run(&name).await;
        db.ledger.set_run_state(&run_id(&name), RunState::Closed, None).await.unwrap();
    }
    let (mut found, mut last) = (Vec::new(), None);
    loop {
        let page = db.ledger.closed_runs("2026-12-31T00:00:00Z", last.as_ref(), 2).await.unwrap();
        found.extend(page.iter().map(|closed| closed.run_id.as_str().to_owned()));
        let Some(next) = page.into_iter().next_back() else { break };
        last = Some(next);
    }
    assert_eq!(found, ["r1", "r2", "r3", "r4", "r5"]);
}

/// Neither a record of an archive without a checkpoint over the archived records, nor a changed row, hides a deletion.
#[rstest]
#[tokio::test]
async fn records_are_not_hidden_by_declaring_them_archived(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let mut db = backend.open().await;
    let (r1, mut size) = (db.run("r1").await, 0);
    for _ in 0..4 {
        db.append(read("r1", "a")).await;
    }
    let error = db.execute("DELETE FROM audit_record WHERE seq = 1").await.unwrap_err();
    assert!(error.contains("only grows until its run is archived"), "{error}");
    db.ledger.set_run_state(&r1, RunState::Closed, None).await.unwrap();
    let uncovered = db.append(read("r1", "b")).await;
    db.append(archive_after(&uncovered)).await;
    let report = db.ledger.verify(&r1).await.unwrap();
    assert_eq!(report.first_break.unwrap().problem, "no checkpoint covers the archived records");
    for sql in ["UPDATE run SET archived_seq = 2", "UPDATE run SET archived_seq = NULL"] {
        let error = db.execute(sql).await.unwrap_err();
        assert!(error.contains("a run that is archived stays so"), "{error}");
    }
    let error = db.execute("DELETE FROM audit_record WHERE seq > 6").await.unwrap_err();
    assert!(error.contains("only grows"), "{error}");

    let r2 = db.run("r2").await;
    for _ in 0..4 {
        db.append(read("r2", "a")).await;
    }
    db.checkpoint(&mut size, 0).await;
    db.execute("UPDATE run SET archived_seq = 2, state = 'deleted' WHERE run_id = 'r2'").await.unwrap();
    db.ledger.purge_content(&r2).await.unwrap();
    db.reopen().await;
    let report = db.ledger.verify(&r2).await.unwrap();
    assert_eq!(report.first_break.unwrap().problem, "the record after the archived ones is not that of the archive");
}

/// Deleted rows leave pages that later rows use.
#[tokio::test]
async fn an_archived_run_frees_its_pages_in_sqlite() {
    let db = Backend::Sqlite.open().await;
    let (r1, mut size) = (db.run("r1").await, 0);
    for number in 0..300 {
        let mut entry = mutation("r1", &format!("id-{number}"), "src/a");
        let Some(after) = &mut entry.steps[1].after else { unreachable!() };
        // Hashes, which compression does not make smaller.
        let bytes: Vec<u8> =
            (0..256).flat_map(|part| *Sha256::of(format!("{number} {part}").as_bytes()).as_bytes()).collect();
        (after.sha256, after.bytes) = (Sha256::of(&bytes), model::StepBytes::Inline(bytes));
        db.append(entry).await;
    }
    let last = close(&db, &mut size).await;
    let used = || {
        let file = db.url().trim_start_matches("sqlite://");
        let connection = rusqlite::Connection::open(file).unwrap();
        let read = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
        read("PRAGMA page_count") - read("PRAGMA freelist_count")
    };
    let before = used();
    db.append(archive_after(&last)).await;
    db.ledger.purge_content(&r1).await.unwrap();
    assert!(used() * 5 < before, "{before} pages, then {}", used());
}

/// Who may delete archived records is the owner's decision.
#[tokio::test]
async fn the_service_role_deletes_archived_records_after_a_grant() {
    let db = open_as_service().await;
    let (r1, mut size) = (db.run("r1").await, 0);
    db.append(mutation("r1", "one", "src/a")).await;
    db.append(approval_request("r1", "ap-1")).await;
    let last = close(&db, &mut size).await;
    db.append(archive_after(&last)).await;
    assert!(db.ledger.purge_content(&r1).await.is_err());
    assert!(!db.ledger.can_delete_archived().await.unwrap());
    assert!(db.ledger.verify(&r1).await.unwrap().intact);
    let grant = "GRANT DELETE ON audit_record, record_path, call_reply, artifact, upload TO workspaced_service";
    db.execute(grant).await.unwrap();
    assert!(db.ledger.can_delete_archived().await.unwrap());
    db.ledger.purge_content(&r1).await.unwrap();
    assert_eq!(unpurged(&db).await, 0);
    assert!(db.ledger.verify(&r1).await.unwrap().intact);
}
