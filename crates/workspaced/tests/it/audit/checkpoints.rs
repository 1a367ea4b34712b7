//! Signed checkpoints: the note, the key, inclusion and consistency proofs, and the checkpoint file.

use model::{CheckpointLeaf, Sha256};
use rstest::rstest;
use serde_json::{Value, json};
use transparency::{SignerKey, VerifierKey, hash_checkpoint_leaf, verify_consistency, verify_inclusion};

use crate::harness::{Backend, Run, Server, Setup, assert_chain, exhaustive, until, until_blocking};

fn hashes(value: &Value) -> Vec<Sha256> {
    serde_json::from_value(value.clone()).unwrap()
}

/// Starts a server that signs a checkpoint every second.
async fn signing_every_second(backend: Backend) -> Server {
    Server::start_with(Setup::new(backend).arg("--checkpoint-seconds", 1)).await
}

/// Starts a server that signs a checkpoint only when it stops.
pub(crate) async fn signing_at_shutdown(backend: Backend) -> Server {
    let setup = Setup::new(backend).arg("--checkpoint-seconds", 86_400);
    Server::start_with(setup).await
}

/// Waits until a checkpoint covers record `seq`.
pub(crate) async fn until_covered(run: &Run, seq: u64) {
    let covered = async || {
        let report = run.verify().await;
        assert_eq!(report["intact"], true, "{report:#}");
        if report["checkpointedSeq"].as_u64().unwrap() >= seq { Ok(()) } else { Err(report) }
    };
    until(&format!("a checkpoint covers record {seq}"), covered).await;
}

fn log_of(server: &Server) -> String {
    std::fs::read_to_string(server.data_dir().join("checkpoints.log")).unwrap()
}

#[rstest]
#[tokio::test]
async fn every_record_is_proved_by_a_signed_checkpoint(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let server = signing_every_second(backend).await;
    let (run, other) = (server.run(json!({})).await, server.run(json!({})).await);
    let auditor = server.auditor();
    let key = auditor.get("/v1/checkpoint/key").await;
    assert!(key.header("content-type").starts_with("text/plain"), "{}", key.header("content-type"));
    let verifier = VerifierKey::parse(&key.text()).unwrap();
    let mut signed = Vec::new();
    for round in 0..3u64 {
        for number in 0..2 {
            run.create(&format!("{round}-{number}.txt"), "x\n").await;
        }
        other.create(&format!("{round}.txt"), "x\n").await;
        until_covered(&run, 2 * round + 3).await;
        until_covered(&other, round + 2).await;
        let note = auditor.get("/v1/checkpoint").await;
        assert!(note.header("content-type").starts_with("text/plain"));
        signed.push(verifier.verify(&note.text()).unwrap());
        assert!(log_of(&server).contains(&note.text()), "the file contains the note");
    }
    for record in run.audit().await {
        let path = format!("/v1/runs/{}/audit/inclusion?seq={}", run.id, record["seq"]);
        let proof = auditor.get(&path).await.ok();
        assert_eq!(proof["recordHash"], record["hash"]);
        let records = proof["records"].as_array().unwrap();
        assert_eq!(records[0], record);
        let leaf: CheckpointLeaf = serde_json::from_value(proof["leaf"].clone()).unwrap();
        assert_eq!(leaf.run_id.as_str(), run.id);
        let last = records.last().unwrap();
        assert_eq!((&last["hash"], &last["seq"]), (&proof["leaf"]["headHash"], &proof["leaf"]["headSeq"]));
        for pair in records.windows(2) {
            assert_eq!(pair[1]["prevHash"], pair[0]["hash"]);
        }
        let checkpoint = verifier.verify(proof["checkpoint"].as_str().unwrap()).unwrap();
        assert_eq!(proof["treeSize"], checkpoint.size);
        let index = proof["leafIndex"].as_u64().unwrap();
        assert!(
            verify_inclusion(
                hash_checkpoint_leaf(&leaf),
                index,
                checkpoint.size,
                &hashes(&proof["proof"]),
                checkpoint.root
            ),
            "{proof:#}"
        );
    }
    assert_chain(&run.id, &run.audit().await);
    for pair in signed.windows(2) {
        let path = format!("/v1/checkpoint/consistency?from={}&to={}", pair[0].size, pair[1].size);
        let proof = auditor.get(&path).await.ok();
        let proof = hashes(&proof["proof"]);
        assert!(verify_consistency(pair[0].size, pair[1].size, pair[0].root, pair[1].root, &proof));
    }
    let newest = signed.last().unwrap().size;
    let whole = auditor.get("/v1/checkpoint/consistency?from=1").await.ok();
    assert_eq!((&whole["from"], &whole["to"]), (&json!(1), &json!(newest)));
    auditor.get(&format!("/v1/checkpoint/consistency?from=1&to={}", newest + 1)).await.refused("NOT_FOUND");
    for query in ["", "?from=0", "?from=2&to=1", "?to=1", "?from=x", "?from=1&size=2"] {
        auditor.get(&format!("/v1/checkpoint/consistency{query}")).await.refused("INVALID_REQUEST");
    }
}

