//! Replacing the key that signs checkpoints: `key rotate`, what is served and verified afterwards, kills, and forgeries.

use rstest::rstest;
use serde_json::json;
use transparency::{Checkpoint, InclusionProof, KeyHistory, SignerKey, VerifierKey};

use crate::audit::checkpoint_vectors::{assert_good, has_python, python};
use crate::audit::checkpoints::signing_at_shutdown;
use crate::harness::{Backend, Run, Server, exhaustive};
use crate::operation::replay_and_repair::{assert_ends, offline, output_of};

const TIME: &str = "2026-01-01T00:00:00Z";

pub(crate) fn secret_of(server: &Server) -> SignerKey {
    SignerKey::parse(&std::fs::read_to_string(server.data_dir().join("checkpoint.key")).unwrap()).unwrap()
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
async fn a_verifier_of_either_key_follows_its_replacement(#[values(Backend::Sqlite)] backend: Backend) {
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
    assert_ends(&done, 0, &["after 1 leaves", &public(&new)]);
    assert!(public(&new) != public(&old) && !output_of(&done).contains("PRIVATE"), "{done:?}");
    for key in [&old, &new] {
        assert_intact(&server, key, "1 over 1 leaves, by 2 keys in turn");
    }
    sign_another(&mut server, &run, "b.txt").await;
    assert_ends(&offline(&server, "key", &["rotate"]), 0, &["after 2 leaves"]);
    let newest = secret_of(&server);
    sign_another(&mut server, &run, "c.txt").await;
    for key in [&old, &new, &newest] {
        assert_intact(&server, key, "3 over 3 leaves, by 3 keys in turn");
    }
    assert_eq!(server.verify(&[]).status.code(), Some(0), "with the own key");

    // What an outside verifier does, which has kept the first key and the first checkpoint.
    server.restart();
    let auditor = server.auditor();
    assert_eq!(auditor.get("/v1/checkpoint/key").await.text().trim(), public(&newest));
    let changes = auditor.get("/v1/checkpoint/key/changes").await;
    assert!(changes.header("content-type").starts_with("text/plain"));
    let statements = notes_of(&changes.text());
    let trusted = VerifierKey::parse(&public(&old)).unwrap();
    let keys = KeyHistory::follow(trusted, statements.iter().map(String::as_str)).unwrap();
    assert_eq!(public(&newest), keys.newest().to_text());
    let note = auditor.get("/v1/checkpoint").await.text();
    let (first, last) = (keys.verify(&before).unwrap(), keys.verify(&note).unwrap());
    assert_eq!((first.size, last.size), (1, 3));
    let proof = auditor.get("/v1/checkpoint/consistency?from=1").await.ok();
    let proof: transparency::ConsistencyProof = serde_json::from_value(proof).unwrap();
    assert_eq!(proof.verify(&first, &last), Ok(()));
    let run = server.reconnect(&run);
    let proof = auditor.get(&format!("/v1/runs/{}/audit/inclusion?seq=2", run.id)).await.ok();
    let proof: InclusionProof = serde_json::from_value(proof).unwrap();
    let id = model::RunId::parse(&run.id).unwrap();
    assert_eq!(proof.verify(&id, 2, keys.key_at(proof.tree_size)).unwrap().size, 3);
    server.nobody().get("/v1/checkpoint/key/changes").await.refused("UNAUTHENTICATED");
    run.agent.get("/v1/checkpoint/key/changes").await.refused("FORBIDDEN");
    let client = workspaced_client::Client::new(&server.base, server.operator_token.as_str()).unwrap();
    assert_eq!(client.checkpoint_key().await.unwrap().trim(), public(&newest));
    assert_eq!(client.checkpoint_key_changes().await.unwrap(), changes.text());
    assert_eq!(client.checkpoint().await.unwrap(), note);
    let notes = notes_of(&log_of(&server));
    let sizes: Vec<_> = notes.iter().map(|note| note.lines().nth(1).unwrap()).collect();
    assert_eq!(sizes, ["1", "1", "2", "2", "3"], "each statement follows the checkpoint of its size");
}

#[rstest]
#[tokio::test]
async fn an_independent_verifier_follows_the_replacements_and_refuses_missing_and_forged_ones(
    #[values(Backend::Sqlite)] backend: Backend,
) {
    if !has_python() {
        eprintln!("SKIPPED: python3 is not installed");
        return;
    }
    let (mut server, run) = signed(backend).await;
    let mut keys = vec![public(&secret_of(&server))];
    for path in ["b.txt", "c.txt"] {
        assert_ends(&offline(&server, "key", &["rotate"]), 0, &[]);
        keys.push(public(&secret_of(&server)));
        sign_another(&mut server, &run, path).await;
    }
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

/// Before anything is signed, and with a key that is in no file of the service.
#[rstest]
#[tokio::test]
async fn a_key_of_an_empty_log_and_one_of_the_environment_are_replaced(#[values(Backend::Sqlite)] backend: Backend) {
    let mut server = signing_at_shutdown(backend).await;
    assert!(server.stop().success());
    let old = secret_of(&server);
    assert_ends(&offline(&server, "key", &["rotate"]), 0, &["after 0 leaves"]);
    let second = secret_of(&server);
    std::fs::remove_file(server.data_dir().join("checkpoint.key")).unwrap();
    server.setup.env = vec![("WORKSPACED_CHECKPOINT_KEY".into(), second.to_text())];
    server.restart();
    let run = server.run(json!({})).await;
    run.create("a.txt", "x\n").await;
    assert!(server.stop().success());
    assert_ends(&offline(&server, "key", &["rotate"]), 2, &["--new-key-file is missing"]);
    let file = server.home.join("new.key");
    assert_ends(
        &offline(&server, "key", &["rotate", "--new-key-file", file.to_str().unwrap()]),
        0,
        &["after 1 leaves"],
    );
    let done = server.command("serve").args(["--listen", "127.0.0.1:0"]).output().unwrap();
    let third = SignerKey::parse(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_ends(&done, 2, &["was replaced after 1 leaves", &public(&third)]);
    server.setup.env = vec![("WORKSPACED_CHECKPOINT_KEY".into(), third.to_text())];
    sign_another(&mut server, &run, "b.txt").await;
    for key in [&old, &second, &third] {
        assert_intact(&server, key, "2 over 2 leaves, by 3 keys in turn");
    }
}

/// Nothing is recorded between the replacements, so that several statements have one size.
#[rstest]
#[tokio::test]
async fn a_key_is_replaced_several_times_at_one_size(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
    #[values(2, 3)] times: usize,
    #[values(false, true)] restarts: bool,
) {
    let (mut server, run) = signed(backend).await;
    let mut keys = vec![secret_of(&server)];
    for _ in 0..times {
        assert_ends(&offline(&server, "key", &["rotate"]), 0, &["after 1 leaves"]);
        keys.push(secret_of(&server));
        if restarts {
            server.restart();
            let newest = server.auditor().get("/v1/checkpoint").await;
            assert_eq!(newest.status, 200, "{}", newest.text());
            assert!(server.stop().success());
        }
    }
    sign_another(&mut server, &run, "b.txt").await;
    for key in &keys {
        assert_intact(&server, key, &format!("2 over 2 leaves, by {} keys in turn", times + 1));
    }
    let notes = notes_of(&log_of(&server));
    let sizes: Vec<_> = notes.iter().map(|note| note.lines().nth(1).unwrap()).collect();
    assert_eq!(sizes, [vec!["1"; times + 1], vec!["2"]].concat());
}

#[rstest]
#[case::before_it_is_in_force("key.created", false)]
#[case::before_it_is_in_the_file("key.stored", true)]
#[case::before_its_file_is_in_place("key.appended", true)]
#[tokio::test]
async fn a_kill_during_a_replacement_leaves_one_key_in_force(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
    #[case] failpoint: &str,
    #[case] is_new: bool,
    #[values(false, true)] repeats: bool,
    #[values(0, 2)] earlier: usize,
) {
    let (mut server, run) = signed(backend).await;
    let first = secret_of(&server);
    for _ in 0..earlier {
        assert_ends(&offline(&server, "key", &["rotate"]), 0, &["after 1 leaves"]);
    }
    let old = secret_of(&server);
    let killed = server.command("key").arg("rotate").env("WORKSPACED_FAILPOINT", failpoint).output().unwrap();
    assert_eq!(killed.status.code(), None, "it was not killed: {killed:?}");
    let code = verified(&server, &old);
    assert_eq!(code.0, Some(0), "an interrupted replacement was reported: {code:?}");
    if repeats {
        let says = if is_new { "was completed" } else { "was replaced after 1 leaves" };
        assert_ends(&offline(&server, "key", &["rotate"]), 0, &[says]);
    }
    sign_another(&mut server, &run, "b.txt").await;
    let in_force = secret_of(&server);
    assert_eq!(public(&in_force) != public(&old), is_new || repeats);
    let replacements = earlier + usize::from(is_new || repeats);
    let keys = if replacements > 0 { format!(", by {} keys in turn", replacements + 1) } else { String::new() };
    for key in [&first, &old, &in_force] {
        assert_intact(&server, key, &format!("2 over 2 leaves{keys}"));
    }
    assert_eq!(notes_of(&log_of(&server)).len(), 2 + replacements);
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

    /// Replaces the statement in the database and in the file.
    async fn replace_statement(&self, statement: &str, by: &str) {
        self.replace_in_file(statement, by);
        self.tampered(&format!("update setting set value = '{by}' where name = '{FIRST}'")).await;
    }
}

/// A stopped server whose key was replaced after one leaf, the new key having signed two; both keys, and the statement.
async fn rotated(backend: Backend) -> (Server, [SignerKey; 2], String) {
    let (mut server, run) = signed(backend).await;
    let old = secret_of(&server);
    assert_ends(&offline(&server, "key", &["rotate"]), 0, &[]);
    sign_another(&mut server, &run, "b.txt").await;
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
async fn a_removed_statement_is_reported(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, [old, new], statement) = rotated(backend).await;
    let log = log_of(&server);
    server.replace_in_file(&format!("{statement}\n"), "");
    for key in [&old, &new] {
        assert_broken(&server, key, "the file lacks the change of the key after 1 leaves");
    }
    server.tampered(&format!("delete from setting where name = '{FIRST}'")).await;
    for key in [&old, &new] {
        assert_broken(&server, key, "is not signed by this key, and no statement leads from this key");
    }
    std::fs::write(server.data_dir().join("checkpoints.log"), log).unwrap();
    assert_broken(&server, &old, "the database lacks the change of the key after 1 leaves");
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
    #[values(Backend::Sqlite)] backend: Backend,
    #[case] removed: &str,
    #[case] renamed: &str,
) {
    let (mut server, run) = signed(backend).await;
    for path in ["b.txt", "c.txt"] {
        assert_ends(&offline(&server, "key", &["rotate"]), 0, &[]);
        sign_another(&mut server, &run, path).await;
    }
    server.database.drop_triggers().await;
    server.tampered(removed).await;
    if !renamed.is_empty() {
        server.tampered(renamed).await;
    }
    server.restart();
    server.auditor().get("/v1/checkpoint").await.refused("UNAVAILABLE");
    assert!(server.log().contains("no checkpoints are signed any more"), "{}", server.log());
}

/// Nothing in the database shows that a key was replaced before it signed anything, but the file does.
#[rstest]
#[tokio::test]
async fn a_start_without_the_statement_of_an_empty_log_signs_nothing(#[values(Backend::Sqlite)] backend: Backend) {
    let mut server = signing_at_shutdown(backend).await;
    assert!(server.stop().success());
    assert_ends(&offline(&server, "key", &["rotate"]), 0, &["after 0 leaves"]);
    server.restart();
    server.run(json!({})).await.create("a.txt", "x\n").await;
    assert!(server.stop().success());
    server.database.drop_triggers().await;
    server.tampered(&format!("delete from setting where name = '{FIRST}'")).await;
    server.restart();
    server.auditor().get("/v1/checkpoint").await.refused("UNAVAILABLE");
}

/// What `verify` calls broken keeps the service from signing, and the key from being replaced.
#[rstest]
#[case::a_missing_statement(
    |statements: &[String]| (statements[0].clone() + "\n", String::new()), "the file lacks the change of the key after 1 leaves")]
#[case::another_statement(|statements: &[String]| (statements[0].clone(), statements[1].clone()), "of the key a")]
#[case::a_forged_statement(|statements: &[String]| (statements[0].clone(), statements[0].replacen('+', "A", 1)), "after 1 leaves")]
#[case::a_statement_too_many(|statements: &[String]| (statements[1].clone(), format!("{0}\n{0}", statements[1])), "after 2 leaves")]
#[tokio::test]
async fn a_start_with_other_statements_in_the_file_signs_nothing(
    #[values(Backend::Sqlite)] backend: Backend,
    #[case] altered: fn(&[String]) -> (String, String),
    #[case] says: &str,
) {
    let (mut server, run) = signed(backend).await;
    for path in ["b.txt", "c.txt"] {
        assert_ends(&offline(&server, "key", &["rotate"]), 0, &[]);
        sign_another(&mut server, &run, path).await;
    }
    let intact = log_of(&server);
    let notes = notes_of(&intact);
    let (old, new) = altered(&[notes[1].clone(), notes[3].clone()]);
    server.replace_in_file(&old, &new);
    assert_ne!(log_of(&server), intact);
    assert_broken(&server, &secret_of(&server), says);
    assert_ends(&offline(&server, "key", &["rotate"]), 2, &[says, "run `workspaced verify`"]);
    server.restart();
    server.auditor().get("/v1/checkpoint").await.refused("UNAVAILABLE");
    let readiness = server.nobody().get("/readyz").await;
    assert!(readiness.text().contains("signing"), "{}", readiness.text());
    assert!(server.log().contains("no checkpoints are signed any more"), "{}", server.log());
    assert!(server.stop().success());
    std::fs::write(server.data_dir().join("checkpoints.log"), intact).unwrap();
    server.restart();
    let checkpoint = server.auditor().get("/v1/checkpoint").await;
    assert_eq!(checkpoint.status, 200, "{}", checkpoint.text());
}

#[rstest]
#[tokio::test]
async fn a_forged_statement_is_reported(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, [old, new], statement) = rotated(backend).await;
    let origin = old.verifier_key().name().to_owned();
    let attacker = SignerKey::from_seed(&origin, &[9; 32]).unwrap();
    let root = |note: &str| Checkpoint::parse(&format!("{}\n", note.split("\n\n").next().unwrap())).unwrap().root;
    let signed = root(&statement);
    // By an attacker who has neither key: the old key is said to have named the attacker's.
    let own = attacker.sign_change(&new, 1, signed, TIME).unwrap();
    server.replace_statement(&statement, &own).await;
    assert_broken(&server, &old, "no statement about a change of the key names the trusted key");
    let forged = statement.replace(&public(&new), &public(&attacker));
    server.replace_statement(&own, &forged).await;
    for key in [&old, &attacker] {
        assert_broken(&server, key, "is not signed by the old key that it names: it is forged");
    }
    // By an attacker who has the old key: another size, or a second successor.
    let backwards = old.sign_change(&new, 0, transparency::Frontier::default().root(), TIME).unwrap();
    server.replace_statement(&forged, &backwards).await;
    assert_broken(&server, &old, "which was not in force for it");
    server.replace_statement(&backwards, &statement).await;
    assert_eq!(verified(&server, &old).0, Some(0));
    let fork = old.sign_change(&attacker, 2, signed, TIME).unwrap();
    server.tampered(&format!("insert into setting (name, value) values ('checkpoint_key_change_2', '{fork}')")).await;
    for key in [&old, &new] {
        assert_broken(&server, key, "the log has forked");
    }
}

