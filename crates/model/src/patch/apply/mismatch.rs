//! Describes a hunk that does not apply, in enough detail to write it again.

use super::super::file_patch::FilePatch;
use super::super::locate::{Finder, Matching};
use super::position::{Mismatch, Target};
use super::split;
use crate::Conflict;

/// Lines of an excerpt.
const SHOWN_LINES: usize = 7;
/// Equal lines shown before the first one that differs.
const LINES_BEFORE: usize = 2;
/// Characters of a line of an excerpt.
const SHOWN_CHARS: usize = 200;

impl Mismatch {
    /// The conflict of hunk `number` of `file`.
    pub(crate) fn into_conflict(
        self,
        file: &FilePatch,
        number: u32,
        target: &Target<'_>,
        finder: &mut Finder<'_>,
        lines: &[&[u8]],
    ) -> Conflict {
        let at = self.shown_position(target, finder, lines);
        let found = &lines[at.min(lines.len())..];
        let found = &found[..found.len().min(target.old.len())];
        let differs = target.old.iter().zip(found).take_while(|(old, line)| target.matching.is_same(old, line)).count();
        let from = differs.saturating_sub(LINES_BEFORE);
        let reason = self.reason(target, found, differs);
        let offsets = match self {
            Self::Elsewhere(offsets) | Self::Ambiguous(offsets) => offsets,
            Self::OutOfOrder(offset) => vec![offset],
            Self::NotFound | Self::Anchor(_) | Self::TooMuchWork => Vec::new(),
        };
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
    fn shown_position(&self, target: &Target<'_>, finder: &mut Finder<'_>, lines: &[&[u8]]) -> usize {
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
            Self::NotFound | Self::Elsewhere(_) | Self::Ambiguous(_) | Self::OutOfOrder(_) | Self::Anchor(_) => {
                let likeliest = finder.likeliest(&target.old);
                likeliest.filter(|at| matching_lines(*at) > matching_lines(stated)).unwrap_or(stated)
            }
        }
    }

    fn reason(&self, target: &Target<'_>, found: &[&[u8]], differs: usize) -> String {
        let its_lines = if target.old.len() == 1 { "its line occurs" } else { "its lines occur" };
        match self {
            Self::Ambiguous(offsets) => format!("{its_lines} {} times, and nothing selects one", offsets.len()),
            Self::Elsewhere(offsets) if target.begins_file && !offsets.contains(&0) => {
                format!("it states that the file begins with it, but {its_lines} elsewhere")
            }
            Self::Elsewhere(_) if target.ends_file => {
                format!("it has no context after its change, so the file must end with it, but {its_lines} elsewhere")
            }
            Self::Elsewhere(_) => format!("it has no context, so it may not move, but {its_lines} elsewhere"),
            Self::OutOfOrder(_) => format!("{its_lines} before an earlier hunk"),
            Self::Anchor(anchor) => {
                let anchor = crate::excerpt(anchor, SHOWN_CHARS);
                format!("the line `{anchor}` of its `@@` line does not occur exactly once")
            }
            Self::TooMuchWork => "too many hunks of the file have wrong line numbers".to_owned(),
            Self::NotFound if target.old.is_empty() => "it states that the file is empty".to_owned(),
            Self::NotFound => not_found(&target.old, found, differs),
        }
    }
}

fn not_found(old: &[&[u8]], found: &[&[u8]], differs: usize) -> String {
    let (Some(old), Some(line)) = (old.get(differs), found.get(differs)) else {
        return "the file ends before the hunk does".to_owned();
    };
    let without_space =
        |line: &[u8]| line.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect::<Vec<_>>();
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
    } else if without_space(old) == without_space(line) {
        "a line differs in white space only"
    } else {
        "its lines do not occur in the file"
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
        text.push_str(&String::from_utf8_lossy(split_ending(line).0));
        text.push('\n');
    }
    let redacted = crate::redact(&text);
    redacted.split_terminator('\n').flat_map(|line| line.chars().take(SHOWN_CHARS).chain(['\n'])).collect()
}
