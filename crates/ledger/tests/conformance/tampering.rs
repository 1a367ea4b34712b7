//! Changes by a user with direct access to the database.

use model::Sha256;
use rstest::rstest;

use crate::harness::{Backend, TestDatabase, read, run_id};
use crate::journal::mutation;

/// Contents of a removed last record must not be returned for the record that is appended in its position.
#[rstest]
#[tokio::test]
async fn contents_of_a_removed_record_do_not_belong_to_the_next(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let mut db = three_records(backend).await;
    db.append(mutation("r1", "two", "src/d")).await;
    let first = Sha256::of(b"new\0");
    db.drop_triggers("audit_record").await;
    db.execute("DELETE FROM audit_record WHERE seq = 4").await.unwrap();
    db.execute("DELETE FROM step").await.unwrap();
    db.execute("UPDATE run_head SET head_seq = 3, head_hash = (SELECT input_sha256 FROM audit_record WHERE seq = 2)")
        .await
        .unwrap();
    db.reopen().await;
    let mut other = mutation("r1", "three", "src/e");
    other.steps.truncate(1);
    db.append(other).await;
    let run = run_id("r1");
    assert_eq!(db.ledger.content(&run, 2, &first).await.unwrap().as_deref(), Some(&b"new\0"[..]));
    assert_eq!(db.ledger.content(&run, 4, &first).await.unwrap(), None);
    assert_eq!(db.ledger.verify(&run).await.unwrap().first_break.unwrap().seq, 4);
}

/// Returns a run with three records, of which the second is a mutation.
async fn three_records(backend: Backend) -> TestDatabase {
    let db = backend.open().await;
    db.run("r1").await;
    db.append(read("r1", "a")).await;
    db.append(mutation("r1", "one", "src/b")).await;
    db.append(read("r1", "c")).await;
    db
}

/// Returns the numbers of the records that `verify_each` passes on, and that of the first invalid one.
async fn verified(db: &TestDatabase) -> (Vec<u64>, Option<u64>) {
    let mut seen = Vec::new();
    let report = db.ledger.verify_each(&run_id("r1"), &mut |record| seen.push(record.seq)).await.unwrap();
    (seen, report.first_break.map(|found| found.seq))
}

#[rstest]
#[tokio::test]
async fn a_verification_passes_on_the_records_up_to_the_first_invalid_one(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = three_records(backend).await;
    assert_eq!(verified(&db).await, (vec![1, 2, 3], None));
    db.drop_triggers("audit_record").await;
    db.execute("UPDATE audit_record SET body = replace(body, 'src/b', 'src/x') WHERE seq = 2").await.unwrap();
    assert_eq!(verified(&db).await, (vec![1], Some(2)));
}

#[rstest]
#[tokio::test]
async fn append_only_tables_reject_update_delete_and_truncate(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = three_records(backend).await;
    let tables = [
        ("audit_record", "tool = 'x'"),
        ("record_path", "path = 'x'"),
        ("call_reply", "body = 'x'"),
        ("artifact", "run_no = 9"),
        ("content", "run_no = 9"),
    ];
    for (table, column) in tables {
        for sql in [format!("UPDATE {table} SET {column}"), format!("DELETE FROM {table}")] {
            let error = db.execute(&sql).await.unwrap_err();
            assert!(error.contains("only grows"), "{sql}: {error}");
        }
        if matches!(backend, Backend::Postgres) {
            let error = db.execute(&format!("TRUNCATE {table}")).await.unwrap_err();
            assert!(error.contains("only grows"), "{table}: {error}");
        }
    }
    assert!(db.ledger.verify(&run_id("r1")).await.unwrap().intact);
}

/// A deleted run must remain deleted, because its contents may have been purged.
#[rstest]
#[tokio::test]
async fn the_database_rejects_removing_and_undeleting_runs(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = three_records(backend).await;
    for table in ["run_head", "run"] {
        let error = db.execute(&format!("DELETE FROM {table}")).await.unwrap_err();
        assert!(error.contains("only grows"), "{table}: {error}");
    }
    db.execute("UPDATE run SET state = 'deleted'").await.unwrap();
    let error = db.execute("UPDATE run SET state = 'open'").await.unwrap_err();
    assert!(error.contains("stays so"), "{error}");
}

#[rstest]
#[tokio::test]
async fn a_missing_head_or_run_row_is_reported(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let db = three_records(backend).await;
    db.run("r2").await;
    db.append(read("r2", "a")).await;
    db.drop_run_triggers().await;
    db.execute("DELETE FROM run_head WHERE run_no = (SELECT run_no FROM run WHERE run_id = 'r1')").await.unwrap();
    let report = db.ledger.verify(&run_id("r1")).await.unwrap();
    let found = report.first_break.unwrap();
    assert_eq!((found.seq, found.problem.as_str()), (4, "the run's head is missing"));
    let mut reports = Vec::new();
    let on_report = |report: &model::ChainReport| reports.push((report.run_id.to_string(), report.intact));
    assert!(!ledger::verify_all(db.ledger.as_ref(), None, on_report).await.unwrap());
    assert_eq!(reports, [("r1".into(), false), ("r2".into(), true)]);
    assert_eq!(db.ledger.orphaned_runs().await.unwrap(), 0);

    db.execute("DELETE FROM token").await.unwrap();
    db.execute("DELETE FROM run WHERE run_id = 'r1'").await.unwrap();
    assert_eq!(db.ledger.orphaned_runs().await.unwrap(), 1);
}

