//! Text: encodings, line endings, pages of numbered lines and searches.

mod content_scan;
mod encoding;
mod line_ending;
mod occurrences;
mod page;

pub use content_scan::{ContentScan, ScannedContent};
pub use encoding::{Decoded, Encoding, decode, detect_encoding, encode};
pub use line_ending::LineEnding;
pub(crate) use occurrences::Occurrences;
pub use page::{MAX_LINE_CHARS, Page, PageFormat, PageSize, page, page_within};

#[cfg(test)]
mod tests;
