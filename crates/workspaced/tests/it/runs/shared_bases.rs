//! The bases on this machine are shared by all runs. One that is missing is fetched from the object store.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use rstest::rstest;
use serde_json::json;

use super::object_store::{lose_files, objects, read, remove_bases, storing};
use crate::harness::{Backend, Run, Server, Setup, exhaustive, incompressible, sha256};

/// Creates a run whose base has `kib` KiB, and no other run.
async fn run_of(server: &Server, kib: usize) -> Run {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed).to_string();
    let (repository, _) = server.repository(&[("a.txt", "a\n"), ("number.txt", &number)]);
    std::fs::write(repository.join("large.bin"), incompressible(kib << 10)).unwrap();
    crate::harness::commit_all(&repository, "large");
    server.run(json!({"source": {"type": "git", "url": repository}})).await
}

/// Returns the objects that several bases may have.
fn shared_objects(folder: &Path) -> Vec<PathBuf> {
    objects(folder).into_iter().filter(|path| path.starts_with(folder.join("cas"))).collect()
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
    let stored = &shared_objects(&folder)[0];
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

#[rstest]
#[tokio::test]
async fn the_store_has_what_two_commits_share_once(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let (mut server, folder) = storing(Setup::new(backend)).await;
    let (repository, _) = server.repository(&[("a.txt", "a\n")]);
    std::fs::write(repository.join("large.bin"), incompressible(1 << 20)).unwrap();
    crate::harness::commit_all(&repository, "large");
    let source = json!({"source": {"type": "git", "url": repository}});
    let first = server.run(source.clone()).await;
    let size = || objects(&folder).iter().map(|path| std::fs::metadata(path).unwrap().len()).sum::<u64>();
    let stored = size();
    std::fs::write(repository.join("b.txt"), "b\n").unwrap();
    crate::harness::commit_all(&repository, "next");
    let second = server.run(source).await;
    assert!(size() - stored < 64 << 10, "{stored} bytes, then {}", size());
    // The second run needs what the first one has put, and outlives it.
    first.operator.delete(&format!("/v1/runs/{}", first.id)).await.is(200);
    remove_bases(&server);
    let second = lose_files(&mut server, &second);
    assert_eq!(read(&second).await, "a\n");
    assert_eq!(second.ok("read_file", json!({"path": "b.txt", "format": "raw"})).await["content"], "b\n");
    let sizes = |run: &Run| std::fs::metadata(run.base_tree().join("large.bin")).unwrap().len();
    assert_eq!(sizes(&second), 1 << 20);
}

/// Changes a byte of the first file of any base that contains `text`.
fn damage(server: &Server, text: &str) {
    for segment in std::fs::read_dir(server.data_dir().join("bases/segments")).unwrap() {
        let path = segment.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        if let Some(at) = memchr::memmem::find(&bytes, text.as_bytes()) {
            bytes[at] ^= 1;
            return std::fs::write(path, bytes).unwrap();
        }
    }
    panic!("no base has the text {text:?}");
}

#[rstest]
#[tokio::test]
async fn a_damaged_file_of_a_base_is_never_shown(#[values(Backend::Sqlite)] backend: Backend) {
    let mut server = Server::start(backend).await;
    let run =
        server.run_with_files(&[("a.txt", "first\n"), ("b.txt", "second\n"), ("c.txt", "third\n")], json!({})).await;
    server.stop();
    damage(&server, "second\n");
    server.restart();
    let run = server.reconnect(&run);
    // "s" is "r" now.
    for (tool, input) in [
        ("read_file", json!({"path": "b.txt"})),
        ("search_text", json!({"query": "recond"})),
        ("write_file", json!({"path": "b.txt", "content": "x\n", "expectedSha256": sha256("second\n"), "reason": "r"})),
        ("move_file", json!({"from": "b.txt", "to": "d.txt", "expectedSha256": sha256("second\n"), "reason": "r"})),
    ] {
        let problem = run.call(tool, input).await.refused("UNAVAILABLE");
        assert!(problem["message"].as_str().unwrap().contains("damaged"), "{tool}: {problem:#}");
    }
    // What does not need the file goes on.
    assert_eq!(run.ok("read_file", json!({"path": "a.txt", "format": "raw"})).await["content"], "first\n");
    assert_eq!(run.ok("search_text", json!({"query": "third"})).await["matches"].as_array().unwrap().len(), 1);
    run.replace("c.txt", "fourth\n", &sha256("third\n")).await.ok();
}

#[rstest]
#[tokio::test]
async fn a_run_says_what_it_stores_itself(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let server = Server::shared(backend).await;
    let run = server.run_with_files(&[("a", "12345\n"), ("b", "1\n"), ("c", "1\n")], json!({})).await;
    let disk = async |run: &Run| {
        let disk = run.get().await["disk"].clone();
        ["bytes", "files", "ownBytes", "ownFiles"].map(|name| disk[name].as_u64().unwrap())
    };
    assert_eq!(disk(&run).await, [10, 3, 0, 0]);
    run.replace("b", "four\n", &sha256("1\n")).await.ok();
    assert_eq!(disk(&run).await, [13, 3, 5, 1]);
    run.replace("b", "4\n", &sha256("four\n")).await.ok();
    run.ok("write_file", json!({"path": "new", "content": "new\n", "reason": "r"})).await;
    assert_eq!(disk(&run).await, [14, 4, 6, 2]);
    // A file of the base takes no space of the run, removed or not.
    let delete = |path: &str, old: &str| json!({"path": path, "expectedSha256": sha256(old), "reason": "r"});
    run.ok("delete_file", delete("c", "1\n")).await;
    assert_eq!(disk(&run).await, [12, 3, 6, 2]);
    run.ok("delete_file", delete("b", "4\n")).await;
    assert_eq!(disk(&run).await, [10, 2, 4, 1]);
    run.ok("move_file", json!({"from": "a", "to": "d", "expectedSha256": sha256("12345\n"), "reason": "r"})).await;
    assert_eq!(disk(&run).await, [10, 2, 10, 2]);
    let fork = server.run(json!({"source": {"type": "run", "runId": run.id}})).await;
    assert_eq!(disk(&fork).await, [10, 2, 10, 2]);
}
