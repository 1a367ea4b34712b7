//! Callers who take their time, or come all at once: exports that nobody takes in, uploads that stand still, a crowd. Nobody
//! else waits for them.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use reqwest::Method;
use rstest::rstest;
use serde_json::json;

use crate::bounds::{connect, until};
use crate::harness::{Backend, Client, Run, Server, Setup};

/// Bytes that no archive makes smaller.
fn noise(count: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(&mut next).take(count / 8).flatten().collect()
}

/// One request without a body, as it is on the wire.
fn raw_get(client: &Client, path: &str) -> String {
    let token = client.token.as_deref().unwrap();
    format!("GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n")
}

#[rstest]
#[tokio::test]
async fn who_does_not_take_exports_in_keeps_nobody_else_waiting(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let setup =
        Setup::new(backend).arg("--search-threads", 1).arg("--export-threads", 4).arg("--request-timeout-seconds", 4);
    let server = Server::start_with(setup).await;
    let greedy = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let other = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    greedy.put("noise.bin", noise(24 << 20));
    let mut held = Vec::new();
    for _ in 0..3 {
        for what in ["archive", "patch", "bundle"] {
            let mut stream = connect(&server);
            stream.write_all(raw_get(&greedy.agent, &format!("/v1/runs/{}/{what}", greedy.id)).as_bytes()).unwrap();
            if held.is_empty() {
                let mut head = [0; 15];
                stream.read_exact(&mut head).unwrap();
                assert_eq!(&head, b"HTTP/1.1 200 OK");
            }
            held.push(stream);
        }
    }
    // Not a search of its own either waits for them, and no export of another run.
    for run in [&other, &greedy] {
        run.ok("search_text", json!({"query": "a", "path": "a.txt"})).await;
    }
    for what in ["archive", "patch", "bundle"] {
        let answer = other.agent.get(&format!("/v1/runs/{}/{what}", other.id)).await;
        assert_eq!(answer.status, 200, "{what}: {}", answer.text());
    }
    let archive = format!("/v1/runs/{}/archive", greedy.id);
    let refused = greedy.agent.get(&archive).await;
    assert_eq!(refused.refused("RATE_LIMITED")["limit"], 1);
    assert!(refused.header("retry-after").parse::<u64>().unwrap() >= 1);
    let record = greedy.last_record().await;
    assert_eq!((&record["tool"], &record["code"]), (&json!("archive"), &json!("RATE_LIMITED")));
    std::fs::remove_file(greedy.repo.join("noise.bin")).unwrap();
    drop(held);
    until("a place is free again", async || greedy.agent.get(&archive).await.status == 200).await;
    assert_eq!(greedy.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn a_crowd_that_comes_at_once_is_let_in(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start(backend).await;
    // While the process stands still, connections wait in the system's queue: as many as it was asked to keep.
    server.signal("STOP");
    let address = server.base.trim_start_matches("http://").parse().unwrap();
    let connect = || TcpStream::connect_timeout(&address, Duration::from_secs(1));
    let crowd: Vec<_> = (0..600).map_while(|_| connect().ok()).collect();
    server.signal("CONT");
    assert_eq!(crowd.len(), 600);
    drop(crowd);
    server.run(json!({})).await;
}

#[rstest]
#[tokio::test]
async fn large_files_that_stand_still_keep_nobody_else_waiting(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    // Fewer threads than there are uploads.
    let mut setup = Setup::new(backend).arg("--write-threads", 4).arg("--request-timeout-seconds", 3);
    for pool in ["--read-threads", "--search-threads", "--export-threads", "--import-threads"] {
        setup = setup.arg(pool, 1);
    }
    let server = Server::start_with(setup).await;
    let greedy = server.run(json!({})).await;
    let other = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let path = |number: usize| format!("/v1/runs/{}/files/{number}.bin", greedy.id);
    let (token, part) = (greedy.agent.token.clone().unwrap(), vec![b'x'; 1_100_000]);
    let mut held: Vec<_> = (0..40)
        .map(|number| {
            let mut stream = connect(&server);
            let head = format!(
                "PUT {} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nIf-None-Match: *\r\nX-Reason: r\r\n\
                 X-Tool-Call-Id: put-{number}\r\nContent-Length: 5000000\r\n\r\n",
                path(number)
            );
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(&part).unwrap();
            stream
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let started = Instant::now();
    other.ok("search_text", json!({"query": "a"})).await;
    other.ok("tree_stats", json!({})).await;
    let whole = vec![b'y'; 2_000_000];
    let put = |run: &Run, name: &str| {
        let path = format!("/v1/runs/{}/files/{name}", run.id);
        let request = run.agent.request(Method::PUT, &path).header("if-none-match", "*").header("x-reason", "r");
        request.header("x-tool-call-id", "put-39").body(whole.clone())
    };
    other.agent.send(put(&other, "large.bin")).await.is(201);
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    // One of them has the place that its run gets; the others are told.
    let refused = held.iter_mut().filter_map(|stream| {
        let mut told = [0; 12];
        stream.set_read_timeout(Some(Duration::from_secs(6))).unwrap();
        stream.read_exact(&mut told).is_ok().then_some(told)
    });
    let refused: Vec<_> = refused.collect();
    assert_eq!(refused, vec![*b"HTTP/1.1 429"; 39]);
    drop(held);
    // The name of a call that found no place is free for another try.
    until("a place is free again", async || greedy.agent.send(put(&greedy, "39.bin")).await.status == 201).await;
    assert_eq!(greedy.snapshot().into_keys().collect::<Vec<_>>(), ["39.bin"]);
    assert_eq!(greedy.verify().await["intact"], true);
}
