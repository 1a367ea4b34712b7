//! Test vectors of the checkpoint format. The code generates the committed vectors, and an independent verifier in Python
//! accepts them and the checkpoints of a server.

use std::path::{Path, PathBuf};
use std::process::Output;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD as BASE64;
use model::{CheckpointLeaf, Draft, FileKind, LogicalPath, Record, RecordFile};
use model::{RunId, Sha256, ToolCallId};
use rstest::rstest;
use serde_json::{Value, json};
use transparency::{Frontier, ProofPlan, SignerKey, hash_checkpoint_leaf};

use crate::audit::checkpoints::signing_at_shutdown;
use crate::harness::{Backend, exhaustive, third_party};

const LEAVES: u64 = 7;

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn record(seq: u64, head: Sha256) -> Record {
    let (run_id, call_id) = (RunId::parse("issue-4711").unwrap(), ToolCallId::parse("tc_1").unwrap());
    let timestamp = "2026-01-01T00:00:00.000000Z".into();
    let mut draft = Draft::new(run_id, "run-token:tok_1".into(), "write_file", call_id, timestamp);
    draft.artifact_uris = vec!["artifact://issue-4711/art_1".into()];
    draft.diff_sha256 = Some(Sha256::of(b"diff"));
    draft.duration_micros = 1234;
    let file = RecordFile::unwritten(LogicalPath::parse("src/ü.rs").unwrap(), FileKind::TextSource);
    draft.files = vec![RecordFile { new_sha256: Some(Sha256::of(b"new")), ..file }];
    draft.mutates = true;
    draft.paths_written = vec![LogicalPath::parse("src/ü.rs").unwrap()];
    draft.reason = Some("quotes \" and \\, a tab \t, a line\nfeed, \u{1} and \u{7f}, 漢字 and 🦀".into());
    if seq == 3 {
        // Numbers that many languages print in another way than they were written.
        let data = json!({"half": 0.5, "small": 1e-7, "large": 1e300, "whole": 2.0, "negative": -3, "most": u64::MAX, "none": null});
        draft.input = Some(serde_json::Map::from_iter([("data".to_owned(), data)]));
    }
    draft.link(seq - 1, head).0
}

fn leaf(index: u64, last: &Record) -> CheckpointLeaf {
    if index == 2 {
        return CheckpointLeaf { head_hash: last.hash.unwrap(), head_seq: last.seq, run_id: last.run_id.clone() };
    }
    let head_hash = Sha256::of(format!("head {index}").as_bytes());
    CheckpointLeaf { head_hash, head_seq: 10 * index + 1, run_id: RunId::parse(&format!("run_{index}")).unwrap() }
}

/// Returns notes that a verifier must refuse, with the reason.
fn refused(key: &SignerKey, note: &str, roots: &[Sha256]) -> Value {
    let other = SignerKey::from_seed("example.org/log", &[2; 32]).unwrap();
    let all = usize::try_from(LEAVES).unwrap();
    json!([
        {"why": "another tree size", "note": note.replacen("\n7\n", "\n8\n", 1)},
        {"why": "another origin", "note": note.replacen("example.org/log\n", "example.org/lok\n", 1)},
        {"why": "an additional line in the text", "note": note.replacen("\n\n", "\nmore\n\n", 1)},
        {"why": "signed by another key with this name", "note": other.sign(LEAVES, roots[all])},
        {"why": "signed for another origin", "note": key.with_name("example.org/other").unwrap().sign(LEAVES, roots[all])},
        {"why": "no signature", "note": format!("{}\n\n", note.split("\n\n").next().unwrap())},
        {"why": "no line feed at the end", "note": note.trim_end()},
        {"why": "a second signature by this key that is invalid", "note": format!("{note}{}\n", with_invalid_signature(note))},
        {"why": "signed by this key, but with another origin in the text", "note": of_another_origin(key, note, roots[all])},
    ])
}

