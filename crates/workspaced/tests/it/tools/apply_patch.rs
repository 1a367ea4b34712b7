//! `apply_patch`: accepted and refused patches, and atomicity.

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Run, Server, Strace, exhaustive, sha256};

const FILES: [(&str, &str); 4] = [
    ("src/a.rs", "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n"),
    ("src/b.rs", "one\ntwo\nthree\n"),
    ("gone.txt", "g\n"),
    ("README.md", "# hi\n"),
];

const MANY: &str = "\
diff --git a/src/a.rs b/src/a.rs
--- a/src/a.rs
+++ b/src/a.rs
@@ -1,4 +1,5 @@
 1
-2
+two
+and a half
 3
 4
@@ -8,3 +9,3 @@
 8
-9
+nine
 10
diff --git a/new/file.txt b/new/file.txt
new file mode 100644
--- /dev/null
+++ b/new/file.txt
@@ -0,0 +1,2 @@
+hello
+there
diff --git a/gone.txt b/gone.txt
deleted file mode 100644
--- a/gone.txt
+++ /dev/null
@@ -1 +0,0 @@
-g
diff --git a/src/b.rs b/src/c.rs
similarity index 60%
rename from src/b.rs
rename to src/c.rs
--- a/src/b.rs
+++ b/src/c.rs
@@ -1,3 +1,3 @@
 one
-two
+2
 three
";

#[rstest]
#[tokio::test]
async fn one_patch_changes_many_files(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    let answer = run.patch(MANY).await.ok();
    assert_eq!((&answer["applied"], &answer["dryRun"]), (&json!(true), &json!(false)));
    assert_eq!((&answer["insertions"], &answer["deletions"]), (&json!(6), &json!(4)));
    assert_eq!(answer["newWorkspaceDiffSha256"], run.diff_sha256().await);
    let touched: Vec<_> =
        answer["filesTouched"].as_array().unwrap().iter().map(|path| path.as_str().unwrap()).collect();
    for path in ["gone.txt", "new/file.txt", "src/a.rs", "src/b.rs", "src/c.rs"] {
        assert!(touched.contains(&path), "{path}: {touched:?}");
    }
    assert_eq!(run.on_disk("src/a.rs"), "1\ntwo\nand a half\n3\n4\n5\n6\n7\n8\nnine\n10\n");
    assert_eq!(run.on_disk("src/c.rs"), "one\n2\nthree\n");
    assert_eq!(run.on_disk("new/file.txt"), "hello\nthere\n");
    assert!(!run.has("gone.txt").await && !run.has("src/b.rs").await);

    let of =
        |path: &str| answer["files"].as_array().unwrap().iter().find(|file| file["path"] == path).cloned().unwrap();
    let edited = of("src/a.rs");
    assert_eq!(
        (&edited["oldSha256"], &edited["newSha256"]),
        (&json!(sha256(FILES[0].1)), &json!(sha256(run.on_disk("src/a.rs"))))
    );
    assert_eq!((&edited["insertions"], &edited["deletions"], &edited["offsets"]), (&json!(3), &json!(2), &json!([])));
    assert!(of("new/file.txt").get("oldSha256").is_none_or(Value::is_null));
    assert!(of("gone.txt").get("newSha256").is_none_or(Value::is_null));
    assert!(edited["operation"].is_string());

    let record = run.calls().await.remove(0);
    assert_eq!(record["files"].as_array().unwrap().len(), 5, "{record:#}");
    assert!(run.artifact(answer["artifactUris"][0].as_str().unwrap()).await.contains("+and a half"));
}

