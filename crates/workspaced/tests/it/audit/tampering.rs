//! Detection of changed, truncated, reordered and rewritten histories by an attacker with access to the database or the
//! checkpoint file.

use std::process::Output;

use rstest::rstest;
use serde_json::{Value, json};

use crate::audit::checkpoints::signing_at_shutdown;
use crate::harness::{Backend, Run, Server, canonical, exhaustive, sha256};
use crate::operation::instances::refused;
use crate::operation::replay_and_repair::{assert_ends, offline};

/// Returns a stopped server and its run of seven records. One checkpoint covers the first four records, another all seven.
/// The server has a second run with three records. The triggers that protect the tables are dropped.
async fn signed(backend: Backend) -> (Server, Run, Vec<Value>) {
    let mut server = signing_at_shutdown(backend).await;
    let (mut run, mut other) = (server.run(json!({})).await, server.run(json!({})).await);
    let mut records = Vec::new();
    for round in 0..2 {
        for number in 0..3 {
            run.create(&format!("{round}-{number}.txt"), "x\n").await;
        }
        other.create(&format!("{round}.txt"), "x\n").await;
        records = run.audit().await;
        assert!(server.stop().success());
        if round == 0 {
            server.restart();
            (run, other) = (server.reconnect(&run), server.reconnect(&other));
        }
    }
    assert_eq!(exit_and_stdout(&server.verify(&[])).0, Some(0));
    server.database.drop_triggers().await;
    (server, run, records)
}

fn exit_and_stdout(done: &Output) -> (Option<i32>, String) {
    (done.status.code(), String::from_utf8_lossy(&done.stdout).into_owned())
}

impl Server {
    /// Executes SQL statements in which `{run}` is the number of `run`. Each has to change at least one row.
    pub(crate) async fn rewrite(&self, run: &Run, statements: &[&str]) {
        for sql in statements {
            let sql = sql.replace("{run}", &format!("(select run_no from run where run_id = '{}')", run.id));
            assert!(self.database.tamper(&sql).await.unwrap() > 0, "{sql}");
        }
    }

    /// Returns the bytes with the hexadecimal digits `hash` as an SQL literal.
    pub(crate) fn bytes(&self, hash: &str) -> String {
        match self.database.backend {
            Backend::Sqlite => format!("x'{hash}'"),
            Backend::Postgres => format!("'\\x{hash}'::bytea"),
        }
    }

    /// Sets the run's head to `record`.
    async fn set_head(&self, run: &Run, record: &Value) {
        let hash = self.bytes(record["hash"].as_str().unwrap());
        let sql =
            format!("update run_head set head_seq = {}, head_hash = {hash} where run_no = {{run}}", record["seq"]);
        self.rewrite(run, &[&sql]).await;
    }

    /// Rewrites the records from `first` on with another reason and recomputes their hashes.
    async fn fork(&self, run: &Run, records: &[Value], first: usize) -> Vec<Value> {
        self.rewrite_records(run, records, first, |record| record["reason"] = json!("never happened")).await
    }

    /// Rewrites the records from `first` on by `change` and recomputes their hashes.
    pub(crate) async fn rewrite_records(
        &self,
        run: &Run,
        records: &[Value],
        first: usize,
        change: impl Fn(&mut Value),
    ) -> Vec<Value> {
        let mut forked = records.to_vec();
        for at in first - 1..forked.len() {
            let prev_hash = if at == 0 { json!("0".repeat(64)) } else { forked[at - 1]["hash"].clone() };
            let record = &mut forked[at];
            record.as_object_mut().unwrap().remove("hash");
            change(record);
            record["prevHash"] = prev_hash;
            record["hash"] = json!(sha256(canonical(record)));
            let body = canonical(record).replace('\'', "''");
            let sql = format!("update audit_record set body = '{body}' where seq = {} and run_no = {{run}}", at + 1);
            self.rewrite(run, &[&sql]).await;
        }
        self.set_head(run, forked.last().unwrap()).await;
        forked
    }

    /// Asserts that the verify command and the HTTP route report a break at record `seq` of `run`.
    async fn assert_break_at(&mut self, run: &Run, seq: u64, words: &str) {
        for args in [vec![], vec!["--run", run.id.as_str()]] {
            let (code, text) = exit_and_stdout(&self.verify(&args));
            assert_eq!(code, Some(1), "{text}");
            let line = text.lines().find(|line| line.contains("BROKEN at seq")).unwrap_or_else(|| panic!("{text}"));
            assert!(line.starts_with(&format!("{}: BROKEN at seq {seq}: ", run.id)), "{text}");
            assert!(line.contains(words), "{text}");
        }
        self.restart();
        let report = self.reconnect(run).verify().await;
        assert_eq!((&report["intact"], &report["firstBreak"]["seq"]), (&json!(false), &json!(seq)), "{report:#}");
        assert!(self.stop().success());
    }
}

