//! `write_file`, and properties of every mutation: the expected version, atomicity, the record and the artifact.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Run, Server, sha256, until_empty};

#[rstest]
#[tokio::test]
async fn a_new_file_is_created_with_its_folders(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[]).await;
    let input = json!({"path": "./src//deep/new.rs", "content": "fn a() {}\nfn b() {}\n", "reason": "start", "toolCallId": "w1", "stepId": "s1"});
    let answer = run.ok("write_file", input).await;
    for (member, want) in [
        ("path", json!("src/deep/new.rs")),
        ("created", json!(true)),
        ("newSha256", json!(sha256("fn a() {}\nfn b() {}\n"))),
        ("bytesWritten", json!(20)),
        ("insertions", json!(2)),
        ("deletions", json!(0)),
        ("toolCallId", json!("w1")),
        ("seq", json!(2)),
        ("warnings", json!([])),
    ] {
        assert_eq!(answer[member], want, "{member}");
    }
    assert!(answer.get("oldSha256").is_none_or(Value::is_null));
    assert!(!answer["summary"].as_str().unwrap().is_empty());
    assert_eq!(answer["artifactUris"].as_array().unwrap().len(), 1);
    assert_eq!(run.on_disk("src/deep/new.rs"), "fn a() {}\nfn b() {}\n");
    assert_eq!(run.file("src/deep/new.rs").metadata().unwrap().permissions().mode() & 0o777, 0o644);
}

#[rstest]
#[tokio::test]
async fn replacing_needs_the_hash_of_the_current_content(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "one\n")]).await;
    let (one, two) = (sha256("one\n"), sha256("two\n"));
    for mode in ["REPLACE_EXISTING", "CREATE_OR_REPLACE"] {
        for expected in [None, Some(two.clone()), Some("0".repeat(64))] {
            let mut input = json!({"path": "a.txt", "content": "two\n", "mode": mode, "reason": "r"});
            if let Some(expected) = &expected {
                input["expectedSha256"] = json!(expected);
            }
            let problem = run.call("write_file", input).await.refused("WRITE_CONFLICT");
            assert_eq!((&problem["currentSha256"], &problem["path"]), (&json!(one), &json!("a.txt")));
            assert_eq!(run.on_disk("a.txt"), "one\n", "a stale hash changes nothing");
        }
    }
    run.call(
        "write_file",
        json!({"path": "a.txt", "content": "x", "mode": "CREATE_NEW", "expectedSha256": one, "reason": "r"}),
    )
    .await
    .refused("ALREADY_EXISTS");
    let answer = run.replace("a.txt", "two\n", &one).await.ok();
    assert_eq!(
        (&answer["created"], &answer["oldSha256"], &answer["newSha256"]),
        (&json!(false), &json!(one), &json!(two))
    );
    assert_eq!((&answer["insertions"], &answer["deletions"]), (&json!(1), &json!(1)));
    assert_eq!(run.on_disk("a.txt"), "two\n");
    run.replace("a.txt", "three\n", &two.to_uppercase()).await.ok();
    run.replace("a.txt", "four\n", &one).await.refused("WRITE_CONFLICT");
}

#[rstest]
#[tokio::test]
async fn a_missing_file_is_not_replaced(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[]).await;
    let input = |mode: &str, expected: Option<String>| {
        json!({"path": "a.txt", "content": "x\n", "mode": mode, "reason": "r"})
            .as_object()
            .map(|input| {
                let mut input = input.clone();
                input.extend(expected.map(|hash| ("expectedSha256".to_owned(), json!(hash))));
                Value::Object(input)
            })
            .unwrap()
    };
    run.call("write_file", input("REPLACE_EXISTING", Some(sha256("x")))).await.refused("NOT_FOUND");
    run.call("write_file", input("REPLACE_EXISTING", None)).await.refused("NOT_FOUND");
    run.call("write_file", input("CREATE_OR_REPLACE", Some(sha256("x")))).await.refused("WRITE_CONFLICT");
    assert!(!run.repo.join("a.txt").exists());
    run.call("write_file", input("CREATE_OR_REPLACE", None)).await.ok();
}

