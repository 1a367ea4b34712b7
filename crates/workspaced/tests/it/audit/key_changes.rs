//! Replacing the key that signs checkpoints: `key rotate`, what is served and verified afterwards, kills, and forgeries.

use rstest::rstest;
use serde_json::json;
use transparency::{Checkpoint, InclusionProof, KeyChange, KeyHistory, NoteError, SignerKey, SigningKeys, VerifierKey};

use crate::audit::checkpoint_vectors::{assert_good, has_python, python};
use crate::audit::checkpoints::signing_at_shutdown;
use crate::harness::{Backend, Run, Server};
use crate::operation::replay_and_repair::{assert_ends, offline, output_of};

/// The keys in the key file.
fn keys_of(server: &Server) -> Vec<SignerKey> {
    let text = std::fs::read_to_string(server.data_dir().join("checkpoint.key")).unwrap();
    SigningKeys::parse(&text).unwrap().all().cloned().collect()
}

/// The newest key in the key file.
pub(crate) fn secret_of(server: &Server) -> SignerKey {
    keys_of(server).pop().unwrap()
}

/// Replaces the key of a stopped server: one checkpoint, after a record at `path`, is signed by both keys.
pub(crate) async fn replace_key(server: &mut Server, run: &Run, path: &str) {
    assert_ends(&offline(server, "key", &["rotate"]), 0, &["signed by both keys"]);
    sign_another(server, run, path).await;
    assert_ends(&offline(server, "key", &["retire"]), 0, &["by the new key alone"]);
}

/// Returns by which of `keys` a note is signed.
fn signers(note: &str, keys: &[&SignerKey]) -> Vec<bool> {
    let by = |key: &SignerKey| match key.verifier_key().verify(note) {
        Ok(_) => true,
        Err(error) => {
            assert_eq!(error, NoteError::NotSigned);
            false
        }
    };
    keys.iter().map(|key| by(key)).collect()
}

pub(crate) fn public(key: &SignerKey) -> String {
    key.verifier_key().to_text()
}

fn log_of(server: &Server) -> String {
    std::fs::read_to_string(server.data_dir().join("checkpoints.log")).unwrap()
}

/// Returns the notes of the checkpoint file.
fn notes_of(log: &str) -> Vec<String> {
    let (mut notes, mut note) = (Vec::new(), String::new());
    for line in log.split_inclusive('\n') {
        let is_end = line == "\n" && note.lines().last().is_some_and(|last| last.starts_with('—'));
        if is_end {
            notes.push(std::mem::take(&mut note));
        } else {
            note.push_str(line);
        }
    }
    assert_eq!(note, "", "the file ends within an entry");
    notes
}

/// Returns a stopped server with one checkpoint, and its run.
async fn signed(backend: Backend) -> (Server, Run) {
    let mut server = signing_at_shutdown(backend).await;
    let run = server.run(json!({})).await;
    run.create("a.txt", "x\n").await;
    assert!(server.stop().success());
    (server, run)
}

/// Starts the server, adds a record and stops it, which signs another checkpoint.
pub(crate) async fn sign_another(server: &mut Server, run: &Run, path: &str) {
    server.restart();
    server.reconnect(run).create(path, "x\n").await;
    assert!(server.stop().success());
}

/// Returns the report on the checkpoints by a verifier that trusts `key`, and the exit code.
fn verified(server: &Server, key: &SignerKey) -> (Option<i32>, String) {
    let done = server.verify(&["--checkpoint-verifier-key", &public(key)]);
    let text = output_of(&done);
    (done.status.code(), text.lines().find(|line| line.starts_with("checkpoints: ")).unwrap_or(&text).to_owned())
}

#[track_caller]
fn assert_intact(server: &Server, key: &SignerKey, report: &str) {
    assert_eq!(verified(server, key), (Some(0), format!("checkpoints: intact, {report}")));
}

