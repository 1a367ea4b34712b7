//! Policy queries: what the policy would decide about a path, a patch or a command.

use async_recursion::async_recursion as boxed;
use std::collections::BTreeSet;
use std::sync::Arc;

use ledger::Entry;
use model::{
    Access, Code, Decision, Draft, EvidenceFact, FileKind, LogicalPath, Patch, Permission, Refusal, RunId, Sha256,
    Verdict, judge_command,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::CallError;
use crate::call::Call;
use crate::call::record::{reasons_of, verdict_of};
use crate::call_error::refusals::forbidden;
use crate::caller::{Caller, RequestIds};
use crate::calls::Calls;
use crate::clock::{new_tool_call_id, now};
use crate::run::open_run::OpenRun;
use crate::tools;
use crate::tools::run_command::check_command;
use crate::transaction::{Operation, Parsed};

/// The tool in the record of a query.
const TOOL: &str = "policy.explain";

/// A policy query: a path, a patch or a command.
#[derive(Clone, Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schema(example = json!({"path": "Cargo.lock"}))]
pub struct PolicyQuery {
    /// A path. It need not exist.
    #[serde(default)]
    path: Option<String>,
    /// A patch, in the formats of `apply_patch`.
    #[serde(default)]
    patch: Option<String>,
    /// A command line, as `run_command` takes it.
    #[serde(default)]
    command: Option<String>,
}

/// The policy's decisions.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyExplanation {
    /// The decisions about each path, without regard to content.
    paths: Vec<PathExplanation>,
    /// The decision about the patch as a whole, with budgets and the present files. For a caller without `file:read`, the
    /// strictest decision about its paths, without regard to content.
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<PolicyDecision>,
    /// The decision about the command, by `commands` of the policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<PolicyDecision>,
}

/// The decisions about a path.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PathExplanation {
    /// The normalised path.
    path: LogicalPath,
    /// The kind of the file.
    kind: FileKind,
    /// The decision about reading or searching it.
    read: PolicyDecision,
    /// The decision about any change of it.
    mutate: PolicyDecision,
}

/// A decision of the policy.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PolicyDecision {
    /// The verdict.
    decision: Verdict,
    /// The rules that decided.
    reasons: Vec<String>,
    /// The code of the refusal, if the call would be refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<Code>,
    /// The message of the refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

impl PolicyDecision {
    fn of(decision: Decision) -> Self {
        let Decision { verdict, reasons, refusal } = decision;
        let approval = (verdict == Verdict::RequireApproval).then_some(Code::ApprovalRequired);
        Self {
            decision: verdict,
            reasons,
            code: refusal.as_ref().map(|refusal| refusal.code).or(approval),
            message: refusal.map(|refusal| refusal.message),
        }
    }

    fn refused(refusal: Refusal) -> Self {
        let (verdict, reasons) = (verdict_of(refusal.code), reasons_of(&refusal));
        Self::of(Decision { verdict, reasons, refusal: Some(refusal) })
    }
}

impl Calls {
    /// Returns what the policy would decide about a path, a patch or a command. The answer discloses no more than a call would; one that
    /// depends on the content of files is recorded.
    ///
    /// # Errors
    ///
    /// `FORBIDDEN`, `INVALID_REQUEST`, `PATCH_INVALID`, `PATH_REJECTED`, `POLICY_DENIED_SECRET`, `RUN_CLOSED`.
    #[boxed]
    pub async fn explain(
        &self,
        run: &RunId,
        caller: Caller,
        query: PolicyQuery,
    ) -> Result<PolicyExplanation, CallError> {
        match (query.path, query.patch, query.command) {
            (Some(raw), None, None) => {
                require(&caller, Permission::FileList)?;
                let path = LogicalPath::parse(&raw).map_err(|rule| Refusal::path(&raw, rule))?;
                let open_run = self.engine.open(run).await?;
                let paths = self.engine.blocking(move || Ok(vec![explain_path(&open_run, path)?])).await?;
                Ok(PolicyExplanation { paths, patch: None, command: None })
            }
            (None, Some(patch), None) => {
                require(&caller, Permission::FilePatchApply)?;
                self.explain_patch(run, caller, patch).await
            }
            (None, None, Some(command)) => {
                require(&caller, Permission::FilePatchApply)?;
                check_command(&command)?;
                let open_run = self.engine.open(run).await?;
                let decision = PolicyDecision::of(judge_command(&open_run.rules.policy().commands, &command));
                Ok(PolicyExplanation { paths: Vec::new(), patch: None, command: Some(decision) })
            }
            _ => {
                let hint =
                    "Give `path` to query a file, `patch` to query a change, or `command` to query a command line.";
                Err(Refusal::invalid("exactly one of `path`, `patch` and `command` is required", hint).into())
            }
        }
    }

