//! Webhooks: every event reaches a receiver, signed, at least once; a receiver that fails affects nothing else.

use std::path::PathBuf;
use std::time::SystemTime;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures_util::TryStreamExt as _;
use hmac::{Hmac, KeyInit as _, Mac as _};
use rstest::rstest;
use serde_json::{Value, json};
use workspaced_client::{DeliveryState, WebhookState};

use crate::harness::{Backend, Message, Receiver, Reply, Run, Server, Setup, exhaustive, put, sha256};

/// Two secrets, of which one replaces the other.
const SECRETS: [&str; 2] =
    ["whsec_bmV3LXNlY3JldC1vZi0zMi1ieXRlcy0wMTIzNDU2Nzg=", "whsec_b2xkLXNlY3JldC1vZi0zMi1ieXRlcy0wMTIzNDU2Nzg="];

/// Prepares a server with the named webhooks. Its clock is moved by writing seconds to the returned file.
async fn prepare(backend: Backend, webhooks: &[(&str, &Receiver)]) -> (Server, PathBuf) {
    let mut server = Server::prepare(Setup::new(backend)).await;
    put(&server.home, "secret", SECRETS.join("\n"));
    let secret = server.home.join("secret");
    let section = |(name, receiver): &(&str, &Receiver)| {
        let url = receiver.url.replace("http://", "http://user:hunter2@");
        let secret = secret.display();
        format!("[[webhook]]\nname = \"{name}\"\nurl = \"{url}?key=hunter3\"\nsecret_file = \"{secret}\"\n")
    };
    put(&server.home, "config.toml", webhooks.iter().map(section).collect::<String>());
    let config = server.home.join("config.toml");
    server.setup = server.setup.clone().arg("--config", config.display());
    let clock = server.add_clock();
    (server, clock)
}

/// Starts a server with one webhook, `hook`, and creates a run in which `private/**` is denied.
async fn start(backend: Backend) -> (Server, Receiver, Run, PathBuf) {
    let receiver = Receiver::start().await;
    let (mut server, clock) = prepare(backend, &[("hook", &receiver)]).await;
    server.restart();
    let run = server.run(json!({"policy": {"deny": ["private/**"]}})).await;
    (server, receiver, run, clock)
}

/// Whether a message has the signature of a secret, as Standard Webhooks defines it.
fn is_signed(message: &Message, secret: &str) -> bool {
    let key = BASE64_STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(&key).unwrap();
    mac.update(format!("{}.{}.{}", message.id(), message.header("webhook-timestamp"), message.text).as_bytes());
    let expected = format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()));
    message.header("webhook-signature").split(' ').any(|signature| signature == expected)
}

async fn refuse(run: &Run) {
    run.call("read_file", json!({"path": "private/x"})).await.refused("POLICY_DENIED");
}

async fn deliveries(server: &Server, webhook: &str) -> Vec<Value> {
    let list = server.operator().get(&format!("/v1/webhooks/{webhook}/deliveries")).await.ok();
    list["items"].as_array().unwrap().clone()
}

/// Returns the deliveries once `is_done` holds for them.
async fn until(server: &Server, webhook: &str, is_done: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let found = async || {
        let found = deliveries(server, webhook).await;
        if is_done(&found) { Ok(found) } else { Err(format!("{found:#?}")) }
    };
    server.until("the deliveries are as expected", found).await
}

async fn ask(run: &Run, content: &str) -> String {
    let input =
        json!({"path": "Cargo.lock", "content": content, "reason": "an update", "expectedSha256": sha256("l\n")});
    let refusal = run.call("write_file", input).await.refused("APPROVAL_REQUIRED");
    refusal["approvalId"].as_str().unwrap().to_owned()
}

