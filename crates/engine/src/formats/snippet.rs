//! The lines around a change, which some forms show after an edit.

use std::borrow::Cow;

use model::{Hunk, HunkLine, Patch};

use super::answers::cat_n;
use crate::tool::text::lines::PushLine as _;

/// The most bytes of lines that are shown.
const MAX_BYTES: usize = 4096;
/// The lines that memory shows before and after the first that has changed.
const MEMORY_CONTEXT: u64 = 2;

/// Writes the lines around a change in a form.
pub(crate) type SnippetForm = fn(&ChangedLines) -> String;

/// The new lines around each change of a file.
#[derive(Debug)]
pub(crate) struct ChangedLines(Vec<ChangedPlace>);

/// The new lines of one hunk of a diff.
#[derive(Debug)]
struct ChangedPlace {
    /// The number of the first line.
    start: u64,
    lines: Vec<Vec<u8>>,
    /// The number of the first line that has changed, or that follows what was removed.
    changed: u64,
}

impl ChangedLines {
    /// Takes the lines from the diff of one file. A diff without lines, such as that of a binary file, has none.
    pub(crate) fn of(diff: &[u8]) -> Self {
        let files = Patch::parse_bytes(diff).map(|patch| patch.files).unwrap_or_default();
        Self(files.iter().flat_map(|file| &file.hunks).filter_map(ChangedPlace::of).collect())
    }
}

impl ChangedPlace {
    fn of(hunk: &Hunk) -> Option<Self> {
        // The side of a file that has become empty begins at 0.
        let start = hunk.new_start?.max(1);
        let before = hunk.lines.iter().take_while(|line| matches!(line, HunkLine::Context(_))).count();
        let new = hunk.lines.iter().filter(|line| !matches!(line, HunkLine::Delete(_)));
        let lines = new.map(|line| line.bytes().to_vec()).collect();
        Some(Self { start, lines, changed: start + before as u64 })
    }
}

/// The text of a line, without its ending.
fn text_of(line: &[u8]) -> Cow<'_, str> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line))
}

/// Writes all lines, with `write`, up to the most bytes.
fn all(changed: &ChangedLines, gap: &str, write: fn(&mut String, u64, &str)) -> String {
    let mut out = String::new();
    for (index, place) in changed.0.iter().enumerate() {
        if index > 0 {
            out.push_str(gap);
        }
        for (number, line) in (place.start..).zip(&place.lines) {
            if out.len() + line.len() > MAX_BYTES {
                out.push_line(format_args!("[not shown from line {number} on]"));
                return out;
            }
            write(&mut out, number, &text_of(line));
            out.push('\n');
        }
    }
    out
}

/// As the editors show it: numbered as by `cat -n`.
pub(super) fn numbered(changed: &ChangedLines) -> String {
    let lines = all(changed, "", |out, number, line| {
        cat_n(out, number);
        out.push_str(line);
    });
    titled("Here's the result of running `cat -n` on a snippet of it:", &lines)
}

/// As Gemini CLI shows it.
pub(super) fn updated_code(changed: &ChangedLines) -> String {
    titled("Here is the updated code:", &all(changed, "...\n", |out, _, line| out.push_str(line)))
}

/// As Qwen Code shows it.
pub(super) fn edited_lines(changed: &ChangedLines) -> String {
    let (Some(first), Some(last)) = (changed.0.first(), changed.0.last()) else { return String::new() };
    let title = format!(
        "Showing lines {}-{} from the edited file:\n\n---\n",
        first.start,
        last.start + (last.lines.len() as u64).saturating_sub(1)
    );
    titled(&title, &all(changed, "...\n", |out, _, line| out.push_str(line)))
}

/// As memory shows it: numbered, around the first change alone.
pub(super) fn of_memory(changed: &ChangedLines) -> String {
    let Some(place) = changed.0.first() else { return String::new() };
    let (first, last) = (place.changed.saturating_sub(MEMORY_CONTEXT), place.changed + MEMORY_CONTEXT);
    let mut out = String::new();
    // What follows the last line ending is a line too, here.
    let ends = place.lines.last().is_some_and(|line| line.ends_with(b"\n"));
    let after = ends.then(Vec::new);
    for (number, line) in (place.start..).zip(place.lines.iter().chain(&after)) {
        if (first..=last).contains(&number) && out.len() + line.len() <= MAX_BYTES {
            cat_n(&mut out, number);
            out.push_line(text_of(line));
        }
    }
    out
}

fn titled(title: &str, lines: &str) -> String {
    if lines.is_empty() { String::new() } else { format!("{title}\n{lines}") }
}

#[cfg(test)]
mod tests {
    use super::{ChangedLines, all, numbered, of_memory, updated_code};

    const DIFF: &str = "diff --git a/a.txt b/a.txt\nindex 1..2 100644\n--- a/a.txt\n+++ b/a.txt\n@@ -1,4 +1,4 @@\n-1\n+one\n 2\n 3\n 4\n\
                        @@ -9,3 +9,2 @@\n 9\n-10\n 11\n\\ No newline at end of file\n";

    #[test]
    fn the_new_lines_of_each_hunk_are_shown() {
        let changed = ChangedLines::of(DIFF.as_bytes());
        assert_eq!(updated_code(&changed), "Here is the updated code:\none\n2\n3\n4\n...\n9\n11\n");
        assert!(numbered(&changed).ends_with("     4\t4\n     9\t9\n    10\t11\n"), "{changed:?}");
        assert_eq!(of_memory(&changed), "     1\tone\n     2\t2\n     3\t3\n");
        assert_eq!(numbered(&ChangedLines::of(b"Binary files differ\n")), "");
    }

    #[test]
    fn long_changes_are_cut() {
        let lines = format!("+{}\n", "x".repeat(1000)).repeat(9);
        let diff = format!("diff --git a/a b/a\nindex 1..2 100644\n--- a/a\n+++ b/a\n@@ -1,1 +1,10 @@\n 1\n{lines}");
        let shown = all(&ChangedLines::of(diff.as_bytes()), "", |out, _, line| out.push_str(line));
        assert!(shown.len() < 4200 && shown.ends_with("\n[not shown from line 6 on]\n"), "{shown}");
    }
}
