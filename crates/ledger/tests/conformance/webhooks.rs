//! Messages to webhooks: which events have deliveries, that each is stored with its event, and their states.

use ledger::{DeliveryAttempt, Entry, RunTransition};
use model::{
    ApprovalState, BudgetOverrides, Code, DeliveryState, Outcome, Usage, Verdict, WebhookDelivery, WebhookEvent,
    WebhookMessage,
};
use rstest::rstest;
use serde_json::{Value, json};

use crate::approvals::{approval_decision, approval_request};
use crate::harness::{Backend, RunChanges as _, TestDatabase, change_of, read, run_id, write};

const NOON: &str = "2026-01-01T12:00:00.000000Z";
const EVENING: &str = "2026-01-01T18:00:00.000000Z";

/// Returns a ledger with the webhook `all`, which receives every event, and `closed`, which receives one.
async fn open(backend: Backend) -> TestDatabase {
    let db = backend.open().await;
    let closed = ("closed".to_owned(), vec![WebhookEvent::RunClosed]);
    db.ledger.set_webhooks(&[("all".to_owned(), WebhookEvent::ALL.to_vec()), closed]).await.unwrap();
    db
}

async fn deliveries(db: &TestDatabase, webhook: &str) -> Vec<WebhookDelivery> {
    let page = db.ledger.deliveries(webhook, false, None, 1000.into()).await.unwrap();
    page.into_iter().map(|(_, delivery)| delivery).collect()
}

async fn events(db: &TestDatabase, webhook: &str) -> Vec<&'static str> {
    deliveries(db, webhook).await.iter().map(|delivery| delivery.event.as_str()).collect()
}

fn refused(run: &str, code: Code, reason: &str) -> Entry {
    let mut entry = read(run, "a");
    let draft = &mut entry.draft;
    (draft.decision, draft.outcome, draft.code) = (Verdict::Deny, Outcome::Refused, Some(code));
    draft.reasons = vec![reason.to_owned()];
    entry
}

fn attempt(state: DeliveryState, attempts: u64, status: Option<u16>, next: &str) -> DeliveryAttempt {
    let error = (state != DeliveryState::Delivered).then(|| "refused".to_owned());
    DeliveryAttempt { state, attempts, status, error, next_attempt_at: next.to_owned() }
}

#[rstest]
#[tokio::test]
async fn every_event_has_a_delivery_for_each_subscriber(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let mut db = open(backend).await;
    let run = db.run("r1").await;
    db.append(read("r1", "a")).await;
    db.append(approval_request("r1", "a1")).await;
    db.append(approval_request("r1", "a2")).await;
    db.append(approval_decision("r1", "a1", ApprovalState::Denied)).await;
    db.append(approval_decision("r1", "a2", ApprovalState::Expired)).await;
    let mut used = write("r1", "w1", "src/a");
    used.usage = Usage { insertions: 9, ..Usage::default() };
    used.run_budget = Some(BudgetOverrides { max_insertions: Some(10), ..BudgetOverrides::default() });
    db.append(used.clone()).await;
    (used.draft.tool_call_id, used.usage.insertions) = (crate::harness::call_id("w2"), 1);
    db.append(used).await;
    for (is_broken, now) in [(true, NOON), (true, EVENING), (false, EVENING), (true, EVENING)] {
        db.ledger.set_needs_repair(&run, is_broken, now).await.unwrap();
    }
    db.ledger.notify(&WebhookMessage::signing_stopped(NOON)).await.unwrap();
    db.append(change_of("r1", "run.close", RunTransition::Close { at: NOON.to_owned() })).await;
    db.ledger.set_run_state(&run, model::RunState::Deleted, None).await.unwrap();
    db.reopen().await;
    let expected = [
        "approval.requested",
        "approval.requested",
        "approval.decided",
        "approval.expired",
        "budget.reached",
        "run.needs_repair",
        "run.needs_repair",
        "signing.stopped",
        "run.closed",
    ];
    assert_eq!(events(&db, "all").await, expected);
    assert_eq!(events(&db, "closed").await, ["run.closed"]);

    let due = db.ledger.due_deliveries("all", EVENING, 100).await.unwrap();
    let body = |event: &str| -> Value {
        let bodies = due.iter().map(|due| serde_json::from_str::<Value>(&due.body).unwrap());
        bodies.into_iter().find(|body| body["type"] == event).unwrap()
    };
    assert_eq!(body("budget.reached")["data"]["used"], 9);
    assert_eq!(body("budget.reached")["data"]["member"], "maxInsertions");
    assert_eq!(body("approval.decided")["data"]["state"], "denied");
    assert_eq!(body("approval.requested")["data"]["approvalId"], "a1");
    assert_eq!(body("run.needs_repair")["data"], json!({"runId": "r1"}));
    assert_eq!(body("signing.stopped")["data"], json!({}));
    let [all, closed] = [deliveries(&db, "all").await, deliveries(&db, "closed").await];
    assert_eq!(all[8].id, closed[0].id, "a message has one ID");
    assert!(db.ledger.verify(&run).await.unwrap().intact);
}

