//! Snapshots of a database: each row is in one part, and either database reads what either has written.

use std::io::Write;

use ledger::{DumpPart, RestoreTarget};
use model::Sha256;
use rstest::rstest;

use crate::approvals::approval_request;
use crate::harness::{Backend, RunChanges as _, TestDatabase, read};
use crate::journal::mutation;

/// Returns the bytes of every part, the service's last.
async fn parts(url: &str) -> Vec<Vec<u8>> {
    let mut snapshot = ledger::open_snapshot(url, false).await.unwrap();
    let runs = snapshot.contents().runs.clone();
    let mut parts = Vec::new();
    for part in runs.iter().map(DumpPart::Run).chain([DumpPart::Service]) {
        let mut bytes = Vec::new();
        snapshot.write(part, &mut bytes).await.unwrap();
        parts.push(bytes);
    }
    snapshot.finish().await.unwrap();
    parts
}

/// A database with runs in several states, and rows in most tables.
async fn filled(backend: Backend) -> TestDatabase {
    let db = backend.open().await;
    let (mut size, _) = (0, db.run("r1").await);
    db.run("r2").await;
    db.run("gone").await;
    for number in 0..20 {
        db.append(mutation("r1", &format!("id-{number}"), "src/a")).await;
        db.append(read("r2", "a")).await;
        db.append(mutation("gone", &format!("id-{number}"), "b")).await;
    }
    db.append(approval_request("r1", "ap-1")).await;
    db.checkpoint(&mut size, 0).await;
    db.ledger.set_run_state(&crate::harness::run_id("gone"), model::RunState::Deleted, None).await.unwrap();
    db
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_loaded_from_either_kind_has_the_same_rows(
    #[values(Backend::Sqlite, Backend::Postgres)] from: Backend,
    #[values(Backend::Sqlite, Backend::Postgres)] to: Backend,
) {
    let db = filled(from).await;
    let written = parts(db.url()).await;
    assert_eq!(written, parts(db.url()).await, "the same rows give other bytes");
    let target = to.create().await;
    assert_eq!(ledger::restore_target(&target.0).await.unwrap(), RestoreTarget::Empty);
    let mut load = ledger::begin_load(&target.0, ledger::schema()).await.unwrap();
    for part in &written {
        load.read(&mut &**part).await.unwrap();
    }
    let rows = load.finish(None).await.unwrap();
    assert!(rows["audit_record"] > 60 && rows["content"] > 0 && rows["checkpoint_leaf"] > 0, "{rows:?}");
    assert_eq!(parts(&target.0).await, written);
    // New rows go on after the loaded ones.
    let loaded = TestDatabase::of(target).await;
    loaded.append(mutation("r1", "later", "src/a")).await;
    loaded.run("new").await;
    let chain = loaded.ledger.verify(&crate::harness::run_id("r1")).await.unwrap();
    assert!(chain.intact, "{chain:?}");
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn rows_that_end_early_or_are_of_another_schema_are_refused(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = filled(backend).await;
    let written = parts(db.url()).await.concat();
    let half = &written[..written.len() / 2];
    let mut renamed = written.clone();
    let name = b"\"head_seq\"";
    let at = renamed.windows(name.len()).position(|window| window == name).unwrap();
    renamed[at + 1] = b'_';
    for (bytes, says) in [(half, "UnexpectedEof"), (&*renamed, "the schemas of the databases differ")] {
        let target = backend.create().await;
        let mut load = ledger::begin_load(&target.0, ledger::schema()).await.unwrap();
        let error = format!("{:?}", load.read(&mut &*bytes).await.unwrap_err());
        assert!(error.contains(says), "{error}");
    }
    let target = backend.create().await;
    assert!(ledger::begin_load(&target.0, ledger::schema() + 1).await.is_err(), "a newer schema");
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn an_interrupted_load_is_begun_again(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let db = filled(backend).await;
    let written = parts(db.url()).await;
    let target = backend.create().await;
    for part_count in [1, written.len()] {
        let mut load = ledger::begin_load(&target.0, ledger::schema()).await.unwrap();
        for part in &written[..part_count] {
            load.read(&mut &**part).await.unwrap();
        }
        if part_count == written.len() {
            load.finish(None).await.unwrap();
        }
    }
    assert_eq!(parts(&target.0).await, written);
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_does_not_have_what_is_written_after_it(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = filled(backend).await;
    let before = parts(db.url()).await;
    let mut snapshot = ledger::open_snapshot(db.url(), false).await.unwrap();
    db.append(mutation("r1", "later", "src/a")).await;
    let runs = snapshot.contents().runs.clone();
    let mut after = Vec::new();
    for part in runs.iter().map(DumpPart::Run).chain([DumpPart::Service]) {
        snapshot.write(part, &mut after).await.unwrap();
        after.flush().unwrap();
    }
    assert!(after == before.concat(), "{} {}", Sha256::of(&after), Sha256::of(&before.concat()));
}
