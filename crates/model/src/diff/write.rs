//! Writes the diff of a file as Git does: headers, quoted names, hunks.

use std::fmt::Write as _;
use std::io::Write as _;
use std::ops::Range;

use sha1::Digest as _;

use super::changes::LineChange;
use super::region::{CONTEXT, Region};
use super::side::Side;
use crate::{LogicalPath, git_mode};

/// The most bytes of a hunk's heading.
const HEADING_BYTES: usize = 80;
/// How many bytes before the region are searched for the heading.
const HEADING_REACH: usize = 64 * 1024;

/// Writes `diff --git` and the lines for modes, creation, deletion and renames.
pub(crate) fn header(out: &mut Vec<u8>, old: Option<Side<'_>>, new: Option<Side<'_>>, similarity: u64) {
    let (Some(first), Some(last)) = (old.or(new), new.or(old)) else { return };
    let (old_mode, new_mode) = (mode(first), mode(last));
    let moved = first.path != last.path;
    put(out, &[b"diff --git ", &name("a/", first.path), b" ", &name("b/", last.path), b"\n"]);
    match (old, new) {
        (None, _) => put(out, &[b"new file mode ", new_mode.as_bytes(), b"\n"]),
        (_, None) => put(out, &[b"deleted file mode ", old_mode.as_bytes(), b"\n"]),
        (Some(_), Some(_)) if old_mode != new_mode => {
            put(out, &[b"old mode ", old_mode.as_bytes(), b"\nnew mode ", new_mode.as_bytes(), b"\n"]);
        }
        (Some(_), Some(_)) => {}
    }
    if moved {
        put(out, &[b"similarity index ", similarity.to_string().as_bytes(), b"%\n"]);
        put(out, &[b"rename from ", &name("", first.path), b"\nrename to ", &name("", last.path), b"\n"]);
    }
    if let (Some(old), Some(new)) = (old, new)
        && old.is_link()
    {
        // Nothing else shows that the lines which follow are targets.
        index(out, old, new, blob_id);
    }
}

/// Writes the lines `---` and `+++`.
pub(crate) fn names(out: &mut Vec<u8>, old: Option<Side<'_>>, new: Option<Side<'_>>) {
    for (mark, prefix, side) in [("--- ", "a/", old), ("+++ ", "b/", new)] {
        put(out, &[mark.as_bytes(), &name_or_null(prefix, side)]);
        // Git ends a name that contains spaces with a tab.
        let has_space = side.is_some_and(|side| side.path.as_str().contains(' '));
        out.extend_from_slice(if has_space { b"\t\n" } else { b"\n" });
    }
}

/// The ID of a blob whose bytes were not read.
pub(crate) const UNKNOWN_BLOB: &str = "0000000";

/// Returns the ID of a blob as in Git's object format of SHA-1.
pub(crate) fn blob_id(bytes: &[u8]) -> String {
    let mut hash = sha1::Sha1::new_with_prefix(format!("blob {}\0", bytes.len()));
    hash.update(bytes);
    base16ct::lower::encode_string(&hash.finalize())
}

/// Writes the line `index` of a binary file or a link on both sides. Without it, `git apply` may leave a binary file out and succeed.
pub(crate) fn index(out: &mut Vec<u8>, old: Side<'_>, new: Side<'_>, id: impl Fn(&[u8]) -> String) {
    let (old_mode, new_mode) = (mode(old), mode(new));
    put(out, &[b"index ", id(old.bytes).as_bytes(), b"..", id(new.bytes).as_bytes()]);
    if old_mode == new_mode {
        put(out, &[b" ", old_mode.as_bytes()]);
    }
    out.push(b'\n');
}

/// Writes that the sides differ, for binary files.
pub(crate) fn binary_line(out: &mut Vec<u8>, old: Option<Side<'_>>, new: Option<Side<'_>>) {
    put(out, &[b"Binary files ", &name_or_null("a/", old), b" and ", &name_or_null("b/", new), b" differ\n"]);
}

fn put(out: &mut Vec<u8>, parts: &[&[u8]]) {
    for part in parts {
        out.extend_from_slice(part);
    }
}

fn mode(side: Side<'_>) -> String {
    format!("{:o}", git_mode(side.mode))
}

fn name_or_null(prefix: &str, side: Option<Side<'_>>) -> Vec<u8> {
    side.map_or_else(|| b"/dev/null".to_vec(), |side| name(prefix, side.path))
}

fn name(prefix: &str, path: &LogicalPath) -> Vec<u8> {
    quoted_name(prefix, path.as_str()).into_bytes()
}

