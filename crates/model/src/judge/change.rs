//! Judges change sets.

use std::collections::BTreeSet;

use super::budget::{exceeds_file_budget, judge_budgets};
use super::decision::Decision;
use super::facts::{Access, ChangeFacts, EvidenceFact, PathFacts};
use super::path::judge_path;
use super::public_api;
use super::sensitive::{is_access_control, is_build_file, is_security_sensitive};
use super::weakened_tests;
use crate::diff::inserted_bytes;
use crate::{
    Code, Effect, FileKind, LogicalPath, Refusal, Rules, ScannedContent, Trigger, Usage, Verdict, new_credential,
};

/// The reason of a decision about a symbolic link.
const SYMBOLIC_LINK: &str = "symbolicLink";

/// Judges a change set: credentials in new text, mode bits, kinds, budgets and triggers. The caller has already judged every
/// path by [`judge_path`](crate::judge_path) with [`Access::Mutate`](crate::Access::Mutate).
///
/// `usage` is what the run has used before this call. Only credentials that the change adds are denied: a text may keep one,
/// and a file that contains one may be moved. The refusal is the first in the order of [`Code`], for the first path; its
/// reasons are all those with its code.
pub fn judge_change(rules: &Rules, changes: &[ChangeFacts<'_>], usage: &Usage) -> Decision {
    let refusal = judge_secrets(changes)
        .or_else(|| judge_modes_and_kinds(rules, changes))
        .or_else(|| judge_budgets(rules, changes, usage));
    if let Some(refusal) = refusal {
        return Decision::deny(refusal);
    }
    let mut reasons: BTreeSet<String> = changes.iter().flat_map(|facts| approval_reasons(rules, facts)).collect();
    if rules.policy().file_budget == Verdict::RequireApproval && exceeds_file_budget(rules, changes) {
        reasons.insert("fileBudget:maxInsertions".to_owned());
    }
    if reasons.is_empty() {
        let globs: BTreeSet<_> = changes.iter().filter_map(|facts| rules.matching_write_glob(facts.path)).collect();
        let mut allowed: BTreeSet<_> = globs.into_iter().map(|glob| format!("write:{glob}")).collect();
        // Only evidence can have allowed such a kind.
        let attested = changes.iter().filter(|facts| rules.accepts_evidence(facts.kind));
        allowed.extend(attested.map(|facts| format!("evidence:{}", facts.kind.as_str())));
        return Decision::allow(allowed.into_iter().collect());
    }
    Decision { verdict: Verdict::RequireApproval, reasons: reasons.into_iter().collect(), refusal: None }
}

/// Returns the changes that need approval, each with the rules by which it does. [`judge_change`] may need it by a rule about all of them.
pub fn changes_to_approve<'a>(rules: &Rules, changes: &[ChangeFacts<'a>]) -> Vec<(&'a LogicalPath, Vec<String>)> {
    let reasons = changes.iter().map(|facts| (facts.path, approval_reasons(rules, facts)));
    reasons.filter(|(_, reasons)| !reasons.is_empty()).collect()
}

/// Returns the decision about an access to one path, based on the path alone. A change can still be refused or need approval
/// because of a budget, a credential, a deletion or a public declaration.
pub fn explain_path(rules: &Rules, access: Access, facts: &PathFacts<'_>) -> Decision {
    if let Err(refusal) = judge_path(rules, access, facts) {
        return Decision::deny(refusal);
    }
    if access != Access::Mutate {
        let glob = rules.matching_read_glob(facts.path);
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
        new_link: false,
        ignored: facts.ignored,
        touched_before: true,
        old_text: None,
        new_text: None,
        not_compared: false,
        evidence: EvidenceFact::Missing,
    };
    let directory = facts.kind == FileKind::Directory;
    if directory { Decision::allow(Vec::new()) } else { judge_change(rules, &[change], &Usage::default()) }
}

fn judge_secrets(changes: &[ChangeFacts<'_>]) -> Option<Refusal> {
    let secret = |facts: &ChangeFacts<'_>| {
        // First, because a new private key makes the file a secret one.
        let by_text = facts.new_text.and_then(|new| judge_new_text(facts.path, facts.old_text, new));
        by_text.or_else(|| {
            let is_secret = matches!(facts.kind, FileKind::SecretLike | FileKind::GitInternal);
            let reason = format!("kind:{}", facts.kind.as_str());
            is_secret.then(|| secret_refusal(facts.path, &reason, "is a secret file"))
        })
    };
    changes.iter().find_map(secret)
}

/// Refuses a text for `path` that contains a credential that the old text does not contain.
///
/// Content is judged before the caller receives the file's existence or version.
pub fn judge_new_text(path: &LogicalPath, old: Option<&[u8]>, new: &[u8]) -> Option<Refusal> {
    new_credential(old, new).map(|what| credential_refusal(path, what))
}

