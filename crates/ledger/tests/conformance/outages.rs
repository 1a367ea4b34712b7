//! A database that is away for a while.

use std::time::Duration;

use ledger::{Appended, LedgerError};
use model::Record;
use rstest::rstest;

use crate::harness::{Backend, World, only_record, read, run_id};
use crate::steps::change;

/// Cuts every connection but the one that says so.
const CUT: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
    WHERE datname = current_database() AND pid <> pg_backend_pid()";

/// Appends until the ledger takes the entry again; the answer is its record.
async fn append_when_it_is_back(world: &World) -> Record {
    let until = tokio::time::Instant::now() + Duration::from_secs(30);
    let mut round = 0;
    loop {
        round += 1;
        match world.try_append(change("r1", &format!("again-{round}"), "src/a")).await {
            Ok(appended @ Appended::Recorded(_)) => return only_record(appended),
            Err(LedgerError::Unavailable(_)) if tokio::time::Instant::now() < until => {}
            other => panic!("{other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The run holds `records`, whole.
async fn assert_sound(world: &World, records: u64) {
    let report = world.ledger.verify(&run_id("r1")).await.unwrap();
    assert!(report.intact, "{report:?}");
    assert_eq!(report.records, records);
}

#[tokio::test]
async fn a_connection_that_was_cut_is_made_anew() {
    let world = Backend::Postgres.open().await;
    world.run("r1").await;
    world.append(change("r1", "one", "src/a")).await;
    world.raw(CUT).await.unwrap();
    // Nobody can tell whether what was under way came through; an append that is refused here did not begin.
    let record = append_when_it_is_back(&world).await;
    assert_eq!(record.seq, 2);
    assert_sound(&world, 2).await;
    assert_eq!(world.ledger.pending_journal(None).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_database_that_is_away_takes_nothing_and_comes_back() {
    let world = Backend::Postgres.open().await;
    world.run("r1").await;
    world.append(change("r1", "one", "src/a")).await;
    let name = world.database();
    world.elsewhere(&format!("ALTER DATABASE {name} ALLOW_CONNECTIONS false")).await;
    let cut = CUT.replace("current_database()", &format!("'{name}'"));
    world.elsewhere(&cut).await;
    for id in ["two", "three", "four"] {
        let away = world.try_append(change("r1", id, "src/a")).await;
        assert!(matches!(away, Err(LedgerError::Unavailable(_))), "{away:?}");
    }
    let away = world.ledger.run(&run_id("r1")).await.map(drop);
    assert!(matches!(away, Err(LedgerError::Unavailable(_))), "{away:?}");
    let away = world.ledger.ping().await;
    assert!(matches!(away, Err(LedgerError::Unavailable(_))), "{away:?}");

    world.elsewhere(&format!("ALTER DATABASE {name} ALLOW_CONNECTIONS true")).await;
    let record = append_when_it_is_back(&world).await;
    assert_eq!(record.seq, 2);
    assert_sound(&world, 2).await;
}

#[rstest]
#[case::sqlite(
    Backend::Sqlite,
    "ALTER TABLE record_path RENAME TO elsewhere",
    "ALTER TABLE elsewhere RENAME TO record_path"
)]
#[case::postgres(
    Backend::Postgres,
    "ALTER TABLE record_path RENAME TO elsewhere",
    "ALTER TABLE elsewhere RENAME TO record_path"
)]
#[tokio::test]
async fn an_append_that_fails_halfway_leaves_nothing(#[case] backend: Backend, #[case] harm: &str, #[case] mend: &str) {
    let world = backend.open().await;
    let run = world.run("r1").await;
    world.append(change("r1", "one", "src/a")).await;
    world.raw(harm).await.unwrap();
    let failed = world.try_append(change("r1", "two", "src/a")).await;
    assert!(matches!(failed, Err(LedgerError::Internal(_))), "{failed:?}");
    world.raw(mend).await.unwrap();
    assert_sound(&world, 1).await;
    assert_eq!(world.ledger.pending_journal(None).await.unwrap().len(), 1);
    assert_eq!(world.ledger.run(&run).await.unwrap().unwrap().run.counts.mutations, 1);
    assert_eq!(world.append(read("r1", "a")).await.seq, 2);
    assert_sound(&world, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_log_of_sqlite_stays_short_under_load() {
    let world = Backend::Sqlite.open().await;
    world.run("r1").await;
    let mut written = 0;
    for round in 0..50 {
        let mut entry = change("r1", &format!("id-{round}"), "src/a");
        let diff = vec![round; 4 << 20];
        written += diff.len();
        entry.draft.diff_sha256 = Some(model::Sha256::of(&diff));
        entry.artifact.as_mut().unwrap().diff = diff;
        world.append(entry).await;
    }
    let path = world.url().strip_prefix("sqlite://").unwrap();
    let log = usize::try_from(std::fs::metadata(format!("{path}-wal")).unwrap().len()).unwrap();
    assert!(log < written / 4 * 3, "the log has {log} bytes after {written}");
    assert_sound(&world, 50).await;
}
