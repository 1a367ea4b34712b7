//! The comparison of two runs, such as two forks of one: their files, and what each has used and tested.

use async_recursion::async_recursion as boxed;
use std::collections::BTreeSet;
use std::sync::Arc;

use model::{LogicalPath, Refusal, RunCounts, RunId, RunState, Sha256, git_mode};
use serde::{Deserialize, Serialize};
use workspace::{Base, RecordedBase, Snapshot, SnapshotFile};

use crate::CallError;
use crate::audit::Audit;
use crate::audit::report::{ReportBudget, ReportCommand, budgets};
use crate::call_error::refusals::{run_not_found, run_without_files};
use crate::history::snapshot;
use crate::opening::recorded_base;

/// The name of the tests among the commands of a report.
const TEST: &str = "event.test";
/// The most files of one answer.
const MAX_FILES: usize = 1000;

/// How a file of two runs compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum ComparedStatus {
    /// Both have the same version, which at least one of them has written.
    Same,
    /// They have different versions.
    Different,
    /// Only the first has it.
    OnlyFirst,
    /// Only the second has it.
    OnlySecond,
    /// One of them has removed it, and the other does not have it either.
    Neither,
}

/// Which part of a comparison to return.
#[derive(Clone, Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", default)]
#[into_params(parameter_in = Query)]
pub struct CompareQuery {
    /// Only files after this path, in the order of the paths: the `nextAfter` of the part before.
    #[param(example = "src/lib.rs")]
    after: Option<String>,
    /// The most files, 1 to 1,000. Default: 1,000.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// Two runs compared.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunComparison {
    /// The two runs, in the order of the path.
    #[schema(min_items = 2, max_items = 2)]
    pub runs: Vec<ComparedRun>,
    /// The files that either run has changed, and those that differ, by path.
    pub files: Vec<ComparedFile>,
    /// Where the next part begins; missing if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_after: Option<String>,
}

/// One of two compared runs.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComparedRun {
    /// The run.
    pub run_id: RunId,
    /// Its state.
    pub state: RunState,
    /// The record at which its files are compared: the newest.
    pub head_seq: u64,
    /// The hash of that record.
    pub head_hash: Sha256,
    /// The commit that it started from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_commit: Option<String>,
    /// Counts of its agent's calls.
    pub counts: RunCounts,
    /// What its mutations have used of its budget.
    pub budgets: Vec<ReportBudget>,
    /// The tests among its newest 50 recorded commands and tests, in order.
    pub tests: Vec<ReportCommand>,
}

/// A file of two compared runs.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComparedFile {
    /// The path.
    pub path: LogicalPath,
    /// How the versions compare.
    pub status: ComparedStatus,
    /// The version of the first run; missing if it does not have the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<ComparedVersion>,
    /// The version of the second run; missing if it does not have the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub second: Option<ComparedVersion>,
}

/// A version of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ComparedVersion {
    /// The hash of its bytes; for a symbolic link, of its target.
    pub sha256: Sha256,
    /// Its mode as git writes it, in octal.
    #[schema(example = "100644")]
    pub mode: String,
}

/// A run that is compared, with its files.
struct LoadedRun {
    run: ComparedRun,
    files: Snapshot,
    /// What it started from, according to its records.
    recorded: Option<RecordedBase>,
    base: Arc<Base>,
}

impl Audit {
    /// Compares the files of two runs, each at its newest record, and what they have used.
    ///
    /// # Errors
    ///
    /// `RUN_NOT_FOUND`; `RUN_CLOSED` if one of them has no files; `INVALID_REQUEST`.
    #[boxed]
    pub async fn compare(&self, ids: [&RunId; 2], query: &CompareQuery) -> Result<RunComparison, CallError> {
        let limit = query.limit.unwrap_or(MAX_FILES);
        if !(1..=MAX_FILES).contains(&limit) {
            let message = format!("`limit` is {limit}; allowed are 1 to {MAX_FILES}");
            return Err(Refusal::invalid(message, "Give another number, or omit it.").into());
        }
        let _permit = self.engine.read_permit(true).await;
        let first = self.load_compared(ids[0], None).await.map_err(|error| error.about(ids[0]))?;
        let second = self.load_compared(ids[1], Some(&first)).await.map_err(|error| error.about(ids[1]))?;
        let (files, next_after) = compare_files(&first.files, &second.files, query.after.as_deref(), limit);
        Ok(RunComparison { runs: vec![first.run, second.run], files, next_after })
    }

    /// Loads a run and its files. With an object store the run is not opened: another node may own it.
    async fn load_compared(&self, id: &RunId, other: Option<&LoadedRun>) -> Result<LoadedRun, CallError> {
        // Also closes a run whose time is over.
        self.engine.run(id).await?;
        let stored = self.engine.ledger.settled_run(id).await?.ok_or_else(run_not_found)?.stored;
        let (run, usage) = (stored.run, stored.usage);
        if matches!(run.state, RunState::Preparing | RunState::Deleted) || run.base_commit.is_none() {
            return Err(run_without_files(run.state).into());
        }
        let (collected, _) = self.collect(&run, false).await?;
        let recorded = recorded_base(self.engine.ledger.as_ref(), &run).await?;
        let base = match (other, &recorded) {
            (Some(other), Some(_)) if other.recorded == recorded => Arc::clone(&other.base),
            (_, Some(recorded)) if self.engine.objects.is_some() => self.engine.fetched_base(id, recorded).await?,
            _ => Arc::clone(self.engine.open(id).await?.workspace.base()),
        };
        let files = snapshot::load(&self.engine.ledger, id, &base, run.head_seq).await?;
        let compared = ComparedRun {
            budgets: budgets(&run, &usage),
            run_id: run.run_id,
            state: run.state,
            head_seq: run.head_seq,
            head_hash: run.head_hash,
            base_commit: run.base_commit,
            counts: run.counts,
            tests: collected.commands.into_iter().filter(|command| command.tool == TEST).collect(),
        };
        Ok(LoadedRun { run: compared, files, recorded, base })
    }
}

/// Returns the first `limit` files after a path that either run has written or that differ, and where the next part begins.
fn compare_files(
    first: &Snapshot,
    second: &Snapshot,
    after: Option<&str>,
    limit: usize,
) -> (Vec<ComparedFile>, Option<String>) {
    let mut paths: BTreeSet<_> = first.written().chain(second.written()).cloned().collect();
    if !first.has_base_of(second) {
        paths.extend([first, second].iter().flat_map(|one| one.files().into_keys()));
    }
    let mut files = Vec::new();
    for path in paths.iter().filter(|path| after.is_none_or(|after| path.as_str() > after)) {
        let version = |file: SnapshotFile| {
            let mode = format!("{:06o}", git_mode(file.git_mode()));
            ComparedVersion { sha256: file.sha256, mode }
        };
        let [in_first, in_second] = [first, second].map(|one| one.get(path).map(version));
        let status = match (&in_first, &in_second) {
            (one, other) if one == other && !first.has_written(path) && !second.has_written(path) => continue,
            (None, None) => ComparedStatus::Neither,
            (Some(one), Some(other)) if one == other => ComparedStatus::Same,
            (Some(_), Some(_)) => ComparedStatus::Different,
            (Some(_), None) => ComparedStatus::OnlyFirst,
            (None, Some(_)) => ComparedStatus::OnlySecond,
        };
        if files.len() == limit {
            let next = files.last().map(|file: &ComparedFile| file.path.to_string());
            return (files, next);
        }
        files.push(ComparedFile { path: path.clone(), status, first: in_first, second: in_second });
    }
    (files, None)
}
