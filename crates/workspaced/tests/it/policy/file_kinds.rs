//! File kinds and their treatment by the default policy.

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Run, sha256};

/// One of each rule: a name, an ending, a folder, a look-alike. `model` has the table.
const SECRETS: [&str; 4] = [".env", "tls/server.key", "x/id_rsa/readme.txt", ".\u{ff45}nv"];

async fn entry(run: &Run, path: &str) -> Option<Value> {
    let listing = run.ok("list_dir", json!({"maxDepth": 20, "includeHidden": true, "includeIgnored": true})).await;
    listing["entries"].as_array().unwrap().iter().find(|entry| entry["path"] == path).cloned()
}

/// Returns every kind of mutation of `path`.
fn mutations(path: &str, old: &str) -> Vec<(&'static str, Value)> {
    let patched = |body: String| json!({"patch": body, "reason": "r"});
    vec![
        ("write_file", json!({"path": path, "content": "new\n", "expectedSha256": sha256(old), "reason": "r"})),
        ("write_file", json!({"path": path, "content": "new\n", "reason": "r"})),
        ("write_file", json!({"path": path, "content": "new\n", "mode": "CREATE_NEW", "reason": "r"})),
        ("apply_patch", patched(format!("--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-{old}+new\n"))),
        ("apply_patch", patched(format!("--- a/{path}\n+++ /dev/null\n@@ -1 +0,0 @@\n-{old}"))),
        (
            "apply_patch",
            patched(format!(
                "diff --git a/{path} b/moved.txt\nsimilarity index 100%\nrename from {path}\nrename to moved.txt\n"
            )),
        ),
        (
            "apply_patch",
            patched(format!(
                "diff --git a/free.txt b/{path}\nsimilarity index 100%\nrename from free.txt\nrename to {path}\n"
            )),
        ),
    ]
}

#[rstest]
#[tokio::test]
async fn secrets_are_listed_but_not_disclosed(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("free.txt", "free\n")]).await;
    for path in SECRETS {
        run.put(path, "PASSWORD=hunter2\n");
    }
    let (tree, diff) = (run.snapshot(), run.diff_sha256().await);
    for path in SECRETS {
        let problem = run.call("read_file", json!({"path": path})).await.refused("POLICY_DENIED_SECRET");
        assert_eq!(problem["path"], path);
        assert!(!problem["reasons"].as_array().unwrap().is_empty(), "{problem:#}");
        run.call("search_text", json!({"path": path, "query": "hunter2"})).await.refused("POLICY_DENIED_SECRET");
        for (tool, input) in mutations(path, "PASSWORD=hunter2\n") {
            let what = input.to_string();
            assert_eq!(run.call(tool, input).await.refusal(), "POLICY_DENIED_SECRET", "{what}");
        }
    }
    assert_eq!((run.snapshot(), run.diff_sha256().await), (tree, diff));
    let listing = run.ok("list_dir", json!({"maxDepth": 20, "includeHidden": true, "includeIgnored": true})).await;
    for path in SECRETS {
        let entries = listing["entries"].as_array().unwrap();
        let entry = entries.iter().find(|entry| entry["path"] == path).unwrap_or_else(|| panic!("{path}: {listing:#}"));
        assert_eq!((&entry["kind"], &entry["readable"]), (&json!("SECRET_LIKE"), &json!(false)), "{entry}");
        assert!(!entry["reason"].as_str().unwrap().is_empty());
    }
}