#[rstest]
#[tokio::test]
async fn a_proof_of_an_uncovered_record_is_refused_with_a_hint(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = signing_at_shutdown(backend).await;
    let run = server.run(json!({})).await;
    run.create("a.txt", "x\n").await;
    let inclusion = |run: &Run, query: &str| {
        let (client, path) = (run.operator.clone(), format!("/v1/runs/{}/audit/inclusion{query}", run.id));
        async move { client.get(&path).await }
    };
    run.operator.get("/v1/checkpoint").await.refused("NOT_FOUND");
    run.operator.get("/v1/checkpoint/consistency?from=1").await.refused("NOT_FOUND");
    inclusion(&run, "?seq=1").await.refused("NOT_FOUND");
    assert!(server.stop().success());
    server.restart();
    let run = server.reconnect(&run);
    run.create("b.txt", "x\n").await;
    inclusion(&run, "?seq=1").await.ok();
    let early = inclusion(&run, "?seq=3").await.refused("NOT_FOUND");
    assert!(early["message"].as_str().unwrap().contains("covers") && early["retryAfterSeconds"].is_u64(), "{early:#}");
    assert!(inclusion(&run, "?seq=4").await.refused("NOT_FOUND")["message"].as_str().unwrap().contains("no record"));
    for query in ["", "?seq=0", "?seq=-1", "?seq=x", "?seq=1&seq=2", "?to=1"] {
        inclusion(&run, query).await.refused("INVALID_REQUEST");
    }
    let report = run.verify().await;
    assert_eq!((&report["headSeq"], &report["checkpointedSeq"]), (&json!(3), &json!(2)), "{report:#}");
    run.operator.get("/v1/runs/none-such/audit/inclusion?seq=1").await.refused("RUN_NOT_FOUND");
}

#[rstest]
#[tokio::test]
async fn a_run_token_with_audit_read_gets_proofs_of_its_own_run_only(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = signing_at_shutdown(backend).await;
    let (run, other) = (server.run(json!({})).await, server.run(json!({})).await);
    run.create("a.txt", "x\n").await;
    let token = async |permission: &str| {
        let body = json!({"permissions": [permission]});
        let made = run.operator.post(&format!("/v1/runs/{}/tokens", run.id), body).await.is(201);
        made["token"].as_str().unwrap().to_owned()
    };
    let (reader, auditor) = (token("file:read").await, token("audit:read").await);
    assert!(server.stop().success());
    server.restart();
    let (run, other) = (server.reconnect(&run), server.reconnect(&other));
    let path = format!("/v1/runs/{}/audit/inclusion?seq=1", run.id);
    let with = |token: &str| run.agent.with_token(Some(token));
    with(&auditor).get(&path).await.ok();
    with(&reader).get(&path).await.refused("FORBIDDEN");
    other.agent.get(&path).await.refused("FORBIDDEN");
    server.nobody().get(&path).await.refused("UNAUTHENTICATED");
    for path in ["/v1/checkpoint", "/v1/checkpoint/key", "/v1/checkpoint/consistency?from=1"] {
        with(&auditor).get(path).await.refused("FORBIDDEN");
        server.nobody().get(path).await.refused("UNAUTHENTICATED");
        assert_eq!(server.auditor().get(path).await.status, 200, "{path}");
    }
}

