//! `runner`: the program that runs the commands of `run_command`, in a sandbox behind a pipe.

use std::path::PathBuf;
use std::process::{Child, Stdio};

use rstest::rstest;
use serde_json::{Value, json};

use super::{command, run};
use crate::harness::{Backend, ContainerEngine, Run, Server, SshServer, shim, until};

const PERMISSIONS: [&str; 5] = ["command:serve", "changeset:apply", "event:append", "file:read", "evidence:attest"];

/// A runner that ends with its test.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

impl Started {
    fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

async fn token(run: &Run) -> String {
    let path = format!("/v1/runs/{}/tokens", run.id);
    let token = run.operator.post(&path, json!({ "permissions": PERMISSIONS })).await.is(201);
    token["token"].as_str().unwrap().to_owned()
}

async fn start(server: &Server, run: &Run, folder: &str) -> Started {
    start_in(server, run, ("pipe:env -i PATH=/usr/bin:/bin", Some(folder)), &[]).await
}

/// Starts a runner in a folder of this machine.
async fn start_here(server: &Server, run: &Run, folder: &str) -> Started {
    let token = token(run).await;
    let mut runner = command(&server.base, &token, &["runner", &run.id, "--dir", folder]);
    let started = Started(runner.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    until_attached(run).await;
    started
}

/// Starts a runner in a sandbox and a folder of it, unless its address has one, with more variables.
async fn start_in(
    server: &Server,
    run: &Run,
    (sandbox, folder): (&str, Option<&str>),
    variables: &[(&str, String)],
) -> Started {
    let token = token(run).await;
    let shim = shim();
    let mut args = vec!["runner", &run.id, "--in", sandbox, "--shim", &shim];
    args.extend(folder.map(|folder| ["--dir", folder]).into_iter().flatten());
    let mut runner = command(&server.base, &token, &args);
    runner.envs(variables.iter().map(|(name, value)| (*name, value)));
    let started = Started(runner.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    until_attached(run).await;
    started
}

async fn until_attached(run: &Run) {
    let is_attached = async || {
        let tools = run.agent.get("/v1/tools").await.ok();
        tools["items"].as_array().unwrap().iter().any(|tool| tool["name"] == "run_command")
    };
    until("a runner is attached", is_attached).await;
}

fn sandbox(server: &Server) -> (PathBuf, String) {
    let folder = server.home.join("sandbox");
    let text = folder.to_str().unwrap().to_owned();
    (folder, text)
}

/// The loop of an agent: the test fails, an edit, the test passes; every step is in one chain, and the report tells it.
#[rstest]
#[tokio::test]
async fn an_agent_edits_tests_and_passes(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let server = Server::start(backend).await;
    let run = server.run_with_files(&WRONG, json!({})).await;
    let (folder, dir) = sandbox(&server);
    let _runner = start(&server, &run, &dir).await;
    edit_until_the_test_passes(&run).await;
    assert!(folder.join(".workspaced/aside/.env").exists() && !folder.join(".env").exists(), "it is put aside");
}

/// The same in a container without a network.
#[rstest]
#[case::exhaustive_docker("docker", ContainerEngine::docker)]
#[case::exhaustive_podman("podman", ContainerEngine::podman)]
#[tokio::test]
async fn an_agent_edits_tests_and_passes_in_a_container(
    #[case] kind: &str,
    #[case] engine: fn() -> Option<ContainerEngine>,
) {
    let Some(engine) = engine() else { return };
    let server = Server::start(Backend::Sqlite).await;
    let run = server.run_with_files(&WRONG, json!({})).await;
    let container = engine.container();
    let place = (&*format!("{kind}:{container}"), Some("/checkout"));
    let _runner = start_in(&server, &run, place, &engine.variables).await;
    edit_until_the_test_passes(&run).await;
    let aside = "/checkout/.workspaced/aside/.env";
    assert_eq!(engine.run(&["exec", &container, "cat", aside]), "S=1\n", "it is put aside");
}

/// The same on another machine, whose connection is lost on the way.
#[tokio::test]
async fn an_agent_edits_tests_and_passes_over_ssh() {
    let Some(ssh) = SshServer::start() else { return };
    let server = Server::start(Backend::Sqlite).await;
    let run = server.run_with_files(&WRONG, json!({})).await;
    // The record has its path, as the user has named it.
    let elsewhere = tempfile::tempdir_in("/tmp").unwrap();
    let folder = elsewhere.path().join("it's a folder");
    let place = format!("ssh:box:{}", folder.display());
    let _runner = start_in(&server, &run, (&place, None), &ssh.variables).await;
    edit_until_the_test_passes(&run).await;
    assert!(folder.join(".workspaced/aside/.env").exists(), "it is put aside");

    let command = "echo $$ > pid; echo half > half.txt; exec sleep 600";
    let cut = tokio::spawn({
        let run = run.clone();
        async move { run.ok("run_command", json!({"command": command, "timeoutSeconds": 600})).await }
    });
    until("the command has begun", async || folder.join("half.txt").exists()).await;
    ssh.cut();
    let ended = cut.await.unwrap();
    assert!(ended.get("exitCode").is_none(), "{ended:#}");
    let message = ended["changes"]["message"].as_str().unwrap();
    assert!(message.contains("the connection to the sandbox was lost"), "{message}");
    let pid = std::fs::read_to_string(folder.join("pid")).unwrap();
    let line = format!("/proc/{}/cmdline", pid.trim());
    let has_ended = async || !std::fs::read_to_string(&line).is_ok_and(|line| line.contains("sleep"));
    until("the command ends", has_ended).await;
    until_attached(&run).await;
    let next = run.ok("run_command", json!({"command": "rm half.txt pid; cat log.txt"})).await;
    assert_eq!((&next["exitCode"], &next["output"]), (&json!(0), &json!("log\n")), "{next:#}");
    assert!(!run.files().contains_key("half.txt"));
}

/// A program whose test fails.
const WRONG: [(&str, &str); 2] =
    [("add.sh", "echo $(($1 - $2))\n"), ("test.sh", "test \"$(sh add.sh 2 3)\" = 5 && echo passed\n")];

async fn edit_until_the_test_passes(run: &Run) {
    let failed = run.ok("run_command", json!({"command": "sh test.sh", "stepId": "1"})).await;
    assert_eq!((&failed["exitCode"], &failed["output"], failed.get("changes")), (&json!(1), &json!(""), None));
    let edit = json!({"path": "add.sh", "oldString": "-", "newString": "+", "reason": "add", "stepId": "2"});
    run.ok("edit_file", edit).await;
    let text =
        run.text("run_command", json!({"command": "sh test.sh; echo log > log.txt; echo S=1 > .env"})).await.text();
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("exit 0 after "), "{text}");
    assert_eq!(
        lines[1..],
        [
            "changed:",
            "  log.txt",
            "denied, and not changed in the run:",
            "  .env (kind:SECRET_LIKE)",
            "output:",
            "  passed"
        ]
    );
    assert_eq!(run.on_disk("log.txt"), "log\n");

    // What others change meanwhile is there for the next command.
    run.create("new.txt", "n\n").await;
    let seen = run.ok("run_command", json!({"command": "cat new.txt log.txt add.sh", "cwd": "."})).await;
    assert_eq!(seen["output"], "n\nlog\necho $(($1 + $2))\n");
    assert_eq!(seen.get("changes"), None, "what was denied is not sent again");
    assert_eq!((&seen["putAside"], seen.get("differs")), (&json!([".env"]), None), "{seen:#}");
    let tools: Vec<_> = run.audit().await.iter().map(|record| record["tool"].as_str().unwrap().to_owned()).collect();
    let told: Vec<_> = tools
        .iter()
        .map(String::as_str)
        .filter(|tool| ["event.command", "edit_file", "apply_changeset", "run_command"].contains(tool))
        .collect();
    assert_eq!(
        told,
        [
            "event.command",
            "run_command",
            "edit_file",
            "event.command",
            "apply_changeset",
            "run_command",
            "event.command",
            "run_command"
        ]
    );
    let report = run.operator.get(&format!("/v1/runs/{}/report?format=markdown", run.id)).await;
    assert!(report.contains("sh test.sh: exit 1") && report.contains("exit 0"), "{}", report.text());
    assert_eq!(run.verify().await["intact"], true);
}

#[tokio::test]
async fn a_command_ends_at_its_time_and_with_its_runner() {
    let server = Server::start(Backend::Sqlite).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let (folder, dir) = sandbox(&server);
    let mut runner = start(&server, &run, &dir).await;
    let mut ended = json!(null);
    // A busy machine may need longer to start it.
    for seconds in [1, 8, 60] {
        let input = json!({"command": "echo begun; echo half > half.txt; sleep 600", "timeoutSeconds": seconds});
        ended = run.ok("run_command", input).await;
        if folder.join("half.txt").exists() {
            break;
        }
    }
    assert_eq!((&ended["timedOut"], &ended["output"]), (&json!(true), &json!("begun\n")), "{ended:#}");
    assert!(folder.join("half.txt").exists() && !run.files().contains_key("half.txt"));

    // A long output: its end is shown, the rest can be read.
    let long = run.ok("run_command", json!({"command": "seq 1 100000; rm half.txt"})).await;
    assert!(long["output"].as_str().unwrap().ends_with("99999\n100000\n"), "{}", long["outputLines"]);
    assert_eq!(long["outputLines"], 100_000);
    let first = run.ok("run_command", json!({"outputOf": long["outputOf"], "maxChars": 4})).await;
    assert_eq!((&first["output"], &first["outputStartLine"]), (&json!("1\n2\n"), &json!(1)));

    // Two at a time wait for each other.
    let both = [1, 2].map(|number| {
        let run = run.clone();
        let command = format!("mkdir lock && sleep 0.3 && rmdir lock && echo {number}");
        tokio::spawn(async move { run.ok("run_command", json!({ "command": command })).await })
    });
    for one in both {
        assert_eq!(one.await.unwrap()["exitCode"], 0);
    }

    let waiting = tokio::spawn({
        let run = run.clone();
        async move { run.call("run_command", json!({"command": "touch started; sleep 60", "timeoutSeconds": 60})).await }
    });
    until("the command has begun", async || folder.join("started").exists()).await;
    runner.kill();
    waiting.abort();
    assert!(!run.files().contains_key("started"));
    let _again = start(&server, &run, &dir).await;
    let after: Value = run.ok("run_command", json!({"command": "rm -f started; cat a.txt"})).await;
    assert_eq!((&after["exitCode"], &after["output"]), (&json!(0), &json!("a\n")));
}

/// What a command has left that is not in the run is no part of what the next one changes.
#[rstest]
#[tokio::test]
async fn a_change_set_has_only_what_its_own_command_changed(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let server = Server::start(backend).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let (folder, dir) = sandbox(&server);
    let mut runner = start(&server, &run, &dir).await;
    let mut ended = json!(null);
    for seconds in [1, 8, 60] {
        let input = json!({"command": "echo half > half.txt; sleep 600", "timeoutSeconds": seconds});
        ended = run.ok("run_command", input).await;
        if folder.join("half.txt").exists() {
            break;
        }
    }
    let message = ended["changes"]["message"].as_str().unwrap();
    assert!(message.contains("did not end by itself") && message.ends_with(": half.txt"), "{message}");
    let killed = run.ok("run_command", json!({"command": "echo killed > killed.txt; kill -9 $$"})).await;
    assert!(killed["changes"]["message"].as_str().unwrap().ends_with(": killed.txt"), "{killed:#}");
    let own = run.ok("run_command", json!({"command": "echo own > own.txt"})).await;
    assert_eq!((&own["changes"]["applied"], &own["changes"]["message"]), (&json!(["own.txt"]), &json!(null)));
    // A runner that is started anew knows no more of it than the folder says.
    runner.kill();
    let _again = start(&server, &run, &dir).await;
    let other = run.ok("run_command", json!({"command": "echo other > other.txt"})).await;
    assert_eq!(other["changes"]["applied"], json!(["other.txt"]));
    let finished = run.ok("run_command", json!({"command": "echo rest >> half.txt"})).await;
    assert_eq!(finished["changes"]["applied"], json!(["half.txt"]));
    assert_eq!(run.on_disk("half.txt"), "half\nrest\n");
    assert!(!run.files().contains_key("killed.txt"));
}

#[rstest]
#[tokio::test]
async fn a_change_that_waits_for_a_person_keeps_no_later_one_out(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start(backend).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let (_, dir) = sandbox(&server);
    let _runner = start(&server, &run, &dir).await;
    let lock = run.ok("run_command", json!({"command": "echo {} > package-lock.json"})).await;
    assert_eq!(lock["changes"]["code"], "APPROVAL_REQUIRED", "{lock:#}");
    let message = lock["changes"]["message"].as_str().unwrap();
    assert!(message.contains("`package-lock.json` (kind:LOCKFILE, requireApprovalIf:touchesLockfile)"), "{message}");
    for text in ["b", "c"] {
        let next = run.ok("run_command", json!({"command": format!("echo {text} > a.txt")})).await;
        assert_eq!(next["changes"]["applied"], json!(["a.txt"]), "{next:#}");
    }
    let approvals = run.operator.get(&format!("/v1/approvals?run={}", run.id)).await.ok();
    let approvals = approvals["items"].as_array().unwrap().clone();
    assert_eq!(approvals.len(), 1, "{approvals:#?}");
    assert_eq!(approvals[0]["files"].as_array().unwrap().len(), 1);
    let id = approvals[0]["approvalId"].as_str().unwrap();
    run.operator.post(&format!("/v1/approvals/{id}/approve"), json!({"onBehalfOf": "ada"})).await.ok();
    assert_eq!(run.on_disk("package-lock.json"), "{}\n");
    // The sandbox has what was approved.
    let after = run.ok("run_command", json!({"command": "cat package-lock.json"})).await;
    assert_eq!((&after["output"], after.get("changes"), after.get("warning")), (&json!("{}\n"), None, None));
}

#[tokio::test]
async fn what_a_command_left_that_no_set_takes_is_named_once() {
    let server = Server::start(Backend::Sqlite).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let (_, dir) = sandbox(&server);
    let _runner = start(&server, &run, &dir).await;
    let command = "truncate -s 2G big.bin; mkfifo pipe; mkdir target; echo o > target/o; echo n > n.txt";
    let text = run.text("run_command", json!({ "command": command })).await.text();
    let lines: Vec<_> = text.lines().skip(1).collect();
    assert_eq!(
        lines,
        [
            "changed:",
            "  n.txt",
            "not taken:",
            "  pipe (it is a device, a FIFO or a socket)",
            "  big.bin (it has more than 1073741824 bytes)",
            "  target/ (a folder of build output, which is not looked into)",
        ]
    );
    let only = run.ok("run_command", json!({"command": "truncate -s 2G other.bin"})).await;
    assert_eq!(only["changes"]["leftOut"][0]["path"], "other.bin", "{only:#}");
    assert_eq!(run.ok("run_command", json!({"command": "true"})).await.get("changes"), None);
}

#[tokio::test]
async fn a_folder_that_is_missing_is_named_and_the_next_command_runs() {
    let server = Server::start(Backend::Sqlite).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let (_, dir) = sandbox(&server);
    let _runner = start(&server, &run, &dir).await;
    for cwd in ["nowhere", "a.txt"] {
        let refused = run.call("run_command", json!({"command": "true", "cwd": cwd})).await.refused("NOT_FOUND");
        let message = refused["message"].as_str().unwrap();
        assert!(message.contains(&format!("`cwd` is `{cwd}`, which is no folder in the sandbox")), "{message}");
    }
    assert_eq!(run.ok("run_command", json!({"command": "cat a.txt"})).await["output"], "a\n");
}

#[tokio::test]
async fn a_command_that_ends_its_sandbox_is_recorded_and_the_next_one_runs() {
    let server = Server::start(Backend::Sqlite).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let (_, dir) = sandbox(&server);
    let _runner = start(&server, &run, &dir).await;
    let input = json!({"toolCallId": "k1", "command": "echo half > half.txt; kill -9 $PPID"});
    let ended = run.ok("run_command", input).await;
    assert!(ended.get("exitCode").is_none() && ended["changes"]["message"].as_str().is_some(), "{ended:#}");
    let event = run.audit().await.into_iter().find(|record| record["toolCallId"] == "k1.command").unwrap();
    assert_eq!(event["input"]["summary"], "echo half > half.txt; kill -9 $PPID: no exit code");
    assert!(!run.files().contains_key("half.txt"));
    until_attached(&run).await;
    let next = run.ok("run_command", json!({"command": "rm -f half.txt; cat a.txt"})).await;
    assert_eq!((&next["exitCode"], &next["output"]), (&json!(0), &json!("a\n")), "{next:#}");
}

/// What a command writes into its folder's index, before it ends its sandbox, leads the runner to no other record.
#[tokio::test]
async fn a_runner_that_opens_its_sandbox_again_knows_at_which_record_it_was() {
    let server = Server::start(Backend::Sqlite).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let (folder, dir) = sandbox(&server);
    let _runner = start(&server, &run, &dir).await;
    let forged =
        r#"cp .workspaced/state ../kept; sed -i 's/"seq":[0-9]*/"seq":1000000/' .workspaced/state; kill -9 $PPID"#;
    run.call("run_command", json!({ "command": forged })).await.ok();
    until_attached(&run).await;
    let text = run.text("run_command", json!({"command": "cat a.txt"})).await.text();
    assert!(text.contains("at another record than the one of its last pull"), "{text}");
    std::fs::copy(server.home.join("kept"), folder.join(".workspaced/state")).unwrap();
    until_attached(&run).await;
    assert_eq!(run.ok("run_command", json!({"command": "cat a.txt"})).await["output"], "a\n");
    // A sandbox that was made anew has nothing.
    run.call("run_command", json!({"command": "rm -rf .workspaced a.txt; kill -9 $PPID"})).await.ok();
    until_attached(&run).await;
    assert_eq!(run.ok("run_command", json!({"command": "cat a.txt"})).await["output"], "a\n");
}

#[tokio::test]
async fn one_runner_serves_all_runs_with_a_label() {
    let server = Server::start(Backend::Sqlite).await;
    let labelled = json!({"labels": {"pool": "web"}});
    let first = server.run_with_files(&[("a.txt", "first\n")], labelled.clone()).await;
    let other = server.run_with_files(&[("a.txt", "other\n")], json!({})).await;
    let shim = shim();
    let (_, dir) = sandbox(&server);
    let args = ["runner", "--label", "pool=web", "--in", "pipe:env", "--shim", &shim, "--dir", &dir];
    let mut runner = command(&server.base, &server.operator_token, &args);
    let _runner = Started(runner.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    until_attached(&first).await;
    let second = server.run_with_files(&[("a.txt", "second\n")], labelled).await;
    until_attached(&second).await;
    for (run, text) in [(&first, "first\n"), (&second, "second\n")] {
        assert_eq!(run.ok("run_command", json!({"command": "cat a.txt"})).await["output"], text);
    }
    other.call("run_command", json!({"command": "cat a.txt"})).await.refused("UNAVAILABLE");
    run(command(&server.base, &server.operator_token, &["runner", "x", "--label", "a=b"]))
        .failed(2, "cannot be used with");
}

/// Commands in a folder of this machine run as the user of the program, which then should not hold an operator's token.
#[tokio::test]
async fn a_runner_on_this_machine_warns_of_an_operators_token() {
    let server = Server::start(Backend::Sqlite).await;
    for is_operators in [true, false] {
        let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
        let token = if is_operators { server.operator_token.clone() } else { token(&run).await };
        let dir = server.home.join(&run.id);
        let mut runner = command(&server.base, &token, &["runner", &run.id, "--dir", dir.to_str().unwrap()]);
        let runner = runner.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        until_attached(&run).await;
        run.operator.post(&format!("/v1/runs/{}/close", run.id), json!({})).await.ok();
        let ended = tokio::task::spawn_blocking(move || runner.wait_with_output()).await.unwrap().unwrap();
        let printed = String::from_utf8(ended.stderr).unwrap();
        assert_eq!(printed.contains("with an operator's token in this process"), is_operators, "{printed}");
    }
}

/// A denied change does not make the next test pass.
#[rstest]
#[tokio::test]
async fn tests_do_not_pass_on_a_tree_that_is_not_the_runs(
    #[values(Backend::Sqlite, Backend::Postgres)] backend: Backend,
) {
    let server = Server::start(backend).await;
    let files = [("check.sh", "sh tests/t.sh\n"), ("tests/t.sh", "exit 1\n"), (".gitignore", "out/\n")];
    let policy = json!({"policy": {"write": ["src/**"]}});
    let run = server.run_with_files(&files, policy).await;
    let (folder, dir) = sandbox(&server);
    let _runner = start(&server, &run, &dir).await;
    let denied = run
        .ok("run_command", json!({"command": "echo exit 0 > tests/t.sh; echo x > new.sh; mkdir out; echo o > out/o"}))
        .await;
    assert_eq!(denied["changes"]["left"].as_array().unwrap().len(), 2, "{denied:#}");
    let test = run.ok("run_command", json!({"command": "cat .workspaced/aside/tests/t.sh out/o; sh check.sh"})).await;
    assert_eq!((&test["exitCode"], &test["output"]), (&json!(1), &json!("exit 0\no\n")), "{test:#}");
    assert_eq!((&test["putAside"], test.get("differs")), (&json!(["new.sh", "tests/t.sh"]), None), "{test:#}");
    let next = run.ok("run_command", json!({"command": "ls .workspaced/aside; sh check.sh"})).await;
    assert_eq!((&next["exitCode"], next.get("putAside")), (&json!(1), None), "kept for one command: {next:#}");
    assert!(!folder.join(".workspaced/aside").exists() && !folder.join("new.sh").exists());

    // What a command left that did not end by itself stays, and is named.
    run.ok("run_command", json!({"command": "echo exit 0 > tests/t.sh; kill -9 $$"})).await;
    let test = run.ok("run_command", json!({"toolCallId": "t1", "command": "sh check.sh"})).await;
    assert_eq!((&test["exitCode"], &test["differs"]), (&json!(0), &json!(["tests/t.sh"])), "{test:#}");
    let event = run.audit().await.into_iter().find(|record| record["toolCallId"] == "t1.command").unwrap();
    assert_eq!(event["input"]["data"]["differs"], json!(["tests/t.sh"]));
    assert_eq!(run.verify().await["intact"], true);
}

#[rstest]
#[tokio::test]
async fn the_files_of_a_refused_deletion_are_back_for_the_next_command(#[values(Backend::Sqlite)] backend: Backend) {
    let server = Server::start(backend).await;
    let names: Vec<_> = (0..8).map(|number| format!("f{number}.txt")).collect();
    let mut files: Vec<_> = names.iter().map(|name| (name.as_str(), "1\n")).collect();
    files.push((".gitignore", "out/\n"));
    let policy = json!({"policy": {
        "profile": "SUPERVISED_PR", "commandBudget": {"maxFilesDeleted": 3}, "requireApprovalIf": ["deletesFile"]
    }});
    let run = server.run_with_files(&files, policy).await;
    let (_, dir) = sandbox(&server);
    let _runner = start(&server, &run, &dir).await;
    let refused = run.ok("run_command", json!({"command": "rm -rf ./*; mkdir out; echo o > out/o"})).await;
    assert_eq!(refused["changes"]["code"], "PATCH_BUDGET_EXCEEDED", "{refused:#}");
    let text = run.text("run_command", json!({"command": "ls f* | wc -l; cat f1.txt out/o"})).await.text();
    assert!(text.starts_with("exit 0") && text.ends_with("output:\n  8\n  1\n  o\n"), "{text}");
    assert!(text.contains("  f0.txt\n"), "{text}");
    // A file that others have changed since is not in the way, and nothing is said of the sandbox any more.
    let waits = run.ok("run_command", json!({"command": "rm f2.txt"})).await;
    assert_eq!(waits["changes"]["code"], "APPROVAL_REQUIRED", "{waits:#}");
    run.ok("read_file", json!({"path": "f2.txt"})).await;
    run.replace("f2.txt", "2\n", "seen").await.ok();
    let text = run.text("run_command", json!({"command": "cat f2.txt"})).await.text();
    assert!(text.ends_with("output:\n  2\n") && !text.contains("\\n"), "{text}");
    assert_eq!(run.ok("run_command", json!({"command": "true"})).await.get("warning"), None);
}

/// `mv` is a move: no deletion, which would need a person.
#[rstest]
#[tokio::test]
async fn what_a_command_moved_is_moved(#[values(Backend::Sqlite, Backend::Postgres)] backend: Backend) {
    let server = Server::start(backend).await;
    let policy = json!({"policy": {"requireApprovalIf": ["deletesFile"], "deny": ["secret/**"]}});
    let run = server.run_with_files(&[("a.txt", "a\n"), ("d/b.txt", "b\n"), ("c.txt", "c\n")], policy).await;
    let (_, dir) = sandbox(&server);
    let _runner = start(&server, &run, &dir).await;
    let moved =
        run.ok("run_command", json!({"command": "mv a.txt e.txt; mv d g; chmod +x c.txt; echo more >> c.txt"})).await;
    let applied = json!(["a.txt", "c.txt", "d/b.txt", "e.txt", "g/b.txt"]);
    assert_eq!((&moved["changes"]["applied"], moved["changes"].get("code")), (&applied, None), "{moved:#}");
    assert_eq!((run.on_disk("e.txt"), run.on_disk("g/b.txt")), ("a\n".to_owned(), "b\n".to_owned()));
    // An executable bit that policy does not let change stays, and refuses nothing else.
    assert_eq!(moved["changes"]["left"], json!([{"path": "c.txt", "rule": "modeChange"}]));
    assert_eq!(run.on_disk("c.txt"), "c\nmore\n");
    let denied = run.ok("run_command", json!({"command": "mkdir secret; mv e.txt secret/"})).await;
    let left: Vec<_> = denied["changes"]["left"].as_array().unwrap().iter().map(|left| &left["path"]).collect();
    assert_eq!(left, ["e.txt", "secret/e.txt"], "not half of it: {denied:#}");
    let set = moved["changes"]["toolCallId"].as_str().unwrap();
    run.ok("revert_calls", json!({"toolCallIds": [set], "reason": "undo"})).await;
    assert_eq!((run.on_disk("a.txt"), run.on_disk("d/b.txt")), ("a\n".to_owned(), "b\n".to_owned()));
    assert_eq!(run.verify().await["intact"], true);
}

#[tokio::test]
async fn what_happens_beside_a_command_is_told_for_what_it_is() {
    let server = Server::start(Backend::Sqlite).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let (folder, dir) = sandbox(&server);
    let _runner = start(&server, &run, &dir).await;
    let left_out = |answer: &Value| answer["changes"]["leftOut"][0]["path"].clone();
    let empty = run.ok("run_command", json!({"command": "mkdir empty"})).await;
    assert_eq!(left_out(&empty), "empty/", "{empty:#}");
    let commit = "rmdir empty; git init -q . && git -c user.name=n -c user.email=e@x commit -q --allow-empty -m m";
    let committed = run.ok("run_command", json!({"command": commit})).await;
    assert_eq!((&committed["exitCode"], left_out(&committed)), (&json!(0), json!(".git/")), "{committed:#}");

    // A process that left the group of its command, and writes after it.
    let late = "setsid sh -c 'touch ../begun; while [ ! -e ../go ]; do sleep 0.05; done; echo late > late.txt; touch ../gone' \
                >/dev/null 2>&1 & while [ ! -e ../begun ]; do sleep 0.05; done";
    run.ok("run_command", json!({"command": late})).await;
    std::fs::write(server.home.join("go"), "").unwrap();
    until("it has written", async || server.home.join("gone").exists()).await;
    let next = run.ok("run_command", json!({"command": "cat late.txt"})).await;
    let warning = next["warning"].as_str().unwrap_or_default();
    assert!(
        warning.starts_with("written after the command before this one had ended") && warning.ends_with(": late.txt"),
        "{next:#}"
    );
    assert_eq!(next["differs"], json!(["late.txt"]), "{next:#}");
    assert!(folder.join("late.txt").exists() && !run.files().contains_key("late.txt"));

    let bash = json!({"command": "echo $BASH_VERSION", "shell": "bash"});
    let ran = run.ok("run_command", bash).await;
    assert!(ran["output"].as_str().unwrap().contains('.') || ran["shell"] == "sh", "{ran:#}");
}

/// Something in the place of a file of the run, or where it has none, gives way, whether its deletion was taken or refused.
#[rstest]
#[tokio::test]
async fn what_stands_in_the_place_of_a_file_gives_way_to_the_runs_version(
    #[values(false, true)] is_here: bool,
    #[values(false, true)] is_refused: bool,
) {
    let server = Server::start(Backend::Sqlite).await;
    let files = [("d/c.txt", "c\n"), ("a.txt", "a\n"), ("b.txt", "b\n"), ("e.txt", "e\n"), (".gitignore", "*.sock\n")];
    let policy = if is_refused { json!({"policy": {"commandBudget": {"maxFilesDeleted": 1}}}) } else { json!({}) };
    let run = server.run_with_files(&files, policy).await;
    let (folder, dir) = sandbox(&server);
    let _runner = if is_here { start_here(&server, &run, &dir).await } else { start(&server, &run, &dir).await };
    let outside = server.home.join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("c.txt"), "foreign\n").unwrap();
    let planted = "rm -r d; ln -s ../outside d; ln -s ../outside newlink; rm a.txt; mkfifo a.txt; rm b.txt; mkdir b.txt; mkfifo b.txt/pipe; \
                   rm e.txt; ln -s ../outside/c.txt e.txt; mkfifo x.sock; echo 1 > \"$(printf 'bad\\200name')\"; echo 2 > .wh.x";
    let done = run.ok("run_command", json!({ "command": planted })).await;
    assert_eq!(done["changes"].get("code").is_some(), is_refused, "{done:#}");
    let command = "cat d/c.txt newlink/c.txt; cat a.txt b.txt e.txt; ls";
    let next = run.ok("run_command", json!({"toolCallId": "n1", "command": command, "timeoutSeconds": 20})).await;
    let output = next["output"].as_str().unwrap();
    assert!(!output.contains("foreign") && next["timedOut"] == false, "{next:#}");
    assert!(output.contains("a\n") && output.contains("e\n") && !output.contains("bad"), "{next:#}");
    assert_eq!(output.contains("c\n") && output.contains("b\n"), is_refused, "{next:#}");
    let aside: Vec<_> = next["putAside"].as_array().unwrap().iter().map(|path| path.as_str().unwrap()).collect();
    for path in ["d", "newlink", "a.txt", "e.txt", ".wh.x"] {
        assert!(aside.contains(&path), "{path}: {aside:?}");
    }
    assert_eq!(aside.contains(&"d/c.txt"), is_refused, "{aside:?}");
    assert_eq!(next.get("differs"), None, "{next:#}");
    assert!(folder.join("x.sock").symlink_metadata().is_ok(), "what git ignores stays");
    assert_eq!(run.has("d/c.txt").await, is_refused);
    // What an interrupted command left stays, and is named.
    run.ok("run_command", json!({"command": "ln -s ../outside out; kill -9 $$"})).await;
    let next = run.ok("run_command", json!({"toolCallId": "n2", "command": "cat out/c.txt"})).await;
    assert_eq!((&next["output"], &next["differs"]), (&json!("foreign\n"), &json!(["out"])), "{next:#}");
    let event = run.audit().await.into_iter().find(|record| record["toolCallId"] == "n2.command").unwrap();
    assert_eq!(event["input"]["data"]["differs"], json!(["out"]));
    run.ok("run_command", json!({"command": "rm out"})).await;
    assert_eq!(run.ok("run_command", json!({"command": "true"})).await.get("differs"), None);
    assert_eq!(run.verify().await["intact"], true);
}

/// A command that removes the index leaves no tree that passes for the run's.
#[rstest]
#[tokio::test]
async fn a_sandbox_whose_index_was_removed_is_checked_out_anew(#[values(false, true)] is_here: bool) {
    let server = Server::start(Backend::Sqlite).await;
    let run = server.run_with_files(&[("a.txt", "a\n"), ("d/b.txt", "b\n")], json!({})).await;
    let (folder, dir) = sandbox(&server);
    let _runner = if is_here { start_here(&server, &run, &dir).await } else { start(&server, &run, &dir).await };
    run.ok("run_command", json!({"command": "true"})).await;
    let removed = "rm -rf .workspaced d; echo evil > a.txt; echo new > new.txt; ln -s /tmp d";
    let done = run.ok("run_command", json!({ "command": removed })).await;
    assert!(done["changes"]["message"].as_str().unwrap().contains("was removed here"), "{done:#}");
    let next = run.ok("run_command", json!({"command": "cat a.txt d/b.txt .workspaced/aside/a.txt"})).await;
    assert_eq!((&next["exitCode"], &next["output"]), (&json!(0), &json!("a\nb\nevil\n")), "{next:#}");
    assert_eq!((&next["putAside"], &next["differs"]), (&json!(["a.txt", "d/b.txt"]), &json!(["new.txt"])), "{next:#}");
    assert!(next["warning"].as_str().unwrap().contains("the run was checked out anew"), "{next:#}");
    let own = run.ok("run_command", json!({"command": "rm new.txt; echo own > own.txt"})).await;
    assert_eq!(own["changes"]["applied"], json!(["own.txt"]), "{own:#}");
    let clean = run.ok("run_command", json!({"command": "true"})).await;
    assert_eq!((clean.get("differs"), clean.get("putAside"), clean.get("warning")), (None, None, None), "{clean:#}");
    assert!(!folder.join(".workspaced/aside").exists());
    assert_eq!(run.verify().await["intact"], true);
}

/// Files of somebody else are overwritten by no first checkout: what a command finds there is no evidence.
#[tokio::test]
async fn a_folder_that_is_no_checkout_makes_a_command_no_evidence() {
    let server = Server::start(Backend::Sqlite).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let (folder, dir) = sandbox(&server);
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("a.txt"), "somebody's\n").unwrap();
    let _runner = start(&server, &run, &dir).await;
    let done = run.ok("run_command", json!({"toolCallId": "k1", "command": "cat a.txt"})).await;
    assert_eq!((&done["output"], &done["differsCount"]), (&json!("somebody's\n"), &json!(1)), "{done:#}");
    assert!(done["warning"].as_str().unwrap().contains("what differs from the run is not known"), "{done:#}");
    let event = run.audit().await.into_iter().find(|record| record["toolCallId"] == "k1.command").unwrap();
    assert_eq!(event["input"]["data"]["differs"], json!([]), "it is no evidence");
    // The way out that it names.
    run.ok("run_command", json!({"command": "echo a > a.txt"})).await;
    let next = run.ok("run_command", json!({"command": "cat a.txt"})).await;
    assert_eq!((next.get("differs"), next.get("warning")), (None, None), "{next:#}");
}

/// A file that a process left running writes is not what the next command changed.
#[tokio::test]
async fn what_a_process_left_running_writes_is_in_no_set_of_another_command() {
    let server = Server::start(Backend::Sqlite).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let (folder, dir) = sandbox(&server);
    let _runner = start(&server, &run, &dir).await;
    // Until it is told to end, and for the time of a test at most.
    let writer = "setsid sh -c 'touch ../begun; while [ ! -e ../go ]; do sleep 0.05; done; n=0; \
                  while [ ! -e ../stop ] && [ $n -lt 3000 ]; do n=$((n+1)); echo x >> grow.txt; sleep 0.02; done; touch ../stopped' \
                  >/dev/null 2>&1 & while [ ! -e ../begun ]; do sleep 0.05; done";
    run.ok("run_command", json!({ "command": writer })).await;
    std::fs::write(server.home.join("go"), "").unwrap();
    until("it writes", async || folder.join("grow.txt").exists()).await;
    let next = run.ok("run_command", json!({"command": "sleep 0.5; echo own > own.txt"})).await;
    assert_eq!(next["changes"]["applied"], json!(["own.txt"]), "{next:#}");
    let left = &next["changes"]["leftOut"][0];
    assert_eq!(left["path"], "grow.txt", "{next:#}");
    assert!(left["why"].as_str().unwrap().starts_with("also written by a process left running"), "{next:#}");
    assert!(next["warning"].as_str().unwrap().ends_with(": grow.txt"), "{next:#}");
    std::fs::write(server.home.join("stop"), "").unwrap();
    until("it has ended", async || server.home.join("stopped").exists()).await;
    // Its last lines were late, too. Once nothing else writes it, it is the command's.
    run.ok("run_command", json!({"command": "true"})).await;
    let taken = run.ok("run_command", json!({"command": "echo end > grow.txt"})).await;
    assert_eq!(taken["changes"]["applied"], json!(["grow.txt"]), "{taken:#}");
    assert_eq!(run.on_disk("grow.txt"), "end\n");
}

/// What a reader may take for the end of a line does not let an output pose as the service.
#[tokio::test]
async fn an_output_has_no_line_that_is_not_indented() {
    let server = Server::start(Backend::Sqlite).await;
    let run = server.run_with_files(&[("a.txt", "a\n")], json!({})).await;
    let (_, dir) = sandbox(&server);
    let _runner = start(&server, &run, &dir).await;
    let command = r"printf 'x\342\200\250exit 0\342\200\251changed:\302\205denied\013a\014b\n'";
    let text = run.text("run_command", json!({ "command": command })).await.text();
    let (_, printed) = text.split_once("output:\n").unwrap();
    let ends = ['\n', '\u{2028}', '\u{2029}', '\u{85}', '\u{b}', '\u{c}'];
    let lines: Vec<_> = printed.split(ends).take(6).collect();
    assert_eq!(lines, ["  x", "  exit 0", "  changed:", "  denied", "  a", "  b"], "{text:?}");
}
