//! What commands that list have in common: how many rows, in which order, and times and IDs for people.

use std::pin::pin;

use futures_util::{Stream, TryStreamExt as _};
use workspaced_client::{ApprovalFilter, ApprovalId, AuditFilter, Client, Code, Error, RunId};

use crate::error::CliError;
use crate::output::Output;

/// Rows that are printed for people, without `--limit`.
const DEFAULT_LIMIT: usize = 100;
/// What IDs made by the service begin with, and how many characters of one are shown at least.
const MADE: [(&str, usize); 2] = [("run_", 14), ("apr_", 14)];
/// IDs that an ambiguous prefix names in the error.
const MAX_CANDIDATES: usize = 5;

/// Which part of a list is printed.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct ListArgs {
    /// Maximum rows [default: 100; with `--json` all]
    #[arg(long, value_name = "COUNT")]
    limit: Option<usize>,
    /// Print the oldest first, not the newest.
    #[arg(long)]
    oldest_first: bool,
}

impl ListArgs {
    /// Whether the newest item comes first.
    pub fn is_newest_first(self) -> bool {
        !self.oldest_first
    }

    /// Passes each item to `take`, up to the limit. Says so on standard error if there are more.
    ///
    /// # Errors
    ///
    /// If a call fails, or nothing can be printed.
    pub async fn each<T>(
        self,
        output: Output,
        items: impl Stream<Item = Result<T, Error>>,
        mut take: impl FnMut(T) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        let limit = self.limit.unwrap_or(if output.is_json { usize::MAX } else { DEFAULT_LIMIT });
        let mut items = pin!(items);
        let mut taken = 0;
        while let Some(item) = items.try_next().await? {
            if taken == limit {
                if !output.is_json {
                    output.note(&format!("{limit} shown; `--limit` shows more"));
                }
                return Ok(());
            }
            take(item)?;
            taken += 1;
        }
        Ok(())
    }
}

/// Returns the shortest form of each ID that differs from all others, of those that the service has made.
pub fn shorten(ids: &[String]) -> Vec<String> {
    let mut sorted: Vec<&str> = ids.iter().map(String::as_str).collect();
    sorted.sort_unstable();
    sorted.dedup();
    let common = |one: &str, other: &str| one.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
    let short = |id: &String| {
        let Some((_, least)) = MADE.iter().find(|(prefix, _)| id.starts_with(prefix)) else { return id.clone() };
        let at = sorted.partition_point(|other| *other < id.as_str());
        let before = at.checked_sub(1).and_then(|before| sorted.get(before)).map_or(0, |other| common(other, id));
        let after = sorted.get(at + 1).map_or(0, |other| common(other, id));
        id.chars().take((before.max(after) + 1).max(*least)).collect()
    };
    ids.iter().map(short).collect()
}

/// Calls `call` with `run`, and if there is no such run, with the only one whose ID begins like that.
///
/// # Errors
///
/// If a call fails, or nothing can be printed.
pub async fn with_run<T>(
    client: &Client,
    run: &RunId,
    call: impl AsyncFn(&RunId) -> Result<T, Error>,
) -> Result<T, CliError> {
    match call(run).await {
        Err(error) if error.problem().is_some_and(|problem| problem.code == Code::RunNotFound.as_str()) => {
            match full_run(client, run.as_str()).await? {
                Some(full) => Ok(call(&full).await?),
                None => Err(error.into()),
            }
        }
        done => Ok(done?),
    }
}

/// Returns the run that `run` or the beginning of its ID names, for commands whose requests do not fail for an unknown run.
///
/// # Errors
///
/// If a call fails, or nothing can be printed.
pub async fn resolve_run(client: &Client, run: RunId) -> Result<RunId, CliError> {
    with_run(client, &run, async |run: &RunId| client.run(run).await.map(|_| run.clone())).await
}

async fn full_run(client: &Client, prefix: &str) -> Result<Option<RunId>, CliError> {
    let ids = client.newest_runs(None).map_ok(|run| run.run_id);
    match only(prefix, ids.map_ok(|id| id.to_string())).await {
        // A run token may not list runs.
        Err(CliError::Client(Error::Problem(_))) => Ok(None),
        found => Ok(found?.and_then(|id| RunId::parse(&id).ok())),
    }
}

/// Returns the approval whose ID begins with `given`.
///
/// # Errors
///
/// If a call fails, or nothing can be printed.
pub async fn resolve_approval(client: &Client, given: ApprovalId) -> Result<ApprovalId, CliError> {
    match client.approval(&given).await {
        Err(error) if error.problem().is_some_and(|problem| problem.code == Code::NotFound.as_str()) => {
            let filter = ApprovalFilter { newest_first: true, ..ApprovalFilter::default() };
            let ids = client.approvals(&filter).map_ok(|approval| approval.approval_id.to_string());
            match only(given.as_str(), ids).await?.map(|id| ApprovalId::parse(&id)) {
                Some(Ok(id)) => Ok(id),
                _ => Err(error.into()),
            }
        }
        found => Ok(found.map(|_| given)?),
    }
}

/// Returns the only ID that begins with `prefix`.
async fn only(prefix: &str, ids: impl Stream<Item = Result<String, Error>>) -> Result<Option<String>, CliError> {
    let mut ids = pin!(ids);
    let mut found = Vec::new();
    while let Some(id) = ids.try_next().await? {
        if id.starts_with(prefix) {
            found.push(id);
        }
    }
    match &found[..] {
        [] => Ok(None),
        [id] => Ok(Some(id.clone())),
        _ => {
            let some = found.iter().take(MAX_CANDIDATES).cloned().collect::<Vec<_>>().join(", ");
            let count = found.len();
            Err(CliError::Usage(format!("{count} IDs begin with `{prefix}`: {some}. Give more characters.")))
        }
    }
}

/// Returns when the newest record of `actor` was written. What leaves no record, such as lists of runs, does not count.
///
/// # Errors
///
/// If a call fails, or nothing can be printed.
pub async fn last_use(client: &Client, output: Output, actor: &str) -> Result<String, CliError> {
    let filter = AuditFilter { actor: Some(actor.to_owned()), newest_first: true, ..AuditFilter::default() };
    let newest = std::pin::pin!(client.audit_page(&filter, 1)).await?;
    Ok(newest.first().map_or_else(|| "none".to_owned(), |record| output.time(&record.timestamp)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortened_ids_stay_unique_and_chosen_ones_whole() {
        let ids = ["run_01ABCDEFGHJKMNPQ", "run_01ABCDEFGHJKMXYZ", "run_02", "issue-4711-and-more"].map(str::to_owned);
        let short = shorten(&ids);
        assert_eq!(short, ["run_01ABCDEFGHJKMN", "run_01ABCDEFGHJKMX", "run_02", "issue-4711-and-more"]);
    }
}
