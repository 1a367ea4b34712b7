//! What a node forwards, to whom, and for how long.

use std::time::Duration;

use futures_util::StreamExt as _;
use reqwest::Method;
use rustix::process::Signal;
use serde_json::json;

use super::{two, until_recorded};
use crate::harness::{assert_chain, sha256};

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
