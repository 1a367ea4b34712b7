//! Request limits: slow, oversized and malformed requests are refused or disconnected, and other callers are not affected.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use rstest::rstest;
use serde_json::json;

use crate::harness::{Backend, Run, Server, Setup, until};
use crate::http::load_limits::may_connect;

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.base.trim_start_matches("http://")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    stream
}

/// Reads until the server closes the connection. Panics if it does not close in time.
fn until_closed(mut stream: TcpStream) -> (String, Duration) {
    let started = Instant::now();
    let (mut received, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => received.extend_from_slice(&buffer[..read]),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => panic!("still open after {:?}: {error}", started.elapsed()),
        }
    }
    (String::from_utf8_lossy(&received).into_owned(), started.elapsed())
}

async fn start_with_short_timeouts(backend: Backend) -> (Server, Run) {
    let setup = Setup::new(backend)
        .arg("--client-timeout-seconds", 1)
        .arg("--max-body-bytes", 100_000)
        .arg("--max-archive-bytes", 100_000);
    let server = Server::start_with(setup).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    (server, run)
}

#[rstest]
#[tokio::test]
async fn slow_requests_are_disconnected(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, run) = start_with_short_timeouts(backend).await;
    let token = run.agent.token.clone().unwrap();
    let head = format!(
        "POST /v1/runs/{}/tools/read_file HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: 16\r\n\r\n",
        run.id
    );
    for (what, sent) in [
        ("nothing at all", String::new()),
        ("half a head", head[..60].to_owned()),
        ("half a body", format!("{head}{{\"path\":")),
        ("an answered request and then nothing", "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n".to_owned()),
    ] {
        let mut stream = connect(&server);
        stream.write_all(sent.as_bytes()).unwrap();
        let (answer, took) = tokio::task::spawn_blocking(|| until_closed(stream)).await.unwrap();
        assert!(took < Duration::from_secs(6), "{what}: {took:?}");
        let status = answer.split(' ').nth(1).unwrap_or_default();
        assert!(what.contains("answered") == (status == "200"), "{what}: {answer}");
    }
    // Single bytes do not extend the header timeout.
    let mut stream = connect(&server);
    let sending = tokio::task::spawn_blocking(move || {
        let started = Instant::now();
        for byte in head.bytes() {
            if stream.write_all(&[byte]).is_err() {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        started.elapsed()
    });
    assert!(sending.await.unwrap() < Duration::from_secs(6));
    run.ok("read_file", json!({"path": "a.txt"})).await;
}

#[rstest]
#[tokio::test]
async fn the_size_of_a_body_is_limited(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, run) = start_with_short_timeouts(backend).await;
    let input = json!({"path": "b.txt", "content": "x".repeat(100_000), "reason": "r"});
    let problem = run.call("write_file", input.clone()).await.refused("BODY_TOO_LARGE");
    assert_eq!(problem["limit"], 100_000);
    // A body without a declared length.
    let chunks = (0..200).map(|_| Ok::<_, std::io::Error>("x".repeat(1000)));
    let body = reqwest::Body::wrap_stream(futures_util::stream::iter(chunks));
    let path = format!("/v1/runs/{}/tools/write_file", run.id);
    let request = run.agent.request(reqwest::Method::POST, &path).header("content-type", "application/json").body(body);
    run.agent.send(request).await.refused("BODY_TOO_LARGE");
    run.agent.with_token(Some("nobody")).post(&path, input).await.refusal();

    let waiting = server.run(json!({"source": {"type": "archive"}})).await;
    let large = crate::harness::tar_of(&[("a", &vec![b'x'; 200_000])]);
    let answer = waiting.operator.put(&format!("/v1/runs/{}/archive", waiting.id), large).await;
    answer.refused("BODY_TOO_LARGE");
    assert_eq!(waiting.get().await["state"], "preparing");
    assert!(!run.repo.join("b.txt").exists());
    run.ok("read_file", json!({"path": "a.txt"})).await;
}