#[rstest]
#[tokio::test]
async fn no_answer_artifact_or_log_contains_a_secret(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[(".env", "PASSWORD=hunter2\n"), ("a.txt", "a\n")]).await;
    run.put("keys/server.key", "hunter2-key\n");
    run.link("innocent.txt", ".env");
    let patch = "--- a/.env\n+++ b/.env\n@@ -1 +1 @@\n-PASSWORD=guess\n+PASSWORD=x\n";
    for (tool, input) in [
        ("search_text", json!({"query": "hunter2"})),
        ("search_text", json!({"query": "PASSWORD", "includeGlob": ["**/.env", ".env", "innocent.txt"]})),
        ("diff_workspace", json!({})),
        ("list_dir", json!({"includeHidden": true, "includeIgnored": true})),
        ("read_file", json!({"path": "innocent.txt"})),
        ("write_file", json!({"path": ".env", "content": "x", "expectedSha256": sha256("x"), "reason": "r"})),
        ("apply_patch", json!({"patch": patch, "reason": "r"})),
        ("write_file", json!({"path": ".env", "content": "x", "reason": "r", "dryRun": true})),
    ] {
        let answer = run.call(tool, input).await;
        // The hash of a short secret discloses as much as its bytes.
        let mut body = answer.json();
        body.as_object_mut().unwrap().remove("query");
        let discloses = |needle: &str| body.to_string().contains(needle);
        assert!(
            !discloses("hunter2") && !discloses(&sha256("PASSWORD=hunter2\n")),
            "{}: {}",
            answer.what,
            answer.text()
        );
    }
    let archive = run.agent.get(&format!("/v1/runs/{}/archive", run.id)).await;
    assert_eq!(archive.status, 200);
    let names = crate::harness::names_in(&archive.body);
    assert!(names.contains(&"a.txt".to_owned()), "{names:?}");
    assert!(!names.iter().any(|name| name.contains(".env") || name.contains("server.key")), "{names:?}");
    for record in run.audit().await {
        assert!(!record.to_string().contains(&sha256("PASSWORD=hunter2\n")), "{record:#}");
    }
    assert!(!server.log().contains("hunter2"));
}

#[rstest]
#[tokio::test]
async fn git_files_are_inaccessible(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("free.txt", "free\n")]).await;
    let paths = [
        ".git/config",
        ".GIT/config",
        ".Git",
        "sub/.git",
        "sub/.gIT/hooks/x",
        ".git\u{200c}/config",
        ".g\u{ff49}t/config",
        "git~1/config",
        ".git /config",
        ".git./config",
    ];
    for path in paths {
        run.put(path, "[core]\n");
    }
    let tree = run.snapshot();
    for path in paths {
        run.call("read_file", json!({"path": path})).await.refused("PATH_REJECTED");
        run.call("search_text", json!({"path": path, "query": "core"})).await.refused("PATH_REJECTED");
        for (tool, input) in mutations(path, "[core]\n") {
            let what = input.to_string();
            assert_eq!(run.call(tool, input).await.refusal(), "PATH_REJECTED", "{what}");
        }
    }
    assert_eq!(run.snapshot(), tree);
    let listing = run.ok("list_dir", json!({"maxDepth": 20, "includeHidden": true, "includeIgnored": true})).await;
    let entries = listing["entries"].as_array().unwrap();
    assert!(entries.iter().all(|entry| !entry["path"].as_str().unwrap().to_lowercase().contains("git")), "{listing:#}");
    assert_eq!(run.ok("search_text", json!({"query": "[core]"})).await["matches"], json!([]));
    assert!(!run.call("diff_workspace", json!({})).await.contains("[core]"));
}

#[rstest]
#[tokio::test]
async fn generated_and_vendored_files_can_be_read_but_not_written(#[values(Backend::Sqlite)] backend: Backend) {
    let table = [
        ("target/generated/X.java", "GENERATED"),
        ("build/out.js", "GENERATED"),
        ("dist/app.js", "GENERATED"),
        ("module/generated-sources/A.java", "GENERATED"),
        ("api/user.pb.go", "GENERATED"),
        ("src/Thing.generated.java", "GENERATED"),
        ("openapi/generated/client.ts", "GENERATED"),
        ("node_modules/left-pad/index.js", "VENDORED"),
        ("vendor/lib/x.go", "VENDORED"),
        ("TARGET/upper.txt", "GENERATED"),
        ("Node_Modules/x.js", "VENDORED"),
    ];
    let files: Vec<(&str, &str)> =
        table.iter().map(|(path, _)| (*path, "needle\n")).chain([("free.txt", "free\n")]).collect();
    let (_server, run) = Run::shared(backend, &files).await;
    let tree = run.snapshot();
    for (path, kind) in table {
        assert_eq!(run.ok("read_file", json!({"path": path})).await["sha256"], sha256("needle\n"), "{path}");
        assert_eq!(entry(&run, path).await.unwrap()["kind"], kind, "{path}");
        let found = run.ok("search_text", json!({"path": path, "query": "needle"})).await;
        assert_eq!(found["matches"].as_array().unwrap().len(), 1, "{path}");
        for (tool, input) in mutations(path, "needle\n") {
            let what = input.to_string();
            assert_eq!(run.call(tool, input).await.refusal(), "POLICY_DENIED", "{what}");
        }
    }
    run.call("write_file", json!({"path": "target/new.txt", "content": "x", "reason": "r"}))
        .await
        .refused("POLICY_DENIED");
    assert_eq!(run.snapshot(), tree);
    let listed = run.ok("list_dir", json!({"maxDepth": 20})).await;
    let visible: Vec<_> = listed["entries"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|entry| entry["type"] == "file")
        .map(|entry| entry["path"].clone())
        .collect();
    assert_eq!(visible, ["free.txt"], "generated files are listed only on request");
}

