//! Policy: rules, approvals, file kinds, and what a caller is never shown.

mod approvals;
mod disclosure;
mod file_kinds;
mod lookalike_names;
mod policy_equivalence;
mod redaction;
mod rules;
mod secret_leaks;
mod several_approvers;
