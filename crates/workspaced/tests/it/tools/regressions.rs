//! Regression tests for known defects of similar software.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use reqwest::Method;
use rstest::rstest;
use serde_json::json;

use crate::harness::{Backend, Run, sha256, until_empty};

/// Returns the names in a folder.
fn names_in(folder: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name().to_string_lossy().into_owned();
    std::fs::read_dir(folder).unwrap().map(name).collect()
}

fn bytes_of(run: &Run, path: &str) -> Vec<u8> {
    std::fs::read(run.file(path)).unwrap()
}

#[rstest]
#[tokio::test]
async fn an_edit_keeps_crlf(#[values(Backend::Sqlite)] backend: Backend) {
    let text = "one\r\ntwo\r\nthree\r\n";
    let (_server, run) = Run::shared(backend, &[("a.txt", text), ("b.txt", text)]).await;
    run.edit("a.txt", "one\ntwo", "1\n1.5\n2", json!({})).await.ok();
    assert_eq!(run.on_disk("a.txt"), "1\r\n1.5\r\n2\r\nthree\r\n");
    run.patch("--- a/b.txt\n+++ b/b.txt\n@@ -1,3 +1,4 @@\n one\n-two\n+2\n+2.5\n three\n").await.ok();
    assert_eq!(run.on_disk("b.txt"), "one\r\n2\r\n2.5\r\nthree\r\n");
}

#[rstest]
#[tokio::test]
async fn an_ascii_edit_does_not_corrupt_a_latin_1_file(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[]).await;
    let text = |word: &[u8]| {
        [b"Die Stra\xdfe ist gro\xdf und sch\xf6n.\n".as_slice(), word, b"\n\xc4pfel f\xfcr alle\n"].concat()
    };
    run.put("a.txt", text(b"first"));
    run.put("b.txt", "one\n");
    run.accept_tree().await;
    let read = run.ok("read_file", json!({"path": "a.txt", "format": "raw"})).await;
    assert!(read["content"].as_str().unwrap().contains("Straße"), "{read:#}");
    run.edit("a.txt", "first", "second", json!({})).await.ok();
    assert_eq!(bytes_of(&run, "a.txt"), text(b"second"));
    run.edit("a.txt", "second", "\u{65e5}\u{672c}", json!({})).await.refused("UNSUPPORTED_BINARY");
    assert_eq!(bytes_of(&run, "a.txt"), text(b"second"), "an unencodable character was replaced");
    // A patch gets the same refusal. Its hunk matches, so it is not a conflict.
    let patch = |new: &str| {
        format!(
            "--- a/a.txt\n+++ b/a.txt\n@@ -2 +2 @@\n-second\n+{new}\n--- a/b.txt\n+++ b/b.txt\n@@ -1 +1 @@\n-two\n+2\n"
        )
    };
    let problem = run.patch(&patch("\u{65e5}\u{672c}")).await.refused("UNSUPPORTED_BINARY");
    assert_eq!(problem["path"], "a.txt");
    run.patch(&patch("na\u{ef}ve")).await.refused("PATCH_CONFLICT");
    assert_eq!(bytes_of(&run, "a.txt"), text(b"second"));
}

#[rstest]
#[tokio::test]
async fn a_patch_with_two_notations_of_one_path_is_refused(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "one\ntwo\n")]).await;
    for other in ["./a.txt", "x/../a.txt", ".//a.txt"] {
        let patch =
            format!("--- a.txt\n+++ a.txt\n@@ -1 +1 @@\n-one\n+1\n--- {other}\n+++ {other}\n@@ -2 +2 @@\n-two\n+2\n");
        run.patch(&patch).await.refused("PATCH_INVALID");
        assert_eq!(run.on_disk("a.txt"), "one\ntwo\n", "{other}");
    }
}

#[rstest]
#[tokio::test]
async fn creating_and_moving_do_not_overwrite(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "a\n"), ("b.txt", "b\n")]).await;
    let before = run.snapshot();
    let create = json!({"path": "b.txt", "content": "x\n", "mode": "CREATE_NEW", "reason": "r"});
    run.call("write_file", create).await.refused("ALREADY_EXISTS");
    run.patch("--- /dev/null\n+++ b/b.txt\n@@ -0,0 +1 @@\n+x\n").await.refused("ALREADY_EXISTS");
    let mv = json!({"from": "a.txt", "to": "b.txt", "expectedSha256": sha256("a\n"), "reason": "r"});
    run.call("move_file", mv).await.refused("ALREADY_EXISTS");
    for verb in ["rename", "copy"] {
        let patch = format!("diff --git a/a.txt b/b.txt\nsimilarity index 100%\n{verb} from a.txt\n{verb} to b.txt\n");
        run.patch(&patch).await.refused("ALREADY_EXISTS");
    }
    let put = run.agent.request(Method::PUT, &format!("/v1/runs/{}/files/b.txt", run.id));
    let put = put.header("if-none-match", "*").header("x-reason", "r").body("x\n");
    assert_eq!(run.agent.send(put).await.is(412)["code"], "ALREADY_EXISTS");
    assert_eq!(run.snapshot(), before);
}

