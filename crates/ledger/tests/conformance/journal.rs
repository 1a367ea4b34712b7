//! The journal of pending steps, and artifacts.

use ledger::{Artifact, Entry};
use model::{ArtifactId, Sha256, Step, StepBytes, StepContent, Usage};
use rstest::rstest;

use crate::harness::{Backend, path, run_id, write};

/// Returns a mutation of `file` with three steps and the artifact `art-{id}`.
pub(crate) fn mutation(run: &str, id: &str, file: &str) -> Entry {
    let mut entry = write(run, id, file);
    entry.steps = vec![
        Step { path: path("old"), before: Some(Sha256::of(b"old")), after: None },
        Step {
            path: path(file),
            before: None,
            after: Some(StepContent {
                sha256: Sha256::of(b"new\0"),
                mode: 0o755,
                bytes: StepBytes::Inline(b"new\0".to_vec()),
            }),
        },
        Step {
            path: path("large"),
            before: Some(Sha256::ZERO),
            after: Some(StepContent {
                sha256: Sha256::of(b"large"),
                mode: 0o644,
                bytes: StepBytes::Staged("staged-1".into()),
            }),
        },
    ];
    let artifact_id = ArtifactId::parse(&format!("art-{id}")).unwrap();
    let diff = vec![0, 255, b'\n'];
    entry.draft.artifact_uris = vec![format!("artifact://{run}/{artifact_id}")];
    entry.draft.diff_sha256 = Some(Sha256::of(&diff));
    entry.artifact = Some(Artifact { artifact_id, diff });
    entry.usage = Usage { files_touched: 3, insertions: 5, deletions: 2, files_deleted: 1, bytes: 9 };
    entry
}

#[rstest]
#[tokio::test]
async fn steps_are_pending_until_they_are_pruned(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut db = backend.open().await;
    let (r1, r2) = (db.run("r1").await, db.run("r2").await);
    for (run, id) in [("r1", "one"), ("r2", "two"), ("r1", "three")] {
        db.append(mutation(run, id, "src/a")).await;
    }
    db.reopen().await;
    let pending = db.ledger.pending_journal(None).await.unwrap();
    let records: Vec<_> = pending.iter().map(|entry| (entry.run_id.clone(), entry.seq)).collect();
    assert_eq!(records, [(r1.clone(), 1), (r1.clone(), 2), (r2.clone(), 1)]);
    assert!(pending.iter().all(|entry| entry.steps == mutation("r1", "one", "src/a").steps), "{pending:?}");
    assert_eq!(db.ledger.pending_journal(Some(&r1)).await.unwrap().len(), 2);

    db.ledger.prune(&[(r1.clone(), 1), (r2.clone(), 1), (run_id("unknown"), 7)]).await.unwrap();
    let pending = db.ledger.pending_journal(None).await.unwrap();
    assert_eq!(pending.iter().map(|entry| (entry.run_id.clone(), entry.seq)).collect::<Vec<_>>(), [(r1.clone(), 2)]);
    db.ledger.prune(&[]).await.unwrap();
    db.ledger.prune(&[(r1.clone(), 1), (r1.clone(), 2)]).await.unwrap();
    assert!(db.ledger.pending_journal(None).await.unwrap().is_empty());
}

#[rstest]
#[tokio::test]
async fn the_records_with_pending_steps_are_listed_by_run(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    let (r1, r2, r3) = (db.run("r1").await, db.run("r2").await, db.run("r3").await);
    for (run, id) in [("r1", "one"), ("r2", "two"), ("r1", "three"), ("r1", "four")] {
        db.append(mutation(run, id, "src/a")).await;
    }
    db.ledger.prune(&[(r1.clone(), 2), (r2.clone(), 1)]).await.unwrap();
    let listed = db.ledger.journalled(&[r3.clone(), r1.clone(), r2.clone(), run_id("unknown")]).await.unwrap();
    let listed: Vec<_> = listed.into_iter().map(|found| (found.run, found.seqs)).collect();
    assert_eq!(listed, [(r1, vec![1, 3]), (r2, vec![]), (r3, vec![])]);
    assert!(db.ledger.journalled(&[]).await.unwrap().is_empty());
}

#[rstest]
#[tokio::test]
async fn a_diff_is_found_by_its_run_and_id(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let db = backend.open().await;
    let (run, other) = (db.run("r1").await, db.run("r2").await);
    db.append(mutation("r1", "one", "src/a")).await;
    let id = ArtifactId::parse("art-one").unwrap();
    assert_eq!(db.ledger.artifact(&run, &id).await.unwrap(), Some(vec![0, 255, b'\n']));
    assert_eq!(db.ledger.artifact(&other, &id).await.unwrap(), None);
    assert_eq!(db.ledger.artifact(&run, &ArtifactId::parse("art-two").unwrap()).await.unwrap(), None);
}
