//! TLS by the service: its certificate, the replacement of it, and clients that do not complete a handshake.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::harness::{Backend, Server, Setup, workspaced};

/// A certificate authority in the folder of a server, and a certificate of the service.
struct Authority {
    folder: PathBuf,
}

fn openssl(folder: &Path, args: &str) {
    let done = Command::new("openssl").current_dir(folder).args(args.split_whitespace()).output().unwrap();
    assert!(done.status.success(), "openssl {args}: {}", String::from_utf8_lossy(&done.stderr));
}

impl Authority {
    fn new(server: &Server) -> Self {
        let folder = server.home.join("tls");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("extensions"), "subjectAltName=IP:127.0.0.1,DNS:localhost\n").unwrap();
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        openssl(&folder, &format!("req -x509 {key} -keyout ca.key -out ca.pem -subj /CN=authority -days 2"));
        let authority = Self { folder };
        authority.issue(1);
        authority
    }

    /// Replaces the certificate of the service, and its key.
    fn issue(&self, serial: u32) {
        let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        openssl(&self.folder, &format!("req -new {key} -keyout new.key -out new.csr -subj /CN=localhost"));
        let sign = "x509 -req -in new.csr -CA ca.pem -CAkey ca.key -days 2 -extfile extensions -out new.pem";
        openssl(&self.folder, &format!("{sign} -set_serial {serial}"));
        std::fs::rename(self.path("new.key"), self.path("service.key")).unwrap();
        std::fs::rename(self.path("new.pem"), self.path("service.pem")).unwrap();
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.join(file)
    }

    fn text(&self, file: &str) -> String {
        self.path(file).to_str().unwrap().to_owned()
    }

    /// A client that trusts the authority.
    fn client(&self) -> reqwest::Client {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let root = reqwest::Certificate::from_pem(&std::fs::read(self.path("ca.pem")).unwrap()).unwrap();
        // Each request has a connection of its own, and so a handshake.
        let client = reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0).tls_certs_only([root]);
        client.timeout(Duration::from_mins(1)).build().unwrap()
    }
}

/// Starts a server with TLS.
async fn start(setup: Setup) -> (Server, Authority) {
    let mut server = Server::prepare(setup).await;
    let authority = Authority::new(&server);
    server.setup = server.setup.clone().arg("--tls-cert", authority.text("service.pem"));
    server.setup = server.setup.clone().arg("--tls-key", authority.text("service.key"));
    server.restart();
    assert!(server.base.starts_with("https://127.0.0.1:"), "{}", server.base);
    (server, authority)
}

fn address(server: &Server) -> &str {
    server.base.trim_start_matches("https://")
}

/// Returns the serial number of the certificate that new connections get.
fn serial(server: &Server) -> String {
    let script =
        format!("openssl s_client -connect {} </dev/null 2>/dev/null | openssl x509 -noout -serial", address(server));
    let done = Command::new("sh").args(["-c", &script]).output().unwrap();
    String::from_utf8(done.stdout).unwrap().trim().to_owned()
}

/// Reads until the server closes the connection. Returns what it has sent.
fn read_until_closed(stream: &mut TcpStream) -> Vec<u8> {
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut received = Vec::new();
    match stream.read_to_end(&mut received) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "the connection stays open"),
    }
    received
}

