//! Runs, their tokens, settings, and what a restart keeps.

use ledger::{Appended, LedgerError, StorageTotals, StoredRun};
use model::{
    Disk, DiskChange, ImportReport, Outcome, Run, RunState, Sha256, SkippedEntry, Token, TokenId, Usage, Verdict,
};
use rstest::rstest;

use crate::harness::{Backend, World, new_run, new_token, read, run_id, write};
use crate::steps::change;

#[rstest]
#[tokio::test]
async fn a_run_comes_back_as_it_was_stored(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut world = backend.open().await;
    let mut stored = new_run("r1");
    stored.usage = Usage { files_touched: 1, insertions: 2, deletions: 3, files_deleted: 4, bytes: 5 };
    stored.needs_repair = true;
    let token = new_token("r1", "tok-1");
    world.ledger.create_run(&stored, &token).await.unwrap();
    world.reopen().await;
    let found = world.ledger.run(&run_id("r1")).await.unwrap().unwrap();
    assert_eq!(found.run, stored.run);
    assert_eq!((found.usage, found.mount_paths), (stored.usage, stored.mount_paths));
    assert!(found.needs_repair);
    assert_eq!(world.ledger.token(&token.secret_sha256).await.unwrap(), Some(token));
    assert!(world.ledger.run(&run_id("r2")).await.unwrap().is_none());
}

#[rstest]
#[tokio::test]
async fn a_run_is_created_with_its_token_or_not_at_all(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let world = backend.open().await;
    world.run("r1").await;
    let again = world.ledger.create_run(&new_run("r1"), &new_token("r1", "tok-other")).await;
    assert!(matches!(again, Err(LedgerError::AlreadyExists)), "{again:?}");
    assert_eq!(world.ledger.token(&new_token("r1", "tok-other").secret_sha256).await.unwrap(), None);

    let mut token = new_token("r2", "tok-2");
    token.secret_sha256 = new_token("r1", "tok-r1").secret_sha256;
    let same_secret = world.ledger.create_run(&new_run("r2"), &token).await;
    assert!(matches!(same_secret, Err(LedgerError::AlreadyExists)), "{same_secret:?}");
    assert!(world.ledger.run(&run_id("r2")).await.unwrap().is_none());
    world.run("r2").await;
}

#[rstest]
#[tokio::test]
async fn a_token_is_its_runs_own_and_can_be_revoked(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let world = backend.open().await;
    let (r1, r2) = (world.run("r1").await, world.run("r2").await);
    let token = new_token("r1", "extra");
    world.ledger.create_token(&token).await.unwrap();
    let again = world.ledger.create_token(&token).await;
    assert!(matches!(again, Err(LedgerError::AlreadyExists)), "{again:?}");
    let homeless = world.ledger.create_token(&new_token("nobody", "extra")).await;
    assert!(matches!(homeless, Err(LedgerError::NoSuchRun)), "{homeless:?}");

    let id = TokenId::parse("extra").unwrap();
    assert!(!world.ledger.revoke_token(&r2, &id).await.unwrap());
    assert!(!world.ledger.token(&token.secret_sha256).await.unwrap().unwrap().revoked);
    assert!(world.ledger.revoke_token(&r1, &id).await.unwrap());
    assert!(world.ledger.token(&token.secret_sha256).await.unwrap().unwrap().revoked);
    assert!(world.ledger.revoke_token(&r1, &id).await.unwrap());
    assert_eq!(world.ledger.token(&Sha256::ZERO).await.unwrap(), None);
}

async fn stored(world: &World, id: &str) -> StoredRun {
    world.ledger.run(&run_id(id)).await.unwrap().unwrap()
}