/// The hashed record contains the hash of its diff: another diff is a broken chain, a missing diff is counted.
#[rstest]
#[case::replaced(
    "UPDATE artifact SET diff = input_sha256 FROM audit_record r WHERE r.position = artifact.position",
    Some(2)
)]
#[case::renamed("UPDATE artifact SET artifact_id = 'art_9'", Some(2))]
#[case::removed("DELETE FROM artifact", None)]
#[tokio::test]
async fn a_replaced_or_missing_diff_is_reported(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
    #[case] sql: &str,
    #[case] broken: Option<u64>,
) {
    let db = three_records(backend).await;
    assert_eq!(db.ledger.verify(&run_id("r1")).await.unwrap().missing_diffs, 0);
    db.drop_triggers("artifact").await;
    db.execute(sql).await.unwrap();
    let report = db.ledger.verify(&run_id("r1")).await.unwrap();
    assert_eq!(
        (report.intact, report.first_break.as_ref().map(|found| found.seq)),
        (broken.is_none(), broken),
        "{report:?}"
    );
    assert_eq!(report.missing_diffs, u64::from(broken.is_none()));
}

#[rstest]
#[case::body("audit_record", "UPDATE audit_record SET body = replace(body, 'src/b', 'src/x') WHERE seq = 2", 2, "hash")]
#[case::invalid_json("audit_record", "UPDATE audit_record SET body = 'x' WHERE seq = 2", 2, "JSON")]
#[case::removed("audit_record", "DELETE FROM audit_record WHERE seq = 2", 2, "missing")]
#[case::last_removed("audit_record", "DELETE FROM audit_record WHERE seq = 3", 3, "ends at 2")]
#[case::tool("audit_record", "UPDATE audit_record SET tool = 'read_file' WHERE seq = 2", 2, "the indexed tool")]
#[case::time("audit_record", "UPDATE audit_record SET timestamp = '2020' WHERE seq = 3", 3, "timestamp")]
#[case::decision("audit_record", "UPDATE audit_record SET decision = 'DENY' WHERE seq = 1", 1, "decision")]
#[case::outcome("audit_record", "UPDATE audit_record SET outcome = 'failed' WHERE seq = 1", 1, "outcome")]
#[case::call_id("audit_record", "UPDATE audit_record SET tool_call_id = 'x' WHERE seq = 1", 1, "toolCallId")]
#[case::mutates("audit_record", "UPDATE audit_record SET mutates = NOT mutates WHERE seq = 1", 1, "mutates")]
#[case::before_the_first("audit_record", "UPDATE audit_record SET seq = -1 WHERE seq = 3", 1, "before seq 1")]
#[case::path("record_path", "DELETE FROM record_path WHERE path = 'src/b'", 2, "paths")]
#[case::more_paths(
    "record_path",
    "INSERT INTO record_path SELECT position, 'z', run_no FROM record_path WHERE path = 'c'",
    3,
    "paths"
)]
#[case::head("artifact", "UPDATE run_head SET head_seq = 2", 3, "after the run's head")]
#[case::head_hash("artifact", "UPDATE run_head SET head_hash = (SELECT secret_sha256 FROM token)", 4, "head")]
#[tokio::test]
async fn tampering_breaks_the_chain(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
    #[case] table: &str,
    #[case] sql: &str,
    #[case] seq: u64,
    #[case] problem: &str,
) {
    let db = three_records(backend).await;
    db.drop_triggers(table).await;
    db.execute(sql).await.unwrap();
    let report = db.ledger.verify(&run_id("r1")).await.unwrap();
    let found = report.first_break.unwrap();
    assert!(!report.intact);
    assert_eq!(found.seq, seq, "{found:?}");
    assert!(found.problem.contains(problem), "{found:?}");
}

#[rstest]
#[tokio::test]
async fn every_run_is_verified_and_reported(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let db = three_records(backend).await;
    db.run("r2").await;
    db.run("r3").await;
    db.append(read("r3", "a")).await;
    let mut reports = Vec::new();
    let intact = ledger::verify_all(db.ledger.as_ref(), None, |report| {
        reports.push((report.run_id.to_string(), report.intact, report.records));
    });
    assert!(intact.await.unwrap());
    assert_eq!(reports, [("r1".into(), true, 3), ("r2".into(), true, 0), ("r3".into(), true, 1)]);

    db.drop_triggers("audit_record").await;
    db.execute("UPDATE audit_record SET body = 'x' WHERE seq = 3").await.unwrap();
    let mut broken = Vec::new();
    let intact = ledger::verify_all(db.ledger.as_ref(), None, |report| {
        broken.extend(report.first_break.as_ref().map(|found| (report.run_id.to_string(), found.seq)));
    });
    assert!(!intact.await.unwrap());
    assert_eq!(broken, [("r1".into(), 3)]);
    assert!(ledger::verify_all(db.ledger.as_ref(), Some(&run_id("r3")), |_| ()).await.unwrap());
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_chain_of_several_pages_is_verified(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let db = backend.open().await;
    let run = db.run("r1").await;
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..1201 {
        let ledger = std::sync::Arc::clone(&db.ledger);
        tasks.spawn(async move { ledger.append(vec![read("r1", &format!("f{index}"))]).await.unwrap() });
    }
    tasks.join_all().await;
    let report = db.ledger.verify(&run).await.unwrap();
    assert_eq!((report.intact, report.records, report.head_seq), (true, 1201, 1201), "{report:?}");
    db.drop_triggers("audit_record").await;
    db.execute("UPDATE audit_record SET body = replace(body, 'ALLOW', 'DENY') WHERE seq = 1100").await.unwrap();
    let report = db.ledger.verify(&run).await.unwrap();
    assert_eq!(report.first_break.unwrap().seq, 1100);
}