/// Returns notes that a verifier must accept.
fn accepted(note: &str) -> Value {
    let foreign = format!("\u{2014} witness.example {}", "A".repeat(136));
    let (text, signature) = note.split_once("\n\n").unwrap();
    json!([
        {"why": "a signature by another key after ours", "note": format!("{note}{foreign}\n")},
        {"why": "a signature by another key before ours", "note": format!("{text}\n\n{foreign}\n{signature}")},
    ])
}

/// The tree sizes from which on the next key signs.
const CHANGED_AT: [u64; 2] = [3, 5];

/// Returns statements about changes of the key, checkpoints that a verifier with them has to accept and to refuse, and statements
/// that it has to refuse.
fn key_changes(first: &SignerKey, roots: &[Sha256]) -> Value {
    let seeded = |seed| SignerKey::from_seed("example.org/log", &[seed; 32]).unwrap();
    let (keys, stranger) = ([first.clone(), seeded(3), seeded(4)], seeded(5));
    let root = |size: u64| roots[usize::try_from(size).unwrap()];
    let change = |old: &SignerKey, new: &SignerKey, size| old.sign_change(new, size, root(size)).unwrap();
    let [one, two] = [0, 1].map(|index| change(&keys[index], &keys[index + 1], CHANGED_AT[index]));
    let public = |key: &SignerKey| key.verifier_key().to_text();
    let signed = |key: &SignerKey, size| json!({"size": size, "note": key.sign(size, root(size))});
    let with = |why: &str, mut vector: Value| {
        vector["why"] = json!(why);
        vector
    };
    let list = |notes: &[&str]| notes.iter().flat_map(|note| [*note, "\n"]).collect::<String>();
    let refused = |why: &str, trusted: &SignerKey, notes: &[&str]| json!({"why": why, "trusted": public(trusted), "statements": list(notes)});
    let forged = one.replace(&public(&keys[1]), &public(&stranger));
    let later = one.replacen("\n3\n", "\n4\n", 1);
    let without = |note: &str, line: usize| {
        let lines: Vec<_> = note.lines().enumerate().filter(|(at, _)| *at != line).map(|(_, text)| text).collect();
        lines.join("\n") + "\n"
    };
    json!({
        "privateKeys": keys.each_ref().map(SignerKey::to_text),
        "verifierKeys": keys.each_ref().map(public),
        "sizes": CHANGED_AT,
        "statements": list(&[&one, &two]),
        "accepted": [
            with("the first key before its replacement", signed(&keys[0], 1)),
            with("the first and the second key at the size of the replacement", json!({"size": 3, "note": one})),
            with("the second key at the size of the replacement", signed(&keys[1], 3)),
            with("the first and the second key after it", json!({"size": 4, "note": change(&keys[0], &keys[1], 4)})),
            with("the second key after it", signed(&keys[1], 4)),
            with("the third key after the second replacement", signed(&keys[2], LEAVES)),
        ],
        "refused": [
            with("the first key at the size of its replacement", signed(&keys[0], 3)),
            with("the first key after its replacement", signed(&keys[0], 4)),
            with("the second key after its replacement", signed(&keys[1], LEAVES)),
            with("the second key before it was in force", signed(&keys[1], 2)),
            with("the third key before it was in force", signed(&keys[2], 4)),
            with("a key that no statement names", signed(&stranger, LEAVES)),
            with("another root than the statement of the same size", json!({"size": 3, "note": keys[1].sign(3, root(4))})),
        ],
        "refusedStatements": [
            refused("no statement names the trusted key", &stranger, &[&one, &two]),
            refused("the first statement is missing", &keys[0], &[&two]),
            refused("the statements are in another order", &keys[0], &[&two, &one]),
            refused("a statement is repeated", &keys[0], &[&one, &one, &two]),
            refused("a new key that the old key did not name", &keys[0], &[&forged]),
            refused("another tree size than the signed one", &keys[0], &[&later, &two]),
            refused("without the signature of the old key", &keys[0], &[&without(&one, 6)]),
            refused("without the signature of the new key", &keys[0], &[&without(&one, 7)]),
            refused("without the new key", &keys[0], &[&without(&one, 4)]),
            refused("a statement between two strangers", &keys[0], &[&change(&stranger, &seeded(6), 3)]),
            refused("two successors of one key", &keys[0], &[&one, &change(&keys[0], &stranger, 5)]),
            refused("a replaced key that is in force again", &keys[0], &[&one, &change(&keys[1], &keys[0], 5)]),
            refused("a smaller tree than that of the statement before", &keys[0], &[&one, &change(&keys[1], &keys[2], 2)]),
            refused("the tree of the statement before", &keys[0], &[&one, &change(&keys[1], &keys[2], 3)]),
            refused("a checkpoint among the statements", &keys[0], &[&one, &keys[1].sign(4, root(4))]),
        ],
    })
}

