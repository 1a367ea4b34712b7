//! What a reading tool returns.

use model::{FileKind, LogicalPath, RecordFile, Refusal, Rules, Sha256};
use serde::Serialize;
use workspace::{Transfer, WorkspaceError};

/// What a reading tool tells.
pub struct ReadOutput {
    /// The output as JSON text: one object.
    pub output: String,
    /// Paths whose content or listing it tells, at most 1,000.
    pub paths_read: Vec<LogicalPath>,
    /// Files whose content it tells, with the version that was read.
    pub files: Vec<RecordFile>,
    /// What its record says besides.
    pub reasons: Vec<String>,
    /// The file to be sent, for the files plane.
    pub transfer: Option<Transfer>,
}

/// Leaves a member out that [`ReadOutput::with_text`] puts in.
pub fn skip_text_member(_: &&str) -> bool {
    true
}

impl ReadOutput {
    /// Serialises `output`.
    pub fn new(output: &impl Serialize, paths_read: Vec<LogicalPath>) -> Result<Self, WorkspaceError> {
        let output = serde_json::to_string(output).map_err(std::io::Error::other)?;
        Ok(Self { output, paths_read, files: Vec::new(), reasons: Vec::new(), transfer: None })
    }

    /// The same, with `text` as its member `name`: for what is mostly text, of which every character would be looked at one
    /// by one. `output` leaves the member out, by [`skip_text_member`].
    pub fn with_text(
        output: &impl Serialize,
        name: &str,
        text: &str,
        paths_read: Vec<LogicalPath>,
    ) -> Result<Self, WorkspaceError> {
        // As much as is asked for where every character takes six: what is not written to costs nothing.
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
        Ok(Self { output, paths_read, files: Vec::new(), reasons: Vec::new(), transfer: None })
    }

    /// The same, telling the content of a file at `version`.
    pub fn with_file(mut self, path: &LogicalPath, kind: FileKind, version: Sha256) -> Self {
        // The file is the same after the call as before it.
        let file = RecordFile { path: path.clone(), kind, old_sha256: Some(version), new_sha256: Some(version) };
        self.files.push(file);
        self
    }

    /// The same, with a file that was asked for and is not told, for the reason that `refusal` gives.
    pub fn with_refused(mut self, rules: &Rules, path: &LogicalPath, refusal: &Refusal) -> Self {
        let kind = rules.kind_of_path(path);
        self.files.push(RecordFile { path: path.clone(), kind, old_sha256: None, new_sha256: None });
        self.reasons.push(format!("{}: {path}", refusal.code));
        self
    }
}

/// The most paths that a record names as read.
pub const MAX_RECORDED_PATHS: usize = 1000;

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::ReadOutput;

    fn told(output: &Value, text: &str) -> Value {
        serde_json::from_str(&ReadOutput::with_text(output, "content", text, Vec::new()).unwrap().output).unwrap()
    }

    #[test]
    fn a_text_is_told_as_it_is() {
        assert_eq!(told(&json!({}), "one"), json!({"content": "one"}));
        let every: String = ('\0'..='\u{3000}').chain(['\u{feff}', '\u{ffff}', '\u{10ffff}']).collect();
        assert_eq!(told(&json!({"path": "a"}), &every), json!({"path": "a", "content": every}));
        // What has to be written in another way, at every place of a vector and behind it.
        for hard in ['\0', '\n', '\u{1f}', '"', '\\', '\u{7f}', 'é', '😀'] {
            for before in 0..70 {
                let text = format!("{}{hard}{}", "a".repeat(before), "b".repeat(70 - before));
                assert_eq!(told(&json!({"path": "a"}), &text), json!({"path": "a", "content": text}));
            }
        }
    }
}
