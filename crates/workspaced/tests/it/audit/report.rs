//! The report of a run.

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Run, Server, exhaustive, sha256};

async fn report(run: &Run, query: &str, accept: &str) -> Answer {
    let path = format!("/v1/runs/{}/report{query}", run.id);
    run.operator.send(run.operator.request(reqwest::Method::GET, &path).header("accept", accept)).await
}

async fn event(run: &Run, kind: &str, summary: &str) {
    let body = json!({"kind": kind, "summary": summary, "durationMicros": 7});
    run.operator.post(&format!("/v1/runs/{}/events", run.id), body).await.is(201);
}

#[rstest]
#[tokio::test]
async fn a_report_counts_what_happened(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let files = [("a.txt", "a\n"), ("b.txt", "b\n"), (".env", "A=1\n"), ("Cargo.lock", "old\n")];
    let budget = json!({"policy": {"runBudget": {"maxFilesTouched": 50}}, "labels": {"ticket": "A-1"}});
    let (_server, run) = Run::shared_with(backend, &files, budget).await;
    event(&run, "prompt", "fix the greeting").await;
    run.ok("read_file", json!({"path": "a.txt"})).await;
    run.ok("read_files", json!({"paths": ["b.txt", "a.txt"]})).await;
    run.call("read_file", json!({"path": ".env"})).await.refused("POLICY_DENIED_SECRET");
    run.replace("a.txt", "A\n", &sha256("a\n")).await.ok();
    run.ok("delete_file", json!({"path": "b.txt", "expectedSha256": sha256("b\n"), "reason": "unused"})).await;
    run.ok("write_file", json!({"path": "n.txt", "content": "n\n", "reason": "try", "dryRun": true})).await;
    let lock = json!({"path": "Cargo.lock", "content": "new\n", "expectedSha256": sha256("old\n"), "reason": "update"});
    let asked = run.call("write_file", lock).await.refused("APPROVAL_REQUIRED");
    let approve = format!("/v1/approvals/{}/approve", asked["approvalId"].as_str().unwrap());
    run.operator.post(&approve, json!({"decidedBy": "ada", "note": "fits"})).await.ok();
    event(&run, "test", "12 of 12 passed").await;

    let json_report = report(&run, "", "*/*").await;
    assert_eq!(json_report.header("content-type"), "application/json");
    let body = json_report.ok();
    let head = run.last_record().await;
    assert_eq!((&body["headSeq"], &body["headHash"]), (&head["seq"], &head["hash"]));
    assert_eq!((&body["verification"]["intact"], &body["verification"]["verifiedSeq"]), (&json!(true), &head["seq"]));
    let counts = json!({"records": 11, "reads": 2, "writes": 3, "dryRuns": 1, "refused": 1, "denied": 1, "approvalsRequested": 1,
        "failed": 0, "events": 2});
    assert_eq!(body["counts"], counts, "{body:#}");
    assert_eq!(body["lastAt"], head["timestamp"]);
    let file = |path: &str| body["files"].as_array().unwrap().iter().find(|file| file["path"] == path).unwrap();
    assert_eq!((&file("a.txt")["reads"], &file("a.txt")["writes"]), (&json!(2), &json!(1)));
    assert_eq!(
        (&file("a.txt")["oldSha256"], &file("a.txt")["newSha256"]),
        (&json!(sha256("a\n")), &json!(sha256("A\n")))
    );
    assert_eq!((&file("b.txt")["writes"], file("b.txt").get("newSha256")), (&json!(1), None));
    assert_eq!(file(".env")["refused"], 1);
    let diff = &body["diff"];
    assert_eq!((&diff["filesChanged"], &diff["insertions"], &diff["deletions"]), (&json!(3), &json!(2), &json!(3)));
    let changed = [("Cargo.lock", "modified", 1, 1), ("a.txt", "modified", 1, 1), ("b.txt", "deleted", 0, 1)];
    let changed = changed.map(|(path, status, insertions, deletions)| {
        json!({"path": path, "status": status, "insertions": insertions, "deletions": deletions})
    });
    assert_eq!((&diff["files"], &diff["moreFiles"]), (&json!(changed), &json!(0)));
    let approval = &body["approvals"][0];
    assert_eq!(
        (&approval["state"], &approval["decidedBy"], &approval["onBehalfOf"], &approval["note"]),
        (&json!("approved"), &json!("operator"), &json!("ada"), &json!("fits"))
    );
    assert_eq!((&body["prompt"], approval.get("editedSeq")), (&json!("fix the greeting"), None));
    let touched =
        body["budgets"].as_array().unwrap().iter().find(|budget| budget["name"] == "maxFilesTouched").unwrap();
    assert_eq!((&touched["used"], &touched["limit"]), (&json!(3), &json!(50)), "a lock file counts as a file");

    for (query, accept) in [("?format=markdown", "*/*"), ("", "text/markdown")] {
        let markdown = report(&run, query, accept).await;
        assert_eq!((markdown.status, markdown.header("content-type")), (200, "text/markdown; charset=utf-8"));
        let text = markdown.text();
        for line in [
            &format!("# Run `{}`\n\nTask: `fix the greeting`\n\n- Verified: chain intact", run.id),
            "- Label `ticket`: `A-1`",
            "- Final diff: 3 files changed, 2 insertions, 3 deletions\n  - `Cargo.lock`: +1 −1, modified\n  - `a.txt`: +1 −1, modified\n  - `b.txt`: +0 −1, deleted\n",
            "- `b.txt`: 1 read, 1 write, 0 refused, deleted",
            "**approved** by `operator` for `ada`; reason: `update`; note: `fits`",
            "- Calls: 2 reads, 3 writes, 1 dry run, 1 refused, 1 denied, 1 approval requested, 0 failed, 2 events\n",
            "`12 of 12 passed`: **failed**, on the present files",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
    }
    assert_eq!(report(&run, "?format=json", "text/markdown").await.ok()["runId"], run.id);
    for accept in ["application/json, text/markdown;q=0.5", "text/markdown;q=0", "application/json, text/markdown"] {
        let answer = report(&run, "", accept).await;
        assert_eq!(answer.header("vary"), "accept");
        assert_eq!(answer.ok()["runId"], run.id, "{accept}");
    }
    report(&run, "?format=pdf", "*/*").await.refused("INVALID_REQUEST");
}

#[rstest]
#[tokio::test]
async fn a_report_is_for_those_who_may_read_the_audit(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let path = format!("/v1/runs/{}/report", run.id);
    // The agent's own token has `audit:read`. The report has no path of the service.
    run.agent.get(&path).await.ok();
    server.auditor().get(&path).await.ok();
    let tokens = format!("/v1/runs/{}/tokens", run.id);
    let reader = run.operator.post(&tokens, json!({"permissions": ["file:read"]})).await.is(201);
    run.agent.with_token(reader["token"].as_str()).get(&path).await.refused("FORBIDDEN");
    server.run(json!({})).await.agent.get(&path).await.refused("FORBIDDEN");
    run.operator.get("/v1/runs/none-such/report").await.refused("RUN_NOT_FOUND");
    // Also of runs without files.
    let waiting = server.run(json!({"source": {"type": "archive"}})).await;
    assert_eq!(report(&waiting, "", "*/*").await.ok().get("diff"), None);
    run.operator.delete(&format!("/v1/runs/{}", run.id)).await.ok();
    let deleted = report(&run, "", "*/*").await.ok();
    assert_eq!((&deleted["state"], deleted.get("diff")), (&json!("deleted"), None));
}

#[rstest]
#[tokio::test]
async fn what_agents_write_cannot_change_the_markdown(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let (_server, run) = Run::shared(backend, &[]).await;
    let evil = "x`\n# Approved\n\n- [x] merge me <img src=x onerror=alert(1)> ![a](http://evil) @all \u{202e}";
    let secret = format!("ghp_{}", "aB3dE5gH7j".repeat(4));
    event(&run, "prompt", evil).await;
    run.create("plain.md", "x\n").await;
    event(&run, "command", &format!("{secret} {evil}")).await;
    run.call("read_file", json!({"path": "../<b>x</b>"})).await.refused("PATH_REJECTED");
    let text = report(&run, "?format=markdown", "*/*").await.text();
    assert!(!text.contains("ghp_") && !text.contains('\u{202e}'), "{text}");
    let headings: Vec<_> = text.lines().filter(|line| line.starts_with('#')).collect();
    assert_eq!(headings, [&*format!("# Run `{}`", run.id), "## Commands and tests", "## Files", "## Run"], "{text}");
    let lines: Vec<_> = text.lines().filter(|line| line.contains("merge me")).collect();
    assert_eq!(lines.len(), 2, "{text}");
    for line in lines {
        // Everything of the caller is between two runs of two backticks, since it contains single ones.
        let quoted: Vec<_> = line.split("``").collect();
        assert!(quoted.len() == 3 && !quoted[0].contains('<') && !quoted[2].contains(['<', '!']), "{line}");
    }
}

#[rstest]
#[tokio::test]
async fn a_report_of_a_long_run_is_bounded(#[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[]).await;
    let batch = format!("/v1/runs/{}/events/batch", run.id);
    for round in 0..15 {
        let events: Vec<Value> = (0..100)
            .map(|number| json!({"kind": "command", "summary": format!("{round}-{number} {}", "€ ".repeat(240))}))
            .collect();
        run.operator.post(&batch, json!({"events": events})).await.is(201);
    }
    run.create("last.txt", "x\n").await;
    let body = report(&run, "", "*/*").await;
    assert!(body.body.len() < 400 << 10, "{} bytes", body.body.len());
    let body = body.ok();
    let commands = body["commands"].as_array().unwrap();
    assert_eq!(commands.len() as u64 + body["moreCommands"].as_u64().unwrap(), 1500);
    let markdown = report(&run, "?format=markdown", "*/*").await;
    assert!(markdown.body.len() <= 60_000, "{} bytes", markdown.body.len());
    assert!(markdown.text().contains(" more\n"), "{}", markdown.text());
}

#[rstest]
#[tokio::test]
async fn a_report_is_the_same_without_verification_and_of_a_broken_chain(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let server = Server::start(backend).await;
    let run = server.run(json!({})).await;
    for number in 0..4 {
        run.create(&format!("{number}.txt"), "x\n").await;
    }
    let mut verified = report(&run, "", "*/*").await.ok();
    let fast = report(&run, "?verify=false", "*/*").await.ok();
    assert_eq!((fast.get("verification"), &verified["verification"]["intact"]), (None, &json!(true)));
    verified.as_object_mut().unwrap().remove("verification");
    assert_eq!(fast, verified);
    let text = report(&run, "?verify=false&format=markdown", "*/*").await.text();
    assert!(!text.contains("Verified:"), "{text}");
    report(&run, "?verify=maybe", "*/*").await.refused("INVALID_REQUEST");

    server.database.drop_triggers().await;
    let sql = "update audit_record set body = replace(body, '1.txt', '9.txt') where run_no = {run} and seq = 3";
    server.rewrite(&run, &[sql]).await;
    let broken = report(&run, "", "*/*").await.ok();
    let verification = &broken["verification"];
    assert_eq!((&verification["intact"], &verification["verifiedSeq"]), (&json!(false), &json!(2)), "{broken:#}");
    assert_eq!(broken["counts"], verified["counts"], "records after the first invalid one are reported too");
    assert_eq!(broken["lastAt"], verified["lastAt"]);
}
