//! Approvals: bound to the change that was shown, decided once by an operator, and judged again when granted.

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Run, Server, Setup, assert_chain, members, sha256};

/// Creates a run with a pending change of its lockfile.
async fn run_with_pending_approval(backend: Backend) -> (Run, String) {
    let (_server, run) = Run::shared(backend, &[("Cargo.lock", "old\n"), ("a.txt", "a\n")]).await;
    let id = ask(&run, "ask", "old\n", "new\n").await;
    (run, id)
}

async fn ask(run: &Run, call: &str, old: &str, new: &str) -> String {
    let input =
        json!({"toolCallId": call, "path": "Cargo.lock", "content": new, "expectedSha256": sha256(old), "reason": "r"});
    let answer = run.call("write_file", input).await.refused("APPROVAL_REQUIRED");
    answer["approvalId"].as_str().unwrap().to_owned()
}

async fn decide(run: &Run, id: &str, verb: &str) -> Answer {
    run.operator.post(&format!("/v1/approvals/{id}/{verb}"), json!({"decidedBy": "ada", "note": "seen"})).await
}

async fn state(run: &Run, id: &str) -> Value {
    run.operator.get(&format!("/v1/approvals/{id}")).await.ok()
}

#[rstest]
#[tokio::test]
async fn lists_of_approvals_have_no_diffs_and_the_single_approval_has(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (run, id) = run_with_pending_approval(backend).await;
    for query in ["", "&state=pending", "&order=desc", "&limit=1"] {
        let page = run.operator.get(&format!("/v1/approvals?run={}{query}", run.id)).await.ok();
        let listed = &page["items"][0];
        assert_eq!((&listed["approvalId"], listed.get("diff")), (&json!(id), None), "{query}: {page:#}");
        assert_eq!(listed["files"][0]["path"], "Cargo.lock");
    }
    assert!(state(&run, &id).await["diff"].as_str().unwrap().contains("+new\n"));
    let denied = decide(&run, &id, "deny").await.ok();
    assert!(denied["diff"].as_str().unwrap().contains("+new\n"));
}

#[rstest]
#[tokio::test]
async fn an_approved_change_is_applied_as_shown(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (run, id) = run_with_pending_approval(backend).await;
    run.agent.post(&format!("/v1/approvals/{id}/approve"), json!({"decidedBy": "me"})).await.refused("FORBIDDEN");
    assert_eq!(run.on_disk("Cargo.lock"), "old\n");
    let decided = decide(&run, &id, "approve").await.ok();
    assert_eq!(run.on_disk("Cargo.lock"), "new\n");
    let newest = run.last_record().await;
    assert_eq!((&decided["seq"], &decided["headHash"]), (&newest["seq"], &newest["hash"]), "{decided:#}");
    assert_eq!((&newest["outcome"], &decided["state"]), (&json!("ok"), &json!("approved")));
    let approval = state(&run, &id).await;
    assert_eq!(
        members(&approval, &["state", "decidedBy", "onBehalfOf", "note", "approvedBy"]),
        json!({"state": "approved", "decidedBy": "operator", "onBehalfOf": "ada", "note": "seen", "approvedBy": ["operator"]})
    );
    assert_eq!(
        (&newest["actor"], newest["reasons"].as_array().unwrap().last()),
        (&json!("operator:orchestrate"), Some(&json!("onBehalfOf:ada")))
    );
    assert_eq!(run.get().await["state"], "open");
    let call = run.agent.get(&format!("/v1/runs/{}/tool-calls/ask", run.id)).await.ok();
    assert!(call.to_string().contains(&sha256("new\n")), "the record lacks the new hash: {call:#}");
    let records = run.audit().await;
    assert_chain(&run.id, &records);
    let done =
        records.iter().find(|record| record["outcome"] == "ok" && record["pathsWritten"] == json!(["Cargo.lock"]));
    assert!(done.is_some_and(|record| !record["artifactUris"].as_array().unwrap().is_empty()), "{records:#?}");
}

