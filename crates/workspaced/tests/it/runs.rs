//! Runs: creation from a source, lifecycle, queries, history and exports.

mod archive_sources;
mod async_creation;
pub(crate) mod changesets;
mod disconnects;
mod exports;
mod forks;
mod git_remotes;
mod history;
mod in_flight_calls;
mod layers;
mod lifecycle;
mod listing;
mod object_store;
mod one_state;
mod own_view;
mod private_git;
mod run_command;
mod run_queries;
mod shared_bases;
mod sources;
mod stop;
mod updates;
