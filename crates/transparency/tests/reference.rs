//! Compares this crate with other implementations of the same specifications: `tlog_tiles` (Merkle tree, proofs,
//! checkpoints) and `signed_note`. They are ports of Go's `sumdb` packages and share no code with this crate.

#![expect(clippy::unwrap_used, reason = "a failed assertion is what a test is for")]

use std::collections::HashMap;

use model::Sha256;
use signed_note::{Note, StandardSigner, StandardVerifier, Verifier as _, VerifierList};
use tlog_tiles::{
    Hash, HashReader, check_record, check_tree, prove_record, prove_tree, record_hash, stored_hash_index,
    stored_hashes, tree_hash,
};
use transparency::{
    Checkpoint, Frontier, ProofPlan, SignerKey, Subtree, VerifierKey, hash_children, hash_leaf, verify_consistency,
    verify_inclusion,
};

/// Trees of all sizes up to this one are compared.
const MAX_SIZE: u64 = 130;

/// The stored hashes of the other implementation, by storage index.
struct Stored(Vec<Hash>);

impl HashReader for Stored {
    fn read_hashes(&self, indexes: &[u64]) -> Result<Vec<Hash>, tlog_tiles::Error> {
        Ok(indexes.iter().map(|index| self.0[usize::try_from(*index).unwrap()]).collect())
    }
}

fn content(index: u64) -> Vec<u8> {
    format!("leaf {index}").into_bytes()
}

fn ours(hashes: &[Hash]) -> Vec<Sha256> {
    hashes.iter().map(|hash| Sha256::from_bytes(hash.0)).collect()
}

fn theirs(hashes: &[Sha256]) -> Vec<Hash> {
    hashes.iter().map(|hash| Hash(*hash.as_bytes())).collect()
}

/// Both implementations' trees of [`MAX_SIZE`] leaves: stored hashes, and our root after each leaf.
fn trees() -> (Stored, HashMap<Subtree, Sha256>, Vec<Sha256>) {
    let (mut stored, mut tree, mut nodes) = (Stored(Vec::new()), Frontier::default(), HashMap::new());
    let mut roots = vec![tree.root()];
    for index in 0..MAX_SIZE {
        let added = stored_hashes(index, &content(index), &stored).unwrap();
        stored.0.extend(added);
        nodes.extend(tree.push(hash_leaf(&content(index))));
        roots.push(tree.root());
    }
    (stored, nodes, roots)
}

#[test]
fn hashes_and_storage_indexes_are_equal() {
    assert_eq!(Hash(*hash_leaf(b"x").as_bytes()), record_hash(b"x"));
    let (left, right) = (Sha256::of(b"left"), Sha256::of(b"right"));
    let both = theirs(&[left, right]);
    assert_eq!(Hash(*hash_children(left, right).as_bytes()), tlog_tiles::node_hash(both[0], both[1]));
    let (stored, nodes, _) = trees();
    assert_eq!(stored.0.len(), nodes.len());
    for (node, hash) in nodes {
        let index = node.storage_index();
        assert_eq!(index, stored_hash_index(u8::try_from(node.level).unwrap(), node.index), "{node:?}");
        assert_eq!(Hash(*hash.as_bytes()), stored.0[usize::try_from(index).unwrap()], "{node:?}");
    }
}

#[test]
fn roots_are_equal() {
    let (stored, _, roots) = trees();
    for (size, root) in (0..).zip(roots) {
        assert_eq!(Sha256::from_bytes(tree_hash(size, &stored).unwrap().0), root, "{size} leaves");
    }
}

#[test]
fn inclusion_proofs_are_equal_and_each_side_accepts_the_other_s() {
    let (stored, nodes, roots) = trees();
    for size in 1..=MAX_SIZE {
        let root = roots[usize::try_from(size).unwrap()];
        for index in 0..size {
            let reference = prove_record(size, index, &stored).unwrap();
            let plan = ProofPlan::inclusion(index, size).unwrap();
            let proof = plan.compute(|node| nodes.get(&node).copied()).unwrap();
            assert_eq!(proof, ours(&reference), "leaf {index} of {size}");
            let leaf = hash_leaf(&content(index));
            assert!(verify_inclusion(leaf, index, size, &ours(&reference), root), "leaf {index} of {size}");
            let their_leaf = record_hash(&content(index));
            check_record(&theirs(&proof), size, Hash(*root.as_bytes()), index, their_leaf).unwrap();
        }
    }
}

