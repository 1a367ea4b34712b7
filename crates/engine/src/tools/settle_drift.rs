//! `POST …/drift`: settles files that differ from the run's audit.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use model::{Effect, LogicalPath, Permission, Refusal, Rules, Sha256};
use serde::{Deserialize, Serialize};
use workspace::{Target, Workspace, WorkspaceError};

use super::drift::change_name;
use crate::CallError;
use crate::tool::change_plan::{ChangePlan, DesiredFile};
use crate::tool::earlier_calls::StoredContent;
use crate::tool::input::{any_path, parse};
use crate::tool::output::members;
use crate::tool::outside_change::{Accept, OutsideChange};
use crate::tool::text::notes::counted;
use crate::tool::{Mutation, PlanContext, RunLookup, Scope, Tool, ToolRun, ToolSchema};

/// The most paths of one call.
pub(crate) const MAX_PATHS: usize = 500;

/// `POST …/drift`.
pub static SETTLE: Tool = Tool {
    name: "settle_drift",
    description: "Accepts files that were changed from outside as they are, or restores them from the run's audit.",
    is_expensive: true,
    permissions: &[Permission::FileWriteReplace],
    content: &[],
    input: ToolSchema::of::<SettleInput>,
    output: ToolSchema::of::<SettledDrift>,
    run: ToolRun::Mutation(|members| Ok(Box::new(SettleDrift::try_from(parse::<SettleInput>(members)?)?))),
};

/// The input of a settlement.
#[derive(Clone, Debug, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"accept": "tree", "paths": ["src/main.rs"], "reason": "a person has edited it"}))]
pub(crate) struct SettleInput {
    /// The side that is accepted.
    pub accept: Accept,
    /// The paths to settle, at most 500. Without it, those that `GET …/drift` lists, as many as fit into one call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_items = 500)]
    pub paths: Option<Vec<String>>,
}

/// The result of a settlement.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SettledDrift {
    /// The accepted side.
    accept: Accept,
    /// The files that are settled, sorted by path.
    files: Vec<SettledFile>,
    /// Paths that this call cannot settle: policy denies their change, or they are not regular files. `workspaced repair` settles
    /// them offline.
    skipped: Vec<LogicalPath>,
    /// How many paths are left for further calls.
    remaining: usize,
}

/// A settled file.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SettledFile {
    /// The path.
    path: LogicalPath,
    /// How it was changed from outside: `created`, `modified`, `deleted` or `mode`.
    change: &'static str,
    /// The hash that the audit had. Omitted if it had no file.
    #[serde(skip_serializing_if = "Option::is_none")]
    known_sha256: Option<Sha256>,
    /// The hash that was found. Omitted if there was no file.
    #[serde(skip_serializing_if = "Option::is_none")]
    found_sha256: Option<Sha256>,
}

/// A settlement.
pub(crate) struct SettleDrift {
    accept: Accept,
    paths: Vec<LogicalPath>,
    /// Whether the paths are all that differ, of which those that cannot be settled are skipped.
    is_all: bool,
    /// How many of the paths have been looked at.
    examined: usize,
    /// The contents that the audit has, once they are known, if they are to be restored.
    contents: Option<BTreeMap<LogicalPath, (Sha256, StoredContent)>>,
}

impl TryFrom<SettleInput> for SettleDrift {
    type Error = Refusal;

    fn try_from(input: SettleInput) -> Result<Self, Refusal> {
        let raw = input.paths.unwrap_or_default();
        if raw.is_empty() || raw.len() > MAX_PATHS {
            let message = format!("`paths` has {} entries; it takes 1 to {MAX_PATHS}", raw.len());
            return Err(Refusal::invalid(message, "Leave out `paths`, or settle the paths in several calls."));
        }
        let paths: BTreeSet<_> = raw.iter().map(|raw| any_path(raw)).collect::<Result<_, _>>()?;
        Ok(Self {
            accept: input.accept,
            paths: paths.into_iter().collect(),
            is_all: false,
            examined: 0,
            contents: None,
        })
    }
}

impl SettleDrift {
    /// Creates a settlement of all of `paths` that can be settled, as many as fit into one call.
    pub(crate) fn of_all(accept: Accept, paths: Vec<LogicalPath>) -> Self {
        Self { accept, paths, is_all: true, examined: 0, contents: None }
    }
}

#[async_trait]
impl Mutation for SettleDrift {
    async fn prepare(&mut self, lookup: &dyn RunLookup) -> Result<(), CallError> {
        if self.accept == Accept::Ledger {
            self.contents = Some(lookup.recorded_contents(self.first_paths()).await?);
        }
        Ok(())
    }

