//! Decides about accesses and changes: total functions of the policy in force and of facts.

mod budget;
mod change;
mod command;
mod decision;
mod facts;
mod path;
mod public_api;
mod sensitive;
mod weakened_tests;

pub use budget::{judge_call_bytes, judge_file_count};
pub use change::{
    bytes_written, changes_to_approve, explain_path, judge_change, judge_new_text, judge_scanned_content,
};
pub use command::judge_command;
pub use decision::Decision;
pub use facts::{Access, ChangeFacts, EvidenceFact, PathFacts};
pub use path::{judge_path, may_read_redacted};
pub(crate) use weakened_tests::{deletes_test, weakens_test};

#[cfg(test)]
mod tests;
