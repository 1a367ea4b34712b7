//! The Model Context Protocol: raw requests.

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Client, Run, Server, Setup};

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
async fn a_request_that_is_not_valid_json_is_answered_under_its_id(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    for (content, id) in
        [("\"\\ud83d\"", json!("x-1")), ("\"a\\udc00b\"", json!(9)), ("9007199254740993", json!(u64::MAX))]
    {
        let params = format!("{{\"name\":\"write_file\",\"arguments\":{{\"path\":\"n\",\"content\":{content}}}}}");
        let body = format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"tools/call\",\"params\":{params}}}");
        let request = run.agent.request(Method::POST, "/mcp").header("accept", "application/json, text/event-stream");
        let answer = run.agent.send(request.header("content-type", "application/json").body(body)).await.is(400);
        assert_eq!((&answer["id"], &answer["error"]["code"]), (&id, &json!(-32600)), "{answer}");
    }
}

#[rstest]
#[tokio::test]
async fn calls_are_those_of_the_routes(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    let client = &run.agent;
    let read = call(client, "read_file", json!({ "path": "src/a.py" })).await;
    assert_eq!(text(&read), "1  def add(a, b):\n2  \treturn a - b\n");
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
    // Clients show a model whatever JSON there is, so that only a program which asks for it receives any.
    assert!(read.get("structuredContent").is_none() && denied.get("structuredContent").is_none(), "{read} {denied}");
    for (path, member, value) in [("src/a.py", "totalLines", json!(2)), (".env", "code", json!("POLICY_DENIED_SECRET"))]
    {
        let params =
            json!({ "name": "read_file", "arguments": { "path": path }, "_meta": { "workspaced/json": true } });
        let result = rpc(client, "tools/call", params).await.is(200)["result"].clone();
        assert_eq!(result["structuredContent"][member], value, "{result}");
    }
    let outcomes: Vec<_> = run.audit().await.iter().map(|record| record["outcome"].clone()).collect();
    assert_eq!(outcomes[outcomes.len() - 6..], ["ok", "ok", "ok", "refused", "ok", "refused"]);

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
    let many = rpc(client, "tools/list", json!({ "many": vec![1; 20_000] })).await.is(400);
    assert_eq!(many["error"]["data"]["code"], "INVALID_REQUEST", "{many}");
}

#[rstest]
#[tokio::test]
async fn the_list_of_tools_is_for_models_and_may_be_cached(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    let list = async |policy: Value| {
        let run = server.run_with_files(&FILES, json!({ "policy": policy })).await;
        rpc(&run.agent, "tools/list", json!({})).await.is(200)["result"].clone()
    };
    let first = list(json!({})).await;
    assert_eq!((&first["ttlMs"], &first["cacheScope"]), (&json!(300_000), &json!("private")), "{first}");
    for tool in first["tools"].as_array().unwrap() {
        assert!(tool["title"].is_string() && tool.get("outputSchema").is_none(), "{tool}");
        assert_eq!(tool["annotations"]["openWorldHint"], false, "{tool}");
    }
    assert_eq!(first["tools"][0]["title"], "List dir");
    // The tag is that of what the policy lets a caller see.
    let etag = |list: &Value| list["_meta"]["workspaced/etag"].as_str().unwrap().to_owned();
    assert_eq!(etag(&first), etag(&list(json!({})).await));
    assert_ne!(etag(&first), etag(&list(json!({ "profile": "READ_ONLY" })).await));
}

#[rstest]
#[tokio::test]
async fn instructions_are_those_of_the_run(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    let initialize = async |client: &Client| {
        let params = json!({
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "test", "version": "1" },
        });
        let answer = rpc(client, "initialize", params).await.is(200);
        answer["result"]["instructions"].as_str().unwrap().to_owned()
    };
    let policy = json!({ "write": ["src/**"], "deny": ["private/**"], "budget": { "maxFilesTouched": 7 } });
    let run = server.run_with_files(&FILES, json!({ "policy": policy })).await;
    let text = initialize(&run.agent).await;
    for part in [
        "Writable: src/**.",
        "Never accessible: private/**",
        "7 files",
        "LOCKFILE",
        "touchesSecuritySensitivePath",
        "revert_calls",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    // Nothing is promised to a caller who may not do it.
    let read_only = server.run_with_files(&FILES, json!({ "policy": { "profile": "READ_ONLY" } })).await;
    let text = initialize(&read_only.agent).await;
    assert!(text.contains("This run is read-only.") && !text.contains("revert_calls"), "{text}");
}

