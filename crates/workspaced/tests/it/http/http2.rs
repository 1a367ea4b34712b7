//! HTTP/2 with prior knowledge: what works over it, and clients that stall, flood or do not receive. TLS is tested in `tls`.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use reqwest::Method;
use rstest::rstest;
use serde_json::json;

use crate::harness::{Backend, Run, Server, Setup, until};
use crate::http::load_limits::permits_taken;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const INITIAL_WINDOW_SIZE: u8 = 4;

/// A connection whose frames are made by the test.
struct Raw(TcpStream);

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Returns a header block of literals, which no table is needed for.
fn block(headers: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in headers {
        block.push(0);
        for text in [name, value] {
            // An integer with a prefix of seven bits.
            let mut length = text.len();
            if length < 127 {
                block.push(u8::try_from(length).unwrap());
            } else {
                block.push(127);
                length -= 127;
                while length >= 128 {
                    block.push(u8::try_from(length % 128 + 128).unwrap());
                    length /= 128;
                }
                block.push(u8::try_from(length).unwrap());
            }
            block.extend(text.as_bytes());
        }
    }
    block
}

fn get(path: &str, token: &str) -> Vec<u8> {
    let bearer = format!("Bearer {token}");
    block(&[
        (":method", "GET"),
        (":scheme", "http"),
        (":authority", "x"),
        (":path", path),
        ("authorization", &bearer),
        ("accept", "text/event-stream, */*"),
    ])
}

impl Raw {
    /// Opens a connection, with these settings of the client.
    fn open(server: &Server, settings: &[u8]) -> Self {
        let mut stream = TcpStream::connect(server.base.trim_start_matches("http://")).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        stream.write_all(&frame(SETTINGS, 0, 0, settings)).unwrap();
        Self(stream)
    }

    fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> std::io::Result<()> {
        self.0.write_all(&frame(kind, flags, stream, payload))
    }

    /// Returns the kind, the flags, the stream and the payload of the next frame; `None` at the end of the connection.
    fn receive(&mut self) -> Option<(u8, u8, u32, Vec<u8>)> {
        let mut head = [0; 9];
        match self.0.read_exact(&mut head) {
            Ok(()) => {}
            Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => return None,
            Err(error) => panic!("the connection is still open: {error}"),
        }
        let mut payload = vec![0; usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2])];
        self.0.read_exact(&mut payload).ok()?;
        Some((head[3], head[4], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), payload))
    }

    /// Returns the payload of the first frame of a kind.
    fn until(&mut self, kind: u8) -> Vec<u8> {
        loop {
            let (found, _, _, payload) =
                self.receive().unwrap_or_else(|| panic!("closed before a frame of kind {kind}"));
            if found == kind {
                return payload;
            }
        }
    }

    /// Reads until the server closes the connection. Returns the kinds of the frames.
    fn until_closed(&mut self) -> Vec<u8> {
        std::iter::from_fn(|| self.receive().map(|(kind, ..)| kind)).collect()
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

async fn start(setup: Setup) -> (Server, Run) {
    let server = Server::start_with(setup).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    (server, run)
}

fn with_short_timeouts(backend: Backend) -> Setup {
    Setup::new(backend).arg("--client-timeout-seconds", 1)
}

#[rstest]
#[tokio::test]
async fn calls_transfers_streams_and_many_requests_at_once_work_over_one_connection(
    #[values(Backend::Sqlite)] backend: Backend,
) {
    let (server, mut run) = start(Setup::new(backend)).await;
    (run.agent, run.operator) = (run.agent.over_http2(), run.operator.over_http2());
    let response = run.agent.request(Method::GET, &format!("/v1/runs/{}", run.id)).send().await.unwrap();
    assert_eq!(response.version(), reqwest::Version::HTTP_2);
    run.ok("read_file", json!({"path": "a.txt"})).await;
    run.create("b.txt", "b\n").await;

    let content: Vec<u8> = (0..8 << 20).map(|index: u32| (index / 7 % 251) as u8).collect();
    let path = format!("/v1/runs/{}/files/large.bin", run.id);
    let upload = run.operator.request(Method::PUT, &path).header("if-none-match", "*").header("x-reason", "r");
    let created = run.operator.send(upload.body(content.clone())).await;
    assert_eq!(created.status, 201, "{}", created.text());
    assert!(run.operator.get(&path).await.body == content);

    let mut changes = run.operator.stream(&format!("/v1/runs/{}/changes", run.id), None).await;
    let calls = (0..100).map(|_| run.call("read_file", json!({"path": "a.txt"})));
    for answer in join_all(calls).await {
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    run.create("c.txt", "c\n").await;
    let mut text = String::new();
    while !text.contains("c.txt") {
        text.push_str(&String::from_utf8_lossy(&changes.chunk().await.unwrap().unwrap()));
    }

    // A page that the service has served is of its own origin, whichever protocol names the host.
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    for (origin, status) in [(server.base.as_str(), 200), ("http://evil.example", 403)] {
        let post = run.agent.request(Method::POST, "/mcp").header("origin", origin).json(&ping);
        let post = post.header("accept", "application/json, text/event-stream");
        assert_eq!(run.agent.send(post).await.status, status, "{origin}");
    }
    let url = format!("{}/healthz", server.base);
    let curl = ["-q", "-sS", "--http2-prior-knowledge", "-o", "/dev/null", "-w", "%{http_version} %{http_code}", &url];
    let done = Command::new("curl").args(curl).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&done.stdout), "2 200", "{}", String::from_utf8_lossy(&done.stderr));
}

