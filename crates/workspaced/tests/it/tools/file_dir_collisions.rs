//! Files and folders with the same name: both cannot exist, and each can replace the other.

use std::path::Path;
use std::process::Stdio;

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Run, Server, Setup, Snapshot, assert_chain, assert_consistent, recover, sha256};

fn creation(path: &str) -> String {
    format!("diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+a\n")
}

/// Returns a patch that deletes a file with content `a`.
fn deletion(path: &str) -> String {
    let git = format!("diff --git a/{path} b/{path}\ndeleted file mode 100644\n");
    git + &format!("--- a/{path}\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n")
}

/// Returns a patch that renames or copies a file.
fn transfer(how: &str, from: &str, to: &str) -> String {
    format!("diff --git a/{from} b/{to}\nsimilarity index 100%\n{how} from {from}\n{how} to {to}\n")
}

fn write(path: &str) -> Value {
    json!({"path": path, "content": "a\n", "reason": "r"})
}

fn drop(path: &str) -> Value {
    json!({"path": path, "expectedSha256": sha256("a\n"), "reason": "r"})
}

fn call(tool: &str, input: &Value) -> Value {
    json!({"tool": tool, "input": input})
}

fn names(run: &Run) -> Vec<String> {
    run.files().into_keys().collect()
}

/// Asserts that the call and its dry run are refused with `code` and change nothing. Returns the refusal.
async fn assert_refused(run: &Run, tool: &str, mut input: Value, code: &str) -> Value {
    let before = run.snapshot();
    input["dryRun"] = json!(true);
    let tried = run.call(tool, input.clone()).await.refused(code);
    input["dryRun"] = json!(false);
    let refused = run.call(tool, input.clone()).await.refused(code);
    assert_eq!((&tried["message"], &tried["path"]), (&refused["message"], &refused["path"]), "{input:#}");
    assert_eq!(run.snapshot(), before, "{input:#}");
    refused
}

#[rstest]
#[tokio::test]
async fn no_patch_creates_a_file_and_a_file_under_it(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a", "a\n"), ("d/x", "a\n"), ("q.x", "a\n")]).await;
    let plain = |path: &str| format!("--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+a\n");
    let edit_x = "diff --git a/d/x b/d/x\n--- a/d/x\n+++ b/d/x\n@@ -1 +1 @@\n-a\n+b\n".to_owned();
    for (sections, path, code) in [
        ([creation("q"), creation("q/r")], "q/r", "PATCH_INVALID"),
        ([plain("q"), plain("q/r")], "q/r", "PATCH_INVALID"),
        ([creation("q"), creation("q/r/s/t")], "q/r/s/t", "PATCH_INVALID"),
        ([transfer("rename", "a", "q"), creation("q/r")], "q/r", "PATCH_INVALID"),
        ([transfer("copy", "a", "q"), creation("q/r/s")], "q/r/s", "PATCH_INVALID"),
        ([transfer("rename", "a", "q"), transfer("copy", "d/x", "q/x")], "q/x", "PATCH_INVALID"),
        // An invalid patch is reported before conflicts and denials.
        ([creation(".env"), creation(".env/x")], ".env/x", "PATCH_INVALID"),
        ([edit_x, creation("d")], "d/x", "PATCH_INVALID"),
        // The source of a copy remains.
        ([transfer("copy", "d/x", "d"), creation("n")], "d", "NOT_A_FILE"),
        ([transfer("copy", "a", "a/x"), creation("n")], "a/x", "NOT_A_DIRECTORY"),
    ] {
        let (one, other) = (sections.concat(), sections.into_iter().rev().collect::<String>());
        for patch in [one, other] {
            let refused = assert_refused(&run, "apply_patch", json!({"patch": patch, "reason": "r"}), code).await;
            assert_eq!(refused["path"], path, "{patch}");
        }
    }
    let before = run.snapshot();
    let patch = json!({"patch": creation("q") + &creation("q/r"), "reason": "r"});
    let output = run.batch(json!([call("apply_patch", &patch)])).await.ok();
    assert_eq!(output["results"][0]["answer"]["code"], "PATCH_INVALID", "{output:#}");
    assert_eq!(run.snapshot(), before);
    run.create("later", "after the collision\n").await;
    assert_chain(&run.id, &run.audit().await);
}

