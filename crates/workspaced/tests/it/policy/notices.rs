//! What a caller is told of the decisions about its calls, and what becomes of the same change made again.

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Client, Run, Server, Setup, exhaustive, sha256};

const FILES: [(&str, &str); 2] = [("package-lock.json", "old\n"), ("a.txt", "a\n")];

fn change(content: &str) -> Value {
    json!({"path": "package-lock.json", "content": content, "expectedSha256": sha256("old\n"), "reason": "r"})
}

async fn ask(run: &Run, content: &str) -> String {
    let answer = run.call("write_file", change(content)).await.refused("APPROVAL_REQUIRED");
    answer["approvalId"].as_str().unwrap().to_owned()
}

async fn decide(run: &Run, id: &str, verb: &str, note: Option<&str>) {
    let body = json!({"onBehalfOf": "ada", "note": note});
    run.operator.post(&format!("/v1/approvals/{id}/{verb}"), body).await.ok();
}

async fn read(run: &Run) -> Value {
    run.ok("read_file", json!({"path": "a.txt"})).await
}

/// In the form of another's tools, a line about a decision names the tool that the model has called.
#[rstest]
#[tokio::test]
async fn a_decision_is_told_in_the_words_of_the_form(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    let call = async |tool: &str, input: Value| {
        let path = format!("/v1/runs/{}/formats/gemini/{tool}", run.id);
        run.agent.send(run.agent.request(Method::POST, &path).json(&input)).await
    };
    let told = "approved: package-lock.json (replace), applied\n";
    // A call that succeeds, one that is refused, and one whose input is not right.
    for path in [json!("a.txt"), json!("none.txt"), json!(1)] {
        call("read_file", json!({"file_path": "package-lock.json"})).await;
        let edit = json!({"file_path": "package-lock.json", "old_string": "\n", "new_string": "!\n"});
        assert_eq!(call("replace", edit).await.status, 202);
        let approvals = run.operator.get(&format!("/v1/approvals?run={}&state=pending", run.id)).await.ok();
        decide(&run, approvals["items"][0]["approvalId"].as_str().unwrap(), "approve", None).await;
        let text = call("read_file", json!({"file_path": path})).await.text();
        assert!(text.starts_with(told), "{path}: {text}");
    }
}

#[rstest]
#[tokio::test]
async fn the_next_answer_begins_with_what_was_decided(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    let denied = ask(&run, "one\n").await;
    let approved = ask(&run, "two\n").await;
    let failed = ask(&run, "three\n").await;
    assert_eq!(read(&run).await.get("notices"), None);
    decide(&run, &denied, "deny", Some("use npm\nversion")).await;
    decide(&run, &approved, "approve", None).await;
    let text = run.text("read_file", json!({"path": "a.txt"})).await.text();
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(
        lines,
        [
            "denied: package-lock.json (write_file) — \"use npm version\"",
            "approved: package-lock.json (write_file), applied",
            "1  a"
        ],
    );
    // Once.
    assert_eq!(run.text("read_file", json!({"path": "a.txt"})).await.text(), "1  a\n");
    decide(&run, &failed, "approve", None).await;
    assert_eq!(
        read(&run).await["notices"],
        json!(["failed: package-lock.json (write_file), approved and not applied: WRITE_CONFLICT"])
    );
    assert_eq!(read(&run).await.get("notices"), None);
}

#[rstest]
#[tokio::test]
async fn refusals_changes_and_batches_say_what_was_decided(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    let denied = json!(["denied: package-lock.json (write_file)"]);
    for (number, way) in ["missing", "invalid", "mutation", "text", "batch", "atomic"].into_iter().enumerate() {
        let id = ask(&run, &format!("{number}\n")).await;
        decide(&run, &id, "deny", None).await;
        let batch = |atomic: bool| {
            let calls = json!([{"tool": "read_file", "input": {"path": "a.txt"}}, {"tool": "list_dir"}]);
            let path = format!("/v1/runs/{}/batch", run.id);
            let client = run.agent.clone();
            async move { client.post(&path, json!({"calls": calls, "atomic": atomic})).await.ok()["results"].clone() }
        };
        let told = match way {
            "missing" => run.call("read_file", json!({"path": "none"})).await.refused("NOT_FOUND")["notices"].clone(),
            "invalid" => run.call("read_file", json!({})).await.refused("INVALID_REQUEST")["notices"].clone(),
            "mutation" => run.create("new.txt", "x\n").await["notices"].clone(),
            "text" => {
                let text = run.text("read_file", json!({"path": "none"})).await.text();
                json!([text.lines().next().unwrap()])
            }
            way => {
                let results = batch(way == "atomic").await;
                assert_eq!(results[1]["answer"].get("notices"), None, "{way}: {results:#}");
                results[0]["answer"]["notices"].clone()
            }
        };
        assert_eq!(told, denied, "{way}");
        assert_eq!(read(&run).await.get("notices"), None, "{way}");
    }
}

