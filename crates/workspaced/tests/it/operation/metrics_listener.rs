//! A listener of its own for metrics and the state of the service.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use rstest::rstest;

use crate::harness::{Backend, Client, Server, Setup};

/// Starts a server with a listener for metrics, and returns the base of its URLs.
async fn start(backend: Backend, setup: impl FnOnce(Setup) -> Setup) -> (Server, String) {
    let server = Server::start_with(setup(Setup::new(backend).arg("--metrics-listen", "127.0.0.1:0"))).await;
    server.until_logged("metrics are served on a listener of their own").await;
    let log = server.log();
    let (_, rest) = log.split_once("metrics are served on a listener of their own").unwrap();
    let address = rest.lines().next().and_then(|line| line.split_once("address=")).expect("an address").1;
    (server, format!("http://{}", address.trim()))
}

#[rstest]
#[tokio::test]
async fn metrics_are_served_on_their_own_listener_alone(#[values(Backend::Sqlite)] backend: Backend) {
    let (mut server, metrics) = start(backend, |setup| setup).await;
    let (api, scraper) = (server.nobody(), Client::new(&metrics, None));
    api.get("/metrics").await.refused("NOT_FOUND");
    for route in ["/healthz", "/readyz"] {
        api.get(route).await.ok();
        scraper.get(route).await.ok();
    }
    let answer = scraper.get("/metrics").await;
    assert_eq!(answer.status, 200);
    assert!(answer.contains("workspaced_build_info"), "{}", answer.text());
    assert!(answer.headers.contains_key("x-request-id"));
    let operator = scraper.with_token(Some(&server.operator_token));
    for route in ["/v1/runs", "/openapi.json", "/docs/", "/dashboard/", "/", "/v1/limits"] {
        operator.get(route).await.refused("NOT_FOUND");
    }
    assert!(server.stop().success(), "{}", server.log());
}

#[tokio::test]
async fn the_listener_has_the_limits_of_the_other_one() {
    let (server, metrics) = start(Backend::Sqlite, |setup| {
        setup.arg("--client-timeout-seconds", 1).arg("--protect-metrics", true).arg("--max-connections", 1)
    })
    .await;
    let scraper = Client::new(&metrics, None);
    scraper.get("/metrics").await.refused("UNAUTHENTICATED");
    assert_eq!(scraper.with_token(Some(&server.operator_token)).get("/metrics").await.status, 200);

    // A request head that never ends is closed, without an answer.
    let mut slow = TcpStream::connect(metrics.trim_start_matches("http://")).unwrap();
    slow.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    slow.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n").unwrap();
    let mut answer = String::new();
    slow.read_to_string(&mut answer).expect("the connection is closed");
    assert!(!answer.contains("200 OK"), "{answer}");

    // The only connection of the API is in use. Metrics are still served.
    let _only = TcpStream::connect(server.base.trim_start_matches("http://")).unwrap();
    assert_eq!(scraper.with_token(Some(&server.operator_token)).get("/metrics").await.status, 200);
}

#[tokio::test]
async fn an_address_in_use_ends_the_start() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let server = Server::prepare(Setup::new(Backend::Sqlite)).await;
    let mut command = server.command("serve");
    let done = command.args(["--listen", "127.0.0.1:0", "--metrics-listen", &address]).output().unwrap();
    let stderr = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains(&format!("--metrics-listen {address}: ")), "{stderr}");
}
