//! Describes a hunk that does not apply, in enough detail to write it again.

use super::super::file_patch::{FilePatch, HunkLine};
use super::super::locate::{HunkFinder, Matching};
use super::position::{AnchorFault, HunkTarget, Mismatch};
use super::split;
use crate::Conflict;
use crate::edit::Effort;
use crate::text::{unseen_difference, without_line_numbers};

/// Lines of an excerpt.
const SHOWN_LINES: usize = 7;
/// The end of the reason of a hunk whose lines are only before an earlier one.
pub const OUT_OF_ORDER: &str = "before an earlier hunk: put the hunks in the order of the file";
/// The end of a reason.
const NOTHING_SIMILAR: &str = ", and nothing similar does";
/// Equal lines shown before the first one that differs.
const LINES_BEFORE: usize = 2;
/// Characters of a line of an excerpt.
const SHOWN_CHARS: usize = 200;
/// Bytes of a line in which credentials are looked for that begin within the excerpt.
const SCANNED_BYTES: usize = 16 << 10;

impl Mismatch {
    /// The conflict of hunk `number` of `file`.
    pub(crate) fn into_conflict(
        self,
        file: &FilePatch,
        number: u32,
        target: &HunkTarget<'_>,
        finder: &mut HunkFinder<'_>,
        lines: &[&[u8]],
    ) -> Conflict {
        if let Self::Anchor(fault) = self {
            return fault.into_conflict(file, number, lines, finder);
        }
        if matches!(self, Self::NotFound | Self::OutOfOrder(_) | Self::AboveAnchor(_))
            && let Some(applied) = applied_at(file, number, target, finder)
        {
            return conflict(file, number, format!("already applied: its new lines are at line {applied}"), applied);
        }
        if let Self::OutOfOrder(at) | Self::AboveAnchor(at) = self {
            // What was expected is what is there.
            let line = at as u64 + 1;
            let conflict = conflict(file, number, self.reason(target, &[], 0), line);
            return Conflict { applies_at: vec![line], ..conflict };
        }
        if matches!(self, Self::NotFound)
            && let Some(at) = numbered_at(target, finder)
        {
            let reason = "its lines begin with line numbers, which the file does not have: leave the numbers out";
            return conflict(file, number, reason.to_owned(), at as u64 + 1);
        }
        let at = self.shown_position(target, finder, lines);
        let found = &lines[at.min(lines.len())..];
        let found = &found[..found.len().min(target.old.len())];
        let is_like = if matches!(self, Self::NotFound) && !target.old.is_empty() {
            are_similar(found, &target.old, finder)
        } else {
            Some(true)
        };
        let is_unlike = is_like == Some(false);
        if target.stated.is_none() && is_like != Some(true) {
            let reason = "its lines do not occur in the file".to_owned() + if is_unlike { NOTHING_SIMILAR } else { "" };
            return Conflict { expected: excerpt(target.old.iter()), ..conflict(file, number, reason, 1) };
        }
        let differs = target.old.iter().zip(found).take_while(|(old, line)| target.matching.is_same(old, line)).count();
        let from = differs.saturating_sub(LINES_BEFORE);
        let reason = self.reason(target, found, differs);
        let offsets = match self {
            Self::Elsewhere(offsets) | Self::Ambiguous(offsets) => offsets,
            Self::NotFound | Self::OutOfOrder(_) | Self::AboveAnchor(_) | Self::Anchor(_) | Self::TooMuchWork => {
                Vec::new()
            }
        };
        let reason = if is_unlike { reason + NOTHING_SIMILAR } else { reason };
        Conflict {
            path: file.from.to_string(),
            hunk: number,
            reason,
            line: (at + from + 1) as u64,
            expected: excerpt(target.old.iter().skip(from)),
            found: excerpt(found.iter().skip(from)),
            applies_at: offsets.into_iter().map(|offset| offset as u64 + 1).collect(),
        }
    }

    /// The stated line, or, if little of the hunk matches there, the line where it most likely belongs.
    fn shown_position(&self, target: &HunkTarget<'_>, finder: &mut HunkFinder<'_>, lines: &[&[u8]]) -> usize {
        let matching_lines = |at: usize| {
            let found = lines.get(at..).unwrap_or_default();
            found.iter().zip(&target.old).filter(|(line, old)| Matching::AnyEnding.is_same(line, old)).count()
        };
        let stated = target.stated.unwrap_or(0);
        if target.stated.is_some() && matching_lines(stated) * 2 > target.old.len() {
            return stated;
        }
        match self {
            Self::TooMuchWork => stated,
            Self::NotFound
            | Self::Elsewhere(_)
            | Self::Ambiguous(_)
            | Self::OutOfOrder(_)
            | Self::AboveAnchor(_)
            | Self::Anchor(_) => {
                let likeliest = finder.likeliest(&target.old).or_else(|| nearest(lines, &target.old, finder));
                if target.stated.is_none() && likeliest.is_some_and(|at| matching_lines(at) == 0) {
                    return likeliest.unwrap_or(stated);
                }
                likeliest.filter(|at| matching_lines(*at) > matching_lines(stated)).unwrap_or(stated)
            }
        }
    }

