//! `replace_range`: replaces whole lines of a file by their numbers.

use model::{Effect, Encoding, LogicalPath, Permission, RangeFault, Refusal};
use serde::Deserialize;
use workspace::Target;

use super::edit_file::{EditFileOutput, describe};
use crate::tool::change_plan::{ChangePlan, DesiredFile, too_large};
use crate::tool::expected_version::{ExpectedVersion, expect_version};
use crate::tool::input::{self, bounded, check_guess, decode_for_edit, file_path, not_encodable, parse};
use crate::tool::{Mutation, NewText, PlanContext, Scope, Tool, ToolRun, ToolSchema};

pub(crate) const TOOL: Tool = Tool {
    name: "replace_range",
    description: "Replaces lines startLine to endLine of one text file, as read_file numbers them. Read it again after each change, \
                  which moves the numbers. Prefer edit_file for small changes of unique text.",
    is_expensive: false,
    permissions: &[Permission::FileWriteReplace],
    content: &[],
    input: ToolSchema::of::<ReplaceRangeInput>,
    output: ToolSchema::of::<EditFileOutput>,
    run: ToolRun::Mutation(|members| Ok(Box::new(ReplaceRange::try_from(parse::<ReplaceRangeInput>(members)?)?))),
};

/// The input of `replace_range`.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({
    "path": "src/main.rs",
    "startLine": 3,
    "endLine": 4,
    "content": "    let limit = 20;\n",
    "expectedSha256": "seen",
    "reason": "allow more"
}))]
pub(crate) struct ReplaceRangeInput {
    /// Relative to the workspace root.
    path: String,
    /// The first line to replace, from 1.
    #[schema(minimum = 1)]
    start_line: u64,
    /// The last line to replace; startLine - 1 inserts before startLine.
    #[schema(minimum = 0)]
    end_line: u64,
    /// The new lines; empty removes the old ones.
    content: String,
    /// The version of the file whose lines are numbered.
    expected_sha256: ExpectedVersion,
    /// The encoding, if the guess is wrong.
    #[serde(default)]
    encoding: Option<String>,
}

struct ReplaceRange {
    path: LogicalPath,
    start: u64,
    end: u64,
    content: String,
    expected: ExpectedVersion,
    encoding: Option<Encoding>,
}

impl TryFrom<ReplaceRangeInput> for ReplaceRange {
    type Error = Refusal;

    fn try_from(input: ReplaceRangeInput) -> Result<Self, Refusal> {
        let start = bounded("startLine", input.start_line, 1, u64::MAX)?;
        let end = bounded("endLine", input.end_line, start - 1, u64::MAX)?;
        if end < start && input.content.is_empty() {
            let message = "`content` is empty, and no line is replaced";
            return Err(Refusal::invalid(message, "Give the lines to insert, or an `endLine` from `startLine` on."));
        }
        Ok(Self {
            path: file_path(&input.path)?,
            start,
            end,
            content: input.content,
            expected: input.expected_sha256,
            encoding: input::encoding(input.encoding.as_deref())?,
        })
    }
}

impl Mutation for ReplaceRange {
    fn scope(&self) -> Scope {
        Scope::of(vec![self.path.clone()])
    }

    fn new_texts(&self) -> Vec<NewText<'_>> {
        vec![NewText::to(&self.path, self.content.as_bytes())]
    }

    fn expected_versions(&mut self) -> Vec<(&LogicalPath, &mut ExpectedVersion)> {
        vec![(&self.path, &mut self.expected)]
    }

    fn plan(&mut self, context: &PlanContext<'_>, targets: Vec<Target>) -> Result<ChangePlan, Refusal> {
        let Some((state, bytes)) = targets.first().and_then(|target| target.before.as_ref()) else {
            return Err(Refusal::not_found(&self.path));
        };
        let (old_sha256, mode) = (state.sha256, state.mode);
        expect_version(&self.path, Some(old_sha256), Some(self.expected))?;
        let decoded = decode_for_edit(&self.path, bytes, self.encoding)?;
        let encoding = decoded.encoding;
        let max_bytes = encoding.max_text_bytes(context.rules.policy().max_file_bytes);
        let text = model::replace_range(&decoded.text, self.start, self.end, &self.content, max_bytes);
        let text = text.map_err(|fault| match fault {
            RangeFault::TooLong { bytes } => too_large(context.rules, &self.path, encoding.min_bytes_of(bytes)),
            RangeFault::OutOfRange { total_lines } => self.out_of_range(total_lines),
        })?;
        let new_bytes = model::encode(&text, encoding);
        let new_bytes = new_bytes.ok_or_else(|| not_encodable("`content`", &self.path, encoding))?;
        if self.encoding.is_none() {
            check_guess(&self.path, bytes, &new_bytes)?;
        }
        let desired = DesiredFile { path: self.path.clone(), effect: Effect::Replace, after: Some((new_bytes, mode)) };
        let mut plan = ChangePlan::build(context.rules, targets, vec![desired])?;
        describe(&mut plan, &self.path, old_sha256, 1);
        let counts = plan.counts();
        let lines = match (self.start, self.end) {
            (start, end) if end < start => format!("inserted lines before line {start} of"),
            (start, end) if start == end => format!("replaced line {start} of"),
            (start, end) => format!("replaced lines {start}-{end} of"),
        };
        plan.summary = format!("{lines} {} (+{} -{})", self.path, counts.insertions, counts.deletions);
        Ok(plan)
    }
}

impl ReplaceRange {
    fn out_of_range(&self, total_lines: u64) -> Refusal {
        let Self { path, start, end, .. } = self;
        let message = format!("lines {start} to {end} are not all in `{path}`, which has {total_lines} lines");
        let hint = format!(
            "Give lines up to {total_lines}; to append, give startLine {} and endLine {total_lines}.",
            total_lines + 1
        );
        Refusal::invalid(message, hint).at(path).with_details(|details| {
            (details.limit, details.actual) = (Some(total_lines), Some((*end).max(*start)));
            details.total_lines = Some(total_lines);
        })
    }
}
