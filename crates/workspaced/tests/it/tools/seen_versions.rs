//! `expectedSha256: "seen"`: the version of a file that the token was last given.

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Client, Run, Server, sha256};

/// A call of each tool that expects the version of `path` that the token has seen.
fn calls(path: &str) -> Vec<(&'static str, Value)> {
    let patch = format!("--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-one\n+1\n");
    vec![
        ("write_file", json!({"path": path, "content": "new\n", "expectedSha256": "seen"})),
        ("edit_file", json!({"path": path, "oldString": "one", "newString": "1", "expectedSha256": "seen"})),
        (
            "replace_range",
            json!({"path": path, "startLine": 1, "endLine": 1, "content": "1\n", "expectedSha256": "seen"}),
        ),
        ("apply_patch", json!({"patch": patch, "expectedSha256": {path: "seen"}})),
        ("move_file", json!({"from": path, "to": "moved.txt", "expectedSha256": "seen"})),
        ("delete_file", json!({"path": path, "expectedSha256": "seen"})),
    ]
}

async fn call(run: &Run, tool: &str, input: Value, more: Value) -> Answer {
    let mut input = input;
    input["reason"] = json!("r");
    input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    run.call(tool, input).await
}

async fn read(run: &Run, path: &str) {
    run.ok("read_file", json!({"path": path})).await;
}

async fn write(run: &Run, path: &str, content: &str) -> Answer {
    call(run, "write_file", json!({"path": path, "content": content, "expectedSha256": "seen"}), json!({})).await
}

/// The run with another token.
async fn with_new_token(run: &Run) -> Run {
    let token = run.operator.post(&format!("/v1/runs/{}/tokens", run.id), json!({})).await.is(201);
    Run { agent: Client::new(&run.agent.base, token["token"].as_str()), ..run.clone() }
}

#[rstest]
#[tokio::test]
async fn a_file_must_be_read_before_it_is_changed(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "one\n")]).await;
    // What does not give the content does not count, and neither does what another token was given.
    let other = with_new_token(&run).await;
    read(&other, "a.txt").await;
    run.ok("stat_path", json!({"path": "a.txt"})).await;
    run.ok("list_dir", json!({})).await;
    run.ok("search_text", json!({"query": "one"})).await;
    for (tool, input) in calls("a.txt") {
        if tool == "edit_file" {
            // Its text says what the file must contain.
            call(&run, tool, input, json!({"dryRun": true})).await.ok();
            continue;
        }
        let refused = call(&run, tool, input, json!({})).await.refused("WRITE_CONFLICT");
        assert!(refused["message"].as_str().unwrap().contains("read it first"), "{tool}: {refused:#}");
        assert!(refused["hint"].as_str().unwrap().starts_with("Read it first"), "{tool}: {refused:#}");
        assert_eq!((&refused["path"], &refused["currentSha256"]), (&json!("a.txt"), &json!(sha256("one\n"))), "{tool}");
    }
    assert_eq!(run.on_disk("a.txt"), "one\n");
    read(&run, "a.txt").await;
    for (tool, input) in calls("a.txt") {
        call(&run, tool, input, json!({"dryRun": true})).await.ok();
    }
}

#[rstest]
#[tokio::test]
async fn every_way_to_be_given_a_file_counts(#[values(Backend::Sqlite)] backend: Backend) {
    let files = [("a.txt", "one\n"), ("b.txt", "b\n"), ("c.txt", "c\n"), ("long.txt", "1\n2\n3\n")];
    let (_server, run) = Run::shared(backend, &files).await;
    run.ok("read_files", json!({"paths": ["a.txt", "none.txt"]})).await;
    write(&run, "a.txt", "two\n").await.ok();
    // Its own change is the next version that it has seen.
    write(&run, "a.txt", "three\n").await.ok();
    write(&run, "none.txt", "new\n").await.ok();
    run.agent.get(&format!("/v1/runs/{}/files/b.txt", run.id)).await;
    write(&run, "b.txt", "B\n").await.ok();
    run.ok("read_file", json!({"path": "long.txt", "startLine": 2, "maxLines": 1})).await;
    write(&run, "long.txt", "short\n").await.ok();
    let put = run.agent.request(Method::PUT, &format!("/v1/runs/{}/files/put.txt", run.id)).header("x-reason", "r");
    run.agent.send(put.header("if-none-match", "*").body("put\n")).await.is(201);
    write(&run, "put.txt", "PUT\n").await.ok();
    read(&run, "c.txt").await;
    call(&run, "move_file", json!({"from": "c.txt", "to": "d.txt", "expectedSha256": "seen"}), json!({})).await.ok();
    write(&run, "d.txt", "D\n").await.ok();
    // What the token has removed may be made again, until somebody else makes it.
    write(&run, "c.txt", "again\n").await.ok();
    call(&run, "delete_file", json!({"path": "c.txt", "expectedSha256": "seen"}), json!({})).await.ok();
    let other = with_new_token(&run).await;
    other.create("c.txt", "theirs\n").await;
    let refused = write(&run, "c.txt", "mine\n").await.refused("WRITE_CONFLICT");
    assert!(refused["hint"].as_str().unwrap().starts_with("Read it first"), "{refused:#}");
}

