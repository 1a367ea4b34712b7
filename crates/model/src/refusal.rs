//! Refusals of calls: code, message, hint and details.

mod code;
mod details;
mod guide;
mod reader;

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{LogicalPath, PathRejected, Sha256, excerpt, redact};
pub use code::Code;
pub use details::{Conflict, ConflictRegion, NearestText, ProblemDetails};
pub use guide::Guide;
pub use reader::{RefusalReader, hint_for};

/// The result of an operation that may be refused.
pub type Result<T, E = Refusal> = std::result::Result<T, E>;

/// Why a call was refused, so that the caller can correct it. Internal errors are reported differently. File content is only
/// in members of [`ProblemDetails`], which [`Refusal::without_content`] clears.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The machine-readable reason.
    pub code: Code,
    /// One sentence: what is wrong.
    pub message: String,
    /// One sentence: what to do next.
    pub hint: String,
    /// The path, limit, conflict and the like that the refusal refers to; flattened into the response.
    // The name that stored replies have for this member.
    #[serde(rename = "about")]
    pub details: Box<ProblemDetails>,
    /// The parts of the message that other texts repeat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<Box<MessageParts>>,
}

/// Parts of a refusal's message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageParts {
    /// The text after the first statement.
    pub note: Option<String>,
    /// The path that the note suggests.
    pub suggested_path: Option<String>,
    /// The line of a patch that the message names.
    pub line: Option<u64>,
}

/// The maximum length of a message or hint, in bytes: two paths fit.
const MAX_TEXT_BYTES: usize = 16 * 1024;

impl Refusal {
    /// A refusal without details. Message and hint may repeat an input, so both are cut to 16 KiB.
    pub fn new(code: Code, message: impl Into<String>, hint: impl Into<String>) -> Self {
        let (message, hint) = (short(message.into()), short(hint.into()));
        Self { code, message, hint, details: Box::default(), parts: None }
    }

    /// Invalid input, for which no more specific code exists.
    pub fn invalid(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(Code::InvalidRequest, message, hint)
    }

    /// A path that violates `rule`; `raw` is the caller's input.
    pub fn path(raw: &str, rule: PathRejected) -> Self {
        let shown = excerpt(raw, 200);
        Self::new(Code::PathRejected, rule.to_string(), rule.hint()).with_details(|details| details.path = Some(shown))
    }

    /// Nothing exists at `path`. A path that is written as one outside of the workspace is rejected instead.
    pub fn not_found(path: &LogicalPath) -> Self {
        if crate::path::is_foreign(path.as_str()) {
            return Self::path(path.as_str(), PathRejected::Foreign);
        }
        let hint = if path.as_str().contains('\\') {
            "Separate the names of a path by `/`. A `\\` is part of a name."
        } else {
            "Search for its name with find_files, or use list_dir on a folder above it that exists."
        };
        Self::new(Code::NotFound, format!("`{path}` does not exist"), hint).at(path)
    }

    /// Sets the path in the details.
    #[must_use]
    pub fn at(self, path: &LogicalPath) -> Self {
        self.with_details(|details| details.path = Some(path.to_string()))
    }

    /// Changes the details with `fill`.
    #[must_use]
    pub fn with_details(mut self, fill: impl FnOnce(&mut ProblemDetails)) -> Self {
        fill(&mut self.details);
        self
    }

    /// Adds `note` to the message.
    #[must_use]
    pub fn with_note(mut self, note: &str) -> Self {
        self.message = short(format!("{}; {note}", self.message));
        let parts = self.parts.get_or_insert_default();
        let earlier = parts.note.take().map(|earlier| earlier + "; ").unwrap_or_default();
        parts.note = Some(short(earlier + note));
        self
    }

    /// Adds to the message that another path may be meant.
    #[must_use]
    pub fn suggesting(self, path: &LogicalPath) -> Self {
        let mut refusal = self.with_note(&format!("did you mean `{path}`?"));
        refusal.parts.get_or_insert_default().suggested_path = Some(path.to_string());
        refusal
    }

    /// Sets the record of the call in the details.
    #[must_use]
    pub fn recorded(self, seq: u64, hash: Option<Sha256>) -> Self {
        self.with_details(|details| (details.seq, details.head_hash) = (Some(seq), hash))
    }

    /// Removes file content, for a caller without `file:read`. Messages and reasons contain no content; a hint that may refer to
    /// it is replaced.
    #[must_use]
    pub fn without_content(mut self) -> Self {
        if self.details.withhold_content() {
            "The token lacks file:read, so no file content is returned: request a token that has it."
                .clone_into(&mut self.hint);
        }
        self
    }

    /// Redacts credentials in every text, because a refusal may repeat input and is recorded.
    #[must_use]
    pub fn redacted(mut self) -> Self {
        let parts = self.parts.iter_mut().flat_map(|parts| [&mut parts.note, &mut parts.suggested_path]);
        let texts = [&mut self.message, &mut self.hint].into_iter().chain(parts.flatten()).chain(self.details.texts());
        for text in texts {
            if let Cow::Owned(redacted) = redact(text) {
                *text = redacted;
            }
        }
        self
    }

    /// Returns the refusal whose code comes first in the order of [`Code`]; `self` if both have the same code.
    #[must_use]
    pub fn first(self, other: Self) -> Self {
        if other.code < self.code { other } else { self }
    }
}

/// Cuts a text to [`MAX_TEXT_BYTES`] and appends `…` if it was longer.
fn short(mut text: String) -> String {
    if text.len() > MAX_TEXT_BYTES {
        // Once cut, a credential might no longer be recognized.
        text = redact(&text).into_owned();
    }
    if text.len() > MAX_TEXT_BYTES {
        text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
        // Releases the memory of the removed part.
        text.shrink_to_fit();
        text.push('…');
    }
    text
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Refusal {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_redacted_in_every_text() {
        let secret = format!("ghp_{}", "a1".repeat(18));
        let text = || Some(format!("x {secret} y"));
        let conflict = Conflict {
            path: secret.clone(),
            hunk: 1,
            reason: secret.clone(),
            line: 1,
            expected: secret.clone(),
            found: secret.clone(),
            applies_at: Vec::new(),
        };
        let refusal = Refusal::invalid(&secret, &secret).with_details(|details| {
            (details.path, details.difference, details.diff) = (text(), text(), text());
            (details.reasons, details.conflicts) = (vec![secret.clone()], vec![conflict]);
            details.nearest = vec![NearestText { line: 1, difference: secret.clone() }];
            let text = || secret.clone();
            details.conflict_regions = vec![ConflictRegion { line: 1, base: text(), current: text(), new: text() }];
        });
        let json = serde_json::to_string(&refusal.redacted()).unwrap();
        assert!(!json.contains(&secret) && json.matches("[redacted: GitHub token]").count() == 14, "{json}");
    }

    #[test]
    fn cut_texts_contain_no_part_of_a_credential() {
        let secret = format!("ghp_{}", "a1".repeat(18));
        for before in 150..200 {
            let path = format!("../{}/{secret}", "a".repeat(before));
            let refusal = Refusal::path(&path, PathRejected::ParentDir);
            assert!(!refusal.details.path.unwrap().contains("ghp_"), "{before}");
        }
        for before in MAX_TEXT_BYTES - 40..MAX_TEXT_BYTES {
            assert!(!Refusal::invalid(format!("{} {secret}", "a".repeat(before)), "").message.contains("ghp_"));
        }
    }
}