/// Several tasks may find at the same time that a run was changed from outside.
#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_several_callers_mark_is_announced_once(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = open(backend).await;
    let run = db.run("r1").await;
    for round in 1..=5 {
        let mark = |caller| {
            let (ledger, run) = (std::sync::Arc::clone(&db.ledger), run.clone());
            let now = format!("2026-01-01T12:00:0{round}.00000{caller}Z");
            tokio::spawn(async move { ledger.set_needs_repair(&run, true, &now).await })
        };
        for marked in (0..8).map(mark).collect::<Vec<_>>() {
            marked.await.unwrap().unwrap();
        }
        assert_eq!(events(&db, "all").await, vec!["run.needs_repair"; round]);
        db.ledger.set_needs_repair(&run, false, NOON).await.unwrap();
    }
}

#[rstest]
#[tokio::test]
async fn refused_calls_have_deliveries_from_the_webhooks_position_on(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let mut db = backend.open().await;
    db.run("r1").await;
    db.append(refused("r1", Code::PolicyDenied, "too-early")).await;
    let subscribe = async |db: &TestDatabase, events: &[WebhookEvent]| {
        db.ledger.set_webhooks(&[("w".to_owned(), events.to_vec())]).await.unwrap();
    };
    subscribe(&db, &[WebhookEvent::CallRefused]).await;
    assert!(!db.ledger.enqueue_refused_calls("w").await.unwrap());
    for number in 0..501 {
        db.append(refused("r1", Code::PolicyDenied, &format!("rule-{number}"))).await;
    }
    db.append(refused("r1", Code::RunClosed, "run:closed")).await;
    db.append(read("r1", "a")).await;
    // As after a kill between the records and their deliveries.
    db.reopen().await;
    assert!(db.ledger.enqueue_refused_calls("w").await.unwrap(), "one transaction is bounded");
    assert!(!db.ledger.enqueue_refused_calls("w").await.unwrap());
    assert!(!db.ledger.enqueue_refused_calls("w").await.unwrap());
    let due = db.ledger.due_deliveries("w", NOON, 1000).await.unwrap();
    let reasons: Vec<_> = due.iter().map(|due| serde_json::from_str::<Value>(&due.body).unwrap()).collect();
    let reasons: Vec<_> = reasons.iter().map(|body| body["data"]["reasons"][0].as_str().unwrap()).collect();
    assert_eq!(reasons, (0..501).map(|number| format!("rule-{number}")).collect::<Vec<_>>());

    // A webhook that is removed and configured again starts from then on.
    db.ledger.set_webhooks(&[]).await.unwrap();
    db.append(refused("r1", Code::PolicyDenied, "meanwhile")).await;
    subscribe(&db, &[WebhookEvent::CallRefused]).await;
    db.append(refused("r1", Code::PolicyDenied, "later")).await;
    assert!(!db.ledger.enqueue_refused_calls("w").await.unwrap());
    assert_eq!(deliveries(&db, "w").await.len(), 502);
    // Without the event, the position advances.
    subscribe(&db, &[WebhookEvent::RunClosed]).await;
    db.append(refused("r1", Code::PolicyDenied, "unsubscribed")).await;
    assert!(!db.ledger.enqueue_refused_calls("w").await.unwrap());
    subscribe(&db, &[WebhookEvent::CallRefused]).await;
    assert!(!db.ledger.enqueue_refused_calls("w").await.unwrap());
    assert_eq!(deliveries(&db, "w").await.len(), 502);
}

#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn calls_that_are_refused_meanwhile_are_neither_lost_nor_repeated(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = open(backend).await;
    db.run("r1").await;
    let is_done = std::sync::atomic::AtomicBool::new(false);
    let append = async {
        for number in 0..300 {
            db.append(refused("r1", Code::PolicyDenied, &format!("rule-{number}"))).await;
        }
        is_done.store(true, std::sync::atomic::Ordering::SeqCst);
    };
    let enqueue = async {
        while !is_done.load(std::sync::atomic::Ordering::SeqCst) {
            db.ledger.enqueue_refused_calls("all").await.unwrap();
        }
    };
    tokio::join!(append, enqueue);
    db.ledger.enqueue_refused_calls("all").await.unwrap();
    assert_eq!(deliveries(&db, "all").await.len(), 300);
}

