//! Verifies the committed test vectors through the public interface, as an outside verifier does.

#![expect(clippy::unwrap_used, reason = "a failed assertion is what a test is for")]

use model::{CheckpointLeaf, RunId, Sha256};
use serde_json::{Value, json};
use transparency::{
    Checkpoint, ConsistencyProof, Frontier, InclusionProof, KeyHistory, ProofError, SignerKey, VerifierKey,
    hash_checkpoint_leaf, verify_inclusion,
};

fn vectors() -> Value {
    serde_json::from_str(include_str!("../../../openapi/checkpoint-vectors.json")).unwrap()
}

fn key(vectors: &Value) -> VerifierKey {
    VerifierKey::parse(vectors["verifierKey"].as_str().unwrap()).unwrap()
}

fn parse<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

#[test]
fn leaves_roots_and_notes_are_those_of_the_vectors() {
    let vectors = vectors();
    let signer = SignerKey::parse(vectors["privateKey"].as_str().unwrap()).unwrap();
    assert_eq!(signer.verifier_key(), key(&vectors));
    let roots: Vec<Sha256> = parse(&vectors["roots"]);
    let mut tree = Frontier::default();
    assert_eq!(tree.root(), roots[0]);
    for (index, vector) in vectors["leaves"].as_array().unwrap().iter().enumerate() {
        let leaf: CheckpointLeaf = parse(&vector["leaf"]);
        assert_eq!(leaf.to_canonical(), vector["text"]);
        assert_eq!(hash_checkpoint_leaf(&leaf), parse(&vector["hash"]));
        tree.push(hash_checkpoint_leaf(&leaf));
        assert_eq!(tree.root(), roots[index + 1]);
    }
    for vector in vectors["checkpoints"].as_array().unwrap() {
        let size: u64 = parse(&vector["size"]);
        let root = roots[usize::try_from(size).unwrap()];
        assert_eq!(signer.sign(size, root), vector["note"]);
        let checkpoint = Checkpoint { origin: "example.org/log".into(), size, root };
        assert_eq!(key(&vectors).verify(vector["note"].as_str().unwrap()), Ok(checkpoint));
    }
}

#[test]
fn notes_are_accepted_and_refused_as_the_vectors_say() {
    let vectors = vectors();
    for (list, expected) in [("accepted", true), ("refused", false)] {
        for vector in vectors[list].as_array().unwrap() {
            let verified = key(&vectors).verify(vector["note"].as_str().unwrap());
            assert_eq!(verified.is_ok(), expected, "{}: {verified:?}", vector["why"]);
        }
    }
}

/// Splits the answer of `GET /v1/checkpoint/key/changes`: each note is followed by an empty line.
fn statements(text: &Value) -> Vec<String> {
    let parts: Vec<_> = text.as_str().unwrap().split_terminator("\n\n").collect();
    parts.chunks(2).map(|note| format!("{}\n", note.join("\n\n"))).collect()
}

#[test]
fn changes_of_the_key_are_followed_and_refused_as_the_vectors_say() {
    let vectors = vectors();
    let changes = &vectors["keyChanges"];
    let follow = |trusted: &Value, notes: &Value| {
        let notes = statements(notes);
        KeyHistory::follow(VerifierKey::parse(trusted.as_str().unwrap()).unwrap(), notes.iter().map(String::as_str))
    };
    let keys = changes["verifierKeys"].as_array().unwrap();
    for trusted in keys {
        let history = follow(trusted, &changes["statements"]).unwrap();
        assert_eq!(Some(&json!(history.newest().to_text())), keys.last());
        for (list, expected) in [("accepted", true), ("refused", false)] {
            for vector in changes[list].as_array().unwrap() {
                let verified = history.verify(vector["note"].as_str().unwrap());
                assert_eq!(verified.is_ok(), expected, "{}: {verified:?}", vector["why"]);
            }
        }
    }
    for vector in changes["refusedStatements"].as_array().unwrap() {
        let followed = follow(&vector["trusted"], &vector["statements"]);
        assert!(followed.is_err(), "{}: {followed:?}", vector["why"]);
    }
}

#[test]
fn proofs_of_the_vectors_are_verified() {
    let vectors = vectors();
    let roots: Vec<Sha256> = parse(&vectors["roots"]);
    let checkpoint = |size: u64| {
        let root = roots[usize::try_from(size).unwrap()];
        Checkpoint { origin: "example.org/log".into(), size, root }
    };
    for vector in vectors["inclusion"].as_array().unwrap() {
        let (index, size): (u64, u64) = (parse(&vector["index"]), parse(&vector["size"]));
        let leaf = parse(&vectors["leaves"][usize::try_from(index).unwrap()]["hash"]);
        let proof: Vec<Sha256> = parse(&vector["proof"]);
        assert!(verify_inclusion(leaf, index, size, &proof, checkpoint(size).root), "{vector}");
    }
    for vector in vectors["consistency"].as_array().unwrap() {
        let proof: ConsistencyProof = parse(vector);
        let (old, new) = (checkpoint(proof.from), checkpoint(proof.to));
        assert_eq!(proof.verify(&old, &new), Ok(()), "{vector}");
        let forked = Checkpoint { root: Sha256::ZERO, ..old.clone() };
        assert_eq!(proof.verify(&forked, &new), Err(ProofError::Root), "{vector}");
        let other_log = Checkpoint { origin: "example.org/other".into(), ..old };
        assert!(matches!(proof.verify(&other_log, &new), Err(ProofError::Unrelated(_))), "{vector}");
    }
}

#[test]
fn a_record_is_verified_and_an_altered_proof_of_it_is_not() {
    let vectors = vectors();
    let (key, good) = (key(&vectors), &vectors["recordProof"]);
    let verify = |proof: &Value| -> Result<Checkpoint, ProofError> {
        parse::<InclusionProof>(proof).verify(&RunId::parse("issue-4711").unwrap(), 1, &key)
    };
    assert_eq!(verify(good).unwrap().size, 7);
    let zeros = json!("0".repeat(64));
    let alterations = [
        ("/seq", json!(2)),
        ("/recordHash", zeros.clone()),
        ("/records", json!([])),
        ("/records/0/reason", json!("another")),
        ("/records/0/seq", json!(2)),
        ("/records/0/unknown", json!(true)),
        ("/records/1/hash", zeros.clone()),
        ("/records/1/prevHash", zeros.clone()),
        ("/records/1/runId", json!("another")),
        ("/nextSeq", json!(3)),
        ("/leaf/headSeq", json!(3)),
        ("/leaf/headHash", zeros.clone()),
        ("/leaf/runId", json!("another")),
        ("/leafIndex", json!(3)),
        ("/treeSize", json!(8)),
        ("/proof/0", zeros),
        ("/checkpoint", vectors["checkpoints"][1]["note"].clone()),
        ("/checkpoint", vectors["refused"][3]["note"].clone()),
    ];
    for (pointer, value) in alterations {
        let mut altered = good.clone();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        match altered.pointer_mut(parent).unwrap() {
            Value::Array(items) => items[name.parse::<usize>().unwrap()] = value,
            parent => parent[name] = value,
        }
        assert!(verify(&altered).is_err(), "{pointer}: {altered:#}");
    }
    let mut shortened = good.clone();
    shortened["records"].as_array_mut().unwrap().pop();
    assert!(verify(&shortened).is_err());
}
