//! Collects a report from the records of a run, one at a time, in bounded memory.

use std::collections::{BTreeMap, VecDeque};

use model::{By, LogicalPath, Outcome, Record, ToolCallId, excerpt};
use serde::Serialize;
use serde_json::Value;

use super::entry::{EntryKind, paths_of};
use super::{ReportCommand, ReportCounts, ReportFile};
use crate::call::evidence::ATTESTED;
use crate::call::evidence::{DIFFERS_COUNT, found_other_files};
use crate::tools::apply_changeset::APPLY_CHANGESET;

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

/// What was collected.
pub(in crate::audit) struct Collected {
    pub(super) counts: ReportCounts,
    pub(super) files: Vec<ReportFile>,
    pub(super) more_files: u64,
    pub(in crate::audit) commands: Vec<ReportCommand>,
    pub(super) more_commands: u64,
    pub(super) last_at: Option<String>,
}

/// Collects records up to a given one.
pub(super) struct Collector {
    last_seq: u64,
    seq: u64,
    counts: ReportCounts,
    files: BTreeMap<LogicalPath, ReportFile>,
    path_bytes: usize,
    /// Mentions of paths that are not in `files`.
    unlisted: u64,
    /// When the newest record was made, without those of people who only looked.
    last_at: Option<String>,
    /// The newest commands and tests.
    commands: VecDeque<ReportCommand>,
    more_commands: u64,
    /// The newest change sets that are not in the run, by the events of their commands, which may be recorded after them.
    not_applied: VecDeque<(ToolCallId, u64)>,
}

impl Collector {
    /// Collects the records up to `last_seq`.
    pub(super) fn new(last_seq: u64) -> Self {
        Self {
            last_seq,
            seq: 0,
            counts: ReportCounts::default(),
            files: BTreeMap::new(),
            path_bytes: 0,
            unlisted: 0,
            last_at: None,
            commands: VecDeque::new(),
            more_commands: 0,
            not_applied: VecDeque::new(),
        }
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
        let kind = EntryKind::of(record);
        if is_looking(record, kind) {
            self.counts.records += 1;
            return;
        }
        self.last_at = Some(record.timestamp.clone());
        self.count(kind);
        self.counts.denied += u64::from(record.is_denied());
        self.add_change_set(record);
        self.add_command(record, kind);
        for path in paths_of(record, kind) {
            self.add_file(path, record, kind);
        }
        for left in record.left.iter().filter_map(|left| LogicalPath::parse(&left.path).ok()) {
            self.add_file(&left, record, EntryKind::Refused);
        }
    }

    /// Returns what was collected.
    pub(super) fn finish(self) -> Collected {
        let mut files: Vec<_> = self.files.into_values().collect();
        files.sort_by_key(|file| (file.writes == 0, file.refused == 0));
        let all = files.len() as u64;
        let files = fit(files, MAX_FILE_BYTES);
        Collected {
            commands: self.commands.into(),
            more_commands: self.more_commands,
            counts: self.counts,
            more_files: all - files.len() as u64 + self.unlisted,
            files,
            last_at: self.last_at,
        }
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
    fn add_command(&mut self, record: &Record, kind: EntryKind) {
        if kind == EntryKind::Write {
            self.commands.iter_mut().for_each(|command| command.is_current = false);
        }
        if kind != EntryKind::Event || !COMMANDS.contains(&record.tool.as_str()) {
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

    fn count(&mut self, kind: EntryKind) {
        self.counts.records += 1;
        match kind {
            EntryKind::Read => self.counts.reads += 1,
            EntryKind::Write => self.counts.writes += 1,
            EntryKind::DryRun => self.counts.dry_runs += 1,
            EntryKind::Refused => self.counts.refused += 1,
            EntryKind::ApprovalRequested => self.counts.approvals_requested += 1,
            EntryKind::Failed => self.counts.failed += 1,
            EntryKind::Event => self.counts.events += 1,
            EntryKind::Command => self.counts.commands += 1,
            EntryKind::Lifecycle | EntryKind::Export => {}
        }
    }

    fn add_file(&mut self, path: &LogicalPath, record: &Record, kind: EntryKind) {
        let found = record.files.iter().find(|file| file.path == *path);
        if !self.files.contains_key(path) {
            if self.path_bytes + path.as_str().len() > MAX_PATH_BYTES {
                self.unlisted += 1;
                return;
            }
            self.path_bytes += path.as_str().len();
        }
        let file = self.files.entry(path.clone()).or_insert_with(|| ReportFile {
            path: cut(path.as_str()),
            kind: None,
            reads: 0,
            writes: 0,
            refused: 0,
            last_seq: 0,
            old_sha256: None,
            new_sha256: None,
        });
        file.last_seq = record.seq;
        file.kind = found.map(|found| found.kind).or(file.kind);
        match kind {
            EntryKind::Read | EntryKind::Export => file.reads += 1,
            EntryKind::Write => {
                if file.writes == 0 {
                    file.old_sha256 = found.and_then(|found| found.old_sha256);
                }
                file.new_sha256 = found.and_then(|found| found.new_sha256);
                file.writes += 1;
            }
            EntryKind::Refused => file.refused += 1,
            _ => {}
        }
    }
}

/// Whether a person only looked at something: the account is that of the agent's work, and of what people decided and changed.
fn is_looking(record: &Record, kind: EntryKind) -> bool {
    let looks = matches!(kind, EntryKind::Read | EntryKind::Export | EntryKind::DryRun)
        || (kind == EntryKind::Refused && !record.mutates);
    looks && record.made_by() == By::Operator
}

/// Returns the first items that together have at most `max_bytes` of JSON.
pub(super) fn fit<T: Serialize>(items: impl IntoIterator<Item = T>, max_bytes: usize) -> Vec<T> {
    let mut bytes = 0;
    let fits = |item: &T| {
        bytes += size_of_json(item) + 1;
        bytes <= max_bytes
    };
    items.into_iter().take_while(fits).collect()
}

fn size_of_json(item: &impl Serialize) -> usize {
    serde_json::to_string(item).map_or(usize::MAX / 4, |text| text.len())
}

/// Returns a text of at most 300 characters.
pub(super) fn cut(text: &str) -> String {
    excerpt(text, MAX_TEXT)
}
