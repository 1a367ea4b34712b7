//! Forks: runs that start with the files of another run at one of its records, merges back into that run, and the comparison of two runs.

use std::os::unix::fs::PermissionsExt as _;

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};
use tar::EntryType;

use super::changesets::{Layer, head, runner, send, with};
use crate::harness::{Answer, Backend, Run, Server, Setup, assert_chain, sha256};

const LINES: &str = "one\ntwo\nthree\nfour\nfive\n";

async fn fork_with(server: &Server, of: &Run, at: Option<u64>, extra: Value) -> Answer {
    let mut source = json!({"type": "run", "runId": of.id});
    source.as_object_mut().unwrap().extend(at.map(|seq| ("atSeq".to_owned(), json!(seq))));
    server.operator().post("/v1/runs", with(&json!({"source": source}), &extra)).await
}

async fn fork(server: &Server, of: &Run, at: Option<u64>) -> Run {
    let created = fork_with(server, of, at, json!({})).await.is(201);
    server.run_from(&created).await
}

async fn merge(into: &Run, from: &Run, extra: Value) -> Answer {
    let body = with(&json!({"from": from.id, "reason": "it is the better one"}), &extra);
    into.operator.post(&format!("/v1/runs/{}/merge", into.id), body).await
}

async fn text(run: &Run, path: &str) -> String {
    let answer = run.agent.get(&format!("/v1/runs/{}/files/{path}", run.id)).await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.text()
}

async fn replace(run: &Run, path: &str, old: &str, new: &str) {
    run.replace(path, new, &sha256(old)).await.ok();
}

/// Checks that the chain of a run is whole, and that its files are those of its records.
async fn assert_whole(run: &Run) {
    assert_chain(&run.id, &run.audit().await);
    let verified = run.verify().await;
    assert_eq!(verified["intact"], true, "{verified:#}");
    let drift = run.operator.get(&format!("/v1/runs/{}/drift", run.id)).await.ok();
    assert_eq!(drift["items"], json!([]), "{drift:#}");
}

async fn last_of(run: &Run, tool: &str) -> Value {
    let records = run.audit().await;
    records.into_iter().rfind(|record| record["tool"] == tool).unwrap()
}

fn paths(answer: &Value, member: &str) -> Vec<String> {
    answer[member].as_array().unwrap().iter().map(|path| path.as_str().unwrap().to_owned()).collect()
}

