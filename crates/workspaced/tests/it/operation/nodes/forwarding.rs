//! What a node forwards, to whom, and for how long.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use reqwest::Method;
use rustix::process::Signal;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::{LEASE, ROLES, prepare, start, start_at, two, until_recorded};
use crate::harness::{Answer, Run, Server, assert_chain, in_time, sha256, until};
use crate::operation::replay_and_repair::assert_ends;

/// Forwards connections to `to`. Returns its address, and everything that it is sent.
async fn eavesdrop(to: String) -> (String, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let received = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&received);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let (to, all) = (to.clone(), Arc::clone(&all));
            tokio::spawn(async move {
                let (mut from_client, mut to_client) = client.into_split();
                let (mut from_server, mut to_server) = TcpStream::connect(to).await.unwrap().into_split();
                let back = tokio::io::copy(&mut from_server, &mut to_client);
                let there = async {
                    let mut buffer = vec![0; 64 * 1024];
                    while let Ok(length @ 1..) = from_client.read(&mut buffer).await {
                        all.lock().unwrap().extend(&buffer[..length]);
                        to_server.write_all(&buffer[..length]).await.unwrap();
                    }
                };
                tokio::select! {
                    _ = back => {}
                    () = there => {}
                }
            });
        }
    });
    (address, received)
}

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

/// Sends a request as it is written, and returns the status and the body of the answer.
async fn send_raw(server: &Server, head: &str) -> (String, String) {
    let mut stream = TcpStream::connect(server.base.trim_start_matches("http://")).await.unwrap();
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.lines().next().unwrap().to_owned(), body.to_owned())
}

/// Returns an answer without what is different for each call.
fn without_call((status, body): (String, String)) -> (String, String) {
    let Ok(mut json) = serde_json::from_str::<serde_json::Value>(&body) else { return (status, body) };
    for member in ["toolCallId", "seq", "headHash"] {
        json.as_object_mut().unwrap().remove(member);
    }
    (status, json.to_string())
}

#[tokio::test]
async fn tokens_are_sent_to_nodes_alone() {
    let [first, second] = two().await;
    let run = first.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let away = second.reconnect(&run);
    // It can pass on what it is asked, so that a node answers.
    let (address, received) = eavesdrop(first.base.trim_start_matches("http://").to_owned()).await;
    let url = format!("http://{address}");
    let ask = async || {
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(3) {
            let answer = away.call("read_file", json!({"path": "a.txt"})).await;
            answer.refused("UNAVAILABLE");
            assert!(!answer.header("retry-after").is_empty(), "{}", answer.text());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        let received = String::from_utf8_lossy(&received.lock().unwrap()).to_lowercase();
        assert!(!received.is_empty(), "nothing was sent");
        assert!(
            !received.contains("authorization") && !received.contains(&run.agent.token.clone().unwrap().to_lowercase()),
            "{received}"
        );
    };
    // The address of a node that is another one's.
    let sql = format!("UPDATE node SET url = '{url}' WHERE url = '{}'", first.base);
    assert_eq!(second.database.tamper(&sql).await, Ok(1));
    ask().await;
    let sql = format!("UPDATE node SET url = '{}' WHERE url = '{url}'", first.base);
    assert_eq!(second.database.tamper(&sql).await, Ok(1));
    // A node that has never joined.
    let sql = format!(
        "INSERT INTO node (node_id, incarnation, url, started_at_ms, expires_at_ms, lease_ms) \
         SELECT 'other', 1, '{url}', started_at_ms, expires_at_ms + 3600000, 3600000 FROM node WHERE url = '{}'",
        first.base
    );
    assert_eq!(second.database.tamper(&sql).await, Ok(1));
    move_to(&second, &run, &url).await;
    received.lock().unwrap().clear();
    ask().await;
}

/// Answers every request of every connection at `address` with success, as if it had done what was asked. Returns what it is sent.
async fn pretend(address: &str) -> Arc<Mutex<Vec<u8>>> {
    let listener = until("the address is free", async || TcpListener::bind(address).await).await;
    let received = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&received);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let all = Arc::clone(&all);
            tokio::spawn(async move {
                let mut buffer = vec![0; 64 * 1024];
                while let Ok(length @ 1..) = client.read(&mut buffer).await {
                    all.lock().unwrap().extend(&buffer[..length]);
                    let answer =
                        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{\"ok\":true}";
                    client.write_all(answer.as_bytes()).await.unwrap();
                }
            });
        }
    });
    received
}

