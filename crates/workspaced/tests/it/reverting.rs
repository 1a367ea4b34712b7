//! `revert_calls`: what was done is taken back byte for byte, or not at all.

use std::os::unix::fs::PermissionsExt as _;

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Run, Snapshot, sha256};

/// The files alone: as in git, a folder is there as long as something is in it.
fn files_of(run: &Run) -> Snapshot {
    run.snapshot().into_iter().filter(|(_, what)| what != "directory").collect()
}

fn ids(calls: &[&Value]) -> Value {
    calls.iter().map(|call| call["toolCallId"].clone()).collect()
}

async fn revert(run: &Run, calls: &[&Value]) -> Value {
    run.ok("revert_calls", json!({"toolCallIds": ids(calls), "reason": "undo"})).await
}

#[rstest]
#[tokio::test]
async fn each_kind_of_change_is_taken_back_whole(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let files = [("a.txt", "one\r\ntwo\nthree"), ("dir/b.txt", "b\n"), ("c.txt", "\u{feff}c \t\n"), ("empty.txt", "")];
    let (_server, run) = Run::shared(backend, &files).await;
    std::fs::write(run.repo.join("latin.txt"), b"caf\xe9 au lait\nna\xefve\n").unwrap();
    std::fs::set_permissions(run.repo.join("dir/b.txt"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let start = files_of(&run);
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
        assert_ne!(files_of(&run), start, "{input}");
        let changed = files_of(&run);
        let undone = revert(&run, &[&done]).await;
        assert_eq!(files_of(&run), start, "{input}");
        assert_eq!(undone["reverted"], ids(&[&done]), "{input}");
        let again = revert(&run, &[&undone]).await;
        assert_eq!(files_of(&run), changed, "a revert of a revert: {input}");
        revert(&run, &[&again]).await;
        assert_eq!(files_of(&run), start, "{input}");
    }
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn several_calls_go_back_to_a_record(#[values(Backend::Sqlite)] backend: Backend) {
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
async fn a_file_that_has_changed_since_is_a_conflict_and_nothing_changes(
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
        (json!({"reason": "r"}), "INVALID_REQUEST"),
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
