//! The audit log: one record for each call, the hash chain, filters, pages and the event stream.

use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Client, Run, Server, assert_chain, exhaustive, in_time, items, sha256};

#[rstest]
#[tokio::test]
async fn every_call_leaves_one_record_in_an_intact_chain(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "one\n"), ("Cargo.lock", "l\n"), (".env", "A=1\n")]).await;
    let calls = [
        ("list_dir", json!({}), 200, "ALLOW", "ok"),
        ("read_file", json!({"path": "a.txt"}), 200, "ALLOW", "ok"),
        ("search_text", json!({"query": "one"}), 200, "ALLOW", "ok"),
        ("diff_workspace", json!({}), 200, "ALLOW", "ok"),
        ("write_file", json!({"path": "b.txt", "content": "b\n", "reason": "r1"}), 200, "ALLOW", "ok"),
        ("write_file", json!({"path": "c.txt", "content": "c\n", "reason": "r2", "dryRun": true}), 200, "ALLOW", "ok"),
        ("read_file", json!({"path": "none"}), 404, "ALLOW", "refused"),
        ("read_file", json!({"path": "../x"}), 400, "DENY", "refused"),
        ("read_file", json!({"path": ".env"}), 403, "DENY", "refused"),
        ("write_file", json!({"path": "a.txt", "content": "x", "reason": "r3"}), 409, "ALLOW", "refused"),
        ("write_file", json!({"path": "target/x", "content": "x", "reason": "r4"}), 403, "DENY", "refused"),
        (
            "write_file",
            json!({"path": "Cargo.lock", "content": "m", "expectedSha256": sha256("l\n"), "reason": "r5"}),
            202,
            "REQUIRE_APPROVAL",
            "pending",
        ),
        ("apply_patch", json!({"patch": "junk", "reason": "r6"}), 400, "ALLOW", "refused"),
        ("list_dir", json!({"surprise": 1}), 400, "ALLOW", "refused"),
        ("list_dir", json!([]), 400, "ALLOW", "refused"),
    ];
    for (tool, input, status, ..) in &calls {
        let answer = run.call(tool, input.clone()).await;
        assert_eq!(answer.status, *status, "{}: {}", answer.what, answer.text());
    }
    assert_chain(&run.id, &run.audit().await);
    let records = run.calls().await;
    assert_eq!(records.len(), calls.len());
    let actor = format!("run-token:{}", run.created["token"]["tokenId"].as_str().unwrap());
    for (record, (tool, input, status, decision, outcome)) in records.iter().zip(&calls) {
        let context = || format!("{tool} {input}: {record:#}");
        assert_eq!(record["tool"], *tool, "{}", context());
        assert_eq!(record["decision"], *decision, "{}", context());
        assert_eq!(record["outcome"], *outcome, "{}", context());
        assert_eq!(record["actor"], actor.as_str(), "{}", context());
        assert_eq!(record["mutates"], ["write_file", "apply_patch"].contains(tool), "{}", context());
        assert_eq!(record["code"].is_string(), *status != 200, "{}", context());
        assert_eq!(
            record.get("reason").unwrap_or(&Value::Null),
            input.get("reason").unwrap_or(&Value::Null),
            "{}",
            context()
        );
        assert!(record["durationMicros"].is_u64() && record["timestamp"].as_str().unwrap().ends_with('Z'));
        for list in ["pathsRead", "pathsWritten", "files", "reasons", "artifactUris"] {
            assert!(record[list].is_array(), "{list}: {}", context());
        }
        assert_eq!(
            *decision != "ALLOW",
            !record["reasons"].as_array().unwrap().is_empty() && *decision != "ALLOW",
            "{}",
            context()
        );
    }
    assert_eq!(records[1]["pathsRead"], json!(["a.txt"]));
    assert_eq!(records[1]["files"][0]["oldSha256"], sha256("one\n"), "the version that was read");
    assert!(records[0]["timestamp"].as_str() <= records[14]["timestamp"].as_str());

    let report = run.verify().await;
    assert_eq!((&report["intact"], &report["records"]), (&json!(true), &json!(16)));
    assert_eq!((&report["headSeq"], &report["headHash"]), (&json!(16), &records[14]["hash"]));
}

