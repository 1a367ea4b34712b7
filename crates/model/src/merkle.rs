//! The Merkle tree of RFC 6962 over the leaves of checkpoints: its root as it grows, proofs, and their checks.
//!
//! The tree is kept as its complete subtrees, the [`Node`]s, which never change once they are there. A root and a proof
//! come from a few of them, however many leaves there are.

use sha2::Digest as _;

use crate::Sha256;

/// A complete subtree: the leaves from `index << level` on, as many as `1 << level`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node {
    /// Its height; a leaf has 0.
    pub level: u32,
    /// Its place among the subtrees of that height, from 0.
    pub index: u64,
}

impl Node {
    /// Its place in the order in which a growing tree completes its subtrees, from 0: a number of its own for each node.
    pub fn place(self) -> u64 {
        let last_leaf = ((self.index + 1) << self.level) - 1;
        2 * last_leaf - u64::from(last_leaf.count_ones()) + u64::from(self.level)
    }
}

/// The hash of a leaf.
pub fn leaf_hash(leaf: &[u8]) -> Sha256 {
    hash(&[&[0], leaf])
}

/// The hash of a subtree from those of its halves.
pub fn node_hash(left: Sha256, right: Sha256) -> Sha256 {
    hash(&[&[1], left.as_bytes(), right.as_bytes()])
}

fn hash(parts: &[&[u8]]) -> Sha256 {
    let mut hasher = sha2::Sha256::new();
    for part in parts {
        hasher.update(part);
    }
    Sha256::from_bytes(hasher.finalize().into())
}

/// The right edge of a tree: all that its root and its growth depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edge {
    size: u64,
    /// Hashes of the complete subtrees that the tree falls into, the largest first.
    peaks: Vec<Sha256>,
}

impl Edge {
    /// The edge of a tree of `size` leaves from the hashes of [`edge_nodes`]; `None` where their number is another.
    pub fn of(size: u64, peaks: Vec<Sha256>) -> Option<Self> {
        (peaks.len() as u64 == u64::from(size.count_ones())).then_some(Self { size, peaks })
    }

    /// How many leaves the tree has.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Appends a leaf by its hash; tells the subtrees that it completes, itself first.
    pub fn push(&mut self, leaf: Sha256) -> Vec<(Node, Sha256)> {
        let mut node = Node { level: 0, index: self.size };
        let mut top = leaf;
        let mut completed = vec![(node, top)];
        while node.index % 2 == 1 {
            let Some(left) = self.peaks.pop() else { break };
            top = node_hash(left, top);
            node = Node { level: node.level + 1, index: node.index / 2 };
            completed.push((node, top));
        }
        self.peaks.push(top);
        self.size += 1;
        completed
    }

    /// The root; of an empty tree the hash of nothing.
    pub fn root(&self) -> Sha256 {
        fold(self.peaks.iter().copied()).unwrap_or_else(|| Sha256::of(b""))
    }
}

/// The hash of neighbouring subtrees that get smaller towards the right.
fn fold(subtrees: impl DoubleEndedIterator<Item = Sha256>) -> Option<Sha256> {
    subtrees.rev().reduce(|right, left| node_hash(left, right))
}

/// The complete subtrees that a tree of `size` leaves falls into, the largest first.
pub fn edge_nodes(size: u64) -> Vec<Node> {
    nodes_of(0, size)
}

/// The complete subtrees that the leaves from `start` to before `end` fall into; they begin at a multiple of the largest.
fn nodes_of(start: u64, end: u64) -> Vec<Node> {
    let mut nodes = Vec::new();
    let mut at = start;
    while at < end {
        let level = (end - at).ilog2();
        nodes.push(Node { level, index: at >> level });
        at += 1 << level;
    }
    nodes
}

/// What a proof is made of: which nodes have to be known for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProofPlan(Vec<Vec<Node>>);