/// Returns `prefix` and `path` as Git writes a name: in quotes and with escapes if the path contains anything but plain ASCII.
pub fn quoted_name(prefix: &str, path: &str) -> String {
    let is_plain = |byte: u8| (b' '..0x7f).contains(&byte) && byte != b'"' && byte != b'\\';
    if path.bytes().all(is_plain) {
        return format!("{prefix}{path}");
    }
    let mut out = format!("\"{prefix}");
    for byte in path.bytes() {
        let escape = b"\x07\x08\t\n\x0b\x0c\r\"\\".iter().position(|escaped| *escaped == byte);
        if let Some(at) = escape {
            out.push('\\');
            out.push(char::from(b"abtnvfr\"\\"[at]));
        } else if is_plain(byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(out, "\\{byte:03o}");
        }
    }
    out.push('"');
    out
}

/// Writes the hunks that contain `changes`.
pub(crate) fn hunks(out: &mut Vec<u8>, region: &Region<'_>, changes: &[LineChange]) {
    let share_context = |a: &LineChange, b: &LineChange| b.old.start - a.old.end <= 2 * CONTEXT;
    let mut heading = Heading { region, searched: 0, line: None };
    for hunk in changes.chunk_by(share_context) {
        write_hunk(out, region, hunk, &mut heading);
    }
}

fn write_hunk(out: &mut Vec<u8>, region: &Region<'_>, hunk: &[LineChange], heading: &mut Heading<'_>) {
    let [first, ..] = hunk else { return };
    let lead = first.old.start.min(CONTEXT);
    let last = &hunk[hunk.len() - 1];
    let trail = (region.old.len() - last.old.end).min(CONTEXT);
    let old = first.old.start - lead..last.old.end + trail;
    let new = first.new.start - lead..last.new.end + trail;
    out.extend_from_slice(b"@@ -");
    write_range(out, region.lines_before, &old);
    out.extend_from_slice(b" +");
    write_range(out, region.lines_before, &new);
    out.extend_from_slice(b" @@");
    heading.write(out, old.start);
    out.push(b'\n');
    let mut at = old.start;
    for change in hunk {
        write_lines(out, b' ', &region.old[at..change.old.start]);
        write_lines(out, b'-', &region.old[change.old.clone()]);
        write_lines(out, b'+', &region.new[change.new.clone()]);
        at = change.old.end;
    }
    write_lines(out, b' ', &region.old[at..old.end]);
}

/// Writes `start,count`. A count of 1 is left out; for an empty range, `start` is the line before it.
fn write_range(out: &mut Vec<u8>, lines_before: usize, range: &Range<usize>) {
    let start = lines_before + range.start;
    // Writing to a vector does not fail.
    let _ = match range.len() {
        0 => write!(out, "{start},0"),
        1 => write!(out, "{}", start + 1),
        count => write!(out, "{},{count}", start + 1),
    };
}

fn write_lines(out: &mut Vec<u8>, mark: u8, lines: &[&[u8]]) {
    for line in lines {
        out.push(mark);
        out.extend_from_slice(line);
        if !line.ends_with(b"\n") {
            out.extend_from_slice(b"\n\\ No newline at end of file\n");
        }
    }
}

/// The heading of a hunk: the nearest line above it that starts with a letter, usually the signature of its function.
struct Heading<'a> {
    region: &'a Region<'a>,
    /// Old lines of the region that were searched.
    searched: usize,
    line: Option<&'a [u8]>,
}

impl Heading<'_> {
    fn write(&mut self, out: &mut Vec<u8>, start: usize) {
        let is_heading =
            |line: &&[u8]| line.first().is_some_and(|c| c.is_ascii_alphabetic() || matches!(c, b'_' | b'$'));
        let above = self.region.old[self.searched..start].iter().rev().copied().find(is_heading);
        let before = || {
            let before = &self.region.before[self.region.before.len().saturating_sub(HEADING_REACH)..];
            before.rsplit(|byte| *byte == b'\n').find(is_heading)
        };
        self.line = above.or(self.line).or_else(before);
        self.searched = start;
        if let Some(line) = self.line {
            out.push(b' ');
            let cut = &line[..line.len().min(HEADING_BYTES)];
            // If the line is UTF-8, the cut is not within a character.
            let cut = cut.utf8_chunks().next().map_or(cut, |chunk| match chunk.invalid().len() {
                1..=3 if chunk.valid().len() + chunk.invalid().len() == cut.len() => chunk.valid().as_bytes(),
                _ => cut,
            });
            out.extend_from_slice(cut.trim_ascii_end());
        }
    }
}
