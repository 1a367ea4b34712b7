//! Ignore rules and attributes in a workspace hide no change of the run from a reviewer.

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Run, Server, Setup, exhaustive, git, names_in, sha256};

const EVIL: &str = "src/evil.js";
const DEEP: &str = "deep/er/evil.js";

/// Creates a run from git, in which ignore rules need no approval, with two new files and a change.
async fn run_with_changes(server: &Server, policy: Value) -> (Run, std::path::PathBuf) {
    let (folder, _) = server.repository(&[("a.txt", "a\n"), ("src/b.js", "b\n"), (".gitignore", "*.log\n")]);
    let source = json!({"type": "git", "url": folder});
    let run = server.run(json!({"source": source, "policy": policy})).await;
    for path in [EVIL, DEEP] {
        run.create(path, "evil()\n").await;
    }
    run.replace("a.txt", "changed\n", &sha256("a\n")).await.ok();
    (run, folder)
}

async fn bytes(run: &Run, what: &str) -> Vec<u8> {
    let answer = run.operator.get(&format!("/v1/runs/{}/{what}", run.id)).await;
    assert_eq!(answer.status, 200, "{what}: {}", answer.text());
    answer.body
}

/// Asserts that every view for a reviewer shows each of `paths`.
async fn assert_shown(run: &Run, folder: &std::path::Path, paths: &[&str], when: &str) {
    let diff = run.ok("diff_workspace", json!({})).await;
    let stat = run.ok("diff_workspace", json!({"statOnly": true})).await;
    let patch = String::from_utf8(bytes(run, "patch").await).unwrap();
    let archive = names_in(&bytes(run, "archive").await);
    let bundle = folder.with_extension("bundle");
    std::fs::write(&bundle, bytes(run, "bundle?branch=seen").await).unwrap();
    git(folder, &["fetch", "-q", "-f", bundle.to_str().unwrap(), "seen:seen"]);
    let bundled = git(folder, &["ls-tree", "-r", "--name-only", "seen"]);
    for path in paths {
        for (what, text) in [("diff", diff["diff"].as_str().unwrap()), ("patch", &patch)] {
            assert!(text.contains(&format!("+++ b/{path}\n")), "{when}: {what} hides {path}: {text}");
        }
        assert!(stat["stat"].as_str().unwrap().contains(path), "{when}: {stat:#}");
        assert!(diff["files"].as_array().unwrap().iter().any(|file| file["path"] == *path), "{when}: {diff:#}");
        assert!(archive.iter().any(|name| name == path), "{when}: the archive hides {path}: {archive:?}");
        assert!(bundled.lines().any(|name| name == *path), "{when}: the bundle hides {path}: {bundled}");
    }
    assert!(
        !diff.to_string().contains("noise"),
        "{when}: an ignored file that the run did not write is shown: {diff:#}"
    );
    // An external change is drift, even if the path is ignored.
    let before = run.on_disk(EVIL);
    run.put(EVIL, "tampered\n");
    let drift = run.operator.get(&format!("/v1/runs/{}/drift", run.id)).await.ok();
    assert!(drift["items"].as_array().unwrap().iter().any(|item| item["path"] == EVIL), "{when}: {drift:#}");
    run.put(EVIL, before);
    // At a record, and by read and search.
    let record = run.last_record().await["seq"].as_u64().unwrap();
    let past = run.ok("diff_workspace", json!({"atSeq": record})).await;
    assert!(past["diff"].as_str().unwrap().contains("+++ b/src/evil.js\n"), "{when}: {past:#}");
    assert_eq!(run.ok("read_file", json!({"path": EVIL})).await["sha256"], sha256(run.on_disk(EVIL)), "{when}");
    let found = run.ok("search_text", json!({"query": "evil()"})).await;
    assert!(found["matches"].to_string().contains(EVIL), "{when}: {found:#}");
    let listed = run.ok("list_dir", json!({"maxDepth": 5})).await;
    assert!(listed["entries"].to_string().contains(DEEP), "{when}: {listed:#}");
}

