//! Changes of runs with their records, events and uploads.

use std::collections::BTreeMap;

use ledger::{
    Appended, Entry, EventQuota, Expiry, FailedPrecondition, RequiredToken, RunTransition, TokenHolder, UploadedContent,
};
use model::{MAX_RUN_EVENT_BYTES, MAX_RUN_EVENTS, RunState, Sha256, TokenId};
use rstest::rstest;

use crate::harness::{Backend, RunChanges as _, TestDatabase, call_id, change_of, new_run, new_token, read, run_id};

/// An event of `bytes` bytes under the caller's ID `id`.
fn event(run: &str, id: &str, bytes: u64) -> Entry {
    let mut entry = read(run, "a");
    entry.draft.tool = "event.command".into();
    entry.draft.tool_call_id = call_id(id);
    entry.draft.paths_read = vec![];
    entry.draft.input = serde_json::json!({ "summary": id, "data": { "score": 0.1 } }).as_object().cloned();
    entry.client_supplied_id = true;
    entry.input_sha256 = Sha256::of(id.as_bytes());
    entry.event_bytes = Some(bytes);
    entry
}

fn upload(run: &str, content: &[u8]) -> Entry {
    let mut entry = read(run, "a");
    entry.draft.tool = "artifact.upload".into();
    entry.upload = Some(UploadedContent { sha256: Sha256::of(content), bytes: content.to_vec() });
    entry.event_bytes = Some(content.len() as u64);
    entry
}

async fn seqs(db: &TestDatabase, run: &str) -> Vec<(u64, String)> {
    let filter = ledger::RecordFilter { run: Some(run_id(run)), ..ledger::RecordFilter::default() };
    let page = db.ledger.records(&filter, None, 100.into()).await.unwrap();
    let parse = |stored: &ledger::StoredRecord| {
        let record: model::Record = serde_json::from_str(&stored.text).unwrap();
        (record.seq, record.tool)
    };
    page.iter().map(parse).collect()
}

#[rstest]
#[tokio::test]
async fn labels_and_expiry_are_replaced_until_the_run_is_deleted(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    let run = db.run("r1").await;
    let labels = |value: &str| BTreeMap::from([("ticket".to_owned(), value.to_owned())]);
    let update = async |labels: Option<&str>, expires_at: Option<Option<&str>>| {
        let expires_at = expires_at.map(|at| at.map_or(Expiry::Never, |at| Expiry::At(at.to_owned())));
        let labels = labels.map(|value| BTreeMap::from([("ticket".to_owned(), value.to_owned())]));
        db.try_append(change_of("r1", "run.update", RunTransition::Update { labels, expires_at })).await.unwrap()
    };
    let stored = async || {
        let run = db.ledger.run(&run).await.unwrap().unwrap().run;
        (run.labels, run.expires_at)
    };
    let before = stored().await;
    assert!(matches!(update(Some("1"), None).await, Appended::Recorded(_)));
    assert_eq!(stored().await, (labels("1"), before.1));
    assert!(matches!(update(None, Some(None)).await, Appended::Recorded(_)));
    assert_eq!(stored().await, (labels("1"), None));
    let later = "2099-01-01T00:00:00.000000Z";
    assert!(matches!(update(Some("2"), Some(Some(later))).await, Appended::Recorded(_)));
    assert_eq!(stored().await, (labels("2"), Some(later.to_owned())));
    assert_eq!(db.ledger.expired_runs(later).await.unwrap(), std::slice::from_ref(&run));

    let is_rejected = |appended: &Appended, state: RunState| matches!(appended, Appended::PreconditionFailed(FailedPrecondition::Run(found)) if *found == state);
    db.ledger.set_run_state(&run, RunState::Closed, None).await.unwrap();
    let rejected = update(Some("3"), Some(None)).await;
    assert!(is_rejected(&rejected, RunState::Closed), "{rejected:?}");
    assert!(matches!(update(Some("3"), None).await, Appended::Recorded(_)));
    assert_eq!(stored().await, (labels("3"), Some(later.to_owned())));
    db.ledger.set_run_state(&run, RunState::Deleted, None).await.unwrap();
    let rejected = update(Some("4"), None).await;
    assert!(is_rejected(&rejected, RunState::Deleted), "{rejected:?}");
    assert_eq!(stored().await.0, labels("3"));
    let tools: Vec<_> = seqs(&db, "r1").await.into_iter().map(|(_, tool)| tool).collect();
    let update = "run.update";
    assert_eq!(tools, [update, update, update, "run.close", update, "run.delete"]);
    assert!(db.ledger.verify(&run).await.unwrap().intact);
}

