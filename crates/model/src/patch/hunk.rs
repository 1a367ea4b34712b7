//! Hunks of unified diffs.

use super::fault::{COUNTS_HINT, NUMBERS_HINT, invalid, shown};
use super::file_patch::{Hunk, HunkLine};
use super::lines::Lines;
use super::numberless::{NumberlessHeaders, has_numbers, is_end_of_hunk, parse_hunk, parse_line};
use crate::Refusal;

/// The header of a hunk.
struct HunkHeader {
    /// Its line in the patch.
    line: usize,
    old: Range,
    new: Range,
    /// Whether the hunk has no line of the old file.
    is_empty_side: bool,
}

/// The lines of one side.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Range {
    start: u64,
    count: u64,
}

impl Range {
    /// The line after the last one; for an empty range, the line after its position.
    fn end(self) -> u64 {
        if self.count == 0 { self.start + 1 } else { self.start + self.count }
    }

    /// The first line; for an empty range, the line after its position.
    fn first(self) -> u64 {
        if self.count == 0 { self.start + 1 } else { self.start }
    }
}

/// Reads the hunks of one file.
pub(crate) fn parse_all(lines: &mut Lines<'_>) -> Result<Vec<Hunk>, Refusal> {
    let mut hunks = Vec::new();
    let mut ended = Ended::default();
    let mut free_from = 0;
    loop {
        let Some(text) = lines.peek().filter(|line| line.starts_with(b"@@")) else { return Ok(hunks) };
        if !has_numbers(&text[2..]) {
            let hunk = parse_hunk(lines, NumberlessHeaders::All).map_err(|refusal| at_hunk(refusal, hunks.len()))?;
            hunks.push(hunk);
            lines.skip_blank();
            continue;
        }
        let mut head = HunkHeader::parse(lines.number(), text)?;
        if head.old.first() < free_from {
            let message = format!(
                "hunk {} begins at line {} of the file, but the previous hunk ends at line {}",
                hunks.len() + 1,
                head.old.start,
                free_from - 1
            );
            let hint = "Put the hunks in the order of the file and join those that overlap.";
            return Err(at_hunk(invalid(head.line, message, hint), hunks.len()));
        }
        lines.next();
        let hunk = parse_body(lines, &mut head, &mut ended).map_err(|refusal| at_hunk(refusal, hunks.len()))?;
        free_from = head.old.end();
        hunks.push(hunk);
        // Blank lines after a complete hunk are ignored; any other line must begin something.
        lines.skip_blank();
    }
}

fn at_hunk(refusal: Refusal, before: usize) -> Refusal {
    refusal.with_details(|details| details.hunk = u32::try_from(before + 1).ok())
}

impl HunkHeader {
    fn parse(line: usize, text: &[u8]) -> Result<Self, Refusal> {
        let parsed = text.strip_prefix(b"@@ -").and_then(|rest| {
            let (old, rest) = parse_range(rest)?;
            let (new, rest) = parse_range(rest.strip_prefix(b" +")?)?;
            rest.strip_prefix(b" @@")?;
            Some(Self { line, old, new, is_empty_side: old.count == 0 })
        });
        let Some(head) = parsed else {
            let message = format!("`{}` has no line numbers", shown(text));
            return Err(invalid(line, message, NUMBERS_HINT));
        };
        if [head.old, head.new].iter().any(|range| range.start == 0 && range.count > 0) {
            let message = format!("`{}` begins at line 0, but lines are counted from 1", shown(text));
            return Err(invalid(line, message, "Begin the range at 1; only an empty range (`0,0`) begins at 0."));
        }
        Ok(head)
    }

    fn to_text(&self) -> String {
        let range = |range: Range| {
            if range.count == 1 { range.start.to_string() } else { format!("{},{}", range.start, range.count) }
        };
        format!("@@ -{} +{} @@", range(self.old), range(self.new))
    }
}

