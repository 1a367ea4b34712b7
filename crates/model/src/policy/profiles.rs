//! Named profiles, and how overrides change them.

use std::collections::{BTreeMap, BTreeSet};

use super::approval_rule::{ApprovalRule, MAX_APPROVERS};
use super::budget::{Budget, BudgetOverrides};
use super::commands::CommandPolicy;
use super::definition::{OutsideChanges, Policy, PolicyOverrides, Trigger, default_file_budget};
use super::kind_decision::KindDecision;
use super::quota::Quota;
use super::rules::Rules;
use crate::{Code, FileKind, Refusal, Result, Verdict};

/// The profile of a run that names none.
const DEFAULT_PROFILE: &str = "SUPERVISED_PR";
/// The maximum of `maxFileBytes`. Such files are held in memory, and ranged reads permit up to 16 times this size.
pub(super) const MAX_FILE_BYTES: u64 = 64 * 1024 * 1024;
/// The maximum of every other number. JSON parsers may round larger integers.
pub(super) const MAX_NUMBER: u64 = (1 << 53) - 1;

/// The available profiles: the three built-in ones and those of the operator.
#[derive(Clone, Debug)]
pub struct Profiles(BTreeMap<String, Policy>);

impl Profiles {
    /// Returns the built-in profiles `READ_ONLY`, `SUPERVISED_PR` and `AUTONOMOUS`.
    ///
    /// `READ_ONLY` denies every mutation both by its write globs and by every kind, so that no single override permits one.
    /// `SUPERVISED_PR` requires approval for lockfiles and security-sensitive paths, `AUTONOMOUS` for all triggers.
    pub fn built_in() -> Self {
        let supervised = base_policy(DEFAULT_PROFILE);
        let read_only = Policy {
            profile: "READ_ONLY".to_owned(),
            write: Vec::new(),
            kinds: FileKind::ALL.into_iter().map(|kind| (kind, KindDecision::Deny)).collect(),
            commands: CommandPolicy { others: Verdict::Deny, ..CommandPolicy::default() },
            ..supervised.clone()
        };
        let autonomous =
            Policy { profile: "AUTONOMOUS".to_owned(), require_approval_if: Trigger::ALL.into(), ..supervised.clone() };
        let profiles = [read_only, supervised, autonomous];
        Self(profiles.into_iter().map(|policy| (policy.profile.clone(), policy)).collect())
    }

    /// The names of all profiles, sorted.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The policy of the profile `name`.
    pub fn get(&self, name: &str) -> Option<&Policy> {
        self.0.get(name)
    }

    /// Returns the rules of a profile (by default `SUPERVISED_PR`) with `overrides` applied.
    ///
    /// Lists replace those of the profile. `kinds`, `quota`, `approval` and the budgets are replaced member by member.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST` for an unknown profile, an invalid glob, a number that is too large, or a kind that must be denied.
    pub fn resolve(&self, overrides: &PolicyOverrides) -> Result<Rules> {
        let name = overrides.profile.as_deref().unwrap_or(DEFAULT_PROFILE);
        let Some(profile) = self.get(name) else {
            let known: Vec<_> = self.names().collect();
            let shown: String = name.chars().filter(|c| !c.is_control()).take(64).collect();
            return Err(invalid(
                format!("the profile `{shown}` does not exist"),
                &format!("Choose from {}.", known.join(", ")),
            ));
        };
        Rules::compile(with_overrides(profile, overrides)?)
    }

    pub(super) fn insert(&mut self, policy: Policy) {
        self.0.insert(policy.profile.clone(), policy);
    }
}