#[rstest]
#[tokio::test]
async fn a_verifier_of_either_key_follows_its_replacement(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (mut server, run) = signed(backend).await;
    server.restart();
    let before = server.auditor().get("/v1/checkpoint").await.text();
    assert_eq!(server.auditor().get("/v1/checkpoint/key/changes").await.text(), "");
    assert_ends(&offline(&server, "key", &["rotate"]), 2, &["another workspaced is using this folder"]);
    assert!(server.stop().success());
    let old = secret_of(&server);
    assert_eq!(server.verify(&[]).status.code(), Some(0));

    let done = offline(&server, "key", &["rotate"]);
    let new = secret_of(&server);
    assert_ends(&done, 0, &["signed by both keys", &public(&new)]);
    assert!(public(&new) != public(&old) && !output_of(&done).contains("PRIVATE"), "{done:?}");
    assert_intact(&server, &old, "1 over 1 leaves");
    server.restart();
    let auditor = server.auditor();
    assert_eq!(
        auditor.get("/v1/checkpoint/key").await.text().trim(),
        public(&old),
        "nothing is signed by the new one yet"
    );
    assert!(server.stop().success());
    for path in ["b.txt", "c.txt"] {
        sign_another(&mut server, &run, path).await;
    }
    server.restart();
    let by_both = server.auditor().get("/v1/checkpoint").await.text();
    let stranger = SignerKey::from_seed(old.verifier_key().name(), &[9; 32]).unwrap();
    assert_eq!(signers(&by_both, &[&old, &new, &stranger]), [true, true, false], "{by_both}");
    assert_eq!(server.auditor().get("/v1/checkpoint/key").await.text().trim(), public(&new));
    assert!(server.stop().success());
    for key in [&old, &new] {
        assert_intact(&server, key, "3 over 3 leaves, by 2 keys in turn");
    }
    let done = offline(&server, "key", &["retire"]);
    assert_ends(&done, 0, &["by the new key alone", &public(&new)]);
    sign_another(&mut server, &run, "d.txt").await;
    replace_key(&mut server, &run, "e.txt").await;
    let newest = secret_of(&server);
    sign_another(&mut server, &run, "f.txt").await;
    for key in [&old, &new, &newest] {
        assert_intact(&server, key, "6 over 6 leaves, by 3 keys in turn");
    }
    let (code, report) = verified(&server, &stranger);
    assert!(code == Some(1) && report.contains("names the trusted key"), "{report}");
    assert_eq!(server.verify(&[]).status.code(), Some(0), "with the own key");
    let notes = notes_of(&log_of(&server));
    let signed_by: Vec<_> = notes.iter().map(|note| signers(note, &[&old, &new, &newest])).collect();
    let expected = [[true, false, false], [true, true, false], [true, true, false], [false, true, false]];
    assert_eq!(signed_by, [&expected[..], &[[false, true, true], [false, false, true]]].concat());

    // What an outside verifier does, which has kept the first key and the first checkpoint.
    server.restart();
    let auditor = server.auditor();
    assert_eq!(auditor.get("/v1/checkpoint/key").await.text().trim(), public(&newest));
    let changes = auditor.get("/v1/checkpoint/key/changes").await;
    assert!(changes.header("content-type").starts_with("text/plain"));
    let statements = notes_of(&changes.text());
    assert_eq!(statements, [notes[1].clone(), notes[4].clone()], "of each change the first checkpoint by both keys");
    let trusted = VerifierKey::parse(&public(&old)).unwrap();
    let keys = KeyHistory::follow(trusted, statements.iter().map(String::as_str)).unwrap();
    assert_eq!(public(&newest), keys.newest().to_text());
    let note = auditor.get("/v1/checkpoint").await.text();
    let (first, last) = (keys.verify(&before).unwrap(), keys.verify(&note).unwrap());
    assert_eq!((first.size, last.size), (1, 6));
    let proof = auditor.get("/v1/checkpoint/consistency?from=1").await.ok();
    let proof: transparency::ConsistencyProof = serde_json::from_value(proof).unwrap();
    assert_eq!(proof.verify(&first, &last), Ok(()));
    let run = server.reconnect(&run);
    let proof = auditor.get(&format!("/v1/runs/{}/audit/inclusion?seq=2", run.id)).await.ok();
    let proof: InclusionProof = serde_json::from_value(proof).unwrap();
    let id = model::RunId::parse(&run.id).unwrap();
    assert_eq!(proof.verify(&id, 2, keys.key_at(proof.tree_size)).unwrap().size, 6);
    server.nobody().get("/v1/checkpoint/key/changes").await.refused("UNAUTHENTICATED");
    run.agent.get("/v1/checkpoint/key/changes").await.refused("FORBIDDEN");
    let client = workspaced_client::Client::new(&server.base, server.operator_token.as_str()).unwrap();
    assert_eq!(client.checkpoint_key().await.unwrap().trim(), public(&newest));
    assert_eq!(client.checkpoint_key_changes().await.unwrap(), changes.text());
    assert_eq!(client.checkpoint().await.unwrap(), note);
}

