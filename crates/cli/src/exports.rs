//! `diff`, `export` and `report`.

use serde_json::json;
use workspaced_client::RunId;

use crate::call::parse_run;
use crate::connection::{Connection, Env, connect};
use crate::error::CliError;
use crate::listing::with_run;
use crate::output::Output;
use crate::transfer::save;

/// The most bytes of a patch that is printed.
const MAX_PATCH_BYTES: usize = 256 << 20;

/// Arguments of `diff`.
#[derive(Debug, clap::Args)]
pub struct DiffArgs {
    /// Run.
    #[arg(value_name = "RUN", value_parser = parse_run)]
    run: RunId,
    /// Write the patch to this file as it is, for `git apply`; `-` is standard output. Otherwise it is printed for reading,
    /// with control characters escaped.
    #[arg(short, long, value_name = "FILE")]
    output: Option<String>,
    #[command(flatten)]
    pub(super) connection: Connection,
}

/// Arguments of `export`.
#[derive(Debug, clap::Args)]
pub struct ExportArgs {
    /// Run.
    #[arg(value_name = "RUN", value_parser = parse_run)]
    run: RunId,
    /// File to write; `-` is standard output.
    #[arg(short, long, value_name = "FILE")]
    output: String,
    #[command(flatten)]
    pub(super) connection: Connection,
}

/// Arguments of `bundle`.
#[derive(Debug, clap::Args)]
pub struct BundleArgs {
    /// Run.
    #[arg(value_name = "RUN", value_parser = parse_run)]
    run: RunId,
    /// File to write; `-` is standard output.
    #[arg(short, long, value_name = "FILE")]
    output: String,
    /// Branch in the bundle [default: chosen by the service]
    #[arg(long, value_name = "NAME")]
    branch: Option<String>,
    #[command(flatten)]
    pub(super) connection: Connection,
}

/// Arguments of `report`.
#[derive(Debug, clap::Args)]
pub struct ReportArgs {
    /// Run.
    #[arg(value_name = "RUN", value_parser = parse_run)]
    run: RunId,
    #[command(flatten)]
    pub(super) connection: Connection,
}

/// Runs `diff`.
pub(super) async fn diff(args: DiffArgs, env: &Env<'_>) -> Result<(), CliError> {
    let client = connect(&args.connection.address, env)?;
    let output = Output::new(&args.connection, env);
    let patch = with_run(&client, &args.run, async |run: &RunId| client.patch(run).await).await?;
    if let Some(file) = &args.output {
        let bytes = save(patch, file).await?;
        return saved(output, file, bytes);
    }
    let mut text = Vec::new();
    let mut chunks = std::pin::pin!(patch.into_stream());
    while let Some(chunk) = futures_util::TryStreamExt::try_next(&mut chunks).await? {
        text.extend_from_slice(&chunk);
        if text.len() > MAX_PATCH_BYTES {
            return Err(CliError::Failed("the patch is too large to print: write it to a file with -o".to_owned()));
        }
    }
    let text = String::from_utf8_lossy(&text);
    if output.is_json {
        output.json(&json!({ "diff": text }))?;
    } else {
        output.diff(&text)?;
    }
    Ok(())
}

/// Runs `export`.
pub(super) async fn export(args: ExportArgs, env: &Env<'_>) -> Result<(), CliError> {
    let client = connect(&args.connection.address, env)?;
    let export = with_run(&client, &args.run, async |run: &RunId| client.export(run).await).await?;
    let bytes = save(export, &args.output).await?;
    saved(Output::new(&args.connection, env), &args.output, bytes)
}

/// Runs `bundle`.
pub(super) async fn bundle(args: BundleArgs, env: &Env<'_>) -> Result<(), CliError> {
    let client = connect(&args.connection.address, env)?;
    let branch = args.branch.as_deref();
    let bundle = with_run(&client, &args.run, async |run: &RunId| client.bundle(run, branch).await).await?;
    let bytes = save(bundle, &args.output).await?;
    saved(Output::new(&args.connection, env), &args.output, bytes)
}

/// Runs `report`.
pub(super) async fn report(args: ReportArgs, env: &Env<'_>) -> Result<(), CliError> {
    let client = connect(&args.connection.address, env)?;
    let output = Output::new(&args.connection, env);
    if output.is_json {
        output.json(&with_run(&client, &args.run, async |run: &RunId| client.report(run).await).await?)?;
    } else {
        let report = with_run(&client, &args.run, async |run: &RunId| client.report_as_markdown(run).await);
        output.text(&report.await?)?;
    }
    Ok(())
}

/// Prints what was written to a file, unless that is standard output itself.
pub(super) fn saved(output: Output, file: &str, bytes: u64) -> Result<(), CliError> {
    if file == "-" {
        return Ok(());
    }
    if output.is_json {
        output.json(&json!({ "file": file, "bytes": bytes }))?;
    } else {
        output.line(&format!("{file}: {bytes} bytes"))?;
    }
    Ok(())
}