/// Creates the events of a run that stays open: all but those of the start.
async fn cause_events(server: &Server, clock: &std::path::Path) -> Run {
    let policy = json!({"deny": ["private/**"], "runBudget": {"maxInsertions": 10}});
    let run = server.run_with_files(&[("Cargo.lock", "l\n"), (".env", "A=b\n")], json!({"policy": policy})).await;
    refuse(&run).await;
    run.call("read_file", json!({"path": "none.txt"})).await.refused("NOT_FOUND");
    run.create("nine.txt", "a confidential line\n2\n3\n4\n5\n6\n7\n8\n9\n").await;
    let approve = ask(&run, "approved\n").await;
    let decision = json!({"onBehalfOf": "ada"});
    run.operator.post(&format!("/v1/approvals/{approve}/approve"), decision.clone()).await.ok();
    let mut input = json!({"path": "Cargo.lock", "content": "https://new.example.net/\n", "reason": "r", "expectedSha256": sha256("approved\n")});
    let denied = run.call("write_file", input.clone()).await.refused("APPROVAL_REQUIRED");
    let id = denied["approvalId"].as_str().unwrap();
    run.operator.post(&format!("/v1/approvals/{id}/deny"), decision).await.ok();
    input["content"] = json!("expired\n");
    run.call("write_file", input).await.refused("APPROVAL_REQUIRED");
    std::fs::write(clock, (25 * 3600).to_string()).unwrap();
    run
}

#[rstest]
#[tokio::test]
async fn every_event_reaches_the_receiver_with_a_signature(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let receiver = Receiver::start().await;
    let (mut server, clock) = prepare(backend, &[("hook", &receiver)]).await;
    server.restart();
    let broken = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let input = json!({"path": "a.txt", "content": "A\n", "expectedSha256": sha256("a\n"), "reason": "pending"});
    server.kill_before_apply(&broken, "write_file", &input).await;
    broken.put("a.txt", "from outside\n");
    server.add_clock();
    server.restart();
    let run = cause_events(&server, &clock).await;
    receiver.until(9).await;
    run.operator.post(&format!("/v1/runs/{}/close", run.id), json!({})).await.ok();
    receiver.until(10).await;
    // A message whose receipt is not stored before the stop is sent again.
    until(&server, "hook", |all| all.iter().all(|one| one["state"] == "delivered")).await;
    assert!(server.stop().success());
    server.database.drop_triggers().await;
    server.database.tamper("delete from checkpoint_node").await.unwrap();
    let zero = server.bytes(&"0".repeat(64));
    server.database.tamper(&format!("update checkpoint_leaf set head_hash = {zero}")).await.unwrap();
    server.restart();
    let messages = receiver.until(11).await;
    let types: Vec<_> = messages.iter().map(|message| message.body["type"].as_str().unwrap()).collect();
    let expected = [
        "run.needs_repair",
        "call.refused",
        "budget.reached",
        "approval.requested",
        "approval.decided",
        "approval.requested",
        "approval.decided",
        "approval.requested",
        "approval.expired",
        "run.closed",
        "signing.stopped",
    ];
    // What happened within a second may arrive in another order than refused calls.
    let sorted = |mut types: Vec<_>| {
        types.sort_unstable();
        types
    };
    assert_eq!(sorted(types), sorted(expected.to_vec()));
    for message in &messages {
        assert!(SECRETS.iter().all(|secret| is_signed(message, secret)), "{message:?}");
        let data = &message.body["data"];
        assert!(message.body["timestamp"].is_string() && data.is_object(), "{message:?}");
        assert!(!message.text.contains("confidential") && message.text.len() < 4096, "{message:?}");
    }
    let of = |event: &str| &messages.iter().find(|message| message.event() == event).unwrap().body["data"];
    assert_eq!(
        (&of("call.refused")["code"], &of("call.refused")["reasons"]),
        (&json!("POLICY_DENIED"), &json!(["deny:private/**"]))
    );
    assert_eq!((&of("budget.reached")["member"], &of("budget.reached")["used"]), (&json!("maxInsertions"), &json!(9)));
    assert_eq!(of("run.needs_repair"), &json!({"runId": broken.id}));
    let warnings: Vec<_> = messages.iter().map(|message| &message.body["data"]["warnings"][0]).collect();
    let warned = warnings.iter().find(|warning| warning["code"] == "NEW_HOST").unwrap();
    assert_eq!(
        (&warned["severity"], &warned["path"], &warned["line"]),
        (&json!("doubt"), &json!("Cargo.lock"), &json!(1)),
        "{warned:#}"
    );
    let decided: Vec<_> = messages.iter().filter(|message| message.event() == "approval.decided").collect();
    assert_eq!(
        (&decided[0].body["data"]["state"], &decided[1].body["data"]["state"]),
        (&json!("approved"), &json!("denied"))
    );
    assert_eq!(decided[0].body["data"]["decidedBy"], "operator");
    let listed = until(&server, "hook", |all| all.iter().all(|one| one["state"] == "delivered")).await;
    assert_eq!(listed.len(), 11);
}

