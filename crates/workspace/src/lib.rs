//! A run's tree on disk.
//!
//! The law of this crate: nobody else touches a run's tree, and no physical path leaves. Everything goes by
//! [`model::LogicalPath`] through one guard that resolves beneath a folder's handle. Synchronous: the service calls it
//! where blocking is allowed.

mod apply;
mod base;
mod diff;
mod error;
mod explain;
mod export;
mod find;
mod first;
#[cfg(test)]
mod fixture;
mod git;
mod globs;
mod guard;
mod ignored;
mod import;
mod list;
mod measure;
mod past;
mod preview;
mod read;
mod rebuild;
mod search;
mod stat;
mod stats;
mod survey;
#[cfg(test)]
mod testkit;
mod transfer;
mod tree;
mod walk;

pub use apply::{Applied, ApplyError, Replay, RestoreTarget, Staged, StagedFile, is_fsync_failure};
pub use base::{Base, BaseFile};
pub use diff::{
    DiffFile, DiffQuery, MAX_CHANGED_PATHS, MAX_CHANGED_PATHS_BYTES, PlannedDiff, PlannedFile, WorkspaceDiff,
};
pub use error::WorkspaceError;
pub use export::Bundle;
pub use find::{FindQuery, FindReport, FindSort, FoundFile};
pub use first::{BoundedEntries, MAX_ENTRIES_BYTES};
pub use git::{ConfineGit, GitAccess};
pub use ignored::GITIGNORE_NAME;
pub use import::{ImportError, ImportLimits, ImportObserver, ImportSource, ImportedRun, RunFolder, Workspaces};
pub use list::{Entry, EntryType, ListQuery, Listing};
pub use past::{ContentLocation, ContentStore, DriftEntry, Snapshot, SnapshotFile};
pub use preview::Preview;
pub use read::FileContent;
pub use rebuild::{Drift, EntryState, RebuildReport};
pub use search::{Match, SearchMode, SearchQuery, SearchReport};
pub use stat::{Found, PathStat, RANGED_READ_FACTOR};
pub use stats::{Tally, TreeStats};
pub use transfer::Transfer;
pub use tree::{FileStamp, Target, Tree, Workspace};