#[rstest]
#[tokio::test]
async fn a_fork_has_the_files_of_one_record_and_its_own_history(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let files =
        [("a.txt", LINES), ("gone.txt", "g\n"), ("kept/k.txt", "k\n"), (".gitignore", "*.log\n"), ("x.log", "l\n")];
    let policy = json!({"policy": {"ignoredFiles": "ALLOW", "deny": ["hidden/**"]}, "labels": {"ticket": "7"}});
    let (server, run) = Run::shared_with(backend, &files, policy).await;
    let runner = runner(&run, &[]).await;
    let layer = Layer::new()
        .file("a.txt", "changed\n")
        .entry("bin/run.sh", EntryType::Regular, 0o755, b"#!/bin/sh\n")
        .link("to-a", EntryType::Symlink, "a.txt")
        .entry("pic.bin", EntryType::Regular, 0o644, b"\0\x01")
        .entry(".wh.gone.txt", EntryType::Regular, 0o644, b"")
        .bytes();
    let set = json!({"basedOnSeq": head(&run).await, "reason": "r"});
    let at = send(&runner, &set, &layer).await.ok()["seq"].as_u64().unwrap();
    run.create("later.txt", "later\n").await;
    // Not part of any record.
    run.put("drift.txt", "from outside\n");

    let early = fork(&server, &run, Some(at)).await;
    let late = fork(&server, &run, None).await;
    let start = fork(&server, &run, Some(0)).await;
    for (forked, has_changes, has_later) in [(&early, true, false), (&late, true, true), (&start, false, false)] {
        assert_eq!(text(forked, "a.txt").await, if has_changes { "changed\n" } else { LINES });
        assert_eq!(text(forked, "kept/k.txt").await, "k\n");
        assert_eq!(forked.has("later.txt").await, has_later);
        assert_eq!(forked.has("gone.txt").await, !has_changes);
        assert!(!forked.has("drift.txt").await);
        assert_eq!(forked.on_disk("x.log"), "l\n", "a file that git ignores");
        if has_changes {
            assert_eq!(text(forked, "to-a").await, "changed\n");
            assert_eq!(std::fs::read_link(forked.file("to-a")).unwrap().to_str(), Some("a.txt"));
            let mode = std::fs::metadata(forked.file("bin/run.sh")).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o755);
            assert_eq!(std::fs::read(forked.file("pic.bin")).unwrap(), b"\0\x01");
        }
        assert_whole(forked).await;
    }

    // Each says where it comes from, and the other run says which forks it has.
    let records = run.audit().await;
    let record = |seq: u64| records.iter().find(|record| record["seq"] == seq).unwrap();
    let shown = early.get().await;
    assert_eq!(shown["source"], json!({"type": "run", "runId": run.id, "atSeq": at}));
    assert_eq!((&shown["parent"]["runId"], &shown["parent"]["seq"]), (&json!(run.id), &json!(at)));
    assert_eq!(shown["parent"]["hash"], record(at)["hash"]);
    assert_eq!(shown["parent"]["source"]["type"], "directory");
    assert_eq!((&shown["forks"], &shown["labels"]), (&json!([]), &json!({})));
    assert_eq!(shown["policy"], run.get().await["policy"], "by default that of the other run");
    assert_eq!((&shown["counts"]["mutations"], &shown["baseCommit"]), (&json!(0), &run.get().await["baseCommit"]));
    let first = &early.audit().await[0];
    assert_eq!((&first["tool"], &first["input"]["parent"]["seq"]), (&json!("run.create"), &json!(at)));
    assert_eq!(first["input"]["parent"]["hash"], record(at)["hash"]);
    assert_eq!(first["pathsWritten"], json!(["a.txt", "bin/run.sh", "gone.txt", "pic.bin", "to-a"]));
    let forks = run.get().await["forks"].clone();
    let expected: Vec<_> = [(&start, 0), (&late, at + 2), (&early, at)]
        .map(|(forked, seq)| json!({"runId": forked.id, "atSeq": seq, "state": "open"}))
        .into();
    assert_eq!(forks, json!(expected));
    let noted: Vec<_> = records.iter().filter(|record| record["tool"] == "run.fork").collect();
    assert_eq!(noted.len(), 3);
    assert_eq!(noted[0]["input"], json!({"child": early.id, "atSeq": at}));
    assert_chain(&run.id, &records);

    // The diff from the base has what was taken over, and the first record is the state that the fork starts with.
    let diff = early.ok("diff_workspace", json!({})).await;
    assert!(diff["diff"].as_str().unwrap().contains("+changed"), "{diff:#}");
    let taken_over = early.artifact(first["artifactUris"][0].as_str().unwrap()).await;
    for part in ["+changed\n", "new file mode 100755\n", "new file mode 120000\n", "deleted file mode 100644\n"] {
        assert!(taken_over.contains(part), "{part}: {taken_over}");
    }
    replace(&early, "a.txt", "changed\n", "again\n").await;
    early.ok("read_file", json!({"path": "a.txt", "atSeq": 1})).await;
    let undone = early.ok("revert_calls", json!({"toSeq": 1, "reason": "r"})).await;
    assert_eq!((text(&early, "a.txt").await.as_str(), &undone["ok"]), ("changed\n", &json!(true)));
    assert_eq!(text(&run, "a.txt").await, "changed\n");

    // It needs nothing of the other run.
    run.operator.delete(&format!("/v1/runs/{}", run.id)).await.ok();
    replace(&late, "later.txt", "later\n", "latest\n").await;
    assert_eq!(text(&late, "a.txt").await, "changed\n");
    assert_whole(&late).await;
    fork_with(&server, &run, None, json!({})).await.refused("RUN_CLOSED");
    let of_fork = fork(&server, &late, None).await;
    assert_eq!(text(&of_fork, "later.txt").await, "latest\n");
    assert_eq!(of_fork.get().await["parent"]["source"]["type"], "directory");
}

