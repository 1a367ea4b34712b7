//! The report as Markdown, for instance for the body of a pull request.
//!
//! Text of callers is shown as inline code of one line, in which Markdown, HTML, mentions and links mean nothing.

use std::fmt::Write as _;

use super::{ReportApproval, ReportCommand, ReportDiffFile, ReportFile, RunReport};
use model::ApprovalState;
use serde_json::Value;

/// The most bytes of the lists, so that the whole text has at most 60,000: hosts of pull requests take 65,536 characters.
const MAX_LABEL_BYTES: usize = 4_000;
const MAX_FILE_BYTES: usize = 12_000;
const MAX_DIFF_BYTES: usize = 9_000;
const MAX_COMMAND_BYTES: usize = 7_000;
const MAX_APPROVAL_BYTES: usize = 7_000;
/// The longest quoted text, in characters.
const MAX_QUOTED: usize = 160;
/// The longest quoted task, in characters.
const MAX_TASK: usize = 500;
/// Paths of one line.
const MAX_PATHS: usize = 4;

impl RunReport {
    /// Returns the report as Markdown of at most 60,000 bytes. What a reviewer decides by comes first.
    pub fn to_markdown(&self) -> String {
        let mut out = format!("# Run {}\n", quote(self.run_id.as_str()));
        if let Some(prompt) = &self.prompt {
            let _ = writeln!(out, "\nTask: {}", quote_up_to(prompt, MAX_TASK));
        }
        self.write_result(&mut out);
        let commands = self.commands.iter().map(command_line);
        write_list(&mut out, "Commands and tests", commands, self.more_commands, MAX_COMMAND_BYTES);
        let approvals = self.approvals.iter().map(approval_line);
        write_list(&mut out, "Approvals", approvals, self.more_approvals, MAX_APPROVAL_BYTES);
        let files = self.files.iter().map(file_line);
        write_list(&mut out, "Files", files, self.more_files, MAX_FILE_BYTES);
        self.write_run(&mut out);
        out
    }

    /// Whether the record is whole, and what has changed.
    fn write_result(&self, out: &mut String) {
        out.push('\n');
        match &self.verification {
            Some(verification) if verification.intact => {
                let (verified, signed) = (verification.verified_seq, verification.checkpointed_seq);
                let _ = writeln!(out, "- Verified: chain intact up to record {verified}, signed up to record {signed}");
            }
            Some(verification) => {
                let problem = quote(verification.problem.as_deref().unwrap_or("unknown"));
                let _ = writeln!(
                    out,
                    "- Verified: **the chain is broken** after record {}: {problem}",
                    verification.verified_seq
                );
            }
            None => {}
        }
        if let Some(diff) = &self.diff {
            let _ = writeln!(
                out,
                "- Final diff: {} changed, {}, {}",
                count(diff.files_changed, "file"),
                count(diff.insertions, "insertion"),
                count(diff.deletions, "deletion")
            );
            write_bounded(out, diff.files.iter().map(diff_line), diff.more_files, MAX_DIFF_BYTES);
        }
        if let Some(code) = self.diff_problem {
            let _ = writeln!(out, "- Final diff: not available ({code})");
        }
    }

    /// The run, and numbers of its calls.
    fn write_run(&self, out: &mut String) {
        let _ = writeln!(out, "\n## Run\n\n- State: {}", self.state.as_str());
        let _ = writeln!(out, "- Created: {}", self.created_at);
        if let Some(closed_at) = &self.closed_at {
            let _ = writeln!(out, "- Closed: {closed_at}");
        }
        let source = |name: &str| self.source.get(name).and_then(Value::as_str);
        let _ = write!(out, "- Source: {}", plain(source("type").unwrap_or_default()));
        for name in ["url", "ref"] {
            if let Some(value) = source(name) {
                let _ = write!(out, " {}", quote(value));
            }
        }
        out.push('\n');
        if let Some(commit) = &self.base_commit {
            let _ = writeln!(out, "- Base commit: {}", quote(commit));
        }
        let _ = writeln!(out, "- Policy: {}", quote(&self.policy_profile));
        let labels = self.labels.iter().map(|(name, value)| format!("- Label {}: {}", quote(name), quote(value)));
        write_bounded(out, labels, 0, MAX_LABEL_BYTES);
        let counts = &self.counts;
        let _ = writeln!(
            out,
            "- Calls: {}, {}, {}, {} refused, {} denied, {} requested, {} failed, {}",
            count(counts.reads, "read"),
            count(counts.writes, "write"),
            count(counts.dry_runs, "dry run"),
            counts.refused,
            counts.denied,
            count(counts.approvals_requested, "approval"),
            counts.failed,
            count(counts.events, "event")
        );
        let used = self.budgets.iter().map(|budget| match budget.limit {
            Some(limit) => format!("{} {} of {limit}", budget.name, budget.used),
            None => format!("{} {}", budget.name, budget.used),
        });
        let _ = writeln!(out, "- Budgets used: {}", used.collect::<Vec<_>>().join(", "));
        let _ =
            writeln!(out, "- Audit: {}, head {}", count(self.head_seq, "record"), quote(&self.head_hash.to_string()));
    }
}

fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

fn write_list(out: &mut String, title: &str, lines: impl Iterator<Item = String>, more: u64, max_bytes: usize) {
    let mut list = String::new();
    write_bounded(&mut list, lines, more, max_bytes);
    if !list.is_empty() {
        let _ = write!(out, "\n## {title}\n\n{list}");
    }
}