#[rstest]
#[tokio::test]
async fn a_version_that_is_not_the_present_one_is_a_conflict(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "one\n")]).await;
    read(&run, "a.txt").await;
    let other = with_new_token(&run).await;
    other.replace("a.txt", "one\ntwo\n", &sha256("one\n")).await.ok();
    for (tool, input) in calls("a.txt") {
        let refused = call(&run, tool, input, json!({})).await.refused("WRITE_CONFLICT");
        assert!(refused["message"].as_str().unwrap().contains("has changed since"), "{tool}: {refused:#}");
        assert!(refused["diff"].as_str().unwrap().contains("+two\n"), "{tool}: {refused:#}");
    }
    // A refused read, a dry run and an earlier version give no other version.
    run.ok("read_file", json!({"path": "a.txt", "atSeq": 0})).await;
    call(
        &other,
        "write_file",
        json!({"path": "a.txt", "content": "x\n", "expectedSha256": sha256("one\ntwo\n")}),
        json!({"dryRun": true}),
    )
    .await
    .ok();
    write(&run, "a.txt", "x\n").await.refused("WRITE_CONFLICT");
    write(&other, "a.txt", "one\ntwo\nthree\n").await.ok();
    run.ok("read_file", json!({"path": "a.txt"})).await;
    run.ok("read_file", json!({"path": "a.txt", "atSeq": 0})).await;
    write(&run, "a.txt", "mine\n").await.ok();
    other.ok("delete_file", json!({"path": "a.txt", "expectedSha256": sha256("mine\n"), "reason": "r"})).await;
    write(&run, "a.txt", "again\n").await.refused("WRITE_CONFLICT");
}

#[rstest]
#[tokio::test]
async fn a_file_of_a_mount_is_another_file(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::shared(backend).await;
    let docs = server.template(&[("a.txt", "of the mount\n")]);
    let mounts = json!({"mounts": [{"name": "docs", "description": "d", "path": docs}]});
    let run = server.run_with_files(&[("a.txt", "one\n")], mounts).await;
    run.ok("read_file", json!({"path": "a.txt", "mount": "docs"})).await;
    assert_eq!(run.last_record().await["reasons"], json!(["mount:docs"]));
    write(&run, "a.txt", "x\n").await.refused("WRITE_CONFLICT");
    read(&run, "a.txt").await;
    run.ok("read_file", json!({"path": "a.txt", "mount": "docs"})).await;
    write(&run, "a.txt", "two\n").await.ok();
}

