//! `checkout`, `pull` and `push`: a run's files in a folder of this machine.

#![expect(clippy::disallowed_types, reason = "the client works in its user's folders")]

use std::path::PathBuf;

use model::Code;
use serde_json::json;
use workspaced_client::{Checkout, Client, Error, FolderError, FolderPlace, OpenFolder, Pulled, RunId, ShimError};

use crate::call::parse_run;
use crate::changes::{PushFlags, print_changes, print_denied, print_left, pulled_summary, pushed_summary};
use crate::checkout_notes::CheckoutNotes;
use crate::connection::{Connection, Env, connect};
use crate::error::CliError;
use crate::escape::escape_line;
use crate::listing::resolve_run;
use crate::output::Output;

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
    /// Take the version of the run of a file that was changed here too; what is here is lost. May be repeated.
    #[arg(long, value_name = "PATH")]
    theirs: Vec<String>,
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
    flags: PushFlags,
    #[command(flatten)]
    pub(super) connection: Connection,
}

/// Runs `checkout`.
pub(super) async fn checkout(args: CheckoutArgs, env: &Env<'_>) -> Result<(), CliError> {
    let client = connect(&args.connection.address, env)?;
    let output = Output::new(&args.connection, env);
    let folder = OpenFolder::open(&FolderPlace::Here(args.dir.clone())).await?;
    let (checkout, pulled) = check_out(&client, &args.run, folder).await?;
    CheckoutNotes::of(env).add(&args.dir, checkout.run().as_str())?;
    finish_pull(output, pulled, &checkout).await
}

/// Runs `pull`.
pub(super) async fn pull_into(args: PullArgs, env: &Env<'_>) -> Result<(), CliError> {
    let client = connect(&args.connection.address, env)?;
    let output = Output::new(&args.connection, env);
    let mut checkout = existing(&client, args.dir, args.run.as_ref(), env).await?;
    let pulled = checkout.pull_rest(args.theirs).await?;
    finish_pull(output, pulled, &checkout).await
}

/// Prints what was pulled. What was changed here too is a failure.
async fn finish_pull(output: Output, pulled: Pulled, checkout: &Checkout) -> Result<(), CliError> {
    print_pulled(output, &pulled, checkout).await?;
    if pulled.conflicts.is_empty() {
        return Ok(());
    }
    Err(FolderError::from(ShimError::Conflicts(pulled.conflicts)).into())
}

/// Runs `push`.
pub(super) async fn push_from(args: PushArgs, env: &Env<'_>) -> Result<(), CliError> {
    let client = connect(&args.connection.address, env)?;
    let output = Output::new(&args.connection, env);
    let mut checkout = existing(&client, args.dir, args.run.as_ref(), env).await?;
    let report = checkout.scan(args.flags.scope()).await?;
    if !output.is_json {
        print_changes(output, &report);
    }
    let pushed = checkout.push_changes(&report.changes, &args.flags.options(&args.reason), None).await?;
    let Some(pushed) = pushed else {
        return if output.is_json {
            Ok(output.json(&json!({ "run": checkout.run(), "applied": [] }))?)
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
    pushed.stale.map_or(Ok(()), |stale| Err(stale.into()))
}

/// Brings a folder that may have nothing of a run yet to its newest state. `run` may be the beginning of an ID.
pub(super) async fn check_out(
    client: &Client,
    run: &RunId,
    folder: OpenFolder,
) -> Result<(Checkout, Pulled), CliError> {
    let mut checkout = Checkout::new(client, run, folder);
    let error = match checkout.pull_rest(Vec::new()).await {
        Ok(pulled) => return Ok((checkout, pulled)),
        Err(error) => error,
    };
    let may_be_longer = match &error {
        FolderError::Service(Error::Problem(problem)) => problem.code == Code::RunNotFound.as_str(),
        FolderError::OtherRun { found, .. } => found.starts_with(run.as_str()),
        _ => false,
    };
    if !may_be_longer {
        return Err(error.into());
    }
    let full = resolve_run(client, run.clone()).await?;
    if full == *run {
        return Err(error.into());
    }
    let mut checkout = Checkout::new(client, &full, checkout.into_folder());
    let pulled = checkout.pull_rest(Vec::new()).await?;
    Ok((checkout, pulled))
}

/// Opens a checkout of the run that was noted for it, or of `run`.
async fn existing(client: &Client, dir: PathBuf, run: Option<&RunId>, env: &Env<'_>) -> Result<Checkout, CliError> {
    let folder = OpenFolder::open(&FolderPlace::Existing(dir.clone())).await?;
    let Some(have) = folder.have().await? else {
        return Err(FolderError::NoCheckout { folder: folder.shown().to_owned() }.into());
    };
    CheckoutNotes::of(env).check(&dir, &have.run, run)?;
    let run = RunId::parse(&have.run).map_err(|error| CliError::Failed(error.to_string()))?;
    Ok(Checkout::new(client, &run, folder))
}

async fn print_pulled(output: Output, pulled: &Pulled, checkout: &Checkout) -> Result<(), CliError> {
    let folder = checkout.folder();
    if output.is_json {
        let Pulled { from, now, applied, left_out, left_out_paths, conflicts } = pulled;
        let answer = json!({
            "run": now.run, "fromSeq": from, "seq": now.seq, "headHash": now.head_hash, "written": applied.written,
            "deleted": applied.deleted, "leftOut": left_out, "leftOutPaths": left_out_paths, "treeSha256": checkout.tree_sha256().await?,
            "folder": folder.shown(), "conflicts": conflicts,
        });
        return Ok(output.json(&answer)?);
    }
    let left_out = match pulled.left_out {
        0 => String::new(),
        count => format!(", {count} left out"),
    };
    Ok(output.line(&format!("{}: {}{left_out}", escape_line(folder.shown()), pulled_summary(pulled)))?)
}
