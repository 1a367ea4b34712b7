//! The bases on this machine are shared by all runs. One that is missing is fetched from the object store.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use rstest::rstest;
use serde_json::json;

use super::object_store::{lose_files, objects, read, remove_bases, storing};
use crate::harness::{Backend, Run, Server, Setup, incompressible};

/// Creates a run whose base has `kib` KiB, and no other run.
async fn run_of(server: &Server, kib: usize) -> Run {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed).to_string();
    let (repository, _) = server.repository(&[("a.txt", "a\n"), ("number.txt", &number)]);
    std::fs::write(repository.join("large.bin"), incompressible(kib << 10)).unwrap();
    crate::harness::commit_all(&repository, "large");
    server.run(json!({"source": {"type": "git", "url": repository}})).await
}

/// Returns the packs under `folder`.
fn packs(folder: &Path) -> Vec<PathBuf> {
    objects(folder).into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "pack")).collect()
}

async fn parts_fetched(server: &Server) -> u64 {
    let metrics = server.nobody().get("/metrics").await.text();
    let found = metrics.lines().find_map(|line| line.strip_prefix("workspaced_base_parts_total ")?.parse().ok());
    found.unwrap()
}

#[rstest]
#[tokio::test]
async fn a_base_is_fetched_once(#[values(Backend::Sqlite)] backend: Backend) {
    let (mut server, folder) = storing(Setup::new(backend)).await;
    let run = run_of(&server, 64).await;
    let other = server.run(json!({"source": run.get().await["source"]})).await;
    assert_eq!(run.base().canonicalize().unwrap(), other.base().canonicalize().unwrap());
    // A run whose files are gone is opened from the base on this machine.
    let run = lose_files(&mut server, &run);
    assert_eq!(read(&run).await, "a\n");
    assert_eq!(parts_fetched(&server).await, 0);
    // Without it, the base comes from the store, once for both runs.
    let [stored] = &packs(&folder)[..] else { panic!("{:?}", objects(&folder)) };
    let away = folder.join("away");
    std::fs::rename(stored, &away).unwrap();
    remove_bases(&server);
    let other = lose_files(&mut server, &other);
    let run = lose_files(&mut server, &run);
    run.call("stat_path", json!({"path": "a.txt"})).await.refused("RUN_NEEDS_REPAIR");
    std::fs::rename(&away, stored).unwrap();
    assert_eq!(read(&run).await, "a\n");
    let fetched = parts_fetched(&server).await;
    assert!(fetched > 1);
    let other = server.reconnect(&other);
    assert_eq!(read(&other).await, "a\n");
    assert_eq!(parts_fetched(&server).await, fetched);
}
