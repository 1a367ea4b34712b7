//! The outputs of tools.

use std::borrow::Cow;
use std::fmt::Debug;

use model::{FileKind, LogicalPath, RecordFile, Refusal, Rules, Sha256};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use workspace::Transfer;

use crate::run::chain_head::ChainHead;
use crate::tool::text::Rendered;

/// The output of a tool: what its answer has besides the members of every answer.
pub trait ToolOutput: WriteJson + Debug + Send + Sync {
    /// Renders the output for a model. Calls of the files plane have no text.
    fn to_text(&self) -> Rendered {
        Rendered::default()
    }

    /// The name and the value of the member with a long text, which is escaped faster than by serde. Serde skips it: [`skip_long_text`].
    fn long_text(&self) -> Option<(&'static str, Cow<'_, str>)> {
        None
    }

    /// Removes the file content, which [`Tool::content`](crate::tool::Tool::content) names, for a caller without `file:read`. Returns
    /// whether there was any.
    fn withhold(&mut self) -> bool {
        false
    }

    /// The hash of the file, if the output is about a single one; after the change, if the call made one.
    fn sha256(&self) -> Option<Sha256> {
        None
    }

    /// The warnings of a change.
    fn warnings(&self) -> &[String] {
        &[]
    }

    /// Whether the answer names its record.
    fn names_record(&self) -> bool {
        false
    }
}

/// Writes JSON, also of a type that is not known.
pub trait WriteJson {
    /// Appends the value to `out`.
    fn write_json(&self, out: &mut Vec<u8>);
}

impl<T: Serialize> WriteJson for T {
    fn write_json(&self, out: &mut Vec<u8>) {
        // Answers have strings, numbers, lists and maps with names, which always serialise.
        let _infallible = serde_json::to_writer(out, self);
    }
}

/// Returns the members of `output`, which must be a struct.
pub(crate) fn members(output: &impl Serialize) -> Map<String, Value> {
    match serde_json::to_value(output) {
        Ok(Value::Object(members)) => members,
        // A struct of strings, numbers and lists always serialises to an object.
        Ok(_) | Err(_) => Map::new(),
    }
}

/// Skips the member of [`ToolOutput::long_text`].
pub(crate) fn skip_long_text<T>(_: &T) -> bool {
    true
}

/// Whether a count is left out.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature that serde requires")]
pub(crate) fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// A JSON object that is written member by member.
pub(crate) struct JsonObject(Vec<u8>);

impl JsonObject {
    /// An object with a first member, and with room for `bytes`.
    pub(crate) fn new(name: &'static str, value: &impl WriteJson, bytes: usize) -> Self {
        let mut object = Self(Vec::with_capacity(bytes));
        object.0.push(b'{');
        object.member(name, value);
        object
    }

    /// Adds a member.
    pub(crate) fn member(&mut self, name: &'static str, value: &impl WriteJson) {
        self.name(name);
        value.write_json(&mut self.0);
    }

    /// Adds a member, if there is a value.
    pub(crate) fn some(&mut self, name: &'static str, value: Option<&impl WriteJson>) {
        if let Some(value) = value {
            self.member(name, value);
        }
    }

    /// Adds a member whose text may be long.
    pub(crate) fn long_text(&mut self, name: &'static str, text: &str) {
        self.name(name);
        json_escape_simd::escape_into(text, &mut self.0);
    }

    /// Adds the members of a struct or a map, which has at least one.
    pub(crate) fn members_of(&mut self, value: &dyn ToolOutput) {
        let brace = self.0.len();
        value.write_json(&mut self.0);
        self.0.pop();
        if let Some(brace) = self.0.get_mut(brace) {
            *brace = b',';
        }
    }

    fn name(&mut self, name: &'static str) {
        self.0.extend_from_slice(if self.0.len() > 1 { b",\"" } else { b"\"" });
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b"\":");
    }

    /// Returns the text of the object.
    pub(crate) fn finish(mut self) -> String {
        self.0.push(b'}');
        // Serde and the escaping write UTF-8.
        String::from_utf8(self.0).unwrap_or_default()
    }
}

/// The output of a tool that changes files.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ChangeOutput {
    /// The tool's own members.
    #[serde(flatten)]
    pub(crate) members: Map<String, Value>,
    /// The diff of the change.
    pub(crate) artifact_uris: Vec<String>,
    /// One line that describes the change.
    pub(crate) summary: String,
    /// Warnings for the caller.
    pub(crate) warnings: Vec<String>,
}

/// The output of a reading tool, with the parts of its record.
pub struct ReadOutput {
    /// The output.
    pub output: Box<dyn ToolOutput>,
    /// Warnings for the caller.
    pub warnings: Vec<String>,
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

impl ReadOutput {
    /// An output that contains the content or the listing of `paths_read`.
    pub fn new(output: impl ToolOutput + 'static, paths_read: Vec<LogicalPath>) -> Self {
        Self {
            output: Box::new(output),
            warnings: Vec::new(),
            paths_read,
            files: Vec::new(),
            reasons: Vec::new(),
            transfer: None,
            is_outside: false,
            head: None,
        }
    }

    /// Returns about how many bytes of memory the output takes.
    pub fn held_bytes(&self) -> u64 {
        let mut json = Vec::new();
        self.output.write_json(&mut json);
        let long_text = self.output.long_text().map_or(0, |(_, text)| text.len());
        (json.len() + long_text) as u64
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

    /// Adds a file with its kind and version, or a secret file without them.
    #[must_use]
    pub fn with_version(self, path: &LogicalPath, version: Option<(FileKind, Sha256)>) -> Self {
        match version {
            Some((kind, sha256)) => self.with_file(path, kind, sha256),
            None => self.with_redacted(path),
        }
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

    use super::JsonObject;

    fn with_content(text: &str) -> Value {
        let mut object = JsonObject::new("path", &"a", 0);
        object.long_text("content", text);
        serde_json::from_str(&object.finish()).unwrap()
    }

    #[test]
    fn a_text_survives_serialisation_unchanged() {
        let all: String = ('\0'..='\u{3000}').chain(['\u{feff}', '\u{ffff}', '\u{10ffff}']).collect();
        assert_eq!(with_content(&all), json!({"path": "a", "content": all}));
        // Characters that need escapes or several bytes, at every position inside a SIMD vector and after it.
        for special in ['\0', '\n', '\u{1f}', '"', '\\', '\u{7f}', 'é', '😀'] {
            for before in 0..70 {
                let text = format!("{}{special}{}", "a".repeat(before), "b".repeat(70 - before));
                assert_eq!(with_content(&text), json!({"path": "a", "content": text}));
            }
        }
    }
}
