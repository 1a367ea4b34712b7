//! Files that something else than a call of the run has changed: no call builds on such a change before it is recorded.

use std::os::unix::fs::PermissionsExt as _;

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Run, Server, Setup, exhaustive, sha256};
use crate::operation::replay_and_repair::{assert_ends, offline, put};

const BEFORE: &str = "one\ntwo\n";
const OUTSIDE: &str = "one\ntwo\nfrom outside\n";

/// A run with a file that a call has written, and one of the base, both changed from outside.
async fn changed_run(backend: Backend, extra: Value) -> (std::sync::Arc<Server>, Run) {
    let (server, run) = Run::shared_with(backend, &[("base.py", BEFORE), ("same.py", BEFORE)], extra).await;
    run.create("a.py", BEFORE).await;
    run.put("a.py", OUTSIDE);
    run.put("base.py", OUTSIDE);
    (server, run)
}

async fn drift(run: &Run) -> Vec<String> {
    let report = run.operator.get(&format!("/v1/runs/{}/drift", run.id)).await.ok();
    report["items"].as_array().unwrap().iter().map(|item| format!("{} {}", item["change"], item["path"])).collect()
}

async fn settle(run: &Run, body: Value) -> Value {
    run.operator.post(&format!("/v1/runs/{}/drift", run.id), body).await.ok()
}

#[rstest]
#[tokio::test]
async fn no_mutation_builds_on_a_change_from_outside(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = changed_run(backend, json!({})).await;
    let made = run.create("b.py", "b\n").await;
    run.put("b.py", "B\n");
    let hash = sha256(OUTSIDE);
    let patch = "--- a/a.py\n+++ b/a.py\n@@ -1,3 +1,3 @@\n-one\n+1\n two\n from outside\n";
    let mutations = [
        ("write_file", json!({"path": "a.py", "content": "new\n", "expectedSha256": hash})),
        ("write_file", json!({"path": "base.py", "content": "new\n", "expectedSha256": hash})),
        ("edit_file", json!({"path": "a.py", "oldString": "two", "newString": "2"})),
        ("edit_file", json!({"path": "base.py", "oldString": "two", "newString": "2"})),
        (
            "replace_range",
            json!({"path": "a.py", "startLine": 1, "endLine": 1, "content": "1\n", "expectedSha256": hash}),
        ),
        ("apply_patch", json!({"patch": patch})),
        ("delete_file", json!({"path": "a.py", "expectedSha256": hash})),
        ("move_file", json!({"from": "a.py", "to": "c.py", "expectedSha256": hash})),
    ];
    for (tool, mut input) in mutations {
        input["reason"] = json!("r");
        for dry_run in [true, false] {
            input["dryRun"] = json!(dry_run);
            let refusal = run.call(tool, input.clone()).await.refused("CHANGED_OUTSIDE");
            assert_eq!(refusal["status"], 409, "{tool}: {refusal:#}");
            assert_eq!(
                (&refusal["knownSha256"], &refusal["currentSha256"]),
                (&json!(sha256(BEFORE)), &json!(hash)),
                "{tool}"
            );
            assert_eq!(
                refusal["path"],
                input.get("path").or(input.get("from")).unwrap_or(&json!("a.py")).clone(),
                "{tool}"
            );
        }
    }
    // What the caller expects is checked first, and a later call than the one to be undone has changed the file.
    run.replace("a.py", "new\n", &sha256(BEFORE)).await.refused("WRITE_CONFLICT");
    run.call("revert_calls", json!({"toolCallIds": [made["toolCallId"]], "reason": "r"}))
        .await
        .refused("REVERT_CONFLICT");

    let path = format!("/v1/runs/{}/files/a.py", run.id);
    for method in [Method::PUT, Method::DELETE] {
        let request =
            run.agent.request(method, &path).header("x-reason", "r").header("if-match", format!("\"{hash}\""));
        let refusal = run.agent.send(request.body("new\n")).await.refusal();
        assert_eq!(refusal, "CHANGED_OUTSIDE");
    }
    let calls = json!([
        {"tool": "write_file", "input": {"path": "n.py", "content": "n\n", "reason": "r"}},
        {"tool": "edit_file", "input": {"path": "a.py", "oldString": "two", "newString": "2", "reason": "r"}},
    ]);
    let answer = run.batch(calls).await;
    assert!(answer.text().contains("CHANGED_OUTSIDE"), "{}", answer.text());
    assert_eq!([run.on_disk("a.py"), run.on_disk("base.py")], [OUTSIDE, OUTSIDE]);
    assert!(!run.repo.join("n.py").exists());
    let record = run.audit().await.into_iter().rfind(|record| record["code"] == "CHANGED_OUTSIDE").unwrap();
    assert_eq!((&record["outcome"], &record["decision"]), (&json!("refused"), &json!("ALLOW")), "{record:#}");
    // Other files are not concerned.
    run.edit("same.py", "two", "2", json!({})).await.ok();
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn files_that_appear_or_disappear_outside_are_not_built_on(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("base.py", BEFORE)]).await;
    run.create("a.py", BEFORE).await;
    run.put("new.py", "new\n");
    let refusal = run.edit("new.py", "new", "2", json!({})).await.refused("CHANGED_OUTSIDE");
    assert_eq!((refusal.get("knownSha256"), &refusal["currentSha256"]), (None, &json!(sha256("new\n"))));
    std::fs::remove_file(run.repo.join("a.py")).unwrap();
    let input = json!({"path": "a.py", "content": "x\n", "reason": "r"});
    let refusal = run.call("write_file", input).await.refused("CHANGED_OUTSIDE");
    assert_eq!((refusal.get("currentSha256"), &refusal["knownSha256"]), (None, &json!(sha256(BEFORE))));
    // Where the run's own version is gone, there is that of the base.
    run.replace("base.py", "own\n", &sha256(BEFORE)).await.ok();
    std::fs::remove_file(run.repo.join("base.py")).unwrap();
    let refusal = run.edit("base.py", "two", "2", json!({})).await.refused("CHANGED_OUTSIDE");
    let hashes = (json!(sha256(BEFORE)), json!(sha256("own\n")));
    assert_eq!((&refusal["currentSha256"], &refusal["knownSha256"]), (&hashes.0, &hashes.1));
    run.put("a.py", BEFORE);
    run.edit("a.py", "two", "2", json!({})).await.ok();
}

