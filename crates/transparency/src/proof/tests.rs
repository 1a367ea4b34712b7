use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::merkle::{Frontier, hash_leaf};

/// The leaves of the vectors that implementations of RFC 6962 share.
const LEAVES: [&[u8]; 8] = [
    b"",
    b"\x00",
    b"\x10",
    b"\x20\x21",
    b"\x30\x31",
    b"\x40\x41\x42\x43",
    b"\x50\x51\x52\x53\x54\x55\x56\x57",
    b"\x60\x61\x62\x63\x64\x65\x66\x67\x68\x69\x6a\x6b\x6c\x6d\x6e\x6f",
];

/// The roots of the first one, two … eight of them.
const ROOTS: [&str; 8] = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
];

/// The definition of the root, word by word.
fn naive_root(leaves: &[Sha256]) -> Sha256 {
    match leaves {
        [] => Sha256::of(b""),
        [only] => *only,
        _ => {
            let (left, right) = leaves.split_at(naive_half(leaves.len()));
            hash_children(naive_root(left), naive_root(right))
        }
    }
}

/// The largest power of two below `len`, counted up.
fn naive_half(len: usize) -> usize {
    let mut half = 1;
    while half * 2 < len {
        half *= 2;
    }
    half
}

fn naive_inclusion(index: usize, leaves: &[Sha256]) -> Vec<Sha256> {
    if leaves.len() == 1 {
        return vec![];
    }
    let half = naive_half(leaves.len());
    let (left, right) = leaves.split_at(half);
    let (mut path, other) =
        if index < half { (naive_inclusion(index, left), right) } else { (naive_inclusion(index - half, right), left) };
    path.push(naive_root(other));
    path
}

fn naive_consistency(from: usize, leaves: &[Sha256], known: bool) -> Vec<Sha256> {
    if from == leaves.len() {
        return if known { vec![] } else { vec![naive_root(leaves)] };
    }
    let half = naive_half(leaves.len());
    let (left, right) = leaves.split_at(half);
    let (mut path, other) = if from <= half {
        (naive_consistency(from, left, known), right)
    } else {
        (naive_consistency(from - half, right, false), left)
    };
    path.push(naive_root(other));
    path
}

fn leaves(count: usize) -> Vec<Sha256> {
    (0..count).map(|number| hash_leaf(number.to_string().as_bytes())).collect()
}

/// A tree that was grown leaf by leaf: its tree, and every node.
fn grow(leaves: &[Sha256]) -> (Frontier, HashMap<Subtree, Sha256>) {
    let (mut tree, mut nodes) = (Frontier::default(), HashMap::new());
    for leaf in leaves {
        nodes.extend(tree.push(*leaf));
    }
    (tree, nodes)
}

fn finish(plan: &ProofPlan, nodes: &HashMap<Subtree, Sha256>) -> Vec<Sha256> {
    plan.compute(|node| nodes.get(&node).copied()).unwrap()
}

