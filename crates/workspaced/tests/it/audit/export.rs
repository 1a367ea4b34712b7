//! Exports of records: all that match, as files for other programs.

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Run, items, sha256};

/// A run with records of several kinds, whose reasons and names are hard to export.
async fn story(backend: Backend) -> (std::sync::Arc<crate::harness::Server>, Run) {
    let (server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    run.ok("read_file", json!({"path": "a.txt"})).await;
    let input = json!({"path": "b, \"c\".txt", "content": "x\n", "reason": "=HYPERLINK(\"x\")\nline, two"});
    run.ok("write_file", input).await;
    run.call("read_file", json!({"path": ".env"})).await.refused("POLICY_DENIED_SECRET");
    let delete = json!({"path": "a.txt", "expectedSha256": sha256("a\n"), "reason": "gone"});
    run.ok("delete_file", delete).await;
    (server, run)
}

async fn export(run: &Run, query: &str) -> String {
    let answer = run.operator.get(&format!("/v1/audit/export?run={}{query}", run.id)).await;
    assert_eq!(answer.status, 200);
    assert!(answer.header("content-disposition").starts_with("attachment"));
    answer.text()
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[rstest]
#[tokio::test]
async fn every_matching_record_is_exported_as_it_was_hashed(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (_server, run) = story(backend).await;
    let records = run.audit().await;
    assert_eq!(lines(&export(&run, "").await), records);
    assert_eq!(lines(&export(&run, "&format=ndjson&tool=write_file").await), [records[2].clone()]);
    let since = records[3]["timestamp"].as_str().unwrap();
    assert_eq!(lines(&export(&run, &format!("&since={since}")).await), records[3..]);
    let actor = records[1]["actor"].as_str().unwrap();
    assert_eq!(lines(&export(&run, &format!("&actor={actor}")).await), records[1..]);
    assert_eq!(export(&run, "&tool=none").await, "");
    // More records than one query of the ledger returns.
    let events: Vec<_> = (0..100).map(|number| json!({"kind": "message", "summary": format!("m{number}")})).collect();
    for _ in 0..6 {
        let path = format!("/v1/runs/{}/events/batch", run.id);
        run.operator.post(&path, json!({"events": events})).await.is(201);
    }
    let all = items(&run.operator, &format!("/v1/runs/{}/audit", run.id)).await;
    assert_eq!(lines(&export(&run, "").await), all);
}

#[rstest]
#[tokio::test]
async fn cells_and_events_say_what_happened(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (server, run) = story(backend).await;
    let records = run.audit().await;
    let csv = export(&run, "&format=csv").await;
    assert!(csv.starts_with("timestamp,runId,seq,tool,actor,by,"), "{csv}");
    assert!(csv.contains(",\"'=HYPERLINK(\"\"x\"\")\nline, two\","), "{csv}");
    assert!(csv.contains(",\"b, \"\"c\"\".txt\","), "{csv}");
    assert!(csv.ends_with(&format!(",{}\r\n", records[4]["hash"].as_str().unwrap())), "{csv}");
    assert_eq!(csv.matches("\r\n").count(), records.len() + 1);

    let events = lines(&export(&run, "&format=ocsf").await);
    let kinds: Vec<_> = events.iter().map(|event| (event["activity_id"].clone(), event["status"].clone())).collect();
    let expected = [(99, "Success"), (2, "Success"), (1, "Success"), (2, "Failure"), (4, "Success")];
    assert_eq!(kinds, expected.map(|(id, status)| (json!(id), json!(status))));
    for (event, record) in events.iter().zip(&records) {
        assert_eq!((&event["class_uid"], &event["metadata"]["uid"]), (&json!(6003), &record["hash"]));
        assert_eq!(event["type_uid"].as_u64().unwrap(), 600_300 + event["activity_id"].as_u64().unwrap());
        assert_eq!(&serde_json::from_str::<Value>(event["raw_data"].as_str().unwrap()).unwrap(), record);
    }
    let (_, reviewer) = server.named_operator("reviewer", &["approve"]).await;
    assert_eq!(reviewer.get(&format!("/v1/audit/export?run={}", run.id)).await.text(), export(&run, "").await);
    reviewer.get("/v1/audit/export").await.refused("FORBIDDEN");
    run.agent.get(&format!("/v1/audit/export?run={}", run.id)).await.refused("FORBIDDEN");
    run.operator.get("/v1/audit/export?format=xml").await.refused("INVALID_REQUEST");
}