#[rstest]
#[tokio::test]
async fn what_was_seen_survives_a_restart(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let mut server = Server::start(backend).await;
    let files = [("a.txt", "one\n"), ("b.txt", "b\n"), ("c.txt", "c\n"), ("d.txt", "d\n")];
    let run = server.run_with_files(&files, json!({})).await;
    read(&run, "a.txt").await;
    run.ok("read_files", json!({"paths": ["b.txt"]})).await;
    write(&run, "b.txt", "B\n").await.ok();
    read(&run, "c.txt").await;
    with_new_token(&run).await.replace("c.txt", "C\n", &sha256("c\n")).await.ok();
    run.ok("stat_path", json!({"path": "d.txt"})).await;
    assert!(server.stop().success());
    server.restart();
    let run = server.reconnect(&run);
    write(&run, "a.txt", "two\n").await.ok();
    write(&run, "b.txt", "BB\n").await.ok();
    let refused = write(&run, "c.txt", "mine\n").await.refused("WRITE_CONFLICT");
    assert!(refused["diff"].as_str().unwrap().contains("+C\n"), "{refused:#}");
    let refused = write(&run, "d.txt", "mine\n").await.refused("WRITE_CONFLICT");
    assert!(refused["message"].as_str().unwrap().contains("read it first"), "{refused:#}");
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn the_calls_of_a_batch_see_what_the_calls_before_them_leave(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "one\n"), ("b.txt", "b\n")]).await;
    let input =
        |path: &str, content: &str| json!({"path": path, "content": content, "expectedSha256": "seen", "reason": "r"});
    let answer = run
        .batch(json!([
            {"tool": "read_file", "input": {"path": "a.txt"}},
            {"tool": "write_file", "input": input("a.txt", "two\n")},
            {"tool": "write_file", "input": input("a.txt", "three\n")},
            {"tool": "write_file", "input": input("new.txt", "n\n")},
        ]))
        .await
        .ok();
    assert_eq!(answer["ok"], true, "{answer:#}");
    assert_eq!(run.on_disk("a.txt"), "three\n");
    let answer = run.batch(json!([{"tool": "write_file", "input": input("b.txt", "B\n")}])).await.ok();
    assert_eq!(answer["results"][0]["answer"]["code"], "WRITE_CONFLICT", "{answer:#}");
    write(&run, "a.txt", "four\n").await.ok();
}

#[rstest]
#[tokio::test]
async fn an_approved_call_changes_the_version_that_its_caller_had_seen(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("Cargo.lock", "old\n"), ("a.txt", "one\n")]).await;
    let decide = async |id: &Value| {
        let path = format!("/v1/approvals/{}/approve", id.as_str().unwrap());
        run.operator.post(&path, json!({"decidedBy": "p"})).await.ok()["state"].clone()
    };
    write(&run, "Cargo.lock", "new\n").await.refused("WRITE_CONFLICT");
    read(&run, "Cargo.lock").await;
    let asked = write(&run, "Cargo.lock", "new\n").await.refused("APPROVAL_REQUIRED");
    assert_eq!(decide(&asked["approvalId"]).await, "approved");
    assert_eq!(run.on_disk("Cargo.lock"), "new\n");
    // In a batch, also with a read that is left out.
    let calls = json!([
        {"tool": "read_file", "input": {"path": "Cargo.lock"}},
        {"tool": "write_file", "input": {"path": "Cargo.lock", "content": "newer\n", "expectedSha256": "seen", "reason": "r"}},
    ]);
    let answer = run.batch(calls).await.ok();
    let id = &answer["results"][1]["answer"]["approvalId"];
    assert_eq!(decide(id).await, "approved", "{answer:#}");
    assert_eq!(run.on_disk("Cargo.lock"), "newer\n");
}