#[rstest]
#[tokio::test]
async fn a_dry_run_has_the_answer_of_the_real_call_and_changes_nothing(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "one\n")]).await;
    let (tree, diff) = (run.snapshot(), run.diff_sha256().await);
    let input = json!({"path": "dir/b.txt", "content": "two\n", "reason": "r"});
    let mut dry = input.clone();
    dry["dryRun"] = json!(true);
    let dry = run.ok("write_file", dry).await;
    assert_eq!(dry["artifactUris"], json!([]), "a dry run left an artifact");
    assert_eq!((run.snapshot(), run.diff_sha256().await), (tree.clone(), diff.clone()));
    run.call("write_file", json!({"path": "a.txt", "content": "x", "reason": "r", "dryRun": true}))
        .await
        .refused("WRITE_CONFLICT");
    run.call(
        "write_file",
        json!({"path": "a.txt", "content": "x", "mode": "CREATE_NEW", "reason": "r", "dryRun": true}),
    )
    .await
    .refused("ALREADY_EXISTS");
    run.call("write_file", json!({"path": "../a.txt", "content": "x", "reason": "r", "dryRun": true}))
        .await
        .refused("PATH_REJECTED");
    run.call("write_file", json!({"path": ".env", "content": "x", "reason": "r", "dryRun": true}))
        .await
        .refused("POLICY_DENIED_SECRET");
    run.call("write_file", json!({"path": "Cargo.lock", "content": "x", "reason": "r", "dryRun": true})).await.is(202);
    assert_eq!(run.operator.get(&format!("/v1/approvals?state=pending&run={}", run.id)).await.status / 100, 2);
    assert_eq!(run.get().await["counts"]["pendingApprovals"], 0, "a dry run created an approval");
    assert_eq!((run.snapshot(), run.diff_sha256().await), (tree, diff));

    let real = run.ok("write_file", input).await;
    for member in ["path", "created", "newSha256", "bytesWritten", "insertions", "deletions"] {
        assert_eq!(dry[member], real[member], "{member}");
    }
}

#[rstest]
#[tokio::test]
async fn a_mutation_is_an_atomic_rename_that_keeps_the_mode(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[]).await;
    run.put("run.sh", "#!/bin/sh\n");
    let path = run.repo.join("run.sh");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    run.accept_tree().await;
    let before = path.metadata().unwrap();
    let open = std::fs::File::open(&path).unwrap();
    run.replace("run.sh", "#!/bin/sh\nid\n", &sha256("#!/bin/sh\n")).await.ok();
    let after = path.metadata().unwrap();
    assert_eq!(after.permissions().mode() & 0o777, 0o755);
    assert_ne!(before.ino(), after.ino(), "the file was overwritten in place");
    assert_eq!(std::io::read_to_string(open).unwrap(), "#!/bin/sh\n");
    assert!(run.snapshot().keys().eq(["run.sh"]), "a temporary file in the tree");
    until_empty(&server.workspace(&run.id).join("tmp")).await;
}

#[rstest]
#[tokio::test]
async fn a_mutation_is_in_the_diff_its_artifact_and_the_audit(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "one\ntwo\n")]).await;
    let old = sha256("one\ntwo\n");
    let answer = run.replace("a.txt", "one\n2\n", &old).await.ok();
    let diff = run.ok("diff_workspace", json!({})).await;
    assert!(diff["diff"].as_str().unwrap().contains("-two\n+2\n"), "{diff:#}");
    let uri = answer["artifactUris"][0].as_str().unwrap();
    let artifact = run.artifact(uri).await;
    assert!(artifact.contains("--- a/a.txt\n+++ b/a.txt\n") && artifact.contains("-two\n+2\n"), "{artifact}");

    let record = &run.calls().await[0];
    for (member, want) in [
        ("tool", json!("write_file")),
        ("mutates", json!(true)),
        ("reason", json!("test")),
        ("decision", json!("ALLOW")),
        ("pathsWritten", json!(["a.txt"])),
        ("artifactUris", json!([uri])),
        ("diffSha256", json!(sha256(&artifact))),
        (
            "files",
            json!([{
                "path": "a.txt", "kind": "TEXT_DOC", "mode": "100644", "oldSha256": old, "newSha256": sha256("one\n2\n")
            }]),
        ),
        ("toolCallId", answer["toolCallId"].clone()),
        ("seq", answer["seq"].clone()),
    ] {
        assert_eq!(record[member], want, "{member}");
    }
    let other = run.operator.get(&format!("/v1/runs/{}/artifacts/none-such", run.id)).await;
    other.refused("NOT_FOUND");
}

#[rstest]
#[tokio::test]
async fn writing_the_current_content_is_a_mutation_without_a_diff(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "one\n")]).await;
    let answer = run.replace("a.txt", "one\n", &sha256("one\n")).await.ok();
    assert_eq!(
        (&answer["insertions"], &answer["deletions"], &answer["oldSha256"]),
        (&json!(0), &json!(0), &answer["newSha256"])
    );
    assert_eq!(run.ok("diff_workspace", json!({})).await["filesChanged"], 0);
}

