//! Records as they are written, while the service restarts.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::sync::mpsc;
use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};

use super::command;
use super::relay::Relay;
use crate::harness::{Backend, Server, exhaustive};

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_followed_audit_misses_nothing_while_the_service_restarts(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = Server::start(backend).await;
    let relay = Relay::start(&server.base).await;
    let used = server.run(json!({"runId": "followed"})).await;
    let since = used.created["run"]["createdAt"].as_str().unwrap().to_owned();
    let args = ["audit", "--run", "followed", "--follow", "--json", "--since", &since];
    let mut follower = command(&relay.url, &server.operator_token, &args);
    let mut follower = follower.stdout(Stdio::piped()).spawn().unwrap();
    let output = BufReader::new(follower.stdout.take().unwrap());
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || output.lines().try_for_each(|line| sender.send(line.unwrap())));
    let next = || {
        let line = lines.recv_timeout(Duration::from_mins(1)).expect("a line for the next record");
        serde_json::from_str::<Value>(&line).unwrap()["seq"].as_u64().unwrap()
    };

    let mut expected = used.audit().await.len() as u64;
    assert_eq!((1..=expected).map(|_| next()).collect::<Vec<_>>(), (1..=expected).collect::<Vec<_>>());
    for restart in 0..2 {
        if restart == 0 {
            assert!(server.stop().success());
        } else {
            server.kill();
        }
        server.restart();
        let used = server.reconnect(&used);
        // Written before the follower can connect again.
        for number in 0..3 {
            used.create(&format!("{restart}-{number}.txt"), "x\n").await;
        }
        relay.set_target(&server.base);
        used.create(&format!("{restart}.txt"), "x\n").await;
        for _ in 0..4 {
            expected += 1;
            assert_eq!(next(), expected);
        }
    }
    follower.kill().unwrap();
    follower.wait().unwrap();
}
