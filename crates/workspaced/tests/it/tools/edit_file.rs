//! `edit_file`, `delete_file`, `move_file`, `revert_calls` and `read_files`.

use rstest::rstest;
use serde_json::json;

use crate::harness::{Backend, Run, sha256};

const TEXT: &str = "fn a() {\n    one();\n}\n\nfn b() {\n    one();\n}\n";

#[rstest]
#[tokio::test]
async fn a_unique_text_is_replaced(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.rs", TEXT)]).await;
    let answer = run.edit("a.rs", "fn b() {\n    one();", "fn b() {\n    two();", json!({})).await.ok();
    assert_eq!(
        (&answer["replacements"], &answer["created"], &answer["oldSha256"]),
        (&json!(1), &json!(false), &json!(sha256(TEXT)))
    );
    assert_eq!(answer["newSha256"], sha256(run.on_disk("a.rs")));
    assert_eq!(run.on_disk("a.rs"), "fn a() {\n    one();\n}\n\nfn b() {\n    two();\n}\n");
    let problem = run.edit("a.rs", "none()", "x", json!({})).await.refused("EDIT_NOT_FOUND");
    assert!(!problem["hint"].as_str().unwrap().is_empty());
    let several = run.edit("a.rs", "}\n", "x", json!({})).await.refused("EDIT_NOT_UNIQUE");
    assert_eq!((&several["lines"], &several["actual"]), (&json!([3, 7]), &json!(2)));
    run.put("many.txt", "x\n".repeat(50_000));
    let many = run.edit("many.txt", "x", "y", json!({})).await.refused("EDIT_NOT_UNIQUE");
    assert!(many["message"].as_str().unwrap().contains("50000 times"), "{many:#}");
    assert_eq!((many["lines"].as_array().unwrap().len(), &many["actual"]), (50, &json!(50_000)));
    run.edit("a.rs", "}", "};", json!({"expectedSha256": sha256(TEXT), "replaceAll": true}))
        .await
        .refused("WRITE_CONFLICT");
    let all = run.edit("a.rs", "}", "};", json!({"replaceAll": true})).await.ok();
    assert_eq!(all["replacements"], 2);
    for (old, new) in [("", "x"), ("fn", "fn")] {
        let code = run.edit("a.rs", old, new, json!({})).await.refusal();
        assert_eq!(code, "INVALID_REQUEST", "{old:?} → {new:?}");
    }
}

#[rstest]
#[tokio::test]
async fn an_edit_keeps_line_endings_and_other_text(#[values(Backend::Sqlite)] backend: Backend) {
    let table = [
        ("crlf.txt", "a\r\nb\r\nc\r\n", "a\nb", "a\nB", "a\r\nB\r\nc\r\n"),
        ("mixed.txt", "a\r\nb\nc\r\n", "b", "B", "a\r\nB\nc\r\n"),
        ("lf.txt", "a\nb\nc\n", "b\n", "B\r\nBB\r\n", "a\nB\nBB\nc\n"),
        ("lines.txt", "one\r\ntwo\nthree\r\n", "one\ntwo\n", "1\n2\n", "1\r\n2\nthree\r\n"),
        ("bom.txt", "\u{feff}a\nb", "a", "A", "\u{feff}A\nb"),
        ("open.txt", "a\nb", "b", "c\nd", "a\nc\nd"),
        ("tabs.txt", "\tx \n\n\n", "x", "y", "\ty \n\n\n"),
    ];
    let files: Vec<(&str, &str)> = table.iter().map(|(path, text, ..)| (*path, *text)).collect();
    let (_server, run) = Run::shared(backend, &files).await;
    for (path, _, old, new, want) in table {
        run.edit(path, old, new, json!({})).await.ok();
        assert_eq!(run.on_disk(path), want, "{path}");
    }
}

#[rstest]
#[tokio::test]
async fn a_deletion_needs_the_current_version(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("d/a.txt", "a\n"), ("b.txt", "b\n")]).await;
    let delete = |path: &str, version: &str| json!({"path": path, "expectedSha256": sha256(version), "reason": "r"});
    let mut dry = delete("b.txt", "b\n");
    dry["dryRun"] = json!(true);
    run.ok("delete_file", dry).await;
    for (input, code) in [
        (delete("b.txt", "stale"), "WRITE_CONFLICT"),
        (delete("none.txt", "x"), "NOT_FOUND"),
        (delete("d", "x"), "NOT_A_FILE"),
        (delete("../x", "x"), "PATH_REJECTED"),
        (json!({"path": "b.txt", "reason": "r"}), "WRITE_CONFLICT"),
    ] {
        run.call("delete_file", input).await.refused(code);
    }
    assert_eq!(run.on_disk("b.txt"), "b\n");
    let answer = run.ok("delete_file", delete("b.txt", "b\n")).await;
    assert_eq!((&answer["path"], &answer["oldSha256"]), (&json!("b.txt"), &json!(sha256("b\n"))));
    assert!(!run.has("b.txt").await);
    assert_eq!(run.ok("diff_workspace", json!({})).await["deletions"], 1);
}

