//! How nodes recognise each other: by codes under the secret that all of them have.

use std::time::Duration;

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, Method};
use engine::clock;
use hmac::Mac as _;
use ledger::Node;
use model::Sha256;

use config::ClusterSecret;

/// How far the clock of the sender of a request may be from that of the receiver.
const MAX_AGE: Duration = Duration::from_mins(1);

/// A node as others reach it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Peer {
    /// The process.
    pub node: Node,
    /// Its address, without a slash at its end.
    pub url: String,
}

/// Makes and checks the codes of this node.
pub struct Proofs {
    /// This node.
    own: Peer,
    secret: ClusterSecret,
}

impl Proofs {
    /// The codes of the node `own`.
    pub fn new(own: Peer, secret: ClusterSecret) -> Self {
        Self { own, secret }
    }

    /// Returns what shows who has made `challenge` that it has reached this node, at the address that this node has given itself.
    pub fn of_this_node(&self, challenge: &[u8]) -> String {
        hex(self.mac_of_node(&self.own, challenge))
    }

    /// Whether `proof` is the answer of `peer` to `challenge`. Takes the same time for every wrong one.
    pub fn is_of(&self, peer: &Peer, challenge: &[u8], proof: &str) -> bool {
        is_code(self.mac_of_node(peer, challenge), proof)
    }

    /// Returns what shows `to` that a request comes from a node. It is valid for a minute, for that process alone, and for this
    /// method, target and token.
    pub fn of_request(&self, to: &Peer, method: &Method, target: &str, headers: &HeaderMap) -> String {
        let now = seconds_now();
        format!("{now}.{}", hex(self.mac_of_request(to, now, method, target, headers)))
    }

    /// Whether `proof` shows that a request to this node comes from a node. Takes the same time for every wrong one.
    pub fn is_of_request(&self, proof: &str, method: &Method, target: &str, headers: &HeaderMap) -> bool {
        let Some((seconds, code)) = proof.split_once('.') else { return false };
        let Ok(seconds) = seconds.parse::<u64>() else { return false };
        seconds.abs_diff(seconds_now()) <= MAX_AGE.as_secs()
            && is_code(self.mac_of_request(&self.own, seconds, method, target, headers), code)
    }

    fn mac_of_node(&self, peer: &Peer, challenge: &[u8]) -> hmac::Hmac<sha2::Sha256> {
        self.mac("workspaced node", peer, &[challenge])
    }

    fn mac_of_request(
        &self,
        to: &Peer,
        seconds: u64,
        method: &Method,
        target: &str,
        headers: &HeaderMap,
    ) -> hmac::Hmac<sha2::Sha256> {
        let token = headers.get(AUTHORIZATION).map_or(&b""[..], |token| token.as_bytes());
        self.mac("workspaced hop", to, &[&seconds.to_be_bytes(), method.as_str().as_bytes(), target.as_bytes(), token])
    }

    fn mac(&self, purpose: &str, peer: &Peer, parts: &[&[u8]]) -> hmac::Hmac<sha2::Sha256> {
        let mut mac = self.secret.mac(purpose);
        let Peer { node: Node { node_id, incarnation }, url } = peer;
        let of_peer = [node_id.as_bytes(), &incarnation.to_be_bytes(), url.as_bytes()];
        for part in of_peer.iter().chain(parts) {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        mac
    }
}

fn hex(mac: hmac::Hmac<sha2::Sha256>) -> String {
    Sha256::from_bytes(mac.finalize().into_bytes().into()).to_string()
}

fn is_code(mac: hmac::Hmac<sha2::Sha256>, code: &str) -> bool {
    Sha256::parse(code).is_ok_and(|code| mac.verify_slice(code.as_bytes()).is_ok())
}

fn seconds_now() -> u64 {
    u64::try_from(clock::now_seconds()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn peer(incarnation: u64, url: &str) -> Peer {
        Peer { node: Node { node_id: "a".to_owned(), incarnation }, url: url.to_owned() }
    }

    fn proofs(own: Peer) -> Proofs {
        Proofs::new(own, ClusterSecret::of(model::Sha256::of(b"a secret of tests")))
    }

    #[test]
    fn a_request_is_proven_to_one_process_for_a_minute() {
        let (to, method, mut headers) = (peer(2, "http://a:1"), Method::GET, HeaderMap::new());
        headers.insert(AUTHORIZATION, HeaderValue::from_static("Bearer x"));
        let (sender, receiver) = (proofs(peer(1, "http://b:1")), proofs(to.clone()));
        let proof = sender.of_request(&to, &method, "/v1/runs", &headers);
        assert!(receiver.is_of_request(&proof, &method, "/v1/runs", &headers));
        assert!(!receiver.is_of_request(&proof, &Method::PUT, "/v1/runs", &headers));
        assert!(!receiver.is_of_request(&proof, &method, "/v1/runs?a", &headers));
        assert!(!receiver.is_of_request(&proof, &method, "/v1/runs", &HeaderMap::new()));
        for other in [peer(3, "http://a:1"), peer(2, "http://a:2")] {
            assert!(!proofs(other).is_of_request(&proof, &method, "/v1/runs", &headers));
        }
        let at = |seconds: u64| {
            let code = hex(sender.mac_of_request(&to, seconds, &method, "/", &headers));
            receiver.is_of_request(&format!("{seconds}.{code}"), &method, "/", &headers)
        };
        let now = seconds_now();
        assert!(at(now - 50) && at(now + 50) && !at(now - 70) && !at(now + 70));
        let (_, code) = proof.split_once('.').unwrap();
        for wrong in ["", ".", "1", code, &format!("{now}."), &format!("{}.{code}", now - 30)] {
            assert!(!receiver.is_of_request(wrong, &method, "/v1/runs", &headers), "{wrong}");
        }
    }

    #[test]
    fn a_node_proves_its_own_address_alone() {
        let (asked, asking) = (proofs(peer(2, "http://a:1")), proofs(peer(1, "http://b:1")));
        let proof = asked.of_this_node(b"challenge");
        assert!(asking.is_of(&peer(2, "http://a:1"), b"challenge", &proof));
        assert!(!asking.is_of(&peer(2, "http://a:1"), b"another", &proof));
        for other in [peer(3, "http://a:1"), peer(2, "http://a:2")] {
            assert!(!asking.is_of(&other, b"challenge", &proof));
        }
    }
}