#[rstest]
#[tokio::test]
async fn no_revert_restores_a_file_and_a_file_under_it(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[]).await;
    let passing = json!([call("write_file", &write("q/r")), call("delete_file", &drop("q/r"))]);
    let output = run.batch(passing).await.ok();
    let first = output["results"][1]["answer"]["toolCallId"].clone();
    run.ok("write_file", write("q")).await;
    let second = run.ok("delete_file", drop("q")).await["toolCallId"].clone();
    let both = json!({"toolCallIds": [first, second], "reason": "r"});
    let refused = assert_refused(&run, "revert_calls", both.clone(), "REVERT_CONFLICT").await;
    assert_eq!(refused["path"], "q/r");
    let output = run.batch(json!([call("write_file", &write("n")), call("revert_calls", &both)])).await.ok();
    assert_eq!(output["results"][1]["answer"]["code"], "REVERT_CONFLICT", "{output:#}");
    assert!(run.snapshot().is_empty());
    // One of the two can be restored. The other then cannot.
    run.ok("revert_calls", json!({"toolCallIds": [second], "reason": "r"})).await;
    assert_refused(&run, "revert_calls", json!({"toolCallIds": [first], "reason": "r"}), "NOT_A_DIRECTORY").await;
    assert_eq!(names(&run), ["q"]);
    assert_consistent(&run, &Snapshot::new()).await;
}

#[rstest]
#[tokio::test]
async fn a_file_replaces_a_folder_without_files(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("m", "a\n")]).await;
    let start = run.snapshot();
    let put = async |path: &str| {
        let put = run.agent.request(Method::PUT, &format!("/v1/runs/{}/files/{path}", run.id)).body("a\n");
        run.agent.send(put.header("if-none-match", "*").header("x-reason", "r")).await.is(201)
    };
    for how in ["write_file", "apply_patch", "move_file", "PUT"] {
        run.ok("write_file", write("q/r/s")).await;
        run.ok("write_file", write("q/t")).await;
        assert_refused(&run, "write_file", write("q"), "NOT_A_FILE").await;
        run.ok("delete_file", drop("q/r/s")).await;
        assert_refused(&run, "write_file", write("q"), "NOT_A_FILE").await;
        run.ok("delete_file", drop("q/t")).await;
        assert!(!run.repo.join("q").exists(), "an emptied folder remains");
        // An external empty folder is still a folder for calls that need a file.
        std::fs::create_dir_all(run.repo.join("q/r")).unwrap();
        assert_refused(&run, "delete_file", drop("q"), "NOT_A_FILE").await;
        let edit = json!({"path": "q/r", "oldString": "a", "newString": "b", "reason": "r"});
        assert_refused(&run, "edit_file", edit, "NOT_A_FILE").await;
        let mut replace = write("q");
        replace["mode"] = json!("REPLACE_EXISTING");
        assert_refused(&run, "write_file", replace, "NOT_A_FILE").await;
        let input = match how {
            "write_file" => write("q"),
            "apply_patch" => json!({"patch": creation("q"), "reason": "r"}),
            _ => json!({"from": "m", "to": "q", "expectedSha256": sha256("a\n"), "reason": "r"}),
        };
        if how == "PUT" {
            put("q").await;
        } else {
            let before = run.snapshot();
            let mut dry = input.clone();
            dry["dryRun"] = json!(true);
            run.ok(how, dry).await;
            assert_eq!(run.snapshot(), before, "{how}");
            run.ok(how, input).await;
        }
        assert_eq!(run.on_disk("q"), "a\n", "{how}");
        run.ok("delete_file", drop("q")).await;
        if how == "move_file" {
            run.ok("write_file", write("m")).await;
        }
    }
    assert_consistent(&run, &start).await;
}

#[rstest]
#[tokio::test]
async fn a_folder_with_any_entry_is_not_replaced(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[(".gitignore", "*.log\n")]).await;
    run.put("ignored/deep/x.log", "x");
    run.put("secret/.env", "A=1\n");
    for folder in ["git/.git", "link", "pipe", "empty/er"] {
        std::fs::create_dir_all(run.repo.join(folder)).unwrap();
    }
    run.link("link/out", "/nowhere");
    run.link("to-empty", "empty");
    rustix::fs::mkfifoat(rustix::fs::CWD, run.repo.join("pipe/p"), rustix::fs::Mode::RUSR).unwrap();
    for folder in ["ignored", "ignored/deep", "secret", "git", "link", "pipe", "."] {
        assert_refused(&run, "write_file", write(folder), "NOT_A_FILE").await;
    }
    assert_refused(&run, "write_file", write("to-empty"), "PATH_REJECTED").await;
    assert_refused(&run, "write_file", write("to-empty/er"), "PATH_REJECTED").await;
    run.ok("write_file", write("empty")).await;
    assert_eq!(run.on_disk("to-empty"), "a\n");
}

