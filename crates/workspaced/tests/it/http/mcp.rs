//! The Model Context Protocol: raw requests, and the official clients of Python and TypeScript.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Client, Run, Server};

const FILES: [(&str, &str); 2] = [("src/a.py", "def add(a, b):\n\treturn a - b\n"), (".env", "KEY=value\n")];

/// Sends one request of the protocol.
async fn rpc(client: &Client, method: &str, params: Value) -> Answer {
    let body = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
    let request = client.request(Method::POST, "/mcp").header("accept", "application/json, text/event-stream");
    client.send(request.header("mcp-protocol-version", "2025-06-18").json(&body)).await
}

/// Calls a tool and returns its result.
async fn call(client: &Client, name: &str, arguments: Value) -> Value {
    rpc(client, "tools/call", json!({ "name": name, "arguments": arguments })).await.is(200)["result"].clone()
}

fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}

async fn names(client: &Client) -> Vec<String> {
    let tools = rpc(client, "tools/list", json!({})).await.is(200)["result"]["tools"].clone();
    tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[rstest]
#[tokio::test]
async fn calls_are_those_of_the_routes(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    let client = &run.agent;
    let read = call(client, "read_file", json!({ "path": "src/a.py" })).await;
    assert_eq!(text(&read), "1  def add(a, b):\n2  \treturn a - b\n");
    assert_eq!(read["structuredContent"]["totalLines"], 2);
    assert_eq!(read["isError"], false);

    // A model that invents the same ID twice makes two calls.
    for number in 0..2 {
        let input =
            json!({ "path": format!("{number}.txt"), "content": "x\n", "reason": "to try", "toolCallId": "tc_1" });
        assert_eq!(call(client, "write_file", input).await["isError"], false);
    }
    let denied = call(client, "read_file", json!({ "path": ".env" })).await;
    assert_eq!(denied["isError"], true);
    assert!(text(&denied).starts_with("POLICY_DENIED_SECRET: "), "{denied}");
    assert_eq!(denied["structuredContent"]["code"], "POLICY_DENIED_SECRET");
    let outcomes: Vec<_> = run.audit().await.iter().map(|record| record["outcome"].clone()).collect();
    assert_eq!(outcomes[outcomes.len() - 4..], ["ok", "ok", "ok", "refused"]);

    let page = rpc(client, "resources/list", json!({})).await.is(200);
    let uris: Vec<_> = page["result"]["resources"].as_array().unwrap().iter().map(|file| file["uri"].clone()).collect();
    assert_eq!(uris, ["workspace:///0.txt", "workspace:///1.txt", "workspace:///src/a.py"]);
    let file = rpc(client, "resources/read", json!({ "uri": "workspace:///src/a.py" })).await.is(200);
    assert_eq!(file["result"]["contents"][0]["text"], FILES[0].1);
    for uri in ["workspace:///.env", "workspace:///none", "file:///etc/passwd", "workspace:///../../etc/passwd"] {
        let refused = rpc(client, "resources/read", json!({ "uri": uri })).await.json();
        assert!(refused["error"]["message"].is_string() && refused.get("result").is_none(), "{uri}: {refused}");
    }
    assert!(rpc(client, "tools/call", json!({ "name": "none" })).await.json()["error"].is_object());
    // A value of two bytes takes a hundred times as many in memory: as in any other body, so many are refused.
    rpc(client, "tools/list", json!({ "many": vec![1; 20_000] })).await.refused("INVALID_REQUEST");
}

#[rstest]
#[tokio::test]
async fn a_token_says_which_tools_there_are(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let server = Server::shared(backend).await;
    let read_only = server.run_with_files(&FILES, json!({ "policy": { "profile": "READ_ONLY" } })).await;
    let shown = names(&read_only.agent).await;
    assert!(shown.contains(&"read_file".to_owned()) && !shown.contains(&"write_file".to_owned()), "{shown:?}");

    let run = server.run_with_files(&FILES, json!({})).await;
    let tokens = format!("/v1/runs/{}/tokens", run.id);
    let issued = server.operator().post(&tokens, json!({ "permissions": ["file:list"] })).await.is(201);
    let lister = run.agent.with_token(issued["token"].as_str());
    assert!(names(&lister).await.contains(&"list_dir".to_owned()));
    assert!(!names(&lister).await.contains(&"read_file".to_owned()));
    assert!(text(&call(&lister, "read_file", json!({ "path": "src/a.py" })).await).starts_with("FORBIDDEN: "));

    assert_eq!(rpc(&server.nobody(), "tools/list", json!({})).await.status, 401);
    rpc(&server.operator(), "tools/list", json!({})).await.refused("FORBIDDEN");
    let token = format!("{tokens}/{}", issued["tokenId"].as_str().unwrap());
    assert!(server.operator().delete(&token).await.status < 300);
    assert_eq!(rpc(&lister, "tools/list", json!({})).await.status, 401);
    for (method, status) in [(Method::GET, 405), (Method::DELETE, 405)] {
        let request = run.agent.request(method, "/mcp").header("accept", "text/event-stream");
        assert_eq!(run.agent.send(request).await.status, status);
    }
}

#[rstest]
#[tokio::test]
async fn a_client_need_not_know_the_details_of_the_protocol(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    let list = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/list" });
    for accept in ["*/*", "application/json", "application/*;q=0.5, text/html"] {
        let request = run.agent.request(Method::POST, "/mcp").header("accept", accept);
        let answer = run.agent.send(request.json(&list)).await.is(200);
        assert_eq!(answer["result"]["tools"].as_array().unwrap().len(), 15, "{accept}");
    }
    let request = run.agent.request(Method::POST, "/mcp").header("accept", "text/event-stream");
    let refused = run.agent.send(request.json(&list)).await.is(406);
    assert_eq!(refused["hint"], "Send `Accept: application/json, text/event-stream`.");
    // Parameters of another form are not another method.
    for params in [json!({}), json!({ "name": "read_file", "arguments": "src/a.py" })] {
        let answer = rpc(&run.agent, "tools/call", params).await.json();
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
    assert_eq!(rpc(&run.agent, "prompts/list", json!({})).await.json()["error"]["code"], -32601);
}

/// The folder in which `.ci/test` has installed the official clients.
fn clients() -> PathBuf {
    std::env::var_os("WORKSPACED_TEST_CLIENTS")
        .expect("WORKSPACED_TEST_CLIENTS is not set. Run `.ci/test`, which installs the clients.")
        .into()
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name)
}

fn assert_done(output: &Output) {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && out.ends_with("done\n"), "{out}\n{err}");
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn the_official_python_client_works(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (server, run) = Run::shared(backend, &FILES).await;
    let mut python = Command::new(clients().join("python/bin/python"));
    python.arg("-B").arg(script("mcp_python.py")).arg(&server.operator().base).arg(run.agent.token.as_ref().unwrap());
    assert_done(&tokio::task::spawn_blocking(move || python.output().unwrap()).await.unwrap());
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn the_official_typescript_client_works(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (server, run) = Run::shared(backend, &FILES).await;
    let mut node = Command::new("node");
    node.arg(script("mcp_typescript.mjs")).arg(&server.operator().base).arg(run.agent.token.as_ref().unwrap());
    node.arg(clients().join("node"));
    assert_done(&tokio::task::spawn_blocking(move || node.output().unwrap()).await.unwrap());
    assert_eq!(run.verify().await["intact"], true);
}