#[rstest]
#[tokio::test]
async fn text_is_stored_unchanged(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[]).await;
    for (number, text) in ["", "no end", "crlf\r\n", "mixed\r\n\n", "\u{feff}bom\n", "tab\t \n\n\n", "🦀 ü \u{2028}\n"]
        .into_iter()
        .enumerate()
    {
        let path = format!("f{number}.txt");
        let answer = run.create(&path, text).await;
        assert_eq!(std::fs::read(run.file(&path)).unwrap(), text.as_bytes(), "{text:?}");
        assert_eq!((&answer["newSha256"], &answer["bytesWritten"]), (&json!(sha256(text)), &json!(text.len())));
    }
    run.call("write_file", json!({"path": "nul.txt", "content": "a\u{0}b", "reason": "r"}))
        .await
        .refused("UNSUPPORTED_BINARY");
}

#[rstest]
#[tokio::test]
async fn a_text_too_large_to_read_can_be_moved_and_deleted(#[values(Backend::Sqlite)] backend: Backend) {
    let budget = json!({"maxFilesDeleted": 1, "maxDeletions": 20_000});
    let policy = json!({"maxFileBytes": 1000, "maxTransferBytes": 1_000_000, "budget": budget});
    let text = "a line of a large text\n".repeat(20_000);
    let extra = json!({"policy": policy});
    let (_server, run) = Run::shared_with(backend, &[("large.txt", &text), ("small.txt", "s\n")], extra).await;
    run.put("huge.txt", "x\n".repeat(600_000));
    run.put("large.bin", vec![0; 20_000]);
    let size = std::fs::metadata(run.file("large.txt")).unwrap().len();
    assert_eq!(size, text.len() as u64);
    let moved = |from: &str, to: &str, dry: bool| json!({"from": from, "to": to, "expectedSha256": sha256(&text), "reason": "r", "dryRun": dry});
    let deleted =
        |path: &str, dry: bool| json!({"path": path, "expectedSha256": sha256(&text), "reason": "r", "dryRun": dry});
    let tree = run.snapshot();
    run.call("move_file", moved("large.bin", "b.bin", false)).await.refused("WRITE_CONFLICT");
    run.call("delete_file", deleted("large.bin", false)).await.refused("WRITE_CONFLICT");
    run.call("move_file", moved("huge.txt", "b.txt", false)).await.refused("FILE_TOO_LARGE");
    run.call("delete_file", deleted("huge.txt", false)).await.refused("FILE_TOO_LARGE");
    run.call("move_file", moved("large.txt", "small.txt", false)).await.refused("ALREADY_EXISTS");
    let stale = json!({"from": "large.txt", "to": "b.txt", "expectedSha256": sha256("stale"), "reason": "r"});
    let conflict = run.call("move_file", stale).await.refused("WRITE_CONFLICT");
    assert_eq!(conflict["currentSha256"], sha256(&text));
    assert_eq!(run.ok("move_file", moved("large.txt", "new/b.txt", true)).await["sha256"], sha256(&text));
    run.ok("delete_file", deleted("large.txt", true)).await;
    assert_eq!(run.snapshot(), tree);

    let answer = run.ok("move_file", moved("large.txt", "new/b.txt", false)).await;
    assert_eq!((&answer["to"], &answer["sha256"]), (&json!("new/b.txt"), &json!(sha256(&text))));
    assert!(!run.has("large.txt").await);
    assert_eq!(run.on_disk("new/b.txt"), text);
    let diff = run.artifact(answer["artifactUris"][0].as_str().unwrap()).await;
    assert!(diff.contains("rename from large.txt") && diff.contains("rename to new/b.txt"), "{diff}");
    until_empty(&run.repo.parent().unwrap().join("tmp")).await;

    // A batch loads files into memory, so it refuses a file of this size.
    let batch = json!({"atomic": true, "calls": [
        {"tool": "move_file", "input": moved("new/b.txt", "c.txt", false)},
        {"tool": "write_file", "input": {"path": "d.txt", "content": "d\n", "reason": "r"}},
    ]});
    let batch_answer = run.agent.post(&format!("/v1/runs/{}/batch", run.id), batch).await.json();
    assert_eq!(batch_answer["results"][0]["answer"]["code"], "FILE_TOO_LARGE", "{batch_answer:#}");
    assert_eq!(run.on_disk("new/b.txt"), text);

    let answer = run.ok("delete_file", deleted("new/b.txt", false)).await;
    assert_eq!(answer["oldSha256"], sha256(&text));
    assert!(!run.repo.join("new/b.txt").exists());
    let diff = run.artifact(answer["artifactUris"][0].as_str().unwrap()).await;
    assert!(diff.contains("deleted file") && diff.contains("new/b.txt"), "{diff}");
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn a_mutation_without_a_valid_reason_is_refused(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[]).await;
    for reason in [Value::Null, json!(""), json!("x".repeat(2001)), json!(true)] {
        let mut input = json!({"path": "a.txt", "content": "x"});
        if !reason.is_null() {
            input["reason"] = reason;
        }
        run.call("write_file", input).await.refused("INVALID_REQUEST");
    }
    assert!(run.snapshot().is_empty());
    run.ok("write_file", json!({"path": "a.txt", "content": "x", "reason": "ü".repeat(2000)})).await;
    for bad in [
        json!({"path": "b", "reason": "r"}),
        json!({"content": "b", "reason": "r"}),
        json!({"path": "b", "content": "b", "reason": "r", "mode": "APPEND"}),
        json!({"path": "b", "content": "b", "reason": "r", "expectedSha256": "abc"}),
        json!({"path": "b", "content": "b", "reason": "r", "mount": "docs"}),
        json!({"path": "b", "content": "b", "reason": "r", "dryRun": "yes"}),
        json!({"path": "b", "content": "b", "reason": "r", "force": true}),
        json!({"path": "b", "content": true, "reason": "r"}),
    ] {
        run.call("write_file", bad).await.refused("INVALID_REQUEST");
    }
    assert!(!run.repo.join("b").exists());
}