#[tokio::test]
async fn a_new_certificate_is_used_without_a_restart_and_a_broken_one_is_not() {
    let (mut server, authority) = start(Setup::new(Backend::Sqlite)).await;
    let client = authority.client();
    let run = format!("{}/v1/runs", server.base);
    let create = json!({"runId": "first", "source": {"type": "empty"}});
    let created = client.post(&run).bearer_auth(&server.operator_token).json(&create).send().await.unwrap();
    assert_eq!(created.status(), 201);
    let curl = ["-q", "-sS", "--fail", "--cacert", &authority.text("ca.pem"), &format!("{}/healthz", server.base)];
    let curl = Command::new("curl").args(curl).output().unwrap();
    assert!(curl.status.success(), "{}", String::from_utf8_lossy(&curl.stderr));
    // The client chooses the protocol in the handshake.
    for (protocol, version) in [("--http2", "2"), ("--http1.1", "1.1")] {
        let args =
            ["-q", "-sS", "-o", "/dev/null", "-w", "%{http_version}", protocol, "--cacert", &authority.text("ca.pem")];
        let done = Command::new("curl").args(args).arg(format!("{}/healthz", server.base)).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&done.stdout), version, "{}", String::from_utf8_lossy(&done.stderr));
    }
    assert_eq!(serial(&server), "serial=01");
    let stream = client.get(format!("{}/v1/audit/stream", server.base)).bearer_auth(&server.operator_token);
    let mut stream = stream.header("accept", "text/event-stream").send().await.unwrap();

    authority.issue(2);
    server.signal(Signal::HUP);
    server.until_logged("the certificate was read again").await;
    let metrics = client.get(format!("{}/metrics", server.base)).send().await.unwrap().text().await.unwrap();
    let name = "workspaced_tls_certificate_expires_timestamp_seconds ";
    let expires_at: f64 = metrics.lines().find_map(|line| line.strip_prefix(name)).unwrap().parse().unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    let hours = (expires_at - now) / 3600.0;
    assert!((47.0..=48.0).contains(&hours), "two days, not {hours} hours");
    assert_eq!(serial(&server), "serial=02");
    std::fs::write(authority.path("service.pem"), "-----BEGIN CERTIFICATE-----\nnone\n").unwrap();
    server.signal(Signal::HUP);
    server.until_logged("the certificate cannot be replaced").await;
    assert_eq!(serial(&server), "serial=02");

    // The stream of the first connection goes on.
    let write = json!({"path": "a.txt", "content": "a\n", "reason": "r", "toolCallId": "after-the-replacement"});
    let write = client.post(format!("{run}/first/tools/write_file")).json(&write);
    assert_eq!(write.bearer_auth(&server.operator_token).send().await.unwrap().status(), 200);
    let mut received = String::new();
    while !received.contains("after-the-replacement") {
        received += &String::from_utf8_lossy(&stream.chunk().await.unwrap().expect("the stream goes on"));
    }
    drop(stream);
    assert!(server.stop().success(), "{}", server.log());
}

#[tokio::test]
async fn clients_that_do_not_complete_a_handshake_delay_nobody() {
    let (mut server, authority) = start(Setup::new(Backend::Sqlite).arg("--client-timeout-seconds", 6)).await;
    let mut silent: Vec<_> = (0..100).map(|_| TcpStream::connect(address(&server)).unwrap()).collect();
    let mut plain = TcpStream::connect(address(&server)).unwrap();
    plain.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let health = authority.client().get(format!("{}/healthz", server.base)).send().await.unwrap();
    assert_eq!(health.status(), 200);
    let answer = read_until_closed(&mut plain);
    assert!(!answer.starts_with(b"HTTP/"), "{}", String::from_utf8_lossy(&answer));
    assert!(read_until_closed(&mut silent[0]).is_empty());
    let _unfinished = TcpStream::connect(address(&server)).unwrap();
    assert!(server.stop().success(), "{}", server.log());
}

#[tokio::test]
async fn handshakes_under_way_are_at_most_half_of_the_connections_and_the_oldest_gives_way() {
    let (server, authority) = start(Setup::new(Backend::Sqlite).arg("--max-connections", 16)).await;
    let client = authority.client();
    let connect = || TcpStream::connect(address(&server)).unwrap();
    let mut silent: Vec<_> = (0..8).map(|_| connect()).collect();
    // While as many clients as may never complete their handshakes, others are served.
    for _ in 0..4 {
        let health = client.get(format!("{}/healthz", server.base)).send().await.unwrap();
        assert_eq!(health.status(), 200);
        silent.push(connect());
    }
    assert!(read_until_closed(&mut silent[0]).is_empty());
    let metrics = client.get(format!("{}/metrics", server.base)).send().await.unwrap().text().await.unwrap();
    let refused = metrics.lines().find_map(|line| line.strip_prefix("workspaced_connections_refused_total "));
    assert!(refused.unwrap().parse::<u32>().unwrap() >= 1, "{refused:?}");
}