#[rstest]
#[tokio::test]
async fn what_is_known_survives_a_restart_and_has_modes(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
) {
    let mut server = Server::start(backend).await;
    let policy = json!({"policy": {"allowModeChange": true}});
    let run = server.run_with_files(&[("base.sh", "b\n"), ("kept.sh", "k\n")], policy).await;
    run.create("a.sh", "a\n").await;
    run.patch("diff --git a/a.sh b/a.sh\nold mode 100644\nnew mode 100755\n").await.ok();
    run.patch("diff --git a/kept.sh b/kept.sh\nold mode 100644\nnew mode 100755\n").await.ok();
    run.edit("a.sh", "a", "A", json!({})).await.ok();
    let moved = json!({"from": "kept.sh", "to": "moved.sh", "expectedSha256": sha256("k\n"), "reason": "r"});
    run.ok("move_file", moved).await;
    run.own(&["base.sh"]);
    let set = |path: &str, mode| {
        std::fs::set_permissions(run.repo.join(path), std::fs::Permissions::from_mode(mode)).unwrap();
    };
    for restarts in [false, true] {
        let run = if restarts {
            assert!(server.stop().success());
            server.restart();
            server.reconnect(&run)
        } else {
            run.clone()
        };
        for (path, mode) in [("a.sh", 0o755), ("base.sh", 0o644), ("moved.sh", 0o755)] {
            set(path, mode ^ 0o111);
            let text = run.on_disk(path);
            let input = json!({"path": path, "content": "x\n", "expectedSha256": sha256(&text), "reason": "r"});
            let refusal = run.call("write_file", input.clone()).await.refused("CHANGED_OUTSIDE");
            assert_eq!(refusal["knownSha256"], refusal["currentSha256"], "{path}");
            assert_eq!(drift(&run).await, [format!("\"mode\" \"{path}\"")], "{restarts}");
            set(path, mode);
            assert_eq!(drift(&run).await, [""; 0]);
            let dry =
                json!({"path": path, "content": "x\n", "expectedSha256": sha256(&text), "reason": "r", "dryRun": true});
            run.ok("write_file", dry).await;
        }
    }
}

