//! The lines around a change, which some formats show after an edit.

use std::borrow::Cow;

use model::{Hunk, HunkLine, Patch};
use serde::Deserialize;

use crate::answers::cat_n;
use crate::templates::fill;

/// The most bytes of lines that are shown.
const MAX_BYTES: usize = 4096;

/// How a format shows the lines around a change.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Snippet {
    /// The lines before; they may name the `first` and the `last` line.
    title: String,
    /// Whether lines are numbered as by `cat -n`.
    #[serde(default)]
    numbered: bool,
    /// The text between two places.
    #[serde(default)]
    gap: String,
}

impl Snippet {
    /// Renders the new lines around each change in the diff of one file. Empty if the diff has none, such as that of a binary file.
    pub(crate) fn render(&self, diff: &[u8]) -> String {
        let files = Patch::parse_bytes(diff).map(|patch| patch.files).unwrap_or_default();
        let places: Vec<_> = files.iter().flat_map(|file| &file.hunks).filter_map(new_lines).collect();
        let (Some((first, _)), Some((start, lines))) = (places.first(), places.last()) else { return String::new() };
        let text = self.lines(&places);
        if text.is_empty() {
            return String::new();
        }
        let last = start + (lines.len() as u64).saturating_sub(1);
        let title = fill(&self.title, |name| Some(if name == "first" { *first } else { last }.to_string()));
        format!("{}\n{text}", title.unwrap_or_default())
    }

    fn lines(&self, places: &[(u64, Vec<Cow<'_, str>>)]) -> String {
        let mut out = String::new();
        for (index, (start, lines)) in places.iter().enumerate() {
            if index > 0 {
                out.push_str(&self.gap);
            }
            for (number, line) in (*start..).zip(lines) {
                if out.len() + line.len() > MAX_BYTES {
                    return out + &format!("[not shown from line {number} on]\n");
                }
                if self.numbered {
                    cat_n(&mut out, number);
                }
                out.extend([line.as_ref(), "\n"]);
            }
        }
        out
    }
}

/// Returns the number of the first new line of a hunk, and the new lines without their endings.
fn new_lines(hunk: &Hunk) -> Option<(u64, Vec<Cow<'_, str>>)> {
    let new = hunk.lines.iter().filter(|line| !matches!(line, HunkLine::Delete(_)));
    let text = |line: &'_ HunkLine| {
        let line = line.bytes();
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned().into()
    };
    // The side of a file that has become empty begins at 0.
    Some((hunk.new_start?.max(1), new.map(text).collect()))
}

#[cfg(test)]
mod tests {
    use super::Snippet;

    const DIFF: &str = "diff --git a/a.txt b/a.txt\nindex 1..2 100644\n--- a/a.txt\n+++ b/a.txt\n@@ -1,4 +1,4 @@\n-1\n+one\n 2\n 3\n 4\n\
                        @@ -9,3 +9,2 @@\n 9\n-10\n 11\n\\ No newline at end of file\n";

    fn snippet(numbered: bool, gap: &str) -> Snippet {
        Snippet { title: "{first} to {last}:".to_owned(), numbered, gap: gap.to_owned() }
    }

    #[test]
    fn the_new_lines_of_each_hunk_are_shown() {
        let shown = snippet(false, "...\n").render(DIFF.as_bytes());
        assert_eq!(shown, "1 to 10:\none\n2\n3\n4\n...\n9\n11\n");
        let shown = snippet(true, "").render(DIFF.as_bytes());
        assert!(shown.ends_with("     4\t4\n     9\t9\n    10\t11\n"), "{shown}");
        assert_eq!(snippet(true, "").render(b"Binary files differ\n"), "");
    }

    #[test]
    fn long_changes_are_cut() {
        let lines = format!("+{}\n", "x".repeat(1000)).repeat(9);
        let diff = format!("diff --git a/a b/a\nindex 1..2 100644\n--- a/a\n+++ b/a\n@@ -1,1 +1,10 @@\n 1\n{lines}");
        let shown = snippet(false, "").render(diff.as_bytes());
        assert!(shown.len() < 4200 && shown.ends_with("\n[not shown from line 6 on]\n"), "{shown}");
    }
}
