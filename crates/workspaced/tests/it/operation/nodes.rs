//! Several nodes on one PostgreSQL database.

mod changesets;
mod fault_runs;
mod faults;
mod forks;
mod forwarding;
mod routing;
mod takeover;
mod trees;
mod unmade_files;

use std::time::{Duration, Instant};

use serde_json::json;
use transparency::SignerKey;

use crate::harness::{Backend, Client, Run, Server, Setup, free_port};
use crate::operation::replay_and_repair::assert_ends;

/// How long a heartbeat is valid.
const LEASE: Duration = Duration::from_secs(10);
/// What one node does for all.
const ROLES: [&str; 4] = ["expiry", "retention", "webhooks", "signing"];
pub(super) const SECRET: &str = "0f3c9a7be2d84156a9c07d1e5b62f38490adce715b3f2846";

/// Returns the key that all nodes sign with.
fn signer_key() -> SignerKey {
    SignerKey::from_seed("nodes.example/log", &[7; 32]).unwrap()
}

/// Stops the node, which was started without an object store, and starts it again.
pub(super) fn restart_without_store(node: &mut Server) {
    let setup = node.setup.clone();
    let position = node.setup.args.iter().position(|arg| arg == "--object-store-url").unwrap();
    node.setup.args.drain(position..position + 2);
    node.restart();
    node.setup = setup;
}

/// Prepares a node on the database and the object store of `first`, or on new ones.
pub(super) async fn prepare(first: Option<&Server>) -> Server {
    let setup = Setup::new(Backend::Postgres).env("WORKSPACED_CHECKPOINT_KEY", &signer_key().to_text());
    let mut node = Server::prepare(setup).await;
    let objects = first.unwrap_or(&node).home.join("objects");
    node.setup = node.setup.clone().arg("--object-store-url", format!("file://{}", objects.display()));
    if first.is_none() {
        std::fs::create_dir(&objects).unwrap();
    }
    if let Some(first) = first {
        node.database = first.database.clone();
        node.operator_token.clone_from(&first.operator_token);
        node.audit_token.clone_from(&first.audit_token);
    }
    std::fs::write(node.home.join("secret"), SECRET).unwrap();
    node
}

/// Starts a prepared node on a free port.
pub(super) fn start(node: &mut Server) {
    let address = format!("127.0.0.1:{}", free_port());
    start_at(node, &address, &format!("http://{address}"));
}

/// Starts a prepared node on an address, which others reach at `url`.
fn start_at(node: &mut Server, address: &str, url: &str) {
    let mut command = node.command("serve");
    command.args(["--listen", address, "--node-url", url]);
    command.arg("--cluster-secret-file").arg(node.home.join("secret"));
    command.args(&node.setup.args);
    node.start_as(command);
}

/// Starts two nodes on one database.
pub(crate) async fn two() -> [Server; 2] {
    let mut first = prepare(None).await;
    start(&mut first);
    let mut second = prepare(Some(&first)).await;
    start(&mut second);
    [first, second]
}

/// Returns the path of a run's events.
fn events(run: &Run) -> String {
    format!("/v1/runs/{}/events", run.id)
}

/// Appends an event, which needs no file, until it is recorded. Returns how long that took.
async fn until_recorded(client: &Client, run: &Run, id: &str, at_most: Duration) -> Duration {
    let started = Instant::now();
    loop {
        let answer = client.post(&events(run), json!({"eventId": id, "kind": "message", "summary": "s"})).await;
        if answer.status == 201 {
            return started.elapsed();
        }
        assert_eq!(answer.status, 503, "{}", answer.text());
        assert!(!answer.header("retry-after").is_empty(), "{}", answer.text());
        assert!(started.elapsed() < at_most, "not recorded: {}", answer.text());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
async fn a_node_does_not_start_without_what_nodes_share() {
    let node = prepare(None).await;
    let (url, secret) = ("http://127.0.0.1:1", node.home.join("secret").display().to_string());
    let store = format!("file://{}", node.home.join("objects").display());
    let key = "WORKSPACED_CHECKPOINT_KEY";
    let all: [&str; 6] = ["--node-url", url, "--cluster-secret-file", &secret, "--object-store-url", &store];
    let refused = |command: &mut std::process::Command, why: &str| {
        let ended = command.args(["--listen", "127.0.0.1:0"]).output().unwrap();
        assert_ends(&ended, 2, &[why]);
    };
    let serve = || node.command("serve");
    refused(serve().args(&all[..4]), "--node-url: nodes get the files of each other's runs from an object store");
    refused(serve().args(&all[..2]).args(&all[4..]), "--node-url: --cluster-secret-file is missing");
    refused(serve().args(&all[2..]), "--cluster-secret-file: --node-url is missing");
    refused(serve().args(["--node-id", "a"]), "--node-id: --node-url is missing");
    refused(serve().args(all).env_remove(key), "--node-url: nodes sign checkpoints with the same key");
    refused(serve().args(all).env_remove("WORKSPACED_DATABASE_URL"), "--node-url: nodes share a PostgreSQL database");
}
