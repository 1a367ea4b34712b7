//! What policy would decide, before anything is tried.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::{Access, Code, Decision, FileKind, LogicalPath, Patch, Permission, Refusal, RunId, Verdict};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::CallError;
use crate::call::CallContext;
use crate::call::record::{reasons_of, verdict_of};
use crate::call_error::refusals::forbidden;
use crate::engine::{Caller, Engine};
use crate::runs::open_run::OpenRun;
use crate::tools;
use crate::transaction::{Operation, Parsed};

/// What to explain: one of the two.
#[derive(Clone, Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"path": "Cargo.lock"}))]
pub struct PolicyQuery {
    /// A path, whether or not anything is there.
    #[serde(default)]
    path: Option<String>,
    /// A patch, as `apply_patch` takes it.
    #[serde(default)]
    patch: Option<String>,
}

/// What would be decided.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyExplanation {
    /// Each path concerned, as far as the path alone tells.
    paths: Vec<PathExplanation>,
    /// What the patch as a whole would meet, budgets and the files as they are now included. For a caller without
    /// `file:read` the strictest of what its paths would meet, whatever is in the files.
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<PolicyDecision>,
}

/// What one path would meet.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PathExplanation {
    /// The path, cleaned.
    path: LogicalPath,
    /// The kind that it is judged as.
    kind: FileKind,
    /// What reading or searching it would meet.
    read: PolicyDecision,
    /// What changing it would meet, whatever the change is.
    mutate: PolicyDecision,
}

/// One decision.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyDecision {
    /// What policy would say.
    decision: Verdict,
    /// The rules that decide.
    reasons: Vec<String>,
    /// What the call would be refused with, where it would be.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<Code>,
    /// The refusal in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

impl PolicyDecision {
    fn of(decision: Decision) -> Self {
        let Decision { verdict, reasons, refusal } = decision;
        let asks = (verdict == Verdict::RequireApproval).then_some(Code::ApprovalRequired);
        Self {
            decision: verdict,
            reasons,
            code: refusal.as_ref().map(|refusal| refusal.code).or(asks),
            message: refusal.map(|refusal| refusal.message),
        }
    }

    fn refused(refusal: Refusal) -> Self {
        Self {
            decision: verdict_of(refusal.code),
            reasons: reasons_of(&refusal),
            code: Some(refusal.code),
            message: Some(refusal.message),
        }
    }
}

impl Engine {
    /// Tells what policy would decide over a path or a patch. Nothing is told that a call would not tell.
    ///
    /// # Errors
    ///
    /// `FORBIDDEN`, `INVALID_REQUEST`, `PATCH_INVALID`, `PATH_REJECTED`, `RUN_CLOSED`.
    pub async fn explain(
        &self,
        run: &RunId,
        caller: Caller,
        question: PolicyQuery,
    ) -> Result<PolicyExplanation, CallError> {
        match (question.path, question.patch) {
            (Some(raw), None) => {
                need(&caller, Permission::FileList)?;
                let path = LogicalPath::parse(&raw).map_err(|rule| Refusal::path(&raw, rule))?;
                let open_run = self.open(run).await?;
                let paths = self.blocking(move || Ok(vec![explain_path(&open_run, path)?])).await?;
                Ok(PolicyExplanation { paths, patch: None })
            }
            (None, Some(patch)) => {
                need(&caller, Permission::FilePatchApply)?;
                self.explain_patch(run, caller, patch).await
            }
            (Some(_), Some(_)) | (None, None) => {
                let hint = "Give a path to ask about a file, or a patch to ask about a change.";
                Err(Refusal::invalid("one of `path` and `patch` is needed", hint).into())
            }
        }
    }

    async fn explain_patch(&self, run: &RunId, caller: Caller, patch: String) -> Result<PolicyExplanation, CallError> {
        let parsed = Patch::parse(&patch)?;
        let paths: BTreeSet<_> = parsed.files.into_iter().flat_map(|section| [section.from, section.path]).collect();
        let open_run = self.open(run).await?;
        let foretold = Arc::clone(&open_run);
        let each = move || paths.into_iter().map(|path| explain_path(&foretold, path)).collect::<Result<Vec<_>, _>>();
        let paths = self.blocking(each).await?;
        if !caller.may_read() {
            // Whether it fits tells what is in the files, and a question leaves no record.
            let strictest = paths.iter().map(|path| &path.mutate).max_by_key(|said| said.decision).cloned();
            return Ok(PolicyExplanation { paths, patch: strictest });
        }
        let tool = tools::find("apply_patch").ok_or_else(|| CallError::Internal("there is no apply_patch".into()))?;
        let members = json!({"patch": patch, "reason": "explain", "dryRun": true});
        let (call, members) = CallContext::of(run, caller, tool, members.as_object().cloned().unwrap_or_default());
        let operation = Operation::parse(&call, members?)?;
        let said = match self.evaluate(&open_run, Parsed::new(vec![(call, Ok(operation))])).await {
            Ok(decision) => PolicyDecision::of(decision),
            Err(CallError::Refused(refusal)) => PolicyDecision::refused(refusal),
            Err(error) => return Err(error),
        };
        Ok(PolicyExplanation { paths, patch: Some(said) })
    }
}

fn explain_path(open_run: &OpenRun, path: LogicalPath) -> Result<PathExplanation, CallError> {
    let tree = open_run.workspace.tree();
    let said = |access| match tree.explain(&open_run.rules, access, &path) {
        Ok((kind, decision)) => Ok((kind, PolicyDecision::of(decision))),
        Err(workspace::WorkspaceError::Refused(refusal)) => {
            Ok((open_run.rules.kind_of_path(&path), PolicyDecision::refused(refusal)))
        }
        Err(fault) => Err(CallError::from(fault)),
    };
    let (kind, read) = said(Access::Read)?;
    let (_, mutate) = said(Access::Mutate)?;
    Ok(PathExplanation { path, kind, read, mutate })
}

fn need(caller: &Caller, permission: Permission) -> Result<(), Refusal> {
    if caller.permissions.contains(&permission) { Ok(()) } else { Err(forbidden(&[permission])) }
}