#[rstest]
#[tokio::test]
async fn lockfiles_require_approval(#[values(Backend::Sqlite)] backend: Backend) {
    let locks = [
        "Cargo.lock",
        "package-lock.json",
        "yarn.lock",
        "pnpm-lock.yaml",
        "poetry.lock",
        "go.sum",
        "Gemfile.lock",
        "composer.lock",
    ];
    let files: Vec<(&str, &str)> = locks.iter().map(|path| (*path, "lock\n")).collect();
    let (_server, run) = Run::shared(backend, &files).await;
    let tree = run.snapshot();
    for path in locks {
        run.ok("read_file", json!({"path": path})).await;
        assert_eq!(entry(&run, path).await.unwrap()["kind"], "LOCKFILE", "{path}");
        let answer = run.replace(path, "new\n", &sha256("lock\n")).await;
        answer.refused("APPROVAL_REQUIRED");
        assert!(!answer.json()["reasons"].as_array().unwrap().is_empty());
        run.replace(path, "new\n", &sha256("stale\n")).await.refused("WRITE_CONFLICT");
    }
    assert_eq!(run.snapshot(), tree, "a pending change was applied");
}

#[rstest]
#[tokio::test]
async fn binary_files_can_only_be_listed(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("free.txt", "free\n")]).await;
    let bytes = [0x7f, b'E', b'L', b'F', 0, 1, 2, 255];
    for path in ["prog", "pic.png", "text.txt"] {
        run.put(path, bytes);
        // A listing opens no file, so it cannot detect binary content.
        let kind = entry(&run, path).await.unwrap()["kind"].clone();
        assert!(kind == "BINARY" || path == "text.txt", "{path}: {kind}");
        run.call("read_file", json!({"path": path})).await.refused("UNSUPPORTED_BINARY");
        let write = json!({"path": path, "content": "x", "expectedSha256": sha256(bytes), "reason": "r"});
        run.call("write_file", write).await.refused("UNSUPPORTED_BINARY");
        let patch = format!("--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-x\n+y\n");
        run.patch(&patch).await.refused("UNSUPPORTED_BINARY");
        assert_eq!(std::fs::read(run.file(path)).unwrap(), bytes);
    }
}

#[rstest]
#[tokio::test]
async fn ignored_files_can_only_be_listed_on_request(#[values(Backend::Sqlite)] backend: Backend) {
    let files = [(".gitignore", "*.log\nlocal/\n!keep.log\n"), ("sub/.gitignore", "*.tmp\n"), ("keep.log", "x\n")];
    let (_server, run) = Run::shared(backend, &files).await;
    for path in ["a.log", "local/x.txt", "sub/a.tmp"] {
        run.put(path, "noise\n");
        run.call("read_file", json!({"path": path})).await.refused("POLICY_DENIED");
        run.call(
            "write_file",
            json!({"path": path, "content": "x", "expectedSha256": sha256("noise\n"), "reason": "r"}),
        )
        .await
        .refused("POLICY_DENIED");
        run.call("search_text", json!({"path": path, "query": "noise"})).await.refused("POLICY_DENIED");
    }
    run.call("write_file", json!({"path": "new.log", "content": "x", "reason": "r"})).await.refused("POLICY_DENIED");
    run.ok("read_file", json!({"path": "keep.log"})).await;
    run.create("a.tmp", "only below sub\n").await;
    assert_eq!(run.ok("search_text", json!({"query": "noise"})).await["matches"], json!([]));
    assert_eq!(entry(&run, "a.log").await.unwrap()["readable"], false);
}