#[rstest]
#[tokio::test]
async fn enough_records_are_signed_before_the_interval_ends(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let server = signing_at_shutdown(backend).await;
    let run = server.run(json!({})).await;
    let reads = vec![json!({"tool": "list_dir", "input": {"path": "."}}); 100];
    for _ in 0..10 {
        run.batch(json!(reads)).await.ok();
    }
    until_covered(&run, 1000).await;
}

#[rstest]
#[tokio::test]
async fn shutdown_signs_new_records_and_nothing_else(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = signing_at_shutdown(backend).await;
    assert!(server.stop().success());
    assert_eq!(log_of(&server), "", "an empty log was signed");
    server.restart();
    let run = server.run(json!({})).await;
    run.create("a.txt", "x\n").await;
    assert!(server.stop().success());
    let log = log_of(&server);
    assert_eq!(log.lines().nth(1), Some("1"), "{log}");
    server.restart();
    let run = server.reconnect(&run);
    run.operator.get("/v1/checkpoint").await;
    assert!(server.stop().success());
    assert_eq!(log_of(&server), log, "an unchanged log was signed again");
    let done = server.verify(&[]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
    assert!(String::from_utf8_lossy(&done.stdout).contains("checkpoints: intact, 1 over 1 leaves"), "{done:?}");
}

#[rstest]
#[case::stored("checkpoint.stored")]
#[case::written("checkpoint.written")]
#[tokio::test]
async fn a_kill_while_signing_loses_no_checkpoint(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
    #[case] failpoint: &str,
) {
    let setup =
        Setup::new(backend).arg("--checkpoint-seconds", 1).env("WORKSPACED_FAILPOINT", &format!("{failpoint}:2"));
    let mut server = Server::start_with(setup).await;
    let run = server.run(json!({})).await;
    run.create("a.txt", "x\n").await;
    until_covered(&run, 1).await;
    run.create("b.txt", "x\n").await;
    until_blocking(&format!("the server is killed at {failpoint}"), || server.was_killed());
    let done = server.verify(&[]);
    assert_eq!(done.status.code(), Some(0), "an interrupted round was reported: {done:?}");
    server.setup.env.clear();
    server.restart();
    let run = server.reconnect(&run);
    until_covered(&run, 2).await;
    let (note, log) = (server.auditor().get("/v1/checkpoint").await.text(), log_of(&server));
    assert_eq!(log.matches("\n\n— ").count(), 2, "{log}");
    assert!(log.ends_with(&format!("{note}\n")), "{log}");
    assert!(server.stop().success());
    let done = server.verify(&[]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");
}

#[rstest]
#[tokio::test]
async fn a_partial_last_entry_of_the_file_is_repaired(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = signing_at_shutdown(backend).await;
    let run = server.run(json!({})).await;
    run.create("a.txt", "x\n").await;
    assert!(server.stop().success());
    let (path, whole) = (server.data_dir().join("checkpoints.log"), log_of(&server));
    for torn in [&whole[..whole.len() - 1], &whole[..whole.len() / 2], &whole[..3], &format!("{whole}{}", &whole[..20])]
    {
        std::fs::write(&path, torn).unwrap();
        let done = server.verify(&[]);
        assert_eq!(done.status.code(), Some(0), "{torn:?}: {done:?}");
        server.restart();
        assert!(server.stop().success());
        assert_eq!(log_of(&server), whole, "{torn:?}");
    }
}

#[rstest]
#[tokio::test]
async fn the_key_is_created_once_with_owner_permissions_and_may_be_configured(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    use std::os::unix::fs::PermissionsExt as _;
    let mut server = signing_at_shutdown(backend).await;
    let public_key = server.auditor().get("/v1/checkpoint/key").await.text();
    let path = server.data_dir().join("checkpoint.key");
    let secret = std::fs::read_to_string(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(SignerKey::parse(&secret).unwrap().verifier_key().to_text(), public_key.trim());
    assert!(!server.log().contains(secret.trim()), "the log contains the private key");
    server.run(json!({})).await.create("a.txt", "x\n").await;
    assert!(server.stop().success());
    server.restart();
    assert_eq!(
        server.auditor().get("/v1/checkpoint/key").await.text(),
        public_key,
        "the key changed at the next start"
    );
    assert!(server.stop().success());

    let other = SignerKey::from_seed("elsewhere.example/log", &[9; 32]).unwrap();
    let mut command = server.command("serve");
    let refused = command.args(["--listen", "127.0.0.1:0"]).env("WORKSPACED_CHECKPOINT_KEY", other.to_text());
    let refused = refused.output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("another key or origin"), "{refused:?}");
    let done = server.verify(&["--checkpoint-verifier-key", &other.verifier_key().to_text()]);
    assert_eq!(done.status.code(), Some(1), "signed by another key: {done:?}");
    let done = server.verify(&["--checkpoint-verifier-key", public_key.trim()]);
    assert_eq!(done.status.code(), Some(0), "{done:?}");

    let given = Server::start_with(Setup::new(backend).env("WORKSPACED_CHECKPOINT_KEY", &other.to_text())).await;
    let public_key = given.auditor().get("/v1/checkpoint/key").await.text();
    assert_eq!(public_key.trim(), other.verifier_key().to_text());
    assert!(!given.data_dir().join("checkpoint.key").exists());
}

#[tokio::test]
async fn the_first_key_can_be_made_for_a_log_with_a_chosen_name() {
    let mut server = Server::prepare(Setup::new(Backend::Sqlite)).await;
    let create = |origin: &str| server.command("key").args(["create", "--origin", origin]).output().unwrap();
    let refused = create("two words");
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--origin `two words`"), "{refused:?}");
    let made = create("here.example/log");
    assert!(made.status.success(), "{made:?}");
    let refused = create("other.example/log");
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("has keys already"), "{refused:?}");
    server.restart();
    let public_key = server.auditor().get("/v1/checkpoint/key").await.text();
    assert!(public_key.starts_with("here.example/log+"), "{public_key}");
    assert_eq!(String::from_utf8_lossy(&made.stdout).lines().last(), Some(public_key.trim()));
}

/// The service does not replace a lost key while checkpoints are signed with it.
#[rstest]
#[tokio::test]
async fn a_lost_key_prevents_the_start(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let mut server = signing_at_shutdown(backend).await;
    server.run(json!({})).await.create("a.txt", "x\n").await;
    assert!(server.stop().success());
    let key = server.data_dir().join("checkpoint.key");
    std::fs::remove_file(&key).unwrap();
    let done = server.command("serve").args(["--listen", "127.0.0.1:0"]).output().unwrap();
    let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(2), "{stderr}");
    assert!(stderr.lines().last().unwrap().contains("put it back"), "{stderr}");
    assert!(!key.exists());
}

#[rstest]
#[tokio::test]
async fn an_unusable_checkpoint_file_prevents_the_start_with_one_line(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let server = Server::prepare(Setup::new(backend)).await;
    let notes = server.home.join("notes.txt");
    std::fs::write(&notes, "my notes\n").unwrap();
    let nowhere = server.home.join("none/such.log");
    for file in [&nowhere, &notes] {
        let mut command = server.command("serve");
        let done = command.args(["--listen", "127.0.0.1:0", "--checkpoint-file"]).arg(file).output().unwrap();
        let stderr = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(1), "{stderr}");
        assert!(stderr.lines().last().unwrap().contains("--checkpoint-file"), "{stderr}");
    }
    assert_eq!(
        std::fs::read_to_string(&notes).unwrap(),
        "my notes\n",
        "a file that contains no checkpoints was changed"
    );
}
