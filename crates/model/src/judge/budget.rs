//! Judging what a change uses up.

use std::collections::BTreeSet;

use super::facts::ChangeFacts;
use crate::policy::BudgetOverrides;
use crate::{Budget, Code, Effect, FileKind, LogicalPath, Refusal, Rules, Usage};

/// One bound and what meets it.
struct Meter {
    reason: String,
    limit: u64,
    actual: u64,
}

pub(super) fn judge_budgets(rules: &Rules, changes: &[ChangeFacts<'_>], usage: &Usage) -> Option<Refusal> {
    let call = usage_of(changes, |_| true);
    let mut meters = meters("budget", &limits(&rules.policy().budget), &call, &Usage::default());
    if let Some(run_budget) = &rules.policy().run_budget {
        meters.extend(self::meters("runBudget", run_budget, &Usage::of(changes), usage));
    }
    exceeded(meters)
}

/// Refuses a call that names more files than its budget allows, before any of them is read. `named` are the paths that
/// the call's input names.
pub fn judge_file_count<'a>(rules: &Rules, named: impl IntoIterator<Item = &'a LogicalPath>) -> Option<Refusal> {
    let counts = |path: &&LogicalPath| FileKind::of_path(path) != FileKind::Lockfile;
    let files: BTreeSet<_> = named.into_iter().filter(counts).collect();
    let call = Usage { files_touched: files.len() as u64, ..Usage::default() };
    exceeded(meters("budget", &limits(&rules.policy().budget), &call, &Usage::default()))
}

/// Refuses a call for which `bytes` of file contents, before and after its change together, would be in memory, if they are
/// too many.
pub fn judge_call_bytes(rules: &Rules, bytes: u64) -> Option<Refusal> {
    let limit = rules.policy().max_call_bytes();
    (bytes > limit).then(|| {
        let message =
            format!("the call needs {bytes} bytes of file contents, before and after the change; it may need {limit}");
        let hint = "Split the change over several calls, each with fewer or smaller files.";
        Refusal::new(Code::PatchBudgetExceeded, message, hint).with_details(|details| {
            details.reasons = vec!["call:contentBytes".to_owned()];
            (details.limit, details.actual) = (Some(limit), Some(bytes));
        })
    })
}

/// The refusal of what is above its limit; of the first, with the reasons of all.
fn exceeded(mut meters: Vec<Meter>) -> Option<Refusal> {
    meters.retain(|meter| meter.actual > meter.limit);
    let worst = meters.first()?;
    let (limit, actual) = (worst.limit, worst.actual);
    let (message, hint) = if worst.reason.starts_with("runBudget:") {
        let message = format!("the run would have used up {actual} of {} with a limit of {limit}", worst.reason);
        (message, "Finish with what there is, or ask the operator for a larger runBudget.")
    } else {
        let message = format!("the change comes to {actual} for {}; the limit is {limit} a call", worst.reason);
        (message, "Split the change over several calls, each complete in itself.")
    };
    let reasons = meters.iter().map(|meter| meter.reason.clone()).collect();
    Some(Refusal::new(Code::PatchBudgetExceeded, message, hint).with_details(|details| {
        details.reasons = reasons;
        (details.limit, details.actual) = (Some(limit), Some(actual));
    }))
}

fn limits(budget: &Budget) -> BudgetOverrides {
    BudgetOverrides {
        max_files_touched: Some(budget.max_files_touched),
        max_insertions: Some(budget.max_insertions),
        max_deletions: Some(budget.max_deletions),
        max_files_deleted: Some(budget.max_files_deleted),
        max_bytes: Some(budget.max_bytes),
    }
}

/// The bounds that `call` adds to; what it leaves alone is no reason to refuse it.
fn meters(name: &str, limits: &BudgetOverrides, call: &Usage, before: &Usage) -> Vec<Meter> {
    [
        ("maxFilesTouched", limits.max_files_touched, call.files_touched, before.files_touched),
        ("maxInsertions", limits.max_insertions, call.insertions, before.insertions),
        ("maxDeletions", limits.max_deletions, call.deletions, before.deletions),
        ("maxFilesDeleted", limits.max_files_deleted, call.files_deleted, before.files_deleted),
        ("maxBytes", limits.max_bytes, call.bytes, before.bytes),
    ]
    .into_iter()
    .filter(|(_, _, now, _)| *now > 0)
    .filter_map(|(member, limit, now, before)| {
        Some(Meter { reason: format!("{name}:{member}"), limit: limit?, actual: now.saturating_add(before) })
    })
    .collect()
}

/// What a change set uses up; a file counts as touched where `touches` says so.
fn usage_of(changes: &[ChangeFacts<'_>], touches: impl Fn(&ChangeFacts<'_>) -> bool) -> Usage {
    let mut usage = Usage::default();
    // Calls that are judged together may change one file several times.
    let mut seen = BTreeSet::new();
    for facts in changes {
        if *facts.effect == Effect::Delete {
            usage.files_deleted += 1;
        }
        if facts.kind == FileKind::Lockfile {
            continue;
        }
        usage.files_touched += u64::from(touches(facts) && seen.insert(facts.path));
        usage.insertions = usage.insertions.saturating_add(facts.insertions);
        usage.deletions = usage.deletions.saturating_add(facts.deletions);
        usage.bytes = usage.bytes.saturating_add(facts.bytes);
    }
    usage
}

impl Usage {
    /// What a change set adds to its run's usage, for the ledger to add up; see [`Usage`] for what counts.
    pub fn of(changes: &[ChangeFacts<'_>]) -> Self {
        usage_of(changes, |facts| !facts.touched_before)
    }
}
