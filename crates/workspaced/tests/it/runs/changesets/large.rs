//! Change sets with contents that are too large to be in memory.

use std::os::unix::fs::PermissionsExt as _;

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};
use tar::EntryType;
use tokio::task::JoinSet;

use super::{Layer, head, runner, send, with};
use crate::harness::{Backend, Server, Setup, assert_tmp_is_empty, exhaustive, incompressible, sha256};

const MIB: usize = 1 << 20;

/// Three files of 20 MiB that cannot be compressed, and 200 small ones.
fn large_layer() -> (Vec<Vec<u8>>, Vec<u8>) {
    let large: Vec<_> = (0..3).map(|number| [vec![number, 0], incompressible(20 * MIB)].concat()).collect();
    let layer = (0..200).fold(Layer::new(), |layer, n| layer.file(&format!("src/f{n}.txt"), format!("{n}\n")));
    let layer = large.iter().enumerate().fold(layer, |layer, (n, bytes)| {
        layer.entry(&format!("data/{n}.bin"), EntryType::Regular, if n == 0 { 0o755 } else { 0o644 }, bytes)
    });
    (large, layer.file(".wh.gone.txt", "").bytes())
}

fn policy() -> Value {
    json!({"policy": {"allowModeChange": true}})
}

#[rstest]
#[tokio::test]
async fn a_set_has_large_files_beside_small_ones(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let server = Server::start(backend).await;
    let run = server.run_with_files(&[("gone.txt", "g\n"), ("data/2.bin", "old\n")], policy()).await;
    let runner = runner(&run, &[]).await;
    let (large, layer) = large_layer();
    let set = json!({"changesetId": "cs", "basedOnSeq": head(&run).await, "reason": "fetch",
        "command": {"argv": ["fetch"], "exitCode": 0}});
    let dry = with(&set, &json!({"changesetId": "dry", "dryRun": true}));
    assert_eq!(send(&runner, &dry, &layer).await.ok()["applied"].as_array().unwrap().len(), 204);
    assert_tmp_is_empty(&server, &run).await;
    let (answer, growth) = server.peak_growth(send(&runner, &set, &layer)).await;
    let answer = answer.ok();
    assert_eq!(answer["applied"].as_array().unwrap().len(), 204, "{answer:#}");
    for (number, bytes) in large.iter().enumerate() {
        let path = run.repo.join(format!("data/{number}.bin"));
        assert!(std::fs::read(&path).unwrap() == *bytes, "{number}");
        let mode = if number == 0 { 0o755 } else { 0o644 };
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, mode);
    }
    assert_eq!(run.on_disk("src/f199.txt"), "199\n");
    // The part of the layer that is in memory, and buffers.
    assert!(growth < 48 << 20, "{} MiB", growth >> 20);
    let record = run.last_record().await;
    let file = record["files"].as_array().unwrap().iter().find(|file| file["path"] == "data/1.bin").unwrap();
    assert_eq!((&file["newSha256"], &file["kind"]), (&json!(sha256(&large[1])), &json!("BINARY")));
    assert!(!run.has("gone.txt").await);
    server.until_journal_is_empty().await;
    assert_tmp_is_empty(&server, &run).await;
    // Again it is the same set, and one that has nothing new.
    assert_eq!(send(&runner, &set, &layer).await.ok(), answer);
    let again = json!({"basedOnSeq": head(&run).await, "reason": "again"});
    assert_eq!(send(&runner, &again, &layer).await.ok()["applied"], json!([]));
    assert_tmp_is_empty(&server, &run).await;
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn what_is_too_large_is_refused_with_its_limit_and_leaves_nothing(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let server = Server::start(backend).await;
    let limit = 70 * MIB;
    let policy = json!({"policy": {"maxTransferBytes": limit, "quota": {"maxTreeBytes": 150 * MIB}}});
    let run = server.run_with_files(&[("a.txt", "a\n")], policy).await;
    let runner = runner(&run, &[]).await;
    let set = json!({"basedOnSeq": head(&run).await, "reason": "r", "command": {"argv": ["make"], "exitCode": 0}});
    let packed = |layer: Layer| zstd::encode_all(&layer.bytes()[..], 1).unwrap();
    let zeros = |bytes: usize| vec![0; bytes];
    let command = async || {
        let records = run.audit().await;
        records[records.len() - 2..].iter().any(|record| record["tool"] == "event.command")
    };
    // A set of files that are not too large each.
    let layer = packed((0..8).fold(Layer::new(), |layer, n| layer.file(&format!("{n}.bin"), zeros(9 * MIB))));
    let refused = send(&runner, &set, &layer).await.refused("INVALID_REQUEST");
    assert_eq!(refused["limit"], json!(limit), "{refused:#}");
    assert!(refused["hint"].as_str().unwrap().contains("several sets"), "{refused:#}");
    assert!(command().await, "the command was run all the same");
    // A file.
    let layer = || Layer::new().file("b.txt", "b\n").file("c.bin", zeros(limit + 1));
    let refused = send(&runner, &set, &packed(layer())).await.refused("FILE_TOO_LARGE");
    assert_eq!((&refused["path"], &refused["limit"]), (&json!("c.bin"), &json!(limit)), "{refused:#}");
    assert!(refused["hint"].as_str().unwrap().contains("maxTransferBytes"), "{refused:#}");
    // A text, which would be searched and compared.
    let text = "0123456789abcde\n".repeat(MIB);
    let refused = send(&runner, &set, &packed(Layer::new().file("t.txt", &text))).await.refused("FILE_TOO_LARGE");
    assert_eq!((&refused["path"], &refused["limit"]), (&json!("t.txt"), &json!(MIB)), "{refused:#}");
    // As it is sent.
    let refused = send(&runner, &set, &incompressible(limit + MIB)).await.refused("BODY_TOO_LARGE");
    assert_eq!(refused["limit"], json!(limit + 256 * 1024), "{refused:#}");
    // A credential in a file that nobody looks into.
    let secret = [b"\0".to_vec(), zeros(9 * MIB), format!("ghp_{}", "a1".repeat(18)).into_bytes()].concat();
    send(&runner, &set, &packed(Layer::new().file("s.bin", &secret))).await.refused("POLICY_DENIED_SECRET");
    assert_eq!(run.files().into_keys().collect::<Vec<_>>(), ["a.txt"]);
    assert_tmp_is_empty(&server, &run).await;
    // What is denied is left, and the rest is taken.
    let leave = with(&set, &json!({"onDenied": "leave", "basedOnSeq": head(&run).await}));
    let layer = layer().file("s.bin", &secret).file("t.txt", &text).file("d.bin", zeros(10 * MIB));
    let refused = send(&runner, &leave, &packed(layer)).await.ok();
    let left: Vec<_> = refused["left"].as_array().unwrap().iter().map(|left| left["path"].as_str().unwrap()).collect();
    assert_eq!((&refused["applied"], left), (&json!(["b.txt", "d.bin"]), vec!["c.bin", "s.bin", "t.txt"]));
    assert_tmp_is_empty(&server, &run).await;
    // The disk space of the run: of the layer as it is sent, and of the files.
    let set = with(&set, &json!({"basedOnSeq": head(&run).await}));
    let layer = (0..3).fold(Layer::new(), |layer, n| layer.file(&format!("{n}.bin"), incompressible(20 * MIB)));
    let full = layer.bytes();
    send(&runner, &set, &full).await.ok();
    let layer = (3..6).fold(Layer::new(), |layer, n| layer.file(&format!("{n}.bin"), incompressible(20 * MIB)));
    let refused = send(&runner, &set, &layer.bytes()).await.refused("QUOTA_EXCEEDED");
    assert_eq!(refused["reasons"], json!(["quota:maxTreeBytes"]));
    assert!(command().await, "the command was run all the same");
    assert_tmp_is_empty(&server, &run).await;
    assert_eq!(run.verify().await["intact"], true);
}

