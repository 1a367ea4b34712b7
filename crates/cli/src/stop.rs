//! `stop`: ends the work of a run's agent, and keeps the evidence.

#![expect(clippy::disallowed_types, clippy::disallowed_methods, reason = "the client writes to its user's folders")]

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;
use workspaced_client::{Client, RunId, RunState};

use crate::call::parse_run;
use crate::connection::{Connection, Env, connect};
use crate::error::CliError;
use crate::exports::saved;
use crate::listing::resolve_run;
use crate::output::Output;
use crate::transfer::save;

/// Arguments of `stop`.
#[derive(Debug, clap::Args)]
pub struct StopArgs {
    /// Run.
    #[arg(value_name = "RUN", value_parser = parse_run)]
    run: RunId,
    /// Why the agent is stopped, for the audit.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Close the run as well: calls that wait for approval fail.
    #[arg(long)]
    close: bool,
    /// Write the evidence into this new or empty folder: `audit.ndjson`, `report.md` and `changes.patch`.
    #[arg(long, value_name = "DIR")]
    export: Option<PathBuf>,
    #[command(flatten)]
    pub(super) connection: Connection,
}

/// Runs `stop`.
pub(super) async fn run(args: StopArgs, env: &Env<'_>) -> Result<(), CliError> {
    let client = connect(&args.connection.address, env)?;
    let output = Output::new(&args.connection, env);
    let run = resolve_run(&client, args.run).await?;
    // First of all, and whatever becomes of the export.
    let mut stopped = client.stop_run(&run, &args.reason).await?;
    if args.close && stopped.state != RunState::Closed {
        stopped = client.close_run(&run).await?;
    }
    if output.is_json {
        output.json(&stopped)?;
    } else {
        output.line(&format!("{run}: its tokens are revoked; the run is {}", stopped.state.as_str()))?;
    }
    match &args.export {
        Some(folder) => export(&client, output, &run, folder).await,
        None => Ok(()),
    }
}

async fn export(client: &Client, output: Output, run: &RunId, folder: &Path) -> Result<(), CliError> {
    let name = |path: &Path| path.display().to_string();
    let failed = |path: &Path, error: &std::io::Error| CliError::file(&name(path), error);
    fs::create_dir_all(folder).map_err(|error| failed(folder, &error))?;
    if fs::read_dir(folder).map_err(|error| failed(folder, &error))?.next().is_some() {
        return Err(CliError::Failed(format!("{}: the folder is not empty", name(folder))));
    }
    let report = folder.join("report.md");
    let text = client.report_as_markdown(run).await?;
    fs::write(&report, &text).map_err(|error| failed(&report, &error))?;
    saved(output, &name(&report), text.len() as u64)?;
    let patch = folder.join("changes.patch");
    // A run that is being prepared or was deleted has no files.
    match client.patch(run).await {
        Ok(download) => {
            let bytes = save(download, &name(&patch)).await?;
            saved(output, &name(&patch), bytes)?;
        }
        Err(error) if error.problem().is_some() => {
            let message = format!("{}: not written: {error}", name(&patch));
            if output.is_json { output.json(&json!({ "message": message }))? } else { output.line(&message)? }
        }
        Err(error) => return Err(error.into()),
    }
    // Last, so that it has the records of the export too.
    let audit = folder.join("audit.ndjson");
    let bytes = save(client.export_audit(run).await?, &name(&audit)).await?;
    saved(output, &name(&audit), bytes)
}