#[rstest]
#[tokio::test]
async fn a_file_is_moved_only_to_a_free_path(#[values(Backend::Sqlite)] backend: Backend) {
    let files = [("a.txt", "a\n"), ("b.txt", "b\n"), (".env", "A=1\n"), ("target/g", "g\n")];
    let (_server, run) = Run::shared(backend, &files).await;
    let tree = run.snapshot();
    let go = |from: &str, to: &str| json!({"from": from, "to": to, "expectedSha256": sha256("a\n"), "reason": "r"});
    for (input, code) in [
        (go("a.txt", "b.txt"), "ALREADY_EXISTS"),
        (go("b.txt", "c.txt"), "WRITE_CONFLICT"),
        (go("none", "c.txt"), "NOT_FOUND"),
        (go("a.txt", "../c"), "PATH_REJECTED"),
        (go("a.txt", ".env.local"), "POLICY_DENIED_SECRET"),
        (go(".env", "c.txt"), "POLICY_DENIED_SECRET"),
        (go("target/g", "c.txt"), "POLICY_DENIED"),
        (go("a.txt", "target/h"), "POLICY_DENIED"),
    ] {
        let what = input.to_string();
        assert_eq!(run.call("move_file", input).await.refusal(), code, "{what}");
    }
    assert_eq!(run.snapshot(), tree);
    let answer = run.ok("move_file", go("a.txt", "deep/er/c.txt")).await;
    assert_eq!(
        (&answer["from"], &answer["to"], &answer["sha256"]),
        (&json!("a.txt"), &json!("deep/er/c.txt"), &json!(sha256("a\n")))
    );
    assert_eq!(run.on_disk("deep/er/c.txt"), "a\n");
    assert!(!run.has("a.txt").await);
}

#[rstest]
#[tokio::test]
async fn one_unreadable_path_does_not_fail_read_files(#[values(Backend::Sqlite)] backend: Backend) {
    let files = [("a.txt", "a\n"), (".env", "A=1\n"), (".gitignore", "*.log\n"), ("x.log", "l\n")];
    let (_server, run) = Run::shared(backend, &files).await;
    run.put("pic.bin", [0, 1, 2]);
    let answer = run.ok("read_files", json!({"paths": ["a.txt", "none", "../x", ".env", "x.log", "pic.bin"]})).await;
    for (path, status) in [
        ("a.txt", "OK"),
        ("none", "NOT_FOUND"),
        ("../x", "PATH_REJECTED"),
        (".env", "POLICY_DENIED_SECRET"),
        ("x.log", "IGNORED"),
        ("pic.bin", "UNSUPPORTED_BINARY"),
    ] {
        assert_eq!(answer["files"][path]["status"], status, "{path}: {answer:#}");
    }
    assert_eq!(answer["files"]["a.txt"]["sha256"], sha256("a\n"));
    assert!(!answer.to_string().contains("A=1"));
    let many: Vec<String> = (0..51).map(|number| format!("{number}")).collect();
    run.call("read_files", json!({"paths": many})).await.refused("INVALID_REQUEST");
}

