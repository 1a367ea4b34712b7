//! Who must approve a call that requires approval.

use serde::{Deserialize, Serialize};

/// The maximum of [`ApprovalRule::approvers`].
pub(super) const MAX_APPROVERS: u64 = 16;

/// Who must approve a call that requires approval. One denial ends it in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct ApprovalRule {
    /// How many operators must approve, 1 to 16. An operator who approves twice counts once.
    #[schema(minimum = 1, maximum = 16)]
    pub approvers: u64,
    /// Whether the operator who created the run, and the operator who made the call, may not approve.
    pub not_creator: bool,
}

impl Default for ApprovalRule {
    fn default() -> Self {
        Self { approvers: 1, not_creator: false }
    }
}

/// Some members of an [`ApprovalRule`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
#[expect(missing_docs, reason = "as in `ApprovalRule`")]
pub struct ApprovalRuleOverrides {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 16)]
    pub approvers: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_creator: Option<bool>,
}

impl ApprovalRuleOverrides {
    /// These members, and those of `base` where one is missing.
    pub(super) fn over(self, base: ApprovalRule) -> ApprovalRule {
        ApprovalRule {
            approvers: self.approvers.unwrap_or(base.approvers),
            not_creator: self.not_creator.unwrap_or(base.not_creator),
        }
    }
}