#[rstest]
#[tokio::test]
async fn deletion_does_not_follow_links(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("real/x.txt", "x\n")]).await;
    run.link("folder", "real");
    run.link("link.txt", "real/x.txt");
    let before = run.snapshot();
    for path in ["folder/x.txt", "link.txt"] {
        let input = json!({"path": path, "expectedSha256": sha256("x\n"), "reason": "r"});
        run.call("delete_file", input).await.refused("PATH_REJECTED");
        run.patch(&format!("--- a/{path}\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n")).await.refused("PATH_REJECTED");
        let delete = run.agent.request(Method::DELETE, &format!("/v1/runs/{}/files/{path}", run.id));
        let delete = delete.header("if-match", format!("\"{}\"", sha256("x\n"))).header("x-reason", "r");
        run.agent.send(delete).await.refused("PATH_REJECTED");
    }
    assert_eq!(run.snapshot(), before);
}

#[rstest]
#[tokio::test]
async fn a_similar_text_does_not_match(#[values(Backend::Sqlite)] backend: Backend) {
    let text = "fn a() {\n    run(1);\n}\nfn b() {\n\trun(1);\n}\nfn c() {\n    run(1) ;\n}\n";
    let (_server, run) = Run::shared(backend, &[("a.rs", text)]).await;
    run.edit("a.rs", "  run(1);\n}\nfn c", "x", json!({})).await.refused("EDIT_NOT_FOUND");
    run.edit("a.rs", "run(1)", "x", json!({})).await.refused("EDIT_NOT_UNIQUE");
    run.patch("--- a/a.rs\n+++ b/a.rs\n@@ -4,3 +4,3 @@\n fn b() {\n-    run(1);\n+    run(2);\n }\n")
        .await
        .refused("PATCH_CONFLICT");
    assert_eq!(run.on_disk("a.rs"), text);
}

#[rstest]
#[tokio::test]
async fn replacing_all_with_a_text_that_contains_the_old_text_terminates(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "a b a\na\n")]).await;
    let edited = run.edit("a.txt", "a", "aa a", json!({"replaceAll": true})).await.ok();
    assert_eq!((&edited["replacements"], run.on_disk("a.txt")), (&json!(3), "aa a b aa a\naa a\n".into()));
}

#[rstest]
#[case::small(100)]
#[case::staged(3 << 20)]
#[tokio::test]
async fn an_aborted_upload_keeps_the_old_file(#[case] length: usize) {
    let (server, run) = Run::shared(Backend::Sqlite, &[("a.txt", "old\n")]).await;
    let before = run.snapshot();
    let address = run.agent.base.trim_start_matches("http://").to_owned();
    let head = format!(
        "PUT /v1/runs/{}/files/a.txt HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\nif-match: \"{}\"\r\n\
         x-reason: r\r\ncontent-length: {length}\r\n\r\n",
        run.id,
        run.agent.token.as_deref().unwrap(),
        sha256("old\n"),
    );
    let mut stream = std::net::TcpStream::connect(&address).unwrap();
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&vec![b'x'; length / 2]).unwrap();
    stream.flush().unwrap();
    // A part of it is received, most of the time.
    std::thread::sleep(Duration::from_millis(100));
    drop(stream);
    let tmp = server.workspace(&run.id).join("tmp");
    until_empty(&tmp).await;
    assert_eq!(run.snapshot(), before);
    assert_eq!(run.ok("read_file", json!({"path": "a.txt", "format": "raw"})).await["content"], "old\n");
}

#[rstest]
#[tokio::test]
async fn the_etag_depends_on_the_content_and_not_on_the_time(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "aaaa")]).await;
    let path = format!("/v1/runs/{}/files/a.txt", run.id);
    let time = std::fs::metadata(run.file("a.txt")).unwrap().modified().unwrap();
    for content in ["aaaa", "bbbb", "cccc", "aaaa"] {
        run.put("a.txt", content);
        std::fs::File::options().write(true).open(run.repo.join("a.txt")).unwrap().set_modified(time).unwrap();
        let answer = run.agent.get(&path).await;
        assert_eq!(
            (answer.text(), answer.header("etag")),
            (content.to_owned(), format!("\"{}\"", sha256(content)).as_str())
        );
        let stat = run.ok("stat_path", json!({"path": "a.txt"})).await;
        assert_eq!(stat["sha256"], sha256(content));
    }
}

#[rstest]
#[tokio::test]
async fn a_stored_answer_is_returned_only_to_authorized_callers(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[]).await;
    let other = server.run(json!({})).await;
    let input = json!({"toolCallId": "mine", "path": "a.txt", "content": "private\n", "reason": "r"});
    run.ok("write_file", input.clone()).await;
    let path = format!("/v1/runs/{}/tools/write_file", run.id);
    server.nobody().post(&path, input.clone()).await.refused("UNAUTHENTICATED");
    other.agent.post(&path, input.clone()).await.refused("FORBIDDEN");
    server.auditor().post(&path, input.clone()).await.refused("FORBIDDEN");
    let issued = run.operator.post(&format!("/v1/runs/{}/tokens", run.id), json!({})).await.is(201);
    let second = run.agent.with_token(issued["token"].as_str());
    second.post(&path, input.clone()).await.ok();
    let token = format!("/v1/runs/{}/tokens/{}", run.id, issued["tokenId"].as_str().unwrap());
    run.operator.delete(&token).await;
    second.post(&path, input).await.refused("UNAUTHENTICATED");
}

