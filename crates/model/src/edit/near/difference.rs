//! Describes how a passage differs from the text an edit searches for.

use super::NearMatch;
use super::similarity::squeeze;
use crate::text::unseen_difference;

/// The most lines of a difference.
pub(crate) const MAX_LINES_SHOWN: usize = 20;
/// The most characters of a line that are shown.
pub(crate) const MAX_LINE_CHARS: usize = 200;
/// Equal characters shown before the first that differs in a line of which only a part is shown.
const CHARS_BEFORE: usize = 60;

/// Describes the passage that begins at line `at`, from 0.
pub(crate) fn describe(old: &str, text: &str, at: usize) -> NearMatch {
    let pairs = || old.lines().zip(text.lines().skip(at));
    let mut difference = String::new();
    for (want, have) in pairs().take(MAX_LINES_SHOWN) {
        if want == have {
            difference.extend(["  ", &cut(want), "\n"]);
        } else {
            let (want, have) = shown(want, have);
            difference.extend(["- ", &want, "\n+ ", &have, "\n"]);
        }
    }
    let differs = pairs().zip(at + 1..).find(|((want, have), _)| want != have);
    let unseen = differs.and_then(|((want, have), line)| {
        unseen_difference(want, have, "`oldString`").map(|named| format!("{named} of line {line}"))
    });
    NearMatch { line: at as u64 + 1, difference, only: only_kind(old, text, at), unseen }
}

/// The kind of the difference, if it is a small one.
fn only_kind(old: &str, text: &str, at: usize) -> Option<&'static str> {
    let pairs = || old.lines().zip(text.lines().skip(at));
    let blank = |line: &'_ str| line.chars().filter(|c| !c.is_whitespace()).collect::<String>();
    let lower = |line: &'_ str| line.to_lowercase();
    let all = |same: &dyn Fn(&str, &str) -> bool| pairs().all(|(want, have)| want == have || same(want, have));
    if old.lines().count() > text.lines().skip(at).count() {
        None
    } else if all(&|_, _| false) {
        Some("line endings or the final newline")
    } else if all(&|want, have| blank(want) == blank(have)) {
        Some("white space")
    } else if all(&|want, have| squeeze(want).eq(squeeze(have))) {
        Some("quotes")
    } else if all(&|want, have| lower(want) == lower(have)) {
        Some("letter case")
    } else {
        None
    }
}

/// The parts of two lines around the first difference.
fn shown(want: &str, have: &str) -> (String, String) {
    let is_short = |line: &str| line.len() <= MAX_LINE_CHARS;
    if is_short(want) && is_short(have) {
        return (want.to_owned(), have.to_owned());
    }
    // A searched line may be a part of a long one.
    let have = &have[start_of_part(want, have)..];
    let same = want.chars().zip(have.chars()).take_while(|(want, have)| want == have).count();
    let skipped = if same < MAX_LINE_CHARS - CHARS_BEFORE { 0 } else { same - CHARS_BEFORE };
    let part = |line: &str| {
        let rest: String = line.chars().skip(skipped).take(MAX_LINE_CHARS).collect();
        if skipped == 0 { rest } else { format!("…{rest}") }
    };
    (part(want), part(have))
}

/// The start of the part of `have` that resembles `want`, if that part has the start or the end of `want`; otherwise 0.
fn start_of_part(want: &str, have: &str) -> usize {
    if have.len() <= want.len() {
        return 0;
    }
    for most in [64, 24, 12] {
        let start = &want[..want.floor_char_boundary(most)];
        if let Some(at) = have.find(start).filter(|_| !start.trim().is_empty()) {
            return at;
        }
        let end = &want[want.ceil_char_boundary(want.len().saturating_sub(most))..];
        if let Some(at) = have.rfind(end).filter(|_| !end.trim().is_empty()) {
            return have.floor_char_boundary((at + end.len()).saturating_sub(want.len()));
        }
    }
    0
}

fn cut(line: &str) -> String {
    line.chars().take(MAX_LINE_CHARS).collect()
}
