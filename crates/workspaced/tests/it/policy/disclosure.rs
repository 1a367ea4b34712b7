//! File content is shown only to callers with `file:read`. No answer, refusal, hint or replay shows it to others.

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Client, Run, Server, sha256};

/// Occurs in every file of the run and in no input except written content.
const MARK: &str = "MRK7Q";

const BEFORE: &str = "alpha MRK7Q-a one\nbeta\nbeta\n";
const NOW: &str = "alpha MRK7Q-b one\nbeta\nbeta\ngamma MRK7Q-c\n";
const LOCK: &str = "version = 3\nname = \"MRK7Q-lock\"\n";

const PERMISSIONS: [&str; 10] = [
    "file:list",
    "file:read",
    "file:search",
    "file:diff",
    "file:write:create",
    "file:write:replace",
    "file:patch:apply",
    "file:delete",
    "file:move",
    "audit:read",
];

/// Returns tool calls with every outcome. No input contains the mark.
#[expect(clippy::too_many_lines, reason = "a table of calls")]
fn tool_calls() -> Vec<(&'static str, Value)> {
    let (stale, now) = (sha256(BEFORE), sha256(NOW));
    let mut calls = vec![
        ("list_dir", json!({})),
        ("read_file", json!({"path": "a.txt"})),
        ("read_file", json!({"path": "a.txt", "format": "raw"})),
        ("read_files", json!({"paths": ["a.txt", "Cargo.lock"]})),
        ("stat_path", json!({"path": "a.txt"})),
        ("find_files", json!({"glob": ["*"]})),
        ("search_text", json!({"query": "alpha", "contextLines": 3})),
        ("search_text", json!({"query": "^b.*a$", "mode": "regex", "contextLines": 3})),
        ("search_text", json!({"query": "alpha", "multiline": true, "contextLines": 3})),
        ("tree_stats", json!({})),
        ("diff_workspace", json!({})),
        ("diff_workspace", json!({"statOnly": true})),
        ("diff_workspace", json!({"atSeq": 1})),
    ];
    let write = |more: Value| with(json!({"path": "a.txt", "content": "x\n", "reason": "r"}), &more);
    let edit = |old: &str| json!({"path": "a.txt", "oldString": old, "newString": "x", "reason": "r"});
    let range = |line: u64, version: &str| json!({"path": "a.txt", "startLine": line, "endLine": line, "content": "x\n", "expectedSha256": version, "reason": "r"});
    let patch = |text: &str| json!({"patch": text, "reason": "r"});
    let mutations = [
        ("write_file", write(json!({"expectedSha256": stale}))),
        ("write_file", write(json!({"mode": "CREATE_NEW"}))),
        ("write_file", write(json!({}))),
        ("write_file", write(json!({"path": "Cargo.lock", "expectedSha256": sha256(LOCK)}))),
        ("edit_file", edit("alpha wrong one\nbeta")),
        ("edit_file", edit("beta")),
        ("edit_file", with(edit("alpha"), &json!({"expectedSha256": stale}))),
        ("apply_patch", patch("--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n-alpha wrong one\n+x\n beta\n")),
        ("apply_patch", patch("--- a/a.txt\n+++ /dev/null\n@@ -2 +0,0 @@\n-beta\n")),
        ("apply_patch", patch("--- a/a.txt\n+++ b/a.txt\n@@ -2 +2 @@\n-none\n+x\n")),
        (
            "apply_patch",
            with(
                patch("--- a/a.txt\n+++ b/a.txt\n@@ -2 +2 @@\n-beta\n+x\n"),
                &json!({"expectedSha256": {"a.txt": stale}}),
            ),
        ),
        ("write_file", write(json!({"expectedSha256": stale, "onConflict": "merge"}))),
        ("replace_range", range(9, &stale)),
        ("replace_range", range(99, &now)),
        ("delete_file", json!({"path": "a.txt", "expectedSha256": stale, "reason": "r"})),
        ("move_file", json!({"from": "a.txt", "to": "b.txt", "expectedSha256": stale, "reason": "r"})),
        ("revert_calls", json!({"toolCallIds": ["first"], "reason": "r"})),
    ];
    for (tool, input) in mutations {
        calls.push((tool, with(input.clone(), &json!({"dryRun": true}))));
        calls.push((tool, input));
    }
    // Calls that would succeed are dry runs.
    for (tool, input) in [
        ("write_file", write(json!({"expectedSha256": now}))),
        ("edit_file", edit("alpha")),
        ("edit_file", with(edit("beta"), &json!({"replaceAll": true}))),
        ("apply_patch", patch("--- a/a.txt\n+++ b/a.txt\n@@ -2,2 +2,2 @@\n-beta\n+x\n beta\n")),
        ("delete_file", json!({"path": "a.txt", "expectedSha256": now, "reason": "r"})),
        ("move_file", json!({"from": "a.txt", "to": "b.txt", "expectedSha256": now, "reason": "r"})),
        ("revert_calls", json!({"toSeq": 0, "reason": "r"})),
    ] {
        calls.push((tool, with(input, &json!({"dryRun": true}))));
    }
    calls
}

