//! One entry of a report's timeline.

use model::{Code, DeniedEntry, LogicalPath, Outcome, Record};
use serde::Serialize;
use serde_json::Value;

use crate::tools::run_command::RUN_COMMAND;

use super::collect::cut;

/// The most paths of an entry.
pub(super) const MAX_PATHS: usize = 10;
/// The most reasons of an entry.
pub(super) const MAX_REASONS: usize = 5;
/// The records of exports, which are no tools.
const EXPORTS: [&str; 3] = ["archive", "patch", "bundle"];

/// What an entry is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// Successful reads.
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

/// One record, or consecutive reads.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReportEntry {
    /// The number of the record, or of the first one.
    pub seq: u64,
    /// The number of the last record, if there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seq: Option<u64>,
    /// What it is about.
    pub kind: EntryKind,
    /// The tool, or the first one.
    pub tool: String,
    /// When.
    #[schema(format = DateTime)]
    pub timestamp: String,
    /// Who.
    pub actor: String,
    /// How long it took, if it is an event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_micros: Option<u64>,
    /// The code of a refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<Code>,
    /// What happened, for an event or an operation, cut to 300 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,
    /// The caller's reason, cut to 300 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The first 5 rules that decided.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub reasons: Vec<String>,
    /// The first 10 paths, each cut to 300 characters.
    pub paths: Vec<String>,
    /// Number of paths that are left out.
    #[serde(skip_serializing_if = "is_zero")]
    #[schema(required = false)]
    pub more_paths: u64,
    /// The first 10 entries that a change set left out because they are denied.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub left: Vec<DeniedEntry>,
    /// How many entries a change set left out because they are denied.
    #[serde(skip_serializing_if = "is_zero")]
    #[schema(required = false)]
    pub left_count: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
pub(super) fn is_zero(number: &u64) -> bool {
    *number == 0
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

impl ReportEntry {
    /// Returns the entry of one record.
    pub(super) fn of(record: &Record, kind: EntryKind) -> Self {
        let paths = paths_of(record, kind);
        Self {
            seq: record.seq,
            last_seq: None,
            kind,
            tool: record.tool.clone(),
            timestamp: record.timestamp.clone(),
            actor: record.actor.clone(),
            duration_micros: (matches!(kind, EntryKind::Event | EntryKind::Command) && record.duration_micros > 0)
                .then_some(record.duration_micros),
            code: record.code,
            summary: summary_of(record),
            reason: record.reason.as_deref().map(cut),
            reasons: record.reasons.iter().take(MAX_REASONS).map(|reason| cut(reason)).collect(),
            more_paths: paths.len().saturating_sub(MAX_PATHS) as u64,
            paths: paths.into_iter().take(MAX_PATHS).map(|path| cut(path.as_str())).collect(),
            left: record.left.iter().take(MAX_PATHS).map(cut_left).collect(),
            left_count: record.left_count.unwrap_or(0),
        }
    }

    /// Adds a read that follows immediately.
    pub(super) fn add_read(&mut self, record: &Record) {
        self.last_seq = Some(record.seq);
        for path in &record.paths_read {
            let path = cut(path.as_str());
            if self.paths.contains(&path) {
                continue;
            }
            if self.paths.len() < MAX_PATHS { self.paths.push(path) } else { self.more_paths += 1 }
        }
    }
}

fn cut_left(left: &DeniedEntry) -> DeniedEntry {
    DeniedEntry { path: cut(&left.path), rule: cut(&left.rule) }
}

/// Returns the paths of a record that an entry shows.
pub(super) fn paths_of(record: &Record, kind: EntryKind) -> Vec<&LogicalPath> {
    match kind {
        EntryKind::Read | EntryKind::Export => record.paths_read.iter().collect(),
        EntryKind::Write => record.paths_written.iter().collect(),
        EntryKind::DryRun
        | EntryKind::Refused
        | EntryKind::ApprovalRequested
        | EntryKind::Failed
        | EntryKind::Event
        | EntryKind::Command
        | EntryKind::Lifecycle => {
            let files = record.files.iter().map(|file| &file.path);
            let mut paths: Vec<_> = record.paths_written.iter().chain(&record.paths_read).chain(files).collect();
            paths.sort_unstable();
            paths.dedup();
            paths
        }
    }
}

/// Returns the summary of an event, or what an operation was about.
fn summary_of(record: &Record) -> Option<String> {
    let input = record.input.as_ref()?;
    let text = |name: &str| input.get(name).and_then(Value::as_str);
    let summary = match record.tool.as_str() {
        "run.create" => format!("from {}", input.get("source").and_then(|source| source["type"].as_str())?),
        "run.import" => format!("{} files", input.get("files")?),
        "run.close" if text("cause") == Some("expiry") => "expired".to_owned(),
        "token.issue" => {
            let permissions = input.get("permissions").and_then(Value::as_array)?;
            let names: Vec<_> = permissions.iter().filter_map(Value::as_str).collect();
            format!("{}: {}", text("tokenId")?, names.join(" "))
        }
        "token.revoke" => text("tokenId")?.to_owned(),
        "artifact.upload" => format!("{} bytes, SHA-256 {}", input.get("sizeBytes")?, text("sha256")?),
        _ => text("summary")?.to_owned(),
    };
    Some(cut(&summary))
}