/// The budget of a fork counts what the fork itself changes, and its first record is a mutation if it takes over files.
#[rstest]
#[tokio::test]
async fn a_file_that_was_taken_over_counts_once_the_fork_changes_it(#[values(Backend::Sqlite)] backend: Backend) {
    let policy = json!({"policy": {"runBudget": {"maxFilesTouched": 2}}});
    let (server, run) = Run::shared_with(backend, &[("a.txt", "a\n")], policy).await;
    let early = fork(&server, &run, None).await;
    replace(&run, "a.txt", "a\n", "one\n").await;
    run.create("b.txt", "b\n").await;
    let forked = fork(&server, &run, None).await;
    for (one, mutates) in [(&early, false), (&forked, true)] {
        let first = one.audit().await[0].clone();
        assert_eq!((&first["tool"], &first["mutates"]), (&json!("run.create"), &json!(mutates)));
        let own = one.agent.get(&format!("/v1/runs/{}", one.id)).await.ok();
        assert_eq!(own["usage"]["runBudget"]["filesTouched"], 0, "{own:#}");
    }
    replace(&forked, "a.txt", "one\n", "two\n").await;
    replace(&forked, "a.txt", "two\n", "three\n").await;
    replace(&forked, "b.txt", "b\n", "bb\n").await;
    let input = json!({"path": "c.txt", "content": "c\n", "reason": "r"});
    let refused = forked.call("write_file", input).await;
    assert_eq!(refused.refused("PATCH_BUDGET_EXCEEDED")["reasons"], json!(["runBudget:maxFilesTouched"]));
    let own = forked.agent.get(&format!("/v1/runs/{}", forked.id)).await.ok();
    assert_eq!(own["usage"]["runBudget"]["filesTouched"], 2, "{own:#}");
}

#[rstest]
#[tokio::test]
async fn a_fork_is_refused_without_a_trace(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let source = |members: Value| json!({"source": with(&json!({"type": "run"}), &members)});
    let operator = server.operator();
    operator.post("/v1/runs", source(json!({"runId": "none"}))).await.refused("RUN_NOT_FOUND");
    operator.post("/v1/runs", source(json!({}))).await.refused("INVALID_REQUEST");
    operator.post("/v1/runs", source(json!({"runId": run.id, "atSeq": -1}))).await.refused("INVALID_REQUEST");
    let refused = operator.post("/v1/runs", source(json!({"runId": run.id, "atSeq": 99}))).await;
    assert_eq!(refused.refused("INVALID_REQUEST")["limit"], 1);
    run.agent.post("/v1/runs", source(json!({"runId": run.id}))).await.refused("FORBIDDEN");
    server.auditor().post("/v1/runs", source(json!({"runId": run.id}))).await.refused("FORBIDDEN");
    let waiting = server.run(json!({"source": {"type": "archive"}})).await;
    operator.post("/v1/runs", source(json!({"runId": waiting.id}))).await.refused("RUN_CLOSED");
    fork_with(&server, &run, None, json!({"runId": run.id})).await.refused("ALREADY_EXISTS");
    assert_eq!(run.get().await["forks"], json!([]));
    assert_eq!(head(&run).await, 1);
    // A closed run can be forked, with another policy and under a key.
    run.operator.post(&format!("/v1/runs/{}/close", run.id), json!({})).await.ok();
    let forked = fork_with(&server, &run, None, json!({"policy": {"profile": "READ_ONLY"}})).await.is(201);
    assert_eq!((&forked["run"]["policy"]["profile"], &forked["run"]["state"]), (&json!("READ_ONLY"), &json!("open")));
    assert_eq!(forked["run"]["headSeq"], 1);
}