#[rstest]
#[tokio::test]
async fn ignore_rules_hide_no_change_of_the_run(#[values(Backend::Sqlite)] backend: Backend) {
    let mut server = Server::start(backend).await;
    let (run, folder) = run_with_changes(&server, json!({"requireApprovalIf": []})).await;
    for path in ["noise.log", "deep/noise.log"] {
        run.put(path, "noise\n");
    }
    assert_shown(&run, &folder, &[EVIL, DEEP, "a.txt"], "before any rule").await;
    let mut old = sha256("*.log\n");
    for rules in
        ["*.log\nsrc/evil.js\ndeep/er/evil.js\n", "*.log\nsrc/\n/deep\n", "*\n", "**/*.js\n*.log\n.gitignore\n"]
    {
        run.replace(".gitignore", rules, &old).await.ok();
        old = sha256(rules);
        assert_shown(&run, &folder, &[EVIL, DEEP, "a.txt", ".gitignore"], rules).await;
    }
    // Rules may also hide their own file.
    run.replace(".gitignore", "", &old).await.ok();
    for subfolder in ["src", "deep/er", "deep"] {
        let rules = format!("{subfolder}/.gitignore");
        run.call("write_file", json!({"path": rules, "content": "*\n", "reason": "r"})).await.ok();
        assert_shown(&run, &folder, &[EVIL, DEEP, "a.txt", &rules], subfolder).await;
    }
    // The run can change its hidden files, and an answer has the hash of the diff.
    let edit = json!({"path": EVIL, "oldString": "evil()", "newString": "evil() // more", "reason": "r"});
    run.ok("edit_file", edit).await;
    let patch = "--- a/src/evil.js\n+++ b/src/evil.js\n@@ -1 +1,2 @@\n evil() // more\n+evil()\n";
    let patched = run.patch(patch).await.ok();
    assert_eq!(patched["newWorkspaceDiffSha256"], json!(run.diff_sha256().await));
    // After a restart, the service knows the changes from the ledger.
    server.stop();
    server.restart();
    let run = server.reconnect(&run);
    assert_shown(&run, &folder, &[EVIL, DEEP, "a.txt", "deep/er/.gitignore"], "after a restart").await;
}

#[rstest]
#[tokio::test]
async fn a_permitted_write_to_an_ignored_file_is_shown(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    let policy = json!({"ignoredFiles": "ALLOW", "requireApprovalIf": []});
    let (run, folder) = run_with_changes(&server, policy).await;
    run.create("out.log", "evil()\n").await;
    assert_shown(&run, &folder, &[EVIL, DEEP, "out.log"], "an ignored file was written").await;
}

const IGNORED: [(&str, &str); 6] = [
    (".gitignore", "/out\n"),
    ("out/pre.js", "base\n"),
    ("out/deep/gone.js", "gone\n"),
    ("out/moved.js", "moved\n"),
    ("out/noise.js", "noise\n"),
    ("a.txt", "a\n"),
];

/// Asserts that every view for a reviewer shows the ignored files that the run has changed, and no others.
async fn assert_ignored_are_shown(run: &Run, when: &str) {
    let diff = run.ok("diff_workspace", json!({})).await;
    let seq = run.last_record().await["seq"].as_u64().unwrap();
    let past = run.ok("diff_workspace", json!({"atSeq": seq})).await;
    let patch = String::from_utf8(bytes(run, "patch").await).unwrap();
    // Only the exported patch, which git writes, says that a file was renamed.
    let (removed, renamed) =
        (["-moved\n", "+++ b/out/to.js\n"], ["rename from out/moved.js\n", "rename to out/to.js\n"]);
    for (text, moved) in
        [(diff["diff"].as_str().unwrap(), removed), (past["diff"].as_str().unwrap(), removed), (&patch, renamed)]
    {
        for lines in ["-base\n+evil()\n", "-gone\n", moved[0], moved[1]] {
            assert!(text.contains(lines), "{when}: no {lines:?} in {text}");
        }
        assert!(!text.contains("noise"), "{when}: {text}");
    }
    let status = |path: &str| {
        let files = diff["files"].as_array().unwrap();
        files
            .iter()
            .find(|file| file["path"] == path)
            .unwrap_or_else(|| panic!("{when}: no {path} in {diff:#}"))
            .clone()
    };
    let replaced = status("out/pre.js");
    assert_eq!((&replaced["status"], &replaced["oldSha256"]), (&json!("modified"), &json!(sha256("base\n"))), "{when}");
    for (path, want) in [("out/deep/gone.js", "deleted"), ("out/moved.js", "deleted"), ("out/to.js", "created")] {
        assert_eq!(status(path)["status"], want, "{when}: {path}");
    }
}

