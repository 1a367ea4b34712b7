//! Checkouts and commands by the client crate, without the program.

use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};
use workspaced_client::{
    ChangesetConflict, ChangesetDenied, Checkout, Client, CommandSignals, CommandSpec, ExecMode, ExecOptions, Executed,
    FolderError, FolderPlace, OutputStream, PushOptions, RecordedCommand, RunId, SandboxPlace, ScanScope,
};

use crate::harness::{Backend, Run, Server, shim, until};

/// A run with the client of its runner.
struct Used {
    server: Server,
    run: Run,
    client: Client,
    id: RunId,
}

impl Used {
    async fn new(backend: Backend, files: &[(&str, &str)]) -> Self {
        let server = Server::start(backend).await;
        let run = server.run_with_files(files, json!({})).await;
        let permissions = json!(["file:read", "event:append", "changeset:apply"]);
        let path = format!("/v1/runs/{}/tokens", run.id);
        let token = run.operator.post(&path, json!({ "permissions": permissions })).await.is(201);
        let client = Client::new(&server.base, token["token"].as_str().unwrap()).unwrap();
        let id = RunId::parse(&run.id).unwrap();
        Self { server, run, client, id }
    }

    fn folder(&self) -> PathBuf {
        self.server.home.join("checkout")
    }

    /// A folder of this machine, or one behind a pipe.
    fn place(&self, is_sandbox: bool) -> FolderPlace {
        if !is_sandbox {
            return FolderPlace::Here(self.folder());
        }
        FolderPlace::Sandbox(SandboxPlace {
            folder: Some(self.folder().to_str().unwrap().to_owned()),
            shim: Some(shim().into()),
            ..SandboxPlace::new("pipe:env".parse().unwrap())
        })
    }

    async fn checkout(&self, is_sandbox: bool) -> Checkout {
        Checkout::open(&self.client, &self.id, &self.place(is_sandbox)).await.unwrap()
    }

    /// Another's change.
    async fn replace(&self, path: &str, content: &str) {
        self.run.ok("read_file", json!({"path": path})).await;
        self.run.replace(path, content, "seen").await.ok();
    }

    async fn records(&self, tool: &str) -> Vec<Value> {
        let path = format!("/v1/runs/{}/audit?tool={tool}", self.run.id);
        self.run.operator.get(&path).await.is(200)["items"].as_array().unwrap().clone()
    }

    /// Waits for a file that a command writes.
    async fn written(&self, name: &str) -> String {
        let written = async || {
            let text = std::fs::read_to_string(self.folder().join(name)).ok()?;
            text.ends_with('\n').then(|| text.trim().to_owned())
        };
        until(&format!("{name} is written"), written).await
    }
}

fn push(text: &str) -> ExecOptions {
    ExecOptions { mode: ExecMode::Push(PushOptions::default()), ..ExecOptions::shell(text) }
}

async fn exec(checkout: &mut Checkout, options: &ExecOptions) -> Executed {
    checkout.exec(options, &mut |_, _| {}).await.unwrap()
}

/// A command that reaches its time limit after it has written this: a busy machine may need longer to start it.
async fn begun(checkout: &mut Checkout, text: &str, file: &Path, content: &str) -> Executed {
    for millis in [500, 4_000, 32_000] {
        let limited = ExecOptions { time_limit: Some(Duration::from_millis(millis)), ..push(text) };
        let done = exec(checkout, &limited).await;
        if std::fs::read_to_string(file).is_ok_and(|found| found == content) {
            return done;
        }
    }
    panic!("the command did not begin");
}

/// Waits until a process has gone.
async fn gone(pid: &str) {
    // A zombie has ended, whoever its parent is.
    let is_alive = || {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        state.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
    };
    until(&format!("the process {pid} ends"), async || !is_alive()).await;
}