#[rstest]
#[tokio::test]
async fn a_denied_change_is_not_applied(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (run, id) = run_with_pending_approval(backend).await;
    let decided = decide(&run, &id, "deny").await.ok();
    let newest = run.last_record().await;
    assert_eq!((&decided["seq"], &decided["headHash"]), (&newest["seq"], &newest["hash"]), "{decided:#}");
    assert_eq!(newest["outcome"], "refused");
    assert_eq!(newest["reasons"], json!([format!("approval:{id}:denied"), "onBehalfOf:ada"]));
    assert_eq!(state(&run, &id).await["state"], "denied");
    assert_eq!(state(&run, &id).await.get("seq"), None, "only the answer to the decision contains its record");
    assert_eq!(run.on_disk("Cargo.lock"), "old\n");
    assert_eq!(run.get().await["state"], "open");
    for verb in ["approve", "deny"] {
        let again = decide(&run, &id, verb).await;
        assert!((400..500).contains(&again.status), "{}", again.text());
    }
    assert_eq!(run.on_disk("Cargo.lock"), "old\n", "the change was applied after its denial");
}

#[rstest]
#[tokio::test]
async fn an_approval_fails_if_the_file_has_changed(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (run, id) = run_with_pending_approval(backend).await;
    run.put("Cargo.lock", "changed meanwhile\n");
    let answer = decide(&run, &id, "approve").await;
    assert_eq!(run.on_disk("Cargo.lock"), "changed meanwhile\n", "{}", answer.text());
    let newest = run.last_record().await;
    assert_eq!((&answer.ok()["seq"], &answer.ok()["headHash"]), (&newest["seq"], &newest["hash"]));
    assert_eq!(state(&run, &id).await["state"], "failed");
    let call = run.agent.get(&format!("/v1/runs/{}/tool-calls/ask", run.id)).await.ok();
    assert!(call.to_string().contains("WRITE_CONFLICT"), "{call:#}");
}

#[rstest]
#[tokio::test]
async fn concurrent_decisions_take_effect_once(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    for _ in 0..5 {
        let (run, id) = run_with_pending_approval(backend).await;
        let verbs = ["approve", "deny", "approve", "deny"];
        let answers = futures_util::future::join_all(verbs.map(|verb| decide(&run, &id, verb))).await;
        assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 1);
        let approved = state(&run, &id).await["state"] == "approved";
        assert_eq!(run.on_disk("Cargo.lock"), if approved { "new\n" } else { "old\n" });
    }
}

#[rstest]
#[tokio::test]
async fn an_approval_of_a_closed_run_changes_nothing(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (run, id) = run_with_pending_approval(backend).await;
    run.operator.post(&format!("/v1/runs/{}/close", run.id), json!({})).await.ok();
    let answer = decide(&run, &id, "approve").await;
    assert!((400..500).contains(&answer.status), "{}", answer.text());
    assert_eq!(run.on_disk("Cargo.lock"), "old\n");
    assert_eq!(run.get().await["state"], "closed");
}

