//! A run's tree on disk.
//!
//! The law of this crate: nobody else touches a run's tree, and no physical path leaves. Everything goes by
//! [`model::LogicalPath`] through one guard that resolves beneath a folder's handle. Synchronous: the service calls it
//! where blocking is allowed.

mod apply;
mod base;
mod diff;
mod explain;
mod export;
mod fault;
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

pub use apply::{Applied, ApplyFault, Redo, Restore, Staged, StagedFile, is_lost_sync};
pub use base::{Base, BaseFile};
pub use diff::{DiffAfter, DiffFile, DiffQuery, MAX_CHANGED, MAX_CHANGED_BYTES, Overlay, WorkspaceDiff};
pub use export::Bundle;
pub use fault::Fault;
pub use find::{FindQuery, FindSort, Findings, FoundFile};
pub use first::{First, MAX_TOLD_BYTES};
pub use git::{ConfineGit, GitReach};
pub use ignored::RULES_NAME;
pub use import::{ImportFault, ImportLimits, ImportSource, ImportWatch, Imported, RunFolder, Workspaces};
pub use list::{Entry, EntryType, ListQuery, Listing};
pub use past::{Contents, Kept, OutsideChange, Past, PastFile};
pub use preview::Preview;
pub use read::FileRead;
pub use rebuild::{Difference, Rebuilt, Standing};
pub use search::{Match, SearchMode, SearchQuery, SearchReport};
pub use stat::{Found, PathStat, RANGED_FACTOR};
pub use stats::{Tally, TreeStats};
pub use transfer::Transfer;
pub use tree::{Seen, Target, Tree, Workspace};