impl ProofPlan {
    /// That leaf `index` is in the tree of `size` leaves; `None` where it has no such leaf.
    pub fn inclusion(index: u64, size: u64) -> Option<Self> {
        if index >= size {
            return None;
        }
        let (mut start, mut end) = (0, size);
        let mut parts = Vec::new();
        while end - start > 1 {
            let middle = start + largest_half(end - start);
            if index < middle {
                parts.push(nodes_of(middle, end));
                end = middle;
            } else {
                parts.push(nodes_of(start, middle));
                start = middle;
            }
        }
        parts.reverse();
        Some(Self(parts))
    }

    /// That the tree of `from` leaves is the beginning of that of `to`; `None` unless `1 <= from <= to`.
    pub fn consistency(from: u64, to: u64) -> Option<Self> {
        if from == 0 || from > to {
            return None;
        }
        let (mut start, mut end) = (0, to);
        let mut parts = Vec::new();
        // Where the old tree is a whole subtree of the new one, the verifier knows its hash: it is the old root.
        while from != end {
            let middle = start + largest_half(end - start);
            if from <= middle {
                parts.push(nodes_of(middle, end));
                end = middle;
            } else {
                parts.push(nodes_of(start, middle));
                start = middle;
            }
        }
        if start > 0 {
            parts.push(nodes_of(start, end));
        }
        parts.reverse();
        Some(Self(parts))
    }

    /// The nodes whose hashes the proof needs.
    pub fn nodes(&self) -> impl Iterator<Item = Node> {
        self.0.iter().flatten().copied()
    }

    /// The proof from the hashes of its nodes; `None` where one is not known.
    pub fn finish(&self, hash_of: impl Fn(Node) -> Option<Sha256>) -> Option<Vec<Sha256>> {
        let part = |nodes: &Vec<Node>| {
            let hashes: Option<Vec<_>> = nodes.iter().map(|node| hash_of(*node)).collect();
            fold(hashes?.into_iter())
        };
        self.0.iter().map(part).collect()
    }
}

/// The largest power of two below `size`, which is at least 2.
fn largest_half(size: u64) -> u64 {
    1 << (size - 1).ilog2()
}

/// Whether `proof` shows that a leaf with hash `leaf` is at `index` of the tree of `size` leaves with `root`.
pub fn verify_inclusion(leaf: Sha256, index: u64, size: u64, proof: &[Sha256], root: Sha256) -> bool {
    if index >= size {
        return false;
    }
    let (mut at, mut last) = (index, size - 1);
    let mut hash = leaf;
    for sibling in proof {
        if last == 0 {
            return false;
        }
        if at % 2 == 1 || at == last {
            hash = node_hash(*sibling, hash);
            skip_missing(&mut at, &mut last);
        } else {
            hash = node_hash(hash, *sibling);
        }
        (at, last) = (at / 2, last / 2);
    }
    last == 0 && hash == root
}

/// Whether `proof` shows that the tree of `from` leaves with `from_root` is the beginning of that of `to` with `to_root`.
pub fn verify_consistency(from: u64, to: u64, from_root: Sha256, to_root: Sha256, proof: &[Sha256]) -> bool {
    if from == 0 || from > to {
        return false;
    }
    if from == to {
        return proof.is_empty() && from_root == to_root;
    }
    let (first, rest) = if from.is_power_of_two() {
        (from_root, proof)
    } else {
        let Some((first, rest)) = proof.split_first() else { return false };
        (*first, rest)
    };
    let (mut at, mut last) = (from - 1, to - 1);
    while at % 2 == 1 {
        (at, last) = (at / 2, last / 2);
    }
    let (mut old, mut new) = (first, first);
    for sibling in rest {
        if last == 0 {
            return false;
        }
        if at % 2 == 1 || at == last {
            old = node_hash(*sibling, old);
            new = node_hash(*sibling, new);
            skip_missing(&mut at, &mut last);
        } else {
            new = node_hash(new, *sibling);
        }
        (at, last) = (at / 2, last / 2);
    }
    last == 0 && old == from_root && new == to_root
}

/// Climbs over the levels on which the last node of the right edge has no sibling.
fn skip_missing(at: &mut u64, last: &mut u64) {
    while at.is_multiple_of(2) && *at != 0 {
        (*at, *last) = (*at / 2, *last / 2);
    }
}

#[cfg(test)]
mod tests;
