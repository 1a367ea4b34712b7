//! Policy: profiles, overrides, globs, budgets and required approvals.

use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Run, Server, sha256};

async fn run_with(backend: Backend, files: &[(&str, &str)], policy: Value) -> Run {
    Run::shared_with(backend, files, json!({"policy": policy})).await.1
}

fn write(path: &str) -> Value {
    json!({"path": path, "content": "x\n", "reason": "r"})
}

#[rstest]
#[tokio::test]
async fn the_read_only_profile_denies_mutations(#[values(Backend::Sqlite)] backend: Backend) {
    let run = run_with(backend, &[("a.txt", "a\n")], json!({"profile": "READ_ONLY"})).await;
    assert_eq!(run.get().await["policy"]["profile"], "READ_ONLY");
    run.ok("read_file", json!({"path": "a.txt"})).await;
    run.call("write_file", write("b.txt")).await.refused("POLICY_DENIED");
    run.replace("a.txt", "b\n", &sha256("a\n")).await.refused("POLICY_DENIED");
    run.replace("a.txt", "b\n", &sha256("stale\n")).await.refused("POLICY_DENIED");
    run.patch("--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-a\n+b\n").await.refused("POLICY_DENIED");
    assert_eq!(run.on_disk("a.txt"), "a\n");
}

#[rstest]
#[tokio::test]
async fn each_profile_requires_the_approvals_of_the_contract(#[values(Backend::Sqlite)] backend: Backend) {
    let all = [
        "changesPublicApi",
        "deletesFile",
        "deletesTest",
        "touchesBuildFile",
        "touchesLockfile",
        "touchesSecuritySensitivePath",
        "weakensTest",
    ];
    for (profile, asks) in [
        (json!({}), vec!["touchesLockfile", "touchesSecuritySensitivePath"]),
        (json!({"profile": "SUPERVISED_PR"}), vec!["touchesLockfile", "touchesSecuritySensitivePath"]),
        (json!({"profile": "AUTONOMOUS"}), all.to_vec()),
    ] {
        let run = run_with(backend, &[("pom.xml", "<x/>\n"), ("a.txt", "a\n")], profile.clone()).await;
        let mut conditions: Vec<String> =
            serde_json::from_value(run.get().await["policy"]["requireApprovalIf"].clone()).unwrap();
        conditions.sort();
        assert_eq!(conditions, asks, "{profile}");
        let build = run.replace("pom.xml", "<y/>\n", &sha256("<x/>\n")).await.status;
        let delete = run.patch("--- a/a.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n").await.status;
        let want = if asks.len() == all.len() { (202, 202) } else { (200, 200) };
        assert_eq!((build, delete), want, "{profile}");
    }
}

#[rstest]
#[tokio::test]
async fn globs_limit_what_may_be_read_and_written(#[values(Backend::Sqlite)] backend: Backend) {
    let files =
        [("src/a.rs", "needle\n"), ("docs/a.md", "needle\n"), ("private/a.txt", "needle\n"), ("top.txt", "needle\n")];
    let policy =
        json!({"read": ["src/**", "docs/**", "private/**"], "write": ["src/**", "private/**"], "deny": ["private/**"]});
    let run = run_with(backend, &files, policy).await;
    for (path, may_read, may_write) in [
        ("src/a.rs", true, true),
        ("docs/a.md", true, false),
        ("private/a.txt", false, false),
        ("top.txt", false, false),
    ] {
        let read = run.call("read_file", json!({"path": path})).await;
        assert_eq!((read.status == 200, read.status == 403), (may_read, !may_read), "{path}: {}", read.text());
        let written = run.replace(path, "new\n", &sha256("needle\n")).await;
        assert_eq!(
            (written.status == 200, written.status == 403),
            (may_write, !may_write),
            "{path}: {}",
            written.text()
        );
        let created = run.call("write_file", write(&path.replace("a.", "new."))).await;
        assert_eq!(created.status == 200, may_write, "{path}: {}", created.text());
    }
    let found = run.ok("search_text", json!({"query": "ne"})).await;
    let mut paths: Vec<_> =
        found["matches"].as_array().unwrap().iter().map(|found| found["path"].as_str().unwrap()).collect();
    paths.dedup();
    assert_eq!(paths, ["docs/a.md", "src/a.rs"], "a new file without a match was found");
    let problem = run.call("read_file", json!({"path": "private/a.txt"})).await.refused("POLICY_DENIED");
    assert!(problem["reasons"].to_string().contains("private/**"), "the reasons do not name the rule: {problem:#}");
    let diff = run.call("diff_workspace", json!({})).await;
    assert!(!diff.contains("private/"));
    let listing = run.ok("list_dir", json!({})).await;
    let hidden = listing["entries"].as_array().unwrap().iter().find(|entry| entry["path"] == "private/a.txt");
    assert!(hidden.is_none_or(|entry| entry["readable"] == false), "{listing:#}");
}