#[rstest]
#[tokio::test]
async fn clients_of_http2_that_stall_are_disconnected(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, run) = start(with_short_timeouts(backend)).await;
    let token = run.agent.token.clone().unwrap();
    let head = get("/healthz", &token);
    for what in ["nothing", "half a head", "a head byte by byte", "pings", "an answered request and then pings"] {
        let (mut raw, head) = (Raw::open(&server, &[]), head.clone());
        let took = blocking(move || {
            let started = Instant::now();
            match what {
                "nothing" => {}
                "half a head" => raw.send(HEADERS, END_STREAM, 1, &head[..20]).unwrap(),
                "a head byte by byte" => {
                    raw.send(HEADERS, END_STREAM, 1, &head[..20]).unwrap();
                    let rest = frame(9, END_HEADERS, 1, &head[20..]);
                    let _ = rest.iter().try_for_each(|byte| {
                        std::thread::sleep(Duration::from_millis(100));
                        raw.0.write_all(&[*byte])
                    });
                }
                _ => {
                    if what != "pings" {
                        raw.send(HEADERS, END_STREAM | END_HEADERS, 1, &head).unwrap();
                        raw.until(DATA);
                    }
                    while started.elapsed() < Duration::from_secs(12) && raw.send(PING, 0, 0, &[0; 8]).is_ok() {
                        std::thread::sleep(Duration::from_millis(50));
                    }
                }
            }
            raw.until_closed();
            started.elapsed()
        });
        let took = took.await;
        assert!(took < Duration::from_secs(10), "{what}: {took:?}");
    }
    // The connection that answers a request is not idle, and does not wait for half a head either.
    let mut raw = Raw::open(&server, &[]);
    let changes = get(&format!("/v1/runs/{}/changes", run.id), &token);
    blocking(move || {
        raw.send(HEADERS, END_STREAM | END_HEADERS, 1, &changes).unwrap();
        raw.until(HEADERS);
        std::thread::sleep(Duration::from_secs(4));
        raw.send(PING, 0, 0, &[7; 8]).unwrap();
        assert_eq!(raw.until(PING), [7; 8]);
        raw.send(HEADERS, END_STREAM, 3, &head[..20]).unwrap();
        raw.until_closed();
    })
    .await;
    run.ok("read_file", json!({"path": "a.txt"})).await;
}

