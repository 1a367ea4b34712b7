//! The model's view: an answer as plain text, with what a model should read and nothing else.
//!
//! The output of each tool renders itself: [`ToolOutput::to_text`](crate::tool::output::ToolOutput::to_text). Lines of files are shown
//! exactly. Everything else is on one line: names that could be taken for something else are quoted.

pub(crate) mod changes;
pub(crate) mod lines;
pub(crate) mod notes;
pub mod quote;
pub(crate) mod refusal;

use self::lines::PushLine as _;

pub use refusal::refusal_text;

/// A rendered output.
#[derive(Debug, Default)]
pub struct Rendered {
    /// What was found, as whole lines.
    pub body: String,
    /// Where the answer stops and how to continue, as whole lines that come last. Empty if nothing is omitted.
    pub end: String,
}

impl From<String> for Rendered {
    fn from(body: String) -> Self {
        Self { body, end: String::new() }
    }
}

/// Renders what was decided since the last answer, which every answer begins with.
pub(crate) fn notice_lines(notices: &[String]) -> String {
    let mut lines = String::new();
    for notice in notices {
        lines.push_line(format_args!("{}", quote::one_line(notice)));
    }
    lines
}
