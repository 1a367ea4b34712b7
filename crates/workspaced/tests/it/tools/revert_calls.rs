//! `revert_calls`: changes are reverted byte by byte or not at all.

use std::os::unix::fs::PermissionsExt as _;

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Run, Server, sha256, until};

fn ids(calls: &[&Value]) -> Value {
    calls.iter().map(|call| call["toolCallId"].clone()).collect()
}

async fn revert(run: &Run, calls: &[&Value]) -> Value {
    run.ok("revert_calls", json!({"toolCallIds": ids(calls), "reason": "undo"})).await
}

#[rstest]
#[tokio::test]
async fn each_kind_of_change_is_reverted(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let files = [("a.txt", "one\r\ntwo\nthree"), ("dir/b.txt", "b\n"), ("c.txt", "\u{feff}c \t\n"), ("empty.txt", "")];
    let (_server, run) = Run::shared(backend, &files).await;
    std::fs::write(run.repo.join("latin.txt"), b"caf\xe9 au lait\nna\xefve\n").unwrap();
    run.own(&["dir/b.txt"]);
    std::fs::set_permissions(run.repo.join("dir/b.txt"), std::fs::Permissions::from_mode(0o755)).unwrap();
    run.accept_tree().await;
    let start = run.present_files().await;
    let drop = |path: &str, old: &[u8]| json!({"path": path, "expectedSha256": sha256(old), "reason": "r"});
    for (tool, input) in [
        ("write_file", json!({"path": "new/n.txt", "content": "n\n", "reason": "r"})),
        ("edit_file", json!({"path": "a.txt", "oldString": "two", "newString": "2\nII", "reason": "r"})),
        ("edit_file", json!({"path": "latin.txt", "oldString": "au lait", "newString": "noir", "reason": "r"})),
        ("delete_file", drop("dir/b.txt", b"b\n")),
        ("delete_file", drop("empty.txt", b"")),
        (
            "move_file",
            json!({"from": "c.txt", "to": "d/c.txt", "expectedSha256": sha256("\u{feff}c \t\n"), "reason": "r"}),
        ),
    ] {
        let done = run.ok(tool, input.clone()).await;
        assert_ne!(run.present_files().await, start, "{input}");
        let changed = run.present_files().await;
        let undone = revert(&run, &[&done]).await;
        assert_eq!(run.present_files().await, start, "{input}");
        assert_eq!(undone["reverted"], ids(&[&done]), "{input}");
        let again = revert(&run, &[&undone]).await;
        assert_eq!(run.present_files().await, changed, "a revert of a revert: {input}");
        revert(&run, &[&again]).await;
        assert_eq!(run.present_files().await, start, "{input}");
    }
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revert_terminates_under_concurrent_writes(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let ended = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let mut writers = Vec::new();
    for writer in 0..4 {
        let (run, ended) = (run.clone(), std::sync::Arc::clone(&ended));
        writers.push(tokio::spawn(async move {
            let path = format!("w{writer}.txt");
            let mut seen = run.create(&path, "0\n").await["newSha256"].clone();
            // Limited, so that the test fails instead of hanging.
            for round in 1..3_000 {
                if ended.load(std::sync::atomic::Ordering::Relaxed) {
                    return round;
                }
                let content = format!("{round}\n");
                let input = json!({"path": path, "content": content, "expectedSha256": seen, "reason": "r"});
                seen = run.ok("write_file", input).await["newSha256"].clone();
            }
            3_000
        }));
    }
    until("there are 200 records", async || run.get().await["headSeq"].as_u64().unwrap() >= 200).await;
    let answer = run.call("revert_calls", json!({"toSeq": 0, "reason": "r", "dryRun": true})).await;
    ended.store(true, std::sync::atomic::Ordering::Relaxed);
    if answer.status != 200 {
        // A file has changed since the revert read the history.
        answer.refused("REVERT_CONFLICT");
    }
    for writer in writers {
        assert!(writer.await.unwrap() < 3_000, "the revert waited for the writers");
    }
}

#[rstest]
#[tokio::test]
async fn several_calls_are_reverted_to_a_record(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "0\n")]).await;
    let mut states = vec![(0, run.snapshot())];
    for number in 1..=4 {
        let old = format!("{}\n", number - 1);
        let done = run.replace("a.txt", &format!("{number}\n"), &sha256(&old)).await.ok();
        states.push((done["seq"].as_u64().unwrap(), run.snapshot()));
    }
    run.ok("read_file", json!({"path": "a.txt"})).await;
    let back = run.ok("revert_calls", json!({"toSeq": states[2].0, "reason": "back"})).await;
    assert_eq!(run.snapshot(), states[2].1);
    assert_eq!(back["reverted"].as_array().unwrap().len(), 2);
    assert_eq!(back["filesTouched"], json!(["a.txt"]));
    let record = run.last_record().await;
    assert_eq!((&record["tool"], &record["pathsWritten"]), (&json!("revert_calls"), &json!(["a.txt"])));
    let diff = run.artifact(back["artifactUris"][0].as_str().unwrap()).await;
    assert!(diff.contains("-4\n+2\n"), "{diff}");
}