#[rstest]
#[tokio::test]
async fn a_refusal_is_recorded_only_for_an_authenticated_caller(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (server, run) = Run::shared(backend, &[]).await;
    let other = server.run(json!({})).await;
    let reader =
        run.operator.post(&format!("/v1/runs/{}/tokens", run.id), json!({"permissions": ["file:read"]})).await.is(201);
    let reader = run.agent.with_token(reader["token"].as_str());
    let tool = format!("/v1/runs/{}/tools/list_dir", run.id);
    reader.post(&tool, json!({})).await.refused("FORBIDDEN");
    other.agent.post(&tool, json!({})).await.refused("FORBIDDEN");
    server.nobody().post(&tool, json!({})).await.refused("UNAUTHENTICATED");
    let records = run.calls().await;
    assert_eq!(records.len(), 1, "{records:#?}");
    assert_eq!((&records[0]["code"], &records[0]["decision"]), (&json!("FORBIDDEN"), &json!("DENY")));
    assert_eq!(other.calls().await.len(), 0);
}

#[rstest]
#[tokio::test]
async fn a_call_of_a_tool_that_does_not_exist_is_not_found(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (_server, run) = Run::shared(backend, &[]).await;
    for tool in ["none_such", "READ_FILE", "read_file%2f", "__proto__"] {
        run.call(tool, json!({})).await.refused("TOOL_NOT_FOUND");
    }
    assert_chain(&run.id, &run.audit().await);
}

#[rstest]
#[tokio::test]
async fn a_record_of_one_call_is_complete(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    run.ok("write_file", json!({"path": "a.txt", "content": "b\n", "expectedSha256": sha256("a\n"), "reason": "r", "toolCallId": "odd id/ü"})).await;
    let record = run.agent.get(&format!("/v1/runs/{}/tool-calls/odd%20id%2F%C3%BC", run.id)).await.ok();
    let text = record.to_string();
    for needle in [sha256("a\n"), sha256("b\n"), "TEXT_DOC".into(), "ALLOW".into(), format!("artifact://{}/", run.id)] {
        assert!(text.contains(&needle), "{needle}: {record:#}");
    }
    run.agent.get(&format!("/v1/runs/{}/tool-calls/none-such", run.id)).await.refused("NOT_FOUND");
}

#[rstest]
#[tokio::test]
async fn a_cursor_is_valid_only_in_its_own_list(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[("a.txt", "a\n"), ("Cargo.lock", "old\n")]).await;
    let other = server.run(json!({})).await;
    for (run, count) in [(&run, 3), (&other, 3)] {
        for _ in 0..count {
            run.ok("list_dir", json!({})).await;
        }
    }
    for content in ["1\n", "2\n"] {
        let input = json!({"path": "Cargo.lock", "content": content, "expectedSha256": sha256("old\n"), "reason": "r"});
        run.call("write_file", input).await.refused("APPROVAL_REQUIRED");
    }
    let auditor = server.auditor();
    let lists = [
        "/v1/runs".to_owned(),
        "/v1/approvals".to_owned(),
        "/v1/audit".to_owned(),
        format!("/v1/runs/{}/audit", run.id),
        format!("/v1/runs/{}/audit", other.id),
    ];
    let mut cursors = Vec::new();
    for list in &lists {
        let page = auditor.get(&format!("{list}?limit=1")).await.ok();
        cursors.push(page["nextCursor"].as_str().unwrap().to_owned());
    }
    for (own, cursor) in cursors.iter().enumerate() {
        for (at, list) in lists.iter().enumerate() {
            let answer = auditor.get(&format!("{list}?limit=1&cursor={cursor}")).await;
            if at == own {
                answer.ok();
            } else {
                answer.refused("INVALID_REQUEST");
            }
        }
    }
    for (list, cursor) in lists.iter().zip(&cursors) {
        // A word that begins like a cursor of the list, and a cursor that was changed.
        for changed in [format!("{cursor}0"), format!("{}word", &cursor[..1]), cursor[..cursor.len() - 1].to_owned()] {
            auditor.get(&format!("{list}?limit=1&cursor={changed}")).await.refused("INVALID_REQUEST");
        }
    }
    // A cursor belongs to its filter and order too.
    for other in [format!("run={}", run.id), "order=desc".to_owned(), "actor=service".to_owned()] {
        auditor.get(&format!("/v1/audit?{other}&cursor={}", cursors[2])).await.refused("INVALID_REQUEST");
    }
}

