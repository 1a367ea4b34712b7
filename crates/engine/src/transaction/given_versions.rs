//! The versions of files that the earlier calls of a transaction give their caller.

use std::collections::BTreeMap;

use model::LogicalPath;

use crate::call::Call;
use crate::run::seen_versions::SeenVersion;
use crate::run::seen_versions::gives_content;
use crate::tool::Mutation;
use crate::transaction::plan::PlannedItem;

/// What the calls planned so far give.
#[derive(Default)]
pub(crate) struct GivenVersions(BTreeMap<LogicalPath, SeenVersion>);

impl GivenVersions {
    /// Adds what a planned call gives.
    pub(crate) fn add(&mut self, call: &Call, item: &PlannedItem) {
        match item {
            PlannedItem::Change(plan) => {
                for change in plan.changes() {
                    let after = change.after.as_ref().map(|content| SeenVersion::Version(content.sha256));
                    self.0.insert(change.path.clone(), after.unwrap_or(SeenVersion::Absent));
                }
            }
            PlannedItem::Read(output) if call.mount.is_none() && gives_content(call.tool.name) => {
                let read = output.files.iter().filter_map(|file| Some((file.path.clone(), file.new_sha256?)));
                self.0.extend(read.map(|(path, version)| (path, SeenVersion::Version(version))));
            }
            PlannedItem::Read(_) => {}
        }
    }

    /// Sets what `tool` expects as seen. Returns every version that it expects so.
    pub(crate) fn resolve(&self, tool: &mut dyn Mutation) -> Vec<(LogicalPath, SeenVersion)> {
        let mut seen = Vec::new();
        for (path, expected) in tool.expected_versions() {
            if let Some(version) = self.0.get(path) {
                expected.set_seen(*version);
            }
            seen.extend(expected.seen().map(|version| (path.clone(), version)));
        }
        seen
    }
}
