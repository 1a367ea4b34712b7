//! Calls that wait for a person.

use ledger::{Appended, ApprovalDecision, Entry, PageSize};
use model::{Approval, ApprovalFile, ApprovalId, ApprovalState, Outcome, RunState, Verdict};
use rstest::rstest;

use crate::harness::{Backend, World, call_id, path, read, run_id, write};

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
        }],
        diff: "+x\n".into(),
        created_at: "2026-01-01T00:00:00.000000Z".into(),
        expires_at: "2026-01-02T00:00:00.000000Z".into(),
        decided_by: None,
        note: None,
    }
}

/// A call that asks for the approval `id`.
pub(crate) fn asking(run: &str, id: &str) -> Entry {
    let mut entry = write(run, id, "Cargo.lock");
    entry.draft.decision = Verdict::RequireApproval;
    entry.draft.outcome = Outcome::Pending;
    entry.approval = Some((approval(run, id), format!("{{\"path\":\"{id}\"}}")));
    entry
}

/// A record that decides the approval `id`.
pub(crate) fn deciding(run: &str, id: &str, state: ApprovalState) -> Entry {
    let mut entry = write(run, id, "Cargo.lock");
    entry.client_supplied_id = false;
    entry.approval_decision = Some(ApprovalDecision {
        approval_id: approval_id(id),
        state,
        decided_by: Some("ann \0".into()),
        note: Some("fine".into()),
    });
    entry
}

async fn state_of(world: &World, run: &str) -> (RunState, u64) {
    let stored = world.ledger.run(&run_id(run)).await.unwrap().unwrap();
    (stored.run.state, stored.run.counts.pending_approvals)
}

