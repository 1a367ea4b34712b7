//! This process as one of several nodes that share a database.

pub mod membership;
pub mod peers;
pub mod proofs;
pub mod proven_connection;

use async_recursion::async_recursion as boxed;
use ledger::{Ledger, Role, StoredNode};
use model::RunId;

use self::membership::Membership;

/// Whether a process does the work of a role that concerns no single run. A service that is the only one, and so no node, has every
/// role.
pub fn holds(node: Option<&Membership>, role: Role) -> bool {
    node.is_none_or(|membership| membership.holds(role))
}

/// Whether a process does the work of a role for a run: the owner of the run does it, and for runs without a live owner the node
/// that has the role.
///
/// # Errors
///
/// If the ledger fails.
#[boxed]
pub async fn maintains(
    node: Option<&Membership>,
    ledger: &dyn Ledger,
    role: Role,
    run: &RunId,
) -> ledger::Result<bool> {
    let Some(membership) = node else { return Ok(true) };
    Ok(match ledger.owner(run).await? {
        Some(owner) if owner.node == membership.node => true,
        Some(owner) if owner.is_alive() => false,
        _ => membership.holds(role),
    })
}

/// One of the nodes that share the database.
pub struct KnownNode {
    /// Its name.
    pub node_id: String,
    /// Which of the processes that have joined under this name it is, counted from 1.
    pub incarnation: u64,
    /// Where other nodes reach it.
    pub url: String,
    /// When its process joined, in milliseconds of Unix time.
    pub started_at_ms: i64,
    /// Whether it has given a sign of life within its lease, and has not ended.
    pub is_alive: bool,
    /// How many runs it owns, closed ones included.
    pub owned_runs: u64,
    /// Whether it is this process.
    pub is_this: bool,
}

/// Returns the nodes that share the database, by name; none in a service that is the only one.
///
/// # Errors
///
/// If the ledger fails.
#[boxed]
pub async fn known_nodes(ledger: &dyn Ledger) -> ledger::Result<Vec<KnownNode>> {
    let Some(own) = ledger.node() else { return Ok(Vec::new()) };
    let known = |stored: StoredNode| KnownNode {
        is_this: stored.node == *own,
        node_id: stored.node.node_id,
        incarnation: stored.node.incarnation,
        url: stored.url,
        started_at_ms: stored.started_at_ms,
        is_alive: stored.expires_in_ms > 0,
        owned_runs: stored.owned_runs,
    };
    Ok(ledger.nodes().await?.into_iter().map(known).collect())
}
