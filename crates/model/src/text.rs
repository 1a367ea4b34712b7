//! Text: encodings, line endings, pages of numbered lines and searches.

mod content_scan;
mod encoding;
mod line_ending;
mod line_numbers;
mod occurrences;
mod page;
mod redacted;
mod unseen;

pub use content_scan::{ContentScan, ScannedContent};
pub(crate) use encoding::view;
pub use encoding::{
    Decoded, Encoding, declared_encoding, decode, decode_as, detect_encoding, encode, is_guessed, is_likely,
};
pub use line_ending::LineEnding;
pub(crate) use line_numbers::without_line_numbers;
pub(crate) use occurrences::Occurrences;
pub use page::{MAX_LINE_CHARS, PageFormat, PageStart, TextPage, TextPageSize, number_lines, page, page_within};
pub use redacted::{is_settings_file, redact_settings};
pub(crate) use unseen::{looks_alike, unseen_difference};

#[cfg(test)]
mod tests;
