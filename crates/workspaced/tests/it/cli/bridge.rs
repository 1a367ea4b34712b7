//! The bridge from standard input and output to `/mcp`.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::{Value, json};

use super::command;
use crate::harness::{Backend, Run};

const FILES: [(&str, &str); 2] = [("src/a.py", "def add(a, b):\n\treturn a - b\n"), (".env", "KEY=value\n")];

/// Sends lines to the bridge and returns its messages once it has ended with its input.
fn bridge(url: &str, token: &str, lines: &[String]) -> Vec<Value> {
    let mut command = command(url, token, &["mcp"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    for line in lines {
        writeln!(input, "{line}").unwrap();
    }
    drop(input);
    let done = child.wait_with_output().unwrap();
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn every_request_has_one_answer_and_a_notification_none() {
    let (server, used) = Run::shared(Backend::Sqlite, &FILES).await;
    let token = used.agent.token.as_ref().unwrap();
    let request = |id: u64| {
        let params = json!({"name": "read_file", "arguments": {"path": "src/a.py"}});
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}).to_string()
    };
    let mut lines: Vec<_> = (1..=20).map(request).collect();
    let cancelled = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 99}});
    let half = r#"{"jsonrpc":"2.0","id":"half","method":"ping","params":{"of":"\ud83d"}}"#;
    lines.extend([cancelled.to_string(), "not JSON".to_owned(), half.to_owned(), String::new()]);
    let answers = bridge(&server.base, token, &lines);
    let mut ids: Vec<_> = answers.iter().filter_map(|answer| answer["id"].as_u64()).collect();
    ids.sort_unstable();
    assert_eq!(ids, (1..=20).collect::<Vec<_>>());
    assert_eq!(answers.len(), 22, "{answers:?}");
    assert!(answers.iter().any(|answer| answer["id"] == "half" && answer["error"].is_object()), "{answers:?}");
    assert!(answers.iter().filter(|answer| answer["id"].is_u64()).all(|answer| answer["result"]["isError"] == false));
    assert!(answers.iter().any(|answer| answer["id"].is_null() && answer["error"]["code"] == -32700), "{answers:?}");

    // What is refused before the protocol, is an error of it.
    let refused = bridge(&server.base, "unknown", &[request(7)]);
    assert_eq!(refused[0]["error"]["data"]["code"], "UNAUTHENTICATED", "{refused:?}");
    let unreachable = bridge("http://127.0.0.1:1", token, &[request(7)]);
    assert!(unreachable[0]["id"] == 7 && unreachable[0]["error"]["message"].is_string(), "{unreachable:?}");
}