#[rstest]
#[tokio::test]
async fn a_run_expires_at_the_stored_time_only(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut db = backend.open().await;
    let run = db.run("r1").await;
    let (first, later) = ("2026-02-01T00:00:00.000000Z", "2099-01-01T00:00:00.000000Z");
    let expire = |at: &str| change_of("r1", "run.close", RunTransition::Expire { expires_at: at.to_owned() });
    let update =
        |at: Expiry| change_of("r1", "run.update", RunTransition::Update { labels: None, expires_at: Some(at) });
    let state = async |db: &TestDatabase| db.ledger.run(&run).await.unwrap().unwrap().run.state;
    assert!(matches!(db.try_append(update(Expiry::At(first.into()))).await.unwrap(), Appended::Recorded(_)));
    // In one commit: the later entry depends on the earlier one.
    let (extended, expired) =
        tokio::join!(db.ledger.append(vec![update(Expiry::At(later.into()))]), db.ledger.append(vec![expire(first)]));
    assert!(matches!(extended.unwrap(), Appended::Recorded(_)));
    assert!(matches!(expired.unwrap(), Appended::Unchanged));
    db.reopen().await;
    assert!(matches!(db.try_append(expire(first)).await.unwrap(), Appended::Unchanged));
    assert!(matches!(db.try_append(update(Expiry::Never)).await.unwrap(), Appended::Recorded(_)));
    assert!(matches!(db.try_append(expire(later)).await.unwrap(), Appended::Unchanged));
    assert_eq!(state(&db).await, RunState::Open);
    assert!(matches!(db.try_append(update(Expiry::At(first.into()))).await.unwrap(), Appended::Recorded(_)));
    assert!(matches!(db.try_append(expire(first)).await.unwrap(), Appended::Recorded(_)));
    assert!(matches!(db.try_append(expire(first)).await.unwrap(), Appended::Unchanged));
    let stored = db.ledger.run(&run).await.unwrap().unwrap().run;
    assert_eq!((stored.state, stored.closed_at.as_deref()), (RunState::Closed, Some(first)));
    assert!(db.ledger.verify(&run).await.unwrap().intact);
}