/// Sends a body slowly, one byte at a time. Returns the answer and the duration.
fn send_slowly(server: &Server, run: &Run, path: &str) -> std::thread::JoinHandle<(String, Duration)> {
    let mut stream = connect(server);
    let token = run.operator.token.as_deref().unwrap();
    let head = format!(
        "PUT {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nIf-None-Match: *\r\nX-Reason: r\r\n\
         Content-Length: 5000000\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let started = Instant::now();
    std::thread::spawn(move || {
        let mut writer = stream.try_clone().unwrap();
        std::thread::spawn(move || {
            while writer.write_all(b"a").is_ok() {
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        stream.set_read_timeout(Some(Duration::from_secs(40))).unwrap();
        (until_closed(stream).0, started.elapsed())
    })
}

#[rstest]
#[tokio::test]
async fn slow_archive_uploads_do_not_delay_other_imports_and_time_out(#[values(Backend::Sqlite)] backend: Backend) {
    let setup = Setup::new(backend)
        .arg("--concurrency", 1)
        .arg("--client-timeout-seconds", 3)
        .arg("--request-timeout-seconds", 2);
    let server = Server::start_with(setup).await;
    let archive = |run: &Run| format!("/v1/runs/{}/archive", run.id);
    let mut uploads = Vec::new();
    for _ in 0..3 {
        let run = server.run(json!({"source": {"type": "archive"}})).await;
        uploads.push(send_slowly(&server, &run, &archive(&run)));
    }
    // The service has begun to receive them.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let started = Instant::now();
    server.run(json!({})).await;
    server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
    // An upload that waits for a permit is refused and can be retried.
    let waiting = server.run(json!({"source": {"type": "archive"}})).await;
    let tar = crate::harness::tar_of(&[("a", b"a\n")]);
    let answer = waiting.operator.put(&archive(&waiting), tar.clone()).await;
    answer.refused("UNAVAILABLE");
    assert!(answer.header("retry-after").parse::<u64>().unwrap() >= 1);
    assert_eq!(waiting.get().await["state"], "preparing");
    for upload in uploads {
        let (answer, took) = tokio::task::spawn_blocking(|| upload.join().unwrap()).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 503") || answer.starts_with("HTTP/1.1 400"), "{answer}");
        assert!(took < Duration::from_secs(30), "{took:?}");
    }
    assert_eq!(waiting.operator.put(&archive(&waiting), tar).await.status, 200);
    waiting.until_open().await;
}

#[rstest]
#[tokio::test]
async fn a_slow_file_upload_is_ended(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start_with(Setup::new(backend).arg("--client-timeout-seconds", 1)).await;
    let run = server.run(json!({})).await;
    let upload = send_slowly(&server, &run, &format!("/v1/runs/{}/files/a.bin", run.id));
    let (answer, took) = tokio::task::spawn_blocking(|| upload.join().unwrap()).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("ended early"), "{answer}");
    assert!(took > Duration::from_secs(3) && took < Duration::from_secs(20), "{took:?}");
    assert!(run.snapshot().is_empty());
}

#[rstest]
#[tokio::test]
async fn the_number_of_connections_is_limited_and_open_ones_continue(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start_with(Setup::new(backend).arg("--max-connections", 8)).await;
    let run = server.run(json!({})).await;
    run.ok("list_dir", json!({})).await;
    let ask = |stream: &mut TcpStream| stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut held: Vec<_> = (0..20).map(|_| connect(&server)).collect();
    for stream in &mut held {
        let _ = ask(stream);
        stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    }
    let mut served = 0;
    for stream in &mut held {
        let mut buffer = [0; 4096];
        let read = stream.read(&mut buffer).unwrap_or(0);
        let answer = String::from_utf8_lossy(&buffer[..read]).into_owned();
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 200") || answer.contains("UNAVAILABLE"), "{answer}");
        served += usize::from(answer.starts_with("HTTP/1.1 200"));
    }
    assert!(served >= 1, "{served} of 20 were served");
    // Those without a token, or idle, have ended for others.
    let is_open =
        |stream: &mut TcpStream| stream.read(&mut [0; 4096]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
    let open = held.iter_mut().filter_map(|stream| is_open(stream).then_some(())).count();
    assert!(open <= 8, "{open} of 20 are open");
    run.ok("list_dir", json!({})).await;
    drop(held);
    let mut after = connect(&server);
    ask(&mut after).unwrap();
    assert!(after.read(&mut [0; 4096]).unwrap() > 20, "no connection was released");
}

#[rstest]
#[tokio::test]
async fn the_rate_limit_of_one_token_does_not_affect_another(#[values(Backend::Sqlite)] backend: Backend) {
    let setup = Setup::new(backend).arg("--rate-limit", "1:20");
    let server = Server::start_with(setup).await;
    let (run, other) = (server.run(json!({})).await, server.run(json!({})).await);
    let mut refused = None;
    for _ in 0..60 {
        let answer = run.call("list_dir", json!({})).await;
        if answer.status != 200 {
            answer.refused("RATE_LIMITED");
            refused = Some(answer);
        }
    }
    let refused = refused.expect("sixty calls within forty seconds exceed the limit");
    other.ok("list_dir", json!({})).await;
    // A missing permission is reported first.
    run.agent.post(&format!("/v1/runs/{}/tools/list_dir", other.id), json!({})).await.refused("FORBIDDEN");
    tokio::time::sleep(Duration::from_secs(refused.header("retry-after").parse().unwrap())).await;
    run.ok("list_dir", json!({})).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn malformed_requests_do_no_harm(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, run) = start_with_short_timeouts(backend).await;
    let path = format!("/v1/runs/{}/tools/list_dir", run.id);
    for body in
        ["[".repeat(60_000), "{\"a\":".repeat(15_000), format!("{{\"path\":{}1{}}}", "[".repeat(200), "]".repeat(200))]
    {
        let request =
            run.agent.request(reqwest::Method::POST, &path).header("content-type", "application/json").body(body);
        run.agent.send(request).await.refused("INVALID_REQUEST");
    }
    for sent in [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /v1/runs HTTP/1.1\r\n\r\n".to_vec(),
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n".to_vec(),
        [b"GET /".to_vec(), vec![b'a'; 1_000_000], b" HTTP/1.1\r\n\r\n".to_vec()].concat(),
        [b"GET / HTTP/1.1\r\n".to_vec(), b"X: y\r\n".repeat(50_000), b"\r\n".to_vec()].concat(),
        vec![0; 100_000],
    ] {
        let mut stream = connect(&server);
        let _ = stream.write_all(&sent);
        let (answer, _) = tokio::task::spawn_blocking(|| until_closed(stream)).await.unwrap();
        assert!(!answer.contains("HTTP/1.1 5"), "{answer}");
        assert!(!answer.contains("\"items\""), "{answer}");
    }
    run.ok("list_dir", json!({})).await;
}

#[rstest]
#[tokio::test]
async fn many_idle_connections_do_not_delay_calls(#[values(Backend::Sqlite)] backend: Backend) {
    if !may_connect(500) {
        return;
    }
    let server = Server::start(backend).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let held: Vec<_> = (0..500).map(|_| connect(&server)).collect();
    let started = Instant::now();
    for _ in 0..20 {
        run.ok("read_file", json!({"path": "a.txt"})).await;
    }
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    drop(held);
}

#[rstest]
#[tokio::test]
async fn a_disconnected_call_is_applied_completely_or_not_at_all(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    let run = server.run(json!({})).await;
    let token = run.agent.token.clone().unwrap();
    for number in 0..30_u64 {
        let body = json!({"path": format!("{number}.txt"), "content": "x\n", "reason": "r", "toolCallId": format!("gone-{number}")}).to_string();
        let mut stream = connect(&server);
        write!(
            stream,
            "POST /v1/runs/{}/tools/write_file HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            run.id,
            body.len()
        )
        .unwrap();
        std::thread::sleep(Duration::from_micros(number * 200));
        drop(stream);
    }
    // Some calls may still go on.
    let compare = async || {
        let records = run.calls().await;
        let mut written: Vec<_> =
            records.iter().map(|record| record["pathsWritten"][0].as_str().unwrap().to_owned()).collect();
        written.sort();
        let files: Vec<_> = run.snapshot().into_keys().collect();
        if written == files { Ok(()) } else { Err(format!("{written:?} in the audit, {files:?} on disk")) }
    };
    until("the files are those of the audit", compare).await;
    crate::harness::assert_chain(&run.id, &run.audit().await);
    for number in 0..30 {
        let input = json!({"path": format!("{number}.txt"), "content": "x\n", "reason": "r", "toolCallId": format!("gone-{number}")});
        run.ok("write_file", input).await;
    }
}

#[rstest]
#[tokio::test]
async fn an_open_stream_counts_as_a_request(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start_with(Setup::new(backend).arg("--max-connections", 32)).await;
    let run = server.run(json!({})).await;
    let changes = format!("/v1/runs/{}/changes", run.id);
    for (client, path) in [(server.auditor(), "/v1/audit/stream"), (run.agent.clone(), &changes)] {
        let stream = || client.request(reqwest::Method::GET, path).header("accept", "text/event-stream");
        let mut open = Vec::new();
        for _ in 0..4 {
            open.push(client.stream(path, None).await);
        }
        let refused = client.send(stream()).await;
        assert_eq!(refused.refused("RATE_LIMITED")["limit"], 4, "{path}");
        assert!(refused.header("retry-after").parse::<u64>().unwrap() >= 1);
        // Calls of the same token and streams of other tokens still work.
        client.get(&format!("/v1/runs/{}/audit", run.id)).await.ok();
        drop(server.operator().stream("/v1/audit/stream", None).await);
        drop(open);
        let is_open = async || stream().send().await.unwrap().status() == 200;
        until(&format!("closed streams of {path} do not count"), is_open).await;
    }
}