#[rstest]
#[tokio::test]
async fn an_independent_verifier_follows_the_replacements_and_refuses_missing_and_forged_ones(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    if !has_python() {
        eprintln!("SKIPPED: python3 is not installed");
        return;
    }
    let (mut server, run) = signed(backend).await;
    let mut keys = vec![public(&secret_of(&server))];
    for path in ["b.txt", "c.txt"] {
        replace_key(&mut server, &run, path).await;
        keys.push(public(&secret_of(&server)));
    }
    sign_another(&mut server, &run, "d.txt").await;
    server.restart();
    let auditor = server.auditor();
    let served = auditor.get("/v1/checkpoint/key/changes").await.text();
    let proof = auditor.get(&format!("/v1/runs/{}/audit/inclusion?seq=2", run.id)).await.ok();
    let write = |name: &str, text: &str| {
        let path = server.home.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (changes, proof) = (write("changes.txt", &served), write("proof.json", &proof.to_string()));
    let log = server.data_dir().join("checkpoints.log").to_str().unwrap().to_owned();
    for key in &keys {
        let done = python(&["changes", key, &changes]);
        assert_good(&done);
        assert!(String::from_utf8_lossy(&done.stdout).contains(&keys[2]), "{done:?}");
        assert_good(&python(&["inclusion", key, &changes, &proof]));
        assert_good(&python(&["log", key, &log]));
    }
    let without_changes = |key: &str| python(&["inclusion", key, &proof]).status.success();
    assert_eq!([without_changes(&keys[0]), without_changes(&keys[2])], [false, true]);
    // A statement that is missing, and one whose new key is another.
    let statements = notes_of(&served);
    let attacker = SignerKey::from_seed(secret_of(&server).verifier_key().name(), &[9; 32]).unwrap();
    let forged = served.replacen(&keys[1], &public(&attacker), 1);
    for altered in [format!("{}\n", statements[1]), forged, served.replacen("\n2\n", "\n3\n", 1)] {
        let altered = write("altered.txt", &altered);
        for done in [python(&["changes", &keys[0], &altered]), python(&["inclusion", &keys[0], &altered, &proof])] {
            assert!(!done.status.success() && String::from_utf8_lossy(&done.stderr).starts_with("BAD: "), "{done:?}");
        }
    }
    let file = log_of(&server);
    for statement in &statements {
        let altered = write("altered.log", &file.replacen(&format!("{statement}\n"), "", 1));
        assert!(!python(&["log", &keys[0], &altered]).status.success());
    }
}

/// With keys that are in no file of the service, as those of nodes are.
#[rstest]
#[tokio::test]
async fn a_key_of_the_environment_is_replaced_by_two_keys_and_then_one(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (mut server, run) = signed(backend).await;
    let old = secret_of(&server);
    std::fs::remove_file(server.data_dir().join("checkpoint.key")).unwrap();
    let given = |server: &mut Server, keys: &str| {
        server.setup.env = vec![("WORKSPACED_CHECKPOINT_KEY".into(), keys.to_owned())];
    };
    given(&mut server, &old.to_text());
    assert_ends(&offline(&server, "key", &["rotate"]), 2, &["--new-key-file is missing"]);
    let [both, alone] = ["both.key", "new.key"].map(|name| server.home.join(name));
    let to = |action, file: &std::path::Path| [action, "--new-key-file", file.to_str().unwrap()].map(str::to_owned);
    let key = |server: &Server, args: [String; 3]| offline(server, "key", &args.each_ref().map(String::as_str));
    assert_ends(&key(&server, to("rotate", &both)), 0, &["both.key"]);
    assert_ends(&key(&server, to("rotate", &both)), 2, &["has keys already"]);
    let keys = std::fs::read_to_string(&both).unwrap();
    let new = SigningKeys::parse(&keys).unwrap().successor().unwrap().clone();
    // As it is put into a variable of one line.
    given(&mut server, &keys.trim().replace('\n', " "));
    sign_another(&mut server, &run, "b.txt").await;
    assert_ends(&key(&server, to("retire", &alone)), 0, &[&public(&new)]);
    given(&mut server, &std::fs::read_to_string(&alone).unwrap());
    sign_another(&mut server, &run, "c.txt").await;
    for key in [&old, &new] {
        assert_intact(&server, key, "3 over 3 leaves, by 2 keys in turn");
    }
    assert_eq!(signers(&notes_of(&log_of(&server))[2], &[&old, &new]), [false, true]);
}

#[rstest]
#[tokio::test]
async fn steps_of_a_replacement_that_are_not_the_next_one_are_refused(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let mut server = signing_at_shutdown(backend).await;
    assert!(server.stop().success());
    assert_ends(&offline(&server, "key", &["retire"]), 2, &["no key is being replaced"]);
    let old = secret_of(&server);
    // Nothing is signed yet: the first checkpoint is signed by both.
    assert_ends(&offline(&server, "key", &["rotate"]), 0, &[]);
    let new = secret_of(&server);
    assert_ends(&offline(&server, "key", &["rotate"]), 2, &["is being replaced already", "workspaced key retire"]);
    assert_ends(&offline(&server, "key", &["retire"]), 2, &["no checkpoint is signed by both keys yet"]);
    // Without the command, by hand.
    let file = server.data_dir().join("checkpoint.key");
    let both = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, old.to_text()).unwrap();
    server.restart();
    let run = server.run(json!({})).await;
    run.create("a.txt", "x\n").await;
    assert!(server.stop().success());
    std::fs::write(&file, new.to_text()).unwrap();
    let start = |server: &Server| server.command("serve").args(["--listen", "127.0.0.1:0"]).output().unwrap();
    assert_ends(&start(&server), 2, &["signed with another key", "put the key back"]);
    std::fs::write(&file, both).unwrap();
    sign_another(&mut server, &run, "b.txt").await;
    std::fs::write(&file, old.to_text()).unwrap();
    assert_ends(&start(&server), 2, &["was replaced from 2 leaves on", &public(&new)]);
    std::fs::write(&file, new.to_text()).unwrap();
    sign_another(&mut server, &run, "c.txt").await;
    for key in [&old, &new] {
        assert_intact(&server, key, "3 over 3 leaves, by 2 keys in turn");
    }
}

