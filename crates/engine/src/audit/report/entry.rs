//! What a record of a run is about, as a report counts it.

use model::{LogicalPath, Outcome, Record};

use crate::tools::run_command::RUN_COMMAND;

/// The records of exports, which are no tools.
const EXPORTS: [&str; 3] = ["archive", "patch", "bundle"];

/// What a record is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EntryKind {
    /// A successful read.
    Read,
    /// A successful mutation.
    Write,
    /// A dry run of a mutation.
    DryRun,
    /// A refused call.
    Refused,
    /// A call that required an approval.
    ApprovalRequested,
    /// A call that failed by a fault of the service.
    Failed,
    /// An event, or an uploaded artifact.
    Event,
    /// A command that a caller had run.
    Command,
    /// An operation on the run or its tokens.
    Lifecycle,
    /// An export of the tree.
    Export,
}

impl EntryKind {
    /// Returns what `record` is about.
    pub(super) fn of(record: &Record) -> Self {
        match record.outcome {
            Outcome::Refused => Self::Refused,
            Outcome::Pending => Self::ApprovalRequested,
            Outcome::Failed => Self::Failed,
            Outcome::Ok if record.tool.starts_with("event.") || record.tool == "artifact.upload" => Self::Event,
            Outcome::Ok if record.tool == RUN_COMMAND => Self::Command,
            Outcome::Ok if record.mutates && record.paths_written.is_empty() => Self::DryRun,
            Outcome::Ok if record.mutates => Self::Write,
            Outcome::Ok if record.tool.contains('.') => Self::Lifecycle,
            Outcome::Ok if EXPORTS.contains(&record.tool.as_str()) => Self::Export,
            Outcome::Ok => Self::Read,
        }
    }
}

/// Returns the paths of a record that a report counts.
pub(super) fn paths_of(record: &Record, kind: EntryKind) -> Vec<&LogicalPath> {
    match kind {
        EntryKind::Read | EntryKind::Export => record.paths_read.iter().collect(),
        EntryKind::Write => record.paths_written.iter().collect(),
        _ => {
            let files = record.files.iter().map(|file| &file.path);
            let mut paths: Vec<_> = record.paths_written.iter().chain(&record.paths_read).chain(files).collect();
            paths.sort_unstable();
            paths.dedup();
            paths
        }
    }
}