#[rstest]
#[tokio::test]
async fn a_file_and_a_folder_are_swapped_in_one_patch(#[values(Backend::Sqlite)] backend: Backend) {
    let files_before = [("q", "a\n"), ("d/x", "a\n"), ("d/e/y", "b\n")];
    let (_server, run) = Run::shared(backend, &files_before).await;
    let start = run.present_files().await;
    let gone_y =
        "diff --git a/d/e/y b/d/e/y\ndeleted file mode 100644\n--- a/d/e/y\n+++ /dev/null\n@@ -1 +0,0 @@\n-b\n"
            .to_owned();
    let table = [
        (deletion("q") + &creation("q/r"), vec!["d/e/y", "d/x", "q/r"]),
        (creation("q/r/s") + &deletion("q"), vec!["d/e/y", "d/x", "q/r/s"]),
        (transfer("rename", "q", "q/r"), vec!["d/e/y", "d/x", "q/r"]),
        (deletion("d/x") + &gone_y + &creation("d"), vec!["d", "q"]),
        (gone_y + &transfer("rename", "d/x", "d"), vec!["d", "q"]),
        (transfer("rename", "d/x", "q/x") + &transfer("rename", "q", "d/x"), vec!["d/e/y", "d/x", "q/x"]),
    ];
    for (patch, want) in table {
        let dry = run.ok("apply_patch", json!({"patch": patch, "reason": "r", "dryRun": true})).await;
        assert_eq!(run.present_files().await, start);
        let done = run.patch(&patch).await.ok();
        assert_eq!(run.present_files().await.into_keys().collect::<Vec<_>>(), want, "{patch}");
        assert_eq!(done["newWorkspaceDiffSha256"], run.diff_sha256().await, "{patch}");
        assert_eq!(dry["newWorkspaceDiffSha256"], done["newWorkspaceDiffSha256"]);
        let after = run.present_files().await;
        let back = run.ok("revert_calls", json!({"toolCallIds": [done["toolCallId"]], "reason": "r"})).await;
        assert_eq!(run.present_files().await, start, "{patch}");
        assert_eq!(run.diff_sha256().await, sha256(""));
        // The revert can be reverted, and its artifact is a patch with the same effect.
        run.ok("revert_calls", json!({"toolCallIds": [back["toolCallId"]], "reason": "r"})).await;
        assert_eq!(run.present_files().await, after, "{patch}");
        let artifact = run.artifact(back["artifactUris"][0].as_str().unwrap()).await;
        run.patch(&artifact).await.ok();
        assert_eq!(run.present_files().await, start, "{artifact}");
    }
    // A folder with another file is not replaced.
    assert_refused(
        &run,
        "apply_patch",
        json!({"patch": deletion("d/x") + &creation("d"), "reason": "r"}),
        "NOT_A_FILE",
    )
    .await;
    let up = json!({"from": "q", "to": "q/q", "expectedSha256": sha256("a\n"), "reason": "r"});
    run.ok("move_file", up).await;
    let down = json!({"from": "q/q", "to": "q", "expectedSha256": sha256("a\n"), "reason": "r"});
    run.ok("move_file", down).await;
    assert_eq!(run.present_files().await, start);
    assert_consistent(&run, &start).await;
}

#[rstest]
#[tokio::test]
async fn a_batch_swaps_files_and_folders_in_call_order(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("q", "a\n"), ("d/x", "a\n")]).await;
    let start = run.present_files().await;
    let swap = json!([
        call("delete_file", &drop("q")),
        call("write_file", &write("q/r")),
        call("delete_file", &drop("d/x")),
        call("write_file", &write("d")),
        call("move_file", &json!({"from": "q/r", "to": "q/r/s", "expectedSha256": sha256("a\n"), "reason": "r"})),
    ]);
    let output = run.batch(swap).await.ok();
    assert_eq!(output["ok"], true, "{output:#}");
    assert_eq!(run.present_files().await.into_keys().collect::<Vec<_>>(), ["d", "q/r/s"]);
    for (calls, code) in [
        (json!([call("write_file", &write("n")), call("write_file", &write("n/m"))]), "NOT_A_DIRECTORY"),
        (json!([call("write_file", &write("n/m")), call("write_file", &write("n"))]), "NOT_A_FILE"),
        (json!([call("delete_file", &drop("d")), call("write_file", &write("q"))]), "NOT_A_FILE"),
    ] {
        let output = run.batch(calls).await.ok();
        assert_eq!(output["results"][1]["answer"]["code"], code, "{output:#}");
    }
    run.ok("revert_calls", json!({"toSeq": 0, "reason": "r"})).await;
    assert_eq!(run.present_files().await, start);
    assert_consistent(&run, &start).await;
}