#[rstest]
#[tokio::test]
async fn a_folder_is_not_written_and_a_file_is_not_a_parent(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("dir/a.txt", "x\n")]).await;
    let write = |path: &str| json!({"path": path, "content": "x", "reason": "r"});
    run.call("write_file", write("dir")).await.refused("NOT_A_FILE");
    let under_a_file = run.call("write_file", write("dir/a.txt/b")).await.refusal();
    assert!(["NOT_A_DIRECTORY", "NOT_A_FILE", "NOT_FOUND"].contains(&under_a_file.as_str()), "{under_a_file}");
    run.call("write_file", write("dir/")).await.refused("PATH_REJECTED");
    run.call("write_file", write(".")).await.refusal();
    assert_eq!(run.snapshot().len(), 2);
}

#[rstest]
#[tokio::test]
async fn one_of_several_writers_with_the_same_expected_hash_succeeds(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    for round in 0..10 {
        let run = server.run_with_files(&[("a.txt", "one\n")], json!({})).await;
        let one = sha256("one\n");
        let texts: Vec<String> = (0..8).map(|writer| format!("writer {writer} of {round}\n")).collect();
        let calls = texts.iter().map(|text| run.replace("a.txt", text, &one));
        let answers = futures_util::future::join_all(calls).await;
        let won: Vec<_> = answers.iter().enumerate().filter(|(_, answer)| answer.status == 200).collect();
        assert_eq!(won.len(), 1);
        let text = &texts[won[0].0];
        assert_eq!(&run.on_disk("a.txt"), text);
        for answer in answers.iter().filter(|answer| answer.status != 200) {
            assert_eq!(answer.refused("WRITE_CONFLICT")["currentSha256"], sha256(text));
        }
    }
}

#[rstest]
#[tokio::test]
async fn a_new_file_where_one_exists_is_refused_as_existing_before_its_content_is_looked_at(
    #[values(Backend::Sqlite)] backend: Backend,
) {
    let large = "x\n".repeat(1 << 20);
    let (_server, run) = Run::shared(backend, &[("a.txt", "a\n"), ("b.bin", "a\0b"), ("large.txt", &large)]).await;
    let tree = run.snapshot();
    for path in ["b.bin", "large.txt"] {
        let input = json!({"path": path, "content": "x", "mode": "CREATE_NEW", "reason": "r"});
        run.call("write_file", input).await.refused("ALREADY_EXISTS");
        let input = json!({"from": "a.txt", "to": path, "expectedSha256": sha256("a\n"), "reason": "r"});
        run.call("move_file", input).await.refused("ALREADY_EXISTS");
        let patch = format!("--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n");
        run.call("apply_patch", json!({"patch": patch, "reason": "r"})).await.refused("ALREADY_EXISTS");
    }
    run.call("write_file", json!({"path": "b.bin", "content": "x", "reason": "r"})).await.refused("UNSUPPORTED_BINARY");
    run.call("write_file", json!({"path": "large.txt", "content": "x", "reason": "r"})).await.refused("FILE_TOO_LARGE");
    assert_eq!(run.snapshot(), tree);
}
