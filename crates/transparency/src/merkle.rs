//! The Merkle tree of RFC 6962 with SHA-256.
//!
//! The tree is stored as its complete subtrees, the [`Subtree`]s, which never change once they are complete. A root and a
//! proof are computed from a logarithmic number of them.

use model::{CheckpointLeaf, Sha256};
use sha2::Digest as _;

/// A complete subtree over the `1 << level` leaves from `index << level` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subtree {
    /// The height. A leaf has 0.
    pub level: u32,
    /// The index among the subtrees of this height, from 0.
    pub index: u64,
}

impl Subtree {
    /// Returns the index of this node in the order in which a growing tree completes its nodes, from 0.
    ///
    /// Every node has its own index, so that a store can use it as a key.
    pub fn storage_index(self) -> u64 {
        let last_leaf = ((self.index + 1) << self.level) - 1;
        2 * last_leaf - u64::from(last_leaf.count_ones()) + u64::from(self.level)
    }
}

/// Returns the hash of a leaf with this content.
pub fn hash_leaf(content: &[u8]) -> Sha256 {
    hash(&[&[0], content])
}

/// Returns the hash of a checkpoint leaf, whose content is its canonical JSON.
pub fn hash_checkpoint_leaf(leaf: &CheckpointLeaf) -> Sha256 {
    hash_leaf(leaf.to_canonical().as_bytes())
}

/// Returns the hash of a subtree from the hashes of its halves.
pub fn hash_children(left: Sha256, right: Sha256) -> Sha256 {
    hash(&[&[1], left.as_bytes(), right.as_bytes()])
}

fn hash(parts: &[&[u8]]) -> Sha256 {
    let mut hasher = sha2::Sha256::new();
    for part in parts {
        hasher.update(part);
    }
    Sha256::from_bytes(hasher.finalize().into())
}

/// The frontier of a tree: the hashes of the largest complete subtrees. Its root and its growth depend on nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frontier {
    size: u64,
    /// The largest subtree first.
    hashes: Vec<Sha256>,
}

impl Frontier {
    /// Returns the nodes that make up the frontier of a tree of `size` leaves, the largest first.
    pub fn nodes(size: u64) -> Vec<Subtree> {
        covering_nodes(0, size)
    }

    /// Builds the frontier of a tree of `size` leaves from the hashes of its [`nodes`](Self::nodes).
    ///
    /// Returns `None` if the number of hashes does not fit the size.
    pub fn from_hashes(size: u64, hashes: Vec<Sha256>) -> Option<Self> {
        (hashes.len() as u64 == u64::from(size.count_ones())).then_some(Self { size, hashes })
    }

    /// Returns the number of leaves of the tree.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Appends a leaf by its hash. Returns the nodes that it completes with their hashes, the leaf itself first.
    pub fn push(&mut self, leaf: Sha256) -> Vec<(Subtree, Sha256)> {
        let mut node = Subtree { level: 0, index: self.size };
        let mut hash = leaf;
        let mut completed = vec![(node, hash)];
        while node.index % 2 == 1 {
            let Some(left) = self.hashes.pop() else { break };
            hash = hash_children(left, hash);
            node = Subtree { level: node.level + 1, index: node.index / 2 };
            completed.push((node, hash));
        }
        self.hashes.push(hash);
        self.size += 1;
        completed
    }

    /// Returns the root. The root of an empty tree is the hash of nothing.
    pub fn root(&self) -> Sha256 {
        join(self.hashes.iter().copied()).unwrap_or_else(|| Sha256::of(b""))
    }
}

/// Returns the hash over neighbouring subtrees, the largest first.
pub(crate) fn join(subtrees: impl DoubleEndedIterator<Item = Sha256>) -> Option<Sha256> {
    subtrees.rev().reduce(|right, left| hash_children(left, right))
}

/// Returns the complete subtrees over the leaves from `start` to before `end`, the largest first. `start` is a multiple of
/// the largest one's size.
pub(crate) fn covering_nodes(start: u64, end: u64) -> Vec<Subtree> {
    let mut nodes = Vec::new();
    let mut next = start;
    while next < end {
        let level = (end - next).ilog2();
        nodes.push(Subtree { level, index: next >> level });
        next += 1 << level;
    }
    nodes
}
