//! Three nodes with their database, their store, and the ways between them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use transparency::SignerKey;

use super::super::SECRET;
use super::link::{Link, Way};
use super::postgres::Postgres;
use crate::harness::{Backend, Client, Database, S3, Server, Setup, free_port};

/// How many nodes there are.
pub(crate) const NODES: usize = 3;

/// A node.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) server: Server,
    /// Where callers reach it.
    listen: String,
    /// Where other nodes reach it.
    url: String,
}

impl Node {
    /// Starts the process, which other faults may keep from starting for a while.
    pub(crate) async fn start(&mut self, env: &[(String, String)]) {
        let deadline = Instant::now() + Duration::from_secs(90);
        loop {
            let mut command = self.server.command("serve");
            command.args(["--listen", &self.listen, "--node-url", &self.url]);
            command.arg("--cluster-secret-file").arg(self.server.home.join("secret"));
            command.args(&self.server.setup.args).envs(env.iter().cloned());
            match tokio::task::block_in_place(|| self.server.try_start_as(command)) {
                Ok(()) => return,
                Err(why) => assert!(Instant::now() < deadline, "{why}"),
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    pub(crate) fn kill(&mut self) {
        self.server.kill();
    }

    /// Sends SIGTERM and waits for the process to end. Requests that it cannot end keep it for a while.
    pub(crate) fn stop(&mut self) {
        self.server.signal(Signal::TERM);
        tokio::task::block_in_place(|| self.server.wait());
    }

    /// Removes all that is on its disk. The process must have ended.
    pub(crate) fn wipe(&self) {
        std::fs::remove_dir_all(self.server.data_dir()).unwrap();
        std::fs::create_dir(self.server.data_dir()).unwrap();
    }
}

/// The ways from each node to the database, from each node to the store, and from the other nodes to each node.
#[derive(Debug)]
pub(crate) struct Ways {
    pub(crate) database: Vec<Link>,
    pub(crate) store: Vec<Link>,
    pub(crate) nodes: Vec<Link>,
}

impl Ways {
    pub(crate) fn open(&self) {
        for link in self.database.iter().chain(&self.store).chain(&self.nodes) {
            link.set(Way::Open);
        }
    }
}

/// All processes of one run.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Node>,
    pub(crate) ways: Ways,
    pub(crate) postgres: Postgres,
    pub(crate) store: Arc<S3>,
}

impl Cluster {
    /// Starts all processes. The objects are under `prefix` of the bucket.
    pub(crate) async fn start(store: &Arc<S3>, prefix: &str) -> Self {
        let postgres = Postgres::start().await;
        let mut ways = Ways { database: Vec::new(), store: Vec::new(), nodes: Vec::new() };
        let mut nodes: Vec<Node> = Vec::new();
        for _ in 0..NODES {
            let database = Link::start(postgres.address()).await;
            let objects = Link::start(store.url.trim_start_matches("http://").to_owned()).await;
            let listen = format!("127.0.0.1:{}", free_port());
            let way = Link::start(listen.clone()).await;
            let server = prepare(&database, &objects, prefix, nodes.first().map(|node| &node.server)).await;
            let mut node = Node { server, listen, url: format!("http://{}", way.address) };
            node.start(&[]).await;
            ways.database.push(database);
            ways.store.push(objects);
            ways.nodes.push(way);
            nodes.push(node);
        }
        Self { nodes, ways, postgres, store: Arc::clone(store) }
    }

    /// Returns where callers reach the nodes.
    pub(crate) fn addresses(&self) -> Vec<String> {
        self.nodes.iter().map(|node| format!("http://{}", node.listen)).collect()
    }

    /// Starts again what does not run, and returns what has ended by itself.
    pub(crate) async fn heal(&mut self) -> Vec<String> {
        self.ways.open();
        let mut ended = Vec::new();
        for (number, node) in self.nodes.iter_mut().enumerate() {
            if let Some(status) = node.server.has_ended() {
                ended.push(format!("node {number} has ended by itself: {status}"));
                node.start(&[]).await;
            }
        }
        ended
    }

    /// Returns a client of a node with the operator's token.
    pub(crate) fn operator(&self, node: usize) -> Client {
        self.nodes[node % NODES].server.operator()
    }
}

/// Prepares a node with the secrets of `first`.
async fn prepare(database: &Link, store: &Link, prefix: &str, first: Option<&Server>) -> Server {
    let key = SignerKey::from_seed("nodes.example/log", &[7; 32]).unwrap();
    let mut setup = Setup::new(Backend::Sqlite).env("WORKSPACED_CHECKPOINT_KEY", &key.to_text());
    let port = store.address.rsplit(':').next().unwrap().parse().unwrap();
    setup.env.extend(S3::env(port));
    setup = setup.arg("--object-store-url", format!("s3://archives/{prefix}"));
    let mut node = Server::prepare(setup).await;
    node.database = Database { backend: Backend::Postgres, url: Postgres::url_at(&database.address) };
    if let Some(first) = first {
        node.operator_token.clone_from(&first.operator_token);
        node.audit_token.clone_from(&first.audit_token);
    }
    std::fs::write(node.home.join("secret"), SECRET).unwrap();
    node
}