#[rstest]
#[tokio::test]
async fn changes_of_existing_ignored_files_are_shown(
    #[values(Backend::Sqlite)] backend: Backend,
    #[values(false, true)] in_batch: bool,
) {
    let mut server = Server::start(backend).await;
    let policy = json!({"ignoredFiles": "ALLOW", "requireApprovalIf": []});
    let run = server.run_with_files(&IGNORED, json!({"policy": policy})).await;
    let calls = [
        (
            "write_file",
            json!({"path": "out/pre.js", "content": "evil()\n", "expectedSha256": sha256("base\n"), "reason": "r"}),
        ),
        ("delete_file", json!({"path": "out/deep/gone.js", "expectedSha256": sha256("gone\n"), "reason": "r"})),
        (
            "move_file",
            json!({"from": "out/moved.js", "to": "out/to.js", "expectedSha256": sha256("moved\n"), "reason": "r"}),
        ),
    ];
    assert_eq!(run.ok("diff_workspace", json!({})).await["files"], json!([]), "a diff without a change");
    if in_batch {
        let calls: Vec<_> = calls.iter().map(|(tool, input)| json!({"tool": tool, "input": input})).collect();
        let batch = json!({"calls": calls, "atomic": true});
        run.agent.post(&format!("/v1/runs/{}/batch", run.id), batch).await.ok();
    } else {
        for (tool, input) in calls {
            run.ok(tool, input).await;
        }
    }
    assert_ignored_are_shown(&run, "at once").await;
    server.kill();
    server.restart();
    let run = server.reconnect(&run);
    assert_ignored_are_shown(&run, "after a crash").await;
    // An answer has the hash of the diff, also for the first change of an ignored file.
    let patched = run.patch("--- a/out/noise.js\n+++ b/out/noise.js\n@@ -1 +1 @@\n-noise\n+silence\n").await.ok();
    assert_eq!(patched["newWorkspaceDiffSha256"], json!(run.diff_sha256().await));
    let diff = run.ok("diff_workspace", json!({})).await;
    assert!(diff["diff"].as_str().unwrap().contains("-noise\n+silence\n"), "{diff:#}");
    // A reverted file does not differ.
    run.ok("revert_calls", json!({"toSeq": 0, "reason": "r"})).await;
    assert_eq!(run.ok("diff_workspace", json!({})).await["files"], json!([]));
}

#[rstest]
#[tokio::test]
async fn a_kill_during_a_change_of_an_ignored_file_hides_nothing(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (mut server, armed) = Server::start_armed(Setup::new(backend)).await;
    let policy = json!({"ignoredFiles": "ALLOW", "requireApprovalIf": []});
    for (failpoint, recorded) in [("transaction.staged", false), ("transaction.committed", true)] {
        let run = server.run_with_files(&IGNORED, json!({"policy": policy})).await;
        std::fs::write(&armed, failpoint).unwrap();
        let input =
            json!({"path": "out/pre.js", "content": "evil()\n", "expectedSha256": sha256("base\n"), "reason": "r"});
        let request = run.agent.request(Method::POST, &format!("/v1/runs/{}/tools/write_file", run.id)).json(&input);
        assert!(run.agent.try_send(request).await.is_err(), "{failpoint}");
        server.wait();
        std::fs::remove_file(&armed).unwrap();
        server.restart();
        let run = server.reconnect(&run);
        let diff = run.ok("diff_workspace", json!({})).await;
        if recorded {
            assert!(diff["diff"].as_str().unwrap().contains("-base\n+evil()\n"), "{failpoint}: {diff:#}");
            continue;
        }
        assert_eq!(diff["files"], json!([]), "{failpoint}");
        // The file counts as ignored until the run changes it.
        run.put("out/pre.js", "from outside\n");
        assert_eq!(run.ok("diff_workspace", json!({})).await["files"], json!([]), "{failpoint}");
        let listed = run.ok("list_dir", json!({"maxDepth": 3})).await;
        assert!(!listed["entries"].to_string().contains("pre.js"), "{listed:#}");
    }
}