fn base_policy(name: &str) -> Policy {
    let decision = |kind| match kind {
        FileKind::Generated
        | FileKind::Vendored
        | FileKind::SecretLike
        | FileKind::GitInternal
        | FileKind::Submodule
        | FileKind::Directory => KindDecision::Deny,
        FileKind::Lockfile => KindDecision::RequireApproval,
        FileKind::TextSource | FileKind::TextConfig | FileKind::TextDoc | FileKind::Binary | FileKind::Unknown => {
            KindDecision::Allow
        }
    };
    Policy {
        profile: name.to_owned(),
        read: vec!["**".to_owned()],
        write: vec!["**".to_owned()],
        deny: Vec::new(),
        ask: Vec::new(),
        not_secret: Vec::new(),
        kinds: FileKind::ALL.into_iter().map(|kind| (kind, decision(kind))).collect(),
        budget: Budget::default(),
        command_budget: Budget::of_command(),
        file_budget: default_file_budget(),
        run_budget: None,
        quota: Quota::default(),
        max_file_bytes: 1024 * 1024,
        max_transfer_bytes: 1024 * 1024 * 1024,
        require_approval_if: BTreeSet::from([Trigger::TouchesLockfile, Trigger::TouchesSecuritySensitivePath]),
        approval: ApprovalRule::default(),
        allow_mode_change: false,
        ignored_files: Verdict::Deny,
        symbolic_links: Verdict::Allow,
        outside_changes: OutsideChanges::Refuse,
        commands: CommandPolicy::default(),
    }
}

/// Returns `profile` with `overrides` applied; ignores `overrides.profile`.
pub(super) fn with_overrides(profile: &Policy, overrides: &PolicyOverrides) -> Result<Policy> {
    check_numbers(overrides)?;
    let mut policy = profile.clone();
    let replace = |list: &mut Vec<String>, by: &Option<Vec<String>>| by.iter().for_each(|by| list.clone_from(by));
    replace(&mut policy.read, &overrides.read);
    replace(&mut policy.write, &overrides.write);
    replace(&mut policy.deny, &overrides.deny);
    replace(&mut policy.ask, &overrides.ask);
    replace(&mut policy.not_secret, &overrides.not_secret);
    override_lockfiles(&mut policy, overrides);
    for (kind, decision) in overrides.kinds.iter().flatten() {
        check_kind(*kind, *decision)?;
        policy.kinds.insert(*kind, *decision);
    }
    if let Some(budget) = &overrides.budget {
        policy.budget = budget.over(&profile.budget);
    }
    if let Some(budget) = &overrides.command_budget {
        policy.command_budget = budget.over(&profile.command_budget);
    }
    if let Some(run_budget) = &overrides.run_budget {
        let none = BudgetOverrides::default();
        policy.run_budget = Some(run_budget.or(profile.run_budget.as_ref().unwrap_or(&none)));
    }
    if let Some(quota) = &overrides.quota {
        policy.quota = quota.over(&profile.quota);
    }
    if let Some(approval) = overrides.approval {
        policy.approval = approval.over(profile.approval);
    }
    policy.max_file_bytes = overrides.max_file_bytes.unwrap_or(profile.max_file_bytes);
    policy.max_transfer_bytes = overrides.max_transfer_bytes.unwrap_or(profile.max_transfer_bytes);
    policy.allow_mode_change = overrides.allow_mode_change.unwrap_or(profile.allow_mode_change);
    policy.file_budget = overrides.file_budget.unwrap_or(profile.file_budget);
    policy.ignored_files = overrides.ignored_files.unwrap_or(profile.ignored_files);
    policy.symbolic_links = overrides.symbolic_links.unwrap_or(profile.symbolic_links);
    policy.outside_changes = overrides.outside_changes.unwrap_or(profile.outside_changes);
    if let Some(commands) = &overrides.commands {
        policy.commands = commands.over(&profile.commands)?;
    }
    Ok(policy)
}

/// Applies an override of the kind or of the trigger of lockfiles to both: a kind that is allowed, perhaps with evidence, removes the trigger, and a list of
/// triggers without that of lockfiles allows the kind.
fn override_lockfiles(policy: &mut Policy, overrides: &PolicyOverrides) {
    let by_kind = overrides.kinds.as_ref().and_then(|kinds| kinds.get(&FileKind::Lockfile));
    match (&overrides.require_approval_if, by_kind) {
        (Some(triggers), by_kind) => {
            policy.require_approval_if.clone_from(triggers);
            let requires_approval = policy.kinds.get(&FileKind::Lockfile) == Some(&KindDecision::RequireApproval);
            if by_kind.is_none() && requires_approval && !triggers.contains(&Trigger::TouchesLockfile) {
                policy.kinds.insert(FileKind::Lockfile, KindDecision::Allow);
            }
        }
        (None, Some(KindDecision::Allow | KindDecision::RequireEvidence)) => {
            policy.require_approval_if.remove(&Trigger::TouchesLockfile);
        }
        (None, Some(KindDecision::RequireApproval | KindDecision::Deny | KindDecision::Redact) | None) => {}
    }
}

