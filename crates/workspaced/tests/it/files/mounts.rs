//! Mounts, which are read-only trees of a run, and the archive of a run's tree.

use std::io::Read as _;

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Run, Server, names_in, sha256};

async fn mounted(backend: Backend) -> Run {
    let server = Server::shared(backend).await;
    let docs = server.template(&[("guide.md", "# Guide\nneedle\n"), ("sub/x.md", "x\n"), (".env", "A=1\n")]);
    let mounts = json!([{"name": "docs", "description": "Shared documents", "path": docs}]);
    server.run_with_files(&[("a.txt", "needle\n")], json!({"mounts": mounts})).await
}

#[rstest]
#[tokio::test]
async fn a_mount_is_read_by_name(#[values(Backend::Sqlite)] backend: Backend) {
    let run = mounted(backend).await;
    let shown = run.get().await;
    assert_eq!(
        (&shown["mounts"][0]["name"], &shown["mounts"][0]["description"]),
        (&json!("docs"), &json!("Shared documents"))
    );
    assert_eq!(shown["mounts"][0]["entries"], json!(["guide.md", "sub"]), "its top level");
    let tools = run.agent.get("/v1/tools").await.ok();
    assert_eq!(tools["mounts"], shown["mounts"], "the tool catalogue lists the mounts");
    assert!(run.operator.get("/v1/tools").await.ok().get("mounts").is_none());
    let page = run.ok("read_file", json!({"mount": "docs", "path": "guide.md"})).await;
    assert_eq!(page["sha256"], sha256("# Guide\nneedle\n"));
    let found = run.ok("search_text", json!({"mount": "docs", "query": "needle"})).await;
    assert_eq!(found["matches"][0]["path"], "guide.md");
    assert_eq!(found["matches"].as_array().unwrap().len(), 1);
    let listing = run.ok("list_dir", json!({"mount": "docs"})).await;
    assert_eq!(listing["entries"].as_array().unwrap().len(), 3);
    run.call("read_file", json!({"mount": "docs", "path": "a.txt"})).await.refused("NOT_FOUND");
    run.call("read_file", json!({"mount": "docs", "path": "../x"})).await.refused("PATH_REJECTED");
    run.call("read_file", json!({"mount": "docs", "path": ".env"})).await.refused("POLICY_DENIED_SECRET");
    run.call("read_file", json!({"mount": "none", "path": "guide.md"})).await.refused("NOT_FOUND");
    assert_eq!(run.calls().await.len(), 7);
}

#[rstest]
#[tokio::test]
async fn a_mount_cannot_be_changed(#[values(Backend::Sqlite)] backend: Backend) {
    let run = mounted(backend).await;
    for (tool, input) in [
        ("write_file", json!({"mount": "docs", "path": "n", "content": "x", "reason": "r"})),
        (
            "apply_patch",
            json!({"mount": "docs", "patch": "--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+x\n", "reason": "r"}),
        ),
    ] {
        run.call(tool, input).await.refused("INVALID_REQUEST");
    }
    assert_eq!(run.ok("list_dir", json!({"mount": "docs"})).await["entries"].as_array().unwrap().len(), 3);
    assert_eq!(run.snapshot().len(), 1);
}

#[rstest]
#[tokio::test]
async fn mount_names_are_valid_and_unique(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    let folder = server.template(&[]);
    let mount = |name: &str| json!({"name": name, "description": "d", "path": folder});
    let bad: [Value; 6] = [
        json!([mount("")]),
        json!([mount("a/b")]),
        json!([mount("..")]),
        json!([mount("docs"), mount("docs")]),
        json!([{"name": "docs", "path": folder}]),
        json!([{"name": "docs", "description": "d", "path": "/etc"}]),
    ];
    for mounts in bad {
        let body = json!({"source": {"type": "empty"}, "mounts": mounts});
        server.operator().post("/v1/runs", body).await.refused("INVALID_REQUEST");
    }
}

#[rstest]
#[tokio::test]
async fn the_archive_contains_the_tree_without_denied_files(#[values(Backend::Sqlite)] backend: Backend) {
    let files = [
        ("src/a.rs", "fn a() {}\n"),
        ("run.sh", "id\n"),
        (".env", "A=1\n"),
        ("tls/server.key", "k\n"),
        (".hidden", "h\n"),
    ];
    let (_server, run) = Run::shared(backend, &files).await;
    run.create("new.txt", "n\n").await;
    run.put("sub/.git/config", "[core]\n");
    run.link("out", "/etc/passwd");
    for client in [&run.agent, &run.operator] {
        let answer = client.get(&format!("/v1/runs/{}/archive", run.id)).await;
        assert_eq!(answer.status, 200);
        let names = names_in(&answer.body);
        for included in ["src/a.rs", "run.sh", "new.txt", ".hidden"] {
            assert!(names.iter().any(|name| name == included), "{included}: {names:?}");
        }
        for hidden in [".env", "server.key", ".git", "config"] {
            assert!(!names.iter().any(|name| name.ends_with(hidden)), "{hidden}: {names:?}");
        }
        assert!(names.iter().all(|name| !name.starts_with('/') && !name.contains("..")), "{names:?}");
        let mut text = Vec::new();
        flate2::read::GzDecoder::new(answer.body.as_slice()).read_to_end(&mut text).unwrap();
        let text = String::from_utf8_lossy(&text);
        assert!(text.contains("fn a() {}") && !text.contains("A=1") && !text.contains("root:"));
        assert!(!text.contains("wsd-it-"), "the archive contains a local path");
    }
    let blind =
        run.operator.post(&format!("/v1/runs/{}/tokens", run.id), json!({"permissions": ["file:list"]})).await.is(201);
    let blind = run.agent.with_token(blind["token"].as_str());
    blind.get(&format!("/v1/runs/{}/archive", run.id)).await.refused("FORBIDDEN");
}