/// Its layer takes disk space as it is received, which the run may have no more once the set is applied.
#[rstest]
#[tokio::test]
async fn a_large_set_that_is_sent_again_is_answered_as_before_although_the_quota_is_used_up(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let server = Server::start(backend).await;
    let policy = json!({"policy": {"maxTransferBytes": 70 * MIB, "quota": {"maxTreeBytes": 100 * MIB}}});
    let run = server.run_with_files(&[("a.txt", "a\n")], policy).await;
    let runner = runner(&run, &[]).await;
    let set = json!({"changesetId": "big", "basedOnSeq": head(&run).await, "reason": "r"});
    let large = |name: &str, mib: usize| Layer::new().file(name, incompressible(mib * MIB)).bytes();
    let layer = large("big.bin", 40);
    let answer = send(&runner, &set, &layer).await.ok();
    let other = json!({"basedOnSeq": head(&run).await, "reason": "r"});
    send(&runner, &other, &large("other.bin", 25)).await.ok();
    assert_eq!(send(&runner, &set, &layer).await.ok(), answer);
    send(&runner, &set, &large("another.bin", 40)).await.refused("TOOL_CALL_ID_REUSED");
    send(&runner, &other, &large("another.bin", 40)).await.refused("QUOTA_EXCEEDED");
    assert_tmp_is_empty(&server, &run).await;
}