#[rstest]
#[tokio::test]
async fn a_merge_applies_what_is_new_in_the_fork(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let files = [("a.txt", LINES), ("b.txt", LINES), ("c.txt", LINES), ("gone.txt", "g\n")];
    let (server, run) = Run::shared(backend, &files).await;
    replace(&run, "a.txt", LINES, "one\n2\nthree\nfour\nfive\n").await;
    let forked = fork(&server, &run, None).await;
    // Other lines of the same file, and files that only one of them changes.
    replace(&run, "a.txt", "one\n2\nthree\nfour\nfive\n", "1\n2\nthree\nfour\nfive\n").await;
    replace(&run, "c.txt", LINES, "one\ntwo\nthree\nfour\n5\n").await;
    replace(&forked, "a.txt", "one\n2\nthree\nfour\nfive\n", "one\n2\nthree\nfour\n5\n").await;
    replace(&forked, "b.txt", LINES, "b\n").await;
    forked.create("new.txt", "new\n").await;
    forked.ok("delete_file", json!({"path": "gone.txt", "reason": "r", "expectedSha256": sha256("g\n")})).await;
    let merged_from = head(&forked).await;

    let before = run.snapshot();
    let conflict = merge(&run, &forked, json!({})).await.refused("WRITE_CONFLICT");
    assert_eq!(conflict["path"], "a.txt");
    let tried = merge(&run, &forked, json!({"onConflict": "merge", "dryRun": true})).await.ok();
    assert_eq!(paths(&tried, "merged"), ["a.txt"]);
    assert_eq!(run.snapshot(), before);
    assert_eq!(run.get().await["forks"][0].get("mergedSeq"), None);
    assert_eq!(head(&forked).await, merged_from, "nothing was merged");

    let merged = merge(&run, &forked, json!({"onConflict": "merge"})).await.ok();
    assert_eq!(
        (paths(&merged, "merged"), paths(&merged, "applied")),
        (vec!["a.txt".to_owned()], ["b.txt", "gone.txt", "new.txt"].map(str::to_owned).to_vec(),)
    );
    assert_eq!(merged["mergedSeq"], merged_from);
    assert_eq!(text(&run, "a.txt").await, "1\n2\nthree\nfour\n5\n");
    assert_eq!((text(&run, "b.txt").await, text(&run, "new.txt").await), ("b\n".to_owned(), "new\n".to_owned()));
    assert!(!run.has("gone.txt").await);
    assert_eq!(text(&run, "c.txt").await, "one\ntwo\nthree\nfour\n5\n");
    let record = last_of(&run, "apply_changeset").await;
    assert_eq!((&record["outcome"], &record["by"]), (&json!("ok"), &json!("operator")));
    let noted = last_of(&forked, "run.merge").await;
    let input = json!({"into": run.id, "toolCallId": merged["toolCallId"], "seq": merged_from});
    assert_eq!(noted["input"], input);
    assert_eq!(run.get().await["forks"][0]["mergedSeq"], merged_from);
    assert_eq!(forked.get().await["parent"]["mergedSeq"], merged_from);
    assert_eq!(text(&forked, "a.txt").await, "one\n2\nthree\nfour\n5\n", "the fork stays as it is");

    // Again: nothing is new but what the fork has done since. What was merged before counts as common, also where the run has other lines.
    let nothing = merge(&run, &forked, json!({})).await.ok();
    assert_eq!((paths(&nothing, "applied"), paths(&nothing, "merged")), (Vec::<String>::new(), Vec::new()));
    replace(&forked, "a.txt", "one\n2\nthree\nfour\n5\n", "one\n2\n3\nfour\n5\n").await;
    replace(&forked, "c.txt", LINES, "1\ntwo\nthree\nfour\nfive\n").await;
    replace(&forked, "b.txt", "b\n", "bb\n").await;
    assert_eq!(merge(&run, &forked, json!({})).await.refused("WRITE_CONFLICT")["path"], "a.txt");
    let again = merge(&run, &forked, json!({"onConflict": "merge"})).await.ok();
    assert_eq!(
        (paths(&again, "merged"), paths(&again, "applied")),
        (["a.txt", "c.txt"].map(str::to_owned).to_vec(), vec!["b.txt".to_owned()],)
    );
    assert_eq!(text(&run, "a.txt").await, "1\n2\n3\nfour\n5\n");
    assert_eq!(text(&run, "c.txt").await, "1\ntwo\nthree\nfour\n5\n");
    assert_eq!(text(&run, "b.txt").await, "bb\n");

    // The same line in both cannot be merged, and nothing is.
    replace(&forked, "b.txt", "bb\n", "fork\n").await;
    replace(&run, "b.txt", "bb\n", "run\n").await;
    forked.create("other.txt", "o\n").await;
    merge(&run, &forked, json!({"onConflict": "merge"})).await.refused("WRITE_CONFLICT");
    assert!(!run.repo.join("other.txt").exists());
    for one in [&run, &forked] {
        assert_whole(one).await;
    }
}

