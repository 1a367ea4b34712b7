//! Slow downloads, stalled uploads and bursts of one caller do not delay others.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use reqwest::Method;
use rstest::rstest;
use rustix::process::Signal;
use serde_json::json;

use crate::harness::{Backend, Client, Run, Server, Setup, exhaustive, incompressible, sha256, until};
use crate::http::load_limits::{connect, may_connect};

/// Returns a request without a body in wire format.
fn raw_get(client: &Client, path: &str) -> String {
    let token = client.token.as_deref().unwrap();
    format!("GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n")
}

#[rstest]
#[tokio::test]
async fn unread_exports_delay_no_other_caller(#[values(Backend::Sqlite)] backend: Backend) {
    let setup = Setup::new(backend).arg("--concurrency", 4).arg("--request-timeout-seconds", 4);
    let server = Server::start_with(setup).await;
    let (greedy, _) = server.run_from_git(&[("a.txt", "a\n")], json!({})).await;
    let (other, _) = server.run_from_git(&[("a.txt", "a\n")], json!({})).await;
    greedy.put("noise.bin", incompressible(24 << 20));
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
    // Searches of the same run and exports of another run do not wait for them.
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
    until("a permit is released", async || greedy.agent.get(&archive).await.status == 200).await;
    assert_eq!(greedy.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn a_burst_of_connections_is_accepted(#[values(Backend::Sqlite)] backend: Backend) {
    let backlog = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
    if !may_connect(600) || backlog.trim().parse::<u32>().unwrap() < 600 {
        println!("SKIPPED: the system lets {} connections wait", backlog.trim());
        return;
    }
    let server = Server::start(backend).await;
    // While the process is stopped, connections wait in the listen backlog.
    server.signal(Signal::STOP);
    let address = server.base.trim_start_matches("http://").parse().unwrap();
    let connect = || TcpStream::connect_timeout(&address, Duration::from_secs(1));
    let connections: Vec<_> = (0..600).map_while(|_| connect().ok()).collect();
    server.signal(Signal::CONT);
    assert_eq!(connections.len(), 600);
    drop(connections);
    server.run(json!({})).await;
}

#[rstest]
#[tokio::test]
async fn stalled_uploads_delay_no_other_caller(#[values(Backend::Sqlite)] backend: Backend) {
    // Fewer permits than uploads.
    let setup = Setup::new(backend).arg("--concurrency", 2).arg("--request-timeout-seconds", 3);
    let server = Server::start_with(setup).await;
    let greedy = server.run(json!({})).await;
    let other = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let path = |number: usize| format!("/v1/runs/{}/files/{number}.bin", greedy.id);
    let (token, part) = (greedy.agent.token.clone().unwrap(), vec![0; 1_100_000]);
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
    // The service has begun to receive them.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let started = Instant::now();
    other.ok("search_text", json!({"query": "a"})).await;
    other.ok("tree_stats", json!({})).await;
    let whole = vec![0; 2_000_000];
    let put = |run: &Run, name: &str| {
        let path = format!("/v1/runs/{}/files/{name}", run.id);
        let request = run.agent.request(Method::PUT, &path).header("if-none-match", "*").header("x-reason", "r");
        request.header("x-tool-call-id", "put-39").body(whole.clone())
    };
    other.agent.send(put(&other, "large.bin")).await.is(201);
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    // One upload has the permit of its run. The others are refused.
    let refused = held.iter_mut().filter_map(|stream| {
        let mut status_line = [0; 12];
        stream.set_read_timeout(Some(Duration::from_secs(6))).unwrap();
        stream.read_exact(&mut status_line).is_ok().then_some(status_line)
    });
    let refused: Vec<_> = refused.collect();
    assert_eq!(refused, vec![*b"HTTP/1.1 429"; 39]);
    drop(held);
    // A refused call can be retried with the same ID.
    until("a permit is released", async || greedy.agent.send(put(&greedy, "39.bin")).await.status == 201).await;
    assert_eq!(greedy.snapshot().into_keys().collect::<Vec<_>>(), ["39.bin"]);
    assert_eq!(greedy.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn historical_listings_do_not_delay_quick_reads(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let setup = Setup::new(backend).arg("--concurrency", 1);
    let server = Server::start_with(setup).await;
    let names: Vec<_> = (0..3000).map(|number| format!("d{}/{number}.txt", number % 50)).collect();
    // Larger than the limit for reads without a permit.
    let large = "line\n".repeat(100_000);
    let mut files: Vec<_> = names.iter().map(|name| (name.as_str(), "text\n")).collect();
    files.push(("large.txt", &large));
    let run = server.run_with_files(&files, json!({})).await;
    let old = run.ok("write_file", json!({"path": "new.txt", "content": "old\n", "reason": "r"})).await;
    run.replace("new.txt", "new\n", old["newSha256"].as_str().unwrap()).await.ok();

    let mut listings = tokio::task::JoinSet::new();
    for _ in 0..60 {
        let run = run.clone();
        listings.spawn(async move { run.ok("list_dir", json!({"atSeq": 1, "maxDepth": 20, "maxEntries": 10})).await });
    }
    listings.join_next().await.unwrap().unwrap();
    for input in [
        json!({"path": "large.txt", "startLine": 99_000}),
        json!({"path": "large.txt", "atSeq": 3, "maxLines": 1}),
        json!({"path": "new.txt", "atSeq": 2}),
    ] {
        run.ok("read_file", input).await;
    }
    let before = std::iter::from_fn(|| listings.try_join_next()).count() + 1;
    assert!(before < 60, "three quick reads waited for all historical listings");
    listings.join_all().await;
}

#[rstest]
#[tokio::test]
async fn a_path_at_a_record_has_its_content_of_that_time(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "base\n"), ("d/b.txt", "b\n"), ("gone.txt", "g\n")]).await;
    run.replace("a.txt", "one\n", &sha256("base\n")).await.ok();
    run.replace("a.txt", "two\n", &sha256("one\n")).await.ok();
    let input = json!({"from": "a.txt", "to": "e.txt", "expectedSha256": sha256("two\n"), "reason": "r"});
    run.ok("move_file", input).await;
    run.create("a.txt", "three\n").await;
    let input = json!({"path": "gone.txt", "expectedSha256": sha256("g\n"), "reason": "r"});
    run.ok("delete_file", input).await;
    let read = async |path: &str, seq: u64| {
        let answer = run.call("read_file", json!({"path": path, "atSeq": seq, "format": "raw"})).await;
        if answer.status == 200 { answer.ok()["content"].as_str().unwrap().to_owned() } else { answer.refusal() }
    };
    for (path, seq, want) in [
        ("a.txt", 0, "base\n"),
        ("a.txt", 1, "base\n"),
        ("a.txt", 2, "one\n"),
        ("a.txt", 3, "two\n"),
        ("a.txt", 4, "NOT_FOUND"),
        ("a.txt", 5, "three\n"),
        ("e.txt", 3, "NOT_FOUND"),
        ("e.txt", 4, "two\n"),
        ("gone.txt", 5, "g\n"),
        ("gone.txt", 6, "NOT_FOUND"),
        ("d/b.txt", 6, "b\n"),
        ("d", 6, "NOT_A_FILE"),
        ("none.txt", 6, "NOT_FOUND"),
    ] {
        assert_eq!(read(path, seq).await, want, "{path} at {seq}");
    }
}

#[rstest]
#[tokio::test]
async fn a_slow_but_steady_download_continues(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start_with(Setup::new(backend).arg("--client-timeout-seconds", 2)).await;
    let run = server.run_with_files(&[], json!({})).await;
    run.put("noise.bin", incompressible(64 << 20));
    let mut stream = connect(&server);
    stream.write_all(raw_get(&run.agent, &format!("/v1/runs/{}/files/noise.bin", run.id)).as_bytes()).unwrap();
    let taken = tokio::task::spawn_blocking(move || {
        let (mut taken, mut buffer, started) = (0, vec![0; 50_000], Instant::now());
        while started.elapsed() < Duration::from_secs(9) {
            stream.read_exact(&mut buffer).unwrap();
            taken += buffer.len();
            std::thread::sleep(Duration::from_millis(250));
        }
        // Reads beyond what the socket buffers of both sides contain.
        stream.read_exact(&mut vec![0; (64 << 20) - taken]).unwrap();
    });
    taken.await.unwrap();
}