/// Reads `START` or `START,COUNT`.
fn parse_range(text: &[u8]) -> Option<(Range, &[u8])> {
    let (start, rest) = parse_number(text)?;
    match rest.strip_prefix(b",") {
        Some(rest) => parse_number(rest).map(|(count, rest)| (Range { start, count }, rest)),
        None => Some((Range { start, count: 1 }, rest)),
    }
}

fn parse_number(text: &[u8]) -> Option<(u64, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    // More digits than the line numbers of a file need, and too few to overflow.
    let value = (1..=12)
        .contains(&digits)
        .then(|| text[..digits].iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))?;
    Some((value, &text[digits..]))
}

/// Sides whose last line has no newline, so that no line may follow it.
#[derive(Clone, Copy, Default)]
struct Ended {
    old: bool,
    new: bool,
}

/// Why the lines after a header are not the hunk that it states.
enum BodyFault {
    /// Their number is another one.
    Miscounted(Refusal),
    Invalid(Refusal),
}

/// Reads the lines of a hunk: as many as the header states, or else those up to a line that can only end the hunk. The header
/// then gets their number.
fn parse_body(lines: &mut Lines<'_>, head: &mut HunkHeader, ended: &mut Ended) -> Result<Hunk, Refusal> {
    let (first, before) = (lines.number(), *ended);
    let body = match parse_stated(lines, head, ended) {
        Ok(body) => body,
        Err(BodyFault::Invalid(refusal)) => return Err(refusal),
        Err(BodyFault::Miscounted(refusal)) => {
            lines.rewind(first);
            *ended = before;
            let body = parse_clear(lines, ended).ok_or(refusal)?;
            let counts = body.iter().fold((0, 0), count);
            lines.warnings.push(format!(
                "line {} of the patch: `{}` was counted again: {} old and {} new lines follow",
                head.line,
                head.to_text(),
                counts.0,
                counts.1
            ));
            // The next hunk may begin where the smaller count ends.
            head.old.count = head.old.count.min(counts.0);
            head.is_empty_side = counts.0 == 0;
            return check(head, first, body);
        }
    };
    check(head, first, body)
}

/// Reads as many lines as the header states.
fn parse_stated(lines: &mut Lines<'_>, head: &HunkHeader, ended: &mut Ended) -> Result<Vec<HunkLine>, BodyFault> {
    let (mut old, mut new) = (0, 0);
    // A complete hunk has at least as many lines as its longer side.
    let least = usize::try_from(head.old.count.max(head.new.count)).unwrap_or(usize::MAX);
    let mut body = Vec::with_capacity(least.min(lines.remaining()));
    while old < head.old.count || new < head.new.count {
        let number = lines.number();
        let Some(line) = lines.peek().and_then(parse_line) else {
            return Err(BodyFault::Miscounted(miscounted(lines, head, &body)));
        };
        lines.next();
        let (on_old, on_new) = sides(&line);
        if (on_old && ended.old) || (on_new && ended.new) {
            let message = "a line follows `\\ No newline at end of file`";
            let hint = "Put `\\ No newline at end of file` only after a file's last line.";
            return Err(BodyFault::Invalid(invalid(number, message, hint)));
        }
        (old, new) = (old + u64::from(on_old), new + u64::from(on_new));
        body.push(line);
        if old > head.old.count || new > head.new.count {
            return Err(BodyFault::Miscounted(miscounted(lines, head, &body)));
        }
        take_end_mark(lines, &mut body, ended);
    }
    // A line that looks like the next file's `---` begins that file; any other belongs to this hunk but was not counted.
    if lines.peek().is_some_and(|line| goes_on(lines, line)) {
        return Err(BodyFault::Miscounted(miscounted(lines, head, &body)));
    }
    Ok(body)
}

/// Removes the ending of the last line of `body` if the next line of the patch says that it has none.
fn take_end_mark(lines: &mut Lines<'_>, body: &mut [HunkLine], ended: &mut Ended) {
    let Some(last) = body.last_mut().filter(|_| lines.next_after("\\ ").is_some()) else { return };
    let (on_old, on_new) = sides(last);
    let (HunkLine::Context(bytes) | HunkLine::Delete(bytes) | HunkLine::Insert(bytes)) = last;
    bytes.pop();
    *ended = Ended { old: ended.old || on_old, new: ended.new || on_new };
}

