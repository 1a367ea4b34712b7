//! Requests through a node that does not own their run.

use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use reqwest::Method;
use serde_json::json;

use super::{SECRET, prepare, start, two};
use crate::harness::{assert_chain, in_time, items, sha256, tar_of, until};
use crate::operation::replay_and_repair::assert_ends;

#[tokio::test]
async fn every_request_of_a_run_can_be_sent_to_any_node() {
    let [first, second] = two().await;
    let run = first.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let away = second.reconnect(&run);
    let read = json!({"path": "a.txt"});
    assert_eq!(away.ok("read_file", read.clone()).await["content"], run.ok("read_file", read).await["content"]);
    away.create("b.txt", "b\n").await;
    assert_eq!(run.on_disk("b.txt"), "b\n");
    away.call("read_file", json!({"path": "none.txt"})).await.refused("NOT_FOUND");
    let text = away.text("read_file", json!({"path": "b.txt"})).await;
    assert_eq!(text.text(), run.text("read_file", json!({"path": "b.txt"})).await.text());

    // The ID of the request, and of one that the first node has chosen, is that of the record.
    let path = format!("/v1/runs/{}/tools/read_file", run.id);
    let request = away.agent.request(Method::POST, &path).header("x-request-id", "from-the-caller");
    let answer = away.agent.send(request.json(&json!({"path": "a.txt"}))).await;
    assert_eq!(answer.header("x-request-id"), "from-the-caller");
    assert_eq!(run.last_record().await["requestId"], "from-the-caller");
    let chosen = away.call("read_file", json!({"path": "a.txt"})).await;
    assert_eq!(run.last_record().await["requestId"], chosen.header("x-request-id"));
    for internal in ["workspaced-hop", "workspaced-hop-proof", "workspaced-moved"] {
        assert!(!chosen.headers.contains_key(internal), "{internal}");
    }

    // Large uploads and exports, which are streams.
    let large = vec![b'x'; 3 * 1024 * 1024];
    let upload = format!("/v1/runs/{}/artifacts/sha256/{}", run.id, sha256(&large));
    away.operator.put(&upload, large.clone()).await.is(201);
    assert_eq!(run.operator.get(&upload).await.body, large);
    assert_eq!(away.operator.get(&upload).await.body, large);
    let export = away.operator.get(&format!("/v1/runs/{}/archive", run.id)).await;
    assert_eq!(export.status, 200);
    assert_eq!(
        export.header("content-type"),
        run.operator.get(&format!("/v1/runs/{}/archive", run.id)).await.header("content-type")
    );
    let archived = first.run(json!({"source": {"type": "archive"}})).await;
    let tar = tar_of(&[("large.bin", &large)]);
    second.operator().put(&format!("/v1/runs/{}/archive", archived.id), tar).await.ok();
    assert_eq!(archived.until_open().await["state"], "open");

    // The protocol for models, whose run is that of the token.
    let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "read_file", "arguments": {"path": "b.txt"}}});
    let request = away.agent.request(Method::POST, "/mcp").header("accept", "application/json, text/event-stream");
    let answer = away.agent.send(request.header("mcp-protocol-version", "2025-06-18").json(&call)).await.is(200);
    assert_eq!(answer["result"]["isError"], false, "{answer}");

    // What is of no run, or of one that does not exist.
    assert_eq!(second.operator().get("/v1/runs").await.ok()["items"].as_array().unwrap().len(), 2);
    second.operator().get("/v1/runs/none").await.refused("RUN_NOT_FOUND");
    second.nobody().get(&format!("/v1/runs/{}", run.id)).await.refused("UNAUTHENTICATED");
    assert_eq!(away.verify().await["intact"], true);
    assert_chain(&run.id, &run.audit().await);
}

