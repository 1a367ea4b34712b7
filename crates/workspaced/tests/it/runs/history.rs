//! The history of a run: diffs in conflicts, and files at any record.

use reqwest::Method;
use rstest::rstest;
use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Run, sha256};

const FIRST: &str = "one\ntwo\nthree\nfour\nfive\n";
const SECOND: &str = "one\n2\nthree\nfour\nfive\n";
const THIRD: &str = "one\n2\nthree\nfour\nfive\nsix\n";

/// Calls a file route with the expected version `old`.
async fn store(run: &Run, method: Method, path: &str, old: Option<&[u8]>, body: &[u8]) -> Answer {
    let request = run.agent.request(method, &format!("/v1/runs/{}/files/{path}", run.id)).header("x-reason", "r");
    let request = match old {
        Some(old) => request.header("if-match", format!("\"{}\"", sha256(old))),
        None => request.header("if-none-match", "*"),
    };
    run.agent.send(request.body(body.to_vec())).await
}

/// Returns the refusal of every kind of call that expects version `seen` of `path`.
async fn conflicts(run: &Run, path: &str, seen: &str) -> Vec<Value> {
    let expected = sha256(seen);
    let mut refusals = Vec::new();
    for (tool, input) in [
        ("write_file", json!({"path": path, "content": "mine\n", "expectedSha256": expected, "reason": "r"})),
        (
            "edit_file",
            json!({"path": path, "oldString": "one", "newString": "1", "expectedSha256": expected, "reason": "r"}),
        ),
        ("delete_file", json!({"path": path, "expectedSha256": expected, "reason": "r"})),
        ("move_file", json!({"from": path, "to": "moved.txt", "expectedSha256": expected, "reason": "r"})),
    ] {
        refusals.push(run.call(tool, input).await.refused("WRITE_CONFLICT"));
    }
    for method in [Method::PUT, Method::DELETE] {
        let refused = store(run, method, path, Some(seen.as_bytes()), b"mine\n").await.is(412);
        assert_eq!(refused["code"], "WRITE_CONFLICT");
        refusals.push(refused);
    }
    refusals
}

#[rstest]
#[tokio::test]
async fn a_conflict_contains_the_diff_from_the_expected_version(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (_server, run) = Run::shared(backend, &[("a.txt", FIRST)]).await;
    // A concurrent writer.
    run.replace("a.txt", SECOND, &sha256(FIRST)).await.ok();
    for conflict in conflicts(&run, "a.txt", FIRST).await {
        let diff = conflict["diff"].as_str().unwrap_or_else(|| panic!("{conflict:#}"));
        assert!(diff.starts_with("diff --git a/a.txt b/a.txt\n") && diff.contains("\n-two\n+2\n three\n"), "{diff}");
        assert_eq!(conflict["currentSha256"], sha256(SECOND));
    }
    run.replace("a.txt", THIRD, &sha256(SECOND)).await.ok();
    for (seen, gone) in [(FIRST, true), (SECOND, false)] {
        for conflict in conflicts(&run, "a.txt", seen).await {
            let diff = conflict["diff"].as_str().unwrap();
            assert_eq!((diff.contains("\n-two\n+2\n"), diff.contains("\n+six\n")), (gone, true), "{diff}");
        }
    }
    run.put("a.txt", "one\n2\nfrom outside\n");
    let outside = run.ok("read_file", json!({"path": "a.txt"})).await["sha256"].clone();
    for conflict in conflicts(&run, "a.txt", THIRD).await {
        assert!(conflict["diff"].as_str().unwrap().contains("\n+from outside\n"), "{conflict:#}");
        assert_eq!(conflict["currentSha256"], outside);
    }
    for conflict in conflicts(&run, "a.txt", "a version that nobody has\n").await {
        assert_eq!(conflict.get("diff"), None, "{conflict:#}");
    }
    run.create("n.txt", "n\n").await;
    std::fs::remove_file(run.repo.join("n.txt")).unwrap();
    let input = json!({"path": "n.txt", "content": "x\n", "expectedSha256": sha256("n\n"), "reason": "r"});
    let conflict = run.call("write_file", input).await.refused("WRITE_CONFLICT");
    assert!(conflict["diff"].as_str().unwrap().contains("+++ /dev/null\n"), "{conflict:#}");
}

