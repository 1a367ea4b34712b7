//! The decision about an access or a change.

use crate::{Refusal, Verdict};

/// The decision of a policy, with the rules that decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The verdict.
    pub verdict: Verdict,
    /// The rules that decided, such as `kind:SECRET_LIKE`, `deny:secrets/**`, `budget:maxInsertions`.
    pub reasons: Vec<String>,
    /// The refusal for the caller if the verdict is `Deny`.
    pub refusal: Option<Refusal>,
}

impl Decision {
    pub(super) fn allow(reasons: Vec<String>) -> Self {
        Self { verdict: Verdict::Allow, reasons, refusal: None }
    }

    pub(super) fn deny(refusal: Refusal) -> Self {
        Self { verdict: Verdict::Deny, reasons: refusal.details.reasons.clone(), refusal: Some(refusal) }
    }
}