#[tokio::test]
async fn every_node_appends_to_the_chain_of_the_service() {
    let [first, second] = two().await;
    let make = async |number: usize| {
        let node = if number.is_multiple_of(2) { &first } else { &second };
        let body = json!({"name": format!("operator-{number}"), "scopes": ["audit"]});
        node.operator().post("/v1/operators", body).await.is(201);
        node.operator().delete(&format!("/v1/operators/operator-{number}")).await.is(204);
    };
    futures_util::future::join_all((0..10).map(make)).await;
    let records = items(&second.operator(), "/v1/audit?run=_service").await;
    assert_chain("_service", &records);
    let made = records.iter().filter(|record| record["tool"] == "operator.create").count();
    assert_eq!((records.len(), made), (20, 10));
}

#[tokio::test]
async fn an_approval_is_decided_by_way_of_any_node() {
    let [first, second] = two().await;
    let run = first.run_with_files(&[("Cargo.lock", "old\n")], json!({})).await;
    let input = json!({"path": "Cargo.lock", "content": "new\n", "expectedSha256": sha256("old\n"), "reason": "r"});
    let asked = second.reconnect(&run).call("write_file", input).await.refused("APPROVAL_REQUIRED");
    let approval = asked["approvalId"].as_str().unwrap();
    second.operator().post(&format!("/v1/approvals/{approval}/approve"), json!({"decidedBy": "ada"})).await.ok();
    assert_eq!(run.on_disk("Cargo.lock"), "new\n");
}

#[tokio::test]
async fn a_stream_of_changes_passes_through_another_node() {
    let [first, second] = two().await;
    let run = first.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let stream = second.reconnect(&run).operator.stream(&format!("/v1/runs/{}/changes", run.id), None).await;
    let mut chunks = stream.bytes_stream();
    run.create("b.txt", "b\n").await;
    let mut seen = String::new();
    let read = async {
        while !seen.contains("b.txt") {
            seen.push_str(&String::from_utf8_lossy(&chunks.next().await.unwrap().unwrap()));
        }
    };
    in_time("the change", read).await;
}

#[tokio::test]
async fn a_call_that_reaches_both_nodes_at_once_runs_once() {
    let [first, second] = two().await;
    let run = first.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let away = second.reconnect(&run);
    for number in 0..20 {
        let input = json!({"path": format!("{number}.txt"), "content": "x\n", "mode": "CREATE_NEW", "reason": "r",
            "toolCallId": format!("call-{number}")});
        let (here, there) = tokio::join!(run.call("write_file", input.clone()), away.call("write_file", input));
        assert_eq!(here.ok()["seq"], there.ok()["seq"]);
    }
    assert_eq!(run.calls().await.len(), 20);
    assert_chain(&run.id, &run.audit().await);
}

#[tokio::test]
async fn only_nodes_with_the_secret_forward_requests() {
    let mut first = prepare(None).await;
    start(&mut first);
    let mut other = prepare(Some(&first)).await;
    std::fs::write(other.home.join("secret"), SECRET.replace('0', "1")).unwrap();
    start(&mut other);
    let run = first.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    // The caller has done nothing wrong.
    let refused = other.reconnect(&run).call("read_file", json!({"path": "a.txt"})).await;
    refused.refused("UNAVAILABLE");
    assert!(!refused.header("retry-after").is_empty());
    assert!(other.log().contains("another cluster secret"), "{}", other.log());
    assert!(run.calls().await.is_empty());
    for header in ["workspaced-hop", "workspaced-hop-proof"] {
        let request = run.agent.request(Method::GET, &format!("/v1/runs/{}", run.id)).header(header, "1");
        run.agent.send(request).await.refused("FORBIDDEN");
    }
}

#[tokio::test]
async fn a_request_that_pretends_to_come_from_a_node_chooses_no_route() {
    let mut server = prepare(None).await;
    start(&mut server);
    let page = server.nobody().get("/").await;
    let script = page.text();
    let at = script.find("/assets/").unwrap();
    let asset = script[at..].split('"').next().unwrap();
    for (path, target) in [("/", asset), (asset, "/"), ("/healthz", asset), ("/none", "/")] {
        for proof in [None, Some("1.0".to_owned()), Some(format!("{}.{}", u64::MAX, "0".repeat(64)))] {
            let request = server.nobody().request(Method::GET, path).header("workspaced-hop", target);
            let request = match proof {
                Some(proof) => request.header("workspaced-hop-proof", proof),
                None => request,
            };
            let answer = server.nobody().send(request).await;
            answer.refused("FORBIDDEN");
            assert_eq!(answer.header("cache-control"), "no-store", "{path} as {target}");
            assert!(!answer.header("x-request-id").is_empty());
        }
    }
    assert_eq!(server.nobody().get(asset).await.header("cache-control"), "public, max-age=31536000, immutable");
}