#[rstest]
#[tokio::test]
async fn globs_that_match_no_path_are_refused_when_a_run_is_created(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    for (glob, correct) in [
        ("/workspace/secret/**", "`secret/**`"),
        ("~/x/**", "`x/**`"),
        ("secret,docs", "`secret`, `docs`"),
        ("plans/** ", "`plans/**`"),
        ("src\\secret\\**", "`src/secret/**`"),
        ("a/../b", "`b`"),
        ("/home/me/project/**", "relative to the root"),
    ] {
        for list in ["deny", "read", "write", "notSecret"] {
            let policy = json!({list: ["docs/**", glob]});
            let body = json!({"source": {"type": "empty"}, "policy": policy});
            let problem = server.operator().post("/v1/runs", body).await.refused("INVALID_REQUEST");
            let message = problem["message"].as_str().unwrap();
            assert!(message.contains(glob.trim()) && message.contains(correct), "{list} {glob}: {message}");
        }
    }
    for glob in ["secret", "/secret", "./secret/**", "secret/", "**/secret/**", "{a,b}/**", "a\\,b", "/tmp/**"] {
        let body = json!({"source": {"type": "empty"}, "policy": {"deny": [glob], "write": [glob]}});
        server.operator().post("/v1/runs", body).await.is(201);
    }
}

#[rstest]
#[tokio::test]
async fn kinds_except_git_and_secrets_can_be_overridden(#[values(Backend::Sqlite)] backend: Backend) {
    let files = [("Cargo.lock", "l\n"), ("dist/a.js", "g\n"), ("src/a.rs", "a\n")];
    let policy = json!({"kinds": {"LOCKFILE": "ALLOW", "GENERATED": "REQUIRE_APPROVAL", "TEXT_SOURCE": "DENY"}, "requireApprovalIf": [],
        "outsideChanges": "RECORD"});
    let run = run_with(backend, &files, policy).await;
    run.replace("Cargo.lock", "m\n", &sha256("l\n")).await.ok();
    run.replace("dist/a.js", "h\n", &sha256("g\n")).await.refused("APPROVAL_REQUIRED");
    run.replace("src/a.rs", "b\n", &sha256("a\n")).await.refused("POLICY_DENIED");
    let server = Server::shared(backend).await;
    for kind in ["SECRET_LIKE", "GIT_INTERNAL"] {
        let body = json!({"source": {"type": "empty"}, "policy": {"kinds": {kind: "ALLOW"}}});
        let answer = server.operator().post("/v1/runs", body).await;
        if answer.status == 201 {
            let run = server.run_from(&answer.json()).await;
            let status =
                run.call("write_file", write(if kind == "SECRET_LIKE" { ".env" } else { ".git/x" })).await.status;
            assert_ne!(status, 200, "{kind} was allowed");
        } else {
            answer.refused("INVALID_REQUEST");
        }
    }
}