#[rstest]
#[tokio::test]
async fn closing_or_deleting_a_run_ends_its_approvals(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
    #[values("closed", "deleted")] ended: &str,
) {
    let (run, id) = run_with_pending_approval(backend).await;
    let second = ask(&run, "ask-2", "old\n", "2\n").await;
    decide(&run, &second, "deny").await.ok();
    let batch = json!({"atomic": true, "calls": [
        {"tool": "write_file", "input": {"path": "b.txt", "content": "b\n", "reason": "r", "toolCallId": "b1"}},
        {"tool": "write_file", "input": {"path": "Cargo.lock", "content": "3\n", "expectedSha256": sha256("old\n"), "reason": "r", "toolCallId": "b2"}},
    ]});
    run.agent.post(&format!("/v1/runs/{}/batch", run.id), batch).await;
    let before = run.get().await;
    assert_eq!((&before["state"], &before["counts"]["pendingApprovals"]), (&json!("awaiting_approval"), &json!(2)));
    let path = format!("/v1/runs/{}", run.id);
    let end = async || match ended {
        "closed" => run.operator.post(&format!("{path}/close"), json!({})).await.ok(),
        _ => run.operator.delete(&path).await.ok(),
    };
    end().await;
    let after = run.get().await;
    assert_eq!((&after["state"], &after["counts"]["pendingApprovals"]), (&json!(ended), &json!(0)));
    let pending = format!("/v1/approvals?state=pending&run={}", run.id);
    assert_eq!(run.operator.get(&pending).await.ok()["items"], json!([]));
    let approval = state(&run, &id).await;
    assert_eq!((&approval["state"], approval.get("decidedBy")), (&json!("failed"), None), "{approval:#}");
    assert_eq!(state(&run, &second).await["state"], "denied", "an earlier decision changed");
    assert!((400..500).contains(&decide(&run, &id, "approve").await.status));
    let records = run.audit().await;
    assert_chain(&run.id, &records);
    for call in ["ask", "b1", "b2"] {
        let record = records.iter().rfind(|record| record["toolCallId"] == call).unwrap();
        assert_eq!((&record["outcome"], &record["code"]), (&json!("refused"), &json!("RUN_CLOSED")), "{record:#}");
        assert_eq!((&record["actor"], &record["pathsWritten"]), (&json!("service"), &json!([])));
    }
    let ask = records.iter().rfind(|record| record["toolCallId"] == "ask").unwrap();
    assert_eq!(ask["reasons"], json!([format!("approval:{id}:failed")]));
    // The second close or deletion leaves no records.
    end().await;
    assert_eq!(run.audit().await.len(), records.len());
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn a_dry_run_reports_a_required_approval_and_creates_none(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (_server, run) = Run::shared(backend, &[("Cargo.lock", "old\n")]).await;
    let input = json!({"path": "Cargo.lock", "content": "new\n", "expectedSha256": sha256("old\n"), "reason": "r", "dryRun": true});
    let refused = run.call("write_file", input.clone()).await.refused("APPROVAL_REQUIRED");
    let batch = json!({"atomic": true, "calls": [{"tool": "write_file", "input": input}]});
    let batch = run.agent.post(&format!("/v1/runs/{}/batch", run.id), batch).await.json();
    for refused in [&refused, &batch["results"][0]["answer"]] {
        assert_eq!(refused["code"], "APPROVAL_REQUIRED", "{refused:#}");
        assert!(refused.get("approvalId").is_none(), "{refused:#}");
        assert!(refused["message"].as_str().unwrap().contains("no approval was requested"), "{refused:#}");
        assert!(refused["hint"].as_str().unwrap().contains("without dryRun"), "{refused:#}");
    }
    assert_eq!(run.operator.get(&format!("/v1/approvals?run={}", run.id)).await.ok()["items"], json!([]));
    assert_eq!(run.get().await["state"], "open");
}

#[rstest]
#[tokio::test]
async fn a_decision_requires_a_valid_decider(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (run, id) = run_with_pending_approval(backend).await;
    for bad in [
        json!({}),
        json!({"decidedBy": ""}),
        json!({"decidedBy": "a", "surprise": 1}),
        json!({"decidedBy": 1}),
        json!({"decidedBy": "a", "onBehalfOf": "a"}),
        json!({"onBehalfOf": ""}),
        json!({"onBehalfOf": "a".repeat(201)}),
        json!({"onBehalfOf": "a\u{7}b"}),
    ] {
        run.operator.post(&format!("/v1/approvals/{id}/approve"), bad).await.refused("INVALID_REQUEST");
    }
    run.operator.post("/v1/approvals/none-such/approve", json!({"decidedBy": "a"})).await.refused("NOT_FOUND");
    assert_eq!(state(&run, &id).await["state"], "pending");
    let (second, third) = (ask(&run, "ask-2", "old\n", "2\n").await, ask(&run, "ask-3", "old\n", "3\n").await);
    let path = format!("/v1/approvals?state=pending&limit=1&run={}", run.id);
    if run.operator.get(&path).await.status == 200 {
        let listed = crate::harness::items(&run.operator, &path).await;
        let ids: Vec<_> = listed.iter().map(|approval| approval["approvalId"].as_str().unwrap()).collect();
        assert_eq!(ids, [&id, &second, &third]);
    }
    decide(&run, &second, "deny").await.ok();
    assert_eq!(run.get().await["state"], "awaiting_approval", "other approvals are pending");
}

#[rstest]
#[tokio::test]
async fn an_undecided_approval_expires_with_a_record(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut server = Server::start(backend).await;
    let run = server.run_with_files(&[("Cargo.lock", "old\n")], json!({})).await;
    let id = ask(&run, "ask", "old\n", "new\n").await;
    server.kill();
    server.database.tamper("update approval set expires_at = '2001-01-01T00:00:00.000000Z'").await.unwrap();
    server.restart();
    let run = server.reconnect(&run);
    let call = run.agent.get(&format!("/v1/runs/{}/tool-calls/ask?waitSeconds=60", run.id)).await.ok();
    assert_eq!((&call["outcome"], &call["code"]), (&json!("refused"), &json!("APPROVAL_REQUIRED")), "{call:#}");
    assert_eq!((&call["actor"], &call["pathsWritten"]), (&json!("service"), &json!([])));
    assert_eq!(call["reasons"], json!([format!("approval:{id}:expired")]));
    let expired = state(&run, &id).await;
    assert_eq!((&expired["state"], expired.get("decidedBy")), (&json!("expired"), None), "{expired:#}");
    assert!((400..500).contains(&decide(&run, &id, "approve").await.status));
    assert_eq!((run.on_disk("Cargo.lock"), run.get().await["state"].clone()), ("old\n".into(), json!("open")));
    assert_chain(&run.id, &run.audit().await);
    let records = run.calls().await;
    assert_eq!(records.len(), 2, "{records:#?}");
}

#[rstest]
#[tokio::test]
async fn an_approval_that_expires_while_it_is_executed_changes_nothing(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (mut server, armed) = Server::start_armed(Setup::new(backend)).await;
    server.kill();
    let clock = server.add_clock();
    server.restart();
    let run = server.run_with_files(&[("Cargo.lock", "old\n")], json!({})).await;
    let id = ask(&run, "ask", "old\n", "new\n").await;
    let expiry: jiff::Timestamp = state(&run, &id).await["expiresAt"].as_str().unwrap().parse().unwrap();
    std::fs::write(&armed, "transaction.staged:1:pause").unwrap();
    let approving = {
        let (run, id) = (run.clone(), id.clone());
        tokio::spawn(async move { decide(&run, &id, "approve").await })
    };
    server.until_paused(&armed).await;
    let seconds = expiry.duration_since(jiff::Timestamp::now()).as_secs() + 1;
    std::fs::write(&clock, seconds.to_string()).unwrap();
    assert_eq!(state(&run, &id).await["state"], "expired", "callers see it as expired");
    std::fs::remove_file(&armed).unwrap();
    approving.await.unwrap().refused("ALREADY_EXISTS");
    assert_eq!(
        (state(&run, &id).await["state"].clone(), run.on_disk("Cargo.lock")),
        (json!("expired"), "old\n".into())
    );
    assert_chain(&run.id, &run.audit().await);
}

#[rstest]
#[tokio::test]
async fn a_decider_may_not_have_the_name_of_an_actor_of_the_service(#[values(Backend::Sqlite)] backend: Backend) {
    let (run, id) = run_with_pending_approval(backend).await;
    let token = run.created["token"]["tokenId"].as_str().unwrap();
    let bad = [
        "",
        "  ",
        &"a".repeat(129),
        "a\u{7}b",
        "a\u{202e}b",
        "a\u{2066}b",
        "a\u{2028}b",
        "operator:orchestrate",
        "Operator:root",
        " operator : x",
        "\u{ff4f}perator\u{ff1a}x",
        "\u{43e}perator:x",
        "operator\u{a789}x",
        "oper\u{200b}ator:x",
        &format!("run-token:{token}"),
        "RUN-TOKEN:x",
        "run\u{2010}token:x",
        "run token: x",
        "service",
        "Service",
        "operator",
        "0perator:x",
        "operator;x",
        "operator\u{205a}x",
        "operator\u{a4fd}x",
        "operator\u{1361}x",
        "orchestrate",
        "Audit",
        "repair",
    ];
    for name in bad {
        for verb in ["approve", "deny"] {
            let answer = run.operator.post(&format!("/v1/approvals/{id}/{verb}"), json!({"decidedBy": name})).await;
            assert_eq!(answer.refusal(), "INVALID_REQUEST", "{name:?}");
        }
    }
    assert_eq!(state(&run, &id).await["state"], "pending");
    for (at, name) in
        ["ada@example.org", "the operator on duty", "oidc:ada", "Ünal Ö. (service desk)", "repair shop", "Audit: Ada"]
            .into_iter()
            .enumerate()
    {
        let id = ask(&run, &format!("good-{at}"), "old\n", &format!("{at}\n")).await;
        let body = json!({"decidedBy": name});
        assert_eq!(run.operator.post(&format!("/v1/approvals/{id}/deny"), body).await.ok()["onBehalfOf"], name);
    }
}

#[rstest]
#[tokio::test]
async fn a_pending_approval_says_whether_its_files_still_are_as_expected(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (run, id) = run_with_pending_approval(backend).await;
    let (old, other) = (sha256("old\n"), sha256("changed meanwhile\n"));
    let present = async |run: &Run| state(run, &id).await["present"].clone();
    let expected = json!([{"path": "Cargo.lock", "exists": true, "sha256": old, "isExpected": true}]);
    assert_eq!(present(&run).await, expected);
    run.put("Cargo.lock", "changed meanwhile\n");
    let expected = json!([{"path": "Cargo.lock", "exists": true, "sha256": other, "isExpected": false}]);
    assert_eq!(present(&run).await, expected);
    let create = json!({"path": "yarn.lock", "content": "new\n", "reason": "r"});
    let asked = run.call("write_file", create).await.refused("APPROVAL_REQUIRED");
    let created = async || state(&run, asked["approvalId"].as_str().unwrap()).await["present"].clone();
    assert_eq!(created().await, json!([{"path": "yarn.lock", "exists": false, "isExpected": true}]));
    run.put("yarn.lock", "old\n");
    let expected = json!([{"path": "yarn.lock", "exists": true, "sha256": old, "isExpected": false}]);
    assert_eq!(created().await, expected);
    let listed = run.operator.get(&format!("/v1/approvals?run={}", run.id)).await.ok();
    assert_eq!(listed["items"][0].get("present"), None, "{listed:#}");
    decide(&run, &id, "deny").await.ok();
    assert_eq!(state(&run, &id).await.get("present"), None);
}

/// Who decides needs more of a file than the lines around the change, and no other file.
#[rstest]
#[tokio::test]
async fn who_decides_reads_the_file_that_the_diff_is_against(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (run, id) = run_with_pending_approval(backend).await;
    let name = format!("reviewer-{}", run.id);
    let created = run.operator.post("/v1/operators", json!({"name": name, "scopes": ["approve"]})).await.is(201);
    let reviewer = run.operator.with_token(created["token"].as_str());
    let file = |query: &str| format!("/v1/approvals/{id}/file?path={query}");
    let lines = reviewer.get(&file("Cargo.lock")).await.ok();
    assert_eq!(
        (&lines["content"], &lines["totalLines"], &lines["truncated"]),
        (&json!("old\n"), &json!(1), &json!(false))
    );
    let record = run.last_record().await;
    assert_eq!(
        (&record["tool"], &record["by"], &record["actor"], &record["pathsRead"]),
        (&json!("read_file"), &json!("operator"), &json!(format!("operator:{name}")), &json!(["Cargo.lock"]))
    );
    // Of the version that the call expects, whatever has become of the file.
    decide(&run, &id, "approve").await.ok();
    assert_eq!(run.on_disk("Cargo.lock"), "new\n");
    assert_eq!(reviewer.get(&file("Cargo.lock&startLine=1&maxLines=5")).await.ok()["content"], "old\n");

    for other in ["a.txt", ".env", "../a", ""] {
        reviewer.get(&file(other)).await.refused("NOT_FOUND");
    }
    reviewer.get("/v1/approvals/apr_none/file?path=a").await.refused("NOT_FOUND");
    reviewer.get(&file("Cargo.lock&startLine=0")).await.refused("INVALID_REQUEST");
    reviewer.get(&file("Cargo.lock&atSeq=1")).await.refused("INVALID_REQUEST");
    run.agent.get(&file("Cargo.lock")).await.refused("FORBIDDEN");
}
