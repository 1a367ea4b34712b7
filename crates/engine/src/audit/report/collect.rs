//! Collects a report from the records of a run, one at a time, in bounded memory.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use model::{By, LogicalPath, Outcome, Record, ToolCallId, excerpt};
use serde::Serialize;
use serde_json::Value;

use super::{ReportCommand, ReportCounts, ReportFile};
use crate::call::evidence::{ATTESTED, DIFFERS_COUNT, found_other_files};
use crate::tools::apply_changeset::APPLY_CHANGESET;
use crate::tools::run_command::RUN_COMMAND;

/// The records of exports, which are no tools.
const EXPORTS: [&str; 3] = ["archive", "patch", "bundle"];
/// The records of commands and tests.
const COMMANDS: [&str; 2] = ["event.command", "event.test"];
/// The most commands and tests of a report.
const MAX_COMMANDS: usize = 50;
/// The longest text of a report, in characters.
const MAX_TEXT: usize = 300;
/// The most bytes of JSON of the files.
const MAX_FILE_BYTES: usize = 96 * 1024;
/// The most bytes of paths that are held while records are collected.
const MAX_PATH_BYTES: usize = 4 << 20;

/// What a record is about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RecordKind {
    /// A successful read, or an export of the tree.
    Read,
    /// A successful mutation.
    Write,
    /// A dry run of a mutation.
    DryRun,
    /// A refused call.
    Refused,
    /// Anything else, such as an event.
    Other,
}

/// Collects records up to a given one.
#[derive(Default)]
pub(in crate::audit) struct Collector {
    last_seq: u64,
    seq: u64,
    pub(super) counts: ReportCounts,
    files: BTreeMap<LogicalPath, ReportFile>,
    path_bytes: usize,
    /// Mentions of paths that are not in `files`.
    unlisted: u64,
    /// When the newest record was made, without those of people who only looked.
    pub(super) last_at: Option<String>,
    /// The newest commands and tests.
    pub(in crate::audit) commands: VecDeque<ReportCommand>,
    pub(super) more_commands: u64,
    /// The newest change sets that are not in the run, by the events of their commands, which may be recorded after them.
    not_applied: VecDeque<(ToolCallId, u64)>,
}

impl Collector {
    /// Collects the records up to `last_seq`.
    pub(super) fn new(last_seq: u64) -> Self {
        Self { last_seq, ..Self::default() }
    }

    /// Returns whether the last record was collected.
    pub(super) fn is_complete(&self) -> bool {
        self.seq >= self.last_seq
    }

    /// Collects the next record.
    pub(super) fn push(&mut self, record: &Record) {
        if self.is_complete() {
            return;
        }
        self.seq = record.seq;
        self.counts.records += 1;
        let (kind, count) = self.counts.of(record);
        if is_looking(record, kind) {
            return;
        }
        *count.unwrap_or(&mut 0) += 1;
        self.last_at = Some(record.timestamp.clone());
        self.counts.denied += u64::from(record.is_denied());
        self.add_change_set(record);
        self.add_command(record, kind);
        let paths: BTreeSet<_> = match kind {
            RecordKind::Read => record.paths_read.iter().collect(),
            RecordKind::Write => record.paths_written.iter().collect(),
            _ => {
                let files = record.files.iter().map(|file| &file.path);
                record.paths_written.iter().chain(&record.paths_read).chain(files).collect()
            }
        };
        for path in paths {
            self.add_file(path, record, kind);
        }
        for left in record.left.iter().filter_map(|left| LogicalPath::parse(&left.path).ok()) {
            self.add_file(&left, record, RecordKind::Refused);
        }
    }

    /// Returns the files that fit into a report, and the number of the others.
    pub(super) fn take_files(&mut self) -> (Vec<ReportFile>, u64) {
        let mut files: Vec<_> = std::mem::take(&mut self.files).into_values().collect();
        files.sort_by_key(|file| (file.writes == 0, file.refused == 0));
        let all = files.len() as u64;
        let files = fit(files, MAX_FILE_BYTES);
        let more = all - files.len() as u64 + self.unlisted;
        (files, more)
    }

    /// Notes whether what a command changed is in the run.
    fn add_change_set(&mut self, record: &Record) {
        let event = record.evidence.as_ref().map(|evidence| &evidence.event_id);
        let Some(event) = event.filter(|_| record.tool == APPLY_CHANGESET.name) else { return };
        // One of build output alone is done, and has written nothing.
        let seq = (record.outcome != Outcome::Ok).then_some(record.seq);
        self.not_applied.retain(|(other, _)| other != event);
        if let Some(command) = self.commands.iter_mut().find(|command| command.id == *event) {
            command.not_applied_seq = seq;
            command.is_current &= seq.is_none();
        }
        self.not_applied.extend(seq.map(|seq| (event.clone(), seq)));
        if self.not_applied.len() > MAX_COMMANDS {
            self.not_applied.pop_front();
        }
    }

