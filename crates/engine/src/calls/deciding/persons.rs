//! Which persons stand behind votes and calls: four eyes are those of different persons.

use std::collections::BTreeSet;

use model::{Approval, ApprovalVote, RUN_TOKEN_ACTOR, Record, Run, RunId};

use crate::CallError;
use crate::admission::operators::{OF_ISSUER, OPERATOR};
use crate::calls::Calls;
use crate::history::content_history;
use ledger::{RecordFilter, RecordReader};

/// An operator, and the persons for whom it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Persons {
    operator: String,
    names: BTreeSet<String>,
}

/// Folds a name, so that letter case and look-alikes do not make two persons of one.
fn fold(name: &str) -> String {
    model::fold_name(name.trim()).trim().to_owned()
}

impl Persons {
    /// The persons of an operator.
    pub(crate) fn of_operator(name: &str) -> Self {
        Self { operator: fold(name), names: BTreeSet::from([fold(name)]) }
    }

    /// The persons of a vote: the person whom it names, and the operator, unless its token names nobody.
    pub(crate) fn of_vote(vote: &ApprovalVote) -> Self {
        let mut persons = Self::of_operator(vote.operator.as_str());
        if let Some(person) = &vote.on_behalf_of {
            if persons.operator == OPERATOR {
                persons.names.clear();
            }
            persons.names.insert(fold(person));
        }
        persons
    }

    /// Whether one person may be behind both.
    pub(crate) fn overlap(&self, other: &Self) -> bool {
        self.operator == other.operator || !self.names.is_disjoint(&other.names)
    }
}

impl Calls {
    /// Returns the operators behind the call that waits for `approval`: who asked, and who made the call for it, such as the runner of a
    /// command, which could bring a change of its own.
    pub(crate) async fn operators_of_call(&self, approval: &Approval, run: &Run) -> Result<Vec<String>, CallError> {
        let mut actors = vec![approval.actor.clone()];
        if let Some(call) = self.engine.ledger.call(&approval.run_id, &approval.tool_call_id).await? {
            let caller = content_history::parse(&call.record)?.actor;
            actors.extend((caller != approval.actor).then_some(caller));
        }
        let mut operators = Vec::new();
        for actor in actors {
            operators.extend(self.operator_behind(&actor, run).await?);
        }
        Ok(operators)
    }

    /// Returns the operator that an actor is, or the issuer of its run token.
    async fn operator_behind(&self, actor: &str, run: &Run) -> Result<Option<String>, CallError> {
        if let Some(name) = actor.strip_prefix("operator:") {
            return Ok(Some(name_of(name)));
        }
        let Some(token) = actor.strip_prefix(RUN_TOKEN_ACTOR) else { return Ok(None) };
        if token.starts_with(OF_ISSUER) {
            // Signed for the same person by whatever name: as an operator or for a run.
            return Ok(Some(token.to_owned()));
        }
        let issuer = self.issuer(&run.run_id, token).await?;
        // The first token of a run is made with it.
        Ok(issuer.or_else(|| run.created_by.as_ref().map(ToString::to_string)))
    }

    /// Returns the operator who issued a token of the run, unless that was made with the run.
    async fn issuer(&self, run: &RunId, token: &str) -> Result<Option<String>, CallError> {
        let (run, tool) = (Some(run.clone()), Some("token.issue".to_owned()));
        let filter = RecordFilter { run, tool, ..RecordFilter::default() };
        let mut records = RecordReader::new(self.engine.ledger.as_ref(), filter);
        while let Some(stored) = records.next().await? {
            let record = content_history::parse(&stored.text)?;
            if names_token(&record, token) {
                return Ok(record.actor.strip_prefix("operator:").map(name_of));
            }
        }
        Ok(None)
    }
}

fn names_token(record: &Record, token: &str) -> bool {
    let id = record.input.as_ref().and_then(|input| input.get("tokenId"));
    id.and_then(serde_json::Value::as_str) == Some(token)
}

/// Returns the operator's name of an actor: records have another one for the token of the environment.
fn name_of(actor: &str) -> String {
    if actor == model::Scope::Orchestrate.as_str() { OPERATOR } else { actor }.to_owned()
}

#[cfg(test)]
mod tests {
    use model::OperatorName;

    use super::*;

    fn vote(operator: &str, person: Option<&str>) -> ApprovalVote {
        ApprovalVote { operator: OperatorName::parse(operator).unwrap(), on_behalf_of: person.map(str::to_owned) }
    }

    #[test]
    fn a_vote_is_that_of_the_operator_and_of_the_person_that_it_names() {
        for (one, other, is_same) in [
            (vote("ada", None), vote("Ada", None), true),
            (vote("ada", None), vote("bob", None), false),
            // A shared token is one voter, and stands for whom it names.
            (vote("operator", Some("ada")), vote("operator", Some("zoe")), true),
            (vote("operator", Some("ADA ")), vote("ada", None), true),
            (vote("operator", Some("ada")), vote("zoe", None), false),
            // A named operator cannot vote as somebody else.
            (vote("ada", Some("zoe")), vote("ada", None), true),
            (vote("ada", Some("zoe")), vote("zoe", None), true),
            (vote("ada", Some("zoe")), vote("bob", None), false),
            (vote("zoe", Some("ada")), vote("ada", None), true),
        ] {
            let (left, right) = (Persons::of_vote(&one), Persons::of_vote(&other));
            assert_eq!((left.overlap(&right), right.overlap(&left)), (is_same, is_same), "{one:?} {other:?}");
        }
    }
}
