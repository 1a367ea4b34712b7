//! `approvals`: list, show and decide calls that wait for approval.

use workspaced_client::{
    Approval, ApprovalDecision, ApprovalFilter, ApprovalId, ApprovalState, ApprovalWarning, Client, RunId,
};

use crate::call::parse_run;
use crate::connection::{Connection, Env, connect};
use crate::error::CliError;
use crate::listing::{ListArgs, resolve_approval, resolve_run, shorten};
use crate::output::Output;

/// The most paths that a row shows.
const MAX_FILES: usize = 2;

/// Arguments of `approvals`.
#[derive(Debug, clap::Args)]
pub struct ApprovalsArgs {
    #[command(subcommand)]
    action: ApprovalAction,
    #[command(flatten)]
    pub(super) connection: Connection,
}

#[derive(Debug, clap::Subcommand)]
enum ApprovalAction {
    /// List approvals, by default those that nobody has decided yet.
    List {
        /// Only approvals in this state: `pending`, `approved`, `denied`, `expired` or `failed`.
        #[arg(long, value_parser = parse_state, default_value = "pending")]
        state: ApprovalState,
        /// Only approvals of this run.
        #[arg(long, value_name = "ID", value_parser = parse_run)]
        run: Option<RunId>,
        #[command(flatten)]
        list: ListArgs,
    },
    /// Show an approval with the diff of its call.
    Show {
        /// Approval.
        #[arg(value_name = "APPROVAL", value_parser = parse_id)]
        approval: ApprovalId,
    },
    /// Approve a call, which is then executed; exit code 1 if that fails.
    Approve(DecisionArgs),
    /// Deny a call.
    Deny(DecisionArgs),
}

#[derive(Debug, clap::Args)]
struct DecisionArgs {
    /// Approval.
    #[arg(value_name = "APPROVAL", value_parser = parse_id)]
    approval: ApprovalId,
    /// Person for whom the operator decides; required with the token of the operator `operator`.
    #[arg(long, value_name = "NAME")]
    on_behalf_of: Option<String>,
    /// Note for the audit.
    #[arg(long, value_name = "TEXT")]
    note: Option<String>,
}

/// Runs `approvals`.
pub(super) async fn run(args: ApprovalsArgs, env: &Env<'_>) -> Result<(), CliError> {
    let client = connect(&args.connection.address, env)?;
    let output = Output::new(&args.connection, env);
    match args.action {
        ApprovalAction::List { state, run, list: part } => {
            let run = match run {
                Some(run) => Some(resolve_run(&client, run).await?),
                None => None,
            };
            let filter = ApprovalFilter { state: Some(state), run, newest_first: part.is_newest_first() };
            list(&client, output, &filter, part).await
        }
        ApprovalAction::Show { approval } => {
            show(output, &client.approval(&resolve_approval(&client, approval).await?).await?)
        }
        ApprovalAction::Approve(args) => {
            let approval = resolve_approval(&client, args.approval.clone()).await?;
            let decided = client.approve(&approval, &decision_of(&args)).await?;
            decision(output, &decided)?;
            if decided.approval.state == ApprovalState::Failed {
                return Err(CliError::Failed("the approved call could not be executed".to_owned()));
            }
            Ok(())
        }
        ApprovalAction::Deny(args) => {
            let approval = resolve_approval(&client, args.approval.clone()).await?;
            decision(output, &client.deny(&approval, &decision_of(&args)).await?)
        }
    }
}

fn decision_of(args: &DecisionArgs) -> ApprovalDecision {
    ApprovalDecision { on_behalf_of: args.on_behalf_of.clone(), note: args.note.clone(), edits: Vec::new() }
}

fn decision(output: Output, decided: &workspaced_client::DecisionResult) -> Result<(), CliError> {
    if output.is_json {
        output.json(decided)?;
    } else {
        output.fields(&fields_of(output, &decided.approval))?;
    }
    Ok(())
}

