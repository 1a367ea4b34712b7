//! The model's view: an answer as plain text, with what a model should read and nothing else.
//!
//! The output of each tool renders itself: [`ToolOutput::to_text`](crate::tool::output::ToolOutput::to_text). Lines of files are shown
//! exactly. Everything else is on one line: names that could be taken for something else are quoted.

pub(crate) mod changes;
pub(crate) mod command;
pub(crate) mod diff;
pub(crate) mod files;
pub(crate) mod lines;
pub(crate) mod lists;
pub(crate) mod metadata;
pub(crate) mod notes;
pub(crate) mod quote;
pub(crate) mod refusal;
pub(crate) mod search;

use self::lines::PushLine as _;
use crate::call::Answer;

pub use refusal::refusal_text;

/// A rendered output.
#[derive(Debug, Default)]
pub struct Rendered {
    /// What was found, as whole lines.
    pub(crate) body: String,
    /// Where the answer stops and how to continue, as whole lines that come last. Empty if nothing is omitted.
    pub(crate) end: String,
}

impl From<String> for Rendered {
    fn from(body: String) -> Self {
        Self { body, end: String::new() }
    }
}

/// An answer in the model's view.
#[derive(Debug)]
pub struct TextAnswer {
    /// What a model reads. Every line ends in LF.
    pub text: String,
    /// The answer itself.
    pub answer: Answer,
}

/// Renders what was decided since the last answer, which every answer begins with.
fn notice_lines(notices: &[String]) -> String {
    let mut lines = String::new();
    for notice in notices {
        lines.push_line(format_args!("{}", quote::one_line(notice)));
    }
    lines
}

impl TextAnswer {
    /// Shows an answer by its rendered output, after `notices`.
    pub(crate) fn new(answer: Answer, Rendered { body, end }: Rendered, notices: &[String]) -> Self {
        let mut text = notice_lines(notices);
        if text.is_empty() {
            text = body;
        } else {
            text.push_str(&body);
        }
        text.extend(notes::hidden_characters(&text));
        for warning in answer.output.warnings().iter().chain(&answer.warnings) {
            text.push_line(format_args!("warning: {}", quote::one_line(warning)));
        }
        text.push_str(&end);
        Self { text, answer }
    }
}
