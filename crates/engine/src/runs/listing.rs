//! The list of runs.

use async_recursion::async_recursion as boxed;
use ledger::RunFilter;
use model::{Refusal, Run, RunSort, RunState, Source};
use serde::Deserialize;

use crate::CallError;
use crate::admission::operators::OPERATOR;
use crate::page::conditions::{CreatedQuery, LabelQuery, OrderQuery};
use crate::page::{Cursor, List, Page};
use crate::run::open_run::has_expired;
use crate::runs::Runs;

/// Maximum characters of a text that is searched for.
const MAX_TEXT: usize = 200;

/// Which runs to list.
#[derive(Clone, Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", default)]
#[into_params(parameter_in = Query)]
pub struct RunQuery {
    /// Only runs in this state.
    state: Option<RunState>,
    /// Only runs that this operator created, as the audit names it: `operator:NAME`.
    #[param(example = "operator:ada")]
    actor: Option<String>,
    /// Only runs whose ID, labels, source, creator or first prompt contain this text, 1 to 200 characters, in any letter case.
    #[param(max_length = 200, example = "login")]
    q: Option<String>,
    /// Whether deleted runs are listed too. Default: true.
    deleted: Option<bool>,
    /// What the runs are ordered by; with `order=desc` the last or the most comes first. Default: `created`. A run whose number changes while a caller reads page
    /// after page may be on two of them, or on none.
    #[param(inline)]
    sort: Option<RunSort>,
}

impl RunQuery {
    /// Returns the filter for the ledger.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`.
    pub fn to_ledger(
        &self,
        created: &CreatedQuery,
        labels: &LabelQuery,
        order: OrderQuery,
    ) -> Result<RunFilter, Refusal> {
        let (created_after, created_before) = created.times()?;
        let is_text = |text: &String| (1..=MAX_TEXT).contains(&text.chars().count());
        if !self.q.as_ref().is_none_or(is_text) {
            return Err(Refusal::invalid("`q` is empty or too long", "Give 1 to 200 characters, or omit it."));
        }
        Ok(RunFilter {
            state: self.state,
            created_by: self.actor.as_deref().map(operator_name).transpose()?,
            labels: labels.check()?,
            created_after,
            created_before,
            text: self.q.clone(),
            without_deleted: self.deleted == Some(false),
            sort: self.sort.filter(|sort| *sort != RunSort::Created),
            newest_first: order.is_newest_first(),
        })
    }
}

/// Returns the name of the operator that the audit calls `actor`.
fn operator_name(actor: &str) -> Result<String, Refusal> {
    match actor.strip_prefix("operator:") {
        None | Some("") => {
            let message = format!("invalid `actor` \"{}\": runs are created by operators", model::excerpt(actor, 100));
            Err(Refusal::invalid(message, "Give `operator:NAME`, such as `operator:ada`."))
        }
        Some("orchestrate") => Ok(OPERATOR.to_owned()),
        Some(name) => Ok(name.to_owned()),
    }
}

impl Runs {
    /// Returns a page of the runs that match `filter`, in order of creation.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    #[boxed]
    pub async fn runs(&self, filter: &RunFilter, after: Option<Cursor>, limit: u32) -> Result<Page<Run>, CallError> {
        let mut importing = self.engine.imports.unstored();
        importing.retain(|run| run.source != Source::Archive {} && filter.matches(run));
        let found = self.engine.ledger.runs(filter, after.map(Cursor::position), limit.into()).await?;
        let mut page = Page::of(found, &List::Runs.filtered(filter));
        for run in &mut page.items {
            if has_expired(run.state, run.expires_at.as_deref()) {
                run.state = RunState::Closed;
            }
        }
        page.items.retain(|run| filter.state.is_none_or(|state| state == run.state));
        // Imports in progress are the newest runs. The ledger has them once they are complete.
        if filter.newest_first && after.is_none() {
            page.items.splice(0..0, self.not_stored(importing).await?);
        } else if !filter.newest_first && page.next_cursor.is_none() {
            let known: Vec<_> = page.items.iter().map(|run| run.run_id.clone()).collect();
            page.items.extend(importing.into_iter().filter(|run| !known.contains(&run.run_id)));
        }
        Ok(page)
    }

    /// Returns the runs that the ledger does not have, the newest first. To be called after the first page is read: a run that
    /// is not stored then is newer than every run of the following pages.
    async fn not_stored(&self, importing: Vec<Run>) -> Result<Vec<Run>, CallError> {
        let mut found = Vec::new();
        for run in importing.into_iter().rev() {
            if self.engine.ledger.run(&run.run_id).await?.is_none() {
                found.push(run);
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_creator_is_named_as_in_the_audit() {
        for (actor, name) in [("operator:ada", Some("ada")), ("operator:orchestrate", Some("operator"))] {
            assert_eq!(operator_name(actor).ok().as_deref(), name);
        }
        for bad in ["", "ada", "operator:", "run-token:tok_1", "service"] {
            assert!(operator_name(bad).is_err(), "{bad:?}");
        }
    }
}