#[test]
fn consistency_proofs_are_equal_and_each_side_accepts_the_other_s() {
    let (stored, nodes, roots) = trees();
    let root = |size: u64| roots[usize::try_from(size).unwrap()];
    for to in 1..=MAX_SIZE {
        for from in 1..=to {
            let reference = prove_tree(to, from, &stored).unwrap();
            let plan = ProofPlan::consistency(from, to).unwrap();
            let proof = plan.compute(|node| nodes.get(&node).copied()).unwrap();
            assert_eq!(proof, ours(&reference), "{from} to {to}");
            assert!(verify_consistency(from, to, root(from), root(to), &ours(&reference)), "{from} to {to}");
            let (old, new) = (Hash(*root(from).as_bytes()), Hash(*root(to).as_bytes()));
            check_tree(&theirs(&proof), to, new, from, old).unwrap();
        }
    }
}

#[test]
fn altered_proofs_are_rejected_by_both() {
    let (stored, _, roots) = trees();
    let root = |size: u64| roots[usize::try_from(size).unwrap()];
    let alterations = |proof: &[Hash]| {
        let mut altered = vec![[proof, &[Hash([0; 32])]].concat()];
        for at in 0..proof.len() {
            altered.push([&proof[..at], &proof[at + 1..]].concat());
            altered.push([&proof[..at], &[Hash([1; 32])], &proof[at + 1..]].concat());
        }
        altered
    };
    for size in [1, 2, 3, 7, 8, 9, 64, 100, MAX_SIZE] {
        let their_root = Hash(*root(size).as_bytes());
        for number in [1, size.div_ceil(2), size] {
            for proof in alterations(&prove_record(size, number - 1, &stored).unwrap()) {
                let leaf = hash_leaf(&content(number - 1));
                assert!(!verify_inclusion(leaf, number - 1, size, &ours(&proof), root(size)), "{number} of {size}");
                let leaf = record_hash(&content(number - 1));
                assert!(check_record(&proof, size, their_root, number - 1, leaf).is_err(), "{number} of {size}");
            }
            for proof in alterations(&prove_tree(size, number, &stored).unwrap()) {
                assert!(
                    !verify_consistency(number, size, root(number), root(size), &ours(&proof)),
                    "{number} to {size}"
                );
                let old = Hash(*root(number).as_bytes());
                assert!(check_tree(&proof, size, their_root, number, old).is_err(), "{number} to {size}");
            }
        }
    }
}

fn key() -> SignerKey {
    SignerKey::from_seed("example.org/log", &[7; 32]).unwrap()
}

/// Whether the other implementation accepts a note by `key`.
fn is_accepted(key: &VerifierKey, note: &str) -> bool {
    let verifier = StandardVerifier::new(&key.to_text()).unwrap();
    let note = Note::from_bytes(note.as_bytes());
    note.is_ok_and(|note| note.verify(&VerifierList::new(vec![Box::new(verifier)])).is_ok())
}

#[test]
fn keys_are_accepted_by_the_other_implementation() {
    for name in ["example.org/log", "workspaced/6b1c20f5a1e09d34", "é"] {
        for seed in 0..20 {
            let key = SignerKey::from_seed(name, &[seed; 32]).unwrap();
            let verifier = StandardVerifier::new(&key.verifier_key().to_text()).unwrap();
            assert_eq!(verifier.name(), name);
            assert!(StandardSigner::new(&key.to_text()).is_ok());
        }
    }
}

#[test]
fn notes_and_checkpoints_are_written_alike() {
    for size in [0, 1, 42, u64::MAX] {
        let root = Sha256::of(&size.to_be_bytes());
        let checkpoint = tlog_tiles::Checkpoint::new("example.org/log", size, Hash(*root.as_bytes()), "").unwrap();
        let ours = Checkpoint { origin: "example.org/log".to_owned(), size, root };
        assert_eq!(ours.to_text().into_bytes(), checkpoint.to_bytes());
        let mut note = Note::new(&checkpoint.to_bytes(), &[]).unwrap();
        note.add_sigs(&[&StandardSigner::new(&key().to_text()).unwrap()]).unwrap();
        let signed = key().sign(size, root);
        assert_eq!(signed.as_bytes(), note.to_bytes());
        assert!(is_accepted(&key().verifier_key(), &signed));
        assert_eq!(key().verifier_key().verify(&signed).unwrap(), ours);
    }
}

#[test]
fn notes_are_accepted_and_rejected_alike() {
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
        assert_eq!(is_accepted(&verifier, &note), expected, "{note}");
    }
}

#[test]
fn checkpoint_texts_are_parsed_alike() {
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
        // The other parser reads on to the end of the note's text, which is an empty line.
        let parsed = tlog_tiles::Checkpoint::from_reader(&mut format!("{text}\n").as_bytes(), false);
        assert_eq!(parsed.is_ok(), expected, "{text}");
    }
}