#[rstest]
#[tokio::test]
async fn a_changed_record_is_reported(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let (mut server, run, _) = signed(backend).await;
    let change = "update audit_record set body = replace(body, '0-1.txt', '0-9.txt') where seq = 3 and run_no = {run}";
    server.rewrite(&run, &[change]).await;
    server.assert_break_at(&run, 3, "").await;
}

#[rstest]
#[tokio::test]
async fn a_changed_newest_version_is_reported(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let (mut server, run, _) = signed(backend).await;
    let of_path = "where run_no = {run} and path = '0-1.txt'";
    server.rewrite(&run, &[&format!("update newest_version set mode = 493 {of_path}")]).await;
    server.assert_break_at(&run, 3, "the newest version of `0-1.txt` differs from the hashed records").await;
    server.rewrite(&run, &[&format!("delete from newest_version {of_path}")]).await;
    server.assert_break_at(&run, 3, "the newest version of `0-1.txt` is missing").await;
}

#[rstest]
#[tokio::test]
async fn two_swapped_records_are_reported(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let (mut server, run, _) = signed(backend).await;
    let put =
        |from: i64, to: i64| format!("update audit_record set seq = {to} where seq = {from} and run_no = {{run}}");
    server.rewrite(&run, &[&put(3, -1), &put(4, 3), &put(-1, 4)]).await;
    server.assert_break_at(&run, 3, "").await;
}

#[rstest]
#[tokio::test]
async fn checkpoints_detect_truncated_records_with_a_matching_head(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (mut server, run, records) = signed(backend).await;
    server.rewrite(&run, &["delete from audit_record where seq > 5 and run_no = {run}"]).await;
    server.set_head(&run, &records[4]).await;
    server.assert_break_at(&run, 6, "cut off").await;
    // New records with the same numbers do not hide it.
    server.restart();
    let again = server.reconnect(&run);
    for number in 0..3 {
        again.create(&format!("again-{number}.txt"), "x\n").await;
    }
    assert!(server.stop().success());
    server.assert_break_at(&run, 5, "rewritten").await;
}

#[rstest]
#[tokio::test]
async fn checkpoints_detect_a_completely_rewritten_chain(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (mut server, run, records) = signed(backend).await;
    server.fork(&run, &records, 5).await;
    server.assert_break_at(&run, 5, "rewritten").await;
    let to = server.home.join("rebuilt").display().to_string();
    let broken = format!("{}: BROKEN at seq 5: ", run.id);
    assert_ends(&offline(&server, "replay", &["--run", &run.id, "--to", &to]), 1, &[&broken, "the workspace is equal"]);
    server.fork(&run, &records, 1).await;
    server.assert_break_at(&run, 1, "rewritten").await;
    server.restart();
    let proof = server.reconnect(&run).operator.get(&format!("/v1/runs/{}/audit/inclusion?seq=2", run.id)).await;
    proof.refused("UNAVAILABLE");
}

#[rstest]
#[tokio::test]
async fn signatures_detect_a_fork_with_matching_leaves(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (mut server, run, records) = signed(backend).await;
    let forked = server.fork(&run, &records, 5).await;
    let hash = server.bytes(forked[6]["hash"].as_str().unwrap());
    let leaf = format!("update checkpoint_leaf set head_hash = {hash} where head_seq = 7 and run_no = {{run}}");
    server.rewrite(&run, &[&leaf]).await;
    let (code, text) = exit_and_stdout(&server.verify(&[]));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("checkpoints: BROKEN") && text.contains("forked"), "{text}");
    assert!(text.contains(&format!("run {}, seq 7", run.id)), "{text}");
    assert!(text.contains(&format!("{}: BROKEN at seq 5: ", run.id)), "{text}");
    // The nodes match the signature and the leaves do not, so the service returns no proof.
    server.restart();
    let again = server.reconnect(&run);
    let report = again.verify().await;
    assert_eq!((&report["intact"], &report["firstBreak"]["seq"]), (&json!(false), &json!(5)), "{report:#}");
    assert_eq!(report["checkpointedSeq"], 4, "{report:#}");
    again.operator.get(&format!("/v1/runs/{}/audit/inclusion?seq=6", run.id)).await.refused("UNAVAILABLE");
    assert!(server.stop().success());
    // The leaves give another root than the signed one, so the service signs no further checkpoint.
    server.rewrite(&run, &["delete from checkpoint_node"]).await;
    server.restart();
    server.auditor().get("/v1/checkpoint").await.refused("UNAVAILABLE");
    assert!(server.log().contains("no checkpoints are signed any more"), "{}", server.log());
    let ready = server.nobody().get("/readyz").await.ok();
    assert_eq!(ready["degraded"][0]["what"], "signing", "{ready:#}");
    let metrics = server.nobody().get("/metrics").await.text();
    assert!(metrics.contains("\nworkspaced_signing_stopped 1\n"), "{metrics}");
}

