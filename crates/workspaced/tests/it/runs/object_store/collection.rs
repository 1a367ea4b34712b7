//! The deletion of objects that no run refers to.

use std::path::Path;
use std::time::{Duration, Instant};

use reqwest::Method;
use rstest::rstest;
use serde_json::json;

use super::{MIB, lose_files, objects, storing};
use crate::harness::{Backend, Run, Server, Setup, exhaustive, incompressible, sha256};
use crate::operation::replay_and_repair::put;

/// Waits until exactly these objects are left.
async fn until_left(server: &Server, folder: &Path, is_left: impl Fn(&Path) -> bool) {
    let collected = async || {
        let found = objects(folder);
        if found.iter().all(|object| is_left(object)) { Ok(()) } else { Err(format!("{found:?}")) }
    };
    server.until("other objects are removed", collected).await;
}

async fn delete(run: &Run, path: &str, content: &[u8]) {
    let request = run.agent.request(Method::DELETE, &format!("/v1/runs/{}/files/{path}", run.id));
    let if_match = format!("\"{}\"", sha256(content));
    let answer = run.agent.send(request.header("x-reason", "because").header("if-match", if_match)).await;
    assert!(answer.status < 300, "{answer:?}");
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn objects_are_deleted_when_no_run_refers_to_them(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (mut server, folder) = storing(Setup::new(backend).arg("--object-store-grace", "2s")).await;
    let kept = server.run_with_files(&[("kept.txt", "kept\n")], json!({"runId": "kept"})).await;
    let of_base = objects(&folder);
    let (old, new, shared) = (incompressible(2 * MIB), incompressible(2 * MIB + 8), incompressible(2 * MIB + 16));
    put(&kept, "large.bin", None, &old).await;
    // An earlier version is still a part of the history.
    put(&kept, "large.bin", Some(&old), &new).await;
    put(&kept, "shared.bin", None, &shared).await;
    let gone = server.run_with_files(&[("gone.txt", "gone\n")], json!({"runId": "gone"})).await;
    put(&gone, "shared.bin", None, &shared).await;
    put(&gone, "own.bin", None, &incompressible(2 * MIB + 24)).await;
    std::fs::write(folder.join("notes.txt"), "not an object").unwrap();
    server.operator().delete("/v1/runs/gone").await.is(200);
    let contents = [&old, &new, &shared].map(sha256);
    let is_left = |object: &Path| {
        let name = object.display().to_string();
        of_base.iter().any(|part| part == object)
            || name.ends_with("notes.txt")
            || contents.iter().any(|hash| name.ends_with(hash))
    };
    until_left(&server, &folder, is_left).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(objects(&folder).len(), of_base.len() + contents.len() + 1);
    let tree = kept.snapshot();
    server.until_journal_is_empty().await;
    let kept = lose_files(&mut server, &kept);
    kept.ok("read_file", json!({"path": "kept.txt"})).await;
    assert_eq!(kept.snapshot(), tree);
}

/// A content that is too large to be restored is kept, and counts, while a file has it; a smaller one as long as the run.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_content_that_no_version_needs_any_more_is_deleted(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (mut server, folder) = storing(Setup::new(backend).arg("--object-store-grace", "1s")).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let history = async |run: &Run| run.get().await["disk"]["historyBytes"].as_u64().unwrap();
    let (huge, other) = (incompressible(17 * MIB), incompressible(17 * MIB + 8));
    let small = incompressible(2 * MIB);
    put(&run, "huge.bin", None, &huge).await;
    put(&run, "same.bin", None, &huge).await;
    put(&run, "small.bin", None, &small).await;
    assert!((19 * MIB as u64..20 * MIB as u64).contains(&history(&run).await), "{}", history(&run).await);
    // Replaced at one path, and removed at the other.
    put(&run, "huge.bin", Some(&huge), &other).await;
    delete(&run, "small.bin", &small).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let cas = |bytes: &[u8]| folder.join("cas").join(sha256(bytes)).exists();
    assert!(cas(&huge) && cas(&other) && cas(&small));
    delete(&run, "same.bin", &huge).await;
    server.until("the object is removed", async || !cas(&huge)).await;
    assert!(cas(&other) && cas(&small));
    assert!((19 * MIB as u64..20 * MIB as u64).contains(&history(&run).await), "{}", history(&run).await);
    // What is left is all that a run needs whose files are lost.
    let tree = run.snapshot();
    server.until_journal_is_empty().await;
    let run = lose_files(&mut server, &run);
    run.ok("read_file", json!({"path": "a.txt"})).await;
    assert_eq!(run.snapshot(), tree);
    // The same content again is stored again.
    put(&run, "again.bin", None, &huge).await;
    assert!(cas(&huge));
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_base_with_a_missing_part_is_not_used_again(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (mut server, folder) = storing(Setup::new(backend)).await;
    let template = server.template(&[("a.txt", "a\n"), (".gitignore", "*.log\n"), ("x.log", "ignored\n")]);
    let body = json!({"source": {"type": "directory", "path": template}});
    server.run(body.clone()).await;
    let found = objects(&folder);
    let part = found.iter().find(|object| !object.ends_with("index")).unwrap();
    std::fs::remove_file(folder.join(part)).unwrap();
    let run = server.run(body).await;
    assert!(folder.join(part).exists());
    let run = lose_files(&mut server, &run);
    run.ok("read_file", json!({"path": "a.txt"})).await;
}

/// Uploads of the same few contents, runs that come and go with the same base, and a collection every second.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_a_run_names_is_deleted_under_load(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (mut server, folder) = storing(Setup::new(backend).arg("--object-store-grace", "2s")).await;
    let template = server.template(&[("a.txt", "a\n"), (".gitignore", "*.log\n"), ("x.log", "ignored\n")]);
    let end = Instant::now() + Duration::from_secs(12);
    let work = |worker: usize| {
        let (server, template) = (&server, template.clone());
        async move {
            let mut last = None;
            for round in 0.. {
                let id = format!("w{worker}-{round}");
                let body = json!({"runId": id, "source": {"type": "directory", "path": template}});
                let run = server.run(body).await;
                let bytes = incompressible(MIB + 8 * (1 + (worker + round) % 3));
                put(&run, "large.bin", None, &bytes).await;
                // So that objects become old and are needed again.
                tokio::time::sleep(Duration::from_millis(700 * (worker as u64 + 1))).await;
                if Instant::now() > end {
                    last = Some((run, bytes));
                    break;
                }
                server.operator().delete(&format!("/v1/runs/{id}")).await.is(200);
            }
            last.unwrap()
        }
    };
    let left = futures_util::future::join_all((0..4).map(work)).await;
    assert!(server.log().contains("deleted objects that no run refers to"), "{}", server.log());
    server.until_journal_is_empty().await;
    assert!(server.stop().success());
    for (run, _) in &left {
        std::fs::remove_dir_all(server.workspace(&run.id)).unwrap();
    }
    server.restart();
    for (run, bytes) in &left {
        let run = server.reconnect(run);
        run.ok("read_file", json!({"path": "a.txt"})).await;
        assert_eq!(&std::fs::read(run.file("large.bin")).unwrap(), bytes);
    }
    assert!(objects(&folder).len() < 20, "{:?}", objects(&folder));
}