/// Writes the first lines that have at most `max_bytes`, and how many are left out.
fn write_bounded(out: &mut String, lines: impl Iterator<Item = String>, more: u64, max_bytes: usize) {
    let (mut bytes, mut omitted) = (0, more);
    for line in lines {
        bytes += line.len() + 1;
        if bytes > max_bytes {
            omitted += 1;
        } else {
            let _ = writeln!(out, "{line}");
        }
    }
    if omitted > 0 {
        let _ = writeln!(out, "- and {omitted} more");
    }
}

fn diff_line(file: &ReportDiffFile) -> String {
    format!("  - {}: +{} −{}, {}", quote(&file.path), file.insertions, file.deletions, plain(&file.status))
}

fn file_line(file: &ReportFile) -> String {
    let change = match (file.writes > 0, file.old_sha256, file.new_sha256) {
        (false, ..) => "",
        (true, None, Some(_)) => ", created",
        (true, Some(_), None) => ", deleted",
        (true, None, None) => ", created and deleted",
        (true, Some(old), Some(new)) if old == new => ", changed back",
        (true, Some(_), Some(_)) => ", modified",
    };
    let counts = format!("{}, {}, {} refused", count(file.reads, "read"), count(file.writes, "write"), file.refused);
    format!("- {}: {counts}{change}", quote(&file.path))
}

fn command_line(command: &ReportCommand) -> String {
    let outcome = match command.exit_code {
        Some(0) => "exit 0",
        _ => "**failed**",
    };
    let files = match (command.not_applied_seq, command.differs_count, command.is_current) {
        (Some(seq), ..) => format!("with changes of its own that are not in the run ({seq})"),
        (None, Some(differing), _) => format!("with {} that differed from the run", count(differing, "file")),
        (None, None, true) => "on the present files".to_owned(),
        (None, None, false) => "before later changes".to_owned(),
    };
    let said = if command.is_attested { "" } else { ", not attested" };
    format!("- {} {}: {outcome}, {files}{said}", command.seq, quote(&command.summary))
}

fn approval_line(approval: &ReportApproval) -> String {
    let state = match approval.state {
        ApprovalState::Pending => "pending",
        ApprovalState::Approved if approval.edited_seq.is_some() => "approved with changes",
        ApprovalState::Approved => "approved",
        ApprovalState::Denied => "denied",
        ApprovalState::Expired => "expired",
        ApprovalState::Failed => "approved, but failed",
    };
    let mut line = format!("- {} {}", quote(&approval.tool), paths_text(&approval.paths));
    let _ = write!(line, ": **{state}**");
    if let Some(decided_by) = &approval.decided_by {
        let _ = write!(line, " by {}", quote(decided_by));
    }
    if let Some(person) = &approval.on_behalf_of {
        let _ = write!(line, " for {}", quote(person));
    }
    if let Some(seq) = approval.edited_seq {
        let _ = write!(line, " (record {seq})");
    }
    let _ = write!(line, "; reason: {}", quote(&approval.reason));
    if let Some(note) = &approval.note {
        let _ = write!(line, "; note: {}", quote(note));
    }
    line
}

fn paths_text(paths: &[String]) -> String {
    let shown: Vec<_> = paths.iter().take(MAX_PATHS).map(|path| quote(path)).collect();
    let omitted = paths.len().saturating_sub(MAX_PATHS);
    if omitted > 0 { format!("{} and {omitted} more", shown.join(", ")) } else { shown.join(", ") }
}

/// Returns the name of a tool, which has only characters that mean nothing in Markdown. Anything else is quoted.
fn plain(tool: &str) -> String {
    // An underscore between letters is no emphasis.
    let is_plain = |c: char| c.is_ascii_lowercase() || matches!(c, '_' | '.');
    if !tool.is_empty() && tool.chars().all(is_plain) { tool.to_owned() } else { quote(tool) }
}

/// Returns `text` as inline code of one line.
fn quote(text: &str) -> String {
    quote_up_to(text, MAX_QUOTED)
}

fn quote_up_to(text: &str, max: usize) -> String {
    let clean: String = text.chars().map(|c| if model::is_unprintable(c) { ' ' } else { c }).collect();
    let clean = clean.split_whitespace().collect::<Vec<_>>().join(" ");
    let clean = model::excerpt(&clean, max);
    if clean.is_empty() {
        return "(empty)".to_owned();
    }
    // The text ends at a run of as many backticks as it began with.
    let longest = clean.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let pad = if clean.starts_with('`') || clean.ends_with('`') { " " } else { "" };
    format!("{fence}{pad}{clean}{pad}{fence}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_text_stays_inside_its_line_and_its_fence() {
        for (text, quoted) in [
            ("plain", "`plain`"),
            ("", "(empty)"),
            ("a\n# b\r\n\n- c", "`a # b - c`"),
            ("`x`", "`` `x` ``"),
            ("a``b`c", "```a``b`c```"),
            ("<img src=x> @all [l](http://x) ![i](y)", "`<img src=x> @all [l](http://x) ![i](y)`"),
            ("right\u{202e}left", "`right left`"),
        ] {
            assert_eq!(quote(text), quoted, "{text:?}");
        }
        assert!(quote(&"x".repeat(1000)).chars().count() < 170);
    }

    #[test]
    fn a_list_says_what_it_leaves_out() {
        let mut out = String::new();
        write_bounded(&mut out, (0..10).map(|number| format!("- {number}")), 5, 12);
        assert_eq!(out, "- 0\n- 1\n- 2\n- and 12 more\n");
    }
}
