//! A run of 100,000 calls, whose records are written into the database of a server that does not run.

use model::{Draft, LogicalPath, RunId, Sha256, ToolCallId};
use rusqlite::{Connection, params};
use serde_json::json;

use crate::harness::{Backend, Server, Setup};

const RUN: &str = "huge";
/// The records of the run, with that of its creation.
const RECORDS: u64 = 100_000;

/// Starts a server that has the run.
pub(super) async fn start() -> Server {
    let mut server = Server::start_with(Setup::new(Backend::Sqlite)).await;
    let run = server.run(json!({ "runId": RUN })).await;
    let shown = run.operator.get(&format!("/v1/runs/{RUN}")).await.is(200);
    assert_eq!(shown["headSeq"], 1);
    let head = Sha256::parse(shown["headHash"].as_str().unwrap()).unwrap();
    assert!(server.stop().success());
    let mut database = Connection::open(server.database.url.strip_prefix("sqlite://").unwrap()).unwrap();
    append_reads(&mut database, head);
    server.restart();
    server
}

/// Appends reads to the run, whose only record has the hash `head`.
fn append_reads(database: &mut Connection, mut head: Sha256) {
    let all = database.transaction().unwrap();
    let run_no: i64 = all.query_row("SELECT run_no FROM run WHERE run_id = ?1", [RUN], |row| row.get(0)).unwrap();
    let first: i64 = all.query_row("SELECT max(position) + 1 FROM audit_record", [], |row| row.get(0)).unwrap();
    let run = RunId::parse(RUN).unwrap();
    for (position, seq) in (first..).zip(1..RECORDS) {
        let call = ToolCallId::parse(&format!("call-{seq}")).unwrap();
        let time = format!("2026-01-01T{:02}:{:02}:{:02}.000000Z", seq / 3600 % 24, seq / 60 % 60, seq % 60);
        let mut draft =
            Draft::new(run.clone(), "operator:orchestrate".to_owned(), "read_file", call.clone(), time.clone());
        let path = format!("src/file_{}.rs", seq % 1000);
        draft.paths_read = vec![LogicalPath::parse(&path).unwrap()];
        let (record, text) = draft.link(seq, head);
        head = record.hash.unwrap();
        let mut insert = all
            .prepare_cached(
                "INSERT INTO audit_record (position, run_no, seq, tool_call_id, tool, timestamp, decision, outcome, mutates, \
                 made_by, denied, input_sha256, body) VALUES (?1, ?2, ?3, ?4, 'read_file', ?5, 'ALLOW', 'ok', 0, 'operator', 0, x'', ?6)",
            )
            .unwrap();
        let seq = i64::try_from(seq + 1).unwrap();
        insert.execute(params![position, run_no, seq, call.as_str(), time, text]).unwrap();
        let mut insert =
            all.prepare_cached("INSERT INTO record_path (position, path, run_no) VALUES (?1, ?2, ?3)").unwrap();
        insert.execute(params![position, path, run_no]).unwrap();
    }
    let head_seq = i64::try_from(RECORDS).unwrap();
    let set = "UPDATE run_head SET head_seq = ?1, head_hash = ?2 WHERE run_no = ?3";
    assert_eq!(all.execute(set, params![head_seq, head.as_bytes(), run_no]).unwrap(), 1);
    all.commit().unwrap();
}
