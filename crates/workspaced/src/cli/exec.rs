//! `exec`: a command in a run's files, here or in a sandbox. What it changed is shown, or goes back as one judged set of changes.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the client works in its user's folders, and says when its command ran"
)]

use std::collections::VecDeque;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use model::{MAX_UPLOAD_BYTES, redact};
use serde_json::{Map, Value, json};
use shim::{CommandControl, CommandOutcome, CommandSpec, OutputStream, PathChange, ScanReport};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::block_in_place;
use workspaced_client::{ChangesetCommand, Client, CommandEvent, EventKind, NewEvent, RunId, UploadedArtifact};

use crate::cli::call::parse_run;
use crate::cli::checkout::check_out;
use crate::cli::checkout_notes::CheckoutNotes;
use crate::cli::connection::{Connection, Env, connect};
use crate::cli::error::CliError;
use crate::cli::folder_sync::{
    Pulled, PushOptions, Pushed, letter, print_changes, print_denied, print_left, push, pushed_summary, scan,
};
use crate::cli::output::Output;
use crate::cli::sandbox_pipe::{OpenFolder, SandboxAddress};

/// How many changes an event names.
const MAX_RECORDED: usize = 200;
/// How many characters of a path an event has.
const MAX_RECORDED_CHARS: usize = 200;
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
    #[arg(long = "in", id = "sandbox", value_name = "SANDBOX", value_parser = SandboxAddress::parse)]
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
    options: PushOptions,
    /// Command and its arguments.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,
    #[command(flatten)]
    pub(super) connection: Connection,
}

/// A command that has ended.
struct Execution {
    outcome: CommandOutcome,
    started_at: Timestamp,
    kept: KeptOutput,
}

/// What came of the changes.
struct RecordedCommand {
    text: String,
    members: Map<String, Value>,
    /// Why the folder does not have the run's state now, although the changes are in the run.
    stale: Option<CliError>,
}

/// Runs `exec`. The exit code is the command's.
pub(super) async fn run(args: ExecArgs, env: &Env<'_>) -> Result<ExitCode, CliError> {
    let client = connect(&args.connection.address, env)?;
    let output = Output::new(&args.connection, env);
    let mut open = block_in_place(|| open(&args))?;
    let pulled = check_out(&client, &args.run, &mut open).await?;
    if let (None, false, Some(dir)) = (&args.sandbox, args.fresh, &args.dir) {
        CheckoutNotes::of(env).add(Path::new(dir), &pulled.now.run)?;
    }
    let execution = execute(&args, output, &mut open)?;
    let report = scan(&mut open, args.options.all)?;
    let mut line = vec![pulled.summary(), ended(&execution.outcome), changed(&report)];
    if !output.is_json {
        print_changes(output, &report);
    }
    let recorded = record(&args, &client, output, &pulled, &mut open, &execution, &report).await;
    match &recorded {
        Ok(recorded) => line.push(recorded.text.clone()),
        Err(_) if args.push => line.push("not applied".to_owned()),
        Err(_) => line.push("not recorded".to_owned()),
    }
    output.note(&line.join(" · "));
    let recorded = recorded?;
    if output.is_json {
        let Execution { outcome, .. } = &execution;
        let mut answer = json!({
            "run": pulled.now.run, "fromSeq": pulled.from, "seq": pulled.now.seq, "exitCode": outcome.exit_code,
            "signal": outcome.signal, "durationMicros": outcome.duration_micros, "changes": report.changes,
            "left": report.left, "notWalked": report.not_walked,
        });
        if let Value::Object(answer) = &mut answer {
            answer.extend(recorded.members);
        }
        output.json(&answer)?;
    }
    if let Some(stale) = recorded.stale {
        return Err(stale);
    }
    Ok(ExitCode::from(u8::try_from(execution.outcome.shell_code()).unwrap_or(1)))
}

fn open(args: &ExecArgs) -> Result<OpenFolder, CliError> {
    let dir = args.dir.as_deref();
    match &args.sandbox {
        Some(address) => OpenFolder::inside(address, dir, args.fresh, args.shim.as_deref()),
        None if args.fresh => OpenFolder::fresh(dir.map(Path::new)),
        None => OpenFolder::here(Path::new(dir.unwrap_or("."))),
    }
}

