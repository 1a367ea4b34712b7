//! The server's memory for any request is limited in bytes.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Backend, Client, Run, Server, Setup, assert_growth, items, until};
use crate::http::load_limits::connect;

const MIB: usize = 1 << 20;
/// The default maximum size of a text file.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Returns a budget that never causes a refusal.
fn any_budget() -> Value {
    let most = 1_000_000_000_u64;
    json!({"maxFilesTouched": most, "maxInsertions": most, "maxDeletions": most, "maxFilesDeleted": most, "maxBytes": most})
}

/// Returns a patch that replaces the first line of each file.
fn patch_of(files: impl Iterator<Item = String>) -> String {
    let section = |file: String| format!("--- a/{file}\n+++ b/{file}\n@@ -1,2 +1,2 @@\n-one\n+two\n same\n");
    files.map(section).collect()
}

/// Returns a text of `bytes` whose first lines match [`patch_of`].
fn text_of(bytes: usize) -> String {
    let line = format!("{}\n", "x".repeat(99));
    let text = "one\nsame\n".to_owned() + &line.repeat(bytes / line.len() + 1);
    text[..bytes].to_owned()
}

#[rstest]
#[tokio::test]
async fn an_edit_that_multiplies_its_text_is_refused_before_it_is_built(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start(backend).await;
    let run = server.run_with_files(&[("a.txt", &"a".repeat(100_000)), ("b.txt", "b\n")], json!({})).await;
    run.ok("edit_file", json!({"path": "b.txt", "oldString": "b", "newString": "c", "reason": "r", "dryRun": true}))
        .await;
    let edit = |dry_run: bool| json!({"path": "a.txt", "oldString": "a", "newString": "b".repeat(4000), "replaceAll": true, "reason": "r", "dryRun": dry_run});
    for dry_run in [true, false] {
        let (answer, growth) = server.peak_growth(run.call("edit_file", edit(dry_run))).await;
        let refused = answer.refused("FILE_TOO_LARGE");
        assert_eq!((&refused["limit"], &refused["actual"]), (&json!(MAX_FILE_BYTES), &json!(400_000_000)), "{refused}");
        assert_growth("an edit to 400 MB", growth, 16);
    }
    assert_eq!(run.on_disk("a.txt").len(), 100_000);
}

#[rstest]
#[tokio::test]
async fn overlapping_occurrences_count_as_several(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "aaa\n")]).await;
    let edit =
        |all: bool| json!({"path": "a.txt", "oldString": "aa", "newString": "b", "replaceAll": all, "reason": "r"});
    let refused = run.call("edit_file", edit(false)).await.refused("EDIT_NOT_UNIQUE");
    assert_eq!((&refused["actual"], &refused["lines"]), (&json!(2), &json!([1, 1])), "{refused}");
    assert_eq!(run.ok("edit_file", edit(true)).await["replacements"], 1);
    assert_eq!(run.on_disk("a.txt"), "ba\n");
}

#[rstest]
#[tokio::test]
async fn a_text_that_is_not_found_is_compared_within_bounds(#[values(Backend::Sqlite)] backend: Backend) {
    let line = "x ".repeat(500_000);
    let server = Server::start(backend).await;
    let run = server.run_with_files(&[("a.txt", &line), ("b.txt", &"b\n".repeat(500_000))], json!({})).await;
    let words = (0..200_000).map(|number| format!("w{number}")).collect::<Vec<_>>().join(" ");
    for (path, old) in [("a.txt", words), ("b.txt", "c\n".repeat(500_000))] {
        let edit = json!({"path": path, "oldString": old, "newString": "", "reason": "r"});
        let (answer, growth) = server.peak_growth(run.call("edit_file", edit)).await;
        answer.refused("EDIT_NOT_FOUND");
        assert!(answer.body.len() < 64 * 1024, "{}", answer.body.len());
        assert_growth("a text that is not found", growth, 48);
    }
}

