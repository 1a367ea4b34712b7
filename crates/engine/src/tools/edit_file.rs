//! `edit_file`: replaces a text in a file.

use model::{Code, EditFault, EditResult, Effect, LogicalPath, NearMatch, Permission, Refusal, Sha256};
use serde::{Deserialize, Serialize};
use workspace::Target;

use super::write_file::{expect_version, members};
use crate::tool::change_plan::{ChangePlan, DesiredFile, too_large};
use crate::tool::input::{file_path, not_encodable, parse, unsupported_binary};
use crate::tool::{Mutation, NewText, PlanContext, Tool, ToolRun, ToolSchema};

pub(crate) const TOOL: Tool = Tool {
    name: "edit_file",
    description: "Replaces oldString with newString in one text file. oldString must occur exactly once, unless \
                  replaceAll is set; include enough surrounding lines. All other bytes stay unchanged.",
    is_expensive: false,
    permissions: &[Permission::FileWriteReplace],
    content: &[],
    input: ToolSchema::of::<EditFileInput>,
    output: ToolSchema::of::<EditFileOutput>,
    run: ToolRun::Mutation(|members| Ok(Box::new(EditFile::try_from(parse::<EditFileInput>(members)?)?))),
};

/// The input of `edit_file`.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({
    "path": "src/main.rs",
    "oldString": "let limit = 10;",
    "newString": "let limit = 20;",
    "reason": "allow more"
}))]
pub(crate) struct EditFileInput {
    /// The file.
    path: String,
    /// Text to replace. LF also matches CRLF.
    old_string: String,
    /// The new text.
    new_string: String,
    /// Whether to replace every occurrence, from left to right. Without it, overlapping occurrences count separately.
    #[serde(default)]
    replace_all: bool,
    /// The sha256 that the file must have.
    #[serde(default)]
    expected_sha256: Option<Sha256>,
}

/// The output of `edit_file`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EditFileOutput {
    /// The normalised path.
    path: LogicalPath,
    /// Always false: `edit_file` creates no files.
    created: bool,
    /// Hash before the change.
    old_sha256: Sha256,
    /// Hash after the change.
    new_sha256: Sha256,
    /// The new length in bytes.
    bytes_written: u64,
    /// Lines added.
    insertions: u64,
    /// Lines removed.
    deletions: u64,
    /// Number of replaced occurrences.
    replacements: u64,
}

struct EditFile {
    path: LogicalPath,
    old: String,
    new: String,
    replace_all: bool,
    expected: Option<Sha256>,
}

impl TryFrom<EditFileInput> for EditFile {
    type Error = Refusal;

    fn try_from(input: EditFileInput) -> Result<Self, Refusal> {
        let invalid = |message: &str, hint: &str| Err(Refusal::invalid(message, hint));
        if input.old_string.is_empty() {
            return invalid("`oldString` is empty", "Give the text to replace; write_file creates files.");
        }
        if input.old_string == input.new_string {
            return invalid("`oldString` and `newString` are the same", "Give a different `newString`.");
        }
        Ok(Self {
            path: file_path(&input.path)?,
            old: input.old_string,
            new: input.new_string,
            replace_all: input.replace_all,
            expected: input.expected_sha256,
        })
    }
}

impl Mutation for EditFile {
    fn paths(&self) -> Vec<LogicalPath> {
        vec![self.path.clone()]
    }

    fn new_texts(&self) -> Vec<NewText> {
        vec![NewText::to(&self.path, self.new.clone().into_bytes())]
    }

    fn expected_version(&self, _path: &LogicalPath) -> Option<Sha256> {
        self.expected
    }

    fn plan(&self, context: &PlanContext<'_>, targets: Vec<Target>) -> Result<ChangePlan, Refusal> {
        let Some((state, bytes)) = targets.first().and_then(|target| target.before.as_ref()) else {
            return Err(Refusal::not_found(&self.path));
        };
        let (old_sha256, mode) = (state.sha256, state.mode);
        if self.expected.is_some() {
            expect_version(&self.path, Some(old_sha256), self.expected)?;
        }
        let decoded = model::decode(bytes).ok_or_else(|| unsupported_binary(&self.path))?;
        // Bytes that do not survive decoding and encoding would change outside the edit too.
        if model::encode(&decoded.text, decoded.encoding).as_deref() != Some(bytes) {
            return Err(unsupported_binary(&self.path));
        }
        let encoding = decoded.encoding;
        let max_bytes = encoding.max_text_bytes(context.rules.policy().max_file_bytes);
        let edited = model::edit(&decoded.text, &self.old, &self.new, self.replace_all, max_bytes);
        let EditResult { text, replacements } = edited.map_err(|fault| match fault {
            EditFault::TooLong { bytes } => too_large(context.rules, &self.path, encoding.min_bytes_of(bytes)),
            EditFault::NotFound(near) => not_found(&self.path, near),
            EditFault::NotUnique { occurrences, lines } => not_unique(&self.path, occurrences, lines),
        })?;
        let bytes = model::encode(&text, encoding).ok_or_else(|| not_encodable("`newString`", &self.path))?;
        let desired = DesiredFile { path: self.path.clone(), effect: Effect::Replace, after: Some((bytes, mode)) };
        let mut plan = ChangePlan::build(context.rules, targets, vec![desired])?;
        self.describe(&mut plan, old_sha256, replacements);
        Ok(plan)
    }
}

impl EditFile {
    fn describe(&self, plan: &mut ChangePlan, old_sha256: Sha256, replacements: u64) {
        let Some((counts, content)) =
            plan.at(&self.path).and_then(|change| Some((change.counts, change.after.as_ref()?)))
        else {
            return;
        };
        let output = EditFileOutput {
            path: self.path.clone(),
            created: false,
            old_sha256,
            new_sha256: content.sha256,
            bytes_written: content.size_bytes,
            insertions: counts.insertions,
            deletions: counts.deletions,
            replacements,
        };
        plan.summary = format!("edited {}, {replacements} × (+{} -{})", self.path, counts.insertions, counts.deletions);
        plan.output = members(&output);
    }
}

fn not_unique(path: &LogicalPath, occurrences: u64, lines: Vec<u64>) -> Refusal {
    let message = format!("`oldString` occurs {occurrences} times in `{path}`");
    let hint = "Include more surrounding lines in `oldString`, or set `replaceAll`.";
    Refusal::new(Code::EditNotUnique, message, hint)
        .at(path)
        .with_details(|details| (details.lines, details.actual) = (lines, Some(occurrences)))
}

fn not_found(path: &LogicalPath, near: Vec<NearMatch>) -> Refusal {
    let message = format!("`oldString` was not found in `{path}`");
    // The near text is content of the file and must not be in the message, which is recorded.
    let hint = match near.first() {
        None => "Read the file again and copy the text exactly.".to_owned(),
        Some(best) => {
            let only = best.only.map(|only| format!(" and differs in {only} only")).unwrap_or_default();
            let line = best.line;
            format!(
                "The nearest text is at line {line}{only}. Copy it exactly: in `difference`, lines with + are in the file."
            )
        }
    };
    Refusal::new(Code::EditNotFound, message, hint).at(path).with_details(|details| {
        details.lines = near.iter().map(|found| found.line).collect();
        details.difference = near.into_iter().next().map(|best| best.difference);
    })
}
