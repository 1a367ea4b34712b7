//! Runs, tokens, settings, and opening a database.

use std::collections::BTreeMap;

use ledger::{Appended, LedgerError, RunFilter, RunTransition, StorageTotals, StoredRun};
use model::{
    Disk, DiskChange, DiskUse, ImportReport, Outcome, Run, RunSort, RunState, Sha256, SkippedEntry, Token, TokenId,
    Usage, Verdict,
};
use rstest::rstest;

use crate::harness::{Backend, RunChanges as _, TestDatabase, change_of, new_run, new_token, read, run_id, write};
use crate::journal::mutation;

#[rstest]
#[tokio::test]
async fn a_run_is_read_as_it_was_stored(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut db = backend.open().await;
    let mut stored = new_run("r1");
    stored.usage = Usage { files_touched: 1, insertions: 2, deletions: 3, files_deleted: 4, bytes: 5 };
    (stored.run.counts.insertions, stored.run.counts.deletions) = (2, 3);
    stored.needs_repair = true;
    let token = new_token("r1", "tok-1");
    db.ledger.create_run(&stored, &token, vec![]).await.unwrap();
    db.reopen().await;
    let found = db.ledger.run(&run_id("r1")).await.unwrap().unwrap();
    assert_eq!(found.run, stored.run);
    assert_eq!((found.usage, found.mount_paths), (stored.usage, stored.mount_paths));
    assert!(found.needs_repair);
    assert_eq!(db.ledger.token(&token.secret_sha256).await.unwrap(), Some(token));
    assert!(db.ledger.run(&run_id("r2")).await.unwrap().is_none());
}

#[rstest]
#[tokio::test]
async fn a_run_and_its_token_are_created_atomically(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let db = backend.open().await;
    db.run("r1").await;
    let again = db.ledger.create_run(&new_run("r1"), &new_token("r1", "tok-other"), vec![]).await;
    assert!(matches!(again, Err(LedgerError::AlreadyExists)), "{again:?}");
    assert_eq!(db.ledger.token(&new_token("r1", "tok-other").secret_sha256).await.unwrap(), None);

    let mut token = new_token("r2", "tok-2");
    token.secret_sha256 = new_token("r1", "tok-r1").secret_sha256;
    let same_secret = db.ledger.create_run(&new_run("r2"), &token, vec![]).await;
    assert!(matches!(same_secret, Err(LedgerError::AlreadyExists)), "{same_secret:?}");
    assert!(db.ledger.run(&run_id("r2")).await.unwrap().is_none());
    db.run("r2").await;
}

#[rstest]
#[tokio::test]
async fn a_token_can_be_revoked_only_through_its_run(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let db = backend.open().await;
    let (r1, r2) = (db.run("r1").await, db.run("r2").await);
    let token = new_token("r1", "extra");
    db.ledger.create_token(&token).await.unwrap();
    let again = db.ledger.create_token(&token).await;
    assert!(matches!(again, Err(LedgerError::AlreadyExists)), "{again:?}");
    let unknown_run = db.ledger.create_token(&new_token("unknown", "extra")).await;
    assert!(matches!(unknown_run, Err(LedgerError::NoSuchRun)), "{unknown_run:?}");

    let id = TokenId::parse("extra").unwrap();
    assert!(!db.ledger.revoke_token(&r2, &id).await.unwrap());
    assert!(!db.ledger.token(&token.secret_sha256).await.unwrap().unwrap().revoked);
    assert!(db.ledger.revoke_token(&r1, &id).await.unwrap());
    assert!(db.ledger.token(&token.secret_sha256).await.unwrap().unwrap().revoked);
    assert!(db.ledger.revoke_token(&r1, &id).await.unwrap());
    assert_eq!(db.ledger.token(&Sha256::ZERO).await.unwrap(), None);
}

async fn stored(db: &TestDatabase, id: &str) -> StoredRun {
    db.ledger.run(&run_id(id)).await.unwrap().unwrap()
}