/// Like [`judge_new_text`], for contents that are not in memory.
pub fn judge_scanned_content(path: &LogicalPath, old: &ScannedContent, new: &ScannedContent) -> Option<Refusal> {
    new.new_credential(old).map(|what| credential_refusal(path, what))
}

fn credential_refusal(path: &LogicalPath, what: &str) -> Refusal {
    let reason = format!("credential:{}", what.to_lowercase().replace(' ', "-"));
    secret_refusal(path, &reason, &format!("would contain a new credential: {what}"))
}

fn secret_refusal(path: &LogicalPath, reason: &str, what: &str) -> Refusal {
    let message = format!("`{path}` {what}");
    let hint = "Remove the credential: read it from the environment or a secret store, and write a placeholder.";
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
        let link = facts.new_link && rules.policy().symbolic_links == Verdict::Deny;
        let link = link.then(|| SYMBOLIC_LINK.to_owned());
        for reason in [kind, ignored, mode, link].into_iter().flatten() {
            first.get_or_insert((facts.path, reason.clone()));
            reasons.insert(reason);
        }
    }
    let (path, reason) = first?;
    let (message, hint) = if reason == "modeChange" {
        let message = format!("the run's policy denies changing the executable bit of `{path}`");
        (message, "Leave the executable bit as it is; in a patch, without `old mode` and `new mode`.")
    } else {
        let message = format!("the run's policy denies changing `{path}` ({reason})");
        (message, "Continue without it, or ask the operator for a policy that allows it.")
    };
    Some(
        Refusal::new(Code::PolicyDenied, message, hint)
            .at(path)
            .with_details(|details| details.reasons = reasons.into_iter().collect()),
    )
}

/// Returns the bytes that a change inserts: those of the new lines if both texts are known, otherwise `whole`. See
/// [`Budget`](crate::Budget).
pub fn bytes_written(old: Option<&[u8]>, new: Option<&[u8]>, whole: u64) -> u64 {
    let (Some(old), Some(new)) = (old, new) else { return whole };
    if old == new {
        return 0;
    }
    let lines = |text| <[u8]>::split_inclusive(text, |byte| *byte == b'\n');
    inserted_bytes(lines(old), lines(new))
}

/// Returns the rules by which a change needs approval.
fn approval_reasons(rules: &Rules, facts: &ChangeFacts<'_>) -> Vec<String> {
    let policy = rules.policy();
    let mut reasons: Vec<_> = rules.matching_ask_globs(facts.path).map(|glob| format!("ask:{glob}")).collect();
    let accepts_evidence = rules.accepts_evidence(facts.kind);
    let has_evidence = accepts_evidence && facts.evidence == EvidenceFact::Successful;
    if rules.verdict_of(facts.kind) == Verdict::RequireApproval && !has_evidence {
        reasons.push(format!("kind:{}", facts.kind.as_str()));
        reasons.extend(accepts_evidence.then(|| evidence_reason(facts.evidence)));
    }
    if facts.ignored && policy.ignored_files == Verdict::RequireApproval {
        reasons.push("ignored".to_owned());
    }
    if facts.new_link && policy.symbolic_links == Verdict::RequireApproval {
        reasons.push(SYMBOLIC_LINK.to_owned());
    }
    let fired = policy.require_approval_if.iter().filter(|trigger| fires(**trigger, facts));
    reasons.extend(fired.map(|trigger| format!("requireApprovalIf:{}", trigger.as_str())));
    reasons
}

/// Returns why the evidence of a call does not allow the change.
fn evidence_reason(evidence: EvidenceFact) -> String {
    match evidence {
        EvidenceFact::Missing => "evidence:missing",
        EvidenceFact::Stale => "evidence:stale",
        EvidenceFact::Unattested => "evidence:unattested",
        EvidenceFact::NotSuccessful | EvidenceFact::Successful => "evidence:exitCode",
    }
    .to_owned()
}

fn fires(trigger: Trigger, facts: &ChangeFacts<'_>) -> bool {
    match trigger {
        Trigger::TouchesBuildFile => is_build_file(facts.path),
        Trigger::TouchesSecuritySensitivePath => {
            is_security_sensitive(facts.path) || (facts.kind != FileKind::TextDoc && is_access_control(facts.path))
        }
        Trigger::TouchesLockfile => facts.kind == FileKind::Lockfile,
        Trigger::DeletesFile => *facts.effect == Effect::Delete,
        Trigger::ChangesPublicApi if weakened_tests::is_new_test(facts) => false,
        Trigger::ChangesPublicApi if facts.not_compared => public_api::may_have_declarations(facts.path),
        Trigger::ChangesPublicApi => public_api::changes_public_api(facts.path, facts.old_text, facts.new_text),
        Trigger::DeletesTest => weakened_tests::deletes_test(facts),
        Trigger::WeakensTest => weakened_tests::weakens_test(facts),
    }
}
