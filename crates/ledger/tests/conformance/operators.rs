//! Operators, and their approvals of pending calls.

use std::collections::BTreeSet;

use ledger::{
    Appended, ApprovalFilter, Entry, FailedPrecondition, KeyedAnswer, Ledger, LedgerError, OperatorChange, PageSize,
    RequiredToken, RunFilter, TokenHolder,
};
use model::{
    ApprovalId, ApprovalState, Draft, Operator, OperatorName, OperatorToken, Outcome, RunId, Scope, Sha256, ToolCallId,
    Verdict,
};
use rstest::rstest;

use crate::approvals::{approval_decision, approval_request};
use crate::harness::{Backend, TestDatabase, new_run, new_token, read, run_id};

pub(crate) fn name(name: &str) -> OperatorName {
    OperatorName::parse(name).unwrap()
}

/// An operator whose token is the one with this number.
pub(crate) fn new_operator(raw: &str, token: u8) -> OperatorToken {
    OperatorToken {
        operator: Operator {
            name: name(raw),
            scopes: BTreeSet::from([Scope::Approve, Scope::Audit]),
            created_at: Some("2026-01-01T00:00:00.000000Z".into()),
            created_by: Some("root".into()),
            expires_at: (token == 2).then(|| "2027-01-01T00:00:00.000000Z".into()),
            revoked_at: None,
        },
        secret_sha256: Sha256::of(&[token]),
    }
}

/// Changes of operators, with their records.
pub(crate) trait ChangeOperators {
    async fn create_operator(
        &self,
        token: &OperatorToken,
        answer: Option<(KeyedAnswer, String)>,
    ) -> Result<(), LedgerError>;
    async fn replace_operator_token(
        &self,
        token: &OperatorToken,
        ends_at: &str,
        is_valid_until: bool,
        answer: Option<(KeyedAnswer, String)>,
    ) -> Result<bool, LedgerError>;
    async fn revoke_operator(&self, name: &OperatorName, at: &str) -> Result<bool, LedgerError>;
}

impl ChangeOperators for dyn Ledger {
    async fn create_operator(
        &self,
        token: &OperatorToken,
        answer: Option<(KeyedAnswer, String)>,
    ) -> Result<(), LedgerError> {
        let change = OperatorChange::Create { token: token.clone(), answer };
        self.change_operator(operator_record("operator.create", change)).await.map(|stored| assert!(stored))
    }

    async fn replace_operator_token(
        &self,
        token: &OperatorToken,
        ends_at: &str,
        is_valid_until: bool,
        answer: Option<(KeyedAnswer, String)>,
    ) -> Result<bool, LedgerError> {
        let change =
            OperatorChange::ReplaceToken { token: token.clone(), ends_at: ends_at.to_owned(), is_valid_until, answer };
        self.change_operator(operator_record("operator.rotate", change)).await
    }

    async fn revoke_operator(&self, name: &OperatorName, at: &str) -> Result<bool, LedgerError> {
        let change = OperatorChange::Revoke { name: name.clone(), at: at.to_owned() };
        self.change_operator(operator_record("operator.revoke", change)).await
    }
}

/// A record of the service's own chain.
fn operator_record(tool: &str, change: OperatorChange) -> Entry {
    let id = ToolCallId::parse("change").unwrap();
    let at = "2026-01-01T00:00:00.000000Z".to_owned();
    let draft = Draft::new(RunId::service(), "operator:root".to_owned(), tool, id, at);
    let mut entry = Entry::new(draft, Sha256::ZERO);
    entry.operator_change = Some(Box::new(change));
    entry
}

/// Returns an entry with which `voter` approves the pending call `id`.
pub(crate) fn vote(run: &str, id: &str, voter: &str) -> Entry {
    let mut entry = approval_decision(run, id, ApprovalState::Pending);
    entry.draft.decision = Verdict::RequireApproval;
    entry.draft.outcome = Outcome::Pending;
    entry.reply = None;
    entry.approval_decision.as_mut().unwrap().voter = Some(name(voter));
    entry
}

/// `entry` as a call by the operator with the token of this number, in 2026.
pub(crate) fn requiring_operator(token: u8, entry: Entry) -> Entry {
    let required = RequiredToken {
        holder: TokenHolder::Operator(Sha256::of(&[token])),
        expires_at: Some("2027-01-01T00:00:00.000000Z".to_owned()),
        now: || "2026-06-01T00:00:00.000000Z".to_owned(),
    };
    let mut entry = entry;
    entry.preconditions.token = Some(required);
    entry
}

async fn names(db: &TestDatabase, after: i64, limit: u32) -> Vec<String> {
    let found = db.ledger.operators(after, limit).await.unwrap();
    found.into_iter().map(|(_, token)| token.operator.name.to_string()).collect()
}