#[rstest]
#[tokio::test]
async fn one_invalid_section_leaves_every_file_unchanged(#[values(Backend::Sqlite)] backend: Backend) {
    let recording = json!({"policy": {"outsideChanges": "RECORD"}});
    let (_server, run) = Run::shared_with(backend, &FILES, recording).await;
    run.put("target/gen.rs", "g\n");
    run.put("Cargo.lock", "l\n");
    run.put(".env", "A=1\n");
    let (tree, diff) = (run.snapshot(), run.diff_sha256().await);
    let good = "--- a/README.md\n+++ b/README.md\n@@ -1 +1 @@\n-# hi\n+# bye\n";
    for (bad, code) in [
        ("--- a/src/b.rs\n+++ b/src/b.rs\n@@ -1,2 +1,2 @@\n one\n-TWO\n+2\n", "PATCH_CONFLICT"),
        ("--- a/none.txt\n+++ b/none.txt\n@@ -1 +1 @@\n-a\n+b\n", "NOT_FOUND"),
        ("--- /dev/null\n+++ b/gone.txt\n@@ -0,0 +1 @@\n+x\n", "ALREADY_EXISTS"),
        ("--- a/../out.txt\n+++ b/../out.txt\n@@ -1 +1 @@\n-a\n+b\n", "PATH_REJECTED"),
        ("--- /dev/null\n+++ b/.git/hooks/pre-commit\n@@ -0,0 +1 @@\n+x\n", "PATH_REJECTED"),
        ("--- a/.env\n+++ b/.env\n@@ -1 +1 @@\n-A=1\n+A=2\n", "POLICY_DENIED_SECRET"),
        ("--- /dev/null\n+++ b/k/id_rsa\n@@ -0,0 +1 @@\n+x\n", "POLICY_DENIED_SECRET"),
        ("--- a/target/gen.rs\n+++ b/target/gen.rs\n@@ -1 +1 @@\n-g\n+h\n", "POLICY_DENIED"),
        ("--- /dev/null\n+++ b/node_modules/x/i.js\n@@ -0,0 +1 @@\n+x\n", "POLICY_DENIED"),
        ("--- a/Cargo.lock\n+++ b/Cargo.lock\n@@ -1 +1 @@\n-l\n+m\n", "APPROVAL_REQUIRED"),
    ] {
        for patch in [format!("{good}{bad}"), format!("{bad}{good}")] {
            run.patch(&patch).await.refused(code);
            assert_eq!(run.snapshot(), tree, "{bad}");
        }
    }
    assert_eq!(run.diff_sha256().await, diff);
}

#[rstest]
#[tokio::test]
async fn invalid_patches_are_refused(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    let tree = run.snapshot();
    let b = "--- a/src/b.rs\n+++ b/src/b.rs\n";
    let table: Vec<(&str, String, &[&str])> = vec![
        ("nothing", String::new(), &["PATCH_INVALID", "INVALID_REQUEST"]),
        ("no patch", "please change the file".into(), &["PATCH_INVALID"]),
        ("one path twice", format!("{b}@@ -1 +1 @@\n-one\n+1\n{b}@@ -3 +3 @@\n-three\n+3\n"), &["PATCH_INVALID"]),
        ("a binary marker", "diff --git a/x.bin b/x.bin\nindex 1..2 100644\nBinary files a/x.bin and b/x.bin differ\n".into(), &["PATCH_INVALID"]),
        ("a symbolic link", "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc/passwd\n\\ No newline at end of file\n".into(), &["PATCH_INVALID", "POLICY_DENIED", "PATH_REJECTED"]),
        ("a submodule", "diff --git a/s b/s\nnew file mode 160000\n--- /dev/null\n+++ b/s\n@@ -0,0 +1 @@\n+Subproject commit 0123456789012345678901234567890123456789\n".into(), &["PATCH_INVALID", "POLICY_DENIED"]),
        ("a mode change", "diff --git a/src/b.rs b/src/b.rs\nold mode 100644\nnew mode 100755\n".into(), &["POLICY_DENIED"]),
        ("an absolute path", "--- /etc/passwd\n+++ /etc/passwd\n@@ -1 +1 @@\n-a\n+b\n".into(), &["PATH_REJECTED", "PATCH_INVALID"]),
    ];
    for (what, patch, codes) in table {
        let code = run.patch(&patch).await.refusal();
        assert!(codes.contains(&code.as_str()), "{what}: {code}");
        assert_eq!(run.snapshot(), tree, "{what}");
    }
    for bad in [
        json!({"reason": "r"}),
        json!({"patch": true, "reason": "r"}),
        json!({"patch": "x", "reason": "r", "strip": 1}),
    ] {
        run.call("apply_patch", bad).await.refused("INVALID_REQUEST");
    }
}

#[rstest]
#[tokio::test]
async fn an_answer_says_by_how_much_a_hunk_was_moved(#[values(Backend::Sqlite)] backend: Backend) {
    let numbered = (1..=40).map(|number| format!("line {number}\n")).collect::<Vec<_>>().concat();
    let (_server, run) = Run::shared(backend, &[("a.txt", numbered.as_str())]).await;
    let moved = "--- a/a.txt\n+++ b/a.txt\n@@ -2,3 +2,3 @@\n line 29\n-line 30\n+thirty\n line 31\n";
    let answer = run.patch(moved).await.ok();
    assert_eq!(answer["files"][0]["offsets"], json!([{"hunk": 1, "offset": 27}]));
    assert!(!answer["warnings"].as_array().unwrap().is_empty());
}

