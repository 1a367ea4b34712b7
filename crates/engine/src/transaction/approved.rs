//! Whether calls that a person has approved still make the approved change.

use model::{Approval, ApprovalFile, Code, Patch, Refusal, Verdict};
use serde_json::{Map, Value};

use crate::call::Call;
use crate::tool::change_plan::ChangePlan;
use crate::transaction::judge::Judged;

/// What a person has approved.
pub(crate) struct ApprovedChange {
    /// The files with their versions.
    files: Vec<ApprovalFile>,
    /// The rules that required the approval.
    reasons: Vec<String>,
    /// The number of calls that make the change. Those after them are of the person who approves.
    calls: usize,
}

impl ApprovedChange {
    pub(crate) fn new(approval: &Approval, calls: usize) -> Self {
        Self { files: approval.files.clone(), reasons: approval.reasons.clone(), calls }
    }

    /// Checks that planned calls make the approved change, and need approval for no other reason than the person knew.
    ///
    /// A file may have another version than at the request only if an edit or a patch changes it whose context is unique in that
    /// version. A version that the call itself expects was checked when it was planned.
    ///
    /// # Errors
    ///
    /// `WRITE_CONFLICT`.
    pub(crate) fn check(&self, judged: &Judged) -> Result<(), Refusal> {
        let mut approved = self.files.iter();
        for (index, change) in judged.changes().take_while(|(index, _)| *index < self.calls) {
            for file in judged.files_of(index) {
                let same = approved.next().filter(|approved| is_same_but_version(approved, &file));
                let follows = |approved: &ApprovalFile| {
                    *approved == file || is_by_context(&judged.calls[index], &change.plan, &file)
                };
                if !same.is_some_and(follows) {
                    return Err(other_change());
                }
            }
        }
        if approved.next().is_some() {
            return Err(other_change());
        }
        self.check_reasons(judged)
    }

    fn check_reasons(&self, judged: &Judged) -> Result<(), Refusal> {
        if judged.decision.verdict != Verdict::RequireApproval {
            return Ok(());
        }
        let changes = judged.changes().take_while(|(index, _)| *index < self.calls);
        // The write globs of a change that needs no approval, and the evidence that the approval stands for, are no reasons to ask.
        let asks = |reason: &&String| !["write:", "evidence:"].iter().any(|start| reason.starts_with(start));
        let new =
            changes.flat_map(|(_, change)| &change.reasons).filter(asks).find(|reason| !self.reasons.contains(reason));
        new.map_or(Ok(()), |reason| Err(other_reason(reason)))
    }
}

/// Whether both files change in the same way, whatever else they contain.
fn is_same_but_version(approved: &ApprovalFile, planned: &ApprovalFile) -> bool {
    let of = |file: &ApprovalFile| {
        let exists = (file.old_sha256.is_some(), file.new_sha256.is_some());
        (exists, file.insertions, file.deletions)
    };
    approved.path == planned.path && approved.operation == planned.operation && of(approved) == of(planned)
}

/// Whether a text that occurs once in the present file says where the call changes it.
fn is_by_context(call: &Call, plan: &ChangePlan, file: &ApprovalFile) -> bool {
    let Ok(input) = serde_json::from_str::<Map<String, Value>>(&call.input) else { return false };
    match call.tool.name {
        // Without `replaceAll` the plan has found `oldString` once.
        "edit_file" => input.get("replaceAll").and_then(Value::as_bool) != Some(true),
        // Text in an encoding that only the call names cannot be compared here.
        "apply_patch" if !input.contains_key("encoding") => {
            let patch = input.get("patch").and_then(Value::as_str).and_then(|patch| Patch::parse(patch).ok());
            let sections = patch.iter().flat_map(|patch| &patch.files);
            let mut sections =
                sections.filter(|section| section.path == file.path || section.from == file.path).peekable();
            let is_unique = |bytes: Option<&[u8]>, section: &model::FilePatch| {
                bytes.is_some_and(|bytes| section.is_unique_in(bytes))
            };
            sections.peek().is_some() && sections.all(|section| is_unique(plan.found_bytes(&section.from), section))
        }
        _ => false,
    }
}

fn other_change() -> Refusal {
    let message = "the files have changed since the call: its result would be a different change";
    Refusal::new(Code::WriteConflict, message, "Read the files again and make a new call.")
}

fn other_reason(reason: &str) -> Refusal {
    let message =
        format!("the files have changed since the call: it would now need approval for another reason ({reason})");
    Refusal::new(Code::WriteConflict, message, "Make a new call, which a person can then approve.")
        .with_details(|details| details.reasons = vec![reason.to_owned()])
}
