//! `write_file`: writes the whole content of a file.

mod form;
pub(crate) mod merge;

use model::{Code, LogicalPath, Permission, Refusal};
use serde::Deserialize;

use crate::tool::expected_version::{ExpectedVersion, expect_version};
use crate::tool::input::{self, check_new, file_path, new_file_path, parse};
use crate::tool::{Tool, ToolRun, ToolSchema, WriteMode};
use crate::tools::edits::{Edit, Edited, Present, TextEdit, TextEditOutput, WholeText};
use merge::{OnConflict, merge_change};

pub(crate) const TOOL: Tool = Tool {
    name: "write_file",
    description: "Writes the whole content of one text file. An existing file is replaced only if it is as you last read it, \
                  unless onConflict is `merge` and the changes are of other lines. Prefer edit_file for small changes.",
    is_expensive: false,
    permissions: &[Permission::FileWriteCreate, Permission::FileWriteReplace],
    content: &[],
    input: ToolSchema::of::<WriteFileInput>,
    output: ToolSchema::of::<TextEditOutput>,
    run: ToolRun::Mutation(|members| Ok(Box::new(TextEdit::try_from(parse::<WriteFileInput>(members)?)?))),
};

/// The input of `write_file`.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"path": "src/hello.txt", "content": "hello\n", "mode": "CREATE_NEW", "reason": "greet"}))]
pub(crate) struct WriteFileInput {
    /// Relative to the workspace root. Missing folders are created.
    path: String,
    /// The whole text.
    content: String,
    /// Whether the file may or must exist.
    #[serde(default)]
    #[schema(inline)]
    mode: WriteMode,
    /// The version of the file to replace. Required if the file exists.
    #[serde(default)]
    expected_sha256: Option<ExpectedVersion>,
    /// What to do if the file has changed.
    #[serde(default)]
    #[schema(inline)]
    on_conflict: OnConflict,
    /// Default: that of the file, or utf-8.
    #[serde(default)]
    encoding: Option<String>,
    /// Default: that of the file.
    #[serde(default)]
    #[schema(inline)]
    line_ending: Option<NewLineEnding>,
}

/// How the lines of a file are to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum NewLineEnding {
    Lf,
    Crlf,
}

impl TryFrom<WriteFileInput> for TextEdit {
    type Error = Refusal;

    fn try_from(input: WriteFileInput) -> Result<Self, Refusal> {
        let is_new = input.mode == WriteMode::CreateNew;
        Ok(Self {
            path: if is_new { new_file_path(&input.path)? } else { file_path(&input.path)? },
            // A new file has no version that somebody could have seen.
            expected: input.expected_sha256.filter(|expected| !is_new || expected.seen().is_none()),
            encoding: input::encoding(input.encoding.as_deref())?,
            edit: Edit::Whole(WholeText {
                content: input.content,
                mode: input.mode,
                on_conflict: input.on_conflict,
                line_ending: input.line_ending,
                base: None,
            }),
        })
    }
}

impl WholeText {
    /// Writes the content over the `present` file, or merges it in if the caller asks for that.
    ///
    /// # Errors
    ///
    /// `ALREADY_EXISTS`, `NOT_FOUND`; `UNSUPPORTED_BINARY` for characters that the encoding lacks.
    pub(crate) fn write(&self, edit: &TextEdit, present: Option<&Present>) -> Result<Edited, Refusal> {
        let path = &edit.path;
        match (self.mode, present) {
            (WriteMode::CreateNew, Some(_)) => return Err(already_exists(path)),
            (WriteMode::ReplaceExisting, None) => return Err(Refusal::not_found(path)),
            (WriteMode::CreateOrReplace, None) => check_new(path)?,
            (WriteMode::CreateNew, None) | (WriteMode::ReplaceExisting | WriteMode::CreateOrReplace, Some(_)) => {}
        }
        let current = present.map(|(state, _)| state.sha256);
        // Faults of the content precede conflicts, so that a refused content is still checked.
        let version = edit.expected.and_then(ExpectedVersion::sha256);
        let mut conflict = expect_version(path, current, edit.expected).err();
        if let (Some(refusal), Some((_, present)), Some(_), OnConflict::Merge) =
            (&conflict, present, version, self.on_conflict)
        {
            match merge_change(path, self.base.as_ref(), present, &self.content, refusal) {
                Ok(bytes) => {
                    let done = format!("merged into {path}");
                    return Ok(Edited { bytes, done, merged_from: current, ..Edited::default() });
                }
                Err(refusal) => conflict = Some(refusal),
            }
        }
        let (bytes, warnings) = self.in_form_of(edit, present.map(|(_, bytes)| bytes.as_slice()))?;
        let verb = if present.is_some() { "replaced" } else { "created" };
        Ok(Edited { bytes, warnings, done: format!("{verb} {path}"), conflict, ..Edited::default() })
    }
}

/// Returns the refusal of creating `path`, which exists.
pub(crate) fn already_exists(path: &LogicalPath) -> Refusal {
    Refusal::new(
        Code::AlreadyExists,
        format!("`{path}` already exists"),
        "Choose another path. Or read the file, then change it with edit_file. Or replace it by write_file with mode \
         REPLACE_EXISTING.",
    )
    .at(path)
}
