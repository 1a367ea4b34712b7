//! The other nodes, as this one sends requests to them: who owns a run, and how nodes recognise each other.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, Method};
use hmac::Mac as _;
use ledger::{Ledger, LedgerError, Node};
use lru::LruCache;
use model::{RunId, Sha256};
use parking_lot::Mutex;
use reqwest::Client;
use reqwest::redirect::Policy;

use crate::bootstrap::error::StartError;
use crate::config::{ClusterSecret, NodeConfig};
use crate::http_client::install_tls;

/// How long a node that was found to own a run counts as its owner.
const CACHE_TIME: Duration = Duration::from_secs(1);
/// Maximum number of runs whose owner is known.
const CACHED: NonZeroUsize = NonZeroUsize::new(4096).unwrap();
/// The time within which a node accepts a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a connection to a node is kept without a request: less than the shortest idle time that a node closes it after.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// Where the requests of a run are answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// By this node: it owns the run, or nobody who is alive does.
    Here,
    /// By the node with this address.
    At(String),
}

/// The other nodes.
pub(crate) struct Peers {
    node: Node,
    /// Sends requests to other nodes.
    pub(crate) http: Client,
    secret: ClusterSecret,
    owners: Mutex<LruCache<RunId, (Location, Instant)>>,
}

impl Peers {
    /// The nodes other than `node`, which is this one.
    ///
    /// # Errors
    ///
    /// If the TLS library fails.
    pub(crate) fn new(config: &NodeConfig, node: Node) -> Result<Self, StartError> {
        install_tls();
        let mut client = Client::builder()
            .http1_only()
            .no_proxy()
            .redirect(Policy::none())
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .tcp_nodelay(true);
        if config.url.scheme() == "http" {
            // A machine without trusted certificates can be a node without TLS.
            client = client.tls_certs_only([]);
        }
        let http = client.build().map_err(|error| StartError::failed("--node-url", &error.without_url()))?;
        let owners = Mutex::new(LruCache::new(CACHED));
        Ok(Self { node, http, secret: config.secret.clone(), owners })
    }

    /// Returns where the requests of a run are answered, as it was at most a second ago.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    pub(crate) async fn location_of(&self, ledger: &dyn Ledger, run: &RunId) -> ledger::Result<Location> {
        if let Some((location, until)) = self.owners.lock().get(run).cloned()
            && Instant::now() < until
        {
            return Ok(location);
        }
        let (location, valid) = match ledger.owner(run).await {
            Ok(Some(owner)) if owner.node != self.node && owner.is_alive() => {
                let left = Duration::from_millis(u64::try_from(owner.expires_in_ms).unwrap_or(0));
                (owner.url.map_or(Location::Here, Location::At), left.min(CACHE_TIME))
            }
            Ok(_) => (Location::Here, CACHE_TIME),
            // It is answered here that there is no such run, which may be created meanwhile.
            Err(LedgerError::NoSuchRun) => return Ok(Location::Here),
            Err(error) => return Err(error),
        };
        self.owners.lock().put(run.clone(), (location.clone(), Instant::now() + valid));
        Ok(location)
    }

    /// Makes the owner of a run be looked up again.
    pub(crate) fn forget(&self, run: &RunId) {
        self.owners.lock().pop(run);
    }

    /// Returns what shows another node that this request comes from a node. It is valid for this method, address and token alone.
    pub(crate) fn proof(&self, method: &Method, path_and_query: &str, headers: &HeaderMap) -> String {
        Sha256::from_bytes(self.mac(method, path_and_query, headers).finalize().into_bytes().into()).to_string()
    }

    /// Whether `proof` shows that a request comes from a node. Takes the same time for every wrong one.
    pub(crate) fn is_proven(&self, proof: &str, method: &Method, path_and_query: &str, headers: &HeaderMap) -> bool {
        let Ok(proof) = Sha256::parse(proof) else { return false };
        self.mac(method, path_and_query, headers).verify_slice(proof.as_bytes()).is_ok()
    }

    fn mac(&self, method: &Method, path_and_query: &str, headers: &HeaderMap) -> hmac::Hmac<sha2::Sha256> {
        let mut mac = self.secret.mac("workspaced hop");
        let token = headers.get(AUTHORIZATION).map_or(&b""[..], |token| token.as_bytes());
        // None of them has a line break.
        for part in [method.as_str().as_bytes(), path_and_query.as_bytes(), token] {
            mac.update(part);
            mac.update(b"\n");
        }
        mac
    }
}
