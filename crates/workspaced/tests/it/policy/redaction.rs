//! Credentials in free text of callers are redacted before they are recorded.

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Run, Server, assert_chain, sha256};

/// Returns credentials, assembled so that this file contains none.
fn secrets() -> [String; 3] {
    let word = "aB3dE5gH7jK9mN1pQ3sT5vW7yZ9bC1dF3gH5jK7m";
    [format!("ghp_{}", &word[..36]), format!("AKIA{}", "IOSFODNN7EXAMPLF"), format!("wsr_{word}{}", &word[..9])]
}

/// Asserts that `text` contains no credential.
#[track_caller]
fn assert_redacted(text: &str) {
    for secret in secrets() {
        assert!(!text.contains(&secret), "{text}");
    }
}

#[rstest]
#[tokio::test]
async fn a_credential_in_a_reason_is_stored_nowhere(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut server = Server::start(backend).await;
    let (run, _) = server.run_from_git(&[("Cargo.lock", "old\n"), ("a.txt", "a\n")], json!({})).await;
    let reason = format!("use {} as in the mail", secrets()[0]);
    let write = json!({"toolCallId": "w1", "stepId": format!("step {}", secrets()[1]), "path": "b.txt",
        "content": "b\n", "reason": reason});
    let done = run.ok("write_file", write.clone()).await;
    assert_eq!(run.ok("write_file", write.clone()).await, done, "a repeated call is compared by its original input");
    let mut other = write;
    other["reason"] = json!("use [redacted: GitHub token] as in the mail");
    run.call("write_file", other).await.refused("TOOL_CALL_ID_REUSED");
    let record = &run.calls().await[0];
    assert_eq!(record["reason"], "use [redacted: GitHub token] as in the mail");
    assert_eq!(record["stepId"], "step [redacted: AWS access key ID]");

    // A call that requires approval, its decision, and its repetition.
    let lock = json!({"toolCallId": "l1", "path": "Cargo.lock", "content": "new\n", "expectedSha256": sha256("old\n"), "reason": reason});
    let asked = run.call("write_file", lock.clone()).await.refused("APPROVAL_REQUIRED");
    let approval = format!("/v1/approvals/{}", asked["approvalId"].as_str().unwrap());
    assert_eq!(run.operator.get(&approval).await.ok()["reason"], "use [redacted: GitHub token] as in the mail");
    let decision =
        json!({"decidedBy": format!("ada {}", secrets()[2]), "note": format!("key {} is fine", secrets()[1])});
    let decided = run.operator.post(&format!("{approval}/approve"), decision).await.ok();
    assert_eq!(decided["state"], "approved", "{decided:#}");
    assert_eq!(decided["onBehalfOf"], "ada [redacted: workspaced token]");
    assert_eq!(decided["note"], "key [redacted: AWS access key ID] is fine");
    assert_eq!(run.on_disk("Cargo.lock"), "new\n");
    run.call("write_file", lock).await.refused("APPROVAL_REQUIRED");
    let call = run.agent.get(&format!("/v1/runs/{}/tool-calls/l1", run.id)).await.ok();
    assert_eq!(call["outcome"], "ok", "{call:#}");

    // Batches, file routes, refusals, and messages that quote the input.
    let calls = json!([{"tool": "write_file", "input": {"path": "c.txt", "content": "c\n", "reason": reason}}]);
    run.agent.post(&format!("/v1/runs/{}/batch", run.id), json!({"calls": calls, "atomic": true})).await.ok();
    let request = run.agent.request(Method::PUT, &format!("/v1/runs/{}/files/d.bin", run.id));
    let request = request.header("if-none-match", "*").header("x-reason", &reason).body("\0d");
    run.agent.send(request).await.is(201);
    run.call("write_file", json!({"path": "a.txt", "content": "x\n", "reason": reason}))
        .await
        .refused("WRITE_CONFLICT");
    for (tool, input) in [
        ("read_file", json!({"path": "a.txt", "mount": secrets()[0]})),
        ("read_file", json!({"path": format!("../{}", secrets()[0])})),
        ("write_file", json!({"path": "../x", secrets()[0].as_str(): 1, "content": "", "reason": "r"})),
        (
            "write_file",
            json!({"toolCallId": "r1", "path": "x", secrets()[1].as_str(): 1, "content": "", "reason": "r"}),
        ),
        ("list_dir", json!({"toolCallId": secrets()[0]})),
    ] {
        let answer = run.call(tool, input).await;
        assert!((400..500).contains(&answer.status), "{}", answer.text());
    }
    assert_redacted(&json!(run.audit().await).to_string());
    assert_chain(&run.id, &run.audit().await);
    for path in ["/v1/approvals", "/v1/audit?limit=1000", "/v1/runs"] {
        assert_redacted(&run.operator.get(path).await.text());
    }
    let bundle = run.agent.get(&format!("/v1/runs/{}/bundle", run.id)).await;
    assert_redacted(&bundle.text());
    assert!(server.stop().success());
    assert_redacted(&server.log());
    if backend == Backend::Sqlite {
        let database = std::fs::read(server.data_dir().join("workspaced.db")).unwrap();
        assert_redacted(&String::from_utf8_lossy(&database));
    }
}

#[rstest]
#[tokio::test]
async fn a_credential_in_labels_and_descriptions_is_redacted(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    let docs = server.template(&[("a.md", "a\n")]);
    let labels = json!({"ticket": format!("see {}", secrets()[0]), "plain": "text"});
    let mounts = json!([{"name": "docs", "description": format!("by {}", secrets()[1]), "path": docs}]);
    let run = server.run(json!({"labels": labels, "mounts": mounts})).await;
    let want = json!({"ticket": "see [redacted: GitHub token]", "plain": "text"});
    assert_eq!((&run.created["run"]["labels"], &run.get().await["labels"]), (&want, &want));
    let tools = run.agent.get("/v1/tools").await.ok();
    assert_eq!(tools["mounts"][0]["description"], "by [redacted: AWS access key ID]");
}