#[rstest]
#[tokio::test]
async fn records_are_searched_in_both_orders(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[("src/a.txt", "a\n"), ("b.txt", "b\n"), (".env", "A=1\n")]).await;
    for path in ["src/a.txt", "b.txt", "none", ".env"] {
        run.call("read_file", json!({"path": path})).await;
    }
    let (_, ada) = server.named_operator("ada", &["audit"]).await;
    ada.post(&format!("/v1/runs/{}/tools/read_file", run.id), json!({"path": "src/a.txt"})).await.ok();
    let patch = run.operator.request(reqwest::Method::PATCH, &format!("/v1/runs/{}", run.id));
    let label = format!("own:{}", run.id);
    run.operator.send(patch.json(&json!({"labels": {"own": run.id}}))).await.ok();
    let actor = run.last_record().await["actor"].as_str().unwrap().to_owned();
    let reader = run.audit().await[5]["actor"].as_str().unwrap().to_owned();
    let own = format!("/v1/runs/{}/audit?limit=2", run.id);
    let all = format!("/v1/audit?run={}&limit=2", run.id);
    let labelled = format!("/v1/audit?label={label}&limit=1000");
    for (query, expected) in [
        ("order=asc".to_owned(), vec![1, 2, 3, 4, 5, 6, 7]),
        ("order=desc".to_owned(), vec![7, 6, 5, 4, 3, 2, 1]),
        (format!("actor={reader}"), vec![6]),
        (format!("actor={actor}&order=desc"), vec![7, 1]),
        ("code=POLICY_DENIED_SECRET".to_owned(), vec![5]),
        ("code=NOT_FOUND&order=desc".to_owned(), vec![4]),
        ("pathPrefix=src/".to_owned(), vec![2, 6]),
        ("pathPrefix=src/a&order=desc".to_owned(), vec![6, 2]),
        ("pathPrefix=b&path=b.txt".to_owned(), vec![3]),
        (format!("label={label}&tool=read_file&order=desc"), vec![6, 5, 4, 3, 2]),
        ("label=own:other".to_owned(), vec![]),
        ("createdAfter=2001-01-01T00:00:00Z&tool=run.update".to_owned(), vec![7]),
        ("createdBefore=2001-01-01T00:00:00Z".to_owned(), vec![]),
    ] {
        for list in [&own, &all, &labelled] {
            let listed = items(&server.auditor(), &format!("{list}&{query}")).await;
            let seqs: Vec<_> = listed.iter().map(|record| record["seq"].as_u64().unwrap()).collect();
            assert_eq!(seqs, expected, "{list}&{query}");
        }
    }
    for (bad, name) in [
        ("order=up", "order"),
        ("actor=ada", "actor"),
        ("code=NOPE", "code"),
        ("pathPrefix=../a", "pathPrefix"),
        ("pathPrefix=", "pathPrefix"),
        ("label=x", "label"),
        ("createdAfter=x", "createdAfter"),
    ] {
        let refused = server.auditor().get(&format!("/v1/audit?{bad}")).await.refused("INVALID_REQUEST");
        assert!(refused["message"].as_str().unwrap().contains(name), "{bad}: {refused:#}");
    }
    server.auditor().get("/v1/audit/stream?order=desc").await.refused("INVALID_REQUEST");
    // The stream takes the same conditions.
    let path = format!("/v1/audit/stream?label={label}&code=POLICY_DENIED_SECRET&since=2001-01-01T00:00:00Z");
    let mut stream = server.auditor().stream(&path, None).await;
    let mut text = String::new();
    while !text.contains("\n\n") {
        let chunk = in_time("an event", stream.chunk()).await.unwrap().unwrap();
        text += &String::from_utf8_lossy(&chunk);
    }
    assert!(text.contains("POLICY_DENIED_SECRET") && text.contains("\"seq\":5"), "{text}");
}