#[rstest]
#[tokio::test]
async fn a_run_awaits_approval_until_the_last_one_is_decided(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let mut world = backend.open().await;
    world.run("r1").await;
    world.append(asking("r1", "a1")).await;
    world.append(asking("r1", "a2")).await;
    world.reopen().await;
    assert_eq!(state_of(&world, "r1").await, (RunState::AwaitingApproval, 2));
    let kept = world.ledger.approval(&approval_id("a1")).await.unwrap().unwrap();
    assert_eq!(kept, approval("r1", "a1"));
    let input = world.ledger.approval_input(&approval_id("a1")).await.unwrap();
    assert_eq!(input.as_deref(), Some("{\"path\":\"a1\"}"));

    world.append(deciding("r1", "a1", ApprovalState::Approved)).await;
    assert_eq!(state_of(&world, "r1").await, (RunState::AwaitingApproval, 1));
    let decided = world.ledger.approval(&approval_id("a1")).await.unwrap().unwrap();
    assert_eq!(decided.state, ApprovalState::Approved);
    assert_eq!((decided.decided_by.as_deref(), decided.note.as_deref()), (Some("ann \0"), Some("fine")));
    world.append(deciding("r1", "a2", ApprovalState::Denied)).await;
    assert_eq!(state_of(&world, "r1").await, (RunState::Open, 0));
    world.append(read("r1", "a")).await;
    assert_eq!(state_of(&world, "r1").await, (RunState::Open, 0));
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn an_approval_is_decided_once(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let world = backend.open().await;
    let run = world.run("r1").await;
    world.append(asking("r1", "a1")).await;
    let (one, two, three) = tokio::join!(
        world.try_append(deciding("r1", "a1", ApprovalState::Approved)),
        world.try_append(deciding("r1", "a1", ApprovalState::Denied)),
        world.try_append(deciding("r1", "a1", ApprovalState::Expired)),
    );
    let recorded = |appended: Appended| match appended {
        Appended::Recorded(_) => true,
        Appended::NotPending => false,
        Appended::Reused(_) | Appended::Repeated(_) | Appended::PreconditionFailed(_) => {
            panic!("no call has a client-supplied ID or a precondition")
        }
    };
    let won = [recorded(one.unwrap()), recorded(two.unwrap()), recorded(three.unwrap())];
    assert_eq!(won.iter().filter(|won| **won).count(), 1, "{won:?}");
    assert_eq!(state_of(&world, "r1").await, (RunState::Open, 0));
    let again = world.try_append(deciding("r1", "a1", ApprovalState::Approved)).await.unwrap();
    assert!(matches!(again, Appended::NotPending));
    let unknown = world.try_append(deciding("r1", "no", ApprovalState::Denied)).await.unwrap();
    assert!(matches!(unknown, Appended::NotPending));
    assert!(world.ledger.verify(&run).await.unwrap().intact);
}

#[rstest]
#[tokio::test]
async fn a_run_decides_its_own_approvals_only(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let world = backend.open().await;
    for run in ["r1", "r2"] {
        world.run(run).await;
    }
    world.append(asking("r1", "a1")).await;
    let foreign = world.try_append(deciding("r2", "a1", ApprovalState::Approved)).await.unwrap();
    assert!(matches!(foreign, Appended::NotPending));
    assert_eq!(state_of(&world, "r1").await, (RunState::AwaitingApproval, 1));
    assert_eq!(state_of(&world, "r2").await, (RunState::Open, 0));
}

#[rstest]
#[tokio::test]
async fn a_closed_run_stays_closed_when_its_approvals_go(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let world = backend.open().await;
    let run = world.run("r1").await;
    world.append(asking("r1", "a1")).await;
    world.ledger.set_run_state(&run, RunState::Closed, Some("2026-01-01T00:00:00Z")).await.unwrap();
    world.append(asking("r1", "a2")).await;
    assert_eq!(state_of(&world, "r1").await, (RunState::Closed, 2));
    world.append(deciding("r1", "a1", ApprovalState::Expired)).await;
    world.append(deciding("r1", "a2", ApprovalState::Failed)).await;
    assert_eq!(state_of(&world, "r1").await, (RunState::Closed, 0));
}

#[rstest]
#[tokio::test]
async fn approvals_are_listed_by_state_and_run(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let world = backend.open().await;
    for run in ["r1", "r2"] {
        world.run(run).await;
    }
    for (run, id) in [("r1", "a1"), ("r2", "a2"), ("r1", "a3"), ("r1", "a4")] {
        world.append(asking(run, id)).await;
    }
    world.append(deciding("r1", "a3", ApprovalState::Denied)).await;
    let r1 = run_id("r1");
    let list = async |state, run, after, limit| {
        let found = world.ledger.approvals(state, run, after, PageSize::rows(limit)).await.unwrap();
        (found.iter().map(|(_, one)| one.approval_id.to_string()).collect::<Vec<_>>(), found.last().map(|last| last.0))
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
async fn an_approval_lapses_when_its_time_is_up(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let world = backend.open().await;
    world.run("r1").await;
    let mut later = asking("r1", "a1");
    later.approval.as_mut().unwrap().0.expires_at = "2026-01-03T00:00:00.000000Z".into();
    world.append(later).await;
    for id in ["a2", "a3"] {
        world.append(asking("r1", id)).await;
    }
    world.append(deciding("r1", "a3", ApprovalState::Approved)).await;
    let lapsed = async |now: &str| world.ledger.expired_approvals(now, 10.into()).await.unwrap().items;
    assert!(lapsed("2026-01-01T23:59:59.999999Z").await.is_empty());
    assert_eq!(lapsed("2026-01-02T00:00:00.000000Z").await, [approval("r1", "a2")]);
    assert_eq!(lapsed("2026-01-09T00:00:00.000000Z").await.len(), 2);
}

#[rstest]
#[tokio::test]
async fn one_that_cannot_be_read_hides_no_other(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let world = backend.open().await;
    let run = world.run("r1").await;
    for id in ["ap-1", "ap-2", "ap-3"] {
        world.append(asking("r1", id)).await;
    }
    world.raw("UPDATE approval SET body = '{' WHERE approval_id IN ('ap-1', 'ap-2')").await.unwrap();
    let pending = Some(ApprovalState::Pending);
    for (state, run) in [(None, None), (pending, None), (None, Some(&run)), (pending, Some(&run))] {
        let page = world.ledger.approvals(state, run, None, PageSize::rows(1)).await.unwrap();
        let listed: Vec<_> = page.iter().map(|(_, approval)| approval.approval_id.as_str()).collect();
        assert_eq!((listed, page.more), (vec!["ap-3"], false));
    }
    let lapsed = world.ledger.expired_approvals("2027-01-01T00:00:00.000000Z", 10.into()).await.unwrap();
    assert_eq!(lapsed.iter().map(|one| one.approval_id.as_str()).collect::<Vec<_>>(), ["ap-3"]);
}