#[rstest]
#[tokio::test]
async fn a_call_over_its_budget_changes_nothing(#[values(Backend::Sqlite)] backend: Backend) {
    let budget =
        json!({"maxFilesTouched": 2, "maxInsertions": 10, "maxDeletions": 5, "maxFilesDeleted": 1, "maxBytes": 1000});
    let ten = "x\n".repeat(10);
    let files = [("ten.txt", ten.as_str()), ("a.txt", "a\n"), ("b.txt", "b\n")];
    let run = run_with(backend, &files, json!({"budget": budget})).await;
    let (tree, diff) = (run.snapshot(), run.diff_sha256().await);
    let gone = |path: &str, line: &str| format!("--- a/{path}\n+++ /dev/null\n@@ -1 +0,0 @@\n-{line}\n");
    let new = |path: &str| format!("--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n");
    for (what, tool, input) in [
        (
            "insertions",
            "write_file",
            json!({"path": "a.txt", "content": "y\n".repeat(11), "expectedSha256": sha256("a\n"), "reason": "r"}),
        ),
        ("files deleted", "apply_patch", json!({"patch": gone("a.txt", "a") + &gone("b.txt", "b"), "reason": "r"})),
    ] {
        for dry in [false, true] {
            let mut input = input.clone();
            input["dryRun"] = json!(dry);
            let problem = run.call(tool, input).await.refused("PATCH_BUDGET_EXCEEDED");
            assert!(
                problem["limit"].is_u64() && problem["actual"].as_u64() > problem["limit"].as_u64(),
                "{what}: {problem:#}"
            );
            assert!(!problem["reasons"].as_array().unwrap().is_empty(), "{what}");
        }
        assert_eq!(run.snapshot(), tree, "{what}");
    }
    assert_eq!(run.diff_sha256().await, diff);
    run.ok("write_file", json!({"path": "n.txt", "content": "y\n".repeat(10), "reason": "r"})).await;
    run.patch(&[gone("a.txt", "a"), new("1")].concat()).await.ok();
}

#[rstest]
#[tokio::test]
async fn one_new_file_over_the_insertion_budget_asks(#[values(Backend::Sqlite)] backend: Backend) {
    let run = run_with(backend, &[], json!({"budget": {"maxInsertions": 10}})).await;
    assert_eq!(run.get().await["policy"]["fileBudget"], "REQUIRE_APPROVAL");
    let long = "y\n".repeat(11);
    let asked = run.call("write_file", json!({"path": "n.txt", "content": long, "reason": "r"})).await;
    let asked = asked.refused("APPROVAL_REQUIRED");
    assert_eq!(asked["reasons"], json!(["fileBudget:maxInsertions"]), "{asked:#}");
    let id = asked["approvalId"].as_str().unwrap();
    run.operator.post(&format!("/v1/approvals/{id}/approve"), json!({"onBehalfOf": "ada"})).await.ok();
    assert_eq!(run.on_disk("n.txt"), long);
    // The file exists now: a change of it can be made in parts.
    let more = json!({"path": "n.txt", "content": long.repeat(3), "expectedSha256": sha256(&long), "reason": "r"});
    run.call("write_file", more).await.refused("PATCH_BUDGET_EXCEEDED");
}

#[rstest]
#[tokio::test]
async fn the_budget_of_a_run_applies_to_all_its_calls(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let budget = json!({"maxFilesTouched": 3, "maxInsertions": 100, "maxDeletions": 100, "maxFilesDeleted": 5, "maxBytes": 100_000});
    let run = run_with(backend, &[], json!({"runBudget": budget})).await;
    for number in 0..3 {
        run.create(&format!("{number}.txt"), "x\n").await;
    }
    run.call("write_file", write("3.txt")).await.refused("PATCH_BUDGET_EXCEEDED");
    assert!(!run.repo.join("3.txt").exists());
    run.ok("read_file", json!({"path": "0.txt"})).await;
}

