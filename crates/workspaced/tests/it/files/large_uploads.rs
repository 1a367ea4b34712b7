//! Uploads over 1 MiB: judged by path before the body, and by content like small files.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Run, Server, assert_growth, sha256};

const MIB: usize = 1 << 20;
const KEY: &str =
    "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7\n-----END PRIVATE KEY-----\n";

/// Returns a text of `bytes` in lines.
fn lines(bytes: usize) -> Vec<u8> {
    let mut text = Vec::with_capacity(bytes + 100);
    while text.len() < bytes {
        text.extend_from_slice(format!("line {} {}\n", text.len(), "x".repeat(80)).as_bytes());
    }
    text.truncate(bytes - 1);
    text.push(b'\n');
    text
}

fn count(text: &[u8]) -> usize {
    text.split(|byte| *byte == b'\n').count() - 1
}

async fn send(run: &Run, method: Method, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Answer {
    let reason = (method != Method::GET && method != Method::HEAD).then_some(("x-reason", "because"));
    let mut request = run.agent.request(method, &format!("/v1/runs/{}/files/{path}", run.id));
    for (name, value) in reason.iter().chain(headers) {
        request = request.header(*name, *value);
    }
    run.agent.send(request.body(body)).await
}

async fn create(run: &Run, path: &str, body: Vec<u8>) -> Answer {
    send(run, Method::PUT, path, &[("if-none-match", "*")], body).await
}

/// Returns whether `tmp/` is empty.
fn is_tmp_empty(run: &Run) -> bool {
    std::fs::read_dir(run.repo.parent().unwrap().join("tmp")).unwrap().count() == 0
}

fn large_budget() -> Value {
    let budget = json!({"maxInsertions": 1_000_000, "maxDeletions": 1_000_000, "maxBytes": 1_000_000_000});
    json!({"policy": {"budget": budget, "outsideChanges": "RECORD"}})
}

#[rstest]
#[tokio::test]
async fn a_credential_at_any_offset_of_a_large_upload_is_found(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared_with(backend, &[("a.txt", "a\n")], large_budget()).await;
    let tree = run.snapshot();
    for at in [0, 256 * 1024 - 40, MIB - 60, MIB - 1, 2 * MIB - KEY.len()] {
        for binary in [false, true] {
            let mut body = lines(2 * MIB);
            if binary {
                body[..8].fill(0);
            }
            let at = if binary { at.max(8) } else { at };
            body[at..at + KEY.len()].copy_from_slice(KEY.as_bytes());
            let refused = create(&run, "c.py", body).await.refused("POLICY_DENIED_SECRET");
            assert_eq!(refused["reasons"], json!(["credential:private-key"]), "at {at}: {refused:#}");
        }
    }
    let text = String::from_utf8([lines(MIB + 7).as_slice(), KEY.as_bytes()].concat()).unwrap();
    let wide: Vec<u8> = [0xff, 0xfe].into_iter().chain(text.encode_utf16().flat_map(u16::to_le_bytes)).collect();
    create(&run, "c.txt", wide).await.refused("POLICY_DENIED_SECRET");
    // The same without a byte order mark, small and large.
    for text in [text.as_str(), KEY] {
        for to_bytes in [u16::to_le_bytes, u16::to_be_bytes] {
            let wide: Vec<u8> = text.encode_utf16().flat_map(to_bytes).collect();
            create(&run, "c.txt", wide).await.refused("POLICY_DENIED_SECRET");
        }
    }
    assert_eq!(run.snapshot(), tree);
    assert!(is_tmp_empty(&run));
    // A file without a key is stored, and a key in the old content may remain.
    let mut old = lines(200_000);
    old.extend_from_slice(KEY.as_bytes());
    run.put("old.txt", &old);
    let tag = format!("\"{}\"", sha256(&old));
    let new = [lines(2 * MIB).as_slice(), KEY.as_bytes()].concat();
    send(&run, Method::PUT, "old.txt", &[("if-match", &tag)], new.clone()).await.is(200);
    let newer = [lines(3 * MIB).as_slice(), KEY.as_bytes()].concat();
    let tag = format!("\"{}\"", sha256(&new));
    send(&run, Method::PUT, "old.txt", &[("if-match", &tag)], newer).await.is(200);
    create(&run, "d.py", lines(3 * MIB)).await.is(201);
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn the_budget_applies_to_a_large_text(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[]).await;
    let text = lines(3 * MIB);
    let refused = create(&run, "c.py", text.clone()).await.refused("PATCH_BUDGET_EXCEEDED");
    assert_eq!(refused["reasons"], json!(["budget:maxInsertions", "budget:maxBytes"]), "{refused:#}");
    assert_eq!((&refused["limit"], &refused["actual"]), (&json!(800), &json!(count(&text))));
    // A binary file has only the transfer limit.
    let mut binary = text.clone();
    binary[5] = 0;
    create(&run, "c.bin", binary).await.is(201);
    assert!(is_tmp_empty(&run));
    let total = json!({"maxInsertions": count(&text) + 1});
    let mut extra = large_budget();
    extra["policy"]["runBudget"] = total;
    let (_server, run) = Run::shared_with(backend, &[], extra).await;
    create(&run, "a.py", text.clone()).await.is(201);
    let refused = create(&run, "b.py", lines(2 * MIB)).await.refused("PATCH_BUDGET_EXCEEDED");
    assert_eq!(refused["reasons"], json!(["runBudget:maxInsertions"]));
    // A replaced large file counts completely, because the versions are not compared.
    let tag = format!("\"{}\"", sha256(&text));
    let refused = send(&run, Method::PUT, "a.py", &[("if-match", &tag)], lines(2 * MIB)).await;
    refused.refused("PATCH_BUDGET_EXCEEDED");
    assert_eq!(run.on_disk("a.py").len(), 3 * MIB);
}

#[rstest]
#[tokio::test]
async fn a_text_that_becomes_binary_or_comes_from_it_counts_its_lines(#[values(Backend::Sqlite)] backend: Backend) {
    let text = lines(2000);
    let (small, huge) = (String::from_utf8(text.clone()).unwrap(), lines(2 * MIB));
    let budget = json!({"maxInsertions": 10, "maxDeletions": 10, "maxBytes": 1_000_000_000});
    let policy = json!({"policy": {"budget": budget, "outsideChanges": "RECORD"}});
    let (_server, run) = Run::shared_with(backend, &[("a.rs", &small)], policy).await;
    run.put("huge.rs", &huge);
    assert!(count(&text) > 10);
    let binary = b"\0".to_vec();
    let replace = async |path: &str, old: &[u8], new: &[u8]| {
        let tag = format!("\"{}\"", sha256(old));
        send(&run, Method::PUT, path, &[("if-match", &tag)], new.to_vec()).await
    };
    for (path, old) in [("a.rs", &text), ("huge.rs", &huge)] {
        let refused = replace(path, old, &binary).await.refused("PATCH_BUDGET_EXCEEDED");
        assert_eq!((&refused["reasons"], &refused["actual"]), (&json!(["budget:maxDeletions"]), &json!(count(old))));
    }
    // By way of a binary file.
    create(&run, "b.rs", binary.clone()).await.is(201);
    for new in [&text, &huge] {
        let refused = replace("b.rs", &binary, new).await.refused("PATCH_BUDGET_EXCEEDED");
        assert_eq!((&refused["reasons"], &refused["actual"]), (&json!(["budget:maxInsertions"]), &json!(count(new))));
    }
    replace("b.rs", &binary, b"\0two").await.is(200);
    replace("b.rs", b"\0two", b"1\n2\n").await.is(200);
}

#[rstest]
#[tokio::test]
async fn the_deletion_of_a_large_text_counts_its_lines(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared_with(backend, &[], json!({"policy": {"outsideChanges": "RECORD"}})).await;
    let text = lines(2 * MIB);
    run.put("a.txt", &text);
    let hash = sha256(&text);
    let tag = format!("\"{hash}\"");
    let input = json!({"path": "a.txt", "expectedSha256": hash, "reason": "r"});
    let refused = [
        run.call("delete_file", input).await,
        send(&run, Method::DELETE, "a.txt", &[("if-match", &tag)], Vec::new()).await,
        send(&run, Method::PUT, "a.txt", &[("if-match", &tag)], b"small\n".to_vec()).await,
    ];
    for refused in refused {
        let refused = refused.refused("PATCH_BUDGET_EXCEEDED");
        assert_eq!(refused["reasons"], json!(["budget:maxDeletions"]), "{refused:#}");
        assert_eq!(refused["actual"], json!(count(&text)));
    }
    // A move counts no lines.
    let moved = json!({"from": "a.txt", "to": "b.txt", "expectedSha256": hash, "reason": "r"});
    run.ok("move_file", moved).await;
    let budget = json!({"maxDeletions": count(&text), "maxInsertions": 1});
    let policy = json!({"policy": {"budget": budget, "outsideChanges": "RECORD"}});
    let (_server, run) = Run::shared_with(backend, &[], policy).await;
    run.put("a.txt", &text);
    let refused = send(&run, Method::PUT, "a.txt", &[("if-match", &tag)], b"1\n2\n".to_vec()).await;
    assert_eq!(refused.refused("PATCH_BUDGET_EXCEEDED")["reasons"], json!(["budget:maxInsertions"]));
    send(&run, Method::PUT, "a.txt", &[("if-match", &tag)], b"1\n".to_vec()).await.is(200);
}

#[rstest]
#[tokio::test]
async fn a_large_upload_that_needs_approval_asks_once_its_body_is_known(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (server, run) = Run::shared(backend, &[]).await;
    let answer = ask(&server, &run, "Cargo.lock", &format!("If-None-Match: *\r\nContent-Length: {}", 2 * MIB));
    assert!(answer.starts_with("HTTP/1.1 100"), "{answer}");
    assert!(run.get().await["counts"]["pendingApprovals"] == 0);
    create(&run, "Cargo.lock", lines(150 * 1024)).await.is(202);
    let budget = large_budget()["policy"]["budget"].clone();
    let policy = json!({"requireApprovalIf": ["changesPublicApi"], "budget": budget, "outsideChanges": "RECORD"});
    let run = server.run(json!({"policy": policy})).await;
    let asked = create(&run, "lib.rs", lines(2 * MIB)).await.refused("APPROVAL_REQUIRED");
    assert_eq!(asked["reasons"], json!(["requireApprovalIf:changesPublicApi"]));
    create(&run, "lib.md", lines(2 * MIB)).await.is(201);
    // A move of an existing large file needs no stored content.
    let text = lines(2 * MIB);
    run.put("old.rs", &text);
    let input = json!({"from": "old.rs", "to": "new.rs", "expectedSha256": sha256(&text), "reason": "r"});
    let asked = run.call("move_file", input).await.refused("APPROVAL_REQUIRED");
    let path = format!("/v1/approvals/{}/approve", asked["approvalId"].as_str().unwrap());
    run.operator.post(&path, json!({"decidedBy": "someone"})).await.ok();
    assert_eq!(run.on_disk("new.rs").len(), 2 * MIB);
}

/// Sends the head of an upload with `Expect: 100-continue` and returns the answer.
fn ask(server: &Server, run: &Run, path: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(server.base.trim_start_matches("http://")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let token = run.agent.token.as_deref().unwrap();
    let head = format!(
        "PUT /v1/runs/{}/files/{path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\
         X-Reason: r\r\nExpect: 100-continue\r\n{headers}\r\n\r\n",
        run.id
    );
    stream.write_all(head.as_bytes()).unwrap();
    let (mut answer, mut buffer) = (Vec::new(), [0; 4096]);
    // Until 100 Continue or the complete problem.
    while let Ok(read @ 1..) = stream.read(&mut buffer) {
        answer.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&answer);
        if text.starts_with("HTTP/1.1 100") || text.trim_end().ends_with('}') {
            break;
        }
    }
    String::from_utf8_lossy(&answer).into_owned()
}

#[rstest]
#[tokio::test]
async fn an_upload_is_judged_by_its_path_before_its_body(#[values(Backend::Sqlite)] backend: Backend) {
    let policy = json!({"policy": {"maxTransferBytes": 9_000_000, "deny": ["secret/"]}});
    let (server, run) = Run::shared_with(backend, &[("a.txt", "a\n"), ("target/x", "x\n")], policy).await;
    let (new, stale) = ("If-None-Match: *", format!("If-Match: \"{}\"", sha256("stale")));
    let right = format!("If-Match: \"{}\"", sha256("a\n"));
    let table = [
        (".env", new, 403, "POLICY_DENIED_SECRET"),
        ("target/y", new, 403, "POLICY_DENIED"),
        ("secret/y", new, 403, "POLICY_DENIED"),
        (".git/x", new, 400, "PATH_REJECTED"),
        ("a.txt", new, 412, "ALREADY_EXISTS"),
        ("a.txt", &stale, 412, "WRITE_CONFLICT"),
        ("none.txt", &stale, 412, "WRITE_CONFLICT"),
        ("a.txt/b", new, 400, "NOT_A_DIRECTORY"),
    ];
    for (path, precondition, status, code) in table {
        let headers = format!("{precondition}\r\nContent-Length: 5000000");
        let answer = ask(&server, &run, path, &headers);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")) && answer.contains(code), "{path}: {answer}");
        let record = run.last_record().await;
        assert_eq!((&record["code"], &record["outcome"]), (&json!(code), &json!("refused")), "{path}");
        assert!(code == "PATH_REJECTED" || record["files"][0]["path"] == path, "{path}: {record:#}");
    }
    let answer = ask(&server, &run, "b.bin", "If-None-Match: *\r\nContent-Length: 9000001");
    assert!(answer.starts_with("HTTP/1.1 413") && answer.contains("9000000"), "{answer}");
    let answer = ask(&server, &run, "b.bin", "If-None-Match: *\r\nContent-Length: 9000000");
    assert!(answer.starts_with("HTTP/1.1 100"), "{answer}");
    let answer = ask(&server, &run, "a.txt", &format!("{right}\r\nContent-Length: 9000000"));
    assert!(answer.starts_with("HTTP/1.1 100"), "{answer}");
    run.operator.post(&format!("/v1/runs/{}/close", run.id), json!({})).await.ok();
    let answer = ask(&server, &run, "b.bin", "If-None-Match: *\r\nContent-Length: 5000000");
    assert!(answer.starts_with("HTTP/1.1 409") && answer.contains("RUN_CLOSED"), "{answer}");
}

#[rstest]
#[tokio::test]
async fn a_repeated_large_upload_gets_the_first_answer(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let recording = json!({"policy": {"outsideChanges": "RECORD"}});
    let (server, run) = Run::shared_with(backend, &[("a.txt", "a\n")], recording).await;
    let mut body = lines(2 * MIB);
    body[0] = 0;
    let put = async |path: &str, id: &str, body: &[u8]| {
        send(&run, Method::PUT, path, &[("if-none-match", "*"), ("x-tool-call-id", id)], body.to_vec()).await
    };
    let first = put("b.bin", "one", &body).await.is(201);
    assert_eq!(put("b.bin", "one", &body).await.is(201), first);
    put("b.bin", "one", &body[1..]).await.refused("TOOL_CALL_ID_REUSED");
    let again = || {
        let length = body.len();
        let headers = format!("If-None-Match: *\r\nX-Tool-Call-Id: two\r\nContent-Length: {length}");
        ask(&server, &run, "c.txt", &headers)
    };
    run.put("c.txt", "c\n");
    let refused = again();
    assert!(refused.starts_with("HTTP/1.1 412"), "{refused}");
    std::fs::remove_file(run.repo.join("c.txt")).unwrap();
    let problem = |answer: &str| {
        let mut problem: Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap()).unwrap();
        // It names the request, which is another one.
        problem.as_object_mut().unwrap().remove("instance");
        problem
    };
    assert_eq!(problem(&again()), problem(&refused), "a repeated call got another answer");
    put("c.txt", "three", &body).await.is(201);
    assert!(is_tmp_empty(&run));
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn a_large_file_is_transferred_in_little_memory(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start(backend).await;
    let run = server.run(large_budget()).await;
    let warm = lines(2 * MIB);
    create(&run, "warm.txt", warm.clone()).await.is(201);
    send(&run, Method::GET, "warm.txt", &[], Vec::new()).await;
    let text = lines(64 * MIB);
    let tag = format!("\"{}\"", sha256(&text));
    let version = [("if-match", tag.as_str())];
    let (answer, growth) = server.peak_growth(create(&run, "a.txt", text.clone())).await;
    answer.is(201);
    assert_growth("PUT of 64 MiB that creates", growth, 24);
    let replace = send(&run, Method::PUT, "a.txt", &version, text.clone());
    let (answer, growth) = server.peak_growth(replace).await;
    answer.is(200);
    assert_growth("PUT of 64 MiB that replaces 64 MiB", growth, 24);
    let (answer, growth) = server.peak_growth(send(&run, Method::GET, "a.txt", &[], Vec::new())).await;
    assert_eq!((answer.status, answer.body.len()), (200, 64 * MIB));
    assert_growth("GET of 64 MiB", growth, 24);
    let (answer, growth) = server.peak_growth(send(&run, Method::HEAD, "a.txt", &[], Vec::new())).await;
    assert_eq!(answer.status, 200);
    assert_growth("HEAD of 64 MiB", growth, 16);
    let gone = send(&run, Method::DELETE, "a.txt", &version, Vec::new());
    let (answer, growth) = server.peak_growth(gone).await;
    answer.is(200);
    assert_growth("DELETE of 64 MiB", growth, 16);
    let (answer, growth) = server.peak_growth(create(&run, "b.txt", lines(MIB))).await;
    answer.is(201);
    assert_growth("PUT of 1 MiB of text", growth, 32);
}
