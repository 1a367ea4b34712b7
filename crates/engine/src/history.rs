//! The history of a run: earlier contents, the tree at a record, and the feed of changes.

mod changed_since;
pub mod content_history;
mod earlier_calls;
mod known_run;
mod seen_content;
pub mod snapshot;