fn with(mut input: Value, more: &Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        input[name] = value.clone();
    }
    input
}

/// Creates a run with marked files, some of them changed.
async fn marked(backend: Backend) -> Run {
    let files = [("a.txt", BEFORE), ("Cargo.lock", LOCK), ("dir/c.txt", "MRK7Q-d\n"), ("gone.txt", "MRK7Q-e\n")];
    let (run, _) = Server::shared(backend).await.run_from_git(&files, json!({})).await;
    let change = json!({"toolCallId": "first", "path": "a.txt", "content": BEFORE.replace("-a", "-x"),
        "expectedSha256": sha256(BEFORE), "reason": "r"});
    run.ok("write_file", change).await;
    run.replace("a.txt", NOW, &sha256(BEFORE.replace("-a", "-x"))).await.ok();
    run.ok("delete_file", json!({"path": "gone.txt", "expectedSha256": sha256("MRK7Q-e\n"), "reason": "r"})).await;
    run
}

async fn client(run: &Run, permissions: &[&str]) -> Client {
    let path = format!("/v1/runs/{}/tokens", run.id);
    let token = run.operator.post(&path, json!({"permissions": permissions})).await.is(201);
    run.agent.with_token(token["token"].as_str())
}

/// Returns the answers of every route except the tool routes.
async fn answers_of_routes(run: &Run, client: &Client, ids: &[String]) -> Vec<Answer> {
    let base = format!("/v1/runs/{}", run.id);
    let mut answers = Vec::new();
    for rest in [
        "",
        "/audit",
        "/audit/verify",
        "/audit/inclusion?seq=1",
        "/changes",
        "/archive",
        "/patch",
        "/bundle",
        "/drift",
        "/files/a.txt",
        "/files/none.txt",
    ] {
        answers.push(client.get(&format!("{base}{rest}")).await);
    }
    for id in ids {
        answers.push(client.get(&format!("{base}/tool-calls/{id}")).await);
    }
    for record in run.audit().await {
        for uri in record["artifactUris"].as_array().unwrap() {
            let artifact = uri.as_str().unwrap().rsplit('/').next().unwrap();
            answers.push(client.get(&format!("{base}/artifacts/{artifact}")).await);
        }
    }
    for path in ["/v1/approvals", "/v1/audit", "/v1/audit/stream", "/v1/tools"] {
        answers.push(client.get(path).await);
    }
    let file = format!("{base}/files/a.txt");
    let stale = format!("\"{}\"", sha256(BEFORE));
    for (method, name, value) in [
        (Method::GET, "range", "bytes=0-20"),
        (Method::HEAD, "x-nothing", "x"),
        (Method::PUT, "if-match", stale.as_str()),
        (Method::PUT, "if-none-match", "*"),
        (Method::DELETE, "if-match", stale.as_str()),
    ] {
        let body = if method == Method::PUT { "x\n" } else { "" };
        let request = client.request(method, &file).header(name, value).header("x-reason", "r").body(body);
        answers.push(client.send(request).await);
    }
    let patch = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-alpha wrong one\n+x\n";
    for question in [json!({"path": "a.txt"}), json!({"patch": patch})] {
        answers.push(client.post(&format!("{base}/policy/explain"), question).await);
    }
    answers
}

