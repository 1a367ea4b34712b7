//! Moves and deletions of folders and of binary files, and `revert_calls` with `last`.

use std::os::unix::fs::PermissionsExt as _;

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Client, Run, sha256};

const FILES: [(&str, &str); 4] =
    [("old/a.txt", "a\n"), ("old/in/b.txt", "b\nb\n"), ("old/in/c.txt", "c\n"), ("keep.txt", "k\n")];
const PICTURE: [u8; 8] = [0x89, b'P', b'N', b'G', 0, 1, 2, 0xff];

async fn call(run: &Run, tool: &str, mut input: Value) -> crate::harness::Answer {
    input["reason"] = json!("r");
    run.call(tool, input).await
}

async fn with_new_token(run: &Run) -> Run {
    let token = run.operator.post(&format!("/v1/runs/{}/tokens", run.id), json!({})).await.is(201);
    Run { agent: Client::new(&run.agent.base, token["token"].as_str()), ..run.clone() }
}

#[rstest]
#[tokio::test]
async fn binary_files_are_moved_and_deleted(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("keep.txt", "k\n")]).await;
    run.put("icon.png", PICTURE);
    run.put("large.bin", vec![0_u8; 3 << 20]);
    run.accept_tree().await;
    let wrong = json!({"from": "icon.png", "to": "assets/icon.png", "expectedSha256": "c".repeat(64)});
    call(&run, "move_file", wrong).await.refused("WRITE_CONFLICT");
    let start = run.snapshot();
    for (path, to) in [("icon.png", "assets/icon.png"), ("large.bin", "assets/large.bin")] {
        let hash = run.ok("stat_path", json!({"path": path})).await["sha256"].clone();
        let moved = call(&run, "move_file", json!({"from": path, "to": to, "expectedSha256": hash})).await.ok();
        assert_eq!(moved["sha256"], hash);
        assert_eq!(run.ok("stat_path", json!({"path": to})).await["kind"], "BINARY");
        call(&run, "delete_file", json!({"path": to, "expectedSha256": "seen"})).await.ok();
    }
    assert!(!run.repo.join("assets").exists());
    // The large one is too large to be stored.
    call(&run, "revert_calls", json!({"last": 2})).await.refused("REVERT_CONFLICT");
    let records = run.audit().await;
    let changes =
        records.iter().filter(|record| record["outcome"] == "ok" && record["tool"] != "workspace.outside_change");
    let changes: Vec<_> =
        changes.filter(|record| ["move_file", "delete_file"].contains(&record["tool"].as_str().unwrap())).collect();
    let ids: Vec<_> = changes.iter().take(2).map(|record| record["toolCallId"].clone()).collect();
    call(&run, "revert_calls", json!({"toolCallIds": ids})).await.ok();
    assert_eq!(std::fs::read(run.file("icon.png")).unwrap(), PICTURE);
    assert_eq!(run.snapshot().len(), start.len() - 1);

    let policy = json!({"policy": {"kinds": {"BINARY": "DENY"}}});
    let (_server, run) = Run::shared_with(backend, &[("keep.txt", "k\n")], policy).await;
    run.put("icon.png", PICTURE);
    run.accept_tree().await;
    let hash = run.ok("stat_path", json!({"path": "icon.png"})).await["sha256"].clone();
    let denied = call(&run, "delete_file", json!({"path": "icon.png", "expectedSha256": hash})).await;
    assert_eq!(denied.refused("POLICY_DENIED")["reasons"], json!(["kind:BINARY"]));
}