#[rstest]
#[tokio::test]
async fn a_run_is_prepared_opened_and_closed_once(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let world = backend.open().await;
    let mut new = new_run("r1");
    new.run.state = RunState::Preparing;
    new.run.base_commit = None;
    world.ledger.create_run(&new, &new_token("r1", "tok-1")).await.unwrap();
    let left_out = vec![SkippedEntry { path: "a/.git".into(), reason: "git-internal".into() }];
    let import = ImportReport { files: 7, bytes: 8, left_out, left_out_more: 0, progress: "done".into() };
    assert!(world.ledger.open_run(&new.run.run_id, "beef", &import).await.unwrap());
    let open = stored(&world, "r1").await.run;
    assert_eq!((open.state, open.base_commit.as_deref(), open.import), (RunState::Open, Some("beef"), import));

    let run = new.run.run_id;
    world.ledger.set_run_state(&run, RunState::Closed, Some("2026-01-02T00:00:00Z")).await.unwrap();
    world.ledger.set_run_state(&run, RunState::Deleted, Some("2026-01-03T00:00:00Z")).await.unwrap();
    let deleted = stored(&world, "r1").await.run;
    assert_eq!((deleted.state, deleted.closed_at.as_deref()), (RunState::Deleted, Some("2026-01-02T00:00:00Z")));
    // An import that ends after that does not open the run again, nor does whoever closes it late.
    assert!(!world.ledger.open_run(&run, "cafe", &ImportReport::default()).await.unwrap());
    world.ledger.set_run_state(&run, RunState::Closed, None).await.unwrap();
    let still = stored(&world, "r1").await.run;
    assert_eq!((still.state, still.base_commit.as_deref()), (RunState::Deleted, Some("beef")));

    world.ledger.set_needs_repair(&run, true).await.unwrap();
    assert!(stored(&world, "r1").await.needs_repair);
    world.ledger.set_needs_repair(&run, false).await.unwrap();
    assert!(!stored(&world, "r1").await.needs_repair);
}

#[rstest]
#[tokio::test]
async fn what_a_tree_holds_changes_with_each_record(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let world = backend.open().await;
    assert_eq!(world.ledger.storage_totals().await.unwrap(), StorageTotals::default());
    let mut new = new_run("r1");
    new.run.disk = Disk { bytes: 100, files: 2 };
    world.ledger.create_run(&new, &new_token("r1", "tok-1")).await.unwrap();
    let mut other = new_run("r2");
    (other.run.state, other.run.base_commit) = (RunState::Preparing, None);
    world.ledger.create_run(&other, &new_token("r2", "tok-2")).await.unwrap();
    let mut entry = write("r1", "tc_1", "a");
    entry.disk = DiskChange { bytes: 50, files: 1 };
    world.try_append(entry).await.unwrap();
    let mut less = write("r1", "tc_2", "b");
    less.disk = DiskChange { bytes: -30, files: -2 };
    world.ledger.append(vec![less, read("r1", "a")]).await.unwrap();
    assert_eq!(stored(&world, "r1").await.run.disk, Disk { bytes: 120, files: 1 });
    let import = ImportReport { files: 7, bytes: 8, ..ImportReport::default() };
    world.ledger.open_run(&other.run.run_id, "beef", &import).await.unwrap();
    assert_eq!(stored(&world, "r2").await.run.disk, Disk { bytes: 8, files: 7 });
    assert_eq!(world.ledger.storage_totals().await.unwrap(), StorageTotals { runs: 2, bytes: 128 });
    // What nobody has counted stays so, whatever is recorded, until somebody counts it.
    let r1 = new.run.run_id;
    world.ledger.set_disk_usage(&r1, None).await.unwrap();
    let mut more = write("r1", "tc_3", "c");
    more.disk = DiskChange { bytes: 50, files: 1 };
    world.try_append(more).await.unwrap();
    assert_eq!(world.ledger.runs_without_disk_usage().await.unwrap(), std::slice::from_ref(&r1));
    world.ledger.set_disk_usage(&r1, Some(Disk { bytes: 5, files: 1 })).await.unwrap();
    assert_eq!(world.ledger.runs_without_disk_usage().await.unwrap(), []);
    assert_eq!(stored(&world, "r1").await.run.disk, Disk { bytes: 5, files: 1 });
    world.ledger.set_run_state(&r1, RunState::Deleted, Some("2026-01-03T00:00:00Z")).await.unwrap();
    assert_eq!(world.ledger.storage_totals().await.unwrap(), StorageTotals { runs: 1, bytes: 8 });
}