#[rstest]
#[tokio::test]
async fn read_content_is_not_redacted_and_can_be_written_back(#[values(Backend::Sqlite)] backend: Backend) {
    let key = format!("{}{}", "AKIA", "Q3EGRVZ7LNKPXW2M");
    let text = format!("id = {key}\nport = 1\n");
    let (_server, run) = Run::shared(backend, &[("settings.txt", &text)]).await;
    let read = run.ok("read_file", json!({"path": "settings.txt", "format": "raw"})).await;
    assert_eq!(read["content"], text, "the content was redacted");
    run.edit("settings.txt", "port = 1", "port = 2", json!({})).await.ok();
    assert_eq!(run.on_disk("settings.txt"), text.replace("port = 1", "port = 2"));
    // A denied file returns no content at all.
    run.put(".env", format!("KEY={key}\n"));
    let refused = run.call("read_file", json!({"path": ".env"})).await;
    assert!(!refused.contains(&key) && refused.refusal() == "POLICY_DENIED_SECRET");
}

#[rstest]
#[tokio::test]
async fn a_search_continues_after_a_line_of_64_kib(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[]).await;
    for (name, length) in [("a.txt", 64 * 1024 - 1), ("b.txt", 64 * 1024), ("c.txt", 64 * 1024 + 1), ("d.txt", 700_000)]
    {
        run.put(name, format!("{}\nneedle\n{}needle\n", "x".repeat(length), "y".repeat(length)));
    }
    let found = run.ok("search_text", json!({"query": "needle"})).await;
    let lines: Vec<_> = found["matches"].as_array().unwrap().iter().map(|one| (&one["path"], &one["line"])).collect();
    let expected: Vec<_> =
        ["a.txt", "b.txt", "c.txt", "d.txt"].map(|name| [(json!(name), json!(2)), (json!(name), json!(3))]).concat();
    assert_eq!(lines, expected.iter().map(|(path, line)| (path, line)).collect::<Vec<_>>(), "{found:#}");
}

#[rstest]
#[tokio::test]
async fn a_rejected_path_creates_no_folder(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let outside = server.template(&[]);
    run.link("out", outside.to_str().unwrap());
    let create = |path: &str| json!({"path": path, "content": "x\n", "reason": "r"});
    run.call("write_file", create("out/new/folder/x.txt")).await.refused("PATH_REJECTED");
    run.call("write_file", create("../new/x.txt")).await.refused("PATH_REJECTED");
    run.patch("--- /dev/null\n+++ b/out/new/x.txt\n@@ -0,0 +1 @@\n+x\n").await.refused("PATH_REJECTED");
    let mv = json!({"from": "a.txt", "to": "out/new/a.txt", "expectedSha256": sha256("a\n"), "reason": "r"});
    run.call("move_file", mv).await.refused("PATH_REJECTED");
    assert!(names_in(&outside).is_empty(), "{:?}", names_in(&outside));
    assert!(!run.repo.parent().unwrap().join("new").exists());
    // A call that is refused for another reason creates no folder either.
    run.call("write_file", create("made/.env/x.txt")).await.refused("POLICY_DENIED_SECRET");
    assert!(!run.repo.join("made").exists());
}

#[rstest]
#[tokio::test]
async fn a_new_credential_is_refused_before_the_file_is_read(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    run.put("pic.bin", b"\0\x01\xff");
    run.put("large.txt", "x\n".repeat(600_000));
    let key = format!("{}{}", "AKIA", "Q3EGRVZ7LNKPXW2M");
    let before = run.snapshot();
    let write = |path: &str, mode: &str, expected: &str| json!({"path": path, "content": format!("{key}\n"), "mode": mode, "expectedSha256": sha256(expected), "reason": "r"});
    for (path, mode) in [
        ("none.txt", "REPLACE_EXISTING"),
        ("a.txt", "CREATE_NEW"),
        ("a.txt", "REPLACE_EXISTING"),
        ("pic.bin", "CREATE_OR_REPLACE"),
        ("large.txt", "CREATE_OR_REPLACE"),
    ] {
        let answer = run.call("write_file", write(path, mode, "stale")).await;
        assert_eq!(answer.refusal(), "POLICY_DENIED_SECRET", "{path} {mode}");
        assert!(!answer.contains(&key));
    }
    for path in ["none.txt", "a.txt", "pic.bin"] {
        run.edit(path, "none such", &key, json!({})).await.refused("POLICY_DENIED_SECRET");
        run.patch(&format!("--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-none such\n+{key}\n"))
            .await
            .refused("POLICY_DENIED_SECRET");
    }
    run.call("write_file", write("../out.txt", "CREATE_NEW", "")).await.refused("PATH_REJECTED");
    assert_eq!(run.snapshot(), before);
}