/// Returns the answers of every tool call: new, repeated with the ID of the agent's call, and in batches.
async fn answers_of_calls(run: &Run, client: &Client, ids: &[String]) -> Vec<Answer> {
    let base = format!("/v1/runs/{}", run.id);
    let mut answers = Vec::new();
    for ((tool, input), id) in tool_calls().into_iter().zip(ids) {
        let path = format!("{base}/tools/{tool}");
        answers.push(client.post(&path, input.clone()).await);
        answers.push(client.post(&path, with(input.clone(), &json!({"toolCallId": id}))).await);
        for atomic in [false, true] {
            let calls = json!([{"tool": tool, "input": input.clone()}]);
            answers.push(client.post(&format!("{base}/batch"), json!({"calls": calls, "atomic": atomic})).await);
        }
    }
    answers
}

/// Who calls without `file:read`.
#[derive(Clone, Copy, Debug)]
enum Blind {
    /// One token, which holds every other permission.
    Together,
    /// A token for each other permission, which holds it alone.
    Alone,
}

#[rstest]
#[case::with_all_others(Blind::Together)]
#[case::exhaustive_with_each_alone(Blind::Alone)]
#[tokio::test]
async fn no_caller_without_file_read_sees_content(#[case] blind: Blind) {
    let backend = Backend::Sqlite;
    let run = marked(backend).await;
    let ids: Vec<_> = (0..tool_calls().len()).map(|number| format!("call-{number}")).collect();
    // The agent's calls. Their answers are stored for repetition.
    let mut shown = 0;
    for ((tool, input), id) in tool_calls().into_iter().zip(&ids) {
        let answer = run.call(tool, with(input, &json!({"toolCallId": id}))).await;
        shown += usize::from(answer.contains(MARK));
    }
    assert!(shown > 12, "the agent saw content in only {shown} answers");
    let others: Vec<&str> = PERMISSIONS.into_iter().filter(|held| *held != "file:read").collect();
    let tokens: Vec<Vec<&str>> = match blind {
        Blind::Together => vec![others],
        Blind::Alone => others.iter().map(|held| vec![*held]).collect(),
    };
    for held in tokens {
        let client = client(&run, &held).await;
        let mut answers = answers_of_calls(&run, &client, &ids).await;
        answers.extend(answers_of_routes(&run, &client, &ids).await);
        for answer in answers {
            assert!(!answer.contains(MARK), "{held:?}: {} discloses {}", answer.what, answer.text());
            assert!(answer.status < 500, "{held:?}: {} {}", answer.what, answer.text());
        }
    }
    for record in run.audit().await {
        assert!(!record.to_string().contains(MARK), "{record:#}");
    }
}

#[rstest]
#[tokio::test]
async fn a_caller_with_file_read_sees_what_other_callers_do_not(#[values(Backend::Sqlite)] backend: Backend) {
    let run = marked(backend).await;
    let path = |tool: &str| format!("/v1/runs/{}/tools/{tool}", run.id);
    let patch = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-alpha wrong one\n+x\n";
    let patch = json!({"toolCallId": "c1", "patch": patch, "reason": "r"});
    let blind = client(&run, &["file:patch:apply"]).await;
    let answer = blind.post(&path("apply_patch"), patch.clone()).await.refused("PATCH_CONFLICT");
    let conflict = &answer["conflicts"][0];
    assert_eq!((&conflict["found"], &answer["contentWithheld"]), (&json!(""), &json!(true)), "{answer:#}");
    assert_eq!((&conflict["reason"], &conflict["line"]), (&json!(""), &json!(0)), "{answer:#}");
    assert!(answer["hint"].as_str().unwrap().contains("file:read"), "{answer:#}");
    let answer = run.call("apply_patch", patch).await.refused("PATCH_CONFLICT");
    assert_eq!(answer["conflicts"][0]["found"], "alpha MRK7Q-b one\n", "a replay with file:read");
    assert_eq!(answer.get("contentWithheld"), None);

    // The line numbers at which a guessed hunk applies.
    let twice = json!({"patch": "--- a/a.txt\n+++ b/a.txt\n@@ -9 +9 @@\n-beta\n+x\n", "reason": "r"});
    let answer = blind.post(&path("apply_patch"), twice.clone()).await.refused("PATCH_CONFLICT");
    let conflict = &answer["conflicts"][0];
    assert_eq!((conflict.get("appliesAt"), &conflict["line"]), (None, &json!(0)), "{answer:#}");
    assert_eq!((&conflict["reason"], &answer["contentWithheld"]), (&json!(""), &json!(true)), "{answer:#}");
    assert_eq!(
        run.call("apply_patch", twice).await.refused("PATCH_CONFLICT")["conflicts"][0]["appliesAt"],
        json!([2, 3])
    );

    let edit = json!({"path": "a.txt", "oldString": "alpha MRK7Q-a one", "newString": "x", "reason": "r"});
    let blind = client(&run, &["file:write:replace"]).await;
    let answer = blind.post(&path("edit_file"), edit.clone()).await.refused("EDIT_NOT_FOUND");
    assert_eq!((answer.get("difference"), answer.get("lines")), (None, None), "{answer:#}");
    assert!(!answer["message"].as_str().unwrap().contains("line"), "{answer:#}");
    let answer = run.call("edit_file", edit).await.refused("EDIT_NOT_FOUND");
    assert_eq!(answer["lines"][0], 1);
    assert!(answer["hint"].as_str().unwrap().contains("line 1"), "{answer:#}");

    let stale =
        json!({"toolCallId": "w1", "path": "a.txt", "content": "x\n", "expectedSha256": sha256(BEFORE), "reason": "r"});
    let answer = blind.post(&path("write_file"), stale.clone()).await.refused("WRITE_CONFLICT");
    assert_eq!((answer.get("diff"), &answer["contentWithheld"]), (None, &json!(true)));
    assert!(
        run.call("write_file", stale).await.refused("WRITE_CONFLICT")["diff"].is_string(),
        "a replay with file:read"
    );
}

