//! The other nodes, as this one sends requests to them: who owns a run, and whether it answers.

use async_recursion::async_recursion as boxed;
use std::error::Error;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::HeaderName;
use ledger::{Ledger, LedgerError, Node};
use lru::LruCache;
use model::RunId;
use parking_lot::Mutex;
use reqwest::Client;
use reqwest::redirect::Policy;

use crate::nodes::proofs::{Peer, Proofs};
use crate::nodes::proven_connection::{CONNECT_TIMEOUT, ProveConnections};
use config::NodeConfig;
use config::StartError;
use config::http_client::install_tls;

/// Asks a node to show that it is one. A request with it is answered by nothing else.
pub static CHALLENGE: HeaderName = HeaderName::from_static("workspaced-hop-challenge");
/// The path and the query of a request that comes from another node, which is not forwarded again. They are not in the address,
/// in which a client of HTTP would resolve what the caller has written.
pub static HOP: HeaderName = HeaderName::from_static("workspaced-hop");
/// Shows that a request, or an answer to [`CHALLENGE`], comes from a node.
pub static HOP_PROOF: HeaderName = HeaderName::from_static("workspaced-hop-proof");

/// Marks a request that another node has forwarded.
#[derive(Clone, Copy, Debug)]
pub struct FromNode;

/// How long a node that was found to own a run counts as its owner, and how long one that has answered counts as reachable.
const CACHE_TIME: Duration = Duration::from_secs(1);
/// How long a node that has not answered is not asked again.
const FAILURE_TIME: Duration = Duration::from_millis(200);
/// Maximum number of runs whose owner is known.
const CACHED: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
/// Maximum number of nodes that are known to answer.
const CACHED_PEERS: NonZeroUsize = NonZeroUsize::new(256).unwrap();
/// The time within which a node answers a challenge, over a new connection or an earlier one.
const CHALLENGE_TIMEOUT: Duration = CONNECT_TIMEOUT;
/// How long a connection to a node is kept without a request: less than the shortest idle time that a node closes it after.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(4);
/// How long a connection to a node may be silent until the kernel asks whether the other end still has it.
const TCP_KEEPALIVE: Duration = Duration::from_secs(10);
/// How long what was sent to a node may stay unacknowledged by its kernel.
const TCP_USER_TIMEOUT: Duration = Duration::from_secs(20);

/// Where the requests of a run are answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Location {
    /// By this node: it owns the run, or the owner is not alive.
    Here,
    /// By this node: nobody owns the run. The last owner may still answer what it was asked before.
    Unowned,
    /// By another node.
    At(Peer),
}

/// What is at the address of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The process that is known as that node.
    Node,
    /// Nobody or somebody else, or that process takes no connection more. What it was asked before it may still answer.
    Other,
    /// Something that does not answer.
    Silence,
}

/// What was found at an address, and until when that is taken as known.
type FoundUntil = Arc<tokio::sync::Mutex<Option<(Found, Instant)>>>;

/// The other nodes.
pub struct Peers {
    node: Node,
    /// How they recognise this one, and it them.
    pub proofs: Arc<Proofs>,
    clients: Mutex<LruCache<Peer, Client>>,
    owners: Mutex<LruCache<RunId, (Location, Instant)>>,
    found: Mutex<LruCache<Peer, FoundUntil>>,
}

impl Peers {
    /// The nodes other than `node`, which is this one.
    ///
    /// # Errors
    ///
    /// If the TLS library fails.
    pub fn new(config: &NodeConfig, node: Node) -> Result<Self, StartError> {
        install_tls();
        let own = Peer { node: node.clone(), url: config.address().to_owned() };
        let proofs = Arc::new(Proofs::new(own.clone(), config.secret.clone()));
        new_client(&own, &proofs).map_err(|error| StartError::failed("--node-url", &error.without_url()))?;
        let owners = Mutex::new(LruCache::new(CACHED));
        let (clients, found) = (LruCache::new(CACHED_PEERS), LruCache::new(CACHED_PEERS));
        Ok(Self { node, proofs, clients: Mutex::new(clients), owners, found: Mutex::new(found) })
    }