/// Each case kills `key rotate`, the service while it signs the first checkpoint by both keys, or `key retire`.
#[rstest]
#[case::before_both_keys_are_in_the_file("key", "rotate", "key.written", 1)]
#[case::once_both_keys_are_in_the_file("key", "rotate", "key.replaced", 2)]
#[case::before_the_checkpoint_is_in_the_file("serve", "", "checkpoint.stored", 2)]
#[case::before_the_statement_is_stored("serve", "", "key.signed", 2)]
#[case::while_the_checkpoint_is_written("serve", "", "checkpoint.written", 2)]
#[case::before_the_new_key_is_alone_in_the_file("key", "retire", "key.written", 2)]
#[case::once_the_new_key_is_alone_in_the_file("key", "retire", "key.replaced", 1)]
#[tokio::test]
async fn a_kill_during_a_replacement_leaves_keys_that_sign_on(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
    #[case] command: &str,
    #[case] action: &str,
    #[case] failpoint: &str,
    #[case] keys: usize,
) {
    let (mut server, run) = signed(backend).await;
    let old = secret_of(&server);
    if (command, action) != ("key", "rotate") {
        assert_ends(&offline(&server, "key", &["rotate"]), 0, &[]);
    }
    if action == "retire" {
        sign_another(&mut server, &run, "b.txt").await;
    }
    if command == "key" {
        let killed = server.command("key").arg(action).env("WORKSPACED_FAILPOINT", failpoint).output().unwrap();
        assert_eq!(killed.status.code(), None, "it was not killed: {killed:?}");
    } else {
        let setup = server.setup.clone();
        server.setup = setup.clone().env("WORKSPACED_FAILPOINT", failpoint);
        server.restart();
        server.reconnect(&run).create("b.txt", "x\n").await;
        let status = server.stop();
        assert_eq!(status.code(), None, "it was not killed");
        server.setup = setup;
    }
    assert_eq!(keys_of(&server).len(), keys);
    for key in keys_of(&server).iter().chain([&old]).take(if action == "rotate" { 1 } else { 3 }) {
        let (code, report) = verified(&server, key);
        assert_eq!(code, Some(0), "an interrupted replacement was reported: {report}");
    }
    sign_another(&mut server, &run, "c.txt").await;
    // The steps that are left.
    if action == "rotate" && keys == 1 {
        assert_ends(&offline(&server, "key", &["rotate"]), 0, &[]);
        sign_another(&mut server, &run, "d.txt").await;
    }
    if keys_of(&server).len() == 2 {
        assert_ends(&offline(&server, "key", &["retire"]), 0, &[]);
    }
    let new = secret_of(&server);
    assert_ne!(public(&new), public(&old));
    sign_another(&mut server, &run, "e.txt").await;
    let notes = notes_of(&log_of(&server));
    let count = notes.len();
    for key in [&old, &new] {
        assert_intact(&server, key, &format!("{count} over {count} leaves, by 2 keys in turn"));
    }
    let signed_by: Vec<_> = notes.iter().map(|note| signers(note, &[&old, &new])).collect();
    assert!(signed_by.contains(&vec![true, true]) && signed_by.is_sorted_by_key(|by| (by[1], !by[0])), "{signed_by:?}");
    assert_eq!((&signed_by[0], &signed_by[count - 1]), (&vec![true, false], &vec![false, true]));
}

