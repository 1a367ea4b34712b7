//! Steps and artifacts.

use ledger::{Artifact, Entry};
use model::{ArtifactId, Sha256, Step, StepBytes, StepContent, Usage};
use rstest::rstest;

use crate::harness::{Backend, path, run_id, write};

/// A change of `file` with two steps and an artifact `art-{id}`.
pub(crate) fn change(run: &str, id: &str, file: &str) -> Entry {
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
async fn steps_are_kept_until_they_are_forgotten(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut world = backend.open().await;
    let (r1, r2) = (world.run("r1").await, world.run("r2").await);
    for (run, id) in [("r1", "one"), ("r2", "two"), ("r1", "three")] {
        world.append(change(run, id, "src/a")).await;
    }
    world.reopen().await;
    let open = world.ledger.pending_journal(None).await.unwrap();
    let places: Vec<_> = open.iter().map(|one| (one.run_id.clone(), one.seq)).collect();
    assert_eq!(places, [(r1.clone(), 1), (r1.clone(), 2), (r2.clone(), 1)]);
    assert!(open.iter().all(|one| one.steps == change("r1", "one", "src/a").steps), "{open:?}");
    assert_eq!(world.ledger.pending_journal(Some(&r1)).await.unwrap().len(), 2);

    world.ledger.prune(&[(r1.clone(), 1), (r2.clone(), 1), (run_id("nobody"), 7)]).await.unwrap();
    let open = world.ledger.pending_journal(None).await.unwrap();
    assert_eq!(open.iter().map(|one| (one.run_id.clone(), one.seq)).collect::<Vec<_>>(), [(r1.clone(), 2)]);
    world.ledger.prune(&[]).await.unwrap();
    world.ledger.prune(&[(r1.clone(), 1), (r1.clone(), 2)]).await.unwrap();
    assert!(world.ledger.pending_journal(None).await.unwrap().is_empty());
}

#[rstest]
#[tokio::test]
async fn a_diff_is_found_by_its_run_and_id(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let world = backend.open().await;
    let (run, other) = (world.run("r1").await, world.run("r2").await);
    world.append(change("r1", "one", "src/a")).await;
    let id = ArtifactId::parse("art-one").unwrap();
    assert_eq!(world.ledger.artifact(&run, &id).await.unwrap(), Some(vec![0, 255, b'\n']));
    assert_eq!(world.ledger.artifact(&other, &id).await.unwrap(), None);
    assert_eq!(world.ledger.artifact(&run, &ArtifactId::parse("art-two").unwrap()).await.unwrap(), None);
}
