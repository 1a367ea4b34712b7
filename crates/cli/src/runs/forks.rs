//! `fork`, `merge` and `compare`: runs that were made from other runs.

use std::mem;

use serde_json::Value;
use workspaced_client::{ChangesetConflict, ChangesetDenied, NewMerge, RunId, Source};

use super::{NewRunArgs, print_created};
use crate::call::parse_run;
use crate::changes::{print_denied, pushed_summary};
use crate::connection::{Connection, Env, connect};
use crate::error::CliError;
use crate::listing::resolve_run;
use crate::output::Output;

/// How many characters of a hash are printed.
const SHORT_HASH: usize = 12;

/// Arguments of `fork`.
#[derive(Debug, clap::Args)]
pub struct ForkArgs {
    /// Run to fork.
    #[arg(value_name = "RUN", value_parser = parse_run)]
    run: RunId,
    /// Record whose state the fork starts with; 0 is the base [default: the newest]
    #[arg(long, value_name = "SEQ")]
    at: Option<u64>,
    #[command(flatten)]
    new: NewRunArgs,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// Arguments of `merge`.
#[derive(Debug, clap::Args)]
pub struct MergeArgs {
    /// Run to merge into.
    #[arg(value_name = "RUN", value_parser = parse_run)]
    run: RunId,
    /// Fork of the run.
    #[arg(long, value_name = "FORK", value_parser = parse_run)]
    from: RunId,
    /// Reason for the audit.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// If both runs have changed the same files, merge what is in different lines. Otherwise nothing is applied.
    #[arg(long)]
    merge: bool,
    /// Leave out what policy denies. Otherwise nothing is applied then.
    #[arg(long)]
    leave_denied: bool,
    /// Only show what would change.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// Arguments of `compare`.
#[derive(Debug, clap::Args)]
pub struct CompareArgs {
    /// First run.
    #[arg(value_name = "RUN", value_parser = parse_run)]
    run: RunId,
    /// Second run.
    #[arg(value_name = "OTHER", value_parser = parse_run)]
    other: RunId,
    #[command(flatten)]
    pub(crate) connection: Connection,
}

/// Runs `fork`.
pub(crate) async fn fork(mut args: ForkArgs, env: &Env<'_>) -> Result<(), CliError> {
    let client = connect(&args.connection.address, env)?;
    let output = Output::new(&args.connection, env);
    let token_file = mem::take(&mut args.new.token_file).create()?;
    let source = Source::Run { run_id: resolve_run(&client, args.run).await?, at_seq: args.at };
    let mut created = client.create_run(&args.new.request(source)?).await?;
    if let Some(file) = token_file {
        file.write(&mem::take(&mut created.token.token))?;
    }
    print_created(output, &created)
}

/// Runs `merge`.
pub(crate) async fn merge(args: MergeArgs, env: &Env<'_>) -> Result<(), CliError> {
    let client = connect(&args.connection.address, env)?;
    let output = Output::new(&args.connection, env);
    let run = resolve_run(&client, args.run).await?;
    let merge = NewMerge {
        from: resolve_run(&client, args.from).await?,
        reason: args.reason,
        on_conflict: if args.merge { ChangesetConflict::Merge } else { ChangesetConflict::Refuse },
        on_denied: if args.leave_denied { ChangesetDenied::Leave } else { ChangesetDenied::Refuse },
        dry_run: args.dry_run,
    };
    let merged = client.merge_run(&run, &merge).await?;
    if output.is_json {
        return Ok(output.json(&merged)?);
    }
    print_denied(output, &merged);
    let would = if args.dry_run { "would be: " } else { "" };
    Ok(output.line(&format!("{would}{}", pushed_summary(&merged)))?)
}

/// Runs `compare`.
pub(crate) async fn compare(args: CompareArgs, env: &Env<'_>) -> Result<(), CliError> {
    let client = connect(&args.connection.address, env)?;
    let output = Output::new(&args.connection, env);
    let (run, other) = (resolve_run(&client, args.run).await?, resolve_run(&client, args.other).await?);
    let mut rows = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let part = client.compare_runs(&run, &other, after.as_deref()).await?;
        after = part["nextAfter"].as_str().map(str::to_owned);
        if output.is_json {
            output.json(&part)?;
        } else {
            rows.extend(part["files"].as_array().into_iter().flatten().map(row));
        }
        if after.is_none() {
            break;
        }
    }
    if !output.is_json {
        output.table(&["FILE", "", run.as_str(), other.as_str()], &rows)?;
    }
    Ok(())
}

/// Returns the line of a compared file.
fn row(file: &Value) -> Vec<String> {
    let hash = |version: &Value| version["sha256"].as_str().unwrap_or("-").chars().take(SHORT_HASH).collect();
    let status = match file["status"].as_str().unwrap_or_default() {
        "onlyFirst" => "only in the first",
        "onlySecond" => "only in the second",
        "neither" => "in neither",
        status => status,
    };
    let path = file["path"].as_str().unwrap_or_default();
    vec![path.to_owned(), status.to_owned(), hash(&file["first"]), hash(&file["second"])]
}
