//! `download` and `upload`: single files of a run.

use workspaced_client::{Precondition, RunId, Sha256};

use crate::call::parse_run;
use crate::connection::{Connection, Env, connect};
use crate::error::CliError;
use crate::exports::saved;
use crate::listing::with_run;
use crate::output::Output;
use crate::transfer::{save, upload as body_of};

/// Arguments of `download`.
#[derive(Debug, clap::Args)]
pub struct DownloadArgs {
    /// Run.
    #[arg(value_name = "RUN", value_parser = parse_run)]
    run: RunId,
    /// Path of the file in the run.
    #[arg(value_name = "PATH")]
    path: String,
    /// File to write; `-` is standard output [default: the name of the file]
    #[arg(short, long, value_name = "FILE")]
    output: Option<String>,
    #[command(flatten)]
    pub(super) connection: Connection,
}

/// Arguments of `upload`.
#[derive(Debug, clap::Args)]
pub struct UploadArgs {
    /// Run.
    #[arg(value_name = "RUN", value_parser = parse_run)]
    run: RunId,
    /// Local file.
    #[arg(value_name = "FILE")]
    file: String,
    /// Path in the run [default: the name of the file]
    #[arg(value_name = "PATH")]
    path: Option<String>,
    /// Reason for the audit.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Version that is replaced, as its SHA-256. Without it, the file must not exist.
    #[arg(long, value_name = "SHA256", value_parser = parse_version)]
    replace: Option<Sha256>,
    #[command(flatten)]
    pub(super) connection: Connection,
}

/// Runs `download`.
pub(super) async fn download(args: DownloadArgs, env: &Env<'_>) -> Result<(), CliError> {
    let client = connect(&args.connection.address, env)?;
    let output = Output::new(&args.connection, env);
    let file = args.output.unwrap_or_else(|| name_of(&args.path).to_owned());
    let download =
        with_run(&client, &args.run, async |run: &RunId| client.download(run, &args.path, None).await).await?;
    let bytes = save(download, &file).await?;
    saved(output, &file, bytes)
}

/// Runs `upload`.
pub(super) async fn upload(args: UploadArgs, env: &Env<'_>) -> Result<(), CliError> {
    let client = connect(&args.connection.address, env)?;
    let output = Output::new(&args.connection, env);
    let path = args.path.as_deref().unwrap_or_else(|| name_of(&args.file));
    let precondition = args.replace.map_or(Precondition::Absent, Precondition::Version);
    // The body can be sent only once.
    let (body, progress) = body_of(&args.file)?;
    let stored = client.upload(&args.run, path, precondition, &args.reason, body).await;
    progress.finish();
    let stored = stored?;
    if output.is_json {
        return Ok(output.json(&stored)?);
    }
    let done = if stored.created { "created" } else { "replaced" };
    let version = stored.new_sha256.map(|sha256| sha256.to_string()).unwrap_or_default();
    Ok(output.fields(&[(done, stored.path.to_string()), ("sha256", version)])?)
}

fn name_of(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn parse_version(raw: &str) -> Result<Sha256, String> {
    Sha256::parse(raw).map_err(|_| "expected 64 hexadecimal digits".to_owned())
}