#[rstest]
#[tokio::test]
async fn a_list_of_a_run_begins_with_any_record(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    // Records of another run are between those of this one.
    let other = server.run(json!({})).await;
    for _ in 0..3 {
        run.call("read_file", json!({"path": "a.txt"})).await.ok();
        other.call("list_dir", json!({})).await.ok();
        run.call("list_dir", json!({})).await.ok();
    }
    let own = format!("/v1/runs/{}/audit", run.id);
    for (query, expected) in [
        ("fromSeq=5", vec![5, 6, 7]),
        ("fromSeq=5&order=desc", vec![5, 4, 3, 2, 1]),
        ("fromSeq=0", vec![1, 2, 3, 4, 5, 6, 7]),
        ("fromSeq=1&order=desc", vec![1]),
        ("fromSeq=7", vec![7]),
        ("fromSeq=8", vec![]),
        ("fromSeq=8&order=desc", vec![7, 6, 5, 4, 3, 2, 1]),
        ("fromSeq=18446744073709551615", vec![]),
        ("fromSeq=3&tool=read_file", vec![4, 6]),
        ("fromSeq=5&tool=read_file&order=desc", vec![4, 2]),
    ] {
        // Pages after the first follow their cursor, with or without `fromSeq`.
        let mut seqs = Vec::new();
        let mut page = run.operator.get(&format!("{own}?limit=2&{query}")).await.ok();
        loop {
            seqs.extend(page["items"].as_array().unwrap().iter().map(|record| record["seq"].as_u64().unwrap()));
            let Some(cursor) = page["nextCursor"].as_str() else { break };
            page = run.operator.get(&format!("{own}?limit=2&{query}&cursor={cursor}")).await.ok();
        }
        assert_eq!(seqs, expected, "{query}");
    }
    for bad in ["fromSeq=x", "fromSeq=-1", "fromSeq="] {
        run.operator.get(&format!("{own}?{bad}")).await.refused("INVALID_REQUEST");
    }
    run.operator.get("/v1/audit?fromSeq=1").await.refused("INVALID_REQUEST");
}

#[rstest]
#[tokio::test]
async fn filters_and_pages_of_all_runs(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[("a.txt", "a\n"), ("b.txt", "b\n"), (".env", "A=1\n")]).await;
    let auditor = server.auditor();
    for path in ["a.txt", "b.txt", "none", ".env"] {
        run.call("read_file", json!({"path": path})).await;
    }
    run.create("new.txt", "n\n").await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    let middle = crate::harness::rfc3339(std::time::SystemTime::now());
    tokio::time::sleep(Duration::from_millis(10)).await;
    run.replace("a.txt", "c\n", &sha256("a\n")).await.ok();
    let count = async |query: &str| items(&auditor, &format!("/v1/audit?run={}&limit=2{query}", run.id)).await.len();
    for (query, want) in [
        ("", 7),
        ("&tool=run.create", 1),
        ("&tool=read_file", 4),
        ("&tool=write_file", 2),
        ("&decision=DENY", 1),
        ("&decision=ALLOW", 6),
        ("&outcome=refused", 2),
        ("&outcome=ok&tool=read_file", 2),
        ("&path=a.txt", 2),
        ("&path=new.txt", 1),
        ("&path=.env", 1),
        ("&path=none", 1),
        ("&path=none-such", 0),
    ] {
        assert_eq!(count(query).await, want, "{query}");
    }
    assert_eq!((count(&format!("&since={middle}")).await, count(&format!("&until={middle}")).await), (1, 6));
    let plus = middle.replace('Z', "%2B00:00");
    assert_eq!(count(&format!("&since={plus}")).await, 1, "the same time in another notation");
    let blank = middle.replace('Z', "+00:00");
    assert_eq!(count(&format!("&since={blank}")).await, 1, "a plus that is decoded as a blank");
    for bad in [
        "decision=maybe",
        "outcome=maybe",
        "since=yesterday",
        "limit=0",
        "limit=1001x",
        "cursor=none-such",
        "surprise=1",
        "run=a/b",
    ] {
        auditor.get(&format!("/v1/audit?{bad}")).await.refused("INVALID_REQUEST");
    }
    let all: Vec<Value> = items(&auditor, &format!("/v1/audit?run={}&limit=1", run.id)).await;
    assert_eq!(all, run.audit().await, "the pages contain each record once and in order");
    let own = items(&run.agent, &format!("/v1/runs/{}/audit?limit=4", run.id)).await;
    assert_eq!(own, all);
}