#[rstest]
#[tokio::test]
async fn refused_calls_wait_in_the_audit_while_too_many_are_pending(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = open(backend).await;
    db.run("r1").await;
    let rows = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000) \
        INSERT INTO webhook_delivery (webhook, message_id, event_type, body, state, attempts, next_attempt_at, created_at) \
        SELECT 'all', 'filler-' || i, 'run.closed', '{}', 'pending', 0, '2030', '2026' FROM n";
    db.execute(rows).await.unwrap();
    db.append(refused("r1", Code::PolicyDenied, "rule")).await;
    assert!(!db.ledger.enqueue_refused_calls("all").await.unwrap());
    assert_eq!(db.ledger.pending_deliveries().await.unwrap(), [("all".to_owned(), 10_000)]);
    db.execute("UPDATE webhook_delivery SET state = 'failed' WHERE message_id = 'filler-1'").await.unwrap();
    assert!(!db.ledger.enqueue_refused_calls("all").await.unwrap());
    assert_eq!(db.ledger.pending_deliveries().await.unwrap(), [("all".to_owned(), 10_000)]);
    assert_eq!(db.ledger.due_deliveries("all", NOON, 10).await.unwrap().len(), 1);
}

#[rstest]
#[tokio::test]
async fn an_attempt_decides_when_a_message_is_sent_again(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = open(backend).await;
    for second in 0..3 {
        let at = format!("2026-01-01T00:00:0{second}.000000Z");
        db.ledger.notify(&WebhookMessage::signing_stopped(&at)).await.unwrap();
    }
    // The same message again is not another one.
    db.ledger.notify(&WebhookMessage::signing_stopped("2026-01-01T00:00:00.000000Z")).await.unwrap();
    let due = async |now: &str| db.ledger.due_deliveries("all", now, 10).await.unwrap();
    let first = due(NOON).await;
    assert_eq!(first.len(), 3);
    assert_eq!(db.ledger.due_deliveries("all", NOON, 2).await.unwrap(), first[..2]);
    let record = async |index: usize, attempt| db.ledger.record_attempt(&first[index], attempt).await.unwrap();
    record(0, attempt(DeliveryState::Pending, 1, Some(500), EVENING)).await;
    record(1, attempt(DeliveryState::Delivered, 1, Some(204), NOON)).await;
    record(2, attempt(DeliveryState::Failed, 33, None, NOON)).await;
    assert_eq!(due(NOON).await, []);
    let evening = due(EVENING).await;
    assert_eq!((evening.len(), evening[0].number, evening[0].attempts), (1, first[0].number, 1));
    let stored = deliveries(&db, "all").await;
    let states: Vec<_> = stored.iter().map(|one| (one.state, one.attempts, one.last_status)).collect();
    assert_eq!(
        states,
        [
            (DeliveryState::Pending, 1, Some(500)),
            (DeliveryState::Delivered, 1, Some(204)),
            (DeliveryState::Failed, 33, None)
        ]
    );
    assert_eq!((stored[0].next_attempt_at.as_deref(), stored[1].next_attempt_at.as_deref()), (Some(EVENING), None));
    assert_eq!((stored[0].last_error.as_deref(), stored[1].last_error.as_deref()), (Some("refused"), None));

    for one in &stored[1..] {
        let again = db.ledger.redeliver("all", &one.id, NOON).await.unwrap().unwrap();
        assert_eq!((again.id.as_str(), again.state, again.attempts), (one.id.as_str(), DeliveryState::Pending, 0));
    }
    assert_eq!(due(NOON).await.iter().map(|due| due.number).collect::<Vec<_>>(), [first[1].number, first[2].number]);
    assert_eq!(db.ledger.redeliver("closed", &stored[1].id, NOON).await.unwrap(), None);
    let newest = db.ledger.deliveries("all", true, None, 2.into()).await.unwrap();
    assert_eq!(newest.iter().map(|(_, one)| &one.id).collect::<Vec<_>>(), [&stored[2].id, &stored[1].id]);
    let rest = db.ledger.deliveries("all", true, newest.next(), 2.into()).await.unwrap();
    assert_eq!((rest.len(), rest.more), (1, false));
}

#[rstest]
#[tokio::test]
async fn a_delivery_that_is_redelivered_during_an_attempt_is_attempted_again(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let db = open(backend).await;
    db.ledger.notify(&WebhookMessage::signing_stopped("2026-01-01T00:00:00.000000Z")).await.unwrap();
    let due = async || db.ledger.due_deliveries("all", NOON, 10).await.unwrap().remove(0);
    for state in [DeliveryState::Pending, DeliveryState::Failed, DeliveryState::Delivered] {
        let read = due().await;
        db.ledger.redeliver("all", &read.message_id, NOON).await.unwrap().unwrap();
        db.ledger.record_attempt(&read, attempt(state, read.attempts + 1, Some(500), EVENING)).await.unwrap();
        let stored = deliveries(&db, "all").await.remove(0);
        assert_eq!((stored.state, stored.attempts, stored.last_status), (DeliveryState::Pending, 0, None));
        let again = due().await;
        assert_eq!((again.attempts, again.due_at.as_str()), (0, NOON));
        db.ledger
            .record_attempt(&again, attempt(DeliveryState::Pending, 1, None, "2026-01-01T06:00:00.000000Z"))
            .await
            .unwrap();
        // The same result twice, as after a commit in doubt.
        db.ledger
            .record_attempt(&again, attempt(DeliveryState::Pending, 1, None, "2026-01-01T06:00:00.000000Z"))
            .await
            .unwrap();
        assert_eq!(deliveries(&db, "all").await[0].attempts, 1);
    }
}