#[rstest]
#[tokio::test]
async fn a_changed_tree_node_is_reported(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let (mut server, run, _) = signed(backend).await;
    let zero = server.bytes(&"0".repeat(64));
    server.rewrite(&run, &[&format!("update checkpoint_node set hash = {zero} where place = 0")]).await;
    let (code, text) = exit_and_stdout(&server.verify(&[]));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("the stored node over the leaves 0 to 0"), "{text}");
    server.restart();
    let auditor = server.auditor();
    auditor.get("/v1/checkpoint/consistency?from=1").await.refused("UNAVAILABLE");
    auditor.get(&format!("/v1/runs/{}/audit/inclusion?seq=6", run.id)).await.is(200);
}

/// The service signs no leaf for a chain that contradicts an earlier checkpoint.
#[rstest]
#[tokio::test]
async fn no_checkpoint_is_signed_that_contradicts_an_earlier_leaf(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (mut server, run, records) = signed(backend).await;
    let log = server.data_dir().join("checkpoints.log");
    let before = std::fs::read(&log).unwrap();
    server.rewrite(&run, &["delete from audit_record where seq = 7 and run_no = {run}"]).await;
    server.set_head(&run, &records[5]).await;
    server.restart();
    server.reconnect(&run).create("more.txt", "x\n").await;
    server.reconnect(&run).create("again.txt", "x\n").await;
    assert!(server.stop().success());
    assert!(server.log().contains("does not contain what was signed of it before"), "{}", server.log());
    assert_eq!(std::fs::read(&log).unwrap(), before);
    server.assert_break_at(&run, 5, "rewritten").await;
}

/// A run that is removed from every list is still reported.
#[rstest]
#[tokio::test]
async fn a_hidden_run_is_reported(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let (server, run, _) = signed(backend).await;
    server.rewrite(&run, &["delete from run_head where run_no = {run}"]).await;
    let (code, text) = exit_and_stdout(&server.verify(&[]));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(&format!("{}: BROKEN at seq 8: the run's head is missing", run.id)), "{text}");
    assert!(text.contains("2 runs, 1 broken"), "{text}");
    server.rewrite(&run, &["delete from audit_record where run_no = {run}"]).await;
    let (code, text) = exit_and_stdout(&server.verify(&[]));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(&format!("{}: BROKEN at seq 1: ", run.id)), "{text}");
}

/// A file that has lost checkpoints is written again only by a command of its own.
#[rstest]
#[tokio::test]
async fn a_file_that_lost_checkpoints_is_renewed_only_on_request(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (mut server, run, _) = signed(backend).await;
    let path = server.data_dir().join("checkpoints.log");
    let whole = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let line = refused(&server);
    assert!(line.contains("--checkpoint-file") && line.contains("workspaced key renew-file"), "{line}");
    assert!(!server.log().contains("older than"), "{}", server.log());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "");
    let renewed = server.command("key").arg("renew-file").output().unwrap();
    assert!(renewed.status.success(), "{renewed:?}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), whole);
    server.restart();
    server.auditor().get("/v1/checkpoint").await.text();
    assert_eq!(server.reconnect(&run).verify().await["intact"], true);
    assert!(server.stop().success());
    assert_eq!(std::fs::read_to_string(&path).unwrap(), whole);
}

#[rstest]
#[tokio::test]
async fn lost_tree_nodes_are_rebuilt(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let (mut server, run, _) = signed(backend).await;
    server.rewrite(&run, &["delete from checkpoint_node"]).await;
    server.restart();
    let again = server.reconnect(&run);
    again.create("more.txt", "x\n").await;
    assert!(server.stop().success());
    let (code, text) = exit_and_stdout(&server.verify(&[]));
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("checkpoints: intact, 3 over 5 leaves"), "{text}");
}

