//! `workspaced replay` rebuilds a run from its base and its ledger. `workspaced repair` resolves a run whose files changed
//! externally while a change was pending.

use std::path::Path;
use std::process::{Output, Stdio};

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Run, Server, assert_chain, exhaustive, files_in, sha256};

pub(crate) fn offline(server: &Server, name: &str, args: &[&str]) -> Output {
    server.command(name).args(args).stdin(Stdio::null()).output().unwrap()
}

pub(crate) fn output_of(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[track_caller]
pub(crate) fn assert_ends(output: &Output, code: i32, says: &[&str]) {
    let text = output_of(output);
    assert_eq!(output.status.code(), Some(code), "{text}");
    for part in says {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

pub(crate) async fn put(run: &Run, path: &str, old: Option<&[u8]>, bytes: &[u8]) -> Value {
    let request = run.agent.request(Method::PUT, &format!("/v1/runs/{}/files/{path}", run.id)).header("x-reason", "r");
    let request = match old {
        Some(old) => request.header("if-match", format!("\"{}\"", sha256(old))),
        None => request.header("if-none-match", "*"),
    };
    run.agent.send(request.body(bytes.to_vec())).await.is(if old.is_some() { 200 } else { 201 })
}

/// Creates a run with every kind of mutation.
async fn busy_run(server: &Server) -> Run {
    use std::os::unix::fs::PermissionsExt as _;

    let files = [
        ("a.txt", "a\n"),
        ("dir/b.txt", "b\r\n"),
        ("run.sh", "#!/bin/sh\n"),
        ("pic.bin", "\0base"),
        (".env", "SECRET=1\n"),
        (".gitignore", "*.log\n"),
        ("empty", ""),
    ];
    let folder = server.template(&files);
    std::fs::set_permissions(folder.join("run.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::os::unix::fs::symlink("dir/b.txt", folder.join("link")).unwrap();
    let source = json!({"type": "directory", "path": folder});
    let run = server.run(json!({"source": source, "policy": {"allowModeChange": true}})).await;
    run.replace("a.txt", "A\n", &sha256("a\n")).await.ok();
    let made = run.create("new/deep/n.txt", "n\n").await;
    put(&run, "pic.bin", Some(b"\0base"), b"\0second\xff").await;
    put(&run, "new/raw.bin", None, &[7, 0, 9]).await;
    run.patch("diff --git a/run.sh b/bin2/run\nold mode 100755\nnew mode 100644\nsimilarity index 100%\nrename from run.sh\nrename to bin2/run\n")
        .await
        .ok();
    run.patch(
        "diff --git a/tool.sh b/tool.sh\nnew file mode 100755\n--- /dev/null\n+++ b/tool.sh\n@@ -0,0 +1 @@\n+x\n",
    )
    .await
    .ok();
    let moved = json!({"from": "dir/b.txt", "to": "dir/c.txt", "expectedSha256": sha256("b\r\n"), "reason": "r"});
    run.ok("move_file", moved).await;
    run.ok("delete_file", json!({"path": "empty", "expectedSha256": sha256(""), "reason": "r"})).await;
    run.ok("revert_calls", json!({"toolCallIds": [made["toolCallId"]], "reason": "r"})).await;
    let dry = json!({"path": "dry.txt", "content": "d\n", "reason": "r", "dryRun": true});
    run.ok("write_file", dry).await;
    run.put("x.log", "ignored, not written by the run\n");
    run
}

#[rstest]
#[tokio::test]
async fn a_run_is_rebuilt_from_its_base_and_its_ledger(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut server = Server::start(backend).await;
    let run = busy_run(&server).await;
    let (first, second) = (server.home.join("first"), server.home.join("second"));
    let args = |to: &Path| ["--run".to_owned(), run.id.clone(), "--to".to_owned(), to.display().to_string()];
    let replay = |server: &Server, to: &Path| {
        let args = args(to);
        offline(server, "replay", &args.iter().map(String::as_str).collect::<Vec<_>>())
    };
    assert_ends(&replay(&server, &first), 2, &["another workspaced is using this folder"]);
    assert!(!first.exists());
    assert!(server.stop().success());
    let equal = replay(&server, &first);
    assert_ends(&equal, 0, &["every hash matches the ledger", "the workspace is equal"]);
    let mut tree = run.files();
    assert_eq!(tree.remove("x.log").map(|_| ()), Some(()));
    assert_eq!(files_in(&first), tree);
    assert_eq!(tree["link"], "-> dir/b.txt", "a link is restored without its target");
    assert!(tree["tool.sh"].starts_with("755 ") && tree["bin2/run"].starts_with("644 "), "{tree:?}");
    assert_ends(&replay(&server, &first), 2, &["--to", "not empty"]);

    run.put("a.txt", "from outside\n");
    std::fs::remove_file(run.repo.join("tool.sh")).unwrap();
    run.put("extra.txt", "extra\n");
    let differs = replay(&server, &second);
    let expected = format!("a.txt: expected {}, found {}", sha256("A\n"), sha256("from outside\n"));
    let lost = format!("tool.sh: expected {} (executable), found nothing", sha256("x\n"));
    let extra = format!("extra.txt: expected nothing, found {}", sha256("extra\n"));
    assert_ends(&differs, 1, &["every hash matches", "DIFFERS at 3 paths", &expected, &lost, &extra]);
    assert!(!output_of(&differs).contains("x.log"), "an ignored file was reported");
    assert_eq!(files_in(&second), tree, "replay used the tree, not the ledger");
    assert_ends(&offline(&server, "replay", &["--run", "none-such", "--to", "x"]), 2, &["there is no such run"]);
    assert_ends(
        &offline(&server, "repair", &["--run", &run.id]),
        1,
        &["was changed from outside", "at 3 paths", "--accept"],
    );
}

#[rstest]
#[tokio::test]
async fn content_that_was_too_large_to_store_is_rebuilt_from_the_workspace(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = Server::start(backend).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let large = vec![7; (1 << 20) + 1];
    put(&run, "large.bin", None, &large).await;
    assert!(server.stop().success());
    let to = server.home.join("rebuilt");
    let replay = |to: &Path| offline(&server, "replay", &["--run", &run.id, "--to", &to.display().to_string()]);
    let says = ["rebuilt 2 files", "taken from the workspace, where it has the ledger's hash: large.bin", "is equal"];
    assert_ends(&replay(&to), 0, &says);
    assert_eq!(std::fs::read(to.join("large.bin")).unwrap(), large);
    run.put("large.bin", vec![8; (1 << 20) + 1]);
    let says = ["rebuilt 1 files", "too large to be stored: large.bin", "DIFFERS at 1 paths"];
    assert_ends(&replay(&server.home.join("again")), 1, &says);

    // Accepting the tree keeps the content where a replay finds it.
    let accept = ["--run", &run.id, "--accept", "tree", "--yes"];
    assert_ends(&offline(&server, "repair", &accept), 0, &["kept in the workspace alone: large.bin", "recorded as"]);
    assert_ends(&replay(&server.home.join("third")), 0, &["rebuilt 2 files", "is equal"]);
}

const PATCH: &str =
    "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-a\n+A\n--- /dev/null\n+++ b/new/b.txt\n@@ -0,0 +1 @@\n+b\n";

/// Returns a server, a run that was changed externally while a change was pending, and another run.
pub(crate) async fn broken_run(backend: Backend) -> (Server, Run, Run) {
    let mut server = Server::start(backend).await;
    let run = server.run_with_files(&[("a.txt", "a\n"), ("c.txt", "c\n")], json!({})).await;
    let other = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    server.kill_before_apply(&run, "apply_patch", &json!({"patch": PATCH, "reason": "pending"})).await;
    run.put("a.txt", "from outside\n");
    server.restart();
    let (run, other) = (server.reconnect(&run), server.reconnect(&other));
    (server, run, other)
}

#[rstest]
#[tokio::test]
async fn an_operator_repairs_a_run(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
    #[values("ledger", "tree")] accept: &str,
) {
    let (mut server, run, other) = broken_run(backend).await;
    let write = json!({"path": "c.txt", "content": "C\n", "expectedSha256": sha256("c\n"), "reason": "r"});
    for _ in 0..2 {
        run.call("write_file", write.clone()).await.refused("RUN_NEEDS_REPAIR");
    }
    assert_eq!(run.ok("read_file", json!({"path": "c.txt"})).await["sha256"], sha256("c\n"));
    other.replace("a.txt", "other\n", &sha256("a\n")).await.ok();
    assert!(server.stop().success());

    let tree = run.snapshot();
    let shown = offline(&server, "repair", &["--run", &run.id]);
    let changed = format!("a.txt: expected {}, found {}", sha256("A\n"), sha256("from outside\n"));
    let pending = format!("new/b.txt: expected {}, found nothing", sha256("b\n"));
    assert_ends(&shown, 1, &["at 2 paths", &changed, &pending, "--accept"]);
    assert_ends(&offline(&server, "repair", &["--run", &run.id, "--accept", accept]), 1, &["nothing was changed"]);
    assert_eq!(run.snapshot(), tree, "repair changed files without confirmation");
    let why = ["--reason", "reviewed"];
    let done = offline(&server, "repair", &["--run", &run.id, "--accept", accept, "--yes", why[0], why[1]]);
    assert_ends(&done, 0, &["recorded as", "accepts mutations again"]);
    let repaired = run.snapshot();
    if accept == "ledger" {
        assert_eq!((run.on_disk("a.txt").as_str(), run.on_disk("new/b.txt").as_str()), ("A\n", "b\n"));
    } else {
        assert_eq!(repaired, tree, "repair changed the files");
    }

    server.restart();
    let run = server.reconnect(&run);
    run.call("write_file", write).await.ok();
    assert_eq!(run.verify().await["intact"], true);
    let records = run.audit().await;
    assert_chain(&run.id, &records);
    let repair = records.iter().find(|record| record["tool"] == "run.repair").unwrap();
    assert_eq!((&repair["actor"], &repair["outcome"]), (&json!("operator:repair"), &json!("ok")), "{repair:#}");
    assert_eq!((&repair["reason"], &repair["input"]), (&json!("reviewed"), &json!({"accept": accept})), "{repair:#}");
    assert_eq!(repair["mutates"], accept == "tree", "{repair:#}");
    let (a, b) = (sha256("A\n"), sha256("from outside\n"));
    let hashes = if accept == "ledger" { (&b, &a) } else { (&a, &b) };
    assert_eq!(
        (&repair["files"][0]["oldSha256"], &repair["files"][0]["newSha256"]),
        (&json!(hashes.0), &json!(hashes.1))
    );
    let before = json!({"path": "a.txt", "atSeq": repair["seq"]});
    assert_eq!(run.ok("read_file", before).await["sha256"], *hashes.1);
    let undo = json!({"toolCallIds": [repair["toolCallId"]], "reason": "r"});
    if accept == "ledger" {
        assert_eq!(repair["reasons"], json!(["repair:acceptLedger"]));
        assert_eq!(repair["files"][1], json!({"path": "new/b.txt", "kind": "TEXT_DOC", "newSha256": sha256("b\n")}));
        let none = json!([]);
        assert_eq!(
            (&repair["pathsWritten"], &repair["artifactUris"]),
            (&none, &none),
            "repair recorded changes that the ledger already contains"
        );
        run.call("revert_calls", undo).await.refused("NOT_FOUND");
        // The restored change can be reverted by its original call.
        run.ok("revert_calls", json!({"toolCallIds": [records[1]["toolCallId"]], "reason": "r"})).await;
        assert_eq!(run.on_disk("a.txt"), "a\n");
        assert!(!run.repo.join("new/b.txt").exists());
    } else {
        assert_eq!(repair["pathsWritten"], json!(["a.txt", "new/b.txt"]));
        let diff = run.artifact(repair["artifactUris"][0].as_str().unwrap()).await;
        assert!(diff.contains("\n-A\n+from outside\n") && diff.contains("deleted file mode 100644\n"), "{diff}");
        // The repair can be reverted like any other call.
        run.ok("revert_calls", undo).await;
        assert_eq!((run.on_disk("a.txt").as_str(), run.on_disk("new/b.txt").as_str()), ("A\n", "b\n"));
    }
    assert!(server.stop().success());
    let to = server.home.join("rebuilt").display().to_string();
    assert_ends(&offline(&server, "replay", &["--run", &run.id, "--to", &to]), 0, &["the workspace is equal"]);
    let verified = server.verify(&["--run", &run.id]);
    assert_eq!(verified.status.code(), Some(0), "{}", output_of(&verified));
    assert_ends(&offline(&server, "repair", &["--run", &run.id]), 0, &["needs no repair"]);
}

#[rstest]
#[tokio::test]
async fn repair_unblocks_a_run_without_differences(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
    #[values("ledger", "tree")] accept: &str,
) {
    let (mut server, run, _) = broken_run(backend).await;
    assert!(server.stop().success());
    run.put("a.txt", "A\n");
    run.put("new/b.txt", "b\n");
    let done = offline(&server, "repair", &["--run", &run.id, "--accept", accept, "--yes"]);
    assert_ends(&done, 0, &["at 0 paths", "accepts mutations again"]);
    server.restart();
    let run = server.reconnect(&run);
    let repair = run.last_record().await;
    assert_eq!((&repair["tool"], &repair["files"]), (&json!("run.repair"), &json!([])), "{repair:#}");
    assert!(repair["reason"].as_str().unwrap().contains("from outside"), "{repair:#}");
    run.replace("c.txt", "C\n", &sha256("c\n")).await.ok();
}