#[rstest]
#[tokio::test]
async fn only_the_token_that_asked_is_told_and_a_restart_forgets_nothing(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let mut server = Server::start_with(Setup::new(backend)).await;
    let run = server.run_with_files(&FILES, json!({})).await;
    let issued = run.operator.post(&format!("/v1/runs/{}/tokens", run.id), json!({})).await.is(201);
    let token = issued["token"].as_str().unwrap().to_owned();
    let (told, untold) = (ask(&run, "one\n").await, ask(&run, "two\n").await);
    decide(&run, &told, "deny", None).await;
    assert_eq!(read(&run).await["notices"].as_array().unwrap().len(), 1);
    decide(&run, &untold, "deny", Some("no")).await;
    server.stop();
    server.restart();
    let path = format!("/v1/runs/{}/tools/read_file", run.id);
    let read_as = async |client: &Client| client.post(&path, json!({"path": "a.txt"})).await.ok();
    let run = server.reconnect(&run);
    let other = Client::new(&server.base, Some(&token));
    assert_eq!(read_as(&other).await.get("notices"), None);
    assert_eq!(read_as(&run.agent).await["notices"], json!(["denied: package-lock.json (write_file) — \"no\""]));
    assert_eq!(read_as(&run.agent).await.get("notices"), None);
    // What was denied is known, too.
    run.call("write_file", change("one\n")).await.refused("POLICY_DENIED");
}