async fn voters(db: &TestDatabase, id: &str) -> Vec<String> {
    let approval = db.ledger.approval(&ApprovalId::parse(id).unwrap()).await.unwrap().unwrap();
    approval.approved_by.iter().map(ToString::to_string).collect()
}

#[rstest]
#[tokio::test]
async fn an_operator_is_stored_and_listed_in_order(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut db = backend.open().await;
    for (number, raw) in (1..).zip(["bob", "Ada@example.org", "eve"]) {
        db.ledger.create_operator(&new_operator(raw, number), None).await.unwrap();
    }
    db.reopen().await;
    assert_eq!(names(&db, 0, 9).await, ["bob", "Ada@example.org", "eve"]);
    let first = db.ledger.operators(0, 1).await.unwrap();
    assert_eq!(first[0].1, new_operator("bob", 1));
    assert_eq!(names(&db, first[0].0, 1).await, ["Ada@example.org"]);
    let found = db.ledger.operator(&name("ADA@example.org")).await.unwrap();
    assert_eq!(found, Some(new_operator("Ada@example.org", 2)));
    assert_eq!(db.ledger.operator(&name("nobody")).await.unwrap(), None);
}

#[rstest]
#[tokio::test]
async fn a_name_belongs_to_one_operator_until_it_is_revoked(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = backend.open().await;
    db.ledger.create_operator(&new_operator("ada", 1), None).await.unwrap();
    for taken in [new_operator("ada", 2), new_operator("ADA", 2), new_operator("bob", 1)] {
        let refused = db.ledger.create_operator(&taken, None).await;
        assert!(matches!(refused, Err(LedgerError::AlreadyExists)), "{refused:?}");
    }
    let at = "2026-02-01T00:00:00.000000Z";
    assert!(!db.ledger.revoke_operator(&name("bob"), at).await.unwrap());
    assert!(db.ledger.revoke_operator(&name("Ada"), at).await.unwrap());
    assert!(!db.ledger.revoke_operator(&name("ada"), at).await.unwrap(), "it is revoked already");
    let revoked = db.ledger.operator(&name("ada")).await.unwrap().unwrap();
    assert_eq!(revoked.operator.revoked_at.as_deref(), Some(at));
    let again = db.ledger.create_operator(&new_operator("ada", 1), None).await;
    assert!(matches!(again, Err(LedgerError::AlreadyExists)), "a revoked token comes back: {again:?}");
    db.ledger.create_operator(&new_operator("ADA", 3), None).await.unwrap();
    assert_eq!(db.ledger.operator(&name("ada")).await.unwrap(), Some(new_operator("ADA", 3)));
    assert_eq!(names(&db, 0, 9).await, ["ada", "ADA"]);
}

#[rstest]
#[tokio::test]
async fn a_revoked_operator_creates_no_run(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let db = backend.open().await;
    for (number, raw) in [(1, "ada"), (2, "bob")] {
        db.ledger.create_operator(&new_operator(raw, number), None).await.unwrap();
    }
    db.ledger.revoke_operator(&name("ada"), "2026-02-01T00:00:00Z").await.unwrap();
    // Of runs that are created together, only those of the revoked operator are rejected.
    let mut tasks = tokio::task::JoinSet::new();
    for index in 0..20 {
        let ledger = std::sync::Arc::clone(&db.ledger);
        tasks.spawn(async move {
            let (run, operator) = (format!("r{index}"), if index % 2 == 0 { 1 } else { 2 });
            let entry = requiring_operator(operator, read(&run, "a"));
            let created = ledger.create_run(&new_run(&run), &new_token(&run, "tok"), vec![entry]).await;
            (run, operator, created)
        });
    }
    for (run, operator, created) in tasks.join_all().await {
        let found = db.ledger.run(&run_id(&run)).await.unwrap();
        let token = db.ledger.token(&new_token(&run, "tok").secret_sha256).await.unwrap();
        if operator == 1 {
            assert!(
                matches!(created, Err(LedgerError::CreationRejected(FailedPrecondition::Token))),
                "{run}: {created:?}"
            );
            assert!(found.is_none() && token.is_none(), "{run} is stored");
        } else {
            assert_eq!((created.unwrap().len(), found.unwrap().run.head_seq), (1, 1));
            assert!(token.is_some());
        }
    }
}