#[rstest]
#[tokio::test]
async fn a_policy_can_have_changes_from_outside_recorded_as_nobodys(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = changed_run(backend, json!({"policy": {"outsideChanges": "RECORD"}})).await;
    assert_eq!(run.get().await["policy"]["outsideChanges"], "RECORD");
    let done = run.edit("a.py", "two", "2", json!({})).await.ok();
    assert!(done["warnings"][0].as_str().unwrap().contains("from outside"), "{done:#}");
    let records = run.audit().await;
    let [.., outside, edit] = &records[..] else { panic!("{records:#?}") };
    assert_eq!((&outside["tool"], &outside["actor"]), (&json!("workspace.outside_change"), &json!("nobody")));
    assert_eq!(outside["input"]["foundBy"], done["toolCallId"]);
    assert_eq!(
        (&outside["files"][0]["oldSha256"], &outside["files"][0]["newSha256"]),
        (&json!(sha256(BEFORE)), &json!(sha256(OUTSIDE)))
    );
    assert_eq!((&edit["seq"], &edit["files"][0]["oldSha256"]), (&done["seq"], &json!(sha256(OUTSIDE))));
    let diff = run.artifact(outside["artifactUris"][0].as_str().unwrap()).await;
    assert!(diff.contains("+from outside") && !diff.contains("-two"), "{diff}");
    let own = run.artifact(edit["artifactUris"][0].as_str().unwrap()).await;
    assert!(own.contains("-two") && !own.contains("+from outside"), "{own}");

    // A batch, a move and a deletion build on recorded changes too; none counts as the agent's.
    let counted = run.get().await["counts"]["mutations"].clone();
    let calls = json!([
        {"tool": "edit_file", "input": {"path": "base.py", "oldString": "one", "newString": "1", "reason": "r"}},
        {"tool": "edit_file", "input": {"path": "base.py", "oldString": "two", "newString": "2", "reason": "r"}},
    ]);
    run.batch(calls).await.ok();
    assert_eq!(run.get().await["counts"]["mutations"], json!(counted.as_u64().unwrap() + 2));
    run.put("same.py", "gone soon\n");
    let delete = json!({"path": "same.py", "expectedSha256": sha256("gone soon\n"), "reason": "r"});
    run.ok("delete_file", delete).await;
    let outside = run.audit().await.into_iter().filter(|record| record["actor"] == "nobody").count();
    assert_eq!(outside, 3);
    let listed = run.operator.get(&format!("/v1/audit?run={}&actor=nobody", run.id)).await.ok();
    assert_eq!(listed["items"].as_array().unwrap().len(), 3);
    assert_eq!((drift(&run).await, &run.verify().await["intact"]), (vec![], &json!(true)));
    // The content from outside is in the history like any other.
    let earlier = json!({"path": "a.py", "atSeq": records[records.len() - 2]["seq"], "format": "raw"});
    assert_eq!(run.ok("read_file", earlier).await["content"], OUTSIDE);
}

#[rstest]
#[tokio::test]
async fn reads_of_files_changed_outside_warn_and_their_records_say_so(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = changed_run(backend, json!({})).await;
    std::os::unix::fs::symlink("same.py", run.repo.join("link.py")).unwrap();
    for path in ["a.py", "base.py"] {
        for (tool, input) in [
            ("read_file", json!({"path": path})),
            ("read_files", json!({"paths": [path, "same.py"]})),
            ("stat_path", json!({"path": path})),
        ] {
            let answer = run.ok(tool, input.clone()).await;
            let warnings = answer["warnings"].as_array().unwrap_or_else(|| panic!("{tool}: {answer:#}"));
            assert!(warnings.len() == 1 && warnings[0].as_str().unwrap().contains(path), "{tool}: {answer:#}");
            assert_eq!(run.last_record().await["reasons"], json!([format!("outside:{path}")]), "{tool}");
            let text = run.text(tool, input).await.text();
            assert!(text.contains(&format!("warning: `{path}` was changed")), "{tool}: {text}");
        }
        let file = run.agent.get(&format!("/v1/runs/{}/files/{path}", run.id)).await;
        assert_eq!((file.status, file.header("workspaced-outside")), (200, "true"));
        assert_eq!(run.last_record().await["reasons"], json!([format!("outside:{path}")]));
        let reads = json!([{"tool": "read_file", "input": {"path": path}}]);
        let answer = run.batch(reads).await.text();
        assert!(answer.contains("was changed by something else"), "{answer}");
    }
    for path in ["same.py", "link.py"] {
        let answer = run.ok("read_file", json!({"path": path})).await;
        assert_eq!(answer.get("warnings"), None, "{answer:#}");
    }
}

#[rstest]
#[tokio::test]
async fn reads_during_changes_never_warn(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.py", "0\n")]).await;
    let reader = run.clone();
    let reads = tokio::spawn(async move {
        for _ in 0..60 {
            let answer = reader.ok("read_file", json!({"path": "a.py"})).await;
            assert_eq!(answer.get("warnings"), None, "{answer:#}");
        }
    });
    let mut last = "0\n".to_owned();
    for number in 1..60 {
        let next = format!("{number}\n");
        run.replace("a.py", &next, &sha256(&last)).await.ok();
        last = next;
    }
    reads.await.unwrap();
}