/// A set that has memory needs a permit to end, so one that waits for memory must not hold it.
#[tokio::test]
async fn sets_that_wait_for_memory_do_not_hold_what_others_need() {
    let setup = Setup::new(Backend::Sqlite).arg("--concurrency", 1).arg("--max-memory-bytes", 64 * MIB);
    let server = Server::start_with(setup).await;
    let policy = json!({"policy": {"commandBudget": {"maxFilesTouched": 5000, "maxBytes": 1 << 30, "maxInsertions": 100_000_000}}});
    let run = server.run_with_files(&[("a.txt", "a\n")], policy).await;
    let (runner, based_on) = (runner(&run, &[]).await, head(&run).await);
    let text = "0123456789abcde\n".repeat(MIB / 32);
    let mut sets = JoinSet::new();
    for set in 0..5 {
        let layer = (0..40).fold(Layer::new(), |layer, file| layer.file(&format!("{set}/{file}.txt"), &text));
        let layer = zstd::encode_all(&layer.bytes()[..], 1).unwrap();
        let (runner, set) = (runner.clone(), json!({"basedOnSeq": based_on, "reason": "r"}));
        sets.spawn(async move { send(&runner, &set, &layer).await });
    }
    while let Some(answer) = sets.join_next().await {
        assert_eq!(answer.unwrap().ok()["applied"].as_array().unwrap().len(), 40);
    }
}

/// Binary files do not crowd out the texts, which are compared and shown, and not any number of files is staged.
#[tokio::test]
async fn texts_are_texts_behind_large_binary_files_and_files_of_their_own_are_bounded() {
    let server = Server::start(Backend::Sqlite).await;
    let policy = json!({"policy": {"commandBudget": {"maxFilesTouched": 5000, "maxBytes": 1 << 30}}});
    let run = server.run_with_files(&[("z.txt", "one\n")], policy).await;
    let runner = runner(&run, &[]).await;
    let packed = |layer: Layer| zstd::encode_all(&layer.bytes()[..], 1).unwrap();
    let binaries = || (0..9).fold(Layer::new(), |layer, n| layer.file(&format!("{n}.bin"), vec![0; 8 * MIB]));
    let set = json!({"changesetId": "cs", "basedOnSeq": head(&run).await, "reason": "r"});
    let applied = send(&runner, &set, &packed(binaries().file("z.txt", "two\n"))).await.ok();
    assert_eq!((&applied["insertions"], &applied["deletions"]), (&json!(1), &json!(1)), "{applied:#}");
    let uri = applied["artifactUris"][0].as_str().unwrap();
    let id = uri.rsplit('/').next().unwrap();
    let diff = run.operator.get(&format!("/v1/runs/{}/artifacts/{id}", run.id)).await.text();
    assert!(diff.contains("-one\n+two\n"), "{diff}");
    run.ok("revert_calls", json!({"toolCallIds": ["cs"], "reason": "r", "dryRun": true})).await;

    let many =
        |count: usize| (0..count).fold(binaries(), |layer, n| layer.file(&format!("m/{n}.bin"), format!("{n}\0")));
    let set = json!({"basedOnSeq": head(&run).await, "reason": "r"});
    let refused = send(&runner, &set, &packed(many(1100))).await.refused("PATCH_BUDGET_EXCEEDED");
    assert!(refused["message"].as_str().unwrap().contains("do not fit into memory"), "{refused:#}");
    assert_tmp_is_empty(&server, &run).await;
}

/// A file of 12 MiB that cannot be compressed, which is staged, and 200 small ones.
fn waiting_layer() -> (Vec<u8>, Vec<u8>) {
    let large = incompressible(12 * MIB);
    let layer = (0..200).fold(Layer::new(), |layer, n| layer.file(&format!("src/f{n}.txt"), format!("{n}\n")));
    let layer = layer.entry("data/0.bin", EntryType::Regular, 0o755, &large);
    (large, layer.file(".wh.gone.txt", "").bytes())
}

