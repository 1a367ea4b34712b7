//! One database, one data folder and one writing process. Copies of the database or the folder are detected.

use std::process::Command;

use rstest::rstest;
use serde_json::json;

use crate::audit::checkpoints::{signing_at_shutdown, until_covered};
use crate::harness::{Backend, Server, Setup, exhaustive};
use crate::operation::replay_and_repair::{assert_ends, offline};

/// Prepares a server on a copy of the data folder of `server` and on the same database.
async fn copy_of(server: &Server) -> Server {
    let mut copy = Server::prepare(server.setup.clone()).await;
    std::fs::remove_dir_all(copy.data_dir()).unwrap();
    let copied = Command::new("cp").arg("-a").args([server.data_dir(), copy.data_dir()]).status().unwrap();
    assert!(copied.success());
    copy.database = server.database.clone();
    copy.operator_token.clone_from(&server.operator_token);
    copy.audit_token.clone_from(&server.audit_token);
    copy
}

/// Returns the error line of a refused start on this server's data.
pub(crate) fn refused(server: &Server) -> String {
    let done = server.command("serve").args(["--listen", "127.0.0.1:0"]).output().unwrap();
    let text = String::from_utf8_lossy(&done.stderr).into_owned();
    assert_eq!(done.status.code(), Some(2), "{text}");
    let mut lines = text.lines().filter(|line| line.starts_with("workspaced: "));
    let line = lines.next().unwrap_or_else(|| panic!("{text}")).to_owned();
    assert_eq!(lines.next(), None, "{text}");
    line
}

#[rstest]
#[tokio::test]
async fn a_start_succeeds_after_killed_starts(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut server = Server::start(backend).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    assert!(server.stop().success());
    for failpoint in ["instance.begun", "instance.stored", "instance.begun"] {
        let mut command = server.command("serve");
        command.args(["--listen", "127.0.0.1:0"]).env("WORKSPACED_FAILPOINT", failpoint);
        assert_eq!(command.output().unwrap().status.code(), None, "the process passed {failpoint}");
    }
    server.restart();
    assert!(!server.log().contains("older than"), "{}", server.log());
    server.reconnect(&run).create("b.txt", "b\n").await;
}

#[tokio::test]
async fn a_second_service_takes_over_the_database_and_the_first_commits_nothing() {
    let mut first = signing_at_shutdown(Backend::Postgres).await;
    let run = first.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    run.create("b.txt", "b\n").await;
    first.until_journal_is_empty().await;
    let mut second = copy_of(&first).await;
    second.restart();
    let taken_over = second.reconnect(&run);
    taken_over.create("second.txt", "x\n").await;

    let records = taken_over.audit().await.len();
    let refusal = run.call("write_file", json!({"path": "c.txt", "content": "c\n", "reason": "r"})).await;
    let refusal = refusal.refused("UNAVAILABLE");
    assert!(refusal["message"].as_str().unwrap().contains("another instance"), "{refusal:#}");
    run.call("read_file", json!({"path": "a.txt"})).await.refused("UNAVAILABLE");
    first.operator().post("/v1/runs", json!({"source": {"type": "empty"}})).await.refused("UNAVAILABLE");
    first.nobody().get("/readyz").await.refused("UNAVAILABLE");
    first.nobody().get("/healthz").await.is(200);
    assert!(first.log().contains("another instance of the service has taken over"), "{}", first.log());
    assert_eq!(taken_over.audit().await.len(), records);
    assert!(!first.repo(&run.id).join("c.txt").exists());

    // The folder of the first service is now the older copy.
    first.kill();
    assert!(refused(&first).contains("older copy"));
    taken_over.create("third.txt", "x\n").await;
    assert_eq!(taken_over.verify().await["intact"], true);
    second.nobody().get("/readyz").await.is(200);
    second.kill();
    second.restart();
    second.reconnect(&run).ok("read_file", json!({"path": "third.txt"})).await;
    for name in ["repair", "replay"] {
        let to = first.home.join("to").display().to_string();
        let args = if name == "replay" { vec!["--run", &run.id, "--to", &to] } else { vec!["--run", &run.id] };
        assert_ends(&offline(&first, name, &args), 2, &["older copy"]);
    }
}

