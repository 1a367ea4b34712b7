//! `runner`: runs the commands that agents want run, in a sandbox, and sends back what they changed.

#![expect(clippy::disallowed_types, reason = "the client works in its user's folders")]

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use futures_util::TryStreamExt as _;
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use workspaced_client::{
    Checkout, Client, FolderError, FolderPlace, PausedRunner, Run, RunId, RunState, Runner, SandboxAddress,
    SandboxPlace, ScanScope, ServedCommand,
};

use crate::call::parse_run;
use crate::connection::{Connection, Env, connect};
use crate::error::CliError;
use crate::listing::resolve_run;
use crate::output::Output;

/// How often the runs with a label are looked up.
const LOOK_UP: Duration = Duration::from_secs(5);
/// How long it is until a lost sandbox or service is tried again; it doubles up to the longest.
const PAUSE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// Arguments of `runner`.
#[derive(Debug, clap::Args)]
pub struct RunnerArgs {
    /// Run whose commands are run.
    #[arg(value_name = "RUN", value_parser = parse_run, required_unless_present = "label", conflicts_with = "label")]
    run: Option<RunId>,
    /// Serve all open runs with this label, each in a folder of its own; needs an operator's token.
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_label)]
    label: Option<(String, String)>,
    /// Sandbox: `docker:NAME`, `podman:NAME`, `kubectl:NAMESPACE/POD[/CONTAINER]`, `ssh:HOST:DIR`, or `pipe:PROGRAM ARGUMENTS`.
    #[arg(long = "in", id = "sandbox", value_name = "SANDBOX", required_unless_present = "dir")]
    sandbox: Option<SandboxAddress>,
    /// Folder of the checkout, in the sandbox or here; with `--label`, the folder above those of the runs.
    #[arg(long, value_name = "DIR")]
    dir: Option<String>,
    /// Program that is copied into the sandbox [default: `workspaced-shim` beside this one]
    #[arg(long, value_name = "FILE", requires = "sandbox")]
    shim: Option<PathBuf>,
    /// Also look for changes in folders that builds and installations fill, of which the run has nothing.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    pub(super) connection: Connection,
}

fn parse_label(raw: &str) -> Result<(String, String), String> {
    let (name, value) = raw.split_once('=').ok_or_else(|| "expected NAME=VALUE".to_owned())?;
    Ok((name.to_owned(), value.to_owned()))
}

/// Runs `runner`, until it is interrupted or its run is closed.
pub(super) async fn run(args: RunnerArgs, env: &Env<'_>) -> Result<(), CliError> {
    let client = connect(&args.connection.address, env)?;
    let output = Output::new(&args.connection, env);
    let ended = CancellationToken::new();
    let stop = ended.clone();
    let signals = interrupts()?;
    let listener = tokio::spawn(async move {
        signals.await;
        stop.cancel();
    });
    if args.sandbox.is_none() && is_operators(&client).await {
        output.note(
            "warning: the commands run as you, on this machine, with an operator's token in this process: give the runner a token of its own \
             (`workspaced token create`), or a sandbox by --in",
        );
    }
    let done = match (&args.run, &args.label) {
        (Some(run), _) => {
            let run = resolve_run(&client, run.clone()).await?;
            let place = args.place(None);
            serve(&client, &run, &place, args.scope(), output, &ended).await
        }
        (None, Some(label)) => serve_label(&client, label, &args, output, &ended).await,
        (None, None) => Ok(()),
    };
    listener.abort();
    done
}

/// Whether the token is an operator's: others may not list runs.
async fn is_operators(client: &Client) -> bool {
    let runs = client.labelled_runs(Some(RunState::Open), ("workspaced", "runner"));
    std::pin::pin!(runs).try_next().await.is_ok()
}