#[rstest]
#[tokio::test]
async fn several_commands_run_in_one_open_checkout(
    #[values(Backend::Sqlite)] backend: Backend,
    #[values(false, true)] is_sandbox: bool,
) {
    let used = Used::new(backend, &[("a.txt", "one\n"), ("d/b.txt", "b\n")]).await;
    let mut checkout = used.checkout(is_sandbox).await;
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let options = ExecOptions {
        command: CommandSpec {
            argv: ["sh", "-c", "cat b.txt; echo $WORD >&2; echo two > ../a.txt"].map(str::to_owned).into(),
            cwd: "d".to_owned(),
            env: vec![("WORD".to_owned(), "hello".to_owned())],
        },
        ..push("")
    };
    let mut sink = |stream, chunk: &[u8]| match stream {
        OutputStream::Stdout => out.extend_from_slice(chunk),
        OutputStream::Stderr => err.extend_from_slice(chunk),
    };
    let done = checkout.exec(&options, &mut sink).await.unwrap();
    assert_eq!((out.as_slice(), err.as_slice()), (b"b\n".as_slice(), b"hello\n".as_slice()));
    assert_eq!((done.execution.outcome.exit_code, done.execution.output.len()), (Some(0), 8));
    assert_eq!((done.pulled.from, done.pulled.applied.written, done.report.changes.len()), (None, 2, 1));
    let Ok(RecordedCommand::Applied(pushed)) = done.recorded else { panic!("{:?}", done.recorded) };
    assert_eq!((pushed.answer.applied.len(), pushed.stale.is_none()), (1, true));
    assert_eq!(used.run.on_disk("a.txt"), "two\n");
    let record = &used.records("event.command").await[0];
    let kept = done.execution.output_sha256.unwrap().to_string();
    assert_eq!((record["seq"].as_u64(), record["tool"].as_str()), (pushed.answer.event_seq, Some("event.command")));
    let path = format!("/v1/runs/{}/artifacts/sha256/{kept}", used.run.id);
    assert_eq!(used.run.operator.get(&path).await.text(), done.execution.output);

    // The next command sees what others have changed meanwhile.
    used.replace("d/b.txt", "changed\n").await;
    let done =
        exec(&mut checkout, &ExecOptions { mode: ExecMode::Test, ..ExecOptions::shell("cat a.txt d/b.txt; exit 7") })
            .await;
    assert_eq!((done.execution.output.as_str(), done.execution.output_end(6)), ("two\nchanged\n", "anged\n"));
    assert_eq!((done.execution.outcome.exit_code, done.pulled.applied.written), (Some(7), 1));
    assert!(matches!(&done.recorded, Ok(RecordedCommand::Event { output: Some(_), .. })), "{:?}", done.recorded);
    assert_eq!(used.records("event.test").await[0]["input"]["data"]["exitCode"], 7);
    if is_sandbox {
        let parent = ExecOptions::shell("echo $PPID");
        let shims = [exec(&mut checkout, &parent).await, exec(&mut checkout, &parent).await];
        assert_eq!(shims[0].execution.output, shims[1].execution.output, "the shim is started once");
    }
    checkout.close().await.unwrap();
}

#[rstest]
#[tokio::test]
async fn a_refused_set_is_part_of_what_came_of_the_command(#[values(Backend::Sqlite)] backend: Backend) {
    let used = Used::new(backend, &[("a.txt", "one\n")]).await;
    let mut checkout = used.checkout(false).await;
    let done = exec(&mut checkout, &push("echo A=1 > .env; echo two > a.txt; exit 3")).await;
    assert_eq!((done.execution.outcome.exit_code, done.report.changes.len()), (Some(3), 2));
    let refused = done.recorded.unwrap_err();
    let FolderError::Service(error) = &refused else { panic!("{refused:?}") };
    assert_eq!(error.problem().unwrap().code, "POLICY_DENIED_SECRET");
    assert!(!refused.next_step().is_empty());
    assert_eq!(used.run.on_disk("a.txt"), "one\n");

    let leave = PushOptions { reason: "r".into(), on_denied: ChangesetDenied::Leave, ..PushOptions::default() };
    let dry = PushOptions { is_dry_run: true, ..leave.clone() };
    let asked = checkout.push(ScanScope::Usual, &dry).await.unwrap().unwrap();
    assert_eq!((asked.answer.applied.len(), used.run.on_disk("a.txt").as_str()), (1, "one\n"));
    let pushed = checkout.push(ScanScope::Usual, &leave).await.unwrap().unwrap();
    assert_eq!((pushed.answer.left[0].path(), used.run.on_disk("a.txt").as_str()), (".env", "two\n"));

    // The same set again is the same answer, and a conflict is merged or refused.
    std::fs::write(used.folder().join("a.txt"), "three\n").unwrap();
    used.replace("a.txt", "others\n").await;
    for on_conflict in [ChangesetConflict::Refuse, ChangesetConflict::Merge] {
        let push = PushOptions { on_conflict, ..leave.clone() };
        let error = checkout.push(ScanScope::Usual, &push).await.unwrap_err();
        assert!(error.to_string().starts_with("WRITE_CONFLICT"), "{error}");
    }
    let error = checkout.pull().await.unwrap_err();
    assert!(
        matches!(&error, FolderError::Folder(_)) && error.next_step().starts_with("Push your changes first"),
        "{error}"
    );
    assert_eq!(std::fs::read_to_string(used.folder().join("a.txt")).unwrap(), "three\n");

    let empty = FolderPlace::Here(used.server.home.join("empty"));
    let mut nothing = Checkout::open(&used.client, &used.id, &empty).await.unwrap();
    let error = nothing.push(ScanScope::Usual, &leave).await.unwrap_err();
    assert!(matches!(error, FolderError::NoCheckout { .. }), "{error}");
}

