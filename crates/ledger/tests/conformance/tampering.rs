//! What somebody with access to the database may try.

use model::Sha256;
use rstest::rstest;

use crate::harness::{Backend, World, read, run_id};
use crate::steps::change;

/// Whoever cuts a record off and leaves what hangs on it does not get that taken for another record's.
#[rstest]
#[tokio::test]
async fn what_a_cut_off_record_left_belongs_to_no_other(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let mut world = world(backend).await;
    world.append(change("r1", "two", "src/d")).await;
    let first = Sha256::of(b"new\0");
    world.unguard("audit_record").await;
    world.raw("DELETE FROM audit_record WHERE seq = 4").await.unwrap();
    world.raw("DELETE FROM step").await.unwrap();
    world
        .raw("UPDATE run_head SET head_seq = 3, head_hash = (SELECT input_sha256 FROM audit_record WHERE seq = 3)")
        .await
        .unwrap();
    world.reopen().await;
    let mut other = change("r1", "three", "src/e");
    other.steps.truncate(1);
    world.append(other).await;
    let run = run_id("r1");
    assert_eq!(world.ledger.content(&run, 2, &first).await.unwrap().as_deref(), Some(&b"new\0"[..]));
    assert_eq!(world.ledger.content(&run, 4, &first).await.unwrap(), None);
    assert_eq!(world.ledger.verify(&run).await.unwrap().first_break.unwrap().seq, 4);
}

/// A run with three records, the second one a change.
async fn world(backend: Backend) -> World {
    let world = backend.open().await;
    world.run("r1").await;
    world.append(read("r1", "a")).await;
    world.append(change("r1", "one", "src/b")).await;
    world.append(read("r1", "c")).await;
    world
}

#[rstest]
#[tokio::test]
async fn what_only_grows_takes_no_update_and_no_delete(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let world = world(backend).await;
    let tables = [
        ("audit_record", "tool = 'x'"),
        ("record_path", "path = 'x'"),
        ("call_reply", "body = 'x'"),
        ("artifact", "run_no = 9"),
        ("content", "run_no = 9"),
    ];
    for (table, column) in tables {
        for sql in [format!("UPDATE {table} SET {column}"), format!("DELETE FROM {table}")] {
            let error = world.raw(&sql).await.unwrap_err();
            assert!(error.contains("only grows"), "{sql}: {error}");
        }
        if matches!(backend, Backend::Postgres) {
            let error = world.raw(&format!("TRUNCATE {table}")).await.unwrap_err();
            assert!(error.contains("only grows"), "{table}: {error}");
        }
    }
    assert!(world.ledger.verify(&run_id("r1")).await.unwrap().intact);
}

/// No run goes, and what is deleted stays so: its contents may be removed.
#[rstest]
#[tokio::test]
async fn no_run_goes_and_none_comes_back(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let world = world(backend).await;
    for table in ["run_head", "run"] {
        let error = world.raw(&format!("DELETE FROM {table}")).await.unwrap_err();
        assert!(error.contains("only grows"), "{table}: {error}");
    }
    world.raw("UPDATE run SET state = 'deleted'").await.unwrap();
    let error = world.raw("UPDATE run SET state = 'open'").await.unwrap_err();
    assert!(error.contains("stays so"), "{error}");
}

/// Who takes a run's head or the run itself away hides nothing of it.
#[rstest]
#[tokio::test]
async fn a_run_that_somebody_hides_is_found(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let world = world(backend).await;
    world.run("r2").await;
    world.append(read("r2", "a")).await;
    world.unguard_runs().await;
    world.raw("DELETE FROM run_head WHERE run_no = (SELECT run_no FROM run WHERE run_id = 'r1')").await.unwrap();
    let report = world.ledger.verify(&run_id("r1")).await.unwrap();
    let found = report.first_break.unwrap();
    assert_eq!((found.seq, found.problem.as_str()), (4, "the run's head is gone"));
    let mut told = Vec::new();
    let tell = |report: &model::ChainReport| told.push((report.run_id.to_string(), report.intact));
    assert!(!ledger::verify_all(world.ledger.as_ref(), None, tell).await.unwrap());
    assert_eq!(told, [("r1".into(), false), ("r2".into(), true)]);
    assert_eq!(world.ledger.orphaned_runs().await.unwrap(), 0);

    world.raw("DELETE FROM token").await.unwrap();
    world.raw("DELETE FROM run WHERE run_id = 'r1'").await.unwrap();
    assert_eq!(world.ledger.orphaned_runs().await.unwrap(), 1);
}

/// The diff of a change is bound to its record: another is found, and one that is not kept any more is told.
#[rstest]
#[case::another(
    "UPDATE artifact SET diff = input_sha256 FROM audit_record r WHERE r.position = artifact.position",
    Some(2)
)]
#[case::another_name("UPDATE artifact SET artifact_id = 'art_9'", Some(2))]
#[case::gone("DELETE FROM artifact", None)]
#[tokio::test]
async fn a_diff_is_bound_to_its_record(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
    #[case] sql: &str,
    #[case] broken: Option<u64>,
) {
    let world = world(backend).await;
    assert_eq!(world.ledger.verify(&run_id("r1")).await.unwrap().missing_diffs, 0);
    world.unguard("artifact").await;
    world.raw(sql).await.unwrap();
    let report = world.ledger.verify(&run_id("r1")).await.unwrap();
    assert_eq!(
        (report.intact, report.first_break.as_ref().map(|found| found.seq)),
        (broken.is_none(), broken),
        "{report:?}"
    );
    assert_eq!(report.missing_diffs, u64::from(broken.is_none()));
}

