//! `exec`: a command in a run's files, here or in a sandbox. What it changed is shown, or goes back as one judged set of changes.

#![expect(clippy::disallowed_types, reason = "the client works in its user's folders")]

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::signal::unix::{SignalKind, signal};
use workspaced_client::{
    CommandSignals, CommandSpec, ExecMode, ExecOptions, Executed, Execution, FolderError, FolderPlace, OpenFolder,
    OutputStream, Pushed, RecordedCommand, RunId, SandboxAddress, SandboxPlace, ScanReport,
};

use crate::call::parse_run;
use crate::changes::{
    PushFlags, print_changes, print_conflicts, print_denied, print_earlier, print_left, pulled_summary, pushed_summary,
};
use crate::checkout::check_out;
use crate::checkout_notes::CheckoutNotes;
use crate::connection::{Connection, Env, connect};
use crate::error::CliError;
use crate::output::Output;

/// How often an interrupt is passed on before the command is killed.
const MAX_INTERRUPTS: u32 = 3;

/// Arguments of `exec`.
#[derive(Debug, clap::Args)]
pub struct ExecArgs {
    /// Run.
    #[arg(value_name = "RUN", value_parser = parse_run)]
    run: RunId,
    /// Folder of the checkout, here or in the sandbox; created if it is missing [default: `/workspace` in a sandbox]
    #[arg(long, value_name = "DIR", required_unless_present_any = ["sandbox", "fresh"])]
    dir: Option<String>,
    /// Sandbox: `docker:NAME`, `podman:NAME`, `kubectl:NAMESPACE/POD[/CONTAINER]`, `ssh:HOST:DIR`, or `pipe:PROGRAM ARGUMENTS`
    /// for a program that runs a command with a pipe.
    #[arg(long = "in", id = "sandbox", value_name = "SANDBOX")]
    sandbox: Option<SandboxAddress>,
    /// Program that is copied into the sandbox [default: `workspaced-shim` beside this one]
    #[arg(long, value_name = "FILE", requires = "sandbox")]
    shim: Option<PathBuf>,
    /// Folder in which the command runs, inside the checkout.
    #[arg(long, value_name = "DIR", default_value = ".")]
    cwd: String,
    /// Apply what the command changed to the run, as one set; with `--push=ok`, only if the command succeeded.
    #[arg(
        long, conflicts_with = "test", value_name = "WHEN", value_enum, num_args = 0..=1, require_equals = true,
        default_missing_value = "any"
    )]
    push: Option<PushWhen>,
    /// End the command after this many seconds. What it left is not applied, and the exit code is 124.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    timeout: Option<u64>,
    /// Record it as a test: what it changed is named in the record and not applied.
    #[arg(long)]
    test: bool,
    /// Use a new folder, in `--dir` or the folder for temporary files, and remove it afterwards.
    #[arg(long)]
    fresh: bool,
    /// Reason for the audit [default: the command]
    #[arg(long, value_name = "TEXT", requires = "push")]
    reason: Option<String>,
    #[command(flatten)]
    flags: PushFlags,
    /// Command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
    #[command(flatten)]
    pub(super) connection: Connection,
}

/// When what a command changed is applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum PushWhen {
    /// Whatever its exit code is.
    Any,
    /// If it succeeded.
    Ok,
}

/// The exit code of a command that its time limit has ended, as that of `timeout`.
const TIMED_OUT: u8 = 124;
/// The exit code of a program that SIGTERM has ended.
const TERMINATED: u8 = 143;

/// What came of the changes.
struct RecordSummary {
    text: String,
    members: Map<String, Value>,
    is_applied: bool,
    /// Why the folder does not have the run's state now, although the changes are in the run.
    stale: Option<FolderError>,
    /// How many changed files could not be sent, because they change all the time.
    unsent: usize,
}

