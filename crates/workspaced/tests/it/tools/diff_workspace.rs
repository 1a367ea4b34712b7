//! `diff_workspace`: every input with its default and maximum, every member of the output.

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Run, Server, Setup, git, put, sha256};

#[rstest]
#[tokio::test]
async fn a_new_run_has_an_empty_diff(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "x\n")]).await;
    let diff = run.ok("diff_workspace", json!({})).await;
    for (member, want) in [
        ("filesChanged", json!(0)),
        ("insertions", json!(0)),
        ("deletions", json!(0)),
        ("files", json!([])),
        ("diff", json!("")),
        ("truncated", json!(false)),
        ("diffSha256", json!(sha256(""))),
        ("baseCommit", run.get().await["baseCommit"].clone()),
    ] {
        assert_eq!(diff[member], want, "{member}");
    }
    assert!(diff["stat"].is_string());
}

#[rstest]
#[tokio::test]
async fn known_changes_are_listed_without_a_check_of_the_tree(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[("a.txt", "a\n"), ("dir/b.txt", "b\n"), ("c.txt", "c\n")]).await;
    let repo = server.repo(&run.id);
    let listed = async |input: Value| {
        let diff = run.ok("diff_workspace", input).await;
        let paths: Vec<_> = diff["files"].as_array().unwrap().iter().map(|file| file["path"].clone()).collect();
        (json!(paths), diff["treeChecked"].clone(), diff["diffSha256"].clone())
    };
    let quick = || json!({"checkTree": false});
    // What records do not know is found by a comparison of the tree alone, also after one has found it.
    put(&repo, "c.txt", "from outside\n");
    for _ in 0..2 {
        let known = listed(quick()).await;
        assert_eq!((&known.0, &known.1), (&json!([]), &json!(false)));
        let whole = listed(json!({})).await;
        assert_eq!((&whole.0, &whole.1), (&json!(["c.txt"]), &Value::Null));
    }
    put(&repo, "c.txt", "c\n");
    run.replace("a.txt", "A\n", &sha256("a\n")).await.ok();
    run.replace("dir/b.txt", "B\n", &sha256("b\n")).await.ok();
    let known = listed(quick()).await;
    assert_eq!((&known.0, &known.1), (&json!(["a.txt", "dir/b.txt"]), &json!(false)));
    assert_eq!(listed(json!({})).await, (known.0.clone(), Value::Null, known.2.clone()));
    assert_eq!(listed(json!({"checkTree": false, "path": "dir"})).await.0, json!(["dir/b.txt"]));
    assert_eq!(listed(json!({"checkTree": false, "path": "a.txt"})).await.0, json!(["a.txt"]));
    // Their present versions are compared.
    put(&repo, "dir/b.txt", "b\n");
    assert_eq!(listed(quick()).await.0, json!(["a.txt"]));
}

/// An interrupted change is known to differ and counts against the run's budget.
#[rstest]
#[tokio::test]
async fn an_interrupted_change_is_known_after_it_is_reconciled(
    #[values(Backend::Sqlite)] backend: Backend,
    #[values("transaction.committed", "transaction.applied")] failpoint: &str,
) {
    let server =
        Server::start_with(Setup::new(backend).env("WORKSPACED_FAILPOINT", &format!("{failpoint}:2:panic"))).await;
    let policy = json!({"policy": {"runBudget": {"maxInsertions": 3}}});
    let run = server.run_with_files(&[("a.txt", "a\n")], policy).await;
    run.create("1.txt", "1\n").await;
    assert_eq!(run.ok("diff_workspace", json!({})).await["filesChanged"], 1);
    let write = |path: &str| json!({"path": path, "content": "x\n", "reason": "r"});
    run.call("write_file", write("2.txt")).await.refused("INTERNAL");
    let diff = run.ok("diff_workspace", json!({"checkTree": false})).await;
    assert_eq!(diff["filesChanged"], 2, "{diff:#}");
    run.ok("write_file", write("3.txt")).await;
    let refused = run.call("write_file", write("4.txt")).await;
    assert_eq!(refused.refused("PATCH_BUDGET_EXCEEDED")["reasons"], json!(["runBudget:maxInsertions"]));
    assert_eq!(run.ok("diff_workspace", json!({"checkTree": false})).await["filesChanged"], 3);
}