#[rstest]
#[case::body("audit_record", "UPDATE audit_record SET body = replace(body, 'src/b', 'src/x') WHERE seq = 2", 2, "hash")]
#[case::no_json("audit_record", "UPDATE audit_record SET body = 'x' WHERE seq = 2", 2, "JSON")]
#[case::removed("audit_record", "DELETE FROM audit_record WHERE seq = 2", 2, "missing")]
#[case::cut_off("audit_record", "DELETE FROM audit_record WHERE seq = 3", 3, "ends at 2")]
#[case::tool("audit_record", "UPDATE audit_record SET tool = 'read_file' WHERE seq = 2", 2, "tool is")]
#[case::time("audit_record", "UPDATE audit_record SET timestamp = '2020' WHERE seq = 3", 3, "timestamp")]
#[case::decision("audit_record", "UPDATE audit_record SET decision = 'DENY' WHERE seq = 1", 1, "decision")]
#[case::outcome("audit_record", "UPDATE audit_record SET outcome = 'failed' WHERE seq = 1", 1, "outcome")]
#[case::call("audit_record", "UPDATE audit_record SET tool_call_id = 'x' WHERE seq = 1", 1, "toolCallId")]
#[case::mutates("audit_record", "UPDATE audit_record SET mutates = NOT mutates WHERE seq = 1", 1, "mutates")]
#[case::before_the_first("audit_record", "UPDATE audit_record SET seq = -1 WHERE seq = 3", 1, "before the first")]
#[case::path("record_path", "DELETE FROM record_path WHERE path = 'src/b'", 2, "paths")]
#[case::more_paths(
    "record_path",
    "INSERT INTO record_path SELECT position, 'z', run_no FROM record_path WHERE path = 'c'",
    3,
    "paths"
)]
#[case::head("artifact", "UPDATE run_head SET head_seq = 2", 3, "behind the head")]
#[case::head_hash("artifact", "UPDATE run_head SET head_hash = (SELECT secret_sha256 FROM token)", 4, "head")]
#[tokio::test]
async fn a_change_past_the_ledger_is_found(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
    #[case] table: &str,
    #[case] sql: &str,
    #[case] seq: u64,
    #[case] problem: &str,
) {
    let world = world(backend).await;
    world.unguard(table).await;
    world.raw(sql).await.unwrap();
    let report = world.ledger.verify(&run_id("r1")).await.unwrap();
    let found = report.first_break.unwrap();
    assert!(!report.intact);
    assert_eq!(found.seq, seq, "{found:?}");
    assert!(found.problem.contains(problem), "{found:?}");
}

#[rstest]
#[tokio::test]
async fn every_run_is_verified_and_told(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let world = world(backend).await;
    world.run("r2").await;
    world.run("r3").await;
    world.append(read("r3", "a")).await;
    let mut told = Vec::new();
    let intact = ledger::verify_all(world.ledger.as_ref(), None, |report| {
        told.push((report.run_id.to_string(), report.intact, report.records));
    });
    assert!(intact.await.unwrap());
    assert_eq!(told, [("r1".into(), true, 3), ("r2".into(), true, 0), ("r3".into(), true, 1)]);

    world.unguard("audit_record").await;
    world.raw("UPDATE audit_record SET body = 'x' WHERE seq = 3").await.unwrap();
    let mut broken = Vec::new();
    let intact = ledger::verify_all(world.ledger.as_ref(), None, |report| {
        broken.extend(report.first_break.as_ref().map(|found| (report.run_id.to_string(), found.seq)));
    });
    assert!(!intact.await.unwrap());
    assert_eq!(broken, [("r1".into(), 3)]);
    assert!(ledger::verify_all(world.ledger.as_ref(), Some(&run_id("r3")), |_| ()).await.unwrap());
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn a_chain_of_several_pages_is_verified(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let world = backend.open().await;
    let run = world.run("r1").await;
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..1201 {
        let ledger = std::sync::Arc::clone(&world.ledger);
        tasks.spawn(async move { ledger.append(vec![read("r1", &format!("f{index}"))]).await.unwrap() });
    }
    tasks.join_all().await;
    let report = world.ledger.verify(&run).await.unwrap();
    assert_eq!((report.intact, report.records, report.head_seq), (true, 1201, 1201), "{report:?}");
    world.unguard("audit_record").await;
    world.raw("UPDATE audit_record SET body = replace(body, 'ALLOW', 'DENY') WHERE seq = 1100").await.unwrap();
    let report = world.ledger.verify(&run).await.unwrap();
    assert_eq!(report.first_break.unwrap().seq, 1100);
}
