//! The third state of a transaction: what policy, budgets and quotas say about the planned changes.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::{
    ApprovalFile, ApprovalWarning, By, ChangeFacts, Code, Decision, Disk, DiskChange, Effect, LogicalPath, Refusal,
    Usage, Verdict, change_warnings, judge_change,
};

use crate::call::OpenedCall;
use crate::call::record::Failure;
use crate::call_error::refusals::denied;
use crate::run::open_run::OpenRun;
use crate::run::quota::Reservation;
use crate::tool::change_plan::ChangePlan;
use crate::tool::output::ReadOutput;
use crate::transaction::outside;
use crate::transaction::overlay::PlanOverlay;
use crate::transaction::plan::{Planned, PlannedItem};

/// Planned calls, with the decision about all of them.
pub(crate) struct Judged {
    /// The calls, in order.
    pub calls: Arc<[OpenedCall]>,
    /// What each would do.
    pub items: Vec<JudgedItem>,
    /// The files as the calls would leave them; empty for a single call.
    pub overlay: PlanOverlay,
    /// The decision.
    pub decision: Decision,
    /// The call that the decision denies: of several, the first that exceeds a limit together with those before it.
    pub denied: Option<usize>,
    /// The disk space that is reserved for the change.
    pub disk: Reservation,
    /// How the size of the tree changes.
    pub disk_change: DiskChange,
    /// How the size of the run's own files changes.
    pub own_change: DiskChange,
    /// What the files and texts of changes that have to wait say against them.
    pub warnings: Vec<ApprovalWarning>,
}

/// What one call would do.
pub(crate) enum JudgedItem {
    /// It changes files.
    Change(JudgedChange),
    /// It has read files.
    Read(ReadOutput),
}

/// A change, and what the record says about it.
pub(crate) struct JudgedChange {
    /// The change.
    pub plan: ChangePlan,
    /// The rules that decided about it.
    pub reasons: Vec<String>,
    /// What it takes from the budgets.
    pub usage: Usage,
}

impl Planned {
    /// Judges each change by itself and all of them together, and reserves their disk space.
    ///
    /// # Errors
    ///
    /// The call that could not be planned, unless a call before it is denied.
    pub(crate) fn judge(self, run: &OpenRun) -> Result<Judged, Failure> {
        let Self { calls, items, overlay, stopped, rules, .. } = self;
        let evidence: Vec<_> = calls.iter().map(|call| call.evidence_fact).collect();
        let before = run.accounting.usage();
        let mut judged = Judged {
            calls,
            items: Vec::with_capacity(items.len()),
            overlay,
            decision: allow(),
            denied: None,
            disk: run.disk.reservation(),
            disk_change: DiskChange::default(),
            own_change: DiskChange::default(),
            warnings: Vec::new(),
        };
        let mut earlier: BTreeSet<LogicalPath> = BTreeSet::new();
        for (item, evidence) in items.into_iter().zip(evidence) {
            let mut plan = match item {
                PlannedItem::Change(plan) => plan,
                PlannedItem::Read(output) => {
                    judged.items.push(JudgedItem::Read(output));
                    continue;
                }
            };
            let has_written = |path: &LogicalPath| run.known.has_written(path) || earlier.contains(path);
            let facts = plan.facts(evidence, |path| run.known.has_changed(path) || earlier.contains(path));
            judged.own_change += plan.disk_change(has_written);
            let (decision, usage) = match plan.settlement {
                None => (judge_change(&rules, &facts, &before), Usage::of(&facts)),
                // An operator settles what is in the tree already. Its paths are judged as targets.
                Some(_) => (allow(), Usage::default()),
            };
            judged.decision = match outside::refuse(run.rules.policy().outside_changes, &mut plan) {
                Some(refusal) => denied_first(decision, refusal),
                None => decision,
            };
            earlier.extend(plan.paths());
            if let Some(reserved) = plan.reservation.take() {
                judged.disk = reserved;
            }
            let reasons = judged.decision.reasons.clone();
            judged.items.push(JudgedItem::Change(JudgedChange { plan, reasons, usage }));
            if judged.decision.verdict == Verdict::Deny {
                judged.denied = Some(judged.items.len() - 1);
                return Ok(judged);
            }
        }
        if let Some((index, error)) = stopped {
            return Err(Failure::Call(index, error));
        }
        judged.judge_together(run, &before);
        judged.reserve();
        Ok(judged)
    }
}

impl Judged {
    /// Returns the changes, each with the index of its call.
    pub(crate) fn changes(&self) -> impl Iterator<Item = (usize, &JudgedChange)> {
        self.items.iter().enumerate().filter_map(|(index, item)| match item {
            JudgedItem::Change(change) => Some((index, change)),
            JudgedItem::Read(_) => None,
        })
    }

    /// Removes the staged contents of change sets that are not executed. Blocks.
    pub(crate) fn discard_staged(&mut self) {
        for item in &mut self.items {
            if let JudgedItem::Change(change) = item {
                change.plan.staged = None;
            }
        }
    }

    /// Leaves the staged contents called `journalled` to the journal. The others are removed.
    ///
    /// # Errors
    ///
    /// If the disk fails.
    pub(crate) fn hand_over(&mut self, journalled: &[String]) -> std::io::Result<()> {
        for item in &mut self.items {
            if let JudgedItem::Change(JudgedChange { plan, .. }) = item
                && let Some(staged) = plan.staged.take()
            {
                staged.hand_over(journalled)?;
            }
        }
        Ok(())
    }