#[rstest]
#[tokio::test]
async fn a_body_of_many_small_values_is_refused_before_they_are_built(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start(backend).await;
    let run = server.run(json!({})).await;
    run.create("a.txt", "a\n").await;
    let many = "[0],".repeat(MIB - 100);
    let inputs = format!(r#"{{"path":"a.txt","reason":"r","content":[{many}0]}}"#);
    let calls = format!(r#"{{"calls":[{{"tool":"read_file","input":{{"path":[{many}0]}}}}]}}"#);
    for (path, body) in
        [("tools/write_file", &inputs), ("tools/read_file", &inputs), ("batch", &calls), ("policy/explain", &inputs)]
    {
        let request = run.agent.request(Method::POST, &format!("/v1/runs/{}/{path}", run.id));
        let request = request.header("content-type", "application/json").body(body.clone());
        let (answer, growth) = server.peak_growth(run.agent.send(request)).await;
        let refused = answer.refused("INVALID_REQUEST");
        assert_eq!(refused["limit"], 10_000, "{path}: {refused}");
        assert!(refused["actual"].as_u64().unwrap() > 2_000_000, "{path}: {refused}");
        assert_growth(path, growth, 24);
    }
}

#[rstest]
#[tokio::test]
async fn an_error_quotes_little_of_what_was_sent(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[]).await;
    let long = "é".repeat(MIB);
    for body in [json!({"path": "a.txt", "maxLines": long}), json!({"path": "a.txt", &long: 1}), json!({"path": long})]
    {
        let answer = run.call("read_file", body).await;
        assert!(["INVALID_REQUEST", "PATH_REJECTED"].contains(&answer.refusal().as_str()));
        assert!(answer.body.len() < 4096, "{} bytes: {:.400}", answer.body.len(), answer.text());
    }
}

/// Sends a request head that announces a body of `length` bytes, and no body.
fn announce_body(server: &Server, client: &Client, run: &str, length: usize) -> std::net::TcpStream {
    let mut stream = connect(server);
    let token = client.token.as_deref().unwrap();
    let head = format!(
        "POST /v1/runs/{run}/tools/write_file HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream
}

#[rstest]
#[tokio::test]
async fn bodies_wait_for_memory_and_small_bodies_do_not_wait_for_large_ones(
    #[values(Backend::Sqlite)] backend: Backend,
) {
    let setup = Setup::new(backend)
        .arg("--max-body-bytes", MIB)
        .arg("--max-memory-bytes", 8 * MIB)
        .arg("--client-timeout-seconds", 3);
    let server = Server::start_with(setup).await;
    let run = server.run(json!({})).await;
    let input = |name: &str| json!({"path": name, "content": "x".repeat(500_000), "reason": "r", "dryRun": true});
    // Three quarters of 4 MiB are for large bodies: one of each of three runs.
    let mut held = Vec::new();
    for _ in 0..3 {
        let other = server.run(json!({})).await;
        held.extend((0..2).map(|_| announce_body(&server, &other.agent, &other.id, MIB)));
    }
    // They wait for memory by now, or have it.
    tokio::time::sleep(Duration::from_secs(1)).await;
    // Small bodies do not wait, and a large one does not wait behind the second ones of the others.
    run.create("small.txt", "s\n").await;
    assert_eq!(run.call("write_file", input("late.txt")).await.refusal(), "PATCH_BUDGET_EXCEEDED");
    for stream in &mut held {
        // Each announced body has timed out.
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        let status = answer.get(..12).unwrap_or_default();
        assert!(["HTTP/1.1 400", "HTTP/1.1 429", "HTTP/1.1 503"].contains(&status), "{answer:.100}");
    }
    assert_eq!(run.call("write_file", input("after.txt")).await.refusal(), "PATCH_BUDGET_EXCEEDED");
}

/// Sends a call and does not read the answer.
fn send_without_reading(server: &Server, client: &Client, path: &str, body: &Value) -> std::net::TcpStream {
    let mut stream = connect(server);
    let (token, body) = (client.token.as_deref().unwrap(), body.to_string());
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).unwrap();
    stream
}

/// A text of almost 1 MiB whose bytes each take two in JSON.
fn quotes() -> String {
    format!("{}\n", "\"".repeat(1000)).repeat(1000)
}

#[rstest]
#[tokio::test]
async fn unread_answers_use_no_more_than_the_configured_memory(#[values(Backend::Sqlite)] backend: Backend) {
    let setup = Setup::new(backend).arg("--max-memory-bytes", 96 * MIB).arg("--client-timeout-seconds", 20);
    let server = Server::start_with(setup).await;
    let run = server.run(json!({})).await;
    run.put("quotes.txt", quotes());
    let path = format!("/v1/runs/{}/batch", run.id);
    let read = json!({"tool": "diff_workspace", "input": {"maxBytes": MIB}});
    let calls = json!({"calls": vec![read; 100]});
    let whole = run.agent.post(&path, calls.clone()).await;
    assert_eq!(whole.header("content-length"), whole.body.len().to_string());
    assert!(whole.body.len() > 16 * MIB, "{} bytes", whole.body.len());
    let held = async {
        let held: Vec<_> = (0..24).map(|_| send_without_reading(&server, &run.agent, &path, &calls)).collect();
        // The service takes what memory it takes for them.
        tokio::time::sleep(Duration::from_secs(10)).await;
        held
    };
    let (held, growth) = server.peak_growth(held).await;
    assert_growth("24 answers of 16 MiB", growth, 224);
    // Small answers work as before. A large one is truncated or refused.
    run.ok("stat_path", json!({"path": "quotes.txt"})).await;
    let late = run.agent.post(&path, calls.clone()).await;
    assert!(late.status == 503 || late.body.len() < whole.body.len(), "{} bytes", late.body.len());
    drop(held);
    let is_whole = async || run.agent.post(&path, calls.clone()).await.body.len() == whole.body.len();
    until("the memory is free again", is_whole).await;
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn callers_without_a_token_do_not_exhaust_the_answer_memory(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start_with(Setup::new(backend).arg("--max-memory-bytes", 16 * MIB)).await;
    let run = server.run(json!({})).await;
    run.put("quotes.txt", "\"".repeat(200 * 1024));
    let held: Vec<_> = (0..120)
        .map(|_| {
            let mut stream = connect(&server);
            stream.write_all(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            stream
        })
        .collect();
    // The service takes what memory it takes for them.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let read = run.ok("read_files", json!({"paths": ["quotes.txt"]})).await;
    assert_eq!(read["files"]["quotes.txt"]["status"], "OK");
    drop(held);
}

#[rstest]
#[tokio::test]
async fn a_change_of_too_many_files_is_refused_before_any_is_read(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "one\nsame\n")]).await;
    let named = |count: usize| (0..count).map(|number| format!("none/{number}.txt"));
    let over = |refused: &Value, actual: u64| {
        assert_eq!((&refused["limit"], &refused["actual"]), (&json!(20), &json!(actual)), "{refused}");
        assert_eq!(refused["reasons"], json!(["budget:maxFilesTouched"]), "{refused}");
    };
    // The files are missing and one is denied. The refusal reports neither.
    run.patch(&patch_of(named(20))).await.refused("NOT_FOUND");
    let refused = run.patch(&patch_of(named(20).chain([".env".to_owned()]))).await.refused("PATCH_BUDGET_EXCEEDED");
    over(&refused, 21);
    // Lock files count, the source of a copy does not.
    run.patch(&patch_of(named(19).chain(["Cargo.lock".to_owned()]))).await.refused("NOT_FOUND");
    let copy = |to: &str| format!("diff --git a/a.txt b/{to}\nsimilarity index 100%\ncopy from a.txt\ncopy to {to}\n");
    let copies: String = (0..20).map(|number| copy(&format!("copy{number}.txt"))).collect();
    assert_eq!(run.patch(&copies).await.ok()["filesTouched"].as_array().unwrap().len(), 20);
    // The state of the run, the syntax of the patch and the paths are checked first.
    run.patch(&(patch_of(named(21)) + "garbage\n")).await.refused("PATCH_INVALID");
    run.patch(&patch_of(named(21).chain(["../x".to_owned()]))).await.refused("PATH_REJECTED");
    // The calls of an atomic batch count together.
    let delete = |path: String| json!({"tool": "delete_file", "input": {"path": path, "expectedSha256": "0".repeat(64), "reason": "r"}});
    let calls: Vec<_> = named(21).map(delete).collect();
    let batch =
        run.agent.post(&format!("/v1/runs/{}/batch", run.id), json!({"atomic": true, "calls": calls})).await.ok();
    assert_eq!(batch["failedCall"], 20, "{batch:#}");
    over(&batch["results"][20]["answer"], 21);
    // A revert counts the files that it would change.
    for number in 20..24 {
        run.create(&format!("copy{number}.txt"), "x\n").await;
    }
    let refused = run.call("revert_calls", json!({"toSeq": 0, "reason": "r"})).await.refused("PATCH_BUDGET_EXCEEDED");
    over(&refused, 24);
    run.operator.post(&format!("/v1/runs/{}/close", run.id), json!({})).await.ok();
    run.patch(&patch_of(named(21))).await.refused("RUN_CLOSED");
}

