//! `checkout`, `pull` and `push`: a run's files in a folder of this machine.

#![expect(clippy::disallowed_types, reason = "the client works in its user's folders")]

use std::path::PathBuf;

use serde_json::json;
use tokio::task::block_in_place;
use workspaced_client::{Client, RunId};

use crate::cli::call::parse_run;
use crate::cli::checkout_notes::CheckoutNotes;
use crate::cli::connection::{Connection, Env, connect};
use crate::cli::error::CliError;
use crate::cli::folder_sync::{
    Pulled, PushOptions, apply, print_changes, print_denied, print_left, pull, push, pushed_summary, scan, shown,
};
use crate::cli::listing::with_run;
use crate::cli::output::Output;
use crate::cli::sandbox_pipe::OpenFolder;

/// Arguments of `checkout`.
#[derive(Debug, clap::Args)]
pub struct CheckoutArgs {
    /// Run.
    #[arg(value_name = "RUN", value_parser = parse_run)]
    run: RunId,
    /// Folder; created if it is missing.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    #[command(flatten)]
    pub(super) connection: Connection,
}

/// Arguments of `pull`.
#[derive(Debug, clap::Args)]
pub struct PullArgs {
    /// Folder of a checkout.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Run of the checkout [default: the one that was checked out there]
    #[arg(long, value_name = "RUN", value_parser = parse_run)]
    run: Option<RunId>,
    #[command(flatten)]
    pub(super) connection: Connection,
}

/// Arguments of `push`.
#[derive(Debug, clap::Args)]
pub struct PushArgs {
    /// Folder of a checkout.
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Run of the checkout [default: the one that was checked out there]
    #[arg(long, value_name = "RUN", value_parser = parse_run)]
    run: Option<RunId>,
    /// Reason for the audit.
    #[arg(long, value_name = "TEXT")]
    reason: String,
    #[command(flatten)]
    options: PushOptions,
    #[command(flatten)]
    pub(super) connection: Connection,
}

/// Runs `checkout`.
pub(super) async fn checkout(args: CheckoutArgs, env: &Env<'_>) -> Result<(), CliError> {
    let client = connect(&args.connection.address, env)?;
    let output = Output::new(&args.connection, env);
    let mut open = block_in_place(|| OpenFolder::here(&args.dir))?;
    let pulled = check_out(&client, &args.run, &mut open).await?;
    CheckoutNotes::of(env).add(&args.dir, &pulled.now.run)?;
    print_pulled(output, &pulled, &open)
}

/// Runs `pull`.
pub(super) async fn pull_into(args: PullArgs, env: &Env<'_>) -> Result<(), CliError> {
    let client = connect(&args.connection.address, env)?;
    let output = Output::new(&args.connection, env);
    let mut open = block_in_place(|| OpenFolder::existing(&args.dir))?;
    let run = run_of(&mut open)?;
    CheckoutNotes::of(env).check(&args.dir, run.as_str(), args.run.as_ref())?;
    let pulled = pull(&client, &run, &mut open).await?;
    print_pulled(output, &pulled, &open)
}

/// Runs `push`.
pub(super) async fn push_from(args: PushArgs, env: &Env<'_>) -> Result<(), CliError> {
    let client = connect(&args.connection.address, env)?;
    let output = Output::new(&args.connection, env);
    let mut open = block_in_place(|| OpenFolder::existing(&args.dir))?;
    let run = run_of(&mut open)?;
    CheckoutNotes::of(env).check(&args.dir, run.as_str(), args.run.as_ref())?;
    let Some(base) = block_in_place(|| open.folder.have())? else { return Err(no_checkout(&open)) };
    let report = scan(&mut open, args.options.all)?;
    if !output.is_json {
        print_changes(output, &report);
    }
    let changeset = |base| args.options.changeset(base, &args.reason, None);
    let pushed = if report.changes.is_empty() {
        None
    } else {
        push(&client, &base, &mut open, &report.changes, changeset).await?
    };
    let Some(pushed) = pushed else {
        return if output.is_json {
            Ok(output.json(&json!({ "run": base.run, "applied": [] }))?)
        } else {
            Ok(output.line("nothing to push")?)
        };
    };
    if output.is_json {
        output.json(&pushed.answer)?;
    } else {
        print_left(output, &pushed.left, pushed.left.len() as u64);
        print_denied(output, &pushed.answer);
        output.line(&pushed_summary(&pushed.answer))?;
    }
    pushed.stale.map_or(Ok(()), Err)
}

/// Brings a folder that may have nothing of a run yet to its newest state. `run` may be the beginning of an ID.
pub(super) async fn check_out(client: &Client, run: &RunId, open: &mut OpenFolder) -> Result<Pulled, CliError> {
    let have = block_in_place(|| open.folder.have())?;
    let from = match have {
        None => None,
        Some(have) if have.run.starts_with(run.as_str()) => Some(have.seq),
        Some(have) => return Err(CliError::Failed(format!("{} is a checkout of the run {}", shown(open), have.run))),
    };
    let found = async |run: &RunId| Ok((run.clone(), client.layer(run, from).await?));
    let (run, layer) = with_run(client, run, found).await?;
    apply(&run, open, layer, from)
}

fn run_of(open: &mut OpenFolder) -> Result<RunId, CliError> {
    let have = block_in_place(|| open.folder.have())?.ok_or_else(|| no_checkout(open))?;
    RunId::parse(&have.run).map_err(|error| CliError::Failed(error.to_string()))
}

fn no_checkout(open: &OpenFolder) -> CliError {
    CliError::Failed(format!("{} is no checkout of a run: begin with `workspaced checkout RUN DIR`", shown(open)))
}

fn print_pulled(output: Output, pulled: &Pulled, open: &OpenFolder) -> Result<(), CliError> {
    if output.is_json {
        let Pulled { from, now, applied, left_out } = pulled;
        let answer = json!({
            "run": now.run, "fromSeq": from, "seq": now.seq, "headHash": now.head_hash, "written": applied.written,
            "deleted": applied.deleted, "leftOut": left_out, "treeSha256": applied.tree_sha256, "folder": open.shown,
        });
        return Ok(output.json(&answer)?);
    }
    let left_out = match pulled.left_out {
        0 => String::new(),
        count => format!(", {count} left out"),
    };
    Ok(output.line(&format!("{}: {}{left_out}", shown(open), pulled.summary()))?)
}
