//! Read-only queries on a tree.

pub(crate) mod bounded_entries;
pub(crate) mod entry;
mod explain;
mod find;
pub(crate) mod globs;
pub(crate) mod list;
mod neighbours;
pub(crate) mod not_shown;
mod search;
pub(crate) mod stat;
mod stats;

pub use bounded_entries::{BoundedEntries, EntryKey, MAX_ENTRIES_BYTES};
pub use entry::{EntryStat, EntryType, FolderEntry};
pub use find::{FindPosition, FindQuery, FindReport, FindSort, FoundFile};
pub use list::{ListQuery, Listing};
pub use neighbours::FollowedPath;
pub use not_shown::NotShown;
pub use search::{Match, SearchMode, SearchQuery, SearchReport};
pub use stat::{PathStat, RANGED_READ_FACTOR};
pub use stats::{Tally, TreeStats};
