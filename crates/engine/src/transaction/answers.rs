//! What a planned change becomes in the ledger and to its caller.

use ledger::{Artifact, Entry, Reply};
use model::{Code, Decision, LogicalPath, Outcome, Refusal, Sha256, Step, Usage, Verdict};
use serde_json::{Map, Value};

use super::{DONE, Judged};
use crate::call::{Answer, CallContext, ChainHead, splice};
use crate::change_plan::ChangePlan;
use crate::tools::record_files;

/// The ledger's entry of a change, and the answer's members but for `seq` and `headHash`, as JSON text.
pub(super) fn entry_of(
    head: &CallContext,
    planned: ChangePlan,
    decision: Decision,
    steps: Vec<Step>,
    usage: Usage,
) -> (Entry, String) {
    let artifact_id = crate::engine::new_artifact_id();
    let uri = format!("artifact://{}/{artifact_id}", head.run_id);
    let mut draft = head.draft(Verdict::Allow, Outcome::Ok);
    draft.artifact_uris = vec![uri.clone()];
    draft.diff_sha256 = Some(Sha256::of(&planned.diff));
    draft.paths_written = paths_of(&planned);
    draft.files = record_files(&planned);
    draft.reasons = decision.reasons;
    let mut members = planned.output;
    members.insert("artifactUris".to_owned(), Value::from(vec![uri]));
    members.insert("summary".to_owned(), Value::from(planned.summary));
    members.insert("warnings".to_owned(), Value::from(planned.warnings));
    let told = text_of(&members);
    let mut entry = head.entry(draft, Some(Reply { status: DONE, body: told.clone() }));
    entry.steps = steps;
    entry.artifact = Some(Artifact { artifact_id, diff: planned.diff });
    entry.usage = usage;
    (entry, told)
}

/// The ledger's entry of a change that is only told, and the answer's members but for `seq`, as JSON text.
pub(super) fn dry_entry(head: &CallContext, judged: Judged) -> (Entry, String) {
    let planned = judged.planned;
    let mut draft = head.draft(Verdict::Allow, Outcome::Ok);
    draft.paths_read = paths_of(&planned);
    draft.reasons = judged.decision.reasons;
    draft.reasons.push("dryRun".to_owned());
    let mut members = planned.output;
    for (name, value) in [("applied", false), ("dryRun", true)] {
        if members.contains_key(name) {
            members.insert(name.to_owned(), Value::from(value));
        }
    }
    members.insert("artifactUris".to_owned(), Value::Array(Vec::new()));
    members.insert("summary".to_owned(), Value::from(format!("dry run: would have {}", planned.summary)));
    members.insert("warnings".to_owned(), Value::from(planned.warnings));
    let told = text_of(&members);
    (head.entry(draft, Some(Reply { status: DONE, body: told.clone() })), told)
}

fn text_of(members: &Map<String, Value>) -> String {
    // Names and values of JSON have a text.
    serde_json::to_string(members).unwrap_or_default()
}

/// Somebody has decided already.
pub(super) fn not_pending() -> Refusal {
    Refusal::new(
        Code::AlreadyExists,
        "the approval is decided already",
        "Look at it with GET /v1/approvals/{id}; an approval is decided once.",
    )
}

/// An earlier attempt at the same call, whose commit was in doubt, turns out to be recorded.
pub fn repeated() -> Refusal {
    Refusal::new(
        Code::Unavailable,
        "an earlier attempt at this call is recorded, whose outcome was in doubt until now; nothing was done twice",
        "Send the same call again under the same toolCallId: it is answered as the first attempt.",
    )
}

/// The answer that `told` says in JSON, with what is only known once it is recorded.
pub(super) fn done_answer(head: &CallContext, told: &str, seq: u64, hash: Option<Sha256>) -> Answer {
    let mut output = format!("{{\"seq\":{seq}");
    if let Some(hash) = hash {
        output.extend([",\"headHash\":\"", &hash.to_string(), "\""]);
    }
    let rest = told.strip_prefix('{').unwrap_or("}");
    output.extend([if rest.starts_with('}') { "" } else { "," }, rest]);
    Answer { body: splice(&head.tool_call_id, &output), head: Some(ChainHead { seq, hash }) }
}

pub(super) fn paths_of(planned: &ChangePlan) -> Vec<LogicalPath> {
    planned.changes.changes.iter().map(|change| change.path.clone()).collect()
}

pub(super) fn denied(reasons: Vec<String>) -> Refusal {
    Refusal::new(
        Code::PolicyDenied,
        "the run's policy denies this change",
        "Look at the run's policy, and stay within it.",
    )
    .with_details(|details| details.reasons = reasons)
}

/// Files were changed from outside between the plan and the journal: nothing is pending yet, so this is a plain conflict.
pub(super) fn changed_meanwhile(paths: &[LogicalPath]) -> Refusal {
    let names: Vec<_> = paths.iter().map(|path| format!("`{path}`")).collect();
    let message = format!("{} changed while the call was under way", names.join(", "));
    let refusal = Refusal::new(Code::WriteConflict, message, "Read the file again, and make the call anew.");
    paths.first().map_or(refusal.clone(), |path| refusal.at(path))
}

pub(super) fn needs_repair() -> Refusal {
    Refusal::new(
        Code::RunNeedsRepair,
        "the run's files were changed from outside while a change was pending; it takes no mutations",
        "Reads still work; ask the operator to repair the run.",
    )
}
