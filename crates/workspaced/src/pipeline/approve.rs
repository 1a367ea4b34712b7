//! Calls that wait for a person, and what becomes of them.

use std::sync::Arc;

use ledger::Decides;
use model::{Approval, ApprovalFile, ApprovalId, ApprovalState, Code, Effect, Outcome, Permission, Refusal, Verdict};
use serde_json::Value;

use super::{Judged, Until, append, carry_out, not_pending, paths_of, prepare, recover, with_history};
use crate::CallError;
use crate::calls::{Answer, Head, asked, reasons_of, stored_reply, verdict_of};
use crate::change::Planned;
use crate::service::{Caller, LiveRun, Service};
use crate::tools::{self, ToolRun};

/// How long a person has to decide, in seconds.
const APPROVAL_SECONDS: i64 = 24 * 60 * 60;

/// Keeps the call for a person to decide.
pub(super) async fn ask(
    service: &Service,
    head: &Head,
    live: &Arc<LiveRun>,
    judged: Judged,
) -> Result<Answer, CallError> {
    let Judged { planned, decision, .. } = judged;
    let mut refusal = Refusal::new(
        Code::ApprovalRequired,
        "the call needs a person's approval; nothing has changed yet",
        "Go on with other work: a person decides, and GET /v1/runs/{run}/tool-calls/{toolCallId} tells the outcome.",
    );
    refusal.about.reasons.clone_from(&decision.reasons);
    let mut draft = head.draft(Verdict::RequireApproval, Outcome::Pending);
    draft.code = Some(Code::ApprovalRequired);
    draft.reasons.clone_from(&decision.reasons);
    draft.files = asked(&paths_of(&planned));
    if head.dry_run {
        let record = append(service, head, head.entry(draft, Some(stored_reply(&refusal)))).await?;
        return Err(refusal.recorded(record.seq, record.hash).into());
    }
    let approval = approval_of(head, &planned, decision.reasons);
    refusal.about.approval_id = Some(approval.approval_id.clone());
    let mut entry = head.entry(draft, Some(stored_reply(&refusal)));
    entry.approval = Some((approval, head.input.clone()));
    let record = append(service, head, entry).await?;
    live.awaits_approval();
    Err(refusal.recorded(record.seq, record.hash).into())
}

fn approval_of(head: &Head, planned: &Planned, reasons: Vec<String>) -> Approval {
    Approval {
        approval_id: crate::service::new_approval_id(),
        run_id: head.run_id.clone(),
        tool_call_id: head.tool_call_id.clone(),
        tool: head.tool.name.to_owned(),
        reason: head.reason.clone().unwrap_or_default(),
        actor: head.caller.actor.clone(),
        state: ApprovalState::Pending,
        reasons,
        files: files_of(planned),
        diff: String::from_utf8_lossy(&planned.diff).into_owned(),
        created_at: head.timestamp.clone(),
        expires_at: crate::service::now_plus(APPROVAL_SECONDS),
        decided_by: None,
        note: None,
    }
}

/// What a planned change comes to, file by file: what an approval is bound to.
fn files_of(planned: &Planned) -> Vec<ApprovalFile> {
    let file = |change: &model::Change| ApprovalFile {
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
    };
    planned.changes.changes.iter().map(file).collect()
}

/// Who decides over an approval.
#[derive(Clone, Debug)]
pub(crate) struct Decider {
    /// A person, as the orchestrator names them.
    pub(crate) decided_by: String,
    /// What they note.
    pub(crate) note: Option<String>,
}

impl Service {
    /// Carries out the call that waits for `id`, if it still does what was approved.
    ///
    /// The call is planned and judged again against the files as they are now. Where that comes to another change, or to
    /// a refusal, the approval fails and nothing changes.
    pub(crate) async fn approve(&self, id: &ApprovalId, decider: Decider) -> Result<Approval, CallError> {
        let approval = self.pending(id).await?;
        let service = self.clone();
        // A task of its own, as for every mutation: it finishes even when the operator goes away.
        let task = self.0.tasks.spawn(async move { service.carry_out_approved(&approval, &decider).await });
        task.await.map_err(|error| CallError::Internal(Box::new(error)))??;
        self.approval(id).await
    }

    /// Turns the call that waits for `id` down.
    pub(crate) async fn deny(&self, id: &ApprovalId, decider: Decider) -> Result<Approval, CallError> {
        let approval = self.pending(id).await?;
        let head = self.head_of(&approval, &decider).await?;
        let refusal = Refusal::new(Code::PolicyDenied, "a person has turned the call down", "Ask the operator why.")
            .about(|about| about.reasons = vec![format!("approval:{id}:denied")]);
        self.record_decision(&head, &approval, &decider, ApprovalState::Denied, &refusal).await?;
        self.approval(id).await
    }