/// Runs the command, with its output on this one's.
fn execute(args: &ExecArgs, output: Output, open: &mut OpenFolder) -> Result<Execution, CliError> {
    let spec = CommandSpec { argv: args.command.clone(), cwd: args.cwd.clone(), env: Vec::new() };
    let control: Arc<Mutex<Option<CommandControl>>> = Arc::default();
    let listener = tokio::spawn(pass_signals_on(Arc::clone(&control))?);
    let mut kept = KeptOutput::default();
    let started_at = Timestamp::now();
    let outcome = block_in_place(|| {
        let set = |started| *control.lock().unwrap_or_else(PoisonError::into_inner) = Some(started);
        open.folder.exec(&spec, &mut { set }, &mut |stream, chunk| {
            kept.add(chunk);
            // Without a reader, the command goes on: its output is kept.
            let _ = if stream == OutputStream::Stdout && !output.is_json {
                io::stdout().write_all(chunk).and_then(|()| io::stdout().flush())
            } else {
                io::stderr().write_all(chunk)
            };
            Ok(())
        })
    });
    listener.abort();
    // It holds the pipe.
    control.lock().unwrap_or_else(PoisonError::into_inner).take();
    Ok(Execution { outcome: outcome?, started_at, kept })
}

/// Passes interrupts to the command, which has no terminal, and kills it if it does not heed several.
fn pass_signals_on(
    control: Arc<Mutex<Option<CommandControl>>>,
) -> Result<impl Future<Output = ()> + Send + 'static, CliError> {
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
            let control = control.lock().unwrap_or_else(PoisonError::into_inner).clone();
            match control {
                Some(control) if interrupts > MAX_INTERRUPTS => control.kill(),
                Some(control) => control.signal(kind.as_raw_value()),
                None => {}
            }
        }
    })
}

/// Records the command, and applies what it changed if that is wanted.
async fn record(
    args: &ExecArgs,
    client: &Client,
    output: Output,
    pulled: &Pulled,
    open: &mut OpenFolder,
    execution: &Execution,
    report: &ScanReport,
) -> Result<RecordedCommand, CliError> {
    let run = RunId::parse(&pulled.now.run).map_err(|error| CliError::Failed(error.to_string()))?;
    let uploaded = match execution.kept.redacted() {
        text if text.is_empty() => None,
        text => Some(client.upload_artifact(&run, text).await?),
    };
    let mut environment = open.environment.clone();
    if args.fresh {
        environment.insert("treeSha256".to_owned(), json!(pulled.applied.tree_sha256));
    }
    // What an interrupted command left is half of something.
    let is_pushed = args.push && execution.outcome.signal.is_none() && !report.changes.is_empty();
    if is_pushed {
        let command = changeset_command(args, execution, uploaded.as_ref(), &environment);
        let reason = args.reason.clone().unwrap_or_else(|| shown_command(&args.command));
        let changeset = |base| args.options.changeset(base, &reason, Some(command.clone()));
        if let Some(pushed) = push(client, &pulled.now, open, &report.changes, changeset).await? {
            return applied(output, pushed);
        }
    }
    let event = event(args, execution, uploaded.as_ref(), &environment, pulled, report);
    let appended = client.append_event(&run, &event).await?;
    let what = if report.changes.is_empty() { "recorded" } else { "not applied, recorded" };
    let mut members = Map::new();
    members.insert("eventSeq".to_owned(), json!(appended.seq));
    members.extend(uploaded.map(|uploaded| ("output".to_owned(), json!(uploaded))));
    Ok(RecordedCommand { text: format!("{what} as {}", appended.seq), members, stale: None })
}

fn applied(output: Output, pushed: Pushed) -> Result<RecordedCommand, CliError> {
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
    Ok(RecordedCommand { text, members, stale: pushed.stale })
}

fn changeset_command(
    args: &ExecArgs,
    execution: &Execution,
    uploaded: Option<&UploadedArtifact>,
    environment: &Map<String, Value>,
) -> ChangesetCommand {
    ChangesetCommand {
        argv: args.command.clone(),
        cwd: args.cwd.clone(),
        exit_code: execution.outcome.exit_code,
        started_at: execution.started_at.to_string(),
        duration_micros: execution.outcome.duration_micros,
        output_sha256: uploaded.map(|uploaded| uploaded.sha256),
        environment: environment.clone(),
    }
}

