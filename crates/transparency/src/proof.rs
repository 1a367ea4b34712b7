//! Inclusion and consistency proofs of RFC 6962, sections 2.1.1 and 2.1.2.

use model::Sha256;

use crate::merkle::{Subtree, covering_nodes, hash_children, join};

/// The nodes that a proof is computed from, found without access to the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProofPlan(Vec<Vec<Subtree>>);

impl ProofPlan {
    /// Plans the proof that the tree of `size` leaves contains leaf `index`. Returns `None` if it has no such leaf.
    pub fn inclusion(index: u64, size: u64) -> Option<Self> {
        if index >= size {
            return None;
        }
        let (mut start, mut end) = (0, size);
        let mut hashes = Vec::new();
        while end - start > 1 {
            let middle = start + left_size(end - start);
            if index < middle {
                hashes.push(covering_nodes(middle, end));
                end = middle;
            } else {
                hashes.push(covering_nodes(start, middle));
                start = middle;
            }
        }
        hashes.reverse();
        Some(Self(hashes))
    }

    /// Plans the proof that the tree of `from` leaves is a prefix of the tree of `to` leaves. Returns `None` unless
    /// `1 <= from <= to`.
    pub fn consistency(from: u64, to: u64) -> Option<Self> {
        if from == 0 || from > to {
            return None;
        }
        let (mut start, mut end) = (0, to);
        let mut hashes = Vec::new();
        while from != end {
            let middle = start + left_size(end - start);
            if from <= middle {
                hashes.push(covering_nodes(middle, end));
                end = middle;
            } else {
                hashes.push(covering_nodes(start, middle));
                start = middle;
            }
        }
        // If the old tree is a complete subtree of the new one, its hash is the old root, which the verifier knows.
        if start > 0 {
            hashes.push(covering_nodes(start, end));
        }
        hashes.reverse();
        Some(Self(hashes))
    }

    /// Returns the nodes whose hashes the proof needs.
    pub fn nodes(&self) -> impl Iterator<Item = Subtree> {
        self.0.iter().flatten().copied()
    }

    /// Computes the proof from the hashes of its nodes. Returns `None` if one of them is unknown.
    pub fn compute(&self, hash_of: impl Fn(Subtree) -> Option<Sha256>) -> Option<Vec<Sha256>> {
        let subtree = |nodes: &Vec<Subtree>| {
            let hashes: Option<Vec<_>> = nodes.iter().map(|node| hash_of(*node)).collect();
            join(hashes?.into_iter())
        };
        self.0.iter().map(subtree).collect()
    }
}

/// Returns the number of leaves in the left half of a tree: the largest power of two below `size`, which is at least 2.
fn left_size(size: u64) -> u64 {
    1 << (size - 1).ilog2()
}

/// Returns whether `proof` proves that leaf `index` of the tree of `size` leaves and this `root` has the hash `leaf`.
pub fn verify_inclusion(leaf: Sha256, index: u64, size: u64, proof: &[Sha256], root: Sha256) -> bool {
    if index >= size {
        return false;
    }
    let mut path = NodePath { node: index, last: size - 1 };
    let mut hash = leaf;
    for sibling in proof {
        match path.ascend() {
            Some(Sibling::Left) => hash = hash_children(*sibling, hash),
            Some(Sibling::Right) => hash = hash_children(hash, *sibling),
            None => return false,
        }
    }
    path.last == 0 && hash == root
}

/// Returns whether `proof` proves that the tree of `from` leaves and `from_root` is a prefix of that of `to` leaves and
/// `to_root`.
pub fn verify_consistency(from: u64, to: u64, from_root: Sha256, to_root: Sha256, proof: &[Sha256]) -> bool {
    if from == 0 || from > to {
        return false;
    }
    if from == to {
        return proof.is_empty() && from_root == to_root;
    }
    let (first, siblings) = if from.is_power_of_two() {
        (from_root, proof)
    } else {
        let Some((first, siblings)) = proof.split_first() else { return false };
        (*first, siblings)
    };
    // The path begins at the largest complete subtree that ends with the old tree.
    let height = from.trailing_zeros();
    let mut path = NodePath { node: (from - 1) >> height, last: (to - 1) >> height };
    let (mut old, mut new) = (first, first);
    for sibling in siblings {
        match path.ascend() {
            Some(Sibling::Left) => {
                old = hash_children(*sibling, old);
                new = hash_children(*sibling, new);
            }
            Some(Sibling::Right) => new = hash_children(new, *sibling),
            None => return false,
        }
    }
    path.last == 0 && old == from_root && new == to_root
}

/// The path from a node to the root: its index, and that of the last node, on the level that was reached.
struct NodePath {
    node: u64,
    last: u64,
}

/// The side of a node on which its sibling is.
enum Sibling {
    Left,
    Right,
}

impl NodePath {
    /// Ascends to the next parent that has two children. Returns `None` if the root was reached before.
    fn ascend(&mut self) -> Option<Sibling> {
        if self.last == 0 {
            return None;
        }
        let sibling = if self.node % 2 == 1 || self.node == self.last { Sibling::Left } else { Sibling::Right };
        // The last node of a level has no right sibling: it is its own parent until it is a right child.
        while matches!(sibling, Sibling::Left) && self.node.is_multiple_of(2) && self.node != 0 {
            (self.node, self.last) = (self.node / 2, self.last / 2);
        }
        (self.node, self.last) = (self.node / 2, self.last / 2);
        Some(sibling)
    }
}

#[cfg(test)]
mod tests;
