//! Hunks of unified diffs.

use super::fault::{COUNTS_HINT, NUMBERS_HINT, invalid, shown};
use super::file_patch::{Hunk, HunkLine};
use super::lines::Lines;
use crate::Refusal;

/// The header of a hunk.
struct Header {
    /// Its line in the patch.
    line: usize,
    old: Range,
    new: Range,
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
        let head = Header::parse(lines.number(), text)?;
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
        free_from = head.old.end();
        lines.next();
        let hunk = parse_body(lines, &head, &mut ended).map_err(|refusal| at_hunk(refusal, hunks.len()))?;
        hunks.push(hunk);
        // Blank lines after a complete hunk are ignored; any other line must begin something.
        lines.skip_blank();
    }
}

fn at_hunk(refusal: Refusal, before: usize) -> Refusal {
    refusal.with_details(|details| details.hunk = u32::try_from(before + 1).ok())
}

impl Header {
    fn parse(line: usize, text: &[u8]) -> Result<Self, Refusal> {
        let parsed = text.strip_prefix(b"@@ -").and_then(|rest| {
            let (old, rest) = parse_range(rest)?;
            let (new, rest) = parse_range(rest.strip_prefix(b" +")?)?;
            rest.strip_prefix(b" @@")?;
            Some(Self { line, old, new })
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

/// Reads as many lines as the header states.
fn parse_body(lines: &mut Lines<'_>, head: &Header, ended: &mut Ended) -> Result<Hunk, Refusal> {
    let first = lines.number();
    let (mut old, mut new) = (0, 0);
    // A complete hunk has at least as many lines as its longer side.
    let least = usize::try_from(head.old.count.max(head.new.count)).unwrap_or(usize::MAX);
    let mut body = Vec::with_capacity(least.min(lines.remaining()));
    while old < head.old.count || new < head.new.count {
        let number = lines.number();
        let Some(line) = lines.peek().and_then(parse_line) else {
            return Err(miscounted(lines, head, &body));
        };
        lines.next();
        let (on_old, on_new) = sides(&line);
        if (on_old && ended.old) || (on_new && ended.new) {
            let message = "a line follows `\\ No newline at end of file`";
            return Err(invalid(number, message, "Put `\\ No newline at end of file` only after a file's last line."));
        }
        (old, new) = (old + u64::from(on_old), new + u64::from(on_new));
        body.push(line);
        if old > head.old.count || new > head.new.count {
            return Err(miscounted(lines, head, &body));
        }
        if lines.next_after("\\ ").is_some() {
            let Some(HunkLine::Context(bytes) | HunkLine::Delete(bytes) | HunkLine::Insert(bytes)) = body.last_mut()
            else {
                continue;
            };
            bytes.pop();
            *ended = Ended { old: ended.old || on_old, new: ended.new || on_new };
        }
    }
    // A line that looks like the next file's `---` begins that file; any other belongs to this hunk but was not counted.
    if lines.peek().is_some_and(|line| goes_on(lines, line)) {
        return Err(miscounted(lines, head, &body));
    }
    check(head, first, body)
}

/// Reads one line of a hunk.
pub(crate) fn parse_line(line: &[u8]) -> Option<HunkLine> {
    let ended = |rest: &[u8]| [rest, b"\n"].concat();
    match line {
        // An empty line is an empty context line that lost its space in transit, as in Git.
        [] => Some(HunkLine::Context(b"\n".to_vec())),
        [b' ', rest @ ..] => Some(HunkLine::Context(ended(rest))),
        [b'-', rest @ ..] => Some(HunkLine::Delete(ended(rest))),
        [b'+', rest @ ..] => Some(HunkLine::Insert(ended(rest))),
        _ => None,
    }
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
fn miscounted(lines: &mut Lines<'_>, head: &Header, body: &[HunkLine]) -> Refusal {
    let count = |(old, new): (u64, u64), line: &HunkLine| {
        let (on_old, on_new) = sides(line);
        (old + u64::from(on_old), new + u64::from(on_new))
    };
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

fn check(head: &Header, first: usize, lines: Vec<HunkLine>) -> Result<Hunk, Refusal> {
    if lines.iter().all(|line| matches!(line, HunkLine::Context(_))) {
        let hint = "Remove hunks without `-` and `+` lines.";
        return Err(invalid(first, "the hunk changes nothing", hint));
    }
    if head.old.count == 0 && head.old.start > 0 {
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