/// Returns the next event of a stream and its ID. Skips keep-alive comments.
async fn next_event(stream: &mut reqwest::Response, buffer: &mut String) -> (String, Value) {
    loop {
        if let Some(end) = buffer.find("\n\n") {
            let event: String = buffer.drain(..end + 2).collect();
            let field =
                |name: &str| event.lines().find_map(|line| line.strip_prefix(&format!("{name}:"))).map(str::trim);
            if let Some(data) = field("data") {
                assert_eq!(field("event"), Some("audit"), "{event}");
                return (field("id").expect("an id").to_owned(), serde_json::from_str(data).unwrap());
            }
            continue;
        }
        let chunk = in_time("an event", stream.chunk()).await;
        buffer.push_str(std::str::from_utf8(&chunk.unwrap().expect("an open stream")).unwrap());
    }
}

async fn events(client: &Client, run: &str, last: Option<&str>, count: usize) -> Vec<(String, Value)> {
    let mut stream = client.stream(&format!("/v1/audit/stream?run={run}"), last).await;
    assert!(stream.headers()["content-type"].to_str().unwrap().starts_with("text/event-stream"));
    let (mut buffer, mut events) = (String::new(), Vec::new());
    while events.len() < count {
        events.push(next_event(&mut stream, &mut buffer).await);
    }
    events
}

#[rstest]
#[tokio::test]
async fn the_stream_sends_each_record_once_and_resumes_without_a_gap(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (server, run) = Run::shared(backend, &[]).await;
    let auditor = server.auditor();
    let mut stream = auditor.stream(&format!("/v1/audit/stream?run={}", run.id), None).await;
    let write = async |from: usize, to: usize| {
        for number in from..to {
            run.create(&format!("{number}.txt"), "x\n").await;
        }
    };
    let other = server.run(json!({})).await;
    other.create("other.txt", "x\n").await;
    write(0, 5).await;
    let (mut buffer, mut live) = (String::new(), Vec::new());
    for _ in 0..5 {
        live.push(next_event(&mut stream, &mut buffer).await);
    }
    drop(stream);
    write(5, 10).await;
    let (resumed, ()) = tokio::join!(events(&auditor, &run.id, Some(&live[2].0), 9), write(10, 12));
    let streamed: Vec<Value> = live[..3].iter().chain(&resumed).map(|(_, record)| record.clone()).collect();
    assert_eq!(streamed, run.calls().await, "the stream began after the run was created");
    run.agent.get(&format!("/v1/audit/stream?run={}", run.id)).await.refused("FORBIDDEN");
    let bad = auditor.request(reqwest::Method::GET, "/v1/audit/stream").header("last-event-id", "none such");
    auditor.send(bad).await.refused("INVALID_REQUEST");
}