#[rstest]
#[tokio::test]
async fn calls_are_reverted_newest_first_and_atomically(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let start = run.snapshot();
    let first = run.replace("a.txt", "b\n", &sha256("a\n")).await.ok();
    run.replace("a.txt", "c\n", &sha256("b\n")).await.ok();
    run.create("n.txt", "n\n").await;
    let (one, tree) = (json!({"toolCallIds": [first["toolCallId"]], "reason": "undo"}), run.snapshot());
    run.call("revert_calls", one).await.refused("REVERT_CONFLICT");
    assert_eq!(run.snapshot(), tree);
    let undone = run.ok("revert_calls", json!({"toSeq": 0, "reason": "undo all"})).await;
    assert_eq!(run.snapshot(), start);
    run.ok("revert_calls", json!({"toolCallIds": [undone["toolCallId"]], "reason": "redo"})).await;
    assert_eq!(run.snapshot(), tree);
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn an_expected_version_of_a_missing_file_is_a_conflict(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("gone.txt", "a\n")]).await;
    run.create("made.txt", "m\n").await;
    for (path, content) in [("gone.txt", "a\n"), ("made.txt", "m\n")] {
        run.ok("delete_file", json!({"path": path, "expectedSha256": sha256(content), "reason": "r"})).await;
    }
    let tree = run.snapshot();
    let write = |path: &str, mode: &str| json!({"path": path, "content": "x\n", "mode": mode, "expectedSha256": sha256("a\n"), "reason": "r"});
    for (path, mode, says) in [
        ("never.txt", "CREATE_OR_REPLACE", "has never existed in this run"),
        ("never.txt", "CREATE_NEW", "has never existed in this run"),
        ("gone.txt", "CREATE_OR_REPLACE", "no longer exists"),
        ("made.txt", "CREATE_OR_REPLACE", "no longer exists"),
    ] {
        let answer = run.call("write_file", write(path, mode)).await.refused("WRITE_CONFLICT");
        assert!(answer["message"].as_str().unwrap().contains(says), "{path} {mode}: {answer:#}");
        assert!(answer["hint"].as_str().unwrap().contains("Leave out `expectedSha256`"), "{answer:#}");
        assert_eq!((answer.get("currentSha256"), &answer["path"]), (None, &json!(path)));
    }
    for path in ["never.txt", "gone.txt"] {
        run.call("write_file", write(path, "REPLACE_EXISTING")).await.refused("NOT_FOUND");
    }
    assert_eq!(run.snapshot(), tree);
}

#[rstest]
#[tokio::test]
async fn a_text_that_is_not_found_names_the_nearest_passages(#[values(Backend::Sqlite)] backend: Backend) {
    let text = "fn first() {\n    let counter = total + 1;\n}\n\nfn second() {\n    let counter = total + 2;\n}\n";
    let (_server, run) = Run::shared(backend, &[("a.rs", text)]).await;
    // A typo inside a line.
    let refused = run.edit("a.rs", "let coutner = total + 2;", "x", json!({})).await.refused("EDIT_NOT_FOUND");
    let nearest = refused["nearest"].as_array().unwrap();
    assert!((1..=3).contains(&nearest.len()), "{refused:#}");
    let difference = "- let coutner = total + 2;\n+     let counter = total + 2;\n";
    assert_eq!(nearest[0], json!({"line": 6, "difference": difference}), "{refused:#}");
    assert_eq!(nearest[1]["line"], 2, "{refused:#}");
    assert_eq!((&refused["lines"][0], &refused["difference"]), (&json!(6), &json!(difference)), "{refused:#}");
    let hint = refused["hint"].as_str().unwrap();
    assert!(hint.contains("line 6"), "{hint}");
    // The search is bounded for a large file.
    let line = |number: u32| format!("    let value_{number} = compute({number});\n");
    run.put(
        "large.rs",
        (0..30_000).map(line).collect::<String>().into_bytes().into_iter().take(1 << 20).collect::<Vec<_>>(),
    );
    let old = (20_000..20_100).map(line).collect::<String>().replace("compute(20050)", "compute(2005O)");
    let refused = run.edit("large.rs", &old, "x", json!({})).await.refused("EDIT_NOT_FOUND");
    assert_eq!(refused["nearest"][0]["line"], 20_001, "{refused:#}");
}

#[rstest]
#[tokio::test]
async fn an_edit_may_name_the_number_of_occurrences(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "x x\nx\n")]).await;
    let counted = |count: u64| json!({"replaceAll": true, "expectedReplacements": count});
    for count in [1, 2, 4] {
        let refused = run.edit("a.txt", "x", "y", counted(count)).await.refused("EDIT_NOT_UNIQUE");
        assert_eq!((&refused["limit"], &refused["actual"]), (&json!(count), &json!(3)), "{refused:#}");
    }
    run.edit("a.txt", "x", "y", counted(0)).await.refused("INVALID_REQUEST");
    run.edit("a.txt", "x", "y", json!({"expectedReplacements": 1})).await.refused("INVALID_REQUEST");
    assert_eq!(run.on_disk("a.txt"), "x x\nx\n");
    assert_eq!(run.edit("a.txt", "x", "y", counted(3)).await.ok()["replacements"], 3);
}