#[rstest]
#[tokio::test]
async fn a_refused_message_is_sent_again_with_the_same_id(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (server, receiver, run, clock) = start(backend).await;
    receiver.reply(Reply::Status(500));
    receiver.reply(Reply::Endless);
    refuse(&run).await;
    let failed = until(&server, "hook", |all| all.len() == 1 && all[0]["attempts"] == 1).await;
    assert_eq!((&failed[0]["state"], &failed[0]["lastStatus"]), (&json!("pending"), &json!(500)), "{failed:#?}");
    assert_eq!(failed[0]["lastError"], "the receiver answered 500");
    assert_eq!((&failed[0]["type"], &failed[0]["runId"]), (&json!("call.refused"), &json!(run.id)));
    std::fs::write(&clock, "60").unwrap();
    let delivered = until(&server, "hook", |all| all[0]["state"] == "delivered").await;
    assert_eq!((&delivered[0]["attempts"], &delivered[0]["lastStatus"]), (&json!(2), &json!(200)));
    assert!(delivered[0].get("lastError").is_none() && delivered[0].get("nextAttemptAt").is_none(), "{delivered:#?}");

    let id = delivered[0]["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/webhooks/hook/deliveries/{id}/redeliver");
    let again = server.operator().post(&path, json!({})).await.is(202);
    assert_eq!((&again["state"], &again["attempts"]), (&json!("pending"), &json!(0)));
    let messages = receiver.until(3).await;
    assert!(messages.iter().all(|message| message.id() == id && message.text == messages[0].text), "{messages:?}");
    assert!(is_signed(&messages[0], SECRETS[1]), "{messages:?}");
    // Receivers refuse a message that is older than five minutes.
    let sent = messages[0].header("webhook-timestamp").parse().unwrap();
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    assert!(now.abs_diff(sent) < 300, "{messages:?}");
    let metrics = server.nobody().get("/metrics").await.text();
    assert!(metrics.contains("workspaced_webhook_deliveries_total{outcome=\"retried\"} 1\n"), "{metrics}");
}

#[rstest]
#[tokio::test]
async fn a_message_has_failed_after_its_last_attempt(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (server, receiver, run, clock) = start(backend).await;
    receiver.reply_always(Some(Reply::Status(503)));
    refuse(&run).await;
    for attempt in 1..33 {
        until(&server, "hook", |all| all.first().is_some_and(|one| one["attempts"] == attempt)).await;
        // Further than the longest delay.
        std::fs::write(&clock, (attempt * 2 * 3600).to_string()).unwrap();
    }
    let found = until(&server, "hook", |all| all[0]["state"] == "failed").await;
    assert_eq!((&found[0]["attempts"], &found[0]["lastStatus"]), (&json!(33), &json!(503)), "{found:#?}");
    assert_eq!(receiver.messages().len(), 33);
    receiver.reply_always(None);
    let id = receiver.messages()[0].id().to_owned();
    server.operator().post(&format!("/v1/webhooks/hook/deliveries/{id}/redeliver"), json!({})).await.is(202);
    until(&server, "hook", |all| all[0]["state"] == "delivered" && all[0]["attempts"] == 1).await;
}