#[rstest]
#[tokio::test]
async fn forks_of_forks_and_closed_forks_are_merged(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let child = fork(&server, &run, None).await;
    child.create("child.txt", "c\n").await;
    let grandchild = fork(&server, &child, None).await;
    grandchild.create("grandchild.txt", "g\n").await;
    let refused = merge(&run, &grandchild, json!({})).await.refused("INVALID_REQUEST");
    assert!(refused["detail"].as_str().unwrap().contains("is not a fork of"), "{refused:#}");
    merge(&child, &run, json!({})).await.refused("INVALID_REQUEST");
    merge(&run, &run, json!({})).await.refused("INVALID_REQUEST");
    let none = json!({"from": "none", "reason": "r"});
    run.operator.post(&format!("/v1/runs/{}/merge", run.id), none).await.refused("RUN_NOT_FOUND");
    grandchild.operator.post(&format!("/v1/runs/{}/close", grandchild.id), json!({})).await.ok();
    assert_eq!(paths(&merge(&child, &grandchild, json!({})).await.ok(), "applied"), ["grandchild.txt"]);
    assert_eq!(paths(&merge(&run, &child, json!({})).await.ok(), "applied"), ["child.txt", "grandchild.txt"]);
    assert_eq!(text(&run, "grandchild.txt").await, "g\n");
    assert_eq!(child.get().await["forks"][0]["state"], "closed");
    let body = json!({"from": child.id, "reason": "r"});
    run.agent.post(&format!("/v1/runs/{}/merge", run.id), body).await.refused("FORBIDDEN");
    child.create("more.txt", "m\n").await;
    run.operator.post(&format!("/v1/runs/{}/close", run.id), json!({})).await.ok();
    merge(&run, &child, json!({})).await.refused("RUN_CLOSED");
    child.operator.delete(&format!("/v1/runs/{}", grandchild.id)).await.ok();
    merge(&child, &grandchild, json!({})).await.refused("RUN_CLOSED");
    for one in [&run, &child] {
        assert_whole(one).await;
    }
}

#[rstest]
#[tokio::test]
async fn a_merge_is_judged_by_the_policy_of_the_run(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let policy = json!({"policy": {"deny": ["locked/**"], "ask": ["asked/**"]}});
    let (server, run) = Run::shared_with(backend, &[("a.txt", LINES), ("asked/a.txt", "a\n")], policy).await;
    let created = fork_with(&server, &run, None, json!({"policy": {}})).await.is(201);
    let forked = server.run_from(&created).await;
    forked.create("locked/l.txt", "l\n").await;
    replace(&forked, "a.txt", LINES, "one\ntwo\nthree\nfour\n5\n").await;
    let denied = merge(&run, &forked, json!({})).await.refused("POLICY_DENIED");
    assert_eq!(denied["path"], "locked/l.txt");
    let left = merge(&run, &forked, json!({"onDenied": "leave"})).await.ok();
    assert_eq!((paths(&left, "applied"), &left["left"][0]["path"]), (vec!["a.txt".into()], &json!("locked/l.txt")));

    // What was left is no conflict when the fork changes it again: the run has not changed it.
    replace(&forked, "locked/l.txt", "l\n", "m\n").await;
    forked.create("b.txt", "b\n").await;
    let denied = merge(&run, &forked, json!({"onConflict": "merge"})).await.refused("POLICY_DENIED");
    assert_eq!(denied["path"], "locked/l.txt");
    let left = merge(&run, &forked, json!({"onDenied": "leave"})).await.ok();
    assert_eq!((paths(&left, "applied"), &left["left"][0]["path"]), (vec!["b.txt".into()], &json!("locked/l.txt")));

    // What a person has to approve is merged once they have, and with what the run has changed meanwhile.
    replace(&forked, "asked/a.txt", "a\n", "b\n").await;
    replace(&forked, "a.txt", "one\ntwo\nthree\nfour\n5\n", "one\ntwo\n3\nfour\n5\n").await;
    let waiting = merge(&run, &forked, json!({"onConflict": "merge"})).await.is(202);
    // A merge that waits for approval is not applied after a later one, which may have undone what it brings.
    forked.create("c.txt", "c\n").await;
    replace(&forked, "asked/a.txt", "b\n", "a\n").await;
    merge(&run, &forked, json!({"onConflict": "merge"})).await.ok();
    let approve = format!("/v1/approvals/{}/approve", waiting["approvalId"].as_str().unwrap());
    let late = server.operator().post(&approve, json!({"onBehalfOf": "ada"})).await.ok();
    assert_eq!(late["resolution"], "failed: WRITE_CONFLICT", "{late:#}");
    replace(&forked, "asked/a.txt", "a\n", "b\n").await;
    let newest = head(&forked).await;
    let asked = merge(&run, &forked, json!({"onConflict": "merge"})).await.is(202);
    assert_eq!(asked["code"], "APPROVAL_REQUIRED", "{asked:#}");
    assert_ne!(run.get().await["forks"][0]["mergedSeq"], newest);
    assert_eq!(text(&run, "asked/a.txt").await, "a\n");
    let approve = format!("/v1/approvals/{}/approve", asked["approvalId"].as_str().unwrap());
    server.operator().post(&approve, json!({"onBehalfOf": "ada"})).await.ok();
    assert_eq!(
        (text(&run, "asked/a.txt").await, text(&run, "a.txt").await),
        ("b\n".to_owned(), "one\ntwo\n3\nfour\n5\n".to_owned(),)
    );
    assert_eq!(run.get().await["forks"][0]["mergedSeq"], newest);
    assert_eq!(last_of(&forked, "run.merge").await["input"]["seq"], newest);
    for one in [&run, &forked] {
        assert_whole(one).await;
    }
}

