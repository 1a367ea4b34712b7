//! Requests that are refused before the body is read: the answer always arrives, and the connection stays open or closes as
//! announced.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use rstest::rstest;
use serde_json::json;

use crate::harness::{Backend, Run, Server, Setup, until_blocking};

/// Number of requests of each kind.
const REPEATS: usize = 120;

/// An answer read from a socket.
struct Received {
    status: u16,
    closes: bool,
    text: String,
}

/// A keep-alive client that reconnects only after the server announced the end of the connection.
struct Caller {
    address: String,
    stream: Option<BufReader<TcpStream>>,
    opened: usize,
}

impl Caller {
    fn new(server: &Server) -> Self {
        Self { address: server.base.trim_start_matches("http://").to_owned(), stream: None, opened: 0 }
    }

    fn stream(&mut self) -> &mut BufReader<TcpStream> {
        let (address, opened) = (&self.address, &mut self.opened);
        self.stream.get_or_insert_with(|| {
            *opened += 1;
            let stream = TcpStream::connect(address).unwrap();
            stream.set_nodelay(true).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            BufReader::new(stream)
        })
    }

    /// Sends each of `parts` in its own packet, with `pause` in between.
    fn send(&mut self, parts: &[&[u8]], pause: Duration) {
        for (number, part) in parts.iter().enumerate() {
            if number > 0 {
                std::thread::sleep(pause);
            }
            self.stream().get_mut().write_all(part).expect("an open connection");
        }
    }

    /// Reads the next answer. Waits for the end of the connection if the answer announces it.
    fn receive(&mut self, has_body: bool) -> Received {
        let stream = self.stream();
        let (mut head, mut line) = (String::new(), String::new());
        while line != "\r\n" {
            line.clear();
            assert!(stream.read_line(&mut line).expect("an answer") > 0, "closed without an answer: {head}");
            head.push_str(&line);
        }
        let head = head.to_ascii_lowercase();
        let value = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let length = value("content-length:").filter(|_| has_body).map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        stream.read_exact(&mut body).expect("a complete answer");
        let received = Received {
            status: head.split(' ').nth(1).unwrap().parse().unwrap(),
            closes: value("connection:") == Some("close"),
            text: String::from_utf8(body).unwrap(),
        };
        if received.closes {
            let mut stream = self.stream.take().unwrap();
            stream.get_ref().shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(stream.read_to_end(&mut Vec::new()).expect("a clean shutdown"), 0);
        }
        received
    }
}

/// A request whose body the server does not need: its head without the headers of the body, and the expected status.
struct Unread {
    method: &'static str,
    head: String,
    status: u16,
}

fn unread(method: &'static str, path: &str, token: Option<&str>, more: &str, status: u16) -> Unread {
    let token = token.map_or(String::new(), |token| format!("Authorization: Bearer {token}\r\n"));
    let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\n{token}Content-Type: application/json\r\n{more}");
    Unread { method, head, status }
}

/// Returns one request of each kind that is answered before the body is read.
async fn all_unread(server: &Server, run: &Run) -> Vec<Unread> {
    let (other, token) = (server.run(json!({})).await, run.agent.token.as_deref());
    let tool = |run: &Run, name: &str| format!("/v1/runs/{}/tools/{name}", run.id);
    let file = |name: &str| format!("/v1/runs/{}/files/{name}", run.id);
    vec![
        unread("POST", &tool(run, "read_file"), None, "", 401),
        unread("POST", &tool(run, "read_file"), Some("rws_wrong"), "", 401),
        unread("POST", &tool(&other, "read_file"), token, "", 403),
        unread("POST", "/v1/runs", token, "", 403),
        unread("POST", "/v1/none", token, "", 404),
        unread("POST", "/v1//runs", token, "", 404),
        unread("PUT", &tool(run, "list_dir"), token, "", 405),
        unread("POST", &tool(run, "list_dir"), token, "Content-Encoding: gzip\r\n", 415),
        unread("PUT", &file("b.txt"), None, "X-Reason: r\r\nIf-None-Match: *\r\n", 401),
        unread("PUT", &file("b.txt"), token, "X-Reason: r\r\n", 428),
        unread("DELETE", &file("a.txt"), None, "", 401),
        unread("GET", "/healthz", None, "", 200),
        unread("GET", &file("a.txt"), token, "", 200),
        unread("HEAD", &file("a.txt"), token, "", 200),
    ]
}

