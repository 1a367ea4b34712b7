//! `edit_file`: one text for another inside a file.

use model::{Code, EditFault, EditResult, Effect, LogicalPath, NearMatch, Permission, Refusal, Sha256};
use serde::{Deserialize, Serialize};
use workspace::Target;

use super::write_file::{expect_version, members};
use crate::tool::change_plan::{ChangePlan, DesiredFile, too_large};
use crate::tool::input::{file_path, not_encodable, parse};
use crate::tool::{Mutation, NewText, PlanContext, Tool, ToolRun, ToolSchema};

pub(crate) const TOOL: Tool = Tool {
    name: "edit_file",
    description: "Replaces oldString by newString in one text file. oldString must stand in the file exactly once, \
                  unless replaceAll is set; give enough lines around it. Everything else stays as it is, byte for byte.",
    is_expensive: false,
    permissions: &[Permission::FileWriteReplace],
    content: &[],
    input: ToolSchema::of::<EditFileInput>,
    output: ToolSchema::of::<EditFileOutput>,
    run: ToolRun::Mutation(|members| Ok(Box::new(EditFile::try_from(parse::<EditFileInput>(members)?)?))),
};

/// What `edit_file` takes.
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
    /// What goes. LF in it also stands for CRLF.
    old_string: String,
    /// What comes in its stead.
    new_string: String,
    /// Whether every occurrence is replaced, from the left, not only one. Where occurrences overlap, each counts.
    #[serde(default)]
    replace_all: bool,
    /// The version that is edited.
    #[serde(default)]
    expected_sha256: Option<Sha256>,
}

/// What `edit_file` answers.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EditFileOutput {
    /// The file, cleaned.
    path: LogicalPath,
    /// Always false: an edit needs a file.
    created: bool,
    /// Hash of what was there.
    old_sha256: Sha256,
    /// Hash of what is there now.
    new_sha256: Sha256,
    /// Its length in bytes.
    bytes_written: u64,
    /// Lines added.
    insertions: u64,
    /// Lines removed.
    deletions: u64,
    /// How many places were changed.
    replacements: u64,
}

struct EditFile {
    path: LogicalPath,
    old: String,
    new: String,
    all: bool,
    expected: Option<Sha256>,
}

impl TryFrom<EditFileInput> for EditFile {
    type Error = Refusal;

    fn try_from(input: EditFileInput) -> Result<Self, Refusal> {
        let invalid = |message: &str, hint: &str| Err(Refusal::invalid(message, hint));
        if input.old_string.is_empty() {
            return invalid("`oldString` is empty", "Give the text that goes; write_file makes new files.");
        }
        if input.old_string == input.new_string {
            return invalid("`oldString` and `newString` are the same", "Give another newString.");
        }
        Ok(Self {
            path: file_path(&input.path)?,
            old: input.old_string,
            new: input.new_string,
            all: input.replace_all,
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
        let decoded = model::decode(bytes).ok_or_else(|| crate::tool::input::unsupported_binary(&self.path))?;
        // What does not come back as it was would change more than the edit says.
        if model::encode(&decoded.text, decoded.encoding).as_deref() != Some(bytes) {
            return Err(crate::tool::input::unsupported_binary(&self.path));
        }
        let encoding = decoded.encoding;
        let max_bytes = encoding.max_text_bytes(context.rules.policy().max_file_bytes);
        let edited = model::edit(&decoded.text, &self.old, &self.new, self.all, max_bytes);
        let EditResult { text, replacements } = edited.map_err(|fault| match fault {
            EditFault::TooLong { bytes } => too_large(context.rules, &self.path, encoding.min_bytes_of(bytes)),
            EditFault::NotFound(near) => not_found(&self.path, near),
            EditFault::NotUnique { occurrences: places, lines } => not_unique(&self.path, places, lines),
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

fn not_unique(path: &LogicalPath, places: u64, lines: Vec<u64>) -> Refusal {
    let message = format!("`oldString` occurs {places} times in `{path}`");
    let hint = "Give more lines around the one that you mean, or set replaceAll.";
    Refusal::new(Code::EditNotUnique, message, hint)
        .at(path)
        .with_details(|details| (details.lines, details.actual) = (lines, Some(places)))
}

fn not_found(path: &LogicalPath, near: Vec<NearMatch>) -> Refusal {
    let message = format!("`oldString` was not found in `{path}`");
    // What is near is content of the file, and never part of the message: that is recorded too.
    let hint = match near.first() {
        None => "Read the file again and copy the text as it is there.".to_owned(),
        Some(best) => {
            let only = best.only.map(|only| format!(" and differs in {only} only")).unwrap_or_default();
            let line = best.line;
            format!(
                "The nearest text is at line {line}{only}. Copy it as it is there: in `difference`, lines with + are in the file."
            )
        }
    };
    Refusal::new(Code::EditNotFound, message, hint).at(path).with_details(|details| {
        details.lines = near.iter().map(|place| place.line).collect();
        details.difference = near.into_iter().next().map(|best| best.difference);
    })
}
