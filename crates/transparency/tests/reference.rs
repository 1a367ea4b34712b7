//! Compares this crate with vectors of other implementations of the same specifications: `tlog_tiles` 0.2 (Merkle tree, proofs,
//! checkpoints) and `signed_note` 0.2, ports of Go's `sumdb` packages, which share no code with this crate. Long ones are hashes.

#![expect(clippy::unwrap_used, reason = "a failed assertion is what a test is for")]

use std::collections::HashMap;

use model::Sha256;
use transparency::{
    Checkpoint, Frontier, ProofPlan, SignerKey, Subtree, hash_leaf, verify_consistency, verify_inclusion,
};

/// Trees of all sizes up to this one are compared.
const MAX_SIZE: u64 = 130;

/// The hash of the stored hashes of the largest tree, in the order of storage.
const STORED: &str = "357df2d0a613f51f867531b15f7b8b515f167d6c18a91e542271d165736a386b";
/// The hash of the roots of all trees, the empty one first.
const ROOTS: &str = "b71d6dfa71f627f16d57884ab54729f4db594a867e01b82a852361c4ab466287";
/// The hash of all proofs of a leaf in a tree, by size and leaf.
const INCLUSION: &str = "b0a84396d95134dbdd0509d96b09dcc5e1bd5f9a250d7da1c13938ae00e46b19";
/// The hash of all proofs from a tree to a larger one or itself, by the sizes of the latter and the former.
const CONSISTENCY: &str = "cb265b74f046d3fa848884dbeccd318b4253911dbcdc8e0ce03d0cd7f61e1ea0";
/// The hash of 60 private keys, each with its public key, one a line.
const KEYS: &str = "b4cee18ab6b2526d0f41793d5803193bd83fcb5864090fbab09fcec66f3471db";
/// Signed checkpoints: size and note.
const NOTES: [(u64, &str); 4] = [
    (
        0,
        "example.org/log\n0\nr1Vw9aGBC3r3jK9LxwpmDw31HkK6+R1N5bIyjeDoPfw=\n\n— example.org/log XizvAAck1wY1dYuB631TNAW57d8mUKXxVAX+Qclqbm36igeRCL9EM5+JtK3klBR5w6GxYJvFWSSjwqUN+qQ+JJQX/gU=\n",
    ),
    (
        1,
        "example.org/log\n1\nzSZiFU5tdrKyuS5wwMrDzPU0+bdOtbiYGexQkIPQClA=\n\n— example.org/log XizvAMdFn+88SXfaGpT2E9n1YIHq+1aym/y/gY4+G7beTC+hJuZFRSDgNTOzbd9qJMlxIYdFBLjts6Vq9LE7dMAYrQE=\n",
    ),
    (
        42,
        "example.org/log\n42\nprsTPLHjY4rXuKP/BTlmjp5W+bhQ7xsqgQ9UIuqmwyM=\n\n— example.org/log XizvAAPxuHvJ87NJy3WikVzGpr9t14mQ13i2hAWX+yp0YhGwa0M0q/nxajXLHVi9e7H4LNSdARXoHQG8L2PVa3ZkyQg=\n",
    ),
    (
        u64::MAX,
        "example.org/log\n18446744073709551615\nEqOuRFZhzl3ueNBlDTM2LewpxPgq8F5+V/tZW7us8Mo=\n\n— example.org/log XizvAJ+cHGBbBlCX1cyDjq0TKMnCU+sje5UisYz2Jh9WMRBgOfxOziOu18jRsY1af849QiudkpAA0JsXow0StZlIHwU=\n",
    ),
];

fn content(index: u64) -> Vec<u8> {
    format!("leaf {index}").into_bytes()
}

fn leaf(index: u64) -> Sha256 {
    hash_leaf(&content(index))
}

/// The tree of [`MAX_SIZE`] leaves: its nodes, and the root after each leaf.
fn tree() -> (HashMap<Subtree, Sha256>, Vec<Sha256>) {
    let (mut tree, mut nodes) = (Frontier::default(), HashMap::new());
    let mut roots = vec![tree.root()];
    for index in 0..MAX_SIZE {
        nodes.extend(tree.push(leaf(index)));
        roots.push(tree.root());
    }
    (nodes, roots)
}

fn bytes_of(hashes: &[Sha256]) -> Vec<u8> {
    hashes.iter().flat_map(|hash| *hash.as_bytes()).collect()
}

/// A proof as it is in a vector: the number of its hashes, and these.
fn framed(proof: &[Sha256]) -> Vec<u8> {
    [&(proof.len() as u64).to_be_bytes()[..], &bytes_of(proof)].concat()
}

fn assert_vector(vector: &str, bytes: &[u8]) {
    assert_eq!(Sha256::of(bytes).to_string(), vector);
}

fn altered(proof: &[Sha256]) -> Vec<Vec<Sha256>> {
    let mut altered = vec![[proof, &[Sha256::ZERO]].concat()];
    for at in 0..proof.len() {
        altered.push([&proof[..at], &proof[at + 1..]].concat());
        altered.push([&proof[..at], &[Sha256::from_bytes([1; 32])], &proof[at + 1..]].concat());
    }
    altered
}

#[test]
fn hashes_and_storage_indexes_are_those_of_the_reference() {
    let mut stored: Vec<_> = tree().0.into_iter().map(|(node, hash)| (node.storage_index(), hash)).collect();
    stored.sort_by_key(|(index, _)| *index);
    assert!((0..).zip(&stored).all(|(number, (index, _))| number == *index), "each index is used once");
    assert_vector(STORED, &bytes_of(&stored.into_iter().map(|(_, hash)| hash).collect::<Vec<_>>()));
}

