//! The tokens of a restored database. Those that were revoked after the backup are valid again.

use std::collections::BTreeMap;

use engine::clock::{new_tool_call_id, now};
use engine::operators::chain;
use ledger::{Entry, Ledger, OperatorChange, RunTransition};
use model::{Draft, OperatorName, RunState, Sha256, Token};
use serde::Serialize;

use crate::offline_run::database;
use crate::restore::removed::ACTOR;
use config::StartError;

/// The reason in the records of revocations.
const REASON: &str = "the restore of a backup revokes every token";
/// Tokens or operators that one query returns at most.
const PAGE: u32 = 500;

/// The valid tokens of a restored database, or those that were valid until the restore has revoked them.
#[derive(Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct RestoredTokens {
    /// Number of tokens of runs that are not deleted.
    of_runs: usize,
    /// Number of operators of the database.
    operators: usize,
    are_revoked: bool,
}

impl RestoredTokens {
    /// Returns what the operator has to know, if there is a token.
    pub(crate) fn remark(&self) -> Option<String> {
        let Self { of_runs, operators, are_revoked } = self;
        let counted = [(of_runs, "tokens of runs"), (operators, "operators")];
        let counted: Vec<_> =
            counted.iter().filter(|(count, _)| **count > 0).map(|(count, what)| format!("{count} {what}")).collect();
        if counted.is_empty() {
            return None;
        }
        let counted = counted.join(" and ");
        Some(if *are_revoked {
            format!("{counted} were revoked")
        } else {
            format!(
                "{counted} are valid, and those that were revoked after the backup are valid again: revoke them again before \
                 agents reach the service, or repeat the restore with --revoke-tokens"
            )
        })
    }
}

/// Counts the valid tokens. With `revokes`, revokes each.
///
/// # Errors
///
/// If the database fails.
pub(crate) async fn settle(ledger: &dyn Ledger, revokes: bool) -> Result<RestoredTokens, StartError> {
    let at = now();
    let (tokens, operators) = (of_runs(ledger, &at).await?, operators(ledger, &at).await?);
    if revokes {
        for token in &tokens {
            ledger.append(vec![revocation(token, &at)]).await.map_err(database)?;
        }
        for name in &operators {
            let change = OperatorChange::Revoke { name: name.clone(), at: at.clone() };
            let mut entry = chain::record(ACTOR, change);
            entry.draft.reason = Some(REASON.to_owned());
            ledger.change_operator(entry).await.map_err(database)?;
        }
    }
    Ok(RestoredTokens { of_runs: tokens.len(), operators: operators.len(), are_revoked: revokes })
}

/// Returns the valid tokens of runs that are not deleted.
async fn of_runs(ledger: &dyn Ledger, at: &str) -> Result<Vec<Token>, StartError> {
    let (mut tokens, mut after) = (Vec::new(), Sha256::ZERO);
    loop {
        let page = ledger.token_hashes(&after, at, PAGE).await.map_err(database)?;
        let Some(last) = page.last() else { return Ok(tokens) };
        after = *last;
        for hash in page {
            let Some(token) = ledger.token(&hash).await.map_err(database)? else { continue };
            let stored = ledger.run(&token.run_id).await.map_err(database)?;
            if stored.is_some_and(|stored| stored.run.state != RunState::Deleted) {
                tokens.push(token);
            }
        }
    }
}

/// Returns the names of the operators that have a valid token.
async fn operators(ledger: &dyn Ledger, at: &str) -> Result<Vec<OperatorName>, StartError> {
    let (mut names, mut after) = (BTreeMap::new(), 0);
    loop {
        let page = ledger.operators(after, PAGE).await.map_err(database)?;
        let Some((last, _)) = page.last() else { return Ok(names.into_values().collect()) };
        after = *last;
        for (_, token) in page {
            let operator = token.operator;
            let has_ended = |end: &Option<String>| end.as_deref().is_some_and(|end| end <= at);
            if !has_ended(&operator.expires_at) && !has_ended(&operator.revoked_at) {
                names.insert(operator.name.as_str().to_lowercase(), operator.name);
            }
        }
    }
}

fn revocation(token: &Token, at: &str) -> Entry {
    let mut draft =
        Draft::new(token.run_id.clone(), ACTOR.to_owned(), "token.revoke", new_tool_call_id(), at.to_owned());
    draft.input = serde_json::json!({ "tokenId": token.token_id }).as_object().cloned();
    draft.reason = Some(REASON.to_owned());
    let mut entry = Entry::new(draft, Sha256::ZERO);
    entry.run_change = Some(RunTransition::RevokeToken(token.token_id.clone()));
    entry
}

#[cfg(test)]
mod tests {
    use super::RestoredTokens;

    #[test]
    fn a_remark_names_only_what_there_is() {
        let remark = |of_runs, operators, are_revoked| RestoredTokens { of_runs, operators, are_revoked }.remark();
        assert_eq!(remark(0, 0, true), None);
        assert_eq!(remark(2, 1, true).unwrap(), "2 tokens of runs and 1 operators were revoked");
        assert_eq!(remark(2, 0, true).unwrap(), "2 tokens of runs were revoked");
        assert!(remark(0, 1, false).unwrap().starts_with("1 operators are valid, and"));
    }
}
