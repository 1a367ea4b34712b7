//! The regions that both sides of a merge change.

use crate::ConflictRegion;
use crate::diff::changed_lines;

/// The most regions that are returned.
const MAX_REGIONS: usize = 10;
/// The most lines of each text of a region.
const MAX_LINES: usize = 12;
/// The most characters of a line.
const MAX_LINE_CHARS: usize = 200;

/// A length of conflict markers that no line of the texts begins with.
pub(crate) fn marker_length(texts: [&str; 3]) -> usize {
    let marks = |line: &str| {
        let first = line.chars().next().filter(|first| "<|=>".contains(*first));
        first.map_or(0, |first| line.chars().take_while(|next| *next == first).count())
    };
    let longest = texts.into_iter().flat_map(str::lines).map(marks).max();
    longest.unwrap_or(0).max(6) + 1
}

/// The part of a region that is read.
#[derive(Clone, Copy)]
enum RegionPart {
    Outside,
    New,
    Base,
    Current,
}

/// The first regions of a merge with conflict markers of `length` characters, and the number of all regions. `current` is the
/// text of which the regions name lines.
pub(crate) fn regions(marked: &str, current: &str, length: usize) -> (Vec<ConflictRegion>, usize) {
    let [new, base, middle, end] = ["<", "|", "=", ">"].map(|mark| mark.repeat(length));
    let line_in_current = line_map(marked, current);
    let (mut regions, mut count, mut part) = (Vec::new(), 0, RegionPart::Outside);
    let mut texts: [Vec<&str>; 3] = Default::default();
    for (index, line) in marked.lines().enumerate() {
        match part {
            RegionPart::Outside if line.starts_with(&new) => part = RegionPart::New,
            RegionPart::New if line.starts_with(&base) => part = RegionPart::Base,
            RegionPart::Base if line.starts_with(&middle) => part = RegionPart::Current,
            RegionPart::Current if line.starts_with(&end) => {
                count += 1;
                let [new, base, current] = std::mem::take(&mut texts);
                if regions.len() < MAX_REGIONS {
                    let line = line_in_current(index - current.len());
                    let [base, current, new] = [base, current, new].map(|lines| excerpt(&lines));
                    regions.push(ConflictRegion { line, base, current, new });
                }
                part = RegionPart::Outside;
            }
            RegionPart::Outside => {}
            RegionPart::New => texts[0].push(line),
            RegionPart::Base => texts[1].push(line),
            RegionPart::Current => texts[2].push(line),
        }
    }
    (regions, count)
}

/// Returns a function from a line of `marked`, from 0, to the line of `current`, from 1, that it is or that follows it.
fn line_map(marked: &str, current: &str) -> impl Fn(usize) -> u64 {
    let changes = changed_lines(current, marked);
    move |line: usize| {
        let (mut old_end, mut new_end) = (0, 0);
        for (old, new) in &changes {
            if line < new.start {
                break;
            }
            if line < new.end {
                return old.end as u64 + 1;
            }
            (old_end, new_end) = (old.end, new.end);
        }
        (old_end + line - new_end) as u64 + 1
    }
}

/// The first of `lines`, each cut, without credentials.
fn excerpt(lines: &[&str]) -> String {
    let text: String = lines.iter().take(MAX_LINES).flat_map(|line| [*line, "\n"]).collect();
    let redacted = crate::redact(&text);
    redacted.split_terminator('\n').flat_map(|line| line.chars().take(MAX_LINE_CHARS).chain(['\n'])).collect()
}