#[rstest]
#[tokio::test]
async fn a_run_is_opened_and_closed_once(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let db = backend.open().await;
    let mut new = new_run("r1");
    new.run.state = RunState::Preparing;
    new.run.base_commit = None;
    db.ledger.create_run(&new, &new_token("r1", "tok-1"), vec![]).await.unwrap();
    let left_out = vec![SkippedEntry { path: "a/.git".into(), reason: "git-internal".into() }];
    let import = ImportReport { files: 7, bytes: 8, left_out, progress: "done".into(), ..ImportReport::default() };
    let resumed = ImportReport { progress: "waiting".into(), resumed: true, ..ImportReport::default() };
    let resume = || change_of("r1", "run.resume_import", RunTransition::ResumeImport { import: resumed.clone() });
    assert!(matches!(db.try_append(resume()).await.unwrap(), Appended::Recorded(_)));
    let preparing = stored(&db, "r1").await.run;
    assert_eq!((preparing.state, preparing.import), (RunState::Preparing, resumed.clone()));
    assert!(db.ledger.open_run(&new.run.run_id, "beef", &import).await.unwrap());
    let open = stored(&db, "r1").await.run;
    assert_eq!((open.state, open.base_commit.as_deref(), open.import), (RunState::Open, Some("beef"), import.clone()));
    // An import that has ended does not begin again.
    assert!(matches!(db.try_append(resume()).await.unwrap(), Appended::Unchanged));
    assert_eq!(stored(&db, "r1").await.run.import, import);

    let run = new.run.run_id;
    db.ledger.set_run_state(&run, RunState::Closed, Some("2026-01-02T00:00:00Z")).await.unwrap();
    db.ledger.set_run_state(&run, RunState::Deleted, Some("2026-01-03T00:00:00Z")).await.unwrap();
    let deleted = stored(&db, "r1").await.run;
    assert_eq!((deleted.state, deleted.closed_at.as_deref()), (RunState::Deleted, Some("2026-01-02T00:00:00Z")));
    // A late import does not reopen the run, and closing it does not undo its deletion.
    assert!(!db.ledger.open_run(&run, "cafe", &ImportReport::default()).await.unwrap());
    db.ledger.set_run_state(&run, RunState::Closed, None).await.unwrap();
    let unchanged = stored(&db, "r1").await.run;
    assert_eq!((unchanged.state, unchanged.base_commit.as_deref()), (RunState::Deleted, Some("beef")));

    db.ledger.set_needs_repair(&run, true, "2026-01-01T00:00:00.000000Z").await.unwrap();
    assert!(stored(&db, "r1").await.needs_repair);
    db.ledger.set_needs_repair(&run, false, "2026-01-01T00:00:00.000000Z").await.unwrap();
    assert!(!stored(&db, "r1").await.needs_repair);
}

#[rstest]
#[tokio::test]
async fn the_disk_usage_of_a_run_changes_with_each_record(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    assert_eq!(db.ledger.storage_totals().await.unwrap(), StorageTotals::default());
    let mut new = new_run("r1");
    new.run.disk = DiskUse::new(Disk { bytes: 100, files: 2 }, Disk { bytes: 10, files: 1 }, 0);
    db.ledger.create_run(&new, &new_token("r1", "tok-1"), vec![]).await.unwrap();
    let mut other = new_run("r2");
    (other.run.state, other.run.base_commit) = (RunState::Preparing, None);
    db.ledger.create_run(&other, &new_token("r2", "tok-2"), vec![]).await.unwrap();
    let mut entry = write("r1", "tc_1", "a");
    entry.disk = DiskChange { bytes: 50, files: 1 };
    entry.own_disk = DiskChange { bytes: 70, files: 2 };
    db.try_append(entry).await.unwrap();
    let mut less = write("r1", "tc_2", "b");
    less.disk = DiskChange { bytes: -30, files: -2 };
    less.own_disk = DiskChange { bytes: -5, files: -1 };
    db.ledger.append(vec![less, read("r1", "a")]).await.unwrap();
    assert_eq!(stored(&db, "r1").await.run.disk.tree(), Disk { bytes: 120, files: 1 });
    let DiskUse { own_bytes, own_files, .. } = stored(&db, "r1").await.run.disk;
    assert_eq!((own_bytes, own_files), (75, 2));
    let import = ImportReport { files: 7, bytes: 8, ..ImportReport::default() };
    db.ledger.open_run(&other.run.run_id, "beef", &import).await.unwrap();
    assert_eq!(stored(&db, "r2").await.run.disk.tree(), Disk { bytes: 8, files: 7 });
    let history_bytes = stored(&db, "r1").await.run.disk.history_bytes + stored(&db, "r2").await.run.disk.history_bytes;
    assert_eq!(db.ledger.storage_totals().await.unwrap(), StorageTotals { runs: 2, bytes: 128, history_bytes });
    let r1 = new.run.run_id;
    db.ledger.set_disk_usage(&r1, Disk { bytes: 5, files: 1 }).await.unwrap();
    assert_eq!(stored(&db, "r1").await.run.disk.tree(), Disk { bytes: 5, files: 1 });
    db.ledger.set_run_state(&r1, RunState::Deleted, Some("2026-01-03T00:00:00Z")).await.unwrap();
    let totals = db.ledger.storage_totals().await.unwrap();
    assert_eq!((totals.runs, totals.bytes), (1, 8));
    let summary = db.ledger.summary().await.unwrap();
    assert_eq!(summary.runs, [(RunState::Deleted, 1), (RunState::Open, 1)]);
    assert_eq!(summary.pending_approvals, 0);
    let connections = db.ledger.connections();
    // A connection returns to its pool after the result does.
    assert!((1..=connections.max).contains(&(connections.used + connections.idle)), "{connections:?}");
}

