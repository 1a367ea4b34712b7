//! Text: encodings, line endings, pages of numbered lines and searches.

mod content_scan;
mod encoding;
mod line_ending;
mod occurrences;
mod page;
mod redacted;

pub use content_scan::{ContentScan, ScannedContent};
pub use encoding::{Decoded, Encoding, decode, detect_encoding, encode};
pub use line_ending::LineEnding;
pub(crate) use occurrences::Occurrences;
pub use page::{MAX_LINE_CHARS, Page, PageFormat, PageSize, PageStart, page, page_within};
pub use redacted::{is_settings_file, redact_settings};

#[cfg(test)]
mod tests;
