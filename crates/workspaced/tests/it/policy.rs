//! Policy: rules, approvals, file kinds, and what a caller is never shown.

mod approval_warnings;
mod approvals;
mod approved_again;
mod disclosure;
mod edited_approvals;
mod evidence;
mod file_kinds;
mod large_approvals;
mod lookalike_names;
mod notices;
mod persons;
mod policy_equivalence;
mod redacted_values;
mod redaction;
mod rules;
mod secret_leaks;
mod secret_settings;
pub(crate) mod several_approvers;
mod weakened_tests;