#[rstest]
#[tokio::test]
async fn a_change_and_its_record_become_durable_together(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let mut db = backend.open().await;
    let (run, token) = (run_id("r1"), new_token("r1", "tok-1"));
    let mut create = read("r1", "a");
    create.draft.tool = "run.create".into();
    let records = db.ledger.create_run(&new_run("r1"), &token, vec![create.clone()]).await.unwrap();
    assert_eq!((records.len(), records[0].seq), (1, 1));
    // A run that exists gets no second record.
    db.ledger.create_run(&new_run("r1"), &new_token("r1", "tok-2"), vec![create]).await.unwrap_err();
    db.ledger.create_token(&new_token("r1", "extra")).await.unwrap();
    db.ledger.create_token(&new_token("r1", "extra")).await.unwrap_err();
    let extra = TokenId::parse("extra").unwrap();
    for _ in 0..2 {
        assert!(db.ledger.revoke_token(&run, &extra).await.unwrap());
    }
    assert!(!db.ledger.revoke_token(&run, &TokenId::parse("none").unwrap()).await.unwrap());
    assert!(db.ledger.set_run_state(&run, RunState::Closed, Some("2026-01-02T00:00:00Z")).await.unwrap());
    assert!(!db.ledger.set_run_state(&run, RunState::Closed, Some("2026-01-03T00:00:00Z")).await.unwrap());
    assert!(db.ledger.set_run_state(&run, RunState::Deleted, None).await.unwrap());
    assert!(!db.ledger.set_run_state(&run, RunState::Closed, None).await.unwrap());
    let late = change_of("r1", "token.issue", RunTransition::IssueToken(new_token("r1", "late")));
    let rejected = db.try_append(late).await.unwrap();
    let is_deleted = matches!(&rejected, Appended::PreconditionFailed(FailedPrecondition::Run(RunState::Deleted)));
    assert!(is_deleted, "{rejected:?}");
    let tools = ["run.create", "token.issue", "token.revoke", "run.close", "run.delete"];
    let expected: Vec<_> = (1..).zip(tools.map(str::to_owned)).collect();
    assert_eq!(seqs(&db, "r1").await, expected);
    db.reopen().await;
    let report = db.ledger.verify(&run).await.unwrap();
    assert!(report.intact && report.head_seq == 5, "{report:?}");
    let stored = db.ledger.run(&run).await.unwrap().unwrap().run;
    assert_eq!((stored.state, stored.closed_at.as_deref()), (RunState::Deleted, Some("2026-01-02T00:00:00Z")));
}

#[rstest]
#[tokio::test]
async fn calls_that_share_the_commit_of_a_change_see_it(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
    #[values(false, true)] revokes_all: bool,
) {
    let db = backend.open().await;
    db.run("r1").await;
    db.ledger.create_token(&new_token("r1", "extra")).await.unwrap();
    let token = || RequiredToken {
        holder: TokenHolder::Run(TokenId::parse("extra").unwrap()),
        expires_at: None,
        now: || "2026-01-01T00:00:00Z".to_owned(),
    };
    let by_token = || {
        let mut entry = read("r1", "a");
        entry.preconditions.token = Some(token());
        entry.preconditions.open_run = true;
        entry
    };
    db.append(by_token()).await;
    let calls: Vec<_> = (0..20).map(|_| db.try_append(by_token())).collect();
    let extra = RunTransition::RevokeToken(TokenId::parse("extra").unwrap());
    let change = if revokes_all { RunTransition::RevokeAllTokens } else { extra };
    let revoke = db.try_append(change_of("r1", "token.revoke", change));
    let (revoked, _) = tokio::join!(revoke, futures_util::future::join_all(calls));
    assert!(matches!(revoked.unwrap(), Appended::Recorded(_)));
    let after = db.try_append(by_token()).await.unwrap();
    assert!(matches!(after, Appended::PreconditionFailed(FailedPrecondition::Token)), "{after:?}");
    // No record of the token follows that of its revocation.
    let tools: Vec<_> = seqs(&db, "r1").await.into_iter().map(|(_, tool)| tool).collect();
    assert_eq!(tools.last().map(String::as_str), Some("token.revoke"), "{tools:?}");
}

#[rstest]
#[tokio::test]
async fn an_event_is_recorded_once_and_another_one_under_its_id_is_rejected(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    let run = db.run("r1").await;
    assert_eq!(db.append(event("r1", "e1", 10)).await.seq, 1);
    let again = db.try_append(event("r1", "e1", 10)).await.unwrap();
    assert!(matches!(again, Appended::Repeated(0)), "{again:?}");
    let mut other = event("r1", "e1", 10);
    other.input_sha256 = Sha256::of(b"other");
    let reused = db.ledger.append(vec![event("r1", "e2", 1), other]).await.unwrap();
    assert!(matches!(reused, Appended::Reused(1)), "{reused:?}");
    let call = db.ledger.call(&run, &call_id("e1")).await.unwrap().unwrap();
    assert_eq!((call.seq, call.tool.as_str(), call.input_sha256), (1, "event.command", Sha256::of(b"e1")));
    assert!(db.ledger.verify(&run).await.unwrap().intact);
}

