//! The records of changes of operators, in the service's own chain.

use ledger::{Entry, LedgerError, OperatorChange};
use model::{Draft, OperatorName, OperatorToken, Refusal, RunId, Sha256};
use serde_json::{Value, json};

use crate::CallError;
use crate::admission::operators::OperatorIdentity;
use crate::clock::{new_tool_call_id, now};
use crate::operators::Operators;
use crate::operators::manage::no_such_operator;

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
    ///
    /// # Errors
    ///
    /// `taken` if the name, the token or the key is taken; the errors of the ledger. After most of them it is uncertain whether the
    /// change was stored.
    pub(super) async fn change_operator(
        &self,
        by: &OperatorIdentity,
        change: OperatorChange,
        taken: impl FnOnce() -> Refusal,
    ) -> Result<bool, CallError> {
        let mut entry = record(&by.actor(), change);
        entry.preconditions.token = by.required_token();
        match self.engine.ledger.change_operator(entry).await {
            Ok(is_changed) => Ok(is_changed),
            Err(LedgerError::AlreadyExists) => Err(taken().into()),
            // Nothing was stored.
            Err(rejected @ LedgerError::CreationRejected(_)) => Err(rejected.into()),
            Err(error) => Err(self.uncertain_change(error)),
        }
    }

    /// Parses the name of an operator of the ledger. `hint` tells how one of the configuration is changed.
    ///
    /// # Errors
    ///
    /// `NOT_FOUND` for what is no name; `INVALID_REQUEST` for an operator of the configuration.
    pub(super) fn stored_name(&self, raw: &str, hint: &str) -> Result<OperatorName, Refusal> {
        let name = OperatorName::parse(raw).map_err(|_| no_such_operator())?;
        if self.engine.tokens.operators.is_fixed(&name) {
            let message = format!("the operator `{name}` is set by the configuration of the service");
            return Err(Refusal::invalid(message, hint));
        }
        Ok(name)
    }
}
