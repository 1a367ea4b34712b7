//! Nodes, the runs that they own, and the roles that they have.

use std::fmt;

/// How many times the owner of a run has changed. It never decreases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub(crate) u64);

/// The name of a node, and where other nodes reach it. Neither contains a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeIdentity {
    /// Its name, which a restart keeps.
    pub node_id: String,
    /// Its address for other nodes.
    pub url: String,
}

/// A process that has joined as a node.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Node {
    /// The name of the node.
    pub node_id: String,
    /// Which of the processes that have joined under this name it is, counted from 1.
    pub incarnation: u64,
}

/// A node that has joined, as the database knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredNode {
    /// Its newest process.
    pub node: Node,
    /// Its address for other nodes.
    pub url: String,
    /// When that process has joined, in milliseconds since 1970.
    pub started_at_ms: i64,
    /// In how many milliseconds its heartbeat expires. A node whose heartbeat has expired is not alive, as far as is known.
    pub expires_in_ms: i64,
    /// How many runs it owns.
    pub owned_runs: u64,
}

/// The owner of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunOwner {
    /// The process that owns the run.
    pub node: Node,
    /// The epoch under which it does.
    pub epoch: Epoch,
    /// Its address for other nodes; `None` if the node has joined again since, so that the process has ended.
    pub url: Option<String>,
    /// In how many milliseconds its heartbeat expires. From then on, and if it has ended, another node may take the run.
    pub expires_in_ms: i64,
}

/// The result of taking a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Taken {
    /// This process owns the run.
    Owned(Epoch),
    /// Another node owns it and is alive.
    OwnedBy(RunOwner),
}

/// Work that one node does for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Closing runs and ending approvals that have expired.
    Expiry,
    /// Archiving closed runs, and deleting what is kept no longer.
    Retention,
    /// Sending messages to webhooks.
    Webhooks,
    /// Signing checkpoints.
    Signing,
}

/// The result of taking a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TakenRole {
    /// This process has the role.
    Held(Epoch),
    /// Another node has it and is alive.
    HeldBy(Node),
}

impl Epoch {
    /// The epoch of a new run, which belongs to the node that creates it.
    pub const FIRST: Self = Self(1);

    /// Returns its number: 0 for a run that no node has owned.
    pub fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.node_id, self.incarnation)
    }
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 4] = [Self::Expiry, Self::Retention, Self::Webhooks, Self::Signing];

    /// Returns its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Expiry => "expiry",
            Self::Retention => "retention",
            Self::Webhooks => "webhooks",
            Self::Signing => "signing",
        }
    }
}

impl RunOwner {
    /// Whether the owner is alive, so that the run cannot be taken.
    pub fn is_alive(&self) -> bool {
        self.url.is_some() && self.expires_in_ms > 0
    }
}