    /// Returns the client that sends requests to `peer`, over connections to that process alone.
    ///
    /// # Errors
    ///
    /// If the TLS library fails.
    pub fn client_of(&self, peer: &Peer) -> reqwest::Result<Client> {
        self.clients.lock().try_get_or_insert(peer.clone(), || new_client(peer, &self.proofs)).cloned()
    }

    /// Returns where the requests of a run are answered, as it was at most a second ago.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    #[boxed]
    pub async fn location_of(&self, ledger: &dyn Ledger, run: &RunId) -> ledger::Result<Location> {
        if let Some((location, until)) = self.owners.lock().get(run).cloned()
            && Instant::now() < until
        {
            return Ok(location);
        }
        let (location, valid) = match ledger.owner(run).await {
            Ok(Some(owner)) if owner.node != self.node && owner.is_alive() => {
                let left = Duration::from_millis(u64::try_from(owner.expires_in_ms).unwrap_or(0));
                let node = owner.node;
                let location = owner.url.map_or(Location::Here, |url| Location::At(Peer { node, url }));
                (location, left.min(CACHE_TIME))
            }
            Ok(None) => (Location::Unowned, CACHE_TIME),
            Ok(Some(_)) => (Location::Here, CACHE_TIME),
            // It is answered here that there is no such run, which may be created meanwhile.
            Err(LedgerError::NoSuchRun) => return Ok(Location::Here),
            Err(error) => return Err(error),
        };
        self.owners.lock().put(run.clone(), (location.clone(), Instant::now() + valid));
        Ok(location)
    }

    /// Makes the owner of a run be looked up again.
    pub fn forget(&self, run: &RunId) {
        self.owners.lock().pop(run);
    }

    /// Returns what is at the address of `peer`, as it was at most a second ago, so that a node that does not respond is not asked by
    /// every request.
    #[boxed]
    pub async fn find(&self, peer: &Peer) -> Found {
        let found = Arc::clone(self.found.lock().get_or_insert(peer.clone(), FoundUntil::default));
        // Requests that come meanwhile wait for the same answer.
        let mut found = found.lock().await;
        if let Some((found, until)) = *found
            && Instant::now() < until
        {
            return found;
        }
        let now = self.challenge(peer).await;
        let valid = if now == Found::Node { CACHE_TIME } else { FAILURE_TIME };
        *found = Some((now, Instant::now() + valid));
        now
    }

    async fn challenge(&self, peer: &Peer) -> Found {
        let challenge = new_challenge();
        let node_id = &peer.node.node_id;
        let asked = async {
            let request = self.client_of(peer)?.get(format!("{}/healthz", peer.url)).header(&CHALLENGE, &challenge);
            request.timeout(CHALLENGE_TIMEOUT).send().await
        };
        let answer = match asked.await {
            Ok(answer) => answer,
            Err(error) => {
                let error = error.without_url();
                tracing::warn!(node.id = node_id, error = &error as &dyn Error, "a node does not respond");
                return if error.is_timeout() { Found::Silence } else { Found::Other };
            }
        };
        let proof = answer.headers().get(&HOP_PROOF).and_then(|proof| proof.to_str().ok()).unwrap_or_default();
        if self.proofs.is_of(peer, challenge.as_bytes(), proof) { Found::Node } else { Found::Other }
    }
}

/// Returns a challenge that was never used before.
pub fn new_challenge() -> String {
    format!("{:032x}", rand::random::<u128>())
}

fn new_client(peer: &Peer, proofs: &Arc<Proofs>) -> reqwest::Result<Client> {
    let mut client = Client::builder()
        .http1_only()
        .no_proxy()
        .redirect(Policy::none())
        .connector_layer(ProveConnections::new(peer.clone(), Arc::clone(proofs)))
        .pool_idle_timeout(POOL_IDLE_TIMEOUT)
        .tcp_keepalive(TCP_KEEPALIVE)
        .tcp_user_timeout(TCP_USER_TIMEOUT)
        .tcp_nodelay(true);
    if peer.url.starts_with("http://") {
        // A machine without trusted certificates can be a node without TLS.
        client = client.tls_certs_only([]);
    }
    client.build()
}