/// Returns the signature line of a note, changed so that the signature is invalid.
fn with_invalid_signature(note: &str) -> String {
    let line = note.trim_end().lines().last().unwrap();
    let (front, mark) = line.split_at(line.len() - 10);
    format!("{front}{}{}", if mark.starts_with('A') { "B" } else { "A" }, &mark[1..])
}

/// Returns a note with another origin in its text and the key ID of `key`.
fn of_another_origin(key: &SignerKey, note: &str, root: Sha256) -> String {
    let other = key.with_name("example.org/other").unwrap().sign(LEAVES, root);
    let (text, signature) = other.split_once("\n\n").unwrap();
    let encoded = |note: &str| BASE64.decode(note.trim_end().rsplit(' ').next().unwrap()).unwrap();
    let raw = [&encoded(note)[..4], &encoded(signature)[4..]].concat();
    format!("{text}\n\n\u{2014} example.org/log {}\n", BASE64.encode(raw))
}

fn vectors() -> Value {
    let key = SignerKey::from_seed("example.org/log", &[1; 32]).unwrap();
    let first = record(1, Sha256::ZERO);
    let second = record(2, first.hash.unwrap());
    let leaves: Vec<_> = (0..LEAVES).map(|index| leaf(index, &second)).collect();
    let (mut tree, mut nodes) = (Frontier::default(), std::collections::HashMap::new());
    let mut roots = vec![tree.root()];
    for leaf in &leaves {
        nodes.extend(tree.push(hash_checkpoint_leaf(leaf)));
        roots.push(tree.root());
    }
    let proof = |plan: Option<ProofPlan>| plan.unwrap().compute(|node| nodes.get(&node).copied()).unwrap();
    let inclusion =
        |index, size| json!({"index": index, "size": size, "proof": proof(ProofPlan::inclusion(index, size))});
    let consistency = |from, to| json!({"from": from, "to": to, "proof": proof(ProofPlan::consistency(from, to))});
    let signed = |size: u64| key.sign(size, roots[usize::try_from(size).unwrap()]);
    let pairs = || (1..=LEAVES).flat_map(|to| (1..=to).map(move |from| (from, to)));
    json!({
        "about": "Test vectors of openapi/checkpoints.md, generated by the code.",
        "privateKey": key.to_text(),
        "verifierKey": key.verifier_key().to_text(),
        "records": [first, second, record(3, second.hash.unwrap())],
        "leaves": leaves.iter().map(|leaf| json!({"leaf": leaf, "text": leaf.to_canonical(), "hash": hash_checkpoint_leaf(leaf)})).collect::<Vec<_>>(),
        "roots": roots,
        "checkpoints": ([1, 3, LEAVES].map(|size| json!({"size": size, "note": signed(size)}))),
        "inclusion": pairs().map(|(index, size)| inclusion(index - 1, size)).collect::<Vec<_>>(),
        "consistency": pairs().map(|(from, to)| consistency(from, to)).collect::<Vec<_>>(),
        "refused": refused(&key, &signed(LEAVES), &roots),
        "accepted": accepted(&signed(LEAVES)),
        "keyChanges": key_changes(&key, &roots),
        "recordProof": {
            "seq": 1, "recordHash": first.hash, "records": [first, second], "leaf": leaves[2], "leafIndex": 2,
            "treeSize": LEAVES, "proof": proof(ProofPlan::inclusion(2, LEAVES)), "checkpoint": signed(LEAVES),
        },
    })
}

