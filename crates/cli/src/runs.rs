//! `run`: create, list, show, close and delete runs.

pub(crate) mod forks;

use std::mem;
use std::time::Duration;

use serde_json::Value;
use workspaced_client::{Client, CreatedRun, Error, NewRun, PolicyOverrides, Run, RunId, RunState, RunView, Source};

use crate::call::parse_run;
use crate::connection::{Connection, Env, connect};
use crate::error::CliError;
use crate::listing::{ListArgs, shorten, with_run};
use crate::output::Output;
use crate::token_file::TokenFileArgs;
use crate::transfer::{TransferProgress, read_input, upload};

/// How often the progress of an import is asked for.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Arguments of `run`.
#[derive(Debug, clap::Args)]
pub struct RunArgs {
    #[command(subcommand)]
    action: RunAction,
    #[command(flatten)]
    pub(super) connection: Connection,
}

#[derive(Debug, clap::Subcommand)]
enum RunAction {
    /// Create a run, and print its token, which is shown only here, or write it to a file.
    Create(Box<CreateArgs>),
    /// List runs, the newest first.
    List {
        /// Only runs in this state: `preparing`, `open`, `awaiting_approval`, `closed` or `deleted`.
        #[arg(long, value_parser = parse_state)]
        state: Option<RunState>,
        #[command(flatten)]
        list: ListArgs,
    },
    /// Show a run.
    Show {
        /// Run.
        #[arg(value_name = "RUN", value_parser = parse_run)]
        run: RunId,
    },
    /// Close a run: it takes no more changes.
    Close {
        /// Run.
        #[arg(value_name = "RUN", value_parser = parse_run)]
        run: RunId,
    },
    /// Delete a run's files. Its audit remains.
    Delete {
        /// Run.
        #[arg(value_name = "RUN", value_parser = parse_run)]
        run: RunId,
    },
}

/// Arguments of `run create`. Without a source, the run begins with an empty tree.
#[derive(Debug, clap::Args)]
struct CreateArgs {
    #[command(flatten)]
    new: NewRunArgs,
    /// Repository to import: an `https` URL, or a path under an import root of the service.
    #[arg(long, value_name = "URL", group = "source")]
    git: Option<String>,
    /// Branch, tag or commit of the repository [default: its HEAD]
    #[arg(long = "ref", value_name = "REF", requires = "git")]
    reference: Option<String>,
    /// Name of a credential that the service has for the URL
    #[arg(long, value_name = "NAME", requires = "git")]
    credential: Option<String>,
    /// Folder to copy, under an import root of the service.
    #[arg(long, value_name = "PATH", group = "source")]
    directory: Option<String>,
    /// Local archive to upload, tar, tar.gz or tar.zst.
    #[arg(long, value_name = "FILE", group = "source")]
    archive: Option<String>,
}

/// Arguments of a new run, wherever its files come from.
#[derive(Debug, clap::Args)]
struct NewRunArgs {
    /// ID of the run [default: made by the service]
    #[arg(long, value_name = "ID", value_parser = parse_run)]
    id: Option<RunId>,
    /// Policy profile, such as `READ_ONLY`, `SUPERVISED_PR` or `AUTONOMOUS`.
    #[arg(long, value_name = "NAME", conflicts_with = "policy")]
    profile: Option<String>,
    /// Policy as a JSON object: the text, `@FILE`, or `-` for standard input.
    #[arg(long, value_name = "JSON")]
    policy: Option<String>,
    /// Label; may be repeated.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = parse_label)]
    labels: Vec<(String, String)>,
    /// Seconds until the run closes [default: never]
    #[arg(long, value_name = "SECONDS")]
    ttl_seconds: Option<u64>,
    #[command(flatten)]
    token_file: TokenFileArgs,
}

