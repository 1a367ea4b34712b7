//! The refusal of a call: a code, a message, what to do next, and details.

mod code;
mod details;

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{LogicalPath, PathRejected, Sha256, excerpt, redact};
pub use code::Code;
pub use details::{Conflict, ProblemDetails};

/// The answer of anything that may be refused.
pub type Result<T, E = Refusal> = std::result::Result<T, E>;

/// Why a call was refused: something that the caller can act on, never a fault of ours and never a file's content that
/// policy hides. What shows content is in members of [`ProblemDetails`], and goes by [`Refusal::without_content`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// What a program switches on.
    pub code: Code,
    /// One sentence: what is wrong.
    pub message: String,
    /// One sentence: what to do next.
    pub hint: String,
    /// The path, limit, conflict and the like that the refusal refers to; flattened into the response.
    // Stored replies have this member under its first name.
    #[serde(rename = "about")]
    pub details: Box<ProblemDetails>,
}

/// The longest message and hint: two paths fit.
const MAX_TEXT_BYTES: usize = 16 * 1024;

impl Refusal {
    /// A refusal with nothing else to say than its message and hint. Both are cut to 16 KiB: they may repeat an input.
    pub fn new(code: Code, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { code, message: short(message.into()), hint: short(hint.into()), details: Box::default() }
    }

    /// Bad input that is no matter of paths, policy or patches.
    pub fn invalid(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::new(Code::InvalidRequest, message, hint)
    }

    /// A path that breaks `rule`; `raw` is what the caller wrote.
    pub fn path(raw: &str, rule: PathRejected) -> Self {
        let shown = excerpt(raw, 200);
        Self::new(
            Code::PathRejected,
            rule.to_string(),
            "Name a path inside the workspace, relative to its root and separated by `/`.",
        )
        .with_details(|details| details.path = Some(shown))
    }

    /// Nothing is at `path`.
    pub fn not_found(path: &LogicalPath) -> Self {
        Self::new(
            Code::NotFound,
            format!("`{path}` does not exist"),
            "Use list_dir on its folder to see what is there.",
        )
        .at(path)
    }

    /// The same refusal, about `path`.
    #[must_use]
    pub fn at(self, path: &LogicalPath) -> Self {
        self.with_details(|details| details.path = Some(path.to_string()))
    }

    /// Returns the refusal with its details changed by `fill`.
    #[must_use]
    pub fn with_details(mut self, fill: impl FnOnce(&mut ProblemDetails)) -> Self {
        fill(&mut self.details);
        self
    }

    /// The same refusal, with the record that the call left.
    #[must_use]
    pub fn recorded(self, seq: u64, hash: Option<Sha256>) -> Self {
        self.with_details(|details| (details.seq, details.head_hash) = (Some(seq), hash))
    }

    /// The same refusal for a caller who may not read files: nothing that shows content is left. Message, hint and reasons
    /// never do, except for the hints that this method replaces.
    #[must_use]
    pub fn without_content(mut self) -> Self {
        if self.details.withhold_content() {
            "The token lacks file:read, so nothing of the file is shown: ask for a token that may read it."
                .clone_into(&mut self.hint);
        }
        self
    }

    /// The same refusal without credentials: what it repeats of a caller's input is recorded and shown to others.
    #[must_use]
    pub fn redacted(mut self) -> Self {
        let texts = [&mut self.message, &mut self.hint].into_iter().chain(self.details.texts());
        for text in texts {
            if let Cow::Owned(redacted) = redact(text) {
                *text = redacted;
            }
        }
        self
    }

    /// The refusal that comes first in the order of refusal; of equals the earlier.
    #[must_use]
    pub fn first(self, other: Self) -> Self {
        if other.code < self.code { other } else { self }
    }
}

/// A text of at most [`MAX_TEXT_BYTES`], and a mark where it was longer.
fn short(mut text: String) -> String {
    if text.len() > MAX_TEXT_BYTES {
        // A credential at the cut would be none any more.
        text = redact(&text).into_owned();
    }
    if text.len() > MAX_TEXT_BYTES {
        text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
        // What was cut off shall not be kept in memory either.
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
    fn a_credential_is_gone_from_every_text() {
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
        });
        let json = serde_json::to_string(&refusal.redacted()).unwrap();
        assert!(!json.contains(&secret) && json.matches("[redacted: GitHub token]").count() == 10, "{json}");
    }

    #[test]
    fn what_is_cut_leaves_no_part_of_a_credential() {
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