/// Stores `count` pending messages to `hook`, as if their events had happened.
async fn store_pending(server: &Server, count: usize, event: &str, body: &str) {
    let sql = format!(
        "insert into webhook_delivery (webhook, message_id, event_type, body, state, attempts, next_attempt_at, created_at) \
         with recursive number (n) as (select 1 union all select n + 1 from number where n < {count}) \
         select 'hook', 'msg_{event}_' || n, '{event}', '{body}', 'pending', 0, '9000', '9000' from number"
    );
    assert_eq!(server.database.tamper(&sql).await, Ok(count as u64));
}

async fn pending(server: &Server) -> u64 {
    let list = server.operator().get("/v1/webhooks").await.ok();
    list["items"][0]["pending"].as_u64().unwrap()
}

async fn until_pending(server: &Server, count: u64) {
    server.until(&format!("{count} messages wait"), async || pending(server).await == count).await;
}

#[rstest]
#[tokio::test]
async fn a_flood_of_one_run_delays_no_event_of_another(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, receiver, _run, _clock) = start(backend).await;
    for (event, count) in [("call.refused", 7_500), ("budget.reached", 1_000)] {
        let sql = format!(
            "insert into webhook_delivery (webhook, message_id, event_type, run_id, body, state, attempts, next_attempt_at, \
             created_at) with recursive number (n) as (select 1 union all select n + 1 from number where n < {count}) \
             select 'hook', 'flood_{event}_' || n, '{event}', 'flood', '{{\"type\":\"{event}\"}}', 'pending', 0, '2020', '2020' \
             from number"
        );
        assert_eq!(server.database.tamper(&sql).await, Ok(count));
    }
    receiver.until(20).await;
    let run = server.run_with_files(&[("Cargo.lock", "l\n")], json!({})).await;
    ask(&run, "asked\n").await;
    let asked = receiver.messages().len();
    let arrived = async || {
        let messages = receiver.messages();
        let found = messages.iter().position(|message| message.body["type"] == "approval.requested");
        assert!(found.is_some() || messages.len() < asked + 100, "{} messages came first", messages.len() - asked);
        found
    };
    let position = server.until("the message of the approval arrives", arrived).await;
    assert!(position < asked + 50, "{} messages came first", position - asked);
    // A flood of events comes before one of refused calls, which is later than everything else.
    assert!(receiver.messages().iter().all(|message| message.body["type"] != "call.refused"));
}

#[rstest]
#[tokio::test]
async fn a_dead_receiver_holds_a_bounded_number_of_messages(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (server, receiver, _run, _clock) = start(backend).await;
    receiver.reply_always(Some(Reply::Status(500)));
    store_pending(&server, 15_000, "run.closed", "{}").await;
    store_pending(&server, 5_000, "call.refused", "{}").await;
    store_pending(&server, 1_000, "approval.requested", "{}").await;
    until_pending(&server, 20_000).await;
    let listed = |state: &'static str| {
        let sql = format!(
            "update webhook_delivery set attempts = attempts where state = '{state}' and event_type = 'call.refused'"
        );
        let database = &server.database;
        async move { database.tamper(&sql).await.unwrap() }
    };
    assert_eq!((listed("pending").await, listed("failed").await), (4_000, 1_000), "refused calls are given up first");
    let metrics = server.nobody().get("/metrics").await.text();
    assert!(metrics.contains("workspaced_webhook_dropped_total{reason=\"too_many\"} 1000\n"), "{metrics}");
    assert!(server.log().contains("messages to a webhook were given up"), "{}", server.log());
    // Then what is newest of the rest.
    store_pending(&server, 6_000, "budget.reached", "{}").await;
    until_pending(&server, 20_000).await;
    assert_eq!(listed("pending").await, 0);
    let newest = server.operator().get("/v1/webhooks/hook/deliveries?limit=1&order=desc").await.ok();
    let newest = &newest["items"][0];
    assert_eq!((&newest["type"], &newest["state"]), (&json!("budget.reached"), &json!("failed")), "{newest}");
    assert_eq!(newest["lastError"], "not sent: too many messages wait for this receiver");
}