#[rstest]
#[tokio::test]
async fn a_revert_restores_the_earlier_file_or_folder(#[values(Backend::Sqlite)] backend: Backend) {
    for (first, then) in [("q", "q/r"), ("q/r", "q"), ("q/r/s", "q"), ("q", "q/r/s")] {
        let (_server, run) = Run::shared(backend, &[]).await;
        run.ok("write_file", write(first)).await;
        run.ok("delete_file", drop(first)).await;
        let input = json!({"path": then, "content": "other\n", "reason": "r"});
        run.ok("write_file", input).await;
        run.ok("revert_calls", json!({"toSeq": 2, "reason": "r"})).await;
        assert_eq!((names(&run), run.on_disk(first)), (vec![first.to_owned()], "a\n".to_owned()));
        run.ok("revert_calls", json!({"toSeq": 4, "reason": "r"})).await;
        assert_eq!((names(&run), run.on_disk(then)), (vec![then.to_owned()], "other\n".to_owned()));
        assert_consistent(&run, &Snapshot::new()).await;
    }
}

#[rstest]
#[tokio::test]
async fn a_kill_after_a_swap_of_file_and_folder_is_recovered(
    #[values(Backend::Sqlite)] backend: Backend,
    #[values("transaction.committed", "apply.step", "transaction.applied")] failpoint: &str,
) {
    let (mut server, armed) = Server::start_armed(Setup::new(backend)).await;
    for (first, then) in [("q", "q/r"), ("q/r", "q")] {
        let run = server.run(json!({})).await;
        let start = run.snapshot();
        server.until_journal_is_empty().await;
        std::fs::write(&armed, failpoint).unwrap();
        // The journal contains a file and later a file under the same path.
        let calls = json!([
            call("write_file", &write(first)),
            call("delete_file", &drop(first)),
            call("write_file", &write(then)),
        ]);
        let path = format!("/v1/runs/{}/batch", run.id);
        let request = run.agent.request(Method::POST, &path).json(&json!({"atomic": true, "calls": calls}));
        assert!(run.agent.try_send(request).await.is_err(), "the server survived {failpoint}");
        server.wait();
        std::fs::remove_file(&armed).unwrap();
        let (run, records) = recover(&mut server, &run, &start).await;
        // The creation of the run, the file, and two calls of the batch.
        assert_eq!((records.len(), names(&run)), (4, vec![then.to_owned()]));
        run.create("later", "after the collision\n").await;
    }
}

const PENDING: &str =
    "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-a\n+A\n--- /dev/null\n+++ b/new/b.txt\n@@ -0,0 +1 @@\n+b\n";

fn repair(server: &Server, run: &Run, accept: &str) -> (Option<i32>, String) {
    let args = ["--run", &run.id, "--accept", accept, "--yes"];
    let output = server.command("repair").args(args).stdin(Stdio::null()).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns a server whose run was changed by `obstruct` while a change was pending.
async fn obstructed(backend: Backend, obstruct: impl Fn(&Path)) -> (Server, Run) {
    let (mut server, run) = with_pending_patch(backend, PENDING).await;
    obstruct(&run.repo);
    server.restart();
    let run = server.reconnect(&run);
    (server, run)
}

/// Returns a server that was killed after `patch` was journalled and before it was applied.
async fn with_pending_patch(backend: Backend, patch: &str) -> (Server, Run) {
    let (mut server, armed) = Server::start_armed(Setup::new(backend)).await;
    let run = server.run_with_files(&[("a.txt", "a\n"), ("c.txt", "c\n")], json!({})).await;
    server.until_journal_is_empty().await;
    std::fs::write(&armed, "transaction.committed").unwrap();
    let path = format!("/v1/runs/{}/tools/apply_patch", run.id);
    let pending = run.agent.request(Method::POST, &path).json(&json!({"patch": patch, "reason": "r"}));
    assert!(run.agent.try_send(pending).await.is_err(), "the server survived the failpoint");
    server.wait();
    std::fs::remove_file(&armed).unwrap();
    (server, run)
}

/// Asserts that the run accepts mutations and equals its ledger. `is_tampered` if the test has changed the chain.
async fn assert_repaired(server: &mut Server, run: &Run, is_tampered: bool) {
    server.restart();
    let run = server.reconnect(run);
    run.replace("c.txt", "C\n", &sha256("c\n")).await.ok();
    assert!(server.stop().success());
    let to = server.home.join("rebuilt").display().to_string();
    let replayed = server.command("replay").args(["--run", &run.id, "--to", &to]).output().unwrap();
    let output = String::from_utf8_lossy(&replayed.stdout);
    assert_eq!(replayed.status.code(), Some(i32::from(is_tampered)), "{output}");
    assert!(output.contains("every hash matches the ledger") && output.contains("the workspace is equal"), "{output}");
}

#[rstest]
#[tokio::test]
async fn an_empty_folder_instead_of_a_file_is_repaired(
    #[values(Backend::Sqlite)] backend: Backend,
    #[values("ledger", "tree")] accept: &str,
) {
    let (mut server, run) = obstructed(backend, |repo| {
        std::fs::create_dir_all(repo.join("a.txt/deep/er")).unwrap();
        std::fs::create_dir_all(repo.join("new/b.txt")).unwrap();
    })
    .await;
    run.replace("c.txt", "C\n", &sha256("c\n")).await.refused("RUN_NEEDS_REPAIR");
    assert!(server.stop().success());
    let (code, output) = repair(&server, &run, accept);
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("a.txt: expected ") && output.contains("found a folder"), "{output}");
    if accept == "ledger" {
        assert_eq!((run.on_disk("a.txt").as_str(), run.on_disk("new/b.txt").as_str()), ("A\n", "b\n"));
    } else {
        assert_eq!(names(&run), ["c.txt"]);
    }
    assert_repaired(&mut server, &run, false).await;
}

