//! Judges changes by the budgets of a call and of a run.

use std::collections::BTreeSet;

use super::facts::ChangeFacts;
use crate::policy::BudgetOverrides;
use crate::{Budget, Code, Effect, FileKind, LogicalPath, Refusal, Rules, Usage, Verdict};

/// A limit and the value that it applies to.
struct LimitCheck {
    reason: String,
    limit: u64,
    actual: u64,
}

impl LimitCheck {
    fn is_exceeded(&self) -> bool {
        self.actual > self.limit
    }
}

pub(super) fn judge_budgets(rules: &Rules, changes: &[ChangeFacts<'_>], usage: &Usage) -> Option<Refusal> {
    let call = usage_of(changes, |_| true);
    let (name, budget) = rules.budget();
    let mut checks = limit_checks(name, &limits(budget), &call, &Usage::default());
    if let Some(run_budget) = &rules.policy().run_budget {
        checks.extend(limit_checks("runBudget", run_budget, &Usage::of(changes), usage));
    }
    checks.retain(LimitCheck::is_exceeded);
    let is_file_budget = matches!(checks.as_slice(), [only] if only.reason == format!("{name}:maxInsertions"));
    if is_file_budget && is_new_file(changes) && rules.policy().file_budget != Verdict::Deny {
        return None;
    }
    exceeded(checks)
}

/// Returns whether a change is one new file with more lines than a call may insert.
pub(super) fn exceeds_file_budget(rules: &Rules, changes: &[ChangeFacts<'_>]) -> bool {
    is_new_file(changes) && usage_of(changes, |_| true).insertions > rules.budget().1.max_insertions
}

fn is_new_file(changes: &[ChangeFacts<'_>]) -> bool {
    matches!(changes, [ChangeFacts { effect: Effect::Create, .. }])
}

/// Refuses a call whose input names more files than its budget allows, before any of them is read.
pub fn judge_file_count<'a>(rules: &Rules, named: impl IntoIterator<Item = &'a LogicalPath>) -> Option<Refusal> {
    let files: BTreeSet<_> = named.into_iter().collect();
    let call = Usage { files_touched: files.len() as u64, ..Usage::default() };
    let (name, budget) = rules.budget();
    exceeded(limit_checks(name, &limits(budget), &call, &Usage::default()))
}

/// Refuses a call that needs more memory for file contents than one call may use. `bytes` is the size of the contents before
/// and after its change together.
pub fn judge_call_bytes(rules: &Rules, bytes: u64) -> Option<Refusal> {
    let limit = rules.max_call_bytes();
    (bytes > limit).then(|| {
        let message =
            format!("the call needs {bytes} bytes of file contents, before and after the change; the limit is {limit}");
        let hint = "Split the change into several calls with fewer or smaller files.";
        Refusal::new(Code::PatchBudgetExceeded, message, hint).with_details(|details| {
            details.reasons = vec!["call:contentBytes".to_owned()];
            (details.limit, details.actual) = (Some(limit), Some(bytes));
        })
    })
}

/// Returns the refusal for the first exceeded limit, with the reasons of all.
fn exceeded(mut checks: Vec<LimitCheck>) -> Option<Refusal> {
    checks.retain(LimitCheck::is_exceeded);
    let first = checks.first()?;
    let (limit, actual) = (first.limit, first.actual);
    let (message, hint) = if first.reason.starts_with("runBudget:") {
        let message = format!("the call would raise {} to {actual}; the limit of the run is {limit}", first.reason);
        (message, "Finish without this change, or ask the operator for a larger runBudget.")
    } else {
        let message = format!("{} of the change is {actual}; the limit of a call is {limit}", first.reason);
        (message, "Split the change into several calls, each complete in itself.")
    };
    let reasons = checks.iter().map(|check| check.reason.clone()).collect();
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

/// Returns the limits to which `call` adds. A limit that it does not add to is no reason to refuse it.
fn limit_checks(name: &str, limits: &BudgetOverrides, call: &Usage, before: &Usage) -> Vec<LimitCheck> {
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
        Some(LimitCheck { reason: format!("{name}:{member}"), limit: limit?, actual: now.saturating_add(before) })
    })
    .collect()
}

/// Returns the usage of a change set. `touches` decides whether a file counts as touched.
fn usage_of(changes: &[ChangeFacts<'_>], touches: impl Fn(&ChangeFacts<'_>) -> bool) -> Usage {
    let mut usage = Usage::default();
    // The calls of a batch may change one file several times.
    let mut seen = BTreeSet::new();
    for facts in changes {
        if *facts.effect == Effect::Delete {
            usage.files_deleted += 1;
        }
        // A move counts once, at its new path.
        let is_counted = !matches!(facts.effect, Effect::MoveFrom { .. }) && touches(facts);
        usage.files_touched += u64::from(is_counted && seen.insert(facts.path));
        usage.bytes = usage.bytes.saturating_add(facts.bytes);
        // A package manager rewrites many lines of a lockfile for one change.
        if facts.kind != FileKind::Lockfile {
            usage.insertions = usage.insertions.saturating_add(facts.insertions);
            usage.deletions = usage.deletions.saturating_add(facts.deletions);
        }
    }
    usage
}

impl Usage {
    /// Returns what a change set adds to the usage of its run.
    pub fn of(changes: &[ChangeFacts<'_>]) -> Self {
        usage_of(changes, |facts| !facts.touched_before)
    }
}