#[rstest]
#[tokio::test]
async fn concurrent_calls_leave_no_gap(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let calls = (0..60).map(|number| {
        let run = &run;
        async move {
            match number % 3 {
                0 => {
                    run.call("write_file", json!({"path": format!("{number}.txt"), "content": "x", "reason": "r"}))
                        .await
                }
                1 => run.call("read_file", json!({"path": "a.txt"})).await,
                _ => run.call("read_file", json!({"path": "../x"})).await,
            }
        }
    });
    let answers = futures_util::future::join_all(calls).await;
    let records = run.audit().await;
    assert_eq!(records.len(), 61);
    assert_chain(&run.id, &records);
    for answer in answers.iter().filter(|answer| answer.what.contains("write_file")) {
        let body = answer.ok();
        let record = &records[usize::try_from(body["seq"].as_u64().unwrap()).unwrap() - 1];
        assert_eq!(record["toolCallId"], body["toolCallId"]);
    }
}

/// Returns a stopped server whose run has seven records.
async fn stopped_with_seven_records(backend: Backend) -> (Server, Run) {
    let mut server = Server::start(backend).await;
    let run = server.run(json!({})).await;
    for number in 0..6 {
        run.create(&format!("{number}.txt"), "x\n").await;
    }
    server.run(json!({})).await.create("other.txt", "x\n").await;
    assert!(server.stop().success());
    (server, run)
}

#[rstest]
#[tokio::test]
async fn the_verify_command_succeeds_on_an_intact_log(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (server, run) = stopped_with_seven_records(backend).await;
    for args in [vec![], vec!["--run", run.id.as_str()]] {
        let done = server.verify(&args);
        assert_eq!(done.status.code(), Some(0), "{done:?}");
        assert!(String::from_utf8_lossy(&done.stdout).contains("intact"), "{done:?}");
    }
    let unknown = server.verify(&["--run", "none-such"]);
    assert!(unknown.status.code().is_some_and(|code| code > 0), "{unknown:?}");
}

#[rstest]
#[case::changed(
    "update audit_record set body = replace(body, 'write_file', 'read_file!') where seq = 3 and run_no = (select run_no from run where run_id = '{run}')"
)]
#[case::removed("delete from audit_record where seq = 4 and run_no = (select run_no from run where run_id = '{run}')")]
#[case::cut_off("delete from audit_record where seq = 7 and run_no = (select run_no from run where run_id = '{run}')")]
#[case::relabelled(
    "update audit_record set tool = 'read_file' where seq = 2 and run_no = (select run_no from run where run_id = '{run}')"
)]
#[tokio::test]
async fn verify_detects_changed_and_missing_records(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
    #[case] sql: &str,
) {
    let (mut server, run) = stopped_with_seven_records(backend).await;
    let sql = sql.replace("{run}", &run.id);
    let refused = server.database.tamper(&sql).await;
    assert!(refused.is_err(), "a trigger of the database rejects changes of records");
    server.database.drop_triggers().await;
    let rows = server.database.tamper(&sql).await.unwrap();
    assert!(rows > 0, "the statement changed no row");
    for args in [vec![], vec!["--run", run.id.as_str()]] {
        let done = server.verify(&args);
        assert_eq!(done.status.code(), Some(1), "{done:?}");
    }
    server.restart();
    let run = server.reconnect(&run);
    let report = run.verify().await;
    assert_eq!(report["intact"], false, "{report:#}");
    assert!(report["firstBreak"]["seq"].is_u64(), "{report:#}");
}