#[rstest]
#[tokio::test]
async fn a_patch_whose_meaning_is_clear_applies_with_a_warning(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("f", "one\ntwo\nthree\n"), ("end.txt", "a\nb\n\n")]).await;
    let miscounted = "\u{feff}--- a/f\n+++ b/f\n@@ -1,3 +1,9 @@\n one\n-two\n+2\n";
    let answer = run.patch(miscounted).await.ok();
    assert!(answer["warnings"][0].as_str().unwrap().contains("counted again: 2 old and 2 new lines"), "{answer:#}");
    let shown = run.text("apply_patch", json!({"patch": miscounted, "reason": "t"})).await.text();
    assert!(shown.contains("already applied") && shown.contains("leave them out"), "{shown}");
    run.patch("--- a/f\n+++ b/f\n@@\n-2\n+two\n").await.ok();
    run.patch("*** Begin Patch\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-one\n+1\n*** End Patch\n").await.ok();
    let end = "*** Begin Patch\n*** Update File: end.txt\n@@\n a\n-b\n+B\n\n*** End of File\n*** End Patch\n";
    run.patch(end).await.ok();
    assert_eq!((run.on_disk("f"), run.on_disk("end.txt")), ("1\ntwo\nthree\n".into(), "a\nB\n\n".into()));
}

#[rstest]
#[tokio::test]
async fn expected_versions_are_checked_first(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    let patch = "--- a/README.md\n+++ b/README.md\n@@ -1 +1 @@\n-# hi\n+# bye\n";
    let with = |extra: Value| {
        let mut input = json!({"patch": patch, "reason": "r"});
        input.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        input
    };
    run.call("apply_patch", with(json!({"expectedBaseCommit": "0".repeat(40)}))).await.refused("BASE_COMMIT_MISMATCH");
    let problem = run
        .call("apply_patch", with(json!({"expectedSha256": {"README.md": "0".repeat(64)}})))
        .await
        .refused("WRITE_CONFLICT");
    assert_eq!(problem["currentSha256"], sha256("# hi\n"));
    assert_eq!(run.on_disk("README.md"), "# hi\n");
    let base = run.get().await["baseCommit"].clone();
    let good = with(json!({"expectedBaseCommit": base, "expectedSha256": {"README.md": sha256("# hi\n")}}));
    run.ok("apply_patch", good).await;
}

#[rstest]
#[tokio::test]
async fn a_dry_run_of_a_patch_changes_nothing(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    let (tree, diff) = (run.snapshot(), run.diff_sha256().await);
    let dry = run.ok("apply_patch", json!({"patch": MANY, "reason": "r", "dryRun": true})).await;
    assert_eq!((&dry["applied"], &dry["dryRun"]), (&json!(false), &json!(true)));
    assert_eq!((run.snapshot(), run.diff_sha256().await), (tree, diff));
    let real = run.patch(MANY).await.ok();
    for member in ["files", "filesTouched", "insertions", "deletions", "newWorkspaceDiffSha256"] {
        assert_eq!(dry[member], real[member], "{member}");
    }
}

/// The hash is of the paths that differ from the base, with their modes and contents.
#[rstest]
#[tokio::test]
async fn the_hash_of_the_changed_paths_outlives_a_restart(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = Server::start(backend).await;
    let files = [("a.txt", "a\n"), ("b.txt", "b\n"), ("same.txt", "s\n"), ("run.sh", "x\n"), ("gone.txt", "g\n")];
    let policy = json!({"policy": {"allowModeChange": true, "requireApprovalIf": []}});
    let run = server.run_with_files(&files, policy).await;
    run.create("new/ü.txt", "n\n").await;
    run.replace("b.txt", "B\n", &sha256("b\n")).await.ok();
    let same = run.replace("same.txt", "S\n", &sha256("s\n")).await.ok();
    run.patch("diff --git a/run.sh b/run.sh\nold mode 100644\nnew mode 100755\n").await.ok();
    run.patch("diff --git a/tool b/tool\nnew file mode 100755\n--- /dev/null\n+++ b/tool\n@@ -0,0 +1 @@\n+t\n")
        .await
        .ok();
    run.ok("delete_file", json!({"path": "gone.txt", "expectedSha256": sha256("g\n"), "reason": "r"})).await;
    run.ok("revert_calls", json!({"toolCallIds": [same["toolCallId"]], "reason": "r"})).await;
    let patch = |old: &str, new: &str| format!("--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-{old}\n+{new}\n");
    let line = |path: &str, mode: &str, text: &str| format!("{path}\0{mode}\0{}\n", sha256(text));
    let want = |a: &str| {
        let gone = "gone.txt\x00000000\0-\n".to_owned();
        let lines = [
            line("a.txt", "100644", a),
            line("b.txt", "100644", "B\n"),
            gone,
            line("new/ü.txt", "100644", "n\n"),
            line("run.sh", "100755", "x\n"),
            line("tool", "100755", "t\n"),
        ];
        json!(sha256(lines.concat()))
    };
    assert_eq!(run.patch(&patch("a", "A")).await.ok()["newWorkspaceDiffSha256"], want("A\n"));
    assert_eq!(want("A\n"), run.diff_sha256().await);
    server.stop();
    server.restart();
    let run = server.reconnect(&run);
    assert_eq!(run.patch(&patch("A", "AA")).await.ok()["newWorkspaceDiffSha256"], want("AA\n"));
}