#[tokio::test]
async fn a_token_that_was_revoked_on_another_node_is_refused() {
    let [first, second] = two().await;
    let run = first.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let away = second.reconnect(&run);
    let token = run.operator.post(&format!("/v1/runs/{}/tokens", run.id), json!({})).await.is(201);
    let agent = away.agent.with_token(token["token"].as_str());
    agent.get("/v1/tools").await.ok();
    let ada = first.operator().post("/v1/operators", json!({"name": "ada", "scopes": ["audit"]})).await.is(201);
    // Any node accepts it at once.
    let ada = second.operator().with_token(ada["token"].as_str());
    ada.get("/v1/runs").await.ok();
    let id = token["tokenId"].as_str().unwrap();
    assert!(run.operator.delete(&format!("/v1/runs/{}/tokens/{id}", run.id)).await.status < 300);
    assert!(first.operator().delete("/v1/operators/ada").await.status < 300);
    until("the token is refused", async || agent.get("/v1/tools").await.status == 401).await;
    until("the operator is refused", async || ada.get("/v1/runs").await.status == 401).await;
}

#[tokio::test]
async fn operators_see_the_nodes_and_how_many_runs_each_owns() {
    let [mut first, second] = two().await;
    first.run(json!({})).await;
    let run = first.run(json!({})).await;
    let nodes = second.auditor().get("/v1/nodes").await.ok();
    let items = nodes["items"].as_array().unwrap();
    assert_eq!(items.len(), 2, "{nodes:#}");
    let of = |url: &str| items.iter().find(|node| node["url"] == url).unwrap_or_else(|| panic!("{nodes:#}"));
    let (one, two) = (of(&first.base), of(&second.base));
    assert_eq!((&one["isAlive"], &one["ownedRuns"], &one["isThis"]), (&json!(true), &json!(2), &json!(false)));
    assert_eq!((&two["isAlive"], &two["ownedRuns"], &two["isThis"]), (&json!(true), &json!(0), &json!(true)));
    second.reconnect(&run).agent.get("/v1/nodes").await.refused("FORBIDDEN");
    second.reconnect(&run).get().await;
    assert!(first.stop().success());
    let nodes = second.auditor().get("/v1/nodes").await.ok();
    let left = nodes["items"].as_array().unwrap().iter().filter(|node| node["isAlive"] == false).count();
    assert_eq!(left, 1, "{nodes:#}");
    let metrics = second.nobody().get("/metrics").await.text();
    assert!(metrics.contains("workspaced_forwarded_requests_total 1\n"), "{metrics}");
}