#[rstest]
#[tokio::test]
async fn a_revoked_operator_records_nothing_more(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut db = backend.open().await;
    db.run("r1").await;
    for (number, raw) in [(1, "ada"), (2, "bob")] {
        db.ledger.create_operator(&new_operator(raw, number), None).await.unwrap();
        db.append(requiring_operator(number, read("r1", "a"))).await;
    }
    db.append(approval_request("r1", "a1")).await;
    assert!(db.ledger.revoke_operator(&name("ada"), "2026-02-01T00:00:00Z").await.unwrap());
    for reopened in [false, true] {
        if reopened {
            db.reopen().await;
        }
        for entry in [read("r1", "a"), approval_decision("r1", "a1", ApprovalState::Approved), vote("r1", "a1", "ada")]
            .map(|entry| requiring_operator(1, entry))
        {
            let refused = db.try_append(entry).await.unwrap();
            assert!(matches!(refused, Appended::PreconditionFailed(FailedPrecondition::Token)), "{refused:?}");
        }
        db.append(requiring_operator(2, read("r1", "a"))).await;
    }
    let mut late = requiring_operator(2, read("r1", "a"));
    late.preconditions.token.as_mut().unwrap().now = || "2027-01-01T00:00:00.000000Z".to_owned();
    let refused = db.try_append(late).await.unwrap();
    assert!(matches!(refused, Appended::PreconditionFailed(FailedPrecondition::Token)), "{refused:?}");
    let both = db.ledger.append(vec![read("r1", "a"), requiring_operator(1, read("r1", "a"))]).await.unwrap();
    assert!(matches!(both, Appended::PreconditionFailed(FailedPrecondition::Token)), "{both:?}");
}

#[rstest]
#[tokio::test]
async fn an_approval_lists_who_has_approved(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut db = backend.open().await;
    let run = db.run("r1").await;
    db.run("r2").await;
    for id in ["a1", "a2"] {
        db.append(approval_request("r1", id)).await;
    }
    for voter in ["bob", "Ada@example.org"] {
        db.append(vote("r1", "a1", voter)).await;
    }
    db.append(vote("r1", "a2", "bob")).await;
    let foreign = db.try_append(vote("r2", "a1", "eve")).await.unwrap();
    assert!(matches!(foreign, Appended::NotPending), "{foreign:?}");
    let twice = db.try_append(vote("r1", "a1", "BOB")).await;
    assert!(matches!(twice, Err(LedgerError::AlreadyExists)), "{twice:?}");
    db.reopen().await;
    assert_eq!(voters(&db, "a1").await, ["bob", "Ada@example.org"]);
    assert_eq!(voters(&db, "a2").await, ["bob"]);
    let stored = db.ledger.run(&run).await.unwrap().unwrap().run;
    assert_eq!(stored.counts.pending_approvals, 2, "a vote decides nothing");

    let mut last = approval_decision("r1", "a1", ApprovalState::Approved);
    last.approval_decision.as_mut().unwrap().voter = Some(name("eve"));
    db.append(last).await;
    assert_eq!(voters(&db, "a1").await, ["bob", "Ada@example.org", "eve"]);
    let late = db.try_append(vote("r1", "a1", "dan")).await.unwrap();
    assert!(matches!(late, Appended::NotPending), "{late:?}");
    let page = db
        .ledger
        .approvals(&ApprovalFilter { run: Some(run.clone()), ..ApprovalFilter::default() }, None, PageSize::rows(9))
        .await
        .unwrap();
    let listed: Vec<_> = page.iter().map(|(_, approval)| approval.approved_by.len()).collect();
    assert_eq!(listed, [3, 1]);
    let expired = db.ledger.expired_approvals("2027-01-01T00:00:00.000000Z", 10.into()).await.unwrap();
    assert_eq!(expired.iter().map(|one| one.approved_by.len()).collect::<Vec<_>>(), [1]);
    assert!(db.ledger.verify(&run).await.unwrap().intact);
}