#[tokio::test]
async fn a_patch_opens_as_many_files_in_a_run_with_many_changes() {
    let server = Server::start(Backend::Sqlite).await;
    let budget = json!({"maxFilesTouched": 1000, "maxInsertions": 1000, "maxBytes": 1_000_000});
    let run = server.run_with_files(&FILES, json!({"policy": {"budget": budget}})).await;
    let created = |n: u32| format!("--- /dev/null\n+++ b/many/{n}.txt\n@@ -0,0 +1 @@\n+{n}\n");
    run.patch(&(0..300).map(created).collect::<String>()).await.ok();
    server.until_journal_is_empty().await;
    let Some(strace) = Strace::attach(&server, "openat2", "error=EIO:when=60000") else { return };
    run.patch("--- a/src/a.rs\n+++ b/src/a.rs\n@@ -1,3 +1,2 @@\n 1\n-2\n 3\n").await.ok();
    server.until_journal_is_empty().await;
    drop(strace);
    let opened = std::fs::read_to_string(server.home.join("strace")).unwrap().matches("openat2(").count();
    assert!((1..=30).contains(&opened), "{opened} files were opened");
}

#[rstest]
#[tokio::test]
async fn line_endings_and_missing_final_newlines_are_kept(#[values(Backend::Sqlite)] backend: Backend) {
    let files = [("crlf.txt", "a\r\nb\r\nc\r\n"), ("open.txt", "a\nb"), ("bom.txt", "\u{feff}a\nb\n")];
    let (_server, run) = Run::shared(backend, &files).await;
    run.patch("--- a/crlf.txt\n+++ b/crlf.txt\n@@ -1,3 +1,3 @@\n a\r\n-b\r\n+B\r\n c\r\n").await.ok();
    assert_eq!(run.on_disk("crlf.txt"), "a\r\nB\r\nc\r\n");
    let open = "--- a/open.txt\n+++ b/open.txt\n@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+B\n\\ No newline at end of file\n";
    run.patch(open).await.ok();
    assert_eq!(run.on_disk("open.txt"), "a\nB");
    run.patch("--- a/bom.txt\n+++ b/bom.txt\n@@ -2 +2 @@\n-b\n+B\n").await.ok();
    assert_eq!(run.on_disk("bom.txt"), "\u{feff}a\nB\n");
}

#[rstest]
#[tokio::test]
async fn a_patch_and_its_reverse_restore_the_tree(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    let tree = run.snapshot();
    let forth = "--- a/src/a.rs\n+++ b/src/a.rs\n@@ -1,3 +1,2 @@\n 1\n-2\n 3\n--- /dev/null\n+++ b/n.txt\n@@ -0,0 +1 @@\n+n\n--- a/gone.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-g\n";
    let back = "--- a/src/a.rs\n+++ b/src/a.rs\n@@ -1,2 +1,3 @@\n 1\n+2\n 3\n--- a/n.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-n\n--- /dev/null\n+++ b/gone.txt\n@@ -0,0 +1 @@\n+g\n";
    let forward = run.patch(forth).await.ok();
    assert_ne!(run.snapshot(), tree);
    assert_ne!(forward["newWorkspaceDiffSha256"], sha256(""));
    let again = run.patch(back).await.ok();
    assert_eq!(run.snapshot(), tree);
    assert_eq!(again["newWorkspaceDiffSha256"], sha256(""));
}