#[test]
fn roots_are_those_of_the_reference() {
    assert_vector(ROOTS, &bytes_of(&tree().1));
}

#[test]
fn inclusion_proofs_are_those_of_the_reference_and_altered_ones_are_rejected() {
    let (nodes, roots) = tree();
    let mut all = Vec::new();
    for size in 1..=MAX_SIZE {
        let root = roots[usize::try_from(size).unwrap()];
        for index in 0..size {
            let plan = ProofPlan::inclusion(index, size).unwrap();
            let proof = plan.compute(|node| nodes.get(&node).copied()).unwrap();
            assert!(verify_inclusion(leaf(index), index, size, &proof, root), "leaf {index} of {size}");
            for altered in altered(&proof) {
                assert!(!verify_inclusion(leaf(index), index, size, &altered, root), "leaf {index} of {size}");
            }
            all.extend(framed(&proof));
        }
    }
    assert_vector(INCLUSION, &all);
}

#[test]
fn consistency_proofs_are_those_of_the_reference_and_altered_ones_are_rejected() {
    let (nodes, roots) = tree();
    let root = |size: u64| roots[usize::try_from(size).unwrap()];
    let mut all = Vec::new();
    for to in 1..=MAX_SIZE {
        for from in 1..=to {
            let plan = ProofPlan::consistency(from, to).unwrap();
            let proof = plan.compute(|node| nodes.get(&node).copied()).unwrap();
            assert!(verify_consistency(from, to, root(from), root(to), &proof), "{from} to {to}");
            for altered in altered(&proof) {
                assert!(!verify_consistency(from, to, root(from), root(to), &altered), "{from} to {to}");
            }
            all.extend(framed(&proof));
        }
    }
    assert_vector(CONSISTENCY, &all);
}

fn key() -> SignerKey {
    SignerKey::from_seed("example.org/log", &[7; 32]).unwrap()
}

#[test]
fn keys_are_those_that_the_reference_accepts() {
    let mut all = String::new();
    for name in ["example.org/log", "workspaced/6b1c20f5a1e09d34", "é"] {
        for seed in 0..20 {
            let key = SignerKey::from_seed(name, &[seed; 32]).unwrap();
            assert_eq!(key.verifier_key().name(), name);
            all += &[key.to_text(), key.verifier_key().to_text(), String::new()].join("\n");
        }
    }
    assert_vector(KEYS, all.as_bytes());
}

#[test]
fn notes_and_checkpoints_are_those_of_the_reference() {
    for (size, note) in NOTES {
        let root = Sha256::of(&size.to_be_bytes());
        assert_eq!(key().sign(size, root), note);
        let checkpoint = Checkpoint { origin: "example.org/log".to_owned(), size, root };
        assert!(note.starts_with(&format!("{}\n— ", checkpoint.to_text())));
        assert_eq!(key().verifier_key().verify(note).unwrap(), checkpoint);
    }
}

#[test]
fn notes_are_accepted_and_rejected_as_by_the_reference() {
    let (key, other) = (key(), SignerKey::from_seed("example.org/log", &[8; 32]).unwrap());
    let verifier = key.verifier_key();
    let note = key.sign(42, Sha256::of(b"root"));
    let (text, signature) = note.split_once("\n\n").unwrap();
    let foreign = other.sign(42, Sha256::of(b"root"));
    let foreign = foreign.lines().last().unwrap();
    let cases = [
        (note.clone(), true),
        (format!("{note}{foreign}\n"), true),
        (format!("{text}\n\n{foreign}\n{signature}"), true),
        (format!("{text}\n\n{foreign}\n"), false),
        (note.replacen("\n42\n", "\n43\n", 1), false),
        (note.replacen("example.org/log\n", "example.org/lok\n", 1), false),
        (format!("{text}\nextension\n\n{signature}"), false),
        (note.trim_end().to_owned(), false),
        (note.replacen("\n\n", "\n", 1), false),
        (note.replace('—', "-"), false),
        (note.replace("— ", "—"), false),
        (format!("{text}\n\n"), false),
        (format!("{note}\n"), false),
        (format!("{note}— \n"), false),
        (format!("{note}— someone.else AAAA\n"), false),
        (note.replace('\n', "\r\n"), false),
        (String::new(), false),
    ];
    for (note, expected) in cases {
        assert_eq!(verifier.verify(&note).is_ok(), expected, "{note}");
    }
}

#[test]
fn checkpoint_texts_are_parsed_as_by_the_reference() {
    let root = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=";
    let texts = [
        (format!("o\n7\n{root}\n"), true),
        (format!("o\n7\n{root}\nextension\nanother\n"), true),
        (format!("o\n0\n{root}\n"), true),
        (format!("o\n07\n{root}\n"), false),
        (format!("o\n+7\n{root}\n"), false),
        (format!("o\n-7\n{root}\n"), false),
        (format!("o\n\n{root}\n"), false),
        (format!("\n7\n{root}\n"), false),
        (format!("o\n18446744073709551616\n{root}\n"), false),
        (format!("o\n7\n{}\n", root.trim_end_matches('=')), false),
        ("o\n7\nAAAA\n".to_owned(), false),
        ("o\n7\n".to_owned(), false),
    ];
    for (text, expected) in texts {
        assert_eq!(Checkpoint::parse(&text).is_ok(), expected, "{text}");
    }
}
