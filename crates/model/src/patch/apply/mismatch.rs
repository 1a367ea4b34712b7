//! What is told of a hunk that has no place: enough to write it anew.

use super::super::file_patch::FilePatch;
use super::super::locate::{Finder, Matching};
use super::position::{Miss, Wanted};
use super::split;
use crate::Conflict;

/// Lines of an excerpt.
const SHOWN_LINES: usize = 7;
/// Equal lines shown before the first one that differs.
const LINES_BEFORE: usize = 2;
/// Characters of a line of an excerpt.
const SHOWN_CHARS: usize = 200;

impl Miss {
    /// The conflict of hunk `number` of `section`.
    pub(super) fn tell(
        self,
        section: &FilePatch,
        number: u32,
        wanted: &Wanted<'_>,
        finder: &mut Finder<'_>,
        lines: &[&[u8]],
    ) -> Conflict {
        let at = self.place_to_show(wanted, finder, lines);
        let there = &lines[at.min(lines.len())..];
        let there = &there[..there.len().min(wanted.old.len())];
        let differs = wanted.old.iter().zip(there).take_while(|(old, line)| wanted.matching.same(old, line)).count();
        let from = differs.saturating_sub(LINES_BEFORE);
        let reason = self.reason(wanted, there, differs);
        let places = match self {
            Self::Elsewhere(places) | Self::Ambiguous(places) => places,
            Self::OutOfOrder(place) => vec![place],
            Self::Nowhere | Self::Anchor(_) | Self::TooMuch => Vec::new(),
        };
        Conflict {
            path: section.from.to_string(),
            hunk: number,
            reason,
            line: (at + from + 1) as u64,
            expected: excerpt(wanted.old.iter().skip(from)),
            found: excerpt(there.iter().skip(from)),
            applies_at: places.into_iter().map(|place| place as u64 + 1).collect(),
        }
    }

    /// Where the hunk says it stands, or, where nothing is as it says there, where it seems to belong.
    fn place_to_show(&self, wanted: &Wanted<'_>, finder: &mut Finder<'_>, lines: &[&[u8]]) -> usize {
        let alike = |at: usize| {
            let there = lines.get(at..).unwrap_or_default();
            there.iter().zip(&wanted.old).filter(|(line, old)| Matching::AnyEnding.same(line, old)).count()
        };
        let stated = wanted.stated.unwrap_or(0);
        if wanted.stated.is_some() && alike(stated) * 2 > wanted.old.len() {
            return stated;
        }
        match self {
            Self::TooMuch => stated,
            Self::Nowhere | Self::Elsewhere(_) | Self::Ambiguous(_) | Self::OutOfOrder(_) | Self::Anchor(_) => {
                finder.likeliest(&wanted.old).filter(|likely| alike(*likely) > alike(stated)).unwrap_or(stated)
            }
        }
    }

    fn reason(&self, wanted: &Wanted<'_>, there: &[&[u8]], differs: usize) -> String {
        let lines = if wanted.old.len() == 1 { "its line stands" } else { "its lines stand" };
        match self {
            Self::Ambiguous(places) => format!("{lines} at {} places, and nothing says which is meant", places.len()),
            Self::Elsewhere(places) if wanted.begins_file && !places.contains(&0) => {
                format!("it says that the file begins with it, but {lines} elsewhere")
            }
            Self::Elsewhere(_) if wanted.ends_file => {
                format!("it has no context behind its change, so the file has to end with it, but {lines} elsewhere")
            }
            Self::Elsewhere(_) => format!("it has no context, so it may not move, but {lines} elsewhere"),
            Self::OutOfOrder(_) => format!("{lines} before a hunk that comes before it"),
            Self::Anchor(anchor) => {
                let anchor = crate::excerpt(anchor, SHOWN_CHARS);
                format!("the line `{anchor}`, below which it should be, is not there exactly once")
            }
            Self::TooMuch => "too many hunks of the file stand elsewhere than they say".to_owned(),
            Self::Nowhere if wanted.old.is_empty() => "it says that the file is empty".to_owned(),
            Self::Nowhere => nowhere(&wanted.old, there, differs),
        }
    }
}

fn nowhere(old: &[&[u8]], there: &[&[u8]], differs: usize) -> String {
    let (Some(old), Some(line)) = (old.get(differs), there.get(differs)) else {
        return "the file ends before the hunk does".to_owned();
    };
    let dense = |line: &[u8]| line.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect::<Vec<_>>();
    let end = |line: &[u8]| {
        line.len() - line.strip_suffix(b"\n").map_or(line, |line| line.strip_suffix(b"\r").unwrap_or(line)).len()
    };
    let content = |line: &[u8]| line[..line.len() - end(line)].to_vec();
    if content(old) == content(line) {
        match (end(old), end(line)) {
            (0, _) => "the file's line ends in a newline, but the hunk says that it does not".to_owned(),
            (_, 0) => {
                "the file's last line has no newline, but the hunk does not say so: put `\\ No newline at end of file` \
                       behind it"
                    .to_owned()
            }
            _ => "a line ends in CR LF on one side only".to_owned(),
        }
    } else if dense(old) == dense(line) {
        "a line differs in white space only".to_owned()
    } else {
        "its lines stand nowhere in the file".to_owned()
    }
}

/// The conflict of a deletion that leaves something.
pub(super) fn leftover(section: &FilePatch, bytes: &[u8]) -> Conflict {
    Conflict {
        path: section.from.to_string(),
        hunk: 1,
        reason: "the file holds more than the patch deletes".to_owned(),
        line: 1,
        expected: String::new(),
        found: excerpt(split(bytes).iter()),
        applies_at: Vec::new(),
    }
}

/// The first of `lines`, each cut, without credentials: these may go over several lines.
fn excerpt<'a>(lines: impl Iterator<Item = &'a &'a [u8]>) -> String {
    let mut text = String::new();
    for line in lines.take(SHOWN_LINES) {
        let line = line.strip_suffix(b"\n").map_or(*line, |line| line.strip_suffix(b"\r").unwrap_or(line));
        text.push_str(&String::from_utf8_lossy(line));
        text.push('\n');
    }
    let redacted = crate::redact(&text);
    redacted.split_terminator('\n').flat_map(|line| line.chars().take(SHOWN_CHARS).chain(['\n'])).collect()
}