#[rstest]
#[tokio::test]
async fn a_search_and_a_diff_without_file_read_list_paths_and_counts(#[values(Backend::Sqlite)] backend: Backend) {
    let run = marked(backend).await;
    let path = |tool: &str| format!("/v1/runs/{}/tools/{tool}", run.id);
    let query = json!({"query": "alpha", "contextLines": 1});
    let blind = client(&run, &["file:search"]).await;
    let answer = blind.post(&path("search_text"), query.clone()).await.ok();
    let whole = run.ok("search_text", query).await;
    assert_eq!((&answer["contentWithheld"], whole.get("contentWithheld")), (&json!(true), None));
    let (one, all) = (&answer["matches"][0], &whole["matches"][0]);
    assert_eq!((&one["path"], one.get("line"), one.get("column")), (&all["path"], None, None));
    assert_eq!((&all["line"], &all["column"]), (&json!(1), &json!(1)));
    assert_eq!((&one["snippet"], &one["before"], &one["after"]), (&json!(""), &json!([]), &json!([])));
    assert_eq!(all["snippet"], "alpha MRK7Q-b one");
    // The number of matches in a file is not disclosed, in a single call or a batch.
    let beta = json!({"query": "beta", "maxMatches": 1});
    let answer = blind.post(&path("search_text"), beta.clone()).await.ok();
    assert_eq!((answer["matches"].as_array().unwrap().len(), &answer["truncated"]), (1, &json!(false)), "{answer:#}");
    assert_eq!(run.ok("search_text", beta.clone()).await["truncated"], true);
    let guess = json!({"query": "^alpha M[A-Z]", "mode": "regex"});
    let answer = blind.post(&path("search_text"), guess.clone()).await.refused("FORBIDDEN");
    assert_eq!(answer["reasons"], json!(["permission:file:read"]));
    let batch = format!("/v1/runs/{}/batch", run.id);
    for atomic in [false, true] {
        let call = |input: &Value| json!({"calls": [{"tool": "search_text", "input": input}], "atomic": atomic});
        let answer = blind.post(&batch, call(&beta)).await;
        assert!(answer.contains("a.txt") && !answer.contains("column"), "{}", answer.text());
        let answer = blind.post(&batch, call(&guess)).await;
        assert!(answer.contains("permission:file:read") && !answer.contains("a.txt"), "{}", answer.text());
    }
    let recorded = run.audit().await.into_iter().filter(|record| record["code"] == "FORBIDDEN").count();
    assert_eq!(recorded, 3, "each refused search is recorded");

    let answer = client(&run, &["file:diff"]).await.post(&path("diff_workspace"), json!({})).await.ok();
    let whole = run.ok("diff_workspace", json!({})).await;
    assert_eq!((&answer["diff"], &answer["contentWithheld"]), (&json!(""), &json!(true)));
    for member in ["filesChanged", "insertions", "deletions", "stat", "files", "diffSha256"] {
        assert_eq!(answer[member], whole[member], "{member}");
    }
    assert!(whole["diff"].as_str().unwrap().contains(MARK));
}

