//! The records of changes of operators, in the service's own chain.

use std::sync::Arc;

use ledger::{Entry, LedgerError, OperatorChange};
use model::{Draft, OperatorToken, RunId, Sha256};
use serde_json::{Value, json};

use crate::CallError;
use crate::admission::operators::OperatorIdentity;
use crate::clock::{new_tool_call_id, now};
use crate::operators::Operators;

/// Returns the entry with which `actor` makes `change`. Its record has no token.
pub fn record(actor: &str, change: OperatorChange) -> Entry {
    let described = |token: &OperatorToken| {
        let operator = &token.operator;
        json!({ "name": operator.name, "scopes": operator.scopes, "expiresAt": operator.expires_at })
    };
    let (tool, mut input) = match &change {
        OperatorChange::Create { token, .. } => ("operator.create", described(token)),
        OperatorChange::ReplaceToken { token, ends_at, .. } => {
            let mut input = described(token);
            input["presentEndsAt"] = json!(ends_at);
            ("operator.rotate", input)
        }
        OperatorChange::Revoke { name, .. } => ("operator.revoke", json!({ "name": name })),
    };
    if let Value::Object(members) = &mut input {
        members.retain(|_, value| !value.is_null());
    }
    let mut draft = Draft::new(RunId::service(), actor.to_owned(), tool, new_tool_call_id(), now());
    draft.input = input.as_object().cloned();
    let mut entry = Entry::new(draft, Sha256::ZERO);
    entry.operator_change = Some(Box::new(change));
    entry
}

impl Operators {
    /// Changes an operator, as `by` has asked for, unless its token has ended. Returns false if no operator of that name is valid.
    pub(super) async fn change_operator(
        &self,
        by: &OperatorIdentity,
        change: OperatorChange,
    ) -> Result<bool, LedgerError> {
        let mut entry = record(&by.actor(), change);
        entry.preconditions.token = by.required_token();
        self.engine.ledger.change_operator(entry).await
    }

    /// Returns the error of a change of operators that failed in the ledger.
    pub(super) fn failed_change(self: &Arc<Self>, error: LedgerError) -> CallError {
        match error {
            // Nothing was stored.
            rejected @ LedgerError::CreationRejected(_) => rejected.into(),
            error => self.uncertain_change(error),
        }
    }
}
