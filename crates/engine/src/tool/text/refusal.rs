//! Refusals and calls that wait for an approval.

use model::{Code, Conflict, ConflictRegion, NearestText, Refusal};

use super::lines::PushLine as _;
use super::{notes, quote};

/// Renders a refusal: the code and what is wrong, then what to do next, then what helps with it.
pub fn refusal_text(refusal: &Refusal) -> String {
    let Refusal { code, message, hint, details } = refusal;
    let mut out = format!("{code}: {}\n", quote::one_line(message));
    if !hint.is_empty() {
        out.push_line(format_args!("{}", quote::one_line(hint)));
    }
    if *code == Code::ApprovalRequired && !details.reasons.is_empty() {
        out.push_line(format_args!("reasons: {}", quote::one_line(&details.reasons.join(", "))));
    }
    for nearest in &details.nearest {
        push_nearest(&mut out, nearest);
    }
    // Otherwise the best of them repeats the first two members.
    if !details.lines.is_empty() && details.nearest.is_empty() {
        let lines: Vec<_> = details.lines.iter().map(u64::to_string).collect();
        let what = if *code == Code::EditNotFound { "nearest" } else { "found" };
        out.push_line(format_args!("{what} at line {}", lines.join(", ")));
    }
    out.extend(details.difference.as_deref().filter(|_| details.nearest.is_empty()).map(whole_lines));
    for region in &details.conflict_regions {
        push_region(&mut out, region);
    }
    for conflict in &details.conflicts {
        push_conflict(&mut out, conflict);
    }
    if let Some(diff) = &details.diff {
        out.push_str("changed since:\n");
        out.push_str(&whole_lines(diff));
    }
    out.extend(notes::hidden_characters(&out));
    out
}

fn push_nearest(out: &mut String, nearest: &NearestText) {
    out.push_line(format_args!("nearest at line {}:", nearest.line));
    out.push_str(&whole_lines(&nearest.difference));
}

/// Shows the three texts of a region that a merge found changed in two ways.
fn push_region(out: &mut String, region: &ConflictRegion) {
    out.push_line(format_args!("conflict at line {}:", region.line));
    for (what, text) in [("expected:", &region.base), ("found:", &region.current), ("new:", &region.new)] {
        out.push_line(if text.is_empty() { what.replace(':', ": nothing") } else { what.to_owned() });
        out.push_str(&whole_lines(text));
    }
}

fn push_conflict(out: &mut String, conflict: &Conflict) {
    let path = quote::path(&conflict.path);
    match quote::one_line(&conflict.reason).as_ref() {
        "" => out.push_line(format_args!("{path}, hunk {}", conflict.hunk)),
        reason => out.push_line(format_args!("{path}, hunk {}: {reason}", conflict.hunk)),
    }
    if !conflict.expected.is_empty() {
        out.push_line("expected:");
        out.push_str(&whole_lines(&conflict.expected));
    }
    if !conflict.found.is_empty() {
        out.push_line(format_args!("found at line {}:", conflict.line));
        out.push_str(&whole_lines(&conflict.found));
    }
    if !conflict.applies_at.is_empty() {
        let lines: Vec<_> = conflict.applies_at.iter().map(u64::to_string).collect();
        out.push_line(format_args!("it would apply at line {}", lines.join(", ")));
    }
}

/// Returns `text` with a line end after its last line.
fn whole_lines(text: &str) -> String {
    if text.is_empty() || text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") }
}
