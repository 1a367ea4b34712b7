//! Calls that wait for an approval, and decisions on approvals.

use ledger::{Appended, ApprovalFilter, DecidedApproval, Entry, PageSize};
use model::{Approval, ApprovalFile, ApprovalId, ApprovalState, Outcome, RunId, RunState, Verdict};
use rstest::rstest;

use crate::harness::{Backend, RunChanges as _, TestDatabase, call_id, path, read, run_id, write};

fn approval_id(id: &str) -> ApprovalId {
    ApprovalId::parse(id).unwrap()
}

fn approval(run: &str, id: &str) -> Approval {
    Approval {
        approval_id: approval_id(id),
        run_id: run_id(run),
        tool_call_id: call_id(id),
        tool: "write_file".into(),
        reason: "a nul \0 in it".into(),
        actor: "run-token:tok_1".into(),
        state: ApprovalState::Pending,
        reasons: vec!["touchesLockfile".into()],
        files: vec![ApprovalFile {
            path: path("Cargo.lock"),
            operation: "create".into(),
            old_sha256: None,
            new_sha256: None,
            insertions: 1,
            deletions: 0,
        }],
        diff: Some("+x\n".into()),
        created_at: "2026-01-01T00:00:00.000000Z".into(),
        expires_at: "2026-01-02T00:00:00.000000Z".into(),
        approvers: 1,
        not_creator: false,
        approved_by: vec![],
        decided_by: None,
        on_behalf_of: None,
        note: None,
        votes: vec![],
        decided_seq: None,
        edited_seq: None,
        resolution: None,
        warnings: Vec::new(),
    }
}

/// Returns a call that requests the approval `id`.
pub(crate) fn approval_request(run: &str, id: &str) -> Entry {
    let mut entry = write(run, id, "Cargo.lock");
    entry.draft.decision = Verdict::RequireApproval;
    entry.draft.outcome = Outcome::Pending;
    entry.approval = Some((approval(run, id), format!("{{\"path\":\"{id}\"}}")));
    entry
}

/// Returns an entry that decides the approval `id`.
pub(crate) fn approval_decision(run: &str, id: &str, state: ApprovalState) -> Entry {
    let mut entry = write(run, id, "Cargo.lock");
    entry.client_supplied_id = false;
    entry.approval_decision = Some(DecidedApproval {
        approval_id: approval_id(id),
        state,
        voter: None,
        decided_by: Some("ann".into()),
        on_behalf_of: Some("bo \0".into()),
        note: Some("fine".into()),
        votes: None,
        edits_after: None,
    });
    entry
}

async fn state_of(db: &TestDatabase, run: &str) -> (RunState, u64) {
    let stored = db.ledger.run(&run_id(run)).await.unwrap().unwrap();
    (stored.run.state, stored.run.counts.pending_approvals)
}