#[rstest]
#[tokio::test]
async fn without_file_read_a_policy_query_about_a_patch_does_not_disclose_content(
    #[values(Backend::Sqlite)] backend: Backend,
) {
    let run = marked(backend).await;
    let path = format!("/v1/runs/{}/policy/explain", run.id);
    let patch =
        |file: &str, old: &str| json!({"patch": format!("--- a/{file}\n+++ b/{file}\n@@ -1 +1 @@\n-{old}\n+x\n")});
    let (right, wrong) = (patch("a.txt", "alpha MRK7Q-b one"), patch("a.txt", "alpha MRK7Q-z one"));
    let blind = client(&run, &["file:patch:apply"]).await;
    let answer = blind.post(&path, right.clone()).await.ok();
    assert_eq!(answer, blind.post(&path, wrong.clone()).await.ok());
    assert_eq!((&answer["patch"]["decision"], answer["patch"].get("code")), (&json!("ALLOW"), None), "{answer:#}");
    for (file, decision, code) in [
        ("Cargo.lock", "REQUIRE_APPROVAL", "APPROVAL_REQUIRED"),
        ("dir/.env", "DENY", "POLICY_DENIED_SECRET"),
        ("target/x.rs", "DENY", "POLICY_DENIED"),
    ] {
        let answer = blind.post(&path, patch(file, "guess")).await.ok();
        assert_eq!(
            (&answer["patch"]["decision"], &answer["patch"]["code"]),
            (&json!(decision), &json!(code)),
            "{answer:#}"
        );
    }
    assert!(run.audit().await.iter().all(|record| record["tool"] != "policy.explain"));
    let seeing = client(&run, &["file:patch:apply", "file:read"]).await;
    assert_eq!(seeing.post(&path, right).await.ok()["patch"].get("code"), None);
    assert_eq!(seeing.post(&path, wrong).await.ok()["patch"]["code"], "PATCH_CONFLICT");
    // A guess leaves a record, as by any other call.
    let guesses = run.audit().await.into_iter().filter(|record| record["tool"] == "policy.explain").count();
    assert_eq!(guesses, 2);
}

#[rstest]
#[tokio::test]
async fn an_approval_diff_and_an_artifact_need_file_read(#[values(Backend::Sqlite)] backend: Backend) {
    let run = marked(backend).await;
    let input = json!({"toolCallId": "lock", "path": "Cargo.lock", "content": "x\n", "expectedSha256": sha256(LOCK), "reason": "r"});
    run.call("write_file", input).await.refused("APPROVAL_REQUIRED");
    let call = format!("/v1/runs/{}/tool-calls/lock", run.id);
    let (blind, seeing) = (client(&run, &["audit:read"]).await, client(&run, &["audit:read", "file:read"]).await);
    let answer = blind.get(&call).await.ok();
    assert_eq!((&answer["approval"]["diff"], &answer["contentWithheld"]), (&json!(""), &json!(true)), "{answer:#}");
    assert_eq!(answer["approval"]["files"][0]["path"], "Cargo.lock");
    assert!(seeing.get(&call).await.ok()["approval"]["diff"].as_str().unwrap().contains(MARK));
    let artifact = run.artifact_path("first").await;
    let answer = blind.get(&artifact).await.refused("FORBIDDEN");
    assert_eq!(answer["reasons"], json!(["permission:file:read"]));
    assert!(seeing.get(&artifact).await.contains(MARK));
    assert!(run.operator.get(&artifact).await.contains(MARK));
}

impl Run {
    /// Returns the path of the artifact of a call.
    async fn artifact_path(&self, call: &str) -> String {
        let record = self.operator.get(&format!("/v1/runs/{}/tool-calls/{call}", self.id)).await.ok();
        let artifact = record["artifactUris"][0].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
        format!("/v1/runs/{}/artifacts/{artifact}", self.id)
    }
}