/// What a node has shown at its address a moment ago says nothing about who is there now.
#[tokio::test]
async fn a_stranger_at_the_address_of_a_node_that_has_just_ended_gets_no_token_and_acknowledges_nothing() {
    let [mut first, second] = two().await;
    let run = first.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let away = second.reconnect(&run);
    away.ok("read_file", json!({"path": "a.txt"})).await;
    first.kill();
    let received = pretend(first.base.trim_start_matches("http://")).await;
    let started = Instant::now();
    let mut refused = 0;
    // Within the second after which the other node would be asked again, and until its lease has ended.
    while started.elapsed() < Duration::from_secs(4) {
        let write = json!({"path": "b.txt", "content": "private\n", "reason": "r"});
        let answer = away.call("write_file", write).await;
        answer.refused("UNAVAILABLE");
        refused += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let received = String::from_utf8_lossy(&received.lock().unwrap()).to_lowercase();
    assert!(refused > 0 && received.contains("workspaced-hop-challenge"), "{received}");
    for secret in ["authorization", "private", &run.agent.token.clone().unwrap().to_lowercase()] {
        assert!(!received.contains(secret), "{received}");
    }
}

#[tokio::test]
async fn a_forwarded_request_has_the_headers_and_the_path_of_the_caller() {
    let [first, second] = two().await;
    let run = first.run_with_files(&[("a.txt", "a\n"), ("b c.txt", "b\n")], json!({})).await;
    let get = async |server: &Server, path: &str, more: &str| {
        let token = run.operator.token.as_deref().unwrap();
        let head = format!(
            "GET /v1/runs/{}/files/{path} HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {token}\r\n\
             X-Request-Id: same\r\n{more}\r\n",
            run.id
        );
        send_raw(server, &head).await
    };
    for path in [
        "a.txt",
        "./a.txt",
        "x/../a.txt",
        "%2e/a.txt",
        "x/%2E%2e/a.txt",
        "../../none/files/a.txt",
        "../a.txt",
        "/a.txt",
        "b%20c.txt",
        "a.txt?reason=..%2F",
        "a.txt?none=1",
        "a|b.txt",
        "a'b.txt",
        "%zz",
        ".",
        "",
    ] {
        let direct = get(&first, path, "Connection: close\r\n").await;
        let forwarded = get(&second, path, "Connection: close\r\n").await;
        assert_eq!(without_call(forwarded), without_call(direct), "{path}");
    }
    let answer = get(&second, "a.txt", "Connection: close, authorization\r\n").await;
    assert_eq!(answer, ("HTTP/1.1 200 OK".to_owned(), "a\n".to_owned()));
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
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let parts = futures_util::stream::iter(content).then(move |byte| {
        counted.fetch_add(1, Ordering::Relaxed);
        async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            Ok::<_, std::io::Error>(vec![byte])
        }
    });
    let request = slow.operator.request(Method::PUT, &path).body(reqwest::Body::wrap_stream(parts));
    let upload = {
        let operator = slow.operator.clone();
        tokio::spawn(async move { operator.send(request).await })
    };
    until("the upload is under way", async || sent.load(Ordering::Relaxed) > 10).await;
    first.signal(Signal::TERM);
    let took = until_recorded(&away.operator, &away, "after", Duration::from_secs(5)).await;
    println!("another node has recorded {took:?} after the signal");
    assert!(!upload.is_finished() && took < Duration::from_secs(4), "{took:?}");
    // So does its work for all, which it has ended: the other node has its roles while this one still drains. It signs until it leaves.
    let moved = ROLES.iter().filter(|role| **role != "signing");
    let has_roles = || moved.clone().all(|role| second.log().contains(&format!("role=\"{role}\" held=true")));
    second.until("the other node has the roles", async || has_roles()).await;
    assert!(!upload.is_finished(), "the roles were given back at the end only");
    upload.await.unwrap().is(201);
    assert!(first.wait().success());
    assert_chain(&idle.id, &away.audit().await);
}

