//! `audit`: records, by page or as they are written.

use std::io;

use futures_util::TryStreamExt as _;
use model::{Code, LogicalPath, Outcome, Record, Verdict};
use serde::de::DeserializeOwned;
use serde_json::Value;
use workspaced_client::{AuditFilter, RunId};

use crate::call::parse_run;
use crate::connection::{Connection, Env, connect};
use crate::error::CliError;
use crate::escape::escape_line;
use crate::listing::{ListArgs, resolve_run};
use crate::output::{Output, Style};

/// The tool whose paths have a direction.
const MOVE: &str = "move_file";
/// The most paths that a line shows.
const MAX_PATHS: usize = 3;
/// The most reasons that a line shows.
const MAX_REASONS: usize = 5;

/// What a line shows of the input of a read.
const ASKED: [&str; 7] = ["query", "glob", "includeGlob", "startLine", "maxLines", "maxDepth", "range"];

/// Arguments of `audit`.
#[derive(Debug, clap::Args)]
pub struct AuditArgs {
    /// Only records of this run. Without it an operator's token is required.
    #[arg(long, value_name = "ID", value_parser = parse_run)]
    run: Option<RunId>,
    /// Print records as they are written, from `--since` or from now on. Requires an operator's token.
    #[arg(long)]
    follow: bool,
    /// Only calls of this tool.
    #[arg(long, value_name = "NAME")]
    tool: Option<String>,
    /// Only calls with this decision: `ALLOW`, `REQUIRE_APPROVAL` or `DENY`.
    #[arg(long, value_parser = parse_name::<Verdict>)]
    decision: Option<Verdict>,
    /// Only calls with this outcome: `ok`, `refused`, `pending` or `failed`.
    #[arg(long, value_parser = parse_name::<Outcome>)]
    outcome: Option<Outcome>,
    /// Only calls that were refused with this code, such as `WRITE_CONFLICT`.
    #[arg(long, value_parser = parse_name::<Code>)]
    code: Option<Code>,
    /// Only calls about this path.
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// Only calls about files whose path ends with this text, such as `refunds.py`; with `/` before it, of exactly that name.
    #[arg(long, value_name = "TEXT")]
    path_suffix: Option<String>,
    /// Only calls at or after this time, RFC 3339.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only calls before this time, RFC 3339.
    #[arg(long, value_name = "TIME")]
    until: Option<String>,
    /// Only calls of this caller, such as `operator:ada` or `run-token:tok_…`.
    #[arg(long, value_name = "CALLER")]
    caller: Option<String>,
    #[command(flatten)]
    list: ListArgs,
    #[command(flatten)]
    pub(super) connection: Connection,
}

/// Runs `audit`.
pub(super) async fn run(args: AuditArgs, env: &Env<'_>) -> Result<(), CliError> {
    let client = connect(&args.connection.address, env)?;
    let output = Output::new(&args.connection, env);
    let AuditArgs {
        run,
        tool,
        decision,
        outcome,
        code,
        path,
        path_suffix,
        since,
        until,
        caller: actor,
        list,
        follow,
        ..
    } = args;
    let run = match run {
        Some(run) => Some(resolve_run(&client, run).await?),
        None => None,
    };
    let newest_first = list.is_newest_first();
    let filter = AuditFilter { tool, decision, outcome, code, path, path_suffix, since, until, actor, newest_first };
    if follow {
        let mut records = std::pin::pin!(client.follow_audit(run.as_ref(), &filter, None)?);
        while let Some(followed) = records.try_next().await? {
            print(output, &followed.record)?;
        }
        return Ok(());
    }
    let show = |record: Record| Ok(print(output, &record)?);
    match &run {
        Some(run) => list.each(output, client.run_audit(run, &filter), show).await,
        None => list.each(output, client.audit(&filter), show).await,
    }
}

/// Prints a record on one line: time, run, number, outcome, tool, then the code, the paths or the summary, what decided against it, the
/// reason and the caller.
pub(super) fn print(output: Output, record: &Record) -> io::Result<()> {
    if output.is_json {
        return output.json(record);
    }
    let (style, outcome) = match record.outcome {
        Outcome::Ok => (Style::Good, "ok"),
        Outcome::Refused => (Style::Bad, "refused"),
        Outcome::Failed => (Style::Bad, "failed"),
        Outcome::Pending => (Style::Warning, "pending"),
    };
    let outcome = output.styled(style, &format!("{outcome:7}"));
    let time = output.time(&record.timestamp);
    let (run, seq, tool) = (&record.run_id, record.seq, escape_line(&record.tool));
    let line = format!("{time:>11}  {run}  {seq:>5}  {outcome}  {tool:14}  {}", escape_line(&details(record)));
    output.line(line.trim_end())
}

fn details(record: &Record) -> String {
    let mut parts: Vec<String> = record.code.iter().map(ToString::to_string).collect();
    let mut paths: Vec<_> = record.paths_written.iter().collect();
    if paths.is_empty() {
        paths.extend(&record.paths_read);
    }
    if paths.is_empty() {
        // What a refused call wanted to change.
        paths.extend(record.files.iter().map(|file| &file.path));
    }
    match moved(record) {
        Some((from, to)) => parts.push(format!("{from} -> {to}")),
        None => parts.extend(paths.iter().take(MAX_PATHS).map(|path| path.as_str().to_owned())),
    }
    if paths.len() > MAX_PATHS {
        parts.push(format!("and {} more", paths.len() - MAX_PATHS));
    }
    let summary = record.input.as_ref().and_then(|input| input.get("summary")).and_then(Value::as_str);
    parts.extend(summary.map(str::to_owned));
    let input = record.input.iter().filter(|_| summary.is_none() && !record.mutates);
    parts.extend(input.flat_map(|input| ASKED.iter().filter_map(|name| Some(format!("{name}={}", input.get(*name)?)))));
    parts.extend(record.left.iter().take(MAX_PATHS).map(|left| format!("denied: {} ({})", left.path, left.rule)));
    let more_left = record.left_count.unwrap_or(0).saturating_sub(MAX_PATHS as u64);
    parts.extend((more_left > 0).then(|| format!("and {more_left} more denied")));
    if record.outcome != Outcome::Ok && !record.reasons.is_empty() {
        let more = record.reasons.len().saturating_sub(MAX_REASONS);
        let shown = record.reasons.iter().take(MAX_REASONS).cloned();
        let shown: Vec<_> = shown.chain((more > 0).then(|| format!("and {more} more"))).collect();
        parts.push(format!("[{}]", shown.join(", ")));
    }
    parts.extend(record.reason.as_ref().map(|reason| format!("\"{reason}\"")));
    parts.push(format!("({})", record.actor));
    parts.join(" ")
}

/// Returns from where and to where a file was moved.
fn moved(record: &Record) -> Option<(&LogicalPath, &LogicalPath)> {
    let from = record.files.iter().find(|file| file.new_sha256.is_none())?;
    let to = record.files.iter().find(|file| file.old_sha256.is_none())?;
    (record.tool == MOVE && record.files.len() == 2).then_some((&from.path, &to.path))
}

/// Parses the name of a value in JSON.
fn parse_name<T: DeserializeOwned>(raw: &str) -> Result<T, String> {
    serde_json::from_value(Value::from(raw)).map_err(|_| "no such value".to_owned())
}