fn event(
    args: &ExecArgs,
    execution: &Execution,
    uploaded: Option<&UploadedArtifact>,
    environment: &Map<String, Value>,
    pulled: &Pulled,
    report: &ScanReport,
) -> NewEvent {
    let outcome = &execution.outcome;
    let command = shown_command(&args.command);
    let mut event = NewEvent::from(&CommandEvent {
        command: &command,
        exit_code: Some(outcome.shell_code()),
        duration: Some(Duration::from_micros(outcome.duration_micros)),
        output: uploaded.map(|uploaded| uploaded.uri.as_str()),
    });
    if args.test {
        event.kind = EventKind::Test;
    }
    event.started_at = Some(execution.started_at.to_string());
    let mut add = |name: &str, value: Value| drop(event.data.insert(name.to_owned(), value));
    add("cwd", json!(args.cwd));
    add("basedOnSeq", json!(pulled.now.seq));
    add("environment", json!(environment));
    if let Some(uploaded) = uploaded {
        add("outputSha256", json!(uploaded.sha256));
    }
    if !report.changes.is_empty() {
        let named: Vec<_> = report.changes.iter().take(MAX_RECORDED).map(recorded_change).collect();
        add("changed", json!(named));
        add("changedCount", json!(report.changes.len()));
    }
    event
}

fn recorded_change(change: &PathChange) -> String {
    let path: String = change.path.chars().take(MAX_RECORDED_CHARS).collect();
    format!("{} {path}", letter(change.change))
}

/// A command as it is typed. A word that a shell would read otherwise is quoted.
fn shown_command(argv: &[String]) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%".contains(c);
    let word = |word: &String| {
        if !word.is_empty() && word.chars().all(is_plain) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', r"'\''"))
        }
    };
    argv.iter().map(word).collect::<Vec<_>>().join(" ")
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

/// The beginning and the end of a command's output, as much as an artifact may have.
#[derive(Debug, Default)]
struct KeptOutput {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    /// Bytes between the two that are not kept.
    dropped: u64,
}

impl KeptOutput {
    /// The most bytes of an artifact.
    #[expect(clippy::cast_possible_truncation, reason = "the limit is far below that of any machine")]
    const MAX: usize = MAX_UPLOAD_BYTES as usize;
    /// Half of one, with room for the line between the halves.
    const HALF: usize = Self::MAX / 2 - 64;

    fn add(&mut self, chunk: &[u8]) {
        let (head, rest) = chunk.split_at(chunk.len().min(Self::HALF - self.head.len()));
        self.head.extend_from_slice(head);
        self.tail.extend(rest);
        let excess = self.tail.len().saturating_sub(Self::HALF);
        self.tail.drain(..excess);
        self.dropped += excess as u64;
    }

    /// Returns it as a text without credentials, no longer than an artifact may be.
    fn redacted(&self) -> Vec<u8> {
        let mut all = self.head.clone();
        if self.dropped > 0 {
            all.extend(format!("\n[{} bytes are not kept]\n", self.dropped).into_bytes());
        }
        all.extend(&self.tail);
        let mut text = redact(&String::from_utf8_lossy(&all)).into_owned().into_bytes();
        text.truncate(Self::MAX);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_that_is_too_long_keeps_its_beginning_and_its_end() {
        let mut kept = KeptOutput::default();
        (0..40).for_each(|number| kept.add(format!("{number:01024}").repeat(1024).as_bytes()));
        let text = kept.redacted();
        assert!(text.len() as u64 <= MAX_UPLOAD_BYTES && text.len() > 15 << 20);
        assert!(text.starts_with(b"0000") && text.ends_with(b"0039"));
        let dropped = (40 << 20) - 2 * KeptOutput::HALF;
        assert!(String::from_utf8(text).unwrap().contains(&format!("\n[{dropped} bytes are not kept]\n")));
    }

    #[test]
    fn a_credential_in_the_output_is_not_kept() {
        let mut kept = KeptOutput::default();
        kept.add(b"\xff token: ghp_abcdefghijklmnopqrstuvwxyz0123456789 end\n");
        let text = String::from_utf8(kept.redacted()).unwrap();
        assert!(text.contains("[redacted: ") && !text.contains("ghp_"), "{text}");
    }

    #[test]
    fn a_command_is_shown_as_it_is_typed() {
        let argv = ["sh", "-c", "it's $X", ""].map(str::to_owned);
        assert_eq!(shown_command(&argv), r"sh -c 'it'\''s $X' ''");
    }
}
