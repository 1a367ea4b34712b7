//! Names that resemble secrets or build output, and their exceptions by policy and by git.

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Run, Server, commit_all, put, sha256, tar_of};

/// Returns the entry of `path` in a listing that includes hidden files.
async fn listed(run: &Run, path: &str) -> Option<Value> {
    let listed = run.ok("list_dir", json!({"maxDepth": 20, "includeHidden": true, "maxEntries": 10_000})).await;
    listed["entries"].as_array().unwrap().iter().find(|entry| entry["path"] == path).cloned()
}

#[rstest]
#[tokio::test]
async fn names_that_only_resemble_secrets_can_be_read_and_written(#[values(Backend::Sqlite)] backend: Backend) {
    let plain = [".env.d.ts", ".env.dist"];
    let secret = ["kubeconfig", "k8s/secret.yml"];
    let files: Vec<_> = plain.iter().chain(&secret).map(|path| (*path, "needle\n")).collect();
    let (_server, run) = Run::shared(backend, &files).await;
    for path in plain {
        assert_eq!(listed(&run, path).await.unwrap()["readable"], true, "{path}");
        run.ok("read_file", json!({"path": path})).await;
        run.replace(path, "needle 2\n", &sha256("needle\n")).await.ok();
    }
    for path in secret {
        let entry = listed(&run, path).await.unwrap();
        assert_eq!((&entry["kind"], &entry["readable"]), (&json!("SECRET_LIKE"), &json!(false)), "{path}");
        run.call("read_file", json!({"path": path})).await.refused("POLICY_DENIED_SECRET");
        run.replace(path, "x", &sha256("needle\n")).await.refused("POLICY_DENIED_SECRET");
    }
    let found = run.ok("search_text", json!({"query": "needle"})).await;
    let found: Vec<_> = found["matches"].as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap()).collect();
    assert_eq!(found, plain);
}

#[rstest]
#[tokio::test]
async fn policy_can_except_names_from_secrets(#[values(Backend::Sqlite)] backend: Backend) {
    let files = [
        ("fixtures/ca.pem", "needle\n"),
        ("fixtures/certs.pem/a.txt", "needle\n"),
        (".env.ci", "needle\n"),
        ("ca.pem", "needle\n"),
        (".env", "needle\n"),
    ];
    let policy = json!({"policy": {"notSecret": ["fixtures/**", "/.env.ci"]}});
    let (server, run) = Run::shared_with(backend, &files, policy).await;
    let shown = run.operator.get(&format!("/v1/runs/{}", run.id)).await.ok();
    assert_eq!(shown["policy"]["notSecret"], json!(["fixtures/**", "/.env.ci"]));
    let plain = [".env.ci", "fixtures/ca.pem", "fixtures/certs.pem/a.txt"];
    for path in plain {
        let entry = listed(&run, path).await.unwrap_or_else(|| panic!("{path} is not listed"));
        assert!(entry["readable"] == true && entry["kind"] != "SECRET_LIKE", "{entry}");
        let stat = run.ok("stat_path", json!({"path": path})).await;
        assert!(stat["readable"] == true && stat["writable"] == true, "{stat}");
        run.ok("read_file", json!({"path": path})).await;
    }
    let found = run.ok("search_text", json!({"query": "needle"})).await;
    let found: Vec<_> = found["matches"].as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap()).collect();
    assert_eq!(found, plain);
    let archive = run.operator.get(&format!("/v1/runs/{}/archive", run.id)).await;
    let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(&archive.body[..]));
    let packed: Vec<_> = tar.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().into_owned()).collect();
    for path in plain {
        assert!(packed.iter().any(|one| one.ends_with(path)), "{path}: {packed:?}");
    }
    assert!(!packed.iter().any(|one| one.ends_with(".env")), "{packed:?}");
    run.replace(".env.ci", "needle\nA=1\n", &sha256("needle\n")).await.ok();
    run.patch("--- a/fixtures/ca.pem\n+++ b/fixtures/ca.pem\n@@ -1 +1,2 @@\n needle\n+more\n").await.ok();
    run.create("fixtures/new.key", "none\n").await;
    let diff = run.ok("diff_workspace", json!({})).await;
    assert_eq!(diff["filesChanged"], 3, "{diff:#}");
    for path in ["ca.pem", ".env"] {
        run.call("read_file", json!({"path": path})).await.refused("POLICY_DENIED_SECRET");
        run.replace(path, "x", &sha256("needle\n")).await.refused("POLICY_DENIED_SECRET");
    }
    run.call("write_file", json!({"path": "new.key", "content": "x", "mode": "CREATE_NEW", "reason": "r"}))
        .await
        .refused("POLICY_DENIED_SECRET");
    let bad = json!({"source": {"type": "empty"}, "policy": {"notSecret": ["../x"]}});
    server.operator().post("/v1/runs", bad).await.refused("INVALID_REQUEST");
}