#[rstest]
#[tokio::test]
async fn a_run_awaits_approval_until_the_last_one_is_decided(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let mut db = backend.open().await;
    db.run("r1").await;
    db.append(approval_request("r1", "a1")).await;
    db.append(approval_request("r1", "a2")).await;
    db.reopen().await;
    assert_eq!(state_of(&db, "r1").await, (RunState::AwaitingApproval, 2));
    let stored = db.ledger.approval(&approval_id("a1")).await.unwrap().unwrap();
    assert_eq!(stored, approval("r1", "a1"));
    let input = db.ledger.approval_input(&approval_id("a1")).await.unwrap();
    assert_eq!(input.as_deref(), Some("{\"path\":\"a1\"}"));

    db.append(approval_decision("r1", "a1", ApprovalState::Approved)).await;
    assert_eq!(state_of(&db, "r1").await, (RunState::AwaitingApproval, 1));
    let decided = db.ledger.approval(&approval_id("a1")).await.unwrap().unwrap();
    assert_eq!(decided.state, ApprovalState::Approved);
    assert_eq!((decided.decided_by.as_deref(), decided.note.as_deref()), (Some("ann"), Some("fine")));
    assert_eq!(decided.on_behalf_of.as_deref(), Some("bo \0"));
    db.append(approval_decision("r1", "a2", ApprovalState::Denied)).await;
    assert_eq!(state_of(&db, "r1").await, (RunState::Open, 0));
    db.append(read("r1", "a")).await;
    assert_eq!(state_of(&db, "r1").await, (RunState::Open, 0));
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn an_approval_is_decided_once(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let db = backend.open().await;
    let run = db.run("r1").await;
    db.append(approval_request("r1", "a1")).await;
    let (one, two, three) = tokio::join!(
        db.try_append(approval_decision("r1", "a1", ApprovalState::Approved)),
        db.try_append(approval_decision("r1", "a1", ApprovalState::Denied)),
        db.try_append(approval_decision("r1", "a1", ApprovalState::Expired)),
    );
    let recorded = |appended: Appended| match appended {
        Appended::Recorded(_) => true,
        Appended::NotPending => false,
        other => panic!("{other:?}"),
    };
    let outcomes = [recorded(one.unwrap()), recorded(two.unwrap()), recorded(three.unwrap())];
    assert_eq!(outcomes.iter().filter(|recorded| **recorded).count(), 1, "{outcomes:?}");
    assert_eq!(state_of(&db, "r1").await, (RunState::Open, 0));
    let again = db.try_append(approval_decision("r1", "a1", ApprovalState::Approved)).await.unwrap();
    assert!(matches!(again, Appended::NotPending));
    let unknown = db.try_append(approval_decision("r1", "no", ApprovalState::Denied)).await.unwrap();
    assert!(matches!(unknown, Appended::NotPending));
    assert!(db.ledger.verify(&run).await.unwrap().intact);
}

#[rstest]
#[tokio::test]
async fn an_approval_cannot_be_decided_by_an_entry_of_another_run(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    for run in ["r1", "r2"] {
        db.run(run).await;
    }
    db.append(approval_request("r1", "a1")).await;
    let foreign = db.try_append(approval_decision("r2", "a1", ApprovalState::Approved)).await.unwrap();
    assert!(matches!(foreign, Appended::NotPending));
    assert_eq!(state_of(&db, "r1").await, (RunState::AwaitingApproval, 1));
    assert_eq!(state_of(&db, "r2").await, (RunState::Open, 0));
}

#[rstest]
#[tokio::test]
async fn a_closed_run_remains_closed_when_its_approvals_are_decided(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    let run = db.run("r1").await;
    db.append(approval_request("r1", "a1")).await;
    db.ledger.set_run_state(&run, RunState::Closed, Some("2026-01-01T00:00:00Z")).await.unwrap();
    db.append(approval_request("r1", "a2")).await;
    assert_eq!(state_of(&db, "r1").await, (RunState::Closed, 2));
    db.append(approval_decision("r1", "a1", ApprovalState::Expired)).await;
    db.append(approval_decision("r1", "a2", ApprovalState::Failed)).await;
    assert_eq!(state_of(&db, "r1").await, (RunState::Closed, 0));
}

/// Returns the filter by state and run.
fn of(state: Option<ApprovalState>, run: Option<&RunId>) -> ApprovalFilter {
    ApprovalFilter { state, run: run.cloned(), ..ApprovalFilter::default() }
}

#[rstest]
#[tokio::test]
async fn approvals_are_listed_by_state_and_run(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let db = backend.open().await;
    for run in ["r1", "r2"] {
        db.run(run).await;
    }
    for (run, id) in [("r1", "a1"), ("r2", "a2"), ("r1", "a3"), ("r1", "a4")] {
        db.append(approval_request(run, id)).await;
    }
    db.append(approval_decision("r1", "a3", ApprovalState::Denied)).await;
    let r1 = run_id("r1");
    let list = async |state, run, after, limit| {
        let found = db.ledger.approvals(&of(state, run), after, PageSize::rows(limit)).await.unwrap();
        (
            found.iter().map(|(_, approval)| approval.approval_id.to_string()).collect::<Vec<_>>(),
            found.last().map(|last| last.0),
        )
    };
    let (first, cursor) = list(None, None, None, 3).await;
    assert_eq!(first, ["a1", "a2", "a3"]);
    assert_eq!(list(None, None, cursor, 3).await.0, ["a4"]);
    assert_eq!(list(Some(ApprovalState::Pending), None, None, 9).await.0, ["a1", "a2", "a4"]);
    assert_eq!(list(None, Some(&r1), None, 9).await.0, ["a1", "a3", "a4"]);
    assert_eq!(list(Some(ApprovalState::Pending), Some(&r1), None, 9).await.0, ["a1", "a4"]);
    assert_eq!(list(Some(ApprovalState::Denied), Some(&r1), None, 9).await.0, ["a3"]);
}

#[rstest]
#[tokio::test]
async fn approvals_are_searched(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let db = backend.open().await;
    db.run("r1").await;
    for (day, (id, actor, file)) in
        (1..).zip([("a1", "run-token:x", "src/a"), ("a2", "run-token:y", "src/b"), ("a3", "run-token:x", "docs/c")])
    {
        let mut entry = approval_request("r1", id);
        let (approval, _) = entry.approval.as_mut().unwrap();
        approval.actor = actor.into();
        approval.files[0].path = path(file);
        approval.created_at = format!("2026-01-0{day}T00:00:00.000000Z");
        db.append(entry).await;
    }
    let text = |text: &str| Some(text.to_owned());
    let all = ApprovalFilter::default;
    for (filter, expected) in [
        (ApprovalFilter { newest_first: true, ..all() }, vec!["a3", "a2", "a1"]),
        (ApprovalFilter { actor: text("run-token:x"), ..all() }, vec!["a1", "a3"]),
        (ApprovalFilter { actor: text("run-token:x"), newest_first: true, ..all() }, vec!["a3", "a1"]),
        (ApprovalFilter { path_prefix: text("src/"), ..all() }, vec!["a1", "a2"]),
        (ApprovalFilter { created_after: text("2026-01-01T00:00:00.000000Z"), ..all() }, vec!["a2", "a3"]),
        (ApprovalFilter { created_before: text("2026-01-02T00:00:00.000000Z"), ..all() }, vec!["a1"]),
        (ApprovalFilter { actor: text("service"), ..all() }, vec![]),
    ] {
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = db.ledger.approvals(&filter, after, PageSize::rows(1)).await.unwrap();
            found.extend(page.iter().map(|(_, approval)| approval.approval_id.to_string()));
            after = page.next();
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found, expected, "{filter:?}");
    }
}

