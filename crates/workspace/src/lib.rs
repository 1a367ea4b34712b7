//! The file tree of one run on disk: guard, read, list, search, stage, apply, import and export.
//!
//! This is the only crate that opens files of a run, and no physical path leaves it. Callers name files by
//! [`model::LogicalPath`]; one guard resolves each path under the handle of its tree's root. All functions are synchronous:
//! the service calls them where blocking is allowed.

mod apply;
mod bare;
mod base;
mod base_files;
mod bases;
mod byte_path;
mod diff;
mod dir;
mod error;
mod export;
mod file_bytes;
mod fsync_tree;
mod git;
mod guard;
mod hashing;
mod ignored;
mod import;
mod kept_files;
mod opened_file;
mod preview;
mod query;
mod read;
mod remove;
mod skipped;
mod snapshot;
mod stamp;
mod targets;
mod temp_entry;
#[cfg(test)]
mod test_support;
mod transfer;
mod tree;
mod tree_writer;
mod walk;
mod workspaces;

pub use apply::{
    Applied, ApplyError, Replay, RestoredState, SpooledFile, StagedContents, StagedFile, StagedSteps, is_fsync_failure,
};
pub use base::{Base, BaseFile, DiffFile};
pub use base_files::DamagedBase;
pub use base_files::GITIGNORE_NAME;
pub use bases::RecordedBase;
pub use diff::{DiffQuery, Drift, DriftedPath, EntryState, Inherited, InheritedContent, InheritedFile};
pub use diff::{PathVersion, VersionId, WorkspaceDiff};
pub use error::{CancelOnDrop, WorkspaceError};
pub use export::{
    ArtifactBundle, Bundle, EntryTime, EntryTimes, GitExport, LeftOutFiles, PackedFile, TreeExport, pack_layer,
};
pub use git::{ConfineGit, GitAccess};
pub use import::{
    GitCredential, GitToken, ImportLimits, ImportObserver, ImportSource, LayerBase, LayerChange, LayerEntry,
    LayerLimits, LayerReader, measure_layer,
};
pub use preview::Preview;
pub use query::{
    BoundedEntries, EntryKey, EntryStat, EntryType, FindPosition, FindQuery, FindReport, FindSort, FolderEntry,
    FollowedPath, FoundFile, ListQuery, Listing, MAX_ENTRIES_BYTES, Match, NotShown, PathStat, RANGED_READ_FACTOR,
    SearchMode, SearchQuery, SearchReport, Tally, TreeStats,
};
pub use read::FileContent;
pub use snapshot::{ContentLocation, LargeContent, RebuildReport, Snapshot, SnapshotFile, StoredContents};
pub use stamp::FileStamp;
pub use targets::Target;
pub use transfer::Transfer;
pub use tree::{Tree, Workspace};
pub use workspaces::{
    BaseMaker, BasePart, ChainPoint, FolderState, ImportedRun, MadeRun, RestoredRun, RunEntry, RunEntryKind, RunFolder,
    RunPart, RunRestorer, TreeNote, TreeNoteFile, Workspaces, sync_notes,
};