#[rstest]
#[tokio::test]
async fn changing_a_run_that_does_not_exist_fails(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let db = backend.open().await;
    let unknown = run_id("unknown");
    let results = [
        db.ledger.open_run(&unknown, "beef", &ImportReport::default()).await.map(drop),
        db.ledger.set_run_state(&unknown, RunState::Closed, None).await.map(drop),
        db.ledger.set_needs_repair(&unknown, true, "2026-01-01T00:00:00.000000Z").await,
        db.try_append(read("unknown", "a")).await.map(drop),
        db.ledger.verify(&unknown).await.map(drop),
    ];
    for result in results {
        assert!(matches!(result, Err(LedgerError::NoSuchRun)), "{result:?}");
    }
}

#[rstest]
#[tokio::test]
async fn runs_are_listed_in_order_of_creation(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let db = backend.open().await;
    for id in ["b", "a", "d", "c"] {
        db.run(id).await;
    }
    db.ledger.set_run_state(&run_id("a"), RunState::Closed, None).await.unwrap();
    db.ledger.set_run_state(&run_id("d"), RunState::Deleted, None).await.unwrap();
    let names = |runs: &[(i64, Run)]| runs.iter().map(|(_, run)| run.run_id.to_string()).collect::<Vec<_>>();
    let (all, open_only) = (RunFilter::default(), RunFilter::from(RunState::Open));
    let first = db.ledger.runs(&all, None, 3.into()).await.unwrap();
    assert_eq!(names(&first), ["b", "a", "d"]);
    assert_eq!(names(&db.ledger.runs(&all, Some(first[2].0), 3.into()).await.unwrap()), ["c"]);
    let open = db.ledger.runs(&open_only, None, 1.into()).await.unwrap();
    assert_eq!(names(&open), ["b"]);
    assert_eq!(names(&db.ledger.runs(&open_only, Some(open[0].0), 9.into()).await.unwrap()), ["c"]);
    let live = db.ledger.live_runs().await.unwrap();
    assert_eq!(live, [run_id("b"), run_id("a"), run_id("c")]);
}

/// Returns the IDs of the runs of all pages of one run.
async fn listed(db: &TestDatabase, filter: &RunFilter) -> Vec<String> {
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = db.ledger.runs(filter, after, 1.into()).await.unwrap();
        assert!(page.len() <= 1);
        found.extend(page.iter().map(|(_, run)| run.run_id.to_string()));
        after = page.next();
        if after.is_none() {
            return found;
        }
    }
}