    /// The approval `id`.
    pub(crate) async fn approval(&self, id: &ApprovalId) -> Result<Approval, CallError> {
        let found = self.0.ledger.approval(id).await?;
        Ok(found.ok_or_else(|| {
            Refusal::new(Code::NotFound, "there is no such approval", "List them with GET /v1/approvals.")
        })?)
    }

    async fn pending(&self, id: &ApprovalId) -> Result<Approval, CallError> {
        let approval = self.approval(id).await?;
        if approval.state != ApprovalState::Pending {
            return Err(not_pending().into());
        }
        if approval.expires_at <= crate::service::now() {
            self.0.ledger.decide_approval(id, ApprovalState::Expired, None, None).await?;
            return Err(not_pending().into());
        }
        Ok(approval)
    }

    async fn carry_out_approved(&self, approval: &Approval, decider: &Decider) -> Result<(), CallError> {
        let head = self.head_of(approval, decider).await?;
        let live = self.live(&approval.run_id).await?;
        let judged = match self.judge_again(&head, &live, approval).await {
            Ok(judged) => judged,
            // What passes by itself leaves the approval pending.
            Err(CallError::Refused(refusal)) if !refusal.code.passes() => {
                return self.record_decision(&head, approval, decider, ApprovalState::Failed, &refusal).await;
            }
            Err(error) => return Err(error),
        };
        let decides = decision_of(approval, decider, ApprovalState::Approved);
        let (_pass, judged) = judged;
        carry_out(self, &head, &live, judged, Some(decides)).await?;
        self.refresh_state(&live).await
    }

    /// Plans and judges the call again; refused unless it comes to the change that was approved.
    async fn judge_again<'a>(
        &self,
        head: &Head,
        live: &'a Arc<LiveRun>,
        approval: &Approval,
    ) -> Result<(crate::lane::Pass<'a>, Judged), CallError> {
        let Ok(Value::Object(members)) = serde_json::from_str(&head.input) else {
            return Err(CallError::Internal("a kept input is no object".into()));
        };
        let members = Head::without_common(members);
        let ToolRun::Mutation(parse) = head.tool.run else {
            return Err(CallError::Internal("a kept call is no mutation".into()));
        };
        let tool = with_history(self, head, parse(members)?).await?;
        let held = if tool.exclusive() { vec![model::LogicalPath::root()] } else { tool.paths() };
        let pass = recover::enter_settled(self, live, held).await?;
        let judged = prepare(self, head, live, tool, Until::StagedAsApproved).await?;
        if judged.decision.verdict == Verdict::Deny {
            let reasons = judged.decision.reasons.clone();
            return Err(judged.decision.refusal.unwrap_or_else(|| super::denied(reasons)).into());
        }
        if files_of(&judged.planned) != approval.files {
            let message = "the files have changed since the call was made: it would come to another change";
            return Err(Refusal::new(Code::WriteConflict, message, "Read the files again and make a new call.").into());
        }
        Ok((pass, judged))
    }

    async fn record_decision(
        &self,
        head: &Head,
        approval: &Approval,
        decider: &Decider,
        state: ApprovalState,
        refusal: &Refusal,
    ) -> Result<(), CallError> {
        let mut draft = head.draft(verdict_of(refusal.code), Outcome::Refused);
        draft.code = Some(refusal.code);
        draft.reasons = reasons_of(refusal);
        draft.files = asked(&approval.files.iter().map(|file| file.path.clone()).collect::<Vec<_>>());
        let mut entry = head.entry(draft, None);
        entry.decides = Some(decision_of(approval, decider, state));
        append(self, head, entry).await?;
        let live = self.live(&approval.run_id).await?;
        self.refresh_state(&live).await
    }

    /// The call as it was made, with the one who decides as its actor.
    async fn head_of(&self, approval: &Approval, decider: &Decider) -> Result<Head, CallError> {
        let input = self.0.ledger.approval_input(&approval.approval_id).await?;
        let tool = tools::find_recorded(&approval.tool)
            .ok_or_else(|| CallError::Internal("a kept call has no tool".into()))?;
        Ok(Head {
            run_id: approval.run_id.clone(),
            tool,
            tool_call_id: approval.tool_call_id.clone(),
            // The ID is this call's own: nothing to check.
            claimed: false,
            step_id: None,
            input_sha256: model::Sha256::of(input.as_deref().unwrap_or_default().as_bytes()),
            input: input.unwrap_or_default(),
            caller: Caller {
                actor: format!("operator:{}", decider.decided_by),
                permissions: Permission::ALL.into_iter().collect(),
            },
            reason: Some(approval.reason.clone()),
            dry_run: false,
            mount: None,
            timestamp: crate::service::now(),
            started: std::time::Instant::now(),
        })
    }
}

fn decision_of(approval: &Approval, decider: &Decider, state: ApprovalState) -> Decides {
    Decides {
        approval_id: approval.approval_id.clone(),
        state,
        decided_by: decider.decided_by.clone(),
        note: decider.note.clone(),
    }
}
