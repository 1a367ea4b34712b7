//! The files of a run: paths, links, file kinds on disk, uploads, mounts and quotas.

mod files_api;
mod hidden_changes;
mod history_quota;
mod hostile_repositories;
mod large_uploads;
mod mounts;
mod outside_changes;
mod path_guard;
mod properties;
mod quotas;
