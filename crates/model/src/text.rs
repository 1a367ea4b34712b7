//! Text files as tools show them: encoding, line endings, numbered and cut lines.

mod encoding;
mod page;

use serde::{Deserialize, Serialize};

pub use encoding::{Decoded, decode, detect_encoding, encode};
pub use page::{MAX_LINE_CHARS, page};

/// How a text's bytes are its characters.
///
/// Anything but UTF-8 and UTF-16 is a guess from the bytes, made only where the text can be written back bit by bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the names say it")]
pub enum Encoding {
    #[serde(rename = "utf-8")]
    Utf8,
    #[serde(rename = "utf-8-bom")]
    Utf8Bom,
    #[serde(rename = "utf-16le")]
    Utf16Le,
    #[serde(rename = "utf-16be")]
    Utf16Be,
    #[serde(rename = "windows-1252")]
    Windows1252,
    #[serde(rename = "windows-1250")]
    Windows1250,
    #[serde(rename = "windows-1251")]
    Windows1251,
    #[serde(rename = "windows-1253")]
    Windows1253,
    #[serde(rename = "windows-1254")]
    Windows1254,
    #[serde(rename = "windows-1255")]
    Windows1255,
    #[serde(rename = "windows-1256")]
    Windows1256,
    #[serde(rename = "windows-1257")]
    Windows1257,
    #[serde(rename = "windows-1258")]
    Windows1258,
    #[serde(rename = "windows-874")]
    Windows874,
    #[serde(rename = "iso-8859-2")]
    Iso8859_2,
    #[serde(rename = "iso-8859-4")]
    Iso8859_4,
    #[serde(rename = "iso-8859-5")]
    Iso8859_5,
    #[serde(rename = "iso-8859-6")]
    Iso8859_6,
    #[serde(rename = "iso-8859-7")]
    Iso8859_7,
    #[serde(rename = "iso-8859-8")]
    Iso8859_8,
    #[serde(rename = "iso-8859-13")]
    Iso8859_13,
    #[serde(rename = "koi8-u")]
    Koi8U,
    Ibm866,
    #[serde(rename = "shift_jis")]
    ShiftJis,
    EucJp,
    EucKr,
    Gbk,
    Big5,
}

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

    /// The same where the `\n` of `text` are counted already.
    fn with_lines(text: &[u8], ends: usize) -> Self {
        if ends == 0 {
            return Self::None;
        }
        // Most files hold no carriage return at all, which one quick look proves.
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

/// How the lines of a page are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PageFormat {
    /// `%6d | line`, with long lines cut.
    #[default]
    Numbered,
    /// As they are.
    Raw,
}

/// Some lines of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Number of the first line shown, from 1.
    pub start_line: u64,
    /// Number of the last line shown; `start_line - 1` where none is.
    pub end_line: u64,
    /// Lines in the whole text: its line ends, and what follows the last of them.
    pub total_lines: u64,
    /// The lines, as the format has it.
    pub content: String,
    /// Whether lines follow, or the rest of a line that is longer than a page.
    pub truncated: bool,
    /// Where to go on, if lines follow.
    pub next_start_line: Option<u64>,
    /// Lines that were cut for their length.
    pub lines_cut: u64,
    /// The text's encoding.
    pub encoding: Encoding,
    /// The text's line ending.
    pub line_ending: LineEnding,
}

#[cfg(test)]
mod tests;