#[rstest]
#[tokio::test]
async fn a_tracked_folder_is_source_regardless_of_its_name(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    let (folder, _) = server.repository(&[
        (".gitignore", "/target/\n/forced/dist/\n"),
        ("build/rules.mk", "needle\n"),
        ("web/dist/app.js", "needle\n"),
        ("build/generated/x.c", "needle\n"),
    ]);
    put(&folder, "forced/dist/app.js", "needle\n");
    crate::harness::git(&folder, &["add", "-f", "forced/dist/app.js"]);
    commit_all(&folder, "forced");
    let run = server.run(json!({"source": {"type": "git", "url": folder}})).await;
    run.until_open().await;
    run.put("other/build/out.txt", "needle\n");
    run.put("target/debug.txt", "needle\n");
    for path in ["build/rules.mk", "web/dist/app.js"] {
        let entry = listed(&run, path).await.unwrap_or_else(|| panic!("{path} is not listed"));
        assert!(entry["kind"] != "GENERATED", "{entry}");
        run.replace(path, "needle 2\n", &sha256("needle\n")).await.ok();
    }
    run.create("build/new.mk", "needle\n").await;
    let sha256_now = sha256("needle 2\n");
    run.ok(
        "move_file",
        json!({"from": "web/dist/app.js", "to": "web/dist/main.js", "expectedSha256": sha256_now, "reason": "r"}),
    )
    .await;
    let explained = run.ok("stat_path", json!({"path": "build/rules.mk"})).await;
    assert_eq!(explained["writable"], true);
    for path in ["build/generated/x.c", "forced/dist/app.js", "other/build/out.txt"] {
        assert_eq!(listed(&run, path).await, None, "{path}");
        assert_eq!(run.ok("stat_path", json!({"path": path})).await["kind"], "GENERATED", "{path}");
        run.replace(path, "x", &sha256("needle\n")).await.refused("POLICY_DENIED");
    }
    run.call("write_file", json!({"path": "dist/new.js", "content": "x", "mode": "CREATE_NEW", "reason": "r"}))
        .await
        .refused("POLICY_DENIED");
    run.call("read_file", json!({"path": "target/debug.txt"})).await.refused("POLICY_DENIED");
    let found = run.ok("find_files", json!({"glob": ["**/*.mk", "**/*.js"]})).await;
    let found: Vec<_> = found["entries"].as_array().unwrap().iter().map(|one| one["path"].as_str().unwrap()).collect();
    assert_eq!(found, ["build/new.mk", "build/rules.mk", "web/dist/main.js"]);
}

#[rstest]
#[tokio::test]
async fn build_output_of_a_run_that_is_not_from_git_is_known_by_its_name(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    let paths = ["target/a.rs", "build/rules.mk", "web/dist/app.js"];
    let files: Vec<_> = paths.iter().map(|path| (*path, "needle\n")).collect();
    let folder = server.template(&files);
    let copied = server.run(json!({"source": {"type": "directory", "path": folder}})).await;
    let uploaded = server.run(json!({"source": {"type": "archive"}})).await;
    let entries: Vec<_> = files.iter().map(|(path, text)| (*path, text.as_bytes())).collect();
    server.operator().put(&format!("/v1/runs/{}/archive", uploaded.id), tar_of(&entries)).await.ok();
    uploaded.until_open().await;
    let empty = server.run(json!({})).await;
    for path in paths {
        for run in [&copied, &uploaded] {
            assert_eq!(listed(run, path).await, None, "{path}");
            run.replace(path, "x", &sha256("needle\n")).await.refused("POLICY_DENIED");
            assert_eq!(run.ok("read_file", json!({"path": path})).await["sha256"], sha256("needle\n"), "{path}");
        }
        empty
            .call("write_file", json!({"path": path, "content": "x", "mode": "CREATE_NEW", "reason": "r"}))
            .await
            .refused("POLICY_DENIED");
    }
}
