//! The second state of a transaction: what each call would change, planned on top of the calls before it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use model::{
    Code, LogicalPath, Refusal, Rules, ScannedContent, Verdict, judge_call_bytes, judge_change, judge_file_count,
    judge_new_text, judge_scanned_content,
};
use serde_json::Value;
use workspace::Target;

use crate::CallError;
use crate::call::{Call, OpenedCall};
use crate::call_error::refusals::{denied, forbidden};
use crate::read::names::{may_list, with_meant};
use crate::run::open_run::OpenRun;
use crate::run::seen_versions::{SeenVersion, gives_content};
use crate::tool::change_plan::ChangePlan;
use crate::tool::output::ReadOutput;
use crate::tool::outside_change::OutsideChange;
use crate::tool::{Mutation, NewBytes, NewText, PlanContext, ReadContext, ReadTool, Scope};
use crate::transaction::overlay::{PlanOverlay, ReadView};
use crate::transaction::parse::{Loaded, Operation};

/// What the calls would do, up to the first that cannot be planned.
pub(crate) struct Planned {
    /// The calls, in order.
    pub calls: Arc<[OpenedCall]>,
    /// What each would do.
    pub items: Vec<PlannedItem>,
    /// The files as the calls would leave them.
    pub overlay: PlanOverlay,
    /// The rules that judge the calls.
    pub rules: Arc<Rules>,
    /// The versions of files that the calls give their caller.
    given: GivenVersions,
    /// The call that cannot be planned, and why.
    pub stopped: Option<(usize, CallError)>,
}

/// What one call would do.
pub(crate) enum PlannedItem {
    /// It changes files.
    Change(ChangePlan),
    /// It has read files.
    Read(ReadOutput),
}

impl Loaded {
    /// Plans every call on top of the calls before it. Changes nothing except caches. `cancel` ends reads.
    pub(crate) fn plan(self, run: &OpenRun, cancel: &AtomicBool) -> Planned {
        let rules = if self.is_of_command() { Arc::new(run.rules.of_command()) } else { Arc::clone(&run.rules) };
        let Self { calls, scopes, operations } = self;
        let mut planned = Planned {
            calls,
            items: Vec::new(),
            overlay: PlanOverlay::default(),
            rules,
            given: GivenVersions::default(),
            stopped: None,
        };
        planned.stopped = check_file_count(&planned.rules, &scopes, &operations);
        if planned.stopped.is_some() {
            return planned;
        }
        let is_batch = operations.len() > 1;
        let mut held_bytes = 0;
        for (index, operation) in operations.into_iter().enumerate() {
            let item = planned.plan_one(run, (index, &scopes[index]), operation, is_batch, cancel).and_then(|item| {
                held_bytes += item.held_bytes();
                match judge_call_bytes(&run.rules, held_bytes).filter(|_| is_batch) {
                    Some(refusal) => Err(refusal.into()),
                    None => Ok(item),
                }
            });
            match item {
                Ok(item) => {
                    if is_batch {
                        planned.given.add(&planned.calls[index], &item);
                    }
                    planned.items.push(item);
                }
                Err(error) => {
                    planned.stopped = Some((index, error));
                    break;
                }
            }
        }
        planned
    }
}

impl Planned {
    fn plan_one(
        &mut self,
        run: &OpenRun,
        (index, scope): (usize, &Scope),
        operation: Operation,
        is_batch: bool,
        cancel: &AtomicBool,
    ) -> Result<PlannedItem, CallError> {
        let call = &self.calls[index];
        match operation {
            Operation::Read(tool) => Ok(PlannedItem::Read(read(run, call, &self.overlay, tool.as_ref(), cancel)?)),
            Operation::Mutation(mut tool) => {
                let seen = self.given.resolve(tool.as_mut());
                let mut plan = plan_change(run, &self.rules, call, tool.as_mut(), scope, &self.overlay)?;
                plan.seen = seen;
                if is_batch {
                    refuse_large_moves(&plan)?;
                    self.overlay.add(&plan);
                }
                Ok(PlannedItem::Change(plan))
            }
        }
    }
}

impl PlannedItem {
    /// Returns the size of the file contents that it holds in memory, in bytes.
    fn held_bytes(&self) -> u64 {
        match self {
            Self::Change(plan) => plan.held_bytes(),
            Self::Read(output) => output.held_bytes(),
        }
    }
}

/// Returns the refusal of the first call with which the calls name more files than their budget allows.
fn check_file_count(rules: &Rules, scopes: &[Scope], operations: &[Operation]) -> Option<(usize, CallError)> {
    let mut named = BTreeSet::new();
    operations.iter().zip(scopes).enumerate().find_map(|(index, (operation, scope))| {
        let Operation::Mutation(_) = operation else { return None };
        named.extend(scope.changed());
        judge_file_count(rules, named.iter().copied()).map(|refusal| (index, refusal.into()))
    })
}