#[rstest]
#[tokio::test]
async fn renames_refer_to_the_tree_before_the_patch(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    let renamed = |from: &str, to: &str| format!("diff --git a/{from} b/{to}\nrename from {from}\nrename to {to}\n");
    let (a, b) = (run.on_disk("src/a.rs"), run.on_disk("src/b.rs"));
    let answer = run.patch(&(renamed("src/a.rs", "src/b.rs") + &renamed("src/b.rs", "src/a.rs"))).await.ok();
    assert_eq!((run.on_disk("src/a.rs"), run.on_disk("src/b.rs")), (b.clone(), a.clone()));
    assert_eq!(answer["filesTouched"], json!(["src/a.rs", "src/b.rs"]));
    // The artifact of a swap is a patch that reverts it.
    let artifact = run.artifact(answer["artifactUris"][0].as_str().unwrap()).await;
    run.patch(&artifact).await.ok();
    assert_eq!((run.on_disk("src/a.rs"), run.on_disk("src/b.rs")), (a.clone(), b));

    let recreated =
        "diff --git a/src/a.rs b/src/a.rs\nnew file mode 100644\n--- /dev/null\n+++ b/src/a.rs\n@@ -0,0 +1 @@\n+new\n";
    let answer = run.patch(&(renamed("src/a.rs", "src/z.rs") + recreated)).await.ok();
    assert_eq!((run.on_disk("src/z.rs"), run.on_disk("src/a.rs")), (a, "new\n".to_owned()));
    assert_eq!((&answer["insertions"], &answer["deletions"]), (&json!(1), &json!(0)));
    let artifact = run.artifact(answer["artifactUris"][0].as_str().unwrap()).await;
    assert!(artifact.contains("new file mode 100644") && artifact.contains("rename to src/z.rs"), "{artifact}");
}

#[rstest]
#[tokio::test]
async fn a_patch_as_a_model_writes_it_is_applied(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    let patch = "  *** Begin Patch \n *** Add File: new.txt\n+new\n  *** Update File: src/b.rs\n@@\n+four\n\t*** Update File: README.md\n\
                 @@ # hi\n+\n+more\n  *** End Patch\n\n";
    run.patch(patch).await.ok();
    assert_eq!(run.on_disk("new.txt"), "new\n");
    assert_eq!(run.on_disk("src/b.rs"), "one\ntwo\nthree\nfour\n");
    assert_eq!(run.on_disk("README.md"), "# hi\n\nmore\n");
}

#[rstest]
#[tokio::test]
async fn the_refusal_of_a_patch_says_what_to_do(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    let tree = run.snapshot();
    let begin = |body: &str| format!("*** Begin Patch\n{body}*** End Patch\n");
    // A header with a blank before it is a line of the hunk above it.
    let padded = begin("*** Update File: src/b.rs\n@@\n-two\n+2\n *** Update File: README.md\n@@\n-# hi\n+# ho\n");
    let refused = run.patch(&padded).await.refused("PATCH_INVALID");
    assert!(refused["message"].as_str().unwrap().contains("line 6 of the patch"), "{refused:#}");
    assert!(refused["hint"].as_str().unwrap().contains("without blanks before `***`"), "{refused:#}");
    let exists = run.patch(&begin("*** Add File: README.md\n+x\n")).await.refused("ALREADY_EXISTS");
    assert!(exists["hint"].as_str().unwrap().contains("write_file"), "{exists:#}");
    assert!(!exists["message"].as_str().unwrap().contains("nothing of the patch"), "{exists:#}");
    // Of several files none is changed, no matter what is wrong with one.
    let ok = "*** Update File: src/b.rs\n@@\n-two\n+2\n";
    for (rest, code) in [
        ("*** Update File: README.md\n@@\n-none\n+x\n", "PATCH_CONFLICT"),
        ("*** Update File: none.txt\n@@\n-none\n+x\n", "NOT_FOUND"),
        ("*** Add File: README.md\n+x\n", "ALREADY_EXISTS"),
        ("*** Add File: .env\n+x\n", "POLICY_DENIED_SECRET"),
        ("*** Add File: target/x\n+x\n", "POLICY_DENIED"),
        ("*** Add File: ../x\n+x\n", "PATH_REJECTED"),
        ("*** Add File: x\nx\n", "PATCH_INVALID"),
    ] {
        let refused = run.patch(&begin(&format!("{ok}{rest}"))).await.refused(code);
        let message = refused["message"].as_str().unwrap();
        assert!(message.ends_with("; nothing of the patch was applied"), "{message}");
    }
    assert_eq!(run.snapshot(), tree);
}
