//! The report as Markdown, for instance for the body of a pull request.
//!
//! Text of callers is shown as inline code of one line, in which Markdown, HTML, mentions and links mean nothing.

use super::{ReportApproval, ReportCommand, ReportDiff, ReportDiffFile, ReportFile, ReportVerification, RunReport};
use model::ApprovalState;
use serde_json::Value;

/// The most bytes of a list, so that the whole text has at most 60,000: hosts of pull requests take 65,536 characters.
const MAX_LIST_BYTES: usize = 9_000;
/// The longest quoted text, in characters.
const MAX_QUOTED: usize = 160;
/// The longest quoted task, in characters.
const MAX_TASK: usize = 500;
/// Paths of one line.
const MAX_PATHS: usize = 4;

impl RunReport {
    /// Returns the report as Markdown of at most 60,000 bytes. What a reviewer decides by comes first.
    pub fn to_markdown(&self) -> String {
        let mut out = vec![format!("# Run {}\n", quote(self.run_id.as_str()))];
        out.extend(self.prompt.iter().map(|prompt| format!("Task: {}\n", quote_up_to(prompt, MAX_TASK))));
        out.extend(self.verification.as_ref().map(verification_line));
        if let Some(ReportDiff { files_changed, insertions, deletions, files, more_files, .. }) = &self.diff {
            let (added, removed) = (count(*insertions, "insertion"), count(*deletions, "deletion"));
            out.push(format!("- Final diff: {} changed, {added}, {removed}", count(*files_changed, "file")));
            out.extend(bounded(files.iter().map(diff_line), *more_files));
        }
        out.extend(self.diff_problem.map(|code| format!("- Final diff: not available ({code})")));
        let lists = [
            ("Commands and tests", bounded(self.commands.iter().map(command_line), self.more_commands)),
            ("Approvals", bounded(self.approvals.iter().map(approval_line), self.more_approvals)),
            ("Files", bounded(self.files.iter().map(file_line), self.more_files)),
        ];
        for (title, lines) in lists.into_iter().filter(|(_, lines)| !lines.is_empty()) {
            out.push(format!("\n## {title}\n"));
            out.extend(lines);
        }
        self.push_run(&mut out);
        out.join("\n") + "\n"
    }

    /// The run, and numbers of its calls.
    fn push_run(&self, out: &mut Vec<String>) {
        out.push(format!("\n## Run\n\n- State: {}\n- Created: {}", self.state.as_str(), self.created_at));
        out.extend(self.closed_at.iter().map(|at| format!("- Closed: {at}")));
        let source = |name: &str| self.source.get(name).and_then(Value::as_str);
        let named = ["url", "ref"].into_iter().filter_map(source).map(quote);
        let source = source("type").map(str::to_owned).into_iter().chain(named);
        out.push(format!("- Source: {}", source.collect::<Vec<_>>().join(" ")));
        out.extend(self.base_commit.iter().map(|commit| format!("- Base commit: {}", quote(commit))));
        out.push(format!("- Policy: {}", quote(&self.policy_profile)));
        let labels = self.labels.iter().map(|(name, value)| format!("- Label {}: {}", quote(name), quote(value)));
        out.extend(bounded(labels, 0));
        let counts = &self.counts;
        out.push(format!(
            "- Calls: {}, {}, {}, {} refused, {} denied, {} requested, {} failed, {}",
            count(counts.reads, "read"),
            count(counts.writes, "write"),
            count(counts.dry_runs, "dry run"),
            counts.refused,
            counts.denied,
            count(counts.approvals_requested, "approval"),
            counts.failed,
            count(counts.events, "event")
        ));
        let used = self.budgets.iter().map(|budget| {
            let limit = budget.limit.map(|limit| format!(" of {limit}")).unwrap_or_default();
            format!("{} {}{limit}", budget.name, budget.used)
        });
        out.push(format!("- Budgets used: {}", used.collect::<Vec<_>>().join(", ")));
        let (records, hash) = (count(self.head_seq, "record"), self.head_hash.to_string());
        out.push(format!("- Audit: {records}, head {}", quote(&hash)));
    }
}

fn count(number: u64, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}

/// Returns the first lines of a list, and how many are left out.
fn bounded(lines: impl Iterator<Item = String>, more: u64) -> Vec<String> {
    let (mut bytes, mut omitted, mut shown) = (0, more, Vec::new());
    for line in lines {
        bytes += line.len() + 1;
        if bytes > MAX_LIST_BYTES {
            omitted += 1;
        } else {
            shown.push(line);
        }
    }
    if omitted > 0 {
        shown.push(format!("- and {omitted} more"));
    }
    shown
}

fn verification_line(verification: &ReportVerification) -> String {
    let ReportVerification { intact, verified_seq, checkpointed_seq, problem } = verification;
    if *intact {
        return format!("- Verified: chain intact up to record {verified_seq}, signed up to record {checkpointed_seq}");
    }
    let problem = quote(problem.as_deref().unwrap_or("unknown"));
    format!("- Verified: **the chain is broken** after record {verified_seq}: {problem}")
}

fn diff_line(file: &ReportDiffFile) -> String {
    format!("  - {}: +{} −{}, {}", quote(&file.path), file.insertions, file.deletions, file.status)
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
    let said = |before: &str, text: &Option<String>| {
        text.as_ref().map(|text| format!("{before}{}", quote(text))).unwrap_or_default()
    };
    let ReportApproval { tool, paths, decided_by, on_behalf_of, edited_seq, reason, note, .. } = approval;
    let mut shown: Vec<_> = paths.iter().take(MAX_PATHS).map(|path| quote(path)).collect();
    if let (Some(last), Some(more @ 1..)) = (shown.last_mut(), paths.len().checked_sub(MAX_PATHS)) {
        *last = format!("{last} and {more} more");
    }
    let (by, person) = (said(" by ", decided_by), said(" for ", on_behalf_of));
    let edited = edited_seq.map(|seq| format!(" (record {seq})")).unwrap_or_default();
    let (tool, paths, reason, note) = (quote(tool), shown.join(", "), quote(reason), said("; note: ", note));
    format!("- {tool} {paths}: **{state}**{by}{person}{edited}; reason: {reason}{note}")
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
        let lines = (0..10).map(|number| format!("- {number}{}", "x".repeat(MAX_LIST_BYTES / 3)));
        let shown = bounded(lines, 5);
        assert_eq!((shown.len(), shown.last().map(String::as_str)), (3, Some("- and 13 more")));
    }
}