#[rstest]
#[tokio::test]
async fn messages_to_a_dead_receiver_are_bounded_in_bytes_and_in_age(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (server, receiver, run, clock) = start(backend).await;
    receiver.reply_always(Some(Reply::Status(500)));
    let body = format!("{{\"text\":\"{}\"}}", "x".repeat((1 << 20) - 11));
    store_pending(&server, 70, "run.closed", &body).await;
    until_pending(&server, 64).await;
    refuse(&run).await;
    let of_call = |all: &[Value]| all.iter().find(|one| one["runId"] == json!(run.id)).cloned();
    until(&server, "hook", |all| of_call(all).is_some_and(|one| one["attempts"] == 1 || one["state"] == "failed"))
        .await;
    server.database.tamper("delete from webhook_delivery where run_id is null").await.unwrap();
    refuse(&run).await;
    let of_state = |all: &[Value], state: &str, error: &str| {
        all.iter().filter(|one| one["state"] == state && one["lastError"] == error).count()
    };
    until(&server, "hook", |all| of_state(all, "pending", "the receiver answered 500") > 0).await;
    std::fs::write(&clock, (73 * 3600).to_string()).unwrap();
    until(&server, "hook", |all| of_state(all, "failed", "no attempt has succeeded within 3 days") > 0).await;
    let metrics = server.nobody().get("/metrics").await.text();
    assert!(metrics.contains("workspaced_webhook_dropped_total{reason=\"too_old\"}"), "{metrics}");
    // One that was given up can be sent again.
    receiver.reply_always(None);
    let client = workspaced_client::Client::new(&server.base, server.operator_token.as_str()).unwrap();
    let hooks: Vec<_> = client.webhooks().try_collect().await.unwrap();
    assert_eq!((hooks.len(), hooks[0].name.as_str(), hooks[0].state), (1, "hook", WebhookState::Active));
    let all: Vec<_> = client.deliveries("hook", true).try_collect().await.unwrap();
    assert_eq!(all.len(), deliveries(&server, "hook").await.len());
    let id = all.into_iter().find(|one| one.state == DeliveryState::Failed).unwrap().id;
    let pending = client.redeliver("hook", &id).await.unwrap();
    assert_eq!((pending.state, pending.attempts), (DeliveryState::Pending, 0));
    until(&server, "hook", |all| all.iter().any(|one| one["id"] == json!(id) && one["state"] == "delivered")).await;
}

#[rstest]
#[tokio::test]
async fn a_receiver_that_hangs_delays_no_call_and_no_other_webhook(#[values(Backend::Sqlite)] backend: Backend) {
    let [hanging, other] = [Receiver::start().await, Receiver::start().await];
    hanging.reply_always(Some(Reply::Hang));
    let (mut server, _clock) = prepare(backend, &[("hanging", &hanging), ("other", &other)]).await;
    server.restart();
    let run = server.run(json!({"policy": {"deny": ["private/**"]}})).await;
    for _ in 0..5 {
        refuse(&run).await;
    }
    let messages = other.until(5).await;
    let seqs: Vec<_> = messages.iter().map(|message| message.body["data"]["seq"].as_u64().unwrap()).collect();
    assert!(seqs.is_sorted(), "{seqs:?}");
    assert_eq!(hanging.until(1).await[0].id(), messages[0].id(), "a message has one ID");
    // The task reads further messages between two attempts.
    let failed = until(&server, "hanging", |all| all.len() == 5 && all[0]["attempts"] != 0).await;
    assert_eq!(failed[0]["lastError"], "no answer within 10 seconds", "{failed:#?}");
    assert!(failed[0].get("lastStatus").is_none(), "{failed:#?}");
    until(&server, "other", |all| all.iter().all(|one| one["state"] == "delivered")).await;
    let list = server.operator().get("/v1/webhooks").await.ok();
    assert_eq!((&list["items"][0]["pending"], &list["items"][1]["pending"]), (&json!(5), &json!(0)), "{list:#}");
}