#[rstest]
#[tokio::test]
async fn an_operator_settles_changes_from_outside(
    #[values(Backend::Sqlite)] backend: Backend,
    #[values("tree", "ledger")] accept: &str,
) {
    let (_server, run) = changed_run(backend, json!({"policy": {"budget": {"maxFilesTouched": 2}}})).await;
    run.put("new.py", "new\n");
    run.put(".env", "SECRET=1\n");
    run.create("made.py", BEFORE).await;
    std::fs::remove_file(run.repo.join("made.py")).unwrap();
    let path = format!("/v1/runs/{}/drift", run.id);
    let body = json!({"accept": accept, "reason": "a person did it"});
    assert_eq!(run.agent.post(&path, body.clone()).await.refusal(), "FORBIDDEN");
    run.operator.post(&path, json!({"accept": accept})).await.refused("INVALID_REQUEST");
    let secret = json!({"accept": accept, "paths": [".env"], "reason": "r"});
    run.operator.post(&path, secret).await.refused("POLICY_DENIED_SECRET");
    let before = run.audit().await.len();
    let dry = settle(&run, json!({"accept": accept, "reason": "r", "dryRun": true})).await;
    assert_eq!(dry["files"].as_array().unwrap().len(), 4, "{dry:#}");
    assert_eq!(drift(&run).await.len(), 4);

    let one = settle(&run, json!({"accept": accept, "paths": ["a.py", "base.py"], "reason": "r"})).await;
    assert_eq!(one["files"].as_array().unwrap().len(), 2, "{one:#}");
    let all = settle(&run, body).await;
    let names: Vec<_> =
        all["files"].as_array().unwrap().iter().map(|file| format!("{} {}", file["change"], file["path"])).collect();
    assert_eq!(names, [r#""deleted" "made.py""#, r#""created" "new.py""#], "{all:#}");
    assert_eq!(all["remaining"], 0);
    assert_eq!(drift(&run).await, [""; 0]);
    let records = &run.audit().await[before..];
    let settled: Vec<_> =
        records.iter().filter(|record| record["mutates"] == true && record["pathsWritten"] != json!([])).collect();
    if accept == "tree" {
        assert_eq!(settled.len(), 2, "{records:#?}");
        assert_eq!(run.on_disk("a.py"), OUTSIDE);
        assert!(run.repo.join("new.py").exists() && !run.repo.join("made.py").exists());
    } else {
        assert_eq!(settled.len(), 4, "the changes from outside are recorded by themselves: {records:#?}");
        assert_eq!((&settled[0]["actor"], &settled[0]["tool"]), (&json!("nobody"), &json!("workspace.outside_change")));
        assert_eq!([run.on_disk("a.py"), run.on_disk("base.py"), run.on_disk("made.py")], [BEFORE; 3]);
        assert!(!run.repo.join("new.py").exists());
    }
    let last = settled.last().unwrap();
    assert_eq!(
        (&last["tool"], &last["reason"], &last["decision"]),
        (&json!("settle_drift"), &json!("a person did it"), &json!("ALLOW"))
    );
    let diff = run.artifact(all["artifactUris"][0].as_str().unwrap()).await;
    assert!(diff.contains("new.py") && diff.contains("made.py"), "{diff}");
    assert_eq!(run.verify().await["intact"], true);
    run.edit("a.py", "two", "2", json!({})).await.ok();
    run.ok("revert_calls", json!({"toolCallIds": [all["toolCallId"]], "reason": "r"})).await;
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn a_settlement_is_finished_after_a_kill(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
    #[values("tree", "ledger")] accept: &str,
) {
    let (mut server, armed) = Server::start_armed(Setup::new(backend)).await;
    let run = server.run_with_files(&[("base.py", BEFORE)], json!({})).await;
    run.create("a.py", BEFORE).await;
    server.until_journal_is_empty().await;
    run.put("a.py", OUTSIDE);
    std::fs::write(&armed, "transaction.committed").unwrap();
    let request = run.operator.request(Method::POST, &format!("/v1/runs/{}/drift", run.id));
    let sent = run.operator.try_send(request.json(&json!({"accept": accept, "reason": "r"}))).await;
    assert!(sent.is_err());
    server.wait();
    std::fs::remove_file(&armed).unwrap();
    server.restart();
    let run = server.reconnect(&run);
    assert_eq!(drift(&run).await, [""; 0]);
    assert_eq!(run.on_disk("a.py"), if accept == "tree" { OUTSIDE } else { BEFORE });
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn a_story_with_a_gap_is_named(
    #[values(Backend::Sqlite)] backend: Backend,
    #[values(false, true)] at_the_base: bool,
) {
    let mut server = Server::start_with(Setup::new(backend).arg("--checkpoint-seconds", 3600)).await;
    let run = server.run_with_files(&[("a.py", BEFORE)], json!({})).await;
    run.edit("a.py", "one", "1", json!({})).await.ok();
    run.edit("a.py", "two", "2", json!({})).await.ok();
    let records = run.audit().await;
    server.until_journal_is_empty().await;
    server.kill();
    server.database.drop_triggers().await;
    let (first, last) = (records.len() - 1, records.len());
    let from = if at_the_base { first } else { last };
    let gap = json!(sha256(OUTSIDE));
    let seq = json!(from);
    let tell = |record: &mut Value| {
        if record["seq"] == seq {
            record["files"][0]["oldSha256"] = gap.clone();
        }
    };
    server.rewrite_records(&run, &records, from, tell).await;
    let says = [format!("seq {from}"), "a change from outside is not recorded: `a.py`".to_owned()];
    let says: Vec<_> = says.iter().map(String::as_str).collect();
    assert_ends(&offline(&server, "verify", &["--run", &run.id]), 1, &says);
    let to = server.home.join("rebuilt").display().to_string();
    assert_ends(&offline(&server, "replay", &["--run", &run.id, "--to", &to]), 1, &says);
    server.restart();
    let run = server.reconnect(&run);
    let report = run.verify().await;
    assert_eq!((&report["intact"], &report["discontinuity"]["seq"]), (&json!(false), &json!(from)), "{report:#}");
    assert_eq!(report["firstBreak"], report["discontinuity"]);
    assert_eq!(report["headSeq"], json!(last), "the chain itself is valid to its end");
    let summary = run.operator.get(&format!("/v1/runs/{}/report", run.id)).await.ok();
    assert!(summary["verification"]["problem"].as_str().unwrap().contains("`a.py`"), "{summary:#}");
    assert_eq!(summary["verification"]["intact"], false);
}

#[rstest]
#[tokio::test]
async fn repair_settles_changes_from_outside_offline(
    #[values(Backend::Sqlite, exhaustive::POSTGRES)] backend: Backend,
    #[values("tree", "ledger")] accept: &str,
) {
    let mut server = Server::start(backend).await;
    let run = server.run_with_files(&[("base.py", BEFORE)], json!({})).await;
    run.create("a.py", BEFORE).await;
    server.until_journal_is_empty().await;
    assert!(server.stop().success());
    run.put("a.py", OUTSIDE);
    let shown = offline(&server, "repair", &["--run", &run.id]);
    assert_ends(&shown, 1, &["was changed from outside", "differs from the ledger at 1 paths", "--accept ledger"]);
    let args = ["--run", &run.id, "--accept", accept, "--yes"];
    assert_ends(&offline(&server, "repair", &args), 0, &["recorded as"]);
    assert_ends(&offline(&server, "repair", &["--run", &run.id]), 0, &["needs no repair"]);
    assert_eq!(run.on_disk("a.py"), if accept == "tree" { OUTSIDE } else { BEFORE });
    let to = server.home.join("rebuilt").display().to_string();
    assert_ends(&offline(&server, "replay", &["--run", &run.id, "--to", &to]), 0, &["the workspace is equal"]);
    server.restart();
    let run = server.reconnect(&run);
    run.edit("a.py", "two", "2", json!({})).await.ok();
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn large_files_changed_outside_are_refused_and_settled(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.py", BEFORE)]).await;
    let (large, other) = (vec![7; (1 << 20) + 1], vec![8; (1 << 20) + 2]);
    put(&run, "large.bin", None, &large).await;
    run.put("large.bin", &other);
    let path = format!("/v1/runs/{}/files/large.bin", run.id);
    let request = run.agent.request(Method::DELETE, &path).header("x-reason", "r");
    let request = request.header("if-match", format!("\"{}\"", sha256(&other)));
    assert_eq!(run.agent.send(request).await.refusal(), "CHANGED_OUTSIDE");
    let settled = settle(&run, json!({"accept": "tree", "reason": "r"})).await;
    assert_eq!(settled["files"][0]["foundSha256"], json!(sha256(&other)), "{settled:#}");
    put(&run, "large.bin", Some(&other), b"small").await;
    assert_eq!(run.verify().await["intact"], true);
}
