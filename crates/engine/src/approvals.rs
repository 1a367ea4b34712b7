//! Calls that wait for approval, as operators see them.

pub mod decide;

use model::{Approval, ApprovalId, ApprovalState, Refusal, RunId};
use serde::Deserialize;

use crate::CallError;
use crate::approvals::decide::Decider;
use crate::clock::latest;
use crate::engine::Engine;
use crate::page::{Cursor, List, Page};

const MAX_NAME: usize = 128;
const MAX_NOTE: usize = 2000;

/// Which approvals to list.
#[derive(Clone, Debug, Default, Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase", default)]
#[into_params(parameter_in = Query)]
pub struct ApprovalFilter {
    /// Only approvals in this state.
    state: Option<ApprovalState>,
    /// Only approvals of this run.
    #[param(value_type = Option<RunId>, example = "issue-4711")]
    run: Option<String>,
}

/// What a person says to a call that waits.
#[derive(Clone, Debug, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ApprovalDecision {
    /// Who decides, as the orchestrator names them; 1 to 128 characters, none of them a control or bidirectional one. What
    /// reads as the name of a caller, such as `operator:…`, `run-token:…` or `service`, is refused. A credential in it or in
    /// the note is replaced by `[redacted: kind]`.
    #[schema(min_length = 1, max_length = 128, example = "alice")]
    decided_by: String,
    /// What they note, at most 2,000 characters.
    #[serde(default)]
    #[schema(max_length = 2000, example = "Fits the ticket.")]
    note: Option<String>,
}

impl ApprovalDecision {
    /// Checks the names and notes that go into the audit.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`.
    pub fn check(self) -> Result<Decider, Refusal> {
        let name = self.decided_by.trim();
        if name.is_empty() || name.chars().count() > MAX_NAME || name.chars().any(model::is_unprintable) {
            let message =
                format!("`decidedBy` takes 1 to {MAX_NAME} characters, none of them a control or bidirectional one");
            return Err(Refusal::invalid(message, "Name the person who decides."));
        }
        if reads_as_actor(name) {
            let message = "`decidedBy` reads as the name of a caller of this service";
            return Err(Refusal::invalid(message, "Name the person who decides, without `operator:` and the like."));
        }
        if self.note.as_ref().is_some_and(|note| note.chars().count() > MAX_NOTE || note.contains('\0')) {
            let message = format!("`note` takes at most {MAX_NOTE} characters");
            return Err(Refusal::invalid(message, "Give a shorter note, or leave it out."));
        }
        let note = self.note.map(|note| model::redact(&note).into_owned());
        Ok(Decider { decided_by: model::redact(name).into_owned(), note })
    }
}

/// Names that the audit puts behind `operator:` for callers that are no persons: the two configured tokens, and the command.
const TOKEN_NAMES: [&str; 3] = ["orchestrate", "audit", "repair"];

/// Whether a name looks like one by which the audit names callers: the service itself, an operator, a run's token.
fn reads_as_actor(name: &str) -> bool {
    let folded = model::fold_name(name);
    let folded = folded.trim();
    // Many characters are drawn much as a colon: each that belongs in no word counts as one.
    let in_words = |c: &char| {
        c.is_ascii_alphanumeric()
            || matches!(c, ' ' | '-' | '_' | '\u{200b}'..='\u{2015}' | '\u{2060}' | '\u{2212}' | '\u{feff}')
    };
    let kind: String = folded.chars().take_while(in_words).collect();
    let has_more = kind.len() < folded.len();
    let kind: String = kind.replace('0', "o").chars().filter(char::is_ascii_alphanumeric).collect();
    match kind.as_str() {
        "service" | "operator" | "runtoken" => true,
        kind => !has_more && TOKEN_NAMES.contains(&kind),
    }
}

impl Engine {
    /// Approvals in the order in which they were asked for.
    ///
    /// # Errors
    ///
    /// `INVALID_REQUEST`.
    pub async fn approvals(
        &self,
        filter: &ApprovalFilter,
        after: Option<Cursor>,
        limit: u32,
    ) -> Result<Page<Approval>, CallError> {
        let run = filter.run.as_deref().map(RunId::parse).transpose();
        let run = run.map_err(|error| Refusal::invalid(error.to_string(), "Name a run as GET /v1/runs lists it."))?;
        let after = after.map(Cursor::position);
        let found = self.ledger.approvals(filter.state, run.as_ref(), after, limit.into()).await?;
        let mut page = Page::of(found, List::Approvals);
        page.items.iter_mut().for_each(lapse);
        Ok(page)
    }

    /// One approval, as it is by now.
    ///
    /// # Errors
    ///
    /// `NOT_FOUND`.
    pub async fn current_approval(&self, id: &ApprovalId) -> Result<Approval, CallError> {
        let mut approval = self.approval(id).await?;
        lapse(&mut approval);
        Ok(approval)
    }
}

/// One whose time is over waits no more, whether or not the ledger has heard of it.
fn lapse(approval: &mut Approval) {
    if approval.state == ApprovalState::Pending && approval.expires_at <= latest() {
        approval.state = ApprovalState::Expired;
    }
}