#[rstest]
#[tokio::test]
async fn a_conflict_contains_no_diff_that_the_caller_may_not_read(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let long = "one of many lines\n".repeat(4000);
    let files = [("a.txt", FIRST), ("long.txt", &*long), ("pic.bin", "\0a"), ("hidden/h.txt", FIRST)];
    let policy = json!({"policy": {"deny": ["hidden/**"], "budget": {"maxDeletions": 10_000}}});
    let (_server, run) = Run::shared_with(backend, &files, policy).await;
    run.replace("a.txt", SECOND, &sha256(FIRST)).await.ok();
    let cut = run.replace("long.txt", "short\n", &sha256(&long)).await.ok();
    assert_eq!(cut["deletions"], 4000);
    let stale = json!({"path": "long.txt", "content": "x\n", "expectedSha256": sha256(&long), "reason": "r"});
    let conflict = run.call("write_file", stale).await.refused("WRITE_CONFLICT");
    let diff = conflict["diff"].as_str().unwrap();
    assert!((15_000..17_000).contains(&diff.len()), "{}", diff.len());
    assert!(diff.lines().last().unwrap().starts_with("\\ truncated"), "{diff}");
    store(&run, Method::PUT, "pic.bin", Some(b"\0a"), b"\0b").await.ok();
    let binary = store(&run, Method::PUT, "pic.bin", Some(b"\0a"), b"\0c").await.is(412);
    assert_eq!(binary.get("diff"), None, "{binary:#}");
    let denied = json!({"path": "hidden/h.txt", "content": "x\n", "expectedSha256": sha256("x"), "reason": "r"});
    assert_eq!(run.call("write_file", denied).await.refused("POLICY_DENIED").get("diff"), None);
    let input = json!({"permissions": ["file:write:replace"]});
    let token = run.operator.post(&format!("/v1/runs/{}/tokens", run.id), input).await.is(201);
    let blind = Run {
        agent: crate::harness::Client::new(&run.agent.base, Some(token["token"].as_str().unwrap())),
        ..run.clone()
    };
    let stale = json!({"path": "a.txt", "content": "x\n", "expectedSha256": sha256(FIRST), "reason": "r"});
    let conflict = blind.call("write_file", stale.clone()).await.refused("WRITE_CONFLICT");
    assert_eq!(conflict.get("diff"), None, "a diff for a token without file:read");
    assert!(run.call("write_file", stale).await.refused("WRITE_CONFLICT")["diff"].is_string());
}

/// Returns the answers of three tools for all files, at record `at` if given.
async fn view(run: &Run, files: &[&str], at: Option<u64>) -> Vec<Value> {
    let mut answers = Vec::new();
    let listing = json!({"maxDepth": 20, "includeHidden": true});
    let calls = [("list_dir", listing), ("list_dir", json!({"path": "dir"})), ("diff_workspace", json!({}))];
    let reads = files.iter().map(|path| ("read_file", json!({"path": path})));
    for (tool, mut input) in calls.into_iter().chain(reads) {
        if let Some(at) = at {
            input["atSeq"] = json!(at);
        }
        let mut answer = run.call(tool, input).await.json();
        if at.is_some() && answer["ok"] == true {
            assert_eq!(answer["atSeq"], json!(at), "{tool}");
        }
        // No record has the ignored file that the tree has, so that an earlier state does not leave it out either.
        for member in ["atSeq", "toolCallId", "seq", "headHash", "message", "detail", "instance", "hint", "notShown"] {
            answer.as_object_mut().unwrap().remove(member);
        }
        answers.push(answer);
    }
    answers
}