#[rstest]
#[tokio::test]
async fn a_revert_of_a_file_with_later_changes_is_a_conflict(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "a\n"), ("b.txt", "b\n")]).await;
    let first = run.replace("a.txt", "A\n", &sha256("a\n")).await.ok();
    let second = run.replace("b.txt", "B\n", &sha256("b\n")).await.ok();
    run.replace("b.txt", "later\n", &sha256("B\n")).await.ok();
    let tree = run.snapshot();
    let input = json!({"toolCallIds": ids(&[&first, &second]), "reason": "undo"});
    let refused = run.call("revert_calls", input).await.refused("REVERT_CONFLICT");
    assert_eq!(refused["path"], "b.txt");
    assert_eq!(run.snapshot(), tree);
    let dry = json!({"toolCallIds": ids(&[&first]), "reason": "undo", "dryRun": true});
    let dry = run.ok("revert_calls", dry).await;
    assert_eq!((&dry["filesTouched"], &dry["artifactUris"]), (&json!(["a.txt"]), &json!([])));
    assert_eq!(run.snapshot(), tree);
    for (input, code) in [
        (json!({"last": 0, "reason": "r"}), "INVALID_REQUEST"),
        (json!({"toolCallIds": [], "reason": "r"}), "INVALID_REQUEST"),
        (json!({"toolCallIds": ["x"], "toSeq": 1, "reason": "r"}), "INVALID_REQUEST"),
        (json!({"toolCallIds": [first["toolCallId"], "none-such"], "reason": "r"}), "NOT_FOUND"),
        (json!({"toSeq": 1_000_000, "reason": "r"}), "NOT_FOUND"),
    ] {
        run.call("revert_calls", input).await.refused(code);
    }
    assert_eq!(run.snapshot(), tree);
    run.put("a.txt", "from outside\n");
    let input = json!({"toolCallIds": ids(&[&first]), "reason": "undo"});
    run.call("revert_calls", input).await.refused("REVERT_CONFLICT");
    assert_eq!(run.on_disk("a.txt"), "from outside\n");
}

/// Replaces the content `old` with `new` by a file route.
async fn store(run: &Run, path: &str, old: Option<&[u8]>, new: Option<&[u8]>) -> Value {
    let method = if new.is_some() { Method::PUT } else { Method::DELETE };
    let request = run.agent.request(method, &format!("/v1/runs/{}/files/{path}", run.id)).header("x-reason", "r");
    let request = match old {
        Some(old) => request.header("if-match", format!("\"{}\"", sha256(old))),
        None => request.header("if-none-match", "*"),
    };
    run.agent.send(request.body(new.unwrap_or_default().to_vec())).await.is(if old.is_some() { 200 } else { 201 })
}