#[rstest]
#[tokio::test]
async fn a_flood_of_frames_ends_its_connection_and_delays_nobody(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, run) = start(Setup::new(backend)).await;
    let head = get("/healthz", run.agent.token.as_deref().unwrap());
    for what in ["pings", "settings", "rapid resets", "a header block without an end"] {
        let (mut raw, head) = (Raw::open(&server, &[]), head.clone());
        let ended = blocking(move || {
            let mut reader = Raw(raw.0.try_clone().unwrap());
            let kinds = std::thread::spawn(move || reader.until_closed());
            let mut stream = 1;
            for number in 0..200_000 {
                let flood = match what {
                    "pings" => frame(PING, 0, 0, &[0; 8]),
                    "settings" => frame(SETTINGS, 0, 0, &[]),
                    "rapid resets" => {
                        stream += 2;
                        let request = frame(HEADERS, END_STREAM | END_HEADERS, stream, &head);
                        [request, frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())].concat()
                    }
                    _ if number == 0 => frame(HEADERS, END_STREAM, 1, &head),
                    _ => frame(9, 0, 1, &block(&[("x", "y")])),
                };
                if raw.0.write_all(&flood).is_err() {
                    break;
                }
            }
            kinds.join().unwrap()
        });
        tokio::time::timeout(Duration::from_secs(40), ended).await.unwrap_or_else(|_| panic!("{what}: still open"));
        run.ok("read_file", json!({"path": "a.txt"})).await;
    }
}

#[rstest]
#[tokio::test]
async fn a_response_that_is_not_received_is_reset_and_the_others_are_sent(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, run) = start(with_short_timeouts(backend)).await;
    File::create(run.repo.join("large.bin")).unwrap().set_len(64 << 20).unwrap();
    let token = run.agent.token.clone().unwrap();
    let large = get(&format!("/v1/runs/{}/files/large.bin", run.id), &token);
    let changes = get(&format!("/v1/runs/{}/changes", run.id), &token);
    for window in [0_u32, 1, 40_000] {
        let settings = [&[0, INITIAL_WINDOW_SIZE], &window.to_be_bytes()[..]].concat();
        let (mut raw, large, changes) = (Raw::open(&server, &settings), large.clone(), changes.clone());
        blocking(move || {
            raw.send(HEADERS, END_STREAM | END_HEADERS, 1, &changes).unwrap();
            // The window of this stream alone is large.
            raw.send(8, 0, 1, &100_000_u32.to_be_bytes()).unwrap();
            raw.send(HEADERS, END_STREAM | END_HEADERS, 3, &large).unwrap();
            let started = Instant::now();
            let mut received = 0;
            loop {
                let (kind, _, stream, payload) = raw.receive().expect("the connection stays open");
                match (kind, stream) {
                    (DATA, 3) => received += payload.len(),
                    (RST_STREAM, 3) => break,
                    (RST_STREAM, 1) => panic!("the other response was reset"),
                    _ => {}
                }
            }
            assert_eq!(received, window as usize);
            assert!(started.elapsed() < Duration::from_secs(10));
            raw.send(PING, 0, 0, &[7; 8]).unwrap();
            assert_eq!(raw.until(PING), [7; 8]);
        })
        .await;
    }
    run.ok("read_file", json!({"path": "a.txt"})).await;
}

#[rstest]
#[tokio::test]
async fn a_body_that_stalls_is_refused_and_heads_have_the_limits_of_http_1(
    #[values(Backend::Sqlite)] backend: Backend,
) {
    let (_server, mut run) = start(with_short_timeouts(backend)).await;
    run.agent = run.agent.over_http2();
    let path = format!("/v1/runs/{}/tools/read_file", run.id);
    let begun = futures_util::stream::once(async { Ok::<_, std::io::Error>("{\"path\":") });
    let stalled = futures_util::StreamExt::chain(begun, futures_util::stream::pending());
    let request = run.agent.request(Method::POST, &path).header("content-type", "application/json");
    let answer = run.agent.send(request.body(reqwest::Body::wrap_stream(stalled))).await;
    assert_eq!(answer.status, 400, "{}", answer.text());

    let many = (0..100)
        .fold(run.agent.request(Method::GET, "/healthz"), |request, number| request.header(format!("x-{number}"), "y"));
    assert_eq!(run.agent.send(many).await.status, 431);
    let long = run.agent.request(Method::GET, "/healthz").header("x", "y".repeat(200_000));
    let refused = run.agent.try_send(long).await.map(|answer| answer.status);
    assert!(refused.is_err() || refused.is_ok_and(|status| status == 431));
    run.ok("read_file", json!({"path": "a.txt"})).await;
}