#[test]
fn the_known_roots_come_out() {
    let mut tree = Frontier::default();
    assert_eq!(tree.root().to_string(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    for (leaf, root) in LEAVES.iter().zip(ROOTS) {
        tree.push(hash_leaf(leaf));
        assert_eq!(tree.root().to_string(), root, "{} leaves", tree.size());
    }
}

#[test]
fn known_proofs_come_out() {
    let hashes: Vec<_> = LEAVES.iter().map(|leaf| hash_leaf(leaf)).collect();
    let (_, nodes) = grow(&hashes);
    let hex_of =
        |plan: Option<ProofPlan>| finish(&plan.unwrap(), &nodes).iter().map(Sha256::to_string).collect::<Vec<_>>();
    assert_eq!(
        hex_of(ProofPlan::inclusion(5, 8)),
        [
            "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
            "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        ]
    );
    assert_eq!(
        hex_of(ProofPlan::consistency(6, 8)),
        [
            "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
            "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        ]
    );
    assert_eq!(hex_of(ProofPlan::consistency(8, 8)), [""; 0]);
}

#[test]
fn nodes_are_numbered_as_they_are_completed() {
    let mut tree = Frontier::default();
    let completed: Vec<_> = leaves(200).into_iter().flat_map(|leaf| tree.push(leaf)).map(|(node, _)| node).collect();
    for (index, node) in completed.iter().enumerate() {
        assert_eq!(node.storage_index(), index as u64, "{node:?}");
    }
}

#[test]
fn what_does_not_exist_has_no_proof() {
    for (index, size) in [(0, 0), (1, 1), (8, 7)] {
        assert_eq!(ProofPlan::inclusion(index, size), None);
        assert!(!verify_inclusion(Sha256::ZERO, index, size, &[], Sha256::ZERO));
    }
    for (from, to) in [(0, 0), (0, 5), (6, 5)] {
        assert_eq!(ProofPlan::consistency(from, to), None);
        assert!(!verify_consistency(from, to, Sha256::ZERO, Sha256::ZERO, &[]));
    }
    assert_eq!(Frontier::from_hashes(5, vec![Sha256::ZERO]), None);
    let plan = ProofPlan::inclusion(2, 5).unwrap();
    assert_eq!(plan.compute(|_| None), None);
}

proptest! {
    #[test]
    fn a_tree_is_what_its_definition_says(size in 0usize..300) {
        let leaves = leaves(size);
        let (tree, nodes) = grow(&leaves);
        prop_assert_eq!(tree.root(), naive_root(&leaves));
        let peaks = Frontier::nodes(size as u64).iter().map(|node| nodes[node]).collect();
        prop_assert_eq!(Frontier::from_hashes(size as u64, peaks), Some(tree));
    }

    #[test]
    fn every_leaf_is_proved_and_no_other(size in 1usize..200, pick in any::<prop::sample::Index>(), flip in 0usize..64) {
        let leaves = leaves(size);
        let (tree, nodes) = grow(&leaves);
        let index = pick.index(size);
        let proof = finish(&ProofPlan::inclusion(index as u64, size as u64).unwrap(), &nodes);
        prop_assert_eq!(&proof, &naive_inclusion(index, &leaves));
        let holds = |leaf, index, size: usize, proof: &[Sha256]| verify_inclusion(leaf, index, size as u64, proof, tree.root());
        prop_assert!(holds(leaves[index], index as u64, size, &proof));
        prop_assert!(!holds(Sha256::ZERO, index as u64, size, &proof));
        prop_assert!(!holds(leaves[index], index as u64 + 1, size, &proof));
        let mut longer = proof.clone();
        longer.push(Sha256::ZERO);
        prop_assert!(!holds(leaves[index], index as u64, size, &longer));
        if !proof.is_empty() {
            prop_assert!(!holds(leaves[index], index as u64, size, &proof[1..]));
            let mut bent = proof.clone();
            bent[flip % proof.len()] = Sha256::ZERO;
            prop_assert!(!holds(leaves[index], index as u64, size, &bent));
        }
    }

    #[test]
    fn growth_is_proved_and_a_fork_is_not(to in 1usize..200, pick in any::<prop::sample::Index>(), flip in 0usize..64) {
        let leaves = leaves(to);
        let from = pick.index(to) + 1;
        let (tree, nodes) = grow(&leaves);
        let (old, _) = grow(&leaves[..from]);
        let proof = finish(&ProofPlan::consistency(from as u64, to as u64).unwrap(), &nodes);
        prop_assert_eq!(&proof, &naive_consistency(from, &leaves, true));
        let holds = |old, proof: &[Sha256]| verify_consistency(from as u64, to as u64, old, tree.root(), proof);
        prop_assert!(holds(old.root(), &proof));
        prop_assert!(!holds(Sha256::ZERO, &proof));
        let mut longer = proof.clone();
        longer.push(Sha256::ZERO);
        prop_assert!(!holds(old.root(), &longer));
        if !proof.is_empty() {
            prop_assert!(!holds(old.root(), &proof[..proof.len() - 1]));
            let mut bent = proof.clone();
            bent[flip % proof.len()] = Sha256::ZERO;
            prop_assert!(!holds(old.root(), &bent));
        }
        let mut forked = leaves[..from].to_vec();
        forked[flip % from] = Sha256::ZERO;
        prop_assert!(!holds(grow(&forked).0.root(), &proof));
    }
}