#[rstest]
#[tokio::test]
async fn files_of_any_kind_are_restored_byte_by_byte(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let files = [("pic.bin", "\0\u{1}\u{2}base"), ("tool.sh", "#!/bin/sh\n"), ("a.txt", "a\n")];
    let extra = json!({"policy": {"allowModeChange": true}});
    let (_server, run) = Run::shared_with(backend, &files, extra).await;
    let base = files[0].1.as_bytes();
    let wide: Vec<u8> =
        [0xff, 0xfe].into_iter().chain("wide\r\nline\n".encode_utf16().flat_map(u16::to_le_bytes)).collect();
    let latin = b"caf\xe9 au lait\n".as_slice();
    let mut states = vec![run.present_files().await];
    let mut calls = Vec::new();
    for (path, old, new) in [
        ("pic.bin", Some(base), Some(&b"\0second\xff"[..])),
        ("pic.bin", Some(b"\0second\xff"), None),
        ("pic.bin", None, Some(b"\0third")),
        ("wide.txt", None, Some(&wide)),
        ("latin.txt", None, Some(latin)),
    ] {
        calls.push(store(&run, path, old, new).await);
        states.push(run.present_files().await);
    }
    for (tool, input) in [
        ("edit_file", json!({"path": "wide.txt", "oldString": "line", "newString": "Zeile", "reason": "r"})),
        ("edit_file", json!({"path": "latin.txt", "oldString": "au lait", "newString": "noir", "reason": "r"})),
        (
            "apply_patch",
            json!({"patch": "diff --git a/tool.sh b/scripts/tool\nold mode 100644\nnew mode 100755\nsimilarity index 100%\n\
            rename from tool.sh\nrename to scripts/tool\n", "reason": "r"}),
        ),
        ("move_file", json!({"from": "wide.txt", "to": "w.txt", "expectedSha256": "", "reason": "r"})),
        ("delete_file", json!({"path": "latin.txt", "expectedSha256": "", "reason": "r"})),
    ] {
        let mut input = input;
        let path = input["path"].as_str().or(input["from"].as_str()).map(str::to_owned);
        if input["expectedSha256"].is_string() {
            input["expectedSha256"] = json!(sha256(std::fs::read(run.file(path.unwrap())).unwrap()));
        }
        calls.push(run.ok(tool, input).await);
        states.push(run.present_files().await);
    }
    let last = states.last().unwrap().clone();
    let mut undone = Vec::new();
    for at in (0..calls.len()).rev() {
        undone.push(revert(&run, &[&calls[at]]).await);
        assert_eq!(run.present_files().await, states[at], "call {at}: {:#}", calls[at]);
    }
    let again = revert(&run, &undone.iter().collect::<Vec<_>>()).await;
    assert_eq!(run.present_files().await, last, "a revert of all reverts");
    assert_eq!(again["reverted"].as_array().unwrap().len(), calls.len());
    let all = run.ok("revert_calls", json!({"toSeq": 0, "reason": "from the start"})).await;
    let record = run.last_record().await;
    assert_eq!(run.present_files().await, states[0], "{all:#}");
    assert_eq!(record["seq"], all["seq"]);
    for file in record["files"].as_array().unwrap() {
        let on_disk = std::fs::read(run.file(file["path"].as_str().unwrap())).ok().map(sha256);
        assert_eq!(file["newSha256"].as_str().map(str::to_owned), on_disk, "{file:#}");
    }
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn content_that_was_too_large_to_store_is_a_conflict(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let large = vec![7; (1 << 20) + 1];
    let made = store(&run, "large.bin", None, Some(&large)).await;
    let gone = store(&run, "large.bin", Some(&large), None).await;
    let other = run.replace("a.txt", "b\n", &sha256("a\n")).await.ok();
    let tree = run.snapshot();
    let input = json!({"toolCallIds": ids(&[&gone, &other]), "reason": "undo"});
    let refused = run.call("revert_calls", input).await.refused("REVERT_CONFLICT");
    assert_eq!(refused["path"], "large.bin");
    assert!(refused["message"].as_str().unwrap().contains("too large to be stored"), "{refused:#}");
    assert!(refused["hint"].as_str().unwrap().contains("files plane"), "{refused:#}");
    assert_eq!(run.snapshot(), tree, "a refused revert changed the tree");
    // A revert of both calls needs no stored content.
    revert(&run, &[&made, &gone]).await;
    assert_eq!(run.snapshot(), tree);
}

#[rstest]
#[tokio::test]
async fn an_undo_may_name_the_file_that_it_is_of(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "a\n"), ("b.txt", "b\n")]).await;
    run.edit("a.txt", "a", "x", json!({})).await.ok();
    let undo = |path: &str| json!({"last": 1, "ofPath": path, "reason": "r"});
    for path in ["b.txt", "none.txt"] {
        run.call("revert_calls", undo(path)).await.refused("NOT_FOUND");
    }
    run.call("revert_calls", undo("../a.txt")).await.refused("PATH_REJECTED");
    assert_eq!(run.on_disk("a.txt"), "x\n");
    run.call("revert_calls", undo("./a.txt")).await.ok();
    assert_eq!(run.on_disk("a.txt"), "a\n");
}

#[rstest]
#[tokio::test]
async fn undoing_again_undoes_the_change_before(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.py", "1\n")]).await;
    let change = async |old: &str, new: &str| run.edit("a.py", old, new, json!({})).await.ok();
    let undo = async || run.call("revert_calls", json!({"last": 1, "ofPath": "a.py", "reason": "r"})).await;
    change("1", "2").await;
    change("2", "3").await;
    for want in ["2\n", "1\n"] {
        undo().await.ok();
        assert_eq!(run.on_disk("a.py"), want);
    }
    undo().await.refused("NOT_FOUND");
    // An edit after an undo is the last one, and then that before the undone one.
    change("1", "4").await;
    change("4", "5").await;
    undo().await.ok();
    change("4", "6").await;
    for want in ["4\n", "1\n"] {
        undo().await.ok();
        assert_eq!(run.on_disk("a.py"), want);
    }
    undo().await.refused("NOT_FOUND");
    assert_eq!(run.on_disk("a.py"), "1\n");
}

#[rstest]
#[tokio::test]
async fn a_mode_that_the_call_has_not_changed_stays(#[values(Backend::Sqlite)] backend: Backend) {
    let policy = json!({"policy": {"allowModeChange": true}});
    let server = Server::start(backend).await;
    let run = server.run_with_files(&[("s.sh", "one\n")], policy).await;
    let edited = run.edit("s.sh", "one", "two", json!({})).await.ok();
    let mode = run.patch("diff --git a/s.sh b/s.sh\nold mode 100644\nnew mode 100755\n").await.ok();
    revert(&run, &[&edited]).await;
    assert_eq!(
        (run.on_disk("s.sh").as_str(), &run.last_record().await["files"][0]["mode"]),
        ("one\n", &json!("100755"))
    );
    run.edit("s.sh", "one", "two", json!({})).await.ok();
    revert(&run, &[&mode]).await;
    assert_eq!(run.last_record().await["files"][0]["mode"], "100644");
}