/// Runs `exec`. The exit code is the command's.
pub(super) async fn run(args: ExecArgs, env: &Env<'_>) -> Result<ExitCode, CliError> {
    let client = connect(&args.connection.address, env)?;
    let output = Output::new(&args.connection, env);
    let folder = OpenFolder::open(&place(&args)).await?;
    let (mut checkout, pulled) = check_out(&client, &args.run, folder).await?;
    if let (None, false, Some(dir)) = (&args.sandbox, args.fresh, &args.dir) {
        CheckoutNotes::of(env).add(Path::new(dir), checkout.run().as_str())?;
    }
    let options = options(&args);
    let signals = pass_signals_on(options.signals.clone())?;
    let mut sink = |stream: OutputStream, chunk: &[u8]| {
        // Without a reader, the command goes on: its output is kept.
        let _ = if stream == OutputStream::Stdout && !output.is_json {
            io::stdout().write_all(chunk).and_then(|()| io::stdout().flush())
        } else {
            io::stderr().write_all(chunk)
        };
    };
    tokio::select! {
        executed = checkout.exec_in(pulled, &options, &mut sink) => print(&args, output, executed?),
        // The command is killed, and its end is not waited for.
        () = signals => Ok(ExitCode::from(TERMINATED)),
    }
}

/// Prints what came of the command, and returns its exit code.
fn print(args: &ExecArgs, output: Output, executed: Executed) -> Result<ExitCode, CliError> {
    let Executed { pulled, execution, report, earlier, recorded } = executed;
    let is_ok = execution.outcome.exit_code == Some(0);
    let mut line = vec![pulled_summary(&pulled), ended(&execution), changed(&report)];
    if !output.is_json {
        print_conflicts(output, &pulled);
        print_changes(output, &report);
        print_earlier(output, &earlier);
    }
    let recorded = recorded.map_err(CliError::from).and_then(|recorded| summary(output, recorded, &report));
    match &recorded {
        Ok(recorded) => {
            line.push(recorded.text.clone());
            match args.push {
                Some(PushWhen::Any) if !is_ok && recorded.is_applied => {
                    line.push("applied although the command failed".to_owned());
                }
                Some(PushWhen::Ok) if !is_ok && !report.changes.is_empty() => {
                    line.push("not applied, because the command failed".to_owned());
                }
                _ => {}
            }
            if recorded.unsent > 0 {
                line.push(format!("{} not sent", recorded.unsent));
            }
        }
        Err(_) if args.push.is_some() => line.push("not applied".to_owned()),
        Err(_) => line.push("not recorded".to_owned()),
    }
    output.note(&line.join(" · "));
    let recorded = recorded?;
    if output.is_json {
        let mut answer = json!({
            "run": pulled.now.run, "fromSeq": pulled.from, "seq": pulled.now.seq, "exitCode": execution.outcome.exit_code,
            "signal": execution.outcome.signal, "durationMicros": execution.outcome.duration_micros,
            "changes": report.changes, "left": report.left, "notWalked": report.not_walked,
            "earlier": earlier, "conflicts": pulled.conflicts,
        });
        if let Value::Object(answer) = &mut answer {
            answer.extend(recorded.members);
        }
        output.json(&answer)?;
    }
    if let Some(stale) = recorded.stale {
        return Err(stale.into());
    }
    Ok(match u8::try_from(execution.outcome.shell_code()).unwrap_or(1) {
        _ if execution.is_timed_out => ExitCode::from(TIMED_OUT),
        0 if recorded.unsent > 0 => ExitCode::FAILURE,
        code => ExitCode::from(code),
    })
}

fn place(args: &ExecArgs) -> FolderPlace {
    match &args.sandbox {
        Some(address) => FolderPlace::Sandbox(SandboxPlace {
            folder: args.dir.clone(),
            is_fresh: args.fresh,
            shim: args.shim.clone(),
            ..SandboxPlace::new(address.clone())
        }),
        None if args.fresh => FolderPlace::Fresh(args.dir.as_ref().map(PathBuf::from)),
        None => FolderPlace::Here(args.dir.as_deref().unwrap_or(".").into()),
    }
}

