//! Changed or missing data in the ledger, the base or the workspace is reported and never used.

use std::path::Path;
use std::process::Output;

use rstest::rstest;
use serde_json::json;

use crate::harness::{Backend, Run, Server, exhaustive, files_in, sha256};
use crate::operation::replay_and_repair::{assert_ends, broken_run, offline, output_of, put};

/// Returns a stopped server whose run has written `a.txt` twice and `b.txt` once. The triggers that protect the tables are
/// dropped.
async fn written(backend: Backend) -> (Server, Run) {
    let mut server = Server::start(backend).await;
    let run = server.run_with_files(&[("base.txt", "base\n")], json!({})).await;
    run.create("a.txt", "first\n").await;
    run.replace("a.txt", "second\n", &sha256("first\n")).await.ok();
    put(&run, "b.txt", None, b"b\n").await;
    assert!(server.stop().success());
    server.database.drop_triggers().await;
    (server, run)
}

fn replay(server: &Server, run: &Run, to: &Path) -> Output {
    offline(server, "replay", &["--run", &run.id, "--to", &to.display().to_string()])
}

fn hex(text: &str) -> String {
    text.bytes()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

impl Server {
    /// Replaces the stored content `bytes` with `other`.
    async fn tamper_content(&self, run: &Run, bytes: &str, other: &str) {
        let (sha256, other) = (self.bytes(&sha256(bytes)), self.bytes(&hex(other)));
        let sql = format!("update content set bytes = {other} where run_no = {{run}} and sha256 = {sha256}");
        self.rewrite(run, &[&sql]).await;
    }
}

#[rstest]
#[tokio::test]
async fn a_changed_ledger_is_reported_by_the_chain(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (server, run) = written(backend).await;
    assert_ends(
        &replay(&server, &run, &server.home.join("whole")),
        0,
        &["intact, 4 records", "the workspace is equal"],
    );
    // Record, content and file are consistent. Only the chain reveals the change.
    let (old, new) = (sha256("b\n"), sha256("forged\n"));
    let record =
        format!("update audit_record set body = replace(body, '{old}', '{new}') where seq = 4 and run_no = {{run}}");
    let content = format!(
        "update content set bytes = {}, sha256 = {} where run_no = {{run}} and sha256 = {}",
        server.bytes(&hex("forged\n")),
        server.bytes(&new),
        server.bytes(&old)
    );
    let version =
        format!("update newest_version set sha256 = {} where run_no = {{run}} and path = 'b.txt'", server.bytes(&new));
    server.rewrite(&run, &[&record, &content, &version]).await;
    run.put("b.txt", "forged\n");
    let broken = format!("{}: BROKEN at seq 4: ", run.id);
    let done = replay(&server, &run, &server.home.join("forged"));
    assert_ends(&done, 1, &[&broken, "proves nothing", "rebuilt 3 files", "the workspace is equal"]);
    assert!(output_of(&done).starts_with(&broken), "the first line is not about the chain: {}", output_of(&done));
}

#[rstest]
#[tokio::test]
async fn a_base_that_differs_from_the_recorded_one_is_reported(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (server, run) = written(backend).await;
    let other = "0123456789abcdef0123456789abcdef01234567";
    server.rewrite(&run, &[&format!("update run set base_commit = '{other}' where run_no = {{run}}")]).await;
    let done = replay(&server, &run, &server.home.join("rebuilt"));
    assert_ends(&done, 1, &["the base DIFFERS", other, "the workspace is equal"]);
}

#[rstest]
#[tokio::test]
async fn missing_content_is_distinguished_from_content_that_was_never_stored(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (mut server, run) = written(backend).await;
    server.restart();
    put(&server.reconnect(&run), "large.bin", None, &vec![7; (1 << 20) + 1]).await;
    assert!(server.stop().success());
    // What the workspace has of it would be taken from there.
    run.put("large.bin", "lost");
    server.database.drop_triggers().await;
    server.rewrite(&run, &["delete from content where run_no = {run}"]).await;
    let done = replay(&server, &run, &server.home.join("rebuilt"));
    let lines = [
        "not rebuilt, because it was too large to be stored: large.bin",
        "not rebuilt, because its content is missing from the ledger: a.txt",
        "not rebuilt, because its content is missing from the ledger: b.txt",
        "record 2: the content is missing from the ledger: a.txt",
    ];
    assert_ends(&done, 1, &lines);
}

#[rstest]
#[tokio::test]
async fn every_stored_version_is_checked(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let (server, run) = written(backend).await;
    server.tamper_content(&run, "first\n", "forged\n").await;
    let done = replay(&server, &run, &server.home.join("earlier"));
    let changed = "record 2: the content in the ledger was changed: a.txt";
    assert_ends(&done, 1, &["every hash matches the ledger", changed, "the workspace is equal"]);
    server.tamper_content(&run, "second\n", "forged\n").await;
    let done = replay(&server, &run, &server.home.join("newest"));
    assert_ends(&done, 1, &["NOT ALL", "the content does not match the ledger's hash: a.txt", changed]);
}

#[rstest]
#[tokio::test]
async fn missing_parts_of_a_run_are_reported(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
    #[values("repo", "tmp", "base", "manifest", "contents", ".")] part: &str,
) {
    let (server, run) = written(backend).await;
    let tree = run.files();
    let folder = if ["manifest", "contents"].contains(&part) { run.base() } else { server.workspace(&run.id) };
    std::fs::rename(folder.join(part).canonicalize().unwrap(), server.home.join("away")).unwrap();
    let to = server.home.join("rebuilt");
    let done = replay(&server, &run, &to);
    if ["repo", "tmp"].contains(&part) {
        let missing = format!("the workspace is MISSING: `{part}` is missing");
        assert_ends(&done, 1, &["intact, 4 records", "every hash matches the ledger", &missing]);
        assert_eq!(files_in(&to), tree);
    } else {
        let gone = if part == "." { "the run's folder is missing".to_owned() } else { format!("`{part}` is missing") };
        assert_ends(&done, 1, &["intact, 4 records", "the base is MISSING", &gone]);
        assert!(!to.exists());
    }
}

#[rstest]
#[tokio::test]
async fn replay_refuses_a_target_in_the_data_folder(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let (server, run) = written(backend).await;
    let data = server.data_dir();
    std::fs::create_dir(data.join("empty")).unwrap();
    std::os::unix::fs::symlink(data.join("empty"), server.home.join("link")).unwrap();
    let targets = ["new", "empty", "empty/new", "empty/../new"].map(|name| data.join(name));
    for target in targets.iter().chain([&run.repo, &run.repo.join("new"), &data, &server.home.join("link")]) {
        assert_ends(&replay(&server, &run, target), 2, &["--to", "lies in the data folder"]);
    }
    assert!(!data.join("new").exists() && !run.repo.join("new").exists());
    assert!(files_in(&data.join("empty")).is_empty());
}

#[rstest]
#[tokio::test]
async fn changed_content_of_the_ledger_is_not_returned(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (mut server, run) = written(backend).await;
    server.tamper_content(&run, "first\n", "forged\n").await;
    server.restart();
    let run = server.reconnect(&run);
    let records = run.audit().await;
    let undo = json!({"toolCallIds": [records[2]["toolCallId"]], "reason": "r", "toolCallId": "undo"});
    run.call("revert_calls", undo).await.refused("INTERNAL");
    run.call("read_file", json!({"path": "a.txt", "atSeq": 2})).await.refused("INTERNAL");
    assert_eq!(run.on_disk("a.txt"), "second\n");
    let newer = &run.audit().await[records.len()..];
    assert_eq!(newer.len(), 2);
    for record in newer {
        assert_eq!((&record["outcome"], &record["code"]), (&json!("failed"), &json!("INTERNAL")), "{record:#}");
    }
    assert!(server.log().contains(&format!("record 2 of {} does not match its hash", run.id)), "{}", server.log());
}

#[rstest]
#[tokio::test]
async fn a_pending_change_with_changed_content_is_not_applied(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
    #[values(false, true)] are_gone: bool,
) {
    let (mut server, other, _) = broken_run(backend).await;
    let run = server.run_with_files(&[("a.txt", "a\n"), ("c.txt", "c\n")], json!({})).await;
    let input = json!({"path": "a.txt", "content": "A\n", "expectedSha256": sha256("a\n"), "reason": "r"});
    server.kill_before_apply(&run, "write_file", &input).await;
    server.database.drop_triggers().await;
    if are_gone {
        server.rewrite(&run, &["delete from content where run_no = {run}"]).await;
    } else {
        server.tamper_content(&run, "A\n", "forged\n").await;
    }
    server.restart();
    let run = server.reconnect(&run);
    assert_eq!(run.on_disk("a.txt"), "a\n");
    run.replace("c.txt", "C\n", &sha256("c\n")).await.refused("RUN_NEEDS_REPAIR");
    assert_eq!(run.ok("read_file", json!({"path": "a.txt"})).await["sha256"], sha256("a\n"));
    assert!(server.log().contains(&format!("record 2 of {} does not match its hash", run.id)), "{}", server.log());
    server.reconnect(&other).get().await;
    assert!(server.stop().success());
    let repair = ["--run", run.id.as_str(), "--yes", "--accept"];
    let forged = offline(&server, "repair", &[&repair[..], &["ledger"]].concat());
    assert_ends(&forged, 1, if are_gone { &[] } else { &["does not match its hash"] });
    assert_eq!(run.on_disk("a.txt"), "a\n");
    assert_ends(&offline(&server, "repair", &[&repair[..], &["tree"]].concat()), 0, &["accepts mutations again"]);
}

#[rstest]
#[case::of_another_file("update step set path = 'c.txt', before_sha256 = {c} where run_no = {run}")]
#[case::with_other_bytes("update step set after_sha256 = {forged} where run_no = {run}")]
#[case::of_another_record("update step set seq = 2 where run_no = {run}")]
#[case::of_no_record("update step set seq = 9 where run_no = {run}")]
#[tokio::test]
async fn a_pending_change_that_contradicts_its_record_is_not_applied(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
    #[case] forge: &str,
) {
    let mut server = Server::start(backend).await;
    let run = server.run_with_files(&[("a.txt", "a\n"), ("c.txt", "c\n")], json!({})).await;
    run.create("first.txt", "first\n").await;
    server.until_journal_is_empty().await;
    let input = json!({"path": "a.txt", "content": "A\n", "expectedSha256": sha256("a\n"), "reason": "r"});
    server.kill_before_apply(&run, "write_file", &input).await;
    server.database.drop_triggers().await;
    let (c, forged) = (server.bytes(&sha256("c\n")), server.bytes(&sha256("forged\n")));
    if forge.contains("forged") {
        // The content matches the step. Only the record reveals the change.
        let other = server.bytes(&hex("forged\n"));
        let whose = server.bytes(&sha256("A\n"));
        let content = format!(
            "update content set bytes = {other}, sha256 = {forged} where run_no = {{run}} and sha256 = {whose}"
        );
        server.rewrite(&run, &[&content]).await;
    }
    server.rewrite(&run, &[&forge.replace("{c}", &c).replace("{forged}", &forged)]).await;
    server.restart();
    let run = server.reconnect(&run);
    run.call("read_file", json!({"path": "a.txt"})).await;
    // A journal without the step of a recorded change does not reach back to the files: they are made again from the records.
    let present = if forge.contains("seq = ") { "A\n" } else { "a\n" };
    assert_eq!((run.on_disk("a.txt"), run.on_disk("c.txt")), (present.into(), "c\n".into()));
    run.replace("c.txt", "C\n", &sha256("c\n")).await.refused("RUN_NEEDS_REPAIR");
    assert!(server.log().contains("does not match record"), "{}", server.log());
}

/// As a container that checks the volume of another one.
#[tokio::test]
async fn a_data_folder_that_cannot_be_written_to_is_verified() {
    let mounts = ["--mount", "--propagation", "private"];
    let tried = std::process::Command::new("unshare").args(mounts).arg("true").output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        println!("SKIPPED: nothing may be mounted here");
        return;
    }
    let mut server = Server::start(Backend::Postgres).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    run.replace("a.txt", "b\n", &sha256("a\n")).await.ok();
    assert!(server.stop().success());
    let verify = server.command("verify");
    let mut command = std::process::Command::new("unshare");
    let script = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && exec \"$@\"";
    command.args(mounts).args(["sh", "-c", script]).arg(server.data_dir());
    command.arg(verify.get_program()).args(verify.get_args());
    command.envs(verify.get_envs().filter_map(|(name, value)| Some((name, value?))));
    assert_ends(&command.output().unwrap(), 0, &["1 runs, 0 broken"]);
}