#[rstest]
#[tokio::test]
async fn a_folder_with_files_instead_of_a_file_is_repaired(
    #[values(Backend::Sqlite)] backend: Backend,
    #[values("ledger", "tree")] accept: &str,
) {
    let (mut server, run) = obstructed(backend, |repo| crate::harness::put(repo, "new/b.txt/x.txt", "x\n")).await;
    run.replace("c.txt", "C\n", &sha256("c\n")).await.refused("RUN_NEEDS_REPAIR");
    assert!(server.stop().success());
    if accept == "ledger" {
        let (code, output) = repair(&server, &run, accept);
        assert_eq!(code, Some(1), "{output}");
        assert!(output.contains("blocks the path of a file"), "{output}");
        assert_eq!(run.on_disk("new/b.txt/x.txt"), "x\n", "repair removed an unknown file");
        std::fs::remove_file(run.repo.join("new/b.txt/x.txt")).unwrap();
    }
    let (code, output) = repair(&server, &run, accept);
    assert_eq!(code, Some(0), "{output}");
    let want: &[&str] =
        if accept == "ledger" { &["a.txt", "c.txt", "new/b.txt"] } else { &["a.txt", "c.txt", "new/b.txt/x.txt"] };
    assert_eq!(names(&run), want);
    assert_repaired(&mut server, &run, false).await;
}

#[rstest]
#[tokio::test]
async fn an_empty_folder_does_not_block_a_pending_change(#[values(Backend::Sqlite)] backend: Backend) {
    let (mut server, run) =
        obstructed(backend, |repo| std::fs::create_dir_all(repo.join("new/b.txt/deep")).unwrap()).await;
    assert_eq!((run.on_disk("a.txt").as_str(), run.on_disk("new/b.txt").as_str()), ("A\n", "b\n"));
    run.create("later", "after the collision\n").await;
    assert!(server.stop().success());
}

#[rstest]
#[tokio::test]
async fn a_ledger_with_a_file_and_a_file_under_it_is_repaired(#[values(Backend::Sqlite)] backend: Backend) {
    let (mut server, run) = with_pending_patch(backend, &(creation("q") + &creation("q-r"))).await;
    // An earlier version recorded such a change and could not apply it.
    server.database.drop_triggers().await;
    for sql in [
        "update step set path = 'q/r' where path = 'q-r'",
        "update audit_record set body = replace(body, 'q-r', 'q/r')",
        "update newest_version set path = 'q/r' where path = 'q-r'",
    ] {
        assert!(server.database.tamper(sql).await.unwrap() > 0, "{sql}");
    }
    std::fs::create_dir(run.repo.join("q")).unwrap();
    server.restart();
    let refused = server.reconnect(&run).call("write_file", write("n")).await;
    refused.refused("RUN_NEEDS_REPAIR");
    assert!(server.stop().success());
    let before = run.snapshot();
    let (code, output) = repair(&server, &run, "ledger");
    assert_eq!(code, Some(1), "{output}");
    assert!(output.contains("both cannot exist"), "{output}");
    assert_eq!(run.snapshot(), before);
    let (code, output) = repair(&server, &run, "tree");
    assert_eq!(code, Some(0), "{output}");
    assert_eq!(run.snapshot(), before);
    assert_repaired(&mut server, &run, true).await;
}
