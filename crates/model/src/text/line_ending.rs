//! Line endings of a text.

use serde::{Deserialize, Serialize};

/// The line endings of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names are self-explanatory")]
pub enum LineEnding {
    Lf,
    Crlf,
    Mixed,
    /// The text has no line ending.
    None,
}

impl LineEnding {
    /// Returns the line endings of `text`. A carriage return alone does not end a line.
    pub fn of(text: &str) -> Self {
        Self::with_lines(text.as_bytes(), memchr::memchr_iter(b'\n', text.as_bytes()).count())
    }

    /// Like [`of`](Self::of), for a text with `ends` line feeds.
    pub(crate) fn with_lines(text: &[u8], ends: usize) -> Self {
        if ends == 0 {
            return Self::None;
        }
        // Most files contain no carriage return, and a single search shows it.
        if memchr::memchr(b'\r', text).is_none() {
            return Self::Lf;
        }
        let crlf = memchr::memchr_iter(b'\r', text).filter(|at| text.get(at + 1) == Some(&b'\n')).count();
        match crlf {
            0 => Self::Lf,
            _ if crlf == ends => Self::Crlf,
            _ => Self::Mixed,
        }
    }
}