#[tokio::test]
async fn the_commands_of_a_client_trust_the_authority_that_they_are_given() {
    let (server, authority) = start(Setup::new(Backend::Sqlite)).await;
    let list = |ca: Option<&str>, args: &[&str]| {
        let mut command = workspaced();
        command.args(["run", "list", "--json"]).args(args);
        command.env("WORKSPACED_URL", &server.base).env("WORKSPACED_TOKEN", &server.operator_token);
        command.envs(ca.map(|file| ("WORKSPACED_CA_FILE", file)));
        let done = command.output().unwrap();
        (done.status.code(), String::from_utf8(done.stderr).unwrap())
    };
    let ca = authority.text("ca.pem");
    assert_eq!(list(Some(&ca), &[]), (Some(0), String::new()));
    assert_eq!(list(None, &["--ca-file", &ca]), (Some(0), String::new()));
    let (code, text) = list(None, &[]);
    assert!(code == Some(3) || code == Some(1), "{code:?} {text}");
    let (code, text) = list(Some(&authority.text("extensions")), &[]);
    assert!(code == Some(2) && text.contains("PEM"), "{text}");

    // The settings of the client name a file beside them.
    let folder = server.home.join(".config/workspaced");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::copy(authority.path("ca.pem"), folder.join("ca.pem")).unwrap();
    std::fs::write(folder.join("client.toml"), format!("url = '{}'\nca_file = 'ca.pem'\n", server.base)).unwrap();
    let mut command = workspaced();
    command.args(["run", "list"]).env("HOME", &server.home).env("WORKSPACED_TOKEN", &server.operator_token);
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));

    let client = authority.client();
    let create = json!({"runId": "first", "source": {"type": "empty"}});
    let create = client.post(format!("{}/v1/runs", server.base)).bearer_auth(&server.operator_token).json(&create);
    let created: Value = create.send().await.unwrap().json().await.unwrap();
    let mut bridge = workspaced();
    bridge.args(["mcp", "--ca-file", &ca]).env("WORKSPACED_URL", &server.base);
    bridge.env("WORKSPACED_TOKEN", created["token"]["token"].as_str().unwrap());
    let mut bridge = bridge.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let line = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}});
    writeln!(bridge.stdin.take().unwrap(), "{line}").unwrap();
    let answer = String::from_utf8(bridge.wait_with_output().unwrap().stdout).unwrap();
    assert!(answer.contains("read_file"), "{answer}");
}

#[tokio::test]
async fn files_that_are_no_certificate_and_key_end_the_start() {
    let server = Server::prepare(Setup::new(Backend::Sqlite)).await;
    let authority = Authority::new(&server);
    let cert = authority.text("service.pem");
    for (args, problem) in [
        (vec!["--tls-cert", &cert], "--tls-cert needs --tls-key"),
        (vec!["--tls-key", &authority.text("service.key")], "--tls-key needs --tls-cert"),
        (vec!["--tls-cert", &cert, "--tls-key", &authority.text("ca.key")], "cannot be used with --tls-key"),
        (vec!["--tls-cert", &cert, "--tls-key", &authority.text("ca.pem")], "expected a private key in PEM"),
        (vec!["--tls-cert", &authority.text("ca.key"), "--tls-key", &cert], "has no certificate"),
        (vec!["--tls-cert", &authority.text("none"), "--tls-key", &cert], "No such file"),
    ] {
        let done = server.command("serve").args(["--listen", "127.0.0.1:0"]).args(&args).output().unwrap();
        let stderr = String::from_utf8(done.stderr).unwrap();
        assert!(done.status.code() == Some(2) && stderr.contains(problem), "{args:?}: {stderr}");
    }
}