#[rstest]
#[tokio::test]
async fn a_folder_is_moved_or_deleted_as_one_change(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    run.put("old/in/icon.png", PICTURE);
    run.accept_tree().await;
    let start = run.snapshot();
    // Without `recursive`, the hint says how.
    for (tool, input) in [
        ("delete_file", json!({"path": "old", "expectedSha256": "seen"})),
        ("move_file", json!({"from": "old", "to": "new", "expectedSha256": "seen"})),
    ] {
        let refused = call(&run, tool, input).await.refused("NOT_A_FILE");
        assert!(
            refused["hint"].as_str().unwrap().ends_with("with all its files, give recursive: true."),
            "{refused:#}"
        );
    }
    let moved = call(&run, "move_file", json!({"from": "old/", "to": "new/place/", "recursive": true})).await.ok();
    assert_eq!((&moved["summary"], moved.get("sha256")), (&json!("moved old/ to new/place/, 4 files"), None));
    assert_eq!(moved["files"][1]["from"], "old/in/b.txt");
    assert_eq!(run.on_disk("new/place/in/b.txt"), "b\nb\n");
    assert!(!run.has("old").await);
    let path = format!("/v1/runs/{}/tool-calls/{}", run.id, moved["toolCallId"].as_str().unwrap());
    let record = run.operator.get(&path).await.ok();
    assert_eq!(record["files"].as_array().unwrap().len(), 8, "{record:#}");
    let undone = call(&run, "revert_calls", json!({"last": 1})).await.ok();
    assert_eq!(undone["reverted"], json!([moved["toolCallId"]]));
    assert_eq!(run.snapshot(), start);

    let text = run.text("delete_file", json!({"path": "old", "recursive": true, "reason": "r"})).await.text();
    let want =
        "deleted old/ with 4 files\nD old/a.txt +0 -1\nD old/in/b.txt +0 -2\nD old/in/c.txt +0 -1\nD old/in/icon.png\n";
    assert_eq!(text, want);
    call(&run, "revert_calls", json!({})).await.ok();
    assert_eq!(run.snapshot(), start);
    // A file may be named with `recursive` too.
    call(&run, "delete_file", json!({"path": "keep.txt", "recursive": true})).await.refused("WRITE_CONFLICT");
    let hash = sha256("k\n");
    call(&run, "delete_file", json!({"path": "keep.txt", "recursive": true, "expectedSha256": hash})).await.ok();
}

#[rstest]
#[tokio::test]
async fn each_file_of_a_folder_is_judged(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    let delete = |path: &str| json!({"path": path, "recursive": true, "expectedSha256": "seen"});
    let rename = |from: &str, to: &str| json!({"from": from, "to": to, "recursive": true});
    call(&run, "move_file", rename("old", "old/in/deeper")).await.refused("INVALID_REQUEST");
    call(&run, "move_file", rename("old", "a/.git/b")).await.refused("PATH_REJECTED");
    call(&run, "delete_file", delete("none")).await.refused("NOT_FOUND");
    call(&run, "delete_file", json!({"path": "old", "recursive": true, "expectedSha256": sha256("a\n")}))
        .await
        .refused("INVALID_REQUEST");
    let taken = call(&run, "move_file", rename("old/in", "old")).await.refused("ALREADY_EXISTS");
    assert!(taken["hint"].as_str().unwrap().starts_with("Give the whole new path"), "{taken:#}");
    run.create("new/in/x.txt", "x\n").await;
    call(&run, "move_file", rename("old", "new")).await.refused("ALREADY_EXISTS");
    // What the token has seen must not have changed since.
    run.ok("read_file", json!({"path": "old/in/b.txt"})).await;
    let other = with_new_token(&run).await;
    other.replace("old/in/b.txt", "changed\n", &sha256("b\nb\n")).await.ok();
    let conflict = call(&run, "delete_file", delete("old")).await.refused("WRITE_CONFLICT");
    assert_eq!(conflict["path"], "old/in/b.txt");
    run.ok("read_file", json!({"path": "old/in/b.txt"})).await;
    let dry =
        call(&run, "delete_file", json!({"path": "old", "recursive": true, "expectedSha256": "seen", "dryRun": true}));
    assert_eq!(dry.await.ok()["files"].as_array().unwrap().len(), 3);
    // One file that may not be changed refuses all.
    run.put("old/in/.env", "KEY=value\n");
    call(&run, "delete_file", delete("old")).await.refused("POLICY_DENIED_SECRET");
    call(&run, "move_file", rename("old", "b")).await.refused("POLICY_DENIED_SECRET");
    std::fs::remove_file(run.repo.join("old/in/.env")).unwrap();
    run.link("old/in/link", "a.txt");
    call(&run, "delete_file", delete("old")).await.refused("PATH_REJECTED");
    std::fs::remove_file(run.repo.join("old/in/link")).unwrap();
    let batch = json!([{"tool": "delete_file", "input": {"path": "old", "recursive": true, "reason": "r"}},
        {"tool": "delete_file", "input": {"path": "old", "recursive": true, "reason": "r"}}]);
    let path = format!("/v1/runs/{}/batch", run.id);
    let refused = run.agent.post(&path, json!({"calls": batch, "atomic": true})).await.ok();
    assert_eq!(refused["results"][0]["answer"]["code"], "INVALID_REQUEST", "{refused:#}");
    assert_eq!(run.on_disk("old/in/c.txt"), "c\n");
}