#[rstest]
#[tokio::test]
async fn a_cancelled_read_ends(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, armed) = Server::start_armed(Setup::new(backend)).await;
    let run = server.run_with_files(&FILES, json!({})).await;
    call(&run.agent, "list_dir", json!({})).await;
    std::fs::write(&armed, "call.read:1:pause").unwrap();
    let agent = run.agent.clone();
    let slow = tokio::spawn(async move {
        rpc(&agent, "tools/call", json!({ "name": "search_text", "arguments": { "query": "add" } })).await
    });
    server.until_paused(&armed).await;
    for (id, method) in [(8, "notifications/cancelled"), (7, "notifications/other"), (7, "notifications/cancelled")] {
        assert!(!slow.is_finished(), "cancelled before {method} of {id}");
        let body = json!({ "jsonrpc": "2.0", "method": method, "params": { "requestId": id, "reason": "the user waits no longer" } });
        assert_eq!(run.agent.send(run.agent.request(Method::POST, "/mcp").json(&body)).await.status, 202);
    }
    // Answered although the thread still waits.
    let answer = slow.await.unwrap().json();
    assert_eq!(answer["error"]["message"], "the request was cancelled by its client", "{answer}");
    std::fs::write(&armed, "").unwrap();
    assert_eq!(call(&run.agent, "list_dir", json!({})).await["isError"], false);
}

#[rstest]
#[tokio::test]
async fn a_problem_is_an_error_of_the_protocol(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start_with(Setup::new(backend).arg("--cors-origin", "https://console.example")).await;
    let run = server.run_with_files(&FILES, json!({})).await;
    let ping = json!({ "jsonrpc": "2.0", "id": 7, "method": "ping" });
    let post = |client: &Client| client.request(Method::POST, "/mcp");
    let refused = |answer: Answer, status: u16, code: &str| {
        assert_eq!(answer.headers["content-type"], "application/json");
        let body = answer.is(status);
        assert_eq!(body["jsonrpc"], "2.0", "{body}");
        assert_eq!(body["error"]["data"]["code"], code, "{body}");
        assert!(body["error"]["code"].is_i64() && body["error"]["message"].is_string(), "{body}");
    };
    let nobody = server.nobody();
    refused(nobody.send(post(&nobody).json(&ping)).await, 401, "UNAUTHENTICATED");
    let operator = server.operator();
    refused(operator.send(post(&operator).json(&ping)).await, 403, "FORBIDDEN");
    let agent = &run.agent;
    refused(agent.send(post(agent).header("accept", "text/html").json(&ping)).await, 406, "INVALID_REQUEST");
    refused(agent.send(post(agent).body("{").header("content-type", "application/json")).await, 400, "INVALID_REQUEST");
    let large = vec![b' '; 5 << 20];
    refused(
        agent.send(post(agent).body(large).header("content-type", "application/json")).await,
        413,
        "BODY_TOO_LARGE",
    );
    let json = |body: Value| post(agent).json(&body);
    refused(agent.send(json(json!([ping, ping]))).await, 400, "INVALID_REQUEST");
    refused(agent.send(json(json!({ "jsonrpc": "2.0", "id": null, "method": "ping" }))).await, 400, "INVALID_REQUEST");
    refused(agent.send(post(agent).body(ping.to_string())).await, 415, "INVALID_REQUEST");
    let version = json(ping.clone()).header("mcp-protocol-version", "1999-01-01");
    let answer = agent.send(version).await;
    assert!(answer.json()["error"]["message"].as_str().unwrap().contains("1999-01-01"), "{}", answer.text());
    refused(answer, 400, "INVALID_REQUEST");
    refused(agent.send(agent.request(Method::GET, "/mcp")).await, 405, "INVALID_REQUEST");
    // A page of another origin.
    let own = server.operator().base;
    for (origin, status) in
        [(own.as_str(), 200), ("https://console.example", 200), ("https://evil.example", 403), ("null", 403)]
    {
        let answer = agent.send(post(agent).header("origin", origin).json(&ping)).await;
        assert_eq!(answer.status, status, "{origin}");
        if status == 403 {
            refused(answer, 403, "FORBIDDEN");
        }
    }
    // A name that was rebound to loopback is the origin of the page and the host of the request.
    let rebound = post(agent).header("origin", "http://evil.example").header("host", "evil.example");
    refused(agent.send(rebound.json(&ping)).await, 403, "FORBIDDEN");
    // The library's own errors stay as they are.
    let unknown = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/none" });
    let answer = agent.send(post(agent).json(&unknown)).await.json();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(7), &json!(-32601)), "{answer}");
}