#[rstest]
#[tokio::test]
async fn the_replaced_key_signs_nothing_any_more(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let (server, [old, new], _) = rotated(backend).await;
    let by_new = notes_of(&log_of(&server)).remove(2);
    let checkpoint = new.verifier_key().verify(&by_new).unwrap();
    let by_old = old.sign(checkpoint.size, checkpoint.root);
    server.replace_in_file(&by_new, &by_old);
    server.tampered(&format!("update checkpoint set note = '{by_old}' where size = 2")).await;
    for key in [&old, &new] {
        assert_broken(&server, key, "was not in force for it: another key was from 1 leaves on");
    }
    server.replace_in_file(&by_old, &by_new);
    server.tampered(&format!("update checkpoint set note = '{by_new}' where size = 2")).await;
    assert_eq!(verified(&server, &new).0, Some(0));
    // The service does not start with it.
    std::fs::write(server.data_dir().join("checkpoint.key"), format!("{}\n", old.to_text())).unwrap();
    let done = server.command("serve").args(["--listen", "127.0.0.1:0"]).output().unwrap();
    assert_ends(&done, 2, &["was replaced after 1 leaves", &public(&new)]);
    assert_ends(&offline(&server, "key", &["rotate"]), 2, &["was replaced after 1 leaves"]);
}
