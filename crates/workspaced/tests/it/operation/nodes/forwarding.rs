//! What a node forwards, to whom, and for how long.

use std::time::Duration;

use futures_util::StreamExt as _;
use reqwest::Method;
use rustix::process::Signal;
use serde_json::json;

use super::{two, until_recorded};
use crate::harness::{Answer, Run, Server, assert_chain, sha256};

/// Makes the node with the address `url` the owner of a run.
async fn move_to(server: &Server, run: &Run, url: &str) {
    let sql = format!(
        "UPDATE run_head SET epoch = epoch + 1, (owner_node, owner_incarnation) = \
         (SELECT node_id, incarnation FROM node WHERE url = '{url}') \
         WHERE run_no = (SELECT run_no FROM run WHERE run_id = '{}')",
        run.id
    );
    assert_eq!(server.database.tamper(&sql).await, Ok(1));
}

#[tokio::test]
async fn a_node_that_stops_gives_back_the_runs_that_it_does_not_use_at_once() {
    let [mut first, second] = two().await;
    let (slow, idle) = (first.run(json!({})).await, first.run_with_files(&[("a.txt", "a\n")], json!({})).await);
    let away = second.reconnect(&idle);
    away.ok("read_file", json!({"path": "a.txt"})).await;
    // An upload that the node waits for when it stops.
    let content = vec![b'x'; 80];
    let path = format!("/v1/runs/{}/artifacts/sha256/{}", slow.id, sha256(&content));
    let parts = futures_util::stream::iter(content).then(async |byte| {
        tokio::time::sleep(Duration::from_millis(100)).await;
        Ok::<_, std::io::Error>(vec![byte])
    });
    let request = slow.operator.request(Method::PUT, &path).body(reqwest::Body::wrap_stream(parts));
    let upload = {
        let operator = slow.operator.clone();
        tokio::spawn(async move { operator.send(request).await })
    };
    tokio::time::sleep(Duration::from_secs(1)).await;
    first.signal(Signal::TERM);
    let took = until_recorded(&away.operator, &away, "after", Duration::from_secs(5)).await;
    println!("another node has recorded {took:?} after the signal");
    assert!(!upload.is_finished() && took < Duration::from_secs(4), "{took:?}");
    upload.await.unwrap().is(201);
    assert!(first.wait(Duration::from_secs(20)).success());
    assert_chain(&idle.id, &away.audit().await);
}

#[tokio::test]
async fn a_call_of_the_protocol_for_models_follows_its_run() {
    let [first, second] = two().await;
    let run = first.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let ask = async |method: &str, params: serde_json::Value| -> Answer {
        let request = run.agent.request(Method::POST, "/mcp").header("accept", "application/json, text/event-stream");
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        run.agent.send(request.header("mcp-protocol-version", "2025-06-18").json(&message)).await
    };
    let call = json!({"name": "read_file", "arguments": {"path": "a.txt"}});
    assert_eq!(ask("tools/call", call.clone()).await.is(200)["result"]["isError"], false);
    // The node still believes that it owns the run.
    move_to(&second, &run, &second.base).await;
    let answer = ask("tools/call", call).await.is(200);
    assert_eq!(answer["result"]["isError"], false, "{answer:#}");
    let answer = ask("resources/read", json!({"uri": "workspace:///a.txt"})).await.is(200);
    assert_eq!(answer["result"]["contents"][0]["text"], "a\n", "{answer:#}");
    assert_chain(&run.id, &run.audit().await);
}