#[rstest]
#[tokio::test]
async fn runs_are_searched(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let db = backend.open().await;
    for (day, (id, creator, labels)) in (1..).zip([
        ("b", "ada", vec![("team", "x"), ("ticket", "1")]),
        ("a", "bob", vec![("team", "x"), ("a:b", "c")]),
        ("d", "ada", vec![("team", "y")]),
        ("c", "ada", vec![("team", "x"), ("ticket", "2")]),
    ]) {
        let mut stored = new_run(id);
        stored.run.created_by = Some(crate::operators::name(creator));
        stored.run.created_at = format!("2026-01-0{day}T00:00:00.000000Z");
        stored.run.labels = labels.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        db.ledger.create_run(&stored, &new_token(id, &format!("tok-{id}")), vec![]).await.unwrap();
    }
    db.ledger.set_run_state(&run_id("d"), RunState::Closed, None).await.unwrap();
    let text = |text: &str| Some(text.to_owned());
    let labels = |labels: &[&str]| labels.iter().map(|label| (*label).to_owned()).collect::<Vec<_>>();
    let all = RunFilter::default;
    for (filter, expected) in [
        (RunFilter { newest_first: true, ..all() }, vec!["c", "d", "a", "b"]),
        (RunFilter { newest_first: true, ..RunState::Open.into() }, vec!["c", "a", "b"]),
        (RunFilter { labels: labels(&["team:x"]), ..all() }, vec!["b", "a", "c"]),
        (RunFilter { labels: labels(&["team:x"]), newest_first: true, ..all() }, vec!["c", "a", "b"]),
        (RunFilter { labels: labels(&["ticket:2", "team:x"]), ..all() }, vec!["c"]),
        (RunFilter { labels: labels(&["ticket:1", "ticket:2"]), ..all() }, vec![]),
        (RunFilter { labels: labels(&["team:"]), ..all() }, vec![]),
        (RunFilter { labels: labels(&["a:b:c"]), ..all() }, vec!["a"]),
        (RunFilter { created_by: text("ada"), ..all() }, vec!["b", "d", "c"]),
        (RunFilter { created_by: text("ada"), ..RunState::Closed.into() }, vec!["d"]),
        (RunFilter { created_after: text("2026-01-02T00:00:00.000000Z"), ..all() }, vec!["d", "c"]),
        (RunFilter { created_before: text("2026-01-02T00:00:00.000000Z"), ..all() }, vec!["b"]),
        (RunFilter { text: text("TEAM:X"), ..all() }, vec!["b", "a", "c"]),
        (RunFilter { text: text("bob"), ..all() }, vec!["a"]),
        (RunFilter { without_deleted: true, ..all() }, vec!["b", "a", "d", "c"]),
        (RunFilter { sort: Some(RunSort::Waiting), newest_first: true, ..all() }, vec!["c", "d", "a", "b"]),
        (RunFilter { sort: Some(RunSort::Changes), ..all() }, vec!["b", "a", "d", "c"]),
        // That a run is closed is what happened last in it.
        (RunFilter { sort: Some(RunSort::Activity), text: text("ada"), ..all() }, vec!["b", "c", "d"]),
    ] {
        assert_eq!(listed(&db, &filter).await, expected, "{filter:?}");
    }
}