    /// Returns the files that the changes write, which an approval is bound to.
    pub(crate) fn files(&self) -> Vec<ApprovalFile> {
        (0..self.items.len()).flat_map(|index| self.files_of(index)).collect()
    }

    /// As [`files`](Self::files), of one call.
    pub(crate) fn files_of(&self, index: usize) -> impl Iterator<Item = ApprovalFile> {
        self.items.get(index).into_iter().flat_map(|item| match item {
            JudgedItem::Change(change) => files_of(&change.plan).collect(),
            JudgedItem::Read(_) => Vec::new(),
        })
    }

    /// Finds what speaks against changes that have to wait. Blocks: the texts may be large.
    pub(crate) fn find_warnings(&mut self, run: &OpenRun) {
        let mut facts = Vec::new();
        let mut diff = String::new();
        for (index, change) in self.changes() {
            facts.extend(change.plan.facts(self.calls[index].evidence_fact, |path| run.known.has_changed(path)));
            diff.push_str(&String::from_utf8_lossy(&change.plan.diff));
        }
        self.warnings = change_warnings(&run.rules, &facts, &diff);
    }

    /// Returns what the changes take from the budgets together. People's changes take nothing from the agent's budget.
    pub(crate) fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for (index, change) in self.changes() {
            if self.calls[index].made_by() == By::Agent {
                usage.add(&change.usage);
            }
        }
        usage
    }

    /// Returns the failure of a denied transaction.
    pub(crate) fn into_denial(self) -> Failure {
        let Decision { refusal, reasons, .. } = self.decision;
        let error = refusal.unwrap_or_else(|| denied(reasons)).into();
        match self.denied {
            Some(index) => Failure::Call(index, error),
            None => Failure::All(error),
        }
    }

    /// Judges all changes as one. Each may be allowed by itself.
    fn judge_together(&mut self, run: &OpenRun, before: &Usage) {
        if self.items.len() < 2 {
            return;
        }
        let judge = |count: usize| {
            let facts: Vec<ChangeFacts<'_>> = self
                .changes()
                .take_while(|(index, _)| *index < count)
                .flat_map(|(index, change)| {
                    change.plan.facts(self.calls[index].evidence_fact, |path| run.known.has_changed(path))
                })
                .collect();
            judge_change(&run.rules, &facts, before)
        };
        let decision = judge(self.items.len());
        if decision.verdict == Verdict::Deny {
            let counts: Vec<_> = (1..=self.items.len()).collect();
            let index = counts.partition_point(|count| judge(*count).verdict != Verdict::Deny);
            let index = index.min(self.items.len() - 1);
            (self.decision, self.denied) = (judge(index + 1), Some(index));
        } else {
            self.decision = decision;
        }
    }

    /// Reserves the disk space of all changes. Denies the first that exceeds the quota together with those before it.
    fn reserve(&mut self) {
        if self.decision.verdict == Verdict::Deny {
            return;
        }
        let mut staged_bytes = 0;
        let sizes: Vec<_> = self
            .changes()
            .map(|(index, change)| (index, change.plan.disk_change(|_| true), change.plan.uploaded_bytes()))
            .collect();
        for (index, change, uploaded) in sizes {
            self.disk_change += change;
            staged_bytes += uploaded;
            let growth = self.disk_change.growth();
            // Until it is applied, an upload takes disk space in addition to the file that it replaces.
            let wanted = Disk { bytes: growth.bytes.max(staged_bytes), ..growth };
            if let Err(refusal) = self.disk.resize(wanted) {
                self.deny(index, refusal);
                return;
            }
        }
    }

    fn deny(&mut self, index: usize, refusal: Refusal) {
        let reasons = refusal.details.reasons.clone();
        self.decision = Decision { verdict: Verdict::Deny, reasons, refusal: Some(refusal) };
        self.denied = Some(index);
    }
}

fn allow() -> Decision {
    Decision { verdict: Verdict::Allow, reasons: Vec::new(), refusal: None }
}

/// Denies with `refusal`, unless the decision denies with a code that precedes it.
fn denied_first(decision: Decision, refusal: Refusal) -> Decision {
    let denied_code =
        |decision: &Decision| decision.refusal.as_ref().map_or(Code::PolicyDenied, |refusal| refusal.code);
    if decision.verdict == Verdict::Deny && denied_code(&decision) < refusal.code {
        return decision;
    }
    Decision { verdict: Verdict::Deny, reasons: Vec::new(), refusal: Some(refusal) }
}

fn files_of(plan: &ChangePlan) -> impl Iterator<Item = ApprovalFile> {
    plan.changes().map(|change| ApprovalFile {
        path: change.path.clone(),
        operation: match change.effect {
            Effect::Create => "create",
            Effect::Replace => "replace",
            Effect::Delete => "delete",
            Effect::MoveFrom { .. } | Effect::MoveTo { .. } => "move",
        }
        .to_owned(),
        old_sha256: change.before.as_ref().map(|state| state.sha256),
        new_sha256: change.after.as_ref().map(|content| content.sha256),
        insertions: change.counts.insertions,
        deletions: change.counts.deletions,
    })
}