#[rstest]
#[tokio::test]
async fn the_files_at_every_record_can_be_read(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let base = [
        ("a.txt", FIRST),
        ("dir/b.txt", "b\r\n"),
        ("dir/keep.rs", "fn main() {}\n"),
        ("dir/.hidden", "h\n"),
        (".env", "PASSWORD=x\n"),
        ("pic.bin", "\0base"),
        ("noext", "text\n"),
        (".gitignore", "*.log\n"),
    ];
    let paths =
        ["a.txt", "dir/b.txt", "c/d/c.txt", "new/n.txt", "pic.bin", ".env", "noext", "none.txt", "x.log", "dir"];
    let policy = json!({"policy": {"allowModeChange": true}});
    let (_server, run) = Run::shared_with(backend, &base, policy).await;
    run.put("x.log", "ignored\n");
    let mut states = vec![(0, view(&run, &paths, None).await)];
    let wide: Vec<u8> = [0xff, 0xfe].into_iter().chain("wide\n".encode_utf16().flat_map(u16::to_le_bytes)).collect();
    let patch = "diff --git a/dir/b.txt b/dir/b.txt\nold mode 100644\nnew mode 100755\n";
    for step in 0..8 {
        let done = match step {
            0 => run.replace("a.txt", SECOND, &sha256(FIRST)).await.ok(),
            1 => run.create("new/n.txt", "n\n").await,
            2 => store(&run, Method::PUT, "c/d/c.txt", None, &wide).await.is(201),
            3 => store(&run, Method::PUT, "pic.bin", Some(b"\0base"), b"\0other").await.ok(),
            4 => run.patch(patch).await.ok(),
            5 => {
                let input =
                    json!({"from": "dir/b.txt", "to": "new/b.txt", "expectedSha256": sha256("b\r\n"), "reason": "r"});
                run.ok("move_file", input).await
            }
            6 => run.ok("delete_file", json!({"path": "a.txt", "expectedSha256": sha256(SECOND), "reason": "r"})).await,
            _ => run.ok("revert_calls", json!({"toSeq": states[5].0, "reason": "back"})).await,
        };
        states.push((done["seq"].as_u64().unwrap(), view(&run, &paths, None).await));
    }
    // Later changes, including external ones, do not change the history.
    run.put("noext", "from outside\n");
    run.put("dir/b.txt", "from outside\n");
    for (seq, was) in &states {
        for (then, now) in was.iter().zip(view(&run, &paths, Some(*seq)).await) {
            assert_eq!(*then, now, "at {seq}");
        }
    }
    let (at, _) = states[1];
    let read = run.ok("read_file", json!({"path": "a.txt", "atSeq": at})).await;
    assert_eq!(read["sha256"], sha256(SECOND));
    let record = run.last_record().await;
    assert_eq!(record["files"][0]["oldSha256"], sha256(SECOND), "{record:#}");
    assert_eq!(record["reasons"], json!([format!("atSeq:{at}")]), "{record:#}");
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn historical_reads_are_limited_and_report_missing_content(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let server = crate::harness::Server::shared(backend).await;
    let docs = server.template(&[("m.txt", "m\n")]);
    let folder = server.template(&[("a.txt", "a\n"), ("dir/b.txt", "b\n")]);
    std::os::unix::fs::symlink("a.txt", folder.join("link")).unwrap();
    let run = server
        .run(json!({
            "source": {"type": "directory", "path": folder},
            "mounts": [{"name": "docs", "description": "d", "path": docs}],
            "policy": {"budget": {"maxBytes": 2_000_000, "maxInsertions": 100_000, "maxDeletions": 100_000}},
        }))
        .await;
    let large = "large enough\n".repeat(100_000);
    let made = store(&run, Method::PUT, "large.txt", None, large.as_bytes()).await.is(201);
    let gone = store(&run, Method::DELETE, "large.txt", Some(large.as_bytes()), b"").await.ok();
    let head = gone["seq"].as_u64().unwrap();
    for tool in ["read_file", "list_dir", "diff_workspace"] {
        let path = if tool == "read_file" { "a.txt" } else { "dir" };
        let beyond = run.call(tool, json!({"path": path, "atSeq": head + 1_000})).await.refused("INVALID_REQUEST");
        assert_eq!(beyond["actual"], head + 1_000, "{tool}");
        assert!(beyond["limit"].as_u64().unwrap() >= head, "{tool}: {beyond:#}");
        let mount = json!({"path": ".", "mount": "docs", "atSeq": 0});
        let mount = if tool == "read_file" { json!({"path": "m.txt", "mount": "docs", "atSeq": 0}) } else { mount };
        run.call(tool, mount).await.refused("INVALID_REQUEST");
        run.call(tool, json!({"path": path, "atSeq": -1})).await.refused("INVALID_REQUEST");
        run.call(tool, json!({"path": "../a.txt", "atSeq": 0})).await.refused("PATH_REJECTED");
    }
    let lost = run.call("read_file", json!({"path": "large.txt", "atSeq": made["seq"]})).await.refused("NOT_FOUND");
    assert!(lost["hint"].as_str().unwrap().contains("too large to be stored"), "{lost:#}");
    let never = run.call("read_file", json!({"path": "large.txt", "atSeq": 0})).await.refused("NOT_FOUND");
    assert!(!never["hint"].as_str().unwrap().contains("too large"), "{never:#}");
    let listed = run.ok("list_dir", json!({"atSeq": made["seq"]})).await;
    let entry = |path: &str| listed["entries"].as_array().unwrap().iter().find(|entry| entry["path"] == path).cloned();
    let large = entry("large.txt").unwrap();
    assert_eq!((&large["readable"], &large["reason"]), (&json!(false), &json!("NOT_FOUND")), "{listed:#}");
    assert_eq!(entry("link").unwrap()["type"], "symlink");
    run.call("read_file", json!({"path": "link", "atSeq": 0})).await.refused("NOT_A_FILE");
    run.call("read_file", json!({"path": "dir", "atSeq": 0})).await.refused("NOT_A_FILE");
    run.call("list_dir", json!({"path": "a.txt", "atSeq": 0})).await.refused("NOT_A_DIRECTORY");
    run.call("list_dir", json!({"path": "none", "atSeq": 0})).await.refused("NOT_FOUND");
    let one = run.ok("list_dir", json!({"atSeq": 0, "maxEntries": 1})).await;
    assert_eq!((one["entries"].as_array().unwrap().len(), &one["truncated"]), (1, &json!(true)));
    // An atomic batch reads its own changes, so it refuses historical reads.
    let write = json!({"tool": "write_file", "input": {"path": "n.txt", "content": "n\n", "reason": "r"}});
    let back = json!({"tool": "read_file", "input": {"path": "a.txt", "atSeq": 0}});
    let path = format!("/v1/runs/{}/batch", run.id);
    let conflict = run.agent.post(&path, json!({"atomic": true, "calls": [write, back]})).await.ok();
    assert_eq!(
        (&conflict["failedCall"], &conflict["results"][1]["answer"]["code"]),
        (&json!(1), &json!("INVALID_REQUEST"))
    );
    let one_by_one = run.agent.post(&path, json!({"calls": [back]})).await.ok();
    assert_eq!(one_by_one["results"][0]["answer"]["sha256"], sha256("a\n"), "{one_by_one:#}");
    let shallow = run.ok("list_dir", json!({"atSeq": 0, "maxDepth": 1})).await;
    let names: Vec<_> = shallow["entries"].as_array().unwrap().iter().map(|entry| entry["path"].clone()).collect();
    assert_eq!(names, ["a.txt", "dir", "link"]);
}