#[rstest]
#[tokio::test]
async fn a_time_limit_ends_a_command_and_nothing_of_it_is_applied(
    #[values(Backend::Sqlite)] backend: Backend,
    #[values(false, true)] is_sandbox: bool,
) {
    let used = Used::new(backend, &[("a.txt", "one\n")]).await;
    let mut checkout = used.checkout(is_sandbox).await;
    // It ends well when it is asked to, which is no success.
    let script = "trap 'exit 0' TERM; sleep 600 & echo $! > pid; echo two > a.txt; while :; do sleep 0.1; done";
    let done = begun(&mut checkout, script, &used.folder().join("a.txt"), "two\n").await;
    assert!(done.execution.is_timed_out && !done.execution.is_complete(), "{:?}", done.execution);
    assert!(matches!(done.recorded, Ok(RecordedCommand::Event { .. })), "{:?}", done.recorded);
    assert_eq!(used.run.on_disk("a.txt"), "one\n");
    assert_eq!(used.records("event.command").await[0]["input"]["data"]["timedOut"], true);
    gone(&used.written("pid").await).await;
    std::fs::write(used.folder().join("a.txt"), "one\n").unwrap();
    std::fs::remove_file(used.folder().join("pid")).unwrap();

    // One that does not heed it is killed, and the checkout is of use afterwards.
    let stubborn = "trap '' TERM; echo > deaf; sleep 600";
    let done = begun(&mut checkout, stubborn, &used.folder().join("deaf"), "\n").await;
    std::fs::remove_file(used.folder().join("deaf")).unwrap();
    assert_eq!((done.execution.outcome.signal, done.execution.is_timed_out), (Some(9), true));
    assert_eq!(exec(&mut checkout, &push("cat a.txt")).await.execution.output, "one\n");
}

#[rstest]
#[tokio::test]
async fn a_command_that_nobody_waits_for_ends_with_its_group(
    #[values(Backend::Sqlite)] backend: Backend,
    #[values(false, true)] is_sandbox: bool,
) {
    let used = Used::new(backend, &[("a.txt", "one\n")]).await;
    let mut checkout = used.checkout(is_sandbox).await;
    let silent = push("trap '' INT TERM; sleep 600 & echo $! > pid; wait");
    let sink = &mut |_, _: &[u8]| {};
    tokio::select! {
        done = checkout.exec(&silent, sink) => panic!("{done:?}"),
        _ = used.written("pid") => {}
    }
    gone(&used.written("pid").await).await;
    assert_eq!(exec(&mut checkout, &push("cat a.txt; rm pid")).await.execution.output, "one\n");

    // With the checkout, at once.
    {
        let sink = &mut |_, _: &[u8]| {};
        let mut running = Box::pin(checkout.exec(&silent, sink));
        tokio::select! {
            done = &mut running => panic!("{done:?}"),
            _ = used.written("pid") => {}
        }
    }
    drop(checkout);
    gone(&used.written("pid").await).await;
    let mut checkout = used.checkout(is_sandbox).await;

    // By its signals, before it starts and while it runs.
    let signals = CommandSignals::new();
    signals.kill();
    let options = ExecOptions { signals, ..push("sleep 600") };
    assert_eq!(exec(&mut checkout, &options).await.execution.outcome.signal, Some(9));
    let signals = CommandSignals::new();
    let options = ExecOptions {
        signals: signals.clone(),
        ..push("trap 'exit 9' INT; echo > ready; while :; do sleep 0.1; done")
    };
    let interrupt = async {
        used.written("ready").await;
        signals.signal(2);
    };
    let (done, ()) = tokio::join!(exec(&mut checkout, &options), interrupt);
    assert_eq!(done.execution.outcome.exit_code, Some(9));
}

