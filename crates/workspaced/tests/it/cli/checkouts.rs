//! Checkouts and commands by the client crate, without the program.

use std::path::Path;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rstest::rstest;
use serde_json::{Value, json};
use workspaced_client::{
    ChangesetConflict, ChangesetDenied, Checkout, Client, CommandSignals, CommandSpec, ExecMode, ExecOptions, Executed,
    FolderError, FolderPlace, OutputStream, PushOptions, RecordedCommand, RunId, SandboxPlace, ScanScope,
};

use crate::harness::{Backend, Run, Server, shim};

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
        let deadline = Instant::now() + Duration::from_mins(1);
        loop {
            match std::fs::read_to_string(self.folder().join(name)) {
                Ok(text) if text.ends_with('\n') => return text.trim().to_owned(),
                _ => assert!(Instant::now() < deadline, "{name} was not written"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
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
    let deadline = Instant::now() + Duration::from_mins(1);
    // A zombie has ended, whoever its parent is.
    let is_alive = || {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        state.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
    };
    while is_alive() {
        assert!(Instant::now() < deadline, "the process {pid} goes on");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
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
    let script = format!("sed -i s/{}/{}/ .workspaced/index; echo e > evil.txt", used.run.id, other.id);
    let done = exec(&mut checkout, &push(&script)).await;
    assert!(matches!(done.recorded, Ok(RecordedCommand::Applied(_))), "{:?}", done.recorded);
    assert!(used.run.files().contains_key("evil.txt") && !other.files().contains_key("evil.txt"));
    // And a changed index of a folder that is opened again is another run's.
    checkout.close().await.unwrap();
    let index = used.folder().join(".workspaced/index");
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
async fn a_sandbox_that_hangs_is_cut_off(#[values(Backend::Sqlite)] backend: Backend) {
    let used = Used::new(backend, &[("a.txt", "one\n")]).await;
    let mut checkout = used.checkout(true).await;
    // The shim is stopped, as in a paused container: nothing there reacts.
    let script = "echo $PPID > pid; echo $$ > own; kill -STOP $PPID; exec sleep 600";
    let options = ExecOptions { time_limit: Some(Duration::from_millis(500)), ..push(script) };
    let error = checkout.exec(&options, &mut |_, _| {}).await.unwrap_err();
    assert!(error.to_string().contains("the connection to the sandbox was lost"), "{error}");
    assert!(!error.next_step().is_empty());
    assert_eq!(used.run.on_disk("a.txt"), "one\n");
    gone(&used.written("pid").await).await;
    // Nothing is left in a sandbox that is a process alone to end its command.
    let own = used.written("own").await.parse().unwrap();
    rustix::process::kill_process(rustix::process::Pid::from_raw(own).unwrap(), rustix::process::Signal::KILL).unwrap();
}
