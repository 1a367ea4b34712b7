//! The state of the runs that are open in this process: their folders, locks, accounting, and what is known of their files. It knows no
//! transaction, no history and no tool.

pub mod accounting;
pub(crate) mod artifact_stamps;
pub mod chain_head;
pub mod changed_paths;
pub(crate) mod changes;
pub mod decisions;
pub mod fsync_worker;
pub mod import_registry;
pub mod in_flight_calls;
pub mod known_versions;
pub(crate) mod last_records;
pub mod lifecycle;
pub mod open_run;
pub mod open_runs;
pub mod path_locks;
pub mod quota;
pub mod run_history;
pub mod seen_versions;
pub mod staged_files;
pub mod tree_states;
pub mod vote_locks;
pub mod waiting_space;