#[rstest]
#[tokio::test]
async fn the_same_change_again_waits_for_the_same_approval(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    let id = ask(&run, "new\n").await;
    let again = run.call("write_file", change("new\n")).await;
    assert_eq!(again.status, 202);
    let again = again.refused("APPROVAL_REQUIRED");
    assert_eq!(again["approvalId"], json!(id));
    assert!(again["detail"].as_str().unwrap().contains("already waiting"), "{again:#}");
    // By another tool, it is the same change.
    let edit = json!({"path": "package-lock.json", "oldString": "old", "newString": "new", "reason": "r"});
    assert_eq!(run.call("edit_file", edit).await.refused("APPROVAL_REQUIRED")["approvalId"], json!(id));
    assert_ne!(ask(&run, "other\n").await, id);
    let listed = run.operator.get(&format!("/v1/approvals?run={}", run.id)).await.ok();
    assert_eq!(listed["items"].as_array().unwrap().len(), 2, "{listed:#}");
    assert_eq!(run.get().await["counts"]["pendingApprovals"], 2);
    decide(&run, &id, "approve", None).await;
    assert_eq!(run.on_disk("package-lock.json"), "new\n");
    // The repetition is recorded, and resolves as the approval does.
    let call = again["toolCallId"].as_str().unwrap();
    let call = run.agent.get(&format!("/v1/runs/{}/tool-calls/{call}?waitSeconds=5", run.id)).await.ok();
    assert!(call["resolution"].as_str().unwrap().starts_with("approved"), "{call:#}");
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn the_same_change_after_a_denial_is_denied_with_the_note(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    let id = ask(&run, "new\n").await;
    decide(&run, &id, "deny", Some("use npm version")).await;
    read(&run).await;
    for dry_run in [false, true] {
        let mut input = change("new\n");
        input["dryRun"] = json!(dry_run);
        let refused = run.call("write_file", input).await.refused("POLICY_DENIED");
        assert!(refused["detail"].as_str().unwrap().ends_with("in this run: \"use npm version\""), "{refused:#}");
        assert_eq!(refused["reasons"], json!([format!("approval:{id}:denied")]));
    }
    // Another change asks again.
    assert_ne!(ask(&run, "newer\n").await, id);
    assert_eq!(run.last_record().await["outcome"], "pending");
}

/// Sends a message to the MCP server of the run.
async fn mcp_read(run: &Run) -> Answer {
    let params = json!({"name": "read_file", "arguments": {"path": "a.txt"}});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
    let request = run.agent.request(Method::POST, "/mcp").header("accept", "application/json, text/event-stream");
    run.agent.send(request.header("mcp-protocol-version", "2025-06-18").json(&body)).await
}

#[rstest]
#[tokio::test]
async fn mcp_says_what_was_decided(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    let id = ask(&run, "new\n").await;
    decide(&run, &id, "deny", None).await;
    let answer = mcp_read(&run).await.text();
    assert!(answer.contains("denied: package-lock.json (write_file)\\n1  a"), "{answer}");
}

#[rstest]
#[tokio::test]
async fn agents_are_told_the_comments_of_people_once(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut server = Server::start_with(Setup::new(backend)).await;
    let run = server.run_with_files(&FILES, json!({})).await;
    let issued = run.operator.post(&format!("/v1/runs/{}/tokens", run.id), json!({})).await.is(201);
    let token = issued["token"].as_str().unwrap().to_owned();
    let path = format!("/v1/runs/{}/comments", run.id);
    let (name, reviewer) = server.named_operator("reviewer", &["approve"]).await;
    let secret = format!("ghp_{}", "0123456789abcdefghijABCDEFGHIJ012345");
    let body = json!({"text": format!("keep\nthe name {secret}"), "path": "./a.txt", "line": 1});
    let said = reviewer.post(&path, body).await.is(201);
    let record = run.last_record().await;
    assert_eq!(
        (&record["tool"], &record["seq"], &record["by"], &record["actor"]),
        (&json!("event.comment"), &said["seq"], &json!("operator"), &json!(format!("operator:{name}")))
    );
    let text = "keep\nthe name [redacted: GitHub token]";
    assert_eq!(record["input"], json!({"summary": text, "path": "a.txt", "line": 1}));
    let first = format!("comment on a.txt:1 by {name}: \"keep the name [redacted: GitHub token]\"");
    assert_eq!(read(&run).await["notices"], json!([first]));
    assert_eq!(read(&run).await.get("notices"), None);
    run.operator.post(&path, json!({"text": "and a test", "onBehalfOf": "Bo"})).await.is(201);
    let second = "comment by Bo: \"and a test\"";
    server.stop();
    server.restart();
    let run = server.reconnect(&run);
    assert_eq!(read(&run).await["notices"], json!([second]));
    assert_eq!(read(&run).await.get("notices"), None);
    let other = Client::new(&server.base, Some(&token));
    let answer = other.post(&format!("/v1/runs/{}/tools/read_file", run.id), json!({"path": "a.txt"})).await.ok();
    assert_eq!(answer["notices"], json!([first, second]));
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn only_people_comment_on_an_open_run(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (server, run) = Run::shared(backend, &FILES).await;
    let path = format!("/v1/runs/{}/comments", run.id);
    run.agent.post(&path, json!({"text": "x"})).await.refused("FORBIDDEN");
    let (_, auditor) = server.named_operator("auditor", &["audit"]).await;
    auditor.post(&path, json!({"text": "x"})).await.refused("FORBIDDEN");
    let (_, reviewer) = server.named_operator("reviewer", &["approve"]).await;
    for bad in [
        json!({"text": ""}),
        json!({"text": "x".repeat(2001)}),
        json!({"text": "x", "line": 1}),
        json!({"text": "x", "path": "a.txt", "line": 0}),
        json!({"text": "x", "onBehalfOf": "operator:ada"}),
        json!({"text": "x", "more": 1}),
    ] {
        reviewer.post(&path, bad.clone()).await.refused("INVALID_REQUEST");
    }
    reviewer.post(&path, json!({"text": "x", "path": "../a"})).await.refused("PATH_REJECTED");
    run.operator.post(&path, json!({"text": "x"})).await.refused("INVALID_REQUEST");
    reviewer.post("/v1/runs/none-such/comments", json!({"text": "x"})).await.refused("RUN_NOT_FOUND");
    assert_eq!(read(&run).await.get("notices"), None);
    run.operator.post(&format!("/v1/runs/{}/close", run.id), json!({})).await.ok();
    reviewer.post(&path, json!({"text": "x"})).await.refused("RUN_CLOSED");
    assert_eq!(run.last_record().await["tool"], "event.comment");
}