#[rstest]
#[tokio::test]
async fn the_checkpoint_file_detects_a_rolled_back_database(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (mut server, run, records) = signed(backend).await;
    let back = [
        "delete from audit_record where seq > 4 and run_no = {run}",
        "delete from checkpoint_leaf where leaf_no >= 2",
        "delete from checkpoint where size > 2",
        "delete from checkpoint_node where place > 2",
    ];
    server.rewrite(&run, &back).await;
    server.set_head(&run, &records[3]).await;
    let (code, text) = exit_and_stdout(&server.verify(&["--run", &run.id]));
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("a tree of 4 leaves was signed, and the database has 2"), "{text}");
    let before = std::fs::read(server.data_dir().join("checkpoints.log")).unwrap();
    server.restart();
    server.auditor().get("/v1/checkpoint").await.refused("UNAVAILABLE");
    let again = server.reconnect(&run);
    again.create("more.txt", "x\n").await;
    assert!(server.stop().success());
    let after = std::fs::read(server.data_dir().join("checkpoints.log")).unwrap();
    assert_eq!(before, after, "a checkpoint was signed that contradicts an earlier one");
}

/// Splits a checkpoint file into its entries.
fn entries(log: &str) -> Vec<String> {
    let mut entries: Vec<String> = Vec::new();
    for (at, line) in log.split_inclusive('\n').enumerate() {
        if at % 6 == 0 {
            entries.push(String::new());
        }
        entries.last_mut().unwrap().push_str(line);
    }
    entries
}

#[rstest]
#[tokio::test]
async fn a_changed_checkpoint_file_is_reported(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let (mut server, run, _) = signed(backend).await;
    server.restart();
    server.reconnect(&run).create("more.txt", "x\n").await;
    assert!(server.stop().success());
    let path = server.data_dir().join("checkpoints.log");
    let whole = std::fs::read_to_string(&path).unwrap();
    let parts = entries(&whole);
    assert_eq!((parts.len(), parts.concat()), (3, whole.clone()));
    let last = parts[2].trim_end();
    let (front, mark) = last.split_at(last.len() - 10);
    let changed = format!("{front}{}{}\n\n", if mark.starts_with('A') { "B" } else { "A" }, &mark[1..]);
    for (text, words) in [
        (parts[0].clone(), "lacks checkpoints"),
        (String::new(), "lacks checkpoints"),
        (format!("{}{}", parts[0], parts[2]), "lacks the checkpoint over 4 leaves"),
        (format!("{}{}", parts[1], parts[2]), "lacks the checkpoint over 2 leaves"),
        (format!("{}{}{}", parts[1], parts[0], parts[2]), "lacks the checkpoint over 2 leaves"),
        (format!("{}{}{changed}", parts[0], parts[1]), "the signature is invalid"),
        (whole.replacen("\n4\n", "\n3\n", 1), "the signature is invalid"),
        (format!("{whole}{}", parts[2]), "follows one over 5"),
        ("my notes\n\n".repeat(2000), "not a checkpoint of this origin"),
        (format!("{whole}my notes\n"), "not a checkpoint of this origin"),
    ] {
        std::fs::write(&path, &text).unwrap();
        let (code, line) = exit_and_stdout(&server.verify(&[]));
        assert_eq!(code, Some(1), "{words}: {line}");
        assert!(line.contains("checkpoints: BROKEN") && line.contains(words), "{words}: {line}");
    }
    std::fs::remove_file(&path).unwrap();
    let (code, line) = exit_and_stdout(&server.verify(&[]));
    assert!(code == Some(1) && line.contains("there is no file"), "{line}");
    std::fs::write(&path, &whole).unwrap();
    assert_eq!(exit_and_stdout(&server.verify(&[])).0, Some(0));
}

#[rstest]
#[tokio::test]
async fn verify_reads_beside_a_running_service(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let server = Server::start(backend).await;
    let run = server.run(json!({})).await;
    run.create("a.txt", "a\n").await;
    let done = server.verify(&[]);
    assert_ends(&done, 0, &["1 runs, 0 broken"]);
    // The service still writes.
    run.create("b.txt", "b\n").await;
    assert_ends(&server.verify(&["--run", &run.id]), 0, &["intact"]);
    assert_eq!(run.verify().await["intact"], true);
}
