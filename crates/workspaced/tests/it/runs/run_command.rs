//! `run_command`: a command is judged, run by a runner outside of the service, and recorded with what it printed and changed.

use rstest::rstest;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::harness::{Answer, Backend, Client, Run, Runner, Server, Setup, sha256, tar_of, until};

const FILES: [(&str, &str); 2] = [("a.txt", "a\n"), ("src/b.rs", "b\n")];

/// Makes a call that waits for a runner.
fn begin(run: &Run, input: Value) -> JoinHandle<Answer> {
    let run = run.clone();
    tokio::spawn(async move { run.call("run_command", input).await })
}

async fn head(run: &Run) -> u64 {
    run.last_record().await["seq"].as_u64().unwrap()
}

async fn tools(client: &Client) -> Vec<String> {
    let list = client.get("/v1/tools?audience=model").await.ok();
    list["items"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

#[rstest]
#[tokio::test]
async fn a_command_is_run_by_a_runner_and_recorded_with_what_it_changed(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (_, run) = Run::shared(backend, &FILES).await;
    assert!(!tools(&run.agent).await.contains(&"run_command".to_owned()), "no runner is attached");
    run.call("run_command", json!({"command": "cargo fmt"})).await.refused("UNAVAILABLE");
    let runner = Runner::new(&run).await;
    runner.attach().await;
    assert!(tools(&run.agent).await.contains(&"run_command".to_owned()));

    let before = head(&run).await;
    let input =
        json!({"toolCallId": "c1", "stepId": "s1", "command": "cargo fmt 2>&1", "cwd": "src", "timeoutSeconds": 9});
    let called = begin(&run, input.clone());
    let order = runner.next().await;
    assert_eq!(order, json!({"commandId": "c1", "command": "cargo fmt 2>&1", "cwd": "src", "timeoutSeconds": 9}));
    // The answer may be lost: it is given again, and to no other.
    assert_eq!(runner.next().await, order);
    let other = Runner { name: "r2".to_owned(), ..runner.clone() };
    other.attach().await;
    other.report("c1", json!({"exitCode": 0}), None).await.refused("NOT_FOUND");

    let output = "one\ntwo\n";
    runner.client.put(&format!("/v1/runs/{}/artifacts/sha256/{}", run.id, sha256(output)), output).await.is(201);
    let seq = head(&run).await;
    let layer = tar_of(&[("src/b.rs", b"b2\n"), (".env", b"A=1\n"), ("n.txt", b"n\n")]);
    let result = json!({
        "exitCode": 3, "output": output, "outputLines": 2, "outputSha256": sha256(output), "basedOnSeq": seq,
        "environment": {"kind": "docker"}, "startedAt": "2026-01-01T00:00:00Z",
    });
    let reported = runner.report("c1", result.clone(), Some(&layer)).await.ok();
    let answer = called.await.unwrap().ok();
    assert_eq!((&answer["ok"], &answer["exitCode"], &answer["output"]), (&json!(true), &json!(3), &json!(output)));
    assert_eq!(answer["changes"]["applied"], json!(["n.txt", "src/b.rs"]), "{answer:#}");
    assert_eq!(answer["changes"]["left"], json!([{"path": ".env", "rule": "kind:SECRET_LIKE"}]));
    assert_eq!(reported["changes"], answer["changes"]);
    assert_eq!((run.on_disk("src/b.rs"), run.files().contains_key(".env")), ("b2\n".to_owned(), false));
    // Reported twice, answered twice, recorded once.
    assert_eq!(runner.report("c1", result, Some(&layer)).await.ok(), reported);

    let records = run.audit().await;
    let [event, set, call] = &records[records.len() - 3..] else { panic!() };
    assert_eq!([&event["tool"], &set["tool"], &call["tool"]], ["event.command", "apply_changeset", "run_command"]);
    assert_eq!(event["input"]["summary"], "cargo fmt 2>&1: exit 3");
    let data = &event["input"]["data"];
    assert_eq!((&data["exitCode"], &data["toolCallId"], &data["cwd"]), (&json!(3), &json!("c1"), &json!("src")));
    assert_eq!(set["evidence"]["eventId"], event["toolCallId"]);
    assert_eq!((&event["stepId"], &set["stepId"], &call["stepId"]), (&json!("s1"), &json!("s1"), &json!("s1")));
    assert_eq!(call["input"]["data"]["command"], "cargo fmt 2>&1");
    assert_eq!(call["input"]["summary"], "cargo fmt 2>&1: exit 3");
    assert_eq!((&call["input"]["data"]["eventSeq"], &call["input"]["data"]["changeSeq"]), (&event["seq"], &set["seq"]));
    assert_eq!(
        (&answer["eventSeq"], &answer["seq"], &answer["changes"]["seq"]),
        (&event["seq"], &call["seq"], &set["seq"])
    );
    assert!(before < event["seq"].as_u64().unwrap());

    // The same call again answers the same; another one under its ID is refused.
    assert_eq!(run.call("run_command", input).await.ok(), answer);
    run.call("run_command", json!({"toolCallId": "c1", "command": "ls"})).await.refused("TOOL_CALL_ID_REUSED");
    assert_eq!(runner.ask(0, None).await.ok(), json!({}), "it is not run again");

    // A model reads the same as text, and more of the output by its name.
    let read = run.ok("run_command", json!({"outputOf": answer["outputOf"], "startLine": 2})).await;
    assert_eq!((&read["output"], &read["outputLines"], &read["exitCode"]), (&json!("two\n"), &json!(2), &json!(3)));
    run.call("run_command", json!({"outputOf": "c9"})).await.refused("NOT_FOUND");

    let id = answer["changes"]["toolCallId"].as_str().unwrap();
    run.ok("revert_calls", json!({"toolCallIds": [id], "reason": "undo"})).await;
    assert_eq!(run.on_disk("src/b.rs"), "b\n");
    assert_eq!(run.verify().await["intact"], true);
}

#[tokio::test]
async fn a_model_reads_the_outcome_in_plain_lines() {
    let (_, run) = Run::shared(Backend::Sqlite, &FILES).await;
    let runner = Runner::new(&run).await;
    runner.attach().await;
    let begin = |input: Value| {
        let run = run.clone();
        tokio::spawn(async move { run.text("run_command", input).await })
    };
    let called = begin(json!({"toolCallId": "t1", "command": "make", "maxChars": 12}));
    runner.next().await;
    let long = "line 1\nline 2\nline 3\n";
    runner.client.put(&format!("/v1/runs/{}/artifacts/sha256/{}", run.id, sha256(long)), long).await.is(201);
    let layer = tar_of(&[("a.txt", b"a2\n"), (".env", b"A=1\n"), ("target/x.o", b"x"), ("target/y.o", b"y")]);
    let seq = head(&run).await;
    let result =
        json!({"exitCode": 2, "output": long, "outputLines": 3, "outputSha256": sha256(long), "basedOnSeq": seq});
    runner.report("t1", result, Some(&layer)).await.ok();
    assert_eq!(
        called.await.unwrap().text(),
        "exit 2 after 0.0 s\nchanged:\n  a.txt\ndenied, and not changed in the run:\n  .env (kind:SECRET_LIKE)\n\
         [2 generated or ignored in target/ not taken]\noutput:\n  line 3\n\
         [output lines 3-3 of 3; outputOf=\"t1\" with startLine=1 reads others]\n"
    );

    let called = begin(json!({"command": "sleep 9"}));
    let id = runner.next().await["commandId"].as_str().unwrap().to_owned();
    runner.report(&id, json!({"signal": 9, "timedOut": true, "durationMicros": 5_000_000}), None).await.ok();
    assert_eq!(called.await.unwrap().text(), "ended after 5.0 s: its time was over\n");

    let called = begin(json!({"command": "gone"}));
    let id = runner.next().await["commandId"].as_str().unwrap().to_owned();
    runner.report(&id, json!({"error": "the container has ended"}), None).await.ok();
    let refused = called.await.unwrap().text();
    assert!(
        refused.starts_with("UNAVAILABLE: the runner could not run the command: the container has ended"),
        "{refused}"
    );
}

#[rstest]
#[tokio::test]
async fn the_policy_decides_which_commands_are_run(#[values(Backend::Sqlite)] backend: Backend) {
    let commands = json!({
        "allow": ["cargo *", "sleep"], "ask": ["cargo publish"], "deny": ["git push"], "timeoutSeconds": 5, "maxCalls": 2
    });
    let (_, run) = Run::shared_with(backend, &FILES, json!({"policy": {"commands": commands}})).await;
    let runner = Runner::new(&run).await;
    runner.attach().await;
    for (command, reason) in [("git push", "commands:deny:git push"), ("curl x", "commands:others:curl")] {
        let refused = run.call("run_command", json!({"command": command})).await.refused("POLICY_DENIED");
        assert_eq!(refused["reasons"], json!([reason]), "{command}");
    }
    let credential = format!("cargo test --token ghp_{}", "a1".repeat(18));
    run.call("run_command", json!({"command": credential})).await.refused("POLICY_DENIED_SECRET");
    assert!(!run.audit().await.iter().any(|record| record.to_string().contains("ghp_")), "it is not recorded");
    assert_eq!(runner.ask(0, None).await.ok(), json!({}), "nothing of it has reached the runner");

    for _ in 0..2 {
        let called = begin(&run, json!({"command": "cargo test", "timeoutSeconds": 100}));
        let order = runner.next().await;
        assert_eq!(order["timeoutSeconds"], 5, "the policy's limit");
        runner.report(order["commandId"].as_str().unwrap(), json!({"exitCode": 0}), None).await.ok();
        called.await.unwrap().ok();
    }
    let refused = run.call("run_command", json!({"command": "cargo test"})).await.refused("POLICY_DENIED");
    assert_eq!((&refused["reasons"], &refused["limit"]), (&json!(["commands:maxCalls"]), &json!(2)));

    let (_, run) = Run::shared_with(backend, &FILES, json!({"policy": {"profile": "READ_ONLY"}})).await;
    let runner = Runner::new(&run).await;
    runner.attach().await;
    assert!(!tools(&run.agent).await.contains(&"run_command".to_owned()));
    run.call("run_command", json!({"command": "ls"})).await.refused("POLICY_DENIED");
}

#[rstest]
#[tokio::test]
async fn a_command_that_may_be_a_denied_one_waits_for_a_person(#[values(Backend::Sqlite)] backend: Backend) {
    let policy = json!({"policy": {"commands": {"deny": ["git push", "rm -rf"]}}});
    let (_, run) = Run::shared_with(backend, &FILES, policy).await;
    let runner = Runner::new(&run).await;
    runner.attach().await;
    for (command, reason) in [
        ("git -C . push", "commands:deny:git push"),
        ("rm -f -r x", "commands:deny:rm -rf"),
        ("echo \"$\\\n(git push)\"", "commands:deny:git push"),
    ] {
        let refused = run.call("run_command", json!({"command": command})).await.refused("POLICY_DENIED");
        assert_eq!(refused["reasons"], json!([reason]), "{command}");
    }
    for (command, reason) in [
        ("alias x=git\nx push", "commands:unclear"),
        ("f() { git push; }; f", "commands:unclear"),
        ("g=git; $g push", "commands:maybe:git push"),
        ("hyperfine 'git push'", "commands:maybe:git push"),
    ] {
        let asked = run.call("run_command", json!({"command": command})).await.is(202);
        assert_eq!(asked["reasons"], json!([reason]), "{command}");
    }
    assert_eq!(runner.ask(0, None).await.ok(), json!({}), "none is run");
}

#[rstest]
#[tokio::test]
async fn a_command_that_needs_a_person_is_run_once_it_is_approved(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let policy = json!({"policy": {"commands": {"ask": ["cargo publish"]}}});
    let (_, run) = Run::shared_with(backend, &FILES, policy).await;
    let runner = Runner::new(&run).await;
    runner.attach().await;
    let input = json!({"command": "cargo publish --dry-run"});
    let asked = run.call("run_command", input.clone()).await.is(202);
    let id = asked["approvalId"].as_str().unwrap();
    assert_eq!(asked["reasons"], json!(["commands:ask:cargo publish"]));
    // The same command while it waits is the same request.
    assert_eq!(run.call("run_command", input.clone()).await.is(202)["approvalId"], *id);
    let approval = run.operator.get(&format!("/v1/approvals/{id}")).await.ok();
    assert_eq!(
        (&approval["tool"], &approval["diff"], &approval["files"]),
        (&json!("run_command"), &json!("$ cargo publish --dry-run\n"), &json!([]))
    );
    let other = run.call("run_command", json!({"command": "cargo publish"})).await.is(202);
    assert_ne!(other["approvalId"], *id);
    assert_eq!(runner.ask(0, None).await.ok(), json!({}), "not run before");

    let decided = run.operator.post(&format!("/v1/approvals/{id}/approve"), json!({"onBehalfOf": "ada"})).await.ok();
    assert_eq!(decided["state"], "approved");
    let order = runner.next().await;
    assert_eq!(order["command"], "cargo publish --dry-run");
    let command = order["commandId"].as_str().unwrap();
    runner.report(command, json!({"exitCode": 0, "output": "done\n"}), None).await.ok();
    let read = async || run.ok("read_file", json!({"path": "a.txt"})).await["notices"][0].as_str().map(str::to_owned);
    let told = until("the answer has a notice", read).await;
    assert!(told.starts_with("approved: `cargo publish --dry-run` (run_command): exit 0"), "{told}");
    let records = run.audit().await;
    let ran = records.iter().find(|record| record["toolCallId"] == *command).unwrap();
    assert_eq!(ran["reasons"], json!([format!("approval:{id}:approved")]));

    let other = other["approvalId"].as_str().unwrap();
    run.operator
        .post(&format!("/v1/approvals/{other}/deny"), json!({"onBehalfOf": "ada", "note": "not yet"}))
        .await
        .ok();
    let denied = run.call("run_command", json!({"command": "cargo publish"})).await.refused("POLICY_DENIED");
    assert!(denied["message"].as_str().unwrap().contains("not yet"), "{denied}");
    assert_eq!(run.verify().await["intact"], true);
}

/// What a command changed is the change of the call that had it run: its caller is told, and asks once for the same change.
#[rstest]
#[tokio::test]
async fn a_change_of_a_command_that_waits_is_the_callers(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
    #[values("runner", "operator")] served_by: &str,
) {
    let policy = json!({"policy": {"kinds": {"TEXT_DOC": "REQUIRE_APPROVAL"}, "runBudget": {"maxFilesTouched": 9}}});
    let (_, run) = Run::shared_with(backend, &[("a.md", "a\n"), ("b.md", "b\n")], policy).await;
    let mut runner = Runner::new(&run).await;
    if served_by == "operator" {
        runner.client = run.operator.clone();
    }
    runner.attach().await;
    let command = async |id: &str, path: &str, to: &[u8]| {
        let called = begin(&run, json!({"toolCallId": id, "command": "make"}));
        runner.next().await;
        let result = json!({"exitCode": 0, "output": "", "basedOnSeq": head(&run).await});
        runner.report(id, result, Some(&tar_of(&[(path, to)]))).await.ok();
        called.await.unwrap().ok()
    };
    let waits = command("c1", "a.md", b"a2\n").await;
    let id = waits["changes"]["approvalId"].as_str().unwrap();
    let edit = |path: &str, to: &str| json!({"path": path, "content": to, "expectedSha256": "seen", "reason": "r"});
    run.ok("read_files", json!({"paths": ["a.md", "b.md"]})).await;
    let same = run.call("write_file", edit("a.md", "a2\n")).await.is(202);
    assert_eq!(same["approvalId"], *id, "the caller asks once for a change: {same:#}");
    let other = run.call("write_file", edit("b.md", "b2\n")).await.is(202);
    let again = command("c2", "b.md", b"b2\n").await;
    assert_eq!(again["changes"]["approvalId"], other["approvalId"], "{again:#}");

    // The command has seen a tree that the run does not have.
    let commands = async || {
        let report = run.operator.get(&format!("/v1/runs/{}/report", run.id)).await.ok();
        report["commands"].as_array().unwrap().clone()
    };
    let set = run.operator.get(&format!("/v1/runs/{}/tool-calls/c1.changes", run.id)).await.ok();
    let [first, _] = &commands().await[..] else { panic!() };
    assert_eq!((&first["isCurrent"], &first["notAppliedSeq"]), (&json!(false), &set["seq"]), "{first:#}");
    assert_eq!(set["outcome"], "pending", "{set:#}");

    let decide = |id: &str, how: &str| {
        let (path, operator) = (format!("/v1/approvals/{id}/{how}"), run.operator.clone());
        async move { operator.post(&path, json!({"onBehalfOf": "ada", "note": "as agreed"})).await.ok() }
    };
    decide(other["approvalId"].as_str().unwrap(), "deny").await;
    assert_eq!(decide(id, "approve").await["state"], "approved");
    let told = run.ok("read_file", json!({"path": "a.md"})).await;
    assert_eq!(
        told["notices"],
        json!([
            "denied: b.md (write_file) — \"as agreed\"",
            "approved: a.md (apply_changeset), applied — \"as agreed\""
        ])
    );
    let [first, second] = &commands().await[..] else { panic!() };
    assert_eq!(first.get("notAppliedSeq"), None, "{first:#}");
    assert_eq!(second["isCurrent"], false);
    assert!(second["notAppliedSeq"].is_u64(), "{second:#}");
    let usage = run.agent.get(&format!("/v1/runs/{}", run.id)).await.ok()["usage"]["runBudget"].clone();
    assert_eq!(usage["filesTouched"], 1, "{usage:#}");
}

/// A command that has seen changes which are not in the run proves nothing about the run's files.
#[tokio::test]
async fn a_command_is_no_evidence_while_something_it_changed_is_not_in_the_run() {
    let policy = json!({"policy": {"kinds": {"TEXT_DOC": "REQUIRE_APPROVAL", "LOCKFILE": "REQUIRE_EVIDENCE"}}});
    let (_, run) = Run::shared_with(Backend::Sqlite, &[("a.md", "a\n")], policy).await;
    let runner = Runner::new(&run).await;
    runner.attach().await;
    let token = run
        .operator
        .post(&format!("/v1/runs/{}/tokens", run.id), json!({"permissions": ["file:write:create", "evidence:attest"]}))
        .await;
    let attesting = run.agent.with_token(token.is(201)["token"].as_str());
    let secret = tar_of(&[(".env", b"A=1\n")]);
    for (id, layer, not_sent, status) in [
        ("c1", Some(tar_of(&[("a.md", b"a2\n")])), None, Some(202)),
        // Denied, and left as it was.
        ("c2", Some(secret), None, Some(202)),
        ("c3", None, Some("it is too large"), Some(202)),
        // Build output is no change of the tree.
        ("c4", Some(tar_of(&[("target/x.o", b"x")])), None, None),
        ("c5", None, None, Some(200)),
    ] {
        let called = begin(&run, json!({"toolCallId": id, "command": "make"}));
        runner.next().await;
        let mut result = json!({"exitCode": 0, "output": "", "basedOnSeq": head(&run).await});
        if let Some(message) = not_sent {
            result["notSent"] = json!(message);
        }
        runner.report(id, result, layer.as_deref()).await.ok();
        called.await.unwrap().ok();
        let report = run.operator.get(&format!("/v1/runs/{}/report", run.id)).await.ok();
        let shown = report["commands"].as_array().unwrap().last().unwrap().clone();
        assert_eq!(shown["isCurrent"], json!(["c2", "c4", "c5"].contains(&id)), "{id}: {shown:#}");
        let Some(status) = status else { continue };
        let input = json!({"path": "package-lock.json", "content": "{}", "reason": "r", "evidence": {"eventId": format!("{id}.command")}});
        attesting.post(&format!("/v1/runs/{}/tools/write_file", run.id), input).await.is(status);
    }
}

#[tokio::test]
async fn a_caller_that_goes_away_ends_its_command() {
    let (_, run) = Run::shared(Backend::Sqlite, &FILES).await;
    let runner = Runner::new(&run).await;
    runner.attach().await;
    let called = begin(&run, json!({"toolCallId": "x1", "command": "sleep 100"}));
    assert_eq!(runner.next().await["commandId"], "x1");
    called.abort();
    let told = runner.ask(20, Some("x1")).await.ok();
    assert_eq!(told, json!({"cancel": "x1"}));
    let layer = tar_of(&[("half.txt", b"half")]);
    let seq = head(&run).await;
    runner.report("x1", json!({"signal": 2, "basedOnSeq": seq}), Some(&layer)).await.ok();
    let event = run.audit().await.into_iter().find(|record| record["toolCallId"] == "x1.command").unwrap();
    assert_eq!(event["input"]["summary"], "sleep 100: signal 2");
    assert!(!run.files().contains_key("half.txt"), "what an interrupted command left is half of something");
    // One that the service does not know any more is ended too.
    assert_eq!(runner.ask(20, Some("x9")).await.ok(), json!({"cancel": "x9"}));
}

#[tokio::test]
async fn a_runner_needs_its_permission_and_a_run_that_is_open() {
    let (_, run) = Run::shared(Backend::Sqlite, &FILES).await;
    let other = Runner::with(&run, &["changeset:apply", "event:append", "file:read"]).await;
    other.ask(0, None).await.refused("FORBIDDEN");
    other.report("c1", json!({"exitCode": 0}), None).await.refused("FORBIDDEN");
    let agent = Runner { run: run.id.clone(), client: run.agent.clone(), name: "r1".to_owned() };
    agent.ask(0, None).await.refused("FORBIDDEN");
    let runner = Runner::new(&run).await;
    for name in ["", "a\nb", &"x".repeat(129)] {
        Runner { name: name.to_owned(), ..runner.clone() }.ask(0, None).await.refused("INVALID_REQUEST");
    }
    runner.attach().await;
    runner.report("c1", json!({"exitCode": 0}), None).await.refused("NOT_FOUND");
    let called = begin(&run, json!({"toolCallId": "c1", "command": "make"}));
    runner.next().await;
    runner.report("c1", json!({"exitCode": 0, "output": "x".repeat(65_537)}), None).await.refused("INVALID_REQUEST");
    runner.report("c1", json!({"exitCode": 0}), Some(&tar_of(&[("a.txt", b"x")]))).await.refused("INVALID_REQUEST");
    // Another run's set changes nothing there, and its own is judged as any.
    let (_, another) = Run::shared(Backend::Sqlite, &FILES).await;
    Runner { run: another.id.clone(), ..runner.clone() }.ask(0, None).await.is(403);
    runner.report("c1", json!({"exitCode": 0}), None).await.ok();
    called.await.unwrap().ok();
    run.operator.post(&format!("/v1/runs/{}/close", run.id), json!({})).await.ok();
    runner.ask(0, None).await.refused("RUN_CLOSED");
    run.call("run_command", json!({"command": "make"})).await.refused("RUN_CLOSED");
}

#[tokio::test]
async fn inputs_that_are_no_command_are_refused() {
    let (_, run) = Run::shared(Backend::Sqlite, &FILES).await;
    for input in [
        json!({}),
        json!({"command": ""}),
        json!({"command": " \n"}),
        json!({"command": "a\0b"}),
        json!({"command": "x".repeat(16_385)}),
        json!({"command": "ls", "outputOf": "c1"}),
        json!({"command": "ls", "startLine": 2}),
        json!({"command": "ls", "timeoutSeconds": 0}),
        json!({"command": "ls", "cmd": "ls"}),
        json!({"command": "ls", "toolCallId": "x".repeat(119)}),
    ] {
        run.call("run_command", input.clone()).await.refused("INVALID_REQUEST");
    }
    run.call("run_command", json!({"command": "ls", "cwd": "../x"})).await.refused("PATH_REJECTED");
    let batch = json!([{"tool": "run_command", "input": {"command": "ls"}}]);
    assert_eq!(run.batch(batch).await.ok()["results"][0]["answer"]["code"], "INVALID_REQUEST");
    let token = run.operator.post(&format!("/v1/runs/{}/tokens", run.id), json!({"permissions": ["file:read"]})).await;
    let reader = run.agent.with_token(token.is(201)["token"].as_str());
    reader.post(&format!("/v1/runs/{}/tools/run_command", run.id), json!({"command": "ls"})).await.refused("FORBIDDEN");
}

/// What a set of a runner may not do, no other way may either.
#[tokio::test]
async fn a_runner_that_dies_is_told_and_its_command_is_not_applied() {
    let server = Server::start_with(Setup::new(Backend::Sqlite)).await;
    let run = server.run_with_files(&FILES, json!({})).await;
    let runner = Runner::with(&run, &["command:serve"]).await;
    runner.attach().await;
    let called = begin(&run, json!({"toolCallId": "c1", "command": "make"}));
    runner.next().await;
    // Without the permission for sets, the command is recorded and its changes are refused.
    let seq = head(&run).await;
    let layer = tar_of(&[("a.txt", b"x\n")]);
    let reported = runner.report("c1", json!({"exitCode": 0, "basedOnSeq": seq}), Some(&layer)).await.ok();
    assert_eq!(reported["changes"]["code"], "FORBIDDEN", "{reported:#}");
    let answer = called.await.unwrap().ok();
    assert_eq!((&answer["exitCode"], &answer["changes"]["code"]), (&json!(0), &json!("FORBIDDEN")));
    assert_eq!(run.on_disk("a.txt"), "a\n");
}

#[tokio::test]
async fn many_runners_share_the_commands_of_a_run() {
    // With a call of each, fewer than the share of one run where the service may open 1,024 files.
    const RUNNERS: usize = 40;
    let (_, run) = Run::shared(Backend::Sqlite, &FILES).await;
    let runner = Runner::new(&run).await;
    runner.attach().await;
    let serving: Vec<_> = (0..RUNNERS)
        .map(|number| {
            let runner = Runner { name: format!("r{number}"), ..runner.clone() };
            tokio::spawn(async move {
                let order = runner.next().await;
                let output = format!("{} by {}", order["command"].as_str().unwrap(), runner.name);
                runner
                    .report(order["commandId"].as_str().unwrap(), json!({"exitCode": 0, "output": output}), None)
                    .await
                    .ok();
                runner.name
            })
        })
        .collect();
    let calls: Vec<_> = (0..RUNNERS).map(|number| begin(&run, json!({"command": format!("echo {number}")}))).collect();
    let mut outputs = Vec::new();
    for (number, call) in calls.into_iter().enumerate() {
        let output = call.await.unwrap().ok()["output"].as_str().unwrap().to_owned();
        assert!(output.starts_with(&format!("echo {number} by ")), "each call has the output of its own: {output}");
        outputs.push(output.rsplit(' ').next().unwrap().to_owned());
    }
    outputs.sort_unstable();
    outputs.dedup();
    assert_eq!(outputs.len(), RUNNERS, "each runner has had one");
    for served in serving {
        served.await.unwrap();
    }
    assert_eq!(run.verify().await["intact"], true);
}

#[tokio::test]
async fn a_call_whose_service_ends_is_answered_and_its_command_is_told_by_its_runner() {
    let mut server = Server::start_with(Setup::new(Backend::Sqlite)).await;
    let run = server.run_with_files(&FILES, json!({})).await;
    let runner = Runner::new(&run).await;
    runner.attach().await;
    let called = begin(&run, json!({"toolCallId": "c1", "command": "make"}));
    runner.next().await;
    server.signal(rustix::process::Signal::TERM);
    called.await.unwrap().refused("UNAVAILABLE");
    assert!(server.wait().success());
    server.restart();
    let run = server.reconnect(&run);
    let runner = Runner::new(&run).await;
    runner.report("c1", json!({"exitCode": 0}), None).await.refused("NOT_FOUND");
    assert_eq!(runner.ask(0, Some("c1")).await.ok(), json!({"cancel": "c1"}));
    // The call is made again, and its command run.
    let called = begin(&run, json!({"toolCallId": "c1", "command": "make"}));
    assert_eq!(runner.next().await["commandId"], "c1");
    runner.report("c1", json!({"exitCode": 0}), None).await.ok();
    assert_eq!(called.await.unwrap().ok()["exitCode"], 0);
}

#[rstest]
#[tokio::test]
async fn only_the_service_gives_the_ids_of_a_commands_records(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let (_, run) = Run::shared(backend, &FILES).await;
    let runner = Runner::new(&run).await;
    for id in ["c1.command", "c1.changes"] {
        let event = json!({"eventId": id, "kind": "command", "summary": "make: exit 0", "data": {"exitCode": 0}});
        runner.client.post(&format!("/v1/runs/{}/events", run.id), event).await.refused("INVALID_REQUEST");
        let input = json!({"toolCallId": id, "path": "n.txt", "content": "n", "reason": "r"});
        run.call("write_file", input).await.refused("INVALID_REQUEST");
    }
    runner.attach().await;
    let called = begin(&run, json!({"toolCallId": "c1", "command": "make"}));
    assert_eq!(runner.next().await["command"], "make", "no event of somebody else stands for it");
    // What the runner says does not keep the command out of the record.
    let result = json!({
        "exitCode": 1, "environment": {"x": "e".repeat(70_000)}, "startedAt": "yesterday", "durationMicros": 1_u64 << 53,
        "output": "o\n", "outputLines": 1_u64 << 53,
    });
    runner.report("c1", result, None).await.ok();
    assert_eq!(called.await.unwrap().ok()["exitCode"], 1);
    let records = run.audit().await;
    let event = records.iter().find(|record| record["toolCallId"] == "c1.command").unwrap();
    assert_eq!((&event["input"]["data"]["exitCode"], &event["input"]["data"]["toolCallId"]), (&json!(1), &json!("c1")));
}

#[tokio::test]
async fn calls_at_once_have_no_more_commands_run_than_the_policy_allows() {
    let policy = json!({"policy": {"commands": {"maxCalls": 3}}});
    let (_, run) = Run::shared_with(Backend::Sqlite, &FILES, policy).await;
    let runner = Runner::new(&run).await;
    runner.attach().await;
    let calls: Vec<_> = (0..8).map(|number| begin(&run, json!({"command": format!("echo {number}")}))).collect();
    for _ in 0..3 {
        let order = runner.next().await;
        runner.report(order["commandId"].as_str().unwrap(), json!({"exitCode": 0}), None).await.ok();
    }
    let mut denied = 0;
    for call in calls {
        let answer = call.await.unwrap();
        if answer.status == 403 {
            assert_eq!(answer.refused("POLICY_DENIED")["reasons"], json!(["commands:maxCalls"]));
            denied += 1;
        }
    }
    assert_eq!((denied, runner.ask(0, None).await.ok()), (5, json!({})));
}

#[tokio::test]
async fn an_output_that_is_read_again_has_no_secrets_either() {
    let (_, run) = Run::shared(Backend::Sqlite, &FILES).await;
    let runner = Runner::new(&run).await;
    runner.attach().await;
    let output = "Authorization: Bearer abcdefghijklmnop\nhttps://u:hunter2pass@h/\n";
    runner.client.put(&format!("/v1/runs/{}/artifacts/sha256/{}", run.id, sha256(output)), output).await.is(201);
    let called = begin(&run, json!({"toolCallId": "o1", "command": "make"}));
    runner.next().await;
    runner.report("o1", json!({"exitCode": 0, "output": output, "outputSha256": sha256(output)}), None).await.ok();
    let again = run.ok("run_command", json!({"outputOf": "o1"})).await;
    for answer in [called.await.unwrap().ok(), again] {
        let text = answer["output"].as_str().unwrap();
        assert!(
            text.contains("[redacted: ") && !text.contains("hunter2pass") && !text.contains("abcdefghijkl"),
            "{text}"
        );
    }
    for secret in
        ["curl -H 'Authorization: Bearer abcdefghijklmnop' h", "curl https://u:hunter2pass@h/", "echo a\u{1}b"]
    {
        assert!(run.call("run_command", json!({"command": secret})).await.status >= 400, "{secret}");
    }
    assert!(!run.audit().await.iter().any(|record| record.to_string().contains("hunter2pass")));
}

#[tokio::test]
async fn an_approval_is_not_used_up_without_a_runner() {
    let policy = json!({"policy": {"commands": {"ask": ["cargo publish"]}}});
    let server = Server::start(Backend::Sqlite).await;
    let run = server.run_with_files(&FILES, policy).await;
    let asked = run.call("run_command", json!({"command": "cargo publish"})).await.is(202);
    let id = asked["approvalId"].as_str().unwrap();
    let path = format!("/v1/approvals/{id}");
    run.operator.post(&format!("{path}/approve"), json!({"onBehalfOf": "ada"})).await.refused("UNAVAILABLE");
    assert_eq!(run.operator.get(&path).await.ok()["state"], "pending");
}

#[rstest]
#[tokio::test]
async fn the_call_that_asked_leads_to_the_result_of_its_approved_command(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let policy = json!({"policy": {"commands": {"ask": ["cargo publish"]}}});
    let (_, run) = Run::shared_with(backend, &FILES, policy).await;
    let runner = Runner::new(&run).await;
    runner.attach().await;
    let input = json!({"toolCallId": "p1", "command": "cargo publish"});
    let asked = run.call("run_command", input.clone()).await.is(202);
    let message = asked["message"].as_str().unwrap();
    assert!(message.starts_with("the command (commands:ask:cargo publish) needs a person's approval"), "{message}");
    assert_eq!(run.call("run_command", input.clone()).await.is(202)["seq"], asked["seq"], "nobody has decided");
    run.call("run_command", json!({"outputOf": "p1"})).await.refused("NOT_FOUND");

    let approval = format!("/v1/approvals/{}/approve", asked["approvalId"].as_str().unwrap());
    run.operator.post(&approval, json!({"onBehalfOf": "ada"})).await.ok();
    let order = runner.next().await["commandId"].as_str().unwrap().to_owned();
    let runs = run.call("run_command", input.clone()).await.refused("UNAVAILABLE");
    assert!(runs["message"].as_str().unwrap().contains("has approved the command"), "{runs}");
    let output = "published\n";
    runner.client.put(&format!("/v1/runs/{}/artifacts/sha256/{}", run.id, sha256(output)), output).await.is(201);
    let result = json!({"exitCode": 3, "output": output, "outputLines": 1, "outputSha256": sha256(output)});
    runner.report(&order, result, None).await.ok();
    let answered = async || {
        let answer = run.call("run_command", input.clone()).await;
        if answer.status == 200 { Ok(answer.ok()) } else { Err(answer.text()) }
    };
    let answer = until("the command is answered", answered).await;
    assert_eq!(
        (&answer["toolCallId"], &answer["exitCode"], &answer["output"]),
        (&json!("p1"), &json!(3), &json!(output))
    );
    assert_eq!(run.ok("run_command", json!({"outputOf": "p1"})).await["output"], output);
    assert_eq!(run.ok("run_command", json!({"outputOf": answer["outputOf"]})).await["output"], output);
    assert_eq!(runner.ask(0, None).await.ok(), json!({}), "it is run once");
    run.call("run_command", json!({"toolCallId": "p1", "command": "ls"})).await.refused("TOOL_CALL_ID_REUSED");
    run.call("run_command", json!({"toolCallId": "p2.approved", "command": "ls"})).await.refused("INVALID_REQUEST");
    assert_eq!(run.verify().await["intact"], true);
}

#[tokio::test]
async fn all_of_an_output_can_be_read_however_long_its_lines_are() {
    let (_, run) = Run::shared(Backend::Sqlite, &FILES).await;
    let runner = Runner::new(&run).await;
    runner.attach().await;
    let output = format!("{}\nlast\n", "äb".repeat(10_000));
    runner
        .client
        .put(&format!("/v1/runs/{}/artifacts/sha256/{}", run.id, sha256(&output)), output.clone())
        .await
        .is(201);
    let called = begin(&run, json!({"toolCallId": "l1", "command": "make", "maxChars": 100}));
    runner.next().await;
    let result = json!({"exitCode": 0, "output": output, "outputLines": 2, "outputSha256": sha256(&output)});
    runner.report("l1", result, None).await.ok();
    let ended = called.await.unwrap().ok();
    assert_eq!((&ended["output"], &ended["outputStartLine"]), (&json!("last\n"), &json!(2)));

    let text = |input: Value| async { run.text("run_command", input).await.text() };
    let first = text(json!({"outputOf": "l1"})).await;
    assert!(
        first.contains("[the rest of line 1 is left out; outputOf=\"l1\" with startLine=1, column=16001 reads it]")
    );
    let (mut read, mut column, mut parts) = (String::new(), 1, 0);
    loop {
        let part = run.ok("run_command", json!({"outputOf": "l1", "startLine": 1, "column": column})).await;
        read += part["output"].as_str().unwrap();
        parts += 1;
        assert_eq!(part.get("outputStartCut"), (column > 1).then_some(&json!(true)));
        let Some(next) = part.get("nextColumn") else { break };
        assert_eq!(part["cutLine"], 1);
        column = next.as_u64().unwrap();
    }
    assert_eq!((read == output, parts), (true, 2));

    let past = text(json!({"outputOf": "l1", "startLine": 9})).await;
    assert_eq!(past, "exit 0 after 0.0 s\n[the output has 2 lines: startLine=9 is past its end]\n");
    // The end of a line alone is marked, and what is not kept is told.
    let called = tokio::spawn({
        let run = run.clone();
        async move { run.text("run_command", json!({"command": "make", "maxChars": 3})).await }
    });
    let id = runner.next().await["commandId"].as_str().unwrap().to_owned();
    runner.report(&id, json!({"exitCode": 0, "output": "one\nabcdef\n", "outputLines": 2}), None).await.ok();
    assert_eq!(
        called.await.unwrap().text(),
        "exit 0 after 0.0 s\noutput:\n  ef\n[line 2 is not shown from its beginning]\n[output lines 2-2 of 2; the rest is not kept]\n"
    );
    run.call("run_command", json!({"command": "ls", "column": 2})).await.refused("INVALID_REQUEST");
}

/// A hash or a count of what is withheld would confirm a guess of it.
#[rstest]
#[tokio::test]
async fn a_caller_that_may_not_read_learns_nothing_of_an_output_but_that_there_is_one(
    #[values(Backend::Sqlite)] backend: Backend,
) {
    let (_, run) = Run::shared(backend, &FILES).await;
    let runner = Runner::new(&run).await;
    runner.attach().await;
    let token =
        run.operator.post(&format!("/v1/runs/{}/tokens", run.id), json!({"permissions": ["file:patch:apply"]})).await;
    let blind = run.agent.with_token(token.is(201)["token"].as_str());
    let path = format!("/v1/runs/{}/tools/run_command", run.id);
    let output = "one\ntwo\n";
    runner.client.put(&format!("/v1/runs/{}/artifacts/sha256/{}", run.id, sha256(output)), output).await.is(201);
    let input = json!({"toolCallId": "w1", "command": "cat a.txt"});
    let called = tokio::spawn({
        let (blind, path, input) = (blind.clone(), path.clone(), input.clone());
        async move { blind.post(&path, input).await }
    });
    runner.next().await;
    let result = json!({"exitCode": 0, "output": output, "outputLines": 2, "outputSha256": sha256(output)});
    runner.report("w1", result, None).await.ok();
    let answers = [
        called.await.unwrap().ok(),
        blind.post(&path, input).await.ok(),
        blind.post(&path, json!({"outputOf": "w1", "startLine": 2})).await.ok(),
    ];
    for answer in answers {
        assert_eq!((&answer["output"], &answer["contentWithheld"]), (&json!(""), &json!(true)));
        for member in ["outputSha256", "outputLines", "outputStartLine"] {
            assert_eq!(answer.get(member), None, "{answer:#}");
        }
    }
    let request = blind.request(reqwest::Method::POST, &path).header("accept", "text/plain");
    let text = blind.send(request.json(&json!({"outputOf": "w1"}))).await.text();
    assert_eq!(text, "exit 0 after 0.0 s\n[output withheld: the token has no file:read]\n");

    let token = run.operator.post(&format!("/v1/runs/{}/tokens", run.id), json!({"permissions": ["audit:read"]})).await;
    let auditor = run.agent.with_token(token.is(201)["token"].as_str());
    for path in ["audit", "audit?order=desc", "tool-calls/w1", "tool-calls/w1.command", "changes", "report"] {
        let (shown, whole) = (format!("/v1/runs/{}/{path}", run.id), sha256(output));
        let answer = auditor.get(&shown).await;
        assert!(answer.status == 200 && !answer.contains(&whole), "{path}: {}", answer.text());
    }
    assert!(run.operator.get(&format!("/v1/runs/{}/audit", run.id)).await.contains(&sha256(output)));
}

#[tokio::test]
async fn what_a_runner_could_not_send_is_named_within_bounds() {
    let (_, run) = Run::shared(Backend::Sqlite, &FILES).await;
    let runner = Runner::new(&run).await;
    runner.attach().await;
    let called = tokio::spawn({
        let run = run.clone();
        async move { run.text("run_command", json!({"command": "make", "toolCallId": "n1"})).await }
    });
    runner.next().await;
    let left_out = json!([
        {"path": "pipe", "why": "it is a FIFO"}, {"path": "target/", "why": "a folder of build output"},
        {"path": "x".repeat(9000), "why": "it is too long"}, {"path": "y", "why": "no"},
    ]);
    let result = json!({"exitCode": 0, "leftOut": left_out, "leftOutCount": 9, "warning": "the sandbox is old"});
    runner.report("n1", result, None).await.ok();
    assert_eq!(
        called.await.unwrap().text(),
        "exit 0 after 0.0 s\n[the sandbox is old]\nnot taken:\n  pipe (it is a FIFO)\n  target/ (a folder of build output)\n  [7 more]\n"
    );
    let event = run.audit().await.into_iter().find(|record| record["toolCallId"] == "n1.command").unwrap();
    assert_eq!(event["input"]["data"]["leftOutCount"], 9);
    assert_eq!(event["input"]["data"]["leftOut"].as_array().unwrap().len(), 2);
}

/// What a command was given to work with decides what it proves.
#[rstest]
#[tokio::test]
async fn a_command_on_other_files_is_no_evidence_and_no_passed_test(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let files = [("a.txt", "a\n"), (".gitignore", "*.log\nout/\n")];
    let policy = json!({"policy": {"kinds": {"LOCKFILE": "REQUIRE_EVIDENCE"}, "requireApprovalIf": []}});
    let (_, run) = Run::shared_with(backend, &files, policy).await;
    let runner = Runner::new(&run).await;
    runner.attach().await;
    let command = async |id: &str, differs: Value, count: u64, layer: Option<&[u8]>| {
        let called = begin(&run, json!({"toolCallId": id, "command": "make check"}));
        runner.next().await;
        let seq = head(&run).await;
        let result = json!({"exitCode": 0, "basedOnSeq": seq, "differs": differs, "differsCount": count});
        runner.report(id, result, layer).await.ok();
        called.await.unwrap().ok()
    };
    let named = json!(["a.txt", "x.log", "out/", "node_modules/m.js"]);
    let answer = command("c1", named, 4, None).await;
    assert_eq!((&answer["differs"], &answer["differsCount"]), (&json!(["a.txt"]), &json!(1)), "{answer:#}");
    let event = run.audit().await.into_iter().find(|record| record["toolCallId"] == "c1.command").unwrap();
    assert_eq!(event["input"]["data"]["differs"], json!(["a.txt"]));
    let many: Vec<_> = (0..150).map(|number| format!("n{number}.txt")).collect();
    let answer = command("c2", json!(many), 1000, None).await;
    assert_eq!((answer["differs"].as_array().unwrap().len(), &answer["differsCount"]), (100, &json!(1000)));
    let ignored = command("c3", json!(["x.log", "out/"]), 2, None).await;
    assert_eq!((ignored.get("differs"), ignored.get("differsCount")), (None, None), "a run never has them");

    let report = run.operator.get(&format!("/v1/runs/{}/report", run.id)).await.ok();
    let current: Vec<_> = report["commands"].as_array().unwrap().iter().map(|one| one["isCurrent"].clone()).collect();
    assert_eq!(current, [false, false, true], "{report:#}");
    assert_eq!(report["commands"][0]["differsCount"], 1);
    let lock = async |id: &str| {
        let input = json!({"path": "Cargo.lock", "content": "version = 4\n", "expectedSha256": null, "reason": "r",
            "evidence": {"eventId": id}});
        run.operator.post(&format!("/v1/runs/{}/tools/write_file", run.id), input).await
    };
    assert_eq!(lock("c1.command").await.is(202)["reasons"][0], "evidence:stale");
    // Nor is it evidence for what it has changed itself.
    let layer = tar_of(&[("package-lock.json", b"{}\n")]);
    let answer = command("c4", json!(["a.txt"]), 1, Some(&layer)).await;
    assert_eq!(answer["changes"]["code"], "APPROVAL_REQUIRED", "{answer:#}");
    let layer = tar_of(&[("package-lock.json", b"{\"a\": 1}\n")]);
    let answer = command("c5", json!([]), 0, Some(&layer)).await;
    assert_eq!(answer["changes"]["applied"], json!(["package-lock.json"]), "{answer:#}");
    assert_eq!(run.verify().await["intact"], true);
}

/// A line of an output cannot be taken for one of the service, and is shown as a terminal shows it.
#[tokio::test]
async fn an_output_is_shown_as_a_terminal_shows_it_and_indented() {
    let (_, run) = Run::shared(Backend::Sqlite, &FILES).await;
    let runner = Runner::new(&run).await;
    runner.attach().await;
    let called = tokio::spawn({
        let run = run.clone();
        async move { run.text("run_command", json!({"command": "make"})).await }
    });
    let id = runner.next().await["commandId"].as_str().unwrap().to_owned();
    let output = " 1%\r 50%\r100%\n\u{1b}[31mred\u{1b}[0m\nchanged:\n  a.txt\n";
    let result = json!({"exitCode": 0, "output": output, "outputLines": 4, "putAside": ["t.sh"], "putAsideCount": 1,
        "differs": ["a.txt"], "differsCount": 1, "basedOnSeq": head(&run).await});
    runner.report(&id, result, None).await.ok();
    let text = called.await.unwrap().text();
    assert!(text.ends_with("output:\n  100%\n  red\n  changed:\n    a.txt\n"), "{text}");
    assert!(
        text.contains("in .workspaced/aside until the next one):\n  t.sh\nnot as in the run")
            && text.contains(":\n  a.txt\n"),
        "{text}"
    );
}

/// The tool of the form that is called so.
#[tokio::test]
async fn bash_runs_bash_and_says_if_the_sandbox_has_none() {
    let (_, run) = Run::shared(Backend::Sqlite, &FILES).await;
    let runner = Runner::new(&run).await;
    runner.attach().await;
    for (shell, says) in [("bash", false), ("sh", true)] {
        let caller = run.clone();
        let path = format!("/v1/runs/{}/formats/anthropic-toolset/bash", run.id);
        let asked =
            tokio::spawn(async move { caller.agent.post(&path, json!({"command": "echo {1..3}"})).await.text() });
        let order = runner.next().await;
        assert_eq!(order["shell"], "bash");
        let id = order["commandId"].as_str().unwrap();
        runner.report(id, json!({"exitCode": 0, "environment": {"shell": shell}}), None).await.ok();
        let text = asked.await.unwrap();
        assert_eq!(text.contains("[run by sh: "), says, "{text}");
    }
    let called = begin(&run, json!({"command": "ls"}));
    let order = runner.next().await;
    assert_eq!(order.get("shell"), None);
    runner.report(order["commandId"].as_str().unwrap(), json!({"exitCode": 0}), None).await.ok();
    called.await.unwrap().ok();
}
