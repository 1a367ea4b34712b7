//! What `migrate-store` has done.

#![expect(
    clippy::disallowed_methods,
    reason = "the files beside the runs' folders are looked for, and no run's tree is opened"
)]

use std::collections::BTreeMap;

use model::{ChainReport, RunId};
use serde::Serialize;

use crate::backup::{CHECKPOINT_KEY, CHECKPOINTS};
use crate::output::{print, print_chain};
use config::MigrateStoreConfig;
use data_dir::IDENTITY;

/// The files of a data folder that are in no database.
const FILES: [(&str, &str); 3] = [
    (IDENTITY, "without it, a single service does not start with a new data folder; nodes write their own"),
    (CHECKPOINT_KEY, "signs checkpoints; nodes can have it in WORKSPACED_CHECKPOINT_KEY"),
    (CHECKPOINTS, "the signed checkpoints; nodes complete it"),
];

/// The result of the command, as JSON.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MigrationReport {
    /// The numbers of copied rows by tables. Empty if an interrupted migration has copied them.
    pub(super) tables: BTreeMap<String, u64>,
    pub(super) runs: usize,
    /// Runs that have no files: they are deleted, archived, being prepared, or without a source.
    pub(super) without_files: usize,
    /// The verified records of all runs.
    pub(super) records: u64,
    /// The verified contents and bases of the object store.
    pub(super) objects: usize,
    /// Runs that got a record of what they started from.
    pub(super) recorded: Vec<RunId>,
    /// Runs that could not be migrated. They need repair in the target.
    pub(super) problems: Vec<Unmigrated>,
    /// Chains that are broken, in the source as in the copy.
    pub(super) broken: Vec<ChainReport>,
    /// Runs that have records and no row, in the source as in the copy.
    pub(super) orphaned_runs: u64,
}

/// A run that could not be migrated.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Unmigrated {
    pub(super) run_id: RunId,
    pub(super) reason: String,
}

impl MigrationReport {
    /// Adds a run that could not be migrated. The first reason counts.
    pub(super) fn add_problem(&mut self, run_id: RunId, reason: String) {
        if !self.problems.iter().any(|known| known.run_id == run_id) {
            self.problems.push(Unmigrated { run_id, reason });
        }
    }

    fn is_complete(&self) -> bool {
        self.problems.is_empty() && self.broken.is_empty() && self.orphaned_runs == 0
    }
}

/// Prints the report. Returns whether everything was migrated and is intact.
pub(super) fn print_report(config: &MigrateStoreConfig, report: &MigrationReport) -> bool {
    let data_dir = &config.data_dir;
    let files: Vec<_> = FILES.into_iter().filter(|(name, _)| data_dir.join(name).exists()).collect();
    if config.json {
        let mut value = serde_json::to_value(report).unwrap_or_default();
        value["files"] = files.iter().map(|(name, _)| *name).collect();
        print(&value.to_string());
        return report.is_complete();
    }
    let width = report.tables.keys().map(String::len).max().unwrap_or(0);
    for (table, rows) in &report.tables {
        print(&format!("{table:width$}  {rows:>10} rows"));
    }
    for Unmigrated { run_id, reason } in &report.problems {
        print(&format!("{run_id}: NOT MIGRATED: {reason}"));
    }
    for chain in &report.broken {
        print_chain(chain);
    }
    if report.orphaned_runs > 0 {
        print(&format!("BROKEN: there are records of {} runs that are missing", report.orphaned_runs));
    }
    let MigrationReport { runs, without_files, records, objects, recorded, problems, .. } = report;
    let migrated = runs - without_files.min(runs);
    print(&format!(
        "{runs} runs, {} of them with files, {} not migrated; {records} records and {objects} objects verified; {} runs got a record",
        migrated,
        problems.len(),
        recorded.len()
    ));
    for (name, what) in files {
        print(&format!("copy {} by hand: {what}", data_dir.join(name).display()));
    }
    print("do not start a service with the old database any more: nothing that it records would be in the new one");
    report.is_complete()
}