#[rstest]
#[tokio::test]
async fn the_models_view_expects_what_was_seen_unless_the_call_says_otherwise(
    #[values(Backend::Sqlite)] backend: Backend,
) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "one\n"), ("b.txt", "b\n")]).await;
    let text = async |tool: &str, mut input: Value, more: Value| {
        input["reason"] = json!("r");
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        run.text(tool, input).await
    };
    let calls = || {
        let one_file = calls("a.txt").into_iter().filter(|(tool, _)| *tool != "apply_patch");
        one_file.map(|(tool, mut input)| {
            input.as_object_mut().unwrap().remove("expectedSha256");
            (tool, input)
        })
    };
    for (tool, input) in calls() {
        for version in [json!({}), json!({"expectedSha256": null})] {
            if tool == "edit_file" {
                let mut version = version.clone();
                version["dryRun"] = json!(true);
                assert_eq!(text(tool, input.clone(), version).await.status, 200, "an edit says what it expects");
                continue;
            }
            let refused = text(tool, input.clone(), version).await;
            assert_eq!(refused.status, 409, "{tool}: {}", refused.text());
            let shown = refused.text();
            assert!(shown.starts_with("WRITE_CONFLICT: ") && shown.contains("read it first"), "{tool}: {shown}");
        }
        let given = text(tool, input, json!({"expectedSha256": sha256("one\n"), "dryRun": true})).await;
        assert_eq!(given.status, 200, "{tool}: {}", given.text());
    }
    // What is wrong with the text of an edit helps more.
    let edit = |old: &str| json!({"path": "a.txt", "oldString": old, "newString": "x"});
    assert!(text("edit_file", edit("onee"), json!({})).await.text().starts_with("EDIT_NOT_FOUND: "));
    read(&run, "a.txt").await;
    for (tool, input) in calls() {
        let answer = text(tool, input, json!({"dryRun": true})).await;
        assert_eq!(answer.status, 200, "{tool}: {}", answer.text());
    }
    with_new_token(&run).await.replace("a.txt", "one\ntwo\n", &sha256("one\n")).await.ok();
    for (tool, input) in calls() {
        let shown = text(tool, input, json!({})).await.text();
        assert!(shown.starts_with("WRITE_CONFLICT: ") && shown.contains("\n  +two\n"), "{tool}: {shown}");
        // The model is shown no hash that it could give.
        assert!(!shown.contains("sha256") && !shown.contains("expectedSha256"), "{tool}: {shown}");
    }
    // JSON has no such default: an edit needs no version.
    run.edit("b.txt", "b", "B", json!({})).await.ok();
    let patch = json!({"patch": "--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n-one\n+1\n two\n"});
    assert_eq!(text("apply_patch", patch, json!({})).await.status, 200);
}

#[rstest]
#[tokio::test]
async fn the_same_input_is_the_same_call_in_each_view(#[values(Backend::Sqlite)] backend: Backend) {
    let (_server, run) = Run::shared(backend, &[("a.txt", "one\n")]).await;
    let new = |id: &str| json!({"toolCallId": id, "path": format!("{id}.txt"), "content": "n\n", "reason": "r"});
    let first = run.ok("write_file", new("json-first")).await;
    let again = run.text("write_file", new("json-first")).await;
    assert_eq!((again.status, again.text()), (200, format!("{}\n", first["summary"].as_str().unwrap())));
    let first = run.text("write_file", new("text-first")).await;
    let again = run.ok("write_file", new("text-first")).await;
    assert_eq!(first.text(), format!("{}\n", again["summary"].as_str().unwrap()));
    let delete = json!({"toolCallId": "refused", "path": "a.txt", "reason": "r"});
    assert!(run.text("delete_file", delete.clone()).await.text().contains("read it first"));
    run.call("delete_file", delete).await.refused("WRITE_CONFLICT");
    assert_eq!(run.on_disk("a.txt"), "one\n");
}

#[rstest]
#[tokio::test]
async fn a_file_that_somebody_else_removed_can_be_made_again(#[values(Backend::Sqlite)] backend: Backend) {
    let policy = json!({"policy": {"outsideChanges": "RECORD"}});
    let (_server, run) = Run::shared_with(backend, &[], policy).await;
    let other = with_new_token(&run).await;
    for (path, content) in [("a.txt", "one\n"), ("Cargo.lock", "old\n")] {
        run.put(path, content);
        read(&run, path).await;
        std::fs::remove_file(run.repo.join(path)).unwrap();
        other.ok("stat_path", json!({"path": path})).await;
        let write = |mode: &str| json!({"path": path, "content": content, "mode": mode, "reason": "r"});
        let refused = run.text("write_file", write("CREATE_OR_REPLACE")).await;
        assert!(refused.text().contains("use write_file with mode CREATE_NEW"), "{}", refused.text());
        let made = run.text("write_file", write("CREATE_NEW")).await;
        assert_eq!(made.status, if path == "a.txt" { 200 } else { 202 }, "{}", made.text());
    }
    assert_eq!(run.on_disk("a.txt"), "one\n");
    let pending = run.operator.get(&format!("/v1/approvals?state=pending&run={}", run.id)).await.ok();
    let asked = &pending["items"][0];
    let path = format!("/v1/approvals/{}/approve", asked["approvalId"].as_str().unwrap());
    assert_eq!(run.operator.post(&path, json!({"decidedBy": "p"})).await.ok()["state"], "approved");
    assert_eq!(run.on_disk("Cargo.lock"), "old\n");
}
