//! The drift of a run: how its files differ from its audit. Not in the catalogue, but judged and recorded like a tool.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use model::{LogicalPath, Permission, Refusal, Rules, Sha256};
use serde::{Deserialize, Serialize};
use workspace::{BoundedEntries, DiffFile, Workspace, WorkspaceError};

use crate::run::known_versions::ExpectedFile;
use crate::tool::input::parse;
use crate::tool::output::{MAX_RECORDED_PATHS, ReadOutput, ToolOutput};
use crate::tool::{ReadContext, ReadTool, Tool, ToolRun, ToolSchema};

/// The size of an entry's JSON without its path, in bytes.
const ENTRY_BYTES: usize = 220;

/// `GET …/drift`.
pub(crate) static DRIFT: Tool = Tool {
    name: "drift",
    description: "Returns the paths whose files differ from the run's audit.",
    is_expensive: true,
    permissions: &[Permission::FileDiff],
    content: &[],
    input: ToolSchema::of::<NoInput>,
    output: ToolSchema::of::<DriftReport>,
    run: ToolRun::Read(|members| Ok(Box::new(parse::<ExpectedFiles>(members)?))),
};

/// No members.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NoInput {}

/// What every path that the run has written should have, from its audit.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExpectedFiles {
    /// The file that each path should have.
    pub written: BTreeMap<LogicalPath, ExpectedFile>,
}

/// How a path differs: the name of the change, the expected and the actual hash.
type Difference = (&'static str, Option<Sha256>, Option<Sha256>);

/// How a run's files differ from its audit.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriftReport {
    /// The paths that differ, sorted. Paths that the policy hides are omitted.
    items: Vec<DriftEntry>,
    /// Whether paths are omitted because the list would exceed 2 MiB.
    truncated: bool,
    /// The number of paths that the run has written.
    written: usize,
}

impl ToolOutput for DriftReport {}

/// A path that was changed from outside, not by a call.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct DriftEntry {
    /// The path. Bytes that are not UTF-8 are written `\xNN`.
    path: String,
    /// `created`, `modified` or `deleted`; `mode` if only the executable bit differs.
    change: &'static str,
    /// The hash in the audit, or in the base for a path that no call has written. Omitted if no file should exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    expected_sha256: Option<Sha256>,
    /// The present hash. Omitted if no file exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    actual_sha256: Option<Sha256>,
}

/// Returns the name of a change between two versions of a path.
pub(crate) fn change_name(old: Option<Sha256>, new: Option<Sha256>) -> &'static str {
    match (old, new) {
        (None, _) => "created",
        (Some(_), None) => "deleted",
        (Some(_), Some(_)) => "modified",
    }
}

impl ExpectedFiles {
    /// Compares the files with the audit, and passes each difference to `found`.
    ///
    /// # Errors
    ///
    /// If the disk fails; `Cancelled`.
    pub(crate) fn compare(
        &self,
        workspace: &Workspace,
        rules: &Rules,
        cancel: &AtomicBool,
        found: &mut dyn FnMut(LogicalPath, Difference),
    ) -> Result<(), WorkspaceError> {
        // Written paths that do not differ from the base may still differ from the audit, and modes are compared by `stat`.
        let mut unvisited: BTreeMap<&LogicalPath, ExpectedFile> =
            self.written.iter().map(|(path, expected)| (path, *expected)).collect();
        let mut compare = |path: &LogicalPath, file: &DiffFile| {
            let written = self.written.get(path);
            let (expected, actual) = (written.map_or(file.old_sha256, |written| written.sha256), file.new_sha256);
            if expected != actual {
                unvisited.remove(path);
                found(path.clone(), (change_name(expected, actual), expected, actual));
            } else if written.is_none() {
                // The same bytes: the executable bit differs.
                found(path.clone(), ("mode", expected, actual));
            } else if written.is_some_and(|written| written.executable.is_none() || actual.is_none()) {
                unvisited.remove(path);
            }
        };
        workspace.diff_files(rules, &mut compare, cancel)?;
        for (path, ExpectedFile { sha256: expected, executable }) in unvisited {
            let stat = match workspace.tree().stat(rules, path, cancel) {
                Err(WorkspaceError::Refused(_)) => continue,
                stat => stat?,
            };
            let actual = match &stat.found {
                None => None,
                // The file exists, but it is too large to be hashed, or the policy hides its content.
                Some(found) if found.sha256.is_none() && expected.is_some() => continue,
                Some(found) => found.sha256,
            };
            let is_executable = stat.found.as_ref().map(|found| found.mode & 0o111 != 0);
            if expected != actual {
                found(path.clone(), (change_name(expected, actual), expected, actual));
            } else if actual.is_some() && executable.is_some_and(|executable| is_executable != Some(executable)) {
                found(path.clone(), ("mode", expected, actual));
            }
        }
        Ok(())
    }
}

impl ReadTool for ExpectedFiles {
    fn needs_one_state(&self) -> bool {
        // The files are compared with the audit, for which the caller has locked the run.
        false
    }

    fn read(&self, context: &ReadContext<'_>) -> Result<ReadOutput, WorkspaceError> {
        let workspace = context
            .workspace
            .ok_or_else(|| Refusal::invalid("a mount has no drift: it has no base", "Leave out `mount`."))?;
        let mut items = BoundedEntries::new(usize::MAX, ENTRY_BYTES);
        self.compare(workspace, context.rules, context.cancel, &mut |path, difference| items.insert(path, difference))?;
        let (items, truncated) = items.finish();
        let paths_read = items.keys().take(MAX_RECORDED_PATHS).cloned().collect();
        let entry = |(path, (change, expected_sha256, actual_sha256)): (LogicalPath, _)| DriftEntry {
            path: path.into(),
            change,
            expected_sha256,
            actual_sha256,
        };
        let items = items.into_iter().map(entry).collect();
        Ok(ReadOutput::new(DriftReport { items, truncated, written: self.written.len() }, paths_read))
    }

    fn paths(&self) -> Vec<LogicalPath> {
        Vec::new()
    }
}
