//! Limits under load: oversized files, deep trees, costly patterns and many connections delay no other caller.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::time::Duration;

use reqwest::Method;
use rstest::rstest;
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::harness::{Backend, Client, Run, Server, Setup, put, until};

/// Raises this process's limit of open files to the maximum. Returns whether it allows `count` connections beside other tests, and says so
/// if it does not.
pub(crate) fn may_connect(count: u64) -> bool {
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let may_connect = maximum.is_none_or(|maximum| maximum > count + 1000);
    if !may_connect {
        println!("SKIPPED: {count} connections are too many for the limit of open files");
    }
    may_connect
}

pub(crate) fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.base.trim_start_matches("http://")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Returns a tool call in wire format.
fn raw(client: &Client, run: &str, tool: &str, body: &Value) -> String {
    let (token, body) = (client.token.as_deref().unwrap(), body.to_string());
    format!(
        "POST /v1/runs/{run}/tools/{tool} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Returns the sum of a metric over its labels, or 0.
async fn metric(server: &Server, name: &str) -> f64 {
    let text = server.nobody().get("/metrics").await.text();
    let of_it = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
    text.lines().filter(of_it).filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

/// Returns how many permits of a pool are taken.
pub(crate) async fn permits_taken(server: &Server, pool: &str) -> f64 {
    let label = format!("{{pool=\"{pool}\"}}");
    let all = metric(server, &format!("workspaced_permits{label}")).await;
    all - metric(server, &format!("workspaced_permits_free{label}")).await
}

/// Returns whether the server has a file of this name open.
fn has_open(server: &Server, name: &str) -> bool {
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", server.process_id())).unwrap();
    // A descriptor may be closed between the listing and the look.
    descriptors.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok()).any(|path| path.ends_with(name))
}

/// Writes files whose search is slow: the expression has to check every character.
fn slow_to_search(run: &Run, files: usize) -> Value {
    let line = "éèê über naïve façade coöperate ".repeat(8);
    let content = format!("{line}\n").repeat(400);
    for number in 0..files {
        run.put(&format!("slow/{number:03}.txt"), &content);
    }
    json!({"query": r"\b(?:\w{2,12} ){6,}\d\b", "mode": "regex", "path": "slow"})
}

#[rstest]
#[tokio::test]
async fn two_thousand_idle_connections_do_not_block_calls(#[values(Backend::Sqlite)] backend: Backend) {
    if !may_connect(2000) {
        return;
    }
    let server = Server::start_with(Setup::new(backend).arg("--client-timeout-seconds", 900)).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let mut held: Vec<_> = (0..2000).map(|_| connect(&server)).collect();
    until("all connections are accepted", async || metric(&server, "workspaced_connections").await >= 2000.0).await;
    for number in 0..10 {
        run.ok("read_file", json!({"path": "a.txt"})).await;
        run.create(&format!("{number}.txt"), "x\n").await;
    }
    // The idle connections are still open.
    let last = held.last_mut().unwrap();
    last.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut status_line = [0; 12];
    last.read_exact(&mut status_line).unwrap();
    assert_eq!(&status_line, b"HTTP/1.1 200");
}

#[rstest]
#[tokio::test]
async fn a_client_that_does_not_read_its_answer_is_disconnected(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start_with(Setup::new(backend).arg("--client-timeout-seconds", 1)).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let size = 256 << 20;
    File::create(run.repo.join("large.bin")).unwrap().set_len(size).unwrap();
    let mut stream = connect(&server);
    let token = run.agent.token.as_deref().unwrap();
    let request =
        format!("GET /v1/runs/{}/files/large.bin HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n", run.id);
    stream.write_all(request.as_bytes()).unwrap();
    let mut head = [0; 15];
    stream.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200 OK");
    // The client stops reading. The server closes the connection and releases the file and its reader. The number of
    // connections would not show it: the idle ones of this test are closed as well.
    assert!(has_open(&server, "large.bin"), "the whole file is already sent");
    until("the file is closed", async || !has_open(&server, "large.bin")).await;
    let rest = tokio::task::spawn_blocking(move || std::io::copy(&mut stream, &mut std::io::sink())).await.unwrap();
    assert!(
        rest.is_err() || rest.is_ok_and(|taken| taken < size),
        "the whole file was sent to a client that does not read"
    );
    run.ok("read_file", json!({"path": "a.txt"})).await;
}

#[rstest]
#[tokio::test]
async fn sixty_four_searches_do_not_delay_reads(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start_with(Setup::new(backend).arg("--concurrency", 1)).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let query = slow_to_search(&run, 40);
    let mut searches = JoinSet::new();
    for _ in 0..64 {
        let (run, query) = (run.clone(), query.clone());
        searches.spawn(async move { run.call("search_text", query).await.status });
    }
    until("the searches are running", async || metric(&server, "workspaced_connections").await >= 64.0).await;
    for number in 0..10 {
        run.ok("read_file", json!({"path": "a.txt"})).await;
        run.ok("list_dir", json!({})).await;
        run.create(&format!("{number}.txt"), "x\n").await;
    }
    let mut done = 0;
    while let Some(status) = searches.try_join_next() {
        assert_eq!(status.unwrap(), 200);
        done += 1;
    }
    assert!(done < 64, "reads and writes waited for every search");
    searches.abort_all();
}

#[rstest]
#[tokio::test]
async fn a_search_stops_when_its_caller_disconnects(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start_with(Setup::new(backend).arg("--concurrency", 1)).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let query = slow_to_search(&run, 400);
    let mut stream = connect(&server);
    stream.write_all(raw(&run.agent, &run.id, "search_text", &query).as_bytes()).unwrap();
    // One search that runs, and one that waits for a permit.
    let mut second = connect(&server);
    second.write_all(raw(&run.agent, &run.id, "search_text", &query).as_bytes()).unwrap();
    until("both requests are received", async || permits_taken(&server, "request").await >= 2.0).await;
    until("a search runs", async || permits_taken(&server, "search").await >= 1.0).await;
    drop((stream, second));
    until("a read was cancelled", async || metric(&server, "workspaced_reads_cancelled_total").await >= 1.0).await;
    // The only permit is free again, long before two such searches could have completed.
    assert_eq!(run.ok("search_text", json!({"query": "a", "path": "a.txt"})).await["filesSearched"], 1);
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn the_concurrency_limit_of_one_token_does_not_affect_another(#[values(Backend::Sqlite)] backend: Backend) {
    let setup = Setup::new(backend).arg("--max-connections", 64).arg("--concurrency", 1);
    let server = Server::start_with(setup).await;
    let (run, other) = (server.run_with_files(&[("a.txt", "a\n")], json!({})).await, server.run(json!({})).await);
    let query = slow_to_search(&run, 40);
    let mut calls = JoinSet::new();
    for _ in 0..40 {
        let (run, query) = (run.clone(), query.clone());
        calls.spawn(async move { run.call("search_text", query).await });
    }
    let mut refused = 0;
    while refused < 24 {
        let answer = calls.join_next().await.expect("at most sixteen calls run, so the others are refused").unwrap();
        if answer.status == 429 {
            answer.refused("RATE_LIMITED");
            refused += 1;
        } else {
            answer.ok();
            break;
        }
        other.ok("list_dir", json!({})).await;
    }
    assert!(refused > 0, "no call was refused");
    calls.abort_all();
    assert!(metric(&server, "workspaced_rate_limited_total").await >= 1.0);
}

#[rstest]
#[tokio::test]
async fn a_file_of_a_terabyte_is_refused_and_skipped(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    let run = server.run_with_files(&[("a.txt", "needle\n")], json!({})).await;
    let file = File::create(run.repo.join("huge.txt")).unwrap();
    (&file).write_all(b"needle\n").unwrap();
    if file.set_len(1 << 40).is_err() {
        // The file system limits files to a smaller size.
        file.set_len(1 << 34).unwrap();
    }
    for (tool, input) in [
        ("read_file", json!({"path": "huge.txt"})),
        ("read_file", json!({"path": "huge.txt", "startLine": 2, "maxLines": 1})),
        ("diff_workspace", json!({})),
        ("delete_file", json!({"path": "huge.txt", "expectedSha256": "0".repeat(64), "reason": "r"})),
    ] {
        let problem = run.call(tool, input).await.refused("FILE_TOO_LARGE");
        assert!(problem["limit"].as_u64() < problem["actual"].as_u64(), "{tool}: {problem}");
    }
    let files = run.ok("read_files", json!({"paths": ["a.txt", "huge.txt"]})).await;
    assert_eq!(files["files"]["huge.txt"]["status"], "FILE_TOO_LARGE");
    let found = run.ok("search_text", json!({"query": "needle"})).await;
    assert_eq!(found["matches"].as_array().unwrap().len(), 1, "{found}");
    assert!(found["skipped"].to_string().contains("huge.txt"), "{found}");
    let stat = run.ok("stat_path", json!({"path": "huge.txt"})).await;
    assert_eq!((&stat["exists"], &stat["readable"], stat.get("sha256")), (&json!(true), &json!(false), None));
    let stats = run.ok("tree_stats", json!({})).await;
    assert!(stats.to_string().contains("huge.txt") || stats["files"].as_u64() == Some(2), "{stats}");
    let path = format!("/v1/runs/{}/files/huge.txt", run.id);
    run.agent.get(&path).await.refused("FILE_TOO_LARGE");
    let ranged = run.agent.request(Method::GET, &path).header("range", "bytes=0-5");
    run.agent.send(ranged).await.refused("FILE_TOO_LARGE");
    // The tree without the file works as before.
    std::fs::remove_file(run.repo.join("huge.txt")).unwrap();
    assert_eq!(run.ok("diff_workspace", json!({})).await["filesChanged"], 0);
}

#[rstest]
#[tokio::test]
async fn a_line_of_megabytes_is_truncated_and_one_of_a_gigabyte_is_refused(
    #[values(Backend::Sqlite)] backend: Backend,
) {
    let server = Server::shared(backend).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    // The longest line of a readable file, and a line of a gigabyte.
    let mut line = vec![b'x'; (16 << 20) - 8];
    line[5_000_000..5_000_006].copy_from_slice(b"needle");
    run.put("line.txt", &line);
    let file = File::create(run.repo.join("gigabyte.txt")).unwrap();
    (&file).write_all(&line[..1 << 20]).unwrap();
    file.set_len(1 << 30).unwrap();
    let page = run.ok("read_file", json!({"path": "line.txt"})).await;
    assert_eq!((&page["totalLines"], &page["linesCut"]), (&json!(1), &json!(1)));
    assert!(page["content"].as_str().unwrap().len() <= 64 * 1024);
    let raw = run.ok("read_file", json!({"path": "line.txt", "format": "raw"})).await;
    assert!(raw["content"].as_str().unwrap().len() <= 64 * 1024 && raw["truncated"] == true);
    assert!(raw.get("linesCut").is_none() && raw.get("nextStartLine").is_none(), "only numbered lines are cut");
    let found = run.ok("search_text", json!({"query": "needle"})).await;
    assert_eq!(found["matches"][0]["column"], 5_000_001);
    assert!(found["matches"][0]["snippet"].as_str().unwrap().len() < 4096);
    run.call("read_file", json!({"path": "gigabyte.txt", "startLine": 1})).await.refused("FILE_TOO_LARGE");
}

/// Creates `depth` nested folders. The path of the last one is too long for the kernel.
fn create_nested_folders(folder: &std::path::Path, depth: usize) -> OwnedFd {
    let (flags, name) = (OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC, "d".repeat(100));
    let mut at = openat(CWD, folder, flags, Mode::empty()).unwrap();
    for _ in 0..depth {
        mkdirat(&at, &name, Mode::from_raw_mode(0o755)).unwrap();
        at = openat(&at, &name, flags, Mode::empty()).unwrap();
    }
    at
}

#[rstest]
#[tokio::test]
async fn extremely_deep_or_wide_trees_are_walked_and_removed(
    #[values(Backend::Sqlite)] backend: Backend,
    // Deeper than a path may be long, and wider than an answer may list.
    #[values("deep", "wide")] shape: &str,
) {
    let server = Server::shared(backend).await;
    let run = server.run_with_files(&[("a.txt", "needle\n")], json!({})).await;
    let repo = run.repo.clone();
    let deep = shape == "deep";
    tokio::task::spawn_blocking(move || {
        if deep {
            return drop(create_nested_folders(&repo, 500));
        }
        for number in 0..30_000 {
            File::create(repo.join(format!("{number:06}.bin"))).unwrap();
        }
    })
    .await
    .unwrap();
    let listing = run.ok("list_dir", json!({"maxDepth": 20, "maxEntries": 10_000})).await;
    assert!(listing["entries"].as_array().unwrap().len() <= 10_000);
    for (tool, input) in [
        ("search_text", json!({"query": "needle"})),
        ("find_files", json!({"glob": ["**/*.txt"]})),
        ("tree_stats", json!({})),
        ("diff_workspace", json!({})),
    ] {
        let answer = run.call(tool, input).await;
        assert_eq!(answer.status, 200, "{tool}: {}", answer.text());
    }
    let found = run.ok("search_text", json!({"query": "needle"})).await;
    assert_eq!(found["matches"].as_array().unwrap().len(), 1);
    assert_eq!(run.operator.get(&format!("/v1/runs/{}/archive", run.id)).await.status, 200);
    // An import skips what is too deep and reports it.
    if deep {
        let template = server.template(&[("a.txt", "a\n")]);
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        drop(openat(create_nested_folders(&template, 500), "far-down.txt", flags, Mode::from_raw_mode(0o644)).unwrap());
        let body = json!({"source": {"type": "directory", "path": template}});
        let import = server.operator().post("/v1/runs", body).await.is(201)["run"]["import"].clone();
        assert_eq!((&import["files"], import["leftOut"].as_array().map(Vec::len)), (&json!(1), Some(1)), "{import}");
    }
    run.create("b.txt", "b\n").await;
    let deleted = run.operator.delete(&format!("/v1/runs/{}", run.id)).await;
    assert_eq!(deleted.ok()["state"], "deleted");
    assert!(!server.workspace(&run.id).exists());
}

#[rstest]
#[tokio::test]
async fn oversized_expressions_and_globs_are_refused(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[("a.txt", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!\n")]).await;
    for query in [
        "(a{1000}){1000}".to_owned(),
        r"(\pL{500}){500}".to_owned(),
        format!("{}a{}", "(".repeat(200), ")".repeat(200)),
        "a".repeat(4097),
        "(a".to_owned(),
        r"(a)\1".to_owned(),
    ] {
        let refused = run.call("search_text", json!({"query": query, "mode": "regex"})).await;
        refused.refused("INVALID_REQUEST");
    }
    // Expressions that are exponential in a backtracking engine are linear here.
    for query in ["(a+)+$", "(a|aa)+$", "(a*)*b", r"(\w+\s?)+\?"] {
        run.ok("search_text", json!({"query": query, "mode": "regex"})).await;
    }
    let long = format!("{}*", "a/".repeat(400));
    let many: Vec<_> = (0..10_000).map(|number| format!("**/{number}*{{a,b}}*")).collect();
    let nested = format!("{}a{}", "{".repeat(200), "}".repeat(200));
    for globs in [json!([long]), json!(many)] {
        run.call("find_files", json!({"glob": globs})).await.refused("INVALID_REQUEST");
        run.call("search_text", json!({"query": "a", "includeGlob": globs})).await.refused("INVALID_REQUEST");
        run.call("search_text", json!({"query": "a", "excludeGlob": globs})).await.refused("INVALID_REQUEST");
    }
    // The maximum number and length of globs, each as costly as possible.
    let costly: Vec<_> = (0..100).map(|_| format!("{}z", "*{a,?b,[c-z]}".repeat(38))).collect();
    for globs in [json!(costly), json!([nested])] {
        let answer = run.call("find_files", json!({"glob": globs})).await;
        assert!([200, 400].contains(&answer.status), "{}", answer.text());
    }
    // A declared length of 64 MiB is refused before the body.
    let announced =
        raw(&run.agent, &run.id, "find_files", &json!({})).replace("Content-Length: 2", "Content-Length: 67108864");
    let mut stream = connect(&server);
    stream.write_all(announced.trim_end_matches("{}").as_bytes()).unwrap();
    let mut answer = vec![0; 4096];
    let read = stream.read(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer[..read]);
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}

#[rstest]
#[tokio::test]
async fn invalid_numbers_are_refused_and_large_ones_are_capped(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let path = format!("/v1/runs/{}/tools/list_dir", run.id);
    let send = async |body: String| {
        let request = run.agent.request(Method::POST, &path).header("content-type", "application/json").body(body);
        run.agent.send(request).await
    };
    // Texts are taken only if they are exactly a number that would be taken.
    let texts = ["\"7x\"", "\"7.5\"", "\" 7\"", "\"7 \"", "\"-1\"", "\"0x10\"", "\"1e999\"", "\"\"", "\"\\\"7\\\"\""];
    for number in [
        "1e999",
        "18446744073709551615",
        "18446744073709551616",
        "1e40",
        "-1",
        "-1.0",
        "0.5",
        "NaN",
        "0x10",
        &"9".repeat(5000),
    ]
    .into_iter()
    .chain(texts)
    {
        send(format!("{{\"maxEntries\":{number}}}")).await.refused("INVALID_REQUEST");
    }
    for number in ["9007199254740992", "100000", "1e2", "7.0", "7"] {
        for number in [number.to_owned(), format!("\"{number}\"")] {
            send(format!("{{\"maxEntries\":{number},\"maxDepth\":{number}}}")).await.ok();
        }
    }
    for body in [
        format!("{}{}", "[".repeat(2_000_000), "]".repeat(2_000_000)),
        format!("{{\"path\":{}1{}}}", "[".repeat(33), "]".repeat(33)),
        "{\"a\":".repeat(500_000),
        format!("{{\"path\":\"{}\"}}", "\\u0041".repeat(600_000)),
    ] {
        let code = send(body).await.refusal();
        assert!(["INVALID_REQUEST", "PATH_REJECTED"].contains(&code.as_str()), "{code}");
    }
}

#[rstest]
#[tokio::test]
async fn oversized_request_heads_are_refused(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let headers = |count: usize| (0..count).map(|number| format!("X-{number}: y\r\n")).collect::<Vec<_>>().concat();
    for (what, request, wanted) in [
        (
            "headers within the bound",
            format!("GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{}\r\n", headers(40)),
            "200",
        ),
        (
            "many headers",
            format!("GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{}\r\n", headers(100)),
            "431",
        ),
        ("a long header", format!("GET /healthz HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "y".repeat(200_000)), "431"),
        ("a long address", format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "y".repeat(200_000)), "4"),
        ("another protocol", "PRI * HTTP/3.0\r\n\r\nSM\r\n\r\n".to_owned(), ""),
    ] {
        let mut stream = connect(&server);
        // The server may close the connection before it has read everything.
        let _ = stream.write_all(request.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split(' ').nth(1).unwrap_or_default();
        assert!(!answer.starts_with("HTTP/2") && !status.starts_with('5'), "{what}: {answer}");
        assert!(status.starts_with(wanted) || (status.is_empty() && !wanted.starts_with('2')), "{what}: {answer}");
    }
    let long = format!("/v1/runs/{}/audit?path={}", run.id, "y".repeat(30_000));
    let answer = run.operator.get(&long).await;
    assert!([200, 400, 414].contains(&answer.status), "{}", answer.status);
    run.ok("list_dir", json!({})).await;
}

#[rstest]
#[tokio::test]
async fn a_low_limit_of_open_files_means_fewer_open_runs_and_no_failure(#[values(Backend::Sqlite)] backend: Backend) {
    let mut server = Server::prepare(Setup::new(backend)).await;
    // A shell sets the limit of the process.
    let mut command = std::process::Command::new("sh");
    let script = "ulimit -Sn 320; ulimit -Hn 320; exec \"$0\" serve --listen 127.0.0.1:0";
    command.args(["-c", script, env!("CARGO_BIN_EXE_workspaced")]).env_clear();
    for (name, value) in server.command("serve").get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    server.start_as(command);
    assert!(server.log().contains("to fit the limit of open files"), "{}", server.log());
    // One client, because connections are limited too.
    let operator = server.operator();
    let read = async |number: u32| {
        let path = format!("/v1/runs/run-{number}/tools/read_file");
        let page = operator.post(&path, json!({"path": "a.txt", "format": "raw"})).await.ok();
        assert_eq!(page["content"], format!("{number}\n"));
    };
    for number in 0..100 {
        let body = json!({"runId": format!("run-{number}"), "source": {"type": "empty"}});
        operator.post("/v1/runs", body).await.is(201);
        put(&server.repo(&format!("run-{number}")), "a.txt", format!("{number}\n"));
        read(number).await;
    }
    for number in 0..100 {
        read(number).await;
    }
    let handles = std::fs::read_dir(format!("/proc/{}/fd", server.process_id())).unwrap().count();
    assert!(handles < 320, "{handles}");
    assert!(metric(&server, "workspaced_live_runs").await < 100.0);
}