#[rstest]
#[tokio::test]
async fn a_refusal_before_the_body_always_arrives_and_the_connection_stays_open(
    #[values(Backend::Sqlite)] backend: Backend,
    #[values(false, true)] chunked: bool,
) {
    let (server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let body = json!({"path": "a.txt", "more": "x".repeat(2000)}).to_string();
    let (length, body) = if chunked {
        ("Transfer-Encoding: chunked\r\n\r\n".to_owned(), format!("{:x}\r\n{body}\r\n0\r\n\r\n", body.len()))
    } else {
        (format!("Content-Length: {}\r\n\r\n", body.len()), body)
    };
    let kinds = all_unread(&server, &run).await;
    let mut caller = Caller::new(&server);
    tokio::task::spawn_blocking(move || {
        for Unread { method, head, status } in kinds {
            let (head, half) = (format!("{head}{length}"), body.len() / 2);
            for number in 0..REPEATS {
                // The body in a second packet at once, in a delayed packet, in two packets, and with the head.
                let (first, second) = (&body.as_bytes()[..half], &body.as_bytes()[half..]);
                match number % 4 {
                    0 => caller.send(&[head.as_bytes(), body.as_bytes()], Duration::ZERO),
                    1 => caller.send(&[head.as_bytes(), body.as_bytes()], Duration::from_millis(2)),
                    2 => caller.send(&[head.as_bytes(), first, second], Duration::from_micros(300)),
                    _ => caller.send(&[format!("{head}{body}").as_bytes()], Duration::ZERO),
                }
                let answer = caller.receive(method != "HEAD");
                assert_eq!((answer.status, answer.closes), (status, false), "{number}: {head}{}", answer.text);
            }
        }
        assert_eq!(caller.opened, 1, "a short body closed the connection");
    })
    .await
    .unwrap();
    run.ok("read_file", json!({"path": "a.txt"})).await;
}

#[rstest]
#[tokio::test]
async fn a_late_or_long_body_closes_the_connection_as_announced(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let kinds = all_unread(&server, &run).await;
    let mut caller = Caller::new(&server);
    tokio::task::spawn_blocking(move || {
        let large = vec![b'x'; 6 << 20];
        let chunk = [b"100000\r\n", &large[..1 << 20], b"\r\n"].concat();
        for Unread { method, head, status } in kinds {
            // Simple clients send all bytes before they read the answer.
            let declared = format!("{head}Content-Length: {}\r\n\r\n", large.len());
            caller.send(&[declared.as_bytes(), &large], Duration::from_millis(1));
            let answer = caller.receive(method != "HEAD");
            // Too large for a tool call. A file upload has a larger limit, and an unknown route has none.
            let unlimited = head.contains("/files/b.txt") || head.contains("//runs");
            let wanted = if unlimited { status } else { 413 };
            assert_eq!((answer.status, answer.closes), (wanted, true), "{declared}");

            let undeclared = format!("{head}Transfer-Encoding: chunked\r\n\r\n");
            let mut parts = vec![undeclared.as_bytes()];
            parts.extend([chunk.as_slice(); 6]);
            parts.push(b"0\r\n\r\n");
            caller.send(&parts, Duration::from_micros(300));
            let answer = caller.receive(method != "HEAD");
            assert_eq!((answer.status, answer.closes), (status, true), "{undeclared}");

            let late = format!("{head}Content-Length: 2000\r\n\r\n");
            caller.send(&[late.as_bytes(), &large[..1000], &large[1000..2000]], Duration::from_millis(800));
            let answer = caller.receive(method != "HEAD");
            assert_eq!((answer.status, answer.closes), (status, true), "{late}");
        }
    })
    .await
    .unwrap();
}

#[rstest]
#[tokio::test]
async fn a_body_over_the_limit_is_refused_with_and_without_a_length(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[]).await;
    let token = run.agent.token.as_deref();
    let Unread { head, .. } = unread("POST", &format!("/v1/runs/{}/tools/read_file", run.id), token, "", 413);
    let mut caller = Caller::new(&server);
    tokio::task::spawn_blocking(move || {
        for number in 0..20 {
            let large = vec![b'x'; (5 + number % 3) << 20];
            let declared = format!("{head}Content-Length: {}\r\n\r\n", large.len());
            caller.send(&[declared.as_bytes(), &large], Duration::ZERO);
            let answer = caller.receive(true);
            assert_eq!((answer.status, answer.closes), (413, true));
            let chunk = [format!("{:x}\r\n", large.len()).as_bytes(), &large, b"\r\n0\r\n\r\n"].concat();
            caller.send(&[format!("{head}Transfer-Encoding: chunked\r\n\r\n").as_bytes(), &chunk], Duration::ZERO);
            let answer = caller.receive(true);
            assert_eq!((answer.status, answer.closes), (413, true));
        }
    })
    .await
    .unwrap();
}