#[rstest]
#[tokio::test]
async fn the_files_of_a_folder_are_named_to_those_who_may_list_them(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) =
        Run::shared(backend, &[("d/private-name.txt", "x\n"), ("d/.env", "K=v\n"), ("a.txt", "a\n")]).await;
    let path = format!("/v1/runs/{}/tokens", run.id);
    let token = run.operator.post(&path, json!({"permissions": ["file:delete", "file:move"]})).await.is(201);
    let blind = Run { agent: run.agent.with_token(token["token"].as_str()), ..run.clone() };
    for (tool, input) in [
        ("delete_file", json!({"path": "d", "recursive": true, "dryRun": true})),
        ("delete_file", json!({"path": "d", "recursive": true})),
        ("move_file", json!({"from": "d", "to": "e", "recursive": true, "dryRun": true})),
    ] {
        let refused = call(&blind, tool, input).await.refused("FORBIDDEN");
        assert_eq!(refused["reasons"], json!(["permission:file:list"]), "{refused:#}");
        assert!(!refused.to_string().contains("private-name") && !refused.to_string().contains(".env"), "{refused:#}");
    }
    let file = json!({"path": "a.txt", "recursive": true, "expectedSha256": sha256("a\n")});
    call(&blind, "delete_file", file).await.ok();
}

#[rstest]
#[tokio::test]
async fn a_folder_counts_its_files_and_a_move_counts_once(#[values(Backend::Sqlite)] backend: Backend) {
    let names: Vec<String> = (0..8).map(|number| format!("d/{number}.txt")).collect();
    let files: Vec<_> = names.iter().map(|name| (name.as_str(), "x\n")).collect();
    let policy = json!({"policy": {"budget": {"maxFilesTouched": 8}, "requireApprovalIf": ["deletesFile"]}});
    let (_server, run) = Run::shared_with(backend, &files, policy).await;
    call(&run, "move_file", json!({"from": "d", "to": "e", "recursive": true})).await.ok();
    let usage = run.agent.get(&format!("/v1/runs/{}", run.id)).await.ok()["usage"].clone();
    assert_eq!(usage["runBudget"]["filesTouched"], 8, "{usage:#}");
    let over =
        call(&run, "delete_file", json!({"path": "e", "recursive": true})).await.refused("PATCH_BUDGET_EXCEEDED");
    assert_eq!(over["reasons"], json!(["budget:maxFilesDeleted"]));
    run.create("e/9.txt", "x\n").await;
    let over = call(&run, "move_file", json!({"from": "e", "to": "f", "recursive": true})).await;
    assert_eq!(over.refused("PATCH_BUDGET_EXCEEDED")["reasons"], json!(["budget:maxFilesTouched"]));
    // A folder that waits for approval is deleted if its files are as they were.
    for name in ["g/1.txt", "g/2.txt"] {
        run.create(name, "x\n").await;
    }
    let asked = run.text("delete_file", json!({"path": "g", "recursive": true, "reason": "r"})).await;
    assert_eq!(asked.status, 202, "{}", asked.text());
    let pending = run.operator.get(&format!("/v1/approvals?state=pending&run={}", run.id)).await.ok();
    let id = pending["items"][0]["approvalId"].as_str().unwrap().to_owned();
    assert_eq!(pending["items"][0]["files"].as_array().unwrap().len(), 2, "{pending:#}");
    run.operator.post(&format!("/v1/approvals/{id}/approve"), json!({"decidedBy": "ada"})).await.ok();
    assert!(!run.repo.join("g").exists());
}