    fn reason(&self, target: &HunkTarget<'_>, found: &[&[u8]], differs: usize) -> String {
        let its_lines = if target.old.len() == 1 { "its line occurs" } else { "its lines occur" };
        match self {
            Self::Ambiguous(offsets) => format!("{its_lines} {} times, and nothing selects one", offsets.len()),
            Self::Elsewhere(offsets) if target.begins_file && !offsets.contains(&0) => {
                format!("it states that the file begins with it, but {its_lines} elsewhere")
            }
            Self::Elsewhere(_) if target.inserts_last_line => {
                format!("its last line has no newline, so the file must end with it, but {its_lines} elsewhere")
            }
            Self::Elsewhere(_) if target.ends_file => {
                format!("it has no context after its change, so the file must end with it, but {its_lines} elsewhere")
            }
            Self::Elsewhere(_) => format!("it has no context, so it may not move, but {its_lines} elsewhere"),
            Self::OutOfOrder(at) => format!("{its_lines} only at line {}, {OUT_OF_ORDER}", at + 1),
            Self::AboveAnchor(at) => {
                format!("{its_lines} only at line {}, above the line that its `@@` line names", at + 1)
            }
            Self::Anchor(fault) => fault.reason(),
            Self::TooMuchWork => "too many hunks of the file have wrong line numbers".to_owned(),
            Self::NotFound if target.old.is_empty() => "it states that the file is empty".to_owned(),
            Self::NotFound => not_found(&target.old, found, differs),
        }
    }
}

impl AnchorFault {
    fn reason(&self) -> String {
        let anchor = crate::excerpt(&String::from_utf8_lossy(&self.anchor), SHOWN_CHARS);
        let lines: Vec<_> = self.found.iter().map(|at| (at + 1).to_string()).collect();
        match lines.as_slice() {
            [] => format!("no line is exactly `{anchor}`, as its `@@` line says"),
            [only] => format!(
                "the line `{anchor}` of its `@@` line is only at line {only}, which is before an earlier hunk or not under the \
                 `@@` line above it"
            ),
            all => format!("the line `{anchor}` of its `@@` line is repeated, at lines {}", all.join(", ")),
        }
    }

    /// The conflict, which shows the line that is most similar to a missing one.
    fn into_conflict(self, file: &FilePatch, number: u32, lines: &[&[u8]], finder: &mut HunkFinder<'_>) -> Conflict {
        let mut reason = self.reason();
        let at = match self.found.first() {
            Some(at) => Some(*at),
            None => nearest(&lines[self.within.clone()], &[&self.anchor], finder).map(|at| self.within.start + at),
        };
        if at.is_none() {
            reason.push_str(", and none is similar");
        }
        let line = at.unwrap_or(0) as u64 + 1;
        if !self.found.is_empty() {
            return conflict(file, number, reason, line);
        }
        let found = at.and_then(|at| lines.get(at..=at)).unwrap_or_default();
        let (expected, found) = (excerpt([self.anchor.as_slice()].iter()), excerpt(found.iter()));
        Conflict { expected, found, ..conflict(file, number, reason, line) }
    }
}

/// A conflict that shows no lines.
fn conflict(file: &FilePatch, hunk: u32, reason: String, line: u64) -> Conflict {
    let (expected, found) = (String::new(), String::new());
    Conflict { path: file.from.to_string(), hunk, reason, line, expected, found, applies_at: Vec::new() }
}

/// The line, from 1, at which the file has the new lines of a hunk whose old lines it lacks, if that shows that the hunk is
/// applied already.
fn applied_at(file: &FilePatch, number: u32, target: &HunkTarget<'_>, finder: &mut HunkFinder<'_>) -> Option<u64> {
    let hunk = file.hunks.get(number.checked_sub(1)? as usize)?;
    let new: Vec<_> =
        hunk.lines.iter().filter(|line| !matches!(line, HunkLine::Delete(_))).map(HunkLine::bytes).collect();
    let inserts = |line: &HunkLine| matches!(line, HunkLine::Insert(text) if !text.trim_ascii().is_empty());
    let is_context = |line: Option<&HunkLine>| matches!(line, Some(HunkLine::Context(_)));
    let is_telling =
        hunk.lines.iter().any(inserts) || (is_context(hunk.lines.first()) && is_context(hunk.lines.last()));
    let found = if is_telling { finder.find_all(&new, target.matching, 0, &[])? } else { Vec::new() };
    found.first().map(|at| *at as u64 + 1)
}