#[rstest]
#[tokio::test]
async fn an_agent_cannot_remove_the_ignore_rules_of_the_base(#[values(Backend::Sqlite)] backend: Backend) {
    let unasked = json!({"policy": {"requireApprovalIf": []}});
    let (_server, run) = Run::shared_with(backend, &[(".gitignore", "*.log\n")], unasked).await;
    run.put("a.log", "noise\n");
    run.replace(".gitignore", "\n", &sha256("*.log\n")).await.ok();
    run.call("read_file", json!({"path": "a.log"})).await.refused("POLICY_DENIED");
}

#[rstest]
#[tokio::test]
async fn tracked_files_are_never_ignored(#[values(Backend::Sqlite)] backend: Backend) {
    let server = crate::harness::Server::shared(backend).await;
    let (folder, _) = server.repository(&[(".gitignore", "*.log\n"), ("kept.log", "tracked\n")]);
    let run = server.run(json!({"source": {"type": "git", "url": folder}})).await;
    run.ok("read_file", json!({"path": "kept.log"})).await;
    run.replace("kept.log", "changed\n", &sha256("tracked\n")).await.ok();
    assert_eq!(run.ok("diff_workspace", json!({})).await["filesChanged"], 1);
}

#[rstest]
#[tokio::test]
async fn a_new_text_with_a_credential_is_refused(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    // Split, so that no scanner reports this file.
    let credentials = [
        format!("-----BEGIN OPENSSH {}\nb3BlbnNzaC1rZXktdjEA\n", "PRIVATE KEY-----"),
        format!("token: {}{}\n", "ghp_", "abcdefghijklmnopqrstuvwxyz0123456789"),
    ];
    for content in &credentials {
        run.call("write_file", json!({"path": "b.txt", "content": content, "reason": "r"}))
            .await
            .refused("POLICY_DENIED_SECRET");
        let added = content.lines().map(|line| format!("+{line}\n")).collect::<Vec<_>>().concat();
        let patch = format!("--- a/a.txt\n+++ b/a.txt\n@@ -1 +1,{} @@\n a\n{added}", content.lines().count() + 1);
        let answer = run.patch(&patch).await;
        answer.refused("POLICY_DENIED_SECRET");
        assert!(!answer.contains(content.trim()), "the refusal contains the credential");
    }
    assert!(!run.repo.join("b.txt").exists());
    assert_eq!(run.on_disk("a.txt"), "a\n");
}

/// Files of private keys under names that say nothing, assembled so that this file contains none.
fn key_files() -> Vec<(&'static str, String)> {
    let body = "MIIEpAIBAAKCAQEA0Z3VS5JJcds3xfnYgU6mUGbD7Zq1needle0";
    let block = |label: &str| format!("-----{} {label}-----\n{body}\n-----{} {label}-----\n", "BEGIN", "END");
    vec![
        ("deploy", block("OPENSSH PRIVATE KEY")),
        ("keys/notes.txt", block("RSA PRIVATE KEY")),
        (
            "bag.dat",
            format!("Bag Attributes\n    friendlyName: x\nKey Attributes: <No Attributes>\n{}", block("PRIVATE KEY")),
        ),
        ("chain.conf", format!("# chain\n{}{}", block("CERTIFICATE"), block("EC PRIVATE KEY"))),
        ("src/lib.rs", format!("\u{feff}\n\n{}", block("ENCRYPTED PRIVATE KEY"))),
        (
            "age.yaml",
            format!(
                "# created: now\n# needle\nAGE-SECRET-KEY-1{}\n",
                "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L".repeat(2).get(..58).unwrap()
            ),
        ),
        (
            "putty",
            format!(
                "PuTTY-User-Key-File-2: ssh-rsa\nComment: needle\nPublic-Lines: 1\nAAAA\nPrivate-{}: 1\nAA\n",
                "Lines"
            ),
        ),
    ]
}