#[rstest]
#[tokio::test]
async fn the_length_of_a_reason_is_checked_before_redaction(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[]).await;
    let secret = &secrets()[1];
    // One reason is too long only after redaction, the other only before.
    let long = format!("{}{secret}", "x ".repeat((2000 - secret.len()) / 2));
    assert_eq!(long.chars().count(), 2000);
    let write = |path: &str, reason: &str| json!({"path": path, "content": "x\n", "reason": reason});
    run.ok("write_file", write("a.txt", &long)).await;
    let too_long = format!("ghp_{}", "aB3dE5gH7j".repeat(200));
    run.call("write_file", write("b.txt", &too_long)).await.refused("INVALID_REQUEST");
    assert!(run.calls().await[0]["reason"].as_str().unwrap().ends_with("x [redacted: AWS access key ID]"));
    let records: Vec<Value> = run.audit().await;
    assert!(records.iter().all(|record| !record.to_string().contains(secret.as_str())), "{records:#?}");
}

#[rstest]
#[tokio::test]
async fn a_truncated_credential_is_redacted(#[values(Backend::Sqlite)] backend: Backend) {
    let mut server = Server::start(backend).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let secret = &secrets()[0];
    let body = &secret[..30];
    let long = |length: usize| "a".repeat(length);
    let patch = |name: &str| format!("--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+x\n");
    for (tool, input) in [
        ("read_file", json!({"path": format!("../{}/{secret}", long(157))})),
        ("search_text", json!({"query": format!("{} {secret}(", long(350)), "mode": "regex"})),
        ("read_file", json!({"path": "a.txt", format!("{} {secret}", long(340)): 1})),
        ("apply_patch", json!({"patch": patch(&format!("../{}/{secret}", long(157))), "reason": "r"})),
        ("apply_patch", json!({"patch": format!("{} {secret}", long(40)), "reason": "r"})),
        (
            "apply_patch",
            json!({"toolCallId": "p", "reason": "r",
            "patch": format!("--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-{secret}\n+x\n")}),
        ),
    ] {
        let answer = run.call(tool, input).await;
        assert!((400..500).contains(&answer.status) && !answer.text().contains(body), "{}", answer.text());
    }
    let policy = json!({"source": {"type": "empty"}, "policy": {"deny": [format!("[{} {secret}", long(70))]}});
    let answer = run.operator.post("/v1/runs", policy).await;
    assert!(answer.status == 400 && !answer.text().contains(body), "{}", answer.text());
    assert!(!json!(run.audit().await).to_string().contains(body));
    assert!(server.stop().success());
    if backend == Backend::Sqlite {
        let database = std::fs::read(server.data_dir().join("workspaced.db")).unwrap();
        assert!(!String::from_utf8_lossy(&database).contains(body));
    }
}

#[rstest]
#[tokio::test]
async fn a_credential_in_the_name_or_source_of_a_run_is_refused(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    let (secret, docs) = (&secrets()[0], server.template(&[("a.md", "a\n")]));
    let git = |url: String, reference: &str| json!({"source": {"type": "git", "url": url, "ref": reference}});
    for (member, request) in [
        ("runId", json!({"runId": secret, "source": {"type": "empty"}})),
        ("source.path", json!({"source": {"type": "directory", "path": docs.join(secret)}})),
        ("source.url", git(format!("https://localhost/{secret}/a.git"), "main")),
        ("source.url", git(format!("https://localhost/a.git?token={secret}"), "main")),
        ("source.ref", git("https://localhost/a.git".to_owned(), secret)),
    ] {
        let refused = server.operator().post("/v1/runs", request).await.refused("INVALID_REQUEST");
        assert_eq!(refused["message"], format!("`{member}` contains a credential: GitHub token"));
    }
    assert_redacted(&server.operator().get("/v1/runs?limit=1000").await.text());
}

#[rstest]
#[tokio::test]
async fn a_credential_is_found_after_a_long_name(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    let (name, key) = ("PRODUCTION_AWS_ACCESS_KEY_ID", secrets()[1].clone());
    let labels = json!({"labels": {"note": format!("{name}={key}")}});
    let run = server.run(labels).await;
    assert_eq!(run.get().await["labels"]["note"], format!("{name}=[redacted: AWS access key ID]"));
    let write = |content: String, reason: String| json!({"path": "a.txt", "content": content, "reason": reason});
    for text in
        [format!("{name}={key}\n"), format!("export {name}='{key}'\n"), format!("{{\"awsAccessKeyId_{key}\": 1}}\n")]
    {
        run.call("write_file", write(text, "r".to_owned())).await.refused("POLICY_DENIED_SECRET");
    }
    run.ok("write_file", write("a\n".to_owned(), format!("set {name}={key} there"))).await;
    assert_eq!(run.last_record().await["reason"], format!("set {name}=[redacted: AWS access key ID] there"));
    // Published placeholders are no credentials.
    let example = format!("{name}=AKIA{}\ntoken = \"ghp_{}\"\n", "IOSFODNN7EXAMPLE", "a".repeat(36));
    let input = json!({"path": "b.txt", "content": example, "reason": "as AKIAIOSFODNN7EXAMPLE"});
    run.ok("write_file", input).await;
    assert_eq!(run.last_record().await["reason"], "as AKIAIOSFODNN7EXAMPLE");
    assert!(!run.audit().await.iter().any(|record| record.to_string().contains(&key)));
}