#[rstest]
#[tokio::test]
async fn a_run_that_is_not_there_cannot_be_changed(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let world = backend.open().await;
    let nobody = run_id("nobody");
    assert!(!world.ledger.open_run(&nobody, "beef", &ImportReport::default()).await.unwrap());
    let changes = [
        world.ledger.set_run_state(&nobody, RunState::Closed, None).await,
        world.ledger.set_needs_repair(&nobody, true).await,
        world.try_append(read("nobody", "a")).await.map(drop),
        world.ledger.verify(&nobody).await.map(drop),
    ];
    for change in changes {
        assert!(matches!(change, Err(LedgerError::NoSuchRun)), "{change:?}");
    }
}

#[rstest]
#[tokio::test]
async fn runs_are_listed_in_order_of_creation(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let world = backend.open().await;
    for id in ["b", "a", "d", "c"] {
        world.run(id).await;
    }
    world.ledger.set_run_state(&run_id("a"), RunState::Closed, None).await.unwrap();
    world.ledger.set_run_state(&run_id("d"), RunState::Deleted, None).await.unwrap();
    let names = |runs: &[(i64, Run)]| runs.iter().map(|(_, run)| run.run_id.to_string()).collect::<Vec<_>>();
    let first = world.ledger.runs(None, None, 3.into()).await.unwrap();
    assert_eq!(names(&first), ["b", "a", "d"]);
    assert_eq!(names(&world.ledger.runs(None, Some(first[2].0), 3.into()).await.unwrap()), ["c"]);
    let open = world.ledger.runs(Some(RunState::Open), None, 1.into()).await.unwrap();
    assert_eq!(names(&open), ["b"]);
    assert_eq!(names(&world.ledger.runs(Some(RunState::Open), Some(open[0].0), 9.into()).await.unwrap()), ["c"]);
    let live = world.ledger.live_runs().await.unwrap();
    assert_eq!(live, [run_id("b"), run_id("a"), run_id("c")]);
}

#[rstest]
#[tokio::test]
async fn a_run_expires_when_its_time_is_up_unless_it_was_closed(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let world = backend.open().await;
    for id in ["r1", "r2"] {
        world.run(id).await;
    }
    let mut forever = new_run("r3");
    forever.run.expires_at = None;
    world.ledger.create_run(&forever, &new_token("r3", "tok")).await.unwrap();
    world.ledger.set_run_state(&run_id("r2"), RunState::Closed, Some("2026-01-02T00:00:00Z")).await.unwrap();
    let before = world.ledger.expired_runs("2026-01-31T23:59:59.999999Z").await.unwrap();
    assert!(before.is_empty(), "{before:?}");
    assert_eq!(world.ledger.expired_runs("2026-02-01T00:00:00.000000Z").await.unwrap(), [run_id("r1")]);
}

#[rstest]
#[tokio::test]
async fn a_run_counts_its_calls_and_what_they_use(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut world = backend.open().await;
    world.run("r1").await;
    world.append(read("r1", "a")).await;
    world.append(change("r1", "one", "src/a")).await;
    let mut denied = write("r1", "two", "src/b");
    denied.draft.decision = Verdict::Deny;
    denied.draft.outcome = Outcome::Refused;
    world.append(denied).await;
    // A dry run: it went well, and changed nothing.
    world.append(write("r1", "three", "src/b")).await;
    world.reopen().await;
    let last = world.append(change("r1", "four", "src/a")).await;
    assert!(matches!(world.try_append(write("r1", "four", "x")).await.unwrap(), Appended::Reused(_)));
    let found = stored(&world, "r1").await;
    let counts = found.run.counts;
    assert_eq!((counts.calls, counts.mutations, counts.denied, counts.pending_approvals), (5, 2, 1, 0));
    assert_eq!((found.run.head_seq, found.run.head_hash), (5, last.hash.unwrap()));
    let twice = Usage { files_touched: 6, insertions: 10, deletions: 4, files_deleted: 2, bytes: 18 };
    assert_eq!(found.usage, twice);
}