#[rstest]
#[tokio::test]
async fn a_patch_loads_no_more_content_than_the_limit_of_a_call(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start(backend).await;
    let run = server.run_with_files(&[("a.txt", "one\nsame\n")], json!({"policy": {"budget": any_budget()}})).await;
    run.ok("apply_patch", json!({"patch": patch_of(["a.txt".to_owned()].into_iter()), "reason": "r"})).await;
    let text = text_of(MIB);
    let files: Vec<_> = (0..400).map(|number| format!("big/{number}.txt")).collect();
    for file in &files {
        run.put(file, &text);
    }
    let copy = |to: usize| {
        format!("diff --git a/big/0.txt b/copy/{to}\nsimilarity index 100%\ncopy from big/0.txt\ncopy to copy/{to}\n")
    };
    let read: String = patch_of(files.into_iter());
    let made: String = (0..400).map(copy).collect();
    for (what, patch) in [("a patch of 400 MiB", read), ("copies of 400 MiB", made)] {
        let (answer, growth) = server.peak_growth(run.patch(&patch)).await;
        let refused = answer.refused("PATCH_BUDGET_EXCEEDED");
        assert_eq!(
            (&refused["limit"], &refused["reasons"]),
            (&json!(32 * MIB), &json!(["call:contentBytes"])),
            "{refused}"
        );
        assert!(refused["actual"].as_u64().unwrap() > 32 * MIB as u64, "{refused}");
        assert_growth(what, growth, 64);
    }
    // A refusal with higher precedence is still reported.
    let last = patch_of((0..400).map(|number| format!("big/{number}.txt")).chain([".env".to_owned()]));
    run.patch(&last).await.refused("POLICY_DENIED_SECRET");
    let conflict = patch_of((0..399).map(|number| format!("big/{number}.txt")))
        + "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n-none\n+two\n same\n";
    assert_eq!(run.patch(&conflict).await.refusal(), "PATCH_BUDGET_EXCEEDED");
}