#[rstest]
#[tokio::test]
async fn a_shutdown_completes_requests_of_http2_and_waits_for_no_idle_connection(
    #[values(Backend::Sqlite)] backend: Backend,
) {
    let (mut server, mut run) = start(Setup::new(backend).arg("--drain-seconds", 30)).await;
    // One never answers, not even the ping that precedes the end.
    let mut silent = Raw::open(&server, &[]);
    silent.send(HEADERS, END_STREAM | END_HEADERS, 1, &get("/healthz", "none")).unwrap();
    let mut silent = blocking(move || {
        silent.until(DATA);
        silent
    })
    .await;
    run.agent = run.agent.over_http2();
    let mut events = server.auditor().over_http2().stream("/v1/audit/stream", None).await;
    let agent = run.agent.clone();
    let path = format!("/v1/runs/{}/tools/write_file", run.id);
    let input = json!({"path": "b.txt", "content": "b\n", "reason": "r"}).to_string();
    let (begun, mut body) = (input[..10].to_owned(), input[10..].to_owned());
    let (hold, held) = tokio::sync::oneshot::channel::<()>();
    let rest = async move {
        let _ = held.await;
        Ok::<_, std::io::Error>(std::mem::take(&mut body))
    };
    let chunks = futures_util::StreamExt::chain(
        futures_util::stream::once(async move { Ok::<_, std::io::Error>(begun) }),
        futures_util::stream::once(rest),
    );
    let request = agent.request(Method::POST, &path).header("content-type", "application/json");
    let request = request.body(reqwest::Body::wrap_stream(chunks));
    let call = tokio::spawn(async move { agent.send(request).await.status });
    // Beside the stream of records.
    until("the request is received", async || permits_taken(&server, "request").await >= 2.0).await;
    server.signal(rustix::process::Signal::TERM);
    let kinds = blocking(move || silent.until_closed()).await;
    assert!(kinds.contains(&GOAWAY), "{kinds:?}");
    hold.send(()).unwrap();
    assert_eq!(call.await.unwrap(), 200);
    while let Ok(Some(_)) = events.chunk().await {}
    assert_eq!(server.wait().code(), Some(0), "{}", server.log());
}

#[rstest]
#[tokio::test]
async fn idle_connections_of_http2_are_small(#[values(Backend::Sqlite)] backend: Backend) {
    const CONNECTIONS: u32 = 1500;
    let (server, run) = start(Setup::new(backend).arg("--client-timeout-seconds", 900)).await;
    run.ok("read_file", json!({"path": "a.txt"})).await;
    let (held, growth) = server
        .peak_growth(async {
            let mut held: Vec<_> = (0..CONNECTIONS).map(|_| Raw::open(&server, &[])).collect();
            let held = blocking(move || {
                for raw in &mut held {
                    raw.until(SETTINGS);
                }
                held
            })
            .await;
            run.ok("read_file", json!({"path": "a.txt"})).await;
            held
        })
        .await;
    let each = growth / u64::from(CONNECTIONS);
    assert!(each < 80 * 1024, "{each} bytes for each connection");
    drop(held);
    until("the connections are closed", async || {
        let text = server.nobody().get("/metrics").await.text();
        let open = text.lines().find_map(|line| line.strip_prefix("workspaced_connections ")?.parse::<f64>().ok());
        open.is_some_and(|open| open < 10.0)
    })
    .await;
}

#[rstest]
#[tokio::test]
async fn an_idle_connection_of_http2_gives_way_and_one_that_answers_does_not(
    #[values(Backend::Sqlite)] backend: Backend,
) {
    let (server, run) = start(Setup::new(backend).arg("--max-connections", 8)).await;
    let token = run.agent.token.clone().unwrap();
    let changes = get(&format!("/v1/runs/{}/changes", run.id), &token);
    let mut busy = Raw::open(&server, &[]);
    busy.send(HEADERS, END_STREAM | END_HEADERS, 1, &changes).unwrap();
    let mut idle = Vec::new();
    for _ in 0..12 {
        let mut raw = Raw::open(&server, &[]);
        raw.send(HEADERS, END_STREAM | END_HEADERS, 1, &get("/v1/limits", &token)).unwrap();
        let raw = blocking(move || {
            raw.until(DATA);
            raw
        });
        idle.push(raw.await);
    }
    let mut busy = blocking(move || {
        busy.until(HEADERS);
        idle.remove(0).until_closed();
        busy.send(PING, 0, 0, &[7; 8]).unwrap();
        busy
    })
    .await;
    assert_eq!(blocking(move || busy.until(PING)).await, [7; 8]);
}