#[rstest]
#[tokio::test]
async fn the_last_calls_of_a_token_are_undone(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "one\n"), ("b.txt", "b\n")]).await;
    let none = call(&run, "revert_calls", json!({"last": 1})).await.refused("NOT_FOUND");
    assert!(!none["hint"].as_str().unwrap().contains("audit"), "{none:#}");
    let edit = |path: &str, old: &str, new: &str| json!({"path": path, "oldString": old, "newString": new});
    call(&run, "edit_file", edit("a.txt", "one", "two")).await.ok();
    call(&run, "edit_file", edit("b.txt", "b", "B")).await.ok();
    let other = with_new_token(&run).await;
    other.create("theirs.txt", "t\n").await;
    // Reads, refusals and the calls of others do not count.
    run.ok("read_file", json!({"path": "a.txt"})).await;
    call(&run, "edit_file", edit("a.txt", "none", "x")).await.refused("EDIT_NOT_FOUND");
    let text = run.text("revert_calls", json!({"reason": "undo"})).await.text();
    assert_eq!(text, "undid 1 call (+1 -1)\n");
    assert_eq!((run.on_disk("a.txt"), run.on_disk("b.txt")), ("two\n".to_owned(), "b\n".to_owned()));
    // The undoing is a call too.
    call(&run, "revert_calls", json!({"last": 3})).await.ok();
    assert_eq!((run.on_disk("a.txt"), run.on_disk("theirs.txt")), ("one\n".to_owned(), "t\n".to_owned()));
    for (input, code) in [
        (json!({"last": 0}), "INVALID_REQUEST"),
        (json!({"last": 101}), "INVALID_REQUEST"),
        (json!({"last": 1, "toSeq": 0}), "INVALID_REQUEST"),
        (json!({"last": 1, "toolCallIds": ["tc_1"]}), "INVALID_REQUEST"),
    ] {
        call(&run, "revert_calls", input).await.refused(code);
    }
}

#[rstest]
#[tokio::test]
async fn undoing_restores_modes_too(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("keep.txt", "k\n"), ("run.sh", "#!/bin/sh\n")]).await;
    let mode = || std::fs::metadata(run.file("run.sh")).unwrap().permissions().mode() & 0o777;
    run.own(&["run.sh"]);
    std::fs::set_permissions(run.repo.join("run.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    run.accept_tree().await;
    let delete = json!({"path": "run.sh", "expectedSha256": sha256("#!/bin/sh\n")});
    call(&run, "delete_file", delete).await.ok();
    run.create("run.sh", "#!/bin/sh\necho 2\n").await;
    assert_eq!(mode(), 0o644);
    call(&run, "revert_calls", json!({"last": 2})).await.ok();
    assert_eq!((run.on_disk("run.sh"), mode()), ("#!/bin/sh\n".to_owned(), 0o755));
    // A file that was moved away, and another one in its place.
    let moved = json!({"from": "run.sh", "to": "bin.sh", "expectedSha256": sha256("#!/bin/sh\n")});
    call(&run, "move_file", moved).await.ok();
    run.create("run.sh", "other\n").await;
    call(&run, "revert_calls", json!({"last": 2})).await.ok();
    assert_eq!((run.on_disk("run.sh"), mode()), ("#!/bin/sh\n".to_owned(), 0o755));
}
