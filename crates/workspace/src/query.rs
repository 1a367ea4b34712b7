//! Read-only queries on a tree.

pub(crate) mod bounded_entries;
mod disk_usage;
mod explain;
mod find;
pub(crate) mod globs;
pub(crate) mod list;
mod neighbours;
pub(crate) mod not_shown;
mod search;
pub(crate) mod stat;
mod stats;

pub use bounded_entries::{BoundedEntries, MAX_ENTRIES_BYTES};
pub use find::{FindPosition, FindQuery, FindReport, FindSort, FoundFile};
pub use list::{EntryType, FolderEntry, ListQuery, Listing};
pub use neighbours::FollowedPath;
pub use not_shown::NotShown;
pub use search::{Match, SearchMode, SearchQuery, SearchReport};
pub use stat::{EntryStat, PathStat, RANGED_READ_FACTOR};
pub use stats::{Tally, TreeStats};
