//! The Merkle tree of the checkpoints, as the ledger stores it.

use async_recursion::async_recursion as boxed;
use ledger::Ledger;
use model::Sha256;
use transparency::{Frontier, ProofPlan, Subtree};

/// Loads the frontier of the tree of the first `size` leaves. Returns `None` if nodes are missing.
///
/// # Errors
///
/// If the ledger fails.
#[boxed]
pub async fn load_frontier(ledger: &dyn Ledger, size: u64) -> ledger::Result<Option<Frontier>> {
    let indexes: Vec<_> = Frontier::nodes(size).into_iter().map(Subtree::storage_index).collect();
    let stored = ledger.node_hashes(&indexes).await?;
    let hashes: Option<Vec<_>> = indexes.iter().map(|index| stored.get(index).copied()).collect();
    Ok(hashes.and_then(|hashes| Frontier::from_hashes(size, hashes)))
}

/// Computes a proof. Returns `None` if nodes are missing.
///
/// # Errors
///
/// If the ledger fails.
pub(super) async fn compute_proof(ledger: &dyn Ledger, plan: &ProofPlan) -> ledger::Result<Option<Vec<Sha256>>> {
    let indexes: Vec<_> = plan.nodes().map(Subtree::storage_index).collect();
    let stored = ledger.node_hashes(&indexes).await?;
    Ok(plan.compute(|node| stored.get(&node.storage_index()).copied()))
}