#[rstest]
#[tokio::test]
async fn a_private_key_is_secret_under_any_name(#[values(Backend::Sqlite)] backend: Backend) {
    let keys = key_files();
    let files: Vec<_> = keys.iter().map(|(path, text)| (*path, text.as_str())).chain([("a.md", "needle\n")]).collect();
    let (server, run) = Run::shared(backend, &files).await;
    // One that was there, and one that came from outside.
    run.put("new/key", &keys[0].1);
    run.put("old.md", "# Keys\n\nA needle begins with `-----BEGIN PRIVATE KEY-----`.\n");
    for path in keys.iter().map(|(path, _)| *path).chain(["new/key"]) {
        let text = run.on_disk(path);
        let read = run.call("read_file", json!({"path": path})).await.refused("POLICY_DENIED_SECRET");
        assert_eq!(read["reasons"], json!(["kind:SECRET_LIKE"]), "{path}: {read:#}");
        run.call("read_file", json!({"path": path, "startLine": 1, "maxLines": 1}))
            .await
            .refused("POLICY_DENIED_SECRET");
        run.call("search_text", json!({"path": path, "query": "needle"})).await.refused("POLICY_DENIED_SECRET");
        let many = run.ok("read_files", json!({"paths": [path, "a.md"]})).await;
        assert!(!many.to_string().contains("needle0"), "{path}: {many:#}");
        let stat = run.ok("stat_path", json!({"path": path})).await;
        assert_eq!((&stat["kind"], &stat["readable"]), (&json!("SECRET_LIKE"), &json!(false)), "{path}: {stat:#}");
        assert!(stat.get("sha256").is_none_or(Value::is_null), "{path}: {stat:#}");
        let url = format!("/v1/runs/{}/files/{path}", run.id);
        run.agent.get(&url).await.refused("POLICY_DENIED_SECRET");
        run.replace(path, "x\n", &sha256(&text)).await.refused("POLICY_DENIED_SECRET");
        run.call("edit_file", json!({"path": path, "oldString": "needle", "newString": "x", "reason": "r"}))
            .await
            .refused("POLICY_DENIED_SECRET");
        run.call("move_file", json!({"from": path, "to": "x.md", "expectedSha256": sha256(&text), "reason": "r"}))
            .await
            .refused("POLICY_DENIED_SECRET");
        run.call("delete_file", json!({"path": path, "expectedSha256": sha256(&text), "reason": "r"}))
            .await
            .refused("POLICY_DENIED_SECRET");
        assert_eq!(run.on_disk(path), text, "{path}");
    }
    let found = run.ok("search_text", json!({"query": "needle"})).await;
    let paths: Vec<_> = found["matches"].as_array().unwrap().iter().map(|found| found["path"].clone()).collect();
    assert_eq!(paths, ["a.md", "old.md"], "{found:#}");
    let diff = run.ok("diff_workspace", json!({})).await;
    assert!(!diff.to_string().contains("needle0") && diff["diff"].as_str().unwrap().contains("old.md"), "{diff:#}");
    for export in ["archive", "patch"] {
        let answer = run.agent.get(&format!("/v1/runs/{}/{export}", run.id)).await;
        assert_eq!(answer.status, 200, "{export}");
        if export == "archive" {
            assert_eq!(crate::harness::names_in(&answer.body), ["a.md", "keys/", "new/", "old.md", "src/"]);
        } else {
            assert!(answer.contains("old.md") && !answer.contains("new/key"), "{}", answer.text());
        }
    }
    assert!(!server.log().contains("needle0"));
    // An operator can state that it is no secret, as for a name.
    let policy = json!({"policy": {"notSecret": ["deploy"]}});
    let (_server, run) = Run::shared_with(backend, &[("deploy", &keys[0].1)], policy).await;
    run.ok("read_file", json!({"path": "deploy"})).await;
}