/// As of a process that was paused while another one took its work over.
#[rstest]
#[tokio::test(flavor = "multi_thread")]
async fn the_position_of_a_webhook_is_never_put_back(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let db = open(backend).await;
    db.run("r1").await;
    for round in 1..=20 {
        db.append(refused("r1", Code::PolicyDenied, "rule")).await;
        let enqueue = || db.ledger.enqueue_refused_calls("all");
        let (one, two, three) = tokio::join!(enqueue(), enqueue(), enqueue());
        one.unwrap();
        two.unwrap();
        three.unwrap();
        assert_eq!(deliveries(&db, "all").await.len(), round);
    }
}

#[rstest]
#[tokio::test]
async fn old_and_surplus_deliveries_are_deleted(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let db = open(backend).await;
    let insert = |webhook: &str, id: &str, state: &str, at: &str| {
        format!(
            "INSERT INTO webhook_delivery (webhook, message_id, event_type, body, state, attempts, next_attempt_at, \
             created_at) VALUES ('{webhook}', '{id}', 'run.closed', '{{}}', '{state}', 0, '{at}', '{at}')"
        )
    };
    for (webhook, id, state, at) in [
        ("all", "old-pending", "pending", NOON),
        ("all", "old-delivered", "delivered", NOON),
        ("gone", "old-of-another", "pending", NOON),
        ("gone", "new-of-another", "pending", EVENING),
        ("closed", "old-failed", "failed", NOON),
        ("closed", "new-failed", "failed", EVENING),
    ] {
        db.execute(&insert(webhook, id, state, at)).await.unwrap();
    }
    db.ledger.prune_deliveries(EVENING).await.unwrap();
    let ids = async |webhook: &str| -> Vec<String> {
        deliveries(&db, webhook).await.into_iter().map(|delivery| delivery.id).collect()
    };
    assert_eq!(ids("all").await, ["old-pending"]);
    assert_eq!(ids("gone").await, ["new-of-another"]);
    assert_eq!(ids("closed").await, ["new-failed"]);
    let many = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10010) \
        INSERT INTO webhook_delivery (webhook, message_id, event_type, body, state, attempts, next_attempt_at, created_at) \
        SELECT 'all', 'many-' || i, 'run.closed', '{}', 'delivered', 0, '2030', '2030' FROM n";
    db.execute(many).await.unwrap();
    db.ledger.prune_deliveries(EVENING).await.unwrap();
    let count = async || {
        let (mut after, mut count) = (None, 0);
        loop {
            let page = db.ledger.deliveries("all", false, after, 1000.into()).await.unwrap();
            count += page.len();
            after = page.next();
            if after.is_none() {
                return count;
            }
        }
    };
    assert_eq!(count().await, 10_001, "10,000 and the pending one");
}

#[tokio::test]
async fn the_role_of_the_service_may_use_the_tables() {
    let mut db = Backend::Postgres.open().await;
    db.execute(include_str!("../../../../deploy/roles.sql")).await.unwrap();
    db.reopen_as("workspaced_service").await;
    db.ledger.set_webhooks(&[("all".to_owned(), WebhookEvent::ALL.to_vec())]).await.unwrap();
    db.run("r1").await;
    db.append(change_of("r1", "run.close", RunTransition::Close { at: NOON.to_owned() })).await;
    db.append(refused("r1", Code::PolicyDenied, "rule")).await;
    db.ledger.enqueue_refused_calls("all").await.unwrap();
    assert_eq!(events(&db, "all").await, ["run.closed", "call.refused"]);
    let due = db.ledger.due_deliveries("all", NOON, 10).await.unwrap();
    db.ledger.record_attempt(&due[0], attempt(DeliveryState::Delivered, 1, Some(200), NOON)).await.unwrap();
    db.ledger.redeliver("all", &due[0].message_id, NOON).await.unwrap().unwrap();
    db.ledger.prune_deliveries(NOON).await.unwrap();
    assert_eq!(db.ledger.run(&run_id("r1")).await.unwrap().unwrap().run.state, model::RunState::Closed);
}