#[rstest]
#[tokio::test]
async fn a_patch_with_many_conflicts_lists_the_first_ones(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start(backend).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({"policy": {"budget": any_budget()}})).await;
    let line = format!("{}\n", "y".repeat(190));
    for number in 0..40 {
        run.put(&format!("c/{number}.txt"), line.repeat(700));
    }
    let hunk = |at: usize| format!("@@ -{at},3 +{at},3 @@\n x\n-old\n+new\n x\n");
    let hunks: String = (0..60).map(|number| hunk(1 + number * 7)).collect();
    let section = |number: usize| format!("--- a/c/{number}.txt\n+++ b/c/{number}.txt\n{hunks}");
    let patch: String = (0..40).map(section).collect();
    let (answer, growth) = server.peak_growth(run.patch(&patch)).await;
    let refused = answer.refused("PATCH_CONFLICT");
    assert_eq!(refused["conflicts"].as_array().unwrap().len(), 100);
    assert!(refused["message"].as_str().unwrap().starts_with("2400 hunks do not match"), "{}", refused["message"]);
    assert_growth("2,400 conflicts", growth, 48);
}

#[rstest]
#[tokio::test]
async fn a_batch_loads_no_more_content_than_the_limit_of_a_call(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start(backend).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({"policy": {"budget": any_budget()}})).await;
    run.put("big.txt", text_of(MIB - 10));
    run.put("quotes.txt", quotes());
    run.accept_tree().await;
    let path = format!("/v1/runs/{}/batch", run.id);
    let read = json!({"tool": "diff_workspace", "input": {"path": "quotes.txt", "maxBytes": MIB}});
    let edit = json!({"tool": "edit_file", "input": {"path": "big.txt", "oldString": "one", "newString": "one", "replaceAll": true, "reason": "r"}});
    let edits: Vec<_> = (0..100)
        .map(|number| {
            let (old, new) = if number % 2 == 0 { ("one\n", "two\n") } else { ("two\n", "one\n") };
            let mut edit = edit.clone();
            (edit["input"]["oldString"], edit["input"]["newString"]) = (json!(old), json!(new));
            edit
        })
        .collect();
    run.agent.post(&path, json!({"calls": [read.clone()]})).await;
    let (answer, growth) = server.peak_growth(run.agent.post(&path, json!({"calls": vec![read.clone(); 100]}))).await;
    let batch = answer.ok();
    let skipped = batch["skipped"].as_u64().unwrap();
    assert!((90..100).contains(&skipped) && batch["ok"] == false, "{skipped} of 100 calls were skipped");
    assert_growth("answers of a batch", growth, 128);
    for calls in [vec![read; 100], edits] {
        let (answer, growth) = server.peak_growth(run.agent.post(&path, json!({"calls": calls, "atomic": true}))).await;
        let batch = answer.ok();
        let failed = usize::try_from(batch["failedCall"].as_u64().unwrap()).unwrap();
        let refused = &batch["results"][failed]["answer"];
        assert_eq!(
            (&refused["code"], &refused["limit"]),
            (&json!("PATCH_BUDGET_EXCEEDED"), &json!(32 * MIB)),
            "{refused}"
        );
        assert_growth("an atomic batch", growth, 160);
    }
    assert!(items(&run.operator, &format!("/v1/runs/{}/audit?limit=1000", run.id)).await.len() > 200);
}