/// Runs `run`.
pub(super) async fn run(args: RunArgs, env: &Env<'_>) -> Result<(), CliError> {
    let client = connect(&args.connection.address, env)?;
    let output = Output::new(&args.connection, env);
    match args.action {
        RunAction::Create(args) => create(&client, output, *args).await,
        RunAction::List { state, list: part } => list(&client, output, state, part).await,
        RunAction::Show { run } => {
            show(output, &with_run(&client, &run, async |run: &RunId| client.run(run).await).await?)
        }
        RunAction::Close { run } => {
            let closed = with_run(&client, &run, async |run: &RunId| client.close_run(run).await).await?;
            show(output, &RunView::Run(Box::new(closed)))
        }
        // What cannot be undone takes whole IDs only.
        RunAction::Delete { run } => show(output, &RunView::Run(Box::new(client.delete_run(&run).await?))),
    }
}

async fn create(client: &Client, output: Output, mut args: CreateArgs) -> Result<(), CliError> {
    let archive = args.archive.take().map(|name| upload(&name)).transpose()?;
    let token_file = mem::take(&mut args.new.token_file).create()?;
    let new = new_run(args, archive.is_some())?;
    let mut created = create_with_progress(client, &new).await?;
    if let Some(file) = token_file {
        file.write(&mem::take(&mut created.token.token))?;
    }
    let mut uploaded = Ok(());
    if let Some((body, progress)) = archive {
        match client.upload_archive(&created.run.run_id, body).await {
            Ok(run) => created.run = run,
            Err(error) => uploaded = Err(CliError::from(error)),
        }
        progress.finish();
    }
    // Also if the upload has failed: the token is shown only once.
    print_created(output, &created)?;
    uploaded
}

/// Prints a run that was created, with its token.
fn print_created(output: Output, created: &CreatedRun) -> Result<(), CliError> {
    if output.is_json {
        return Ok(output.json(created)?);
    }
    let mut fields = fields_of(output, &created.run);
    fields.push(("token", created.token.token.clone()));
    Ok(output.fields(&fields)?)
}

fn new_run(args: CreateArgs, has_archive: bool) -> Result<NewRun, CliError> {
    let source = match (args.git, args.directory) {
        (Some(url), _) => Source::Git { url, reference: args.reference, credential: args.credential },
        (None, Some(path)) => Source::Directory { path },
        (None, None) if has_archive => Source::Archive {},
        (None, None) => Source::Empty {},
    };
    args.new.request(source)
}

impl NewRunArgs {
    fn request(self, source: Source) -> Result<NewRun, CliError> {
        let policy = match (self.profile, self.policy) {
            (Some(profile), _) => Some(PolicyOverrides { profile: Some(profile), ..PolicyOverrides::default() }),
            (None, Some(policy)) => {
                let bad = |error| CliError::Usage(format!("--policy does not fit: {error}"));
                Some(serde_json::from_str(&read_input(&policy)?).map_err(bad)?)
            }
            (None, None) => None,
        };
        let labels = self.labels.into_iter().collect();
        Ok(NewRun { run_id: self.id, policy, labels, ttl_seconds: self.ttl_seconds, ..NewRun::from(source) })
    }
}

/// Creates the run. On a terminal, shows how far its import is, which only a run with a known ID can be asked for.
async fn create_with_progress(client: &Client, new: &NewRun) -> Result<CreatedRun, Error> {
    let progress = TransferProgress::new(None);
    let Some(run) = new.run_id.as_ref().filter(|_| !progress.is_hidden()) else { return client.create_run(new).await };
    let mut creating = std::pin::pin!(client.create_run(new));
    loop {
        tokio::select! {
            created = &mut creating => return created,
            () = tokio::time::sleep(PROGRESS_INTERVAL) => {}
        }
        if let Ok(RunView::Run(run)) = client.run(run).await {
            progress.show(run.import.bytes, &format!("{} files, {}", run.import.files, run.import.progress));
        }
    }
}

