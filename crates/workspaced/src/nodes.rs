//! This process as one of several nodes that share a database.

pub(crate) mod membership;
pub(crate) mod peers;
pub(crate) mod proofs;
pub(crate) mod proven_connection;

use ledger::{Ledger, Role};
use model::RunId;

use self::membership::Membership;

/// Whether a process does the work of a role that concerns no single run. A service that is the only one, and so no node, has every
/// role.
pub(crate) fn holds(node: Option<&Membership>, role: Role) -> bool {
    node.is_none_or(|membership| membership.holds(role))
}

/// Whether a process does the work of a role for a run: the owner of the run does it, and for runs without a live owner the node
/// that has the role.
///
/// # Errors
///
/// If the ledger fails.
pub(crate) async fn maintains(
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