#[rstest]
#[tokio::test]
async fn an_approved_call_takes_its_part_of_the_budget_of_its_run(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    // Of a lock file nothing counts but its deletion.
    let policy =
        json!({"runBudget": {"maxFilesTouched": 3, "maxInsertions": 100}, "kinds": {"TEXT_DOC": "REQUIRE_APPROVAL"}});
    let run = run_with(backend, &[("a.md", "l\n"), ("b.md", "y\n")], policy).await;
    let used = async || {
        let own = run.agent.get(&format!("/v1/runs/{}", run.id)).await.ok();
        let used = &own["usage"]["runBudget"];
        (used["filesTouched"].clone(), used["insertions"].clone())
    };
    let approve = async |asked: &Value| {
        let id = asked["approvalId"].as_str().unwrap();
        run.operator.post(&format!("/v1/approvals/{id}/approve"), json!({"onBehalfOf": "ada"})).await.ok()
    };
    let replace = |path: &str, old: &str| json!({"path": path, "content": "1\n2\n", "expectedSha256": sha256(old), "reason": "r"});
    assert_eq!(approve(&run.call("write_file", replace("a.md", "l\n")).await.is(202)).await["state"], "approved");
    assert_eq!(used().await, (json!(1), json!(2)));
    let calls = json!([
        {"tool": "write_file", "input": replace("b.md", "y\n")}, {"tool": "write_file", "input": write("a.txt")},
    ]);
    assert_eq!(approve(&run.batch(calls).await.is(200)["results"][0]["answer"]).await["state"], "approved");
    assert_eq!(used().await, (json!(3), json!(5)));
    // Nothing is left, not even with a person's approval.
    let layer = crate::runs::changesets::Layer::new().file("c.md", "{}\n").bytes();
    let runner = crate::runs::changesets::runner(&run, &[]).await;
    let set = json!({"basedOnSeq": crate::runs::changesets::head(&run).await, "reason": "npm i"});
    crate::runs::changesets::send(&runner, &set, &layer).await.refused("PATCH_BUDGET_EXCEEDED");
    assert_eq!(used().await, (json!(3), json!(5)));
}

