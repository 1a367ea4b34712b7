//! `revert`: undo calls of a run.

use serde_json::{Value, json};
use workspaced_client::RunId;

use crate::call::parse_run;
use crate::connection::{Connection, Env, connect};
use crate::error::CliError;
use crate::listing::resolve_run;
use crate::output::Output;

/// Arguments of `revert`.
#[derive(Debug, clap::Args)]
pub struct RevertArgs {
    /// Run.
    #[arg(value_name = "RUN", value_parser = parse_run)]
    run: RunId,
    /// Call to undo, as `audit --json` shows it (`toolCallId`); may be repeated.
    #[arg(value_name = "CALL", group = "which")]
    calls: Vec<String>,
    /// Undo this many of the newest changes that were made with the same token; undoing is itself a change.
    #[arg(long, value_name = "COUNT", group = "which")]
    last: Option<u64>,
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
        (Some(last), None) => input["last"] = json!(last),
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
