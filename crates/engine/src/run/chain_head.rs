//! The head of a run's chain.

use model::Sha256;

/// A record and its hash: the head of its run's chain when it was written. A caller that stores it can verify the chain later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainHead {
    /// The number of the record.
    pub seq: u64,
    /// The hash of the record.
    pub hash: Option<Sha256>,
}