    /// Adds a command or a test. A change is later than all of them.
    fn add_command(&mut self, record: &Record, kind: RecordKind) {
        if kind == RecordKind::Write {
            self.commands.iter_mut().for_each(|command| command.is_current = false);
        }
        if record.outcome != Outcome::Ok || !COMMANDS.contains(&record.tool.as_str()) {
            return;
        }
        let input = record.input.as_ref();
        let data = input.and_then(|input| input.get("data"));
        let hash = |value: Option<&Value>| value.and_then(|value| serde_json::from_value(value.clone()).ok());
        let summary = input.and_then(|input| input.get("summary")).and_then(Value::as_str).unwrap_or_default();
        let not_applied = self.not_applied.iter().find(|(event, _)| *event == record.tool_call_id).map(|(_, seq)| *seq);
        // Or what it changed did not come in at all.
        let not_applied = not_applied.or(data.and_then(|data| data.get("notApplied")).map(|_| record.seq));
        let differs = data.and_then(|data| data.get(DIFFERS_COUNT)).and_then(Value::as_u64);
        self.commands.push_back(ReportCommand {
            id: record.tool_call_id.clone(),
            not_applied_seq: not_applied,
            seq: record.seq,
            tool: record.tool.clone(),
            summary: cut(summary),
            exit_code: data.and_then(|data| data.get("exitCode")).and_then(Value::as_i64),
            is_current: not_applied.is_none() && !found_other_files(data),
            differs_count: differs,
            is_attested: record.reasons.iter().any(|reason| reason == ATTESTED),
            output_sha256: hash(data.and_then(|data| data.get("outputSha256"))),
            tree_sha256: hash(data.and_then(|data| data.pointer("/environment/treeSha256"))),
        });
        if self.commands.len() > MAX_COMMANDS {
            self.commands.pop_front();
            self.more_commands += 1;
        }
    }

    fn add_file(&mut self, path: &LogicalPath, record: &Record, kind: RecordKind) {
        let found = record.files.iter().find(|file| file.path == *path);
        if !self.files.contains_key(path) {
            if self.path_bytes + path.as_str().len() > MAX_PATH_BYTES {
                self.unlisted += 1;
                return;
            }
            self.path_bytes += path.as_str().len();
        }
        let new = || ReportFile { path: cut(path.as_str()), ..ReportFile::default() };
        let file = self.files.entry(path.clone()).or_insert_with(new);
        file.last_seq = record.seq;
        file.kind = found.map(|found| found.kind).or(file.kind);
        match kind {
            RecordKind::Read => file.reads += 1,
            RecordKind::Write => {
                if file.writes == 0 {
                    file.old_sha256 = found.and_then(|found| found.old_sha256);
                }
                file.new_sha256 = found.and_then(|found| found.new_sha256);
                file.writes += 1;
            }
            RecordKind::Refused => file.refused += 1,
            _ => {}
        }
    }
}

impl ReportCounts {
    /// Returns what a record is about, and the number that counts its like.
    fn of(&mut self, record: &Record) -> (RecordKind, Option<&mut u64>) {
        let tool = record.tool.as_str();
        match record.outcome {
            Outcome::Refused => (RecordKind::Refused, Some(&mut self.refused)),
            Outcome::Pending => (RecordKind::Other, Some(&mut self.approvals_requested)),
            Outcome::Failed => (RecordKind::Other, Some(&mut self.failed)),
            Outcome::Ok if tool.starts_with("event.") || tool == "artifact.upload" => {
                (RecordKind::Other, Some(&mut self.events))
            }
            Outcome::Ok if tool == RUN_COMMAND => (RecordKind::Other, Some(&mut self.commands)),
            Outcome::Ok if record.mutates && record.paths_written.is_empty() => {
                (RecordKind::DryRun, Some(&mut self.dry_runs))
            }
            Outcome::Ok if record.mutates => (RecordKind::Write, Some(&mut self.writes)),
            // An operation on the run or its tokens.
            Outcome::Ok if tool.contains('.') => (RecordKind::Other, None),
            Outcome::Ok if EXPORTS.contains(&tool) => (RecordKind::Read, None),
            Outcome::Ok => (RecordKind::Read, Some(&mut self.reads)),
        }
    }
}

/// Whether a person only looked at something: the account is that of the agent's work, and of what people decided and changed.
fn is_looking(record: &Record, kind: RecordKind) -> bool {
    let looks =
        matches!(kind, RecordKind::Read | RecordKind::DryRun) || (kind == RecordKind::Refused && !record.mutates);
    looks && record.made_by() == By::Operator
}

/// Returns the first items that together have at most `max_bytes` of JSON.
pub(super) fn fit<T: Serialize>(items: impl IntoIterator<Item = T>, max_bytes: usize) -> Vec<T> {
    let mut bytes = 0;
    let fits = |item: &T| {
        bytes += serde_json::to_string(item).map_or(usize::MAX / 4, |text| text.len()) + 1;
        bytes <= max_bytes
    };
    items.into_iter().take_while(fits).collect()
}

/// Returns a text of at most 300 characters.
pub(super) fn cut(text: &str) -> String {
    excerpt(text, MAX_TEXT)
}