/// The setting of the first statement.
const FIRST: &str = "checkpoint_key_change_1";

impl Server {
    /// Replaces a text in the checkpoint file.
    fn replace_in_file(&self, old: &str, new: &str) {
        let log = log_of(self);
        assert!(log.contains(old), "{log}");
        std::fs::write(self.data_dir().join("checkpoints.log"), log.replacen(old, new, 1)).unwrap();
    }

    async fn tampered(&self, sql: &str) {
        assert!(self.database.tamper(sql).await.unwrap() > 0, "{sql}");
    }

    async fn replace_statement(&self, by: &str) {
        self.tampered(&format!("update setting set value = '{by}' where name = '{FIRST}'")).await;
    }
}

/// A stopped server whose key was replaced, with a checkpoint by the old key, one by both and one by the new; both keys, and the
/// statement.
async fn rotated(backend: Backend) -> (Server, [SignerKey; 2], String) {
    let (mut server, run) = signed(backend).await;
    let old = secret_of(&server);
    replace_key(&mut server, &run, "b.txt").await;
    sign_another(&mut server, &run, "c.txt").await;
    let new = secret_of(&server);
    assert_eq!(verified(&server, &old).0, Some(0));
    server.database.drop_triggers().await;
    let statement = notes_of(&log_of(&server)).remove(1);
    (server, [old, new], statement)
}

#[track_caller]
fn assert_broken(server: &Server, key: &SignerKey, says: &str) {
    let (code, report) = verified(server, key);
    assert_eq!(code, Some(1), "{report}");
    assert!(report.starts_with("checkpoints: BROKEN: ") && report.contains(says), "`{says}` is not in: {report}");
}

#[rstest]
#[tokio::test]
async fn a_removed_statement_is_reported(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (server, [old, new], statement) = rotated(backend).await;
    let log = log_of(&server);
    server.replace_in_file(&format!("{statement}\n"), "");
    for key in [&old, &new] {
        assert_broken(&server, key, "the file lacks the checkpoint over 2 leaves");
    }
    std::fs::write(server.data_dir().join("checkpoints.log"), log).unwrap();
    server.tampered(&format!("delete from setting where name = '{FIRST}'")).await;
    for key in [&old, &new] {
        assert_broken(&server, key, "is not signed by this key, and no statement leads from this key");
    }
}

/// The last key stays in force, so that nothing else keeps the service from signing.
#[rstest]
#[case::the_first("delete from setting where name = 'checkpoint_key_change_1'", "")]
#[case::all("delete from setting where name like 'checkpoint_key_change_%'", "")]
#[case::the_first_and_the_gap_closed(
    "delete from setting where name = 'checkpoint_key_change_1'",
    "update setting set name = 'checkpoint_key_change_1' where name = 'checkpoint_key_change_2'"
)]
#[tokio::test]
async fn a_start_without_an_earlier_statement_signs_nothing(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
    #[case] removed: &str,
    #[case] renamed: &str,
) {
    let (mut server, run) = signed(backend).await;
    for path in ["b.txt", "c.txt"] {
        replace_key(&mut server, &run, path).await;
    }
    sign_another(&mut server, &run, "d.txt").await;
    server.database.drop_triggers().await;
    server.tampered(removed).await;
    if !renamed.is_empty() {
        server.tampered(renamed).await;
    }
    server.restart();
    server.auditor().get("/v1/checkpoint").await.refused("UNAVAILABLE");
    assert!(server.log().contains("no checkpoints are signed any more"), "{}", server.log());
}

