//! What changed in a folder and in a run, for people, and the flags of what sends it.

use workspaced_client::{
    ChangeKind, ChangesetConflict, ChangesetDenied, ChangesetOutcome, LeftEntry, PathChange, Pulled, PushOptions,
    ScanReport, ScanScope,
};

use crate::output::Output;

/// How many changes are printed.
const MAX_PRINTED: usize = 50;

/// How a set of changes is pushed.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct PushFlags {
    /// If others have changed the same files, merge what is apart. Otherwise nothing is applied.
    #[arg(long)]
    merge: bool,
    /// Leave out what policy denies. Otherwise nothing is applied then.
    #[arg(long)]
    leave_denied: bool,
    /// Also look into folders such as `target` and `node_modules` of which the run has nothing.
    #[arg(long)]
    all: bool,
}

impl PushFlags {
    /// Returns the options of a set of changes with this reason.
    pub(crate) fn options(&self, reason: &str) -> PushOptions {
        PushOptions {
            reason: reason.to_owned(),
            on_conflict: if self.merge { ChangesetConflict::Merge } else { ChangesetConflict::Refuse },
            on_denied: if self.leave_denied { ChangesetDenied::Leave } else { ChangesetDenied::Refuse },
            ..PushOptions::default()
        }
    }

    /// Returns which folders are looked into.
    pub(crate) fn scope(&self) -> ScanScope {
        if self.all { ScanScope::All } else { ScanScope::Usual }
    }
}

/// Says what was pulled.
pub(crate) fn pulled_summary(pulled: &Pulled) -> String {
    let count = pulled.applied.written + pulled.applied.deleted;
    if !pulled.conflicts.is_empty() {
        let left = pulled.conflicts.len();
        return format!("pulled {}, {left} changed here too (after record {})", files(count), pulled.now.seq);
    }
    match (pulled.from, count) {
        (None, count) => format!("checked out {} (record {})", files(count), pulled.now.seq),
        (Some(_), 0) => format!("up to date (record {})", pulled.now.seq),
        (Some(from), count) => format!("pulled {} (record {from} to {})", files(count), pulled.now.seq),
    }
}

/// Says what of a set of changes went into the run.
pub(crate) fn pushed_summary(answer: &ChangesetOutcome) -> String {
    let mut text = format!("{} applied", answer.applied.len() + answer.merged.len());
    if !answer.merged.is_empty() {
        text.extend([", ", &answer.merged.len().to_string(), " of them merged"]);
    }
    text += &not_taken(answer);
    match (answer.seq, answer.event_seq) {
        // A set without changes is recorded by its command alone.
        (Some(seq), Some(event)) if seq != event => text + &format!(" as record {seq} (command: {event})"),
        (Some(seq), None) => text + &format!(" as record {seq}"),
        (_, Some(event)) => text + &format!(" (command: {event})"),
        (None, None) => text,
    }
}

fn not_taken(answer: &ChangesetOutcome) -> String {
    match answer.not_taken.values().sum::<u64>() {
        0 => String::new(),
        count => format!(", {count} generated not taken"),
    }
}

/// Prints what was not pulled, because it was changed here too.
pub(crate) fn print_conflicts(output: Output, pulled: &Pulled) {
    for conflict in pulled.conflicts.iter().take(MAX_PRINTED) {
        output.note(&format!("not pulled: {}: {}", conflict.path, conflict.why));
    }
}

/// Prints what changed, a line a file, on standard error.
pub(crate) fn print_changes(output: Output, report: &ScanReport) {
    for change in report.changes.iter().take(MAX_PRINTED) {
        output.note(&format!("{} {}", letter(change.change), change.path));
    }
    if report.changes.len() > MAX_PRINTED {
        output.note(&format!("and {} more", report.changes.len() - MAX_PRINTED));
    }
    print_left(output, &report.left, report.left_count);
}

/// Prints what differed from the run before a command.
pub(crate) fn print_earlier(output: Output, earlier: &[PathChange]) {
    let [first, rest @ ..] = earlier else { return };
    let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
    output.note(&format!("changed before this command, and no part of it: {}{more}", first.path));
}

/// Prints what policy left out of a set of changes.
pub(crate) fn print_denied(output: Output, answer: &ChangesetOutcome) {
    for left in answer.left.iter().take(MAX_PRINTED) {
        output.note(&format!("left: {}: {}", left.path(), left.rule().unwrap_or("denied")));
    }
}

/// Prints what cannot be part of a run.
pub(crate) fn print_left(output: Output, left: &[LeftEntry], count: u64) {
    for entry in left.iter().take(MAX_PRINTED) {
        output.note(&format!("not sent: {}: {}", entry.path, entry.why));
    }
    let printed = left.len().min(MAX_PRINTED) as u64;
    if count > printed {
        output.note(&format!("not sent: {} more", count - printed));
    }
}

/// How a change is called, as by git.
fn letter(change: ChangeKind) -> char {
    match change {
        ChangeKind::Added => 'A',
        ChangeKind::Modified => 'M',
        ChangeKind::Deleted => 'D',
    }
}

/// A number of files.
fn files(count: u64) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{count} files") }
}