#[tokio::test]
async fn the_limits_of_runs_and_bytes_are_those_of_all_nodes_together() {
    let mut first = prepare(None).await;
    first.setup = first.setup.clone().arg("--max-runs", 2).arg("--max-disk-bytes", 100_000);
    start(&mut first);
    let mut second = prepare(Some(&first)).await;
    second.setup = second.setup.clone().arg("--max-runs", 2).arg("--max-disk-bytes", 100_000);
    start(&mut second);
    let one = first.run(json!({})).await;
    let two = first.run_with_files(&[("a.txt", &"x".repeat(60_000))], json!({})).await;
    let answered = async |status: u16| {
        let create = async || {
            let answer = second.operator().post("/v1/runs", json!({"source": {"type": "empty"}})).await;
            if answer.status == status {
                return Ok(answer);
            }
            // A run too many, which the node has accepted before it has read the totals.
            if answer.status == 201 {
                let id = answer.json()["run"]["runId"].as_str().unwrap().to_owned();
                second.operator().delete(&format!("/v1/runs/{id}")).await.ok();
            }
            Err(answer.text())
        };
        until(&format!("a creation is answered with {status}"), create).await
    };
    assert_eq!(answered(507).await.refused("QUOTA_EXCEEDED")["limit"], 2);
    first.operator().delete(&format!("/v1/runs/{}", one.id)).await.ok();
    answered(201).await;
    // Bytes too, also when the run itself has moved.
    assert!(first.stop().success());
    let away = second.reconnect(&two);
    let large = json!({"path": "b.txt", "content": "y".repeat(60_000), "mode": "CREATE_NEW", "reason": "r"});
    let refused = away.call("write_file", large).await.refused("QUOTA_EXCEEDED");
    assert_eq!((&refused["limit"], &refused["reasons"]), (&json!(100_000), &json!(["maxDiskBytes"])), "{refused:#}");
}

#[tokio::test]
async fn a_single_service_does_not_start_beside_nodes() {
    let mut first = prepare(None).await;
    start(&mut first);
    let copy = first_copy(&first).await;
    let refused = copy.command("serve").args(["--listen", "127.0.0.1:0"]).output().unwrap();
    assert_ends(&refused, 1, &["nodes of a cluster use the database"]);
    assert!(first.stop().success());
    first.restart();
    first.nobody().get("/readyz").await.is(200);
}

/// A server without a node's settings on a copy of the data folder.
async fn first_copy(first: &crate::harness::Server) -> crate::harness::Server {
    let copy = prepare(Some(first)).await;
    for file in ["identity", "instance"] {
        std::fs::copy(first.data_dir().join(file), copy.data_dir().join(file)).unwrap();
    }
    copy
}

/// Returns an invalid token with a valid checksum.
fn forged(prefix: &str, number: usize) -> String {
    const BASE_62: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let token = format!("{prefix}_{number:043}");
    let mut rest = crc32fast::hash(token.as_bytes());
    let mut digits = [b'0'; 6];
    for digit in digits.iter_mut().rev() {
        *digit = BASE_62[(rest % 62) as usize];
        rest /= 62;
    }
    token + std::str::from_utf8(&digits).unwrap()
}

#[tokio::test]
async fn invalid_tokens_keep_no_token_of_another_node_out() {
    let mut first = prepare(None).await;
    start(&mut first);
    let mut second = prepare(Some(&first)).await;
    second.setup = second.setup.clone().arg("--auth-failures-per-minute", 20);
    start(&mut second);
    // All come from one address, as through a load balancer.
    let nobody = second.nobody();
    let flood = async |prefix: &'static str| {
        let mut requests = tokio::task::JoinSet::new();
        for number in 0..400 {
            let client = nobody.with_token(Some(&forged(prefix, number)));
            requests.spawn(async move { client.get("/v1/tools").await.refusal() });
        }
        requests.join_all().await
    };
    let started = Instant::now();
    let refusals = flood("wsr").await;
    assert!(refusals.iter().filter(|code| *code == "RATE_LIMITED").count() > 300, "{refusals:?}");
    let (refusals, ()) = tokio::join!(flood("wso"), async {
        for number in 0..5 {
            let run = first.run_with_files(&[("a.txt", "a\n")], json!({})).await;
            second.reconnect(&run).ok("stat_path", json!({"path": "a.txt"})).await;
            let body = json!({"name": format!("ada-{number}"), "scopes": ["audit"]});
            let ada = first.operator().post("/v1/operators", body).await.is(201);
            second.operator().with_token(ada["token"].as_str()).get("/v1/runs").await.ok();
        }
    });
    // One more is looked at every three seconds.
    let others = refusals.iter().filter(|code| *code != "RATE_LIMITED").count() as u64;
    assert!(others <= 1 + started.elapsed().as_secs() / 3, "{:?}: {refusals:?}", started.elapsed());
    assert!(started.elapsed() < Duration::from_secs(40), "{:?}", started.elapsed());
}
