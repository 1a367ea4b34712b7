//! Policies: named profiles, their overrides, and compiled rules.

mod approval_rule;
mod budget;
mod commands;
mod definition;
mod glob_mistake;
mod globs;
mod kind_decision;
mod profile_file;
mod profiles;
mod quota;
mod rules;

pub use approval_rule::{ApprovalRule, ApprovalRuleOverrides};
pub use budget::{Budget, BudgetOverrides};
pub use commands::{CommandOverrides, CommandPolicy};
pub use definition::{OutsideChanges, Policy, PolicyOverrides, Trigger};
pub use glob_mistake::glob_mistake;
pub use kind_decision::KindDecision;
pub use profile_file::ProfileFileError;
pub use profiles::Profiles;
pub use quota::{Quota, QuotaOverrides};
pub use rules::{BaseFolders, Rules};

#[cfg(test)]
mod tests;
