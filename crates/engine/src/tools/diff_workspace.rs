//! `diff_workspace`: how the tree differs from what the run started with.

use model::{LogicalPath, Permission, Refusal, Sha256};
use serde::{Deserialize, Serialize};
use workspace::{DiffFile, DiffQuery, Workspace, WorkspaceDiff, WorkspaceError};

use crate::runs::changed_paths::ChangedPaths;
use crate::tool::at_record::AtRecord;
use crate::tool::input::{any_path, bounded, parse};
use crate::tool::output::{ReadOutput, skip_text_member};
use crate::tool::{ReadContext, ReadTool, Tool, ToolRun, ToolSchema};

/// The most diff text that one call tells, in bytes.
pub(crate) const MAX_DIFF_BYTES: u64 = 1024 * 1024;

pub(crate) const TOOL: Tool = Tool {
    name: "diff_workspace",
    description: "Shows everything that differs from what the run started with, as one unified diff with counts. Use \
                  statOnly first where much has changed. In a large tree checkTree=false is quicker and looks only at what \
                  the run's calls have touched. With atSeq it shows what differed at an earlier record.",
    is_expensive: true,
    permissions: &[Permission::FileDiff],
    content: &["diff"],
    input: ToolSchema::of::<DiffWorkspaceInput>,
    output: ToolSchema::of::<DiffWorkspaceOutput>,
    run: ToolRun::Read(|members| Ok(Box::new(Diff::try_from(parse::<DiffWorkspaceInput>(members)?)?))),
};

/// What `diff_workspace` takes.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"statOnly": true}))]
pub(crate) struct DiffWorkspaceInput {
    /// Only this file or folder.
    #[serde(default)]
    path: Option<String>,
    /// Leave out the diff's text.
    #[serde(default)]
    stat_only: bool,
    /// At most so many bytes of text, cut at a line's end. Taken as 1 MiB where it is more.
    #[serde(default = "default_max_bytes")]
    #[schema(minimum = 1, maximum = 1_048_576, default = 120_000)]
    max_bytes: u64,
    /// Look at every file of the tree. With `false` only at those that calls of the run have touched and that an earlier look
    /// at the whole tree has found different: a change from outside may be missing then. Where nobody has looked at the whole
    /// tree yet, that is done all the same.
    #[serde(default = "default_check_tree")]
    #[schema(default = true)]
    check_tree: bool,
    /// Compare the files as they were at this record of the run's audit; 0 is what the run started from.
    #[serde(default)]
    #[schema(minimum = 0)]
    at_seq: Option<u64>,
}

fn default_max_bytes() -> u64 {
    120_000
}

fn default_check_tree() -> bool {
    true
}

/// What `diff_workspace` answers.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DiffWorkspaceOutput<'a> {
    /// The commit that the run started from.
    base_commit: &'a str,
    /// How many files differ.
    files_changed: usize,
    /// Lines added.
    insertions: u64,
    /// Lines removed.
    deletions: u64,
    /// As `git diff --stat` writes it, of `files`; where some are left out, with a line that says how many.
    stat: &'a str,
    /// The files that differ, sorted by path; those after the first 2 MiB are left out.
    files: &'a [DiffFile],
    /// The text, cut at a line's end.
    #[serde(skip_serializing_if = "skip_text_member")]
    #[schema(required = true)]
    diff: &'a str,
    /// Whether text or files are missing.
    truncated: bool,
    /// Hash of the whole text, not only of what is shown.
    diff_sha256: Sha256,
    /// `false` where not the whole tree was looked at, but only what is known to differ.
    #[serde(skip_serializing_if = "Option::is_none")]
    tree_checked: Option<bool>,
    /// The record whose files were compared, where one was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    at_seq: Option<u64>,
}

struct Diff {
    query: DiffQuery,
    check_tree: bool,
    at_seq: Option<u64>,
}

impl TryFrom<DiffWorkspaceInput> for Diff {
    type Error = Refusal;

    fn try_from(input: DiffWorkspaceInput) -> Result<Self, Refusal> {
        let max_bytes = bounded("maxBytes", input.max_bytes, 1, MAX_DIFF_BYTES)?;
        let query = DiffQuery {
            path: input.path.as_deref().map(any_path).transpose()?.filter(|path| !path.is_root()),
            stat_only: input.stat_only,
            max_bytes: usize::try_from(max_bytes).unwrap_or(usize::MAX),
        };
        Ok(Self { query, check_tree: input.check_tree, at_seq: input.at_seq })
    }
}

impl Diff {
    /// Looks at the tree, and at the whole of it leaves what differs for whoever does not.
    fn check(&self, context: &ReadContext<'_>, workspace: &Workspace) -> Result<WorkspaceDiff, WorkspaceError> {
        let before = context.changed.map(|changed| (changed, changed.start_scan()));
        let diff = workspace.diff(context.rules, &self.query, context.cancel)?;
        if let Some((changed, turn)) = before.filter(|_| self.query.path.is_none()) {
            changed.finish_scan(turn, diff.changed.clone());
        }
        Ok(diff)
    }
}

impl ReadTool for Diff {
    fn at_record(&self) -> Option<AtRecord> {
        self.at_seq.map(|seq| AtRecord { seq, with_modes: true, only: None })
    }

    fn read(&self, context: &ReadContext<'_>) -> Result<ReadOutput, WorkspaceError> {
        let workspace = context.workspace.ok_or_else(|| {
            Refusal::invalid("a mount has no diff: it never changes", "Call diff_workspace without `mount`.")
        })?;
        let (rules, query, cancel) = (context.rules, &self.query, context.cancel);
        let known = context.changed.filter(|_| !self.check_tree).and_then(ChangedPaths::get);
        let diff = match (context.snapshot, &known) {
            (Some(past), _) => workspace.diff_snapshot(rules, &past.files, query, past.contents.as_ref(), cancel)?,
            (None, Some(known)) => workspace.diff_paths(rules, query, known, cancel)?,
            (None, None) => self.check(context, workspace)?,
        };
        let output = DiffWorkspaceOutput {
            base_commit: workspace.base_commit(),
            files_changed: diff.files_changed,
            insertions: diff.insertions,
            deletions: diff.deletions,
            stat: &diff.stat,
            files: &diff.files,
            diff: &diff.diff,
            truncated: diff.truncated,
            diff_sha256: diff.diff_sha256,
            tree_checked: (context.snapshot.is_none() && known.is_some()).then_some(false),
            at_seq: self.at_seq,
        };
        ReadOutput::with_text(
            &output,
            "diff",
            &diff.diff,
            diff.paths().take(crate::tool::output::MAX_RECORDED_PATHS).collect(),
        )
    }

    fn paths(&self) -> Vec<LogicalPath> {
        self.query.path.iter().cloned().collect()
    }
}