/// What `verify` calls broken keeps the service from signing, and the key from being replaced.
#[rstest]
#[tokio::test]
async fn a_start_with_another_statement_signs_nothing(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (mut server, [old, new], statement) = rotated(backend).await;
    let root = Checkpoint::parse(&format!("{}\n", statement.split("\n\n").next().unwrap())).unwrap().root;
    let other = old.sign_change(&new, 3, root).unwrap();
    server.replace_statement(&other).await;
    assert_broken(&server, &new, "have different roots: the log has forked");
    assert_ends(&offline(&server, "key", &["rotate"]), 2, &["forked", "run `workspaced verify`"]);
    server.restart();
    server.auditor().get("/v1/checkpoint").await.refused("UNAVAILABLE");
    let readiness = server.nobody().get("/readyz").await;
    assert!(readiness.text().contains("signing"), "{}", readiness.text());
    assert!(server.log().contains("no checkpoints are signed any more"), "{}", server.log());
    assert!(server.stop().success());
    server.replace_statement(&statement).await;
    server.restart();
    let checkpoint = server.auditor().get("/v1/checkpoint").await;
    assert_eq!(checkpoint.status, 200, "{}", checkpoint.text());
}

#[rstest]
#[tokio::test]
async fn a_forged_statement_is_reported(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (server, [old, new], statement) = rotated(backend).await;
    let origin = old.verifier_key().name().to_owned();
    let attacker = SignerKey::from_seed(&origin, &[9; 32]).unwrap();
    let root = |note: &str| Checkpoint::parse(&format!("{}\n", note.split("\n\n").next().unwrap())).unwrap().root;
    let signed = root(&statement);
    // By an attacker who has neither key: the old key is said to have named the attacker's.
    let own = attacker.sign_change(&new, 2, signed).unwrap();
    server.replace_statement(&own).await;
    assert_broken(&server, &old, "no statement about a change of the key names the trusted key");
    let forged = statement.replace(&public(&new), &public(&attacker));
    server.replace_statement(&forged).await;
    for key in [&old, &attacker] {
        assert_broken(&server, key, "is not signed by the old key that it names: it is forged");
    }
    // By an attacker who has the old key: another size, or a second successor.
    let backwards = old.sign_change(&new, 1, root(&notes_of(&log_of(&server))[0])).unwrap();
    server.replace_statement(&backwards).await;
    assert_broken(&server, &old, "which was not in force for it");
    server.replace_statement(&statement).await;
    assert_eq!(verified(&server, &old).0, Some(0));
    let fork = old.sign_change(&attacker, 3, signed).unwrap();
    server.tampered(&format!("insert into setting (name, value) values ('checkpoint_key_change_2', '{fork}')")).await;
    for key in [&old, &new] {
        assert_broken(&server, key, "the log has forked");
    }
}

#[rstest]
#[tokio::test]
async fn the_replaced_key_signs_nothing_any_more(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (server, [old, new], _) = rotated(backend).await;
    let by_new = notes_of(&log_of(&server)).remove(2);
    assert!(!KeyChange::is_statement(&by_new));
    let checkpoint = new.verifier_key().verify(&by_new).unwrap();
    let by_old = old.sign(checkpoint.size, checkpoint.root);
    server.replace_in_file(&by_new, &by_old);
    server.tampered(&format!("update checkpoint set note = '{by_old}' where size = 3")).await;
    for key in [&old, &new] {
        assert_broken(&server, key, "was not in force for it: another key is from 2 leaves on");
    }
    server.replace_in_file(&by_old, &by_new);
    server.tampered(&format!("update checkpoint set note = '{by_new}' where size = 3")).await;
    assert_eq!(verified(&server, &new).0, Some(0));
    // The service does not start with it.
    std::fs::write(server.data_dir().join("checkpoint.key"), format!("{}\n", old.to_text())).unwrap();
    let done = server.command("serve").args(["--listen", "127.0.0.1:0"]).output().unwrap();
    assert_ends(&done, 2, &["was replaced from 2 leaves on", &public(&new)]);
    assert_ends(&offline(&server, "key", &["rotate"]), 2, &["was replaced from 2 leaves on"]);
}
