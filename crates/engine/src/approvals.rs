//! Approvals: lists and decisions of operators.

pub(crate) mod decide;
pub(crate) mod present;
pub(crate) mod waiting_calls;
pub(crate) mod warnings;

use std::sync::Arc;

use ledger::ApprovalFilter;
use model::{Approval, ApprovalId, ApprovalState, Refusal, RunId};
use serde::Deserialize;

use crate::CallError;
use crate::admission::operators::OperatorIdentity;
use crate::approvals::decide::{ApprovalEdit, DecidingPerson, MAX_EDITS};
use crate::clock::now;
use crate::engine::Engine;
use crate::page::conditions::{CreatedQuery, OrderQuery, check_actor, check_path_prefix, recorded_actor};
use crate::page::{Cursor, List, Page};

/// Maximum characters of `onBehalfOf`, and of `decidedBy`.
const MAX_NAME: (usize, usize) = (200, 128);
const MAX_NOTE: usize = 2000;

/// Which approvals to list.
#[derive(Clone, Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", default)]
#[into_params(parameter_in = Query)]
pub struct ApprovalQuery {
    /// Only approvals in this state.
    state: Option<ApprovalState>,
    /// Only approvals of this run.
    #[param(value_type = Option<RunId>, example = "issue-4711")]
    run: Option<String>,
    /// Only approvals of calls by this caller: `operator:NAME` or `run-token:TOKEN_ID`.
    #[param(example = "run-token:tok_4711")]
    actor: Option<String>,
    /// Only approvals of calls that would change a file whose path begins with this text, such as `src/`.
    #[param(example = "src/")]
    path_prefix: Option<String>,
}

impl ApprovalQuery {
    /// Returns the filter for the ledger.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`.
    pub fn to_ledger(&self, created: &CreatedQuery, order: OrderQuery) -> Result<ApprovalFilter, Refusal> {
        let run = self.run.as_deref().map(RunId::parse).transpose();
        let run = run.map_err(|error| Refusal::invalid(error.to_string(), "Give a run ID that GET /v1/runs lists."))?;
        self.actor.as_deref().map_or(Ok(()), check_actor)?;
        self.path_prefix.as_deref().map_or(Ok(()), check_path_prefix)?;
        let (created_after, created_before) = created.times()?;
        Ok(ApprovalFilter {
            state: self.state,
            run,
            actor: self.actor.as_deref().map(recorded_actor),
            path_prefix: self.path_prefix.clone(),
            created_after,
            created_before,
            newest_first: order.is_newest_first(),
        })
    }
}

/// What an operator decides about a call that waits for approval.
#[derive(Clone, Debug, Default, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApprovalDecision {
    /// The person for whom the operator decides, 1 to 200 characters without control or bidirectional ones. Required from
    /// the operator `operator`, whose token names nobody. The name of a caller, such as `operator:…`, `run-token:…` or
    /// `service`, is refused. A credential in it or in the note is replaced by `[redacted: kind]`.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 200, example = "alice")]
    on_behalf_of: Option<String>,
    /// The earlier name of `onBehalfOf`, at most 128 characters.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 128, deprecated)]
    decided_by: Option<String>,
    /// A note, at most 2,000 characters.
    #[serde(default)]
    #[schema(max_length = 2000, example = "Fits the ticket.")]
    note: Option<String>,
    /// What you change in the result, if you approve: at most 100 changes. They are judged and recorded as yours, after the call,
    /// and are applied with it or not at all. Refused where the policy asks for several persons or for others than the author.
    #[serde(default)]
    #[schema(max_items = 100)]
    edits: Vec<ApprovalEdit>,
}

impl ApprovalDecision {
    /// Checks the name and the note, which the audit records.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`.
    pub fn check(self, operator: Arc<OperatorIdentity>) -> Result<DecidingPerson, Refusal> {
        let on_behalf_of = match (&self.on_behalf_of, &self.decided_by) {
            (Some(_), Some(_)) => {
                let message = "`onBehalfOf` and `decidedBy`, which is its earlier name, are both given";
                return Err(Refusal::invalid(message, "Give `onBehalfOf` only."));
            }
            (None, Some(name)) => Some(check_name("decidedBy", name, MAX_NAME.1)?),
            (name, None) => check_person(&operator, name.as_deref())?,
        };
        if self.note.as_ref().is_some_and(|note| note.chars().count() > MAX_NOTE || note.contains('\0')) {
            let message = format!("`note` is longer than {MAX_NOTE} characters or contains a NUL character");
            return Err(Refusal::invalid(message, "Give a shorter note, or omit it."));
        }
        if self.edits.len() > MAX_EDITS {
            let message = format!("`edits` has {} changes; the limit is {MAX_EDITS}", self.edits.len());
            return Err(Refusal::invalid(message, "Give fewer changes, or deny the call with a note."));
        }
        let note = self.note.map(|note| model::redact(&note).into_owned());
        Ok(DecidingPerson { operator, on_behalf_of, note, edits: self.edits, request: None })
    }
}

