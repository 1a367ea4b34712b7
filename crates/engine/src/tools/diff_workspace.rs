//! `diff_workspace`: compares the tree with the run's base.

use model::{LogicalPath, Permission, Refusal, Sha256};
use serde::{Deserialize, Serialize};
use workspace::{DiffFile, DiffQuery, WorkspaceError};

use crate::run::known_versions::KnownVersions;
use crate::tool::AtRecord;
use crate::tool::input::{any_path, bounded, max_chars, parse};
use crate::tool::output::{MAX_RECORDED_PATHS, ReadOutput, skip_long_text};
use crate::tool::{ReadContext, ReadTool, Tool, ToolRun, ToolSchema};
use crate::tools::text;
use crate::tools::text::diff::MAX_DIFF_BYTES;

pub(crate) const TOOL: Tool = Tool {
    name: "diff_workspace",
    description: "Returns every difference from the run's start, as one unified diff with counts. Use statOnly first if much has \
                  changed.",
    is_expensive: true,
    permissions: &[Permission::FileDiff],
    content: &["diff"],
    input: ToolSchema::of::<DiffWorkspaceInput>,
    output: ToolSchema::of::<DiffWorkspaceOutput>,
    run: ToolRun::Read(|members| Ok(Box::new(Diff::try_from(parse::<DiffWorkspaceInput>(members)?)?))),
};

/// The input of `diff_workspace`.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"statOnly": true}))]
pub(crate) struct DiffWorkspaceInput {
    /// Compare only this file or folder.
    #[serde(default)]
    path: Option<String>,
    /// Omit the text of the diff.
    #[serde(default)]
    stat_only: bool,
    /// At most 1 MiB.
    #[serde(default = "default_max_bytes")]
    #[schema(minimum = 1, default = 120_000)]
    max_bytes: u64,
    /// Whether to compare every file of the tree. With `false`, only files that calls of the run have changed are compared, so files that
    /// were changed from outside are missing.
    #[serde(default = "default_check_tree")]
    #[schema(default = true)]
    check_tree: bool,
    /// Compare the files as they were at this record of the run's audit; 0 is the run's start.
    #[serde(default)]
    #[schema(minimum = 0)]
    at_seq: Option<u64>,
    /// The maximum length of the text, or of the statistics with `statOnly`, in characters, cut at the end of a line.
    #[serde(default)]
    #[schema(minimum = 1)]
    max_chars: Option<u64>,
}

fn default_max_bytes() -> u64 {
    120_000
}

fn default_check_tree() -> bool {
    true
}

/// The output of `diff_workspace`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DiffWorkspaceOutput {
    /// The commit that the run started from.
    pub(crate) base_commit: String,
    /// Number of files that differ.
    pub(crate) files_changed: usize,
    /// Lines added.
    pub(crate) insertions: u64,
    /// Lines removed.
    pub(crate) deletions: u64,
    /// A line for each of `files`, `path | +added -removed`, and one for all. If files are omitted, a line has their number.
    pub(crate) stat: String,
    /// The files that differ, sorted by path. Files after the first 2 MiB of entries are omitted.
    pub(crate) files: Vec<DiffFile>,
    /// The diff's text, cut at the end of a line.
    #[serde(skip_serializing_if = "skip_long_text")]
    #[schema(required = true)]
    pub(crate) diff: String,
    /// Whether text or files are omitted.
    pub(crate) truncated: bool,
    /// The limit at which the text was cut: `maxBytes` or `maxChars`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) truncated_reason: Option<String>,
    /// If that is `maxBytes`: the number of bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_bytes: Option<usize>,
    /// The file in whose diff the text was cut, unless it is the first. Give it as `path` to continue.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_path: Option<String>,
    /// Hash of the whole text, including omitted parts.
    pub(crate) diff_sha256: Sha256,
    /// `false` if only files that calls of the run have changed were compared, not the whole tree.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tree_checked: Option<bool>,
    /// The `atSeq` of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) at_seq: Option<u64>,
}

struct Diff {
    query: DiffQuery,
    check_tree: bool,
    at_seq: Option<u64>,
    max_chars: Option<usize>,
    /// Whether the caller is shown the diff's text.
    shows_content: bool,
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
        let max_chars = max_chars(input.max_chars)?;
        Ok(Self { query, check_tree: input.check_tree, at_seq: input.at_seq, max_chars, shows_content: true })
    }
}

impl ReadTool for Diff {
    /// Ignores `maxChars`: where a text is cut depends on its lines.
    fn restrict_to_metadata(&mut self) -> Result<(), Refusal> {
        (self.max_chars, self.shows_content) = (None, false);
        Ok(())
    }

    fn at_record(&self) -> Option<AtRecord> {
        self.at_seq.map(|seq| AtRecord { seq, only: None })
    }

    fn read(&self, context: &ReadContext<'_>) -> Result<ReadOutput, WorkspaceError> {
        let workspace = context
            .workspace
            .ok_or_else(|| Refusal::invalid("a mount has no diff: it never changes", "Leave out `mount`."))?;
        let (rules, query, cancel) = (context.rules, &self.query, context.cancel);
        let known = context.known.filter(|_| !self.check_tree).map(KnownVersions::paths);
        let mut diff = match (context.snapshot, &known) {
            (Some(snapshot), _) => {
                workspace.diff_snapshot(rules, &snapshot.files, query, snapshot.contents.as_ref(), cancel)?
            }
            (None, known) => workspace.diff_paths(rules, query, known.as_deref(), cancel)?,
        };
        if !self.shows_content {
            // An encoding is determined from the content.
            diff.files.iter_mut().for_each(|file| (file.encoding, file.encoding_guessed) = (None, false));
        }
        // `truncated` may also mean that files are omitted.
        let is_text_cut = diff.truncated && !query.stat_only && Sha256::of(diff.diff.as_bytes()) != diff.diff_sha256;
        let mut truncated_reason = is_text_cut.then_some("maxBytes");
        if let Some(most) = self.max_chars {
            let cut = if query.stat_only { &mut diff.stat } else { &mut diff.diff };
            if text::diff::cut(cut, most) {
                (diff.truncated, truncated_reason) = (true, Some("maxChars"));
            }
        }
        // A text that is cut in its first file would be cut there again.
        let last_file = text::diff::last_file(&diff.diff)
            .filter(|index| *index > 0 && truncated_reason.is_some() && self.shows_content);
        let paths_read = diff.paths().take(MAX_RECORDED_PATHS).collect();
        let output = DiffWorkspaceOutput {
            base_commit: workspace.base_commit().to_owned(),
            files_changed: diff.files_changed,
            insertions: diff.insertions,
            deletions: diff.deletions,
            next_path: last_file.and_then(|index| diff.files.get(index)).map(|file| file.path.clone()),
            stat: diff.stat,
            files: diff.files,
            diff: diff.diff,
            truncated: diff.truncated,
            truncated_reason: truncated_reason.map(str::to_owned),
            max_bytes: (truncated_reason == Some("maxBytes")).then_some(query.max_bytes),
            diff_sha256: diff.diff_sha256,
            tree_checked: (context.snapshot.is_none() && known.is_some()).then_some(false),
            at_seq: self.at_seq,
        };
        Ok(ReadOutput::new(output, paths_read))
    }

    fn paths(&self) -> Vec<LogicalPath> {
        self.query.path.iter().cloned().collect()
    }
}
