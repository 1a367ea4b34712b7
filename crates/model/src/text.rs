//! Text files as tools show them: encoding, line endings, numbered and cut lines.

use serde::{Deserialize, Serialize};

/// How a text's bytes are its characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
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
    /// Lines in the whole text.
    pub total_lines: u64,
    /// The lines, as the format has it.
    pub content: String,
    /// Whether lines follow.
    pub truncated: bool,
    /// Where to go on.
    pub next_start_line: Option<u64>,
    /// Lines that were cut for their length.
    pub lines_cut: u64,
    /// The text's encoding.
    pub encoding: Encoding,
    /// The text's line ending.
    pub line_ending: LineEnding,
}

/// The encoding of a whole text; `None` where the bytes are no text.
pub fn detect_encoding(_bytes: &[u8]) -> Option<Encoding> {
    unimplemented!()
}

/// Cuts lines `start_line` … of a text: at most `max_lines` lines and `max_bytes` bytes of content.
///
/// `bytes` is the whole text; `None` where it is none.
pub fn page(_bytes: &[u8], _format: PageFormat, _start_line: u64, _max_lines: u64, _max_bytes: usize) -> Option<Page> {
    unimplemented!()
}