#[rstest]
#[tokio::test]
async fn approved_changes_of_ignored_files_are_shown(#[values(Backend::Sqlite)] backend: Backend) {
    let policy = json!({"ignoredFiles": "REQUIRE_APPROVAL", "requireApprovalIf": []});
    let (_server, run) = Run::shared_with(backend, &IGNORED, json!({"policy": policy})).await;
    for (tool, input) in [
        (
            "write_file",
            json!({"path": "out/pre.js", "content": "evil()\n", "expectedSha256": sha256("base\n"), "reason": "r"}),
        ),
        ("delete_file", json!({"path": "out/deep/gone.js", "expectedSha256": sha256("gone\n"), "reason": "r"})),
        (
            "move_file",
            json!({"from": "out/moved.js", "to": "out/to.js", "expectedSha256": sha256("moved\n"), "reason": "r"}),
        ),
    ] {
        let asked = run.call(tool, input).await.refused("APPROVAL_REQUIRED");
        assert!(!run.ok("diff_workspace", json!({})).await["diff"].as_str().unwrap().contains("noise"));
        let path = format!("/v1/approvals/{}/approve", asked["approvalId"].as_str().unwrap());
        run.operator.post(&path, json!({"decidedBy": "ada"})).await.ok();
    }
    assert_ignored_are_shown(&run, "approved").await;
    run.call("read_file", json!({"path": "out/noise.js"})).await.refused("POLICY_DENIED");
}

#[rstest]
#[tokio::test]
async fn attributes_hide_no_lines(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    let (run, folder) = run_with_changes(&server, json!({"requireApprovalIf": []})).await;
    let marks = "* binary\n*.js -diff linguist-generated export-ignore\n*.txt -text -diff\n";
    for path in [".gitattributes", "src/.gitattributes"] {
        run.create(path, marks).await;
    }
    assert_shown(&run, &folder, &[EVIL, DEEP, "a.txt", ".gitattributes"], "attributes").await;
    let diff = run.ok("diff_workspace", json!({})).await;
    assert!(diff["diff"].as_str().unwrap().contains("+evil()\n"), "{diff:#}");
    assert!(diff["files"].as_array().unwrap().iter().all(|file| file["binary"] == false), "{diff:#}");
}

#[rstest]
#[tokio::test]
async fn changes_of_ignore_rules_and_attributes_require_approval(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("sub/.gitignore", "*.log\n"), ("a.txt", "a\n")]).await;
    let waits = async |tool: &str, input: Value| {
        let answer = run.call(tool, input).await;
        assert_eq!(answer.status, 202, "{tool}: {}", answer.text());
        assert!(answer.text().contains("touchesSecuritySensitivePath"), "{tool}: {}", answer.text());
    };
    for path in [".gitignore", ".gitattributes", "deep/er/.gitignore", ".GitIgnore", "x/.GITATTRIBUTES"] {
        waits("write_file", json!({"path": path, "content": "*\n", "reason": "r"})).await;
    }
    let old = sha256("*.log\n");
    let replaced = json!({"path": "sub/.gitignore", "content": "*\n", "expectedSha256": old, "reason": "r"});
    waits("write_file", replaced).await;
    waits("delete_file", json!({"path": "sub/.gitignore", "expectedSha256": old, "reason": "r"})).await;
    let moved = json!({"from": "a.txt", "to": "sub2/.gitignore", "expectedSha256": sha256("a\n"), "reason": "r"});
    waits("move_file", moved).await;
    let patch = "--- a/sub/.gitignore\n+++ b/sub/.gitignore\n@@ -1 +1 @@\n-*.log\n+*\n";
    waits("apply_patch", json!({"patch": patch, "reason": "r"})).await;
}