#[rstest]
#[tokio::test]
async fn a_file_too_large_for_the_ledger_is_merged_once_the_run_has_it(#[values(Backend::Sqlite)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[("a.txt", "a\n")]).await;
    let forked = fork(&server, &run, None).await;
    let upload = |to: &Run| {
        let request = to.agent.request(Method::PUT, &format!("/v1/runs/{}/files/large.bin", to.id));
        let request = request.header("if-none-match", "*").header("x-reason", "r").body(vec![0; 2 << 20]);
        let agent = to.agent.clone();
        async move { agent.send(request).await.is(201) }
    };
    upload(&forked).await;
    forked.create("b.txt", "b\n").await;
    let refused = merge(&run, &forked, json!({})).await.refused("FILE_TOO_LARGE");
    assert_eq!(refused["path"], "large.bin");
    upload(&run).await;
    let merged = merge(&run, &forked, json!({})).await.ok();
    assert_eq!(paths(&merged, "applied"), ["b.txt"]);
    assert_whole(&run).await;
}

#[rstest]
#[tokio::test]
async fn a_fork_of_a_run_under_load_has_one_state(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[("a.txt", "0\n"), ("b.txt", "0\n")]).await;
    let writer = {
        let run = run.clone();
        tokio::spawn(async move {
            for number in 1..40 {
                let (old, new) = (format!("{}\n", number - 1), format!("{number}\n"));
                let write = |path: &str| {
                    json!({"tool": "write_file", "input": {
                        "path": path, "content": new, "expectedSha256": sha256(&old), "reason": "r"
                    }})
                };
                run.batch(json!([write("a.txt"), write("b.txt")])).await.ok();
            }
        })
    };
    let mut states = Vec::new();
    while !writer.is_finished() {
        let forked = fork(&server, &run, None).await;
        let (a, b) = (text(&forked, "a.txt").await, text(&forked, "b.txt").await);
        assert_eq!(a, b, "half of a batch");
        let seq = forked.get().await["parent"]["seq"].as_u64().unwrap();
        let at = run.ok("read_file", json!({"path": "a.txt", "atSeq": seq})).await;
        assert_eq!(at["sha256"], sha256(&a));
        states.push(forked);
    }
    writer.await.unwrap();
    for forked in &states {
        assert_whole(forked).await;
    }
}