#[rstest]
#[tokio::test]
async fn events_and_uploads_are_bounded_together(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut db = backend.open().await;
    let run = db.run("r1").await;
    let content = b"a log\0 of bytes".to_vec();
    db.append(upload("r1", &content)).await;
    let again = db.try_append(upload("r1", &content)).await.unwrap();
    assert!(matches!(again, Appended::Unchanged), "{again:?}");
    assert_eq!(db.ledger.upload(&run, &Sha256::of(&content)).await.unwrap(), Some(content.clone()));
    assert_eq!(db.ledger.upload(&run, &Sha256::ZERO).await.unwrap(), None);
    db.run("r2").await;
    assert_eq!(db.ledger.upload(&run_id("r2"), &Sha256::of(&content)).await.unwrap(), None);

    let used = content.len() as u64;
    db.append(event("r1", "large", MAX_RUN_EVENT_BYTES - used - 5)).await;
    db.reopen().await;
    let quota = |appended: Appended| match appended {
        Appended::EventQuotaExceeded(quota) => quota,
        other => panic!("{other:?}"),
    };
    let both = vec![event("r1", "b1", 3), event("r1", "b2", 3)];
    let bytes = EventQuota { is_bytes: true, limit: MAX_RUN_EVENT_BYTES, actual: MAX_RUN_EVENT_BYTES + 1 };
    assert_eq!(quota(db.ledger.append(both).await.unwrap()), bytes);
    assert_eq!(db.append(event("r1", "b1", 5)).await.seq, 3);

    let mut many: Vec<_> = (0..MAX_RUN_EVENTS - 1).map(|number| event("r2", &format!("e{number}"), 1)).collect();
    // PostgreSQL ends a transaction that is idle for 10 s, as one of all of them is on a slow machine.
    while !many.is_empty() {
        let some = many.split_off(many.len().saturating_sub(1_000));
        assert!(matches!(db.ledger.append(some).await.unwrap(), Appended::Recorded(_)));
    }
    db.append(upload("r2", b"x")).await;
    let events = EventQuota { is_bytes: false, limit: MAX_RUN_EVENTS, actual: MAX_RUN_EVENTS + 1 };
    assert_eq!(quota(db.try_append(event("r2", "more", 1)).await.unwrap()), events);
    // Other records are not limited, and a repetition is recognized.
    db.append(read("r2", "a")).await;
    assert!(matches!(db.try_append(event("r2", "e0", 1)).await.unwrap(), Appended::Repeated(0)));
}

#[rstest]
#[tokio::test]
async fn records_are_listed_by_the_start_of_their_tool(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let db = backend.open().await;
    for run in ["r1", "r2"] {
        db.run(run).await;
        db.append(read(run, "a")).await;
        db.append(event(run, "e1", 1)).await;
        let mut test = event(run, "e2", 1);
        test.draft.tool = "event.test".into();
        db.append(test).await;
    }
    let count = async |run: Option<&str>, tool: &str| {
        let filter =
            ledger::RecordFilter { run: run.map(run_id), tool: Some(tool.into()), ..ledger::RecordFilter::default() };
        db.ledger.records(&filter, None, 100.into()).await.unwrap().len()
    };
    for (run, tool, found) in [
        (None, "event.*", 4),
        (Some("r1"), "event.*", 2),
        (Some("r1"), "event.t*", 1),
        (None, "event.test", 2),
        (None, "*", 6),
        (None, "even*t", 0),
        (None, "read_file*", 2),
        (None, "f*", 0),
    ] {
        assert_eq!(count(run, tool).await, found, "{run:?} {tool}");
    }
}