#[rstest]
#[tokio::test]
async fn concurrent_calls_do_not_exceed_the_budget_of_a_run_together(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let run = run_with(backend, &[], json!({"runBudget": {"maxFilesTouched": 5}})).await;
    let paths: Vec<_> = (0..24).map(|number| format!("{number}.txt")).collect();
    let calls = paths.iter().map(|path| run.call("write_file", write(path)));
    let answers = futures_util::future::join_all(calls).await;
    let (done, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(|answer| answer.status == 200);
    assert_eq!((done.len(), run.snapshot().len()), (5, 5), "{refused:?}");
    for answer in refused {
        answer.refused("PATCH_BUDGET_EXCEEDED");
    }
    let own = run.agent.get(&format!("/v1/runs/{}", run.id)).await.ok();
    assert_eq!(
        (&own["usage"]["runBudget"]["filesTouched"], &own["remaining"]["runBudget"]["filesTouched"]),
        (&json!(5), &json!(0))
    );
}

#[rstest]
#[tokio::test]
async fn an_approval_contains_the_whole_call(#[values(Backend::Sqlite)] backend: Backend) {
    let run = run_with(backend, &[("Cargo.lock", "l\n"), ("a.txt", "a\n")], json!({})).await;
    let patch =
        "--- a/Cargo.lock\n+++ b/Cargo.lock\n@@ -1 +1 @@\n-l\n+m\n--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-a\n+b\n";
    let tree = run.snapshot();
    let input = json!({"patch": patch, "reason": "update the lock", "toolCallId": "ask"});
    let answer = run.call("apply_patch", input).await.refused("APPROVAL_REQUIRED");
    assert_eq!(run.snapshot(), tree, "a part of a pending call was applied");
    let id = answer["approvalId"].as_str().unwrap();
    let approval = run.operator.get(&format!("/v1/approvals/{id}")).await.ok();
    for (member, want) in [
        ("approvalId", json!(id)),
        ("runId", json!(run.id)),
        ("toolCallId", json!("ask")),
        ("tool", json!("apply_patch")),
        ("reason", json!("update the lock")),
        ("state", json!("pending")),
    ] {
        assert_eq!(approval[member], want, "{member}");
    }
    assert!(!approval["reasons"].as_array().unwrap().is_empty());
    assert_eq!(approval["files"].as_array().unwrap().len(), 2);
    assert!(approval["diff"].as_str().unwrap().contains("+m"));
    assert!(approval["expiresAt"].as_str() > approval["createdAt"].as_str());
    let pending = crate::harness::items(&run.operator, "/v1/approvals?state=pending&limit=1000").await;
    assert_eq!(pending.iter().filter(|other| other["approvalId"] == id).count(), 1);

    assert_eq!(run.get().await["state"], "awaiting_approval");
    run.ok("read_file", json!({"path": "a.txt"})).await;
    let record = run.calls().await.remove(0);
    assert_eq!((&record["decision"], &record["code"]), (&json!("REQUIRE_APPROVAL"), &json!("APPROVAL_REQUIRED")));
    let call = run.agent.get(&format!("/v1/runs/{}/tool-calls/ask", run.id)).await.ok();
    assert!(call.to_string().contains("REQUIRE_APPROVAL"), "{call:#}");
    run.operator.get("/v1/approvals/none-such").await.refused("NOT_FOUND");
}

#[rstest]
#[tokio::test]
async fn sensitive_paths_require_approval(#[values(Backend::Sqlite)] backend: Backend) {
    let run = run_with(backend, &[], json!({})).await;
    for path in [
        ".github/workflows/ci.yml",
        ".gitlab-ci.yml",
        "AGENTS.md",
        ".mcp.json",
        ".vscode/settings.json",
        ".claude/settings.json",
        ".cursor/rules",
    ] {
        run.call("write_file", write(path)).await.refused("APPROVAL_REQUIRED");
    }
    assert!(run.snapshot().is_empty());
}

#[rstest]
#[tokio::test]
async fn authentication_code_requires_approval_and_its_documentation_does_not(
    #[values(Backend::Sqlite)] backend: Backend,
) {
    let run = run_with(backend, &[], json!({})).await;
    for path in ["auth/session.py", "src/LoginForm.tsx", "lib/permissions.rs"] {
        let asked = run.call("write_file", write(path)).await.refused("APPROVAL_REQUIRED");
        assert_eq!(asked["reasons"], json!(["requireApprovalIf:touchesSecuritySensitivePath"]), "{path}");
    }
    for path in ["docs/auth.md", "src/author.rs"] {
        run.ok("write_file", write(path)).await;
    }
}

#[rstest]
#[tokio::test]
async fn ask_stands_between_deny_and_write(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let policy = json!({"write": ["src/**"], "ask": ["**/billing/**", "migrations/"], "deny": ["src/billing/keys/**"]});
    let run = run_with(backend, &[], policy).await;
    assert_eq!(run.get().await["policy"]["ask"], json!(["**/billing/**", "migrations/"]));
    run.ok("write_file", write("src/a.rs")).await;
    let asked = async |path: &str| {
        let refused = run.call("write_file", write(path)).await.refused("APPROVAL_REQUIRED");
        let approval =
            run.operator.get(&format!("/v1/approvals/{}", refused["approvalId"].as_str().unwrap())).await.ok();
        let codes: Vec<_> = approval["warnings"].as_array().unwrap().iter().map(|one| one["code"].clone()).collect();
        (refused["reasons"].clone(), json!(codes))
    };
    assert_eq!(asked("src/billing/a.rs").await, (json!(["ask:**/billing/**"]), json!([])));
    assert_eq!(asked("Migrations/1.sql").await, (json!(["ask:migrations/"]), json!(["OUTSIDE_WRITE"])));
    let denied = run.call("write_file", write("src/billing/keys/a.rs")).await.refused("POLICY_DENIED");
    assert_eq!(denied["reasons"], json!(["deny:src/billing/keys/**"]));
    let denied = run.call("write_file", write("docs/a.md")).await.refused("POLICY_DENIED");
    assert_eq!(denied["reasons"], json!(["write:no-match"]));
    assert!(
        denied["hint"].as_str().unwrap().contains("once a person approves: `**/billing/**`, `migrations/`"),
        "{denied:#}"
    );
    let bad = run.operator.post("/v1/runs", json!({"source": {"type": "empty"}, "policy": {"ask": ["[" ]}})).await;
    bad.refused("INVALID_REQUEST");
}

#[rstest]
#[tokio::test]
async fn a_new_test_file_is_not_public_api(#[values(Backend::Sqlite)] backend: Backend) {
    let run = run_with(backend, &[], json!({"requireApprovalIf": ["changesPublicApi"]})).await;
    let create = async |path: &str| {
        let content = "def test_a():\n    assert 1\n";
        run.call("write_file", json!({"path": path, "content": content, "reason": "r"})).await
    };
    assert_eq!(create("tests/test_a.py").await.status, 200);
    create("src/a.py").await.refused("APPROVAL_REQUIRED");
}

#[rstest]
#[tokio::test]
async fn a_mode_change_needs_permission_by_policy(#[values(Backend::Sqlite)] backend: Backend) {
    let patch = "diff --git a/run.sh b/run.sh\nold mode 100644\nnew mode 100755\n";
    let strict = run_with(backend, &[("run.sh", "id\n")], json!({})).await;
    strict.patch(patch).await.refused("POLICY_DENIED");
    let loose = run_with(backend, &[("run.sh", "id\n")], json!({"allowModeChange": true})).await;
    loose.patch(patch).await.ok();
    assert!(loose.snapshot()["run.sh"].starts_with("755 "));
}

#[rstest]
#[tokio::test]
async fn the_size_of_a_text_is_limited(#[values(Backend::Sqlite)] backend: Backend) {
    let run = run_with(backend, &[], json!({"maxFileBytes": 100})).await;
    run.ok("write_file", json!({"path": "a.txt", "content": "x".repeat(100), "reason": "r"})).await;
    let answer = run.call("write_file", json!({"path": "b.txt", "content": "x".repeat(101), "reason": "r"})).await;
    let problem = answer.refused("FILE_TOO_LARGE");
    assert_eq!((&problem["limit"], &problem["actual"]), (&json!(100), &json!(101)));
}

#[rstest]
#[tokio::test]
async fn policy_can_allow_ignored_files(#[values(Backend::Sqlite)] backend: Backend) {
    let files = [(".gitignore", "*.log\n")];
    let run = run_with(backend, &files, json!({"ignoredFiles": "ALLOW"})).await;
    run.put("a.log", "x\n");
    run.ok("read_file", json!({"path": "a.log"})).await;
    run.replace("a.log", "y\n", &sha256("x\n")).await.ok();
}

#[rstest]
#[tokio::test]
async fn a_changed_public_declaration_requires_approval(#[values(Backend::Sqlite)] backend: Backend) {
    let table = [(
        "a.rs",
        "pub fn a() -> u8 {\n    1\n}\nfn b() {}\n",
        "-> u8",
        "-> u16",
        "    1",
        "    2",
        "fn b() {}",
        "fn c() {}",
    )];
    let files: Vec<_> = table.iter().map(|row| (row.0, row.1)).collect();
    let run = run_with(backend, &files, json!({"requireApprovalIf": ["changesPublicApi"]})).await;
    for (path, text, public, other, body, another, private, renamed) in table {
        let edit = async |old: &str, new: &str| {
            let input = json!({"path": path, "oldString": old, "newString": new, "reason": "r"});
            run.call("edit_file", input).await
        };
        let asked = edit(public, other).await.refused("APPROVAL_REQUIRED");
        assert_eq!(asked["reasons"], json!(["requireApprovalIf:changesPublicApi"]), "{path}");
        assert_eq!(run.on_disk(path), text, "{path}");
        assert_eq!(edit(body, another).await.status, 200, "{path}: a function body needs no approval");
        assert_eq!(edit(private, renamed).await.status, 200, "{path}: a private declaration needs no approval");
    }
}
