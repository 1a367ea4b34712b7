//! Judging a whole change set by what it does.

use std::collections::BTreeSet;

use super::sensitive::{is_build_file, is_security_sensitive};
use super::{Access, ChangeFacts, Decision, PathFacts, api, judge_path};
use crate::diff::inserted_bytes;
use crate::policy::BudgetOverrides;
use crate::{
    Budget, Code, Effect, FileKind, LogicalPath, Refusal, Rules, ScannedContent, Trigger, Usage, Verdict,
    new_credential,
};

/// Judges a whole change set by what it does: credentials in new text, mode bits, budgets, triggers. Every path has been
/// through [`judge_path`](crate::judge_path) with [`Access::Mutate`](crate::Access::Mutate) before.
///
/// `usage` is what the run has used up before this call. Credentials deny only where the change brings them: a text that
/// held one before may keep it, and a file that is moved with one may be moved. The refusal is the first in the order of
/// refusal, for the first path; the reasons are all that stand for its code.
pub fn judge_change(rules: &Rules, changes: &[ChangeFacts<'_>], usage: &Usage) -> Decision {
    let refusal = judge_secrets(changes)
        .or_else(|| judge_modes_and_kinds(rules, changes))
        .or_else(|| judge_budgets(rules, changes, usage));
    if let Some(refusal) = refusal {
        return Decision::deny(refusal);
    }
    let asking: BTreeSet<String> = changes.iter().flat_map(|facts| asking(rules, facts)).collect();
    if asking.is_empty() {
        let allowing: BTreeSet<_> = changes.iter().filter_map(|facts| rules.allowing(facts.path)).collect();
        return Decision::allow(allowing.into_iter().map(|glob| format!("write:{glob}")).collect());
    }
    Decision { verdict: Verdict::RequireApproval, reasons: asking.into_iter().collect(), refusal: None }
}

impl Decision {
    fn allow(reasons: Vec<String>) -> Self {
        Self { verdict: Verdict::Allow, reasons, refusal: None }
    }

    fn deny(refusal: Refusal) -> Self {
        Self { verdict: Verdict::Deny, reasons: refusal.details.reasons.clone(), refusal: Some(refusal) }
    }
}

/// What policy says to an access to one path, as far as the path alone tells: what a change does may still exceed a
/// budget, hold a credential, delete a file or change a public declaration.
pub fn explain_path(rules: &Rules, access: Access, facts: &PathFacts<'_>) -> Decision {
    if let Err(refusal) = judge_path(rules, access, facts) {
        return Decision::deny(refusal);
    }
    if access != Access::Mutate {
        let glob = rules.letting_read(facts.path);
        return Decision::allow(glob.map(|glob| format!("read:{glob}")).into_iter().collect());
    }
    let change = ChangeFacts {
        path: facts.path,
        kind: facts.kind,
        effect: &Effect::Replace,
        insertions: 0,
        deletions: 0,
        bytes: 0,
        mode_change: false,
        ignored: facts.ignored,
        touched_before: true,
        old_text: None,
        new_text: None,
        not_compared: false,
    };
    let directory = facts.kind == FileKind::Directory;
    if directory { Decision::allow(Vec::new()) } else { judge_change(rules, &[change], &Usage::default()) }
}

fn judge_secrets(changes: &[ChangeFacts<'_>]) -> Option<Refusal> {
    let secret = |facts: &ChangeFacts<'_>| {
        if matches!(facts.kind, FileKind::SecretLike | FileKind::GitInternal) {
            let reason = format!("kind:{}", facts.kind.as_str());
            return Some(secret_refusal(facts.path, &reason, "is where secrets are kept"));
        }
        judge_new_text(facts.path, facts.old_text, facts.new_text?)
    };
    changes.iter().find_map(secret)
}

/// Refuses a text for `path` that holds a credential which the text before it does not hold.
///
/// What a call brings along is judged so before it is told whether the file is there and which version.
pub fn judge_new_text(path: &LogicalPath, old: Option<&[u8]>, new: &[u8]) -> Option<Refusal> {
    new_credential(old, new).map(|what| credential_refusal(path, what))
}

/// As [`judge_new_text`], of contents that are not in memory.
pub fn judge_scanned_content(path: &LogicalPath, old: &ScannedContent, new: &ScannedContent) -> Option<Refusal> {
    new.new_credential(old).map(|what| credential_refusal(path, what))
}

fn credential_refusal(path: &LogicalPath, what: &str) -> Refusal {
    let reason = format!("credential:{}", what.to_lowercase().replace(' ', "-"));
    secret_refusal(path, &reason, &format!("would hold a credential that it did not hold before: {what}"))
}

fn secret_refusal(path: &LogicalPath, reason: &str, what: &str) -> Refusal {
    let message = format!("`{path}` {what}");
    let hint = "Leave the credential out: read it from the environment or from a secret store, and show a placeholder.";
    Refusal::new(Code::PolicyDeniedSecret, message, hint)
        .at(path)
        .with_details(|details| details.reasons = vec![reason.to_owned()])
}

fn judge_modes_and_kinds(rules: &Rules, changes: &[ChangeFacts<'_>]) -> Option<Refusal> {
    let mut first = None;
    let mut reasons = BTreeSet::new();
    for facts in changes {
        let denied = rules.verdict_of(facts.kind) == Verdict::Deny;
        let mode = facts.mode_change && !rules.policy().allow_mode_change;
        let kind = denied.then(|| format!("kind:{}", facts.kind.as_str()));
        let mode = mode.then(|| "modeChange".to_owned());
        let ignored = (facts.ignored && rules.policy().ignored_files == Verdict::Deny).then(|| "ignored".to_owned());
        for reason in [kind, ignored, mode].into_iter().flatten() {
            first.get_or_insert((facts.path, reason.clone()));
            reasons.insert(reason);
        }
    }
    let (path, reason) = first?;
    let (message, hint) = if reason == "modeChange" {
        let message = format!("the run's policy denies changing the executable bit of `{path}`");
        (message, "Leave the `old mode` and `new mode` lines out of the patch.")
    } else {
        let message = format!("the run's policy denies changing `{path}` ({reason})");
        (message, "Go on without it, or ask the operator for a policy that allows it.")
    };
    Some(
        Refusal::new(Code::PolicyDenied, message, hint)
            .at(path)
            .with_details(|details| details.reasons = reasons.into_iter().collect()),
    )
}

/// One bound and what meets it.
struct Meter {
    reason: String,
    limit: u64,
    actual: u64,
}

fn judge_budgets(rules: &Rules, changes: &[ChangeFacts<'_>], usage: &Usage) -> Option<Refusal> {
    let call = usage_of(changes, |_| true);
    let mut meters = meters("budget", &limits(&rules.policy().budget), &call, &Usage::default());
    if let Some(run_budget) = &rules.policy().run_budget {
        meters.extend(self::meters("runBudget", run_budget, &Usage::of(changes), usage));
    }
    exceeded(meters)
}

/// Refuses a call that names more files than its budget allows, before any of them is looked at: `named` are the paths that
/// it changes, as far as its input tells.
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
pub(super) fn usage_of(changes: &[ChangeFacts<'_>], touches: impl Fn(&ChangeFacts<'_>) -> bool) -> Usage {
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

/// The bytes that a change writes anew: of the lines that were not there where both texts are known, else `whole`. See
/// [`Budget`].
pub fn bytes_written(old: Option<&[u8]>, new: Option<&[u8]>, whole: u64) -> u64 {
    let (Some(old), Some(new)) = (old, new) else { return whole };
    if old == new {
        return 0;
    }
    let lines = |text| <[u8]>::split_inclusive(text, |byte| *byte == b'\n');
    inserted_bytes(lines(old), lines(new))
}

/// The rules that ask for a person to agree to a change.
fn asking(rules: &Rules, facts: &ChangeFacts<'_>) -> Vec<String> {
    let policy = rules.policy();
    let mut reasons = Vec::new();
    if rules.verdict_of(facts.kind) == Verdict::RequireApproval {
        reasons.push(format!("kind:{}", facts.kind.as_str()));
    }
    if facts.ignored && policy.ignored_files == Verdict::RequireApproval {
        reasons.push("ignored".to_owned());
    }
    let fired = policy.require_approval_if.iter().filter(|trigger| fires(**trigger, facts));
    reasons.extend(fired.map(|trigger| format!("requireApprovalIf:{}", trigger.as_str())));
    reasons
}

fn fires(trigger: Trigger, facts: &ChangeFacts<'_>) -> bool {
    match trigger {
        Trigger::TouchesBuildFile => is_build_file(facts.path),
        Trigger::TouchesSecuritySensitivePath => is_security_sensitive(facts.path),
        Trigger::TouchesLockfile => facts.kind == FileKind::Lockfile,
        Trigger::DeletesFile => *facts.effect == Effect::Delete,
        Trigger::ChangesPublicApi if facts.not_compared => api::may_hold_one(facts.path),
        Trigger::ChangesPublicApi => api::changes_public_api(facts.path, facts.old_text, facts.new_text),
    }
}
