//! `events`: what programs have recorded in runs.

use futures_util::TryStreamExt as _;
use workspaced_client::{AuditFilter, Record, RunId};

use crate::audit::print;
use crate::call::parse_run;
use crate::connection::{Connection, Env, connect};
use crate::error::CliError;
use crate::listing::{ListArgs, resolve_run};
use crate::output::Output;

/// What the tools of events begin with.
const PREFIX: &str = "event.";

/// Arguments of `events`.
#[derive(Debug, clap::Args)]
pub struct EventsArgs {
    /// Only events of this run. Without it an operator's token is required.
    #[arg(value_name = "RUN", value_parser = parse_run)]
    run: Option<RunId>,
    /// Print events as they are recorded, from `--since` or from now on. Requires an operator's token.
    #[arg(long)]
    follow: bool,
    /// Only events of this kind, such as `command`.
    #[arg(long, value_name = "NAME")]
    kind: Option<String>,
    /// Only events at or after this time, RFC 3339.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    #[command(flatten)]
    list: ListArgs,
    #[command(flatten)]
    pub(super) connection: Connection,
}

/// Runs `events`.
pub(super) async fn run(args: EventsArgs, env: &Env<'_>) -> Result<(), CliError> {
    let client = connect(&args.connection.address, env)?;
    let output = Output::new(&args.connection, env);
    let run = match args.run {
        Some(run) => Some(resolve_run(&client, run).await?),
        None => None,
    };
    let tool = args.kind.map(|kind| format!("{PREFIX}{kind}"));
    let newest_first = args.list.is_newest_first() && !args.follow;
    let filter = AuditFilter { tool, since: args.since, newest_first, ..AuditFilter::default() };
    let is_event = |record: &Record| record.tool.starts_with(PREFIX);
    if args.follow {
        let mut records = std::pin::pin!(client.follow_audit(run.as_ref(), &filter, None)?);
        while let Some(followed) = records.try_next().await? {
            if is_event(&followed.record) {
                print(output, &followed.record)?;
            }
        }
        return Ok(());
    }
    let show = |record: Record| Ok(print(output, &record)?);
    let only = |record: Record| async move { Ok(Some(record).filter(is_event)) };
    match &run {
        Some(run) => args.list.each(output, client.run_audit(run, &filter).try_filter_map(only), show).await,
        None => args.list.each(output, client.audit(&filter).try_filter_map(only), show).await,
    }
}