/// The filter by path also finds calls that were refused, wait for an approval, or failed.
#[rstest]
#[tokio::test]
async fn refused_calls_are_found_by_path(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "a\n"), ("yarn.lock", "a\n")]).await;
    let write = async |path: &str, expected: &str| {
        let input = json!({"path": path, "content": "x\n", "expectedSha256": expected, "reason": "test"});
        run.call("write_file", input).await.refusal()
    };
    let refusals = [
        write(".env", &sha256("a\n")).await,
        write("yarn.lock", &sha256("a\n")).await,
        write("a.txt", &sha256("b\n")).await,
        run.patch("--- /dev/null\n+++ b/id_rsa\n@@ -0,0 +1 @@\n+x\n").await.refusal(),
        run.call("read_file", json!({"path": "gone.txt"})).await.refusal(),
        run.ok("read_files", json!({"paths": ["a.txt", "b.pem"]})).await["files"]["b.pem"]["status"].to_string(),
    ];
    let asked = [".env", "yarn.lock", "a.txt", "id_rsa", "gone.txt", "b.pem"];
    for (path, refusal) in asked.into_iter().zip(refusals) {
        let found = items(&run.agent, &format!("/v1/runs/{}/audit?path={path}", run.id)).await;
        let seqs: Vec<_> = found.iter().map(|record| record["seq"].as_u64().unwrap()).collect();
        let seq = asked.iter().position(|one| *one == path).unwrap() as u64 + 2;
        assert!(seqs.contains(&seq), "{path} ({refusal}): {seqs:?}");
    }
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn the_record_of_a_read_says_what_it_asked_for(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("src/refunds.py", "one\ntwo\n"), (".env", "A=1\n")]).await;
    let secret = format!("ghp_{}", "a1".repeat(18));
    let reads = [
        ("search_text", json!({"query": "refund", "mode": "regex", "includeGlob": "*.py", "contextLines": "2"})),
        ("read_file", json!({"path": "src/refunds.py", "startLine": 2, "maxLines": 40})),
        ("find_files", json!({"glob": ["*.py", "*.pyi"], "path": "src"})),
        ("list_dir", json!({"path": "src", "maxDepth": 7})),
        ("read_file", json!({"path": ".env", "startLine": 1})),
        ("search_text", json!({"query": secret})),
        ("search_text", json!({"query": "x".repeat(5000), "path": "src"})),
        ("list_dir", json!({"surprise": [1]})),
        ("tree_stats", json!({})),
    ];
    for (tool, input) in &reads {
        let mut input = input.clone();
        input["stepId"] = json!("s1");
        run.call(tool, input).await;
    }
    let file = format!("/v1/runs/{}/files/src/refunds.py", run.id);
    let range = run.agent.request(reqwest::Method::GET, &file).header("range", "bytes=0-2");
    assert_eq!(run.agent.send(range).await.text(), "one");
    assert_eq!(run.agent.get(&format!("/v1/runs/{}/archive?since=1", run.id)).await.status, 200);
    run.create("new.txt", "n\n").await;

    let records = run.calls().await;
    let input = |index: usize| records[index]["input"].clone();
    // As the tool has taken it: a text is the only entry of a list, and a number in a text is a number.
    assert_eq!(input(0), json!({"query": "refund", "mode": "regex", "includeGlob": ["*.py"], "contextLines": 2}));
    for index in [1, 2, 3, 4] {
        assert_eq!(input(index), reads[index].1, "{:#}", records[index]);
    }
    assert!(!records[5].to_string().contains("ghp_") && input(5)["query"].is_string(), "{:#}", records[5]);
    assert_eq!((&input(6)["truncated"], &input(6)["path"]), (&json!(true), &json!("src")));
    assert!(input(6).to_string().len() <= 2048 && input(6)["query"].as_str().unwrap().starts_with("xxx"));
    assert_eq!((&records[7]["code"], input(7)), (&json!("INVALID_REQUEST"), json!({"surprise": [1]})));
    assert_eq!(input(8), Value::Null, "nothing was asked for");
    assert_eq!(input(9), json!({"path": "src/refunds.py", "range": "bytes=0-2"}));
    assert_eq!(input(10), json!({"since": 1}));
    assert_eq!(input(11), Value::Null, "the change is in its diff");

    // The same in each view of the record, and covered by the chain.
    let call = format!("/v1/runs/{}/tool-calls/{}", run.id, records[1]["toolCallId"].as_str().unwrap());
    assert_eq!(run.agent.get(&call).await.ok()["input"], reads[1].1);
    let exported =
        run.operator.get(&format!("/v1/audit/export?format=csv&tool=find_files&run={}", run.id)).await.text();
    assert!(exported.contains(r#","{""glob"":[""*.py"",""*.pyi""],""path"":""src""}","#), "{exported}");
    assert_chain(&run.id, &run.audit().await);
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn calls_are_found_by_the_name_of_a_file(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let files = [("parcelhub/refunds.py", "a\n"), ("refunds.py", "a\n"), ("old_refunds.py", "a\n"), ("b.py", "b\n")];
    let (_server, run) = Run::shared(backend, &files).await;
    for (path, _) in files {
        run.ok("read_file", json!({"path": path})).await;
    }
    let found = async |query: &str| {
        let found = items(&run.operator, &format!("/v1/audit?run={}&{query}", run.id)).await;
        found.iter().map(|record| record["pathsRead"][0].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(found("pathSuffix=refunds.py").await, ["parcelhub/refunds.py", "refunds.py", "old_refunds.py"]);
    assert_eq!(found("pathSuffix=/refunds.py").await, ["parcelhub/refunds.py", "refunds.py"], "of exactly that name");
    assert_eq!(found("pathSuffix=hub/refunds.py").await, ["parcelhub/refunds.py"]);
    assert_eq!(found("pathSuffix=.py&pathPrefix=b").await, ["b.py"]);
    assert_eq!(found("pathSuffix=none.py").await, [""; 0]);
    run.operator.get("/v1/audit?pathSuffix=a/../b").await.refused("INVALID_REQUEST");
}

/// A run is opened from what its records say of modes, so that a restart must not lose them.
#[rstest]
#[tokio::test]
async fn a_record_has_the_modes_of_the_files_that_it_wrote(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = Server::start(backend).await;
    let policy = json!({"policy": {"allowModeChange": true}});
    let run = server.run_with_files(&[("a.txt", "a\n"), ("b.txt", "b\n"), ("c.txt", "c\n")], policy).await;
    let new = "diff --git a/run.sh b/run.sh\nnew file mode 100755\n--- /dev/null\n+++ b/run.sh\n@@ -0,0 +1 @@\n+id\n";
    let changed = "diff --git a/a.txt b/a.txt\nold mode 100644\nnew mode 100755\n";
    run.patch(&format!("{new}{changed}")).await.ok();
    run.ok("move_file", json!({"from": "run.sh", "to": "bin/run", "expectedSha256": sha256("id\n"), "reason": "r"}))
        .await;
    run.replace("b.txt", "b2\n", &sha256("b\n")).await.ok();
    run.ok("delete_file", json!({"path": "a.txt", "expectedSha256": sha256("a\n"), "reason": "r"})).await;
    run.ok("read_file", json!({"path": "c.txt"})).await;
    let mut modes = Vec::new();
    for record in run.calls().await {
        for file in record["files"].as_array().unwrap() {
            let mode = |name: &str| file.get(name).map_or("", |mode| mode.as_str().unwrap()).to_owned();
            modes.push((file["path"].as_str().unwrap().to_owned(), mode("oldMode"), mode("mode")));
        }
    }
    modes.sort();
    let expected = [
        ("a.txt", "100644", "100755"),
        ("a.txt", "100755", ""),
        ("b.txt", "", "100644"),
        ("bin/run", "", "100755"),
        ("c.txt", "", ""),
        ("run.sh", "", "100755"),
        ("run.sh", "100755", ""),
    ];
    let expected = expected.map(|(path, old, new)| (path.to_owned(), old.to_owned(), new.to_owned()));
    assert_eq!(modes, expected);
    let diff = run.diff_sha256().await;
    server.until_journal_is_empty().await;
    assert!(server.stop().success());
    server.restart();
    let run = server.reconnect(&run);
    assert_eq!(run.diff_sha256().await, diff);
    run.replace("bin/run", "id -u\n", &sha256("id\n")).await.ok();
    assert_eq!(run.last_record().await["files"][0]["mode"], "100755");
    assert_eq!(run.verify().await["intact"], true);
}