#[rstest]
#[tokio::test]
async fn arguments_are_taken_in_the_forms_that_models_send(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    let client = &run.agent;
    for arguments in [
        json!({ "path": "src/a.py", "startLine": "2", "maxLines": null }),
        json!({ "path": "workspace:///src/a.py", "startLine": 2 }),
        json!({ "path": "workspace:///src%2Fa.py", "startLine": 2.0 }),
    ] {
        assert_eq!(text(&call(client, "read_file", arguments).await), "2  \treturn a - b\n");
    }
    for path in [json!(""), json!("/"), json!("."), json!(null)] {
        let listed = call(client, "list_dir", json!({ "path": path, "includeHidden": "false" })).await;
        assert!(text(&listed).starts_with("src/\n"), "{listed}");
    }
    let read = call(client, "read_files", json!({ "paths": "[\"src/a.py\"]" })).await;
    assert!(text(&read).contains("return a - b"), "{read}");
    let write = json!({ "path": "year.txt", "content": 2024, "dryRun": "false", "mode": null, "reason": "to try" });
    assert_eq!(call(client, "write_file", write).await["isError"], false);
    assert_eq!(text(&call(client, "read_file", json!({ "path": "year.txt" })).await), "1  2024\n");
    // The same as a call of the route, and what is required stays so.
    run.call("search_text", json!({ "query": "add", "caseSensitive": "true", "includeGlob": null })).await.is(200);
    run.call("read_file", json!({ "path": null })).await.refused("INVALID_REQUEST");
    run.call("read_file", json!({ "path": "src/a.py", "startLine": "two" })).await.refused("INVALID_REQUEST");
}

#[rstest]
#[tokio::test]
async fn a_token_says_which_tools_there_are(#[values(Backend::Sqlite)] backend: Backend) {
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
    let forbidden = rpc(&server.operator(), "tools/list", json!({})).await.is(403);
    assert_eq!(forbidden["error"]["data"]["code"], "FORBIDDEN");
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
async fn a_client_need_not_know_the_details_of_the_protocol(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &FILES).await;
    let list = json!({ "jsonrpc": "2.0", "id": 7, "method": "tools/list" });
    for accept in ["*/*", "application/json", "application/*;q=0.5, text/html"] {
        let request = run.agent.request(Method::POST, "/mcp").header("accept", accept);
        let answer = run.agent.send(request.json(&list)).await.is(200);
        assert_eq!(answer["result"]["tools"].as_array().unwrap().len(), 15, "{accept}");
    }
    let request = run.agent.request(Method::POST, "/mcp").header("accept", "text/event-stream");
    let refused = run.agent.send(request.json(&list)).await.is(406);
    assert_eq!(refused["error"]["data"]["hint"], "Send `Accept: application/json, text/event-stream`.");
    // Parameters of another form are not another method.
    for params in [json!({}), json!({ "name": "read_file", "arguments": "src/a.py" })] {
        let answer = rpc(&run.agent, "tools/call", params).await.json();
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
    }
    assert_eq!(rpc(&run.agent, "prompts/list", json!({})).await.json()["error"]["code"], -32601);
    let unknown = rpc(&run.agent, "no/such", json!({})).await.json()["error"].clone();
    assert_eq!((&unknown["code"], &unknown["message"]), (&json!(-32601), &json!("there is no method `no/such`")));
    for list in ["tools/list", "resources/list", "resources/templates/list"] {
        assert_eq!(rpc(&run.agent, list, json!({"cursor": "other"})).await.json()["error"]["code"], -32602, "{list}");
    }
}