#[tokio::test]
async fn a_stream_through_another_node_ends_when_the_run_has_moved() {
    let [first, second] = two().await;
    let run = first.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let away = second.reconnect(&run);
    let path = format!("/v1/runs/{}/changes", run.id);
    let stream = away.operator.stream(&path, None).await;
    let mut chunks = stream.bytes_stream();
    run.create("b.txt", "b\n").await;
    in_time("a change", chunks.next()).await.unwrap().unwrap();
    move_to(&second, &run, &second.base).await;
    let ended = async { while let Some(Ok(_)) = chunks.next().await {} };
    in_time("the end of the stream", ended).await;
    // The caller continues with the new owner.
    let mut chunks = away.operator.stream(&path, None).await.bytes_stream();
    away.create("c.txt", "c\n").await;
    in_time("a change", chunks.next()).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_stream_through_another_node_ends_with_its_owner() {
    let [first, second] = two().await;
    let run = first.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let path = format!("/v1/runs/{}/changes", run.id);
    let mut chunks = second.reconnect(&run).operator.stream(&path, None).await.bytes_stream();
    first.signal(Signal::STOP);
    let ended = async { while let Some(Ok(_)) = chunks.next().await {} };
    let ended = tokio::time::timeout(LEASE + Duration::from_secs(5), ended).await;
    first.signal(Signal::CONT);
    ended.expect("the end of the stream");
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

#[tokio::test]
async fn a_node_does_not_start_at_the_address_of_another_one() {
    let mut first = prepare(None).await;
    start(&mut first);
    let second = prepare(Some(&first)).await;
    let mut command = second.command("serve");
    command.args(["--listen", "127.0.0.1:0", "--node-url", &first.base]);
    command.arg("--cluster-secret-file").arg(second.home.join("secret")).args(&second.setup.args);
    let refused = command.output().unwrap();
    assert_ends(&refused, 2, &["--node-url", "is the address of another node, which is alive"]);
    // A node that has lost its data folder, and its name with it, starts once the heartbeat of its last process has expired.
    first.kill();
    let mut again = prepare(Some(&first)).await;
    let address = first.base.trim_start_matches("http://").to_owned();
    start_at(&mut again, &address, &first.base);
    again.nobody().get("/readyz").await.is(200);
}

#[tokio::test]
async fn a_refusal_in_the_models_view_is_forwarded_as_it_is() {
    let [first, second] = two().await;
    let run = first.run_with_files(&[("a.txt", "a\n"), ("b.txt", "b\n")], json!({})).await;
    let away = second.reconnect(&run);
    let call = async |run: &Run, tool: &str, input: serde_json::Value| {
        let path = format!("/v1/runs/{}/tools/{tool}", run.id);
        run.agent.send(run.agent.request(Method::POST, &path).header("accept", "text/plain").json(&input)).await
    };
    let refused = [
        ("read_file", json!({"path": "none.txt"}), 404),
        ("write_file", json!({"path": "a.txt", "content": "x", "expectedSha256": sha256("b"), "reason": "r"}), 409),
        ("read_file", json!({"path": ".env"}), 403),
        ("read_file", json!({"path": true}), 400),
    ];
    for (tool, input, status) in refused {
        let direct = call(&run, tool, input.clone()).await;
        let forwarded = call(&away, tool, input.clone()).await;
        assert_eq!((direct.status, forwarded.status), (status, status), "{input}: {}", forwarded.text());
        for name in ["content-type", "vary", "workspaced-sha256"] {
            assert_eq!(forwarded.header(name), direct.header(name), "{input}: {name}");
        }
        assert_eq!(forwarded.text(), direct.text(), "{input}");
        assert!(!forwarded.header("workspaced-seq").is_empty() || status == 400, "{input}");
    }
}

#[tokio::test]
async fn a_body_that_ends_early_is_refused_as_by_the_owner() {
    let [first, second] = two().await;
    let run = first.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let token = run.agent.token.as_deref().unwrap();
    let head = format!(
        "POST /v1/runs/{}/tools/read_file HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer {token}\r\n\
         Transfer-Encoding: chunked\r\n\r\n5\r\n{{\"pat\r\nzz\r\n",
        run.id
    );
    for node in [&first, &second] {
        let (status, body) = send_raw(node, &head).await;
        assert!(status.ends_with("400 Bad Request"), "{status}\n{body}");
        assert!(body.contains("the body ended early"), "{body}");
    }
}

#[tokio::test]
async fn the_head_of_an_export_through_another_node_has_no_length() {
    let [first, second] = two().await;
    let run = first.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    for path in ["archive", "patch", "report"] {
        let path = format!("/v1/runs/{}/{path}", run.id);
        let direct = run.operator.send(run.operator.request(Method::HEAD, &path)).await;
        let away = second.reconnect(&run).operator;
        let forwarded = away.send(away.request(Method::HEAD, &path)).await;
        assert_eq!((forwarded.status, direct.status), (200, 200), "{path}");
        for name in ["content-length", "content-type", "transfer-encoding"] {
            assert_eq!(forwarded.header(name), direct.header(name), "{path}: {name}");
        }
    }
}
