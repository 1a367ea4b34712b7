//! A look at a whole run that is no tool: what differs from what its ledger says. It is judged and recorded as reads are.

use std::collections::BTreeMap;

use model::{LogicalPath, Permission, Refusal, Sha256};
use serde::{Deserialize, Serialize};
use workspace::{BoundedEntries, DiffFile, Workspace, WorkspaceError};

use crate::history::change_feed::change_of;
use crate::tool::input::parse;
use crate::tool::output::ReadOutput;
use crate::tool::{ReadContext, ReadTool, Tool, ToolRun, ToolSchema};

/// What a path is told with beside itself, in bytes of JSON.
const BESIDE_PATH: usize = 220;

/// `GET …/drift`.
pub static DRIFT: Tool = Tool {
    name: "drift",
    description: "Tells what differs from what the ledger says.",
    is_expensive: true,
    permissions: &[Permission::FileDiff],
    content: &[],
    input: ToolSchema::of::<Nothing>,
    output: ToolSchema::of::<DriftReport>,
    run: ToolRun::Read(|members| Ok(Box::new(parse::<Expected>(members)?))),
};

/// No members.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Nothing {}

/// What the ledger says of every path that the run has written.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    /// The hash that each path should have; none where nothing should be there.
    pub written: BTreeMap<LogicalPath, Option<Sha256>>,
}

/// What differs from what the ledger says.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriftReport {
    /// The paths that differ, in order. Paths that policy hides are left out.
    items: Vec<DriftEntry>,
    /// Whether paths are missing because there were more than 2 MiB of them.
    truncated: bool,
    /// How many paths the run has written.
    written: usize,
}

/// One path that was changed by something else than a call.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DriftEntry {
    /// The path; bytes that are no UTF-8 are written `\xNN`.
    path: String,
    /// `created`, `modified` or `deleted`; `mode` where only the executable bit of a file that no call has written differs.
    change: &'static str,
    /// What the ledger says, or the base for what no call has written; missing where nothing should be there.
    #[serde(skip_serializing_if = "Option::is_none")]
    expected_sha256: Option<Sha256>,
    /// What is there; missing where nothing is.
    #[serde(skip_serializing_if = "Option::is_none")]
    actual_sha256: Option<Sha256>,
}

impl ReadTool for Expected {
    fn read(&self, context: &ReadContext<'_>) -> Result<ReadOutput, WorkspaceError> {
        let mut rest: BTreeMap<&LogicalPath, Option<Sha256>> =
            self.written.iter().map(|(path, expected)| (path, *expected)).collect();
        let mut items = BoundedEntries::new(usize::MAX, BESIDE_PATH);
        let mut each = |path: &LogicalPath, file: &DiffFile| {
            let written = rest.remove(path);
            let (expected, actual) = (written.unwrap_or(file.old_sha256), file.new_sha256);
            if expected != actual {
                items.insert(path.clone(), (change_of(expected, actual), expected, actual));
            } else if written.is_none() {
                // The same bytes, and yet it differs. Of a file that a call has written the audit tells no bits.
                items.insert(path.clone(), ("mode", expected, actual));
            }
        };
        own(context)?.diff_files(context.rules, &mut each, context.cancel)?;
        // What was written and is as in the base: the ledger may say otherwise.
        for (path, expected) in rest {
            let stat = match context.tree.stat(context.rules, path, context.cancel) {
                Err(WorkspaceError::Refused(_)) => continue,
                stat => stat?,
            };
            let actual = match &stat.found {
                None => None,
                // It is there, and its bytes may not be told, or are too many to be looked at.
                Some(found) if found.sha256.is_none() && expected.is_some() => continue,
                Some(found) => found.sha256,
            };
            if expected != actual {
                items.insert(path.clone(), (change_of(expected, actual), expected, actual));
            }
        }
        let (items, truncated) = items.finish();
        let paths_read = items.keys().take(crate::tool::output::MAX_RECORDED_PATHS).cloned().collect();
        let drifted = |(path, (change, expected_sha256, actual_sha256)): (LogicalPath, _)| DriftEntry {
            path: path.into(),
            change,
            expected_sha256,
            actual_sha256,
        };
        let items = items.into_iter().map(drifted).collect();
        ReadOutput::new(&DriftReport { items, truncated, written: self.written.len() }, paths_read)
    }

    fn paths(&self) -> Vec<LogicalPath> {
        Vec::new()
    }
}

fn own<'a>(context: &ReadContext<'a>) -> Result<&'a Workspace, WorkspaceError> {
    let missing = || Refusal::invalid("a mount has no base", "Leave the mount out.");
    Ok(context.workspace.ok_or_else(missing)?)
}
