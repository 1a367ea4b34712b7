//! Fair shares: whatever one caller does, another one is served.

use std::future::Future;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpStream};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Client, Run, Server, Setup, exhaustive, in_time, incompressible, sha256, tar_of};
use crate::http::load_limits::{connect, may_connect};

const MIB: usize = 1 << 20;
/// Tasks of the greedy caller.
const GREEDY: usize = 48;
/// Requests of the polite caller, of which the 19th slowest of 20 is the p95.
const POLITE: usize = 20;

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;
/// What one of the greedy caller's tasks does again and again, by the number of the task.
type Greedy = Arc<dyn Fn(usize) -> Work + Send + Sync>;
/// What the polite caller does, by the number of the request.
type Polite = Box<dyn Fn(usize) -> Work + Send + Sync>;

/// Both callers, each with a run of its own.
#[derive(Clone)]
struct Rig {
    server: Arc<Server>,
    greedy: Run,
    polite: Run,
    /// Operators, one of each.
    operators: [Client; 2],
    template: std::path::PathBuf,
}

/// A request without the end of its body, which nobody sends.
fn stalled(
    server: &Server,
    method: &str,
    path: &str,
    token: &str,
    more: &str,
    length: usize,
    sent: usize,
) -> TcpStream {
    let mut stream = connect(server);
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n{more}Content-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    // The server may have refused it.
    let _ = stream.write_all(&vec![b'x'; sent]);
    stream
}

/// Opens an event stream by a connection of its own.
pub(crate) async fn open_stream(server: &Server) -> TcpStream {
    let run = server.run(json!({})).await;
    let mut stream = connect(server);
    let (id, token) = (&run.id, run.agent.token.as_deref().unwrap());
    let accept = "Accept: text/event-stream\r\n";
    let head =
        format!("GET /v1/runs/{id}/changes HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n{accept}\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut status_line = [0; 12];
    stream.read_exact(&mut status_line).unwrap();
    assert_eq!(&status_line, b"HTTP/1.1 200");
    stream
}

/// Keeps a connection for a second.
async fn hold(stream: TcpStream) {
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(stream);
}

async fn rig(backend: Backend) -> Rig {
    let setup = Setup::new(backend)
        .arg("--max-memory-bytes", 64 * MIB)
        .arg("--max-connections", 512)
        .arg("--client-timeout-seconds", 10);
    let server = Arc::new(Server::start_with(setup).await);
    let line = "éèê über naïve façade coöperate ".repeat(8);
    let slow = format!("{line}\n").repeat(200);
    let names: Vec<_> = (0..24).map(|number| format!("slow/{number}.txt")).collect();
    let large = "line of text\n".repeat(50_000);
    let mut files: Vec<_> = names.iter().map(|name| (name.as_str(), slow.as_str())).collect();
    files.push(("large.txt", &large));
    let most = 1_000_000_000_u64;
    let budget = json!({"maxFilesTouched": most, "maxInsertions": most, "maxDeletions": most, "maxBytes": most});
    let policy = json!({"policy": {"budget": budget}});
    let greedy = server.run_with_files(&files, policy.clone()).await;
    let polite = server.run_with_files(&[("a.txt", "a\n"), ("large.txt", &large)], policy).await;
    greedy.put("noise.bin", incompressible(24 * MIB));
    let names: Vec<_> = (0..300).map(|number| format!("{number}.txt")).collect();
    let template = server.template(&names.iter().map(|name| (name.as_str(), "x\n")).collect::<Vec<_>>());
    let operators = [
        server.named_operator("greedy", &["orchestrate"]).await.1,
        server.named_operator("polite", &["orchestrate"]).await.1,
    ];
    Rig { server, greedy, polite, operators, template }
}

/// Returns a task that calls a tool and ignores the answer.
fn calls(run: &Run, tool: &'static str, input: impl Fn(usize) -> Value + Send + Sync + 'static) -> Greedy {
    let run = run.clone();
    Arc::new(move |number| {
        let (run, input) = (run.clone(), input(number));
        Box::pin(async move { drop(run.call(tool, input).await) })
    })
}

/// Returns a request that calls a tool, which has to succeed.
fn succeeds(run: &Run, tool: &'static str, input: impl Fn(usize) -> Value + Send + Sync + 'static) -> Polite {
    let run = run.clone();
    Box::new(move |number| {
        let (run, input) = (run.clone(), input(number));
        Box::pin(async move { drop(run.ok(tool, input).await) })
    })
}

/// Returns a task on a socket.
fn on_socket(rig: &Rig, open: impl Fn(&Rig) -> TcpStream + Send + Sync + 'static) -> Greedy {
    let (rig, open) = (rig.clone(), Arc::new(open));
    Arc::new(move |_| {
        let (rig, open) = (rig.clone(), Arc::clone(&open));
        Box::pin(async move { hold(tokio::task::spawn_blocking(move || open(&rig)).await.unwrap()).await })
    })
}

/// Returns a client at another address of the loopback network.
fn elsewhere(server: &Server) -> (reqwest::Client, String) {
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).local_address(IpAddr::from([127, 0, 0, 2]));
    (client.build().unwrap(), server.base.clone())
}