    fn scope(&self) -> Scope {
        let removed = if self.accept == Accept::Ledger { self.first_paths() } else { Vec::new() };
        // The budgets are the agent's.
        Scope { changed: Some(Vec::new()), removed, ..Scope::of(self.first_paths()) }
    }

    fn targets(
        &mut self,
        rules: &Rules,
        workspace: &Workspace,
        scope: &Scope,
        removed: &BTreeSet<LogicalPath>,
    ) -> Result<Vec<Target>, WorkspaceError> {
        let max_bytes = rules.policy().max_file_bytes;
        if !self.is_all {
            self.examined = scope.paths.len();
            return workspace.targets_of_any_kind(rules, &scope.paths, removed, max_bytes, |_| true);
        }
        let (mut targets, mut held_bytes) = (Vec::new(), 0);
        for path in &scope.paths {
            // Contents to be restored are in memory too.
            if held_bytes > rules.policy().max_call_bytes() / 4 {
                break;
            }
            self.examined += 1;
            match workspace.targets_of_any_kind(rules, std::slice::from_ref(path), removed, max_bytes, |_| true) {
                Ok(found) => {
                    let bytes = found.iter().filter_map(|target| target.before.as_ref()).map(|(_, bytes)| bytes.len());
                    held_bytes += bytes.sum::<usize>() as u64;
                    targets.extend(found);
                }
                Err(WorkspaceError::Refused(_)) => {}
                Err(fault) => return Err(fault),
            }
        }
        Ok(targets)
    }

    fn plan(&mut self, context: &PlanContext<'_>, targets: Vec<Target>) -> Result<ChangePlan, Refusal> {
        let targeted: BTreeSet<_> = targets.iter().map(|target| &target.path).collect();
        let examined = &self.paths[..self.examined.min(self.paths.len())];
        let mut skipped: BTreeSet<_> = examined.iter().filter(|path| !targeted.contains(path)).cloned().collect();
        let (mut outside, mut desired) = (Vec::new(), Vec::new());
        for change in context.outside {
            match self.accept {
                Accept::Tree => {}
                Accept::Ledger => match self.restored(change) {
                    Ok(file) => desired.push(file),
                    Err(_) if self.is_all => {
                        skipped.insert(change.path.clone());
                        continue;
                    }
                    Err(refusal) => return Err(refusal),
                },
            }
            outside.push(change.clone());
        }
        let mut plan = ChangePlan::build_any_kind(context.rules, targets, desired, Vec::new());
        let files: Vec<_> = outside.iter().map(SettledFile::from).collect();
        let settled = counted(files.len() as u64, "path", "paths");
        plan.summary = match self.accept {
            Accept::Tree => format!("accepted {settled} as found"),
            Accept::Ledger => format!("restored {settled} from the audit"),
        };
        let (skipped, remaining) = (skipped.into_iter().collect(), self.paths.len() - examined.len());
        plan.output = members(&SettledDrift { accept: self.accept, files, skipped, remaining });
        (plan.settlement, plan.outside) = (Some(self.accept), outside);
        Ok(plan)
    }
}

impl SettleDrift {
    /// Returns the paths that one call takes.
    fn first_paths(&self) -> Vec<LogicalPath> {
        self.paths.iter().take(MAX_PATHS).cloned().collect()
    }

    /// Returns the file as the audit has it.
    fn restored(&self, change: &OutsideChange) -> Result<DesiredFile, Refusal> {
        let OutsideChange { path, known, found } = change;
        let Some(known) = known else {
            return Ok(DesiredFile { path: path.clone(), effect: Effect::Delete, after: None });
        };
        let effect = if found.is_some() { Effect::Replace } else { Effect::Create };
        let mode = known.mode.bits();
        match self.contents.as_ref().and_then(|contents| contents.get(path)) {
            Some((sha256, StoredContent::Bytes(bytes))) if *sha256 == known.sha256 => {
                Ok(DesiredFile { path: path.clone(), effect, after: Some((bytes.clone(), mode)) })
            }
            _ => {
                let message = format!("`{path}` cannot be restored: its recorded content is not stored");
                let hint = "Leave it out, accept the tree, or use `workspaced repair` offline.";
                Err(Refusal::new(model::Code::RevertConflict, message, hint).at(path))
            }
        }
    }
}

impl From<&OutsideChange> for SettledFile {
    fn from(change: &OutsideChange) -> Self {
        let known_sha256 = change.known.map(|known| known.sha256);
        let found_sha256 = change.found.as_ref().map(|found| found.sha256);
        let name = if known_sha256 == found_sha256 { "mode" } else { change_name(known_sha256, found_sha256) };
        Self { path: change.path.clone(), change: name, known_sha256, found_sha256 }
    }
}
