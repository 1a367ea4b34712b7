//! What calls of a batch come to, each planned upon those before it.

use std::collections::BTreeSet;
use std::sync::atomic::AtomicBool;

use model::{
    ChangeFacts, Decision, DiskChange, LogicalPath, Usage, Verdict, judge_call_bytes, judge_change, judge_file_count,
};
use workspace::WorkspaceError;

use super::Failure;
use crate::CallError;
use crate::call::CallContext;
use crate::change_plan::{PlanOverlay, View};
use crate::engine::OpenRun;
use crate::runs::quota::Reservation;
use crate::tools::{Mutation, Read, ReadContext, ReadOutput};
use crate::transaction::{Judged, denied, large, plan};

/// One call's way.
pub(in crate::transaction) enum Part {
    Change(Box<dyn Mutation>),
    Look(Box<dyn Read>),
}

/// What one call comes to.
#[expect(clippy::large_enum_variant, reason = "most calls of a batch change something")]
pub(super) enum Outlook {
    Change(Judged),
    Look(ReadOutput),
}

/// What all calls come to.
pub(in crate::transaction) struct Plan {
    pub(super) outlooks: Vec<Outlook>,
    pub(super) ahead: PlanOverlay,
    pub(in crate::transaction) decision: Decision,
    /// What is reserved for all of them on the disk.
    pub(super) disk: Reservation,
    /// By how much they let the tree grow or shrink.
    pub(super) change: DiskChange,
}

impl Part {
    pub(super) fn paths(&self) -> Vec<LogicalPath> {
        match self {
            Self::Change(tool) => tool.paths(),
            Self::Look(tool) => tool.paths(),
        }
    }
}

impl Plan {
    /// What each call changes; `None` for a read.
    pub(in crate::transaction) fn changes(&self) -> impl Iterator<Item = Option<&Judged>> {
        self.outlooks.iter().map(|outlook| match outlook {
            Outlook::Change(judged) => Some(judged),
            Outlook::Look(_) => None,
        })
    }
}

/// Plans each call upon those before it, and judges them together.
pub(super) fn plan_all(
    live: &OpenRun,
    heads: &[CallContext],
    parts: Vec<Part>,
    cancel: &AtomicBool,
) -> Result<Plan, Failure> {
    let before = live.lane.usage();
    let mut ahead = PlanOverlay::default();
    let mut outlooks = Vec::with_capacity(parts.len());
    check_count(live, &parts)?;
    let mut held_bytes = 0;
    for (place, (head, part)) in heads.iter().zip(parts).enumerate() {
        let outlook = match part {
            Part::Look(tool) => {
                let told = look(live, head, &ahead, tool.as_ref(), cancel);
                Outlook::Look(told.map_err(|error| Failure::At(place, error))?)
            }
            Part::Change(tool) => {
                let planned = plan(live, head, tool.as_ref(), &ahead).map_err(|error| Failure::At(place, error))?;
                large::refuse_in_batch(&planned).map_err(|refusal| Failure::At(place, refusal.into()))?;
                let facts = planned.facts(|path| live.lane.has_written(path) || ahead.holds(path));
                let decision = judge_change(&live.rules, &facts, &before);
                let usage = Usage::of(&facts);
                if decision.verdict == Verdict::Deny {
                    let refusal = decision.refusal.unwrap_or_else(|| denied(decision.reasons));
                    return Err(Failure::At(place, refusal.into()));
                }
                ahead.take(&planned);
                Outlook::Change(Judged { planned, decision, usage, disk: live.disk.reservation(), staged: None })
            }
        };
        held_bytes += outlook.held_bytes();
        if let Some(refusal) = judge_call_bytes(&live.rules, held_bytes) {
            return Err(Failure::At(place, refusal.into()));
        }
        outlooks.push(outlook);
    }
    let judge = |count: usize| {
        let facts: Vec<ChangeFacts<'_>> = outlooks[..count]
            .iter()
            .filter_map(|outlook| if let Outlook::Change(judged) = outlook { Some(judged) } else { None })
            .flat_map(|judged| judged.planned.facts(|path| live.lane.has_written(path)))
            .collect();
        judge_change(&live.rules, &facts, &before)
    };
    let decision = judge(outlooks.len());
    if decision.verdict != Verdict::Deny {
        let (disk, change) = reserve(live, &outlooks)?;
        return Ok(Plan { outlooks, ahead, decision, disk, change });
    }
    // Each may by itself: the first that is too much with those before it.
    let counts: Vec<_> = (1..=outlooks.len()).collect();
    let place = counts.partition_point(|count| judge(*count).verdict != Verdict::Deny).min(outlooks.len() - 1);
    let Decision { refusal, reasons, .. } = judge(place + 1);
    Err(Failure::At(place, refusal.unwrap_or_else(|| denied(reasons)).into()))
}

/// Reserves what the calls let the tree grow by together; the first that is too much with those before it is at fault.
fn reserve(live: &OpenRun, outlooks: &[Outlook]) -> Result<(Reservation, DiskChange), Failure> {
    let (mut disk, mut change) = (live.disk.reservation(), DiskChange::default());
    for (place, outlook) in outlooks.iter().enumerate() {
        let Outlook::Change(judged) = outlook else { continue };
        change += judged.planned.disk_change();
        disk.resize(change.growth()).map_err(|refusal| Failure::At(place, refusal.into()))?;
    }
    Ok((disk, change))
}

/// Refuses calls that together name more files than their budget allows: the first that is too much.
fn check_count(live: &OpenRun, parts: &[Part]) -> Result<(), Failure> {
    let mut named = BTreeSet::new();
    for (place, part) in parts.iter().enumerate() {
        let Part::Change(tool) = part else { continue };
        named.extend(tool.changes());
        if let Some(refusal) = judge_file_count(&live.rules, &named) {
            return Err(Failure::At(place, refusal.into()));
        }
    }
    Ok(())
}

impl Outlook {
    /// The bytes of contents that it has in memory.
    fn held_bytes(&self) -> u64 {
        match self {
            Self::Change(judged) => judged.planned.held_bytes(),
            Self::Look(told) => told.output.len() as u64,
        }
    }
}

fn look(
    live: &OpenRun,
    head: &CallContext,
    ahead: &PlanOverlay,
    tool: &dyn Read,
    cancel: &AtomicBool,
) -> Result<ReadOutput, CallError> {
    let rules = &*live.rules;
    if let Some(name) = &head.mount {
        let tree = live.mount(name).ok_or_else(|| crate::call::unknown_mount(name, live))?;
        return Ok(tool.read(&ReadContext {
            rules,
            tree: &tree,
            workspace: None,
            changed: None,
            past: None,
            cancel,
        })?);
    }
    let told: Result<ReadOutput, WorkspaceError> = match ahead.view(&live.workspace, &tool.paths())? {
        View::Now => {
            let workspace = Some(&*live.workspace);
            tool.read(&ReadContext {
                rules,
                tree: live.workspace.tree(),
                workspace,
                changed: Some(&live.changed),
                past: None,
                cancel,
            })
        }
        View::Then(preview) => {
            tool.read(&ReadContext { rules, tree: preview.tree(), workspace: None, changed: None, past: None, cancel })
        }
    };
    Ok(told?)
}
