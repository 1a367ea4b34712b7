//! `exec`: a command in a run's files, here or in a sandbox. What it changed is shown, or goes back as one judged set of changes.

#![expect(clippy::disallowed_types, reason = "the client works in its user's folders")]

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::signal::unix::{SignalKind, signal};
use workspaced_client::{
    CommandOutcome, CommandSignals, CommandSpec, ExecMode, ExecOptions, Executed, FolderError, FolderPlace, OpenFolder,
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
    /// Apply what the command changed to the run, as one set.
    #[arg(long, conflicts_with = "test")]
    push: bool,
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

/// What came of the changes.
struct RecordSummary {
    text: String,
    members: Map<String, Value>,
    /// Why the folder does not have the run's state now, although the changes are in the run.
    stale: Option<FolderError>,
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
    let listener = tokio::spawn(pass_signals_on(options.signals.clone())?);
    let executed = checkout
        .exec_in(pulled, &options, &mut |stream, chunk| {
            // Without a reader, the command goes on: its output is kept.
            let _ = if stream == OutputStream::Stdout && !output.is_json {
                io::stdout().write_all(chunk).and_then(|()| io::stdout().flush())
            } else {
                io::stderr().write_all(chunk)
            };
        })
        .await;
    listener.abort();
    print(&args, output, executed?)
}

/// Prints what came of the command, and returns its exit code.
fn print(args: &ExecArgs, output: Output, executed: Executed) -> Result<ExitCode, CliError> {
    let Executed { pulled, execution, report, earlier, recorded } = executed;
    let mut line = vec![pulled_summary(&pulled), ended(&execution.outcome), changed(&report)];
    if !output.is_json {
        print_conflicts(output, &pulled);
        print_changes(output, &report);
        print_earlier(output, &earlier);
    }
    let recorded = recorded.map_err(CliError::from).and_then(|recorded| summary(output, recorded, &report));
    match &recorded {
        Ok(recorded) => line.push(recorded.text.clone()),
        Err(_) if args.push => line.push("not applied".to_owned()),
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
    Ok(ExitCode::from(u8::try_from(execution.outcome.shell_code()).unwrap_or(1)))
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
    let mode = if args.push {
        ExecMode::Push(args.flags.options(args.reason.as_deref().unwrap_or_default()))
    } else if args.test {
        ExecMode::Test
    } else {
        ExecMode::Record
    };
    let command = CommandSpec { argv: args.command.clone(), cwd: args.cwd.clone(), env: Vec::new() };
    ExecOptions { command, mode, scope: args.flags.scope(), ..ExecOptions::default() }
}

/// Passes interrupts to the command, which has no terminal, and kills it if it does not heed several.
fn pass_signals_on(command: CommandSignals) -> Result<impl Future<Output = ()> + Send + 'static, CliError> {
    let listen = |kind| signal(kind).map_err(|error| CliError::file("signals", &error));
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    Ok(async move {
        let mut interrupts = 0;
        loop {
            let kind = tokio::select! {
                Some(()) = interrupt.recv() => SignalKind::interrupt(),
                Some(()) = terminate.recv() => SignalKind::terminate(),
                else => return,
            };
            interrupts += 1;
            if interrupts > MAX_INTERRUPTS {
                command.kill();
            } else {
                command.signal(kind.as_raw_value());
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
            Ok(RecordSummary { text: format!("{what} as {}", event.seq), members, stale: None })
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
    let mut text = pushed_summary(&pushed.answer);
    if pushed.stale.is_some() {
        text += ", the folder is not up to date";
    }
    Ok(RecordSummary { text, members, stale: pushed.stale })
}

fn ended(outcome: &CommandOutcome) -> String {
    let seconds = Duration::from_micros(outcome.duration_micros).as_secs_f64();
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