#[rstest]
#[tokio::test]
async fn the_diff_contains_every_change_and_git_can_apply_it(#[values(Backend::Sqlite)] backend: Backend) {
    let files = [
        ("keep.txt", "k\n"),
        ("edit.txt", "1\n2\n3\n"),
        ("gone.txt", "g\n"),
        ("dir/old name.txt", "o\n"),
        ("crlf.txt", "a\r\nb\r\n"),
        ("ü.txt", "no end"),
    ];
    let (server, run) = Run::shared(backend, &files).await;
    run.replace("edit.txt", "1\ntwo\n3\n4\n", &sha256("1\n2\n3\n")).await.ok();
    run.replace("crlf.txt", "a\r\nB\r\n", &sha256("a\r\nb\r\n")).await.ok();
    run.replace("ü.txt", "an end\n", &sha256("no end")).await.ok();
    run.create("new/file.txt", "n\n").await;
    run.create("new/empty.txt", "").await;
    run.patch("--- a/gone.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-g\n").await.ok();
    let diff = run.ok("diff_workspace", json!({})).await;
    assert_eq!(diff["filesChanged"], 6, "{diff:#}");
    assert_eq!((&diff["insertions"], &diff["deletions"]), (&json!(5), &json!(4)));
    let text = diff["diff"].as_str().unwrap();
    assert_eq!(diff["diffSha256"], sha256(text));
    let paths: Vec<_> = diff["files"].as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap()).collect();
    let mut sorted = paths.clone();
    sorted.sort_unstable();
    assert_eq!(paths, sorted);
    assert!(diff["stat"].as_str().unwrap().contains("edit.txt"));

    let folder = server.template(&files);
    git(&folder, &["init", "-q"]);
    put(&server.home, "applied.patch", text);
    git(&folder, &["apply", "--whitespace=nowarn", "../../applied.patch"]);
    std::fs::remove_dir_all(folder.join(".git")).unwrap();
    assert_eq!(crate::harness::files_in(&folder), run.present_files().await);
}

#[rstest]
#[tokio::test]
async fn partial_and_truncated_diffs_keep_the_hash(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[]).await;
    run.create("a/x.txt", &"a line of text\n".repeat(200)).await;
    run.create("b/y.txt", "y\n").await;
    let whole = run.ok("diff_workspace", json!({})).await;
    let part = run.ok("diff_workspace", json!({"path": "b"})).await;
    assert_eq!((&part["filesChanged"], &part["insertions"]), (&json!(1), &json!(1)));
    assert!(!part["diff"].as_str().unwrap().contains("a/x.txt"));
    assert_eq!(run.ok("diff_workspace", json!({"path": "b/y.txt"})).await["diff"], part["diff"]);

    let stat = run.ok("diff_workspace", json!({"statOnly": true})).await;
    assert!(stat["diff"].as_str().is_none_or(str::is_empty));
    assert_eq!(stat["diffSha256"], whole["diffSha256"]);
    let cut = run.ok("diff_workspace", json!({"maxBytes": 500})).await;
    let shown = cut["diff"].as_str().unwrap();
    assert!(shown.len() <= 500 && whole["diff"].as_str().unwrap().starts_with(shown), "{shown}");
    assert_eq!((&cut["truncated"], &cut["diffSha256"]), (&json!(true), &whole["diffSha256"]));
    assert_eq!(cut["filesChanged"], 2, "truncation changed the counts");
    for (input, code) in [
        (json!({"path": "none-such"}), "NOT_FOUND"),
        (json!({"path": "../x"}), "PATH_REJECTED"),
        (json!({"path": ".env"}), "POLICY_DENIED_SECRET"),
        (json!({"base": "x"}), "INVALID_REQUEST"),
    ] {
        run.call("diff_workspace", input).await.refused(code);
    }
}