#[test]
fn the_committed_vectors_are_generated_by_the_code() {
    let made = serde_json::to_string_pretty(&vectors()).unwrap() + "\n";
    let committed = std::fs::read_to_string(repository("openapi/checkpoint-vectors.json")).unwrap_or_default();
    if made != committed {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("checkpoint-vectors.json");
        std::fs::write(&path, made).unwrap();
        panic!("the format has changed. If intended, replace the committed file with {}", path.display());
    }
}

pub(crate) fn python(arguments: &[&str]) -> Output {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/verify_checkpoints.py");
    third_party("python3").arg("-B").arg(script).args(arguments).output().unwrap()
}

/// Returns whether Python is installed.
pub(crate) fn has_python() -> bool {
    third_party("python3").arg("--version").output().is_ok_and(|done| done.status.success())
}

#[track_caller]
pub(crate) fn assert_good(done: &Output) {
    let stdout = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && stdout.starts_with("good: "), "{done:?}");
}

#[test]
fn an_independent_verifier_accepts_the_vectors_and_refuses_changed_ones() {
    if !has_python() {
        eprintln!("SKIPPED: python3 is not installed");
        return;
    }
    let committed = repository("openapi/checkpoint-vectors.json");
    assert_good(&python(&["vectors", committed.to_str().unwrap()]));
    let folder = tempfile::tempdir().unwrap();
    let changed = folder.path().join("changed.json");
    let good: Value = serde_json::from_slice(&std::fs::read(committed).unwrap()).unwrap();
    for pointer in ["/roots/3", "/leaves/2/hash", "/inclusion/5/proof/0", "/recordProof/proof/1", "/records/1/hash"] {
        let mut vectors = good.clone();
        *vectors.pointer_mut(pointer).unwrap() = json!("0".repeat(64));
        std::fs::write(&changed, vectors.to_string()).unwrap();
        let done = python(&["vectors", changed.to_str().unwrap()]);
        assert!(
            !done.status.success() && String::from_utf8_lossy(&done.stderr).starts_with("BAD: "),
            "{pointer}: {done:?}"
        );
    }
}

#[rstest]
#[tokio::test]
async fn an_independent_verifier_accepts_the_proofs_of_a_server(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    if !has_python() {
        eprintln!("SKIPPED: python3 is not installed");
        return;
    }
    let mut server = signing_at_shutdown(backend).await;
    let mut run = server.run(json!({})).await;
    let numbers = json!({"cost": 0.25, "small": 1e-7, "large": 4_503_599_627_370_495.5, "whole": 2.0, "zero": -0.0, "minus": -3, "most": 1_u64 << 53});
    run.operator
        .post(
            &format!("/v1/runs/{}/events", run.id),
            json!({"kind": "evidence", "summary": "numbers", "data": numbers}),
        )
        .await
        .is(201);
    for round in 0..3 {
        for number in 0..4 {
            run.create(&format!("{round}-{number}-ü.txt"), "x \"\\\n").await;
        }
        run.call("read_file", json!({"path": "../x"})).await;
        assert!(server.stop().success());
        server.restart();
        run = server.reconnect(&run);
    }
    let key = server.auditor().get("/v1/checkpoint/key").await.text();
    let log = server.data_dir().join("checkpoints.log");
    assert_good(&python(&["log", key.trim(), log.to_str().unwrap()]));
    let path = server.home.join("proof.json");
    for seq in [1, 2, 6, 7, 16] {
        let mut proof = server.auditor().get(&format!("/v1/runs/{}/audit/inclusion?seq={seq}", run.id)).await.ok();
        std::fs::write(&path, proof.to_string()).unwrap();
        assert_good(&python(&["inclusion", key.trim(), path.to_str().unwrap()]));
        proof["records"][0]["reason"] = json!("another");
        std::fs::write(&path, proof.to_string()).unwrap();
        assert!(!python(&["inclusion", key.trim(), path.to_str().unwrap()]).status.success());
    }
}