async fn list(client: &Client, output: Output, state: Option<RunState>, part: ListArgs) -> Result<(), CliError> {
    let (mut ids, mut rows) = (Vec::new(), Vec::new());
    let take = |run: Run| {
        if output.is_json {
            return Ok(output.json(&run)?);
        }
        let counts = run.counts;
        let numbers = [counts.calls, counts.mutations, counts.denied, counts.pending_approvals];
        ids.push(run.run_id.to_string());
        let mut row = vec![String::new(), run.state.as_str().to_owned(), output.time(&run.created_at)];
        row.extend(numbers.map(|number| number.to_string()));
        row.push(run.labels.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" "));
        rows.push(row);
        Ok(())
    };
    if part.is_newest_first() {
        part.each(output, client.newest_runs(state), take).await?;
    } else {
        part.each(output, client.runs(state), take).await?;
    }
    if !output.is_json {
        for (row, id) in rows.iter_mut().zip(shorten(&ids)) {
            row[0] = id;
        }
        let titles = ["RUN", "STATE", "CREATED", "CALLS", "CHANGES", "DENIED", "PENDING", "LABELS"];
        output.table(&titles, &rows)?;
    }
    Ok(())
}

fn show(output: Output, view: &RunView) -> Result<(), CliError> {
    match view {
        _ if output.is_json => output.json(view)?,
        RunView::Run(run) => output.fields(&fields_of(output, run))?,
        RunView::OwnRun(own) => {
            let text = |name: &str| own.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            let json = |name: &str| own.get(name).map(Value::to_string).unwrap_or_default();
            let fields = [
                ("run", text("runId")),
                ("state", text("state")),
                ("created", text("createdAt")),
                ("expires", text("expiresAt")),
                ("base", text("baseCommit")),
                ("used", json("usage")),
                ("remaining", json("remaining")),
            ];
            output.fields(&fields)?;
        }
    }
    Ok(())
}

fn fields_of(output: Output, run: &Run) -> Vec<(&'static str, String)> {
    let source = match &run.source {
        Source::Empty {} => "empty".to_owned(),
        Source::Archive {} => "archive".to_owned(),
        Source::Directory { path } => format!("directory {path}"),
        Source::Git { url, reference, .. } => format!("git {url} {}", reference.as_deref().unwrap_or_default()),
        Source::Run { .. } => {
            let parent = run.parent.as_ref();
            parent.map(|parent| format!("run {} at record {}", parent.run_id, parent.seq)).unwrap_or_default()
        }
    };
    let forks = run.forks.iter().flatten().map(|fork| {
        let merged = fork.merged_seq.map(|seq| format!(", merged up to its record {seq}")).unwrap_or_default();
        format!("{} ({} at record {}{merged})", fork.run_id, fork.state.as_str(), fork.at_seq)
    });
    let forks: Vec<_> = forks.collect();
    let labels: Vec<_> = run.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let counts = &run.counts;
    vec![
        ("run", run.run_id.to_string()),
        ("state", run.state.as_str().to_owned()),
        ("created", output.full_time(&run.created_at)),
        ("closed", run.closed_at.as_deref().map(|at| output.full_time(at)).unwrap_or_default()),
        ("expires", run.expires_at.as_deref().map(|at| output.full_time(at)).unwrap_or_default()),
        ("source", source),
        ("base", run.base_commit.clone().unwrap_or_default()),
        ("forks", forks.join(", ")),
        ("labels", labels.join(" ")),
        ("import", format!("{} files, {} bytes, {}", run.import.files, run.import.bytes, run.import.progress)),
        ("disk", format!("{} files, {} bytes", run.disk.files, run.disk.bytes)),
        (
            "calls",
            format!(
                "{}: {} changes, {} denied, {} pending",
                counts.calls, counts.mutations, counts.denied, counts.pending_approvals
            ),
        ),
    ]
}

fn parse_state(raw: &str) -> Result<RunState, String> {
    let found = RunState::ALL.into_iter().find(|state| state.as_str() == raw);
    found.ok_or_else(|| "no such state".to_owned())
}

fn parse_label(raw: &str) -> Result<(String, String), String> {
    let (name, value) = raw.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}
