//! `replace_range`: whole lines by their numbers.

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Run, sha256};

const TEXT: &str = "one\ntwo\nthree\n";

async fn replace(run: &Run, path: &str, lines: (u64, u64), content: &str, more: Value) -> Answer {
    let mut input = json!({"path": path, "startLine": lines.0, "endLine": lines.1, "content": content, "expectedSha256": "seen", "reason": "r"});
    input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    run.call("replace_range", input).await
}

#[rstest]
#[tokio::test]
async fn whole_lines_are_replaced(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", TEXT)]).await;
    let expected = json!({"expectedSha256": sha256(TEXT)});
    let dry = json!({"expectedSha256": sha256(TEXT), "dryRun": true});
    let dry = replace(&run, "a.txt", (2, 2), "2\n2.5\n", dry).await.ok();
    assert_eq!(run.on_disk("a.txt"), TEXT);
    let done = replace(&run, "a.txt", (2, 2), "2\n2.5\n", expected).await.ok();
    let want = "one\n2\n2.5\nthree\n";
    assert_eq!(run.on_disk("a.txt"), want);
    for answer in [&dry, &done] {
        for (member, value) in [
            ("path", json!("a.txt")),
            ("created", json!(false)),
            ("oldSha256", json!(sha256(TEXT))),
            ("newSha256", json!(sha256(want))),
            ("bytesWritten", json!(want.len())),
            ("insertions", json!(2)),
            ("deletions", json!(1)),
            ("replacements", json!(1)),
        ] {
            assert_eq!(answer[member], value, "{member}: {answer:#}");
        }
    }
    assert!(done["summary"].as_str().unwrap().contains("replaced line 2 of a.txt (+2 -1)"), "{done:#}");
    // Its own change is seen: insert, append, remove.
    replace(&run, "a.txt", (1, 0), "zero", json!({})).await.ok();
    replace(&run, "a.txt", (6, 5), "four\n", json!({})).await.ok();
    replace(&run, "a.txt", (3, 4), "", json!({})).await.ok();
    assert_eq!(run.on_disk("a.txt"), "zero\none\nthree\nfour\n");
    let record = run.last_record().await;
    assert_eq!((&record["tool"], &record["pathsWritten"]), (&json!("replace_range"), &json!(["a.txt"])));
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn the_form_of_the_file_is_kept(#[values(Backend::Sqlite)] backend: Backend) {
    let table = [
        ("crlf.txt", "a\r\nb\r\n", (2, 2), "x\ny", "a\r\nx\r\ny\r\n"),
        ("mixed.txt", "a\r\nb\nc\r\n", (2, 2), "B\n", "a\r\nB\nc\r\n"),
        ("bom.txt", "\u{feff}a\nb\n", (1, 1), "A\n", "\u{feff}A\nb\n"),
        ("open.txt", "a\nb", (2, 2), "B", "a\nB"),
        ("ended.txt", "a\nb", (2, 2), "B\n", "a\nB\n"),
        ("append.txt", "a\nb", (3, 2), "c", "a\nb\nc"),
        ("empty.txt", "", (1, 0), "x\n", "x\n"),
    ];
    let files: Vec<(&str, &str)> = table.iter().map(|(path, text, ..)| (*path, *text)).collect();
    let (_server, run) = Run::shared(backend, &files).await;
    run.put("utf16.txt", [0xff, 0xfe, b'a', 0, b'\n', 0, b'b', 0, b'\n', 0]);
    run.put("latin.txt", b"gr\xfc\xdfe\nan alle, die dies lesen\n");
    run.accept_tree().await;
    for (path, _, lines, content, want) in table {
        run.ok("read_file", json!({"path": path})).await;
        replace(&run, path, lines, content, json!({})).await.ok();
        assert_eq!(run.on_disk(path), want, "{path}");
    }
    for path in ["utf16.txt", "latin.txt"] {
        run.ok("read_file", json!({"path": path})).await;
        replace(&run, path, (2, 2), "x\n", json!({})).await.ok();
    }
    let bytes = |path: &str| std::fs::read(run.file(path)).unwrap();
    assert_eq!(bytes("utf16.txt"), [0xff, 0xfe, b'a', 0, b'\n', 0, b'x', 0, b'\n', 0]);
    assert_eq!(bytes("latin.txt"), b"gr\xfc\xdfe\nx\n");
}

#[rstest]
#[tokio::test]
async fn lines_that_do_not_exist_and_versions_that_are_not_known_are_refused(
    #[values(Backend::Sqlite)] backend: Backend,
) {
    let files = [("a.txt", TEXT), (".env", "A=1\n"), ("target/g.txt", "g\n"), ("d/x.txt", "x\n")];
    let (_server, run) = Run::shared(backend, &files).await;
    let expected = json!({"expectedSha256": sha256(TEXT)});
    for lines in [(4, 4), (5, 4), (1, 9), (3, 1), (0, 0), (1 << 53, 1 << 53)] {
        let refused = replace(&run, "a.txt", lines, "x\n", expected.clone()).await.refused("INVALID_REQUEST");
        if lines.0 > 0 && lines.1.saturating_add(1) >= lines.0 {
            assert_eq!(refused["totalLines"], 3, "{refused:#}");
            assert!(refused["message"].as_str().unwrap().contains("has 3 lines"), "{refused:#}");
        }
    }
    replace(&run, "a.txt", (1, 0), "", expected.clone()).await.refused("INVALID_REQUEST");
    let missing = json!({"path": "a.txt", "startLine": 1, "endLine": 1, "content": "x\n", "reason": "r"});
    run.call("replace_range", missing).await.refused("INVALID_REQUEST");
    // The version is checked before the lines.
    for lines in [(1, 1), (9, 9)] {
        replace(&run, "a.txt", lines, "x\n", json!({})).await.refused("WRITE_CONFLICT");
        let stale = json!({"expectedSha256": sha256("stale")});
        replace(&run, "a.txt", lines, "x\n", stale).await.refused("WRITE_CONFLICT");
    }
    for (path, code) in [
        ("none.txt", "NOT_FOUND"),
        (".env", "POLICY_DENIED_SECRET"),
        ("target/g.txt", "POLICY_DENIED"),
        ("d", "NOT_A_FILE"),
        ("../x", "PATH_REJECTED"),
    ] {
        replace(&run, path, (1, 1), "x\n", json!({})).await.refused(code);
    }
    run.put("pic.bin", [0, 1]);
    replace(&run, "pic.bin", (1, 1), "x\n", json!({})).await.refused("UNSUPPORTED_BINARY");
    let budget = "x\n".repeat(900);
    replace(&run, "a.txt", (1, 1), &budget, expected.clone()).await.refused("PATCH_BUDGET_EXCEEDED");
    let input = json!({"permissions": ["file:read", "file:write:create", "file:patch:apply"]});
    let token = run.operator.post(&format!("/v1/runs/{}/tokens", run.id), input).await.is(201);
    let agent = run.agent.with_token(token["token"].as_str());
    let other = Run { agent, ..run.clone() };
    replace(&other, "a.txt", (1, 1), "x\n", expected).await.refused("FORBIDDEN");
    assert_eq!(run.on_disk("a.txt"), TEXT);
}

#[rstest]
#[tokio::test]
async fn it_is_listed_with_the_other_tools(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[]).await;
    let tools = run.agent.get("/v1/tools").await.ok();
    let tool = tools["items"].as_array().unwrap().iter().find(|tool| tool["name"] == "replace_range").unwrap();
    assert_eq!((&tool["mutates"], &tool["permissions"]), (&json!(true), &json!(["file:write:replace"])));
    let mut required: Vec<_> =
        tool["inputSchema"]["required"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    required.sort_unstable();
    assert_eq!(required, ["content", "endLine", "expectedSha256", "path", "reason", "startLine"]);
    let document = run.agent.get("/openapi.json").await.ok();
    assert!(document["paths"].get("/v1/runs/{run}/tools/replace_range").is_some());
}