async fn list(client: &Client, output: Output, filter: &ApprovalFilter, part: ListArgs) -> Result<(), CliError> {
    let (mut ids, mut runs, mut rows) = (Vec::new(), Vec::new(), Vec::new());
    let take = |approval: Approval| {
        if output.is_json {
            return Ok(output.json(&approval)?);
        }
        ids.push(approval.approval_id.to_string());
        runs.push(approval.run_id.to_string());
        let files: Vec<_> = approval.files.iter().take(MAX_FILES).map(|file| file.path.to_string()).collect();
        let more = approval.files.len().saturating_sub(MAX_FILES);
        let files = files.join(" ") + &if more > 0 { format!(" and {more} more") } else { String::new() };
        let mut warnings: Vec<_> = approval.warnings.iter().map(|warning| warning.code.as_str()).collect();
        warnings.dedup();
        let warnings = warnings.join(" ");
        let expires = output.time(&approval.expires_at);
        let state = approval.state.as_str().to_owned();
        rows.push(vec![String::new(), state, String::new(), approval.tool, files, warnings, expires, approval.reason]);
        Ok(())
    };
    part.each(output, client.approvals(filter), take).await?;
    if !output.is_json {
        for ((row, id), run) in rows.iter_mut().zip(shorten(&ids)).zip(shorten(&runs)) {
            (row[0], row[2]) = (id, run);
        }
        output.table(&["APPROVAL", "STATE", "RUN", "TOOL", "FILES", "WARNINGS", "EXPIRES", "REASON"], &rows)?;
    }
    Ok(())
}

fn show(output: Output, approval: &Approval) -> Result<(), CliError> {
    if output.is_json {
        output.json(approval)?;
    } else {
        output.fields(&fields_of(output, approval))?;
        output.line("")?;
        output.diff(approval.diff.as_deref().unwrap_or_default())?;
    }
    Ok(())
}

fn fields_of(output: Output, approval: &Approval) -> Vec<(&'static str, String)> {
    let files: Vec<_> = approval.files.iter().map(|file| format!("{} {}", file.operation, file.path)).collect();
    let approved_by: Vec<_> = approval.approved_by.iter().map(ToString::to_string).collect();
    let mut fields = vec![
        ("approval", approval.approval_id.to_string()),
        ("state", approval.state.as_str().to_owned()),
        ("run", approval.run_id.to_string()),
        ("call", format!("{} {}", approval.tool, approval.tool_call_id)),
        ("caller", approval.actor.clone()),
        ("reason", approval.reason.clone()),
        ("rules", approval.reasons.join(", ")),
        ("files", files.join(", ")),
        ("created", output.full_time(&approval.created_at)),
        ("expires", output.full_time(&approval.expires_at)),
        ("approvals", format!("{} of {} {}", approved_by.len(), approval.approvers, approved_by.join(", "))),
        ("decided by", approval.decided_by.clone().unwrap_or_default()),
        ("on behalf of", approval.on_behalf_of.clone().unwrap_or_default()),
        ("note", approval.note.clone().unwrap_or_default()),
    ];
    fields.extend(approval.warnings.iter().map(|warning| ("warning", warning_text(warning))));
    fields
}

/// Returns a warning in one line: `danger CREDENTIAL_LIKE src/a.py:3: An added line …`.
fn warning_text(warning: &ApprovalWarning) -> String {
    let line = warning.line.map(|line| format!(":{line}")).unwrap_or_default();
    let at = warning.path.as_ref().map(|path| format!(" {path}{line}")).unwrap_or_default();
    format!("{} {}{at}: {}", warning.severity.as_str(), warning.code.as_str(), warning.text)
}

fn parse_state(raw: &str) -> Result<ApprovalState, String> {
    let found = ApprovalState::ALL.into_iter().find(|state| state.as_str() == raw);
    found.ok_or_else(|| "no such state".to_owned())
}

fn parse_id(raw: &str) -> Result<ApprovalId, String> {
    ApprovalId::parse(raw).map_err(|error| error.to_string())
}