    /// Checks that a caller may query the policy about paths or patches, before the query is received.
    ///
    /// # Errors
    ///
    /// `FORBIDDEN`.
    pub fn check_may_explain(caller: &Caller) -> Result<(), Refusal> {
        let needed = [Permission::FileList, Permission::FilePatchApply];
        if needed.iter().any(|permission| caller.permissions.contains(permission)) {
            return Ok(());
        }
        Err(forbidden(&needed))
    }

    async fn explain_patch(&self, run: &RunId, caller: Caller, patch: String) -> Result<PolicyExplanation, CallError> {
        let parsed = Patch::parse(&patch)?;
        let paths: BTreeSet<_> = parsed.files.into_iter().flat_map(|section| [section.from, section.path]).collect();
        let open_run = self.engine.open(run).await?;
        let run_of_paths = Arc::clone(&open_run);
        let explain =
            move || paths.into_iter().map(|path| explain_path(&run_of_paths, path)).collect::<Result<Vec<_>, _>>();
        let paths = self.engine.blocking(explain).await?;
        if !caller.may_read() {
            // Whether the patch matches depends on the content of the files, and a query is not recorded.
            let strictest = paths.iter().map(|path| &path.mutate).max_by_key(|decision| decision.decision).cloned();
            return Ok(PolicyExplanation { paths, patch: strictest, command: None });
        }
        let patch_sha256 = Sha256::of(patch.as_bytes());
        let explanation = self.explain_against_files(run, &caller, &open_run, (paths, patch)).await?;
        self.record_query(run, &caller, patch_sha256, &explanation).await?;
        Ok(explanation)
    }

    /// Records a query whose answer depends on content.
    async fn record_query(
        &self,
        run: &RunId,
        caller: &Caller,
        patch_sha256: Sha256,
        explanation: &PolicyExplanation,
    ) -> Result<(), CallError> {
        let mut draft = Draft::new(run.clone(), caller.actor.clone(), TOOL, new_tool_call_id(), now());
        draft.paths_read = explanation.paths.iter().map(|path| path.path.clone()).collect();
        draft.input = json!({"patchSha256": patch_sha256}).as_object().cloned();
        if let Some(decision) = &explanation.patch {
            draft.reasons.clone_from(&decision.reasons);
        }
        RequestIds::write(caller.request.as_deref(), &mut draft);
        let mut entry = Entry::new(draft, patch_sha256);
        entry.preconditions.token.clone_from(&caller.token);
        self.engine.record(vec![entry]).await?;
        Ok(())
    }

    async fn explain_against_files(
        &self,
        run: &RunId,
        caller: &Caller,
        open_run: &Arc<OpenRun>,
        (paths, patch): (Vec<PathExplanation>, String),
    ) -> Result<PolicyExplanation, CallError> {
        let tool = tools::find("apply_patch")
            .ok_or_else(|| CallError::Internal("the tool apply_patch does not exist".into()))?;
        let members = json!({"patch": patch, "reason": "explain", "dryRun": true});
        let (call, members) = Call::of(run, caller.clone(), tool, members.as_object().cloned().unwrap_or_default());
        let operation = Operation::parse(&call, members?)?;
        let call = call.opened(open_run, EvidenceFact::Missing);
        let decision = match self.engine.evaluate(open_run, Parsed::new(vec![(call, Ok(operation))])).await {
            Ok(decision) => PolicyDecision::of(decision),
            Err(CallError::Refused(refusal)) => PolicyDecision::refused(refusal),
            Err(error) => return Err(error),
        };
        Ok(PolicyExplanation { paths, patch: Some(decision), command: None })
    }
}

fn explain_path(open_run: &OpenRun, path: LogicalPath) -> Result<PathExplanation, CallError> {
    let tree = open_run.workspace.tree();
    let decide = |access| match tree.explain(&open_run.rules, access, &path) {
        Ok((kind, decision)) => Ok((kind, PolicyDecision::of(decision))),
        Err(workspace::WorkspaceError::Refused(refusal)) => {
            Ok((open_run.rules.kind_of_path(&path), PolicyDecision::refused(refusal)))
        }
        Err(fault) => Err(CallError::from(fault)),
    };
    let (kind, read) = decide(Access::Read)?;
    let (_, mutate) = decide(Access::Mutate)?;
    Ok(PathExplanation { path, kind, read, mutate })
}

fn require(caller: &Caller, permission: Permission) -> Result<(), Refusal> {
    if caller.permissions.contains(&permission) { Ok(()) } else { Err(forbidden(&[permission])) }
}