/// The line, from 0, at which the file has the lines of a hunk without the line numbers with which they begin.
fn numbered_at(target: &HunkTarget<'_>, finder: &mut HunkFinder<'_>) -> Option<usize> {
    let without = without_line_numbers(&target.old)?;
    let found = finder.find_all(&without, Matching::AnyEnding, 0, &[])?;
    found.first().copied()
}

/// The index of the first of the `lines` that are similar to `searched`, if the effort suffices.
fn nearest(lines: &[&[u8]], searched: &[&[u8]], finder: &mut HunkFinder<'_>) -> Option<usize> {
    with_texts(lines, searched, finder, crate::edit::nearest_position)
}

/// Whether the first of the `lines` are similar to `searched`; `None` once the effort is used up.
fn are_similar(lines: &[&[u8]], searched: &[&[u8]], finder: &mut HunkFinder<'_>) -> Option<bool> {
    with_texts(lines, searched, finder, crate::edit::is_similar)
}

fn with_texts<T>(
    lines: &[&[u8]],
    searched: &[&[u8]],
    finder: &mut HunkFinder<'_>,
    then: impl FnOnce(&[&str], &[&str], &mut Effort) -> Option<T>,
) -> Option<T> {
    let effort = &mut finder.budget.similarity;
    effort.take(lines.iter().chain(searched).map(|line| line.len()).sum())?;
    let text = |line: &&[u8]| String::from_utf8_lossy(split_ending(line).0).into_owned();
    let (lines, searched): (Vec<_>, Vec<_>) = (lines.iter().map(text).collect(), searched.iter().map(text).collect());
    then(&as_strs(&lines), &as_strs(&searched), effort)
}

fn as_strs(texts: &[String]) -> Vec<&str> {
    texts.iter().map(String::as_str).collect()
}

fn not_found(old: &[&[u8]], found: &[&[u8]], differs: usize) -> String {
    let (Some(old), Some(line)) = (old.get(differs), found.get(differs)) else {
        return "the file ends before the hunk does".to_owned();
    };
    let (old_content, old_ending) = split_ending(old);
    let (content, ending) = split_ending(line);
    let reason = if old_content == content {
        match (old_ending.len(), ending.len()) {
            (0, _) => "the file's line ends in a newline, but the hunk states that it does not",
            (_, 0) => {
                "the file's last line has no newline, but the hunk does not state it: put `\\ No newline at end of file` \
                 after it"
            }
            _ => "a line ends in CR LF on one side only",
        }
    } else {
        let (old_text, text) = (String::from_utf8_lossy(old_content), String::from_utf8_lossy(content));
        let unseen = unseen_difference(&old_text, &text, "the patch");
        let named = || unseen.as_deref().map(|named| format!(": {named}")).unwrap_or_default();
        let without_space = |line: &str| line.chars().filter(|c| !c.is_whitespace()).collect::<String>();
        return if without_space(&old_text) == without_space(&text) {
            format!("a line differs in white space only{}", named())
        } else if unseen.is_some() {
            format!("a line differs in characters that look the same{}", named())
        } else {
            "its lines do not occur in the file".to_owned()
        };
    };
    reason.to_owned()
}

/// A line's content and its ending.
fn split_ending(line: &[u8]) -> (&[u8], &[u8]) {
    let content = line.strip_suffix(b"\n").map_or(line, |line| line.strip_suffix(b"\r").unwrap_or(line));
    line.split_at(content.len())
}

/// The conflict of a deletion that leaves content.
pub(crate) fn leftover(file: &FilePatch, bytes: &[u8]) -> Conflict {
    Conflict {
        path: file.from.to_string(),
        hunk: 1,
        reason: "the file contains more than the patch deletes".to_owned(),
        line: 1,
        expected: String::new(),
        found: excerpt(split(bytes).iter()),
        applies_at: Vec::new(),
    }
}

/// The first of `lines`, each cut, without credentials; a credential may extend over several lines.
fn excerpt<'a>(lines: impl Iterator<Item = &'a &'a [u8]>) -> String {
    let mut text = String::new();
    for line in lines.take(SHOWN_LINES) {
        let content = split_ending(line).0;
        text.push_str(&String::from_utf8_lossy(&content[..content.len().min(SCANNED_BYTES)]));
        text.push('\n');
    }
    let redacted = crate::redact(&text);
    redacted.split_terminator('\n').flat_map(|line| line.chars().take(SHOWN_CHARS).chain(['\n'])).collect()
}
