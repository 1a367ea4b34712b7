//! The model's view: an answer as plain text, with what a model should read and nothing else.
//!
//! Each tool declares its renderer in [`Tool::text`](crate::tool::Tool::text). A renderer is given the tool's JSON answer, so
//! that repeated answers, dry runs and answers with content withheld are rendered in the same way. Lines of files are shown
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

use model::{Sha256, ToolCallId};
use serde::Deserialize;

use self::lines::PushLine as _;

pub use refusal::refusal_text;

/// Renders the JSON answer of a tool.
pub(crate) type Render = fn(&str) -> serde_json::Result<Rendered>;

/// A rendered answer.
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
    /// The same answer as JSON text.
    pub json: String,
    /// The ID of the call.
    pub tool_call_id: ToolCallId,
    /// The number of the call's record.
    pub seq: Option<u64>,
    /// The hash of the file, if the answer is about a single one; after the change, if the call made one.
    pub sha256: Option<Sha256>,
}

/// Members of answers that are not part of the text.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    tool_call_id: ToolCallId,
    sha256: Option<Sha256>,
    new_sha256: Option<Sha256>,
    #[serde(default)]
    warnings: Vec<String>,
    #[serde(default)]
    notices: Vec<String>,
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
    /// Renders an answer, given as JSON text, with the renderer of its tool. `seq` is the number of the call's record.
    ///
    /// # Errors
    ///
    /// If the answer is not one of the tool's.
    pub fn of(
        render: impl FnOnce(&str) -> serde_json::Result<Rendered>,
        json: String,
        seq: Option<u64>,
    ) -> serde_json::Result<Self> {
        Self::with_notices(render, |notices| notices, json, seq)
    }

    /// As [`of`](Self::of), with what was decided since the last answer as `say` has it.
    pub(crate) fn with_notices(
        render: impl FnOnce(&str) -> serde_json::Result<Rendered>,
        say: impl FnOnce(Vec<String>) -> Vec<String>,
        json: String,
        seq: Option<u64>,
    ) -> serde_json::Result<Self> {
        let metadata: Metadata = serde_json::from_str(&json)?;
        let Rendered { body, end } = render(&json)?;
        let mut text = notice_lines(&say(metadata.notices));
        if text.is_empty() {
            text = body;
        } else {
            text.push_str(&body);
        }
        text.extend(notes::hidden_characters(&text));
        for warning in &metadata.warnings {
            text.push_line(format_args!("warning: {}", quote::one_line(warning)));
        }
        text.push_str(&end);
        Ok(Self {
            text,
            tool_call_id: metadata.tool_call_id,
            seq,
            sha256: metadata.new_sha256.or(metadata.sha256),
            json,
        })
    }
}

/// Renders nothing. For calls of the files plane, whose answers are bytes.
///
/// # Errors
///
/// None.
#[expect(clippy::unnecessary_wraps, reason = "the signature of a renderer")]
pub(crate) fn no_text(_answer: &str) -> serde_json::Result<Rendered> {
    Ok(Rendered::default())
}
