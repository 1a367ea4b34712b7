//! The history of a run: earlier contents, the tree at a record, and the feed of changes.

pub mod change_feed;
pub mod content_history;
pub mod content_integrity;
mod earlier_calls;
mod entry_times;
pub(crate) mod last_records;
mod recorded_modes;
mod restored_contents;
mod seen_content;
pub mod snapshot;
pub mod touched_paths;