/// Reads the lines up to one that can only end the hunk. `None` if it is not certain where the hunk ends, or it changes nothing.
fn parse_clear(lines: &mut Lines<'_>, ended: &mut Ended) -> Option<Vec<HunkLine>> {
    let is_end = |lines: &Lines<'_>, ahead: usize| {
        let line = lines.peek_at(ahead);
        line.is_none_or(|line| ["@@", "diff ", "Index: "].iter().any(|mark| line.starts_with(mark.as_bytes())))
            || is_end_of_hunk(lines, ahead, NumberlessHeaders::All)
    };
    let mut body = Vec::new();
    // Empty lines before the end separate what follows from the hunk.
    while !is_end(lines, lines.count_empty()) {
        // Two lines that may be a deleted and an inserted one, or name the next file.
        if lines.is_file_head(0) {
            return None;
        }
        let line = lines.peek().and_then(parse_line)?;
        lines.next();
        let (on_old, on_new) = sides(&line);
        if (on_old && ended.old) || (on_new && ended.new) {
            return None;
        }
        body.push(line);
        take_end_mark(lines, &mut body, ended);
    }
    body.iter().any(|line| !matches!(line, HunkLine::Context(_))).then_some(body)
}

fn count((old, new): (u64, u64), line: &HunkLine) -> (u64, u64) {
    let (on_old, on_new) = sides(line);
    (old + u64::from(on_old), new + u64::from(on_new))
}

fn sides(line: &HunkLine) -> (bool, bool) {
    match line {
        HunkLine::Context(_) => (true, true),
        HunkLine::Delete(_) => (true, false),
        HunkLine::Insert(_) => (false, true),
    }
}

/// Whether a line after a complete hunk looks like another line of it.
fn goes_on(lines: &Lines<'_>, line: &[u8]) -> bool {
    let next_file = line.starts_with(b"--- ") && lines.peek_at(1).is_some_and(|next| next.starts_with(b"+++ "));
    matches!(line.first(), Some(b' ' | b'+' | b'-' | b'\\'))
        && !line.trim_ascii().is_empty()
        && !next_file
        && !lines.is_signature()
}

/// The refusal of a hunk whose header states other counts than its lines have.
fn miscounted(lines: &mut Lines<'_>, head: &HunkHeader, body: &[HunkLine]) -> Refusal {
    let mut counts = body.iter().fold((0, 0), count);
    while let Some(line) = lines.peek().filter(|line| goes_on(lines, line)) {
        lines.next();
        counts = parse_line(line).iter().fold(counts, count);
    }
    let message = format!(
        "the hunk's header `{}` states {} old and {} new lines, but {} old and {} new lines follow",
        head.to_text(),
        head.old.count,
        head.new.count,
        counts.0,
        counts.1
    );
    invalid(head.line, message, COUNTS_HINT).with_details(|details| {
        let old_differs = head.old.count != counts.0;
        details.limit = Some(if old_differs { head.old.count } else { head.new.count });
        details.actual = Some(if old_differs { counts.0 } else { counts.1 });
    })
}

fn check(head: &HunkHeader, first: usize, lines: Vec<HunkLine>) -> Result<Hunk, Refusal> {
    if lines.iter().all(|line| matches!(line, HunkLine::Context(_))) {
        let hint = "Remove hunks without `-` and `+` lines.";
        return Err(invalid(first, "the hunk changes nothing", hint));
    }
    if head.is_empty_side && head.old.start > 0 {
        let message = "the hunk has no line of the old file, so the position of its lines is not certain";
        return Err(invalid(
            head.line,
            message,
            "Add lines of context around the insertion: create the diff with `-U3`.",
        ));
    }
    Ok(Hunk {
        old_start: Some(head.old.start),
        new_start: Some(head.new.start),
        lines,
        anchors: Vec::new(),
        at_end: false,
    })
}