#[rstest]
#[tokio::test]
async fn runs_are_ordered_by_repository_and_agent_and_found_by_their_prompt(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    let labels = |labels: &[(&str, &str)]| -> BTreeMap<String, String> {
        labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    for (id, named) in [
        ("r1", labels(&[("repository", "shop"), ("agent", "small")])),
        ("r2", labels(&[("repo", "Shop"), ("model", "large"), ("agent", "other")])),
        ("r3", labels(&[])),
        ("r4", labels(&[("repository", "shop"), ("model", "\u{fffd}\0")])),
        ("r5", labels(&[("repository", ""), ("agent", "large")])),
    ] {
        let mut stored = new_run(id);
        stored.run.labels = named;
        stored.run.name_by_labels();
        db.ledger.create_run(&stored, &new_token(id, &format!("tok-{id}")), vec![]).await.unwrap();
    }
    let by = |sort, newest_first| RunFilter { sort: Some(sort), newest_first, ..RunFilter::default() };
    // By bytes; without a label, the repository is the URL of the source. Runs of the same name are in order of creation.
    assert_eq!(listed(&db, &by(RunSort::Repository, false)).await, ["r2", "r3", "r5", "r1", "r4"]);
    assert_eq!(listed(&db, &by(RunSort::Repository, true)).await, ["r4", "r1", "r5", "r3", "r2"]);
    assert_eq!(listed(&db, &by(RunSort::Agent, false)).await, ["r3", "r2", "r5", "r1", "r4"]);
    assert_eq!(listed(&db, &by(RunSort::Agent, true)).await, ["r4", "r1", "r5", "r2", "r3"]);
    let closed = RunFilter { state: Some(RunState::Closed), ..by(RunSort::Agent, false) };
    db.ledger.set_run_state(&run_id("r5"), RunState::Closed, None).await.unwrap();
    assert_eq!(listed(&db, &closed).await, ["r5"]);

    let mut update = read("r3", "update");
    update.run_change = Some(RunTransition::Update { labels: Some(labels(&[("agent", "zeta")])), expires_at: None });
    db.append(update).await;
    assert_eq!(listed(&db, &by(RunSort::Agent, true)).await, ["r4", "r3", "r1", "r5", "r2"]);
    let run = stored(&db, "r3").await.run;
    assert_eq!((run.repository.as_deref(), run.agent.as_deref()), (Some("https://example.org/ü.git"), Some("zeta")));

    let prompt = |id, summary: &str| {
        let mut entry = read("r1", id);
        entry.draft.tool = "event.prompt".into();
        entry.draft.input = serde_json::json!({ "summary": summary }).as_object().cloned();
        entry.draft.timestamp = "2026-03-01T00:00:00.000000Z".into();
        entry
    };
    db.append(prompt("p1", "Fix the LOGIN \0")).await;
    db.append(prompt("p2", "And now the basket")).await;
    let find = |text: &str| RunFilter { text: Some(text.to_owned()), ..RunFilter::default() };
    assert_eq!(listed(&db, &find("the login")).await, ["r1"]);
    assert!(listed(&db, &find("basket")).await.is_empty(), "the first prompt is what the run is for");
    let run = stored(&db, "r1").await.run;
    assert_eq!(run.prompt.as_deref(), Some("Fix the LOGIN \0"));
    assert_eq!(run.last_activity_at.as_deref(), Some("2026-03-01T00:00:00.000000Z"));
}

#[rstest]
#[tokio::test]
async fn a_repository_that_no_index_holds_is_cut(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let db = backend.open().await;
    let long: String = (0..5000_u32).filter_map(|n| char::from_u32(0x4e00 + n * 7919 % 20_000)).collect();
    let mut new = new_run("r1");
    new.run.labels = BTreeMap::from([("repository".to_owned(), long.clone()), ("agent".to_owned(), long.clone())]);
    new.run.name_by_labels();
    db.ledger.create_run(&new, &new_token("r1", "tok"), vec![]).await.unwrap();
    let run = stored(&db, "r1").await.run;
    let cut: String = long.chars().take(512).collect();
    assert_eq!((run.repository, run.agent), (Some(cut.clone()), Some(cut)));
}

#[rstest]
#[tokio::test]
async fn an_open_run_expires_at_its_expiry_time(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let db = backend.open().await;
    for id in ["r1", "r2"] {
        db.run(id).await;
    }
    let mut without_expiry = new_run("r3");
    without_expiry.run.expires_at = None;
    db.ledger.create_run(&without_expiry, &new_token("r3", "tok"), vec![]).await.unwrap();
    db.ledger.set_run_state(&run_id("r2"), RunState::Closed, Some("2026-01-02T00:00:00Z")).await.unwrap();
    let before = db.ledger.expired_runs("2026-01-31T23:59:59.999999Z").await.unwrap();
    assert!(before.is_empty(), "{before:?}");
    assert_eq!(db.ledger.expired_runs("2026-02-01T00:00:00.000000Z").await.unwrap(), [run_id("r1")]);
}

#[rstest]
#[tokio::test]
async fn a_run_counts_its_calls_and_their_usage(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut db = backend.open().await;
    db.run("r1").await;
    db.append(read("r1", "a")).await;
    db.append(mutation("r1", "one", "src/a")).await;
    let mut denied = write("r1", "two", "src/b");
    denied.draft.decision = Verdict::Deny;
    denied.draft.outcome = Outcome::Refused;
    db.append(denied).await;
    // A dry run: successful, without steps.
    db.append(write("r1", "three", "src/b")).await;
    db.reopen().await;
    let last = db.append(mutation("r1", "four", "src/a")).await;
    assert!(matches!(db.try_append(write("r1", "four", "x")).await.unwrap(), Appended::Reused(_)));
    let found = stored(&db, "r1").await;
    let counts = found.run.counts;
    assert_eq!((counts.calls, counts.mutations, counts.denied, counts.pending_approvals), (5, 2, 1, 0));
    assert_eq!((found.run.head_seq, found.run.head_hash), (5, last.hash.unwrap()));
    let twice = Usage { files_touched: 6, insertions: 10, deletions: 4, files_deleted: 2, bytes: 18 };
    assert_eq!(found.usage, twice);
}

#[rstest]
#[tokio::test]
async fn hashes_of_valid_tokens_are_listed_in_pages(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let db = backend.open().await;
    db.run("r1").await;
    let mut expected = vec![new_token("r1", "tok-r1").secret_sha256];
    for number in 0..5 {
        let token = new_token("r1", &format!("valid-{number}"));
        let token = Token { expires_at: (number > 2).then(|| "2026-02-01T00:00:00.000000Z".to_owned()), ..token };
        expected.push(token.secret_sha256);
        db.ledger.create_token(&token).await.unwrap();
    }
    let expired = Token { expires_at: Some("2026-01-01T00:00:00.000000Z".to_owned()), ..new_token("r1", "expired") };
    let revoked = new_token("r1", "revoked");
    for token in [&expired, &revoked] {
        db.ledger.create_token(token).await.unwrap();
    }
    assert!(db.ledger.revoke_token(&run_id("r1"), &revoked.token_id).await.unwrap());
    expected.sort_unstable();
    let (mut found, mut after) = (Vec::new(), Sha256::ZERO);
    loop {
        let page = db.ledger.token_hashes(&after, "2026-01-15T00:00:00.000000Z", 2).await.unwrap();
        assert!(page.len() <= 2);
        let Some(last) = page.last() else { break };
        after = *last;
        found.extend(page);
    }
    assert_eq!(found, expected);
}

#[rstest]
#[tokio::test]
async fn a_setting_is_stored_once(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut db = backend.open().await;
    assert_eq!(db.ledger.setting("token").await.unwrap(), None);
    assert_eq!(db.ledger.set_setting_once("token", "one").await.unwrap(), "one");
    assert_eq!(db.ledger.set_setting_once("token", "two").await.unwrap(), "one");
    db.reopen().await;
    assert_eq!(db.ledger.setting("token").await.unwrap().as_deref(), Some("one"));
    assert_eq!(db.ledger.setting("other").await.unwrap(), None);
}

#[rstest]
#[tokio::test]
async fn a_closed_ledger_rejects_appends_and_reads(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let db = backend.open().await;
    db.run("r1").await;
    db.ledger.ping().await.unwrap();
    db.ledger.close().await;
    db.ledger.close().await;
    assert!(matches!(db.try_append(read("r1", "a")).await, Err(LedgerError::Unavailable(_))));
    assert!(matches!(db.ledger.ping().await, Err(LedgerError::Unavailable(_))));
    assert!(matches!(db.ledger.run(&run_id("r1")).await, Err(LedgerError::Unavailable(_))));
}

#[rstest]
#[tokio::test]
async fn a_database_with_unknown_or_changed_migrations_is_rejected(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    db.ledger.close().await;
    db.execute("INSERT INTO schema_migration VALUES (9999, '9999_later', 'x', 'now')").await.unwrap();
    let error = ledger::open(db.url()).await.err().unwrap();
    assert!(format!("{error:?}").contains("belongs to another version"), "{error:?}");
    db.execute("DELETE FROM schema_migration WHERE version = 9999").await.unwrap();
    db.execute("UPDATE schema_migration SET checksum = 'x' WHERE version = 1").await.unwrap();
    let error = ledger::open(db.url()).await.err().unwrap();
    assert!(format!("{error:?}").contains("0001_ledger"), "{error:?}");
}

#[tokio::test]
async fn a_sqlite_database_is_locked_by_one_process() {
    let mut db = Backend::Sqlite.open().await;
    db.run("r1").await;
    let error = ledger::open(db.url()).await.err().unwrap();
    let is_locked = matches!(&error, LedgerError::Unavailable(cause) if cause.to_string().contains("another process"));
    assert!(is_locked, "{error:?}");
    db.reopen().await;
    assert!(db.ledger.run(&run_id("r1")).await.unwrap().is_some());
}

#[cfg(unix)]
#[tokio::test]
async fn only_the_owner_can_read_the_files_of_a_sqlite_database() {
    use std::os::unix::fs::PermissionsExt as _;
    let db = Backend::Sqlite.open().await;
    db.run("r1").await;
    let path = db.url().strip_prefix("sqlite://").unwrap().to_owned();
    for suffix in ["", "-wal", ".lock"] {
        let mode = std::fs::metadata(format!("{path}{suffix}")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{suffix}");
    }
}

#[tokio::test]
async fn an_unsupported_url_is_rejected() {
    for url in ["mysql://localhost/x", "workspaced.db", "postgres://host:notaport/x"] {
        assert!(matches!(ledger::open(url).await, Err(LedgerError::Internal(_))), "{url}");
    }
}
