//! `revert`: undo calls of a run.

use serde_json::{Value, json};
use workspaced_client::{AuditFilter, Client, Error, Outcome, Record, RunId};

use crate::cli::call::parse_run;
use crate::cli::connection::{Connection, Env, connect};
use crate::cli::error::CliError;
use crate::cli::listing::resolve_run;
use crate::cli::output::Output;

/// The most calls that one revert can name.
const MAX_CALLS: usize = 100;

/// Arguments of `revert`.
#[derive(Debug, clap::Args)]
pub struct RevertArgs {
    /// Run.
    #[arg(value_name = "RUN", value_parser = parse_run)]
    run: RunId,
    /// Call to undo, as `audit --json` shows it (`toolCallId`); may be repeated.
    #[arg(value_name = "CALL", group = "which")]
    calls: Vec<String>,
    /// Undo this many of the newest changes.
    #[arg(long, value_name = "COUNT", group = "which")]
    last: Option<usize>,
    /// Undo every change after this record; 0 undoes all.
    #[arg(long, value_name = "SEQ", group = "which")]
    to_seq: Option<u64>,
    /// Reason for the audit.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Only show what would change.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    pub(super) connection: Connection,
}

/// Runs `revert`.
pub(super) async fn run(args: RevertArgs, env: &Env<'_>) -> Result<(), CliError> {
    let client = connect(&args.connection.address, env)?;
    let output = Output::new(&args.connection, env);
    let run = resolve_run(&client, args.run).await?;
    let mut input = json!({ "reason": args.reason, "dryRun": args.dry_run });
    match (args.last, args.to_seq) {
        (_, Some(seq)) => input["toSeq"] = json!(seq),
        (Some(last), None) => input["toolCallIds"] = json!(newest_changes(&client, &run, last).await?),
        (None, None) if args.calls.is_empty() => {
            return Err(CliError::Usage("name the calls to undo, or give `--last COUNT` or `--to-seq SEQ`".to_owned()));
        }
        (None, None) => input["toolCallIds"] = json!(args.calls),
    }
    if output.is_json {
        let answer: Value = client.call(&run, "revert_calls", &input).await?;
        output.json(&answer)?;
    } else {
        output.text(&client.call_as_text(&run, "revert_calls", &input).await?.text)?;
    }
    Ok(())
}

/// Returns the newest `count` calls that have changed files and that no revert has undone.
async fn newest_changes(client: &Client, run: &RunId, count: usize) -> Result<Vec<String>, CliError> {
    if !(1..=MAX_CALLS).contains(&count) {
        return Err(CliError::Usage(format!("--last {count}: expected 1 to {MAX_CALLS}")));
    }
    let filter = AuditFilter { outcome: Some(Outcome::Ok), newest_first: true, ..AuditFilter::default() };
    let mut records = std::pin::pin!(client.run_audit(run, &filter));
    let (mut calls, mut undone) = (Vec::new(), Vec::new());
    while let Some(record) = next(&mut records).await? {
        let id = record.tool_call_id.to_string();
        if record.tool == "revert_calls" {
            let input = Value::Object(record.input.unwrap_or_default());
            if input["dryRun"] != true && record.mutates {
                let named = input["toolCallIds"].as_array().into_iter().flatten();
                undone.extend(named.filter_map(Value::as_str).map(str::to_owned));
            }
            continue;
        }
        if !record.mutates || record.paths_written.is_empty() || undone.contains(&id) || calls.contains(&id) {
            continue;
        }
        calls.push(id);
        if calls.len() == count {
            break;
        }
    }
    if calls.is_empty() {
        return Err(CliError::Failed("the run has no change to undo".to_owned()));
    }
    Ok(calls)
}

async fn next(
    records: &mut (impl futures_util::Stream<Item = Result<Record, Error>> + Unpin),
) -> Result<Option<Record>, Error> {
    futures_util::TryStreamExt::try_next(records).await
}