fn interrupts() -> Result<impl Future<Output = ()> + Send + 'static, CliError> {
    use tokio::signal::unix::{SignalKind, signal};
    let listen = |kind| signal(kind).map_err(|error| CliError::file("signals", &error));
    let (mut interrupt, mut terminate) = (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

impl RunnerArgs {
    fn scope(&self) -> ScanScope {
        if self.all { ScanScope::All } else { ScanScope::Usual }
    }

    /// Returns the folder of the only run, or of one of several.
    fn place(&self, run: Option<&RunId>) -> FolderPlace {
        let folder = match (&self.dir, run) {
            (dir, None) => dir.clone(),
            (dir, Some(run)) => Some(format!("{}/{run}", dir.as_deref().unwrap_or("/workspace"))),
        };
        match &self.sandbox {
            Some(address) => {
                let shim = self.shim.clone();
                FolderPlace::Sandbox(SandboxPlace { folder, shim, ..SandboxPlace::new(address.clone()) })
            }
            None => FolderPlace::Here(folder.unwrap_or_else(|| ".".to_owned()).into()),
        }
    }
}

/// Serves the open runs with a label, those that come later too.
async fn serve_label(
    client: &Client,
    (name, value): &(String, String),
    args: &RunnerArgs,
    output: Output,
    ended: &CancellationToken,
) -> Result<(), CliError> {
    let mut served: HashMap<RunId, tokio::task::AbortHandle> = HashMap::new();
    let mut tasks = JoinSet::new();
    let mut ticks = tokio::time::interval(LOOK_UP);
    loop {
        tokio::select! {
            () = ended.cancelled() => break,
            _ = ticks.tick() => {}
        }
        while tasks.try_join_next().is_some() {}
        served.retain(|_, task| !task.is_finished());
        let runs: Vec<Run> = match open_runs(client, name, value).await {
            Ok(runs) => runs,
            Err(error) if error.is_temporary() => continue,
            Err(error) => return Err(error.into()),
        };
        for Run { run_id, .. } in runs {
            if served.contains_key(&run_id) {
                continue;
            }
            let (client, place, scope, ended) =
                (client.clone(), args.place(Some(&run_id)), args.scope(), ended.clone());
            let run = run_id.clone();
            let task = tasks.spawn(async move {
                if let Err(error) = serve(&client, &run, &place, scope, output, &ended).await {
                    output.note(&format!("{run}: {error}"));
                }
            });
            served.insert(run_id, task);
        }
    }
    while tasks.join_next().await.is_some() {}
    Ok(())
}

async fn open_runs(client: &Client, name: &str, value: &str) -> Result<Vec<Run>, workspaced_client::Error> {
    let mut runs = Vec::new();
    for state in [RunState::Open, RunState::AwaitingApproval] {
        runs.extend(client.labelled_runs(Some(state), (name, value)).try_collect::<Vec<_>>().await?);
    }
    Ok(runs)
}

/// Serves one run, also if its sandbox or the service is away for a while.
async fn serve(
    client: &Client,
    run: &RunId,
    place: &FolderPlace,
    scope: ScanScope,
    output: Output,
    ended: &CancellationToken,
) -> Result<(), CliError> {
    let mut pause = PAUSE.0;
    let mut paused: Option<PausedRunner> = None;
    loop {
        let began = Instant::now();
        let served = async {
            let checkout = match Checkout::open(client, run, place).await {
                Ok(checkout) => checkout,
                Err(error) => return error,
            };
            output.note(&format!("{run}: waiting for commands, in {}", checkout.folder().shown()));
            // A command that has ended its sandbox could have changed what the folder says of itself.
            let mut runner = match paused.take() {
                Some(paused) => paused.resume(checkout),
                None => Runner::new(checkout, scope),
            };
            let error = loop {
                match runner.serve_next(&mut |_, _| {}).await {
                    Ok(Some(served)) => report(output, run, &served),
                    Ok(None) => {}
                    Err(error) => break error,
                }
            };
            match runner.pause().await {
                Ok(runner) => paused = Some(runner),
                Err(error) => return error,
            }
            error
        };
        let error: FolderError = tokio::select! {
            // A command that runs is killed, and its caller is told that the runner is gone.
            () = ended.cancelled() => return Ok(()),
            error = served => error,
        };
        if is_closed(&error) {
            output.note(&format!("{run}: the run is closed"));
            return Ok(());
        }
        if !is_passing(&error) {
            return Err(error.into());
        }
        if began.elapsed() > PAUSE.1 {
            pause = PAUSE.0;
        }
        output.note(&format!("{run}: {error}; again in {} s", pause.as_secs()));
        tokio::select! {
            () = ended.cancelled() => return Ok(()),
            () = tokio::time::sleep(pause) => {}
        }
        pause = (pause * 2).min(PAUSE.1);
    }
}

fn is_closed(error: &FolderError) -> bool {
    matches!(error, FolderError::Service(error) if error.problem().is_some_and(|problem| problem.code == "RUN_CLOSED"))
}

/// Whether another attempt may succeed: the service or the sandbox is away.
fn is_passing(error: &FolderError) -> bool {
    match error {
        FolderError::Service(error) => error.is_temporary(),
        FolderError::Folder(_) | FolderError::Moved { .. } | FolderError::NotStarted { .. } | FolderError::Unsteady => {
            true
        }
        _ => false,
    }
}

fn report(output: Output, run: &RunId, served: &ServedCommand) {
    let ServedCommand { order, result, reported } = served;
    let changes = reported.changes.as_ref();
    if output.is_json {
        let line = json!({
            "run": run, "commandId": order.command_id, "command": order.command, "exitCode": result.exit_code,
            "signal": result.signal, "durationMicros": result.duration_micros, "eventSeq": reported.event_seq,
            "changeSeq": changes.and_then(|changes| changes.seq),
        });
        // Who reads the lines may have gone; the commands are served all the same.
        let _ = output.json(&line);
        return;
    }
    let seconds = Duration::from_micros(result.duration_micros).as_secs_f64();
    let ended = match (result.exit_code, &result.error) {
        (_, Some(error)) => format!("not run: {error}"),
        (Some(code), None) => format!("exit {code} in {seconds:.1} s"),
        (None, None) => format!("ended after {seconds:.1} s"),
    };
    let changed = changes.map(|changes| match &changes.message {
        Some(message) => format!(" · not applied: {message}"),
        None => format!(" · {} applied", changes.applied.len() + changes.merged.len()),
    });
    output.note(&format!("{run}: $ {} · {ended}{}", order.command, changed.unwrap_or_default()));
}