#[rstest]
#[tokio::test]
async fn a_request_that_expects_100_continue_is_answered_before_the_body(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let kinds = all_unread(&server, &run).await;
    let path = format!("/v1/runs/{}/tools/read_file", run.id);
    let accepted = unread("POST", &path, run.agent.token.as_deref(), "", 200);
    let mut caller = Caller::new(&server);
    tokio::task::spawn_blocking(move || {
        let body = json!({"path": "a.txt"}).to_string();
        let expect = format!("Expect: 100-continue\r\nContent-Length: {}\r\n\r\n", body.len());
        // An upload without a precondition may get 100 Continue first.
        for Unread { method, head, status } in kinds.into_iter().filter(|kind| kind.status != 428) {
            for sends_anyway in [false, true] {
                caller.send(&[format!("{head}{expect}").as_bytes()], Duration::ZERO);
                if sends_anyway {
                    caller.send(&[body.as_bytes()], Duration::ZERO);
                }
                let answer = caller.receive(method != "HEAD");
                assert_eq!((answer.status, answer.closes), (status, true), "{head}");
            }
        }
        let opened = caller.opened;
        for _ in 0..REPEATS {
            caller.send(&[format!("{}{expect}", accepted.head).as_bytes()], Duration::ZERO);
            assert_eq!(caller.receive(false).status, 100);
            caller.send(&[body.as_bytes()], Duration::ZERO);
            assert_eq!(caller.receive(true).status, accepted.status);
        }
        assert!(caller.opened <= opened + 1, "an accepted body closed the connection");
    })
    .await
    .unwrap();
}

#[rstest]
#[tokio::test]
async fn a_client_with_a_connection_pool_loses_no_answer(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let refused = run.agent.with_token(Some("rws_wrong"));
    for number in 0..300 {
        // A body in chunks without a length: the client sends the head first.
        let pieces = (0..3).map(|_| Ok::<_, std::io::Error>("x".repeat(500)));
        let body = reqwest::Body::wrap_stream(futures_util::stream::iter(pieces));
        let path = if number % 2 == 0 { format!("/v1/runs/{}/tools/read_file", run.id) } else { "/v1/none".to_owned() };
        let request = refused.request(reqwest::Method::POST, &path).body(body);
        assert_eq!(refused.send(request).await.status, if number % 2 == 0 { 401 } else { 404 });
        let answer = refused.post(&path, json!({"path": "a.txt"})).await;
        assert_eq!(answer.status, if number % 2 == 0 { 401 } else { 404 });
    }
}

#[rstest]
#[tokio::test]
async fn an_invalid_request_head_is_answered(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, _run) = Run::shared(backend, &[]).await;
    let mut caller = Caller::new(&server);
    tokio::task::spawn_blocking(move || {
        for _ in 0..50 {
            let many = format!("GET /healthz HTTP/1.1\r\nHost: x\r\nX-Long: {}\r\n\r\n", "y".repeat(400_000));
            caller.send(&[many.as_bytes()], Duration::ZERO);
            let answer = caller.receive(true);
            assert_eq!((answer.status, answer.closes), (431, true));
            let junk = format!("{}\r\n\r\n", "junk ".repeat(40_000));
            caller.send(&[junk.as_bytes()], Duration::ZERO);
            let answer = caller.receive(true);
            assert_eq!((answer.status, answer.closes), (400, true));
        }
    })
    .await
    .unwrap();
}

#[rstest]
#[tokio::test]
async fn a_connection_over_the_limit_is_refused_with_an_answer(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start_with(Setup::new(backend).arg("--max-connections", 1)).await;
    // A request in progress is not ended for another one.
    let first = crate::http::fair_shares::open_stream(&server).await;
    let (mut others, mut after) = (Caller::new(&server), Caller::new(&server));
    tokio::task::spawn_blocking(move || {
        let body = vec![b'x'; 100_000];
        let ask = "POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n";
        for _ in 0..200 {
            others.send(&[ask.as_bytes(), &body], Duration::ZERO);
            let answer = others.receive(true);
            assert_eq!((answer.status, answer.closes), (503, true));
        }
        drop(first);
        until_blocking("the connection is free again", || {
            after.send(&[b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"], Duration::ZERO);
            after.receive(true).status == 200
        });
    })
    .await
    .unwrap();
}