#[rstest]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_patches_are_in_memory_once(#[values(Backend::Sqlite)] backend: Backend) {
    const LINES: usize = 200_000;
    let server = Server::start(backend).await;
    // Such a file would need an approval by default.
    let run = server.run_with_files(&[], json!({"policy": {"fileBudget": "DENY"}})).await;
    let patch = format!("--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1,{LINES} @@\n{}", "+\n".repeat(LINES));
    let calls = async {
        let calls: Vec<_> = (0..32)
            .map(|_| {
                let (run, patch) = (run.clone(), patch.clone());
                tokio::spawn(async move {
                    run.call("apply_patch", json!({"patch": patch, "reason": "r", "dryRun": true})).await
                })
            })
            .collect();
        for call in calls {
            call.await.unwrap().refused("PATCH_BUDGET_EXCEEDED");
        }
    };
    let ((), growth) = server.peak_growth(calls).await;
    // 160 to 211 MiB; 355 if each stayed parsed while it waits.
    assert_growth("32 patches of 0.6 MB", growth, 280);
}

#[rstest]
#[tokio::test]
async fn a_revert_loads_no_more_content_than_the_limit_of_a_call(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start(backend).await;
    let run = server.run_with_files(&[], json!({"policy": {"budget": any_budget()}})).await;
    for number in 0..40 {
        run.create(&format!("{number}.txt"), &text_of(MIB)).await;
    }
    let (answer, growth) = server.peak_growth(run.call("revert_calls", json!({"toSeq": 0, "reason": "r"}))).await;
    let refused = answer.refused("PATCH_BUDGET_EXCEEDED");
    assert_eq!(
        (&refused["limit"], &refused["reasons"]),
        (&json!(32 * MIB), &json!(["call:contentBytes"])),
        "{refused}"
    );
    assert_growth("a revert of 40 MiB", growth, 96);
    run.ok("revert_calls", json!({"toSeq": 21, "reason": "r", "dryRun": true})).await;
}

#[rstest]
#[tokio::test]
async fn an_expression_that_is_expensive_to_compile_is_refused(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start(backend).await;
    let run = server.run_with_files(&[("a.txt", "abc\n")], json!({})).await;
    let search = |query: &str| json!({"query": query, "mode": "regex", "caseSensitive": false});
    run.ok("search_text", search("b")).await;
    for query in ["[a-z]{25000}", &r"\pL".repeat(1000), &r"[\w&&\pL]".repeat(400)] {
        let (answer, growth) = server.peak_growth(run.call("search_text", search(query))).await;
        let refused = answer.refused("INVALID_REQUEST");
        assert!(refused["limit"].is_u64(), "{refused}");
        assert_growth(query, growth, 16);
    }
    let (answer, growth) = server.peak_growth(run.call("search_text", search(r"\w{100}"))).await;
    answer.ok();
    assert_growth("the largest expression", growth, 64);
}

#[rstest]
#[tokio::test]
async fn runs_with_the_same_policy_share_its_globs(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start(backend).await;
    let globs: Vec<_> = (0..40).map(|number| format!("**/{}{number}/**", "?".repeat(400))).collect();
    let mut runs = Vec::new();
    for _ in 0..6 {
        runs.push(server.run(json!({"policy": {"deny": globs}})).await);
    }
    runs[0].ok("list_dir", json!({})).await;
    let open_others = async {
        for run in &runs[1..] {
            run.ok("list_dir", json!({})).await;
        }
    };
    let ((), growth) = server.peak_growth(open_others).await;
    assert_growth("runs of one policy", growth, 12);
}