fn check_kind(kind: FileKind, decision: KindDecision) -> Result<()> {
    if decision.is_possible_for(kind) {
        return Ok(());
    }
    let possible: Vec<_> =
        KindDecision::ALL.into_iter().filter(|other| other.is_possible_for(kind)).map(KindDecision::as_str).collect();
    let message = match possible.as_slice() {
        [only] => format!("the kind {} must be {only} in every policy", kind.as_str()),
        _ => format!("the kind {} cannot be {}", kind.as_str(), decision.as_str()),
    };
    let hint = match possible.as_slice() {
        [_] => "Remove it from `kinds`.".to_owned(),
        _ => format!("Choose from {}.", possible.join(", ")),
    };
    Err(invalid(message, &hint))
}

fn check_numbers(overrides: &PolicyOverrides) -> Result<()> {
    let of = |name: &str, budget: &Option<BudgetOverrides>| {
        let budget = budget.clone().unwrap_or_default();
        [
            (format!("{name}.maxFilesTouched"), budget.max_files_touched, MAX_NUMBER),
            (format!("{name}.maxInsertions"), budget.max_insertions, MAX_NUMBER),
            (format!("{name}.maxDeletions"), budget.max_deletions, MAX_NUMBER),
            (format!("{name}.maxFilesDeleted"), budget.max_files_deleted, MAX_NUMBER),
            (format!("{name}.maxBytes"), budget.max_bytes, MAX_NUMBER),
        ]
    };
    let sizes = [
        ("maxFileBytes".to_owned(), overrides.max_file_bytes, MAX_FILE_BYTES),
        ("maxTransferBytes".to_owned(), overrides.max_transfer_bytes, MAX_NUMBER),
    ];
    let quota = overrides.quota.clone().unwrap_or_default();
    let quota = [
        ("quota.maxTreeBytes".to_owned(), quota.max_tree_bytes, MAX_NUMBER),
        ("quota.maxFiles".to_owned(), quota.max_files, MAX_NUMBER),
        ("quota.pendingApprovals".to_owned(), quota.pending_approvals, MAX_NUMBER),
        ("quota.maxHistoryBytes".to_owned(), quota.max_history_bytes, MAX_NUMBER),
        ("quota.maxRecords".to_owned(), quota.max_records, MAX_NUMBER),
    ];
    let budgets = of("budget", &overrides.budget)
        .into_iter()
        .chain(of("commandBudget", &overrides.command_budget))
        .chain(of("runBudget", &overrides.run_budget));
    let approvers = overrides.approval.and_then(|approval| approval.approvers);
    if approvers == Some(0) {
        return Err(invalid("`approval.approvers` is 0; it must be 1 at least".to_owned(), "Give 1 or more.")
            .with_details(|details| (details.limit, details.actual) = (Some(1), Some(0))));
    }
    let approvers = [("approval.approvers".to_owned(), approvers, MAX_APPROVERS)];
    let numbers = budgets.chain(quota).chain(sizes).chain(approvers);
    for (name, number, limit) in numbers {
        if let Some(actual) = number.filter(|number| *number > limit) {
            let message = format!("`{name}` is {actual}; the maximum is {limit}");
            return Err(invalid(message, "Choose a smaller number.")
                .with_details(|details| (details.limit, details.actual) = (Some(limit), Some(actual))));
        }
    }
    Ok(())
}

fn invalid(message: String, hint: &str) -> Refusal {
    Refusal::new(Code::InvalidRequest, message, hint)
}