#[rstest]
#[tokio::test]
async fn a_large_set_waits_with_its_contents(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut server = Server::start(backend).await;
    let policy = with(&policy()["policy"], &json!({"requireApprovalIf": ["deletesFile"]}));
    let (large, layer) = waiting_layer();
    for verb in ["deny", "approve"] {
        let run = server.run_with_files(&[("gone.txt", "g\n")], json!({"policy": policy})).await;
        let runner = runner(&run, &[]).await;
        let set = json!({"changesetId": "cs", "basedOnSeq": head(&run).await, "reason": "fetch"});
        let asked = send(&runner, &set, &layer).await.refused("APPROVAL_REQUIRED");
        let id = asked["approvalId"].as_str().unwrap();
        assert_tmp_is_empty(&server, &run).await;
        let shown = run.operator.get(&format!("/v1/approvals/{id}")).await.ok();
        assert!(shown["diff"].as_str().unwrap().contains("data/0.bin"), "a binary file is named");
        server.kill();
        server.restart();
        let run = server.reconnect(&run);
        run.ok("list_dir", json!({})).await;
        run.operator.post(&format!("/v1/approvals/{id}/{verb}"), json!({"onBehalfOf": "ada"})).await.ok();
        if verb == "approve" {
            assert!(std::fs::read(run.file("data/0.bin")).unwrap() == large);
            assert_eq!(run.present_files().await.len(), 201);
        } else {
            assert_eq!(run.present_files().await.into_keys().collect::<Vec<_>>(), ["gone.txt"]);
        }
        server.until_journal_is_empty().await;
        assert_tmp_is_empty(&server, &run).await;
        assert_eq!(run.verify().await["intact"], true);
    }
    // One with more than is stored with an approval, although it is small as it is sent.
    let run = server.run_with_files(&[("gone.txt", "g\n")], json!({"policy": policy})).await;
    let runner = runner(&run, &[]).await;
    let layer = Layer::new().file("a.bin", vec![0; 9 * MIB]).file("b.bin", vec![0; 9 * MIB]).file(".wh.gone.txt", "");
    let layer = zstd::encode_all(&layer.bytes()[..], 1).unwrap();
    let set = json!({"basedOnSeq": head(&run).await, "reason": "fetch"});
    let refused = send(&runner, &set, &layer).await.refused("FILE_TOO_LARGE");
    assert_eq!((&refused["limit"], &refused["actual"]), (&json!(16 * MIB), &json!(18 * MIB)), "{refused:#}");
    assert!(refused["hint"].as_str().unwrap().contains("several change sets"), "{refused:#}");
    assert_eq!(run.get().await["counts"]["pendingApprovals"], 0);
    assert_tmp_is_empty(&server, &run).await;
}

#[rstest]
#[tokio::test]
async fn a_kill_while_a_large_set_waits_leaves_it(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let (mut server, armed) = Server::start_armed(Setup::new(backend)).await;
    let layer =
        Layer::new().file("0.bin", incompressible(9 * MIB)).file("1.bin", "1\n").file(".wh.gone.txt", "").bytes();
    for (failpoint, is_decided) in
        [("transaction.staged", false), ("transaction.committed", true), ("apply.step:2", true)]
    {
        let policy = json!({"policy": {"requireApprovalIf": ["deletesFile"]}});
        let run = server.run_with_files(&[("gone.txt", "g\n")], policy).await;
        let runner = runner(&run, &[]).await;
        let set = json!({"basedOnSeq": head(&run).await, "reason": "fetch"});
        server.until_journal_is_empty().await;
        let asked = send(&runner, &set, &layer).await.refused("APPROVAL_REQUIRED");
        let path = format!("/v1/approvals/{}/approve", asked["approvalId"].as_str().unwrap());
        std::fs::write(&armed, failpoint).unwrap();
        let request = run.operator.request(Method::POST, &path).json(&json!({"onBehalfOf": "ada"}));
        assert!(run.operator.try_send(request).await.is_err(), "{failpoint} was not passed");
        server.wait();
        std::fs::remove_file(&armed).unwrap();
        server.restart();
        let run = server.reconnect(&run);
        run.ok("list_dir", json!({})).await;
        assert_eq!(run.present_files().await.len(), if is_decided { 2 } else { 1 }, "{failpoint}");
        if !is_decided {
            run.operator.post(&path, json!({"onBehalfOf": "ada"})).await.ok();
            assert_eq!(run.present_files().await.len(), 2, "{failpoint}");
        }
        server.until_journal_is_empty().await;
        assert_tmp_is_empty(&server, &run).await;
        assert_eq!(run.verify().await["intact"], true, "{failpoint}");
    }
}
