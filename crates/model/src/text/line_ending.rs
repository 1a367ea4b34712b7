//! How the lines of a text end.

use serde::{Deserialize, Serialize};

/// How lines end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the names say it")]
pub enum LineEnding {
    Lf,
    Crlf,
    Mixed,
    /// No line ends.
    None,
}

impl LineEnding {
    /// How the lines of `text` end; a carriage return alone ends none.
    pub fn of(text: &str) -> Self {
        Self::with_lines(text.as_bytes(), memchr::memchr_iter(b'\n', text.as_bytes()).count())
    }

    /// As [`of`](Self::of), with the number of `\n` in `text` given.
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
