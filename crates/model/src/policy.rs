//! Policies: named profiles, overrides, and the compiled rules in force.

mod budget;
mod definition;
mod globs;
mod profile_file;
mod profiles;
mod quota;
mod rules;

pub use budget::{Budget, BudgetOverrides};
pub use definition::{Policy, PolicyOverrides, Trigger};
pub use profile_file::ProfileFileError;
pub use profiles::Profiles;
pub use quota::{Quota, QuotaOverrides};
pub use rules::{Rules, SourceFolders};

#[cfg(test)]
mod tests;
