//! `GET /v1/stats`: exact counts of records, whatever their number.

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Run, Server, sha256};

/// Counts `records` as the service has to.
fn counted<'a>(records: impl IntoIterator<Item = &'a Value>) -> Value {
    let names = ["reads", "changes", "commands", "other", "refused", "pending", "failed", "denied", "deniedByPerson"];
    let mut counts: Value =
        names.iter().map(|name| ((*name).to_owned(), json!(0))).collect::<serde_json::Map<_, _>>().into();
    let mut all = 0;
    for record in records {
        all += 1;
        let tool = record["tool"].as_str().unwrap();
        let kind = match record["outcome"].as_str().unwrap() {
            "ok" if tool.contains('.') => "other",
            "ok" if tool == "run_command" => "commands",
            "ok" if record["mutates"] == true => "changes",
            "ok" => "reads",
            outcome => outcome,
        };
        let by_person = record["reasons"][0].as_str().is_some_and(|reason| reason.ends_with(":denied"));
        let denied = record["decision"] == "DENY" || record["left"].is_array();
        for (name, is_one) in [(kind, true), ("denied", denied), ("deniedByPerson", by_person)] {
            counts[name] = json!(counts[name].as_u64().unwrap() + u64::from(is_one));
        }
    }
    counts["records"] = json!(all);
    counts
}

fn total(stats: &Value) -> Value {
    stats["total"].clone()
}

#[rstest]
#[tokio::test]
async fn stats_count_every_record_by_run_outcome_and_reason(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let server = Server::start(backend).await;
    let operator = server.operator();
    assert_eq!(total(&operator.get("/v1/stats").await.ok())["records"], 0);
    let run = server.run_with_files(&[("a.txt", "a\n"), ("Cargo.lock", "l\n"), (".env", "A=1\n")], json!({})).await;
    run.ok("read_file", json!({"path": "a.txt"})).await;
    run.ok("write_file", json!({"path": "b.txt", "content": "b\n", "reason": "r"})).await;
    for _ in 0..3 {
        run.call("read_file", json!({"path": ".env"})).await.refused("POLICY_DENIED_SECRET");
    }
    run.call("write_file", json!({"path": "target/x", "content": "x", "reason": "r"})).await.refused("POLICY_DENIED");
    run.call("read_file", json!({"path": "none"})).await.refused("NOT_FOUND");
    let lock = json!({"path": "Cargo.lock", "content": "m\n", "expectedSha256": sha256("l\n"), "reason": "r"});
    let asked = run.call("write_file", lock).await.refused("APPROVAL_REQUIRED");
    let deny = format!("/v1/approvals/{}/deny", asked["approvalId"].as_str().unwrap());
    operator.post(&deny, json!({"note": "no", "onBehalfOf": "ada"})).await.ok();
    let other = server.run(json!({})).await;
    // More than the records of the first run, and more than a page of a list has.
    let events: Vec<_> = (0..100).map(|number| json!({"kind": "message", "summary": format!("m{number}")})).collect();
    for _ in 0..12 {
        operator.post(&format!("/v1/runs/{}/events/batch", other.id), json!({"events": events})).await.is(201);
    }

    let (records, noise) =
        (run.audit().await, crate::harness::items(&operator, &format!("/v1/runs/{}/audit", other.id)).await);
    let stats = operator.get("/v1/stats").await.ok();
    assert_eq!(total(&stats), counted(records.iter().chain(&noise)), "{stats:#}");
    let of_run = |id: &str, records: &[Value]| {
        let mut counts = counted(records);
        counts["runId"] = json!(id);
        counts
    };
    assert_eq!(stats["runs"], json!([of_run(&other.id, &noise), of_run(&run.id, &records)]), "the most records first");
    assert_eq!((&stats["moreRuns"], &stats["moreReasons"]), (&json!(0), &json!(0)));
    let reasons = json!([
        {"outcome": "refused", "reason": "kind:SECRET_LIKE", "records": 3},
        {"outcome": "refused", "reason": "NOT_FOUND", "records": 1},
        {"outcome": "refused", "reason": "approval:denied", "records": 1},
        {"outcome": "refused", "reason": "kind:GENERATED", "records": 1},
        {"outcome": "pending", "reason": "kind:LOCKFILE", "records": 1},
    ]);
    let found = stats["reasons"].as_array().unwrap();
    assert_eq!(found.len(), 5, "{found:#?}");
    assert!(reasons.as_array().unwrap().iter().all(|reason| found.contains(reason)), "{found:#?}");
    assert_eq!(found[0], reasons[0], "the most frequent first");
    let hours = stats["hours"].as_array().unwrap();
    let in_hours: u64 = hours.iter().map(|hour| hour["records"].as_u64().unwrap()).sum();
    assert_eq!(json!(in_hours), stats["total"]["records"]);
    assert!(hours[0]["hour"].as_str().unwrap().ends_with(":00:00Z"), "{hours:#?}");

    // One run, a time, and whose records.
    let of = async |query: &str| total(&operator.get(&format!("/v1/stats?{query}")).await.ok());
    assert_eq!(of(&format!("run={}", run.id)).await, counted(&records));
    let at = records[3]["timestamp"].as_str().unwrap();
    assert_eq!(of(&format!("run={}&since={at}", run.id)).await, counted(&records[3..]));
    assert_eq!(of(&format!("run={}&until={at}", run.id)).await, counted(&records[..3]));
    assert_eq!(of("since=2999-01-01T00:00:00Z").await, counted(&[]));
    let agents = records.iter().filter(|record| record["by"] == "agent");
    assert_eq!(of(&format!("by=agent&run={}", run.id)).await, counted(agents));
    assert_eq!(of("run=none").await, counted(&[]));
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn stats_are_for_auditors_and_well_formed_queries(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[]).await;
    server.auditor().get("/v1/stats?since=2026-01-01T00:00:00%2B02:00").await.ok();
    let (_, reviewer) = server.named_operator("stats-reviewer", &["approve"]).await;
    reviewer.get(&format!("/v1/stats?run={}", run.id)).await.refused("FORBIDDEN");
    run.agent.get("/v1/stats").await.refused("FORBIDDEN");
    for query in ["since=yesterday", "until=1", "run=-", "by=me"] {
        run.operator.get(&format!("/v1/stats?{query}")).await.refused("INVALID_REQUEST");
    }
}