/// The copy was made while the service was running, so no start distinguishes the two.
#[tokio::test]
async fn a_folder_that_lacks_checkpoints_of_its_database_is_an_older_copy() {
    let mut server = Server::start_with(Setup::new(Backend::Postgres).arg("--checkpoint-seconds", 1)).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let mut copies = Vec::new();
    for round in 0..3_u64 {
        copies.push(copy_of(&server).await);
        for number in 0..3 {
            run.create(&format!("{round}-{number}.txt"), "x\n").await;
        }
        until_covered(&run, 3 * (round + 1)).await;
    }
    server.until_journal_is_empty().await;
    server.kill();
    // The last copy lacks one checkpoint, like a folder after a kill.
    for copy in &copies {
        let refusal = refused(copy);
        assert!(refusal.contains("older copy") && !refusal.contains("database is older"), "{refusal}");
        assert_ends(&offline(copy, "repair", &[]), 2, &["older copy"]);
    }
    // The original folder still works, even after a kill between the writes to database and file.
    server.setup.env = vec![("WORKSPACED_FAILPOINT".into(), "checkpoint.stored".into())];
    server.restart();
    server.setup.env.clear();
    let last = json!({"path": "last.txt", "content": "x\n", "reason": "r"});
    let agent = server.reconnect(&run).agent;
    let last = agent.request(reqwest::Method::POST, &format!("/v1/runs/{}/tools/write_file", run.id)).json(&last);
    // The call may or may not be answered before the kill.
    drop(agent.try_send(last).await);
    server.wait();
    server.restart();
    assert!(!server.log().contains("older than"), "{}", server.log());
    server.reconnect(&run).ok("read_file", json!({"path": "2-2.txt"})).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_lost_commits_is_not_written_to() {
    let mut server = Server::start(Backend::Postgres).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let other = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    assert!(server.stop().success());
    server.restart();
    let (run, other) = (server.reconnect(&run), server.reconnect(&other));
    run.create("b.txt", "b\n").await;
    server.until_journal_is_empty().await;
    // Like a standby that was promoted without the newest commits.
    server.database.drop_triggers().await;
    for sql in ["DELETE FROM audit_record", "UPDATE run_head SET head_seq = 0, head_hash = sha256('')"] {
        server.database.tamper(sql).await.unwrap();
    }
    for run in [&run, &other] {
        let refusal = run.call("write_file", json!({"path": "c.txt", "content": "c\n", "reason": "r"})).await;
        let refusal = refusal.refused("UNAVAILABLE");
        assert!(refusal["message"].as_str().unwrap().contains("has lost commits"), "{refusal:#}");
        assert!(!run.repo.join("c.txt").exists());
    }
    server.nobody().get("/readyz").await.refused("UNAVAILABLE");
    assert!(server.log().contains("restored or failed over to an older state"), "{}", server.log());
    assert!(run.audit().await.is_empty() && other.audit().await.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_was_replaced_by_a_backup_is_not_written_to() {
    let mut server = Server::start(Backend::Postgres).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    assert!(server.stop().success());
    let backup = server.database.copy().await;
    server.restart();
    let run = server.reconnect(&run);
    run.create("b.txt", "b\n").await;
    server.until_journal_is_empty().await;
    server.database.replace_by(backup).await;
    let refused = async || {
        let refusal = run.call("write_file", json!({"path": "c.txt", "content": "c\n", "reason": "r"})).await;
        let refusal = refusal.refused("UNAVAILABLE");
        if refusal["message"].as_str().unwrap().contains("has lost commits") { Ok(()) } else { Err(refusal) }
    };
    server.until("the loss is noticed", refused).await;
    assert!(run.calls().await.is_empty());
    // Other routes that would change the database or remove files are refused too.
    let operator = server.operator();
    for (path, body) in [
        ("/v1/runs".to_owned(), json!({"runId": "new", "source": {"type": "empty"}})),
        (format!("/v1/runs/{}/close", run.id), json!({})),
        (format!("/v1/runs/{}/tokens", run.id), json!({})),
    ] {
        operator.post(&path, body).await.refused("UNAVAILABLE");
    }
    operator.delete(&format!("/v1/runs/{}", run.id)).await.refused("UNAVAILABLE");
    assert!(run.repo.join("b.txt").exists() && !server.workspace("new").exists());
    assert_eq!(run.get().await["state"], "open");
    // A restart accepts the older database and logs it.
    server.kill();
    server.restart();
    assert!(server.log().contains("older than the data folder"), "{}", server.log());
    server.reconnect(&run).ok("read_file", json!({"path": "a.txt"})).await;
}

#[rstest]
#[tokio::test]
async fn repair_and_replay_refuse_the_folder_of_another_database(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = Server::start(backend).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({"runId": "r"})).await;
    run.create("b.txt", "b\n").await;
    assert!(server.stop().success());
    let mut other = Server::start_with(Setup::new(backend)).await;
    other.run_with_files(&[("a.txt", "a\n")], json!({"runId": "r"})).await;
    assert!(other.stop().success());
    let before = crate::harness::snapshot(&other.workspace("r"));
    let own = std::mem::replace(&mut other.database, server.database.clone());
    let to = server.home.join("to").display().to_string();
    for (name, args) in [
        ("repair", vec!["--run", "r", "--accept", "ledger", "--yes"]),
        ("repair", vec![]),
        ("replay", vec!["--run", "r", "--to", &to]),
    ] {
        assert_ends(&offline(&other, name, &args), 2, &["belongs to another data folder"]);
    }
    assert_eq!(crate::harness::snapshot(&other.workspace("r")), before);
    other.database = own;
    assert_ends(&offline(&other, "replay", &["--run", "r", "--to", &to]), 0, &["the workspace is equal"]);
}
