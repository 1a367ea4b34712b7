//! Bases that were fetched from the object store are kept on this machine.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use rstest::rstest;
use serde_json::json;

use super::object_store::{lose_files, objects, read, storing};
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

async fn parts_from(server: &Server, source: &str) -> u64 {
    let metrics = server.nobody().get("/metrics").await.text();
    let name = format!("workspaced_base_parts_total{{source=\"{source}\"}} ");
    metrics.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).unwrap_or(0)
}

#[rstest]
#[tokio::test]
async fn a_base_is_fetched_once(#[values(Backend::Sqlite)] backend: Backend) {
    let (mut server, folder) = storing(Setup::new(backend)).await;
    let run = run_of(&server, 64).await;
    let other = server.run(json!({"source": run.get().await["source"]})).await;
    let run = lose_files(&mut server, &run);
    assert_eq!(read(&run).await, "a\n");
    assert!(parts_from(&server, "store").await > 1);
    assert_eq!(parts_from(&server, "cache").await, 0);
    let [stored] = &packs(&folder)[..] else { panic!("{:?}", objects(&folder)) };
    let away = folder.join("away");
    std::fs::rename(stored, &away).unwrap();
    for run in [&run, &other] {
        let run = lose_files(&mut server, run);
        assert_eq!(read(&run).await, "a\n");
        assert!(parts_from(&server, "cache").await > 1);
        assert_eq!(parts_from(&server, "store").await, 0);
    }
    // What was altered is not used, and fetched again.
    let cache = server.data_dir().join("bases");
    let [cached] = &packs(&cache)[..] else { panic!("{:?}", objects(&cache)) };
    let mut bytes = std::fs::read(cached).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(cached, &bytes).unwrap();
    let run = lose_files(&mut server, &run);
    run.call("stat_path", json!({"path": "a.txt"})).await.refused("RUN_NEEDS_REPAIR");
    std::fs::rename(&away, stored).unwrap();
    assert_eq!(read(&run).await, "a\n");
    assert_eq!(parts_from(&server, "store").await, 2);
    assert_eq!(packs(&cache).len(), 1);
}