#[rstest]
#[tokio::test]
async fn a_replaced_token_is_valid_until_it_ends(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut db = backend.open().await;
    db.run("r1").await;
    let (ends_at, now) = ("2026-07-01T00:00:00.000000Z", "2026-06-01T00:00:00.000000Z");
    let replacement = |token| new_operator("ada", token);
    assert!(
        !db.ledger.replace_operator_token(&replacement(1), ends_at, true, None).await.unwrap(),
        "nobody has the name"
    );
    assert_eq!(names(&db, 0, 9).await, [""; 0]);
    db.ledger.create_operator(&new_operator("Ada", 1), None).await.unwrap();
    assert!(db.ledger.replace_operator_token(&replacement(3), ends_at, true, None).await.unwrap());
    db.reopen().await;
    let found: Vec<_> = db.ledger.operators(0, 9).await.unwrap().into_iter().map(|(_, token)| token).collect();
    let ends = found.iter().map(|token| token.operator.revoked_at.as_deref()).collect::<Vec<_>>();
    assert_eq!((ends, found[0].operator.expires_at.as_deref()), (vec![Some(ends_at), None], Some(ends_at)));
    assert!(!found[0].operator.is_revoked() && found[1] == replacement(3));
    let accepts = async |token: u8| {
        let appended =
            db.ledger.append(vec![requiring_operator(token, read("r1", &format!("{token}")))]).await.unwrap();
        matches!(appended, Appended::Recorded(_))
    };
    assert!(accepts(1).await && accepts(3).await);
    let taken = db.ledger.create_operator(&new_operator("ADA", 4), None).await;
    assert!(matches!(taken, Err(LedgerError::AlreadyExists)), "{taken:?}");
    // Another replacement does not change the end of an earlier token.
    let later = "2026-08-01T00:00:00.000000Z";
    assert!(db.ledger.replace_operator_token(&replacement(4), later, true, None).await.unwrap());
    assert_eq!(revoked_at(&db).await, [Some(ends_at.to_owned()), Some(later.to_owned()), None]);
    assert!(accepts(1).await && accepts(3).await && accepts(4).await);
    // Without an overlap every token ends at once, and so does the successor if the operator is revoked.
    assert!(db.ledger.replace_operator_token(&replacement(5), now, false, None).await.unwrap());
    assert!(!accepts(1).await && !accepts(3).await && !accepts(4).await && accepts(5).await);
    assert!(db.ledger.revoke_operator(&name("ADA"), now).await.unwrap());
    assert!(!accepts(5).await);
    assert!(!db.ledger.revoke_operator(&name("ada"), now).await.unwrap());
    db.ledger.settle_operators().await.unwrap();
    assert_eq!(revoked_at(&db).await, vec![Some(now.to_owned()); 4]);
}

async fn revoked_at(db: &TestDatabase) -> Vec<Option<String>> {
    let found = db.ledger.operators(0, 9).await.unwrap();
    found.into_iter().map(|(_, token)| token.operator.revoked_at).collect()
}

#[rstest]
#[tokio::test]
async fn changes_of_operators_are_records_of_the_services_own_chain(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let mut db = backend.open().await;
    db.run("r1").await;
    let at = "2026-02-01T00:00:00.000000Z";
    db.ledger.create_operator(&new_operator("ada", 1), None).await.unwrap();
    // What is not stored is not recorded.
    assert!(db.ledger.create_operator(&new_operator("ADA", 2), None).await.is_err());
    assert!(!db.ledger.revoke_operator(&name("bob"), at).await.unwrap());
    db.reopen().await;
    assert!(db.ledger.replace_operator_token(&new_operator("ada", 3), at, false, None).await.unwrap());
    assert!(db.ledger.revoke_operator(&name("ada"), at).await.unwrap());
    let service = RunId::service();
    let filter = ledger::RecordFilter { run: Some(service.clone()), ..ledger::RecordFilter::default() };
    let found = db.ledger.records(&filter, None, PageSize::rows(9)).await.unwrap();
    let found: Vec<_> = found
        .iter()
        .map(|stored| serde_json::from_str::<model::Record>(&stored.text).unwrap())
        .map(|record| (record.seq, record.tool))
        .collect();
    assert_eq!(found, [(1, "operator.create".into()), (2, "operator.rotate".into()), (3, "operator.revoke".into())]);
    let report = db.ledger.verify(&service).await.unwrap();
    assert!(report.intact && report.records == 3, "{report:?}");
    // It is no run.
    let runs = db.ledger.runs(&RunFilter::default(), None, PageSize::rows(9)).await.unwrap();
    assert_eq!(runs.iter().map(|(_, run)| run.run_id.as_str()).collect::<Vec<_>>(), ["r1"]);
    let deleted = RunFilter::from(model::RunState::Deleted);
    assert!(db.ledger.runs(&deleted, None, PageSize::rows(9)).await.unwrap().is_empty());
    assert_eq!(db.ledger.live_runs().await.unwrap(), [run_id("r1")]);
    assert!(db.ledger.unpurged_runs().await.unwrap().is_empty());
    assert_eq!(db.ledger.storage_totals().await.unwrap().runs, 1);
    let summary = db.ledger.summary().await.unwrap();
    assert_eq!(summary.runs.iter().map(|(_, count)| count).sum::<u64>(), 1);
    let chains = db.ledger.run_ids(0, 9).await.unwrap();
    assert_eq!(chains.into_iter().map(|(_, run)| run).collect::<Vec<_>>(), [run_id("r1"), service.clone()]);
    // Its head is a leaf of the checkpoints.
    let heads = db.ledger.advanced_heads(0, i64::MAX).await.unwrap();
    assert!(heads.iter().any(|head| head.leaf.run_id == service && head.leaf.head_seq == 3), "{heads:?}");
}