#[rstest]
#[tokio::test]
async fn two_runs_are_compared(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (server, run) = Run::shared(backend, &[("a.txt", "a\n"), ("b.txt", "b\n"), ("same.txt", "s\n")]).await;
    let [first, second] = [fork(&server, &run, None).await, fork(&server, &run, None).await];
    for one in [&first, &second] {
        replace(one, "a.txt", "a\n", "both\n").await;
    }
    replace(&second, "b.txt", "b\n", "second\n").await;
    first.create("first.txt", "1\n").await;
    second.ok("delete_file", json!({"path": "same.txt", "reason": "r", "expectedSha256": sha256("s\n")})).await;
    let url = format!("/v1/runs/{}/compare/{}", first.id, second.id);
    let compared = server.auditor().get(&url).await.ok();
    let version = |text: &str| json!({"sha256": sha256(text), "mode": "100644"});
    assert_eq!(
        compared["files"],
        json!([
            {"path": "a.txt", "status": "same", "first": version("both\n"), "second": version("both\n")},
            {"path": "b.txt", "status": "different", "first": version("b\n"), "second": version("second\n")},
            {"path": "first.txt", "status": "onlyFirst", "first": version("1\n")},
            {"path": "same.txt", "status": "onlyFirst", "first": version("s\n")},
        ])
    );
    let [one, other] = [0, 1].map(|at| compared["runs"][at].clone());
    assert_eq!((&one["runId"], &other["runId"]), (&json!(first.id), &json!(second.id)));
    assert_eq!((&one["counts"]["mutations"], &other["counts"]["mutations"]), (&json!(2), &json!(3)));
    assert_eq!((&one["headSeq"], &one["tests"]), (&json!(head(&first).await), &json!([])));
    assert!(one["budgets"].as_array().unwrap().iter().any(|budget| budget["name"] == "maxFilesTouched"));
    // In parts.
    let part = server.operator().get(&format!("{url}?limit=3")).await.ok();
    assert_eq!((part["files"].as_array().unwrap().len(), &part["nextAfter"]), (3, &json!("first.txt")));
    let rest = server.operator().get(&format!("{url}?limit=3&after=first.txt")).await.ok();
    assert_eq!((rest["files"].as_array().unwrap().len(), rest.get("nextAfter")), (1, None));
    for bad in ["limit=0", "limit=1001", "limit=x", "other=1"] {
        server.operator().get(&format!("{url}?{bad}")).await.refused("INVALID_REQUEST");
    }
    first.agent.get(&url).await.refused("FORBIDDEN");
    server.operator().get(&format!("/v1/runs/{}/compare/none", first.id)).await.refused("RUN_NOT_FOUND");
    second.operator.delete(&format!("/v1/runs/{}", second.id)).await.ok();
    server.operator().get(&url).await.refused("RUN_CLOSED");
}

#[rstest]
#[tokio::test]
async fn a_killed_fork_is_whole_or_is_not_there(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let (mut server, armed) = Server::start_armed(Setup::new(backend)).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    run.create("b.txt", "b\n").await;
    server.until_journal_is_empty().await;
    let source = json!({"type": "run", "runId": run.id});
    for point in ["restore.made", "restore.placed", "ledger.written", "ledger.committed"] {
        std::fs::write(&armed, point).unwrap();
        let operator = server.operator();
        let request = operator.request(Method::POST, "/v1/runs").json(&json!({"runId": "forked", "source": source}));
        assert!(operator.try_send(request).await.is_err(), "{point}");
        server.wait();
        std::fs::remove_file(&armed).unwrap();
        server.restart();
        let is_there = point == "ledger.committed";
        let found = server.operator().get("/v1/runs/forked").await;
        assert_eq!(found.status, if is_there { 200 } else { 404 }, "{point}: {}", found.text());
        assert_eq!(server.workspace("forked").exists(), is_there, "{point}");
        let forks = server.reconnect(&run).get().await["forks"].clone();
        assert_eq!(forks.as_array().unwrap().len(), usize::from(is_there), "{point}: {forks}");
    }
    let token = server.operator().post("/v1/runs/forked/tokens", json!({})).await.is(201);
    let forked = Run {
        id: "forked".to_owned(),
        agent: server.operator().with_token(token["token"].as_str()),
        repo: server.repo("forked"),
        ..server.reconnect(&run)
    };
    assert_eq!((text(&forked, "a.txt").await, text(&forked, "b.txt").await), ("a\n".to_owned(), "b\n".to_owned()));
    replace(&forked, "b.txt", "b\n", "c\n").await;
    for one in [&server.reconnect(&run), &forked] {
        assert_whole(one).await;
    }
}
