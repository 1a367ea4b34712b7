//! The output of reading tools.

use model::{FileKind, LogicalPath, RecordFile, Refusal, Rules, Sha256};
use serde::Serialize;
use workspace::{Transfer, WorkspaceError};

use crate::run::chain_head::ChainHead;

/// The output of a reading tool, with the parts of its record.
pub struct ReadOutput {
    /// The output as JSON text: one object.
    pub output: String,
    /// The paths whose content or listing it contains, at most [`MAX_RECORDED_PATHS`].
    pub paths_read: Vec<LogicalPath>,
    /// The files whose content was requested, with the version that was read.
    pub files: Vec<RecordFile>,
    /// The reasons in its record.
    pub reasons: Vec<String>,
    /// The open file to send, for the files plane.
    pub transfer: Option<Transfer>,
    /// Whether a file that was read was changed from outside.
    pub is_outside: bool,
    /// The record of the call, once there is one.
    pub head: Option<ChainHead>,
}

/// Omits a member that [`ReadOutput::with_text`] adds.
pub(crate) fn skip_text_member(_: &&str) -> bool {
    true
}

impl ReadOutput {
    /// Serialises `output`.
    ///
    /// # Errors
    ///
    /// If it cannot be serialised.
    pub fn new(output: &impl Serialize, paths_read: Vec<LogicalPath>) -> Result<Self, WorkspaceError> {
        let output = serde_json::to_string(output).map_err(std::io::Error::other)?;
        Ok(Self {
            output,
            paths_read,
            files: Vec::new(),
            reasons: Vec::new(),
            transfer: None,
            is_outside: false,
            head: None,
        })
    }

    /// Serialises `output` with `text` as its member `name`, whose characters are escaped faster than by serde. `output` omits
    /// the member with [`skip_text_member`].
    ///
    /// # Errors
    ///
    /// If it cannot be serialised.
    pub fn with_text(
        output: &impl Serialize,
        name: &str,
        text: &str,
        paths_read: Vec<LogicalPath>,
    ) -> Result<Self, WorkspaceError> {
        // Enough for a text of which every byte is escaped as six: memory that is not written to costs nothing.
        let mut json = Vec::with_capacity(text.len() * 6 + 1024);
        serde_json::to_writer(&mut json, output).map_err(std::io::Error::other)?;
        json.pop();
        if json.len() > 1 {
            json.push(b',');
        }
        json_escape_simd::escape_into(name, &mut json);
        json.push(b':');
        json_escape_simd::escape_into(text, &mut json);
        json.push(b'}');
        let output = String::from_utf8(json).map_err(std::io::Error::other)?;
        Ok(Self {
            output,
            paths_read,
            files: Vec::new(),
            reasons: Vec::new(),
            transfer: None,
            is_outside: false,
            head: None,
        })
    }

    /// Adds a file whose content the output has, at `version`.
    #[must_use]
    pub fn with_file(mut self, path: &LogicalPath, kind: FileKind, version: Sha256) -> Self {
        // A read does not change the file.
        let file = RecordFile::unwritten(path.clone(), kind);
        self.files.push(RecordFile { old_sha256: Some(version), new_sha256: Some(version), ..file });
        self
    }

    /// Adds a secret file of which the output has the keys. The record has no hash of it, since it would confirm a guess.
    #[must_use]
    pub fn with_redacted(mut self, path: &LogicalPath) -> Self {
        self.files.push(RecordFile::unwritten(path.clone(), FileKind::SecretLike));
        self.reasons.push(format!("redacted: {path}"));
        self
    }

    /// Adds warnings to the output.
    pub fn add_warnings(&mut self, warnings: &[String]) {
        if warnings.is_empty() || self.output.pop() != Some('}') {
            return;
        }
        let comma = if self.output == "{" { "" } else { "," };
        // Strings always serialise.
        let warnings = serde_json::to_string(warnings).unwrap_or_default();
        self.output.extend([comma, "\"warnings\":", &warnings, "}"]);
    }

    /// Adds a file that was requested and refused with `refusal`.
    #[must_use]
    pub fn with_refused(mut self, rules: &Rules, path: &LogicalPath, refusal: &Refusal) -> Self {
        let kind = rules.kind_of_path(path);
        self.files.push(RecordFile::unwritten(path.clone(), kind));
        self.reasons.push(format!("{}: {path}", refusal.code));
        self
    }
}

/// The maximum number of read paths in a record.
pub(crate) const MAX_RECORDED_PATHS: usize = 1000;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::ReadOutput;

    fn with_content(output: &Value, text: &str) -> Value {
        serde_json::from_str(&ReadOutput::with_text(output, "content", text, Vec::new()).unwrap().output).unwrap()
    }

    #[test]
    fn a_text_survives_serialisation_unchanged() {
        assert_eq!(with_content(&json!({}), "one"), json!({"content": "one"}));
        let all: String = ('\0'..='\u{3000}').chain(['\u{feff}', '\u{ffff}', '\u{10ffff}']).collect();
        assert_eq!(with_content(&json!({"path": "a"}), &all), json!({"path": "a", "content": all}));
        // Characters that need escapes or several bytes, at every position inside a SIMD vector and after it.
        for special in ['\0', '\n', '\u{1f}', '"', '\\', '\u{7f}', 'é', '😀'] {
            for before in 0..70 {
                let text = format!("{}{special}{}", "a".repeat(before), "b".repeat(70 - before));
                assert_eq!(with_content(&json!({"path": "a"}), &text), json!({"path": "a", "content": text}));
            }
        }
    }
}