#[rstest]
#[tokio::test]
async fn what_a_command_with_thousands_of_arguments_changes_is_applied(#[values(Backend::Sqlite)] backend: Backend) {
    let used = Used::new(backend, &[("a.txt", "one\n")]).await;
    let mut checkout = used.checkout(false).await;
    let files = (0..5000).map(|number| format!("src/components/file-{number}.ts"));
    let argv = ["sh", "-c", "echo two > a.txt; echo $#", "sh"].map(str::to_owned).into_iter().chain(files);
    let push = ExecOptions { mode: ExecMode::Push(PushOptions::default()), ..ExecOptions::argv(argv) };
    let done = exec(&mut checkout, &push).await;
    assert!(matches!(done.recorded, Ok(RecordedCommand::Applied(_))), "{:?}", done.recorded);
    assert_eq!((done.execution.output.as_str(), used.run.on_disk("a.txt").as_str()), ("5000\n", "two\n"));
    assert!(used.records("apply_changeset").await[0]["reason"].as_str().unwrap().ends_with('…'));
}

#[rstest]
#[tokio::test]
async fn a_changed_index_leads_a_checkout_nowhere_else(#[values(Backend::Sqlite)] backend: Backend) {
    let used = Used::new(backend, &[("a.txt", "one\n")]).await;
    let other = used.server.run_with_files(&[("private.txt", "p\n")], json!({})).await;
    let mut checkout = used.checkout(true).await;
    // While it is open, what the command writes there is not read.
    let script = format!("sed -i s/{}/{}/ .workspaced/state; echo e > evil.txt", used.run.id, other.id);
    let done = exec(&mut checkout, &push(&script)).await;
    assert!(matches!(done.recorded, Ok(RecordedCommand::Applied(_))), "{:?}", done.recorded);
    assert!(used.run.files().contains_key("evil.txt") && !other.files().contains_key("evil.txt"));
    // And a changed index of a folder that is opened again is another run's.
    checkout.close().await.unwrap();
    let index = used.folder().join(".workspaced/state");
    let text = String::from_utf8_lossy(&std::fs::read(&index).unwrap()).replace(&used.run.id, &other.id);
    std::fs::write(&index, text).unwrap();
    let operator = Client::new(&used.server.base, used.server.operator_token.as_str()).unwrap();
    let mut checkout = Checkout::open(&operator, &used.id, &used.place(false)).await.unwrap();
    let push = PushOptions { reason: "r".into(), ..PushOptions::default() };
    for error in [checkout.pull().await.unwrap_err(), checkout.push(ScanScope::Usual, &push).await.unwrap_err()] {
        assert!(matches!(&error, FolderError::OtherRun { found, .. } if *found == other.id), "{error:?}");
    }
    assert!(!used.folder().join("private.txt").exists() && other.files().len() == 1);
}

#[rstest]
#[tokio::test]
async fn a_sandbox_that_hangs_is_cut_off_and_its_command_recorded(
    #[values(Backend::Sqlite)] backend: Backend,
    #[values(false, true)] is_pipe_held: bool,
) {
    let used = Used::new(backend, &[("a.txt", "one\n")]).await;
    let FolderPlace::Sandbox(place) = used.place(true) else { panic!() };
    // In a session of its own, the shim does not end with the program that holds the pipe.
    let address = if is_pipe_held { "pipe:setsid -w" } else { "pipe:env" }.parse().unwrap();
    let place = FolderPlace::Sandbox(SandboxPlace { address, ..place });
    let mut checkout = Checkout::open(&used.client, &used.id, &place).await.unwrap();
    checkout.pull().await.unwrap();
    // The shim is stopped, as in a paused container: nothing there reacts.
    let script = "echo $PPID > pid; echo $$ > own; kill -STOP $PPID; exec sleep 600";
    let options = ExecOptions { time_limit: Some(Duration::from_secs(2)), ..push(script) };
    let error = checkout.exec(&options, &mut |_, _| {}).await.unwrap_err();
    assert!(error.to_string().contains("the connection to the sandbox was lost"), "{error}");
    assert!(!error.next_step().is_empty());
    assert_eq!(used.run.on_disk("a.txt"), "one\n");
    let record = &used.records("event.command").await[0];
    let event = &record["input"];
    assert_eq!(
        (&event["data"]["timedOut"], &event["data"]["failure"]),
        (&json!(true), &json!(error.to_string())),
        "{record:#}"
    );
    assert!(event["summary"].as_str().unwrap().ends_with(": it is not known how it ended"), "{record:#}");
    assert!(record["durationMicros"].as_u64() > Some(10_000_000) && event["startedAt"].is_string(), "{record:#}");
    if is_pipe_held {
        end(&used.written("pid").await);
    }
    gone(&used.written("pid").await).await;
    // Nothing is left in a sandbox that is a process alone to end its command.
    end(&used.written("own").await);
}

