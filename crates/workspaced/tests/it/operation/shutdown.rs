//! Shutdown completes calls in flight and cannot be delayed by clients. A second service on the same data is refused.

use std::io::Write as _;
use std::time::{Duration, Instant};

use rstest::rstest;
use serde_json::json;

use crate::harness::{Backend, Kind, LoadedRun, Mutation, Server, Setup, exhaustive};

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_under_load_loses_no_acknowledged_call(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = Server::start(backend).await;
    let mut runs = Vec::new();
    for _ in 0..4 {
        runs.push(LoadedRun::new(&server).await);
    }
    for round in 0..5 {
        let load: Vec<_> = runs.iter_mut().map(|run| run.start(&server)).collect();
        tokio::time::sleep(Duration::from_millis(40 + round * 31)).await;
        let ended = server.stop();
        assert_eq!(ended.code(), Some(0), "{}", server.log());
        for task in load {
            task.await.unwrap();
        }
        assert_eq!(server.database.pending_steps().await, 0, "the shutdown left pending changes\n{}", server.log());
        server.restart();
        for run in &runs {
            run.assert_nothing_lost(&server).await;
        }
    }
}

#[rstest]
#[tokio::test]
async fn hanging_clients_do_not_delay_the_shutdown(#[values(Backend::Sqlite)] backend: Backend) {
    let mut server = Server::start_with(Setup::new(backend).arg("--drain-seconds", 2)).await;
    let mutation = Mutation::prepare(&server, Kind::Replace).await;
    let address = server.base.trim_start_matches("http://").to_owned();
    let token = mutation.run.agent.token.clone().unwrap();
    let mut hanging = Vec::new();
    for begun in [
        String::new(),
        "POST /v1/runs HTTP/1.1\r\nHost: x\r\nContent-".to_owned(),
        format!(
            "PUT /v1/runs/{}/files/slow.dat HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\
             If-None-Match: *\r\nX-Reason: r\r\nContent-Length: 5000000\r\n\r\nfirst bytes",
            mutation.run.id
        ),
    ] {
        let mut stream = std::net::TcpStream::connect(&address).unwrap();
        stream.write_all(begun.as_bytes()).unwrap();
        hanging.push(stream);
    }
    let mut events = server.auditor().stream("/v1/audit/stream", None).await;
    assert_eq!(mutation.send(&mutation.run).await, Some(200));
    // The requests are with the service by now.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let begun = Instant::now();
    assert_eq!(server.stop().code(), Some(0), "{}", server.log());
    assert!(begun.elapsed() < Duration::from_secs(10), "the shutdown took {:?}", begun.elapsed());
    while let Ok(Some(_)) = events.chunk().await {}
    drop(hanging);
    server.restart();
    mutation.assert_applied_once(&server.reconnect(&mutation.run)).await;
}

/// Starts a second service, which must be refused. Returns its error output.
fn assert_refused(mut command: std::process::Command) -> String {
    let done = command.args(["--listen", "127.0.0.1:0"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(2), "{stderr}");
    assert!(done.stdout.is_empty());
    assert_eq!(stderr.lines().filter(|line| line.starts_with("workspaced: ")).count(), 1, "{stderr}");
    // It may warn, for example of a low limit on open files.
    let is_log = |line: &str| line.contains(" INFO ") || line.contains(" WARN ");
    assert!(stderr.lines().all(|line| line.starts_with("workspaced: ") || is_log(line)), "{stderr}");
    stderr
}

#[rstest]
#[tokio::test]
async fn a_second_service_on_the_same_folder_is_refused_with_any_database(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let server = Server::start(backend).await;
    let run = server.run(json!({})).await;
    let stderr = assert_refused(server.command("serve"));
    assert!(stderr.contains("another workspaced is using this folder"), "{stderr}");
    let other = Server::prepare(Setup::new(backend)).await;
    let mut command = server.command("serve");
    command.env("WORKSPACED_DATABASE_URL", &other.database.url);
    assert!(assert_refused(command).contains("another workspaced is using this folder"));
    run.create("a.txt", "the first service works\n").await;
}

#[tokio::test]
async fn one_database_belongs_to_one_data_folder() {
    let mut server = Server::start(Backend::Postgres).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let folder = server.home.join("other");
    for running in [true, false] {
        if !running {
            server.kill();
        }
        let mut command = server.command("serve");
        command.env("WORKSPACED_DATA_DIR", &folder);
        let stderr = assert_refused(command);
        assert!(stderr.contains("the database belongs to another data folder"), "{stderr}");
    }
    // A folder is not cleaned up for a database that does not contain its runs.
    let other = Server::prepare(Setup::new(Backend::Postgres)).await;
    let mut command = server.command("serve");
    command.env("WORKSPACED_DATABASE_URL", &other.database.url);
    let stderr = assert_refused(command);
    assert!(stderr.contains("belong to another database"), "{stderr}");
    assert_eq!(run.on_disk("a.txt"), "a\n");
    server.restart();
    server.reconnect(&run).ok("read_file", json!({"path": "a.txt"})).await;
}