#[rstest]
#[tokio::test]
async fn an_approval_expires_at_its_expiry_time(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let db = backend.open().await;
    db.run("r1").await;
    let mut later = approval_request("r1", "a1");
    later.approval.as_mut().unwrap().0.expires_at = "2026-01-03T00:00:00.000000Z".into();
    db.append(later).await;
    for id in ["a2", "a3"] {
        db.append(approval_request("r1", id)).await;
    }
    db.append(approval_decision("r1", "a3", ApprovalState::Approved)).await;
    let expired = async |now: &str| db.ledger.expired_approvals(now, 10.into()).await.unwrap().items;
    assert!(expired("2026-01-01T23:59:59.999999Z").await.is_empty());
    assert_eq!(expired("2026-01-02T00:00:00.000000Z").await, [approval("r1", "a2")]);
    assert_eq!(expired("2026-01-09T00:00:00.000000Z").await.len(), 2);
}

#[rstest]
#[tokio::test]
async fn unreadable_approvals_are_skipped_in_lists(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let db = backend.open().await;
    let run = db.run("r1").await;
    for id in ["ap-1", "ap-2", "ap-3"] {
        db.append(approval_request("r1", id)).await;
    }
    db.execute("UPDATE approval SET body = '{' WHERE approval_id IN ('ap-1', 'ap-2')").await.unwrap();
    let pending = Some(ApprovalState::Pending);
    for (state, run) in [(None, None), (pending, None), (None, Some(&run)), (pending, Some(&run))] {
        let page = db.ledger.approvals(&of(state, run), None, PageSize::rows(1)).await.unwrap();
        let listed: Vec<_> = page.iter().map(|(_, approval)| approval.approval_id.as_str()).collect();
        assert_eq!((listed, page.more), (vec!["ap-3"], false));
    }
    let expired = db.ledger.expired_approvals("2027-01-01T00:00:00.000000Z", 10.into()).await.unwrap();
    assert_eq!(expired.iter().map(|approval| approval.approval_id.as_str()).collect::<Vec<_>>(), ["ap-3"]);
}