#[rstest]
#[tokio::test]
async fn a_redirect_is_not_followed_and_410_ends_the_webhook(#[values(Backend::Sqlite)] backend: Backend) {
    let (mut server, receiver, run, clock) = start(backend).await;
    let elsewhere = Receiver::start().await;
    receiver.reply(Reply::Redirect(elsewhere.url.clone()));
    receiver.reply(Reply::Status(410));
    refuse(&run).await;
    let failed = until(&server, "hook", |all| all.len() == 1 && all[0]["attempts"] == 1).await;
    assert_eq!(failed[0]["lastError"], "the receiver answered 307: redirects are not followed");
    std::fs::write(&clock, "60").unwrap();
    until(&server, "hook", |all| all[0]["attempts"] == 2).await;
    let list = server.operator().get("/v1/webhooks").await.ok();
    assert_eq!((&list["items"][0]["state"], &list["items"][0]["pending"]), (&json!("disabled"), &json!(1)), "{list:#}");
    assert!(server.log().contains("the receiver answered 410"), "{}", server.log());
    std::fs::write(&clock, "7200").unwrap();
    refuse(&run).await;
    assert!(server.stop().success());
    assert_eq!((receiver.messages().len(), elsewhere.messages().len()), (2, 0));
    server.restart();
    receiver.until(4).await;
    until(&server, "hook", |all| all.len() == 2 && all.iter().all(|one| one["state"] == "delivered")).await;
}

#[rstest]
#[tokio::test]
async fn a_redelivery_makes_a_disabled_webhook_active_again(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (server, receiver, run, _clock) = start(backend).await;
    receiver.reply(Reply::Status(410));
    receiver.reply(Reply::Status(410));
    refuse(&run).await;
    let state = async || server.operator().get("/v1/webhooks").await.ok()["items"][0]["state"].clone();
    let gone = until(&server, "hook", |all| all.len() == 1 && all[0]["attempts"] == 1).await;
    assert_eq!(state().await, "disabled");
    let path = format!("/v1/webhooks/hook/deliveries/{}/redeliver", gone[0]["id"].as_str().unwrap());
    server.operator().post(&path, json!({})).await.is(202);
    receiver.until(2).await;
    until(&server, "hook", |all| all[0]["attempts"] == 1).await;
    assert_eq!(state().await, "disabled", "the receiver has answered 410 again");
    server.operator().post(&path, json!({})).await.is(202);
    receiver.until(3).await;
    until(&server, "hook", |all| all[0]["state"] == "delivered").await;
    assert_eq!(state().await, "active");
    refuse(&run).await;
    receiver.until(4).await;
}

#[rstest]
#[tokio::test]
async fn a_result_that_cannot_be_stored_is_stored_before_anything_else_is_sent(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (server, receiver, run, _clock) = start(backend).await;
    server.database.refuse_updates("webhook_delivery").await;
    refuse(&run).await;
    let failure = "failed to read or store deliveries";
    server.until_logged_times(failure, 2).await;
    refuse(&run).await;
    server.until_logged_times(failure, 3).await;
    assert_eq!(receiver.messages().len(), 1, "a message is sent again although the receiver has accepted it");
    server.database.permit_updates("webhook_delivery").await;
    let is_done = |all: &[Value]| all.len() == 2 && all.iter().all(|one| one["state"] == "delivered");
    let delivered = until(&server, "hook", is_done).await;
    assert!(delivered.iter().all(|one| one["attempts"] == 1), "{delivered:#?}");
    let messages = receiver.messages();
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert_ne!(messages[0].id(), messages[1].id());
}

