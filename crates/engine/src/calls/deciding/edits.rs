//! Changes that a person makes to the result of a call while approving it: calls of that person, which follow those that waited in one
//! transaction.

use std::sync::Arc;

use model::{Approval, Code, EvidenceFact, Permission, Refusal, Scope};
use serde_json::{Value, json};

use crate::approvals::decide::{ApprovalEdit, DecidingPerson};
use crate::call::{Call, OpenedCall};
use crate::caller::Caller;
use crate::run::open_run::OpenRun;
use crate::tool::Tool;
use crate::tools::apply_changeset::APPLY_CHANGESET;
use crate::tools::run_command::RUN_COMMAND;
use crate::{CallError, tools};

/// The reason of a change whose author gave no note.
const NO_NOTE: &str = "changed by the person who approved";

/// Checks that an approval may be given with changes.
///
/// # Errors
///
/// `INVALID_REQUEST` if others would have approved another text, if the call has no texts, and for other files than those of the call.
pub(super) fn check(approval: &Approval, edits: &[ApprovalEdit]) -> Result<(), Refusal> {
    if edits.is_empty() {
        return Ok(());
    }
    if approval.approvers > 1 || approval.not_creator {
        let message = "the policy asks for other persons than the author, and nobody else would approve your changes";
        return Err(Refusal::invalid(message, "Deny the call with a note that says what to change."));
    }
    if [RUN_COMMAND, APPLY_CHANGESET.name].contains(&approval.tool.as_str()) {
        let message = "a command and its changes are approved as they are";
        return Err(Refusal::invalid(message, "Deny the call with a note that says what to change."));
    }
    let is_left = |edit: &ApprovalEdit| {
        approval.files.iter().any(|file| file.path.as_str() == edit.path && file.new_sha256.is_some())
    };
    match edits.iter().find(|edit| !is_left(edit)) {
        Some(edit) => {
            let message = format!("the call leaves no file at `{}`", model::excerpt(&edit.path, 200));
            Err(Refusal::invalid(message, "Change only files that the approved call creates or changes."))
        }
        None => Ok(()),
    }
}

/// Returns the calls by which the person who decides changes the result.
///
/// # Errors
///
/// `INVALID_REQUEST`.
pub(super) fn calls(
    run: &Arc<OpenRun>,
    approval: &Approval,
    decider: &DecidingPerson,
) -> Result<Vec<OpenedCall>, CallError> {
    let call = |edit: &ApprovalEdit| {
        let input = json!({
            "path": edit.path, "oldString": edit.old_string, "newString": edit.new_string,
            "reason": decider.note.as_deref().filter(|note| !note.trim().is_empty()).unwrap_or(NO_NOTE),
        });
        let Value::Object(members) = input else {
            return Err(CallError::Internal("an input is not an object".into()));
        };
        let (call, members) = Call::of(&approval.run_id, author(decider), tool()?, members);
        members?;
        Ok(call.opened(run, EvidenceFact::Missing))
    };
    decider.edits.iter().map(call).collect()
}

fn tool() -> Result<&'static Tool, CallError> {
    tools::find("edit_file").ok_or_else(|| CallError::Internal("the tool of changes is missing".into()))
}

/// Returns the person who decides as the caller of a change. Whose scopes show no files sees none in a refusal either.
fn author(decider: &DecidingPerson) -> Caller {
    let operator = &decider.operator;
    let sees_files = operator.has_any(&[Scope::Orchestrate, Scope::Audit]);
    let permitted = |permission: &Permission| sees_files || *permission != Permission::FileRead;
    Caller {
        actor: operator.actor(),
        permissions: Permission::ALL.into_iter().filter(permitted).collect(),
        token: operator.required_token(),
        request: decider.request.clone(),
    }
}

/// The refusal of a decision that cannot have changes.
pub(super) fn refused_in_denial() -> Refusal {
    Refusal::new(Code::InvalidRequest, "a denial has no changes", "Omit `edits`, or approve the call with them.")
}