/// Plans a mutation on top of the calls in `overlay`.
fn plan_change(
    run: &OpenRun,
    rules: &Rules,
    call: &OpenedCall,
    tool: &mut dyn Mutation,
    scope: &Scope,
    overlay: &PlanOverlay,
) -> Result<ChangePlan, CallError> {
    let removed: BTreeSet<_> = scope.removed.iter().chain(overlay.removed()).cloned().collect();
    let targets = tool.targets(rules, &run.workspace, scope, &removed).map_err(CallError::from);
    let targets = targets.and_then(|targets| Ok(overlay.apply_to(targets, &removed)?));
    if let Some(secret) = new_credential(tool, targets.as_deref().unwrap_or_default()) {
        return Err(match targets {
            Err(CallError::Refused(refusal)) => refusal.first(secret).into(),
            Err(error) => error,
            Ok(_) => secret.into(),
        });
    }
    let targets = targets?;
    let exists = targets.first().is_some_and(|target| target.before.is_some());
    let needed = scope.write_mode.map(|mode| mode.needed(exists));
    if let Some(needed) = needed.filter(|needed| !call.caller.permissions.contains(needed)) {
        return Err(forbidden(&[needed]).into());
    }
    // What an earlier call of the batch has planned is no change from outside.
    let present: Vec<_> = targets.iter().filter(|target| !overlay.contains(&target.path)).collect();
    let outside = OutsideChange::among(run, present)?;
    let denied = |plan: &ChangePlan| denied_alone(run, rules, call, plan);
    let base_commit = run.workspace.base_commit();
    let context = PlanContext { rules, base_commit, outside: &outside, denied: &denied };
    let not_files: Vec<_> = targets.iter().filter_map(|target| target.not_a_file.clone()).collect();
    let mut plan = match tool.plan(&context, targets).map_err(|refusal| explain_not_found(refusal, not_files)) {
        Ok(plan) => plan,
        Err(refusal) => return Err(with_meant(run.workspace.tree(), &run.rules, may_list(call), refusal)?.into()),
    };
    if plan.settlement.is_none() {
        plan.outside = outside.into_iter().filter(|change| plan.at(&change.path).is_some()).collect();
    }
    // Every change passes here. A path that no tree can hold must never get into the journal.
    if let Some(conflict) = overlay.path_conflict(&plan) {
        return Err(conflict.into());
    }
    if plan.has_workspace_diff_hash {
        let hash = run.known.diff_sha256(&run.workspace, &overlay.versions_with(&plan))?;
        plan.output.insert("newWorkspaceDiffSha256".to_owned(), Value::from(hash.to_string()));
    }
    Ok(plan)
}

/// Returns the changes of a plan that are denied even by themselves, each with its refusal.
fn denied_alone(run: &OpenRun, rules: &Rules, call: &OpenedCall, plan: &ChangePlan) -> Vec<(LogicalPath, Refusal)> {
    let usage = run.accounting.usage();
    let facts = plan.facts(call.evidence_fact, |path| run.known.has_changed(path));
    let denied = facts.into_iter().filter_map(|fact| {
        let path = fact.path.clone();
        let decision = judge_change(rules, &[fact], &usage);
        (decision.verdict == Verdict::Deny)
            .then(|| (path, decision.refusal.unwrap_or_else(|| denied(decision.reasons))))
    });
    denied.collect()
}

/// If a call names a file and another kind of entry has its path, the refusal names that entry.
fn explain_not_found(refusal: Refusal, not_files: Vec<Refusal>) -> Refusal {
    let is_same = |other: &Refusal| refusal.code == Code::NotFound && other.details.path == refusal.details.path;
    not_files.into_iter().find(is_same).unwrap_or(refusal)
}

/// Returns the refusal of a new credential in the call's own content. It precedes everything that depends on the tree.
fn new_credential(tool: &dyn Mutation, targets: &[Target]) -> Option<Refusal> {
    tool.new_texts().into_iter().find_map(|NewText { path, into, bytes }| {
        let target = targets.iter().find(|target| target.path == *into);
        let old = target.and_then(|target| target.before.as_ref()).map(|(_, bytes)| bytes.as_slice());
        match bytes {
            NewBytes::InMemory(bytes) => judge_new_text(path, old, &bytes),
            NewBytes::Scanned(new) => match target.and_then(|target| target.scanned.as_ref()) {
                Some(old) => judge_scanned_content(path, old, new),
                None => judge_scanned_content(path, &old.map(ScannedContent::of).unwrap_or_default(), new),
            },
        }
    })
}

/// Reads the files as the calls in `overlay` would leave them.
fn read(
    run: &OpenRun,
    call: &Call,
    overlay: &PlanOverlay,
    tool: &dyn ReadTool,
    cancel: &AtomicBool,
) -> Result<ReadOutput, CallError> {
    let present = |tree| ReadContext {
        rules: &run.rules,
        tree,
        workspace: None,
        known: None,
        snapshot: None,
        counts_all: false,
        cancel,
    };
    if let Some(name) = &call.mount {
        let tree = run.mount(name)?;
        return Ok(tool.read(&present(&tree))?);
    }
    Ok(match overlay.view(&run.workspace, &tool.paths())? {
        ReadView::Present => {
            let (workspace, known) = (Some(&*run.workspace), Some(&run.known));
            let mut output = tool.read(&ReadContext { workspace, known, ..present(run.workspace.tree()) })?;
            output.warn_in_locked(run)?;
            return Ok(output);
        }
        ReadView::Planned(preview) => tool.read(&present(preview.tree())),
    }?)
}

/// What the calls planned so far give.
#[derive(Default)]
struct GivenVersions(BTreeMap<LogicalPath, SeenVersion>);

impl GivenVersions {
    /// Adds what a planned call gives.
    fn add(&mut self, call: &Call, item: &PlannedItem) {
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
    fn resolve(&self, tool: &mut dyn Mutation) -> Vec<(LogicalPath, SeenVersion)> {
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

/// Refuses a plan that moves a large file: a batch holds the contents of its files in memory.
///
/// # Errors
///
/// `FILE_TOO_LARGE`.
fn refuse_large_moves(planned: &ChangePlan) -> Result<(), Refusal> {
    planned.large_moves().next().map_or(Ok(()), |(from, ..)| {
        let message = format!("`{from}` is too large to be moved in a batch");
        Err(Refusal::new(Code::FileTooLarge, message, "Move it in a separate call.").at(from))
    })
}
