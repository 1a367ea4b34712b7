//! Secrets do not leak into the trace log, panics, standard output or the database.

use std::path::Path;
use std::process::Stdio;

use rstest::rstest;
use serde_json::json;

use crate::harness::{Backend, Server, Setup};

const CONTENT: &str = "marker-of-a-file-4711";
const PASSWORD: &str = "marker-of-a-password-4712";
const REASON: &str = "marker-of-a-reason-4713";

/// Returns every file under `folder` that contains `needle`.
fn files_with(folder: &Path, needle: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            found.extend(files_with(&path, needle));
        } else if let Ok(bytes) = std::fs::read(&path)
            && bytes.windows(needle.len()).any(|window| window == needle.as_bytes())
        {
            found.push(path.display().to_string());
        }
    }
    found
}

/// Sends every kind of secret and returns them.
async fn session(server: &Server) -> Vec<String> {
    let run = server.run_with_files(&[("a.txt", "a\n"), (".env", CONTENT)], json!({})).await;
    let issued = run.operator.post(&format!("/v1/runs/{}/tokens", run.id), json!({})).await;
    let (token, second) = (run.agent.token.clone().unwrap(), issued.json()["token"].as_str().unwrap().to_owned());
    run.ok("write_file", json!({"path": "b.txt", "content": format!("{CONTENT}\n"), "reason": REASON})).await;
    run.ok("read_file", json!({"path": "b.txt"})).await;
    run.ok("search_text", json!({"query": CONTENT})).await;
    // Libraries that parse expressions and globs log them.
    let query = format!(r"\w+{CONTENT}\b|\w+ {CONTENT}");
    run.ok("search_text", json!({"query": query, "mode": "regex", "includeGlob": [format!("*{CONTENT}*")]})).await;
    run.call("read_file", json!({"path": ".env"})).await.refused("POLICY_DENIED_SECRET");
    run.call("write_file", json!({"path": "c.txt", "content": CONTENT, "bogus": CONTENT, "reason": REASON}))
        .await
        .refusal();
    let patch = format!("--- a/b.txt\n+++ b/b.txt\n@@ -1 +1 @@\n-{CONTENT} with another end\n+{CONTENT}\n");
    run.patch(&patch).await.refused("PATCH_CONFLICT");
    for url in [
        format!("https://user:{PASSWORD}@localhost:1/x.git"),
        format!("https://{PASSWORD}@localhost:1/x.git"),
        format!("ssh://user:{PASSWORD}@localhost/x.git"),
    ] {
        let answer = server.operator().post("/v1/runs", json!({"source": {"type": "git", "url": url}})).await;
        answer.refused("INVALID_REQUEST");
        assert!(!answer.contains(PASSWORD), "{}", answer.text());
    }
    // A valid URL of a host that does not answer.
    let url = "https://127.0.0.1:1/x.git";
    server.operator().post("/v1/runs", json!({"source": {"type": "git", "url": url}})).await.refusal();
    // Invalid tokens in every possible part of a request.
    let wrong = format!("wsr_{}", "e".repeat(64));
    run.agent.with_token(Some(&wrong)).get(&format!("/v1/runs/{}", run.id)).await.refused("UNAUTHENTICATED");
    server.nobody().get(&format!("/v1/runs/{}?token={wrong}&access_token={wrong}", run.id)).await.refusal();
    let request = server.nobody().request(reqwest::Method::GET, "/v1/runs").header("x-api-key", &wrong);
    server.nobody().send(request.header("cookie", format!("token={wrong}"))).await.refused("UNAUTHENTICATED");
    vec![server.operator_token.clone(), server.audit_token.clone(), token, second, wrong, PASSWORD.to_owned()]
}

#[rstest]
#[tokio::test]
async fn the_trace_log_contains_no_secret(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
    #[values("text", "json")] format: &str,
) {
    let setup = Setup::new(backend).arg("--log", "trace").arg("--log-format", format);
    let mut server = Server::start_with(setup).await;
    let tokens = session(&server).await;
    assert!(server.stop().success());
    let log = server.log();
    assert!(log.contains("DEBUG") && log.contains("run created"), "the log is nearly empty");
    for secret in tokens.iter().map(String::as_str).chain([CONTENT, REASON]) {
        assert!(!log.contains(secret), "{secret}: {}", log.lines().find(|line| line.contains(secret)).unwrap());
    }
    // Only hashes of tokens are stored.
    for token in &tokens {
        assert_eq!(files_with(&server.data_dir(), token), Vec::<String>::new(), "{token}");
    }
}

#[rstest]
#[tokio::test]
async fn a_panic_logs_no_secret(#[values("call.try:1:panic", "transaction.staged:1:panic")] failpoint: &str) {
    let setup = Setup::new(Backend::Sqlite)
        .env("WORKSPACED_FAILPOINT", failpoint)
        .arg("--log", "trace")
        .env("RUST_BACKTRACE", "1");
    let mut server = Server::start_with(setup).await;
    let run = server.run_with_files(&[("a.txt", CONTENT)], json!({})).await;
    let write = json!({"path": "b.txt", "content": format!("{CONTENT}\n"), "reason": REASON});
    let statuses =
        [run.call("read_file", json!({"path": "a.txt"})).await.status, run.call("write_file", write).await.status];
    assert!(statuses.contains(&500), "no call reached {failpoint}: {statuses:?}");
    run.ok("list_dir", json!({})).await;
    let token = run.agent.token.clone().unwrap();
    assert!(server.stop().success());
    let log = server.log();
    assert!(log.contains("failpoint"), "the panic was not logged: {log}");
    for secret in [server.operator_token.as_str(), &token, CONTENT, REASON] {
        assert!(!log.contains(secret), "{}", log.lines().find(|line| line.contains(secret)).unwrap());
    }
}

#[tokio::test]
async fn the_first_token_is_only_printed() {
    let server = Server::prepare(Setup::new(Backend::Sqlite)).await;
    let mut command = server.command("serve");
    command.env_remove("WORKSPACED_OPERATOR_TOKEN").args(["--listen", "127.0.0.1:0", "--log", "trace"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut printed = String::new();
    let mut lines = std::io::BufReader::new(child.stdout.take().unwrap());
    while !printed.contains("listening on ") && std::io::BufRead::read_line(&mut lines, &mut printed).unwrap() > 0 {}
    child.kill().unwrap();
    let log = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
    let token = printed.split_whitespace().find(|word| word.starts_with("wso_")).expect("a token").to_owned();
    assert!(log.contains("ready") && !log.contains(&token), "{log}");
    assert_eq!(files_with(&server.data_dir(), &token), Vec::<String>::new());
}

#[tokio::test]
async fn the_database_password_is_never_printed() {
    let server = Server::prepare(Setup::new(Backend::Sqlite)).await;
    let url = format!("postgres://user:{PASSWORD}@127.0.0.1:1/none");
    let mut command = server.command("serve");
    command.env("WORKSPACED_DATABASE_URL", url).args(["--listen", "127.0.0.1:0", "--log", "trace"]);
    let done = command.stdin(Stdio::null()).output().unwrap();
    assert!(!done.status.success());
    for stream in [done.stdout, done.stderr] {
        let output = String::from_utf8_lossy(&stream).into_owned();
        assert!(!output.contains(PASSWORD), "{output}");
    }
}