#[rstest]
#[tokio::test]
async fn no_message_to_this_machine_takes_a_proxy(#[values(Backend::Sqlite)] backend: Backend) {
    let [receiver, proxy] = [Receiver::start().await, Receiver::start().await];
    let (mut server, _clock) = prepare(backend, &[("hook", &receiver)]).await;
    server.setup = server.setup.clone().env("http_proxy", proxy.url.trim_end_matches("/hook"));
    server.restart();
    let run = server.run(json!({"policy": {"deny": ["private/**"]}})).await;
    refuse(&run).await;
    until(&server, "hook", |all| all.len() == 1 && all[0]["state"] == "delivered").await;
    assert_eq!((receiver.messages().len(), proxy.messages().len()), (1, 0));
}

#[rstest]
#[tokio::test]
async fn a_kill_before_the_delivery_loses_no_message(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (mut server, receiver, mut run, _clock) = start(backend).await;
    receiver.reply_always(Some(Reply::Hang));
    for _ in 0..3 {
        refuse(&run).await;
        let other = server.run(json!({})).await;
        other.operator.post(&format!("/v1/runs/{}/close", other.id), json!({})).await.ok();
        server.kill();
        server.restart();
        run = server.reconnect(&run);
    }
    receiver.reply_always(None);
    let is_done = |all: &[Value]| all.len() == 6 && all.iter().all(|one| one["state"] == "delivered");
    let delivered = until(&server, "hook", is_done).await;
    let count = |event: &str| delivered.iter().filter(|one| one["type"] == event).count();
    assert_eq!((count("call.refused"), count("run.closed")), (3, 3), "{delivered:#?}");
}

#[rstest]
#[tokio::test]
async fn secrets_are_shown_nowhere_and_only_orchestrators_see_webhooks(#[values(Backend::Sqlite)] backend: Backend) {
    let (mut server, receiver, run, _clock) = start(backend).await;
    receiver.reply(Reply::Status(500));
    refuse(&run).await;
    let failed = until(&server, "hook", |all| all.len() == 1 && all[0]["attempts"] == 1).await;
    let list = server.operator().get("/v1/webhooks").await.ok();
    assert_eq!(list["items"][0]["url"], json!(receiver.url.trim_end_matches("/hook")), "the path may have a secret");
    assert_eq!(list["items"][0]["events"].as_array().unwrap().len(), 8);
    assert_eq!(receiver.messages()[0].header("authorization"), "Basic dXNlcjpodW50ZXIy");
    let id = failed[0]["id"].as_str().unwrap().to_owned();
    let routes = ["/v1/webhooks".to_owned(), "/v1/webhooks/hook/deliveries".to_owned()];
    for route in &routes {
        server.auditor().get(route).await.refused("FORBIDDEN");
        run.agent.get(route).await.refused("FORBIDDEN");
    }
    let redeliver = format!("/v1/webhooks/hook/deliveries/{id}/redeliver");
    server.auditor().post(&redeliver, json!({})).await.refused("FORBIDDEN");
    let operator = server.operator();
    operator.get("/v1/webhooks/none/deliveries").await.refused("NOT_FOUND");
    for unknown in ["none", "a%00b"] {
        operator.post(&redeliver.replace(&id, unknown), json!({})).await.refused("NOT_FOUND");
    }
    let page = operator.get("/v1/webhooks/hook/deliveries?limit=1&order=desc").await.ok();
    assert_eq!(page["items"][0]["id"], json!(id));
    assert!(server.stop().success());
    for secret in ["hunter2", "hunter3", &SECRETS[0][6..], &SECRETS[1][6..]] {
        assert!(!server.log().contains(secret) && !server.database.contains(secret).await, "{secret}");
        assert!(!list.to_string().contains(secret) && !failed[0].to_string().contains(secret), "{secret}");
    }
}
