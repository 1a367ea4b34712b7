//! The ledger's entries of a transaction's calls, and their answers.

use ledger::{Artifact, Entry, Reply};
use model::{By, Outcome, Sha256, Usage, Verdict};
use serde_json::{Map, Value};

use crate::call::idempotency::{DONE, mutation_answer};
use crate::call::record::read_entry;
use crate::call::{Answer, Call, splice};
use crate::clock::new_artifact_id;
use crate::tool::change_plan::ChangePlan;
use crate::transaction::judge::{JudgedChange, JudgedItem};

/// The answer of a call whose record is not appended yet.
pub(crate) enum PendingAnswer {
    /// The members of a mutation's answer as JSON text, without `seq` and `headHash`.
    Mutation(String),
    /// The complete answer of a read.
    Read(Answer),
}

impl PendingAnswer {
    /// Completes the answer with the call's record.
    pub(crate) fn complete(self, call: &Call, seq: u64, hash: Option<Sha256>) -> Answer {
        match self {
            Self::Mutation(members) => mutation_answer(call, &members, seq, hash),
            Self::Read(answer) => answer,
        }
    }
}

/// Returns the entry and the answer of a call that takes effect.
pub(crate) fn committed(call: &Call, item: JudgedItem) -> (Entry, PendingAnswer) {
    let JudgedChange { plan, reasons, usage } = match item {
        JudgedItem::Change(change) => change,
        JudgedItem::Read(mut output) => {
            let entry = read_entry(call, &mut output);
            let body = splice(&call.tool_call_id, &output.output);
            return (entry, PendingAnswer::Read(Answer { body, head: None }));
        }
    };
    let artifact_id = new_artifact_id();
    let uri = format!("artifact://{}/{artifact_id}", call.run_id);
    let mut draft = call.draft(Verdict::Allow, Outcome::Ok);
    draft.artifact_uris = vec![uri.clone()];
    draft.diff_sha256 = Some(Sha256::of(&plan.diff));
    draft.reasons = reasons;
    let steps = match plan.accepted {
        None => {
            (draft.paths_written, draft.files) = (plan.paths(), plan.record_files());
            plan.steps()
        }
        // Nothing is written: the history goes on with what was found.
        Some(ref accepted) => {
            (draft.paths_written, draft.files) = (accepted.paths(), accepted.files.clone());
            accepted.steps.clone()
        }
    };
    let ChangePlan { output, summary, warnings, diff, .. } = plan;
    let members = answer_members(output, vec![uri], summary, warnings);
    let mut entry = call.entry(draft, Some(Reply { status: DONE, body: members.clone() }));
    entry.steps = steps;
    entry.artifact = Some(Artifact { artifact_id, diff });
    // People's changes take nothing from the agent's budget.
    entry.usage = if call.made_by() == By::Agent { usage } else { Usage::default() };
    (entry, PendingAnswer::Mutation(members))
}

/// Returns the entry and the answer of a dry run.
pub(crate) fn dry_run(call: &Call, item: JudgedItem) -> (Entry, PendingAnswer) {
    let JudgedChange { plan, reasons, .. } = match item {
        JudgedItem::Change(change) => change,
        read @ JudgedItem::Read(_) => return committed(call, read),
    };
    let mut draft = call.draft(Verdict::Allow, Outcome::Ok);
    draft.paths_read = plan.paths();
    draft.reasons = reasons;
    draft.reasons.push("dryRun".to_owned());
    let ChangePlan { mut output, summary, warnings, .. } = plan;
    for (name, value) in [("applied", false), ("dryRun", true)] {
        if output.contains_key(name) {
            output.insert(name.to_owned(), Value::from(value));
        }
    }
    let members = answer_members(output, Vec::new(), format!("dry run: would have {summary}"), warnings);
    let entry = call.entry(draft, Some(Reply { status: DONE, body: members.clone() }));
    (entry, PendingAnswer::Mutation(members))
}

fn answer_members(
    mut output: Map<String, Value>,
    artifact_uris: Vec<String>,
    summary: String,
    warnings: Vec<String>,
) -> String {
    output.insert("artifactUris".to_owned(), Value::from(artifact_uris));
    output.insert("summary".to_owned(), Value::from(summary));
    output.insert("warnings".to_owned(), Value::from(warnings));
    // JSON names and values always serialise.
    serde_json::to_string(&output).unwrap_or_default()
}