#[rstest]
#[tokio::test]
async fn the_path_of_a_removed_file_is_accepted(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("dir/gone.txt", "g\n")]).await;
    run.patch("--- a/dir/gone.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-g\n").await.ok();
    let diff = run.ok("diff_workspace", json!({"path": "dir/gone.txt"})).await;
    assert_eq!((&diff["filesChanged"], &diff["deletions"]), (&json!(1), &json!(1)), "{diff:#}");
}

#[rstest]
#[tokio::test]
async fn the_content_of_binary_ignored_and_secret_files_is_not_shown(#[values(Backend::Sqlite)] backend: Backend) {
    let files = [(".gitignore", "*.log\n"), (".env", "PASSWORD=hunter2\n")];
    let (_server, run) = Run::shared(backend, &files).await;
    run.put("pic.bin", [1, 0, 2, 0, 3]);
    run.put("x.log", "noise\n");
    run.put(".env", "PASSWORD=changed-secret\n");
    run.put("deploy/id_rsa", "PRIVATE-BYTES\n");
    run.put("ok.txt", "ok\n");
    let answer = run.call("diff_workspace", json!({})).await;
    for secret in ["hunter2", "changed-secret", "PRIVATE-BYTES", "noise"] {
        assert!(!answer.contains(secret), "{}", answer.text());
    }
    let diff = answer.ok();
    let listed: Vec<(&str, &Value)> = diff["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| (file["path"].as_str().unwrap(), &file["binary"]))
        .collect();
    assert!(listed.contains(&("ok.txt", &json!(false))) && listed.contains(&("pic.bin", &json!(true))), "{diff:#}");
    assert!(!listed.iter().any(|(path, _)| *path == "x.log"));
}

#[rstest]
#[tokio::test]
async fn the_diff_ignores_rules_written_by_the_agent(#[values(Backend::Sqlite)] backend: Backend) {
    let files = [("src/a.rs", "fn a() {}\n"), (".gitignore", "*.log\n")];
    let unasked = json!({"policy": {"requireApprovalIf": []}});
    let (_server, run) = Run::shared_with(backend, &files, unasked).await;
    run.replace("src/a.rs", "fn evil() {}\n", &sha256("fn a() {}\n")).await.ok();
    run.replace(".gitignore", "*\n", &sha256("*.log\n")).await.ok();
    let diff = run.ok("diff_workspace", json!({})).await;
    assert!(diff["diff"].as_str().unwrap().contains("fn evil"), "a tracked file is hidden: {diff:#}");
}

#[rstest]
#[tokio::test]
async fn files_that_do_not_fit_the_answer_are_counted(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[]).await;
    let folder = format!("{}/", "d".repeat(200)).repeat(17);
    for number in 0..700 {
        run.put(&format!("{folder}{number:04}"), "one\n");
    }
    for (input, shown) in [(json!({"statOnly": true}), 0), (json!({"maxBytes": 100_000}), 1)] {
        let answer = run.call("diff_workspace", input).await;
        assert!(answer.body.len() < (2 << 20) + 200_000, "{} bytes", answer.body.len());
        let diff = answer.ok();
        let files = diff["files"].as_array().unwrap();
        assert!((200..400).contains(&files.len()), "{} files", files.len());
        assert!(files.iter().enumerate().all(|(at, file)| file["path"] == json!(format!("{folder}{at:04}"))));
        assert_eq!(
            (&diff["filesChanged"], &diff["insertions"], &diff["truncated"]),
            (&json!(700), &json!(700), &json!(true))
        );
        let stat: Vec<_> = diff["stat"].as_str().unwrap().lines().collect();
        let more = format!("... and {} more files", 700 - files.len());
        assert_eq!(stat[files.len()..], [&*more, "700 files changed | +700 -0"]);
        assert_eq!(diff["diff"].as_str().unwrap().is_empty(), shown == 0);
        let patch = run.operator.get(&format!("/v1/runs/{}/patch", run.id)).await;
        assert_eq!(patch.text().matches("\n+one\n").count(), 700);
    }
    drop(server);
}
