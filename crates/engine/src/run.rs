//! The state of the runs that are open in this process: their folders, locks, accounting, and what is known of their files. It knows no
//! transaction, no history and no tool.

pub(crate) mod accounting;
pub(crate) mod artifact_stamps;
pub(crate) mod chain_head;
pub(crate) mod changes;
pub(crate) mod decisions;
pub(crate) mod fsync_worker;
pub(crate) mod import_registry;
pub(crate) mod keyed;
pub(crate) mod known_versions;
pub(crate) mod last_records;
pub(crate) mod lifecycle;
pub(crate) mod open_run;
pub(crate) mod open_runs;
pub(crate) mod path_locks;
pub(crate) mod quota;
pub(crate) mod seen_versions;
pub(crate) mod staged_files;
pub(crate) mod tree_states;