fn options(args: &ExecArgs) -> ExecOptions {
    let mode = if args.push.is_some() {
        ExecMode::Push(args.flags.options(args.reason.as_deref().unwrap_or_default()))
    } else if args.test {
        ExecMode::Test
    } else {
        ExecMode::Record
    };
    let command = CommandSpec { argv: args.command.clone(), cwd: args.cwd.clone(), env: Vec::new() };
    ExecOptions {
        command,
        mode,
        scope: args.flags.scope(),
        time_limit: args.timeout.map(Duration::from_secs),
        requires_success: args.push == Some(PushWhen::Ok),
        ..ExecOptions::default()
    }
}

/// Passes interrupts to the command, which has no terminal, and kills it if it does not heed several. SIGTERM ends it, with its time to do
/// so; at a second one, this completes.
fn pass_signals_on(command: CommandSignals) -> Result<impl Future<Output = ()> + Send + 'static, CliError> {
    let listen = |kind| signal(kind).map_err(|error| CliError::file("signals", &error));
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    Ok(async move {
        let (mut interrupts, mut is_ending) = (0, false);
        loop {
            tokio::select! {
                Some(()) = interrupt.recv() => {
                    interrupts += 1;
                    if interrupts > MAX_INTERRUPTS {
                        command.kill();
                    } else {
                        command.signal(SignalKind::interrupt().as_raw_value());
                    }
                }
                Some(()) = terminate.recv() => {
                    if is_ending {
                        return;
                    }
                    is_ending = true;
                    command.end();
                }
                else => return,
            }
        }
    })
}

fn summary(output: Output, recorded: RecordedCommand, report: &ScanReport) -> Result<RecordSummary, CliError> {
    match recorded {
        RecordedCommand::Applied(pushed) => applied(output, pushed),
        RecordedCommand::Event { event, output } => {
            let what = if report.changes.is_empty() { "recorded" } else { "not applied, recorded" };
            let mut members = Map::new();
            members.insert("eventSeq".to_owned(), json!(event.seq));
            members.extend(output.map(|uploaded| ("output".to_owned(), json!(uploaded))));
            let text = format!("{what} as {}", event.seq);
            Ok(RecordSummary { text, members, stale: None, is_applied: false, unsent: 0 })
        }
    }
}

fn applied(output: Output, pushed: Pushed) -> Result<RecordSummary, CliError> {
    if !output.is_json {
        print_left(output, &pushed.left, pushed.left.len() as u64);
        print_denied(output, &pushed.answer);
    }
    let answer = serde_json::to_value(&pushed.answer).map_err(|error| CliError::Failed(error.to_string()))?;
    let members = Map::from_iter([("changeset".to_owned(), answer)]);
    let (is_applied, unsent) = (pushed.answer.seq.is_some(), pushed.unsteady);
    let mut text = pushed_summary(&pushed.answer);
    if pushed.stale.is_some() {
        text += ", the folder is not up to date";
    }
    Ok(RecordSummary { text, members, stale: pushed.stale, is_applied, unsent })
}

fn ended(execution: &Execution) -> String {
    let outcome = &execution.outcome;
    let seconds = Duration::from_micros(outcome.duration_micros).as_secs_f64();
    if execution.is_timed_out {
        return format!("ended by --timeout after {seconds:.1} s");
    }
    match (outcome.exit_code, outcome.signal) {
        (Some(code), _) => format!("exit {code} in {seconds:.1} s"),
        (None, signal) => format!("ended by signal {} after {seconds:.1} s", signal.unwrap_or(0)),
    }
}

fn changed(report: &ScanReport) -> String {
    let mut text = match report.changes.len() {
        0 => "nothing changed".to_owned(),
        count => format!("{count} changed"),
    };
    if let [first, rest @ ..] = report.not_walked.as_slice() {
        text.extend([", ", first, " not taken"]);
        if !rest.is_empty() {
            text.push_str(" and others");
        }
    }
    text
}