fn end(pid: &str) {
    let pid = rustix::process::Pid::from_raw(pid.parse().unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[rstest]
#[tokio::test]
async fn a_sandbox_that_does_not_answer_is_given_up(#[values(Backend::Sqlite)] backend: Backend) {
    let used = Used::new(backend, &[("a.txt", "one\n")]).await;
    let FolderPlace::Sandbox(place) = used.place(true) else { panic!() };
    let program = used.server.home.join("silent");
    // The second one does not hear of it.
    for script in ["exec sleep 600", "setsid sleep 60; exit"] {
        std::fs::write(&program, format!("#!/bin/sh\necho $$ > {0}.pid\n{script}\n", program.display())).unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let address = format!("pipe:{}", program.display()).parse().unwrap();
        let start_limit = Duration::from_millis(1500);
        let place = FolderPlace::Sandbox(SandboxPlace { address, start_limit, ..place.clone() });
        let error = Checkout::open(&used.client, &used.id, &place).await.unwrap_err();
        assert!(error.to_string().ends_with("it did not answer within 2 s"), "{script}: {error}");
        assert!(matches!(error, FolderError::NotStarted { .. }), "{script}: {error:?}");
        gone(std::fs::read_to_string(program.with_extension("pid")).unwrap().trim()).await;
    }
}

#[rstest]
#[tokio::test]
async fn only_a_command_that_ran_on_the_tree_as_pulled_claims_its_hash(
    #[values(Backend::Sqlite)] backend: Backend,
    #[values(false, true)] is_sandbox: bool,
) {
    let used = Used::new(backend, &[("a.txt", "one\n")]).await;
    let place = match used.place(is_sandbox) {
        FolderPlace::Sandbox(place) => {
            FolderPlace::Sandbox(SandboxPlace { folder: Some("/tmp".to_owned()), is_fresh: true, ..place })
        }
        _ => FolderPlace::Fresh(None),
    };
    let mut checkout = Checkout::open(&used.client, &used.id, &place).await.unwrap();
    let test = ExecOptions { mode: ExecMode::Test, ..ExecOptions::shell("echo changed > a.txt") };
    // The second one runs on what the first one has left, and a pull does not change that.
    for _ in 0..2 {
        exec(&mut checkout, &test).await;
    }
    exec(&mut checkout, &push("true")).await;
    let mut hashes = Vec::new();
    for tool in ["event.test", "event.command"] {
        for record in used.records(tool).await {
            hashes.push(record["input"]["data"]["environment"]["treeSha256"].as_str().map(str::len));
        }
    }
    hashes.sort_unstable();
    assert_eq!(hashes, [None, None, Some(64)]);
    // A folder that was there before claims nothing.
    let mut checkout = used.checkout(is_sandbox).await;
    exec(&mut checkout, &test).await;
    let last = used.records("event.test").await.into_iter().max_by_key(|record| record["seq"].as_u64()).unwrap();
    assert!(last["input"]["data"]["environment"].get("treeSha256").is_none(), "{last:#}");
}

#[rstest]
#[tokio::test]
async fn a_command_whose_output_is_refused_is_recorded_and_its_set_applied(
    #[values(Backend::Sqlite)] backend: Backend,
) {
    let used = Used::new(backend, &[("a.txt", "one\n")]).await;
    let mut checkout = used.checkout(false).await;
    // In UTF-16, where only the service finds it.
    let credential: String = "token: ghp_abcdefghijklmnopqrstuvwxyz0123456789 "
        .chars()
        .flat_map(|c| [c.to_string(), r"\0".to_owned()])
        .collect();
    let script = format!("printf '{}'; echo two > a.txt", credential.replace(r"\0", r"\000"));
    let done = exec(&mut checkout, &push(&script)).await;
    assert!(matches!(done.recorded, Ok(RecordedCommand::Applied(_))), "{:?}", done.recorded);
    assert_eq!(used.run.on_disk("a.txt"), "two\n");
    let done = exec(&mut checkout, &ExecOptions::shell(&script)).await;
    assert!(matches!(&done.recorded, Ok(RecordedCommand::Event { output: None, .. })), "{:?}", done.recorded);
    for record in used.records("event.command").await {
        let data = &record["input"]["data"];
        assert_eq!((&data["outputRefused"], data.get("output")), (&json!("POLICY_DENIED_SECRET"), None), "{data:#}");
    }
}

#[rstest]
#[tokio::test]
async fn a_pull_that_fails_leaves_the_checkout_at_its_record(
    #[values(Backend::Sqlite)] backend: Backend,
    #[values(false, true)] is_sandbox: bool,
) {
    let used = Used::new(backend, &[("a.txt", "one\n")]).await;
    let first = used.checkout(is_sandbox).await;
    assert_eq!(first.seq(), None);
    let mut first = first;
    let seq = first.pull().await.unwrap().now.seq;
    first.close().await.unwrap();
    std::fs::write(used.folder().join("a.txt"), "mine\n").unwrap();
    used.replace("a.txt", "others\n").await;
    // It is opened again, so that the folder's word is all that it has.
    let mut again = used.checkout(is_sandbox).await;
    assert!(matches!(again.pull().await, Err(FolderError::Folder(_))));
    assert_eq!(again.seq(), Some(seq));
    std::fs::write(used.folder().join("a.txt"), "one\n").unwrap();
    assert_eq!(again.pull().await.unwrap().from, Some(seq));
}

#[rstest]
#[tokio::test]
async fn a_command_that_is_asked_to_end_leaves_nothing_to_apply(#[values(Backend::Sqlite)] backend: Backend) {
    let used = Used::new(backend, &[("a.txt", "one\n")]).await;
    let mut checkout = used.checkout(true).await;
    let signals = CommandSignals::new();
    let script = "trap 'exit 0' TERM; echo two > a.txt; echo > ready; while :; do sleep 0.1; done";
    let options = ExecOptions { signals: signals.clone(), ..push(script) };
    let ending = async {
        used.written("ready").await;
        signals.end();
    };
    let (done, ()) = tokio::join!(exec(&mut checkout, &options), ending);
    let execution = done.execution;
    assert_eq!((execution.outcome.exit_code, execution.is_timed_out, execution.is_complete()), (Some(0), false, false));
    assert_eq!(used.run.on_disk("a.txt"), "one\n");
}

/// A command that stops the shim which has started it keeps nobody from the folder.
#[tokio::test]
async fn a_shim_that_was_stopped_is_noticed_and_gives_its_folder_back() {
    let used = Used::new(Backend::Sqlite, &[("a.txt", "a\n")]).await;
    let FolderPlace::Sandbox(place) = used.place(true) else { panic!() };
    let place = FolderPlace::Sandbox(SandboxPlace { silence_limit: Duration::from_secs(5), ..place });
    let mut checkout = Checkout::open(&used.client, &used.id, &place).await.unwrap();
    checkout.pull().await.unwrap();
    // One that works is heard.
    let quiet = checkout.exec(&ExecOptions::shell("sleep 6"), &mut |_, _| {}).await.unwrap();
    assert_eq!(quiet.execution.outcome.exit_code, Some(0));
    let stops = ExecOptions::shell("kill -STOP $PPID; exec sleep 600");
    let error = checkout.exec(&stops, &mut |_, _| {}).await.unwrap_err();
    assert!(error.to_string().contains("the shim was silent for 5 s"), "{error}");
    drop(checkout);
    let mut again = used.checkout(true).await;
    let done = again.exec(&ExecOptions::shell("cat a.txt"), &mut |_, _| {}).await.unwrap();
    assert_eq!((done.execution.output.as_str(), done.execution.outcome.exit_code), ("a\n", Some(0)));
}