/// Returns what both callers do in a pool.
#[expect(clippy::too_many_lines, reason = "a table")]
fn case(rig: &Rig, pool: &str) -> Option<(Greedy, Polite)> {
    let (greedy, polite) = (&rig.greedy, &rig.polite);
    let (greedy_id, polite_id) = (greedy.id.clone(), polite.id.clone());
    let token = |run: &Run| run.agent.token.clone().unwrap();
    let greedy_token = token(greedy);
    Some(match pool {
        "read" | "request" => (
            calls(greedy, "read_file", |_| json!({"path": "large.txt", "startLine": 40_000})),
            succeeds(polite, "read_file", |_| json!({"path": "large.txt", "startLine": 40_000})),
        ),
        "search" => (
            calls(
                greedy,
                "search_text",
                |_| json!({"query": r"\b(?:\w{2,12} ){6,}\d\b", "mode": "regex", "path": "slow"}),
            ),
            succeeds(polite, "search_text", |_| json!({"query": "a", "path": "a.txt"})),
        ),
        "write" => (
            calls(
                greedy,
                "write_file",
                |number| json!({"path": format!("{number}/{:x}.txt", rand::random::<u64>()), "content": "x\n".repeat(1000), "reason": "r"}),
            ),
            succeeds(
                polite,
                "write_file",
                |_| json!({"path": format!("{:x}.txt", rand::random::<u64>()), "content": "x\n", "reason": "r"}),
            ),
        ),
        "export" => (
            on_socket(rig, move |rig| {
                let path = format!("/v1/runs/{greedy_id}/archive");
                stalled(&rig.server, "GET", &path, &greedy_token, "", 0, 0)
            }),
            {
                let polite = polite.clone();
                Box::new(move |_| {
                    let polite = polite.clone();
                    Box::pin(async move {
                        let answer = polite.agent.get(&format!("/v1/runs/{}/patch", polite.id)).await;
                        assert_eq!(answer.status, 200, "{}", answer.text());
                    })
                })
            },
        ),
        "receive" => (
            on_socket(rig, move |rig| {
                let path = format!("/v1/runs/{greedy_id}/files/{:x}.bin", rand::random::<u64>());
                let more = "If-None-Match: *\r\nX-Reason: r\r\n";
                stalled(&rig.server, "PUT", &path, &greedy_token, more, 5 * MIB, 1_200_000)
            }),
            put_file(polite, vec![b'x'; 1_500_000]),
        ),
        "import" => (create_runs(&rig.operators[0], rig), successful_import(&rig.operators[1], rig)),
        "upload" => (
            {
                let (operator, server) = (rig.operators[0].clone(), Arc::clone(&rig.server));
                Arc::new(move |_| {
                    let (operator, server) = (operator.clone(), Arc::clone(&server));
                    Box::pin(async move {
                        let created = operator.post("/v1/runs", json!({"source": {"type": "archive"}})).await;
                        let created: Value = serde_json::from_slice(&created.body).unwrap_or_default();
                        let Some(id) = created["run"]["runId"].as_str() else { return };
                        let path = format!("/v1/runs/{id}/archive");
                        let token = operator.token.clone().unwrap();
                        hold(stalled(&server, "PUT", &path, &token, "", 5 * MIB, 1000)).await;
                    })
                })
            },
            {
                let operator = rig.operators[1].clone();
                Box::new(move |_| {
                    let operator = operator.clone();
                    Box::pin(async move {
                        let created = operator.post("/v1/runs", json!({"source": {"type": "archive"}})).await.is(201);
                        let path = format!("/v1/runs/{}/archive", created["run"]["runId"].as_str().unwrap());
                        operator.put(&path, tar_of(&[("a.txt", b"a\n")])).await.ok();
                    })
                })
            },
        ),
        "stream" => (
            {
                let greedy = greedy.clone();
                Arc::new(move |_| {
                    let greedy = greedy.clone();
                    Box::pin(async move {
                        let stream = greedy.agent.stream(&format!("/v1/runs/{}/changes", greedy.id), None).await;
                        tokio::time::sleep(Duration::from_secs(1)).await;
                        drop(stream);
                    })
                })
            },
            {
                let polite = polite.clone();
                Box::new(move |_| {
                    let polite = polite.clone();
                    Box::pin(async move {
                        let stream = polite.agent.stream(&format!("/v1/runs/{}/changes", polite.id), None).await;
                        assert_eq!(stream.status().as_u16(), 200);
                    })
                })
            },
        ),
        "small_body" => (
            on_socket(rig, move |rig| {
                let path = format!("/v1/runs/{greedy_id}/tools/write_file");
                stalled(&rig.server, "POST", &path, &greedy_token, "", 64 * 1024, 10)
            }),
            succeeds(polite, "stat_path", |_| json!({"path": "./".repeat(500) + "a.txt"})),
        ),
        "large_body" => (
            on_socket(rig, move |rig| {
                let path = format!("/v1/runs/{greedy_id}/tools/write_file");
                stalled(&rig.server, "POST", &path, &greedy_token, "", 4 * MIB, 10)
            }),
            succeeds(
                polite,
                "write_file",
                |_| json!({"path": "b.txt", "content": format!("{}\n", "x".repeat(1000)).repeat(80), "reason": "r", "dryRun": true}),
            ),
        ),
        "answer" | "waiting_answer" => (
            on_socket(rig, move |rig| {
                let read = json!({"tool": "read_files", "input": {"paths": ["large.txt"]}});
                let body = json!({"calls": vec![read; 20]}).to_string();
                let path = format!("/v1/runs/{greedy_id}/batch");
                let mut stream = stalled(&rig.server, "POST", &path, &greedy_token, "", body.len(), 0);
                let _ = stream.write_all(body.as_bytes());
                stream
            }),
            succeeds(polite, "read_files", |_| json!({"paths": ["large.txt"]})),
        ),
        "open_answer" | "open_waiting_answer" => (
            on_socket(rig, |rig| {
                let mut stream = connect(&rig.server);
                stream.write_all(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
                stream
            }),
            {
                let (client, base) = elsewhere(&rig.server);
                Box::new(move |_| {
                    let (client, url) = (client.clone(), format!("{base}/openapi.json"));
                    Box::pin(async move {
                        let answer = client.get(url).send().await.unwrap();
                        assert_eq!(answer.status().as_u16(), 200);
                        assert!(answer.bytes().await.unwrap().len() > 64 * 1024);
                    })
                })
            },
        ),
        "page_query" => (
            {
                let greedy = greedy.clone();
                Arc::new(move |_| {
                    let greedy = greedy.clone();
                    Box::pin(async move {
                        drop(greedy.agent.get(&format!("/v1/runs/{}/audit?limit=1000", greedy.id)).await);
                    })
                })
            },
            {
                let polite = polite.clone();
                Box::new(move |_| {
                    let polite = polite.clone();
                    Box::pin(async move {
                        polite.agent.get(&format!("/v1/runs/{}/audit?limit=10", polite.id)).await.ok();
                    })
                })
            },
        ),
        // Connections without a token, and a polite caller who opens a new one for each request.
        "connection" => (on_socket(rig, |rig| connect(&rig.server)), {
            let (base, token) = (rig.server.base.clone(), token(polite));
            Box::new(move |_| {
                let (base, token, id) = (base.clone(), token.clone(), polite_id.clone());
                Box::pin(async move {
                    let answer = Client::new(&base, Some(&token)).get(&format!("/v1/runs/{id}")).await;
                    assert_eq!(answer.status, 200, "{}", answer.text());
                })
            })
        }),
        _ => return None,
    })
}

fn put_file(run: &Run, bytes: Vec<u8>) -> Polite {
    let run = run.clone();
    Box::new(move |_| {
        let (run, bytes) = (run.clone(), bytes.clone());
        Box::pin(async move {
            let path = format!("/v1/runs/{}/files/{:x}.bin", run.id, rand::random::<u64>());
            let request = run.agent.request(Method::PUT, &path).header("if-none-match", "*").header("x-reason", "r");
            run.agent.send(request.body(bytes)).await.is(201);
        })
    })
}

fn source(rig: &Rig) -> Value {
    json!({"source": {"type": "directory", "path": rig.template}})
}

fn create_runs(operator: &Client, rig: &Rig) -> Greedy {
    let (operator, source) = (operator.clone(), source(rig));
    Arc::new(move |_| {
        let (operator, source) = (operator.clone(), source.clone());
        Box::pin(async move { drop(operator.post("/v1/runs", source).await) })
    })
}

fn successful_import(operator: &Client, rig: &Rig) -> Polite {
    let (operator, source) = (operator.clone(), source(rig));
    Box::new(move |_| {
        let (operator, source) = (operator.clone(), source.clone());
        Box::pin(async move { drop(operator.post("/v1/runs", source).await.is(201)) })
    })
}

/// Returns the p95 of the polite caller's requests.
async fn p95(polite: &Polite) -> Duration {
    let mut times = Vec::new();
    for number in 0..POLITE {
        let started = Instant::now();
        polite(number).await;
        times.push(started.elapsed());
    }
    times.sort_unstable();
    times[POLITE * 95 / 100 - 1]
}

/// Returns the names of the pools that the server shows.
async fn pools(server: &Server) -> Vec<String> {
    let text = server.nobody().get("/metrics").await.text();
    let name = |line: &str| Some(line.strip_prefix("workspaced_permits{pool=\"")?.split('"').next()?.to_owned());
    let mut pools: Vec<_> = text.lines().filter_map(name).collect();
    pools.sort_unstable();
    pools.dedup();
    pools
}

/// Measures polite callers of a pool alone and beside greedy ones. Returns a row of the table, and whether they were delayed.
async fn beside_greedy(rig: &Rig, name: &str) -> (String, bool) {
    let Some((greedy, polite)) = case(rig, name) else { panic!("the pool {name} has no greedy caller") };
    let lone = p95(&polite).await;
    let (is_over, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    // Enough idle connections to reach their limit.
    let tasks = if name == "connection" { 600 } else { GREEDY };
    let tasks: Vec<_> = (0..tasks)
        .map(|number| {
            let (greedy, is_over, count) = (Arc::clone(&greedy), Arc::clone(&is_over), Arc::clone(&count));
            tokio::spawn(async move {
                while !is_over.load(Ordering::Relaxed) {
                    greedy(number).await;
                    count.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    // The load has begun.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let beside = p95(&polite).await;
    is_over.store(true, Ordering::Relaxed);
    for task in tasks {
        // A greedy request may fail.
        let _ = task.await;
    }
    let greedy = count.load(Ordering::Relaxed);
    let row = format!("{name:20} lone {lone:>9.1?}  beside {greedy:6} greedy {beside:>9.1?}");
    println!("{row}");
    (row, beside > (lone * 20).max(Duration::from_millis(500)))
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_greedy_caller_delays_no_polite_one_in_any_pool(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let rig = rig(backend).await;
    let mut names = pools(&rig.server).await;
    assert!(names.len() >= 16, "{names:?}");
    if may_connect(600) {
        names.push("connection".to_owned());
    }
    for name in names {
        // Other processes delay them as well, but not each time.
        let mut rows = Vec::new();
        loop {
            let (row, is_delayed) = beside_greedy(&rig, &name).await;
            rows.push(row);
            if !is_delayed {
                break;
            }
            assert!(rows.len() < 4, "delayed each time:\n{}", rows.join("\n"));
        }
    }
}

#[rstest]
#[tokio::test]
async fn slow_uploads_of_one_run_leave_the_memory_for_bodies_to_others(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start(backend).await;
    let (greedy, other) = (server.run(json!({})).await, server.run(json!({})).await);
    let issued = json!({"permissions": ["event:append"]});
    let issued = greedy.operator.post(&format!("/v1/runs/{}/tokens", greedy.id), issued).await.is(201);
    let token = issued["token"].as_str().unwrap();
    let path = format!("/v1/runs/{}/artifacts/sha256/{}", greedy.id, sha256("x"));
    let _held: Vec<_> = (0..24).map(|_| stalled(&server, "PUT", &path, token, "", 16 * MIB, 10)).collect();
    // The service has begun to receive them.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let started = Instant::now();
    let input = json!({"path": "a.txt", "content": "x\n".repeat(50_000), "reason": "r", "dryRun": true});
    other.call("write_file", input).await;
    let large = vec![b'x'; 15 * MIB];
    let path = format!("/v1/runs/{}/artifacts/sha256/{}", other.id, sha256(&large));
    other.operator.put(&path, large).await.is(201);
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
}

#[rstest]
#[tokio::test]
async fn an_upload_that_sends_its_end_slowly_is_ended(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start_with(Setup::new(backend).arg("--client-timeout-seconds", 2)).await;
    let run = server.run(json!({})).await;
    let path = format!("/v1/runs/{}/artifacts/sha256/{}", run.id, sha256("x"));
    let token = run.operator.token.clone().unwrap();
    let mut stream = stalled(&server, "PUT", &path, &token, "", 200_000, 190_000);
    let started = Instant::now();
    let mut slow = stream.try_clone().unwrap();
    std::thread::spawn(move || {
        while slow.write_all(b"x").is_ok() && started.elapsed() < Duration::from_secs(18) {
            std::thread::sleep(Duration::from_millis(200));
        }
    });
    let answer = tokio::task::spawn_blocking(move || {
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).map(|()| answer)
    });
    // Three seconds for the bytes, and the two of every body.
    assert_eq!(answer.await.unwrap().unwrap(), *b"HTTP/1.1 400");
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
}

#[rstest]
#[tokio::test]
async fn a_permission_is_checked_before_the_body_is_read(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let issue = async |permission: &str| {
        let body = json!({"permissions": [permission]});
        let issued = run.operator.post(&format!("/v1/runs/{}/tokens", run.id), body).await.is(201);
        issued["token"].as_str().unwrap().to_owned()
    };
    let (auditor, reader) = (issue("audit:read").await, issue("file:read").await);
    for (token, what, recorded) in [
        (&auditor, "tools/write_file", Some("write_file")),
        (&reader, "tools/write_file", Some("write_file")),
        (&auditor, "batch", Some("batch")),
        (&reader, "events", Some("event")),
        (&reader, "events/batch", Some("event")),
        (&auditor, "policy/explain", None),
    ] {
        let before = run.audit().await.len();
        let path = format!("/v1/runs/{}/{what}", run.id);
        let mut stream = stalled(&server, "POST", &path, token, "Content-Type: application/json\r\n", 4 * MIB, 10);
        let started = Instant::now();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"HTTP/1.1 403", "{what}");
        assert!(started.elapsed() < Duration::from_secs(9), "{what}: {:?}", started.elapsed());
        let audit = run.audit().await;
        assert_eq!(audit.len() - before, usize::from(recorded.is_some()), "{what}");
        if let Some(tool) = recorded {
            let record = run.last_record().await;
            assert_eq!((&record["code"], &record["tool"]), (&json!("FORBIDDEN"), &json!(tool)), "{what}");
        }
    }
}

#[rstest]
#[tokio::test]
async fn idle_connections_without_a_token_shut_nobody_out(
    #[values(Backend::Sqlite)] backend: Backend,
    #[values(false, true)] has_asked: bool,
) {
    let server = Server::start_with(Setup::new(backend).arg("--max-connections", 64)).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let stream = run.agent.stream(&format!("/v1/runs/{}/changes", run.id), None).await;
    let _held: Vec<_> = (0..200)
        .map(|_| {
            let mut stream = connect(&server);
            if has_asked {
                stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
                stream.read_exact(&mut [0; 12]).unwrap();
            }
            stream
        })
        .collect();
    // All come from one address, as through a proxy.
    for _ in 0..20 {
        let agent = Client::new(&server.base, run.agent.token.as_deref());
        let answer = agent.post(&format!("/v1/runs/{}/tools/read_file", run.id), json!({"path": "a.txt"})).await;
        answer.ok();
    }
    // A stream with a token goes on.
    run.create("b.txt", "b\n").await;
    let mut stream = stream;
    let event = in_time("an event", stream.chunk()).await.unwrap();
    assert!(event.is_some(), "the stream has ended");
    let metrics = server.nobody().get("/metrics").await.text();
    let evicted = metrics.lines().find_map(|line| line.strip_prefix("workspaced_connections_evicted_total "));
    assert!(evicted.unwrap().parse::<f64>().unwrap() >= 100.0, "{evicted:?}");
}

#[rstest]
#[tokio::test]
async fn a_batch_costs_its_calls_in_the_rate_limit(
    #[values(Backend::Sqlite)] backend: Backend,
    #[values(false, true)] atomic: bool,
) {
    let setup = Setup::new(backend).arg("--rate-limit", "1:30");
    let server = Server::start_with(setup).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let calls = |count: usize| {
        let call = json!({"tool": "read_file", "input": {"path": "a.txt"}});
        json!({"calls": vec![call; count], "atomic": atomic})
    };
    let path = format!("/v1/runs/{}/batch", run.id);
    let first = run.agent.post(&path, calls(20)).await;
    assert_eq!(first.status, 200, "{}", first.text());
    assert!(first.header("ratelimit").contains("r=10"), "{}", first.header("ratelimit"));
    let second = run.agent.post(&path, calls(20)).await;
    second.refused("RATE_LIMITED");
    assert!(second.header("retry-after").parse::<u64>().unwrap() >= 1);
    let too_many = run.agent.post(&path, calls(31)).await.refused("RATE_LIMITED");
    assert_eq!((&too_many["limit"], &too_many["actual"]), (&json!(30), &json!(31)));
    let events = json!({"events": vec![json!({"kind": "message", "summary": "s"}); 40]});
    run.operator.post(&format!("/v1/runs/{}/events/batch", run.id), events).await.refused("RATE_LIMITED");
    let records = run.audit().await;
    assert_eq!(records.iter().filter(|record| record["tool"] == "read_file").count(), 20);
}