/// Returns the person for whom `operator` acts, without credentials. A shared token names nobody, so that the request has to.
///
/// # Errors
///
/// `INVALID_REQUEST`.
pub(crate) fn check_person(operator: &OperatorIdentity, name: Option<&str>) -> Result<Option<String>, Refusal> {
    match name {
        Some(name) => Ok(Some(check_name("onBehalfOf", name, MAX_NAME.0)?)),
        None if operator.is_shared() => {
            let message = "`onBehalfOf` is missing: the operator `operator` is not a person";
            let hint = "Name the person who decides in `onBehalfOf`, or use the token of a named operator.";
            Err(Refusal::invalid(message, hint))
        }
        None => Ok(None),
    }
}

/// Returns the name without credentials.
fn check_name(member: &str, raw: &str, max: usize) -> Result<String, Refusal> {
    let name = raw.trim();
    if name.is_empty() || name.chars().count() > max || name.chars().any(model::is_unprintable) {
        let message = format!("`{member}` is empty, too long or contains control or bidirectional characters");
        let hint = format!("Give the name of the person who decides, 1 to {max} characters.");
        return Err(Refusal::invalid(message, hint));
    }
    if looks_like_actor(name) {
        let message = format!("`{member}` looks like a caller in the audit");
        let hint = "Give the name of the person who decides, without a prefix such as `operator:`.";
        return Err(Refusal::invalid(message, hint));
    }
    Ok(model::redact(name).into_owned())
}

/// The names after `operator:` in the audit that are not persons: the two configured tokens, and the repair command.
const TOKEN_NAMES: [&str; 3] = ["orchestrate", "audit", "repair"];

/// Whether a name looks like an actor in the audit: the service, an operator or a run token.
fn looks_like_actor(name: &str) -> bool {
    let folded = model::fold_name(name);
    let folded = folded.trim();
    // Many characters look like a colon, so every character that does not occur in words counts as one.
    let is_in_word = |c: &char| {
        c.is_ascii_alphanumeric()
            || matches!(c, ' ' | '-' | '_' | '\u{200b}'..='\u{2015}' | '\u{2060}' | '\u{2212}' | '\u{feff}')
    };
    let kind: String = folded.chars().take_while(is_in_word).collect();
    let has_more = kind.len() < folded.len();
    let kind: String = kind.replace('0', "o").chars().filter(char::is_ascii_alphanumeric).collect();
    match kind.as_str() {
        "service" | "operator" | "runtoken" => true,
        kind => !has_more && TOKEN_NAMES.contains(&kind),
    }
}

impl Engine {
    /// Returns a page of the approvals that match `filter`, in order of creation, without their diffs. Pending ones say which of their
    /// files have changed, as far as the ledger knows.
    ///
    /// # Errors
    ///
    /// If the ledger fails.
    pub(crate) async fn approvals(
        &self,
        filter: &ApprovalFilter,
        after: Option<Cursor>,
        limit: u32,
    ) -> Result<Page<Approval>, CallError> {
        let found = self.ledger.approvals(filter, after.map(Cursor::position), limit.into()).await?;
        let mut page = Page::of(found, &List::Approvals.filtered(filter));
        for approval in &mut page.items {
            expire_if_due(approval);
            approval.diff = None;
        }
        self.add_stale_warnings(&mut page.items).await?;
        Ok(page)
    }

    /// Returns an approval. It is expired if its time has passed.
    ///
    /// # Errors
    ///
    /// `NOT_FOUND`.
    pub(crate) async fn current_approval(&self, id: &ApprovalId) -> Result<Approval, CallError> {
        let mut approval = self.approval(id).await?;
        expire_if_due(&mut approval);
        Ok(approval)
    }
}

/// Sets the state of a pending approval whose time has passed. The ledger may not have that state yet.
fn expire_if_due(approval: &mut Approval) {
    if approval.state == ApprovalState::Pending && approval.expires_at <= now() {
        approval.state = ApprovalState::Expired;
        approval.resolve(None);
    }
}