#[rstest]
#[tokio::test]
async fn hashes_of_good_tokens_are_listed_in_pages(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let world = backend.open().await;
    world.run("r1").await;
    let mut want = vec![new_token("r1", "tok-r1").secret_sha256];
    for number in 0..5 {
        let token = new_token("r1", &format!("good-{number}"));
        let token = Token { expires_at: (number > 2).then(|| "2026-02-01T00:00:00.000000Z".to_owned()), ..token };
        want.push(token.secret_sha256);
        world.ledger.create_token(&token).await.unwrap();
    }
    let over = Token { expires_at: Some("2026-01-01T00:00:00.000000Z".to_owned()), ..new_token("r1", "over") };
    let revoked = new_token("r1", "revoked");
    for token in [&over, &revoked] {
        world.ledger.create_token(token).await.unwrap();
    }
    assert!(world.ledger.revoke_token(&run_id("r1"), &revoked.token_id).await.unwrap());
    want.sort_unstable();
    let (mut found, mut after) = (Vec::new(), Sha256::ZERO);
    loop {
        let page = world.ledger.token_hashes(&after, "2026-01-15T00:00:00.000000Z", 2).await.unwrap();
        assert!(page.len() <= 2);
        let Some(last) = page.last() else { break };
        after = *last;
        found.extend(page);
    }
    assert_eq!(found, want);
}

#[rstest]
#[tokio::test]
async fn a_setting_is_stored_once(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut world = backend.open().await;
    assert_eq!(world.ledger.setting("token").await.unwrap(), None);
    assert_eq!(world.ledger.set_setting_once("token", "one").await.unwrap(), "one");
    assert_eq!(world.ledger.set_setting_once("token", "two").await.unwrap(), "one");
    world.reopen().await;
    assert_eq!(world.ledger.setting("token").await.unwrap().as_deref(), Some("one"));
    assert_eq!(world.ledger.setting("other").await.unwrap(), None);
}

#[rstest]
#[tokio::test]
async fn a_closed_ledger_says_so(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let world = backend.open().await;
    world.run("r1").await;
    world.ledger.ping().await.unwrap();
    world.ledger.close().await;
    world.ledger.close().await;
    assert!(matches!(world.try_append(read("r1", "a")).await, Err(LedgerError::Unavailable(_))));
    assert!(matches!(world.ledger.ping().await, Err(LedgerError::Unavailable(_))));
    assert!(matches!(world.ledger.run(&run_id("r1")).await, Err(LedgerError::Unavailable(_))));
}

#[rstest]
#[tokio::test]
async fn a_database_of_a_newer_or_changed_program_is_refused(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let world = backend.open().await;
    world.ledger.close().await;
    world.raw("INSERT INTO schema_migration VALUES (9999, '9999_later', 'x', 'now')").await.unwrap();
    let error = ledger::open(world.url()).await.err().unwrap();
    assert!(format!("{error:?}").contains("newer version"), "{error:?}");
    world.raw("DELETE FROM schema_migration WHERE version = 9999").await.unwrap();
    world.raw("UPDATE schema_migration SET checksum = 'x' WHERE version = 1").await.unwrap();
    let error = ledger::open(world.url()).await.err().unwrap();
    assert!(format!("{error:?}").contains("0001_ledger"), "{error:?}");
}

#[tokio::test]
async fn a_sqlite_database_belongs_to_one_process() {
    let mut world = Backend::Sqlite.open().await;
    world.run("r1").await;
    let error = ledger::open(world.url()).await.err().unwrap();
    let told = matches!(&error, LedgerError::Unavailable(cause) if cause.to_string().contains("another process"));
    assert!(told, "{error:?}");
    world.reopen().await;
    assert!(world.ledger.run(&run_id("r1")).await.unwrap().is_some());
}

#[cfg(unix)]
#[tokio::test]
async fn a_sqlite_database_is_its_owners_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let world = Backend::Sqlite.open().await;
    world.run("r1").await;
    let path = world.url().strip_prefix("sqlite://").unwrap().to_owned();
    for suffix in ["", "-wal", ".lock"] {
        let mode = std::fs::metadata(format!("{path}{suffix}")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{suffix}");
    }
}

#[tokio::test]
async fn another_kind_of_url_is_refused() {
    for url in ["mysql://localhost/x", "workspaced.db", "postgres://host:notaport/x"] {
        assert!(matches!(ledger::open(url).await, Err(LedgerError::Internal(_))), "{url}");
    }
}
